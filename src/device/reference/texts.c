#include <math.h>
#include <string.h>

#include "device/reference/reference.h"

/* Vectors of texts, told apart: op_table_texts.c says what a label is. */

/* The row that a token's text has in `sums`; -1: none of them. */
static int64_t row_of(const ls_attributes *attributes, int32_t label, const ls_view *sums) {
  const int64_t texts = attributes->texts, answers = attributes->answers ? texts - 1 : 0;
  const int64_t number = label >= 0 ? label : -2 - (int64_t)label;
  const int64_t text = number % texts, pair = number / texts % attributes->pairs;
  if (label == -1 || (text > 0) != (answers > 0)) return -1;
  const int64_t row = (answers ? pair * answers + text - 1 : pair) - sums->start[0];
  return row >= 0 && row < sums->valid[0] ? row : -1;
}

ls_status LS_REFERENCE(TEXT_SUMS)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "ri>r", error));
  const ls_view *x = &args->in[0], *sums = &args->out[0];
  const int32_t *labels = ls_index_data(&args->in[1]);
  for (int64_t r = 0; r < sums->valid[0]; r++)
    ls_put_padding(ls_real_row(sums, r), 0, sums->dims[1], args->accumulate[0]);
  for (int64_t n = 0; n < x->valid[0]; n++) {
    const int64_t r = row_of(args->attributes, labels[n], sums);
    for (int64_t c = 0; r >= 0 && c < x->valid[1]; c++)
      ls_put(&ls_real_row(sums, r)[c], (double)ls_real_row(x, n)[c], true);
  }
  return LS_OK;
}

ls_status LS_REFERENCE(TEXT_SUMS_BWD)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "ri>r", error));
  const ls_view *slopes = &args->in[0], *dx = &args->out[0];
  const int32_t *labels = ls_index_data(&args->in[1]);
  for (int64_t n = 0; n < dx->valid[0]; n++) {
    const int64_t r = row_of(args->attributes, labels[n], slopes);
    LS_REAL *row = ls_real_row(dx, n);
    for (int64_t c = 0; c < slopes->valid[1]; c++)
      ls_put(&row[c], r < 0 ? 0 : (double)ls_real_row(slopes, r)[c], args->accumulate[0]);
    ls_put_padding(row, slopes->valid[1], dx->dims[1], args->accumulate[0]);
  }
  return LS_OK;
}

static double product_of(const LS_REAL *a, const LS_REAL *b, int64_t count) {
  double sum = 0;
  for (int64_t c = 0; c < count; c++) sum += (double)a[c] * (double)b[c];
  return sum;
}

ls_status LS_REFERENCE(UNIT_ROWS)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "r>rr", error));
  const ls_view *x = &args->in[0], *y = &args->out[0];
  LS_REAL *inverses = ls_real_data(&args->out[1]);
  for (int64_t n = 0; n < x->valid[0]; n++) {
    const LS_REAL *from = ls_real_row(x, n);
    const double squares = product_of(from, from, x->valid[1]);
    const double inverse = squares > 0 || isnan(squares) ? 1 / sqrt(squares) : 0;
    LS_REAL *row = ls_real_row(y, n);
    for (int64_t c = 0; c < x->valid[1]; c++)
      ls_put(&row[c], (double)from[c] * inverse, args->accumulate[0]);
    ls_put_padding(row, x->valid[1], y->dims[1], args->accumulate[0]);
    ls_put(&inverses[n], inverse, args->accumulate[1]);
  }
  return LS_OK;
}

/* dx = (dy - y (y . dy)) / length. */
ls_status LS_REFERENCE(UNIT_ROWS_BWD)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rrr>r", error));
  const ls_view *dy = &args->in[0], *y = &args->in[1], *dx = &args->out[0];
  const LS_REAL *inverses = ls_real_data(&args->in[2]);
  for (int64_t n = 0; n < dx->valid[0]; n++) {
    const LS_REAL *slope = ls_real_row(dy, n), *unit = ls_real_row(y, n);
    const double along = product_of(slope, unit, y->valid[1]), inverse = (double)inverses[n];
    LS_REAL *row = ls_real_row(dx, n);
    for (int64_t c = 0; c < y->valid[1]; c++)
      ls_put(&row[c], ((double)slope[c] - (double)unit[c] * along) * inverse, args->accumulate[0]);
    ls_put_padding(row, y->valid[1], dx->dims[1], args->accumulate[0]);
  }
  return LS_OK;
}

/* The answers among which row n's own is to be found. */
typedef struct candidates {
  int64_t own, first, end;
} candidates;

static candidates candidates_of(const ls_kernel_args *args, int64_t n) {
  const int64_t pairs = args->attributes->pairs, answers = args->attributes->texts - 1;
  const int64_t pair = args->in[0].start[0] + n, first = pair / pairs * pairs * answers;
  const ls_view *all = &args->in[2];
  return (candidates){pair * answers, first, ls_smaller(first + pairs * answers, all->valid[0])};
}

static bool is_there(const ls_kernel_args *args, const candidates *of, int64_t k) {
  return k == of->own || ls_real_data(&args->in[3])[k] != 0;
}

static double score_of(const ls_kernel_args *args, int64_t n, int64_t k) {
  return args->attributes->scale * product_of(ls_real_row(&args->in[0], n),
                                              ls_real_row(&args->in[2], k), args->in[0].valid[1]);
}

ls_status LS_REFERENCE(TEXT_MATCH)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rrrr>rrr", error));
  for (int64_t n = 0; n < args->in[0].valid[0]; n++) {
    const candidates of = candidates_of(args, n);
    const bool asks = ls_real_data(&args->in[1])[n] != 0 && of.own < of.end;
    const double own = asks ? score_of(args, n, of.own) : 0;
    double max = own, sum = 0;
    bool found = asks;
    for (int64_t k = of.first; asks && k < of.end; k++) {
      if (!is_there(args, &of, k)) continue;
      const double score = score_of(args, n, k);
      found = found && (k < of.own ? score < own : score <= own);
      if (score > max) sum *= exp(max - score), max = score;
      sum += exp(score - max);
    }
    const double made[3] = {asks ? max + log(sum) : 0, own, found};
    for (int o = 0; o < 3; o++)
      ls_put(&ls_real_data(&args->out[o])[n], made[o], args->accumulate[o]);
  }
  return LS_OK;
}

/* What the score of row n with answer k is to change by. */
static double slope_of(const ls_kernel_args *args, const candidates *of, int64_t n, int64_t k) {
  const double score = score_of(args, n, k), sum = (double)ls_real_data(&args->in[4])[n];
  return (exp(score - sum) - (k == of->own)) * args->attributes->scale *
         ls_cell_data(&args->in[5])[0];
}

ls_status LS_REFERENCE(TEXT_MATCH_BWD)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rrrrrd>rr", error));
  const ls_view *asking = &args->in[0], *all = &args->in[2];
  const int64_t columns = asking->valid[1];
  for (int o = 0; o < 2; o++)
    for (int64_t r = 0; r < args->out[o].valid[0]; r++)
      ls_put_padding(ls_real_row(&args->out[o], r), 0, args->out[o].dims[1], args->accumulate[o]);
  for (int64_t n = 0; n < asking->valid[0]; n++) {
    const candidates of = candidates_of(args, n);
    if (ls_real_data(&args->in[1])[n] == 0) continue;
    for (int64_t k = of.first; k < of.end; k++) {
      if (!is_there(args, &of, k)) continue;
      const double slope = slope_of(args, &of, n, k);
      for (int64_t c = 0; c < columns; c++) {
        ls_put(&ls_real_row(&args->out[0], n)[c], slope * (double)ls_real_row(all, k)[c], true);
        ls_put(&ls_real_row(&args->out[1], k)[c], slope * (double)ls_real_row(asking, n)[c], true);
      }
    }
  }
  return LS_OK;
}

ls_status LS_REFERENCE(TEXT_LOSS)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rrr>d", error));
  const LS_REAL *sums = ls_real_data(&args->in[0]), *own = ls_real_data(&args->in[1]);
  const LS_REAL *inverses = ls_real_data(&args->in[2]);
  double total = 0;
  for (int64_t n = 0; n < args->in[0].valid[0]; n++)
    if (inverses[n] != 0) total += (double)sums[n] - (double)own[n];
  ls_put_cell(&args->out[0], total, args->accumulate[0]);
  return LS_OK;
}

ls_status LS_REFERENCE(TEXT_FOUND)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "r>d", error));
  double total = 0;
  for (int64_t n = 0; n < args->in[0].valid[0]; n++) total += (double)ls_real_data(&args->in[0])[n];
  ls_put_cell(&args->out[0], total, args->accumulate[0]);
  return LS_OK;
}
