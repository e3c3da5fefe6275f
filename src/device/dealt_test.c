/* Attention over caches whose rows are dealt to ranks: what parts give, joined, is what attention
 * over the caches as a whole gives, call after call, of one sequence and of several; by the
 * reference in both precisions and by the CPU device in its types, each part by itself as a rank
 * has it and all in one call, which are the same bits. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/random.h"
#include "device/cpu/cpu.h"
#include "support/test_seed.h"

enum { CALLS = 3, MOST_TOKENS = 120, MOST_SEQUENCES = 3, SPARE = 3 };

static uint64_t seed, drawn;

static int64_t below(int64_t limit) {
  return (int64_t)(ls_random_bits(seed, 1, drawn++) % (uint64_t)limit);
}

typedef struct dealt_case {
  ls_arena *arena;
  ls_kernel_table table, oracle;
  ls_dtype dtype, sums; /* of tensors, and of what is accumulated */
  double tolerance;
  ls_attributes attributes;
  int64_t sequences, places, kv_columns, q_columns, heads;
  int64_t fed[MOST_SEQUENCES];
  int threads;
  ls_view whole[2], parts[2]; /* caches: of all places in order, in fp64; of ranks */
} dealt_case;

static ls_view empty(const dealt_case *c, ls_dtype dtype, int64_t rows, int64_t columns) {
  const size_t bytes = (size_t)(rows * columns) * ls_dtype_bytes(dtype);
  ls_view view = {.data = ls_arena_alloc(c->arena, bytes + 1), .dtype = dtype, .ndim = 2};
  view.dims[0] = view.valid[0] = rows;
  view.dims[1] = view.valid[1] = columns;
  memset(view.data, 0xff, bytes); /* no numbers */
  return view;
}

/* Random numbers in the case's type, and the same in fp64. */
static void draw(const dealt_case *c, int64_t rows, int64_t columns, ls_view *of, ls_view *exact) {
  *of = empty(c, c->dtype, rows, columns);
  *exact = empty(c, LS_F64, rows, columns);
  double *values = exact->data;
  for (int64_t i = 0; i < rows * columns; i++) values[i] = ls_random_normal(seed, 2, drawn++);
  ls_convert(of->data, c->dtype, values, LS_F64, rows * columns);
  ls_convert(values, LS_F64, of->data, c->dtype, rows * columns);
}

/* As [parts, rows, columns], from part `first` on. */
static ls_view parts_of(const ls_view *rows, int64_t first, int64_t parts, int64_t all) {
  ls_view of = {.dtype = rows->dtype, .ndim = 3, .start = {first}};
  of.dims[0] = of.valid[0] = parts;
  of.dims[1] = of.valid[1] = rows->dims[0] / all;
  of.dims[2] = of.valid[2] = rows->dims[1];
  of.data =
      (char *)rows->data + (size_t)(first * of.dims[1] * of.dims[2]) * ls_dtype_bytes(rows->dtype);
  return of;
}

static ls_view rows_of(const ls_view *view, int64_t first, int64_t count) {
  ls_view rows = *view;
  rows.data = (char *)view->data + (size_t)(first * view->dims[1]) * ls_dtype_bytes(view->dtype);
  rows.start[0] = first;
  rows.dims[0] = rows.valid[0] = count;
  return rows;
}

static ls_status call(const dealt_case *c, ls_op_kind kind, ls_kernel_args *args, ls_error *error) {
  ls_device_facts facts = *ls_device_facts_here();
  facts.threads = c->threads;
  const ls_device_queue queue = {.facts = &facts};
  args->queue = &queue;
  args->attributes = &c->attributes;
  args->workspace_bytes = ls_device_workspace(&facts, kind, args);
  args->workspace = ls_arena_alloc(c->arena, args->workspace_bytes + 64);
  args->workspace = (char *)args->workspace + (-(uintptr_t)args->workspace & 63);
  return c->table.kernel[kind](args, error);
}

/* New tokens: runs of them of one sequence, or of several. */
static int64_t draw_tokens(dealt_case *c, int32_t *positions, int32_t *places) {
  int64_t count = 0;
  for (int64_t s = 0; s < c->sequences; s++) {
    const int64_t room = c->places - c->fed[s];
    int64_t more = below(3) ? 1 : below(MOST_TOKENS / MOST_SEQUENCES);
    if (more > room) more = room;
    for (int64_t i = 0; i < more; i++, count++) {
      positions[count] = (int32_t)c->fed[s]++;
      places[count] = (int32_t)(s * c->places + positions[count]);
    }
  }
  return count;
}

/* What parts give, joined: each in a call of its own, or all in one. */
static ls_view join(const dealt_case *c, const ls_kernel_args *of, bool apart, ls_view *sums) {
  const int64_t tokens = of->in[0].dims[0], ranks = c->attributes.turns;
  const int64_t rows = c->parts[0].dims[0] / ranks, step = apart ? 1 : ranks;
  const ls_view values = empty(c, c->sums, ranks * tokens, c->q_columns);
  ls_view o = empty(c, c->dtype, tokens, c->q_columns);
  ls_error error = {0};
  *sums = empty(c, c->sums, ranks * tokens, c->heads);
  for (int64_t r = 0; r < ranks; r += step) {
    ls_kernel_args part = *of;
    part.outputs = 2;
    for (int i = 0; i < 2; i++) part.in[3 + i] = rows_of(&c->parts[i], r * rows, step * rows);
    part.out[0] = parts_of(&values, r, step, ranks);
    part.out[1] = parts_of(sums, r, step, ranks);
    if (call(c, LS_OP_CACHED_PART, &part, &error) != LS_OK) fail_msg("%s", error.text);
  }
  ls_kernel_args end = {.inputs = 2, .outputs = 1, .out = {o}};
  end.in[0] = parts_of(&values, 0, ranks, ranks);
  end.in[1] = parts_of(sums, 0, ranks, ranks);
  if (call(c, LS_OP_CACHED_END, &end, &error) != LS_OK) fail_msg("%s", error.text);
  return o;
}

static void compare(const dealt_case *c, const ls_view *found, const ls_view *wanted) {
  const int64_t count = wanted->dims[0] * wanted->dims[1];
  double difference = 0, norm = 0;
  for (int64_t i = 0; i < count; i++) {
    double of;
    ls_convert(&of, LS_F64, (char *)found->data + (size_t)i * ls_dtype_bytes(c->dtype), c->dtype,
               1);
    const double other = ((const double *)wanted->data)[i];
    difference += (of - other) * (of - other);
    norm += other * other;
  }
  if (!(sqrt(difference) <= c->tolerance * sqrt(norm)))
    fail_msg("%s in %s: %g of %g away: %lld tokens, %lld ranks, window %lld, heads %lld x %lld",
             c->table.name, ls_dtype_name(c->dtype), sqrt(difference), sqrt(norm),
             (long long)wanted->dims[0], (long long)c->attributes.turns,
             (long long)c->attributes.window, (long long)c->heads,
             (long long)c->attributes.head_dim);
}

/* Tokens of no sequence are all zeros. */
static void expect_zeros(const dealt_case *c, const ls_view *o, int64_t first) {
  const char *of = o->data;
  const size_t row = (size_t)c->q_columns * ls_dtype_bytes(c->dtype);
  for (size_t i = (size_t)first * row; i < (size_t)o->dims[0] * row; i++)
    assert_int_equal(of[i], 0);
}

static void run_call(dealt_case *c) {
  int32_t positions[MOST_TOKENS + SPARE], places[MOST_TOKENS + SPARE];
  const int64_t tokens = draw_tokens(c, positions, places), all = tokens + below(SPARE);
  for (int64_t n = tokens; n < all; n++) positions[n] = 7, places[n] = -1;
  ls_kernel_args of = {.inputs = 7}, exact = {.inputs = 7, .outputs = 1};
  ls_error error = {0};
  draw(c, all, c->q_columns, &of.in[0], &exact.in[0]);
  for (int i = 1; i < 3; i++) draw(c, all, c->kv_columns, &of.in[i], &exact.in[i]);
  for (int i = 0; i < 2; i++)
    of.in[5 + i] = exact.in[5 + i] = (ls_view){
        .data = i ? places : positions, .dtype = LS_I32, .ndim = 1, .dims = {all}, .valid = {all}};
  for (int i = 0; i < 3; i++) exact.in[i] = rows_of(&exact.in[i], 0, tokens);
  exact.attributes = &c->attributes;
  for (int i = 0; i < 2; i++) exact.in[3 + i] = c->whole[i];
  const ls_view wanted = exact.out[0] = empty(c, LS_F64, tokens, c->q_columns);
  if (c->oracle.kernel[LS_OP_CACHED_ATTENTION](&exact, &error) != LS_OK) fail_msg("%s", error.text);
  ls_view sums[2];
  const ls_view o = join(c, &of, true, &sums[0]), again = join(c, &of, false, &sums[1]);
  compare(c, &o, &wanted);
  expect_zeros(c, &o, tokens);
  const size_t bytes = (size_t)(all * c->q_columns) * ls_dtype_bytes(c->dtype);
  assert_memory_equal(o.data, again.data, bytes ? bytes : 1);
}

static void run_case(dealt_case *c) {
  static const int64_t head_dims[] = {2, 3, 16, 33, 64, 72, 128};
  const int64_t head_dim = head_dims[below(7)], kv_heads = 1 + below(3), ranks = 1 + below(5);
  c->heads = kv_heads * (1 + below(4));
  c->attributes = (ls_attributes){.head_dim = head_dim,
                                  .kv_heads = kv_heads,
                                  .turns = ranks,
                                  .heads = c->heads,
                                  .window = below(3) ? 0 : 1 + below(20),
                                  .softcap = below(3) ? 0 : 1.5,
                                  .alibi = below(3) == 0,
                                  .softmax_scale = 1 / sqrt((double)head_dim)};
  c->kv_columns = kv_heads * head_dim;
  c->q_columns = c->heads * head_dim;
  c->sequences = 1 + below(MOST_SEQUENCES);
  c->places = ranks * (1 + below(2 * MOST_TOKENS / ranks + 60));
  c->threads = 1 + (int)below(2);
  memset(c->fed, 0, sizeof c->fed);
  for (int i = 0; i < 2; i++) {
    c->whole[i] = empty(c, LS_F64, c->sequences * c->places, c->kv_columns);
    c->parts[i] = empty(c, c->dtype, c->sequences * c->places, c->kv_columns);
  }
  for (int i = 0; i < CALLS; i++) run_call(c);
}

static void run_cases(ls_kernel_table table, ls_dtype dtype, double tolerance, int count) {
  for (int n = 0; n < count; n++) {
    dealt_case c = {.arena = ls_arena_create(),
                    .table = table,
                    .dtype = dtype,
                    .sums = dtype == LS_F64 ? LS_F64 : LS_F32,
                    .tolerance = tolerance};
    ls_reference_kernels(&c.oracle, LS_F64);
    run_case(&c);
    ls_arena_destroy(&c.arena);
  }
}

static void parts_of_the_reference(void **state) {
  (void)state;
  ls_kernel_table table;
  ls_reference_kernels(&table, LS_F64);
  run_cases(table, LS_F64, 1e-13, 100);
  ls_reference_kernels(&table, LS_F32);
  run_cases(table, LS_F32, 1e-6, 20);
}

static void parts_of_the_cpu(void **state) {
  (void)state;
  static const ls_dtype dtypes[] = {LS_F32, LS_F16, LS_BF16};
  static const double tolerances[] = {1e-5, 1e-3, 8e-3};
  for (int d = 0; d < 3; d++) {
    ls_kernel_table table;
    ls_error error = {0};
    if (ls_cpu_kernels(&table, dtypes[d], &error) != LS_OK) fail_msg("%s", error.text);
    run_cases(table, dtypes[d], tolerances[d], 100);
  }
}

/* A row of a sequence that does not begin with the first rank, or that no rank has. */
static void wrong_places_are_refused(void **state) {
  (void)state;
  float rows[4] = {0}, cache[2 * 4] = {0}, o[4], sums[1];
  int32_t position = 1, place = 2;
  const ls_view row = {.data = rows, .dtype = LS_F32, .ndim = 2, .dims = {1, 4}, .valid = {1, 4}};
  ls_view kept = row, index = {.dtype = LS_I32, .ndim = 1, .dims = {1}, .valid = {1}};
  kept.data = cache;
  kept.dims[0] = kept.valid[0] = 2;
  dealt_case c = {.arena = ls_arena_create(), .threads = 1};
  c.attributes = (ls_attributes){.head_dim = 4, .kv_heads = 1, .turns = 3, .softmax_scale = 1};
  for (int cpu = 0; cpu < 2; cpu++) {
    ls_kernel_args args = {.inputs = 7, .outputs = 2, .in = {row, row, row, kept, kept}};
    ls_error error = {0};
    ls_reference_kernels(&c.table, LS_F32);
    if (cpu) assert_int_equal(ls_cpu_kernels(&c.table, LS_F32, &error), LS_OK);
    args.in[5] = args.in[6] = index;
    args.in[5].data = &position;
    args.in[6].data = &place;
    args.out[0] = (ls_view){
        .data = o, .dtype = LS_F32, .ndim = 3, .dims = {1, 1, 4}, .valid = {1, 1, 4}, .start = {2}};
    args.out[1] = (ls_view){.data = sums,
                            .dtype = LS_F32,
                            .ndim = 3,
                            .dims = {1, 1, 1},
                            .valid = {1, 1, 1},
                            .start = {2}};
    position = 1, place = 2;
    assert_int_equal(call(&c, LS_OP_CACHED_PART, &args, &error), LS_INTERNAL);
    position = place = 6;
    assert_int_equal(call(&c, LS_OP_CACHED_PART, &args, &error), LS_INTERNAL);
    assert_string_equal(error.text, "position 6 lies outside a cache of 6 rows");
    position = place = 5;
    assert_int_equal(call(&c, LS_OP_CACHED_PART, &args, &error), LS_OK);
    position = place = 1; /* of which this rank has no row, nor of any before it */
    assert_int_equal(call(&c, LS_OP_CACHED_PART, &args, &error), LS_OK);
    assert_true(sums[0] == -INFINITY && o[0] == 0);
  }
  ls_arena_destroy(&c.arena);
}

int main(void) {
  seed = test_seed(20261128);
  const struct CMUnitTest tests[] = {cmocka_unit_test(parts_of_the_reference),
                                     cmocka_unit_test(parts_of_the_cpu),
                                     cmocka_unit_test(wrong_places_are_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
