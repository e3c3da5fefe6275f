/* The CPU device's table as a whole: which kernels it has, what ranks that compute at once get,
 * what becomes of NaNs, and how loops are shared. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include <cmocka.h>

#include "base/random.h"
#include "device/cpu/cpu.h"

/* The thread sanitizer does not know how OpenMP's threads wait for each other. */
#if defined(__SANITIZE_THREAD__)
enum { MOST_THREADS = 1 };
#else
enum { MOST_THREADS = 2 };
#endif

static float normal(int stream, int index) {
  return (float)ls_random_normal(30, (uint64_t)stream, (uint64_t)index);
}

static float *floats_of(size_t count) {
  float *data = calloc(count, sizeof(float));
  assert_non_null(data);
  return data;
}

/* One rank of test_ranks: its own copy of the same work. */
typedef struct rank_work {
  const ls_kernel_table *table;
  ls_attributes attributes;
  ls_device_facts facts;
  float *q, *weight, *y, *o, *lse, *gradients;
  ls_status status;
} rank_work;

enum { RANK_ROWS = 130, RANK_COLUMNS = 192, RANKS = 3 };

static void rank_allocate(rank_work *work, const rank_work *like) {
  enum { COUNT = RANK_ROWS * RANK_COLUMNS };
  float **const arrays[] = {&work->q, &work->weight, &work->y, &work->o, &work->gradients};
  for (int i = 0; i < 5; i++) {
    *arrays[i] = floats_of(3 * COUNT);
    for (int j = 0; j < COUNT; j++) (*arrays[i])[j] = like ? 0 : normal(i, j);
  }
  work->lse = floats_of(3 * RANK_ROWS);
  if (!like) return;
  memcpy(work->q, like->q, COUNT * sizeof(float));
  memcpy(work->weight, like->weight, COUNT * sizeof(float));
}

static void rank_free(rank_work *work) {
  free(work->q), free(work->weight), free(work->y), free(work->o);
  free(work->lse), free(work->gradients);
}

static const ls_device_queue *one_thread(void) {
  static ls_device_queue queue;
  queue.facts = ls_cpu_facts();
  return &queue;
}

static ls_view plain_view(float *data, int64_t rows, int64_t columns) {
  return (ls_view){.data = data, .ndim = 2, .dims = {rows, columns}, .valid = {rows, columns}};
}

/* A product, attention on its result, and attention's gradients. */
static void *rank_run(void *data) {
  rank_work *work = data;
  ls_error error = {0};
  const ls_view q = plain_view(work->q, RANK_ROWS, RANK_COLUMNS);
  const ls_view y = plain_view(work->y, RANK_ROWS, RANK_ROWS);
  const ls_view o = plain_view(work->o, RANK_ROWS, RANK_COLUMNS);
  const ls_view lse = plain_view(work->lse, RANK_ROWS, 3);
  const ls_device_queue queue = {.facts = &work->facts};
  ls_kernel_args linear = {.queue = &queue, .inputs = 2, .outputs = 1};
  linear.in[0] = q, linear.in[1] = plain_view(work->weight, RANK_ROWS, RANK_COLUMNS);
  linear.out[0] = y;
  work->status = work->table->kernel[LS_OP_LINEAR](&linear, &error);
  ls_kernel_args forward = {.queue = &queue, .attributes = &work->attributes};
  forward.inputs = 3, forward.outputs = 2;
  forward.in[0] = forward.in[1] = q, forward.in[2] = linear.in[1];
  forward.out[0] = o, forward.out[1] = lse;
  if (!work->status) work->status = work->table->kernel[LS_OP_ATTENTION](&forward, &error);
  ls_kernel_args backward = {.queue = &queue, .attributes = &work->attributes};
  backward.inputs = 6, backward.outputs = 3;
  backward.in[0] = linear.in[1], backward.in[1] = backward.in[2] = q;
  backward.in[3] = linear.in[1], backward.in[4] = o, backward.in[5] = lse;
  for (int i = 0; i < 3; i++) {
    backward.out[i] = o;
    backward.out[i].data = work->gradients + i * RANK_ROWS * RANK_COLUMNS;
  }
  if (!work->status) work->status = work->table->kernel[LS_OP_ATTENTION_BWD](&backward, &error);
  return NULL;
}

/* Ranks that are threads compute at once, and their bits are those of one alone. */
static void test_ranks(void **state) {
  (void)state;
  ls_kernel_table table;
  ls_error error = {0};
  assert_int_equal(ls_cpu_kernels(&table, LS_F32, &error), LS_OK);
  rank_work work[RANKS + 1] = {0};
  for (int threads = 1; threads <= MOST_THREADS; threads++) {
    pthread_t ranks[RANKS];
    for (int i = 0; i <= RANKS; i++) {
      work[i].table = &table;
      work[i].facts = *ls_cpu_facts();
      work[i].facts.threads = threads;
      work[i].attributes = (ls_attributes){.sequence = 65, .head_dim = 64, .softmax_scale = 0.125};
      rank_allocate(&work[i], i ? &work[0] : NULL);
    }
    rank_run(&work[0]);
    for (int i = 0; i < RANKS; i++) {
      assert_int_equal(pthread_create(&ranks[i], NULL, rank_run, &work[i + 1]), 0);
    }
    for (int i = 0; i < RANKS; i++) pthread_join(ranks[i], NULL);
    for (int i = 0; i <= RANKS; i++) {
      const size_t bytes = RANK_ROWS * RANK_COLUMNS * sizeof(float);
      assert_int_equal(work[i].status, LS_OK);
      assert_memory_equal(work[i].y, work[0].y, RANK_ROWS * RANK_ROWS * sizeof(float));
      assert_memory_equal(work[i].o, work[0].o, bytes);
      assert_memory_equal(work[i].gradients, work[0].gradients, 3 * bytes);
      if (i) rank_free(&work[i]);
    }
    rank_free(&work[0]);
  }
}

/* Not a number goes on to where it is looked for: the loss. */
static void test_nan(void **state) {
  (void)state;
  static const ls_op_kind kinds[] = {LS_OP_GELU,      LS_OP_XENT_MAX, LS_OP_RMSNORM,
                                     LS_OP_ATTENTION, LS_OP_SWIGLU,   LS_OP_SOFTCAP};
  ls_kernel_table table;
  ls_error error = {0};
  assert_int_equal(ls_cpu_kernels(&table, LS_F32, &error), LS_OK);
  for (int i = 0; i < 6; i++) {
    float x[40], y[40] = {0}, z[40] = {0};
    for (int j = 0; j < 40; j++) x[j] = j == 23 ? NAN : normal(i, j);
    const ls_attributes attributes = {.sequence = 1,
                                      .head_dim = 40,
                                      .softmax_scale = 1,
                                      .softcap = 30,
                                      .activation = LS_GELU_TANH};
    const ls_view row = plain_view(x, 1, 40);
    ls_kernel_args args = {
        .queue = one_thread(), .attributes = &attributes, .inputs = 3, .outputs = 2};
    for (int j = 0; j < 3; j++) args.in[j] = row;
    args.out[0] = plain_view(y, 1, 40), args.out[1] = plain_view(z, 1, 40);
    if (kinds[i] == LS_OP_GELU || kinds[i] == LS_OP_XENT_MAX || kinds[i] == LS_OP_SOFTCAP)
      args.inputs = args.outputs = 1;
    if (kinds[i] == LS_OP_SWIGLU) args.inputs = 2, args.outputs = 1;
    assert_int_equal(table.kernel[kinds[i]](&args, &error), LS_OK);
    assert_true(isnan(y[kinds[i] == LS_OP_XENT_MAX ? 0 : 23]));
  }
}

/* Also where bf16 is rounded and joined on the way. */
static void test_nan_bf16(void **state) {
  (void)state;
  enum { COLUMNS = 40, ROWS = 3 };
  ls_kernel_table table;
  ls_error error = {0};
  assert_int_equal(ls_cpu_kernels(&table, LS_BF16, &error), LS_OK);
  uint16_t x[ROWS * COLUMNS], y[ROWS * COLUMNS] = {0};
  float sums[ROWS] = {0}, wide[ROWS * COLUMNS];
  for (int i = 0; i < ROWS * COLUMNS; i++) wide[i] = i == COLUMNS + 23 ? NAN : normal(9, i);
  ls_convert(x, LS_BF16, wide, LS_F32, ROWS * COLUMNS);
  const ls_attributes attributes = {.sequence = ROWS, .head_dim = COLUMNS, .softmax_scale = 1};
  const ls_view rows = {x, LS_BF16, 2, {ROWS, COLUMNS}, {ROWS, COLUMNS}, {0}};
  ls_kernel_args args = {
      .queue = one_thread(), .attributes = &attributes, .inputs = 3, .outputs = 2};
  for (int i = 0; i < 3; i++) args.in[i] = rows;
  args.out[0] = rows, args.out[1] = plain_view(sums, ROWS, 1);
  args.out[0].data = y;
  assert_int_equal(table.kernel[LS_OP_ATTENTION](&args, &error), LS_OK);
  ls_convert(wide, LS_F32, y, LS_BF16, ROWS * COLUMNS);
  for (int i = COLUMNS; i < ROWS * COLUMNS; i++) assert_true(isnan(wide[i]));
  for (int i = 0; i < ROWS; i++) assert_int_equal(isnan(sums[i]) != 0, i >= 1);
}

/* What fp16 cannot hold becomes an infinity, never its largest number, and reaches the norm: that
 * is how a step whose loss was scaled too much is known. */
static void test_overflow(void **state) {
  (void)state;
  ls_kernel_table table;
  ls_error error = {0};
  assert_int_equal(ls_cpu_kernels(&table, LS_F16, &error), LS_OK);
  const float values[4] = {300, 2, -300, 0.5f};
  uint16_t x[4], y[4] = {0};
  for (int i = 0; i < 4; i++) x[i] = ls_f32_to_f16(values[i]);
  ls_view in = {x, LS_F16, 2, {2, 2}, {2, 2}, {0}}, out = in;
  out.data = y;
  ls_kernel_args product = {.queue = one_thread(), .inputs = 2, .outputs = 1, .in = {in, in}};
  product.out[0] = out;
  assert_int_equal(table.kernel[LS_OP_LINEAR](&product, &error), LS_OK);
  assert_int_equal(y[0], 0x7c00);
  assert_int_equal(y[1], 0xfc00);
  double norm = 0;
  const ls_attributes attributes = {.weight = 1};
  ls_kernel_args squares = {
      .queue = one_thread(), .attributes = &attributes, .inputs = 1, .outputs = 1};
  squares.in[0] = out;
  squares.out[0] = (ls_view){&norm, LS_F64, 1, {1}, {1}, {0}};
  assert_int_equal(table.kernel[LS_OP_SQUARED_NORM](&squares, &error), LS_OK);
  assert_true(isinf(norm));
}

/* One call of cast, on `count` elements of one row. */
static void cast_row(void *target, ls_dtype to, const void *source, ls_dtype from, int64_t count,
                     bool add) {
  ls_kernel_table table;
  ls_error error = {0};
  assert_int_equal(ls_cpu_kernels(&table, LS_F16, &error), LS_OK);
  ls_kernel_args args = {.queue = one_thread(), .inputs = 1, .outputs = 1, .accumulate = {add}};
  args.in[0] = (ls_view){.dtype = from, .ndim = 1, .dims = {count}, .valid = {count}};
  args.in[0].data = (void *)(uintptr_t)source;
  args.out[0] = (ls_view){target, to, 1, {count}, {count}, {0}};
  assert_int_equal(table.kernel[LS_OP_CAST](&args, &error), LS_OK);
}

/* The same bits; or both not a number: which one is the processor's choice; or 0 for a bf16 below
 * the normal numbers, where an instruction narrows that makes 0 of them. */
static void assert_same(const void *got, const void *wanted, ls_dtype dtype, int64_t count) {
  const size_t width = ls_dtype_bytes(dtype);
  const bool flushes = dtype == LS_BF16 && ls_cpu_facts()->pairs;
  for (int64_t i = 0; i < count; i++) {
    const char *a = (const char *)got + (size_t)i * width;
    const char *b = (const char *)wanted + (size_t)i * width;
    double values[2];
    ls_convert(&values[0], LS_F64, a, dtype, 1);
    ls_convert(&values[1], LS_F64, b, dtype, 1);
    if (memcmp(a, b, width) == 0 || (isnan(values[0]) && isnan(values[1]))) continue;
    if (flushes && values[0] == 0 && fabs(values[1]) <= 0x1p-126) continue;
    fail_msg("%s element %lld: %a, expected %a", ls_dtype_name(dtype), (long long)i, values[0],
             values[1]);
  }
}

/* The vectors' conversions have the bits of base's: every 16-bit value widened; fp32 of any size,
 * middles between two values among them, rounded and added; rows that end within a vector. */
static void test_conversions(void **state) {
  (void)state;
  enum { ALL = 65536 };
  static uint16_t halves[ALL], got[ALL];
  static float values[ALL], wide[ALL], wanted[ALL];
  for (int h = 0; h < 2; h++) {
    const ls_dtype half = h ? LS_F16 : LS_BF16;
    for (int i = 0; i < ALL; i++) halves[i] = (uint16_t)i;
    cast_row(wide, LS_F32, halves, half, ALL, false);
    ls_convert(wanted, LS_F32, halves, half, ALL);
    assert_same(wide, wanted, LS_F32, ALL);
    for (int i = 0; i < ALL; i++) {
      const float step = i < ALL - 1 && isfinite(wide[i] - wide[i + 1]) ? wide[i + 1] - wide[i] : 0;
      values[i] = wide[i] + (i & 1 ? 0.5f : (float)ls_random_uniform(32, 0, (uint64_t)i)) * step;
      if (i % 97 == 0) values[i] *= 0x1p20f;
    }
    for (int64_t count = 0; count <= ALL; count += count < 70 ? 1 : 21822) {
      memset(got, 0x55, sizeof got);
      cast_row(got, half, values, LS_F32, count, false);
      ls_convert(halves, half, values, LS_F32, ALL);
      assert_same(got, halves, half, count);
      if (count < ALL) assert_int_equal(got[count], 0x5555);
    }
    /* Added to their own halves. */
    for (int i = 0; i < ALL; i++) {
      ls_convert(&wide[i], LS_F32, &halves[i], half, 1);
      const float sum = values[i] + wide[i];
      ls_convert(&got[i], half, &sum, LS_F32, 1);
    }
    cast_row(halves, half, values, LS_F32, ALL, true);
    assert_same(halves, got, half, ALL);
  }
}

enum { TURNS = 11 };

typedef struct shared_loop {
  int *part_of; /* by turn */
  int *levels;  /* OpenMP's, by part */
} shared_loop;

static void note_turns(const void *work, int part, int64_t begin, int64_t end) {
  const shared_loop *loop = work;
#ifdef _OPENMP
  loop->levels[part] = omp_get_level();
#else
  loop->levels[part] = part > 0;
#endif
  for (int64_t i = begin; i < end; i++) loop->part_of[i] += part + 1;
}

/* Every turn once, in order; one part without a team. */
static void test_share(void **state) {
  (void)state;
  for (int parts = 1; parts <= 2 * MOST_THREADS + 13; parts += 1 + MOST_THREADS) {
    int part_of[TURNS] = {0}, levels[32];
    for (int i = 0; i < 32; i++) levels[i] = -1;
    const shared_loop loop = {part_of, levels};
    ls_host_split(parts, parts, TURNS, note_turns, &loop);
    for (int i = 0; i < TURNS; i++) {
      assert_in_range(part_of[i], i ? part_of[i - 1] : 1, parts);
    }
    for (int part = 0; part < parts; part++) assert_true(levels[part] >= 0);
    if (parts == 1) assert_int_equal(levels[0], 0);
    assert_int_equal(levels[parts], -1);
  }
}

static void test_table(void **state) {
  (void)state;
  ls_kernel_table table, reference;
  ls_error error = {0};
  ls_reference_kernels(&reference, LS_F32);
  assert_int_equal(ls_cpu_kernels(&table, LS_F64, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "fp64"));
  static const ls_dtype dtypes[] = {LS_F32, LS_BF16, LS_F16};
  for (int d = 0; d < 3; d++) {
    assert_int_equal(ls_cpu_kernels(&table, dtypes[d], &error), LS_OK);
    assert_string_equal(table.name, "cpu");
    for (int i = 0; i < LS_OP_COUNT; i++) assert_non_null(table.kernel[i]);
    assert_ptr_not_equal(table.kernel[LS_OP_ATTENTION], reference.kernel[LS_OP_ATTENTION]);
  }
}

int main(void) {
  print_message("%s, kernels for %s\n", ls_cpu_facts()->effective, ls_cpu_facts()->set);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_table),       cmocka_unit_test(test_share),
      cmocka_unit_test(test_ranks),       cmocka_unit_test(test_nan),
      cmocka_unit_test(test_nan_bf16),    cmocka_unit_test(test_overflow),
      cmocka_unit_test(test_conversions),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
