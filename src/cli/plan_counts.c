/* Searches over counts of devices: how many are enough, and what other counts would do. */
#include "cli/plan_counts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/facts.h"
#include "text/number.h"

enum {
  FEW_COMPILED = 8,
  MOST_POWER = 14,  /* 16,384 devices */
  REFINED = 3,      /* counts between two powers of two */
  LARGER_TRIED = 6, /* devices of the catalog */
  SHORTEST = 256,   /* tokens of a sequence */
};

/* Devices of a full host. */
static int host_of(const ls_cluster *cluster) {
  const int usual = (int)cluster->accelerator->host_devices;
  return cluster->said.per_host || usual < cluster->per_host ? cluster->per_host : usual;
}

/* A plan of so many devices, with few compiled; NULL: no layout has so many. With `any`, the
 * smallest is found where none fits. */
static ls_planned *plan_few(ls_arena *arena, const ls_plan_question *question, const char *on,
                            int devices, bool any, ls_error *error) {
  ls_planned *made = LS_NEW(arena, ls_planned);
  if (ls_plan_pose(arena, question, on, devices, made, error) != LS_OK) return NULL;
  made->problem.compiled_first = FEW_COMPILED;
  made->problem.only_fitting = !any;
  if (ls_planned_search(arena, made, error) != LS_OK) return NULL;
  ls_plan_prove_rows(&made->problem, made->plan, 1);
  return made;
}

static ls_plan_count try_count(ls_arena *arena, const ls_plan_question *question, const char *on,
                               int devices) {
  ls_error why = {0};
  return (ls_plan_count){devices, plan_few(arena, question, on, devices, true, &why)};
}

void ls_plan_next_counts(ls_arena *arena, const ls_plan_question *question, const char *on,
                         const ls_planned *of, ls_plan_count *more, ls_plan_count *fewer) {
  if (!of->cluster || of->problem.devices > LS_PLAN_NEXT_MOST) return;
  const int devices = of->problem.devices, host = host_of(of->cluster), half = devices / 2;
  *more = try_count(arena, question, on, devices < host ? devices + 1 : devices + host);
  if (devices % 2 == 0 && (half <= host || half % host == 0))
    *fewer = try_count(arena, question, on, half);
}

/* A count that was tried for time and money. */
typedef struct tried {
  int devices;
  double seconds, money; /* INFINITY: no layout fits */
} tried;

typedef struct trial {
  ls_arena *arena;
  const ls_plan_question *question;
  const char *on, *currency;
  int host;
  LS_LIST(tried) list;
} trial;

static bool is_enough(const trial *of, const tried *count) {
  const ls_plan_question *question = of->question;
  return isfinite(count->seconds) &&
         (!(question->within_s > 0) || count->seconds <= question->within_s) &&
         (!(question->budget > 0) || count->money <= question->budget);
}

/* Whether more devices may help: time is short, or memory. */
static bool is_too_few(const trial *of, const tried *count) {
  return !isfinite(count->seconds) ||
         (of->question->within_s > 0 && count->seconds > of->question->within_s);
}

static const char *duration(ls_arena *arena, double seconds) {
  char text[LS_NUMBER_BYTES];
  ls_seconds_show(text, seconds);
  return ls_arena_strdup(arena, text);
}

static void tell(const trial *of, const ls_planned *planned, const tried *count) {
  fprintf(stderr, "%-24s ", planned->text);
  if (!isfinite(count->seconds)) {
    fprintf(stderr, "does not fit\n");
    return;
  }
  fprintf(stderr, "%10s", duration(of->arena, count->seconds));
  if (count->money > 0) fprintf(stderr, " %12.0f %s", count->money, of->currency);
  fprintf(stderr, "  %s\n", ls_plan_print(of->arena, ls_planned_best(planned)));
}

/* LS_INPUT: the machine cannot be. A count that no layout has is one that does not help: *found has
 * 0 devices. */
static ls_status try_devices(trial *of, int devices, tried *found, ls_error *error) {
  ls_planned *planned = LS_NEW(of->arena, ls_planned);
  *found = (tried){0};
  LS_TRY(ls_plan_pose(of->arena, of->question, of->on, devices, planned, error));
  of->host = host_of(planned->cluster);
  of->currency = planned->cluster->currency;
  planned->problem.compiled_first = FEW_COMPILED;
  planned->problem.only_fitting = true;
  ls_error refusal = {0};
  if (ls_planned_search(of->arena, planned, &refusal) != LS_OK) return LS_OK;
  ls_plan_prove_rows(&planned->problem, planned->plan, 1);
  const ls_plan_row *best = ls_planned_best(planned);
  *found = (tried){devices, INFINITY, INFINITY};
  if (best) {
    found->seconds = ls_planned_seconds(planned, best, of->question->tokens);
    found->money = ls_planned_money(planned, found->seconds);
  }
  *LS_APPEND(of->arena, &of->list) = *found;
  tell(of, planned, found);
  return LS_OK;
}

/* Whether the most devices are looked for: of those that money is enough for, they are done first.
 */
static bool is_most(const ls_plan_question *question) {
  return !(question->within_s > 0);
}

/* Between a power of two that is enough and the next that is not: by whole hosts, where these are
 * more than one. */
static ls_status refine(trial *of, int *devices, ls_error *error) {
  const bool most = is_most(of->question);
  const int unit = (most ? *devices >= of->host : *devices > of->host) ? of->host : 1;
  int low = (most ? *devices : *devices / 2) / unit, high = (most ? 2 * *devices : *devices) / unit;
  for (int t = 0; t < REFINED && high - low > 1; t++) {
    const int middle = (low + high) / 2;
    tried found;
    LS_TRY(try_devices(of, middle * unit, &found, error));
    if ((found.devices && is_enough(of, &found)) == most)
      low = middle;
    else
      high = middle;
  }
  *devices = (most ? low : high) * unit;
  return LS_OK;
}

static const char *print_tried(const trial *of, const tried *count) {
  const char *time = duration(of->arena, count->seconds);
  if (!(count->money > 0)) return ls_arena_printf(of->arena, "%s with %d", time, count->devices);
  return ls_arena_printf(of->arena, "%s and %.0f %s with %d", time, count->money, of->currency,
                         count->devices);
}

static ls_status refuse(const trial *of, ls_error *error) {
  const ls_plan_question *question = of->question;
  const tried *fastest = NULL, *cheapest = NULL;
  for (int t = 0; t < of->list.count; t++) {
    const tried *each = &of->list.items[t];
    if (!isfinite(each->seconds)) continue;
    if (!fastest || each->seconds < fastest->seconds) fastest = each;
    if (!cheapest || each->money < cheapest->money) cheapest = each;
  }
  if (!fastest)
    return ls_fail(error, LS_REFUTED, "--on %s: no number of devices up to %d fits the model",
                   of->on, 1 << MOST_POWER);
  const char *cheap = question->budget > 0 ? ls_arena_printf(of->arena, "; the least money is %s",
                                                             print_tried(of, cheapest))
                                           : "";
  return ls_fail(
      error, LS_REFUTED,
      "--on %s: no number of devices is done with %s tokens%s%s%s%s: the least time is "
      "%s%s",
      of->on, question->tokens_text, question->within_text ? " within " : "",
      question->within_text ? question->within_text : "", question->budget_text ? " for " : "",
      question->budget_text ? question->budget_text : "", print_tried(of, fastest), cheap);
}

/* Powers of two by halves of what is left. More devices take less time; where they also cost too
 * much, or are too many for the batch, fewer are tried. */
ls_status ls_plan_enough(ls_arena *arena, const ls_plan_question *question, const char *on,
                         int *devices, ls_error *error) {
  trial of = {.arena = arena, .question = question, .on = on};
  int low = 0, high = MOST_POWER + 1, last = -1;
  while (low < high) {
    const int middle = (low + high) / 2;
    tried found;
    LS_TRY(try_devices(&of, 1 << middle, &found, error));
    const bool enough = found.devices && is_enough(&of, &found);
    if (enough) last = middle;
    if (enough ? is_most(question) : found.devices && is_too_few(&of, &found))
      low = middle + 1;
    else
      high = middle;
  }
  if (last < 0) return refuse(&of, error);
  *devices = 1 << last;
  return last == MOST_POWER ? LS_OK : refine(&of, devices, error);
}

static void print_enough(ls_arena *arena, const char *what, const ls_planned *of) {
  const ls_plan_row *best = ls_planned_best(of);
  printf("  %-28s %8.2f of %.2f GiB, %s a step: %s\n", what, (double)best->bytes / 1073741824,
         (double)of->problem.limit / 1073741824, duration(arena, best->seconds),
         ls_plan_print(arena, best));
}

/* Twice as many each time; not those that would not fit if all of the least layout were divided. */
static void try_more(ls_arena *arena, const ls_plan_question *question, const char *on,
                     const ls_planned *of) {
  const double all = (double)ls_plan_least(of->plan)->bytes * of->problem.devices;
  const int host = host_of(of->cluster);
  for (int devices = 2 * of->problem.devices; devices <= 1 << MOST_POWER; devices *= 2) {
    if (devices > host && devices % host) devices = devices / host * host;
    if (all / devices > (double)of->problem.limit) continue;
    ls_error why = {0};
    const ls_planned *made = plan_few(arena, question, on, devices, false, &why);
    if (made && ls_planned_best(made)) {
      print_enough(arena, ls_arena_printf(arena, "%s", made->text), made);
      return;
    }
  }
}

/* The question with one more key, which goes before those of its words. */
static ls_plan_question with_key(ls_arena *arena, const ls_plan_question *question,
                                 const char *key) {
  ls_plan_question made = *question;
  made.keys.keys = LS_NEW_ARRAY(arena, const char *, question->keys.key_count + 1);
  for (int k = 0; k < question->keys.key_count; k++) made.keys.keys[k] = question->keys.keys[k];
  made.keys.keys[made.keys.key_count++] = key;
  return made;
}

/* A plan with sequences of another length; NULL: none fits. */
static const ls_planned *plan_sequence(ls_arena *arena, const ls_plan_question *question,
                                       const char *on, int devices, const char *key) {
  const ls_plan_question other = with_key(arena, question, key);
  ls_error why = {0};
  const ls_planned *made = plan_few(arena, &other, on, devices, false, &why);
  return made && ls_planned_best(made) ? made : NULL;
}

static void try_shorter(ls_arena *arena, const ls_plan_question *question, const char *on,
                        const ls_planned *of) {
  const int devices = of->problem.devices;
  const char *shortest = ls_arena_printf(arena, "data.seq_len=%d", SHORTEST);
  const ls_planned *last = plan_sequence(arena, question, on, devices, shortest);
  if (!last || of->training.sequence <= SHORTEST) return;
  for (int64_t sequence = of->training.sequence / 2; sequence > SHORTEST; sequence /= 2) {
    const char *key = ls_arena_printf(arena, "data.seq_len=%lld", (long long)sequence);
    const ls_planned *made = plan_sequence(arena, question, on, devices, key);
    if (!made) continue;
    print_enough(arena, key, made);
    return;
  }
  print_enough(arena, shortest, last);
}

static int by_memory(const void *a, const void *b) {
  const ls_accelerator *x = *(const ls_accelerator *const *)a;
  const ls_accelerator *y = *(const ls_accelerator *const *)b;
  return x->memory_mib != y->memory_mib ? (x->memory_mib > y->memory_mib ? 1 : -1)
                                        : strcmp(x->id, y->id);
}

/* The smallest devices of the catalog that may hold the model; what the smallest layout needed here
 * tells about how large these are. */
static void try_larger(ls_arena *arena, const ls_plan_question *question, const ls_planned *of) {
  const ls_plan_row *least = ls_plan_least(of->plan);
  ls_catalog *catalog;
  ls_error why = {0};
  if (!least || ls_catalog_open(arena, &catalog, &why) != LS_OK) return;
  const ls_accelerator **sorted =
      LS_NEW_ARRAY(arena, const ls_accelerator *, catalog->accelerators.count + 1);
  int count = 0;
  ls_device_facts facts;
  for (int a = 0; a < catalog->accelerators.count; a++) {
    const ls_accelerator *each = catalog->accelerators.items[a];
    if (each->memory_mib > of->cluster->accelerator->memory_mib &&
        (double)each->memory_mib * 1048576 > 0.6 * (double)least->bytes &&
        ls_device_facts_of(each, &facts))
      sorted[count++] = each;
  }
  qsort(sorted, (size_t)count, sizeof *sorted, by_memory);
  for (int a = 0, tries = 0; a < count && tries < LARGER_TRIED; a++) {
    if (a && sorted[a]->memory_mib == sorted[a - 1]->memory_mib) continue;
    tries++;
    const ls_planned *made =
        plan_few(arena, question, sorted[a]->id, of->problem.devices, false, &why);
    if (!made || !ls_planned_best(made)) continue;
    print_enough(arena, made->text, made);
    return;
  }
}

void ls_plan_print_enough(ls_arena *arena, const ls_plan_question *question, const char *on,
                          const ls_planned *of) {
  if (!of->cluster || !of->plan->too_large.count) return;
  printf("\nwhat would fit\n");
  try_more(arena, question, on, of);
  try_larger(arena, question, of);
  try_shorter(arena, question, on, of);
}
