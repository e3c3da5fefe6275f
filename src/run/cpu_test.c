/* Every kernel of the CPU device against the plain reference: random shapes that are multiples of
 * nothing, fp32, bf16 and fp16, one and two threads, written and added, with padding that would
 * show if it were read or written. tests/cpu_isa_test.sh repeats it under smaller instruction sets.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "run/cpu/cpu.h"
#include "run/cpu/onednn.h"

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
  INDEX,       /* int32 from -1 to `range` - 1 */
  CELL,        /* a double */
} operand_kind;

typedef struct operand {
  operand_kind kind;
  int ndim;
  int64_t dims[2], valid[2], start[2];
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
  double floor;    /* what may be lost where terms of order 1 cancel; 0: see output_compare */
} op_case;

typedef struct variant {
  ls_dtype dtype;
  int threads;
  bool accumulate, given_workspace;
} variant;

static uint64_t random_state;

static uint64_t random_bits(void) {
  random_state += 0x9e3779b97f4a7c15u;
  uint64_t z = random_state;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

static int64_t random_below(int64_t count) {
  return (int64_t)(random_bits() % (uint64_t)count);
}

static double random_uniform(void) {
  return (double)(random_bits() >> 11) * 0x1p-53;
}

static float random_normal(void) {
  const double radius = sqrt(-2 * log(1 - random_uniform()));
  return (float)(radius * cos(6.283185307179586 * random_uniform()));
}

static int64_t pick(const int64_t *from, int count) {
  return from[random_below(count)];
}

static int64_t any_size(void) {
  static const int64_t sizes[] = {1, 3, 17, 65, 130, 257};
  return pick(sizes, 6);
}

static operand_kind any_sums(void) {
  return random_below(2) ? SUMS : NARROW_SUMS;
}

static operand vector_of(operand_kind kind, int64_t count) {
  return (operand){.kind = kind, .ndim = 1, .dims = {count}, .valid = {count}};
}

/* A matrix stored with up to 5 rows and columns more than it has. */
static operand matrix_of(int64_t rows, int64_t columns, int64_t more_rows, int64_t more_columns) {
  return (operand){
      .ndim = 2, .dims = {rows + more_rows, columns + more_columns}, .valid = {rows, columns}};
}

static operand cell_of(double value) {
  return (operand){.kind = CELL, .ndim = 1, .dims = {1}, .valid = {1}, .value = value};
}

static int64_t stored_count(const operand *o) {
  return o->dims[0] * (o->ndim > 1 ? o->dims[1] : 1);
}

static ls_dtype dtype_of(const operand *o, ls_dtype compute) {
  switch (o->kind) {
    case COMPUTE: return compute;
    case INDEX: return LS_I32;
    case CELL: return LS_F64;
    case NARROW_SUMS: return LS_BF16;
    default: return LS_F32;
  }
}

/* malloc that is never NULL and never free of bounds for the sanitizer. */
static void *bytes_of(size_t bytes) {
  void *data = malloc(bytes ? bytes : 1);
  assert_non_null(data);
  return data;
}

/* Memory of an operand: values where they exist, zero in columns that do not, NaN in rows that do
 * not. `garbage`: values that must be overwritten, in all columns. */
static void *operand_make(const operand *o, ls_dtype dtype, bool garbage) {
  const int64_t columns = o->ndim > 1 ? o->dims[1] : 1;
  const int64_t valid_columns = o->ndim > 1 ? o->valid[1] : 1;
  char *data = bytes_of((size_t)stored_count(o) * ls_dtype_bytes(dtype));
  for (int64_t i = 0; i < stored_count(o); i++) {
    const bool absent = i / columns >= o->valid[0], padding = i % columns >= valid_columns;
    float value = o->kind == POSITIVE ? 0.5f + (float)random_uniform() : random_normal();
    if (padding && !garbage) value = 0;
    if (absent) value = NAN;
    const double cell = o->value;
    const int32_t index = absent ? 1 << 30 : (int32_t)(random_below(o->range + 1) - 1);
    void *place = data + (size_t)i * ls_dtype_bytes(dtype);
    switch (dtype) {
      case LS_F64: memcpy(place, &cell, sizeof cell); break;
      case LS_I32: memcpy(place, &index, sizeof index); break;
      default: ls_convert(place, dtype, &value, LS_F32, 1); break;
    }
  }
  return data;
}

/* The type that the reference takes in place of `dtype`: bf16 and fp16 are widened. */
static ls_dtype reference_dtype(ls_dtype dtype) {
  return dtype == LS_BF16 || dtype == LS_F16 ? LS_F32 : dtype;
}

/* The same values in that type. */
static void *reference_copy(const operand *o, ls_dtype dtype, const void *data) {
  const ls_dtype wide = reference_dtype(dtype);
  void *copy = bytes_of((size_t)stored_count(o) * ls_dtype_bytes(wide));
  if (dtype == LS_I32) {
    memcpy(copy, data, (size_t)stored_count(o) * sizeof(int32_t));
  } else {
    ls_convert(copy, wide, data, dtype, stored_count(o));
  }
  return copy;
}

static ls_view view_of(const operand *o, ls_dtype dtype, void *data) {
  ls_view view = {.data = data, .dtype = dtype, .ndim = o->ndim};
  for (int d = 0; d < o->ndim; d++) {
    view.dims[d] = o->dims[d];
    view.valid[d] = o->valid[d];
    view.start[d] = o->start[d];
  }
  return view;
}

/* attention_bwd needs o and log-sum-exp that belong to q, k and v: those of the reference. */
static void attention_prepare(const op_case *c, ls_kernel_args *device, ls_kernel_args *reference) {
  ls_kernel_table table;
  ls_reference_kernels(&table, LS_F32);
  ls_kernel_args forward = {.attributes = &c->attributes, .inputs = 3, .outputs = 2, .threads = 1};
  for (int i = 0; i < 3; i++) forward.in[i] = reference->in[i + 1];
  for (int i = 0; i < 2; i++) forward.out[i] = reference->in[i + 4];
  ls_error error = {0};
  assert_int_equal(table.kernel[LS_OP_ATTENTION](&forward, &error), LS_OK);
  for (int i = 4; i < 6; i++) {
    ls_view *to = &device->in[i], *from = &reference->in[i];
    ls_convert(to->data, to->dtype, from->data, LS_F32, stored_count(&c->in[i]));
    ls_convert(from->data, LS_F32, to->data, to->dtype, stored_count(&c->in[i]));
  }
}

/* The tokens' rows of the cache follow each other, in one order or the other. */
static void cached_prepare(const op_case *c, ls_kernel_args *device, ls_kernel_args *reference) {
  const int64_t tokens = c->in[5].valid[0], rows = c->in[3].valid[0];
  const int64_t first = random_below(rows - tokens + 1);
  const bool turned = random_below(2);
  for (int64_t n = 0; n < tokens; n++) {
    const int32_t position = (int32_t)(first + (turned ? tokens - 1 - n : n));
    ((int32_t *)device->in[5].data)[n] = ((int32_t *)reference->in[5].data)[n] = position;
  }
}

static double at(const ls_view *view, int64_t i) {
  double value = 0;
  ls_convert(&value, LS_F64, (const char *)view->data + (size_t)i * ls_dtype_bytes(view->dtype),
             view->dtype, 1);
  return value;
}

static void describe(const op_case *c, const variant *v, int output) {
  print_error("%s output %d: %s, %d threads, %s, %s workspace, %s;", ls_op_name(c->kind), output,
              ls_dtype_name(v->dtype), v->threads, v->accumulate ? "added" : "written",
              v->given_workspace ? "given" : "own", c->in_place ? "in place" : "apart");
  for (int i = 0; i < c->inputs; i++) {
    print_error(" [%lld/%lld, %lld/%lld]", (long long)c->in[i].valid[0],
                (long long)c->in[i].dims[0], (long long)c->in[i].valid[1],
                (long long)c->in[i].dims[1]);
  }
  print_error("\n");
}

/* Rows that exist agree relative to their norm and, loosely, one by one; others are untouched. */
static void output_compare(const op_case *c, const variant *v, int output, const ls_view *got,
                           const ls_view *wanted) {
  const operand *o = &c->out[output];
  const int64_t columns = o->ndim > 1 ? o->dims[1] : 1;
  const double tolerance = got->dtype == LS_BF16 ? 0x1p-8 : (got->dtype == LS_F16 ? 0x1p-10 : 1e-5);
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
  /* A few sums of terms that cancel may all be small by chance. */
  const double smallest = got->dtype == LS_F16 ? 0x1p-24 : 1e-30;
  const double floor = c->floor > 0 ? c->floor : (count < 64 ? 2e-5 : smallest);
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

/* Caches are inputs that are written: the rows of the new tokens, and no others. */
static void caches_compare(const op_case *c, const variant *v, const ls_kernel_args *device,
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

static void args_free(ls_kernel_args *args, bool in_place) {
  for (int i = 0; i < args->inputs; i++) free(args->in[i].data);
  for (int i = in_place ? 1 : 0; i < args->outputs; i++) free(args->out[i].data);
}

static void case_run(const op_case *c, const variant *v) {
  ls_kernel_table device_table, reference_table;
  ls_error error = {0};
  assert_int_equal(ls_cpu_kernels(&device_table, v->dtype, &error), LS_OK);
  ls_reference_kernels(&reference_table, LS_F32);
  ls_kernel_args device = {.attributes = &c->attributes,
                           .inputs = c->inputs,
                           .outputs = c->outputs,
                           .threads = v->threads};
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
    device.workspace_bytes = ls_cpu_workspace_bytes(c->kind, &device);
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
static void case_run_all(op_case *c) {
  const bool may_be_in_place = c->in_place;
  static const ls_dtype dtypes[] = {LS_F32, LS_BF16, LS_F16};
  for (int i = 0; i < 24; i++) {
    const variant v = {.dtype = dtypes[i / 8],
                       .threads = i & 1 ? MOST_THREADS : 1,
                       .accumulate = i & 2,
                       .given_workspace = i & 4};
    if (v.accumulate && c->no_add) continue;
    c->in_place = may_be_in_place && !v.accumulate && (i & 4);
    case_run(c, &v);
  }
}

typedef void (*case_maker)(op_case *c);

static void run_made(case_maker make, int times) {
  for (int i = 0; i < times; i++) {
    op_case c = {0};
    make(&c);
    case_run_all(&c);
  }
}

/* Rows of a tensor: sometimes none. */
static int64_t any_rows(void) {
  return random_below(8) ? any_size() : 0;
}

static void make_linear(op_case *c) {
  const int64_t n = any_rows(), m = any_size(), k = any_size(), pad = random_below(5);
  const operand nk = matrix_of(n, k, 2, pad), nm = matrix_of(n, m, 2, random_below(5));
  const operand mk = matrix_of(m, k, random_below(3), pad);
  c->kind = (ls_op_kind[]){LS_OP_LINEAR, LS_OP_LINEAR_DX, LS_OP_LINEAR_DW}[random_below(3)];
  c->inputs = 2, c->outputs = 1;
  switch (c->kind) {
    case LS_OP_LINEAR: c->in[0] = nk, c->in[1] = mk, c->out[0] = nm; break;
    case LS_OP_LINEAR_DX: c->in[0] = nm, c->in[1] = mk, c->out[0] = nk; break;
    default: c->in[0] = nm, c->in[1] = nk, c->out[0] = mk, c->out[0].kind = any_sums(); break;
  }
}

static void test_linear(void **state) {
  (void)state;
  run_made(make_linear, 16);
}

/* Wide enough that what is not multiplied as it is stored is widened in several ranges. */
static void test_linear_ranges(void **state) {
  (void)state;
  static const ls_op_kind kinds[] = {LS_OP_LINEAR, LS_OP_LINEAR_DX, LS_OP_LINEAR_DW};
  const operand nk = matrix_of(9, 3, 0, 0), nm = matrix_of(9, 70001, 0, 2);
  const operand mk = matrix_of(70001, 3, 1, 0);
  for (int i = 0; i < 3; i++) {
    op_case c = {.kind = kinds[i], .inputs = 2, .outputs = 1};
    c.in[0] = i == 0 ? nk : nm;
    c.in[1] = i == 2 ? nk : mk;
    c.out[0] = i == 0 ? nm : (i == 1 ? nk : mk);
    if (i == 2) c.out[0].kind = any_sums();
    for (int half = 0; half < 2; half++) {
      const ls_dtype dtype = half ? LS_F16 : LS_BF16;
      case_run(&c, &(variant){.dtype = dtype, .threads = MOST_THREADS});
      case_run(&c, &(variant){.dtype = dtype, .threads = 1, .accumulate = true});
    }
  }
  /* Rows whose stride collides in the cache are copied before they are multiplied. */
  for (int i = 1; i < 3; i++) {
    op_case c = {.kind = kinds[i], .inputs = 2, .outputs = 1};
    const operand wide = matrix_of(5, 3072, 1, 0), weight = matrix_of(401, 3072, 1, 0);
    c.in[0] = matrix_of(5, 401, 1, 2), c.in[1] = i == 1 ? weight : wide;
    c.out[0] = i == 1 ? wide : weight;
    if (i == 2) c.out[0].kind = any_sums();
    case_run_all(&c);
  }
}

static void make_elementwise(op_case *c) {
  static const ls_op_kind kinds[] = {LS_OP_ADD,      LS_OP_BIAS,   LS_OP_GELU,
                                     LS_OP_GELU_BWD, LS_OP_SWIGLU, LS_OP_SWIGLU_BWD};
  static const int inputs[] = {2, 2, 1, 2, 2, 3};
  const int64_t which = random_below(6), columns = random_below(4) ? any_size() : 2500;
  const operand matrix = matrix_of(any_rows(), columns, 2, random_below(4));
  c->kind = kinds[which];
  c->attributes.gelu_tanh = random_below(2);
  c->inputs = inputs[which];
  c->outputs = c->kind == LS_OP_SWIGLU_BWD ? 2 : 1;
  for (int i = 0; i < c->inputs; i++) c->in[i] = matrix;
  for (int i = 0; i < c->outputs; i++) c->out[i] = matrix;
  if (c->kind == LS_OP_BIAS) c->in[1] = vector_of(COMPUTE, columns);
  c->in_place = c->kind == LS_OP_ADD || c->kind == LS_OP_BIAS || c->kind == LS_OP_GELU_BWD;
}

static void test_elementwise(void **state) {
  (void)state;
  run_made(make_elementwise, 20);
}

static void make_norm(op_case *c) {
  const int64_t rows = any_rows(), columns = random_below(3) ? 2 + any_size() : 1300;
  const operand matrix = matrix_of(rows, columns, 1, random_below(3));
  const operand of_columns = vector_of(COMPUTE, columns), sums = vector_of(any_sums(), columns);
  const operand of_rows = vector_of(SUMS, rows), scales = vector_of(POSITIVE, rows);
  static const ls_op_kind kinds[] = {LS_OP_LAYERNORM, LS_OP_RMSNORM, LS_OP_LAYERNORM_BWD,
                                     LS_OP_RMSNORM_BWD};
  c->attributes.epsilon = 1e-5;
  c->kind = kinds[random_below(4)];
  switch (c->kind) {
    case LS_OP_LAYERNORM:
      c->inputs = 3, c->outputs = 3;
      c->in[0] = matrix, c->in[1] = of_columns, c->in[2] = of_columns;
      c->out[0] = matrix, c->out[1] = of_rows, c->out[2] = of_rows;
      break;
    case LS_OP_RMSNORM:
      c->inputs = 2, c->outputs = 2;
      c->in[0] = matrix, c->in[1] = of_columns;
      c->out[0] = matrix, c->out[1] = of_rows;
      break;
    case LS_OP_LAYERNORM_BWD:
      c->inputs = 5, c->outputs = 3;
      c->in[0] = matrix, c->in[1] = matrix, c->in[2] = of_columns;
      c->in[3] = of_rows, c->in[4] = scales;
      c->out[0] = matrix, c->out[1] = sums, c->out[2] = sums;
      break;
    default:
      c->inputs = 4, c->outputs = 2;
      c->in[0] = matrix, c->in[1] = matrix, c->in[2] = of_columns, c->in[3] = scales;
      c->out[0] = matrix, c->out[1] = sums;
      break;
  }
}

static void test_norm(void **state) {
  (void)state;
  run_made(make_norm, 20);
}

static void make_embedding(op_case *c) {
  const int64_t tokens = any_rows(), columns = random_below(3) ? any_size() : 1100;
  const int64_t vocabulary = any_size();
  operand table = matrix_of(vocabulary, columns, random_below(3), 0),
          ids = vector_of(INDEX, tokens);
  table.start[0] = random_below(20);
  ids.range = vocabulary + 30;
  const operand matrix = matrix_of(tokens, columns, 2, 0);
  c->inputs = 2, c->outputs = 1;
  c->in[1] = ids;
  if (random_below(2)) {
    c->kind = LS_OP_EMBEDDING;
    c->in[0] = table, c->out[0] = matrix;
  } else {
    c->kind = LS_OP_EMBEDDING_DW;
    c->in[0] = matrix, c->out[0] = table;
    c->out[0].kind = any_sums();
    c->writes_all = true;
  }
}

static void test_embedding(void **state) {
  (void)state;
  run_made(make_embedding, 14);
}

static void make_bias_db(op_case *c) {
  const int64_t columns = random_below(3) ? any_size() : 2100;
  c->kind = LS_OP_BIAS_DB;
  c->inputs = c->outputs = 1;
  c->in[0] = matrix_of(any_rows(), columns, 1, random_below(3));
  c->out[0] = vector_of(any_sums(), columns);
}

static void test_bias_db(void **state) {
  (void)state;
  run_made(make_bias_db, 8);
}

static void make_rope(op_case *c) {
  static const int64_t head_dims[] = {2, 6, 32, 64, 128, 2048};
  const int64_t rows = any_rows(), head_dim = pick(head_dims, 6), heads = 1 + random_below(5);
  c->kind = random_below(2) ? LS_OP_ROPE : LS_OP_ROPE_BWD;
  c->attributes.head_dim = head_dim;
  c->inputs = 2, c->outputs = 1;
  c->in[0] = c->out[0] = matrix_of(rows, heads * head_dim, 1, 0);
  c->in[1] = matrix_of(rows, head_dim, 1, 0);
  c->in[1].kind = SUMS;
  c->in_place = true;
}

static void test_rope(void **state) {
  (void)state;
  run_made(make_rope, 10);
}

static void make_cross_entropy(op_case *c) {
  const int64_t rows = any_rows(), columns = random_below(3) ? any_size() : 2500;
  operand logits = matrix_of(rows, columns, 1, random_below(4)), labels = vector_of(INDEX, rows);
  logits.start[1] = random_below(20);
  labels.range = columns + 30;
  const operand sums = vector_of(SUMS, rows);
  c->in[0] = logits;
  c->out[0] = sums;
  c->inputs = 1, c->outputs = 1;
  c->kind = (ls_op_kind[]){LS_OP_XENT_MAX, LS_OP_XENT_SUM, LS_OP_XENT_GRAD}[random_below(3)];
  switch (c->kind) {
    case LS_OP_XENT_MAX: c->no_add = true; break;
    case LS_OP_XENT_SUM:
      c->inputs = 3, c->outputs = 2;
      c->in[1] = sums, c->in[2] = labels;
      c->out[1] = sums;
      break;
    default:
      c->inputs = 5;
      c->in[1] = sums, c->in[2] = vector_of(POSITIVE, rows), c->in[3] = labels;
      c->in[4] = cell_of(0.37);
      c->out[0] = logits;
      c->in_place = true;
      break;
  }
}

static void test_cross_entropy(void **state) {
  (void)state;
  run_made(make_cross_entropy, 18);
}

static void make_optimizer(op_case *c) {
  const int64_t count = random_below(3) ? any_size() : 20001;
  const bool flat = random_below(2);
  operand gradient = flat ? vector_of(SUMS, count) : matrix_of(any_rows(), 67, 2, 3);
  gradient.kind = SUMS;
  operand positive = gradient;
  positive.kind = POSITIVE;
  c->attributes = (ls_attributes){
      .epsilon = 1e-8, .beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.1, .weight = 0.25};
  c->in[0] = gradient;
  c->in[0].kind = any_sums();
  c->kind = (ls_op_kind[]){LS_OP_SQUARED_NORM, LS_OP_ADAMW, LS_OP_SGD, LS_OP_ADAMW_AHEAD,
                           LS_OP_SGD_AHEAD}[random_below(5)];
  if (c->kind == LS_OP_SQUARED_NORM) {
    c->inputs = 1, c->outputs = 1;
    c->out[0] = cell_of(3.5);
    return;
  }
  const bool ahead = c->kind == LS_OP_ADAMW_AHEAD || c->kind == LS_OP_SGD_AHEAD;
  c->in[1] = cell_of(3e-3), c->in[2] = cell_of((double)(1 + random_below(50)));
  c->in[3] = cell_of(ahead || random_below(4) ? 0.7 : 0);
  c->no_add = true;
  if (ahead) {
    c->inputs = c->kind == LS_OP_ADAMW_AHEAD ? 7 : 6, c->outputs = 1;
    c->in[4] = c->in[5] = gradient, c->in[6] = positive;
    c->out[0] = gradient;
    c->out[0].kind = random_below(2) ? SUMS : COMPUTE;
    return;
  }
  c->inputs = 4, c->outputs = c->kind == LS_OP_ADAMW ? 3 : 2;
  c->out[0] = c->out[1] = gradient;
  c->out[2] = positive;
  c->updates = true;
}

static void test_optimizer(void **state) {
  (void)state;
  run_made(make_optimizer, 24);
}

static void make_move(op_case *c) {
  const int64_t rows = any_rows(), columns = any_size(), skipped = random_below(3);
  c->inputs = c->outputs = 1;
  c->kind = random_below(2) ? LS_OP_COPY : LS_OP_CAST;
  if (random_below(2)) {
    c->in[0] = c->out[0] = matrix_of(rows, columns, 2, random_below(3));
  } else {
    c->in[0] = c->out[0] = vector_of(COMPUTE, random_below(2) ? 20003 : rows);
  }
  if (c->kind == LS_OP_COPY) {
    c->in[0].start[0] = 7;
    c->out[0].start[0] = 7 + skipped;
    c->in[0].dims[0] += skipped;
    c->in[0].valid[0] += skipped;
  } else {
    c->out[0].kind = random_below(2) ? SUMS : COMPUTE;
    c->in[0].kind = random_below(2) ? SUMS : COMPUTE;
  }
}

static void test_move(void **state) {
  (void)state;
  run_made(make_move, 16);
}

static void make_attention(op_case *c) {
  static const int64_t head_dims[] = {3, 16, 32, 48, 64, 72, 128};
  static const int64_t lengths[] = {1, 3, 17, 64, 65, 130};
  const int64_t d = pick(head_dims, 7), length = pick(lengths, 6);
  const int64_t kv_heads = 1 + random_below(2), heads = kv_heads * (1 + random_below(3));
  const int64_t tokens = random_below(8) ? length * (1 + random_below(3)) : 0;
  c->attributes.head_dim = d;
  c->attributes.sequence = length;
  c->attributes.softmax_scale = 1 / sqrt((double)d);
  const operand q = matrix_of(tokens, heads * d, length, 0);
  const operand kv = matrix_of(tokens, kv_heads * d, length, 0);
  operand lse = matrix_of(tokens, heads, length, 0);
  lse.kind = SUMS;
  if (random_below(2)) {
    c->kind = LS_OP_ATTENTION;
    c->inputs = 3, c->outputs = 2;
    c->in[0] = q, c->in[1] = c->in[2] = kv;
    c->out[0] = q, c->out[1] = lse;
  } else {
    c->kind = LS_OP_ATTENTION_BWD;
    c->inputs = 6, c->outputs = 3;
    c->floor = 1e-6; /* one token alone: do . v is do . o */
    c->in[0] = c->in[1] = q, c->in[2] = c->in[3] = kv, c->in[4] = q, c->in[5] = lse;
    c->out[0] = q, c->out[1] = c->out[2] = kv;
  }
}

static void test_attention(void **state) {
  (void)state;
  run_made(make_attention, 8);
}

/* More tokens and heads than a block of queries holds, caches shorter and longer than one of keys.
 */
static void make_cached_attention(op_case *c) {
  static const int64_t head_dims[] = {3, 16, 64, 72, 128};
  static const int64_t counts[] = {0, 1, 1, 5, 33, 130};
  const int64_t d = pick(head_dims, 5), tokens = pick(counts, 6);
  const int64_t rows = 1 + tokens + random_below(150);
  const int64_t kv_heads = 1 + random_below(3), heads = kv_heads * (1 + random_below(4));
  c->attributes.head_dim = d;
  c->attributes.softmax_scale = 1 / sqrt((double)d);
  c->kind = LS_OP_CACHED_ATTENTION;
  c->inputs = 6, c->outputs = 1;
  c->in[0] = c->out[0] = matrix_of(tokens, heads * d, 1, 0);
  c->in[1] = c->in[2] = matrix_of(tokens, kv_heads * d, 1, 0);
  c->in[3] = c->in[4] = matrix_of(rows, kv_heads * d, 2, 0);
  c->in[5] = vector_of(INDEX, tokens);
}

static void test_cached_attention(void **state) {
  (void)state;
  run_made(make_cached_attention, 10);
}

static void test_cached_attention_refuses(void **state) {
  (void)state;
  ls_kernel_table table;
  ls_error error = {0};
  assert_int_equal(ls_cpu_kernels(&table, LS_F16, &error), LS_OK);
  uint16_t rows[2 * 4] = {0}, cache[3 * 4] = {0}, narrow[3 * 3] = {0};
  int32_t positions[2] = {2, 3};
  const ls_attributes attributes = {.head_dim = 4, .softmax_scale = 0.5};
  const operand tokens = matrix_of(2, 4, 0, 0), kept = matrix_of(3, 4, 0, 0);
  const operand thin = matrix_of(3, 3, 0, 0), at_rows = vector_of(INDEX, 2);
  ls_kernel_args args = {.attributes = &attributes, .inputs = 6, .outputs = 1, .threads = 1};
  for (int i = 0; i < 3; i++) args.in[i] = view_of(&tokens, LS_F16, rows);
  for (int i = 3; i < 5; i++) args.in[i] = view_of(&kept, LS_F16, cache);
  args.in[5] = view_of(&at_rows, LS_I32, positions);
  args.out[0] = view_of(&tokens, LS_F16, rows);
  const ls_kernel kernel = table.kernel[LS_OP_CACHED_ATTENTION];
  assert_int_equal(kernel(&args, &error), LS_INTERNAL);
  assert_string_equal(error.text, "position 3 lies outside a cache of 3 rows");
  positions[1] = -1;
  assert_int_equal(kernel(&args, &error), LS_INTERNAL);
  positions[1] = 1;
  assert_int_equal(kernel(&args, &error), LS_OK);
  args.in[4] = view_of(&thin, LS_F16, narrow);
  assert_int_equal(kernel(&args, &error), LS_INTERNAL);
  args.in[4] = view_of(&kept, LS_BF16, cache);
  assert_int_equal(kernel(&args, &error), LS_INTERNAL);
  assert_string_equal(error.text, "a cache of 4 columns of bf16 for rows of 4 of fp16");
}

/* Products of a 16-bit type as oneDNN makes them itself, also where fp32 would be faster. */
static void half_products(ls_dtype half) {
  for (int i = 0; i < 20; i++) {
    const int64_t rows = any_size(), columns = any_size(), depth = any_size();
    const operand left = matrix_of(rows, depth, 0, 3), right = matrix_of(columns, depth, 0, 3);
    const int64_t padding = columns == 1 ? 0 : 3, stride = columns + padding;
    operand target = matrix_of(rows, columns, 0, padding);
    if (i & 1) target.kind = SUMS;
    const ls_dtype dtype = dtype_of(&target, half);
    void *a = operand_make(&left, half, false), *b = operand_make(&right, half, false);
    void *c = operand_make(&target, dtype, false);
    float *wide_a = reference_copy(&left, half, a), *wide_b = reference_copy(&right, half, b);
    float *wanted = reference_copy(&target, dtype, c);
    for (int64_t j = 0; j < rows * columns; j++) {
      const int64_t row = j / columns, column = j % columns;
      double sum = 0;
      for (int64_t k = 0; k < depth; k++) {
        sum += (double)wide_a[row * (depth + 3) + k] * (double)wide_b[column * (depth + 3) + k];
      }
      wanted[row * stride + column] += (float)sum;
    }
    const ls_matrix to = {c, dtype, stride, 1}, from = {a, half, depth + 3, 1};
    const ls_matrix turned = {b, half, 1, depth + 3};
    const ls_kernel_args args = {.threads = 1 + i % MOST_THREADS};
    ls_error error = {0};
    assert_int_equal(
        ls_onednn_multiply(&to, &from, &turned, rows, columns, depth, true, &args, &error), LS_OK);
    const op_case named = {.kind = LS_OP_LINEAR, .out = {target}};
    const ls_view got = view_of(&target, dtype, c), reference = view_of(&target, LS_F32, wanted);
    output_compare(&named, &(variant){.dtype = half}, 0, &got, &reference);
    free(a), free(b), free(c), free(wide_a), free(wide_b), free(wanted);
  }
}

static void test_bf16_products(void **state) {
  (void)state;
  if (!ls_onednn_effective_isa().bf16) skip();
  half_products(LS_BF16);
}

static void test_fp16_products(void **state) {
  (void)state;
  if (!ls_onednn_effective_isa().fp16) skip();
  half_products(LS_F16);
}

int main(void) {
  const char *given = getenv("LS_TEST_SEED");
  const uint64_t seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
  random_state = seed;
  print_message("seed %llu (LS_TEST_SEED), %s, kernels for %s\n", (unsigned long long)seed,
                ls_cpu_isa_name(), ls_cpu_vector_set());
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_linear),
      cmocka_unit_test(test_linear_ranges),
      cmocka_unit_test(test_elementwise),
      cmocka_unit_test(test_norm),
      cmocka_unit_test(test_embedding),
      cmocka_unit_test(test_bias_db),
      cmocka_unit_test(test_rope),
      cmocka_unit_test(test_cross_entropy),
      cmocka_unit_test(test_optimizer),
      cmocka_unit_test(test_move),
      cmocka_unit_test(test_attention),
      cmocka_unit_test(test_cached_attention),
      cmocka_unit_test(test_cached_attention_refuses),
      cmocka_unit_test(test_bf16_products),
      cmocka_unit_test(test_fp16_products),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
