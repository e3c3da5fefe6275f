/* How the optimizer treats the parameters of a run, by group: lockstep show --groups.
 *
 *   ls_show_groups(session, false);
 *
 * One thread at a time: it prints. */
#ifndef LS_CLI_SHOW_GROUPS_H
#define LS_CLI_SHOW_GROUPS_H

#include "session/session.h"

/* Parameters with one learning rate and one weight decay are one line. */
void ls_show_groups(const ls_session *session, bool json);

/* Whether optimizer.groups or optimizer.layer_decay treats one of them otherwise than usual. */
bool ls_show_has_groups(const ls_session *session);

#endif
