#include <math.h>
#include <string.h>

#include "device/reference/reference.h"

/* Adafactor (Shazeer and Stern, arXiv 1804.04235) as transformers.Adafactor has it, without first
 * moments: the second moment of a matrix is made of the means of its rows and columns, that of
 * another parameter kept whole; steps are no larger than 1 in the root mean square. */

static const double least_square = 1e-30, least_scale = 1e-3, largest_step = 1;

/* How much of the mean was there before: 1 - t^-0.8. */
static double decay_at(double step) {
  return 1 - pow(step, -0.8);
}

/* Where in the whole an element of a range lies. */
typedef struct place {
  int64_t row, column; /* column -1: padding of a row */
} place;

static place place_of(const ls_view *range, int64_t columns, int64_t i) {
  const int64_t stride = range->dims[1] > 0 ? range->dims[1] : 1, at = range->start[0] + i;
  const int64_t column = range->start[2] + at % stride;
  return (place){range->start[1] + at / stride, column < columns ? column : -1};
}

ls_status LS_REFERENCE(ADAFACTOR_SUMS)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rd>R", error));
  const int64_t columns = args->attributes->columns, rows = args->out[0].valid[0] - columns;
  const LS_REAL *gradients = ls_real_data(&args->in[0]);
  const double factor = *ls_cell_data(&args->in[1]);
  LS_REAL *sums = ls_real_data(&args->out[0]);
  memset(sums, 0, (size_t)args->out[0].valid[0] * sizeof *sums);
  for (int64_t i = 0; i < args->in[0].valid[0] && factor != 0; i++) {
    const place at = place_of(&args->in[0], columns, i);
    const double gradient = factor * (double)gradients[i];
    if (at.column < 0) continue;
    sums[at.row] = (LS_REAL)((double)sums[at.row] + gradient * gradient);
    sums[rows + at.column] = (LS_REAL)((double)sums[rows + at.column] + gradient * gradient);
  }
  return LS_OK;
}

ls_status LS_REFERENCE(ADAFACTOR_KEEP)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rdd>R", error));
  const int64_t columns = args->attributes->columns, rows = args->out[0].valid[0] - columns;
  const double decay = decay_at(*ls_cell_data(&args->in[1]));
  const LS_REAL *sums = ls_real_data(&args->in[0]);
  LS_REAL *kept = ls_real_data(&args->out[0]);
  for (int64_t i = 0; i < rows + columns && *ls_cell_data(&args->in[2]) != 0; i++) {
    const double mean = (double)sums[i] / (double)(i < rows ? columns : rows) + least_square;
    kept[i] = (LS_REAL)(decay * (double)kept[i] + (1 - decay) * mean);
  }
  return LS_OK;
}

/* Means of squares, of the rank's elements. */
static void add_squares(double *means, double weight, double direction, double master) {
  means[0] += weight * direction * direction;
  means[1] += weight * master * master;
}

ls_status LS_REFERENCE(ADAFACTOR_DIRECTION)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rdrr>Rdd", error));
  const int64_t columns = args->attributes->columns, rows = args->in[2].valid[0] - columns;
  const LS_REAL *gradients = ls_real_data(&args->in[0]), *lines = ls_real_data(&args->in[2]);
  const LS_REAL *masters = ls_real_data(&args->in[3]);
  const double factor = *ls_cell_data(&args->in[1]);
  LS_REAL *made = ls_real_data(&args->out[0]);
  double mean = 0, means[2] = {0, 0};
  for (int64_t r = 0; r < rows; r++) mean += (double)lines[r] / (double)rows;
  for (int64_t i = 0; i < args->out[0].valid[0]; i++) {
    const place at = place_of(&args->out[0], columns, i);
    made[i] = 0;
    if (at.column < 0 || factor == 0) continue;
    const double by = (double)lines[at.row] / mean * (double)lines[rows + at.column];
    made[i] = (LS_REAL)(factor * (double)gradients[i] / sqrt(by));
    add_squares(means, args->attributes->weight, (double)made[i], (double)masters[i]);
  }
  *ls_cell_data(&args->out[1]) = means[0];
  *ls_cell_data(&args->out[2]) = means[1];
  return LS_OK;
}

ls_status LS_REFERENCE(ADAFACTOR_SECOND)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rdd>R", error));
  const LS_REAL *gradients = ls_real_data(&args->in[0]);
  const double decay = decay_at(*ls_cell_data(&args->in[1])), factor = *ls_cell_data(&args->in[2]);
  LS_REAL *squares = ls_real_data(&args->out[0]);
  for (int64_t i = 0; i < args->out[0].valid[0] && factor != 0; i++) {
    const double square = pow(factor * (double)gradients[i], 2) + least_square;
    squares[i] = (LS_REAL)(decay * (double)squares[i] + (1 - decay) * square);
  }
  return LS_OK;
}

ls_status LS_REFERENCE(ADAFACTOR_DIVIDE)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rdrr>Rdd", error));
  const LS_REAL *gradients = ls_real_data(&args->in[0]), *squares = ls_real_data(&args->in[2]);
  const LS_REAL *masters = ls_real_data(&args->in[3]);
  const double factor = *ls_cell_data(&args->in[1]);
  LS_REAL *made = ls_real_data(&args->out[0]);
  double means[2] = {0, 0};
  for (int64_t i = 0; i < args->out[0].valid[0]; i++) {
    made[i] = 0;
    if (factor == 0) continue;
    made[i] = (LS_REAL)(factor * (double)gradients[i] / sqrt((double)squares[i]));
    add_squares(means, args->attributes->weight, (double)made[i], (double)masters[i]);
  }
  *ls_cell_data(&args->out[1]) = means[0];
  *ls_cell_data(&args->out[2]) = means[1];
  return LS_OK;
}

ls_status LS_REFERENCE(ADAFACTOR)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rdddd>R", error));
  const LS_REAL *made = ls_real_data(&args->in[0]);
  const double square = *ls_cell_data(&args->in[1]), weights = *ls_cell_data(&args->in[2]);
  double rate = *ls_cell_data(&args->in[3]) * args->attributes->rate;
  LS_REAL *masters = ls_real_data(&args->out[0]);
  if (args->attributes->scale > 0) rate *= fmax(least_scale, sqrt(weights));
  const double keep = 1 - rate * args->attributes->weight_decay;
  const double along = rate / fmax(1, sqrt(square) / largest_step);
  for (int64_t i = 0; i < args->out[0].valid[0] && *ls_cell_data(&args->in[4]) != 0; i++)
    masters[i] = (LS_REAL)(keep * (double)masters[i] - along * (double)made[i]);
  return LS_OK;
}
