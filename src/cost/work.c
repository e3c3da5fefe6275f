/* What one op, collective or instruction costs. */
#include <string.h>

#include "cost/cost.h"
#include "graph/labels.h"

double ls_work_seconds(const ls_work *work, const ls_work_rates *rates) {
  const double flops = rates->flops_per_s > 0 ? work->flops / rates->flops_per_s : 0;
  const double bytes = rates->bytes_per_s > 0 ? work->bytes / rates->bytes_per_s : 0;
  const double sent = rates->sent_per_s > 0 ? work->sent / rates->sent_per_s : 0;
  return (flops > bytes ? flops : bytes) + sent;
}

double ls_work_operand_bytes(const ls_work_operand *operand) {
  double bytes = (double)ls_dtype_bytes(operand->dtype);
  for (int d = 0; d < operand->ndim; d++) bytes *= (double)operand->dims[d];
  return bytes;
}

/* Of an operand whose entries tokens pick, as many as there are tokens; never more than there are.
 */
static double touched_bytes(const ls_op *row, const ls_operand_labels *labels,
                            const ls_work_operand *operand, double tokens) {
  const double all = ls_work_operand_bytes(operand);
  const int picked = row->picked ? ls_operand_dim(labels, row->picked) : -1;
  if (picked < 0) return all;
  const double entries = (double)operand->dims[picked];
  return tokens < entries ? all / entries * tokens : all;
}

/* Of products of routed rows, which part of all experts a rank has: it does the rows of these. That
 * of weights that are transposed follows from their size. */
static double experts_share(ls_op_kind kind, const ls_attributes *attributes,
                            const ls_work_operand *in, const ls_work_operand *out) {
  const ls_op *row = ls_op_row(kind);
  if (!(row->divides >> LS_ATTRIBUTE_experts & 1) || row->product != 2) return 1;
  const ls_op_labels *labels = &ls_op_labels_list()[kind];
  const bool given = ls_operand_own_dim(&labels->in[1], 'x') == 0;
  const double held = (double)(given ? &in[1] : out)->dims[0];
  return held / ((double)attributes->experts * (double)in[0].dims[1]);
}

ls_work ls_op_work(ls_op_kind kind, const ls_attributes *attributes, const ls_work_operand *in,
                   int inputs, const ls_work_operand *out, int outputs) {
  static const int64_t none[LS_MAX_DIMS] = {0};
  const ls_op *row = ls_op_row(kind);
  const ls_op_labels *labels = &ls_op_labels_list()[kind];
  ls_work work = {.flops = ls_op_flops(kind, attributes, inputs > 0 ? in[0].dims : none,
                                       inputs > 1 ? in[1].dims : none)};
  if (inputs > 1 && outputs > 0) work.flops *= experts_share(kind, attributes, in, out);
  double tokens = 0;
  for (int i = 0; i < inputs && row->picked; i++)
    if (ls_operand_dim(&labels->in[i], 'n') == 0) tokens = (double)in[i].dims[0];
  for (int o = 0; o < outputs; o++)
    work.bytes += out[o].adds ? 2 * touched_bytes(row, &labels->out[o], &out[o], tokens)
                              : (row->updates ? 2 : 1) * ls_work_operand_bytes(&out[o]);
  for (int i = 0; i < inputs; i++) work.bytes += touched_bytes(row, &labels->in[i], &in[i], tokens);
  return work;
}

double ls_collective_bytes(ls_collective collective, double whole, int ranks) {
  const double others = ranks - 1;
  switch (collective) {
    case LS_ALL_REDUCE: return 2 * whole * others / ranks;
    case LS_REDUCE_SCATTER:
    case LS_ALL_GATHER: return whole * others / ranks;
    case LS_ALL_TO_ALL: return whole * others / ranks / ranks;
    case LS_SEND:
    case LS_DEAL:
    case LS_HAND_BACK:
    case LS_PERMUTE: return whole;
    case LS_SUM_NUMBERS: return whole * others;
    default: return 0;
  }
}

static ls_work_operand operand_of(const ls_program *program, int rank, int index) {
  const ls_value *value = &program->values.items[index];
  const ls_local local = ls_program_local(program, rank, index);
  ls_work_operand made = {.dtype = value->dtype, .ndim = value->flat_elements ? 1 : value->ndim};
  memcpy(made.dims, local.valid, sizeof made.dims);
  return made;
}

static ls_work transfer_work(const ls_program *program, const ls_instruction *instruction) {
  if (instruction->phase == LS_END || !instruction->inputs) return (ls_work){0};
  const double whole = (double)instruction->count *
                       (double)ls_dtype_bytes(program->values.items[instruction->in[0]].dtype);
  if (ls_collective_moves(instruction->collective)) return (ls_work){.moved = whole};
  const int ranks = instruction->peer >= 0 ? 2 : ls_mesh_size(&program->mesh, instruction->axes);
  return (ls_work){.sent = ls_collective_bytes(instruction->collective, whole, ranks)};
}

int ls_instruction_operands(const ls_program *program, int rank, const ls_instruction *instruction,
                            bool first, ls_work_operand in[LS_MAX_INPUTS],
                            ls_work_operand out[LS_MAX_OUTPUTS]) {
  /* Ranks that are not the first of some axes write zeros in place of the result. */
  const bool skipped = instruction->first_only &&
                       ls_mesh_index(&program->mesh, rank, ls_mesh_order(instruction->first_only));
  const int inputs = skipped ? 0 : instruction->inputs;
  for (int i = 0; i < inputs; i++) in[i] = operand_of(program, rank, instruction->in[i]);
  for (int o = 0; o < instruction->outputs; o++) {
    const ls_write_mode write = instruction->write[o];
    out[o] = operand_of(program, rank, instruction->out[o]);
    out[o].adds = write == LS_ADD || (write == LS_ADD_AFTER_FIRST && !first);
  }
  return inputs;
}

ls_work ls_instruction_work(const ls_program *program, int rank, const ls_instruction *instruction,
                            bool first) {
  if (instruction->collective != LS_COLLECTIVE_NONE) return transfer_work(program, instruction);
  ls_work_operand in[LS_MAX_INPUTS], out[LS_MAX_OUTPUTS];
  const int inputs = ls_instruction_operands(program, rank, instruction, first, in, out);
  return ls_op_work(instruction->kind, &instruction->attributes, in, inputs, out,
                    instruction->outputs);
}

double ls_action_units(ls_action_kind kind) {
  switch (kind) {
    case LS_ACTION_BACKWARD: return 2;
    case LS_ACTION_FORWARD:
    case LS_ACTION_RECOMPUTE:
    case LS_ACTION_INPUT:
    case LS_ACTION_WEIGHT: return 1;
    default: return 0.125;
  }
}

double ls_graph_flops(const ls_graph *graph) {
  double sum = 0;
  for (int n = 0; n < graph->nodes.count; n++) sum += ls_node_flops(graph, &graph->nodes.items[n]);
  return sum;
}

/* Passes over a node, of which backward has two where it makes the gradients of all inputs; 0 of
 * one that no gradient goes through: it is of backward itself, where a slice of logits is done. */
static double passes_over(const ls_node *node, const bool *wanted) {
  int gives = 0, asked = 0;
  for (int i = 0; i < node->inputs; i++) {
    if (!ls_op_gives_gradient(node->kind, i)) continue;
    gives++;
    asked += wanted[node->in[i].index];
  }
  return gives ? 1 + 2.0 * asked / gives : 0;
}

double ls_segment_flops(const ls_graph *graph, double *by_segment) {
  const bool *wanted = ls_graph_wanted(graph);
  double sum = 0;
  for (int n = 0; n < graph->nodes.count; n++) {
    const ls_node *node = &graph->nodes.items[n];
    if (node->backward) continue;
    const double flops = ls_node_flops(graph, node) * passes_over(node, wanted);
    by_segment[node->segment] += flops;
    sum += flops;
  }
  return sum;
}
