/* Memory of GPUs: a range of addresses with all of it mapped, which peers of the process reach, and
 * which another process can be given as a file. */
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "device/cuda/cuda_gpu.h"

enum { MOST_ARENAS = 1024 };

/* What is mapped, and of which GPU: threads that have entered none copy as well. */
typedef struct arena_range {
  CUdeviceptr at;
  size_t bytes;
  ls_cuda_context *on;
} arena_range;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static arena_range arenas[MOST_ARENAS];

static CUdeviceptr address_of(const void *at) {
  return (CUdeviceptr)(uintptr_t)at;
}

static const ls_driver_calls *driver(void) {
  return &ls_cuda_opened()->driver;
}

static int errno_of(CUresult result) {
  return result == CUDA_ERROR_OUT_OF_MEMORY ? ENOMEM : EIO;
}

static CUmemAllocationProp property_of(const ls_cuda_context *on) {
  return (CUmemAllocationProp){
      .type = CU_MEM_ALLOCATION_TYPE_PINNED,
      .requestedHandleTypes = on->gpu.exports ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0,
      .location = {CU_MEM_LOCATION_TYPE_DEVICE, on->gpu.device}};
}

/* Bytes in whole granules of the GPU's; 0: the driver does not say. */
static size_t rounded(const ls_cuda_context *on, size_t bytes) {
  const CUmemAllocationProp property = property_of(on);
  size_t granule = 0;
  if (driver()->cuMemGetAllocationGranularity(&granule, &property,
                                              CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) ||
      !granule)
    return 0;
  return (bytes + granule - 1) / granule * granule;
}

static bool keep(CUdeviceptr at, size_t bytes, ls_cuda_context *on) {
  bool kept = false;
  pthread_mutex_lock(&lock);
  for (int a = 0; a < MOST_ARENAS && !kept; a++) {
    if (arenas[a].on) continue;
    arenas[a] = (arena_range){at, bytes, on};
    kept = true;
  }
  pthread_mutex_unlock(&lock);
  return kept;
}

/* The arena that has the address; with `taken` it is no longer kept. */
static arena_range find(const void *address, bool taken) {
  const CUdeviceptr at = address_of(address);
  arena_range found = {.on = NULL};
  pthread_mutex_lock(&lock);
  for (int a = 0; a < MOST_ARENAS && !found.on; a++) {
    if (!arenas[a].on || at < arenas[a].at || at - arenas[a].at >= arenas[a].bytes) continue;
    found = arenas[a];
    if (taken) arenas[a] = (arena_range){.on = NULL};
  }
  pthread_mutex_unlock(&lock);
  return found;
}

/* The GPU that has the memory, and all of this process that can reach it, read and write there. */
static CUresult give_access(CUdevice of, CUdeviceptr at, size_t bytes) {
  CUmemAccessDesc access[LS_CUDA_MOST_GPUS];
  size_t count = 0;
  for (int g = 0; g < ls_cuda_gpu_count(); g++) {
    const CUdevice peer = ls_cuda_gpu_at(g)->gpu.device;
    int can = peer == of;
    if (!can) {
      const CUresult asked = driver()->cuDeviceCanAccessPeer(&can, peer, of);
      if (asked) return asked;
    }
    if (can)
      access[count++] = (CUmemAccessDesc){{CU_MEM_LOCATION_TYPE_DEVICE, peer},
                                          CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  }
  return driver()->cuMemSetAccess(at, bytes, access, count);
}

/* Maps an allocation of a GPU at addresses of its own. `on`: in whose context it is copied. */
static CUresult map(ls_cuda_context *on, CUdevice of, CUmemGenericAllocationHandle handle,
                    size_t bytes, CUdeviceptr *at) {
  CUresult result = driver()->cuMemAddressReserve(at, bytes, 0, 0, 0);
  if (result) return result;
  result = driver()->cuMemMap(*at, bytes, 0, handle, 0);
  if (!result) {
    result = give_access(of, *at, bytes);
    if (!result && !keep(*at, bytes, on)) result = CUDA_ERROR_OUT_OF_MEMORY;
    if (!result) return CUDA_SUCCESS;
    (void)driver()->cuMemUnmap(*at, bytes);
  }
  (void)driver()->cuMemAddressFree(*at, bytes);
  return result;
}

static void release(void *base, size_t bytes) {
  (void)bytes;
  if (!base) return;
  const arena_range arena = find(base, true);
  if (!arena.on) return;
  (void)driver()->cuMemUnmap(arena.at, arena.bytes);
  (void)driver()->cuMemAddressFree(arena.at, arena.bytes);
}

static ls_status clear(void *to, size_t bytes, ls_error *error);

static void *reserve(size_t bytes, bool exported, int *handle) {
  ls_cuda_context *on = ls_cuda_here();
  *handle = -1;
  errno = EINVAL;
  if (!on) return NULL;
  const CUmemAllocationProp property = property_of(on);
  const size_t whole = rounded(on, bytes + !bytes);
  CUmemGenericAllocationHandle made;
  CUdeviceptr at = 0;
  CUresult result = whole ? driver()->cuMemCreate(&made, whole, &property, 0) : CUDA_ERROR_UNKNOWN;
  errno = errno_of(result);
  if (result) return NULL;
  result = map(on, on->gpu.device, made, whole, &at);
  void *base = (void *)(uintptr_t)at;
  /* Without a file it is memory all the same, which other processes do not see. */
  if (!result && exported && on->gpu.exports &&
      driver()->cuMemExportToShareableHandle(handle, made, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                             0))
    *handle = -1;
  (void)driver()->cuMemRelease(made); /* the mapping holds it */
  errno = errno_of(result);
  if (result) return NULL;
  if (clear(base, whole, NULL) == LS_OK) return base;
  if (*handle >= 0) close(*handle);
  *handle = -1;
  release(base, whole);
  errno = EIO;
  return NULL;
}

/* ---- memory of other processes --------------------------------------------------------------- */

static ls_status identify(const ls_cuda_context *on, ls_memory_owner *owner, ls_error *error) {
  CUuuid uuid;
  LS_TRY(ls_cuda_gpu_did(on, driver()->cuDeviceGetUuid_v2(&uuid, on->gpu.device),
                         "cuDeviceGetUuid_v2", error));
  _Static_assert(sizeof uuid == sizeof *owner, "a UUID is two words");
  memcpy(owner, &uuid, sizeof uuid);
  return LS_OK;
}

static ls_status tell_owner(ls_memory_owner *owner, ls_error *error) {
  const ls_cuda_context *on = ls_cuda_here();
  *owner = (ls_memory_owner){{0}};
  if (!on) return ls_fail(error, LS_INTERNAL, "memory is a rank's thread's");
  return identify(on, owner, error);
}

static ls_status find_owner(const ls_memory_owner *owner, const ls_cuda_context **found,
                            ls_error *error) {
  for (int g = 0; g < ls_cuda_gpu_count(); g++) {
    ls_memory_owner each;
    *found = ls_cuda_gpu_at(g);
    LS_TRY(identify(*found, &each, error));
    if (memcmp(&each, owner, sizeof each) == 0) return LS_OK;
  }
  return ls_fail(error, LS_FAILED,
                 "its GPU is not visible here: show all GPUs to all processes "
                 "(CUDA_VISIBLE_DEVICES), each takes its own");
}

/* Each GPU that ranks of this process have reads and writes it. */
static ls_status check_reached(const ls_cuda_context *of, ls_error *error) {
  for (int g = 0; g < ls_cuda_gpu_count(); g++) {
    const ls_cuda_context *each = ls_cuda_gpu_at(g);
    int can = 0;
    if (!each->users) continue;
    if (each == of) return ls_fail(error, LS_FAILED, "it has the same GPU, GPU %d", g);
    LS_TRY(ls_cuda_gpu_did(each,
                           driver()->cuDeviceCanAccessPeer(&can, each->gpu.device, of->gpu.device),
                           "cuDeviceCanAccessPeer", error));
    if (!can)
      return ls_fail(error, LS_FAILED, "GPU %d has no peer access to GPU %d", g, of->gpu.ordinal);
  }
  return LS_OK;
}

static void *import(int file, size_t bytes, const ls_memory_owner *of, ls_error *error) {
  ls_cuda_context *on = ls_cuda_here();
  const ls_cuda_context *its = NULL;
  if (!on || find_owner(of, &its, error) != LS_OK || check_reached(its, error) != LS_OK)
    return NULL;
  CUmemGenericAllocationHandle made;
  CUdeviceptr at = 0;
  CUresult result = driver()->cuMemImportFromShareableHandle(
      &made, (void *)(intptr_t)file, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  if (ls_cuda_gpu_did(on, result, "cuMemImportFromShareableHandle", error) != LS_OK) return NULL;
  result = map(on, its->gpu.device, made, rounded(its, bytes), &at);
  (void)driver()->cuMemRelease(made);
  if (ls_cuda_gpu_did(on, result, "mapping what was imported", error) != LS_OK) return NULL;
  return (void *)(uintptr_t)at;
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* The calling thread's own stream of the current context (CU_STREAM_PER_THREAD). */
static CUstream own_stream(void) {
  return (CUstream)(uintptr_t)2; /* NOLINT(performance-no-int-to-ptr) */
}

/* Begins work at an address: threads that move between tiers have entered no GPU. */
static ls_status reach(const void *address, const ls_cuda_context **on, ls_error *error) {
  *on = find(address, false).on;
  if (!*on) return ls_fail(error, LS_INTERNAL, "an address that is no GPU's");
  if (*on == ls_cuda_here()) return LS_OK;
  return ls_cuda_gpu_did(*on, driver()->cuCtxSetCurrent((*on)->context), "cuCtxSetCurrent", error);
}

/* Until what was begun has ended; the thread's own context comes back. */
static ls_status end(const ls_cuda_context *on, CUresult begun, const char *call, ls_error *error) {
  ls_status status = ls_cuda_gpu_did(on, begun, call, error);
  const CUresult ended = begun ? begun : driver()->cuStreamSynchronize(own_stream());
  if (status == LS_OK) status = ls_cuda_gpu_did(on, ended, call, error);
  /* Else it would still be under way where its memory goes. */
  if (ended && !begun) (void)driver()->cuStreamSynchronize(own_stream());
  if (ls_cuda_here() && on != ls_cuda_here())
    (void)driver()->cuCtxSetCurrent(ls_cuda_here()->context);
  return status;
}

static ls_status write_to(void *to, const void *from, size_t bytes, ls_error *error) {
  const ls_cuda_context *on;
  if (!bytes) return LS_OK;
  LS_TRY(reach(to, &on, error));
  return end(on, driver()->cuMemcpyHtoDAsync_v2(address_of(to), from, bytes, own_stream()),
             "cuMemcpyHtoDAsync_v2", error);
}

static ls_status read_from(void *to, const void *from, size_t bytes, ls_error *error) {
  const ls_cuda_context *on;
  if (!bytes) return LS_OK;
  LS_TRY(reach(from, &on, error));
  return end(on, driver()->cuMemcpyDtoHAsync_v2(to, address_of(from), bytes, own_stream()),
             "cuMemcpyDtoHAsync_v2", error);
}

static ls_status copy_within(void *to, const void *from, size_t bytes, ls_error *error) {
  const ls_cuda_context *on;
  if (!bytes) return LS_OK;
  LS_TRY(reach(to, &on, error));
  return end(on, driver()->cuMemcpyAsync(address_of(to), address_of(from), bytes, own_stream()),
             "cuMemcpyAsync", error);
}

static ls_status clear(void *to, size_t bytes, ls_error *error) {
  const ls_cuda_context *on;
  if (!bytes) return LS_OK;
  LS_TRY(reach(to, &on, error));
  return end(on, driver()->cuMemsetD8Async(address_of(to), 0, bytes, own_stream()),
             "cuMemsetD8Async", error);
}

/* ---- the host's memory ----------------------------------------------------------------------- */

static ls_status pin(void *base, size_t bytes, ls_error *error) {
  enum { PORTABLE = 1 }; /* CU_MEMHOSTREGISTER_PORTABLE: of all contexts, as threads copy in any */
  const ls_cuda_context *on = ls_cuda_here();
  if (!on) return ls_fail(error, LS_INTERNAL, "memory is pinned by a rank's thread");
  const CUresult result = driver()->cuMemHostRegister_v2(base, bytes, PORTABLE);
  if (result == CUDA_ERROR_OUT_OF_MEMORY)
    return ls_fail(error, LS_FAILED,
                   "GPU %d's driver has no room for it: offload less, or to a drive (nvme)",
                   on->gpu.ordinal);
  return ls_cuda_gpu_did(on, result, "cuMemHostRegister_v2", error);
}

static void unpin(void *base) {
  (void)driver()->cuMemHostUnregister(base);
}

static int64_t used(void) {
  size_t left, total;
  if (!ls_cuda_here() || driver()->cuMemGetInfo_v2(&left, &total)) return -1;
  return (int64_t)(total - left);
}

const ls_memory_calls ls_cuda_memory = {.reserve = reserve,
                                        .import = import,
                                        .release = release,
                                        .write = write_to,
                                        .read = read_from,
                                        .copy = copy_within,
                                        .clear = clear,
                                        .pin = pin,
                                        .unpin = unpin,
                                        .used = used,
                                        .owner = tell_owner};
