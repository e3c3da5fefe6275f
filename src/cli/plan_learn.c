#include "cli/plan_learn.h"

#include <stdio.h>
#include <string.h>

#include "cli/command.h"
#include "cli/hardware.h"
#include "cli/simulate_against.h"
#include "sim/sim.h"
#include "train/run_folder.h"

/* What is learned is of the processor. */
static ls_status read_run(ls_arena *arena, const char *folder, ls_run_file **run, ls_error *error) {
  const char *path;
  LS_TRY(ls_run_folder_file(arena, folder, &path, error));
  LS_TRY(ls_run_file_read(arena, path, NULL, 0, run, error));
  if (!ls_hardware_takes_gpus(arena, *run)) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "--learn %s: it takes this machine's GPUs, and what is learned is of the "
                 "processor; expected a run with device.kind: cpu",
                 folder);
}

/* The run's step on this machine as lockstep bench alone knows it, instruction by instruction. */
static ls_status simulate(ls_arena *arena, ls_run_file *run, const ls_rates *rates,
                          const ls_timeline **timeline, ls_error *error) {
  int devices;
  ls_session *session;
  LS_TRY(ls_command_devices(NULL, run, &devices, error));
  LS_TRY(ls_session_create(arena, run, devices, devices, &session, error));
  ls_rates *bare = LS_NEW(arena, ls_rates);
  *bare = *rates;
  bare->residuals.count = 0;
  const ls_performance performance =
      ls_performance_here(bare, &session->device.facts, rates->key.cores, devices);
  const ls_program *const *stages = session->stages[LS_SESSION_STEP];
  ls_simulation *simulation;
  LS_TRY(ls_simulate(arena, stages, &performance, &(ls_sim_options){.records = true}, &simulation,
                     error));
  *timeline = ls_timeline_measured(arena, &(ls_timeline_run){.stages = stages, .title = run->model},
                                   ls_simulation_recording(arena, simulation, &stages[0]->mesh),
                                   LS_TIMELINE_INSTRUCTIONS);
  return LS_OK;
}

ls_status ls_plan_learn(ls_arena *arena, const char *folder, ls_error *error) {
  ls_run_file *run;
  const ls_rates *kept;
  const ls_timeline *timeline;
  ls_kind_comparison found;
  LS_TRY(read_run(arena, folder, &run, error));
  LS_TRY(ls_hardware_rates_here(arena, &kept, error));
  LS_TRY(simulate(arena, run, kept, &timeline, error));
  if (ls_compare_kinds(arena, timeline, folder, &found, error) != LS_OK)
    return ls_error_prefix(error, "--learn");
  ls_rates made = *kept;
  printf("%-26s %12s %12s %9s %12s\n", "a rank, ms", "simulated", "measured", "ratio",
         "kept, of runs");
  for (int k = 0; k < found.kinds.count; k++) {
    const ls_kind_seconds *each = &found.kinds.items[k];
    if (ls_op_find(each->name) == LS_OP_COUNT || !(each->simulated > 0) || !(each->measured > 0))
      continue;
    ls_rates_learn(arena, &made, each->name, each->measured / each->simulated);
    int runs = 0;
    for (int r = 0; r < made.residuals.count; r++)
      if (strcmp(made.residuals.items[r].kind, each->name) == 0)
        runs = made.residuals.items[r].ratios.count;
    printf("  %-24s %12.3f %12.3f %9.3f %7.3f, %3d\n", each->name, each->simulated * 1e3,
           each->measured * 1e3, each->measured / each->simulated,
           ls_rates_residual(&made, each->name), runs);
  }
  return ls_rates_write(&made, error);
}

ls_status ls_plan_forget(ls_arena *arena, ls_error *error) {
  const ls_rates *kept;
  LS_TRY(ls_hardware_rates_here(arena, &kept, error));
  ls_rates made = *kept;
  made.residuals.count = 0;
  printf("forgotten: what was learned of %d kinds of op\n", kept->residuals.count);
  return ls_rates_write(&made, error);
}
