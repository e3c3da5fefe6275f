/* Splits, mixes and documents: what a run sees of its texts, whatever its layout and however often
 * it is interrupted. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/random.h"
#include "data/dataset.h"
#include "support/test_folder.h"
#include "support/test_seed.h"

static ls_error error;
static uint64_t seed;

static uint64_t draw(uint64_t stream, uint64_t index, uint64_t below) {
  return ls_random_bits(seed, stream, index) % below;
}

/* A file of JSON lines: document d is `letter`, its number, and as many dots as chance wants. */
static void documents_file(const char *name, char letter, int count, int longest) {
  char *text = ls_arena_alloc(arena, (size_t)count * (size_t)(longest + 64));
  size_t used = 0;
  for (int d = 0; d < count; d++) {
    used += (size_t)snprintf(text + used, 32, "{\"text\": \"%c%d", letter, d);
    const size_t dots = draw((uint64_t)letter, (uint64_t)d, (uint64_t)longest);
    memset(text + used, '.', dots);
    used += dots;
    used += (size_t)snprintf(text + used, 8, "\"}\n");
  }
  const char *path = ls_arena_printf(arena, "%s/%s", folder, name);
  assert_int_equal(ls_file_write(path, text, used, &error), LS_OK);
}

static int64_t encode_bytes(const ls_tokenizer *tokenizer, const void *text, int64_t bytes,
                            int32_t *ids) {
  (void)tokenizer;
  for (int64_t i = 0; i < bytes; i++) ids[i] = ((const uint8_t *)text)[i];
  return bytes;
}

static const ls_tokenizer ending = {
    .name = "ending", .vocabulary = 257, .end_of_text = 256, .encode = encode_bytes};

/* `data` is what stands in data: { }, with @ for the folder. */
static ls_status open_data(const char *data, int64_t batch, ls_dataset **dataset) {
  char *yaml = ls_arena_printf(arena, "train: {batch: %lld}\ndata: {", (long long)batch);
  for (const char *at = data; *at; at++)
    yaml = *at == '@' ? ls_arena_printf(arena, "%s%s", yaml, folder)
                      : ls_arena_printf(arena, "%s%c", yaml, *at);
  yaml = ls_arena_printf(arena, "%s}\n", yaml);
  ls_run_file *run = NULL;
  if (ls_run_file_parse(arena, "run.yaml", yaml, strlen(yaml), NULL, 0, &run, &error) != LS_OK)
    fail_msg("%s: %s", yaml, error.text);
  return ls_dataset_open(arena, run, &ending, ls_arena_printf(arena, "%s/cache", folder), NULL,
                         NULL, dataset, &error);
}

static ls_dataset *opened(const char *data, int64_t batch) {
  ls_dataset *dataset = NULL;
  if (open_data(data, batch, &dataset) != LS_OK) fail_msg("%s", error.text);
  return dataset;
}

/* A part's text, 256 as |. */
static const char *part_text(const ls_text_part *part) {
  int32_t *ids = LS_NEW_ARRAY(arena, int32_t, part->tokens);
  char *text = ls_arena_alloc(arena, (size_t)part->tokens + 1);
  assert_int_equal(ls_text_part_copy(part, 0, part->tokens, ids, &error), LS_OK);
  for (int64_t i = 0; i < part->tokens; i++) text[i] = ids[i] == 256 ? '|' : (char)ids[i];
  /* Pieces of it are the same. */
  for (uint64_t trial = 0; trial < 50 && part->tokens > 0; trial++) {
    const int64_t first = (int64_t)draw(100, trial, (uint64_t)part->tokens);
    const int64_t count = (int64_t)draw(101, trial, (uint64_t)(part->tokens - first) + 1);
    int32_t *piece = LS_NEW_ARRAY(arena, int32_t, count + 1);
    assert_int_equal(ls_text_part_copy(part, first, count, piece, &error), LS_OK);
    assert_memory_equal(piece, ids + first, (size_t)count * sizeof *ids);
  }
  return text;
}

/* The documents of a text, as a set by number. */
static int note_documents(const char *text, char letter, uint8_t *seen, int count) {
  int found = 0;
  for (const char *at = text; *at; at = strchr(at, '|') + 1, found++) {
    assert_int_equal(*at, letter);
    const int d = atoi(at + 1);
    assert_in_range(d, 0, count - 1);
    assert_false(seen[d]); /* each once, whole, in one of the parts */
    seen[d] = 1;
  }
  return found;
}

static void documents_are_drawn_by_their_hash(void **state) {
  (void)state;
  enum { DOCUMENTS = 2000 };
  documents_file("a.jsonl", 'a', DOCUMENTS, 60);
  const char *before = NULL;
  for (int percent = 1; percent <= 60; percent += 8) {
    const ls_dataset *dataset =
        opened(ls_arena_printf(arena, "text: @/a.jsonl, seq_len: 5, validation: %d%%", percent), 4);
    assert_true(dataset->by_document);
    const ls_text_part *others = &dataset->training.mix[0].part;
    const ls_text_part *kept = &dataset->evaluation.mix[0].part;
    assert_int_equal(others->tokens + kept->tokens, dataset->texts[0].count);
    uint8_t seen[DOCUMENTS] = {0};
    const char *kept_text = part_text(kept);
    const int kept_count = note_documents(kept_text, 'a', seen, DOCUMENTS);
    assert_int_equal(kept_count, kept->documents);
    assert_int_equal(kept_count + note_documents(part_text(others), 'a', seen, DOCUMENTS),
                     DOCUMENTS);
    /* Four deviations of a binomial draw. */
    const double share = percent / 100.0, mean = DOCUMENTS * share;
    assert_true(fabs(kept_count - mean) < 4 * sqrt(mean * (1 - share)) + 1);
    /* What is kept at a small fraction is kept at a larger one. */
    if (before) {
      for (const char *at = before; *at; at = strchr(at, '|') + 1) {
        const char *one = ls_arena_printf(arena, "%.*s", (int)(strchr(at, '|') - at) + 1, at);
        assert_non_null(strstr(kept_text, one));
      }
    }
    before = kept_text;
    ls_dataset_close((ls_dataset *)(uintptr_t)dataset);
  }
}

static void few_documents_leave_the_tail(void **state) {
  (void)state;
  documents_file("a.jsonl", 'a', 3, 300);
  ls_dataset *dataset = opened("text: @/a.jsonl, seq_len: 5, validation: 0.0001", 4);
  assert_false(dataset->by_document);
  assert_int_equal(dataset->evaluation_tokens, 6);
  ls_dataset_close(dataset);
  /* Half of the text in one document is not the hundredth that was asked for. */
  for (int d = 0; d < 400; d++) {
    char *text = ls_arena_alloc(arena, 4000);
    size_t used = (size_t)snprintf(text, 64, "{\"text\": \"long %d", d);
    memset(text + used, '.', 3000);
    used += 3000;
    used += (size_t)snprintf(text + used, 64, "\"}\n{\"text\": \"short\"}\n");
    const char *path = ls_arena_printf(arena, "%s/long.jsonl", folder);
    assert_int_equal(ls_file_write(path, text, used, &error), LS_OK);
    dataset = opened("text: @/long.jsonl, seq_len: 5, validation: 1%", 4);
    assert_false(dataset->by_document);
    ls_dataset_close(dataset);
  }
  assert_int_equal(
      open_data("text: @/a.jsonl, seq_len: 5, validation: 0.0001, split: document", 4, &dataset),
      LS_INPUT);
  assert_non_null(strstr(error.text, "data.split: document: 0 of 3 documents are kept"));
  documents_file("b.jsonl", 'b', 500, 30);
  dataset = opened("text: @/b.jsonl, seq_len: 5, split: tail", 4);
  assert_false(dataset->by_document);
  ls_dataset_close(dataset);
}

/* Over many samples each text has its share, in every period exactly; each text goes through its
 * own epochs, each sequence once. */
static void texts_are_mixed_by_weight(void **state) {
  (void)state;
  for (int t = 0; t < 3; t++)
    documents_file(ls_arena_printf(arena, "%c.jsonl", 'a' + t), (char)('a' + t), 40 + 60 * t, 50);
  static const struct {
    double weights[3];
    int64_t period;
  } cases[] = {{{1, 1, 1}, 3},
               {{0.7, 0.2, 0.1}, 10},
               {{3, 1, 4}, 8},
               {{0.314, 0.2718, 0.141}, 3634},
               {{1, 0.333, 0.001}, 1334},
               {{1, 3.14159265, 2.7182818}, LS_MIX_PERIOD}};
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    const double *w = cases[c].weights;
    ls_dataset *dataset = opened(
        ls_arena_printf(arena,
                        "text: [{path: @/a.jsonl, weight: %.9g}, {path: @/b.jsonl, weight: %.9g}, "
                        "{path: @/c.jsonl, weight: %.9g}], seq_len: 6, seed: %d",
                        w[0], w[1], w[2], (int)(seed % 1000)),
        4);
    const ls_order *order = &dataset->training;
    assert_int_equal(order->mix_count, 3);
    assert_int_equal(order->period, cases[c].period);
    const double total = w[0] + w[1] + w[2];
    int64_t counts[3] = {0};
    int *visits[3];
    for (int t = 0; t < 3; t++) visits[t] = LS_NEW_ARRAY(arena, int, order->mix[t].sequences);
    for (int64_t s = 0; s < 3 * order->period; s++) {
      const ls_sample at = ls_order_sample(order, s);
      visits[at.part][at.sequence]++;
      counts[at.part]++;
      if ((s + 1) % order->period) continue;
      for (int t = 0; t < 3; t++) {
        const double expected = w[t] / total * (double)(s + 1);
        assert_true(fabs((double)counts[t] - expected) <= (double)(s + 1) / (double)order->period);
      }
    }
    for (int t = 0; t < 3; t++) /* sequences of one epoch more than others at most */
      for (int64_t i = 0; i < order->mix[t].sequences; i++) {
        const int64_t epochs = counts[t] / order->mix[t].sequences;
        assert_in_range(visits[t][i], epochs, epochs + 1);
      }
    ls_dataset_close(dataset);
  }
  ls_dataset *dataset;
  assert_int_equal(open_data("text: [{path: @/a.jsonl, weight: 1}, {path: @/b.jsonl, weight: 1e-6}]"
                             ", seq_len: 6",
                             4, &dataset),
                   LS_INPUT);
  assert_non_null(strstr(error.text, "text 2: a weight of 1e-06 is less than one sample in 10000"));
  assert_int_equal(
      open_data("text: [{path: @/a.jsonl, weight: 1}, @/a.jsonl], seq_len: 6", 4, &dataset),
      LS_INPUT);
  assert_non_null(strstr(error.text, "a second time"));
}

/* A row of a batch under its sample's number; counts how often each sample was seen. */
static void note_batch(const ls_order *order, int64_t step, int64_t ranks, int64_t microbatches,
                       const int32_t *whole, uint8_t *seen) {
  const int64_t rows = order->batch / ranks / microbatches, length = order->seq_len;
  int32_t *ids = LS_NEW_ARRAY(arena, int32_t, 3 * rows * length);
  for (int64_t r = 0; r < ranks; r++)
    for (int64_t m = 0; m < microbatches; m++) {
      /* As sessions cut: microbatches first, then ranks. */
      const int64_t first = (m * ranks + r) * rows;
      const ls_batch batch = {
          ids, ids + rows * length, ids + 2 * rows * length, NULL, NULL, NULL, NULL, NULL};
      assert_int_equal(ls_batch_fill(order, step, first, rows, &batch, &error), LS_OK);
      for (int64_t i = 0; i < rows; i++) {
        const int64_t sample = step * order->batch + first + i;
        assert_memory_equal(ids + i * length, whole + sample * length,
                            (size_t)length * sizeof *ids);
        seen[sample]++;
      }
    }
}

/* Runs of random layouts, interrupted at random steps, in the middle of epochs: together they see
 * the samples of the endless row, each once. Every start opens the texts anew. */
static void interrupted_runs_see_every_batch_once(void **state) {
  (void)state;
  enum { BATCH = 24 };
  documents_file("a.jsonl", 'a', 60, 40);
  documents_file("b.jsonl", 'b', 30, 90);
  static const char *const texts[] = {
      "text: @/a.jsonl, seq_len: 7", "text: @/*.jsonl, seq_len: 9, documents: masked",
      "text: [{path: @/a.jsonl, weight: 1}, {path: @/b.jsonl, weight: 2}], seq_len: 5"};
  static const int64_t cuts[] = {1, 2, 3, 4, 6, 8, 12, 24};
  uint64_t drawn = 0;
  for (int t = 0; t < 3; t++) {
    ls_dataset *dataset = opened(texts[t], BATCH);
    const ls_order *order = &dataset->training;
    /* Into a second epoch, however much text chance has made. */
    const int64_t all = 3 * order->sequences / 2 / BATCH + 2;
    const int64_t samples = all * BATCH, length = order->seq_len;
    int32_t *whole = LS_NEW_ARRAY(arena, int32_t, samples * length);
    int32_t *rest = LS_NEW_ARRAY(arena, int32_t, 2 * BATCH * length);
    for (int64_t s = 0; s < all; s++) {
      const ls_batch batch = {
          whole + s * BATCH * length, rest, rest + BATCH * length, NULL, NULL, NULL, NULL, NULL};
      assert_int_equal(ls_batch_fill(order, s, 0, BATCH, &batch, &error), LS_OK);
    }
    ls_dataset_close(dataset);
    for (int trial = 0; trial < 25; trial++) {
      uint8_t *seen = LS_NEW_ARRAY(arena, uint8_t, samples);
      for (int64_t step = 0; step < all;) {
        dataset = opened(texts[t], BATCH);
        const int64_t ranks = cuts[draw(7, drawn++, 8)];
        int64_t microbatches = 1 + (int64_t)draw(7, drawn++, 4);
        while (BATCH / ranks % microbatches) microbatches--;
        int64_t steps = 1 + (int64_t)draw(7, drawn++, (uint64_t)all);
        for (; steps > 0 && step < all; steps--, step++)
          note_batch(&dataset->training, step, ranks, microbatches, whole, seen);
        ls_dataset_close(dataset);
      }
      for (int64_t s = 0; s < samples; s++) assert_int_equal(seen[s], 1);
    }
  }
}

/* Positions count from each document's start in the row, and its end is asked nothing. */
static void documents_are_kept_apart(void **state) {
  (void)state;
  documents_file("a.jsonl", 'a', 200, 30);
  ls_dataset *dataset =
      opened("text: @/a.jsonl, seq_len: 16, documents: masked, validation: 20%", 4);
  const ls_order *order = &dataset->training;
  assert_true(order->masked);
  int32_t ids[64], labels[64], positions[64];
  const ls_batch batch = {ids, labels, positions, NULL, NULL, NULL, NULL, NULL};
  int ends = 0;
  for (int64_t step = 0; step < 40; step++) {
    assert_int_equal(ls_batch_fill(order, step, 0, 4, &batch, &error), LS_OK);
    for (int i = 0; i < 64; i++) {
      const bool first = i % 16 == 0 || ids[i - 1] == 256;
      assert_int_equal(positions[i], first ? 0 : positions[i - 1] + 1);
      if (ids[i] == 256)
        assert_int_equal(labels[i], LS_NO_LABEL);
      else if (i % 16 < 15)
        assert_int_equal(labels[i], ids[i + 1]);
      else
        assert_true(labels[i] >= 0);
      ends += ids[i] == 256;
    }
  }
  assert_true(ends > 40);
  ls_dataset_close(dataset);
}

static const char *fingerprint_of(const char *data) {
  ls_dataset *dataset = opened(data, 4);
  const char *text = ls_arena_strdup(arena, dataset->fingerprint);
  ls_dataset_close(dataset);
  return text;
}

static void the_fingerprint_is_of_what_is_trained_on(void **state) {
  (void)state;
  documents_file("a.jsonl", 'a', 100, 30);
  documents_file("b.jsonl", 'b', 100, 30);
  const char *const both = "text: [@/a.jsonl, @/b.jsonl], seq_len: 5, validation: 20%";
  const char *first = fingerprint_of(both);
  assert_string_equal(first, fingerprint_of(both));
  const char *const others[] = {
      "text: [@/b.jsonl, @/a.jsonl], seq_len: 5, validation: 20%",
      "text: @/a.jsonl, seq_len: 5, validation: 20%",
      "text: [@/a.jsonl, @/b.jsonl], seq_len: 5, validation: 30%",
      "text: [@/a.jsonl, @/b.jsonl], seq_len: 5, validation: 20%, split: tail"};
  for (int i = 0; i < 4; i++) assert_string_not_equal(first, fingerprint_of(others[i]));
  /* The same documents elsewhere, packed otherwise: the same text. */
  char *text;
  size_t bytes;
  assert_int_equal(
      ls_file_read(arena, ls_arena_printf(arena, "%s/a.jsonl", folder), &text, &bytes, &error),
      LS_OK);
  const char *copy = ls_arena_printf(arena, "%s/copy.ndjson", folder);
  assert_int_equal(ls_file_write(copy, text, bytes, &error), LS_OK);
  assert_string_equal(
      first, fingerprint_of("text: [@/copy.ndjson, @/b.jsonl], seq_len: 5, validation: 20%"));
  text[bytes / 2] = text[bytes / 2] == '.' ? ',' : '.';
  assert_int_equal(ls_file_write(copy, text, bytes, &error), LS_OK);
  ls_dataset *dataset;
  if (open_data("text: [@/copy.ndjson, @/b.jsonl], seq_len: 5, validation: 20%", 4, &dataset) ==
      LS_OK) {
    assert_string_not_equal(first, dataset->fingerprint);
    ls_dataset_close(dataset);
  }
}

int main(void) {
  seed = test_seed(20261128);
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      CASE(documents_are_drawn_by_their_hash), CASE(few_documents_leave_the_tail),
      CASE(texts_are_mixed_by_weight),         CASE(interrupted_runs_see_every_batch_once),
      CASE(documents_are_kept_apart),          CASE(the_fingerprint_is_of_what_is_trained_on),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
