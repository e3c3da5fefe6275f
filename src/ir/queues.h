/* How the messages of an engine queue, as data: what `check` proves the end of a program for.
 *
 *   const ls_queues one = {"one", LS_QUEUE_FOR_ALL, .holds = true, .most_sends = 0};
 *
 * A queue is worked through in the order in which its messages began. Collectives of the ranks of a
 * stage have a queue of their own, which all of them fill alike. */
#ifndef LS_IR_QUEUES_H
#define LS_IR_QUEUES_H

#include <stdbool.h>

/* Which messages of a rank share a queue. */
typedef enum ls_queue_sharing {
  LS_QUEUE_A_PEER_AND_DIRECTION = 0, /* those to one other stage, or from it */
  LS_QUEUE_A_PEER,                   /* those to and from one other stage */
  LS_QUEUE_FOR_ALL
} ls_queue_sharing;

typedef struct ls_queues {
  const char *name;
  ls_queue_sharing sharing;
  bool holds;     /* a message occupies its queue, on both sides, until it is matched */
  int most_sends; /* that may be under way from one rank to another; 0: any number */
} ls_queues;

/* Of the engine for ranks in one process, and in processes under MPI: messages wait beside each
 * other until they are taken. */
extern const ls_queues ls_queues_in_process;

/* Of NCCL, with a communicator and a stream for each peer and direction: a send holds its stream
 * until the receive is there. With one stream for all even 1F1B would never end. */
extern const ls_queues ls_queues_nccl;

/* Which messages have a queue of their own: "a peer and direction". */
const char *ls_queues_sharing_name(const ls_queues *queues);

#endif
