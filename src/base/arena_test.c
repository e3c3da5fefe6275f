#include "base/arena.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
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

/* As the C library writes them, whatever the format is made of and however long it comes out. */
static void texts_are_the_library_s(void **state) {
  (void)state;
  enum { MOST = 700 };
  static const int numbers[] = {0, 7, -1, 10, -120, 99999, INT_MAX, INT_MIN};
  static const int lengths[] = {0, 1, 2, 200, 254, 255, 256, 257, 500};
  char expected[MOST], text[512] = "";
  ls_arena *arena = ls_arena_create();
#define CHECK(...)                                                      \
  do {                                                                  \
    snprintf(expected, sizeof expected, __VA_ARGS__);                   \
    assert_string_equal(ls_arena_printf(arena, __VA_ARGS__), expected); \
  } while (0)
  for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++)
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
      memset(text, 'x', sizeof text);
      text[lengths[l]] = 0;
      CHECK("%s", text);
      CHECK("%d", numbers[n]);
      CHECK("%s.%d", text, numbers[n]);
      CHECK("layers.%d %s%d, %s behind", numbers[n], "of ", n > 3, text);
      CHECK("%d of %s %%, %5d, %lld, %.3f s", numbers[n], text, numbers[n], 1LL << 40, 0.5);
    }
#undef CHECK
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

/* No memory is so large; sanitizers say so by a flag only. */
#define TOO_MUCH ((size_t)1 << 62)
const char *__asan_default_options(void);
const char *__asan_default_options(void) {
  return "allocator_may_return_null=1";
}
const char *__tsan_default_options(void);
const char *__tsan_default_options(void) {
  return "allocator_may_return_null=1";
}

typedef struct attempt {
  size_t bytes;
  ls_arena *outside;
  ls_status inner; /* of a guard in the guard */
  bool went_on;
} attempt;

static ls_status take(void *context, ls_error *error) {
  attempt *self = context;
  ls_arena *first = ls_arena_create(), *second = ls_arena_create(), *third = ls_arena_create();
  ls_arena_alloc(first, 100000);
  ls_arena_destroy(&second);
  ls_arena_alloc(self->outside, self->bytes);
  self->went_on = true;
  ls_arena_destroy(&first);
  ls_arena_destroy(&third);
  return ls_fail(error, LS_REFUTED, "there was enough");
}

static ls_status take_within(void *context, ls_error *error) {
  attempt *self = context;
  ls_arena *kept = ls_arena_create();
  self->inner = ls_arena_guard(take, self, true, error);
  ls_arena_alloc(kept, 10); /* not the inner guard's */
  ls_arena_alloc(kept, self->bytes);
  ls_arena_destroy(&kept);
  return LS_OK;
}

/* That what was made is destroyed, the leak sanitizer sees. */
/* Room for small items and for large ones: it is as if it had grown, but does not move. */
static void room_that_is_made_is_kept_to(void **state) {
  (void)state;
  enum { MOST = 3000 };
  typedef struct padded {
    int64_t number, untouched[9];
  } padded;
  ls_arena *arena = ls_arena_create();
  for (int had = 0; had < 40; had += 13) {
    LS_LIST(padded) list = {0};
    for (int i = 0; i < had; i++) LS_APPEND(arena, &list)->number = i;
    LS_RESERVE(arena, &list, MOST);
    const void *items = list.items;
    for (int i = had; i < MOST; i++) LS_APPEND(arena, &list)->number = i;
    assert_ptr_equal(list.items, items);
    for (int i = 0; i < MOST; i++) {
      assert_int_equal(list.items[i].number, i);
      for (int u = 0; u < 9; u++) assert_int_equal(list.items[i].untouched[u], 0);
    }
    LS_RESERVE(arena, &list, 1);
    assert_ptr_equal(list.items, items);
  }
  ls_arena_destroy(&arena);
}

static void memory_that_runs_out_is_a_status(void **state) {
  (void)state;
  ls_error error = {0};
  attempt self = {.bytes = 8, .outside = ls_arena_create()};
  assert_int_equal(ls_arena_guard(take, &self, true, &error), LS_REFUTED);
  assert_true(self.went_on);
  self = (attempt){.bytes = TOO_MUCH, .outside = self.outside};
  for (int i = 0; i < 3; i++)
    assert_int_equal(ls_arena_guard(take, &self, true, &error), LS_FAILED);
  assert_non_null(strstr(error.text, "out of memory for 4611686018427387904 bytes"));
  assert_int_equal(ls_arena_guard(take, &self, true, NULL), LS_FAILED);
  assert_false(self.went_on);
  assert_int_equal(ls_arena_guard(take_within, &self, true, &error), LS_FAILED);
  assert_int_equal(self.inner, LS_FAILED);
  ls_arena_alloc(self.outside, 100000); /* of use as before */
  ls_arena_destroy(&self.outside);
}

static void each_of_a_team_has_its_own_guard(void **state) {
  (void)state;
  int failed = 0;
#pragma omp parallel for reduction(+ : failed)
  for (int i = 0; i < 64; i++) {
    attempt self = {.bytes = i % 2 ? TOO_MUCH : 8, .outside = ls_arena_create()};
    failed += ls_arena_guard(take, &self, true, NULL) == LS_FAILED;
    ls_arena_destroy(&self.outside);
  }
  assert_int_equal(failed, 32);
}

typedef struct handed {
  ls_arena *arena;
  atomic_bool gone;
  pthread_t to;
} handed;

static void *destroy_handed(void *context) {
  handed *self = context;
  ls_arena_destroy(&self->arena);
  atomic_store_explicit(&self->gone, true, memory_order_relaxed);
  return NULL;
}

/* Relaxed, so that nothing but the guard's own lock orders its end behind what the other did. */
static ls_status hand_over(void *context, ls_error *error) {
  handed *self = context;
  self->arena = ls_arena_create();
  if (pthread_create(&self->to, NULL, destroy_handed, self) != 0)
    return ls_fail(error, LS_FAILED, "no thread");
  while (!atomic_load_explicit(&self->gone, memory_order_relaxed)) sched_yield();
  return LS_OK;
}

/* That the guard sees it, the thread sanitizer tells. */
static void an_arena_may_die_on_another_thread(void **state) {
  (void)state;
  for (int frees = 0; frees < 2; frees++) {
    ls_error error = {0};
    handed self = {0};
    assert_int_equal(ls_arena_guard(hand_over, &self, frees, &error), LS_OK);
    assert_int_equal(pthread_join(self.to, NULL), 0);
    assert_null(self.arena);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(blocks_are_zeroed_aligned_and_apart),
      cmocka_unit_test(texts_are_copied),
      cmocka_unit_test(texts_are_the_library_s),
      cmocka_unit_test(lists_grow_and_keep_their_items),
      cmocka_unit_test(room_that_is_made_is_kept_to),
      cmocka_unit_test(memory_that_runs_out_is_a_status),
      cmocka_unit_test(each_of_a_team_has_its_own_guard),
      cmocka_unit_test(an_arena_may_die_on_another_thread),
      cmocka_unit_test(a_failed_assertion_aborts_in_every_build),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
