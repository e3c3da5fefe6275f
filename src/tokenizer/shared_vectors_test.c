/* Every vector of the shared data whose tokenizer is there: ids and texts as other programs have
 * them. Counts per tokenizer; skipped where the shared data is not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "text/json.h"
#include "tokenizer/tokenizer.h"

#define DATA "../shared/data/"
#define VECTORS DATA "tokenizer-vectors/"

static ls_error error;
static ls_arena *arena;
static char folder[64];

typedef struct known {
  const char *name, *path; /* the path below tokenizers/, a folder or a file */
  const ls_tokenizer *tokenizer;
  int passed, total;
} known;

static known all[] = {{.name = "gpt2", .path = "gpt2"},
                      {.name = "phi-3-mini", .path = "phi-3-mini"},
                      {.name = "mistral-7b", .path = "mistral-7b"},
                      {.name = "qwen2.5", .path = "qwen2.5"},
                      {.name = "gpt-neox-20b", .path = "gpt-neox-20b"},
                      {.name = "torchtitan-test-bpe", .path = "torchtitan-test-bpe"},
                      {.name = "torchtune-tiny-bpe", .path = "torchtune-tiny-bpe"},
                      {.name = "r50k_base", .path = "tiktoken/r50k_base.tiktoken"},
                      {.name = "cl100k_base", .path = "tiktoken/cl100k_base.tiktoken"},
                      {.name = "llama2", .path = "llama2"},
                      {.name = "torchtune-tiny-spm", .path = "torchtune-tiny-spm"}};
enum { ALL = sizeof all / sizeof *all };

/* A file of the shared data, unpacked where it is packed. */
static char *read_shared(const char *path, size_t *bytes) {
  const char *packed = ls_arena_printf(arena, "%s.zst", path);
  if (ls_file_exists(packed)) {
    const char *made = ls_arena_printf(arena, "%s/unpacked", folder);
    const char *line = ls_arena_printf(arena, "zstd -dqf '%s' -o '%s'", packed, made);
    if (system(line) != 0) fail_msg("%s failed", line);
    path = made;
  }
  char *text;
  if (ls_file_read(arena, path, &text, bytes, &error) != LS_OK) fail_msg("%s", error.text);
  return text;
}

static void write_at(const char *path, const void *data, size_t bytes) {
  if (ls_file_write(path, data, bytes, &error) != LS_OK) fail_msg("%s", error.text);
}

/* Copies what belongs to a tokenizer, unpacked, and opens the copy. */
static void open_one(known *each) {
  static const char *const names[] = {"tokenizer.json", "tokenizer.model", "tokenizer_config.json"};
  const char *from = ls_arena_printf(arena, DATA "tokenizers/%s", each->path);
  const char *to = ls_arena_printf(arena, "%s/%s", folder, each->name);
  size_t bytes;
  if (strstr(each->path, ".tiktoken")) {
    to = ls_arena_printf(arena, "%s/%s.tiktoken", folder, each->name);
    const char *ranks = read_shared(from, &bytes);
    write_at(to, ranks, bytes);
  } else {
    assert_int_equal(ls_directory_make(to, &error), LS_OK);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
      const char *name = ls_arena_printf(arena, "%s/%s", from, names[i]);
      if (!ls_file_exists(name) && !ls_file_exists(ls_arena_printf(arena, "%s.zst", name))) {
        continue;
      }
      const char *text = read_shared(name, &bytes);
      write_at(ls_arena_printf(arena, "%s/%s", to, names[i]), text, bytes);
    }
  }
  if (ls_tokenizer_open(to, NULL, &each->tokenizer, &error) != LS_OK) fail_msg("%s", error.text);
}

static int set_up(void **state) {
  (void)state;
  arena = ls_arena_create();
  snprintf(folder, sizeof folder, "/tmp/vectors_test.XXXXXX");
  if (!mkdtemp(folder)) return -1;
  if (!ls_directory_exists(VECTORS)) return 0;
  for (int i = 0; i < ALL; i++) open_one(&all[i]);
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  for (int i = 0; i < ALL; i++) {
    if (!all[i].tokenizer) continue;
    print_message("%-20s %d of %d\n", all[i].name, all[i].passed, all[i].total);
    ls_tokenizer_close(&all[i].tokenizer);
  }
  ls_arena_destroy(&arena);
  return ls_directory_remove(folder, &error) == LS_OK ? 0 : -1;
}

static void need_vectors(void) {
  if (!all[0].tokenizer) skip();
}

static known *find(const char *name) {
  for (int i = 0; i < ALL; i++) {
    if (strcmp(all[i].name, name) == 0) return &all[i];
  }
  return NULL;
}

static void count(known *of, bool same, const char *what, const char *text) {
  of->total++;
  of->passed += same;
  if (!same) print_message("%s: %s differs: %.60s\n", of->name, what, text);
}

/* The ids of a text are those of a list. */
static void check_ids(known *of, const json_t *text, const json_t *list, unsigned flags) {
  ls_ids ids = {0};
  const size_t bytes = json_string_length(text);
  assert_int_equal(ls_tokenizer_append(of->tokenizer, json_string_value(text), (int64_t)bytes,
                                       flags, &ids, &error),
                   LS_OK);
  bool same = (size_t)ids.count == json_array_size(list);
  for (int64_t i = 0; same && i < ids.count; i++) {
    same = json_integer_value(json_array_get(list, (size_t)i)) == ids.items[i];
  }
  count(of, same, "ids", json_string_value(text));
  ls_ids_free(&ids);
}

/* What transformers takes out of a decoded text where a model's settings say so; not a tokenizer's
 * doing. */
static char *clean_up(const char *text) {
  static const char *const pairs[][2] = {
      {" .", "."},     {" ?", "?"},   {" !", "!"},   {" ,", ","},     {" ' ", "'"},
      {" n't", "n't"}, {" 'm", "'m"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  char *made = ls_arena_strdup(arena, text);
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
    const size_t before = strlen(pairs[i][0]), after = strlen(pairs[i][1]);
    for (char *at = made; (at = strstr(at, pairs[i][0])); at += after) {
      memcpy(at, pairs[i][1], after);
      memmove(at + after, at + before, strlen(at + before) + 1);
    }
  }
  return made;
}

static void check_text(known *of, const json_t *list, const json_t *expected, unsigned flags) {
  const size_t many = json_array_size(list);
  int32_t *ids = LS_NEW_ARRAY(arena, int32_t, many + 1);
  for (size_t i = 0; i < many; i++) ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
  char *text;
  size_t bytes;
  if (ls_tokenizer_text(of->tokenizer, ids, (int64_t)many, flags, &text, &bytes, &error) != LS_OK) {
    fail_msg("%s", error.text);
  }
  const char *wanted = json_string_value(expected);
  const bool same = bytes == json_string_length(expected) && memcmp(text, wanted, bytes) == 0;
  count(of, same || strcmp(clean_up(text), wanted) == 0, "text", wanted);
  free(text);
}

/* Calls `check` for each line of JSON. */
static void each_line(const char *path, void (*check)(const json_t *line)) {
  size_t bytes;
  char *text = read_shared(path, &bytes);
  for (char *line; (line = strsep(&text, "\n"));) {
    json_t *json;
    if (!*line) continue;
    if (ls_json_parse(path, line, strlen(line), 0, &json, &error) != LS_OK) {
      fail_msg("%s", error.text);
    }
    check(json);
    json_decref(json);
  }
}

static void check_string(const json_t *line) {
  known *of = find(json_string_value(json_object_get(line, "tokenizer")));
  const json_t *ids = json_object_get(line, "ids"), *text = json_object_get(line, "text");
  const json_t *special = json_object_get(line, "ids_with_special");
  const json_t *decoded = json_object_get(line, "decoded");
  assert_non_null(of);
  check_ids(of, text, ids, 0);
  if (special) check_ids(of, text, special, LS_TOKENS_SPECIAL);
  if (decoded) check_text(of, ids, decoded, 0);
}

static void strings_are_equal(void **state) {
  (void)state;
  need_vectors();
  each_line(VECTORS "whole-texts/strings.jsonl", check_string);
  each_line(VECTORS "whole-texts/sentencepiece-strings.jsonl", check_string);
}

static void check_whole(const json_t *line) {
  known *of = find(json_string_value(json_object_get(line, "tokenizer")));
  const char *name = json_string_value(json_object_get(line, "text"));
  const char *path = ls_arena_printf(arena, DATA "text/%s", name);
  if (strcmp(name, "lib.rs.txt") == 0) path = VECTORS "microsoft-tokenizer/lib.rs.txt";
  size_t bytes;
  const char *text = read_shared(path, &bytes);
  ls_ids ids = {0};
  assert_int_equal(ls_tokenizer_append(of->tokenizer, text, (int64_t)bytes, 0, &ids, &error),
                   LS_OK);
  const char *made = ls_arena_printf(arena, "%s/ids", folder);
  write_at(made, ids.items, (size_t)ids.count * sizeof *ids.items);
  ls_ids_free(&ids);
  FILE *sum = popen(ls_arena_printf(arena, "sha256sum '%s'", made), "r");
  char hash[65] = "";
  assert_non_null(sum);
  assert_int_equal(fscanf(sum, "%64s", hash), 1);
  pclose(sum);
  count(of, strcmp(hash, json_string_value(json_object_get(line, "sha256_ids_u32le"))) == 0,
        "whole text", name);
}

static void whole_texts_are_equal(void **state) {
  (void)state;
  need_vectors();
  each_line(VECTORS "whole-texts/encodings.jsonl", check_whole);
  each_line(VECTORS "whole-texts/sentencepiece-encodings.jsonl", check_whole);
}

/* Texts divided by a line of their own, and a line of ids for each. */
static void check_llama_cpp(const char *file, const char *name) {
  static const char between[] = "\n__ggml_vocab_test__\n";
  size_t bytes;
  char *text = read_shared(ls_arena_printf(arena, VECTORS "llama.cpp/%s.gguf.inp", file), &bytes);
  char *lines = read_shared(ls_arena_printf(arena, VECTORS "llama.cpp/%s.gguf.out", file), &bytes);
  for (char *next; text; text = next) {
    next = strstr(text, between);
    const size_t length = next ? (size_t)(next - text) : strlen(text);
    if (next) next += strlen(between);
    char *line = strsep(&lines, "\n");
    if (!line) break;
    json_t *ids = json_array(), *string = json_stringn(text, length);
    for (char *word; (word = strsep(&line, " "));) {
      if (*word) json_array_append_new(ids, json_integer(strtol(word, NULL, 10)));
    }
    check_ids(find(name), string, ids, 0);
    json_decref(ids);
    json_decref(string);
  }
}

static void llama_cpps_are_equal(void **state) {
  (void)state;
  need_vectors();
  check_llama_cpp("ggml-vocab-gpt-2", "gpt2");
  check_llama_cpp("ggml-vocab-llama-spm", "llama2");
  check_llama_cpp("ggml-vocab-phi-3", "phi-3-mini");
  check_llama_cpp("ggml-vocab-qwen2", "qwen2.5");
  check_llama_cpp("ggml-vocab-mpt", "gpt-neox-20b");
}

static json_t *read_json(const char *path) {
  json_t *json;
  if (ls_json_read(path, 0, &json, &error) != LS_OK) fail_msg("%s", error.text);
  return json;
}

static void check_transformers_js(const char *file, const char *model, const char *name) {
  json_t *json = read_json(ls_arena_printf(arena, VECTORS "transformers.js/%s", file));
  size_t i;
  json_t *each;
  json_array_foreach(json_object_get(json, model), i, each) {
    const json_t *ids = json_object_get(each, "ids");
    check_ids(find(name), json_object_get(each, "text"), ids, LS_TOKENS_SPECIAL);
    check_text(find(name), ids, json_object_get(each, "decoded"), LS_TOKENS_SPECIAL);
  }
  assert_true(i > 0);
  json_decref(json);
}

static void transformers_js_are_equal(void **state) {
  (void)state;
  need_vectors();
  check_transformers_js("gpt2.json", "Xenova/gpt2", "gpt2");
  check_transformers_js("gpt2.json", "openai-community/gpt2", "gpt2");
  check_transformers_js("gpt2.json", "Xenova/gpt-4", "cl100k_base");
  check_transformers_js("llama.json", "Xenova/llama-tokenizer", "llama2");
  check_transformers_js("qwen2.json", "Xenova/Qwen1.5-0.5B-Chat", "qwen2.5");
}

static void check_swift(const json_t *json, const char *model, const char *name) {
  size_t i;
  json_t *each;
  json_array_foreach(json_object_get(json, model), i, each) {
    const json_t *ids = json_object_get(json_object_get(each, "encoded"), "input_ids");
    check_ids(find(name), json_object_get(each, "input"), ids, LS_TOKENS_SPECIAL);
    check_text(find(name), ids, json_object_get(each, "decoded_with_special"), LS_TOKENS_SPECIAL);
    check_text(find(name), ids, json_object_get(each, "decoded_without_special"), 0);
  }
  assert_true(i > 0);
}

static void swift_transformers_are_equal(void **state) {
  (void)state;
  need_vectors();
  json_t *json = read_json(VECTORS "swift-transformers/tokenizer_tests.json");
  check_swift(json, "distilgpt2", "gpt2");
  check_swift(json, "coreml-projects/Llama-2-7b-chat-coreml", "llama2");
  print_message("skipped: %zu models of swift-transformers (their tokenizers are not here)\n",
                json_object_size(json) - 2);
  json_decref(json);
  json = read_json(VECTORS "swift-transformers/gpt2_encoded_tokens.json");
  const json_t *ids = json_object_get(json, "token_ids");
  check_ids(find("gpt2"), json_object_get(json, "text"), ids, 0);
  check_text(find("gpt2"), ids, json_object_get(json, "decoded_text"), 0);
  json_decref(json);
}

static void check_microsoft(const char *file, const char *name) {
  size_t bytes;
  const char *text = read_shared(VECTORS "microsoft-tokenizer/lib.rs.txt", &bytes);
  json_t *ids = read_json(ls_arena_printf(arena, VECTORS "microsoft-tokenizer/%s", file));
  json_t *string = json_stringn(text, bytes);
  check_ids(find(name), string, ids, 0);
  check_text(find(name), ids, string, 0);
  json_decref(ids);
  json_decref(string);
}

static void microsofts_are_equal(void **state) {
  (void)state;
  need_vectors();
  check_microsoft("tokens_gpt2.json", "gpt2");
  check_microsoft("tokens_gpt2.json", "r50k_base");
  check_microsoft("tokens_cl100k_base.json", "cl100k_base");
}

static void llama2_c_is_equal(void **state) {
  (void)state;
  need_vectors();
  json_t *json = read_json(VECTORS "llama2.c/prompts.json"), *each;
  size_t i;
  json_array_foreach(json, i, each) {
    check_ids(find("llama2"), json_object_get(each, "text"), json_object_get(each, "ids_with_bos"),
              LS_TOKENS_SPECIAL);
  }
  json_decref(json);
}

static void all_passed(void **state) {
  (void)state;
  need_vectors();
  int passed = 0, total = 0;
  for (int i = 0; i < ALL; i++) {
    passed += all[i].passed;
    total += all[i].total;
  }
  print_message("vectors passed: %d of %d\n", passed, total);
  assert_true(total > 1000);
  assert_int_equal(passed, total);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(strings_are_equal),
      cmocka_unit_test(whole_texts_are_equal),
      cmocka_unit_test(llama_cpps_are_equal),
      cmocka_unit_test(transformers_js_are_equal),
      cmocka_unit_test(swift_transformers_are_equal),
      cmocka_unit_test(microsofts_are_equal),
      cmocka_unit_test(llama2_c_is_equal),
      cmocka_unit_test(all_passed),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
