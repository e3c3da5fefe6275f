/* The kernels of each vector_*.c file, as one instruction set's vector_table.c joins them. */
#ifndef LS_DEVICE_CPU_VECTOR_KERNELS_H
#define LS_DEVICE_CPU_VECTOR_KERNELS_H

#include "device/cpu/vector.h"
#include "device/cpu/vector_table.h"

void LS_VECTOR(ls_fill_elementwise)(ls_kernel_table *table);
void LS_VECTOR(ls_fill_blocks)(ls_kernel_table *table);
void LS_VECTOR(ls_fill_fp8)(ls_kernel_table *table);
void LS_VECTOR(ls_fill_norm)(ls_kernel_table *table);
void LS_VECTOR(ls_fill_row)(ls_kernel_table *table);
void LS_VECTOR(ls_fill_token)(ls_kernel_table *table);
void LS_VECTOR(ls_fill_heads)(ls_kernel_table *table);
void LS_VECTOR(ls_fill_loss)(ls_kernel_table *table);
void LS_VECTOR(ls_fill_optimizer)(ls_kernel_table *table);
void LS_VECTOR(ls_fill_adafactor)(ls_kernel_table *table);
void LS_VECTOR(ls_fill_attention)(ls_kernel_table *table);
void LS_VECTOR(ls_fill_attention_bwd)(ls_kernel_table *table);
void LS_VECTOR(ls_fill_cached_attention)(ls_kernel_table *table);
void LS_VECTOR(ls_fill_experts)(ls_kernel_table *table);
void LS_VECTOR(ls_fill_slots)(ls_kernel_table *table);
void LS_VECTOR(ls_fill_texts)(ls_kernel_table *table);

/* Adds up the parts' sums of a vector, `stride` apart, parts in order, into `out`. */
void LS_VECTOR(ls_join_parts)(const ls_view *out, bool add, const float *sums, int64_t stride,
                              int parts);

void LS_VECTOR(ls_rows_multiply)(const ls_few_rows *product, int64_t begin, int64_t end);

/* The same of weights that are stored as blocks. */
void LS_VECTOR(ls_rows_multiply_blocks)(const ls_few_rows *product, int64_t begin, int64_t end);

#if defined(__AVX512BF16__)
void LS_VECTOR(ls_few_sums_pack)(const ls_few_sums *sums);
void LS_VECTOR(ls_few_sums_make)(const ls_few_sums *sums, int64_t begin, int64_t end);
void LS_VECTOR(ls_shallow_pack)(const ls_shallow *product);
void LS_VECTOR(ls_shallow_make)(const ls_shallow *product, int64_t begin, int64_t end);
#endif

ls_status LS_VECTOR(ls_dequantize)(const ls_kernel_args *args, ls_error *error);

#endif
