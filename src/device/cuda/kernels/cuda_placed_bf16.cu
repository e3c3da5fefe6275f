// Attention by places on matrix instructions, in bf16; a file a type, to be compiled side by side.
#include "device/cuda/kernels/cuda_placed_flash.cuh"

LS_PLACED_SIZES(ls_bits_bf16, _bf16)
