/* How the transfers of an engine queue, as data: what `check` proves the end of a program for.
 *
 *   const ls_queues one = {"one", LS_QUEUE_FOR_ALL, .holds = true, .most_sends = 0};
 *
 * A queue is worked through in the order in which its transfers began. Collectives have queues of
 * their own, which all ranks of a group fill alike: one, or one for each set of axes. */
#ifndef LS_IR_QUEUES_H
#define LS_IR_QUEUES_H

#include "ir/program.h"

/* Which messages of a rank share a queue. */
typedef enum ls_queue_sharing {
  LS_QUEUE_A_PEER_AND_DIRECTION = 0, /* those to one other stage, or from it */
  LS_QUEUE_A_PEER,                   /* those to and from one other stage */
  LS_QUEUE_FOR_ALL
} ls_queue_sharing;

typedef struct ls_queues {
  const char *name;
  ls_queue_sharing sharing;
  bool holds;        /* a message occupies its queue, on both sides, until it is matched */
  int most_sends;    /* that may be under way from one rank to another; 0: any number */
  bool groups_apart; /* collectives over other axes have another queue */
} ls_queues;

/* Of the engine for ranks in one process, and in processes under MPI: messages wait beside each
 * other until they are taken. */
extern const ls_queues ls_queues_in_process;

/* Of NCCL, with a communicator and a stream for each peer and direction, and for each set of axes,
 * as PyTorch and Megatron have them: a send holds its stream until the receive is there. With one
 * stream for all messages even 1F1B would never end. No engine has more queues: what is in order on
 * these is so on all. */
extern const ls_queues ls_queues_nccl;

/* The number of an instruction's queue on its rank: two of one queue run in the order in which they
 * begin. */
int ls_queues_number(const ls_queues *queues, const ls_instruction *instruction);

/* Which messages have a queue of their own: "a peer and direction". */
const char *ls_queues_sharing_name(const ls_queues *queues);

#endif
