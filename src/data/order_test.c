#include "data/order.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "support/test_seed.h"

static ls_arena *arena;
static ls_error error;

static int set_up(void **state) {
  (void)state;
  arena = ls_arena_create();
  error = (ls_error){0};
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  ls_arena_destroy(&arena);
  return 0;
}

/* Token i of the text is base + i, so that ids tell where they came from; one document. */
static const ls_corpus *counted(int64_t count, int32_t base) {
  int32_t *tokens = LS_NEW_ARRAY(arena, int32_t, count);
  for (int64_t i = 0; i < count; i++) tokens[i] = base + (int32_t)i;
  ls_corpus *corpus = LS_NEW(arena, ls_corpus);
  *corpus = (ls_corpus){.tokens = tokens,
                        .width = 4,
                        .count = count,
                        .documents = LS_NEW(arena, ls_document),
                        .document_count = 1};
  return corpus;
}

/* An order over one text without its first `first` tokens. */
static ls_order order_of(int64_t count, int64_t first, int64_t seq_len, int64_t batch,
                         bool shuffled, uint64_t seed) {
  ls_mix *mix = LS_NEW(arena, ls_mix);
  ls_text_part before;
  ls_text_part_split_tail(arena, counted(count, 0), count - first, &before, &mix->part);
  assert_int_equal(mix->part.tokens, count - first);
  ls_order order = {.mix = mix,
                    .mix_count = 1,
                    .seq_len = seq_len,
                    .batch = batch,
                    .shuffled = shuffled,
                    .seed = seed};
  assert_int_equal(ls_order_prepare(&order, &error), LS_OK);
  return order;
}

static void fill(const ls_order *order, int64_t step, int64_t first, int64_t rows, int32_t *ids,
                 int32_t *labels) {
  const ls_batch batch = {ids, labels, NULL, NULL, NULL, NULL, NULL, NULL};
  assert_int_equal(ls_batch_fill(order, step, first, rows, &batch, &error), LS_OK);
}

static int64_t sequence_of(const ls_order *order, int64_t sample) {
  const ls_sample at = ls_order_sample(order, sample);
  assert_int_equal(at.part, 0);
  return at.sequence;
}

static void sequences_are_whole_and_shifted_by_one(void **state) {
  (void)state;
  assert_int_equal(ls_order_count(0, 4), 0);
  assert_int_equal(ls_order_count(4, 4), 0);
  assert_int_equal(ls_order_count(5, 4), 1);
  assert_int_equal(ls_order_count(8, 4), 1);
  assert_int_equal(ls_order_count(9, 4), 2);
  assert_int_equal(ls_order_count(2, 1), 1);
  const ls_order order = order_of(39, 3, 5, 3, true, 0);
  assert_int_equal(order.sequences, 7);
  for (int64_t step = 0; step < 10; step++) {
    int32_t ids[15], labels[15];
    fill(&order, step, 0, 3, ids, labels);
    for (int row = 0; row < 3; row++) {
      const int64_t sequence = sequence_of(&order, step * 3 + row);
      for (int t = 0; t < 5; t++) {
        assert_int_equal(ids[row * 5 + t], 3 + sequence * 5 + t);
        assert_int_equal(labels[row * 5 + t], ids[row * 5 + t] + 1);
      }
    }
  }
}

/* Sequences that epoch `epoch` visits more or less than once. */
static int visited_wrongly(const ls_order *order, int64_t epoch) {
  int *visits = LS_NEW_ARRAY(arena, int, order->sequences);
  int wrong = 0;
  for (int64_t i = 0; i < order->sequences; i++) {
    visits[sequence_of(order, epoch * order->sequences + i)]++;
  }
  for (int64_t i = 0; i < order->sequences; i++) wrong += visits[i] != 1;
  return wrong;
}

static void an_epoch_visits_every_sequence_once(void **state) {
  (void)state;
  const uint64_t seed = test_seed(20261128);
  for (uint64_t trial = 0; trial < 40; trial++) {
    const int64_t sequences = 1 + (int64_t)(ls_random_bits(seed, 0, trial) % 3000);
    const ls_order order = order_of(2 * sequences + 1, 0, 2, 1, true, seed + trial);
    for (int64_t epoch = 0; epoch < 3; epoch++) {
      assert_int_equal(visited_wrongly(&order, epoch), 0);
    }
    if (sequences < 100) continue;
    ls_order other = order;
    other.seed++;
    int64_t same_epoch = 0, same_seed = 0, in_place = 0;
    for (int64_t i = 0; i < sequences; i++) {
      const int64_t here = sequence_of(&order, i);
      same_epoch += here == sequence_of(&order, sequences + i);
      same_seed += here == sequence_of(&other, i);
      in_place += here == i;
    }
    /* One is expected of each by chance. */
    assert_true(same_epoch < 15 && same_seed < 15 && in_place < 15);
  }
}

static void every_split_into_ranks_sees_the_same_batches(void **state) {
  (void)state;
  enum { T = 7, BATCH = 24 };
  const ls_order order = order_of(1000, 0, T, BATCH, true, 5);
  int32_t whole_ids[BATCH * T], whole_labels[BATCH * T], ids[BATCH * T], labels[BATCH * T];
  for (int64_t step = 0; step < 20; step++) {
    fill(&order, step, 0, BATCH, whole_ids, whole_labels);
    for (int64_t ranks = 1; ranks <= BATCH; ranks++) {
      if (BATCH % ranks) continue;
      memset(ids, -1, sizeof ids);
      memset(labels, -1, sizeof labels);
      for (int64_t rank = ranks - 1; rank >= 0; rank--) {
        const int64_t rows = BATCH / ranks, first = rank * rows;
        fill(&order, step, first, rows, ids + first * T, labels + first * T);
      }
      assert_memory_equal(ids, whole_ids, sizeof ids);
      assert_memory_equal(labels, whole_labels, sizeof labels);
    }
  }
}

static void evaluation_goes_through_the_part_once(void **state) {
  (void)state;
  const ls_order order = order_of(26, 10, 3, 2, false, 0);
  assert_int_equal(ls_order_batches(&order), 3);
  int32_t ids[6], labels[6];
  for (int64_t step = 0; step < 3; step++) {
    fill(&order, step, 0, 2, ids, labels);
    const int64_t filled = step < 2 ? 6 : 3;
    for (int64_t i = 0; i < 6; i++) {
      assert_int_equal(ids[i], i < filled ? 10 + step * 6 + i : 0);
      assert_int_equal(labels[i], i < filled ? 11 + step * 6 + i : LS_NO_LABEL);
    }
  }
}

static void epochs_are_counted_in_sequences(void **state) {
  (void)state;
  const ls_order order = order_of(11, 0, 1, 4, true, 0);
  assert_true(ls_order_epoch(&order, 0) == 0);
  assert_true(ls_order_epoch(&order, 5) == 2);
}

/* Ids are the tokens' numbers, every seventh of which is special. */
static void what_is_masked_is_drawn_by_token(void **state) {
  (void)state;
  enum { TOKENS = 24001, LENGTH = 60, BATCH = 100, MASK = 7 };
  static bool special[TOKENS];
  static int32_t ids[BATCH * LENGTH], labels[BATCH * LENGTH], plain[BATCH * LENGTH], unused[LENGTH];
  static int32_t row_ids[LENGTH], row_labels[LENGTH];
  for (int id = 0; id < TOKENS; id++) special[id] = id % 7 == 0;
  const ls_masking masking = {.probability = 0.15,
                              .mask_replace = 0.8,
                              .random_replace = 0.1,
                              .mask = MASK,
                              .vocabulary = TOKENS,
                              .special = special,
                              .seed = 5};
  ls_order order = order_of(TOKENS, 0, LENGTH, BATCH, true, 3);
  int asked = 0, masked = 0, kept = 0, eligible = 0;
  for (int64_t step = 0; step < 8; step++) {
    order.masking = NULL;
    for (int64_t row = 0; row < BATCH; row++)
      fill(&order, step, row, 1, plain + row * LENGTH, unused);
    order.masking = &masking;
    fill(&order, step, 0, BATCH, ids, labels);
    for (int i = 0; i < BATCH * LENGTH; i++) {
      eligible += !special[plain[i]];
      if (labels[i] == LS_NO_LABEL) {
        assert_int_equal(ids[i], plain[i]);
        continue;
      }
      assert_false(special[plain[i]]);
      assert_int_equal(labels[i], plain[i]);
      asked++, masked += ids[i] == MASK, kept += ids[i] == plain[i];
    }
    fill(&order, step, 17, 1, row_ids, row_labels); /* by another rank */
    assert_memory_equal(row_ids, ids + 17 * LENGTH, sizeof row_ids);
    assert_memory_equal(row_labels, labels + 17 * LENGTH, sizeof row_labels);
  }
  assert_in_range(asked, eligible * 0.145, eligible * 0.155);
  assert_in_range(masked, asked * 0.78, asked * 0.82);
  assert_in_range(kept, asked * 0.08, asked * 0.12);
  order = order_of(TOKENS, 0, 2, 1, true, 3); /* two tokens, of which one is asked for, or both */
  order.masking = &masking;
  for (int64_t step = 0; step < 200; step++) {
    fill(&order, step, 0, 1, row_ids, row_labels);
    assert_true(row_labels[0] >= 0 || row_labels[1] >= 0);
  }
}

int main(void) {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      CASE(sequences_are_whole_and_shifted_by_one),
      CASE(an_epoch_visits_every_sequence_once),
      CASE(every_split_into_ranks_sees_the_same_batches),
      CASE(evaluation_goes_through_the_part_once),
      CASE(epochs_are_counted_in_sequences),
      CASE(what_is_masked_is_drawn_by_token),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
