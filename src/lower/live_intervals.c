/* Live intervals: which memory each action works on. */
#include <string.h>

#include "lower/lower.h"

/* The live interval of a buffer group that was last made for a microbatch; -1: none. */
typedef struct live {
  int *live_interval; /* [buffer group][microbatch + 1] */
  int microbatches;
} live;

static int *live_at(const live *now, int buffer_group, int microbatch) {
  return &now->live_interval[(int64_t)buffer_group * (now->microbatches + 1) + microbatch + 1];
}

static int new_live_interval(ls_program *program, int buffer_group, int microbatch, int first,
                             int last) {
  const int made = program->live_intervals.count;
  *LS_APPEND(program->arena, &program->live_intervals) = (ls_live_interval){
      .buffer_group = buffer_group, .microbatch = microbatch, .first = first, .last = last};
  if (program->buffer_groups.items[buffer_group].live_interval < 0)
    program->buffer_groups.items[buffer_group].live_interval = made;
  return made;
}

/* Everything but the work regions lies side by side and lives as long as the program. */
static void place_lasting(ls_program *program, int microbatches) {
  const int last = program->actions.count - 1;
  for (int f = 0; f < program->buffer_groups.count; f++) {
    const ls_buffer_group *buffer_group = &program->buffer_groups.items[f];
    if (ls_pool_is_work(buffer_group->pool)) continue;
    const bool input = buffer_group->pool == LS_POOL_INPUT;
    for (int m = 0; m < (input ? microbatches : 1); m++) {
      const int made = new_live_interval(program, f, input ? m : -1, 0, last);
      program->live_intervals.items[made].offset = program->pool_bytes[buffer_group->pool];
      program->pool_bytes[buffer_group->pool] +=
          ls_storage_aligned(buffer_group->bytes, program->alignment);
    }
  }
}

/* Whether a buffer group is of the whole step: some action outside the microbatches touches it. */
static bool *find_once(const ls_program *program) {
  bool *once = LS_NEW_ARRAY(program->arena, bool, program->buffer_groups.count + 1);
  for (int a = 0; a < program->actions.count; a++) {
    const ls_program_action *action = &program->actions.items[a];
    const ls_body *body = &program->bodies.items[action->body];
    for (int i = 0; i < body->buffer_groups.count && action->action.microbatch < 0; i++)
      once[body->buffer_groups.items[i]] = true;
  }
  return once;
}

/* Whether the action begins to fill a buffer group as a whole, which then has another life. */
static bool begins_anew(const ls_program *program, int a, int buffer_group) {
  const ls_program_action *action = &program->actions.items[a];
  const ls_body *body = &program->bodies.items[action->body];
  const ls_instruction *each = &program->instructions.items[body->first];
  const bool fills = action->action.transfer == LS_TRANSFER_GATHER || each->collective == LS_MOVE;
  if (!body->count || action->action.kind != LS_ACTION_BEGIN || !fills) return false;
  for (int i = 0; i < body->count; i++)
    if (ls_program_buffer_group(program, each[i].out[0]) ==
        &program->buffer_groups.items[buffer_group])
      return true;
  return false;
}

static int find_live_interval(ls_program *program, const live *now, int buffer_group, bool once,
                              int a) {
  const ls_action *action = &program->actions.items[a].action;
  const ls_buffer_group *about = &program->buffer_groups.items[buffer_group];
  if (about->pool == LS_POOL_INPUT)
    return about->live_interval + (action->microbatch > 0 ? action->microbatch : 0);
  if (!ls_pool_is_work(about->pool)) return about->live_interval;
  const int microbatch = once ? -1 : action->microbatch;
  int *found = live_at(now, buffer_group, microbatch);
  if (*found < 0 || begins_anew(program, a, buffer_group))
    *found = new_live_interval(program, buffer_group, microbatch, a, a);
  program->live_intervals.items[*found].last = a;
  return *found;
}

static void bind_actions(ls_program *program, int microbatches) {
  const bool *once = find_once(program);
  live now = {.microbatches = microbatches};
  const int64_t entries = (int64_t)program->buffer_groups.count * (microbatches + 1);
  now.live_interval = LS_NEW_ARRAY(program->arena, int, entries + 1);
  for (int64_t i = 0; i < entries; i++) now.live_interval[i] = -1;
  bool *seen = LS_NEW_ARRAY(program->arena, bool, program->bodies.count + 1);
  for (int a = 0; a < program->actions.count; a++) {
    ls_program_action *action = &program->actions.items[a];
    const ls_body *body = &program->bodies.items[action->body];
    action->first = !seen[action->body];
    seen[action->body] = true;
    action->live_intervals = LS_NEW_ARRAY(program->arena, int, body->buffer_groups.count + 1);
    for (int i = 0; i < body->buffer_groups.count; i++) {
      const int buffer_group = body->buffer_groups.items[i];
      action->live_intervals[i] =
          find_live_interval(program, &now, buffer_group, once[buffer_group], a);
    }
  }
  if (program->kind == LS_PROGRAM_FORWARD && program->logits >= 0) { /* read after the program */
    const int first = ls_program_buffer_group(program, program->logits)->live_interval;
    program->live_intervals.items[first].last = program->actions.count - 1;
  }
}

/* By buffer group, its place among the sizes of those in a pool, from 1 on, the largest first; 0:
 * it is in another. */
static int *rank_sizes(ls_arena *arena, const ls_program *program, ls_pool pool) {
  const int groups = program->buffer_groups.count;
  ls_life_box *sizes = LS_NEW_ARRAY(arena, ls_life_box, groups + 1);
  int *rank = LS_NEW_ARRAY(arena, int, groups + 1), count = 0;
  for (int g = 0; g < groups; g++) {
    const ls_buffer_group *each = &program->buffer_groups.items[g];
    if (each->pool == pool) sizes[count++] = (ls_life_box){.bytes = each->bytes, .about = g};
  }
  ls_life_boxes_sort(sizes, count);
  for (int i = 0; i < count; i++) {
    const bool same = i > 0 && sizes[i].bytes == sizes[i - 1].bytes;
    rank[sizes[i].about] = same ? rank[sizes[i - 1].about] : i + 1;
  }
  return rank;
}

/* The lives of a pool, sorted as ls_life_boxes_sort does: lives are many, and sizes few. */
static ls_life_box *list_lives(ls_arena *arena, const ls_program *program, ls_pool pool,
                               int *count) {
  const int lives = program->live_intervals.count, *rank = rank_sizes(arena, program, pool);
  int *next = LS_NEW_ARRAY(arena, int, program->buffer_groups.count + 2); /* by rank */
  *count = 0;
  for (int i = 0; i < lives; i++) {
    const int of = rank[program->live_intervals.items[i].buffer_group];
    next[of + 1] += of > 0;
    *count += of > 0;
  }
  for (int r = 1; r < program->buffer_groups.count + 2; r++) next[r] += next[r - 1];
  ls_life_box *boxes = LS_NEW_ARRAY(arena, ls_life_box, *count + 1);
  for (int i = 0; i < lives; i++) {
    const ls_live_interval *each = &program->live_intervals.items[i];
    const int of = rank[each->buffer_group];
    if (of > 0)
      boxes[next[of]++] = (ls_life_box){program->buffer_groups.items[each->buffer_group].bytes, 0,
                                        each->first, each->last, i};
  }
  return boxes;
}

static bool comes_again(const ls_program *program, int one, int other, int later) {
  const ls_program_action *a = &program->actions.items[one], *b = &program->actions.items[other];
  return a->body == b->body && a->action.microbatch >= 0 &&
         a->action.microbatch + later == b->action.microbatch;
}

/* After how many actions those in the middle of a program come again, of later microbatches; 0:
 * they do not. */
static int find_period(const ls_program *program) {
  const int actions = program->actions.count, middle = actions / 2;
  for (int next = middle + 1; next - middle <= actions - next; next++) {
    const int later = program->actions.items[next].action.microbatch -
                      program->actions.items[middle].action.microbatch;
    int same = 0;
    while (same < next - middle && later > 0 &&
           comes_again(program, middle + same, next + same, later))
      same++;
    if (same == next - middle) return same;
  }
  return 0;
}

/* Places by lifetime in one work pool; most programs have nothing at the host or on a drive. */
static void colour(ls_program *program, ls_pool pool, int period) {
  ls_arena *scratch = ls_arena_create();
  int count;
  ls_life_box *boxes = list_lives(scratch, program, pool, &count);
  program->pool_bytes[pool] =
      ls_life_boxes_place(boxes, count, program->actions.count, period, program->alignment);
  for (int i = 0; i < count; i++)
    program->live_intervals.items[boxes[i].about].offset = boxes[i].offset;
  ls_arena_destroy(&scratch);
}

/* With post-validation the next step's first passes run before the update, and the update before
 * the rest of the step: what it touches lives beside all of them. */
static void outlive_prologue(ls_program *program) {
  const int norm = ls_program_first_of(program, LS_PROGRAM_SPECULATE) - 1;
  for (int a = norm; program->replay_boundary >= 0 && a < program->actions.count; a++) {
    const ls_program_action *action = &program->actions.items[a];
    for (int i = 0; i < program->bodies.items[action->body].buffer_groups.count; i++)
      program->live_intervals.items[action->live_intervals[i]].first = 0;
  }
}

void ls_lower_live_intervals(ls_program *program) {
  const int microbatches = program->kind == LS_PROGRAM_STEP ? program->layout.microbatches : 1;
  place_lasting(program, microbatches);
  bind_actions(program, microbatches);
  outlive_prologue(program);
  const int period = find_period(program);
  for (int p = 0; p < LS_POOL_COUNT; p++)
    if (ls_pool_is_work((ls_pool)p)) colour(program, (ls_pool)p, period);
}
