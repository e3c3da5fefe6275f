/* What a person is told while GPUs time their library's kernels of products, on stderr.
 *
 *   ls_tell_tuning(session);  ... before its ranks are made
 *
 * One session at a time in a process. */
#ifndef LS_CLI_TUNING_H
#define LS_CLI_TUNING_H

#include "session/session.h"

void ls_tell_tuning(ls_session *session);

/* What it has them tell, for others that make ranks; the context is its own. */
void ls_tuning_tell(void *context, const ls_rank_tuning *said);

#endif
