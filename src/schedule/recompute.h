/* Recomputation: which nodes of the forward pass run again before the backward pass, so that what
 * they make need not be kept.
 *
 * A group of layers is run again from what enters its first layer. Of what a group makes and its
 * own backward pass reads, the results of the ops that the layout names are dropped; to make them
 * again, nodes run again back to what is kept. The same kernels read the same bits, so gradients
 * are bit-equal. In the arena of the sharded graph. */
#ifndef LS_SCHEDULE_RECOMPUTE_H
#define LS_SCHEDULE_RECOMPUTE_H

#include "schedule/chunks.h"

typedef struct ls_recompute {
  bool *nodes;      /* by sharded node: it runs again */
  bool *dropped;    /* by sharded value: made again, not kept from forward to backward */
  bool *read;       /* by sharded value: a node that runs again reads it, none makes it again */
  int *group_last;  /* by segment: the last one of its group; -1: nothing of it runs again */
  int *group_first; /* by segment: the first one of its group, itself where it is in none */
} ls_recompute;

ls_recompute *ls_recompute_make(const ls_sharded *sharded, const ls_chunks *chunks);

/* Floating-point operations of one microbatch, over the whole mesh, that are done again. */
double ls_recompute_flops(const ls_sharded *sharded, const ls_recompute *recompute);

#endif
