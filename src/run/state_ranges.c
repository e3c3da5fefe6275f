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

static int part_value(const ls_program_parameter *parameter, ls_state_part part) {
  if (part == LS_PART_MASTER && !parameter->trainable) part = LS_PART_STORED;
  return parameter->here ? parameter->part[part] : -1;
}

static share find_share(const ls_program *program, int rank, const ls_program_parameter *parameter,
                        int value) {
  const ls_local own = ls_program_local(program, rank, value);
  if (own.valid[0] == 0) return (share){0};
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

/* Ranks that hold the same elements take equal parts of them. */
static int saved(const ls_program *program, int rank, int parameter, ls_state_part part,
                 ls_state_range ranges[LS_MOST_RANGES]) {
  const ls_program_parameter *about = &program->parameters[parameter];
  const int value = part_value(about, part);
  if (value < 0 || !about->gives) return 0;
  const share own = find_share(program, rank, about, value);
  if (own.count == 0) return 0;
  const ls_axes alike = ls_value_replicas(&program->mesh, &program->values.items[value]);
  const int64_t holders = ls_mesh_size(&program->mesh, alike);
  int64_t chunk = (own.count + holders - 1) / holders;
  if (holders > 1) chunk = (chunk + LEAST_SAVED - 1) / LEAST_SAVED * LEAST_SAVED;
  const int64_t begin = ls_mesh_index(&program->mesh, rank, alike) * chunk;
  const int64_t end = begin + chunk < own.count ? begin + chunk : own.count;
  return ranges_of(&own, own.first + begin, own.first + end, ranges);
}

/* Parameters stored whole lie on every rank, their masters in shards, which may be views of them.
 */
static int filled(const ls_program *program, int rank, int parameter, ls_state_part part,
                  ls_state_range ranges[LS_MOST_RANGES]) {
  const ls_program_parameter *about = &program->parameters[parameter];
  const int value = part_value(about, part), stored = part_value(about, LS_PART_STORED);
  if (value < 0) return 0;
  const ls_value *values = program->values.items;
  const bool is_view = values[value].storage == values[stored].storage;
  int count = 0;
  if (part == LS_PART_MASTER || is_view) {
    const share copy = find_share(program, rank, about, stored);
    count = ranges_of(&copy, copy.first, copy.first + copy.count, ranges);
  }
  if (is_view) return count;
  const share own = find_share(program, rank, about, value);
  return count + ranges_of(&own, own.first, own.first + own.count, ranges + count);
}

const ls_state_lists ls_state_ranges = {.saved = saved, .filled = filled};
