/* Pairs of texts as data: texts side by side in a row, each with positions of its own, of which
 * text each token is told, how many pairs a row has, what stands before texts, and what is refused.
 */
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

static ls_status open_pairs(const char *lines, const char *data, const char *embed,
                            ls_dataset **dataset) {
  const char *path = in_folder("pairs.jsonl");
  ls_run_file *run = NULL;
  assert_int_equal(ls_file_write(path, lines, strlen(lines), &error), LS_OK);
  const char *yaml = ls_arena_printf(arena,
                                     "task: embed\ndata: {validation: 0, text: %s, %s}\n"
                                     "train: {batch: 1}\nembed: {%s}\n",
                                     path, data, embed);
  if (ls_run_file_parse(arena, "run.yaml", yaml, strlen(yaml), NULL, 0, &run, &error) != LS_OK)
    fail_msg("%s", error.text);
  run->data.documents = LS_RUN_MASKED;
  return ls_dataset_open(arena, run, ls_tokenizer_bytes(), in_folder("cache"), NULL, NULL, dataset,
                         &error);
}

/* Rows of a step as text: ids, "_" for 0; places; and of tokens whose text's vector is made of them
 * the text's number, as a digit, or where that is asked as a letter, 'a' being 0. */
static void rows_text(const ls_order *order, int64_t rows, char text[3][128]) {
  int32_t numbers[3][128];
  const ls_batch batch = {numbers[0], numbers[1], numbers[2], NULL, NULL, NULL, NULL, NULL};
  assert_int_equal(ls_batch_fill(order, 0, 0, rows, &batch, &error), LS_OK);
  memset(text, 0, 3 * sizeof *text);
  for (int64_t t = 0; t < rows * order->seq_len; t++) {
    const int32_t label = numbers[1][t];
    text[0][t] = (char)(numbers[0][t] ? numbers[0][t] : '_');
    text[1][t] = (char)(label == -1 ? '.' : label >= 0 ? 'a' + label : '0' - 2 - label);
    text[2][t] = (char)('0' + numbers[2][t] % 10);
  }
}

static const char lines[] =
    "{\"anchor\": \"abc\", \"positive\": \"de\", \"negative\": \"fgh\"}\n"
    "{\"query\": \"i\", \"positive\": \"jkl\", \"negative\": [\"m\"]}\n";

static void each_token_is_told_its_text(void **state) {
  (void)state;
  static const struct {
    const char *pooling, *labels;
  } cases[] = {
      {"last", "..a.1..2d..45..."}, {"cls", "a..1.2..d4..5..."}, {"mean", "00a11222d4445..."}};
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    char text[3][128];
    ls_dataset *dataset;
    const char *embed =
        ls_arena_printf(arena, "negatives: 1, pairs: 2, pooling: %s", cases[c].pooling);
    if (open_pairs(lines, "seq_len: 16", embed, &dataset) != LS_OK) fail_msg("%s", error.text);
    assert_true(dataset->text_pairs && dataset->chats && dataset->training.masked);
    rows_text(&dataset->training, 1, text);
    assert_string_equal(text[0], "abcdefghijklm___");
    assert_string_equal(text[1], cases[c].labels);
    assert_string_equal(text[2], "0120101200120012");
    ls_dataset_close(dataset);
  }
}

/* However short they are. */
static void a_row_has_so_many_pairs_at_most(void **state) {
  (void)state;
  static const char five[] =
      "{\"anchor\": \"a\", \"positive\": \"b\"}\n{\"anchor\": \"c\", \"positive\": \"d\"}\n"
      "{\"anchor\": \"e\", \"positive\": \"f\"}\n{\"anchor\": \"g\", \"positive\": \"h\"}\n"
      "{\"anchor\": \"i\", \"positive\": \"j\"}\n";
  ls_dataset *dataset;
  if (open_pairs(five, "seq_len: 16", "pairs: 2, pooling: last", &dataset) != LS_OK)
    fail_msg("%s", error.text);
  const ls_packing *packing = dataset->training.mix[0].packing;
  assert_int_equal(packing->row_count, 3);
  assert_int_equal(packing->examples, 5);
  ls_dataset_close(dataset);
}

static void long_pairs_are_dropped_or_cut(void **state) {
  (void)state;
  static const char two[] =
      "{\"anchor\": \"abcdefgh\", \"positive\": \"ijkl\"}\n{\"anchor\": \"m\", \"positive\": "
      "\"n\"}\n";
  char text[3][128];
  ls_dataset *dataset;
  if (open_pairs(two, "seq_len: 8", "pairs: 2, pooling: last", &dataset) != LS_OK)
    fail_msg("%s", error.text);
  assert_int_equal(dataset->training.mix[0].packing->dropped, 1);
  ls_dataset_close(dataset);
  assert_int_equal(
      open_pairs(two, "seq_len: 10, too_long: cut", "pairs: 2, pooling: last", &dataset), LS_OK);
  assert_int_equal(dataset->training.mix[0].packing->dropped, 0);
  rows_text(&dataset->training, 1, text);
  assert_non_null(strstr("abcdeijkl_ mn________", text[0]));
  ls_dataset_close(dataset);
  /* A pair that has room is whole, whichever of its texts is long. */
  assert_int_equal(
      open_pairs(two, "seq_len: 14, too_long: cut", "pairs: 2, pooling: last", &dataset), LS_OK);
  rows_text(&dataset->training, 1, text);
  assert_string_equal(text[0], "abcdefghijklmn");
  ls_dataset_close(dataset);
}

static void prompts_stand_before_texts(void **state) {
  (void)state;
  static const char one[] = "{\"anchor\": \"a\", \"positive\": \"b\"}\n";
  char text[3][128];
  ls_dataset *dataset;
  if (open_pairs(one, "seq_len: 8", "pooling: last, query_prompt: \"q: \", answer_prompt: \"p\"",
                 &dataset) != LS_OK)
    fail_msg("%s", error.text);
  rows_text(&dataset->training, 1, text);
  assert_string_equal(text[0], "q: apb__");
  ls_dataset_close(dataset);
}

static void what_is_wrong_is_refused(void **state) {
  (void)state;
  static const struct {
    const char *line, *says;
  } cases[] = {
      {"[1]", "found no object; expected one with the texts \"anchor\""},
      {"{\"positive\": \"b\"}", "found neither \"anchor\" nor \"query\"; expected one of the two"},
      {"{\"anchor\": \"a\", \"query\": \"a\", \"positive\": \"b\"}", "found both \"anchor\" and"},
      {"{\"anchor\": \"a\", \"query\": null, \"positive\": \"b\", \"negative\": \"c\"}",
       "\"negative\": found 1 wrong answer"},
      {"{\"query\": \"a\"}", "found no \"positive\"; expected the text that answers \"query\""},
      {"{\"anchor\": \"\", \"positive\": \"b\"}", "\"anchor\": found an empty text"},
      {"{\"anchor\": \"a\", \"positive\": 3}", "\"positive\": found no text; expected a text"},
      {"{\"anchor\": \"a\", \"positive\": \"b\", \"negative\": \"c\"}",
       "\"negative\": found 1 wrong answer; expected 0, as embed.negatives says"},
  };
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    ls_dataset *dataset;
    assert_int_equal(open_pairs(cases[c].line, "seq_len: 16", "pooling: last", &dataset), LS_INPUT);
    if (!strstr(error.text, cases[c].says) || !strstr(error.text, "pairs.jsonl:1: "))
      fail_msg("case %zu: %s", c, error.text);
  }
  /* One by one they leave nothing behind, and other settings other ids. */
  const ls_text_pair_options options = {ls_tokenizer_bytes(), "", "", 0, 0};
  const ls_text_pair_options others = {ls_tokenizer_bytes(), "", "a", 0, 0};
  ls_ids ids = {0};
  json_t *json = json_pack("{s:s, s:i}", "anchor", "a", "positive", 3);
  assert_int_equal(ls_text_pairs_encode(&options, json, &ids, NULL), LS_INPUT);
  assert_int_equal(ids.count, 0);
  assert_true(ls_text_pairs_fingerprint(&options) != ls_text_pairs_fingerprint(&others));
  ls_ids_free(&ids);
  json_decref(json);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(each_token_is_told_its_text, set_up, tear_down),
      cmocka_unit_test_setup_teardown(a_row_has_so_many_pairs_at_most, set_up, tear_down),
      cmocka_unit_test_setup_teardown(long_pairs_are_dropped_or_cut, set_up, tear_down),
      cmocka_unit_test_setup_teardown(prompts_stand_before_texts, set_up, tear_down),
      cmocka_unit_test_setup_teardown(what_is_wrong_is_refused, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
