/* Faults in what goes on before the norm is known. Each is called for the program of every stage.
 */
#include <string.h>

#include "support/faults.h"
#include "support/mutate.h"

enum { GPT2 = 0, LLAMA_FREE, LLAMA_TIED };

static int find(const ls_program *program, int from, int kind) {
  for (int a = from; a < program->actions.count; a++)
    if (ls_action_sort(&program->actions.items[a].action) == kind) return a;
  return -1;
}

static void remove_action(ls_program *program, int a) {
  ls_program_action *items = program->actions.items;
  memmove(&items[a], &items[a + 1], (size_t)(program->actions.count - a - 1) * sizeof *items);
  program->actions.count--;
}

/* One unit goes on with the weights of the step before. */
static int unit_not_speculated(ls_program *program) {
  const int a = find(program, 0, LS_ACTION_SPECULATE);
  if (a < 0) return 0;
  remove_action(program, a);
  return 1;
}

static ls_instruction *at(const ls_program *program, int i) {
  return &program->instructions.items[i];
}

static int change_speculates(ls_program *program, void (*change)(ls_instruction *)) {
  int hits = 0;
  for (int i = 0; i < program->instructions.count; i++) {
    if (at(program, i)->collective != LS_COLLECTIVE_NONE ||
        at(program, i)->kind != LS_OP_ADAMW_SPECULATE)
      continue;
    change(at(program, i));
    hits++;
  }
  return hits;
}

static void without_decay(ls_instruction *each) {
  each->attributes.weight_decay += 0.5;
}

static int speculation_decays_otherwise(ls_program *program) {
  return change_speculates(program, without_decay);
}

static void swap_moments(ls_instruction *each) {
  const int kept = each->in[5];
  each->in[5] = each->in[6];
  each->in[6] = kept;
}

static int speculation_takes_moments_for_each_other(ls_program *program) {
  return change_speculates(program, swap_moments);
}

/* What the stage keeps of its first forward pass lies where a gradient waits for the norm. */
static int prologue_writes_over_gradients(ls_program *program) {
  const int update = find(program, 0, LS_ACTION_UPDATE), pass = find(program, 0, LS_ACTION_FORWARD);
  if (program->replay_boundary <= pass || pass < 0) return 0;
  const ls_program_action *first = &program->actions.items[pass];
  const ls_program_action *last = &program->actions.items[update];
  for (int f = 0; f < program->bodies.items[last->body].buffer_groups.count; f++) {
    const ls_live_interval *waits = &program->live_intervals.items[last->live_intervals[f]];
    if (program->buffer_groups.items[waits->buffer_group].pool != LS_POOL_WORK) continue;
    for (int g = 0; g < program->bodies.items[first->body].buffer_groups.count; g++) {
      ls_live_interval *kept = &program->live_intervals.items[first->live_intervals[g]];
      const ls_buffer_group *buffer_group = &program->buffer_groups.items[kept->buffer_group];
      if (buffer_group->pool != LS_POOL_WORK ||
          waits->offset + buffer_group->bytes > program->pool_bytes[LS_POOL_WORK])
        continue;
      kept->offset = waits->offset;
      return 1;
    }
  }
  return 0;
}

/* Each stage goes by its own part of the norm. */
static int norm_of_one_stage(ls_program *program) {
  const int cell = program->cell[LS_CELL_SQUARED_NORM];
  int hits = 0;
  for (int i = program->instructions.count - 1; i >= 0; i--) {
    const ls_collective kind = at(program, i)->collective;
    char what[160];
    if (kind != LS_SUM_NUMBERS || at(program, i)->in[0] != cell) continue;
    ls_drop_instruction(program, i, what);
    hits++;
  }
  return hits;
}

/* Tokens are counted, and loss added up, before the step before has used its counts. */
static int cut_behind_the_counts(ls_program *program) {
  const int total = find(program, 0, LS_ACTION_TOTAL);
  if (program->replay_boundary < 0 || total < program->replay_boundary) return 0;
  program->replay_boundary = total + 1;
  return 1;
}

static const ls_fault_room zbh1 = {.pp = 2, .schedule = "zbh1", .post_validation = true};
static const ls_fault_room zbh2 = {.pp = 2, .schedule = "zbh2", .post_validation = true};
static const ls_fault_room zbv = {.pp = 2, .schedule = "zbv", .post_validation = true};

/* name, change, model, dp_replicate, dp_shard, tp, zero, sequence parallel, microbatches, dtype,
 * the rest */
const ls_fault ls_replay_boundary_faults[] = {
    {"a unit's weights not speculated", unit_not_speculated, LLAMA_FREE, 1, 1, 1, 1, false, 4,
     LS_F64, &zbh1},
    {"a unit's weights not speculated on two ranks", unit_not_speculated, GPT2, 1, 2, 1, 1, false,
     2, LS_F64, &zbv},
    {"speculation with another weight decay", speculation_decays_otherwise, LLAMA_FREE, 1, 1, 1, 1,
     false, 4, LS_F64, &zbh2},
    {"speculation takes each moment for the other", speculation_takes_moments_for_each_other,
     LLAMA_FREE, 1, 1, 1, 1, false, 4, LS_F64, &zbv},
    {"first passes write over gradients that wait for the norm", prologue_writes_over_gradients,
     LLAMA_FREE, 1, 1, 1, 1, false, 4, LS_F64, &zbh1},
    {"norm not summed over stages", norm_of_one_stage, LLAMA_FREE, 1, 1, 1, 1, false, 4, LS_F64,
     &zbh1},
    {"tokens counted before the last step's count is used", cut_behind_the_counts, GPT2, 1, 1, 1, 1,
     false, 4, LS_F64, &zbh1},
};

const int ls_replay_boundary_fault_count =
    (int)(sizeof ls_replay_boundary_faults / sizeof *ls_replay_boundary_faults);
