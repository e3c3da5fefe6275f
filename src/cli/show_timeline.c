#include "cli/show_timeline.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/written_file.h"
#include "schedule/chunks.h"

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

static bool ends_with(const char *text, const char *end) {
  const size_t length = strlen(text), tail = strlen(end);
  return length > tail && strcmp(text + length - tail, end) == 0;
}

ls_status ls_timeline_check_name(const char *path, const char *otherwise, ls_error *error) {
  if (ends_with(path, ".svg") || ends_with(path, ".json")) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "--timeline %s: expected a name that ends with .svg (a picture) or .json (for "
                 "Perfetto)%s",
                 path, otherwise);
}

ls_status ls_timeline_write(const ls_timeline *timeline, const char *path, ls_error *error) {
  ls_written_file file;
  LS_TRY(ls_written_file_begin(&file, error));
  if (ends_with(path, ".svg"))
    ls_timeline_svg(timeline, file.to);
  else
    ls_timeline_json(timeline, file.to);
  return ls_written_file_end(&file, path, error);
}

ls_status ls_show_timeline(ls_arena *arena, const ls_session *session, const char *path,
                           ls_error *error) {
  const ls_layout *layout = &session->layout;
  const bool file = strcmp(path, "-") != 0;
  if (file) LS_TRY(ls_timeline_check_name(path, ", or - for the terminal alone", error));
  ls_pipeline *pipeline;
  ls_pipeline_times *times;
  LS_TRY(ls_chunks_pipeline(arena, layout, &pipeline, error));
  LS_TRY(ls_pipeline_times_make(arena, pipeline, &ls_pipeline_unit_costs, &times, error));
  ls_pipeline_print(pipeline, times, terminal_columns(), stdout);
  print_bubble(layout, pipeline, times);
  if (!file) return LS_OK;
  LS_TRY(ls_timeline_write(
      ls_timeline_plan(arena, pipeline, times, session->stages[LS_SESSION_STEP], pipeline->name),
      path, error));
  printf("written: %s\n", path);
  return LS_OK;
}
