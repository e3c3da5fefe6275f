/* A kernel of the CPU device beside the reference's: operands of random numbers, every variant of a
 * call, and how close the results must be. For the one test that includes it.
 *
 *   static void make_bias(op_case *c) { c->kind = LS_OP_BIAS; c->in[0] = matrix_of(...); ... }
 *   run_made(make_bias, 20);
 *
 * Single-threaded: the random state is the file's. */
#ifndef LS_TESTS_CPU_CASE_H
#define LS_TESTS_CPU_CASE_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/blocks.h"
#include "device/cpu/cpu.h"
#include "device/cpu/vector_table.h"
#include "support/thinned.h"

/* The thread sanitizer does not know how OpenMP's threads wait for each other. */
#if defined(__SANITIZE_THREAD__)
enum { MOST_THREADS = 1 };
#else
enum { MOST_THREADS = 2 };
#endif

/* How an operand is typed and filled. */
typedef enum operand_kind {
  COMPUTE = 0, /* normal numbers, in the compute type */
  SUMS,        /* normal numbers, fp32 always */
  NARROW_SUMS, /* the same, bf16 always: gradients of parameters may be */
  POSITIVE,    /* fp32, from 0.5 to 1.5 */
  SIGNED,      /* fp32, that or its negative: rounding does not turn its sign */
  INDEX,       /* int32 from -1 to `range` - 1 */
  CELL,        /* a double */
  ROUTED,      /* int32: each number below the count of them once */
  EXPERTS,     /* int32 from 0 to `range` - 1, sorted, without every third */
  ASCENDING,   /* int32 up to `range` - 1, of each row each once; a first one may be -1 */
  DOUBLES,     /* normal numbers, fp64 always */
  NF4_BLOCKS,  /* of quantised weights */
  FP4_BLOCKS,
  INT8_BLOCKS,
  NF4_DOUBLE_BLOCKS, /* whose scales have 8 bits */
  FP4_DOUBLE_BLOCKS,
  CODES, /* of 8 bits */
} operand_kind;

typedef struct operand {
  operand_kind kind;
  int ndim;
  int64_t dims[2], valid[2], start[3]; /* of a range of elements as ls_view has it */
  int64_t range;
  double value; /* of a cell */
} operand;

typedef struct op_case {
  ls_op_kind kind;
  ls_attributes attributes;
  int inputs, outputs;
  operand in[LS_MAX_INPUTS], out[LS_MAX_OUTPUTS];
  bool in_place;   /* output 0 takes the memory of input 0 */
  bool updates;    /* outputs are read too: an optimizer */
  bool writes_all; /* rows that pad the output are written as well */
  bool no_add;     /* cannot be accumulated */
  double floor;    /* what may be lost where terms of order 1 cancel; see output_compare */
} op_case;

typedef struct variant {
  ls_dtype dtype;
  int threads;
  bool accumulate, given_workspace, exact;
} variant;

static uint64_t random_state;

/* Kernels of this set, where it is not NULL, rather than of the processor's. */
static const ls_vector_set *case_set;

static inline uint64_t random_bits(void) {
  random_state += 0x9e3779b97f4a7c15u;
  uint64_t z = random_state;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

static inline int64_t random_below(int64_t count) {
  return (int64_t)(random_bits() % (uint64_t)count);
}

static inline double random_uniform(void) {
  return (double)(random_bits() >> 11) * 0x1p-53;
}

static inline float make_normal(void) {
  const double radius = sqrt(-2 * log(1 - random_uniform()));
  return (float)(radius * cos(6.283185307179586 * random_uniform()));
}

/* One of 65,536 numbers: making each anew took a third of a test's time. */
static inline float random_normal(void) {
  enum { NUMBERS = 1 << 16 };
  static float numbers[NUMBERS];
  static bool made;
  for (int i = 0; !made && i < NUMBERS; i++) numbers[i] = make_normal();
  made = true;
  return numbers[random_below(NUMBERS)];
}

static inline int64_t pick(const int64_t *from, int count) {
  return from[random_below(count)];
}

static inline int64_t any_size(void) {
  static const int64_t sizes[] = {1, 3, 17, 65, 130, 257};
  return pick(sizes, 6);
}

static inline operand_kind any_sums(void) {
  return random_below(2) ? SUMS : NARROW_SUMS;
}

static inline operand vector_of(operand_kind kind, int64_t count) {
  return (operand){.kind = kind, .ndim = 1, .dims = {count}, .valid = {count}};
}

/* A matrix stored with up to 5 rows and columns more than it has. */
static inline operand matrix_of(int64_t rows, int64_t columns, int64_t more_rows,
                                int64_t more_columns) {
  return (operand){
      .ndim = 2, .dims = {rows + more_rows, columns + more_columns}, .valid = {rows, columns}};
}

static inline operand cell_of(double value) {
  return (operand){.kind = CELL, .ndim = 1, .dims = {1}, .valid = {1}, .value = value};
}

static inline int64_t stored_count(const operand *o) {
  return o->dims[0] * (o->ndim > 1 ? o->dims[1] : 1);
}

static inline ls_dtype dtype_of(const operand *o, ls_dtype compute) {
  switch (o->kind) {
    case COMPUTE: return compute;
    case ROUTED:
    case EXPERTS:
    case ASCENDING:
    case INDEX: return LS_I32;
    case DOUBLES:
    case CELL: return LS_F64;
    case NARROW_SUMS: return LS_BF16;
    case NF4_BLOCKS: return LS_NF4;
    case FP4_BLOCKS: return LS_FP4;
    case INT8_BLOCKS: return LS_INT8;
    case NF4_DOUBLE_BLOCKS: return LS_NF4_DOUBLE;
    case FP4_DOUBLE_BLOCKS: return LS_FP4_DOUBLE;
    case CODES: return LS_U8;
    default: return LS_F32;
  }
}

/* malloc that is never NULL and never free of bounds for the sanitizer. */
static inline void *bytes_of(size_t bytes) {
  void *data = malloc(bytes ? bytes : 1);
  assert_non_null(data);
  return data;
}

static inline int32_t index_at(const operand *o, int64_t i) {
  const int64_t count = o->valid[0] * (o->ndim > 1 ? o->valid[1] : 1);
  if (o->kind == ROUTED) return (int32_t)(i % 2 ? count / 2 * 2 - i : i);
  if (o->kind == ASCENDING) {
    const int64_t j = i % o->valid[1], low = j * o->range / o->valid[1];
    const int64_t next = (j + 1) * o->range / o->valid[1];
    return (int32_t)(j == 0 && random_below(4) == 0 ? -1 : low + random_below(next - low));
  }
  if (o->kind != EXPERTS) return (int32_t)(random_below(o->range + 1) - 1);
  const int64_t expert = i * o->range / count;
  return (int32_t)(expert % 3 == 1 ? expert - 1 : expert);
}

/* Blocks of normal numbers; scales that are not numbers, where there are none. */
static inline void *blocks_make(const operand *o, ls_dtype dtype) {
  const size_t bytes = ls_dtype_bytes(dtype);
  char *data = bytes_of((size_t)stored_count(o) * bytes);
  memset(data, 0xff, (size_t)stored_count(o) * bytes);
  for (int64_t i = 0; i < stored_count(o); i++) {
    if (i / o->dims[1] >= o->valid[0] || i % o->dims[1] >= o->valid[1]) continue;
    float weights[LS_BLOCK_WEIGHTS];
    for (int w = 0; w < LS_BLOCK_WEIGHTS; w++) weights[w] = random_normal();
    if (ls_blocks_single(dtype) == dtype)
      ls_blocks_quantise(dtype, weights, 1, data + (size_t)i * bytes);
    else /* any byte is a scale, and any codes */
      memcpy(data + (size_t)i * bytes, weights, bytes);
  }
  return data;
}

/* Memory of an operand: values where they exist, zero in columns that do not, NaN in rows that do
 * not. `garbage`: values that must be overwritten, in all columns. */
static inline void *operand_make(const operand *o, ls_dtype dtype, bool garbage) {
  if (ls_dtype_numbers(dtype) > 1) return blocks_make(o, dtype);
  const int64_t columns = o->ndim > 1 ? o->dims[1] : 1;
  const int64_t valid_columns = o->ndim > 1 ? o->valid[1] : 1;
  const int64_t count = stored_count(o);
  void *data = bytes_of((size_t)count * ls_dtype_bytes(dtype));
  float *values = bytes_of((size_t)count * sizeof *values);
  for (int64_t i = 0; i < count; i++) {
    const bool absent = i / columns >= o->valid[0], padding = i % columns >= valid_columns;
    const bool apart = o->kind == POSITIVE || o->kind == SIGNED;
    float value = apart ? 0.5f + (float)random_uniform() : random_normal();
    if (o->kind == SIGNED && random_below(2)) value = -value;
    if (padding && !garbage) value = 0;
    values[i] = absent ? NAN : value;
    if (dtype == LS_F64) ((double *)data)[i] = o->kind == DOUBLES ? (double)values[i] : o->value;
    if (dtype == LS_I32) ((int32_t *)data)[i] = absent ? 1 << 30 : index_at(o, i);
    if (dtype == LS_U8)
      ((uint8_t *)data)[i] =
          (uint8_t)(o->range ? random_below(o->range) | random_below(2) << 7 : random_below(256));
  }
  if (dtype != LS_F64 && dtype != LS_I32 && dtype != LS_U8)
    ls_convert(data, dtype, values, LS_F32, count);
  free(values);
  return data;
}

/* The type that the reference takes in place of `dtype`: bf16 and fp16 are widened. */
static inline ls_dtype reference_dtype(ls_dtype dtype) {
  return dtype == LS_BF16 || dtype == LS_F16 ? LS_F32 : dtype;
}

/* The same values in that type. */
static inline void *reference_copy(const operand *o, ls_dtype dtype, const void *data) {
  const ls_dtype wide = reference_dtype(dtype);
  void *copy = bytes_of((size_t)stored_count(o) * ls_dtype_bytes(wide));
  if (dtype == wide) {
    memcpy(copy, data, (size_t)stored_count(o) * ls_dtype_bytes(dtype));
  } else {
    ls_convert(copy, wide, data, dtype, stored_count(o));
  }
  return copy;
}

static inline ls_view view_of(const operand *o, ls_dtype dtype, void *data) {
  ls_view view = {.data = data, .dtype = dtype, .ndim = o->ndim};
  memcpy(view.dims, o->dims, sizeof o->dims);
  memcpy(view.valid, o->valid, sizeof o->valid);
  memcpy(view.start, o->start, sizeof o->start);
  return view;
}

/* Positions that begin anew at random; a sequence may begin amid a document. */
static inline void documents_prepare(const op_case *c, ls_kernel_args *device,
                                     ls_kernel_args *reference) {
  const int last = c->inputs - 1;
  int32_t *positions = device->in[last].data;
  const int64_t tokens = c->in[last].valid[0], mean = 1 + random_below(2 * c->attributes.sequence);
  for (int64_t n = 0; n < tokens; n++)
    positions[n] = n == 0 || random_below(mean) == 0 ? 0 : positions[n - 1] + 1;
  memcpy(reference->in[last].data, positions, (size_t)tokens * sizeof *positions);
}

/* attention_bwd needs o and log-sum-exp that belong to q, k and v: those of the reference. */
static inline void attention_prepare(const op_case *c, ls_kernel_args *device,
                                     ls_kernel_args *reference) {
  ls_kernel_table table;
  ls_reference_kernels(&table, LS_F32);
  ls_kernel_args forward = {.attributes = &c->attributes, .inputs = 3, .outputs = 2};
  for (int i = 0; i < 3; i++) forward.in[i] = reference->in[i + 1];
  for (int i = 6; i < c->inputs; i++) /* documents, places, draws */
    forward.in[forward.inputs++] = reference->in[i];
  for (int i = 0; i < 2; i++) forward.out[i] = reference->in[i + 4];
  ls_error error = {0};
  assert_int_equal(table.kernel[LS_OP_ATTENTION](&forward, &error), LS_OK);
  for (int i = 4; i < 6; i++) {
    ls_view *to = &device->in[i], *from = &reference->in[i];
    ls_convert(to->data, to->dtype, from->data, LS_F32, stored_count(&c->in[i]));
    ls_convert(from->data, LS_F32, to->data, to->dtype, stored_count(&c->in[i]));
  }
}

/* Runs of tokens that follow each other, in sequences that do not overlap; some of none but one. */
static inline void cached_place(const op_case *c, ls_kernel_args *device,
                                ls_kernel_args *reference) {
  const int64_t tokens = c->in[5].valid[0], rows = c->in[3].valid[0];
  int64_t run = 0, sequence = 0, row = 0;
  for (int64_t n = 0; n < tokens; n++, run--) {
    const int64_t spare = rows - row - (tokens - n); /* rows that nobody needs */
    if (n == 0 || run == 0) {
      run = random_below(2) ? 1 : 1 + random_below(tokens);
      sequence = row + (random_below(3) ? 0 : random_below(spare + 1));
      row = sequence + random_below(rows - (tokens - n) - sequence + 1);
    }
    ((int32_t *)device->in[5].data)[n] = ((int32_t *)reference->in[5].data)[n] =
        (int32_t)(row - sequence);
    ((int32_t *)device->in[6].data)[n] = ((int32_t *)reference->in[6].data)[n] = (int32_t)row++;
  }
}

/* The tokens' rows of the cache follow each other, in one order or the other. */
static inline void cached_prepare(const op_case *c, ls_kernel_args *device,
                                  ls_kernel_args *reference) {
  if (c->inputs > 6) {
    cached_place(c, device, reference);
    return;
  }
  const int64_t tokens = c->in[5].valid[0], rows = c->in[3].valid[0];
  const int64_t first = random_below(rows - tokens + 1);
  const bool turned = random_below(2);
  for (int64_t n = 0; n < tokens; n++) {
    const int32_t position = (int32_t)(first + (turned ? tokens - 1 - n : n));
    ((int32_t *)device->in[5].data)[n] = ((int32_t *)reference->in[5].data)[n] = position;
  }
}

static inline double at(const ls_view *view, int64_t i) {
  if (view->dtype == LS_I32) return (double)((const int32_t *)view->data)[i];
  if (view->dtype == LS_U8) return (double)((const uint8_t *)view->data)[i];
  double value = 0;
  ls_convert(&value, LS_F64, (const char *)view->data + (size_t)i * ls_dtype_bytes(view->dtype),
             view->dtype, 1);
  return value;
}

static inline void describe(const op_case *c, const variant *v, int output) {
  print_error("%s output %d: %s, %d threads%s, %s, %s workspace, %s;", ls_op_name(c->kind), output,
              ls_dtype_name(v->dtype), v->threads, v->exact ? " (exact)" : "",
              v->accumulate ? "added" : "written", v->given_workspace ? "given" : "own",
              c->in_place ? "in place" : "apart");
  for (int i = 0; i < c->inputs; i++) {
    print_error(" [%lld/%lld, %lld/%lld]", (long long)c->in[i].valid[0],
                (long long)c->in[i].dims[0], (long long)c->in[i].valid[1],
                (long long)c->in[i].dims[1]);
  }
  print_error("\n");
}

/* Whether weights are made of blocks, and rounded before the product. */
static inline bool rounds_weights(const op_case *c) {
  return c->kind == LS_OP_LINEAR_BLOCKS || c->kind == LS_OP_LINEAR_BLOCKS_DX;
}

/* What few numbers may be apart by that are small by chance: sums of a thousand terms that cancel,
 * gradients of scores, which are differences of what is rounded to 16 bits, and sums of weights
 * rounded to these, whose terms are as large as ever. */
static inline double floor_of_few(const op_case *c, int64_t numbers, double tolerance) {
  if (rounds_weights(c) && tolerance > 1e-4) return tolerance * sqrt((double)c->in[0].valid[1]);
  if (numbers < 4) return 2e-3;
  return c->kind == LS_OP_ATTENTION_BWD ? 1e-3 : 2e-4;
}

/* What rounding takes off a number: to the type it is stored as, or on the way. Attention on bf16
 * rounds exponentials to it where there are instructions that multiply it, as flash attention does;
 * what is stored as fp32 is then no more exact, but for the log-sum-exp. Going back it rounds the
 * gradients of scores as well, of which terms cancel: the sum of few may be a fifth of what is lost
 * by rounding each to within 2^-9. Weights made of blocks are rounded before the product, and the
 * sum again: of few sums one case in 150 is more than once the rounding of a number away. */
static inline double tolerance_of(const op_case *c, const variant *v, int output, ls_dtype stored) {
  const ls_vector_set *set = case_set ? case_set : ls_cpu_vectors();
  const bool rounds = v->dtype == LS_BF16 && ls_device_facts_cpu(set->name)->pairs;
  if (rounds && c->kind == LS_OP_ATTENTION_BWD) return 0x1p-7;
  const bool forward = c->kind == LS_OP_ATTENTION || c->kind == LS_OP_SINK_ATTENTION;
  const bool on_the_way = rounds && forward && output == 0;
  const bool twice = rounds_weights(c);
  if (stored == LS_BF16 || on_the_way) return twice ? 0x1p-7 : 0x1p-8;
  if (stored == LS_F16) return twice ? 0x1p-9 : 0x1p-10;
  return 1e-5;
}

/* Rows that exist agree relative to their norm and, loosely, one by one; others are untouched. */
static inline void output_compare_within(const op_case *c, const variant *v, int output,
                                         const ls_view *got, const ls_view *wanted,
                                         double tolerance) {
  const operand *o = &c->out[output];
  const int64_t columns = o->ndim > 1 ? o->dims[1] : 1;
  if (ls_dtype_numbers(got->dtype) > 1) { /* the same bits, padding as it was */
    const size_t bytes = (size_t)stored_count(o) * ls_dtype_bytes(got->dtype);
    if (!memcmp(got->data, wanted->data, bytes)) return;
    describe(c, v, output);
    fail_msg("blocks are others");
  }
  double distance = 0, norm = 0, largest = 0;
  for (int64_t i = 0; i < o->valid[0] * columns; i++) {
    const double a = at(got, i), b = at(wanted, i);
    if (a == b) {
      norm += isfinite(b) ? b * b : 0;
      continue;
    }
    distance += (a - b) * (a - b);
    norm += b * b;
    const double beyond = fabs(a - b) - tolerance * fabs(b);
    if (!(beyond <= largest)) largest = beyond;
  }
  const int64_t count = o->valid[0] * columns;
  const double root_count = sqrt((double)count);
  const int64_t numbers = o->valid[0] * (o->ndim > 1 ? o->valid[1] : 1);
  const double smallest = got->dtype == LS_F16 ? 0x1p-24 : 1e-30;
  const double few = numbers < 64 ? floor_of_few(c, numbers, tolerance) : smallest;
  const double floor = c->floor > few ? c->floor : few;
  const bool near = sqrt(distance) <= tolerance * sqrt(norm) + floor * root_count;
  if (!near || !(largest * root_count <= 30 * (tolerance * sqrt(norm) + floor * root_count))) {
    describe(c, v, output);
    fail_msg("distance %g of norm %g, largest %g", sqrt(distance), sqrt(norm), largest);
  }
  for (int64_t i = count; i < stored_count(o) && !c->writes_all; i++) {
    if (isnan(at(got, i))) continue;
    describe(c, v, output);
    fail_msg("row %lld beyond the valid %lld was written", (long long)(i / columns),
             (long long)o->valid[0]);
  }
}

static inline void output_compare(const op_case *c, const variant *v, int output,
                                  const ls_view *got, const ls_view *wanted) {
  output_compare_within(c, v, output, got, wanted, tolerance_of(c, v, output, got->dtype));
}

/* Caches are inputs that are written: the rows of the new tokens, and no others. */
static inline void caches_compare(const op_case *c, const variant *v, const ls_kernel_args *device,
                                  const ls_kernel_args *reference) {
  for (int cache = 3; cache < 5; cache++) {
    for (int64_t i = 0; i < stored_count(&c->in[cache]); i++) {
      const double got = at(&device->in[cache], i), wanted = at(&reference->in[cache], i);
      if (got == wanted || (isnan(got) && isnan(wanted))) continue;
      describe(c, v, 0);
      fail_msg("cache %d: element %lld is %g, not %g", cache, (long long)i, got, wanted);
    }
  }
}

static inline void args_free(ls_kernel_args *args, bool in_place) {
  for (int i = 0; i < args->inputs; i++) free(args->in[i].data);
  for (int i = in_place ? 1 : 0; i < args->outputs; i++) free(args->out[i].data);
}

/* The workspace that the recipe has for a call, of the set whose kernels are asked. */
static inline size_t recipe_of(const op_case *c, const ls_kernel_args *args) {
  ls_device_facts facts = *args->queue->facts;
  const ls_device_facts *set = case_set ? ls_device_facts_cpu(case_set->name) : &facts;
  facts.lanes = set->lanes;
  facts.pairs = set->pairs;
  return ls_device_workspace(&facts, c->kind, args);
}

static inline ls_device_facts facts_with(int threads, bool exact) {
  ls_device_facts facts = *ls_cpu_facts();
  facts.threads = threads;
  facts.exact = exact;
  return facts;
}

static inline void case_run(const op_case *c, const variant *v) {
  const ls_device_facts facts = facts_with(v->threads, v->exact);
  const ls_device_queue queue = {.facts = &facts};
  ls_kernel_table device_table, reference_table;
  ls_error error = {0};
  assert_int_equal(ls_cpu_kernels(&device_table, v->dtype, &error), LS_OK);
  if (case_set) case_set->fill(&device_table);
  ls_reference_kernels(&reference_table, LS_F32);
  ls_kernel_args device = {
      .queue = &queue, .attributes = &c->attributes, .inputs = c->inputs, .outputs = c->outputs};
  ls_kernel_args reference = device;
  for (int i = 0; i < c->inputs; i++) {
    const ls_dtype dtype = dtype_of(&c->in[i], v->dtype);
    device.in[i] = view_of(&c->in[i], dtype, operand_make(&c->in[i], dtype, false));
    reference.in[i] = view_of(&c->in[i], reference_dtype(dtype),
                              reference_copy(&c->in[i], dtype, device.in[i].data));
  }
  if (c->kind == LS_OP_ATTENTION_BWD) attention_prepare(c, &device, &reference);
  if (c->kind == LS_OP_CACHED_ATTENTION) cached_prepare(c, &device, &reference);
  for (int i = 0; i < c->outputs; i++) {
    const ls_dtype dtype = dtype_of(&c->out[i], v->dtype);
    const bool shared = c->in_place && i == 0;
    void *data =
        shared ? device.in[0].data : operand_make(&c->out[i], dtype, !v->accumulate && !c->updates);
    device.out[i] = view_of(&c->out[i], dtype, data);
    reference.out[i] =
        view_of(&c->out[i], reference_dtype(dtype),
                shared ? reference.in[0].data : reference_copy(&c->out[i], dtype, data));
    device.accumulate[i] = reference.accumulate[i] = v->accumulate;
  }
  if (v->given_workspace) {
    device.workspace_bytes = recipe_of(c, &device);
    device.workspace = bytes_of(device.workspace_bytes);
  }
  if (device_table.kernel[c->kind](&device, &error) != LS_OK) {
    describe(c, v, 0);
    fail_msg("%s", error.text);
  }
  assert_int_equal(reference_table.kernel[c->kind](&reference, &error), LS_OK);
  for (int i = 0; i < c->outputs; i++) output_compare(c, v, i, &device.out[i], &reference.out[i]);
  if (c->kind == LS_OP_CACHED_ATTENTION) caches_compare(c, v, &device, &reference);
  free(device.workspace);
  args_free(&device, c->in_place);
  args_free(&reference, c->in_place);
}

/* A case in every variant that it has. */
static inline void case_run_all(op_case *c) {
  const bool may_be_in_place = c->in_place;
  static const ls_dtype dtypes[] = {LS_F32, LS_BF16, LS_F16};
  for (int i = 0; i < 24; i++) {
    const variant v = {.dtype = dtypes[i / 8],
                       .threads = i & 1 ? MOST_THREADS : 1,
                       .accumulate = i & 2,
                       .given_workspace = i & 4,
                       .exact = random_below(3) == 0};
    if (v.accumulate && c->no_add) continue;
    c->in_place = may_be_in_place && !v.accumulate && (i & 4);
    case_run(c, &v);
  }
}

typedef void (*case_maker)(op_case *c);

static inline void run_made(case_maker make, int times) {
  for (int i = 0; i < ls_test_fewer(times, 2); i++) {
    op_case c = {0};
    make(&c);
    case_run_all(&c);
  }
}

/* Rows of a tensor: sometimes none. */
static inline int64_t any_rows(void) {
  return random_below(8) ? any_size() : 0;
}

#endif
