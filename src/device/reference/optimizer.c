#include <math.h>

#include "device/reference/reference.h"

/* Scaling, clipping and the optimizers. Only elements that exist are touched: padding enters no
 * norm and no decay. */

ls_status LS_REFERENCE(ZERO)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "d>d", error));
  double *numbers = args->out[0].data;
  const int64_t count = args->out[0].valid[0] * ls_stored_columns(&args->out[0]);
  for (int64_t i = 0; i < count && !args->accumulate[0]; i++) numbers[i] = 0;
  return LS_OK;
}

/* What gradients begin with: `scale` over the count of labels. A step without a single label has
 * gradients of zero, not of NaN. */
ls_status LS_REFERENCE(RECIPROCAL)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "dd>d", error));
  const double count = *ls_cell_data(&args->in[0]), scale = *ls_cell_data(&args->in[1]);
  ls_put_cell(&args->out[0], scale / (count > 0 ? count : 1), args->accumulate[0]);
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
  /* An infinity or a NaN stays in norm or loss, where it is looked for; 0 keeps it from updates. */
  const bool finite = isfinite(norm) && isfinite(*ls_cell_data(&args->in[1]));
  ls_put_cell(&args->out[1], finite ? factor : 0, false);
  ls_put_cell(&args->out[2], mean_loss, false);
  return LS_OK;
}

static double learning_rate(const ls_kernel_args *args) {
  return *ls_cell_data(&args->in[1]) * args->attributes->rate;
}

/* What a step multiplies by. */
typedef struct rates {
  double factor, keep, first, second_root;
} rates;

static rates adamw_rates(const ls_kernel_args *args) {
  const ls_attributes *attributes = args->attributes;
  const double rate = learning_rate(args), step = *ls_cell_data(&args->in[2]);
  return (rates){.factor = *ls_cell_data(&args->in[3]),
                 .keep = 1 - rate * attributes->weight_decay,
                 .first = rate / (1 - pow(attributes->beta1, step)),
                 .second_root = sqrt(1 - pow(attributes->beta2, step))};
}

/* PyTorch's AdamW (Loshchilov and Hutter, 2019): decay apart from the gradient. Of one element;
 * moments are updated in place. */
static double adamw_element(const ls_attributes *attributes, const rates *by, double gradient,
                            double master, double *first, double *second) {
  gradient *= by->factor;
  *first = attributes->beta1 * *first + (1 - attributes->beta1) * gradient;
  *second = attributes->beta2 * *second + (1 - attributes->beta2) * gradient * gradient;
  const double divisor = sqrt(*second) / by->second_root + attributes->epsilon;
  return by->keep * master - by->first * *first / divisor;
}

ls_status LS_REFERENCE(ADAMW)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rddd>RRR", error));
  const rates by = adamw_rates(args);
  if (by.factor == 0) return LS_OK; /* the gradients are not finite */
  for (int64_t n = 0; n < args->out[0].valid[0]; n++) {
    const LS_REAL *gradients = ls_real_row(&args->in[0], n);
    LS_REAL *masters = ls_real_row(&args->out[0], n);
    LS_REAL *firsts = ls_real_row(&args->out[1], n), *seconds = ls_real_row(&args->out[2], n);
    for (int64_t c = 0; c < ls_valid_columns(&args->out[0]); c++) {
      double first = (double)firsts[c], second = (double)seconds[c];
      masters[c] = (LS_REAL)adamw_element(args->attributes, &by, (double)gradients[c],
                                          (double)masters[c], &first, &second);
      firsts[c] = (LS_REAL)first;
      seconds[c] = (LS_REAL)second;
    }
  }
  return LS_OK;
}

ls_status LS_REFERENCE(ADAMW_SPECULATE)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rdddrrr>R", error));
  const rates by = adamw_rates(args);
  for (int64_t n = 0; n < args->out[0].valid[0]; n++) {
    const LS_REAL *gradients = ls_real_row(&args->in[0], n);
    const LS_REAL *masters = ls_real_row(&args->in[4], n);
    const LS_REAL *firsts = ls_real_row(&args->in[5], n), *seconds = ls_real_row(&args->in[6], n);
    LS_REAL *weights = ls_real_row(&args->out[0], n);
    for (int64_t c = 0; c < ls_valid_columns(&args->out[0]); c++) {
      double first = (double)firsts[c], second = (double)seconds[c];
      weights[c] = (LS_REAL)adamw_element(args->attributes, &by, (double)gradients[c],
                                          (double)masters[c], &first, &second);
    }
  }
  return LS_OK;
}

/* PyTorch's SGD with momentum and no dampening, the buffer starting at zero; decay decoupled. Of
 * one element; the buffer is updated in place. */
static double sgd_element(const ls_kernel_args *args, double gradient, double master,
                          double *buffer) {
  const double rate = learning_rate(args), factor = *ls_cell_data(&args->in[3]);
  const double keep = 1 - rate * args->attributes->weight_decay;
  *buffer = args->attributes->beta1 * *buffer + factor * gradient;
  return keep * master - rate * *buffer;
}

ls_status LS_REFERENCE(SGD)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rddd>RR", error));
  if (*ls_cell_data(&args->in[3]) == 0) return LS_OK;
  for (int64_t n = 0; n < args->out[0].valid[0]; n++) {
    const LS_REAL *gradients = ls_real_row(&args->in[0], n);
    LS_REAL *masters = ls_real_row(&args->out[0], n), *buffers = ls_real_row(&args->out[1], n);
    for (int64_t c = 0; c < ls_valid_columns(&args->out[0]); c++) {
      double buffer = (double)buffers[c];
      masters[c] = (LS_REAL)sgd_element(args, (double)gradients[c], (double)masters[c], &buffer);
      buffers[c] = (LS_REAL)buffer;
    }
  }
  return LS_OK;
}

ls_status LS_REFERENCE(SGD_SPECULATE)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rdddrr>R", error));
  for (int64_t n = 0; n < args->out[0].valid[0]; n++) {
    const LS_REAL *gradients = ls_real_row(&args->in[0], n);
    const LS_REAL *masters = ls_real_row(&args->in[4], n), *buffers = ls_real_row(&args->in[5], n);
    LS_REAL *weights = ls_real_row(&args->out[0], n);
    for (int64_t c = 0; c < ls_valid_columns(&args->out[0]); c++) {
      double buffer = (double)buffers[c];
      weights[c] = (LS_REAL)sgd_element(args, (double)gradients[c], (double)masters[c], &buffer);
    }
  }
  return LS_OK;
}

/* Lion (Chen et al., "Symbolic Discovery of Optimization Algorithms", arXiv 2302.06675, algorithm
 * 2): the sign of beta1 m + (1 - beta1) g, then m = beta2 m + (1 - beta2) g. Of one element; the
 * momentum is updated in place. */
static double lion_element(const ls_kernel_args *args, double gradient, double master,
                           double *momentum) {
  const ls_attributes *attributes = args->attributes;
  const double rate = learning_rate(args);
  gradient *= *ls_cell_data(&args->in[3]);
  const double mean = attributes->beta1 * *momentum + (1 - attributes->beta1) * gradient;
  *momentum = attributes->beta2 * *momentum + (1 - attributes->beta2) * gradient;
  return (1 - rate * attributes->weight_decay) * master - rate * ((mean > 0) - (mean < 0));
}

ls_status LS_REFERENCE(LION)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rddd>RR", error));
  if (*ls_cell_data(&args->in[3]) == 0) return LS_OK;
  for (int64_t n = 0; n < args->out[0].valid[0]; n++) {
    const LS_REAL *gradients = ls_real_row(&args->in[0], n);
    LS_REAL *masters = ls_real_row(&args->out[0], n), *momenta = ls_real_row(&args->out[1], n);
    for (int64_t c = 0; c < ls_valid_columns(&args->out[0]); c++) {
      double momentum = (double)momenta[c];
      masters[c] = (LS_REAL)lion_element(args, (double)gradients[c], (double)masters[c], &momentum);
      momenta[c] = (LS_REAL)momentum;
    }
  }
  return LS_OK;
}

/* How much of the mean this step's fast weights are: the square of its learning rate in those so
 * far, of which warm-up has parts of one. */
static double share_of_mean(const ls_attributes *attributes, double step) {
  const double warmup = attributes->warmup;
  if (step <= warmup) return 6 * step / ((step + 1) * (2 * step + 1));
  const double before = warmup > 0 ? (warmup + 1) * (2 * warmup + 1) / (6 * warmup) : 0;
  return 1 / (before + step - warmup);
}

/* Schedule-free AdamW (Defazio et al., "The Road Less Scheduled", arXiv 2405.15682, algorithm 1;
 * its authors' AdamWScheduleFree with r = 0 and weight_lr_power = 2): fast weights z step from
 * where the gradient is taken, y = (1 - beta1) z + beta1 x, and x is their mean. The master weights
 * are x, the first moment z - x. */
ls_status LS_REFERENCE(SCHEDULEFREE)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rddd>RRR", error));
  const ls_attributes *by = args->attributes;
  const double rate = learning_rate(args), step = *ls_cell_data(&args->in[2]);
  const double factor = *ls_cell_data(&args->in[3]), share = share_of_mean(by, step);
  if (factor == 0) return LS_OK;
  for (int64_t n = 0; n < args->out[0].valid[0]; n++) {
    const LS_REAL *gradients = ls_real_row(&args->in[0], n);
    LS_REAL *masters = ls_real_row(&args->out[0], n);
    LS_REAL *offsets = ls_real_row(&args->out[1], n), *seconds = ls_real_row(&args->out[2], n);
    for (int64_t c = 0; c < ls_valid_columns(&args->out[0]); c++) {
      const double g = factor * (double)gradients[c], mean = (double)masters[c];
      const double second = by->beta2 * (double)seconds[c] + (1 - by->beta2) * g * g;
      const double root = sqrt(second / (1 - pow(by->beta2, step))) + by->epsilon;
      const double point = mean + (1 - by->beta1) * (double)offsets[c];
      const double fast = (double)offsets[c] - rate * (g / root + by->weight_decay * point);
      masters[c] = (LS_REAL)(mean + share * fast);
      offsets[c] = (LS_REAL)((1 - share) * fast);
      seconds[c] = (LS_REAL)second;
    }
  }
  return LS_OK;
}

ls_status LS_REFERENCE(SCHEDULEFREE_POINT)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rr>R", error));
  const double own = 1 - args->attributes->beta1;
  for (int64_t n = 0; n < args->out[0].valid[0]; n++) {
    const LS_REAL *masters = ls_real_row(&args->in[0], n), *offsets = ls_real_row(&args->in[1], n);
    LS_REAL *weights = ls_real_row(&args->out[0], n);
    for (int64_t c = 0; c < ls_valid_columns(&args->out[0]); c++)
      weights[c] = (LS_REAL)((double)masters[c] + own * (double)offsets[c]);
  }
  return LS_OK;
}

ls_status LS_REFERENCE(LION_SPECULATE)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rdddrr>R", error));
  for (int64_t n = 0; n < args->out[0].valid[0]; n++) {
    const LS_REAL *gradients = ls_real_row(&args->in[0], n);
    const LS_REAL *masters = ls_real_row(&args->in[4], n), *momenta = ls_real_row(&args->in[5], n);
    LS_REAL *weights = ls_real_row(&args->out[0], n);
    for (int64_t c = 0; c < ls_valid_columns(&args->out[0]); c++) {
      double momentum = (double)momenta[c];
      weights[c] = (LS_REAL)lion_element(args, (double)gradients[c], (double)masters[c], &momentum);
    }
  }
  return LS_OK;
}
