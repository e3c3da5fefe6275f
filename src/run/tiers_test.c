/* Moves between memory and a file: the bytes arrive, whatever the file system can do and however
 * many are under way, and what fails is said in one line. */

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
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
#ifdef LS_HAVE_URING
#include <liburing.h>
#endif

#include <cmocka.h>

#include "base/random.h"
#include "cluster/machine.h"
#include "run/tiers.h"

enum { MIB = 1 << 20, BLOCK = 4096 };

/* Transfers are ours: the `fault_at`th write of at least a block fails for lack of room; of the
 * next `shorts` of more than a block, what was done is said to be 1,000 bytes less; and what does
 * not suit O_DIRECT is refused on every file system. */
static int fault_at, fault_calls, shorts, shortened;

static bool is_direct(int descriptor) {
  return fcntl(descriptor, F_GETFL) & O_DIRECT;
}

static ssize_t shorten(ssize_t done) {
  if (done <= BLOCK || __atomic_fetch_sub(&shorts, 1, __ATOMIC_RELAXED) <= 0) return done;
  __atomic_add_fetch(&shortened, 1, __ATOMIC_RELAXED);
  return done - 1000;
}

ssize_t pread(int descriptor, void *data, size_t bytes, off_t offset) {
  if (is_direct(descriptor) && (bytes % BLOCK || offset % BLOCK)) {
    errno = EINVAL;
    return -1;
  }
  return shorten(syscall(SYS_pread64, descriptor, data, bytes, offset));
}

ssize_t pwrite(int descriptor, const void *data, size_t bytes, off_t offset) {
  if (is_direct(descriptor) && (bytes % BLOCK || offset % BLOCK)) {
    errno = EINVAL;
    return -1;
  }
  if (fault_at && bytes >= BLOCK &&
      __atomic_add_fetch(&fault_calls, 1, __ATOMIC_RELAXED) >= fault_at) {
    errno = ENOSPC;
    return -1;
  }
  return shorten(syscall(SYS_pwrite64, descriptor, data, bytes, offset));
}

#ifdef LS_HAVE_URING

/* So is the ring: the `break_at`th wait, or a submission, fails as if it were gone, and what the
 * kernel was given is counted. */
static int break_at;
static bool break_submit;
static int64_t ring_given;
static struct io_uring *ring_seen;

static int real(const char *name, struct io_uring *ring, unsigned wait) {
  int (*call)(struct io_uring *, unsigned);
  *(void **)&call = dlsym(RTLD_NEXT, name);
  const int given = call(ring, wait);
  ring_seen = ring;
  if (given > 0) ring_given += given;
  return given;
}

int io_uring_submit(struct io_uring *ring) {
  return break_submit ? -ENXIO : real("io_uring_submit", ring, 0);
}

int io_uring_submit_and_wait(struct io_uring *ring, unsigned wait) {
  if (break_at && --break_at == 0) return -ENXIO;
  const int given = real("io_uring_submit_and_wait", ring, wait);
  struct io_uring_cqe *first;
  if (io_uring_peek_cqe(ring, &first) == 0) first->res = (int)shorten(first->res);
  return given;
}

#endif

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
  assert_true(ls_tiers_of(tiers, file) == LS_TIER_NVME &&
              ls_tiers_of(tiers, tiers) == LS_TIER_DEVICE);
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
  refuse("/var/tmp", 16 * MIB, LS_REFUTED, "a rank needs 16.0 MiB there");
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

#ifdef LS_HAVE_URING

static ls_tiers *create_ring(void) {
  ring_given = 0;
  ls_tiers *tiers = create("/var/tmp", 64 * MIB, 2, false, false);
  if (!ls_tiers_note(tiers) || !strstr(ls_tiers_note(tiers), "io_uring")) return tiers;
  ls_tiers_destroy(&tiers);
  skip();
  return NULL;
}

/* What the kernel has taken is over before its job is, so that memory is free again; what it has
 * not taken fails. */
static void test_a_broken_ring_leaves_nothing_to_the_kernel(void **state) {
  (void)state;
  for (int at = 1; at <= 4; at++) { /* a wait fails; in the end a submission */
    ls_error error = {0};
    ls_tiers *tiers = create_ring();
    char *file = ls_tiers_base(tiers, LS_TIER_NVME), *data = blocks(32 * MIB, 8);
    char *back = blocks(16 * MIB, 9);
    move(tiers, file, data, 16 * MIB);
    if (at == 4)
      break_submit = true;
    else
      break_at = at;
    move(tiers, file + 32 * MIB, data + 16 * MIB, 16 * MIB);
    const ls_status second = ls_tiers_end(tiers, file + 32 * MIB, NULL, &error);
    assert_int_equal(second, at == 4 ? LS_FAILED : LS_OK);
    end(tiers, file);
    assert_int_equal(ring_given, at == 4 ? 4 : 8);
    assert_int_equal(*ring_seen->cq.khead, ring_given);
    assert_int_equal(ls_tiers_read(tiers, back, file, 16 * MIB, &error), LS_OK);
    assert_memory_equal(back, data, 16 * MIB);
    for (int again = 0; again < 40; again++) { /* more pieces than the ring has entries */
      assert_int_equal(ls_tiers_begin(tiers, data, file, 16 * MIB, "a move", &error), LS_OK);
      assert_int_equal(ls_tiers_end(tiers, data, NULL, &error), LS_FAILED);
      assert_string_equal(error.text,
                          "offload.path: /var/tmp: reading a move: No such device or address");
    }
    break_at = break_submit = 0;
    ls_tiers_destroy(&tiers);
    free(data);
    free(back);
  }
}

#endif

static void test_a_short_transfer_goes_on_at_a_block(void **state) {
  (void)state;
  for (int kind = 0; kind < 2; kind++) {
    ls_tiers *tiers = create("/var/tmp", 16 * MIB, 1, kind, false);
    char *file = ls_tiers_base(tiers, LS_TIER_NVME);
    char *data = blocks(16 * MIB, 8), *back = blocks(16 * MIB, 9);
    shortened = 0;
    shorts = 3;
    move(tiers, file, data, 16 * MIB);
    end(tiers, file);
    shorts = 3;
    move(tiers, back, file, 16 * MIB);
    end(tiers, back);
    shorts = 0;
    assert_int_equal(shortened, 6);
    assert_memory_equal(back, data, 16 * MIB);
    ls_tiers_destroy(&tiers);
    free(data);
    free(back);
  }
}

/* Nothing of it is mapped, and nobody is killed for it later. */
static void test_memory_that_is_not_there_is_refused(void **state) {
  (void)state;
  const int64_t there = ls_machine_memory_there("").bytes;
  if (there > INT64_MAX / 4) skip();
  ls_tiers *tiers;
  ls_error error = {0};
  const ls_tiers_options options = {.host_bytes = 2 * there + MIB, .moves = 1};
  assert_int_equal(ls_tiers_create(&options, &tiers, &error), LS_FAILED);
  assert_null(tiers);
  double asked, found;
  char what[64]; /* of the machine, or a limit of this process */
  assert_int_equal(sscanf(error.text,
                          "offload: a rank keeps %lf MiB in the host's memory, and %lf are there "
                          "(%63[^)]): offload less",
                          &asked, &found, what),
                   3);
  assert_true(asked > found);
  assert_null(strchr(error.text, '\n'));
}

/* All of it has its pages from the start, wherever the machine has put them since. */
static void test_memory_is_there_before_it_is_used(void **state) {
  (void)state;
  const size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = 64 * MIB / page;
  const int map = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  if (map < 0) skip(); /* a kernel without */
  ls_tiers *tiers;
  ls_error error = {0};
  ls_tiers_options options = {.host_bytes = 64 * MIB, .moves = 1};
  assert_int_equal(ls_tiers_create(&options, &tiers, &error), LS_OK);
  const uintptr_t base = (uintptr_t)ls_tiers_base(tiers, LS_TIER_HOST);
  uint64_t *about = calloc(pages, sizeof *about);
  const size_t bytes = pages * sizeof *about;
  assert_non_null(about);
  assert_int_equal(pread(map, about, bytes, (off_t)(base / page * sizeof *about)), bytes);
  for (size_t p = 0; p < pages; p++) assert_true(about[p] >> 62); /* in memory, or swapped */
  free(about);
  close(map);
  ls_tiers_destroy(&tiers);
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
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_file_gives_back_what_it_got),
      cmocka_unit_test(test_memory_is_copied_beside_the_caller),
      cmocka_unit_test(test_moves_left_behind),
      cmocka_unit_test(test_what_cannot_be_is_refused),
      cmocka_unit_test(test_a_drive_that_fails_is_named),
      cmocka_unit_test(test_a_short_transfer_goes_on_at_a_block),
      cmocka_unit_test(test_memory_that_is_not_there_is_refused),
      cmocka_unit_test(test_memory_is_there_before_it_is_used),
#ifdef LS_HAVE_URING
      cmocka_unit_test(test_a_broken_ring_leaves_nothing_to_the_kernel),
#endif
      cmocka_unit_test(test_the_file_has_no_name)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
