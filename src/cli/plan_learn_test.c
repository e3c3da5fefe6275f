/* This machine's rates, made here: what a run corrects of them, and that a file of them says
 * elsewhere what they say here. */
#include "cli/plan_learn.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "cli/bench.h"
#include "cli/hardware.h"
#include "cluster/machine.h"
#include "run/measure.h"
#include "sim/sim.h"
#include "support/test_folder.h"
#include "watch/timeline.h"

static const char run_text[] =
    "model: llama-3m\ndata: {seq_len: 8}\ntrain: {batch: 4, micro_batch: 2}\ndtype: fp32\n"
    "device: {threads: 1}\n";

static ls_session *open_session(const ls_device_facts *on) {
  ls_run_file *run;
  ls_session *session;
  ls_error error = {0};
  const char *path = in_folder("run/run.yaml");
  if (ls_directory_make(in_folder("run"), &error) != LS_OK ||
      ls_file_write(path, run_text, strlen(run_text), &error) != LS_OK ||
      ls_run_file_read(arena, path, NULL, 0, &run, &error) != LS_OK ||
      ls_session_create_on(arena, run, 1, 1, on, &session, &error) != LS_OK)
    fail_msg("%s", error.text);
  return session;
}

/* Every op of the step takes 2 ms for its first size, and more for others. */
static ls_rates *made_rates(const ls_session *session) {
  const ls_program *program = session->programs[LS_SESSION_STEP];
  ls_rates *made = LS_NEW(arena, ls_rates);
  made->key = ls_measure_key(arena);
  made->measured_s = (int64_t)time(NULL);
  for (int i = 0; i < program->instructions.count; i++) {
    const ls_instruction *each = &program->instructions.items[i];
    ls_work_operand in[LS_MAX_INPUTS], out[LS_MAX_OUTPUTS];
    if (each->collective != LS_COLLECTIVE_NONE) continue;
    const int inputs = ls_instruction_operands(program, 0, each, true, in, out);
    ls_op_time of = ls_op_time_of(each->kind, &each->attributes, in, inputs, out, each->outputs, 1);
    of.seconds = 2e-3 + 1e-12 * of.work;
    *LS_APPEND(arena, &made->ops) = of;
  }
  return made;
}

static void keep(const ls_rates *rates) {
  ls_error error = {0};
  if (ls_rates_write(rates, &error) != LS_OK) fail_msg("%s", error.text);
}

static ls_simulation *simulate(const ls_session *session, const ls_rates *rates) {
  ls_performance on;
  double peak;
  ls_simulation *made;
  ls_error error = {0};
  if (ls_hardware_performance(arena, &session->device.facts, NULL, rates, LS_F32, 1, &on, &peak,
                              &error) != LS_OK ||
      ls_simulate(arena, session->stages[LS_SESSION_STEP], &on, &(ls_sim_options){.records = true},
                  &made, &error) != LS_OK)
    fail_msg("%s", error.text);
  return made;
}

/* The trace of a step in which ops of `kind` took `times` as long as simulated. */
static void write_trace(const ls_session *session, const char *kind, double times) {
  const ls_program *const *stages = session->stages[LS_SESSION_STEP];
  ls_timeline *timeline = ls_timeline_measured(
      arena, &(ls_timeline_run){.stages = stages, .title = "made"},
      ls_simulation_recording(arena, simulate(session, NULL), &stages[0]->mesh),
      LS_TIMELINE_INSTRUCTIONS);
  double later = 0;
  for (int i = 0; i < timeline->spans.count; i++) {
    ls_timeline_span *span = &timeline->spans.items[i];
    const size_t length = strlen(kind);
    const double longer =
        strncmp(span->name, kind, length) == 0 && (span->name[length] == ' ' || !span->name[length])
            ? (times - 1) * (span->end - span->start)
            : 0;
    span->start += later;
    later += longer;
    span->end += later;
  }
  FILE *to = fopen(in_folder("run/trace.json"), "w");
  assert_non_null(to);
  ls_timeline_json(timeline, to);
  assert_int_equal(fclose(to), 0);
}

static const ls_rates *kept(void) {
  const ls_rates *rates;
  ls_error error = {0};
  if (ls_hardware_rates_here(arena, &rates, &error) != LS_OK) fail_msg("%s", error.text);
  return rates;
}

static void a_run_corrects_one_kind(void **state) {
  (void)state;
  const ls_session *session = open_session(NULL);
  ls_error error = {0};
  assert_int_equal(ls_plan_learn(arena, in_folder("run"), &error), LS_INPUT);
  assert_non_null(strstr(error.text, "lockstep bench"));
  keep(made_rates(session));
  assert_int_equal(ls_plan_learn(arena, in_folder("run"), &error), LS_INPUT);
  assert_non_null(strstr(error.text, "--learn: there is no"));
  write_trace(session, "linear_dw", 1.3);
  const double before = simulate(session, NULL)->seconds;
  for (int turn = 1; turn <= 2; turn++) {
    if (ls_plan_learn(arena, in_folder("run"), &error) != LS_OK) fail_msg("%s", error.text);
    const ls_rates *rates = kept();
    for (int i = 0; i < rates->residuals.count; i++) {
      const ls_residual *each = &rates->residuals.items[i];
      const double expected = strcmp(each->kind, "linear_dw") == 0 ? 1.3 : 1;
      assert_int_equal(each->ratios.count, turn);
      if (fabs(ls_rates_residual(rates, each->kind) / expected - 1) > 1e-3)
        fail_msg("%s: %g", each->kind, ls_rates_residual(rates, each->kind));
    }
    assert_true(simulate(session, NULL)->seconds > 1.01 * before);
  }
  assert_int_equal(ls_plan_forget(arena, &error), LS_OK);
  assert_int_equal(kept()->residuals.count, 0);
  assert_true(simulate(session, NULL)->seconds == before);
}

/* What is shown of this machine says how old it is and what runs corrected. */
static void what_is_kept_is_shown(void **state) {
  (void)state;
  ls_rates *made = made_rates(open_session(NULL));
  made->measured_s -= 51 * 3600;
  ls_rates_learn(arena, made, "linear_dw", 1.3);
  char *shown = NULL;
  size_t bytes;
  FILE *to = open_memstream(&shown, &bytes);
  assert_non_null(to);
  ls_bench_print(made, to);
  assert_int_equal(fclose(to), 0);
  static const char *const lines[] = {", 2d03h ago; kept for 30 days\n",
                                      "linear_dw                     30.0 %         1\n"};
  for (size_t l = 0; l < sizeof lines / sizeof *lines; l++)
    if (!strstr(shown, lines[l])) fail_msg("\"%s\" does not say \"%s\"", shown, lines[l]);
  free(shown);
}

/* By the file's instructions the same programs are compiled, and take as long. */
static void a_file_says_elsewhere_what_is_said_here(void **state) {
  (void)state;
  const ls_session *here = open_session(NULL);
  const ls_rates *made = made_rates(here), *rates;
  keep(made);
  const char *path = in_folder("carried.yaml"), *text = ls_rates_text(arena, made);
  const char *devices = NULL;
  const ls_device_facts *facts;
  ls_cluster *cluster;
  ls_error error = {0};
  assert_int_equal(ls_file_write(path, text, strlen(text), &error), LS_OK);
  if (ls_hardware_find_cluster(arena, path, here->run, &facts, &devices, &cluster, &rates,
                               &error) != LS_OK)
    fail_msg("%s", error.text);
  assert_true(facts && rates && !cluster && !devices);
  const ls_session *there = open_session(facts);
  assert_true(simulate(there, rates)->seconds == simulate(here, NULL)->seconds);
  assert_int_equal(ls_hardware_find_cluster(arena, "here", here->run, &facts, &devices, &cluster,
                                            &rates, &error),
                   LS_OK);
  assert_true(!facts && !rates && !cluster);
  assert_int_equal(ls_hardware_threads(made, 1), ls_machine_cores());
}

static void files_that_cannot_be_are_refused(void **state) {
  (void)state;
  const ls_session *here = open_session(NULL);
  ls_rates *made = made_rates(here);
  made->key.instructions = "avx9000, avx9000";
  const char *path = in_folder("carried.yaml"), *devices = NULL;
  const char *text = ls_rates_text(arena, made);
  const ls_device_facts *facts;
  const ls_rates *rates;
  ls_cluster *cluster;
  ls_error error = {0};
  assert_int_equal(ls_file_write(path, text, strlen(text), &error), LS_OK);
  assert_int_equal(
      ls_hardware_find_cluster(arena, path, here->run, &facts, &devices, &cluster, &rates, &error),
      LS_INPUT);
  const char *says = "carried.yaml:5: instructions: found the text \"avx9000, avx9000\"; expected";
  if (!strstr(error.text, says)) fail_msg("\"%s\" does not say \"%s\"", error.text, says);
}

int main(void) {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up_cache, tear_down)
  const struct CMUnitTest tests[] = {CASE(a_run_corrects_one_kind), CASE(what_is_kept_is_shown),
                                     CASE(a_file_says_elsewhere_what_is_said_here),
                                     CASE(files_that_cannot_be_are_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
