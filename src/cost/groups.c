/* The groups of ranks that programs communicate in. */
#include <string.h>

#include "cost/cost.h"

/* Puts an order in its place among those there are. */
static int add_order(ls_axis_order *orders, int count, ls_axis_order order) {
  int at = count;
  while (at > 0 && orders[at - 1].axes >= order.axes) at--;
  if (at < count && orders[at].axes == order.axes) return count;
  memmove(&orders[at + 1], &orders[at], sizeof *orders * (size_t)(count - at));
  orders[at] = order;
  return count + 1;
}

int ls_programs_mark_groups(const ls_program *const *programs, int count,
                            ls_axis_order orders[LS_MAX_GROUPS], bool *by_stage) {
  int found = add_order(orders, 0, ls_mesh_order(ls_mesh_all(&programs[0]->mesh)));
  for (int p = 0; p < count; p++)
    for (int i = 0; i < programs[p]->instructions.count; i++) {
      const ls_instruction *each = &programs[p]->instructions.items[i];
      if (!ls_collective_communicates(each->collective)) continue;
      if (each->peer >= 0)
        by_stage[each->peer] = true;
      else
        found = add_order(orders, found, ls_instruction_group(programs[p], each));
      LS_ASSERT(found < LS_MAX_GROUPS);
    }
  return found;
}

/* The axes that are longer than 1: only these tell groups apart. */
static ls_axis_order longer(const ls_mesh *mesh, ls_axis_order order) {
  ls_axis_order made = {0};
  int places = 0;
  for (int a; (a = ls_axis_order_next(&order)) >= 0;)
    if (mesh->axes[a].size > 1) made.axes |= (uint32_t)(a + 1) << 4 * places++;
  return made;
}

int ls_programs_groups(const ls_program *const *programs, int count) {
  const ls_mesh *mesh = &programs[0]->mesh;
  ls_axis_order orders[LS_MAX_GROUPS], apart[LS_MAX_GROUPS];
  ls_arena *scratch = ls_arena_create();
  bool *by_stage = LS_NEW_ARRAY(scratch, bool, ls_mesh_stages(mesh));
  const int found = ls_programs_mark_groups(programs, count, orders, by_stage);
  int groups = 0;
  for (int g = 0; g < found; g++) groups = add_order(apart, groups, longer(mesh, orders[g]));
  if (groups && !apart[0].axes) groups--; /* of one rank */
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
