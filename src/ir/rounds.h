/* What all ranks do together outside of programs, as a list of rounds: in each some of them work
 * alone, then all meet in one collective over the whole mesh. Saving and loading run such lists,
 * and `check` proves that they come to their end on every rank.
 *
 *   for (int r = 0; r < rounds->count; r++) puts(rounds->items[r].name);
 *
 * Thread-safe: constant. */
#ifndef LS_IR_ROUNDS_H
#define LS_IR_ROUNDS_H

#include <stdbool.h>

/* The collective that a round ends with. */
typedef enum ls_meeting {
  LS_MEETING_AGREE = 0, /* whether all are well; where one is not, the list ends on all */
  LS_MEETING_BROADCAST, /* of rank 0 */
  LS_MEETING_GATHER,    /* of every rank, to all */
  LS_MEETING_COUNT
} ls_meeting;

/* Who works in a round. */
typedef enum ls_workers { LS_ALL_RANKS = 0, LS_FIRST_RANK, LS_OTHER_RANKS } ls_workers;

typedef struct ls_round {
  const char *name; /* of its work */
  ls_workers who;
  bool may_fail; /* on some rank alone */
  ls_meeting meeting;
  unsigned needs, makes; /* sets of what is to be there on all ranks, of what is there then */
} ls_round;

typedef struct ls_rounds {
  const char *name; /* "saving" */
  const ls_round *items;
  int count;
  unsigned goal; /* what is there at the end */
} ls_rounds;

#endif
