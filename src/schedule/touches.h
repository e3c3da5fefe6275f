/* Which units the passes of each segment touch: they read weights and write gradients. The backward
 * pass of a head has nothing to do where its forward pass has turned back at once.
 *
 *   const ls_touched *list = ls_touches_of(units->touches, LS_TOUCHES_BACKWARD, segment);
 *   for (int i = 0; i < list->count; i++) use(list->items[i].unit);
 *
 * In the arena of the sharded graph; never changes once made. */
#ifndef LS_SCHEDULE_TOUCHES_H
#define LS_SCHEDULE_TOUCHES_H

#include "shard/shard.h"

typedef enum ls_touches_kind {
  LS_TOUCHES_FORWARD = 0,
  LS_TOUCHES_INPUT,    /* backward, what earlier segments wait for */
  LS_TOUCHES_WEIGHT,   /* backward, the rest */
  LS_TOUCHES_BACKWARD, /* both of these */
  LS_TOUCHES_KINDS
} ls_touches_kind;

typedef struct ls_touch {
  int unit;
  bool reads, writes; /* its weights; its gradient */
} ls_touch;

/* Of one pass over a segment, by unit. */
typedef struct ls_touched {
  ls_touch *items;
  int count, capacity;
} ls_touched;

typedef struct ls_touches {
  ls_touched *of[LS_TOUCHES_KINDS]; /* by segment */
  bool *works[LS_TOUCHES_KINDS];    /* by segment: the pass has something to do */
} ls_touches;

/* `of_parameter`: the unit of each parameter. */
ls_touches *ls_touches_make(const ls_sharded *sharded, const int *of_parameter);

const ls_touched *ls_touches_of(const ls_touches *touches, ls_touches_kind kind, int segment);

/* The pass's touch of a unit; NULL: it does not touch it. */
const ls_touch *ls_touches_find(const ls_touched *list, int unit);

#endif
