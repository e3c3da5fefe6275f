#include <string.h>

#include "device/reference/reference.h"

/* Moving rows: between types, and between slices of one tensor. */

enum { PIECE = 128 };

static void *element(const ls_view *view, int64_t index) {
  return (char *)view->data + (size_t)index * ls_dtype_bytes(view->dtype);
}

/* Writes, or adds, `count` elements of `in` to those of `out`; sums are made in double and rounded
 * once. */
static void move(const ls_view *out, int64_t to, const ls_view *in, int64_t from, int64_t count,
                 bool accumulate) {
  if (!accumulate) {
    if (in->dtype == out->dtype)
      memmove(element(out, to), element(in, from), (size_t)count * ls_dtype_bytes(in->dtype));
    else
      ls_convert(element(out, to), out->dtype, element(in, from), in->dtype, count);
    return;
  }
  for (int64_t done = 0; done < count; done += PIECE) {
    double sums[PIECE], added[PIECE];
    const int64_t some = ls_smaller(PIECE, count - done);
    ls_convert(sums, LS_F64, element(out, to + done), out->dtype, some);
    ls_convert(added, LS_F64, element(in, from + done), in->dtype, some);
    for (int64_t i = 0; i < some; i++) sums[i] += added[i];
    ls_convert(element(out, to + done), out->dtype, sums, LS_F64, some);
  }
}

static ls_status move_rows(const ls_kernel_args *args, int64_t shift, ls_error *error) {
  const ls_view *in = &args->in[0], *out = &args->out[0];
  const int64_t from_columns = ls_stored_columns(in), to_columns = ls_stored_columns(out);
  const int64_t rows = out->valid[0], columns = ls_smaller(from_columns, to_columns);
  if (rows > 0 && (shift < 0 || shift + rows > in->valid[0]))
    return ls_fail(error, LS_INTERNAL,
                   "rows %lld to %lld are wanted of an input that has %lld to %lld",
                   (long long)(in->start[0] + shift), (long long)(in->start[0] + shift + rows),
                   (long long)in->start[0], (long long)(in->start[0] + in->valid[0]));
  if (from_columns == to_columns) {
    if (rows > 0) move(out, 0, in, shift * columns, rows * columns, args->accumulate[0]);
    return LS_OK;
  }
  for (int64_t n = 0; n < rows; n++) {
    move(out, n * to_columns, in, (n + shift) * from_columns, columns, args->accumulate[0]);
    if (!args->accumulate[0])
      memset(element(out, n * to_columns + columns), 0,
             (size_t)(to_columns - columns) * ls_dtype_bytes(out->dtype));
  }
  return LS_OK;
}

ls_status LS_REFERENCE(CAST)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "*>*", error));
  return move_rows(args, 0, error);
}

/* out[i] = in[i] by place in the whole tensor: `out` is a slice of what `in` holds. */
ls_status LS_REFERENCE(COPY)(const ls_kernel_args *args, ls_error *error) {
  const ls_dtype dtype = args->in[0].dtype;
  const bool whole_numbers = dtype == LS_I32 || dtype == LS_I64 || dtype == LS_U8;
  if (args->inputs != 1 || args->outputs != 1 || dtype != args->out[0].dtype)
    return ls_fail(error, LS_INTERNAL, "copy needs one input and one output of the same type");
  if (args->accumulate[0] && whole_numbers)
    return ls_fail(error, LS_INTERNAL, "copy cannot accumulate %s", ls_dtype_name(dtype));
  return move_rows(args, args->out[0].start[0] - args->in[0].start[0], error);
}
