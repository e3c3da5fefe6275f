/* The table of engines: which one is found for a device, and that it starts a world. */
#include "comm/engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static ls_device_facts facts_of_gpu(void) {
  const ls_accelerator of = {.id = "h100", .architecture = 90, .source = "this test"};
  ls_device_facts facts;
  assert_true(ls_device_facts_of(&of, &facts));
  return facts;
}

static void test_rows(void **state) {
  (void)state;
  for (int e = 0; e < ls_engine_count; e++) {
    assert_non_null(ls_engines[e].start);
    assert_non_null(ls_engines[e].queues);
    for (int other = 0; other < e; other++)
      assert_string_not_equal(ls_engines[e].name, ls_engines[other].name);
  }
}

/* An engine is found by the queues that its device's programs are proved for, and by no others. */
static void test_found_by_queues(void **state) {
  (void)state;
  const ls_device_facts *here = ls_device_facts_here();
  assert_string_equal(ls_engine_find(here, false)->name, "threads");
  assert_string_equal(ls_engine_find(here, true)->name, "MPI");
  const ls_device_facts gpu = facts_of_gpu();
  assert_ptr_equal(gpu.queues, &ls_queues_nccl);
  assert_true(gpu.queues->holds);
  for (int e = 0; e < ls_engine_count; e++)
    if (ls_engine_find(&gpu, false) == &ls_engines[e])
      assert_ptr_equal(ls_engines[e].queues, &ls_queues_nccl);
}

static void test_starts(void **state) {
  (void)state;
  ls_world *world;
  ls_error error = {0};
  const ls_world_options three = {.ranks = 3}, none = {.ranks = 0};
  assert_int_equal(ls_world_start(ls_device_facts_here(), &three, &world, &error), LS_OK);
  assert_int_equal(ls_world_size(world), 3);
  assert_int_equal(ls_world_count_here(world), 3);
  ls_world_destroy(&world);
  assert_int_equal(ls_world_start(ls_device_facts_here(), &none, &world, &error), LS_INPUT);
  assert_null(world);
  const ls_device_facts gpu = facts_of_gpu();
  if (ls_engine_find(&gpu, false)) return;
  assert_int_equal(ls_world_start(&gpu, &three, &world, &error), LS_INPUT);
  assert_null(world);
  assert_non_null(strstr(error.text, "NCCL"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows),
                                     cmocka_unit_test(test_found_by_queues),
                                     cmocka_unit_test(test_starts)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
