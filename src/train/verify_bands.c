#include "train/verify_bands.h"

#include <float.h>
#include <math.h>

/* Of a reference in double throughout. Measured on the traces of tests/data and on
 * gpt2-tiny-pretrain, over one device and meshes: see the bounds in tests/verify_test.c. */
static const double double_loss = 1e-10, double_norm = 1e-9; /* relative */
static const double double_logits = 1e-10, double_gradients = 1e-10, double_parameters = 1e-8;

static const double single_multiple = 8; /* of the reference's fp32 noise */
static const double single_ulps = 4;
static const double mixed_floor = 1e-6; /* relative, of losses and norms */

/* bf16 keeps 8 bits. AdamW's first steps go by the sign of a gradient, so a parameter whose
 * gradient is near zero may walk the other way: then the sum of the learning rates is half of the
 * way between the two. */
static const double half_loss = 0.02, half_norm = 0.1;         /* relative */
static const double half_logits = 0.05, half_gradients = 0.05; /* of the largest one */

static double step_band(ls_dtype compute, bool mixed, double value, double noise, double exact,
                        double half) {
  const double size = fabs(value);
  if (compute == LS_BF16) return half * size;
  if (compute == LS_F32) return fmax(single_multiple * noise, single_ulps * FLT_EPSILON * size);
  return mixed ? fmax(noise, mixed_floor * size) : exact * size;
}

static void make_steps(const ls_trace *trace, ls_dtype compute, ls_verify_bands *bands) {
  double loss_noise = 0, norm_noise = 0;
  for (int64_t s = 0; s < trace->steps; s++) {
    const ls_trace_step *step = &trace->step[s];
    loss_noise = fmax(loss_noise, fabs(step->loss - step->loss_f32));
    norm_noise = fmax(norm_noise, fabs(step->norm - step->norm_f32));
    const bool mixed = trace->single_parts != NULL;
    bands->loss[s] = step_band(compute, mixed, step->loss, loss_noise, double_loss, half_loss);
    bands->norm[s] = step_band(compute, mixed, step->norm, norm_noise, double_norm, half_norm);
  }
}

static double sum_of_rates(const ls_trace *trace) {
  double sum = 0;
  for (int64_t s = 0; s < trace->steps; s++) sum += trace->step[s].learning_rate;
  return sum;
}

ls_verify_bands ls_verify_bands_make(ls_arena *arena, const ls_trace *trace, ls_dtype compute,
                                     double largest_logit, double largest_gradient) {
  ls_verify_bands bands = {.loss = LS_NEW_ARRAY(arena, double, trace->steps),
                           .norm = LS_NEW_ARRAY(arena, double, trace->steps)};
  make_steps(trace, compute, &bands);
  if (compute == LS_BF16) {
    bands.logits = half_logits * largest_logit;
    bands.gradients = half_gradients * largest_gradient;
    bands.parameters = sum_of_rates(trace);
    return bands;
  }
  const ls_trace_noise *noise = &trace->noise;
  const double multiple = compute == LS_F32 ? single_multiple : 1;
  if (compute == LS_F32 || trace->single_parts) {
    bands.logits = multiple * noise->logits;
    bands.gradients = multiple * noise->gradients;
    bands.parameters = multiple * noise->parameters;
  } else {
    bands.logits = double_logits;
    bands.gradients = double_gradients;
    bands.parameters = double_parameters;
  }
  if (compute == LS_F64) bands.rounding = FLT_EPSILON / 2;
  return bands;
}
