#include <stdlib.h>
#include <string.h>

#include "cli/bench.h"
#include "cli/hardware.h"
#include "cli/tuning.h"
#include "cluster/machine.h"
#include "session/fit.h"
#include "session/repeat.h"
#include "watch/step_table.h"

enum { STEPS = 5, MOST_STEPS = 1000 };

static bool ends_with(const char *text, const char *end) {
  const size_t length = strlen(text), tail = strlen(end);
  return length > tail && strcmp(text + length - tail, end) == 0;
}

/* A run file by its name; anything else is what its key `model` takes. */
static ls_status read_run(ls_arena *arena, const char *what, const ls_words *words,
                          ls_run_file **run, ls_error *error) {
  const bool file = ends_with(what, ".yaml") || ends_with(what, ".yml");
  if (words->positional_count)
    return ls_fail(error, LS_INPUT, "%s: expected keys (key=value) after --model %s",
                   words->positional[0], what);
  if (file) return ls_run_file_read(arena, what, words->keys, words->key_count, run, error);
  const char **keys = LS_NEW_ARRAY(arena, const char *, words->key_count + 1);
  keys[0] = ls_arena_printf(arena, "model=%s", what);
  for (int k = 0; k < words->key_count; k++) keys[k + 1] = words->keys[k];
  return ls_run_file_read(arena, NULL, keys, words->key_count + 1, run, error);
}

static ls_status read_steps(const char *text, int *steps, ls_error *error) {
  *steps = STEPS;
  if (!text) return LS_OK;
  char *end;
  const long value = strtol(text, &end, 10);
  if (end == text || *end || value < 1 || value > MOST_STEPS)
    return ls_fail(error, LS_INPUT, "--steps: found \"%s\"; expected 1 to %d", text, MOST_STEPS);
  *steps = (int)value;
  return LS_OK;
}

static void tell(void *context, int done, int count) {
  const bool warms = done < LS_RECORDING_WARM_STEPS;
  ls_bench_tell(context, done, count,
                done == count ? "steps" : (warms ? "steps: warming up" : "steps: timed"));
}

/* What the table is of, and what it is held against: the rate of products that MFU is a share of,
 * which all ranks have found, and the rate of memory that is kept of this machine. */
typedef struct answer {
  const ls_session *session;
  const ls_repeated *repeated;
  ls_step_limits limits;
  double shortest, median, longest; /* seconds of a step */
  double tokens_per_s, mfu;         /* mfu 0: not known */
} answer;

static answer answer_of(const ls_session *session, const ls_repeated *repeated,
                        double memory_per_s) {
  answer made = {
      .session = session,
      .repeated = repeated,
      .limits = {.bytes_per_s = memory_per_s, .measured_now = repeated->peak.measured_now > 0},
      .median = repeated->seconds[repeated->median]};
  made.shortest = made.longest = made.median;
  for (int i = 0; i < repeated->count; i++) {
    if (repeated->seconds[i] < made.shortest) made.shortest = repeated->seconds[i];
    if (repeated->seconds[i] > made.longest) made.longest = repeated->seconds[i];
  }
  made.tokens_per_s = (double)(session->batch * session->sequence) / made.median;
  ls_peak peak = repeated->peak;
  const double flops = session->programs[LS_SESSION_STEP]->flops;
  (void)ls_peak_share(&peak, flops / made.shortest);
  made.mfu = ls_peak_share(&peak, flops / made.median);
  made.limits.flops_per_s = peak.flops_per_s / session->devices;
  return made;
}

static void print_answer(const answer *of, const ls_step_table *table) {
  const ls_session *session = of->session;
  const int threads = session->device.facts.threads;
  printf("%s: %.2f M parameters in %s on %d device%s (%s)", session->run->model,
         (double)ls_model_parameters(&session->config) / 1e6, ls_session_dtype(session),
         session->devices, session->devices == 1 ? "" : "s",
         ls_layout_print(session->arena, &session->layout));
  if (threads) printf(", %d thread%s each", threads, threads == 1 ? "" : "s");
  printf("; %lld tokens a step\n", (long long)(session->batch * session->sequence));
  printf("step %.2f ms, the median of %d (%.2f to %.2f): %.4g tokens/s", 1e3 * of->median,
         of->repeated->count, 1e3 * of->shortest, 1e3 * of->longest, of->tokens_per_s);
  if (of->mfu > 0) printf(", MFU %.1f %%", 100 * of->mfu);
  printf("\n");
  ls_step_table_print(table, stdout);
}

static void print_json(const answer *of, const ls_step_table *table) {
  const ls_session *session = of->session;
  json_t *root = ls_step_table_json(table), *steps = json_array();
  for (int i = 0; i < of->repeated->count; i++)
    json_array_append_new(steps, json_real(1e3 * of->repeated->seconds[i]));
  json_object_set_new(root, "model", json_string(session->run->model));
  json_object_set_new(root, "dtype", json_string(ls_session_dtype(session)));
  json_object_set_new(root, "devices", json_integer(session->devices));
  json_object_set_new(root, "layout",
                      json_string(ls_layout_print(session->arena, &session->layout)));
  json_object_set_new(root, "threads", json_integer(session->device.facts.threads));
  json_object_set_new(root, "tokens", json_integer(session->batch * session->sequence));
  json_object_set_new(root, "tokens_per_s", json_real(of->tokens_per_s));
  if (of->mfu > 0) json_object_set_new(root, "mfu", json_real(of->mfu));
  json_object_set_new(root, "steps_ms", steps);
  char *text = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(7));
  printf("%s\n", text ? text : "{}");
  free(text);
  json_decref(root);
}

/* Bytes a second of a rank's memory: of a GPU by the catalog and what is kept of it. */
static ls_status memory_rate(ls_arena *arena, const ls_session *session, double *bytes_per_s,
                             ls_error *error) {
  ls_cluster *cluster;
  ls_performance performance;
  ls_error unknown;
  const ls_rates *rates;
  if (strcmp(session->device.kind, "cuda") != 0) {
    LS_TRY(ls_bench_rates(arena, &rates, error));
    *bytes_per_s = ls_session_limits_of(session, rates).bytes_per_s;
    return LS_OK;
  }
  const bool known =
      ls_hardware_gpus_here(arena, &cluster, &unknown) == LS_OK &&
      ls_performance_of(&session->device.facts, cluster, &performance, &unknown) == LS_OK;
  *bytes_per_s = known ? performance.bytes_per_s : session->device.facts.bytes_per_s;
  return LS_OK;
}

/* Before the steps, on the process that will tell of them; others would wait for it in vain. */
static ls_status find_memory_rate(ls_arena *arena, ls_world *world, const ls_session *session,
                                  double *bytes_per_s, ls_error *error) {
  const int first = ls_world_first_here(world);
  if (first != 0) return LS_OK;
  const ls_status status = memory_rate(arena, session, bytes_per_s, error);
  if (status != LS_OK) ls_comm_abort(ls_world_comm(world, first), error->text);
  return status;
}

static ls_status bench_in_world(ls_arena *arena, ls_run_file *run, int devices, int steps,
                                ls_world *world, const ls_bench_flags *flags, ls_error *error) {
  ls_session *session;
  const int on_host = ls_world_count_on_host(world);
  const int ranks_sharing_cores = ls_machine_is_bound() ? ls_world_count_here(world) : on_host;
  LS_TRY(ls_session_create(arena, run, devices, ranks_sharing_cores, &session, error));
  ls_tell_tuning(session);
  LS_TRY(ls_session_check_fit(session, on_host, ls_world_count_here(world), error));
  double memory_per_s = 0;
  LS_TRY(find_memory_rate(arena, world, session, &memory_per_s, error));
  ls_bench_teller told = {.arena = arena};
  const ls_repeated *repeated;
  const ls_status status = ls_repeat_steps(
      arena, session, world,
      &(ls_repeat_options){.steps = steps, .progress = tell, .context = &told}, &repeated, error);
  if (status != LS_OK && told.progress) ls_progress_end(told.progress);
  LS_TRY(status);
  if (!repeated) return LS_OK;
  const answer made = answer_of(session, repeated, memory_per_s);
  const ls_step_table *table =
      ls_step_table_measured(arena, session->stages[LS_SESSION_STEP],
                             repeated->recordings[repeated->median], &made.limits, flags->shapes);
  if (flags->json)
    print_json(&made, table);
  else
    print_answer(&made, table);
  return LS_OK;
}

ls_status ls_bench_model(ls_arena *arena, const ls_bench_flags *flags, const ls_words *words,
                         ls_error *error) {
  ls_run_file *run;
  int steps, devices;
  LS_TRY(read_steps(flags->steps, &steps, error));
  LS_TRY(read_run(arena, flags->model, words, &run, error));
  LS_TRY(ls_command_devices(flags->devices, run, &devices, error));
  (void)ls_hardware_take_run_gpus(arena, run);
  ls_world *world;
  LS_TRY(ls_command_world(devices, &world, error));
  const ls_status status = bench_in_world(arena, run, devices, steps, world, flags, error);
  ls_world_destroy(&world);
  return status;
}
