#include "run/recording.h"

#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/random.h"

/* What rank 0 must know to read another rank's records. */
typedef struct header {
  int64_t count, machine, barrier_ns;
} header;

enum {
  HEADER_WORDS = sizeof(header) / sizeof(int64_t),
  RECORD_WORDS = sizeof(ls_record) / sizeof(int64_t)
};

/* The same on all ranks that share CLOCK_MONOTONIC, and on no others. */
static int64_t machine_number(ls_arena *arena) {
  char *text;
  size_t bytes;
  ls_error error = {0};
  if (ls_file_read(arena, "/proc/sys/kernel/random/boot_id", &text, &bytes, &error) != LS_OK)
    return 0;
  return (int64_t)ls_random_stream(text);
}

static ls_record *own_records(ls_arena *arena, const ls_rank *rank, int64_t count) {
  ls_record *records = LS_NEW_ARRAY(arena, ls_record, count + 1);
  for (int64_t i = 0; i < count; i++) records[i] = ls_rank_record_at(rank, i);
  return records;
}

static ls_status receive(ls_arena *arena, ls_group *world, int from, const header *own,
                         ls_recording_rank *into, ls_error *error) {
  header other;
  LS_TRY(ls_receive(world, &other, HEADER_WORDS, LS_I64, from, error));
  ls_record *records = LS_NEW_ARRAY(arena, ls_record, other.count + 1);
  if (other.count)
    LS_TRY(ls_receive(world, records, other.count * RECORD_WORDS, LS_I64, from, error));
  const int64_t shift = other.machine == own->machine ? 0 : own->barrier_ns - other.barrier_ns;
  for (int64_t i = 0; i < other.count; i++) {
    records[i].begin_ns += shift;
    records[i].end_ns += shift;
  }
  *into = (ls_recording_rank){records, other.count};
  return LS_OK;
}

/* Times count from the first record of all. */
static void start_at_zero(ls_recording *recording) {
  int64_t first = INT64_MAX;
  for (int r = 0; r < recording->ranks; r++)
    if (recording->by_rank[r].count && recording->by_rank[r].records[0].begin_ns < first)
      first = recording->by_rank[r].records[0].begin_ns;
  for (int r = 0; r < recording->ranks; r++) {
    ls_record *records = recording->by_rank[r].records;
    for (int64_t i = 0; i < recording->by_rank[r].count; i++) {
      records[i].begin_ns -= first;
      records[i].end_ns -= first;
    }
  }
}

ls_status ls_recording_gather(ls_arena *arena, ls_rank *rank, int64_t step,
                              ls_recording **recording, ls_error *error) {
  ls_group *world = ls_rank_world_group(rank);
  *recording = NULL;
  LS_TRY(ls_barrier(world, error));
  const header own = {.barrier_ns = ls_now_ns(),
                      .count = ls_rank_record_count(rank),
                      .machine = machine_number(arena)};
  ls_record *records = own_records(arena, rank, own.count);
  if (ls_rank_number(rank) != 0) {
    LS_TRY(ls_send(world, &own, HEADER_WORDS, LS_I64, 0, error));
    return own.count ? ls_send(world, records, own.count * RECORD_WORDS, LS_I64, 0, error) : LS_OK;
  }
  ls_recording *made = LS_NEW(arena, ls_recording);
  *made = (ls_recording){.step = step, .ranks = ls_group_size(world)};
  made->by_rank = LS_NEW_ARRAY(arena, ls_recording_rank, made->ranks);
  made->by_rank[0] = (ls_recording_rank){records, own.count};
  for (int r = 1; r < made->ranks; r++)
    LS_TRY(receive(arena, world, r, &own, &made->by_rank[r], error));
  start_at_zero(made);
  *recording = made;
  return LS_OK;
}
