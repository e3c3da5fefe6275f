/* `lockstep show --html`: a page that steps through the training step under several layouts. */
#ifndef LS_CLI_SHOW_HTML_H
#define LS_CLI_SHOW_HTML_H

#include "cli/command.h"

/* This run's own layout beside DDP, ZeRO-3, TP and PP of the same model on as many devices; those
 * that cannot be say why. LS_INPUT where not even the run's own can be. */
LS_CHECKED ls_status ls_show_html(ls_arena *arena, const char *run_path, const ls_words *words,
                                  int devices, const char *path, ls_error *error);

#endif
