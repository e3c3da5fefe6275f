// Attention by places on matrix instructions, in fp16; a file a type, to be compiled side by side.
#include "device/cuda/kernels/cuda_placed_flash.cuh"

LS_PLACED_SIZES(ls_bits_fp16, _fp16)
