/* Parts of the recipe of CUDA devices that their products keep to. No library is needed. */
#ifndef LS_DEVICE_CUDA_CUDA_RECIPE_H
#define LS_DEVICE_CUDA_CUDA_RECIPE_H

#include "device/facts.h"

/* What cuBLASLt is given for a product. */
size_t ls_cuda_product_bytes(const ls_device_facts *facts);

/* The weights of a product of blocks, which come before that. */
size_t ls_cuda_restored_bytes(const ls_kernel_args *args);

#endif
