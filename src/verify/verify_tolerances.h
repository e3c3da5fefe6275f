/* How far a repetition may be from its trace: one number for each thing compared.
 *
 * fp32: 8 times what float32 alone did to the reference. The noise of logits, gradients and
 * parameters is the trace's; that of a loss or a gradient norm is the largest difference between
 * its fp32 and its fp64 column up to that step. Their tolerance is never below 4 ulps, of a
 * norm 8.
 *
 * fp64: constants near rounding (verify_tolerances.c) where the reference's fp64 run is double
 * throughout. Where parts of it are float32 even so (rotary tables, norms), we cannot be nearer to
 * it than that: then the share of the noise that comes from there (trace.c), without the 8.
 *
 * bf16: wide tolerances that a right program keeps and a wrong one leaves; fp16: a quarter of them,
 * but for final parameters.
 *
 * Pure functions. */
#ifndef LS_VERIFY_VERIFY_TOLERANCES_H
#define LS_VERIFY_VERIFY_TOLERANCES_H

#include "lockstep/dtype.h"
#include "verify/trace.h"

typedef struct ls_verify_tolerances {
  double *loss, *norm; /* by step */
  double logits, gradients, parameters;
  double mean_parameters; /* of the root mean square of all differences; 0: that is not held */
  /* Of a number the trace keeps as float32: that part of it which its own rounding explains. */
  double rounding;
} ls_verify_tolerances;

/* `largest_logit` and `largest_gradient`: magnitudes in the reference's first step. In the arena.
 */
ls_verify_tolerances ls_verify_tolerances_make(ls_arena *arena, const ls_trace *trace,
                                               ls_dtype compute, double largest_logit,
                                               double largest_gradient);

#endif
