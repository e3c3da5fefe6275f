/* Calibration: every kind of op that a step has is found in a recording, with its mean in the step
 * where that was least; a machine is calibrated in steps of the first model. How fast anything is,
 * is not looked at. */
#include "session/calibrate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "cluster/machine.h"
#include "sim/sim.h"
#include "support/test_folder.h"
#include "support/told.h"

static ls_session *small_session(void) {
  static const char *const words[] = {"model=llama-3m",      "data.seq_len=8", "train.batch=4",
                                      "train.micro_batch=2", "dtype=fp32",     "device.threads=1"};
  ls_run_file *run;
  ls_session *session;
  ls_error error = {0};
  if (ls_run_file_read(arena, NULL, words, sizeof words / sizeof *words, &run, &error) != LS_OK ||
      ls_session_create(arena, run, 1, 1, &session, &error) != LS_OK)
    fail_msg("%s", error.text);
  return session;
}

/* A recording in which every instruction takes so long, 100 ns of it a gap before. */
static ls_recording *made_recording(const ls_program *program, int64_t nanoseconds) {
  ls_recording *made = LS_NEW(arena, ls_recording);
  made->ranks = 1;
  made->by_rank = LS_NEW(arena, ls_recording_rank);
  made->by_rank->records = LS_NEW_ARRAY(arena, ls_record, ls_program_executed(program));
  int64_t now = 0;
  for (int a = 0; a < program->actions.count; a++) {
    const ls_body *body = &program->bodies.items[program->actions.items[a].body];
    for (int i = body->first; i < body->first + body->count; i++) {
      const int64_t begin = now + 100, end = now + nanoseconds;
      made->by_rank->records[made->by_rank->count++] = (ls_record){begin, end, a, i};
      now = end;
    }
  }
  return made;
}

static void times_are_taken_from_recordings(void **state) {
  (void)state;
  const ls_session *session = small_session();
  const ls_program *program = session->programs[LS_SESSION_STEP];
  /* Something else ran beside the second. */
  ls_recording *recordings[] = {made_recording(program, 1000), made_recording(program, 5000)};
  ls_rates *rates = LS_NEW(arena, ls_rates);
  ls_calibrate_add(arena, session->stages[LS_SESSION_STEP], 1, recordings, 2, rates);
  bool has[LS_OP_COUNT] = {false};
  for (int i = 0; i < rates->ops.count; i++) {
    const ls_op_time *each = &rates->ops.items[i];
    has[each->kind] = true;
    assert_true(each->threads == 1 && each->work >= 1);
    /* The gap before it belongs to it; before the first there is nothing. */
    assert_true(each->seconds > 0.899e-6 && each->seconds < 1.001e-6);
  }
  for (int i = 0; i < program->instructions.count; i++) {
    const ls_instruction *each = &program->instructions.items[i];
    assert_true(each->collective != LS_COLLECTIVE_NONE || has[each->kind]);
  }
  /* The step is then simulated to take as long as it was recorded to. */
  ls_device_facts facts = session->device.facts;
  facts.threads = 1;
  const ls_performance on = ls_performance_here(rates, &facts, 1, 1);
  ls_simulation *simulation;
  ls_error error = {0};
  if (ls_simulate(arena, session->stages[LS_SESSION_STEP], &on, NULL, &simulation, &error) != LS_OK)
    fail_msg("%s", error.text);
  const double recorded = 1e-6 * (double)recordings[0]->by_rank->count;
  assert_true(simulation->seconds > 0.99 * recorded && simulation->seconds < 1.01 * recorded);
}

static void a_machine_is_calibrated(void **state) {
  (void)state;
  told heard = {0};
  const ls_calibrate_options options = {
      .shapes = 2, .steps = 1, .progress = tell, .context = &heard};
  ls_rates *rates = LS_NEW(arena, ls_rates);
  ls_error error = {0};
  setenv("TMPDIR", folder, 1);
  if (ls_calibrate(arena, &options, rates, &error) != LS_OK) fail_msg("%s", error.text);
  assert_int_equal(heard.calls, heard.count + 1);
  static const ls_op_kind kinds[] = {LS_OP_LINEAR,  LS_OP_LINEAR_DX, LS_OP_LINEAR_DW,
                                     LS_OP_SWIGLU,  LS_OP_GELU,      LS_OP_ATTENTION_BWD,
                                     LS_OP_RMSNORM, LS_OP_LAYERNORM, LS_OP_ADAMW};
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
    int single = 0, all = 0;
    for (int i = 0; i < rates->ops.count; i++) {
      single += rates->ops.items[i].kind == kinds[k] && rates->ops.items[i].threads == 1;
      all +=
          rates->ops.items[i].kind == kinds[k] && rates->ops.items[i].threads == ls_machine_cores();
    }
    if (!single || !all) fail_msg("%s was not measured", ls_op_name(kinds[k]));
  }
  setenv("TMPDIR", in_folder("missing"), 1);
  assert_int_equal(ls_calibrate(arena, &options, rates, &error), LS_FAILED);
  assert_non_null(strstr(error.text, "TMPDIR"));
  unsetenv("TMPDIR");
}

int main(void) {
  keep_to_one_core();
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up_cache, tear_down)
  const struct CMUnitTest tests[] = {CASE(times_are_taken_from_recordings),
                                     CASE(a_machine_is_calibrated)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
