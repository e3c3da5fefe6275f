/* The communicators of a rank: which it needs, made in one order on all ranks, and closed. */
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "comm/nccl.h"

enum { NUMBERS_BYTES = LS_MOST_SENDS * LS_MOST_NUMBERS * sizeof(double), ALIGNMENT = 256 };

/* Longest wait for the others at the end. */
static const int64_t LEAVE_NS = (int64_t)10 * 1000000000;

/* Multiprocessors that messages and sums of one communicator may take, where there are enough. */
enum { MESSAGE_BLOCKS = 4, TOGETHER_BLOCKS = 16 };

/* ---- what is needed -------------------------------------------------------------------------- */

/* Groups of all members have the same one where their members lie alike: then they are apart. */
static int64_t signature_of(const ls_group *group, int size) {
  bool all = group->size == size;
  uint64_t hash = 0xcbf29ce484222325u;
  for (int i = 0; i < group->size; i++) {
    all = all && group->members[i] == i;
    hash = (hash ^ (uint64_t)(uint32_t)(group->members[i] - group->members[0])) * 0x100000001b3u;
  }
  return all ? 0 : (int64_t)(hash >> 2 | (uint64_t)1 << 62);
}

/* Pairs as far apart form rows, in which each rank is in two: every other one is in one split. */
static int64_t signature_of_pair(const ls_group *group, bool up) {
  const int from = group->members[0], to = group->members[1];
  const int apart = from < to ? to - from : from - to, low = from < to ? from : to;
  return (int64_t)apart * 4 + low / apart % 2 * 2 + up + 1;
}

static ls_status add_channel(ls_nccl *self, const ls_nccl_channel *like, ls_nccl_channel **made,
                             ls_error *error) {
  for (int c = 0; c < self->channels.count; c++) {
    ls_nccl_channel *each = self->channels.items[c];
    if (each->signature != like->signature) continue;
    if (each->color != like->color || each->key != like->key)
      return ls_fail(error, LS_INTERNAL, "two groups of a rank are neither the same nor apart");
    if (like->beside > each->beside) each->beside = like->beside;
    *made = each;
    return LS_OK;
  }
  ls_nccl_channel *channel = *made = LS_NEW(self->memory, ls_nccl_channel);
  *channel = *like;
  *LS_APPEND(self->memory, &self->channels) = channel;
  LS_TRY(ls_lane_open(self->begun.calls, self->carrier.of.queue, &channel->lane, error));
  return ls_begun_prepare(&self->begun, &channel->lane, error);
}

ls_status ls_nccl_add_group(ls_nccl *self, const ls_group *group, const ls_group_use *use,
                            ls_error *error) {
  ls_nccl_group *made = LS_APPEND(self->memory, &self->groups);
  *made = (ls_nccl_group){.group = group};
  if (group->size == 1) return LS_OK;
  int low = group->members[0];
  for (int i = 1; i < group->size; i++)
    if (group->members[i] < low) low = group->members[i];
  ls_nccl_channel like = {.color = low, .key = group->rank, .beside = use->beside};
  like.signature = signature_of(group, self->carrier.of.comm->world->size);
  if (use->together) LS_TRY(add_channel(self, &like, &made->together, error));
  if (!use->messages) return LS_OK;
  like.messages = true;
  like.beside = 0;
  /* Those that go to the higher rank have one, those that come from it the other. */
  const bool lowest = group->members[group->rank] == low;
  like.signature = signature_of_pair(group, true);
  LS_TRY(add_channel(self, &like, lowest ? &made->out : &made->in, error));
  like.signature = signature_of_pair(group, false);
  return add_channel(self, &like, lowest ? &made->in : &made->out, error);
}

ls_nccl_group *ls_nccl_group_of(const ls_nccl *self, const ls_group *group) {
  int g = 0;
  while (self->groups.items[g].group != group) g++;
  return &self->groups.items[g];
}

/* ---- waiting --------------------------------------------------------------------------------- */

static ls_status poll(ls_nccl *self, ls_communicator *of, bool *busy, ls_error *error) {
  pthread_mutex_lock(&self->watch.lock);
  ls_status status = LS_OK;
  *busy = false;
  if (atomic_load(&self->watch.failed))
    status = ls_control_aborted(self->carrier.of.comm->world->control, error) ? LS_FAILED : LS_OK;
  else
    status = ls_nccl_calls_of(self)->poll(of, busy, error);
  pthread_mutex_unlock(&self->watch.lock);
  return status;
}

ls_status ls_nccl_settle(ls_nccl *self, ls_communicator *of, ls_error *error) {
  ls_wait wait = {.comm = self->carrier.of.comm, .peer = -1};
  for (;;) {
    bool busy;
    LS_TRY(poll(self, of, &busy, error));
    if (!busy) return LS_OK;
    LS_TRY(ls_wait_turn(&wait, error));
  }
}

ls_status ls_nccl_find_failure(void *context, ls_error *error) {
  ls_nccl *self = context;
  bool busy;
  const ls_communicator_calls *calls = ls_nccl_calls_of(self);
  if (self->first) LS_TRY(calls->poll(self->first, &busy, error));
  for (int c = 0; c < self->channels.count; c++) {
    ls_communicator *each = self->channels.items[c]->communicator;
    if (each && each != self->first) LS_TRY(calls->poll(each, &busy, error));
  }
  return LS_OK;
}

/* ---- making ---------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b) {
  const int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
  return (left > right) - (left < right);
}

/* The signatures that any rank has, in order, each once; 0s come first and are left out. */
static ls_status agree_on_splits(ls_nccl *self, ls_group *everyone, int64_t **splits, int *count,
                                 ls_error *error) {
  int64_t most = self->channels.count;
  LS_TRY(ls_all_reduce(everyone, &most, 1, LS_I64, LS_MAX, error));
  const int64_t all = most * everyone->size;
  int64_t *found = LS_NEW_ARRAY(self->memory, int64_t, (size_t)all + 1);
  int64_t *own = found + most * everyone->rank;
  for (int c = 0; c < self->channels.count; c++) own[c] = self->channels.items[c]->signature;
  if (all) LS_TRY(ls_all_gather(everyone, found, own, all, LS_I64, error));
  qsort(found, (size_t)all, sizeof *found, by_value);
  *splits = found;
  *count = 0;
  for (int64_t i = 0; i < all; i++)
    if (found[i] && (!*count || found[i] != found[*count - 1])) found[(*count)++] = found[i];
  return LS_OK;
}

/* Together they never fill the device, so that none waits for room that another one holds. */
static int blocks_of(const ls_nccl *self, bool messages) {
  int pairs = 0, others = 1; /* the first one */
  for (int c = 0; c < self->channels.count; c++) {
    pairs += self->channels.items[c]->messages;
    others += !self->channels.items[c]->messages && self->channels.items[c]->signature;
  }
  const int room = self->carrier.of.device->facts.processors / 2;
  const int most = messages ? MESSAGE_BLOCKS : TOGETHER_BLOCKS;
  const int shared = (room - (messages ? 0 : MESSAGE_BLOCKS * pairs)) / (messages ? pairs : others);
  return shared < 1 ? 1 : shared < most ? shared : most;
}

static ls_status make_first(ls_nccl *self, ls_group *everyone, ls_error *error) {
  const ls_communicator_calls *calls = ls_nccl_calls_of(self);
  const ls_comm *comm = self->carrier.of.comm;
  ls_communicator_id id = {{0}};
  ls_error cause = {0};
  /* Rank 0 says by a last word whether it has one, so that nobody waits for it. */
  int64_t made = everyone->rank || calls->make_id(&id, &cause) == LS_OK;
  LS_TRY(ls_broadcast(everyone, &made, 1, LS_I64, 0, error));
  if (!made)
    return ls_fail(error, LS_FAILED, "%s", *cause.text ? cause.text : "rank 0 has no NCCL id");
  LS_TRY(ls_broadcast(everyone, id.words, sizeof id / sizeof(int64_t), LS_I64, 0, error));
  LS_TRY(calls->create(self->carrier.of.queue, &id, comm->world->size, everyone->rank,
                       blocks_of(self, false), &self->first, error));
  return ls_nccl_settle(self, self->first, error);
}

static ls_status make_split(ls_nccl *self, int64_t signature, ls_error *error) {
  const ls_communicator_calls *calls = ls_nccl_calls_of(self);
  ls_nccl_channel *own = NULL;
  for (int c = 0; c < self->channels.count; c++)
    if (self->channels.items[c]->signature == signature) own = self->channels.items[c];
  ls_communicator *made = NULL;
  const ls_status status = calls->split(self->first, own ? own->color : -1, own ? own->key : 0,
                                        blocks_of(self, own && own->messages), &made, error);
  if (own) own->communicator = made;
  LS_TRY(status);
  LS_TRY(ls_nccl_settle(self, self->first, error));
  if (own) return ls_nccl_settle(self, made, error);
  calls->destroy(made);
  return LS_OK;
}

static size_t rounded(size_t bytes) {
  return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static ls_status give_scratch(ls_nccl *self, ls_error *error) {
  const ls_memory_calls *memory = self->carrier.of.device->memory;
  size_t bytes = 0;
  for (int c = 0; c < self->channels.count; c++)
    if (!self->channels.items[c]->messages)
      bytes += rounded(self->channels.items[c]->beside) + rounded(NUMBERS_BYTES);
  if (!bytes) return LS_OK;
  int none;
  self->scratch = memory->reserve(bytes, false, &none);
  if (!self->scratch)
    return ls_fail(error, LS_FAILED, "out of memory: %zu bytes beside the operands of transfers",
                   bytes);
  self->scratch_bytes = bytes;
  char *next = self->scratch;
  for (int c = 0; c < self->channels.count; c++) {
    ls_nccl_channel *each = self->channels.items[c];
    if (each->messages) continue;
    each->scratch = next;
    each->numbers = next + rounded(each->beside);
    next = each->numbers + rounded(NUMBERS_BYTES);
  }
  return LS_OK;
}

static ls_status keep_memory(const ls_nccl *self, ls_nccl_channel *of, ls_error *error) {
  const ls_communicator_calls *calls = ls_nccl_calls_of(self);
  const ls_comm *comm = self->carrier.of.comm;
  for (int a = 0; a < comm->arena_count; a++)
    if (comm->arenas[a].memory.of == self->carrier.of.device->memory && comm->arenas[a].memory.base)
      LS_TRY(calls->keep(of->communicator, comm->arenas[a].memory.base,
                         comm->arenas[a].memory.bytes, &of->kept[a], error));
  if (!self->scratch) return LS_OK;
  return calls->keep(of->communicator, self->scratch, self->scratch_bytes, &of->kept[LS_MAX_ARENAS],
                     error);
}

ls_status ls_nccl_connect(ls_nccl *self, ls_group *everyone, ls_error *error) {
  int64_t *splits;
  int count;
  self->carrier.of.comm->current_call.name = "making communicators";
  LS_TRY(give_scratch(self, error));
  LS_TRY(agree_on_splits(self, everyone, &splits, &count, error));
  LS_TRY(make_first(self, everyone, error));
  for (int s = 0; s < count; s++) LS_TRY(make_split(self, splits[s], error));
  for (int c = 0; c < self->channels.count; c++) {
    ls_nccl_channel *each = self->channels.items[c];
    if (!each->signature) each->communicator = self->first;
    LS_TRY(keep_memory(self, each, error));
  }
  return LS_OK;
}

/* ---- closing --------------------------------------------------------------------------------- */

void ls_nccl_abort(void *context) {
  ls_nccl *self = context;
  atomic_store(&self->watch.failed, true);
  if (self->given_up) return;
  self->given_up = true;
  const ls_communicator_calls *calls = ls_nccl_calls_of(self);
  for (int c = 0; c < self->channels.count; c++) {
    ls_communicator **of = &self->channels.items[c]->communicator;
    if (*of != self->first) calls->abort(*of);
    *of = NULL;
  }
  calls->abort(self->first);
  self->first = NULL;
}

/* Whether nobody has failed so far; lets news of it come in. */
static bool is_peaceful(const ls_nccl *self, int64_t until) {
  const struct timespec turn = {.tv_nsec = 50 * 1000};
  const ls_world *world = self->carrier.of.comm->world;
  nanosleep(&turn, NULL);
  if (world->transport) world->transport->poll(world->transport);
  return !ls_control_aborted(world->control, NULL) && ls_now_ns() < until;
}

/* Whether a communicator has come to its end on all its ranks. */
static bool has_finished(const ls_nccl *self, ls_communicator *of, int64_t until) {
  for (bool busy = true; busy;) {
    if (ls_nccl_calls_of(self)->poll(of, &busy, NULL) != LS_OK) return false;
    if (busy && !is_peaceful(self, until)) return false;
  }
  return true;
}

/* Whether all that has begun has ended on the device as well. */
static bool all_passed(const ls_nccl *self, int64_t until) {
  for (int b = 0; b < self->begun.of.count; b++) {
    const ls_begun *each = &self->begun.of.items[b];
    for (bool passed = !each->event; !passed;) {
      if (self->begun.calls->passed(each->event, &passed, NULL) != LS_OK) return false;
      if (!passed && !is_peaceful(self, until)) return false;
    }
  }
  return true;
}

static void forget_memory(ls_nccl *self) {
  for (int c = 0; c < self->channels.count; c++) {
    ls_nccl_channel *each = self->channels.items[c];
    for (int k = 0; each->communicator && k <= LS_MAX_ARENAS; k++)
      ls_nccl_calls_of(self)->forget(each->communicator, each->kept[k]);
    if (each->communicator == self->first) each->communicator = NULL;
  }
}

/* All children begin their end before one is waited for: ranks have them in other orders. */
static bool finish_children(ls_nccl *self, int64_t until) {
  const ls_communicator_calls *calls = ls_nccl_calls_of(self);
  for (int c = 0; c < self->channels.count; c++) {
    ls_communicator *of = self->channels.items[c]->communicator;
    if (of && calls->finish(of, NULL) != LS_OK) return false;
  }
  for (int c = 0; c < self->channels.count; c++) {
    ls_communicator **of = &self->channels.items[c]->communicator;
    if (!*of) continue;
    if (!has_finished(self, *of, until)) return false;
    calls->destroy(*of);
    *of = NULL;
  }
  return true;
}

void ls_nccl_disconnect(ls_nccl *self) {
  const ls_communicator_calls *calls = ls_nccl_calls_of(self);
  const int64_t until = ls_now_ns() + LEAVE_NS;
  bool peace = self->first && is_peaceful(self, until) && all_passed(self, until);
  forget_memory(self);
  peace = peace && finish_children(self, until) && calls->finish(self->first, NULL) == LS_OK &&
          has_finished(self, self->first, until);
  if (peace) {
    calls->destroy(self->first);
    self->first = NULL;
  }
  ls_nccl_abort(self);
}
