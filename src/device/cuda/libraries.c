/* Finding, opening and refusing NVIDIA's libraries. */
#include "device/cuda/libraries.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

/* A pointer of a table, and its symbol. */
typedef struct symbol {
  const char *name;
  size_t offset; /* in ls_cuda_libraries */
} symbol;

#define OFFSET(table, name) offsetof(ls_cuda_libraries, table) + offsetof(ls_##table##_calls, name)
#define DRIVER_SYMBOL(result, name, arguments) {#name, OFFSET(driver, name)},
#define NVML_SYMBOL(result, name, arguments) {#name, OFFSET(nvml, name)},
#define CUBLASLT_SYMBOL(result, name, arguments) {#name, OFFSET(cublaslt, name)},
#define CUDNN_SYMBOL(result, name, arguments) {#name, OFFSET(cudnn, name)},
#define NCCL_SYMBOL(result, name, arguments) {#name, OFFSET(nccl, name)},

static const symbol driver_symbols[] = {LS_DRIVER_CALLS(DRIVER_SYMBOL)};
static const symbol nvml_symbols[] = {LS_NVML_CALLS(NVML_SYMBOL)};
static const symbol cublaslt_symbols[] = {LS_CUBLASLT_CALLS(CUBLASLT_SYMBOL)};
static const symbol cudnn_symbols[] = {LS_CUDNN_CALLS(CUDNN_SYMBOL)};
static const symbol nccl_symbols[] = {LS_NCCL_CALLS(NCCL_SYMBOL)};

/* What a library says of itself. */
typedef struct edition {
  int number; /* to be compared with the least, in the library's own way of counting */
  int major;
  int cuda;
  char text[48];
} edition;

/* CUDA 12.0 needs a driver of 525.60.13 (CUDA Compatibility, minor version compatibility), and
 * nothing here is newer than 12.0. */
enum { LEAST_CUDA = 12000 };

static int major_of(int cuda) {
  return cuda / 1000;
}

static ls_status ask_driver(ls_cuda_libraries *all, edition *is, ls_error *error) {
  LS_TRY(
      ls_cuda_did(all, all->driver.cuDriverGetVersion(&is->number), "cuDriverGetVersion", error));
  is->major = major_of(is->number);
  is->cuda = is->number;
  snprintf(is->text, sizeof is->text, "CUDA %d.%d", is->major, is->number % 1000 / 10);
  return LS_OK;
}

/* The release of the driver's kernel module; NVML has no version of its own. */
static ls_status ask_nvml(ls_cuda_libraries *all, edition *is, ls_error *error) {
  LS_TRY(ls_nvml_did(all, all->nvml.nvmlInit_v2(), "nvmlInit_v2", error));
  const ls_status status =
      ls_nvml_did(all, all->nvml.nvmlSystemGetDriverVersion(is->text, sizeof is->text),
                  "nvmlSystemGetDriverVersion", error);
  if (status != LS_OK) (void)all->nvml.nvmlShutdown();
  return status;
}

/* Both since 12: major * 10000 + minor * 100 + patch. */
static void take_version(edition *is, size_t number) {
  is->number = (int)number;
  is->major = is->number / 10000;
  snprintf(is->text, sizeof is->text, "%d.%d.%d", is->major, is->number / 100 % 100,
           is->number % 100);
}

static ls_status ask_cublaslt(ls_cuda_libraries *all, edition *is, ls_error *error) {
  (void)error;
  take_version(is, all->cublaslt.cublasLtGetVersion());
  is->cuda = (int)all->cublaslt.cublasLtGetCudartVersion();
  return LS_OK;
}

static ls_status ask_cudnn(ls_cuda_libraries *all, edition *is, ls_error *error) {
  (void)error;
  take_version(is, all->cudnn.cudnnGetVersion());
  is->cuda = (int)all->cudnn.cudnnGetCudartVersion();
  return LS_OK;
}

/* A library that is loaded, by an address in it, and the CUDA that a text of it says. */
typedef struct spoken {
  const char *of;
  int cuda;
} spoken;

/* "NCCL version 2.28.9+cuda13.0"; 0: no text says it. */
static int cuda_in(const char *begin, const char *end) {
  static const char sign[] = "+cuda";
  for (const char *at = begin; (at = memmem(at, (size_t)(end - at), sign, sizeof sign - 1)); at++) {
    char text[16] = "";
    int major, minor;
    memcpy(text, at, end - at < 15 ? (size_t)(end - at) : 15);
    if (sscanf(text, "+cuda%d.%d", &major, &minor) == 2) return 1000 * major + 10 * minor;
  }
  return 0;
}

static const char *segment_at(const struct dl_phdr_info *object, int number) {
  return (const char *)(object->dlpi_addr + object->dlpi_phdr[number].p_vaddr);
}

/* Texts lie among the first bytes of a segment; code for GPUs, which would be read from the drive,
 * behind them. */
static int look_for_cuda(struct dl_phdr_info *object, size_t bytes, void *context) {
  enum { FIRST = 16 << 20 };
  spoken *self = context;
  bool is_it = false;
  (void)bytes;
  for (int s = 0; s < object->dlpi_phnum; s++) {
    const char *begin = segment_at(object, s);
    is_it |= object->dlpi_phdr[s].p_type == PT_LOAD && self->of >= begin &&
             self->of < begin + object->dlpi_phdr[s].p_memsz;
  }
  for (int s = 0; s < object->dlpi_phnum && is_it && !self->cuda; s++) {
    const ElfW(Phdr) *of = &object->dlpi_phdr[s];
    if (of->p_type != PT_LOAD || !(of->p_flags & PF_R)) continue;
    self->cuda = cuda_in(segment_at(object, s),
                         segment_at(object, s) + (of->p_filesz < FIRST ? of->p_filesz : FIRST));
  }
  return is_it;
}

/* ncclGetVersion asks no GPU. */
static ls_status ask_nccl(ls_cuda_libraries *all, edition *is, ls_error *error) {
  int number = 0;
  const ncclResult_t result = all->nccl.ncclGetVersion(&number);
  if (result != ncclSuccess)
    return ls_fail(error, LS_FAILED, "ncclGetVersion: %s", all->nccl.ncclGetErrorString(result));
  take_version(is, (size_t)number);
  spoken self = {.cuda = 0};
  memcpy(&self.of, &all->nccl.ncclGetVersion, sizeof self.of);
  (void)dl_iterate_phdr(look_for_cuda, &self);
  is->cuda = self.cuda;
  return LS_OK;
}

static const struct row {
  const char *name;
  const char *files[2]; /* the newest first */
  int majors[2];        /* of each; 0: not looked at */
  int least;
  const char *least_text;
  const symbol *symbols;
  size_t count;
  ls_status (*ask)(ls_cuda_libraries *all, edition *is, ls_error *error);
  const char *remedy, *remedy_12; /* for drivers of CUDA 12; NULL: the same */
} rows[LS_CUDA_LIBRARY_COUNT] = {
    [LS_CUDA_DRIVER] = {"NVIDIA driver",
                        {"libcuda.so.1"},
                        {0},
                        LEAST_CUDA,
                        "CUDA 12.0 (driver 525.60.13)",
                        driver_symbols,
                        sizeof driver_symbols / sizeof(symbol),
                        ask_driver,
                        "install NVIDIA's driver, 525.60.13 or newer; in a container start it with "
                        "the GPUs (docker run --gpus all)",
                        NULL},
    [LS_CUDA_NVML] = {"NVML",
                      {"libnvidia-ml.so.1"},
                      {0},
                      0,
                      "",
                      nvml_symbols,
                      sizeof nvml_symbols / sizeof(symbol),
                      ask_nvml,
                      "it comes with NVIDIA's driver; in a container set "
                      "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
                      NULL},
    [LS_CUDA_CUBLASLT] = {"cuBLASLt",
                          {"libcublasLt.so.13", "libcublasLt.so.12"},
                          {13, 12},
                          120000,
                          "12.0",
                          cublaslt_symbols,
                          sizeof cublaslt_symbols / sizeof(symbol),
                          ask_cublaslt,
                          "pip install nvidia-cublas in an active virtual environment, or set "
                          "CUDA_HOME to a toolkit",
                          "pip install nvidia-cublas-cu12 in an active virtual environment, or set "
                          "CUDA_HOME to a toolkit of CUDA 12"},
    [LS_CUDA_CUDNN] = {"cuDNN",
                       {"libcudnn.so.9"},
                       {9},
                       90000,
                       "9.0",
                       cudnn_symbols,
                       sizeof cudnn_symbols / sizeof(symbol),
                       ask_cudnn,
                       "pip install nvidia-cudnn-cu13 in an active virtual environment, or install "
                       "cuDNN 9",
                       "pip install nvidia-cudnn-cu12 in an active virtual environment, or install "
                       "cuDNN 9 for CUDA 12"},
    [LS_CUDA_NCCL] = {"NCCL",
                      {"libnccl.so.2"},
                      {2},
                      21900,
                      "2.19",
                      nccl_symbols,
                      sizeof nccl_symbols / sizeof(symbol),
                      ask_nccl,
                      "pip install nvidia-nccl-cu13 in an active virtual environment, or install "
                      "NCCL 2.19 or newer",
                      "pip install nvidia-nccl-cu12 in an active virtual environment, or install "
                      "NCCL 2.19 or newer"},
};

const char *ls_cuda_library_name(ls_cuda_library_id id) {
  return rows[id].name;
}

const char *ls_cuda_library_remedy(ls_cuda_library_id id, int cuda) {
  return rows[id].remedy_12 && cuda && major_of(cuda) <= 12 ? rows[id].remedy_12 : rows[id].remedy;
}

ls_cuda_places ls_cuda_places_usual(ls_arena *arena) {
  ls_cuda_places places = {.loader = true};
  const char *home = getenv("CUDA_HOME"), *environment = getenv("VIRTUAL_ENV");
  const char *packages = "lib/python*/site-packages/nvidia/*/lib/lib*.so.*";
  char **files = NULL;
  int count = 0;
  if (!environment || !*environment ||
      ls_file_glob(arena, ls_arena_printf(arena, "%s/%s", environment, packages), &files, &count,
                   NULL) != LS_OK)
    count = 0;
  places.folders = LS_NEW_ARRAY(arena, const char *, count + 1);
  if (home && *home)
    places.folders[places.folder_count++] = ls_arena_printf(arena, "%s/lib64", home);
  for (int f = 0; f < count; f++) { /* sorted: files of one folder follow each other */
    *strrchr(files[f], '/') = 0;
    if (f && strcmp(files[f], files[f - 1]) == 0) continue;
    places.folders[places.folder_count++] = files[f];
  }
  return places;
}

/* The file that has a function: of a library that the loader found. */
static void note_path(ls_cuda_library *library, const char *file, const void *function) {
  Dl_info info;
  const char *path = function && dladdr(function, &info) && info.dli_fname ? info.dli_fname : file;
  if (!*library->path) snprintf(library->path, sizeof library->path, "%s", path);
}

/* It stays in memory when it is closed: these libraries have threads and exit handlers of their
 * own, and what they allocate belongs to them until the end. NULL where no place has it; *why keeps
 * what the loader says of a file that is there. */
static void *find(const ls_cuda_places *places, const char *file, ls_cuda_library *library,
                  char why[256]) {
  for (int p = places->loader ? -1 : 0; p < places->folder_count; p++) {
    char path[4096];
    const int length = p < 0 ? snprintf(path, sizeof path, "%s", file)
                             : snprintf(path, sizeof path, "%s/%s", places->folders[p], file);
    if (length >= (int)sizeof path || (p >= 0 && !ls_file_exists(path))) continue;
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle && p >= 0) snprintf(library->path, sizeof library->path, "%.511s", path);
    if (handle) return handle;
    const char *said = dlerror();
    if (said && !strstr(said, "No such file")) snprintf(why, 256, "%s", said);
  }
  return NULL;
}

/* Fills the table; the first symbol that is missing, or NULL. */
static const char *fill(ls_cuda_libraries *all, const struct row *row, void *handle) {
  const char *missing = NULL;
  for (size_t s = 0; s < row->count; s++) {
    void *address = dlsym(handle, row->symbols[s].name);
    if (!address && !missing) missing = row->symbols[s].name;
    memcpy((char *)all + row->symbols[s].offset, &address, sizeof address);
  }
  return missing;
}

static void clear(ls_cuda_libraries *all, ls_cuda_library_id id) {
  for (size_t s = 0; s < rows[id].count; s++)
    memset((char *)all + rows[id].symbols[s].offset, 0, sizeof(void *));
  all->of[id] = (ls_cuda_library){.handle = NULL};
}

/* Versions before symbols: of a library that is too old it says more. The first symbols of each
 * list are those that say the version, and all versions have them. */
static ls_status look_at(ls_cuda_libraries *all, ls_cuda_library_id id, int wanted,
                         ls_error *error) {
  const struct row *row = &rows[id];
  ls_cuda_library *library = &all->of[id];
  const char *missing = fill(all, row, library->handle);
  void *first;
  memcpy(&first, (char *)all + row->symbols[0].offset, sizeof first);
  note_path(library, row->files[0], first);
  edition is = {.number = 0};
  const int cuda = all->of[LS_CUDA_DRIVER].cuda;
  const char *remedy = ls_cuda_library_remedy(id, cuda);
  const bool can_ask = id == LS_CUDA_DRIVER ? all->driver.cuDriverGetVersion != NULL : !missing;
  if (can_ask) LS_TRY(row->ask(all, &is, error));
  if (can_ask && (is.number < row->least || (wanted && is.major != wanted)))
    return ls_fail(error, LS_INPUT, "%s: %s is %s; expected %s or newer%s: %s", row->name,
                   library->path, is.text, row->least_text,
                   wanted ? " of the same major version as its name says" : "", remedy);
  if (missing)
    return ls_fail(error, LS_INPUT, "%s: %s has no %s, so it is too old or damaged: %s", row->name,
                   library->path, missing, remedy);
  if (cuda && is.cuda && id != LS_CUDA_DRIVER && major_of(is.cuda) > major_of(cuda))
    return ls_fail(
        error, LS_INPUT,
        "%s: %s is for CUDA %d, and the driver runs CUDA %d.%d: %s, or update the driver",
        row->name, library->path, major_of(is.cuda), major_of(cuda), cuda % 1000 / 10, remedy);
  memcpy(library->version, is.text, sizeof is.text);
  library->cuda = is.cuda;
  return LS_OK;
}

static void leave(ls_cuda_libraries *all, ls_cuda_library_id id) {
  void *handle = all->of[id].handle;
  clear(all, id);
  if (handle) dlclose(handle);
}

ls_status ls_cuda_open(ls_cuda_libraries *all, ls_cuda_library_id id, ls_error *error) {
  const struct row *row = &rows[id];
  if (all->of[id].handle) return LS_OK;
  char why[256] = "";
  ls_error refused = {LS_OK, ""};
  for (int f = 0; f < 2 && row->files[f]; f++) {
    all->of[id].handle = find(&all->places, row->files[f], &all->of[id], why);
    if (!all->of[id].handle) continue;
    const ls_status status = look_at(all, id, row->majors[f], &refused);
    if (status == LS_OK) return LS_OK;
    leave(all, id);
  }
  if (refused.status != LS_OK) return ls_fail(error, refused.status, "%s", refused.text);
  const char *remedy = ls_cuda_library_remedy(id, all->of[LS_CUDA_DRIVER].cuda);
  if (*why) return ls_fail(error, LS_INPUT, "%s: cannot be opened: %s: %s", row->name, why, remedy);
  return ls_fail(error, LS_INPUT,
                 "%s: found no %s on the loader's path, in CUDA_HOME/lib64 or in an active virtual "
                 "environment: %s",
                 row->name, row->files[0], remedy);
}

void ls_cuda_close(ls_cuda_libraries *all) {
  if (all->of[LS_CUDA_NVML].handle) (void)all->nvml.nvmlShutdown();
  for (int id = LS_CUDA_LIBRARY_COUNT - 1; id >= 0; id--) leave(all, (ls_cuda_library_id)id);
}

ls_status ls_cuda_did(const ls_cuda_libraries *all, CUresult result, const char *call,
                      ls_error *error) {
  static const struct {
    CUresult result;
    const char *remedy;
  } known[] = {
      {CUDA_ERROR_OUT_OF_MEMORY, "; free the GPU's memory: nvidia-smi names who holds it"},
      {CUDA_ERROR_STUB_LIBRARY,
       "; the toolkit's stub was loaded: take its folder stubs out of "
       "LD_LIBRARY_PATH"},
      {CUDA_ERROR_DEVICE_UNAVAILABLE,
       "; another process has the GPU for itself: end it, or "
       "nvidia-smi -c DEFAULT"},
      {CUDA_ERROR_NO_DEVICE, "; see CUDA_VISIBLE_DEVICES and nvidia-smi"},
      {CUDA_ERROR_INVALID_DEVICE, "; see CUDA_VISIBLE_DEVICES"},
      {CUDA_ERROR_ECC_UNCORRECTABLE,
       "; its memory had an error that ECC could not correct: "
       "nvidia-smi --gpu-reset, or restart the machine"},
      {CUDA_ERROR_NOT_PERMITTED, "; see the permissions of /dev/nvidia*"},
      {CUDA_ERROR_SYSTEM_NOT_READY, "; start nvidia-fabricmanager"},
      {CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "; the driver was updated: restart the machine"},
      {CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, "; take cuda-compat out of LD_LIBRARY_PATH"},
      {CUDA_ERROR_UNKNOWN, "; the kernel's log has the cause: dmesg | grep NVRM"}};
  if (result == CUDA_SUCCESS) return LS_OK;
  const char *name = NULL, *remedy = "";
  if (!all->driver.cuGetErrorName || all->driver.cuGetErrorName(result, &name) != CUDA_SUCCESS ||
      !name)
    name = "an error without a name";
  for (size_t k = 0; k < sizeof known / sizeof *known; k++)
    if (known[k].result == result) remedy = known[k].remedy;
  return ls_fail(error, LS_FAILED, "%s: %s (%u)%s", call, name, result, remedy);
}

ls_status ls_nvml_did(const ls_cuda_libraries *all, nvmlReturn_t result, const char *call,
                      ls_error *error) {
  if (result == NVML_SUCCESS) return LS_OK;
  const char *text = all->nvml.nvmlErrorString ? all->nvml.nvmlErrorString(result) : NULL;
  const char *remedy =
      result == NVML_ERROR_LIB_RM_VERSION_MISMATCH ? "; the driver was updated: restart the machine"
      : result == NVML_ERROR_DRIVER_NOT_LOADED
          ? "; load the driver's kernel module (modprobe nvidia)"
      : result == NVML_ERROR_GPU_IS_LOST ? "; the GPU left the bus: restart the machine"
                                         : "";
  return ls_fail(error, LS_FAILED, "%s: %s (%u)%s", call, text ? text : "an error without a name",
                 result, remedy);
}
