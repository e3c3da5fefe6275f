#include "device/reference/reference.h"

/* Mixtures of experts that are held to a capacity: which choices are kept, and a routing of these,
 * behind which the others are rows of no expert. */

ls_status LS_REFERENCE(CHOICES)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "ii>i", error));
  if (args->accumulate[0]) return ls_fail(error, LS_INTERNAL, "choices cannot be accumulated into");
  const ls_view *rows = &args->in[0];
  for (int64_t s = 0; s < rows->valid[0] * rows->dims[1]; s++)
    ((int32_t *)args->out[0].data)[s] = ls_index_data(&args->in[1])[ls_index_data(rows)[s]];
  return LS_OK;
}

/* How many tokens of its sequence that come before token n chose the expert, too. */
static int64_t count_before(const ls_kernel_args *args, int64_t n, int32_t expert) {
  const ls_view *choices = &args->in[0];
  const int32_t *places = args->inputs > 2 ? ls_index_data(&args->in[2]) : NULL;
  const int64_t sequence = args->attributes->sequence, own = places ? places[n] : n;
  int64_t before = 0;
  for (int64_t m = 0; m < choices->valid[0]; m++) {
    const int64_t place = places ? places[m] : m;
    if (place / sequence != own / sequence || place >= own) continue;
    for (int64_t j = 0; j < choices->dims[1]; j++)
      before += ls_index_data(choices)[m * choices->dims[1] + j] == expert;
  }
  return before;
}

ls_status LS_REFERENCE(CAPACITY)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, args->inputs > 2 ? "iii>di" : "ii>di", error));
  if (args->accumulate[1]) return ls_fail(error, LS_INTERNAL, "choices cannot be accumulated into");
  const ls_view *choices = &args->in[0], *dropped = &args->out[0];
  const int64_t chosen = choices->dims[1];
  for (int64_t e = 0; e < dropped->dims[1] && !args->accumulate[0]; e++)
    ls_cell_data(dropped)[e] = 0;
  for (int64_t s = 0; s < choices->valid[0] * chosen; s++) {
    const int32_t expert = ls_index_data(choices)[s];
    const bool keeps = count_before(args, s / chosen, expert) < args->attributes->slots;
    ((int32_t *)args->out[1].data)[s] = keeps ? expert : (int32_t)args->attributes->experts;
    if (!keeps && ls_index_data(&args->in[1])[s / chosen] >= 0) ls_cell_data(dropped)[expert] += 1;
  }
  return LS_OK;
}

ls_status LS_REFERENCE(KEEP)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "iri>iir", error));
  if (args->accumulate[0] || args->accumulate[1] || args->accumulate[2])
    return ls_fail(error, LS_INTERNAL, "a routing cannot be accumulated into");
  const ls_view *choices = &args->in[2];
  const int32_t *rows = ls_index_data(&args->in[0]), none = (int32_t)args->attributes->experts;
  int32_t *kept = args->out[0].data, *expert_of_row = args->out[1].data, row = 0;
  for (int32_t e = 0; e <= none; e++)
    for (int64_t s = 0; s < choices->valid[0] * choices->dims[1]; s++) {
      if (ls_index_data(choices)[s] != e) continue;
      expert_of_row[row] = e;
      ls_real_data(&args->out[2])[row] = e < none ? ls_real_data(&args->in[1])[rows[s]] : 0;
      kept[s] = row++;
    }
  return LS_OK;
}

ls_status LS_REFERENCE(KEEP_BWD)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "riii>r", error));
  const ls_view *choices = &args->in[3];
  const int32_t *rows = ls_index_data(&args->in[1]), *kept = ls_index_data(&args->in[2]);
  for (int64_t s = 0; s < choices->valid[0] * choices->dims[1]; s++) {
    const bool keeps = ls_index_data(choices)[s] < args->attributes->experts;
    ls_put(&ls_real_data(&args->out[0])[rows[s]],
           keeps ? (double)ls_real_data(&args->in[0])[kept[s]] : 0, args->accumulate[0]);
  }
  return LS_OK;
}
