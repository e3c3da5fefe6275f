#include "comm/engine.h"

static ls_status start_threads(const ls_world_options *options, ls_world **world, ls_error *error) {
  LS_TRY(ls_world_create_threads(options->ranks, world, error));
  ls_world_set_deadline(*world, options->deadline_s);
  return LS_OK;
}

const ls_engine ls_engines[] = {
    {"threads", &ls_queues_in_process, false, start_threads},
    {"MPI", &ls_queues_in_process, true, ls_world_create_mpi},
};
const int ls_engine_count = sizeof ls_engines / sizeof *ls_engines;

const ls_engine *ls_engine_find(const ls_device_facts *facts, bool processes) {
  for (int e = 0; e < ls_engine_count; e++)
    if (ls_engines[e].queues == facts->queues && (ls_engines[e].processes || !processes))
      return &ls_engines[e];
  return NULL;
}

ls_status ls_world_start(const ls_device_facts *facts, const ls_world_options *options,
                         ls_world **world, ls_error *error) {
  *world = NULL;
  const bool processes = options->ranks_here > 0 && options->ranks_here < options->ranks;
  const ls_engine *engine = ls_engine_find(facts, processes);
  if (engine) return engine->start(options, world, error);
  return ls_fail(error, LS_INPUT,
                 "%s (%s): this build has no engine that moves its data (%s)%s; expected a device "
                 "of this machine's",
                 facts->name, facts->set, facts->queues->name,
                 processes ? " between processes" : "");
}
