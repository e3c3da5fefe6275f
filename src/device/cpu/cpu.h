/* What the CPU device's kernels share with each other and tell the rooms around them.
 *
 *   ls_kernel_table table;
 *   LS_TRY(ls_cpu_kernels(&table, LS_F32, error));
 *   args.workspace_bytes = ls_device_workspace(ls_cpu_facts(), LS_OP_LINEAR, &args);
 *   LS_TRY(table.kernel[LS_OP_LINEAR](&args, error));
 *
 * In a bf16 table compute tensors are LS_BF16 and accumulated ones LS_F32, likewise in an fp16 one;
 * kernels go by the dtype of each view, so all tables hold the same functions. Thread-safe: any
 * number of rank threads may call kernels at once, each on its own views and workspace. */
#ifndef LS_DEVICE_CPU_CPU_H
#define LS_DEVICE_CPU_CPU_H

#include <stdbool.h>
#include <stddef.h>

#include "device/device.h"

/* The CPU device: starts as the fp32 reference, overrides what it has vectorised. `dtype` is the
 * compute type: LS_F32, LS_BF16 or LS_F16. */
LS_CHECKED ls_status ls_cpu_kernels(ls_kernel_table *table, ls_dtype dtype, ls_error *error);

/* What this processor can do, as far as ONEDNN_MAX_CPU_ISA lets it be used. */
const ls_device_facts *ls_cpu_facts(void);

/* How often a kernel's scratch did not come from the workspace it was given, in this process. */
int64_t ls_cpu_scratch_misses(void);

/* `bytes` of scratch aligned to 64: of the workspace where it is large enough, else of the calling
 * thread's own buffer, which the next call may move. NULL when memory has run out. */
void *ls_cpu_scratch(const ls_kernel_args *args, size_t bytes);

/* Parts to split work of `elements` in: as many as threads, or for any number of them the same
 * where exact, but 1 where forking would cost more than it saves. Depends on arguments alone, so
 * equal calls give equal bits. */
int ls_cpu_parts(const ls_device_facts *facts, int64_t elements);

/* Matrix products: linear, linear_dx, linear_dw. */
void ls_cpu_linear_kernels(ls_kernel_table *table);

/* The product of that kind. */
LS_CHECKED ls_status ls_cpu_linear(ls_op_kind kind, const ls_kernel_args *args, ls_error *error);

/* The same for the rows of each expert. */
void ls_cpu_grouped_kernels(ls_kernel_table *table);

/* Experts held to a capacity. */
void ls_cpu_capacity_kernels(ls_kernel_table *table);

/* Updates that are more than one loop over elements: AdamW of 8 bits, Muon. */
void ls_cpu_update_kernels(ls_kernel_table *table);

/* What oneDNN wants of workspace for these arguments, of which data are not read; makes what it
 * multiplies with. */
size_t ls_cpu_linear_wants(ls_op_kind kind, const ls_kernel_args *args);

#endif
