/* What an instruction may be besides an op: collectives, messages and moves between tiers. */
#ifndef LS_IR_COLLECTIVE_H
#define LS_IR_COLLECTIVE_H

#include <stdbool.h>

typedef enum ls_collective {
  LS_COLLECTIVE_NONE = 0, /* an op */
  LS_ALL_REDUCE,
  LS_REDUCE_SCATTER, /* on dimension 0 or flat */
  LS_ALL_GATHER,     /* on dimension 0 or flat */
  LS_SEND,           /* to the same place on another stage */
  LS_RECEIVE,
  LS_MOVE,        /* this rank's bytes of one tier to another */
  LS_ALL_TO_ALL,  /* shards of one dimension become those of another */
  LS_PERMUTE,     /* the shards go round on an axis */
  LS_DEAL,        /* shards of a unit become whole matrices, each at its owner */
  LS_HAND_BACK,   /* and these shards again, for all that have them */
  LS_SUM_NUMBERS, /* of a few fp64 over all ranks: until its end they stay as they are */
  LS_COLLECTIVE_COUNT
} ls_collective;

/* A collective is whole, or one instruction begins it and another, with the same operands, ends it:
 * in between nobody writes what it reads or touches what it fills. */
typedef enum ls_phase { LS_WHOLE = 0, LS_BEGIN, LS_END, LS_PHASE_COUNT } ls_phase;

/* MOVE: nothing that other ranks take part in. */
bool ls_collective_moves(ls_collective collective);

/* Not an op, and no MOVE: other ranks take part. */
bool ls_collective_communicates(ls_collective collective);

/* SEND or RECEIVE. */
bool ls_collective_is_message(ls_collective collective);

/* DEAL or HAND_BACK: of pieces as ir/owners.h lists them. */
bool ls_collective_deals(ls_collective collective);

/* ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, ALL_TO_ALL, PERMUTE, DEAL or HAND_BACK: all members of
 * its group do the same. */
bool ls_collective_is_of_group(ls_collective collective);

const char *ls_collective_name(ls_collective collective);

/* "", "begin " or "end of ", before the name. */
const char *ls_phase_name(ls_phase phase);

#endif
