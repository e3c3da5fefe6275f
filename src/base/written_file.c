#include "base/written_file.h"

#include <stdlib.h>

#include "base/file.h"

ls_status ls_written_file_begin(ls_written_file *file, ls_error *error) {
  *file = (ls_written_file){0};
  file->to = open_memstream(&file->text, &file->bytes);
  return file->to ? LS_OK : ls_fail(error, LS_FAILED, "out of memory for a file");
}

ls_status ls_written_file_end(ls_written_file *file, const char *path, ls_error *error) {
  ls_status status;
  const int lost = ferror(file->to);
  if (fclose(file->to) != 0 || lost)
    status = ls_fail(error, LS_FAILED, "%s: out of memory for a file", path);
  else
    status = ls_file_write(path, file->text, file->bytes, error);
  free(file->text);
  *file = (ls_written_file){0};
  return status;
}
