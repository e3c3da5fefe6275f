/* `lockstep show --memory-map`: a device's memory through a step as a picture. */
#ifndef LS_CLI_SHOW_MEMORY_MAP_H
#define LS_CLI_SHOW_MEMORY_MAP_H

#include "session/session.h"

/* Of one of the session's programs. LS_INPUT where `path` does not end with .svg. */
LS_CHECKED ls_status ls_show_memory_map(const ls_session *session, const ls_program *program,
                                        const char *path, ls_error *error);

#endif
