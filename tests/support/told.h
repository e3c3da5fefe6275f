/* What tests of measuring share: who counts the progress they are told of, and one core for the
 * thread sanitizer.
 *
 *   told heard = {0};
 *   options = {.progress = tell, .context = &heard};
 *
 * One thread at a time. */
#ifndef LS_TEST_TOLD_H
#define LS_TEST_TOLD_H

#include <sched.h>

#include <cmocka.h>

typedef struct told {
  int calls, count;
} told;

/* Every measurement is told of before it begins, in order, and of as many as at first. */
static inline void tell(void *context, int done, int count, const char *what) {
  told *self = context;
  assert_int_equal(done, self->calls++);
  assert_true(count > 0 && *what);
  if (self->count) assert_int_equal(count, self->count);
  self->count = count;
}

/* The thread sanitizer does not know how OpenMP's threads wait for each other: of one core there is
 * one of them, while ranks stay threads. */
static inline void keep_to_one_core(void) {
#if defined(__SANITIZE_THREAD__)
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET((size_t)sched_getcpu(), &one);
  sched_setaffinity(0, sizeof one, &one);
#endif
}

#endif
