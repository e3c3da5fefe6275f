/* A file that is made as a stream, and then is there whole or not at all: pictures, pages, tables.
 *
 *   ls_written_file file;
 *   LS_TRY(ls_written_file_begin(&file, error));
 *   fprintf(file.to, "%d\n", 42);
 *   LS_TRY(ls_written_file_end(&file, "answer.txt", error));
 *
 * One thread at a time. */
#ifndef LS_BASE_WRITTEN_FILE_H
#define LS_BASE_WRITTEN_FILE_H

#include <stdio.h>

#include "lockstep/status.h"

typedef struct ls_written_file {
  FILE *to; /* into memory */
  char *text;
  size_t bytes;
} ls_written_file;

/* LS_FAILED where there is no memory. Else ls_written_file_end comes behind it, once. */
LS_CHECKED ls_status ls_written_file_begin(ls_written_file *file, ls_error *error);

/* Writes `path` as ls_file_write does, and frees what was made. */
LS_CHECKED ls_status ls_written_file_end(ls_written_file *file, const char *path, ls_error *error);

#endif
