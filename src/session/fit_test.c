/* What does not fit is refused with what would make it fit, each figure from a compile. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "base/arena.h"
#include "session/fit.h"

static ls_status open_with(ls_arena *arena, const char *const *more, int count,
                           ls_session **session, ls_error *error) {
  const char *words[16] = {"model=llama-3m", "data.seq_len=256", "train.batch=8", "dtype=fp32"};
  for (int i = 0; i < count; i++) words[4 + i] = more[i];
  ls_run_file *run;
  LS_TRY(ls_run_file_read(arena, NULL, words, 4 + count, &run, error));
  return ls_session_create(arena, run, 1, 1, session, error);
}

/* "needs 12.3 MiB" of a text. */
static double number_after(const char *text, const char *words) {
  const char *found = strstr(text, words);
  if (!found) fail_msg("\"%s\" is not in: %s", words, text);
  return strtod(found + strlen(words), NULL);
}

static void the_device_is_held_to_its_limit(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_session *session;
  ls_error error = {0};
  assert_int_equal(open_with(arena, NULL, 0, &session, &error), LS_OK);
  int stage;
  const double whole = (double)ls_session_bytes_needed(session, &stage) / 1048576;
  const char *limit = ls_arena_printf(arena, "device.memory=%.0fMiB", whole * 0.55);
  assert_int_equal(open_with(arena, &limit, 1, &session, &error), LS_REFUTED);
  assert_true(number_after(error.text, "a device needs ") > whole - 0.1);
  assert_non_null(strstr(error.text, "recompute=full: "));
  assert_non_null(strstr(error.text, ", which fits"));
  /* The advice holds: with the words that are named it does fit, with the figure that is named. */
  const char *words[] = {limit, "recompute=full", "train.micro_batch=1"};
  const bool both = strstr(error.text, "train.micro_batch=1: ") != NULL;
  const double named =
      number_after(error.text, both ? "train.micro_batch=1: " : "recompute=full: ") * 1024;
  if (open_with(arena, words, both ? 3 : 2, &session, &error) != LS_OK) fail_msg("%s", error.text);
  const double found = (double)ls_session_bytes_needed(session, &stage) / 1048576;
  assert_true(found > named - 6 && found < named + 6); /* two digits of GiB */
  const char *bare = "device.memory=80";
  assert_int_equal(open_with(arena, &bare, 1, &session, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "is 80GiB meant?"));
  ls_arena_destroy(&arena);
}

static void the_process_is_held_to_its_limits(void **state) {
  (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  skip(); /* a sanitizer takes all of the address space */
#endif
  ls_arena *arena = ls_arena_create();
  ls_session *session;
  ls_error error = {0};
  assert_int_equal(open_with(arena, NULL, 0, &session, &error), LS_OK);
  assert_int_equal(ls_session_check_fit(session, 1, 1, &error), LS_OK);
  struct rlimit before, small;
  assert_int_equal(getrlimit(RLIMIT_DATA, &before), 0);
  small = before;
  small.rlim_cur = 40 << 20;
  assert_int_equal(setrlimit(RLIMIT_DATA, &small), 0);
  const ls_status status = ls_session_check_fit(session, 1, 1, &error);
  assert_int_equal(setrlimit(RLIMIT_DATA, &before), 0);
  assert_int_equal(status, LS_REFUTED);
  assert_non_null(strstr(error.text, "memory: the 1 rank of this process needs "));
  assert_non_null(strstr(error.text, "ulimit -d"));
  ls_arena_destroy(&arena);
}

/* A thousand such models are more than any machine has. */
static void all_ranks_of_the_machine_count(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_session *session;
  ls_error error = {0};
  assert_int_equal(open_with(arena, NULL, 0, &session, &error), LS_OK);
  assert_int_equal(ls_session_check_fit(session, 100000000, 1, &error), LS_REFUTED);
  assert_non_null(strstr(error.text, "the 100000000 ranks of this machine need "));
  ls_arena_destroy(&arena);
}

static int64_t nothing_used(void) {
  return 0;
}

/* What a GPU holds is no memory of its host's. */
static void memory_of_devices_is_their_own(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_session *session;
  ls_error error = {0};
  assert_int_equal(open_with(arena, NULL, 0, &session, &error), LS_OK);
  ls_memory_calls own = *session->device.memory;
  own.used = nothing_used;
  session->device.memory = &own;
  assert_int_equal(ls_session_check_fit(session, 100000000, 1, &error), LS_OK);
  ls_arena_destroy(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(memory_of_devices_is_their_own),
      cmocka_unit_test(the_device_is_held_to_its_limit),
      cmocka_unit_test(the_process_is_held_to_its_limits),
      cmocka_unit_test(all_ranks_of_the_machine_count),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
