/* metrics.jsonl read back: what was written, what a run is writing, and what is none of a run's. */
#include "train/metrics_read.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"

static ls_arena *arena;
static ls_error error;
static char path[64];

static int set_up(void **state) {
  (void)state;
  arena = ls_arena_create();
  snprintf(path, sizeof path, "/tmp/metrics_read_test.%d.jsonl", (int)getpid());
  unlink(path);
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  unlink(path);
  ls_arena_destroy(&arena);
  return 0;
}

static ls_status read_text(const char *text, ls_metrics_rows *rows) {
  assert_int_equal(ls_file_write(path, text, strlen(text), &error), LS_OK);
  return ls_metrics_read(arena, path, rows, &error);
}

static void what_was_written_is_read(void **state) {
  (void)state;
  ls_metrics *metrics = NULL;
  assert_int_equal(ls_metrics_open(path, 0, &metrics, &error), LS_OK);
  const ls_metrics_step made = {.step = 1,
                                .epoch = 0.25,
                                .tokens = 1LL << 40,
                                .loss = 0.1 + 0.2,
                                .learning_rate = 3e-4,
                                .grad_norm = INFINITY,
                                .tokens_per_second = 1234.5,
                                .mfu = NAN,
                                .memory_bytes = 123,
                                .step_seconds = 0.5,
                                .validation_loss = 1.5,
                                .loss_scale = 1024,
                                .skipped = 3};
  assert_int_equal(ls_metrics_write(metrics, &made, &error), LS_OK);
  ls_metrics_close(&metrics);
  ls_metrics_rows rows;
  assert_int_equal(ls_metrics_read(arena, path, &rows, &error), LS_OK);
  assert_int_equal(rows.count, 1);
  const ls_metrics_step *row = &rows.items[0];
  assert_true(row->step == 1 && row->tokens == made.tokens && row->memory_bytes == 123);
  assert_true(row->loss == made.loss && row->learning_rate == made.learning_rate);
  assert_true(row->validation_loss == 1.5 && row->skipped == 3 && row->loss_scale == 1024);
  assert_true(isnan(row->mfu) && !isfinite(row->grad_norm));
}

/* Of pairs, of classes and beside a teacher. */
static void what_tasks_tell_is_read(void **state) {
  (void)state;
  ls_metrics *metrics = NULL;
  const ls_metrics_step made[] = {{.step = 1,
                                   .validation_loss = 1,
                                   .classifies = true,
                                   .validation_accuracy = 0.75,
                                   .loss_scale = NAN,
                                   .taught = true,
                                   .cross_entropy = 2.5,
                                   .divergence = 0.5},
                                  {.step = 2,
                                   .validation_loss = NAN,
                                   .loss_scale = NAN,
                                   .pairs = true,
                                   .reward_chosen = 0.5,
                                   .reward_rejected = -0.25,
                                   .preferred = 0.875}};
  assert_int_equal(ls_metrics_open(path, 0, &metrics, &error), LS_OK);
  for (int m = 0; m < 2; m++) assert_int_equal(ls_metrics_write(metrics, &made[m], &error), LS_OK);
  ls_metrics_close(&metrics);
  ls_metrics_rows rows;
  assert_int_equal(ls_metrics_read(arena, path, &rows, &error), LS_OK);
  const ls_metrics_step *first = &rows.items[0], *second = &rows.items[1];
  assert_true(first->validation_accuracy == 0.75 && first->cross_entropy == 2.5);
  assert_true(first->divergence == 0.5 && isnan(first->reward_chosen));
  assert_true(second->reward_chosen == 0.5 && second->reward_rejected == -0.25);
  assert_true(second->preferred == 0.875 && isnan(second->validation_accuracy));
}

static void a_line_that_is_being_written_is_left(void **state) {
  (void)state;
  ls_metrics_rows rows;
  assert_int_equal(read_text("{\"step\": 1, \"loss\": 2}\n{\"step\": 2, \"lo", &rows), LS_OK);
  assert_int_equal(rows.count, 1);
  assert_true(rows.items[0].loss == 2 && isnan(rows.items[0].validation_loss));
}

static void what_is_none_is_named_with_its_line(void **state) {
  (void)state;
  static const char *const texts[] = {
      "{\"step\": 1}\nnonsense\n", "{\"step\": 1}\n{\"loss\": 2}\n", "{\"step\": 1}\n[2]\n",
      "{\"step\": 1}\n{\"step\": 2, \"loss\": \"low\"}\n", "{\"step\": 1}\n\n"};
  for (size_t t = 0; t < sizeof texts / sizeof *texts; t++) {
    ls_metrics_rows rows;
    assert_int_equal(read_text(texts[t], &rows), LS_INPUT);
    assert_non_null(strstr(error.text, ".jsonl:2: is no line of a run's metrics"));
  }
}

static void no_step_is_refused(void **state) {
  (void)state;
  ls_metrics_rows rows;
  assert_int_equal(read_text("", &rows), LS_INPUT);
  assert_non_null(strstr(error.text, "no step is there yet"));
  unlink(path);
  assert_int_equal(ls_metrics_read(arena, path, &rows, &error), LS_INPUT);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(what_was_written_is_read, set_up, tear_down),
      cmocka_unit_test_setup_teardown(what_tasks_tell_is_read, set_up, tear_down),
      cmocka_unit_test_setup_teardown(a_line_that_is_being_written_is_left, set_up, tear_down),
      cmocka_unit_test_setup_teardown(what_is_none_is_named_with_its_line, set_up, tear_down),
      cmocka_unit_test_setup_teardown(no_step_is_refused, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
