/* What the files that choose launches share. */
#ifndef LS_DEVICE_CUDA_KERNELS_CUDA_CHOOSE_H
#define LS_DEVICE_CUDA_KERNELS_CUDA_CHOOSE_H

#include "device/cuda/kernels/cuda_launch.h"

/* The launches of one op; its name is in `kind`, where several ops share a chooser. */
typedef ls_status (*ls_cuda_chooser)(ls_op_kind kind, const ls_kernel_args *args,
                                     ls_cuda_launches *launches, ls_error *error);

ls_status ls_cuda_choose_pointwise(ls_op_kind kind, const ls_kernel_args *args,
                                   ls_cuda_launches *launches, ls_error *error);
ls_status ls_cuda_choose_paired(ls_op_kind kind, const ls_kernel_args *args,
                                ls_cuda_launches *launches, ls_error *error);
ls_status ls_cuda_choose_expert_bias(ls_op_kind kind, const ls_kernel_args *args,
                                     ls_cuda_launches *launches, ls_error *error);
ls_status ls_cuda_choose_choices(ls_op_kind kind, const ls_kernel_args *args,
                                 ls_cuda_launches *launches, ls_error *error);
ls_status ls_cuda_choose_sink_bwd(ls_op_kind kind, const ls_kernel_args *args,
                                  ls_cuda_launches *launches, ls_error *error);
ls_status ls_cuda_choose_amax(ls_op_kind kind, const ls_kernel_args *args,
                              ls_cuda_launches *launches, ls_error *error);
ls_status ls_cuda_choose_fp8(ls_op_kind kind, const ls_kernel_args *args,
                             ls_cuda_launches *launches, ls_error *error);
ls_status ls_cuda_choose_weight_codes(ls_op_kind kind, const ls_kernel_args *args,
                                      ls_cuda_launches *launches, ls_error *error);
ls_status ls_cuda_choose_heads(ls_op_kind kind, const ls_kernel_args *args,
                               ls_cuda_launches *launches, ls_error *error);
ls_status ls_cuda_choose_heads_product(ls_op_kind kind, const ls_kernel_args *args,
                                       ls_cuda_launches *launches, ls_error *error);
ls_status ls_cuda_choose_distill(ls_op_kind kind, const ls_kernel_args *args,
                                 ls_cuda_launches *launches, ls_error *error);
ls_status ls_cuda_choose_several(ls_op_kind kind, const ls_kernel_args *args,
                                 ls_cuda_launches *launches, ls_error *error);
ls_status ls_cuda_choose_cached_part(ls_op_kind kind, const ls_kernel_args *args,
                                     ls_cuda_launches *launches, ls_error *error);
ls_status ls_cuda_choose_cached_end(ls_op_kind kind, const ls_kernel_args *args,
                                    ls_cuda_launches *launches, ls_error *error);
ls_status ls_cuda_choose_codes(ls_op_kind kind, const ls_kernel_args *args,
                               ls_cuda_launches *launches, ls_error *error);
ls_status ls_cuda_choose_point(ls_op_kind kind, const ls_kernel_args *args,
                               ls_cuda_launches *launches, ls_error *error);
ls_status ls_cuda_choose_adafactor(ls_op_kind kind, const ls_kernel_args *args,
                                   ls_cuda_launches *launches, ls_error *error);
ls_status ls_cuda_choose_muon(ls_op_kind kind, const ls_kernel_args *args,
                              ls_cuda_launches *launches, ls_error *error);
ls_status ls_cuda_choose_orthogonalise(ls_op_kind kind, const ls_kernel_args *args,
                                       ls_cuda_launches *launches, ls_error *error);
ls_status ls_cuda_choose_norm(ls_op_kind kind, const ls_kernel_args *args,
                              ls_cuda_launches *launches, ls_error *error);
ls_status ls_cuda_choose_dropout(ls_op_kind kind, const ls_kernel_args *args,
                                 ls_cuda_launches *launches, ls_error *error);
ls_status ls_cuda_choose_row(ls_op_kind kind, const ls_kernel_args *args,
                             ls_cuda_launches *launches, ls_error *error);
ls_status ls_cuda_choose_bias_db(ls_op_kind kind, const ls_kernel_args *args,
                                 ls_cuda_launches *launches, ls_error *error);
ls_status ls_cuda_choose_rope(ls_op_kind kind, const ls_kernel_args *args,
                              ls_cuda_launches *launches, ls_error *error);
ls_status ls_cuda_choose_rope_table(ls_op_kind kind, const ls_kernel_args *args,
                                    ls_cuda_launches *launches, ls_error *error);
ls_status ls_cuda_choose_embedding(ls_op_kind kind, const ls_kernel_args *args,
                                   ls_cuda_launches *launches, ls_error *error);
ls_status ls_cuda_choose_cross_entropy(ls_op_kind kind, const ls_kernel_args *args,
                                       ls_cuda_launches *launches, ls_error *error);
ls_status ls_cuda_choose_tokens(ls_op_kind kind, const ls_kernel_args *args,
                                ls_cuda_launches *launches, ls_error *error);
ls_status ls_cuda_choose_cells(ls_op_kind kind, const ls_kernel_args *args,
                               ls_cuda_launches *launches, ls_error *error);
ls_status ls_cuda_choose_squares(ls_op_kind kind, const ls_kernel_args *args,
                                 ls_cuda_launches *launches, ls_error *error);
ls_status ls_cuda_choose_optimizer(ls_op_kind kind, const ls_kernel_args *args,
                                   ls_cuda_launches *launches, ls_error *error);
ls_status ls_cuda_choose_move(ls_op_kind kind, const ls_kernel_args *args,
                              ls_cuda_launches *launches, ls_error *error);
ls_status ls_cuda_choose_attention(ls_op_kind kind, const ls_kernel_args *args,
                                   ls_cuda_launches *launches, ls_error *error);
ls_status ls_cuda_choose_attention_bwd(ls_op_kind kind, const ls_kernel_args *args,
                                       ls_cuda_launches *launches, ls_error *error);
ls_status ls_cuda_choose_cached_attention(ls_op_kind kind, const ls_kernel_args *args,
                                          ls_cuda_launches *launches, ls_error *error);
ls_status ls_cuda_choose_restore_scales(ls_op_kind kind, const ls_kernel_args *args,
                                        ls_cuda_launches *launches, ls_error *error);
ls_status ls_cuda_choose_dequantize(ls_op_kind kind, const ls_kernel_args *args,
                                    ls_cuda_launches *launches, ls_error *error);
ls_status ls_cuda_choose_text_sums(ls_op_kind kind, const ls_kernel_args *args,
                                   ls_cuda_launches *launches, ls_error *error);
ls_status ls_cuda_choose_unit_rows(ls_op_kind kind, const ls_kernel_args *args,
                                   ls_cuda_launches *launches, ls_error *error);
ls_status ls_cuda_choose_text_match(ls_op_kind kind, const ls_kernel_args *args,
                                    ls_cuda_launches *launches, ls_error *error);
ls_status ls_cuda_choose_text_total(ls_op_kind kind, const ls_kernel_args *args,
                                    ls_cuda_launches *launches, ls_error *error);
ls_status ls_cuda_choose_pairs(ls_op_kind kind, const ls_kernel_args *args,
                               ls_cuda_launches *launches, ls_error *error);
ls_status ls_cuda_choose_route(ls_op_kind kind, const ls_kernel_args *args,
                               ls_cuda_launches *launches, ls_error *error);
ls_status ls_cuda_choose_route_bwd(ls_op_kind kind, const ls_kernel_args *args,
                                   ls_cuda_launches *launches, ls_error *error);
ls_status ls_cuda_choose_loads(ls_op_kind kind, const ls_kernel_args *args,
                               ls_cuda_launches *launches, ls_error *error);
ls_status ls_cuda_choose_loads_total(ls_op_kind kind, const ls_kernel_args *args,
                                     ls_cuda_launches *launches, ls_error *error);
ls_status ls_cuda_choose_router_loss(ls_op_kind kind, const ls_kernel_args *args,
                                     ls_cuda_launches *launches, ls_error *error);
ls_status ls_cuda_choose_row_sigmoid(ls_op_kind kind, const ls_kernel_args *args,
                                     ls_cuda_launches *launches, ls_error *error);
ls_status ls_cuda_choose_routed(ls_op_kind kind, const ls_kernel_args *args,
                                ls_cuda_launches *launches, ls_error *error);
ls_status ls_cuda_choose_grouped(ls_op_kind kind, const ls_kernel_args *args,
                                 ls_cuda_launches *launches, ls_error *error);
ls_status ls_cuda_choose_placed(ls_op_kind kind, const ls_kernel_args *args,
                                ls_cuda_launches *launches, ls_error *error);
ls_status ls_cuda_choose_placed_bwd(ls_op_kind kind, const ls_kernel_args *args,
                                    ls_cuda_launches *launches, ls_error *error);
ls_status ls_cuda_choose_ring(ls_op_kind kind, const ls_kernel_args *args,
                              ls_cuda_launches *launches, ls_error *error);

enum { LS_CUDA_MOST_HEAD = 256 };

/* What all attention is given; q, k and v are inputs from `first` on. LS_INTERNAL: heads that are
 * not whole, or longer than `most`. */
LS_CHECKED ls_status ls_cuda_attention_of(const ls_kernel_args *args, int first, int64_t most,
                                          ls_cuda_attention *with, ls_error *error);

/* Outputs and workspace of what numbers a routing's rows, whose tokens, choices and experts are
 * set; then its launches, behind those that leave -1 - expert in each choice's place and its weight
 * in slot_weights. LS_INTERNAL: other types. */
LS_CHECKED ls_status ls_cuda_number_rows(const ls_kernel_args *args, ls_cuda_route *with,
                                         ls_error *error);
void ls_cuda_add_numbers(const ls_cuda_route *with, ls_cuda_launches *launches);

/* The next launch: the sum of so many parts, in their order, goes to a cell. */
void ls_cuda_add_parts(ls_cuda_launches *launches, double *parts, int64_t count, double *cell,
                       bool add);

/* The next launches: the gradient of sinks, from dout, out and log_sums. LS_INTERNAL: another type,
 * or too small a workspace. */
LS_CHECKED ls_status ls_cuda_add_sinks(const ls_kernel_args *args, const ls_cuda_attention *of,
                                       const ls_view *made, bool add, ls_cuda_launches *launches,
                                       ls_error *error);

/* The next launch, of the kernel called NAME and SUFFIX, with the one member of its arguments that
 * the caller fills. */
ls_cuda_launch *ls_cuda_add_launch(ls_cuda_launches *launches, const char *name, const char *suffix,
                                   uint32_t blocks, uint32_t threads, size_t argument_bytes);

/* "_fp32", "_bf16" or "_fp16"; LS_INTERNAL for a type that kernels do not compute in. */
LS_CHECKED ls_status ls_cuda_suffix(ls_dtype dtype, const char **suffix, ls_error *error);

/* LS_INTERNAL unless the operand has that type. */
LS_CHECKED ls_status ls_cuda_expect(const ls_view *view, ls_dtype dtype, const char *what,
                                    ls_error *error);

/* LS_INTERNAL unless the workspace of a call has so many bytes. */
LS_CHECKED ls_status ls_cuda_expect_workspace(const ls_kernel_args *args, size_t bytes,
                                              ls_error *error);

ls_cuda_place ls_cuda_place_of(const ls_view *view, bool add);

/* Stored elements from row to row; 1 for a vector. */
int64_t ls_cuda_stride(const ls_view *view);

/* Whether each row begins at a multiple of 16 bytes. */
bool ls_cuda_is_wide(const ls_view *view);

/* Elements as rows of columns, as few rows as may be: a vector is one row, and so is a matrix
 * without padding where `whole`. */
typedef struct ls_cuda_extent {
  int64_t rows, columns;
} ls_cuda_extent;

ls_cuda_extent ls_cuda_extent_of(const ls_view *view, bool whole);

/* `wanted` blocks, at least 1 and at most `each` on every multiprocessor: kernels go on to what
 * the others left. */
uint32_t ls_cuda_blocks(const ls_device_facts *facts, int64_t wanted, int each);

static inline int64_t ls_cuda_divide_up(int64_t count, int64_t by) {
  return (count + by - 1) / by;
}

static inline int64_t ls_cuda_smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}

#endif
