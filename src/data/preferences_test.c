/* Pairs of answers as data: forms, two documents side by side in a row, what the reference makes of
 * each, what is dropped and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

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

static ls_status open_run(const char *data, ls_dataset **dataset) {
  ls_run_file *run = NULL;
  const char *yaml = ls_arena_printf(
      arena, "task: dpo\ndata: {template: %s, validation: 0, %s}\ntrain: {batch: 1}\n",
      file("t.jinja", template), data);
  if (ls_run_file_parse(arena, "run.yaml", yaml, strlen(yaml), NULL, 0, &run, &error) != LS_OK)
    fail_msg("%s", error.text);
  run->dpo.longest = 11;
  return ls_dataset_open(arena, run, ls_tokenizer_bytes(), in_folder("cache"), NULL, NULL, dataset,
                         &error);
}

/* Row 0 of the order's first epoch as text: ids, "_" for 0; under it what is trained and places. */
static void row_text(const ls_order *order, int64_t step, char text[3][64], double *reference) {
  int32_t numbers[3][64];
  const ls_batch batch = {numbers[0], numbers[1], numbers[2], reference, NULL, NULL, NULL, NULL};
  assert_int_equal(ls_batch_fill(order, step, 0, 1, &batch, &error), LS_OK);
  memset(text, 0, 3 * sizeof *text);
  for (int64_t t = 0; t < order->seq_len; t++) {
    text[0][t] = (char)(numbers[0][t] ? numbers[0][t] : '_');
    text[1][t] = (char)(numbers[1][t] == LS_NO_LABEL ? '.' : numbers[1][t]);
    text[2][t] = (char)('0' + numbers[2][t] % 10);
  }
}

/* The same pair in every form: texts, explicit lists, and implicit ones under both names. */
static void forms_give_the_same_rows(void **state) {
  (void)state;
  static const char *const forms[] = {
      "{\"prompt\": \"ab\", \"chosen\": \"c\", \"rejected\": \"de\"}",
      "{\"prompt\": [{\"role\": \"user\", \"content\": \"ab\"}], \"chosen\": [{\"role\": "
      "\"assistant\", \"content\": \"c\"}], \"rejected\": [{\"role\": \"assistant\", \"content\": "
      "\"de\"}]}",
      "{\"chosen\": [{\"role\": \"user\", \"content\": \"ab\"}, {\"role\": \"assistant\", "
      "\"content\": \"c\"}], \"rejected\": [{\"role\": \"user\", \"content\": \"ab\"}, {\"role\": "
      "\"assistant\", \"content\": \"de\"}]}",
      "{\"chosen_messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"value\": "
      "\"ab\"}]}, {\"role\": \"assistant\", \"content\": \"c\"}], \"rejected_messages\": "
      "[{\"role\": "
      "\"user\", \"content\": [{\"type\": \"text\", \"value\": \"ab\"}]}, {\"role\": "
      "\"assistant\", "
      "\"content\": \"de\"}]}",
      "{\"prompt\": \"ab\", \"chosen\": [{\"role\": \"user\", \"content\": \"ab\"}, {\"role\": "
      "\"assistant\", \"content\": \"c\"}], \"rejected\": [{\"role\": \"user\", \"content\": "
      "\"ab\"}, {\"role\": \"assistant\", \"content\": \"de\"}]}"};
  for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
    const char *path = file(ls_arena_printf(arena, "%zu.jsonl", f), forms[f]);
    ls_dataset *dataset;
    if (open_run(ls_arena_printf(arena, "text: %s, seq_len: 16", path), &dataset) != LS_OK)
      fail_msg("form %zu: %s", f, error.text);
    assert_true(dataset->chats && dataset->pairs && dataset->training.masked);
    assert_int_equal(dataset->documents, 2);
    const double found[2] = {-1.5, -2.5};
    double reference[64];
    char text[3][64];
    dataset->training.mix[0].reference = found;
    row_text(&dataset->training, 0, text, reference);
    assert_string_equal(text[0], "{ab|c}{ab|de}___");
    assert_string_equal(text[1], "...c}....de}....");
    assert_string_equal(text[2], "0123450123456012");
    for (int t = 0; t < 16; t++) assert_true(reference[t] == (t == 3 ? -1.5 : t == 9 ? -2.5 : 0));
    ls_dataset_close(dataset);
  }
}

/* Two pairs share a row where there is room; one is too long together, one has too long an answer.
 */
static void pairs_stay_together(void **state) {
  (void)state;
  const char *path = file("many.jsonl",
                          "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}\n"
                          "{\"prompt\": \"d\", \"chosen\": \"e\", \"rejected\": \"f\"}\n"
                          "{\"prompt\": \"g\", \"chosen\": \"hijklmno\", \"rejected\": \"n\"}\n"
                          "{\"prompt\": \"pqrstuv\", \"chosen\": \"w\", \"rejected\": \"x\"}\n"
                          "{\"prompt\": \"v\", \"chosen\": \"wxyz\", \"rejected\": \"01234\"}\n");
  ls_dataset *dataset;
  if (open_run(ls_arena_printf(arena, "text: %s, seq_len: 21", path), &dataset) != LS_OK)
    fail_msg("%s", error.text);
  const ls_packing *packing = dataset->training.mix[0].packing;
  assert_int_equal(packing->examples, 3);
  assert_int_equal(packing->dropped, 2);
  assert_int_equal(packing->row_count, 2);
  int seen = 0;
  for (int r = 0; r < 2; r++) {
    char text[3][64];
    row_text(&dataset->training, r, text, NULL);
    seen += strcmp(text[0], "{a|b}{a|c}{d|e}{d|f}_") == 0;
    seen += 2 * (strcmp(text[0], "{v|wxyz}{v|01234}____") == 0);
  }
  assert_int_equal(seen, 3);
  ls_dataset_close(dataset);
}

static void bad_pairs_are_named(void **state) {
  (void)state;
  static const struct {
    const char *line, *said;
  } bad[] = {
      {"{\"prompt\": \"a\", \"chosen\": \"b\"}", "bad.jsonl:2: found no \"rejected\"; expected"},
      {"{\"prompt\": \"a\", \"rejected\": \"b\"}", "bad.jsonl:2: found no \"chosen\"; expected"},
      {"{\"prompt\": \"a\", \"completion\": \"b\"}", "bad.jsonl:2: found no \"chosen\"; expected"},
      {"{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"b\"}",
       "bad.jsonl:2: found equal \"chosen\" and \"rejected\"; expected two different answers"},
      {"{\"prompt\": \"a\", \"chosen\": \" \", \"rejected\": \"b\"}",
       "bad.jsonl:2: \"chosen\": found an empty answer; expected a text"},
      {"{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": 7}",
       "bad.jsonl:2: \"rejected\": expected a text, or a list of messages"},
      {"{\"chosen\": \"b\", \"rejected\": \"c\"}",
       "bad.jsonl:2: found \"chosen\" and \"rejected\" without a \"prompt\"; expected it"},
      {"{\"chosen\": [{\"role\": \"assistant\", \"content\": \"b\"}], \"rejected\": [{\"role\": "
       "\"assistant\", \"content\": \"c\"}]}",
       "bad.jsonl:2: found \"chosen\" and \"rejected\" that begin with no message alike; expected"},
      {"{\"prompt\": [{\"role\": \"user\", \"content\": \"a\"}], \"chosen\": [{\"role\": \"user\", "
       "\"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}], \"rejected\": "
       "[{\"role\": \"assistant\", \"content\": \"c\"}]}",
       "bad.jsonl:2: \"chosen\": begins with the prompt again; expected the answer alone"},
      {"{\"prompt\": 7, \"chosen\": \"b\", \"rejected\": \"c\"}",
       "bad.jsonl:2: \"prompt\": expected a text, or a list of messages"},
      {"{\"prompt\": \"a\", \"chosen\": [{\"role\": \"user\", \"content\": \"b\"}], \"rejected\": "
       "\"c\"}",
       "bad.jsonl:2: chosen: found a chat without an answer"},
      {"{\"prompt\": \"a\", \"chosen\": [{\"role\": \"assistant\", \"content\": \"b\"}], "
       "\"rejected\": [{\"role\": \"assistant\", \"content\": \"b\", \"more\": 1}]}",
       "bad.jsonl:2: found chosen and rejected with the same tokens; expected two"},
  };
  static const char good[] = "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}\n";
  for (size_t b = 0; b < sizeof bad / sizeof *bad; b++) {
    const char *path =
        file("bad.jsonl", ls_arena_printf(arena, "%s%s\n%s", good, bad[b].line, good));
    ls_dataset *dataset;
    const char *data = ls_arena_printf(arena, "text: %s, seq_len: 16", path);
    assert_int_equal(open_run(data, &dataset), LS_INPUT);
    if (!strstr(error.text, bad[b].said)) fail_msg("%s", error.text);
    if (open_run(ls_arena_printf(arena, "on_bad_line: skip, %s", data), &dataset) != LS_OK)
      fail_msg("%s", error.text);
    assert_int_equal(dataset->skipped, 1);
    assert_int_equal(dataset->documents, 4);
    ls_dataset_close(dataset);
  }
}

/* By a hash of both, so that no half of a pair is trained on and the other asked about. */
static void validation_takes_whole_pairs(void **state) {
  (void)state;
  const char *lines = "";
  for (int i = 0; i < 40; i++)
    lines = ls_arena_printf(
        arena, "%s{\"prompt\": \"%d\", \"chosen\": \"b\", \"rejected\": \"c\"}\n", lines, i);
  ls_run_file *run = NULL;
  const char *yaml = ls_arena_printf(
      arena, "task: dpo\ndata: {template: %s, validation: 0.3, seq_len: 12, text: %s}\n",
      file("t.jinja", template), file("many.jsonl", lines));
  assert_int_equal(ls_run_file_parse(arena, "run.yaml", yaml, strlen(yaml), NULL, 0, &run, &error),
                   LS_OK);
  run->dpo.longest = 12;
  run->train.batch = 1;
  ls_dataset *dataset;
  if (ls_dataset_open(arena, run, ls_tokenizer_bytes(), in_folder("cache"), NULL, NULL, &dataset,
                      &error) != LS_OK)
    fail_msg("%s", error.text);
  const ls_packing *trained = dataset->training.mix[0].packing;
  const ls_packing *kept = dataset->evaluation.mix[0].packing;
  assert_true(kept->examples > 3 && trained->examples > 20);
  assert_int_equal(kept->examples + trained->examples, 40);
  ls_dataset_close(dataset);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
  const struct CMUnitTest tests[] = {CASE(forms_give_the_same_rows), CASE(pairs_stay_together),
                                     CASE(bad_pairs_are_named), CASE(validation_takes_whole_pairs)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
