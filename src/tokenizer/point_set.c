#include "tokenizer/point_set.h"

#include <string.h>

ls_point_set ls_point_set_range(ls_arena *arena, uint32_t first, uint32_t last) {
  ls_point_range *range = LS_NEW(arena, ls_point_range);
  *range = (ls_point_range){first, last};
  return (ls_point_set){range, 1};
}

ls_point_set ls_point_set_union(ls_arena *arena, const ls_point_set *a, const ls_point_set *b) {
  ls_point_range *made = LS_NEW_ARRAY(arena, ls_point_range, a->count + b->count);
  int count = 0;
  for (int i = 0, k = 0; i < a->count || k < b->count;) {
    const bool of_a = k == b->count || (i < a->count && a->ranges[i].first < b->ranges[k].first);
    const ls_point_range next = of_a ? a->ranges[i++] : b->ranges[k++];
    if (count == 0 || next.first > made[count - 1].last + 1) {
      made[count++] = next;
    } else if (next.last > made[count - 1].last) {
      made[count - 1].last = next.last;
    }
  }
  return (ls_point_set){made, count};
}

ls_point_set ls_point_set_complement(ls_arena *arena, const ls_point_set *set) {
  ls_point_range *made = LS_NEW_ARRAY(arena, ls_point_range, set->count + 1);
  int count = 0;
  uint32_t first = 0; /* behind the last range */
  for (int i = 0; i < set->count; i++) {
    if (set->ranges[i].first > first) {
      made[count++] = (ls_point_range){first, set->ranges[i].first - 1};
    }
    first = set->ranges[i].last + 1;
  }
  if (first < LS_POINTS) made[count++] = (ls_point_range){first, LS_POINTS - 1};
  return (ls_point_set){made, count};
}

ls_point_set ls_point_set_intersection(ls_arena *arena, const ls_point_set *a,
                                       const ls_point_set *b) {
  const ls_point_set not_a = ls_point_set_complement(arena, a);
  const ls_point_set not_b = ls_point_set_complement(arena, b);
  const ls_point_set neither = ls_point_set_union(arena, &not_a, &not_b);
  return ls_point_set_complement(arena, &neither);
}

bool ls_point_set_has(const ls_point_set *set, uint32_t point) {
  int low = 0, high = set->count;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (set->ranges[middle].last < point) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < set->count && set->ranges[low].first <= point;
}

ls_point_set ls_point_set_of(const ls_named_points *points) {
  return (ls_point_set){points->ranges, points->count};
}

/* The runs whose category's name begins so. */
static ls_point_set of_category(ls_arena *arena, const char *name, size_t length) {
  ls_point_range *made = LS_NEW_ARRAY(arena, ls_point_range, ls_category_run_count);
  int count = 0;
  for (int i = 0; i < ls_category_run_count; i++) {
    const uint32_t run = ls_category_runs[i];
    if (strncmp(ls_category_names + 2 * (run & 0xff), name, length) != 0) continue;
    const uint32_t first = run >> 8;
    const uint32_t next = i + 1 < ls_category_run_count ? ls_category_runs[i + 1] >> 8 : LS_POINTS;
    if (count && made[count - 1].last + 1 == first) {
      made[count - 1].last = next - 1;
    } else {
      made[count++] = (ls_point_range){first, next - 1};
    }
  }
  return (ls_point_set){made, count};
}

bool ls_point_set_property(ls_arena *arena, const char *name, size_t length, ls_point_set *set) {
  for (const ls_named_points *script = ls_scripts; script->name; script++) {
    if (strlen(script->name) != length || strncmp(script->name, name, length) != 0) continue;
    *set = ls_point_set_of(script);
    return true;
  }
  if (length < 1 || length > 2) return false;
  *set = of_category(arena, name, length);
  return set->count > 0;
}
