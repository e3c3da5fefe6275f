#include "cli/show_memory_map.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "watch/memory_map.h"

ls_status ls_show_memory_map(const ls_session *session, const ls_program *program, const char *path,
                             ls_error *error) {
  const size_t length = strlen(path);
  if (length < 5 || strcmp(path + length - 4, ".svg") != 0)
    return ls_fail(error, LS_INPUT, "--memory-map %s: expected a name that ends with .svg", path);
  char *text = NULL;
  size_t bytes = 0;
  FILE *stream = open_memstream(&text, &bytes);
  if (!stream) return ls_fail(error, LS_FAILED, "out of memory for a picture");
  const char *title = ls_arena_printf(session->arena, "%s: %s", session->run->model,
                                      ls_layout_print(session->arena, &session->layout));
  ls_memory_map_svg(program, title, stream);
  ls_status status;
  if (fclose(stream) != 0)
    status = ls_fail(error, LS_FAILED, "%s: out of memory for a picture", path);
  else
    status = ls_file_write(path, text, bytes, error);
  free(text);
  if (status == LS_OK) printf("written: %s\n", path);
  return status;
}
