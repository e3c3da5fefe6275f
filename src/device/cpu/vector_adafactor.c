/* Adafactor in fp32: device/reference/adafactor.c says what it computes. */
#include "device/cpu/vector_kernels.h"

static double cell(const ls_view *view) {
  return *(const double *)view->data;
}

static const float *load(const ls_view *range, int64_t at, int64_t count, float *buffer) {
  const char *from = (const char *)range->data + at * (int64_t)ls_dtype_bytes(range->dtype);
  if (range->dtype == LS_F32) return (const float *)from;
  widen(buffer, from, range->dtype, count);
  return buffer;
}

/* A rank's elements as rows of the whole; rows may begin and end amid the whole's, and have padding
 * behind them. */
typedef struct rows {
  const ls_view *range;
  int64_t stride, first, count; /* elements from row to row; the first row, and how many */
  int64_t columns;              /* of the whole */
} rows;

static rows rows_of(const ls_view *range, int64_t columns) {
  const int64_t stride = range->dims[1] > 0 ? range->dims[1] : 1;
  const int64_t first = range->start[0] / stride, end = range->start[0] + range->valid[0];
  return (rows){range, stride, first, range->valid[0] ? (end - 1) / stride - first + 1 : 0,
                columns};
}

/* Elements [at, at + count) of the range lie in this row of the whole from this column on. */
typedef struct stretch {
  int64_t at, count, row, column;
} stretch;

static stretch stretch_of(const rows *of, int64_t number) {
  const ls_view *range = of->range;
  const int64_t begin = (of->first + number) * of->stride, end = begin + of->stride;
  const int64_t from = begin > range->start[0] ? begin : range->start[0];
  const int64_t to = least(end, range->start[0] + range->valid[0]);
  const int64_t column = range->start[2] + from - begin;
  const int64_t count = least(to - from, of->columns - column);
  return (stretch){from - range->start[0], count > 0 ? count : 0,
                   range->start[1] + of->first + number, column};
}

typedef struct sums_work {
  rows of;
  float factor;
  float *rows, *columns;
} sums_work;

static void row_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const sums_work *given = work;
  for (int64_t r = begin; r < end; r++) {
    const stretch own = stretch_of(&given->of, r);
    double sum = 0;
    for (int64_t at = 0; at < own.count; at += LS_PIECE) {
      float buffer[LS_PIECE];
      const int64_t count = least(LS_PIECE, own.count - at);
      const float *gradient = load(given->of.range, own.at + at, count, buffer);
#pragma omp simd reduction(+ : sum)
      for (int64_t i = 0; i < count; i++) {
        const float g = gradient[i] * given->factor;
        sum += (double)(g * g);
      }
    }
    if (own.count > 0) given->rows[own.row] = (float)sum;
  }
}

/* Of LS_PIECE columns of the rank's rows. */
static void column_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const sums_work *given = work;
  const int64_t first = given->of.range->start[2];
  for (int64_t turn = begin; turn < end; turn++) {
    const int64_t low = first + turn * LS_PIECE, high = low + LS_PIECE;
    double sums[LS_PIECE] = {0};
    for (int64_t r = 0; r < given->of.count; r++) {
      const stretch own = stretch_of(&given->of, r);
      const int64_t from = own.column > low ? own.column : low;
      const int64_t count = least(own.column + own.count, high) - from;
      float buffer[LS_PIECE];
      if (count <= 0) continue;
      const float *gradient = load(given->of.range, own.at + from - own.column, count, buffer);
      double *target = sums + (from - low);
#pragma omp simd
      for (int64_t i = 0; i < count; i++) {
        const float g = gradient[i] * given->factor;
        target[i] += (double)(g * g);
      }
    }
    for (int64_t c = low; c < least(high, given->of.columns); c++)
      given->columns[c] = (float)sums[c - low];
  }
}

static ls_status kernel_sums(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  const ls_device_facts *facts = args->queue->facts;
  const int64_t columns = args->attributes->columns, lines = args->out[0].valid[0];
  float *sums = args->out[0].data;
  const sums_work work = {rows_of(&args->in[0], columns), (float)cell(&args->in[1]), sums,
                          sums + lines - columns};
  const int parts = ls_cpu_parts(facts, args->in[0].valid[0]);
  memset(sums, 0, (size_t)lines * sizeof *sums);
  if (work.factor == 0) return LS_OK;
  ls_host_split(facts->threads, parts, work.of.count, row_turns, &work);
  ls_host_split(facts->threads, parts, (work.of.stride + LS_PIECE - 1) / LS_PIECE, column_turns,
                &work);
  return LS_OK;
}

typedef struct direction_work {
  const ls_kernel_args *args;
  rows of;
  float factor, mean;
  const float *row, *column;
  double (*squares)[2]; /* of each part: of what is made, and of the master weights */
} direction_work;

static void add_squares(double sums[2], const float *made, const float *master, int64_t count) {
  double of_made = 0, of_masters = 0;
#pragma omp simd reduction(+ : of_made, of_masters)
  for (int64_t i = 0; i < count; i++) {
    of_made += (double)made[i] * (double)made[i];
    of_masters += (double)master[i] * (double)master[i];
  }
  sums[0] += of_made;
  sums[1] += of_masters;
}

static void direction_turns(const void *work, int part, int64_t begin, int64_t end) {
  const direction_work *given = work;
  const ls_view *made = &given->args->out[0], *master = &given->args->in[3];
  double sums[2] = {0, 0};
  for (int64_t r = begin; r < end; r++) {
    const stretch own = stretch_of(&given->of, r);
    if (own.count == 0) continue;
    const float by = given->factor / sqrtf(given->row[own.row] / given->mean);
    for (int64_t at = 0; at < own.count; at += LS_PIECE) {
      float buffer[LS_PIECE];
      const int64_t count = least(LS_PIECE, own.count - at);
      const float *gradient = load(&given->args->in[0], own.at + at, count, buffer);
      const float *column = given->column + own.column + at;
      float *target = (float *)made->data + own.at + at;
#pragma omp simd
      for (int64_t i = 0; i < count; i++) target[i] = gradient[i] * by / sqrtf(column[i]);
      add_squares(sums, target, (const float *)master->data + own.at + at, count);
    }
  }
  given->squares[part][0] = sums[0];
  given->squares[part][1] = sums[1];
}

/* Shares the turns out, and adds up the squares of all parts. */
static void share_squares(direction_work *work, int64_t turns, ls_host_turns way) {
  const ls_device_facts *facts = work->args->queue->facts;
  const ls_view *made = &work->args->out[0];
  double *of_made = work->args->out[1].data, *of_masters = work->args->out[2].data;
  const double weight = work->args->attributes->weight;
  const int parts = ls_cpu_parts(facts, made->valid[0]);
  double squares[LS_HOST_PARTS][2];
  work->squares = squares;
  *of_made = *of_masters = 0;
  memset(made->data, 0, (size_t)made->valid[0] * sizeof(float));
  if (work->factor == 0) return;
  ls_host_split(facts->threads, parts, turns, way, work);
  for (int part = 0; part < parts; part++) {
    *of_made += weight * squares[part][0];
    *of_masters += weight * squares[part][1];
  }
}

static ls_status kernel_direction(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  const int64_t columns = args->attributes->columns, count = args->in[2].valid[0] - columns;
  const float *lines = args->in[2].data;
  double mean = 0;
  for (int64_t r = 0; r < count; r++) mean += (double)lines[r] / (double)count;
  direction_work work = {.args = args,
                         .of = rows_of(&args->out[0], columns),
                         .factor = (float)cell(&args->in[1]),
                         .mean = (float)mean,
                         .row = lines,
                         .column = lines + count};
  share_squares(&work, work.of.count, direction_turns);
  return LS_OK;
}

static void divide_turns(const void *work, int part, int64_t begin, int64_t end) {
  const direction_work *given = work;
  const ls_kernel_args *args = given->args;
  const float factor = given->factor;
  double sums[2] = {0, 0};
  for (int64_t turn = begin; turn < end; turn++) {
    float buffer[LS_PIECE];
    const int64_t at = turn * LS_PIECE, count = least(LS_PIECE, args->out[0].valid[0] - at);
    const float *gradient = load(&args->in[0], at, count, buffer);
    const float *square = (const float *)args->in[2].data + at;
    float *made = (float *)args->out[0].data + at;
#pragma omp simd
    for (int64_t i = 0; i < count; i++) made[i] = gradient[i] * factor / sqrtf(square[i]);
    add_squares(sums, made, (const float *)args->in[3].data + at, count);
  }
  given->squares[part][0] = sums[0];
  given->squares[part][1] = sums[1];
}

static ls_status kernel_divide(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  direction_work work = {.args = args, .factor = (float)cell(&args->in[1])};
  share_squares(&work, (args->out[0].valid[0] + LS_PIECE - 1) / LS_PIECE, divide_turns);
  return LS_OK;
}

static void second_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const float decay = (float)(1 - pow(cell(&args->in[1]), -0.8)), rest = 1 - decay;
  const float factor = (float)cell(&args->in[2]);
  for (int64_t turn = begin; turn < end; turn++) {
    float buffer[LS_PIECE];
    const int64_t at = turn * LS_PIECE, count = least(LS_PIECE, args->out[0].valid[0] - at);
    const float *gradient = load(&args->in[0], at, count, buffer);
    float *square = (float *)args->out[0].data + at;
#pragma omp simd
    for (int64_t i = 0; i < count; i++) {
      const float g = gradient[i] * factor;
      square[i] = decay * square[i] + rest * (g * g + 1e-30f);
    }
  }
}

static void share_pieces(const ls_kernel_args *args, ls_host_turns turns, const void *work) {
  const int64_t count = args->out[0].valid[0];
  ls_host_split(args->queue->facts->threads, ls_cpu_parts(args->queue->facts, count),
                (count + LS_PIECE - 1) / LS_PIECE, turns, work);
}

static ls_status kernel_second(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  if (cell(&args->in[2]) != 0) share_pieces(args, second_turns, args);
  return LS_OK;
}

typedef struct step_work {
  const ls_kernel_args *args;
  float keep, along;
} step_work;

static void step_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const step_work by = *(const step_work *)work;
  for (int64_t turn = begin; turn < end; turn++) {
    const int64_t at = turn * LS_PIECE;
    const int64_t count = least(LS_PIECE, by.args->out[0].valid[0] - at);
    const float *made = (const float *)by.args->in[0].data + at;
    float *master = (float *)by.args->out[0].data + at;
#pragma omp simd
    for (int64_t i = 0; i < count; i++) master[i] = by.keep * master[i] - by.along * made[i];
  }
}

static ls_status kernel_step(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  double rate = cell(&args->in[3]) * args->attributes->rate;
  if (args->attributes->scale > 0) rate *= fmax(1e-3, sqrt(cell(&args->in[2])));
  const step_work work = {args, (float)(1 - rate * args->attributes->weight_decay),
                          (float)(rate / fmax(1, sqrt(cell(&args->in[1]))))};
  if (cell(&args->in[4]) != 0) share_pieces(args, step_turns, &work);
  return LS_OK;
}

void LS_VECTOR(ls_fill_adafactor)(ls_kernel_table *table) {
  table->kernel[LS_OP_ADAFACTOR_SUMS] = kernel_sums;
  table->kernel[LS_OP_ADAFACTOR_DIRECTION] = kernel_direction;
  table->kernel[LS_OP_ADAFACTOR_SECOND] = kernel_second;
  table->kernel[LS_OP_ADAFACTOR_DIVIDE] = kernel_divide;
  table->kernel[LS_OP_ADAFACTOR] = kernel_step;
}
