/* What the CPU device's kernels share with each other and tell the rooms around them.
 *
 *   ls_kernel_table table;
 *   LS_TRY(ls_cpu_kernels(&table, ls_cpu_native_bf16() ? LS_BF16 : LS_F32, error));
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

#include "device/facts.h"

/* The CPU device: starts as the fp32 reference, overrides what it has vectorised. `dtype` is the
 * compute type: LS_F32, LS_BF16 or LS_F16. */
LS_CHECKED ls_status ls_cpu_kernels(ls_kernel_table *table, ls_dtype dtype, ls_error *error);

/* Whether the processor, as far as ONEDNN_MAX_CPU_ISA lets it be used, multiplies bf16 faster than
 * fp32. Where it does not, bf16 operands are widened to fp32 before they are multiplied. */
bool ls_cpu_native_bf16(void);

/* Whether fp16 is multiplied as it is stored; where it is not, it is widened as well. */
bool ls_cpu_native_f16(void);

/* The instruction set in effect, as oneDNN names it in lower case: "avx512_core_bf16". */
const char *ls_cpu_isa_name(void);

/* The version of oneDNN in use: "2.6.3". Static storage. */
const char *ls_cpu_library(void);

/* The set our own kernels were compiled for that is in effect: "avx512_bf16", "avx512",
 * "avx2" or "plain". */
const char *ls_cpu_vector_set(void);

/* What this processor can do. */
const ls_device_facts *ls_cpu_facts(void);

/* How often a kernel's scratch did not come from the workspace it was given, in this process. */
int64_t ls_cpu_scratch_misses(void);

/* `bytes` of scratch aligned to 64: of the workspace where it is large enough, else of the calling
 * thread's own buffer, which the next call may move. NULL when memory has run out. */
void *ls_cpu_scratch(const ls_kernel_args *args, size_t bytes);

/* Most parts a kernel splits its work in, so that partial sums fit an array. */
enum { LS_CPU_PARTS_MAX = 256 };

/* Parts to split work of `elements` in: `threads`, or as many for any number of them where exact,
 * but 1 where forking would cost more than it saves. Depends on arguments alone, so equal calls
 * give equal bits. */
int ls_cpu_parts(const ls_kernel_args *args, int64_t elements);

/* The turns [begin, end) of a loop, which are the part'th part of them; `work` is what
 * ls_cpu_share was given. */
typedef void (*ls_cpu_turns)(const void *work, int part, int64_t begin, int64_t end);

/* Shares the turns [0, count) of a loop in `parts` ranges, in order, among at most `threads`; a
 * range may be empty. One thread is the caller, without OpenMP, which allocates a team even for
 * one. */
void ls_cpu_share(int threads, int parts, int64_t count, ls_cpu_turns turns, const void *work);

/* Matrix products: linear, linear_dx, linear_dw. */
void ls_cpu_linear_kernels(ls_kernel_table *table);

/* What oneDNN wants of workspace for these arguments, of which data are not read; makes what it
 * multiplies with. */
size_t ls_cpu_linear_wants(ls_op_kind kind, const ls_kernel_args *args);

#endif
