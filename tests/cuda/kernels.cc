// The device's kernels, as they are, for the shim.
#include "cuda/shim.h"

#include "device/cuda/kernels/cuda_attention.cu"
#include "device/cuda/kernels/cuda_cross_entropy.cu"
#include "device/cuda/kernels/cuda_embedding.cu"
#include "device/cuda/kernels/cuda_flash_bf16.cu"
#include "device/cuda/kernels/cuda_flash_fp16.cu"
#include "device/cuda/kernels/cuda_move.cu"
#include "device/cuda/kernels/cuda_norms.cu"
#include "device/cuda/kernels/cuda_optimizer.cu"
#include "device/cuda/kernels/cuda_pointwise.cu"
#include "device/cuda/kernels/cuda_rope.cu"
#include "device/cuda/kernels/cuda_rows.cu"
