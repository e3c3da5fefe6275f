/* What is said of the GPUs in pieces: inside this folder. */
#ifndef LS_DEVICE_CUDA_GPU_FINDINGS_H
#define LS_DEVICE_CUDA_GPU_FINDINGS_H

#include "cluster/findings.h"
#include "device/cuda/discover.h"

/* What all lines are made from. */
typedef struct ls_gpu_report {
  ls_findings *all;
  const char *root; /* as in machine.h */
  ls_cuda_libraries libraries;
  ls_cuda_gpu *gpus;     /* those that could be read */
  nvmlDevice_t *managed; /* [gpu_count] NULL: NVML does not know it */
  int gpu_count;
  int present; /* all of the host, also hidden ones; -1: not known */
} ls_gpu_report;

/* The GPUs of this host: from the driver on. */
void ls_cuda_findings(ls_findings *all, const char *root, const ls_cuda_places *places);

/* NVIDIA's on the PCI bus. `root`: as in machine.h. */
int ls_cuda_count_on_bus(ls_arena *arena, const char *root);

/* How many GPUs are visible, and what one is called. 0 also where the driver is not there or cannot
 * be asked: *why says so, which is else as it was. */
int ls_cuda_visible(const ls_cuda_places *places, char name[96], ls_error *why);

/* CUDA_VISIBLE_DEVICES against the GPUs that are there: `visible` of them are left. */
void ls_cuda_visible_findings(ls_gpu_report *report, int visible);

/* Lines of each GPU, those that are equal as one: "GPU 0-7". */
void ls_cuda_gpu_findings(ls_gpu_report *report);

/* Lines of each pair, those that are equal as one. */
void ls_cuda_pair_findings(ls_gpu_report *report);

/* Variables of NCCL and CUDA that change how training runs. */
void ls_cuda_environment_findings(ls_gpu_report *report);

#endif
