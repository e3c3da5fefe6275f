#include "comm/engine.h"

#include <string.h>

#include "comm/world.h"

const ls_engine *const ls_engines[] = {&ls_engine_direct, &ls_engine_peer, &ls_engine_nccl,
                                       &ls_engine_staged};
const int ls_engine_count = sizeof ls_engines / sizeof *ls_engines;

enum { ENGINES = sizeof ls_engines / sizeof *ls_engines };

static bool has_queues(const ls_device_facts *facts) {
  for (int e = 0; e < ENGINES; e++)
    if (ls_engines[e]->queues == facts->queues) return true;
  return false;
}

ls_status ls_world_start(const ls_device_facts *facts, const ls_world_options *options,
                         ls_world **world, ls_error *error) {
  *world = NULL;
  if (!has_queues(facts))
    return ls_fail(error, LS_INPUT,
                   "%s (%s): this build has no engine that moves its data (%s); expected a device "
                   "of this machine's",
                   facts->name, facts->set, facts->queues->name);
  if (options->ranks_here > 0 && options->ranks_here < options->ranks)
    return ls_world_create_mpi(options, world, error);
  LS_TRY(ls_world_create_threads(options->ranks, world, error));
  ls_world_set_deadline(*world, options->deadline_s);
  return LS_OK;
}

/* Whether an engine may carry this rank's data. */
static bool may_carry(const ls_engine *engine, const ls_carrier_options *of) {
  const ls_device_facts *facts = &of->device->facts;
  const bool asked = !facts->engine || strcmp(facts->engine, engine->name) == 0;
  return asked && (engine->queues == facts->queues || engine->queues == facts->also) &&
         engine->serves(of);
}

static ls_status refuse(const ls_carrier_options *of, ls_error *error) {
  const ls_device_facts *facts = &of->device->facts;
  const char *apart = ls_comm_apart(of->comm);
  for (int e = 0; e < ENGINES && facts->engine; e++)
    if (strcmp(ls_engines[e]->name, facts->engine) == 0)
      return ls_fail(error, LS_INPUT,
                     "comm.engine: %s does not carry the data of this run, which is not all that "
                     "it needs: %s%s%s; take auto",
                     facts->engine, ls_engines[e]->needs, apart ? ". " : "", apart ? apart : "");
  return ls_fail(error, LS_INPUT, "%s: no engine carries data between these ranks", facts->name);
}

ls_status ls_engine_choose(const ls_carrier_options *of, ls_group *everyone,
                           const ls_engine **chosen, ls_error *error) {
  const ls_device_facts *facts = &of->device->facts;
  *chosen = &ls_engine_direct;
  if (of->device->memory->addressable) return facts->engine ? refuse(of, error) : LS_OK;
  int64_t refused[ENGINES];
  for (int e = 0; e < ENGINES; e++) refused[e] = !may_carry(ls_engines[e], of);
  LS_TRY(ls_all_reduce(everyone, refused, ENGINES, LS_I64, LS_MAX, error));
  for (int e = 0; e < ENGINES; e++) {
    if (refused[e]) continue;
    *chosen = ls_engines[e];
    return LS_OK;
  }
  return refuse(of, error);
}

ls_transfer_bytes ls_transfer_bytes_of(const ls_transfer *of) {
  const size_t width = ls_dtype_bytes(of->dtype), all = (size_t)of->count * width;
  const size_t shard = (size_t)ls_group_shard(of->group, of->count, of->group->rank).count * width;
  size_t in = width, out = width;
  switch (of->kind) {
    case LS_REDUCE_SCATTER: return (ls_transfer_bytes){all, shard};
    case LS_ALL_GATHER: return (ls_transfer_bytes){shard, all};
    case LS_RECEIVE: return (ls_transfer_bytes){0, all};
    case LS_SEND: return (ls_transfer_bytes){all, 0};
    case LS_ALL_TO_ALL:
      for (int d = 0; d < of->reshard.ndim; d++) {
        in *= (size_t)of->reshard.source[d];
        out *= (size_t)of->reshard.target[d];
      }
      return (ls_transfer_bytes){in, out};
    default: return (ls_transfer_bytes){all, all};
  }
}

size_t ls_transfer_beside(const ls_transfer *of) {
  const ls_transfer_bytes bytes = ls_transfer_bytes_of(of);
  if (of->kind == LS_ALL_TO_ALL) return bytes.in + bytes.out;
  return of->kind == LS_REDUCE_SCATTER && of->accumulate ? bytes.out : 0;
}

bool ls_transfer_lasts(ls_collective kind) {
  return kind == LS_SEND || kind == LS_SUM_NUMBERS;
}
