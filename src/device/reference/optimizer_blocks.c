#include <math.h>
#include <string.h>

#include "base/codes.h"
#include "device/reference/reference.h"
#include "ir/state.h"

/* AdamW whose moments are of 8 bits: bitsandbytes' AdamW8bit, in the order of its PyTorch form
 * (optimizer_update_8bit_blockwise_pytorch). Weights go by the new moments before these become
 * codes. A block is LS_STATE_BLOCK elements of the whole parameter, of which a rank may have some;
 * so the largest of each is found first, over all ranks. */

/* What a step multiplies by. */
typedef struct step {
  const ls_kernel_args *args;
  double factor;
  LS_REAL *largest; /* of blocks, as the state has them: first moments, then second */
  int64_t blocks;   /* of one moment */
} step;

/* An element in its block of the whole parameter; -1: it is padding of a row. */
static int64_t block_of(const ls_kernel_args *args, const ls_view *range, int64_t i) {
  const int64_t columns = args->attributes->columns;
  const int64_t stride = range->dims[1] > 0 ? range->dims[1] : 1;
  const int64_t at = range->start[0] + i, column = range->start[2] + at % stride;
  if (column >= columns) return -1;
  return ((range->start[1] + at / stride) * columns + column) / LS_STATE_BLOCK;
}

/* Moments are zero where nothing was kept yet: so is their block's largest. */
static void new_moments(const step *by, double gradient, int64_t block, uint8_t first,
                        uint8_t second, double made[2]) {
  const ls_attributes *attributes = by->args->attributes;
  const LS_REAL old_first = (LS_REAL)ls_codes_signed[first] * by->largest[block];
  const LS_REAL old_second = (LS_REAL)ls_codes_positive[second] * by->largest[by->blocks + block];
  gradient *= by->factor;
  made[0] =
      (double)(LS_REAL)(attributes->beta1 * (double)old_first + (1 - attributes->beta1) * gradient);
  made[1] = (double)(LS_REAL)(attributes->beta2 * (double)old_second +
                              (1 - attributes->beta2) * gradient * gradient);
}

ls_status LS_REFERENCE(ADAMW8_LARGEST)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rdccr>R", error));
  const step by = {args, *ls_cell_data(&args->in[1]), ls_real_data(&args->in[4]),
                   args->in[4].valid[0] / 2};
  const LS_REAL *gradients = ls_real_data(&args->in[0]);
  const uint8_t *firsts = args->in[2].data, *seconds = args->in[3].data;
  LS_REAL *made = ls_real_data(&args->out[0]);
  memset(made, 0, (size_t)args->out[0].valid[0] * sizeof *made);
  for (int64_t i = 0; i < args->in[0].valid[0] && by.factor != 0; i++) {
    const int64_t block = block_of(args, &args->in[0], i);
    double moments[2];
    if (block < 0) continue;
    new_moments(&by, (double)gradients[i], block, firsts[i], seconds[i], moments);
    made[block] = (LS_REAL)fmax((double)made[block], fabs(moments[0]));
    made[by.blocks + block] = (LS_REAL)fmax((double)made[by.blocks + block], moments[1]);
  }
  return LS_OK;
}

/* Of a block of zeros, 1. */
static uint8_t encode(const float *map, double value, LS_REAL largest) {
  return ls_code_of(map, (double)((LS_REAL)value / (largest > 0 ? largest : 1)));
}

ls_status LS_REFERENCE(ADAMW8)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rdddrr>RCC", error));
  const ls_attributes *attributes = args->attributes;
  const step by = {args, *ls_cell_data(&args->in[3]), ls_real_data(&args->in[4]),
                   args->in[4].valid[0] / 2};
  const double rate = *ls_cell_data(&args->in[1]) * attributes->rate;
  const double count = *ls_cell_data(&args->in[2]), keep = 1 - rate * attributes->weight_decay;
  const double along = rate / (1 - pow(attributes->beta1, count));
  const double root = sqrt(1 - pow(attributes->beta2, count));
  const LS_REAL *gradients = ls_real_data(&args->in[0]), *largest = ls_real_data(&args->in[5]);
  LS_REAL *masters = ls_real_data(&args->out[0]);
  uint8_t *firsts = args->out[1].data, *seconds = args->out[2].data;
  for (int64_t i = 0; i < args->out[0].valid[0] && by.factor != 0; i++) {
    const int64_t block = block_of(args, &args->out[0], i);
    double moments[2];
    if (block < 0) continue;
    new_moments(&by, (double)gradients[i], block, firsts[i], seconds[i], moments);
    masters[i] = (LS_REAL)(keep * (double)masters[i] -
                           along * moments[0] / (sqrt(moments[1]) / root + attributes->epsilon));
    firsts[i] = encode(ls_codes_signed, moments[0], largest[block]);
    seconds[i] = encode(ls_codes_positive, moments[1], largest[by.blocks + block]);
  }
  return LS_OK;
}

ls_status LS_REFERENCE(ADAMW8_KEEP)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rd>R", error));
  const LS_REAL *largest = ls_real_data(&args->in[0]);
  LS_REAL *kept = ls_real_data(&args->out[0]);
  for (int64_t b = 0; b < args->out[0].valid[0] && *ls_cell_data(&args->in[1]) != 0; b++)
    kept[b] = largest[b] > 0 ? largest[b] : 1;
  return LS_OK;
}
