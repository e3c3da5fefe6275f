#include "verify/verify_tolerances.h"

#include <float.h>
#include <math.h>

/* fp64 against a reference in double throughout: hundreds of times what is measured on the first
 * steps of the traces of tests/data, on one device and on meshes (at most 2e-14 everywhere). Each
 * update adds a rounding like the first one's, so losses, norms (relative) and parameters may be
 * off by that much for each step before. */
static const double double_steps = 1e-12;
static const double double_logits = 1e-12, double_gradients = 1e-12;

static const double single_multiple = 8; /* of the reference's fp32 noise */

/* The noise of one number may be small by chance: then these hold. A norm after some updates has
 * the roundings of all gradients in it (4.9 ulps seen right, on `olmoe` with AVX-512). */
static const double loss_ulps = 4, norm_ulps = 8;

/* bf16 keeps 8 bits; fp16 11, but fewer of what is small: a quarter of these tolerances. Gradients
 * have the widest: attention rounds probabilities and the gradients of scores on their way to them
 * (PyTorch's own, under bf16 autocast, are off by 5.3 % of the largest on the trace `olmo2`). */
static const double half_loss = 0.005, half_norm = 0.05;       /* relative */
static const double half_logits = 0.05, half_gradients = 0.07; /* of the largest one */

/* AdamW's first steps go by the sign of a gradient, so a parameter whose gradient is near zero may
 * walk the other way, in fp16 too: then the sum of the learning rates is half of the way between
 * the two, and a tolerance of one number sees damage alone. Few walk so, and count little in the
 * root mean square of all that is compared: on 30 traces it is 0.06 of that sum at most in bf16 and
 * 0.04 in fp16. Updates a third too large or a fifth too small are outside (on `gpt2-tied`). */
static const double half_mean = 0.1;

/* Of the reference's noise, what may be between it and us; 0: none of it, constants hold. */
static double noise_multiple(const ls_trace *trace, ls_dtype compute) {
  return compute == LS_F32 ? single_multiple : trace->single_share;
}

/* How much of the tolerances of 16-bit types holds; 0: others do. */
static double half_share(ls_dtype compute) {
  if (compute == LS_F16) return 0.25;
  return compute == LS_BF16 ? 1 : 0;
}

static double step_tolerance(const ls_trace *trace, ls_dtype compute, int64_t updates, double value,
                             double noise, double ulps, double half) {
  const double size = fabs(value), multiple = noise_multiple(trace, compute);
  if (half_share(compute) > 0) return half_share(compute) * half * size;
  if (multiple == 0) return double_steps * (double)(1 + updates) * size;
  const double floor = ulps * FLT_EPSILON * size * fmin(multiple, 1);
  return fmax(multiple * noise, floor);
}

static void make_steps(const ls_trace *trace, ls_dtype compute, ls_verify_tolerances *tolerances) {
  double loss_noise = 0, norm_noise = 0;
  for (int64_t s = 0; s < trace->steps; s++) {
    const ls_trace_step *step = &trace->step[s];
    loss_noise = fmax(loss_noise, fabs(step->loss - step->loss_f32));
    norm_noise = fmax(norm_noise, fabs(step->norm - step->norm_f32));
    tolerances->loss[s] =
        step_tolerance(trace, compute, s, step->loss, loss_noise, loss_ulps, half_loss);
    tolerances->norm[s] =
        step_tolerance(trace, compute, s, step->norm, norm_noise, norm_ulps, half_norm);
  }
}

static double sum_of_rates(const ls_trace *trace) {
  double sum = 0;
  for (int64_t s = 0; s < trace->steps; s++) sum += trace->step[s].learning_rate;
  return sum;
}

ls_verify_tolerances ls_verify_tolerances_make(ls_arena *arena, const ls_trace *trace,
                                               ls_dtype compute, double largest_logit,
                                               double largest_gradient) {
  ls_verify_tolerances tolerances = {.loss = LS_NEW_ARRAY(arena, double, trace->steps),
                                     .norm = LS_NEW_ARRAY(arena, double, trace->steps)};
  make_steps(trace, compute, &tolerances);
  if (half_share(compute) > 0) {
    tolerances.logits = half_share(compute) * half_logits * largest_logit;
    tolerances.gradients = half_share(compute) * half_gradients * largest_gradient;
    tolerances.parameters = sum_of_rates(trace);
    tolerances.mean_parameters = half_mean * tolerances.parameters;
    return tolerances;
  }
  const double multiple = noise_multiple(trace, compute);
  tolerances.logits = multiple > 0 ? multiple * trace->noise.logits : double_logits;
  tolerances.gradients = multiple > 0 ? multiple * trace->noise.gradients : double_gradients;
  tolerances.parameters =
      multiple > 0 ? multiple * trace->noise.parameters : double_steps * (double)(1 + trace->steps);
  if (compute == LS_F64) tolerances.rounding = FLT_EPSILON / 2;
  return tolerances;
}
