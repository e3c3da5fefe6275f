/* Layouts that experts tuned, beside the planner's first choice for the same model, machine, batch
 * and sequence.
 *
 *   build/bench/experts bench/experts.yaml [WORD]
 *
 * Prints Markdown. Both are compiled for Lockstep and simulated. WORD: only rows that have it. Exit
 * status 1: a first choice is slower than a layout that fits. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "plan/memory.h"
#include "plan/task.h"
#include "text/fields.h"
#include "text/number.h"

/* Layouts that fit, drawn beside each row; how many draws at most; and the seed. */
enum { DRAWN = 100, MOST_DRAWN = 4000, SEED = 20 };
/* Estimates that are so far from a device's memory, or from a row's seconds, are not asked again.
 */
#define SURELY_LARGE 2.0
#define SURELY_SLOW 2.0

typedef struct expert {
  const char *name, *model, *config, *on, *schedule, *recompute, *source;
  int64_t batch, sequence, pp, tp, dp, chunks, micro_batch;
  double zero;
  bool sequence_parallel;
} expert;

#define OF(key, kind, member) LS_FIELD(expert, key, kind, member, 1)
static const ls_field expert_fields[] = {
    OF("model", TEXT, model),
    OF("config", TEXT, config),
    OF("on", TEXT, on),
    OF("batch", COUNT, batch),
    OF("sequence", COUNT, sequence),
    OF("pp", COUNT, pp),
    OF("tp", COUNT, tp),
    OF("dp", COUNT, dp),
    OF("zero", NUMBER, zero),
    OF("schedule", TEXT, schedule),
    OF("chunks", COUNT, chunks),
    OF("micro_batch", COUNT, micro_batch),
    OF("recompute", TEXT, recompute),
    OF("sequence_parallel", BOOL, sequence_parallel),
    OF("source", TEXT, source),
};

static ls_status pose(ls_catalog *catalog, const expert *is, ls_plan_task *made, ls_error *error) {
  ls_arena *arena = catalog->arena;
  if (is->config)
    LS_TRY(ls_model_config_parse(arena, is->name, is->config, strlen(is->config), &made->model,
                                 error));
  else
    LS_TRY(ls_model_find(arena, is->model, &made->model, error));
  return ls_plan_task_pose(catalog, is->on, is->batch, is->sequence, made, error);
}

static ls_layout layout_of(const expert *is, const ls_layout *base) {
  ls_layout layout = *base;
  layout.pp = (int)is->pp;
  layout.tp = (int)is->tp;
  layout.zero = (int)is->zero;
  ls_layout_set_data_ranks(&layout, layout.zero ? 1 : (int)is->dp, layout.zero ? (int)is->dp : 1);
  layout.microbatches = (int)(is->batch / is->dp / is->micro_batch);
  layout.schedule = is->schedule;
  layout.chunks = (int)is->chunks;
  layout.sequence_parallel = is->sequence_parallel;
  layout.recompute = strcmp(is->recompute, "full") == 0        ? (ls_op_set)LS_EVERY_OP
                     : strcmp(is->recompute, "selective") == 0 ? ls_op_set_cheap()
                                                               : (ls_op_set){0};
  return layout;
}

/* What was found of the layouts that were drawn. */
typedef struct drawn {
  int fit, faster;
} drawn;

/* Draws layouts of all that the numbers allow, until so many fit: those that are faster than a row.
 * An estimate of several times its seconds is taken to be slower. */
static ls_status draw(ls_arena *arena, const ls_plan_problem *problem, const ls_plan_row *row,
                      drawn *found, ls_error *error) {
  ls_plan_candidates all = {.arena = arena};
  ls_plan_memory *memory;
  *found = (drawn){0};
  ls_plan_enumerate(problem, &all);
  ls_plan_estimate(arena, problem, &all);
  LS_TRY(ls_plan_memory_make(arena, problem, &memory, error));
  for (uint64_t index = 0; found->fit < DRAWN && index < MOST_DRAWN; index++) {
    const ls_plan_candidate *each =
        &all.list.items[ls_random_bits(SEED, 0, index) % (uint64_t)all.list.count];
    const int64_t bytes = (double)each->bytes > SURELY_LARGE * (double)problem->limit
                              ? each->bytes
                              : ls_plan_memory_of(memory, &each->layout);
    if (bytes < 0 || bytes > problem->limit) continue;
    found->fit++;
    ls_plan_row other;
    if (each->seconds > SURELY_SLOW * row->seconds ||
        ls_plan_measure(problem, &each->layout, NULL, &other, NULL) != LS_OK)
      continue;
    found->faster += other.seconds < row->seconds;
  }
  return LS_OK;
}

/* Where the experts' layout spends more than the first choice, and less: terms of 1 % at least, the
 * largest first. */
static void print_difference(const ls_plan_row *theirs, const ls_plan_row *first) {
  bool told[LS_PLAN_TERM_COUNT] = {false};
  for (int n = 0; n < LS_PLAN_TERM_COUNT; n++) {
    int largest = -1;
    double most = 0.01 * first->seconds;
    for (int t = 0; t < LS_PLAN_TERM_COUNT; t++) {
      const double apart = fabs(theirs->terms[t] - first->terms[t]);
      if (!told[t] && apart > most) largest = t, most = apart;
    }
    if (largest < 0) return;
    told[largest] = true;
    char text[LS_NUMBER_BYTES];
    ls_seconds_show(text, most);
    printf("%s%s %s%s", n ? ", " : "", ls_plan_term_name((ls_plan_term)largest),
           theirs->terms[largest] > first->terms[largest] ? "+" : "-", text);
  }
}

static void print_side(ls_arena *arena, const ls_plan_row *row) {
  char text[LS_NUMBER_BYTES];
  ls_seconds_show(text, row->seconds);
  printf(" %s | %s, %.1f GiB%s |", ls_plan_print(arena, row), text, (double)row->bytes / 1073741824,
         row->fits ? "" : ": too large");
}

/* What was found of all. */
typedef struct tally {
  int all, slower;
} tally;

/* Prints a row of the table. */
static ls_status compare(ls_arena *arena, const expert *is, tally *sum, ls_error *error) {
  ls_catalog *catalog;
  ls_plan *plan;
  ls_plan_row theirs;
  ls_plan_task posed;
  LS_TRY(ls_catalog_read(arena, NULL, &catalog, error));
  LS_TRY(pose(catalog, is, &posed, error));
  const ls_layout layout = layout_of(is, &posed.problem.base);
  LS_TRY(ls_plan_measure(&posed.problem, &layout, NULL, &theirs, error));
  LS_TRY(ls_plan_make(arena, &posed.problem, &plan, error));
  ls_plan_prove_rows(&posed.problem, plan, 1);
  if (!plan->rows.count) return ls_fail(error, LS_REFUTED, "%s: nothing fits %s", is->name, is->on);
  const ls_plan_row *first = &plan->rows.items[0];
  printf("| %s, %s |", is->name, is->on);
  drawn found;
  LS_TRY(draw(arena, &posed.problem, &theirs, &found, error));
  print_side(arena, &theirs);
  print_side(arena, first);
  printf(" %+.1f %% | %d of %d | ", 100 * (theirs.seconds / first->seconds - 1), found.faster,
         found.fit);
  print_difference(&theirs, first);
  printf(" |\n");
  fflush(stdout);
  sum->all++;
  sum->slower += theirs.fits && theirs.seconds < first->seconds;
  return LS_OK;
}

static const char page[] =
    "# Beside layouts that experts tuned\n\n"
    "The same model, machine, batch and sequence: the layout that its authors published, and the\n"
    "planner's first choice. Both are compiled for Lockstep and **simulated**, so the times are "
    "not\n"
    "those that the authors measured with their software; sources are in\n"
    "[bench/experts.yaml](../bench/experts.yaml). *Drawn and faster*: of 100 layouts that fit, "
    "drawn "
    "from\n"
    "all that the planner considers by seed 20, how many are faster than theirs; an estimate of "
    "twice\n"
    "their time counts as slower. 5 of 100 is the first 5 %. The last column is what theirs spends "
    "more\n"
    "and less on than the first choice: why it takes longer. A row of it is made by\n"
    "`build/bench/experts bench/experts.yaml ROW`, in minutes.\n\n"
    "| who, on | their layout | step | first choice | step | theirs takes | drawn and faster | "
    "where "
    "theirs differs |\n|---|---|---|---|---|---|---|---|\n";

static ls_status compare_all(ls_arena *arena, const char *path, const char *word, tally *sum,
                             ls_error *error) {
  ls_yaml *root;
  LS_TRY(ls_yaml_read(arena, path, &root, error));
  if (root->kind != LS_YAML_MAPPING) return ls_yaml_fail(root, "rows, each with its name", error);
  printf("%s", page);
  for (int i = 0; i < root->items.count; i++) {
    const ls_yaml *node = root->items.items[i];
    expert is = {.name = node->key};
    LS_TRY(ls_fields_read(node, expert_fields, LS_FIELDS(expert_fields), &is, error));
    if (word && !strstr(is.name, word)) continue;
    ls_arena *scratch = ls_arena_create();
    const ls_status status = compare(scratch, &is, sum, error);
    ls_arena_destroy(&scratch);
    if (status != LS_OK) return status;
  }
  printf("\nOf %d, the first choice is at least as fast in %d.\n", sum->all,
         sum->all - sum->slower);
  return LS_OK;
}

int main(int count, char **words) {
  tally sum = {0};
  ls_error error = {0};
  if (count < 2) return fprintf(stderr, "usage: experts bench/experts.yaml [WORD]\n"), 2;
  ls_arena *arena = ls_arena_create();
  const ls_status status = compare_all(arena, words[1], count > 2 ? words[2] : NULL, &sum, &error);
  ls_arena_destroy(&arena);
  if (status != LS_OK) return fprintf(stderr, "experts: %s\n", error.text), 2;
  return sum.slower > 0;
}
