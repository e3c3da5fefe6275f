/* The engine of memory that the host addresses: collectives are done where they begin, a message
 * where it ends. */
#include "comm/engine.h"
#include "comm/world.h"

static bool serves(const ls_carrier_options *of) {
  return of->device->memory->addressable;
}

static ls_status open(const ls_carrier_options *of, ls_carrier **carrier, ls_error *error) {
  (void)error;
  *carrier = LS_NEW(of->comm->memory, ls_carrier);
  (*carrier)->of = *of;
  return LS_OK;
}

static ls_status join(ls_carrier *carrier, ls_group *group, const ls_group_use *use,
                      ls_error *error) {
  (void)carrier, (void)group, (void)use, (void)error;
  return LS_OK;
}

static ls_status begin(ls_carrier *carrier, const ls_transfer *of, ls_error *error) {
  const ls_device *device = carrier->of.device;
  const size_t width = ls_dtype_bytes(of->dtype);
  LS_TRY(device->wait(carrier->of.queue, error));
  switch (of->kind) {
    case LS_ALL_REDUCE:
      if (of->target != of->source)
        LS_TRY(device->memory->copy(of->target, of->source, (size_t)of->count * width, error));
      return ls_all_reduce(of->group, of->target, of->count, of->dtype, of->reduce, error);
    case LS_REDUCE_SCATTER:
      return ls_reduce_scatter(of->group, of->target, of->source, of->count, of->dtype,
                               of->accumulate, error);
    case LS_ALL_GATHER:
      return ls_all_gather(of->group, of->target, of->source, of->count, of->dtype, error);
    case LS_ALL_TO_ALL:
      return ls_reshard(of->group, of->target, of->source, &of->reshard, of->dtype, error);
    case LS_PERMUTE:
      return ls_permute(of->group, of->target, of->source, of->count, of->shift, of->dtype, error);
    case LS_SEND:
      return ls_send_begin(of->group, of->source, of->count, of->dtype, of->peer, error);
    case LS_SUM_NUMBERS: return ls_sum_begin(of->group, of->source, (int)of->count, error);
    default: return LS_OK;
  }
}

static ls_status end(ls_carrier *carrier, const ls_transfer *of, ls_error *error) {
  if (ls_collective_is_of_group(of->kind)) return LS_OK;
  LS_TRY(carrier->of.device->wait(carrier->of.queue, error));
  if (of->kind == LS_SEND) return ls_send_end(of->group, of->peer, error);
  if (of->kind == LS_RECEIVE)
    return ls_receive(of->group, of->target, of->count, of->dtype, of->peer, error);
  return ls_sum_end(of->group, of->target, (int)of->count, error);
}

static void close(ls_carrier **carrier) {
  *carrier = NULL;
}

const ls_engine ls_engine_direct = {.name = "direct",
                                    .words = "in the host's memory",
                                    .needs = "memory that the host addresses",
                                    .queues = &ls_queues_in_process,
                                    .serves = serves,
                                    .open = open,
                                    .join = join,
                                    .begin = begin,
                                    .end = end,
                                    .close = close};
