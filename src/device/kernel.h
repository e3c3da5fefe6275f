/* What a kernel is given, and the table of kernels a device is.
 *
 * Kernels compute on one rank's part of each tensor. They are called from the rank's executor
 * thread with a queue of the device, and allocate nothing. LS_OK says that the work is enqueued:
 * what fails later is said where the queue is waited for. On the CPU a call has ended when it
 * returns. */
#ifndef LS_DEVICE_KERNEL_H
#define LS_DEVICE_KERNEL_H

#include "graph/op.h"
#include "lockstep/dtype.h"
#include "lockstep/status.h"

/* A rank's part of a tensor: row-major over `dims` (the stored size: the row stride of a matrix is
 * dims[1]). Only the first valid[d] entries of dimension d exist; what lies beyond is padding:
 * rows beyond are neither read nor written, columns beyond are zero and are kept zero (kernels may
 * compute over them, since zero weights make them zero). start[d] is the place of entry 0 in the
 * whole tensor. Of a range of a parameter's elements, ndim 1, start[0] is the place of element 0 in
 * what tensor parallelism leaves of the whole, of which a row has dims[1] elements and which begins
 * at row start[1] and column start[2] of the whole. */
typedef struct ls_view {
  void *data;
  ls_dtype dtype;
  int ndim;
  int64_t dims[LS_MAX_DIMS];
  int64_t valid[LS_MAX_DIMS];
  int64_t start[LS_MAX_DIMS];
} ls_view;

/* The experts whose matrices, each of `rows` rows, a rank's part of stacked weights has. */
typedef struct ls_held_experts {
  int64_t first, count;
} ls_held_experts;

static inline ls_held_experts ls_held_experts_of(const ls_view *weights, int64_t rows) {
  return (ls_held_experts){weights->start[0] / rows, weights->dims[0] / rows};
}

typedef struct ls_device_facts ls_device_facts;

/* What kernels are put on: work of one queue is done in the order in which it was put there. */
typedef struct ls_device_queue {
  const ls_device_facts *facts; /* of the device that computes */
  void *stream;                 /* the device's own; NULL on the CPU */
} ls_device_queue;

typedef struct ls_kernel_args {
  const ls_device_queue *queue; /* that of a recipe's arguments is not read */
  const ls_attributes *attributes;
  int inputs, outputs;
  ls_view in[LS_MAX_INPUTS];
  ls_view out[LS_MAX_OUTPUTS];
  bool accumulate[LS_MAX_OUTPUTS]; /* add to the output in place of writing it */
  void *workspace;
  size_t workspace_bytes;
} ls_kernel_args;

/* Of RESTORE_SCALES: which of the whole weight's scales a row's first one is; and LS_INTERNAL where
 * operands are none of it. */
int64_t ls_kernel_first_scale(const ls_kernel_args *args, int64_t row);
LS_CHECKED ls_status ls_kernel_check_scales(const ls_kernel_args *args, ls_error *error);

typedef ls_status (*ls_kernel)(const ls_kernel_args *args, ls_error *error);

/* Kernels of one device, by op; starts as the reference set, so no entry is ever NULL. */
typedef struct ls_kernel_table {
  const char *name;
  ls_kernel kernel[LS_OP_COUNT];
  /* What a library behind the kernel wants of workspace, asked when a program is loaded: never more
   * than the device's recipe says. Data pointers are not read. NULL: there is none. */
  size_t (*wants)(ls_op_kind kind, const ls_kernel_args *args);
  /* Makes what a library behind the kernel needs for such a call, as a program is loaded, so that
   * no step makes it. Data pointers are not read. NULL: nothing is needed. */
  ls_status (*prepare)(ls_op_kind kind, const ls_kernel_args *args, ls_error *error);
  /* LINEAR and LINEAR_BLOCKS take a third input, a vector that is added to each row, begins at a
   * multiple of 16 bytes and is of the output's type: that of the BIAS behind it, which is then
   * left out. */
  bool joins_bias;
} ls_kernel_table;

/* The plain C reference: every compute tensor in `dtype` (LS_F32 or LS_F64), one thread. */
void ls_reference_kernels(ls_kernel_table *table, ls_dtype dtype);

#endif
