#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "cli/command.h"
#include "cli/hardware.h"
#include "cli/plan_report.h"
#include "cluster/machine.h"
#include "model/hub.h"
#include "pipeline/pipeline.h"
#include "session/prove.h"
#include "text/number.h"
#include "text/run_keys.h"
#include "train/run_folder.h"

static const char help[] =
    "usage: lockstep plan RUN.yaml|MODEL [key=value ...] [--on HARDWARE ...]\n\n"
    "Which layout of these devices trains the model fastest, and what that takes: step time,\n"
    "tokens/s, MFU, memory, money. All ways to lay out the run that the numbers allow are looked "
    "at:\n"
    "pipeline, tensor and data parallelism, what ZeRO shards, pipeline schedules and their "
    "chunks,\n"
    "micro-batches, recomputation. Each gets an estimate from models of one and two layers,\n"
    "compiled and simulated; the best are compiled and simulated whole (lockstep simulate), then\n"
    "their neighbours until none is better; the winner is proved (lockstep check). What is "
    "printed\n"
    "compiles, fits, and took that long in simulation. Needs the model's shape only.\n\n"
    "  --on 64xH100-SXM[:8] | cluster.yaml\n"
    "                  the devices (lockstep machines lists them); given several times, each is\n"
    "                  planned for and they are compared. Left out: this machine, by the rates of\n"
    "                  lockstep bench\n"
    "  -n DEVICES      devices of the whole mesh (default: as many as --on says)\n"
    "  --fix mesh.tp=4 keeps a choice; the same as the key itself. May be given several times\n"
    "  --task finetune|pretrain\n"
    "                  batch and sequence by convention where the run says nothing of them:\n"
    "                  64 sequences of 4,096 tokens (Llama 2's fine-tuning), or 4 Mi tokens in\n"
    "                  sequences of 8,192 (Llama 3's pre-training). finetune for a bare MODEL\n"
    "  --tokens COUNT  what so many tokens take and cost: 1B, 15T\n"
    "  --within 60d    with --tokens: the fewest devices that are done in this time (h, d, w)\n"
    "  --budget 200000 with --tokens: the fewest devices that cost no more than this\n"
    "  --objective time|money|memory\n"
    "                  what is best: the shortest step (default), the cheapest, the least memory\n"
    "  -o FILE         the winner as a run file, ready for lockstep train\n"
    "  --all           compiles every layout instead of the best by estimate: slow\n"
    "  --json          for programs\n"
    "  --help          this text and all keys\n\n"
    "Exit status 1: no layout fits; the closest one is named.\n\n"
    "examples:\n"
    "  lockstep plan llama3-8b --on 2xRTX4090 --on 1xRTX4090 --on 1xA100-SXM-80 --tokens 1B\n"
    "  lockstep plan run.yaml --on 64xH100-SXM -o best.yaml\n"
    "  lockstep plan llama3-70b --task pretrain --tokens 15T --within 60d --on H100-SXM\n"
    "  lockstep plan run.yaml --on 16xA100-SXM-80 --fix mesh.tp=4 zero=1\n\n";

enum { MOST_MACHINES = 16, FEW_COMPILED = 8, MOST_TRIED = 15 };

typedef struct request {
  const char *on[MOST_MACHINES];
  int machines;
  const char *devices, *task, *tokens, *within, *budget, *objective, *output;
  bool json, all;
} request;

/* What is asked, read. */
typedef struct asked_for {
  const request *words;
  const ls_words *keys; /* with the model among them where a bare one was given */
  const char *task;     /* NULL: the run says all */
  double tokens, within_s, budget;
  ls_plan_objective objective;
} asked_for;

/* Text behind a flag as `read` takes it; no text leaves the value at 0. */
static ls_status read_value(const char *flag, const char *text,
                            bool (*read)(const char *, double *), const char *as, double *value,
                            ls_error *error) {
  if (!text || read(text, value)) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s %s: expected %s", flag, text, as);
}

static ls_status read_request(const request *words, asked_for *asked, ls_error *error) {
  static const char *const objectives[] = {"time", "money", "memory"};
  LS_TRY(read_value("--tokens", words->tokens, ls_count_read, "a count, as 1B or 15T",
                    &asked->tokens, error));
  LS_TRY(read_value("--within", words->within, ls_time_read, "a time, as 12h, 60d or 4w",
                    &asked->within_s, error));
  LS_TRY(read_value("--budget", words->budget, ls_count_read, "an amount, as 200000",
                    &asked->budget, error));
  if ((words->within || words->budget) && !words->tokens)
    return ls_fail(error, LS_INPUT, "%s needs --tokens: how many are to be trained on",
                   words->within ? "--within" : "--budget");
  for (int o = 0; words->objective && o < 3; o++)
    if (strcmp(words->objective, objectives[o]) == 0) {
      asked->objective = (ls_plan_objective)o;
      return LS_OK;
    }
  if (words->objective)
    return ls_fail(error, LS_INPUT, "--objective %s: expected time, money or memory",
                   words->objective);
  return LS_OK;
}

static bool is_run(const char *word) {
  const size_t length = strlen(word);
  return (length > 5 && strcmp(word + length - 5, ".yaml") == 0) ||
         (length > 4 && strcmp(word + length - 4, ".yml") == 0);
}

/* The run file that the words are of; a bare model is one with all keys at their defaults. */
static ls_status take_model(ls_arena *arena, const ls_words *words, ls_words *keys,
                            asked_for *asked, ls_error *error) {
  *keys = *words;
  asked->keys = keys;
  asked->task = asked->words->task;
  if (asked->task && strcmp(asked->task, "finetune") != 0 && strcmp(asked->task, "pretrain") != 0)
    return ls_fail(error, LS_INPUT, "--task %s: expected finetune or pretrain", asked->task);
  const char *path;
  ls_error none = {0};
  if (!words->positional_count || is_run(words->positional[0]) ||
      (ls_directory_exists(words->positional[0]) &&
       ls_run_folder_file(arena, words->positional[0], &path, &none) == LS_OK))
    return LS_OK;
  if (words->positional_count > 1)
    return ls_fail(error, LS_INPUT, "%s: one run file or model is expected", words->positional[1]);
  if (!asked->task) asked->task = "finetune";
  keys->keys = LS_NEW_ARRAY(arena, const char *, words->key_count + 2);
  keys->keys[0] = ls_arena_printf(arena, "model=%s", words->positional[0]);
  for (int k = 0; k < words->key_count; k++) keys->keys[k + 1] = words->keys[k];
  keys->key_count++;
  keys->positional_count = 0;
  return LS_OK;
}

static ls_run_source source_of(const ls_run_file *run, const char *key) {
  return run->origins[ls_run_key_find(key) - ls_run_keys].source;
}

static bool is_held(const ls_run_file *run, const char *key) {
  return source_of(run, key) == LS_RUN_COMMAND_LINE;
}

/* Sequence and batch that the run says nothing of, by convention: "Llama 2: Open Foundation and
 * Fine-Tuned Chat Models", 3.1: batches of 64 sequences of 4,096 tokens; "The Llama 3 Herd of
 * Models", 3.4: batches of 4M to 16M tokens in sequences of 8,192. */
static ls_status apply_task(ls_arena *arena, ls_run_file *run, const char *task, ls_error *error) {
  if (!task) return LS_OK;
  ls_model_config config;
  LS_TRY(ls_run_file_require(run, "model", error));
  if (ls_hub_is_name(run->model)) LS_TRY(ls_hub_find(arena, run->model, &run->model, error));
  LS_TRY(ls_model_find(arena, run->model, &config, error));
  const bool pretrain = strcmp(task, "pretrain") == 0;
  const int64_t sequence = pretrain ? 8192 : 4096;
  if (source_of(run, "data.seq_len") == LS_RUN_DEFAULT) {
    run->data.seq_len =
        config.positions > 0 && config.positions < sequence ? config.positions : sequence;
    ls_run_file_mark_resolved(run, "data.seq_len");
  }
  if (source_of(run, "train.batch") != LS_RUN_DEFAULT) return LS_OK;
  run->train.batch = pretrain ? (INT64_C(1) << 22) / run->data.seq_len : 64;
  if (run->train.batch < 1) run->train.batch = 1;
  ls_run_file_mark_resolved(run, "train.batch");
  return LS_OK;
}

static ls_plan_held held_of(const ls_run_file *run) {
  ls_plan_held held = {.zero = is_held(run, "zero"),
                       .schedule = is_held(run, "schedule"),
                       .chunks = is_held(run, "chunks"),
                       .recompute = is_held(run, "recompute"),
                       .offload = is_held(run, "offload.optimizer"),
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
    return ls_fail(error, LS_INPUT,
                   "%s: plan weighs none, selective and full; leave it out, or give one of these",
                   ls_run_file_where(run, "recompute"));
  return is_held(run, "schedule") ? ls_pipeline_kind_find(run->schedule, &kind, error) : LS_OK;
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
  if (!held->offload) made->offload.optimizer = 0, made->offload.optimizer_fraction = 1;
  return made;
}

/* The devices of a machine: -n, else what --on says, else a whole host; of this one, the cores. */
static ls_status count_devices(const asked_for *asked, const ls_run_file *run, const char *said,
                               ls_planned *of, ls_error *error) {
  if (asked->words->devices || said)
    LS_TRY(
        ls_command_devices(said ? said : asked->words->devices, run, &of->problem.devices, error));
  else
    of->problem.devices = of->cluster ? of->cluster->per_host : ls_machine_cores();
  return LS_OK;
}

/* The problem of one machine; `devices` of 0: as it says itself. */
static ls_status pose(ls_arena *arena, const asked_for *asked, const char *on, int devices,
                      ls_planned *of, ls_run_file **run, ls_error *error) {
  *of = (ls_planned){.text = on ? on : "this machine"};
  LS_TRY(ls_command_run_file(arena, asked->keys, run, error));
  LS_TRY(apply_task(arena, *run, asked->task, error));
  const char *said = asked->words->devices;
  const ls_device_facts *facts;
  ls_cluster *cluster;
  LS_TRY(ls_hardware_find_cluster(arena, on, &facts, &said, &cluster, error));
  of->cluster = cluster;
  LS_TRY(count_devices(asked, *run, said, of, error));
  if (devices) of->problem.devices = devices;
  if (cluster) LS_TRY(ls_cluster_resize(cluster, of->problem.devices, error));
  LS_TRY(check_held(*run, error));
  of->problem.held = held_of(*run);
  ls_session *session;
  LS_TRY(ls_session_resolve(arena, unlaid(arena, *run, &of->problem.held), (int)(*run)->train.batch,
                            of->problem.devices, facts, &session, error));
  of->session = session;
  of->training = ls_session_training(session);
  of->problem.facts = &session->device.facts;
  of->problem.base = session->layout;
  of->problem.base.sequence_parallel = (*run)->sequence_parallel;
  for (int a = 0; a < LS_LAYOUT_AXES; a++)
    if (of->problem.held.axis[a])
      ls_layout_set_size(&of->problem.base, a, (int)ls_run_file_mesh_size(*run, ls_layout_axis(a)));
  of->problem.limit = ls_session_limit(session);
  of->problem.objective = asked->objective;
  of->problem.all = asked->words->all;
  LS_TRY(ls_hardware_performance(arena, of->problem.facts, cluster, of->problem.base.compute,
                                 of->problem.devices, &of->performance, &of->peak_flops, error));
  if (!of->problem.held.prefetch) of->problem.base.prefetch = of->performance.waits ? 0 : 1;
  return LS_OK;
}

/* The planned machine's own copies: a problem points to its neighbours in the struct. */
static ls_status search(ls_arena *arena, ls_planned *of, ls_error *error) {
  of->problem.training = &of->training;
  of->problem.performance = &of->performance;
  return ls_plan_make(arena, &of->problem, &of->plan, error);
}

/* The run with a layout's keys. */
static ls_run_file *laid(ls_arena *arena, const ls_run_file *run, const ls_plan_row *row) {
  static const char *const automatic[] = {"auto"};
  static const ls_run_gather whens[] = {[LS_WHEN_AUTO] = LS_RUN_GATHER_AUTO,
                                        [LS_WHEN_MICROBATCH] = LS_RUN_GATHER_MICROBATCH,
                                        [LS_WHEN_STEP] = LS_RUN_GATHER_STEP};
  const ls_layout *of = &row->layout;
  const int shards = ls_layout_shards(of);
  ls_run_file *made = ls_run_file_copy(arena, run);
  made->mesh = (ls_run_mesh){of->pp, ls_layout_data_ranks(of) / shards, shards, 1, of->tp, 1};
  made->zero = of->zero;
  made->schedule = of->schedule;
  made->chunks = of->chunks;
  made->stages = (ls_run_globs){automatic, 1};
  made->gather = whens[of->gather];
  made->reduce = whens[of->reduce];
  made->prefetch = of->prefetch;
  made->offload.optimizer = of->offload.optimizer;
  made->train.micro_batch = row->micro_batch;
  made->train.microbatches = 0;
  const char *again = ls_plan_recompute_name(of);
  if (strcmp(again, "ops") != 0) {
    const char **word = LS_NEW_ARRAY(arena, const char *, 1);
    *word = again;
    made->recompute = (ls_run_globs){word, 1};
  }
  return made;
}

/* The winner as a run: compiled from its own file, proved, and held to what it was planned as. */
static ls_status prove(ls_arena *arena, ls_planned *of, const ls_run_file *run,
                       ls_run_file **winner, ls_error *error) {
  const ls_plan_row *row = &of->plan->rows.items[0];
  *winner = laid(arena, run, row);
  ls_session *session;
  const int devices = of->problem.devices;
  const ls_device_facts *on = of->cluster ? of->problem.facts : NULL;
  ls_session_proof proof;
  LS_TRY(ls_session_create_on(arena, *winner, devices, devices, on, &session, error));
  LS_TRY(ls_session_prove(session, &proof, error));
  int stage;
  if (ls_session_bytes_needed(session, &stage) != row->bytes)
    return ls_fail(error, LS_INTERNAL, "%s: planned for %lld bytes, and needs %lld",
                   ls_plan_print(arena, row), (long long)row->bytes,
                   (long long)ls_session_bytes_needed(session, &stage));
  of->proved = true;
  return LS_OK;
}

/* "128xH100-SXM" of "H100-SXM" or "64xH100-SXM"; a cluster's file is made as large later. */
static const char *counted(ls_arena *arena, const char *on, int devices) {
  const size_t digits = strspn(on, "0123456789");
  if (!devices || is_run(on)) return on;
  return ls_arena_printf(arena, "%dx%s", devices,
                         on + (digits && on[digits] == 'x' ? digits + 1 : 0));
}

/* Whether the best layout of so many devices is within time and money. */
static bool is_enough(const asked_for *asked, const ls_planned *of, bool *too_slow) {
  if (!of->plan->rows.count) return *too_slow = true, false;
  const double seconds = ls_planned_seconds(of, &of->plan->rows.items[0], asked->tokens);
  *too_slow = asked->within_s > 0 && seconds > asked->within_s;
  return !*too_slow && (!(asked->budget > 0) || ls_planned_money(of, seconds) <= asked->budget);
}

static void tell_count(ls_arena *arena, const asked_for *asked, const ls_planned *of) {
  if (!of->plan->rows.count) {
    fprintf(stderr, "%-24s does not fit\n", of->text);
    return;
  }
  const ls_plan_row *row = &of->plan->rows.items[0];
  const double seconds = ls_planned_seconds(of, row, asked->tokens);
  fprintf(stderr, "%-24s %10s", of->text, ls_plan_duration(arena, seconds));
  if (ls_planned_money(of, seconds) > 0)
    fprintf(stderr, " %12.0f %s", ls_planned_money(of, seconds), of->cluster->currency);
  fprintf(stderr, "  %s\n", ls_plan_print(arena, row));
}

/* The fewest devices, of powers of two, that are enough: by halves of what is left. More devices
 * take less time; where they also cost too much, none are enough. */
static ls_status find_count(ls_arena *arena, const asked_for *asked, const char *on, int *devices,
                            ls_error *error) {
  int low = 0, high = MOST_TRIED, found = -1;
  ls_planned of;
  ls_run_file *run;
  while (low < high) {
    const int middle = (low + high) / 2;
    LS_TRY(pose(arena, asked, counted(arena, on, 1 << middle), 1 << middle, &of, &run, error));
    of.problem.compiled_first = FEW_COMPILED;
    bool too_slow = true;
    ls_error refusal = {0};
    const ls_status made = search(arena, &of, &refusal);
    if (made == LS_OK) tell_count(arena, asked, &of);
    /* Too many devices for the batch are as good as devices that cost too much. */
    const bool enough = made == LS_OK && is_enough(asked, &of, &too_slow);
    if (made != LS_OK) too_slow = false;
    if (enough) found = middle;
    if (enough || !too_slow)
      high = middle;
    else
      low = middle + 1;
  }
  if (found < 0)
    return ls_fail(error, LS_REFUTED,
                   "--on %s: no number of devices up to %d is done in %s%s%s: give more time, more "
                   "money or a larger train.batch",
                   on, 1 << (MOST_TRIED - 1), asked->words->within ? asked->words->within : "time",
                   asked->budget > 0 ? " for " : "", asked->budget > 0 ? asked->words->budget : "");
  *devices = 1 << found;
  return LS_OK;
}

static ls_status plan_machine(ls_arena *arena, const asked_for *asked, const char *on,
                              ls_planned *of, ls_run_file **winner, ls_error *error) {
  int devices = 0;
  ls_run_file *run;
  if (asked->within_s > 0 || asked->budget > 0) {
    if (!on) return ls_fail(error, LS_INPUT, "--within and --budget need --on");
    LS_TRY(find_count(arena, asked, on, &devices, error));
  }
  if (on) on = counted(arena, on, devices);
  LS_TRY(pose(arena, asked, on, devices, of, &run, error));
  LS_TRY(search(arena, of, error));
  if (of->plan->rows.count) LS_TRY(prove(arena, of, run, winner, error));
  return LS_OK;
}

static ls_status none_fits(ls_arena *arena, const ls_plan_report *report, ls_error *error) {
  const ls_planned *of = &report->machines[0];
  if (!of->plan->too_large.count)
    return ls_fail(error, LS_REFUTED, "%s: the compiler refuses every layout", of->text);
  const ls_plan_row *row = &of->plan->too_large.items[0];
  return ls_fail(error, LS_REFUTED,
                 "%s: no layout of %d device%s fits %.2f GiB; the closest needs %.2f: %s", of->text,
                 of->problem.devices, of->problem.devices == 1 ? "" : "s",
                 (double)of->problem.limit / 1073741824, (double)row->bytes / 1073741824,
                 ls_plan_print(arena, row));
}

static ls_status plan(ls_arena *arena, const ls_words *words, void *given, ls_error *error) {
  const request *said = given;
  asked_for asked = {.words = said};
  ls_words keys;
  if (said->output) LS_TRY(ls_command_check_file("-o", said->output, error));
  LS_TRY(read_request(said, &asked, error));
  LS_TRY(take_model(arena, words, &keys, &asked, error));
  const int count = said->machines ? said->machines : 1;
  ls_planned *machines = LS_NEW_ARRAY(arena, ls_planned, count);
  ls_run_file *winner = NULL, *first = NULL;
  bool fits = false;
  for (int m = 0; m < count; m++) {
    winner = NULL;
    LS_TRY(plan_machine(arena, &asked, said->on[m], &machines[m], &winner, error));
    if (!m) first = winner;
    fits = fits || machines[m].plan->rows.count > 0;
  }
  const ls_plan_report report = {.machines = machines,
                                 .count = count,
                                 .tokens = asked.tokens,
                                 .tokens_text = said->tokens,
                                 .task = asked.task};
  if (said->json)
    ls_plan_report_json(&report);
  else
    ls_plan_report_print(arena, &report);
  if (!fits) return none_fits(arena, &report, error);
  if (!said->output || !first) return LS_OK;
  LS_TRY(ls_run_file_write(first, said->output, error));
  fprintf(stderr, "written: %s\n", said->output);
  return LS_OK;
}

/* --on and --fix may be there several times: they are taken out before the other words. */
static ls_status take_repeated(int *count, char **words, request *asked, ls_error *error) {
  int kept = 0;
  for (int w = 0; w < *count; w++) {
    const bool on = strncmp(words[w], "--on", 4) == 0 && (!words[w][4] || words[w][4] == '=');
    const bool fix = strncmp(words[w], "--fix", 5) == 0 && (!words[w][5] || words[w][5] == '=');
    if (!on && !fix) {
      words[kept++] = words[w];
      continue;
    }
    char *value = words[w] + (on ? 4 : 5);
    if (*value == '=')
      value++;
    else if (w + 1 == *count)
      return ls_fail(error, LS_INPUT, "%s: expected a value after it", words[w]);
    else
      value = words[++w];
    if (fix) {
      words[kept++] = value;
    } else if (asked->machines == MOST_MACHINES) {
      return ls_fail(error, LS_INPUT, "--on %s: at most %d are compared", value, MOST_MACHINES);
    } else {
      asked->on[asked->machines++] = value;
    }
  }
  *count = kept;
  return LS_OK;
}

int ls_command_plan(int count, char **words) {
  if (!ls_command_is_first()) return ls_exit_status(LS_OK);
  request asked = {0};
  ls_error error = {0};
  const ls_status status = take_repeated(&count, words, &asked, &error);
  if (status != LS_OK) return ls_command_fail("plan", status, &error);
  const ls_command_flag flags[] = {
      {"-n", &asked.devices, NULL},      {"--task", &asked.task, NULL},
      {"--tokens", &asked.tokens, NULL}, {"--within", &asked.within, NULL},
      {"--budget", &asked.budget, NULL}, {"--objective", &asked.objective, NULL},
      {"-o", &asked.output, NULL},       {"--all", NULL, &asked.all},
      {"--json", NULL, &asked.json}};
  return ls_command_run(
      &(ls_command){"plan", help, true, flags, sizeof flags / sizeof *flags, plan, &asked}, count,
      words);
}
