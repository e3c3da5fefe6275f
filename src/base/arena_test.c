#include "base/arena.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void blocks_are_zeroed_aligned_and_apart(void **state) {
  (void)state;
  enum { BLOCKS = 400 };
  static const size_t sizes[] = {0, 1, 15, 16, 17, 1000, 65536, 65537, 300000, 8};
  ls_arena *arena = ls_arena_create();
  unsigned char *block[BLOCKS];
  size_t bytes[BLOCKS];
  for (int i = 0; i < BLOCKS; i++) {
    bytes[i] = sizes[i % 10];
    block[i] = ls_arena_alloc(arena, bytes[i]);
    assert_int_equal((uintptr_t)block[i] % 16, 0);
    for (size_t k = 0; k < bytes[i]; k++) assert_int_equal(block[i][k], 0);
    memset(block[i], i % 255 + 1, bytes[i]);
  }
  for (int i = 0; i < BLOCKS; i++) {
    for (size_t k = 0; k < bytes[i]; k++) assert_int_equal(block[i][k], i % 255 + 1);
  }
  ls_arena_destroy(&arena);
  assert_null(arena);
  ls_arena_destroy(&arena);
}

static void texts_are_copied(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  char text[] = "layers.3";
  char *copy = ls_arena_strdup(arena, text);
  text[0] = 'X';
  assert_string_equal(copy, "layers.3");
  assert_string_equal(ls_arena_printf(arena, "%s.mlp.%d", copy, 7), "layers.3.mlp.7");
  assert_string_equal(ls_arena_printf(arena, "%s", ""), "");
  assert_int_equal(strlen(ls_arena_printf(arena, "%0*d", 100000, 1)), 100000);
  ls_arena_destroy(&arena);
}

static void lists_grow_and_keep_their_items(void **state) {
  (void)state;
  typedef struct pair {
    int64_t left, right;
  } pair;
  ls_arena *arena = ls_arena_create();
  LS_LIST(pair) list = {0};
  for (int i = 0; i < 10000; i++) {
    pair *added = LS_APPEND(arena, &list);
    assert_int_equal(added->left, 0);
    assert_int_equal(added->right, 0);
    *added = (pair){i, -i};
  }
  assert_int_equal(list.count, 10000);
  assert_true(list.capacity >= list.count);
  for (int i = 0; i < list.count; i++) {
    assert_int_equal(list.items[i].left, i);
    assert_int_equal(list.items[i].right, -i);
  }
  ls_arena_destroy(&arena);
}

static void a_failed_assertion_aborts_in_every_build(void **state) {
  (void)state;
  int pipes[2];
  assert_int_equal(pipe(pipes), 0);
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    dup2(pipes[1], STDERR_FILENO);
    signal(SIGABRT, SIG_DFL);
    LS_ASSERT(1 + 1 == 2);
    LS_ASSERT(1 + 1 == 3);
    _exit(0);
  }
  close(pipes[1]);
  char text[256] = {0};
  size_t used = 0;
  for (ssize_t got; (got = read(pipes[0], text + used, sizeof text - 1 - used)) > 0;) {
    used += (size_t)got;
  }
  close(pipes[0]);
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFSIGNALED(status));
  assert_int_equal(WTERMSIG(status), SIGABRT);
  assert_non_null(strstr(text, "lockstep: internal fault: "));
  assert_non_null(strstr(text, "assertion failed: 1 + 1 == 3"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(blocks_are_zeroed_aligned_and_apart),
      cmocka_unit_test(texts_are_copied),
      cmocka_unit_test(lists_grow_and_keep_their_items),
      cmocka_unit_test(a_failed_assertion_aborts_in_every_build),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
