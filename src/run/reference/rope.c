#include <math.h>

#include "run/reference/reference.h"

/* Rotary positions, with the halves of a head paired as Hugging Face's rotate_half does: column i
 * with column i + head_dim / 2. */

static const double pi = 3.14159265358979323846;

/* Llama 3: long wavelengths are stretched by `factor`, short ones kept, those between blended
 * (Hugging Face: _compute_llama3_parameters). */
static double llama3_frequency(double frequency, const ls_attributes *attributes) {
  const double wavelength = 2 * pi / frequency;
  const double original = attributes->rope_original_positions;
  const double low = attributes->rope_low_freq_factor, high = attributes->rope_high_freq_factor;
  if (wavelength > original / low) return frequency / attributes->rope_factor;
  if (wavelength < original / high) return frequency;
  const double smooth = (original / wavelength - low) / (high - low);
  return (1 - smooth) * frequency / attributes->rope_factor + smooth * frequency;
}

static double inverse_frequency(int64_t pair, int64_t head_dim, const ls_attributes *attributes) {
  const double frequency = 1 / pow(attributes->rope_theta, 2 * (double)pair / (double)head_dim);
  switch (attributes->rope_scaling) {
    case LS_ROPE_LINEAR: return frequency / attributes->rope_factor;
    case LS_ROPE_LLAMA3: return llama3_frequency(frequency, attributes);
    default: return frequency;
  }
}

ls_status LS_REFERENCE(ROPE_TABLE)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "i>r", error));
  const int32_t *positions = ls_index_data(&args->in[0]);
  const ls_view *table = &args->out[0];
  const int64_t head_dim = table->dims[1], half = head_dim / 2;
  for (int64_t i = 0; i < half; i++) {
    const double frequency = inverse_frequency(i, head_dim, args->attributes);
    for (int64_t n = 0; n < table->valid[0]; n++) {
      const double angle = (double)positions[n] * frequency;
      LS_REAL *row = ls_real_row(table, n);
      ls_put(&row[i], cos(angle), args->accumulate[0]);
      ls_put(&row[half + i], sin(angle), args->accumulate[0]);
    }
  }
  return LS_OK;
}

/* Turns every head of every row by its position's angles, forwards or back. The output may be the
 * input's memory: a pair is read before it is written. */
static ls_status rotate(const ls_kernel_args *args, double direction, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rr>r", error));
  const ls_view *x = &args->in[0], *table = &args->in[1], *y = &args->out[0];
  const int64_t head_dim = table->dims[1], half = head_dim / 2;
  if (head_dim <= 0 || head_dim % 2 || y->dims[1] % head_dim || x->dims[1] != y->dims[1])
    return ls_fail(error, LS_INTERNAL,
                   "rope of %lld columns into %lld with a table of %lld; expected whole heads",
                   (long long)x->dims[1], (long long)y->dims[1], (long long)head_dim);
  for (int64_t n = 0; n < y->valid[0]; n++) {
    const LS_REAL *angles = ls_real_row(table, n);
    for (int64_t first = 0; first < y->dims[1]; first += head_dim) {
      const LS_REAL *from = ls_real_row(x, n) + first;
      LS_REAL *to = ls_real_row(y, n) + first;
      for (int64_t i = 0; i < half; i++) {
        const double cosine = (double)angles[i], sine = direction * (double)angles[half + i];
        const double a = (double)from[i], b = (double)from[half + i];
        ls_put(&to[i], a * cosine - b * sine, args->accumulate[0]);
        ls_put(&to[half + i], b * cosine + a * sine, args->accumulate[0]);
      }
    }
  }
  return LS_OK;
}

ls_status LS_REFERENCE(ROPE)(const ls_kernel_args *args, ls_error *error) {
  return rotate(args, 1, error);
}

ls_status LS_REFERENCE(ROPE_BWD)(const ls_kernel_args *args, ls_error *error) {
  return rotate(args, -1, error);
}
