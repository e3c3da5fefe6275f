#include <jansson.h>
#include <limits.h>
#include <string.h>

#include "ir/saved.h"
#include "ir/saved_fields.h"

typedef struct loader {
  ls_arena *arena;
  const char *name;
  ls_program *program;
  int64_t live_intervals, actions; /* how many there will be */
  ls_error *error;
} loader;

static ls_status damaged(const loader *l, const char *part, size_t index) {
  return ls_fail(l->error, LS_INPUT, "%s: damaged program: %s %zu", l->name, part, index);
}

static bool in_range(int64_t value, int64_t count) {
  return value >= 0 && value < count;
}
static bool is_value(const loader *l, int64_t value, bool may_miss) {
  return (may_miss && value == -1) || in_range(value, l->program->values.count);
}

static int find_dtype(const char *name) {
  for (int d = 0; d < LS_DTYPE_COUNT; d++)
    if (strcmp(ls_dtype_name((ls_dtype)d), name) == 0) return d;
  return -1;
}

/* Its kind and transfer, by name. */
static bool read_action(const char *name, ls_action *action) {
  for (int k = 0; k < LS_ACTION_COUNT_OF_KINDS; k++)
    for (int t = 0; t < LS_TRANSFER_COUNT * LS_PAYLOAD_COUNT; t++) {
      action->kind = (ls_action_kind)k;
      action->transfer = (ls_transfer_kind)(t / LS_PAYLOAD_COUNT);
      action->payload = (ls_payload)(t % LS_PAYLOAD_COUNT);
      if (strcmp(ls_action_name(action), name) == 0) return true;
      if (!ls_action_transfers(action)) break;
    }
  return false;
}

/* Up to `most` integers; -1: not an array of integers, or too long. */
static int read_integers(const json_t *array, int64_t *items, int most) {
  if (!json_is_array(array) || json_array_size(array) > (size_t)most) return -1;
  const int count = (int)json_array_size(array);
  for (int i = 0; i < count; i++) {
    const json_t *item = json_array_get(array, (size_t)i);
    if (!json_is_integer(item)) return -1;
    items[i] = json_integer_value(item);
  }
  return count;
}

static bool read_ints(const json_t *array, int *items, int exactly) {
  int64_t wide[LS_CELL_COUNT + LS_POOL_COUNT];
  LS_ASSERT(exactly <= LS_CELL_COUNT + LS_POOL_COUNT);
  if (read_integers(array, wide, exactly) != exactly) return false;
  for (int i = 0; i < exactly; i++) {
    if (wide[i] < INT32_MIN || wide[i] > INT32_MAX) return false;
    items[i] = (int)wide[i];
  }
  return true;
}

static const char *text_or_null(ls_arena *arena, const char *text) {
  return *text ? ls_arena_strdup(arena, text) : NULL;
}

static bool read_ops(const json_t *array, ls_op_set *set) {
  if (!json_is_array(array)) return false;
  *set = (ls_op_set){{false}};
  for (size_t i = 0; i < json_array_size(array); i++) {
    const json_t *item = json_array_get(array, i);
    const ls_op_kind kind =
        json_is_string(item) ? ls_op_find(json_string_value(item)) : LS_OP_COUNT;
    if (json_is_null(item))
      *set = (ls_op_set)LS_EVERY_OP;
    else if (kind < LS_OP_COUNT)
      set->has[kind] = true;
    else
      return false;
  }
  return true;
}

static bool read_recompute_of(ls_arena *arena, const json_t *object, ls_layout *layout) {
  const json_t *array = json_object_get(object, "recompute_of");
  if (!json_is_array(array)) return false;
  const size_t count = json_array_size(array);
  ls_op_set *items = LS_NEW_ARRAY(arena, ls_op_set, count + 1);
  for (size_t i = 0; i < count; i++)
    if (!read_ops(json_array_get(array, i), &items[i])) return false;
  layout->recompute_of = items;
  layout->recompute_of_count = (int)count;
  return true;
}

static bool read_offload(const json_t *object, ls_offload *offload) {
  int tiers[3];
  if (json_unpack((json_t *)object, "{s:[iFii]}", "offload", &tiers[0],
                  &offload->optimizer_fraction, &tiers[1], &tiers[2]) != 0)
    return false;
  for (int t = 0; t < 3; t++)
    if (!in_range(tiers[t], LS_TIER_COUNT)) return false;
  offload->optimizer = (ls_tier)tiers[0];
  offload->parameters = (ls_tier)tiers[1];
  offload->activations = (ls_tier)tiers[2];
  return true;
}

static bool read_number(const json_t *object, const char *name, int64_t low, int64_t high,
                        int64_t *value) {
  const json_t *item = json_object_get(object, name);
  *value = json_integer_value(item);
  return json_is_integer(item) && *value >= low && *value <= high;
}

static bool read_numbers(const json_t *object, ls_layout *layout) {
  int64_t value;
  for (int a = 0; a < LS_LAYOUT_AXES; a++) {
    if (!read_number(object, ls_layout_axis(a), 1, 1 << 20, &value)) return false;
    ls_layout_set_size(layout, a, (int)value);
  }
  for (const ls_layout_number *each = ls_layout_numbers; each->name; each++) {
    if (!read_number(object, each->name, each->low, each->high, &value)) return false;
    ls_layout_number_set(layout, each, value);
  }
  return true;
}

static bool read_layout(ls_arena *arena, const json_t *object, ls_layout *layout) {
  const char *compute, *grad_dtype, *schedule, *stages;
  const json_t *recompute;
  int kind;
  ls_optimizer *optimizer = &layout->optimizer;
  if (json_unpack((json_t *)object, "{s:s,s:s,s:o,s:s,s:s,s:[ifffffffff]}", "schedule", &schedule,
                  "stages", &stages, "recompute", &recompute, "compute", &compute, "grad_dtype",
                  &grad_dtype, "optimizer", &kind, &optimizer->beta1, &optimizer->beta2,
                  &optimizer->epsilon, &optimizer->weight_decay, &optimizer->momentum,
                  &optimizer->clip, &optimizer->matrix_scale, &optimizer->warmup,
                  &optimizer->parameter_scale) != 0 ||
      !read_ops(recompute, &layout->recompute) || !read_recompute_of(arena, object, layout) ||
      !read_offload(object, &layout->offload) || !read_numbers(object, layout))
    return false;
  const int dtype = find_dtype(compute), gradients = find_dtype(grad_dtype);
  if (dtype < 0 || gradients < 0 || !in_range(kind, LS_OPTIMIZER_COUNT)) return false;
  layout->schedule = text_or_null(arena, schedule);
  layout->stages = text_or_null(arena, stages);
  layout->compute = (ls_dtype)dtype;
  layout->grad_dtype = (ls_dtype)gradients;
  optimizer->kind = (ls_optimizer_kind)kind;
  return true;
}

static ls_status load_buffer_group(loader *l, json_t *item, size_t index) {
  ls_buffer_group buffer_group = {0};
  const char *name;
  int pool, category;
  json_int_t bytes;
  if (json_unpack(item, "[siiIi]", &name, &pool, &category, &bytes, &buffer_group.live_interval) !=
          0 ||
      !in_range(pool, LS_POOL_COUNT) || !in_range(category, LS_CATEGORY_COUNT) ||
      !in_range(bytes, l->program->pool_bytes[pool] + 1) ||
      !in_range(buffer_group.live_interval, l->live_intervals))
    return damaged(l, "buffer_group", index);
  buffer_group.name = ls_arena_strdup(l->arena, name);
  buffer_group.pool = (ls_pool)pool;
  buffer_group.category = (ls_category)category;
  buffer_group.bytes = bytes;
  *LS_APPEND(l->arena, &l->program->buffer_groups) = buffer_group;
  return LS_OK;
}

static ls_status load_live_interval(loader *l, json_t *item, size_t index) {
  ls_live_interval made;
  json_int_t offset;
  if (json_unpack(item, "[iiiiI]", &made.buffer_group, &made.microbatch, &made.first, &made.last,
                  &offset) != 0 ||
      !in_range(made.buffer_group, l->program->buffer_groups.count))
    return damaged(l, "live_interval", index);
  const ls_buffer_group *buffer_group = &l->program->buffer_groups.items[made.buffer_group];
  const int64_t room = l->program->pool_bytes[buffer_group->pool] - buffer_group->bytes;
  if (!in_range(offset, room + 1) || !in_range(made.first, l->actions) ||
      !in_range(made.last, l->actions) || made.first > made.last ||
      !in_range((int64_t)made.microbatch + 1, l->program->layout.microbatches + 1))
    return damaged(l, "live_interval", index);
  made.offset = offset;
  *LS_APPEND(l->arena, &l->program->live_intervals) = made;
  return LS_OK;
}

static ls_status load_storage(loader *l, json_t *item, size_t index) {
  ls_storage storage = {0};
  const char *name;
  json_int_t offset, bytes;
  if (json_unpack(item, "[siII]", &name, &storage.buffer_group, &offset, &bytes) != 0 ||
      !in_range(storage.buffer_group, l->program->buffer_groups.count))
    return damaged(l, "storage", index);
  const int64_t room = l->program->buffer_groups.items[storage.buffer_group].bytes;
  if (!in_range(bytes, room + 1) || !in_range(offset, room - bytes + 1))
    return damaged(l, "storage", index);
  storage.name = ls_arena_strdup(l->arena, name);
  storage.offset = offset;
  storage.bytes = bytes;
  *LS_APPEND(l->arena, &l->program->storages) = storage;
  return LS_OK;
}

static bool read_placement(const loader *l, const json_t *array, ls_placement *placement) {
  if (json_array_size(array) != (size_t)l->program->mesh.count) return false;
  for (int a = 0; a < l->program->mesh.count; a++) {
    int place[5];
    if (!read_ints(json_array_get(array, (size_t)a), place, 5) ||
        !in_range(place[0], LS_SHARDED_FLAT + 1) || !in_range(place[1], LS_MAX_DIMS) ||
        !in_range(place[2], LS_MASK + 1) || !in_range(place[3], SHRT_MAX + 1) ||
        !in_range(place[4], l->program->mesh.axes[a].size))
      return false;
    placement->on[a] = (ls_place){(ls_place_kind)place[0], (ls_reduce)place[2], (short)place[1],
                                  (short)place[3], (short)place[4]};
  }
  return true;
}

/* Whether a flat range, which may be any part of a unit's buffer, is told in numbers whose products
 * can be had, and its unit in shards of one length. */
static bool is_flat_sane(const loader *l, const ls_value *value) {
  const ls_mesh *mesh = &l->program->mesh;
  int64_t elements, end;
  return value->flat_elements > 0 && value->flat_elements < INT64_C(1) << 53 &&
         value->flat_elements % ls_mesh_size(mesh, ls_value_flat_axes(mesh, value)) == 0 &&
         !__builtin_mul_overflow(value->flat_rows, value->flat_row_elements, &elements) &&
         !__builtin_add_overflow(value->flat_offset, elements, &end) && end < INT64_C(1) << 53;
}

/* The ranks whose parts of a value lie furthest out: the parts of a tensor are of one length and
 * place on all ranks; those of a flat range differ by its shards, of which all between the first
 * and the last that the range touches are whole. Returns how many, at most FURTHEST. */
enum { FURTHEST = 6 };
static int furthest_ranks(const ls_program *program, const ls_value *value, int ranks[FURTHEST]) {
  const ls_mesh *mesh = &program->mesh;
  const ls_axes axes = value->flat_elements ? ls_value_flat_axes(mesh, value) : 0;
  ranks[0] = 0;
  if (!axes) return 1;
  const ls_axis_order order = ls_placement_order(&value->placement, axes);
  const int64_t shards = ls_mesh_size(mesh, axes), shard = ls_value_shard(mesh, value);
  const int64_t first = value->flat_offset / shard;
  const int64_t last = (value->flat_offset + value->global[0]) / shard;
  const int64_t tried[FURTHEST] = {0, first, first + 1, last - 1, last, shards - 1};
  int count = 0;
  for (int i = 0; i < FURTHEST; i++)
    if (in_range(tried[i], shards)) ranks[count++] = ls_mesh_member(mesh, 0, order, (int)tried[i]);
  return count;
}

/* Whether the value's own rows are among those that a rank stores. */
static bool has_rows(const loader *l, const ls_value *value) {
  if (!value->rows) return value->first_row == 0;
  const ls_part part = ls_mesh_part(&l->program->mesh, 0, &value->placement, 0, value->global[0]);
  return !value->flat_elements && value->first_row + value->rows <= part.stored;
}

/* Rows are at least as long as a rank's columns. */
static bool has_columns(const loader *l, const ls_value *value) {
  if (!value->row_elements) return true;
  if (value->ndim != 2 || value->flat_elements) return false;
  const ls_part part = ls_mesh_part(&l->program->mesh, 0, &value->placement, 1, value->global[1]);
  return value->row_elements >= part.stored;
}

/* Whether every rank's part of the value lies in its storage. */
static bool fits(const loader *l, int index) {
  const ls_value *value = &l->program->values.items[index];
  if (!has_rows(l, value) || !has_columns(l, value) ||
      (value->flat_elements && !is_flat_sane(l, value)))
    return false;
  const ls_storage *storage = &l->program->storages.items[value->storage];
  int ranks[FURTHEST];
  const int count = furthest_ranks(l->program, value, ranks);
  for (int r = 0; r < count; r++) {
    const ls_local local = ls_program_local(l->program, ranks[r], index);
    int64_t bytes = (int64_t)ls_dtype_bytes(value->dtype);
    for (int d = 0; d < value->ndim; d++) {
      if (local.dims[d] < 0 || local.dims[d] > INT64_C(1) << 40) return false;
      if (__builtin_mul_overflow(bytes, local.dims[d], &bytes)) return false;
    }
    const int64_t begin = local.offset - storage->offset;
    if (begin < 0 || bytes > storage->bytes - begin) return false;
  }
  return true;
}

static ls_status load_value(loader *l, json_t *item, size_t index) {
  ls_value value = {0};
  const char *name, *dtype;
  json_t *global, *placement, *fields;
  if (json_unpack(item, "[ssooio]", &name, &dtype, &global, &placement, &value.storage, &fields) !=
          0 ||
      find_dtype(dtype) < 0 || !in_range(value.storage, l->program->storages.count) ||
      !read_placement(l, placement, &value.placement))
    return damaged(l, "value", index);
  value.name = ls_arena_strdup(l->arena, name);
  value.dtype = (ls_dtype)find_dtype(dtype);
  value.ndim = read_integers(global, value.global, LS_MAX_DIMS);
  int64_t numbers[LS_VALUE_FIELDS];
  if (value.ndim < 1 || read_integers(fields, numbers, LS_VALUE_FIELDS) != LS_VALUE_FIELDS)
    return damaged(l, "value", index);
  for (int d = 0; d < value.ndim; d++)
    if (!in_range(value.global[d], INT64_C(1) << 48)) return damaged(l, "value", index);
  for (int f = 0; f < LS_VALUE_FIELDS; f++) {
    if (!in_range(numbers[f], INT64_C(1) << 52)) return damaged(l, "value", index);
    ls_value_set_field(&value, f, numbers[f]);
  }
  *LS_APPEND(l->arena, &l->program->values) = value;
  return fits(l, l->program->values.count - 1) ? LS_OK : damaged(l, "value", index);
}

static bool read_operands(const loader *l, const json_t *array, int most, int *items, int *count) {
  int64_t wide[LS_MAX_INPUTS];
  *count = read_integers(array, wide, most);
  for (int i = 0; i < *count; i++) {
    if (!is_value(l, wide[i], false)) return false;
    items[i] = (int)wide[i];
  }
  return *count >= 0;
}

/* Whether what a move takes and fills lies in its operands' storages, on every rank. */
static bool moves_fit(const loader *l, const ls_instruction *move) {
  if (move->inputs != 1 || move->outputs != 1) return false;
  const int operands[] = {move->in[0], move->out[0]};
  const ls_program *program = l->program;
  for (int i = 0; i < 2; i++) {
    const ls_value *value = &program->values.items[operands[i]];
    const ls_storage *storage = &program->storages.items[value->storage];
    int ranks[FURTHEST];
    const int count = furthest_ranks(program, value, ranks);
    if (value->dtype != program->values.items[operands[0]].dtype) return false;
    for (int r = 0; r < count; r++) {
      const ls_local local = ls_program_local(program, ranks[r], operands[i]);
      const int64_t room = storage->offset + storage->bytes - local.offset;
      if (move->count > room / (int64_t)ls_dtype_bytes(value->dtype)) return false;
    }
  }
  return true;
}

/* False where the list is not as long as it says, or holds what is no number that an op could have.
 */
static bool read_attributes(loader *l, json_t *array, ls_attributes *attributes) {
  const size_t count = json_array_size(array);
  if (count < LS_ATTRIBUTE_COUNT) return false;
  for (size_t f = 0; f < count; f++) {
    const json_t *item = json_array_get(array, f);
    if (!json_is_number(item)) return false;
    if (f >= LS_ATTRIBUTE_COUNT) continue;
    if (!ls_attribute_can_be((int)f, json_number_value(item))) return false;
    ls_attribute_set(attributes, (int)f, json_number_value(item));
  }
  const size_t pairs = count - LS_ATTRIBUTE_COUNT;
  if (attributes->rope_pairs < 0 || (size_t)attributes->rope_pairs != pairs) return false;
  double *frequencies = LS_NEW_ARRAY(l->arena, double, pairs + 1);
  for (size_t p = 0; p < pairs; p++)
    frequencies[p] = json_number_value(json_array_get(array, LS_ATTRIBUTE_COUNT + p));
  if (pairs) attributes->rope_frequencies = frequencies;
  return true;
}

static ls_status load_instruction(loader *l, json_t *item, size_t index) {
  ls_instruction made = {0};
  int collective, phase, axes, reduce, queue, first_only;
  const char *op, *reason;
  json_int_t count;
  json_t *in, *out, *write, *attributes;
  if (json_unpack(item, "[iisiiiIiiiooosoi]", &collective, &phase, &op, &axes, &reduce, &made.peer,
                  &count, &queue, &made.wait, &first_only, &in, &out, &write, &reason, &attributes,
                  &made.unit) != 0)
    return damaged(l, "instruction", index);
  const ls_op_kind kind = ls_op_find(op);
  if (!in_range(collective, LS_COLLECTIVE_COUNT) || !in_range(phase, LS_PHASE_COUNT) ||
      !in_range((int64_t)made.peer + 1, ls_mesh_stages(&l->program->mesh) + 1) ||
      made.peer == l->program->stage ||
      (ls_collective_is_message((ls_collective)collective) && made.peer < 0) ||
      kind == LS_OP_COUNT || !in_range(axes, (int64_t)ls_mesh_all(&l->program->mesh) + 1) ||
      !in_range(reduce, 2) || count < 0 || !in_range(queue, LS_QUEUE_COUNT) ||
      !in_range(first_only, (int64_t)ls_mesh_all(&l->program->mesh) + 1) ||
      !read_operands(l, in, LS_MAX_INPUTS, made.in, &made.inputs) ||
      !read_operands(l, out, LS_MAX_OUTPUTS, made.out, &made.outputs) ||
      json_array_size(write) != (size_t)made.outputs ||
      !read_attributes(l, attributes, &made.attributes) ||
      (collective == LS_COLLECTIVE_NONE && !ls_op_has_divisors(kind, &made.attributes)) ||
      !in_range((int64_t)made.wait + 1, (int64_t)index + 1) ||
      !in_range(made.unit, l->program->units.count))
    return damaged(l, "instruction", index);
  made.collective = (ls_collective)collective;
  made.phase = (ls_phase)phase;
  made.kind = kind;
  made.axes = (ls_axes)axes;
  made.reduce = (ls_reduce)reduce;
  made.count = count;
  made.queue = (ls_queue)queue;
  made.first_only = (ls_axes)first_only;
  made.reason = *reason ? ls_arena_strdup(l->arena, reason) : NULL;
  for (int o = 0; o < made.outputs; o++) {
    const json_int_t mode = json_integer_value(json_array_get(write, (size_t)o));
    if (!in_range(mode, LS_ADD_AFTER_FIRST + 1)) return damaged(l, "instruction", index);
    made.write[o] = (ls_write_mode)mode;
  }
  if (ls_collective_moves(made.collective) && !moves_fit(l, &made))
    return damaged(l, "instruction", index);
  *LS_APPEND(l->arena, &l->program->instructions) = made;
  return LS_OK;
}

static bool body_has(const ls_program *program, const ls_body *body, int value) {
  const int buffer_group =
      program->storages.items[program->values.items[value].storage].buffer_group;
  for (int i = 0; i < body->buffer_groups.count; i++)
    if (body->buffer_groups.items[i] == buffer_group) return true;
  return false;
}

static ls_status load_body(loader *l, json_t *item, size_t index) {
  ls_body body = {0};
  json_t *buffer_groups;
  if (json_unpack(item, "[iio]", &body.first, &body.count, &buffer_groups) != 0 || body.first < 0 ||
      body.count < 0 || body.first > l->program->instructions.count - body.count)
    return damaged(l, "body", index);
  for (size_t i = 0; i < json_array_size(buffer_groups); i++) {
    const json_int_t buffer_group = json_integer_value(json_array_get(buffer_groups, i));
    if (!in_range(buffer_group, l->program->buffer_groups.count)) return damaged(l, "body", index);
    *LS_APPEND(l->arena, &body.buffer_groups) = (int)buffer_group;
  }
  for (int i = body.first; i < body.first + body.count; i++) {
    const ls_instruction *each = &l->program->instructions.items[i];
    for (int n = 0; n < each->inputs; n++)
      if (!body_has(l->program, &body, each->in[n])) return damaged(l, "body", index);
    for (int n = 0; n < each->outputs; n++)
      if (!body_has(l->program, &body, each->out[n])) return damaged(l, "body", index);
  }
  *LS_APPEND(l->arena, &l->program->bodies) = body;
  return LS_OK;
}

static ls_status load_action(loader *l, json_t *item, size_t index) {
  ls_program_action made = {0};
  const char *name;
  int first;
  json_t *live_intervals;
  if (json_unpack(item, "[siiiibo]", &name, &made.action.segment, &made.action.unit,
                  &made.action.microbatch, &made.body, &first, &live_intervals) != 0 ||
      !read_action(name, &made.action) || !in_range(made.body, l->program->bodies.count) ||
      !in_range((int64_t)made.action.microbatch + 1, l->program->layout.microbatches + 1) ||
      !in_range((int64_t)made.action.segment + 1, l->program->segments.count + 1) ||
      !in_range((int64_t)made.action.unit + 1, l->program->units.count + 1))
    return damaged(l, "action", index);
  made.first = first != 0;
  const ls_body *body = &l->program->bodies.items[made.body];
  if (json_array_size(live_intervals) != (size_t)body->buffer_groups.count)
    return damaged(l, "action", index);
  made.live_intervals = LS_NEW_ARRAY(l->arena, int, body->buffer_groups.count + 1);
  for (int i = 0; i < body->buffer_groups.count; i++) {
    const json_int_t live_interval = json_integer_value(json_array_get(live_intervals, (size_t)i));
    if (!in_range(live_interval, l->program->live_intervals.count) ||
        l->program->live_intervals.items[live_interval].buffer_group !=
            body->buffer_groups.items[i])
      return damaged(l, "action", index);
    made.live_intervals[i] = (int)live_interval;
  }
  *LS_APPEND(l->arena, &l->program->actions) = made;
  return LS_OK;
}

static ls_status load_parameter(loader *l, json_t *item, size_t index) {
  ls_program_parameter *made = &l->program->parameters[index];
  const char *name;
  int present, owner, trainable, sharding, precision;
  json_int_t owned;
  json_t *dims, *values;
  if (json_unpack(item, "[sbbbiioiiIo]", &name, &present, &owner, &trainable, &sharding, &precision,
                  &dims, &made->unit, &made->update, &owned, &values) != 0 ||
      !in_range(owned + 1, (INT64_C(1) << 52) + 1) || !in_range(sharding, LS_TP_COUNT) ||
      !in_range(precision, LS_PRECISION_COUNT) || !in_range(made->unit, l->program->units.count) ||
      !in_range(made->update, LS_UPDATE_COUNT) || !read_ints(values, made->part, LS_PART_COUNT))
    return damaged(l, "parameter", index);
  made->name = ls_arena_strdup(l->arena, name);
  made->present = present != 0;
  made->owner = owner != 0;
  made->trainable = trainable != 0;
  made->owned = owned;
  made->sharding = (ls_tp_sharding)sharding;
  made->precision = (ls_precision)precision;
  made->ndim = read_integers(dims, made->dims, LS_MAX_DIMS);
  for (int part = 0; part < LS_PART_COUNT; part++) {
    const bool always = present && !ls_state_row_of((ls_state_part)part)->trained;
    if (made->ndim < 1 || !is_value(l, made->part[part], !always))
      return damaged(l, "parameter", index);
  }
  l->program->parameter_count++;
  return LS_OK;
}

static ls_status load_unit(loader *l, json_t *item, size_t index) {
  if (!json_is_string(item)) return damaged(l, "unit", index);
  *LS_APPEND(l->arena, &l->program->units) = ls_arena_strdup(l->arena, json_string_value(item));
  return LS_OK;
}

static ls_status load_loads(loader *l, json_t *item, size_t index) {
  const json_int_t value = json_integer_value(item);
  if (!json_is_integer(item) || !in_range(value, l->program->values.count))
    return damaged(l, "loads", index);
  *LS_APPEND(l->arena, &l->program->loads) = (int)value;
  return LS_OK;
}

static ls_status load_segment(loader *l, json_t *item, size_t index) {
  const ls_program *program = l->program;
  ls_program_segment made;
  const char *name;
  if (json_unpack(item, "[sii]", &name, &made.chunk, &made.unit) != 0 ||
      !in_range(made.chunk, (int64_t)program->chunks * ls_mesh_stages(&program->mesh)) ||
      !in_range((int64_t)made.unit + 1, program->units.count + 1))
    return damaged(l, "segment", index);
  made.name = ls_arena_strdup(l->arena, name);
  *LS_APPEND(l->arena, &l->program->segments) = made;
  return LS_OK;
}

static ls_status load_list(loader *l, const json_t *root, const char *key,
                           ls_status (*load)(loader *, json_t *, size_t)) {
  const json_t *list = json_object_get(root, key);
  if (!json_is_array(list)) return damaged(l, key, 0);
  for (size_t i = 0; i < json_array_size(list); i++) LS_TRY(load(l, json_array_get(list, i), i));
  return LS_OK;
}

/* The axes, of which the first is that of the stages and no other is. */
static ls_status load_mesh(loader *l, const json_t *array) {
  ls_mesh *mesh = &l->program->mesh;
  int64_t ranks = 1;
  const size_t count = json_array_size(array);
  if (count < 1 || count > LS_MAX_AXES) return damaged(l, "mesh", 0);
  for (size_t a = 0; a < count; a++) {
    const char *name, *part;
    int role, shares, size;
    if (json_unpack(json_array_get(array, a), "[ssiii]", &name, &part, &role, &shares, &size) !=
            0 ||
        !in_range(role, LS_MESH_ROLES) || (role == LS_MESH_STAGE) != (a == 0) ||
        !in_range(shares, 2 * LS_SHARES_STREAM) || size < 1 || !in_range(size, 1 << 20))
      return damaged(l, "mesh", a);
    ranks *= size;
    if (ranks > 1 << 24) return damaged(l, "mesh", a);
    ls_mesh_add(mesh, &(ls_axis){.name = ls_arena_strdup(l->arena, name),
                                 .part = ls_arena_strdup(l->arena, part),
                                 .role = (ls_axis_role)role,
                                 .shares = (ls_shares)shares,
                                 .size = size});
  }
  return LS_OK;
}

static ls_status load_head(loader *l, json_t *root) {
  ls_program *program = l->program;
  int version, kind;
  json_int_t tokens, sequence, alignment;
  if (json_unpack(root, "{s:i,s:i,s:I,s:I,s:F,s:F}", "lockstep_program", &version, "kind", &kind,
                  "tokens", &tokens, "sequence", &sequence, "flops", &program->flops,
                  "recomputed_flops", &program->recomputed_flops) != 0 ||
      !in_range(kind, LS_PROGRAM_FORWARD + 1) || tokens < 1 || sequence < 1)
    return damaged(l, "head", 0);
  if (version != LS_SAVED_VERSION)
    return ls_fail(l->error, LS_INPUT, "%s: saved form %d; this version reads %d", l->name, version,
                   LS_SAVED_VERSION);
  program->kind = (ls_program_kind)kind;
  program->tokens = tokens;
  program->sequence = sequence;
  LS_TRY(load_mesh(l, json_object_get(root, "mesh")));
  if (!read_layout(l->arena, json_object_get(root, "layout"), &program->layout) ||
      json_unpack(root, "{s:I}", "alignment", &alignment) != 0 ||
      !in_range(alignment - 1, 1 << 20) ||
      read_integers(json_object_get(root, "pool_bytes"), program->pool_bytes, LS_POOL_COUNT) !=
          LS_POOL_COUNT)
    return damaged(l, "head", 0);
  int64_t ranks = 1; /* of at most LS_LAYOUT_AXES sizes of 2^20 each */
  for (int a = 0; a < LS_LAYOUT_AXES && ranks <= 1 << 24; a++)
    ranks *= ls_layout_size(&program->layout, a);
  if (ranks != ls_mesh_ranks(&program->mesh)) return damaged(l, "mesh", 0);
  program->alignment = alignment;
  if (json_unpack(root, "{s:i}", "stage", &program->stage) != 0 ||
      !in_range(program->stage, ls_mesh_stages(&program->mesh)))
    return damaged(l, "stage", 0);
  for (int p = 0; p < LS_POOL_COUNT; p++)
    if (!in_range(program->pool_bytes[p], INT64_C(1) << 50)) return damaged(l, "pool", (size_t)p);
  return LS_OK;
}

static ls_status load_program(loader *l, json_t *root) {
  ls_program *program = l->program;
  LS_TRY(load_head(l, root));
  if (json_unpack(root, "{s:i}", "chunks", &program->chunks) != 0 ||
      !in_range(program->chunks, 1 << 20))
    return damaged(l, "chunks", 0);
  LS_TRY(load_list(l, root, "units", load_unit));
  LS_TRY(load_list(l, root, "segments", load_segment));
  l->live_intervals = (int64_t)json_array_size(json_object_get(root, "live_intervals"));
  l->actions = (int64_t)json_array_size(json_object_get(root, "actions"));
  LS_TRY(load_list(l, root, "buffer_groups", load_buffer_group));
  LS_TRY(load_list(l, root, "live_intervals", load_live_interval));
  for (int f = 0; f < program->buffer_groups.count; f++)
    if (program->live_intervals.items[program->buffer_groups.items[f].live_interval].buffer_group !=
        f)
      return damaged(l, "buffer_group", (size_t)f);
  LS_TRY(load_list(l, root, "storages", load_storage));
  LS_TRY(load_list(l, root, "values", load_value));
  LS_TRY(load_list(l, root, "instructions", load_instruction));
  LS_TRY(load_list(l, root, "bodies", load_body));
  LS_TRY(load_list(l, root, "actions", load_action));
  program->parameters = LS_NEW_ARRAY(l->arena, ls_program_parameter,
                                     json_array_size(json_object_get(root, "parameters")) + 1);
  LS_TRY(load_list(l, root, "parameters", load_parameter));
  enum { INPUTS = 13 };
  int inputs[INPUTS];
  if (!read_ints(json_object_get(root, "inputs"), inputs, INPUTS) ||
      !read_ints(json_object_get(root, "cells"), program->cell, LS_CELL_COUNT))
    return damaged(l, "inputs", 0);
  if (json_unpack(root, "{s:i}", "replay_boundary", &program->replay_boundary) != 0 ||
      program->replay_boundary < -1 || program->replay_boundary > program->actions.count)
    return damaged(l, "replay_boundary", 0);
  for (int i = 0; i < INPUTS; i++)
    if (!is_value(l, inputs[i], true)) return damaged(l, "inputs", (size_t)i);
  for (int c = 0; c < LS_CELL_COUNT; c++)
    if (!is_value(l, program->cell[c], c >= LS_CELL_REWARD_CHOSEN))
      return damaged(l, "cell", (size_t)c);
  LS_TRY(load_list(l, root, "loads", load_loads));
  program->ids = inputs[0];
  program->labels = inputs[1];
  program->positions = inputs[2];
  program->places = inputs[3];
  program->draws = inputs[4];
  program->reference = inputs[5];
  program->remaining = inputs[6];
  program->types = inputs[7];
  program->weights = inputs[8];
  program->sets = inputs[9];
  program->top_ids = inputs[10];
  program->top_below = inputs[11];
  program->logits = inputs[12];
  return LS_OK;
}

ls_status ls_program_parse(ls_arena *arena, const char *name, const char *text, size_t bytes,
                           ls_program **program, ls_error *error) {
  json_error_t reason;
  json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &reason);
  if (!root)
    return ls_fail(error, LS_INPUT, "%s:%d:%d: %s", name, reason.line, reason.column, reason.text);
  loader l = {.arena = arena, .name = name, .program = LS_NEW(arena, ls_program), .error = error};
  l.program->arena = arena;
  const ls_status status = load_program(&l, root);
  json_decref(root);
  *program = l.program;
  return status;
}
