/* What tests of the planner share: a model, a batch and devices of the catalog to plan for. */
#ifndef LS_PLAN_TEST_PLAN_H
#define LS_PLAN_TEST_PLAN_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plan/task.h"

static inline void pose(ls_arena *arena, const char *model, int64_t batch, const char *on,
                        ls_plan_task *made) {
  ls_catalog *catalog;
  ls_error error = {0};
  if (ls_model_find(arena, model, &made->model, &error) != LS_OK ||
      ls_catalog_read(arena, NULL, &catalog, &error) != LS_OK ||
      ls_plan_task_pose(catalog, on, batch, 512, made, &error) != LS_OK)
    fail_msg("%s on %s: %s", model, on, error.text);
}

static inline ls_plan *plan(ls_arena *arena, const ls_plan_problem *problem) {
  ls_plan *made;
  ls_error error = {0};
  if (ls_plan_make(arena, problem, &made, &error) != LS_OK) fail_msg("%s", error.text);
  return made;
}

#endif
