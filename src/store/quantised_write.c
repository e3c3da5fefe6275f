#include <stdio.h>
#include <string.h>

#include "base/codes.h"
#include "base/scales.h"
#include "store/quantised.h"

static ls_tensor_spec vector_of(ls_arena *arena, const char *name, const char *end, ls_dtype dtype,
                                int64_t count) {
  int64_t *dims = LS_NEW_ARRAY(arena, int64_t, 1);
  dims[0] = count;
  return (ls_tensor_spec){
      .name = ls_arena_printf(arena, "%s%s", name, end), .dtype = dtype, .ndim = 1, .dims = dims};
}

static ls_tensor_spec matrix_of(ls_arena *arena, const char *name, const char *end, ls_dtype dtype,
                                int64_t rows, int64_t columns) {
  int64_t *dims = LS_NEW_ARRAY(arena, int64_t, 2);
  dims[0] = rows;
  dims[1] = columns;
  return (ls_tensor_spec){
      .name = ls_arena_printf(arena, "%s%s", name, end), .dtype = dtype, .ndim = 2, .dims = dims};
}

static const char *torch_name(ls_dtype dtype) {
  return dtype == LS_BF16 ? "bfloat16" : dtype == LS_F16 ? "float16" : "float32";
}

/* As wide whatever the number is: the file's header has the length before the mean is known. */
#define MEAN_FORMAT "%23.16e"

static char *state_of(ls_arena *arena, const ls_tensor_spec *weight,
                      const ls_quantised_saving *saving, float mean) {
  const char *nested = "";
  if (saving->again)
    nested = ls_arena_printf(arena,
                             ", \"nested_blocksize\": %d, \"nested_dtype\": \"float32\", "
                             "\"nested_offset\": " MEAN_FORMAT,
                             (int)LS_SCALES_TOGETHER, (double)mean);
  return ls_arena_printf(arena,
                         "{\"quant_type\": \"%s\", \"blocksize\": %d, \"dtype\": \"%s\", "
                         "\"shape\": [%lld, %lld]%s}",
                         ls_dtype_name(saving->blocks), (int)LS_BLOCK_WEIGHTS,
                         torch_name(weight->dtype), (long long)weight->dims[0],
                         (long long)weight->dims[1], nested);
}

static void plan_four_bits(ls_arena *arena, const ls_tensor_spec *weight,
                           ls_quantised_saving *made) {
  const char *name = weight->name;
  const char *end =
      ls_arena_printf(arena, ".quant_state.bitsandbytes__%s", ls_dtype_name(made->blocks));
  ls_tensor_spec *spec = made->spec;
  made->state = state_of(arena, weight, made, 0);
  *spec++ = matrix_of(arena, name, "", LS_U8, made->count * LS_BLOCK_WEIGHTS / 2, 1);
  *spec++ = vector_of(arena, name, ".absmax", made->again ? LS_U8 : LS_F32, made->count);
  if (made->again) {
    const int64_t groups = ls_scales_nested(made->count) - 1;
    *spec++ = vector_of(arena, name, ".nested_absmax", LS_F32, groups);
    *spec++ = vector_of(arena, name, ".nested_quant_map", LS_F32, LS_CODES);
  }
  *spec++ = vector_of(arena, name, ".quant_map", LS_F32, LS_FOUR_BIT_CODES);
  *spec++ = vector_of(arena, name, end, LS_U8, (int64_t)strlen(made->state));
  made->specs = (int)(spec - made->spec);
}

static void plan_int8(ls_arena *arena, const ls_tensor_spec *weight, ls_quantised_saving *made) {
  const int64_t rows = weight->dims[0];
  made->specs = 2;
  made->spec[0] = matrix_of(arena, weight->name, "", LS_U8, rows, weight->dims[1]);
  made->spec[0].format = "I8";
  made->spec[1] = matrix_of(arena, weight->name, "_scale", LS_F32, rows, made->count / rows);
}

ls_quantised_saving ls_quantised_save(ls_arena *arena, ls_dtype blocks, bool again,
                                      const ls_tensor_spec *weight) {
  LS_ASSERT(weight->ndim == 2 && weight->dims[1] % LS_BLOCK_WEIGHTS == 0);
  LS_ASSERT(!again || ls_blocks_values(blocks));
  ls_quantised_saving made = {.blocks = blocks,
                              .again = again,
                              .count = weight->dims[0] * weight->dims[1] / LS_BLOCK_WEIGHTS};
  (ls_blocks_values(blocks) ? plan_four_bits : plan_int8)(arena, weight, &made);
  return made;
}

void ls_quantised_take_scales(ls_quantised_saving *saving, const ls_quantised *of) {
  if (saving->again && of->blocks == saving->blocks && ls_quantised_is_double(of))
    saving->from = of;
}

/* Codes of the scales, and what these are scales of: as they were, or made. */
static ls_status append_nested(ls_arena *arena, ls_quantised_saving *saving,
                               ls_safetensors_writer *writer, float *mean, ls_error *error) {
  const ls_quantised *from = saving->from;
  const int64_t numbers = ls_scales_nested(saving->count);
  float *nested = LS_NEW_ARRAY(arena, float, numbers);
  uint8_t *codes = LS_NEW_ARRAY(arena, uint8_t, saving->count);
  const size_t largest = (size_t)(numbers - 1) * sizeof *nested;
  if (from) {
    ls_quantised_nested(from, saving->count, nested);
    memcpy(codes, from->scales, (size_t)saving->count);
  } else {
    ls_scales_measure(saving->scales, saving->count, nested);
    for (int64_t b = 0; b < saving->count; b++)
      codes[b] = ls_scale_code(saving->scales[b], nested, b);
  }
  *mean = nested[0];
  LS_TRY(ls_safetensors_append(writer, codes, (size_t)saving->count, error));
  LS_TRY(ls_safetensors_append(writer, nested + 1, largest, error));
  return ls_safetensors_append(writer, ls_codes_signed, sizeof ls_codes_signed, error);
}

/* The mean in place of the number that stands for it. */
static void write_mean(char *state, float mean) {
  enum { WIDE = 23 };
  char number[WIDE + 1];
  char *at = state + strlen(state) - WIDE - 1; /* before the bracket */
  snprintf(number, sizeof number, MEAN_FORMAT, (double)mean);
  memcpy(at, number, WIDE);
}

static ls_status append_rest(ls_arena *arena, ls_quantised_saving *saving,
                             ls_safetensors_writer *writer, ls_error *error) {
  const float *values = ls_blocks_values(saving->blocks);
  if (saving->again) {
    float mean;
    LS_TRY(append_nested(arena, saving, writer, &mean, error));
    write_mean(saving->state, mean);
  } else {
    LS_TRY(ls_safetensors_append(writer, saving->scales,
                                 (size_t)saving->count * sizeof *saving->scales, error));
  }
  if (!values) return LS_OK;
  LS_TRY(ls_safetensors_append(writer, values, LS_FOUR_BIT_CODES * sizeof *values, error));
  return ls_safetensors_append(writer, saving->state, strlen(saving->state), error);
}

ls_status ls_quantised_append(ls_arena *arena, ls_quantised_saving *saving,
                              ls_safetensors_writer *writer, const void *blocks, int64_t count,
                              ls_error *error) {
  enum { AT_ONCE = 256 };
  const size_t bytes = ls_dtype_bytes(saving->blocks), codes = bytes - sizeof(float);
  const char *from = blocks;
  char buffer[AT_ONCE * LS_BLOCK_WEIGHTS];
  if (!saving->scales) saving->scales = LS_NEW_ARRAY(arena, float, saving->count);
  for (int64_t done = 0; done < count;) {
    int64_t now = 0;
    for (; now < AT_ONCE && done < count; now++, done++, from += bytes) {
      memcpy(&saving->scales[saving->done++], from, sizeof(float));
      memcpy(buffer + (size_t)now * codes, from + sizeof(float), codes);
    }
    LS_TRY(ls_safetensors_append(writer, buffer, (size_t)now * codes, error));
  }
  return saving->done == saving->count ? append_rest(arena, saving, writer, error) : LS_OK;
}
