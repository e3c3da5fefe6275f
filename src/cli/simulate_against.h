/* `simulate --against`: a simulated step beside one that was recorded, by kind of instruction. */
#ifndef LS_CLI_SIMULATE_AGAINST_H
#define LS_CLI_SIMULATE_AGAINST_H

#include <jansson.h>

#include "watch/timeline.h"

/* Prints seconds of a rank in each kind of instruction, simulated and measured. `path`: a run's
 * folder, whose trace.json is read, or such a file. LS_INPUT: it is none. */
LS_CHECKED ls_status ls_simulate_against(ls_arena *arena, const ls_timeline *simulated,
                                         const char *path, ls_error *error);

#endif
