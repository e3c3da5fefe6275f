/* Launches of Muon. */
#include <math.h>

#include "device/cuda/kernels/cuda_choose.h"

enum { THREADS = 256, EACH = 8, TILE = 128 }; /* as in cuda_muon.cu */

static void add_muon(const ls_kernel_args *args, const char *name, int64_t elements,
                     const ls_cuda_muon *with, ls_cuda_launches *launches) {
  const int64_t blocks = ls_cuda_divide_up(elements, THREADS);
  if (blocks == 0) return;
  ls_cuda_add_launch(launches, name, "", ls_cuda_blocks(args->queue->facts, blocks, EACH), THREADS,
                     sizeof *with)
      ->arguments.muon = *with;
}

static ls_status expect_floats(const ls_view *a, const ls_view *b, ls_error *error) {
  LS_TRY(ls_cuda_expect(a, LS_F32, "an optimizer's state", error));
  return ls_cuda_expect(b, LS_F32, "an optimizer's matrix", error);
}

ls_status ls_cuda_choose_muon(ls_op_kind kind, const ls_kernel_args *args,
                              ls_cuda_launches *launches, ls_error *error) {
  const bool begins = kind == LS_OP_MUON_MOMENTUM;
  const ls_view *state = &args->out[0], *made = begins ? &args->out[1] : &args->in[0];
  const char *suffix;
  LS_TRY(expect_floats(state, made, error));
  LS_TRY(ls_cuda_suffix(args->in[0].dtype, &suffix, error));
  ls_cuda_muon with = {.matrix = made->data,
                       .state = state->data,
                       .elements = state->valid[0],
                       .factor = args->in[begins ? 1 : 2].data};
  if (begins) {
    with.gradient = ls_cuda_place_of(&args->in[0], false);
    with.momentum = args->attributes->beta1;
    add_muon(args, "ls_muon_momentum", with.elements, &with, launches);
    return LS_OK;
  }
  with.rate = args->in[1].data;
  with.times = args->attributes->rate;
  with.weight_decay = args->attributes->weight_decay;
  with.share = args->attributes->scale;
  add_muon(args, "ls_muon", with.elements, &with, launches);
  return LS_OK;
}

static void add_product(const ls_cuda_muon_product *with, ls_cuda_launches *launches) {
  ls_cuda_launch *launch =
      ls_cuda_add_launch(launches, "ls_muon_product", "",
                         (uint32_t)ls_cuda_divide_up(with->columns, TILE), THREADS, sizeof *with);
  launch->grid[1] = (uint32_t)ls_cuda_divide_up(with->rows, TILE);
  launch->arguments.muon_product = *with;
}

/* A step of the iteration: x x^T, a polynomial of that, and this times x. `rows` is the smaller
 * dimension; rows of x are `apart` elements from each other, columns `along`. */
static void add_step(const float *x, float *next, float *gram, int64_t m, int64_t n,
                     ls_cuda_launches *launches) {
  static const float a = 3.4445F, b = -4.7750F, c = 2.0315F; /* Jordan's */
  const bool tall = m > n;
  const int64_t rows = tall ? n : m, columns = tall ? m : n;
  const int64_t apart = tall ? 1 : n, along = tall ? n : 1;
  float *both = gram + rows * rows;
  add_product(&(ls_cuda_muon_product){.left = {x, apart, along},
                                      .right = {x, apart, along},
                                      .out = gram,
                                      .rows = rows,
                                      .columns = rows,
                                      .depth = columns,
                                      .apart = rows,
                                      .along = 1,
                                      .beta = 1},
              launches);
  add_product(&(ls_cuda_muon_product){.left = {gram, rows, 1},
                                      .right = {gram, rows, 1}, /* which is symmetric */
                                      .base = gram,
                                      .out = both,
                                      .rows = rows,
                                      .columns = rows,
                                      .depth = rows,
                                      .apart = rows,
                                      .along = 1,
                                      .alpha = b,
                                      .beta = c},
              launches);
  add_product(&(ls_cuda_muon_product){.left = {both, rows, 1},
                                      .right = {x, along, apart},
                                      .base = x,
                                      .out = next,
                                      .rows = rows,
                                      .columns = columns,
                                      .depth = rows,
                                      .apart = apart,
                                      .along = along,
                                      .alpha = a,
                                      .beta = 1},
              launches);
}

ls_status ls_cuda_choose_orthogonalise(ls_op_kind kind, const ls_kernel_args *args,
                                       ls_cuda_launches *launches, ls_error *error) {
  enum { STEPS = 5, PARTS = 512, MOST_TILES = 65535 };
  (void)kind;
  const ls_view *matrix = &args->in[0];
  for (int o = 0; o < 3; o++) LS_TRY(expect_floats(matrix, &args->out[o], error));
  const int64_t elements = matrix->dims[0]; /* or none: another rank's */
  const int64_t n = matrix->dims[1] > 0 ? matrix->dims[1] : 1, m = elements / n;
  const int64_t parts = ls_cuda_blocks(
      args->queue->facts, ls_cuda_smaller(PARTS, ls_cuda_divide_up(elements, TILE * TILE)), EACH);
  double *cell = args->workspace;
  LS_TRY(ls_cuda_expect_workspace(args, (size_t)(parts + 1) * sizeof *cell, error));
  if (elements == 0) return LS_OK;
  if (ls_cuda_divide_up(m, TILE) > MOST_TILES || ls_cuda_divide_up(n, TILE) > MOST_TILES)
    return ls_fail(error, LS_INTERNAL, "a matrix of %lld x %lld is too large for Muon",
                   (long long)m, (long long)n);
  const ls_cuda_squares squares = {
      .in = {.data = matrix->data, .stride = elements, .dtype = LS_F32},
      .parts = cell + 1,
      .rows = 1,
      .columns = elements,
      .wide = ls_cuda_is_wide(matrix) && elements % 4 == 0};
  ls_cuda_add_launch(launches, "ls_square_parts", "", (uint32_t)parts, 2 * THREADS, sizeof squares)
      ->arguments.squares = squares;
  ls_cuda_add_parts(launches, cell + 1, parts, cell, false);
  float *x = args->out[1].data, *next = args->out[0].data; /* of five the last is `next` */
  const ls_cuda_muon scale = {
      .matrix = matrix->data, .state = x, .factor = cell, .elements = elements};
  add_muon(args, "ls_muon_scale", elements, &scale, launches);
  for (int s = 0; s < STEPS; s++) {
    add_step(s % 2 ? next : x, s % 2 ? x : next, args->out[2].data, m, n, launches);
  }
  return LS_OK;
}
