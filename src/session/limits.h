/* Sizes that keys and a model's configuration may have together: beyond them a program would be too
 * long to compile, or its tensors and addresses too large to count.
 *
 *   LS_TRY(ls_session_check_sizes(session, error));      // before the graph is built
 *   LS_TRY(ls_session_check_programs(session, error));   // when it is compiled
 *
 * Thread-safe: nothing is changed. */
#ifndef LS_SESSION_LIMITS_H
#define LS_SESSION_LIMITS_H

#include "session/session.h"

/* LS_INPUT: microbatches times layers, or tokens times the widest dimension, are too many; names
 * the key, what was found and the limit. */
LS_CHECKED ls_status ls_session_check_sizes(const ls_session *session, ls_error *error);

/* LS_INPUT: what lives together on a device is larger than an address can tell. */
LS_CHECKED ls_status ls_session_check_programs(const ls_session *session, ls_error *error);

/* What keys say of a task that it is not, or cannot be: LS_INPUT. What the task needs to know of
 * the model is in the run from then on. */
LS_CHECKED ls_status ls_session_check_task(ls_session *session, ls_error *error);

#endif
