/* Parameters, gradients and moments of a run as whole, logical tensors: whatever the layout, the
 * same names and shapes. Used by checkpoints, verification and tests. */
#ifndef LS_RUN_RANK_PARAMETERS_H
#define LS_RUN_RANK_PARAMETERS_H

#include "run/rank.h"
#include "run/state_ranges.h"

/* Parts are those that are kept, and the reduced gradient, before clipping, after
 * ls_rank_run_gradients: it is multiplied by LS_CELL_SCALE. LS_PART_MASTER of what is frozen is its
 * weights as they are stored. An element of a parameter that is stored as blocks is a block: `data`
 * has LS_BLOCK_WEIGHTS numbers of a floating type for each; what is written may also be blocks of
 * the same type. Where scales of blocks have 8 bits, numbers are written and read by what the next
 * parameter, of LS_SCALES, has then. */

/* Puts elements [first, first + count) of the whole, row-major parameter (of `dtype`: any floating
 * type) to where this rank keeps its share of them; the compute copy is written along with
 * LS_PART_MASTER. Not collective: every rank calls it with the same data. */
LS_CHECKED ls_status ls_rank_write_parameter(ls_rank *rank, const ls_program *program,
                                             int parameter, ls_state_part part, int64_t first,
                                             int64_t count, const void *data, ls_dtype dtype,
                                             ls_error *error);

/* Fills `numbers` [count] with numbers [first, first + count) of a parameter as it begins. */
typedef void ls_first_numbers(void *context, int64_t first, int64_t count, double *numbers);

/* Writes the numbers by which a parameter of double blocks has its scales, as its first numbers
 * have them: ahead of those. Not collective, as above. */
LS_CHECKED ls_status ls_rank_write_scales(ls_rank *rank, const ls_program *program, int parameter,
                                          ls_first_numbers *of, void *context, ls_error *error);

/* ls_rank_write_parameter for a box of the whole parameter; `data` is the box alone, row-major. */
LS_CHECKED ls_status ls_rank_write_box(ls_rank *rank, const ls_program *program, int parameter,
                                       ls_state_part part, const ls_box *box, const void *data,
                                       ls_dtype dtype, ls_error *error);

/* What this rank keeps of a part, so that a caller need not read what would be thrown away; of
 * LS_PART_MASTER with the compute copy, which may be more than the master. Returns how many boxes:
 * 0 where it keeps nothing. */
int ls_rank_kept_boxes(const ls_rank *rank, const ls_program *program, int parameter,
                       ls_state_part part, ls_box boxes[LS_MOST_RANGES]);

/* Whether this rank keeps any of elements [first, first + count) of the master or its copy. */
bool ls_rank_keeps_parameter(const ls_rank *rank, const ls_program *program, int parameter,
                             int64_t first, int64_t count);

/* Gets a box of a parameter that lies in the range, row-major. Not collective. */
LS_CHECKED ls_status ls_rank_read_range(ls_rank *rank, const ls_program *program, int parameter,
                                        const ls_state_range *range, const ls_box *box, void *data,
                                        ls_dtype dtype, ls_error *error);

/* Gets of elements [first, first + count) of the whole tensor those that this rank saves, and zeros
 * in place of the others: the sum over all ranks is ls_rank_read_parameter's. Not collective. */
LS_CHECKED ls_status ls_rank_read_share(ls_rank *rank, const ls_program *program, int parameter,
                                        ls_state_part part, int64_t first, int64_t count,
                                        void *data, ls_dtype dtype, ls_error *error);

/* Gets elements [first, first + count) of the whole tensor on every rank, in `dtype` (the type of
 * accumulation: fp32, or fp64 in fp64 runs). Each element comes from the rank that saves it.
 * Collective: all ranks. `program` must be program 0 of the rank. */
LS_CHECKED ls_status ls_rank_read_parameter(ls_rank *rank, const ls_program *program, int parameter,
                                            ls_state_part part, int64_t first, int64_t count,
                                            void *data, ls_dtype dtype, ls_error *error);

/* Elements of the whole tensor, and the numbers that they stand for. */
int64_t ls_program_parameter_elements(const ls_program_parameter *parameter);
int64_t ls_program_parameter_numbers(const ls_program_parameter *parameter);

#endif
