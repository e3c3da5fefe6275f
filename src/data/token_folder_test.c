/* A folder of token files is the corpus of its texts, is made again exactly where they changed, and
 * nothing is half-written, whatever ends it. */
#include "data/token_folder.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/random.h"
#include "base/stop.h"
#include "data/fingerprint.h"
#include "data/text_part.h"
#include "support/test_folder.h"
#include "support/test_seed.h"

static ls_error error;
static uint64_t seed;

/* `bytes` of letters, as many lines, with a seed of their own. */
static char *letters(uint64_t which, int64_t bytes) {
  char *text = ls_arena_alloc(arena, (size_t)bytes + 1);
  for (int64_t i = 0; i < bytes; i++) {
    const uint64_t drawn = ls_random_bits(seed, which, (uint64_t)i);
    text[i] = drawn % 61 == 0 ? '\n' : (char)('a' + drawn % 23);
  }
  return text;
}

/* Old enough for its time to prove something. */
static const char *write_text(const char *name, const char *text) {
  const char *path = in_folder(name);
  assert_int_equal(ls_file_write(path, text, strlen(text), &error), LS_OK);
  struct timespec when[2];
  clock_gettime(CLOCK_REALTIME, &when[0]);
  when[0].tv_sec -= 100;
  when[1] = when[0];
  assert_int_equal(utimensat(AT_FDCWD, path, when, 0), 0);
  return path;
}

static const char *write_lines(const char *name, uint64_t which, int documents) {
  LS_LIST(char) text = {0};
  for (int d = 0; d < documents; d++) {
    const int64_t bytes = (int64_t)(ls_random_bits(seed, which, (uint64_t)d) % 300);
    char *words = letters(which + 1000 + (uint64_t)d, bytes);
    for (char *c = words; *c; c++)
      if (*c == '\n') *c = ' ';
    const char *line = ls_arena_printf(arena, "{\"body\": \"%s\"}\n", words);
    for (; *line; line++) *LS_APPEND(arena, &text) = *line;
  }
  *LS_APPEND(arena, &text) = 0;
  return write_text(name, text.items);
}

/* A byte and 7 more, so that ids need two bytes; 263 ends a document. */
static int64_t encode_shifted(const ls_tokenizer *tokenizer, const void *text, int64_t bytes,
                              int32_t *ids) {
  (void)tokenizer;
  for (int64_t i = 0; i < bytes; i++) ids[i] = ((const uint8_t *)text)[i] + 7;
  return bytes;
}

static const ls_tokenizer shifted = {
    .name = "shifted", .vocabulary = 264, .end_of_text = 263, .encode = encode_shifted};

typedef struct request {
  const char *const *patterns;
  int count, threads;
  const ls_tokenizer *tokenizer;
  const volatile sig_atomic_t *stop;
  ls_corpus_progress *progress;
  void *context;
} request;

static ls_status write_to(const request *asked, const char *name, ls_token_folder_file **made,
                          int *count) {
  error = (ls_error){0};
  const ls_corpus_options options = {.key = "texts",
                                     .patterns = asked->patterns,
                                     .pattern_count = asked->count,
                                     .text_key = "body",
                                     .tokenizer = asked->tokenizer ? asked->tokenizer : &shifted,
                                     .cache_folder = in_folder(name),
                                     .progress = asked->progress,
                                     .context = asked->context,
                                     .threads = asked->threads};
  ls_stop_listen(asked->stop);
  const ls_status status = ls_token_folder_write(arena, &options, made, count, &error);
  ls_stop_listen(NULL);
  return status;
}

static ls_status open_corpus(const ls_tokenizer *tokenizer, const char *const *patterns, int count,
                             const char *const *fields, ls_corpus *corpus) {
  error = (ls_error){0};
  const ls_corpus_options options = {.key = "data.text",
                                     .patterns = patterns,
                                     .pattern_count = count,
                                     .fields = fields,
                                     .text_key = "body",
                                     .tokenizer = tokenizer,
                                     .cache_folder = in_folder("cache")};
  return ls_corpus_open(arena, &options, corpus, &error);
}

static int32_t *ids_of(const ls_corpus *corpus, int64_t first, int64_t count) {
  int32_t *ids = LS_NEW_ARRAY(arena, int32_t, count + 1);
  assert_int_equal(ls_corpus_copy(corpus, first, count, ids, &error), LS_OK);
  return ids;
}

static void assert_same(const ls_corpus *one, const ls_corpus *other) {
  assert_int_equal(one->count, other->count);
  assert_int_equal(one->document_count, other->document_count);
  assert_int_equal(one->content, other->content);
  assert_int_equal(one->skipped, other->skipped);
  assert_memory_equal(one->documents, other->documents,
                      (size_t)one->document_count * sizeof *one->documents);
  assert_memory_equal(ids_of(one, 0, one->count), ids_of(other, 0, other->count),
                      (size_t)one->count * sizeof(int32_t));
  int32_t *found = LS_NEW_ARRAY(arena, int32_t, one->count + 1);
  const int32_t *all = ids_of(one, 0, one->count);
  for (uint64_t trial = 0; trial < 300; trial++) {
    const uint64_t first = ls_random_bits(seed, 1, trial) % (uint64_t)(one->count + 1);
    const uint64_t left = (uint64_t)one->count - first, most = left < 20000 ? left : 20000;
    const int64_t count = (int64_t)(ls_random_bits(seed, 2, trial) % (most + 1));
    assert_int_equal(ls_corpus_copy(other, (int64_t)first, count, found, &error), LS_OK);
    assert_memory_equal(all + first, found, (size_t)count * sizeof *found);
  }
  ls_text_part parts[2][2];
  ls_text_part_split_documents(arena, one, 0.3, &parts[0][0], &parts[0][1]);
  ls_text_part_split_documents(arena, other, 0.3, &parts[1][0], &parts[1][1]);
  for (int p = 0; p < 2; p++) {
    const int64_t count = parts[0][p].tokens;
    assert_int_equal(count, parts[1][p].tokens);
    int32_t *places[2] = {LS_NEW_ARRAY(arena, int32_t, count + 1),
                          LS_NEW_ARRAY(arena, int32_t, count + 1)};
    for (int c = 0; c < 2; c++) ls_text_part_places(&parts[c][p], 0, count, places[c]);
    assert_memory_equal(places[0], places[1], (size_t)count * sizeof(int32_t));
  }
}

static void a_folder_is_the_corpus_of_its_texts(void **state) {
  (void)state;
  assert_int_equal(ls_directory_make(in_folder("some/deep"), &error), LS_OK);
  write_text("some/b.txt", letters(10, 700));
  write_text("some/deep/a.md", letters(11, 9000));
  write_text("some/other.bin", "passed over");
  const char *const patterns[] = {write_lines("z.jsonl", 12, 400), in_folder("some"),
                                  write_text("empty.txt", ""),
                                  write_text("a long.txt", letters(13, 5 << 20))};
  ls_corpus texts;
  assert_int_equal(open_corpus(&shifted, patterns, 4, NULL, &texts), LS_OK);
  for (int threads = 1; threads < 5; threads += 3) {
    const char *name = ls_arena_printf(arena, "tokens-%d/", threads);
    ls_token_folder_file *made;
    int count;
    if (write_to(&(request){patterns, 4, .threads = threads}, name, &made, &count) != LS_OK)
      fail_msg("%s", error.text);
    assert_int_equal(count, 4);
    assert_string_equal(strrchr(made[0].path, '/'), "/00001-z.jsonl.tokens");
    assert_string_equal(strrchr(made[1].path, '/'), "/00002-some.tokens");
    assert_null(made[2].path);
    assert_string_equal(strrchr(made[3].path, '/'), "/00004-along.txt.tokens");
    assert_int_equal(made[1].texts, 2);
    assert_int_equal(made[1].about.count, 9702);
    ls_corpus tokens;
    const char *path = in_folder(name);
    if (open_corpus(&shifted, &path, 1, NULL, &tokens) != LS_OK) fail_msg("%s", error.text);
    assert_int_equal(tokens.part_count, 3);
    assert_same(&texts, &tokens);
    ls_corpus_close(&tokens);
    /* One of them by name, whatever that is. */
    const char *moved = in_folder("moved");
    assert_int_equal(rename(made[3].path, moved), 0);
    ls_corpus alone, text;
    if (open_corpus(&shifted, &moved, 1, NULL, &alone) != LS_OK) fail_msg("%s", error.text);
    assert_int_equal(open_corpus(&shifted, &patterns[3], 1, NULL, &text), LS_OK);
    assert_same(&text, &alone);
    ls_corpus_close(&alone);
    ls_corpus_close(&text);
  }
  ls_corpus_close(&texts);
}

static void only_what_changed_is_made_again(void **state) {
  (void)state;
  const char *const patterns[] = {write_text("a.txt", "one"), write_text("b.txt", "two")};
  const request both = {patterns, 2, .threads = 1};
  ls_token_folder_file *made;
  int count;
  assert_int_equal(write_to(&both, "tokens", &made, &count), LS_OK);
  assert_false(made[0].reused || made[1].reused);
  assert_int_equal(write_to(&both, "tokens", &made, &count), LS_OK);
  assert_true(made[0].reused && made[1].reused);
  write_text("b.txt", "2!?");
  assert_int_equal(write_to(&both, "tokens", &made, &count), LS_OK);
  assert_true(made[0].reused && !made[1].reused);
  ls_corpus corpus;
  assert_int_equal(open_corpus(&shifted, &made[1].path, 1, NULL, &corpus), LS_OK);
  assert_memory_equal(ids_of(&corpus, 0, 4), ((int32_t[]){'2' + 7, '!' + 7, '?' + 7, 263}), 16);
  ls_corpus_close(&corpus);
  const ls_tokenizer other = {
      .name = "other", .vocabulary = 264, .end_of_text = 263, .encode = encode_shifted};
  assert_int_equal(
      write_to(&(request){patterns, 2, .threads = 1, .tokenizer = &other}, "tokens", &made, &count),
      LS_OK);
  assert_false(made[0].reused || made[1].reused);
  /* With one text less its file would be trained on still. */
  assert_int_equal(write_to(&(request){patterns, 1, .threads = 1}, "tokens", &made, &count),
                   LS_INPUT);
  assert_non_null(strstr(error.text, "tokens/00002-b.txt.tokens is there, of other texts"));
}

static int files_in(const char *name) {
  char **paths;
  int count = 0;
  const char *pattern = ls_arena_printf(arena, "%s/*", in_folder(name));
  if (ls_file_glob(arena, pattern, &paths, &count, NULL) != LS_OK) return 0;
  return count;
}

typedef struct interrupting {
  sig_atomic_t stop;
  int64_t after; /* bytes */
} interrupting;

static void stop_after(void *context, int64_t done, int64_t total, int64_t tokens) {
  interrupting *self = context;
  assert_true(done <= total && tokens <= done + 2);
  if (tokens && done >= self->after) self->stop = 1;
}

static void an_interrupt_leaves_nothing_half_written(void **state) {
  (void)state;
  const char *const patterns[] = {write_text("a.txt", letters(20, 1000)),
                                  write_text("b.txt", letters(21, 40 << 20))};
  interrupting asked = {.after = 1001};
  const request both = {patterns,         2, 2, .stop = &asked.stop, .progress = stop_after,
                        .context = &asked};
  ls_token_folder_file *made;
  int count;
  assert_int_equal(write_to(&both, "tokens", &made, &count), LS_STOPPED);
  assert_non_null(strstr(error.text, "stopped; nothing is left of "));
  assert_int_equal(files_in("tokens"), 1); /* the first, which was whole */
  asked = (interrupting){.stop = 1};
  assert_int_equal(write_to(&both, "none", &made, &count), LS_STOPPED);
  assert_false(ls_directory_exists(in_folder("none")));
  asked = (interrupting){.after = INT64_MAX};
  assert_int_equal(write_to(&both, "tokens", &made, &count), LS_OK);
  assert_true(made[0].reused && !made[1].reused);
}

static void refuse(const ls_tokenizer *tokenizer, const char *const *patterns, int count,
                   const char *field, ls_status status, const char *text) {
  const char *fields[2] = {field, NULL};
  ls_corpus corpus;
  assert_int_equal(open_corpus(tokenizer, patterns, count, fields, &corpus), status);
  if (!strstr(error.text, text)) fail_msg("found \"%s\"; expected \"%s\"", error.text, text);
  assert_null(strchr(error.text, '\n'));
}

static void what_does_not_fit_is_refused(void **state) {
  (void)state;
  const char *text = write_text("a.txt", "some words");
  ls_token_folder_file *made;
  int count;
  assert_int_equal(write_to(&(request){&text, 1, .threads = 1}, "tokens", &made, &count), LS_OK);
  const char *const both[] = {made[0].path, text};
  ls_tokenizer other = shifted;
  other.name = "shifted otherwise";
  refuse(&other, both, 1, NULL, LS_INPUT, "data.text: ");
  assert_non_null(strstr(error.text,
                         "00001-a.txt.tokens was made with the tokenizer shifted of 264 ids, and "
                         "this one is shifted otherwise of 264"));
  other = shifted;
  other.vocabulary = 265;
  refuse(&other, both, 1, NULL, LS_INPUT, "is shifted of 265");
  other = shifted;
  other.end_of_text = -1;
  refuse(&other, both, 1, NULL, LS_INPUT, "was made with the tokenizer");
  refuse(&shifted, both, 1, "content", LS_INPUT, "expected no field (content) of it");
  refuse(&shifted, both, 2, NULL, LS_INPUT, "found a text, ");
  assert_int_equal(write_to(&(request){both, 2, .threads = 1}, "more", &made, &count), LS_INPUT);
  assert_non_null(strstr(error.text, "00001-a.txt.tokens is a token file; expected a text"));
  assert_false(ls_directory_exists(in_folder("more")));
  /* A text of another name that is none: not taken for letters. */
  const char *hidden = in_folder("hidden.txt"), *pattern = in_folder("hid*.txt");
  assert_int_equal(rename(both[0], hidden), 0);
  refuse(&shifted, &pattern, 1, NULL, LS_INPUT, "is a token file, not a text");
  const char *cut = write_text("cut.tokens", "LSTOKENS");
  refuse(&shifted, &cut, 1, NULL, LS_FAILED, "something else than a token file");
  const char *words = write_text("words.tokens", "words");
  refuse(&shifted, &words, 1, NULL, LS_FAILED, "something else than a token file");
}

static void damage_is_found(void **state) {
  (void)state;
  const char *const texts[] = {write_text("a.txt", letters(30, 200000)),
                               write_text("b.txt", letters(31, 200000))};
  ls_token_folder_file *made;
  int count;
  assert_int_equal(write_to(&(request){texts, 2, .threads = 1}, "tokens", &made, &count), LS_OK);
  FILE *file = fopen(made[1].path, "r+b");
  assert_int_equal(fseek(file, 128 + 3 * LS_TOKEN_BLOCK_BYTES + 77, SEEK_SET), 0);
  assert_int_equal(fputc(200, file), 200);
  fclose(file);
  const char *path = in_folder("tokens");
  ls_corpus corpus;
  assert_int_equal(open_corpus(&shifted, &path, 1, NULL, &corpus), LS_OK);
  int32_t *ids = LS_NEW_ARRAY(arena, int32_t, corpus.count);
  assert_int_equal(ls_corpus_copy(&corpus, 0, 200001 + 50000, ids, &error), LS_OK);
  assert_int_equal(ls_corpus_copy(&corpus, 0, corpus.count, ids, &error), LS_FAILED);
  assert_non_null(strstr(error.text, "00002-b.txt.tokens: the token file is damaged"));
  ls_corpus_close(&corpus);
}

static void spreading_can_be_undone(void **state) {
  (void)state;
  for (uint64_t i = 0; i < 10000; i++) {
    const uint64_t hash = ls_random_bits(seed, 40, i);
    assert_true(ls_fingerprint_unspread(ls_fingerprint_spread(hash)) == hash);
  }
}

int main(void) {
  seed = test_seed(20261128);
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      CASE(a_folder_is_the_corpus_of_its_texts),
      CASE(only_what_changed_is_made_again),
      CASE(an_interrupt_leaves_nothing_half_written),
      CASE(what_does_not_fit_is_refused),
      CASE(damage_is_found),
      CASE(spreading_can_be_undone),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
