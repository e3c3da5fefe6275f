/* What a plan's report may print: rows that are proved, and no others. */
#include "cli/plan_report.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* Every row that is printed is proved. */
static void assert_proved(ls_arena *arena, const ls_plan_report *report) {
  int count;
  const ls_planned *of = &report->answers[0].planned;
  assert_true(of->plan->rows.items[0].proved);
  const ls_plan_front_row *front = ls_plan_report_front(arena, report, &count);
  for (int f = 0; f < count && f < LS_PLAN_FRONT_SHOWN; f++) assert_true(front[f].row->proved);
  ls_plan_row **near = ls_plan_report_neighbours(arena, of, &count);
  assert_true(count > 0);
  for (int n = 0; n < count; n++) assert_true(near[n]->proved);
}

static int count_pipelines(const ls_planned *of) {
  int count = 0;
  for (int r = 0; r < of->plan->rows.count; r++)
    count += of->plan->rows.items[r].proved && of->plan->rows.items[r].layout.pp > 1;
  return count;
}

/* On an engine with one queue for all messages pipelines never end: check refuses them. Those that
 * a report would have printed are left out of it, and what it prints in their place is proved. */
static void what_is_refuted_is_not_printed(void **state) {
  (void)state;
  static const ls_queues one = {"one", LS_QUEUE_FOR_ALL, .holds = true, .most_sends = 0};
  static const char *keys[] = {"model=llama-3m", "train.batch=16", "data.seq_len=64",
                               "schedule=1f1b", "chunks=1"};
  for (int broken = 0; broken < 2; broken++) {
    ls_arena *arena = ls_arena_create();
    ls_error error = {0};
    const ls_plan_question question = {.keys = {.keys = keys, .key_count = 5}};
    ls_plan_answer *answer = LS_NEW(arena, ls_plan_answer);
    ls_planned *of = &answer->planned;
    if (ls_plan_pose(arena, &question, "4xA100-SXM-80", 0, of, &error) != LS_OK ||
        ls_planned_search(arena, of, &error) != LS_OK)
      fail_msg("%s", error.text);
    ls_device_facts facts = *of->problem.facts;
    if (broken) facts.queues = &one;
    of->problem.facts = &facts;
    const ls_plan_report report = {&question, answer, 1};
    ls_plan_report_prove(arena, &report);
    assert_proved(arena, &report);
    if (broken) assert_true(of->plan->refuted > 0);
    if (broken)
      assert_int_equal(count_pipelines(of), 0);
    else
      assert_true(count_pipelines(of) > 0 && !of->plan->refuted);
    ls_arena_destroy(&arena);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_refuted_is_not_printed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
