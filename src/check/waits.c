/* Events: an instruction that shares memory with an earlier one on the other queue must wait for
 * it, or for a later one on that queue, or follow one on its own queue that did. */
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

/* run: by instruction, the last of those on its queue that follow each other with it. */
static void find_runs(const ls_program *program, const ls_body *body, int *run) {
  const ls_instruction *items = program->instructions.items;
  const int end = body->first + body->count;
  for (int i = end - 1; i >= body->first; i--)
    run[i] = i + 1 < end && items[i + 1].queue == items[i].queue ? run[i + 1] : i;
}

static ls_status check_body(const ls_stage *stage, const ls_body *body, const int *run,
                            ls_error *error) {
  const ls_instruction *items = stage->program->instructions.items;
  for (int i = body->first; i < body->first + body->count; i++)
    if ((items[i].queue == LS_QUEUE_MOVE) != (items[body->first].queue == LS_QUEUE_MOVE))
      return fail_wait(stage, error, i,
                       "moves beside other work: expected bodies of their own, not", body->first);
  int waited[2] = {-1, -1}; /* by queue: the latest on the other one that it has waited for */
  for (int i = body->first; i < body->first + body->count; i++) {
    const ls_instruction *later = &items[i];
    int *since = &waited[later->queue == LS_QUEUE_COMPUTE ? 0 : 1];
    if (later->wait >= 0) {
      if (later->wait < body->first || later->wait >= i)
        return fail_wait(stage, error, i,
                         "waits for what is not before it in its body: expected "
                         "one of that, not",
                         later->wait);
      if (items[later->wait].queue == later->queue)
        return fail_wait(stage, error, i,
                         "waits for one on its own queue: expected the other "
                         "queue's, not",
                         later->wait);
      if (later->wait > *since) *since = later->wait;
      stage->proof->report.waits++;
    }
    const int first = *since < body->first ? body->first : *since + 1;
    for (int j = first; j < i; j++)
      if (items[j].queue == later->queue)
        j = run[j];
      else if (writes_what(stage, &items[j], later) || writes_what(stage, later, &items[j]))
        return fail_wait(stage, error, i,
                         "shares memory with one on the other queue and does not "
                         "wait for it: expected an event of",
                         j);
  }
  return LS_OK;
}

ls_status ls_proof_waits(ls_stage *stage, ls_error *error) {
  const ls_program *program = stage->program;
  int *run = LS_NEW_ARRAY(stage->proof->arena, int, program->instructions.count + 1);
  for (int b = 0; b < program->bodies.count; b++) {
    find_runs(program, &program->bodies.items[b], run);
    LS_TRY(check_body(stage, &program->bodies.items[b], run, error));
  }
  return LS_OK;
}
