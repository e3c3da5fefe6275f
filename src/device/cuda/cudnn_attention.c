/* Which calls of attention are cuDNN's, and their graphs. Facts: NVIDIA/cudnn-frontend 1.23
 * (scaled_dot_product_flash_attention.h), whose graphs these are in the order of ours. */
#include "device/cuda/cudnn_attention.h"

#include <string.h>

static bool is_half(ls_dtype dtype) {
  return dtype == LS_BF16 || dtype == LS_F16;
}

/* Rows begin at multiples of 16 bytes, as the library's loads want it. */
static bool is_plain(const ls_view *view, ls_dtype dtype) {
  return view->dtype == dtype && view->dims[1] % 8 == 0;
}

/* What cuDNN 9.19 has plans for: backward, larger heads on Hopper alone. */
static int64_t most_head(const ls_device_facts *facts, bool back) {
  return back && facts->architecture != 90 ? 128 : 256;
}

/* Graphs with documents go over all keys, where our own kernel leaves those of other documents out:
 * taken from Hopper on, whose products that kernel runs at no more than two thirds of their speed.
 * cuDNN 9.19 has none of them backward before. */
static bool takes_documents(const ls_device_facts *facts) {
  return facts->architecture >= 90 && facts->architecture < 120;
}

bool ls_cudnn_attends(const ls_device_facts *facts, ls_op_kind kind, const ls_kernel_args *args) {
  const bool back = kind == LS_OP_ATTENTION_BWD;
  const ls_attributes *with = args->attributes;
  const ls_view *q = &args->in[back ? 1 : 0];
  const int64_t length = with->sequence, head_dim = with->head_dim;
  if (!back && kind != LS_OP_ATTENTION) return false;
  if (with->two_way) return false;
  if (!is_half(q->dtype) || with->softcap > 0 || with->alibi > 0 || (back && facts->exact))
    return false;
  if (args->inputs > (back ? 7 : 4)) return false; /* tokens in an order of their own, dropout */
  if (args->inputs > (back ? 6 : 3) && !takes_documents(facts)) return false;
  if (head_dim <= 0 || head_dim % 8 || head_dim > most_head(facts, back) || length <= 1)
    return false;
  if (q->valid[0] == 0 || q->valid[0] % length || q->dims[1] / head_dim % (q[1].dims[1] / head_dim))
    return false;
  for (int i = 0; i < (back ? 5 : 3); i++)
    if (!is_plain(&args->in[i], q->dtype)) return false;
  for (int o = 0; o < (back ? 3 : 1); o++)
    if (!is_plain(&args->out[o], q->dtype)) return false;
  for (int o = 0; o < args->outputs; o++)
    if (args->accumulate[o]) return false;
  return true;
}

ls_cudnn_attention ls_cudnn_attention_of(ls_op_kind kind, const ls_kernel_args *args) {
  const bool back = kind == LS_OP_ATTENTION_BWD;
  const ls_attributes *with = args->attributes;
  const ls_view *q = &args->in[back ? 1 : 0];
  ls_cudnn_attention of;
  memset(&of, 0, sizeof of);
  of.backward = back;
  of.dtype = q->dtype;
  of.sequences = q->valid[0] / with->sequence;
  of.length = with->sequence;
  of.head_dim = with->head_dim;
  of.heads = q->dims[1] / with->head_dim;
  of.key_heads = q[1].dims[1] / with->head_dim;
  of.window = with->window < with->sequence ? with->window : 0;
  of.documents = args->inputs > (back ? 6 : 3);
  for (int i = 0; i < 3; i++) of.stride[LS_CUDNN_Q + i] = q[i].dims[1];
  of.stride[LS_CUDNN_OUT] = back ? args->in[4].dims[1] : args->out[0].dims[1];
  of.stride[LS_CUDNN_LOG_SUMS] = back ? args->in[5].dims[1] : args->out[1].dims[1];
  if (!back) return of;
  of.stride[LS_CUDNN_DOUT] = args->in[0].dims[1];
  for (int o = 0; o < 3; o++) of.stride[LS_CUDNN_DQ + o] = args->out[o].dims[1];
  return of;
}

int64_t ls_cudnn_attention_held(const ls_cudnn_attention *of, int64_t *row_dots) {
  enum { ALIGNED = 256 };
  const int64_t rows = of->sequences * of->length * of->heads, bytes = (int64_t)sizeof(float);
  *row_dots = of->backward ? (rows * of->head_dim * bytes + ALIGNED - 1) / ALIGNED * ALIGNED : 0;
  return of->backward ? (*row_dots + rows * bytes + ALIGNED - 1) / ALIGNED * ALIGNED : 0;
}

/* ---- the graphs ------------------------------------------------------------------------------ */

/* What both directions build on. */
typedef struct building {
  ls_cudnn_graph *graph;
  const ls_cudnn_attention *of;
  cudnnEnum type;
  int64_t scores[LS_CUDNN_DIMS], rows[LS_CUDNN_DIMS], heads[LS_CUDNN_DIMS];
} building;

static building begin(ls_cudnn_graph *graph, const ls_cudnn_attention *of) {
  building b = {.graph = graph,
                .of = of,
                .type = of->dtype == LS_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF,
                .scores = {of->sequences, of->heads, of->length, of->length},
                .rows = {of->sequences, of->heads, of->length, 1},
                .heads = {of->sequences, of->heads, of->length, of->head_dim}};
  return b;
}

/* An operand with a row of heads a token; keys by column where `turned`. */
static ls_cudnn_tensor *of_heads(const building *b, ls_cudnn_operand which, int64_t heads,
                                 bool turned) {
  const ls_cudnn_attention *of = b->of;
  const int64_t stride = of->stride[which];
  const int64_t dims[] = {of->sequences, heads, of->length, of->head_dim};
  const int64_t strides[] = {of->length * stride, of->head_dim, stride, 1};
  const int64_t turned_dims[] = {dims[0], dims[1], dims[3], dims[2]};
  const int64_t turned_strides[] = {strides[0], strides[1], 1, stride};
  return ls_cudnn_real(b->graph, b->type, turned ? turned_dims : dims,
                       turned ? turned_strides : strides, which);
}

static ls_cudnn_tensor *log_sums(const building *b) {
  const int64_t stride = b->of->stride[LS_CUDNN_LOG_SUMS];
  const int64_t strides[] = {b->of->length * stride, 1, stride, 1};
  return ls_cudnn_real(b->graph, CUDNN_DATA_FLOAT, b->rows, strides, LS_CUDNN_LOG_SUMS);
}

/* A document's first key is as far before a query as the query's position is from 0; keys before
 * it have so much less of a score for each token. A comparison with a tensor in memory has no plan.
 */
static ls_cudnn_tensor *mask_documents(const building *b, ls_cudnn_tensor *scores) {
  ls_cudnn_graph *graph = b->graph;
  const int64_t dims[] = {b->of->sequences, 1, b->of->length, 1};
  const int64_t strides[] = {b->of->length, b->of->length, 1, 1};
  ls_cudnn_tensor *positions =
      ls_cudnn_real(graph, CUDNN_DATA_INT32, dims, strides, LS_CUDNN_POSITIONS);
  ls_cudnn_tensor *distance =
      ls_cudnn_pointwise(graph, CUDNN_POINTWISE_SUB, ls_cudnn_index(graph, scores, 3, NULL),
                         ls_cudnn_index(graph, scores, 2, NULL), NULL, NULL);
  ls_cudnn_tensor *outside = ls_cudnn_pointwise(
      graph, CUDNN_POINTWISE_MIN,
      ls_cudnn_pointwise(graph, CUDNN_POINTWISE_ADD, distance, positions, NULL, NULL),
      ls_cudnn_scalar(graph, LS_CUDNN_ZERO), NULL, NULL);
  outside = ls_cudnn_pointwise(graph, CUDNN_POINTWISE_MUL, outside,
                               ls_cudnn_scalar(graph, LS_CUDNN_BY_TOKEN), NULL, NULL);
  return ls_cudnn_pointwise(graph, CUDNN_POINTWISE_ADD, scores, outside, NULL, NULL);
}

/* A query sees no key behind it, none of another document, and none `window` tokens before it. */
static ls_cudnn_tensor *mask(const building *b, ls_cudnn_tensor *scores, ls_cudnn_tensor *masked) {
  ls_cudnn_graph *graph = b->graph;
  scores = ls_cudnn_choose(graph, CUDNN_POINTWISE_CMP_GE, ls_cudnn_index(graph, scores, 2, NULL),
                           ls_cudnn_index(graph, scores, 3, NULL), scores, masked);
  if (b->of->documents) scores = mask_documents(b, scores);
  if (!b->of->window) return scores;
  ls_cudnn_tensor *query = ls_cudnn_index(graph, scores, 2, NULL);
  ls_cudnn_tensor *beyond =
      ls_cudnn_index(graph, scores, 3, ls_cudnn_scalar(graph, LS_CUDNN_WINDOW));
  return ls_cudnn_choose(graph, CUDNN_POINTWISE_CMP_GT, beyond, query, scores, masked);
}

static void build_forward(const building *b) {
  ls_cudnn_graph *graph = b->graph;
  const ls_cudnn_attention *of = b->of;
  ls_cudnn_tensor *q = of_heads(b, LS_CUDNN_Q, of->heads, false);
  ls_cudnn_tensor *k = of_heads(b, LS_CUDNN_K, of->key_heads, true);
  ls_cudnn_tensor *v = of_heads(b, LS_CUDNN_V, of->key_heads, false);
  ls_cudnn_tensor *out = of_heads(b, LS_CUDNN_OUT, of->heads, false);
  ls_cudnn_tensor *scores =
      ls_cudnn_multiply(graph, q, k, ls_cudnn_between(graph, CUDNN_DATA_FLOAT, b->scores));
  scores = ls_cudnn_pointwise(graph, CUDNN_POINTWISE_MUL, scores,
                              ls_cudnn_scalar(graph, LS_CUDNN_SCALE), NULL, NULL);
  scores = mask(b, scores, ls_cudnn_scalar(graph, LS_CUDNN_MASKED));
  ls_cudnn_tensor *largest = ls_cudnn_reduce(graph, CUDNN_REDUCE_TENSOR_MAX, scores,
                                             ls_cudnn_between(graph, CUDNN_DATA_FLOAT, b->rows));
  ls_cudnn_tensor *powers = ls_cudnn_pointwise(
      graph, CUDNN_POINTWISE_EXP,
      ls_cudnn_pointwise(graph, CUDNN_POINTWISE_SUB, scores, largest, NULL, NULL), NULL, NULL,
      NULL);
  ls_cudnn_tensor *sum = ls_cudnn_reduce(graph, CUDNN_REDUCE_TENSOR_ADD, powers,
                                         ls_cudnn_between(graph, CUDNN_DATA_FLOAT, b->rows));
  ls_cudnn_pointwise(graph, CUDNN_POINTWISE_ADD, largest,
                     ls_cudnn_pointwise(graph, CUDNN_POINTWISE_LOG, sum, NULL, NULL, NULL), NULL,
                     log_sums(b));
  ls_cudnn_tensor *shares = ls_cudnn_pointwise(graph, CUDNN_POINTWISE_DIV, powers, sum, NULL,
                                               ls_cudnn_between(graph, b->type, b->scores));
  ls_cudnn_multiply(graph, shares, v, out);
}

/* The gradient of keys or values: by query head, and then summed over those that share them. */
static void put_key_gradient(const building *b, ls_cudnn_tensor *turned, ls_cudnn_tensor *by,
                             ls_cudnn_operand which) {
  ls_cudnn_tensor *out = of_heads(b, which, b->of->key_heads, false);
  const bool shared = b->of->heads != b->of->key_heads;
  ls_cudnn_tensor *each = shared ? ls_cudnn_between(b->graph, b->type, b->heads) : out;
  ls_cudnn_multiply(b->graph, turned, by, each);
  if (shared) ls_cudnn_reduce(b->graph, CUDNN_REDUCE_TENSOR_ADD, each, out);
}

/* dout . out, for each row of a head. */
static ls_cudnn_tensor *row_dots(const building *b, ls_cudnn_tensor *dout) {
  ls_cudnn_graph *graph = b->graph;
  ls_cudnn_tensor *out = of_heads(b, LS_CUDNN_OUT, b->of->heads, false);
  const int64_t strides[] = {b->of->heads * b->of->length, b->of->length, 1, 1};
  ls_cudnn_tensor *products =
      ls_cudnn_pointwise(graph, CUDNN_POINTWISE_MUL, dout, out, NULL,
                         ls_cudnn_between(graph, CUDNN_DATA_FLOAT, b->heads));
  ls_cudnn_tensor *sums = ls_cudnn_reduce(graph, CUDNN_REDUCE_TENSOR_ADD, products,
                                          ls_cudnn_between(graph, CUDNN_DATA_FLOAT, b->rows));
  return ls_cudnn_pointwise(
      graph, CUDNN_POINTWISE_MUL, sums, ls_cudnn_scalar(graph, LS_CUDNN_ONE), NULL,
      ls_cudnn_real(graph, CUDNN_DATA_FLOAT, b->rows, strides, LS_CUDNN_ROW_DOTS));
}

static void build_backward(const building *b) {
  ls_cudnn_graph *graph = b->graph;
  const ls_cudnn_attention *of = b->of;
  ls_cudnn_tensor *q = of_heads(b, LS_CUDNN_Q, of->heads, false);
  ls_cudnn_tensor *k = of_heads(b, LS_CUDNN_K, of->key_heads, true);
  ls_cudnn_tensor *v = of_heads(b, LS_CUDNN_V, of->key_heads, true);
  ls_cudnn_tensor *dout = of_heads(b, LS_CUDNN_DOUT, of->heads, false);
  ls_cudnn_tensor *scale = ls_cudnn_scalar(graph, LS_CUDNN_SCALE);
  ls_cudnn_tensor *dots = row_dots(b, dout);
  ls_cudnn_tensor *scores =
      ls_cudnn_multiply(graph, q, k, ls_cudnn_between(graph, CUDNN_DATA_FLOAT, b->scores));
  scores = ls_cudnn_pointwise(graph, CUDNN_POINTWISE_MUL, scores, scale, NULL, NULL);
  scores = ls_cudnn_pointwise(graph, CUDNN_POINTWISE_SUB, scores, log_sums(b), NULL, NULL);
  scores = mask(b, scores, ls_cudnn_scalar(graph, LS_CUDNN_MASKED));
  ls_cudnn_tensor *shares =
      ls_cudnn_pointwise(graph, CUDNN_POINTWISE_EXP, scores, NULL, NULL, NULL);
  put_key_gradient(b, ls_cudnn_transpose(graph, b->type, shares), dout, LS_CUDNN_DV);
  ls_cudnn_tensor *slopes =
      ls_cudnn_multiply(graph, dout, v, ls_cudnn_between(graph, CUDNN_DATA_FLOAT, b->scores));
  slopes = ls_cudnn_pointwise(graph, CUDNN_POINTWISE_SUB, slopes, dots, NULL, NULL);
  slopes = ls_cudnn_pointwise(graph, CUDNN_POINTWISE_MUL, slopes, shares, NULL, NULL);
  slopes = ls_cudnn_pointwise(graph, CUDNN_POINTWISE_MUL, slopes, scale, NULL,
                              ls_cudnn_between(graph, b->type, b->scores));
  put_key_gradient(b, ls_cudnn_transpose(graph, b->type, slopes), q, LS_CUDNN_DK);
  const int64_t strides[] = {of->heads * of->length * of->head_dim, of->length * of->head_dim,
                             of->head_dim, 1};
  ls_cudnn_tensor *sums =
      ls_cudnn_real(graph, CUDNN_DATA_FLOAT, b->heads, strides, LS_CUDNN_DQ_SUMS);
  ls_cudnn_multiply(graph, slopes, ls_cudnn_transpose(graph, b->type, k), sums);
  ls_cudnn_pointwise(graph, CUDNN_POINTWISE_IDENTITY, sums, NULL, NULL,
                     of_heads(b, LS_CUDNN_DQ, of->heads, false));
}

void ls_cudnn_attention_build(ls_cudnn_graph *graph, const ls_cudnn_attention *of) {
  const building b = begin(graph, of);
  if (of->backward)
    build_backward(&b);
  else
    build_forward(&b);
}
