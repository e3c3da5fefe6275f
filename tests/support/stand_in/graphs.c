/* cuDNN's graphs, with its rules of descriptors, in plain loops on the driver's stand-in. What it
 * does beyond the real one: a product that is summed in memory adds to what is there, as sums by
 * atomics do, and the workspace of a plan is overwritten. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "device/cuda/cudnn_calls.h"
#include "support/stand_in/driver.h"
#include "support/stand_in/numbers.h"
#include "support/stand_in/stand_in.h"

enum { WRONG = 2000, NOT_SUPPORTED = 3000 }; /* CUDNN_STATUS_BAD_PARAM, _NOT_SUPPORTED */
enum { MOST = 64, WORKSPACE = 256 };

struct cudnnContext {
  CUstream stream;
};

typedef struct tensor {
  cudnnEnum type;
  int64_t dims[4], strides[4], number;
  bool between, by_value;
} tensor;

typedef struct operation {
  cudnnEnum kind, mode;
  int64_t axis;
  int x, b, t, y; /* tensors of the program; -1: none */
} operation;

typedef struct program {
  tensor tensors[MOST];
  operation operations[MOST];
  int tensor_count, operation_count;
} program;

typedef struct descriptor {
  cudnnEnum type, mode;
  bool final;
  int64_t axis;
  tensor of;
  struct descriptor *link[5]; /* of an operation: how, x, b, t, y; of others: what they are of */
  program *whole;             /* of a graph, and what is made from it */
  int64_t numbers[MOST];
  void *at[MOST], *workspace;
  int64_t count;
} descriptor;

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle) {
  if (stand_in_fails("cudnn_fail", __func__)) return WRONG;
  *handle = calloc(1, sizeof **handle);
  return 0;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  free(handle);
  return 0;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, CUstream stream) {
  handle->stream = stream;
  return 0;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnEnum type, cudnnBackendDescriptor_t *made) {
  descriptor *of = calloc(1, sizeof *of);
  of->type = type;
  *made = of;
  return 0;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t which) {
  descriptor *of = which;
  free(of->whole);
  free(of);
  return 0;
}

/* ---- attributes ------------------------------------------------------------------------------ */

static program *copy_of(const program *from) {
  program *made = malloc(sizeof *made);
  memcpy(made, from, sizeof *made);
  return made;
}

static int add_tensor(program *to, const descriptor *of) {
  if (!of) return -1;
  for (int i = 0; i < to->tensor_count; i++)
    if (to->tensors[i].number == of->of.number) return i;
  to->tensors[to->tensor_count] = of->of;
  return to->tensor_count++;
}

static cudnnStatus_t take_operations(descriptor *graph, int64_t count, void *const *operations) {
  if (count < 1 || count > MOST) return WRONG;
  program *made = graph->whole = calloc(1, sizeof *made);
  for (int64_t i = 0; i < count; i++) {
    const descriptor *from = operations[i];
    if (!from->final) return WRONG;
    operation *to = &made->operations[made->operation_count++];
    *to = (operation){.kind = from->type,
                      .mode = from->link[0] ? from->link[0]->mode : 0,
                      .axis = from->link[0] ? from->link[0]->axis : 0,
                      .x = add_tensor(made, from->link[1]),
                      .b = add_tensor(made, from->link[2]),
                      .t = add_tensor(made, from->link[3]),
                      .y = add_tensor(made, from->link[4])};
  }
  return 0;
}

/* A plan's text: its bytes in hexadecimal digits. */
static cudnnStatus_t take_text(descriptor *plan, int64_t count, const char *text) {
  unsigned char *to = malloc(sizeof(program));
  plan->whole = (program *)(void *)to;
  if (count != 2 * (int64_t)sizeof(program)) return NOT_SUPPORTED;
  for (size_t i = 0; i < sizeof(program); i++) {
    unsigned value;
    if (sscanf(text + 2 * i, "%2x", &value) != 1) return NOT_SUPPORTED;
    to[i] = (unsigned char)value;
  }
  return 0;
}

static int link_of(cudnnEnum name) {
  switch (name) {
    case CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR:
    case CUDNN_ATTR_OPERATION_MATMUL_DESC:
    case CUDNN_ATTR_OPERATION_REDUCTION_DESC:
    case CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH:
    case CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG: return 0;
    case CUDNN_ATTR_OPERATION_POINTWISE_XDESC:
    case CUDNN_ATTR_OPERATION_MATMUL_ADESC:
    case CUDNN_ATTR_OPERATION_REDUCTION_XDESC:
    case CUDNN_ATTR_OPERATION_RESHAPE_XDESC: return 1;
    case CUDNN_ATTR_OPERATION_POINTWISE_BDESC:
    case CUDNN_ATTR_OPERATION_MATMUL_BDESC: return 2;
    case CUDNN_ATTR_OPERATION_POINTWISE_TDESC: return 3;
    case CUDNN_ATTR_OPERATION_POINTWISE_YDESC:
    case CUDNN_ATTR_OPERATION_MATMUL_CDESC:
    case CUDNN_ATTR_OPERATION_REDUCTION_YDESC:
    case CUDNN_ATTR_OPERATION_RESHAPE_YDESC: return 4;
    default: return -1;
  }
}

static cudnnStatus_t take_tensor(tensor *of, cudnnEnum name, int64_t count, const void *values) {
  switch (name) {
    case CUDNN_ATTR_TENSOR_DATA_TYPE: memcpy(&of->type, values, sizeof of->type); return 0;
    case CUDNN_ATTR_TENSOR_UNIQUE_ID: memcpy(&of->number, values, sizeof of->number); return 0;
    case CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT: return 0;
    case CUDNN_ATTR_TENSOR_IS_VIRTUAL: memcpy(&of->between, values, 1); return 0;
    case CUDNN_ATTR_TENSOR_IS_BY_VALUE: memcpy(&of->by_value, values, 1); return 0;
    case CUDNN_ATTR_TENSOR_DIMENSIONS: memcpy(of->dims, values, sizeof of->dims); break;
    case CUDNN_ATTR_TENSOR_STRIDES: memcpy(of->strides, values, sizeof of->strides); break;
    default: return NOT_SUPPORTED;
  }
  return count == 4 ? 0 : WRONG;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t which, cudnnEnum name,
                                       cudnnEnum type, int64_t count, const void *values) {
  descriptor *of = which;
  if (!of || of->final || !values || count < 1) return WRONG;
  if (of->type == CUDNN_BACKEND_TENSOR_DESCRIPTOR) return take_tensor(&of->of, name, count, values);
  const int link = link_of(name);
  if (link >= 0) {
    if (type != CUDNN_TYPE_BACKEND_DESCRIPTOR) return WRONG;
    memcpy(&of->link[link], values, sizeof of->link[link]);
    return of->link[link]->final || of->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR ? 0 : WRONG;
  }
  switch (name) {
    case CUDNN_ATTR_POINTWISE_MODE:
    case CUDNN_ATTR_REDUCTION_OPERATOR: memcpy(&of->mode, values, sizeof of->mode); return 0;
    case CUDNN_ATTR_POINTWISE_AXIS: memcpy(&of->axis, values, sizeof of->axis); return 0;
    case CUDNN_ATTR_OPERATIONGRAPH_OPS: return take_operations(of, count, values);
    case CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION: return take_text(of, count, values);
    case CUDNN_ATTR_VARIANT_PACK_WORKSPACE:
      memcpy(&of->workspace, values, sizeof(void *));
      return 0;
    case CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS:
    case CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS:
      if (count > MOST || (of->count && of->count != count)) return WRONG;
      of->count = count;
      memcpy(name == CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS ? (void *)of->numbers : (void *)of->at,
             values, (size_t)count * 8);
      return 0;
    default: return 0; /* precisions, which are fp32, and handles */
  }
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t which) {
  descriptor *of = which;
  if (!of || of->final) return WRONG;
  if (of->type == CUDNN_BACKEND_TENSOR_DESCRIPTOR && (!of->of.dims[0] || !of->of.number))
    return WRONG;
  const bool makes = of->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR ||
                     of->type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR;
  if (makes && !of->whole) {
    if (!of->link[0] || !of->link[0]->whole) return WRONG;
    of->whole = copy_of(of->link[0]->whole);
  }
  of->final = true;
  return 0;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t which, cudnnEnum name,
                                       cudnnEnum type, int64_t most, int64_t *count, void *values) {
  const descriptor *of = which;
  const int64_t bytes = WORKSPACE, digits = 2 * (int64_t)sizeof(program);
  (void)type;
  if (!of->final || !of->whole) return WRONG;
  *count = 1;
  if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS) {
    descriptor *offer;
    memcpy(&offer, values, sizeof offer);
    offer->whole = copy_of(of->whole);
  } else if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) {
    memcpy(values, &bytes, sizeof bytes);
  } else if (name == CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION) {
    const unsigned char *from = (const unsigned char *)(const void *)of->whole;
    *count = digits;
    for (int64_t i = 0; values && i < most / 2 && i < digits / 2; i++) {
      ((char *)values)[2 * i] = "0123456789abcdef"[from[i] >> 4];
      ((char *)values)[2 * i + 1] = "0123456789abcdef"[from[i] & 15];
    }
  } else {
    return NOT_SUPPORTED;
  }
  return 0;
}

/* ---- running --------------------------------------------------------------------------------- */

typedef struct running {
  program of;
  void *at[MOST];    /* by tensor */
  float given[MOST]; /* of the host's numbers */
  float *values[MOST];
  void *workspace;
} running;

static int64_t count_of(const tensor *of) {
  return of->dims[0] * of->dims[1] * of->dims[2] * of->dims[3];
}

static stand_in_type type_of(cudnnEnum type) {
  return type == CUDNN_DATA_BFLOAT16 ? STAND_IN_BF16
         : type == CUDNN_DATA_HALF   ? STAND_IN_FP16
                                     : STAND_IN_FP32;
}

/* Where element `i` in row-major order lies. */
static int64_t place_of(const tensor *of, int64_t i) {
  int64_t at = 0;
  for (int d = 3; d >= 0; d--) {
    at += i % of->dims[d] * of->strides[d];
    i /= of->dims[d];
  }
  return at;
}

/* The element of x that element `i` of y is made from: axes of which x has fewer repeat. */
static int64_t source_of(const tensor *x, const tensor *y, int64_t i) {
  int64_t at = 0, step = 1;
  for (int d = 3; d >= 0; d--) {
    at += i % y->dims[d] / (y->dims[d] / x->dims[d]) * step;
    step *= x->dims[d];
    i /= y->dims[d];
  }
  return at;
}

static const float *read_tensor(running *r, int which) {
  const tensor *of = &r->of.tensors[which];
  if (r->values[which]) return r->values[which];
  const int64_t count = count_of(of);
  float *made = r->values[which] = malloc((size_t)count * sizeof *made);
  for (int64_t i = 0; i < count; i++) {
    const int64_t at = place_of(of, i);
    made[i] = of->by_value                   ? r->given[which]
              : of->type == CUDNN_DATA_INT32 ? (float)((const int32_t *)r->at[which])[at]
                                             : number_at(r->at[which], type_of(of->type), at);
  }
  return made;
}

/* Rounds what was made to its type, and puts it where it is stored. */
static void store_tensor(running *r, int which) {
  const tensor *of = &r->of.tensors[which];
  float *values = r->values[which];
  for (int64_t i = 0; i < count_of(of); i++) {
    unsigned char rounded[4];
    put_number(rounded, type_of(of->type), 0, values[i]);
    values[i] = number_at(rounded, type_of(of->type), 0);
    if (!of->between) put_number(r->at[which], type_of(of->type), place_of(of, i), values[i]);
  }
}

static float apply(const operation *o, float x, float b, float t, int64_t index) {
  switch (o->mode) {
    case CUDNN_POINTWISE_ADD: return x + b;
    case CUDNN_POINTWISE_SUB: return x - b;
    case CUDNN_POINTWISE_MUL: return x * b;
    case CUDNN_POINTWISE_MIN: return fminf(x, b);
    case CUDNN_POINTWISE_DIV: return x / b;
    case CUDNN_POINTWISE_EXP: return expf(x);
    case CUDNN_POINTWISE_LOG: return logf(x);
    case CUDNN_POINTWISE_CMP_GE: return x >= b;
    case CUDNN_POINTWISE_CMP_GT: return x > b;
    case CUDNN_POINTWISE_BINARY_SELECT: return t != 0 ? x : b;
    case CUDNN_POINTWISE_GEN_INDEX: return (float)index;
    default: return x;
  }
}

static int64_t index_along(const tensor *of, int64_t axis, int64_t i) {
  for (int64_t d = 3; d > axis; d--) i /= of->dims[d];
  return i % of->dims[axis];
}

static void run_pointwise(running *r, const operation *o, float *made) {
  const tensor *y = &r->of.tensors[o->y];
  const int from[] = {o->x, o->b, o->t};
  const float *values[3] = {0};
  for (int k = 0; k < 3; k++)
    if (from[k] >= 0) values[k] = read_tensor(r, from[k]);
  for (int64_t i = 0; i < count_of(y); i++) {
    float given[3] = {0};
    for (int k = 0; k < 3; k++)
      if (values[k]) given[k] = values[k][source_of(&r->of.tensors[from[k]], y, i)];
    made[i] = apply(o, given[0], given[1], given[2], index_along(y, o->axis, i));
  }
}

/* Heads of which a side has fewer are shared. */
static void run_matmul(running *r, const operation *o, float *made) {
  const tensor *a = &r->of.tensors[o->x], *b = &r->of.tensors[o->b], *y = &r->of.tensors[o->y];
  const float *left = read_tensor(r, o->x), *right = read_tensor(r, o->b);
  const int64_t depth = a->dims[3], rows = y->dims[2], columns = y->dims[3], heads = y->dims[1];
  for (int64_t h = 0; h < y->dims[0] * heads; h++) {
    const float *l =
        left + (h / heads * a->dims[1] + h % heads * a->dims[1] / heads) * rows * depth;
    const float *m =
        right + (h / heads * b->dims[1] + h % heads * b->dims[1] / heads) * depth * columns;
    for (int64_t i = 0; i < rows * columns; i++) {
      float sum = 0;
      for (int64_t k = 0; k < depth; k++)
        sum += l[i / columns * depth + k] * m[k * columns + i % columns];
      made[h * rows * columns + i] = sum;
    }
  }
  for (int64_t i = 0; y->type == CUDNN_DATA_FLOAT && !y->between && i < count_of(y); i++)
    made[i] += number_at(r->at[o->y], STAND_IN_FP32, place_of(y, i));
}

static void run_reduce(running *r, const operation *o, float *made) {
  const tensor *x = &r->of.tensors[o->x], *y = &r->of.tensors[o->y];
  const float *values = read_tensor(r, o->x);
  const bool largest = o->mode == CUDNN_REDUCE_TENSOR_MAX;
  for (int64_t i = 0; i < count_of(y); i++) made[i] = largest ? -INFINITY : 0;
  for (int64_t i = 0; i < count_of(x); i++) {
    float *to = &made[source_of(y, x, i)];
    *to = largest ? fmaxf(*to, values[i]) : *to + values[i];
  }
}

/* The last two axes exchanged. */
static void run_transpose(running *r, const operation *o, float *made) {
  const tensor *y = &r->of.tensors[o->y];
  const float *values = read_tensor(r, o->x);
  const int64_t rows = y->dims[2], columns = y->dims[3];
  for (int64_t i = 0; i < count_of(y); i++) {
    const int64_t within = i % (rows * columns);
    made[i] = values[i - within + within % columns * rows + within / columns];
  }
}

static CUresult run_graph(void *data) {
  running *r = data;
  memset(r->workspace, 0xff, WORKSPACE);
  for (int i = 0; i < r->of.operation_count; i++) {
    const operation *o = &r->of.operations[i];
    float *made = malloc((size_t)count_of(&r->of.tensors[o->y]) * sizeof *made);
    switch (o->kind) {
      case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: run_pointwise(r, o, made); break;
      case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR: run_matmul(r, o, made); break;
      case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR: run_reduce(r, o, made); break;
      default: run_transpose(r, o, made);
    }
    r->values[o->y] = made;
    store_tensor(r, o->y);
  }
  for (int t = 0; t < r->of.tensor_count; t++) { /* a captured one runs again */
    free(r->values[t]);
    r->values[t] = NULL;
  }
  return CUDA_SUCCESS;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t variant) {
  CUresult (*enqueue)(CUstream, stand_in_work, const void *, size_t) =
      (CUresult(*)(CUstream, stand_in_work, const void *, size_t))dlsym(
          dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), "stand_in_enqueue");
  const descriptor *of = plan, *with = variant;
  if (!enqueue || !of->final || !of->whole || !with->final || (size_t)with->workspace % 256)
    return WRONG;
  running *made = calloc(1, sizeof *made);
  cudnnStatus_t status = 0;
  made->of = *of->whole;
  made->workspace = with->workspace;
  for (int t = 0; t < made->of.tensor_count; t++) {
    const tensor *needs = &made->of.tensors[t];
    for (int64_t i = 0; i < with->count; i++)
      if (with->numbers[i] == needs->number) made->at[t] = with->at[i];
    if (needs->by_value && made->at[t]) memcpy(&made->given[t], made->at[t], sizeof(float));
    if (!needs->between && (!made->at[t] || (!needs->by_value && (size_t)made->at[t] % 16)))
      status = WRONG;
  }
  if (!status && enqueue(handle->stream, run_graph, made, sizeof *made)) status = NOT_SUPPORTED;
  free(made);
  return status;
}
