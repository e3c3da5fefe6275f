/* Messages between members that cannot read each other's buffers, by the world's transport. */
#include <string.h>

#include "comm/world.h"

bool ls_group_needs_message(const ls_group *group, int member, const ls_posting *posting) {
  const ls_world *world = group->comm->world;
  if (member == group->rank) return false;
  const int rank = group->members[member];
  if (world->process[rank] == world->process[group->comm->rank]) return false;
  return group->seats[member] < 0 || posting->arena < 0;
}

void ls_transfers_clear(ls_group *group) {
  memset(group->transfers, 0, (size_t)group->size * sizeof *group->transfers);
}

uint64_t ls_group_tag(const ls_group *group, ls_stream stream, int member) {
  return group->earlier[member] * LS_STREAMS + (uint64_t)stream;
}

static ls_status start(ls_group *group, ls_stream stream, ls_request_set *set, int member,
                       bool receive, ls_error *error) {
  ls_comm *comm = group->comm;
  ls_transport *transport = comm->world->transport;
  ls_peer_transfer *transfer = &group->transfers[member];
  const int peer = group->members[member];
  const uint64_t tag = ls_group_tag(group, stream, member);
  const size_t longest = comm->world->message_bytes;
  const size_t whole = receive ? transfer->in_bytes : transfer->out_bytes;
  const size_t bytes = whole < longest ? whole : longest;
  ls_request *request = &set->requests[set->count++];
  request->active = false;
  ls_error cause = {0};
  const ls_status status = receive
                               ? transport->start(transport, true, peer, comm->rank, tag,
                                                  transfer->in, bytes, request, &cause)
                               : transport->start(transport, false, comm->rank, peer, tag,
                                                  (void *)transfer->out, bytes, request, &cause);
  return status == LS_OK ? LS_OK : ls_comm_give_up(comm, error, "%s", cause.text);
}

ls_status ls_requests_start(ls_group *group, ls_stream stream, int which, ls_error *error) {
  ls_request_set *set = &group->comm->request_sets[which];
  set->count = 0;
  for (int step = 1; step < group->size; step++) {
    const int member = (group->rank + step) % group->size;
    if (group->transfers[member].in_bytes) LS_TRY(start(group, stream, set, member, true, error));
    if (group->transfers[member].out_bytes) LS_TRY(start(group, stream, set, member, false, error));
  }
  return LS_OK;
}

static ls_status test(ls_comm *comm, ls_request *request, ls_error *error) {
  ls_error cause = {0};
  if (comm->world->transport->test(comm->world->transport, request, &cause) == LS_OK) return LS_OK;
  return ls_comm_give_up(comm, error, "%s", cause.text);
}

ls_status ls_requests_finish(ls_group *group, int which, ls_error *error) {
  ls_comm *comm = group->comm;
  ls_request_set *set = &comm->request_sets[which];
  ls_wait wait = {.comm = comm};
  for (int i = 0; i < set->count; i++) {
    ls_request *request = &set->requests[i];
    for (;;) {
      if (request->active) LS_TRY(test(comm, request, error));
      if (!request->active) break;
      wait.peer = request->peer;
      LS_TRY(ls_wait_turn(&wait, error));
    }
  }
  set->count = 0;
  /* Once this process has said that it knows of an abort, the senders' memory is theirs again: what
   * has come since may be anything. */
  return ls_control_aborted(comm->world->control, error) ? LS_FAILED : LS_OK;
}

ls_status ls_exchange(ls_group *group, ls_stream stream, ls_error *error) {
  const size_t longest = group->comm->world->message_bytes;
  for (;;) {
    bool left = false;
    for (int i = 0; i < group->size; i++) {
      left = left || group->transfers[i].in_bytes || group->transfers[i].out_bytes;
    }
    if (!left) return LS_OK;
    LS_TRY(ls_requests_start(group, stream, 0, error));
    LS_TRY(ls_requests_finish(group, 0, error));
    /* Transfers longer than a message go in several: the next round takes what is left. */
    for (int i = 0; i < group->size; i++) {
      ls_peer_transfer *transfer = &group->transfers[i];
      const size_t in = transfer->in_bytes < longest ? transfer->in_bytes : longest;
      const size_t out = transfer->out_bytes < longest ? transfer->out_bytes : longest;
      transfer->in += in;
      transfer->in_bytes -= in;
      transfer->out += out;
      transfer->out_bytes -= out;
    }
  }
}

void ls_lanes_cancel(ls_comm *comm) {
  ls_transport *transport = comm->world->transport;
  for (int l = 0; transport && l < 2; l++) {
    ls_request_set *set = &comm->request_sets[l];
    for (int i = 0; i < set->count; i++) {
      if (set->requests[i].active) transport->cancel(transport, &set->requests[i]);
    }
    set->count = 0;
  }
  for (int i = 0; i < comm->sendings.count; i++) {
    ls_request *request = &comm->sendings.items[i].request;
    if (request->active) transport->cancel(transport, request);
  }
}
