/* A microbatch through the program of the evaluation, under the parameters that the ranks have now.
 *
 *   int program;
 *   LS_TRY(ls_forward(session, rank, &inputs, m, step, &program, error));
 *   ... cells, and values of ls_rank_program(rank, program) ...
 *
 * Used by the rank's own thread. */
#ifndef LS_SESSION_FORWARD_H
#define LS_SESSION_FORWARD_H

#include "session/inputs.h"
#include "session/session.h"

/* What is said where a program that is to have room enough has not. */
#define LS_TOO_FEW_SLOTS                                                                  \
  "more rows for the experts of one rank than experts.again has slots for: use a larger " \
  "one, or experts.again=auto, for all"

/* Microbatch `m` of the step; again, by the program with more slots, where rows for experts found
 * none. *program takes the number of the one whose results hold. Collective: all ranks. */
LS_CHECKED ls_status ls_forward(const ls_session *session, ls_rank *rank, const ls_inputs *inputs,
                                int m, int64_t step, int *program, ls_error *error);

#endif
