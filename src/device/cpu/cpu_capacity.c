/* Experts held to a capacity: see device/reference/capacity.c. Whole numbers, gone through once. */
#include <string.h>

#include "device/cpu/cpu.h"

static ls_status kernel_choices(const ls_kernel_args *args, ls_error *error) {
  const ls_view *rows = &args->in[0];
  const int32_t *row = rows->data, *expert_of_row = args->in[1].data;
  int32_t *to = args->out[0].data;
  if (args->accumulate[0]) return ls_fail(error, LS_INTERNAL, "choices cannot be accumulated into");
  for (int64_t s = 0; s < rows->valid[0] * rows->dims[1]; s++) to[s] = expert_of_row[row[s]];
  return LS_OK;
}

/* Which row has each token, those of a sequence one after another by their places. Rows of whole
 * sequences may lie in any order, those of a part of one are together. */
static ls_status list_tokens(const ls_kernel_args *args, int32_t *sequences, int32_t *row_of_token,
                             ls_error *error) {
  const int32_t *places = args->inputs > 2 ? args->in[2].data : NULL;
  const int64_t length = args->attributes->sequence, rows = args->in[0].valid[0];
  const int64_t count = rows / length;
  int64_t known = 0, at = 0;
  for (int64_t n = 0; n < rows; n++) {
    const int32_t place = places ? places[n] : (int32_t)n, of = (int32_t)(place / length);
    if (at >= known || sequences[at] != of)
      for (at = 0; at < known && sequences[at] != of;) at++;
    if (at >= count)
      return ls_fail(error, LS_INTERNAL, "row %lld is of another sequence; expected %lld of them",
                     (long long)n, (long long)count);
    if (at == known) sequences[known++] = of;
    row_of_token[at * length + place % length] = (int32_t)n;
  }
  return LS_OK;
}

static void take_in_order(const ls_kernel_args *args, const int32_t *row_of_token, int32_t *taken) {
  const ls_attributes *of = args->attributes;
  const int64_t chosen = args->in[0].dims[1], rows = args->in[0].valid[0];
  const int32_t *choices = args->in[0].data, *labels = args->in[1].data;
  double *dropped = args->out[0].data;
  int32_t *kept = args->out[1].data;
  for (int64_t token = 0; token < rows; token++) {
    if (token % of->sequence == 0) memset(taken, 0, (size_t)of->experts * sizeof *taken);
    const int64_t n = row_of_token[token];
    for (int64_t s = n * chosen; s < (n + 1) * chosen; s++) {
      const int32_t expert = choices[s];
      const bool keeps = taken[expert]++ < of->slots;
      kept[s] = keeps ? expert : (int32_t)of->experts;
      dropped[expert] += !keeps && labels[n] >= 0;
    }
  }
}

static ls_status kernel_capacity(const ls_kernel_args *args, ls_error *error) {
  const ls_attributes *of = args->attributes;
  const int64_t rows = args->in[0].valid[0], sequences = rows / of->sequence;
  if (args->accumulate[1]) return ls_fail(error, LS_INTERNAL, "choices cannot be accumulated into");
  const size_t bytes = (size_t)(rows + sequences + of->experts) * sizeof(int32_t);
  int32_t *row_of_token = ls_cpu_scratch(args, bytes);
  if (!row_of_token) return ls_fail(error, LS_FAILED, "no memory for %zu bytes of scratch", bytes);
  if (!args->accumulate[0])
    memset(args->out[0].data, 0, (size_t)args->out[0].dims[1] * sizeof(double));
  LS_TRY(list_tokens(args, row_of_token + rows, row_of_token, error));
  take_in_order(args, row_of_token, row_of_token + rows + sequences);
  return LS_OK;
}

static ls_status kernel_keep(const ls_kernel_args *args, ls_error *error) {
  const int64_t choices = args->in[2].valid[0] * args->in[2].dims[1];
  const int32_t *row = args->in[0].data, *expert = args->in[2].data;
  const int32_t none = (int32_t)args->attributes->experts;
  const float *weight_of_row = args->in[1].data;
  int32_t *kept = args->out[0].data, *expert_of_row = args->out[1].data, first = 0;
  float *weight = args->out[2].data;
  if (args->accumulate[0] || args->accumulate[1] || args->accumulate[2])
    return ls_fail(error, LS_INTERNAL, "a routing cannot be accumulated into");
  const size_t bytes = (size_t)(none + 1) * sizeof(int32_t);
  int32_t *next = ls_cpu_scratch(args, bytes);
  if (!next) return ls_fail(error, LS_FAILED, "no memory for %zu bytes of scratch", bytes);
  memset(next, 0, bytes);
  for (int64_t s = 0; s < choices; s++) next[expert[s]]++;
  for (int32_t e = 0; e <= none; e++) {
    const int32_t count = next[e];
    next[e] = first;
    first += count;
  }
  for (int64_t s = 0; s < choices; s++) {
    kept[s] = next[expert[s]]++;
    expert_of_row[kept[s]] = expert[s];
    weight[kept[s]] = expert[s] < none ? weight_of_row[row[s]] : 0;
  }
  return LS_OK;
}

static ls_status kernel_keep_bwd(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  const int32_t *row = args->in[1].data, *kept = args->in[2].data, *expert = args->in[3].data;
  const float *from = args->in[0].data;
  float *to = args->out[0].data;
  for (int64_t s = 0; s < args->in[3].valid[0] * args->in[3].dims[1]; s++)
    to[row[s]] = (args->accumulate[0] ? to[row[s]] : 0) +
                 (expert[s] < args->attributes->experts ? from[kept[s]] : 0);
  return LS_OK;
}

void ls_cpu_capacity_kernels(ls_kernel_table *table) {
  table->kernel[LS_OP_CHOICES] = kernel_choices;
  table->kernel[LS_OP_CAPACITY] = kernel_capacity;
  table->kernel[LS_OP_KEEP] = kernel_keep;
  table->kernel[LS_OP_KEEP_BWD] = kernel_keep_bwd;
}
