/* The memory a domain shares: the abort text and the blocks of flags of its groups. */
#include <stdio.h>
#include <string.h>

#include "comm/world.h"

enum {
  ENTRIES = 1 << 14, /* groups a domain may make; a power of two */
  ALIGNMENT = 128,
};

/* Memory for flags: 64 ranks in 400 groups of all take half of it. */
static const size_t CONTROL_BYTES = (size_t)512 << 20;

enum { ABORT_NONE = 0, ABORT_WRITING, ABORT_SET };

typedef struct entry {
  _Atomic uint64_t key;    /* 0: free */
  _Atomic uint64_t offset; /* of the block; 0: not ready */
} entry;

struct ls_control {
  uint64_t nonce;
  _Atomic uint32_t abort_state;
  int32_t abort_rank;
  char abort_text[960];
  _Alignas(ALIGNMENT) _Atomic uint64_t used;
  entry entries[ENTRIES];
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
  uint32_t none = ABORT_NONE;
  if (!atomic_compare_exchange_strong(&control->abort_state, &none, ABORT_WRITING)) return false;
  control->abort_rank = rank;
  snprintf(control->abort_text, sizeof control->abort_text, "%s", text);
  atomic_store(&control->abort_state, ABORT_SET);
  return true;
}

bool ls_control_aborted(ls_control *control, ls_error *error) {
  /* While another rank writes the text there is no abort yet: callers come here again soon. */
  if (atomic_load(&control->abort_state) != ABORT_SET) return false;
  (void)ls_fail(error, LS_FAILED, "rank %d: %s", control->abort_rank, control->abort_text);
  return true;
}

bool ls_control_abort_text(ls_control *control, int *rank, char *text, size_t room) {
  if (atomic_load(&control->abort_state) != ABORT_SET) return false;
  *rank = control->abort_rank;
  snprintf(text, room, "%s", control->abort_text);
  return true;
}

static ls_status carve(ls_control *control, size_t bytes, entry *found, ls_error *error) {
  const uint64_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  const uint64_t offset = atomic_fetch_add(&control->used, rounded);
  if (offset + rounded > CONTROL_BYTES) {
    return ls_fail(error, LS_FAILED, "groups need more than the %zu MiB kept for their flags",
                   CONTROL_BYTES >> 20);
  }
  atomic_store_explicit(&found->offset, offset, memory_order_release);
  return LS_OK;
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
        LS_TRY(carve(control, bytes, found, error));
        held = key;
      }
    }
    if (held != key) continue;
    const uint64_t offset = atomic_load_explicit(&found->offset, memory_order_acquire);
    if (offset != 0) *block = (char *)control + offset;
    return LS_OK;
  }
  return ls_fail(error, LS_FAILED, "more than %d groups on one host", ENTRIES);
}
