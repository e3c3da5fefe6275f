#include "ir/saved_state.h"

static ls_state_part stands_for(const ls_program *program, int parameter, ls_state_part part) {
  return part == LS_PART_MASTER && !program->parameters[parameter].trainable ? LS_PART_STORED
                                                                             : part;
}

int ls_state_value(const ls_program *program, int parameter, ls_state_part part) {
  return program->parameters[parameter].part[stands_for(program, parameter, part)];
}

bool ls_state_is_own(const ls_program *program, int parameter, ls_state_part part) {
  const int *parts = program->parameters[parameter].part;
  const ls_value *values = program->values.items;
  if (parts[part] < 0 || !ls_state_row_of(part)->kept) return false;
  return part == LS_PART_STORED ||
         values[parts[part]].storage != values[parts[LS_PART_STORED]].storage;
}

/* The ranges of the rank of its class that is asked, in the memory of this part. */
static int ask(ls_state_classify *classify, ls_state_list *list, const ls_program *program,
               int rank, int parameter, ls_state_part part, ls_state_range *ranges) {
  const ls_mesh *mesh = &program->mesh;
  part = stands_for(program, parameter, part);
  const int value = ls_state_value(program, parameter, part);
  if (value < 0) return 0;
  const ls_state_class of = classify(program, parameter, part);
  const int shard = ls_mesh_index(mesh, rank, of.shards);
  if (shard < of.first || shard >= of.end) return 0;
  const int begin = ls_mesh_stage(mesh, rank) * ls_mesh_stage_ranks(mesh);
  const int asked = begin + ls_mesh_member(mesh, 0, ls_mesh_order(of.axes),
                                           ls_mesh_index(mesh, rank, ls_mesh_order(of.axes)));
  const int count = list(program, asked, parameter, of.part, ranges);
  if (of.part == part) return count;
  const ls_storage *storages = program->storages.items;
  const int from = ls_state_value(program, parameter, of.part);
  const int64_t moved = storages[program->values.items[value].storage].offset -
                        storages[program->values.items[from].storage].offset;
  for (int i = 0; i < count; i++) {
    ranges[i].value = value;
    ranges[i].offset += moved;
  }
  return count;
}

int ls_state_saved(const ls_state_lists *lists, const ls_program *program, int rank, int parameter,
                   ls_state_part part, ls_state_range ranges[LS_MOST_RANGES]) {
  return ask(lists->saves, lists->saved, program, rank, parameter, part, ranges);
}

int ls_state_filled(const ls_state_lists *lists, const ls_program *program, int rank, int parameter,
                    ls_state_part part, ls_state_range ranges[LS_MOST_RANGES]) {
  int count = 0;
  for (int p = 0; p < LS_PART_COUNT; p++) {
    const bool with =
        p == (int)part || (part == LS_PART_MASTER && !ls_state_row_of((ls_state_part)p)->saved);
    if (with && ls_state_is_own(program, parameter, (ls_state_part)p))
      count += ask(lists->fills, lists->filled, program, rank, parameter, (ls_state_part)p,
                   ranges + count);
  }
  return count;
}

int ls_stored_shape(const ls_stored_layout *layout, int64_t dims[3]) {
  const int first = layout->stack > 0;
  dims[0] = layout->stack;
  for (int d = 0; d < layout->ndim; d++) dims[first + d] = layout->dims[d];
  return first + layout->ndim;
}

int64_t ls_stored_elements(const ls_stored_layout *layout) {
  int64_t dims[3], elements = 1;
  const int ndim = ls_stored_shape(layout, dims);
  for (int d = 0; d < ndim; d++) elements *= dims[d];
  return elements;
}
