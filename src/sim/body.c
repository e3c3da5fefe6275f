/* Bodies as the simulator takes them: computing summed up, transfers apart. */
#include "sim/events.h"

static void add_transfer(ls_arena *arena, const ls_performance *performance,
                         const ls_program *program, int rank, int index, ls_sim_body *made) {
  const ls_instruction *each = &program->instructions.items[index];
  if (each->phase != LS_END)
    *LS_APPEND(arena, &made->items) =
        (ls_sim_item){.kind = LS_SIM_BEGIN,
                      .instruction = each,
                      .index = index,
                      .time = ls_instruction_transfer(performance, program, rank, each),
                      .sent = ls_instruction_work(program, rank, each, true).sent};
  if (each->phase != LS_BEGIN)
    *LS_APPEND(arena, &made->items) =
        (ls_sim_item){.kind = LS_SIM_WAIT, .instruction = each, .index = index};
}

/* Kernels that the host begins for an instruction. */
static int kernels_of(const ls_performance *performance, const ls_instruction *instruction) {
  const int *scores = performance->traits.score_kernels;
  if (instruction->kind == LS_OP_ATTENTION && scores[0]) return scores[0];
  return instruction->kind == LS_OP_ATTENTION_BWD && scores[1] ? scores[1] : 1;
}

/* Instructions [first, last) of the program, which compute. */
static void add_computing(ls_arena *arena, const ls_performance *performance,
                          const ls_program *program, int rank, int first, int last, bool begins,
                          ls_sim_body *made) {
  if (first == last) return;
  ls_sim_item *item = LS_APPEND(arena, &made->items);
  *item = (ls_sim_item){.kind = LS_SIM_COMPUTE,
                        .instruction = &program->instructions.items[first],
                        .index = first,
                        .count = last - first,
                        .each = LS_NEW_ARRAY(arena, double, last - first)};
  int kernels = 0;
  for (int i = 0; i < item->count; i++) {
    item->each[i] =
        ls_instruction_seconds(performance, program, rank, item->instruction + i, begins);
    item->sum += item->each[i];
    kernels += kernels_of(performance, item->instruction + i);
  }
  const double launches = kernels * performance->launch_s;
  item->seconds = item->sum > launches ? item->sum : launches;
}

void ls_sim_body_make(ls_arena *arena, const ls_performance *performance, const ls_program *program,
                      int rank, int body, bool first, ls_sim_body *made) {
  const ls_body *of = &program->bodies.items[body];
  int begin = of->first;
  made->made = true;
  for (int i = of->first; i < of->first + of->count; i++) {
    const ls_instruction *each = &program->instructions.items[i];
    if (each->collective == LS_COLLECTIVE_NONE) continue;
    add_computing(arena, performance, program, rank, begin, i, first, made);
    add_transfer(arena, performance, program, rank, i, made);
    begin = i + 1;
  }
  add_computing(arena, performance, program, rank, begin, of->first + of->count, first, made);
}
