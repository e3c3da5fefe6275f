/* Queues of transfers, as the engine declares them: of collectives, in which each waits for the
 * last of its members, and of messages; moves have one for each link of the tiers. What shares
 * memory with a transfer of another queue comes after it, by the program's events. Where a message
 * holds its queue, both of its sides must have come to their turn. Where it does not, it lies ready
 * once it is sent, and is carried by who waits for it (comm/messages.c). */
#include "sim/world.h"

static const ls_queues *queues_of(const ls_sim_world *w) {
  return w->performance->queues ? w->performance->queues : &ls_queues_nccl;
}

int ls_sim_queue_count(const ls_sim_world *w) {
  return LS_QUEUE_OF_MESSAGES + 2 * w->stages + (queues_of(w)->groups_apart << w->mesh->count);
}

static int queue_of_message(const ls_sim_world *w, int peer, bool sends) {
  const ls_queues *queues = queues_of(w);
  if (!queues->holds || queues->sharing == LS_QUEUE_A_PEER_AND_DIRECTION)
    return LS_QUEUE_OF_MESSAGES + 2 * peer + sends;
  return LS_QUEUE_OF_MESSAGES + (queues->sharing == LS_QUEUE_A_PEER ? 2 * peer : 0);
}

static int queue_of_group(const ls_sim_world *w, const ls_instruction *instruction) {
  if (!queues_of(w)->groups_apart) return LS_QUEUE_OF_GROUPS;
  return LS_QUEUE_OF_MESSAGES + 2 * w->stages + (int)instruction->axes;
}

static int queue_of(const ls_sim_world *w, const ls_sim_transfer *t) {
  const ls_collective kind = t->instruction->collective;
  if (ls_collective_is_message(kind))
    return queue_of_message(w, t->instruction->peer, kind == LS_SEND);
  if (!ls_collective_moves(kind)) return queue_of_group(w, t->instruction);
  return t->time.link == LS_LINK_DRIVE       ? LS_QUEUE_OF_DRIVE
         : t->time.link == LS_LINK_FROM_HOST ? LS_QUEUE_FROM_HOST
                                             : LS_QUEUE_TO_HOST;
}

/* Messages, and collectives of two stages: with the rank at its place there. */
static bool has_peer(const ls_instruction *instruction) {
  return instruction->collective != LS_SUM_NUMBERS && instruction->peer >= 0;
}

static ls_sim_transfer *head_of(const ls_sim_queue *queue) {
  return queue->head < queue->items.count ? queue->items.items[queue->head] : NULL;
}

/* Actors on which this transfer's group has ranks. */
static const ls_sim_family *family_of(const ls_sim_world *w, const ls_sim_transfer *t) {
  ls_sim_actor *at = &w->actors[t->actor];
  const bool all = t->instruction->collective == LS_SUM_NUMBERS;
  const ls_axes axes = all ? ls_mesh_all(w->mesh) : t->instruction->axes;
  for (int f = 0; f < at->families.count; f++)
    if (at->families.items[f].axes == axes) return &at->families.items[f];
  ls_sim_family made = {.axes = axes, .actors = LS_NEW_ARRAY(w->arena, int, w->classes.count)};
  bool *there = LS_NEW_ARRAY(w->arena, bool, w->classes.count);
  const ls_axis_order order = ls_mesh_order(axes);
  for (int m = 0; m < ls_mesh_size(w->mesh, axes) && !all; m++)
    there[w->classes.of_rank[ls_mesh_member(w->mesh, at->rank, order, m)]] = true;
  for (int a = 0; a < w->classes.count; a++)
    if (there[a] || all) made.actors[made.count++] = a;
  ls_sim_family *kept = LS_APPEND(w->arena, &at->families);
  *kept = made;
  return kept;
}

/* What another actor has at the head of the queue in which it runs with this transfer, if it is its
 * turn there; NULL: not yet. */
static ls_sim_transfer *side_of(const ls_sim_world *w, const ls_sim_transfer *t, int actor) {
  const ls_sim_actor *there = &w->actors[actor];
  const ls_instruction *own = t->instruction;
  const bool message = ls_collective_is_message(own->collective);
  const int queue = message
                        ? queue_of_message(w, w->actors[t->actor].stage, own->collective != LS_SEND)
                        : queue_of_group(w, own);
  ls_sim_transfer *head = head_of(&there->queues[queue]);
  if (!head || head->state != LS_QUEUED) return NULL;
  const ls_instruction *its = head->instruction;
  if (has_peer(own)) {
    const bool meets = has_peer(its) && there->peers[its->peer] == t->actor;
    return meets && (its->collective == own->collective) != message ? head : NULL;
  }
  return its->collective == own->collective && its->axes == own->axes ? head : NULL;
}

/* The i-th actor that takes part beside the transfer's own; -1: no more. */
static int party(const ls_sim_world *w, const ls_sim_transfer *t, int i) {
  const ls_sim_actor *at = &w->actors[t->actor];
  if (ls_collective_moves(t->instruction->collective)) return -1;
  if (has_peer(t->instruction)) return i ? -1 : at->peers[t->instruction->peer];
  const ls_sim_family *family = family_of(w, t);
  for (int a = 0; a < family->count; a++) {
    if (family->actors[a] == t->actor) continue;
    if (!i--) return family->actors[a];
  }
  return -1;
}

static bool lies_ready(const ls_sim_world *w, const ls_sim_transfer *t) {
  if (t->needs) return false;
  return queues_of(w)->holds || t->instruction->collective != LS_RECEIVE || t->wanted;
}

/* They run as one: as long as the slowest of them would. */
static void start(ls_sim_world *w, ls_sim_transfer *head) {
  for (ls_sim_transfer *t = head; t; t = t->with) {
    t->state = LS_RUNNING;
    t->start = w->now;
    w->touched[t->actor] = w->turn;
    const double seconds = ls_sim_links_use(w, t);
    if (t->time.latency_s > head->latency) head->latency = t->time.latency_s;
    if (seconds > head->remaining) head->remaining = seconds;
    if (ls_collective_is_message(t->instruction->collective) && !queues_of(w)->holds)
      w->actors[t->actor].queues[t->queue].head++;
  }
  ls_sim_running *made = LS_APPEND(w->arena, &w->running);
  *made = (ls_sim_running){head, w->now + head->latency};
  if (!(head->latency > 0) && head->remaining > 0) ls_sim_rates_go(w, made);
}

void ls_sim_queue_start(ls_sim_world *w, int actor, int queue) {
  ls_sim_transfer *t = head_of(&w->actors[actor].queues[queue]);
  if (!t || t->state != LS_QUEUED || !lies_ready(w, t)) return;
  ls_sim_transfer *last = t;
  for (int i = 0, other; (other = party(w, t, i)) >= 0; i++) {
    ls_sim_transfer *side = side_of(w, t, other);
    if (!side || !lies_ready(w, side)) return;
    last->with = side;
    side->with = NULL;
    last = side;
  }
  start(w, t);
}

/* The event of a transfer: those of its body up to there that run in other queues. */
static void wait_for_others(ls_sim_world *w, ls_sim_transfer *t) {
  const ls_sim_actor *at = &w->actors[t->actor];
  for (int b = at->begun.count - 1; b >= 0; b--) {
    ls_sim_transfer *other = at->begun.items[b];
    if (other->action != t->action) return;
    if (other->index > t->instruction->wait || other->queue == t->queue || other->state == LS_DONE)
      continue;
    *LS_APPEND(w->arena, &other->needed_by) = t;
    t->needs++;
  }
}

void ls_sim_queue_add(ls_sim_world *w, ls_sim_transfer *t) {
  t->queue = queue_of(w, t);
  w->touched[t->actor] = w->turn;
  if (t->instruction->wait >= 0) wait_for_others(w, t);
  *LS_APPEND(w->arena, &w->actors[t->actor].begun) = t;
  ls_sim_queue *queue = &w->actors[t->actor].queues[t->queue];
  if (queue->head == queue->items.count) queue->head = queue->items.count = 0;
  *LS_APPEND(w->arena, &queue->items) = t;
}

void ls_sim_queue_end(ls_sim_world *w, ls_sim_transfer *t) {
  w->touched[t->actor] = w->turn;
  for (int n = 0; n < t->needed_by.count; n++) t->needed_by.items[n]->needs--;
  if (ls_collective_is_message(t->instruction->collective) && !queues_of(w)->holds) return;
  w->actors[t->actor].queues[t->queue].head++;
}

void ls_sim_queue_go_on(ls_sim_world *w, const ls_sim_transfer *ended) {
  ls_sim_queue_start(w, ended->actor, ended->queue);
  for (int n = 0; n < ended->needed_by.count; n++) {
    const ls_sim_transfer *next = ended->needed_by.items[n];
    if (next->state == LS_QUEUED && !next->needs) ls_sim_queue_start(w, next->actor, next->queue);
  }
}

int ls_sim_queue_missing(const ls_sim_world *w, const ls_sim_transfer *t) {
  const ls_sim_transfer *head = head_of(&w->actors[t->actor].queues[t->queue]);
  if (t->state != LS_QUEUED || !head || head->state != LS_QUEUED || head->needs) return -1;
  for (int i = 0, other; (other = party(w, head, i)) >= 0; i++) {
    const ls_sim_transfer *side = side_of(w, head, other);
    if (!side || (!side->needs && !lies_ready(w, side))) return other;
  }
  return -2;
}
