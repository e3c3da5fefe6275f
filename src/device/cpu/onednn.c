#include "device/cpu/onednn.h"

#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include "device/cpu/cpu.h"

/* What a primitive is made for. Zeroed before it is filled, since it is compared as bytes. */
typedef struct product_key {
  int64_t rows, columns, depth;
  int64_t strides[3][2];
  int32_t dtypes[3];
  int32_t add;
  int64_t threads; /* oneDNN divides the work when it makes a primitive */
} product_key;

enum { TARGET = 0, LEFT, RIGHT, SCRATCH, OPERANDS };

typedef struct product {
  product_key key;
  dnnl_primitive_t primitive;
  dnnl_memory_t memory[OPERANDS];
  size_t scratch_bytes;
} product;

/* More shapes than this in one thread, and its products are made anew. */
enum { PRODUCTS_MAX = 512 };

typedef struct product_cache {
  dnnl_stream_t stream;
  int count;
  product items[PRODUCTS_MAX];
} product_cache;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t cache_key;
static dnnl_engine_t engine; /* written once, before any other use */

/* The two interfaces. From 3.0 on descriptors of memory are objects behind pointers, and there is
 * no descriptor of an operation. */
#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t memory_desc_ref;

static dnnl_status_t desc_create(dnnl_memory_desc_t *desc, const dnnl_dims_t dims,
                                 dnnl_data_type_t dtype, const dnnl_dims_t strides) {
  return dnnl_memory_desc_create_with_strides(desc, 2, dims, dtype, strides);
}

static void desc_destroy(dnnl_memory_desc_t *desc) {
  if (*desc) dnnl_memory_desc_destroy(*desc);
}

static memory_desc_ref desc_ref(const dnnl_memory_desc_t *desc) {
  return *desc;
}

static dnnl_status_t append_sum(dnnl_post_ops_t operations) {
  return dnnl_post_ops_append_sum(operations, 1.0f, 0, dnnl_data_type_undef);
}

static dnnl_status_t matmul_create(dnnl_primitive_desc_t *made, const dnnl_memory_desc_t *descs,
                                   const_dnnl_primitive_attr_t attributes) {
  return dnnl_matmul_primitive_desc_create(made, engine, descs[LEFT], descs[RIGHT], NULL,
                                           descs[TARGET], attributes);
}
#else
typedef const dnnl_memory_desc_t *memory_desc_ref;

static dnnl_status_t desc_create(dnnl_memory_desc_t *desc, const dnnl_dims_t dims,
                                 dnnl_data_type_t dtype, const dnnl_dims_t strides) {
  return dnnl_memory_desc_init_by_strides(desc, 2, dims, dtype, strides);
}

static void desc_destroy(dnnl_memory_desc_t *desc) {
  (void)desc;
}

static memory_desc_ref desc_ref(const dnnl_memory_desc_t *desc) {
  return desc;
}

static dnnl_status_t append_sum(dnnl_post_ops_t operations) {
  return dnnl_post_ops_append_sum(operations, 1.0f);
}

static dnnl_status_t matmul_create(dnnl_primitive_desc_t *made, const dnnl_memory_desc_t *descs,
                                   const_dnnl_primitive_attr_t attributes) {
  dnnl_matmul_desc_t operation;
  const dnnl_status_t status =
      dnnl_matmul_desc_init(&operation, &descs[LEFT], &descs[RIGHT], NULL, &descs[TARGET]);
  if (status != dnnl_success) return status;
  return dnnl_primitive_desc_create(made, &operation, attributes, engine, NULL);
}
#endif

static void product_destroy(product *item) {
  for (int i = 0; i < OPERANDS; i++) {
    if (item->memory[i]) dnnl_memory_destroy(item->memory[i]);
  }
  if (item->primitive) dnnl_primitive_destroy(item->primitive);
  memset(item, 0, sizeof *item);
}

static void cache_destroy(void *data) {
  product_cache *cache = data;
  for (int i = 0; i < PRODUCTS_MAX; i++) product_destroy(&cache->items[i]);
  if (cache->stream) dnnl_stream_destroy(cache->stream);
  free(cache);
}

static void start(void) {
  if (pthread_key_create(&cache_key, cache_destroy) != 0) return;
  if (dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success) engine = NULL;
}

/* The calling thread's cache, made when it is first asked for; NULL if that fails. */
static product_cache *cache_get(void) {
  pthread_once(&once, start);
  if (!engine) return NULL;
  product_cache *cache = pthread_getspecific(cache_key);
  if (cache) return cache;
  cache = calloc(1, sizeof *cache);
  if (!cache) return NULL;
  if (dnnl_stream_create(&cache->stream, engine, dnnl_stream_default_flags) != dnnl_success ||
      pthread_setspecific(cache_key, cache) != 0) {
    cache_destroy(cache);
    return NULL;
  }
  return cache;
}

/* The attributes of a product: caller's scratch, and the sum where it adds. */
static dnnl_status_t attributes_create(dnnl_primitive_attr_t *attributes, bool add) {
  dnnl_status_t status = dnnl_primitive_attr_create(attributes);
  if (status != dnnl_success) return status;
  status = dnnl_primitive_attr_set_scratchpad_mode(*attributes, dnnl_scratchpad_mode_user);
  if (status != dnnl_success || !add) return status;
  dnnl_post_ops_t operations = NULL;
  status = dnnl_post_ops_create(&operations);
  if (status != dnnl_success) return status;
  status = append_sum(operations);
  if (status == dnnl_success) {
    status = dnnl_primitive_attr_set_post_ops(*attributes, operations);
  }
  dnnl_post_ops_destroy(operations);
  return status;
}

/* Fills the primitive and memories of `item` from its made description. */
static dnnl_status_t product_finish(product *item, const dnnl_memory_desc_t *descs,
                                    const_dnnl_primitive_desc_t made) {
  dnnl_status_t status = dnnl_primitive_create(&item->primitive, made);
  for (int i = 0; i < SCRATCH && status == dnnl_success; i++) {
    status = dnnl_memory_create(&item->memory[i], desc_ref(&descs[i]), engine, DNNL_MEMORY_NONE);
  }
  if (status != dnnl_success) return status;
  const memory_desc_ref scratch = dnnl_primitive_desc_query_md(made, dnnl_query_scratchpad_md, 0);
  if (!scratch) return dnnl_runtime_error;
  item->scratch_bytes = dnnl_memory_desc_get_size(scratch);
  return dnnl_memory_create(&item->memory[SCRATCH], scratch, engine, DNNL_MEMORY_NONE);
}

static dnnl_status_t product_create(product *item, const product_key *key) {
  const int64_t shapes[SCRATCH][2] = {
      {key->rows, key->columns}, {key->rows, key->depth}, {key->depth, key->columns}};
  dnnl_memory_desc_t descs[SCRATCH];
  memset(descs, 0, sizeof descs);
  dnnl_primitive_attr_t attributes = NULL;
  dnnl_primitive_desc_t made = NULL;
  dnnl_status_t status = attributes_create(&attributes, key->add != 0);
  for (int i = 0; i < SCRATCH && status == dnnl_success; i++) {
    const dnnl_dims_t dims = {shapes[i][0], shapes[i][1]};
    const dnnl_dims_t strides = {key->strides[i][0], key->strides[i][1]};
    status = desc_create(&descs[i], dims, (dnnl_data_type_t)key->dtypes[i], strides);
  }
  if (status == dnnl_success) status = matmul_create(&made, descs, attributes);
  if (status == dnnl_success) status = product_finish(item, descs, made);
  if (made) dnnl_primitive_desc_destroy(made);
  if (attributes) dnnl_primitive_attr_destroy(attributes);
  for (int i = 0; i < SCRATCH; i++) desc_destroy(&descs[i]);
  if (status != dnnl_success) product_destroy(item);
  item->key = *key;
  return status;
}

static uint64_t key_hash(const product_key *key) {
  uint64_t hash = 14695981039346656037u;
  const unsigned char *bytes = (const unsigned char *)key;
  for (size_t i = 0; i < sizeof *key; i++) hash = (hash ^ bytes[i]) * 1099511628211u;
  return hash;
}

static void cache_clear(product_cache *cache) {
  for (int i = 0; i < PRODUCTS_MAX; i++) product_destroy(&cache->items[i]);
  cache->count = 0;
}

/* The product for `key`, kept or made now. */
static dnnl_status_t cache_find(product_cache *cache, const product_key *key, product **found) {
  uint64_t slot = key_hash(key) % PRODUCTS_MAX;
  while (cache->items[slot].primitive) {
    if (memcmp(&cache->items[slot].key, key, sizeof *key) == 0) {
      *found = &cache->items[slot];
      return dnnl_success;
    }
    slot = (slot + 1) % PRODUCTS_MAX;
  }
  if (cache->count >= PRODUCTS_MAX / 2) {
    cache_clear(cache);
    slot = key_hash(key) % PRODUCTS_MAX;
  }
  const dnnl_status_t status = product_create(&cache->items[slot], key);
  if (status != dnnl_success) return status;
  cache->count++;
  *found = &cache->items[slot];
  return dnnl_success;
}

static int32_t data_type(ls_dtype dtype) {
  switch (dtype) {
    case LS_BF16: return dnnl_bf16;
    case LS_F16: return dnnl_f16;
    default: return dnnl_f32;
  }
}

static void key_fill(product_key *key, const ls_matrix *const operands[SCRATCH], int64_t rows,
                     int64_t columns, int64_t depth, bool add, int threads) {
  memset(key, 0, sizeof *key);
  key->threads = threads;
  key->rows = rows;
  key->columns = columns;
  key->depth = depth;
  key->add = add;
  for (int i = 0; i < SCRATCH; i++) {
    key->strides[i][0] = operands[i]->row_stride;
    key->strides[i][1] = operands[i]->column_stride;
    key->dtypes[i] = data_type(operands[i]->dtype);
  }
}

/* fp32 goes to oneDNN's gemm: its matmul primitive takes 8 % longer for most shapes, and up to a
 * third for a vocabulary's gradients. */
static bool gemm_takes(const ls_matrix *const operands[SCRATCH]) {
  for (int i = 0; i < SCRATCH; i++) {
    const ls_matrix *operand = operands[i];
    if (operand->dtype != LS_F32) return false;
    if (operand->column_stride != 1 && (i == TARGET || operand->row_stride != 1)) return false;
  }
  return true;
}

/* How far the rows of an operand, or of its transpose, are apart. */
static dnnl_dim_t leading(const ls_matrix *operand, int64_t columns) {
  if (operand->column_stride != 1) return operand->column_stride;
  return operand->row_stride > columns ? operand->row_stride : columns; /* of a single row */
}

/* It copies as much as 5,184 columns of the right operand to memory of its own, which nobody
 * counts: of a vocabulary it is given a range at a time. */
enum { GEMM_COLUMNS = 1536 };

static dnnl_status_t gemm(const ls_matrix *const operands[SCRATCH], int64_t rows, int64_t columns,
                          int64_t depth, bool add) {
  const ls_matrix *left = operands[LEFT], *right = operands[RIGHT], *target = operands[TARGET];
  const float *from = right->data;
  float *to = target->data;
  dnnl_status_t status = dnnl_success;
  for (int64_t j = 0; j < columns && status == dnnl_success; j += GEMM_COLUMNS) {
    const int64_t count = columns - j < GEMM_COLUMNS ? columns - j : GEMM_COLUMNS;
    status = dnnl_sgemm(left->column_stride == 1 ? 'N' : 'T', right->column_stride == 1 ? 'N' : 'T',
                        rows, count, depth, 1.0f, left->data, leading(left, depth),
                        from + j * right->column_stride, leading(right, columns), add ? 1.0f : 0.0f,
                        to + j, leading(target, columns));
  }
  return status;
}

static ls_status product_error(const ls_matrix *left, int64_t rows, int64_t columns, int64_t depth,
                               dnnl_status_t status, ls_error *error) {
  return ls_fail(error, LS_FAILED, "oneDNN: product of %s [%lld, %lld] x [%lld, %lld]: status %d",
                 ls_dtype_name(left->dtype), (long long)rows, (long long)depth, (long long)depth,
                 (long long)columns, (int)status);
}

static void use_threads(int threads) {
#ifdef _OPENMP
  if (omp_get_max_threads() != threads) omp_set_num_threads(threads);
#endif
}

ls_status ls_onednn_multiply_alone(const ls_matrix *target, const ls_matrix *left,
                                   const ls_matrix *right, int64_t rows, int64_t columns,
                                   int64_t depth, bool add, ls_error *error) {
  const ls_matrix *const operands[SCRATCH] = {target, left, right};
  use_threads(1);
  const dnnl_status_t status = gemm(operands, rows, columns, depth, add);
  if (status == dnnl_success) return LS_OK;
  return product_error(left, rows, columns, depth, status, error);
}

ls_status ls_onednn_multiply(const ls_matrix *target, const ls_matrix *left, const ls_matrix *right,
                             int64_t rows, int64_t columns, int64_t depth, bool add,
                             const ls_kernel_args *args, ls_error *error) {
  const ls_matrix *const operands[SCRATCH] = {target, left, right};
  use_threads(args->queue->facts->threads);
  if (gemm_takes(operands)) {
    const dnnl_status_t done = gemm(operands, rows, columns, depth, add);
    if (done == dnnl_success) return LS_OK;
    return product_error(left, rows, columns, depth, done, error);
  }
  product_cache *cache = cache_get();
  if (!cache) return ls_fail(error, LS_FAILED, "oneDNN: its CPU engine could not be started");
  product_key key;
  key_fill(&key, operands, rows, columns, depth, add, args->queue->facts->threads);
  product *item = NULL;
  dnnl_status_t status = cache_find(cache, &key, &item);
  void *scratch = NULL;
  if (status == dnnl_success) {
    scratch = ls_cpu_scratch(args, item->scratch_bytes);
    if (item->scratch_bytes > 0 && !scratch) status = dnnl_out_of_memory;
  }
  for (int i = 0; i < OPERANDS && status == dnnl_success; i++) {
    void *data = i == SCRATCH ? scratch : operands[i]->data;
    status = dnnl_memory_set_data_handle(item->memory[i], data);
  }
  if (status == dnnl_success) {
    const dnnl_exec_arg_t arguments[OPERANDS] = {{DNNL_ARG_DST, item->memory[TARGET]},
                                                 {DNNL_ARG_SRC, item->memory[LEFT]},
                                                 {DNNL_ARG_WEIGHTS, item->memory[RIGHT]},
                                                 {DNNL_ARG_SCRATCHPAD, item->memory[SCRATCH]}};
    status = dnnl_primitive_execute(item->primitive, cache->stream, OPERANDS, arguments);
    if (status == dnnl_success) status = dnnl_stream_wait(cache->stream);
  }
  if (status != dnnl_success) return product_error(left, rows, columns, depth, status, error);
  return LS_OK;
}

size_t ls_onednn_scratch_bytes(const ls_matrix *target, const ls_matrix *left,
                               const ls_matrix *right, int64_t rows, int64_t columns, int64_t depth,
                               bool add, int threads) {
  const ls_matrix *const operands[SCRATCH] = {target, left, right};
  if (gemm_takes(operands)) return 0; /* it keeps its own */
  use_threads(threads);
  product_cache *cache = cache_get();
  if (!cache) return 0;
  product_key key;
  key_fill(&key, operands, rows, columns, depth, add, threads);
  product *item = NULL;
  return cache_find(cache, &key, &item) == dnnl_success ? item->scratch_bytes : 0;
}

ls_onednn_isa ls_onednn_effective_isa(void) {
  const unsigned isa = (unsigned)dnnl_get_effective_cpu_isa();
  static const struct {
    unsigned bits;
    const char *name;
  } names[] = {
    {dnnl_cpu_isa_avx512_core_amx, "avx512_core_amx"},
#if DNNL_VERSION_MAJOR >= 3
    {dnnl_cpu_isa_avx512_core_fp16, "avx512_core_fp16"},
#endif
    {dnnl_cpu_isa_avx512_core_bf16, "avx512_core_bf16"},
    {dnnl_cpu_isa_avx512_core_vnni, "avx512_core_vnni"},
    {dnnl_cpu_isa_avx512_core, "avx512_core"},
    {dnnl_cpu_isa_avx2_vnni, "avx2_vnni"},
    {dnnl_cpu_isa_avx2, "avx2"},
    {dnnl_cpu_isa_avx, "avx"},
    {dnnl_cpu_isa_sse41, "sse41"},
  };
  ls_onednn_isa result = {.name = "plain"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if ((isa & names[i].bits) == names[i].bits) {
      result.name = names[i].name;
      break;
    }
  }
#if defined(__x86_64__)
  result.avx2 = (isa & dnnl_cpu_isa_avx2) == dnnl_cpu_isa_avx2;
  result.avx512 = (isa & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core;
  result.amx = (isa & dnnl_cpu_isa_avx512_core_amx) == dnnl_cpu_isa_avx512_core_amx;
#if DNNL_VERSION_MAJOR >= 3
  result.fp16 = (isa & dnnl_cpu_isa_avx512_core_fp16) == dnnl_cpu_isa_avx512_core_fp16;
#endif
  result.bf16 = (isa & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16;
#endif
  return result;
}

void ls_onednn_version(char *text, size_t bytes) {
  const dnnl_version_t *version = dnnl_version();
  snprintf(text, bytes, "%d.%d.%d", version->major, version->minor, version->patch);
}
