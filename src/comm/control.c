/* The memory a domain shares: the abort text and the blocks of flags of its groups. */
#include <stdio.h>
#include <string.h>

#include "comm/world.h"

enum {
  ENTRIES = 1 << 14, /* groups a domain may make; a power of two */
  ALIGNMENT = 128,
  NOTES = 1024, /* ranks that may abort in the instant before the first of them is heard */
};

/* Memory for flags: 4,096 ranks in 400 groups of all take half of it. */
static const size_t CONTROL_BYTES = (size_t)512 << 20;

typedef struct entry {
  _Atomic uint64_t key;    /* 0: free */
  _Atomic uint64_t offset; /* of the block; 0: not ready */
} entry;

/* What a rank says as it aborts. */
typedef struct note {
  int32_t rank;
  char text[956];
} note;

/* Each rank that aborts writes a note of its own, and the first to set `abort` has it heard: so
 * whoever dies as it writes keeps nobody waiting. */
struct ls_control {
  uint64_t nonce;
  _Atomic uint32_t abort; /* 1 + the note's index; 0: none */
  _Atomic uint32_t notes_taken;
  _Alignas(ALIGNMENT) _Atomic uint64_t used;
  entry entries[ENTRIES];
  note notes[NOTES];
};

size_t ls_control_bytes(void) {
  return CONTROL_BYTES;
}

void ls_control_init(ls_control *control, uint64_t nonce) {
  control->nonce = nonce;
  const uint64_t head = (sizeof *control + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  atomic_store(&control->used, head);
}

uint64_t ls_control_nonce(const ls_control *control) {
  return control->nonce;
}

bool ls_control_abort(ls_control *control, int rank, const char *text) {
  if (atomic_load(&control->abort) != 0) return false;
  const uint32_t index = atomic_fetch_add(&control->notes_taken, 1);
  if (index >= NOTES) return false;
  note *own = &control->notes[index];
  own->rank = rank;
  snprintf(own->text, sizeof own->text, "%s", text);
  uint32_t none = 0;
  return atomic_compare_exchange_strong(&control->abort, &none, index + 1);
}

/* The note that stands; NULL: no abort. */
static const note *abort_seen(ls_control *control) {
  const uint32_t set = atomic_load(&control->abort);
  return set ? &control->notes[set - 1] : NULL;
}

bool ls_control_aborted(ls_control *control, ls_error *error) {
  const note *set = abort_seen(control);
  if (set) (void)ls_fail(error, LS_FAILED, "rank %d: %s", set->rank, set->text);
  return set != NULL;
}

bool ls_control_abort_text(ls_control *control, int *rank, char *text, size_t room) {
  const note *set = abort_seen(control);
  if (!set) return false;
  *rank = set->rank;
  snprintf(text, room, "%s", set->text);
  return true;
}

ls_status ls_control_carve(ls_control *control, size_t bytes, uint64_t *offset, ls_error *error) {
  const uint64_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  *offset = atomic_fetch_add(&control->used, rounded);
  if (*offset + rounded <= CONTROL_BYTES) return LS_OK;
  return ls_fail(error, LS_FAILED,
                 "the groups of this host's ranks need more than the %zu MiB kept for their flags: "
                 "start fewer ranks on a host",
                 CONTROL_BYTES >> 20);
}

void *ls_control_at(ls_control *control, uint64_t offset) {
  return (char *)control + offset;
}

ls_status ls_control_block(ls_control *control, uint64_t key, size_t bytes, bool create,
                           void **block, ls_error *error) {
  *block = NULL;
  for (uint64_t probe = 0; probe < ENTRIES; probe++) {
    entry *found = &control->entries[(key + probe) & (ENTRIES - 1)];
    uint64_t held = atomic_load_explicit(&found->key, memory_order_acquire);
    if (held == 0) {
      if (!create) return LS_OK;
      if (atomic_compare_exchange_strong(&found->key, &held, key)) {
        uint64_t made;
        LS_TRY(ls_control_carve(control, bytes, &made, error));
        atomic_store_explicit(&found->offset, made, memory_order_release);
        held = key;
      }
    }
    if (held != key) continue;
    const uint64_t offset = atomic_load_explicit(&found->offset, memory_order_acquire);
    if (offset != 0) *block = ls_control_at(control, offset);
    return LS_OK;
  }
  return ls_fail(error, LS_FAILED, "more than %d groups on one host", ENTRIES);
}
