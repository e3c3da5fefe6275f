/* Which transfers of a step run beside compute: with `prefetch: 1` all have some between their
 * beginning and their end but the first and the last of a stage, which have none to be beside. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "check/check.h"
#include "lower/compile.h"
#include "support/layouts.h"

enum { MOST_STAGES = 2, MICROBATCHES = 4, SHAPE = 1, LAYERS = 6 };

typedef struct counted {
  int all[LS_TRANSFER_COUNT], alone[LS_TRANSFER_COUNT];
} counted;

static bool computes(const ls_program *program, int a) {
  const ls_body *body = &program->bodies.items[program->actions.items[a].body];
  for (int i = body->first; i < body->first + body->count; i++)
    if (program->instructions.items[i].collective == LS_COLLECTIVE_NONE) return true;
  return false;
}

static bool is_end_of(const ls_action *begun, const ls_action *action) {
  return action->kind == LS_ACTION_WAIT && action->transfer == begun->transfer &&
         action->payload == begun->payload && action->segment == begun->segment &&
         action->unit == begun->unit && action->microbatch == begun->microbatch;
}

static void count_transfers(const ls_program *program, counted *into) {
  for (int a = 0; a < program->actions.count; a++) {
    const ls_action *begun = &program->actions.items[a].action;
    if (begun->kind != LS_ACTION_BEGIN) continue;
    if (!program->bodies.items[program->actions.items[a].body].count)
      fail_msg("action %d, %s, transfers nothing", a, ls_action_name(begun));
    bool beside = false;
    int end = a + 1;
    for (; !is_end_of(begun, &program->actions.items[end].action); end++)
      beside = beside || computes(program, end);
    into->all[begun->transfer]++;
    into->alone[begun->transfer] += !beside;
  }
}

static counted count_of(const ls_layout *layout) {
  ls_arena *arena = ls_arena_create();
  ls_model_config config = ls_test_shape_config(arena, &ls_test_shapes[SHAPE]);
  config.layers = LAYERS;
  ls_graph *graph = ls_test_model(arena, &config, layout, LS_TEST_SEQUENCES, LS_TEST_SEQUENCE);
  ls_graph_backward(graph);
  ls_program *stages[MOST_STAGES];
  const ls_program *programs[MOST_STAGES];
  ls_error error = {0};
  if (ls_program_compile(graph, layout, LS_PROGRAM_STEP, stages, &error) != LS_OK)
    fail_msg("%s", error.text);
  counted made = {0};
  for (int s = 0; s < layout->pp; s++) {
    programs[s] = stages[s];
    count_transfers(stages[s], &made);
  }
  if (ls_check(graph, layout, programs, NULL, &error) != LS_OK) fail_msg("%s", error.text);
  ls_arena_destroy(&arena);
  return made;
}

#define OF(transfer) [LS_TRANSFER_##transfer]

/* Alone are: the gather and the receive that a stage begins with; the reduction of the unit whose
 * backward pass is last, and what is left of it and of the unit before; a unit that two stages
 * share; the last unit's publication; of the offloaded first and last units what is fetched and
 * returned. */
static const struct overlapping {
  const char *name, *schedule;
  int pp, dp_replicate, dp_shard, zero;
  bool post_validation;
  ls_offload offload;
  counted expected;
} rows[] = {
    {"DDP", NULL, 1, 2, 1, 0, false, {0}, {{OF(FINISH) = 8}, {OF(FINISH) = 1}}},
    {"ZeRO-1",
     NULL,
     1,
     1,
     2,
     1,
     false,
     {0},
     {{OF(FINISH) = 8, OF(PUBLISH) = 8}, {OF(FINISH) = 1, OF(PUBLISH) = 1}}},
    {"ZeRO-2",
     NULL,
     1,
     1,
     2,
     2,
     false,
     {0},
     {{OF(REDUCE) = 32, OF(PUBLISH) = 8}, {OF(REDUCE) = 1, OF(PUBLISH) = 1}}},
    {"ZeRO-3",
     NULL,
     1,
     1,
     2,
     3,
     false,
     {0},
     {{OF(GATHER) = 52, OF(REDUCE) = 32}, {OF(GATHER) = 1, OF(REDUCE) = 1}}},
    {"HYBRID_SHARD",
     NULL,
     1,
     2,
     2,
     3,
     false,
     {0},
     {{OF(GATHER) = 52, OF(REDUCE) = 32, OF(FINISH) = 8},
      {OF(GATHER) = 1, OF(REDUCE) = 1, OF(FINISH) = 2}}},
    {"1F1B",
     "1f1b",
     2,
     1,
     2,
     1,
     false,
     {0},
     {{OF(FINISH) = 8, OF(PUBLISH) = 8, OF(SEND) = 8, OF(RECEIVE) = 8},
      {OF(FINISH) = 2, OF(PUBLISH) = 2, OF(SEND) = 1, OF(RECEIVE) = 1}}},
    {"post-validation",
     "1f1b",
     2,
     1,
     2,
     1,
     true,
     {0},
     {{OF(FINISH) = 8, OF(PUBLISH) = 16, OF(SEND) = 8, OF(RECEIVE) = 8},
      {OF(FINISH) = 2, OF(PUBLISH) = 4, OF(SEND) = 1, OF(RECEIVE) = 1}}},
    {"ZBV",
     "zbv",
     2,
     1,
     2,
     3,
     false,
     {0},
     {{OF(GATHER) = 8, OF(FINISH) = 8, OF(SEND) = 16, OF(RECEIVE) = 16},
      {OF(GATHER) = 2, OF(FINISH) = 2, OF(RECEIVE) = 1}}},
    {"offload",
     NULL,
     1,
     1,
     2,
     3,
     false,
     {LS_TIER_NVME, 1, LS_TIER_HOST, LS_TIER_HOST},
     {{OF(GATHER) = 52, OF(REDUCE) = 32, OF(FETCH) = 96, OF(RETURN) = 36},
      {OF(GATHER) = 1, OF(REDUCE) = 1, OF(FETCH) = 5, OF(RETURN) = 3}}},
};

static ls_layout layout_of(const struct overlapping *row, int prefetch) {
  ls_layout layout = ls_layout_default();
  layout.pp = row->pp;
  layout.dp_replicate = row->dp_replicate;
  layout.dp_shard = row->dp_shard;
  layout.zero = row->zero;
  layout.schedule = row->schedule;
  layout.microbatches = MICROBATCHES;
  layout.post_validation = row->post_validation;
  layout.offload = row->offload;
  layout.prefetch = prefetch;
  return layout;
}

static void test_transfers_run_beside_compute(void **state) {
  (void)state;
  static const char *const names[] = {
#define NAME(suffix, name) name,
      LS_TRANSFERS(NAME)
#undef NAME
  };
  for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
    const ls_layout layout = layout_of(&rows[r], 1);
    const counted made = count_of(&layout);
    for (int t = 0; t < LS_TRANSFER_COUNT; t++)
      if (made.all[t] != rows[r].expected.all[t] || made.alone[t] != rows[r].expected.alone[t])
        fail_msg("%s: %d of %d alone (%s), expected %d of %d", rows[r].name, made.alone[t],
                 made.all[t], names[t], rows[r].expected.alone[t], rows[r].expected.all[t]);
  }
}

/* In issue order nothing is held in memory that could wait. */
static void test_without_prefetch_collectives_end_at_once(void **state) {
  (void)state;
  static const ls_transfer_kind collectives[] = {LS_TRANSFER_GATHER, LS_TRANSFER_REDUCE,
                                                 LS_TRANSFER_FINISH, LS_TRANSFER_PUBLISH};
  for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
    const ls_layout layout = layout_of(&rows[r], 0);
    const counted made = count_of(&layout);
    for (size_t c = 0; c < sizeof collectives / sizeof *collectives; c++)
      assert_int_equal(made.alone[collectives[c]], made.all[collectives[c]]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_transfers_run_beside_compute),
      cmocka_unit_test(test_without_prefetch_collectives_end_at_once)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
