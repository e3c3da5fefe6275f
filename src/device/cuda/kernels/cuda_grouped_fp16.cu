// Grouped products on matrix instructions, in fp16; a file a type, to be compiled side by side.
#include "device/cuda/kernels/cuda_grouped.cuh"

LS_GROUPED(ls_bits_fp16, _fp16)
