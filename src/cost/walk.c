/* The walk over what a program executes, and sums over it. */
#include "cost/cost.h"

static void visit_body(const ls_program *program, const ls_executed *executed, ls_visit visit,
                       void *context) {
  const ls_body *body = &program->bodies.items[executed->action->body];
  ls_executed each = *executed;
  if (!each.times) return;
  for (int i = 0; i < body->count; i++) {
    each.instruction = &program->instructions.items[body->first + i];
    visit(context, &each);
  }
}

void ls_program_walk(const ls_program *program, int first, int last, ls_visit visit,
                     void *context) {
  ls_arena *scratch = ls_arena_create();
  int64_t *times = LS_NEW_ARRAY(scratch, int64_t, program->bodies.count + 1);
  for (int a = first; a < last; a++) times[program->actions.items[a].body]++;
  for (int a = first; a < last; a++) {
    const ls_program_action *action = &program->actions.items[a];
    int64_t *left = &times[action->body];
    if (action->first && *left) {
      visit_body(program, &(ls_executed){.action = action, .first = true, .times = 1}, visit,
                 context);
      --*left;
    }
    visit_body(program, &(ls_executed){.action = action, .times = *left}, visit, context);
    *left = 0;
  }
  ls_arena_destroy(&scratch);
}

static void count_executed(void *context, const ls_executed *each) {
  *(int64_t *)context += each->times;
}

int64_t ls_program_executed(const ls_program *program) {
  int64_t count = 0;
  ls_program_walk(program, 0, program->actions.count, count_executed, &count);
  return count;
}

/* A sum being made; `from`, `to`: of tiers. */
typedef struct summing {
  const ls_program *program;
  ls_tier from, to;
  double bytes;
  int64_t collectives;
} summing;

static void add_sent(void *context, const ls_executed *each) {
  summing *sum = context;
  const ls_collective kind = each->instruction->collective;
  if (!ls_collective_communicates(kind)) return;
  sum->bytes += (double)each->times *
                ls_instruction_work(sum->program, 0, each->instruction, each->first).sent;
  if (kind != LS_RECEIVE && each->instruction->phase != LS_END) sum->collectives += each->times;
}

double ls_program_bytes_sent(const ls_program *program, int *collectives) {
  summing sum = {.program = program};
  ls_program_walk(program, 0, program->actions.count, add_sent, &sum);
  *collectives = (int)sum.collectives;
  return sum.bytes;
}

static void add_moved(void *context, const ls_executed *each) {
  summing *sum = context;
  const ls_instruction *instruction = each->instruction;
  if (ls_collective_moves(instruction->collective) &&
      ls_pool_tier(ls_program_buffer_group(sum->program, instruction->in[0])->pool) == sum->from &&
      ls_pool_tier(ls_program_buffer_group(sum->program, instruction->out[0])->pool) == sum->to)
    sum->bytes +=
        (double)each->times * ls_instruction_work(sum->program, 0, instruction, each->first).moved;
}

int64_t ls_program_bytes_moved(const ls_program *program, ls_tier from, ls_tier to) {
  summing sum = {.program = program, .from = from, .to = to};
  ls_program_walk(program, 0, program->actions.count, add_moved, &sum);
  return (int64_t)sum.bytes;
}
