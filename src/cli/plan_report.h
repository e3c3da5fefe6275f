/* What `lockstep plan` says of what it found: for people and as JSON.
 *
 *   ls_plan_report_print(arena, &report);
 *
 * Called by the main thread. */
#ifndef LS_CLI_PLAN_REPORT_H
#define LS_CLI_PLAN_REPORT_H

#include "cluster/cluster.h"
#include "plan/plan.h"
#include "session/session.h"

/* A machine that was planned for. */
typedef struct ls_planned {
  const char *text;          /* as it was asked for; "this machine" */
  const ls_cluster *cluster; /* NULL: this machine */
  ls_performance performance;
  ls_plan_problem problem;
  ls_training training;
  const ls_session *session; /* of the run, under no layout that matters */
  ls_plan *plan;
  double peak_flops; /* of one device */
  bool proved;       /* the winner, by check */
} ls_planned;

typedef struct ls_plan_report {
  const ls_planned *machines;
  int count;
  double tokens;                  /* 0: not asked */
  const char *tokens_text, *task; /* task: whose conventions hold; NULL: none */
} ls_plan_report;

/* The best layouts of each machine and, of several, what the machines are to each other. */
void ls_plan_report_print(ls_arena *arena, const ls_plan_report *report);
void ls_plan_report_json(const ls_plan_report *report);

/* Money of so many seconds on the machine; 0: its price is not known. */
double ls_planned_money(const ls_planned *of, double seconds);

/* Seconds that so many tokens take with a layout. */
double ls_planned_seconds(const ls_planned *of, const ls_plan_row *row, double tokens);

/* "1.234 s", "3.2 h": in the arena. */
const char *ls_plan_duration(ls_arena *arena, double seconds);

#endif
