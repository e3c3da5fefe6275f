/* Programs of one run take turns on one region: what they keep must lie at the same places. */
#include <string.h>

#include "check/proof.h"

/* Where a value that lasts between programs begins in its pool. */
static int64_t address_of(const ls_program *program, int value) {
  const ls_storage *storage = &program->storages.items[program->values.items[value].storage];
  const int live_interval = ls_program_buffer_group(program, value)->live_interval;
  return program->live_intervals.items[live_interval].offset + storage->offset +
         program->values.items[value].offset;
}

static ls_pool pool_of(const ls_program *program, int value) {
  return ls_program_buffer_group(program, value)->pool;
}

static bool shares(const ls_program *a, int in_a, const ls_program *b, int in_b) {
  const ls_value *x = &a->values.items[in_a], *y = &b->values.items[in_b];
  if (pool_of(a, in_a) != pool_of(b, in_b) || address_of(a, in_a) != address_of(b, in_b) ||
      x->dtype != y->dtype || x->ndim != y->ndim || x->flat_elements != y->flat_elements ||
      x->flat_offset != y->flat_offset)
    return false;
  if (memcmp(&x->placement, &y->placement, sizeof x->placement) != 0) return false;
  for (int d = 0; d < x->ndim; d++)
    if (x->global[d] != y->global[d]) return false;
  return true;
}

static ls_status fail_shared(const ls_program *program, const char *name, ls_error *error) {
  return ls_fail(error, LS_REFUTED,
                 "stage %d: %s lies elsewhere, or otherwise, than in the other program of the run: "
                 "expected the same place and form",
                 program->stage, name);
}

static bool is_cache(const ls_program *program, int value) {
  return ls_program_buffer_group(program, value)->category == LS_CATEGORY_CACHES;
}

/* What decoding keeps, by name. */
static ls_status check_caches(const ls_program *a, const ls_program *b, ls_error *error) {
  int y = -1, count = b->values.count; /* in the same order, mostly */
  for (int x = 0; x < a->values.count; x++) {
    if (!is_cache(a, x)) continue;
    const char *name = a->values.items[x].name;
    int tried = 0;
    do y = (y + 1) % count;
    while (++tried <= count && !(is_cache(b, y) && strcmp(b->values.items[y].name, name) == 0));
    if (tried > count || !shares(a, x, b, y)) return fail_shared(a, name, error);
  }
  return LS_OK;
}

static ls_status check_pair(const ls_program *a, const ls_program *b, ls_error *error) {
  for (int axis = 0; axis < a->mesh.count; axis++)
    if (a->mesh.count != b->mesh.count || a->mesh.axes[axis].size != b->mesh.axes[axis].size)
      return ls_fail(error, LS_REFUTED,
                     "stage %d: is for another mesh than the other program's: expected "
                     "one",
                     a->stage);
  if (a->parameter_count != b->parameter_count)
    return ls_fail(error, LS_REFUTED,
                   "stage %d: knows %d parameters, the other program %d: expected "
                   "the same",
                   a->stage, a->parameter_count, b->parameter_count);
  for (int p = 0; p < a->parameter_count; p++) {
    const ls_program_parameter *x = &a->parameters[p], *y = &b->parameters[p];
    if (x->present != y->present || x->trainable != y->trainable)
      return fail_shared(a, x->name, error);
    if (!x->present) continue;
    for (int part = 0; part < LS_PART_COUNT; part++) {
      const int in_a = x->part[part], in_b = y->part[part];
      if (ls_state_row_of((ls_state_part)part)->kept && in_a >= 0 && in_b >= 0 &&
          !shares(a, in_a, b, in_b))
        return fail_shared(a, a->values.items[in_a].name, error);
    }
  }
  for (int c = 0; c < LS_CELL_COUNT; c++)
    if (a->cell[c] >= 0 && b->cell[c] >= 0 && !shares(a, a->cell[c], b, b->cell[c]))
      return fail_shared(a, a->values.items[a->cell[c]].name, error);
  return check_caches(a, b, error);
}

ls_status ls_check_shared(const ls_program *const *a, const ls_program *const *b, int count,
                          ls_error *error) {
  for (int s = 0; s < count; s++) LS_TRY(check_pair(a[s], b[s], error));
  return LS_OK;
}
