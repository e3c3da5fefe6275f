/* A problem of the planner without a run file: a model of the catalog, or one that was read, on
 * machines of the catalog, in bf16 with AdamW.
 *
 *   ls_plan_task task = {.model = config};
 *   LS_TRY(ls_plan_task_pose(catalog, "64xH100-SXM", 512, 4096, &task, error));
 *   LS_TRY(ls_plan_make(arena, &task.problem, &plan, error));
 *
 * Thread-safe as long as no two threads share a catalog. */
#ifndef LS_PLAN_TASK_H
#define LS_PLAN_TASK_H

#include "cluster/cluster.h"
#include "plan/plan.h"

/* Its problem points into it: it stays where it is. */
typedef struct ls_plan_task {
  ls_model_config model;
  ls_training training;
  ls_device_facts facts;
  ls_performance performance;
  ls_plan_problem problem;
} ls_plan_task;

/* Fills all but the model, which is there: `batch` sequences of `sequence` tokens on `on`.
 * LS_INPUT: no such machine, or one whose kernels are not known. */
LS_CHECKED ls_status ls_plan_task_pose(ls_catalog *catalog, const char *on, int64_t batch,
                                       int64_t sequence, ls_plan_task *task, ls_error *error);

#endif
