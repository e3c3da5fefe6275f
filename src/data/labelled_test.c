/* Texts with a class as data: what a label may be, whose classes there are, texts side by side in a
 * row with their class at their last token, what is cut or dropped, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "data/dataset.h"
#include "support/test_folder.h"
#include "tokenizer/token_buffer.h"

static ls_error error;

static const char *file(const char *name, const char *text) {
  const char *path = in_folder(name);
  assert_int_equal(ls_file_write(path, text, strlen(text), &error), LS_OK);
  return path;
}

static ls_run_file *run_of(const char *data) {
  ls_run_file *run = NULL;
  const char *yaml = ls_arena_printf(
      arena, "task: classify\ndata: {validation: 0, %s}\ntrain: {batch: 1}\n", data);
  if (ls_run_file_parse(arena, "run.yaml", yaml, strlen(yaml), NULL, 0, &run, &error) != LS_OK)
    fail_msg("%s", error.text);
  return run;
}

static ls_status open_run(const char *data, ls_dataset **dataset) {
  static const char *const names[] = {"bad", "fair", "good"};
  ls_run_file *run = run_of(data);
  run->classes = (ls_run_classes){.names = names, .count = 3};
  return ls_dataset_open(arena, run, ls_tokenizer_bytes(), in_folder("cache"), NULL, NULL, dataset,
                         &error);
}

/* A row as text: ids, "_" for 0; under it classes, "." for none, and places. */
static void row_text(const ls_order *order, int64_t step, char text[3][64]) {
  int32_t numbers[3][64];
  const ls_batch batch = {numbers[0], numbers[1], numbers[2], NULL, NULL, NULL, NULL, NULL};
  assert_int_equal(ls_batch_fill(order, step, 0, 1, &batch, &error), LS_OK);
  memset(text, 0, 3 * sizeof *text);
  for (int64_t t = 0; t < order->seq_len; t++) {
    text[0][t] = (char)(numbers[0][t] ? numbers[0][t] : '_');
    text[1][t] = (char)(numbers[1][t] == LS_NO_LABEL ? '.' : '0' + numbers[1][t]);
    text[2][t] = (char)('0' + numbers[2][t] % 10);
  }
}

/* The same of sets of less than four classes, as digits of their bits; other tokens have none. */
static void row_sets(const ls_order *order, char text[3][64]) {
  int32_t numbers[3][64], sets[64];
  const ls_batch batch = {numbers[0], numbers[1], numbers[2], NULL, NULL, NULL, NULL, sets};
  assert_int_equal(order->set_words, 1);
  memset(sets, 0xff, sizeof sets);
  row_text(order, 0, text);
  assert_int_equal(ls_batch_fill(order, 0, 0, 1, &batch, &error), LS_OK);
  for (int64_t t = 0; t < order->seq_len; t++) {
    assert_int_equal(text[1][t], numbers[1][t] < 0 ? '.' : '0');
    if (numbers[1][t] < 0) assert_int_equal(sets[t], 0);
    if (numbers[1][t] >= 0) text[1][t] = (char)('0' + sets[t]);
  }
}

static const ls_packing *packing_of(const ls_dataset *dataset) {
  return dataset->training.mix[0].packing;
}

static void a_class_lies_at_its_texts_last_token(void **state) {
  (void)state;
  ls_dataset *dataset;
  char text[3][64];
  const char *path = file("a.jsonl",
                          "{\"text\": \"abcdef\", \"label\": \"good\"}\n"
                          "{\"text\": \"ghi\", \"label\": 0}\n"
                          "{\"text\": \"j\", \"text_pair\": \"kl\", \"label\": \"fair\"}\n");
  if (open_run(ls_arena_printf(arena, "text: %s, seq_len: 14", path), &dataset) != LS_OK)
    fail_msg("%s", error.text);
  assert_true(dataset->labelled && dataset->chats && dataset->training.masked);
  row_text(&dataset->training, 0, text);
  assert_string_equal(text[0], "abcdefghijkl__");
  assert_string_equal(text[1], ".....2..0..1..");
  assert_string_equal(text[2], "01234501201201");
  assert_int_equal(packing_of(dataset)->tokens, 12);
  assert_int_equal(packing_of(dataset)->trained, 3);
  ls_dataset_close(dataset);
}

/* As one number, whose bit c says class c; 0 of none. What is cut off is not the classes. */
static void a_set_of_classes_lies_at_its_texts_last_token(void **state) {
  (void)state;
  static const char *const names[] = {"bad", "fair", "good"};
  ls_dataset *dataset;
  char text[3][64];
  const char *path = file("sets.jsonl",
                          "{\"text\": \"abcdef\", \"label\": [\"good\", 0]}\n"
                          "{\"text\": \"ghi\", \"label\": []}\n"
                          "{\"text\": \"jk\", \"label\": [\"good\", \"fair\", \"bad\"]}\n");
  for (int cut = 0; cut < 2; cut++) {
    const char *keys = cut ? "seq_len: 5, too_long: cut" : "seq_len: 14";
    ls_run_file *run = run_of(ls_arena_printf(arena, "text: %s, %s", path, keys));
    run->classes = (ls_run_classes){.names = names, .count = 3, .several = true};
    if (ls_dataset_open(arena, run, ls_tokenizer_bytes(), in_folder("cache"), NULL, NULL, &dataset,
                        &error) != LS_OK)
      fail_msg("%s", error.text);
    row_sets(&dataset->training, text);
    assert_string_equal(text[0], cut ? "abcde" : "abcdefghijk___");
    assert_string_equal(text[1], cut ? "....5" : ".....5..0.7...");
    assert_int_equal(packing_of(dataset)->trained, 3);
    ls_dataset_close(dataset);
  }
}

static ls_status open_words(const char *lines, const char *keys, ls_dataset **dataset) {
  static const char *const names[] = {"bad", "fair", "good"};
  const char *path = file("words.jsonl", lines);
  ls_run_file *run = run_of(ls_arena_printf(arena, "text: %s, %s", path, keys));
  run->classes = (ls_run_classes){.names = names, .count = 3, .each = true};
  return ls_dataset_open(arena, run, ls_tokenizer_bytes(), in_folder("cache"), NULL, NULL, dataset,
                         &error);
}

/* At its first id, which behind others is that of the blank before it. */
static void a_words_class_lies_at_its_first_token(void **state) {
  (void)state;
  ls_dataset *dataset;
  char text[3][64];
  static const char lines[] =
      "{\"text\": [\"ab\", \"c\", \"def\"], \"label\": [\"good\", null, 0]}\n"
      "{\"text\": [\"gh\"], \"label\": [-100]}\n"
      "{\"text\": [\"ij\", \"kl\"], \"label\": [-100, \"fair\"]}\n";
  if (open_words(lines, "seq_len: 16", &dataset) != LS_OK) fail_msg("%s", error.text);
  row_text(&dataset->training, 0, text);
  assert_string_equal(text[0], "ab c defij kl___");
  assert_string_equal(text[1], "2...0.....1.....");
  assert_string_equal(text[2], "0123456701234012");
  assert_int_equal(packing_of(dataset)->trained, 3);
  assert_int_equal(packing_of(dataset)->unasked, 1);
  ls_dataset_close(dataset);
  if (open_words(lines, "seq_len: 4, too_long: cut", &dataset) != LS_OK) fail_msg("%s", error.text);
  assert_int_equal(packing_of(dataset)->cut, 2); /* of the third its only class is kept */
  assert_int_equal(packing_of(dataset)->trained, 2);
  ls_dataset_close(dataset);
}

static void words_that_are_wrong_are_refused(void **state) {
  (void)state;
  static const struct {
    const char *line, *says;
  } cases[] = {
      {"{\"text\": \"ab\", \"label\": [0]}", "found no words under \"text\"; expected a list"},
      {"{\"label\": [0]}", "found no key \"text\"; expected a list of words"},
      {"{\"text\": [], \"label\": []}", "expected a list of words"},
      {"{\"text\": [\"ab\"], \"label\": 0}", "found one class; expected a list"},
      {"{\"text\": [\"ab\"]}", "found no key \"label\""},
      {"{\"text\": [\"a\", \"b\"], \"label\": [0]}", "found 1 classes of 2 words"},
      {"{\"text\": [\"a\", \"\"], \"label\": [0, 1]}", "found an empty text among the words"},
      {"{\"text\": [\"a\", 3], \"label\": [0, 1]}", "found a number among the words"},
      {"{\"text\": [\"a\"], \"label\": [3]}", "found 3; expected a class from 0 to 2"},
      {"{\"text\": [\"a\"], \"label\": [\"worse\"]}", "found worse; expected one of the classes"},
      {"{\"text\": [\"a\"], \"label\": [[0]]}", "found a list; expected the name or the number"},
      {"{\"text\": [\"a\"], \"label\": [0.5]}", "found a number with a fraction"},
  };
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    ls_dataset *dataset;
    assert_int_equal(open_words(cases[c].line, "seq_len: 16", &dataset), LS_INPUT);
    if (!strstr(error.text, cases[c].says) || !strstr(error.text, "words.jsonl:1: "))
      fail_msg("case %zu: %s", c, error.text);
  }
}

static void long_texts_are_dropped_or_cut(void **state) {
  (void)state;
  ls_dataset *dataset;
  char text[3][64];
  const char *path = file("long.json",
                          "[{\"text\": \"abcdef\", \"label\": \"good\"},\n"
                          " {\"text\": \"ghij\", \"label\": \"bad\"}]");
  assert_int_equal(open_run(ls_arena_printf(arena, "text: %s, seq_len: 4", path), &dataset), LS_OK);
  assert_int_equal(packing_of(dataset)->dropped, 1);
  row_text(&dataset->training, 0, text);
  assert_string_equal(text[0], "ghij");
  assert_string_equal(text[1], "...0");
  ls_dataset_close(dataset);
  assert_int_equal(
      open_run(ls_arena_printf(arena, "text: %s, seq_len: 4, too_long: cut", path), &dataset),
      LS_OK);
  assert_int_equal(packing_of(dataset)->cut, 1);
  assert_int_equal(packing_of(dataset)->row_count, 2);
  bool found = false;
  for (int64_t s = 0; s < 2; s++) {
    row_text(&dataset->training, s, text);
    if (strcmp(text[0], "abcd") != 0) continue;
    assert_string_equal(text[1], "...2");
    found = true;
  }
  assert_true(found);
  ls_dataset_close(dataset);
}

/* Classes that are named otherwise are other data, though the texts are the same. */
static void other_classes_are_other_data(void **state) {
  (void)state;
  static const char *const names[][2] = {{"bad", "good"}, {"good", "bad"}};
  const char *path = file("two.jsonl",
                          "{\"text\": \"abc\", \"label\": \"good\"}\n"
                          "{\"text\": \"def\", \"label\": \"bad\"}\n");
  char prints[2][LS_CORPUS_NAME_BYTES];
  for (int n = 0; n < 2; n++) {
    ls_dataset *dataset;
    ls_run_file *run = run_of(ls_arena_printf(arena, "text: %s, seq_len: 6", path));
    char text[3][64];
    run->classes = (ls_run_classes){.names = names[n], .count = 2};
    assert_int_equal(ls_dataset_open(arena, run, ls_tokenizer_bytes(), in_folder("cache"), NULL,
                                     NULL, &dataset, &error),
                     LS_OK);
    row_text(&dataset->training, 0, text);
    assert_string_equal(text[1], n ? "..0..1" : "..1..0");
    memcpy(prints[n], dataset->fingerprint, sizeof prints[n]);
    ls_dataset_close(dataset);
  }
  assert_string_not_equal(prints[0], prints[1]);
}

/* [CLS] a b [SEP] c [SEP], with another type from c on, or two [SEP]; the class is asked at [CLS].
 */
static void pairs_are_as_encoders_have_them(void **state) {
  (void)state;
  static const char *const names[] = {"no", "yes"};
  const ls_tokenizer *tokenizer;
  const char *path = file("pairs.jsonl",
                          "{\"text\": \"the first\", \"text_pair\": \"second\", "
                          "\"label\": \"yes\"}\n");
  if (ls_tokenizer_open("tests/data/tokenizers/word-piece", NULL, &tokenizer, &error) != LS_OK)
    fail_msg("%s", error.text);
  for (int ends = 1; ends <= 2; ends++) {
    ls_dataset *dataset;
    ls_ids ids = {0};
    int32_t row[4][32];
    const ls_batch batch = {row[0], row[1], row[2], NULL, row[3], NULL, NULL, NULL};
    ls_run_file *run = run_of(ls_arena_printf(arena, "text: %s, seq_len: 32", path));
    run->classes = (ls_run_classes){
        .names = names, .count = 2, .first = true, .pair_ends = ends, .pair_types = ends == 1};
    memset(row, 0, sizeof row);
    if (ls_dataset_open(arena, run, tokenizer, in_folder("cache"), NULL, NULL, &dataset, &error) !=
        LS_OK)
      fail_msg("%s", error.text);
    assert_int_equal(ls_batch_fill(&dataset->training, 0, 0, 1, &batch, &error), LS_OK);
    const unsigned whole = LS_TOKENS_SPECIAL;
    assert_int_equal(ls_tokenizer_append(tokenizer, "the first", 9, whole, &ids, &error), LS_OK);
    const int64_t first = ids.count;
    if (ends == 2) ls_ids_push(&ids, ids.items[first - 1]);
    const int64_t begin = ids.count;
    assert_int_equal(ls_tokenizer_append(tokenizer, "second", 6, whole, &ids, &error), LS_OK);
    memmove(ids.items + begin, ids.items + begin + 1,
            sizeof *ids.items * (size_t)(ids.count - begin - 1)); /* its [CLS] */
    ids.count--;
    for (int64_t t = 0; t < 32; t++) {
      assert_int_equal(row[0][t], t < ids.count ? ids.items[t] : 0);
      assert_int_equal(row[1][t], t == 0 ? 1 : LS_NO_LABEL);
      assert_int_equal(row[3][t], ends == 1 && t >= first && t < ids.count);
    }
    ls_ids_free(&ids);
    ls_dataset_close(dataset);
  }
  ls_tokenizer_close(&tokenizer);
}

static void classes_come_from_the_labels(void **state) {
  (void)state;
  static const struct {
    const char *lines, *found;
  } cases[] = {
      {"{\"label\": \"b\"}\n{\"label\": \"c\"}\n{\"label\": \"a\"}\n{\"label\": \"b\"}\n", "a b c"},
      {"{\"label\": 2}\n{\"label\": 0}\n", "LABEL_0 LABEL_1 LABEL_2"},
      {"{\"label\": true}\n{\"label\": false}\n", "false true"},
      {"{\"label\": 1.0}\n{\"label\": 0.0}\n", "LABEL_0 LABEL_1"},
      {"{\"label\": 1, \"id\": 123456789012345678901234}\n{\"label\": 0}\n", "LABEL_0 LABEL_1"},
      {"{\"label\": 0}\n{\"label\": 123456789012345678901234}\n",
       "a.jsonl:2: \"label\": found too large a number"},
      {"{\"label\": 0}\n{\"label\": 1 2}\n", "a.jsonl:2:13: found '2'; expected ',' or '}'"},
      {"{\"label\": 1}\n{\"label\": \"a\"}\n", "a.jsonl:2: \"label\": found a name where others"},
      {"{\"label\": \"a\"}\n{\"label\": 1}\n", "a.jsonl:2: \"label\": found a number where others"},
      {"{\"label\": \"a\"}\n", "found 1 class under \"label\"; expected two or more"},
      {"{\"label\": 0}\n{\"label\": -1}\n", "a.jsonl:2: \"label\": found -1; expected a class"},
      {"{\"label\": 0}\n{\"label\": 99999}\n", "a.jsonl:2: \"label\": found 99999"},
      {"{\"label\": \"a\"}\n{\"text\": \"x\"}\n", "a.jsonl:2: found no key \"label\""},
      {"{\"label\": \"a\"}\n{\"label\": [0, 1]}\n", "a.jsonl:2: \"label\": found a list"},
      {"{\"label\": \"a\"}\n{\"label\": 0.5}\n", "a.jsonl:2: \"label\": found a number with a"},
      {"{\"label\": \"a\"}\n{\"label\": \"\"}\n", "a.jsonl:2: \"label\": found an empty text"},
      {"{\"label\": \"a\"}\n{\"label\": \"b}\n", "a.jsonl:2"},
      {"{\"label\": \"a\"}\n[1]\n", "a.jsonl:2: found a list; expected an object"},
  };
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    const char *const *names;
    int64_t count;
    const char *path = file("a.jsonl", cases[c].lines), *text = "";
    ls_run_file *run = run_of(ls_arena_printf(arena, "text: %s", path));
    if (ls_labelled_find_classes(arena, run, &names, &count, &error) == LS_OK)
      for (int64_t n = 0; n < count; n++)
        text = ls_arena_printf(arena, "%s%s%s", text, n ? " " : "", names[n]);
    else
      text = error.text;
    if (!strstr(text, cases[c].found)) fail_msg("case %zu: %s", c, text);
  }
}

/* A 0 or 1 for each class, as other programs have sets of classes, is told from their numbers. */
static void sets_are_of_names_or_numbers(void **state) {
  (void)state;
  static const char *const cases[][2] = {
      {"{\"label\": [2]}\n{\"label\": [0, 2]}\n", "LABEL_0 LABEL_1 LABEL_2"},
      {"{\"label\": [\"b\"]}\n{\"label\": []}\n{\"label\": [\"a\", \"b\"]}\n", "a b"},
      {"{\"label\": [0, 1]}\n{\"label\": [1, 0]}\n", "found all 2 classes in each text"},
      {"{\"label\": [1]}\n{\"label\": [0.0, 1.0]}\n", "a.jsonl:2: \"label\": found 0 in a list"},
  };
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    const char *const *names;
    int64_t count;
    const char *path = file("a.jsonl", cases[c][0]), *text = "";
    ls_run_file *run = run_of(ls_arena_printf(arena, "text: %s", path));
    run->classes.several = true;
    if (ls_labelled_find_classes(arena, run, &names, &count, &error) == LS_OK)
      for (int64_t n = 0; n < count; n++)
        text = ls_arena_printf(arena, "%s%s%s", text, n ? " " : "", names[n]);
    else
      text = error.text;
    if (!strstr(text, cases[c][1])) fail_msg("case %zu: %s", c, text);
  }
}

static void what_is_wrong_is_named(void **state) {
  (void)state;
  static const struct {
    const char *line, *said;
  } cases[] = {
      {"{\"text\": \"x\", \"label\": \"worse\"}",
       "w.jsonl:2: \"label\": found worse; expected one of the classes bad, fair, good"},
      {"{\"text\": \"x\", \"label\": 3}", "w.jsonl:2: \"label\": found 3; expected a class from 0"},
      {"{\"text\": \"x\", \"label\": -1}", "w.jsonl:2: \"label\": found -1"},
      {"{\"text\": \"x\", \"label\": null}", "w.jsonl:2: \"label\": found null"},
      {"{\"text\": \"x\", \"label\": [\"bad\"]}",
       "several labels of a text are of classes.several=true"},
      {"{\"text\": \"x\", \"label\": \"bad\\u0000\"}", "w.jsonl:2"},
      {"{\"text\": \"x\"}", "w.jsonl:2: found no key \"label\""},
      {"{\"label\": \"bad\"}", "w.jsonl:2: found no key \"text\""},
      {"{\"text\": 7, \"label\": \"bad\"}", "w.jsonl:2: \"text\": expected a text"},
      {"{\"text\": \"\", \"label\": \"bad\"}", "w.jsonl:2: \"text\": found an empty text"},
      {"{\"text\": \"x\", \"text_pair\": 1, \"label\": \"bad\"}", "w.jsonl:2: \"text_pair\""},
      {"\"x\"", "w.jsonl:2: found no object"},
      {"{\"text\": \"x\"", "w.jsonl:2"},
  };
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    ls_dataset *dataset;
    const char *path =
        file("w.jsonl",
             ls_arena_printf(arena, "{\"text\": \"good\", \"label\": 2}\n%s\n", cases[c].line));
    const ls_status status =
        open_run(ls_arena_printf(arena, "text: %s, seq_len: 8", path), &dataset);
    if (status != LS_INPUT || !strstr(error.text, cases[c].said))
      fail_msg("case %zu: %s", c, status == LS_OK ? "accepted" : error.text);
    assert_int_equal(
        open_run(ls_arena_printf(arena, "text: %s, seq_len: 8, on_bad_line: skip", path), &dataset),
        LS_OK);
    assert_int_equal(dataset->skipped, 1);
    assert_int_equal(packing_of(dataset)->examples, 1);
    ls_dataset_close(dataset);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(a_class_lies_at_its_texts_last_token, set_up, tear_down),
      cmocka_unit_test_setup_teardown(a_set_of_classes_lies_at_its_texts_last_token, set_up,
                                      tear_down),
      cmocka_unit_test_setup_teardown(a_words_class_lies_at_its_first_token, set_up, tear_down),
      cmocka_unit_test_setup_teardown(words_that_are_wrong_are_refused, set_up, tear_down),
      cmocka_unit_test_setup_teardown(long_texts_are_dropped_or_cut, set_up, tear_down),
      cmocka_unit_test_setup_teardown(other_classes_are_other_data, set_up, tear_down),
      cmocka_unit_test_setup_teardown(pairs_are_as_encoders_have_them, set_up, tear_down),
      cmocka_unit_test_setup_teardown(classes_come_from_the_labels, set_up, tear_down),
      cmocka_unit_test_setup_teardown(sets_are_of_names_or_numbers, set_up, tear_down),
      cmocka_unit_test_setup_teardown(what_is_wrong_is_named, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
