/* The optimizer's tensors in a checkpoint; private to this room.
 *
 *   for (int part = 0; part < LS_PART_COUNT; part++)
 *     if (ls_checkpoint_has(program, parameter, (ls_state_part)part))
 *       ... ls_checkpoint_moment(arena, program, parameter, (ls_state_part)part)->name ...
 *
 * Thread-safe: no state. */
#ifndef LS_CHECKPOINT_CHECKPOINT_MOMENTS_H
#define LS_CHECKPOINT_CHECKPOINT_MOMENTS_H

#include "ir/program.h"
#include "store/names.h"

/* Whether the part of the parameter is saved among the optimizer's tensors: not where it is frozen,
 * whatever stage has it. */
bool ls_checkpoint_has(const ls_program *program, int parameter, ls_state_part part);

/* How many the parameter has, and how many all have. */
int ls_checkpoint_moments(const ls_program *program, int parameter);
int ls_checkpoint_moments_of_all(const ls_program *program);

/* "moment1.NAME" or "moment2.NAME", in the parameter's own shape; in the arena. */
const ls_stored_layout *ls_checkpoint_moment(ls_arena *arena, const ls_program *program,
                                             int parameter, ls_state_part part);

#endif
