/* What is asked of `lockstep plan`, and the problem that it is on a machine.
 *
 *   LS_TRY(ls_plan_question_model(arena, words, &question, error));
 *   LS_TRY(ls_plan_pose(arena, &question, "64xH100-SXM", 0, &planned, error));
 *   LS_TRY(ls_planned_search(arena, &planned, error));
 *
 * Called by the main thread. */
#ifndef LS_CLI_PLAN_PROBLEM_H
#define LS_CLI_PLAN_PROBLEM_H

#include "cli/command.h"
#include "cluster/cluster.h"
#include "plan/plan.h"
#include "session/session.h"

typedef struct ls_plan_question {
  ls_words keys;          /* with the model among them where a bare one was given */
  const char *task;       /* NULL: the run says all */
  const char *chosen_for; /* why it is this task where nobody said; NULL: somebody did */
  const char *devices, *tokens_text, *within_text, *budget_text; /* as given; NULL: not */
  double tokens, within_s, budget;                               /* 0: not asked */
  ls_plan_objective objective;
  bool all;
} ls_plan_question;

/* A machine that is planned for. Its problem points into it: it stays where it is. */
typedef struct ls_planned {
  const char *text;          /* as it was asked for; "this machine" */
  const ls_cluster *cluster; /* NULL: this machine */
  ls_performance performance;
  ls_plan_problem problem;
  ls_training training;
  const ls_run_file *run;    /* with what the task sets */
  const char *conventions;   /* what the task set, and its source; NULL: nothing */
  const ls_session *session; /* of the run, under no layout that matters */
  ls_plan *plan;
  double peak_flops; /* of one device */
} ls_planned;

/* Takes the run file or the bare model that the words name, and the task. LS_INPUT: a key that is
 * given twice, an unknown task. */
LS_CHECKED ls_status ls_plan_question_model(ls_arena *arena, const ls_words *words,
                                            ls_plan_question *question, ls_error *error);

/* The problem on the machine `on` (NULL: this one); `devices` of 0: as many as it says itself.
 * LS_INPUT: no such machine, keys that plan cannot keep. In the arena. */
LS_CHECKED ls_status ls_plan_pose(ls_arena *arena, const ls_plan_question *question, const char *on,
                                  int devices, ls_planned *made, ls_error *error);

/* Fills plan. LS_INPUT: axes that do not divide the devices, or as ls_plan_make. */
LS_CHECKED ls_status ls_planned_search(ls_arena *arena, ls_planned *of, ls_error *error);

/* The run with a layout's keys. In the arena. */
ls_run_file *ls_planned_run(ls_arena *arena, const ls_planned *of, const ls_plan_row *row);

/* The best row; NULL: none fits. */
const ls_plan_row *ls_planned_best(const ls_planned *of);

/* What a row needs of what it has too little of: "24.55 of 23.99 GiB", or "61.2 of 64.0 GiB of the
 * host's memory a device". In the arena. */
const char *ls_planned_needs(ls_arena *arena, const ls_planned *of, const ls_plan_row *row);

/* Tokens of a step; tokens a second of the best row, 0 where none fits. */
double ls_planned_step_tokens(const ls_planned *of);
double ls_planned_rate(const ls_planned *of);

/* Money of so many seconds on the machine; 0: its price is not known. */
double ls_planned_money(const ls_planned *of, double seconds);

/* Seconds that so many tokens take with a layout. */
double ls_planned_seconds(const ls_planned *of, const ls_plan_row *row, double tokens);

#endif
