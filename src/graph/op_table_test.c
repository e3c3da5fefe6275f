/* What must hold of every row of the op table. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "graph/labels.h"

/* Operands of a gradient rule are there, and as many as the op that makes it has. */
static void check_rule(ls_op_kind kind, const ls_gradient_rule *rule) {
  const ls_op_labels of = ls_op_labels_read(kind), made = ls_op_labels_read(rule->op);
  assert_int_equal(strlen(rule->in), made.inputs);
  assert_int_equal(strlen(rule->out), made.outputs);
  for (const char *in = rule->in; *in; in++) {
    if (*in >= 'a')
      assert_true(*in - 'a' < of.outputs);
    else if (*in >= 'A')
      assert_true(*in - 'A' < of.outputs);
    else
      assert_true(*in >= '0' && *in - '0' < of.inputs);
  }
  for (const char *out = rule->out; *out; out++) {
    assert_true(*out >= '0' && *out - '0' < of.inputs);
    assert_true(ls_op_gives_gradient(kind, *out - '0'));
  }
}

static void test_gradient_rules_fit_their_ops(void **state) {
  (void)state;
  for (ls_op_kind kind = 0; kind < LS_OP_COUNT; kind++)
    for (int r = 0; r < LS_MAX_GRADIENT_RULES; r++)
      if (ls_op_row(kind)->gradients[r].in) check_rule(kind, &ls_op_row(kind)->gradients[r]);
}

static bool has_label(const ls_op_labels *labels, char label) {
  for (int i = 0; i < labels->inputs; i++)
    if (ls_operand_dim(&labels->in[i], label) >= 0) return true;
  for (int o = 0; o < labels->outputs; o++)
    if (ls_operand_dim(&labels->out[o], label) >= 0) return true;
  return false;
}

static void test_rows_speak_of_their_own_labels(void **state) {
  (void)state;
  for (ls_op_kind kind = 0; kind < LS_OP_COUNT; kind++) {
    const ls_op *row = ls_op_row(kind);
    const ls_op_labels labels = ls_op_labels_read(kind);
    assert_int_equal(ls_op_labels_list()[kind].inputs, labels.inputs);
    assert_int_equal(ls_op_labels_list()[kind].outputs, labels.outputs);
    assert_memory_equal(ls_op_labels_list()[kind].in[0].dim, labels.in[0].dim,
                        sizeof labels.in[0].dim);
    for (const char *label = row->shardable; label && *label; label++)
      assert_true(has_label(&labels, *label));
    for (int r = 0; r < LS_MAX_LABEL_RULES; r++)
      if (row->only[r].label && row->only[r].label != '.')
        assert_true(has_label(&labels, row->only[r].label));
    if (row->picked) assert_true(has_label(&labels, row->picked));
    for (const char *input = row->indices; input && *input; input++)
      assert_true(*input - '0' < labels.inputs);
    for (const char *input = row->writes; input && *input; input++)
      assert_true(*input - '0' < labels.inputs);
    assert_true(row->in_place <= labels.inputs && !(row->product && row->flops));
  }
}

/* What changes state would change it twice. */
static void test_what_changes_state_never_runs_again(void **state) {
  (void)state;
  for (ls_op_kind kind = 0; kind < LS_OP_COUNT; kind++)
    if (ls_op_row(kind)->writes || ls_op_row(kind)->updates)
      assert_int_equal(ls_op_row(kind)->again, LS_AGAIN_NEVER);
}

static void test_labels_name_axes_they_may_be_cut_over(void **state) {
  (void)state;
  const ls_op *attention = ls_op_row(LS_OP_ATTENTION), *linear = ls_op_row(LS_OP_LINEAR);
  assert_true(ls_op_may_shard(linear, 'n', LS_SHARES_KV_HEADS));
  assert_false(ls_op_may_shard(linear, 'x', LS_SHARES_KV_HEADS));
  assert_true(ls_op_may_shard(attention, 'b', LS_SHARES_SEQUENCES));
  assert_false(ls_op_may_shard(attention, 'b', LS_SHARES_QUERIES));
  assert_true(ls_op_may_shard(attention, 't', LS_SHARES_TOKENS | LS_SHARES_QUERIES));
  assert_false(ls_op_may_shard(attention, 't', LS_SHARES_TOKENS | LS_SHARES_KV_HEADS));
  assert_false(ls_op_may_shard(attention, 's', LS_SHARES_QUERIES));
  assert_true(ls_op_may_shard(attention, 'g', LS_SHARES_KV_HEADS));
  assert_false(ls_op_may_shard(attention, 'g', LS_SHARES_QUERY_HEADS));
  assert_false(ls_op_may_shard(attention, 'r', LS_SHARES_STAGES));
  const ls_shares over_tp = LS_SHARES_KV_HEADS | LS_SHARES_SENT | LS_SHARES_STREAM;
  assert_true(ls_op_may_shard(ls_op_row(LS_OP_ROUTE), 'n', over_tp));
  assert_true(ls_op_may_shard(ls_op_row(LS_OP_GROUPED_UP), 'x', over_tp));
  assert_false(ls_op_may_shard(ls_op_row(LS_OP_GROUPED_UP), 'm', over_tp));
  assert_false(ls_op_may_shard(ls_op_row(LS_OP_LEFT_OUT), 'n', over_tp));
  assert_true(ls_op_takes_rows(linear) && !ls_op_takes_rows(attention));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_gradient_rules_fit_their_ops),
                                     cmocka_unit_test(test_rows_speak_of_their_own_labels),
                                     cmocka_unit_test(test_what_changes_state_never_runs_again),
                                     cmocka_unit_test(test_labels_name_axes_they_may_be_cut_over)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
