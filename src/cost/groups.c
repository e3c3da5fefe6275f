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

static int64_t bytes_of(const ls_program *program, int value) {
  const ls_value *of = &program->values.items[value];
  const ls_local local = ls_program_local(program, 0, value);
  int64_t bytes = (int64_t)ls_dtype_bytes(of->dtype);
  for (int d = 0; d < of->ndim; d++) bytes *= local.dims[d];
  return bytes;
}

static int64_t beside_of(const ls_program *program, const ls_instruction *of) {
  if (of->collective == LS_ALL_TO_ALL || ls_collective_deals(of->collective))
    return bytes_of(program, of->in[0]) + bytes_of(program, of->out[0]);
  const bool adds = of->collective == LS_REDUCE_SCATTER && of->write[0] != LS_WRITE;
  return adds ? bytes_of(program, of->out[0]) : 0;
}

int64_t ls_programs_beside(const ls_program *const *programs, int count) {
  ls_axis_order orders[LS_MAX_GROUPS];
  int64_t most[LS_MAX_GROUPS] = {0}, all = 0;
  ls_arena *scratch = ls_arena_create();
  bool *by_stage = LS_NEW_ARRAY(scratch, bool, ls_mesh_stages(&programs[0]->mesh));
  const int groups = ls_programs_mark_groups(programs, count, orders, by_stage);
  for (int p = 0; p < count; p++)
    for (int i = 0; i < programs[p]->instructions.count; i++) {
      const ls_instruction *each = &programs[p]->instructions.items[i];
      if (!ls_collective_is_of_group(each->collective) || each->peer >= 0) continue;
      const int64_t bytes = beside_of(programs[p], each);
      const ls_axis_order order = ls_instruction_group(programs[p], each);
      int g = 0;
      while (g < groups && orders[g].axes != order.axes) g++;
      if (bytes > most[g]) most[g] = bytes;
    }
  for (int g = 0; g < groups; g++) all += most[g];
  ls_arena_destroy(&scratch);
  return all;
}

int64_t ls_device_overhead(const ls_device_facts *facts, int groups) {
  int64_t bytes = 0;
  for (int o = 0; o < facts->overhead_count; o++)
    bytes += facts->overheads[o].bytes * (facts->overheads[o].of_group ? groups : 1);
  return bytes;
}
