#include "tokenizer/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "text/json.h"

static char folder[64];
static ls_error error;

static int make_folder(void **state) {
  (void)state;
  snprintf(folder, sizeof folder, "/tmp/tokenizer_test.XXXXXX");
  return mkdtemp(folder) ? 0 : -1;
}

static int drop_folder(void **state) {
  (void)state;
  return ls_directory_remove(folder, &error) == LS_OK ? 0 : -1;
}

static void every_byte_comes_back(void **state) {
  (void)state;
  const ls_tokenizer *tokenizer = ls_tokenizer_bytes();
  uint8_t text[256];
  ls_ids ids = {0};
  for (int i = 0; i < 256; i++) text[i] = (uint8_t)(255 - i);
  assert_int_equal(ls_tokenizer_append(tokenizer, text, 256, 0, &ids, &error), LS_OK);
  assert_int_equal(ids.count, 256);
  char small[256], *again;
  size_t bytes;
  for (int i = 0; i < 256; i++) {
    assert_int_equal(ids.items[i], 255 - i);
    const char *piece = ls_tokenizer_piece(tokenizer, ids.items[i], small, &bytes);
    assert_int_equal(bytes, 1);
    assert_int_equal((uint8_t)piece[0], text[i]);
  }
  assert_int_equal(ls_tokenizer_text(tokenizer, ids.items, 256, 0, &again, &bytes, &error), LS_OK);
  assert_int_equal(bytes, 256);
  assert_memory_equal(again, text, 256);
  free(again);
  ids.items[7] = 256;
  assert_int_equal(ls_tokenizer_text(tokenizer, ids.items, 8, 0, &again, &bytes, &error), LS_INPUT);
  assert_string_equal(error.text, "id 256 is not one of the tokenizer's; expected 0 to 255");
  assert_null(ls_tokenizer_piece(tokenizer, 256, small, &bytes));
  assert_null(ls_tokenizer_piece(tokenizer, -1, small, &bytes));
  assert_int_equal(tokenizer->vocabulary, 256);
  assert_int_equal(tokenizer->end_of_text, -1);
  ls_ids_free(&ids);
}

/* The characters are those of GPT-2's bytes_to_unicode, known here by some of its entries. */
static void the_files_hold_gpt2s_alphabet(void **state) {
  (void)state;
  assert_int_equal(ls_tokenizer_write(ls_tokenizer_bytes(), folder, &error), LS_OK);
  char path[128];
  snprintf(path, sizeof path, "%s/tokenizer.json", folder);
  json_t *root = NULL;
  assert_int_equal(ls_json_read(path, 0, &root, &error), LS_OK);
  const json_t *model = json_object_get(root, "model");
  const json_t *vocabulary = json_object_get(model, "vocab");
  assert_int_equal(json_object_size(vocabulary), 256);
  assert_int_equal(json_array_size(json_object_get(model, "merges")), 0);
  static const struct {
    const char *character;
    int byte;
  } known[] = {{"\u0100", 0}, {"\u010a", '\n'}, {"\u0120", ' '},  {"!", '!'},
               {"A", 'A'},    {"~", '~'},       {"\u0121", 0x7f}, {"¡", 0xa1},
               {"¬", 0xac},   {"\u0143", 0xad}, {"\u0142", 0xa0}, {"®", 0xae},
               {"ÿ", 0xff},   {"\u0122", 0x80}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    const json_t *id = json_object_get(vocabulary, known[i].character);
    assert_non_null(id);
    assert_int_equal(json_integer_value(id), known[i].byte);
  }
  json_decref(root);
}

static void write_text(const char *name, const char *text) {
  char path[128];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  assert_int_equal(ls_file_write(path, text, strlen(text), &error), LS_OK);
}

static void a_folders_tokenizer_is_known_or_refused(void **state) {
  (void)state;
  const ls_tokenizer *tokenizer = NULL;
  assert_int_equal(ls_tokenizer_of(folder, &tokenizer, &error), LS_OK); /* it has none */
  assert_ptr_equal(tokenizer, ls_tokenizer_bytes());
  assert_int_equal(ls_tokenizer_write(ls_tokenizer_bytes(), folder, &error), LS_OK);
  tokenizer = NULL;
  assert_int_equal(ls_tokenizer_of(folder, &tokenizer, &error), LS_OK);
  assert_ptr_equal(tokenizer, ls_tokenizer_bytes());
  /* Opened as any other it gives the same ids. */
  ls_ids ids = {0};
  assert_int_equal(ls_tokenizer_open(folder, NULL, &tokenizer, &error), LS_OK);
  assert_int_equal(tokenizer->vocabulary, 256);
  assert_int_equal(ls_tokenizer_append(tokenizer, "a\0\xc3\xa9", 4, 0, &ids, &error), LS_OK);
  assert_int_equal(ids.count, 4);
  assert_memory_equal(ids.items, ((const int32_t[]){'a', 0, 0xc3, 0xa9}), 4 * sizeof(int32_t));
  ls_ids_free(&ids);
  ls_tokenizer_close(&tokenizer);
  assert_null(tokenizer);

  write_text("tokenizer.json", "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}}}\n");
  assert_int_equal(ls_tokenizer_of(folder, &tokenizer, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "tokenizer.json: \"model\": \"merges\": expected a list"));
  write_text("tokenizer.json", "{");
  assert_int_equal(ls_tokenizer_of(folder, &tokenizer, &error), LS_INPUT);
  char path[128];
  snprintf(path, sizeof path, "%s/tokenizer.json", folder);
  unlink(path);
  write_text("tokenizer.model", "\nx");
  assert_int_equal(ls_tokenizer_of(folder, &tokenizer, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "tokenizer.model: the file is cut or damaged"));
}

/* What is written is what was read, and reads the same. */
static void an_opened_tokenizer_is_written_as_it_was(void **state) {
  (void)state;
  static const char *const names[] = {"bytes-nfc-split/tokenizer.json",
                                      "sentencepiece-bpe/tokenizer.model"};
  for (int i = 0; i < 2; i++) {
    char from[128], to[128];
    snprintf(from, sizeof from, "tests/data/tokenizers/%s", names[i]);
    snprintf(to, sizeof to, "%s%s", folder, strchr(names[i], '/'));
    const ls_tokenizer *tokenizer, *again;
    assert_int_equal(ls_tokenizer_open(from, NULL, &tokenizer, &error), LS_OK);
    assert_int_equal(ls_tokenizer_write(tokenizer, folder, &error), LS_OK);
    assert_int_equal(ls_tokenizer_open(to, NULL, &again, &error), LS_OK);
    assert_string_equal(again->name, tokenizer->name);
    assert_int_equal(again->vocabulary, tokenizer->vocabulary);
    ls_tokenizer_close(&tokenizer);
    ls_tokenizer_close(&again);
    assert_int_equal(unlink(to), 0);
  }
}

/* GPT-2's two files: words are cut its way, and the end of text is special. */
static void vocabulary_and_merges_are_read_together(void **state) {
  (void)state;
  const ls_tokenizer *tokenizer;
  ls_ids ids = {0};
  write_text(
      "vocab.json",
      "{\"a\": 0, \"b\": 1, \"\u0120\": 2, \"ab\": 3, \"\u0120ab\": 4, \"<|endoftext|>\": 5}");
  write_text("merges.txt", "#version: 0.2\na b\n\u0120 ab\n");
  assert_int_equal(ls_tokenizer_of(folder, &tokenizer, &error), LS_OK);
  assert_int_equal(tokenizer->vocabulary, 6);
  assert_int_equal(tokenizer->end_of_text, 5);
  assert_true(ls_tokenizer_is_special(tokenizer, 5));
  assert_int_equal(ls_tokenizer_append(tokenizer, "ab ab  b<|endoftext|>ba", 23, 0, &ids, &error),
                   LS_OK);
  static const int32_t expected[] = {3, 4, 2, 2, 1, 5, 1, 0};
  assert_int_equal(ids.count, 8);
  assert_memory_equal(ids.items, expected, sizeof expected);
  ls_ids_free(&ids);

  /* Written beside another model than GPT-2's, transformers must find what they are. */
  const ls_tokenizer *again;
  assert_int_equal(ls_tokenizer_write(tokenizer, folder, &error), LS_OK);
  assert_int_equal(ls_tokenizer_of(folder, &again, &error), LS_OK);
  assert_string_equal(again->name, tokenizer->name);
  ls_tokenizer_close(&again);
  ls_tokenizer_close(&tokenizer);
  ls_arena *arena = ls_arena_create();
  char *text;
  size_t bytes;
  assert_int_equal(ls_file_read(arena, ls_arena_printf(arena, "%s/tokenizer_config.json", folder),
                                &text, &bytes, &error),
                   LS_OK);
  assert_string_equal(text, "{\"tokenizer_class\": \"GPT2Tokenizer\"}\n");
  ls_arena_destroy(&arena);

  write_text("merges.txt", "a b\na c\n");
  assert_int_equal(ls_tokenizer_of(folder, &tokenizer, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "entry 1 names \"c\", which is not in \"vocab\""));
  write_text("merges.txt", "a b\nabc\n");
  assert_int_equal(ls_tokenizer_of(folder, &tokenizer, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "merges.txt:2: expected two pieces"));
  write_text("merges.txt", "a b\n");
  write_text("tokenizer_config.json", "{\"tokenizer_class\": \"Qwen2Tokenizer\"}");
  assert_int_equal(ls_tokenizer_of(folder, &tokenizer, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "of a Qwen2Tokenizer are not supported"));
}

static void a_file_that_cannot_be_written_is_an_error(void **state) {
  (void)state;
  assert_int_equal(ls_tokenizer_write(ls_tokenizer_bytes(), "/no/such/folder", &error), LS_FAILED);
}

int main(void) {
#define IN_FOLDER(name) cmocka_unit_test_setup_teardown(name, make_folder, drop_folder)
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_byte_comes_back),
      IN_FOLDER(the_files_hold_gpt2s_alphabet),
      IN_FOLDER(a_folders_tokenizer_is_known_or_refused),
      IN_FOLDER(an_opened_tokenizer_is_written_as_it_was),
      IN_FOLDER(vocabulary_and_merges_are_read_together),
      cmocka_unit_test(a_file_that_cannot_be_written_is_an_error),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
