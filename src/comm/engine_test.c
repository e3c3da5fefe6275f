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
    const ls_engine *engine = ls_engines[e];
    assert_true(engine->queues && engine->words && engine->serves && engine->open);
    assert_true(engine->join && engine->begin && engine->end && engine->close);
    for (int other = 0; other < e; other++)
      assert_string_not_equal(engine->name, ls_engines[other]->name);
  }
}

/* What the host addresses goes directly; what it does not, through its memory where the device's
 * queues carry nothing; and queues that no engine has are refused. */
static void test_chosen_by_memory_and_queues(void **state) {
  (void)state;
  ls_world *world;
  ls_group *one;
  ls_error error = {0};
  const ls_engine *engine;
  ls_device device;
  assert_int_equal(ls_device_open(&(ls_device_options){.compute = LS_F32}, &device, &error), LS_OK);
  const ls_world_options alone = {.ranks = 1};
  assert_int_equal(ls_world_start(&device.facts, &alone, &world, &error), LS_OK);
  const ls_carrier_options of = {.comm = ls_world_comm(world, 0), .device = &device};
  assert_int_equal(ls_comm_group(of.comm, &(int){0}, 1, &one, &error), LS_OK);
  assert_int_equal(ls_engine_choose(&of, one, &engine, &error), LS_OK);
  assert_ptr_equal(engine, &ls_engine_direct);
  ls_memory_calls apart = *device.memory;
  apart.addressable = false;
  device.memory = &apart;
  assert_int_equal(ls_engine_choose(&of, one, &engine, &error), LS_OK);
  assert_ptr_equal(engine, &ls_engine_staged);
  const ls_queues others = {.name = "others"};
  device.facts.queues = &others;
  assert_int_equal(ls_engine_choose(&of, one, &engine, &error), LS_INPUT);
  ls_world_destroy(&world);
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
  ls_device_facts gpu = facts_of_gpu();
  assert_ptr_equal(gpu.queues, &ls_queues_nccl);
  assert_true(gpu.queues->holds && gpu.queues->groups_apart);
  assert_false(ls_device_facts_here()->queues->groups_apart);
  bool served = false;
  for (int e = 0; e < ls_engine_count; e++)
    served = served || ls_engines[e]->queues == &ls_queues_nccl;
  if (served) return;
  assert_int_equal(ls_world_start(&gpu, &three, &world, &error), LS_INPUT);
  assert_null(world);
  assert_non_null(strstr(error.text, "NCCL"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows),
                                     cmocka_unit_test(test_chosen_by_memory_and_queues),
                                     cmocka_unit_test(test_starts)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
