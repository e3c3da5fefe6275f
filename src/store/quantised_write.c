#include <string.h>

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

static void plan_four_bits(ls_arena *arena, const ls_tensor_spec *weight,
                           ls_quantised_saving *made) {
  const char *name = weight->name, *kind = ls_dtype_name(made->blocks);
  made->state = ls_arena_printf(arena,
                                "{\"quant_type\": \"%s\", \"blocksize\": %d, \"dtype\": \"%s\", "
                                "\"shape\": [%lld, %lld]}",
                                kind, (int)LS_BLOCK_WEIGHTS, torch_name(weight->dtype),
                                (long long)weight->dims[0], (long long)weight->dims[1]);
  made->specs = 4;
  made->spec[0] = matrix_of(arena, name, "", LS_U8, made->count * LS_BLOCK_WEIGHTS / 2, 1);
  made->spec[1] = vector_of(arena, name, ".absmax", LS_F32, made->count);
  made->spec[2] = vector_of(arena, name, ".quant_map", LS_F32, LS_FOUR_BIT_CODES);
  made->spec[3] =
      vector_of(arena, name, ls_arena_printf(arena, ".quant_state.bitsandbytes__%s", kind), LS_U8,
                (int64_t)strlen(made->state));
}

static void plan_int8(ls_arena *arena, const ls_tensor_spec *weight, ls_quantised_saving *made) {
  const int64_t rows = weight->dims[0];
  made->specs = 2;
  made->spec[0] = matrix_of(arena, weight->name, "", LS_U8, rows, weight->dims[1]);
  made->spec[0].format = "I8";
  made->spec[1] = matrix_of(arena, weight->name, "_scale", LS_F32, rows, made->count / rows);
}

ls_quantised_saving ls_quantised_save(ls_arena *arena, ls_dtype blocks,
                                      const ls_tensor_spec *weight) {
  LS_ASSERT(weight->ndim == 2 && weight->dims[1] % LS_BLOCK_WEIGHTS == 0);
  ls_quantised_saving made = {.blocks = blocks,
                              .count = weight->dims[0] * weight->dims[1] / LS_BLOCK_WEIGHTS};
  (ls_blocks_values(blocks) ? plan_four_bits : plan_int8)(arena, weight, &made);
  return made;
}

static ls_status append_rest(const ls_quantised_saving *saving, ls_safetensors_writer *writer,
                             ls_error *error) {
  LS_TRY(ls_safetensors_append(writer, saving->scales,
                               (size_t)saving->count * sizeof *saving->scales, error));
  const float *values = ls_blocks_values(saving->blocks);
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
  return saving->done == saving->count ? append_rest(saving, writer, error) : LS_OK;
}
