/* Moves between memory and a file: the bytes arrive, whatever the file system can do and however
 * many are under way, and what fails is said in one line. */

#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/random.h"
#include "run/tiers.h"

enum { MIB = 1 << 20, BLOCK = 4096 };

/* Writes are ours: the `fault_at`th of at least a block fails for lack of room. */
static int fault_at, fault_calls;

ssize_t pwrite(int descriptor, const void *data, size_t bytes, off_t offset) {
  if (fault_at && bytes >= BLOCK &&
      __atomic_add_fetch(&fault_calls, 1, __ATOMIC_RELAXED) >= fault_at) {
    errno = ENOSPC;
    return -1;
  }
  return syscall(SYS_pwrite64, descriptor, data, bytes, offset);
}

static ls_tiers *create(const char *path, int64_t file_bytes, int moves, bool no_ring,
                        bool no_direct) {
  ls_tiers *tiers;
  ls_error error = {0};
  const ls_tiers_options options = {.host_bytes = MIB,
                                    .file_bytes = file_bytes,
                                    .path = path,
                                    .moves = moves,
                                    .no_ring = no_ring,
                                    .no_direct = no_direct};
  if (ls_tiers_create(&options, &tiers, &error) != LS_OK) fail_msg("%s", error.text);
  return tiers;
}

static char *blocks(int64_t bytes, uint64_t seed) {
  char *made = aligned_alloc(BLOCK, (size_t)bytes);
  assert_non_null(made);
  for (int64_t i = 0; i < bytes; i += 8) {
    const uint64_t bits = ls_random_bits(seed, 1, (uint64_t)i);
    memcpy(made + i, &bits, 8);
  }
  return made;
}

static void move(ls_tiers *tiers, void *to, const void *from, int64_t bytes) {
  ls_error error = {0};
  if (ls_tiers_begin(tiers, to, from, bytes, "a move", &error) != LS_OK) fail_msg("%s", error.text);
}

static void end(ls_tiers *tiers, const void *to) {
  ls_error error = {0};
  ls_tiers_span span;
  if (ls_tiers_end(tiers, to, &span, &error) != LS_OK) fail_msg("%s", error.text);
  assert_true(span.begin_ns > 0 && span.end_ns >= span.begin_ns);
}

/* Several moves of random lengths at once, ended in another order; then all back. */
static void check_file(const char *path, bool no_ring, bool no_direct) {
  enum { MOVES = 6, EACH = 24 * MIB };
  ls_tiers *tiers = create(path, (int64_t)MOVES * EACH, MOVES, no_ring, no_direct);
  char *file = ls_tiers_base(tiers, LS_TIER_NVME);
  assert_true(ls_tiers_in_file(tiers, file) && !ls_tiers_in_file(tiers, tiers));
  assert_true((ls_tiers_note(tiers) != NULL) || !(no_ring || no_direct));
  char *data = blocks((int64_t)MOVES * EACH, 3), *back = blocks((int64_t)MOVES * EACH, 4);
  int64_t bytes[MOVES];
  for (int m = 0; m < MOVES; m++) {
    bytes[m] = 1 + (int64_t)(ls_random_bits(5, 2, (uint64_t)m) % (m % 2 ? EACH : 10000));
    move(tiers, file + (int64_t)m * EACH, data + (int64_t)m * EACH, bytes[m]);
  }
  for (int m = MOVES - 1; m >= 0; m--) end(tiers, file + (int64_t)m * EACH);
  for (int m = 0; m < MOVES; m++)
    move(tiers, back + (int64_t)m * EACH, file + (int64_t)m * EACH, bytes[m]);
  for (int m = 0; m < MOVES; m++) {
    end(tiers, back + (int64_t)m * EACH);
    assert_memory_equal(back + (int64_t)m * EACH, data + (int64_t)m * EACH, (size_t)bytes[m]);
  }
  ls_error error = {0};
  float some[3] = {1, 2, 3}, read[3];
  assert_int_equal(ls_tiers_write(tiers, file + 4 * 7, some, sizeof some, &error), LS_OK);
  assert_int_equal(ls_tiers_read(tiers, read, file + 4 * 7, sizeof read, &error), LS_OK);
  assert_memory_equal(some, read, sizeof some);
  move(tiers, back, file, BLOCK); /* sees what was written at once */
  end(tiers, back);
  assert_memory_equal(back + 4 * 7, some, sizeof some);
  move(tiers, file, data, BLOCK); /* and the other way round */
  end(tiers, file);
  assert_int_equal(ls_tiers_read(tiers, read, file + 4 * 7, sizeof read, &error), LS_OK);
  assert_memory_equal(data + 4 * 7, read, sizeof some);
  if (ls_tiers_note(tiers)) print_message("  %s\n", ls_tiers_note(tiers));
  ls_tiers_destroy(&tiers);
  free(data);
  free(back);
}

static void test_a_file_gives_back_what_it_got(void **state) {
  (void)state;
  for (int kind = 0; kind < 4; kind++) check_file("/var/tmp", kind & 1, kind & 2);
  check_file("/dev/shm", false, false); /* a file system in memory */
}

static void test_memory_is_copied_beside_the_caller(void **state) {
  (void)state;
  enum { MOVES = 40 };
  ls_tiers *tiers = create(NULL, 0, MOVES, false, false);
  char *host = ls_tiers_base(tiers, LS_TIER_HOST);
  assert_null(ls_tiers_base(tiers, LS_TIER_NVME));
  assert_int_equal(host[MIB - 1], 0);
  char *data = blocks(MIB, 9);
  const int64_t each = MIB / MOVES;
  for (int round = 0; round < 50; round++) {
    memset(host, 0, MIB);
    for (int m = 0; m < MOVES; m++) move(tiers, host + m * each, data + m * each, each);
    ls_error error = {0};
    assert_int_equal(ls_tiers_begin(tiers, data, host, 1, "too many", &error), LS_INTERNAL);
    for (int m = 0; m < MOVES; m++) end(tiers, host + (m * 7 % MOVES) * each);
    assert_memory_equal(host, data, (size_t)(each * MOVES));
    assert_int_equal(ls_tiers_end(tiers, host, NULL, &error), LS_INTERNAL);
  }
  ls_tiers_destroy(&tiers);
  free(data);
}

/* What was begun and not ended must not outlive its memory. */
static void test_moves_left_behind(void **state) {
  (void)state;
  for (int kind = 0; kind < 2; kind++) {
    ls_tiers *tiers = create("/var/tmp", 64 * MIB, 3, kind, false);
    char *data = blocks(32 * MIB, 8);
    move(tiers, ls_tiers_base(tiers, LS_TIER_NVME), data, 32 * MIB);
    move(tiers, ls_tiers_base(tiers, LS_TIER_HOST), data, MIB);
    ls_tiers_destroy(&tiers);
    free(data);
  }
}

static void refuse(const char *path, int64_t bytes, ls_status expected, const char *text) {
  ls_tiers *tiers;
  ls_error error = {0};
  const ls_tiers_options options = {.file_bytes = bytes, .path = path, .moves = 1};
  assert_int_equal(ls_tiers_create(&options, &tiers, &error), expected);
  assert_null(tiers);
  if (!strstr(error.text, text)) fail_msg("%s: expected %s", error.text, text);
  assert_null(strchr(error.text, '\n'));
}

static void test_what_cannot_be_is_refused(void **state) {
  (void)state;
  refuse("/nowhere/at/all", BLOCK, LS_INPUT, "offload.path: /nowhere/at/all: No such file");
  signal(SIGXFSZ, SIG_IGN);
  struct rlimit before, small = {.rlim_cur = MIB};
  getrlimit(RLIMIT_FSIZE, &before);
  small.rlim_max = before.rlim_max;
  setrlimit(RLIMIT_FSIZE, &small);
  refuse("/var/tmp", 16 * MIB, LS_NO, "a rank needs 16.0 MiB there");
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, SIG_DFL);
}

/* The descriptor of the file, whose name is gone. */
static int find_descriptor(void) {
  for (int d = 3; d < 256; d++) {
    char link[64], name[256] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", d);
    if (readlink(link, name, sizeof name - 1) > 0 && strstr(name, "lockstep-offload-")) return d;
  }
  fail_msg("no file is open");
  return -1;
}

static void fail_move(ls_tiers *tiers, void *to, const void *from, const char *text) {
  ls_error error = {0};
  ls_status status = ls_tiers_begin(tiers, to, from, 8 * MIB, "moments of head", &error);
  if (status == LS_OK) status = ls_tiers_end(tiers, to, NULL, &error);
  assert_int_equal(status, LS_FAILED);
  if (!strstr(error.text, text)) fail_msg("%s: expected %s", error.text, text);
}

static void test_a_drive_that_fails_is_named(void **state) {
  (void)state;
  char *data = blocks(8 * MIB, 8);
  for (int kind = 0; kind < 2; kind++) { /* the file ends under the reads */
    ls_tiers *tiers = create("/var/tmp", 8 * MIB, 1, kind, false);
    assert_int_equal(ftruncate(find_descriptor(), 5 * MIB), 0);
    fail_move(tiers, data, ls_tiers_base(tiers, LS_TIER_NVME),
              "offload.path: /var/tmp: reading moments of head: Input/output error");
    move(tiers, data, ls_tiers_base(tiers, LS_TIER_NVME), MIB); /* what is there still comes */
    end(tiers, data);
    ls_tiers_destroy(&tiers);
  }
  for (int at = 1; at <= 2; at++) {
    ls_tiers *tiers = create("/var/tmp", 8 * MIB, 1, true, false);
    fault_calls = 0;
    fault_at = at;
    fail_move(tiers, ls_tiers_base(tiers, LS_TIER_NVME), data,
              "offload.path: /var/tmp: writing moments of head: No space left on device");
    fault_at = 0;
    ls_tiers_destroy(&tiers);
  }
  free(data);
}

/* Nothing of it is left in the folder, even while it is in use. */
static void test_the_file_has_no_name(void **state) {
  (void)state;
  char folder[] = "/var/tmp/lockstep-tiers-XXXXXX";
  assert_non_null(mkdtemp(folder));
  ls_tiers *tiers = create(folder, BLOCK, 1, false, false);
  assert_int_equal(rmdir(folder), 0);
  ls_tiers_destroy(&tiers);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_file_gives_back_what_it_got),
                                     cmocka_unit_test(test_memory_is_copied_beside_the_caller),
                                     cmocka_unit_test(test_moves_left_behind),
                                     cmocka_unit_test(test_what_cannot_be_is_refused),
                                     cmocka_unit_test(test_a_drive_that_fails_is_named),
                                     cmocka_unit_test(test_the_file_has_no_name)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
