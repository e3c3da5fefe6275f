/* What each gradient op does, as a table of its own, and what follows: a gradient is a sum of
 * terms, one for each use of the tensor it is of; whoever reads it must find all of them. */
#include <string.h>

#include "check/proof.h"

/* `in`: the operands by what they must be: g the gradient of the forward op's output 0, digits its
 * inputs (those that it has), letters from A its outputs. `out`: of which inputs the gradients come
 * out. */
static const struct rule {
  ls_op_kind backward, forward;
  const char *in, *out;
} rules[] = {
    {LS_OP_EMBEDDING_DW, LS_OP_EMBEDDING, "g1", "0"},
    {LS_OP_LINEAR_DX, LS_OP_LINEAR, "g1", "0"},
    {LS_OP_LINEAR_DW, LS_OP_LINEAR, "g0", "1"},
    {LS_OP_BIAS_DB, LS_OP_BIAS, "g", "1"},
    {LS_OP_LAYERNORM_BWD, LS_OP_LAYERNORM, "g01BC", "012"},
    {LS_OP_RMSNORM_BWD, LS_OP_RMSNORM, "g01B", "01"},
    {LS_OP_HEADNORM_BWD, LS_OP_HEADNORM, "g01B", "01"},
    {LS_OP_ROW_SQUARES_BWD, LS_OP_ROW_SQUARES, "g0", "0"},
    {LS_OP_ROW_SCALE_BWD, LS_OP_ROW_SCALE, "g012", "012"},
    {LS_OP_ROPE_BWD, LS_OP_ROPE, "g1", "0"},
    {LS_OP_ATTENTION_BWD, LS_OP_ATTENTION, "g012AB3", "012"},
    {LS_OP_GELU_BWD, LS_OP_GELU, "g0", "0"},
    {LS_OP_SWIGLU_BWD, LS_OP_SWIGLU, "g01", "01"},
    {LS_OP_SOFTCAP_BWD, LS_OP_SOFTCAP, "gA", "0"},
};
enum { RULES = sizeof rules / sizeof *rules, MOST_CANDIDATES = 64 };

static const struct rule *find_rule(ls_op_kind backward) {
  for (int r = 0; r < RULES; r++)
    if (rules[r].backward == backward) return &rules[r];
  return NULL;
}

bool ls_op_is_backward(ls_op_kind kind) {
  return kind == LS_OP_XENT_GRAD || find_rule(kind);
}

/* Inputs whose gradient is the output's own, so that no op makes it. */
static bool passes_through(int kind, int position) {
  return kind == LS_OP_ADD || (kind == LS_OP_BIAS && position == 0);
}

bool ls_use_gives_gradient(ls_op_kind kind, int position) {
  if (passes_through((int)kind, position)) return true;
  if (kind == LS_OP_XENT_SUM) return position == 0; /* stands for the whole cross-entropy */
  for (int r = 0; r < RULES; r++)
    if (rules[r].forward == kind && strchr(rules[r].out, '0' + position)) return true;
  return false;
}

/* A gradient under another name: that of x + b is that of x too. */
typedef struct candidate {
  int target;
  ls_terms terms;
} candidate;

static bool all_uses(const ls_stage *stage, const candidate *each, int microbatch) {
  const int uses = ls_terms_uses(each->terms, microbatch, microbatch);
  return uses > 0 && uses == stage->proof->expressions.uses.items[each->target];
}

/* What the gradient is of, and what it is the one term of, as far as it has all uses. */
static int list_candidates(const ls_stage *stage, const ls_content *gradient,
                           candidate found[MOST_CANDIDATES]) {
  const ls_expressions *all = &stage->proof->expressions;
  int count = 0;
  found[count++] = (candidate){gradient->expression, gradient->terms};
  for (int c = 0; c < count; c++) {
    const int node = found[c].target / LS_EXPRESSION_OUTPUTS;
    const ls_node_record *record = &all->nodes.items[node];
    if (found[c].target % LS_EXPRESSION_OUTPUTS != 0 ||
        !all_uses(stage, &found[c], gradient->microbatch))
      continue;
    for (int i = 0; i < record->inputs && count < MOST_CANDIDATES; i++)
      if (passes_through(record->kind, i))
        found[count++] = (candidate){
            record->in[i],
            ls_term_one(stage->proof->arena, node, i, gradient->microbatch, gradient->microbatch)};
  }
  return count;
}

/* Remembers that the gradient was taken for whole, until all uses are known. */
static void claim(const ls_stage *stage, int target, int uses) {
  ls_expressions *all = &stage->proof->expressions;
  if (all->claimed.items[target]) return;
  all->claimed.items[target] = uses;
  all->claimed_by.items[target] = ls_proof_place(stage);
}

ls_status ls_gradient_claims(ls_proof *proof, ls_error *error) {
  const ls_expressions *all = &proof->expressions;
  for (int e = 0; e < all->uses.count; e++) {
    if (!all->claimed.items[e] || all->claimed.items[e] == all->uses.items[e]) continue;
    const ls_place_in_program *at = &all->claimed_by.items[e];
    return ls_fail(error, LS_NO,
                   "stage %d action %d instruction %d: reads a gradient of %d uses: expected the "
                   "sum over all %d",
                   at->stage, at->action, at->instruction, all->claimed.items[e],
                   all->uses.items[e]);
  }
  return LS_OK;
}

/* The forward node that fits the op's operands, if `target` is its output 0. */
static bool fits(const ls_stage *stage, const struct rule *rule, const ls_content *const *in,
                 int target) {
  const ls_instruction *instruction = ls_proof_instruction(stage);
  const ls_expressions *all = &stage->proof->expressions;
  const ls_node_record *node = ls_expression_record(all, target);
  if (node->kind != (int)rule->forward || target % LS_EXPRESSION_OUTPUTS != 0) return false;
  for (int i = 0; rule->in[i]; i++) {
    const char operand = rule->in[i];
    if (operand == 'g') continue;
    /* What the forward op was without, its gradient is without. */
    const bool there = operand >= 'A' || operand - '0' < node->inputs;
    if (there != (i < instruction->inputs)) return false;
    if (!there) continue;
    const int expected = operand >= 'A' ? target + (operand - 'A') : node->in[operand - '0'];
    if (in[i]->expression != expected) return false;
  }
  for (int o = 0; rule->out[o]; o++) { /* a parameter's gradient says whose it is */
    const int parameter = stage->gradient_of[instruction->out[o]];
    if (parameter == -1) continue;
    const ls_node_record *of = ls_expression_record(all, node->in[rule->out[o] - '0']);
    if (of->kind != (int)LS_LEAF_PARAMETER || of->in[0] != parameter) return false;
  }
  return true;
}

static ls_content of_use(const ls_stage *stage, int target, int node, int position, int m) {
  const ls_expressions *all = &stage->proof->expressions;
  const bool parameter = ls_expression_record(all, target)->kind == (int)LS_LEAF_PARAMETER;
  return (ls_content){.kind = LS_CONTENT_GRADIENT,
                      .expression = target,
                      .microbatch = parameter ? -1 : m,
                      .terms = ls_term_one(stage->proof->arena, node, position, m, m)};
}

/* The scale of the loss must be made of the finished count, everywhere the same. */
static ls_status cross_entropy(ls_stage *stage, const ls_content *const *in, ls_content *out,
                               ls_error *error) {
  ls_expressions *all = &stage->proof->expressions;
  const ls_attributes none = {0};
  const int logits = in[0]->expression, labels = in[3]->expression, m = in[0]->microbatch;
  const int max = ls_expression_node(all, LS_OP_XENT_MAX, &none, &logits, 1);
  const int sum = ls_expression_node(all, LS_OP_XENT_SUM, &none,
                                     (int[]){logits, max * LS_EXPRESSION_OUTPUTS, labels}, 3);
  if (in[1]->expression != max * LS_EXPRESSION_OUTPUTS ||
      in[2]->expression != sum * LS_EXPRESSION_OUTPUTS)
    return ls_proof_fail(stage, error,
                         "differentiates the cross-entropy of other logits: expected "
                         "the maximum and the sum of these");
  if (in[4]->kind != LS_CONTENT_VALUE ||
      in[4]->expression != ls_expression_leaf(all, LS_LEAF_CELL, LS_CELL_LOSS_SCALE, 0))
    return ls_proof_fail(stage, error, "scales by something else: expected the loss scale");
  *out = of_use(stage, logits, sum, 0, m);
  return LS_OK;
}

ls_status ls_gradient_op(ls_stage *stage, const ls_content *const *in, ls_content *out,
                         ls_error *error) {
  const ls_instruction *instruction = ls_proof_instruction(stage);
  const struct rule *rule = find_rule(instruction->kind);
  for (int i = 0; i < instruction->inputs; i++) {
    const bool gradient = rule && rule->in[i] == 'g';
    if (in[i]->kind != (gradient ? LS_CONTENT_GRADIENT : LS_CONTENT_VALUE))
      return ls_proof_fail(stage, error, "input %d is %s: expected %s", i,
                           gradient ? "no gradient" : "not a finished value",
                           gradient ? "a gradient" : "one of the forward pass");
  }
  if (!rule) return cross_entropy(stage, in, out, error);
  candidate found[MOST_CANDIDATES];
  const int count = list_candidates(stage, in[0], found), m = in[0]->microbatch;
  for (int c = 0; c < count; c++) {
    if (!fits(stage, rule, in, found[c].target)) continue;
    const ls_node_record node = *ls_expression_record(&stage->proof->expressions, found[c].target);
    if (!all_uses(stage, &found[c], m))
      return ls_proof_fail(
          stage, error, "reads a gradient of %d uses: expected the sum over all %d",
          found[c].terms.count, stage->proof->expressions.uses.items[found[c].target]);
    if (!ls_attributes_equal(&node.attributes, &instruction->attributes))
      return ls_proof_fail(stage, error,
                           "has other settings than its forward pass: expected the "
                           "same");
    claim(stage, found[c].target, found[c].terms.count);
    for (int o = 0; rule->out[o]; o++)
      out[o] = of_use(stage, node.in[rule->out[o] - '0'], found[c].target / LS_EXPRESSION_OUTPUTS,
                      rule->out[o] - '0', m);
    return LS_OK;
  }
  return ls_proof_fail(stage, error,
                       "its operands fit no %s of the forward pass that the gradient is of: "
                       "expected what that one read and made",
                       ls_op_name(rule->forward));
}

ls_status ls_gradient_add(ls_stage *stage, const ls_content *const *in, ls_content *out,
                          ls_error *error) {
  candidate a[MOST_CANDIDATES], b[MOST_CANDIDATES];
  const int as = list_candidates(stage, in[0], a), bs = list_candidates(stage, in[1], b);
  if (in[0]->microbatch != in[1]->microbatch)
    return ls_proof_fail(stage, error, "adds gradients of microbatches %d and %d: expected one",
                         in[0]->microbatch, in[1]->microbatch);
  bool twice = false;
  for (int i = 0; i < as; i++)
    for (int j = 0; j < bs; j++) {
      if (a[i].target != b[j].target) continue;
      ls_terms both;
      twice = !ls_terms_join(stage->proof->arena, a[i].terms, b[j].terms, &both);
      if (twice) continue;
      *out = (ls_content){.kind = LS_CONTENT_GRADIENT,
                          .expression = a[i].target,
                          .microbatch = in[0]->microbatch,
                          .terms = both};
      return LS_OK;
    }
  return ls_proof_fail(stage, error,
                       twice ? "adds a contribution twice: expected each once"
                             : "adds gradients of different tensors: expected one");
}

ls_status ls_gradient_complete(ls_stage *stage, const ls_content *content, ls_error *error) {
  const ls_program *program = stage->program;
  const int last = program->layout.microbatches - 1;
  const int uses = ls_terms_uses(content->terms, 0, last);
  const int expected = stage->proof->expressions.uses.items[content->expression];
  if (uses < 0)
    return ls_proof_fail(stage, error,
                         "reads a gradient that lacks microbatches, or rows of one: expected each "
                         "of %d once and whole",
                         last + 1);
  if (uses != expected)
    return ls_proof_fail(stage, error, "reads a gradient of %d uses: expected the sum over all %d",
                         uses, expected);
  claim(stage, content->expression, uses);
  return LS_OK;
}
