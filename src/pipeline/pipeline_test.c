/* Every pipeline schedule over many stages, microbatches and chunks: whole, executable, with the
 * bubble and the activations of its paper; and the user's own ones with each kind of damage. */
#include "pipeline/pipeline.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/random.h"

static const uint64_t seed = 20250607;
static const int stage_counts[] = {1, 2, 3, 4, 5, 8, 16};
enum { STAGE_COUNTS = sizeof stage_counts / sizeof *stage_counts };

static const ls_pipeline_kind *kind_of(const char *name) {
  const ls_pipeline_kind *kind;
  ls_error error = {0};
  if (ls_pipeline_kind_find(name, &kind, &error) != LS_OK) fail_msg("%s", error.text);
  return kind;
}

static ls_pipeline *make(ls_arena *arena, const char *name, int stages, int chunks,
                         int microbatches) {
  ls_pipeline *pipeline;
  ls_error error = {0};
  if (ls_pipeline_make(arena, kind_of(name), stages, chunks, microbatches, &pipeline, &error) !=
      LS_OK)
    fail_msg("%s", error.text);
  return pipeline;
}

static ls_pipeline_times *time_of(ls_arena *arena, const ls_pipeline *pipeline) {
  ls_pipeline_times *times;
  ls_error error = {0};
  if (ls_pipeline_times_make(arena, pipeline, &ls_pipeline_unit_costs, &times, &error) != LS_OK)
    fail_msg("%s", error.text);
  return times;
}

typedef void visitor(ls_arena *arena, const ls_pipeline_kind *kind, const ls_pipeline *pipeline);

/* Calls `visit` for every kind over stages, chunks and microbatches; returns how many. */
static int visit_all(visitor *visit) {
  int count = 0;
  for (int k = 0; k < ls_pipeline_kind_count; k++) {
    const ls_pipeline_kind *kind = &ls_pipeline_kinds[k];
    for (int i = 0; i < STAGE_COUNTS; i++) {
      const int d = stage_counts[i], most = kind->most_chunks ? kind->most_chunks : 4;
      const int microbatches[] = {1,         2,         3,         d - 1, d,
                                  d + 1,     2 * d - 2, 2 * d - 1, 2 * d, 2 * d + 1,
                                  3 * d - 1, 4 * d,     7 * d + 3};
      for (int chunks = kind->least_chunks; chunks <= most; chunks++) {
        for (size_t j = 0; j < sizeof microbatches / sizeof *microbatches; j++) {
          const int m = microbatches[j];
          if (m < 1 || m < kind->fewest_microbatches(d)) continue;
          ls_arena *arena = ls_arena_create();
          visit(arena, kind, make(arena, kind->name, d, chunks, m));
          ls_arena_destroy(&arena);
          count++;
        }
      }
    }
  }
  return count;
}

static void check_made(ls_arena *arena, const ls_pipeline_kind *kind, const ls_pipeline *pipeline) {
  (void)arena;
  ls_error error = {0};
  bool whole = false, split = false;
  if (ls_pipeline_check(pipeline, &error) != LS_OK) fail_msg("%s", error.text);
  const int d = pipeline->stages;
  for (int c = 0; c < d * pipeline->chunks; c++) {
    const int along = c % d, back = d - 1 - along;
    assert_int_equal(pipeline->stage_of[c], kind->folded && c / d % 2 ? back : along);
  }
  for (int s = 0; s < d; s++) {
    for (int i = 0; i < pipeline->lists[s].count; i++) {
      whole |= pipeline->lists[s].items[i].kind == LS_PASS_BACKWARD;
      split |= pipeline->lists[s].items[i].kind == LS_PASS_WEIGHT;
    }
  }
  assert_int_equal(pipeline->splits, split);
  if (kind->backward != LS_BACKWARD_WHOLE) assert_true(split);
  if (kind->backward != LS_BACKWARD_SPLIT) assert_true(whole || d > 1);
  if (kind->backward == LS_BACKWARD_WHOLE) assert_false(split);
  if (kind->backward == LS_BACKWARD_SPLIT) assert_false(whole);
}

static void every_pass_is_there_once(void **state) {
  (void)state;
  assert_true(visit_all(check_made) > 900);
}

/* Idle units of the longest stage, besides the work of all its passes. */
static int steady_idle(const ls_pipeline *pipeline, const ls_pipeline_times *times) {
  return (int)lround(times->steady) - 3 * pipeline->chunks * pipeline->microbatches;
}

static void check_bubble(ls_arena *arena, const ls_pipeline_kind *kind,
                         const ls_pipeline *pipeline) {
  const ls_pipeline_times *times = time_of(arena, pipeline);
  const int d = pipeline->stages, v = pipeline->chunks, m = pipeline->microbatches;
  const double paper = kind->bubble(d, v, m);
  double idle = 0;
  for (int s = 0; s < d; s++) {
    assert_true(times->idle[s] == times->makespan - 3.0 * v * m);
    idle += times->idle[s];
  }
  assert_true(fabs(times->bubble - idle / times->makespan / d) < 1e-12);
  assert_true(times->steady <= times->makespan);
  if (d == 1) assert_true(times->bubble == 0);
  if (paper < 0) return;
  if (kind->bubble_is_bound) {
    if (times->steady_bubble > paper + 1e-12)
      fail_msg("%s, d = %d, m = %d: %g, above %g", kind->name, d, m, times->steady_bubble, paper);
  } else if (fabs(times->steady_bubble - paper) > 1e-12) {
    fail_msg("%s, d = %d, v = %d, m = %d: %g, not %g", kind->name, d, v, m, times->steady_bubble,
             paper);
  }
}

static void bubbles_are_the_papers(void **state) {
  (void)state;
  visit_all(check_bubble);
}

/* These hold for a whole step too, between two barriers: (d - 1) / (v m + d - 1). */
static void bubbles_between_barriers(void **state) {
  (void)state;
  static const char *const names[] = {"gpipe", "1f1b", "interleaved"};
  for (int n = 0; n < 3; n++) {
    for (int d = 1; d <= 9; d++) {
      for (int v = 1; v <= (n == 2 ? 5 : 1); v++) {
        for (int rounds = 1; rounds <= 4; rounds++) {
          for (int m = n == 2 ? rounds * d : 1; m <= rounds * d; m++) {
            ls_arena *arena = ls_arena_create();
            const ls_pipeline_times *times = time_of(arena, make(arena, names[n], d, v, m));
            assert_true(fabs(times->bubble - (d - 1) / (double)(v * m + d - 1)) < 1e-12);
            ls_arena_destroy(&arena);
          }
        }
      }
    }
  }
}

/* Counted for microbatches that are no multiple of the stages: the gap of the start and end, and
 * for fewer microbatches than stages a gap of d - m passes before each further chunk. */
static void interleaving_takes_any_count(void **state) {
  (void)state;
  for (int d = 1; d <= 8; d++) {
    for (int v = 2; v <= 5; v++) {
      for (int m = 1; m <= 4 * d + 3; m++) {
        ls_arena *arena = ls_arena_create();
        const ls_pipeline *pipeline = make(arena, "interleaved", d, v, m);
        const int gaps = m < d ? (v - 1) * (d - m) : 0;
        assert_int_equal(steady_idle(pipeline, time_of(arena, pipeline)), 3 * (d - 1 + gaps));
        ls_pipeline_peaks peaks;
        ls_pipeline_peak_activations(arena, pipeline, &peaks);
        const int rounds = m < d ? 1 : m / d, longest = (m + rounds - 1) / rounds;
        const int ahead = (v - 1) * longest + 2 * (d - 1) + 1;
        assert_int_equal(peaks.until_weight[0], ahead < v * m ? ahead : v * m);
        ls_arena_destroy(&arena);
      }
    }
  }
}

/* What the V schedules come to, counted once; V-Min's 4d - 5 are those of its authors' code. */
static void folded_bubbles_are_counted(void **state) {
  (void)state;
  static const struct {
    const char *name;
    int stages, microbatches, idle, activations;
  } cases[] = {
      {"vmin", 1, 8, 0, 2},      {"vmin", 2, 8, 1, 4},        {"vmin", 3, 12, 5, 4},
      {"vmin", 4, 16, 11, 4},    {"vmin", 5, 20, 14, 6},      {"vmin", 8, 32, 27, 8},
      {"vmin", 16, 64, 59, 12},  {"vhalf", 1, 8, 0, 2},       {"vhalf", 2, 8, 1, 4},
      {"vhalf", 3, 12, 5, 4},    {"vhalf", 4, 16, 6, 6},      {"vhalf", 5, 20, 11, 6},
      {"vhalf", 8, 32, 18, 10},  {"vhalf", 16, 64, 42, 18},   {"zbv", 4, 7, 0, 8},
      {"zbv", 4, 6, 1, 8},       {"zbv", 8, 15, 0, 16},       {"zbh2", 4, 6, 1, 6},
      {"dualpipev", 2, 8, 1, 5}, {"dualpipev", 5, 10, 4, 11}, {"dualpipev", 8, 16, 7, 17},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ls_arena *arena = ls_arena_create();
    const ls_pipeline *pipeline =
        make(arena, cases[i].name, cases[i].stages, 0, cases[i].microbatches);
    const int idle = steady_idle(pipeline, time_of(arena, pipeline));
    ls_pipeline_peaks peaks;
    ls_pipeline_peak_activations(arena, pipeline, &peaks);
    if (idle != cases[i].idle || peaks.most_until_weight != cases[i].activations)
      fail_msg("%s of %d stages: idle %d, activations %d", cases[i].name, cases[i].stages, idle,
               peaks.most_until_weight);
    ls_arena_destroy(&arena);
  }
}

static void check_activations(ls_arena *arena, const ls_pipeline_kind *kind,
                              const ls_pipeline *pipeline) {
  const int d = pipeline->stages, v = pipeline->chunks, m = pipeline->microbatches;
  const int paper = kind->activations(d, v, m);
  ls_pipeline_peaks peaks;
  ls_pipeline_peak_activations(arena, pipeline, &peaks);
  assert_true(peaks.most_until_input <= peaks.most_until_weight);
  assert_true(peaks.of_model == peaks.most_until_weight / (double)(d * v));
  if (paper < 0) return;
  if (peaks.most_until_weight > paper)
    fail_msg("%s, d = %d, m = %d: %d, above %d", kind->name, d, m, peaks.most_until_weight, paper);
  if (m >= 2 * d) assert_int_equal(peaks.most_until_weight, paper);
}

static void activations_are_the_papers(void **state) {
  (void)state;
  visit_all(check_activations);
}

static void activations_by_stage(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_pipeline_peaks peaks;
  for (int m = 1; m <= 12; m++) {
    ls_pipeline_peak_activations(arena, make(arena, "1f1b", 4, 1, m), &peaks);
    for (int s = 0; s < 4; s++) {
      assert_int_equal(peaks.until_weight[s], m < 4 - s ? m : 4 - s);
      assert_int_equal(peaks.until_input[s], peaks.until_weight[s]);
    }
  }
  ls_pipeline_peak_activations(arena, make(arena, "zbh1", 4, 1, 12), &peaks);
  for (int s = 0; s < 4; s++) {
    assert_int_equal(peaks.until_input[s], 4 - s);
    assert_int_equal(peaks.until_weight[s], 4); /* all stages alike */
  }
  assert_true(peaks.of_model == 1);
  ls_pipeline_peak_activations(arena, make(arena, "sequential", 4, 1, 12), &peaks);
  assert_true(peaks.of_model == 0.25);
  ls_pipeline_peak_activations(arena, make(arena, "vhalf", 16, 2, 64), &peaks);
  assert_true(peaks.of_model == 18 / 32.0);
  ls_pipeline_peak_activations(arena, make(arena, "vmin", 16, 2, 64), &peaks);
  assert_true(peaks.of_model == 12 / 32.0);
  ls_arena_destroy(&arena);
}

/* No more stages than this are usual; the folded ones must keep their memory here too. */
static void many_stages_keep_their_bounds(void **state) {
  (void)state;
  for (int k = 0; k < ls_pipeline_kind_count; k++) {
    for (int d = 6; d <= 48; d += 7) {
      ls_arena *arena = ls_arena_create();
      const ls_pipeline_kind *kind = &ls_pipeline_kinds[k];
      const ls_pipeline *pipeline = make(arena, kind->name, d, 0, 2 * d);
      check_made(arena, kind, pipeline);
      check_bubble(arena, kind, pipeline);
      check_activations(arena, kind, pipeline);
      ls_arena_destroy(&arena);
    }
  }
}

/* The times again, the slow way: ends rise from nothing until none changes. */
typedef struct oracle {
  const ls_pipeline *pipeline;
  const ls_pipeline_costs *costs;
  double *end[LS_PASS_KINDS]; /* [chunk * microbatches + microbatch], 0 where there is none */
} oracle;

static double backward_end(const oracle *of, int pair) {
  return of->end[LS_PASS_BACKWARD][pair] + of->end[LS_PASS_INPUT][pair];
}

static double oracle_start(const oracle *of, const ls_pipeline_pass *pass, double clock) {
  const int m = of->pipeline->microbatches, pair = pass->chunk * m + pass->microbatch;
  const int last = of->pipeline->stages * of->pipeline->chunks - 1;
  const int *stage_of = of->pipeline->stage_of;
  double start = clock, needed = 0;
  if (pass->kind == LS_PASS_WEIGHT) return fmax(start, of->end[LS_PASS_INPUT][pair]);
  if (pass->kind == LS_PASS_FORWARD) {
    if (pass->chunk == 0) return start;
    needed = of->end[LS_PASS_FORWARD][pair - m];
    if (stage_of[pass->chunk] != stage_of[pass->chunk - 1]) needed += of->costs->transfer;
    return fmax(start, needed);
  }
  start = fmax(start, of->end[LS_PASS_FORWARD][pair]);
  if (pass->chunk == last) return start;
  needed = backward_end(of, pair + m);
  if (stage_of[pass->chunk] != stage_of[pass->chunk + 1]) needed += of->costs->transfer;
  return fmax(start, needed);
}

static double oracle_cost(const ls_pipeline_costs *costs, const ls_pipeline_pass *pass) {
  const int c = pass->chunk;
  if (pass->kind == LS_PASS_FORWARD) return costs->forward_of[c];
  if (pass->kind == LS_PASS_INPUT) return costs->input;
  if (pass->kind == LS_PASS_WEIGHT) return costs->weight_of[c];
  return costs->input + costs->weight_of[c];
}

/* Ends after at most as many rounds as there are passes, or never: then false. */
static bool oracle_settles(oracle *of, double *makespan) {
  int passes = 1;
  for (int s = 0; s < of->pipeline->stages; s++) passes += of->pipeline->lists[s].count;
  bool changed = true;
  for (int round = 0; round <= passes && changed; round++) {
    changed = false;
    *makespan = 0;
    for (int s = 0; s < of->pipeline->stages; s++) {
      double clock = 0;
      for (int i = 0; i < of->pipeline->lists[s].count; i++) {
        const ls_pipeline_pass *pass = &of->pipeline->lists[s].items[i];
        double *end =
            &of->end[pass->kind][pass->chunk * of->pipeline->microbatches + pass->microbatch];
        clock = oracle_start(of, pass, clock) + oracle_cost(of->costs, pass);
        if (clock != *end) changed = true;
        *end = clock;
        *makespan = fmax(*makespan, clock);
      }
    }
  }
  return !changed;
}

static int draw(uint64_t round, uint64_t *drawn, int count) {
  return (int)(ls_random_bits(seed, round, (*drawn)++) % (uint64_t)count);
}

/* Orders of makers with two passes of a stage exchanged, some of which cannot be executed any more,
 * at random costs: this and the oracle agree on each. */
static void times_agree_with_the_slow_way(void **state) {
  (void)state;
  int executed = 0, stuck = 0, early = 0;
  print_message("seed %llu\n", (unsigned long long)seed);
  for (uint64_t round = 0; round < 600; round++) {
    ls_arena *arena = ls_arena_create();
    uint64_t drawn = 0;
    const ls_pipeline_kind *kind = &ls_pipeline_kinds[draw(round, &drawn, ls_pipeline_kind_count)];
    const int d = 1 + draw(round, &drawn, 5),
              m = kind->fewest_microbatches(d) + draw(round, &drawn, 5);
    ls_pipeline *pipeline = make(arena, kind->name, d, 0, m);
    const int chain = d * pipeline->chunks;
    double *costs_of = LS_NEW_ARRAY(arena, double, 2 * chain);
    for (int c = 0; c < 2 * chain; c++) costs_of[c] = 1 + draw(round, &drawn, 7);
    const int transfer = draw(round, &drawn, 3);
    const ls_pipeline_costs costs = {.transfer = transfer,
                                     .input = 1 + draw(round, &drawn, 4),
                                     .forward_of = costs_of,
                                     .weight_of = costs_of + chain};
    ls_pipeline_list *list = &pipeline->lists[draw(round, &drawn, d)];
    const int first = draw(round, &drawn, list->count), second = draw(round, &drawn, list->count);
    const ls_pipeline_pass kept = list->items[first];
    list->items[first] = list->items[second];
    list->items[second] = kept;
    oracle slow = {.pipeline = pipeline, .costs = &costs};
    for (int k = 0; k < LS_PASS_KINDS; k++) slow.end[k] = LS_NEW_ARRAY(arena, double, chain *m);
    double makespan;
    const bool settles = oracle_settles(&slow, &makespan);
    ls_pipeline_times *times;
    ls_error error = {0};
    const ls_status status = ls_pipeline_times_make(arena, pipeline, &costs, &times, &error);
    assert_int_equal(status == LS_OK, settles);
    assert_int_equal(ls_pipeline_check(pipeline, &error) == LS_OK, settles);
    if (settles) assert_true(times->makespan == makespan);
    executed += settles;
    stuck += !settles && strstr(error.text, "cannot be executed") != NULL;
    early += !settles && strstr(error.text, "expected it after that") != NULL;
    ls_arena_destroy(&arena);
  }
  print_message("%d executed, %d stuck, %d too early\n", executed, stuck, early);
  assert_true(executed > 40 && stuck > 40 && early > 40);
  assert_int_equal(executed + stuck + early, 600);
}

static void a_transfer_is_paid_between_stages_only(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_pipeline_costs costs = ls_pipeline_unit_costs;
  ls_pipeline_times *times;
  ls_error error = {0};
  costs.transfer = 10;
  /* One microbatch over the V: 6 transfers, none at the fold, 4 F, 4 I, then W of the first. */
  const ls_pipeline *pipeline = make(arena, "zbv", 2, 0, 1);
  assert_int_equal(ls_pipeline_times_make(arena, pipeline, &costs, &times, &error), LS_OK);
  assert_true(times->makespan == 4 + 4 + 1 + 4 * 10);
  pipeline = make(arena, "interleaved", 2, 2, 1);
  assert_int_equal(ls_pipeline_times_make(arena, pipeline, &costs, &times, &error), LS_OK);
  assert_true(times->makespan == 4 + 8 + 6 * 10);
  ls_arena_destroy(&arena);
}

static void large_schedules_are_quick(void **state) {
  (void)state;
  static const char *const names[] = {"interleaved", "zbv", "vhalf", "dualpipev"};
  for (int n = 0; n < 4; n++) {
    ls_arena *arena = ls_arena_create();
    const clock_t start = clock();
    const ls_pipeline *pipeline = make(arena, names[n], 64, n ? 2 : 8, 512);
    const clock_t made = clock();
    const ls_pipeline_times *times = time_of(arena, pipeline);
    const clock_t timed = clock();
    print_message("%s: made in %.3f s, timed in %.3f s, bubble %.4f\n", names[n],
                  (double)(made - start) / CLOCKS_PER_SEC, (double)(timed - made) / CLOCKS_PER_SEC,
                  times->bubble);
    /* Quadratic would be minutes; the rest is room for sanitizers and busy machines. */
    assert_true(timed - start < 20 * CLOCKS_PER_SEC);
    ls_arena_destroy(&arena);
  }
}

static void refusals_name_the_nearest(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_error error = {0};
  const ls_pipeline_kind *kind;
  ls_pipeline *pipeline;
  assert_int_equal(ls_pipeline_kind_find("zb-v", &kind, &error), LS_INPUT);
  assert_null(kind);
  assert_string_equal(error.text,
                      "found schedule \"zb-v\" (did you mean zbv?); expected one of sequential, "
                      "gpipe, 1f1b, interleaved, zbh1, zbh2, zbv, vhalf, vmin, dualpipev, or a CSV "
                      "file");
  static const struct {
    const char *name;
    int stages, chunks, microbatches;
    const char *text;
  } cases[] = {
      {"dualpipev", 4, 2, 7,
       "schedule dualpipev: found 7 microbatches; expected at least 8 on 4 stages: give more "
       "microbatches, or schedule: zbv, which takes any count"},
      {"1f1b", 4, 1, 0,
       "schedule 1f1b: found 0 microbatches; expected at least 1 on 4 stages: give more "
       "microbatches"},
      {"1f1b", 4, 2, 8,
       "schedule 1f1b: found 2 chunks per stage; expected 1: give chunks: 1, or schedule: "
       "interleaved, which takes any count"},
      {"zbv", 4, 1, 8, "schedule zbv: found 1 chunks per stage; expected at least 2"},
      {"zbv", 4, 3, 8,
       "schedule zbv: found 3 chunks per stage; expected 2: give chunks: 2, or schedule: "
       "interleaved, which takes any count"},
      {"gpipe", 0, 1, 8, "schedule gpipe: found 0 stages; expected at least 1"},
      {"gpipe", 64, 1, 1000000,
       "schedule gpipe: found 64 stages x 1 chunks x 1000000 microbatches, 192000000 passes; "
       "expected at most 16777216: give larger microbatches"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    assert_int_equal(ls_pipeline_make(arena, kind_of(cases[i].name), cases[i].stages,
                                      cases[i].chunks, cases[i].microbatches, &pipeline, &error),
                     LS_INPUT);
    assert_null(pipeline);
    assert_string_equal(error.text, cases[i].text);
  }
  ls_arena_destroy(&arena);
}

/* What ls_pipeline_print writes. */
static char *printed(const char *name, int stages, int microbatches, int columns) {
  ls_arena *arena = ls_arena_create();
  char *text = NULL;
  size_t bytes = 0;
  FILE *stream = open_memstream(&text, &bytes);
  const ls_pipeline *pipeline = make(arena, name, stages, 0, microbatches);
  ls_pipeline_print(pipeline, time_of(arena, pipeline), columns, stream);
  fclose(stream);
  ls_arena_destroy(&arena);
  return text;
}

static void pictures_are_legible(void **state) {
  (void)state;
  char *text = printed("1f1b", 2, 3, 0);
  assert_string_equal(text,
                      "stage 0   F0 F1       B0--- F2 B1---    B2---\n"
                      "stage 1      F0 B0--- F1 B1--- F2 B2---\n"
                      "1f1b: bubble 25.0%\n"
                      "F forward, B backward of microbatch 0, 1, ...\n");
  free(text);
  text = printed("zbh2", 2, 3, 0);
  assert_string_equal(text,
                      "stage 0   F0 F1 F2 I0 W0 I1 W1 I2 W2\n"
                      "stage 1      F0 I0 F1 I1 F2 I2 W0 W1 W2\n"
                      "zbh2: bubble 10.0%, 0.0% where steps follow without a barrier "
                      "(post_validation: true)\n"
                      "F forward, I backward of inputs, W backward of weights of microbatch 0, 1, "
                      "...\n");
  free(text);
  text = printed("interleaved", 2, 2, 30);
  assert_string_equal(text,
                      "stage 0   F0a F1a F0b F1b\n"
                      "stage 1       F0a F1a F0b B0b-\n"
                      "\n"
                      "stage 0       B0b----     B1b-\n"
                      "stage 1   --- F1b B1b---- B0a-\n"
                      "\n"
                      "stage 0   --- B0a---- B1a----\n"
                      "stage 1   --- B1a----\n"
                      "interleaved: bubble 20.0%\n"
                      "F forward, B backward of microbatch 0, 1, ... in the stage's chunk a, b, "
                      "...\n");
  free(text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_pass_is_there_once),
      cmocka_unit_test(bubbles_are_the_papers),
      cmocka_unit_test(bubbles_between_barriers),
      cmocka_unit_test(interleaving_takes_any_count),
      cmocka_unit_test(folded_bubbles_are_counted),
      cmocka_unit_test(activations_are_the_papers),
      cmocka_unit_test(activations_by_stage),
      cmocka_unit_test(many_stages_keep_their_bounds),
      cmocka_unit_test(times_agree_with_the_slow_way),
      cmocka_unit_test(a_transfer_is_paid_between_stages_only),
      cmocka_unit_test(large_schedules_are_quick),
      cmocka_unit_test(refusals_name_the_nearest),
      cmocka_unit_test(pictures_are_legible),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
