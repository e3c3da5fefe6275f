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

static inline void pose_long(ls_arena *arena, const char *model, int64_t batch, int64_t sequence,
                             const char *on, ls_plan_task *made) {
  ls_catalog *catalog;
  ls_error error = {0};
  if (ls_model_find(arena, model, &made->model, &error) != LS_OK) fail_msg("%s", error.text);
  if (made->model.positions < sequence) made->model.positions = sequence;
  if (ls_catalog_read(arena, NULL, &catalog, &error) != LS_OK ||
      ls_plan_task_pose(catalog, on, batch, sequence, made, &error) != LS_OK)
    fail_msg("%s on %s: %s", model, on, error.text);
}

static inline void pose(ls_arena *arena, const char *model, int64_t batch, const char *on,
                        ls_plan_task *made) {
  pose_long(arena, model, batch, 512, on, made);
}

/* A mixture as small as other models here, of Qwen3's kind. */
static inline void pose_mixture(ls_arena *arena, int64_t batch, int64_t sequence, const char *on,
                                ls_plan_task *made) {
  pose_long(arena, "qwen3-30b-a3b", batch, sequence, on, made);
  made->model.layers = 4;
  made->model.width = 512;
  made->model.heads = 8;
  made->model.experts = 32;
  made->model.experts_per_token = 2;
  made->model.vocabulary = 8192;
}

static inline ls_plan *plan(ls_arena *arena, const ls_plan_problem *problem) {
  ls_plan *made;
  ls_error error = {0};
  if (ls_plan_make(arena, problem, &made, &error) != LS_OK) fail_msg("%s", error.text);
  return made;
}

#endif
