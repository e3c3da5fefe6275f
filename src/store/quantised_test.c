/* What is saved quantised comes back block by block, in the tensors that others read; what does not
 * fit is refused. */
#include "store/quantised.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/random.h"
#include "support/test_folder.h"

enum { ROWS = 300, COLUMNS = 192, BLOCKS = ROWS * COLUMNS / LS_BLOCK_WEIGHTS };

static const int64_t shape[] = {ROWS, COLUMNS};
static char blocks[2][BLOCKS * sizeof(ls_int8_block)];

/* Blocks of weights, in three calls of unequal lengths; returns the file. */
static const char *save_as(ls_dtype kind, bool again, const char *name) {
  static float weights[ROWS * COLUMNS];
  for (int i = 0; i < ROWS * COLUMNS; i++)
    weights[i] = (float)(ls_random_normal(71, 0, (uint64_t)i) * 0.05);
  ls_blocks_quantise(kind, weights, BLOCKS, blocks[0]);
  const ls_tensor_spec weight = {.name = "a.weight", .dtype = LS_BF16, .ndim = 2, .dims = shape};
  ls_quantised_saving saving = ls_quantised_save(arena, kind, again, &weight);
  ls_safetensors_writer *writer;
  ls_error error = {0};
  const char *path = in_folder(name);
  assert_int_equal(ls_safetensors_create(path, saving.spec, saving.specs, NULL, 0, &writer, &error),
                   LS_OK);
  const int64_t ends[] = {1, 700, BLOCKS};
  for (int64_t i = 0, at = 0; i < 3; at = ends[i++])
    assert_int_equal(
        ls_quantised_append(arena, &saving, writer, blocks[0] + at * (int64_t)ls_dtype_bytes(kind),
                            ends[i] - at, &error),
        LS_OK);
  if (ls_safetensors_finish(&writer, &error) != LS_OK) fail_msg("%s", error.text);
  return path;
}

static const char *save(ls_dtype kind, const char *name) {
  return save_as(kind, false, name);
}

/* The file's bytes with one of its names or values replaced, opened. */
static ls_status reopen(const char *path, const char *from, const char *to, ls_safetensors **set,
                        ls_error *error) {
  char *data;
  size_t bytes;
  assert_int_equal(ls_file_read(arena, path, &data, &bytes, error), LS_OK);
  char *at = from ? memmem(data, bytes, from, strlen(from)) : NULL;
  assert_true(!from || (at && strlen(from) == strlen(to)));
  if (at) memcpy(at, to, strlen(to));
  return ls_safetensors_parse("changed", data, bytes, set, error);
}

/* Two matrices of 2 rows of 2 blocks, of all codes in turns; `none`: a scale that is no number. */
static ls_status open_mxfp4(int64_t last, uint8_t none, ls_safetensors **set, ls_error *error) {
  static const uint8_t scales[8] = {127, 126, 130, 127, 0, 254, 127, 120};
  const int64_t dims[] = {2, 2, 2, last}, of_scales[] = {2, 2, 2};
  const ls_tensor_spec specs[] = {
      {.name = "down_proj_blocks", .dtype = LS_U8, .ndim = 4, .dims = dims},
      {.name = "down_proj_scales", .dtype = LS_U8, .ndim = 3, .dims = of_scales}};
  uint8_t codes[8 * 16], given[8];
  ls_safetensors_writer *writer;
  const char *path = in_folder("mxfp4.safetensors");
  for (int i = 0; i < 8 * 16; i++) codes[i] = (uint8_t)(2 * i % 16 | (2 * i + 1) % 16 << 4);
  memcpy(given, scales, sizeof given);
  if (none) given[5] = none;
  assert_int_equal(ls_safetensors_create(path, specs, 2, NULL, 0, &writer, error), LS_OK);
  assert_int_equal(ls_safetensors_append(writer, codes, (size_t)(8 * last), error), LS_OK);
  assert_int_equal(ls_safetensors_append(writer, given, sizeof given, error), LS_OK);
  assert_int_equal(ls_safetensors_finish(&writer, error), LS_OK);
  return ls_safetensors_open(path, NULL, set, error);
}

/* Codes are numbers of E2M1, the first of a byte in its lower half, times a power of 2. */
static void mxfp4_is_numbers(void **state) {
  (void)state;
  static const float values[16] = {0, 0.5F,  1,  1.5F,  2,  3,  4,  6,
                                   0, -0.5F, -1, -1.5F, -2, -3, -4, -6};
  static const float scales[8] = {1, 0.5F, 8, 1, 0x1p-127F, 0x1p127F, 1, 0x1p-7F};
  ls_safetensors *set;
  ls_error error = {0};
  assert_int_equal(open_mxfp4(16, 0, &set, &error), LS_OK);
  assert_int_equal(ls_safetensors_count(set), 1);
  const ls_stored_tensor *tensor = ls_safetensors_at(set, 0);
  assert_int_equal(tensor->ndim, 3);
  assert_int_equal(tensor->dims[2], 64);
  assert_int_equal(tensor->count, 256);
  float all[256], some[40];
  assert_int_equal(ls_stored_tensor_read(tensor, 0, 256, LS_F32, all, &error), LS_OK);
  for (int i = 0; i < 256; i++) assert_true(all[i] == values[i % 16] * scales[i / 32]);
  assert_int_equal(ls_stored_tensor_read(tensor, 51, 40, LS_F32, some, &error), LS_OK);
  assert_memory_equal(some, all + 51, sizeof some);
  ls_safetensors_close(&set);
  assert_int_equal(open_mxfp4(16, 255, &set, &error), LS_OK);
  assert_int_equal(ls_stored_tensor_read(ls_safetensors_at(set, 0), 0, 256, LS_F32, all, &error),
                   LS_INPUT);
  assert_non_null(strstr(error.text, "the scale of block 5 is 255"));
  ls_safetensors_close(&set);
  assert_int_equal(open_mxfp4(8, 0, &set, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "blocks of 16 bytes"));
}

static void what_is_saved_comes_back(void **state) {
  (void)state;
  static const ls_dtype kinds[] = {LS_NF4, LS_INT8, LS_FP4};
  for (int k = 0; k < 3; k++) {
    const char *name = ls_dtype_name(kinds[k]);
    ls_error error = {0};
    ls_safetensors *set;
    if (reopen(save(kinds[k], name), NULL, NULL, &set, &error) != LS_OK) fail_msg("%s", error.text);
    assert_int_equal(ls_safetensors_count(set), 1);
    const ls_stored_tensor *tensor = ls_safetensors_find(set, "a.weight");
    assert_non_null(tensor);
    assert_int_equal(tensor->quantised->blocks, kinds[k]);
    assert_string_equal(tensor->format, name);
    assert_int_equal(tensor->dtype, kinds[k] == LS_INT8 ? LS_F32 : LS_BF16);
    assert_true(tensor->ndim == 2 && tensor->dims[0] == ROWS && tensor->dims[1] == COLUMNS);
    assert_int_equal(ls_stored_tensor_read(tensor, 0, ROWS * COLUMNS, kinds[k], blocks[1], &error),
                     LS_OK);
    assert_memory_equal(blocks[0], blocks[1], BLOCKS * ls_dtype_bytes(kinds[k]));
    static float all[ROWS * COLUMNS], some[100];
    ls_blocks_restore(kinds[k], blocks[0], BLOCKS, all);
    assert_int_equal(ls_stored_tensor_read(tensor, 777, 100, LS_F32, some, &error), LS_OK);
    assert_memory_equal(some, all + 777, sizeof some);
    ls_safetensors_close(&set);
  }
}

/* Scales that are quantised again are off by half a step at most, and saved from there the same
 * bits of all; numbers of them are those of the scales. */
static void scales_are_quantised_again(void **state) {
  (void)state;
  static const ls_dtype kinds[] = {LS_NF4, LS_FP4};
  for (int k = 0; k < 2; k++) {
    ls_error error = {0};
    ls_safetensors *set;
    const char *path = save_as(kinds[k], true, "double");
    if (reopen(path, NULL, NULL, &set, &error) != LS_OK) fail_msg("%s", error.text);
    const ls_stored_tensor *tensor = ls_safetensors_find(set, "a.weight");
    assert_non_null(tensor);
    assert_non_null(tensor->quantised->nested);
    assert_int_equal(ls_stored_tensor_read(tensor, 0, ROWS * COLUMNS, kinds[k], blocks[1], &error),
                     LS_OK);
    const ls_four_bit_block *made = (const ls_four_bit_block *)blocks[0];
    const ls_four_bit_block *found = (const ls_four_bit_block *)blocks[1];
    double mean = 0, most = 0;
    for (int b = 0; b < BLOCKS; b++) mean += (double)made[b].scale / BLOCKS;
    for (int b = 0; b < BLOCKS; b++) most = fmax(most, fabs((double)made[b].scale - mean));
    int moved = 0;
    for (int b = 0; b < BLOCKS; b++) {
      assert_memory_equal(made[b].codes, found[b].codes, sizeof made[b].codes);
      assert_true(fabs((double)made[b].scale - (double)found[b].scale) < most * 0.0072);
      moved += made[b].scale != found[b].scale;
    }
    assert_true(moved > BLOCKS / 2);
    const ls_tensor_spec weight = {.name = "a.weight", .dtype = LS_BF16, .ndim = 2, .dims = shape};
    ls_quantised_saving saving = ls_quantised_save(arena, kinds[k], true, &weight);
    ls_safetensors_writer *writer;
    const char *copy = in_folder("copy");
    ls_quantised_take_scales(&saving, tensor->quantised);
    assert_ptr_equal(saving.from, tensor->quantised);
    assert_int_equal(
        ls_safetensors_create(copy, saving.spec, saving.specs, NULL, 0, &writer, &error), LS_OK);
    assert_int_equal(ls_quantised_append(arena, &saving, writer, blocks[1], BLOCKS, &error), LS_OK);
    assert_int_equal(ls_safetensors_finish(&writer, &error), LS_OK);
    char *data[2];
    size_t bytes[2];
    assert_int_equal(ls_file_read(arena, path, &data[0], &bytes[0], &error), LS_OK);
    assert_int_equal(ls_file_read(arena, copy, &data[1], &bytes[1], &error), LS_OK);
    assert_int_equal(bytes[0], bytes[1]);
    assert_memory_equal(data[0], data[1], bytes[0]);
    ls_safetensors_close(&set);
  }
}

/* The tensors by the names, types and shapes that bitsandbytes and compressed-tensors give them. */
static void it_is_their_form(void **state) {
  (void)state;
  static const struct {
    ls_dtype kind;
    const char *entry[4];
  } forms[] = {{LS_NF4,
                {"\"a.weight\":{\"dtype\":\"U8\",\"shape\":[28800,1]",
                 "\"a.weight.absmax\":{\"dtype\":\"F32\",\"shape\":[900]",
                 "\"a.weight.quant_map\":{\"dtype\":\"F32\",\"shape\":[16]",
                 "{\"quant_type\": \"nf4\", \"blocksize\": 64, \"dtype\": \"bfloat16\", "
                 "\"shape\": [300, 192]}"}},
               {LS_FP4,
                {"\"a.weight\":{\"dtype\":\"U8\",\"shape\":[28800,1]",
                 "\"a.weight.quant_state.bitsandbytes__fp4\":{\"dtype\":\"U8\"",
                 "\"a.weight.quant_map\":{\"dtype\":\"F32\",\"shape\":[16]",
                 "{\"quant_type\": \"fp4\", \"blocksize\": 64, \"dtype\": \"bfloat16\", "
                 "\"shape\": [300, 192]}"}},
               {LS_INT8,
                {"\"a.weight\":{\"dtype\":\"I8\",\"shape\":[300,192]",
                 "\"a.weight_scale\":{\"dtype\":\"F32\",\"shape\":[300,3]"}}};
  for (int f = 0; f < 3; f++) {
    char *data;
    size_t bytes;
    ls_error error = {0};
    const char *path = save(forms[f].kind, ls_dtype_name(forms[f].kind));
    assert_int_equal(ls_file_read(arena, path, &data, &bytes, &error), LS_OK);
    for (int e = 0; e < 4 && forms[f].entry[e]; e++)
      if (!memmem(data, bytes, forms[f].entry[e], strlen(forms[f].entry[e])))
        fail_msg("no %s", forms[f].entry[e]);
  }
}

static void what_does_not_fit_is_refused(void **state) {
  (void)state;
  const char *path = save(LS_INT8, "int8");
  ls_error error = {0};
  ls_safetensors *set;
  assert_int_equal(reopen(path, "[300,3]", "[3,300]", &set, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "a scale of each"));
  assert_null(strchr(error.text, '\n'));
  assert_int_equal(reopen(path, "[300,192]", "[900, 64]", &set, &error), LS_INPUT);
  assert_int_equal(reopen(path, "weight_scale", "weight_other", &set, &error), LS_OK);
  assert_int_equal(ls_safetensors_count(set), 2); /* bytes of no kind of ours */
  assert_int_equal(ls_safetensors_find(set, "a.weight")->dtype, LS_DTYPE_COUNT);
  ls_safetensors_close(&set);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(what_is_saved_comes_back, set_up, tear_down),
      cmocka_unit_test_setup_teardown(scales_are_quantised_again, set_up, tear_down),
      cmocka_unit_test_setup_teardown(mxfp4_is_numbers, set_up, tear_down),
      cmocka_unit_test_setup_teardown(it_is_their_form, set_up, tear_down),
      cmocka_unit_test_setup_teardown(what_does_not_fit_is_refused, set_up, tear_down)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
