/* Faults in pipelines and recomputation. Each is called for the program of every stage. */
#include <string.h>

#include "support/faults.h"
#include "support/mutate.h"

enum { GPT2 = 0, LLAMA_FREE, LLAMA_TIED };

static ls_instruction *at(const ls_program *program, int i) {
  return &program->instructions.items[i];
}

static ls_program_action *action(const ls_program *program, int a) {
  return &program->actions.items[a];
}

static bool is(const ls_program *program, int a, int sort, int microbatch) {
  return ls_action_sort(&action(program, a)->action) == sort &&
         (microbatch < 0 || action(program, a)->action.microbatch == microbatch);
}

/* The next action of a kind and microbatch (-1: any) from `from` on; -1: none. */
static int find(const ls_program *program, int from, int kind, int microbatch) {
  for (int a = from; a >= 0 && a < program->actions.count; a++)
    if (is(program, a, kind, microbatch)) return a;
  return -1;
}

static void move(const ls_program *program, int from, int to) {
  ls_program_action *items = program->actions.items;
  const ls_program_action moved = items[from];
  for (int a = from; a < to; a++) items[a] = items[a + 1];
  for (int a = from; a > to; a--) items[a] = items[a - 1];
  items[to] = moved;
}

static int remove_actions(ls_program *program, int kind, int microbatch) {
  int hits = 0;
  for (int a = find(program, 0, kind, microbatch); a >= 0; a = find(program, a, kind, microbatch)) {
    move(program, a, program->actions.count - 1);
    program->actions.count--;
    hits++;
  }
  return hits;
}

/* The bodies of a kind of action, and their instructions. */
static bool in(const ls_program *program, int i, int kind) {
  for (int a = find(program, 0, kind, -1); a >= 0; a = find(program, a + 1, kind, -1)) {
    const ls_body *body = &program->bodies.items[action(program, a)->body];
    if (i >= body->first && i < body->first + body->count) return true;
  }
  return false;
}

/* Messages. The first two receives of the stage each work where the other should. */
static int receives_change_places(ls_program *program) {
  for (int half = 0; half < 2; half++) { /* their beginnings, and their ends */
    const int sort = LS_BEGIN_OF(RECEIVE, ACTIVATIONS) + half;
    const int first = find(program, 0, sort, -1), second = find(program, first + 1, sort, -1);
    if (first < 0 || second < 0) return 0;
    const ls_program_action kept = *action(program, first);
    *action(program, first) = *action(program, second);
    *action(program, second) = kept;
  }
  return 1;
}

/* The first message leaves, and is awaited, after the second. */
static int sent_after_the_next(ls_program *program, int send, int sent) {
  const int first = find(program, 0, send, -1), second = find(program, first + 1, send, -1);
  if (first < 0 || second < 0) return 0;
  const int awaited = find(program, first, sent, action(program, first)->action.microbatch);
  if (awaited > second) {
    move(program, first, second);
  } else {
    move(program, awaited, second);
    move(program, first, second - 1);
  }
  return 1;
}

static int sends_out_of_order(ls_program *program) {
  return sent_after_the_next(program, LS_BEGIN_OF(SEND, ACTIVATIONS),
                             LS_WAIT_OF(SEND, ACTIVATIONS));
}

static int sends_back_out_of_order(ls_program *program) {
  return sent_after_the_next(program, LS_BEGIN_OF(SEND, GRADIENTS), LS_WAIT_OF(SEND, GRADIENTS));
}

static int sent_not_awaited(ls_program *program) {
  return remove_actions(program, LS_WAIT_OF(SEND, ACTIVATIONS), -1) +
         remove_actions(program, LS_WAIT_OF(SEND, GRADIENTS), -1);
}

/* What a pass makes is sent, and taken, before it is made. */
static int sent_too_early(ls_program *program) {
  const int sent = find(program, 0, LS_BEGIN_OF(SEND, ACTIVATIONS), 1);
  const int awaited = find(program, sent, LS_WAIT_OF(SEND, ACTIVATIONS), 1);
  const int made = find(program, 0, LS_ACTION_FORWARD, 1);
  if (sent < 0) return 0;
  move(program, awaited, made);
  move(program, sent + 1, made);
  return 1;
}

/* Order of passes. */
static int weight_half_left_out(ls_program *program) {
  return remove_actions(program, LS_ACTION_WEIGHT, 1);
}

static int weight_half_too_early(ls_program *program) {
  const int input = find(program, 0, LS_ACTION_INPUT, 1);
  const int weight = find(program, input, LS_ACTION_WEIGHT, 1);
  if (input < 0) return 0;
  move(program, weight, input);
  return 1;
}

static int first_weight_half_adds(ls_program *program) {
  int hits = 0;
  for (int a = find(program, 0, LS_ACTION_WEIGHT, -1); a >= 0;
       a = find(program, a + 1, LS_ACTION_WEIGHT, -1)) {
    hits += action(program, a)->first;
    action(program, a)->first = false;
  }
  return hits;
}

static int second_microbatch_overwrites(ls_program *program) {
  int hits = 0;
  for (int i = 0; i < program->instructions.count; i++)
    for (int o = 0; o < at(program, i)->outputs; o++)
      if (at(program, i)->write[o] == LS_ADD_AFTER_FIRST && in(program, i, LS_ACTION_BACKWARD)) {
        at(program, i)->write[o] = LS_WRITE;
        hits++;
      }
  return hits;
}

static int reduced_before_the_weight_half(ls_program *program) {
  const int weight = find(program, 0, LS_ACTION_WEIGHT, 1);
  const int reduce = find(program, 0, LS_BEGIN_OF(REDUCE, GRADIENTS), 1);
  if (weight < 0 || reduce < weight) return 0;
  move(program, reduce, weight);
  return 1;
}

static int second_microbatch_not_gathered(ls_program *program) {
  return remove_actions(program, LS_WAIT_OF(GATHER, PARAMETERS), 1) +
         remove_actions(program, LS_BEGIN_OF(GATHER, PARAMETERS), 1);
}

/* What the second microbatch keeps lies where the first one's does. */
static int microbatches_share_memory(ls_program *program) {
  int hits = 0;
  for (int i = 0; i < program->live_intervals.count; i++) {
    const ls_live_interval *first = &program->live_intervals.items[i];
    if (first->microbatch != 0 ||
        program->buffer_groups.items[first->buffer_group].category != LS_CATEGORY_ACTIVATIONS)
      continue;
    for (int j = 0; j < program->live_intervals.count; j++) {
      ls_live_interval *second = &program->live_intervals.items[j];
      if (second->buffer_group != first->buffer_group || second->microbatch != 1) continue;
      second->offset = first->offset;
      hits++;
    }
  }
  return hits;
}

/* Between stages, once a step. */
static int drop(ls_program *program, int i) {
  char what[160];
  ls_drop_instruction(program, i, what);
  return 1;
}

static int tied_gradients_not_added(ls_program *program) {
  int hits = 0;
  for (int i = program->instructions.count - 1; i >= 0; i--)
    if (at(program, i)->collective == LS_ALL_REDUCE && at(program, i)->peer >= 0)
      hits += drop(program, i);
  return hits;
}

/* The stage that is not asked for the tied embedding leaves out its decay. */
static int tied_updated_apart(ls_program *program) {
  int hits = 0;
  for (int p = 0; p < program->parameter_count; p++) {
    const ls_program_parameter *parameter = &program->parameters[p];
    for (int i = 0; i < program->instructions.count && parameter->present && !parameter->owner;
         i++) {
      if (at(program, i)->kind != LS_OP_ADAMW ||
          at(program, i)->out[0] != parameter->part[LS_PART_MASTER])
        continue;
      at(program, i)->attributes.weight_decay = 0;
      hits++;
    }
  }
  return hits;
}

static bool sums_cell_over_stages(const ls_program *program, int i, ls_cell cell) {
  const ls_instruction *each = at(program, i);
  return each->collective == LS_ALL_REDUCE && each->axes & 1u << LS_AXIS_PP &&
         each->out[0] == program->cell[cell];
}

static int norm_of_one_stage(ls_program *program) {
  int hits = 0;
  for (int i = program->instructions.count - 1; i >= 0; i--)
    if (sums_cell_over_stages(program, i, LS_CELL_SQUARED_NORM)) hits += drop(program, i);
  return hits;
}

/* Puts a copy of instruction `i` behind it, for which later ones wait. */
static int repeat(ls_program *program, int i) {
  LS_APPEND(program->arena, &program->instructions);
  memmove(at(program, i + 1), at(program, i),
          (size_t)(program->instructions.count - 1 - i) * sizeof(ls_instruction));
  for (int j = i + 2; j < program->instructions.count; j++)
    if (at(program, j)->wait >= i) at(program, j)->wait++;
  for (int b = 0; b < program->bodies.count; b++) {
    ls_body *body = &program->bodies.items[b];
    if (body->first > i)
      body->first++;
    else if (body->first + body->count > i)
      body->count++;
  }
  return 1;
}

/* What is summed once is the sum on every stage: summed again, it counts on each. */
static int loss_of_two_stages(ls_program *program) {
  int hits = 0;
  for (int i = program->instructions.count - 1; i >= 0; i--)
    if (sums_cell_over_stages(program, i, LS_CELL_LOSS_SUM)) hits += repeat(program, i);
  return hits;
}

/* Recomputation. */
static int of_the_first_microbatch(ls_program *program) {
  int hits = 0;
  for (int a = find(program, 0, LS_ACTION_RECOMPUTE, 1); a >= 0;
       a = find(program, a + 1, LS_ACTION_RECOMPUTE, 1))
    for (int b = 0; b < program->actions.count; b++)
      if (is(program, b, LS_ACTION_RECOMPUTE, 0) &&
          action(program, b)->body == action(program, a)->body) {
        action(program, a)->live_intervals = action(program, b)->live_intervals;
        hits++;
      }
  return hits;
}

static int not_made_again(ls_program *program) {
  return remove_actions(program, LS_ACTION_RECOMPUTE, 1);
}

static int made_again_too_late(ls_program *program) {
  const int again = find(program, 0, LS_ACTION_RECOMPUTE, 1);
  const int backward = find(program, again, LS_ACTION_BACKWARD, 1);
  if (again < 0) return 0;
  move(program, again, backward);
  return 1;
}

/* The live interval of a buffer group that a microbatch has; -1: none. */
static int live_interval_of(const ls_program *program, int buffer_group, int microbatch) {
  for (int i = 0; i < program->live_intervals.count; i++)
    if (program->live_intervals.items[i].buffer_group == buffer_group &&
        program->live_intervals.items[i].microbatch == microbatch)
      return i;
  return -1;
}

/* Lets every action of a body touch one more buffer group. */
static void add_buffer_group(ls_program *program, int body, int buffer_group) {
  ls_body *about = &program->bodies.items[body];
  *LS_APPEND(program->arena, &about->buffer_groups) = buffer_group;
  for (int a = 0; a < program->actions.count; a++) {
    ls_program_action *each = action(program, a);
    if (each->body != body) continue;
    int *live_intervals = LS_NEW_ARRAY(program->arena, int, about->buffer_groups.count);
    memcpy(live_intervals, each->live_intervals,
           (size_t)(about->buffer_groups.count - 1) * sizeof *live_intervals);
    live_intervals[about->buffer_groups.count - 1] =
        live_interval_of(program, buffer_group, each->action.microbatch);
    each->live_intervals = live_intervals;
  }
}

/* What an earlier layer keeps, as large as this: a value of its forward pass; -1: none. */
static int kept_by_earlier_layer(const ls_program *program, int segment, int like) {
  const ls_value *wanted = &program->values.items[like];
  for (int a = find(program, 0, LS_ACTION_FORWARD, -1); a >= 0;
       a = find(program, a + 1, LS_ACTION_FORWARD, -1)) {
    const ls_body *body = &program->bodies.items[action(program, a)->body];
    if (action(program, a)->action.segment + 1 >= segment) continue;
    for (int i = body->first; i < body->first + body->count; i++) {
      const int value = at(program, i)->outputs ? at(program, i)->out[0] : like;
      const ls_value *kept = &program->values.items[value];
      if (ls_program_buffer_group(program, value)->category == LS_CATEGORY_ACTIVATIONS &&
          kept->ndim == wanted->ndim && kept->global[1] == wanted->global[1])
        return value;
    }
  }
  return -1;
}

static int writes_what_another_layer_keeps(ls_program *program) {
  for (int a = find(program, 0, LS_ACTION_RECOMPUTE, 0); a >= 0;
       a = find(program, a + 1, LS_ACTION_RECOMPUTE, 0)) {
    const int body = action(program, a)->body;
    ls_instruction *first = at(program, program->bodies.items[body].first);
    const int kept =
        kept_by_earlier_layer(program, action(program, a)->action.segment, first->out[0]);
    if (kept < 0) continue;
    first->out[0] = kept;
    add_buffer_group(program, body,
                     program->storages.items[program->values.items[kept].storage].buffer_group);
    return 1;
  }
  return 0;
}

static const ls_fault_room gpipe = {.pp = 2, .schedule = "gpipe"};
static const ls_fault_room interleaved = {.pp = 2, .schedule = "interleaved"};
static const ls_fault_room one_f_one_b = {.pp = 2, .schedule = "1f1b"};
static const ls_fault_room zbh1 = {.pp = 2, .schedule = "zbh1"};
static const ls_fault_room zbv = {.pp = 2, .schedule = "zbv"};
static const ls_fault_room full_gpipe = {.pp = 2, .schedule = "gpipe", .recompute = LS_EVERY_OP};
static const ls_fault_room full = {.recompute = LS_EVERY_OP};
static const ls_fault_room gathering = {.pp = 2, .schedule = "gpipe", .gather = LS_WHEN_MICROBATCH};
static const ls_fault_room reducing = {.pp = 2, .schedule = "zbh1", .reduce = LS_WHEN_MICROBATCH};

/* name, change, model, dp_replicate, dp_shard, tp, zero, sequence parallel, microbatches, dtype,
 * the rest */
const ls_fault ls_pipeline_faults[] = {
    {"messages of two microbatches received in each other's place", receives_change_places, GPT2, 1,
     1, 1, 1, false, 4, LS_F64, &gpipe},
    {"a chunk receives what is for the stage's other chunk", receives_change_places, LLAMA_FREE, 1,
     1, 1, 1, false, 1, LS_F64, &interleaved},
    {"stage sends two microbatches in the other order", sends_out_of_order, GPT2, 1, 1, 1, 1, false,
     4, LS_F64, &gpipe},
    {"stage sends two gradients in the other order", sends_back_out_of_order, GPT2, 1, 1, 1, 1,
     false, 4, LS_F64, &gpipe},
    {"message taken before it is made", sent_too_early, GPT2, 1, 1, 1, 1, false, 2, LS_F64,
     &one_f_one_b},
    {"sends not awaited", sent_not_awaited, LLAMA_TIED, 1, 1, 1, 1, false, 12, LS_F64, &gpipe},
    {"weight half of a microbatch's backward left out", weight_half_left_out, GPT2, 1, 1, 1, 1,
     false, 2, LS_F64, &zbh1},
    {"weight half runs before the input half", weight_half_too_early, GPT2, 1, 1, 1, 1, false, 2,
     LS_F64, &zbh1},
    {"first weight half adds to the last step's", first_weight_half_adds, GPT2, 1, 1, 1, 1, false,
     2, LS_F64, &zbv},
    {"second microbatch overwrites the first's gradient", second_microbatch_overwrites, GPT2, 1, 1,
     1, 1, false, 2, LS_F64, &one_f_one_b},
    {"microbatches under way keep in one place", microbatches_share_memory, GPT2, 1, 1, 1, 1, false,
     4, LS_F64, &one_f_one_b},
    {"gradient of the tied embedding not added over its stages", tied_gradients_not_added, GPT2, 1,
     1, 1, 1, false, 2, LS_F64, &one_f_one_b},
    {"tied embedding updated apart on its stages", tied_updated_apart, GPT2, 1, 1, 1, 1, false, 2,
     LS_F64, &one_f_one_b},
    {"norm of one stage", norm_of_one_stage, LLAMA_FREE, 1, 1, 1, 1, false, 2, LS_F64,
     &one_f_one_b},
    {"loss counted on two stages", loss_of_two_stages, GPT2, 1, 1, 1, 1, false, 2, LS_F64,
     &one_f_one_b},
    {"made again from another microbatch", of_the_first_microbatch, GPT2, 1, 1, 1, 1, false, 4,
     LS_F64, &full_gpipe},
    {"second microbatch not made again", not_made_again, GPT2, 1, 1, 1, 1, false, 2, LS_F64, &full},
    {"made again after backward", made_again_too_late, GPT2, 1, 1, 1, 1, false, 2, LS_F64, &full},
    {"made again in what another layer keeps", writes_what_another_layer_keeps, LLAMA_TIED, 1, 1, 1,
     1, false, 1, LS_F64, &full},
    {"weights not gathered for the second microbatch", second_microbatch_not_gathered, GPT2, 1, 2,
     1, 3, false, 3, LS_F64, &gathering},
    {"gradients reduced before their weight half", reduced_before_the_weight_half, GPT2, 1, 2, 1, 2,
     false, 3, LS_F64, &reducing},
};

const int ls_pipeline_fault_count = (int)(sizeof ls_pipeline_faults / sizeof *ls_pipeline_faults);
