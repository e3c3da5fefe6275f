/* Live intervals of buffer groups: inside their pools, bound by the actions that they live for, and
 * apart from all others that live at the same time. */
#include <stdlib.h>

#include "check/proof.h"

typedef struct life {
  int live_interval, first, last; /* actions that touch it; -1: none */
} life;

static ls_status fail_live_interval(const ls_stage *stage, ls_error *error, int live_interval,
                                    int action, const char *what) {
  const ls_program *program = stage->program;
  return ls_fail(
      error, LS_REFUTED, "stage %d action %d live interval %d (%s): %s", stage->number, action,
      live_interval,
      program->buffer_groups.items[program->live_intervals.items[live_interval].buffer_group].name,
      what);
}

static ls_status check_live_interval(const ls_stage *stage, int i, ls_error *error) {
  const ls_program *program = stage->program;
  const ls_live_interval *live_interval = &program->live_intervals.items[i];
  const ls_buffer_group *buffer_group = &program->buffer_groups.items[live_interval->buffer_group];
  if (live_interval->offset < 0 || buffer_group->bytes > program->pool_bytes[buffer_group->pool] ||
      live_interval->offset > program->pool_bytes[buffer_group->pool] - buffer_group->bytes)
    return fail_live_interval(stage, error, i, live_interval->first,
                              "reaches beyond its pool: expected it inside");
  if (buffer_group->pool == LS_POOL_INPUT &&
      live_interval->microbatch != i - buffer_group->live_interval)
    return fail_live_interval(
        stage, error, i, live_interval->first,
        "is of another microbatch than its place: expected one after the other");
  return LS_OK;
}

static ls_status find_lives(const ls_stage *stage, life *lives, ls_error *error) {
  const ls_program *program = stage->program;
  for (int a = 0; a < program->actions.count; a++) {
    const ls_program_action *action = &program->actions.items[a];
    const ls_body *body = &program->bodies.items[action->body];
    for (int f = 0; f < body->buffer_groups.count; f++) {
      const int i = action->live_intervals[f];
      const ls_live_interval *live_interval = &program->live_intervals.items[i];
      const ls_pool pool = program->buffer_groups.items[live_interval->buffer_group].pool;
      const int microbatch = action->action.microbatch;
      const bool input = pool == LS_POOL_INPUT && microbatch < 0 && live_interval->microbatch == 0;
      if (live_interval->microbatch >= 0 && live_interval->microbatch != microbatch && !input)
        return fail_live_interval(stage, error, i, a,
                                  "belongs to another microbatch: expected the action's own");
      if (live_interval->first > a || live_interval->last < a)
        return fail_live_interval(stage, error, i, a,
                                  "is used outside its life: expected its first and last action to "
                                  "cover this one");
      if (lives[i].first < 0) lives[i].first = a;
      lives[i].last = a;
    }
  }
  return LS_OK;
}

static ls_pool pool_of(const ls_stage *stage, const life *each) {
  const ls_program *program = stage->program;
  return program->buffer_groups
      .items[program->live_intervals.items[each->live_interval].buffer_group]
      .pool;
}

static int64_t begin_of(const ls_stage *stage, const life *each) {
  return stage->program->live_intervals.items[each->live_interval].offset;
}

static int64_t end_of(const ls_stage *stage, const life *each) {
  const ls_live_interval *live_interval =
      &stage->program->live_intervals.items[each->live_interval];
  return live_interval->offset +
         stage->program->buffer_groups.items[live_interval->buffer_group].bytes;
}

/* Lives in the order of one of their numbers. */
typedef struct ordered {
  int64_t key, then;
  const life *of;
} ordered;

static int by_key(const void *a, const void *b) {
  const ordered *x = a, *y = b;
  return x->key != y->key ? (x->key > y->key) - (x->key < y->key)
                          : (x->then > y->then) - (x->then < y->then);
}

enum { FLOORS = 6, WORD = 64 }; /* 64 ^ 6 is more than there can be */

/* Those alive, by pool and offset: each place has a bit on the ground floor, and each word that is
 * not 0 a bit on the floor above. */
typedef struct alive {
  uint64_t *bits[FLOORS];
  const life **items; /* by place */
  int *place_of;      /* by live interval; two have one place where both begin there */
} alive;

static void set_bit(alive *now, int place, bool value) {
  for (int floor = 0; floor < FLOORS; floor++, place /= WORD) {
    uint64_t *word = &now->bits[floor][place / WORD];
    const uint64_t before = *word, bit = UINT64_C(1) << place % WORD;
    *word = value ? before | bit : before & ~bit;
    if ((before != 0) == (*word != 0)) return;
  }
}

/* The nearest place before this one whose bit is set; -1: none. */
static int find_before(const alive *now, int place) {
  for (int floor = 0; floor < FLOORS; floor++, place /= WORD) {
    const uint64_t lower = (UINT64_C(1) << place % WORD) - 1;
    const uint64_t left = now->bits[floor][place / WORD] & lower;
    if (!left) continue;
    int found = place / WORD * WORD + WORD - 1 - __builtin_clzll(left);
    while (floor-- > 0) found = found * WORD + WORD - 1 - __builtin_clzll(now->bits[floor][found]);
    return found;
  }
  return -1;
}

/* The nearest behind it; -1: none. */
static int find_behind(const alive *now, int place) {
  for (int floor = 0; floor < FLOORS; floor++, place /= WORD) {
    const uint64_t higher = place % WORD == WORD - 1 ? 0 : ~UINT64_C(0) << (place % WORD + 1);
    const uint64_t right = now->bits[floor][place / WORD] & higher;
    if (!right) continue;
    int found = place / WORD * WORD + __builtin_ctzll(right);
    while (floor-- > 0) found = found * WORD + __builtin_ctzll(now->bits[floor][found]);
    return found;
  }
  return -1;
}

static void find_places(const ls_stage *stage, const life *lives, int count, alive *now) {
  ls_arena *arena = stage->proof->arena;
  ordered *order = LS_NEW_ARRAY(arena, ordered, count + 1);
  for (int i = 0; i < count; i++)
    order[i] = (ordered){(int64_t)pool_of(stage, &lives[i]), begin_of(stage, &lives[i]), &lives[i]};
  qsort(order, (size_t)count, sizeof *order, by_key);
  now->items = LS_NEW_ARRAY(arena, const life *, count + 1);
  now->place_of = LS_NEW_ARRAY(arena, int, count + 1);
  int place = 0;
  for (int i = 0; i < count; i++) {
    if (i > 0 && by_key(&order[i - 1], &order[i]) != 0) place++;
    now->place_of[order[i].of->live_interval] = place;
  }
  for (int floor = 0, words = count / WORD + 1; floor < FLOORS; floor++, words = words / WORD + 1)
    now->bits[floor] = LS_NEW_ARRAY(arena, uint64_t, words);
}

static ls_status admit(const ls_stage *stage, alive *now, const life *each, ls_error *error) {
  const int64_t begin = begin_of(stage, each), end = end_of(stage, each);
  if (begin == end) return LS_OK;
  const int place = now->place_of[each->live_interval];
  const int before = find_before(now, place), behind = find_behind(now, place);
  const life *other = NULL;
  if (behind >= 0 && begin_of(stage, now->items[behind]) < end) other = now->items[behind];
  if (other && pool_of(stage, other) != pool_of(stage, each)) other = NULL;
  if (now->items[place]) other = now->items[place];
  if (before >= 0 && pool_of(stage, now->items[before]) == pool_of(stage, each) &&
      end_of(stage, now->items[before]) > begin)
    other = now->items[before];
  if (other)
    return ls_fail(
        error, LS_REFUTED,
        "stage %d action %d live interval %d (%s): shares bytes with live interval %d (%s), which "
        "lives too: expected places of their own",
        stage->number, each->first, each->live_interval,
        stage->program->buffer_groups
            .items[stage->program->live_intervals.items[each->live_interval].buffer_group]
            .name,
        other->live_interval,
        stage->program->buffer_groups
            .items[stage->program->live_intervals.items[other->live_interval].buffer_group]
            .name);
  now->items[place] = each;
  set_bit(now, place, true);
  return LS_OK;
}

static void bury(alive *now, const life *each) {
  const int place = now->place_of[each->live_interval];
  if (now->items[place] != each) return; /* it has no bytes */
  now->items[place] = NULL;
  set_bit(now, place, false);
}

/* In the order in which they begin, none on the bytes of another that has not ended. */
static ls_status check_apart(const ls_stage *stage, const life *lives, int count, ls_error *error) {
  ls_arena *arena = stage->proof->arena;
  ordered *begins = LS_NEW_ARRAY(arena, ordered, count + 1);
  ordered *ends = LS_NEW_ARRAY(arena, ordered, count + 1);
  int lived = 0;
  for (int i = 0; i < count; i++) {
    if (lives[i].first < 0) continue;
    begins[lived] = (ordered){lives[i].first, i, &lives[i]};
    ends[lived++] = (ordered){lives[i].last, i, &lives[i]};
  }
  qsort(begins, (size_t)lived, sizeof *begins, by_key);
  qsort(ends, (size_t)lived, sizeof *ends, by_key);
  alive now = {0};
  find_places(stage, lives, count, &now);
  for (int i = 0, ended = 0; i < lived; i++) {
    for (; ends[ended].key < begins[i].key; ended++) bury(&now, ends[ended].of);
    LS_TRY(admit(stage, &now, begins[i].of, error));
  }
  return LS_OK;
}

ls_status ls_proof_lives(ls_stage *stage, ls_error *error) {
  const ls_program *program = stage->program;
  ls_arena *arena = stage->proof->arena;
  const int count = program->live_intervals.count;
  life *lives = LS_NEW_ARRAY(arena, life, count + 1);
  for (int i = 0; i < count; i++) {
    LS_TRY(check_live_interval(stage, i, error));
    lives[i] = (life){i, -1, -1};
  }
  LS_TRY(find_lives(stage, lives, error));
  for (int i = 0; i < count; i++) { /* what is kept between programs lives always */
    const ls_pool pool =
        program->buffer_groups.items[program->live_intervals.items[i].buffer_group].pool;
    if (!ls_pool_is_work(pool)) lives[i] = (life){i, 0, program->actions.count};
  }
  if (program->kind == LS_PROGRAM_FORWARD && program->logits >= 0) { /* read after the program */
    const int i = ls_program_buffer_group(program, program->logits)->live_interval;
    if (i >= 0 && i < count && lives[i].first >= 0) lives[i].last = program->actions.count;
  }
  for (int i = 0; i < count; i++) /* beside all that the next step begins with */
    if (stage->outlives[i] && lives[i].first >= 0) lives[i].first = 0;
  return check_apart(stage, lives, count, error);
}
