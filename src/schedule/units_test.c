/* Units as flat buffers, and the schedule over them: what every list of actions must have. */
#include "schedule/units.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/model.h"
#include "schedule/schedule.h"

static const char llama[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 41, \"hidden_size\": 32, \"intermediate_size\": "
    "45,"
    " \"num_hidden_layers\": 5, \"num_attention_heads\": 16, \"num_key_value_heads\": 4,"
    " \"max_position_embeddings\": 16, \"rms_norm_eps\": 1e-5, \"tie_word_embeddings\": false}";
static const char gpt2[] =
    "{\"model_type\": \"gpt2\", \"vocab_size\": 37, \"n_positions\": 8, \"n_embd\": 32,"
    " \"n_layer\": 5, \"n_head\": 16, \"n_inner\": 43, \"resid_pdrop\": 0, \"embd_pdrop\": 0,"
    " \"attn_pdrop\": 0}";

typedef struct laid {
  ls_sharded *sharded;
  ls_chunks *chunks;
  ls_units *units;
} laid;

static laid lay(ls_arena *arena, const char *text, const ls_layout *layout) {
  ls_model_config config;
  ls_graph *graph;
  ls_error error = {0};
  laid made;
  const ls_build_options options = {.tokens = 48, .sequence = 4};
  assert_int_equal(ls_model_config_parse(arena, "model", text, strlen(text), &config, &error),
                   LS_OK);
  assert_int_equal(ls_model_build(arena, &config, &options, &graph, &error), LS_OK);
  ls_graph_backward(graph);
  if (ls_shard(graph, layout, &made.sharded, &error) != LS_OK) fail_msg("%s", error.text);
  assert_int_equal(ls_chunks_make(made.sharded, false, &made.chunks, &error), LS_OK);
  made.units = ls_units_make(made.sharded, made.chunks);
  return made;
}

static const ls_offload_plan *homes_of(const laid *of) {
  const bool *present = ls_schedule_units_present(of->sharded, of->units, of->chunks, 0);
  return ls_offload_plan_make(of->sharded, of->units, of->chunks, NULL, present, 0);
}

static const char *name_of(const laid *of, const ls_unit_entry *entry) {
  return of->sharded->graph->parameters.items[entry->parameter].about.name;
}

static void check_unit(const laid *of, int u, int *seen) {
  const ls_unit *unit = &of->units->items[u];
  int64_t end = 0;
  ls_axes replicated = 0;
  for (int e = 0; e < unit->entries.count; e++) {
    const ls_unit_entry *entry = &unit->entries.items[e];
    assert_int_equal(entry->offset % LS_UNIT_ALIGNMENT, 0);
    assert_true(entry->offset >= end);
    assert_true(entry->elements > 0);
    assert_true(entry->replicated >= replicated); /* last, together by axes */
    assert_int_equal(entry->partial & ~entry->replicated, 0);
    end = entry->offset + entry->elements;
    replicated = entry->replicated;
    assert_int_equal(of->units->of_parameter[entry->parameter], u);
    assert_int_equal(of->units->entry_of[entry->parameter], e);
    seen[entry->parameter]++;
  }
  assert_true(unit->elements >= end);
  const ls_mesh *mesh = &of->sharded->mesh;
  ls_placement shard = {0};
  shard.on[LS_AXIS_DP_SHARD].kind = LS_SHARDED_FLAT;
  assert_int_equal(ls_unit_elements(mesh, unit, &unit->used), unit->elements);
  const int64_t elements = ls_unit_elements(mesh, unit, &shard);
  assert_int_equal(elements * ls_mesh_size(mesh, unit->flat), unit->elements);
  assert_int_equal(elements % unit->granule, 0);
}

/* Over many meshes: each parameter in one unit, aligned, apart, the replicated ones last. */
static void test_units_hold_each_parameter_once(void **state) {
  (void)state;
  for (int shard = 1; shard <= 12; shard++)
    for (int tp = 1; tp <= 16; tp *= 2)
      for (int which = 0; which < 4; which++) {
        if (12 % shard) continue;
        ls_arena *arena = ls_arena_create();
        ls_layout layout = ls_layout_default();
        layout.dp_shard = shard;
        layout.tp = tp;
        layout.sequence_parallel = which & 1;
        const laid made = lay(arena, which & 2 ? gpt2 : llama, &layout);
        int *seen = LS_NEW_ARRAY(arena, int, made.sharded->graph->parameters.count);
        for (int u = 0; u < made.units->count; u++) check_unit(&made, u, seen);
        for (int p = 0; p < made.sharded->graph->parameters.count; p++)
          assert_int_equal(seen[p], 1);
        ls_arena_destroy(&arena);
      }
}

static int partial_runs(const ls_unit *unit) {
  int runs = 0;
  for (int e = 0; e < unit->entries.count; e++)
    runs += unit->entries.items[e].partial &&
            (e == 0 || unit->entries.items[e].partial != unit->entries.items[e - 1].partial);
  return runs;
}

/* Query, key and value adjacent, so that they can be fused; norms last under sequence parallelism,
 * so that one all-reduce resolves them. */
static void test_order_within_a_layer(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_layout layout = ls_layout_default();
  layout.tp = 4;
  layout.sequence_parallel = true;
  const laid made = lay(arena, llama, &layout);
  assert_int_equal(made.units->count, 7);
  static const char *const expected[] = {"layers.0.attention.query.weight",
                                         "layers.0.attention.key.weight",
                                         "layers.0.attention.value.weight",
                                         "layers.0.attention.output.weight",
                                         "layers.0.mlp.gate.weight",
                                         "layers.0.mlp.up.weight",
                                         "layers.0.mlp.down.weight",
                                         "layers.0.norm1.weight",
                                         "layers.0.norm2.weight"};
  const ls_unit *unit = &made.units->items[1];
  assert_int_equal(unit->entries.count, 9);
  for (int e = 0; e < 9; e++) {
    assert_string_equal(name_of(&made, &unit->entries.items[e]), expected[e]);
    assert_int_equal(unit->entries.items[e].partial, e < 7 ? 0 : 1 << LS_AXIS_TP_KV);
    assert_int_equal(unit->entries.items[e].replicated, e < 7 ? 0 : 1 << LS_AXIS_TP_KV);
  }
  assert_int_equal(partial_runs(unit), 1);
  layout.tp = 8; /* KV heads are partial on tp_group alone: a range of their own */
  const laid wide = lay(arena, llama, &layout);
  assert_int_equal(partial_runs(&wide.units->items[1]), 2);
  layout.sequence_parallel = false;
  const laid plain = lay(arena, llama, &layout);
  assert_int_equal(partial_runs(&plain.units->items[1]), 1);
  ls_arena_destroy(&arena);
}

static void test_layers_are_wrapped_in_groups(void **state) {
  (void)state;
  static const int expected[][2] = {{1, 7}, {2, 5}, {3, 4}, {5, 3}, {9, 3}, {0, 3}};
  for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
    ls_arena *arena = ls_arena_create();
    ls_layout layout = ls_layout_default();
    layout.layers_per_unit = expected[i][0];
    const laid made = lay(arena, llama, &layout);
    assert_int_equal(made.units->count, expected[i][1]);
    assert_string_equal(made.units->items[0].name, "embedding");
    assert_string_equal(made.units->items[1].name, "layers.0");
    assert_string_equal(made.units->items[made.units->count - 1].name, "head");
    ls_arena_destroy(&arena);
  }
}

/* A pass finds its segment's weights gathered; what is gathered is dropped; every unit's gradient
 * is reduced after its last contribution, and once more a step finished, where that is otherwise
 * placed than what is updated, updated and published. */
static void check_schedule(const laid *of, bool gathers, bool reduces, bool publishes) {
  const ls_schedule schedule =
      ls_schedule_step(of->sharded, of->units, of->chunks, NULL, homes_of(of), 0);
  const int units = of->units->count, microbatches = of->sharded->layout.microbatches;
  int *held = LS_NEW_ARRAY(of->sharded->arena, int, units);
  int *count = LS_NEW_ARRAY(of->sharded->arena, int, units *LS_ACTION_SORTS);
  int passes = 0;
  for (int a = 0; a < schedule.count; a++) {
    const ls_action *action = &schedule.items[a];
    if (action->unit >= 0) count[action->unit * LS_ACTION_SORTS + ls_action_sort(action)]++;
    if (ls_action_sort(action) == LS_WAIT_OF(GATHER, PARAMETERS))
      assert_int_equal(held[action->unit]++, 0);
    if (action->kind == LS_ACTION_DROP) assert_int_equal(held[action->unit]--, 1);
    if (action->kind != LS_ACTION_FORWARD && action->kind != LS_ACTION_BACKWARD) continue;
    passes++;
    /* Backward of the embedding needs no weights, and the head has none. */
    const int last = of->sharded->graph->segments.count - 1;
    const bool reads =
        action->kind == LS_ACTION_FORWARD || (action->segment > 0 && action->segment < last);
    for (int p = 0; p < of->sharded->graph->parameters.count && gathers && reads; p++) {
      const ls_graph *graph = of->sharded->graph;
      if (ls_graph_tensor(graph, graph->parameters.items[p].tensor)->segment == action->segment)
        assert_int_equal(held[of->units->of_parameter[p]], 1);
    }
  }
  assert_int_equal(passes, 2 * of->sharded->graph->segments.count * microbatches);
  for (int u = 0; u < units; u++) {
    const int *of_unit = &count[u * LS_ACTION_SORTS];
    assert_int_equal(held[u], 0);
    assert_int_equal(of_unit[LS_BEGIN_OF(GATHER, PARAMETERS)] > 0, gathers);
    assert_int_equal(of_unit[LS_BEGIN_OF(REDUCE, GRADIENTS)], reduces ? microbatches : 0);
    const ls_unit *about = &of->units->items[u];
    const bool rest = !ls_placement_equal(&of->sharded->mesh, &about->gradient, &about->state,
                                          ls_mesh_all(&of->sharded->mesh));
    assert_int_equal(of_unit[LS_BEGIN_OF(FINISH, GRADIENTS)], rest);
    assert_int_equal(of_unit[LS_ACTION_UPDATE], 1);
    assert_int_equal(of_unit[LS_BEGIN_OF(PUBLISH, PARAMETERS)], publishes);
  }
}

static void test_schedule_of_each_strategy(void **state) {
  (void)state;
  for (int shard = 1; shard <= 2; shard++)
    for (int zero = 0; zero <= 3; zero++)
      for (int tied = 0; tied < 2; tied++) {
        ls_arena *arena = ls_arena_create();
        ls_layout layout = ls_layout_default();
        layout.dp_shard = shard;
        layout.zero = zero;
        layout.microbatches = 3;
        const laid made = lay(arena, tied ? gpt2 : llama, &layout);
        const bool cut = shard > 1;
        check_schedule(&made, cut && zero == 3, cut && zero >= 2, cut && (zero == 1 || zero == 2));
        ls_arena_destroy(&arena);
      }
}

/* `gather: step` gathers each unit once a step and keeps it; `reduce: step` reduces in FINISH. */
static void test_schedule_with_gather_and_reduce_once(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_layout layout = ls_layout_default();
  layout.dp_shard = 2;
  layout.microbatches = 3;
  layout.gather = layout.reduce = LS_WHEN_STEP;
  const laid made = lay(arena, gpt2, &layout);
  const ls_schedule schedule =
      ls_schedule_step(made.sharded, made.units, made.chunks, NULL, homes_of(&made), 0);
  int gathered = 0;
  for (int a = 0; a < schedule.count; a++) {
    gathered += ls_action_sort(&schedule.items[a]) == LS_BEGIN_OF(GATHER, PARAMETERS);
    assert_int_not_equal(schedule.items[a].kind, LS_ACTION_DROP);
    assert_int_not_equal(ls_action_sort(&schedule.items[a]), LS_BEGIN_OF(REDUCE, GRADIENTS));
  }
  assert_int_equal(gathered, made.units->count);
  const ls_action wait = {LS_ACTION_WAIT, LS_TRANSFER_GATHER, LS_PAYLOAD_PARAMETERS, -1, 0, 0};
  assert_string_equal(ls_action_name(&wait), "wait for gather of parameters");
  assert_int_equal(ls_action_sort(&wait), LS_WAIT_OF(GATHER, PARAMETERS));
  ls_arena_destroy(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_units_hold_each_parameter_once),
                                     cmocka_unit_test(test_order_within_a_layer),
                                     cmocka_unit_test(test_layers_are_wrapped_in_groups),
                                     cmocka_unit_test(test_schedule_of_each_strategy),
                                     cmocka_unit_test(test_schedule_with_gather_and_reduce_once)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
