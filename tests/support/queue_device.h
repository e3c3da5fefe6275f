/* A device with a thread for each queue of each rank, for tests: it runs the programs of all ranks
 * with every freedom that their events, beginnings and waits leave, so that one which says too
 * little is seen. What a transfer fills is poison from its beginning until it is done.
 *
 *   ls_queue_memory *memory = ls_queue_memory_make(arena, stages, seed);
 *   ls_queue_device_run(stages, memory, LS_ORDER_SEEDED, seed);
 *
 * Collectives over other axes have other queues. Messages hold theirs, one a peer and direction,
 * until they are matched; with LS_ORDER_FREE they hold none, and what is sent is copied. Computes
 * in fp32 or fp64 on the reference kernels. */
#ifndef LS_TESTS_QUEUE_DEVICE_H
#define LS_TESTS_QUEUE_DEVICE_H

#include "ir/program.h"

typedef enum ls_order {
  LS_ORDER_ISSUED = 0, /* one after the other, as the program has them */
  LS_ORDER_SEEDED,     /* each queue for itself, with pauses drawn from the seed */
  LS_ORDER_LATE,       /* no transfer but a send before somebody waits for it */
  LS_ORDER_FREE        /* as SEEDED, on an engine whose messages hold no queue */
} ls_order;

/* The pools of all ranks. */
typedef struct ls_queue_memory {
  int ranks;
  char *(*pools)[LS_POOL_COUNT]; /* [rank] */
} ls_queue_memory;

/* Zeros but for parameters, state, inputs and cells, which are drawn. In the arena. */
ls_queue_memory *ls_queue_memory_make(ls_arena *arena, const ls_program *const *stages,
                                      uint64_t seed);

/* One run of the programs, by stage, that `check` has proved. Ends the test program where a kernel
 * fails. */
void ls_queue_device_run(const ls_program *const *stages, ls_queue_memory *memory, ls_order order,
                         uint64_t seed);

/* Whether what lasts, and the cells, are the same bit by bit. */
bool ls_queue_memory_equal(const ls_program *const *stages, const ls_queue_memory *a,
                           const ls_queue_memory *b);

/* The mean loss, as rank 0 has it. */
double ls_queue_memory_loss(const ls_program *const *stages, const ls_queue_memory *memory);

#endif
