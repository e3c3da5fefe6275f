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

#include "plan/plan.h"
#include "text/fields.h"
#include "text/number.h"

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

typedef struct case_of {
  ls_model_config model;
  ls_training training;
  ls_device_facts facts;
  ls_performance performance;
  ls_plan_problem problem;
} case_of;

static ls_status pose(ls_catalog *catalog, const expert *is, case_of *made, ls_error *error) {
  ls_arena *arena = catalog->arena;
  ls_cluster *cluster;
  if (is->config)
    LS_TRY(ls_model_config_parse(arena, is->name, is->config, strlen(is->config), &made->model,
                                 error));
  else
    LS_TRY(ls_model_find(arena, is->model, &made->model, error));
  LS_TRY(ls_cluster_read(catalog, is->on, &cluster, error));
  if (!ls_device_facts_of(cluster->accelerator, &made->facts))
    return ls_fail(error, LS_INPUT, "%s: no recipe for %s", is->name, is->on);
  LS_TRY(ls_performance_of(&made->facts, cluster, &made->performance, error));
  made->training =
      (ls_training){.model = &made->model, .batch = is->batch, .sequence = is->sequence};
  made->problem = (ls_plan_problem){.training = &made->training,
                                    .base = ls_layout_default(),
                                    .facts = &made->facts,
                                    .performance = &made->performance,
                                    .devices = cluster->devices,
                                    .limit = made->facts.memory_bytes};
  made->problem.base.compute = LS_BF16;
  made->problem.base.sequence_parallel = true;
  made->problem.base.prefetch = 1;
  return LS_OK;
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

/* Of the layouts that were compiled whole and fit, those that are faster than one. */
static int faster_than(const ls_plan *plan, const ls_plan_row *row) {
  int faster = 0;
  for (int r = 0; r < plan->rows.count; r++) faster += plan->rows.items[r].seconds < row->seconds;
  return faster;
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
  case_of posed;
  LS_TRY(ls_catalog_read(arena, NULL, &catalog, error));
  LS_TRY(pose(catalog, is, &posed, error));
  const ls_layout layout = layout_of(is, &posed.problem.base);
  LS_TRY(ls_plan_measure(&posed.problem, &layout, NULL, &theirs, error));
  LS_TRY(ls_plan_make(arena, &posed.problem, &plan, error));
  ls_plan_prove_rows(&posed.problem, plan, 1);
  if (!plan->rows.count) return ls_fail(error, LS_REFUTED, "%s: nothing fits %s", is->name, is->on);
  const ls_plan_row *first = &plan->rows.items[0];
  printf("| %s, %s |", is->name, is->on);
  print_side(arena, &theirs);
  print_side(arena, first);
  printf(" %+.1f %% | %d of %lld | ", 100 * (theirs.seconds / first->seconds - 1),
         faster_than(plan, &theirs), (long long)plan->candidates);
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
    "[bench/experts.yaml](../bench/experts.yaml). *Known to be faster*: how many of the layouts "
    "that the\n"
    "planner compiled beat theirs, of all that it considers. The last column is what theirs "
    "spends\n"
    "more and less on than the first choice: why it takes longer. A row of it is made by\n"
    "`build/bench/experts bench/experts.yaml ROW`, in minutes.\n\n"
    "| who, on | their layout | step | first choice | step | theirs takes | known to be faster | "
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
