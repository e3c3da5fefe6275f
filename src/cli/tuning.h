/* What a person is told while GPUs time their library's kernels of products, on stderr.
 *
 *   ls_tell_tuning(session);  ... before its ranks are made
 *
 * One session at a time in a process. */
#ifndef LS_CLI_TUNING_H
#define LS_CLI_TUNING_H

#include "session/session.h"

void ls_tell_tuning(ls_session *session);

#endif
