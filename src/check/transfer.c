/* What goes between stages: the k-th message of one stage to another is taken by the k-th receive
 * there; collectives over stages join when all their members stand at them. */
#include <string.h>

#include "check/proof.h"

static ls_proof_channel *channel(const ls_stage *stage, int from, int to) {
  return &stage->proof->channels[from * stage->proof->count + to];
}

static ls_status check_transfer(const ls_stage *stage, int inputs, int outputs, ls_error *error) {
  const ls_instruction *instruction = ls_proof_instruction(stage);
  if (instruction->inputs != inputs || instruction->outputs != outputs)
    return ls_proof_fail(stage, error, "has other operands: expected one");
  if (instruction->peer < 0 || instruction->peer >= stage->proof->count ||
      instruction->peer == stage->number)
    return ls_proof_fail(stage, error, "is with stage %d: expected another stage of %d",
                         instruction->peer, stage->proof->count);
  const int value = inputs ? instruction->in[0] : instruction->out[0];
  if (instruction->count != stage->extents[value].elements ||
      stage->program->values.items[value].flat_elements)
    return ls_proof_fail(stage, error, "moves %lld elements: expected %lld",
                         (long long)instruction->count, (long long)stage->extents[value].elements);
  return LS_OK;
}

static ls_status begin_send(ls_stage *stage, ls_error *error) {
  const ls_instruction *instruction = ls_proof_instruction(stage);
  LS_TRY(check_transfer(stage, 1, 0, error));
  ls_proof_channel *to = channel(stage, stage->number, instruction->peer);
  ls_operand operand;
  const ls_content *content;
  LS_TRY(ls_operand_find(stage, instruction->in[0], &operand, error));
  LS_TRY(ls_memory_read(stage, &operand, &content, error));
  LS_TRY(ls_check_declared(stage, instruction->in[0], &content->placement, error));
  const int most = stage->proof->queues->most_sends;
  if (most && to->sent.count - to->ended >= most)
    return ls_proof_fail(stage, error,
                         "begins a send while %d to stage %d are under way: expected "
                         "fewer",
                         most, instruction->peer);
  *LS_APPEND(stage->proof->arena, &to->sent) =
      (ls_message){content, instruction->count, instruction->in[0], ls_proof_place(stage)};
  ls_post_message(stage, instruction->peer, true);
  return ls_begin_transfer(stage, error);
}

static ls_status end_send(ls_stage *stage, bool *blocked, ls_error *error) {
  LS_TRY(check_transfer(stage, 1, 0, error));
  ls_proof_channel *to = channel(stage, stage->number, ls_proof_instruction(stage)->peer);
  const int gone = stage->proof->queues->holds ? to->matched : to->taken;
  *blocked = gone <= to->ended && to->ended < to->sent.count;
  if (*blocked) return LS_OK;
  to->ended++;
  return ls_end_transfer(stage, error);
}

static ls_status check_message(const ls_stage *stage, const ls_message *message, ls_error *error) {
  const ls_instruction *instruction = ls_proof_instruction(stage);
  const ls_program *program = stage->program;
  const ls_program *from = stage->proof->stages[message->place.stage].program;
  const ls_value *mine = &program->values.items[instruction->out[0]];
  const ls_value *theirs = &from->values.items[message->from_value];
  bool same = mine->dtype == theirs->dtype && mine->ndim == theirs->ndim &&
              instruction->count == message->count && strcmp(mine->name, theirs->name) == 0;
  for (int d = 0; d < mine->ndim && same; d++) same = mine->global[d] == theirs->global[d];
  if (!same)
    return ls_proof_fail(stage, error,
                         "takes %lld elements of %s, which stage %d instruction %d does not send: "
                         "expected %lld of %s",
                         (long long)instruction->count, mine->name, message->place.stage,
                         message->place.instruction, (long long)message->count, theirs->name);
  if (message->content->microbatch != ls_proof_action(stage)->action.microbatch)
    return ls_proof_fail(stage, error, "takes microbatch %d: expected %d, its action's",
                         message->content->microbatch, ls_proof_action(stage)->action.microbatch);
  return LS_OK;
}

static ls_status begin_receive(ls_stage *stage, ls_error *error) {
  LS_TRY(check_transfer(stage, 0, 1, error));
  ls_operand operand;
  LS_TRY(ls_operand_find(stage, ls_proof_instruction(stage)->out[0], &operand, error));
  LS_TRY(ls_memory_forget(stage, &operand, error));
  ls_post_message(stage, ls_proof_instruction(stage)->peer, false);
  return ls_begin_transfer(stage, error);
}

static ls_status end_receive(ls_stage *stage, bool *blocked, ls_error *error) {
  const ls_instruction *instruction = ls_proof_instruction(stage);
  LS_TRY(check_transfer(stage, 0, 1, error));
  if (instruction->write[0] != LS_WRITE)
    return ls_proof_fail(stage, error, "adds to its target: expected to write it");
  ls_proof_channel *from = channel(stage, instruction->peer, stage->number);
  const int there = stage->proof->queues->holds ? from->matched : from->sent.count;
  *blocked = from->taken >= there;
  if (*blocked) return LS_OK;
  LS_TRY(ls_end_transfer(stage, error));
  const ls_message message = from->sent.items[from->taken];
  LS_TRY(check_message(stage, &message, error));
  LS_TRY(ls_proof_same_side(stage, &message, error));
  LS_TRY(ls_check_declared(stage, instruction->out[0], &message.content->placement, error));
  ls_operand operand;
  LS_TRY(ls_operand_find(stage, instruction->out[0], &operand, error));
  from->taken++;
  stage->proof->report.transfers++;
  return ls_memory_write(stage, &operand, message.content, error);
}

ls_status ls_run_message(ls_stage *stage, bool *blocked, ls_error *error) {
  const ls_instruction *instruction = ls_proof_instruction(stage);
  const bool sends = instruction->collective == LS_SEND;
  *blocked = false;
  switch (instruction->phase) {
    case LS_BEGIN: return sends ? begin_send(stage, error) : begin_receive(stage, error);
    case LS_END:
      return sends ? end_send(stage, blocked, error) : end_receive(stage, blocked, error);
    default:
      return ls_proof_fail(stage, error, "is a message at once: expected a beginning and an end");
  }
}

static bool ended(const ls_stage *stage) {
  return stage->action >= stage->program->actions.count;
}

bool ls_is_join(const ls_stage *stage) {
  return ls_stage_joins(stage, ls_proof_instruction(stage));
}

bool ls_stage_joins(const ls_stage *stage, const ls_instruction *instruction) {
  if (instruction->collective == LS_SUM_NUMBERS) return true;
  return ls_collective_is_of_group(instruction->collective) && instruction->phase != LS_END &&
         (instruction->peer >= 0 || (instruction->axes & stage->proof->active &
                                     ls_mesh_axes(&stage->proof->mesh, LS_MESH_STAGE)));
}

/* The members of the join that the stage stands at. */
static bool is_member(const ls_stage *stage, int other) {
  const int peer = ls_proof_instruction(stage)->peer;
  return peer < 0 || other == stage->number || other == peer;
}

/* Whether another member has come to a join that the stage is a member of. */
static bool stands_with(const ls_stage *stage, const ls_stage *other) {
  return !ended(other) && ls_is_join(other) && is_member(other, stage->number);
}

static ls_status compare_joins(const ls_stage *a, const ls_stage *b, ls_error *error) {
  const ls_instruction *x = ls_proof_instruction(a), *y = ls_proof_instruction(b);
  const ls_dtype mine = a->program->values.items[x->in[0]].dtype;
  const ls_dtype theirs = b->program->values.items[y->in[0]].dtype;
  const bool pairs = (x->peer < 0) == (y->peer < 0) &&
                     (x->peer < 0 || (x->peer == b->number && y->peer == a->number));
  if (pairs && x->collective == y->collective && x->phase == y->phase && x->axes == y->axes &&
      x->count == y->count && x->reduce == y->reduce && mine == theirs)
    return LS_OK;
  return ls_proof_fail(b, error,
                       "meets another collective of stage %d (instruction %d): expected one kind, "
                       "group, count, type and reduction",
                       a->number, ls_proof_place(a).instruction);
}

/* The members' parts of one value, and what becomes of them. */
typedef struct joined {
  ls_content sum;
  bool any; /* a part that is not zero */
} joined;

static ls_status join_part(ls_stage *stage, const ls_operand *operand, joined *all,
                           ls_error *error) {
  const ls_content *part;
  LS_TRY(ls_memory_read(stage, operand, &part, error));
  if (part->kind != LS_CONTENT_SUM && part->kind != LS_CONTENT_GRADIENT)
    return ls_proof_fail(stage, error, "sums over stages what is no sum: expected one");
  if (part->kind == LS_CONTENT_SUM && part->terms.count == 0) return LS_OK;
  LS_TRY(ls_check_own_shard(stage, operand->value, part, error));
  if (!all->any) {
    all->sum = *part;
    all->any = true;
    return LS_OK;
  }
  if (part->kind != all->sum.kind || part->expression != all->sum.expression ||
      !ls_places_equal(stage->proof, &part->placement, &all->sum.placement))
    return ls_proof_fail(stage, error, "meets another sum of another stage: expected the same");
  if (!ls_terms_join(stage->proof->arena, all->sum.terms, part->terms, &all->sum.terms))
    return ls_proof_fail(stage, error,
                         "sums over stages what several of them have: expected each "
                         "contribution once");
  return LS_OK;
}

/* Over the other axes of the group it is an ordinary reduction. */
static ls_status reduce_axes(ls_stage *stage, ls_content *sum, ls_error *error) {
  for (int axis = 0; axis < stage->proof->mesh.count; axis++) {
    if (stage->proof->mesh.axes[axis].role == LS_MESH_STAGE ||
        !((ls_proof_instruction(stage)->axes & stage->proof->active) >> axis & 1))
      continue;
    if (sum->placement.on[axis].kind != LS_PARTIAL)
      return ls_proof_fail(stage, error,
                           "all-reduce over %s, where the value is whole: expected a "
                           "partial sum",
                           stage->proof->mesh.axes[axis].name);
    sum->placement.on[axis] = (ls_place){0};
  }
  return LS_OK;
}

static ls_status check_join(const ls_stage *stage, ls_error *error) {
  const ls_instruction *instruction = ls_proof_instruction(stage);
  const ls_program *program = stage->program;
  const bool half = instruction->collective == LS_SUM_NUMBERS;
  if (half && (instruction->axes != ls_mesh_axes(&stage->proof->mesh, LS_MESH_STAGE) ||
               instruction->peer >= 0))
    return ls_proof_fail(stage, error, "ends a sum over other ranks: expected pp");
  if ((instruction->collective != LS_ALL_REDUCE && !half) || instruction->reduce != LS_SUM ||
      instruction->inputs != 1 || instruction->outputs != 1 || instruction->write[0] != LS_WRITE ||
      !ls_value_same_place(&program->values.items[instruction->in[0]],
                           &program->values.items[instruction->out[0]]))
    return ls_proof_fail(stage, error, "is no sum in place: expected one between stages");
  if (instruction->peer >= 0 &&
      (instruction->axes != ls_mesh_axes(&stage->proof->mesh, LS_MESH_STAGE) ||
       instruction->peer >= stage->proof->count || instruction->peer == stage->number))
    return ls_proof_fail(stage, error, "is between two stages and over other axes: expected pp");
  const ls_value *value = &program->values.items[instruction->in[0]];
  const ls_extent *extent = &stage->extents[instruction->in[0]];
  if (extent->flat_axes && (value->flat_offset != 0 || value->flat_elements != value->global[0]))
    return ls_proof_fail(stage, error, "reduces a part of a shard: expected all of it");
  const int64_t expected = extent->flat_axes ? extent->shard : extent->elements;
  if (instruction->count != expected)
    return ls_proof_fail(stage, error, "moves %lld elements: expected %lld",
                         (long long)instruction->count, (long long)expected);
  return LS_OK;
}

/* The r-th thing that the stage's operand holds: a parameter's region, or all of it. */
static bool nth_part(const ls_stage *stage, int r, ls_operand *part) {
  const ls_value *value = &stage->program->values.items[part->value];
  if (!value->flat_elements) return r == 0;
  const ls_regions *regions = &stage->regions[value->storage];
  for (int i = 0; i < regions->items.count; i++) {
    const ls_region *region = &regions->items.items[i];
    if (region->begin < part->begin || region->end > part->end || r-- > 0) continue;
    part->begin = region->begin;
    part->end = part->reach = region->end;
    return true;
  }
  return false;
}

static ls_status join(ls_stage *first, ls_error *error) {
  ls_proof *proof = first->proof;
  for (int r = 0;; r++) {
    joined all = {0};
    int parts = 0, members = 0;
    ls_operand *operands = LS_NEW_ARRAY(proof->arena, ls_operand, proof->count);
    for (int s = 0; s < proof->count; s++) {
      ls_stage *stage = &proof->stages[s];
      if (!is_member(first, s)) continue;
      members++;
      LS_TRY(ls_operand_find(stage, ls_proof_instruction(stage)->in[0], &operands[s], error));
      if (!nth_part(stage, r, &operands[s])) continue;
      parts++;
      LS_TRY(join_part(stage, &operands[s], &all, error));
    }
    if (!parts) return LS_OK;
    if (parts != members)
      return ls_proof_fail(first, error,
                           "meets other parameters of other stages: expected the "
                           "same");
    if (all.any) LS_TRY(reduce_axes(first, &all.sum, error));
    proof->report.reductions++;
    for (int s = 0; s < proof->count; s++)
      if (ls_proof_instruction(first)->phase == LS_END)
        LS_TRY(ls_end_transfer(&proof->stages[s], error));
    for (int s = 0; s < proof->count && all.any; s++)
      if (is_member(first, s))
        LS_TRY(ls_memory_write(&proof->stages[s], &operands[s], &all.sum, error));
  }
}

ls_status ls_run_joins(ls_proof *proof, bool *progress, ls_error *error) {
  for (int s = 0; s < proof->count; s++) {
    ls_stage *stage = &proof->stages[s];
    if (ended(stage) || !ls_is_join(stage)) continue;
    LS_TRY(check_join(stage, error));
    bool all = true;
    for (int o = 0; o < proof->count && all; o++) {
      const ls_stage *other = &proof->stages[o];
      if (o == s || !is_member(stage, o)) continue;
      all = stands_with(stage, other);
      if (all) LS_TRY(check_join(other, error));
      if (all) LS_TRY(compare_joins(stage, other, error));
    }
    if (!all) continue;
    LS_TRY(join(stage, error));
    proof->report.joins++;
    const int peer = ls_proof_instruction(stage)->peer;
    const bool begins = ls_proof_instruction(stage)->phase == LS_BEGIN;
    for (int o = 0; o < proof->count; o++) {
      if (peer >= 0 && o != s && o != peer) continue;
      if (begins) LS_TRY(ls_begin_transfer(&proof->stages[o], error));
      proof->stages[o].at++;
    }
    *progress = true;
  }
  return LS_OK;
}

/* The message that a stuck stage waits for. */
static ls_posted awaited_message(const ls_stage *stage) {
  const ls_instruction *instruction = ls_proof_instruction(stage);
  return ls_message_in_front(stage, instruction->peer, instruction->collective == LS_SEND);
}

/* The stage that a stuck one waits for. */
static int waits_for(const ls_stage *stage) {
  if (!ls_is_join(stage)) return awaited_message(stage).peer;
  for (int o = 0; o < stage->proof->count; o++)
    if (o != stage->number && is_member(stage, o) && !stands_with(stage, &stage->proof->stages[o]))
      return o;
  return stage->number;
}

static const char *awaited(const ls_stage *stage) {
  if (ls_is_join(stage)) return "to join its collective";
  return awaited_message(stage).sends ? "to receive" : "to send";
}

ls_status ls_name_circle(ls_proof *proof, ls_error *error) {
  int at = 0;
  while (at < proof->count && ended(&proof->stages[at])) at++;
  if (at == proof->count) return LS_OK;
  for (int steps = 0; steps < proof->count; steps++) { /* into the circle, or to its end */
    const ls_stage *stage = &proof->stages[at];
    const int next = waits_for(stage);
    if (ended(&proof->stages[next]))
      return ls_proof_fail(stage, error,
                           "waits for stage %d %s, which has ended: expected its "
                           "counterpart there",
                           next, awaited(stage));
    at = next;
  }
  const char *text = "";
  const int start = at;
  do {
    const ls_stage *stage = &proof->stages[at];
    const ls_place_in_program place = ls_proof_place(stage);
    text = ls_arena_printf(proof->arena, "%s, stage %d at action %d instruction %d for stage %d %s",
                           text, at, place.action, place.instruction, waits_for(stage),
                           awaited(stage));
    at = waits_for(stage);
  } while (at != start);
  return ls_proof_fail(
      &proof->stages[start], error,
      "waits in a circle (%s): expected an order in which each can go on%s",
      *text ? text + 2 : text,
      proof->queues->sharing == LS_QUEUE_FOR_ALL ? ", or a queue for each peer and direction" : "");
}
