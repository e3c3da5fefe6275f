/* `lockstep show --compare`: what strategies cost a device, side by side; the same numbers of one
 * program as JSON.
 *
 * Called by the main thread. */
#ifndef LS_CLI_SHOW_COMPARE_H
#define LS_CLI_SHOW_COMPARE_H

#include <jansson.h>

#include "ir/program.h"
#include "text/run_file.h"

/* Prints the table, or JSON, of the run, as it was read, and every candidate
 * (cli/show_candidates.h) to stdout; those that cannot be say why. LS_INPUT where none can be. */
LS_CHECKED ls_status ls_show_compare(ls_arena *arena, const ls_run_file *run, int devices,
                                     bool as_json, ls_error *error);

/* What a program costs a device: bytes by category at the peak, of each tier, and sent. The caller
 * owns it. */
json_t *ls_show_cost_json(const ls_program *program, int64_t workspace);

/* Prints it to stdout and drops it. */
void ls_show_print_json(json_t *root);

#endif
