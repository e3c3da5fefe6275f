/* Attention by cuDNN: a plan for each shape, made once, kept in the user's cache, and run. */
#include <float.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/cuda_gpu.h"
#include "device/cuda/cuda_kept.h"
#include "device/cuda/cudnn_attention.h"

enum { MOST_PLANS = 64 };

typedef struct planned {
  ls_cudnn_attention of;
  ls_cudnn_plan plan; /* its descriptor is NULL where the library has none */
} planned;

struct ls_cuda_plans {
  cudnnHandle_t handle;
  planned items[MOST_PLANS];
  int count;
};

static const ls_cudnn_calls *library(void) {
  return &ls_cuda_opened()->cudnn;
}

/* Once a process, since all ranks would say the same. */
static void say(const char *why) {
  static atomic_flag said = ATOMIC_FLAG_INIT;
  if (!atomic_flag_test_and_set(&said)) ls_warn("attention runs on our own kernels: %s", why);
}

ls_status ls_cuda_plans_create(CUstream stream, ls_cuda_plans **plans, ls_error *error) {
  if (!ls_cuda_opened()->of[LS_CUDA_CUDNN].handle) return LS_OK;
  ls_cuda_plans *made = *plans = calloc(1, sizeof *made);
  if (!made) return ls_fail(error, LS_FAILED, "out of memory for cuDNN's plans");
  cudnnStatus_t status = library()->cudnnCreate(&made->handle);
  if (!status) status = library()->cudnnSetStream(made->handle, stream);
  if (!status) return LS_OK;
  char why[160];
  snprintf(why, sizeof why, "cuDNN gives no handle: %s; lockstep doctor says more",
           library()->cudnnGetErrorString(status));
  say(why);
  ls_cuda_plans_destroy(plans);
  return LS_OK;
}

void ls_cuda_plans_destroy(ls_cuda_plans **plans) {
  if (!*plans) return;
  for (int i = 0; i < (*plans)->count; i++)
    ls_cudnn_plan_destroy(library(), &(*plans)->items[i].plan);
  if ((*plans)->handle) (void)library()->cudnnDestroy((*plans)->handle);
  free(*plans);
  *plans = NULL;
}

/* ---- plans ----------------------------------------------------------------------------------- */

static char *key_of(ls_arena *arena, const ls_cuda_context *on, const ls_cudnn_attention *of) {
  const ls_cuda_libraries *libraries = ls_cuda_opened();
  char *key = ls_arena_printf(
      arena, "cuDNN %s on CUDA %d, %s, attention:", libraries->of[LS_CUDA_CUDNN].version,
      libraries->of[LS_CUDA_DRIVER].cuda, on->gpu.name);
  int64_t numbers[sizeof *of / sizeof(int64_t)];
  memcpy(numbers, of, sizeof numbers);
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    key = ls_arena_printf(arena, "%s %lld", key, (long long)numbers[i]);
  return key;
}

static ls_status make(const ls_cuda_plans *plans, const ls_cudnn_attention *of, int64_t most,
                      ls_cudnn_plan *plan, ls_error *error) {
  ls_cudnn_graph graph;
  ls_cudnn_graph_begin(&graph, library());
  ls_cudnn_attention_build(&graph, of);
  const ls_status status =
      ls_cudnn_plan_make(&graph, &(ls_cudnn_place){.handle = plans->handle}, most, plan, error);
  ls_cudnn_graph_end(&graph);
  return status;
}

/* From the user's cache, else from the library, which takes about a second. */
static ls_status read_or_make(const ls_cuda_stream *stream, const ls_cudnn_attention *of,
                              int64_t most, ls_cudnn_plan *plan, ls_error *error) {
  ls_arena *arena = ls_arena_create();
  const char *key = key_of(arena, stream->on, of);
  char *text;
  size_t bytes;
  int64_t length;
  ls_error ignored;
  if (ls_cuda_kept_read(arena, key, &text, &bytes) &&
      ls_cudnn_plan_read(library(), stream->plans->handle, text, (int64_t)bytes, plan, &ignored) ==
          LS_OK) {
    if (plan->workspace <= most) {
      ls_arena_destroy(&arena);
      return LS_OK;
    }
    ls_cudnn_plan_destroy(library(), plan); /* of a run with a larger workspace */
  }
  const ls_status status = make(stream->plans, of, most, plan, error);
  if (status == LS_OK &&
      ls_cudnn_plan_text(library(), plan, arena, &text, &length, &ignored) == LS_OK)
    ls_cuda_kept_write(arena, key, text, (size_t)length);
  ls_arena_destroy(&arena);
  return status;
}

/* The plan of a call; NULL: our own kernel runs it. */
static const ls_cudnn_plan *plan_of(ls_op_kind kind, const ls_kernel_args *args) {
  const ls_cuda_stream *stream = args->queue->stream;
  if (!ls_cudnn_attends(args->queue->facts, kind, args)) return NULL;
  if (!stream->plans) {
    say("cuDNN cannot be used: lockstep doctor says why");
    return NULL;
  }
  const ls_cudnn_attention of = ls_cudnn_attention_of(kind, args);
  ls_cuda_plans *plans = stream->plans;
  for (int i = 0; i < plans->count; i++)
    if (memcmp(&plans->items[i].of, &of, sizeof of) == 0)
      return plans->items[i].plan.descriptor ? &plans->items[i].plan : NULL;
  if (plans->count == MOST_PLANS) return NULL;
  planned *made = &plans->items[plans->count++];
  int64_t dots;
  ls_error error;
  made->of = of;
  const int64_t held = ls_cudnn_attention_held(&of, &dots);
  if (read_or_make(stream, &of, (int64_t)args->workspace_bytes - held, &made->plan, &error) ==
      LS_OK)
    return &made->plan;
  say(error.text);
  return NULL;
}

size_t ls_cuda_attention_wants(ls_op_kind kind, const ls_kernel_args *args) {
  if (kind != LS_OP_ATTENTION && kind != LS_OP_ATTENTION_BWD) return 0;
  const ls_cudnn_plan *plan = plan_of(kind, args);
  if (!plan) return 0;
  const ls_cudnn_attention of = ls_cudnn_attention_of(kind, args);
  int64_t dots;
  return (size_t)(ls_cudnn_attention_held(&of, &dots) + plan->workspace);
}

/* ---- running --------------------------------------------------------------------------------- */

/* Where tensors lie, by number. */
typedef struct variant {
  int count;
  int64_t numbers[LS_CUDNN_OPERANDS];
  void *at[LS_CUDNN_OPERANDS];
} variant;

static void give(variant *to, ls_cudnn_operand which, void *at) {
  to->numbers[to->count] = which;
  to->at[to->count++] = at;
}

static void give_forward(variant *to, const ls_kernel_args *args) {
  for (unsigned i = 0; i < 3; i++) give(to, LS_CUDNN_Q + i, args->in[i].data);
  give(to, LS_CUDNN_OUT, args->out[0].data);
  give(to, LS_CUDNN_LOG_SUMS, args->out[1].data);
}

static void give_backward(variant *to, const ls_kernel_args *args, char *row_dots) {
  for (unsigned i = 0; i < 3; i++) {
    give(to, LS_CUDNN_Q + i, args->in[1 + i].data);
    give(to, LS_CUDNN_DQ + i, args->out[i].data);
  }
  give(to, LS_CUDNN_DOUT, args->in[0].data);
  give(to, LS_CUDNN_OUT, args->in[4].data);
  give(to, LS_CUDNN_LOG_SUMS, args->in[5].data);
  give(to, LS_CUDNN_DQ_SUMS, args->workspace);
  give(to, LS_CUDNN_ROW_DOTS, row_dots);
}

ls_status ls_cuda_attend(ls_op_kind kind, const ls_kernel_args *args, bool *done, ls_error *error) {
  const ls_cuda_stream *stream = args->queue->stream;
  const ls_cudnn_plan *plan = plan_of(kind, args);
  *done = plan != NULL;
  if (!plan) return LS_OK;
  const ls_cudnn_attention of = ls_cudnn_attention_of(kind, args);
  int64_t dots;
  const int64_t held = ls_cudnn_attention_held(&of, &dots);
  float scale = (float)args->attributes->softmax_scale, one = 1, masked = -FLT_MAX;
  float window = (float)of.window;
  char *workspace = args->workspace;
  variant to = {.count = 0};
  if (of.backward) {
    give_backward(&to, args, workspace + dots);
    give(&to, LS_CUDNN_ONE, &one);
    LS_TRY(ls_cuda_gpu_did(stream->on,
                           ls_cuda_opened()->driver.cuMemsetD8Async(
                               (CUdeviceptr)(uintptr_t)workspace, 0, (size_t)dots, stream->compute),
                           "cuMemsetD8Async", error));
  } else {
    give_forward(&to, args);
  }
  give(&to, LS_CUDNN_SCALE, &scale);
  give(&to, LS_CUDNN_MASKED, &masked);
  if (of.window) give(&to, LS_CUDNN_WINDOW, &window);
  float zero = 0, by_token = 1e30F; /* of 2^24 tokens, less than FLT_MAX */
  if (of.documents) {
    give(&to, LS_CUDNN_POSITIONS, args->in[args->inputs - 1].data);
    give(&to, LS_CUDNN_ZERO, &zero);
    give(&to, LS_CUDNN_BY_TOKEN, &by_token);
  }
  return ls_cudnn_plan_run(library(), stream->plans->handle, plan, to.count, to.numbers, to.at,
                           workspace + held, error);
}
