/* Everything together: model, mesh of up to 16 ranks, schedule, ZeRO, sequence parallelism,
 * microbatches, when weights are gathered and gradients reduced, recomputation, units, slices of
 * logits, optimizer, clipping, what is frozen, what is offloaded where and how far ahead transfers
 * begin. Every pair of options of two of them occurs in a run that equals one device to 1e-10 in
 * fp64 on the reference kernels (losses, norms, every gradient, the parameters), and whose program
 * is proved as it is, as is that of its evaluation. An option
 * counts only where it changes the program: ZeRO where there is something to shard, sequence
 * parallelism where there is tp. Pairs that cannot be are counted; all counts are golden.
 *
 * LS_LAYOUTS=all adds two products whole, with the other factors drawn: (mesh, schedule, ZeRO,
 * sequence parallelism, recomputation) and (schedule, ZeRO, sequence parallelism, what is offloaded
 * where). LS_SEED: another sample. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "pipeline/pipeline.h"
#include "support/equal_layouts.h"
#include "support/layouts.h"
#include "support/pairs.h"
#include "support/test_seed.h"

enum {
  SHAPE,
  MESH,
  SCHEDULE,
  ZERO,
  SEQUENCE_PARALLEL,
  MICROBATCHES,
  GATHER,
  REDUCE,
  RECOMPUTE,
  LAYERS_PER_UNIT,
  OPTIMIZER,
  CLIP,
  OFFLOAD_OPTIMIZER,
  OFFLOAD_PARAMETERS,
  OFFLOAD_ACTIVATIONS,
  POST_VALIDATION,
  SLICES,
  FREEZE,
  PREFETCH,
  FACTORS
};

/* pp, dp_replicate, dp_shard, tp. */
static const int meshes[][4] = {
    {1, 1, 1, 1}, {1, 2, 1, 1}, {1, 1, 2, 1}, {1, 1, 1, 2}, {1, 2, 2, 2}, {1, 1, 2, 6},
    {1, 1, 4, 4}, {2, 1, 1, 1}, {2, 2, 1, 1}, {2, 1, 2, 1}, {2, 1, 3, 1}, {2, 1, 1, 2},
    {2, 1, 2, 2}, {2, 2, 2, 2}, {2, 1, 2, 3}, {3, 1, 1, 1}, {3, 1, 2, 1}, {3, 1, 1, 4},
    {4, 1, 1, 1}, {4, 1, 2, 1}, {4, 2, 2, 1}, {4, 1, 1, 3}, {4, 1, 2, 2}, {8, 1, 1, 1},
    {8, 1, 2, 1}, {8, 1, 1, 2},
};
static const int microbatch_counts[] = {1, 3, 4, 8};
/* Deeper than the shapes say, so that schedules of two chunks fit on four stages. */
static const int layers[] = {4, 5, 6};
_Static_assert(sizeof layers / sizeof *layers == LS_TEST_SHAPES, "each shape needs its layers");

enum {
  MESHES = sizeof meshes / sizeof *meshes,
  KINDS = 10,            /* of ls_pipeline_kinds */
  SCHEDULES = KINDS + 1, /* and a user's own */
  COUNTS = 4,            /* of microbatches */
  SEQUENCES = 48,
  SEQUENCE = 3,
  MOST_STAGES = 16,
  MOST_SEGMENTS = 8,
  SEED = 20261121,
};

/* Golden. */
enum {
  LEGAL_CORES = 2151,
  SAMPLE_RUN = 264,
  PAIRS = 3335,
  IMPOSSIBLE = 221,
  ALL_OF_MESHES = 7140,
  ALL_OF_OFFLOADS = 2112,
};

static void set_mesh(ls_layout *layout, int option) {
  layout->pp = meshes[option][0];
  layout->dp_replicate = meshes[option][1];
  layout->dp_shard = meshes[option][2];
  layout->tp = meshes[option][3];
}

static void set_schedule(ls_layout *layout, int option) {
  if (option < KINDS) layout->schedule = ls_pipeline_kinds[option].name;
}

static void set_zero(ls_layout *layout, int option) {
  layout->zero = option;
}

static void set_sequence_parallel(ls_layout *layout, int option) {
  layout->sequence_parallel = option;
}

static void set_microbatches(ls_layout *layout, int option) {
  layout->microbatches = microbatch_counts[option];
}

static void set_gather(ls_layout *layout, int option) {
  layout->gather = (ls_when)option;
}

static void set_reduce(ls_layout *layout, int option) {
  layout->reduce = (ls_when)option;
}

#define CHEAP                   \
  {                             \
    .has = {                    \
      [LS_OP_LAYERNORM] = true, \
      [LS_OP_RMSNORM] = true,   \
      [LS_OP_GELU] = true,      \
      [LS_OP_SWIGLU] = true,    \
      [LS_OP_ROPE] = true       \
    }                           \
  }
#define ATTENTION                       \
  {                                     \
    .has = { [LS_OP_ATTENTION] = true } \
  }
#define PRODUCTS                                          \
  {                                                       \
    .has = { [LS_OP_LINEAR] = true, [LS_OP_BIAS] = true } \
  }

/* As a budget chooses: each layer its own. */
static const ls_op_set by_segment[MOST_SEGMENTS] = {{{false}}, LS_EVERY_OP, CHEAP,    {{false}},
                                                    ATTENTION, LS_EVERY_OP, PRODUCTS, {{false}}};

/* None, full by layer, full by groups of layers, selective, attention, listed ops, by layer. */
static void set_recompute(ls_layout *layout, int option) {
  static const ls_op_set ops[] = {{{false}}, LS_EVERY_OP, LS_EVERY_OP, CHEAP,
                                  ATTENTION, PRODUCTS,    {{false}}};
  layout->recompute = ops[option];
  layout->recompute_layers = option == 2 ? 2 : 1;
  if (option == 6) layout->recompute_of = by_segment;
}

static void set_layers_per_unit(ls_layout *layout, int option) {
  layout->layers_per_unit = 1 + option;
}

static void set_optimizer(ls_layout *layout, int option) {
  if (!option) return;
  layout->optimizer.kind = LS_OPTIMIZER_SGD;
  layout->optimizer.momentum = 0.9;
}

static void set_clip(ls_layout *layout, int option) {
  layout->optimizer.clip = option ? 0 : 0.15; /* below all norms, of a head alone too */
}

/* None, host, nvme, half of it on nvme. */
static void set_offload_optimizer(ls_layout *layout, int option) {
  layout->offload.optimizer = option == 3 ? LS_TIER_NVME : (ls_tier)option;
  layout->offload.optimizer_fraction = option == 3 ? 0.5 : 1;
}

static void set_offload_parameters(ls_layout *layout, int option) {
  layout->offload.parameters = (ls_tier)option;
}

static void set_offload_activations(ls_layout *layout, int option) {
  layout->offload.activations = (ls_tier)option;
}

static void set_post_validation(ls_layout *layout, int option) {
  layout->post_validation = option;
}

/* Three slices of logits, the last one shorter, or two where a rank has three tokens. */
static void set_slices(ls_layout *layout, int option) {
  const int64_t tokens =
      SEQUENCES * SEQUENCE / layout->microbatches / layout->dp_replicate / layout->dp_shard;
  if (option) layout->logits_rows = tokens / 3 + 1;
}

/* Begun where they are waited for; one unit ahead; three. */
static void set_prefetch(ls_layout *layout, int option) {
  layout->prefetch = option == 2 ? 3 : option;
}

/* None; what lies below the middle of the model; parts of every layer; all but the head. */
enum { FREEZES = 4, MOST_FROZEN = 4 };
static const char *const frozen[FREEZES][MOST_FROZEN] = {
    {0},
    {"embedding", "layers.0-1"},
    {"layers.*.norm", "layers.*.mlp.*", "head.norm"},
    {"embedding", "layers.*"},
};

/* A new factor is a row here and above; what it needs of others is said in `rules`. */
static const struct factor {
  const char *name;
  int options;
  void (*set)(ls_layout *layout, int option);
} factors[FACTORS] = {
    [SHAPE] = {"model", LS_TEST_SHAPES, NULL},
    [MESH] = {"mesh", MESHES, set_mesh},
    [SCHEDULE] = {"schedule", SCHEDULES, set_schedule},
    [ZERO] = {"ZeRO", LS_DATA_STRATEGY_COUNT, set_zero},
    [SEQUENCE_PARALLEL] = {"sequence parallel", 2, set_sequence_parallel},
    [MICROBATCHES] = {"microbatches", COUNTS, set_microbatches},
    [GATHER] = {"gather", 3, set_gather},
    [REDUCE] = {"reduce", 3, set_reduce},
    [RECOMPUTE] = {"recompute", 7, set_recompute},
    [LAYERS_PER_UNIT] = {"layers per unit", 2, set_layers_per_unit},
    [OPTIMIZER] = {"optimizer", 2, set_optimizer},
    [CLIP] = {"clip", 2, set_clip},
    [OFFLOAD_OPTIMIZER] = {"offload.optimizer", 4, set_offload_optimizer},
    [OFFLOAD_PARAMETERS] = {"offload.parameters", LS_TIER_COUNT, set_offload_parameters},
    [OFFLOAD_ACTIVATIONS] = {"offload.activations", LS_TIER_COUNT, set_offload_activations},
    [POST_VALIDATION] = {"post-validation", 2, set_post_validation},
    [SLICES] = {"slices of logits", 2, set_slices},
    [FREEZE] = {"freeze", FREEZES, NULL},
    [PREFETCH] = {"prefetch", 3, set_prefetch},
};

typedef struct bench {
  ls_arena *arena;
  const char *folder; /* of the drive's tier */
  ls_model_config configs[LS_TEST_SHAPES];
  /* What the compiler allows; the other factors refuse nothing. */
  bool legal[LS_TEST_SHAPES][MESHES][SCHEDULES][COUNTS];
  int legal_count;
  /* One device, by optimizer, clip and what is frozen. */
  ls_trajectory references[LS_TEST_SHAPES][2][2][FREEZES];
  bool made[LS_TEST_SHAPES][2][2][FREEZES];
  int steps;
} bench;

static uint64_t chosen_seed(void) {
  return test_seed_untold(SEED);
}

static double processor_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* 1F1B, of which every other microbatch's backward pass is split, its weight half put off to the
 * end: none of the named schedules. */
static void give_own_schedule(ls_arena *arena, ls_layout *layout) {
  ls_error error = {0};
  const ls_pipeline_kind *kind;
  ls_pipeline *own;
  if (ls_pipeline_kind_find("1f1b", &kind, &error) != LS_OK ||
      ls_pipeline_make(arena, kind, layout->pp, 1, layout->microbatches, &own, &error) != LS_OK)
    fail_msg("%s", error.text);
  for (int s = 0; s < layout->pp; s++)
    for (int i = 0, passes = own->lists[s].count; i < passes; i++) {
      ls_pipeline_pass *pass = &own->lists[s].items[i];
      if (pass->kind != LS_PASS_BACKWARD || pass->microbatch % 2) continue;
      pass->kind = LS_PASS_INPUT;
      const ls_pipeline_pass later = {LS_PASS_WEIGHT, pass->microbatch, pass->chunk};
      *LS_APPEND(arena, &own->lists[s]) = later;
    }
  char *text = NULL;
  FILE *stream = open_memstream(&text, &layout->csv_bytes);
  assert_non_null(stream);
  ls_pipeline_write_csv(own, stream);
  assert_int_equal(fclose(stream), 0);
  layout->csv = ls_arena_strdup(arena, text);
  layout->schedule = "own.csv";
  free(text);
}

static ls_layout layout_of(ls_arena *arena, const ls_pairs_case *chosen) {
  ls_layout layout = ls_test_layout_default();
  layout.compute = LS_F64;
  layout.optimizer.clip = 0;
  for (int f = 0; f < FACTORS; f++)
    if (factors[f].set && chosen->option[f] != LS_PAIRS_ANY)
      factors[f].set(&layout, chosen->option[f]);
  if (!layout.schedule) give_own_schedule(arena, &layout);
  if (layout.recompute_of) layout.recompute_of_count = layers[chosen->option[SHAPE]] + 2;
  return layout;
}

static bool is_legal(const bench *with, const ls_pairs_case *chosen) {
  ls_arena *arena = ls_arena_create();
  const ls_layout layout = layout_of(arena, chosen);
  const bool legal =
      ls_test_is_legal(&with->configs[chosen->option[SHAPE]], &layout, SEQUENCES, SEQUENCE);
  ls_arena_destroy(&arena);
  return legal;
}

static void find_legal(bench *with) {
  ls_pairs_case chosen;
  for (int f = 0; f < FACTORS; f++) chosen.option[f] = LS_PAIRS_ANY;
  for (int shape = 0; shape < LS_TEST_SHAPES; shape++)
    for (int mesh = 0; mesh < MESHES; mesh++)
      for (int schedule = 0; schedule < SCHEDULES; schedule++)
        for (int m = 0; m < COUNTS; m++) {
          chosen.option[SHAPE] = shape;
          chosen.option[MESH] = mesh;
          chosen.option[SCHEDULE] = schedule;
          chosen.option[MICROBATCHES] = m;
          const bool legal = is_legal(with, &chosen);
          with->legal[shape][mesh][schedule][m] = legal;
          with->legal_count += legal;
        }
}

static bench *set_up(void) {
  assert_int_equal(ls_pipeline_kind_count, KINDS);
  ls_arena *arena = ls_arena_create();
  bench *with = LS_NEW(arena, bench);
  with->arena = arena;
  char folder[] = "/tmp/matrix_options_XXXXXX";
  assert_non_null(mkdtemp(folder));
  with->folder = ls_arena_strdup(arena, folder);
  for (int shape = 0; shape < LS_TEST_SHAPES; shape++) {
    with->configs[shape] = ls_test_shape_config(arena, &ls_test_shapes[shape]);
    with->configs[shape].layers = layers[shape];
  }
  find_legal(with);
  return with;
}

static void tear_down(bench *with) {
  rmdir(with->folder);
  ls_arena *arena = with->arena;
  ls_arena_destroy(&arena);
}

static bool is(const ls_pairs_case *chosen, int factor, int option) {
  return chosen->option[factor] == option || chosen->option[factor] == LS_PAIRS_ANY;
}

/* Whether every option that is chosen has its effect, and none is refused beside the others:
 * parameters that all ranks of dp_shard hold whole do not leave the device, and what leaves it goes
 * once a step, which post-validation may begin twice. */
static bool rules(const ls_pairs_case *chosen) {
  const int *option = chosen->option;
  if (option[GATHER] > 0 && !is(chosen, ZERO, 3)) return false;
  if (option[REDUCE] > 0 && !is(chosen, ZERO, 2) && !is(chosen, ZERO, 3)) return false;
  if (option[POST_VALIDATION] == 1 &&
      !(is(chosen, OFFLOAD_OPTIMIZER, 0) && is(chosen, OFFLOAD_PARAMETERS, 0) &&
        is(chosen, OFFLOAD_ACTIVATIONS, 0)))
    return false;
  if (option[MESH] == LS_PAIRS_ANY) return true;
  const int *mesh = meshes[option[MESH]];
  if (option[POST_VALIDATION] == 1 && mesh[0] == 1) return false;
  const bool shards = option[ZERO] > 0 || option[GATHER] > 0 || option[REDUCE] > 0;
  if (shards && mesh[2] == 1) return false;
  if (option[OFFLOAD_PARAMETERS] > 0 && mesh[2] > 1 && !is(chosen, ZERO, 3)) return false;
  return option[SEQUENCE_PARALLEL] != 1 || mesh[3] > 1;
}

static bool is_possible(const ls_pairs_case *chosen, const void *context) {
  const bench *with = context;
  if (!rules(chosen)) return false;
  ls_pairs_case with_mesh = *chosen;
  for (int mesh = 0; mesh < MESHES; mesh++) {
    with_mesh.option[MESH] = mesh;
    if (!is(chosen, MESH, mesh) || !rules(&with_mesh)) continue;
    for (int shape = 0; shape < LS_TEST_SHAPES; shape++)
      for (int schedule = 0; schedule < SCHEDULES && is(chosen, SHAPE, shape); schedule++)
        for (int m = 0; m < COUNTS && is(chosen, SCHEDULE, schedule); m++)
          if (with->legal[shape][mesh][schedule][m] && is(chosen, MICROBATCHES, m)) return true;
  }
  return false;
}

static ls_pairs factors_of(const bench *with) {
  ls_pairs about = {
      .factors = FACTORS, .possible = is_possible, .context = with, .seed = chosen_seed()};
  for (int f = 0; f < FACTORS; f++) about.options[f] = factors[f].options;
  return about;
}

static ls_experiment experiment_of(const bench *with, const ls_pairs_case *chosen) {
  const char *const *names = frozen[chosen->option[FREEZE]];
  int count = 0;
  while (count < MOST_FROZEN && names[count]) count++;
  return (ls_experiment){.config = &with->configs[chosen->option[SHAPE]],
                         .freeze = names,
                         .freeze_count = count,
                         .sequences = SEQUENCES,
                         .sequence = SEQUENCE,
                         .learning_rate = 1e-2,
                         .seed = 5,
                         .steps = with->steps,
                         .offload_path = with->folder,
                         .deadline_s = 120};
}

static const ls_trajectory *reference_of(bench *with, const ls_pairs_case *chosen) {
  const int shape = chosen->option[SHAPE], optimizer = chosen->option[OPTIMIZER];
  const int clip = chosen->option[CLIP], freeze = chosen->option[FREEZE];
  ls_trajectory *reference = &with->references[shape][optimizer][clip][freeze];
  if (with->made[shape][optimizer][clip][freeze]) return reference;
  with->made[shape][optimizer][clip][freeze] = true;
  ls_layout one = ls_test_layout_default();
  one.compute = LS_F64;
  set_optimizer(&one, optimizer);
  set_clip(&one, clip);
  const ls_experiment experiment = experiment_of(with, chosen);
  ls_error error = {0};
  if (ls_trajectory_run(with->arena, &experiment, &one, reference, &error) != LS_OK)
    fail_msg("%s on one device: %s", ls_test_shapes[shape].name, error.text);
  for (int s = 0; s < with->steps && one.optimizer.clip > 0; s++)
    assert_true(reference->norm[s] > 1.1 * one.optimizer.clip);
  return reference;
}

static const char *print_case(ls_arena *arena, const ls_pairs_case *chosen,
                              const ls_layout *layout) {
  const char *text =
      ls_arena_printf(arena, "%s, %s, %d microbatches", ls_test_shapes[chosen->option[SHAPE]].name,
                      ls_layout_print(arena, layout), layout->microbatches);
  for (int f = 0; f < FACTORS; f++)
    if (f != SHAPE && f != MESH && f != SCHEDULE && f != MICROBATCHES)
      text = ls_arena_printf(arena, "%s, %s %d", text, factors[f].name, chosen->option[f]);
  return text;
}

static void run_case(bench *with, const ls_pairs_case *chosen, ls_test_tally *tally) {
  const ls_trajectory *reference = reference_of(with, chosen);
  ls_arena *arena = ls_arena_create();
  const ls_layout layout = layout_of(arena, chosen);
  const ls_experiment experiment = experiment_of(with, chosen);
  ls_test_tally_layout(tally, &experiment, reference, &layout, print_case(arena, chosen, &layout));
  ls_arena_destroy(&arena);
}

static void report(double started) {
  print_message("%.0f s of one core\n", processor_seconds() - started);
}

static void test_every_pair_of_options_equals_one_device(void **state) {
  (void)state;
  bench *with = set_up();
  with->steps = 3;
  const double started = processor_seconds();
  const ls_pairs about = factors_of(with);
  const ls_pairs_sample sample = ls_pairs_cover(with->arena, &about);
  print_message("%d of %d choices of model, mesh, schedule and microbatches are legal\n",
                with->legal_count, LS_TEST_SHAPES * MESHES * SCHEDULES * COUNTS);
  print_message("seed %llu: %d cases have %d pairs of options, %d pairs cannot be\n",
                (unsigned long long)about.seed, sample.cases.count, sample.covered,
                sample.impossible);
  ls_test_tally tally = {0};
  for (int c = 0; c < sample.cases.count; c++) run_case(with, &sample.cases.items[c], &tally);
  report(started);
  LS_TEST_EXPECT(&tally, about.seed == SEED ? SAMPLE_RUN : sample.cases.count, 0);
  const ls_test_count wanted[] = {LS_TEST_COUNT(with->legal_count, LEGAL_CORES),
                                  LS_TEST_COUNT(sample.covered, PAIRS),
                                  LS_TEST_COUNT(sample.impossible, IMPOSSIBLE)};
  ls_test_expect_counts(wanted, 3);
  tear_down(with);
}

/* The next choice of the factors that are gone through; false: there is none. */
static bool next_choice(ls_pairs_case *chosen, const int *through, int count) {
  for (int i = 0; i < count; i++) {
    if (++chosen->option[through[i]] < factors[through[i]].options) return true;
    chosen->option[through[i]] = 0;
  }
  return false;
}

/* Every possible choice of these factors, with the others drawn. */
static void run_product(const int *through, int count, int expected) {
  bench *with = set_up();
  with->steps = 2;
  const double started = processor_seconds();
  const ls_pairs about = factors_of(with);
  ls_test_tally of = {0};
  ls_pairs_case chosen;
  for (int f = 0; f < FACTORS; f++) chosen.option[f] = LS_PAIRS_ANY;
  for (int i = 0; i < count; i++) chosen.option[through[i]] = 0;
  do {
    if (!is_possible(&chosen, with)) continue;
    ls_pairs_case whole = chosen;
    ls_pairs_complete(&about, &whole, (uint64_t)of.run);
    run_case(with, &whole, &of);
    if (of.run % 500 == 0) print_message("%d of %d run, %d failed\n", of.run, expected, of.failed);
  } while (next_choice(&chosen, through, count));
  report(started);
  LS_TEST_EXPECT(&of, expected, 0);
  tear_down(with);
}

static void test_product_of_meshes_and_recomputation(void **state) {
  (void)state;
  static const int through[] = {MESH, SCHEDULE, ZERO, SEQUENCE_PARALLEL, RECOMPUTE};
  run_product(through, sizeof through / sizeof *through, ALL_OF_MESHES);
}

static void test_product_of_offloads(void **state) {
  (void)state;
  static const int through[] = {SCHEDULE,           ZERO,
                                SEQUENCE_PARALLEL,  OFFLOAD_OPTIMIZER,
                                OFFLOAD_PARAMETERS, OFFLOAD_ACTIVATIONS};
  run_product(through, sizeof through / sizeof *through, ALL_OF_OFFLOADS);
}

int main(void) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  const struct CMUnitTest pairwise[] = {
      cmocka_unit_test(test_every_pair_of_options_equals_one_device)};
  const struct CMUnitTest whole[] = {
      cmocka_unit_test(test_product_of_meshes_and_recomputation),
      cmocka_unit_test(test_product_of_offloads),
  };
  const int failed = cmocka_run_group_tests(pairwise, NULL, NULL);
  return ls_test_all_layouts() ? failed + cmocka_run_group_tests(whole, NULL, NULL) : failed;
}
