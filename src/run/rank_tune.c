/* Ways of a device's library for what programs ask of it: of ranks that ask for the same, the first
 * tries them and all take what it found, so that what they compute alike keeps the same bits. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "run/rank_loaded.h"

/* Work that a rank has a choice for. */
typedef struct item {
  int number;      /* on its queue */
  ls_tuned of;     /* what it is */
  int owner, at;   /* the first rank that has it, and where among that one's */
  bool kept, told; /* in this rank's cache; tried here */
  ls_way found, agreed;
} item;

typedef struct tuner {
  ls_rank *rank;
  const ls_rank_options *options;
  const ls_tuning_calls *calls;
  const ls_device_queue *queue;
  ls_arena *arena;
  item *items;
  int count;
  int64_t most; /* items of a rank */
} tuner;

static void list_items(tuner *self) {
  const int all = self->calls->count(self->queue);
  self->items = LS_NEW_ARRAY(self->arena, item, all + 1);
  for (int i = 0; i < all; i++) {
    item *made = &self->items[self->count];
    *made = (item){.number = i};
    self->calls->about(self->queue, i, &made->of);
    self->count += made->of.ways > 1;
  }
}

static ls_status largest(const tuner *self, int64_t *number, ls_error *error) {
  return ls_all_reduce(self->rank->world, number, 1, LS_I64, LS_MAX, error);
}

/* `width` numbers for each item of each rank, and before them as many for the rank itself. */
static ls_status gather(const tuner *self, const int64_t *own, int width, int64_t **all,
                        ls_error *error) {
  const int64_t row = (self->most + 1) * width, ranks = ls_group_size(self->rank->world);
  *all = LS_NEW_ARRAY(self->arena, int64_t, ranks * row);
  return ls_all_gather(self->rank->world, *all, own, ranks * row, LS_I64, error);
}

/* Ranks of other kinds have other keys, so each kind chooses for itself. */
static void say_kinds(const tuner *self, const int64_t *keys) {
  const int64_t row = self->most + 1;
  if (self->rank->number != 0) return;
  for (int64_t r = 1; r < ls_group_size(self->rank->world); r++)
    if (keys[r * row] && keys[0] && keys[r * row] != keys[0]) {
      ls_warn(
          "rank %lld has another GPU or another cuBLASLt than rank 0: each kind takes its own "
          "ways of products, and what both compute alike may part by rounding",
          (long long)r);
      return;
    }
}

static ls_status find_owners(tuner *self, ls_error *error) {
  self->most = self->count;
  LS_TRY(largest(self, &self->most, error));
  if (!self->most) return LS_OK;
  const int64_t row = self->most + 1;
  int64_t *own = LS_NEW_ARRAY(self->arena, int64_t, row), *keys;
  for (int i = 0; i < self->count; i++) own[i + 1] = (int64_t)self->items[i].of.key;
  own[0] = self->count ? (int64_t)self->items[0].of.kind : 0;
  LS_TRY(gather(self, own, 1, &keys, error));
  say_kinds(self, keys);
  for (int i = 0; i < self->count; i++) {
    int64_t at = 0;
    while (at % row == 0 || keys[at] != own[i + 1]) at++;
    self->items[i].owner = (int)(at / row);
    self->items[i].at = (int)(at % row);
  }
  return LS_OK;
}

/* ---- trying ---------------------------------------------------------------------------------- */

/* The rank's own arena, in which nothing is yet, where that is as large. */
static ls_status make_room(const tuner *self, ls_tuning_room *room, bool *own, ls_error *error) {
  const ls_rank *rank = self->rank;
  size_t least = 0, wanted = 0;
  for (int i = 0; i < self->count; i++) {
    const ls_tuned *of = &self->items[i].of;
    if (!self->items[i].told) continue;
    if (of->bytes > least) least = of->bytes;
    if (of->bytes + of->beside > wanted) wanted = of->bytes + of->beside;
  }
  *room = (ls_tuning_room){rank->base, rank->workspace, (size_t)rank->bytes, rank->workspace_bytes};
  *own = (size_t)rank->bytes < wanted;
  if (!*own) return LS_OK;
  int none;
  void *memory = rank->device->memory->reserve(wanted, false, &none);
  if (memory) {
    room->memory = memory;
    room->bytes = wanted;
    return LS_OK;
  }
  *own = false;
  if (least <= (size_t)rank->bytes) return LS_OK;
  return ls_fail(error, LS_FAILED,
                 "rank %d: no memory is left to time products in, which takes %zu MiB beside the "
                 "arena: give device.tune=false",
                 rank->number, wanted >> 20);
}

static double work_of(const tuner *self, int from) {
  double work = 0;
  for (int i = from; i < self->count; i++)
    if (self->items[i].told) work += self->items[i].of.work;
  return work;
}

static void tell(const tuner *self, int done, int count, int next, double begin_s) {
  const double all = work_of(self, 0), left = work_of(self, next);
  ls_rank_tuning said = {.done = done, .count = count, .seconds = ls_now_s() - begin_s};
  said.seconds_left = done && all > left ? said.seconds * left / (all - left) : -1;
  for (int i = 0; done == count && i < self->count; i++) {
    if (!self->items[i].told) continue;
    const ls_tuning_gain gain = self->calls->gain(&self->items[i].found);
    said.others += gain.other;
    said.took += gain.seconds;
    said.first_took += gain.first_seconds;
  }
  self->options->tuning(self->options->context, &said);
}

static ls_status try_in(tuner *self, const ls_tuning_room *room, int count, bool tells,
                        ls_error *error) {
  const double begin_s = ls_now_s();
  int done = 0;
  for (int i = 0; i < self->count; i++) {
    item *of = &self->items[i];
    if (!of->told) continue;
    if (tells) tell(self, done, count, i, begin_s);
    LS_TRY(self->calls->try_all(self->queue, of->number, room, &of->found, error));
    done++;
  }
  if (tells) tell(self, done, count, self->count, begin_s);
  return LS_OK;
}

/* What this rank is the first to have and has not kept. The first rank that tries any tells. */
static ls_status try_own(tuner *self, ls_error *error) {
  ls_rank *rank = self->rank;
  const int64_t size = ls_group_size(rank->world);
  int count = 0;
  for (int i = 0; i < self->count; i++) {
    item *of = &self->items[i];
    of->kept = self->calls->kept(self->queue, of->number, &of->found);
    of->told = of->owner == rank->number && !of->kept;
    count += of->told;
  }
  int64_t first = count ? size - rank->number : 0;
  LS_TRY(largest(self, &first, error));
  if (!count) return LS_OK;
  ls_tuning_room room;
  bool own;
  LS_TRY(make_room(self, &room, &own, error));
  const bool tells = self->options->tuning && first == size - rank->number;
  ls_status status = try_in(self, &room, count, tells, error);
  if (own)
    rank->device->memory->release(room.memory, room.bytes);
  else if (status == LS_OK) /* which padding, and what is added to, begin as */
    status = rank->device->memory->clear(room.memory, room.bytes, error);
  return status;
}

/* ---- agreeing -------------------------------------------------------------------------------- */

static ls_status share(tuner *self, ls_error *error) {
  const int64_t row = self->most + 1;
  ls_way *own = LS_NEW_ARRAY(self->arena, ls_way, row);
  int64_t *all;
  for (int i = 0; i < self->count; i++)
    if (self->items[i].owner == self->rank->number) own[i + 1] = self->items[i].found;
  LS_TRY(gather(self, own->words, LS_WAY_WORDS, &all, error));
  for (int i = 0; i < self->count; i++) {
    item *of = &self->items[i];
    memcpy(of->agreed.words, all + (of->owner * row + of->at) * LS_WAY_WORDS,
           sizeof of->agreed.words);
  }
  return LS_OK;
}

/* Kept by who found it, and by one rank of each other host. */
static ls_status take(tuner *self, ls_error *error) {
  const bool keeps = ls_comm_place(self->rank->comm).of_host == 0;
  for (int i = 0; i < self->count; i++) {
    item *of = &self->items[i];
    LS_TRY(self->calls->take(self->queue, of->number, &of->agreed, error));
    const bool same = of->kept && memcmp(&of->found, &of->agreed, sizeof of->found) == 0;
    if (of->told || (keeps && !same)) self->calls->keep(self->queue, of->number, &of->agreed);
  }
  return LS_OK;
}

static ls_status tune(void *context, ls_error *error) {
  tuner *self = context;
  ls_comm_about(self->rank->comm, "the fastest ways of products");
  list_items(self);
  LS_TRY(find_owners(self, error));
  if (!self->most) return LS_OK;
  LS_TRY(try_own(self, error));
  LS_TRY(share(self, error));
  LS_TRY(take(self, error));
  ls_comm_about(self->rank->comm, NULL);
  return LS_OK;
}

ls_status ls_rank_tune(ls_rank *rank, const ls_rank_options *options, ls_error *error) {
  if (!options->tune || !rank->device->tuning) return LS_OK;
  tuner self = {.rank = rank,
                .options = options,
                .calls = rank->device->tuning,
                .queue = &rank->queues[LS_TIER_DEVICE],
                .arena = ls_arena_create()};
  ls_comm_set_patient(rank->comm, true); /* a slow GPU may take longer than any transfer */
  const ls_status status = ls_arena_guard(tune, &self, false, error);
  ls_comm_set_patient(rank->comm, false);
  ls_arena_destroy(&self.arena);
  return status;
}
