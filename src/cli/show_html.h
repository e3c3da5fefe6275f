/* `lockstep show --html`: a page that steps through the training step under several layouts. */
#ifndef LS_CLI_SHOW_HTML_H
#define LS_CLI_SHOW_HTML_H

#include "session/session.h"

/* The session's layout beside DDP, ZeRO-3, TP and PP of the same run on as many devices; those that
 * cannot be say why. `run` is as it was read, before the session resolved it. */
LS_CHECKED ls_status ls_show_html(const ls_session *session, const ls_run_file *run,
                                  const char *path, ls_error *error);

#endif
