#include "session/session.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "cluster/machine.h"
#include "cost/cost.h"
#include "data/chat_texts.h"
#include "model/hub.h"
#include "session/balance.h"
#include "session/find_model.h"
#include "session/fit.h"
#include "session/limits.h"
#include "session/offload_room.h"
#include "session/parameter_groups.h"
#include "session/quantize.h"
#include "session/starting_weights.h"
#include "session/teacher.h"
#include "session/vectors.h"
#include "store/adapters.h"
#include "store/freeze.h"
#include "store/weights_folder.h"

static ls_dtype choose_dtype(ls_run_file *run, const ls_device_facts *device) {
  switch (run->dtype) {
    case LS_RUN_DTYPE_FP32: return LS_F32;
    case LS_RUN_DTYPE_BF16:
    case LS_RUN_DTYPE_FP8: return LS_BF16;
    case LS_RUN_DTYPE_FP16: return LS_F16;
    case LS_RUN_DTYPE_FP64: return LS_F64;
    case LS_RUN_DTYPE_AUTO: break;
  }
  run->dtype = ls_device_multiplies(device, LS_BF16) ? LS_RUN_DTYPE_BF16 : LS_RUN_DTYPE_FP32;
  ls_run_file_mark_resolved(run, "dtype");
  return run->dtype == LS_RUN_DTYPE_BF16 ? LS_BF16 : LS_F32;
}

const char *ls_session_dtype(const ls_session *session) {
  return session->config.fp8 ? "fp8" : ls_dtype_name(session->layout.compute);
}

/* Where transfers run in issue order too, ahead of use is only longer in memory. */
static int choose_prefetch(ls_run_file *run, const ls_device_facts *device) {
  if (run->prefetch < 0) {
    run->prefetch = device->overlaps;
    ls_run_file_mark_resolved(run, "prefetch");
  }
  return (int)run->prefetch;
}

static ls_when choose_when(ls_run_gather when) {
  if (when == LS_RUN_GATHER_MICROBATCH) return LS_WHEN_MICROBATCH;
  return when == LS_RUN_GATHER_STEP ? LS_WHEN_STEP : LS_WHEN_AUTO;
}

/* "0-6, 7-13"; NULL: auto. */
static const char *join(ls_arena *arena, const ls_run_globs *items) {
  const char *text = NULL;
  if (items->count == 1 && strcmp(items->items[0], "auto") == 0) return NULL;
  for (int i = 0; i < items->count; i++)
    text = ls_arena_printf(arena, "%s%s%s", text ? text : "", text ? ", " : "", items->items[i]);
  return text;
}

_Static_assert((int)LS_RUN_SGD == (int)LS_OPTIMIZER_SGD &&
                   (int)LS_RUN_LION == (int)LS_OPTIMIZER_LION &&
                   (int)LS_RUN_ADAMW8BIT == (int)LS_OPTIMIZER_ADAMW8BIT &&
                   (int)LS_RUN_MUON == (int)LS_OPTIMIZER_MUON &&
                   (int)LS_RUN_SCHEDULEFREE == (int)LS_OPTIMIZER_SCHEDULEFREE &&
                   (int)LS_RUN_ADAFACTOR == (int)LS_OPTIMIZER_ADAFACTOR,
               "optimizer.name lists the rows in order");

_Static_assert((int)LS_RUN_CONTEXT_RING == (int)LS_CONTEXT_RING &&
                   (int)LS_RUN_CONTEXT_ULYSSES == (int)LS_CONTEXT_ULYSSES &&
                   (int)LS_RUN_CONTEXT_HYBRID == (int)LS_CONTEXT_HYBRID,
               "context lists the kinds in order");

_Static_assert((int)LS_RUN_EXCHANGE_GATHER == (int)LS_EXCHANGE_GATHER &&
                   (int)LS_RUN_EXCHANGE_ALL_TO_ALL == (int)LS_EXCHANGE_ALL_TO_ALL,
               "experts.exchange lists the kinds in order");

/* Slots for all rows are never fewer bytes than the tokens of all: bounded ones may be. */
static ls_expert_exchange choose_exchange(const ls_run_file *run) {
  if (run->experts.exchange != LS_RUN_EXCHANGE_AUTO)
    return (ls_expert_exchange)run->experts.exchange;
  return run->experts.bound > 0 ? LS_EXCHANGE_ALL_TO_ALL : LS_EXCHANGE_GATHER;
}

static double momentum_of(const ls_run_file *run) {
  if (run->optimizer.momentum >= 0) return run->optimizer.momentum;
  return run->optimizer.name == LS_RUN_MUON ? 0.95 : 0.9;
}

/* Of steps that count for other optimizers, too, their programs say nothing. */
static double warmup_of(const ls_run_file *run) {
  return run->optimizer.name == LS_RUN_SCHEDULEFREE ? run->train.warmup.value : 0;
}

static ls_layout make_layout(ls_run_file *run, const ls_device_facts *device) {
  ls_layout layout = {
      .schedule = run->schedule,
      .stages = join(run->arena, &run->stages),
      .chunks = (int)run->chunks,
      .post_validation = run->post_validation,
      .context = (ls_context)run->context,
      .ulysses = run->context == LS_RUN_CONTEXT_HYBRID ? (int)run->ulysses_degree : 1,
      .ep = (int)run->mesh.ep,
      .whole_experts = !run->experts.tensor_parallel && run->mesh.tp > 1,
      .exchange = choose_exchange(run),
      .expert_bound = llround(100 * run->experts.bound),
      .expert_again = llround(100 * run->experts.again),
      .zero = (int)run->zero,
      .sequence_parallel = run->sequence_parallel && run->mesh.tp > 1,
      .microbatches = (int)run->train.microbatches,
      .layers_per_unit = (int)run->wrap,
      .logits_rows = run->logits_rows,
      .gather = choose_when(run->gather),
      .prefetch = choose_prefetch(run, device),
      .reduce = choose_when(run->reduce),
      .compute = choose_dtype(run, device),
      .grad_dtype = run->grad_dtype == LS_RUN_GRAD_BF16 ? LS_BF16 : LS_F32,
      .optimizer = {.kind = (ls_optimizer_kind)run->optimizer.name,
                    .beta1 = run->optimizer.betas[0],
                    .beta2 = run->optimizer.betas[1],
                    .epsilon = run->optimizer.eps,
                    .weight_decay = run->optimizer.weight_decay,
                    .momentum = momentum_of(run),
                    .warmup = warmup_of(run),
                    .matrix_scale = run->optimizer.adjust_lr == LS_RUN_ADJUST_RMS ? 0.2 : 0,
                    .parameter_scale = run->optimizer.scale_parameter,
                    .clip = run->train.clip},
      .offload = {.optimizer = (ls_tier)run->offload.optimizer,
                  .optimizer_fraction = run->offload.optimizer_fraction,
                  .parameters = (ls_tier)run->offload.parameters,
                  .activations = (ls_tier)run->offload.activations},
  };
  for (int a = 0; a < LS_LAYOUT_AXES; a++)
    ls_layout_set_size(&layout, a, (int)ls_run_file_mesh_size(run, ls_layout_axis(a)));
  return layout;
}

/* A schedule that a user wrote: compiling reads no file. */
static ls_status read_schedule(ls_session *session, ls_error *error) {
  const char *name = session->layout.schedule;
  const size_t length = strlen(name);
  if (length <= 4 || strcmp(name + length - 4, ".csv") != 0) return LS_OK;
  char *text;
  LS_TRY(ls_file_read(session->arena, name, &text, &session->layout.csv_bytes, error));
  session->layout.csv = text;
  return LS_OK;
}

static ls_status check_ulysses(const ls_session *session, ls_error *error) {
  const ls_run_file *run = session->run;
  const ls_layout *layout = &session->layout;
  const bool hybrid = layout->context == LS_CONTEXT_HYBRID && layout->cp > 1;
  if (run->ulysses_degree == LS_ULYSSES_DEGREE || hybrid) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s: has no effect without context=hybrid and mesh.cp above 1: leave it out",
                 ls_run_file_where(run, "ulysses_degree"));
}

static ls_status check_grad_dtype(const ls_session *session, ls_error *error) {
  const ls_device_facts *facts = &session->device.facts;
  const ls_dtype compute = session->layout.compute;
  if (session->layout.grad_dtype == LS_F32) return LS_OK;
  if (compute == LS_F64)
    return ls_fail(error, LS_INPUT,
                   "%s: found bf16 with dtype: fp64, whose gradients are fp64; expected fp32, "
                   "which is the standard, or another dtype",
                   ls_run_file_where(session->run, "grad_dtype"));
  if (session->evaluates || facts->bf16_gradients >> compute & 1) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s: found bf16 with dtype: %s on %s, which adds products of %s to gradients in "
                 "fp32 alone; expected fp32, which is the standard, or dtype: bf16",
                 ls_run_file_where(session->run, "grad_dtype"), ls_dtype_name(compute), facts->name,
                 ls_dtype_name(compute));
}

static bool asks_budget(const ls_run_file *run) {
  return run->recompute.count == 1 && strcmp(run->recompute.items[0], "budget") == 0;
}

/* The choice itself waits for the graph. */
static ls_status check_budget(const ls_session *session, const char *where, ls_error *error) {
  if (!ls_session_limit(session))
    return ls_fail(error, LS_INPUT,
                   "%s: budget needs device.memory: give the bytes a device has, as in "
                   "device.memory=16GiB",
                   where);
  if (session->layout.recompute_layers == 1) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s: found %d with recompute: budget, which chooses by layer: "
                 "expected 1",
                 ls_run_file_where(session->run, "recompute_layers"),
                 session->layout.recompute_layers);
}

static ls_status choose_recompute(ls_session *session, ls_error *error) {
  const ls_run_globs *asked = &session->run->recompute;
  const char *where = ls_run_file_where(session->run, "recompute");
  session->layout.recompute_layers = (int)session->run->recompute_layers;
  for (int i = 0; i < asked->count; i++) {
    const char *word = asked->items[i];
    const bool alone = asked->count == 1;
    const ls_op_kind op = ls_op_find(word);
    if (alone && strcmp(word, "none") == 0) return LS_OK;
    if (asks_budget(session->run)) return check_budget(session, where, error);
    if (alone && strcmp(word, "full") == 0)
      session->layout.recompute = (ls_op_set)LS_EVERY_OP;
    else if (alone && strcmp(word, "selective") == 0)
      session->layout.recompute = ls_op_set_cheap();
    else if (op < LS_OP_COUNT && ls_op_row(op)->again != LS_AGAIN_NEVER)
      session->layout.recompute.has[op] = true;
    else
      return ls_fail(
          error, LS_INPUT,
          "%s: found %s; expected none, full, selective, budget, or ops of the forward pass such "
          "as [attention, gelu, swiglu, rmsnorm, layernorm]",
          where, word);
  }
  return LS_OK;
}

/* Its mean takes the place of a schedule, and counts the steps of warm-up. */
static ls_status check_schedulefree(const ls_run_file *run, ls_error *error) {
  if (run->optimizer.name != LS_RUN_SCHEDULEFREE) return LS_OK;
  if (run->train.lr_schedule != LS_RUN_LR_CONSTANT)
    return ls_fail(error, LS_INPUT,
                   "%s: found a schedule with optimizer.name: schedulefree, which needs none; "
                   "expected train.lr_schedule: constant",
                   ls_run_file_where(run, "train.lr_schedule"));
  if (!run->train.warmup.percent) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s: found a percentage with optimizer.name: schedulefree, whose mean counts "
                 "them; expected a number of steps",
                 ls_run_file_where(run, "train.warmup"));
}

/* A key that only says more of another one is not passed over where that one is left out. */
static ls_status check_partners(const ls_session *session, ls_error *error) {
  const ls_run_file *run = session->run;
  const ls_layout *layout = &session->layout;
  LS_TRY(check_schedulefree(run, error));
  if (run->recompute_layers > 1 && ls_op_set_is_empty(&layout->recompute) && !asks_budget(run))
    return ls_fail(error, LS_INPUT,
                   "%s: found %lld with recompute: none, which runs nothing again; expected 1, or "
                   "recompute: full",
                   ls_run_file_where(run, "recompute_layers"), (long long)run->recompute_layers);
  if (run->optimizer.muon_lr > 0 && run->optimizer.name != LS_RUN_MUON)
    return ls_fail(error, LS_INPUT,
                   "%s: found %g with optimizer.name: %s, which has one rate; expected auto, or "
                   "optimizer.name: muon",
                   ls_run_file_where(run, "optimizer.muon_lr"), run->optimizer.muon_lr,
                   ls_optimizer_row_of(&layout->optimizer)->name);
  if (run->optimizer.scale_parameter && run->optimizer.name != LS_RUN_ADAFACTOR)
    return ls_fail(error, LS_INPUT,
                   "%s: found true with optimizer.name: %s, whose rates do not depend on weights; "
                   "expected false, or optimizer.name: adafactor",
                   ls_run_file_where(run, "optimizer.scale_parameter"),
                   ls_optimizer_row_of(&layout->optimizer)->name);
  if (layout->offload.optimizer_fraction < 1 && !layout->offload.optimizer)
    return ls_fail(error, LS_INPUT,
                   "%s: found %g with offload.optimizer: none; expected 1, or offload.optimizer: "
                   "host or nvme",
                   ls_run_file_where(run, "offload.optimizer_fraction"),
                   layout->offload.optimizer_fraction);
  return LS_OK;
}

/* The rate that is usual for what is trained: adapters take larger steps than weights. */
static double usual_rate(const ls_session *session) {
  if (session->config.lora_rank) return 1e-4;
  return session->weights ? 1e-5 : 3e-4;
}

/* Weights where the model is a folder that has some, unless the run starts from scratch. */
static ls_status choose_start(ls_session *session, ls_error *error) {
  ls_run_file *run = session->run;
  const bool adapters = ls_adapters_has(run->model);
  bool there = adapters;
  if (run->init != LS_RUN_INIT_SCRATCH && !adapters && ls_directory_exists(run->model))
    LS_TRY(ls_weights_folder_check(session->arena, run->model, &there, error));
  if (run->init == LS_RUN_INIT_WEIGHTS && !there)
    return ls_fail(error, LS_INPUT,
                   "%s: weights, but %s has no model.safetensors: name a folder with one, or give "
                   "init=scratch",
                   ls_run_file_where(run, "init"), run->model);
  if (there && run->init != LS_RUN_INIT_SCRATCH) session->weights = run->model;
  if (run->train.lr == 0) {
    run->train.lr = usual_rate(session);
    ls_run_file_mark_resolved(run, "train.lr");
  }
  return LS_OK;
}

ls_status ls_session_check_start(const ls_session *session, ls_error *error) {
  const ls_run_file *run = session->run;
  LS_TRY(ls_quantize_check_trained(run, &session->config, error));
  if (run->task == LS_RUN_DPO && !session->weights)
    return ls_fail(error, LS_INPUT,
                   "%s: answers are preferred beyond what the starting weights make of them, and "
                   "%s gives none: name a folder with model.safetensors, without init=scratch",
                   ls_run_file_where(run, "task"), run->model);
  if (session->config.lora_rank == 0 || session->weights) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s: adapters are trained beside weights, and %s gives none: name a folder with "
                 "model.safetensors, without init=scratch",
                 ls_run_file_where(run, "lora.rank"), run->model);
}

/* With exact numerics bits do not depend on what was measured, unless it is asked for. */
bool ls_session_tunes(const ls_session *session) {
  const ls_run_file *run = session->run;
  if (run->device.tune == LS_RUN_TUNE_AUTO) return run->numerics != LS_RUN_EXACT;
  return run->device.tune == LS_RUN_TUNE_TRUE;
}

static ls_rank_options rank_options(const ls_session *session, const ls_program *const *programs,
                                    int count) {
  return (ls_rank_options){.programs = programs,
                           .program_count = count,
                           .device = &session->device,
                           .offload_path = session->run->offload.path,
                           .tune = ls_session_tunes(session),
                           .tuning = session->tuning,
                           .context = session->tuning_context};
}

int64_t ls_session_limit(const ls_session *session) {
  const int64_t asked = session->run->device.memory;
  return asked ? asked : session->device.facts.memory_bytes;
}

int ls_session_overhead_times(const ls_session *session, int stage, const ls_overhead *overhead) {
  return overhead->of_group ? session->groups[stage] : 1;
}

/* The step's graph and the evaluation's: the two keep the same between them. */
static ls_status prepare(const void *context, ls_graph *graph, ls_error *error) {
  const ls_session *session = context;
  const ls_run_globs *asked = &session->run->train.freeze;
  const bool none = asked->count == 1 && strcmp(asked->items[0], "none") == 0;
  if (!none && ls_freeze(&session->config, graph, asked->items, asked->count, error) != LS_OK)
    return ls_error_prefix(error, "%s", ls_run_file_where(session->run, "train.freeze"));
  return ls_parameter_groups_apply(session->run, &session->config, graph, error);
}

static ls_model_pairs pairs_of(const ls_run_file *run) {
  if (run->eval.by_document) return (ls_model_pairs){.beta = 1};
  if (run->task == LS_RUN_ORPO) return (ls_model_pairs){.beta = run->orpo.lambda, .odds = true};
  if (run->task != LS_RUN_DPO) return (ls_model_pairs){0};
  return (ls_model_pairs){.beta = run->dpo.beta, .smoothing = run->dpo.label_smoothing};
}

ls_training ls_session_training(const ls_session *session) {
  const bool fits = asks_budget(session->run);
  return (ls_training){.model = &session->config,
                       .batch = session->batch,
                       .sequence = session->sequence,
                       .documents = ls_run_masks_documents(&session->run->data),
                       .pairs = pairs_of(session->run),
                       .texts = ls_vectors_pairs(session->run),
                       .weighted = session->run->classes.weight,
                       .teacher = ls_teacher_of(session),
                       .evaluates = session->evaluates,
                       .prepare = session->evaluates ? NULL : prepare,
                       .context = session,
                       .budget = fits ? ls_session_limit(session) : 0};
}

static ls_status compile_graph(ls_session *session, ls_error *error) {
  const ls_training training = ls_session_training(session);
  const ls_layout layout = session->layout;
  const ls_status status = ls_compile_graph(session->arena, &training, &layout,
                                            &session->device.facts, &session->compiled, error);
  session->layout = session->compiled.layout;
  session->graph = session->compiled.graph;
  if (status == LS_REFUTED)
    ls_error_prefix(error, "%s", ls_run_file_where(session->run, "recompute"));
  return status;
}

static void take_programs(ls_session *session) {
  for (int p = 0; p < session->compiled.count; p++) {
    session->stages[p] = session->compiled.stages[p];
    session->programs[p] = session->stages[p][0];
  }
  session->workspace = session->compiled.workspace;
  session->overhead = session->compiled.overhead;
  session->groups = session->compiled.groups;
}

int ls_session_step_again(const ls_session *session) {
  return session->compiled.count > LS_SESSION_STEP_AGAIN ? LS_SESSION_STEP_AGAIN : 0;
}

static void programs_of(const ls_session *session, int stage,
                        const ls_program *programs[LS_SESSION_PROGRAMS]) {
  for (int p = 0; p < session->compiled.count; p++) programs[p] = session->stages[p][stage];
}

static ls_status compile(ls_session *session, ls_error *error) {
  const ls_training training = ls_session_training(session);
  LS_TRY(ls_compile_programs(session->arena, &training, &session->device.facts, &session->compiled,
                             error));
  take_programs(session);
  if (session->config.classes) LS_TRY(ls_session_keep_logits(session, error));
  return ls_session_check_programs(session, error);
}

ls_status ls_session_keep_logits(ls_session *session, ls_error *error) {
  const ls_training training = ls_session_training(session);
  LS_TRY(ls_compile_logits(session->arena, &training, &session->device.facts, &session->compiled,
                           error));
  take_programs(session);
  return LS_OK;
}

static int64_t most_of_stages(const ls_session *session, ls_tier tier, bool beside, int *stage) {
  int64_t most = -1;
  for (int s = 0; s < session->layout.pp; s++) {
    const ls_program *programs[LS_SESSION_PROGRAMS];
    programs_of(session, s, programs);
    int64_t needed = ls_rank_bytes_needed(programs, session->compiled.count, tier);
    if (beside) needed += session->workspace[s] + session->overhead[s];
    if (needed <= most) continue;
    most = needed;
    *stage = s;
  }
  return most;
}

int64_t ls_session_tier_bytes(const ls_session *session, ls_tier tier, int *stage) {
  return most_of_stages(session, tier, false, stage);
}

int64_t ls_session_bytes_needed(const ls_session *session, int *stage) {
  return most_of_stages(session, LS_TIER_DEVICE, true, stage);
}

double ls_session_bytes_sent(const ls_session *session, int program, int *stage, int *collectives) {
  double most = -1;
  for (int s = 0; s < session->layout.pp; s++) {
    int count;
    const double bytes = ls_program_bytes_sent(session->stages[program][s], &count);
    if (bytes <= most) continue;
    most = bytes;
    *stage = s;
    if (collectives) *collectives = count;
  }
  return most;
}

void ls_session_memory_parts(const ls_session *session, int stage,
                             int64_t parts[LS_SESSION_MEMORY_PARTS]) {
  ls_program_peak(session->stages[LS_SESSION_STEP][stage], parts);
  parts[LS_CATEGORY_COUNT] = session->overhead[stage];
  parts[LS_CATEGORY_COUNT + 1] = session->workspace[stage];
}

const char *ls_session_memory_part_name(int part) {
  if (part == LS_CATEGORY_COUNT) return "overheads of the device";
  return part > LS_CATEGORY_COUNT ? "workspace of kernels" : ls_category_name((ls_category)part);
}

int64_t ls_session_stage_bytes(const ls_session *session, int stage) {
  const ls_program *programs[LS_SESSION_PROGRAMS];
  programs_of(session, stage, programs);
  return session->workspace[stage] + session->overhead[stage] +
         ls_rank_bytes_needed(programs, session->compiled.count, LS_TIER_DEVICE) +
         ls_rank_bytes_needed(programs, session->compiled.count, LS_TIER_HOST);
}

static int choose_threads(const ls_run_file *run, int ranks_sharing_cores) {
  if (run->device.threads > 0) return (int)run->device.threads;
  const int cores = ls_machine_cores();
  return cores > ranks_sharing_cores ? cores / ranks_sharing_cores : 1;
}

/* The engine that a run asks for; NULL: the first that can. */
static const char *engine_of(const ls_run_file *run) {
  static const char *const names[] = {NULL, "peer", "nccl", "staged"};
  return names[run->comm.engine];
}

/* This machine's device, or what is known of the one that --on names. */
static ls_status open_device(ls_session *session, const ls_device_facts *on, ls_error *error) {
  const ls_run_file *run = session->run;
  const bool exact = run->numerics == LS_RUN_EXACT;
  ls_device_facts here = *ls_device_facts_here();
  ls_device_options device = {.kind = ls_run_device_is_gpu(&run->device) ? "cuda" : NULL,
                              .compute = LS_BF16,
                              .threads = choose_threads(run, session->ranks_sharing_cores),
                              .exact = exact,
                              .loopback = run->device.loopback,
                              .engine = engine_of(run)};
  if (!on && device.kind) { /* what a type is chosen by */
    LS_TRY(ls_device_open(&device, &session->device, error));
    here = session->device.facts;
  }
  session->layout = make_layout(session->run, on ? on : &here);
  if (on) {
    session->device = (ls_device){.kind = on->name, .compute = session->layout.compute};
    session->device.facts = *on;
    session->device.facts.exact = exact;
    session->device.facts.threads = run->device.threads > 0 ? (int)run->device.threads : 1;
    session->on = &session->device.facts;
    return LS_OK;
  }
  device.compute = session->layout.compute;
  LS_TRY(ls_device_open(&device, &session->device, error));
  session->device.graphs = session->device.graphs && run->device.graphs;
  return LS_OK;
}

static ls_status resolve(ls_arena *arena, ls_run_file *run, int devices, int ranks_sharing_cores,
                         const ls_device_facts *on, bool evaluates, ls_session **session,
                         ls_error *error) {
  LS_TRY(ls_run_file_require(run, "model", error));
  LS_TRY(ls_run_file_resolve_mesh(run, devices, error));
  LS_TRY(ls_run_file_resolve_batch(run, error));
  ls_session *made = LS_NEW(arena, ls_session);
  made->arena = arena;
  made->run = run;
  made->devices = devices;
  made->evaluates = evaluates;
  made->sequence = run->data.seq_len;
  made->batch = run->train.batch;
  if (ls_hub_is_name(run->model)) LS_TRY(ls_hub_find(arena, run->model, &run->model, error));
  LS_TRY(ls_session_find_model(made, error));
  LS_TRY(ls_teacher_find(made, error));
  LS_TRY(choose_start(made, error));
  made->ranks_sharing_cores = ranks_sharing_cores;
  LS_TRY(ls_session_check_task(made, error));
  ls_chat_texts_resolve(run);
  LS_TRY(open_device(made, on, error));
  LS_TRY(read_schedule(made, error));
  LS_TRY(check_grad_dtype(made, error));
  LS_TRY(check_ulysses(made, error));
  LS_TRY(choose_recompute(made, error));
  LS_TRY(check_partners(made, error));
  LS_TRY(ls_session_check_sizes(made, error));
  LS_TRY(ls_balance_settle(made, error));
  LS_TRY(compile_graph(made, error));
  *session = made;
  return LS_OK;
}

ls_status ls_session_resolve(ls_arena *arena, ls_run_file *run, int devices,
                             int ranks_sharing_cores, const ls_device_facts *on,
                             ls_session **session, ls_error *error) {
  return resolve(arena, run, devices, ranks_sharing_cores, on, false, session, error);
}

ls_status ls_session_create(ls_arena *arena, ls_run_file *run, int devices, int ranks_sharing_cores,
                            ls_session **session, ls_error *error) {
  return ls_session_create_on(arena, run, devices, ranks_sharing_cores, NULL, session, error);
}

static ls_status create(ls_arena *arena, ls_run_file *run, int devices, int ranks_sharing_cores,
                        const ls_device_facts *on, bool evaluates, ls_session **session,
                        ls_error *error) {
  ls_session *made;
  LS_TRY(resolve(arena, run, devices, ranks_sharing_cores, on, evaluates, &made, error));
  LS_TRY(ls_session_check_weights(made, error));
  LS_TRY(compile(made, error));
  LS_TRY(ls_session_check_device(made, error));
  LS_TRY(ls_session_check_host(made, 1, false, error));
  *session = made;
  return LS_OK;
}

ls_status ls_session_create_on(ls_arena *arena, ls_run_file *run, int devices,
                               int ranks_sharing_cores, const ls_device_facts *on,
                               ls_session **session, ls_error *error) {
  return create(arena, run, devices, ranks_sharing_cores, on, false, session, error);
}

ls_status ls_session_create_evaluation(ls_arena *arena, ls_run_file *run, int devices,
                                       int ranks_sharing_cores, ls_session **session,
                                       ls_error *error) {
  return create(arena, run, devices, ranks_sharing_cores, NULL, true, session, error);
}

ls_status ls_session_under(ls_arena *arena, const ls_session *session, const ls_layout *layout,
                           ls_session **made, ls_error *error) {
  const int64_t whole = session->run->train.micro_batch * session->run->train.microbatches;
  ls_session *other = LS_NEW(arena, ls_session);
  *other = *session;
  other->arena = arena;
  other->layout = *layout;
  other->run = ls_run_file_copy(arena, session->run);
  other->run->train.microbatches = layout->microbatches;
  other->run->train.micro_batch = whole / layout->microbatches;
  LS_TRY(ls_session_check_sizes(other, error));
  ls_training training = ls_session_training(other);
  training.budget = 0;
  LS_TRY(ls_compile(arena, &training, layout, &other->device.facts, &other->compiled, error));
  other->graph = other->compiled.graph;
  take_programs(other);
  *made = other;
  return ls_session_check_programs(other, error);
}

static ls_status thaw(const void *context, ls_graph *graph, ls_error *error) {
  (void)context, (void)error;
  for (int p = 0; p < graph->parameters.count; p++) {
    const ls_parameter *about = &graph->parameters.items[p].about;
    graph->parameters.items[p].trainable = !about->teacher && !ls_parameter_is_constant(about);
  }
  return LS_OK;
}

static ls_status compile_other(ls_session *other, ls_training training, ls_error *error) {
  training.budget = 0;
  LS_TRY(ls_compile(other->arena, &training, &other->layout, &other->device.facts, &other->compiled,
                    error));
  other->graph = other->compiled.graph;
  take_programs(other);
  return LS_OK;
}

static ls_session *copy_of(ls_arena *arena, const ls_session *session) {
  ls_session *other = LS_NEW(arena, ls_session);
  *other = *session;
  other->arena = arena;
  return other;
}

ls_status ls_session_thawed(ls_arena *arena, const ls_session *session, ls_session **made,
                            ls_error *error) {
  ls_session *other = *made = copy_of(arena, session);
  other->config.blocks = LS_COMPUTE; /* which are not trained */
  ls_training training = ls_session_training(other);
  training.prepare = thaw;
  return compile_other(other, training, error);
}

ls_status ls_session_untaught(ls_arena *arena, const ls_session *session, ls_session **made,
                              ls_error *error) {
  ls_session *other = *made = copy_of(arena, session);
  other->teacher = NULL;
  return compile_other(other, ls_session_training(other), error);
}

ls_status ls_session_rank(const ls_session *session, ls_comm *comm, ls_rank **rank,
                          ls_error *error) {
  LS_ASSERT(!session->on); /* which may be compiled for, and is not here */
  const ls_mesh *mesh = &session->programs[LS_SESSION_STEP]->mesh;
  const ls_program *programs[LS_SESSION_PROGRAMS];
  programs_of(session, ls_mesh_stage(mesh, ls_comm_rank(comm)), programs);
  const ls_rank_options options = rank_options(session, programs, session->compiled.count);
  return ls_rank_create(comm, &options, rank, error);
}
