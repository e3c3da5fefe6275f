/* A mesh of axes that the product has no row for: "replicate twice" and "shard twice", as four
 * axes, in two orders; and a third of the meshes cut tokens, and units into shards, in another
 * order than their own. Nothing outside of this test knows of them, and every layout that can be
 * had so, a third of them for each model, is the same training as one device: in fp64 on the
 * reference kernels and the real collectives, its programs and its saving proved, every other
 * program saved and read back. */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "session/prove.h"
#include "support/equal_layouts.h"
#include "support/layouts.h"
#include "support/test_seed.h"

/* Counts that every run must reach, so that the matrix cannot empty itself. */
enum { RUN = 190, MOST_STAGES = 2, STEPS = 2 };

static uint64_t chosen_seed(void) {
  return test_seed_untold(20261121);
}

/* 2, 3 or 1: what divides the first of two axes off. */
static int first_factor(int ranks) {
  return ranks % 2 == 0 ? 2 : ranks % 3 == 0 ? 3 : 1;
}

/* How a layout's mesh is split. */
typedef struct axes_of {
  bool interleaved; /* shard, replicate, shard, replicate */
  bool reversed;    /* what several axes cut, the mesh's inner one cuts first */
} axes_of;

/* The mesh of a layout, its two data axes each as two. Data axes divide tokens before others. */
static ls_mesh split(const ls_mesh *usual, axes_of how) {
  const int replicate = usual->axes[LS_AXIS_DP_REPLICATE].size;
  const int shard = usual->axes[LS_AXIS_DP_SHARD].size;
  const int copies = first_factor(replicate), shards = first_factor(shard);
  const ls_axis data[4] = {{.name = "between",
                            .part = "replicate",
                            .role = LS_MESH_REPLICATE,
                            .shares = LS_SHARES_SEQUENCES,
                            .size = copies},
                           {.name = "within",
                            .part = "replicate",
                            .role = LS_MESH_REPLICATE,
                            .shares = LS_SHARES_SEQUENCES,
                            .size = replicate / copies},
                           {.name = "far",
                            .part = "shard",
                            .role = LS_MESH_SHARD,
                            .shares = LS_SHARES_SEQUENCES,
                            .size = shards},
                           {.name = "near",
                            .part = "shard",
                            .role = LS_MESH_SHARD,
                            .shares = LS_SHARES_SEQUENCES,
                            .size = shard / shards}};
  static const int orders[2][4] = {{0, 1, 2, 3}, {2, 0, 3, 1}};
  ls_mesh mesh = {0};
  ls_mesh_add(&mesh, &usual->axes[LS_AXIS_PP]);
  for (int a = 0; a < 4; a++) ls_mesh_add(&mesh, &data[orders[how.interleaved][a]]);
  ls_mesh_add(&mesh, &usual->axes[LS_AXIS_TP_KV]);
  ls_mesh_add(&mesh, &usual->axes[LS_AXIS_TP_GROUP]);
  for (int a = 1; a < mesh.count && how.reversed; a++) {
    ls_axis *axis = &mesh.axes[a];
    axis->order[LS_CUT_FLAT] = mesh.count - a;
    axis->order[LS_CUT_TOKENS] = axis->role == LS_MESH_TENSOR ? 2 * mesh.count - a : mesh.count - a;
  }
  return mesh;
}

static void prove_saving(const ls_experiment *experiment, const ls_layout *layout,
                         const char *name) {
  ls_arena *arena = ls_arena_create();
  const ls_test_step step = ls_test_compile(arena, experiment, layout);
  ls_saving_report saving;
  ls_error error = {0};
  if (ls_prove_saving(experiment->config, step.graph, (const ls_program *const *)step.stages,
                      layout->pp, &saving, &error) != LS_OK)
    fail_msg("%s: %s", name, error.text);
  ls_arena_destroy(&arena);
}

typedef struct matrix {
  const ls_test_shape *shape;
  int number; /* of the shape: it has each third layout, from this one on */
  ls_experiment experiment;
  ls_trajectory reference;
  ls_test_tally tally;
} matrix;

static void run_case(matrix *of, ls_layout layout, axes_of how) {
  ls_arena *arena = ls_arena_create();
  const ls_experiment *experiment = &of->experiment;
  const ls_graph *graph = ls_test_model(arena, experiment->config, &layout, experiment->sequences,
                                        experiment->sequence);
  ls_error error = {0};
  ls_mesh usual;
  if (ls_layout_mesh(&layout, graph, &usual, &error) == LS_OK) {
    const ls_mesh mesh = split(&usual, how);
    layout.mesh = &mesh;
    const char *name =
        ls_arena_printf(arena, "%s%s%s", ls_test_layout_print(arena, &layout, of->shape->name),
                        how.interleaved ? ", interleaved" : "", how.reversed ? ", reversed" : "");
    of->experiment.saved = of->tally.run % 2;
    prove_saving(experiment, &layout, name);
    ls_test_tally_layout(&of->tally, experiment, &of->reference, &layout, name);
  }
  ls_arena_destroy(&arena);
}

/* Whether splitting makes another mesh of it. */
static bool is_split(const ls_layout *layout) {
  return first_factor(layout->dp_replicate) != layout->dp_replicate ||
         first_factor(layout->dp_shard) != layout->dp_shard ||
         (layout->dp_replicate > 1 && layout->dp_shard > 1);
}

static void run_model(matrix *of) {
  ls_arena *arena = ls_arena_create();
  const ls_model_config config = ls_test_shape_config(arena, of->shape);
  of->experiment = (ls_experiment){.config = &config,
                                   .sequences = LS_TEST_SEQUENCES,
                                   .sequence = LS_TEST_SEQUENCE,
                                   .seed = chosen_seed(),
                                   .learning_rate = 0.01,
                                   .steps = STEPS};
  ls_test_one_device(arena, &of->experiment, of->shape->name, &of->reference);
  const ls_test_layouts all = ls_test_layouts_all(arena);
  for (int l = 0; l < all.count; l++) {
    ls_layout layout = all.items[l];
    if (!is_split(&layout) || l % LS_TEST_SHAPES != of->number) continue;
    layout.reduce = l % 5 == 0 ? LS_WHEN_STEP : LS_WHEN_AUTO;
    const axes_of how = {l / LS_TEST_SHAPES & 1, of->tally.run % 3 == 2};
    run_case(of, layout, how);
    layout.pp = MOST_STAGES;
    if (ls_layout_ranks(&layout) <= 16 && l % 4 == 0) run_case(of, layout, how);
  }
  ls_arena_destroy(&arena);
}

static void test_axes_without_a_row_train_alike(void **state) {
  (void)state;
  ls_test_tally all = {0};
  print_message("seed %llu (set LS_SEED for another)\n", (unsigned long long)chosen_seed());
  for (int m = 0; m < LS_TEST_SHAPES; m++) {
    matrix of = {.shape = &ls_test_shapes[m], .number = m};
    run_model(&of);
    all.run += of.tally.run;
    all.refused += of.tally.refused;
    all.failed += of.tally.failed;
    all.worst = fmax(all.worst, of.tally.worst);
  }
  LS_TEST_EXPECT(&all, RUN, 0);
}

/* Which collectives a unit's gradient goes through on the four axes, in the words of its reasons.
 */
static void test_reasons_name_the_axes(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const ls_model_config config = ls_test_shape_config(arena, &ls_test_shapes[1]);
  const ls_experiment experiment = {
      .config = &config, .sequences = LS_TEST_SEQUENCES, .sequence = LS_TEST_SEQUENCE};
  ls_layout layout = ls_test_layout_default();
  layout.dp_replicate = layout.dp_shard = 4;
  ls_mesh usual;
  ls_error error = {0};
  const ls_graph *graph =
      ls_test_model(arena, &config, &layout, LS_TEST_SEQUENCES, LS_TEST_SEQUENCE);
  assert_int_equal(ls_layout_mesh(&layout, graph, &usual, &error), LS_OK);
  const ls_mesh mesh = split(&usual, (axes_of){false, false});
  layout.mesh = &mesh;
  const ls_program *program = ls_test_compile(arena, &experiment, &layout).stages[0];
  static const char *const expected[] = {"parameters of layers.0: S(flat) on far x near -> R",
                                         "gradient of layers.0: P(sum) on far x near -> S(flat)",
                                         "gradient of layers.0: P(sum) on between x within -> R"};
  for (size_t e = 0; e < sizeof expected / sizeof *expected; e++) {
    int found = 0;
    for (int i = 0; i < program->instructions.count; i++) {
      const char *reason = program->instructions.items[i].reason;
      found += reason && strcmp(reason, expected[e]) == 0;
    }
    if (!found) fail_msg("no collective because of \"%s\"", expected[e]);
  }
  ls_arena_destroy(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_reasons_name_the_axes),
                                     cmocka_unit_test(test_axes_without_a_row_train_alike)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
