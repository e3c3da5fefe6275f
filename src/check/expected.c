/* The model: what the graph says is computed, as expressions made before a program is looked at. A
 * program's forward pass must make these and none other. Which gradients follow is for the rules of
 * gradient.c to say, so the graph's own backward part is not read. */
#include <string.h>

#include "check/proof.h"

static const char *const input_names[LS_INPUT_COUNT] = {
    "the tokens",  "the labels",    "the positions",     "the places",
    "the draws",   "the reference", "the tokens behind", "the types",
    "the weights", "the sets",      "the likeliest",     "their logits"};

void ls_program_inputs(const ls_program *program, int values[LS_INPUT_COUNT]) {
  values[LS_INPUT_TOKENS] = program->ids;
  values[LS_INPUT_LABELS] = program->labels;
  values[LS_INPUT_POSITIONS] = program->positions;
  values[LS_INPUT_PLACES] = program->places;
  values[LS_INPUT_DRAWS] = program->draws;
  values[LS_INPUT_REFERENCE] = program->reference;
  values[LS_INPUT_REMAINING] = program->remaining;
  values[LS_INPUT_TYPES] = program->types;
  values[LS_INPUT_WEIGHTS] = program->weights;
  values[LS_INPUT_SETS] = program->sets;
  values[LS_INPUT_TOP_IDS] = program->top_ids;
  values[LS_INPUT_TOP_BELOW] = program->top_below;
}

/* Where the graph has each input, in the order of ls_input. */
static ls_tensor_id input_of(const ls_graph *graph, int input) {
  const ls_tensor_id inputs[LS_INPUT_COUNT] = {graph->ids,       graph->labels,  graph->positions,
                                               graph->places,    graph->draws,   graph->reference,
                                               graph->remaining, graph->types,   graph->weights,
                                               graph->sets,      graph->top_ids, graph->top_below};
  return inputs[input];
}

int ls_expected_source(ls_proof *proof, int tensor, int version) {
  const ls_tensor *about = &proof->graph->tensors.items[tensor];
  if (about->role == LS_ROLE_PARAMETER)
    return ls_expression_leaf(&proof->expressions, LS_LEAF_PARAMETER, about->parameter, version);
  for (int i = 0; i < LS_INPUT_COUNT; i++)
    if (input_of(proof->graph, i).index == tensor)
      return ls_expression_leaf(&proof->expressions, LS_LEAF_INPUT, i, version);
  return ls_expression_leaf(&proof->expressions, LS_LEAF_STATE, tensor, version);
}

int ls_expected_find_state(const ls_proof *proof, const char *name) {
  const ls_graph *graph = proof->graph;
  for (int t = 0; t < graph->tensors.count; t++)
    if (graph->tensors.items[t].role == LS_ROLE_STATE &&
        strcmp(graph->tensors.items[t].name, name) == 0)
      return t;
  return -1;
}

bool ls_expected_trains(const ls_proof *proof, int parameter) {
  return proof->graph->parameters.items[parameter].trainable;
}

/* The nodes that the loss needs, or without one the logits and what is kept between programs; all
 * of a graph that has neither. */
static bool *find_needed(const ls_proof *proof) {
  const ls_graph *graph = proof->graph;
  bool *wanted = LS_NEW_ARRAY(proof->arena, bool, graph->tensors.count + 1);
  bool *needed = LS_NEW_ARRAY(proof->arena, bool, graph->nodes.count + 1);
  const bool ends = graph->loss.index >= 0 || graph->logits.index >= 0;
  if (graph->loss.index >= 0) wanted[graph->loss.index] = true;
  if (graph->logits.index >= 0) wanted[graph->logits.index] = true;
  for (int r = 0; r < LS_MAX_OUTPUTS; r++)
    if (graph->rewards[r].index >= 0) wanted[graph->rewards[r].index] = true;
  for (int l = 0; l < graph->losses.count; l++) wanted[graph->losses.items[l].index] = true;
  for (int l = 0; l < graph->loads.count; l++) wanted[graph->loads.items[l].index] = true;
  for (int n = graph->nodes.count - 1; n >= 0; n--) {
    const ls_node *node = &graph->nodes.items[n];
    needed[n] = !ends;
    for (int o = 0; o < node->outputs; o++) needed[n] |= wanted[node->out[o].index];
    for (int i = 0; i < node->inputs; i++)
      needed[n] |= graph->tensors.items[node->in[i].index].role == LS_ROLE_STATE;
    for (int i = 0; i < node->inputs && needed[n]; i++) wanted[node->in[i].index] = true;
  }
  return needed;
}

/* What counts what the loss is a mean over, of inputs. */
static void add_counting(ls_proof *proof) {
  const ls_node *node = &proof->graph->counting;
  ls_node_record made = {
      .kind = (int)node->kind, .inputs = node->inputs, .attributes = &node->attributes};
  for (int i = 0; i < node->inputs; i++)
    made.in[i] = ls_expected_source(proof, node->in[i].index, 0);
  ls_expression_add(&proof->expressions, &made);
}

void ls_expected_begin(ls_proof *proof) {
  const ls_graph *graph = proof->graph;
  ls_expressions *all = &proof->expressions;
  int *of_tensor = LS_NEW_ARRAY(proof->arena, int, graph->tensors.count + 1);
  const bool *needed = find_needed(proof);
  LS_RESERVE(proof->arena, &all->nodes, graph->tensors.count);
  for (int n = 0; n < graph->nodes.count; n++) {
    const ls_node *node = &graph->nodes.items[n];
    if (!needed[n]) continue;
    ls_node_record made = {.kind = (int)node->kind,
                           .inputs = node->inputs,
                           .attributes = &node->attributes,
                           .of = node};
    for (int i = 0; i < node->inputs; i++) {
      const int from = node->in[i].index;
      const bool source = graph->tensors.items[from].producer < 0;
      made.in[i] = source ? ls_expected_source(proof, from, 0) : of_tensor[from];
    }
    const int number = ls_expression_add(all, &made);
    for (int o = 0; o < node->outputs; o++)
      of_tensor[node->out[o].index] = number * LS_EXPRESSION_OUTPUTS + o;
  }
  if (graph->loss.index >= 0)
    *LS_APPEND(proof->arena, &proof->losses) = of_tensor[graph->loss.index];
  for (int l = 0; l < graph->losses.count; l++)
    *LS_APPEND(proof->arena, &proof->losses) = of_tensor[graph->losses.items[l].index];
  for (int l = 0; l < proof->losses.count; l++)
    all->uses.items[proof->losses.items[l]] = 1; /* as a root */
  for (int l = 0; l < graph->loads.count; l++)
    *LS_APPEND(proof->arena, &proof->loads) =
        of_tensor[graph->loads.items[l].index] / LS_EXPRESSION_OUTPUTS;
  const ls_tensor_id read = graph->answers.index >= 0 ? graph->answers : graph->logits;
  proof->logits = read.index < 0 ? -1 : of_tensor[read.index];
  if (graph->counting.inputs > 0) add_counting(proof);
}

/* The graph's tensor that an expression is; NULL: it has none. */
static const ls_tensor *tensor_of(const ls_proof *proof, int expression) {
  const ls_node_record *record = ls_expression_record(&proof->expressions, expression);
  const ls_graph *graph = proof->graph;
  int tensor = -1;
  if (record->of) tensor = record->of->out[expression % LS_EXPRESSION_OUTPUTS].index;
  if (record->kind == (int)LS_LEAF_PARAMETER)
    tensor = graph->parameters.items[record->in[0]].tensor.index;
  if (record->kind == (int)LS_LEAF_INPUT) tensor = input_of(graph, record->in[0]).index;
  if (record->kind == (int)LS_LEAF_STATE) tensor = record->in[0];
  return tensor < 0 ? NULL : &graph->tensors.items[tensor];
}

static const char *name_of(const ls_proof *proof, int expression) {
  const ls_node_record *record = ls_expression_record(&proof->expressions, expression);
  const ls_tensor *tensor = tensor_of(proof, expression);
  const bool changed = record->kind >= (int)LS_LEAF_PARAMETER && record->in[1] != 0;
  if (tensor && !changed) return tensor->name;
  return tensor ? ls_arena_printf(proof->arena, "%s as this program changes it", tensor->name)
                : "a number of the step";
}

/* "rmsnorm(embedding.0.embedding, layers.0.norm1.weight)" */
static const char *print_call(const ls_proof *proof, int kind, const int *in, int inputs) {
  const char *text = ls_op_name((ls_op_kind)kind);
  for (int i = 0; i < inputs; i++)
    text = ls_arena_printf(proof->arena, "%s%s%s", text, i ? ", " : "(", name_of(proof, in[i]));
  return ls_arena_printf(proof->arena, "%s)", text);
}

/* How much of what the instruction does, and of how it is called, the node has too; 0: nothing. */
static int likeness(const ls_stage *stage, const ls_node_record *node, const int *in) {
  const ls_instruction *instruction = ls_proof_instruction(stage);
  const ls_expressions *all = &stage->proof->expressions;
  if (node->kind >= (int)LS_OP_COUNT) return 0;
  int same = node->kind == (int)instruction->kind ? 2 : 0;
  for (int i = 0; i < node->inputs && i < instruction->inputs; i++)
    if (node->in[i] == in[i])
      same += ls_expression_record(all, in[i])->kind == (int)LS_LEAF_PARAMETER ? 2 : 4;
  const char *found = stage->program->values.items[instruction->out[0]].name;
  if (node->of &&
      strcmp(stage->proof->graph->tensors.items[node->of->out[0].index].name, found) == 0)
    same += 4;
  return same;
}

/* The model's node that is most like the instruction; NULL: none is. */
static const ls_node_record *find_like(const ls_stage *stage, const int *in) {
  const ls_expressions *all = &stage->proof->expressions;
  const ls_node_record *best = NULL;
  int most = 0;
  for (int n = 0; n < all->nodes.count; n++) {
    const int same = likeness(stage, &all->nodes.items[n], in);
    if (same <= most) continue;
    most = same;
    best = &all->nodes.items[n];
  }
  return best;
}

ls_status ls_expected_find(const ls_stage *stage, const int *in, int *node, ls_error *error) {
  const ls_instruction *instruction = ls_proof_instruction(stage);
  ls_proof *proof = stage->proof;
  ls_node_record made = {.kind = (int)instruction->kind,
                         .inputs = instruction->inputs,
                         .attributes = &instruction->attributes};
  memcpy(made.in, in, sizeof *in * (size_t)made.inputs);
  *node = ls_expression_find(&proof->expressions, &made);
  proof->report.model_ops += *node >= 0;
  if (*node >= 0) return LS_OK;
  const char *found = print_call(proof, made.kind, in, made.inputs);
  const ls_node_record *like = find_like(stage, in);
  if (!like)
    return ls_proof_fail(stage, error, "makes %s, which the model has not: expected a part of it",
                         found);
  if (like->kind == made.kind && like->inputs == made.inputs &&
      memcmp(like->in, in, sizeof *in * (size_t)made.inputs) == 0) {
    double of[2];
    const char *setting = ls_attributes_differ(made.attributes, like->attributes, of);
    return ls_proof_fail(stage, error, "makes %s with %s %g: expected %g, as the model", found,
                         setting, of[0], of[1]);
  }
  return ls_proof_fail(stage, error, "makes %s: expected the model's %s", found,
                       print_call(proof, like->kind, like->in, like->inputs));
}

static bool same_sizes(const ls_value *value, int ndim, const int64_t *dims) {
  if (value->ndim != ndim) return false;
  for (int d = 0; d < ndim; d++)
    if (value->global[d] != dims[d]) return false;
  return true;
}

static const char *print_sizes(const ls_proof *proof, int ndim, const int64_t *dims) {
  const char *text = "";
  for (int d = 0; d < ndim; d++)
    text = ls_arena_printf(proof->arena, "%s%s%lld", text, d ? " x " : "", (long long)dims[d]);
  return text;
}

ls_status ls_expected_check_form(const ls_stage *stage, int value, const ls_content *content,
                                 ls_error *error) {
  const ls_value *about = &stage->program->values.items[value];
  if (content->kind != LS_CONTENT_VALUE && content->kind != LS_CONTENT_GRADIENT &&
      content->kind != LS_CONTENT_ROUNDED)
    return LS_OK;
  const ls_tensor *tensor = tensor_of(stage->proof, content->expression);
  if (!tensor || about->flat_elements) return LS_OK;
  if (!same_sizes(about, tensor->ndim, tensor->dims))
    return ls_proof_fail(stage, error, "has %s of %s: expected %s, the model's", tensor->name,
                         print_sizes(stage->proof, about->ndim, about->global),
                         print_sizes(stage->proof, tensor->ndim, tensor->dims));
  const ls_dtype expected = ls_layout_dtype(stage->proof->layout, tensor->precision);
  /* A parameter's gradient has the layout's type, which its parts are checked for. */
  if (tensor->role == LS_ROLE_PARAMETER || about->dtype == expected) return LS_OK;
  return ls_proof_fail(stage, error, "has %s in %s: expected %s", tensor->name,
                       ls_dtype_name(about->dtype), ls_dtype_name(expected));
}

static ls_status check_parameter(const ls_stage *stage, int p, ls_error *error) {
  const ls_proof *proof = stage->proof;
  const ls_program_parameter *found = &stage->program->parameters[p];
  const ls_parameter *expected = &proof->graph->parameters.items[p].about;
  bool same = found->ndim == expected->ndim && found->precision == expected->precision &&
              strcmp(found->name, expected->name) == 0;
  for (int d = 0; d < expected->ndim && same; d++) same = found->dims[d] == expected->dims[d];
  if (same && found->trainable == ls_expected_trains(proof, p)) return LS_OK;
  if (same)
    return ls_fail(error, LS_REFUTED, "stage %d parameter %s: is %s: expected it %s, as the model",
                   stage->number, found->name, found->trainable ? "trainable" : "frozen",
                   found->trainable ? "frozen" : "trainable");
  return ls_fail(error, LS_REFUTED,
                 "stage %d parameter %d: is %s of %s: expected the model's %s of %s", stage->number,
                 p, found->name, print_sizes(proof, found->ndim, found->dims), expected->name,
                 print_sizes(proof, expected->ndim, expected->dims));
}

ls_status ls_expected_check_sources(const ls_stage *stage, ls_error *error) {
  const ls_program *program = stage->program;
  const ls_graph *graph = stage->proof->graph;
  if (program->parameter_count != graph->parameters.count)
    return ls_fail(error, LS_REFUTED, "stage %d: knows %d parameters: expected the model's %d",
                   stage->number, program->parameter_count, graph->parameters.count);
  for (int p = 0; p < program->parameter_count; p++) LS_TRY(check_parameter(stage, p, error));
  int inputs[LS_INPUT_COUNT];
  ls_program_inputs(program, inputs);
  for (int i = 0; i < LS_INPUT_COUNT; i++) {
    if (inputs[i] < 0) continue;
    const ls_value *value = &program->values.items[inputs[i]];
    const ls_tensor_id expected = input_of(graph, i);
    if (expected.index < 0)
      return ls_fail(error, LS_REFUTED, "stage %d: is given %s: expected none, as the model",
                     stage->number, input_names[i]);
    const ls_tensor *tensor = &graph->tensors.items[expected.index];
    const ls_dtype dtype = ls_layout_dtype(stage->proof->layout, tensor->precision);
    if (value->dtype == dtype && same_sizes(value, tensor->ndim, tensor->dims)) continue;
    return ls_fail(error, LS_REFUTED, "stage %d: is given %s as %s %s: expected the model's %s %s",
                   stage->number, input_names[i],
                   print_sizes(stage->proof, value->ndim, value->global),
                   ls_dtype_name(value->dtype),
                   print_sizes(stage->proof, tensor->ndim, tensor->dims), ls_dtype_name(dtype));
  }
  return LS_OK;
}

ls_status ls_expected_check_end(ls_proof *proof, ls_error *error) {
  const ls_graph *graph = proof->graph;
  for (int p = 0; p < graph->parameters.count; p++) {
    int owners = 0;
    for (int s = 0; s < proof->count; s++) {
      const ls_program_parameter *parameter = &proof->stages[s].program->parameters[p];
      owners += parameter->present && parameter->owner;
    }
    if (owners != 1)
      return ls_fail(error, LS_REFUTED, "%s has %d owners among the stages: expected one",
                     graph->parameters.items[p].about.name, owners);
  }
  for (int s = 0; s < proof->count; s++)
    if ((proof->stages[s].program->labels >= 0) != (graph->loss.index >= 0))
      return ls_fail(error, LS_REFUTED, "stage %d: %s: expected %s, as the model", s,
                     graph->loss.index >= 0 ? "ends without a loss" : "has a loss",
                     graph->loss.index >= 0 ? "one" : "none");
  return LS_OK;
}
