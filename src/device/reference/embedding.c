#include <string.h>

#include "device/reference/reference.h"

/* The table is a slice of the vocabulary, [start, start + valid): an id outside it gives zeros, so
 * that the slices' outputs sum to the whole's. */

static double scale_of(const ls_kernel_args *args) {
  return args->attributes->scale > 0 ? args->attributes->scale : 1;
}

static bool holds(const ls_kernel_args *args, const ls_view *table, int32_t id, int64_t *row) {
  *row = (int64_t)id + args->attributes->skipped - table->start[0];
  return *row >= 0 && *row < table->valid[0];
}

ls_status LS_REFERENCE(EMBEDDING)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "ri>r", error));
  const ls_view *table = &args->in[0], *out = &args->out[0];
  const int32_t *ids = ls_index_data(&args->in[1]);
  const int64_t columns = ls_smaller(table->dims[1], out->dims[1]);
  for (int64_t n = 0; n < out->valid[0]; n++) {
    LS_REAL *row = ls_real_row(out, n);
    int64_t place;
    if (!holds(args, table, ids[n], &place)) {
      ls_put_padding(row, 0, out->dims[1], args->accumulate[0]);
      continue;
    }
    const LS_REAL *from = ls_real_row(table, place);
    for (int64_t c = 0; c < columns; c++)
      ls_put(&row[c], scale_of(args) * (double)from[c], args->accumulate[0]);
    ls_put_padding(row, columns, out->dims[1], args->accumulate[0]);
  }
  return LS_OK;
}

ls_status LS_REFERENCE(EMBEDDING_DW)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "ri>r", error));
  const ls_view *dy = &args->in[0], *dtable = &args->out[0];
  const int32_t *ids = ls_index_data(&args->in[1]);
  const int64_t columns = ls_smaller(dy->dims[1], dtable->dims[1]);
  if (!args->accumulate[0] && dtable->dims[0] > 0)
    memset(dtable->data, 0, (size_t)(dtable->dims[0] * dtable->dims[1]) * sizeof(LS_REAL));
  for (int64_t n = 0; n < dy->valid[0]; n++) {
    int64_t place;
    if (!holds(args, dtable, ids[n], &place)) continue;
    const LS_REAL *from = ls_real_row(dy, n);
    LS_REAL *row = ls_real_row(dtable, place);
    for (int64_t c = 0; c < columns; c++) ls_put(&row[c], scale_of(args) * (double)from[c], true);
  }
  return LS_OK;
}
