#include "run/state_ranges.h"

/* Elements of a parameter smaller than a page of fp32 are saved by one rank alone. */
enum { LEAST_SAVED = 1024 };

/* This rank's share of one part of a parameter: elements [first, first + count) of its tp-cut
 * tensor, which is `stride` wide in memory and has `cut` of the whole. */
typedef struct share {
  int value;
  int64_t offset; /* bytes of element `first` */
  int64_t bytes;  /* of an element */
  int64_t first, count, stride;
  ls_box cut;
} share;

static share find_share(const ls_program *program, int rank, const ls_program_parameter *parameter,
                        ls_state_part part) {
  const int value = parameter->part[part];
  const ls_local own = ls_program_local(program, rank, value);
  if (own.valid[0] == 0) return (share){0};
  if (ls_state_row_of(part)->whole)
    return (share){.value = value,
                   .offset = own.offset,
                   .bytes = (int64_t)ls_dtype_bytes(program->values.items[value].dtype),
                   .count = own.valid[0],
                   .stride = 1,
                   .cut = {.rows = own.valid[0], .columns = 1}};
  const ls_local used = ls_program_local(program, rank, parameter->part[LS_PART_USED]);
  const bool matrix = parameter->ndim > 1;
  return (share){.value = value,
                 .offset = own.offset,
                 .bytes = (int64_t)ls_dtype_bytes(program->values.items[value].dtype),
                 .first = own.start[0],
                 .count = own.valid[0],
                 .stride = matrix ? used.dims[1] : 1,
                 .cut = {.row = used.start[0],
                         .rows = used.valid[0],
                         .column = matrix ? used.start[1] : 0,
                         .columns = matrix ? used.valid[1] : 1}};
}

/* Elements [first, end) of the tp-cut tensor, without its padding. */
static int ranges_of(const share *of, int64_t first, int64_t end, ls_state_range *ranges) {
  ls_box local[LS_MOST_BOXES];
  const int boxes = ls_box_of_range(first, end, of->stride, local);
  int count = 0;
  for (int i = 0; i < boxes; i++) {
    ls_state_range *made = &ranges[count];
    local[i].row += of->cut.row;
    local[i].column += of->cut.column;
    if (!ls_box_meet(&local[i], &of->cut, &made->box)) continue;
    const int64_t element =
        (made->box.row - of->cut.row) * of->stride + made->box.column - of->cut.column - of->first;
    made->value = of->value;
    made->offset = of->offset + element * of->bytes;
    made->stride = of->stride;
    count++;
  }
  return count;
}

static bool lies_as(const ls_program *program, const ls_value *a, const ls_value *b) {
  const ls_storage *storages = program->storages.items;
  return a->dtype == b->dtype && a->flat_elements == b->flat_elements &&
         a->flat_offset == b->flat_offset && a->global[0] == b->global[0] &&
         a->flat_rows == b->flat_rows && a->flat_row_elements == b->flat_row_elements &&
         a->offset == b->offset && storages[a->storage].bytes == storages[b->storage].bytes &&
         ls_placement_equal(&program->mesh, &a->placement, &b->placement,
                            ls_mesh_inside(&program->mesh));
}

/* Ranks whose shard meets the parameter, and the first part that lies alike. */
static ls_state_class class_on(const ls_program *program, int parameter, ls_state_part part,
                               ls_axes axes) {
  const int *parts = program->parameters[parameter].part;
  const ls_value *values = program->values.items, *value = &values[parts[part]];
  const int64_t shard = ls_value_shard(&program->mesh, value);
  const ls_axes flat = ls_value_flat_axes(&program->mesh, value);
  ls_state_class made = {.part = part,
                         .axes = axes,
                         .flat = flat,
                         .shards = ls_placement_order(&value->placement, flat),
                         .first = (int)(value->flat_offset / shard)};
  made.end = (int)((value->flat_offset + value->global[0] + shard - 1) / shard);
  for (int p = LS_PART_STORED; p < (int)part && made.part == part; p++)
    if (ls_state_is_own(program, parameter, (ls_state_part)p) &&
        lies_as(program, &values[parts[p]], value))
      made.part = (ls_state_part)p;
  return made;
}

/* Ranks that hold the same elements save other parts of them. */
static ls_state_class saves(const ls_program *program, int parameter, ls_state_part part) {
  return class_on(program, parameter, part, ls_mesh_inside(&program->mesh));
}

static ls_state_class fills(const ls_program *program, int parameter, ls_state_part part) {
  const int *parts = program->parameters[parameter].part;
  const ls_value *used = &program->values.items[parts[LS_PART_USED]];
  const ls_value *value = &program->values.items[parts[part]];
  return class_on(program, parameter, part,
                  ls_value_flat_axes(&program->mesh, value) |
                      ls_placement_axes(&program->mesh, &used->placement, LS_SHARDED, -1));
}

/* Ranks that hold the same elements take equal parts of them. */
static int saved(const ls_program *program, int rank, int parameter, ls_state_part part,
                 ls_state_range ranges[LS_MOST_BOXES]) {
  const ls_program_parameter *about = &program->parameters[parameter];
  if (!about->owner) return 0;
  const share own = find_share(program, rank, about, part);
  if (own.count == 0) return 0;
  const ls_axes alike = ls_value_replicas(&program->mesh, &program->values.items[own.value]);
  const int64_t holders = ls_mesh_size(&program->mesh, alike);
  int64_t chunk = (own.count + holders - 1) / holders;
  if (holders > 1) chunk = (chunk + LEAST_SAVED - 1) / LEAST_SAVED * LEAST_SAVED;
  const int64_t begin = ls_mesh_index(&program->mesh, rank, ls_mesh_order(alike)) * chunk;
  const int64_t end = begin + chunk < own.count ? begin + chunk : own.count;
  return ranges_of(&own, own.first + begin, own.first + end, ranges);
}

static int filled(const ls_program *program, int rank, int parameter, ls_state_part part,
                  ls_state_range ranges[LS_MOST_BOXES]) {
  const ls_program_parameter *about = &program->parameters[parameter];
  const share own = find_share(program, rank, about, part);
  return ranges_of(&own, own.first, own.first + own.count, ranges);
}

const ls_state_lists ls_state_ranges = {
    .saves = saves, .fills = fills, .saved = saved, .filled = filled};
