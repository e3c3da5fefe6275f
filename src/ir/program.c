#include "ir/program.h"

#include <string.h>

const char *ls_pool_name(ls_pool pool) {
  static const char *const names[] = {"state",      "cell",      "input",      "work",
                                      "host_state", "host_work", "file_state", "file_work"};
  return names[pool];
}

ls_tier ls_pool_tier(ls_pool pool) {
  if (pool >= LS_POOL_FILE_STATE) return LS_TIER_NVME;
  return pool >= LS_POOL_HOST_STATE ? LS_TIER_HOST : LS_TIER_DEVICE;
}

bool ls_pool_is_work(ls_pool pool) {
  return pool == LS_POOL_WORK || pool == LS_POOL_HOST_WORK || pool == LS_POOL_FILE_WORK;
}

int ls_program_segment_of(const ls_program *program, const ls_action *action) {
  if (!ls_action_is_message(action)) return action->segment;
  int segment = program->segments.count - 1;
  while (segment > 0 && program->segments.items[segment].chunk > action->segment) segment--;
  return segment;
}

int64_t ls_storage_aligned(int64_t bytes, int64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

int64_t ls_program_tier_bytes(const ls_program *program, ls_tier tier) {
  int64_t bytes = 0;
  for (int p = 0; p < LS_POOL_COUNT; p++)
    if (ls_pool_tier((ls_pool)p) == tier) bytes += program->pool_bytes[p];
  return bytes;
}

ls_alive *ls_program_alive(ls_arena *arena, const ls_program *program, ls_tier tier) {
  const int actions = program->actions.count;
  ls_alive *alive = LS_NEW_ARRAY(arena, ls_alive, actions + 1);
  for (int i = 0; i < program->live_intervals.count; i++) {
    const ls_live_interval *live_interval = &program->live_intervals.items[i];
    const ls_buffer_group *buffer_group =
        &program->buffer_groups.items[live_interval->buffer_group];
    if (ls_pool_tier(buffer_group->pool) != tier) continue;
    const int64_t bytes = ls_storage_aligned(buffer_group->bytes, program->alignment);
    alive[live_interval->first].by_category[buffer_group->category] += bytes;
    alive[live_interval->last + 1].by_category[buffer_group->category] -= bytes;
  }
  for (int a = 0; a < actions; a++)
    for (int c = 0; c < LS_CATEGORY_COUNT; c++) {
      if (a) alive[a].by_category[c] += alive[a - 1].by_category[c];
      alive[a].sum += alive[a].by_category[c];
    }
  return alive;
}

int64_t ls_program_tier_peak(const ls_program *program, ls_tier tier,
                             int64_t by_category[LS_CATEGORY_COUNT]) {
  ls_arena *arena = ls_arena_create();
  const ls_alive *alive = ls_program_alive(arena, program, tier);
  int peak = 0;
  for (int a = 1; a < program->actions.count; a++)
    if (alive[a].sum > alive[peak].sum) peak = a;
  const int64_t most = alive[peak].sum;
  memcpy(by_category, alive[peak].by_category, sizeof alive[peak].by_category);
  ls_arena_destroy(&arena);
  return most;
}

int64_t ls_program_bytes(const ls_program *program) {
  return ls_program_tier_bytes(program, LS_TIER_DEVICE);
}

int64_t ls_program_peak(const ls_program *program, int64_t by_category[LS_CATEGORY_COUNT]) {
  return ls_program_tier_peak(program, LS_TIER_DEVICE, by_category);
}

static int after(const ls_program *program, ls_action_kind kind, int otherwise) {
  for (int a = program->actions.count - 1; a >= 0; a--)
    if (program->actions.items[a].action.kind == kind) return a + 1;
  return otherwise;
}

int ls_program_first_of(const ls_program *program, ls_program_part part) {
  const int all = program->actions.count;
  const int norm = after(program, LS_ACTION_NORM, all);
  const int settled = after(program, LS_ACTION_VALIDATE, norm);
  switch (part) {
    case LS_PROGRAM_PROLOGUE: return 0;
    case LS_PROGRAM_PASSES: return program->replay_boundary > 0 ? program->replay_boundary : 0;
    case LS_PROGRAM_SPECULATE: return norm;
    case LS_PROGRAM_VALIDATE: return settled > norm ? settled - 1 : norm;
    case LS_PROGRAM_UPDATE: return settled;
    default: return all;
  }
}
