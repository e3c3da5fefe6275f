#include "schedule/schedule.h"

#include <float.h>

#include "pipeline/replay_boundary.h"
#include "schedule/offload_copies.h"

/* One pass of a microbatch over a segment. */
typedef struct step {
  ls_action_kind kind; /* FORWARD, RECOMPUTE, BACKWARD, INPUT, WEIGHT */
  int segment, microbatch;
  int place;   /* in the stage's list of the pipeline */
  int partner; /* of a FORWARD and the first step back through its segment: the other, where what
                * the one keeps leaves the device until the other; -1: none */
} step;

/* What goes over a boundary for a microbatch. */
typedef struct message {
  int boundary, microbatch;
  bool back;
} message;

/* What another stage sends to this one, in the order in which it does, and how many receives of it
 * have begun, and have ended. */
typedef struct inbox {
  LS_LIST(message) messages;
  int begun, taken;
} inbox;

typedef struct builder {
  const ls_sharded *sharded;
  const ls_units *units;
  const ls_chunks *chunks;
  const ls_recompute *recompute; /* NULL: nothing runs again */
  const ls_offload_plan *offload_plan;
  int stage;
  ls_schedule *schedule;
  LS_LIST(step) steps;
  struct inbox *inboxes;        /* [stages] */
  double *taken;                /* by place in the list: when what the pass sends is taken */
  bool *present;                /* by unit: this stage has it */
  bool *trained;                /* by unit: that, and it is not frozen */
  bool *kept;                   /* by unit: its weights were gathered once for the step */
  int *fetching;                /* by unit: the step its parameters are on their way for; -1 */
  int *gathering;               /* by unit: the step its gather has begun for; -1 */
  LS_LIST(ls_action) reducing;  /* under way until the end of the step behind */
  LS_LIST(ls_action) finishing; /* under way until the norm */
  bool *finished;               /* by unit */
  int *last_write;              /* by unit: the last step that adds to its gradient; -1 */
  int *last_of;        /* the same by unit that is written here and microbatch; NULL: not asked */
  int *written;        /* by unit: its number among those; -1 */
  int returning;       /* a unit whose gradient is on its way to the host; -1 */
  int offloading;      /* a FORWARD step whose activations are on their way out; -1 */
  const int *prologue; /* by stage: passes before the replay boundary; NULL: there is none */
} builder;

static ls_unit_uses_kind kind_of(const step *at) {
  switch (at->kind) {
    case LS_ACTION_FORWARD:
    case LS_ACTION_RECOMPUTE: return LS_UNIT_USES_FORWARD;
    case LS_ACTION_INPUT: return LS_UNIT_USES_INPUT;
    case LS_ACTION_WEIGHT: return LS_UNIT_USES_WEIGHT;
    default: return LS_UNIT_USES_BACKWARD;
  }
}

static const ls_units_used *used_by(const builder *b, const step *at) {
  return ls_unit_uses_of(b->units->uses, kind_of(at), at->segment);
}

/* Whether something can run beside the step. */
static bool works(const builder *b, int s) {
  const step *at = &b->steps.items[s];
  return b->units->uses->works[kind_of(at)][at->segment];
}

static bool differ(const builder *b, const ls_placement *from, const ls_placement *to) {
  return !ls_placement_equal(&b->sharded->mesh, from, to, ls_mesh_all(&b->sharded->mesh));
}

static bool is_gathered(const builder *b, int u) {
  return differ(b, &b->units->items[u].stored, &b->units->items[u].used);
}

static bool is_reduced_each(const builder *b, int u) {
  return differ(b, &b->units->items[u].raw, &b->units->items[u].gradient);
}

static void add(builder *b, ls_action_kind kind, int segment, int unit, int microbatch) {
  ls_schedule *schedule = b->schedule;
  *LS_APPEND(b->sharded->arena, schedule) =
      (ls_action){.kind = kind, .segment = segment, .unit = unit, .microbatch = microbatch};
}

/* A transfer of a unit, or of a segment where that is -1. */
static ls_action transfer(ls_transfer_kind kind, ls_payload payload, int segment, int unit,
                          int microbatch) {
  return (ls_action){LS_ACTION_BEGIN, kind, payload, segment, unit, microbatch};
}

static void begin(builder *b, ls_action made) {
  *LS_APPEND(b->sharded->arena, b->schedule) = made;
}

static void await(builder *b, ls_action made) {
  made.kind = LS_ACTION_WAIT;
  *LS_APPEND(b->sharded->arena, b->schedule) = made;
}

bool *ls_schedule_units_present(const ls_sharded *sharded, const ls_units *units,
                                const ls_chunks *chunks, int stage) {
  static const ls_unit_uses_kind passes[] = {LS_UNIT_USES_FORWARD, LS_UNIT_USES_BACKWARD};
  bool *here = LS_NEW_ARRAY(sharded->arena, bool, units->count + 1);
  for (int s = 0; s < sharded->graph->segments.count; s++)
    for (int p = 0; p < 2 && ls_chunks_stage(chunks, s) == stage; p++) {
      const ls_units_used *used = ls_unit_uses_of(units->uses, passes[p], s);
      for (int i = 0; i < used->count; i++) here[used->items[i].unit] |= used->items[i].reads;
    }
  return here;
}

static bool splits(const ls_pipeline_list *list) {
  for (int i = 0; i < list->count; i++)
    if (list->items[i].kind == LS_PASS_INPUT || list->items[i].kind == LS_PASS_WEIGHT) return true;
  return false;
}

static void append_step(builder *b, ls_action_kind kind, int segment, int microbatch, int place) {
  *LS_APPEND(b->sharded->arena, &b->steps) = (step){kind, segment, microbatch, place, -1};
}

/* Before backward enters a group of layers, the group's forward pass runs again. */
static void add_recompute(builder *b, int last, int microbatch, int place) {
  for (int s = b->recompute->group_first[last]; s <= last; s++)
    if (b->recompute->group_last[s] == last)
      append_step(b, LS_ACTION_RECOMPUTE, s, microbatch, place);
}

static void add_steps(builder *b, ls_action_kind kind, const ls_pipeline_pass *pass, int place) {
  const int first = b->chunks->first_segment[pass->chunk];
  const int end = b->chunks->first_segment[pass->chunk + 1];
  const bool again = kind == LS_ACTION_BACKWARD || kind == LS_ACTION_INPUT;
  for (int i = 0; i < end - first; i++) {
    const int segment = kind == LS_ACTION_FORWARD ? first + i : end - 1 - i;
    if (again && b->recompute) add_recompute(b, segment, pass->microbatch, place);
    append_step(b, kind, segment, pass->microbatch, place);
  }
}

/* A stage that splits some backward passes has the two halves of each. */
static void find_steps(builder *b) {
  const ls_pipeline_list *list = &b->chunks->pipeline->lists[b->stage];
  const bool halves = splits(list);
  for (int i = 0; i < list->count; i++) {
    const ls_pipeline_pass *pass = &list->items[i];
    if (pass->kind == LS_PASS_FORWARD) add_steps(b, LS_ACTION_FORWARD, pass, i);
    if (pass->kind == LS_PASS_INPUT || (halves && pass->kind == LS_PASS_BACKWARD))
      add_steps(b, LS_ACTION_INPUT, pass, i);
    if (pass->kind == LS_PASS_WEIGHT || (halves && pass->kind == LS_PASS_BACKWARD))
      add_steps(b, LS_ACTION_WEIGHT, pass, i);
    if (!halves && pass->kind == LS_PASS_BACKWARD) add_steps(b, LS_ACTION_BACKWARD, pass, i);
  }
}

static int *last_of(const builder *b, const step *at, int unit) {
  const int64_t row = (int64_t)b->written[unit] * b->chunks->pipeline->microbatches;
  return &b->last_of[row + at->microbatch];
}

/* Which step is the last to add to a unit's gradient: of all, and of each microbatch where what one
 * gives is reduced by itself. */
static void find_last_writes(builder *b) {
  ls_arena *arena = b->sharded->arena;
  int written = 0;
  b->last_write = LS_NEW_ARRAY(arena, int, b->units->count + 1);
  b->written = LS_NEW_ARRAY(arena, int, b->units->count + 1);
  for (int u = 0; u < b->units->count; u++) b->last_write[u] = b->written[u] = -1;
  for (int s = 0; s < b->steps.count; s++) {
    const ls_units_used *used = used_by(b, &b->steps.items[s]);
    for (int i = 0; i < used->count; i++) {
      const int unit = used->items[i].unit;
      if (!used->items[i].writes) continue;
      b->last_write[unit] = s;
      if (b->written[unit] < 0) b->written[unit] = written++;
    }
  }
  bool each = false;
  for (int u = 0; u < b->units->count; u++) each = each || is_reduced_each(b, u);
  if (!each) return;
  b->last_of = LS_NEW_ARRAY(arena, int, (int64_t)written * b->chunks->pipeline->microbatches + 1);
  for (int s = 0; s < b->steps.count; s++) {
    const ls_units_used *used = used_by(b, &b->steps.items[s]);
    for (int i = 0; i < used->count; i++)
      if (used->items[i].writes) *last_of(b, &b->steps.items[s], used->items[i].unit) = s;
  }
}

/* The next step behind, beside which something can run. */
static int behind(const builder *b, int s) {
  do s++;
  while (s < b->steps.count && !works(b, s));
  return s;
}

/* The last step whose gathers begin before step s. */
static int last_gathered(const builder *b, int s) {
  for (int i = 0; i < b->sharded->layout.prefetch && s < b->steps.count; i++) s = behind(b, s);
  return s;
}

static bool reads(const builder *b, int s, int unit) {
  const ls_unit_use *found = ls_unit_uses_find(used_by(b, &b->steps.items[s]), unit);
  return found && found->reads;
}

static bool same_microbatch(const builder *b, int s, int other) {
  return b->steps.items[s].microbatch == b->steps.items[other].microbatch;
}

/* Whether a unit that step s reads stays: it would be gathered again at once, for the step behind
 * or for one that it is gathered ahead of. */
static bool stays(const builder *b, int s, int unit) {
  const int last = last_gathered(b, s + 1);
  for (int later = s + 1; later <= last && later < b->steps.count; later++) {
    if (!same_microbatch(b, s, later)) return false;
    if (reads(b, later, unit)) return true;
  }
  return false;
}

/* Whether it has stayed for step s. */
static bool stayed(const builder *b, int s, int unit) {
  for (int at = s - 1; at >= 0 && last_gathered(b, at + 1) >= s; at--) {
    if (!same_microbatch(b, s, at)) return false;
    if (reads(b, at, unit)) return true;
  }
  return false;
}

/* Whether the used unit's weights are gathered for this step: gathered, fetched or both. */
static bool needs_weights(const builder *b, int s, const ls_unit_use *use) {
  if (!is_gathered(b, use->unit) && !b->offload_plan->parameters[use->unit]) return false;
  if (!use->reads) return false;
  if (b->units->items[use->unit].gather_per_step) return !b->kept[use->unit];
  return !stayed(b, s, use->unit);
}

static int gathered_for(const builder *b, const step *at, int unit) {
  return b->units->items[unit].gather_per_step ? -1 : at->microbatch;
}

/* Whether both passes run on the same side of the replay boundary. */
static bool same_side(const builder *b, int place, int other) {
  const int boundary = b->prologue ? b->prologue[b->stage] : 0;
  return (place < boundary) == (other < boundary);
}

/* Whether what step `later` needs of a unit may come from before step s on: none until then reads
 * its weights, and no replay boundary lies between. */
static bool comes_early(const builder *b, int s, int later, int unit) {
  for (int at = s; at < later; at++)
    if (reads(b, at, unit)) return false;
  return same_side(b, b->steps.items[s].place, b->steps.items[later].place);
}

/* Begins to fetch what step `later` needs and what is not yet on its way. */
static void fetch(builder *b, int s, int later) {
  if (later >= b->steps.count) return;
  const ls_units_used *used = used_by(b, &b->steps.items[later]);
  for (int i = 0; i < used->count; i++) {
    const int u = used->items[i].unit;
    if (!b->offload_plan->parameters[u] || !needs_weights(b, later, &used->items[i]) ||
        b->fetching[u] >= 0 || b->gathering[u] >= 0 || !comes_early(b, s, later, u))
      continue;
    b->fetching[u] = later;
    begin(b, transfer(LS_TRANSFER_FETCH, LS_PAYLOAD_PARAMETERS, -1, u,
                      gathered_for(b, &b->steps.items[later], u)));
  }
}

/* A unit's weights are gathered for step `later`, once they have been fetched. */
static void gather(builder *b, int later, int unit) {
  const int whose = gathered_for(b, &b->steps.items[later], unit);
  if (b->offload_plan->parameters[unit])
    await(b, transfer(LS_TRANSFER_FETCH, LS_PAYLOAD_PARAMETERS, -1, unit, whose));
  b->fetching[unit] = -1;
  if (!is_gathered(b, unit)) return;
  begin(b, transfer(LS_TRANSFER_GATHER, LS_PAYLOAD_PARAMETERS, -1, unit, whose));
  b->gathering[unit] = later;
}

static void gather_early(builder *b, int s, int later) {
  if (later >= b->steps.count) return;
  const ls_units_used *used = used_by(b, &b->steps.items[later]);
  for (int i = 0; i < used->count; i++) {
    const int u = used->items[i].unit;
    if (is_gathered(b, u) && needs_weights(b, later, &used->items[i]) && b->gathering[u] < 0 &&
        comes_early(b, s, later, u) && (!b->offload_plan->parameters[u] || b->fetching[u] == later))
      gather(b, later, u);
  }
}

/* What a step of the future needs begins to come before steps ahead of it: it is gathered
 * `prefetch` of them ahead, and fetched from where it waits one more. */
static void look_ahead(builder *b, int s) {
  const int last = last_gathered(b, s), next = behind(b, s);
  for (int later = s; later <= last; later++) {
    fetch(b, s, later);
    if (b->sharded->layout.prefetch) gather_early(b, s, later);
  }
  for (int later = last + 1; later <= behind(b, last); later++) fetch(b, s, later);
  for (int later = s + 1; later <= next && later < b->steps.count && works(b, s); later++) {
    const step *of = &b->steps.items[later];
    if (of->partner >= 0 && of->kind != LS_ACTION_FORWARD)
      begin(b,
            transfer(LS_TRANSFER_FETCH, LS_PAYLOAD_ACTIVATIONS, of->segment, -1, of->microbatch));
  }
}

static void prepare_weights(builder *b, int s) {
  const step *at = &b->steps.items[s];
  if (at->partner >= 0 && at->kind != LS_ACTION_FORWARD)
    await(b, transfer(LS_TRANSFER_FETCH, LS_PAYLOAD_ACTIVATIONS, at->segment, -1, at->microbatch));
  const ls_units_used *used = used_by(b, at);
  for (int i = 0; i < used->count; i++) {
    const int u = used->items[i].unit;
    if (!needs_weights(b, s, &used->items[i])) continue;
    if (b->gathering[u] != s) gather(b, s, u);
    if (is_gathered(b, u))
      await(b, transfer(LS_TRANSFER_GATHER, LS_PAYLOAD_PARAMETERS, -1, u, gathered_for(b, at, u)));
    b->gathering[u] = -1;
    b->kept[u] = true;
  }
}

static void end_giving(builder *b) {
  if (b->returning >= 0)
    await(b, transfer(LS_TRANSFER_RETURN, LS_PAYLOAD_GRADIENTS, -1, b->returning, -1));
  b->returning = -1;
}

/* What began to leave the device after the step before has left it. */
static void end_leaving(builder *b) {
  end_giving(b);
  if (b->offloading >= 0) {
    const step *of = &b->steps.items[b->offloading];
    await(b, transfer(LS_TRANSFER_RETURN, LS_PAYLOAD_ACTIVATIONS, of->segment, -1, of->microbatch));
  }
  b->offloading = -1;
}

/* Whether something of the unit's reduction is left once the microbatches have been added up. */
static bool has_rest(const builder *b, int unit) {
  const ls_unit *about = &b->units->items[unit];
  if (differ(b, &about->gradient, &about->state)) return true;
  for (int e = 0; e < about->entries.count && !is_reduced_each(b, unit); e++)
    if (about->entries.items[e].partial) return true;
  return false;
}

/* The unit's gradient is complete; where the host updates it, it leaves the device. */
static void give(builder *b, int unit) {
  if (!b->offload_plan->state[unit]) return;
  end_giving(b);
  begin(b, transfer(LS_TRANSFER_RETURN, LS_PAYLOAD_GRADIENTS, -1, unit, -1));
  b->returning = unit;
}

static void end_finishing(builder *b) {
  for (int i = 0; i < b->finishing.count; i++) await(b, b->finishing.items[i]);
  b->finishing.count = 0;
}

/* All microbatches have been added up: begins what is left. */
static void finish(builder *b, int unit) {
  const ls_action made = transfer(LS_TRANSFER_FINISH, LS_PAYLOAD_GRADIENTS, -1, unit, -1);
  b->finished[unit] = true;
  if (!has_rest(b, unit)) {
    give(b, unit);
    return;
  }
  begin(b, made);
  if (b->offload_plan->state[unit])
    *LS_APPEND(b->sharded->arena, &b->reducing) = made;
  else
    *LS_APPEND(b->sharded->arena, &b->finishing) = made;
  if (!b->sharded->layout.prefetch) end_finishing(b);
}

/* Whether the unit's gradient leaves, or is reduced beside the steps that follow, as soon as it is
 * made. What two stages share they finish together, at the end. */
static bool finishes_early(const builder *b, int unit) {
  return (b->offload_plan->state[unit] || b->sharded->layout.prefetch) &&
         b->units->items[unit].stages[0] < 0;
}

/* Begun reductions are waited for, and what follows on them begins: without overlap at once, else
 * after the step behind them. `all`: and what has begun so. */
static void end_reducing(builder *b, bool all) {
  const int before = b->reducing.count;
  int ended = 0;
  for (; ended < (all ? b->reducing.count : before); ended++) {
    const ls_action each = b->reducing.items[ended];
    await(b, each);
    if (each.transfer == LS_TRANSFER_FINISH)
      give(b, each.unit);
    else if (finishes_early(b, each.unit) &&
             b->steps.items[b->last_write[each.unit]].microbatch == each.microbatch)
      finish(b, each.unit);
  }
  b->reducing.count -= ended;
  for (int i = 0; i < b->reducing.count; i++) b->reducing.items[i] = b->reducing.items[ended + i];
}

/* What the step at hand has made of the unit's gradient begins to be reduced. */
static void reduce(builder *b, int s, int unit) {
  const step *at = &b->steps.items[s];
  if (!is_reduced_each(b, unit)) {
    if (finishes_early(b, unit) && b->last_write[unit] == s) finish(b, unit);
  } else if (*last_of(b, at, unit) == s) {
    const ls_action made =
        transfer(LS_TRANSFER_REDUCE, LS_PAYLOAD_GRADIENTS, -1, unit, at->microbatch);
    begin(b, made);
    *LS_APPEND(b->sharded->arena, &b->reducing) = made;
  }
  if (!b->sharded->layout.prefetch) end_reducing(b, true);
}

static void add_step(builder *b, int s) {
  const step *at = &b->steps.items[s];
  prepare_weights(b, s);
  add(b, at->kind, at->segment, -1, at->microbatch);
  if (works(b, s)) {
    end_leaving(b);
    end_reducing(b, false);
  }
  const ls_units_used *used = used_by(b, at);
  for (int i = 0; i < used->count; i++) {
    const ls_unit_use *use = &used->items[i];
    const int u = use->unit;
    const bool gathered = is_gathered(b, u) || b->offload_plan->parameters[u];
    if (gathered && !b->units->items[u].gather_per_step && use->reads && !stays(b, s, u))
      add(b, LS_ACTION_DROP, -1, u, at->microbatch);
    if (use->writes) reduce(b, s, u);
  }
  if (at->partner >= 0 && at->kind == LS_ACTION_FORWARD) {
    begin(b, transfer(LS_TRANSFER_RETURN, LS_PAYLOAD_ACTIVATIONS, at->segment, -1, at->microbatch));
    b->offloading = s;
  }
}

/* The boundary between the chunk and the one before or after it, where that is on another stage;
 * -1: none. */
static int boundary(const builder *b, int chunk, bool after) {
  const int other = after ? chunk + 1 : chunk - 1;
  if (other < 0 || other >= b->chunks->count) return -1;
  if (b->chunks->pipeline->stage_of[other] == b->stage) return -1;
  return after ? chunk : other;
}

static ls_action over_boundary(ls_transfer_kind kind, bool back, int boundary, int microbatch) {
  return transfer(kind, back ? LS_PAYLOAD_GRADIENTS : LS_PAYLOAD_ACTIVATIONS, boundary, -1,
                  microbatch);
}

/* A message that this stage has begun to send and whose data it must keep. */
typedef struct sending {
  ls_action made;
  double until;
} sending;

typedef struct sendings {
  sending *items;
  int count, capacity;
} sendings;

/* In the order of unit times every wait is for something earlier: a receive for its send, the end
 * of a send for its receive; and of one moment receives come first. So nothing can deadlock, even
 * if every transfer blocks. */
static void end_sendings(builder *b, sendings *open, double now, bool all) {
  int left = 0;
  for (int i = 0; i < open->count; i++) {
    const sending *each = &open->items[i];
    if (all || each->until <= now)
      await(b, each->made);
    else
      open->items[left++] = *each;
  }
  open->count = left;
}

static void send(builder *b, sendings *open, const ls_pipeline_pass *pass, int place) {
  const bool back = pass->kind != LS_PASS_FORWARD;
  const int across = boundary(b, pass->chunk, !back);
  if (across < 0 || pass->kind == LS_PASS_WEIGHT) return;
  const ls_action made = over_boundary(LS_TRANSFER_SEND, back, across, pass->microbatch);
  begin(b, made);
  *LS_APPEND(b->sharded->arena, open) = (sending){made, b->taken[place]};
}

static bool same_message(const message *a, const message *b) {
  return a->boundary == b->boundary && a->microbatch == b->microbatch && a->back == b->back;
}

/* What a pass sends to another stage; false: nothing. */
static bool sent_by(const ls_pipeline *pipeline, const ls_pipeline_pass *pass, message *made,
                    int *to) {
  const bool back = pass->kind != LS_PASS_FORWARD;
  const int other = back ? pass->chunk - 1 : pass->chunk + 1;
  if (pass->kind == LS_PASS_WEIGHT || other < 0 || other >= pipeline->stages * pipeline->chunks ||
      pipeline->stage_of[other] == pipeline->stage_of[pass->chunk])
    return false;
  *made = (message){back ? other : pass->chunk, pass->microbatch, back};
  *to = pipeline->stage_of[other];
  return true;
}

/* By stage: whether one of its chunks is next to one of this stage. */
static const bool *find_senders(const builder *b) {
  const ls_pipeline *pipeline = b->chunks->pipeline;
  bool *senders = LS_NEW_ARRAY(b->sharded->arena, bool, pipeline->stages + 1);
  for (int c = 0; c + 1 < b->chunks->count; c++) {
    const int first = pipeline->stage_of[c], second = pipeline->stage_of[c + 1];
    if (first == b->stage) senders[second] = true;
    if (second == b->stage) senders[first] = true;
  }
  return senders;
}

static void find_inboxes(builder *b) {
  const ls_pipeline *pipeline = b->chunks->pipeline;
  const bool *senders = find_senders(b);
  b->inboxes = LS_NEW_ARRAY(b->sharded->arena, inbox, pipeline->stages);
  for (int s = 0; s < pipeline->stages; s++)
    for (int i = 0; i < pipeline->lists[s].count && senders[s]; i++) {
      message sent;
      int to;
      if (sent_by(pipeline, &pipeline->lists[s].items[i], &sent, &to) && to == b->stage)
        *LS_APPEND(b->sharded->arena, &b->inboxes[s].messages) = sent;
    }
}

/* When the pass begins that takes what a pass of this stage sends. */
static double needed_at(const builder *b, int chunk, bool back, int microbatch) {
  const ls_pipeline *pipeline = b->chunks->pipeline;
  const int stage = pipeline->stage_of[chunk];
  const int64_t pair = (int64_t)chunk * pipeline->microbatches + microbatch;
  const int place = back ? b->chunks->back_place[pair] : b->chunks->forward_place[pair];
  return b->chunks->times->spans[stage][place].start;
}

/* A message is taken when it is needed, or with a later one that is needed before it. */
static void find_taken(builder *b) {
  const ls_pipeline *pipeline = b->chunks->pipeline;
  const ls_pipeline_list *list = &pipeline->lists[b->stage];
  b->taken = LS_NEW_ARRAY(b->sharded->arena, double, list->count + 1);
  double *earliest = LS_NEW_ARRAY(b->sharded->arena, double, pipeline->stages);
  for (int s = 0; s < pipeline->stages; s++) earliest[s] = DBL_MAX;
  for (int i = list->count - 1; i >= 0; i--) {
    message sent;
    int to;
    if (!sent_by(pipeline, &list->items[i], &sent, &to)) continue;
    const double needed =
        needed_at(b, sent.back ? sent.boundary : sent.boundary + 1, sent.back, sent.microbatch);
    if (needed < earliest[to]) earliest[to] = needed;
    b->taken[i] = earliest[to];
  }
}

/* Begins to receive what the pass takes, or `takes` it. Messages are taken in the order in which
 * they were sent: those before the one that is needed are there by then. */
static void receive(builder *b, int place, bool takes) {
  const ls_pipeline *pipeline = b->chunks->pipeline;
  const ls_pipeline_pass *pass = &pipeline->lists[b->stage].items[place];
  const bool back = pass->kind != LS_PASS_FORWARD;
  const int across = boundary(b, pass->chunk, back);
  if (across < 0 || pass->kind == LS_PASS_WEIGHT) return;
  const message needed = {across, pass->microbatch, back};
  inbox *in = &b->inboxes[pipeline->stage_of[back ? across + 1 : across]];
  int end = in->taken;
  while (end < in->messages.count && !same_message(&in->messages.items[end], &needed)) end++;
  if (end++ == in->messages.count) return; /* taken with another */
  for (int m = takes ? in->taken : in->begun; m < end; m++) {
    const message *each = &in->messages.items[m];
    const ls_action made =
        over_boundary(LS_TRANSFER_RECEIVE, each->back, each->boundary, each->microbatch);
    if (m == in->begun) {
      in->begun++;
      begin(b, made);
    }
    if (takes) await(b, made);
  }
  if (takes) in->taken = end;
}

/* Before the steps of a pass: what it takes, and the ends of earlier sends. With overlap a message
 * is under way beside the pass ahead of its receive's end, and beside the one behind its send's
 * beginning. */
static void begin_pass(builder *b, sendings *open, int place) {
  const ls_pipeline_list *list = &b->chunks->pipeline->lists[b->stage];
  const int beside = b->sharded->layout.prefetch > 0;
  receive(b, place, true);
  if (beside && place + 1 < list->count && same_side(b, place, place + 1))
    receive(b, place + 1, false);
  if (place >= beside)
    end_sendings(b, open, b->chunks->times->spans[b->stage][place - beside].start, false);
}

/* What the last pass before the replay boundary sends is taken behind it. */
static bool waits_for_cut(const builder *b, int place) {
  return b->prologue && place == b->prologue[b->stage] - 1 &&
         !ls_replay_boundary_sends(b->chunks->pipeline, b->prologue, b->stage, place);
}

static void add_counts(builder *b) {
  for (int m = 0; m < b->sharded->layout.microbatches; m++) add(b, LS_ACTION_COUNT, -1, -1, m);
  add(b, LS_ACTION_TOTAL, -1, -1, -1);
}

/* Nothing is under way across the replay boundary. The counts are read by what comes behind it
 * alone. */
static void add_replay_boundary(builder *b, sendings *open) {
  const int place = b->prologue[b->stage] - 1;
  end_sendings(b, open, 0, true);
  end_reducing(b, true);
  b->schedule->replay_boundary = b->schedule->count;
  if (place >= 0 && waits_for_cut(b, place))
    send(b, open, &b->chunks->pipeline->lists[b->stage].items[place], place);
  add_counts(b);
}

static void add_passes(builder *b) {
  const ls_pipeline_list *list = &b->chunks->pipeline->lists[b->stage];
  sendings open = {0};
  for (int s = 0, place = -1; s < b->steps.count; s++) {
    const step *at = &b->steps.items[s];
    const bool begins = at->place != place;
    if (b->prologue && begins && at->place == b->prologue[b->stage]) add_replay_boundary(b, &open);
    look_ahead(b, s);
    if (begins) begin_pass(b, &open, at->place);
    place = at->place;
    add_step(b, s);
    /* The gradients of inputs leave before those of weights are made. */
    const step *next = s + 1 < b->steps.count ? at + 1 : NULL;
    const bool ends = !next || next->place != place || next->kind == LS_ACTION_WEIGHT;
    if (ends && at->kind != LS_ACTION_WEIGHT && !waits_for_cut(b, place))
      send(b, &open, &list->items[place], place);
  }
  end_sendings(b, &open, 0, true);
  end_leaving(b);
  end_reducing(b, true);
}

/* Fewer steps from a forward step to the way back through its segment leave the device's memory
 * free for none of them: of those that something can run beside, the first is one of leaving, the
 * last one of coming back. */
enum { FEWEST_STEPS_AWAY = 4 };

static void find_partners(builder *b) {
  const int microbatches = b->chunks->pipeline->microbatches;
  const int segments = b->sharded->graph->segments.count;
  int *row = LS_NEW_ARRAY(b->sharded->arena, int, segments + 1); /* 1 + those of segments here */
  int rows = 0;
  for (int s = 0; s < b->steps.count && b->offload_plan->activations; s++)
    if (!row[b->steps.items[s].segment]) row[b->steps.items[s].segment] = ++rows;
  int *next = LS_NEW_ARRAY(b->sharded->arena, int, (int64_t)rows *microbatches + 1); /* or 0 */
  int *working = LS_NEW_ARRAY(b->sharded->arena, int, b->steps.count + 1); /* from a step on */
  for (int s = b->steps.count - 1; s >= 0 && rows; s--) {
    step *at = &b->steps.items[s];
    working[s] = working[s + 1] + works(b, s);
    int *back = &next[(int64_t)(row[at->segment] - 1) * microbatches + at->microbatch];
    if (at->kind == LS_ACTION_FORWARD && b->offload_plan->moves[at->segment] && *back &&
        working[s] - working[*back] >= FEWEST_STEPS_AWAY) {
      at->partner = *back;
      b->steps.items[*back].partner = s;
    }
    *back = s;
  }
}

static builder open_builder(const ls_sharded *sharded, const ls_units *units,
                            const ls_chunks *chunks, const ls_recompute *recompute,
                            const ls_offload_plan *offload_plan, int stage, ls_schedule *schedule) {
  builder b = {.sharded = sharded,
               .units = units,
               .chunks = chunks,
               .recompute = recompute,
               .offload_plan = offload_plan,
               .stage = stage,
               .returning = -1,
               .offloading = -1,
               .schedule = schedule};
  b.present = ls_schedule_units_present(sharded, units, chunks, stage);
  b.trained = LS_NEW_ARRAY(sharded->arena, bool, units->count + 1);
  for (int u = 0; u < units->count; u++) b.trained[u] = b.present[u] && !units->items[u].frozen;
  b.kept = LS_NEW_ARRAY(sharded->arena, bool, units->count + 1);
  b.finished = LS_NEW_ARRAY(sharded->arena, bool, units->count + 1);
  b.fetching = LS_NEW_ARRAY(sharded->arena, int, units->count + 1);
  b.gathering = LS_NEW_ARRAY(sharded->arena, int, units->count + 1);
  for (int u = 0; u < units->count; u++) b.fetching[u] = b.gathering[u] = -1;
  find_steps(&b);
  find_last_writes(&b);
  find_partners(&b);
  find_inboxes(&b);
  find_taken(&b);
  return b;
}

ls_schedule ls_schedule_step(const ls_sharded *sharded, const ls_units *units,
                             const ls_chunks *chunks, const ls_recompute *recompute,
                             const ls_offload_plan *offload_plan, int stage) {
  ls_schedule schedule = {.replay_boundary = -1};
  builder b = open_builder(sharded, units, chunks, recompute, offload_plan, stage, &schedule);
  const bool validates = sharded->layout.post_validation;
  if (validates) b.prologue = ls_replay_boundary_passes(sharded->arena, chunks->pipeline);
  ls_schedule_point(sharded, units, b.present, b.trained, offload_plan, &schedule);
  if (!validates) add_counts(&b);
  add_passes(&b);
  for (int u = 0; u < units->count; u++) {
    if (b.trained[u] && !b.finished[u]) finish(&b, u);
    if (!sharded->layout.prefetch) end_reducing(&b, true);
  }
  end_reducing(&b, true);
  end_finishing(&b);
  end_leaving(&b);
  if (ls_offload_plan_files(offload_plan, units))
    ls_offload_norm(sharded, units, b.trained, stage, offload_plan, &schedule);
  add(&b, LS_ACTION_NORM, -1, -1, -1);
  if (validates) {
    ls_schedule_speculate(sharded, units, b.trained, offload_plan, &schedule);
    add(&b, LS_ACTION_VALIDATE, -1, -1, -1);
  }
  ls_offload_update(sharded, units, b.trained, offload_plan, &schedule);
  return schedule;
}

ls_schedule ls_schedule_forward(const ls_sharded *sharded, const ls_units *units,
                                const ls_chunks *chunks, const ls_offload_plan *offload_plan,
                                int stage) {
  ls_schedule schedule = {.replay_boundary = -1};
  builder b = open_builder(sharded, units, chunks, NULL, offload_plan, stage, &schedule);
  const bool loss = sharded->graph->loss.index >= 0;
  ls_schedule_point(sharded, units, b.present, b.trained, offload_plan, &schedule);
  if (loss) {
    add(&b, LS_ACTION_COUNT, -1, -1, 0);
    add(&b, LS_ACTION_TOTAL, -1, -1, -1);
  }
  add_passes(&b);
  if (loss) add(&b, LS_ACTION_LOSS, -1, -1, -1);
  return schedule;
}
