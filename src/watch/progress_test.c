#include "watch/progress.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static ls_arena *arena;
static FILE *stream;

static int set_up(void **state) {
  (void)state;
  arena = ls_arena_create();
  stream = tmpfile();
  return stream ? 0 : -1;
}

static int tear_down(void **state) {
  (void)state;
  fclose(stream);
  ls_arena_destroy(&arena);
  return 0;
}

static const char *shown(void) {
  const long bytes = ftell(stream);
  char *text = ls_arena_alloc(arena, (size_t)bytes + 1);
  rewind(stream);
  assert_int_equal(fread(text, 1, (size_t)bytes, stream), bytes);
  return text;
}

static int count(const char *text, const char *part) {
  int found = 0;
  for (; (text = strstr(text, part)); text++) found++;
  return found;
}

static ls_progress_step plain(int64_t step) {
  return (ls_progress_step){.step = step,
                            .loss = 1.23456,
                            .learning_rate = 3e-4,
                            .grad_norm = 0.876,
                            .tokens_per_second = 12345,
                            .mfu = 0.414,
                            .memory_bytes = 812.4 * 1048576};
}

static void skipped_steps_are_told(void **state) {
  (void)state;
  ls_progress *progress = ls_progress_create(arena, stream, false, 0, 2);
  ls_progress_step step = {.step = 1, NAN, NAN, NAN, NAN, NAN, NAN, .skipped = 1};
  ls_progress_show(progress, &step, 5);
  step.step = 2, step.skipped = 0;
  ls_progress_show(progress, &step, 6);
  ls_progress_end(progress);
  assert_string_equal(shown(), "step 1/2  skipped 1\nstep 2/2\n");
}

static void a_line_says_all_that_is_known(void **state) {
  (void)state;
  ls_progress *progress = ls_progress_create(arena, stream, false, 0, 101);
  ls_progress_step step = plain(1);
  ls_progress_show(progress, &step, 5); /* the first step's seconds count for nothing */
  step = plain(11);
  ls_progress_show(progress, &step, 25);
  step = (ls_progress_step){.step = 101, NAN, NAN, NAN, NAN, NAN, NAN};
  ls_progress_show(progress, &step, 205);
  ls_progress_end(progress);
  assert_string_equal(shown(),
                      "step 1/101  loss 1.2346  lr 3.00e-04  grad 0.876  12.3k tok/s  mfu 41%  mem "
                      "812.4 MiB\n"
                      "step 11/101  loss 1.2346  lr 3.00e-04  grad 0.876  12.3k tok/s  mfu 41%  "
                      "mem 812.4 MiB  left 3m00s\n"
                      "step 101/101\n");
}

static void a_resumed_run_counts_from_where_it_began(void **state) {
  (void)state;
  ls_progress *progress = ls_progress_create(arena, stream, false, 500, 1000);
  ls_progress_step step = plain(501);
  ls_progress_show(progress, &step, 10);
  step = plain(601);
  ls_progress_show(progress, &step, 110);
  assert_non_null(strstr(shown(), "left 6m39s"));
}

/* 10,000 steps of 0.1 s: lines thin out to one in 20 s, with the first and the last. */
static void plain_lines_thin_out_in_time(void **state) {
  (void)state;
  ls_progress *progress = ls_progress_create(arena, stream, false, 0, 10000);
  for (int64_t i = 1; i <= 10000; i++) {
    const ls_progress_step step = plain(i);
    ls_progress_show(progress, &step, 0.1 * (double)i);
  }
  ls_progress_end(progress);
  const char *text = shown();
  assert_in_range(count(text, "\n"), 100, 300);
  assert_non_null(strstr(text, "step 1/10000 "));
  assert_non_null(strstr(text, "step 10000/10000 "));
  assert_null(strchr(text, '\r'));
  assert_null(strchr(text, '\x1b'));
}

static void a_terminals_line_is_rewritten_in_place(void **state) {
  (void)state;
  ls_progress *progress = ls_progress_create(arena, stream, true, 0, 1000);
  for (int64_t i = 1; i <= 100; i++) {
    const ls_progress_step step = plain(i);
    ls_progress_show(progress, &step, 0.01 * (double)i);
  }
  ls_progress_note(progress, "validation loss %.2f", 1.5);
  ls_progress_end(progress);
  ls_progress_end(progress);
  const char *text = shown();
  assert_in_range(count(text, "\rstep "), 9, 12); /* ten a second at most */
  assert_int_equal(count(text, "\n"), 2);
  assert_non_null(strstr(text, "\r\x1b[Kvalidation loss 1.50\n\rstep "));
  assert_int_equal(text[strlen(text) - 1], '\n');
}

static void notes_stand_alone_off_a_terminal(void **state) {
  (void)state;
  ls_progress *progress = ls_progress_create(arena, stream, false, 0, 10);
  ls_progress_note(progress, "starting");
  ls_progress_end(progress);
  assert_string_equal(shown(), "starting\n");
}

static void other_work_has_its_own_words(void **state) {
  (void)state;
  ls_progress *progress = ls_progress_create(arena, stream, false, 0, 100);
  for (int done = 1; done <= 100; done++) /* 0.3 s each; a line a second, and the last */
    ls_progress_line(progress, done, 0.3 * done, "%d of %d MB", done, 100);
  ls_progress_end(progress);
  const char *text = shown();
  assert_int_equal(strncmp(text, "1 of 100 MB\n5 of 100 MB\n", 24), 0);
  assert_non_null(strstr(text, "\n100 of 100 MB\n"));
  assert_in_range(count(text, "\n"), 20, 30);
}

static void durations_are_short(void **state) {
  (void)state;
  static const struct {
    double seconds;
    const char *text;
  } cases[] = {{0, "0s"},       {59.4, "59s"},        {59.6, "1m00s"},   {250, "4m10s"},
               {3600, "1h00m"}, {11100, "3h05m"},     {183600, "2d03h"}, {-1, "0s"},
               {NAN, "0s"},     {1e300, "115740d17h"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[LS_DURATION_BYTES];
    ls_duration_show(text, cases[i].seconds);
    assert_string_equal(text, cases[i].text);
  }
}

int main(void) {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      CASE(a_line_says_all_that_is_known),    CASE(a_resumed_run_counts_from_where_it_began),
      CASE(plain_lines_thin_out_in_time),     CASE(a_terminals_line_is_rewritten_in_place),
      CASE(notes_stand_alone_off_a_terminal), CASE(durations_are_short),
      CASE(skipped_steps_are_told),           CASE(other_work_has_its_own_words),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
