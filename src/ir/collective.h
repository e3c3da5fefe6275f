/* What an instruction may be besides an op: collectives, messages and moves between tiers. */
#ifndef LS_IR_COLLECTIVE_H
#define LS_IR_COLLECTIVE_H

#include <stdbool.h>

typedef enum ls_collective {
  LS_COLLECTIVE_NONE = 0, /* an op */
  LS_ALL_REDUCE,
  LS_REDUCE_SCATTER, /* on dimension 0 or flat */
  LS_ALL_GATHER,     /* on dimension 0 or flat */
  LS_SEND,           /* to the same place on another stage; the data stays until SENT */
  LS_RECEIVE,
  LS_SENT,
  LS_MOVE,  /* this rank's bytes of one tier to another; both places stay alone until MOVED */
  LS_MOVED, /* the end of a MOVE */
  /* The sum of a few fp64 numbers over all ranks, in halves: everyone says its own, which stay as
   * they are until the end, where they become the sum. */
  LS_SUM_BEGIN,
  LS_SUM_END,
  LS_COLLECTIVE_COUNT
} ls_collective;

/* MOVE or MOVED: nothing that other ranks take part in. */
bool ls_collective_moves(ls_collective collective);

const char *ls_collective_name(ls_collective collective);

#endif
