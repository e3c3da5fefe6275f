/* Element types of tensors, in memory and in files. */
#ifndef LOCKSTEP_DTYPE_H
#define LOCKSTEP_DTYPE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ls_dtype {
  LS_F32 = 0,
  LS_BF16,
  LS_F16,
  LS_F64,
  LS_I32,
  LS_I64,
  LS_U8,
  LS_NF4,        /* of weights: a block of them, see below */
  LS_INT8,       /* likewise */
  LS_FP4,        /* likewise */
  LS_NF4_DOUBLE, /* likewise, whose scale is a code of 8 bits */
  LS_FP4_DOUBLE, /* likewise */
  LS_DTYPE_COUNT
} ls_dtype;

/* Bytes of one element. */
size_t ls_dtype_bytes(ls_dtype dtype);

/* An element of LS_NF4, LS_FP4 and LS_INT8 is a block of so many weights, which follow each other
 * in a row of a matrix: an fp32 scale and their codes, of 4 bits, or of 8 of LS_INT8. One of
 * LS_NF4_DOUBLE and LS_FP4_DOUBLE has a byte in place of the scale: what it stands for, numbers
 * beside the matrix say. */
enum { LS_BLOCK_WEIGHTS = 64 };

/* Numbers that an element stands for: LS_BLOCK_WEIGHTS, or 1. */
int64_t ls_dtype_numbers(ls_dtype dtype);

/* The run file's name: "fp32", "bf16", "fp16", "fp64", "int32", "int64", "uint8", "nf4",
 * "int8", "fp4", "nf4-double", "fp4-double". */
const char *ls_dtype_name(ls_dtype dtype);

/* bfloat16 is the upper half of an fp32, fp16 IEEE 754's binary16. To them by rounding to nearest
 * even (what is too large becomes an infinity, what is small a subnormal number or zero); a NaN
 * stays one. */
float ls_bf16_to_f32(uint16_t value);
uint16_t ls_f32_to_bf16(float value);
float ls_f16_to_f32(uint16_t value);
uint16_t ls_f32_to_f16(float value);

/* Converts `count` elements between any two floating types, rounding once; source and target do
 * not overlap. */
void ls_convert(void *target, ls_dtype target_dtype, const void *source, ls_dtype source_dtype,
                int64_t count);

#ifdef __cplusplus
}
#endif
#endif
