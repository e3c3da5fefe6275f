/* The end of a step: the squared norm of gradients, AdamW, SGD.
 *
 * Parameters lie flat, in any number of dimensions: what pads them is zero and stays zero under
 * every one of these. */
#include "device/cpu/vector_kernels.h"

static double cell(const ls_view *view) {
  return *(const double *)view->data;
}

static double piece_square(const ls_view *x, int64_t row, int64_t at, int64_t count) {
  float buffer[LS_PIECE];
  const float *piece = piece_load(x, row, at, count, buffer);
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; i++) sum += (double)piece[i] * (double)piece[i];
  return sum;
}

typedef struct squares_work {
  const ls_view *x;
  double *sums; /* of each part */
} squares_work;

static void squares_turns(const void *work, int part, int64_t begin, int64_t end) {
  const squares_work *given = work;
  const int64_t columns = view_columns(given->x), pieces = view_pieces(given->x);
  double sum = 0;
  for (int64_t i = begin; i < end; i++) {
    const int64_t at = i % pieces * LS_PIECE;
    sum += piece_square(given->x, i / pieces, at, least(LS_PIECE, columns - at));
  }
  given->sums[part] = sum;
}

static ls_status kernel_squared_norm(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  const ls_view *x = &args->in[0];
  const int parts = ls_cpu_parts(args->queue->facts, view_rows(x) * view_columns(x));
  double sums[LS_HOST_PARTS];
  const squares_work work = {x, sums};
  ls_host_split(args->queue->facts->threads, parts, view_rows(x) * view_pieces(x), squares_turns,
                &work);
  double total = 0;
  for (int part = 0; part < parts; part++) total += sums[part];
  double *out = args->out[0].data;
  *out = total * args->attributes->weight + (args->accumulate[0] ? *out : 0);
  return LS_OK;
}

/* What a step of AdamW multiplies by, worked out once in double. */
typedef struct adamw {
  float factor, keep, beta1, one_minus_beta1, beta2, one_minus_beta2, rate, deviation, epsilon;
} adamw;

static adamw adamw_prepare(const ls_kernel_args *args) {
  const ls_attributes *a = args->attributes;
  const double rate = cell(&args->in[1]), step = cell(&args->in[2]);
  return (adamw){.factor = (float)cell(&args->in[3]),
                 .keep = (float)(1 - rate * a->weight_decay),
                 .beta1 = (float)a->beta1,
                 .one_minus_beta1 = (float)(1 - a->beta1),
                 .beta2 = (float)a->beta2,
                 .one_minus_beta2 = (float)(1 - a->beta2),
                 .rate = (float)(rate / (1 - pow(a->beta1, step))),
                 .deviation = (float)(1 / sqrt(1 - pow(a->beta2, step))),
                 .epsilon = (float)a->epsilon};
}

static void adamw_piece(const adamw *a, const float *gradient, float *master, float *first,
                        float *second, int64_t count) {
  const adamw s = *a;
#pragma omp simd
  for (int64_t i = 0; i < count; i++) {
    const float g = gradient[i] * s.factor;
    const float m = s.beta1 * first[i] + s.one_minus_beta1 * g;
    const float v = s.beta2 * second[i] + s.one_minus_beta2 * g * g;
    first[i] = m;
    second[i] = v;
    master[i] = s.keep * master[i] - s.rate * m / (sqrtf(v) * s.deviation + s.epsilon);
  }
}

/* Shares the pieces of the master parameters. A factor of 0 says that the gradients are not finite:
 * then nothing is updated. */
static ls_status share_pieces(const ls_kernel_args *args, ls_host_turns turns) {
  if (cell(&args->in[3]) == 0) return LS_OK;
  const ls_view *master = &args->out[0];
  const int parts = ls_cpu_parts(args->queue->facts, view_rows(master) * view_columns(master));
  ls_host_split(args->queue->facts->threads, parts, view_rows(master) * view_pieces(master), turns,
                args);
  return LS_OK;
}

static void adamw_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const adamw prepared = adamw_prepare(args);
  const ls_view *master = &args->out[0], *first = &args->out[1], *second = &args->out[2];
  const int64_t columns = view_columns(master), pieces = view_pieces(master);
  for (int64_t i = begin; i < end; i++) {
    float buffer[LS_PIECE];
    const int64_t row = i / pieces, at = i % pieces * LS_PIECE;
    const int64_t count = least(LS_PIECE, columns - at);
    const float *gradient = piece_load(&args->in[0], row, at, count, buffer);
    adamw_piece(&prepared, gradient, view_at(master, row, at), view_at(first, row, at),
                view_at(second, row, at), count);
  }
}

static ls_status kernel_adamw(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  return share_pieces(args, adamw_turns);
}

/* A copy of a piece for the update to work on. */
static float *piece_copy(const ls_view *view, int64_t row, int64_t at, int64_t count,
                         float *buffer) {
  return memcpy(buffer, view_at(view, row, at), (size_t)count * sizeof(float));
}

static void adamw_ahead_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const adamw prepared = adamw_prepare(args);
  const ls_view *weights = &args->out[0];
  const int64_t columns = view_columns(weights), pieces = view_pieces(weights);
  for (int64_t i = begin; i < end; i++) {
    float buffer[LS_PIECE], made[LS_PIECE], first[LS_PIECE], second[LS_PIECE];
    const int64_t row = i / pieces, at = i % pieces * LS_PIECE;
    const int64_t count = least(LS_PIECE, columns - at);
    const float *gradient = piece_load(&args->in[0], row, at, count, buffer);
    float *master = piece_target(weights, row, at, count, false, made);
    adamw_piece(&prepared, gradient, piece_copy(&args->in[4], row, at, count, master),
                piece_copy(&args->in[5], row, at, count, first),
                piece_copy(&args->in[6], row, at, count, second), count);
    piece_store(weights, row, at, count, false, made);
  }
}

static ls_status share_ahead(const ls_kernel_args *args, ls_host_turns turns) {
  const ls_view *weights = &args->out[0];
  const int parts = ls_cpu_parts(args->queue->facts, view_rows(weights) * view_columns(weights));
  ls_host_split(args->queue->facts->threads, parts, view_rows(weights) * view_pieces(weights),
                turns, args);
  return LS_OK;
}

static ls_status kernel_adamw_ahead(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  return share_ahead(args, adamw_ahead_turns);
}

static void sgd_piece(float factor, float keep, float momentum, float rate, const float *gradient,
                      float *master, float *velocity, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; i++) {
    const float v = momentum * velocity[i] + gradient[i] * factor;
    velocity[i] = v;
    master[i] = keep * master[i] - rate * v;
  }
}

static void sgd_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const ls_attributes *a = args->attributes;
  const double rate = cell(&args->in[1]);
  const float factor = (float)cell(&args->in[3]);
  const float keep = (float)(1 - rate * a->weight_decay);
  const ls_view *master = &args->out[0], *velocity = &args->out[1];
  const int64_t columns = view_columns(master), pieces = view_pieces(master);
  for (int64_t i = begin; i < end; i++) {
    float buffer[LS_PIECE];
    const int64_t row = i / pieces, at = i % pieces * LS_PIECE;
    const int64_t count = least(LS_PIECE, columns - at);
    const float *gradient = piece_load(&args->in[0], row, at, count, buffer);
    sgd_piece(factor, keep, (float)a->beta1, (float)rate, gradient, view_at(master, row, at),
              view_at(velocity, row, at), count);
  }
}

static ls_status kernel_sgd(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  return share_pieces(args, sgd_turns);
}

static void sgd_ahead_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const ls_attributes *a = args->attributes;
  const double rate = cell(&args->in[1]);
  const float factor = (float)cell(&args->in[3]);
  const float keep = (float)(1 - rate * a->weight_decay);
  const ls_view *weights = &args->out[0];
  const int64_t columns = view_columns(weights), pieces = view_pieces(weights);
  for (int64_t i = begin; i < end; i++) {
    float buffer[LS_PIECE], made[LS_PIECE], velocity[LS_PIECE];
    const int64_t row = i / pieces, at = i % pieces * LS_PIECE;
    const int64_t count = least(LS_PIECE, columns - at);
    const float *gradient = piece_load(&args->in[0], row, at, count, buffer);
    float *master = piece_target(weights, row, at, count, false, made);
    sgd_piece(factor, keep, (float)a->beta1, (float)rate, gradient,
              piece_copy(&args->in[4], row, at, count, master),
              piece_copy(&args->in[5], row, at, count, velocity), count);
    piece_store(weights, row, at, count, false, made);
  }
}

static ls_status kernel_sgd_ahead(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  return share_ahead(args, sgd_ahead_turns);
}

void LS_VECTOR(ls_fill_optimizer)(ls_kernel_table *table) {
  table->kernel[LS_OP_SQUARED_NORM] = kernel_squared_norm;
  table->kernel[LS_OP_ADAMW] = kernel_adamw;
  table->kernel[LS_OP_SGD] = kernel_sgd;
  table->kernel[LS_OP_ADAMW_SPECULATE] = kernel_adamw_ahead;
  table->kernel[LS_OP_SGD_SPECULATE] = kernel_sgd_ahead;
}
