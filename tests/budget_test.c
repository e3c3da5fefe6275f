/* Recomputation by budget: the program fits, no other choice of the menu that fits costs less, what
 * cannot fit is refused, and the work done again is the work that was said. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lower/budget.h"
#include "support/layouts.h"
#include "verify/equality.h"

#define NORMS                                                                \
  [LS_OP_LAYERNORM] = true, [LS_OP_RMSNORM] = true, [LS_OP_HEADNORM] = true, \
  [LS_OP_ROW_SCALE] = true, [LS_OP_GELU] = true, [LS_OP_SWIGLU] = true

static const ls_op_set menu[] = {{{false}},
                                 {.has = {NORMS}},
                                 {.has = {NORMS, [LS_OP_ROPE] = true}},
                                 {.has = {[LS_OP_ATTENTION] = true}},
                                 {.has = {NORMS, [LS_OP_ATTENTION] = true}},
                                 {.has = {NORMS, [LS_OP_ROPE] = true, [LS_OP_ATTENTION] = true}},
                                 LS_EVERY_OP};
enum { MENU = sizeof menu / sizeof *menu, BUDGETS = 12, MOST_LAYERS = 3 };

typedef struct subject {
  ls_arena *arena;
  ls_model_config config;
  ls_graph *graph;
  ls_layout layout;
  int layers, first_layer; /* segments */
} subject;

static bool is_layer(const subject *s, int segment) {
  return s->graph->segments.items[segment].layer >= 0;
}

static subject make_subject(const char *model, int layers, int64_t sequences, int64_t sequence) {
  subject s = {.arena = ls_arena_create(), .layout = ls_layout_default()};
  ls_error error = {0};
  if (ls_model_find(s.arena, model, &s.config, &error) != LS_OK) fail_msg("%s", error.text);
  s.config.layers = layers;
  const ls_build_options options = {.tokens = sequences * sequence, .sequence = sequence};
  if (ls_model_build(s.arena, &s.config, &options, &s.graph, &error) != LS_OK)
    fail_msg("%s", error.text);
  ls_graph_backward(s.graph);
  while (!is_layer(&s, s.first_layer)) s.first_layer++;
  s.layers = layers;
  return s;
}

static int64_t bytes_of(const subject *s, const ls_layout *layout, double *again) {
  ls_program *stages[8];
  ls_error error = {0};
  ls_arena *arena = ls_arena_create();
  ls_graph graph = *s->graph;
  graph.arena = arena;
  if (ls_program_compile(&graph, layout, LS_PROGRAM_STEP, stages, &error) != LS_OK)
    fail_msg("%s", error.text);
  int64_t most = 0;
  for (int stage = 0; stage < layout->pp; stage++)
    if (ls_program_bytes(stages[stage]) > most) most = ls_program_bytes(stages[stage]);
  if (again) *again = stages[0]->recomputed_flops;
  ls_arena_destroy(&arena);
  return most;
}

/* A device that does 14 flops in the time of a byte from memory, and 64 in that of one sent. */
static const ls_work_rates rates = {200e9, 14e9, 3e9};

static double work_of(const subject *s, const ls_layout *layout) {
  double work;
  ls_error error = {0};
  if (ls_budget_seconds(s->graph, layout, &rates, &work, &error) != LS_OK)
    fail_msg("%s", error.text);
  return work;
}

static ls_status choose(const subject *s, ls_layout *layout, int64_t bytes, ls_error *error) {
  const ls_budget budget = {.bytes = bytes, .rates = rates};
  return ls_budget_choose(s->graph, layout, &budget, error);
}

/* Bytes and work of every choice there is. */
typedef struct every_choice {
  int count;
  int64_t bytes[343];
  double work[343];
} every_choice;

static void try_all(const subject *s, every_choice *all) {
  all->count = 1;
  for (int l = 0; l < s->layers; l++) all->count *= MENU;
  ls_op_set *sets = LS_NEW_ARRAY(s->arena, ls_op_set, s->graph->segments.count + 1);
  ls_layout layout = s->layout;
  layout.recompute_of = sets;
  layout.recompute_of_count = s->graph->segments.count;
  for (int n = 0; n < all->count; n++) {
    for (int l = 0, rest = n; l < s->layers; l++, rest /= MENU)
      sets[s->first_layer + l] = menu[rest % MENU];
    all->bytes[n] = bytes_of(s, &layout, NULL);
    all->work[n] = work_of(s, &layout);
  }
}

static void test_no_choice_that_fits_costs_less(void **state) {
  (void)state;
  static const struct {
    const char *model;
    int sequences, microbatches;
  } cases[] = {{"llama-3m", 16, 1}, {"gpt2-124m", 8, 2}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    subject s = make_subject(cases[i].model, MOST_LAYERS, cases[i].sequences, 256);
    s.layout.microbatches = cases[i].microbatches;
    every_choice *all = LS_NEW(s.arena, every_choice);
    try_all(&s, all);
    int64_t least = INT64_MAX, most = 0;
    for (int n = 0; n < all->count; n++) {
      if (all->bytes[n] < least) least = all->bytes[n];
      if (all->bytes[n] > most) most = all->bytes[n];
    }
    double worst = 1;
    for (int b = 0; b <= BUDGETS; b++) {
      const int64_t budget = least + (most - least) * b / BUDGETS;
      double best = -1;
      for (int n = 0; n < all->count; n++)
        if (all->bytes[n] <= budget && (best < 0 || all->work[n] < best)) best = all->work[n];
      ls_layout layout = s.layout;
      ls_error error = {0};
      if (choose(&s, &layout, budget, &error) != LS_OK)
        fail_msg("%s: %s", cases[i].model, error.text);
      assert_true(bytes_of(&s, &layout, NULL) <= budget);
      const double work = work_of(&s, &layout);
      if (best > 0 && work / best > worst) worst = work / best;
      if (best == 0) assert_true(work == 0);
    }
    print_message(
        "%s: %d choices, %d budgets from %.1f to %.1f MiB: at most %.4f x the least work\n",
        cases[i].model, all->count, BUDGETS + 1, (double)least / 1048576, (double)most / 1048576,
        worst);
    assert_true(worst < 1.02);
    ls_arena_destroy(&s.arena);
  }
}

static void test_what_cannot_fit_is_refused(void **state) {
  (void)state;
  subject s = make_subject("llama-3m", 4, 2, 128);
  ls_layout layout = s.layout;
  ls_error error = {0};
  assert_int_equal(choose(&s, &layout, 1 << 20, &error), LS_REFUTED);
  assert_non_null(strstr(error.text, "budget of 1.0 MiB: stage 0 needs "));
  double said = 0;
  assert_int_equal(sscanf(strstr(error.text, "needs ") + 6, "%lf", &said), 1);
  layout = s.layout;
  assert_int_equal(choose(&s, &layout, (int64_t)((said + 0.1) * 1048576), &error), LS_OK);
  ls_arena_destroy(&s.arena);
}

static void test_each_stage_has_its_own_choice(void **state) {
  (void)state;
  subject s = make_subject("llama-3m", 8, 8, 256);
  s.layout.pp = 2;
  s.layout.microbatches = 4;
  ls_layout layout = s.layout;
  ls_error error = {0};
  const int64_t most = bytes_of(&s, &layout, NULL);
  if (choose(&s, &layout, most * 8 / 10, &error) != LS_OK) fail_msg("%s", error.text);
  print_message("%s\n", ls_budget_print(s.arena, s.graph, &layout));
  assert_true(bytes_of(&s, &layout, NULL) <= most * 8 / 10);
  /* Stage 0 holds twice the microbatches of stage 1, which has the head. */
  assert_false(ls_op_set_equal(&layout.recompute_of[s.first_layer],
                               &layout.recompute_of[s.graph->segments.count - 2]));
  ls_arena_destroy(&s.arena);
}

/* Operations that kernels of the forward pass were asked for, by the formulas of the field. */
static double counted;

static ls_status count_linear(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  const ls_view *rows = &args->in[0], *weight = &args->in[1];
  counted += 2.0 * (double)rows->valid[0] * (double)rows->valid[1] * (double)weight->valid[0];
  return LS_OK;
}

/* Two products over half of T x T. */
static ls_status count_attention(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  const ls_view *query = &args->in[0];
  const double half = (double)args->attributes->sequence / 2;
  counted += 2 * 2.0 * (double)query->valid[0] * half * (double)query->valid[1];
  return LS_OK;
}

static ls_status do_nothing(const ls_kernel_args *args, ls_error *error) {
  (void)args;
  (void)error;
  return LS_OK;
}

static double run_and_count(const subject *s, const ls_layout *layout) {
  ls_program *stages[1];
  ls_error error = {0};
  ls_world *world;
  ls_rank *rank;
  assert_int_equal(ls_program_compile(s->graph, layout, LS_PROGRAM_STEP, stages, &error), LS_OK);
  assert_int_equal(ls_world_create_threads(1, &world, &error), LS_OK);
  ls_device device;
  const ls_device_options options = {.kind = "reference", .compute = LS_F32};
  assert_int_equal(ls_device_open(&options, &device, &error), LS_OK);
  ls_kernel_table *table = &device.kernels[LS_TIER_DEVICE];
  for (int k = 0; k < LS_OP_COUNT; k++) table->kernel[k] = do_nothing;
  table->kernel[LS_OP_LINEAR] = count_linear;
  table->kernel[LS_OP_ATTENTION] = count_attention;
  const ls_program *programs[] = {stages[0]};
  assert_int_equal(ls_rank_create(ls_world_comm(world, 0),
                                  &(ls_rank_options){
                                      .programs = programs, .program_count = 1, .device = &device},
                                  &rank, &error),
                   LS_OK);
  counted = 0;
  assert_int_equal(ls_rank_run(rank, 0, &error), LS_OK);
  ls_rank_destroy(&rank);
  ls_world_destroy(&world);
  return counted;
}

static void test_work_done_again_is_the_work_that_was_said(void **state) {
  (void)state;
  subject s = make_subject("gpt2-124m", 4, 1, 64);
  const double before = run_and_count(&s, &s.layout);
  ls_op_set sets[16] = {0};
  ls_layout layout = s.layout;
  layout.recompute_of = sets;
  layout.recompute_of_count = s.graph->segments.count;
  sets[s.first_layer].has[LS_OP_ATTENTION] = true;
  sets[s.first_layer + 2] = (ls_op_set)LS_EVERY_OP;
  double said;
  bytes_of(&s, &layout, &said);
  const double again = run_and_count(&s, &layout) - before;
  print_message("%.0f operations again, %.0f said\n", again, said);
  assert_true(again > 0 && again == said);
  ls_arena_destroy(&s.arena);
}

static void test_made_again_is_kept(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_model_config config = ls_test_shape_config(arena, &ls_test_shapes[1]);
  const ls_experiment experiment = {.config = &config,
                                    .sequences = LS_TEST_SEQUENCES,
                                    .sequence = LS_TEST_SEQUENCE,
                                    .learning_rate = 1e-2,
                                    .seed = 6,
                                    .deadline_s = 60};
  ls_trajectory kept, made;
  ls_error error = {0};
  const char *where = "";
  ls_layout layout = ls_layout_default();
  layout.compute = LS_F64;
  assert_int_equal(ls_trajectory_run(arena, &experiment, &layout, &kept, &error), LS_OK);
  ls_op_set sets[64];
  for (int i = 0; i < 64; i++) sets[i] = menu[(i * 3 + 1) % MENU];
  layout.recompute_of = sets;
  layout.recompute_of_count = 64;
  if (ls_trajectory_run(arena, &experiment, &layout, &made, &error) != LS_OK)
    fail_msg("%s", error.text);
  assert_true(ls_trajectory_difference(&made, &kept, &where) == 0);
  ls_arena_destroy(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_no_choice_that_fits_costs_less),
      cmocka_unit_test(test_what_cannot_fit_is_refused),
      cmocka_unit_test(test_each_stage_has_its_own_choice),
      cmocka_unit_test(test_work_done_again_is_the_work_that_was_said),
      cmocka_unit_test(test_made_again_is_kept)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
