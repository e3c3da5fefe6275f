/* Chats as data: files in every form, whole examples in rows, what is trained, what is counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "data/chat_texts.h"
#include "data/dataset.h"
#include "support/test_folder.h"

static ls_error error;

static const char *file(const char *name, const char *text) {
  const char *path = in_folder(name);
  assert_int_equal(ls_file_write(path, text, strlen(text), &error), LS_OK);
  return path;
}

/* {USER|ANSWER}: the answer with its end is trained. */
static const char template[] =
    "{% for m in messages %}{{ '{' if m.role == 'user' }}{{ m.content }}{{ '|' if m.role == 'user' "
    "else '}' }}{% endfor %}";

static ls_run_file *run_of(const char *data) {
  ls_run_file *run = NULL;
  const char *yaml = ls_arena_printf(arena, "data: {template: %s, %s}\ntrain: {batch: 1}\n",
                                     file("t.jinja", template), data);
  if (ls_run_file_parse(arena, "run.yaml", yaml, strlen(yaml), NULL, 0, &run, &error) != LS_OK)
    fail_msg("%s", error.text);
  return run;
}

static ls_status open_run(const char *data, ls_dataset **dataset) {
  return ls_dataset_open(arena, run_of(data), ls_tokenizer_bytes(), in_folder("cache"), NULL, NULL,
                         dataset, &error);
}

static ls_dataset *opened(const char *data) {
  ls_dataset *dataset;
  if (open_run(data, &dataset) != LS_OK) fail_msg("%s: %s", data, error.text);
  return dataset;
}

/* A row of a batch as text: ids, "_" for 0; under it what is trained and places. */
static void row_text(const ls_order *order, int64_t row, char ids[64], char labels[64],
                     char places[64]) {
  int32_t numbers[3][64];
  const ls_batch batch = {numbers[0], numbers[1], numbers[2], NULL, NULL, NULL, NULL, NULL};
  assert_true(order->seq_len < 60);
  assert_int_equal(ls_batch_fill(order, row, 0, 1, &batch, &error), LS_OK);
  for (int64_t t = 0; t < order->seq_len; t++) {
    ids[t] = (char)(numbers[0][t] ? numbers[0][t] : '_');
    labels[t] = (char)(numbers[1][t] == LS_NO_LABEL ? '.' : numbers[1][t]);
    places[t] = (char)('0' + numbers[2][t] % 10);
  }
  ids[order->seq_len] = labels[order->seq_len] = places[order->seq_len] = 0;
}

static const char three[] =
    "{\"prompt\": \"ab\", \"completion\": \"cd\"}\n\n"
    "{\"messages\": [{\"role\": \"user\", \"content\": \"e\"}, {\"role\": \"assistant\", "
    "\"content\": \"fgh\"}, {\"role\": \"user\", \"content\": \"\"}, {\"role\": \"assistant\", "
    "\"content\": \"i\"}]}\n"
    "{\"instruction\": \"j\", \"output\": \"\"}\n";

static void whole_examples_share_rows(void **state) {
  (void)state;
  char ids[64], labels[64], places[64];
  const char *data =
      ls_arena_printf(arena, "text: %s, seq_len: 12, validation: 0", file("a.jsonl", three));
  ls_dataset *dataset = opened(data);
  assert_true(dataset->chats && dataset->training.masked);
  assert_int_equal(dataset->documents, 3);
  assert_int_equal(dataset->training.sequences, 2);
  const ls_packing *packing = dataset->training.mix[0].packing;
  assert_int_equal(packing->examples, 3);
  assert_int_equal(packing->tokens, 11 + 7 + 4);
  assert_int_equal(packing->trained, (4 + 2) + 3 + 1);
  int seen = 0;
  for (int64_t r = 0; r < 2; r++) {
    row_text(&dataset->training, r, ids, labels, places);
    if (strcmp(ids, "{ab|cd}{j|}_") == 0) {
      seen++;
      assert_string_equal(labels, "...cd}...}..");
      assert_string_equal(places, "012345601230");
    } else {
      assert_string_equal(ids, "{e|fgh}{|i}_");
      seen += 2;
      assert_string_equal(labels, "..fgh}..i}..");
      assert_string_equal(places, "012345678900");
    }
  }
  assert_int_equal(seen, 3);
  ls_dataset_close(dataset);
}

static void other_files_give_the_same_rows(void **state) {
  (void)state;
  const char *lines = file("a.jsonl", three);
  const char *list = file(
      "a.json",
      "\xEF\xBB\xBF[\n {\"prompt\": \"ab\",\n  \"completion\": \"cd\"},\n {\"messages\": [\n"
      "{\"role\": \"user\", \"content\": \"e\"}, {\"role\": \"assistant\", \"content\": \"fgh\"},"
      "{\"role\": \"user\", \"content\": \"\"}, {\"role\": \"assistant\", \"content\": \"i\"}]},"
      "{\"instruction\": \"j\", \"output\": \"\", \"more\": \"]}\\\"[{\"}\n]\n");
  char rows[2][3][64];
  for (int f = 0; f < 2; f++) {
    ls_dataset *dataset =
        opened(ls_arena_printf(arena, "text: %s, seq_len: 12, validation: 0", f ? list : lines));
    assert_int_equal(dataset->training.sequences, 2);
    row_text(&dataset->training, 0, rows[f][0], rows[f][1], rows[f][2]);
    ls_dataset_close(dataset);
  }
  assert_memory_equal(rows[0][0], rows[1][0], 13);
  assert_memory_equal(rows[0][1], rows[1][1], 13);
}

static void what_is_too_long_is_counted(void **state) {
  (void)state;
  const char *path = file("a.jsonl", three);
  ls_dataset *dataset = opened(ls_arena_printf(arena, "text: %s, seq_len: 7, validation: 0", path));
  const ls_packing *packing = dataset->training.mix[0].packing;
  assert_int_equal(packing->dropped, 1);
  assert_int_equal(packing->examples, 2);
  ls_dataset_close(dataset);
  dataset =
      opened(ls_arena_printf(arena, "text: %s, seq_len: 4, validation: 0, too_long: cut", path));
  packing = dataset->training.mix[0].packing;
  assert_int_equal(packing->dropped, 0);
  assert_int_equal(packing->cut, 1);     /* {e|f */
  assert_int_equal(packing->unasked, 1); /* {ab| */
  assert_int_equal(packing->examples, 2);
  assert_int_equal(packing->trained, 2);
  ls_dataset_close(dataset);
  assert_int_equal(open_run(ls_arena_printf(arena, "text: %s, seq_len: 2", path), &dataset),
                   LS_INPUT);
  assert_non_null(strstr(error.text, "0 chats make 0 sequences of 2 tokens (3 more are too long)"));
}

/* Pieces of an example begin with the last token of the one before, so that all that is trained of
 * it is asked for once; those of which nothing is are left out. */
static void what_is_too_long_is_split(void **state) {
  (void)state;
  char ids[64], labels[64], places[64];
  const char *path = file("a.jsonl", three);
  ls_dataset *dataset =
      opened(ls_arena_printf(arena, "text: %s, seq_len: 4, validation: 0, too_long: split", path));
  const ls_packing *packing = dataset->training.mix[0].packing;
  assert_int_equal(packing->split, 2); /* {ab|cd} is {ab| |cd}, {e|fgh}{|i} {e|f fgh} }{|i i} */
  assert_int_equal(packing->dropped + packing->cut + packing->unasked, 0);
  assert_int_equal(packing->trained, 3 + 4 + 2 + 1);
  assert_int_equal(packing->tokens, 4 + 4 + 4 + 4 + 2 + 4);
  assert_int_equal(packing->distinct, 4 + 11 + 4); /* {ab is in no row, f, } and i are in two */
  static const char *const expected[][2] = {
      {"|cd}", "cd}."}, {"{e|f", "..f."}, {"fgh}", "gh}."}, {"}{|i", "..i."}, {"{j|}", "..}."}};
  int seen = 0;
  for (int64_t r = 0; r < packing->row_count; r++) {
    row_text(&dataset->training, r, ids, labels, places);
    for (size_t e = 0; e < sizeof expected / sizeof *expected; e++)
      if (strcmp(ids, expected[e][0]) == 0) {
        assert_string_equal(labels, expected[e][1]);
        seen |= 1 << e;
      }
  }
  assert_int_equal(seen, 31);
  ls_dataset_close(dataset);
  assert_int_equal(
      open_run(ls_arena_printf(arena, "text: %s, seq_len: 1, too_long: split", path), &dataset),
      LS_INPUT);
  assert_non_null(strstr(error.text, "data.seq_len: found 1 with data.too_long=split"));
}

static void expect_refused(const char *path, const char *says) {
  ls_dataset *dataset;
  const char *data = ls_arena_printf(arena, "text: %s, seq_len: 8, validation: 0", path);
  assert_int_equal(open_run(data, &dataset), LS_INPUT);
  if (!strstr(error.text, says)) fail_msg("%s: expected %s", error.text, says);
}

/* With padding each example is a sequence of its own. */
static void examples_are_padded(void **state) {
  (void)state;
  char ids[64], labels[64], places[64];
  const char *data = ls_arena_printf(arena, "text: %s, seq_len: 12, validation: 0, documents: pad",
                                     file("a.jsonl", three));
  ls_dataset *dataset = opened(data);
  assert_true(dataset->training.masked);
  assert_int_equal(dataset->training.sequences, 3);
  int seen = 0;
  for (int64_t r = 0; r < 3; r++) {
    row_text(&dataset->training, r, ids, labels, places);
    seen += strcmp(ids, "{ab|cd}_____") == 0 && strcmp(labels, "...cd}......") == 0;
    seen += strcmp(ids, "{j|}________") == 0 && strcmp(labels, "..}.........") == 0;
    seen += strcmp(ids, "{e|fgh}{|i}_") == 0;
  }
  assert_int_equal(seen, 3);
  ls_dataset_close(dataset);
  const char *plain = file("t.txt", "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz");
  assert_int_equal(
      open_run(ls_arena_printf(arena, "text: %s, seq_len: 4, documents: pad", plain), &dataset),
      LS_INPUT);
  assert_non_null(strstr(error.text, "found pad with texts, which are cut into whole sequences"));
}

static void wrong_examples_are_named(void **state) {
  (void)state;
  ls_dataset *dataset;
  const char *path = file("b.jsonl",
                          "{\"prompt\": \"a\", \"completion\": \"b\"}\n"
                          "{\"messages\": [{\"role\": \"user\", \"content\": \"c\"}]}\n"
                          "{\"prompt\": \n");
  const char *data = ls_arena_printf(arena, "text: %s, seq_len: 8, validation: 0", path);
  assert_int_equal(open_run(data, &dataset), LS_INPUT);
  assert_non_null(strstr(error.text, "b.jsonl:2: found a chat without an answer"));
  dataset = opened(ls_arena_printf(arena, "%s, on_bad_line: skip", data));
  assert_int_equal(dataset->skipped, 2);
  assert_int_equal(dataset->documents, 1);
  ls_dataset_close(dataset);
  expect_refused(
      file("d.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n{\"prompt\": \"a\" \"b\"}\n"),
      "d.jsonl:2:16: found '\"b\"'; expected ',' or '}'");
  expect_refused(
      file("d.json", "[{\"prompt\": \"a\", \"completion\": \"b\"},\n{\"prompt\":\n \"a\" 1}]"),
      "d.json:3:6: found '1'; expected ',' or '}'");
  expect_refused(
      file("b.json", "[\n{\"prompt\": \"a\", \"completion\": \"b\"},\n\n{\"prompt\": 1}]"),
      "b.json:4: found no chat");
  expect_refused(file("c.json", "[{\"prompt\": \"a\", \"completion\": \"b\"}, {\"prompt\": \"a"),
                 "c.json:1: found the end of the file; expected ']'");
}

/* A .json file is one list of objects, whole. */
static void lists_that_are_wrong_are_named(void **state) {
  (void)state;
  static const char good[] = "{\"prompt\": \"a\", \"completion\": \"b\"}";
  static const struct {
    const char *before, *behind, *says;
  } cases[] = {
      {"", "", "l.json:1: found an object; expected a list of objects in .json"},
      {"{\"data\": [", "]}", "l.json:1: found an object; expected a list of objects in .json"},
      {"[", "\n", "l.json:2: found the end of the file; expected ']'"},
      {"[\n", "]\n]", "l.json:3: found more behind the list; expected the end of it"},
      {"[", ",\n5]", "l.json:2: found no chat"},
      {"[", ", \"x, ]y\" , 1.5]", "l.json:1: found no chat"},
      {"  \n", "x", "l.json:2: found an object"},
      {"x", "", "l.json:1: found something that is no list"},
      {"[", ", nul]", "l.json:1:1: found 'nul'; expected a value"},
  };
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    ls_dataset *dataset;
    const char *text = ls_arena_printf(arena, "%s%s%s", cases[c].before, good, cases[c].behind);
    ls_run_file *run =
        run_of(ls_arena_printf(arena, "text: %s, seq_len: 8, validation: 0", file("l.json", text)));
    if (ls_dataset_open(arena, run, ls_tokenizer_bytes(), in_folder("cache"), NULL, NULL, &dataset,
                        &error) != LS_INPUT ||
        !strstr(error.text, cases[c].says))
      fail_msg("%s: %s", text, error.text);
  }
}

static void texts_stay_texts(void **state) {
  (void)state;
  static const char *const none[][2] = {
      {"t.txt", "{\"prompt\": \"a\", \"completion\": \"b\"}\n"},
      {"t.jsonl", "{\"text\": \"a\", \"prompt\": \"a\", \"completion\": \"b\"}\n"},
      {"u.jsonl", "{\"text\": \"abcdefghijklmnopqrstuvwxyz\"}\n"},
      {"u.json", "[{\"text\": \"abcdefghijklmnopqrstuvwxyz\"}]"}};
  for (int f = 0; f < 4; f++) {
    const char *path = file(none[f][0], none[f][1]);
    const char *data = ls_arena_printf(arena, "text: %s, seq_len: 8, validation: 0", path);
    ls_run_file *run = run_of(data);
    assert_false(ls_chat_texts_are(run));
    ls_chat_texts_resolve(run);
    assert_int_equal(run->data.documents, LS_RUN_STREAM);
    if (f < 2) continue;
    ls_dataset *dataset = opened(data);
    assert_int_equal(dataset->training.sequences, 3);
    ls_dataset_close(dataset);
  }
  ls_run_file *run = run_of(ls_arena_printf(arena, "text: %s", file("a.jsonl", three)));
  assert_true(ls_chat_texts_are(run));
  ls_chat_texts_resolve(run);
  assert_int_equal(run->data.documents, LS_RUN_MASKED);
  assert_false(ls_chat_texts_are(run_of("text: nowhere.jsonl")));
}

static void keep_warning(void *context, const char *text) {
  const char **all = context;
  *all = ls_arena_printf(arena, "%s%s\n", *all, text);
}

/* Who says something of chats is told where there are none. */
static void keys_of_chats_are_of_chats(void **state) {
  (void)state;
  static const char texts[] = "{\"text\": \"abcdefghijklmnopqrstuvwxyz\"}\n";
  static const char *const keys[] = {"data.template", "data.loss_on", "data.too_long"};
  const char *said[2] = {"", ""};
  for (int chats = 0; chats < 2; chats++) {
    const char *path = chats ? file("a.jsonl", three) : file("t.jsonl", texts);
    ls_warnings_to(keep_warning, (void *)&said[chats]);
    ls_dataset_close(opened(ls_arena_printf(
        arena, "text: %s, seq_len: 12, validation: 0, loss_on: last, too_long: cut", path)));
    ls_warnings_to(NULL, NULL);
  }
  for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
    if (!strstr(said[0], ls_arena_printf(arena, "%s: has no effect", keys[k])))
      fail_msg("%s: %s", keys[k], said[0]);
  assert_string_equal(said[1], "");
  ls_warnings_to(keep_warning, (void *)&said[1]);
  ls_dataset_close(
      opened(ls_arena_printf(arena, "text: %s, seq_len: 12, split: tail", in_folder("a.jsonl"))));
  ls_warnings_to(NULL, NULL);
  assert_non_null(strstr(said[1], "data.split: tail has no effect, since chats are kept whole"));
}

/* Of what is asked alone: none has room in a sequence. */
static void what_fits_nowhere_is_told(void **state) {
  (void)state;
  const char *path = file("a.jsonl", three);
  const char *kept = file("v.jsonl", "{\"prompt\": \"abcdefghijk\", \"completion\": \"lmnop\"}\n");
  ls_dataset *dataset;
  ls_run_file *run = run_of(ls_arena_printf(arena, "text: %s, seq_len: 2, validation: 0", path));
  assert_int_equal(ls_dataset_open_evaluation(arena, run, ls_tokenizer_bytes(), in_folder("cache"),
                                              NULL, NULL, &dataset, &error),
                   LS_INPUT);
  if (!strstr(error.text,
              "data.text: found no chats for a sequence of 2 tokens (too long: 3): "
              "give shorter ones, or a larger data.seq_len, or data.too_long=cut"))
    fail_msg("%s", error.text);
  assert_int_equal(
      open_run(ls_arena_printf(arena, "text: %s, seq_len: 12, validation: %s", path, kept),
               &dataset),
      LS_INPUT);
  if (!strstr(error.text,
              "data.validation: found no chats for a sequence of 12 tokens (too long: 1)"))
    fail_msg("%s", error.text);
}

/* However long the first chat is, and whatever its texts hold. */
static void a_first_chat_may_be_long(void **state) {
  (void)state;
  enum { LONG = 3 << 20 };
  char *text = ls_arena_alloc(arena, LONG + 200);
  int begun = snprintf(text, 100, "{\"prompt\": \"");
  memset(text + begun, 'x', LONG);
  snprintf(text + begun + LONG, 100, "\", \"completion\": \"b\"}\n");
  assert_true(ls_chat_texts_are(run_of(ls_arena_printf(arena, "text: %s", file("l.jsonl", text)))));
  static const char nul[] = "{\"prompt\": \"a\\u0000\", \"completion\": \"b\"}\n";
  assert_true(ls_chat_texts_are(run_of(ls_arena_printf(arena, "text: %s", file("n.jsonl", nul)))));
}

/* Of many examples none is lost, none is cut in two, and rows are as full as can be expected. */
static void packing_keeps_all_and_wastes_little(void **state) {
  (void)state;
  enum { EXAMPLES = 500, LENGTH = 50 };
  char *text = ls_arena_alloc(arena, EXAMPLES * 120), *end = text;
  int64_t tokens = 0;
  for (int e = 0; e < EXAMPLES; e++) {
    const int length = 1 + e * e % 37;
    end += snprintf(end, 120, "{\"prompt\": \"%d\", \"completion\": \"%.*s\"}\n", 100 + e, length,
                    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
    tokens += length + 6;
  }
  ls_dataset *dataset = opened(ls_arena_printf(arena, "text: %s, seq_len: %d, validation: 0",
                                               file("many.jsonl", text), LENGTH));
  const ls_packing *packing = dataset->training.mix[0].packing;
  assert_int_equal(packing->tokens, tokens);
  print_message("%lld rows of %lld\n", (long long)packing->row_count, (long long)(tokens / LENGTH));
  assert_true(packing->row_count <= tokens / LENGTH * 6 / 5);
  uint8_t *seen = LS_NEW_ARRAY(arena, uint8_t, dataset->texts[0].count);
  for (int64_t r = 0; r < packing->row_count; r++) {
    int64_t filled = 0;
    for (int64_t p = packing->rows[r]; p < packing->rows[r + 1]; p++) {
      filled += packing->pieces[p].count;
      for (int32_t t = 0; t < packing->pieces[p].count; t++) seen[packing->pieces[p].first + t]++;
    }
    assert_in_range(filled, 1, LENGTH);
  }
  for (int64_t t = 0; t < dataset->texts[0].count; t++) assert_int_equal(seen[t], 1);
  ls_dataset_close(dataset);
  dataset = opened(ls_arena_printf(arena, "text: %s, seq_len: %d, validation: 20%%",
                                   in_folder("many.jsonl"), LENGTH));
  assert_true(dataset->by_document);
  assert_int_equal(
      dataset->training.mix[0].packing->examples + dataset->evaluation.mix[0].packing->examples,
      EXAMPLES);
  assert_in_range(dataset->evaluation.mix[0].packing->examples, EXAMPLES / 10, EXAMPLES / 3);
  ls_dataset_close(dataset);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void) {
  const struct CMUnitTest tests[] = {
      CASE(whole_examples_share_rows),
      CASE(other_files_give_the_same_rows),
      CASE(what_is_too_long_is_counted),
      CASE(what_is_too_long_is_split),
      CASE(examples_are_padded),
      CASE(wrong_examples_are_named),
      CASE(lists_that_are_wrong_are_named),
      CASE(texts_stay_texts),
      CASE(keys_of_chats_are_of_chats),
      CASE(what_fits_nowhere_is_told),
      CASE(a_first_chat_may_be_long),
      CASE(packing_keeps_all_and_wastes_little),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
