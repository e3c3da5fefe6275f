/* `lockstep show --floor`: a step's work by kind of op, and how long this machine needs at least.
 */
#ifndef LS_CLI_SHOW_FLOOR_H
#define LS_CLI_SHOW_FLOOR_H

#include <stdbool.h>

#include "session/session.h"

/* On stdout. Of rates that are not kept nothing is made: then there are no floors, and a line on
 * stderr says why. */
void ls_show_floor(const ls_session *session, bool json);

#endif
