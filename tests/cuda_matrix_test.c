/* Layouts on GPUs without one, by the stand-ins: every pair of (model, mesh of up to 8 GPUs,
 * schedule, ZeRO, sequence parallelism, recomputation, what waits where, dtype, optimizer, engine)
 * that can be occurs in a training that is the CPU device's under the same layout. In fp32 losses,
 * norms, every gradient and the parameters are within 3e-5, by the optimizers of
 * matrix_fast_test.c; in 16 bits and fp8, whose roundings turn where sums have another order,
 * losses and norms within 2 %. All counts are golden. LS_SEED: another sample; LS_CASE=WORDS: the
 * cases alone whose names have the words. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/pipeline.h"
#include "support/equal_layouts.h"
#include "support/layouts.h"
#include "support/pairs.h"
#include "support/test_folder.h"
#include "support/test_seed.h"

enum {
  MODEL,
  MESH,
  SCHEDULE,
  ZERO,
  SEQUENCE_PARALLEL,
  RECOMPUTE,
  OFFLOAD,
  DTYPE,
  OPTIMIZER,
  ENGINE,
  FACTORS
};

/* Golden. */
enum { CASES = 65, PAIRS = 657, IMPOSSIBLE = 99 };

enum { SEQUENCES = 8, SEQUENCE = 8, MICROBATCHES = 2, STEPS = 2, SEED = 20261128 };

static const double same = 3e-5, near = 2e-2, coarse = 1e-1, rate = 1e-2, epsilon = 1e-2;

enum { MODELS = 2 };
static const ls_test_shape models[MODELS] = {
    {"llama",
     "{\"model_type\": \"llama\", \"vocab_size\": 43, \"hidden_size\": 32,"
     " \"intermediate_size\": 42, \"num_hidden_layers\": 2, \"num_attention_heads\": 4,"
     " \"num_key_value_heads\": 2, \"max_position_embeddings\": 16, \"rms_norm_eps\": 1e-5,"
     " \"tie_word_embeddings\": true}"},
    {"gpt2",
     "{\"model_type\": \"gpt2\", \"vocab_size\": 37, \"n_positions\": 8, \"n_embd\": 24,"
     " \"n_layer\": 2, \"n_head\": 4, \"n_inner\": 52, \"resid_pdrop\": 0, \"embd_pdrop\": 0,"
     " \"attn_pdrop\": 0}"}};

static const struct mesh {
  int sizes[LS_LAYOUT_AXES]; /* pp, dp_replicate, dp_shard, cp, tp */
  ls_context context;
  int ulysses;
} meshes[] = {{{1, 1, 1, 1, 1}, LS_CONTEXT_GATHER, 1},  {{1, 2, 1, 1, 1}, LS_CONTEXT_GATHER, 1},
              {{1, 1, 2, 1, 1}, LS_CONTEXT_GATHER, 1},  {{1, 2, 2, 1, 2}, LS_CONTEXT_GATHER, 1},
              {{1, 1, 1, 2, 2}, LS_CONTEXT_ULYSSES, 1}, {{1, 1, 1, 4, 1}, LS_CONTEXT_HYBRID, 2},
              {{2, 1, 2, 1, 1}, LS_CONTEXT_GATHER, 1},  {{2, 1, 1, 1, 2}, LS_CONTEXT_GATHER, 1},
              {{2, 1, 1, 2, 1}, LS_CONTEXT_RING, 1}};
enum { MESHES = sizeof meshes / sizeof *meshes };

static int ranks_of(const struct mesh *mesh) {
  int ranks = 1;
  for (int axis = 0; axis < LS_LAYOUT_AXES; axis++) ranks *= mesh->sizes[axis];
  return ranks;
}

static void set_mesh(ls_layout *layout, int option) {
  for (int axis = 0; axis < LS_LAYOUT_AXES; axis++)
    ls_layout_set_size(layout, axis, meshes[option].sizes[axis]);
  layout->context = meshes[option].context;
  layout->ulysses = meshes[option].ulysses;
}

enum { SCHEDULES = 10, USUAL_SCHEDULE = 2 }; /* 1f1b */

static void set_schedule(ls_layout *layout, int option) {
  layout->schedule = ls_pipeline_kinds[option].name;
}

static void set_zero(ls_layout *layout, int option) {
  layout->zero = option;
}

static void set_sequence_parallel(ls_layout *layout, int option) {
  layout->sequence_parallel = option;
}

/* None, whole layers, what is cheap. */
static void set_recompute(ls_layout *layout, int option) {
  if (option) layout->recompute = option == 1 ? (ls_op_set)LS_EVERY_OP : ls_op_set_cheap();
  layout->recompute_layers = 1;
}

enum { PARAMETERS_WAIT = 2, OFFLOADS = 3 };

/* Nothing; much of it at the host; on a drive. */
static void set_offload(ls_layout *layout, int option) {
  static const ls_offload of[OFFLOADS] = {{.optimizer_fraction = 1},
                                          {LS_TIER_HOST, 0.5, LS_TIER_DEVICE, LS_TIER_HOST},
                                          {LS_TIER_NVME, 1, LS_TIER_NVME, LS_TIER_NVME}};
  layout->offload = of[option];
}

enum { FP8 = 3, DTYPES = 4 };

static void set_dtype(ls_layout *layout, int option) {
  static const ls_dtype of[DTYPES] = {LS_F32, LS_BF16, LS_F16, LS_BF16};
  layout->compute = of[option];
}

static void set_optimizer(ls_layout *layout, int option) {
  if (option) layout->optimizer.kind = LS_OPTIMIZER_SGD;
  layout->optimizer.momentum = 0.9;
  layout->optimizer.epsilon = epsilon;
}

static const char *const engines[] = {"peer", "nccl", "staged"};

/* A new factor is a row here and above; what it needs of others is said in `rules`. */
static const struct factor {
  const char *name;
  int options;
  void (*set)(ls_layout *layout, int option);
} factors[FACTORS] = {[MODEL] = {"model", MODELS, NULL},
                      [MESH] = {"mesh", MESHES, set_mesh},
                      [SCHEDULE] = {"schedule", SCHEDULES, set_schedule},
                      [ZERO] = {"ZeRO", LS_DATA_STRATEGY_COUNT, set_zero},
                      [SEQUENCE_PARALLEL] = {"sequence parallel", 2, set_sequence_parallel},
                      [RECOMPUTE] = {"recompute", 3, set_recompute},
                      [OFFLOAD] = {"offload", OFFLOADS, set_offload},
                      [DTYPE] = {"dtype", DTYPES, set_dtype},
                      [OPTIMIZER] = {"optimizer", 2, set_optimizer},
                      [ENGINE] = {"engine", 3, NULL}};

static struct bench {
  ls_model_config configs[MODELS][2]; /* in fp8 too */
  bool legal[MODELS][MESHES][SCHEDULES];
} bench;

static ls_layout layout_of(const ls_pairs_case *chosen) {
  ls_layout layout = ls_test_layout_default();
  layout.microbatches = MICROBATCHES;
  for (int f = 0; f < FACTORS; f++)
    if (factors[f].set && chosen->option[f] != LS_PAIRS_ANY)
      factors[f].set(&layout, chosen->option[f]);
  layout.prefetch = layout.zero == 3;
  return layout;
}

static bool is(const ls_pairs_case *chosen, int factor, int option) {
  return chosen->option[factor] == option || chosen->option[factor] == LS_PAIRS_ANY;
}

/* Whether every option that is chosen has its effect, and none is refused beside the others, where
 * the mesh is chosen. */
static bool rules(const ls_pairs_case *chosen) {
  const int *option = chosen->option, *sizes = meshes[option[MESH]].sizes;
  const int shards = sizes[LS_LAYOUT_DP_SHARD] * sizes[LS_LAYOUT_CP];
  if (sizes[LS_LAYOUT_PP] == 1 && !is(chosen, SCHEDULE, USUAL_SCHEDULE)) return false;
  if (ranks_of(&meshes[option[MESH]]) == 1 && !is(chosen, ENGINE, 0)) return false;
  if (shards == 1 && !is(chosen, ZERO, 0)) return false;
  if (option[OFFLOAD] == PARAMETERS_WAIT && shards > 1 && !is(chosen, ZERO, 3)) return false;
  return option[SEQUENCE_PARALLEL] != 1 || sizes[LS_LAYOUT_TP] > 1;
}

static bool is_possible(const ls_pairs_case *chosen, const void *context) {
  (void)context;
  ls_pairs_case with = *chosen;
  for (int mesh = 0; mesh < MESHES; mesh++) {
    with.option[MESH] = mesh;
    if (!is(chosen, MESH, mesh) || !rules(&with)) continue;
    for (int model = 0; model < MODELS; model++)
      for (int kind = 0; kind < SCHEDULES && is(chosen, MODEL, model); kind++)
        if (bench.legal[model][mesh][kind] && is(chosen, SCHEDULE, kind)) return true;
  }
  return false;
}

static void find_legal(void) {
  ls_pairs_case chosen;
  for (int f = 0; f < FACTORS; f++) chosen.option[f] = LS_PAIRS_ANY;
  for (int model = 0; model < MODELS; model++)
    for (int mesh = 0; mesh < MESHES; mesh++)
      for (int kind = 0; kind < SCHEDULES; kind++) {
        chosen.option[MESH] = mesh;
        chosen.option[SCHEDULE] = kind;
        const ls_layout layout = layout_of(&chosen);
        bench.legal[model][mesh][kind] =
            (meshes[mesh].sizes[LS_LAYOUT_PP] > 1 || kind == USUAL_SCHEDULE) &&
            ls_test_is_legal(&bench.configs[model][0], &layout, SEQUENCES, SEQUENCE);
      }
}

static void train(const ls_pairs_case *chosen, const ls_device_options *device,
                  const ls_layout *layout, const char *name, ls_trajectory *made) {
  const int *option = chosen->option;
  const ls_experiment experiment = {.config = &bench.configs[option[MODEL]][option[DTYPE] == FP8],
                                    .sequences = SEQUENCES,
                                    .sequence = SEQUENCE,
                                    .seed = 5,
                                    .steps = STEPS,
                                    .learning_rate = rate,
                                    .offload_path = folder,
                                    .loss_scale = layout->compute == LS_F16 ? 1024 : 0,
                                    .deadline_s = 60,
                                    .device = *device};
  ls_error error = {0};
  if (ls_trajectory_run(arena, &experiment, layout, made, &error) != LS_OK)
    fail_msg("%s on %s: %s", name, device->kind, error.text);
}

/* Losses and norms alone. */
static double numbers_apart(const ls_trajectory *a, const ls_trajectory *b) {
  double worst = 0;
  for (int s = 0; s < STEPS; s++) {
    worst = fmax(worst, fabs(a->loss[s] / b->loss[s] - 1));
    worst = fmax(worst, fabs(a->norm[s] / b->norm[s] - 1));
    if (isnan(a->loss[s]) || isnan(a->norm[s])) return NAN;
  }
  return worst;
}

static const char *name_of(const ls_pairs_case *chosen, const ls_layout *layout) {
  static const char *const dtypes[] = {"fp32", "bf16", "fp16", "fp8"};
  const int *option = chosen->option;
  const char *text = ls_test_layout_print(arena, layout, models[option[MODEL]].name);
  text = ls_arena_printf(arena, "%s, %s, %s", text, dtypes[option[DTYPE]], engines[option[ENGINE]]);
  for (int f = 0; f < FACTORS; f++)
    if (f == RECOMPUTE || f == OFFLOAD || f == OPTIMIZER)
      text = ls_arena_printf(arena, "%s, %s %d", text, factors[f].name, option[f]);
  return text;
}

/* The worst of what differs, as a part of what is allowed. */
static double run_case(const ls_pairs_case *chosen) {
  const char *only = getenv("LS_CASE"), *where = "a loss or a norm";
  const ls_layout layout = layout_of(chosen);
  const char *name = name_of(chosen, &layout);
  const ls_device_options cpu = {.kind = "cpu"},
                          gpus = {.kind = "cuda", .engine = engines[chosen->option[ENGINE]]};
  ls_trajectory expected, found;
  if (only && !strstr(name, only)) return 0;
  train(chosen, &cpu, &layout, name, &expected);
  train(chosen, &gpus, &layout, name, &found);
  const bool exact = chosen->option[DTYPE] == 0;
  const double apart = exact ? ls_trajectory_difference(&found, &expected, &where)
                             : numbers_apart(&found, &expected);
  const double part = apart / (exact ? same : chosen->option[DTYPE] == FP8 ? coarse : near);
  if (!(part <= 1)) print_message("%s: %.3g in %s\n", name, apart, where);
  return isnan(part) ? INFINITY : part;
}

static void gpus_train_as_the_cpu_does(void **state) {
  (void)state;
  ls_pairs about = {.factors = FACTORS, .possible = is_possible, .seed = test_seed(SEED)};
  for (int f = 0; f < FACTORS; f++) about.options[f] = factors[f].options;
  assert_int_equal(ls_pipeline_kind_count, SCHEDULES);
  for (int model = 0; model < MODELS; model++)
    for (int fp8 = 0; fp8 < 2; fp8++) {
      ls_error error = {0};
      bench.configs[model][fp8] = ls_test_shape_config(arena, &models[model]);
      if (fp8 && ls_model_set_fp8(&bench.configs[model][fp8], &error) != LS_OK)
        fail_msg("%s", error.text);
    }
  find_legal();
  const ls_pairs_sample sample = ls_pairs_cover(arena, &about);
  print_message("seed %llu: %d cases have %d pairs of options, %d pairs cannot be\n",
                (unsigned long long)about.seed, sample.cases.count, sample.covered,
                sample.impossible);
  double worst[DTYPES] = {0};
  for (int c = 0; c < sample.cases.count; c++) {
    double *of = &worst[sample.cases.items[c].option[DTYPE]];
    *of = fmax(*of, run_case(&sample.cases.items[c]));
  }
  print_message(
      "worst, as a part of what is allowed: %.2g in fp32, %.2g bf16, %.2g fp16, %.2g fp8\n",
      worst[0], worst[1], worst[2], worst[FP8]);
  for (int d = 0; d < DTYPES; d++) assert_true(worst[d] <= 1);
  const ls_test_count wanted[] = {
      LS_TEST_COUNT(sample.cases.count, about.seed == SEED ? CASES : sample.cases.count),
      LS_TEST_COUNT(sample.covered, PAIRS), LS_TEST_COUNT(sample.impossible, IMPOSSIBLE)};
  ls_test_expect_counts(wanted, 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(gpus_train_as_the_cpu_does, set_up_cache, tear_down)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
