#include <math.h>

#include "run/reference/reference.h"

/* Scaling, clipping and the optimizers. Only elements that exist are touched: padding enters no
 * norm and no decay. */

ls_status LS_REFERENCE(ZERO)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "d>d", error));
  ls_put_cell(&args->out[0], 0, args->accumulate[0]);
  return LS_OK;
}

/* What gradients begin with: `scale` over the count of labels. A step without a single label has
 * gradients of zero, not of NaN. */
ls_status LS_REFERENCE(RECIPROCAL)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "dd>d", error));
  const double count = *ls_cell_data(&args->in[0]), scale = *ls_cell_data(&args->in[1]);
  ls_put_cell(&args->out[0], scale / fmax(count, 1), args->accumulate[0]);
  return LS_OK;
}

ls_status LS_REFERENCE(SQUARED_NORM)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "r>d", error));
  const ls_view *in = &args->in[0];
  double squares = 0;
  for (int64_t n = 0; n < in->valid[0]; n++) {
    const LS_REAL *row = ls_real_row(in, n);
    for (int64_t c = 0; c < ls_valid_columns(in); c++) squares += (double)row[c] * (double)row[c];
  }
  ls_put_cell(&args->out[0], args->attributes->weight * squares, args->accumulate[0]);
  return LS_OK;
}

/* PyTorch's clip_grad_norm_: min(1, clip / (norm + 1e-6)), of gradients without their scale. */
ls_status LS_REFERENCE(CLIP_FACTOR)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "dddd>DDD", error));
  const double scale = *ls_cell_data(&args->in[3]);
  const double norm = sqrt(*ls_cell_data(&args->in[0])) / scale;
  const double mean_loss = *ls_cell_data(&args->in[1]) / *ls_cell_data(&args->in[2]);
  const double clip = args->attributes->clip;
  const double ratio = clip / (norm + 1e-6);
  ls_put_cell(&args->out[0], norm, false);
  const double factor = (clip > 0 && ratio < 1 ? ratio : 1) / scale;
  /* An infinity or a NaN stays in the norm, where it is looked for; 0 keeps it from the update. */
  ls_put_cell(&args->out[1], isfinite(norm) ? factor : 0, false);
  ls_put_cell(&args->out[2], mean_loss, false);
  return LS_OK;
}

/* PyTorch's AdamW (Loshchilov and Hutter, 2019): decay apart from the gradient. */
ls_status LS_REFERENCE(ADAMW)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rddd>RRR", error));
  const ls_attributes *attributes = args->attributes;
  const double rate = *ls_cell_data(&args->in[1]), step = *ls_cell_data(&args->in[2]);
  const double factor = *ls_cell_data(&args->in[3]);
  if (factor == 0) return LS_OK; /* the gradients are not finite */
  const double beta1 = attributes->beta1, beta2 = attributes->beta2;
  const double first_rate = rate / (1 - pow(beta1, step));
  const double second_root = sqrt(1 - pow(beta2, step));
  const double keep = 1 - rate * attributes->weight_decay;
  for (int64_t n = 0; n < args->out[0].valid[0]; n++) {
    const LS_REAL *gradients = ls_real_row(&args->in[0], n);
    LS_REAL *masters = ls_real_row(&args->out[0], n);
    LS_REAL *firsts = ls_real_row(&args->out[1], n), *seconds = ls_real_row(&args->out[2], n);
    for (int64_t c = 0; c < ls_valid_columns(&args->out[0]); c++) {
      const double gradient = factor * (double)gradients[c];
      const double first = beta1 * (double)firsts[c] + (1 - beta1) * gradient;
      const double second = beta2 * (double)seconds[c] + (1 - beta2) * gradient * gradient;
      const double divisor = sqrt(second) / second_root + attributes->epsilon;
      firsts[c] = (LS_REAL)first;
      seconds[c] = (LS_REAL)second;
      masters[c] = (LS_REAL)(keep * (double)masters[c] - first_rate * first / divisor);
    }
  }
  return LS_OK;
}

/* PyTorch's SGD with momentum and no dampening, the buffer starting at zero; decay decoupled. */
ls_status LS_REFERENCE(SGD)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rddd>RR", error));
  const double rate = *ls_cell_data(&args->in[1]), factor = *ls_cell_data(&args->in[3]);
  if (factor == 0) return LS_OK;
  const double momentum = args->attributes->beta1;
  const double keep = 1 - rate * args->attributes->weight_decay;
  for (int64_t n = 0; n < args->out[0].valid[0]; n++) {
    const LS_REAL *gradients = ls_real_row(&args->in[0], n);
    LS_REAL *masters = ls_real_row(&args->out[0], n), *buffers = ls_real_row(&args->out[1], n);
    for (int64_t c = 0; c < ls_valid_columns(&args->out[0]); c++) {
      const double buffer = momentum * (double)buffers[c] + factor * (double)gradients[c];
      buffers[c] = (LS_REAL)buffer;
      masters[c] = (LS_REAL)(keep * (double)masters[c] - rate * buffer);
    }
  }
  return LS_OK;
}
