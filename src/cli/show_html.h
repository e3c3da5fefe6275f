/* `lockstep show --html`: a page that steps through the training step under several layouts. */
#ifndef LS_CLI_SHOW_HTML_H
#define LS_CLI_SHOW_HTML_H

#include "cli/command.h"
#include "session/session.h"

/* This run's own layout, the session's, beside DDP, ZeRO-3, TP and PP of the same model on as many
 * devices, made of the same run file and words; those that cannot be say why. */
LS_CHECKED ls_status ls_show_html(const ls_session *session, const char *run_path,
                                  const ls_words *words, const char *path, ls_error *error);

#endif
