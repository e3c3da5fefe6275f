#include "support/mutate.h"

#include <string.h>

#include "base/random.h"

enum { TRIES = 200 };

typedef struct mutator {
  ls_program *program;
  uint64_t seed, drawn;
  char *what;
} mutator;

static int draw(mutator *m, int below) {
  return below > 0 ? (int)(ls_random_bits(m->seed, 41, m->drawn++) % (uint64_t)below) : 0;
}

static ls_instruction *instruction_at(const mutator *m, int i) {
  return &m->program->instructions.items[i];
}

static void say(mutator *m, const char *what, int index) {
  snprintf(m->what, 160, "stage %d %s %d", m->program->stage, what, index);
}

static void say_action(mutator *m, int a) {
  snprintf(m->what, 160, "stage %d action %d (%s)", m->program->stage, a,
           ls_action_name(&m->program->actions.items[a].action));
}

static void say_instruction(mutator *m, int i) {
  const ls_instruction *each = instruction_at(m, i);
  const char *name = each->collective != LS_COLLECTIVE_NONE ? ls_collective_name(each->collective)
                                                            : ls_op_name(each->kind);
  const int value = each->outputs ? each->out[0] : each->in[0];
  snprintf(m->what, 160, "stage %d instruction %d (%s%s of %.80s)", m->program->stage, i,
           ls_phase_name(each->phase), name, m->program->values.items[value].name);
}

/* An instruction that satisfies `wanted` (NULL: any); -1: none was found. */
static int pick(mutator *m, bool (*wanted)(const ls_instruction *)) {
  const int count = m->program->instructions.count;
  if (!count) return -1;
  const int start = draw(m, count);
  for (int n = 0; n < count; n++) {
    const int i = (start + n) % count;
    if (wanted && !wanted(instruction_at(m, i))) continue;
    say_instruction(m, i);
    return i;
  }
  return -1;
}

static ls_body *body_of(const mutator *m, int i) {
  for (int b = 0; b < m->program->bodies.count; b++) {
    ls_body *body = &m->program->bodies.items[b];
    if (i >= body->first && i < body->first + body->count) return body;
  }
  ls_panic("instruction %d is in no body", i);
}

/* The latest instruction at or before `i` in its body that is on the queue; -1: none. */
static int earlier_on(const mutator *m, const ls_body *body, int i, ls_queue queue) {
  while (i >= body->first && instruction_at(m, i)->queue != queue) i--;
  return i >= body->first ? i : -1;
}

static void move_bodies(mutator *m, int i, int by) {
  for (int b = 0; b < m->program->bodies.count; b++) {
    ls_body *body = &m->program->bodies.items[b];
    if (body->first > i)
      body->first += by;
    else if (body->first + body->count > i)
      body->count += by;
  }
}

static void drop_at(mutator *m, int i) {
  ls_program *program = m->program;
  const ls_body *body = body_of(m, i);
  for (int later = i + 1; later < body->first + body->count; later++) {
    ls_instruction *each = instruction_at(m, later);
    if (each->wait == i) each->wait = earlier_on(m, body, i - 1, instruction_at(m, i)->queue);
  }
  for (int j = 0; j < program->instructions.count; j++)
    if (instruction_at(m, j)->wait > i) instruction_at(m, j)->wait--;
  memmove(instruction_at(m, i), instruction_at(m, i + 1),
          (size_t)(program->instructions.count - 1 - i) * sizeof(ls_instruction));
  program->instructions.count--;
  move_bodies(m, i, -1);
}

static bool drop_instruction(mutator *m) {
  const int i = pick(m, NULL);
  if (i >= 0) drop_at(m, i);
  return i >= 0;
}

void ls_drop_instruction(ls_program *program, int instruction, char what[160]) {
  mutator m = {.program = program, .what = what};
  say_instruction(&m, instruction);
  drop_at(&m, instruction);
}

static bool double_instruction(mutator *m) {
  const int i = pick(m, NULL);
  if (i < 0) return false;
  ls_program *program = m->program;
  LS_APPEND(program->arena, &program->instructions);
  memmove(instruction_at(m, i + 1), instruction_at(m, i),
          (size_t)(program->instructions.count - 1 - i) * sizeof(ls_instruction));
  for (int j = 0; j < program->instructions.count; j++)
    if (instruction_at(m, j)->wait > i) instruction_at(m, j)->wait++;
  move_bodies(m, i, 1);
  return true;
}

static bool swap_instructions(mutator *m) {
  for (int t = 0; t < TRIES; t++) {
    const int i = pick(m, NULL);
    if (i < 0) return false;
    const ls_body *body = body_of(m, i);
    if (i + 1 >= body->first + body->count) continue;
    const ls_instruction first = *instruction_at(m, i);
    *instruction_at(m, i) = *instruction_at(m, i + 1);
    *instruction_at(m, i + 1) = first;
    for (int j = i + 2; j < body->first + body->count; j++) {
      int *wait = &instruction_at(m, j)->wait;
      if (*wait == i)
        *wait = i + 1;
      else if (*wait == i + 1)
        *wait = i;
    }
    return true;
  }
  return false;
}

static bool is_transfer(const ls_instruction *each) {
  return each->collective != LS_COLLECTIVE_NONE && !ls_collective_is_of_group(each->collective);
}
static bool is_collective(const ls_instruction *each) {
  return each->collective != LS_COLLECTIVE_NONE;
}
static bool is_reduction(const ls_instruction *each) {
  return each->collective == LS_ALL_REDUCE || each->collective == LS_REDUCE_SCATTER;
}
static bool is_inside(const ls_instruction *each) {
  return is_collective(each) && !is_transfer(each);
}
static bool has_peer(const ls_instruction *each) {
  return each->peer >= 0;
}
static bool has_output(const ls_instruction *each) {
  return each->outputs > 0;
}
static bool has_input(const ls_instruction *each) {
  return each->inputs > 0;
}
static bool adds(const ls_instruction *each) {
  return each->outputs > 0 && each->write[0] != LS_WRITE;
}
static bool has_wait(const ls_instruction *each) {
  return each->wait >= 0;
}
static bool is_norm(const ls_instruction *each) {
  return each->collective == LS_COLLECTIVE_NONE && each->kind == LS_OP_SQUARED_NORM;
}
static bool has_settings(const ls_instruction *each) {
  return each->collective == LS_COLLECTIVE_NONE &&
         (each->attributes.rope_pairs != 0 || each->attributes.head_dim != 0 ||
          each->attributes.sequence != 0 || each->attributes.activation ||
          each->attributes.window != 0 || each->attributes.epsilon != 0 ||
          each->attributes.weight != 0 || each->attributes.clip != 0 ||
          each->attributes.softmax_scale != 0);
}

static int *operand(mutator *m, int i, bool *is_output) {
  ls_instruction *each = instruction_at(m, i);
  const int which = draw(m, each->inputs + each->outputs);
  *is_output = which >= each->inputs;
  return *is_output ? &each->out[which - each->inputs] : &each->in[which];
}

static int copy_value(mutator *m, int value) {
  const ls_value copy = m->program->values.items[value];
  *LS_APPEND(m->program->arena, &m->program->values) = copy;
  return m->program->values.count - 1;
}

/* Some elements forward or back, one operand of one instruction. */
static bool shift_operand(mutator *m) {
  const int i = pick(m, NULL);
  if (i < 0) return false;
  bool is_output;
  int *at = operand(m, i, &is_output);
  *at = copy_value(m, *at);
  ls_value *value = &m->program->values.items[*at];
  const int64_t by = (draw(m, 2) ? 1 : -1) * (int64_t)(1 + draw(m, 40));
  if (value->flat_elements)
    value->flat_offset += by;
  else
    value->offset += by * (int64_t)ls_dtype_bytes(value->dtype);
  return true;
}

/* Everything that goes by this value. */
static bool shift_value(mutator *m) {
  const int v = draw(m, m->program->values.count);
  ls_value *value = &m->program->values.items[v];
  const int64_t by = (draw(m, 2) ? 1 : -1) * (int64_t)(1 + draw(m, 40));
  if (value->flat_elements)
    value->flat_offset += by;
  else
    value->offset += by * (int64_t)ls_dtype_bytes(value->dtype);
  say(m, "value", v);
  return true;
}

static bool shift_storage(mutator *m) {
  const int s = draw(m, m->program->storages.count);
  m->program->storages.items[s].offset += (draw(m, 2) ? 256 : -256) * (1 + draw(m, 4));
  say(m, "storage", s);
  return true;
}

static bool shift_live_interval(mutator *m) {
  const int i = draw(m, m->program->live_intervals.count);
  m->program->live_intervals.items[i].offset += (draw(m, 2) ? 256 : -256) * (1 + draw(m, 8));
  say(m, "live_interval", i);
  return true;
}

static bool retarget_peer(mutator *m) {
  const int i = pick(m, has_peer), stages = ls_mesh_stages(&m->program->mesh);
  if (i < 0 || stages < 3) return false;
  int *peer = &instruction_at(m, i)->peer;
  *peer = (*peer + 1 + draw(m, stages - 1)) % stages;
  return true;
}

static bool change_axes(mutator *m) {
  const int i = pick(m, is_inside);
  if (i < 0) return false;
  ls_instruction *each = instruction_at(m, i);
  const ls_axes active = ls_mesh_active(&m->program->mesh, ls_mesh_all(&m->program->mesh)),
                before = each->axes;
  for (int t = 0; t < TRIES && each->axes == before; t++)
    each->axes = (before ^ 1u << draw(m, LS_MESH_ROWS)) & active;
  return each->axes != before;
}

static bool change_count(mutator *m) {
  const int i = pick(m, is_collective);
  if (i < 0) return false;
  int64_t *count = &instruction_at(m, i)->count;
  const int64_t before = *count;
  const int how = draw(m, 3);
  *count += how == 0 ? 1 : (how == 1 ? -1 : -(*count / 2));
  return *count != before;
}

static bool change_reduce(mutator *m) {
  const int i = pick(m, is_reduction);
  if (i < 0) return false;
  ls_reduce *reduce = &instruction_at(m, i)->reduce;
  *reduce = *reduce == LS_SUM ? LS_MAX : LS_SUM;
  return true;
}

static bool change_write(mutator *m) {
  const int i = pick(m, draw(m, 2) ? adds : has_output);
  if (i < 0) return false;
  ls_write_mode *mode = &instruction_at(m, i)->write[draw(m, instruction_at(m, i)->outputs)];
  *mode = (ls_write_mode)(((int)*mode + 1 + draw(m, 2)) % 3);
  return true;
}

static bool alike(const ls_value *a, const ls_value *b) {
  return a->dtype == b->dtype && a->ndim == b->ndim && !a->flat_elements == !b->flat_elements &&
         memcmp(a->global, b->global, sizeof a->global) == 0;
}

/* Another value, mostly of the same type and sizes. */
static int other_value(mutator *m, int value) {
  const int count = m->program->values.count;
  const bool any = draw(m, 4) == 0;
  const int start = draw(m, count);
  for (int n = 0; n < count; n++) {
    const int v = (start + n) % count;
    if (v != value &&
        (any || alike(&m->program->values.items[v], &m->program->values.items[value])))
      return v;
  }
  return -1;
}

static bool retarget(mutator *m, bool output) {
  for (int t = 0; t < TRIES; t++) {
    const int i = pick(m, output ? has_output : has_input);
    if (i < 0) return false;
    ls_instruction *each = instruction_at(m, i);
    int *at = output ? &each->out[draw(m, each->outputs)] : &each->in[draw(m, each->inputs)];
    const int other = other_value(m, *at);
    if (other < 0) continue;
    /* The body has the buffer group of the new operand only if it used it before. */
    const ls_body *body = body_of(m, i);
    const int buffer_group =
        m->program->storages.items[m->program->values.items[other].storage].buffer_group;
    for (int f = 0; f < body->buffer_groups.count; f++)
      if (body->buffer_groups.items[f] == buffer_group) {
        *at = other;
        return true;
      }
  }
  return false;
}

static bool retarget_input(mutator *m) {
  return retarget(m, false);
}
static bool retarget_output(mutator *m) {
  return retarget(m, true);
}

void ls_refresh_lives(ls_program *program) {
  for (int i = 0; i < program->live_intervals.count; i++) {
    ls_live_interval *live_interval = &program->live_intervals.items[i];
    const bool work =
        ls_pool_is_work(program->buffer_groups.items[live_interval->buffer_group].pool);
    live_interval->first = work ? program->actions.count : 0;
    live_interval->last = work ? -1 : program->actions.count - 1;
  }
  for (int a = 0; a < program->actions.count; a++) {
    const ls_program_action *action = &program->actions.items[a];
    const ls_body *body = &program->bodies.items[action->body];
    for (int f = 0; f < body->buffer_groups.count; f++) {
      ls_live_interval *live_interval = &program->live_intervals.items[action->live_intervals[f]];
      if (a < live_interval->first) live_interval->first = a;
      if (a > live_interval->last) live_interval->last = a;
    }
  }
}

static void remove_action(mutator *m, int a) {
  say_action(m, a);
  ls_program_action *items = m->program->actions.items;
  memmove(&items[a], &items[a + 1], (size_t)(m->program->actions.count - a - 1) * sizeof *items);
  m->program->actions.count--;
  m->program->replay_boundary -= a < m->program->replay_boundary;
  ls_refresh_lives(m->program);
}

static int pick_action(mutator *m, int first, int second) {
  const int count = m->program->actions.count, start = draw(m, count);
  for (int n = 0; n < count; n++) {
    const int a = (start + n) % count;
    const int kind = ls_action_sort(&m->program->actions.items[a].action);
    if (kind == first || kind == second) return a;
  }
  return -1;
}

static bool drop_action(mutator *m) {
  remove_action(m, draw(m, m->program->actions.count));
  return true;
}

static bool drop_sent(mutator *m) {
  const int a = pick_action(m, LS_WAIT_OF(SEND, ACTIVATIONS), LS_WAIT_OF(SEND, GRADIENTS));
  if (a < 0) return false;
  remove_action(m, a);
  return true;
}

/* The beginning or the end of a transfer. */
static bool drop_half(mutator *m) {
  const int count = m->program->actions.count, start = draw(m, count);
  for (int n = 0; n < count; n++) {
    const int a = (start + n) % count;
    const ls_program_action *each = &m->program->actions.items[a];
    if (!ls_action_transfers(&each->action) || !m->program->bodies.items[each->body].count)
      continue;
    remove_action(m, a);
    return true;
  }
  return false;
}

static bool double_action(mutator *m) {
  ls_program *program = m->program;
  const int a = draw(m, program->actions.count);
  LS_APPEND(program->arena, &program->actions);
  ls_program_action *items = program->actions.items;
  memmove(&items[a + 1], &items[a], (size_t)(program->actions.count - 1 - a) * sizeof *items);
  program->replay_boundary += a < program->replay_boundary;
  ls_refresh_lives(m->program);
  say_action(m, a);
  return true;
}

/* One action to another place near by. */
static void move_action(mutator *m, int from, int to) {
  ls_program_action *items = m->program->actions.items;
  const ls_program_action moved = items[from];
  for (int a = from; a < to; a++) items[a] = items[a + 1];
  for (int a = from; a > to; a--) items[a] = items[a - 1];
  items[to] = moved;
  ls_refresh_lives(m->program);
  snprintf(m->what, 160, "stage %d action %d (%s) to %d", m->program->stage, from,
           ls_action_name(&moved.action), to);
}

static int near_by(mutator *m, int a, int most) {
  const int count = m->program->actions.count;
  const int to = a + (draw(m, 2) ? 1 : -1) * (1 + draw(m, most));
  return to < 0 ? 0 : (to >= count ? count - 1 : to);
}

static bool swap_actions(mutator *m) {
  const int a = draw(m, m->program->actions.count), to = near_by(m, a, 1);
  if (to == a) return false;
  move_action(m, a, to);
  return true;
}

static bool move_receive(mutator *m) {
  const int a = pick_action(m, LS_WAIT_OF(RECEIVE, ACTIVATIONS), LS_WAIT_OF(RECEIVE, GRADIENTS));
  if (a < 0) return false;
  const int to = near_by(m, a, 12);
  if (to == a) return false;
  move_action(m, a, to);
  return true;
}

static bool move_boundary(mutator *m) {
  const int before = m->program->replay_boundary;
  if (before < 0) return false;
  m->program->replay_boundary = near_by(m, before, 6);
  snprintf(m->what, 160, "stage %d cut from %d to %d", m->program->stage, before,
           m->program->replay_boundary);
  return m->program->replay_boundary != before;
}

static bool flip_first(mutator *m) {
  for (int t = 0; t < TRIES; t++) {
    const int a = draw(m, m->program->actions.count);
    ls_program_action *action = &m->program->actions.items[a];
    const ls_body *body = &m->program->bodies.items[action->body];
    const int end = action->action.kind == LS_ACTION_WAIT ? body->first : body->first + body->count;
    for (int i = body->first; i < end; i++) /* what ends a transfer writes nothing more */
      for (int o = 0; o < instruction_at(m, i)->outputs; o++)
        if (instruction_at(m, i)->write[o] == LS_ADD_AFTER_FIRST) {
          action->first = !action->first;
          say_action(m, a);
          return true;
        }
  }
  return false;
}

static bool change_microbatch(mutator *m) {
  const int count = m->program->layout.microbatches;
  for (int t = 0; t < TRIES && count > 1; t++) {
    const int a = draw(m, m->program->actions.count);
    int *microbatch = &m->program->actions.items[a].action.microbatch;
    if (*microbatch < 0) continue;
    *microbatch = (*microbatch + 1 + draw(m, count - 1)) % count;
    say_action(m, a);
    return true;
  }
  return false;
}

/* The action works on another live interval of one of its buffer groups. */
static bool rebind(mutator *m) {
  ls_program *program = m->program;
  for (int t = 0; t < TRIES; t++) {
    const int a = draw(m, program->actions.count);
    ls_program_action *action = &program->actions.items[a];
    const ls_body *body = &program->bodies.items[action->body];
    if (!body->buffer_groups.count) continue;
    const int f = draw(m, body->buffer_groups.count),
              start = draw(m, program->live_intervals.count);
    for (int n = 0; n < program->live_intervals.count; n++) {
      const int i = (start + n) % program->live_intervals.count;
      if (program->live_intervals.items[i].buffer_group != body->buffer_groups.items[f] ||
          i == action->live_intervals[f])
        continue;
      int *live_intervals = LS_NEW_ARRAY(program->arena, int, body->buffer_groups.count);
      memcpy(live_intervals, action->live_intervals,
             (size_t)body->buffer_groups.count * sizeof *live_intervals);
      live_intervals[f] = i;
      action->live_intervals = live_intervals;
      ls_refresh_lives(m->program);
      say_action(m, a);
      return true;
    }
  }
  return false;
}

static bool change_wait(mutator *m) {
  const int i = pick(m, draw(m, 4) ? has_wait : NULL);
  if (i < 0) return false;
  const ls_body *body = body_of(m, i);
  int *wait = &instruction_at(m, i)->wait;
  const int before = *wait, to = body->first + draw(m, body->count + 1);
  *wait = draw(m, 2) ? -1 : to;
  return *wait != before;
}

static bool change_placement(mutator *m) {
  const int v = draw(m, m->program->values.count);
  ls_value *value = &m->program->values.items[v];
  const ls_axes active = ls_mesh_active(&m->program->mesh, ls_mesh_inside(&m->program->mesh));
  for (int t = 0; t < TRIES && active; t++) {
    const int axis = draw(m, LS_MESH_ROWS);
    if (!(active >> axis & 1)) continue;
    const ls_place_kind kind = value->placement.on[axis].kind;
    value->placement.on[axis] =
        (ls_place){.kind = (ls_place_kind)(((int)kind + 1 + draw(m, 2)) % 3)};
    say(m, "value", v);
    return true;
  }
  return false;
}

static bool change_first_only(mutator *m) {
  const int i = pick(m, draw(m, 2) ? is_norm : NULL);
  const ls_axes active = ls_mesh_active(&m->program->mesh, ls_mesh_inside(&m->program->mesh));
  for (int t = 0; t < TRIES && active && i >= 0; t++) {
    const int axis = draw(m, LS_MESH_ROWS);
    if (!(active >> axis & 1)) continue;
    instruction_at(m, i)->first_only ^= 1u << axis;
    return true;
  }
  return false;
}

static bool change_settings(mutator *m) {
  const int i = pick(m, has_settings);
  if (i < 0) return false;
  ls_attributes *settings = &instruction_at(m, i)->attributes;
  settings->activation = settings->activation == LS_GELU_TANH ? LS_GELU_ERF : LS_GELU_TANH;
  settings->window++;
  if (settings->head_dim % 2 == 0) settings->head_dim /= 2;
  if (settings->rope_pairs) settings->rope_scale += 1;
  settings->epsilon *= 2;
  settings->weight *= 2;
  settings->clip *= 2;
  settings->softmax_scale *= 2;
  return true;
}

static bool change_collective(mutator *m) {
  const int i = pick(m, is_inside);
  if (i < 0) return false;
  ls_collective *collective = &instruction_at(m, i)->collective;
  *collective = (ls_collective)((int)LS_ALL_REDUCE +
                                ((int)*collective - (int)LS_ALL_REDUCE + 1 + draw(m, 2)) % 3);
  return true;
}

/* A mean where a sum belongs, and the like: another op of the same form. */
static bool change_op(mutator *m) {
  for (int t = 0; t < TRIES; t++) {
    const int i = pick(m, NULL), kind = draw(m, LS_OP_COUNT);
    if (i < 0) return false;
    ls_instruction *each = instruction_at(m, i);
    if (is_collective(each) || kind == (int)each->kind ||
        strcmp(ls_op_row((ls_op_kind)kind)->labels, ls_op_row(each->kind)->labels) != 0)
      continue;
    each->kind = (ls_op_kind)kind;
    return true;
  }
  return false;
}

/* Another row, or one more or fewer, of a value that is some rows of a tensor. */
static bool change_rows(mutator *m) {
  const int count = m->program->values.count, start = draw(m, count);
  for (int n = 0; n < count; n++) {
    const int v = (start + n) % count;
    ls_value *value = &m->program->values.items[v];
    if (!value->rows) continue;
    const int by = draw(m, 2) ? 1 : -1;
    if (draw(m, 2))
      value->first_row += by;
    else
      value->rows += by;
    say(m, "value", v);
    return true;
  }
  return false;
}

/* Name, function, and whether one may change nothing. */
enum { NEVER, AT_TIMES };
#define MUTATIONS(X)                                        \
  X("drop an instruction", drop_instruction, AT_TIMES)      \
  X("double an instruction", double_instruction, AT_TIMES)  \
  X("swap two neighbours", swap_instructions, AT_TIMES)     \
  X("shift an operand", shift_operand, AT_TIMES)            \
  X("shift a value", shift_value, AT_TIMES)                 \
  X("shift a storage", shift_storage, AT_TIMES)             \
  X("shift a live interval", shift_live_interval, AT_TIMES) \
  X("retarget a peer", retarget_peer, NEVER)                \
  X("change axes", change_axes, NEVER)                      \
  X("change a count", change_count, NEVER)                  \
  X("change a reduction", change_reduce, NEVER)             \
  X("change a write mode", change_write, AT_TIMES)          \
  X("retarget an input", retarget_input, AT_TIMES)          \
  X("retarget an output", retarget_output, AT_TIMES)        \
  X("drop an action", drop_action, AT_TIMES)                \
  X("drop a sent", drop_sent, NEVER)                        \
  X("drop half a transfer", drop_half, NEVER)               \
  X("double an action", double_action, AT_TIMES)            \
  X("swap two actions", swap_actions, AT_TIMES)             \
  X("move a receive", move_receive, AT_TIMES)               \
  X("move the replay boundary", move_boundary, AT_TIMES)    \
  X("flip first", flip_first, NEVER)                        \
  X("change a microbatch", change_microbatch, AT_TIMES)     \
  X("rebind a live interval", rebind, NEVER)                \
  X("change a wait", change_wait, AT_TIMES)                 \
  X("change a placement", change_placement, AT_TIMES)       \
  X("change who counts", change_first_only, NEVER)          \
  X("change settings", change_settings, AT_TIMES)           \
  X("change a collective", change_collective, NEVER)        \
  X("change an op", change_op, AT_TIMES)                    \
  X("change rows", change_rows, AT_TIMES)

const char *const ls_mutation_names[] = {
#define NAME_OF(name, function, harmless) name,
    MUTATIONS(NAME_OF)
#undef NAME_OF
};

const bool ls_mutation_harmless[] = {
#define HARMLESS_OF(name, function, harmless) harmless,
    MUTATIONS(HARMLESS_OF)
#undef HARMLESS_OF
};

static bool (*const functions[])(mutator *) = {
#define FUNCTION_OF(name, function, harmless) function,
    MUTATIONS(FUNCTION_OF)
#undef FUNCTION_OF
};

const int ls_mutation_count = sizeof functions / sizeof *functions;

bool ls_mutate(ls_program *program, int kind, uint64_t seed, char what[160]) {
  mutator m = {.program = program, .seed = seed, .what = what};
  *what = 0;
  return functions[kind](&m);
}

/* Whether all that the instruction must come after is done: a mutant may wait for what comes later,
 * or is nowhere, and then only its own queue counts. */
static bool may_start(const ls_body *body, const ls_instruction *each, int at, const bool *done) {
  const int wait = each->wait;
  return wait < body->first || wait >= at || done[wait - body->first];
}

static void delay_body(mutator *m, const ls_body *body, ls_instruction *made, bool *done) {
  const ls_instruction *items = instruction_at(m, body->first);
  int next[LS_QUEUE_COUNT] = {0};
  memset(done, 0, (size_t)body->count * sizeof *done);
  for (int n = 0; n < body->count; n++) {
    int chosen = -1;
    const int late = draw(m, 4) ? 0 : 1; /* the queue that goes second, mostly one of them */
    for (int turn = 0; turn < LS_QUEUE_COUNT && chosen < 0; turn++) {
      const int queue = turn == 2 ? LS_QUEUE_MOVE : turn ? late : !late;
      while (next[queue] < body->count &&
             (done[next[queue]] || items[next[queue]].queue != (ls_queue)queue))
        next[queue]++;
      if (next[queue] < body->count &&
          may_start(body, &items[next[queue]], body->first + next[queue], done))
        chosen = next[queue];
    }
    LS_ASSERT(chosen >= 0);
    done[chosen] = true;
    made[n] = items[chosen];
    made[n].wait = -1; /* as it now stands, nothing is left to wait for */
  }
  memcpy(instruction_at(m, body->first), made, (size_t)body->count * sizeof *made);
}

void ls_delay_queues(ls_program *program, uint64_t seed) {
  mutator m = {.program = program, .seed = seed};
  const int count = program->instructions.count;
  ls_instruction *made = LS_NEW_ARRAY(program->arena, ls_instruction, count + 1);
  bool *done = LS_NEW_ARRAY(program->arena, bool, count + 1);
  for (int b = 0; b < program->bodies.count; b++)
    delay_body(&m, &program->bodies.items[b], made, done);
}
