/* Meshes, placements, conversions and what a layout may be; what sharding does to a whole model. */
#include "shard/shard.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "model/model.h"
#include "shard/resolve.h"
#include "text/run_keys.h"

static const char llama[] =
    "{\"model_type\": \"llama\", \"vocab_size\": %d, \"hidden_size\": %d, \"intermediate_size\": "
    "45,"
    " \"num_hidden_layers\": 2, \"num_attention_heads\": %d, \"num_key_value_heads\": %d,"
    " \"max_position_embeddings\": 16, \"rms_norm_eps\": 1e-5, \"tie_word_embeddings\": false}";

static ls_graph *make_graph_of(ls_arena *arena, const char *text, int64_t sequences) {
  ls_model_config config;
  ls_graph *graph;
  ls_error error = {0};
  if (ls_model_config_parse(arena, "model", text, strlen(text), &config, &error) != LS_OK)
    fail_msg("%s", error.text);
  const ls_build_options options = {.tokens = 4 * sequences, .sequence = 4};
  assert_int_equal(ls_model_build(arena, &config, &options, &graph, &error), LS_OK);
  ls_graph_backward(graph);
  return graph;
}

static ls_graph *make_graph(ls_arena *arena, int vocabulary, int heads, int kv_heads,
                            int64_t sequences) {
  return make_graph_of(arena, ls_arena_printf(arena, llama, vocabulary, 2 * heads, heads, kv_heads),
                       sequences);
}

static ls_layout layout_of(int replicate, int shard, int tp, bool sequence_parallel) {
  ls_layout layout = ls_layout_default();
  layout.dp_replicate = replicate;
  layout.dp_shard = shard;
  layout.tp = tp;
  layout.sequence_parallel = sequence_parallel;
  return layout;
}

static void assert_refused(const ls_graph *graph, const ls_layout *layout, const char *text) {
  ls_sharded *sharded;
  ls_error error = {0};
  assert_int_equal(ls_shard(graph, layout, &sharded, &error), LS_INPUT);
  assert_string_equal(error.text, text);
}

static void test_refusals_name_the_nearest_legal_choice(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const ls_graph *six = make_graph(arena, 41, 6, 6, 12);
  ls_layout layout = layout_of(1, 1, 4, false);
  assert_refused(six, &layout, "tp=4 and 6 heads, 6 KV heads: use tp=1, 2, 3 or 6");
  const ls_graph *grouped = make_graph(arena, 41, 12, 6, 12);
  assert_refused(grouped, &layout, "tp=4 and 12 heads, 6 KV heads: use tp=1, 2, 3, 6 or 12");
  const ls_graph *one = make_graph(arena, 41, 1, 1, 12);
  assert_refused(one, &layout, "tp=4 and 1 heads, 1 KV heads: use tp=1");
  layout = layout_of(2, 4, 1, false);
  layout.microbatches = 3;
  assert_refused(six, &layout,
                 "12 sequences per microbatch over 8 data-parallel ranks: use a batch that is a "
                 "multiple of 24");
  layout = layout_of(1, 1, 1, false);
  layout.zero = LS_DATA_STRATEGY_COUNT;
  assert_refused(six, &layout,
                 ls_arena_printf(arena, "zero=%d: expected 0 to %d", LS_DATA_STRATEGY_COUNT,
                                 LS_DATA_STRATEGY_COUNT - 1));
  layout = layout_of(0, 1, 1, false);
  assert_refused(
      six, &layout,
      "mesh.pp=1, mesh.dp_replicate=0, mesh.dp_shard=1, mesh.cp=1, mesh.tp=1, mesh.ep=1, 1 "
      "microbatches: each must be at "
      "least 1");
  ls_arena_destroy(&arena);
}

/* A row that is none of these compiles to a program that check refutes, with a reason far from the
 * row. And the run file's key has a number for each row. */
static void test_data_strategies_can_be_lowered(void **state) {
  (void)state;
  for (int zero = 0; zero < LS_DATA_STRATEGY_COUNT; zero++) {
    const ls_data_strategy *row = ls_data_strategy_row(zero);
    const char *name = ls_zero_name(zero);
    if (row->parameters == LS_PARTIAL || row->state == LS_PARTIAL)
      fail_msg("%s: parameters or state are partial; expected R or S(flat)", name);
    if (row->gradients == LS_REPLICATED)
      fail_msg(
          "%s: gradients are added up as R, and no all-reduce adds to what is there; expected "
          "P or S(flat)",
          name);
    if (row->parameters == LS_SHARDED_FLAT && row->state != LS_SHARDED_FLAT)
      fail_msg("%s: parameters are S(flat) and their state is R; expected S(flat)", name);
  }
  const ls_run_key *key = ls_run_key_find("zero");
  assert_non_null(key);
  if (key->high != LS_DATA_STRATEGY_COUNT - 1)
    fail_msg("the key zero ends at %g (src/text/run_keys.c), LS_DATA_STRATEGIES at %d", key->high,
             LS_DATA_STRATEGY_COUNT - 1);
}

static void test_tp_beyond_the_kv_heads_splits_in_two_axes(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const ls_graph *graph = make_graph(arena, 41, 16, 4, 12);
  static const int expected[][3] = {{1, 1, 1}, {2, 2, 1}, {4, 4, 1}, {8, 4, 2}, {16, 4, 4}};
  for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
    const ls_layout layout = layout_of(1, 1, expected[i][0], false);
    ls_mesh mesh;
    ls_error error = {0};
    assert_int_equal(ls_layout_mesh(&layout, graph, &mesh, &error), LS_OK);
    assert_int_equal(mesh.axes[LS_AXIS_TP_KV].size, expected[i][1]);
    assert_int_equal(mesh.axes[LS_AXIS_TP_GROUP].size, expected[i][2]);
  }
  const ls_mesh mesh = ls_mesh_make((const int[]){1, 1, 1, 1, 4, 2});
  const ls_placement key = ls_parameter_placement(&mesh, LS_TP_KEY_VALUE);
  assert_int_equal(key.on[LS_AXIS_TP_KV].kind, LS_SHARDED);
  assert_int_equal(key.on[LS_AXIS_TP_GROUP].kind, LS_REPLICATED);
  const ls_placement query = ls_parameter_placement(&mesh, LS_TP_QUERY);
  assert_int_equal(query.on[LS_AXIS_TP_GROUP].kind, LS_SHARDED);
  ls_arena_destroy(&arena);
}

static void test_uneven_cut_of_a_vocabulary(void **state) {
  (void)state;
  static const int64_t expected[][4] = {
      {2, 25129, 25128, 25129},
      {3, 16753, 16751, 33506},
      {4, 12565, 12562, 37695},
      {8, 6283, 6276, 43981}}; /* ranks; stored, valid on the last, start of the last */
  const ls_mesh wide = ls_mesh_make((const int[]){1, 1, 1, 1, 2, 1});
  const ls_placement placement = ls_parameter_placement(&wide, LS_TP_VOCABULARY);
  for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
    const int ranks = (int)expected[i][0];
    const ls_mesh mesh = ls_mesh_make((const int[]){1, 1, 1, 1, ranks, 1});
    int64_t sum = 0;
    for (int r = 0; r < ranks; r++) {
      const ls_part part = ls_mesh_part(&mesh, r, &placement, 0, 50257);
      assert_int_equal(part.stored, expected[i][1]);
      assert_int_equal(part.start, sum);
      sum += part.valid;
    }
    assert_int_equal(sum, 50257);
    const ls_part last = ls_mesh_part(&mesh, ranks - 1, &placement, 0, 50257);
    assert_int_equal(last.valid, expected[i][2]);
    assert_int_equal(last.start, expected[i][3]);
  }
}

/* Fewer rows than ranks, and data axes outside in any order, shards that have gone round: every
 * element has one owner among the tp ranks. */
static void test_parts_cover_everything_once(void **state) {
  (void)state;
  const uint64_t seed = 20261121;
  print_message("seed %llu\n", (unsigned long long)seed);
  for (uint64_t round = 0; round < 200; round++) {
    int size[LS_MESH_ROWS];
    for (int a = 0; a < LS_MESH_ROWS; a++)
      size[a] = a == LS_AXIS_PP ? 1 : 1 + (int)(ls_random_bits(seed, round, (uint64_t)a) % 4);
    const ls_mesh mesh = ls_mesh_make(size);
    const int64_t data =
        (int64_t)size[LS_AXIS_DP_REPLICATE] * size[LS_AXIS_DP_SHARD] * size[LS_AXIS_CP];
    const int64_t global = data * (1 + (int64_t)(ls_random_bits(seed, round, 9) % 20));
    ls_placement rows = {0};
    for (int a = 0; a < LS_MESH_ROWS; a++)
      rows.on[a] = (ls_place){
          .kind = LS_SHARDED,
          .order = (short)(ls_random_bits(seed, round, 20 + (uint64_t)a) % 3 +
                           (mesh.axes[a].role == LS_MESH_TENSOR ? 3 : 0)),
          .shift = (short)(ls_random_bits(seed, round, 30 + (uint64_t)a) % (uint64_t)size[a])};
    int owners[4 * 320] = {0};
    for (int r = 0; r < ls_mesh_ranks(&mesh); r++) {
      const ls_part part = ls_mesh_part(&mesh, r, &rows, 0, global);
      assert_true(part.valid >= 0 && part.valid <= part.stored);
      for (int64_t i = 0; i < part.valid; i++) owners[part.start + i]++;
    }
    for (int64_t i = 0; i < global; i++) assert_int_equal(owners[i], 1);
  }
}

static void test_groups_are_the_ranks_that_differ_on_their_axes(void **state) {
  (void)state;
  const ls_mesh mesh = ls_mesh_make((const int[]){2, 2, 3, 1, 2, 2});
  for (ls_axes axes = 0; axes <= ls_mesh_all(&mesh); axes++)
    for (int r = 0; r < 48; r++) {
      int members[48];
      ls_mesh_group(&mesh, r, ls_mesh_order(axes), members);
      const int index = ls_mesh_index(&mesh, r, ls_mesh_order(axes));
      assert_int_equal(members[index], r);
      for (int i = 0; i < ls_mesh_size(&mesh, axes); i++) {
        assert_int_equal(ls_mesh_index(&mesh, members[i], ls_mesh_order(axes)), i);
        assert_int_equal(
            ls_mesh_index(&mesh, members[i], ls_mesh_order(ls_mesh_all(&mesh) & ~axes)),
            ls_mesh_index(&mesh, r, ls_mesh_order(ls_mesh_all(&mesh) & ~axes)));
      }
    }
}

/* Eight rows over two axes of two: the inner axis of the mesh is the outer one of the placement,
 * and then the shards go on by one on it. */
static void test_order_and_shift_say_whose_rows(void **state) {
  (void)state;
  const ls_mesh mesh = ls_mesh_make((const int[]){1, 1, 1, 1, 2, 2});
  ls_placement rows = {0};
  rows.on[LS_AXIS_TP_KV] = (ls_place){.kind = LS_SHARDED, .order = 1};
  rows.on[LS_AXIS_TP_GROUP] = (ls_place){.kind = LS_SHARDED};
  const ls_axis_order order = ls_placement_order(&rows, ls_mesh_all(&mesh));
  static const int ordered[4] = {0, 4, 2, 6}, shifted[4] = {4, 0, 6, 2};
  for (int r = 0; r < 4; r++) {
    assert_int_equal(ls_mesh_part(&mesh, r, &rows, 0, 8).start, ordered[r]);
    assert_int_equal(ls_mesh_index(&mesh, r, order), ordered[r] / 2);
    assert_int_equal(ls_mesh_member(&mesh, 0, order, ordered[r] / 2), r);
  }
  rows.on[LS_AXIS_TP_GROUP].shift = 1;
  for (int r = 0; r < 4; r++)
    assert_int_equal(ls_mesh_part(&mesh, r, &rows, 0, 8).start, shifted[r]);
}

/* On two axes of two that cut rows in another order than the mesh's. */
static void test_steps_follow_the_order_of_the_placement(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_resolve_step steps[LS_MAX_RESOLVE_STEPS];
  const ls_mesh mesh = ls_mesh_make((const int[]){1, 2, 2, 1, 1, 1});
  const ls_place outer = {.kind = LS_SHARDED}, inner = {.kind = LS_SHARDED, .order = 1};
  ls_placement rows = {0}, fewer = {0}, columns = {0}, on = {0};
  rows.on[LS_AXIS_DP_REPLICATE] = inner;
  rows.on[LS_AXIS_DP_SHARD] = fewer.on[LS_AXIS_DP_SHARD] = outer;
  assert_int_equal(ls_resolve(&mesh, &rows, &fewer, steps), 1);
  assert_int_equal(steps[0].collective, LS_ALL_GATHER);
  assert_string_equal(ls_resolve_reason(arena, &mesh, "x", &steps[0]),
                      "x: S(0)#1 on dp_replicate -> R");
  ls_placement other = {0};
  other.on[LS_AXIS_DP_REPLICATE] = inner;
  assert_int_equal(ls_resolve(&mesh, &rows, &other, steps), -1); /* the outer one alone */
  other.on[LS_AXIS_DP_SHARD] = outer;
  other.on[LS_AXIS_DP_REPLICATE].order = 0;
  assert_int_equal(ls_resolve(&mesh, &rows, &other, steps), -1); /* axes change places */
  /* Shards that have gone round go back before they change hands. */
  columns.on[LS_AXIS_DP_SHARD] = (ls_place){.kind = LS_SHARDED, .dim = 1, .shift = 1};
  on.on[LS_AXIS_DP_SHARD] = (ls_place){.kind = LS_SHARDED, .shift = 1};
  assert_int_equal(ls_resolve(&mesh, &on, &columns, steps), 3);
  static const char *const expected[] = {"x: S(0)+1 on dp_shard -> S(0)",
                                         "x: S(0) on dp_shard -> S(1)",
                                         "x: S(1) on dp_shard -> S(1)+1"};
  for (int s = 0; s < 3; s++)
    assert_string_equal(ls_resolve_reason(arena, &mesh, "x", &steps[s]), expected[s]);
  ls_arena_destroy(&arena);
}

static ls_placement on_tp(ls_place_kind kind, int dim, ls_reduce reduce) {
  ls_placement placement = {0};
  placement.on[LS_AXIS_TP_KV] = (ls_place){.kind = kind, .dim = (short)dim, .reduce = reduce};
  return placement;
}

static void test_steps_of_one_axis_and_their_bytes(void **state) {
  (void)state;
  const ls_mesh mesh = ls_mesh_make((const int[]){1, 2, 1, 1, 4, 1});
  const ls_tensor tensor = {.name = "x", .ndim = 2, .dims = {16, 8}};
  const ls_placement whole = {0}, rows = on_tp(LS_SHARDED, 0, LS_SUM),
                     columns = on_tp(LS_SHARDED, 1, LS_SUM), sum = on_tp(LS_PARTIAL, 0, LS_SUM),
                     max = on_tp(LS_PARTIAL, 0, LS_MAX);
  ls_placement turned = rows;
  turned.on[LS_AXIS_TP_KV].shift = 3;
  const struct {
    const ls_placement *from, *to;
    ls_collective collective;
    double bytes; /* of 16 x 8 fp32 by one rank; -1: cannot be */
  } cases[] = {{&sum, &whole, LS_ALL_REDUCE, 2 * 512 * 3.0 / 4},
               {&max, &whole, LS_ALL_REDUCE, 2 * 512 * 3.0 / 4},
               {&sum, &rows, LS_REDUCE_SCATTER, 512 * 3.0 / 4},
               {&rows, &whole, LS_ALL_GATHER, 512 * 3.0 / 4},
               {&whole, &rows, LS_COLLECTIVE_NONE, 0},
               {&columns, &whole, LS_COLLECTIVE_NONE, -1},
               {&columns, &rows, LS_ALL_TO_ALL, 512 * 3.0 / 16},
               {&rows, &columns, LS_ALL_TO_ALL, 512 * 3.0 / 16},
               {&rows, &turned, LS_PERMUTE, 512 / 4.0},
               {&turned, &rows, LS_PERMUTE, 512 / 4.0},
               {&sum, &columns, LS_COLLECTIVE_NONE, -1},
               {&whole, &columns, LS_COLLECTIVE_NONE, -1},
               {&whole, &sum, LS_COLLECTIVE_NONE, -1},
               {&max, &rows, LS_COLLECTIVE_NONE, -1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ls_resolve_step steps[LS_MAX_RESOLVE_STEPS];
    const int count = ls_resolve(&mesh, cases[i].from, cases[i].to, steps);
    assert_int_equal(count, cases[i].bytes < 0 ? -1 : 1);
    if (count == 1) {
      assert_int_equal(steps[0].collective, cases[i].collective);
      assert_true(ls_placement_equal(&mesh, &steps[0].after, cases[i].to, ls_mesh_all(&mesh)));
    }
    const double bytes = ls_resolve_bytes(&mesh, cases[i].from, cases[i].to, &tensor, 4);
    if (cases[i].bytes < 0)
      assert_true(bytes < 0);
    else
      assert_true(bytes == cases[i].bytes);
  }
  ls_resolve_step steps[LS_MAX_RESOLVE_STEPS];
  assert_int_equal(ls_resolve(&mesh, &whole, &whole, steps), 0);
}

/* Heads are cut by tensor parallelism, and inside of it by ranks that have changed tokens for them;
 * not outside, where shards would not lie together. */
static void test_tokens_change_for_heads_inside_of_tensor_ranks(void **state) {
  (void)state;
  const ls_mesh mesh = ls_mesh_make((const int[]){1, 1, 1, 2, 2, 1});
  ls_resolve_step steps[LS_MAX_RESOLVE_STEPS];
  ls_placement tokens = on_tp(LS_SHARDED, 1, LS_SUM), heads = tokens;
  tokens.on[LS_AXIS_CP] = (ls_place){.kind = LS_SHARDED, .dim = 0};
  heads.on[LS_AXIS_CP] = ls_place_sharded(&mesh.axes[LS_AXIS_CP], LS_CUT_FEATURES, 1);
  assert_int_equal(heads.on[LS_AXIS_CP].order, 1);
  assert_int_equal(ls_resolve(&mesh, &tokens, &heads, steps), 1);
  assert_int_equal(steps[0].collective, LS_ALL_TO_ALL);
  assert_int_equal(steps[0].axes, 1u << LS_AXIS_CP);
  assert_int_equal(ls_resolve(&mesh, &heads, &tokens, steps), 1);
  assert_int_equal(ls_mesh_part(&mesh, 1, &heads, 1, 8).start, 4); /* tp 1, cp 0 */
  assert_int_equal(ls_mesh_part(&mesh, 2, &heads, 1, 8).start, 2); /* tp 0, cp 1 */
  heads.on[LS_AXIS_CP].order = 0;
  assert_int_equal(ls_resolve(&mesh, &tokens, &heads, steps), -1);
}

/* Places by axis, but for the context's: R, S(0) as '0', S(1) as '1', S(flat) as 'f', P(sum) as
 * 'P'.
 */
static ls_placement spelled(const char *text) {
  ls_placement placement = {0};
  for (int i = 0; text[i]; i++) {
    ls_place *place = &placement.on[i < LS_AXIS_CP ? i : i + 1];
    if (text[i] == 'P') place->kind = LS_PARTIAL;
    if (text[i] == 'f') place->kind = LS_SHARDED_FLAT;
    if (text[i] == '0' || text[i] == '1')
      *place = (ls_place){.kind = LS_SHARDED, .dim = (short)(text[i] - '0')};
  }
  return placement;
}

/* On a mesh of two ranks on each axis, in the order pp, dp_replicate, dp_shard, tp_kv, tp_group:
 * which steps, and why. */
static void test_steps_over_all_axes(void **state) {
  (void)state;
  static const struct {
    const char *from, *to, *expected; /* NULL: cannot be */
  } cases[] = {
      {"RRfRR", "RRRRR", "all-gather x: S(flat) on dp_shard -> R"},
      {"RPPRR", "RRRRR", "all-reduce x: P(sum) on dp_replicate x dp_shard -> R"},
      {"RPPRR", "RRfRR",
       "reduce-scatter x: P(sum) on dp_shard -> S(flat), all-reduce x: P(sum) on dp_replicate -> "
       "R"},
      {"RPPRR", "RffRR", "reduce-scatter x: P(sum) on dp_replicate x dp_shard -> S(flat)"},
      {"PRfRR", "RRfRR", "all-reduce x: P(sum) on pp -> R"},
      {"PPRPR", "RRRRR", "all-reduce x: P(sum) on pp x dp_replicate x tp_kv -> R"},
      {"RffRR", "RfRRR", "all-gather x: S(flat) on dp_shard -> R"},
      {"RffRR", "RRfRR", NULL}, /* shards of the outer axis do not follow one another */
      {"R0000", "R00RR", "all-gather x: S(0) on tp_kv x tp_group -> R"},
      {"R0000", "R000R", NULL}, /* padded over both */
      {"R0000", "RR000", NULL},
      {"R00RR", "RRRRR", "all-gather x: S(0) on dp_replicate x dp_shard -> R"},
      {"RRRRR", "RRfRR", "op x: R on dp_shard -> S(flat)"},
      {"RRR1R", "RRR0R", "all-to-all x: S(1) on tp_kv -> S(0)"},
      {"RRR11", "RRR00", "all-to-all x: S(1) on tp_kv x tp_group -> S(0)"},
      {"RRR1R", "RRR10", "op x: R on tp_group -> S(0)"},
      {"RRR11", "RRR10", NULL}, /* padded over both */
      {"R0011", "R0000", "all-to-all x: S(1) on tp_kv x tp_group -> S(0)"},
      {"R1100", "R0000", NULL}, /* shards of the inner axes lie between */
      {"RRRPR", "RRR1R", NULL},
  };
  ls_arena *arena = ls_arena_create();
  const ls_mesh mesh = ls_mesh_make((const int[]){2, 2, 2, 1, 2, 2});
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const ls_placement from = spelled(cases[i].from), to = spelled(cases[i].to);
    ls_resolve_step steps[LS_MAX_RESOLVE_STEPS];
    const int count = ls_resolve(&mesh, &from, &to, steps);
    const char *found = NULL;
    for (int s = 0; s < count; s++)
      found = ls_arena_printf(arena, "%s%s%s %s", found ? found : "", found ? ", " : "",
                              ls_collective_name(steps[s].collective),
                              ls_resolve_reason(arena, &mesh, "x", &steps[s]));
    if (!cases[i].expected)
      assert_int_equal(count, -1);
    else
      assert_string_equal(found, cases[i].expected);
  }
  ls_arena_destroy(&arena);
}

static ls_sharded *shard(const ls_graph *graph, const ls_layout *layout) {
  ls_sharded *sharded;
  ls_error error = {0};
  if (ls_shard(graph, layout, &sharded, &error) != LS_OK) fail_msg("%s", error.text);
  return sharded;
}

/* Whole logits never exist on one rank, nor their gradient. */
static void test_logits_are_never_whole(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const ls_graph *graph = make_graph(arena, 41, 16, 4, 12);
  for (int tp = 2; tp <= 16; tp *= 2)
    for (int sp = 0; sp < 2; sp++) {
      const ls_layout layout = layout_of(1, 1, tp, sp);
      const ls_sharded *sharded = shard(graph, &layout);
      int seen = 0;
      for (int v = 0; v < sharded->values.count; v++) {
        const ls_shard_value *value = &sharded->values.items[v];
        const ls_tensor *tensor = ls_graph_tensor(graph, value->tensor);
        if (tensor->ndim != 2 || tensor->dims[0] != graph->tokens || tensor->dims[1] != 41)
          continue;
        const ls_part part = ls_mesh_part(&sharded->mesh, 0, &value->placement, 1, 41);
        assert_int_equal(part.stored, (41 + tp - 1) / tp);
        seen++;
      }
      assert_int_equal(seen, 2);
    }
  ls_arena_destroy(&arena);
}

/* What adds to the residual stream reads it where the row pins it. */
static void test_the_stream_lies_where_the_row_pins_it(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const ls_graph *graph = make_graph(arena, 41, 16, 4, 12);
  for (int sp = 0; sp < 2; sp++) {
    const ls_layout layout = layout_of(1, 1, 8, sp);
    const ls_sharded *sharded = shard(graph, &layout);
    int seen = 0;
    for (int n = 0; n < sharded->nodes.count; n++) {
      const ls_shard_node *node = &sharded->nodes.items[n];
      if (node->collective != LS_COLLECTIVE_NONE || node->kind != LS_OP_ADD || node->backward)
        continue;
      for (int i = 0; i < node->inputs; i++) {
        const ls_placement *found = &sharded->values.items[node->in[i]].placement;
        for (int a = LS_AXIS_TP_KV; a <= LS_AXIS_TP_GROUP; a++)
          assert_true(ls_place_equal(found->on[a], ls_stream_place(sp, &sharded->mesh.axes[a])));
        seen++;
      }
    }
    assert_int_equal(seen, 8); /* two layers of two branches */
  }
  ls_arena_destroy(&arena);
}

/* OLMo 2's norms of whole queries and keys leave gradients partial on one part of tp alone. */
static void test_norms_over_heads_that_tp_groups(void **state) {
  (void)state;
  static const char olmo[] =
      "{\"model_type\": \"olmo2\", \"vocab_size\": 41, \"hidden_size\": 32,"
      " \"intermediate_size\": 48, \"num_hidden_layers\": 1, \"num_attention_heads\": 16,"
      " \"num_key_value_heads\": %d, \"max_position_embeddings\": 16, \"rms_norm_eps\": 1e-5,"
      " \"tie_word_embeddings\": false}";
  for (int kv_heads = 1; kv_heads <= 16; kv_heads *= 2)
    for (int tp = 1; tp <= 16; tp *= 2)
      for (int sequence_parallel = 0; sequence_parallel < 2; sequence_parallel++) {
        ls_arena *arena = ls_arena_create();
        const ls_graph *graph = make_graph_of(arena, ls_arena_printf(arena, olmo, kv_heads), 8);
        const ls_layout layout = layout_of(1, 1, tp, sequence_parallel);
        ls_sharded *sharded;
        ls_error error = {0};
        if (ls_shard(graph, &layout, &sharded, &error) != LS_OK)
          fail_msg("%d KV heads, tp %d: %s", kv_heads, tp, error.text);
        ls_arena_destroy(&arena);
      }
}

static void test_placements_print(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const ls_mesh mesh = ls_mesh_make((const int[]){1, 2, 1, 1, 4, 2});
  ls_placement placement = on_tp(LS_PARTIAL, 0, LS_SUM);
  assert_string_equal(ls_placement_print(arena, &mesh, &placement), "P(sum) on tp_kv");
  placement.on[LS_AXIS_DP_REPLICATE] = (ls_place){.kind = LS_SHARDED, .dim = 0};
  placement.on[LS_AXIS_TP_GROUP] = (ls_place){.kind = LS_PARTIAL, .reduce = LS_MAX};
  assert_string_equal(ls_placement_print(arena, &mesh, &placement),
                      "S(0) on dp_replicate, P(sum) on tp_kv, P(max) on tp_group");
  placement = (ls_placement){0};
  placement.on[LS_AXIS_DP_SHARD] = (ls_place){.kind = LS_SHARDED, .dim = 0}; /* of one rank */
  assert_string_equal(ls_placement_print(arena, &mesh, &placement), "R");
  assert_string_equal(ls_axes_print(arena, &mesh, ls_mesh_axes(&mesh, LS_MESH_TENSOR)),
                      "tp_kv x tp_group");
  ls_arena_destroy(&arena);
}

static ls_graph *make_decoding(ls_arena *arena, int64_t tokens, int turns) {
  const char *text = ls_arena_printf(arena, llama, 40, 8, 4, 2);
  ls_model_config config;
  ls_graph *graph;
  ls_error error = {0};
  assert_int_equal(ls_model_config_parse(arena, "model", text, strlen(text), &config, &error),
                   LS_OK);
  const ls_build_options options = {
      .mode = LS_MODEL_DECODE, .tokens = tokens, .cache_rows = 7, .turns = turns};
  assert_int_equal(ls_model_build(arena, &config, &options, &graph, &error), LS_OK);
  return graph;
}

/* Caches by rows over cp and by heads over tp; what each rank's rows gave changes for tokens. */
static void test_caches_are_dealt_to_ranks(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_layout layout = layout_of(1, 1, 2, false);
  ls_sharded *sharded;
  ls_error error = {0};
  layout.cp = 2;
  layout.zero = 0;
  assert_int_equal(ls_shard(make_decoding(arena, 4, 2), &layout, &sharded, &error), LS_OK);
  int caches = 0, sent = 0;
  for (int n = 0; n < sharded->nodes.count; n++) {
    const ls_shard_node *node = &sharded->nodes.items[n];
    sent += node->collective == LS_ALL_TO_ALL;
    for (int i = 3;
         node->collective == LS_COLLECTIVE_NONE && node->kind == LS_OP_CACHED_PART && i < 5;
         i++, caches++) {
      const ls_shard_value *cache = &sharded->values.items[node->in[i]];
      assert_string_equal(ls_placement_print(arena, &sharded->mesh, &cache->placement),
                          "S(0)#1 on cp, S(1) on tp_kv");
      assert_int_equal(ls_graph_tensor(sharded->graph, cache->tensor)->dims[0], 8);
    }
  }
  assert_int_equal(caches, 2 * 2);
  assert_int_equal(sent, 2 * 2);
  assert_refused(make_decoding(arena, 3, 2), &layout,
                 "mesh.cp=2 with 3 tokens to decode and caches in 2 parts: expected multiples of "
                 "it");
  assert_refused(make_decoding(arena, 4, 0), &layout,
                 "mesh.cp=2 with 4 tokens to decode and caches in 1 parts: expected multiples of "
                 "it");
  ls_arena_destroy(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_refusals_name_the_nearest_legal_choice),
      cmocka_unit_test(test_data_strategies_can_be_lowered),
      cmocka_unit_test(test_tp_beyond_the_kv_heads_splits_in_two_axes),
      cmocka_unit_test(test_uneven_cut_of_a_vocabulary),
      cmocka_unit_test(test_parts_cover_everything_once),
      cmocka_unit_test(test_groups_are_the_ranks_that_differ_on_their_axes),
      cmocka_unit_test(test_steps_of_one_axis_and_their_bytes),
      cmocka_unit_test(test_order_and_shift_say_whose_rows),
      cmocka_unit_test(test_steps_follow_the_order_of_the_placement),
      cmocka_unit_test(test_tokens_change_for_heads_inside_of_tensor_ranks),
      cmocka_unit_test(test_steps_over_all_axes),
      cmocka_unit_test(test_logits_are_never_whole),
      cmocka_unit_test(test_the_stream_lies_where_the_row_pins_it),
      cmocka_unit_test(test_norms_over_heads_that_tp_groups),
      cmocka_unit_test(test_caches_are_dealt_to_ranks),
      cmocka_unit_test(test_placements_print)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
