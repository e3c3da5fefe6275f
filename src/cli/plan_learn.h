/* `plan --learn` and `plan --forget`: what a measured run corrects of this machine's rates. */
#ifndef LS_CLI_PLAN_LEARN_H
#define LS_CLI_PLAN_LEARN_H

#include "base/arena.h"

/* Simulates the run in this folder on this machine, without what was learned before, and keeps with
 * the machine's rates how much longer its recorded step (trace: true) took in ops of each kind;
 * says so. LS_INPUT: no run, no trace, or a machine that was not measured. */
LS_CHECKED ls_status ls_plan_learn(ls_arena *arena, const char *folder, ls_error *error);

/* Removes all that was learned; the rates stay. */
LS_CHECKED ls_status ls_plan_forget(ls_arena *arena, ls_error *error);

#endif
