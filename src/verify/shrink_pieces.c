/* How units of parameters lie over their shards: padded or not, with ranks that have nothing of
 * one. */
#include "schedule/units.h"
#include "verify/shrink_parts.h"

/* A unit by the end of its last parameter, among shards of one length. */
static unsigned side_of(int64_t end, int64_t shard, int64_t whole) {
  if (end > whole - LS_UNIT_ALIGNMENT) return LS_PIECES_FULL;
  return end > whole - shard ? LS_PIECES_PADDED : LS_PIECES_EMPTY;
}

static unsigned pieces_of(const ls_program *program) {
  unsigned sides = 0;
  for (int p = 0; p < program->parameter_count; p++) {
    const ls_program_parameter *first = &program->parameters[p];
    if (!first->present || first->part[LS_PART_GRADIENT] < 0) continue;
    const ls_value *value = &program->values.items[first->part[LS_PART_GRADIENT]];
    const int64_t shard = ls_value_shard(&program->mesh, value);
    if (shard == value->flat_elements) continue;
    int64_t end = 0;
    for (int q = 0; q < program->parameter_count; q++) {
      const ls_program_parameter *other = &program->parameters[q];
      if (!other->present || other->unit != first->unit || other->part[LS_PART_GRADIENT] < 0)
        continue;
      const ls_value *range = &program->values.items[other->part[LS_PART_GRADIENT]];
      if (range->flat_offset + range->global[0] > end) end = range->flat_offset + range->global[0];
    }
    sides |= side_of(end, shard, value->flat_elements);
  }
  return sides;
}

unsigned ls_shrink_pieces(ls_program *const *stages, int count) {
  unsigned sides = 0;
  for (int s = 0; s < count; s++) sides |= pieces_of(stages[s]);
  return sides;
}
