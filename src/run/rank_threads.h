/* The ranks of this process at work: one thread for each, the same function on all.
 *
 *   ls_status body(ls_comm *comm, void *context, ls_error *error) { ... }
 *   ls_rank_threads_run(world, body, &context, &error);
 */
#ifndef LS_RUN_RANK_THREADS_H
#define LS_RUN_RANK_THREADS_H

#include "comm/comm.h"

typedef ls_status (*ls_rank_threads_body)(ls_comm *comm, void *context, ls_error *error);

/* Runs `body` once for every rank of this process, each in its own thread; returns when all have
 * ended. A rank that fails aborts the world, so that nobody waits for it; the first failure is the
 * one returned. `context` is shared by all threads. */
LS_CHECKED ls_status ls_rank_threads_run(ls_world *world, ls_rank_threads_body body, void *context,
                                         ls_error *error);

#endif
