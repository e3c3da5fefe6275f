/* A file without a name, read and written in the background: inside this room.
 *
 *   ls_tier_file *file;
 *   LS_TRY(ls_tier_file_create(path, bytes, false, false, &file, error));
 *   ls_tier_file_begin(file, &job);
 *   ls_tier_file_wait(file, &job);
 *
 * A job is the caller's and stays until it was waited for. Used by one thread at a time. */
#ifndef LS_RUN_TIER_FILE_H
#define LS_RUN_TIER_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "lockstep/status.h"

typedef struct ls_tier_file ls_tier_file;

typedef struct ls_file_job {
  char *memory;
  int64_t offset, bytes; /* of the file */
  bool writes;
  int64_t asked, done; /* bytes handed out, bytes copied; 0 at first */
  int reason;          /* errno of the first failure; 0: none */
  struct ls_file_job *next;
} ls_file_job;

/* As ls_tiers_create. */
LS_CHECKED ls_status ls_tier_file_create(const char *path, int64_t bytes, bool no_ring,
                                         bool no_direct, ls_tier_file **file, ls_error *error);
void ls_tier_file_destroy(ls_tier_file **file);

void ls_tier_file_begin(ls_tier_file *file, ls_file_job *job);

/* job->reason says how it went. */
void ls_tier_file_wait(ls_tier_file *file, ls_file_job *job);

/* At once, any bytes: 0 or errno. */
int ls_tier_file_read(const ls_tier_file *file, void *data, int64_t offset, int64_t bytes);
int ls_tier_file_write(const ls_tier_file *file, const void *data, int64_t offset, int64_t bytes);

/* At once, whole blocks of memory and file: 0 or errno. Any thread may. */
int ls_tier_file_blocks(const ls_tier_file *file, bool writes, char *memory, int64_t offset,
                        int64_t bytes);

const char *ls_tier_file_note(const ls_tier_file *file);

#endif
