/* Inside of `program`: from actions to instructions. */
#ifndef LS_PROGRAM_LOWER_H
#define LS_PROGRAM_LOWER_H

#include "program/program.h"

/* Storages of a unit; -1 where there is none. */
typedef struct ls_unit_memory {
  int stored; /* parameters between steps: whole or the piece */
  int used;   /* what kernels read: `stored`, or a gathered copy */
  int master, moment1, moment2;
  int raw;     /* gradient as nodes write it, whole */
  int reduced; /* the gradient the update reads: `raw`, or the piece */
} ls_unit_memory;

typedef struct ls_lowering {
  ls_program *program;
  const ls_sharded *sharded;
  const ls_units *units;
  ls_dtype accumulate; /* fp32, or fp64 under fp64 */
  ls_unit_memory *memory;
  int *value_of; /* program value by sharded value, -1: not made yet */
  int *last_use; /* node that last reads a sharded value */
} ls_lowering;

int ls_lower_storage(ls_lowering *lowering, const char *name, ls_pool pool, ls_category category,
                     int64_t bytes);
int ls_lower_value(ls_lowering *lowering, const ls_value *value);

/* Elements [offset, offset + elements) of a unit, as a 1-D value in `storage`, which holds the
 * whole buffer or this rank's piece. cut: only what lies in this rank's piece. */
int ls_lower_range(ls_lowering *lowering, const char *name, int storage, ls_dtype dtype, int unit,
                   int64_t offset, int64_t elements, bool cut);

ls_instruction *ls_lower_op(ls_lowering *lowering, ls_op_kind kind);
ls_instruction *ls_lower_collective(ls_lowering *lowering, ls_collective collective, ls_axes axes,
                                    int source, int target, int64_t count, const char *reason);

/* Makes the storages and the values of units, cells and inputs. */
void ls_lower_units(ls_lowering *lowering);

/* Appends the instructions of one action that is not FORWARD or BACKWARD. */
void ls_lower_action(ls_lowering *lowering, const ls_action *action);

/* Appends the instructions of a pass over a segment. */
void ls_lower_pass(ls_lowering *lowering, int segment, bool backward);

/* Works out lifetimes over the actions of the first microbatch and gives each storage its offset.
 */
void ls_lower_memory(ls_program *program);

#endif
