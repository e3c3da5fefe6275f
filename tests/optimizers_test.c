/* What optimizers make of gradients, parameter by parameter with settings of its own: against the
 * formulas in plain double, and in every kind of layout as on one device. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "check/check.h"
#include "lower/compile.h"
#include "support/layouts.h"
#include "support/program_faults.h"
#include "support/thinned.h"
#include "verify/equality.h"

enum { SEED = 20261125, MOST_STAGES = 4, MOST_PARAMETERS = 64 };

/* Those of one fused node; the others are those of optimizers_whole_test.c. */
static const ls_optimizer_kind fused[] = {LS_OPTIMIZER_ADAMW, LS_OPTIMIZER_SGD, LS_OPTIMIZER_LION,
                                          LS_OPTIMIZER_SCHEDULEFREE};
enum { FUSED = sizeof fused / sizeof *fused };
static const double learning_rate = 3e-3, tolerance = 1e-10;

/* By parameter: its own rate, its own decay, both, or as usual. */
static ls_parameter_settings settings_of(int p) {
  static const ls_parameter_settings kinds[] = {{0.1, -1}, {1, 0.7}, {1, -1}, {2.5, 0}, {0.5, 0.3}};
  return kinds[p % (int)(sizeof kinds / sizeof *kinds)];
}

static const ls_parameter_settings *settings_list(void) {
  static ls_parameter_settings list[MOST_PARAMETERS];
  for (int p = 0; p < MOST_PARAMETERS; p++) list[p] = settings_of(p);
  return list;
}

static ls_optimizer optimizer_of(ls_optimizer_kind kind) {
  return (ls_optimizer){.kind = kind,
                        .beta1 = 0.9,
                        .beta2 = 0.97,
                        .epsilon = 1e-6,
                        .weight_decay = 0.2,
                        .momentum = 0.8,
                        .warmup = 2,
                        .clip = 0.15}; /* below all norms */
}

static ls_experiment experiment_of(const ls_model_config *config, const char *folder) {
  return (ls_experiment){.config = config,
                         .sequences = LS_TEST_SEQUENCES,
                         .sequence = LS_TEST_SEQUENCE,
                         .settings = settings_list(),
                         .saved = true,
                         .learning_rate = learning_rate,
                         .offload_path = folder,
                         .seed = SEED};
}

static void run(ls_arena *arena, const ls_experiment *experiment, const ls_layout *layout,
                ls_trajectory *made) {
  ls_error error = {0};
  if (ls_trajectory_run(arena, experiment, layout, made, &error) != LS_OK)
    fail_msg("%s: %s", ls_test_layout_print(arena, layout, ""), error.text);
}

/* The two states of an element. */
typedef struct element {
  double master, first, second;
} element;

/* The mean of the fast weights, by squares of rates, of which warm-up has 1/2 and 1. */
static void step_schedulefree(const ls_optimizer *by, element *e, double gradient, double rate,
                              double decay, int step) {
  double all = 0, weight = 0;
  for (int s = 1; s <= step; s++) {
    const double part = fmin(1, s / by->warmup);
    weight = part * part;
    all += weight;
  }
  const double point = by->beta1 * e->master + (1 - by->beta1) * (e->master + e->first);
  e->second = by->beta2 * e->second + (1 - by->beta2) * gradient * gradient;
  const double deviation = sqrt(e->second / (1 - pow(by->beta2, step)));
  const double fast =
      e->master + e->first - rate * (gradient / (deviation + by->epsilon) + decay * point);
  e->master += weight / all * (fast - e->master);
  e->first = fast - e->master;
}

/* PyTorch's AdamW and SGD; Lion as its paper has it (arXiv 2302.06675, algorithm 2). */
static void step_element(const ls_optimizer *by, element *e, double gradient, double rate,
                         double decay, int step) {
  if (by->kind == LS_OPTIMIZER_LION) {
    const double mean = by->beta1 * e->first + (1 - by->beta1) * gradient;
    const double sign = mean > 0 ? 1 : mean < 0 ? -1 : 0;
    e->master -= rate * (sign + decay * e->master);
    e->first = by->beta2 * e->first + (1 - by->beta2) * gradient;
    return;
  }
  if (by->kind == LS_OPTIMIZER_SCHEDULEFREE) {
    step_schedulefree(by, e, gradient, rate, decay, step);
    return;
  }
  e->master *= 1 - rate * decay;
  if (by->kind == LS_OPTIMIZER_SGD) {
    e->first = by->momentum * e->first + gradient;
    e->master -= rate * e->first;
    return;
  }
  e->first = by->beta1 * e->first + (1 - by->beta1) * gradient;
  e->second = by->beta2 * e->second + (1 - by->beta2) * gradient * gradient;
  const double mean = e->first / (1 - pow(by->beta1, step));
  const double deviation = sqrt(e->second / (1 - pow(by->beta2, step)));
  e->master -= rate * mean / (deviation + by->epsilon);
}

/* How far a parameter ends from where its gradients should have brought it. */
static double distance(const ls_trajectory *found, const ls_trajectory *initial, int p, int ndim,
                       const ls_optimizer *by) {
  const ls_parameter_settings own = settings_of(p);
  const double usual = ndim >= 2 ? by->weight_decay : 0;
  const double decay = own.weight_decay >= 0 ? own.weight_decay : usual;
  double furthest = 0;
  for (int64_t i = 0; i < found->elements[p]; i++) {
    element e = {.master = initial->final[p][i]};
    for (int s = 0; s < LS_TRAJECTORY_STEPS; s++) {
      const double factor = fmin(1, by->clip / (found->norm[s] + 1e-6));
      const double gradient = factor * found->gradient[s * found->parameters + p][i];
      step_element(by, &e, gradient, learning_rate * own.rate, decay, s + 1);
      const double made = s == 0 ? found->first[p][i] : found->final[p][i];
      if (s == 0 || s == LS_TRAJECTORY_STEPS - 1) furthest = fmax(furthest, fabs(made - e.master));
    }
  }
  return furthest;
}

static void updates_are_the_formulas(void **state) {
  (void)state;
  for (int shape = 0; shape < LS_TEST_SHAPES; shape++)
    for (int kind = 0; kind < FUSED; kind++) {
      ls_arena *arena = ls_arena_create();
      const ls_model_config config = ls_test_shape_config(arena, &ls_test_shapes[shape]);
      ls_experiment experiment = experiment_of(&config, NULL);
      ls_layout layout = ls_layout_default();
      layout.compute = LS_F64;
      layout.optimizer = optimizer_of(fused[kind]);
      const ls_graph *graph =
          ls_test_model(arena, &config, &layout, LS_TEST_SEQUENCES, LS_TEST_SEQUENCE);
      ls_trajectory found, initial;
      run(arena, &experiment, &layout, &found);
      experiment.learning_rate = 0;
      run(arena, &experiment, &layout, &initial);
      assert_true(found.parameters <= MOST_PARAMETERS);
      for (int p = 0; p < found.parameters; p++) {
        assert_true(found.norm[0] > layout.optimizer.clip);
        const int ndim = graph->parameters.items[p].about.ndim;
        const double far = distance(&found, &initial, p, ndim, &layout.optimizer);
        if (!(far < 1e-14))
          fail_msg("%s, %s of %s: off by %.3g", ls_test_shapes[shape].name,
                   ls_optimizer_row_of(&layout.optimizer)->name, found.name[p], far);
      }
      ls_arena_destroy(&arena);
    }
}

/* Flat shards that cross parameters, tensor-parallel and replicated ones, stages, state that waits
 * elsewhere, and updates ahead of their norm. */
static const ls_layout layouts[] = {
    {.dp_shard = 3, .zero = 1, .microbatches = 1},
    {.dp_shard = 2, .zero = 2, .microbatches = 2},
    {.dp_shard = 4, .zero = 3, .microbatches = 1, .layers_per_unit = 2},
    {.dp_replicate = 2, .dp_shard = 3, .zero = 3, .microbatches = 2},
    {.dp_replicate = 3, .microbatches = 1},
    {.tp = 2, .sequence_parallel = true, .microbatches = 1},
    {.tp = 3, .dp_shard = 2, .zero = 3, .microbatches = 1},
    {.pp = 2, .dp_shard = 2, .zero = 1, .microbatches = 4},
    {.pp = 2, .tp = 2, .dp_shard = 2, .zero = 3, .microbatches = 2, .sequence_parallel = true},
    {.dp_shard = 2, .zero = 3, .microbatches = 1, .offload = {.optimizer = LS_TIER_HOST}},
    {.dp_shard = 2, .zero = 2, .microbatches = 1, .offload = {.optimizer = LS_TIER_NVME}},
    {.pp = 2, .microbatches = 4, .schedule = "zbh1", .post_validation = true},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

static ls_layout layout_of(int number, ls_optimizer_kind kind) {
  ls_layout made = layouts[number];
  for (int a = 0; a < LS_LAYOUT_AXES; a++)
    if (ls_layout_size(&made, a) == 0) ls_layout_set_size(&made, a, 1);
  made.ep = 1;
  made.compute = LS_F64;
  made.optimizer = optimizer_of(kind);
  if (made.offload.optimizer) made.offload.optimizer_fraction = 1;
  return made;
}

typedef struct compiled {
  ls_graph *graph;
  ls_layout layout;
  ls_program *stages[MOST_STAGES];
} compiled;

static compiled compile(ls_arena *arena, const ls_model_config *config, const ls_layout *layout) {
  compiled made = {.layout = *layout};
  ls_error error = {0};
  made.graph = ls_test_model(arena, config, layout, LS_TEST_SEQUENCES, LS_TEST_SEQUENCE);
  for (int p = 0; p < made.graph->parameters.count; p++)
    made.graph->parameters.items[p].settings = settings_of(p);
  ls_graph_backward(made.graph);
  if (ls_program_compile(made.graph, layout, LS_PROGRAM_STEP, made.stages, &error) != LS_OK)
    fail_msg("%s", error.text);
  return made;
}

static void expect_proof(const compiled *of, const char *refuted) {
  const ls_program *stages[MOST_STAGES];
  ls_error error = {0};
  for (int s = 0; s < of->layout.pp; s++) stages[s] = of->stages[s];
  const ls_status status = ls_check(of->graph, &of->layout, stages, NULL, &error);
  if (!refuted && status != LS_OK) fail_msg("%s", error.text);
  if (refuted && (status != LS_REFUTED || !strstr(error.text, refuted)))
    fail_msg("%s expected: %s", refuted, error.text);
}

/* The sign that Lion takes of a gradient that is zero but for rounding, as that of GPT-2's biases
 * of keys is, is another in each layout: of GPT-2 it is not asked for. */
static bool is_defined(int shape, ls_optimizer_kind kind) {
  return kind != LS_OPTIMIZER_LION || shape > 0;
}

/* Weights that are made of state on the device as a program begins neither wait elsewhere nor are
 * speculated. */
static bool is_refused(ls_arena *arena, const ls_model_config *config, const ls_layout *layout) {
  if (layout->optimizer.kind != LS_OPTIMIZER_SCHEDULEFREE ||
      (!layout->offload.optimizer && !layout->post_validation))
    return false;
  ls_program *stages[MOST_STAGES];
  ls_error error = {0};
  ls_graph *graph = ls_test_model(arena, config, layout, LS_TEST_SEQUENCES, LS_TEST_SEQUENCE);
  ls_graph_backward(graph);
  assert_int_equal(ls_program_compile(graph, layout, LS_PROGRAM_STEP, stages, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "optimizer.name=schedulefree"));
  assert_non_null(strstr(error.text, layout->post_validation ? "use post_validation=false"
                                                             : "use offload.optimizer=none"));
  return true;
}

static void run_shape(ls_arena *arena, int shape, ls_optimizer_kind kind, const char *folder) {
  const ls_model_config config = ls_test_shape_config(arena, &ls_test_shapes[shape]);
  const ls_experiment experiment = experiment_of(&config, folder);
  ls_layout single = ls_layout_default();
  single.compute = LS_F64;
  single.optimizer = optimizer_of(kind);
  ls_trajectory one, many;
  run(arena, &experiment, &single, &one);
  int alike = 0;
  for (int l = 0; l < LAYOUTS; l++) {
    const ls_layout layout = layout_of(l, kind);
    if (config.kv_heads % layout.tp != 0 || ls_test_left_out(l + shape, 3)) continue;
    if (is_refused(arena, &config, &layout)) {
      alike++;
      continue;
    }
    const compiled made = compile(arena, &config, &layout);
    expect_proof(&made, NULL);
    run(arena, &experiment, &layout, &many);
    const char *where, *name = ls_test_layout_print(arena, &layout, ls_test_shapes[shape].name);
    const double difference = ls_trajectory_difference(&many, &one, &where);
    if (!(difference <= tolerance))
      fail_msg("%s, %s: %.3g in %s", ls_optimizer_row_of(&layout.optimizer)->name, name, difference,
               where);
    alike++;
  }
  const int of = ls_test_thinned() ? 3 : 1;
  assert_true(alike >= LAYOUTS / of - 2); /* a tp of 2 or of 3 does not divide all */
}

static void every_layout_is_the_same_training(void **state) {
  (void)state;
  char folder[] = "/tmp/lockstep-optimizers-XXXXXX";
  assert_non_null(mkdtemp(folder));
  int runs = 0;
  for (int shape = 0; shape < LS_TEST_SHAPES; shape++)
    for (int kind = 0; kind < FUSED; kind++) {
      if (!is_defined(shape, fused[kind])) continue;
      ls_arena *arena = ls_arena_create();
      run_shape(arena, shape, fused[kind], folder);
      ls_arena_destroy(&arena);
      runs++;
    }
  assert_int_equal(runs, LS_TEST_SHAPES * FUSED - 1);
  rmdir(folder);
}

/* A parameter that is updated by another's settings, or by the usual ones. */
static void other_settings_are_disproved(void **state) {
  (void)state;
  for (int kind = 0; kind < FUSED; kind++) {
    ls_arena *arena = ls_arena_create();
    const ls_model_config config = ls_test_shape_config(arena, &ls_test_shapes[1]);
    const ls_layout layout = layout_of(2, fused[kind]);
    const compiled made = compile(arena, &config, &layout);
    ls_instruction *update =
        ls_test_need(made.stages[0], ls_optimizer_row_of(&layout.optimizer)->node[0].op, 0);
    expect_proof(&made, NULL);
    update->attributes.rate *= 2;
    expect_proof(&made, "has other settings than the layout");
    update->attributes.rate /= 2;
    update->attributes.weight_decay += 0.1;
    expect_proof(&made, "has other settings than the layout");
    update->attributes.weight_decay -= 0.1;
    made.graph->parameters.items[0].settings = (ls_parameter_settings){1, -1};
    expect_proof(&made, "has other settings than the layout");
    ls_arena_destroy(&arena);
  }
}

/* A step that takes its gradients at the mean, at stale weights or at another point. */
static void another_point_is_disproved(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const ls_model_config config = ls_test_shape_config(arena, &ls_test_shapes[1]);
  for (int l = 1; l < 3; l++) {
    const ls_layout layout = layout_of(l, LS_OPTIMIZER_SCHEDULEFREE);
    const compiled made = compile(arena, &config, &layout);
    ls_instruction *point = ls_test_need(made.stages[0], LS_OP_SCHEDULEFREE_POINT, 0);
    const ls_instruction right = *point;
    expect_proof(&made, NULL);
    point->attributes.beta1 /= 2;
    expect_proof(&made, "has other settings than the layout");
    *point = right;
    point->in[1] = point->in[0];
    expect_proof(&made, "expected the first moments of");
    *point = right;
    point->kind = LS_OP_CAST;
    point->inputs = 1;
    expect_proof(&made, "expected the point that gradients are taken at");
    *point = right;
    point->out[0] = point->in[1];
    expect_proof(&made, "makes the weights of");
  }
  ls_arena_destroy(&arena);
}

/* One state of a parameter, where AdamW has two. */
static void lion_keeps_one_moment(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const ls_model_config config = ls_test_shape_config(arena, &ls_test_shapes[1]);
  int64_t bytes[LS_OPTIMIZER_COUNT] = {0};
  for (int kind = 0; kind < FUSED; kind++) {
    const ls_layout layout = layout_of(0, fused[kind]);
    const ls_program *program = compile(arena, &config, &layout).stages[0];
    for (int b = 0; b < program->buffer_groups.count; b++)
      if (program->buffer_groups.items[b].category == LS_CATEGORY_MOMENTS)
        bytes[fused[kind]] += program->buffer_groups.items[b].bytes;
  }
  assert_true(bytes[LS_OPTIMIZER_LION] > 0);
  assert_int_equal(bytes[LS_OPTIMIZER_ADAMW], 2 * bytes[LS_OPTIMIZER_LION]);
  assert_int_equal(bytes[LS_OPTIMIZER_SGD], bytes[LS_OPTIMIZER_LION]);
  assert_int_equal(bytes[LS_OPTIMIZER_SCHEDULEFREE], bytes[LS_OPTIMIZER_ADAMW]);
  ls_arena_destroy(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(updates_are_the_formulas),
      cmocka_unit_test(every_layout_is_the_same_training),
      cmocka_unit_test(other_settings_are_disproved),
      cmocka_unit_test(another_point_is_disproved),
      cmocka_unit_test(lion_keeps_one_moment),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
