/* Layouts that offload, drawn so that every pair of options soon occurs. */
#ifndef LS_TESTS_OFFLOADS_H
#define LS_TESTS_OFFLOADS_H

#include "shard/strategy.h"

/* Which of the test shapes a sample is of. */
int ls_test_offload_shape(int sample);

/* Its layout, with all on the device; fp64, fp32, bf16 or fp16. Not every one is legal. */
ls_layout ls_test_offload_layout(int sample);

/* What of it waits where. */
ls_offload ls_test_offload(int sample);

#endif
