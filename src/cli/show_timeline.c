#include "cli/show_timeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/file.h"
#include "schedule/chunks.h"
#include "watch/timeline.h"

static int terminal_columns(void) {
  struct winsize size;
  if (isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20)
    return size.ws_col;
  return 120;
}

static void print_bubble(const ls_layout *layout, const ls_pipeline *pipeline,
                         const ls_pipeline_times *times) {
  const ls_pipeline_kind *kind;
  ls_error error = {0};
  printf("bubble: %.2f %% of the step counted with F = I = W = 1", 100 * times->bubble);
  if (ls_pipeline_kind_find(layout->schedule ? layout->schedule : "1f1b", &kind, &error) == LS_OK) {
    const double formula = kind->bubble(pipeline->stages, pipeline->chunks, pipeline->microbatches);
    if (formula >= 0)
      printf("; %.2f %% between a stage's first and last pass, by the formula %s%.2f %% (%s)",
             100 * times->steady_bubble, kind->bubble_is_bound ? "at most " : "", 100 * formula,
             kind->source);
  }
  printf("\n");
}

static ls_status write_svg(const ls_pipeline *pipeline, const ls_pipeline_times *times,
                           const char *path, ls_error *error) {
  char *text = NULL;
  size_t bytes = 0;
  FILE *stream = open_memstream(&text, &bytes);
  if (!stream) return ls_fail(error, LS_FAILED, "out of memory for a picture");
  ls_timeline_svg(pipeline, times, pipeline->name, stream);
  fclose(stream);
  const ls_status status = ls_file_write(path, text, bytes, error);
  free(text);
  return status;
}

ls_status ls_show_timeline(ls_arena *arena, const ls_layout *layout, const char *path,
                           ls_error *error) {
  const size_t length = strlen(path);
  const bool svg = length > 4 && strcmp(path + length - 4, ".svg") == 0;
  if (!svg && strcmp(path, "-") != 0)
    return ls_fail(error, LS_INPUT,
                   "--timeline %s: expected a name that ends with .svg, or - for "
                   "the terminal alone",
                   path);
  ls_pipeline *pipeline;
  ls_pipeline_times *times;
  LS_TRY(ls_chunks_pipeline(arena, layout, &pipeline, error));
  LS_TRY(ls_pipeline_times_make(arena, pipeline, &ls_pipeline_unit_costs, &times, error));
  ls_pipeline_print(pipeline, times, terminal_columns(), stdout);
  print_bubble(layout, pipeline, times);
  if (!svg) return LS_OK;
  LS_TRY(write_svg(pipeline, times, path, error));
  printf("written: %s\n", path);
  return LS_OK;
}
