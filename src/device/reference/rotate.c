#include <math.h>

#include "device/reference/reference.h"

/* Rotary positions, with the halves of a head's turned columns paired as Hugging Face's rotate_half
 * does, column i with column i + columns / 2; or neighbours, column 2i with column 2i + 1. */

ls_status LS_REFERENCE(ROPE_TABLE)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "i>r", error));
  const int32_t *positions = ls_index_data(&args->in[0]);
  const ls_view *table = &args->out[0];
  const ls_attributes *attributes = args->attributes;
  const double scale = attributes->rope_scale > 0 ? attributes->rope_scale : 1;
  const int64_t half = table->dims[1] / 2;
  if (attributes->rope_pairs != half || table->dims[1] % 2)
    return ls_fail(error, LS_INTERNAL, "a rope table of %lld columns for %lld frequencies",
                   (long long)table->dims[1], (long long)attributes->rope_pairs);
  for (int64_t i = 0; i < half; i++) {
    for (int64_t n = 0; n < table->valid[0]; n++) {
      const double angle = (double)positions[n] * attributes->rope_frequencies[i];
      LS_REAL *row = ls_real_row(table, n);
      ls_put(&row[i], scale * cos(angle), args->accumulate[0]);
      ls_put(&row[half + i], scale * sin(angle), args->accumulate[0]);
    }
  }
  return LS_OK;
}

/* One head, whose columns [first, first + 2 half) are turned; a pair is read before it is written.
 */
static void rotate_head(const ls_kernel_args *args, const LS_REAL *from, const LS_REAL *angles,
                        int64_t half, double direction, LS_REAL *to) {
  const ls_attributes *attributes = args->attributes;
  const int64_t first = attributes->rope_first, turned = 2 * half;
  const bool beside = attributes->rope_neighbours, add = args->accumulate[0];
  for (int64_t i = 0; i < half; i++) {
    const int64_t low = first + (beside ? 2 * i : i), high = beside ? low + 1 : low + half;
    const double cosine = (double)angles[i], sine = direction * (double)angles[half + i];
    const double a = (double)from[low], b = (double)from[high];
    ls_put(&to[low], a * cosine - b * sine, add);
    ls_put(&to[high], b * cosine + a * sine, add);
  }
  for (int64_t i = 0; i < first; i++) ls_put(&to[i], (double)from[i], add);
  for (int64_t i = first + turned; i < attributes->head_dim; i++)
    ls_put(&to[i], (double)from[i], add);
}

/* Turns every head of every row by its position's angles, forwards or back. The output may be the
 * input's memory. */
static ls_status rotate(const ls_kernel_args *args, double direction, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rr>r", error));
  const ls_view *x = &args->in[0], *table = &args->in[1], *y = &args->out[0];
  const int64_t head_dim = args->attributes->head_dim, turned = table->dims[1];
  if (head_dim <= 0 || turned % 2 || turned > head_dim - args->attributes->rope_first ||
      y->dims[1] % head_dim || x->dims[1] != y->dims[1])
    return ls_fail(error, LS_INTERNAL,
                   "rope of %lld columns into %lld in heads of %lld with a table of %lld; expected "
                   "whole heads, and pairs of their columns",
                   (long long)x->dims[1], (long long)y->dims[1], (long long)head_dim,
                   (long long)turned);
  for (int64_t n = 0; n < y->valid[0]; n++)
    for (int64_t first = 0; first < y->dims[1]; first += head_dim)
      rotate_head(args, ls_real_row(x, n) + first, ls_real_row(table, n), turned / 2, direction,
                  ls_real_row(y, n) + first);
  return LS_OK;
}

ls_status LS_REFERENCE(ROPE)(const ls_kernel_args *args, ls_error *error) {
  return rotate(args, 1, error);
}

ls_status LS_REFERENCE(ROPE_BWD)(const ls_kernel_args *args, ls_error *error) {
  return rotate(args, -1, error);
}
