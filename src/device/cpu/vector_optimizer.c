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

/* What an update multiplies by, worked out once in double. */
typedef struct update_rates {
  float factor, keep, beta1, one_minus_beta1, beta2, one_minus_beta2, rate, deviation, epsilon;
  float decay, own, share, rest; /* of schedule-free AdamW */
} update_rates;

/* `states` are the moments and the like, in the order of the op's outputs. */
typedef void piece_update(const update_rates *rates, const float *gradient, float *master,
                          float *const *states, int64_t count);

#define MOST_STATES 2

/* An update of flat parameters; `piece` does it to up to LS_PIECE of them. */
typedef struct update {
  const ls_kernel_args *args;
  update_rates rates;
  piece_update *piece;
  int states;
} update;

static update_rates rates_of(const ls_kernel_args *args) {
  const ls_attributes *a = args->attributes;
  const double rate = learning_rate(args), step = cell(&args->in[2]);
  return (update_rates){.factor = (float)cell(&args->in[3]),
                        .keep = (float)(1 - rate * a->weight_decay),
                        .beta1 = (float)a->beta1,
                        .one_minus_beta1 = (float)(1 - a->beta1),
                        .beta2 = (float)a->beta2,
                        .one_minus_beta2 = (float)(1 - a->beta2),
                        .rate = (float)rate,
                        .deviation = (float)(1 / sqrt(1 - pow(a->beta2, step))),
                        .epsilon = (float)a->epsilon};
}

static void adamw_piece(const update_rates *rates, const float *gradient, float *master,
                        float *const *states, int64_t count) {
  const update_rates s = *rates;
  float *first = states[0], *second = states[1];
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

static void sgd_piece(const update_rates *rates, const float *gradient, float *master,
                      float *const *states, int64_t count) {
  const update_rates s = *rates;
  float *velocity = states[0];
#pragma omp simd
  for (int64_t i = 0; i < count; i++) {
    const float v = s.beta1 * velocity[i] + gradient[i] * s.factor;
    velocity[i] = v;
    master[i] = s.keep * master[i] - s.rate * v;
  }
}

static void lion_piece(const update_rates *rates, const float *gradient, float *master,
                       float *const *states, int64_t count) {
  const update_rates s = *rates;
  float *momentum = states[0];
#pragma omp simd
  for (int64_t i = 0; i < count; i++) {
    const float g = gradient[i] * s.factor;
    const float mean = s.beta1 * momentum[i] + s.one_minus_beta1 * g;
    const float step = mean > 0 ? s.rate : mean < 0 ? -s.rate : 0;
    momentum[i] = s.beta2 * momentum[i] + s.one_minus_beta2 * g;
    master[i] = s.keep * master[i] - step;
  }
}

static void schedulefree_piece(const update_rates *rates, const float *gradient, float *master,
                               float *const *states, int64_t count) {
  const update_rates s = *rates;
  float *offset = states[0], *second = states[1];
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

/* How much of the mean this step's fast weights are, as the reference has it. */
static double share_of_mean(double warmup, double step) {
  if (step <= warmup) return 6 * step / ((step + 1) * (2 * step + 1));
  const double before = warmup > 0 ? (warmup + 1) * (2 * warmup + 1) / (6 * warmup) : 0;
  return 1 / (before + step - warmup);
}

static update update_of(ls_op_kind kind, const ls_kernel_args *args) {
  const ls_attributes *a = args->attributes;
  const double rate = learning_rate(args), step = cell(&args->in[2]);
  update u = {.args = args, .rates = rates_of(args), .states = 1};
  switch (kind) {
    case LS_OP_SGD: u.piece = sgd_piece; break;
    case LS_OP_LION: u.piece = lion_piece; break;
    case LS_OP_SCHEDULEFREE: {
      const double share = share_of_mean(a->warmup, step);
      u.piece = schedulefree_piece;
      u.states = 2;
      u.rates.decay = (float)(rate * a->weight_decay);
      u.rates.own = (float)(1 - a->beta1);
      u.rates.share = (float)share;
      u.rates.rest = (float)(1 - share);
      break;
    }
    default:
      u.piece = adamw_piece;
      u.states = 2;
      u.rates.rate = (float)(rate / (1 - pow(a->beta1, step)));
  }
  return u;
}

/* Updates the master parameters and states where they lie. */
static void update_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const update *u = work;
  const ls_kernel_args *args = u->args;
  const ls_view *master = &args->out[0];
  const int64_t columns = view_columns(master), pieces = view_pieces(master);
  for (int64_t i = begin; i < end; i++) {
    float buffer[LS_PIECE], *states[MOST_STATES];
    const int64_t row = i / pieces, at = i % pieces * LS_PIECE;
    const int64_t count = least(LS_PIECE, columns - at);
    const float *gradient = piece_load(&args->in[0], row, at, count, buffer);
    for (int s = 0; s < u->states; s++) states[s] = view_at(&args->out[1 + s], row, at);
    u->piece(&u->rates, gradient, view_at(master, row, at), states, count);
  }
}

/* A copy of a piece for the update to work on. */
static float *piece_copy(const ls_view *view, int64_t row, int64_t at, int64_t count,
                         float *buffer) {
  return memcpy(buffer, view_at(view, row, at), (size_t)count * sizeof(float));
}

/* Writes the weights that the update would make; master parameters and states stay. */
static void ahead_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const update *u = work;
  const ls_kernel_args *args = u->args;
  const ls_view *weights = &args->out[0];
  const int64_t columns = view_columns(weights), pieces = view_pieces(weights);
  for (int64_t i = begin; i < end; i++) {
    float buffer[LS_PIECE], made[LS_PIECE], copies[MOST_STATES][LS_PIECE], *states[MOST_STATES];
    const int64_t row = i / pieces, at = i % pieces * LS_PIECE;
    const int64_t count = least(LS_PIECE, columns - at);
    const float *gradient = piece_load(&args->in[0], row, at, count, buffer);
    float *master = piece_target(weights, row, at, count, false, made);
    for (int s = 0; s < u->states; s++)
      states[s] = piece_copy(&args->in[5 + s], row, at, count, copies[s]);
    u->piece(&u->rates, gradient, piece_copy(&args->in[4], row, at, count, master), states, count);
    piece_store(weights, row, at, count, false, made);
  }
}

static void share_pieces(const ls_kernel_args *args, ls_host_turns turns, const void *work) {
  const ls_view *flat = &args->out[0];
  const int parts = ls_cpu_parts(args->queue->facts, view_rows(flat) * view_columns(flat));
  ls_host_split(args->queue->facts->threads, parts, view_rows(flat) * view_pieces(flat), turns,
                work);
}

/* A factor of 0 says that the gradients are not finite: then nothing is updated. */
static ls_status update_run(ls_op_kind kind, const ls_kernel_args *args) {
  const update u = update_of(kind, args);
  if (cell(&args->in[3]) != 0) share_pieces(args, update_turns, &u);
  return LS_OK;
}

static ls_status ahead_run(ls_op_kind kind, const ls_kernel_args *args) {
  const update u = update_of(kind, args);
  share_pieces(args, ahead_turns, &u);
  return LS_OK;
}

static ls_status kernel_adamw(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  return update_run(LS_OP_ADAMW, args);
}

static ls_status kernel_adamw_ahead(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  return ahead_run(LS_OP_ADAMW, args);
}

static ls_status kernel_sgd(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  return update_run(LS_OP_SGD, args);
}

static ls_status kernel_sgd_ahead(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  return ahead_run(LS_OP_SGD, args);
}

static ls_status kernel_lion(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  return update_run(LS_OP_LION, args);
}

static ls_status kernel_lion_ahead(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  return ahead_run(LS_OP_LION, args);
}

static ls_status kernel_schedulefree(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  return update_run(LS_OP_SCHEDULEFREE, args);
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
  share_pieces(args, point_turns, args);
  return LS_OK;
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
