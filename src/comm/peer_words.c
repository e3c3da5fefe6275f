#include "comm/peer_words.h"

/* Of each kind a member of a group has one word, which grows: the messages of a group are sent on
 * one queue, in order. Groups begin in lines of their own. */
enum {
  WORD = sizeof(uint32_t),
  WORDS = 4,
  GROUP_BYTES = 64,
  MOST_GROUPS = 512,
  GROUP_NUMBERS = LS_MOST_SENDS * LS_NUMBERS_BYTES
};

struct ls_peer_words {
  const ls_carrier_options *of;
  int arena;     /* of words, among the comm's */
  char **seen;   /* [world size] by this process */
  char **at;     /* [world size] by its GPU; NULL: not shared with it */
  char *words;   /* this rank's */
  char *numbers; /* this rank's, on the device */
  int groups;
};

static const ls_transfer_calls *calls_of(const ls_peer_words *self) {
  return self->of->device->transfers;
}

ls_status ls_peer_words_try(const ls_carrier_options *of, ls_error *error) {
  const ls_comm *comm = of->comm;
  for (int a = 0; a < comm->arena_count; a++)
    if (comm->arenas[a].memory.of == of->device->memory && !comm->arenas[a].readable)
      return ls_fail(error, LS_FAILED, "%s", comm->apart);
  return of->device->transfers->try_words(of->queue, error);
}

/* Where this process sees a rank's words. */
static char *view_of(const ls_peer_words *self, int rank) {
  const ls_world *world = self->of->comm->world;
  if (world->process[rank] == world->process[world->first])
    return world->comms[rank - world->first].arenas[self->arena].memory.base;
  return world->views[self->arena * world->domain_ranks + world->place[rank]].base;
}

static ls_status make_arenas(ls_peer_words *made, ls_error *error) {
  ls_comm *comm = made->of->comm;
  void *base;
  LS_TRY(ls_comm_arena(comm, made->of->device->memory, (size_t)MOST_GROUPS * GROUP_NUMBERS, &base,
                       error));
  made->numbers = base;
  const bool shown = comm->arenas[comm->arena_count - 1].readable;
  made->arena = comm->arena_count;
  LS_TRY(ls_comm_arena(comm, &ls_host_memory, (size_t)MOST_GROUPS * GROUP_BYTES, &base, error));
  made->words = base;
  /* Other threads of this process have theirs by then as well. */
  LS_TRY(ls_barrier(comm->everyone, error));
  if (shown && comm->arenas[made->arena].readable) return LS_OK;
  return ls_fail(error, LS_FAILED, "memory of transfers is not seen by all processes: %s",
                 shown ? "the host's" : comm->apart);
}

ls_status ls_peer_words_open(const ls_carrier_options *of, ls_peer_words **words, ls_error *error) {
  ls_comm *comm = of->comm;
  const int size = comm->world->size;
  ls_peer_words *made = *words = LS_NEW(comm->memory, ls_peer_words);
  *made = (ls_peer_words){.of = of,
                          .seen = LS_NEW_ARRAY(comm->memory, char *, size),
                          .at = LS_NEW_ARRAY(comm->memory, char *, size)};
  LS_TRY(make_arenas(made, error));
  for (int rank = 0; rank < size; rank++) {
    void *at = NULL;
    made->seen[rank] = view_of(made, rank);
    LS_TRY(calls_of(made)->share_words(of->queue, made->seen[rank],
                                       (size_t)MOST_GROUPS * GROUP_BYTES, &at, error));
    made->at[rank] = at;
  }
  return LS_OK;
}

void ls_peer_words_close(ls_peer_words *of) {
  for (int rank = 0; of && rank < of->of->comm->world->size; rank++)
    if (of->at[rank]) calls_of(of)->unshare_words(of->seen[rank]);
}

ls_status ls_peer_words_join(ls_peer_words *of, ls_group *group, ls_group_words **words,
                             ls_error *error) {
  ls_arena *memory = of->of->comm->memory;
  if (of->groups == MOST_GROUPS)
    return ls_fail(error, LS_FAILED,
                   "a rank is in more than %d groups; comm.engine=nccl has no such bound",
                   MOST_GROUPS);
  ls_group_words *made = *words = LS_NEW(memory, ls_group_words);
  made->seen = LS_NEW_ARRAY(memory, char *, group->size);
  made->at = LS_NEW_ARRAY(memory, char *, group->size);
  made->numbers = of->numbers + (size_t)of->groups * GROUP_NUMBERS;
  int64_t *numbers = LS_NEW_ARRAY(memory, int64_t, group->size);
  numbers[group->rank] = of->groups++;
  LS_TRY(ls_all_gather(group, numbers, &numbers[group->rank], group->size, LS_I64, error));
  for (int m = 0; m < group->size; m++) {
    const size_t offset = (size_t)numbers[m] * GROUP_BYTES;
    made->seen[m] = of->seen[group->members[m]] + offset;
    made->at[m] = of->at[group->members[m]] + offset;
  }
  return LS_OK;
}

static size_t offset_of(ls_mark_kind kind) {
  return (size_t)kind * WORD;
}

ls_status ls_peer_words_write(const ls_peer_words *of, const ls_group *group,
                              const ls_group_words *words, ls_mark_kind kind, uint32_t number,
                              const ls_device_queue *queue, ls_error *error) {
  return calls_of(of)->write_word(queue, words->at[group->rank] + offset_of(kind), number, error);
}

ls_status ls_peer_words_await(const ls_peer_words *of, ls_group_words *words, int member,
                              ls_mark_kind kind, uint32_t number, const ls_device_queue *queue,
                              ls_error *error) {
  const bool message = kind == LS_MARK_SENT || kind == LS_MARK_TAKEN;
  atomic_store(message ? &words->messages : &words->calls, number);
  return calls_of(of)->await_word(queue, words->at[member] + offset_of(kind), number, error);
}

/* Far past all that is awaited, modulo 2^32. */
static void raise_word(char *at, uint32_t past) {
  atomic_store((_Atomic uint32_t *)(void *)at, past + (UINT32_C(1) << 30));
}

void ls_peer_words_let_go(const ls_group *group, const ls_group_words *words) {
  const uint32_t calls = atomic_load(&words->calls), messages = atomic_load(&words->messages);
  for (int m = 0; m < group->size; m++)
    for (int kind = 0; kind < WORDS; kind++)
      raise_word(words->seen[m] + offset_of((ls_mark_kind)kind),
                 kind == LS_MARK_READY || kind == LS_MARK_DONE ? calls : messages);
}
