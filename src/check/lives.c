/* Instances of frames: inside their pools, bound by the actions that they live for, and apart from
 * all others that live at the same time. */
#include <stdlib.h>

#include "check/proof.h"

typedef struct life {
  int instance, first, last; /* actions that touch it; -1: none */
} life;

static ls_status fail_instance(const ls_stage *stage, ls_error *error, int instance, int action,
                               const char *what) {
  const ls_program *program = stage->program;
  return ls_fail(error, LS_NO, "stage %d action %d instance %d (%s): %s", stage->number, action,
                 instance, program->frames.items[program->instances.items[instance].frame].name,
                 what);
}

static ls_status check_instance(const ls_stage *stage, int i, ls_error *error) {
  const ls_program *program = stage->program;
  const ls_instance *instance = &program->instances.items[i];
  const ls_frame *frame = &program->frames.items[instance->frame];
  if (instance->offset < 0 || frame->bytes > program->pool_bytes[frame->pool] ||
      instance->offset > program->pool_bytes[frame->pool] - frame->bytes)
    return fail_instance(stage, error, i, instance->first,
                         "reaches beyond its pool: expected it inside");
  if (frame->pool == LS_POOL_INPUT && instance->microbatch != i - frame->instance)
    return fail_instance(stage, error, i, instance->first,
                         "is of another microbatch than its place: expected one after the other");
  return LS_OK;
}

static ls_status find_lives(const ls_stage *stage, life *lives, ls_error *error) {
  const ls_program *program = stage->program;
  for (int a = 0; a < program->actions.count; a++) {
    const ls_program_action *action = &program->actions.items[a];
    const ls_body *body = &program->bodies.items[action->body];
    for (int f = 0; f < body->frames.count; f++) {
      const int i = action->instances[f];
      const ls_instance *instance = &program->instances.items[i];
      const ls_pool pool = program->frames.items[instance->frame].pool;
      const int microbatch = action->action.microbatch;
      const bool input = pool == LS_POOL_INPUT && microbatch < 0 && instance->microbatch == 0;
      if (instance->microbatch >= 0 && instance->microbatch != microbatch && !input)
        return fail_instance(stage, error, i, a,
                             "belongs to another microbatch: expected the action's own");
      if (instance->first > a || instance->last < a)
        return fail_instance(stage, error, i, a,
                             "is used outside its life: expected its first and last action to "
                             "cover this one");
      if (lives[i].first < 0) lives[i].first = a;
      lives[i].last = a;
    }
  }
  return LS_OK;
}

bool ls_pool_is_work(ls_pool pool) {
  return pool == LS_POOL_WORK || pool == LS_POOL_HOST_WORK || pool == LS_POOL_FILE_WORK;
}

static int by_first(const void *a, const void *b) {
  const life *x = a, *y = b;
  return x->first != y->first ? (x->first > y->first) - (x->first < y->first)
                              : (x->instance > y->instance) - (x->instance < y->instance);
}

/* Those alive in a pool, by offset. */
typedef struct alive {
  life *items;
  int count;
} alive;

static int64_t begin_of(const ls_stage *stage, const life *each) {
  return stage->program->instances.items[each->instance].offset;
}

static int64_t end_of(const ls_stage *stage, const life *each) {
  const ls_instance *instance = &stage->program->instances.items[each->instance];
  return instance->offset + stage->program->frames.items[instance->frame].bytes;
}

static void bury(alive *now, int action) {
  int kept = 0;
  for (int i = 0; i < now->count; i++)
    if (now->items[i].last >= action) now->items[kept++] = now->items[i];
  now->count = kept;
}

static ls_status admit(const ls_stage *stage, alive *now, const life *each, ls_error *error) {
  const int64_t begin = begin_of(stage, each), end = end_of(stage, each);
  if (begin == end) return LS_OK;
  int low = 0, high = now->count;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (begin_of(stage, &now->items[middle]) < begin)
      low = middle + 1;
    else
      high = middle;
  }
  const life *before = low > 0 ? &now->items[low - 1] : NULL;
  const life *after = low < now->count ? &now->items[low] : NULL;
  const life *other = before && end_of(stage, before) > begin ? before : NULL;
  if (!other && after && begin_of(stage, after) < end) other = after;
  if (other)
    return ls_fail(
        error, LS_NO,
        "stage %d action %d instance %d (%s): shares bytes with instance %d (%s), which "
        "lives too: expected places of their own",
        stage->number, each->first, each->instance,
        stage->program->frames.items[stage->program->instances.items[each->instance].frame].name,
        other->instance,
        stage->program->frames.items[stage->program->instances.items[other->instance].frame].name);
  for (int i = now->count; i > low; i--) now->items[i] = now->items[i - 1];
  now->items[low] = *each;
  now->count++;
  return LS_OK;
}

ls_status ls_proof_lives(ls_stage *stage, ls_error *error) {
  const ls_program *program = stage->program;
  ls_arena *arena = stage->proof->arena;
  const int count = program->instances.count;
  life *lives = LS_NEW_ARRAY(arena, life, count + 1);
  for (int i = 0; i < count; i++) {
    LS_TRY(check_instance(stage, i, error));
    lives[i] = (life){i, -1, -1};
  }
  LS_TRY(find_lives(stage, lives, error));
  for (int i = 0; i < count; i++) { /* what is kept between programs lives always */
    const ls_pool pool = program->frames.items[program->instances.items[i].frame].pool;
    if (!ls_pool_is_work(pool)) lives[i] = (life){i, 0, program->actions.count};
  }
  if (program->kind == LS_PROGRAM_FORWARD && program->logits >= 0) { /* read after the program */
    const int storage = program->values.items[program->logits].storage;
    const int frame = program->storages.items[storage].frame;
    const int i = program->frames.items[frame].instance;
    if (i >= 0 && i < count && lives[i].first >= 0) lives[i].last = program->actions.count;
  }
  for (int i = 0; i < count; i++) /* beside all that the next step begins with */
    if (stage->outlives[i] && lives[i].first >= 0) lives[i].first = 0;
  qsort(lives, (size_t)count, sizeof *lives, by_first);
  alive pools[LS_POOL_COUNT];
  for (int p = 0; p < LS_POOL_COUNT; p++)
    pools[p] = (alive){LS_NEW_ARRAY(arena, life, count + 1), 0};
  for (int i = 0; i < count; i++) {
    if (lives[i].first < 0) continue;
    const ls_pool pool =
        program->frames.items[program->instances.items[lives[i].instance].frame].pool;
    for (int p = 0; p < LS_POOL_COUNT; p++)
      if ((i == 0 || lives[i].first != lives[i - 1].first) && ls_pool_is_work((ls_pool)p))
        bury(&pools[p], lives[i].first);
    LS_TRY(admit(stage, &pools[pool], &lives[i], error));
  }
  return LS_OK;
}
