/* With post-validation each stage goes on with a speculation before it knows the norm, and repeats
 * what it did where the speculation was wrong: that is the training of the same layout without it,
 * to the bit where the squares are added up in one order. Clipping never, always, and at every
 * other step, so that right and wrong speculates follow one another. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/layouts.h"
#include "verify/equality.h"

typedef struct layout_case {
  const char *schedule;
  int pp, dp_replicate, dp_shard, tp, zero, microbatches;
  ls_dtype compute;
} layout_case;

static const layout_case cases[] = {
    {"1f1b", 2, 1, 1, 1, 3, 4, LS_F64},      {"1f1b", 4, 1, 1, 1, 3, 4, LS_F64},
    {"gpipe", 3, 1, 1, 1, 3, 4, LS_F64},     {"interleaved", 2, 1, 1, 1, 3, 4, LS_F64},
    {"zbh1", 2, 1, 1, 1, 3, 4, LS_F64},      {"zbh1", 4, 1, 1, 1, 3, 8, LS_F64},
    {"zbh2", 3, 1, 1, 1, 3, 8, LS_F64},      {"zbh2", 4, 1, 1, 1, 3, 8, LS_F64},
    {"zbv", 2, 1, 1, 1, 3, 4, LS_F64},       {"zbv", 3, 1, 1, 1, 3, 8, LS_F64},
    {"vhalf", 2, 1, 1, 1, 3, 4, LS_F64},     {"vmin", 3, 1, 1, 1, 3, 8, LS_F64},
    {"dualpipev", 2, 1, 1, 1, 3, 4, LS_F64}, {"zbh1", 2, 1, 2, 1, 0, 4, LS_F64},
    {"zbh1", 2, 1, 2, 1, 1, 4, LS_F64},      {"zbh2", 2, 1, 2, 1, 2, 4, LS_F64},
    {"zbv", 2, 1, 2, 1, 3, 4, LS_F64},       {"zbh2", 2, 2, 1, 2, 3, 4, LS_F64},
    {"zbv", 2, 2, 2, 2, 3, 4, LS_F64},       {"zbh1", 2, 1, 2, 1, 1, 4, LS_F32},
    {"zbh2", 2, 1, 1, 1, 3, 4, LS_F32},      {"zbv", 2, 1, 2, 1, 3, 4, LS_BF16},
    {"zbh2", 4, 1, 1, 1, 3, 8, LS_BF16},
};

enum { CASES = sizeof cases / sizeof cases[0], LAYERS = 6 };

static ls_status run(ls_arena *arena, const layout_case *about, int shape, double clip,
                     bool validates, ls_trajectory *made, ls_error *error) {
  ls_model_config config = ls_test_shape_config(arena, &ls_test_shapes[shape]);
  config.layers = LAYERS;
  const ls_experiment experiment = {.config = &config,
                                    .sequences = LS_TEST_SEQUENCES,
                                    .sequence = LS_TEST_SEQUENCE,
                                    .learning_rate = 1e-2,
                                    .seed = 5,
                                    .device = {.kind = about->compute == LS_BF16 ? "cpu" : NULL},
                                    .saved = true,
                                    .deadline_s = 120};
  ls_layout layout = ls_test_layout_default();
  layout.compute = about->compute;
  layout.pp = about->pp;
  layout.dp_replicate = about->dp_replicate;
  layout.dp_shard = about->dp_shard;
  layout.tp = about->tp;
  layout.zero = about->zero;
  layout.schedule = about->schedule;
  layout.microbatches = about->microbatches;
  layout.post_validation = validates;
  layout.prefetch = about->zero % 3;
  layout.optimizer.clip = clip;
  return ls_trajectory_run(arena, &experiment, &layout, made, error);
}

static bool same_parameters(const ls_trajectory *a, const ls_trajectory *b) {
  for (int p = 0; p < a->parameters; p++)
    if (memcmp(a->final[p], b->final[p], (size_t)a->elements[p] * sizeof(double)) != 0)
      return false;
  return true;
}

/* Of the norms of all steps: the middle one. */
static double middle(const ls_trajectory *of) {
  double low = INFINITY, high = 0, sum = 0;
  for (int s = 0; s < LS_TRAJECTORY_STEPS; s++) {
    low = fmin(low, of->norm[s]);
    high = fmax(high, of->norm[s]);
    sum += of->norm[s];
  }
  assert_true(low < high);
  return sum / LS_TRAJECTORY_STEPS;
}

static int clipped_of(const ls_trajectory *of, double clip) {
  int clipped = 0;
  for (int s = 0; s < LS_TRAJECTORY_STEPS; s++) clipped += clip > 0 && of->norm[s] > clip;
  return clipped;
}

static void compare(const layout_case *about, int shape, int *wrong, int *right) {
  ls_arena *arena = ls_arena_create();
  ls_error error = {0};
  double clip = 0;
  for (int k = 0; k < 3; k++) { /* never; now and then; always */
    ls_trajectory waits, speculates;
    if (run(arena, about, shape, clip, false, &waits, &error) != LS_OK ||
        run(arena, about, shape, clip, true, &speculates, &error) != LS_OK)
      fail_msg("%s: %s", about->schedule, error.text);
    const char *where;
    const double worst = ls_trajectory_difference(&speculates, &waits, &where);
    const bool one_order = about->dp_shard == 1 && about->tp == 1;
    const double allowed = about->compute == LS_F64 ? 1e-10 : 1e-2;
    if (!(worst < allowed) || ((clip == 0 || one_order) && !same_parameters(&speculates, &waits)))
      fail_msg("%s, pp %d, dp_shard %d, tp %d, zero %d, clip %g, shape %s: %g in %s",
               about->schedule, about->pp, about->dp_shard, about->tp, about->zero, clip,
               ls_test_shapes[shape].name, worst, where);
    *wrong += clipped_of(&speculates, clip);
    *right += LS_TRAJECTORY_STEPS - clipped_of(&speculates, clip);
    clip = k == 0 ? middle(&waits) : 1e-3;
  }
  ls_arena_destroy(&arena);
}

static void speculates_train_as_waiting_does(void **state) {
  (void)state;
  int wrong = 0, right = 0;
  for (int c = 0; c < CASES; c++)
    compare(&cases[c], cases[c].tp > 1 ? 1 : c % LS_TEST_SHAPES, &wrong, &right);
  print_message("%d layouts, %d speculates right and %d wrong\n", (int)CASES, right, wrong);
  assert_true(right > CASES && wrong > CASES);
}

static void what_cannot_be_is_refused(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_error error = {0};
  ls_trajectory made;
  const layout_case alone = {"1f1b", 1, 1, 1, 1, 3, 1, LS_F64};
  assert_int_equal(run(arena, &alone, 0, 1, true, &made, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "mesh.pp=1"));
  ls_arena_destroy(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(speculates_train_as_waiting_does),
                                     cmocka_unit_test(what_cannot_be_is_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
