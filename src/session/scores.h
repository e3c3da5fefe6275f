/* How likely answers are: of a session that is trained on pairs of answers, what the evaluation's
 * program makes of each document.
 *
 *   LS_TRY(ls_score_batch(session, rank, &inputs, step, scores, error));
 *
 * Used by the rank's own thread. */
#ifndef LS_SESSION_SCORES_H
#define LS_SESSION_SCORES_H

#include "session/inputs.h"
#include "session/session.h"

/* For each token of a step's batch [batch x T] the log-probability of its document's labels, beyond
 * that of the inputs' reference, under the parameters that the ranks have now: on all ranks the
 * same. Collective: all ranks. */
LS_CHECKED ls_status ls_score_batch(const ls_session *session, ls_rank *rank,
                                    const ls_inputs *inputs, int64_t step, double *scores,
                                    ls_error *error);

#endif
