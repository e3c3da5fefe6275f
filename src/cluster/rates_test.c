/* The file of a machine's rates: what is written comes back; what is damaged, foreign or old does
 * not, with the reason in words. */
#include "cluster/rates.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/file.h"
#include "support/test_folder.h"

static const ls_rates_key key = {"Some CPU, family 6", 4, "avx2, avx2", "lockstep 0.1.0"};

static void add_matmul(ls_rates *rates, ls_dtype dtype, int threads, int64_t rows, double best) {
  *LS_APPEND(arena, &rates->matmul) =
      (ls_matmul_rate){dtype, dtype == LS_F32, threads, rows, 64, 128, {best, best / 1.5}};
}

static void add_memory(ls_rates *rates, ls_memory_way way, int threads, double best) {
  *LS_APPEND(arena, &rates->memory) = (ls_memory_rate){way, threads, {best, best / 3}};
}

static ls_rates *some_rates(void) {
  ls_rates *rates = LS_NEW(arena, ls_rates);
  *rates = (ls_rates){.key = key, .seconds = 0.1, .memory_bytes = 1 << 28, .slice_s = 3e-3};
  rates->measured_s = (int64_t)time(NULL);
  add_matmul(rates, LS_F32, 1, 1024, 1e11);
  add_matmul(rates, LS_F32, 1, 16, 5e11); /* of few rows: no rate of large products */
  add_matmul(rates, LS_F32, 4, 1024, 3.3e11);
  add_matmul(rates, LS_F32, 4, 2048, 3.5e11);
  add_matmul(rates, LS_BF16, 4, 2048, 7.1e11);
  add_memory(rates, LS_MEMORY_READ, 1, 1.1e10);
  add_memory(rates, LS_MEMORY_TRIAD, 4, 3.1e10);
  add_memory(rates, LS_MEMORY_COPY, 4, 2.9e10);
  *LS_APPEND(arena, &rates->transfer) =
      (ls_transfer_rate){LS_ALL_REDUCE, 2, 4, 65536, {1e9 / 3, 0.9e9}};
  *LS_APPEND(arena, &rates->ops) =
      (ls_op_time){LS_OP_LINEAR, LS_BF16, 2, true, 2.0 * 64 * 128 * 256, {64, 128, 256}, 1e-5 / 3};
  ls_rates_learn(arena, rates, "linear_dw", 1.25);
  ls_rates_learn(arena, rates, "linear_dw", 1.5);
  rates->disk = (ls_disk_rate){"/runs", "direct", 1 << 26, {1e9, 0.9e9}, {2e9, 1.9e9}};
  return rates;
}

static void write_rates(const ls_rates *rates) {
  ls_error error = {0};
  if (ls_rates_write(rates, &error) != LS_OK) fail_msg("%s", error.text);
}

/* They are not believed, and `word` is in the reason. */
static void assert_unread(const ls_rates_key *asked, const char *word) {
  const char *why = NULL;
  assert_null(ls_rates_read(arena, asked, &why));
  assert_non_null(why);
  if (!strstr(why, word)) fail_msg("\"%s\" does not speak of \"%s\"", why, word);
}

static void what_is_written_comes_back(void **state) {
  (void)state;
  const char *why;
  const ls_rates *made = some_rates();
  assert_unread(&key, "not measured");
  write_rates(made);
  const ls_rates *read = ls_rates_read(arena, &key, &why);
  if (!read) fail_msg("%s", why);
  assert_string_equal(ls_rates_text(arena, read), ls_rates_text(arena, made));
  assert_int_equal(read->matmul.count, 5);
  assert_true(read->transfer.items[0].rate.best == 1e9 / 3 && read->transfer.items[0].world == 4);
  assert_true(read->ops.items[0].seconds == 1e-5 / 3 && read->ops.items[0].adds);
  assert_string_equal(read->residuals.items[0].kind, "linear_dw");
  assert_true(read->matmul.items[0].native && !read->matmul.items[4].native);
  assert_string_equal(read->disk.folder, "/runs");
  assert_true(strncmp(ls_rates_path(arena, &key), folder, strlen(folder)) == 0);
}

static void one_without_a_disk_comes_back_too(void **state) {
  (void)state;
  ls_rates *made = some_rates();
  made->disk.folder = NULL;
  write_rates(made);
  const char *why;
  const ls_rates *read = ls_rates_read(arena, &key, &why);
  if (!read) fail_msg("%s", why);
  assert_null(read->disk.folder);
}

static void other_machines_have_other_files(void **state) {
  (void)state;
  write_rates(some_rates());
  const ls_rates_key others[] = {{"Another CPU", 4, key.instructions, key.library},
                                 {key.processor, 8, key.instructions, key.library},
                                 {key.processor, 4, "avx512", key.library},
                                 {key.processor, 4, key.instructions, "lockstep 0.2.0"}};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    assert_unread(&others[i], "not measured");
}

/* A file under this machine's name that another wrote. */
static void foreign_files_are_not_believed(void **state) {
  (void)state;
  ls_rates *made = some_rates();
  write_rates(made);
  made->key.processor = "Another CPU";
  const char *text = ls_rates_text(arena, made);
  ls_error error;
  assert_int_equal(ls_file_write(ls_rates_path(arena, &key), text, strlen(text), &error), LS_OK);
  assert_unread(&key, "another machine");
}

static void old_files_are_not_believed(void **state) {
  (void)state;
  ls_rates *made = some_rates();
  made->measured_s -= (LS_RATES_DAYS + 1) * 86400ll;
  write_rates(made);
  assert_unread(&key, "31 days ago");
  made->measured_s += 100 * 86400ll; /* of the future: a clock was wrong */
  write_rates(made);
  assert_unread(&key, "days ago");
}

/* Every byte of the file changed or cut off in turn: the reader says no, or (blanks between tokens)
 * what it has read is what was written. */
static void damaged_files_are_not_believed(void **state) {
  (void)state;
  const ls_rates *made = some_rates();
  write_rates(made);
  const char *path = ls_rates_path(arena, &key), *whole = ls_rates_text(arena, made), *why;
  const size_t bytes = strlen(whole);
  char *text = ls_arena_strdup(arena, whole);
  int refused = 0;
  ls_error error;
  for (size_t at = 0; at < bytes; at += 17) {
    text[at] ^= 1;
    assert_int_equal(ls_file_write(path, text, bytes, &error), LS_OK);
    const ls_rates *read = ls_rates_read(arena, &key, &why);
    refused += !read;
    if (read) assert_string_equal(ls_rates_text(arena, read), whole);
    text[at] ^= 1;
  }
  assert_true(refused > (int)bytes / 17 / 3);
  for (size_t length = 0; length < bytes - 2; length += 101) {
    assert_int_equal(ls_file_write(path, text, length, &error), LS_OK);
    assert_null(ls_rates_read(arena, &key, &why));
  }
}

/* The median of runs, of many the last. */
static void residuals_are_learned(void **state) {
  (void)state;
  ls_rates *rates = LS_NEW(arena, ls_rates);
  assert_true(ls_rates_residual(rates, "linear") == 1);
  const double ratios[] = {1.3, 0.9, 1.1, 7};
  const double medians[] = {1.3, (0.9 + 1.3) / 2, 1.1, (1.1 + 1.3) / 2};
  for (int r = 0; r < 4; r++) {
    ls_rates_learn(arena, rates, "linear", ratios[r]);
    assert_true(ls_rates_residual(rates, "linear") == medians[r]);
    assert_true(ls_rates_residual(rates, "linear_dx") == 1);
  }
  for (int r = 0; r < LS_RESIDUAL_RUNS; r++) ls_rates_learn(arena, rates, "linear", 2);
  assert_true(ls_rates_residual(rates, "linear") == 2);
  assert_int_equal(rates->residuals.items[0].ratios.count, LS_RESIDUAL_RUNS);
}

static ls_status open_text(const char *text, const ls_rates **rates, ls_error *error) {
  const char *path = in_folder("here.yaml");
  LS_TRY(ls_file_write(path, text, strlen(text), error));
  return ls_rates_open(arena, path, rates, error);
}

/* On another machine, and after a hand has been at it: then without a checksum. */
static void files_are_carried(void **state) {
  (void)state;
  const ls_rates *made = some_rates(), *read;
  ls_error error = {0};
  char *text = ls_arena_strdup(arena, ls_rates_text(arena, made));
  if (open_text(text, &read, &error) != LS_OK) fail_msg("%s", error.text);
  assert_string_equal(ls_rates_text(arena, read), text);
  char *sum = strstr(text, ",\n\"checksum\"");
  memcpy(sum, "}\n", 3);
  if (open_text(text, &read, &error) != LS_OK) fail_msg("%s", error.text);
  const char *by_hand =
      "form: 3\nprocessor: mine\ncores: 2\ninstructions: x, avx2\nlibrary: y\n"
      "measured_s: 5\nseconds: 1\nmemory_bytes: 0\nmatmul: []\nmemory: []\n"
      "transfers: []\nslice_s: 0\nops: []\nresiduals: []\n";
  if (open_text(by_hand, &read, &error) != LS_OK) fail_msg("%s", error.text);
  assert_string_equal(read->key.processor, "mine");
}

/* A line of what was carried that cannot be is named, with its file and key. */
static void bad_files_are_refused_by_line_and_key(void **state) {
  (void)state;
  static const struct {
    const char *from, *to, *says;
  } cases[] = {
      {"\"cores\": 4", "\"cores\": none", "here.yaml:4: cores: "},
      {"\"threads\": 2, \"adds\"", "\"threads\": 0, \"adds\"", "here.yaml:25: ops[0].threads: "},
      {"\"linear\"", "\"lineal\"", "ops[0].op: "},
      {"\"dtype\": \"bf16\", \"threads\": 2", "\"threads\": 2", "ops[0].dtype: missing"},
      {"\"form\": 3", "\"form\": 1", "here.yaml:2: form: 1 is of another version"},
      {"[64.0, 128.0, 256.0]", "[64.0, 128.0]", "ops[0].sizes: "},
      {"[1.25, 1.5]", "[1.25, -1]", "residuals[0].ratios[1]: "}};
  const char *whole = ls_rates_text(arena, some_rates());
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    const char *at = strstr(whole, cases[c].from), *sum = strstr(whole, ",\n\"checksum\"");
    if (!at) fail_msg("%s is not in %s", cases[c].from, whole);
    const char *rest = at + strlen(cases[c].from);
    const char *text = ls_arena_printf(arena, "%.*s%s%.*s}\n", (int)(at - whole), whole,
                                       cases[c].to, (int)(sum - rest), rest);
    const ls_rates *read;
    ls_error error = {0};
    assert_int_equal(open_text(text, &read, &error), LS_INPUT);
    if (!strstr(error.text, cases[c].says))
      fail_msg("\"%s\" does not speak of \"%s\"", error.text, cases[c].says);
    assert_null(strchr(error.text, '\n'));
  }
}

static void without_a_home_nothing_is_kept(void **state) {
  (void)state;
  char *home = getenv("HOME") ? ls_arena_strdup(arena, getenv("HOME")) : NULL;
  setenv("XDG_CACHE_HOME", "relative", 1);
  unsetenv("HOME");
  ls_error error = {0};
  assert_int_equal(ls_rates_write(some_rates(), &error), LS_INPUT);
  assert_unread(&key, "HOME");
  if (home) setenv("HOME", home, 1);
}

static void rates_are_looked_up(void **state) {
  (void)state;
  const ls_rates *rates = some_rates();
  assert_true(ls_rates_matmul(rates, LS_F32, 1) == 1e11);
  assert_true(ls_rates_matmul(rates, LS_F32, 2) == 2e11);
  assert_true(ls_rates_matmul(rates, LS_F32, 4) == 3.5e11);
  assert_true(ls_rates_matmul(rates, LS_F32, 8) == 3.5e11);
  assert_true(ls_rates_matmul(rates, LS_BF16, 2) == 7.1e11); /* nothing of one thread */
  assert_true(ls_rates_matmul(rates, LS_F16, 4) == 0);
  assert_true(ls_rates_memory(rates, 2) == 2.2e10);
  assert_true(ls_rates_memory(rates, 3) == 3.1e10);
  ls_rates *disturbed = some_rates();
  add_matmul(disturbed, LS_BF16, 1, 2048, 8e11); /* more than all cores reached */
  assert_true(ls_rates_matmul(disturbed, LS_BF16, 4) == 8e11);
}

int main(void) {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up_cache, tear_down)
  const struct CMUnitTest tests[] = {
      CASE(what_is_written_comes_back),
      CASE(one_without_a_disk_comes_back_too),
      CASE(other_machines_have_other_files),
      CASE(foreign_files_are_not_believed),
      CASE(old_files_are_not_believed),
      CASE(damaged_files_are_not_believed),
      CASE(without_a_home_nothing_is_kept),
      CASE(rates_are_looked_up),
      CASE(residuals_are_learned),
      CASE(files_are_carried),
      CASE(bad_files_are_refused_by_line_and_key),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
