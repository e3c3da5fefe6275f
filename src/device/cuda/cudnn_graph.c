/* cuDNN's descriptors: each is made, given attributes and finalised. */
#include "device/cuda/cudnn_graph.h"

#include <string.h>

/* Numbers of tensors that nobody gives a place; those of others are below. */
enum { FIRST_BETWEEN = 1000, BYTES_ALIGNED = 16 };

static ls_status did(const ls_cudnn_calls *calls, cudnnStatus_t status, const char *what,
                     ls_error *error) {
  if (!status) return LS_OK;
  char text[512] = "";
  calls->cudnnGetLastErrorString(text, sizeof text);
  text[strcspn(text, "\n")] = 0;
  return ls_fail(error, LS_FAILED, "cuDNN: %s: %s%s%s", what, calls->cudnnGetErrorString(status),
                 *text ? ": " : "", text);
}

void ls_cudnn_graph_begin(ls_cudnn_graph *graph, const ls_cudnn_calls *calls) {
  *graph = (ls_cudnn_graph){.calls = calls};
}

void ls_cudnn_graph_end(ls_cudnn_graph *graph) {
  while (graph->made_count)
    (void)graph->calls->cudnnBackendDestroyDescriptor(graph->made[--graph->made_count]);
}

static cudnnBackendDescriptor_t make(ls_cudnn_graph *graph, cudnnEnum type) {
  LS_ASSERT(graph->made_count < LS_CUDNN_MOST_MADE);
  cudnnBackendDescriptor_t made = NULL;
  if (!graph->failed) graph->failed = graph->calls->cudnnBackendCreateDescriptor(type, &made);
  if (made) graph->made[graph->made_count++] = made;
  return made;
}

static void set(ls_cudnn_graph *graph, cudnnBackendDescriptor_t of, cudnnEnum name, cudnnEnum type,
                int64_t count, const void *values) {
  if (!graph->failed)
    graph->failed = graph->calls->cudnnBackendSetAttribute(of, name, type, count, values);
}

static void set_one(ls_cudnn_graph *graph, cudnnBackendDescriptor_t of, cudnnEnum name,
                    cudnnEnum type, cudnnEnum value) {
  set(graph, of, name, type, 1, &value);
}

static void set_tensor(ls_cudnn_graph *graph, cudnnBackendDescriptor_t of, cudnnEnum name,
                       const ls_cudnn_tensor *tensor) {
  set(graph, of, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &tensor->descriptor);
}

static void finalize(ls_cudnn_graph *graph, cudnnBackendDescriptor_t of) {
  if (!graph->failed) graph->failed = graph->calls->cudnnBackendFinalize(of);
}

static void add_operation(ls_cudnn_graph *graph, cudnnBackendDescriptor_t operation) {
  LS_ASSERT(graph->operation_count < LS_CUDNN_MOST_TENSORS);
  finalize(graph, operation);
  graph->operations[graph->operation_count++] = operation;
}

/* ---- tensors --------------------------------------------------------------------------------- */

static ls_cudnn_tensor *add_tensor(ls_cudnn_graph *graph, cudnnEnum type, const int64_t *dims,
                                   const int64_t *strides, int64_t number, cudnnEnum also) {
  LS_ASSERT(graph->tensor_count < LS_CUDNN_MOST_TENSORS);
  ls_cudnn_tensor *made = &graph->tensors[graph->tensor_count++];
  const int64_t aligned = BYTES_ALIGNED;
  const bool yes = true;
  memcpy(made->dims, dims, sizeof made->dims);
  memcpy(made->strides, strides, sizeof made->strides);
  made->descriptor = make(graph, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  set_one(graph, made->descriptor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
  set(graph, made->descriptor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, LS_CUDNN_DIMS, dims);
  set(graph, made->descriptor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, LS_CUDNN_DIMS, strides);
  set(graph, made->descriptor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &number);
  set(graph, made->descriptor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &aligned);
  if (also) set(graph, made->descriptor, also, CUDNN_TYPE_BOOLEAN, 1, &yes);
  finalize(graph, made->descriptor);
  return made;
}

ls_cudnn_tensor *ls_cudnn_real(ls_cudnn_graph *graph, cudnnEnum type, const int64_t *dims,
                               const int64_t *strides, int64_t number) {
  return add_tensor(graph, type, dims, strides, number, 0);
}

static ls_cudnn_tensor *between(ls_cudnn_graph *graph, cudnnEnum type, const int64_t *dims,
                                const int64_t *strides) {
  return add_tensor(graph, type, dims, strides, FIRST_BETWEEN + graph->tensor_count,
                    CUDNN_ATTR_TENSOR_IS_VIRTUAL);
}

ls_cudnn_tensor *ls_cudnn_between(ls_cudnn_graph *graph, cudnnEnum type, const int64_t *dims) {
  const int64_t strides[] = {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1};
  return between(graph, type, dims, strides);
}

ls_cudnn_tensor *ls_cudnn_scalar(ls_cudnn_graph *graph, int64_t number) {
  static const int64_t one[LS_CUDNN_DIMS] = {1, 1, 1, 1};
  return add_tensor(graph, CUDNN_DATA_FLOAT, one, one, number, CUDNN_ATTR_TENSOR_IS_BY_VALUE);
}

/* ---- operations ------------------------------------------------------------------------------ */

static ls_cudnn_tensor *pointwise(ls_cudnn_graph *graph, cudnnEnum mode, cudnnEnum precision,
                                  int64_t axis, ls_cudnn_tensor *const from[3],
                                  ls_cudnn_tensor *y) {
  const cudnnBackendDescriptor_t how = make(graph, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  set_one(graph, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
  set_one(graph, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, precision);
  if (axis >= 0) set(graph, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
  finalize(graph, how);
  const cudnnBackendDescriptor_t made = make(graph, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  set(graph, made, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
      &how);
  set_tensor(graph, made, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, from[0]);
  if (from[1]) set_tensor(graph, made, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, from[1]);
  if (from[2]) set_tensor(graph, made, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, from[2]);
  set_tensor(graph, made, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
  add_operation(graph, made);
  return y;
}

ls_cudnn_tensor *ls_cudnn_pointwise(ls_cudnn_graph *graph, cudnnEnum mode, ls_cudnn_tensor *x,
                                    ls_cudnn_tensor *b, ls_cudnn_tensor *t, ls_cudnn_tensor *y) {
  if (!y) y = between(graph, CUDNN_DATA_FLOAT, x->dims, x->strides);
  return pointwise(graph, mode, CUDNN_DATA_FLOAT, -1, (ls_cudnn_tensor *[]){x, b, t}, y);
}

ls_cudnn_tensor *ls_cudnn_choose(ls_cudnn_graph *graph, cudnnEnum mode, ls_cudnn_tensor *a,
                                 ls_cudnn_tensor *b, ls_cudnn_tensor *x,
                                 ls_cudnn_tensor *otherwise) {
  ls_cudnn_tensor *holds = between(graph, CUDNN_DATA_BOOLEAN, a->dims, a->strides);
  pointwise(graph, mode, CUDNN_DATA_BOOLEAN, -1, (ls_cudnn_tensor *[]){a, b, NULL}, holds);
  return ls_cudnn_pointwise(graph, CUDNN_POINTWISE_BINARY_SELECT, x, otherwise, holds, NULL);
}

ls_cudnn_tensor *ls_cudnn_index(ls_cudnn_graph *graph, ls_cudnn_tensor *x, int64_t axis,
                                ls_cudnn_tensor *more) {
  ls_cudnn_tensor *index = between(graph, CUDNN_DATA_FLOAT, x->dims, x->strides);
  pointwise(graph, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, axis,
            (ls_cudnn_tensor *[]){x, NULL, NULL}, index);
  if (!more) return index;
  ls_cudnn_tensor *sum = between(graph, CUDNN_DATA_FLOAT, x->dims, x->strides);
  return pointwise(graph, CUDNN_POINTWISE_ADD, CUDNN_DATA_FLOAT, axis,
                   (ls_cudnn_tensor *[]){index, more, NULL}, sum);
}

ls_cudnn_tensor *ls_cudnn_multiply(ls_cudnn_graph *graph, ls_cudnn_tensor *a, ls_cudnn_tensor *b,
                                   ls_cudnn_tensor *out) {
  const cudnnBackendDescriptor_t how = make(graph, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  set_one(graph, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  finalize(graph, how);
  const cudnnBackendDescriptor_t made = make(graph, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  set_tensor(graph, made, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
  set_tensor(graph, made, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
  set_tensor(graph, made, CUDNN_ATTR_OPERATION_MATMUL_CDESC, out);
  set(graph, made, CUDNN_ATTR_OPERATION_MATMUL_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &how);
  add_operation(graph, made);
  return out;
}

ls_cudnn_tensor *ls_cudnn_reduce(ls_cudnn_graph *graph, cudnnEnum how, ls_cudnn_tensor *x,
                                 ls_cudnn_tensor *out) {
  const cudnnBackendDescriptor_t by = make(graph, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  set_one(graph, by, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, how);
  set_one(graph, by, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  finalize(graph, by);
  const cudnnBackendDescriptor_t made = make(graph, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  set_tensor(graph, made, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
  set_tensor(graph, made, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, out);
  set(graph, made, CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &by);
  add_operation(graph, made);
  return out;
}

ls_cudnn_tensor *ls_cudnn_transpose(ls_cudnn_graph *graph, cudnnEnum type, ls_cudnn_tensor *x) {
  const int64_t dims[] = {x->dims[0], x->dims[1], x->dims[3], x->dims[2]};
  const int64_t strides[] = {x->strides[0], x->strides[1], x->strides[3], x->strides[2]};
  ls_cudnn_tensor *out = between(graph, type, dims, strides);
  const cudnnBackendDescriptor_t made = make(graph, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  set_tensor(graph, made, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
  set_tensor(graph, made, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, out);
  add_operation(graph, made);
  return out;
}

/* ---- plans ----------------------------------------------------------------------------------- */

static cudnnBackendDescriptor_t describe(ls_cudnn_graph *of, const ls_cudnn_place *place) {
  if (place->handle) return NULL;
  const cudnnBackendDescriptor_t device = make(of, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  set(of, device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
      (int64_t)strlen(place->properties), place->properties);
  finalize(of, device);
  return device;
}

enum { MOST_OFFERS = 8 };

/* What the library offers, the fastest first as it guesses; returns how many. */
static int64_t ask(ls_cudnn_graph *of, const ls_cudnn_place *place, cudnnBackendDescriptor_t device,
                   const cudnnBackendDescriptor_t *operations, int operation_count,
                   cudnnBackendDescriptor_t offers[MOST_OFFERS]) {
  const cudnnBackendDescriptor_t graph = make(of, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  set(of, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, operation_count,
      operations);
  if (place->handle)
    set(of, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &place->handle);
  finalize(of, graph);
  const cudnnBackendDescriptor_t heuristics = make(of, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  set(of, heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
      &graph);
  set_one(of, heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, CUDNN_HEUR_MODE_A);
  if (device)
    set(of, heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
        &device);
  finalize(of, heuristics);
  for (int i = 0; i < MOST_OFFERS; i++) offers[i] = make(of, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  int64_t count = 0;
  if (!of->failed)
    of->failed = of->calls->cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, MOST_OFFERS,
                                                     &count, offers);
  return of->failed ? 0 : count < MOST_OFFERS ? count : MOST_OFFERS;
}

static cudnnStatus_t read_workspace(const ls_cudnn_calls *calls, ls_cudnn_plan *plan) {
  int64_t one;
  return calls->cudnnBackendGetAttribute(plan->descriptor, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                         CUDNN_TYPE_INT64, 1, &one, &plan->workspace);
}

/* An offer as a plan; false: it cannot be had. */
static bool accept(const ls_cudnn_calls *calls, const ls_cudnn_place *place,
                   cudnnBackendDescriptor_t device, cudnnBackendDescriptor_t offer,
                   ls_cudnn_plan *plan) {
  *plan = (ls_cudnn_plan){.descriptor = NULL};
  cudnnStatus_t status = calls->cudnnBackendCreateDescriptor(
      CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan->descriptor);
  if (!status)
    status =
        calls->cudnnBackendSetAttribute(plan->descriptor, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                        CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &offer);
  if (!status && place->handle)
    status = calls->cudnnBackendSetAttribute(plan->descriptor, CUDNN_ATTR_EXECUTION_PLAN_HANDLE,
                                             CUDNN_TYPE_HANDLE, 1, &place->handle);
  if (!status && device)
    status = calls->cudnnBackendSetAttribute(plan->descriptor, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
                                             CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &device);
  if (!status) status = calls->cudnnBackendFinalize(plan->descriptor);
  if (!status) status = read_workspace(calls, plan);
  return status == 0;
}

ls_status ls_cudnn_plan_make(const ls_cudnn_graph *graph, const ls_cudnn_place *place, int64_t most,
                             ls_cudnn_plan *plan, ls_error *error) {
  const ls_cudnn_calls *calls = graph->calls;
  LS_TRY(did(calls, graph->failed, "a graph", error));
  cudnnBackendDescriptor_t offers[MOST_OFFERS];
  ls_cudnn_graph own; /* what is made on the way */
  ls_cudnn_graph_begin(&own, calls);
  const cudnnBackendDescriptor_t device = describe(&own, place);
  const int64_t count = ask(&own, place, device, graph->operations, graph->operation_count, offers);
  ls_status status = did(calls, own.failed, "a graph", error);
  bool found = false;
  int64_t least = -1;
  for (int64_t i = 0; status == LS_OK && i < count && !found; i++) {
    const bool made = accept(calls, place, device, offers[i], plan);
    if (made && (least < 0 || plan->workspace < least)) least = plan->workspace;
    found = made && plan->workspace <= most;
    if (!found) ls_cudnn_plan_destroy(calls, plan);
  }
  ls_cudnn_graph_end(&own);
  if (status != LS_OK || found) return status;
  if (least >= 0)
    return ls_fail(error, LS_FAILED,
                   "cuDNN: the least workspace of its plans is %lld bytes; expected at most %lld",
                   (long long)least, (long long)most);
  return ls_fail(error, LS_FAILED, "cuDNN: no plan for this graph, of %lld offered",
                 (long long)count);
}

ls_status ls_cudnn_plan_text(const ls_cudnn_calls *calls, const ls_cudnn_plan *plan,
                             ls_arena *arena, char **text, int64_t *bytes, ls_error *error) {
  *bytes = 0;
  LS_TRY(did(calls,
             calls->cudnnBackendGetAttribute(plan->descriptor,
                                             CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                             CUDNN_TYPE_CHAR, 0, bytes, NULL),
             "the size of a plan", error));
  *text = ls_arena_alloc(arena, (size_t)*bytes + 1);
  (*text)[*bytes] = 0;
  return did(calls,
             calls->cudnnBackendGetAttribute(plan->descriptor,
                                             CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                             CUDNN_TYPE_CHAR, *bytes, bytes, *text),
             "a plan's text", error);
}

ls_status ls_cudnn_plan_read(const ls_cudnn_calls *calls, cudnnHandle_t handle, const char *text,
                             int64_t bytes, ls_cudnn_plan *plan, ls_error *error) {
  *plan = (ls_cudnn_plan){.descriptor = NULL};
  cudnnStatus_t status = calls->cudnnBackendCreateDescriptor(
      CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan->descriptor);
  if (!status)
    status = calls->cudnnBackendSetAttribute(plan->descriptor, CUDNN_ATTR_EXECUTION_PLAN_HANDLE,
                                             CUDNN_TYPE_HANDLE, 1, &handle);
  if (!status)
    status = calls->cudnnBackendSetAttribute(plan->descriptor,
                                             CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                             CUDNN_TYPE_CHAR, bytes, text);
  if (!status) status = calls->cudnnBackendFinalize(plan->descriptor);
  if (!status) status = read_workspace(calls, plan);
  const ls_status result = did(calls, status, "a plan from its text", error);
  if (result != LS_OK) ls_cudnn_plan_destroy(calls, plan);
  return result;
}

void ls_cudnn_plan_destroy(const ls_cudnn_calls *calls, ls_cudnn_plan *plan) {
  if (plan->descriptor) (void)calls->cudnnBackendDestroyDescriptor(plan->descriptor);
  *plan = (ls_cudnn_plan){.descriptor = NULL};
}

ls_status ls_cudnn_plan_run(const ls_cudnn_calls *calls, cudnnHandle_t handle,
                            const ls_cudnn_plan *plan, int count, const int64_t *numbers,
                            void *const *at, void *workspace, ls_error *error) {
  ls_cudnn_graph own;
  ls_cudnn_graph_begin(&own, calls);
  const cudnnBackendDescriptor_t variant = make(&own, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  set(&own, variant, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, numbers);
  set(&own, variant, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, at);
  set(&own, variant, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
  finalize(&own, variant);
  if (!own.failed) own.failed = calls->cudnnBackendExecute(handle, plan->descriptor, variant);
  const ls_status status = did(calls, own.failed, "a plan's run", error);
  ls_cudnn_graph_end(&own);
  return status;
}
