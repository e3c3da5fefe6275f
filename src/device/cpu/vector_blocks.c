/* Blocks of quantised weights as matrices (base/blocks.h). Memory is the floor: of codes of 4 bits
 * half a byte and a bit are read for each number that is written. */
#include "base/blocks.h"
#include "device/cpu/vector_kernels.h"

/* Codes in the order of their weights: an even one's is in the upper half of a byte. */
#if defined(__AVX2__)
LS_INLINE void codes_of(const uint8_t *bytes, __m128i codes[2]) {
  const __m128i both = _mm_loadu_si128((const __m128i *)(const void *)bytes);
  const __m128i low_half = _mm_set1_epi8(15);
  const __m128i even = _mm_and_si128(_mm_srli_epi16(both, 4), low_half);
  const __m128i odd = _mm_and_si128(both, low_half);
  codes[0] = _mm_unpacklo_epi8(even, odd);
  codes[1] = _mm_unpackhi_epi8(even, odd);
}
#endif

#if defined(__AVX512F__)
LS_INLINE void restore_four_bits(const ls_four_bit_block *block, const float *values, float *to) {
  const __m512 table = _mm512_loadu_ps(values), scale = _mm512_set1_ps(block->scale);
#pragma GCC unroll 2
  for (int half = 0; half < 2; half++) {
    __m128i codes[2];
    codes_of(block->codes + 16 * half, codes);
    for (int i = 0; i < 2; i++) {
      const __m512 picked = _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(codes[i]), table);
      _mm512_storeu_ps(to + 32 * half + 16 * i, _mm512_mul_ps(picked, scale));
    }
  }
}
#elif defined(__AVX2__)
/* Of two tables of eight the one that the code's upper bit says. */
LS_INLINE __m256 pick(__m128i codes, __m256 below, __m256 above) {
  const __m256i at = _mm256_cvtepu8_epi32(codes);
  const __m256 upper = _mm256_castsi256_ps(_mm256_slli_epi32(at, 28));
  return _mm256_blendv_ps(_mm256_permutevar8x32_ps(below, at), _mm256_permutevar8x32_ps(above, at),
                          upper);
}

LS_INLINE void restore_four_bits(const ls_four_bit_block *block, const float *values, float *to) {
  const __m256 below = _mm256_loadu_ps(values), above = _mm256_loadu_ps(values + 8);
  const __m256 scale = _mm256_set1_ps(block->scale);
  for (int half = 0; half < 2; half++) {
    __m128i codes[2];
    codes_of(block->codes + 16 * half, codes);
    for (int i = 0; i < 4; i++) {
      const __m128i eight = i % 2 ? _mm_srli_si128(codes[i / 2], 8) : codes[i / 2];
      _mm256_storeu_ps(to + 32 * half + 8 * i, _mm256_mul_ps(pick(eight, below, above), scale));
    }
  }
}
#else
LS_INLINE void restore_four_bits(const ls_four_bit_block *block, const float *values, float *to) {
  for (int i = 0; i < LS_BLOCK_WEIGHTS / 2; i++) {
    to[2 * i] = values[block->codes[i] >> 4] * block->scale;
    to[2 * i + 1] = values[block->codes[i] & 15] * block->scale;
  }
}
#endif

LS_INLINE void restore_int8(const ls_int8_block *block, float *to) {
  const float scale = block->scale;
#pragma omp simd
  for (int i = 0; i < LS_BLOCK_WEIGHTS; i++) to[i] = (float)block->codes[i] * scale;
}

LS_INLINE void restore_row(const ls_view *in, const ls_view *out, int64_t row,
                           const float *values) {
  enum { AHEAD = 1024 }; /* bytes, which the processor fetches from the next pages too */
  const int64_t bytes = (int64_t)ls_dtype_bytes(in->dtype);
  const char *blocks = view_at(in, row, 0);
  float buffer[LS_BLOCK_WEIGHTS];
  for (int64_t b = 0; b < in->valid[1]; b++, blocks += bytes) {
    const int64_t at = b * LS_BLOCK_WEIGHTS;
    __builtin_prefetch(blocks + AHEAD, 0, 2);
    float *to = piece_target(out, row, at, LS_BLOCK_WEIGHTS, false, buffer);
    if (values)
      restore_four_bits((const ls_four_bit_block *)(const void *)blocks, values, to);
    else
      restore_int8((const ls_int8_block *)(const void *)blocks, to);
    piece_store(out, row, at, LS_BLOCK_WEIGHTS, false, buffer);
  }
}

static void dequantize_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const float *values = ls_blocks_values(args->in[0].dtype);
  for (int64_t row = begin; row < end; row++) {
    if (values)
      restore_row(&args->in[0], &args->out[0], row, values);
    else
      restore_row(&args->in[0], &args->out[0], row, NULL);
    row_clear_tail(&args->out[0], row, false);
  }
}

ls_status LS_VECTOR(ls_dequantize)(const ls_kernel_args *args, ls_error *error) {
  const ls_view *in = &args->in[0], *out = &args->out[0];
  if (out->valid[1] != in->valid[1] * LS_BLOCK_WEIGHTS || args->accumulate[0])
    return ls_fail(error, LS_INTERNAL, "%lld blocks of a row are to make %lld weights",
                   (long long)in->valid[1], (long long)out->valid[1]);
  ls_host_split(args->queue->facts->threads,
                ls_cpu_parts(args->queue->facts, out->valid[0] * out->valid[1]), out->valid[0],
                dequantize_turns, args);
  return LS_OK;
}

static void restore_scales_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const ls_view *in = &args->in[0], *out = &args->out[0];
  const ls_double_block *from = in->data;
  ls_four_bit_block *to = out->data;
  for (int64_t row = begin; row < end; row++)
    ls_blocks_unnest(from + row * in->dims[1], args->in[1].data, ls_kernel_first_scale(args, row),
                     out->valid[1], to + row * out->dims[1]);
}

static ls_status restore_scales(const ls_kernel_args *args, ls_error *error) {
  const ls_view *out = &args->out[0];
  LS_TRY(ls_kernel_check_scales(args, error));
  const int64_t words = out->valid[0] * out->valid[1] * (int64_t)(sizeof(ls_four_bit_block) / 4);
  ls_host_split(args->queue->facts->threads, ls_cpu_parts(args->queue->facts, words), out->valid[0],
                restore_scales_turns, args);
  return LS_OK;
}

void LS_VECTOR(ls_fill_blocks)(ls_kernel_table *table) {
  table->kernel[LS_OP_RESTORE_SCALES] = restore_scales;
  table->kernel[LS_OP_DEQUANTIZE] = LS_VECTOR(ls_dequantize);
}
