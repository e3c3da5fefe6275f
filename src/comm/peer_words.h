/* How ranks of several processes are told by each other's GPUs how far those are. Private to the
 * engine of peers.
 *
 * An event of one process cannot be given to another so that a wait for it ends where that process
 * is killed. A word of the host's memory can: a queue writes it, others await it, and the host
 * writes it where nobody else will. */
#ifndef LS_COMM_PEER_WORDS_H
#define LS_COMM_PEER_WORDS_H

#include "comm/engine.h"
#include "comm/world.h"

enum { LS_NUMBERS_BYTES = LS_MOST_NUMBERS * sizeof(double) };

/* What a member of a group tells the others: each says by its number, which grows, that its data of
 * a collective is there, that it no longer reads others', that it has sent a message, that it has
 * taken one. */
typedef enum ls_mark_kind { LS_MARK_READY, LS_MARK_DONE, LS_MARK_SENT, LS_MARK_TAKEN } ls_mark_kind;

typedef struct ls_peer_words ls_peer_words;

/* A group's: of each member where its words are. */
typedef struct ls_group_words {
  char **seen;   /* [size] by this process */
  char **at;     /* [size] by its GPU */
  char *numbers; /* this rank's, of sums under way: LS_MOST_SENDS slots that the others read */
  /* The last that this rank awaits, of collectives and of messages. */
  _Atomic uint32_t calls, messages;
} ls_group_words;

/* Whether peers of other processes can be served so. LS_FAILED: why not. */
LS_CHECKED ls_status ls_peer_words_try(const ls_carrier_options *of, ls_error *error);

/* Collective: all ranks. In the memory of the comm. */
LS_CHECKED ls_status ls_peer_words_open(const ls_carrier_options *of, ls_peer_words **made,
                                        ls_error *error);
/* When no queue writes or awaits any more. */
void ls_peer_words_close(ls_peer_words *of);

/* Collective: the members of the group, groups in one order. */
LS_CHECKED ls_status ls_peer_words_join(ls_peer_words *of, ls_group *group, ls_group_words **made,
                                        ls_error *error);

LS_CHECKED ls_status ls_peer_words_write(const ls_peer_words *of, const ls_group *group,
                                         const ls_group_words *words, ls_mark_kind kind,
                                         uint32_t number, const ls_device_queue *queue,
                                         ls_error *error);
LS_CHECKED ls_status ls_peer_words_await(const ls_peer_words *of, ls_group_words *words, int member,
                                         ls_mark_kind kind, uint32_t number,
                                         const ls_device_queue *queue, ls_error *error);

/* Ends all waits of the group that are on queues of this rank: what they waited for is given up. A
 * queue that still writes undoes it, so it is done again until those are empty. */
void ls_peer_words_let_go(const ls_group *group, const ls_group_words *words);

#endif
