#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "session/learning_rate.h"
#include "text/json.h"

static void assert_near(double found, double expected) {
  if (fabs(found - expected) > 1e-15 + 1e-13 * fabs(expected)) {
    fail_msg("found %.17g, expected %.17g", found, expected);
  }
}

static const ls_learning_rate base = {.lr = 1e-3, .lr_min = 1e-4, .steps = 20, .warmup = 4};

static ls_learning_rate of_kind(ls_run_lr_schedule schedule) {
  ls_learning_rate rate = base;
  rate.schedule = schedule;
  return rate;
}

static void warm_up_reaches_the_rate_in_its_last_step(void **state) {
  (void)state;
  for (int kind = LS_RUN_LR_CONSTANT; kind <= LS_RUN_LR_WSD; kind++) {
    const ls_learning_rate rate = of_kind((ls_run_lr_schedule)kind);
    assert_near(ls_learning_rate_at(&rate, 0), 0.25e-3);
    assert_near(ls_learning_rate_at(&rate, 1), 0.5e-3);
    assert_near(ls_learning_rate_at(&rate, 3), 1e-3);
    assert_near(ls_learning_rate_at(&rate, 4), 1e-3);
  }
}

static void each_kind_has_its_closed_form(void **state) {
  (void)state;
  const ls_learning_rate constant = of_kind(LS_RUN_LR_CONSTANT);
  const ls_learning_rate linear = of_kind(LS_RUN_LR_LINEAR);
  const ls_learning_rate cosine = of_kind(LS_RUN_LR_COSINE);
  ls_learning_rate wsd = of_kind(LS_RUN_LR_WSD);
  wsd.decay = 5;
  for (int step = 4; step < 40; step++) {
    const double p = step < 20 ? (step - 4) / 16.0 : 1;
    assert_near(ls_learning_rate_at(&constant, step), 1e-3);
    assert_near(ls_learning_rate_at(&linear, step), 1e-3 - 9e-4 * p);
    assert_near(ls_learning_rate_at(&cosine, step),
                1e-4 + 0.5 * (1 + cos(3.14159265358979323846 * p)) * 9e-4);
    const double falling = step < 15 ? 0 : step < 20 ? (step - 15) / 5.0 : 1;
    assert_near(ls_learning_rate_at(&wsd, step), 1e-3 - 9e-4 * falling);
  }
  assert_near(ls_learning_rate_at(&cosine, 12), 5.5e-4); /* half way */
}

static void without_warm_up_it_starts_at_the_rate(void **state) {
  (void)state;
  for (int kind = LS_RUN_LR_CONSTANT; kind <= LS_RUN_LR_WSD; kind++) {
    const ls_learning_rate rate = {
        .schedule = (ls_run_lr_schedule)kind, .lr = 1, .steps = 1, .decay = 1};
    assert_near(ls_learning_rate_at(&rate, 0), 1);
  }
  const ls_learning_rate all_warmup = {
      .schedule = LS_RUN_LR_COSINE, .lr = 1, .steps = 5, .warmup = 10};
  assert_near(ls_learning_rate_at(&all_warmup, 4), 0.5);
}

static ls_learning_rate from_text(ls_arena *arena, const char *text) {
  ls_run_file *run = NULL;
  ls_error error = {0};
  if (ls_run_file_parse(arena, "run.yaml", text, strlen(text), NULL, 0, &run, &error) != LS_OK) {
    fail_msg("%s", error.text);
  }
  return ls_learning_rate_of(run);
}

static void percentages_become_whole_steps(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  static const struct {
    const char *text;
    int64_t warmup, decay;
  } cases[] = {
      {"train: {lr: 1, steps: 100, warmup: 7%, decay: 29%}", 7, 29},
      {"train: {lr: 1, steps: 100, warmup: 0.5%, decay: 100%}", 1, 99},
      {"train: {lr: 1, steps: 1000, warmup: 3%, decay: 20%}", 30, 200},
      {"train: {lr: 1, steps: 10, warmup: 100, decay: 5}", 100, 0},
      {"train: {lr: 1, steps: 10, warmup: 0, decay: 0}", 0, 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const ls_learning_rate rate = from_text(arena, cases[i].text);
    assert_int_equal(rate.warmup, cases[i].warmup);
    assert_int_equal(rate.decay, cases[i].decay);
  }
  ls_arena_destroy(&arena);
}

/* The rates that PyTorch code used for a recorded training. */
static void a_recorded_trainings_rates_are_repeated(void **state) {
  (void)state;
  const char *path = "../shared/data/traces/gpt2-tiny-pretrain/trace.json";
  if (!ls_file_exists(path)) skip();
  json_t *root = NULL;
  ls_error error = {0};
  assert_int_equal(ls_json_read(path, 0, &root, &error), LS_OK);
  const ls_learning_rate rate = of_kind(LS_RUN_LR_COSINE);
  const json_t *steps = json_object_get(root, "steps");
  assert_int_equal(json_array_size(steps), 20);
  for (size_t i = 0; i < json_array_size(steps); i++) {
    const double recorded = json_real_value(json_object_get(json_array_get(steps, i), "lr"));
    assert_near(ls_learning_rate_at(&rate, (int64_t)i), recorded);
  }
  json_decref(root);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(warm_up_reaches_the_rate_in_its_last_step),
      cmocka_unit_test(each_kind_has_its_closed_form),
      cmocka_unit_test(without_warm_up_it_starts_at_the_rate),
      cmocka_unit_test(percentages_become_whole_steps),
      cmocka_unit_test(a_recorded_trainings_rates_are_repeated),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
