/* What waits outside the device and when it moves: shares of the optimizer's state, activations
 * that one segment alone needs, and actions in pairs with work between them. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "model/model.h"
#include "schedule/offload_copies.h"
#include "support/layouts.h"

static ls_arena *arena;

static int set_up(void **state) {
  (void)state;
  arena = ls_arena_create();
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  ls_arena_destroy(&arena);
  return 0;
}

/* All that a stage's schedule is made from. */
typedef struct made {
  ls_sharded *sharded;
  ls_chunks *chunks;
  ls_units *units;
  ls_recompute *recompute;
  const bool *present;
  ls_offload_plan *offload_plan;
  ls_schedule schedule;
} made;

static made make(const ls_layout *layout, int stage) {
  ls_error error = {0};
  const ls_model_config config = ls_test_shape_config(arena, &ls_test_shapes[1]);
  ls_graph *graph;
  made all = {0};
  const ls_build_options options = {
      .tokens = LS_TEST_SEQUENCES / layout->microbatches * LS_TEST_SEQUENCE,
      .sequence = LS_TEST_SEQUENCE};
  assert_int_equal(ls_model_build(arena, &config, &options, &graph, &error), LS_OK);
  ls_graph_backward(graph);
  assert_int_equal(ls_shard(graph, layout, &all.sharded, &error), LS_OK);
  assert_int_equal(ls_chunks_make(all.sharded, false, &all.chunks, &error), LS_OK);
  all.units = ls_units_make(all.sharded, all.chunks);
  all.recompute = ls_recompute_make(all.sharded, all.chunks);
  all.present = ls_schedule_units_present(all.sharded, all.units, all.chunks, stage);
  all.offload_plan =
      ls_offload_plan_make(all.sharded, all.units, all.chunks, all.recompute, all.present, stage);
  all.schedule =
      ls_schedule_step(all.sharded, all.units, all.chunks, all.recompute, all.offload_plan, stage);
  return all;
}

static double share_away(const made *all) {
  double away = 0, sum = 0;
  for (int u = 0; u < all->units->count; u++) {
    if (!all->present[u]) continue;
    sum += (double)all->units->items[u].elements;
    if (all->offload_plan->state[u]) away += (double)all->units->items[u].elements;
  }
  return away / sum;
}

static void test_at_least_the_fraction_is_away(void **state) {
  (void)state;
  double before = -1;
  for (int tenths = 0; tenths <= 10; tenths++) {
    ls_layout layout = ls_layout_default();
    layout.offload.optimizer = LS_TIER_HOST;
    layout.offload.optimizer_fraction = tenths / 10.0;
    const made all = make(&layout, 0);
    const double away = share_away(&all);
    assert_true(away >= tenths / 10.0 && away >= before);
    before = away;
    /* The first units stay. */
    for (int u = 1; u < all.units->count; u++)
      assert_true(all.offload_plan->state[u] >= all.offload_plan->state[u - 1]);
  }
  assert_true(before == 1);
}

static ls_layout offloading(int pp, int microbatches, bool again) {
  ls_layout layout = ls_layout_default();
  layout.offload = (ls_offload){LS_TIER_NVME, 1, LS_TIER_HOST, LS_TIER_HOST};
  layout.pp = pp;
  layout.microbatches = microbatches;
  if (again) layout.recompute = (ls_op_set)LS_EVERY_OP;
  return layout;
}

static void test_what_moves_is_read_by_one_segment(void **state) {
  (void)state;
  for (int again = 0; again < 2; again++) {
    const ls_layout layout = offloading(1, 2, again);
    const made all = make(&layout, 0);
    int moved = 0;
    for (int v = 0; v < all.sharded->values.count; v++) {
      const int segment = all.offload_plan->moved[v];
      if (segment < 0) continue;
      moved++;
      for (int n = 0; n < all.sharded->nodes.count; n++) {
        const ls_shard_node *node = &all.sharded->nodes.items[n];
        for (int i = 0; i < node->inputs; i++)
          if (node->in[i] == v)
            assert_true(node->backward ? node->segment == segment : node->segment <= segment);
      }
    }
    print_message("%d values move%s\n", moved, again ? ", where layers run again" : "");
    assert_true(moved > 0 && (again ? moved < 10 : moved > 10));
  }
}

static bool is_copy(const ls_action *action) {
  return ls_action_transfers(action) &&
         (action->transfer == LS_TRANSFER_FETCH || action->transfer == LS_TRANSFER_RETURN);
}

/* Beginnings have their end behind them, with another action between the two. */
static void check_pairs(const ls_schedule *schedule) {
  int pairs = 0;
  for (int a = 0; a < schedule->count; a++) {
    const ls_action *begin = &schedule->items[a];
    if (begin->kind != LS_ACTION_BEGIN || !is_copy(begin)) continue;
    int end = a + 1;
    while (end < schedule->count &&
           (ls_action_sort(&schedule->items[end]) != ls_action_sort(begin) + 1 ||
            schedule->items[end].segment != begin->segment ||
            schedule->items[end].unit != begin->unit ||
            schedule->items[end].microbatch != begin->microbatch)) {
      assert_false(ls_action_sort(&schedule->items[end]) == ls_action_sort(begin) &&
                   schedule->items[end].unit == begin->unit &&
                   schedule->items[end].segment == begin->segment &&
                   schedule->items[end].microbatch == begin->microbatch);
      end++;
    }
    assert_true(end < schedule->count);
    pairs++;
  }
  assert_true(pairs > 0);
}

static int find(const ls_schedule *schedule, int kind, int unit) {
  for (int a = 0; a < schedule->count; a++)
    if (ls_action_sort(&schedule->items[a]) == kind && schedule->items[a].unit == unit) return a;
  return -1;
}

static void check_update(const made *all) {
  const ls_schedule *schedule = &all->schedule;
  int before = -1;
  const int norm = find(schedule, LS_ACTION_NORM, -1);
  for (int u = 0; u < all->units->count; u++) {
    if (!all->present[u]) continue;
    const int update = find(schedule, LS_ACTION_UPDATE, u);
    assert_true(find(schedule, LS_WAIT_OF(RETURN, GRADIENTS), u) < norm);
    assert_true(norm < find(schedule, LS_BEGIN_OF(FETCH, STATE), u));
    /* Gradients in files are taken for the norm and once more for the update. */
    assert_true(find(schedule, LS_WAIT_OF(RETURN, GRADIENTS), u) <
                find(schedule, LS_BEGIN_OF(FETCH, GRADIENTS), u));
    assert_true(find(schedule, LS_WAIT_OF(FETCH, GRADIENTS), u) < find(schedule, LS_ACTION_SUM, u));
    assert_true(find(schedule, LS_ACTION_SUM, u) < norm);
    assert_true(find(schedule, LS_WAIT_OF(FETCH, STATE), u) < update);
    assert_true(update < find(schedule, LS_BEGIN_OF(RETURN, STATE), u));
    if (before >= 0) { /* read i + 1, update i, write i - 1 */
      assert_true(find(schedule, LS_BEGIN_OF(FETCH, STATE), u) <
                  find(schedule, LS_ACTION_UPDATE, before));
      assert_true(find(schedule, LS_WAIT_OF(RETURN, STATE), before) > update);
    }
    before = u;
  }
}

static void test_moves_are_pairs_with_work_between(void **state) {
  (void)state;
  for (int pp = 1; pp <= 2; pp++)
    for (int again = 0; again < 2; again++)
      for (int stage = 0; stage < pp; stage++) {
        const ls_layout layout = offloading(pp, pp * 2, again);
        const made all = make(&layout, stage);
        check_pairs(&all.schedule);
        check_update(&all);
      }
}

/* A gradient leaves before the backward pass is over. */
static void test_gradients_leave_during_backward(void **state) {
  (void)state;
  const ls_layout layout = offloading(1, 2, false);
  const made all = make(&layout, 0);
  int last_pass = 0, given = 0;
  for (int a = 0; a < all.schedule.count; a++)
    if (all.schedule.items[a].kind == LS_ACTION_BACKWARD) last_pass = a;
  for (int a = 0; a < last_pass; a++)
    given += ls_action_sort(&all.schedule.items[a]) == LS_WAIT_OF(RETURN, GRADIENTS);
  assert_true(given > 0);
}

static void test_nothing_moves_unasked(void **state) {
  (void)state;
  const ls_layout layout = ls_layout_default();
  const made all = make(&layout, 0);
  for (int a = 0; a < all.schedule.count; a++) assert_false(is_copy(&all.schedule.items[a]));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_at_least_the_fraction_is_away, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_what_moves_is_read_by_one_segment, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_moves_are_pairs_with_work_between, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_gradients_leave_during_backward, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_nothing_moves_unasked, set_up, tear_down)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
