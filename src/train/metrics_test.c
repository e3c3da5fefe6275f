#include "train/metrics.h"

#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "text/json.h"
#include "text/number.h"

static ls_arena *arena;
static ls_error error;
static char path[64];

static int set_up(void **state) {
  (void)state;
  arena = ls_arena_create();
  snprintf(path, sizeof path, "/tmp/metrics_test.%d.jsonl", (int)getpid());
  unlink(path);
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  unlink(path);
  ls_arena_destroy(&arena);
  return 0;
}

static char *content(void) {
  char *text;
  size_t bytes;
  assert_int_equal(ls_file_read(arena, path, &text, &bytes, &error), LS_OK);
  return text;
}

static void write_steps(int64_t done, int64_t last, double loss) {
  ls_metrics *metrics = NULL;
  if (ls_metrics_open(path, done, &metrics, &error) != LS_OK) fail_msg("%s", error.text);
  for (int64_t step = done + 1; step <= last; step++) {
    const ls_metrics_step made = {
        .step = step, .loss = loss, .mfu = NAN, .validation_loss = step % 2 ? NAN : 1.25};
    assert_int_equal(ls_metrics_write(metrics, &made, &error), LS_OK);
  }
  ls_metrics_close(&metrics);
  assert_null(metrics);
}

/* The steps in the file, as "1 2 3 ". */
static const char *steps_there(void) {
  const char *found = "";
  char *rest = content();
  for (char *line; (line = strsep(&rest, "\n")) && *line;) {
    json_t *root = NULL;
    if (ls_json_parse("line", line, strlen(line), 0, &root, &error)) fail_msg("%s", error.text);
    found = ls_arena_printf(arena, "%s%lld ", found,
                            (long long)json_integer_value(json_object_get(root, "step")));
    json_decref(root);
  }
  return found;
}

static void a_line_holds_every_field(void **state) {
  (void)state;
  ls_metrics *metrics = NULL;
  assert_int_equal(ls_metrics_open(path, 0, &metrics, &error), LS_OK);
  const ls_metrics_step made = {.step = 1,
                                .epoch = 0.25,
                                .tokens = 1LL << 40,
                                .loss = 0.1 + 0.2,
                                .grad_norm = INFINITY,
                                .learning_rate = 3e-4,
                                .tokens_per_second = 12345.5,
                                .tokens_per_second_per_device = 1e-300,
                                .mfu = 0.5,
                                .memory_bytes = 7,
                                .step_seconds = 1.0 / 3,
                                .validation_loss = 2,
                                .loss_scale = NAN};
  assert_int_equal(ls_metrics_write(metrics, &made, &error), LS_OK);
  /* There before it is closed: who watches the run sees it now. */
  assert_string_equal(content(),
                      "{\"step\": 1, \"epoch\": 0.25, \"tokens\": 1099511627776, \"loss\": "
                      "0.30000000000000004, \"grad_norm\": null, \"learning_rate\": 0.0003, "
                      "\"tokens_per_second\": 12345.5, \"tokens_per_second_per_device\": 1e-300, "
                      "\"mfu\": 0.5, \"memory_bytes\": 7, \"step_seconds\": 0.3333333333333333, "
                      "\"validation_loss\": 2}\n");
  ls_metrics_close(&metrics);
}

/* Where the loss is scaled, and nowhere else. */
static void a_scaled_loss_is_told(void **state) {
  (void)state;
  ls_metrics *metrics = NULL;
  assert_int_equal(ls_metrics_open(path, 0, &metrics, &error), LS_OK);
  const ls_metrics_step made = {
      .step = 1, .validation_loss = NAN, .loss_scale = 65536, .skipped = 3};
  assert_int_equal(ls_metrics_write(metrics, &made, &error), LS_OK);
  assert_non_null(
      strstr(content(), "\"step_seconds\": 0, \"loss_scale\": 65536, \"skipped\": 3}\n"));
  ls_metrics_close(&metrics);
}

/* An interrupted evaluation is repeated when the run goes on; its loss gets into its own line. */
static void a_validation_is_made_later(void **state) {
  (void)state;
  static const double losses[] = {1.5, 1.2345678901234567, 8};
  for (int i = 0; i < 3; i++) {
    ls_metrics *metrics = NULL;
    assert_int_equal(ls_metrics_open(path, 0, &metrics, &error), LS_OK);
    ls_metrics_step made = {.step = 1, .validation_loss = NAN, .loss_scale = 2, .skipped = 3};
    assert_int_equal(ls_metrics_write(metrics, &made, &error), LS_OK);
    made.step = 2;
    made.validation_interrupted = true;
    assert_int_equal(ls_metrics_write(metrics, &made, &error), LS_OK);
    made.step = 3;
    made.validation_interrupted = false;
    assert_int_equal(ls_metrics_write(metrics, &made, &error), LS_OK);
    ls_metrics_close(&metrics);
    for (int64_t steps = 3; steps >= 1; steps -= 2) {
      assert_int_equal(ls_metrics_open(path, steps, &metrics, &error), LS_OK);
      assert_false(ls_metrics_validation_interrupted(metrics));
      ls_metrics_close(&metrics);
      if (steps == 1) break;
      assert_int_equal(ls_metrics_open(path, 2, &metrics, &error), LS_OK);
      assert_true(ls_metrics_validation_interrupted(metrics));
      assert_int_equal(ls_metrics_add_validation(metrics, losses[i], NAN, &error), LS_OK);
      assert_false(ls_metrics_validation_interrupted(metrics));
      made.step = 3;
      assert_int_equal(ls_metrics_write(metrics, &made, &error), LS_OK);
      ls_metrics_close(&metrics);
      assert_string_equal(steps_there(), "1 2 3 ");
      char number[LS_NUMBER_BYTES];
      ls_number_write(number, losses[i]);
      assert_non_null(strstr(content(), ls_arena_printf(arena, "\"validation_loss\": %s", number)));
      assert_null(strstr(content(), "\"validation_loss\": null"));
    }
  }
}

static void resuming_cuts_the_file_to_its_step(void **state) {
  (void)state;
  write_steps(0, 12, 1);
  assert_string_equal(steps_there(), "1 2 3 4 5 6 7 8 9 10 11 12 ");
  write_steps(9, 10, 2);
  assert_string_equal(steps_there(), "1 2 3 4 5 6 7 8 9 10 ");
  const char *all = content();
  assert_non_null(strstr(all, "{\"step\": 9, \"epoch\": 0, \"tokens\": 0, \"loss\": 1,"));
  assert_non_null(strstr(all, "{\"step\": 10, \"epoch\": 0, \"tokens\": 0, \"loss\": 2,"));
  assert_int_equal(truncate(path, (off_t)strlen(all) - 5), 0); /* killed in the middle of a line */
  write_steps(10, 11, 3);
  assert_string_equal(steps_there(), "1 2 3 4 5 6 7 8 9 11 ");
  write_steps(0, 1, 4);
  assert_string_equal(steps_there(), "1 ");
}

/* Lines of other programs, which begin with a step as well, and what is no line at all. */
static void what_is_not_ours_is_refused(void **state) {
  (void)state;
#define FOREIGN(text) \
  { text, sizeof text - 1 }
  static const struct {
    const char *text;
    size_t bytes;
  } files[] = {FOREIGN("{\"step\": 1, \"loss\": 3.2}\n"),
               FOREIGN("{\"step\": 1}\n"),
               FOREIGN("{\"step\": , \"epoch\": 1}\n"),
               FOREIGN("{\"mine\": 1}"),
               FOREIGN("\0binary"),
               FOREIGN("{\"step\": 1, \"epoch\": 2}\nmine\n")};
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    ls_metrics *metrics = NULL;
    char *left;
    size_t bytes;
    assert_int_equal(ls_file_write(path, files[i].text, files[i].bytes, &error), LS_OK);
    if (ls_metrics_open(path, 0, &metrics, &error) != LS_INPUT)
      fail_msg("taken: %s", files[i].text);
    assert_int_equal(ls_file_read(arena, path, &left, &bytes, &error), LS_OK);
    assert_int_equal(bytes, files[i].bytes);
    assert_memory_equal(left, files[i].text, bytes);
  }
  /* What a kill leaves of the first line is ours. */
  static const char line[] = "{\"step\": 1, \"epoch\": 0.5, ";
  for (size_t length = 1; length < sizeof line; length++) {
    assert_int_equal(ls_file_write(path, line, length, &error), LS_OK);
    write_steps(0, 1, 1);
    assert_string_equal(steps_there(), "1 ");
  }
}

static void what_cannot_be_written_is_an_error(void **state) {
  (void)state;
  ls_metrics *metrics = NULL;
  assert_int_equal(ls_metrics_open("/no/such/folder/m.jsonl", 0, &metrics, &error), LS_FAILED);
  assert_null(metrics);
  ls_metrics_close(&metrics);
  write_steps(0, 1, 1);
  assert_int_equal(ls_metrics_open(path, 1, &metrics, &error), LS_OK);
  struct rlimit before, small;
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  small = before;
  small.rlim_cur = strlen(content()) + 20;
  void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
  const ls_status status = ls_metrics_write(metrics, &(ls_metrics_step){.step = 2}, &error);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, handler);
  assert_int_equal(status, LS_FAILED);
  assert_non_null(strstr(error.text, "writing step 2 failed: No space left on device"));
  ls_metrics_close(&metrics);
  write_steps(1, 2, 1); /* the part of a line that fitted is cut off again */
  assert_string_equal(steps_there(), "1 2 ");
}

int main(void) {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      CASE(a_line_holds_every_field),    CASE(a_scaled_loss_is_told),
      CASE(a_validation_is_made_later),  CASE(resuming_cuts_the_file_to_its_step),
      CASE(what_is_not_ours_is_refused), CASE(what_cannot_be_written_is_an_error),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
