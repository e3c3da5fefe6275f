/* The groups of ranks that programs communicate in. */
#include "cost/cost.h"

void ls_programs_mark_groups(const ls_program *const *programs, int count, bool *by_axes,
                             bool *by_stage) {
  by_axes[ls_mesh_all(&programs[0]->mesh)] = true;
  for (int p = 0; p < count; p++)
    for (int i = 0; i < programs[p]->instructions.count; i++) {
      const ls_instruction *each = &programs[p]->instructions.items[i];
      if (!ls_collective_communicates(each->collective)) continue;
      if (each->peer >= 0)
        by_stage[each->peer] = true;
      else
        by_axes[each->axes] = true;
    }
}

int ls_programs_groups(const ls_program *const *programs, int count) {
  const ls_mesh *mesh = &programs[0]->mesh;
  bool by_axes[1 << LS_MAX_AXES] = {false};
  ls_arena *scratch = ls_arena_create();
  bool *by_stage = LS_NEW_ARRAY(scratch, bool, ls_mesh_stages(mesh));
  ls_programs_mark_groups(programs, count, by_axes, by_stage);
  ls_axes longer = 0; /* than 1: only these tell groups apart */
  for (int a = 0; a < mesh->count; a++) longer |= mesh->axes[a].size > 1 ? 1u << a : 0;
  int groups = 0;
  for (ls_axes axes = ls_mesh_all(mesh); axes > 0; axes--) {
    const bool other = axes != (axes & longer);
    if (by_axes[axes] && other) by_axes[axes & longer] = true;
    groups += by_axes[axes] && !other;
  }
  for (int peer = 0; peer < ls_mesh_stages(mesh); peer++) groups += by_stage[peer];
  ls_arena_destroy(&scratch);
  return groups;
}

int64_t ls_device_overhead(const ls_device_facts *facts, int groups) {
  int64_t bytes = 0;
  for (int o = 0; o < facts->overhead_count; o++)
    bytes += facts->overheads[o].bytes * (facts->overheads[o].of_group ? groups : 1);
  return bytes;
}
