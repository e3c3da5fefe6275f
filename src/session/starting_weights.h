/* Looks at the files that a session's weights are to be read from, before anything is made of them:
 *
 *   LS_TRY(ls_session_check_weights(session, error));
 *
 * Reading them is ls_session_load_weights (session.h). Any thread. */
#ifndef LS_SESSION_STARTING_WEIGHTS_H
#define LS_SESSION_STARTING_WEIGHTS_H

#include "session/session.h"

/* LS_INPUT names the file and the tensor that is missing or of another shape. */
LS_CHECKED ls_status ls_session_check_weights(const ls_session *session, ls_error *error);

#endif
