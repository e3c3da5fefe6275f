/* What `lockstep plan` says of what it found: for people, as JSON and as a picture.
 *
 *   ls_plan_report_print(arena, &report);
 *
 * Called by the main thread. */
#ifndef LS_CLI_PLAN_REPORT_H
#define LS_CLI_PLAN_REPORT_H

#include "cli/plan_counts.h"
#include "cli/plan_problem.h"

enum { LS_PLAN_ROWS_SHOWN = 5, LS_PLAN_FRONT_SHOWN = 10, LS_PLAN_NEIGHBOURS_SHOWN = 16 };

/* A machine with its plan, and those of other counts of its devices. */
typedef struct ls_plan_answer {
  ls_planned planned;
  ls_plan_count more, fewer;
} ls_plan_answer;

typedef struct ls_plan_report {
  const ls_plan_question *question;
  const ls_plan_answer *answers;
  int count;
} ls_plan_report;

/* The machine that is best by what the question asks for; NULL: nothing fits any. */
const ls_planned *ls_plan_report_best(const ls_plan_report *report);

/* Whether no layout that fits one of the machines is as good as the row in step time, money and
 * memory, and better in one. */
bool ls_plan_report_on_front(const ls_plan_report *report, const ls_planned *of,
                             const ls_plan_row *row);

/* Proves every row that is printed; those that are refuted are left out of their plans, and others
 * take their places. Comes before what follows. */
void ls_plan_report_prove(ls_arena *arena, const ls_plan_report *report);

/* Of one machine all that explains its best layouts; of several what they are to each other, and
 * that of the best. */
void ls_plan_report_print(ls_arena *arena, const ls_plan_report *report);
void ls_plan_report_json(const ls_plan_report *report);

/* Every compiled layout by step time, memory and money, as SVG. LS_FAILED: cannot be written. */
LS_CHECKED ls_status ls_plan_report_draw(ls_arena *arena, const ls_plan_report *report,
                                         const char *path, ls_error *error);

/* "1.234 s", "3.2 h": in the arena. */
const char *ls_plan_duration(ls_arena *arena, double seconds);

/* A layout as a line of a table, and the heads of that. */
void ls_plan_print_heads(const ls_plan_report *report, const ls_planned *of);
void ls_plan_print_row(ls_arena *arena, const ls_plan_report *report, const ls_planned *of,
                       const ls_plan_row *row);

/* Rows of all machines that are on the front, the fastest first; *count of them. In the arena. */
typedef struct ls_plan_front_row {
  const ls_planned *of;
  ls_plan_row *row;
} ls_plan_front_row;
ls_plan_front_row *ls_plan_report_front(ls_arena *arena, const ls_plan_report *report, int *count);

/* Compiled layouts that differ from the best in one choice, the fastest first, as many as are
 * printed; *count of them. In the arena. */
ls_plan_row **ls_plan_report_neighbours(ls_arena *arena, const ls_planned *of, int *count);

/* What the machines are to each other. */
void ls_plan_print_comparison(ls_arena *arena, const ls_plan_report *report);

/* The term that most of what is not computing goes to. */
ls_plan_term ls_plan_largest_wait(const ls_plan_row *row);

/* What the devices that `many` has over `few`, of one kind, are worth: "one is enough: ...". In the
 * arena. */
const char *ls_plan_verdict(ls_arena *arena, const ls_planned *few, const ls_planned *many);

#endif
