/* The optimizer's tensors in a checkpoint; private to this room.
 *
 *   for (int m = 0; m < ls_checkpoint_moments(program, parameter); m++)
 *     ... ls_checkpoint_moment(arena, program, parameter, m)->name ...
 *
 * Thread-safe: no state. */
#ifndef LS_CHECKPOINT_CHECKPOINT_MOMENTS_H
#define LS_CHECKPOINT_CHECKPOINT_MOMENTS_H

#include "ir/program.h"
#include "store/names.h"

/* How many the parameter has: none where it is frozen. */
int ls_checkpoint_moments(const ls_program *program, int parameter);

/* How many all parameters have. */
int ls_checkpoint_moments_of_all(const ls_program *program);

/* "moment1.NAME" or "moment2.NAME", in the parameter's own shape; in the arena. */
const ls_stored_layout *ls_checkpoint_moment(ls_arena *arena, const ls_program *program,
                                             int parameter, int moment);

#endif
