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

/* A body of a program as a rank does it. */
typedef struct making {
  ls_arena *arena;
  const ls_performance *performance;
  const ls_program *program;
  int rank;
  bool first;
  int ahead;     /* so many instructions before each is that of a body like it; 0: none */
  double *known; /* by instruction: seconds */
  ls_sim_body *made;
} making;

/* Of an instruction, which may be that of a layer before. */
static double seconds_of(const making *of, int index) {
  const ls_instruction *each = &of->program->instructions.items[index];
  const int before = index - of->ahead;
  if (of->ahead && of->known[before] >= 0 &&
      ls_instructions_alike(of->program, each, each - of->ahead))
    return of->known[before];
  return ls_instruction_seconds(of->performance, of->program, of->rank, each, of->first);
}

/* Instructions [first, last) of the program, which compute. */
static void add_computing(const making *of, int first, int last) {
  if (first == last) return;
  ls_sim_item *item = LS_APPEND(of->arena, &of->made->items);
  *item = (ls_sim_item){.kind = LS_SIM_COMPUTE,
                        .instruction = &of->program->instructions.items[first],
                        .index = first,
                        .count = last - first,
                        .each = LS_NEW_ARRAY(of->arena, double, last - first)};
  int kernels = 0;
  for (int i = 0; i < item->count; i++) {
    item->each[i] = of->known[first + i] = seconds_of(of, first + i);
    item->sum += item->each[i];
    kernels += kernels_of(of->performance, item->instruction + i);
  }
  const double launches = kernels * of->performance->launch_s;
  item->seconds = item->sum > launches ? item->sum : launches;
}

void ls_sim_body_make(ls_arena *arena, const ls_performance *performance, const ls_program *program,
                      int rank, int body, bool first, double *known, ls_sim_body *made) {
  const ls_body *of = &program->bodies.items[body];
  const int like = ls_body_like(program, body);
  const int ahead = like < 0 ? 0 : of->first - program->bodies.items[like].first;
  const making self = {arena, performance, program, rank, first, ahead, known, made};
  int begin = of->first;
  made->made = true;
  for (int i = of->first; i < of->first + of->count; i++) {
    const ls_instruction *each = &program->instructions.items[i];
    if (each->collective == LS_COLLECTIVE_NONE) continue;
    add_computing(&self, begin, i);
    add_transfer(arena, performance, program, rank, i, made);
    begin = i + 1;
  }
  add_computing(&self, begin, of->first + of->count);
}
