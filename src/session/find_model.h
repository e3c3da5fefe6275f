/* The model of a run: its shape, and what keys of the run say of its mathematics: adapters, how
 * weights are kept, dropout. Thread-safe: only the session is changed. */
#ifndef LS_SESSION_FIND_MODEL_H
#define LS_SESSION_FIND_MODEL_H

#include "session/session.h"

/* Fills session->config. LS_INPUT: the errors of ls_model_find and ls_adapters_apply, or keys that
 * say more of adapters than there are. */
LS_CHECKED ls_status ls_session_find_model(ls_session *session, ls_error *error);

#endif
