/* What a row can say that no row of the product says in this way: dimensions that are scaled or
 * tied, an op in a layer that may not run again. The op is one of this test, whose row stands in
 * the place of another one's in the table. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "check/check.h"
#include "graph/labels.h"
#include "lower/compile.h"

/* The table itself, in which this test's row takes the place of ... */
#define ls_op_row table_row
const ls_op *table_row(ls_op_kind kind);
#include "graph/op_table.c" /* NOLINT */
#undef ls_op_row
static const ls_op_kind replaces = LS_OP_SWIGLU;

static ls_op replaced;

const ls_op *ls_op_row(ls_op_kind kind) {
  return kind == replaces ? &replaced : table_row(kind);
}

/* Labels of all rows are read once; this row's again. */
static void use(const char *labels) {
  replaced = (ls_op){.labels = labels, .shardable = "nc"};
  ls_op_labels *all = (ls_op_labels *)(uintptr_t)ls_op_labels_list();
  all[replaces] = ls_op_labels_read(replaces);
}

static void test_rules_are_read(void **state) {
  (void)state;
  const ls_attributes attributes = {.head_dim = 8};
  use("n c/16, t~n gr/head_dim, s, 1 -> n c");
  const ls_op_labels labels = ls_op_labels_read(replaces);
  assert_int_equal(labels.inputs, 4);
  assert_string_equal(labels.in[0].dim[1], "c");
  assert_int_equal(ls_operand_divisor(&labels.in[0], 0, &attributes), 1);
  assert_int_equal(ls_operand_divisor(&labels.in[0], 1, &attributes), 16);
  assert_int_equal(ls_operand_divisor(&labels.in[1], 1, &attributes), 8);
  assert_int_equal(ls_operand_dim(&labels.in[0], 'c'), 1);
  assert_int_equal(ls_operand_dim(&labels.in[1], 'n'), 0);
  assert_int_equal(ls_operand_dim(&labels.in[1], 't'), 0);
  assert_int_equal(ls_operand_dim(&labels.in[1], 'r'), 1);
  assert_int_equal(ls_operand_dim(&labels.in[2], 'n'), -1);
}

enum { TOKENS = 8, VOCABULARY = 12 };

static ls_tensor_id weight(ls_graph *graph, const char *name, int64_t out, int64_t in,
                           ls_tp_sharding sharding) {
  return ls_graph_parameter(
      graph, &(ls_parameter){.name = name, .ndim = 2, .dims = {out, in}, .sharding = sharding});
}

/* The op of a product of so many columns and of another of so many, then a loss. */
static ls_graph *make_graph(ls_arena *arena, int64_t columns, int64_t others) {
  ls_graph *graph = ls_graph_create(arena);
  graph->tokens = graph->sequence = TOKENS;
  graph->heads = graph->kv_heads = 2;
  graph->head_dim = 4;
  graph->vocabulary = VOCABULARY;
  ls_graph_segment(graph, "embedding");
  graph->ids = ls_graph_input(graph, "ids", TOKENS);
  graph->labels = ls_graph_input(graph, "labels", TOKENS);
  ls_tensor_id x = ls_graph_stream(
      graph, ls_graph_embedding(graph, weight(graph, "table", VOCABULARY, 8, LS_TP_VOCABULARY),
                                graph->ids, 1));
  ls_graph_layer(graph, 0);
  ls_tensor_id wide = ls_graph_linear(graph, x, weight(graph, "wide", columns, 8, LS_TP_COLUMN));
  ls_tensor_id few = ls_graph_linear(graph, x, weight(graph, "few", others, 8, LS_TP_COLUMN));
  const int node = ls_graph_node(
      graph, replaces, NULL, (ls_tensor_id[LS_MAX_INPUTS]){wide, few, {-1}, {-1}, {-1}, {-1}, {-1}},
      LS_MAX_OUTPUTS, NULL);
  x = ls_graph_linear(graph, graph->nodes.items[node].out[0],
                      weight(graph, "down", 8, columns, LS_TP_ROW));
  ls_graph_segment(graph, "head");
  ls_graph_cross_entropy(
      graph, ls_graph_linear(graph, x, weight(graph, "head", VOCABULARY, 8, LS_TP_VOCABULARY)));
  return graph;
}

typedef struct compiled {
  const ls_graph *graph;
  ls_program *program;
} compiled;

/* Compiles for two tensor ranks; how the op's second input lies over them. */
static ls_place compile(ls_arena *arena, int64_t columns, int64_t others, compiled *made) {
  ls_layout layout = ls_layout_default();
  ls_error error = {0};
  layout.tp = 2;
  made->graph = make_graph(arena, columns, others);
  if (ls_program_compile(made->graph, &layout, LS_PROGRAM_FORWARD, &made->program, &error) != LS_OK)
    fail_msg("%s", error.text);
  const ls_program *program = made->program;
  for (int i = 0; i < program->instructions.count; i++) {
    const ls_instruction *each = &program->instructions.items[i];
    if (each->collective == LS_COLLECTIVE_NONE && each->kind == replaces)
      return program->values.items[each->in[1]].placement.on[LS_AXIS_TP_KV];
  }
  fail_msg("the op is not there");
  return (ls_place){0};
}

static void expect_no_place(ls_arena *arena, int64_t columns, int64_t others) {
  ls_layout layout = ls_layout_default();
  ls_program *program;
  ls_error error = {0};
  layout.tp = 2;
  assert_int_equal(ls_program_compile(make_graph(arena, columns, others), &layout,
                                      LS_PROGRAM_FORWARD, &program, &error),
                   LS_INTERNAL);
  assert_non_null(strstr(error.text, "no placement"));
}

static ls_status check(const compiled *made, ls_error *error) {
  return ls_check(made->graph, &made->program->layout, &(const ls_program *){made->program}, NULL,
                  error);
}

static void expect_accepted(const compiled *made) {
  ls_error error = {0};
  if (check(made, &error) != LS_OK) fail_msg("%s", error.text);
}

static void expect_refused(const compiled *made, const char *why) {
  ls_error error = {0};
  assert_int_equal(check(made, &error), LS_REFUTED);
  if (!strstr(error.text, why)) fail_msg("%s: expected %s", error.text, why);
}

/* A scale for each four columns lies with them; a cut through four is none. */
static void test_scaled_dimensions_are_cut_into_whole_elements(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  compiled made;
  use("n c, n c/4 -> n c");
  assert_int_equal(compile(arena, 16, 4, &made).kind, LS_SHARDED);
  expect_accepted(&made);
  use("n c, n c/8 -> n c");
  expect_refused(&made, "expected 16");
  use("n c, n c/4 -> n c");
  replaced.shardable = "c"; /* tokens could be cut in place of columns */
  expect_no_place(arena, 12, 3);
  ls_arena_destroy(&arena);
}

/* Three rows are cut where twelve columns are; what the row calls scaled may not be. */
static void test_tied_dimensions_are_cut_together(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  compiled made;
  use("n c, n s~c -> n c");
  const ls_place place = compile(arena, 12, 3, &made);
  assert_true(place.kind == LS_SHARDED && place.dim == 1);
  expect_accepted(&made);
  use("n c, n c/4 -> n c");
  expect_refused(&made, "expected whole ones on each");
  use("n c, n s -> n c");
  expect_refused(&made, "in ways that do not fit");
  ls_arena_destroy(&arena);
}

/* How often the op stands in a step whose layer is made again. */
static int count_in_step(ls_again again) {
  ls_arena *arena = ls_arena_create();
  use("n c, n s~c -> n c");
  replaced.again = again;
  ls_graph *graph = make_graph(arena, 12, 4);
  for (int p = 0; p < 3; p++) graph->parameters.items[p].trainable = false; /* behind the op */
  ls_graph_backward(graph);
  ls_layout layout = ls_layout_default();
  layout.recompute = (ls_op_set)LS_EVERY_OP;
  compiled made = {.graph = graph};
  ls_error error = {0};
  if (ls_program_compile(graph, &layout, LS_PROGRAM_STEP, &made.program, &error) != LS_OK)
    fail_msg("%s", error.text);
  expect_accepted(&made);
  int count = 0;
  for (int i = 0; i < made.program->instructions.count; i++)
    count += made.program->instructions.items[i].kind == replaces;
  ls_arena_destroy(&arena);
  return count;
}

static void test_what_may_not_run_again_is_kept(void **state) {
  (void)state;
  assert_int_equal(count_in_step(LS_AGAIN_MAY), 2);
  assert_int_equal(count_in_step(LS_AGAIN_NEVER), 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_rules_are_read),
      cmocka_unit_test(test_scaled_dimensions_are_cut_into_whole_elements),
      cmocka_unit_test(test_tied_dimensions_are_cut_together),
      cmocka_unit_test(test_what_may_not_run_again_is_kept)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
