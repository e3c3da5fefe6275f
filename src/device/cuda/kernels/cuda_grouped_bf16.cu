// Grouped products on matrix instructions, in bf16; a file a type, to be compiled side by side.
#include "device/cuda/kernels/cuda_grouped.cuh"

LS_GROUPED(ls_bits_bf16, _bf16)
