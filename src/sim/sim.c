#include "sim/sim.h"

#include <math.h>
#include <string.h>

#include "sim/events.h"

typedef enum transfer_state { QUEUED = 0, RUNNING, DONE } transfer_state;

/* Queues of a stage: one for collectives of its ranks, one for each link of the tiers, and one for
 * each other stage and direction. */
enum { QUEUE_GROUP = 0, QUEUE_TO_HOST, QUEUE_FROM_HOST, QUEUE_DRIVE, QUEUE_MESSAGES };

typedef struct transfer {
  const ls_instruction *instruction;
  ls_transfer_time time;
  int stage, partner;       /* the other stage; -1: none */
  int queue, action, index; /* of the instruction in its program */
  transfer_state state;
  double latency, remaining; /* seconds, alone on its link */
  double start, end;
  struct transfer *with; /* the other side of a message that runs: it ends with this one */
} transfer;

typedef LS_LIST(transfer *) transfer_list;

/* First in, first out: items from `head` on are in it. */
typedef struct queue {
  transfer_list items;
  int head;
} queue;

typedef struct stage {
  const ls_program *program;
  int rank;
  ls_sim_body *bodies; /* [2 * bodies]: of the first action, of others */
  int action, item;
  double remaining; /* of what is computed; 0: nothing */
  const ls_sim_item *computes;
  const transfer *waits; /* for this; NULL: for nothing */
  double since;          /* it waits, or computes its action */
  queue *queues;
  transfer_list begun; /* and not yet waited for */
  double speed;
} stage;

typedef struct world {
  ls_arena *arena;
  const ls_performance *performance;
  const ls_sim_options *options;
  ls_simulation *made;
  stage *stages;
  int count;
  transfer_list running;
  transfer **numbers; /* [count] sums over all stages that wait for the others */
  int stage_ranks;
  double now;
  double *speeds, *rates; /* of stages, of what runs, during a step */
  int rate_room;
} world;

static int queue_of(const world *w, const ls_instruction *instruction, ls_link_kind link) {
  switch (instruction->collective) {
    case LS_SEND: return QUEUE_MESSAGES + instruction->peer;
    case LS_RECEIVE: return QUEUE_MESSAGES + w->count + instruction->peer;
    case LS_MOVE:
      return link == LS_LINK_DRIVE       ? QUEUE_DRIVE
             : link == LS_LINK_FROM_HOST ? QUEUE_FROM_HOST
                                         : QUEUE_TO_HOST;
    default: return QUEUE_GROUP;
  }
}

static ls_sim_cause *cause_of(world *w, int s, const ls_instruction *instruction) {
  ls_sim_stage *at = &w->made->stage[s];
  const ls_collective kind = instruction->collective;
  const ls_axes axes = ls_collective_is_of_group(kind) ? instruction->axes : 0;
  for (int c = 0; c < at->causes.count; c++)
    if (at->causes.items[c].collective == kind && at->causes.items[c].axes == axes)
      return &at->causes.items[c];
  ls_sim_cause *made = LS_APPEND(w->arena, &at->causes);
  made->collective = kind;
  made->axes = axes;
  return made;
}

static void keep(world *w, int s, int action, int instruction, double begin, double end) {
  if (w->options->records)
    *LS_APPEND(w->arena, &w->made->stage[s].records) = (ls_record){.action = action,
                                                                   .instruction = instruction,
                                                                   .begin_ns = llround(begin * 1e9),
                                                                   .end_ns = llround(end * 1e9)};
}

static transfer *head_of(const queue *q) {
  return q->head < q->items.count ? q->items.items[q->head] : NULL;
}

static void start(world *w, transfer *t, transfer *with) {
  t->state = RUNNING;
  t->start = w->now;
  t->latency = t->time.latency_s;
  const double factor = w->options->link_of[t->time.link];
  t->remaining = t->time.seconds / (factor > 0 ? factor : 1);
  t->with = with;
  if (with) with->state = RUNNING, with->start = w->now;
  *LS_APPEND(w->arena, &w->running) = t;
}

/* The transfer on another stage that runs with this one, where it is its turn there too. */
static transfer *other_side(world *w, const transfer *t) {
  stage *there = &w->stages[t->partner];
  const ls_collective kind = t->instruction->collective;
  const int q = kind == LS_SEND      ? QUEUE_MESSAGES + w->count + t->stage
                : kind == LS_RECEIVE ? QUEUE_MESSAGES + t->stage
                                     : QUEUE_GROUP;
  transfer *head = head_of(&there->queues[q]);
  const bool meets = head && head->state == QUEUED && head->partner == t->stage;
  return meets ? head : NULL;
}

/* A sum over all ranks runs when every stage has begun it. */
static void join_numbers(world *w, transfer *t) {
  w->numbers[t->stage] = t;
  for (int s = 0; s < w->count; s++)
    if (!w->numbers[s]) return;
  for (int s = 0; s < w->count; s++) {
    start(w, w->numbers[s], NULL);
    w->numbers[s] = NULL;
  }
}

static void try_start(world *w, int s, int q) {
  transfer *t = head_of(&w->stages[s].queues[q]);
  if (!t || t->state != QUEUED) return;
  if (t->instruction->collective == LS_SUM_NUMBERS && w->count > 1) {
    if (w->numbers[s] != t) join_numbers(w, t);
    return;
  }
  if (t->partner < 0) {
    start(w, t, NULL);
    return;
  }
  transfer *other = other_side(w, t);
  if (!other) return;
  const bool sends = t->instruction->collective == LS_SEND;
  start(w, sends ? t : other, sends ? other : t);
}

static void end_one(world *w, transfer *t) {
  t->state = DONE;
  t->end = w->now;
  stage *at = &w->stages[t->stage];
  at->queues[t->queue].head++;
  ls_sim_cause *cause = cause_of(w, t->stage, t->instruction);
  cause->seconds += t->end - t->start;
  keep(w, t->stage, t->action, t->index, t->start, t->end);
}

static void end_transfer(world *w, int at) {
  transfer *t = w->running.items[at], *with = t->with;
  w->running.items[at] = w->running.items[--w->running.count];
  end_one(w, t);
  if (with) end_one(w, with);
  try_start(w, t->stage, t->queue);
  if (with) try_start(w, with->stage, with->queue);
}

static transfer *begin(world *w, int s, const ls_sim_item *item) {
  stage *at = &w->stages[s];
  transfer *t = LS_NEW(w->arena, transfer);
  const ls_instruction *instruction = item->instruction;
  *t = (transfer){.instruction = instruction,
                  .time = item->time,
                  .stage = s,
                  .partner = ls_collective_moves(instruction->collective) ? -1 : instruction->peer,
                  .queue = queue_of(w, instruction, item->time.link),
                  .action = at->action,
                  .index = item->index};
  if (w->options->seconds_of) t->time.latency_s = t->time.seconds = 0;
  cause_of(w, s, instruction)->bytes +=
      ls_instruction_work(at->program, at->rank, instruction, true).sent;
  *LS_APPEND(w->arena, &at->begun) = t;
  *LS_APPEND(w->arena, &at->queues[t->queue].items) = t;
  try_start(w, s, t->queue);
  return t;
}

/* The oldest transfer of these operands that is begun and not waited for. */
static transfer *take_begun(stage *at, const ls_instruction *end) {
  for (int b = 0; b < at->begun.count; b++) {
    transfer *t = at->begun.items[b];
    const ls_instruction *i = t->instruction;
    if (i->collective != end->collective || i->peer != end->peer ||
        memcmp(i->in, end->in, sizeof(int) * (size_t)end->inputs) != 0 ||
        memcmp(i->out, end->out, sizeof(int) * (size_t)end->outputs) != 0)
      continue;
    memmove(&at->begun.items[b], &at->begun.items[b + 1],
            sizeof(transfer *) * (size_t)(at->begun.count - b - 1));
    at->begun.count--;
    return t;
  }
  return NULL;
}

static const ls_sim_body *body_of(world *w, stage *at, const ls_program_action *action) {
  ls_sim_body *body = &at->bodies[2 * action->body + action->first];
  if (!body->made)
    ls_sim_body_make(w->arena, w->performance, at->program, at->rank, action->body, action->first,
                     body);
  return body;
}

/* What an item computes for: of an action whose seconds are given, its first item all of them. */
static double seconds_of(const world *w, const stage *at, const ls_sim_body *body,
                         const ls_sim_item *item) {
  if (!w->options->seconds_of) return item->seconds;
  for (const ls_sim_item *before = body->items.items; before < item; before++)
    if (before->kind == LS_SIM_COMPUTE) return 0;
  return w->options->seconds_of(w->options->context, at->program,
                                &at->program->actions.items[at->action]);
}

static void take_item(world *w, int s, const ls_sim_body *body, const ls_sim_item *item) {
  stage *at = &w->stages[s];
  at->since = w->now;
  if (item->kind == LS_SIM_COMPUTE) {
    at->computes = item;
    at->remaining = seconds_of(w, at, body, item);
    return;
  }
  const transfer *t =
      item->kind == LS_SIM_BEGIN ? begin(w, s, item) : take_begun(at, item->instruction);
  const bool waits =
      item->kind == LS_SIM_WAIT ||
      (w->performance->waits && ls_collective_is_of_group(item->instruction->collective));
  at->waits = waits && t && t->state != DONE ? t : NULL;
}

/* Goes on with a stage as far as it comes without time passing. */
static void go_on(world *w, int s) {
  stage *at = &w->stages[s];
  while (!(at->remaining > 0) && !at->waits && at->action < at->program->actions.count) {
    const ls_program_action *action = &at->program->actions.items[at->action];
    const ls_sim_body *body = body_of(w, at, action);
    if (at->item < body->items.count) {
      take_item(w, s, body, &body->items.items[at->item++]);
      continue;
    }
    at->action++;
    at->item = 0;
    w->made->stage[s].end = w->now;
  }
}

/* How fast a transfer goes: links are shared evenly by those on them. */
static double rate_of(const world *w, const transfer *t) {
  int here = 0, there = 0;
  for (int r = 0; r < w->running.count; r++) {
    const transfer *other = w->running.items[r];
    if (other->time.link != t->time.link || other->latency > 0) continue;
    const int far = other->with ? other->with->stage : -1, mine = t->with ? t->with->stage : -1;
    here += other->stage == t->stage || far == t->stage;
    there += mine >= 0 && (other->stage == mine || far == mine);
  }
  const int most = here > there ? here : there;
  return most > 1 ? 1.0 / most : 1;
}

/* How fast a stage computes: what transfers take beside it, and where cores are fewer than those
 * that compute, its part of them. */
static double speed_of(const world *w, int s) {
  const ls_performance *on = w->performance;
  double speed = w->stages[s].speed;
  if (on->cores) {
    int computing = 0;
    for (int o = 0; o < w->count; o++) computing += w->stages[o].remaining > 0;
    const double wanted = (double)computing * w->stage_ranks * on->threads;
    if (wanted > on->cores) speed *= on->cores / wanted;
  }
  for (int r = 0; r < w->running.count; r++) {
    const transfer *t = w->running.items[r];
    const bool here = t->stage == s || (t->with && t->with->stage == s);
    if (here && t->time.link <= LS_LINK_NETWORK && t->latency <= 0)
      return speed * (1 - on->interference);
  }
  return speed;
}

/* Seconds until something ends; infinite: nothing is under way. */
static double next_end(const world *w) {
  double step = INFINITY;
  for (int s = 0; s < w->count; s++)
    if (w->stages[s].remaining > 0) step = fmin(step, w->stages[s].remaining / speed_of(w, s));
  for (int r = 0; r < w->running.count; r++) {
    const transfer *t = w->running.items[r];
    step = fmin(step, t->latency > 0 ? t->latency : t->remaining / rate_of(w, t));
  }
  return step;
}

/* What is left of something after a step; 0 where rounding left next to nothing. */
static double less(double remaining, double step, double whole) {
  const double left = remaining - step;
  return left > whole * 1e-12 ? left : 0;
}

/* What a stage has computed since `since`: each instruction its part of it. */
static void account(world *w, int s) {
  stage *at = &w->stages[s];
  const ls_sim_item *item = at->computes;
  const ls_action_kind kind = at->program->actions.items[at->action].action.kind;
  const double spent = w->now - at->since;
  w->made->stage[s].compute += spent;
  w->made->stage[s].by_kind[kind] += spent;
  double begin = at->since;
  for (int i = 0; w->options->records && i < item->count; i++) {
    const double end = begin + spent * item->each[i] / item->sum;
    keep(w, s, at->action, item->index + i, begin, end);
    begin = end;
  }
}

/* Lets a step pass, and ends what then is done. */
static void pass(world *w, double step) {
  double *rates = w->rates;
  for (int s = 0; s < w->count; s++) w->speeds[s] = speed_of(w, s);
  if (w->running.count > w->rate_room) {
    w->rate_room = 2 * w->running.count;
    w->rates = rates = LS_NEW_ARRAY(w->arena, double, w->rate_room);
  }
  for (int r = 0; r < w->running.count; r++) rates[r] = rate_of(w, w->running.items[r]);
  w->now += step;
  w->made->events++;
  for (int s = 0; s < w->count; s++) {
    stage *at = &w->stages[s];
    if (!(at->remaining > 0)) continue;
    at->remaining = less(at->remaining, step * w->speeds[s], w->now);
    if (!(at->remaining > 0)) account(w, s);
  }
  for (int r = 0; r < w->running.count; r++) {
    transfer *t = w->running.items[r];
    if (t->latency > 0)
      t->latency = less(t->latency, step, w->now);
    else
      t->remaining = less(t->remaining, step * rates[r], w->now);
  }
  for (int r = w->running.count - 1; r >= 0; r--) {
    const transfer *t = w->running.items[r];
    if (!(t->latency > 0) && !(t->remaining > 0)) end_transfer(w, r);
  }
  for (int s = 0; s < w->count; s++) {
    stage *at = &w->stages[s];
    if (!at->waits || at->waits->state != DONE) continue;
    cause_of(w, s, at->waits->instruction)->exposed += w->now - at->since;
    at->waits = NULL;
  }
}

static void open_stage(world *w, int s, const ls_program *program) {
  stage *at = &w->stages[s];
  *at = (stage){.program = program,
                .rank = s * w->stage_ranks,
                .bodies = LS_NEW_ARRAY(w->arena, ls_sim_body, 2 * program->bodies.count),
                .queues = LS_NEW_ARRAY(w->arena, queue, QUEUE_MESSAGES + 2 * w->count),
                .speed = w->options->speed_of ? w->options->speed_of[s] : 1};
}

/* What a stage is stuck at, as an error says it. */
static ls_status fail_stuck(const world *w, ls_error *error) {
  for (int s = 0; s < w->count; s++) {
    const stage *at = &w->stages[s];
    if (at->action < at->program->actions.count)
      return ls_fail(error, LS_FAILED,
                     "stage %d waits for ever in its %s (action %d of %d); lockstep check proves "
                     "the program",
                     s, ls_action_name(&at->program->actions.items[at->action].action), at->action,
                     at->program->actions.count);
  }
  return LS_OK;
}

ls_status ls_simulate(ls_arena *arena, const ls_program *const *programs,
                      const ls_performance *performance, const ls_sim_options *options,
                      ls_simulation **simulation, ls_error *error) {
  static const ls_sim_options none;
  const int count = ls_mesh_stages(&programs[0]->mesh);
  world w = {.arena = arena,
             .performance = performance,
             .options = options ? options : &none,
             .made = LS_NEW(arena, ls_simulation),
             .stages = LS_NEW_ARRAY(arena, stage, count),
             .speeds = LS_NEW_ARRAY(arena, double, count),
             .numbers = LS_NEW_ARRAY(arena, transfer *, count),
             .stage_ranks = ls_mesh_stage_ranks(&programs[0]->mesh),
             .count = count};
  w.made->stages = count;
  w.made->stage = LS_NEW_ARRAY(arena, ls_sim_stage, count);
  for (int s = 0; s < count; s++) open_stage(&w, s, programs[s]);
  for (;;) {
    for (int s = 0; s < count; s++) go_on(&w, s);
    const double step = next_end(&w);
    if (isinf(step)) break;
    pass(&w, step);
  }
  w.made->seconds = w.now;
  *simulation = w.made;
  return fail_stuck(&w, error);
}

ls_recording *ls_simulation_recording(ls_arena *arena, const ls_simulation *simulation,
                                      const ls_mesh *mesh) {
  ls_recording *made = LS_NEW(arena, ls_recording);
  made->ranks = ls_mesh_ranks(mesh);
  made->by_rank = LS_NEW_ARRAY(arena, ls_recording_rank, made->ranks);
  for (int r = 0; r < made->ranks; r++) {
    const ls_sim_stage *of = &simulation->stage[ls_mesh_stage(mesh, r)];
    made->by_rank[r] = (ls_recording_rank){of->records.items, of->records.count};
  }
  return made;
}
