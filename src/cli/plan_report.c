/* One machine's plan for people: its best layouts, why they are, and what else would be. */
#include "cli/plan_report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/cluster.h"
#include "plan/ahead.h"
#include "sim/interval.h"
#include "text/number.h"

static const double gib = 1073741824.0;

const char *ls_plan_duration(ls_arena *arena, double seconds) {
  char text[LS_NUMBER_BYTES];
  ls_seconds_show(text, seconds);
  return ls_arena_strdup(arena, text);
}

static double mfu(const ls_planned *of, const ls_plan_row *row) {
  return row->flops / (row->seconds * of->peak_flops * of->problem.devices);
}

void ls_plan_print_row(ls_arena *arena, const ls_plan_report *report, const ls_planned *of,
                       const ls_plan_row *row) {
  const double tokens = report->question->tokens;
  printf("%11s %10.0f", ls_plan_duration(arena, row->seconds),
         ls_planned_step_tokens(of) / row->seconds);
  if (of->peak_flops > 0)
    printf(" %5.1f%%", 100 * mfu(of, row));
  else
    printf(" %6s", "");
  printf(" %8.2f", (double)row->bytes / gib);
  if (of->cluster && of->cluster->hour > 0) {
    printf(" %9.4g", ls_planned_money(of, row->seconds));
    if (tokens > 0) printf(" %9.0f", ls_planned_money(of, ls_planned_seconds(of, row, tokens)));
  }
  printf("  %s\n", ls_plan_print(arena, row));
}

void ls_plan_print_heads(const ls_plan_report *report, const ls_planned *of) {
  printf("%11s %10s %6s %8s", "step", "tokens/s", "MFU", "GiB");
  if (of->cluster && of->cluster->hour > 0) {
    printf(" %9s", of->cluster->currency);
    if (report->question->tokens > 0) printf(" %9s", report->question->tokens_text);
  }
  printf("  layout\n");
}

static void print_machine(const ls_planned *of) {
  const ls_plan *plan = of->plan;
  printf("%s: %.2f M parameters in %s on %d x %s, %lld sequences of %lld tokens a step\n",
         of->session->run->model, (double)ls_model_parameters(of->training.model) / 1e6,
         ls_session_dtype(of->session), of->problem.devices,
         of->cluster ? of->cluster->accelerator->name : "this machine's CPU",
         (long long)of->training.batch, (long long)of->training.sequence);
  for (int i = 0; of->cluster && i < of->cluster->assumed.count; i++)
    printf("%-10s %s\n", i ? "" : "assumed", of->cluster->assumed.items[i]);
  printf("%lld layouts in %d classes, %d of them compiled and simulated: %d fit",
         (long long)plan->candidates, plan->classes, plan->compiled, plan->rows.count);
  if (of->problem.limit) printf(" %.2f GiB", (double)of->problem.limit / gib);
  printf("%s\n\n", plan->rows.count ? "; those below are proved by check" : "");
}

static void print_interval(ls_arena *arena, const ls_planned *of) {
  const ls_interval *interval = ls_interval_of(of->cluster, of->problem.devices);
  if (interval)
    printf("\nmeasured, the first may take %s were within (docs/validation.md)\n",
           ls_interval_print(arena, interval, ls_planned_best(of)->seconds));
}

/* What two layouts differ in, as the second has it. */
static const char *print_change(ls_arena *arena, const ls_plan_row *from, const ls_plan_row *to) {
  const ls_layout *a = &from->layout, *b = &to->layout;
  const char *text = "";
  bool mesh = false;
#define SAY(...)                                                   \
  text = ls_arena_printf(arena, "%s%s%s", text, *text ? ", " : "", \
                         ls_arena_printf(arena, __VA_ARGS__))
  for (int x = 0; x < LS_LAYOUT_AXES; x++) {
    if (ls_layout_size(a, x) == ls_layout_size(b, x)) continue;
    SAY("%s %d", ls_layout_axis(x), ls_layout_size(b, x));
    mesh = true;
  }
  if (a->ep != b->ep) SAY("ep %d", b->ep);
  if (a->whole_experts != b->whole_experts)
    SAY(b->whole_experts ? "whole experts" : "experts cut by tp");
  if (b->cp > 1 && (ls_layout_turns(a) != ls_layout_turns(b) ||
                    ls_layout_head_ranks(a) != ls_layout_head_ranks(b)))
    SAY(b->context == LS_CONTEXT_HYBRID ? "context %s of %d" : "context %s",
        ls_context_name(b->context), b->ulysses);
  if (a->zero != b->zero) SAY("zero %d", b->zero);
  if (b->pp > 1 && (a->pp == 1 || strcmp(a->schedule, b->schedule) != 0 || a->chunks != b->chunks))
    SAY(b->chunks > 1 ? "schedule %s, %d chunks" : "schedule %s", b->schedule, b->chunks);
  if (from->micro_batch != to->micro_batch) SAY("micro-batch %lld", (long long)to->micro_batch);
  if (!ls_op_set_equal(&a->recompute, &b->recompute))
    SAY("recompute %s", ls_plan_recompute_name(b));
  if (a->offload.optimizer != b->offload.optimizer)
    SAY("optimizer's state: %s", ls_tier_name(b->offload.optimizer));
  if (a->offload.parameters != b->offload.parameters)
    SAY("parameters: %s", ls_tier_name(b->offload.parameters));
  if (a->reduce != b->reduce)
    SAY("gradients reduced %s", b->reduce == LS_WHEN_STEP ? "once a step" : "for each microbatch");
  if (a->gather != b->gather)
    SAY("weights gathered %s", b->gather == LS_WHEN_STEP ? "once a step" : "for each microbatch");
  if (a->prefetch != b->prefetch) SAY("prefetch %d", b->prefetch);
  if (!mesh && b->tp > 1 && a->sequence_parallel != b->sequence_parallel)
    SAY(b->sequence_parallel ? "sequence parallelism" : "no sequence parallelism");
#undef SAY
  return *text ? text : ls_plan_print(arena, to);
}

/* As they are printed: steps to a tenth of a percent, memory to a hundredth of a GiB. */
static bool same_effect(const ls_plan_row *best, const ls_plan_row *a, const ls_plan_row *b) {
  return fabs(a->seconds - b->seconds) < 0.0005 * best->seconds &&
         fabs((double)(a->bytes - b->bytes)) < 0.005 * gib && a->fits == b->fits;
}

/* Why the next is not the first: the term that it has most more of. */
static void print_runner_up(ls_arena *arena, const ls_plan_row *best, const ls_plan_row *second) {
  const double behind = second->seconds - best->seconds;
  int most = 0, least = 0;
  for (int t = 0; t < LS_PLAN_TERM_COUNT; t++) {
    if (second->terms[t] - best->terms[t] > second->terms[most] - best->terms[most]) most = t;
    if (second->terms[t] - best->terms[t] < second->terms[least] - best->terms[least]) least = t;
  }
  if (!(fabs(behind) > 0.0005 * best->seconds)) {
    printf("the next, %s, takes as long with %+.2f GiB\n", print_change(arena, best, second),
           (double)(second->bytes - best->bytes) / gib);
    return;
  }
  printf("the next, %s, takes %.1f %% more: %s more %s", print_change(arena, best, second),
         100 * behind / best->seconds,
         ls_plan_duration(arena, second->terms[most] - best->terms[most]),
         ls_plan_term_name((ls_plan_term)most));
  const double saved = best->terms[least] - second->terms[least];
  if (saved > 0.1 * behind)
    printf(", %s less %s", ls_plan_duration(arena, saved), ls_plan_term_name((ls_plan_term)least));
  printf("\n");
}

/* What the winner has less of, and more. */
static void print_terms(ls_arena *arena, const ls_planned *of, const ls_plan_row *second) {
  const ls_plan_row *best = &of->plan->rows.items[0];
  printf("\nwhere the time goes%28s%s\n", "first", second ? "         next" : "");
  for (int t = 0; t < LS_PLAN_TERM_COUNT; t++) {
    if (!(best->terms[t] > 0) && !(second && second->terms[t] > 0)) continue;
    printf("  %-32s %12s", ls_plan_term_name((ls_plan_term)t),
           ls_plan_duration(arena, best->terms[t]));
    if (second) printf(" %12s", ls_plan_duration(arena, second->terms[t]));
    printf("\n");
  }
  if (second) print_runner_up(arena, best, second);
}

static double computing(const ls_plan_row *row) {
  return row->terms[LS_PLAN_FORWARD] + row->terms[LS_PLAN_BACKWARD] +
         row->terms[LS_PLAN_RECOMPUTE] + row->terms[LS_PLAN_UPDATE];
}

ls_plan_term ls_plan_largest_wait(const ls_plan_row *row) {
  ls_plan_term most = LS_PLAN_TENSOR;
  for (int t = LS_PLAN_TENSOR; t < LS_PLAN_TERM_COUNT; t++)
    if (row->terms[t] > row->terms[most]) most = (ls_plan_term)t;
  return most;
}

/* The link that a term waits for; NULL: none is known, or it is several. */
static const char *link_of(const ls_planned *of, const ls_plan_row *row, ls_plan_term term) {
  const ls_cluster *cluster = of->cluster;
  const ls_layout *layout = &row->layout;
  if (!cluster) return NULL;
  int members = 0; /* consecutive ranks that a group of the term lies in: tp within dp within pp */
  if (term == LS_PLAN_TENSOR) members = layout->tp;
  if (term == LS_PLAN_CONTEXT) members = layout->tp * layout->cp;
  if (term == LS_PLAN_EXPERTS) members = layout->tp * ls_layout_expert_cuts(layout);
  if (term == LS_PLAN_DATA) members = layout->tp * ls_layout_token_ranks(layout);
  if (term == LS_PLAN_TIERS) return cluster->host_link ? cluster->host_link->name : NULL;
  if (!members) return NULL;
  const ls_link *link = members > cluster->per_host ? cluster->network : cluster->peer;
  return link ? link->name : NULL;
}

static void print_limits(const ls_planned *of) {
  const ls_plan_row *row = &of->plan->rows.items[0];
  const ls_plan_term wait = ls_plan_largest_wait(row);
  const char *link = link_of(of, row, wait);
  printf("\nit computes %.0f %% of the step", 100 * computing(row) / row->seconds);
  if (row->terms[wait] > 0.005 * row->seconds)
    printf("; most of the rest, %.0f %%, is %s%s%s", 100 * row->terms[wait] / row->seconds,
           ls_plan_term_name(wait), link ? ", over " : "", link ? link : "");
  printf("\n");
  if (!of->problem.limit) return;
  printf("memory: %.2f of %.2f GiB", (double)row->bytes / gib, (double)of->problem.limit / gib);
  if (row->layout.pp > 1) printf(" on stage %d, which needs most", row->stage);
  printf("\n");
}

static void print_gain(const char *what, double before, double after) {
  const double gain = before / after - 1;
  if (fabs(gain) < 0.002)
    printf("  %-34s nothing\n", what);
  else
    printf("  %-34s %+.1f %% tokens/s\n", what, 100 * gain);
}

/* The winner on other hardware, and with a larger batch. */
typedef struct variant {
  const ls_plan_problem *problem;
  ls_layout layout;
  ls_sim_options options;
  const char *what;
  double times;   /* its own seconds, as many steps as this come to */
  double seconds; /* 0: it cannot be */
} variant;

static void measure_turn(void *work, int at) {
  variant *of = (variant *)work + at;
  ls_plan_row row;
  if (ls_plan_measure(of->problem, &of->layout, &of->options, &row, NULL) == LS_OK)
    of->seconds = row.seconds;
}

static void print_faster(const ls_planned *of) {
  enum { MOST = 4, STAGES = 1024 };
  const ls_plan_row *best = &of->plan->rows.items[0];
  const bool several = of->problem.devices > 1;
  double speed[STAGES];
  ls_training twice = of->training;
  ls_plan_problem larger = of->problem;
  variant made[MOST] = {{&of->problem, best->layout, {0}, "devices 10 % faster", 1, 0}};
  int count = 1;
  for (int s = 0; s < best->layout.pp && s < STAGES; s++) speed[s] = 1.1;
  if (best->layout.pp <= STAGES) made[0].options.speed_of = speed;
  if (several) {
    made[count] =
        (variant){&of->problem, best->layout, {0}, "links within a host twice as fast", 1, 0};
    made[count++].options.link_of[LS_LINK_PEER] = 2;
  }
  if (several && of->problem.devices > of->performance.per_host) {
    made[count] = (variant){&of->problem, best->layout, {0}, "network twice as fast", 1, 0};
    made[count++].options.link_of[LS_LINK_NETWORK] = 2;
  }
  twice.batch *= 2;
  larger.training = &twice;
  made[count] = (variant){&larger, best->layout, {0}, "a batch twice as large", 2, 0};
  made[count++].layout.microbatches *= 2;
  ls_plan_share(count, measure_turn, made);
  for (int v = 0; v < count; v++)
    if (made[v].seconds > 0)
      print_gain(made[v].what, made[v].times * best->seconds, made[v].seconds);
}

/* The fastest of what a device lacks memory for. */
static void print_larger(ls_arena *arena, const ls_planned *of) {
  const ls_plan_row *best = &of->plan->rows.items[0];
  const ls_plan_row *wide = NULL;
  for (int r = 0; r < of->plan->too_large.count; r++) {
    const ls_plan_row *each = &of->plan->too_large.items[r];
    if (each->seconds < 0.998 * best->seconds && (!wide || each->seconds < wide->seconds))
      wide = each;
  }
  if (wide)
    print_gain(ls_arena_printf(arena, "devices with %.1f GiB", (double)wide->bytes / gib),
               best->seconds, wide->seconds);
}

/* Another count of devices, with its own best layout. */
static void print_count(ls_arena *arena, const ls_planned *of, const ls_plan_count *count,
                        const char *which) {
  if (!count->devices) return;
  const char *what = ls_arena_printf(arena, "%d device%s, %s", count->devices,
                                     count->devices == 1 ? "" : "s", which);
  const int64_t batch = of->training.batch;
  const ls_plan_row *best = count->planned ? ls_planned_best(count->planned) : NULL;
  if (!best) {
    printf(
        "  %-34s %s\n", what,
        count->planned ? "does not fit" : "no layout has so many: batch and model do not divide");
    return;
  }
  const double gain = ls_planned_rate(count->planned) / ls_planned_rate(of) - 1;
  const double ideal = (double)count->devices / of->problem.devices - 1;
  printf("  %-34s %+.1f %% tokens/s for %+.1f %% devices", what, 100 * gain, 100 * ideal);
  if (gain < 0.5 * ideal && batch % count->devices)
    printf(": %lld sequences cannot be dealt to %d", (long long)batch, count->devices);
  if (ideal > 0) printf(": %s", ls_plan_print(arena, best));
  printf("\n");
}

static ls_plan_row *find_row(const ls_plan *plan, const ls_layout *layout) {
  for (int r = 0; r < plan->rows.count; r++)
    if (ls_plan_same(&plan->rows.items[r].layout, layout)) return &plan->rows.items[r];
  for (int r = 0; r < plan->too_large.count; r++)
    if (ls_plan_same(&plan->too_large.items[r].layout, layout)) return &plan->too_large.items[r];
  return NULL;
}

static int by_seconds(const void *a, const void *b) {
  const ls_plan_row *x = *(ls_plan_row *const *)a, *y = *(ls_plan_row *const *)b;
  return (x->seconds > y->seconds) - (x->seconds < y->seconds);
}

ls_plan_row **ls_plan_report_neighbours(ls_arena *arena, const ls_planned *of, int *count) {
  const ls_plan_row *best = &of->plan->rows.items[0];
  ls_plan_candidates near = {.arena = arena};
  ls_plan_neighbours(&of->problem, best, &near);
  ls_plan_row **rows = LS_NEW_ARRAY(arena, ls_plan_row *, near.list.count + 1);
  *count = 0;
  for (int c = 0; c < near.list.count; c++) {
    ls_plan_row *row = find_row(of->plan, &near.list.items[c].layout);
    if (row && row != best) rows[(*count)++] = row;
  }
  if (*count) qsort(rows, (size_t)*count, sizeof *rows, by_seconds);
  if (*count > LS_PLAN_NEIGHBOURS_SHOWN) *count = LS_PLAN_NEIGHBOURS_SHOWN;
  return rows;
}

/* Those of equal effect are one line. */
static void print_neighbours(ls_arena *arena, const ls_planned *of) {
  const ls_plan_row *best = &of->plan->rows.items[0];
  int count;
  ls_plan_row **rows = ls_plan_report_neighbours(arena, of, &count);
  if (!count) return;
  printf("\nwhat it costs to change one choice\n");
  for (int r = 0; r < count; r++) {
    if (!rows[r]) continue;
    const char *text = print_change(arena, best, rows[r]);
    for (int o = r + 1; o < count; o++) {
      if (!rows[o] || !same_effect(best, rows[r], rows[o])) continue;
      text = ls_arena_printf(arena, "%s; or %s", text, print_change(arena, best, rows[o]));
      rows[o] = NULL;
    }
    if (same_effect(best, best, rows[r])) {
      printf("  %-31s  %s\n", "        nothing", text);
      continue;
    }
    printf("  %+7.1f %% step  %+8.2f GiB%s  %s\n", 100 * (rows[r]->seconds / best->seconds - 1),
           (double)(rows[r]->bytes - best->bytes) / gib, rows[r]->fits ? "" : ", too large", text);
  }
}

/* Layouts that no other beats in both time and memory. */
static void print_front(ls_arena *arena, const ls_plan_report *report,
                        const ls_plan_answer *answer) {
  const ls_plan_report alone = {report->question, answer, 1};
  int count;
  const ls_plan_front_row *front = ls_plan_report_front(arena, &alone, &count);
  if (count > 1) printf("\nfaster ones need more memory\n");
  for (int f = 0; f < count && count > 1 && f < LS_PLAN_FRONT_SHOWN; f++)
    ls_plan_print_row(arena, report, front[f].of, front[f].row);
  if (count > LS_PLAN_FRONT_SHOWN)
    printf("  and %d with less memory\n", count - LS_PLAN_FRONT_SHOWN);
}

/* The end of the rows from one on that have equal effect. */
static int end_of_alike(const ls_plan *plan, int from) {
  const ls_plan_row *rows = plan->rows.items;
  int end = from + 1;
  while (end < plan->rows.count && same_effect(rows, &rows[from], &rows[end])) end++;
  return end;
}

/* Rows of the table of the best, with the runner-up behind them. */
static int count_best(const ls_plan *plan) {
  int end = 0;
  while (end < plan->rows.count && end < LS_PLAN_ROWS_SHOWN) end = end_of_alike(plan, end);
  return end + 1;
}

static int add_row(ls_plan_row **rows, int count, ls_plan_row *row) {
  for (int r = 0; r < count; r++)
    if (rows[r] == row) return count;
  rows[count] = row;
  return count + 1;
}

/* All that is shown of the best machine at once: its best rows, its front and the neighbours of its
 * best. */
static void prove_ahead(ls_arena *arena, const ls_plan_report *report,
                        const ls_plan_answer *answer) {
  const ls_planned *of = &answer->planned;
  const ls_plan_report alone = {report->question, answer, 1};
  int next_to, fronts, found = 0;
  const ls_plan_front_row *front = ls_plan_report_front(arena, &alone, &fronts);
  ls_plan_row **near = ls_plan_report_neighbours(arena, of, &next_to);
  ls_plan_row **rows = LS_NEW_ARRAY(arena, ls_plan_row *, of->plan->rows.count + next_to + 1);
  for (int r = 0; r < of->plan->rows.count && r < count_best(of->plan); r++)
    found = add_row(rows, found, &of->plan->rows.items[r]);
  for (int f = 0; f < fronts && f < LS_PLAN_FRONT_SHOWN; f++)
    found = add_row(rows, found, front[f].row);
  for (int n = 0; n < next_to; n++) found = add_row(rows, found, near[n]);
  ls_plan_prove_ahead(&of->problem, rows, found);
}

/* false: one is left out, so that others may be printed. */
static bool prove_shown(ls_arena *arena, const ls_plan_report *report) {
  const ls_planned *best = ls_plan_report_best(report);
  int count;
  for (int m = 0; m < report->count; m++) {
    const ls_plan_answer *answer = &report->answers[m];
    const ls_planned *of = &answer->planned;
    if (!of->plan->rows.count) continue;
    if (of == best) prove_ahead(arena, report, answer);
    ls_plan_prove_rows(&of->problem, of->plan, of == best ? count_best(of->plan) : 1);
    if (of != best) continue;
    const ls_plan_report alone = {report->question, answer, 1};
    const ls_plan_front_row *front = ls_plan_report_front(arena, &alone, &count);
    for (int f = 0; f < count && f < LS_PLAN_FRONT_SHOWN; f++)
      if (!ls_plan_keep_proved(&of->problem, of->plan, front[f].row)) return false;
    ls_plan_row **near = ls_plan_report_neighbours(arena, of, &count);
    for (int n = 0; n < count; n++)
      if (!ls_plan_keep_proved(&of->problem, of->plan, near[n])) return false;
  }
  const ls_plan_front_row *front = ls_plan_report_front(arena, report, &count);
  for (int f = 0; f < count && f < LS_PLAN_FRONT_SHOWN; f++)
    if (!ls_plan_keep_proved(&front[f].of->problem, front[f].of->plan, front[f].row)) return false;
  return ls_plan_report_best(report) == best;
}

void ls_plan_report_prove(ls_arena *arena, const ls_plan_report *report) {
  while (!prove_shown(arena, report)) continue;
}

/* The best layouts, those of equal effect as one: the next of another effect is the runner-up. */
static const ls_plan_row *print_best(ls_arena *arena, const ls_plan_report *report,
                                     const ls_planned *of) {
  const ls_plan_row *rows = of->plan->rows.items, *second = NULL;
  const int count = of->plan->rows.count;
  ls_plan_print_heads(report, of);
  for (int r = 0, next; r < count && r < LS_PLAN_ROWS_SHOWN; r = next) {
    next = end_of_alike(of->plan, r);
    ls_plan_print_row(arena, report, of, &rows[r]);
    for (int o = r + 1; o < next; o++)
      printf("%*s or %s\n", of->cluster && of->cluster->hour > 0 ? 50 : 40, "",
             print_change(arena, &rows[r], &rows[o]));
    if (!second && next < count) second = &rows[next];
  }
  return second;
}

static void print_one(ls_arena *arena, const ls_plan_report *report, const ls_plan_answer *answer) {
  const ls_planned *of = &answer->planned;
  print_machine(of);
  if (!of->plan->rows.count) {
    printf("no layout fits\n");
    return;
  }
  const ls_plan_row *second = print_best(arena, report, of);
  print_interval(arena, of);
  print_terms(arena, of, second);
  print_limits(of);
  printf("\nwhat would buy more\n");
  print_faster(of);
  print_larger(arena, of);
  print_count(arena, of, &answer->more,
              answer->more.devices - of->problem.devices == 1 ? "one more" : "a host more");
  print_count(arena, of, &answer->fewer, "half as many");
  const ls_planned *few = of->problem.devices == 1 ? of : answer->fewer.planned;
  const ls_planned *many = of->problem.devices == 1 ? answer->more.planned : of;
  if (few && many && ls_planned_best(few) && ls_planned_best(many))
    printf("  %s\n", ls_plan_verdict(arena, few, many));
  print_neighbours(arena, of);
  print_front(arena, report, answer);
}

void ls_plan_report_print(ls_arena *arena, const ls_plan_report *report) {
  const ls_planned *best = ls_plan_report_best(report);
  if (report->answers[0].planned.conventions)
    printf("task %s\n", report->answers[0].planned.conventions);
  if (report->count > 1) ls_plan_print_comparison(arena, report);
  for (int m = 0; m < report->count; m++)
    if (&report->answers[m].planned == best || !best) {
      if (report->count > 1) printf("\n");
      print_one(arena, report, &report->answers[m]);
    }
}
