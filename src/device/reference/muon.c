#include <math.h>
#include <string.h>

#include "device/reference/reference.h"

/* Muon (K. Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024), as
 * torch.optim.Muon has it, in the run's own precision. */

ls_status LS_REFERENCE(MUON_MOMENTUM)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rd>RR", error));
  const LS_REAL *gradients = ls_real_data(&args->in[0]);
  LS_REAL *momenta = ls_real_data(&args->out[0]), *made = ls_real_data(&args->out[1]);
  const double factor = *ls_cell_data(&args->in[1]), momentum = args->attributes->beta1;
  for (int64_t i = 0; i < args->out[0].valid[0]; i++) {
    const double gradient = (1 - momentum) * factor * (double)gradients[i];
    made[i] = 0;
    if (factor == 0) continue;
    momenta[i] = (LS_REAL)(momentum * (double)momenta[i] + gradient);
    made[i] = (LS_REAL)(gradient + momentum * (double)momenta[i]);
  }
  return LS_OK;
}

/* to[rows, columns] = alpha from + beta left[rows, rows] from, of rows `apart` and columns `along`
 * elements apart. */
static void multiply(const LS_REAL *left, const LS_REAL *from, LS_REAL *to, double alpha,
                     int64_t rows, int64_t columns, int64_t apart, int64_t along) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < columns; j++) {
      double sum = alpha * (double)from[i * apart + j * along];
      for (int64_t k = 0; k < rows; k++)
        sum += (double)left[i * rows + k] * (double)from[k * apart + j * along];
      to[i * apart + j * along] = (LS_REAL)sum;
    }
}

/* product[rows, rows] = x x^T */
static void square(const LS_REAL *x, LS_REAL *product, int64_t rows, int64_t columns, int64_t apart,
                   int64_t along) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j <= i; j++) {
      double sum = 0;
      for (int64_t k = 0; k < columns; k++)
        sum += (double)x[i * apart + k * along] * (double)x[j * apart + k * along];
      product[i * rows + j] = product[j * rows + i] = (LS_REAL)sum;
    }
}

/* Five steps of a Newton-Schulz iteration with Jordan's coefficients: singular values go to about
 * 1. Of the smaller dimension's side; a matrix is not transposed, its strides are. It may be made
 * in its own place. */
ls_status LS_REFERENCE(ORTHOGONALISE)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "r>RRR", error));
  static const double a = 3.4445, b = -4.7750, c = 2.0315, least = 1e-7;
  enum { STEPS = 5 };
  if (args->in[0].dims[0] == 0) return LS_OK; /* another rank's */
  const int64_t n = args->in[0].dims[1], m = args->in[0].dims[0] / n;
  const bool tall = m > n;
  const int64_t rows = tall ? n : m, columns = tall ? m : n;
  const int64_t apart = tall ? 1 : n, along = tall ? n : 1;
  const LS_REAL *matrix = ls_real_data(&args->in[0]);
  LS_REAL *x = ls_real_data(&args->out[0]), *next = ls_real_data(&args->out[1]);
  LS_REAL *gram = ls_real_data(&args->out[2]), *both = gram + rows * rows;
  double squares = 0;
  for (int64_t i = 0; i < m * n; i++) squares += (double)matrix[i] * (double)matrix[i];
  const double norm = fmax(sqrt(squares), least);
  for (int64_t i = 0; i < m * n; i++) x[i] = (LS_REAL)((double)matrix[i] / norm);
  for (int s = 0; s < STEPS; s++) {
    square(x, gram, rows, columns, apart, along);
    /* b gram + c gram gram, which is symmetric as gram is */
    for (int64_t i = 0; i < rows; i++)
      for (int64_t j = 0; j < rows; j++) {
        double sum = b * (double)gram[i * rows + j];
        for (int64_t k = 0; k < rows; k++)
          sum += c * (double)gram[i * rows + k] * (double)gram[j * rows + k];
        both[i * rows + j] = (LS_REAL)sum;
      }
    multiply(both, x, next, a, rows, columns, apart, along);
    memcpy(x, next, (size_t)(m * n) * sizeof *x);
  }
  return LS_OK;
}

ls_status LS_REFERENCE(MUON)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rdd>R", error));
  const LS_REAL *steps = ls_real_data(&args->in[0]);
  LS_REAL *masters = ls_real_data(&args->out[0]);
  const double rate = *ls_cell_data(&args->in[1]) * args->attributes->rate;
  const double keep = 1 - rate * args->attributes->weight_decay;
  const double along = rate * args->attributes->scale;
  if (*ls_cell_data(&args->in[2]) == 0) return LS_OK;
  for (int64_t i = 0; i < args->out[0].valid[0]; i++)
    masters[i] = (LS_REAL)(keep * (double)masters[i] - along * (double)steps[i]);
  return LS_OK;
}
