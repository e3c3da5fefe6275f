#include "cli/show_memory_map.h"

#include <string.h>

#include "base/written_file.h"
#include "watch/memory_map.h"

ls_status ls_show_memory_map(const ls_session *session, const ls_program *program, const char *path,
                             ls_error *error) {
  const size_t length = strlen(path);
  if (length < 5 || strcmp(path + length - 4, ".svg") != 0)
    return ls_fail(error, LS_INPUT, "--memory-map %s: expected a name that ends with .svg", path);
  ls_written_file file;
  LS_TRY(ls_written_file_begin(&file, error));
  const char *title = ls_arena_printf(session->arena, "%s: %s", session->run->model,
                                      ls_layout_print(session->arena, &session->layout));
  ls_memory_map_svg(program, title, file.to);
  LS_TRY(ls_written_file_end(&file, path, error));
  printf("written: %s\n", path);
  return LS_OK;
}
