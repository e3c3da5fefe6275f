/* Executing a pipeline's lists on paper: times, deadlocks, what is alive. */
#include "pipeline/pipeline_make.h"

const ls_pipeline_costs ls_pipeline_unit_costs = {.forward = 1, .input = 1, .weight = 1};

/* A run of all lists. Ends are by [chunk * microbatches + microbatch], negative while to come. */
typedef struct simulation {
  const ls_pipeline *pipeline;
  const ls_pipeline_costs *costs;
  double *forward_end, *input_end;
  double *clock;           /* [stage] */
  int *next;               /* [stage], place in its list */
  int *ready, ready_count; /* stages that may be able to go on */
  bool *is_ready;
} simulation;

static double cost_of(const simulation *run, const ls_pipeline_pass *pass) {
  const ls_pipeline_costs *costs = run->costs;
  const int c = pass->chunk;
  const double forward = costs->forward_of ? costs->forward_of[c] : costs->forward;
  const double input = costs->input_of ? costs->input_of[c] : costs->input;
  const double weight = costs->weight_of ? costs->weight_of[c] : costs->weight;
  switch (pass->kind) {
    case LS_PASS_FORWARD: return forward;
    case LS_PASS_BACKWARD: return input + weight;
    case LS_PASS_INPUT: return input;
    default: return weight;
  }
}

/* The passes that a pass needs: at most two, of the same microbatch. */
static int needs_of(const ls_pipeline *pipeline, const ls_pipeline_pass *pass,
                    ls_pipeline_pass needs[2]) {
  const int chain = pipeline->stages * pipeline->chunks;
  int count = 0;
  const ls_pipeline_pass same = {LS_PASS_FORWARD, pass->microbatch, pass->chunk};
  if (pass->kind == LS_PASS_WEIGHT) {
    needs[count] = same;
    needs[count++].kind = LS_PASS_INPUT;
  } else if (pass->kind == LS_PASS_FORWARD) {
    if (pass->chunk > 0) {
      needs[count] = same;
      needs[count++].chunk--;
    }
  } else {
    needs[count++] = same;
    if (pass->chunk + 1 < chain) {
      needs[count] = same;
      needs[count].kind = LS_PASS_INPUT; /* or B, whose input half it is */
      needs[count++].chunk++;
    }
  }
  return count;
}

static double *end_of(const simulation *run, const ls_pipeline_pass *pass) {
  const int at = pass->chunk * run->pipeline->microbatches + pass->microbatch;
  return pass->kind == LS_PASS_FORWARD ? &run->forward_end[at] : &run->input_end[at];
}

/* When a pass can start, or -1 and the pass it waits for. */
static double start_of(const simulation *run, int stage, const ls_pipeline_pass *pass,
                       ls_pipeline_pass *missing) {
  ls_pipeline_pass needs[2];
  double start = run->clock[stage];
  const int count = needs_of(run->pipeline, pass, needs);
  for (int i = 0; i < count; i++) {
    const double end = *end_of(run, &needs[i]);
    if (end < 0) {
      *missing = needs[i];
      return -1;
    }
    const bool moved = run->pipeline->stage_of[needs[i].chunk] != stage;
    const double there = end + (moved ? run->costs->transfer : 0);
    if (there > start) start = there;
  }
  return start;
}

static void wake(simulation *run, int chunk) {
  if (chunk < 0 || chunk >= run->pipeline->stages * run->pipeline->chunks) return;
  const int stage = run->pipeline->stage_of[chunk];
  if (run->is_ready[stage]) return;
  run->is_ready[stage] = true;
  run->ready[run->ready_count++] = stage;
}

static simulation simulation_new(ls_arena *arena, const ls_pipeline *pipeline,
                                 const ls_pipeline_costs *costs) {
  const int stages = pipeline->stages;
  const int pairs = stages * pipeline->chunks * pipeline->microbatches;
  simulation run = {.pipeline = pipeline, .costs = costs};
  run.forward_end = LS_NEW_ARRAY(arena, double, pairs);
  run.input_end = LS_NEW_ARRAY(arena, double, pairs);
  for (int i = 0; i < pairs; i++) run.forward_end[i] = run.input_end[i] = -1;
  run.clock = LS_NEW_ARRAY(arena, double, stages);
  run.next = LS_NEW_ARRAY(arena, int, stages);
  run.ready = LS_NEW_ARRAY(arena, int, stages);
  run.is_ready = LS_NEW_ARRAY(arena, bool, stages);
  for (int stage = stages - 1; stage >= 0; stage--) {
    run.ready[run.ready_count++] = stage;
    run.is_ready[stage] = true;
  }
  return run;
}

/* Takes each stage as far as it goes. Every pass wakes at most one other stage, so the whole is
 * linear in the passes. */
static void simulate(simulation *run, ls_pipeline_span **spans) {
  const ls_pipeline *pipeline = run->pipeline;
  while (run->ready_count) {
    const int stage = run->ready[--run->ready_count];
    run->is_ready[stage] = false;
    const ls_pipeline_list *list = &pipeline->lists[stage];
    for (; run->next[stage] < list->count; run->next[stage]++) {
      const ls_pipeline_pass *pass = &list->items[run->next[stage]];
      LS_ASSERT(pass->chunk >= 0 && pass->chunk < pipeline->stages * pipeline->chunks);
      LS_ASSERT(pass->microbatch >= 0 && pass->microbatch < pipeline->microbatches);
      ls_pipeline_pass missing;
      const double start = start_of(run, stage, pass, &missing);
      if (start < 0) break;
      const double end = run->clock[stage] = start + cost_of(run, pass);
      if (spans) spans[stage][run->next[stage]] = (ls_pipeline_span){start, end};
      if (pass->kind == LS_PASS_WEIGHT) continue;
      *end_of(run, pass) = end;
      wake(run, pass->kind == LS_PASS_FORWARD ? pass->chunk + 1 : pass->chunk - 1);
    }
  }
}

static bool is_stuck(const simulation *run, int stage) {
  return run->next[stage] < run->pipeline->lists[stage].count;
}

/* The stage that a stuck stage waits for, and the pass. */
static int awaited_by(const simulation *run, int stage, ls_pipeline_pass *missing) {
  const ls_pipeline_pass *pass = &run->pipeline->lists[stage].items[run->next[stage]];
  *missing = *pass;
  LS_ASSERT(start_of(run, stage, pass, missing) < 0);
  return run->pipeline->stage_of[missing->chunk];
}

/* The first stage of the circle into which following who waits for whom leads from a stuck stage,
 * within as many steps as there are stages. Where a pass is missing altogether there is none, but
 * a stage that has ended: then the stage that waits for that one. */
static int circle_from(const simulation *run, int stage) {
  ls_pipeline_pass missing;
  for (int i = 0; i < run->pipeline->stages; i++) {
    const int next = awaited_by(run, stage, &missing);
    if (!is_stuck(run, next)) return stage;
    stage = next;
  }
  int first = stage;
  for (int at = awaited_by(run, stage, &missing); at != stage; at = awaited_by(run, at, &missing))
    if (at < first) first = at;
  return first;
}

static ls_status fail_stuck(const simulation *run, int stage, ls_pipeline_place *const *places,
                            ls_error *error) {
  enum { TOLD = 6 };
  char text[96 * TOLD] = "", place[32] = "", more[32] = "";
  size_t length = 0;
  const int first = circle_from(run, stage);
  int at = first, count = 0;
  do {
    ls_pipeline_pass missing;
    const ls_pipeline_pass *pass = &run->pipeline->lists[at].items[run->next[at]];
    const int next = awaited_by(run, at, &missing);
    const char letter = missing.kind == LS_PASS_FORWARD ? 'F' : run->pipeline->splits ? 'I' : 'B';
    if (count++ < TOLD) {
      length += (size_t)snprintf(text + length, sizeof text - length,
                                 "%sstage %d waits at %d%c%d for %d%c%d", count > 1 ? ", " : "", at,
                                 pass->chunk, ls_pass_letter(pass->kind), pass->microbatch,
                                 missing.chunk, letter, missing.microbatch);
      LS_ASSERT(length < sizeof text);
    }
    at = next;
  } while (at != first && is_stuck(run, at));
  if (count > TOLD) snprintf(more, sizeof more, " and %d more", count - TOLD);
  if (places) {
    const ls_pipeline_place *found = &places[first][run->next[first]];
    snprintf(place, sizeof place, ":%d:%d", found->line, found->column);
  }
  return ls_fail(error, LS_INPUT,
                 "%s%s: the order cannot be executed: %s%s; expected each pass before those that "
                 "wait for it: move one of the awaited passes forward in its stage's list",
                 run->pipeline->name, place, text, more);
}

static ls_status check_ended(const simulation *run, ls_pipeline_place *const *places,
                             ls_error *error) {
  for (int stage = 0; stage < run->pipeline->stages; stage++)
    if (is_stuck(run, stage)) return fail_stuck(run, stage, places, error);
  return LS_OK;
}

static void measure(const simulation *run, ls_arena *arena, ls_pipeline_times *times) {
  const ls_pipeline *pipeline = run->pipeline;
  const int stages = pipeline->stages;
  double *work = LS_NEW_ARRAY(arena, double, stages);
  times->idle = LS_NEW_ARRAY(arena, double, stages);
  for (int stage = 0; stage < stages; stage++) {
    const ls_pipeline_list *list = &pipeline->lists[stage];
    if (!list->count) continue;
    const double from = times->spans[stage][0].start;
    const double to = times->spans[stage][list->count - 1].end;
    for (int i = 0; i < list->count; i++) work[stage] += cost_of(run, &list->items[i]);
    if (to > times->makespan) times->makespan = to;
    if (to - from > times->steady) times->steady = to - from;
  }
  for (int stage = 0; stage < stages; stage++) {
    times->idle[stage] = times->makespan - work[stage];
    if (times->makespan > 0) times->bubble += times->idle[stage] / times->makespan / stages;
    if (times->steady > 0)
      times->steady_bubble += (times->steady - work[stage]) / times->steady / stages;
  }
}

ls_status ls_pipeline_times_make(ls_arena *arena, const ls_pipeline *pipeline,
                                 const ls_pipeline_costs *costs, ls_pipeline_times **times,
                                 ls_error *error) {
  *times = NULL;
  simulation run = simulation_new(arena, pipeline, costs);
  ls_pipeline_times *made = LS_NEW(arena, ls_pipeline_times);
  made->spans = LS_NEW_ARRAY(arena, ls_pipeline_span *, pipeline->stages);
  for (int stage = 0; stage < pipeline->stages; stage++)
    made->spans[stage] = LS_NEW_ARRAY(arena, ls_pipeline_span, pipeline->lists[stage].count);
  simulate(&run, made->spans);
  LS_TRY(check_ended(&run, NULL, error));
  measure(&run, arena, made);
  *times = made;
  return LS_OK;
}

ls_status ls_pipeline_executes(ls_arena *arena, const ls_pipeline *pipeline,
                               ls_pipeline_place *const *places, ls_error *error) {
  simulation run = simulation_new(arena, pipeline, &ls_pipeline_unit_costs);
  simulate(&run, NULL);
  return check_ended(&run, places, error);
}

void ls_pipeline_peak_activations(ls_arena *arena, const ls_pipeline *pipeline,
                                  ls_pipeline_peaks *peaks) {
  *peaks = (ls_pipeline_peaks){.until_input = LS_NEW_ARRAY(arena, int, pipeline->stages),
                               .until_weight = LS_NEW_ARRAY(arena, int, pipeline->stages)};
  for (int stage = 0; stage < pipeline->stages; stage++) {
    int for_input = 0, for_weight = 0;
    for (int i = 0; i < pipeline->lists[stage].count; i++) {
      const ls_pass_kind kind = pipeline->lists[stage].items[i].kind;
      for_input += (kind == LS_PASS_FORWARD) - (kind == LS_PASS_BACKWARD || kind == LS_PASS_INPUT);
      for_weight +=
          (kind == LS_PASS_FORWARD) - (kind == LS_PASS_BACKWARD || kind == LS_PASS_WEIGHT);
      if (for_input > peaks->until_input[stage]) peaks->until_input[stage] = for_input;
      if (for_weight > peaks->until_weight[stage]) peaks->until_weight[stage] = for_weight;
    }
    if (peaks->until_input[stage] > peaks->most_until_input)
      peaks->most_until_input = peaks->until_input[stage];
    if (peaks->until_weight[stage] > peaks->most_until_weight)
      peaks->most_until_weight = peaks->until_weight[stage];
  }
  peaks->of_model = peaks->most_until_weight / ((double)pipeline->stages * pipeline->chunks);
}
