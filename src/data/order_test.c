#include "data/order.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/random.h"

/* Token i of the text is i, so that ids tell where they came from. */
static ls_corpus counted(ls_arena *arena, int64_t count) {
  int32_t *tokens = LS_NEW_ARRAY(arena, int32_t, count);
  for (int64_t i = 0; i < count; i++) tokens[i] = (int32_t)i;
  return (ls_corpus){.tokens = tokens, .width = 4, .count = count};
}

static void sequences_are_whole_and_shifted_by_one(void **state) {
  (void)state;
  assert_int_equal(ls_order_count(0, 4), 0);
  assert_int_equal(ls_order_count(4, 4), 0);
  assert_int_equal(ls_order_count(5, 4), 1);
  assert_int_equal(ls_order_count(8, 4), 1);
  assert_int_equal(ls_order_count(9, 4), 2);
  assert_int_equal(ls_order_count(2, 1), 1);
  ls_arena *arena = ls_arena_create();
  const ls_corpus corpus = counted(arena, 40);
  const ls_order order = {
      .corpus = &corpus, .first = 3, .sequences = 7, .seq_len = 5, .batch = 3, .shuffled = true};
  for (int64_t step = 0; step < 10; step++) {
    int32_t ids[15], labels[15];
    ls_batch_fill(&order, step, 0, 3, ids, labels);
    for (int row = 0; row < 3; row++) {
      const int64_t sequence = ls_order_sequence(&order, step * 3 + row);
      for (int t = 0; t < 5; t++) {
        assert_int_equal(ids[row * 5 + t], 3 + sequence * 5 + t);
        assert_int_equal(labels[row * 5 + t], ids[row * 5 + t] + 1);
      }
    }
  }
  ls_arena_destroy(&arena);
}

/* Sequences that epoch `epoch` visits more or less than once. */
static int visited_wrongly(ls_arena *arena, const ls_order *order, int64_t epoch) {
  int *visits = LS_NEW_ARRAY(arena, int, order->sequences);
  int wrong = 0;
  for (int64_t i = 0; i < order->sequences; i++) {
    visits[ls_order_sequence(order, epoch * order->sequences + i)]++;
  }
  for (int64_t i = 0; i < order->sequences; i++) wrong += visits[i] != 1;
  return wrong;
}

static void an_epoch_visits_every_sequence_once(void **state) {
  (void)state;
  const uint64_t seed = (uint64_t)time(NULL);
  printf("seed %llu\n", (unsigned long long)seed);
  ls_arena *arena = ls_arena_create();
  for (uint64_t trial = 0; trial < 40; trial++) {
    const int64_t sequences = 1 + (int64_t)(ls_random_bits(seed, 0, trial) % 3000);
    const ls_order order = {
        .sequences = sequences, .seq_len = 2, .batch = 1, .shuffled = true, .seed = seed + trial};
    for (int64_t epoch = 0; epoch < 3; epoch++) {
      assert_int_equal(visited_wrongly(arena, &order, epoch), 0);
    }
    if (sequences < 100) continue;
    ls_order other = order;
    other.seed++;
    int64_t same_epoch = 0, same_seed = 0, in_place = 0;
    for (int64_t i = 0; i < sequences; i++) {
      const int64_t here = ls_order_sequence(&order, i);
      same_epoch += here == ls_order_sequence(&order, sequences + i);
      same_seed += here == ls_order_sequence(&other, i);
      in_place += here == i;
    }
    /* One is expected of each by chance. */
    assert_true(same_epoch < 15 && same_seed < 15 && in_place < 15);
  }
  ls_arena_destroy(&arena);
}

static void every_split_into_ranks_sees_the_same_batches(void **state) {
  (void)state;
  enum { T = 7, BATCH = 24 };
  ls_arena *arena = ls_arena_create();
  const ls_corpus corpus = counted(arena, 1000);
  const ls_order order = {.corpus = &corpus,
                          .sequences = ls_order_count(1000, T),
                          .seq_len = T,
                          .batch = BATCH,
                          .shuffled = true,
                          .seed = 5};
  int32_t whole_ids[BATCH * T], whole_labels[BATCH * T], ids[BATCH * T], labels[BATCH * T];
  for (int64_t step = 0; step < 20; step++) {
    ls_batch_fill(&order, step, 0, BATCH, whole_ids, whole_labels);
    for (int64_t ranks = 1; ranks <= BATCH; ranks++) {
      if (BATCH % ranks) continue;
      memset(ids, -1, sizeof ids);
      memset(labels, -1, sizeof labels);
      for (int64_t rank = ranks - 1; rank >= 0; rank--) {
        const int64_t rows = BATCH / ranks, first = rank * rows;
        ls_batch_fill(&order, step, first, rows, ids + first * T, labels + first * T);
      }
      assert_memory_equal(ids, whole_ids, sizeof ids);
      assert_memory_equal(labels, whole_labels, sizeof labels);
    }
  }
  ls_arena_destroy(&arena);
}

static void evaluation_goes_through_the_part_once(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const ls_corpus corpus = counted(arena, 30);
  const ls_order order = {.corpus = &corpus, .first = 10, .sequences = 5, .seq_len = 3, .batch = 2};
  assert_int_equal(ls_order_batches(&order), 3);
  int32_t ids[6], labels[6];
  for (int64_t step = 0; step < 3; step++) {
    ls_batch_fill(&order, step, 0, 2, ids, labels);
    const int64_t filled = step < 2 ? 6 : 3;
    for (int64_t i = 0; i < 6; i++) {
      assert_int_equal(ids[i], i < filled ? 10 + step * 6 + i : 0);
      assert_int_equal(labels[i], i < filled ? 11 + step * 6 + i : LS_NO_LABEL);
    }
  }
  ls_arena_destroy(&arena);
}

static void epochs_are_counted_in_sequences(void **state) {
  (void)state;
  const ls_order order = {.sequences = 10, .batch = 4, .seq_len = 1, .shuffled = true};
  assert_true(ls_order_epoch(&order, 0) == 0);
  assert_true(ls_order_epoch(&order, 5) == 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sequences_are_whole_and_shifted_by_one),
      cmocka_unit_test(an_epoch_visits_every_sequence_once),
      cmocka_unit_test(every_split_into_ranks_sees_the_same_batches),
      cmocka_unit_test(evaluation_goes_through_the_part_once),
      cmocka_unit_test(epochs_are_counted_in_sequences),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
