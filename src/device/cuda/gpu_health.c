/* Each GPU and each pair of them: what NVML and the driver say, and a trial. */
#include <ctype.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "cluster/machine.h"
#include "device/cuda/gpu_findings.h"
#include "device/facts.h"
#include "text/number.h"

/* Lines of one GPU (or pair) until those that are equal are told as one. */
typedef struct lines {
  ls_gpu_report *report;
  ls_findings own;
  LS_LIST(int) of; /* of own.list: which GPU, or which pair */
  int now;
} lines;

/* Notes whose the lines added since the last time are. */
static void belong(lines *self) {
  while (self->of.count < self->own.list.count) *LS_APPEND(self->own.arena, &self->of) = self->now;
}

static bool equal_texts(const char *a, const char *b) {
  return a == b || (a && b && strcmp(a, b) == 0);
}

static bool equal_lines(const ls_finding *a, const ls_finding *b) {
  return a->verdict == b->verdict && equal_texts(a->subject, b->subject) &&
         equal_texts(a->found, b->found) && equal_texts(a->remedy, b->remedy);
}

/* " 0-3, 6" of the lines equal to the first of them. */
static const char *list_equal(const lines *self, int first, bool *told) {
  const ls_finding *items = self->own.list.items;
  const char *text = "";
  int begin = -1, end = -1;
  for (int f = first; f <= self->own.list.count; f++) {
    const bool last = f == self->own.list.count;
    if (!last && (told[f] || !equal_lines(&items[first], &items[f]))) continue;
    if (!last) told[f] = true;
    const int which = last ? -2 : self->of.items[f];
    if (begin >= 0 && which != end + 1) {
      text = ls_arena_printf(self->own.arena, "%s%s%d", text, *text ? ", " : " ", begin);
      if (end > begin) text = ls_arena_printf(self->own.arena, "%s-%d", text, end);
      begin = -1;
    }
    if (begin < 0) begin = which;
    end = which;
  }
  return text;
}

static void tell_gpus(lines *self) {
  const int count = self->own.list.count;
  bool *told = LS_NEW_ARRAY(self->own.arena, bool, count + 1);
  for (int f = 0; f < count; f++) {
    if (told[f]) continue;
    const ls_finding *line = &self->own.list.items[f];
    ls_find(self->report->all, line->verdict,
            ls_arena_printf(self->own.arena, "GPU%s %s", list_equal(self, f, told), line->subject),
            line->remedy, "%s", line->found);
  }
}

/* Whether the call has an answer; what is not supported is no finding, another failure is. */
static bool answers(lines *self, nvmlReturn_t result, const char *call) {
  ls_error error = {LS_OK, ""};
  if (result == NVML_ERROR_NOT_SUPPORTED) return false;
  if (ls_nvml_did(&self->report->libraries, result, call, &error) == LS_OK) return true;
  ls_find(&self->own, LS_VERDICT_WARNING, "NVML", NULL, "%s", error.text);
  return false;
}

static const char *size(ls_arena *arena, double bytes) {
  char text[LS_NUMBER_BYTES];
  ls_size_show(text, bytes);
  return ls_arena_strdup(arena, text);
}

static void find_kind(lines *self, const ls_cuda_gpu *gpu) {
  enum { LEAST = 80 }; /* the first that multiply bf16 */
  const char *name = ls_arena_printf(self->own.arena, "%s, sm_%d, %d processors", gpu->name,
                                     gpu->architecture, gpu->processors);
  if (gpu->architecture < LEAST)
    ls_find(&self->own, LS_VERDICT_FAIL, "kind", "a GPU of sm_80 (Ampere) or newer",
            "%s: older than sm_%d, for which there are no kernels", name, LEAST);
  else
    ls_find(&self->own, LS_VERDICT_OK, "kind", NULL, "%s", name);
  if (gpu->mode == CU_COMPUTEMODE_PROHIBITED)
    ls_find(&self->own, LS_VERDICT_FAIL, "compute mode", "nvidia-smi -c DEFAULT", "prohibited");
  else if (gpu->mode == CU_COMPUTEMODE_EXCLUSIVE_PROCESS)
    ls_find(&self->own, LS_VERDICT_OK, "compute mode", NULL, "for one process at a time");
}

/* What a context takes, whichever GPU it is. */
static double context_bytes(const ls_cuda_gpu *gpu) {
  ls_device_facts facts;
  double bytes = 0;
  if (!ls_device_facts_of(&(ls_accelerator){.architecture = gpu->architecture}, &facts)) return 0;
  for (int o = 0; o < facts.overhead_count; o++)
    if (!facts.overheads[o].of_group) bytes += (double)facts.overheads[o].bytes;
  return bytes;
}

/* "pid 4711 (python) has 60.0 GiB", of at most 16; "" where there is none. */
static const char *holders(lines *self, nvmlDevice_t device) {
  enum { MOST = 16 };
  const ls_nvml_calls *nvml = &self->report->libraries.nvml;
  ls_arena *arena = self->own.arena;
  nvmlProcessInfo_t processes[MOST];
  unsigned count = MOST;
  const char *text = "";
  nvmlReturn_t result = nvml->nvmlDeviceGetComputeRunningProcesses_v3(device, &count, processes);
  if (result == NVML_ERROR_INSUFFICIENT_SIZE) return "; more than 16 processes hold it";
  if (!answers(self, result, "nvmlDeviceGetComputeRunningProcesses_v3")) return "";
  for (unsigned p = 0; p < count; p++) {
    char *name;
    size_t bytes;
    if (processes[p].pid == (unsigned)getpid()) continue;
    const char *path = ls_arena_printf(arena, "/proc/%u/comm", processes[p].pid);
    if (ls_file_read(arena, path, &name, &bytes, NULL) != LS_OK)
      name = (char[]){"not of this host or container"};
    name[strcspn(name, "\n")] = 0;
    text = ls_arena_printf(arena, "%s; pid %u (%s) holds %s", text, processes[p].pid, name,
                           processes[p].usedGpuMemory == UINT64_MAX
                               ? "some"
                               : size(arena, (double)processes[p].usedGpuMemory));
  }
  return text;
}

static void find_memory(lines *self, const ls_cuda_gpu *gpu, nvmlDevice_t device) {
  nvmlMemory_t memory;
  const char *of = size(self->own.arena, (double)gpu->memory_bytes);
  if (!device ||
      !answers(self, self->report->libraries.nvml.nvmlDeviceGetMemoryInfo(device, &memory),
               "nvmlDeviceGetMemoryInfo")) {
    ls_find(&self->own, LS_VERDICT_OK, "memory", NULL, "%s", of);
    return;
  }
  const char *who = holders(self, device);
  const char *left = size(self->own.arena, (double)memory.free);
  const char *end_them = "end who holds it: nvidia-smi lists them";
  if ((double)memory.free < context_bytes(gpu))
    ls_find(&self->own, LS_VERDICT_FAIL, "memory", end_them,
            "%s of %s free, less than a context takes%s", left, of, who);
  else
    ls_find(&self->own, *who ? LS_VERDICT_WARNING : LS_VERDICT_OK, "memory", *who ? end_them : NULL,
            "%s of %s free%s", left, of, who);
}

static void find_context(lines *self, const ls_cuda_gpu *gpu) {
  ls_error error = {LS_OK, ""};
  if (gpu->mode == CU_COMPUTEMODE_PROHIBITED) return; /* that is said */
  if (ls_cuda_gpu_try(&self->report->libraries, gpu, &error) != LS_OK)
    ls_find(&self->own, LS_VERDICT_FAIL, "trial", NULL, "%s", error.text);
  else if (!gpu->virtual_memory || !gpu->exports)
    ls_find(
        &self->own, LS_VERDICT_WARNING, "trial",
        "ask the host's owner whether its hypervisor hides them",
        "a context was made, but the driver has no %s: several processes of a host cannot share "
        "memory",
        gpu->virtual_memory ? "handles for it" : "virtual memory management");
  else
    ls_find(&self->own, LS_VERDICT_OK, "trial", NULL,
            "a context, memory for other processes and the kernels were made and freed");
}

/* Generation falls while a GPU is idle; width does not. */
static void find_bus(lines *self, nvmlDevice_t device) {
  const ls_nvml_calls *nvml = &self->report->libraries.nvml;
  unsigned generation, best, width, widest;
  if (!answers(self, nvml->nvmlDeviceGetCurrPcieLinkGeneration(device, &generation),
               "nvmlDeviceGetCurrPcieLinkGeneration") ||
      !answers(self, nvml->nvmlDeviceGetMaxPcieLinkGeneration(device, &best),
               "nvmlDeviceGetMaxPcieLinkGeneration") ||
      !answers(self, nvml->nvmlDeviceGetCurrPcieLinkWidth(device, &width),
               "nvmlDeviceGetCurrPcieLinkWidth") ||
      !answers(self, nvml->nvmlDeviceGetMaxPcieLinkWidth(device, &widest),
               "nvmlDeviceGetMaxPcieLinkWidth"))
    return;
  const bool narrow = width < widest;
  ls_find(&self->own, narrow ? LS_VERDICT_WARNING : LS_VERDICT_OK, "PCIe",
          narrow ? "seat the card or its riser anew, or use a slot of full width" : NULL,
          "generation %u of %u, x%u of x%u", generation, best, width, widest);
}

/* Hardware threads of a NUMA node that this process may use; -1: not known. "0-3,8" */
static int threads_near(lines *self, int node) {
  ls_arena *arena = self->own.arena;
  const ls_thread_set allowed = ls_machine_allowed();
  char *text;
  size_t bytes;
  int near = 0;
  const char *path =
      ls_arena_printf(arena, "%s/sys/devices/system/node/node%d/cpulist", self->report->root, node);
  if (ls_file_read(arena, path, &text, &bytes, NULL) != LS_OK) return -1;
  for (char *range; (range = strsep(&text, ","));) {
    int first, last;
    const int read = sscanf(range, "%d-%d", &first, &last);
    if (read < 1) continue;
    for (int t = first; t <= (read < 2 ? first : last) && t < LS_THREAD_WORDS * 64; t++)
      near += t >= 0 && (allowed.words[t / 64] >> (t % 64) & 1);
  }
  return near;
}

static void find_node(lines *self, const ls_cuda_gpu *gpu) {
  char *text;
  size_t bytes;
  const char *path = ls_arena_printf(self->own.arena, "%s/sys/bus/pci/devices/%s/numa_node",
                                     self->report->root, gpu->bus);
  if (ls_file_read(self->own.arena, path, &text, &bytes, NULL) != LS_OK) return;
  const int node = (int)strtol(text, NULL, 10);
  if (node < 0) return; /* a machine of one node, or a virtual one that does not say */
  if (threads_near(self, node) == 0)
    ls_find(&self->own, LS_VERDICT_WARNING, "NUMA node",
            "bind each process near its GPU: mpirun --map-by numa, srun --gpu-bind=closest",
            "%d, and this process may run on none of its cores", node);
  else
    ls_find(&self->own, LS_VERDICT_OK, "NUMA node", NULL, "%d", node);
}

/* Why clocks are held down, of reasons that a person can do something about. */
static const struct {
  unsigned reason;
  const char *why, *remedy;
} slowdowns[] = {
    {nvmlClocksThrottleReasonHwThermalSlowdown, "too hot (hardware)", "see to fans and air"},
    {nvmlClocksEventReasonSwThermalSlowdown, "too hot (driver)", "see to fans and air"},
    {nvmlClocksThrottleReasonHwPowerBrakeSlowdown, "power brake", "see to the power supply"},
    {nvmlClocksThrottleReasonHwSlowdown, "hardware slowdown", "see to power supply and cooling"},
    {nvmlClocksEventReasonSwPowerCap, "power cap", "nvidia-smi -pl raises it"},
    {nvmlClocksEventReasonApplicationsClocksSetting, "application clocks", "nvidia-smi -rac"}};

static void find_clocks(lines *self, nvmlDevice_t device) {
  const ls_nvml_calls *nvml = &self->report->libraries.nvml;
  unsigned clock, most, celsius;
  unsigned long long reasons;
  if (!answers(self, nvml->nvmlDeviceGetClockInfo(device, NVML_CLOCK_SM, &clock),
               "nvmlDeviceGetClockInfo") ||
      !answers(self, nvml->nvmlDeviceGetMaxClockInfo(device, NVML_CLOCK_SM, &most),
               "nvmlDeviceGetMaxClockInfo") ||
      !answers(self, nvml->nvmlDeviceGetTemperature(device, NVML_TEMPERATURE_GPU, &celsius),
               "nvmlDeviceGetTemperature") ||
      !answers(self, nvml->nvmlDeviceGetCurrentClocksThrottleReasons(device, &reasons),
               "nvmlDeviceGetCurrentClocksThrottleReasons"))
    return;
  for (size_t s = 0; s < sizeof slowdowns / sizeof *slowdowns; s++) {
    if (!(reasons & slowdowns[s].reason)) continue;
    ls_find(&self->own, LS_VERDICT_WARNING, "clocks", slowdowns[s].remedy,
            "%u of %u MHz, %u degrees C, held down: %s", clock, most, celsius, slowdowns[s].why);
    return;
  }
  ls_find(&self->own, LS_VERDICT_OK, "clocks", NULL, "%u of %u MHz, %u degrees C", clock, most,
          celsius);
}

static void find_ecc(lines *self, nvmlDevice_t device) {
  const ls_nvml_calls *nvml = &self->report->libraries.nvml;
  nvmlEnum current, pending;
  unsigned long long errors = 0;
  unsigned corrected, uncorrected, waiting = 0, failed = 0;
  if (!answers(self, nvml->nvmlDeviceGetEccMode(device, &current, &pending),
               "nvmlDeviceGetEccMode"))
    return; /* as on GeForce */
  if (!current) {
    ls_find(&self->own, LS_VERDICT_OK, "ECC", NULL, "off");
    return;
  }
  if (!answers(self,
               nvml->nvmlDeviceGetTotalEccErrors(device, NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
                                                 NVML_VOLATILE_ECC, &errors),
               "nvmlDeviceGetTotalEccErrors"))
    return;
  if (!answers(self,
               nvml->nvmlDeviceGetRemappedRows(device, &corrected, &uncorrected, &waiting, &failed),
               "nvmlDeviceGetRemappedRows"))
    waiting = failed = 0;
  if (failed)
    ls_find(&self->own, LS_VERDICT_FAIL, "ECC", "have the card replaced",
            "a row of its memory could not be replaced");
  else if (errors)
    ls_find(&self->own, LS_VERDICT_FAIL, "ECC", "nvidia-smi --gpu-reset, or restart the machine",
            "%llu uncorrected error%s since the driver was loaded", errors, errors == 1 ? "" : "s");
  else if (waiting)
    ls_find(&self->own, LS_VERDICT_WARNING, "ECC", "nvidia-smi --gpu-reset, or restart the machine",
            "rows of its memory are to be replaced");
  else
    ls_find(&self->own, LS_VERDICT_OK, "ECC", NULL, "on, no uncorrected errors");
}

static void find_slices(lines *self, nvmlDevice_t device) {
  unsigned current, pending;
  if (!answers(self, self->report->libraries.nvml.nvmlDeviceGetMigMode(device, &current, &pending),
               "nvmlDeviceGetMigMode") ||
      !current)
    return;
  ls_find(&self->own, LS_VERDICT_WARNING, "MIG", "nvidia-smi -mig 0 for whole GPUs",
          "on: slices of a GPU have no peer access");
}

void ls_cuda_gpu_findings(ls_gpu_report *report) {
  lines self = {.report = report, .own = {.arena = report->all->arena, .about = "GPUs"}};
  for (int g = 0; g < report->gpu_count; g++) {
    const ls_cuda_gpu *gpu = &report->gpus[g];
    nvmlDevice_t device = report->managed[g];
    self.now = gpu->ordinal;
    find_kind(&self, gpu);
    find_memory(&self, gpu, device);
    find_context(&self, gpu);
    find_node(&self, gpu);
    if (device) {
      find_bus(&self, device);
      find_clocks(&self, device);
      find_ecc(&self, device);
      find_slices(&self, device);
    }
    belong(&self);
  }
  tell_gpus(&self);
}

/* NVLinks of a GPU that are up; 0 also where nobody knows. */
static int count_links(lines *self, nvmlDevice_t device) {
  int active = 0;
  for (unsigned link = 0; device && link < NVML_NVLINK_MAX_LINKS; link++) {
    nvmlEnum is = 0;
    const nvmlReturn_t result =
        self->report->libraries.nvml.nvmlDeviceGetNvLinkState(device, link, &is);
    if (result == NVML_ERROR_INVALID_ARGUMENT || result == NVML_ERROR_NOT_SUPPORTED) break;
    if (answers(self, result, "nvmlDeviceGetNvLinkState")) active += is != 0;
  }
  return active;
}

static const char *way_by_bus(lines *self, nvmlDevice_t a, nvmlDevice_t b) {
  nvmlEnum level;
  if (!a || !b ||
      !answers(self, self->report->libraries.nvml.nvmlDeviceGetTopologyCommonAncestor(a, b, &level),
               "nvmlDeviceGetTopologyCommonAncestor"))
    return "PCIe";
  return level <= NVML_TOPOLOGY_SINGLE       ? "PCIe, one switch"
         : level <= NVML_TOPOLOGY_MULTIPLE   ? "PCIe, several switches"
         : level <= NVML_TOPOLOGY_HOSTBRIDGE ? "PCIe, one host bridge"
         : level <= NVML_TOPOLOGY_NODE       ? "PCIe, host bridges of one NUMA node"
                                             : "PCIe, between NUMA nodes";
}

static ls_status ask_pair(const ls_gpu_report *report, CUdevice a, CUdevice b, int *access,
                          int *atomics, ls_error *error) {
  const ls_driver_calls *driver = &report->libraries.driver;
  int back = 0;
  LS_TRY(ls_cuda_did(&report->libraries, driver->cuDeviceCanAccessPeer(access, a, b),
                     "cuDeviceCanAccessPeer", error));
  LS_TRY(ls_cuda_did(&report->libraries, driver->cuDeviceCanAccessPeer(&back, b, a),
                     "cuDeviceCanAccessPeer", error));
  *access = *access && back;
  return ls_cuda_did(&report->libraries,
                     driver->cuDeviceGetP2PAttribute(
                         atomics, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, a, b),
                     "cuDeviceGetP2PAttribute", error);
}

/* Processes map each other's memory by files. */
static const char *between_processes(const ls_gpu_report *report, int a, int b) {
  return report->gpus[a].exports && report->gpus[b].exports
             ? ", also between processes"
             : ", within a process alone: the driver hands out no memory as files";
}

static void find_pair(lines *self, int a, int b, int links) {
  ls_error error = {LS_OK, ""};
  const ls_gpu_report *report = self->report;
  const char *processes = between_processes(report, a, b);
  int access = 0, atomics = 0;
  if (ask_pair(report, report->gpus[a].device, report->gpus[b].device, &access, &atomics, &error) !=
      LS_OK)
    ls_find(&self->own, LS_VERDICT_FAIL, "", NULL, "%s", error.text);
  else if (!access)
    ls_find(&self->own, LS_VERDICT_WARNING, "",
            "GeForce from RTX 40 on has none; elsewhere see ACS and IOMMU in the BIOS",
            "no peer access (%s): what they send goes through the host",
            way_by_bus(self, report->managed[a], report->managed[b]));
  else if (atomics && links)
    ls_find(&self->own, LS_VERDICT_OK, "", NULL, "peer access, NVLink (%d links)%s", links,
            processes);
  else
    ls_find(&self->own, LS_VERDICT_OK, "", NULL, "peer access, %s%s",
            way_by_bus(self, report->managed[a], report->managed[b]), processes);
}

/* "0-1, 0-2" of the pairs whose lines are equal to the first of them. */
static const char *list_pairs(lines *self, int first, bool *told, int *count) {
  const ls_finding *items = self->own.list.items;
  const char *text = "";
  for (int f = first; f < self->own.list.count; f++) {
    if (told[f] || !equal_lines(&items[first], &items[f])) continue;
    const int a = self->of.items[f] / self->report->gpu_count;
    const int b = self->of.items[f] % self->report->gpu_count;
    told[f] = true;
    ++*count;
    text = ls_arena_printf(self->own.arena, "%s%s%d-%d", text, *text ? ", " : "",
                           self->report->gpus[a].ordinal, self->report->gpus[b].ordinal);
  }
  return text;
}

void ls_cuda_pair_findings(ls_gpu_report *report) {
  lines self = {.report = report, .own = {.arena = report->all->arena, .about = "GPUs"}};
  int *links = LS_NEW_ARRAY(self.own.arena, int, report->gpu_count + 1);
  for (int g = 0; report->gpu_count > 1 && g < report->gpu_count; g++)
    links[g] = count_links(&self, report->managed[g]);
  belong(&self);
  for (int a = 0; a < report->gpu_count; a++)
    for (int b = a + 1; b < report->gpu_count; b++) {
      self.now = a * report->gpu_count + b;
      find_pair(&self, a, b, links[a] < links[b] ? links[a] : links[b]);
      belong(&self);
    }
  bool *told = LS_NEW_ARRAY(self.own.arena, bool, self.own.list.count + 1);
  const int pairs = report->gpu_count * (report->gpu_count - 1) / 2;
  for (int f = 0; f < self.own.list.count; f++) {
    if (told[f]) continue;
    int count = 0;
    const ls_finding *line = &self.own.list.items[f];
    const char *which = list_pairs(&self, f, told, &count);
    const char *subject = *line->subject ? line->subject : "links";
    if (count == pairs)
      ls_find(report->all, line->verdict, subject, line->remedy, "all pairs: %s", line->found);
    else
      ls_find(report->all, line->verdict, subject, line->remedy, "%s: %s", which, line->found);
  }
}
