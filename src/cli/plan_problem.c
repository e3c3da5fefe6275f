/* Reads what is asked of `lockstep plan` and poses it as a problem of the planner. */
#include "cli/plan_problem.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "cli/hardware.h"
#include "cluster/machine.h"
#include "model/hub.h"
#include "pipeline/pipeline.h"
#include "text/run_keys.h"
#include "train/run_folder.h"

static bool is_run(const char *word) {
  const size_t length = strlen(word);
  return (length > 5 && strcmp(word + length - 5, ".yaml") == 0) ||
         (length > 4 && strcmp(word + length - 4, ".yml") == 0);
}

/* Keys of the command line: of two for one key, the last would win in silence. */
static ls_status check_twice(const ls_words *words, ls_error *error) {
  for (int a = 0; a < words->key_count; a++)
    for (int b = 0; b < a; b++) {
      const size_t length = strcspn(words->keys[a], "=");
      if (strncmp(words->keys[a], words->keys[b], length + 1) == 0 &&
          strcmp(words->keys[a], words->keys[b]) != 0)
        return ls_fail(error, LS_INPUT, "%s and %s: expected one of them", words->keys[b],
                       words->keys[a]);
    }
  return LS_OK;
}

ls_status ls_plan_question_model(ls_arena *arena, const ls_words *words, ls_plan_question *question,
                                 ls_error *error) {
  const char *task = question->task, *path;
  ls_error none = {0};
  question->keys = *words;
  if (task && strcmp(task, "finetune") != 0 && strcmp(task, "pretrain") != 0)
    return ls_fail(error, LS_INPUT, "--task %s: expected finetune or pretrain", task);
  LS_TRY(check_twice(words, error));
  if (!words->positional_count || is_run(words->positional[0]) ||
      (ls_directory_exists(words->positional[0]) &&
       ls_run_folder_file(arena, words->positional[0], &path, &none) == LS_OK))
    return LS_OK;
  if (words->positional_count > 1)
    return ls_fail(error, LS_INPUT, "%s: one run file or model is expected", words->positional[1]);
  ls_words *keys = &question->keys;
  keys->keys = LS_NEW_ARRAY(arena, const char *, words->key_count + 2);
  keys->keys[0] = ls_arena_printf(arena, "model=%s", words->positional[0]);
  for (int k = 0; k < words->key_count; k++) keys->keys[k + 1] = words->keys[k];
  keys->key_count++;
  keys->positional_count = 0;
  if (!task) question->task = "", question->chosen_for = "no --task is given";
  return LS_OK;
}

static ls_run_source source_of(const ls_run_file *run, const char *key) {
  return run->origins[ls_run_key_find(key) - ls_run_keys].source;
}

static bool is_held(const ls_run_file *run, const char *key) {
  return source_of(run, key) == LS_RUN_COMMAND_LINE;
}

/* A bare model is pretrained where it is to see more tokens than it has parameters: what learns
 * them is far below what it could hold ("Training Compute-Optimal Large Language Models": 20). */
static const char *choose_task(ls_arena *arena, const ls_plan_question *question,
                               const ls_model_config *config, const char **why) {
  *why = question->chosen_for;
  if (*question->task) return question->task;
  const double each = question->tokens / (double)ls_model_parameters(config);
  if (!(each > 1)) return "finetune";
  *why = ls_arena_printf(arena, "%s are %.3g a parameter", question->tokens_text, each);
  return "pretrain";
}

/* Sets a key that the run says nothing of, and tells it. */
static void convene(ls_arena *arena, ls_run_file *run, const char *key, int64_t value, int64_t *to,
                    const char **told) {
  if (source_of(run, key) != LS_RUN_DEFAULT) return;
  *to = value;
  ls_run_file_mark_resolved(run, key);
  *told = ls_arena_printf(arena, "%s%s=%lld ", *told, key, (long long)value);
}

/* Sequence, batch and optimizer that the run says nothing of, by convention: "Llama 2: Open
 * Foundation and Fine-Tuned Chat Models", 3.1: AdamW, batches of 64 sequences of 4,096 tokens; "The
 * Llama 3 Herd of Models", 3.4: AdamW, batches of 4M to 16M tokens in sequences of 8,192. */
static ls_status apply_task(ls_arena *arena, const ls_plan_question *question, ls_planned *made,
                            ls_run_file *run, ls_error *error) {
  if (!question->task) return LS_OK;
  ls_model_config config;
  LS_TRY(ls_run_file_require(run, "model", error));
  if (ls_hub_is_name(run->model)) LS_TRY(ls_hub_find(arena, run->model, &run->model, error));
  LS_TRY(ls_model_find(arena, run->model, &config, error));
  const char *why, *task = choose_task(arena, question, &config, &why), *told = "";
  const bool pretrain = strcmp(task, "pretrain") == 0;
  const int64_t usual = pretrain ? 8192 : 4096;
  const int64_t sequence =
      config.positions > 0 && config.positions < usual ? config.positions : usual;
  convene(arena, run, "data.seq_len", sequence, &run->data.seq_len, &told);
  const int64_t batch = pretrain ? (INT64_C(1) << 22) / run->data.seq_len : 64;
  convene(arena, run, "train.batch", batch > 1 ? batch : 1, &run->train.batch, &told);
  if (source_of(run, "optimizer.name") == LS_RUN_DEFAULT) {
    run->optimizer.name = LS_RUN_ADAMW;
    ls_run_file_mark_resolved(run, "optimizer.name");
    told = ls_arena_printf(arena, "%soptimizer.name=adamw ", told);
  }
  made->conventions =
      ls_arena_printf(arena, "%s%s%s%s: %s%s", task, why ? " (" : "", why ? why : "",
                      why ? ")" : "", *told ? told : "the run says all",
                      !*told     ? ""
                      : pretrain ? "as Llama 3 was (arXiv 2407.21783, 3.4)"
                                 : "as Llama 2 was (arXiv 2307.09288, 3.1)");
  return LS_OK;
}

static ls_plan_held held_of(const ls_run_file *run) {
  ls_plan_held held = {
      .zero = is_held(run, "zero"),
      .schedule = is_held(run, "schedule"),
      .chunks = is_held(run, "chunks"),
      .recompute = is_held(run, "recompute"),
      .offload = is_held(run, "offload.optimizer") || is_held(run, "offload.parameters"),
      .reduce = is_held(run, "reduce"),
      .sequence_parallel = is_held(run, "sequence_parallel"),
      .ep = is_held(run, "mesh.ep"),
      .whole_experts = is_held(run, "experts.tensor_parallel"),
      .context = is_held(run, "context"),
      .prefetch = is_held(run, "prefetch")};
  for (int a = 0; a < LS_LAYOUT_AXES; a++) {
    char key[64];
    snprintf(key, sizeof key, "mesh.%s", ls_layout_axis(a));
    held.axis[a] = is_held(run, key) && ls_run_file_mesh_size(run, ls_layout_axis(a)) > 0;
  }
  held.gather = is_held(run, "gather");
  if (is_held(run, "train.microbatches")) held.microbatches = run->train.microbatches;
  if (is_held(run, "train.micro_batch")) held.micro_batch = run->train.micro_batch;
  return held;
}

/* What cannot be kept while all else is chosen. */
static ls_status check_held(const ls_run_file *run, ls_error *error) {
  const ls_pipeline_kind *kind;
  if (is_held(run, "stages"))
    return ls_fail(error, LS_INPUT, "%s: plan has stages cut by cost; leave it out",
                   ls_run_file_where(run, "stages"));
  if (is_held(run, "recompute") && run->recompute.count == 1 &&
      strcmp(run->recompute.items[0], "budget") == 0)
    return ls_fail(
        error, LS_INPUT,
        "%s: plan weighs it beside none, selective and full; leave it out, or give one of "
        "these",
        ls_run_file_where(run, "recompute"));
  return is_held(run, "schedule") ? ls_pipeline_kind_find(run->schedule, &kind, error) : LS_OK;
}

/* "1, 2, 4 or 8": what divides `devices`, if not too many do. */
static const char *list_divisors(ls_arena *arena, int devices) {
  enum { MOST = 24 };
  int divisors[MOST], count = 0;
  for (int d = 1; d <= devices && count < MOST; d++)
    if (devices % d == 0) divisors[count++] = d;
  if (count == MOST) return "a number that does";
  const char *text = "";
  for (int i = 0; i < count; i++)
    text = ls_arena_printf(arena, "%s%s%d", text,
                           !i              ? ""
                           : i < count - 1 ? ", "
                                           : " or ",
                           divisors[i]);
  return text;
}

/* Axes that are held are factors of the number of devices. */
static ls_status check_axes(ls_arena *arena, const ls_plan_problem *problem, ls_error *error) {
  int64_t held = 1;
  for (int a = 0; a < LS_LAYOUT_AXES; a++) {
    const int size = ls_layout_size(&problem->base, a);
    if (!problem->held.axis[a]) continue;
    held *= size;
    if (problem->devices % size)
      return ls_fail(error, LS_INPUT, "mesh.%s=%d does not divide %d devices; expected %s",
                     ls_layout_axis(a), size, problem->devices,
                     list_divisors(arena, problem->devices));
    if (problem->devices % held)
      return ls_fail(error, LS_INPUT,
                     "mesh.%s=%d: with the other axes that are given %lld ranks, which do not "
                     "divide %d devices",
                     ls_layout_axis(a), size, (long long)held, problem->devices);
  }
  return LS_OK;
}

/* What a layout is made of, as if nobody had said anything of it: the whole batch at once, on as
 * many ranks as it has sequences. */
static ls_run_file *unlaid(ls_arena *arena, const ls_run_file *run, const ls_plan_held *held) {
  static const char *const none[] = {"none"}, *const automatic[] = {"auto"};
  ls_run_file *made = ls_run_file_copy(arena, run);
  made->mesh = (ls_run_mesh){1, 1, run->train.batch, 1, 1, 1};
  made->train.micro_batch = 1;
  made->train.microbatches = 0;
  made->stages = (ls_run_globs){automatic, 1};
  if (!held->recompute) made->recompute = (ls_run_globs){none, 1};
  if (!held->offload) {
    made->offload.optimizer = made->offload.parameters = 0;
    made->offload.optimizer_fraction = 1;
  }
  return made;
}

/* The devices of a machine: -n, else what --on says, else a whole host; of this one, the cores. */
static ls_status count_devices(const ls_plan_question *question, const ls_run_file *run,
                               const char *said, const ls_rates *rates, ls_planned *of,
                               ls_error *error) {
  if (question->devices || said)
    LS_TRY(ls_command_devices(said ? said : question->devices, run, &of->problem.devices, error));
  else
    of->problem.devices = of->cluster ? of->cluster->per_host
                          : rates     ? rates->key.cores
                                      : ls_machine_cores();
  return LS_OK;
}

/* "128xH100-SXM" of "H100-SXM" or "64xH100-SXM"; a cluster's file is made as large later. */
static const char *counted(ls_arena *arena, const char *on, int devices) {
  const size_t digits = strspn(on, "0123456789");
  if (!devices || is_run(on) || strcmp(on, "here") == 0) return on;
  return ls_arena_printf(arena, "%dx%s", devices,
                         on + (digits && on[digits] == 'x' ? digits + 1 : 0));
}

/* The devices, and how fast they are. */
static ls_status take_machine(ls_arena *arena, const ls_plan_question *question, const char *on,
                              int devices, ls_planned *made, const ls_device_facts **facts,
                              const ls_rates **rates, ls_error *error) {
  const char *said = devices ? NULL : question->devices;
  ls_cluster *cluster;
  made->text = on ? counted(arena, on, devices) : "this machine";
  LS_TRY(ls_hardware_find_cluster(arena, on ? made->text : NULL, made->run, facts, &said, &cluster,
                                  rates, error));
  made->cluster = cluster;
  LS_TRY(count_devices(question, made->run, said, *rates, made, error));
  if (devices) made->problem.devices = devices;
  return cluster ? ls_cluster_resize(cluster, made->problem.devices, error) : LS_OK;
}

/* What no candidate changes, and what is held. */
static void take_base(const ls_run_file *run, const ls_session *session, ls_plan_problem *problem) {
  problem->facts = &session->device.facts;
  problem->base = session->layout;
  problem->base.sequence_parallel = run->sequence_parallel;
  problem->base.whole_experts = !run->experts.tensor_parallel;
  for (int a = 0; a < LS_LAYOUT_AXES; a++)
    if (problem->held.axis[a])
      ls_layout_set_size(&problem->base, a, (int)ls_run_file_mesh_size(run, ls_layout_axis(a)));
  if (problem->held.ep) problem->base.ep = (int)run->mesh.ep;
  problem->limit = ls_session_limit(session);
}

/* Money counts only where a price is known, and devices only where there may be more of them. */
static ls_status check_asked(const ls_plan_question *question, const ls_planned *of,
                             ls_error *error) {
  const bool money = question->budget > 0 || question->objective == LS_PLAN_MONEY;
  if ((question->within_s > 0 || question->budget > 0) && !of->cluster)
    return ls_fail(error, LS_INPUT,
                   "--on %s: %s counts devices of the catalog, as in --on H100-SXM", of->text,
                   question->within_s > 0 ? "--within" : "--budget");
  if (!money || (of->cluster && of->cluster->hour > 0)) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s: what it costs is not known, which %s needs; give price.hour in a cluster's "
                 "file, or prices in ~/.config/lockstep/machines.yaml",
                 of->text, question->budget > 0 ? "--budget" : "--objective money");
}

static bool puts_on(const ls_offload *offload, ls_tier tier) {
  return offload->optimizer == tier || offload->parameters == tier || offload->activations == tier;
}

ls_status ls_plan_pose(ls_arena *arena, const ls_plan_question *question, const char *on,
                       int devices, ls_planned *made, ls_error *error) {
  *made = (ls_planned){0};
  ls_run_file *run;
  const ls_device_facts *facts;
  const ls_rates *rates;
  LS_TRY(ls_command_run_file(arena, &question->keys, &run, error));
  LS_TRY(apply_task(arena, question, made, run, error));
  made->run = run;
  LS_TRY(take_machine(arena, question, on, devices, made, &facts, &rates, error));
  LS_TRY(check_asked(question, made, error));
  if (rates && !run->device.threads)
    run->device.threads = ls_hardware_threads(rates, made->problem.devices);
  LS_TRY(check_held(run, error));
  ls_plan_problem *problem = &made->problem;
  problem->held = held_of(run);
  ls_session *session;
  LS_TRY(ls_session_resolve(arena, unlaid(arena, run, &problem->held), (int)run->train.batch,
                            problem->devices, facts, &session, error));
  made->session = session;
  made->training = ls_session_training(session);
  if (!run->experts.tensor_parallel && !made->training.model->experts)
    return ls_fail(error, LS_INPUT, "%s: expected a model with experts; leave it out",
                   ls_run_file_where(run, "experts.tensor_parallel"));
  take_base(run, session, problem);
  if (made->cluster)
    problem->host_limit = (int64_t)(made->cluster->host_memory_bytes / made->cluster->per_host);
  problem->objective = question->objective;
  problem->all = question->all;
  LS_TRY(ls_hardware_performance(arena, problem->facts, made->cluster, rates, problem->base.compute,
                                 problem->devices, &made->performance, &made->peak_flops, error));
  const ls_offload *offload = &problem->base.offload;
  LS_TRY(ls_hardware_check_tiers(on, &made->performance, puts_on(offload, LS_TIER_HOST),
                                 puts_on(offload, LS_TIER_NVME), error));
  if (!problem->held.prefetch) problem->base.prefetch = made->performance.waits ? 0 : 1;
  problem->training = &made->training;
  problem->performance = &made->performance;
  return LS_OK;
}

ls_status ls_planned_search(ls_arena *arena, ls_planned *of, ls_error *error) {
  LS_TRY(check_axes(arena, &of->problem, error));
  return ls_plan_make(arena, &of->problem, &of->plan, error);
}

ls_run_file *ls_planned_run(ls_arena *arena, const ls_planned *of, const ls_plan_row *row) {
  static const char *const automatic[] = {"auto"};
  static const ls_run_gather whens[] = {[LS_WHEN_AUTO] = LS_RUN_GATHER_AUTO,
                                        [LS_WHEN_MICROBATCH] = LS_RUN_GATHER_MICROBATCH,
                                        [LS_WHEN_STEP] = LS_RUN_GATHER_STEP};
  const ls_layout *layout = &row->layout;
  const int shards = ls_layout_shards(layout);
  ls_run_file *made = ls_run_file_copy(arena, of->run);
  made->mesh = (ls_run_mesh){layout->pp, ls_layout_data_ranks(layout) / shards,
                             shards,     layout->cp,
                             layout->tp, layout->ep};
  made->context = (ls_run_context)layout->context;
  if (layout->context == LS_CONTEXT_HYBRID) made->ulysses_degree = layout->ulysses;
  made->zero = layout->zero;
  made->schedule = layout->schedule;
  made->chunks = layout->chunks;
  made->stages = (ls_run_globs){automatic, 1};
  made->gather = whens[layout->gather];
  made->reduce = whens[layout->reduce];
  made->prefetch = layout->prefetch;
  made->offload.optimizer = layout->offload.optimizer;
  made->offload.parameters = layout->offload.parameters;
  made->offload.optimizer_fraction = layout->offload.optimizer_fraction;
  if (layout->tp > 1) {
    made->sequence_parallel = layout->sequence_parallel;
    made->experts.tensor_parallel = !layout->whole_experts;
  }
  made->train.micro_batch = row->micro_batch;
  made->train.microbatches = 0;
  const char *again = ls_plan_recompute_name(layout);
  if (strcmp(again, "ops") != 0) {
    const char **word = LS_NEW_ARRAY(arena, const char *, 1);
    *word = again;
    made->recompute = (ls_run_globs){word, 1};
  }
  return made;
}

const ls_plan_row *ls_planned_best(const ls_planned *of) {
  return of->plan && of->plan->rows.count ? &of->plan->rows.items[0] : NULL;
}

const char *ls_planned_needs(ls_arena *arena, const ls_planned *of, const ls_plan_row *row) {
  const double gib = 1073741824;
  const ls_plan_problem *problem = &of->problem;
  if (problem->host_limit && row->host_bytes > problem->host_limit)
    return ls_arena_printf(arena, "%.2f of %.2f GiB of the host's memory a device",
                           (double)row->host_bytes / gib, (double)problem->host_limit / gib);
  return ls_arena_printf(arena, "%.2f of %.2f GiB", (double)row->bytes / gib,
                         (double)problem->limit / gib);
}

double ls_planned_step_tokens(const ls_planned *of) {
  return (double)of->training.batch * (double)of->training.sequence;
}

double ls_planned_rate(const ls_planned *of) {
  const ls_plan_row *best = ls_planned_best(of);
  return best ? ls_planned_step_tokens(of) / best->seconds : 0;
}

double ls_planned_seconds(const ls_planned *of, const ls_plan_row *row, double tokens) {
  return tokens / ls_planned_step_tokens(of) * row->seconds;
}

double ls_planned_money(const ls_planned *of, double seconds) {
  return of->cluster ? of->cluster->hour * of->problem.devices * seconds / 3600 : 0;
}
