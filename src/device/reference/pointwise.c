#include <math.h>

#include "base/blocks.h"
#include "device/mask.h"
#include "device/reference/reference.h"

/* Functions of one element, or of elements at one place. All stored columns are computed: padding
 * is zero and each function here takes zero to zero. */

typedef void (*element_function)(const ls_attributes *attributes, const double *in, double *out);

/* out = function(in) at every place. An output may be an input's memory. */
static ls_status apply(const ls_kernel_args *args, element_function function, ls_error *error) {
  const int64_t columns = ls_stored_columns(&args->out[0]);
  for (int i = 0; i < args->inputs; i++)
    if (ls_stored_columns(&args->in[i]) != columns)
      return ls_fail(error, LS_INTERNAL, "input %d has %lld columns and output 0 %lld", i,
                     (long long)ls_stored_columns(&args->in[i]), (long long)columns);
  for (int64_t n = 0; n < args->out[0].valid[0]; n++) {
    for (int64_t c = 0; c < columns; c++) {
      double in[LS_MAX_INPUTS], out[LS_MAX_OUTPUTS];
      for (int i = 0; i < args->inputs; i++) in[i] = (double)ls_real_row(&args->in[i], n)[c];
      function(args->attributes, in, out);
      for (int o = 0; o < args->outputs; o++)
        ls_put(&ls_real_row(&args->out[o], n)[c], out[o], args->accumulate[o]);
    }
  }
  return LS_OK;
}

static void add(const ls_attributes *attributes, const double *in, double *out) {
  (void)attributes;
  out[0] = in[0] + in[1];
}

static void scale(const ls_attributes *attributes, const double *in, double *out) {
  out[0] = attributes->scale * in[0];
}

/* gelu_new: 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))); or exact: 0.5 x (1 + erf(x / sqrt
 * 2)) (Hendrycks and Gimpel, 2016). */
static const double root_two_over_pi = 0.79788456080286535588;
static const double root_half = 0.70710678118654752440;
static const double inverse_root_two_pi = 0.39894228040143267794;
static const double cubic = 0.044715;

static double sigmoid(double x) {
  return 1 / (1 + exp(-x));
}

/* The activation at x; *slope takes its derivative there. */
static double activate(ls_activation which, double x, double *slope) {
  switch (which) {
    case LS_SILU: {
      const double share = sigmoid(x);
      *slope = share * (1 + x * (1 - share));
      return x * share;
    }
    case LS_GELU_TANH: {
      const double inner = tanh(root_two_over_pi * (x + cubic * x * x * x));
      const double inner_slope = (1 - inner * inner) * root_two_over_pi * (1 + 3 * cubic * x * x);
      *slope = 0.5 * (1 + inner) + 0.5 * x * inner_slope;
      return 0.5 * x * (1 + inner);
    }
    case LS_RELU: *slope = x > 0; return x > 0 ? x : 0;
    case LS_GELU_ERF: break;
  }
  const double normal = 0.5 * (1 + erf(x * root_half));
  *slope = normal + x * inverse_root_two_pi * exp(-0.5 * x * x);
  return x * normal;
}

static void gelu(const ls_attributes *attributes, const double *in, double *out) {
  double slope;
  out[0] = activate(attributes->activation, in[0], &slope);
}

static void gelu_back(const ls_attributes *attributes, const double *in, double *out) {
  double slope;
  activate(attributes->activation, in[1], &slope);
  out[0] = in[0] * slope;
}

static void swiglu(const ls_attributes *attributes, const double *in, double *out) {
  double slope;
  out[0] = activate(attributes->activation, in[0], &slope) * in[1];
}

static void swiglu_back(const ls_attributes *attributes, const double *in, double *out) {
  double slope;
  const double gate = activate(attributes->activation, in[1], &slope);
  out[0] = in[0] * in[2] * slope;
  out[1] = in[0] * gate;
}

/* A gate and its up as they are used, and the activation of the gate. */
typedef struct glu_pair {
  double gate, up, share; /* the share: of the gate that passes */
} glu_pair;

static glu_pair pair_of(const ls_attributes *attributes, const LS_REAL *x) {
  const double limit = attributes->gate_limit;
  glu_pair of = {.gate = fmin((double)x[0], limit), .up = fmax(fmin((double)x[1], limit), -limit)};
  of.share = sigmoid(attributes->gate_slope * of.gate);
  return of;
}

ls_status LS_REFERENCE(PAIRED_GLU)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "r>r", error));
  const ls_view *out = &args->out[0];
  for (int64_t n = 0; n < out->valid[0]; n++)
    for (int64_t c = 0; c < out->dims[1]; c++) {
      const glu_pair of = pair_of(args->attributes, ls_real_row(&args->in[0], n) + 2 * c);
      ls_put(&ls_real_row(out, n)[c], of.gate * of.share * (of.up + 1), args->accumulate[0]);
    }
  return LS_OK;
}

/* A number beyond a limit has no slope; at it, it has. */
ls_status LS_REFERENCE(PAIRED_GLU_BWD)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rr>r", error));
  const double limit = args->attributes->gate_limit, slope = args->attributes->gate_slope;
  const ls_view *dy = &args->in[0], *out = &args->out[0];
  for (int64_t n = 0; n < out->valid[0]; n++)
    for (int64_t c = 0; c < dy->dims[1]; c++) {
      const LS_REAL *x = ls_real_row(&args->in[1], n) + 2 * c;
      const double d = (double)ls_real_row(dy, n)[c];
      const glu_pair of = pair_of(args->attributes, x);
      const double of_gate = of.share * (1 + slope * of.gate * (1 - of.share)) * (of.up + 1);
      const double of_up = of.gate * of.share;
      LS_REAL *to = ls_real_row(out, n) + 2 * c;
      ls_put(&to[0], (double)x[0] <= limit ? d * of_gate : 0, args->accumulate[0]);
      ls_put(&to[1], fabs((double)x[1]) <= limit ? d * of_up : 0, args->accumulate[0]);
    }
  return LS_OK;
}

static void softcap(const ls_attributes *attributes, const double *in, double *out) {
  out[0] = attributes->softcap * tanh(in[0] / attributes->softcap);
}

/* From the output: the derivative of tanh is 1 - tanh^2. */
static void softcap_back(const ls_attributes *attributes, const double *in, double *out) {
  const double share = in[1] / attributes->softcap;
  out[0] = in[0] * (1 - share * share);
}

ls_status LS_REFERENCE(ADD)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rr>r", error));
  return apply(args, add, error);
}

ls_status LS_REFERENCE(SCALE)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "r>r", error));
  return apply(args, scale, error);
}

ls_status LS_REFERENCE(SCALE_BWD)(const ls_kernel_args *args, ls_error *error) {
  return LS_REFERENCE(SCALE)(args, error);
}

ls_status LS_REFERENCE(GELU)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "r>r", error));
  return apply(args, gelu, error);
}

ls_status LS_REFERENCE(GELU_BWD)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rr>r", error));
  return apply(args, gelu_back, error);
}

ls_status LS_REFERENCE(SWIGLU)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rr>r", error));
  return apply(args, swiglu, error);
}

ls_status LS_REFERENCE(SWIGLU_BWD)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rrr>rr", error));
  return apply(args, swiglu_back, error);
}

ls_status LS_REFERENCE(SOFTCAP)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "r>r", error));
  return apply(args, softcap, error);
}

ls_status LS_REFERENCE(SOFTCAP_BWD)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rr>r", error));
  return apply(args, softcap_back, error);
}

ls_status LS_REFERENCE(DROPOUT)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "ri>r", error));
  const ls_view *x = &args->in[0], *out = &args->out[0];
  const int32_t *draws = ls_index_data(&args->in[1]);
  const double rate = args->attributes->dropout;
  const uint32_t limit = ls_mask_limit(rate);
  for (int64_t n = 0; n < out->valid[0]; n++) {
    const uint32_t row = ls_mask_row(draws[n], args->attributes->site, 0);
    for (int64_t c = 0; c < ls_stored_columns(out); c++) {
      const bool kept = ls_mask_keeps(row, (uint32_t)(x->start[1] + c), limit);
      const double value = (double)ls_real_row(x, n)[c] / (1 - rate);
      ls_put(&ls_real_row(out, n)[c], kept ? value : 0, args->accumulate[0]);
    }
  }
  return LS_OK;
}

ls_status LS_REFERENCE(DROPOUT_BWD)(const ls_kernel_args *args, ls_error *error) {
  return LS_REFERENCE(DROPOUT)(args, error);
}

/* Codes stay as they are; scales are fp32, whatever is computed in. */
ls_status LS_REFERENCE(RESTORE_SCALES)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "b*>b", error));
  const ls_view *in = &args->in[0], *out = &args->out[0];
  LS_TRY(ls_kernel_check_scales(args, error));
  const ls_double_block *from = in->data;
  ls_four_bit_block *to = out->data;
  for (int64_t row = 0; row < out->valid[0]; row++)
    ls_blocks_unnest(from + row * in->dims[1], args->in[1].data, ls_kernel_first_scale(args, row),
                     out->valid[1], to + row * out->dims[1]);
  return LS_OK;
}

/* Weights are rounded to fp32, whatever is computed in. */
ls_status LS_REFERENCE(DEQUANTIZE)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "b>R", error));
  const ls_view *in = &args->in[0], *out = &args->out[0];
  const size_t bytes = ls_dtype_bytes(in->dtype);
  if (out->valid[1] != in->valid[1] * LS_BLOCK_WEIGHTS)
    return ls_fail(error, LS_INTERNAL, "%lld blocks of a row are to make %lld weights",
                   (long long)in->valid[1], (long long)out->valid[1]);
  for (int64_t row = 0; row < out->valid[0]; row++) {
    const char *blocks = (const char *)in->data + (size_t)(row * in->dims[1]) * bytes;
    LS_REAL *to = ls_real_row(out, row);
    for (int64_t b = 0; b < in->valid[1]; b++) {
      float weights[LS_BLOCK_WEIGHTS];
      ls_blocks_restore(in->dtype, blocks + (size_t)b * bytes, 1, weights);
      for (int i = 0; i < LS_BLOCK_WEIGHTS; i++) to[b * LS_BLOCK_WEIGHTS + i] = (LS_REAL)weights[i];
    }
    ls_put_padding(to, out->valid[1], out->dims[1], false);
  }
  return LS_OK;
}
