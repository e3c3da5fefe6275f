/* Weights alone, on all ranks of a world: what evaluations of them begin with.
 *
 *   LS_TRY(ls_evaluate_ranks(session, world, body, context, error));
 *
 * Internal to this room. `body` runs in each rank's own thread. */
#ifndef LS_TRAIN_EVALUATE_RANKS_H
#define LS_TRAIN_EVALUATE_RANKS_H

#include "session/prove.h"
#include "session/session.h"

/* `first`: of the ranks of this process, whose findings are kept. Room of `arena` goes when the
 * rank ends. */
typedef ls_status ls_evaluate_body(void *context, ls_rank *rank, ls_arena *arena, bool first,
                                   ls_error *error);

/* Proves the session's programs (run->check), loads session->weights, and has each rank do `body`.
 * Collective: all processes. */
LS_CHECKED ls_status ls_evaluate_ranks(const ls_session *session, ls_world *world,
                                       ls_evaluate_body *body, void *context, ls_error *error);

#endif
