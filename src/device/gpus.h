/* NVIDIA GPUs of this host, as far as they can be asked without training on them.
 *
 *   ls_device_findings(&findings, "", NULL);
 *   const char *unused = ls_gpus_unused(arena);
 *
 * No library is linked for it: where there is no driver there are no GPUs. */
#ifndef LS_DEVICE_GPUS_H
#define LS_DEVICE_GPUS_H

#include "cluster/findings.h"

/* What the CPU device computes with, then the GPUs: driver, libraries, each GPU, each pair, the
 * environment. `root`: as in machine.h. folder: where NVIDIA's libraries are looked for in place of
 * the usual places (tests); NULL: these. */
void ls_device_findings(ls_findings *all, const char *root, const char *folder);

/* "2 GPUs (NVIDIA H200) are visible and not used yet: ..."; NULL where none is. In the arena. */
const char *ls_gpus_unused(ls_arena *arena);

#endif
