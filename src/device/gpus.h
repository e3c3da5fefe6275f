/* NVIDIA GPUs of this host, as far as they can be asked without training on them.
 *
 *   ls_device_findings(&findings, "", NULL);
 *   const char *said = ls_gpus_choose(arena, LS_F32, &taken);
 *
 * No library is linked for it: where there is no driver there are no GPUs. */
#ifndef LS_DEVICE_GPUS_H
#define LS_DEVICE_GPUS_H

#include "cluster/catalog.h"
#include "cluster/findings.h"
#include "lockstep/dtype.h"

/* What the CPU device computes with, then the GPUs: driver, libraries, each GPU, each pair, the
 * environment. `root`: as in machine.h. folder: where NVIDIA's libraries are looked for in place of
 * the usual places (tests); NULL: these. */
void ls_device_findings(ls_findings *all, const char *root, const char *folder);

/* Whether training in this type takes the visible GPUs, and a line that says so or why not: "2 GPUs
 * (NVIDIA H200) are visible and taken; device.kind=cpu leaves them". One is tried. NULL: there are
 * none, and nothing says that there should be. In the arena. */
const char *ls_gpus_choose(ls_arena *arena, ls_dtype compute, bool *taken);

typedef struct ls_gpus {
  ls_accelerator first; /* as its driver reports it, without rates; the others are taken to be so */
  int count;            /* visible */
  bool peers;           /* each reads each other's memory */
  const char *stands_on; /* what a measurement holds for: "NVIDIA H200, driver 580.65.05, cuBLASLt
                            13.1.0" */
} ls_gpus;

/* The visible GPUs. In the arena. LS_INPUT: there are none that could train, as ls_device_open of
 * "cuda" says. */
LS_CHECKED ls_status ls_gpus_here(ls_arena *arena, ls_gpus *gpus, ls_error *error);

/* What is kept of a measurement of them, a text in the arena, or NULL; and keeps one. */
const char *ls_gpus_kept(ls_arena *arena, const ls_gpus *gpus);
void ls_gpus_keep(ls_arena *arena, const ls_gpus *gpus, const char *text);

#endif
