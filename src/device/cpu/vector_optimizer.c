/* The end of a step: the squared norm of gradients, AdamW, SGD, Lion, schedule-free AdamW.
 *
 * Parameters lie flat, in any number of dimensions: what pads them is zero and stays zero under
 * every one of these. */
#include "device/cpu/vector_kernels.h"

static double cell(const ls_view *view) {
  return *(const double *)view->data;
}

static double learning_rate(const ls_kernel_args *args) {
  return cell(&args->in[1]) * args->attributes->rate;
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
  const double rate = learning_rate(args), step = cell(&args->in[2]);
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

/* What a step with one moment multiplies by. */
typedef struct moment_rates {
  float factor, keep, beta1, one_minus_beta1, beta2, one_minus_beta2, rate;
} moment_rates;

typedef void moment_piece(const moment_rates *rates, const float *gradient, float *master,
                          float *moment, int64_t count);

static moment_rates moment_prepare(const ls_kernel_args *args) {
  const ls_attributes *a = args->attributes;
  const double rate = learning_rate(args);
  return (moment_rates){.factor = (float)cell(&args->in[3]),
                        .keep = (float)(1 - rate * a->weight_decay),
                        .beta1 = (float)a->beta1,
                        .one_minus_beta1 = (float)(1 - a->beta1),
                        .beta2 = (float)a->beta2,
                        .one_minus_beta2 = (float)(1 - a->beta2),
                        .rate = (float)rate};
}

static void sgd_piece(const moment_rates *rates, const float *gradient, float *master,
                      float *velocity, int64_t count) {
  const moment_rates s = *rates;
#pragma omp simd
  for (int64_t i = 0; i < count; i++) {
    const float v = s.beta1 * velocity[i] + gradient[i] * s.factor;
    velocity[i] = v;
    master[i] = s.keep * master[i] - s.rate * v;
  }
}

static void lion_piece(const moment_rates *rates, const float *gradient, float *master,
                       float *momentum, int64_t count) {
  const moment_rates s = *rates;
#pragma omp simd
  for (int64_t i = 0; i < count; i++) {
    const float g = gradient[i] * s.factor;
    const float mean = s.beta1 * momentum[i] + s.one_minus_beta1 * g;
    const float step = mean > 0 ? s.rate : mean < 0 ? -s.rate : 0;
    momentum[i] = s.beta2 * momentum[i] + s.one_minus_beta2 * g;
    master[i] = s.keep * master[i] - step;
  }
}

static void moment_turns(const ls_kernel_args *args, moment_piece *piece, int64_t begin,
                         int64_t end) {
  const moment_rates prepared = moment_prepare(args);
  const ls_view *master = &args->out[0], *moment = &args->out[1];
  const int64_t columns = view_columns(master), pieces = view_pieces(master);
  for (int64_t i = begin; i < end; i++) {
    float buffer[LS_PIECE];
    const int64_t row = i / pieces, at = i % pieces * LS_PIECE;
    const int64_t count = least(LS_PIECE, columns - at);
    const float *gradient = piece_load(&args->in[0], row, at, count, buffer);
    piece(&prepared, gradient, view_at(master, row, at), view_at(moment, row, at), count);
  }
}

static void moment_ahead_turns(const ls_kernel_args *args, moment_piece *piece, int64_t begin,
                               int64_t end) {
  const moment_rates prepared = moment_prepare(args);
  const ls_view *weights = &args->out[0];
  const int64_t columns = view_columns(weights), pieces = view_pieces(weights);
  for (int64_t i = begin; i < end; i++) {
    float buffer[LS_PIECE], made[LS_PIECE], moment[LS_PIECE];
    const int64_t row = i / pieces, at = i % pieces * LS_PIECE;
    const int64_t count = least(LS_PIECE, columns - at);
    const float *gradient = piece_load(&args->in[0], row, at, count, buffer);
    float *master = piece_target(weights, row, at, count, false, made);
    piece(&prepared, gradient, piece_copy(&args->in[4], row, at, count, master),
          piece_copy(&args->in[5], row, at, count, moment), count);
    piece_store(weights, row, at, count, false, made);
  }
}

static void sgd_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  moment_turns(work, sgd_piece, begin, end);
}

static void sgd_ahead_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  moment_ahead_turns(work, sgd_piece, begin, end);
}

static ls_status kernel_sgd(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  return share_pieces(args, sgd_turns);
}

static ls_status kernel_sgd_ahead(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  return share_ahead(args, sgd_ahead_turns);
}

static void lion_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  moment_turns(work, lion_piece, begin, end);
}

static void lion_ahead_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  moment_ahead_turns(work, lion_piece, begin, end);
}

static ls_status kernel_lion(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  return share_pieces(args, lion_turns);
}

static ls_status kernel_lion_ahead(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  return share_ahead(args, lion_ahead_turns);
}

/* What a step of schedule-free AdamW multiplies by. */
typedef struct schedulefree {
  float factor, beta2, one_minus_beta2, rate, deviation, epsilon, decay, own, share, rest;
} schedulefree;

/* How much of the mean this step's fast weights are, as the reference has it. */
static double share_of_mean(double warmup, double step) {
  if (step <= warmup) return 6 * step / ((step + 1) * (2 * step + 1));
  const double before = warmup > 0 ? (warmup + 1) * (2 * warmup + 1) / (6 * warmup) : 0;
  return 1 / (before + step - warmup);
}

static schedulefree schedulefree_prepare(const ls_kernel_args *args) {
  const ls_attributes *a = args->attributes;
  const double rate = learning_rate(args), step = cell(&args->in[2]);
  const double share = share_of_mean(a->warmup, step);
  return (schedulefree){.factor = (float)cell(&args->in[3]),
                        .beta2 = (float)a->beta2,
                        .one_minus_beta2 = (float)(1 - a->beta2),
                        .rate = (float)rate,
                        .deviation = (float)(1 / sqrt(1 - pow(a->beta2, step))),
                        .epsilon = (float)a->epsilon,
                        .decay = (float)(rate * a->weight_decay),
                        .own = (float)(1 - a->beta1),
                        .share = (float)share,
                        .rest = (float)(1 - share)};
}

static void schedulefree_piece(const schedulefree *by, const float *gradient, float *master,
                               float *offset, float *second, int64_t count) {
  const schedulefree s = *by;
#pragma omp simd
  for (int64_t i = 0; i < count; i++) {
    const float g = gradient[i] * s.factor;
    const float v = s.beta2 * second[i] + s.one_minus_beta2 * g * g;
    const float point = master[i] + s.own * offset[i];
    const float fast =
        offset[i] - s.rate * g / (sqrtf(v) * s.deviation + s.epsilon) - s.decay * point;
    second[i] = v;
    master[i] += s.share * fast;
    offset[i] = s.rest * fast;
  }
}

static void schedulefree_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const schedulefree prepared = schedulefree_prepare(args);
  const ls_view *master = &args->out[0], *offset = &args->out[1], *second = &args->out[2];
  const int64_t columns = view_columns(master), pieces = view_pieces(master);
  for (int64_t i = begin; i < end; i++) {
    float buffer[LS_PIECE];
    const int64_t row = i / pieces, at = i % pieces * LS_PIECE;
    const int64_t count = least(LS_PIECE, columns - at);
    const float *gradient = piece_load(&args->in[0], row, at, count, buffer);
    schedulefree_piece(&prepared, gradient, view_at(master, row, at), view_at(offset, row, at),
                       view_at(second, row, at), count);
  }
}

static ls_status kernel_schedulefree(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  return share_pieces(args, schedulefree_turns);
}

static void point_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const float own = (float)(1 - args->attributes->beta1);
  const ls_view *weights = &args->out[0];
  const int64_t columns = view_columns(weights), pieces = view_pieces(weights);
  for (int64_t i = begin; i < end; i++) {
    float made[LS_PIECE];
    const int64_t row = i / pieces, at = i % pieces * LS_PIECE;
    const int64_t count = least(LS_PIECE, columns - at);
    const float *master = view_at(&args->in[0], row, at);
    const float *offset = view_at(&args->in[1], row, at);
    float *point = piece_target(weights, row, at, count, false, made);
#pragma omp simd
    for (int64_t c = 0; c < count; c++) point[c] = master[c] + own * offset[c];
    piece_store(weights, row, at, count, false, made);
  }
}

static ls_status kernel_point(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  return share_ahead(args, point_turns);
}

void LS_VECTOR(ls_fill_optimizer)(ls_kernel_table *table) {
  table->kernel[LS_OP_SQUARED_NORM] = kernel_squared_norm;
  table->kernel[LS_OP_ADAMW] = kernel_adamw;
  table->kernel[LS_OP_SGD] = kernel_sgd;
  table->kernel[LS_OP_LION] = kernel_lion;
  table->kernel[LS_OP_ADAMW_SPECULATE] = kernel_adamw_ahead;
  table->kernel[LS_OP_SGD_SPECULATE] = kernel_sgd_ahead;
  table->kernel[LS_OP_LION_SPECULATE] = kernel_lion_ahead;
  table->kernel[LS_OP_SCHEDULEFREE] = kernel_schedulefree;
  table->kernel[LS_OP_SCHEDULEFREE_POINT] = kernel_point;
}
