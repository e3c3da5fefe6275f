/* Tokenizer files that are cut, damaged or name what is not there: one line each. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "tokenizer/token_pipeline.h"

#define DATA "tests/data/tokenizers/"

static ls_error error;

/* A reader's answer; what is accepted must encode and decode. */
static ls_status read_as(const char *kind, const char *text, size_t bytes) {
  ls_token_pipeline *pipeline = ls_token_pipeline_create();
  ls_status status;
  if (strcmp(kind, "json") == 0) {
    status = ls_token_pipeline_read_json(pipeline, "t.json", text, bytes, &error);
  } else if (strcmp(kind, "model") == 0) {
    status = ls_token_pipeline_read_sentencepiece(pipeline, "t.model", text, bytes, &error);
  } else {
    status = ls_token_pipeline_read_tiktoken(pipeline, "t.tiktoken", text, bytes, "\\p{L}+|\\P{L}",
                                             &error);
  }
  if (status == LS_OK) status = ls_token_pipeline_finish(pipeline, &error);
  ls_ids ids = {0};
  if (status == LS_OK) {
    status = ls_tokenizer_append(&pipeline->tokenizer, "a b", 3, LS_TOKENS_SPECIAL, &ids, &error);
  }
  ls_ids_free(&ids);
  ls_token_pipeline_destroy(&pipeline);
  return status;
}

static void assert_one_line(void) {
  assert_true(error.text[0] != 0);
  if (strchr(error.text, '\n')) fail_msg("more than a line: %s", error.text);
}

/* Every prefix, but for one that only lacks the last line's end, is refused. */
static void check_prefixes(const char *path, const char *kind) {
  ls_arena *arena = ls_arena_create();
  char *text;
  size_t bytes;
  int refused = 0;
  assert_int_equal(ls_file_read(arena, path, &text, &bytes, &error), LS_OK);
  assert_int_equal(read_as(kind, text, bytes), LS_OK);
  while (bytes && text[bytes - 1] == '\n') bytes--;
  for (size_t length = 0; length < bytes; length++) {
    char *copy = malloc(length + 1); /* of its own, so that a sanitizer sees what is behind it */
    assert_non_null(copy);
    memcpy(copy, text, length);
    copy[length] = 0;
    error.text[0] = 0;
    const ls_status status = read_as(kind, copy, length);
    free(copy);
    if (status != LS_INPUT)
      fail_msg("%s: %zu bytes of %zu: status %d", path, length, bytes, status);
    assert_one_line();
    refused++;
  }
  print_message("%s: %d prefixes refused\n", path, refused);
  ls_arena_destroy(&arena);
}

static void every_prefix_of_a_tokenizer_json_is_refused(void **state) {
  (void)state;
  check_prefixes(DATA "whitespace-nfkc/tokenizer.json", "json");
}

/* A model's last fields may be left out: a prefix that ends between two of them is a whole one. */
static void prefixes_of_a_model_do_no_harm(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  char *text;
  size_t bytes;
  int refused = 0, smaller = 0;
  assert_int_equal(
      ls_file_read(arena, DATA "sentencepiece-bpe/tokenizer.model", &text, &bytes, &error), LS_OK);
  for (size_t length = 0; length < bytes; length++) {
    char *copy = malloc(length + 1);
    assert_non_null(copy);
    memcpy(copy, text, length);
    const ls_status status = read_as("model", copy, length);
    free(copy);
    if (status == LS_OK) {
      smaller++;
    } else {
      assert_int_equal(status, LS_INPUT);
      assert_one_line();
      refused++;
    }
  }
  print_message("%d prefixes of a model refused, %d are whole\n", refused, smaller);
  assert_true(smaller <= 2);
  ls_arena_destroy(&arena);
}

static void prefixes_of_ranks_are_refused_up_to_the_last_byte(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  char *text;
  size_t bytes;
  assert_int_equal(ls_file_read(arena, DATA "tiktoken/ranks.tiktoken", &text, &bytes, &error),
                   LS_OK);
  size_t needed = 0; /* all bytes have a rank behind the 256th line */
  for (int line = 0; line < 256; needed++) line += text[needed] == '\n';
  for (size_t length = 0; length + 1 < needed; length++) {
    char *copy = malloc(length + 1);
    assert_non_null(copy);
    memcpy(copy, text, length);
    assert_int_equal(read_as("tiktoken", copy, length), LS_INPUT);
    assert_one_line();
    free(copy);
  }
  ls_arena_destroy(&arena);
}

#define MODEL(text) "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1}, " text "}}"
#define WITH(text) "{" text ", \"model\": {\"vocab\": {\"a\": 0}, \"merges\": []}}"

static void what_is_wrong_is_named(void **state) {
  (void)state;
  static const struct {
    const char *text, *expected;
  } cases[] = {
      {"[]", "t.json: "},
      {"{}", "\"model\": "},
      {MODEL("\"merges\": [\"a b\"]"), "entry 0 names \"ab\", which is not in \"vocab\""},
      {MODEL("\"merges\": [[\"a\", \"c\"]]"), "entry 0 names \"c\", which is not in \"vocab\""},
      {MODEL("\"merges\": [\"ab\"]"), "\"merges\": entry 0: expected two pieces"},
      {MODEL("\"merges\": [7]"), "\"merges\": entry 0: expected two pieces"},
      {MODEL("\"merges\": {}"), "\"merges\": expected a list"},
      {MODEL("\"merges\": [], \"unk_token\": \"c\""), "\"unk_token\": \"c\" is not in \"vocab\""},
      {MODEL("\"merges\": [], \"dropout\": 0.1"), "\"dropout\" is not supported"},
      {MODEL("\"merges\": [], \"end_of_word_suffix\": \"</w>\""),
       "\"end_of_word_suffix\" is not supported"},
      {"{\"model\": {\"type\": \"WordLevel\"}}", "the model WordLevel is not supported"},
      {"{\"model\": {\"type\": \"WordPiece\", \"vocab\": {\"a\": 0}}}",
       "\"unk_token\": \"[UNK]\" is not in \"vocab\""},
      {"{\"model\": {\"type\": \"Unigram\"}}", "the model Unigram is not supported"},
      {"{\"model\": {\"vocab\": {\"a\": -1}, \"merges\": []}}", "found id -1 for \"a\""},
      {"{\"model\": {\"vocab\": {\"a\": 1000000000000000000}, \"merges\": []}}",
       "found id 1000000000000000000 for \"a\""},
      {"{\"model\": {\"vocab\": {\"a\": 1, \"b\": 1}, \"merges\": []}}", "found id 1 twice"},
      {"{\"model\": {\"vocab\": {\"a\": 0.5}, \"merges\": []}}", "expected a whole number"},
      {"{\"model\": {\"vocab\": {}, \"merges\": []}}", "\"vocab\": expected an object"},
      {WITH("\"normalizer\": {\"type\": \"StripAccents\"}"),
       "the normalizer StripAccents is not supported"},
      {WITH("\"normalizer\": {\"type\": \"Precompiled\"}"),
       "the normalizer Precompiled is not supported"},
      {WITH("\"pre_tokenizer\": {\"type\": \"UnicodeScripts\"}"),
       "the pre-tokenizer UnicodeScripts is not supported"},
      {WITH("\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"(\"}, "
            "\"behavior\": \"Isolated\"}"),
       "the pattern \"(\" cannot be compiled"},
      {WITH("\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"a\"}, "
            "\"behavior\": \"Melted\"}"),
       "\"behavior\": found \"Melted\""},
      {WITH("\"decoder\": {\"type\": \"CTC\"}"), "the decoder CTC is not supported"},
      {WITH("\"post_processor\": {\"type\": \"BertProcessing\"}"),
       "\"cls\": expected a token and its id, below 1"},
      {WITH("\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": []}"),
       "\"single\": expected one Sequence"},
      {WITH("\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": "
            "[{\"SpecialToken\": {\"id\": \"<s>\"}}], \"special_tokens\": {}}"),
       "expected \"ids\" of \"<s>\""},
      {WITH("\"added_tokens\": [{\"id\": 0, \"content\": \"x\"}]"), "found id 0 twice"},
      {WITH("\"added_tokens\": [{\"id\": 5, \"content\": \"a\"}]"), "found \"a\" with two ids"},
      {WITH("\"added_tokens\": [{\"id\": 5}]"), "\"content\": expected a string"},
      {WITH("\"added_tokens\": 3"), "\"added_tokens\": expected a list"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    error.text[0] = 0;
    const ls_status status = read_as("json", cases[i].text, strlen(cases[i].text));
    if (status != LS_INPUT || !strstr(error.text, cases[i].expected)) {
      fail_msg("%s\ngives status %d, \"%s\"; expected \"%s\"", cases[i].text, status, error.text,
               cases[i].expected);
    }
    assert_one_line();
  }
}

/* Each byte of a small model set to something else: refused or read, never more. */
static void damaged_models_do_no_harm(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  char *text;
  size_t bytes;
  assert_int_equal(
      ls_file_read(arena, DATA "sentencepiece-bpe-unknown/tokenizer.model", &text, &bytes, &error),
      LS_OK);
  for (size_t i = 0; i < bytes; i++) {
    const char kept = text[i];
    text[i] = (char)(i % 3 ? kept ^ 0x80 : -1);
    const ls_status status = read_as("model", text, bytes);
    assert_true(status == LS_OK || status == LS_INPUT);
    text[i] = kept;
  }
  ls_arena_destroy(&arena);
}

static void a_pattern_that_blows_up_is_one_line(void **state) {
  (void)state;
  static const char text[] =
      "{\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"(a+)+\\\\p{N}\"}, "
      "\"behavior\": \"Isolated\"}, \"model\": {\"vocab\": {\"a\": 0}, \"merges\": []}}";
  ls_token_pipeline *pipeline = ls_token_pipeline_create();
  ls_ids ids = {0};
  char letters[64];
  memset(letters, 'a', sizeof letters);
  assert_int_equal(ls_token_pipeline_read_json(pipeline, "t.json", text, sizeof text - 1, &error),
                   LS_OK);
  assert_int_equal(ls_token_pipeline_finish(pipeline, &error), LS_OK);
  assert_int_equal(
      ls_tokenizer_append(&pipeline->tokenizer, letters, sizeof letters, 0, &ids, &error),
      LS_INPUT);
  assert_non_null(strstr(error.text, "reaches its match limit"));
  assert_one_line();
  ls_ids_free(&ids);
  ls_token_pipeline_destroy(&pipeline);
}

/* Eight steps, each of which makes a hundred letters of one: 10^16 bytes. */
static void replacements_that_blow_up_are_one_line(void **state) {
  (void)state;
  static const char *const parts[] = {"normalizer", "decoder"};
  char many[101];
  memset(many, 'a', 100);
  many[100] = 0;
  ls_arena *arena = ls_arena_create();
  const char *steps = "";
  for (int i = 0; i < 8; i++)
    steps = ls_arena_printf(arena,
                            "%s%s{\"type\": \"Replace\", \"pattern\": {\"String\": \"a\"}, "
                            "\"content\": \"%s\"}",
                            steps, i ? ", " : "", many);
  for (int part = 0; part < 2; part++) {
    const char *text = ls_arena_printf(
        arena,
        "{\"%s\": {\"type\": \"Sequence\", \"%ss\": [%s]}, \"model\": {\"vocab\": {\"a\": 0}, "
        "\"merges\": []}}",
        parts[part], parts[part], steps);
    ls_token_pipeline *pipeline = ls_token_pipeline_create();
    ls_ids ids = {0};
    assert_int_equal(ls_token_pipeline_read_json(pipeline, "t.json", text, strlen(text), &error),
                     LS_OK);
    ls_status status =
        ls_token_pipeline_finish(pipeline, &error); /* decodes every piece by itself */
    if (part == 0) {
      assert_int_equal(status, LS_OK);
      status = ls_tokenizer_append(&pipeline->tokenizer, "aaaa", 4, 0, &ids, &error);
    }
    assert_int_equal(status, LS_INPUT);
    assert_non_null(strstr(error.text, "replacements make more than"));
    assert_one_line();
    ls_ids_free(&ids);
    ls_token_pipeline_destroy(&pipeline);
  }
  ls_arena_destroy(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_prefix_of_a_tokenizer_json_is_refused),
      cmocka_unit_test(prefixes_of_a_model_do_no_harm),
      cmocka_unit_test(prefixes_of_ranks_are_refused_up_to_the_last_byte),
      cmocka_unit_test(what_is_wrong_is_named),
      cmocka_unit_test(damaged_models_do_no_harm),
      cmocka_unit_test(replacements_that_blow_up_are_one_line),
      cmocka_unit_test(a_pattern_that_blows_up_is_one_line),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
