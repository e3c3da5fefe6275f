/* Measuring a machine, shortly: every measurement is made once and says something; what is kept is
 * not measured again, what is damaged is. How fast anything is, is not looked at. */
#include "run/measure.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "device/device.h"
#include "support/test_folder.h"
#include "support/told.h"

static bool is_rate(ls_rate rate) {
  return rate.median > 0 && rate.best >= rate.median;
}

static ls_measure_options quick(told *context) {
  return (ls_measure_options){.seconds = 1e-4,
                              .memory_bytes = 1 << 20,
                              .disk_bytes = 1,
                              .most_bytes = 4 << 20,
                              .progress = tell,
                              .context = context};
}

static void everything_is_measured_once(void **state) {
  (void)state;
  told heard = {0};
  ls_measure_options options = quick(&heard);
  options.folder = folder;
  const ls_rates *rates;
  ls_error error = {0};
  if (ls_measure_machine(arena, &options, &rates, &error) != LS_OK) fail_msg("%s", error.text);
  const int ways = rates->key.cores > 1 ? 2 : 1,
            dtypes = ls_device_multiplies(ls_device_facts_here(), LS_F16) ? 3 : 2;
  assert_int_equal(rates->matmul.count, ways * dtypes);
  assert_int_equal(rates->memory.count, LS_MEMORY_WAYS * ways);
  /* All-reduce, reduce-scatter and all-gather in six kinds of group, messages in three, of three
   * sizes that are taken; sums of numbers in three. */
  const int transfers = (6 * 3 + 3) * 3 + 3;
  assert_int_equal(rates->transfer.count, transfers);
  assert_int_equal(heard.count,
                   rates->matmul.count + rates->memory.count + transfers + (ways > 1) + 2);
  assert_int_equal(heard.calls, heard.count + 1);
  for (int i = 0; i < rates->matmul.count; i++) assert_true(is_rate(rates->matmul.items[i].rate));
  for (int i = 0; i < rates->memory.count; i++) assert_true(is_rate(rates->memory.items[i].rate));
  for (int i = 0; i < rates->transfer.count; i++)
    assert_true(is_rate(rates->transfer.items[i].rate));
  assert_true(is_rate(rates->disk.write) && is_rate(rates->disk.read));
  assert_int_equal(rates->disk.bytes, 32 << 20);
  assert_true(ls_rates_matmul(rates, LS_F32, 1) > 0 && ls_rates_matmul(rates, LS_BF16, 1) > 0);
  assert_true(ls_rates_memory(rates, rates->key.cores) > 0);
  char **left;
  int count;
  assert_int_equal(
      ls_file_glob(arena, ls_arena_printf(arena, "%s/*", folder), &left, &count, &error), LS_INPUT);
}

static void what_is_kept_is_not_measured_again(void **state) {
  (void)state;
  told heard = {0};
  const ls_measure_options options = quick(&heard);
  const ls_rates *first, *second;
  const char *why;
  ls_error error = {0};
  assert_int_equal(ls_measure_or_read(arena, &options, &first, &why, &error), LS_OK);
  assert_non_null(strstr(why, "not measured"));
  const int calls = heard.calls;
  assert_true(calls > 0);
  assert_int_equal(ls_measure_or_read(arena, &options, &second, &why, &error), LS_OK);
  assert_null(why);
  assert_int_equal(heard.calls, calls);
  assert_string_equal(ls_rates_text(arena, first), ls_rates_text(arena, second));
}

static void what_is_damaged_is_measured_again(void **state) {
  (void)state;
  told heard = {0};
  const ls_measure_options options = quick(&heard);
  const ls_rates *rates;
  const char *why;
  ls_error error = {0};
  const ls_rates_key key = ls_measure_key(arena);
  const char *path = ls_rates_path(arena, &key);
  assert_int_equal(ls_directory_make(ls_arena_printf(arena, "%s/lockstep", folder), &error), LS_OK);
  assert_int_equal(ls_file_write(path, "{\"form\": 1, ", 12, &error), LS_OK);
  assert_int_equal(ls_measure_or_read(arena, &options, &rates, &why, &error), LS_OK);
  assert_non_null(strstr(why, path));
  assert_true(heard.calls > 0);
  assert_non_null(ls_rates_read(arena, &key, &why));
}

static void folders_that_are_not_there_are_refused(void **state) {
  (void)state;
  told heard = {0};
  ls_measure_options options = quick(&heard);
  options.folder = ls_arena_printf(arena, "%s/missing", folder);
  const ls_rates *rates;
  ls_error error = {0};
  assert_int_equal(ls_measure_machine(arena, &options, &rates, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "missing: No such file or directory"));
}

/* Stand-ins are measured by tests/cuda_bench_command_test.sh. */
static void gpus_that_are_not_there_are_refused(void **state) {
  (void)state;
  told heard = {0};
  const ls_measure_options options = quick(&heard);
  ls_gpu_rates made = {0};
  ls_error error = {0};
  const ls_status status = ls_measure_gpus(arena, &options, 1, &made, &error);
  if (status == LS_OK) { /* there are some here */
    assert_true(made.memory > 0 && made.host > 0 && made.products.count > 0);
    return;
  }
  assert_true(*error.text && !strchr(error.text, '\n'));
  assert_int_equal(heard.calls, 0);
}

int main(void) {
  keep_to_one_core();
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up_cache, tear_down)
  const struct CMUnitTest tests[] = {
      CASE(everything_is_measured_once),         CASE(what_is_kept_is_not_measured_again),
      CASE(what_is_damaged_is_measured_again),   CASE(folders_that_are_not_there_are_refused),
      CASE(gpus_that_are_not_there_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
