/* Places of boxes in one pool, each the lowest that is free for all of its time: what
 * ls_space_place finds by going through all boxes, found by a tree over time, or known from a box a
 * period before.
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

typedef struct ints {
  int *items;
  int count, capacity;
} ints;

/* A box that lies where the one a period before lies is put into the tree once somebody asks for
 * its time: in the middle of a step nobody does. */
typedef struct late_boxes {
  ints *by_block;    /* boxes that are alive in a block of times */
  int times;         /* of a block */
  bool *late, *ever; /* by box: it is not yet in the tree; or was not for a while */
  runs any;          /* bytes of all that ever were */
  int least_last, most_first;
} late_boxes;

typedef struct occupancy {
  ls_arena *arena;
  int64_t alignment, bytes;
  int64_t leaves; /* a power of two; the node of time t is leaves + t, the one above it half that */
  node *nodes;
  ls_life_box *boxes;
  late_boxes late;
} occupancy;

enum { MOST_NODES = 128 }; /* two on each of at most 32 floors, and the two ways up */
enum { LEAST_BLOCK = 64 }; /* times */
/* Periods that are tried as one; how often that is looked for in boxes of a size. */
enum { MOST_LONGER = 64, LOOKS = 16 };

/* Runs of a set that are not passed yet, and where the next begins. */
typedef struct rest {
  int64_t until;
  const run *next, *end;
} rest;

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
static int cover(const occupancy *taken, const ls_life_box *box, int64_t nodes[MOST_NODES]) {
  int64_t low = taken->leaves + box->first, high = taken->leaves + box->last + 1;
  int count = 0;
  for (; low < high; low /= 2, high /= 2) {
    if (low % 2) nodes[count++] = low++;
    if (high % 2) nodes[count++] = --high;
  }
  return count;
}

/* Its first and its last moment, and the nodes above them. */
static int ways_up(const occupancy *taken, const ls_life_box *box, int64_t nodes[MOST_NODES]) {
  int64_t first = taken->leaves + box->first, last = taken->leaves + box->last;
  int count = 0;
  for (; first > 0; first /= 2, last /= 2) {
    nodes[count++] = first;
    if (last != first) nodes[count++] = last;
  }
  return count;
}

/* Bytes taken at a moment, in all nodes above it: what one has already, those above it have too. */
static void take_at(occupancy *taken, int64_t time, int64_t begin, int64_t end) {
  for (int64_t at = taken->leaves + time; at > 0; at /= 2)
    if (!add_run(taken->arena, &taken->nodes[at].any, begin, end)) return;
}

static void take(occupancy *taken, const ls_life_box *box, int64_t end) {
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
static int find_sets(const occupancy *taken, const ls_life_box *box, rest sets[2 * MOST_NODES]) {
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

/* Late boxes that are alive during some time go into the tree; or, where all that are late are, the
 * set of their bytes is one of those asked. */
static bool ask_late(occupancy *taken, const ls_life_box *box, rest *set) {
  late_boxes *late = &taken->late;
  if (!late->any.count) return false;
  *set = rest_of(&late->any);
  if (box->first <= late->least_last && box->last >= late->most_first) return true;
  for (int b = box->first / late->times; b <= box->last / late->times; b++) {
    ints *block = &late->by_block[b];
    for (int i = 0; i < block->count; i++) {
      const ls_life_box *each = &taken->boxes[block->items[i]];
      if (!late->late[block->items[i]]) continue;
      late->late[block->items[i]] = false;
      take(taken, each, each->offset + ls_storage_aligned(each->bytes, taken->alignment));
    }
    block->count = 0;
  }
  return false;
}

/* At the lowest offset that is free. */
static void place(occupancy *taken, ls_life_box *box) {
  rest sets[2 * MOST_NODES + 1], of_late;
  const bool all_late = ask_late(taken, box, &of_late);
  int count = find_sets(taken, box, sets);
  if (all_late) sets[count++] = of_late;
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

/* Where another box lies, a period before. */
static void place_like(occupancy *taken, int box, int before) {
  late_boxes *late = &taken->late;
  ls_life_box *own = &taken->boxes[box];
  const int64_t bytes = ls_storage_aligned(own->bytes, taken->alignment);
  own->offset = taken->boxes[before].offset;
  if (!bytes) return;
  for (int b = own->first / late->times; b <= own->last / late->times; b++)
    *LS_APPEND(taken->arena, &late->by_block[b]) = box;
  if (!late->ever[before])
    (void)add_run(taken->arena, &late->any, own->offset, own->offset + bytes);
  late->late[box] = late->ever[box] = true;
  if (own->last < late->least_last) late->least_last = own->last;
  if (own->first > late->most_first) late->most_first = own->first;
}

/* Boxes of one size, placed in the order in which they begin. What stands in the way of a box is
 * what stood in the way of the one a period before where larger boxes take at each moment of its
 * time, and those of its own size that are alive as it begins, what they took a period before. */
typedef struct periods {
  occupancy *taken;
  int period, longest;
  runs changed;    /* times at which larger boxes do not take what they took a period before */
  runs alike;      /* as boxes of this size begin, the same of them */
  int passed;      /* of these, from which on it is not known who comes again */
  bool *follows;   /* by box: it lies where the one a period before does */
  bool *is_before; /* by box: so does the one a period later */
} periods;

static bool is_among(const runs *times, int first, int last) {
  const int at = find_run(times, (int64_t)first + 1);
  return at < times->count && times->items[at].begin <= last;
}

/* Times at which a box is alive that was not a period before. */
static void note_new(periods *self, runs *times, int box, int tie) {
  const ls_life_box *of = &self->taken->boxes[box];
  const int over = of->last + 1, old = of->first + self->period + tie;
  if (!self->follows[box])
    (void)add_run(self->taken->arena, times, of->first, over < old ? over : old);
}

/* Times at which a box is not alive that was a period before. */
static void note_gone(periods *self, runs *times, int box) {
  const ls_life_box *of = &self->taken->boxes[box];
  const int over = of->last + 1, old = of->first + self->period;
  if (!self->is_before[box])
    (void)add_run(self->taken->arena, times, over > old ? over : old, over + self->period);
}

/* Whether a box must lie where the one a period before does. */
static bool is_known(periods *self, int box, int before) {
  const ls_life_box *own = &self->taken->boxes[box];
  for (; self->passed < before; self->passed++) note_gone(self, &self->alike, self->passed);
  return !is_among(&self->alike, own->first, own->first) &&
         !is_among(&self->changed, own->first, own->last);
}

static void place_next(periods *self, int box, int before) {
  occupancy *taken = self->taken;
  if (before >= 0 && is_known(self, box, before))
    place_like(taken, box, before);
  else
    place(taken, &taken->boxes[box]);
  if (before >= 0 && taken->boxes[box].offset == taken->boxes[before].offset)
    self->follows[box] = self->is_before[before] = true;
  /* One that begins with the box before it may stand behind that in the order. */
  note_new(self, &self->alike, box, 1);
}

static bool is_in_order(const ls_life_box *boxes, int first, int end) {
  for (int i = first + 1; i < end; i++)
    if (boxes[i].first < boxes[i - 1].first) return false;
  return true;
}

/* The box of a size that is looked at, and of those that begin with it and a period before: the
 * first of each. */
typedef struct pairing {
  bool ordered;
  int head, low;
} pairing;

static pairing begin_pairing(const periods *self, int first, int end) {
  return (pairing){is_in_order(self->taken->boxes, first, end), first, first};
}

/* The box that is alive as this one is, a period before; -1: none. Boxes are asked for in order. */
static int find_before(const periods *self, pairing *of, int box) {
  const ls_life_box *boxes = self->taken->boxes;
  const int begin = boxes[box].first - self->period;
  if (!of->ordered) return -1;
  if (boxes[box].first != boxes[of->head].first) of->head = box;
  while (boxes[of->low].first < begin) of->low++;
  const int before = of->low + box - of->head;
  const bool alike = before < box && boxes[before].first == begin &&
                     boxes[before].last == boxes[box].last - self->period;
  return alike ? before : -1;
}

static void note_changes(periods *self, int first, int end) {
  for (int i = first; i < end; i++) {
    note_new(self, &self->changed, i, 0);
    note_gone(self, &self->changed, i);
  }
}

static int end_of_size(const ls_life_box *boxes, int first, int count) {
  int end = first + 1;
  while (end < count && boxes[end].bytes == boxes[first].bytes) end++;
  return end;
}

/* What so many boxes, which have their places, do in a period of another length; those of the last
 * size from `own` on. */
static void take_period(periods *self, int period, int own, int count) {
  const ls_life_box *boxes = self->taken->boxes;
  self->period = period;
  self->changed.count = 0;
  memset(self->follows, 0, sizeof(bool) * (size_t)count);
  memset(self->is_before, 0, sizeof(bool) * (size_t)count);
  for (int first = 0, end; first < count; first = end) {
    end = end_of_size(boxes, first, count);
    pairing of = begin_pairing(self, first, end);
    for (int i = first; i < end; i++) {
      const int before = find_before(self, &of, i);
      if (before >= 0 && boxes[i].offset == boxes[before].offset)
        self->follows[i] = self->is_before[before] = true;
    }
    if (first < own) note_changes(self, first, end);
  }
}

/* Whether the last boxes of a size so far lie where those so many before them do. */
static bool comes_back(const periods *self, int first, int end, int size, int period) {
  const ls_life_box *boxes = self->taken->boxes;
  if (end - 2 * size < first) return false;
  for (int i = end - size; i < end; i++) {
    const ls_life_box *own = &boxes[i], *before = &boxes[i - size];
    if (own->first - before->first != period || own->last - before->last != period ||
        own->offset != before->offset)
      return false;
  }
  return true;
}

/* Where n lives are under way at a time, each has the place of the n-th before it: then what comes
 * again does so after n periods. Returns whether that is so of the last boxes of a size so far. */
static bool take_longer(periods *self, int first, int end) {
  const ls_life_box *boxes = self->taken->boxes;
  int size = 1;
  while (end - size > first && boxes[end - 1 - size].first > boxes[end - 1].first - self->period)
    size++;
  for (int n = 1; n <= MOST_LONGER && n * self->period <= self->longest; n++) {
    if (!comes_back(self, first, end, n * size, n * self->period)) continue;
    if (n > 1) take_period(self, n * self->period, first, end);
    return n > 1;
  }
  return false;
}

static void place_alike(periods *self, int first, int end) {
  const ls_life_box *boxes = self->taken->boxes;
  pairing of = begin_pairing(self, first, end);
  self->alike.count = 0;
  self->passed = first;
  int looks = 1;
  for (int i = first; i < end; i++) {
    const bool due = i - first >= looks * ((end - first) / LOOKS + 1);
    if (due && boxes[i].first != boxes[i - 1].first) {
      looks++;
      if (of.ordered && take_longer(self, first, i)) {
        of = begin_pairing(self, first, end);
        self->alike.count = 0;
        self->passed = first;
        for (int b = first; b < i; b++) note_new(self, &self->alike, b, 1);
      }
    }
    place_next(self, i, find_before(self, &of, i));
  }
  note_changes(self, first, end);
}

static occupancy *open_occupancy(ls_arena *arena, ls_life_box *boxes, int count, int times,
                                 int period, int64_t alignment) {
  occupancy *made = LS_NEW(arena, occupancy);
  *made = (occupancy){.arena = arena, .alignment = alignment, .leaves = 1, .boxes = boxes};
  while (made->leaves < times) made->leaves *= 2;
  made->nodes = LS_NEW_ARRAY(arena, node, 2 * made->leaves);
  if (!period) return made;
  const int block = period > LEAST_BLOCK ? period : LEAST_BLOCK;
  made->late = (late_boxes){.by_block = LS_NEW_ARRAY(arena, ints, times / block + 1),
                            .times = block,
                            .late = LS_NEW_ARRAY(arena, bool, count),
                            .ever = LS_NEW_ARRAY(arena, bool, count),
                            .least_last = times,
                            .most_first = -1};
  return made;
}

int64_t ls_life_boxes_place(ls_life_box *boxes, int count, int times, int period,
                            int64_t alignment) {
  if (!count) return 0;
  ls_arena *scratch = ls_arena_create();
  occupancy *taken = open_occupancy(scratch, boxes, count, times, period, alignment);
  periods self = {.taken = taken, .period = period, .longest = times / 4};
  if (period) {
    self.follows = LS_NEW_ARRAY(scratch, bool, count);
    self.is_before = LS_NEW_ARRAY(scratch, bool, count);
  }
  for (int first = 0, end; first < count; first = end) {
    end = end_of_size(boxes, first, count);
    for (int i = first; i < end && !period; i++) place(taken, &boxes[i]);
    if (!period) continue;
    place_alike(&self, first, end);
  }
  const int64_t bytes = taken->bytes;
  ls_arena_destroy(&scratch);
  return bytes;
}
