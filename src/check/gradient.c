/* Which gradients an instruction makes, by the gradient rules in the rows of ops: a gradient is a
 * sum of terms, one for each use of the tensor it is of; whoever reads it must find all of them. */
#include <string.h>

#include "check/proof.h"

ls_backward *ls_backward_list(ls_arena *arena) {
  ls_backward *made = LS_NEW_ARRAY(arena, ls_backward, LS_OP_COUNT);
  for (int k = 0; k < LS_OP_COUNT; k++) {
    const ls_op *row = ls_op_row((ls_op_kind)k);
    for (int r = 0; r < LS_MAX_GRADIENT_RULES && row->gradients[r].in; r++)
      if (!made[row->gradients[r].op].rule)
        made[row->gradients[r].op] = (ls_backward){(ls_op_kind)k, &row->gradients[r]};
  }
  return made;
}

/* How the op makes gradients of this kind of node, which may be one of several; NULL: it does not.
 * Gradients stand at the same places of all rules. */
static const ls_gradient_rule *rule_of(int forward, ls_op_kind op) {
  if (forward >= (int)LS_OP_COUNT) return NULL;
  const ls_op *row = ls_op_row((ls_op_kind)forward);
  for (int r = 0; r < LS_MAX_GRADIENT_RULES && row->gradients[r].in; r++)
    if (row->gradients[r].op == op) return &row->gradients[r];
  return NULL;
}

/* Of a candidate, of a microbatch. */
static bool all_uses(const ls_stage *stage, const ls_content *gradient, const ls_candidate *each) {
  const int m = gradient->microbatch;
  const int uses = each->node < 0 ? ls_terms_uses(gradient->terms, m, m) : 1;
  return uses > 0 && uses == stage->proof->expressions.uses.items[each->target];
}

/* What the gradient is of, and what it is the one term of, as far as it has all uses. In one of the
 * proof's lists. */
static const ls_candidates *list_candidates(const ls_stage *stage, const ls_content *gradient,
                                            int list) {
  const ls_expressions *all = &stage->proof->expressions;
  ls_candidates *found = &stage->proof->candidates[list];
  found->count = 0;
  *LS_APPEND(stage->proof->arena, found) = (ls_candidate){gradient->expression, -1, -1};
  for (int c = 0; c < found->count; c++) {
    const int target = found->items[c].target, node = target / LS_EXPRESSION_OUTPUTS;
    const ls_node_record *record = &all->nodes.items[node];
    if (record->kind >= (int)LS_OP_COUNT || !all_uses(stage, gradient, &found->items[c])) continue;
    for (int i = 0; i < record->inputs; i++)
      if (ls_op_passes(ls_op_row((ls_op_kind)record->kind), i) == target % LS_EXPRESSION_OUTPUTS)
        *LS_APPEND(stage->proof->arena, found) = (ls_candidate){record->in[i], node, i};
  }
  return found;
}

static ls_terms terms_of(const ls_stage *stage, const ls_content *gradient,
                         const ls_candidate *each) {
  const int m = gradient->microbatch;
  if (each->node < 0) return gradient->terms;
  return ls_term_one(stage->proof->arena, each->node, each->position, m, m);
}

static bool is_gradient(char operand) {
  return operand >= 'a';
}

static char first_gradient(const ls_gradient_rule *rule) {
  const char *of = rule->in;
  while (*of && !is_gradient(*of)) of++;
  return *of;
}

/* Whether the gradient is that of `target`, of all its uses. */
static bool is_gradient_of(const ls_stage *stage, const ls_content *gradient, int target) {
  const ls_candidates *found = list_candidates(stage, gradient, 1);
  for (int c = 0; c < found->count; c++)
    if (found->items[c].target == target && all_uses(stage, gradient, &found->items[c]))
      return true;
  return false;
}

/* The forward node that fits the op's operands, if `target` is its output that the op reads the
 * first gradient of, and the other gradients are those of its outputs too. */
static bool fits(const ls_stage *stage, const ls_content *const *in, const ls_content *gradients,
                 int target) {
  const ls_instruction *instruction = ls_proof_instruction(stage);
  const ls_expressions *all = &stage->proof->expressions;
  const ls_node_record *node = ls_expression_record(all, target);
  const int first = target - target % LS_EXPRESSION_OUTPUTS;
  const ls_gradient_rule *rule = rule_of(node->kind, instruction->kind);
  if (!rule) return false;
  for (int i = 0; rule->in[i]; i++) {
    const char operand = rule->in[i];
    if (is_gradient(operand)) {
      const int output = first + (operand - 'a');
      const bool other = operand != first_gradient(rule);
      if (other ? !is_gradient_of(stage, &gradients[i], output) : target != output) return false;
      continue;
    }
    /* What the forward op was without, its gradient is without. */
    const bool there = operand >= 'A' || operand - '0' < node->inputs;
    if (there != (i < instruction->inputs)) return false;
    if (!there) continue;
    const int expected = operand >= 'A' ? first + (operand - 'A') : node->in[operand - '0'];
    if (in[i]->expression != expected) return false;
  }
  for (int o = 0; o < instruction->outputs; o++) { /* a parameter's gradient says whose it is */
    const int parameter = stage->gradient_of[instruction->out[o]];
    if (parameter == -1) continue;
    const int receiver = ls_expression_receiver(all, node->in[rule->out[o] - '0']);
    const ls_node_record *of = ls_expression_record(all, receiver);
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

/* The gradients that the op reads, by input. The own of `root`, a loss, is the loss scale, a
 * finished cell, everywhere the same: its one use is that it is a root. -1: there is none. */
static ls_status find_gradients(const ls_stage *stage, const ls_content *const *in, int root,
                                ls_content gradients[LS_MAX_INPUTS], ls_error *error) {
  const ls_instruction *instruction = ls_proof_instruction(stage);
  ls_proof *proof = stage->proof;
  const char *operands = proof->backward[instruction->kind].rule->in;
  for (int i = 0; i < instruction->inputs; i++) {
    const bool wanted = is_gradient(operands[i]);
    const ls_content_kind kind = !wanted                       ? LS_CONTENT_VALUE
                                 : instruction->attributes.fp8 ? LS_CONTENT_ROUNDED
                                                               : LS_CONTENT_GRADIENT;
    const bool scale = wanted && in[i]->kind == LS_CONTENT_VALUE && root >= 0 &&
                       in[i]->expression == ls_expression_leaf(&proof->expressions, LS_LEAF_CELL,
                                                               LS_CELL_LOSS_SCALE, 0);
    if (scale)
      gradients[i] = of_use(stage, root, LS_ROOT, 0, in[0]->microbatch);
    else if (in[i]->kind != kind)
      return ls_proof_fail(stage, error, "input %d is %s: expected %s", i,
                           in[i]->kind == LS_CONTENT_ROUNDED ? "a gradient rounded to fp8"
                           : kind == LS_CONTENT_ROUNDED      ? "no gradient rounded to fp8"
                           : wanted                          ? "no gradient"
                                                             : "not a finished value",
                           kind == LS_CONTENT_ROUNDED ? "one"
                           : wanted ? "a gradient, or the loss scale as the loss's"
                                    : "one of the forward pass");
    else if (wanted)
      gradients[i] = *in[i];
  }
  return LS_OK;
}

/* The candidate that fits, of those with the op's settings or of the others; NULL: none. Turns of a
 * ring read the same, so settings come first. */
static const ls_candidate *find_fitting(const ls_stage *stage, const ls_content *const *in,
                                        const ls_content *gradients, const ls_candidates *found,
                                        bool same_settings) {
  const ls_instruction *instruction = ls_proof_instruction(stage);
  for (int c = 0; c < found->count; c++) {
    const int target = found->items[c].target;
    const ls_node_record *node = ls_expression_record(&stage->proof->expressions, target);
    if (ls_attributes_equal(node->attributes, &instruction->attributes) == same_settings &&
        fits(stage, in, gradients, target))
      return &found->items[c];
  }
  return NULL;
}

ls_status ls_gradient_op(ls_stage *stage, const ls_content *const *in, ls_content *out,
                         ls_error *error) {
  const ls_instruction *instruction = ls_proof_instruction(stage);
  const ls_backward *backward = &stage->proof->backward[instruction->kind];
  const ls_expressions *all = &stage->proof->expressions;
  ls_content gradients[LS_MAX_INPUTS] = {{0}};
  const char *operands = backward->rule->in;
  const ls_content *driving =
      &gradients[strchr(operands, first_gradient(backward->rule)) - operands];
  const ls_candidate *each = NULL, *other = NULL;
  const int losses = stage->proof->losses.count; /* one of which the scale may be the gradient of */
  for (int l = 0; l < (losses ? losses : 1) && !other; l++) {
    LS_TRY(
        find_gradients(stage, in, losses ? stage->proof->losses.items[l] : -1, gradients, error));
    const ls_candidates *found = list_candidates(stage, driving, 0);
    each = find_fitting(stage, in, gradients, found, true);
    other = each ? each : find_fitting(stage, in, gradients, found, false);
  }
  if (!other)
    return ls_proof_fail(stage, error,
                         "its operands fit no %s of the forward pass that the gradient is of: "
                         "expected what that one read and made",
                         ls_op_name(backward->forward));
  if (!all_uses(stage, driving, other))
    return ls_proof_fail(stage, error, "reads a gradient of %d uses: expected the sum over all %d",
                         other->node < 0 ? driving->terms.count : 1,
                         all->uses.items[other->target]);
  if (!each)
    return ls_proof_fail(stage, error,
                         "has other settings than its forward pass: expected the same");
  stage->proof->report.model_ops++;
  const ls_node_record *node = ls_expression_record(all, each->target);
  const char *of = backward->rule->out;
  for (int o = 0; o < instruction->outputs; o++)
    out[o] = of_use(stage, ls_expression_receiver(all, node->in[of[o] - '0']),
                    each->target / LS_EXPRESSION_OUTPUTS, of[o] - '0', driving->microbatch);
  return LS_OK;
}

ls_content ls_gradient_amax(const ls_content *gradient) {
  return (ls_content){.kind = LS_CONTENT_AMAX,
                      .expression = gradient->expression,
                      .microbatch = gradient->microbatch,
                      .terms = gradient->terms};
}

ls_status ls_gradient_fp8(const ls_stage *stage, const ls_content *const *in, ls_content *out,
                          ls_error *error) {
  const ls_content *gradient = in[0], *amax = in[1];
  if (ls_proof_instruction(stage)->attributes.fp8 != LS_FP8_E5M2)
    return ls_proof_fail(stage, error, "rounds a gradient to another format: expected E5M2");
  if (amax->kind != LS_CONTENT_AMAX || amax->expression != gradient->expression ||
      amax->microbatch != gradient->microbatch || !ls_terms_equal(amax->terms, gradient->terms))
    return ls_proof_fail(stage, error,
                         "rounds a gradient by what are not its largest magnitudes: expected "
                         "these");
  *out = ls_gradient_amax(gradient);
  out->kind = LS_CONTENT_ROUNDED;
  return LS_OK;
}

ls_status ls_gradient_add(ls_stage *stage, const ls_content *const *in, ls_content *out,
                          ls_error *error) {
  const ls_candidates *a = list_candidates(stage, in[0], 0), *b = list_candidates(stage, in[1], 1);
  if (in[0]->microbatch != in[1]->microbatch)
    return ls_proof_fail(stage, error, "adds gradients of microbatches %d and %d: expected one",
                         in[0]->microbatch, in[1]->microbatch);
  bool twice = false;
  for (int i = 0; i < a->count; i++)
    for (int j = 0; j < b->count; j++) {
      if (a->items[i].target != b->items[j].target) continue;
      ls_terms both;
      twice = !ls_terms_join(stage->proof->arena, terms_of(stage, in[0], &a->items[i]),
                             terms_of(stage, in[1], &b->items[j]), &both);
      if (twice) continue;
      *out = (ls_content){.kind = LS_CONTENT_GRADIENT,
                          .expression = a->items[i].target,
                          .microbatch = in[0]->microbatch,
                          .terms = both};
      return LS_OK;
    }
  return ls_proof_fail(stage, error,
                       twice ? "adds a contribution twice: expected each once"
                             : "adds gradients of different tensors: expected one");
}

ls_status ls_gradient_complete(ls_stage *stage, const ls_content *content, ls_error *error) {
  const int last = stage->proof->layout->microbatches - 1;
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
  return LS_OK;
}
