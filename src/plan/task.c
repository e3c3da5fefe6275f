/* Problems for tests and measurements of the planner. */
#include "plan/task.h"

ls_status ls_plan_task_pose(ls_catalog *catalog, const char *on, int64_t batch, int64_t sequence,
                            ls_plan_task *task, ls_error *error) {
  ls_cluster *cluster;
  LS_TRY(ls_cluster_read(catalog, on, &cluster, error));
  if (!ls_device_facts_of(cluster->accelerator, &task->facts))
    return ls_fail(error, LS_INPUT, "%s: no kernels are known for this device; take another", on);
  LS_TRY(ls_performance_of(&task->facts, cluster, &task->performance, error));
  task->training = (ls_training){.model = &task->model, .batch = batch, .sequence = sequence};
  task->problem = (ls_plan_problem){.training = &task->training,
                                    .base = ls_layout_default(),
                                    .facts = &task->facts,
                                    .performance = &task->performance,
                                    .devices = cluster->devices,
                                    .limit = task->facts.memory_bytes};
  task->problem.base.compute = LS_BF16;
  task->problem.base.sequence_parallel = true;
  task->problem.base.prefetch = 1;
  return LS_OK;
}
