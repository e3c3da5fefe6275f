/* Whether what a session offloads has room on this machine. */
#ifndef LS_SESSION_OFFLOAD_ROOM_H
#define LS_SESSION_OFFLOAD_ROOM_H

#include "session/session.h"

/* Before a run of `ranks` ranks on this host: LS_INPUT where offload.path is missing, no
 * folder or not to be written; LS_REFUTED where the disk or the host's memory is too small, with
 * both numbers. Nothing is written. */
LS_CHECKED ls_status ls_session_check_offload(const ls_session *session, int ranks,
                                              ls_error *error);

/* LS_REFUTED: `ranks` offload more to their host than host.memory allows each. `here`: where that
 * is auto, than this machine has. */
LS_CHECKED ls_status ls_session_check_host(const ls_session *session, int ranks, bool here,
                                           ls_error *error);

#endif
