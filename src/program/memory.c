#include <stdlib.h>
#include <string.h>

#include "program/lower.h"

enum { STORAGE_ALIGNMENT = 256 };

/* Ends of a storage's lifetimes are instruction positions over the first microbatch: all of them
 * use the same addresses, one after the other. */
static void touch(ls_program *program, int value, int position, bool begins) {
  ls_storage *storage = &program->storages.items[program->values.items[value].storage];
  if (storage->pool != LS_POOL_WORK) return;
  const bool dead = storage->alive.count == 0;
  if (dead || begins) {
    *LS_APPEND(program->arena, &storage->alive) = (ls_interval){position, position};
    return;
  }
  storage->alive.items[storage->alive.count - 1].last = position;
}

static bool begins_new_lifetime(const ls_program *program, const ls_instruction *instruction) {
  const ls_value *target = &program->values.items[instruction->out[0]];
  return instruction->collective == LS_ALL_GATHER &&
         program->storages.items[target->storage].category == LS_CATEGORY_GATHERED;
}

static int find_lifetimes(ls_program *program) {
  int position = 0;
  for (int a = 0; a < program->actions.count; a++) {
    const ls_program_action *action = &program->actions.items[a];
    if (action->action.microbatch > 0) continue;
    const ls_body *body = &program->bodies.items[action->body];
    for (int i = 0; i < body->count; i++, position++) {
      const ls_instruction *instruction = &program->instructions.items[body->first + i];
      for (int n = 0; n < instruction->inputs; n++)
        touch(program, instruction->in[n], position, false);
      for (int n = 0; n < instruction->outputs; n++)
        touch(program, instruction->out[n], position, begins_new_lifetime(program, instruction));
    }
  }
  if (program->kind == LS_PROGRAM_FORWARD && program->logits >= 0)
    touch(program, program->logits, position, false); /* read after the program */
  return position;
}

static bool overlap(const ls_storage *a, const ls_storage *b) {
  for (int i = 0; i < a->alive.count; i++)
    for (int j = 0; j < b->alive.count; j++)
      if (a->alive.items[i].first <= b->alive.items[j].last &&
          b->alive.items[j].first <= a->alive.items[i].last)
        return true;
  return false;
}

static int64_t aligned(int64_t bytes) {
  return (bytes + STORAGE_ALIGNMENT - 1) / STORAGE_ALIGNMENT * STORAGE_ALIGNMENT;
}

static int larger_first(const void *a, const void *b) {
  const ls_storage *first = *(ls_storage *const *)a, *second = *(ls_storage *const *)b;
  if (first->bytes != second->bytes) return first->bytes < second->bytes ? 1 : -1;
  return first < second ? -1 : first > second;
}

/* The lowest place free of everything placed whose lifetime overlaps; `placed` is ordered by
 * offset. */
static int64_t find_place(const ls_storage *storage, ls_storage *const *placed, int count) {
  int64_t offset = 0;
  for (int i = 0; i < count; i++) {
    if (placed[i]->offset + aligned(placed[i]->bytes) <= offset || !overlap(storage, placed[i]))
      continue;
    if (placed[i]->offset >= offset + aligned(storage->bytes)) break;
    offset = placed[i]->offset + aligned(placed[i]->bytes);
  }
  return offset;
}

/* Greedy by size: a storage goes to the lowest offset where nothing alive at the same time lies.
 * (Optimal colouring is NP-hard; by size first is the usual heuristic for tensors.) */
static int64_t colour(ls_program *program) {
  const int count = program->storages.count;
  ls_storage **order = LS_NEW_ARRAY(program->arena, ls_storage *, count + 1);
  ls_storage **placed = LS_NEW_ARRAY(program->arena, ls_storage *, count + 1);
  int to_place = 0;
  for (int s = 0; s < count; s++)
    if (program->storages.items[s].pool == LS_POOL_WORK && program->storages.items[s].alive.count)
      order[to_place++] = &program->storages.items[s];
  qsort(order, (size_t)to_place, sizeof *order, larger_first);
  int64_t peak = 0;
  for (int i = 0; i < to_place; i++) {
    ls_storage *storage = order[i];
    storage->offset = find_place(storage, placed, i);
    const int64_t end = storage->offset + aligned(storage->bytes);
    if (end > peak) peak = end;
    int at = i;
    while (at > 0 && placed[at - 1]->offset > storage->offset) {
      placed[at] = placed[at - 1];
      at--;
    }
    placed[at] = storage;
  }
  return peak;
}

void ls_lower_memory(ls_program *program) {
  find_lifetimes(program);
  for (int s = 0; s < program->storages.count; s++) {
    ls_storage *storage = &program->storages.items[s];
    if (storage->pool == LS_POOL_WORK) continue;
    storage->offset = program->pool_bytes[storage->pool];
    program->pool_bytes[storage->pool] += aligned(storage->bytes);
  }
  program->pool_bytes[LS_POOL_WORK] = colour(program);
}

int64_t ls_program_bytes(const ls_program *program) {
  int64_t bytes = 0;
  for (int p = 0; p < LS_POOL_COUNT; p++) bytes += program->pool_bytes[p];
  return bytes;
}

static void add_alive(const ls_program *program, int position,
                      int64_t by_category[LS_CATEGORY_COUNT]) {
  memset(by_category, 0, LS_CATEGORY_COUNT * sizeof *by_category);
  for (int s = 0; s < program->storages.count; s++) {
    const ls_storage *storage = &program->storages.items[s];
    bool alive = storage->pool != LS_POOL_WORK;
    for (int i = 0; i < storage->alive.count && !alive; i++)
      alive = storage->alive.items[i].first <= position && position <= storage->alive.items[i].last;
    if (alive) by_category[storage->category] += aligned(storage->bytes);
  }
}

int64_t ls_program_peak(const ls_program *program, int64_t by_category[LS_CATEGORY_COUNT]) {
  int64_t most = -1;
  for (int s = 0; s < program->storages.count; s++) {
    const ls_storage *storage = &program->storages.items[s];
    for (int i = 0; i < storage->alive.count; i++) { /* a peak begins where something does */
      int64_t now[LS_CATEGORY_COUNT], sum = 0;
      add_alive(program, storage->alive.items[i].first, now);
      for (int c = 0; c < LS_CATEGORY_COUNT; c++) sum += now[c];
      if (sum <= most) continue;
      most = sum;
      memcpy(by_category, now, sizeof now);
    }
  }
  return most;
}
