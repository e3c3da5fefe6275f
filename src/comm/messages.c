/* Data for one receiver each: all-to-all, send and receive, and sums made of such messages. */
#include <string.h>

#include "comm/comm.h"
#include "comm/world.h"

/* What the member on `seat` has for each other. */
static ls_portion *portions_of(const ls_group *group, int seat) {
  return ls_control_at(group->comm->world->control, atomic_load(&group->slots[seat].portions));
}

/* Says where in this rank's buffer each reader finds its part; *whole: bytes of all. */
static ls_status post_portions(ls_group *group, const int64_t *counts, size_t width, size_t *whole,
                               ls_error *error) {
  ls_slot *own = &group->slots[group->seat];
  if (!atomic_load(&own->portions)) {
    uint64_t made;
    LS_TRY(ls_control_carve(group->comm->world->control,
                            (size_t)group->seat_count * sizeof(ls_portion), &made, error));
    atomic_store(&own->portions, made);
  }
  ls_portion *portions = portions_of(group, group->seat);
  *whole = 0;
  for (int i = 0; i < group->size; i++) {
    const size_t bytes = (size_t)counts[i] * width;
    if (group->seats[i] >= 0) portions[group->seats[i]] = (ls_portion){*whole, bytes};
    *whole += bytes;
  }
  return LS_OK;
}

/* Copies what `member` has for this rank, or leaves it to a message. */
static ls_status take_portion(ls_group *group, int member, char *target, size_t bytes,
                              ls_error *error) {
  if (group->seats[member] >= 0) {
    const ls_portion *portion = &portions_of(group, group->seats[member])[group->seat];
    if (portion->bytes != bytes) {
      return ls_comm_give_up(group->comm, error,
                             "all-to-all: %zu bytes expected of rank %d, which sends %llu", bytes,
                             group->members[member], (unsigned long long)portion->bytes);
    }
    if (group->peers[member]) {
      if (bytes) memcpy(target, (char *)group->peers[member] + portion->offset, bytes);
      return LS_OK;
    }
  }
  group->transfers[member].in = target;
  group->transfers[member].in_bytes = bytes;
  return LS_OK;
}

static ls_status all_to_all(ls_group *group, char *target, const int64_t *receive_counts,
                            const char *source, const int64_t *send_counts, ls_dtype dtype,
                            ls_error *error) {
  const size_t width = ls_dtype_bytes(dtype);
  const ls_posting call = {.kind = LS_CALL_ALL_TO_ALL, .dtype = (int32_t)dtype};
  size_t whole;
  LS_TRY(post_portions(group, send_counts, width, &whole, error));
  LS_TRY(ls_call_begin(group, &call, (void *)source, whole, LS_ALL_MEMBERS, error));
  ls_transfers_clear(group);
  size_t sent = 0, received = 0;
  for (int i = 0; i < group->size; i++) {
    const size_t out_bytes = (size_t)send_counts[i] * width;
    const size_t in_bytes = (size_t)receive_counts[i] * width;
    if (ls_group_needs_message(group, i, ls_call_own(group))) {
      group->transfers[i].out = source + sent;
      group->transfers[i].out_bytes = out_bytes;
    }
    LS_TRY(take_portion(group, i, target + received, in_bytes, error));
    sent += out_bytes;
    received += in_bytes;
  }
  LS_TRY(ls_exchange(group, LS_COLLECTIVES, error));
  const size_t kept = (size_t)send_counts[group->rank] * width;
  ls_count_sent(group->comm, (int64_t)(sent - kept));
  return ls_call_end(group, true, error);
}

ls_status ls_all_to_all(ls_group *group, void *target, const int64_t *receive_counts,
                        const void *source, const int64_t *send_counts, ls_dtype dtype,
                        ls_error *error) {
  int64_t total = 0;
  for (int i = 0; i < group->size; i++) {
    if (send_counts[i] < 0 || receive_counts[i] < 0) {
      return ls_fail(error, LS_INTERNAL, "all-to-all: a negative count for member %d", i);
    }
    total += send_counts[i];
  }
  LS_TRY(ls_call_check(group, LS_CALL_ALL_TO_ALL, total, dtype, false, error));
  if (send_counts[group->rank] != receive_counts[group->rank]) {
    return ls_fail(error, LS_INTERNAL,
                   "all-to-all: a rank sends itself another count than it takes");
  }
  if (group->size == 1) {
    if (total) memcpy(target, source, (size_t)total * ls_dtype_bytes(dtype));
    return LS_OK;
  }
  return ls_call_conclude(
      group, all_to_all(group, target, receive_counts, source, send_counts, dtype, error));
}

/* The message itself, where the receiver cannot read the sender's memory. */
static ls_status carry(ls_group *group, int member, const char *out, char *in, size_t bytes,
                       ls_error *error) {
  ls_transfers_clear(group);
  group->transfers[member] = (ls_peer_transfer){
      .out = out, .in = in, .out_bytes = out ? bytes : 0, .in_bytes = in ? bytes : 0};
  return ls_exchange(group, LS_MESSAGES, error);
}

/* The channel from seat `from` among those from `newest` to `end`; NULL: none. */
static ls_channel *search(ls_control *control, uint64_t newest, uint64_t end, int from) {
  for (uint64_t at = newest; at != end;) {
    ls_channel *each = ls_control_at(control, at);
    if (each->from == from) return each;
    at = each->next;
  }
  return NULL;
}

/* Finds the flags of the direction from seat `from` to seat `to`, or makes them: either end may be
 * the first to need them. Where both are at once, what one of them has carved lies idle. */
static ls_status attach(ls_group *group, int from, int to, ls_channel **found, ls_error *error) {
  ls_control *control = group->comm->world->control;
  ls_slot *slot = &group->slots[to];
  uint64_t newest = atomic_load(&slot->channels), made;
  *found = search(control, newest, 0, from);
  if (*found) return LS_OK;
  LS_TRY(ls_control_carve(control, sizeof **found, &made, error));
  ls_channel *own = ls_control_at(control, made);
  own->from = from;
  own->next = newest;
  while (!atomic_compare_exchange_strong(&slot->channels, &newest, made)) {
    *found = search(control, newest, own->next, from);
    if (*found) return LS_OK;
    own->next = newest;
  }
  *found = own;
  return LS_OK;
}

/* The flags of a direction; *channel is NULL where the two share none. */
static ls_status find_channel(ls_group *group, int from, int to, ls_channel **channel,
                              ls_error *error) {
  ls_channel **kept = from == group->rank ? &group->out[to] : &group->in[from];
  ls_status status = LS_OK;
  if (!*kept && group->seats[from] >= 0 && group->seats[to] >= 0)
    status = attach(group, group->seats[from], group->seats[to], kept, error);
  *channel = *kept;
  return status;
}

/* Posts the next message: the receiver's flag goes to 2 number - 1 as it starts to read, to
 * 2 number when it is through. */
static ls_posting post(ls_group *group, ls_channel *channel, void *data, size_t bytes,
                       const ls_posting *call, int to) {
  const uint32_t number = ++group->sent[to];
  ls_posting own = *call;
  ls_arena_locate(group->comm, data, bytes, &own);
  if (channel) {
    channel->postings[number % LS_MOST_SENDS] = own;
    ls_flag_raise(&channel->sent, number);
  }
  return own;
}

static ls_status send_to(ls_group *group, ls_channel *channel, void *data, size_t bytes,
                         const ls_posting *call, int to, ls_error *error) {
  ls_comm *comm = group->comm;
  const ls_posting own = post(group, channel, data, bytes, call, to);
  const uint32_t number = group->sent[to];
  group->ended[to] = number;
  if (ls_group_needs_message(group, to, &own)) {
    LS_TRY(carry(group, to, data, NULL, bytes, error));
  }
  ls_count_sent(comm, (int64_t)bytes);
  if (!channel) return LS_OK;
  return ls_wait_flag(comm, &channel->taken, 2 * number, group->members[to], error);
}

/* Waits for the next message; *theirs: where it lies, NULL where it cannot be read. */
static ls_status see_message(ls_group *group, ls_channel *channel, const ls_posting *call, int from,
                             const void **theirs, ls_error *error) {
  ls_comm *comm = group->comm;
  const uint32_t number = group->taken[from];
  LS_TRY(ls_wait_flag(comm, &channel->sent, number, group->members[from], error));
  ls_flag_raise(&channel->taken, 2 * number - 1);
  if (ls_control_aborted(comm->world->control, error)) return LS_FAILED;
  const ls_posting *posting = &channel->postings[number % LS_MOST_SENDS];
  LS_TRY(ls_call_agree(group, from, call, posting, error));
  *theirs = ls_arena_view(comm->world, comm->rank, group->members[from], posting);
  return LS_OK;
}

static ls_status receive_from(ls_group *group, ls_channel *channel, void *data, size_t bytes,
                              const ls_posting *call, int from, ls_error *error) {
  const void *theirs;
  group->taken[from]++;
  if (!channel) return carry(group, from, NULL, data, bytes, error);
  LS_TRY(see_message(group, channel, call, from, &theirs, error));
  if (!theirs) LS_TRY(carry(group, from, NULL, data, bytes, error));
  if (theirs && bytes) memcpy(data, theirs, bytes);
  ls_receive_taken(group, from);
  return LS_OK;
}

void ls_receive_taken(ls_group *group, int from) {
  ls_flag_raise(&group->in[from]->taken, 2 * group->taken[from]);
}

static ls_status check_peer(const ls_group *group, int member, ls_error *error) {
  if (member >= 0 && member < group->size && member != group->rank) return LS_OK;
  return ls_fail(error, LS_INTERNAL, "a message between members %d and %d of a group of %d",
                 group->rank, member, group->size);
}

/* What every send begins with. */
static ls_status check_send(ls_group *group, int64_t count, ls_dtype dtype, int to, int most,
                            ls_error *error) {
  LS_TRY(check_peer(group, to, error));
  LS_TRY(ls_call_check(group, LS_CALL_MESSAGE, count, dtype, false, error));
  const uint32_t under_way = group->sent[to] - group->ended[to];
  if (under_way <= (uint32_t)most) return LS_OK;
  return ls_fail(error, LS_INTERNAL, "a send to rank %d while %u are under way", group->members[to],
                 (unsigned)under_way);
}

ls_status ls_send(ls_group *group, const void *data, int64_t count, ls_dtype dtype, int to,
                  ls_error *error) {
  LS_TRY(check_send(group, count, dtype, to, 0, error));
  const ls_posting call = {.kind = LS_CALL_MESSAGE, .dtype = (int32_t)dtype, .count = count};
  const size_t bytes = (size_t)count * ls_dtype_bytes(dtype);
  ls_channel *channel;
  LS_TRY(find_channel(group, group->rank, to, &channel, error));
  const ls_status status = send_to(group, channel, (void *)data, bytes, &call, to, error);
  if (status == LS_OK) return LS_OK;
  ls_lanes_cancel(group->comm);
  /* The caller may free the data: a receiver that is reading it has the time to end. */
  if (channel) ls_call_leave(group, to, &channel->taken, 2 * group->sent[to]);
  return status;
}

static ls_status test_sending(ls_comm *comm, ls_sending *sending, ls_error *error) {
  ls_error cause = {0};
  ls_transport *transport = comm->world->transport;
  if (transport->test(transport, &sending->request, &cause) == LS_OK) return LS_OK;
  return ls_comm_give_up(comm, error, "%s", cause.text);
}

/* A place for a piece under way. It never waits for an earlier piece to be taken: whom that is for
 * may be sending to this rank just now, and take nothing before it is through. */
static ls_status find_sending(ls_comm *comm, ls_sending **found, ls_error *error) {
  /* One test a call, in turn: each moves all messages, and gives the core away where none moves. */
  const int count = comm->sendings.count;
  if (count > 0) {
    comm->next_tested = (comm->next_tested + 1) % count;
    ls_sending *tested = &comm->sendings.items[comm->next_tested];
    if (tested->request.active) LS_TRY(test_sending(comm, tested, error));
  }
  for (int i = 0; i < count; i++) {
    *found = &comm->sendings.items[i];
    if (!(*found)->request.active) return LS_OK;
  }
  *found = LS_APPEND(comm->memory, &comm->sendings);
  return LS_OK;
}

static ls_status start_messages(ls_group *group, const char *data, size_t bytes, int to,
                                ls_error *error) {
  ls_comm *comm = group->comm;
  ls_transport *transport = comm->world->transport;
  const size_t longest = comm->world->message_bytes;
  for (size_t at = 0; at < bytes; at += longest) {
    const size_t piece = bytes - at < longest ? bytes - at : longest;
    ls_sending *sending;
    LS_TRY(find_sending(comm, &sending, error));
    sending->group = group;
    sending->to = to;
    sending->number = group->sent[to];
    ls_error cause = {0};
    if (transport->start(transport, false, comm->rank, group->members[to],
                         ls_group_tag(group, LS_MESSAGES, to), (void *)(data + at), piece,
                         &sending->request, &cause) != LS_OK)
      return ls_comm_give_up(comm, error, "%s", cause.text);
  }
  return LS_OK;
}

ls_status ls_send_begin(ls_group *group, const void *data, int64_t count, ls_dtype dtype, int to,
                        ls_error *error) {
  LS_TRY(check_send(group, count, dtype, to, LS_MOST_SENDS - 1, error));
  const ls_posting call = {.kind = LS_CALL_MESSAGE, .dtype = (int32_t)dtype, .count = count};
  const size_t bytes = (size_t)count * ls_dtype_bytes(dtype);
  ls_channel *channel;
  LS_TRY(find_channel(group, group->rank, to, &channel, error));
  const ls_posting own = post(group, channel, (void *)data, bytes, &call, to);
  ls_count_sent(group->comm, (int64_t)bytes);
  if (!ls_group_needs_message(group, to, &own)) return LS_OK;
  return start_messages(group, data, bytes, to, error);
}

static ls_status end_send(ls_group *group, int to, ls_error *error) {
  ls_comm *comm = group->comm;
  comm->current_call.name = "waiting for the end of a send";
  const uint32_t number = ++group->ended[to];
  ls_wait wait = {.comm = comm, .peer = group->members[to]};
  for (int i = 0; i < comm->sendings.count; i++) {
    ls_sending *sending = &comm->sendings.items[i];
    const bool asked = sending->group == group && sending->to == to && sending->number == number;
    for (;;) {
      if (asked && sending->request.active) LS_TRY(test_sending(comm, sending, error));
      if (!asked || !sending->request.active) break;
      LS_TRY(ls_wait_turn(&wait, error));
    }
  }
  ls_channel *channel = group->out[to];
  if (!channel) return LS_OK;
  return ls_wait_flag(comm, &channel->taken, 2 * number, group->members[to], error);
}

ls_status ls_send_end(ls_group *group, int to, ls_error *error) {
  LS_TRY(check_peer(group, to, error));
  if (group->sent[to] == group->ended[to])
    return ls_fail(error, LS_INTERNAL, "the end of a send to rank %d: none is under way",
                   group->members[to]);
  const ls_status status = end_send(group, to, error);
  if (status != LS_OK) ls_lanes_cancel(group->comm);
  return status;
}

ls_status ls_receive(ls_group *group, void *data, int64_t count, ls_dtype dtype, int from,
                     ls_error *error) {
  LS_TRY(check_peer(group, from, error));
  LS_TRY(ls_call_check(group, LS_CALL_MESSAGE, count, dtype, false, error));
  const ls_posting call = {.kind = LS_CALL_MESSAGE, .dtype = (int32_t)dtype, .count = count};
  const size_t bytes = (size_t)count * ls_dtype_bytes(dtype);
  ls_channel *channel;
  LS_TRY(find_channel(group, from, group->rank, &channel, error));
  const ls_status status = receive_from(group, channel, data, bytes, &call, from, error);
  if (status == LS_OK) return LS_OK;
  ls_lanes_cancel(group->comm);
  if (channel) ls_flag_raise(&channel->taken, 2 * group->taken[from]);
  return status;
}

ls_status ls_receive_seen(ls_group *group, int64_t count, ls_dtype dtype, int from,
                          const void **theirs, ls_error *error) {
  LS_TRY(check_peer(group, from, error));
  LS_TRY(ls_call_check(group, LS_CALL_MESSAGE, count, dtype, false, error));
  const ls_posting call = {.kind = LS_CALL_MESSAGE, .dtype = (int32_t)dtype, .count = count};
  ls_channel *channel;
  LS_TRY(find_channel(group, from, group->rank, &channel, error));
  LS_ASSERT(channel);
  group->taken[from]++;
  const ls_status status = see_message(group, channel, &call, from, theirs, error);
  if (status != LS_OK) ls_receive_taken(group, from);
  return status;
}

static ls_status check_sum(const ls_group *group, int count, ls_error *error) {
  if (count > 0 && count <= LS_MOST_NUMBERS) return LS_OK;
  return ls_fail(error, LS_INTERNAL, "a sum of %d numbers over %d ranks: at most %d are", count,
                 group->size, LS_MOST_NUMBERS);
}

ls_status ls_sum_begin(ls_group *group, const double *numbers, int count, ls_error *error) {
  LS_TRY(check_sum(group, count, error));
  for (int i = 0; i < group->size; i++)
    if (i != group->rank) LS_TRY(ls_send_begin(group, numbers, count, LS_F64, i, error));
  return LS_OK;
}

ls_status ls_sum_end(ls_group *group, double *numbers, int count, ls_error *error) {
  LS_TRY(check_sum(group, count, error));
  double sums[LS_MOST_NUMBERS] = {0}, theirs[LS_MOST_NUMBERS];
  for (int i = 0; i < group->size; i++) {
    const bool own = i == group->rank;
    if (!own) LS_TRY(ls_receive(group, theirs, count, LS_F64, i, error));
    for (int n = 0; n < count; n++) sums[n] += own ? numbers[n] : theirs[n];
  }
  for (int i = 0; i < group->size; i++)
    if (i != group->rank) LS_TRY(ls_send_end(group, i, error));
  memcpy(numbers, sums, (size_t)count * sizeof *numbers);
  return LS_OK;
}
