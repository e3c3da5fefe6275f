#include "tokenizer/tokenizer_stream.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "tokenizer/token_buffer.h"

static ls_error error;
static const uint64_t seed = 20250702;

static ls_status take(void *context, const int32_t *ids, int64_t count, ls_error *ignored) {
  (void)ignored;
  ls_ids *all = context;
  for (int64_t i = 0; i < count; i++) ls_ids_push(all, ids[i]);
  return LS_OK;
}

/* Words, lines, Japanese, special tokens and bytes that are none of UTF-8. */
static void make_text(ls_bytes *text, size_t bytes) {
  static const char *const parts[] = {"the ",      "house",     " of words", "\n",
                                      "\n\n  ",    "don't",     " 1234",     "日本語の文。",
                                      "<|end|>",   " \xff\xe3", "\t",        "caf\xc3\xa9",
                                      "e\xcc\x81", ", and",     " tool ",    "    "};
  uint64_t drawn = 0;
  while (text->count < bytes) {
    const char *part = parts[ls_random_bits(seed, 0, drawn++) % (sizeof parts / sizeof *parts)];
    ls_bytes_append(text, part, strlen(part));
  }
}

static void check(const char *path, const ls_bytes *text) {
  const ls_tokenizer *tokenizer;
  if (ls_tokenizer_open(path, NULL, &tokenizer, &error) != LS_OK) fail_msg("%s", error.text);
  ls_ids whole = {0};
  assert_int_equal(ls_tokenizer_append(tokenizer, text->data, (int64_t)text->count,
                                       LS_TOKENS_SPECIAL, &whole, &error),
                   LS_OK);
  for (int threads = 1; threads <= 3; threads += 2) {
    for (int64_t piece = 3000; piece <= 100000; piece *= 5) {
      ls_ids parts = {0};
      const ls_token_stream stream = {.tokenizer = tokenizer,
                                      .threads = threads,
                                      .piece_bytes = piece,
                                      .flags = LS_TOKENS_SPECIAL,
                                      .take = take,
                                      .context = &parts};
      FILE *file = fmemopen(text->data, text->count, "rb");
      assert_non_null(file);
      assert_int_equal(ls_token_stream_run(&stream, file, "text", &error), LS_OK);
      fclose(file);
      assert_int_equal(parts.count, whole.count);
      assert_memory_equal(parts.items, whole.items, (size_t)whole.count * sizeof *whole.items);
      ls_ids_free(&parts);
    }
  }
  ls_ids_free(&whole);
  ls_tokenizer_close(&tokenizer);
}

static void pieces_have_the_ids_of_the_whole(void **state) {
  (void)state;
  print_message("seed %llu\n", (unsigned long long)seed);
  static const char *const names[] = {"bytes-nfc-split",  "bytes-prefix-space",
                                      "bytes-falcon",     "bytes-digits-ignore-merges",
                                      "bytes-bloom",      "characters-byte-fallback",
                                      "metaspace-first",  "metaspace-always",
                                      "metaspace-never",  "sentencepiece-bpe",
                                      "split-contiguous", "sentencepiece-unigram"};
  ls_bytes text = {0};
  make_text(&text, 300000);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char path[128];
    snprintf(path, sizeof path, "tests/data/tokenizers/%s", names[i]);
    check(path, &text);
  }
  ls_bytes_free(&text);
}

static void a_text_is_cut_only_where_it_may_be(void **state) {
  (void)state;
  const ls_tokenizer *tokenizer;
  ls_bytes text = {0};
  assert_int_equal(
      ls_tokenizer_open("tests/data/tokenizers/bytes-nfc-split", NULL, &tokenizer, &error), LS_OK);
  for (int i = 0; i < 4000; i++) ls_bytes_append(&text, "x", 1);
  assert_int_equal(ls_tokenizer_cut(tokenizer, text.data, (int64_t)text.count), 0);
  ls_bytes_append(&text, "\n", 1);
  for (int i = 0; i < 200; i++) ls_bytes_append(&text, "y", 1);
  assert_int_equal(ls_tokenizer_cut(tokenizer, text.data, (int64_t)text.count), 4001);
  assert_int_equal(ls_tokenizer_cut(tokenizer, text.data, 10), 0);
  ls_bytes_free(&text);
  ls_tokenizer_close(&tokenizer);
}

static void an_empty_file_has_the_beginnings_token(void **state) {
  (void)state;
  const ls_tokenizer *tokenizer;
  ls_ids ids = {0};
  assert_int_equal(
      ls_tokenizer_open("tests/data/tokenizers/bytes-nfc-split", NULL, &tokenizer, &error), LS_OK);
  const ls_token_stream stream = {.tokenizer = tokenizer,
                                  .threads = 2,
                                  .flags = LS_TOKENS_SPECIAL,
                                  .take = take,
                                  .context = &ids};
  FILE *file = fopen("/dev/null", "rb");
  assert_non_null(file);
  assert_int_equal(ls_token_stream_run(&stream, file, "text", &error), LS_OK);
  fclose(file);
  assert_int_equal(ids.count, 1);
  assert_true(ls_tokenizer_is_special(tokenizer, ids.items[0]));
  ls_ids_free(&ids);
  ls_tokenizer_close(&tokenizer);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(pieces_have_the_ids_of_the_whole),
      cmocka_unit_test(a_text_is_cut_only_where_it_may_be),
      cmocka_unit_test(an_empty_file_has_the_beginnings_token),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
