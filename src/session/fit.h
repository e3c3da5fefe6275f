/* Whether a run fits the memory that is there, and what would make it fit.
 *
 *   LS_TRY(ls_session_check_fit(session, ranks_on_host, ranks_here, error));
 *
 * Before anything is mapped or written. Of any thread. */
#ifndef LS_SESSION_FIT_H
#define LS_SESSION_FIT_H

#include "session/session.h"

/* LS_REFUTED where the ranks of this machine need more than is available (the machine's memory,
 * what is left of the cgroup) or those of this process more than its limits leave; names the sum,
 * the largest categories and what would make it fit. `on_host`: ranks of the whole run on this
 * machine; `here`: of this process. */
LS_CHECKED ls_status ls_session_check_fit(const ls_session *session, int on_host, int here,
                                          ls_error *error);

/* Bytes of this machine's memory that so many ranks of the run need. */
int64_t ls_session_needs(const ls_session *session, int ranks);

/* LS_REFUTED where `needed` bytes are more than this process can have; `advice` says what needs
 * fewer.
 */
LS_CHECKED ls_status ls_check_memory(int64_t needed, const char *advice, ls_error *error);

/* LS_REFUTED where a device needs more than device.memory, likewise. */
LS_CHECKED ls_status ls_session_check_device(const ls_session *session, ls_error *error);

#endif
