/* Places of boxes in one pool, each the lowest that is free for all of its time: what
 * ls_space_place finds by going through all boxes, found by a tree over time.
 *
 * A node of the tree stands for some time and knows two sets of bytes, each as runs in order: those
 * that are taken during all of it, and those taken at any moment of it. Boxes lie side by side, so
 * runs are few. What is taken at any moment of a box's time is then a union of few sets: `any` of
 * the nodes that its time is made of, and `all` of the nodes above its first and last moment. */
#include <string.h>

#include "lower/lower.h"

typedef struct run {
  int64_t begin, end;
} run;

typedef struct runs {
  run *items; /* in order and apart: none touches the next */
  int count, capacity;
} runs;

typedef struct node {
  runs all, any;
} node;

struct ls_occupancy {
  ls_arena *arena;
  int64_t alignment, bytes;
  int64_t leaves; /* a power of two; the node of time t is leaves + t, the one above it half that */
  node *nodes;
};

enum { MOST_NODES = 128 }; /* two on each of at most 32 floors, and the two ways up */

/* Runs of a set that are not passed yet, and where the next begins. */
typedef struct rest {
  int64_t until;
  const run *next, *end;
} rest;

ls_occupancy *ls_occupancy_create(ls_arena *arena, int times, int64_t alignment) {
  ls_occupancy *made = LS_NEW(arena, ls_occupancy);
  *made = (ls_occupancy){.arena = arena, .alignment = alignment, .leaves = 1};
  while (made->leaves < times) made->leaves *= 2;
  made->nodes = LS_NEW_ARRAY(arena, node, 2 * made->leaves);
  return made;
}

int64_t ls_occupancy_bytes(const ls_occupancy *taken) {
  return taken->bytes;
}

/* The first run that ends at the address or behind it; as many as there are: none. */
static int find_run(const runs *set, int64_t address) {
  int low = 0, high = set->count;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (set->items[middle].end < address)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* One run takes the place of all that it touches. false: all of it was in the set. */
static bool add_run(ls_arena *arena, runs *set, int64_t begin, int64_t end) {
  const int first = find_run(set, begin);
  int last = first;
  if (first < set->count && set->items[first].begin <= begin && set->items[first].end >= end)
    return false;
  for (; last < set->count && set->items[last].begin <= end; last++) {
    if (set->items[last].begin < begin) begin = set->items[last].begin;
    if (set->items[last].end > end) end = set->items[last].end;
  }
  const int behind = set->count - last;
  if (first == last) LS_APPEND(arena, set);
  memmove(&set->items[first + 1], &set->items[last], (size_t)behind * sizeof *set->items);
  set->items[first] = (run){begin, end};
  set->count = first + 1 + behind;
  return true;
}

/* The nodes that the box's time is made of. */
static int cover(const ls_occupancy *taken, const ls_life_box *box, int64_t nodes[MOST_NODES]) {
  int64_t low = taken->leaves + box->first, high = taken->leaves + box->last + 1;
  int count = 0;
  for (; low < high; low /= 2, high /= 2) {
    if (low % 2) nodes[count++] = low++;
    if (high % 2) nodes[count++] = --high;
  }
  return count;
}

/* Its first and its last moment, and the nodes above them. */
static int ways_up(const ls_occupancy *taken, const ls_life_box *box, int64_t nodes[MOST_NODES]) {
  int64_t first = taken->leaves + box->first, last = taken->leaves + box->last;
  int count = 0;
  for (; first > 0; first /= 2, last /= 2) {
    nodes[count++] = first;
    if (last != first) nodes[count++] = last;
  }
  return count;
}

/* Bytes taken at a moment, in all nodes above it: what one has already, those above it have too. */
static void take_at(ls_occupancy *taken, int64_t time, int64_t begin, int64_t end) {
  for (int64_t at = taken->leaves + time; at > 0; at /= 2)
    if (!add_run(taken->arena, &taken->nodes[at].any, begin, end)) return;
}

static void take(ls_occupancy *taken, const ls_life_box *box, int64_t end) {
  int64_t nodes[MOST_NODES];
  take_at(taken, box->first, box->offset, end);
  take_at(taken, box->last, box->offset, end);
  const int covering = cover(taken, box, nodes);
  for (int i = 0; i < covering; i++) {
    (void)add_run(taken->arena, &taken->nodes[nodes[i]].all, box->offset, end);
    (void)add_run(taken->arena, &taken->nodes[nodes[i]].any, box->offset, end);
  }
}

static rest rest_of(const runs *set) {
  return (rest){set->items->begin, set->items, set->items + set->count};
}

/* Sets whose union is what is taken at any moment of the box's time; none is empty. */
static int find_sets(const ls_occupancy *taken, const ls_life_box *box, rest sets[2 * MOST_NODES]) {
  int64_t nodes[MOST_NODES];
  int count = 0;
  const int covering = cover(taken, box, nodes);
  for (int i = 0; i < covering; i++) {
    const node *each = &taken->nodes[nodes[i]];
    if (each->any.count) sets[count++] = rest_of(&each->any);
  }
  const int above = ways_up(taken, box, nodes);
  for (int i = 0; i < above; i++) {
    const node *each = &taken->nodes[nodes[i]];
    if (each->all.count) sets[count++] = rest_of(&each->all);
  }
  return count;
}

/* The lowest offset from this one on at which the set leaves room for so many bytes. */
static int64_t pass_set(rest *set, int64_t offset, int64_t bytes) {
  const run *next = set->next;
  for (; next < set->end && next->begin < offset + bytes; next++)
    if (next->end > offset) offset = next->end;
  set->next = next;
  set->until = next < set->end ? next->begin : INT64_MAX;
  return offset;
}

void ls_occupancy_place(ls_occupancy *taken, ls_life_box *box) {
  rest sets[2 * MOST_NODES];
  const int count = find_sets(taken, box, sets);
  const int64_t bytes = ls_storage_aligned(box->bytes, taken->alignment);
  box->offset = 0;
  for (bool moved = true; moved;) {
    moved = false;
    for (int i = 0; i < count; i++) {
      if (sets[i].until >= box->offset + bytes) continue;
      const int64_t offset = pass_set(&sets[i], box->offset, bytes);
      moved |= offset != box->offset;
      box->offset = offset;
    }
  }
  if (!bytes) return;
  take(taken, box, box->offset + bytes);
  if (box->offset + bytes > taken->bytes) taken->bytes = box->offset + bytes;
}
