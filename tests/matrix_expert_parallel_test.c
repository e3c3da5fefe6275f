/* Experts over several ranks (mesh.ep) are the same training as one device, in fp64 on the
 * reference kernels: loss, gradient norm, every parameter's gradient and every parameter after the
 * last step. Over 2, 3, 4 and 6 ranks of the data axes and of the context, with tensor and sequence
 * parallelism, data strategies, pipelines, recomputation, offload and frozen parts, also where all
 * tokens go to the same experts and none to others; each program is proved, every other one saved
 * and read back, a sample runs on the CPU's own kernels in fp32. Experts of another rank, routing
 * of a rank's own tokens, sums that lack ranks or have them twice, and norms that count experts
 * wrongly are rejected, and change the training. */
#include <string.h>

#include "support/layouts.h"
#include "support/program_faults.h"

enum { SEQUENCES = 24, SEQUENCE = 12, STEPS = 2 };

/* Hundredths of the rows that an even routing sends. */
enum { TOO_FEW = 50 };

/* Of ls_model_linears. */
enum { QUERY = 1, VALUE = 4 };

/* Widths that tp does not divide; more experts than a rank has tokens for. */
static const ls_test_shape shapes[] = {
    {"mixtral",
     "{\"model_type\": \"mixtral\", \"vocab_size\": 41, \"hidden_size\": 16,"
     " \"intermediate_size\": 13, \"num_hidden_layers\": 4, \"num_attention_heads\": 8,"
     " \"num_key_value_heads\": 2, \"max_position_embeddings\": 16, \"num_local_experts\": 6,"
     " \"num_experts_per_tok\": 2, \"tie_word_embeddings\": false}"},
    {"qwen3_moe",
     "{\"model_type\": \"qwen3_moe\", \"vocab_size\": 43, \"hidden_size\": 12,"
     " \"moe_intermediate_size\": 7, \"num_hidden_layers\": 4, \"num_attention_heads\": 6,"
     " \"num_key_value_heads\": 3, \"head_dim\": 4, \"max_position_embeddings\": 16,"
     " \"num_experts\": 12, \"num_experts_per_tok\": 3, \"tie_word_embeddings\": true,"
     " \"norm_topk_prob\": true}"},
    {"qwen3_moe with many experts",
     "{\"model_type\": \"qwen3_moe\", \"vocab_size\": 37, \"hidden_size\": 8,"
     " \"moe_intermediate_size\": 5, \"num_hidden_layers\": 4, \"num_attention_heads\": 4,"
     " \"num_key_value_heads\": 2, \"head_dim\": 4, \"max_position_embeddings\": 16,"
     " \"num_experts\": 36, \"num_experts_per_tok\": 1, \"norm_topk_prob\": false}"},
};
enum { MIXTRAL, QWEN, MANY, SHAPES };

#define MESH(replicate, shard, context, tensor, experts) \
  .dp_replicate = (replicate), .dp_shard = (shard), .cp = (context), .tp = (tensor), .ep = (experts)
#define SENT .exchange = LS_EXCHANGE_ALL_TO_ALL
#define OVER_TP .whole_experts = true, SP
#define CHEAP                                    \
  .recompute = {.has = {[LS_OP_RMSNORM] = true,  \
                        [LS_OP_SWIGLU] = true,   \
                        [LS_OP_DISPATCH] = true, \
                        [LS_OP_WEIGH] = true}},  \
  .recompute_layers = 1

/* What is not said is as by default. */
typedef struct expert_case {
  int shape;
  ls_layout layout;
  bool documents;
  const char *freeze;
  bool adapters, dropout; /* LoRA beside queries and values; dropout in each place */
} expert_case;

static const expert_case cases[] = {
    {.shape = MIXTRAL, .layout = {MESH(1, 4, 1, 1, 2), .zero = 0}},
    {.shape = MIXTRAL, .layout = {MESH(1, 3, 1, 1, 3), .zero = 1, .microbatches = 2}},
    {.shape = QWEN, .layout = {MESH(1, 4, 1, 1, 4), .zero = 2, .microbatches = 3}},
    {.shape = QWEN, .layout = {MESH(1, 4, 1, 1, 2), .zero = 3, .microbatches = 2}},
    {.shape = MANY, .layout = {MESH(1, 6, 1, 1, 3), .zero = 0, EVERY}},
    {.shape = MIXTRAL, .layout = {MESH(2, 4, 1, 1, 2), .zero = 3, .prefetch = 1}},
    {.shape = QWEN,
     .layout = {MESH(2, 2, 1, 1, 2), .zero = 1, .reduce = LS_WHEN_STEP, .microbatches = 2}},
    /* tensor and sequence parallelism */
    {.shape = MIXTRAL, .layout = {MESH(1, 2, 1, 2, 2), .zero = 3}},
    {.shape = MIXTRAL, .layout = {MESH(1, 2, 1, 8, 2), .zero = 2, SP, .microbatches = 4}},
    {.shape = MIXTRAL, .layout = {MESH(1, 3, 1, 2, 3), .zero = 0, SP}},
    {.shape = QWEN, .layout = {MESH(1, 4, 1, 3, 2), .zero = 3, SP, EVERY}},
    {.shape = MANY, .layout = {MESH(2, 2, 1, 2, 2), .zero = 1, SP, CHEAP}},
    /* pipelines */
    {.shape = MIXTRAL,
     .layout = {MESH(1, 2, 1, 1, 2), PIPE(2, "1f1b"), .zero = 1, .microbatches = 4}},
    {.shape = MANY,
     .layout = {MESH(1, 2, 1, 2, 2), PIPE(2, "zbv"), .zero = 3, .microbatches = 4, .prefetch = 1,
                SP}},
    {.shape = QWEN,
     .layout = {MESH(1, 4, 1, 1, 4), PIPE(4, "zbh1"), .zero = 2, .microbatches = 6, CHEAP}},
    {.shape = MANY,
     .layout = {MESH(1, 3, 1, 1, 3), PIPE(2, "interleaved"), .zero = 3, .microbatches = 2, EVERY}},
    {.shape = MIXTRAL,
     .layout = {MESH(1, 2, 1, 1, 2), PIPE(2, "gpipe"), .zero = 0, .microbatches = 3}},
    {.shape = MIXTRAL,
     .layout = {MESH(1, 2, 1, 1, 2), PIPE(2, "1f1b"), .zero = 1, .microbatches = 4,
                .post_validation = true}},
    /* context parallelism: over all of cp, and over ranks of dp_shard too */
    {.shape = MIXTRAL, .layout = {MESH(1, 1, 2, 1, 2), .zero = 3}},
    {.shape = QWEN,
     .layout = {MESH(1, 2, 2, 1, 4), .zero = 1, .microbatches = 2},
     .documents = true},
    {.shape = QWEN, .layout = {MESH(1, 2, 3, 1, 3), .zero = 2, .context = LS_CONTEXT_RING}},
    {.shape = QWEN, .layout = {MESH(1, 4, 3, 1, 6), .zero = 3, .context = LS_CONTEXT_RING}},
    {.shape = MANY, .layout = {MESH(1, 4, 2, 1, 4), .zero = 0, .context = LS_CONTEXT_ULYSSES}},
    {.shape = QWEN, .layout = {MESH(1, 2, 2, 3, 4), .zero = 3, SP, EVERY}},
    {.shape = MIXTRAL,
     .layout = {MESH(1, 2, 2, 2, 2), PIPE(2, "1f1b"), .zero = 3, .microbatches = 4, SP,
                .context = LS_CONTEXT_RING}},
    /* offload and frozen parts */
    {.shape = QWEN,
     .layout = {MESH(1, 2, 1, 1, 2), .zero = 3,
                .offload = {.optimizer = LS_TIER_HOST,
                            .optimizer_fraction = 1,
                            .parameters = LS_TIER_HOST},
                .microbatches = 2}},
    {.shape = MIXTRAL,
     .layout = {MESH(1, 4, 1, 1, 2), .zero = 1,
                .offload = {.optimizer = LS_TIER_NVME, .optimizer_fraction = 1},
                .microbatches = 2}},
    {.shape = MANY,
     .layout = {MESH(1, 2, 1, 1, 2), .zero = 2,
                .offload = {.activations = LS_TIER_HOST, .optimizer_fraction = 1},
                .microbatches = 2}},
    {.shape = MIXTRAL,
     .layout = {MESH(1, 2, 1, 2, 2), .zero = 3},
     .freeze = "layers.*.experts.gate"},
    {.shape = MIXTRAL, .layout = {MESH(1, 3, 1, 1, 3), .zero = 1}, .freeze = "layers.*.experts"},
    {.shape = QWEN, .layout = {MESH(1, 4, 1, 1, 2), .zero = 2}, .freeze = "layers.*.router"},
    /* rows sent to the ranks of their experts */
    {.shape = MIXTRAL, .layout = {MESH(1, 4, 1, 1, 2), SENT, .zero = 0}},
    {.shape = MIXTRAL, .layout = {MESH(1, 3, 1, 1, 3), SENT, .zero = 1, .microbatches = 2}},
    {.shape = QWEN, .layout = {MESH(1, 4, 1, 1, 4), SENT, .zero = 2, .microbatches = 3}},
    {.shape = MIXTRAL, .layout = {MESH(2, 4, 1, 1, 2), SENT, .zero = 3, .prefetch = 1}},
    {.shape = MANY, .layout = {MESH(1, 6, 1, 1, 6), SENT, .zero = 0, EVERY}},
    {.shape = MIXTRAL, .layout = {MESH(1, 2, 1, 2, 2), SENT, .zero = 3}},
    {.shape = QWEN, .layout = {MESH(1, 4, 1, 3, 2), SENT, .zero = 3, SP, EVERY}},
    {.shape = MIXTRAL, .layout = {MESH(1, 2, 1, 8, 2), SENT, .zero = 2, SP, .microbatches = 4}},
    {.shape = MANY,
     .layout = {MESH(1, 2, 1, 2, 2), SENT, PIPE(2, "zbv"), .zero = 3, .microbatches = 4,
                .prefetch = 1, SP}},
    {.shape = QWEN,
     .layout = {MESH(1, 4, 1, 1, 4), SENT, PIPE(4, "zbh1"), .zero = 2, .microbatches = 6, CHEAP}},
    {.shape = MIXTRAL, .layout = {MESH(1, 1, 2, 1, 2), SENT, .zero = 3}},
    {.shape = QWEN,
     .layout = {MESH(1, 2, 2, 1, 4), SENT, .zero = 1, .microbatches = 2},
     .documents = true},
    {.shape = QWEN, .layout = {MESH(1, 4, 3, 1, 6), SENT, .zero = 3, .context = LS_CONTEXT_RING}},
    {.shape = MANY,
     .layout = {MESH(1, 4, 2, 1, 4), SENT, .zero = 0, .context = LS_CONTEXT_ULYSSES}},
    {.shape = MIXTRAL,
     .layout = {MESH(1, 2, 2, 2, 2), SENT, PIPE(2, "1f1b"), .zero = 3, .microbatches = 4, SP,
                .context = LS_CONTEXT_RING}},
    {.shape = MIXTRAL,
     .layout = {MESH(1, 3, 1, 1, 3), SENT, .zero = 1},
     .freeze = "layers.*.experts"},
    {.shape = QWEN, .layout = {MESH(1, 4, 1, 1, 2), SENT, .zero = 2}, .freeze = "layers.*.router"},
    /* with slots for half of the rows, so that all steps are made again; and for half more */
    {.shape = MIXTRAL, .layout = {MESH(1, 4, 1, 1, 2), SENT, .expert_bound = TOO_FEW, .zero = 2}},
    {.shape = QWEN,
     .layout = {MESH(1, 2, 1, 3, 2), SENT, .expert_bound = TOO_FEW, PIPE(2, "1f1b"), .zero = 3,
                .microbatches = 2, SP, EVERY}},
    {.shape = MANY, .layout = {MESH(1, 3, 1, 1, 3), SENT, .expert_bound = 150, .zero = 1}},
    /* adapters beside frozen experts, and dropout */
    {.shape = MIXTRAL, .layout = {MESH(1, 4, 1, 1, 2), .zero = 3}, .adapters = true},
    {.shape = QWEN, .layout = {MESH(1, 2, 1, 3, 2), SENT, .zero = 2, SP}, .dropout = true},
    {.shape = QWEN,
     .layout = {MESH(1, 2, 2, 1, 4), SENT, .zero = 1, .microbatches = 2},
     .documents = true,
     .adapters = true,
     .dropout = true},
    {.shape = MANY,
     .layout = {MESH(1, 2, 1, 2, 2), PIPE(2, "1f1b"), .zero = 3, .microbatches = 4, EVERY},
     .adapters = true,
     .dropout = true},
    /* experts over tp too, each whole on a rank: alone, with shards and with context */
    {.shape = MIXTRAL, .layout = {MESH(1, 1, 1, 2, 2), OVER_TP, .zero = 0}},
    {.shape = MIXTRAL, .layout = {MESH(1, 2, 1, 2, 2), OVER_TP, .zero = 3}},
    {.shape = QWEN, .layout = {MESH(2, 2, 1, 3, 3), OVER_TP, .zero = 2, .microbatches = 2}},
    {.shape = MIXTRAL, .layout = {MESH(1, 3, 1, 2, 6), OVER_TP, .zero = 1, .microbatches = 2}},
    {.shape = QWEN, .layout = {MESH(1, 4, 1, 3, 6), OVER_TP, .zero = 3, EVERY}},
    {.shape = MANY, .layout = {MESH(1, 2, 1, 4, 4), OVER_TP, .zero = 3, .prefetch = 1}},
    {.shape = MANY,
     .layout = {MESH(1, 2, 2, 2, 4), OVER_TP, PIPE(2, "zbv"), .zero = 3, .microbatches = 4,
                .context = LS_CONTEXT_RING}},
    {.shape = MIXTRAL,
     .layout = {MESH(1, 3, 1, 2, 6), OVER_TP, PIPE(2, "1f1b"), .zero = 1, .microbatches = 4,
                .post_validation = true}},
    {.shape = MIXTRAL, .layout = {MESH(1, 1, 1, 2, 2), SENT, OVER_TP, .zero = 0}},
    {.shape = MIXTRAL, .layout = {MESH(1, 2, 1, 2, 2), SENT, OVER_TP, .zero = 3}},
    {.shape = QWEN, .layout = {MESH(2, 2, 1, 3, 3), SENT, OVER_TP, .zero = 1, .microbatches = 2}},
    {.shape = MIXTRAL,
     .layout = {MESH(1, 3, 1, 2, 6), SENT, OVER_TP, .zero = 2, .microbatches = 2, CHEAP}},
    {.shape = QWEN, .layout = {MESH(1, 2, 1, 6, 6), SENT, OVER_TP, .zero = 3, EVERY}},
    {.shape = QWEN,
     .layout = {MESH(1, 2, 2, 3, 12), SENT, OVER_TP, .zero = 1, .context = LS_CONTEXT_ULYSSES},
     .documents = true},
    {.shape = MANY,
     .layout = {MESH(1, 2, 1, 2, 4), SENT, OVER_TP, PIPE(4, "zbh1"), .zero = 2, .microbatches = 6}},
    {.shape = MANY,
     .layout = {MESH(1, 2, 1, 4, 4), SENT, OVER_TP, PIPE(2, "interleaved"), .zero = 3,
                .microbatches = 2, .prefetch = 1}},
    {.shape = MIXTRAL,
     .layout = {MESH(1, 2, 1, 2, 2), SENT, OVER_TP, .expert_bound = TOO_FEW, .zero = 2}},
    {.shape = QWEN,
     .layout = {MESH(1, 2, 1, 3, 6), SENT, OVER_TP, .expert_bound = TOO_FEW, PIPE(2, "1f1b"),
                .zero = 3, .microbatches = 2, EVERY}},
    {.shape = MANY, .layout = {MESH(1, 3, 1, 2, 6), SENT, OVER_TP, .expert_bound = 150, .zero = 1}},
    {.shape = QWEN,
     .layout = {MESH(1, 2, 1, 3, 3), SENT, OVER_TP, .zero = 3,
                .offload = {.optimizer = LS_TIER_HOST,
                            .optimizer_fraction = 1,
                            .parameters = LS_TIER_HOST},
                .microbatches = 2}},
    {.shape = MANY,
     .layout = {MESH(1, 2, 1, 2, 4), OVER_TP, .zero = 1,
                .offload = {.activations = LS_TIER_HOST, .optimizer_fraction = 1},
                .microbatches = 2}},
    {.shape = MIXTRAL,
     .layout = {MESH(1, 2, 1, 2, 2), OVER_TP, .zero = 3},
     .freeze = "layers.*.experts.gate"},
    {.shape = QWEN,
     .layout = {MESH(1, 2, 1, 3, 6), SENT, OVER_TP, .zero = 2},
     .freeze = "layers.*.router"},
    {.shape = QWEN,
     .layout = {MESH(1, 2, 1, 3, 3), SENT, OVER_TP, .zero = 2},
     .adapters = true,
     .dropout = true},
};
enum { CASES = sizeof cases / sizeof *cases, EACH = 6 };

/* A case, in memory that its experiment points to. */
typedef struct expert_run {
  const char *name;
  ls_model_config config;
  ls_layout layout;
  const char *freeze[1];
  ls_experiment experiment;
} expert_run;

static expert_run *open_case(ls_arena *arena, int which) {
  const expert_case *c = &cases[which];
  expert_run *of = LS_NEW(arena, expert_run);
  of->name = ls_arena_printf(arena, "%d %s", which, shapes[c->shape].name);
  of->config = ls_test_shape_config(arena, &shapes[c->shape]);
  if (c->adapters) {
    of->config.lora_rank = 3;
    of->config.lora_alpha = 5;
    of->config.lora_targets = QUERY | VALUE;
  }
  if (c->dropout)
    of->config.dropout = (ls_dropout){.embedding = 0.1,
                                      .hidden = 0.2,
                                      .attention = c->layout.cp > 1 ? 0 : 0.1,
                                      .adapter = c->adapters ? 0.2 : 0};
  of->layout = ls_test_layout_of(&c->layout);
  of->freeze[0] = c->freeze;
  of->experiment = (ls_experiment){.config = &of->config,
                                   .sequences = SEQUENCES,
                                   .sequence = SEQUENCE,
                                   .seed = 20261126,
                                   .documents = c->documents,
                                   .steps = STEPS,
                                   .freeze = of->freeze,
                                   .freeze_count = c->freeze != NULL,
                                   .saved = which % 2 == 1,
                                   .offload_path = "/tmp",
                                   .learning_rate = 0.01};
  return of;
}

/* Where slots are too few every step is made again. */
static void run_case(const expert_run *of, ls_test_tally *tally) {
  const ls_test_tally before = *tally;
  ls_test_equal_layout(tally, &of->experiment, &of->layout, of->name);
  if (of->layout.expert_bound == TOO_FEW && tally->run > before.run)
    assert_int_equal(tally->repeated - before.repeated, STEPS);
}

static void test_layouts_equal_one_device_and_are_proved(void **state) {
  (void)state;
  ls_test_tally tally = {0};
  for (int which = 0; which < CASES; which++) {
    ls_arena *arena = ls_arena_create();
    run_case(open_case(arena, which), &tally);
    ls_arena_destroy(&arena);
  }
  LS_TEST_EXPECT(&tally, CASES, 0);
}

/* A router of zeros finds all experts alike and takes the first: the first rank has all rows. */
static void test_forced_routing(void **state) {
  (void)state;
  ls_test_tally tally = {0};
  for (int which = 0; which < CASES; which += EACH) {
    ls_arena *arena = ls_arena_create();
    expert_run *of = open_case(arena, which);
    of->experiment.zeroed = "router.weight";
    run_case(of, &tally);
    ls_arena_destroy(&arena);
  }
  LS_TEST_EXPECT(&tally, (CASES + EACH - 1) / EACH, 0);
}

static void test_the_cpus_kernels(void **state) {
  (void)state;
  ls_test_tally tally = {.tolerance = 1e-3};
  for (int which = 1; which < CASES; which += EACH) {
    ls_arena *arena = ls_arena_create();
    expert_run *of = open_case(arena, which);
    of->layout.compute = LS_F32;
    of->experiment.device.kind = "cpu";
    run_case(of, &tally);
    ls_arena_destroy(&arena);
  }
  LS_TEST_EXPECT(&tally, (CASES + EACH - 2) / EACH, 0);
}

static ls_axes experts_of(const ls_program *program) {
  return ls_mesh_active(&program->mesh, ls_mesh_experts(&program->mesh));
}

/* Ranks do the rows of the next rank's experts, by their own's weights. */
static bool shift_experts(ls_program *program, ls_axes axes) {
  bool any = false;
  for (int p = 0; p < program->parameter_count; p++) {
    if (!ls_tp_is_of_experts(program->parameters[p].sharding)) continue;
    ls_value *used = &program->values.items[program->parameters[p].part[LS_PART_USED]];
    for (int a = 0; a < program->mesh.count; a++)
      if (axes >> a & 1) used->placement.on[a].shift = 1;
    any = true;
  }
  return any;
}

static bool experts_of_the_next_rank(ls_program *program) {
  return shift_experts(program, experts_of(program));
}

static ls_axes experts_over_tp(const ls_program *program) {
  return experts_of(program) & ls_mesh_axes(&program->mesh, LS_MESH_TENSOR);
}

static bool experts_of_the_next_of_tp(ls_program *program) {
  return experts_over_tp(program) && shift_experts(program, experts_over_tp(program));
}

/* What moves tokens over the ranks that share out experts, in front of an op or behind it. */
static ls_instruction *find_move(ls_program *program, ls_collective collective, ls_op_kind beside) {
  for (int i = 0; i < program->instructions.count; i++) {
    ls_instruction *each = &program->instructions.items[i];
    if (each->collective != collective || each->axes != experts_of(program)) continue;
    for (int n = 0; n < program->instructions.count; n++) {
      const ls_instruction *other = &program->instructions.items[n];
      if (ls_test_is_op(other, beside) &&
          (other->in[0] == each->out[0] || other->out[0] == each->in[0]))
        return each;
    }
  }
  return NULL;
}

/* The counts are not those of all ranks' tokens. */
static bool routing_of_own_tokens(ls_program *program) {
  ls_instruction *gather = find_move(program, LS_ALL_GATHER, LS_OP_ROUTE);
  if (gather) gather->in[0] = gather->out[0];
  return gather;
}

/* The experts of routed rows are those of another layer. */
static bool routing_of_another_layer(ls_program *program) {
  const ls_instruction *first = NULL;
  for (int i = 0; i < program->instructions.count; i++) {
    ls_instruction *each = &program->instructions.items[i];
    if (ls_test_is_op(each, LS_OP_ROUTE) && !first) first = each;
    if (!first || !ls_test_is_op(each, LS_OP_GROUPED_UP) || each->in[2] == first->out[1]) continue;
    each->in[2] = first->out[1];
    return true;
  }
  return false;
}

/* Each rank takes what its own experts make of its tokens. */
static bool experts_of_others_left_out(ls_program *program) {
  ls_instruction *scatter = find_move(program, LS_REDUCE_SCATTER, LS_OP_COMBINE);
  if (!scatter) return false;
  scatter->collective = LS_ALL_GATHER; /* of the first shard, which lies in front */
  scatter->in[0] = scatter->out[0];
  return true;
}

/* Gradients of other experts are added up. */
static bool experts_summed(ls_program *program) {
  bool any = false;
  for (int i = 0; i < program->instructions.count; i++) {
    ls_instruction *each = &program->instructions.items[i];
    const ls_value *value = &program->values.items[each->in[0]];
    if (each->collective != LS_ALL_REDUCE || !value->flat_elements ||
        each->axes & experts_of(program))
      continue;
    each->axes |= experts_of(program);
    any = true;
  }
  return any;
}

/* Of parameters that are sharded as experts are, or of all others. */
static bool change_norm(ls_program *program, bool experts, ls_axes clear, ls_axes set) {
  bool any = false;
  for (int i = 0; i < program->instructions.count; i++) {
    ls_instruction *each = &program->instructions.items[i];
    if (!ls_test_is_op(each, LS_OP_SQUARED_NORM)) continue;
    const ls_axes replicas = ls_value_replicas(&program->mesh, &program->values.items[each->in[0]]);
    if (experts == ((replicas & experts_of(program)) != 0)) continue;
    each->first_only = (each->first_only & ~clear) | set;
    any = true;
  }
  return any;
}

static bool norm_counts_replicas(ls_program *program) {
  return change_norm(program, false, experts_of(program), 0);
}

static bool norm_lacks_experts(ls_program *program) {
  return change_norm(program, true, 0, experts_of(program));
}

static bool norm_counts_replicas_of_tp(ls_program *program) {
  return experts_over_tp(program) && change_norm(program, false, experts_over_tp(program), 0);
}

static bool norm_lacks_experts_of_tp(ls_program *program) {
  return experts_over_tp(program) && change_norm(program, true, 0, experts_over_tp(program));
}

/* Rows of zeros are said to be sums, of which an activation cannot be made one by one. */
static bool masks_called_sums(ls_program *program) {
  bool any = false;
  for (int v = 0; v < program->values.count; v++)
    for (int a = 0; a < program->mesh.count; a++) {
      ls_place *place = &program->values.items[v].placement.on[a];
      if (place->kind != LS_PARTIAL || place->reduce != LS_MASK) continue;
      place->reduce = LS_SUM;
      any = true;
    }
  return any;
}

/* An operand is what the all-to-all in front of it was to bring. */
static bool leave_out_exchange(ls_program *program, ls_op_kind kind, int input) {
  for (int i = 0; i < program->instructions.count; i++) {
    const ls_instruction *move = &program->instructions.items[i];
    if (move->collective != LS_ALL_TO_ALL) continue;
    for (int n = 0; n < program->instructions.count; n++) {
      ls_instruction *each = &program->instructions.items[n];
      if (!ls_test_is_op(each, kind) || each->in[input] != move->out[0]) continue;
      each->in[input] = move->in[0];
      return true;
    }
  }
  return false;
}

/* An operand is that of the first op of its kind, of another layer. */
static bool take_of_another_layer(ls_program *program, ls_op_kind kind, int input) {
  const ls_instruction *first = NULL;
  for (int i = 0; i < program->instructions.count; i++) {
    ls_instruction *each = &program->instructions.items[i];
    if (!ls_test_is_op(each, kind)) continue;
    if (!first) first = each;
    if (each->in[input] == first->in[input]) continue;
    each->in[input] = first->in[input];
    return true;
  }
  return false;
}

static bool counts_of_own_rows(ls_program *program) {
  return leave_out_exchange(program, LS_OP_ARRIVALS, 0);
}

static bool rows_not_sent(ls_program *program) {
  return leave_out_exchange(program, LS_OP_ARRIVE, 0);
}

static bool rows_not_sent_home(ls_program *program) {
  return leave_out_exchange(program, LS_OP_FROM_SLOTS, 0);
}

static bool slots_of_another_layer(ls_program *program) {
  return take_of_another_layer(program, LS_OP_FROM_SLOTS, 1);
}

static bool weights_of_another_layer(ls_program *program) {
  return take_of_another_layer(program, LS_OP_SLOTS, 2);
}

static bool rows_of_another_layer(ls_program *program) {
  return take_of_another_layer(program, LS_OP_LEAVE, 1);
}

/* Rows that find no slot are not told of. */
static bool overflow_ignored(ls_program *program) {
  bool any = false;
  for (int i = 0; i < program->instructions.count; i++) {
    ls_instruction *each = &program->instructions.items[i];
    if (!ls_test_is_op(each, LS_OP_LEFT_OUT)) continue;
    each->attributes.slots *= 100;
    any = true;
  }
  return any;
}

/* Nor where one layer's are not. */
static bool overflow_of_one_layer(ls_program *program) {
  for (int i = 0; i < program->instructions.count; i++) {
    ls_instruction *each = &program->instructions.items[i];
    if (!ls_test_is_op(each, LS_OP_LEFT_OUT) || each->write[0] != LS_ADD) continue;
    each->write[0] = LS_WRITE;
    return true;
  }
  return false;
}

/* The first case of these programs is changed. */
typedef enum faulty { GATHERED, ROWS_SENT, BOUNDED, WHOLE_GATHERED, WHOLE_SENT } faulty;

static const struct expert_fault {
  faulty of;
  ls_test_fault fault;
} faults[] = {
    {GATHERED, {"experts of the next rank", experts_of_the_next_rank, NULL, true}},
    {GATHERED, {"routing of own tokens", routing_of_own_tokens, NULL, false}},
    {GATHERED, {"routing of another layer", routing_of_another_layer, NULL, false}},
    {GATHERED, {"experts of others left out", experts_of_others_left_out, NULL, true}},
    {GATHERED, {"experts summed", experts_summed, NULL, true}},
    {GATHERED, {"norm counts replicas", norm_counts_replicas, NULL, true}},
    {GATHERED, {"norm lacks experts", norm_lacks_experts, NULL, true}},
    {GATHERED, {"masks called sums", masks_called_sums, NULL, false}},
    {ROWS_SENT, {"rows to experts of the next rank", experts_of_the_next_rank, NULL, true}},
    {ROWS_SENT, {"counts of own rows", counts_of_own_rows, NULL, false}},
    {ROWS_SENT, {"rows not sent", rows_not_sent, NULL, false}},
    {ROWS_SENT, {"rows not sent home", rows_not_sent_home, NULL, false}},
    {ROWS_SENT, {"slots of another layer", slots_of_another_layer, NULL, false}},
    {ROWS_SENT, {"weights of another layer", weights_of_another_layer, NULL, false}},
    {ROWS_SENT, {"rows of another layer", rows_of_another_layer, NULL, false}},
    {BOUNDED, {"overflow ignored", overflow_ignored, NULL, true}},
    {BOUNDED, {"overflow of one layer", overflow_of_one_layer, NULL, false}},
    {WHOLE_GATHERED, {"experts of the next of tp", experts_of_the_next_of_tp, NULL, true}},
    {WHOLE_GATHERED, {"norm counts replicas of tp", norm_counts_replicas_of_tp, NULL, true}},
    {WHOLE_GATHERED, {"norm lacks experts of tp", norm_lacks_experts_of_tp, NULL, true}},
    {WHOLE_SENT, {"rows to experts of the next of tp", experts_of_the_next_of_tp, NULL, true}},
    {WHOLE_SENT, {"norm counts replicas of tp", norm_counts_replicas_of_tp, NULL, true}},
    {WHOLE_SENT, {"norm lacks experts of tp", norm_lacks_experts_of_tp, NULL, true}},
    {WHOLE_SENT, {"rows over tp not sent home", rows_not_sent_home, NULL, false}},
};

static int first_case(faulty of) {
  const bool whole = of == WHOLE_GATHERED || of == WHOLE_SENT;
  const bool sent = of != GATHERED && of != WHOLE_GATHERED;
  int which = 0;
  while ((ls_layout_senders(&cases[which].layout) > 0) != sent ||
         cases[which].layout.whole_experts != whole)
    which++;
  while (of == BOUNDED && !cases[which].layout.expert_bound) which++;
  return which;
}

static void test_faults_are_rejected_and_change_the_training(void **state) {
  (void)state;
  for (size_t f = 0; f < sizeof faults / sizeof *faults; f++) {
    ls_arena *arena = ls_arena_create();
    const expert_run *of = open_case(arena, first_case(faults[f].of));
    ls_test_refute(&of->experiment, &of->layout, &faults[f].fault, 1);
    ls_arena_destroy(&arena);
  }
}

static void expect_refusal(ls_arena *arena, const ls_layout *layout, const ls_graph *graph,
                           const char *text) {
  ls_mesh mesh;
  ls_error error = {0};
  const ls_status status = ls_layout_mesh(layout, graph, &mesh, &error);
  if (status != (text ? LS_INPUT : LS_OK) || (text && strcmp(error.text, text) != 0))
    fail_msg("%s: %s", ls_layout_print(arena, layout), error.text);
}

static void test_what_does_not_divide_is_refused(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const ls_model_config config = ls_test_shape_config(arena, &shapes[QWEN]);
  ls_layout layout = ls_test_layout_default();
  layout.dp_shard = 8;
  ls_graph *graph = ls_test_model(arena, &config, &layout, SEQUENCES, SEQUENCE);
  layout.ep = 8;
  expect_refusal(arena, &layout, graph,
                 "mesh.ep=8 with 12 experts, mesh.dp_shard=8 and mesh.cp=1: all ranks of cp, and "
                 "some of dp_shard, have as many experts each: use mesh.ep=4");
  layout.ep = 3;
  expect_refusal(arena, &layout, graph,
                 "mesh.ep=3 with 12 experts, mesh.dp_shard=8 and mesh.cp=1: all ranks of cp, and "
                 "some of dp_shard, have as many experts each: use mesh.ep=2");
  layout.ep = 4;
  expect_refusal(arena, &layout, graph, NULL);
  graph->experts = 0;
  expect_refusal(arena, &layout, graph,
                 "mesh.ep=4 with a model that has no experts: use mesh.ep=1");
  ls_arena_destroy(&arena);
}

static void test_whole_experts_that_do_not_fit_are_refused(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const ls_model_config config = ls_test_shape_config(arena, &shapes[QWEN]);
  ls_layout layout = ls_test_layout_default();
  layout.dp_shard = 8;
  layout.tp = 3;
  ls_graph *graph = ls_test_model(arena, &config, &layout, SEQUENCES, SEQUENCE);
  layout.whole_experts = true;
  expect_refusal(arena, &layout, graph,
                 "experts.tensor_parallel=false with sequence_parallel=false: ranks of tp send "
                 "tokens of their own to whole experts: use sequence_parallel=true, or "
                 "experts.tensor_parallel=true");
  layout.sequence_parallel = true;
  expect_refusal(arena, &layout, graph,
                 "mesh.ep=1 with 12 experts, mesh.dp_shard=8, mesh.cp=1, mesh.tp=3 and "
                 "experts.tensor_parallel=false: all ranks of cp and tp, and some of dp_shard, "
                 "have as many experts each: use mesh.ep=3, or experts.tensor_parallel=true");
  layout.ep = 8;
  expect_refusal(arena, &layout, graph,
                 "mesh.ep=8 with 12 experts, mesh.dp_shard=8, mesh.cp=1, mesh.tp=3 and "
                 "experts.tensor_parallel=false: all ranks of cp and tp, and some of dp_shard, "
                 "have as many experts each: use mesh.ep=6, or experts.tensor_parallel=true");
  layout.ep = 6;
  expect_refusal(arena, &layout, graph, NULL);
  graph->experts = 16;
  expect_refusal(arena, &layout, graph,
                 "mesh.ep=6 with 16 experts, mesh.dp_shard=8, mesh.cp=1, mesh.tp=3 and "
                 "experts.tensor_parallel=false: all ranks of cp and tp, and some of dp_shard, "
                 "have as many experts each: use experts.tensor_parallel=true");
  graph->experts = 12;
  graph->tokens = 8 * 20;
  expect_refusal(
      arena, &layout, graph,
      "experts.tensor_parallel=false with 20 tokens at a time over mesh.tp=3: each rank "
      "has as many: use a data.seq_len or train.micro_batch that is a multiple of it, or "
      "experts.tensor_parallel=true");
  graph->experts = 0;
  layout.ep = 1;
  expect_refusal(arena, &layout, graph,
                 "experts.tensor_parallel=false with a model that has no experts: use "
                 "experts.tensor_parallel=true");
  ls_arena_destroy(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_layouts_equal_one_device_and_are_proved),
      cmocka_unit_test(test_forced_routing),
      cmocka_unit_test(test_the_cpus_kernels),
      cmocka_unit_test(test_faults_are_rejected_and_change_the_training),
      cmocka_unit_test(test_what_does_not_divide_is_refused),
      cmocka_unit_test(test_whole_experts_that_do_not_fit_are_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
