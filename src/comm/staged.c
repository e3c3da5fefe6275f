/* The engine of memory that the host cannot address: the direct engine carries a mirror of it in
 * the host's. */
#include <string.h>

#include "comm/engine.h"
#include "comm/world.h"

enum { ALIGNMENT = 64 };

/* What stays as it is until its end, in a slot of the mirror. */
typedef struct lasting {
  const ls_group *group;
  ls_collective kind;
  int peer, slot;
} lasting;

typedef struct staged {
  ls_carrier carrier;
  ls_device host; /* in the device's place: the mirror's memory, and no kernels to wait for */
  ls_carrier *direct;
  char *base;
  size_t whole; /* bytes of the largest operand: one read and one written come first */
  size_t slot_bytes;
  bool *taken; /* by slot */
  int slots;
  lasting *begun; /* oldest first */
  int begun_count;
} staged;

static bool serves(const ls_carrier_options *of) {
  return !of->device->memory->addressable;
}

static ls_status no_wait(const ls_device_queue *queue, ls_error *error) {
  (void)queue, (void)error;
  return LS_OK;
}

static size_t rounded(size_t bytes) {
  return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static ls_status open(const ls_carrier_options *of, ls_carrier **carrier, ls_error *error) {
  ls_arena *memory = of->comm->memory;
  staged *made = LS_NEW(memory, staged);
  *carrier = &made->carrier;
  made->carrier.of = *of;
  made->host = *of->device;
  made->host.memory = &ls_host_memory;
  made->host.wait = no_wait;
  ls_carrier_options there = *of;
  there.device = &made->host;
  LS_TRY(ls_engine_direct.open(&there, &made->direct, error));
  made->whole = rounded(of->room.whole);
  made->slot_bytes = rounded(of->room.lasting);
  made->slots = of->room.lasting_count;
  made->taken = LS_NEW_ARRAY(memory, bool, made->slots + 1);
  made->begun = LS_NEW_ARRAY(memory, lasting, made->slots + 1);
  const size_t bytes = 2 * made->whole + (size_t)made->slots * made->slot_bytes;
  void *base;
  LS_TRY(ls_comm_arena(of->comm, &ls_host_memory, bytes, &base, error));
  made->base = base;
  return LS_OK;
}

static ls_status join(ls_carrier *carrier, ls_group *group, const ls_group_use *use,
                      ls_error *error) {
  (void)carrier, (void)group, (void)use, (void)error;
  return LS_OK;
}

static void close(ls_carrier **carrier) {
  *carrier = NULL;
}

static char *slot_at(const staged *self, int slot) {
  return self->base + 2 * self->whole + (size_t)slot * self->slot_bytes;
}

/* A slot for what begins now. */
static char *take_slot(staged *self, const ls_transfer *of) {
  int slot = 0;
  while (self->taken[slot]) slot++;
  LS_ASSERT(slot < self->slots);
  self->taken[slot] = true;
  self->begun[self->begun_count++] = (lasting){of->group, of->kind, of->peer, slot};
  return slot_at(self, slot);
}

/* The slot of what ends now, the oldest of its kind; it is free from the next beginning on. */
static char *give_slot(staged *self, const ls_transfer *of) {
  int b = 0;
  while (self->begun[b].group != of->group || self->begun[b].kind != of->kind ||
         self->begun[b].peer != of->peer)
    b++;
  LS_ASSERT(b < self->begun_count);
  const int slot = self->begun[b].slot;
  self->begun_count--;
  memmove(&self->begun[b], &self->begun[b + 1], sizeof(lasting) * (size_t)(self->begun_count - b));
  self->taken[slot] = false;
  return slot_at(self, slot);
}

/* The same transfer of the mirror's memory. */
static ls_transfer mirrored(const staged *self, const ls_transfer *of, char *slot) {
  ls_transfer there = *of;
  const bool one = ls_transfer_lasts(of->kind) || of->kind == LS_ALL_REDUCE;
  there.source = slot ? slot : self->base;
  there.target = one ? there.source : self->base + self->whole;
  return there;
}

/* Whether a transfer leaves some of what it writes as it was. */
static bool keeps_some(const ls_transfer *of) {
  return of->accumulate || of->kind == LS_ALL_TO_ALL;
}

static ls_status begin(ls_carrier *carrier, const ls_transfer *of, ls_error *error) {
  staged *self = (staged *)carrier;
  const ls_device *device = carrier->of.device;
  const ls_transfer_bytes bytes = ls_transfer_bytes_of(of);
  if (of->kind == LS_RECEIVE) return LS_OK;
  LS_TRY(device->wait(carrier->of.queue, error));
  const bool lasts = ls_transfer_lasts(of->kind);
  const ls_transfer there = mirrored(self, of, lasts ? take_slot(self, of) : NULL);
  LS_TRY(device->memory->read(there.source, of->source, bytes.in, error));
  if (keeps_some(of)) LS_TRY(device->memory->read(there.target, of->target, bytes.out, error));
  LS_TRY(ls_engine_direct.begin(self->direct, &there, error));
  return lasts ? LS_OK : device->memory->write(of->target, there.target, bytes.out, error);
}

static ls_status end(ls_carrier *carrier, const ls_transfer *of, ls_error *error) {
  staged *self = (staged *)carrier;
  const ls_device *device = carrier->of.device;
  const size_t out = ls_transfer_bytes_of(of).out;
  if (ls_collective_is_of_group(of->kind)) return LS_OK;
  LS_TRY(device->wait(carrier->of.queue, error));
  const bool lasts = ls_transfer_lasts(of->kind);
  const ls_transfer there = mirrored(self, of, lasts ? give_slot(self, of) : NULL);
  LS_TRY(ls_engine_direct.end(self->direct, &there, error));
  return out ? device->memory->write(of->target, there.target, out, error) : LS_OK;
}

const ls_engine ls_engine_staged = {.name = "staged",
                                    .words = "through the host's memory",
                                    .needs = "memory that the host does not address",
                                    .said =
                                        ", which is slow: NCCL, or peer access between all GPUs "
                                        "of one host, is what would carry it",
                                    .queues = &ls_queues_in_process,
                                    .serves = serves,
                                    .open = open,
                                    .join = join,
                                    .begin = begin,
                                    .end = end,
                                    .close = close};
