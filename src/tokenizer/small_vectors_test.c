/* Small tokenizers of every supported kind, with the ids and texts that their own libraries give
 * for nasty strings (tools/reference/make_tokenizers.py). */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "text/json.h"
#include "tokenizer/tokenizer.h"

#define DATA "tests/data/tokenizers"

static ls_error error;
static ls_arena *arena;
static int passed, total, tokenizers;

static int set_up(void **state) {
  (void)state;
  arena = ls_arena_create();
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  print_message("%d tokenizers: %d of %d\n", tokenizers, passed, total);
  ls_arena_destroy(&arena);
  return 0;
}

static const ls_tokenizer *open_in(const char *folder, const json_t *vectors) {
  const ls_tokenizer *tokenizer;
  const char *ranks = ls_arena_printf(arena, "%s/ranks.tiktoken", folder);
  const ls_tokenizer_options options = {.pattern =
                                            json_string_value(json_object_get(vectors, "pattern"))};
  const char *path = ls_file_exists(ranks) ? ranks : folder;
  if (ls_tokenizer_open(path, &options, &tokenizer, &error) != LS_OK) fail_msg("%s", error.text);
  return tokenizer;
}

static void count(bool same, const char *folder, const char *what, const char *text) {
  total++;
  passed += same;
  if (!same) print_message("%s: %s of \"%s\"\n", folder, what, text);
}

static void check_ids(const ls_tokenizer *tokenizer, const char *folder, const json_t *vector,
                      const char *key, unsigned flags) {
  const json_t *text = json_object_get(vector, "text"), *list = json_object_get(vector, key);
  if (!list) return;
  ls_ids ids = {0};
  const ls_status status = ls_tokenizer_append(
      tokenizer, json_string_value(text), (int64_t)json_string_length(text), flags, &ids, &error);
  bool same = status == LS_OK && (size_t)ids.count == json_array_size(list);
  for (int64_t i = 0; same && i < ids.count; i++) {
    same = json_integer_value(json_array_get(list, (size_t)i)) == ids.items[i];
  }
  count(same, folder, key, json_string_value(text));
  ls_ids_free(&ids);
}

static void check_text(const ls_tokenizer *tokenizer, const char *folder, const json_t *vector,
                       const char *key, unsigned flags) {
  const json_t *expected = json_object_get(vector, key);
  const json_t *list = json_object_get(vector, "ids_with_special");
  if (!expected) return;
  if (!list) list = json_object_get(vector, "ids");
  const size_t many = json_array_size(list);
  int32_t *ids = LS_NEW_ARRAY(arena, int32_t, many + 1);
  for (size_t i = 0; i < many; i++) ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
  char *text = NULL;
  size_t bytes = 0;
  const ls_status status =
      ls_tokenizer_text(tokenizer, ids, (int64_t)many, flags, &text, &bytes, &error);
  const bool same = status == LS_OK && bytes == json_string_length(expected) &&
                    memcmp(text, json_string_value(expected), bytes) == 0;
  count(same, folder, key, json_string_value(expected));
  free(text);
}

static void check_folder(const char *folder) {
  json_t *vectors, *each;
  size_t i;
  if (ls_json_read(ls_arena_printf(arena, "%s/vectors.json", folder), 0, &vectors, &error) !=
      LS_OK) {
    fail_msg("%s", error.text);
  }
  const ls_tokenizer *tokenizer = open_in(folder, vectors);
  json_array_foreach(json_object_get(vectors, "vectors"), i, each) {
    check_ids(tokenizer, folder, each, "ids", 0);
    check_ids(tokenizer, folder, each, "ids_with_special", LS_TOKENS_SPECIAL);
    check_text(tokenizer, folder, each, "decoded", 0);
    check_text(tokenizer, folder, each, "decoded_with_special", LS_TOKENS_SPECIAL);
  }
  assert_true(i >= 50);
  tokenizers++;
  ls_tokenizer_close(&tokenizer);
  json_decref(vectors);
}

static void every_vector_is_equal(void **state) {
  (void)state;
  DIR *directory = opendir(DATA);
  assert_non_null(directory);
  for (const struct dirent *entry; (entry = readdir(directory));) {
    if (entry->d_name[0] != '.') check_folder(ls_arena_printf(arena, DATA "/%s", entry->d_name));
  }
  closedir(directory);
  assert_int_equal(tokenizers, 21);
  assert_int_equal(passed, total);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_vector_is_equal)};
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
