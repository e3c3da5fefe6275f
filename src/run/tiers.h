/* A rank's memory outside its device: the machine's own and a file, and moves between all of them.
 *
 *   ls_tiers *tiers;
 *   LS_TRY(ls_tiers_create(&(ls_tiers_options){.host_bytes = h, .file_bytes = f, .path = "/nvme",
 *                                              .moves = 4}, &tiers, error));
 *   LS_TRY(ls_tiers_begin(tiers, ls_tiers_base(tiers, LS_TIER_HOST), device, bytes, "x", error));
 *   LS_TRY(ls_tiers_end(tiers, ls_tiers_base(tiers, LS_TIER_HOST), NULL, error));
 *
 * Places in the file are addresses too, in a range that nothing can read or write: only what is
 * here. The file is read and written by io_uring with O_DIRECT; where one of them is not to be had,
 * by threads or through the page cache. Memory of a device that the host cannot address goes
 * through the device's functions, and to and from the file by way of a buffer of the host's.
 * Between begin and end the caller leaves both places alone. Used by one thread at a time; moves
 * run beside it. Nothing is allocated once created. */
#ifndef LS_RUN_TIERS_H
#define LS_RUN_TIERS_H

#include "device/device.h"

typedef struct ls_tiers ls_tiers;

typedef struct ls_tiers_options {
  int64_t host_bytes, file_bytes; /* either may be 0 */
  const char *path;               /* folder of the file; not read where it has no bytes */
  const ls_memory_calls *memory;  /* of the device; NULL: the host is one */
  int moves;                      /* most that are under way at once */
  bool no_ring, no_direct;        /* for tests: as if io_uring or O_DIRECT were not there */
} ls_tiers_options;

/* Reserves everything: memory has its pages, the file its blocks and no name any more, so it goes
 * with the process. Errors: LS_INPUT where the folder takes no file; LS_REFUTED where the disk has
 * too little room, with both numbers; LS_FAILED where memory is short. */
LS_CHECKED ls_status ls_tiers_create(const ls_tiers_options *options, ls_tiers **tiers,
                                     ls_error *error);

/* Waits for moves under way; copies that have not begun are dropped. */
void ls_tiers_destroy(ls_tiers **tiers);

/* The first byte of LS_TIER_HOST or LS_TIER_NVME; 4096-aligned, zero at first. NULL: no bytes. */
char *ls_tiers_base(const ls_tiers *tiers, ls_tier tier);

/* The tier that an address is of. */
ls_tier ls_tiers_of(const ls_tiers *tiers, const void *address);

/* Begins to copy; one end at most lies in the file, and then both are multiples of 4096, with room
 * up to the next behind `bytes`. `name` is for errors and must stay. LS_FAILED: the system's reason
 * with folder and name. */
LS_CHECKED ls_status ls_tiers_begin(ls_tiers *tiers, void *to, const void *from, int64_t bytes,
                                    const char *name, ls_error *error);

/* When a move began and ended, in nanoseconds of CLOCK_MONOTONIC; of one in the file the end is
 * when it was noticed. */
typedef struct ls_tiers_span {
  int64_t begin_ns, end_ns;
} ls_tiers_span;

/* Waits for the move to this address. `span` may be NULL. */
LS_CHECKED ls_status ls_tiers_end(ls_tiers *tiers, const void *to, ls_tiers_span *span,
                                  ls_error *error);

/* Any bytes of the file, at once: for loading and saving. Not while they are moved. */
LS_CHECKED ls_status ls_tiers_read(const ls_tiers *tiers, void *data, const void *from,
                                   int64_t bytes, ls_error *error);
LS_CHECKED ls_status ls_tiers_write(const ls_tiers *tiers, void *to, const void *data,
                                    int64_t bytes, ls_error *error);

/* What the file is not accessed by, as a line for people; NULL: io_uring and O_DIRECT. */
const char *ls_tiers_note(const ls_tiers *tiers);

#endif
