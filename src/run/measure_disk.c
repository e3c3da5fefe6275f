#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/random.h"
#include "run/measure_parts.h"

/* A round is a piece, written and on the drive, or read. Large pieces: a drive is fast only where
 * it is asked for much at once. */
enum { PIECE = 32 << 20, PAGE = 4096 };

/* No longer than this for each way, however slow the drive. */
static const double longest_s = 5;

typedef struct drive {
  measuring *of;
  int file;
  char *piece;
  int64_t pieces; /* written */
} drive;

int ls_measure_disk_count(const measuring *self) {
  return self->options->folder ? 2 : 0;
}

/* The name goes at once, so that nothing stays however this ends. */
static ls_status open_file(drive *self, ls_error *error) {
  const char *folder = self->of->options->folder;
  char *name = ls_arena_printf(self->of->arena, "%s/lockstep-bench-XXXXXX", folder);
  self->file = mkostemp(name, O_CLOEXEC);
  if (self->file < 0)
    return ls_fail(error, LS_INPUT,
                   "%s: %s; expected a folder that can be written to, to measure its drive", folder,
                   strerror(errno));
  unlink(name);
  return LS_OK;
}

static ls_status fail_transfer(const drive *self, const char *what, ssize_t moved,
                               ls_error *error) {
  return ls_fail(error, LS_FAILED, "%s: %s a piece of %d MiB: %s", self->of->options->folder, what,
                 PIECE >> 20, moved < 0 ? strerror(errno) : "the file ended");
}

static ls_status transfer(const drive *self, bool writes, int64_t piece, ls_error *error) {
  for (int64_t at = 0; at < PIECE;) {
    const off_t place = piece * PIECE + at;
    const size_t left = (size_t)(PIECE - at);
    const ssize_t moved = writes ? pwrite(self->file, self->piece + at, left, place)
                                 : pread(self->file, self->piece + at, left, place);
    if (moved < 0 && errno == EINTR) continue;
    if (moved <= 0) return fail_transfer(self, writes ? "writing" : "reading", moved, error);
    at += moved;
  }
  return LS_OK;
}

/* Nothing that could be packed, and no two pieces alike: some drives store less than they get. */
static void fill_piece(drive *self, int64_t piece) {
  uint64_t *words = (uint64_t *)(void *)self->piece;
  for (int64_t i = 0; i < PIECE / (int64_t)sizeof *words; i++) {
    if (piece == 0) words[i] = ls_random_bits(1, 1, (uint64_t)i);
    words[i] += 0x9e3779b97f4a7c15u;
  }
}

static ls_status write_pieces(drive *self, ls_rate *rate, ls_error *error) {
  measuring *of = self->of;
  const int64_t most = (of->options->disk_bytes + PIECE - 1) / PIECE;
  double spent = 0;
  ls_measure_next(of, "drive of %.40s: writing", of->options->folder);
  ls_measure_begin(of);
  while (self->pieces < most && spent < longest_s) {
    fill_piece(self, self->pieces);
    const double begin = ls_now_s();
    LS_TRY(transfer(self, true, self->pieces, error));
    if (fdatasync(self->file) != 0)
      return ls_fail(error, LS_FAILED, "%s: fdatasync: %s", of->options->folder, strerror(errno));
    const double seconds = ls_now_s() - begin;
    ls_measure_add(of, seconds);
    spent += seconds;
    self->pieces++;
  }
  *rate = ls_measure_rate(of, PIECE);
  return LS_OK;
}

/* The share of the file that lies in the page cache; -1: not known. */
static double cached_share(const drive *self) {
  const size_t bytes = (size_t)self->pieces * PIECE, pages = bytes / PAGE;
  unsigned char *there = ls_arena_alloc(self->of->arena, pages);
  void *map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, self->file, 0);
  if (map == MAP_FAILED) return -1;
  size_t count = 0;
  const bool told = mincore(map, bytes, there) == 0;
  for (size_t p = 0; p < pages; p++) count += there[p] & 1;
  munmap(map, bytes);
  return told ? (double)count / (double)pages : -1;
}

/* Reading is to come from the drive. */
static const char *leave_cache(drive *self) {
  posix_fadvise(self->file, 0, 0, POSIX_FADV_DONTNEED);
  const bool dropped = cached_share(self) == 0;
  const int flags = fcntl(self->file, F_GETFL);
  if (flags >= 0 && fcntl(self->file, F_SETFL, flags | O_DIRECT) == 0) {
    if (pread(self->file, self->piece, PAGE, 0) == PAGE)
      return dropped ? "O_DIRECT" : "O_DIRECT, of a file system that keeps files in memory";
    fcntl(self->file, F_SETFL, flags);
  }
  return dropped ? "page cache dropped" : "from the page cache: nothing else works there";
}

static ls_status read_pieces(drive *self, ls_disk_rate *made, ls_error *error) {
  measuring *of = self->of;
  ls_measure_next(of, "drive of %.40s: reading", of->options->folder);
  made->how = leave_cache(self);
  ls_measure_begin(of);
  for (int64_t p = 0; p < self->pieces && ls_now_s() - of->begin_s < longest_s; p++) {
    const double begin = ls_now_s();
    LS_TRY(transfer(self, false, p, error));
    ls_measure_add(of, ls_now_s() - begin);
  }
  made->read = ls_measure_rate(of, PIECE);
  return LS_OK;
}

static ls_status measure_open(drive *self, ls_disk_rate *made, ls_error *error) {
  self->piece = ls_measure_map(PIECE);
  if (!self->piece) return ls_fail(error, LS_FAILED, "no memory for a piece of a file");
  ls_status status = write_pieces(self, &made->write, error);
  if (status == LS_OK) status = read_pieces(self, made, error);
  ls_measure_unmap(self->piece, PIECE);
  return status;
}

ls_status ls_measure_disk(measuring *self, ls_error *error) {
  drive on = {.of = self};
  char *folder = realpath(self->options->folder, NULL);
  ls_disk_rate made = {.folder = ls_arena_strdup(self->arena, folder ? folder : ".")};
  free(folder);
  LS_TRY(open_file(&on, error));
  const ls_status status = measure_open(&on, &made, error);
  close(on.file);
  made.bytes = on.pieces * PIECE;
  if (status == LS_OK) self->rates->disk = made;
  return status;
}
