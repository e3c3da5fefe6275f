/* The driver, the libraries beside it, and what the environment does to them. */
#include "device/cuda/gpu_findings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "cluster/rates.h"
#include "device/cuda/kernels/cuda_modules.h"
#include "text/number.h"

static bool file_starts(ls_arena *arena, const char *path, const char *start) {
  char *text;
  size_t bytes;
  return ls_file_read(arena, path, &text, &bytes, NULL) == LS_OK &&
         strncmp(text, start, strlen(start)) == 0;
}

/* Of vendor NVIDIA and class "display controller" (PCI Code and ID Assignment: 03). */
int ls_cuda_count_on_bus(ls_arena *arena, const char *root) {
  char **vendors;
  int count, found = 0;
  if (ls_file_glob(arena, ls_arena_printf(arena, "%s/sys/bus/pci/devices/*/vendor", root), &vendors,
                   &count, NULL) != LS_OK)
    return 0;
  for (int v = 0; v < count; v++) {
    const int folder = (int)(strrchr(vendors[v], '/') - vendors[v]);
    found += file_starts(arena, vendors[v], "0x10de") &&
             file_starts(arena, ls_arena_printf(arena, "%.*s/class", folder, vendors[v]), "0x03");
  }
  return found;
}

static const char *plural(int count) {
  return count == 1 ? "" : "s";
}

/* The error's text is "NAME: what: what to do", and the name is the line's subject. */
static const char *without_name(const ls_error *error, ls_cuda_library_id id) {
  const size_t length = strlen(ls_cuda_library_name(id));
  return strncmp(error->text, ls_cuda_library_name(id), length) == 0 ? error->text + length + 2
                                                                     : error->text;
}

/* Whether it is there and started; else that is said. */
static bool find_driver(ls_gpu_report *report, int *visible) {
  ls_error error = {LS_OK, ""};
  ls_cuda_libraries *libraries = &report->libraries;
  const int on_bus = ls_cuda_count_on_bus(report->all->arena, report->root);
  *visible = 0;
  if (ls_cuda_open(libraries, LS_CUDA_DRIVER, &error) != LS_OK) {
    const bool absent = strstr(error.text, "found no") != NULL;
    if (absent && !on_bus)
      ls_find(report->all, LS_VERDICT_OK, "NVIDIA GPUs", NULL, "none: training runs on the CPU");
    else if (absent)
      ls_find(report->all, LS_VERDICT_FAIL, "NVIDIA driver", NULL, "%d GPU%s on the PCI bus; %s",
              on_bus, plural(on_bus), without_name(&error, LS_CUDA_DRIVER));
    else
      ls_find(report->all, LS_VERDICT_FAIL, "NVIDIA driver", NULL, "%s",
              without_name(&error, LS_CUDA_DRIVER));
    return false;
  }
  if (ls_cuda_count(libraries, visible, &error) != LS_OK) {
    ls_find(report->all, LS_VERDICT_FAIL, "NVIDIA driver", NULL, "%s", error.text);
    return false;
  }
  return true;
}

/* NVML says the release, with which people install a driver. */
static void find_release(ls_gpu_report *report) {
  ls_cuda_libraries *libraries = &report->libraries;
  const ls_cuda_library *driver = &libraries->of[LS_CUDA_DRIVER];
  ls_error error = {LS_OK, ""};
  unsigned present = 0;
  report->present = -1;
  ls_status status = ls_cuda_open(libraries, LS_CUDA_NVML, &error);
  if (status != LS_OK) {
    ls_find(report->all, LS_VERDICT_OK, "NVIDIA driver", NULL, "%s", driver->version);
    ls_find(report->all, LS_VERDICT_WARNING, "NVML", NULL,
            "%s; clocks, ECC and holders of memory are not known",
            without_name(&error, LS_CUDA_NVML));
    return;
  }
  ls_find(report->all, LS_VERDICT_OK, "NVIDIA driver", NULL, "%s, for %s",
          libraries->of[LS_CUDA_NVML].version, driver->version);
  status = ls_nvml_did(libraries, libraries->nvml.nvmlDeviceGetCount_v2(&present),
                       "nvmlDeviceGetCount_v2", &error);
  if (status == LS_OK)
    report->present = (int)present;
  else
    ls_find(report->all, LS_VERDICT_WARNING, "NVML", NULL, "%s", error.text);
}

static void find_libraries(ls_gpu_report *report) {
  /* What is lost without each, and whether training on these GPUs needs it. */
  const struct {
    ls_cuda_library_id id;
    ls_verdict without;
    const char *lost;
  } wanted[] = {{LS_CUDA_CUBLASLT, LS_VERDICT_FAIL, "matrix products need it"},
                {LS_CUDA_CUDNN, LS_VERDICT_WARNING, "attention falls back to our own kernel"},
                {LS_CUDA_NCCL, LS_VERDICT_WARNING,
                 report->gpu_count > 1
                     ? "GPUs without peer access, and hosts, send data through the host's memory"
                     : "one GPU does without it"}};
  for (size_t w = 0; w < sizeof wanted / sizeof *wanted; w++) {
    ls_error error = {LS_OK, ""};
    const ls_cuda_library *library = &report->libraries.of[wanted[w].id];
    const char *name = ls_cuda_library_name(wanted[w].id);
    if (ls_cuda_open(&report->libraries, wanted[w].id, &error) != LS_OK)
      ls_find(report->all, wanted[w].without, name, NULL, "%s; %s",
              without_name(&error, wanted[w].id), wanted[w].lost);
    else if (library->cuda)
      ls_find(report->all, LS_VERDICT_OK, name, NULL, "%s for CUDA %d.%d, %s", library->version,
              library->cuda / 1000, library->cuda % 1000 / 10, library->path);
    else
      ls_find(report->all, LS_VERDICT_OK, name, NULL, "%s, %s", library->version, library->path);
  }
}

/* All that can be asked; a GPU whose facts cannot be had is said and left out. */
static void read_gpus(ls_gpu_report *report, int visible) {
  ls_cuda_libraries *libraries = &report->libraries;
  report->gpus = LS_NEW_ARRAY(report->all->arena, ls_cuda_gpu, visible + 1);
  report->managed = LS_NEW_ARRAY(report->all->arena, nvmlDevice_t, visible + 1);
  for (int ordinal = 0; ordinal < visible; ordinal++) {
    ls_error error = {LS_OK, ""};
    ls_cuda_gpu *gpu = &report->gpus[report->gpu_count];
    nvmlDevice_t *managed = &report->managed[report->gpu_count];
    if (ls_cuda_gpu_read(libraries, ordinal, gpu, &error) != LS_OK) {
      ls_find(report->all, LS_VERDICT_FAIL, ls_arena_printf(report->all->arena, "GPU %d", ordinal),
              NULL, "%s", error.text);
      continue;
    }
    report->gpu_count++;
    if (!libraries->of[LS_CUDA_NVML].handle) continue;
    const char *call =
        ls_arena_printf(report->all->arena, "nvmlDeviceGetHandleByPciBusId_v2 of GPU %d", ordinal);
    if (ls_nvml_did(libraries, libraries->nvml.nvmlDeviceGetHandleByPciBusId_v2(gpu->bus, managed),
                    call, &error) == LS_OK)
      continue;
    *managed = NULL;
    ls_find(report->all, LS_VERDICT_WARNING, "NVML", NULL, "%s", error.text);
  }
}

/* Kernels are embedded where nvcc was found as Lockstep was built. */
static void find_kernels(ls_gpu_report *report) {
  char size[LS_NUMBER_BYTES];
  double bytes = 0;
  int count = 0;
  for (; ls_cuda_modules[count].name; count++) bytes += (double)*ls_cuda_modules[count].bytes;
  ls_size_show(size, bytes);
  if (count)
    ls_find(report->all, LS_VERDICT_OK, "kernels", NULL, "%d modules in this build, %s", count,
            size);
  else
    ls_find(report->all, LS_VERDICT_WARNING, "kernels", "build where nvcc 12.4 or newer is on PATH",
            "none in this build");
}

/* Where what is timed of products is kept. */
static void find_kept(ls_gpu_report *report) {
  const char *folder = ls_rates_folder(report->all->arena);
  if (folder)
    ls_find(report->all, LS_VERDICT_OK, "products", NULL,
            "their kernels are timed as a run begins, once; kept in %s", folder);
  else
    ls_find(report->all, LS_VERDICT_WARNING, "products", "set HOME or XDG_CACHE_HOME",
            "their kernels are timed as each run begins: there is no folder to keep the times in");
}

/* What training does with them today, and how far that was tried. */
static void find_use(ls_gpu_report *report) {
  if (report->gpu_count == 1)
    ls_find(report->all, LS_VERDICT_OK, "training", NULL, "device.kind auto takes this GPU");
  else
    ls_find(report->all, LS_VERDICT_WARNING, "training",
            "compare with device.kind=cpu, and these lines with nvidia-smi",
            "device.kind auto takes these GPUs; several together have run on stand-ins alone");
  ls_find(report->all, LS_VERDICT_OK, "generate, evaluate", NULL,
          "take what training takes; they have run on stand-ins alone: compare with "
          "device.kind=cpu");
  ls_find(report->all, LS_VERDICT_OK, "never on hardware", NULL,
          "bench, dtype: fp8, quantize, adapters, device.tune, and most tasks, optimizers and "
          "families: a run names them as it begins");
}

void ls_cuda_findings(ls_findings *all, const char *root, const ls_cuda_places *places) {
  ls_gpu_report report = {.all = all, .root = root, .libraries = {.places = *places}};
  int visible;
  all->about = "GPUs";
  if (find_driver(&report, &visible)) {
    find_release(&report);
    ls_cuda_visible_findings(&report, visible);
    read_gpus(&report, visible);
    if (visible) {
      find_libraries(&report);
      ls_cuda_gpu_findings(&report);
      ls_cuda_pair_findings(&report);
      ls_cuda_environment_findings(&report);
      find_kernels(&report);
      find_kept(&report);
      find_use(&report);
    }
  }
  ls_cuda_close(&report.libraries);
}

int ls_cuda_visible(const ls_cuda_places *places, char name[96], ls_error *why) {
  ls_cuda_libraries libraries = {.places = *places};
  ls_cuda_gpu gpu = {.name = ""};
  int count = 0;
  ls_status status = ls_cuda_open(&libraries, LS_CUDA_DRIVER, why);
  if (status == LS_OK) status = ls_cuda_count(&libraries, &count, why);
  if (status == LS_OK && count) status = ls_cuda_gpu_read(&libraries, 0, &gpu, why);
  snprintf(name, 96, "%s", gpu.name);
  ls_cuda_close(&libraries);
  return status == LS_OK ? count : 0;
}

static const char list_remedy[] = "nvidia-smi -L lists them; unset CUDA_VISIBLE_DEVICES for all";

/* Whether a GPU's UUID begins with the word, as CUDA_VISIBLE_DEVICES may have it. */
static bool is_uuid(const ls_gpu_report *report, const char *word) {
  const ls_nvml_calls *nvml = &report->libraries.nvml;
  for (int g = 0; g < report->present; g++) {
    nvmlDevice_t device;
    char uuid[96];
    if (nvml->nvmlDeviceGetHandleByIndex_v2((unsigned)g, &device) == NVML_SUCCESS &&
        nvml->nvmlDeviceGetUUID(device, uuid, sizeof uuid) == NVML_SUCCESS &&
        strncmp(uuid, word, strlen(word)) == 0)
      return true;
  }
  return report->present < 0;
}

/* Why CUDA stops at a word; NULL: it does not, or nobody knows how many GPUs there are. */
static const char *wrong_word(const ls_gpu_report *report, const char *word) {
  char *rest;
  const long index = strtol(word, &rest, 10);
  if (strncmp(word, "MIG-", 4) == 0) return NULL;
  if (strncmp(word, "GPU-", 4) == 0) return is_uuid(report, word) ? NULL : "no GPU has this UUID";
  if (rest == word || *rest || index < 0) return "neither a number nor GPU-UUID";
  return report->present < 0 || index < report->present ? NULL : "there is no such GPU";
}

/* The first wrong word of a list, or that the driver leaves out more than those. */
static void find_listed(ls_gpu_report *report, const char *name, const char *value, int visible) {
  ls_findings *all = report->all;
  char *rest = ls_arena_strdup(all->arena, value);
  int words = 0;
  for (char *word; (word = strsep(&rest, ",")); words++) {
    const char *why = wrong_word(report, word);
    if (!why) continue;
    ls_find(all, LS_VERDICT_FAIL, name, list_remedy,
            "\"%.80s\": \"%.40s\": %s, and CUDA leaves it out with all that follow", value, word,
            why);
    return;
  }
  if (words > visible)
    ls_find(all, LS_VERDICT_FAIL, name, list_remedy, "\"%.80s\": the driver shows %d of %d GPUs",
            value, visible, words);
  else
    ls_find(all, LS_VERDICT_OK, name, NULL, "\"%.80s\": %d GPU%s", value, visible, plural(visible));
}

void ls_cuda_visible_findings(ls_gpu_report *report, int visible) {
  const char *name = "CUDA_VISIBLE_DEVICES", *value = getenv(name);
  ls_findings *all = report->all;
  if (!value && visible)
    ls_find(all, LS_VERDICT_OK, name, NULL, "not set: all %d GPU%s", visible, plural(visible));
  else if (!value)
    ls_find(all, LS_VERDICT_WARNING, name, "see nvidia-smi and the permissions of /dev/nvidia*",
            "not set, and the driver has no GPU: training runs on the CPU");
  else if (!*value || strncmp(value, "-1", 2) == 0)
    ls_find(all, LS_VERDICT_WARNING, name, list_remedy,
            "\"%.80s\": hides all GPUs: training runs on the CPU", value);
  else
    find_listed(report, name, value, visible);
}

void ls_cuda_environment_findings(ls_gpu_report *report) {
  static const struct {
    const char *name, *effect;
  } known[] = {{"NCCL_P2P_DISABLE", "GPUs of a host copy through its memory"},
               {"NCCL_SHM_DISABLE", "processes of a host meet over the network"},
               {"NCCL_IB_DISABLE", "hosts meet over TCP, not InfiniBand"},
               {"NCCL_ALGO", "forces what NCCL chooses by size"},
               {"NCCL_PROTO", "forces what NCCL chooses by size"},
               {"NCCL_LAUNCH_MODE", "orders launches of all GPUs of a process"},
               {"NCCL_HOSTID", "makes processes of one host look like several hosts"},
               {"CUDA_LAUNCH_BLOCKING", "each launch waits for its kernel: nothing overlaps"}};
  enum { KNOWN = sizeof known / sizeof *known };
  int told = 0;
  for (int k = 0; k < KNOWN; k++) {
    const char *value = getenv(known[k].name);
    if (!value || strcmp(value, "0") == 0) continue;
    told++;
    ls_find(report->all, LS_VERDICT_WARNING, known[k].name,
            ls_arena_printf(report->all->arena, "unset %s unless it is meant", known[k].name),
            "\"%.80s\": %s", value, known[k].effect);
  }
  for (char **at = environ; *at; at++) {
    if (strncmp(*at, "NCCL_", 5) != 0) continue;
    const char *name = ls_arena_printf(report->all->arena, "%.*s", (int)strcspn(*at, "="), *at);
    bool is_known = false;
    for (int k = 0; k < KNOWN; k++) is_known |= strcmp(known[k].name, name) == 0;
    if (is_known) continue;
    told++;
    ls_find(report->all, LS_VERDICT_OK, name, NULL, "\"%.80s\"", getenv(name));
  }
  if (!told) ls_find(report->all, LS_VERDICT_OK, "NCCL's environment", NULL, "nothing is set");
}
