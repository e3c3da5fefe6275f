#include "device/cpu/vector_table.h"

#include "device/cpu/vector_router.h"

static void fill(ls_kernel_table *table) {
  LS_VECTOR(ls_fill_elementwise)(table);
  LS_VECTOR(ls_fill_blocks)(table);
  LS_VECTOR(ls_fill_fp8)(table);
  LS_VECTOR(ls_fill_norm)(table);
  LS_VECTOR(ls_fill_row)(table);
  LS_VECTOR(ls_fill_token)(table);
  LS_VECTOR(ls_fill_heads)(table);
  LS_VECTOR(ls_fill_loss)(table);
  LS_VECTOR(ls_fill_optimizer)(table);
  LS_VECTOR(ls_fill_adafactor)(table);
  LS_VECTOR(ls_fill_attention)(table);
  LS_VECTOR(ls_fill_attention_bwd)(table);
  LS_VECTOR(ls_fill_cached_attention)(table);
  LS_VECTOR(ls_fill_experts)(table);
  LS_VECTOR(ls_fill_slots)(table);
  LS_VECTOR(ls_fill_texts)(table);
  LS_VECTOR(ls_fill_router)(table);
}

static void widen_row(float *target, const void *source, ls_dtype dtype, int64_t count) {
  widen(target, source, dtype, count);
}

static void narrow_row(void *target, ls_dtype dtype, const float *source, int64_t count, bool add) {
  narrow(target, dtype, source, count, add);
}

#define LS_TEXT_(name) #name
#define LS_TEXT(name) LS_TEXT_(name)

const ls_vector_set LS_VECTOR(ls_vector_set) = {
    .name = LS_TEXT(LS_ISA),
    .fill = fill,
    .widen = widen_row,
    .narrow = narrow_row,
    .rows_multiply = LS_VECTOR(ls_rows_multiply),
    .dequantize = LS_VECTOR(ls_dequantize),
#if defined(__AVX512BF16__)
    .few_sums_pack = LS_VECTOR(ls_few_sums_pack),
    .few_sums_make = LS_VECTOR(ls_few_sums_make),
    .shallow_pack = LS_VECTOR(ls_shallow_pack),
    .shallow_make = LS_VECTOR(ls_shallow_make),
#endif
};
