/* Programs of many microbatches by proved ones of few: what is in between is what was before,
 * period for period. Memory is another matter, since lives are placed anew: that is proved of the
 * many.
 *
 * Of an action it counts what it does, the microbatch, and for each buffer group how long ago it
 * was last given the same live interval. If the many's list is that of the few with periods put in,
 * each of which is like the one before it, then all that is interpreted there finds what the few's
 * finds a period before, of a later microbatch. */
#include <string.h>

#include "check/proof.h"

/* A program's actions but those that count tokens, and by buffer group of each which of them had
 * its live interval before; -1: none, or memory that lasts. */
typedef struct trail {
  const ls_program *program;
  int *action, **before;
  int count;
} trail;

static const ls_program_action *action_of(const trail *of, int at) {
  return &of->program->actions.items[of->action[at]];
}

/* The live interval that a buffer group has wherever a microbatch uses it; -1: it has many. */
static int lasting(const ls_program *program, int group, int microbatch) {
  const ls_buffer_group *about = &program->buffer_groups.items[group];
  if (ls_pool_is_work(about->pool)) return -1;
  const bool input = about->pool == LS_POOL_INPUT && microbatch > 0;
  return about->live_interval + (input ? microbatch : 0);
}

enum { NEVER = -1, BY_COUNT = -2 };

/* Notes that an action has its live intervals; false: they are not what they must be. */
static bool note_action(trail *to, int a, int *last, int now, int *before) {
  const ls_program_action *each = &to->program->actions.items[a];
  const ls_body *body = &to->program->bodies.items[each->body];
  for (int g = 0; g < body->buffer_groups.count; g++) {
    const int interval = each->live_intervals[g];
    const int one = lasting(to->program, body->buffer_groups.items[g], each->action.microbatch);
    if (before) before[g] = one >= 0 ? NEVER : last[interval];
    if (one >= 0 ? interval != one : last[interval] == BY_COUNT) return false;
    if (!before && one < 0 && last[interval] != NEVER) return false;
    if (one < 0) last[interval] = now;
  }
  return true;
}

/* false: tokens are not counted one microbatch after the other, or what counts them shares memory
 * with more. */
static bool make_trail(ls_arena *arena, const ls_program *program, trail *made) {
  const int actions = program->actions.count, intervals = program->live_intervals.count;
  int *last = LS_NEW_ARRAY(arena, int, intervals + 1);
  for (int i = 0; i < intervals; i++) last[i] = NEVER;
  *made = (trail){program, LS_NEW_ARRAY(arena, int, actions + 1),
                  LS_NEW_ARRAY(arena, int *, actions + 1), 0};
  int counted = 0, first = -1;
  for (int a = 0; a < actions; a++) {
    const ls_program_action *each = &program->actions.items[a];
    if (each->action.kind == LS_ACTION_COUNT) {
      if (!counted) first = a;
      if (each->action.microbatch != counted || a != first + counted ||
          each->body != program->actions.items[first].body || each->first != (counted == 0) ||
          !note_action(made, a, last, BY_COUNT, NULL))
        return false;
      counted++;
      continue;
    }
    const int groups = program->bodies.items[each->body].buffer_groups.count;
    int *before = made->before[made->count] = LS_NEW_ARRAY(arena, int, groups + 1);
    if (!note_action(made, a, last, made->count, before)) return false;
    made->action[made->count++] = a;
  }
  return counted == program->layout.microbatches;
}

static bool same_action(const trail *a, int at, const trail *b, int other, int later) {
  const ls_program_action *x = action_of(a, at), *y = action_of(b, other);
  const int m = x->action.microbatch;
  return x->body == y->body && x->first == y->first && x->action.kind == y->action.kind &&
         x->action.transfer == y->action.transfer && x->action.payload == y->action.payload &&
         x->action.segment == y->action.segment && x->action.unit == y->action.unit &&
         y->action.microbatch == (m < 0 ? m : m + later);
}

/* Whether the action that used this one's memory before it is `later` actions on in the other list.
 * What no action uses in between may have the same one in both, before `until`. */
static bool same_before(const trail *a, int at, const trail *b, int other, int later, int until) {
  const int groups = a->program->bodies.items[action_of(a, at)->body].buffer_groups.count;
  for (int g = 0; g < groups; g++) {
    const int x = a->before[at][g], y = b->before[other][g];
    if (x < 0 ? y != x : y != x + later && !(y == x && x < until)) return false;
  }
  return true;
}

/* Whether a list is another with so many periods put in. */
static bool goes_on(const trail *few, const trail *many, int period, int times) {
  const int added = many->count - few->count, count = added / times;
  int same = 0, end = few->count;
  if (added < 0 || added % times) return false;
  while (same < few->count && same_action(few, same, many, same, 0) &&
         same_before(few, same, many, same, 0, 0))
    same++;
  while (end > 0 && same_action(few, end - 1, many, end - 1 + added, times * period) &&
         same_before(few, end - 1, many, end - 1 + added, added, same))
    end--;
  if (end > same - 2 * count) return false;
  for (int i = end; i < same + added - count; i++)
    if (!same_action(many, i, many, i + count, period) ||
        (i >= end + count && !same_before(many, i, many, i + count, count, 0)))
      return false;
  return true;
}

/* Lists of what has names, or reasons, that nobody looks at here. */
#define SAME_BUT(a, b, list, text)                                                 \
  do {                                                                             \
    if ((a)->list.count != (b)->list.count) return false;                          \
    for (int i = 0; i < (a)->list.count; i++) {                                    \
      __typeof__(*(a)->list.items) x = (a)->list.items[i], y = (b)->list.items[i]; \
      x.text = y.text = NULL;                                                      \
      if (memcmp(&x, &y, sizeof x) != 0) return false;                             \
    }                                                                              \
  } while (0)

static bool same_memory(const ls_program *a, const ls_program *b) {
  if (a->buffer_groups.count != b->buffer_groups.count) return false;
  for (int g = 0; g < a->buffer_groups.count; g++) {
    const ls_buffer_group *x = &a->buffer_groups.items[g], *y = &b->buffer_groups.items[g];
    if (x->pool != y->pool || x->bytes != y->bytes) return false;
  }
  SAME_BUT(a, b, storages, name);
  SAME_BUT(a, b, values, name);
  if (a->parameter_count != b->parameter_count) return false;
  for (int p = 0; p < a->parameter_count; p++) {
    ls_program_parameter x = a->parameters[p], y = b->parameters[p];
    x.name = y.name = NULL;
    if (memcmp(&x, &y, sizeof x) != 0) return false;
  }
  return true;
}

static bool same_instruction(const ls_instruction *a, const ls_instruction *b) {
  return a->collective == b->collective && a->phase == b->phase && a->kind == b->kind &&
         a->axes == b->axes && a->reduce == b->reduce && a->peer == b->peer &&
         a->count == b->count && a->unit == b->unit && a->queue == b->queue && a->wait == b->wait &&
         a->first_only == b->first_only && a->inputs == b->inputs && a->outputs == b->outputs &&
         memcmp(a->in, b->in, sizeof *a->in * (size_t)a->inputs) == 0 &&
         memcmp(a->out, b->out, sizeof *a->out * (size_t)a->outputs) == 0 &&
         memcmp(a->write, b->write, sizeof *a->write * (size_t)a->outputs) == 0 &&
         ls_attributes_equal(&a->attributes, &b->attributes);
}

static bool same_list(const int *a, int count, const int *b, int other) {
  return count == other && (!count || memcmp(a, b, sizeof *a * (size_t)count) == 0);
}

static bool same_code(const ls_program *a, const ls_program *b) {
  if (a->instructions.count != b->instructions.count) return false;
  for (int i = 0; i < a->instructions.count; i++)
    if (!same_instruction(&a->instructions.items[i], &b->instructions.items[i])) return false;
  if (a->bodies.count != b->bodies.count) return false;
  for (int i = 0; i < a->bodies.count; i++) {
    const ls_body *x = &a->bodies.items[i], *y = &b->bodies.items[i];
    if (x->first != y->first || x->count != y->count ||
        !same_list(x->buffer_groups.items, x->buffer_groups.count, y->buffer_groups.items,
                   y->buffer_groups.count))
      return false;
  }
  return true;
}

/* Numbers that are of a program as a whole. */
static bool same_numbers(const ls_program *a, const ls_program *b) {
  ls_layout x = a->layout, y = b->layout;
  x.microbatches = y.microbatches = 0;
  return a->kind == b->kind && a->stage == b->stage && a->alignment == b->alignment &&
         a->tokens == b->tokens && a->sequence == b->sequence && a->chunks == b->chunks &&
         a->replay_boundary < 0 && b->replay_boundary < 0 && a->logits == b->logits &&
         a->reference == b->reference &&
         same_list(a->loads.items, a->loads.count, b->loads.items, b->loads.count) &&
         memcmp(a->cell, b->cell, sizeof a->cell) == 0 && memcmp(&x, &y, sizeof x) == 0 &&
         memcmp(&a->mesh, &b->mesh, sizeof a->mesh) == 0;
}

static bool same_inputs(const ls_program *a, const ls_program *b) {
  int x[LS_INPUT_COUNT], y[LS_INPUT_COUNT];
  ls_program_inputs(a, x);
  ls_program_inputs(b, y);
  return memcmp(x, y, sizeof x) == 0;
}

static bool stage_repeats(const ls_program *few, const ls_program *many, int period) {
  const int left_out = many->layout.microbatches - few->layout.microbatches;
  if (left_out < period || left_out % period || !same_numbers(few, many) ||
      !same_inputs(few, many) || !same_memory(few, many) || !same_code(few, many))
    return false;
  ls_arena *scratch = ls_arena_create();
  trail a, b;
  const bool repeats = make_trail(scratch, few, &a) && make_trail(scratch, many, &b) &&
                       goes_on(&a, &b, period, left_out / period);
  ls_arena_destroy(&scratch);
  return repeats;
}

/* The next action from this one on that begins a message to or from another stage; as many as there
 * are: none. */
static int next_message(const ls_program *program, int a, int peer, ls_transfer_kind kind) {
  for (; a < program->actions.count; a++) {
    const ls_program_action *each = &program->actions.items[a];
    const ls_body *body = &program->bodies.items[each->body];
    if (each->action.kind == LS_ACTION_BEGIN && each->action.transfer == kind && body->count &&
        program->instructions.items[body->first].peer == peer)
      break;
  }
  return a;
}

/* Whether all that one stage sends to another is received there in that order. */
static bool messages_meet(const ls_program *from, const ls_program *to) {
  int sent = next_message(from, 0, to->stage, LS_TRANSFER_SEND);
  int received = next_message(to, 0, from->stage, LS_TRANSFER_RECEIVE);
  while (sent < from->actions.count && received < to->actions.count) {
    const ls_action *a = &from->actions.items[sent].action;
    const ls_action *b = &to->actions.items[received].action;
    if (a->segment != b->segment || a->payload != b->payload || a->microbatch != b->microbatch)
      return false;
    sent = next_message(from, sent + 1, to->stage, LS_TRANSFER_SEND);
    received = next_message(to, received + 1, from->stage, LS_TRANSFER_RECEIVE);
  }
  return sent == from->actions.count && received == to->actions.count;
}

bool ls_check_repeats(const ls_program *const *few, const ls_program *const *many, int count,
                      int period) {
  for (int s = 0; s < count; s++)
    if (!stage_repeats(few[s], many[s], period)) return false;
  for (int s = 0; s < count; s++)
    for (int t = 0; t < count; t++)
      if (s != t && !messages_meet(many[s], many[t])) return false;
  return true;
}
