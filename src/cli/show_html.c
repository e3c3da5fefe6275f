#include "cli/show_html.h"

#include <stdio.h>

#include "base/written_file.h"
#include "cli/show_candidates.h"
#include "watch/page.h"

static void describe(const ls_session *session, ls_page_layout *made) {
  made->about = ls_layout_print(session->arena, &session->layout);
  made->stages = session->stages[LS_SESSION_STEP];
}

static bool same_layout(const ls_page_layout *a, const ls_page_layout *b) {
  const ls_layout *one = &a->stages[0]->layout, *other = &b->stages[0]->layout;
  for (int axis = 0; axis < LS_LAYOUT_AXES; axis++)
    if (ls_layout_size(one, axis) != ls_layout_size(other, axis)) return false;
  return one->ep == other->ep &&
         (ls_layout_shards(one) * one->cp == 1 || one->zero == other->zero) &&
         one->microbatches == other->microbatches &&
         one->sequence_parallel == other->sequence_parallel;
}

static ls_status write_page(const ls_page_layout *layouts, int count, const char *title,
                            const char *path, ls_error *error) {
  ls_written_file file;
  LS_TRY(ls_written_file_begin(&file, error));
  ls_page_write(layouts, count, title, file.to);
  return ls_written_file_end(&file, path, error);
}

ls_status ls_show_html(const ls_session *session, const ls_run_file *run, const char *path,
                       ls_error *error) {
  ls_arena *arena = session->arena;
  const int devices = session->devices;
  int candidate_count, count = 1;
  const ls_candidate *candidates = ls_candidates_make(arena, devices, &candidate_count);
  ls_page_layout *layouts = LS_NEW_ARRAY(arena, ls_page_layout, 1 + candidate_count);
  layouts[0].name = "this run";
  describe(session, &layouts[0]);
  for (int c = 0; c < candidate_count; c++) {
    if (!candidates[c].drawn) continue;
    ls_error refusal = {0};
    ls_page_layout *made = &layouts[count];
    *made = (ls_page_layout){.name = candidates[c].name};
    ls_session *other;
    if (ls_candidate_open(arena, run, devices, &candidates[c], &other, &refusal) == LS_OK)
      describe(other, made);
    else
      made->refused = ls_arena_strdup(arena, refusal.text);
    if (!made->refused && same_layout(made, &layouts[0]))
      layouts[0].name = ls_arena_printf(arena, "%s (this run)", candidates[c].name);
    else
      count++;
  }
  const char *title = ls_arena_printf(arena, "%s on %d device%s: one training step",
                                      session->run->model, devices, devices == 1 ? "" : "s");
  LS_TRY(write_page(layouts, count, title, path, error));
  printf("written: %s\n", path);
  return LS_OK;
}
