/* What a run adds to the loss of routers, and what it tells of experts. Thread-safe: only the
 * session is changed. */
#ifndef LS_SESSION_BALANCE_H
#define LS_SESSION_BALANCE_H

#include "session/session.h"

/* Sets config.balance by the run's `experts` keys. LS_INPUT: they ask for what the model has not.
 */
LS_CHECKED ls_status ls_balance_apply(ls_session *session, ls_error *error);

/* Whether the layout can have the losses asked for; with the nearest that can. */
LS_CHECKED ls_status ls_balance_check(const ls_session *session, ls_error *error);

/* Sets config.balance.loads, by device and layout too. */
LS_CHECKED ls_status ls_balance_settle(ls_session *session, ls_error *error);

#endif
