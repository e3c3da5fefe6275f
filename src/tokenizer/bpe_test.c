#include "tokenizer/bpe.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/random.h"

enum { LETTERS = 4, PIECES = 60 };

static const uint64_t seed = 20250701;
static uint64_t drawn;

static uint64_t draw(uint64_t below) {
  return ls_random_bits(seed, 1, drawn++) % below;
}

typedef struct rule {
  int32_t left, right, made;
} rule;

/* Letters a to d, and random merges of what is there. */
static ls_bpe *make_bpe(ls_arena *arena, rule rules[PIECES], int *rule_count) {
  ls_vocabulary *vocabulary = ls_vocabulary_create(arena);
  ls_error error;
  int32_t *symbols = LS_NEW_ARRAY(arena, int32_t, 256);
  const char *pieces[PIECES];
  for (int i = 0; i < 256; i++) symbols[i] = -1;
  for (int i = 0; i < LETTERS; i++) {
    pieces[i] = ls_arena_printf(arena, "%c", 'a' + i);
    symbols['a' + i] = i;
    assert_int_equal(ls_vocabulary_add(vocabulary, "", (ls_span){pieces[i], 1}, i, &error), LS_OK);
  }
  ls_bpe_options options = {.byte_symbols = symbols, .unknown = -1, .pieces = PIECES};
  ls_bpe *bpe = ls_bpe_create(arena, &options, PIECES);
  *rule_count = 0;
  for (int id = LETTERS; id < PIECES;) {
    const int32_t left = (int32_t)draw((uint64_t)id), right = (int32_t)draw((uint64_t)id);
    pieces[id] = ls_arena_printf(arena, "%s%s", pieces[left], pieces[right]);
    const ls_span made = {pieces[id], strlen(pieces[id])};
    if (ls_vocabulary_find(vocabulary, made) >= 0) continue;
    assert_int_equal(ls_vocabulary_add(vocabulary, "", made, id, &error), LS_OK);
    ls_bpe_add_merge(bpe, left, right, (uint32_t)*rule_count, id);
    rules[(*rule_count)++] = (rule){left, right, id++};
  }
  return bpe;
}

/* The definition: the first rule that applies anywhere is applied at its leftmost place. */
static int64_t encode_plainly(const rule *rules, int rule_count, const char *word, size_t bytes,
                              int32_t *ids) {
  int64_t count = 0;
  for (size_t i = 0; i < bytes; i++) ids[count++] = word[i] - 'a';
  for (int r = 0; r < rule_count; r++) {
    for (int64_t i = 0; i + 1 < count; i++) {
      if (ids[i] != rules[r].left || ids[i + 1] != rules[r].right) continue;
      ids[i] = rules[r].made;
      memmove(ids + i + 1, ids + i + 2, (size_t)(count - i - 2) * sizeof *ids);
      count--;
      r = -1; /* a piece that is new may be part of an earlier rule */
      break;
    }
  }
  return count;
}

static void short_and_long_words_are_as_defined(void **state) {
  (void)state;
  print_message("seed %llu\n", (unsigned long long)seed);
  for (int round = 0; round < 30; round++) {
    ls_arena *arena = ls_arena_create();
    rule rules[PIECES];
    int rule_count;
    const ls_bpe *bpe = make_bpe(arena, rules, &rule_count);
    ls_bpe_work work = {0};
    ls_ids ids = {0};
    for (int each = 0; each < 60; each++) {
      char word[200];
      int32_t expected[200];
      const size_t bytes = 1 + draw(each % 2 ? 20 : 199);
      for (size_t i = 0; i < bytes; i++) word[i] = (char)('a' + draw(LETTERS));
      const int64_t count = encode_plainly(rules, rule_count, word, bytes, expected);
      for (int twice = 0; twice < 2; twice++) { /* the second time from the cache */
        ids.count = 0;
        ls_bpe_encode(bpe, &work, (ls_span){word, bytes}, &ids);
        assert_int_equal(ids.count, count);
        assert_memory_equal(ids.items, expected, (size_t)count * sizeof *expected);
      }
    }
    ls_ids_free(&ids);
    ls_bpe_work_free(&work);
    ls_arena_destroy(&arena);
  }
}

/* Were it quadratic, no test run would see its end: a million letters have 2^39 pairs. */
static void a_million_letters_take_n_log_n(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  int32_t *symbols = LS_NEW_ARRAY(arena, int32_t, 256);
  const ls_bpe_options options = {.byte_symbols = symbols, .unknown = -1, .pieces = 20};
  ls_bpe *bpe = ls_bpe_create(arena, &options, 20);
  /* a a -> 1, 1 1 -> 2, ...: every merge opens the next. */
  for (int32_t id = 0; id < 19; id++) ls_bpe_add_merge(bpe, id, id, (uint32_t)id, id + 1);
  enum { MILLION = 1 << 20 };
  char *word = ls_arena_alloc(arena, MILLION);
  memset(word, 'a', MILLION);
  ls_bpe_work work = {0};
  ls_ids ids = {0};
  const double begin = ls_now_s();
  ls_bpe_encode(bpe, &work, (ls_span){word, MILLION}, &ids);
  print_message("%d letters: %.3f s\n", MILLION, ls_now_s() - begin);
  assert_int_equal(ids.count, 2);
  assert_int_equal(ids.items[0], 19);
  ls_ids_free(&ids);
  ls_bpe_work_free(&work);
  ls_arena_destroy(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(short_and_long_words_are_as_defined),
      cmocka_unit_test(a_million_letters_take_n_log_n),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
