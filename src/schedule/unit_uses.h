/* Which units the passes of each segment use: they read weights and write gradients. The backward
 * pass of a head has nothing to do where its forward pass has turned back at once.
 *
 *   const ls_units_used *list = ls_unit_uses_of(units->uses, LS_UNIT_USES_BACKWARD, segment);
 *   for (int i = 0; i < list->count; i++) use(list->items[i].unit);
 *
 * In the arena of the sharded graph; never changes once made. */
#ifndef LS_SCHEDULE_UNIT_USES_H
#define LS_SCHEDULE_UNIT_USES_H

#include "shard/shard.h"

typedef enum ls_unit_uses_kind {
  LS_UNIT_USES_FORWARD = 0,
  LS_UNIT_USES_INPUT,    /* backward, what earlier segments wait for */
  LS_UNIT_USES_WEIGHT,   /* backward, the rest */
  LS_UNIT_USES_BACKWARD, /* both of these */
  LS_UNIT_USES_KINDS
} ls_unit_uses_kind;

typedef struct ls_unit_use {
  int unit;
  bool reads, writes; /* its weights; its gradient */
} ls_unit_use;

/* Of one pass over a segment, by unit. */
typedef struct ls_units_used {
  ls_unit_use *items;
  int count, capacity;
} ls_units_used;

typedef struct ls_unit_uses {
  ls_units_used *of[LS_UNIT_USES_KINDS]; /* by segment */
  bool *works[LS_UNIT_USES_KINDS];       /* by segment: the pass has something to do */
} ls_unit_uses;

/* `of_parameter`: the unit of each parameter. */
ls_unit_uses *ls_unit_uses_make(const ls_sharded *sharded, const int *of_parameter);

const ls_units_used *ls_unit_uses_of(const ls_unit_uses *uses, ls_unit_uses_kind kind, int segment);

/* The pass's use of a unit; NULL: it has none. */
const ls_unit_use *ls_unit_uses_find(const ls_units_used *list, int unit);

#endif
