/* Placements of an op's outputs, from its labels and what its inputs are. */
#include <string.h>

#include "check/proof.h"

bool ls_places_equal(const ls_proof *proof, const ls_placement *a, const ls_placement *b) {
  return ls_placement_equal(&proof->mesh, a, b, proof->active);
}

typedef struct question {
  const ls_op *row;
  const ls_op_labels *labels;
  int inputs, axis;
  const ls_axis *about; /* the axis */
  const ls_attributes *attributes;
  ls_place in[LS_MAX_INPUTS], declared[LS_MAX_OUTPUTS], out[LS_MAX_OUTPUTS];
  ls_place shard; /* how the axis cuts: order and shift are the same of all that have the label */
  char label[LS_MAX_AXES]; /* that each axis cuts; 0: none */
} question;

static ls_place cut_at(const question *q, const ls_operand_labels *operand, char label, int dim) {
  const int shift = ls_operand_shift(operand, label, q->attributes);
  return (ls_place){.kind = LS_SHARDED,
                    .dim = (short)dim,
                    .order = q->shard.order,
                    .shift = (short)((q->shard.shift + shift) % q->about->size)};
}

static bool is_mask(ls_place place) {
  return place.kind == LS_PARTIAL && place.reduce == LS_MASK;
}

static bool may_be_masked(const question *q, int input) {
  return q->row->masked && strchr(q->row->masked, '0' + input);
}

/* Rows of zeros that ranks have of others' experts stay rows of zeros. */
static bool keeps_mask(question *q) {
  const ls_place mask = q->in[0];
  if (!is_mask(mask) || !q->row->masked) return false;
  for (int i = 0; i < q->inputs; i++)
    if (!ls_place_equal(q->in[i], may_be_masked(q, i) ? mask : (ls_place){0})) return false;
  for (int o = 0; o < q->labels->outputs; o++) q->out[o] = mask;
  return true;
}

static bool flows_through(question *q, bool *partial) {
  *partial = false;
  for (int i = 0; i < q->inputs; i++) *partial |= q->in[i].kind == LS_PARTIAL;
  if (!*partial) return false;
  for (int i = 0; i < q->inputs; i++) {
    const bool linear = q->row->linear && strchr(q->row->linear, '0' + i);
    if (q->in[i].kind != (linear ? LS_PARTIAL : LS_REPLICATED)) return false;
    if (linear && q->in[i].reduce == LS_MAX) return false;
  }
  for (int o = 0; o < q->labels->outputs; o++) q->out[o] = (ls_place){.kind = LS_PARTIAL};
  return true;
}

/* The label of experts, of which an op does the rows of its own; 0: it has none. */
static char expert_label(const question *q) {
  for (int r = 0; r < LS_MAX_LABEL_RULES; r++)
    if (q->row->only[r].axes & q->about->shares & LS_SHARES_EXPERTS && q->row->only[r].label != '.')
      return q->row->only[r].label;
  return 0;
}

/* Whether every input lies as cutting this label wants it; then so do the outputs. Over experts an
 * op makes rows of zeros of those of others, whatever it reads there. */
static bool sharding_fits(question *q, char label) {
  const bool experts = label == expert_label(q);
  const ls_place mask = {.kind = LS_PARTIAL, .reduce = LS_MASK, .order = q->shard.order};
  for (int i = 0; i < q->inputs; i++) {
    const int dim = experts ? ls_operand_own_dim(&q->labels->in[i], label)
                            : ls_operand_dim(&q->labels->in[i], label);
    const ls_place wanted = dim < 0 ? (ls_place){0} : cut_at(q, &q->labels->in[i], label, dim);
    if (experts && may_be_masked(q, i) && ls_place_equal(q->in[i], mask)) continue;
    if (!ls_place_equal(q->in[i], wanted)) return false;
  }
  for (int o = 0; o < q->labels->outputs; o++) {
    const int dim = experts ? ls_operand_own_dim(&q->labels->out[o], label)
                            : ls_operand_dim(&q->labels->out[o], label);
    const ls_place sum = {.kind = LS_PARTIAL, .reduce = q->row->reduce};
    q->out[o] = dim < 0 ? (experts ? mask : sum) : cut_at(q, &q->labels->out[o], label, dim);
  }
  q->label[q->axis] = label;
  return true;
}

static bool may_shard(const question *q, char label) {
  return ls_op_may_shard(q->row, label, q->about->shares);
}

static bool try_labels(question *q, const ls_operand_labels *operand, ls_place shard) {
  const int dim = shard.dim;
  if (dim < 0 || dim >= operand->ndim) return false;
  q->shard = shard;
  for (const char *label = operand->dim[dim]; *label; label++)
    if (may_shard(q, *label) && sharding_fits(q, *label)) return true;
  const char tied = operand->rule[dim].tied;
  return tied && may_shard(q, tied) && sharding_fits(q, tied);
}

/* Experts are sharded where the weights are, or the gradient of them that is made. */
static bool shards_experts(question *q) {
  const char label = expert_label(q);
  if (!label) return false;
  for (int i = 0; i < q->inputs; i++)
    if (q->in[i].kind == LS_SHARDED && ls_operand_own_dim(&q->labels->in[i], label) == q->in[i].dim)
      return try_labels(q, &q->labels->in[i], q->in[i]);
  const ls_place made = q->declared[0];
  return made.kind == LS_SHARDED && ls_operand_own_dim(&q->labels->out[0], label) == made.dim &&
         try_labels(q, &q->labels->out[0], made);
}

static bool derive(question *q, bool *partial) {
  *partial = false;
  if (shards_experts(q) || (!expert_label(q) && keeps_mask(q))) return true;
  if (flows_through(q, partial)) return true;
  if (*partial) return false;
  for (int i = 0; i < q->inputs; i++)
    if (q->in[i].kind == LS_SHARDED) return try_labels(q, &q->labels->in[i], q->in[i]);
  /* A label of outputs alone: what each rank makes of it is its own choice. */
  if (q->declared[0].kind == LS_SHARDED && q->labels->out[0].ndim > q->declared[0].dim)
    return try_labels(q, &q->labels->out[0], q->declared[0]);
  for (int o = 0; o < q->labels->outputs; o++) q->out[o] = (ls_place){0};
  return true;
}

/* Whether the axis lies outside of the other one that cuts the same. */
static bool lies_outside(const ls_placement *placement, int axis, int other) {
  const int order = placement->on[axis].order, others = placement->on[other].order;
  return order < others || (order == others && axis < other);
}

bool ls_axes_innermost(const ls_proof *proof, const ls_placement *placement, int dim,
                       ls_axes axes) {
  for (int outer = 0; outer < proof->mesh.count; outer++)
    for (int inner = 0; inner < proof->mesh.count; inner++) {
      const ls_place place = placement->on[outer];
      if (!(axes >> inner & 1) || axes >> outer & 1 || !(proof->active >> outer & 1)) continue;
      if (place.kind == LS_SHARDED && place.dim == dim && !lies_outside(placement, outer, inner))
        return false;
    }
  return true;
}

/* Of a product of labels each entry of the first has all of the second: so are they cut. */
static ls_status check_nesting(ls_stage *stage, const question *q, const ls_operand_labels *labels,
                               int value, const ls_placement *placement, ls_error *error) {
  for (int a = 0; a < stage->proof->mesh.count; a++)
    for (int b = 0; b < stage->proof->mesh.count; b++) {
      const ls_place place = placement->on[a];
      if (!q->label[a] || !q->label[b] || place.kind != LS_SHARDED ||
          placement->on[b].kind != LS_SHARDED || place.dim != placement->on[b].dim)
        continue;
      const char *first = strchr(labels->dim[place.dim], q->label[a]);
      const char *second = strchr(labels->dim[place.dim], q->label[b]);
      if (first && second && first < second && !lies_outside(placement, a, b))
        return ls_proof_fail(stage, error,
                             "%s is cut over %s inside of %s: expected its labels' order",
                             stage->program->values.items[value].name,
                             stage->proof->mesh.axes[a].name, stage->proof->mesh.axes[b].name);
    }
  return LS_OK;
}

/* Ranks that share the queries of a KV head have no other one: else a shard of both is no head's
 * queries, as its keys are. */
static ls_status check_queries(ls_stage *stage, const question *q, ls_error *error) {
  const ls_mesh *mesh = &stage->proof->mesh;
  int64_t kv_ranks = 1;
  bool shares = false;
  for (int a = 0; a < mesh->count; a++) {
    if (q->label[a] == 'g') kv_ranks *= mesh->axes[a].size;
    shares |= q->label[a] == 'r' && (stage->proof->active >> a & 1);
  }
  const int64_t kv_heads = q->attributes->kv_heads;
  if (!shares || kv_heads == 0 || kv_heads == kv_ranks) return LS_OK;
  return ls_proof_fail(stage, error,
                       "shares queries out of %lld KV heads over %lld ranks: expected one on each",
                       (long long)kv_heads, (long long)kv_ranks);
}

/* An element of a scaled dimension lies with what it stands for. */
static ls_status check_scaled(ls_stage *stage, const question *q, const ls_operand_labels *labels,
                              int value, const ls_placement *placement, ls_error *error) {
  LS_TRY(check_nesting(stage, q, labels, value, placement, error));
  const ls_value *about = &stage->program->values.items[value];
  for (int d = 0; d < labels->ndim; d++) {
    if (ls_operand_divisor(labels, d, &ls_proof_instruction(stage)->attributes) == 1) continue;
    const ls_axes axes = ls_placement_axes(&stage->proof->mesh, placement, LS_SHARDED, d);
    const int64_t ranks = ls_proof_group(stage->proof, axes);
    if (about->global[d] % ranks)
      return ls_proof_fail(stage, error,
                           "%s has %lld elements over %lld ranks: expected whole ones on each",
                           about->name, (long long)about->global[d], (long long)ranks);
  }
  return LS_OK;
}

/* Blocks of a ring are the shards of one axis, as many as the op has turns: then the turns together
 * bring each rank every block once. */
static ls_status check_ring(ls_stage *stage, const question *q, ls_error *error) {
  if (!ls_op_labels_turn(q->labels)) return LS_OK;
  int64_t blocks = 1, axes = 0;
  for (int a = 0; a < stage->proof->mesh.count; a++)
    for (int i = 0; i < q->inputs && q->label[a]; i++)
      if (q->labels->in[i].rule[0].turned && q->labels->in[i].rule[0].tied == q->label[a]) {
        blocks *= stage->proof->mesh.axes[a].size;
        axes++;
        break;
      }
  if (axes <= 1 && blocks == q->attributes->turns) return LS_OK;
  return ls_proof_fail(stage, error, "goes round %lld blocks on %lld axes: expected %lld on one",
                       (long long)blocks, (long long)axes, (long long)q->attributes->turns);
}

ls_status ls_derive_placements(ls_stage *stage, const ls_content *const *in, ls_placement *out,
                               ls_error *error) {
  const ls_instruction *instruction = ls_proof_instruction(stage);
  question q = {.row = ls_op_row(instruction->kind),
                .labels = &stage->proof->labels[instruction->kind],
                .attributes = &instruction->attributes,
                .inputs = instruction->inputs};
  for (int o = 0; o < instruction->outputs; o++) out[o] = (ls_placement){0};
  for (q.axis = 0; q.axis < stage->proof->mesh.count; q.axis++) {
    if (!(stage->proof->active >> q.axis & 1)) continue;
    q.about = &stage->proof->mesh.axes[q.axis];
    for (int i = 0; i < instruction->inputs; i++) q.in[i] = in[i]->placement.on[q.axis];
    for (int o = 0; o < instruction->outputs; o++)
      q.declared[o] = stage->program->values.items[instruction->out[o]].placement.on[q.axis];
    bool partial;
    if (!derive(&q, &partial))
      return ls_proof_fail(stage, error,
                           partial ? "reads a partial sum over %s as a value: expected it reduced"
                                   : "its inputs are cut over %s in ways that do not fit: expected "
                                     "one label of the op cut on all",
                           q.about->name);
    for (int o = 0; o < instruction->outputs; o++) out[o].on[q.axis] = q.out[o];
  }
  LS_TRY(check_ring(stage, &q, error));
  LS_TRY(check_queries(stage, &q, error));
  for (int i = 0; i < instruction->inputs; i++)
    LS_TRY(check_scaled(stage, &q, &q.labels->in[i], instruction->in[i], &in[i]->placement, error));
  for (int o = 0; o < instruction->outputs; o++)
    LS_TRY(check_scaled(stage, &q, &q.labels->out[o], instruction->out[o], &out[o], error));
  return LS_OK;
}

ls_status ls_check_declared(ls_stage *stage, int value, const ls_placement *placement,
                            ls_error *error) {
  const ls_program *program = stage->program;
  const ls_value *about = &program->values.items[value];
  if (about->flat_elements || ls_program_buffer_group(program, value)->pool == LS_POOL_CELL)
    return LS_OK;
  if (ls_places_equal(stage->proof, &about->placement, placement)) return LS_OK;
  return ls_proof_fail(
      stage, error, "%s is declared as %s: expected %s", about->name,
      ls_placement_print(stage->proof->arena, &stage->proof->mesh, &about->placement),
      ls_placement_print(stage->proof->arena, &stage->proof->mesh, placement));
}

ls_status ls_check_whole(ls_stage *stage, const ls_content *content, const char *what,
                         ls_error *error) {
  for (int axis = 0; axis < stage->proof->mesh.count; axis++)
    if ((stage->proof->active >> axis & 1) && content->placement.on[axis].kind == LS_PARTIAL)
      return ls_proof_fail(stage, error, "%s is still partial over %s: expected it reduced", what,
                           stage->proof->mesh.axes[axis].name);
  return LS_OK;
}
