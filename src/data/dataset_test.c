#include "data/dataset.h"
#include "support/test_folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static ls_error error;

/* A text in which each pair of bytes tells its place. */
static const char *text_of(const char *name, int64_t bytes) {
  char *text = ls_arena_alloc(arena, (size_t)bytes + 2);
  for (int64_t i = 0; i < bytes; i += 2) {
    text[i] = (char)(1 + i / 2 / 250);
    text[i + 1] = (char)(1 + i / 2 % 250);
  }
  const char *path = ls_arena_printf(arena, "%s/%s", folder, name);
  assert_int_equal(ls_file_write(path, text, (size_t)bytes, &error), LS_OK);
  return path;
}

static ls_status open_text(const char *yaml, ls_dataset **dataset) {
  ls_run_file *run = NULL;
  const ls_status status =
      ls_run_file_parse(arena, "run.yaml", yaml, strlen(yaml), NULL, 0, &run, &error);
  if (status != LS_OK) fail_msg("%s", error.text);
  return ls_dataset_open(arena, run, ls_tokenizer_bytes(),
                         ls_arena_printf(arena, "%s/cache", folder), NULL, NULL, dataset, &error);
}

/* Marks the tokens that an order's sequences use, inputs and labels. */
static void mark(const ls_order *order, uint8_t *used) {
  const ls_text_part *part = &order->mix[0].part;
  for (int64_t i = 0; i < order->sequences; i++) {
    const int64_t first = ls_order_sample(order, i).sequence * order->seq_len;
    for (int64_t t = 0; t <= order->seq_len; t++) used[part->runs[0].first + first + t] = 1;
  }
}

static void the_parts_share_no_token(void **state) {
  (void)state;
  for (int64_t bytes = 200; bytes < 216; bytes++) {
    const char *path = text_of("a.txt", bytes);
    for (int percent = 0; percent < 60; percent += 7) {
      ls_dataset *dataset = NULL;
      const char *yaml = ls_arena_printf(
          arena, "data: {text: %s, seq_len: 5, validation: %d%%}\ntrain: {batch: 4}\n", path,
          percent);
      assert_int_equal(open_text(yaml, &dataset), LS_OK);
      uint8_t *trained = LS_NEW_ARRAY(arena, uint8_t, bytes);
      uint8_t *kept = LS_NEW_ARRAY(arena, uint8_t, bytes);
      mark(&dataset->training, trained);
      if (percent) mark(&dataset->evaluation, kept);
      int64_t trained_count = 0, kept_count = 0;
      for (int64_t i = 0; i < bytes; i++) {
        assert_false(trained[i] && kept[i]);
        trained_count += trained[i];
        kept_count += kept[i];
      }
      assert_int_equal(dataset->training_tokens + dataset->evaluation_tokens, bytes);
      /* Less than a sequence is left over in each part. */
      assert_in_range(dataset->training_tokens - trained_count, 0, 4);
      assert_in_range(dataset->evaluation_tokens - kept_count, 0, 4);
      assert_int_equal(percent == 0, dataset->evaluation.sequences == 0);
      ls_dataset_close(dataset);
    }
  }
}

/* Of an evaluation alone every whole sequence, whatever the text keeps for validation elsewhere. */
static void an_evaluation_has_all_of_a_text(void **state) {
  (void)state;
  for (int64_t bytes = 5; bytes < 40; bytes++) {
    const char *path = text_of("e.txt", bytes);
    const char *yaml = ls_arena_printf(
        arena, "data: {text: %s, seq_len: 5, validation: 20%%}\ntrain: {batch: 64}\n", path);
    ls_run_file *run = NULL;
    assert_int_equal(
        ls_run_file_parse(arena, "run.yaml", yaml, strlen(yaml), NULL, 0, &run, &error), LS_OK);
    ls_dataset *dataset = NULL;
    const ls_status status = ls_dataset_open_evaluation(arena, run, ls_tokenizer_bytes(),
                                                        ls_arena_printf(arena, "%s/cache", folder),
                                                        NULL, NULL, &dataset, &error);
    assert_int_equal(status, bytes < 6 ? LS_INPUT : LS_OK);
    if (status != LS_OK) continue;
    assert_int_equal(dataset->evaluation_tokens, bytes);
    assert_int_equal(dataset->evaluation.sequences, (bytes - 1) / 5);
    assert_int_equal(dataset->training.sequences, 0);
    ls_dataset_close(dataset);
  }
}

static void a_small_fraction_keeps_one_sequence(void **state) {
  (void)state;
  ls_dataset *dataset = NULL;
  const char *yaml = ls_arena_printf(arena, "data: {text: %s, seq_len: 50}\ntrain: {batch: 2}\n",
                                     text_of("a.txt", 1000));
  assert_int_equal(open_text(yaml, &dataset), LS_OK);
  assert_int_equal(dataset->evaluation_tokens, 51);
  assert_int_equal(dataset->evaluation.sequences, 1);
  assert_int_equal(dataset->training.sequences, 948 / 50);
  ls_dataset_close(dataset);
}

static void validation_may_have_files_of_its_own(void **state) {
  (void)state;
  const char *text = text_of("a.txt", 1000), *kept = text_of("v.txt", 120);
  ls_dataset *dataset = NULL;
  assert_int_equal(open_text(ls_arena_printf(arena,
                                             "data: {text: %s, validation: [%s], seq_len: 50}\n"
                                             "train: {batch: 2}\n",
                                             text, kept),
                             &dataset),
                   LS_OK);
  assert_int_equal(dataset->training_tokens, 1000);
  assert_int_equal(dataset->evaluation.sequences, 2);
  int32_t ids[50], labels[50];
  const ls_batch batch = {ids, labels, NULL, NULL, NULL, NULL, NULL, NULL};
  assert_int_equal(ls_batch_fill(&dataset->evaluation, 0, 1, 1, &batch, &error), LS_OK);
  assert_int_equal(ids[1], 26);
  ls_dataset_close(dataset);

  assert_int_equal(
      open_text(ls_arena_printf(arena,
                                "data: {text: %s/*.txt, validation: [%s], seq_len: 50}\n"
                                "train: {batch: 2}\n",
                                folder, kept),
                &dataset),
      LS_INPUT);
  assert_non_null(strstr(error.text, "which is in data.text too"));
  assert_int_equal(open_text(ls_arena_printf(arena,
                                             "data: {text: %s, validation: [%s], seq_len: 200}\n"
                                             "train: {batch: 2}\n",
                                             text, kept),
                             &dataset),
                   LS_INPUT);
  assert_non_null(strstr(error.text,
                         "data.validation: found 120 tokens; a sequence of 200 tokens "
                         "needs 201"));
}

static LS_LIST(char *) warnings;

static void remember(void *context, const char *text) {
  (void)context;
  if (strstr(text, "data.cache_limit")) *LS_APPEND(arena, &warnings) = ls_arena_strdup(arena, text);
}

static int token_files(void) {
  char **paths;
  int count = 0;
  const char *pattern = ls_arena_printf(arena, "%s/cache/tokens-*.bin", folder);
  return ls_file_glob(arena, pattern, &paths, &count, &error) == LS_OK ? count : 0;
}

static void a_run_keeps_all_of_its_own_token_files(void **state) {
  (void)state;
  const char *yaml = ls_arena_printf(
      arena,
      "data: {text: [{path: %s, weight: 2}, {path: %s, weight: 1}], validation: [%s], seq_len: 50, "
      "cache_limit: %%s}\ntrain: {batch: 2}\n",
      text_of("a.txt", 1000), text_of("b.txt", 900), text_of("v.txt", 600));
  ls_dataset *dataset = NULL;
  assert_int_equal(open_text(ls_arena_printf(arena,
                                             "data: {text: %s, seq_len: 50, cache_limit: 1KiB}\n"
                                             "train: {batch: 2}\n",
                                             text_of("other.txt", 500)),
                             &dataset),
                   LS_OK);
  ls_dataset_close(dataset);
  assert_int_equal(token_files(), 1);
  const char *own = "data.cache_limit=1MiB holds them";
  warnings.items = NULL, warnings.count = warnings.capacity = 0;
  ls_warnings_to(remember, NULL);
  for (int turn = 0; turn < 2; turn++) { /* the other one's goes; then all are there */
    assert_int_equal(open_text(ls_arena_printf(arena, yaml, "1KiB"), &dataset), LS_OK);
    assert_int_equal(dataset->texts[0].from_cache, turn);
    assert_int_equal(dataset->texts[1].from_cache, turn);
    assert_int_equal(dataset->validation.from_cache, turn);
    ls_dataset_close(dataset);
    assert_int_equal(token_files(), 3);
    assert_int_equal(warnings.count, 2);
    assert_non_null(strstr(warnings.items[0], own));
    assert_non_null(strstr(warnings.items[1], "is removed, as used longest ago"));
  }
  text_of("v.txt", 700);
  assert_int_equal(open_text(ls_arena_printf(arena, yaml, "1MiB"), &dataset), LS_OK);
  ls_warnings_to(NULL, NULL);
  ls_dataset_close(dataset);
  assert_int_equal(warnings.count, 2); /* what was said to hold them does */
}

static void a_text_shorter_than_a_batch_is_refused_with_the_counts(void **state) {
  (void)state;
  ls_dataset *dataset = NULL;
  const char *const format = "data: {text: %s, seq_len: 50, validation: 0}\ntrain: {batch: 4}\n";
  assert_int_equal(open_text(ls_arena_printf(arena, format, text_of("a.txt", 201)), &dataset),
                   LS_OK);
  assert_int_equal(dataset->training.sequences, 4);
  ls_dataset_close(dataset);
  assert_int_equal(open_text(ls_arena_printf(arena, format, text_of("a.txt", 200)), &dataset),
                   LS_INPUT);
  assert_string_equal(error.text,
                      "run.yaml:1: data.text: found 200 tokens, 0 of them kept for validation; a "
                      "batch of 4 sequences of 50 tokens needs 201: give more text, or a smaller "
                      "train.batch or data.seq_len");
  const char *yaml = ls_arena_printf(arena, "data: {text: %s}\n", text_of("tiny.txt", 10));
  assert_int_equal(open_text(yaml, &dataset), LS_INPUT);
  assert_non_null(strstr(error.text, "found 10 tokens, 10 of them kept"));
  assert_int_equal(open_text("model: x\n", &dataset), LS_INPUT);
  assert_non_null(strstr(error.text, "data.text: found nothing"));
}

int main(void) {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      CASE(the_parts_share_no_token),
      CASE(an_evaluation_has_all_of_a_text),
      CASE(a_small_fraction_keeps_one_sequence),
      CASE(validation_may_have_files_of_its_own),
      CASE(a_run_keeps_all_of_its_own_token_files),
      CASE(a_text_shorter_than_a_batch_is_refused_with_the_counts),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
