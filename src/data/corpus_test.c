#include "data/corpus.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/random.h"
#include "support/test_folder.h"

static ls_error error;

/* `age_seconds` old, so that a time can prove something. */
static const char *text_file(const char *name, const void *text, size_t bytes, int age_seconds) {
  const char *path = in_folder(name);
  assert_int_equal(ls_file_write(path, text, bytes, &error), LS_OK);
  struct timespec when[2];
  clock_gettime(CLOCK_REALTIME, &when[0]);
  when[0].tv_sec -= age_seconds;
  when[0].tv_nsec = 7;
  when[1] = when[0];
  assert_int_equal(utimensat(AT_FDCWD, path, when, 0), 0);
  return path;
}

static void count_calls(void *context, int64_t done, int64_t total, int64_t tokens) {
  assert_true(tokens >= 0);
  int64_t *calls = context;
  assert_true(done <= total);
  *calls += 1;
}

static ls_status open_with(const ls_tokenizer *tokenizer, const char *const *patterns, int count,
                           int64_t *calls, ls_corpus *corpus) {
  const ls_corpus_options options = {.key = "data.text",
                                     .patterns = patterns,
                                     .pattern_count = count,
                                     .tokenizer = tokenizer,
                                     .cache_folder = in_folder("cache"),
                                     .progress = calls ? count_calls : NULL,
                                     .context = calls};
  return ls_corpus_open(arena, &options, corpus, &error);
}

static ls_status open_one(const char *pattern, ls_corpus *corpus) {
  return open_with(ls_tokenizer_bytes(), &pattern, 1, NULL, corpus);
}

static void assert_text(const ls_corpus *corpus, const char *text) {
  const int64_t bytes = (int64_t)strlen(text);
  assert_int_equal(corpus->count, bytes);
  int32_t *ids = LS_NEW_ARRAY(arena, int32_t, bytes);
  assert_int_equal(ls_corpus_copy(corpus, 0, bytes, ids, &error), LS_OK);
  for (int64_t i = 0; i < bytes; i++) assert_int_equal(ids[i], (uint8_t)text[i]);
}

static void files_become_one_row_of_ids(void **state) {
  (void)state;
  text_file("b.txt", "second\xC3\xA9", 8, 10);
  text_file("a.txt", "first ", 6, 10);
  text_file("empty.txt", "", 0, 10);
  ls_corpus corpus;
  assert_int_equal(open_one(in_folder("*.txt"), &corpus), LS_OK);
  assert_text(&corpus, "first second\xC3\xA9");
  assert_int_equal(corpus.width, 1);
  assert_int_equal(corpus.files.count, 3);
  ls_corpus_close(&corpus);
  const char *const order[] = {in_folder("b.txt"), in_folder("a.txt")};
  assert_int_equal(open_with(ls_tokenizer_bytes(), order, 2, NULL, &corpus), LS_OK);
  assert_text(&corpus,
              "second\xC3\xA9"
              "first ");
  ls_corpus_close(&corpus);
}

static void large_random_files_come_back_whole(void **state) {
  (void)state;
  const size_t bytes = (37 << 19) + 13; /* more than a batch, and no whole number of words */
  uint8_t *text = ls_arena_alloc(arena, bytes);
  for (size_t i = 0; i < bytes; i++) text[i] = (uint8_t)ls_random_bits(3, 1, i);
  const char *path = text_file("large.bin", text, bytes, 10);
  ls_corpus corpus;
  int64_t calls = 0;
  assert_int_equal(open_with(ls_tokenizer_bytes(), &path, 1, &calls, &corpus), LS_OK);
  assert_true(calls >= 2);
  assert_int_equal(corpus.count, bytes);
  assert_memory_equal(corpus.tokens, text, bytes);
  ls_corpus_close(&corpus);
}

/* Wherever in a buffer a file begins: what says that it is a text, or another, is its head. */
static void a_mark_is_seen_at_the_end_of_a_buffer(void **state) {
  (void)state;
  enum { BUFFER = 1 << 24, AROUND = 12 };
  char *text = ls_arena_alloc(arena, BUFFER + AROUND);
  memset(text, 'a', BUFFER + AROUND);
  for (int k = -AROUND; k <= AROUND; k++) {
    const char *const paths[] = {text_file("a.txt", text, (size_t)(BUFFER + k), 10),
                                 text_file("b.txt", "\xEF\xBB\xBFmark", 7, 10)};
    ls_corpus corpus;
    if (open_with(ls_tokenizer_bytes(), paths, 2, NULL, &corpus) != LS_OK)
      fail_msg("%s", error.text);
    if (corpus.count != BUFFER + k + 4)
      fail_msg("%d: %lld ids, expected %d", k, (long long)corpus.count, BUFFER + k + 4);
    ls_corpus_close(&corpus);
  }
}

static void a_cache_is_used_while_it_fits(void **state) {
  (void)state;
  const char *path = text_file("a.txt", "in the beginning", 16, 100);
  const ls_tokenizer *bytes = ls_tokenizer_bytes();
  ls_corpus corpus;
  assert_int_equal(open_one(path, &corpus), LS_OK);
  assert_false(corpus.from_cache);
  const char *cache = corpus.cache_path;
  ls_corpus_close(&corpus);

  int64_t calls = 0;
  assert_int_equal(open_with(bytes, &path, 1, &calls, &corpus), LS_OK);
  assert_true(corpus.from_cache);
  assert_int_equal(calls, 0); /* the text was not even read */
  ls_corpus_close(&corpus);

  text_file("a.txt", "in the beginning", 16, 50); /* another time, the same words */
  assert_int_equal(open_with(bytes, &path, 1, &calls, &corpus), LS_OK);
  assert_true(corpus.from_cache);
  assert_true(calls > 0);
  ls_corpus_close(&corpus);

  text_file("a.txt", "in the Beginning", 16, 50); /* the same size, other words */
  assert_int_equal(open_one(path, &corpus), LS_OK);
  assert_false(corpus.from_cache);
  assert_text(&corpus, "in the Beginning");
  ls_corpus_close(&corpus);

  for (int cut = 0; cut < 3; cut++) { /* a damaged cache is made again */
    assert_int_equal(truncate(cache, (off_t[]){0, 127, 134}[cut]), 0);
    assert_int_equal(open_one(path, &corpus), LS_OK);
    assert_false(corpus.from_cache);
    assert_text(&corpus, "in the Beginning");
    ls_corpus_close(&corpus);
  }
}

/* Without regard to time: size, inode and time stay, the words do not. */
static void a_text_changed_within_the_clocks_grain_is_noticed(void **state) {
  (void)state;
  const char *path = text_file("a.txt", "one", 3, 0);
  struct stat before;
  assert_int_equal(stat(path, &before), 0);
  ls_corpus corpus;
  assert_int_equal(open_one(path, &corpus), LS_OK);
  ls_corpus_close(&corpus);
  const int file = open(path, O_WRONLY);
  assert_int_equal(write(file, "two", 3), 3);
  close(file);
  const struct timespec times[2] = {before.st_mtim, before.st_mtim};
  assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
  assert_int_equal(open_one(path, &corpus), LS_OK);
  assert_text(&corpus, "two");
  ls_corpus_close(&corpus);
}

/* Tokenizers of other sizes: ids of two and of four bytes. */
static int64_t encode_shifted(const ls_tokenizer *tokenizer, const void *text, int64_t bytes,
                              int32_t *ids) {
  for (int64_t i = 0; i < bytes; i++)
    ids[i] = tokenizer->vocabulary - 1 - ((const uint8_t *)text)[i];
  return bytes;
}

static void ids_are_stored_as_narrow_as_the_vocabulary_allows(void **state) {
  (void)state;
  static const struct {
    int32_t vocabulary;
    int width;
  } cases[] = {{257, 2}, {65536, 2}, {65537, 4}, {200000, 4}};
  const char *path = text_file("a.txt", "\x01\xFFz", 3, 100);
  for (int i = 0; i < 4; i++) {
    const ls_tokenizer tokenizer = {.name = ls_arena_printf(arena, "shift%d", i),
                                    .vocabulary = cases[i].vocabulary,
                                    .end_of_text = -1,
                                    .encode = encode_shifted};
    ls_corpus corpus;
    assert_int_equal(open_with(&tokenizer, &path, 1, NULL, &corpus), LS_OK);
    assert_int_equal(corpus.width, cases[i].width);
    assert_false(corpus.from_cache); /* of another tokenizer */
    int32_t ids[3];
    assert_int_equal(ls_corpus_copy(&corpus, 0, 3, ids, &error), LS_OK);
    assert_int_equal(ids[0], cases[i].vocabulary - 2);
    assert_int_equal(ids[1], cases[i].vocabulary - 256);
    assert_int_equal(ls_corpus_copy(&corpus, 2, 1, ids, &error), LS_OK);
    assert_int_equal(ids[0], cases[i].vocabulary - 1 - 'z');
    ls_corpus_close(&corpus);
  }
}

static void assert_refused(const char *const *patterns, int count, ls_status status,
                           const char *part) {
  ls_corpus corpus;
  error = (ls_error){0};
  assert_int_equal(open_with(ls_tokenizer_bytes(), patterns, count, NULL, &corpus), status);
  if (!strstr(error.text, part)) fail_msg("%s", error.text);
  assert_null(strchr(error.text, '\n'));
}

static void bad_texts_are_refused(void **state) {
  (void)state;
  const char *a = text_file("a.txt", "a", 1, 10), *empty = text_file("empty.txt", "", 0, 10);
  const char *missing = in_folder("missing.txt"), *none = in_folder("*.none");
  assert_refused(&missing, 1, LS_INPUT, "missing.txt");
  assert_refused(&none, 1, LS_INPUT, "*.none");
  const char *bare = in_folder("bare");
  assert_int_equal(ls_directory_make(bare, &error), LS_OK);
  assert_refused(&bare, 1, LS_INPUT, "is a folder without files");
  assert_refused(&empty, 1, LS_INPUT, "empty.txt is empty; expected a file with text in it");
  assert_refused((const char *const[]){"/dev/null"}, 1, LS_INPUT, "is no regular file");
  const char *link_name = in_folder("b.txt");
  assert_int_equal(symlink(a, link_name), 0);
  assert_refused((const char *const[]){a, link_name}, 2, LS_INPUT, "a second time");
  assert_refused((const char *const[]){a, in_folder("a*")}, 2, LS_INPUT, "expected each file once");
  if (geteuid() == 0) return; /* root reads everything */
  assert_int_equal(chmod(a, 0), 0);
  assert_refused(&a, 1, LS_INPUT, "cannot be read: Permission denied");
}

/* While its texts are compared with what they were: how young the file is, and then none. */
static const char *taken_path;
static time_t taken_used;

static void take_away(void *context, int64_t done, int64_t total, int64_t tokens) {
  (void)context, (void)done, (void)total, (void)tokens;
  struct stat about;
  if (!taken_path || stat(taken_path, &about) != 0) return;
  taken_used = about.st_mtime;
  assert_int_equal(unlink(taken_path), 0);
  taken_path = NULL;
}

static void a_cache_that_another_process_removes_is_made_again(void **state) {
  (void)state;
  const char *path = text_file("a.txt", "in the beginning", 16, 100);
  ls_corpus corpus;
  assert_int_equal(open_one(path, &corpus), LS_OK);
  taken_path = corpus.cache_path;
  ls_corpus_close(&corpus);
  const struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
  assert_int_equal(utimensat(AT_FDCWD, taken_path, old, 0), 0);
  text_file("a.txt", "in the beginning", 16, 50); /* another time: the words are looked at */
  const ls_corpus_options options = {.key = "data.text",
                                     .patterns = &path,
                                     .pattern_count = 1,
                                     .tokenizer = ls_tokenizer_bytes(),
                                     .cache_folder = in_folder("cache"),
                                     .progress = take_away};
  const ls_status status = ls_corpus_open(arena, &options, &corpus, &error);
  if (status != LS_OK) fail_msg("%s", error.text);
  assert_null(taken_path);
  assert_true(taken_used > 1000); /* said to be in use before the look */
  assert_false(corpus.from_cache);
  assert_text(&corpus, "in the beginning");
  ls_corpus_close(&corpus);
}

static int cache_files(void) {
  char **paths;
  int count = 0;
  if (ls_file_glob(arena, in_folder("cache/*"), &paths, &count, NULL) != LS_OK) return 0;
  return count;
}

/* A limit on the size of files stands for a full disk: writing fails part of the way. */
static void a_full_disk_leaves_nothing_behind(void **state) {
  (void)state;
  uint8_t *text = ls_arena_alloc(arena, 3 << 20);
  memset(text, 'a', 3 << 20);
  const char *path = text_file("a.txt", text, 3 << 20, 10);
  struct rlimit before, small;
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  small = before;
  void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
  static const rlim_t limits[] = {10, 4096, 2 << 20};
  for (int i = 0; i < 3; i++) {
    small.rlim_cur = limits[i];
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    ls_corpus corpus;
    const ls_status status = open_one(path, &corpus);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, LS_FAILED);
    assert_non_null(strstr(error.text, "make room for about 3145728 bytes or set XDG_CACHE_HOME"));
    assert_int_equal(cache_files(), 0);
  }
  signal(SIGXFSZ, handler);
  ls_corpus corpus;
  assert_int_equal(open_one(path, &corpus), LS_OK);
  assert_int_equal(cache_files(), 1);
  ls_corpus_close(&corpus);
}

/* Closing is ours: it can say for the first time that there is no room, as on NFS. */
static int close_fault;

int fclose(FILE *file) {
  int (*close_it)(FILE *);
  *(void **)&close_it = dlsym(RTLD_NEXT, "fclose");
  const bool written = (fcntl(fileno(file), F_GETFL) & O_ACCMODE) == O_WRONLY;
  const int status = close_it(file);
  if (!close_fault || !written) return status;
  errno = close_fault;
  close_fault = 0;
  return EOF;
}

static void a_fault_at_closing_is_named(void **state) {
  (void)state;
  const char *path = text_file("a.txt", "some text", 9, 10);
  ls_corpus corpus;
  close_fault = EDQUOT;
  assert_int_equal(open_one(path, &corpus), LS_FAILED);
  assert_int_equal(close_fault, 0);
  assert_non_null(strstr(error.text, "bytes: Disk quota exceeded; make room"));
  assert_int_equal(cache_files(), 0);
}

static void the_cache_lies_beside_the_run(void **state) {
  (void)state;
  unsetenv("XDG_CACHE_HOME");
  assert_string_equal(ls_corpus_cache_folder(arena, "runs/bible"), "runs/cache");
  assert_string_equal(ls_corpus_cache_folder(arena, "/a/b/"), "/a/cache");
  assert_string_equal(ls_corpus_cache_folder(arena, "bible"), "cache");
  setenv("XDG_CACHE_HOME", "/x", 1);
  assert_string_equal(ls_corpus_cache_folder(arena, "runs/bible"), "/x/lockstep");
}

int main(void) {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      CASE(files_become_one_row_of_ids),
      CASE(large_random_files_come_back_whole),
      CASE(a_mark_is_seen_at_the_end_of_a_buffer),
      CASE(a_cache_is_used_while_it_fits),
      CASE(a_cache_that_another_process_removes_is_made_again),
      CASE(a_text_changed_within_the_clocks_grain_is_noticed),
      CASE(ids_are_stored_as_narrow_as_the_vocabulary_allows),
      CASE(bad_texts_are_refused),
      CASE(a_full_disk_leaves_nothing_behind),
      CASE(a_fault_at_closing_is_named),
      CASE(the_cache_lies_beside_the_run),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
