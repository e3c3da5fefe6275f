/* Runs a CUDA kernel on the CPU, its source unmodified: blocks one after another, the threads of a
 * block as fibers of the caller, which change places only where they wait for each other.
 *
 *   const char *wrong = ls_shim_run(&(ls_shim_launch){.name = {"ls_add", "_bf16"}, ...}, seed);
 *   if (wrong) fail_msg("%s", wrong);
 *
 * What is caught: threads at different barriers or gone from one, lanes that call outside their
 * mask or at different places, lanes that never come, a shuffle from a lane that does not take part
 * (gives poison), shared memory that is read before it is written (is poison, afresh in each
 * block), cp.async that is read before it is waited for, and by the sanitizers what lies out of
 * bounds. A barrier that is missing shows as a result that is wrong in some order of threads. What
 * is not: memory that warps share without barriers, time, and a fragment's layout that kernel and
 * twin (device/cuda/kernels/cuda_matrix.cuh) misread alike. One thread of the host at a time. */
#ifndef LS_TESTS_CUDA_SHIM_RUN_H
#define LS_TESTS_CUDA_SHIM_RUN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ls_shim_launch {
  const char *name[2]; /* of the kernel, in two parts; the second may be NULL */
  uint32_t grid[3], block, shared_bytes;
  const void *arguments;
  size_t argument_bytes;
} ls_shim_launch;

/* Orders of threads and of blocks follow from the seed; 0 is that of their numbers. NULL, or what
 * the kernel did wrong: static storage, until the next call. */
const char *ls_shim_run(const ls_shim_launch *launch, uint64_t seed);

/* Bytes of a kernel's arguments; 0: there is none of this name. */
size_t ls_shim_argument_bytes(const char *name);

#ifdef __cplusplus
}
#endif
#endif
