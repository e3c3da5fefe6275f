/* `lockstep verify RUN.yaml`: the form of the command that takes a run file.
 *
 * Called by the main thread. */
#ifndef LS_CLI_VERIFY_LAYOUT_COMMAND_H
#define LS_CLI_VERIFY_LAYOUT_COMMAND_H

#include "text/run_file.h"

/* Shrinks the run, trains it beside one device and prints both tables to stdout, or all of it as
 * JSON. LS_REFUTED: they differ. */
LS_CHECKED ls_status ls_verify_layout_command(ls_arena *arena, ls_run_file *run, int devices,
                                              bool kernels, bool json, ls_error *error);

#endif
