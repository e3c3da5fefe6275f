/* What a compiler for GPUs gives a kernel, given by a CPU: thread numbers, barriers, warp
 * functions, atomics. C++17, for tests; kernels are included behind it. shim_run.h says what is
 * caught. */
#ifndef LS_TESTS_CUDA_SHIM_H
#define LS_TESTS_CUDA_SHIM_H

#include <cmath>
#include <cstdint>
#include <cstring>
#include <typeinfo>

#define LS_SHIM
#define __device__
#define __host__
#define __forceinline__ inline

#pragma GCC visibility push(hidden)
namespace ls_shim {

struct index {
  unsigned x, y, z;
};

/* A kernel that may be launched; the list is made before main begins. */
struct entry {
  const char *name;
  size_t argument_bytes;
  unsigned threads;
  void (*call)(const void *arguments);
  const entry *next;
  entry(const char *name_, size_t bytes, unsigned threads_, void (*call_)(const void *));
};

/* Where a call stands: default arguments take the caller's. */
struct site {
  const char *file;
  int line;
};

/* 32 bytes are what a lane brings to a warp function: the fragments of a matrix product. */
enum { LANES = 32, SLOT_WORDS = 8 };
struct slot {
  uint32_t word[SLOT_WORDS];
};

/* Called by the last lane that arrives, with what all have brought: replaces it by results. */
using resolver = void (*)(slot *slots, uint32_t mask);

/* Where the thread that runs is; blocks have one dimension. */
struct position {
  index thread, block, block_size, grid_size;
};
extern position here;

int barrier(int predicate, site at);
/* Begins a warp function: where this lane puts what it brings. */
slot *warp_bring(uint32_t mask, site at);
/* Ends it: this lane's slot after all lanes of the mask have come, until the next call. */
const slot *warp_take(resolver resolve);
void *shared_array(size_t bytes, const std::type_info &type, site at);
void *shared_dynamic();
void copy_begin(void *to, const void *from, int bytes, int kept);
void copy_commit();
void copy_wait(int pending);

template <class TO, class FROM>
TO as(FROM value) {
  static_assert(sizeof(TO) == sizeof(FROM), "bits are taken whole");
  TO result;
  memcpy(&result, &value, sizeof result);
  return result;
}

/* As few bytes as there are, and the same ones on both sides: a processor waits where it reads 16
 * of which 8 were written just now. */
template <class T>
void to_slot(slot *to, const T &value) {
  static_assert(sizeof(T) <= sizeof(slot), "a lane brings at most a slot");
  memcpy(to, &value, sizeof value);
}

template <class T>
T from_slot(const slot &from) {
  T result;
  memcpy(&result, &from, sizeof result);
  return result;
}

/* What a lane brings, and gets. */
template <class TO, class FROM>
TO meet(uint32_t mask, const FROM &own, resolver resolve, site at) {
  to_slot(warp_bring(mask, at), own);
  return from_slot<TO>(*warp_take(resolve));
}

/* Each lane's slot becomes that of the lane it names; one that does not take part gives poison. */
struct shuffled {
  uint64_t value;
  int32_t from;
};
void resolve_shuffle(slot *slots, uint32_t mask);

template <class T>
T shuffle(uint32_t mask, T value, int from, site at) {
  static_assert(sizeof(T) <= sizeof(uint64_t), "what is shuffled has at most eight bytes");
  shuffled own = {0, from};
  memcpy(&own.value, &value, sizeof value);
  return meet<T>(mask, own, resolve_shuffle, at);
}

inline int lane() {
  return static_cast<int>(here.thread.x % LANES);
}

}  // namespace ls_shim
#pragma GCC visibility pop

#define LS_SITE ls_shim::site at = {__builtin_FILE(), __builtin_LINE()}

#define threadIdx (ls_shim::here.thread)
#define blockIdx (ls_shim::here.block)
#define blockDim (ls_shim::here.block_size)
#define gridDim (ls_shim::here.grid_size)

#define LS_KERNEL(name, arguments, threads)                                     \
  static void name(const arguments &args);                                      \
  static const ls_shim::entry name##_entry(                                     \
      #name, sizeof(arguments), threads,                                        \
      [](const void *given) { name(*static_cast<const arguments *>(given)); }); \
  static void name(const arguments &args)
#define LS_SHARED(type, name, count)      \
  type *const name = static_cast<type *>( \
      ls_shim::shared_array(sizeof(type) * (count), typeid(type), {__FILE__, __LINE__}))
#define LS_DYNAMIC_SHARED(type, name) \
  type *const name = static_cast<type *>(ls_shim::shared_dynamic())

inline void __syncthreads(LS_SITE) {
  ls_shim::barrier(0, at);
}
inline int __syncthreads_or(int predicate, LS_SITE) {
  return ls_shim::barrier(predicate, at);
}
inline void __syncwarp(uint32_t mask = 0xffffffffu, LS_SITE) {
  ls_shim::warp_bring(mask, at);
  ls_shim::warp_take(nullptr);
}

template <class T>
T __shfl_sync(uint32_t mask, T value, int from, int width = 32, LS_SITE) {
  const int lane = ls_shim::lane();
  return ls_shim::shuffle(mask, value, (lane & ~(width - 1)) + (from & (width - 1)), at);
}
template <class T>
T __shfl_xor_sync(uint32_t mask, T value, int with, int width = 32, LS_SITE) {
  const int lane = ls_shim::lane(), from = lane ^ with;
  const bool inside = (from & ~(width - 1)) <= (lane & ~(width - 1));
  return ls_shim::shuffle(mask, value, inside ? from : lane, at);
}
template <class T>
T __shfl_down_sync(uint32_t mask, T value, unsigned by, int width = 32, LS_SITE) {
  const int lane = ls_shim::lane(), step = static_cast<int>(by);
  return ls_shim::shuffle(mask, value, lane % width + step < width ? lane + step : lane, at);
}
template <class T>
T __shfl_up_sync(uint32_t mask, T value, unsigned by, int width = 32, LS_SITE) {
  const int lane = ls_shim::lane(), step = static_cast<int>(by);
  return ls_shim::shuffle(mask, value, lane % width >= step ? lane - step : lane, at);
}

namespace ls_shim {
/* Every lane gets FUNCTION(all values, by lane, with the mask). */
template <class T, T (*FUNCTION)(const T *, uint32_t, int)>
void resolve_reduction(slot *slots, uint32_t mask) {
  T values[LANES] = {}, results[LANES] = {};
  for (int l = 0; l < LANES; l++)
    if (mask >> l & 1) values[l] = from_slot<T>(slots[l]);
  for (int l = 0; l < LANES; l++)
    if (mask >> l & 1) results[l] = FUNCTION(values, mask, l);
  for (int l = 0; l < LANES; l++) to_slot(&slots[l], results[l]);
}
inline uint32_t votes(const uint32_t *values, uint32_t mask, int) {
  uint32_t all = 0;
  for (int l = 0; l < LANES; l++) all |= static_cast<uint32_t>((mask >> l & 1) && values[l]) << l;
  return all;
}
inline uint32_t matches(const uint32_t *values, uint32_t mask, int own) {
  uint32_t all = 0;
  for (int l = 0; l < LANES; l++)
    all |= static_cast<uint32_t>((mask >> l & 1) && values[l] == values[own]) << l;
  return all;
}
inline uint32_t sum(const uint32_t *values, uint32_t mask, int) {
  uint32_t all = 0;
  for (int l = 0; l < LANES; l++) all += mask >> l & 1 ? values[l] : 0;
  return all;
}
inline uint32_t largest(const uint32_t *values, uint32_t mask, int) {
  uint32_t all = 0;
  for (int l = 0; l < LANES; l++) all = (mask >> l & 1) && values[l] > all ? values[l] : all;
  return all;
}
template <uint32_t (*FUNCTION)(const uint32_t *, uint32_t, int)>
uint32_t reduce(uint32_t mask, uint32_t value, site at) {
  return meet<uint32_t>(mask, value, resolve_reduction<uint32_t, FUNCTION>, at);
}
}  // namespace ls_shim

inline uint32_t __ballot_sync(uint32_t mask, int predicate, LS_SITE) {
  return ls_shim::reduce<ls_shim::votes>(mask, predicate != 0, at);
}
inline int __any_sync(uint32_t mask, int predicate, LS_SITE) {
  return ls_shim::reduce<ls_shim::votes>(mask, predicate != 0, at) != 0;
}
inline int __all_sync(uint32_t mask, int predicate, LS_SITE) {
  return ls_shim::reduce<ls_shim::votes>(mask, predicate == 0, at) == 0;
}
inline uint32_t __match_any_sync(uint32_t mask, uint32_t value, LS_SITE) {
  return ls_shim::reduce<ls_shim::matches>(mask, value, at);
}
inline uint32_t __reduce_add_sync(uint32_t mask, uint32_t value, LS_SITE) {
  return ls_shim::reduce<ls_shim::sum>(mask, value, at);
}
inline uint32_t __reduce_max_sync(uint32_t mask, uint32_t value, LS_SITE) {
  return ls_shim::reduce<ls_shim::largest>(mask, value, at);
}

/* One fiber runs at a time, so plain accesses are atomic. */
template <class T>
T atomicAdd(T *at, T value) {
  const T before = *at;
  *at = before + value;
  return before;
}
template <class T>
T atomicMax(T *at, T value) {
  const T before = *at;
  if (value > before) *at = value;
  return before;
}
template <class T>
T atomicCAS(T *at, T expected, T value) {
  const T before = *at;
  if (before == expected) *at = value;
  return before;
}
template <class T>
T atomicExch(T *at, T value) {
  const T before = *at;
  *at = value;
  return before;
}

/* Hints to the cache, and fast functions, which are more exact here than there. */
template <class T>
T __ldg(const T *from) {
  return *from;
}
template <class T>
T __ldcs(const T *from) {
  return *from;
}
template <class T>
void __stcs(T *to, T value) {
  *to = value;
}
inline int __ffs(int x) {
  return __builtin_ffs(x);
}
inline int __popc(unsigned x) {
  return __builtin_popcount(x);
}
inline float rsqrtf(float x) {
  return 1 / sqrtf(x);
}
inline float __expf(float x) {
  return expf(x);
}
inline float __logf(float x) {
  return logf(x);
}

#endif
