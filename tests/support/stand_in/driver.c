/* The driver: devices, primary contexts and virtual memory, with the rules that a program can
 * break. What is not here yet answers CUDA_ERROR_NOT_SUPPORTED (driver_rest.c).
 *
 * Settings: gpus, cc, memory (GiB of each), held (GiB that others hold), peers (none: no access;
 * pcie: no NVLink), driver (the newest CUDA, 13000), mode, fail (the number of a call), fail_with
 * (what it answers, 999), pinnable (MiB of the host's memory that one registration may be of), code
 * (none: no kernels for this architecture), exports (none: no memory as files), words (none:
 * streams write none). Memory that is handed out as a file is a file of memory that says by its
 * name which GPU has it, so another process maps the same bytes. A call that frees does so even
 * where it fails, as the real one reports errors of earlier work. */
#define _GNU_SOURCE
#include "device/cuda/driver_calls.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/stand_in/driver.h"
#include "support/stand_in/stand_in.h"

enum { MOST = 256, GRANULE = 2 << 20, ALREADY_REGISTERED = 712 };

/* Physical memory; it goes when it is released and mapped nowhere. */
typedef struct allocation {
  int device, file; /* the GPU by its number in the machine */
  bool imported;
  size_t bytes;
  int references, maps; /* handles given out, mappings */
  CUenum types;
} allocation;

typedef struct range {
  char *at;
  size_t bytes;
  int allocation;      /* of a mapping */
  unsigned accessible; /* bit d: to device d */
} range;

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static int started;
static int visible[STAND_IN_GPUS], visible_count;
static int contexts[STAND_IN_GPUS]; /* retained */
static size_t used[STAND_IN_GPUS];  /* of this process */
static allocation allocations[MOST];
static range reserved[MOST], mapped[MOST];
static range pinned[MOST];        /* of the host; allocation: 1 where the driver made it */
static _Thread_local int current; /* device + 1 */

static int gpus(void) {
  return (int)stand_in_number("gpus", 1);
}

/* As CUDA does: devices before the first word that names none, and each once. */
static void read_visible(void) {
  const char *at = getenv("CUDA_VISIBLE_DEVICES");
  visible_count = 0;
  if (!at)
    for (; visible_count < gpus(); visible_count++) visible[visible_count] = visible_count;
  while (at && *at && visible_count < STAND_IN_GPUS) {
    char *end;
    const char *number = strncmp(at, "GPU-", 4) == 0 ? at + 4 : at;
    const long index = strtol(number, &end, 10);
    if (end == number || (*end && *end != ',' && *end != '-') || index < 0 || index >= gpus())
      return;
    for (int v = 0; v < visible_count; v++)
      if (visible[v] == index) {
        visible_count = 0;
        return;
      }
    visible[visible_count++] = (int)index;
    at = strchr(at, ',');
    if (at) at++;
  }
}

static _Atomic int works_on_nothing;

void stand_in_reset(void) {
  started = current = works_on_nothing = 0;
  for (int a = 0; a < MOST; a++)
    if (allocations[a].references || allocations[a].maps) close(allocations[a].file);
  for (int r = 0; r < MOST; r++)
    if (reserved[r].at) munmap(reserved[r].at, reserved[r].bytes);
  memset(contexts, 0, sizeof contexts);
  memset(used, 0, sizeof used);
  memset(allocations, 0, sizeof allocations);
  memset(reserved, 0, sizeof reserved);
  memset(mapped, 0, sizeof mapped);
  for (int p = 0; p < MOST; p++)
    if (pinned[p].at && pinned[p].allocation) free(pinned[p].at);
  memset(pinned, 0, sizeof pinned);
}

void stand_in_works_on_nothing(void) {
  works_on_nothing++;
}

/* The number of the GPU whose memory a file is; -1: it is none. */
static int gpu_of_file(int file) {
  char link[64], name[64];
  int gpu;
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t bytes = readlink(link, name, sizeof name - 1);
  if (bytes < 0) return -1;
  name[bytes] = 0;
  return sscanf(name, "/memfd:stand_in_gpu_%d", &gpu) == 1 ? gpu : -1;
}

/* Files of GPUs' memory that the program has open still, beside those of the driver itself. */
static int stand_in_files_left(void) {
  int count = 0;
  DIR *files = opendir("/proc/self/fd");
  for (const struct dirent *each; files && (each = readdir(files));)
    count += *each->d_name != '.' && gpu_of_file(atoi(each->d_name)) >= 0;
  if (files) closedir(files);
  for (int a = 0; a < MOST; a++) count -= allocations[a].references || allocations[a].maps;
  return count;
}

/* What a program has not given back, or gave back before its work was done, in words; NULL:
 * nothing. */
const char *ls_stand_in_left(void);
const char *ls_stand_in_left(void) {
  static char text[192];
  int counts[6] = {0};
  for (int d = 0; d < STAND_IN_GPUS; d++) counts[0] += contexts[d];
  for (int i = 0; i < MOST; i++) {
    counts[4] += pinned[i].at != NULL;
    counts[1] += allocations[i].references > 0;
    counts[2] += mapped[i].at != NULL;
    counts[3] += reserved[i].at != NULL;
  }
  counts[5] = stand_in_files_left();
  snprintf(text, sizeof text,
           "%d contexts, %d allocations, %d mappings, %d reservations, %d pinned, %d files; %d "
           "pieces of "
           "work whose memory was gone",
           counts[0], counts[1], counts[2], counts[3], counts[4], counts[5], works_on_nothing);
  const int all =
      counts[0] + counts[1] + counts[2] + counts[3] + counts[4] + counts[5] + works_on_nothing;
  return all ? text : NULL;
}

/* With left=FILE what was not given back, as the process ends. */
__attribute__((destructor)) static void write_left(void) {
  char path[4096];
  const char *left = started ? ls_stand_in_left() : NULL;
  if (!left || !stand_in_text("left", path, sizeof path)) return;
  FILE *file = fopen(path, "a");
  if (file) fprintf(file, "%s\n", left), fclose(file);
}

CUresult stand_in_driver_enter(const char *call) {
  if (!started && strcmp(call, "cuInit") != 0 && strcmp(call, "cuDriverGetVersion") != 0)
    return CUDA_ERROR_NOT_INITIALIZED;
  if (!stand_in_fails("fail", call)) return CUDA_SUCCESS;
  return (CUresult)stand_in_number("fail_with", CUDA_ERROR_UNKNOWN);
}

bool stand_in_has_context(void) {
  return current && contexts[current - 1];
}

int stand_in_context(void) {
  return current;
}

int stand_in_gpu(void) {
  return current ? visible[current - 1] : -1;
}

static _Thread_local int *spoils;

void stand_in_captures(int *spoiled) {
  spoils = spoiled;
}

CUresult stand_in_spoils_capture(void) {
  if (!spoils) return CUDA_SUCCESS;
  *spoils = 1;
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

/* Whether all of the bytes are mapped, and accessible to one of the devices. */
static bool is_accessible(CUdeviceptr at, size_t bytes, unsigned devices) {
  bool found = false;
  pthread_mutex_lock(&lock);
  for (int m = 0; m < MOST && !found; m++) {
    const size_t base = (size_t)mapped[m].at;
    found = base && mapped[m].accessible & devices && at >= base && at - base < mapped[m].bytes &&
            bytes <= mapped[m].bytes - (at - base);
  }
  pthread_mutex_unlock(&lock);
  return found;
}

bool stand_in_is_mapped(CUdeviceptr at, size_t bytes) {
  return is_accessible(at, bytes, ~0u);
}

bool stand_in_is_reached(CUdeviceptr at, size_t bytes) {
  return current && is_accessible(at, bytes, 1u << (current - 1));
}

bool stand_in_file_of(const void *at, size_t bytes, int *file, size_t *offset) {
  bool found = false;
  pthread_mutex_lock(&lock);
  for (int m = 0; m < MOST && !found; m++) {
    const size_t from = (size_t)at - (size_t)mapped[m].at;
    found = mapped[m].at && from < mapped[m].bytes && bytes <= mapped[m].bytes - from;
    if (!found) continue;
    *file = allocations[mapped[m].allocation].file;
    *offset = from;
  }
  pthread_mutex_unlock(&lock);
  return found;
}

/* Begins a call that wants a device. */
#define ENTER_DEVICE(device)                                                         \
  do {                                                                               \
    STAND_IN_ENTER();                                                                \
    if ((device) < 0 || (device) >= visible_count) return CUDA_ERROR_INVALID_DEVICE; \
  } while (0)

CUresult cuInit(unsigned flags) {
  STAND_IN_ENTER();
  if (flags) return CUDA_ERROR_INVALID_VALUE;
  read_visible();
  started = 1;
  return visible_count ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

CUresult cuDriverGetVersion(int *version) {
  STAND_IN_ENTER();
  *version = (int)stand_in_number("driver", 13000);
  return CUDA_SUCCESS;
}

/* Of no consequence to the count: they say what failed. */
CUresult cuGetErrorName(CUresult error, const char **text) {
#define NAME(name, value) {value, #name},
  static const struct {
    long value;
    const char *name;
  } names[] = {LS_DRIVER_VALUES(NAME)};
  for (size_t n = 0; n < sizeof names / sizeof *names; n++)
    if ((CUresult)names[n].value == error && strncmp(names[n].name, "CUDA_", 5) == 0) {
      *text = names[n].name;
      return CUDA_SUCCESS;
    }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceGetCount(int *count) {
  STAND_IN_ENTER();
  *count = visible_count;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  ENTER_DEVICE(ordinal);
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int bytes, CUdevice device) {
  ENTER_DEVICE(device);
  const bool other = stand_in_number("mixed", 0) && visible[device] > 0;
  snprintf(name, (size_t)bytes, other ? "Another GPU" : "Stand-in GPU");
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *id, int bytes, CUdevice device) {
  ENTER_DEVICE(device);
  snprintf(id, (size_t)bytes, "0000:%02X:00.0", 16 + visible[device]);
  return CUDA_SUCCESS;
}

static size_t memory_of_each(void) {
  return (size_t)stand_in_number("memory", 80) << 30;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
  ENTER_DEVICE(device);
  *bytes = memory_of_each();
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUenum attribute, CUdevice device) {
  ENTER_DEVICE(device);
  const int cc = (int)stand_in_number("cc", 90);
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = cc / 10; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = cc % 10; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 132; break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: *value = STAND_IN_CACHE; break;
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
      *value = !stand_in_is("vmm", "none");
      break;
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
      *value = !stand_in_is("exports", "none");
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE: *value = (int)stand_in_number("mode", 0); break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
  ENTER_DEVICE(device);
  memset(uuid, 0, sizeof *uuid);
  snprintf((char *)uuid, sizeof *uuid, "stand-in %d", visible[device]);
  return CUDA_SUCCESS;
}

/* Whether a GPU reaches another's memory, by their numbers in the machine. */
static bool reaches(int gpu, int other) {
  if (gpu == other) return true;
  return stand_in_is("peers", "pairs") ? gpu / 2 == other / 2 : !stand_in_is("peers", "none");
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
  ENTER_DEVICE(device);
  if (peer < 0 || peer >= visible_count || peer == device) return CUDA_ERROR_INVALID_DEVICE;
  *can = reaches(visible[device], visible[peer]);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int *value, CUenum attribute, CUdevice device, CUdevice peer) {
  ENTER_DEVICE(device);
  if (peer < 0 || peer >= visible_count || peer == device) return CUDA_ERROR_INVALID_DEVICE;
  if (attribute != CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED) return CUDA_ERROR_INVALID_VALUE;
  *value = !stand_in_is("peers", "none") && !stand_in_is("peers", "pcie");
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  ENTER_DEVICE(device);
  if (stand_in_number("mode", 0) == CU_COMPUTEMODE_PROHIBITED) return CUDA_ERROR_DEVICE_UNAVAILABLE;
  pthread_mutex_lock(&lock);
  contexts[device]++;
  pthread_mutex_unlock(&lock);
  *context = (CUcontext)(size_t)(device + 1);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  const CUresult result = stand_in_driver_enter(__func__);
  if (device < 0 || device >= visible_count) return CUDA_ERROR_INVALID_DEVICE;
  pthread_mutex_lock(&lock);
  const int held = contexts[device];
  if (held) contexts[device]--;
  pthread_mutex_unlock(&lock);
  return held ? result : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  const size_t device = (size_t)context;
  const CUresult result = stand_in_driver_enter(__func__);
  if (result && device) return result;
  if (device && (device > (size_t)visible_count || !contexts[device - 1]))
    return CUDA_ERROR_INVALID_CONTEXT;
  current = (int)device;
  return result;
}

CUresult cuMemGetInfo_v2(size_t *left, size_t *total) {
  STAND_IN_CONTEXT();
  *total = memory_of_each();
  *left = *total - ((size_t)stand_in_number("held", 0) << 30) - used[current - 1];
  return CUDA_SUCCESS;
}

static void unlock(pthread_mutex_t *const *held) {
  pthread_mutex_unlock(*held);
}

/* The rest of the function has the lists of memory for itself. */
#define LOCKED()                                                               \
  __attribute__((cleanup(unlock))) pthread_mutex_t *const locked_here = &lock; \
  pthread_mutex_lock(locked_here)

static int is_proper(const CUmemAllocationProp *of) {
  return of->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
         of->location.type == CU_MEM_LOCATION_TYPE_DEVICE && of->location.id >= 0 &&
         of->location.id < visible_count && !of->win32HandleMetaData;
}

CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *of,
                                       CUenum option) {
  STAND_IN_ENTER();
  if (!is_proper(of) || option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
    return CUDA_ERROR_INVALID_VALUE;
  *bytes = GRANULE;
  return CUDA_SUCCESS;
}

static int free_range(const range *ranges) {
  for (int r = 0; r < MOST; r++)
    if (!ranges[r].at) return r;
  abort();
}

/* The range that begins there and is as long; -1: there is none. */
static int find_range(const range *ranges, CUdeviceptr at, size_t bytes) {
  for (int r = 0; r < MOST; r++)
    if (ranges[r].at == (char *)(size_t)at && ranges[r].at && ranges[r].bytes == bytes) return r;
  return -1;
}

/* Whether [at, at + bytes) touches one of the ranges. */
static int touches(const range *ranges, CUdeviceptr at, size_t bytes) {
  for (int r = 0; r < MOST; r++)
    if (ranges[r].at && (size_t)ranges[r].at < at + bytes &&
        at < (size_t)ranges[r].at + ranges[r].bytes)
      return 1;
  return 0;
}

CUresult cuMemAddressReserve(CUdeviceptr *at, size_t bytes, size_t alignment, CUdeviceptr wish,
                             unsigned long long flags) {
  LOCKED();
  STAND_IN_ENTER();
  STAND_IN_NOT_CAPTURED();
  (void)wish;
  if (!bytes || bytes % GRANULE || flags || (alignment & (alignment - 1)))
    return CUDA_ERROR_INVALID_VALUE;
  char *base = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  reserved[free_range(reserved)] = (range){.at = base, .bytes = bytes};
  *at = (CUdeviceptr)(size_t)base;
  return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr at, size_t bytes) {
  LOCKED();
  const CUresult result = stand_in_driver_enter(__func__);
  const int r = find_range(reserved, at, bytes);
  if (r < 0 || touches(mapped, at, bytes)) return CUDA_ERROR_INVALID_VALUE;
  munmap(reserved[r].at, bytes);
  reserved[r] = (range){.at = NULL};
  return result;
}

static int free_allocation(void) {
  for (int a = 0; a < MOST; a++)
    if (!allocations[a].references && !allocations[a].maps) return a;
  abort();
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                     const CUmemAllocationProp *of, unsigned long long flags) {
  LOCKED();
  STAND_IN_ENTER();
  STAND_IN_NOT_CAPTURED();
  if (!is_proper(of) || !bytes || bytes % GRANULE || flags) return CUDA_ERROR_INVALID_VALUE;
  if (of->requestedHandleTypes && stand_in_is("exports", "none")) return CUDA_ERROR_NOT_SUPPORTED;
  const size_t held = (size_t)stand_in_number("held", 0) << 30;
  if (used[of->location.id] + held + bytes > memory_of_each()) return CUDA_ERROR_OUT_OF_MEMORY;
  char name[64];
  const int a = free_allocation(), gpu = visible[of->location.id];
  snprintf(name, sizeof name, "stand_in_gpu_%d", gpu);
  const int file = memfd_create(name, MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, (off_t)bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  allocations[a] = (allocation){gpu, file, false, bytes, 1, 0, of->requestedHandleTypes};
  used[of->location.id] += bytes;
  *handle = (CUmemGenericAllocationHandle)(a + 1);
  return CUDA_SUCCESS;
}

/* The caller's file stays its own. */
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shared,
                                        CUenum type) {
  LOCKED();
  STAND_IN_ENTER();
  STAND_IN_NOT_CAPTURED();
  struct stat about;
  const int given = (int)(size_t)shared, gpu = gpu_of_file(given);
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || gpu < 0 || fstat(given, &about))
    return CUDA_ERROR_INVALID_VALUE;
  bool seen = false;
  for (int v = 0; v < visible_count; v++) seen = seen || visible[v] == gpu;
  if (!seen) return CUDA_ERROR_NOT_SUPPORTED;
  const int a = free_allocation(), file = fcntl(given, F_DUPFD_CLOEXEC, 0);
  if (file < 0) return CUDA_ERROR_UNKNOWN;
  allocations[a] = (allocation){gpu, file, true, (size_t)about.st_size, 1, 0, 0};
  *handle = (CUmemGenericAllocationHandle)(a + 1);
  return CUDA_SUCCESS;
}

static allocation *find_allocation(CUmemGenericAllocationHandle handle) {
  if (!handle || handle > MOST || !allocations[handle - 1].references) return NULL;
  return &allocations[handle - 1];
}

static void drop(allocation *of) {
  if (of->references || of->maps) return;
  for (int v = 0; v < visible_count; v++)
    if (visible[v] == of->device && !of->imported) used[v] -= of->bytes;
  close(of->file);
  *of = (allocation){.bytes = 0};
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  LOCKED();
  const CUresult result = stand_in_driver_enter(__func__);
  allocation *of = find_allocation(handle);
  if (!of) return CUDA_ERROR_INVALID_VALUE;
  of->references--;
  drop(of);
  return result;
}

CUresult cuMemMap(CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  LOCKED();
  STAND_IN_ENTER();
  STAND_IN_NOT_CAPTURED();
  allocation *of = find_allocation(handle);
  if (!of || offset || flags || bytes != of->bytes || touches(mapped, at, bytes))
    return CUDA_ERROR_INVALID_VALUE;
  for (int r = 0; r < MOST; r++) {
    const size_t base = (size_t)reserved[r].at;
    if (!base || at < base || at + bytes > base + reserved[r].bytes || (at - base) % GRANULE)
      continue;
    mapped[free_range(mapped)] = (range){(char *)(size_t)at, bytes, (int)handle - 1, 0};
    of->maps++;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemSetAccess(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *access, size_t count) {
  LOCKED();
  STAND_IN_ENTER();
  STAND_IN_NOT_CAPTURED();
  const int m = find_range(mapped, at, bytes);
  if (m < 0 || !count) return CUDA_ERROR_INVALID_VALUE;
  for (size_t c = 0; c < count; c++)
    if (access[c].location.type != CU_MEM_LOCATION_TYPE_DEVICE || access[c].location.id < 0 ||
        access[c].location.id >= visible_count ||
        access[c].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
      return CUDA_ERROR_INVALID_VALUE;
  for (size_t c = 0; c < count; c++)
    if (!reaches(visible[access[c].location.id], allocations[mapped[m].allocation].device))
      return CUDA_ERROR_INVALID_DEVICE;
  if (mmap(mapped[m].at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
           allocations[mapped[m].allocation].file, 0) == MAP_FAILED)
    return CUDA_ERROR_OUT_OF_MEMORY;
  for (size_t c = 0; c < count; c++) mapped[m].accessible |= 1u << access[c].location.id;
  return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr at, size_t bytes) {
  LOCKED();
  const CUresult result = stand_in_driver_enter(__func__);
  const int m = find_range(mapped, at, bytes);
  if (m < 0) return CUDA_ERROR_INVALID_VALUE;
  allocation *of = &allocations[mapped[m].allocation];
  if (mmap(mapped[m].at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
           -1, 0) == MAP_FAILED)
    return CUDA_ERROR_OUT_OF_MEMORY;
  mapped[m] = (range){.at = NULL};
  of->maps--;
  drop(of);
  return result;
}

CUresult cuMemExportToShareableHandle(void *shared, CUmemGenericAllocationHandle handle,
                                      CUenum type, unsigned long long flags) {
  LOCKED();
  STAND_IN_ENTER();
  const allocation *of = find_allocation(handle);
  if (!of || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || !(of->types & type))
    return CUDA_ERROR_INVALID_VALUE;
  const int file = fcntl(of->file, F_DUPFD_CLOEXEC, 0);
  if (file < 0) return CUDA_ERROR_UNKNOWN;
  memcpy(shared, &file, sizeof file);
  return CUDA_SUCCESS;
}

/* ---- memory of the host ---------------------------------------------------------------------- */

bool stand_in_is_pinned(const void *at, size_t bytes) {
  LOCKED();
  for (int p = 0; p < MOST; p++) {
    const size_t from = (size_t)at - (size_t)pinned[p].at;
    if (pinned[p].at && from < pinned[p].bytes && bytes <= pinned[p].bytes - from) return true;
  }
  return false;
}

static CUresult unpin(void *at, int made) {
  LOCKED();
  for (int p = 0; p < MOST; p++) {
    if (!at || pinned[p].at != at || pinned[p].allocation != made) continue;
    pinned[p] = (range){.at = NULL};
    if (made) free(at);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemHostAlloc(void **at, size_t bytes, unsigned flags) {
  LOCKED();
  STAND_IN_CONTEXT();
  STAND_IN_NOT_CAPTURED();
  if (!bytes || flags > 7) return CUDA_ERROR_INVALID_VALUE;
  *at = malloc(bytes);
  memset(*at, 0xa5, bytes); /* not zeroed by the real one either */
  pinned[free_range(pinned)] = (range){*at, bytes, 1, 1};
  return CUDA_SUCCESS;
}

CUresult cuMemFreeHost(void *at) {
  const CUresult result = stand_in_driver_enter(__func__), freed = unpin(at, 1);
  return freed ? freed : result;
}

CUresult cuMemHostRegister_v2(void *at, size_t bytes, unsigned flags) {
  LOCKED();
  STAND_IN_CONTEXT();
  STAND_IN_NOT_CAPTURED();
  if (!at || !bytes || flags > 15) return CUDA_ERROR_INVALID_VALUE;
  if (touches(pinned, (CUdeviceptr)(size_t)at, bytes)) return ALREADY_REGISTERED;
  if (bytes > (size_t)stand_in_number("pinnable", 1 << 20) << 20) return CUDA_ERROR_OUT_OF_MEMORY;
  pinned[free_range(pinned)] = (range){at, bytes, 0, 1};
  return CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void *at) {
  const CUresult result = stand_in_driver_enter(__func__), freed = unpin(at, 0);
  return freed ? freed : result;
}

/* Where a GPU sees it is another place, so that nobody takes one for the other. */
enum { SEEN_BIT = 50 };

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *seen, void *at, unsigned flags) {
  STAND_IN_CONTEXT();
  if (flags || !stand_in_is_pinned(at, 1)) return CUDA_ERROR_INVALID_VALUE;
  *seen = (CUdeviceptr)(size_t)at | (CUdeviceptr)1 << SEEN_BIT;
  return CUDA_SUCCESS;
}

void *stand_in_word(CUdeviceptr seen) {
  void *at = (void *)(size_t)(seen & ~((CUdeviceptr)1 << SEEN_BIT));
  const bool is = seen >> SEEN_BIT & 1 && seen % sizeof(uint32_t) == 0;
  return is && stand_in_is_pinned(at, sizeof(uint32_t)) ? at : NULL;
}
