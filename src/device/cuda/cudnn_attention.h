/* Attention as graphs of cuDNN: which calls it takes, and the graph of one.
 *
 *   if (ls_cudnn_attends(facts, LS_OP_ATTENTION, args)) {
 *     const ls_cudnn_attention of = ls_cudnn_attention_of(LS_OP_ATTENTION, args);
 *     ls_cudnn_graph_begin(&graph, calls);
 *     ls_cudnn_attention_build(&graph, &of);
 *     ...
 *   }
 *
 * A graph is the composite one that its heuristics know as flash attention: scores by a product,
 * masks by indices, the softmax by its parts, and backward the same again from what forward kept.
 * Nothing here has a library linked or asks one: the calls are given. */
#ifndef LS_DEVICE_CUDA_CUDNN_ATTENTION_H
#define LS_DEVICE_CUDA_CUDNN_ATTENTION_H

#include "device/cuda/cudnn_graph.h"
#include "device/facts.h"

/* Numbers of the tensors of a graph. Those from LS_CUDNN_SCALE on are numbers of the host's. */
typedef enum ls_cudnn_operand {
  LS_CUDNN_Q = 1,
  LS_CUDNN_K,
  LS_CUDNN_V,
  LS_CUDNN_OUT,
  LS_CUDNN_LOG_SUMS, /* a number a token and head, fp32 */
  LS_CUDNN_DOUT,
  LS_CUDNN_DQ,
  LS_CUDNN_DK,
  LS_CUDNN_DV,
  LS_CUDNN_DQ_SUMS,   /* of the workspace: dq in fp32, zeros at first */
  LS_CUDNN_ROW_DOTS,  /* of the workspace: dout . out by head and token */
  LS_CUDNN_POSITIONS, /* of each token in its document, int32 */
  LS_CUDNN_SCALE,
  LS_CUDNN_MASKED, /* the score of what is not seen */
  LS_CUDNN_ONE,
  LS_CUDNN_WINDOW,
  LS_CUDNN_ZERO,
  LS_CUDNN_BY_TOKEN, /* what a key's score is less, for each token that it is before its document */
  LS_CUDNN_OPERANDS
} ls_cudnn_operand;

/* All that a plan depends on but the GPU; compared as bytes. */
typedef struct ls_cudnn_attention {
  int64_t backward, dtype;            /* 0 or 1; an ls_dtype */
  int64_t sequences, length;          /* tokens are their product */
  int64_t heads, key_heads, head_dim; /* of this rank */
  int64_t window, documents;          /* 0: all before; 1: no other document's */
  int64_t stride[LS_CUDNN_DQ_SUMS];   /* from token to token, by operand; 0: not of the graph */
} ls_cudnn_attention;

/* Whether the recipe gives this call of LS_OP_ATTENTION or LS_OP_ATTENTION_BWD to cuDNN where its
 * library is: bf16 or fp16 on all sides, written and not added to, no soft cap, no ALiBi, tokens in
 * their order, nothing dropped, heads that it has plans for, and not backward where results must be
 * the same in each run. The others are our own kernel's. Data pointers are not read. */
bool ls_cudnn_attends(const ls_device_facts *facts, ls_op_kind kind, const ls_kernel_args *args);

/* Of a call that it takes. */
ls_cudnn_attention ls_cudnn_attention_of(ls_op_kind kind, const ls_kernel_args *args);

/* Bytes of workspace before the plan's own: fp32 sums of dq and a number a row. A multiple of 256;
 * *row_dots takes where the latter begin. */
int64_t ls_cudnn_attention_held(const ls_cudnn_attention *of, int64_t *row_dots);

void ls_cudnn_attention_build(ls_cudnn_graph *graph, const ls_cudnn_attention *of);

#endif
