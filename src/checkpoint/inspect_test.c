/* What inspect says of a model's folder, an adapter, a tokenizer and tensors is what was put there;
 * what is damaged or unknown is named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/file.h"
#include "checkpoint/inspect.h"
#include "store/safetensors.h"
#include "tokenizer/tokenizer.h"

typedef struct fixture {
  ls_arena *arena;
  const char *folder;
} fixture;

static int set_up(void **state) {
  ls_arena *arena = ls_arena_create();
  fixture *f = LS_NEW(arena, fixture);
  char folder[] = "/tmp/lockstep-inspect-XXXXXX";
  assert_non_null(mkdtemp(folder));
  *f = (fixture){arena, ls_arena_strdup(arena, folder)};
  *state = f;
  return 0;
}

static int tear_down(void **state) {
  fixture *f = *state;
  ls_error error;
  const int left = ls_directory_remove(f->folder, &error) != LS_OK;
  ls_arena_destroy(&f->arena);
  return left;
}

static const char *put(const fixture *f, const char *name, const char *text) {
  ls_error error;
  const char *path = ls_arena_printf(f->arena, "%s/%s", f->folder, name);
  assert_int_equal(ls_file_write(path, text, strlen(text), &error), LS_OK);
  return path;
}

static json_t *inspect(const char *path, bool tensors) {
  json_t *found;
  ls_error error = {0};
  if (ls_inspect(path, tensors, &found, &error) != LS_OK) fail_msg("%s", error.text);
  return found;
}

static json_int_t number(const json_t *found, const char *section, const char *key) {
  const json_t *value = json_object_get(json_object_get(found, section), key);
  assert_true(json_is_integer(value));
  return json_integer_value(value);
}

static void refuse(const char *path, const char *text) {
  json_t *found;
  ls_error error = {0};
  assert_int_equal(ls_inspect(path, false, &found, &error), LS_INPUT);
  if (found || !strstr(error.text, text)) fail_msg("found \"%s\"; expected %s", error.text, text);
}

static const char config[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 256, \"hidden_size\": 16, \"intermediate_size\": "
    "24,"
    " \"num_hidden_layers\": 3, \"num_attention_heads\": 4, \"num_key_value_heads\": 2,"
    " \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5, \"tie_word_embeddings\": true}";

static void test_a_models_folder(void **state) {
  const fixture *f = *state;
  ls_error error = {0};
  put(f, "config.json", config);
  const int64_t dims[2][2] = {{3, 5}, {7, 0}};
  const ls_tensor_spec specs[] = {{"a", LS_BF16, 2, dims[0], NULL},
                                  {"b", LS_F32, 1, dims[1], NULL}};
  ls_safetensors_writer *writer;
  assert_int_equal(
      ls_safetensors_create(ls_arena_printf(f->arena, "%s/model.safetensors", f->folder), specs, 2,
                            NULL, 0, &writer, &error),
      LS_OK);
  static const char zeros[3 * 5 * 2 + 7 * 4];
  assert_int_equal(ls_safetensors_append(writer, zeros, sizeof zeros, &error), LS_OK);
  assert_int_equal(ls_safetensors_finish(&writer, &error), LS_OK);
  assert_int_equal(ls_tokenizer_write(ls_tokenizer_bytes(), f->folder, &error), LS_OK);
  json_t *found = inspect(f->folder, true);
  assert_int_equal(number(found, "model", "layers"), 3);
  assert_int_equal(number(found, "model", "parameters"),
                   256 * 16 + 16 + 3 * (2 * 16 + 2 * 16 * 16 + 2 * 8 * 16 + 3 * 24 * 16));
  assert_int_equal(number(found, "weights", "tensors"), 2);
  assert_int_equal(number(found, "weights", "elements"), 22);
  assert_int_equal(number(found, "weights", "bytes"), (json_int_t)sizeof zeros);
  assert_int_equal(number(found, "tokenizer", "vocabulary"), 256);
  const json_t *a =
      json_object_get(json_object_get(json_object_get(found, "weights"), "names"), "a");
  assert_string_equal(json_string_value(json_object_get(a, "dtype")), "BF16");
  json_decref(found);
}

static void test_an_adapter(void **state) {
  const fixture *f = *state;
  put(f, "adapter_config.json",
      "{\"peft_type\": \"LORA\", \"r\": 8, \"bias\": null, \"target_modules\": [\"c_attn\"]}");
  json_t *found = inspect(f->folder, false);
  assert_int_equal(number(found, "adapter", "r"), 8);
  assert_null(json_object_get(json_object_get(found, "adapter"), "bias"));
  json_decref(found);
}

static void test_what_cannot_be_read_is_named(void **state) {
  const fixture *f = *state;
  refuse(f->folder, "nothing known in it");
  refuse("nowhere/at/all", "no such file or folder");
  refuse(put(f, "text.txt", "some text"), "of no known kind");
  refuse(put(f, "adapter_config.json", "[1]"), "found no object");
  refuse(put(f, "adapter_config.json", "{\"r\": "), "adapter_config.json:1:");
  refuse(put(f, "cut.safetensors", "\x10"), "cut.safetensors");
  refuse(put(f, "config.json", "{}"), "config.json");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_a_models_folder, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_an_adapter, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_what_cannot_be_read_is_named, set_up, tear_down)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
