/* What MFU is a share of: the most that is kept of this machine or measured now, by all ranks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/file.h"
#include "run/measure.h"
#include "run/rank_threads.h"
#include "session/repeat.h"
#include "support/test_folder.h"

static ls_session *open_session(int devices) {
  const char *keys[] = {"model=llama-3m", "data.seq_len=8", "train.batch=8", "dtype=fp32",
                        "device.threads=1"};
  ls_run_file *run;
  ls_session *session = NULL;
  ls_error error = {0};
  if (ls_run_file_read(arena, NULL, keys, 5, &run, &error) != LS_OK ||
      ls_session_create(arena, run, devices, devices, &session, &error) != LS_OK)
    fail_msg("%s", error.text);
  return session;
}

typedef struct asked {
  const ls_session *session;
  ls_peak peaks[4];
} asked;

static ls_status ask(ls_comm *comm, void *context, ls_error *error) {
  asked *self = context;
  ls_rank *rank;
  LS_TRY(ls_session_rank(self->session, comm, &rank, error));
  const ls_status status =
      ls_session_peak(self->session, rank, &self->peaks[ls_comm_rank(comm)], error);
  ls_rank_destroy(&rank);
  return status;
}

/* Of all ranks, who must agree; all of them measure it or none does. */
static double peak_of(const ls_session *session, bool measured_now) {
  asked made = {.session = session};
  ls_world *world;
  ls_error error = {0};
  assert_int_equal(ls_world_create_threads(session->devices, &world, &error), LS_OK);
  if (ls_rank_threads_run(world, ask, &made, &error) != LS_OK) fail_msg("%s", error.text);
  ls_world_destroy(&world);
  for (int r = 0; r < session->devices; r++) {
    assert_true(made.peaks[r].flops_per_s == made.peaks[0].flops_per_s);
    assert_int_equal(made.peaks[r].measured_now, measured_now ? session->devices : 0);
  }
  return made.peaks[0].flops_per_s;
}

static void keep(ls_dtype dtype, double one, double all) {
  ls_rates rates = {.key = ls_measure_key(arena), .measured_s = (int64_t)time(NULL)};
  const int cores = rates.key.cores;
  *LS_APPEND(arena, &rates.matmul) = (ls_matmul_rate){dtype, true, cores, 1024, 8, 8, {all, all}};
  if (cores > 1)
    *LS_APPEND(arena, &rates.matmul) = (ls_matmul_rate){dtype, true, 1, 1024, 8, 8, {one, one}};
  ls_error error = {0};
  if (ls_rates_write(&rates, &error) != LS_OK) fail_msg("%s", error.text);
}

/* Rates that no machine has: they can only have been read. */
static void what_is_kept_is_the_peak(void **state) {
  (void)state;
  const int cores = ls_measure_key(arena).cores;
  keep(LS_F32, 3e20, 4e20);
  assert_true(peak_of(open_session(1), false) == (cores > 1 ? 3e20 : 4e20));
  const double two = peak_of(open_session(2), false), four = peak_of(open_session(4), false);
  assert_true(two == 4e20); /* two of one core each would be 6e20, which all cores do not reach */
  assert_true(four == 4e20);
}

static void without_it_a_product_is_measured(void **state) {
  (void)state;
  const double none = peak_of(open_session(2), true);
  assert_true(none > 0 && none < 1e20);
  keep(LS_BF16, 3e20, 4e20); /* of another type */
  const double other = peak_of(open_session(2), true);
  assert_true(other > 0 && other < 1e20);
}

/* What was measured beside other work is too little to be believed. */
static void what_a_rank_does_now_counts_as_well(void **state) {
  (void)state;
  keep(LS_F32, 1, 2); /* of one core, and of all */
  const double two = peak_of(open_session(2), true);
  assert_true(two > 1e6 && two < 1e20);
}

/* Four on two cores, each product in a turn of its own: in a second they do two seconds' work. */
static void ranks_that_take_turns_reach_what_their_cores_do(void **state) {
  (void)state;
  const ls_products turns = {
      .best = 500, .usual = 400, .flops = 250, .seconds = 0.9, .takes_turns = 1};
  ls_products four[4] = {turns, turns, turns, turns};
  four[3].seconds = 1;
  assert_true(ls_peak_of(four, 4).flops_per_s == 1000);
  assert_true(ls_peak_of(four, 4).usual == 1000);
  assert_int_equal(ls_peak_of(four, 4).measured_now, 4);
  four[1].kept = 300;
  assert_true(ls_peak_of(four, 4).flops_per_s == 1050);
  assert_int_equal(ls_peak_of(four, 4).measured_now, 3);
  for (int r = 0; r < 4; r++) four[r].takes_turns = 0;
  assert_true(ls_peak_of(four, 4).flops_per_s == 2000);
  assert_true(ls_peak_of(four, 4).usual == 1600);
}

/* `lockstep bench --model`, whose floors and MFU would else be those of a machine at other work. */
static void repeated_steps_are_held_against_it(void **state) {
  (void)state;
  for (int kept = 0; kept < 2; kept++) {
    keep(LS_F32, kept ? 3e20 : 1, kept ? 4e20 : 2);
    const ls_session *session = open_session(2);
    const ls_repeated *repeated;
    ls_world *world;
    ls_error error = {0};
    assert_int_equal(ls_world_create_threads(2, &world, &error), LS_OK);
    if (ls_repeat_steps(arena, session, world, &(ls_repeat_options){.steps = 1}, &repeated,
                        &error) != LS_OK)
      fail_msg("%s", error.text);
    ls_world_destroy(&world);
    const double rate = repeated->peak.flops_per_s;
    assert_true(kept ? rate == 4e20 : rate > 1e6 && rate < 1e20);
    assert_int_equal(repeated->peak.measured_now, kept ? 0 : 2);
  }
}

/* The gradient of one token's logits, times the first scale of the loss, is beyond fp16. */
static void a_step_that_overflows_is_made_again(void **state) {
  (void)state;
  const char *keys[] = {"model=llama-3m", "data.seq_len=1", "train.batch=1", "dtype=fp16"};
  ls_run_file *run;
  ls_session *session;
  ls_world *world;
  const ls_repeated *repeated;
  ls_error error = {0};
  if (ls_run_file_read(arena, NULL, keys, 4, &run, &error) != LS_OK ||
      ls_session_create(arena, run, 1, 1, &session, &error) != LS_OK)
    fail_msg("%s", error.text);
  assert_int_equal(ls_world_create_threads(1, &world, &error), LS_OK);
  if (ls_repeat_steps(arena, session, world, &(ls_repeat_options){.steps = 3}, &repeated, &error) !=
      LS_OK)
    fail_msg("%s", error.text);
  ls_world_destroy(&world);
  assert_int_equal(repeated->count, 3);
  const ls_recording *last = repeated->recordings[2];
  print_message("%d steps for %d\n", (int)last->step, LS_RECORDING_WARM_STEPS + 3);
  assert_true(last->step > LS_RECORDING_WARM_STEPS + 3);
}

static void no_share_is_above_one(void **state) {
  (void)state;
  ls_peak peak = {.flops_per_s = 100};
  assert_true(ls_peak_share(&peak, 25) == 0.25);
  assert_true(ls_peak_share(&peak, 400) == 1);
  assert_true(ls_peak_share(&peak, 100) == 0.25);
}

int main(void) {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up_cache, tear_down)
  const struct CMUnitTest tests[] = {
      CASE(what_is_kept_is_the_peak),
      CASE(without_it_a_product_is_measured),
      CASE(what_a_rank_does_now_counts_as_well),
      CASE(ranks_that_take_turns_reach_what_their_cores_do),
      CASE(repeated_steps_are_held_against_it),
      CASE(a_step_that_overflows_is_made_again),
      CASE(no_share_is_above_one),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
