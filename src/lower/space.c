#include <stdlib.h>
#include <string.h>

#include "lower/lower.h"

static bool at_once(const ls_life_box *a, const ls_life_box *b) {
  return a->first <= b->last && b->first <= a->last;
}

static int64_t find_place(const ls_space *space, const ls_life_box *box) {
  int64_t offset = 0;
  for (int i = 0; i < space->boxes.count; i++) {
    const ls_life_box *placed = &space->boxes.items[i];
    const int64_t end = placed->offset + ls_storage_aligned(placed->bytes, space->alignment);
    if (end <= offset || !at_once(box, placed)) continue;
    if (placed->offset >= offset + ls_storage_aligned(box->bytes, space->alignment)) break;
    offset = end;
  }
  return offset;
}

void ls_space_add(ls_arena *arena, ls_space *space, const ls_life_box *box) {
  const int64_t end = box->offset + ls_storage_aligned(box->bytes, space->alignment);
  if (end > space->bytes) space->bytes = end;
  *LS_APPEND(arena, &space->boxes) = *box;
  ls_life_box *boxes = space->boxes.items;
  int at = space->boxes.count - 1;
  while (at > 0 && boxes[at - 1].offset > box->offset) at--;
  memmove(&boxes[at + 1], &boxes[at], (size_t)(space->boxes.count - 1 - at) * sizeof *boxes);
  boxes[at] = *box;
}

bool ls_space_place(ls_arena *arena, ls_space *space, ls_life_box *box) {
  box->offset = find_place(space, box);
  const int64_t end = box->offset + ls_storage_aligned(box->bytes, space->alignment);
  if (space->limit >= 0 && end > space->limit) return false;
  ls_space_add(arena, space, box);
  return true;
}

static int larger_first(const void *a, const void *b) {
  const ls_life_box *first = a, *second = b;
  if (first->bytes != second->bytes) return first->bytes < second->bytes ? 1 : -1;
  return first->about < second->about ? -1 : first->about > second->about;
}

void ls_life_boxes_sort(ls_life_box *boxes, int count) {
  qsort(boxes, (size_t)count, sizeof *boxes, larger_first);
}
