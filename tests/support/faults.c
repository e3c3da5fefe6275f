#include "support/faults.h"

#include <string.h>

#include "support/layouts.h"

enum { GPT2 = 0, LLAMA_FREE, LLAMA_TIED };

enum {
  REPLICATE = 1 << LS_AXIS_DP_REPLICATE,
  SHARD = 1 << LS_AXIS_DP_SHARD,
  TP_KV = 1 << LS_AXIS_TP_KV,
  TP_GROUP = 1 << LS_AXIS_TP_GROUP
};

/* An action of the body that an instruction is in. */
static const ls_action *action_of(const ls_program *program, int instruction) {
  for (int a = 0; a < program->actions.count; a++) {
    const ls_body *body = &program->bodies.items[program->actions.items[a].body];
    if (instruction >= body->first && instruction < body->first + body->count)
      return &program->actions.items[a].action;
  }
  ls_panic("instruction %d is in no action", instruction);
}

static ls_instruction *at(const ls_program *program, int i) {
  return &program->instructions.items[i];
}

static const ls_value *output(const ls_program *program, int i) {
  return &program->values.items[at(program, i)->out[0]];
}

/* Of a sort; of the beginning of a transfer: its end too. */
static bool has_sort(const ls_action *action, int sort) {
  const int own = ls_action_sort(action);
  return own == sort || (action->kind == LS_ACTION_WAIT && own == sort + 1);
}

static bool in(const ls_program *program, int i, int sort) {
  return has_sort(action_of(program, i), sort);
}

static bool is(const ls_program *program, int i, int sort, ls_collective collective) {
  return at(program, i)->collective == collective && in(program, i, sort);
}

/* Whether it reduces the gradients of a unit. */
static bool reduces_gradient(const ls_program *program, int i, ls_collective collective) {
  return is(program, i, LS_BEGIN_OF(REDUCE, GRADIENTS), collective) ||
         is(program, i, LS_BEGIN_OF(FINISH, GRADIENTS), collective);
}

static bool of_tp(const ls_program *program, int i) {
  return !(at(program, i)->axes & (REPLICATE | SHARD));
}

static bool makes_raw_gradient(const ls_program *program, int i, int *which) {
  for (int o = 0; o < at(program, i)->outputs; o++)
    for (int p = 0; p < program->parameter_count; p++)
      if (at(program, i)->out[o] == program->parameters[p].part[LS_PART_RAW_GRADIENT]) {
        *which = o;
        return true;
      }
  return false;
}

/* A collective that moves nothing: what is partial is taken as whole. */
static int take_as_whole(ls_instruction *instruction) {
  instruction->axes = 0;
  return 1;
}

/* Leaves the output as it was. */
static int drop(ls_instruction *instruction) {
  instruction->collective = LS_ALL_REDUCE;
  instruction->axes = instruction->first_only = 0;
  instruction->count = 1;
  instruction->inputs = instruction->outputs = 1;
  instruction->in[0] = instruction->out[0];
  return 1;
}

/* A reduce-scatter that takes this rank's slice and sums nothing. */
static int take_own_slice(ls_instruction *instruction) {
  instruction->collective = LS_COLLECTIVE_NONE;
  instruction->kind = LS_OP_COPY;
  return 1;
}

/* Puts a copy of instruction `i`, working in place, behind it. */
static int repeat(ls_program *program, int i) {
  LS_APPEND(program->arena, &program->instructions);
  ls_instruction *items = program->instructions.items;
  memmove(&items[i + 1], &items[i], (size_t)(program->instructions.count - 1 - i) * sizeof *items);
  items[i + 1].in[0] = items[i + 1].out[0];
  for (int b = 0; b < program->bodies.count; b++) {
    ls_body *body = &program->bodies.items[b];
    if (body->first > i)
      body->first++;
    else if (body->first + body->count > i)
      body->count++;
  }
  return 1;
}

static void swap_with_next(const ls_program *program, int i) {
  const ls_instruction first = *at(program, i);
  *at(program, i) = *at(program, i + 1);
  *at(program, i + 1) = first;
}

static void remove_action(ls_program *program, int a) {
  ls_program_action *items = program->actions.items;
  memmove(&items[a], &items[a + 1], (size_t)(program->actions.count - a - 1) * sizeof *items);
  program->actions.count--;
}

static int remove_actions(ls_program *program, int sort) {
  int hits = 0;
  for (int a = program->actions.count - 1; a >= 0; a--) {
    if (!has_sort(&program->actions.items[a].action, sort)) continue;
    remove_action(program, a);
    hits++;
  }
  return hits;
}

static int add_value(ls_program *program, const ls_value *value) {
  *LS_APPEND(program->arena, &program->values) = *value;
  return program->values.count - 1;
}

/* A fault is a condition on an instruction and what is done to it; `p` is the program and `i` the
 * instruction in both. */
#define FAULT(function, condition, change)               \
  static int function(ls_program *p) {                   \
    int hits = 0;                                        \
    for (int i = p->instructions.count - 1; i >= 0; i--) \
      if (condition) hits += (change);                   \
    return hits;                                         \
  }

/* Gradients that are partial on tp: norms, biases and replicated KV heads. */
FAULT(partial_gradients_kept, reduces_gradient(p, i, LS_ALL_REDUCE) && of_tp(p, i),
      take_as_whole(at(p, i)))

FAULT(shared_heads_kept, reduces_gradient(p, i, LS_ALL_REDUCE) && at(p, i)->axes == TP_GROUP,
      take_as_whole(at(p, i)))

static int change_axes(ls_instruction *instruction, ls_axes axes) {
  const bool changed = instruction->axes != axes;
  instruction->axes = axes;
  return changed;
}

FAULT(shared_heads_over_wrong_axis,
      reduces_gradient(p, i, LS_ALL_REDUCE) && at(p, i)->axes == TP_GROUP &&
          p->mesh.axes[LS_AXIS_TP_KV].size > 1,
      change_axes(at(p, i), TP_KV))

FAULT(shared_heads_over_all_of_tp,
      reduces_gradient(p, i, LS_ALL_REDUCE) && at(p, i)->axes == TP_GROUP &&
          p->mesh.axes[LS_AXIS_TP_KV].size > 1,
      change_axes(at(p, i), TP_KV | TP_GROUP))

FAULT(gradients_summed_over_tp_too, reduces_gradient(p, i, LS_ALL_REDUCE) && !of_tp(p, i),
      change_axes(at(p, i), at(p, i)->axes | ls_mesh_active(&p->mesh, (TP_KV | TP_GROUP))))

/* Gradients over the data axes. */
FAULT(gradients_not_summed, reduces_gradient(p, i, LS_ALL_REDUCE) && !of_tp(p, i),
      take_as_whole(at(p, i)))

FAULT(gradients_summed_twice, reduces_gradient(p, i, LS_ALL_REDUCE) && !of_tp(p, i), repeat(p, i))

static int halve(ls_instruction *instruction) {
  instruction->count /= 2;
  return 1;
}

FAULT(half_of_a_unit_summed, reduces_gradient(p, i, LS_ALL_REDUCE) && !of_tp(p, i), halve(at(p, i)))

FAULT(gradients_not_scattered, reduces_gradient(p, i, LS_REDUCE_SCATTER), take_own_slice(at(p, i)))

/* Only where the groups are as large as those meant: else the pieces have other sizes. */
FAULT(gradients_scattered_over_replicas,
      reduces_gradient(p, i, LS_REDUCE_SCATTER) &&
          p->mesh.axes[LS_AXIS_DP_REPLICATE].size == p->mesh.axes[LS_AXIS_DP_SHARD].size,
      change_axes(at(p, i), REPLICATE))

/* Every piece begins a granule late; the whole ends where it did. */
static int shift_source(ls_program *program, int i) {
  ls_value shifted = program->values.items[at(program, i)->in[0]];
  const int64_t granule = 32, ranks = ls_mesh_size(&program->mesh, at(program, i)->axes);
  if (at(program, i)->count <= granule * ranks) return 0;
  shifted.offset += granule * (int64_t)ls_dtype_bytes(shifted.dtype);
  at(program, i)->count -= granule * ranks;
  at(program, i)->in[0] = add_value(program, &shifted);
  return 1;
}

FAULT(scattered_pieces_shifted, reduces_gradient(p, i, LS_REDUCE_SCATTER), shift_source(p, i))

static int scattered_twice(ls_program *program) {
  int hits = 0;
  for (int a = program->actions.count - 1; a >= 0; a--) {
    const ls_program_action action = program->actions.items[a];
    if (ls_action_sort(&action.action) != LS_BEGIN_OF(REDUCE, GRADIENTS) ||
        action.action.microbatch < 1)
      continue;
    for (int half = 0; half < 2; half++) LS_APPEND(program->arena, &program->actions);
    ls_program_action *items = program->actions.items;
    memmove(&items[a + 2], &items[a], (size_t)(program->actions.count - 2 - a) * sizeof *items);
    hits++;
  }
  return hits;
}

/* Accumulation over microbatches and uses. */
static int set_mode(ls_program *program, int i, ls_write_mode from, ls_write_mode to) {
  int o;
  if (!makes_raw_gradient(program, i, &o) || at(program, i)->write[o] != from) return 0;
  at(program, i)->write[o] = to;
  return 1;
}

static int overwrite(ls_instruction *instruction) {
  const bool changed = instruction->write[0] != LS_WRITE;
  instruction->write[0] = LS_WRITE;
  return changed;
}

FAULT(scatter_overwrites,
      is(p, i, LS_BEGIN_OF(REDUCE, GRADIENTS), LS_REDUCE_SCATTER) && p->layout.microbatches > 1,
      overwrite(at(p, i)))

FAULT(raw_gradient_not_cleared, in(p, i, LS_ACTION_BACKWARD) && p->layout.microbatches > 1,
      set_mode(p, i, LS_WRITE, LS_ADD))

FAULT(later_microbatch_overwrites, in(p, i, LS_ACTION_BACKWARD) && p->layout.microbatches > 1,
      set_mode(p, i, LS_ADD_AFTER_FIRST, LS_WRITE))

FAULT(first_microbatch_adds, in(p, i, LS_ACTION_BACKWARD),
      set_mode(p, i, LS_ADD_AFTER_FIRST, LS_ADD))

FAULT(second_use_overwrites, in(p, i, LS_ACTION_BACKWARD), set_mode(p, i, LS_ADD, LS_WRITE))

static bool adds_second_use(const ls_program *program, int i) {
  int o;
  return makes_raw_gradient(program, i, &o) && at(program, i)->write[o] == LS_ADD;
}

FAULT(second_use_dropped, adds_second_use(p, i), drop(at(p, i)))

static int same_tokens_for_all_microbatches(ls_program *program) {
  const ls_buffer_group *ids = ls_program_buffer_group(program, program->ids);
  for (int m = 1; m < program->layout.microbatches; m++)
    program->live_intervals.items[ids->live_interval + m].offset =
        program->live_intervals.items[ids->live_interval].offset;
  return program->layout.microbatches > 1;
}

/* Partial products and the residual stream. */
static bool sums_matrix(const ls_program *program, int i, int kind) {
  return is(program, i, kind, LS_ALL_REDUCE) && output(program, i)->ndim == 2;
}

FAULT(product_not_summed, sums_matrix(p, i, LS_ACTION_FORWARD) && action_of(p, i)->segment > 0,
      take_as_whole(at(p, i)))

FAULT(product_summed_twice, sums_matrix(p, i, LS_ACTION_FORWARD) && action_of(p, i)->segment > 0,
      repeat(p, i))

FAULT(embedding_not_summed, sums_matrix(p, i, LS_ACTION_FORWARD) && action_of(p, i)->segment == 0,
      take_as_whole(at(p, i)))

FAULT(product_of_backward_not_summed, sums_matrix(p, i, LS_ACTION_BACKWARD),
      take_as_whole(at(p, i)))

FAULT(stream_not_scattered, is(p, i, LS_ACTION_FORWARD, LS_REDUCE_SCATTER),
      take_own_slice(at(p, i)))

FAULT(stream_of_backward_not_scattered, is(p, i, LS_ACTION_BACKWARD, LS_REDUCE_SCATTER),
      take_own_slice(at(p, i)))

FAULT(stream_not_gathered, is(p, i, LS_ACTION_FORWARD, LS_ALL_GATHER), drop(at(p, i)))

FAULT(stream_of_backward_not_gathered, is(p, i, LS_ACTION_BACKWARD, LS_ALL_GATHER), drop(at(p, i)))

/* Bias and sum change places: all ranks add the bias. They must work on one storage. */
static int bias_before_sum(ls_program *program) {
  int hits = 0;
  for (int i = 0; i + 1 < program->instructions.count; i++) {
    if (!sums_matrix(program, i, LS_ACTION_FORWARD) || at(program, i + 1)->kind != LS_OP_BIAS)
      continue;
    const ls_value *from = &program->values.items[at(program, i)->in[0]];
    if (from->storage != output(program, i)->storage ||
        from->storage != output(program, i + 1)->storage)
      continue;
    swap_with_next(program, i);
    i++;
    hits++;
  }
  return hits;
}

/* The vocabulary. */
FAULT(max_not_reduced, is(p, i, LS_ACTION_FORWARD, LS_ALL_REDUCE) && at(p, i)->reduce == LS_MAX,
      take_as_whole(at(p, i)))

static bool is_read_by_loss(const ls_program *program, int i, int input) {
  for (int j = i + 1; j < program->instructions.count; j++)
    if (at(program, j)->kind == LS_OP_XENT_LOSS && at(program, j)->collective == LS_COLLECTIVE_NONE)
      return at(program, j)->in[input] == at(program, i)->out[0];
  return false;
}

FAULT(sum_of_exponentials_not_summed,
      is(p, i, LS_ACTION_FORWARD, LS_ALL_REDUCE) && is_read_by_loss(p, i, 1),
      take_as_whole(at(p, i)))

FAULT(label_logit_not_summed,
      is(p, i, LS_ACTION_FORWARD, LS_ALL_REDUCE) && is_read_by_loss(p, i, 2),
      take_as_whole(at(p, i)))

/* Input 0 is taken for the first part of what it is cut from: its start is 0 on all ranks. */
static int start_at_zero(ls_program *program, int i, int dim) {
  ls_value value = program->values.items[at(program, i)->in[0]];
  const ls_local local = ls_program_local(program, 0, at(program, i)->in[0]);
  const ls_axes cut = ls_placement_axes(&program->mesh, &value.placement, LS_SHARDED, dim);
  if (!(cut & (TP_KV | TP_GROUP))) return 0;
  value.global[dim] = local.dims[dim];
  for (int a = 0; a < LS_MESH_ROWS; a++)
    if (cut >> a & 1) value.placement.on[a] = (ls_place){0};
  at(program, i)->in[0] = add_value(program, &value);
  return 1;
}

static bool is_op(const ls_program *program, int i, ls_op_kind kind) {
  return at(program, i)->collective == LS_COLLECTIVE_NONE && at(program, i)->kind == kind;
}

FAULT(labels_of_first_part, is_op(p, i, LS_OP_XENT_SUM) || is_op(p, i, LS_OP_XENT_GRAD),
      start_at_zero(p, i, 1))

FAULT(table_of_first_part, is_op(p, i, LS_OP_EMBEDDING), start_at_zero(p, i, 0))

/* Counts, norms and clipping. */
FAULT(valid_tokens_not_summed, is(p, i, LS_ACTION_TOTAL, LS_ALL_REDUCE), take_as_whole(at(p, i)))

static int scale_before_total(ls_program *program) {
  int hits = 0;
  for (int i = 0; i + 1 < program->instructions.count; i++) {
    if (!is(program, i, LS_ACTION_TOTAL, LS_ALL_REDUCE)) continue;
    swap_with_next(program, i);
    i++;
    hits++;
  }
  return hits;
}

static bool reduces_cell(const ls_program *program, int i, ls_cell cell) {
  return is(program, i, LS_ACTION_NORM, LS_ALL_REDUCE) &&
         at(program, i)->out[0] == program->cell[cell];
}

FAULT(loss_not_summed, reduces_cell(p, i, LS_CELL_LOSS_SUM), take_as_whole(at(p, i)))

FAULT(loss_summed_over_tp_too, reduces_cell(p, i, LS_CELL_LOSS_SUM),
      change_axes(at(p, i), at(p, i)->axes | ls_mesh_active(&p->mesh, (TP_KV | TP_GROUP))))

FAULT(norm_of_one_piece, reduces_cell(p, i, LS_CELL_SQUARED_NORM) && (at(p, i)->axes & SHARD),
      change_axes(at(p, i), at(p, i)->axes & ~(ls_axes)SHARD))

FAULT(norm_of_one_tp_rank,
      reduces_cell(p, i, LS_CELL_SQUARED_NORM) && (at(p, i)->axes & (TP_KV | TP_GROUP)),
      change_axes(at(p, i), at(p, i)->axes &(REPLICATE | SHARD)))

static int set_first_only(ls_instruction *instruction, ls_axes axes) {
  const bool changed = instruction->first_only != axes;
  instruction->first_only = axes;
  return changed;
}

FAULT(norm_counts_replicas, is_op(p, i, LS_OP_SQUARED_NORM), set_first_only(at(p, i), 0))

FAULT(norm_counts_first_rank_only, is_op(p, i, LS_OP_SQUARED_NORM),
      set_first_only(at(p, i), ls_mesh_active(&p->mesh, (TP_KV | TP_GROUP))))

static int forget_clip(ls_instruction *instruction) {
  instruction->attributes.clip = 0;
  return 1;
}

FAULT(not_clipped, is_op(p, i, LS_OP_CLIP_FACTOR), forget_clip(at(p, i)))

static int read_another(ls_instruction *instruction, int input, int value) {
  instruction->in[input] = value;
  return 1;
}

/* What is read instead is 1 in the first step. */
FAULT(scale_not_undone, is_op(p, i, LS_OP_CLIP_FACTOR),
      read_another(at(p, i), 3, p->cell[LS_CELL_STEP]))

FAULT(loss_not_scaled, is_op(p, i, LS_OP_RECIPROCAL),
      read_another(at(p, i), 1, p->cell[LS_CELL_STEP]))

/* Weights and their update. */
FAULT(weights_not_gathered, is(p, i, LS_BEGIN_OF(GATHER, PARAMETERS), LS_ALL_GATHER),
      drop(at(p, i)))

FAULT(weights_gathered_from_replicas,
      is(p, i, LS_BEGIN_OF(GATHER, PARAMETERS), LS_ALL_GATHER) &&
          p->mesh.axes[LS_AXIS_DP_REPLICATE].size == p->mesh.axes[LS_AXIS_DP_SHARD].size,
      change_axes(at(p, i), REPLICATE))

/* Every GATHER of a unit in a microbatch but the first. */
static int not_gathered_again(ls_program *program) {
  int hits = 0;
  for (int a = program->actions.count - 1; a >= 0; a--) {
    const ls_action *action = &program->actions.items[a].action;
    bool again = false;
    const bool gathers = has_sort(action, LS_BEGIN_OF(GATHER, PARAMETERS));
    for (int b = 0; b < a && gathers && action->microbatch >= 0; b++) {
      const ls_action *earlier = &program->actions.items[b].action;
      again |= ls_action_sort(earlier) == ls_action_sort(action) && earlier->unit == action->unit &&
               earlier->microbatch == action->microbatch;
    }
    if (!again) continue;
    remove_action(program, a);
    hits++;
  }
  return hits;
}

static int not_published(ls_program *program) {
  return remove_actions(program, LS_BEGIN_OF(PUBLISH, PARAMETERS));
}

static int last_unit_not_updated(ls_program *program) {
  int a = program->actions.count - 1;
  while (program->actions.items[a].action.kind != LS_ACTION_UPDATE) a--;
  remove_action(program, a);
  return 1;
}

FAULT(weights_not_cast, is_op(p, i, LS_OP_CAST) && in(p, i, LS_ACTION_UPDATE), drop(at(p, i)))

static const ls_program_parameter *updated(const ls_program *program, int i) {
  for (int p = 0; p < program->parameter_count && is_op(program, i, LS_OP_ADAMW); p++)
    if (program->parameters[p].part[LS_PART_MASTER] == at(program, i)->out[0])
      return &program->parameters[p];
  return NULL;
}

static int set_decay(ls_instruction *instruction, double decay) {
  instruction->attributes.weight_decay = decay;
  return 1;
}

FAULT(vectors_decay, updated(p, i) && updated(p, i)->ndim == 1, set_decay(at(p, i), 0.1))

FAULT(embeddings_do_not_decay, updated(p, i) && updated(p, i)->sharding == LS_TP_VOCABULARY,
      set_decay(at(p, i), 0))

static int share_moment(ls_instruction *instruction) {
  instruction->out[2] = instruction->out[1];
  return 1;
}

FAULT(moments_in_one_place, updated(p, i), share_moment(at(p, i)))

/* Offsets in a unit, of its second matrix. */
static ls_program_parameter *second_matrix(const ls_program *program) {
  for (int p = 0, matrices = 0; p < program->parameter_count; p++)
    if (program->parameters[p].ndim == 2 && ++matrices == 2) return &program->parameters[p];
  ls_panic("fewer than two matrices");
}

static int gradient_piece_shifted(ls_program *program) {
  program->values.items[second_matrix(program)->part[LS_PART_GRADIENT]].flat_offset++;
  return 1;
}

static int weight_shifted(ls_program *program) {
  ls_value *used = &program->values.items[second_matrix(program)->part[LS_PART_USED]];
  used->offset += (int64_t)ls_dtype_bytes(used->dtype);
  return 1;
}

#undef FAULT

/* name, change, model, dp_replicate, dp_shard, tp, zero, sequence parallel, microbatches, dtype,
 * the rest */
const ls_fault ls_faults[] = {
    {"gradients of norms not summed under sequence parallelism", partial_gradients_kept, LLAMA_FREE,
     1, 1, 2, 1, true, 1, LS_F64, NULL},
    {"gradients of replicated KV heads not summed", shared_heads_kept, LLAMA_TIED, 1, 1, 6, 1,
     false, 1, LS_F64, NULL},
    {"gradients of replicated KV heads summed over tp_kv", shared_heads_over_wrong_axis, LLAMA_TIED,
     1, 1, 6, 1, false, 1, LS_F64, NULL},
    {"gradients of replicated KV heads summed over all of tp", shared_heads_over_all_of_tp,
     LLAMA_TIED, 1, 1, 6, 1, false, 1, LS_F64, NULL},
    {"gradients summed over tp as well as data", gradients_summed_over_tp_too, GPT2, 2, 1, 2, 1,
     false, 1, LS_F64, NULL},
    {"gradients of data-parallel ranks not summed", gradients_not_summed, GPT2, 2, 1, 1, 1, false,
     1, LS_F64, NULL},
    {"pieces of gradients not summed over replicas", gradients_not_summed, GPT2, 2, 2, 1, 3, false,
     1, LS_F64, NULL},
    {"gradients of data-parallel ranks summed twice", gradients_summed_twice, GPT2, 2, 1, 1, 1,
     false, 1, LS_F64, NULL},
    {"only half of a unit's gradients summed", half_of_a_unit_summed, GPT2, 2, 1, 1, 1, false, 1,
     LS_F64, NULL},
    {"reduce-scatter of gradients dropped", gradients_not_scattered, GPT2, 1, 2, 1, 2, false, 1,
     LS_F64, NULL},
    {"gradients reduce-scattered over dp_replicate", gradients_scattered_over_replicas, GPT2, 2, 2,
     1, 3, false, 1, LS_F64, NULL},
    {"pieces of gradients begin a granule late", scattered_pieces_shifted, GPT2, 1, 2, 1, 1, false,
     1, LS_F64, NULL},
    {"gradients of a microbatch reduced twice", scattered_twice, GPT2, 1, 2, 1, 2, false, 3, LS_F64,
     NULL},
    {"reduced gradients of a later microbatch overwrite", scatter_overwrites, GPT2, 1, 2, 1, 2,
     false, 3, LS_F64, NULL},
    {"gradients of the microbatch before reduced again", raw_gradient_not_cleared, GPT2, 1, 2, 1, 2,
     false, 3, LS_F64, NULL},
    {"gradients of a later microbatch overwrite", later_microbatch_overwrites, GPT2, 1, 1, 1, 1,
     false, 3, LS_F64, NULL},
    {"gradients of the first microbatch added to the last step's", first_microbatch_adds, GPT2, 1,
     1, 1, 1, false, 1, LS_F64, NULL},
    {"second use of a tied embedding overwrites", second_use_overwrites, GPT2, 1, 1, 1, 1, false, 1,
     LS_F64, NULL},
    {"second use of a tied embedding dropped", second_use_dropped, GPT2, 1, 1, 1, 1, false, 1,
     LS_F64, NULL},
    {"all microbatches read the same tokens", same_tokens_for_all_microbatches, GPT2, 1, 1, 1, 1,
     false, 3, LS_F64, NULL},
    {"partial product taken as whole", product_not_summed, GPT2, 1, 1, 2, 1, false, 1, LS_F64,
     NULL},
    {"partial product summed twice", product_summed_twice, GPT2, 1, 1, 2, 1, false, 1, LS_F64,
     NULL},
    {"partial embedding taken as whole", embedding_not_summed, GPT2, 1, 1, 2, 1, false, 1, LS_F64,
     NULL},
    {"partial product of backward taken as whole", product_of_backward_not_summed, GPT2, 1, 1, 2, 1,
     false, 1, LS_F64, NULL},
    {"reduce-scatter of the stream dropped", stream_not_scattered, GPT2, 1, 1, 2, 1, true, 1,
     LS_F64, NULL},
    {"reduce-scatter of the stream's gradient dropped", stream_of_backward_not_scattered, GPT2, 1,
     1, 2, 1, true, 1, LS_F64, NULL},
    {"all-gather of the stream dropped", stream_not_gathered, GPT2, 1, 1, 2, 1, true, 1, LS_F64,
     NULL},
    {"all-gather of the stream's gradient dropped", stream_of_backward_not_gathered, GPT2, 1, 1, 2,
     1, true, 1, LS_F64, NULL},
    {"bias added before the sum over tp", bias_before_sum, GPT2, 1, 1, 2, 1, false, 1, LS_F64,
     NULL},
    {"max of the vocabulary not reduced", max_not_reduced, GPT2, 1, 1, 2, 1, false, 1, LS_F64,
     NULL},
    {"sum of exponentials not reduced", sum_of_exponentials_not_summed, GPT2, 1, 1, 2, 1, false, 1,
     LS_F64, NULL},
    {"logit of the label not reduced", label_logit_not_summed, GPT2, 1, 1, 2, 1, false, 1, LS_F64,
     NULL},
    {"start of the vocabulary's part not subtracted from labels", labels_of_first_part, GPT2, 1, 1,
     2, 1, false, 1, LS_F64, NULL},
    {"start of the vocabulary's part not subtracted from ids", table_of_first_part, GPT2, 1, 1, 2,
     1, false, 1, LS_F64, NULL},
    {"valid tokens not summed", valid_tokens_not_summed, GPT2, 2, 1, 1, 1, false, 1, LS_F64, NULL},
    {"loss scaled before the valid tokens are summed", scale_before_total, GPT2, 2, 1, 1, 1, false,
     1, LS_F64, NULL},
    {"loss not summed", loss_not_summed, GPT2, 2, 1, 1, 1, false, 1, LS_F64, NULL},
    {"loss summed over tp as well", loss_summed_over_tp_too, GPT2, 2, 1, 2, 1, false, 1, LS_F64,
     NULL},
    {"norm not summed over dp_shard", norm_of_one_piece, GPT2, 1, 2, 1, 1, false, 1, LS_F64, NULL},
    {"norm not summed over tp", norm_of_one_tp_rank, GPT2, 1, 1, 2, 1, false, 1, LS_F64, NULL},
    {"norm counts replicas once per rank", norm_counts_replicas, GPT2, 1, 1, 2, 1, false, 1, LS_F64,
     NULL},
    {"norm counts the first tp rank only", norm_counts_first_rank_only, GPT2, 1, 1, 2, 1, false, 1,
     LS_F64, NULL},
    {"gradients not clipped", not_clipped, GPT2, 1, 1, 1, 1, false, 1, LS_F64, NULL},
    {"scale of the loss not undone", scale_not_undone, GPT2, 1, 1, 1, 1, false, 1, LS_F64, NULL},
    {"loss not scaled", loss_not_scaled, GPT2, 1, 1, 1, 1, false, 1, LS_F64, NULL},
    {"weights not gathered", weights_not_gathered, GPT2, 1, 2, 1, 3, false, 1, LS_F64, NULL},
    {"weights gathered from replicas", weights_gathered_from_replicas, GPT2, 2, 2, 1, 3, false, 1,
     LS_F64, NULL},
    {"weights not gathered again in backward", not_gathered_again, GPT2, 1, 2, 1, 3, false, 1,
     LS_F64, NULL},
    {"updated weights not published", not_published, GPT2, 1, 2, 1, 1, false, 1, LS_F64, NULL},
    {"last unit not updated", last_unit_not_updated, GPT2, 1, 1, 1, 1, false, 1, LS_F64, NULL},
    {"vectors decay", vectors_decay, GPT2, 1, 1, 1, 1, false, 1, LS_F64, NULL},
    {"embeddings do not decay", embeddings_do_not_decay, GPT2, 1, 1, 1, 1, false, 1, LS_F64, NULL},
    {"both moments in one place", moments_in_one_place, GPT2, 1, 1, 1, 1, false, 1, LS_F64, NULL},
    {"piece of a gradient one element late", gradient_piece_shifted, GPT2, 1, 2, 1, 2, false, 1,
     LS_F64, NULL},
    {"gathered weight read one element late", weight_shifted, GPT2, 1, 2, 1, 3, false, 1, LS_F64,
     NULL},
    {"bf16 weights not cast from the master", weights_not_cast, GPT2, 1, 1, 1, 1, false, 1, LS_BF16,
     NULL},
};

const int ls_fault_count = (int)(sizeof ls_faults / sizeof *ls_faults);

ls_layout ls_fault_layout(const ls_fault *fault) {
  ls_layout layout = ls_test_layout_default();
  layout.dp_replicate = fault->dp_replicate;
  layout.dp_shard = fault->dp_shard;
  layout.tp = fault->tp;
  layout.zero = fault->zero;
  layout.sequence_parallel = fault->sequence_parallel;
  layout.microbatches = fault->microbatches;
  layout.compute = fault->compute;
  if (!fault->room) return layout;
  layout.pp = fault->room->pp ? fault->room->pp : 1;
  layout.schedule = fault->room->schedule;
  layout.gather = fault->room->gather;
  layout.reduce = fault->room->reduce;
  layout.recompute = fault->room->recompute;
  layout.offload = fault->room->offload;
  layout.post_validation = fault->room->post_validation;
  layout.logits_rows = fault->room->logits_rows;
  if (layout.post_validation) layout.optimizer.clip = 0; /* so that speculates stand */
  return layout;
}
