/* The loss of each document of a text: on every layout that of one device, and of each document in
 * a text of its own; every token but the first is asked for once. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/test_folder.h"
#include "train/evaluate_documents.h"

#define MODEL "tests/data/traces/llama-gqa-tied"

static const char *const lines[] = {"one", "a document of more tokens than a sequence has", "x",
                                    "two of them"};
enum { DOCUMENTS = sizeof lines / sizeof *lines };

static const char *text_of(int first, int count) {
  const char *text = "";
  for (int d = first; d < first + count; d++)
    text = ls_arena_printf(arena, "%s{\"text\": \"%s\"}\n", text, lines[d]);
  const char *path = in_folder(ls_arena_printf(arena, "%d-%d.jsonl", first, count));
  ls_error error;
  assert_int_equal(ls_file_write(path, text, strlen(text), &error), LS_OK);
  return path;
}

static ls_document_losses losses_of(const char *text, int devices, const char *layout) {
  const char *words[] = {"model=" MODEL,
                         ls_arena_printf(arena, "data.text=%s", text),
                         "data.seq_len=8",
                         "train.batch=4",
                         "dtype=fp64",
                         "device.threads=1",
                         layout};
  ls_error error = {0};
  ls_run_file *run;
  ls_session *session;
  ls_dataset *dataset;
  ls_world *world;
  ls_document_losses found;
  if (ls_run_file_read(arena, NULL, words, 7, &run, &error) != LS_OK) fail_msg("%s", error.text);
  run->init = LS_RUN_INIT_WEIGHTS;
  run->eval.by_document = true;
  run->data.documents = LS_RUN_MASKED;
  const ls_evaluating told = {0};
  if (ls_session_create_evaluation(arena, run, devices, devices, &session, &error) != LS_OK ||
      ls_dataset_open_evaluation(arena, run, ls_tokenizer_bytes(), in_folder("cache"), NULL, NULL,
                                 &dataset, &error) != LS_OK ||
      ls_world_create_threads(devices, &world, &error) != LS_OK)
    fail_msg("%s", error.text);
  if (ls_evaluate_documents(arena, session, dataset, world, &told, &found, &error) != LS_OK)
    fail_msg("%s", error.text);
  ls_world_destroy(&world);
  ls_dataset_close(dataset);
  return found;
}

static void assert_near(double a, double b) {
  if (!(fabs(a - b) <= 1e-10 * (1 + fabs(a)))) fail_msg("%.17g and %.17g", a, b);
}

static void each_document_is_as_it_is_alone(void **state) {
  (void)state;
  const ls_document_losses one = losses_of(text_of(0, DOCUMENTS), 1, "mesh.dp_shard=1");
  double sum = 0;
  assert_int_equal(one.count, DOCUMENTS);
  for (int d = 0; d < DOCUMENTS; d++) {
    assert_int_equal(one.items[d].tokens, strlen(lines[d]) - 1);
    sum += one.items[d].sum;
    if (one.items[d].tokens == 0) continue;
    const ls_document_losses alone = losses_of(text_of(d, 1), 1, "mesh.dp_shard=1");
    assert_int_equal(alone.count, 1);
    assert_near(alone.items[0].sum, one.items[d].sum);
    assert_true(one.items[d].sum > 0);
  }
  assert_near(one.sum, sum);
}

static void every_layout_gives_the_same(void **state) {
  (void)state;
  static const struct {
    int devices;
    const char *layout;
  } cases[] = {{2, "mesh.dp_shard=2"}, {2, "mesh.tp=2"}, {2, "mesh.pp=2"}};
  const char *text = text_of(0, DOCUMENTS);
  const ls_document_losses one = losses_of(text, 1, "mesh.dp_shard=1");
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    const ls_document_losses many = losses_of(text, cases[c].devices, cases[c].layout);
    assert_int_equal(many.tokens, one.tokens);
    for (int d = 0; d < DOCUMENTS; d++) assert_near(many.items[d].sum, one.items[d].sum);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(each_document_is_as_it_is_alone, set_up, tear_down),
      cmocka_unit_test_setup_teardown(every_layout_gives_the_same, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
