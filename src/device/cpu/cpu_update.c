/* AdamW of 8 bits and Muon in fp32: device/reference/optimizer_blocks.c and muon.c say what they
 * compute. Elements are shared out among threads, and matrix products are oneDNN's. */
#include <math.h>
#include <string.h>

#include "base/codes.h"
#include "device/cpu/cpu.h"
#include "device/cpu/onednn.h"
#include "device/device.h"
#include "ir/state.h"

static double cell(const ls_view *view) {
  return *(const double *)view->data;
}

static float gradient_at(const ls_view *view, int64_t i) {
  if (view->dtype == LS_F32) return ((const float *)view->data)[i];
  float wide;
  ls_convert(&wide, LS_F32, (const char *)view->data + 2 * i, view->dtype, 1);
  return wide;
}

static int64_t stride_of(const ls_view *range) {
  return range->dims[1] > 0 ? range->dims[1] : 1;
}

/* The place in the whole of a range's element; -1: it is padding of a row. */
static int64_t place_of(const ls_view *range, int64_t columns, int64_t i) {
  const int64_t stride = stride_of(range), at = range->start[0] + i;
  const int64_t column = range->start[2] + at % stride;
  return column >= columns ? -1 : (range->start[1] + at / stride) * columns + column;
}

static void share(const ls_kernel_args *args, const ls_view *range, ls_host_turns turns) {
  const ls_device_facts *facts = args->queue->facts;
  ls_host_split(facts->threads, ls_cpu_parts(facts, range->valid[0]), range->valid[0], turns, args);
}

/* The first element from `i` on of a block that no element before it is of: between two such, a
 * thread has blocks of its own. */
static int64_t block_begin(const ls_view *range, int64_t columns, int64_t i) {
  while (i > 0 && i < range->valid[0]) {
    const int64_t here = place_of(range, columns, i), before = place_of(range, columns, i - 1);
    if (here >= 0 && before >= 0 && here / LS_STATE_BLOCK != before / LS_STATE_BLOCK) break;
    i++;
  }
  return i;
}

typedef struct moments {
  float first, second;
} moments;

static moments moments_of(const ls_attributes *by, float gradient, float first, float second) {
  const float beta1 = (float)by->beta1, beta2 = (float)by->beta2;
  return (moments){beta1 * first + (float)(1 - by->beta1) * gradient,
                   beta2 * second + (float)(1 - by->beta2) * gradient * gradient};
}

static void largest_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const ls_view *range = &args->in[0];
  const int64_t columns = args->attributes->columns, blocks = args->in[4].valid[0] / 2;
  const uint8_t *firsts = args->in[2].data, *seconds = args->in[3].data;
  const float *largest = args->in[4].data, factor = (float)cell(&args->in[1]);
  float *made = args->out[0].data;
  begin = block_begin(range, columns, begin);
  end = block_begin(range, columns, end);
  for (int64_t i = begin; i < end; i++) {
    const int64_t place = place_of(range, columns, i), block = place / LS_STATE_BLOCK;
    if (place < 0) continue;
    const moments now = moments_of(args->attributes, factor * gradient_at(range, i),
                                   ls_codes_signed[firsts[i]] * largest[block],
                                   ls_codes_positive[seconds[i]] * largest[blocks + block]);
    made[block] = fmaxf(made[block], fabsf(now.first));
    made[blocks + block] = fmaxf(made[blocks + block], now.second);
  }
}

static ls_status kernel_largest(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  memset(args->out[0].data, 0, (size_t)args->out[0].valid[0] * sizeof(float));
  if (cell(&args->in[1]) != 0) share(args, &args->in[0], largest_turns);
  return LS_OK;
}

static uint8_t encode(const float *map, float value, float largest) {
  return ls_code_of(map, (double)(value / (largest > 0 ? largest : 1)));
}

static void adamw8_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const ls_attributes *by = args->attributes;
  const double rate = cell(&args->in[1]) * by->rate, step = cell(&args->in[2]);
  const float keep = (float)(1 - rate * by->weight_decay);
  const float along = (float)(rate / (1 - pow(by->beta1, step)));
  const float deviation = (float)(1 / sqrt(1 - pow(by->beta2, step)));
  const float factor = (float)cell(&args->in[3]), epsilon = (float)by->epsilon;
  const int64_t blocks = args->in[4].valid[0] / 2;
  const float *before = args->in[4].data, *after = args->in[5].data;
  float *masters = args->out[0].data;
  uint8_t *firsts = args->out[1].data, *seconds = args->out[2].data;
  for (int64_t i = begin; i < end; i++) {
    const int64_t place = place_of(&args->out[0], by->columns, i), block = place / LS_STATE_BLOCK;
    if (place < 0) continue;
    const moments now = moments_of(by, factor * gradient_at(&args->in[0], i),
                                   ls_codes_signed[firsts[i]] * before[block],
                                   ls_codes_positive[seconds[i]] * before[blocks + block]);
    masters[i] = keep * masters[i] - along * now.first / (sqrtf(now.second) * deviation + epsilon);
    firsts[i] = encode(ls_codes_signed, now.first, after[block]);
    seconds[i] = encode(ls_codes_positive, now.second, after[blocks + block]);
  }
}

static ls_status kernel_adamw8(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  if (cell(&args->in[3]) != 0) share(args, &args->out[0], adamw8_turns);
  return LS_OK;
}

static void momentum_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const float momentum = (float)args->attributes->beta1;
  const float share = (float)((1 - args->attributes->beta1) * cell(&args->in[1]));
  float *momenta = args->out[0].data, *made = args->out[1].data;
  for (int64_t i = begin; i < end; i++) {
    const float gradient = share * gradient_at(&args->in[0], i);
    momenta[i] = momentum * momenta[i] + gradient;
    made[i] = gradient + momentum * momenta[i];
  }
}

static ls_status kernel_momentum(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  const ls_view *made = &args->out[1];
  if (cell(&args->in[1]) != 0)
    share(args, &args->out[0], momentum_turns);
  else
    memset(made->data, 0, (size_t)made->dims[0] * sizeof(float));
  return LS_OK;
}

/* x = a x + (b gram + c gram gram) x, on the side of the smaller dimension. */
static ls_status iterate(const ls_kernel_args *args, ls_error *error) {
  static const float a = 3.4445f, b = -4.7750f, c = 2.0315f;
  const int64_t n = args->in[0].dims[1], m = args->in[0].dims[0] / n;
  const int64_t least = m < n ? m : n, most = m < n ? n : m;
  float *gram_data = args->out[2].data, *both_data = gram_data + least * least;
  const ls_matrix x = {args->out[0].data, LS_F32, n, 1}, next = {args->out[1].data, LS_F32, n, 1};
  const ls_matrix turned = {x.data, LS_F32, 1, n};
  const ls_matrix gram = {gram_data, LS_F32, least, 1}, both = {both_data, LS_F32, least, 1};
  const bool tall = m > n;
  float *numbers = x.data;
  const float *added = next.data;
  LS_TRY(ls_onednn_multiply(&gram, tall ? &turned : &x, tall ? &x : &turned, least, least, most,
                            false, args, error));
  LS_TRY(ls_onednn_multiply(&both, &gram, &gram, least, least, least, false, args, error));
  for (int64_t i = 0; i < least * least; i++) both_data[i] = b * gram_data[i] + c * both_data[i];
  LS_TRY(ls_onednn_multiply(&next, tall ? &x : &both, tall ? &both : &x, m, n, least, false, args,
                            error));
  for (int64_t i = 0; i < m * n; i++) numbers[i] = a * numbers[i] + added[i];
  return LS_OK;
}

static ls_status kernel_orthogonalise(const ls_kernel_args *args, ls_error *error) {
  enum { STEPS = 5 };
  const int64_t count = args->in[0].dims[0];
  const float *matrix = args->in[0].data;
  float *x = args->out[0].data;
  double squares = 0;
  for (int64_t i = 0; i < count; i++) squares += (double)matrix[i] * (double)matrix[i];
  const float inverse = (float)(1 / fmax(sqrt(squares), 1e-7));
  for (int64_t i = 0; i < count; i++) x[i] = matrix[i] * inverse;
  for (int s = 0; s < STEPS && count; s++) LS_TRY(iterate(args, error)); /* or another rank's */
  return LS_OK;
}

void ls_cpu_update_kernels(ls_kernel_table *table) {
  table->kernel[LS_OP_ADAMW8_LARGEST] = kernel_largest;
  table->kernel[LS_OP_ADAMW8] = kernel_adamw8;
  table->kernel[LS_OP_MUON_MOMENTUM] = kernel_momentum;
  table->kernel[LS_OP_ORTHOGONALISE] = kernel_orthogonalise;
}
