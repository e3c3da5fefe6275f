/* Sets of characters, as the classes of patterns are.
 *
 *   ls_point_set letters = {0};
 *   if (!ls_point_set_property(arena, "L", 1, &letters)) ...
 *   ls_point_set others = ls_point_set_complement(arena, &letters);
 *
 * All zero is the empty set. A set is never changed where it lies, so copies are free. Memory is
 * the arena's. One thread at a time. */
#ifndef LS_TOKENIZER_POINT_SET_H
#define LS_TOKENIZER_POINT_SET_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "tokenizer/unicode_tables.h"

enum { LS_POINTS = 0x110000 }; /* how many characters there are */

/* Ranges in order that do not touch. */
typedef struct ls_point_set {
  const ls_point_range *ranges;
  int count;
} ls_point_set;

ls_point_set ls_point_set_range(ls_arena *arena, uint32_t first, uint32_t last);
ls_point_set ls_point_set_union(ls_arena *arena, const ls_point_set *a, const ls_point_set *b);
ls_point_set ls_point_set_complement(ls_arena *arena, const ls_point_set *set);
ls_point_set ls_point_set_intersection(ls_arena *arena, const ls_point_set *a,
                                       const ls_point_set *b);
bool ls_point_set_has(const ls_point_set *set, uint32_t point);

/* The set of a table. */
ls_point_set ls_point_set_of(const ls_named_points *points);

/* A general category, of one letter or two, or a script of the table; false for other names. */
bool ls_point_set_property(ls_arena *arena, const char *name, size_t length, ls_point_set *set);

#endif
