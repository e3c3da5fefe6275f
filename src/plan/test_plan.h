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

#include "plan/plan.h"

/* A model, a batch and devices of the catalog to plan for. */
typedef struct task {
  ls_model_config model;
  ls_training training;
  ls_device_facts facts;
  ls_performance performance;
  ls_plan_problem problem;
} task;

static inline void pose(ls_arena *arena, const char *model, int64_t batch, const char *on,
                        task *made) {
  ls_catalog *catalog;
  ls_cluster *cluster;
  ls_error error = {0};
  if (ls_model_find(arena, model, &made->model, &error) != LS_OK ||
      ls_catalog_read(arena, NULL, &catalog, &error) != LS_OK ||
      ls_cluster_read(catalog, on, &cluster, &error) != LS_OK ||
      !ls_device_facts_of(cluster->accelerator, &made->facts) ||
      ls_performance_of(&made->facts, cluster, &made->performance, &error) != LS_OK)
    fail_msg("%s on %s: %s", model, on, error.text);
  made->training = (ls_training){.model = &made->model, .batch = batch, .sequence = 512};
  made->problem = (ls_plan_problem){.training = &made->training,
                                    .base = ls_layout_default(),
                                    .facts = &made->facts,
                                    .performance = &made->performance,
                                    .devices = cluster->devices,
                                    .limit = made->facts.memory_bytes};
  made->problem.base.compute = LS_BF16;
  made->problem.base.sequence_parallel = true;
  made->problem.base.prefetch = 1;
}

static inline ls_plan *plan(ls_arena *arena, const ls_plan_problem *problem) {
  ls_plan *made;
  ls_error error = {0};
  if (ls_plan_make(arena, problem, &made, &error) != LS_OK) fail_msg("%s", error.text);
  return made;
}

#endif
