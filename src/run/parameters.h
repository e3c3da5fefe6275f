/* Parameters, gradients and moments of a run as whole, logical tensors: whatever the layout, the
 * same names and shapes. Used by checkpoints, verification and tests. */
#ifndef LS_RUN_PARAMETERS_H
#define LS_RUN_PARAMETERS_H

#include "run/rank.h"

typedef enum ls_part_of_parameter {
  LS_PART_MASTER = 0, /* fp32 (fp64) weights */
  LS_PART_MOMENT1,
  LS_PART_MOMENT2,
  LS_PART_GRADIENT, /* the reduced gradient, before clipping: after ls_rank_run_gradients. It is
                     * multiplied by LS_CELL_SCALE */
  LS_PART_COUNT
} ls_part_of_parameter;

/* Puts elements [first, first + count) of the whole, row-major parameter (of `dtype`: LS_F32 or
 * LS_F64) to where this rank keeps its share of them; the compute copy is written along with
 * LS_PART_MASTER. Not collective: every rank calls it with the same data. */
LS_CHECKED ls_status ls_rank_write_parameter(ls_rank *rank, const ls_program *program,
                                             int parameter, ls_part_of_parameter part,
                                             int64_t first, int64_t count, const void *data,
                                             ls_dtype dtype, ls_error *error);

/* Whether this rank keeps any of elements [first, first + count), so that a caller need not make
 * what would be thrown away. */
bool ls_rank_keeps_parameter(const ls_rank *rank, const ls_program *program, int parameter,
                             int64_t first, int64_t count);

/* Gets elements [first, first + count) of the whole tensor on every rank, in `dtype` (the type of
 * accumulation: fp32, or fp64 in fp64 runs). Each element comes from the first rank that has it.
 * Collective: all ranks. `program` must be program 0 of the rank. */
LS_CHECKED ls_status ls_rank_read_parameter(ls_rank *rank, const ls_program *program, int parameter,
                                            ls_part_of_parameter part, int64_t first, int64_t count,
                                            void *data, ls_dtype dtype, ls_error *error);

/* Elements of the whole tensor. */
int64_t ls_program_parameter_elements(const ls_program_parameter *parameter);

#endif
