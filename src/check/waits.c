/* Events: an instruction that shares memory with an earlier one on another queue of the engine must
 * wait for it, or for a later one - an event waits for all before it, too - or follow one on its
 * own queue that did. Queues are counted as the engine has them; events may keep more apart, for an
 * engine that has more. */
#include "check/proof.h"

typedef struct range {
  int buffer_group;
  int64_t begin, end;
} range;

static range range_of(const ls_stage *stage, int value) {
  const ls_program *program = stage->program;
  const ls_storage *storage = &program->storages.items[program->values.items[value].storage];
  const ls_extent *extent = &stage->extents[value];
  if (extent->of_unit)
    return (range){storage->buffer_group, storage->offset, storage->offset + storage->bytes};
  return (range){storage->buffer_group, extent->begin, extent->end};
}

static bool touch(const range *a, const range *b) {
  return a->buffer_group == b->buffer_group && a->begin < b->end && b->begin < a->end;
}

static bool writes_what(const ls_stage *stage, const ls_instruction *writer,
                        const ls_instruction *other) {
  for (int o = 0; o < writer->outputs; o++) {
    const range written = range_of(stage, writer->out[o]);
    for (int i = 0; i < other->inputs + other->outputs; i++) {
      const range each =
          range_of(stage, i < other->inputs ? other->in[i] : other->out[i - other->inputs]);
      if (touch(&written, &each)) return true;
    }
  }
  return false;
}

static ls_status fail_wait(const ls_stage *stage, ls_error *error, int i, const char *what,
                           int other) {
  const ls_program *program = stage->program;
  int action = 0;
  while (action < program->actions.count) {
    const ls_body *body = &program->bodies.items[program->actions.items[action].body];
    if (i >= body->first && i < body->first + body->count) break;
    action++;
  }
  return ls_fail(error, LS_REFUTED, "stage %d action %d instruction %d: %s instruction %d",
                 stage->number, action, i, what, other);
}

/* A queue of the body at hand, and how far it has waited for the others. */
typedef struct queue_at {
  int number, since;
} queue_at;

typedef struct queues_at {
  ls_arena *arena;
  LS_LIST(queue_at) items;
} queues_at;

static int *since_of(queues_at *all, int number) {
  for (int q = 0; q < all->items.count; q++)
    if (all->items.items[q].number == number) return &all->items.items[q].since;
  queue_at *made = LS_APPEND(all->arena, &all->items);
  *made = (queue_at){number, -1};
  return &made->since;
}

/* run: by instruction, the last of those on its queue that follow each other with it. */
static void find_runs(const ls_stage *stage, const ls_body *body, int *run) {
  const ls_queues *queues = stage->proof->queues;
  const ls_instruction *items = stage->program->instructions.items;
  const int end = body->first + body->count;
  for (int i = end - 1; i >= body->first; i--) {
    const int queue = ls_queues_number(queues, &items[i]);
    run[i] = i + 1 < end && ls_queues_number(queues, &items[i + 1]) == queue ? run[i + 1] : i;
  }
}

/* All that follows an end waits for it, and under_way.c keeps others apart from what it ends. */
static bool needs_no_event(const ls_instruction *a, const ls_instruction *b) {
  return a->queue == LS_QUEUE_COMMUNICATE && b->queue == LS_QUEUE_COMMUNICATE &&
         (a->phase == LS_END || b->phase == LS_END);
}

static ls_status check_event(const ls_stage *stage, const ls_body *body, int i, ls_error *error) {
  const ls_instruction *items = stage->program->instructions.items;
  const int wait = items[i].wait;
  if (wait < body->first || wait >= i)
    return fail_wait(stage, error, i,
                     "waits for what is not before it in its body: expected one of that, not",
                     wait);
  if (ls_queues_number(&ls_queues_nccl, &items[wait]) ==
      ls_queues_number(&ls_queues_nccl, &items[i]))
    return fail_wait(stage, error, i,
                     "waits for one on its own queue: expected another queue's, not", wait);
  return LS_OK;
}

static ls_status check_body(const ls_stage *stage, const ls_body *body, const int *run,
                            queues_at *all, ls_error *error) {
  const ls_queues *queues = stage->proof->queues;
  const ls_instruction *items = stage->program->instructions.items;
  all->items.count = 0;
  for (int i = body->first; i < body->first + body->count; i++)
    if ((items[i].queue == LS_QUEUE_MOVE) != (items[body->first].queue == LS_QUEUE_MOVE))
      return fail_wait(stage, error, i,
                       "moves beside other work: expected bodies of their own, not", body->first);
  for (int i = body->first; i < body->first + body->count; i++) {
    const ls_instruction *later = &items[i];
    const int queue = ls_queues_number(queues, later);
    int *since = since_of(all, queue);
    if (later->wait >= 0) {
      LS_TRY(check_event(stage, body, i, error));
      if (later->wait > *since) *since = later->wait;
      stage->proof->report.waits++;
    }
    const int first = *since < body->first ? body->first : *since + 1;
    for (int j = first; j < i; j++)
      if (ls_queues_number(queues, &items[j]) == queue)
        j = run[j];
      else if (!needs_no_event(&items[j], later) &&
               (writes_what(stage, &items[j], later) || writes_what(stage, later, &items[j])))
        return fail_wait(stage, error, i,
                         "shares memory with one on another queue and does not wait for it: "
                         "expected an event of",
                         j);
  }
  return LS_OK;
}

ls_status ls_proof_waits(ls_stage *stage, ls_error *error) {
  const ls_program *program = stage->program;
  int *run = LS_NEW_ARRAY(stage->proof->arena, int, program->instructions.count + 1);
  queues_at all = {.arena = stage->proof->arena};
  for (int b = 0; b < program->bodies.count; b++) {
    find_runs(stage, &program->bodies.items[b], run);
    LS_TRY(check_body(stage, &program->bodies.items[b], run, &all, error));
  }
  return LS_OK;
}
