/* Graphs of cuDNN's operations, and plans that run them, in C.
 *
 *   ls_cudnn_graph graph;
 *   ls_cudnn_graph_begin(&graph, calls);
 *   ls_cudnn_tensor *x = ls_cudnn_real(&graph, CUDNN_DATA_BFLOAT16, dims, strides, 1);
 *   ls_cudnn_pointwise(&graph, CUDNN_POINTWISE_EXP, x, NULL, NULL, y);
 *   LS_TRY(ls_cudnn_plan_make(&graph, &where, most_bytes, &plan, error));
 *   ls_cudnn_graph_end(&graph);
 *
 * The first call that fails is kept; those behind it do nothing, and making the plan says it. */
#ifndef LS_DEVICE_CUDA_CUDNN_GRAPH_H
#define LS_DEVICE_CUDA_CUDNN_GRAPH_H

#include "base/arena.h"
#include "device/cuda/cudnn_calls.h"
#include "lockstep/status.h"

enum { LS_CUDNN_DIMS = 4, LS_CUDNN_MOST_TENSORS = 64, LS_CUDNN_MOST_MADE = 192 };

typedef struct ls_cudnn_tensor {
  cudnnBackendDescriptor_t descriptor;
  int64_t dims[LS_CUDNN_DIMS], strides[LS_CUDNN_DIMS];
} ls_cudnn_tensor;

typedef struct ls_cudnn_graph {
  const ls_cudnn_calls *calls;
  cudnnBackendDescriptor_t made[LS_CUDNN_MOST_MADE], operations[LS_CUDNN_MOST_TENSORS];
  ls_cudnn_tensor tensors[LS_CUDNN_MOST_TENSORS];
  int made_count, operation_count, tensor_count;
  cudnnStatus_t failed;
} ls_cudnn_graph;

/* A plan, and the bytes of workspace that it takes. */
typedef struct ls_cudnn_plan {
  cudnnBackendDescriptor_t descriptor;
  int64_t workspace;
} ls_cudnn_plan;

/* What a plan is made for: the GPU of a handle or, where that is NULL, one that is described. */
typedef struct ls_cudnn_place {
  cudnnHandle_t handle;
  const char *properties; /* JSON, as cuDNN writes it of a device */
} ls_cudnn_place;

void ls_cudnn_graph_begin(ls_cudnn_graph *graph, const ls_cudnn_calls *calls);

/* Gives back all descriptors that the graph has made. */
void ls_cudnn_graph_end(ls_cudnn_graph *graph);

/* A tensor in memory, by the number that a variant gives it its place by; strides in elements. */
ls_cudnn_tensor *ls_cudnn_real(ls_cudnn_graph *graph, cudnnEnum type, const int64_t *dims,
                               const int64_t *strides, int64_t number);

/* A tensor between operations, row-major, that nobody stores. */
ls_cudnn_tensor *ls_cudnn_between(ls_cudnn_graph *graph, cudnnEnum type, const int64_t *dims);

/* One fp32 number, given by the host. */
ls_cudnn_tensor *ls_cudnn_scalar(ls_cudnn_graph *graph, int64_t number);

/* y = mode(x, b), where `t` chooses between them if the mode is a choice; returns y. A NULL `y`: a
 * tensor between operations of x's size, in fp32. */
ls_cudnn_tensor *ls_cudnn_pointwise(ls_cudnn_graph *graph, cudnnEnum mode, ls_cudnn_tensor *x,
                                    ls_cudnn_tensor *b, ls_cudnn_tensor *t, ls_cudnn_tensor *y);

/* x where a compares with b as `mode` says, else `otherwise`. */
ls_cudnn_tensor *ls_cudnn_choose(ls_cudnn_graph *graph, cudnnEnum mode, ls_cudnn_tensor *a,
                                 ls_cudnn_tensor *b, ls_cudnn_tensor *x,
                                 ls_cudnn_tensor *otherwise);

/* The index along an axis of each element of x, plus `more` where that is not NULL. */
ls_cudnn_tensor *ls_cudnn_index(ls_cudnn_graph *graph, ls_cudnn_tensor *x, int64_t axis,
                                ls_cudnn_tensor *more);

/* out = a b, summed in fp32; returns out. */
ls_cudnn_tensor *ls_cudnn_multiply(ls_cudnn_graph *graph, ls_cudnn_tensor *a, ls_cudnn_tensor *b,
                                   ls_cudnn_tensor *out);

/* The sum or the maximum of x over the axes that `out` has one of; returns out. */
ls_cudnn_tensor *ls_cudnn_reduce(ls_cudnn_graph *graph, cudnnEnum how, ls_cudnn_tensor *x,
                                 ls_cudnn_tensor *out);

/* x with its last two axes exchanged, in `type`. */
ls_cudnn_tensor *ls_cudnn_transpose(ls_cudnn_graph *graph, cudnnEnum type, ls_cudnn_tensor *x);

/* The first plan that the library offers and whose workspace is no more than `most` bytes.
 * LS_FAILED: it has none, with what it says. */
LS_CHECKED ls_status ls_cudnn_plan_make(const ls_cudnn_graph *graph, const ls_cudnn_place *place,
                                        int64_t most, ls_cudnn_plan *plan, ls_error *error);

/* A plan as text that a process with the same GPU and library makes it from; in the arena. */
LS_CHECKED ls_status ls_cudnn_plan_text(const ls_cudnn_calls *calls, const ls_cudnn_plan *plan,
                                        ls_arena *arena, char **text, int64_t *bytes,
                                        ls_error *error);
LS_CHECKED ls_status ls_cudnn_plan_read(const ls_cudnn_calls *calls, cudnnHandle_t handle,
                                        const char *text, int64_t bytes, ls_cudnn_plan *plan,
                                        ls_error *error);

void ls_cudnn_plan_destroy(const ls_cudnn_calls *calls, ls_cudnn_plan *plan);

/* Puts a plan on the handle's stream: tensors lie where `at` says, by number. */
LS_CHECKED ls_status ls_cudnn_plan_run(const ls_cudnn_calls *calls, cudnnHandle_t handle,
                                       const ls_cudnn_plan *plan, int count, const int64_t *numbers,
                                       void *const *at, void *workspace, ls_error *error);

#endif
