/* Updates that know where their elements lie: in any cut of a parameter the same bits as of the
 * whole, the formulas, and on the CPU as the reference has them. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/codes.h"
#include "base/random.h"
#include "device/cpu/cpu.h"
#include "device/facts.h"
#include "ir/state.h"

enum { ROWS = 41, COLUMNS = 67, COUNT = ROWS * COLUMNS, BLOCKS = 2 * ((COUNT + 255) / 256) };

static const ls_attributes settings = {.beta1 = 0.9,
                                       .beta2 = 0.95,
                                       .epsilon = 1e-8,
                                       .weight_decay = 0.1,
                                       .rate = 0.5,
                                       .columns = COLUMNS};
static const double rate = 3e-3, step = 4, factor = 0.75;

static double noise(uint64_t stream, int64_t i) {
  return 2 * ls_random_uniform(11, stream, (uint64_t)i) - 1;
}

/* A parameter and its state. */
typedef struct parameter {
  double gradient[COUNT], master[COUNT], momentum[COUNT], largest[BLOCKS];
  double lines[ROWS + COLUMNS];
  uint8_t first[COUNT], second[COUNT];
} parameter;

static void draw(parameter *made) {
  for (int64_t i = 0; i < COUNT; i++) {
    made->gradient[i] = noise(1, i) * pow(10, -4 * fabs(noise(2, i / 100)));
    made->master[i] = noise(3, i);
    made->momentum[i] = noise(4, i);
    made->first[i] = (uint8_t)(128 + 127 * noise(5, i));
    made->second[i] = (uint8_t)(128 + 127 * noise(6, i));
  }
  for (int i = 0; i < ROWS + COLUMNS; i++) made->lines[i] = 1e-2 * (1.5 + noise(8, i));
  for (int b = 0; b < BLOCKS; b++) made->largest[b] = 1e-2 * (1.5 + noise(7, b));
}

/* What a rank has: elements [first, end) of rows and columns of the whole, in rows of `stride`. */
typedef struct cut {
  int64_t row, rows, column, stride, first, end;
} cut;

/* The place in the whole; -1: padding. */
static int64_t place(const cut *of, int64_t i) {
  const int64_t column = of->column + (of->first + i) % of->stride;
  return column >= COLUMNS ? -1 : (of->row + (of->first + i) / of->stride) * COLUMNS + column;
}

static ls_view range_of(const cut *of, ls_dtype dtype, void *data) {
  const int64_t count = of->end - of->first;
  return (ls_view){.data = data,
                   .dtype = dtype,
                   .ndim = 1,
                   .dims = {count, of->stride},
                   .valid = {count, of->stride},
                   .start = {of->first, of->row, of->column}};
}

static ls_view whole_of(ls_dtype dtype, void *data, int64_t rows, int64_t columns) {
  return (ls_view){.data = data,
                   .dtype = dtype,
                   .ndim = columns ? 2 : 1,
                   .dims = {rows, columns},
                   .valid = {rows, columns}};
}

static ls_view cell_of(const double *value) {
  return (ls_view){
      .data = (void *)(uintptr_t)value, .dtype = LS_F64, .ndim = 1, .dims = {1}, .valid = {1}};
}

/* The kernels of a precision, and numbers of it. */
typedef struct device {
  ls_kernel_table table;
  ls_device_facts facts;
  ls_device_queue queue;
  ls_dtype dtype, gradients;
} device;

static void call(const device *on, ls_op_kind kind, const ls_view *in, int inputs,
                 const ls_view *out, int outputs, const ls_attributes *attributes) {
  ls_error error = {0};
  ls_kernel_args args = {
      .queue = &on->queue, .attributes = attributes, .inputs = inputs, .outputs = outputs};
  memcpy(args.in, in, sizeof *in * (size_t)inputs);
  memcpy(args.out, out, sizeof *out * (size_t)outputs);
  if (on->table.kernel[kind](&args, &error) != LS_OK) fail_msg("%s", error.text);
}

/* Numbers of a rank, as the device has them. */
static void *take(const cut *of, const double *from, ls_dtype dtype) {
  const int64_t count = of->end - of->first;
  char *made = calloc((size_t)count + 1, 8);
  for (int64_t i = 0; i < count; i++) {
    const double value = place(of, i) < 0 ? 0 : from[place(of, i)];
    ls_convert(made + (size_t)i * ls_dtype_bytes(dtype), dtype, &value, LS_F64, 1);
  }
  return made;
}

static void give(const cut *of, double *to, const void *from, ls_dtype dtype) {
  for (int64_t i = 0; i < of->end - of->first; i++)
    if (place(of, i) >= 0)
      ls_convert(&to[place(of, i)], LS_F64, (const char *)from + (size_t)i * ls_dtype_bytes(dtype),
                 dtype, 1);
}

static void *whole(const double *from, int64_t count, ls_dtype dtype) {
  char *made = calloc((size_t)count, 8);
  ls_convert(made, dtype, from, LS_F64, count);
  return made;
}

static uint8_t *codes_of(const cut *of, const uint8_t *from) {
  uint8_t *made = calloc((size_t)(of->end - of->first) + 1, 1);
  for (int64_t i = 0; i < of->end - of->first; i++)
    if (place(of, i) >= 0) made[i] = from[place(of, i)];
  return made;
}

/* A step of AdamW of 8 bits by ranks that have these cuts. */
static void run_adamw8(const device *on, const cut *cuts, int count, double by, parameter *state) {
  double joined[BLOCKS] = {0};
  const parameter before = *state;
  void *largest = whole(before.largest, BLOCKS, on->dtype);
  for (int pass = 0; pass < 2; pass++)
    for (int r = 0; r < count; r++) {
      const cut *of = &cuts[r];
      void *gradient = take(of, before.gradient, on->gradients);
      void *master = take(of, before.master, on->dtype);
      uint8_t *first = codes_of(of, before.first), *second = codes_of(of, before.second);
      void *made = whole(joined, BLOCKS, on->dtype);
      const ls_view gradients = range_of(of, on->gradients, gradient);
      const ls_view firsts = range_of(of, LS_U8, first), seconds = range_of(of, LS_U8, second);
      const ls_view old = whole_of(on->dtype, largest, BLOCKS, 0);
      const ls_view new = whole_of(on->dtype, made, BLOCKS, 0);
      if (pass == 0) {
        double found[BLOCKS];
        call(on, LS_OP_ADAMW8_LARGEST, (ls_view[]){gradients, cell_of(&by), firsts, seconds, old},
             5, &new, 1, &settings);
        ls_convert(found, LS_F64, made, on->dtype, BLOCKS);
        for (int b = 0; b < BLOCKS; b++) joined[b] = fmax(joined[b], found[b]);
      } else {
        call(on, LS_OP_ADAMW8,
             (ls_view[]){gradients, cell_of(&rate), cell_of(&step), cell_of(&by), old, new}, 6,
             (ls_view[]){range_of(of, on->dtype, master), firsts, seconds}, 3, &settings);
        give(of, state->master, master, on->dtype);
        for (int64_t i = 0; i < of->end - of->first; i++)
          if (place(of, i) >= 0) {
            state->first[place(of, i)] = first[i];
            state->second[place(of, i)] = second[i];
          }
      }
      free(gradient), free(master), free(first), free(second), free(made);
    }
  void *made = whole(joined, BLOCKS, on->dtype);
  const ls_view new = whole_of(on->dtype, made, BLOCKS, 0);
  const ls_view kept = whole_of(on->dtype, largest, BLOCKS, 0);
  call(on, LS_OP_ADAMW8_KEEP, (ls_view[]){new, cell_of(&by)}, 2, &kept, 1, &settings);
  ls_convert(state->largest, LS_F64, largest, on->dtype, BLOCKS);
  free(made), free(largest);
}

static const cut one[] = {{0, ROWS, 0, COLUMNS, 0, COUNT}};
static const cut rows[] = {{0, 14, 0, COLUMNS, 0, 14 * COLUMNS},
                           {14, 14, 0, COLUMNS, 0, 14 * COLUMNS},
                           {28, 13, 0, COLUMNS, 0, 13 * COLUMNS}};
static const cut columns[] = {{0, ROWS, 0, 34, 0, ROWS * 34}, {0, ROWS, 34, 34, 0, ROWS * 34}};
static const cut flat[] = {{0, ROWS, 0, COLUMNS, 0, 1000},
                           {0, ROWS, 0, COLUMNS, 1000, 1001},
                           {0, ROWS, 0, COLUMNS, 1001, COUNT}};
static const cut both[] = {{0, ROWS, 0, 34, 0, 777},
                           {0, ROWS, 0, 34, 777, ROWS * 34},
                           {0, ROWS, 34, 34, 0, 777},
                           {0, ROWS, 34, 34, 777, ROWS * 34}};
static const struct {
  const cut *items;
  int count;
} all_cuts[] = {{one, 1}, {rows, 3}, {columns, 2}, {flat, 3}, {both, 4}};
enum { CUTS = sizeof all_cuts / sizeof *all_cuts };

static device reference(ls_dtype dtype) {
  device made = {.dtype = dtype, .gradients = dtype};
  ls_reference_kernels(&made.table, dtype);
  return made;
}

static device cpu(int threads, ls_dtype gradients) {
  device made = {.dtype = LS_F32, .gradients = gradients, .facts = *ls_cpu_facts()};
  ls_error error = {0};
  assert_int_equal(ls_cpu_kernels(&made.table, LS_F32, &error), LS_OK);
  made.facts.threads = threads;
  return made;
}

/* The formulas of docs/train.md, and the nearest number of each map. */
static void adamw8_is_the_formulas(void **state) {
  (void)state;
  parameter *found = malloc(sizeof *found), *before = malloc(sizeof *before);
  const device on = reference(LS_F64);
  draw(before);
  *found = *before;
  run_adamw8(&on, one, 1, factor, found);
  double largest[BLOCKS] = {0}, moments[2][COUNT];
  for (int64_t i = 0; i < COUNT; i++) {
    const int64_t b = i / 256, c = BLOCKS / 2 + b;
    const double g = factor * before->gradient[i];
    const double m = 0.9 * (double)ls_codes_signed[before->first[i]] * before->largest[b] + 0.1 * g;
    const double v =
        0.95 * (double)ls_codes_positive[before->second[i]] * before->largest[c] + 0.05 * g * g;
    const double p =
        before->master[i] * (1 - rate * 0.5 * 0.1) -
        rate * 0.5 / (1 - pow(0.9, step)) * m / (sqrt(v) / sqrt(1 - pow(0.95, step)) + 1e-8);
    assert_true(fabs(found->master[i] - p) < 1e-14);
    moments[0][i] = m, moments[1][i] = v;
    largest[b] = fmax(largest[b], fabs(m));
    largest[c] = fmax(largest[c], v);
  }
  for (int64_t i = 0; i < COUNT; i++)
    for (int k = 0; k < 2; k++) {
      const double most = largest[k * BLOCKS / 2 + i / 256], value = moments[k][i] / most;
      const float *map = k ? ls_codes_positive : ls_codes_signed;
      const double off = fabs((double)map[k ? found->second[i] : found->first[i]] - value);
      for (int c = 0; c < LS_CODES; c++) assert_true(off <= fabs((double)map[c] - value) + 1e-15);
      assert_true(fabs(found->largest[k * BLOCKS / 2 + i / 256] - most) <= 1e-15);
    }
  free(found), free(before);
}

static void adamw8_is_the_same_in_every_cut(void **state) {
  (void)state;
  parameter *whole_one = malloc(sizeof *whole_one), *found = malloc(sizeof *found);
  const device devices[] = {reference(LS_F64), reference(LS_F32), cpu(1, LS_F32), cpu(3, LS_F32),
                            cpu(2, LS_BF16)};
  for (size_t d = 0; d < sizeof devices / sizeof *devices; d++) {
    device on = devices[d];
    on.queue.facts = &on.facts;
    draw(whole_one);
    run_adamw8(&on, one, 1, factor, whole_one);
    for (int c = 1; c < CUTS; c++) {
      draw(found);
      run_adamw8(&on, all_cuts[c].items, all_cuts[c].count, factor, found);
      assert_memory_equal(found, whole_one, sizeof *found);
    }
    draw(whole_one);
    draw(found);
    run_adamw8(&on, rows, 3, 0, found); /* gradients that are not finite */
    for (int64_t i = 0; i < COUNT; i++)
      assert_true(fabs(found->master[i] - whole_one->master[i]) < 1e-7);
    assert_memory_equal(found->first, whole_one->first, sizeof found->first);
    for (int b = 0; b < BLOCKS; b++)
      assert_true(fabs(found->largest[b] - whole_one->largest[b]) < 1e-9);
  }
  free(found), free(whole_one);
}

/* Codes next to a middle may be another. */
static void adamw8_of_the_cpu_is_the_references(void **state) {
  (void)state;
  parameter *a = malloc(sizeof *a), *b = malloc(sizeof *b);
  device fast = cpu(2, LS_F32);
  fast.queue.facts = &fast.facts;
  const device on = reference(LS_F32);
  draw(a), draw(b);
  run_adamw8(&on, one, 1, factor, a);
  run_adamw8(&fast, one, 1, factor, b);
  int differ = 0;
  for (int64_t i = 0; i < COUNT; i++) {
    assert_true(fabs(a->master[i] - b->master[i]) < 1e-6);
    assert_true(abs(a->first[i] - b->first[i]) <= 1 && abs(a->second[i] - b->second[i]) <= 1);
    differ += a->first[i] != b->first[i] || a->second[i] != b->second[i];
  }
  assert_true(differ < COUNT / 500);
  free(a), free(b);
}

/* All elements of a matrix, as its owner has them. */
static ls_view owned_of(ls_dtype dtype, void *data, int64_t m, int64_t n) {
  return (ls_view){
      .data = data, .dtype = dtype, .ndim = 1, .dims = {m * n, n}, .valid = {m * n, n}};
}

/* Muon's step by ranks that have these cuts, of a matrix that one of them owns. */
static void run_muon(const device *on, const cut *cuts, int count, double by, double share,
                     parameter *state) {
  static double joined[COUNT];
  ls_attributes own = settings;
  own.scale = share;
  memset(joined, 0, sizeof joined);
  const parameter before = *state;
  for (int r = 0; r < count; r++) {
    void *gradient = take(&cuts[r], before.gradient, on->gradients);
    void *momentum = take(&cuts[r], before.momentum, on->dtype);
    void *made = take(&cuts[r], before.master, on->dtype); /* which is written over */
    call(on, LS_OP_MUON_MOMENTUM,
         (ls_view[]){range_of(&cuts[r], on->gradients, gradient), cell_of(&by)}, 2,
         (ls_view[]){range_of(&cuts[r], on->dtype, momentum), range_of(&cuts[r], on->dtype, made)},
         2, &own);
    give(&cuts[r], joined, made, on->dtype);
    give(&cuts[r], state->momentum, momentum, on->dtype);
    free(gradient), free(momentum), free(made);
  }
  void *matrix = whole(joined, COUNT, on->dtype);
  void *room = calloc(COUNT, 8), *squares = calloc(2 * ROWS * ROWS, 8);
  const ls_view owned = owned_of(on->dtype, matrix, ROWS, COLUMNS);
  call(on, LS_OP_ORTHOGONALISE, &owned, 1,
       (ls_view[]){owned, whole_of(on->dtype, room, ROWS, COLUMNS),
                   whole_of(on->dtype, squares, 2 * ROWS, ROWS)},
       3, &own);
  ls_convert(joined, LS_F64, matrix, on->dtype, COUNT);
  for (int r = 0; r < count; r++) {
    void *master = take(&cuts[r], before.master, on->dtype);
    void *made = take(&cuts[r], joined, on->dtype);
    const ls_view masters = range_of(&cuts[r], on->dtype, master);
    call(on, LS_OP_MUON,
         (ls_view[]){range_of(&cuts[r], on->dtype, made), cell_of(&rate), cell_of(&by)}, 3,
         &masters, 1, &own);
    give(&cuts[r], state->master, master, on->dtype);
    free(master), free(made);
  }
  free(matrix), free(room), free(squares);
}

static void muon_is_the_same_in_every_cut(void **state) {
  (void)state;
  parameter *whole_one = malloc(sizeof *whole_one), *found = malloc(sizeof *found);
  const device devices[] = {reference(LS_F64), cpu(1, LS_F32), cpu(3, LS_F32), cpu(2, LS_BF16)};
  for (size_t d = 0; d < sizeof devices / sizeof *devices; d++) {
    device on = devices[d];
    on.queue.facts = &on.facts;
    draw(whole_one);
    run_muon(&on, one, 1, factor, 1, whole_one);
    for (int c = 1; c < CUTS; c++) {
      draw(found);
      run_muon(&on, all_cuts[c].items, all_cuts[c].count, factor, 1, found);
      assert_memory_equal(found, whole_one, sizeof *found);
    }
    draw(found), draw(whole_one);
    run_muon(&on, both, 4, 0, 1, found);
    for (int64_t i = 0; i < COUNT; i++)
      assert_true(fabs(found->master[i] - whole_one->master[i]) < 1e-7 &&
                  fabs(found->momentum[i] - whole_one->momentum[i]) < 1e-7);
  }
  free(found), free(whole_one);
}

static void muon_of_the_cpu_is_the_references(void **state) {
  (void)state;
  parameter *a = malloc(sizeof *a), *b = malloc(sizeof *b);
  device fast = cpu(2, LS_F32);
  fast.queue.facts = &fast.facts;
  const device on = reference(LS_F64);
  draw(a), draw(b);
  run_muon(&on, one, 1, factor, 1.5, a);
  run_muon(&fast, one, 1, factor, 1.5, b);
  for (int64_t i = 0; i < COUNT; i++) assert_true(fabs(a->master[i] - b->master[i]) < 3e-6);
  free(a), free(b);
}

/* Adafactor's step by ranks that have these cuts; `momentum` is its second moment where it is not
 * factored. */
static void run_adafactor(const device *on, const cut *cuts, int count, double by, bool factored,
                          parameter *state) {
  enum { LINES = ROWS + COLUMNS };
  double joined[LINES] = {0}, numbers[2] = {0, 0}, own[2];
  const parameter before = *state;
  ls_attributes settled = settings;
  settled.scale = 1;
  settled.weight = 1.0 / COUNT;
  void *gradient[4], *second[4], *master[4], *made[4],
      *lines = whole(before.lines, LINES, on->dtype);
  const ls_view means = whole_of(on->dtype, lines, LINES, 0);
  for (int r = 0; r < count; r++) {
    gradient[r] = take(&cuts[r], before.gradient, on->gradients);
    second[r] = take(&cuts[r], before.momentum, on->dtype);
    master[r] = take(&cuts[r], before.master, on->dtype);
    made[r] = take(&cuts[r], before.gradient, on->dtype);
    const ls_view gradients = range_of(&cuts[r], on->gradients, gradient[r]);
    const ls_view seconds = range_of(&cuts[r], on->dtype, second[r]);
    if (!factored) {
      call(on, LS_OP_ADAFACTOR_SECOND, (ls_view[]){gradients, cell_of(&step), cell_of(&by)}, 3,
           &seconds, 1, &settled);
      continue;
    }
    double found[LINES];
    void *sums = calloc(LINES, 8);
    const ls_view sum = whole_of(on->dtype, sums, LINES, 0);
    call(on, LS_OP_ADAFACTOR_SUMS, (ls_view[]){gradients, cell_of(&by)}, 2, &sum, 1, &settled);
    ls_convert(found, LS_F64, sums, on->dtype, LINES);
    for (int i = 0; i < LINES; i++) joined[i] += found[i];
    free(sums);
  }
  void *all = whole(joined, LINES, on->dtype);
  const ls_view sums = whole_of(on->dtype, all, LINES, 0);
  if (factored)
    call(on, LS_OP_ADAFACTOR_KEEP, (ls_view[]){sums, cell_of(&step), cell_of(&by)}, 3, &means, 1,
         &settled);
  for (int r = 0; r < count; r++) {
    const ls_view by_which = factored ? means : range_of(&cuts[r], on->dtype, second[r]);
    call(on, factored ? LS_OP_ADAFACTOR_DIRECTION : LS_OP_ADAFACTOR_DIVIDE,
         (ls_view[]){range_of(&cuts[r], on->gradients, gradient[r]), cell_of(&by), by_which,
                     range_of(&cuts[r], on->dtype, master[r])},
         4, (ls_view[]){range_of(&cuts[r], on->dtype, made[r]), cell_of(&own[0]), cell_of(&own[1])},
         3, &settled);
    for (int i = 0; i < 2; i++) numbers[i] += own[i];
  }
  for (int r = 0; r < count; r++) {
    const ls_view masters = range_of(&cuts[r], on->dtype, master[r]);
    call(on, LS_OP_ADAFACTOR,
         (ls_view[]){range_of(&cuts[r], on->dtype, made[r]), cell_of(&numbers[0]),
                     cell_of(&numbers[1]), cell_of(&rate), cell_of(&by)},
         5, &masters, 1, &settled);
    give(&cuts[r], state->master, master[r], on->dtype);
    give(&cuts[r], state->momentum, second[r], on->dtype);
    free(gradient[r]), free(second[r]), free(master[r]), free(made[r]);
  }
  ls_convert(state->lines, LS_F64, lines, on->dtype, LINES);
  free(lines), free(all);
}

/* Second moments are not below zero. */
static void draw_squares(parameter *made) {
  draw(made);
  for (int64_t i = 0; i < COUNT; i++) made->momentum[i] *= made->momentum[i];
}

static void expect_alike(const parameter *a, const parameter *b, double tolerance) {
  for (int64_t i = 0; i < COUNT; i++) {
    assert_true(fabs(a->master[i] - b->master[i]) <= tolerance);
    assert_true(fabs(a->momentum[i] - b->momentum[i]) <= tolerance);
  }
  for (int i = 0; i < ROWS + COLUMNS; i++)
    assert_true(fabs(a->lines[i] - b->lines[i]) <= tolerance);
}

/* Sums of parts are rounded otherwise than those of the whole. */
static void adafactor_is_the_same_in_every_cut(void **state) {
  (void)state;
  parameter *whole_one = malloc(sizeof *whole_one), *found = malloc(sizeof *found);
  const device devices[] = {reference(LS_F64), reference(LS_F32), cpu(1, LS_F32), cpu(3, LS_F32),
                            cpu(2, LS_BF16)};
  for (size_t d = 0; d < sizeof devices / sizeof *devices; d++)
    for (int factored = 0; factored < 2; factored++) {
      device on = devices[d];
      on.queue.facts = &on.facts;
      draw_squares(whole_one);
      run_adafactor(&on, one, 1, factor, factored, whole_one);
      for (int c = 1; c < CUTS; c++) {
        draw_squares(found);
        run_adafactor(&on, all_cuts[c].items, all_cuts[c].count, factor, factored, found);
        expect_alike(found, whole_one, on.dtype == LS_F64 ? 1e-15 : 1e-6);
      }
      draw_squares(found), draw_squares(whole_one);
      for (int64_t i = 0; i < COUNT; i++) found->gradient[i] = NAN;
      run_adafactor(&on, both, 4, 0, factored, found);
      expect_alike(found, whole_one, 1e-7);
    }
  free(found), free(whole_one);
}

static void adafactor_of_the_cpu_is_the_references(void **state) {
  (void)state;
  parameter *a = malloc(sizeof *a), *b = malloc(sizeof *b);
  device fast = cpu(2, LS_F32);
  fast.queue.facts = &fast.facts;
  const device on = reference(LS_F64);
  for (int factored = 0; factored < 2; factored++) {
    draw_squares(a), draw_squares(b);
    run_adafactor(&on, one, 1, factor, factored, a);
    run_adafactor(&fast, one, 1, factor, factored, b);
    expect_alike(a, b, 1e-6);
  }
  free(a), free(b);
}

/* Of a matrix with one number in each row, singular values are these: each goes the way of the
 * polynomial, and directions stay. In both shapes, in its own place; and none of another rank's. */
static void orthogonalise(int64_t m, int64_t n) {
  const device on = reference(LS_F64);
  const int64_t least = m < n ? m : n;
  double *x = calloc((size_t)(m * n), 8), *made = calloc((size_t)(m * n), 8);
  double *room = calloc((size_t)(m * n), 8), *squares = calloc((size_t)(2 * least * least), 8);
  double norm = 0;
  for (int64_t i = 0; i < least; i++) {
    x[i * n + (i * 5 + 2) % least] = made[i * n + (i * 5 + 2) % least] = 1 + (double)i;
    norm += (1 + (double)i) * (1 + (double)i);
  }
  ls_view owned = owned_of(LS_F64, made, m, n);
  const ls_view rooms[2] = {whole_of(LS_F64, room, m, n),
                            whole_of(LS_F64, squares, 2 * least, least)};
  owned.dims[0] = owned.valid[0] = 0;
  call(&on, LS_OP_ORTHOGONALISE, &owned, 1, (ls_view[]){owned, rooms[0], rooms[1]}, 3, &settings);
  assert_memory_equal(made, x, (size_t)(m * n) * 8);
  owned = owned_of(LS_F64, made, m, n);
  call(&on, LS_OP_ORTHOGONALISE, &owned, 1, (ls_view[]){owned, rooms[0], rooms[1]}, 3, &settings);
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++) {
      double s = x[i * n + j] / sqrt(norm);
      for (int k = 0; k < 5; k++) s = 3.4445 * s - 4.7750 * s * s * s + 2.0315 * pow(s, 5);
      assert_true(fabs(made[i * n + j] - s) < 1e-12);
    }
  free(x), free(made), free(room), free(squares);
}

static void singular_values_go_the_polynomials_way(void **state) {
  (void)state;
  orthogonalise(7, 7);
  orthogonalise(7, 12);
  orthogonalise(12, 7);
  orthogonalise(1, 9);
}

/* Of the rate a matrix gets torch's share, or Moonshot's. */
static void shares_of_the_rate_are_by_shape(void **state) {
  (void)state;
  const ls_optimizer original = {.kind = LS_OPTIMIZER_MUON};
  const ls_optimizer matching = {.kind = LS_OPTIMIZER_MUON, .matrix_scale = 0.2};
  const ls_update_node *node = &ls_optimizer_row_of(&original)->node[2];
  static const struct {
    int64_t dims[2];
    double original, matching;
  } shapes[] = {{{7, 7}, 1, 0.5291502622129182},
                {{7, 12}, 1, 0.6928203230275509},
                {{12, 3}, 2, 0.6928203230275509}};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    const ls_parameter_record record = {
        .about = {.ndim = 2, .dims = {shapes[i].dims[0], shapes[i].dims[1]}}};
    assert_true(fabs(ls_optimizer_attributes(&original, node, &record).scale - shapes[i].original) <
                1e-15);
    assert_true(fabs(ls_optimizer_attributes(&matching, node, &record).scale - shapes[i].matching) <
                1e-15);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(adamw8_is_the_formulas),
      cmocka_unit_test(adamw8_is_the_same_in_every_cut),
      cmocka_unit_test(adamw8_of_the_cpu_is_the_references),
      cmocka_unit_test(muon_is_the_same_in_every_cut),
      cmocka_unit_test(muon_of_the_cpu_is_the_references),
      cmocka_unit_test(adafactor_is_the_same_in_every_cut),
      cmocka_unit_test(adafactor_of_the_cpu_is_the_references),
      cmocka_unit_test(singular_values_go_the_polynomials_way),
      cmocka_unit_test(shares_of_the_rate_are_by_shape),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
