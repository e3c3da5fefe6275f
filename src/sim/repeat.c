/* What comes again: in the middle of a step all actors do the same with later microbatches, and
 * once the state of everything is what it was so many microbatches before, it is so again and
 * again. A step of few microbatches then tells that of many: the period is put in as often as it is
 * asked for, by moving all that is to come so much later. */
#include <math.h>
#include <string.h>

#include "sim/world.h"

/* So far, in parts of a period, times may be apart: rounding. */
#define APART 1e-10

/* Where an actor's actions come again `count` actions later, with later microbatches. */
typedef struct rhythm {
  int first, end, count;
} rhythm;

/* What an actor has spent. */
typedef struct sums {
  double compute, by_kind[LS_ACTION_COUNT_OF_KINDS];
  ls_sim_cause *causes;
  int cause_count;
} sums;

/* All that what comes depends on, and what of it is not yet put down: times as they are from now on
 * or were until now, and numbers. */
typedef struct moment {
  double now;
  int64_t events;
  int *action; /* [actors] */
  sums *spent; /* likewise */
  LS_LIST(double) times;
  LS_LIST(int64_t) numbers;
} moment;

struct ls_sim_rhythms {
  rhythm *of; /* [actors] */
  int next;   /* action of the first actor from which on the next period is */
  moment *last;
};

static bool comes_again(const ls_program *program, int one, int other, int later) {
  const ls_program_action *a = &program->actions.items[one], *b = &program->actions.items[other];
  return a->body == b->body && a->first == b->first && a->action.microbatch >= 0 &&
         a->action.kind == b->action.kind && a->action.transfer == b->action.transfer &&
         a->action.payload == b->action.payload && a->action.segment == b->action.segment &&
         a->action.unit == b->action.unit && a->action.microbatch + later == b->action.microbatch;
}

/* Around the middle of a program; false: there is none. */
static bool find_rhythm(const ls_program *program, int period, rhythm *made) {
  const int actions = program->actions.count, middle = actions / 2;
  int next = middle + 1;
  while (next < actions && !comes_again(program, middle, next, period)) next++;
  if (next == actions) return false;
  *made = (rhythm){middle, middle, next - middle};
  while (made->first > 0 &&
         comes_again(program, made->first - 1, made->first - 1 + made->count, period))
    made->first--;
  while (made->end + made->count < actions &&
         comes_again(program, made->end, made->end + made->count, period))
    made->end++;
  made->end += made->count;
  return true;
}

ls_sim_rhythms *ls_sim_repeat_find(ls_sim_world *w) {
  ls_sim_rhythms *made = LS_NEW(w->arena, ls_sim_rhythms);
  made->of = LS_NEW_ARRAY(w->arena, rhythm, w->classes.count);
  for (int a = 0; a < w->classes.count; a++)
    if (!find_rhythm(w->actors[a].program, w->options->repeat.period, &made->of[a])) return NULL;
  made->next = made->of[0].first;
  return made;
}

typedef struct writer {
  const ls_sim_world *world;
  moment *made;
  int periods; /* since the first */
} writer;

static void add_number(writer *to, int64_t number) {
  *LS_APPEND(to->world->arena, &to->made->numbers) = number;
}

static void add_time(writer *to, double seconds) {
  *LS_APPEND(to->world->arena, &to->made->times) = isinf(seconds) ? -1 : seconds;
}

static int relative(const writer *to, int actor, int action) {
  return action - to->periods * to->world->rhythms->of[actor].count;
}

static void add_transfer(writer *to, const ls_sim_transfer *t) {
  add_number(to, relative(to, t->actor, t->action));
  add_number(to, t->index);
  add_number(to, t->needs);
  add_number(to, 4 * t->state + 2 * t->wanted + (t->with != NULL));
  if (t->state != LS_RUNNING) return;
  add_time(to, t->latency);
  add_time(to, t->remaining);
  add_time(to, t->rate);
  add_time(to, to->made->now - t->start);
  if (t->rate > 0) add_time(to, to->made->now - t->paced);
}

static void add_actor(writer *to, int a) {
  const ls_sim_world *w = to->world;
  const ls_sim_actor *at = &w->actors[a];
  add_number(to, relative(to, a, at->action));
  add_number(to, at->item);
  add_number(to, 4 * w->ready[a] + 2 * (w->touched[a] == w->turn) + (w->waits[a] != NULL));
  add_number(to, w->missing[a]);
  add_number(to, at->accused ? 1 + at->late : -1);
  add_time(to, w->computed[a] - to->made->now);
  if (!isinf(w->computed[a])) add_time(to, at->rate);
  if (!isinf(w->computed[a])) add_time(to, to->made->now - at->since);
  if (at->accused) add_time(to, to->made->now - at->accused_since);
  add_time(to, at->taken);
  if (w->performance->cores) add_time(to, at->unsynced);
  for (int k = 0; k < LS_LINK_KINDS; k++) add_number(to, at->beside[k]);
  for (int q = 0; q < ls_sim_queue_count(w); q++) {
    const ls_sim_queue *queue = &at->queues[q];
    add_number(to, queue->items.count - queue->head);
    for (int i = queue->head; i < queue->items.count; i++) add_transfer(to, queue->items.items[i]);
  }
  add_number(to, at->begun.count);
  for (int b = 0; b < at->begun.count; b++) {
    add_transfer(to, at->begun.items[b]);
    add_number(to, at->begun.items[b] == w->waits[a]);
  }
}

static moment *note(ls_sim_world *w, int periods) {
  moment *made = LS_NEW(w->arena, moment);
  writer to = {w, made, periods};
  made->now = w->now;
  made->events = w->made->events;
  made->action = LS_NEW_ARRAY(w->arena, int, w->classes.count);
  made->spent = LS_NEW_ARRAY(w->arena, sums, w->classes.count);
  for (int a = 0; a < w->classes.count; a++) {
    const ls_sim_stage *at = &w->made->stage[a];
    sums *spent = &made->spent[a];
    add_actor(&to, a);
    made->action[a] = w->actors[a].action;
    spent->compute = at->compute;
    memcpy(spent->by_kind, at->by_kind, sizeof spent->by_kind);
    spent->cause_count = at->causes.count;
    spent->causes = LS_NEW_ARRAY(w->arena, ls_sim_cause, at->causes.count + 1);
    for (int c = 0; c < at->causes.count; c++) spent->causes[c] = at->causes.items[c];
  }
  add_number(&to, w->blames);
  for (int r = 0; r < w->running.count; r++) {
    add_transfer(&to, w->running.items[r].head);
    add_time(&to, w->running.items[r].end - w->now);
  }
  return made;
}

/* Whether all actors are in their rhythm since the moment before, and all is as it was then. */
static bool is_again(const ls_sim_world *w, const moment *before, const moment *now) {
  const double apart = APART * (now->now - before->now);
  for (int a = 0; a < w->classes.count; a++) {
    const rhythm *of = &w->rhythms->of[a];
    if (before->action[a] < of->first || now->action[a] > of->end) return false;
  }
  if (before->numbers.count != now->numbers.count || before->times.count != now->times.count ||
      memcmp(before->numbers.items, now->numbers.items,
             sizeof(int64_t) * (size_t)now->numbers.count) != 0)
    return false;
  for (int t = 0; t < now->times.count; t++)
    if (fabs(before->times.items[t] - now->times.items[t]) > apart) return false;
  return true;
}

static void spend(ls_sim_stage *at, const sums *before, double times) {
  at->compute += times * (at->compute - before->compute);
  for (int k = 0; k < LS_ACTION_COUNT_OF_KINDS; k++)
    at->by_kind[k] += times * (at->by_kind[k] - before->by_kind[k]);
  for (int c = 0; c < at->causes.count; c++) {
    static const ls_sim_cause none;
    ls_sim_cause *each = &at->causes.items[c];
    const ls_sim_cause *was = c < before->cause_count ? &before->causes[c] : &none;
    each->exposed += times * (each->exposed - was->exposed);
    each->seconds += times * (each->seconds - was->seconds);
    each->bytes += times * (each->bytes - was->bytes);
  }
}

/* All that is to come comes so much later. */
static void delay(ls_sim_world *w, double seconds) {
  w->now += seconds;
  for (int a = 0; a < w->classes.count; a++) {
    w->computed[a] += seconds;
    w->actors[a].paced += seconds;
    w->actors[a].since += seconds;
    w->actors[a].accused_since += seconds;
  }
  for (int r = 0; r < w->running.count; r++) {
    w->running.items[r].end += seconds;
    for (ls_sim_transfer *t = w->running.items[r].head; t; t = t->with) {
      t->start += seconds;
      t->paced += seconds;
    }
  }
}

void ls_sim_repeat_look(ls_sim_world *w) {
  ls_sim_rhythms *rhythms = w->rhythms;
  const rhythm *first = &rhythms->of[0];
  if (w->actors[0].action < rhythms->next) return;
  const moment *before = rhythms->last;
  moment *now = note(w, (rhythms->next - first->first) / first->count);
  rhythms->last = now;
  rhythms->next += first->count;
  if (before && is_again(w, before, now)) {
    const double times = w->options->repeat.times;
    w->made->events += (int64_t)times * (now->events - before->events);
    for (int a = 0; a < w->classes.count; a++) spend(&w->made->stage[a], &before->spent[a], times);
    delay(w, times * (now->now - before->now));
    w->made->repeated = true;
  }
  if (w->made->repeated || rhythms->next > first->end) w->rhythms = NULL;
}
