/* Whether this process is asked to stop: what takes long looks at it between its parts, and then
 * leaves nothing half-done behind.
 *
 *   static volatile sig_atomic_t stop;      // a signal handler sets it
 *   ls_stop_listen(&stop);
 *   ...
 *   LS_TRY(ls_stop_check("reading texts", error));
 *
 * One flag for the process, as signals are. Of any thread. */
#ifndef LS_BASE_STOP_H
#define LS_BASE_STOP_H

#include <signal.h>
#include <stdbool.h>

#include "lockstep/status.h"

/* From now on a flag that is not 0 asks to stop; NULL: nothing does. Returns the flag before. */
const volatile sig_atomic_t *ls_stop_listen(const volatile sig_atomic_t *flag);

bool ls_stop_asked(void);

/* LS_STOPPED, "stopped while WHAT", where it is asked. */
LS_CHECKED ls_status ls_stop_check(const char *what, ls_error *error);

#endif
