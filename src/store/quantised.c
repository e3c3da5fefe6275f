#include "store/quantised.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

#include "base/codes.h"
#include "base/scales.h"
#include "text/json.h"
#include "text/quote.h"

static const struct {
  const char *name, *end;
  ls_dtype blocks;
} four_bits[] = {{"nf4", ".quant_state.bitsandbytes__nf4", LS_NF4},
                 {"fp4", ".quant_state.bitsandbytes__fp4", LS_FP4}};
enum { FOUR_BITS = sizeof four_bits / sizeof *four_bits };
static const char int8_end[] = "_scale";
static const char mx_blocks[] = "_blocks", mx_scales[] = "_scales";
enum { MAP = 256, MX_WEIGHTS = 32, MX_NONE = 255, MX_BIAS = 127 };

/* What codes of 4 bits stand for: E2M1, the sign above. */
static const float mx_values[16] = {0,     0.5F,  1,  1.5F,  2,  3,  4,  6,
                                    -0.0F, -0.5F, -1, -1.5F, -2, -3, -4, -6};

static const ls_stored_tensor *beside(ls_arena *arena, const ls_stored_tensor *tensor,
                                      const char *end) {
  return ls_safetensors_find(tensor->set, ls_arena_printf(arena, "%s%s", tensor->name, end));
}

static ls_status fail(const ls_stored_tensor *tensor, const char *end, const char *expected,
                      ls_error *error) {
  char shown[LS_QUOTE_BYTES];
  return ls_fail(error, LS_INPUT, "%s: tensor \"%s\"%s%s: expected %s", tensor->file,
                 ls_quote(shown, tensor->name, strlen(tensor->name)), *end ? " and " : "", end,
                 expected);
}

/* A tensor beside it of so many elements; *data is NULL where that is 0. */
static ls_status find_part(ls_arena *arena, const ls_stored_tensor *tensor, const char *end,
                           ls_dtype dtype, int64_t count, const char **data, ls_error *error) {
  const ls_stored_tensor *part = beside(arena, tensor, end);
  if (part && part->dtype == dtype && part->count == count) {
    *data = part->data;
    return LS_OK;
  }
  return fail(
      tensor, end,
      ls_arena_printf(arena, "%lld numbers of %s there", (long long)count, ls_dtype_name(dtype)),
      error);
}

static float float_at(const char *data, int64_t i) {
  float value;
  memcpy(&value, data + (size_t)i * sizeof value, sizeof value);
  return value;
}

static ls_status check_map(ls_arena *arena, const ls_stored_tensor *tensor, int kind,
                           ls_error *error) {
  const char *map;
  const float *values = ls_blocks_values(four_bits[kind].blocks);
  LS_TRY(find_part(arena, tensor, ".quant_map", LS_F32, LS_FOUR_BIT_CODES, &map, error));
  if (memcmp(map, values, LS_FOUR_BIT_CODES * sizeof *values) == 0) return LS_OK;
  return fail(tensor, ".quant_map",
              ls_arena_printf(arena, "the 16 numbers of %s", four_bits[kind].name), error);
}

static ls_status read_nested(ls_arena *arena, const ls_stored_tensor *tensor,
                             const ls_json_object *state, int64_t blocks, ls_quantised *made,
                             ls_error *error) {
  double offset;
  LS_TRY(ls_json_count(state, "nested_blocksize", &made->nested_block, error));
  LS_TRY(ls_json_number(state, "nested_offset", &offset, error));
  made->offset = (float)offset;
  if (made->nested_block < 1) return fail(tensor, "nested_blocksize", "a number above 0", error);
  const int64_t count = (blocks + made->nested_block - 1) / made->nested_block;
  made->scale_type = LS_U8;
  LS_TRY(find_part(arena, tensor, ".absmax", LS_U8, blocks, &made->scales, error));
  LS_TRY(find_part(arena, tensor, ".nested_quant_map", LS_F32, MAP, &made->map, error));
  return find_part(arena, tensor, ".nested_absmax", LS_F32, count, &made->nested, error);
}

static ls_status read_type(const ls_json_object *state, ls_dtype *dtype, ls_error *error) {
  static const struct {
    const char *name;
    ls_dtype dtype;
  } types[] = {{"float32", LS_F32}, {"bfloat16", LS_BF16}, {"float16", LS_F16}};
  const char *name;
  LS_TRY(ls_json_string(state, "dtype", &name, error));
  for (size_t t = 0; t < sizeof types / sizeof *types; t++)
    if (strcmp(types[t].name, name) == 0) {
      *dtype = types[t].dtype;
      return LS_OK;
    }
  return ls_fail(error, LS_INPUT,
                 "%s: dtype: found \"%.40s\"; expected float32, bfloat16 or float16", state->where,
                 name);
}

static ls_status read_state(ls_arena *arena, ls_stored_tensor *tensor, int kind,
                            const ls_json_object *state, ls_error *error) {
  ls_quantised *made = LS_NEW(arena, ls_quantised);
  *made =
      (ls_quantised){.blocks = four_bits[kind].blocks, .codes = tensor->data, .scale_type = LS_F32};
  const char *found;
  int64_t block, *dims, count;
  int ndim;
  LS_TRY(ls_json_string(state, "quant_type", &found, error));
  LS_TRY(ls_json_count(state, "blocksize", &block, error));
  LS_TRY(ls_json_ints(arena, state, "shape", &dims, &ndim, error));
  ls_dtype dtype = LS_F32;
  LS_TRY(read_type(state, &dtype, error));
  if (strcmp(found, four_bits[kind].name) != 0 || block != LS_BLOCK_WEIGHTS)
    return fail(tensor, four_bits[kind].end,
                ls_arena_printf(arena, "quant_type %s and blocksize 64, which is built",
                                four_bits[kind].name),
                error);
  if (ndim != 2 || dims[0] < 1 || dims[1] < 1 || dims[1] % LS_BLOCK_WEIGHTS != 0 ||
      __builtin_mul_overflow(dims[0], dims[1], &count) || tensor->dtype != LS_U8 ||
      count % 2 != 0 || tensor->count != count / 2)
    return fail(tensor, four_bits[kind].end,
                "a shape of rows of whole blocks, and a byte for two numbers", error);
  LS_TRY(check_map(arena, tensor, kind, error));
  if (ls_json_has(state, "nested_blocksize"))
    LS_TRY(read_nested(arena, tensor, state, count / LS_BLOCK_WEIGHTS, made, error));
  else
    LS_TRY(find_part(arena, tensor, ".absmax", LS_F32, count / LS_BLOCK_WEIGHTS, &made->scales,
                     error));
  tensor->quantised = made;
  tensor->format = four_bits[kind].name;
  tensor->dtype = dtype;
  tensor->ndim = ndim;
  tensor->dims = dims;
  tensor->count = count;
  return LS_OK;
}

static bool is_scale(ls_dtype dtype) {
  return dtype == LS_F32 || dtype == LS_BF16 || dtype == LS_F16;
}

/* As compressed-tensors saves groups of a row. */
static ls_status find_int8(ls_arena *arena, ls_stored_tensor *tensor, ls_error *error) {
  const ls_stored_tensor *scales = beside(arena, tensor, int8_end);
  if (!scales || strcmp(tensor->format, "I8") != 0) return LS_OK;
  const bool whole = tensor->ndim == 2 && tensor->dims[1] % LS_BLOCK_WEIGHTS == 0;
  if (!whole || tensor->count < 1 || scales->ndim != 2 || scales->dims[0] != tensor->dims[0] ||
      scales->dims[1] != tensor->dims[1] / LS_BLOCK_WEIGHTS || !is_scale(scales->dtype))
    return fail(tensor, int8_end, "rows of whole blocks of 64, and a scale of each", error);
  ls_quantised *made = LS_NEW(arena, ls_quantised);
  *made = (ls_quantised){.blocks = LS_INT8,
                         .codes = tensor->data,
                         .scales = scales->data,
                         .scale_type = scales->dtype};
  tensor->quantised = made;
  tensor->format = ls_dtype_name(LS_INT8);
  tensor->dtype = scales->dtype;
  return LS_OK;
}

static bool ends_with(const char *name, const char *end, size_t *length) {
  const size_t all = strlen(name), part = strlen(end);
  *length = all - part;
  return all > part && strcmp(name + all - part, end) == 0;
}

/* The other of the two tensors of MXFP4, by what their names end with; NULL: it is not one of them.
 */
static const ls_stored_tensor *mx_other(ls_arena *arena, const ls_stored_tensor *tensor,
                                        const char *end, const char *other) {
  size_t length;
  if (!ends_with(tensor->name, end, &length)) return NULL;
  return ls_safetensors_find(tensor->set,
                             ls_arena_printf(arena, "%.*s%s", (int)length, tensor->name, other));
}

static ls_status find_mxfp4(ls_arena *arena, ls_stored_tensor *tensor, ls_error *error) {
  const ls_stored_tensor *scales = mx_other(arena, tensor, mx_blocks, mx_scales);
  if (!scales || tensor->dtype != LS_U8 || scales->dtype != LS_U8) return LS_OK;
  const int ndim = tensor->ndim - 1;
  bool fits = ndim > 1 && scales->ndim == ndim && tensor->count > 0 &&
              tensor->dims[ndim] == MX_WEIGHTS / 2 && tensor->count < INT64_MAX / 2;
  int64_t *dims = LS_NEW_ARRAY(arena, int64_t, ndim > 0 ? ndim : 1);
  for (int d = 0; d < ndim && fits; d++) {
    fits = scales->dims[d] == tensor->dims[d];
    dims[d] = tensor->dims[d] * (d == ndim - 1 ? MX_WEIGHTS : 1);
  }
  if (!fits) return fail(tensor, mx_scales, "blocks of 16 bytes, and there a byte of each", error);
  ls_quantised *made = LS_NEW(arena, ls_quantised);
  *made = (ls_quantised){
      .blocks = LS_DTYPE_COUNT, .codes = tensor->data, .scales = scales->data, .scale_type = LS_U8};
  tensor->quantised = made;
  tensor->format = "mxfp4";
  tensor->dtype = LS_BF16;
  tensor->ndim = ndim;
  tensor->dims = dims;
  tensor->count *= 2;
  return LS_OK;
}

ls_status ls_quantised_find(ls_arena *arena, ls_stored_tensor *tensor, ls_error *error) {
  const ls_stored_tensor *stored = NULL;
  int kind = -1;
  while (!stored && ++kind < FOUR_BITS) stored = beside(arena, tensor, four_bits[kind].end);
  if (!stored) LS_TRY(find_int8(arena, tensor, error));
  if (!stored) return tensor->quantised ? LS_OK : find_mxfp4(arena, tensor, error);
  if (stored->dtype != LS_U8 || !stored->data)
    return fail(tensor, four_bits[kind].end, "bytes of JSON", error);
  const char *name = ls_arena_printf(arena, "%s: %s", stored->file, stored->name);
  json_t *root;
  ls_json_object state;
  LS_TRY(ls_json_parse(name, stored->data, stored->bytes, 0, &root, error));
  ls_status status = ls_json_root(name, root, &state, error);
  if (status == LS_OK) status = read_state(arena, tensor, kind, &state, error);
  json_decref(root);
  return status;
}

bool ls_quantised_is_part(const ls_stored_tensor *tensor) {
  static const char *const ends[] = {".absmax",
                                     ".nested_absmax",
                                     ".nested_quant_map",
                                     ".quant_map",
                                     ".quant_state.bitsandbytes__nf4",
                                     ".quant_state.bitsandbytes__fp4",
                                     int8_end};
  ls_arena *scratch = ls_arena_create();
  bool is_part = false;
  size_t length;
  for (size_t e = 0; e < sizeof ends / sizeof *ends && !is_part; e++) {
    if (!ends_with(tensor->name, ends[e], &length)) continue;
    const ls_stored_tensor *of = ls_safetensors_find(
        tensor->set, ls_arena_printf(scratch, "%.*s", (int)length, tensor->name));
    is_part = of && of->quantised;
  }
  const ls_stored_tensor *blocks = mx_other(scratch, tensor, mx_scales, mx_blocks);
  is_part = is_part || (blocks && blocks->quantised);
  ls_arena_destroy(&scratch);
  return is_part;
}

/* Of nested scales as bitsandbytes restores it, in fp32. */
static float scale_of(const ls_quantised *of, int64_t block) {
  float scale;
  if (!of->nested) {
    const size_t bytes = ls_dtype_bytes(of->scale_type);
    double aligned;
    memcpy(&aligned, of->scales + (size_t)block * bytes, bytes);
    ls_convert(&scale, LS_F32, &aligned, of->scale_type, 1);
    return scale;
  }
  const float share = float_at(of->map, ((const uint8_t *)of->scales)[block]);
  scale = share * float_at(of->nested, block / of->nested_block);
  return scale + of->offset;
}

size_t ls_quantised_bytes(const ls_quantised *of, int64_t weights) {
  return (size_t)weights / (of->blocks == LS_INT8 ? 1 : 2);
}

bool ls_quantised_is_double(const ls_quantised *of) {
  return of->nested && of->nested_block == LS_SCALES_TOGETHER &&
         memcmp(of->map, ls_codes_signed, sizeof ls_codes_signed) == 0;
}

void ls_quantised_nested(const ls_quantised *of, int64_t blocks, float *nested) {
  LS_ASSERT(ls_quantised_is_double(of));
  nested[0] = of->offset;
  memcpy(nested + 1, of->nested, (size_t)(ls_scales_nested(blocks) - 1) * sizeof *nested);
}

static ls_status check_scale(const ls_stored_tensor *tensor, int64_t block, float scale,
                             ls_error *error) {
  if (isfinite(scale)) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s: %s: the scale of block %lld is %g; expected a number",
                 tensor->file, tensor->name, (long long)block, (double)scale);
}

ls_status ls_quantised_read_double(const ls_stored_tensor *tensor, int64_t first, int64_t count,
                                   ls_double_block *blocks, ls_error *error) {
  const ls_quantised *of = tensor->quantised;
  LS_ASSERT(ls_quantised_is_double(of));
  for (int64_t b = 0; b < count; b++) {
    LS_TRY(check_scale(tensor, first + b, scale_of(of, first + b), error));
    blocks[b].scale = ((const uint8_t *)of->scales)[first + b];
    memcpy(blocks[b].codes, of->codes + (size_t)(first + b) * sizeof blocks->codes,
           sizeof blocks->codes);
  }
  return LS_OK;
}

ls_status ls_quantised_read(const ls_stored_tensor *tensor, int64_t first, int64_t count,
                            void *blocks, ls_error *error) {
  const ls_quantised *of = tensor->quantised;
  const size_t codes = ls_quantised_bytes(of, LS_BLOCK_WEIGHTS);
  char *to = blocks;
  for (int64_t b = first; b < first + count; b++) {
    const float scale = scale_of(of, b);
    LS_TRY(check_scale(tensor, b, scale, error));
    memcpy(to, &scale, sizeof scale);
    memcpy(to + sizeof scale, of->codes + (size_t)b * codes, codes);
    to += sizeof scale + codes;
  }
  return LS_OK;
}

ls_status ls_quantised_restore(const ls_stored_tensor *tensor, int64_t first, int64_t count,
                               ls_dtype dtype, void *weights, ls_error *error) {
  const uint8_t *codes = (const uint8_t *)tensor->quantised->codes;
  const uint8_t *scales = (const uint8_t *)tensor->quantised->scales;
  char *to = weights;
  for (int64_t at = first, now; at < first + count; at += now) {
    const int64_t block = at / MX_WEIGHTS, end = (block + 1) * MX_WEIGHTS;
    float made[MX_WEIGHTS];
    now = (end < first + count ? end : first + count) - at;
    if (scales[block] == MX_NONE)
      return ls_fail(error, LS_INPUT, "%s: %s: the scale of block %lld is 255; expected a number",
                     tensor->file, tensor->name, (long long)block);
    const float scale = ldexpf(1, scales[block] - MX_BIAS);
    for (int64_t i = 0; i < now; i++) {
      const uint8_t both = codes[(at + i) / 2];
      made[i] = scale * mx_values[(at + i) % 2 ? both >> 4 : both & 15];
    }
    ls_convert(to, dtype, made, LS_F32, now);
    to += (size_t)now * ls_dtype_bytes(dtype);
  }
  return LS_OK;
}
