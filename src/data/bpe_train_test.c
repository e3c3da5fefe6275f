/* Training of byte-level BPE: merges, pieces and ids are those that Hugging Face's BpeTrainer makes
 * of the same texts (tools/reference/make_bpe_training.py); words are counted alike however texts
 * are cut and whoever counts them; what is written is read back. */
#include "tokenizer/bpe_train.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/random.h"
#include "data/word_counts_texts.h"
#include "text/json.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/pattern.h"
#include "tokenizer/unicode.h"

static const uint64_t seed = 20261121;
static uint64_t drawn;
static ls_error error;
static ls_arena *arena;
static ls_pattern *pattern;
static char folder[] = "/tmp/bpe_train_test-XXXXXX";

static int set_up(void **state) {
  (void)state;
  print_message("seed %llu\n", (unsigned long long)seed);
  arena = ls_arena_create();
  const ls_status status =
      ls_pattern_compile(arena, "test", ls_byte_level_pattern, LS_PATTERN_RUBY, &pattern, &error);
  return status == LS_OK && mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state) {
  (void)state;
  ls_pattern_free(pattern);
  ls_arena_destroy(&arena);
  return ls_directory_remove(folder, &error) == LS_OK ? 0 : -1;
}

static uint64_t draw(uint64_t below) {
  return ls_random_bits(seed, 1, drawn++) % below;
}

static void expect_ok(ls_status status) {
  if (status != LS_OK) fail_msg("%s", error.text);
}

static const char *path_of(const char *name) {
  return ls_arena_printf(arena, "%s/%s", folder, name);
}

static ls_word_counts *count_file(const char *path, int threads, ls_status *status) {
  ls_text_files files;
  expect_ok(ls_text_files_find(arena, "texts", &path, 1, &files, &error));
  ls_word_counts *counts = ls_word_counts_create(arena);
  const ls_word_counts_options options = {.text_key = "text", .threads = threads};
  *status = ls_word_counts_texts(&options, &files, counts, &error);
  return counts;
}

/* The words of a text as the pattern cuts it whole. */
static ls_word_counts *count_plainly(ls_span text) {
  ls_word_counts *counts = ls_word_counts_create(arena);
  ls_matcher matcher = {0};
  ls_bytes repaired = {0};
  text = ls_unicode_repair(text, false, &repaired);
  ls_pattern_begin(pattern, &matcher, text);
  for (size_t from = 0; from < text.bytes;) {
    ls_match match;
    expect_ok(ls_pattern_find(&matcher, from, &match, &error));
    ls_word_counts_add(counts, (ls_span){text.text + match.begin, match.end - match.begin}, 1);
    from = match.end;
  }
  ls_matcher_free(&matcher);
  ls_bytes_free(&repaired);
  return counts;
}

static int by_text(const void *left, const void *right) {
  const ls_counted_word *a = left, *b = right;
  const size_t least = a->word.bytes < b->word.bytes ? a->word.bytes : b->word.bytes;
  const int order = memcmp(a->word.text, b->word.text, least);
  if (order) return order;
  return a->word.bytes < b->word.bytes ? -1 : a->word.bytes > b->word.bytes;
}

static void assert_same_counts(ls_word_counts *a, ls_word_counts *b) {
  assert_int_equal(a->count, b->count);
  qsort(a->items, (size_t)a->count, sizeof *a->items, by_text);
  qsort(b->items, (size_t)b->count, sizeof *b->items, by_text);
  for (int i = 0; i < a->count; i++) {
    assert_int_equal(by_text(&a->items[i], &b->items[i]), 0);
    assert_int_equal(a->items[i].count, b->items[i].count);
  }
}

static bool is_text(const json_t *json, ls_span text) {
  return json_string_length(json) == text.bytes &&
         memcmp(json_string_value(json), text.text, text.bytes) == 0;
}

static void check_ids(const ls_tokenizer *tokenizer, const json_t *each) {
  const json_t *text = json_object_get(each, "text"), *expected = json_object_get(each, "ids");
  ls_ids ids = {0};
  expect_ok(ls_tokenizer_append(tokenizer, json_string_value(text),
                                (int64_t)json_string_length(text), 0, &ids, &error));
  assert_int_equal(ids.count, json_array_size(expected));
  for (int64_t i = 0; i < ids.count; i++)
    assert_int_equal(ids.items[i], json_integer_value(json_array_get(expected, (size_t)i)));
  ls_ids_free(&ids);
}

/* Special tokens would be found in the text, which BpeTrainer does not ask about: "ids" are those
 * with them, as the library gives them. */
static void check_written(const ls_bpe_trained *trained, const json_t *each, size_t number) {
  const char *path = path_of(ls_arena_printf(arena, "case-%zu", number));
  expect_ok(ls_bpe_trained_write(trained, path, &error));
  assert_true(ls_file_exists(ls_arena_printf(arena, "%s/tokenizer_config.json", path)));
  const ls_tokenizer *tokenizer;
  expect_ok(ls_tokenizer_open(path, NULL, &tokenizer, &error));
  assert_int_equal(tokenizer->vocabulary, trained->vocabulary->count);
  assert_int_equal(tokenizer->end_of_text, trained->special_count ? 0 : -1);
  check_ids(tokenizer, each);
  ls_tokenizer_close(&tokenizer);
}

static void check_case(const json_t *each, size_t number) {
  const json_t *text = json_object_get(each, "text"), *names = json_object_get(each, "special");
  const char *special[4];
  ls_bpe_train_options options = {
      .pieces = json_integer_value(json_object_get(each, "vocab")),
      .least_count = json_integer_value(json_object_get(each, "min_frequency")),
      .special = special,
      .special_count = (int)json_array_size(names)};
  assert_in_range(options.special_count, 0, 4);
  for (int i = 0; i < options.special_count; i++)
    special[i] = json_string_value(json_array_get(names, (size_t)i));
  ls_bpe_trained trained;
  ls_word_counts *counts =
      count_plainly((ls_span){json_string_value(text), json_string_length(text)});
  expect_ok(ls_bpe_train(arena, counts, &options, &trained, &error));

  const json_t *pieces = json_object_get(each, "pieces"), *merges = json_object_get(each, "merges");
  assert_int_equal(trained.vocabulary->count, json_array_size(pieces));
  for (int32_t id = 0; id < trained.vocabulary->count; id++)
    assert_true(is_text(json_array_get(pieces, (size_t)id), trained.vocabulary->pieces[id]));
  assert_int_equal(trained.rule_count, json_array_size(merges));
  for (int i = 0; i < trained.rule_count; i++) {
    const json_t *merge = json_array_get(merges, (size_t)i);
    const ls_bpe_rule *rule = &trained.rules[i];
    const bool same = is_text(json_array_get(merge, 0), trained.vocabulary->pieces[rule->left]) &&
                      is_text(json_array_get(merge, 1), trained.vocabulary->pieces[rule->right]);
    if (!same) fail_msg("case %zu: merge %d is another", number, i);
  }
  check_written(&trained, each, number);
}

static void trains_what_hugging_face_trains(void **state) {
  (void)state;
  json_t *root;
  expect_ok(ls_json_read("tests/data/bpe-training.json", 0, &root, &error));
  const json_t *cases = json_object_get(root, "cases");
  assert_int_equal(json_array_size(cases), 27);
  for (size_t i = 0; i < json_array_size(cases); i++) check_case(json_array_get(cases, i), i);
  json_decref(root);
}

/* Words, white space of all kinds, marks, and bytes that are no UTF-8. */
static void append_random(ls_bytes *text, size_t bytes) {
  static const char *const parts[] = {"a",
                                      "word",
                                      "the",
                                      " ",
                                      " ",
                                      "\n",
                                      "\n\n",
                                      "\t",
                                      "'s",
                                      "'",
                                      "12",
                                      "\r\n",
                                      "\xc2\xa0",
                                      "\xe3\x80\x80",
                                      "\xe2\x80\x83",
                                      "\xc3\xa9",
                                      "\xe6\x97\xa5",
                                      "\xe3\x81\x8b",
                                      "\xf0\x9f\xa6\x99",
                                      "\xff",
                                      "\xe3",
                                      "\xc2\x85",
                                      "...",
                                      "\x0b"};
  while (text->count < bytes) {
    const char *part = parts[draw(sizeof parts / sizeof *parts)];
    ls_bytes_append(text, part, strlen(part));
  }
}

static void add_all(ls_word_counts *to, const ls_word_counts *from) {
  for (int i = 0; i < from->count; i++)
    ls_word_counts_add(to, from->items[i].word, from->items[i].count);
}

static void a_cut_changes_no_word(void **state) {
  (void)state;
  int cuts = 0;
  for (int i = 0; i < 2000; i++) {
    ls_bytes text = {0};
    append_random(&text, 1 + draw(40));
    const ls_span whole = {text.data, text.count};
    const int64_t cut = ls_word_counts_cut(whole, i % 2 == 0);
    if (cut >= 0) {
      const size_t at = (size_t)cut;
      ls_word_counts *parts = count_plainly((ls_span){whole.text, at});
      add_all(parts, count_plainly((ls_span){whole.text + at, whole.bytes - at}));
      assert_same_counts(parts, count_plainly(whole));
      cuts++;
    }
    ls_bytes_free(&text);
  }
  assert_in_range(cuts, 1000, 2000);
}

/* Several pieces of the reader, and more than a thread takes at once. */
static void counts_a_long_text_as_a_whole(void **state) {
  (void)state;
  ls_bytes text = {0};
  append_random(&text, 3 << 20);
  const char *path = path_of("long.txt");
  expect_ok(ls_file_write(path, text.data, text.count, &error));
  ls_word_counts *expected = count_plainly((ls_span){text.data, text.count});
  for (int threads = 1; threads <= 3; threads += 2) {
    ls_status status;
    ls_word_counts *counts = count_file(path, threads, &status);
    expect_ok(status);
    assert_same_counts(counts, expected);
  }
  ls_bytes_free(&text);
}

static void counts_json_lines_each_alone(void **state) {
  (void)state;
  static const char lines[] = "{\"text\": \"a b\\n\"}\n\n{\"id\": 1, \"text\": \"\\u0000b\"}\n";
  const char *path = path_of("lines.jsonl");
  expect_ok(ls_file_write(path, lines, sizeof lines - 1, &error));
  ls_status status;
  ls_word_counts *counts = count_file(path, 2, &status);
  expect_ok(status);
  ls_word_counts *expected = count_plainly((ls_span){"a b\n", 4});
  add_all(expected, count_plainly((ls_span){"\0b", 2}));
  assert_same_counts(counts, expected);

  static const char broken[] = "{\"text\": \"a\"}\n{\"text\": 5}\n{\"text\"\n";
  expect_ok(ls_file_write(path, broken, sizeof broken - 1, &error));
  (void)count_file(path, 2, &status);
  assert_int_equal(status, LS_INPUT);
  assert_non_null(strstr(error.text, "lines.jsonl:2: "));
}

static void refuse(const ls_bpe_train_options *options, const char *expected) {
  assert_int_equal(ls_bpe_train_check(options, &error), LS_INPUT);
  if (!strstr(error.text, expected)) fail_msg("%s", error.text);
}

static void refuses_what_cannot_be(void **state) {
  (void)state;
  const char *twice[] = {"<s>", "<s>"}, *empty[] = {""}, *broken[] = {"\xff"}, *one[] = {"<s>"};
  refuse(&(ls_bpe_train_options){.pieces = 256, .special = one, .special_count = 1},
         "at least 257");
  refuse(&(ls_bpe_train_options){.pieces = LS_VOCABULARY_MOST + 1}, "at most");
  refuse(&(ls_bpe_train_options){.pieces = 300, .special = twice, .special_count = 2}, "<s>");
  refuse(&(ls_bpe_train_options){.pieces = 300, .special = empty, .special_count = 1}, "empty");
  refuse(&(ls_bpe_train_options){.pieces = 300, .special = broken, .special_count = 1}, "UTF-8");

  const ls_bpe_train_options options = {.pieces = 256};
  ls_bpe_trained trained;
  expect_ok(ls_bpe_train(arena, ls_word_counts_create(arena), &options, &trained, &error));
  assert_int_equal(ls_bpe_trained_write(&trained, folder, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "something is there"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(trains_what_hugging_face_trains),
      cmocka_unit_test(a_cut_changes_no_word),
      cmocka_unit_test(counts_a_long_text_as_a_whole),
      cmocka_unit_test(counts_json_lines_each_alone),
      cmocka_unit_test(refuses_what_cannot_be),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
