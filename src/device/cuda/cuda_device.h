/* NVIDIA GPUs as devices.
 *
 *   LS_TRY(ls_device_open(&(ls_device_options){.kind = "cuda", .compute = LS_BF16}, &device,
 * error));
 *
 * A rank is given a GPU as its thread enters the device: the one of its number on this host. */
#ifndef LS_DEVICE_CUDA_CUDA_DEVICE_H
#define LS_DEVICE_CUDA_CUDA_DEVICE_H

#include "device/device.h"
#include "device/gpus.h"

/* Opens driver and libraries, and fills facts, memory and kernels of the first visible GPU.
 * LS_INPUT in one line with the remedy: no driver, a library missing or too old, no GPU, an older
 * architecture than sm_80, kernels that this build does not have, or a dtype that GPUs do not
 * compute in. Host kernels are left to the caller. */
LS_CHECKED ls_status ls_cuda_device_open(const ls_device_options *options, ls_device *device,
                                         ls_error *error);

/* Whether a rank could train on the first visible GPU, after ls_cuda_device_open: as
 * ls_cuda_gpu_try. */
LS_CHECKED ls_status ls_cuda_device_try(ls_error *error);

/* ls_gpus_here, after ls_cuda_device_open. */
void ls_cuda_device_tell(ls_arena *arena, ls_gpus *gpus);

#endif
