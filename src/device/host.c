/* The host: memory that devices of it compute in, and threads. */
#include <errno.h>
#ifdef _OPENMP
#include <omp.h>
#endif
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device/device.h"

static void *map_shared(size_t bytes, int *handle) {
  *handle = memfd_create("lockstep", MFD_CLOEXEC);
  if (*handle < 0) return MAP_FAILED;
  void *base = MAP_FAILED;
  if (ftruncate(*handle, (off_t)bytes) == 0)
    base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *handle, 0);
  if (base != MAP_FAILED) return base;
  const int reason = errno;
  close(*handle);
  *handle = -1;
  errno = reason;
  return base;
}

static void *reserve(size_t bytes, bool exported, int *handle) {
  *handle = -1;
  void *base = exported
                   ? map_shared(bytes, handle)
                   : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return NULL;
  (void)madvise(base, bytes, MADV_HUGEPAGE); /* a wish: kernels without huge pages say no */
  return base;
}

static void *import(int file, size_t bytes, const ls_memory_owner *owner, ls_error *error) {
  (void)owner;
  void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (base == MAP_FAILED) {
    (void)ls_fail(error, LS_FAILED, "memory of another process cannot be mapped: %s",
                  strerror(errno));
    return NULL;
  }
  (void)madvise(base, bytes, MADV_HUGEPAGE);
  return base;
}

static void release(void *base, size_t bytes) {
  if (base) munmap(base, bytes);
}

static ls_status copy(void *to, const void *from, size_t bytes, ls_error *error) {
  (void)error;
  if (bytes) memcpy(to, from, bytes);
  return LS_OK;
}

static ls_status clear(void *to, size_t bytes, ls_error *error) {
  (void)error;
  if (bytes) memset(to, 0, bytes);
  return LS_OK;
}

const ls_memory_calls ls_host_memory = {.addressable = true,
                                        .reserve = reserve,
                                        .import = import,
                                        .release = release,
                                        .write = copy,
                                        .read = copy,
                                        .copy = copy,
                                        .clear = clear};

int ls_host_threads(void) {
#ifdef _OPENMP
  return omp_get_max_threads();
#else
  return 1;
#endif
}

static int this_thread(void) {
#ifdef _OPENMP
  return omp_get_thread_num();
#else
  return 0;
#endif
}

void ls_host_split(int threads, int parts, int64_t count, ls_host_turns turns, const void *work) {
  if (threads <= 1 || parts <= 1) {
    for (int part = 0; part < parts; part++)
      turns(work, part, count * part / parts, count * (part + 1) / parts);
    return;
  }
#pragma omp parallel for num_threads(threads < parts ? threads : parts) schedule(static)
  for (int part = 0; part < parts; part++) {
    turns(work, part, count * part / parts, count * (part + 1) / parts);
  }
}

ls_status ls_host_share(int threads, int at_once, int64_t count, ls_turn turn, void *work,
                        ls_error *error) {
  ls_status status = LS_OK;
#pragma omp parallel num_threads(threads)
  {
    ls_error own = {0};
    ls_status made = LS_OK;
#pragma omp for schedule(dynamic, at_once) nowait
    for (int64_t t = 0; t < count; t++)
      if (made == LS_OK) made = turn(work, this_thread(), t, &own);
#pragma omp critical
    if (made != LS_OK && status == LS_OK) {
      status = made;
      if (error) *error = own;
    }
  }
  return status;
}
