/* Instances: which memory each action works on. */
#include <string.h>

#include "lower/lower.h"

/* The instance of a frame that was last made for a microbatch; -1: none. */
typedef struct live {
  int *instance; /* [frame][microbatch + 1] */
  int microbatches;
} live;

static int *live_at(const live *now, int frame, int microbatch) {
  return &now->instance[(int64_t)frame * (now->microbatches + 1) + microbatch + 1];
}

static int new_instance(ls_program *program, int frame, int microbatch, int first, int last) {
  const int made = program->instances.count;
  *LS_APPEND(program->arena, &program->instances) =
      (ls_instance){.frame = frame, .microbatch = microbatch, .first = first, .last = last};
  if (program->frames.items[frame].instance < 0) program->frames.items[frame].instance = made;
  return made;
}

/* Everything but the work regions lies side by side and lives as long as the program. */
static void place_lasting(ls_program *program, int microbatches) {
  const int last = program->actions.count - 1;
  for (int f = 0; f < program->frames.count; f++) {
    const ls_frame *frame = &program->frames.items[f];
    if (ls_pool_works(frame->pool)) continue;
    const bool input = frame->pool == LS_POOL_INPUT;
    for (int m = 0; m < (input ? microbatches : 1); m++) {
      const int made = new_instance(program, f, input ? m : -1, 0, last);
      program->instances.items[made].offset = program->pool_bytes[frame->pool];
      program->pool_bytes[frame->pool] += ls_storage_aligned(frame->bytes, program->alignment);
    }
  }
}

/* Whether a frame is of the whole step: some action outside the microbatches touches it. */
static bool *find_once(const ls_program *program) {
  bool *once = LS_NEW_ARRAY(program->arena, bool, program->frames.count + 1);
  for (int a = 0; a < program->actions.count; a++) {
    const ls_program_action *action = &program->actions.items[a];
    const ls_body *body = &program->bodies.items[action->body];
    for (int i = 0; i < body->frames.count && action->action.microbatch < 0; i++)
      once[body->frames.items[i]] = true;
  }
  return once;
}

/* Whether the action begins to fill a frame as a whole, which then has another life. */
static bool begins_anew(const ls_program *program, int a, int frame) {
  const ls_program_action *action = &program->actions.items[a];
  const ls_body *body = &program->bodies.items[action->body];
  const ls_instruction *each = &program->instructions.items[body->first];
  const bool fills = action->action.way == LS_WAY_GATHER || each->collective == LS_MOVE;
  if (!body->count || action->action.kind != LS_ACTION_BEGIN || !fills) return false;
  for (int i = 0; i < body->count; i++)
    if (ls_program_frame(program, each[i].out[0]) == &program->frames.items[frame]) return true;
  return false;
}

static int find_instance(ls_program *program, const live *now, int frame, bool once, int a) {
  const ls_action *action = &program->actions.items[a].action;
  const ls_frame *about = &program->frames.items[frame];
  if (about->pool == LS_POOL_INPUT)
    return about->instance + (action->microbatch > 0 ? action->microbatch : 0);
  if (!ls_pool_works(about->pool)) return about->instance;
  const int microbatch = once ? -1 : action->microbatch;
  int *found = live_at(now, frame, microbatch);
  if (*found < 0 || begins_anew(program, a, frame))
    *found = new_instance(program, frame, microbatch, a, a);
  program->instances.items[*found].last = a;
  return *found;
}

static void bind_actions(ls_program *program, int microbatches) {
  const bool *once = find_once(program);
  live now = {.microbatches = microbatches};
  const int64_t entries = (int64_t)program->frames.count * (microbatches + 1);
  now.instance = LS_NEW_ARRAY(program->arena, int, entries + 1);
  for (int64_t i = 0; i < entries; i++) now.instance[i] = -1;
  bool *seen = LS_NEW_ARRAY(program->arena, bool, program->bodies.count + 1);
  for (int a = 0; a < program->actions.count; a++) {
    ls_program_action *action = &program->actions.items[a];
    const ls_body *body = &program->bodies.items[action->body];
    action->first = !seen[action->body];
    seen[action->body] = true;
    action->instances = LS_NEW_ARRAY(program->arena, int, body->frames.count + 1);
    for (int i = 0; i < body->frames.count; i++) {
      const int frame = body->frames.items[i];
      action->instances[i] = find_instance(program, &now, frame, once[frame], a);
    }
  }
  if (program->kind == LS_PROGRAM_FORWARD && program->logits >= 0) { /* read after the program */
    const int first = ls_program_frame(program, program->logits)->instance;
    program->instances.items[first].last = program->actions.count - 1;
  }
}

/* Places by lifetime in one work pool. */
static void colour(ls_program *program, ls_pool pool) {
  ls_arena *scratch = ls_arena_create();
  ls_life_box *boxes = LS_NEW_ARRAY(scratch, ls_life_box, program->instances.count + 1);
  int count = 0;
  for (int i = 0; i < program->instances.count; i++) {
    const ls_instance *instance = &program->instances.items[i];
    const ls_frame *frame = &program->frames.items[instance->frame];
    if (frame->pool == pool)
      boxes[count++] = (ls_life_box){frame->bytes, 0, instance->first, instance->last, i};
  }
  ls_life_boxes_sort(boxes, count);
  ls_occupancy *work = ls_occupancy_create(scratch, program->actions.count, program->alignment);
  for (int i = 0; i < count; i++) {
    ls_occupancy_place(work, &boxes[i]);
    program->instances.items[boxes[i].about].offset = boxes[i].offset;
  }
  program->pool_bytes[pool] = ls_occupancy_bytes(work);
  ls_arena_destroy(&scratch);
}

/* With post-validation the next step's first passes run before the update, and the update before
 * the rest of the step: what it touches lives beside all of them. */
static void outlive_prologue(ls_program *program) {
  const int norm = ls_program_first_of(program, LS_PROGRAM_GUESS) - 1;
  for (int a = norm; program->cut >= 0 && a < program->actions.count; a++) {
    const ls_program_action *action = &program->actions.items[a];
    for (int i = 0; i < program->bodies.items[action->body].frames.count; i++)
      program->instances.items[action->instances[i]].first = 0;
  }
}

void ls_lower_instances(ls_program *program) {
  const int microbatches = program->kind == LS_PROGRAM_STEP ? program->layout.microbatches : 1;
  place_lasting(program, microbatches);
  bind_actions(program, microbatches);
  outlive_prologue(program);
  for (int p = 0; p < LS_POOL_COUNT; p++)
    if (ls_pool_works((ls_pool)p)) colour(program, (ls_pool)p);
}
