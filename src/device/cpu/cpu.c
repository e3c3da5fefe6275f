#include "device/cpu/cpu.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "device/cpu/onednn.h"
#include "device/cpu/vector_table.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static ls_onednn_isa effective; /* these are written once, before any other use */
static ls_device_facts facts;
static bool dots_bf16;
static bool converts_f16;
static bool has_tiles;
static char library[32];
static pthread_key_t buffer_key;
static bool buffers_kept;
static _Atomic int64_t scratch_misses;

/* A thread's own scratch. */
typedef struct thread_buffer {
  void *data;
  size_t bytes;
} thread_buffer;

static void buffer_destroy(void *data) {
  thread_buffer *buffer = data;
  free(buffer->data);
  free(buffer);
}

/* Intel's cores from Sapphire Rapids on, which are those with AVX512-FP16, leave bf16 to AMX: their
 * dot product of vectors comes every other cycle, so fp32 is twice as fast where AMX is hidden. */
static bool bf16_dot_is_slow(void) {
#if defined(__x86_64__)
  unsigned leaf, b, c, d, features_b, features_c, features_d;
  char vendor[12];
  if (!__get_cpuid(0, &leaf, &b, &c, &d)) return false;
  memcpy(vendor, &b, 4);
  memcpy(vendor + 4, &d, 4);
  memcpy(vendor + 8, &c, 4);
  if (memcmp(vendor, "GenuineIntel", sizeof vendor) != 0) return false;
  if (!__get_cpuid_count(7, 0, &leaf, &features_b, &features_c, &features_d)) return false;
  return (features_d >> 23) & 1;
#else
  return false;
#endif
}

/* Every processor with AVX2 is known to convert fp16, but no document says that it must. */
static bool has_f16c(void) {
#if defined(__x86_64__)
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) && (c >> 29 & 1);
#else
  return false;
#endif
}

/* Linux gives tiles to a process that asks for them (its arch/x86/xstate.rst), for all threads. */
static bool may_use_tiles(void) {
#if defined(__x86_64__)
  enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILE_DATA = 18 };
  return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILE_DATA) == 0;
#else
  return false;
#endif
}

static const ls_vector_set *vector_set(void) {
#if defined(__x86_64__)
  if (has_tiles && converts_f16) return &ls_vector_set_avx512_amx;
  if (effective.avx512 && dots_bf16 && converts_f16) return &ls_vector_set_avx512_bf16;
  if (effective.avx512 && converts_f16) return &ls_vector_set_avx512;
  if (effective.avx2 && converts_f16) return &ls_vector_set_avx2;
#endif
  return &ls_vector_set_plain;
}

static void start(void) {
  effective = ls_onednn_effective_isa();
  char version[sizeof library - sizeof "oneDNN "];
  ls_onednn_version(version, sizeof version);
  snprintf(library, sizeof library, "oneDNN %s", version);
  converts_f16 = has_f16c();
  has_tiles = effective.amx && may_use_tiles();
  dots_bf16 = effective.bf16 && !bf16_dot_is_slow();
  const bool multiplies_bf16 = effective.amx || dots_bf16;
  facts = *ls_device_facts_cpu(vector_set()->name);
  facts.library = library;
  facts.effective = effective.name;
  facts.formats =
      1u << LS_F32 | (unsigned)multiplies_bf16 << LS_BF16 | (unsigned)effective.fp16 << LS_F16;
  buffers_kept = pthread_key_create(&buffer_key, buffer_destroy) == 0;
}

const ls_device_facts *ls_cpu_facts(void) {
  pthread_once(&once, start);
  return &facts;
}

const ls_vector_set *ls_cpu_vectors(void) {
  pthread_once(&once, start);
  return vector_set();
}

/* The calling thread's buffer of at least `bytes`. What it held is lost when it grows. */
static void *thread_scratch(size_t bytes) {
  pthread_once(&once, start);
  if (!buffers_kept) return NULL;
  thread_buffer *buffer = pthread_getspecific(buffer_key);
  if (!buffer) {
    buffer = calloc(1, sizeof *buffer);
    if (!buffer) return NULL;
    if (pthread_setspecific(buffer_key, buffer) != 0) {
      free(buffer);
      return NULL;
    }
  }
  if (buffer->bytes >= bytes) return buffer->data;
  free(buffer->data);
  const size_t rounded = (bytes + 4095) / 4096 * 4096;
  buffer->data = aligned_alloc(64, rounded);
  buffer->bytes = buffer->data ? rounded : 0;
  return buffer->data;
}

void *ls_cpu_scratch(const ls_kernel_args *args, size_t bytes) {
  if (bytes == 0) return NULL;
  const size_t skipped = (64 - (uintptr_t)args->workspace % 64) % 64;
  if (args->workspace && args->workspace_bytes >= bytes + skipped) {
    return (char *)args->workspace + skipped;
  }
  atomic_fetch_add_explicit(&scratch_misses, 1, memory_order_relaxed);
  return thread_scratch(bytes);
}

int64_t ls_cpu_scratch_misses(void) {
  return atomic_load_explicit(&scratch_misses, memory_order_relaxed);
}

int ls_cpu_parts(const ls_device_facts *of, int64_t elements) {
  enum { WORTH_FORKING = 16384, EXACT_PARTS = 16 };
  if (elements < WORTH_FORKING) return 1;
  if (of->exact) return EXACT_PARTS;
  if (of->threads <= 1) return 1;
  return of->threads < LS_HOST_PARTS ? of->threads : LS_HOST_PARTS;
}

/* Our own kernels keep to the recipe, which counts what they ask for. */
static size_t wants(ls_op_kind kind, const ls_kernel_args *args) {
  const bool product = kind == LS_OP_LINEAR || kind == LS_OP_LINEAR_DX || kind == LS_OP_LINEAR_DW ||
                       kind == LS_OP_LINEAR_BLOCKS || kind == LS_OP_LINEAR_BLOCKS_DX;
  return product ? ls_cpu_linear_wants(kind, args) : 0;
}

ls_status ls_cpu_kernels(ls_kernel_table *table, ls_dtype dtype, ls_error *error) {
  if (dtype != LS_F32 && dtype != LS_BF16 && dtype != LS_F16) {
    return ls_fail(error, LS_INPUT,
                   "dtype: the CPU device computes in fp32, bf16 or fp16, not in %s",
                   ls_dtype_name(dtype));
  }
  ls_reference_kernels(table, LS_F32);
  table->name = "cpu";
  table->wants = wants;
  ls_cpu_vectors()->fill(table);
  ls_cpu_linear_kernels(table);
  ls_cpu_grouped_kernels(table);
  ls_cpu_capacity_kernels(table);
  ls_cpu_update_kernels(table);
  return LS_OK;
}
