/* Plans as a picture: every layout that was compiled. */
#include <stdio.h>

#include "base/written_file.h"
#include "cli/plan_report.h"
#include "watch/front_picture.h"

static void add_row(const ls_plan_report *report, int machine, const ls_plan_row *row,
                    ls_front *front) {
  const ls_planned *of = &report->answers[machine].planned;
  *LS_APPEND(front->arena, &front->points) =
      (ls_front_point){.seconds = row->seconds,
                       .bytes = (double)row->bytes,
                       .money = ls_planned_money(of, row->seconds),
                       .machine = machine,
                       .fits = row->fits,
                       .best = row->proved && ls_plan_report_on_front(report, of, row),
                       .layout = ls_plan_print(front->arena, row)};
}

static void make_front(ls_arena *arena, const ls_plan_report *report, ls_front *front) {
  const char **machines = LS_NEW_ARRAY(arena, const char *, report->count);
  const ls_planned *first = &report->answers[0].planned;
  *front = (ls_front){.arena = arena, .machines = machines, .machine_count = report->count};
  for (int m = 0; m < report->count; m++) {
    const ls_planned *of = &report->answers[m].planned;
    machines[m] = of->text;
    if (of->cluster && of->cluster->hour > 0) front->currency = of->cluster->currency;
    for (int r = 0; r < of->plan->rows.count; r++)
      add_row(report, m, &of->plan->rows.items[r], front);
    for (int r = 0; r < of->plan->too_large.count; r++)
      add_row(report, m, &of->plan->too_large.items[r], front);
  }
  front->title =
      ls_arena_printf(arena, "%s on %s%s: %d layouts", first->session->run->model, first->text,
                      report->count > 1 ? " and others" : "", front->points.count);
}

ls_status ls_plan_report_draw(ls_arena *arena, const ls_plan_report *report, const char *path,
                              ls_error *error) {
  ls_front front;
  make_front(arena, report, &front);
  ls_written_file file;
  LS_TRY(ls_written_file_begin(&file, error));
  ls_front_svg(&front, file.to);
  LS_TRY(ls_written_file_end(&file, path, error));
  fprintf(stderr, "written: %s\n", path);
  return LS_OK;
}
