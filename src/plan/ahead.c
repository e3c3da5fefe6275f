#include "plan/ahead.h"

#include <math.h>
#include <pthread.h>

#include "cluster/machine.h"
#include "device/device.h"

enum { MOST_THREADS = 64 };

typedef enum task_state { EXPECTED, UNDER_WAY, ANSWERED, DROPPED } task_state;

typedef struct task {
  const ls_plan_ahead *of;
  ls_plan_ask ask;
  task_state state;
  bool sized, measured; /* what there is an answer to */
  int64_t bytes;
  double within; /* bytes, above which it was not simulated */
  ls_status status;
  ls_plan_row row;
} task;

/* Tasks that were expected together. */
typedef struct batch {
  task *items;
  int count, next; /* those before `next` wait for no thread */
  const struct batch *older;
} batch;

struct ls_plan_ahead {
  ls_arena *arena;
  const ls_plan_problem *problem;
  const ls_plan_memory *memory;
  pthread_t others[MOST_THREADS];
  int threads; /* beside the caller's */
  pthread_mutex_t lock;
  pthread_cond_t expected, answered;
  bool stops;
  batch *newest; /* of all that there were; only its tasks wait for a thread. NULL: none yet */
};

static ls_status answer(void *context, ls_error *error) {
  task *self = context;
  const ls_plan_ahead *of = self->of;
  (void)error;
  if (self->ask.sized) {
    self->bytes = ls_plan_memory_of(of->memory, &self->ask.layout);
    self->sized = true;
    if ((double)self->bytes > self->ask.most) return LS_OK;
  }
  self->within = self->ask.sized ? INFINITY : self->ask.most;
  self->status =
      ls_plan_measure_within(of->problem, &self->ask.layout, self->within, &self->row, NULL);
  self->measured = true;
  return LS_OK;
}

/* Answers a task that is expected. The lock is held, and given up for the while. */
static void work_on(ls_plan_ahead *self, task *each) {
  each->state = UNDER_WAY;
  pthread_mutex_unlock(&self->lock);
  /* What memory lacks for has no answer here: who asks for it has it done, or the same fault. */
  const ls_status status = ls_arena_guard(answer, each, true, NULL);
  pthread_mutex_lock(&self->lock);
  if (status != LS_OK) each->sized = each->measured = false;
  each->state = ANSWERED;
  pthread_cond_broadcast(&self->answered);
}

static task *next_expected(ls_plan_ahead *self) {
  batch *of = self->newest;
  while (of && of->next < of->count && of->items[of->next].state != EXPECTED) of->next++;
  return of && of->next < of->count ? &of->items[of->next] : NULL;
}

static void *run(void *context) {
  ls_plan_ahead *self = context;
  pthread_mutex_lock(&self->lock);
  while (!self->stops) {
    task *each = next_expected(self);
    if (each)
      work_on(self, each);
    else
      pthread_cond_wait(&self->expected, &self->lock);
  }
  pthread_mutex_unlock(&self->lock);
  return NULL;
}

ls_plan_ahead *ls_plan_ahead_start(ls_arena *arena, const ls_plan_problem *problem,
                                   const ls_plan_memory *memory) {
  ls_plan_ahead *made = LS_NEW(arena, ls_plan_ahead);
  const int cores = ls_machine_cores();
  *made = (ls_plan_ahead){.arena = arena, .problem = problem, .memory = memory};
  pthread_mutex_init(&made->lock, NULL);
  pthread_cond_init(&made->expected, NULL);
  pthread_cond_init(&made->answered, NULL);
  while (made->threads < cores - 1 && made->threads < MOST_THREADS &&
         pthread_create(&made->others[made->threads], NULL, run, made) == 0)
    made->threads++;
  return made;
}

static task *find_task(const ls_plan_ahead *self, const ls_layout *layout) {
  for (const batch *of = self->newest; of; of = of->older)
    for (int t = 0; t < of->count; t++)
      if (of->items[t].state != DROPPED && ls_plan_same(&of->items[t].ask.layout, layout))
        return &of->items[t];
  return NULL;
}

void ls_plan_ahead_expect(ls_plan_ahead *self, const ls_plan_ask *asks, int count) {
  if (!self->threads) return;
  batch *made = LS_NEW(self->arena, batch);
  *made = (batch){LS_NEW_ARRAY(self->arena, task, count + 1), 0, 0, self->newest};
  pthread_mutex_lock(&self->lock);
  for (task *each; (each = next_expected(self)) != NULL;) each->state = DROPPED;
  for (int a = 0; a < count; a++)
    if (!find_task(self, &asks[a].layout))
      made->items[made->count++] = (task){.of = self, .ask = asks[a]};
  self->newest = made;
  pthread_cond_broadcast(&self->expected);
  pthread_mutex_unlock(&self->lock);
}

/* The task of a layout, answered; NULL: there is none. Meanwhile others are worked on. */
static task *wait_for(ls_plan_ahead *self, const ls_layout *layout) {
  pthread_mutex_lock(&self->lock);
  task *found = find_task(self, layout);
  if (found && found->state == EXPECTED) work_on(self, found);
  while (found && found->state == UNDER_WAY) {
    task *other = next_expected(self);
    if (other)
      work_on(self, other);
    else
      pthread_cond_wait(&self->answered, &self->lock);
  }
  pthread_mutex_unlock(&self->lock);
  return found;
}

int64_t ls_plan_ahead_size(ls_plan_ahead *self, const ls_layout *layout) {
  const task *found = wait_for(self, layout);
  return found && found->sized ? found->bytes : ls_plan_memory_of(self->memory, layout);
}

/* Whether what was measured is what is asked for. */
static bool answers(const task *found, double most) {
  if (!found || !found->measured) return false;
  return found->within >= most || found->status != LS_OK || found->row.seconds > 0;
}

ls_status ls_plan_ahead_measure(ls_plan_ahead *self, const ls_layout *layout, double most,
                                ls_plan_row *row) {
  const task *found = wait_for(self, layout);
  if (!answers(found, most)) return ls_plan_measure_within(self->problem, layout, most, row, NULL);
  *row = found->row;
  return found->status;
}

void ls_plan_ahead_stop(ls_plan_ahead *self) {
  pthread_mutex_lock(&self->lock);
  self->stops = true;
  pthread_cond_broadcast(&self->expected);
  pthread_mutex_unlock(&self->lock);
  for (int t = 0; t < self->threads; t++) pthread_join(self->others[t], NULL);
  pthread_cond_destroy(&self->answered);
  pthread_cond_destroy(&self->expected);
  pthread_mutex_destroy(&self->lock);
}

/* A turn of ls_plan_share in a guard of its own, since it is in a parallel region. */
typedef struct shared_work {
  void (*turn)(void *work, int at);
  void *work;
} shared_work;

typedef struct shared_turn {
  const shared_work *of;
  int at;
} shared_turn;

static ls_status take_turn(void *context, ls_error *error) {
  const shared_turn *self = context;
  (void)error;
  self->of->turn(self->of->work, self->at);
  return LS_OK;
}

static ls_status guard_turn(void *work, int thread, int64_t at, ls_error *error) {
  shared_turn turn = {work, (int)at};
  (void)thread;
  return ls_arena_guard(take_turn, &turn, true, error);
}

void ls_plan_share(int count, void (*turn)(void *work, int at), void *work) {
  shared_work shared = {turn, work};
  if (ls_host_share(ls_machine_cores(), 1, count, guard_turn, &shared, NULL) != LS_OK) return;
}
