#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "ir/saved.h"
#include "ir/saved_fields.h"

/* Arrays of numbers in a fixed order: the saved form is for machines; people have the printed one.
 */

static json_t *integers(const int64_t *items, int count) {
  json_t *array = json_array();
  for (int i = 0; i < count; i++) json_array_append_new(array, json_integer(items[i]));
  return array;
}

static json_t *ints(const int *items, int count) {
  json_t *array = json_array();
  for (int i = 0; i < count; i++) json_array_append_new(array, json_integer(items[i]));
  return array;
}

/* Names; every op: one null. */
static json_t *ops_json(const ls_op_set *set) {
  json_t *array = json_array();
  const bool every = ls_op_set_equal(set, &(ls_op_set)LS_EVERY_OP);
  if (every) json_array_append_new(array, json_null());
  for (int k = 0; k < LS_OP_COUNT && !every; k++)
    if (set->has[k]) json_array_append_new(array, json_string(ls_op_name((ls_op_kind)k)));
  return array;
}

static json_t *layout_json(const ls_layout *layout) {
  const ls_optimizer *optimizer = &layout->optimizer;
  const ls_offload *offload = &layout->offload;
  json_t *recompute_of = json_array();
  for (int i = 0; i < layout->recompute_of_count; i++)
    json_array_append_new(recompute_of, ops_json(&layout->recompute_of[i]));
  json_t *object = json_pack(
      "{s:s,s:s,s:o,s:o,s:s,s:s,s:[ifffffffff],s:[ifii]}", "schedule",
      layout->schedule ? layout->schedule : "", "stages", layout->stages ? layout->stages : "",
      "recompute", ops_json(&layout->recompute), "recompute_of", recompute_of, "compute",
      ls_dtype_name(layout->compute), "grad_dtype", ls_dtype_name(layout->grad_dtype), "optimizer",
      (int)optimizer->kind, optimizer->beta1, optimizer->beta2, optimizer->epsilon,
      optimizer->weight_decay, optimizer->momentum, optimizer->clip, optimizer->matrix_scale,
      optimizer->warmup, optimizer->parameter_scale, "offload", (int)offload->optimizer,
      offload->optimizer_fraction, (int)offload->parameters, (int)offload->activations);
  for (int a = 0; a < LS_LAYOUT_AXES; a++)
    json_object_set_new(object, ls_layout_axis(a), json_integer(ls_layout_size(layout, a)));
  for (const ls_layout_number *each = ls_layout_numbers; each->name; each++)
    json_object_set_new(object, each->name, json_integer(ls_layout_number_get(layout, each)));
  return object;
}

static json_t *buffer_group_json(const ls_buffer_group *buffer_group) {
  return json_pack("[siiIi]", buffer_group->name, (int)buffer_group->pool,
                   (int)buffer_group->category, (json_int_t)buffer_group->bytes,
                   buffer_group->live_interval);
}

static json_t *live_interval_json(const ls_live_interval *live_interval) {
  return json_pack("[iiiiI]", live_interval->buffer_group, live_interval->microbatch,
                   live_interval->first, live_interval->last, (json_int_t)live_interval->offset);
}

static json_t *storage_json(const ls_storage *storage) {
  return json_pack("[siII]", storage->name, storage->buffer_group, (json_int_t)storage->offset,
                   (json_int_t)storage->bytes);
}

static json_t *mesh_json(const ls_mesh *mesh) {
  json_t *array = json_array();
  for (int a = 0; a < mesh->count; a++) {
    const ls_axis *axis = &mesh->axes[a];
    json_array_append_new(array, json_pack("[ssiii]", axis->name, axis->part, (int)axis->role,
                                           (int)axis->shares, axis->size));
  }
  return array;
}

static json_t *placement_json(const ls_mesh *mesh, const ls_placement *placement) {
  json_t *array = json_array();
  for (int a = 0; a < mesh->count; a++) {
    const ls_place *place = &placement->on[a];
    json_array_append_new(array,
                          json_pack("[iiiii]", (int)place->kind, place->dim, (int)place->reduce,
                                    (int)place->order, (int)place->shift));
  }
  return array;
}

static json_t *value_json(const ls_mesh *mesh, const ls_value *value) {
  json_t *fields = json_array();
  for (int f = 0; f < LS_VALUE_FIELDS; f++)
    json_array_append_new(fields, json_integer(ls_value_field(value, f)));
  return json_pack("[ssooio]", value->name, ls_dtype_name(value->dtype),
                   integers(value->global, value->ndim), placement_json(mesh, &value->placement),
                   value->storage, fields);
}

static json_t *attributes_json(const ls_attributes *attributes) {
  json_t *array = json_array();
  for (int f = 0; f < LS_ATTRIBUTE_COUNT; f++)
    json_array_append_new(array, json_real(ls_attribute_get(attributes, f)));
  for (int64_t p = 0; p < attributes->rope_pairs; p++)
    json_array_append_new(array, json_real(attributes->rope_frequencies[p]));
  return array;
}

static json_t *instruction_json(const ls_instruction *each) {
  json_t *write = json_array();
  for (int o = 0; o < each->outputs; o++)
    json_array_append_new(write, json_integer(each->write[o]));
  return json_pack("[iisiiiIiiiooosoi]", (int)each->collective, (int)each->phase,
                   ls_op_name(each->kind), (int)each->axes, (int)each->reduce, each->peer,
                   (json_int_t)each->count, (int)each->queue, each->wait, (int)each->first_only,
                   ints(each->in, each->inputs), ints(each->out, each->outputs), write,
                   each->reason ? each->reason : "", attributes_json(&each->attributes),
                   each->unit);
}

static json_t *parameter_json(const ls_program_parameter *p) {
  return json_pack("[sbbbiioiiIo]", p->name, (int)p->present, (int)p->owner, (int)p->trainable,
                   (int)p->sharding, (int)p->precision, integers(p->dims, p->ndim), p->unit,
                   p->update, (json_int_t)p->owned, ints(p->part, LS_PART_COUNT));
}

static json_t *body_json(const ls_body *body) {
  return json_pack("[iio]", body->first, body->count,
                   ints(body->buffer_groups.items, body->buffer_groups.count));
}

static json_t *action_json(const ls_program *program, const ls_program_action *each) {
  const int buffer_groups = program->bodies.items[each->body].buffer_groups.count;
  return json_pack("[siiiibo]", ls_action_name(&each->action), each->action.segment,
                   each->action.unit, each->action.microbatch, each->body, (int)each->first,
                   ints(each->live_intervals, buffer_groups));
}

static json_t *segment_json(const ls_program_segment *segment) {
  return json_pack("[sii]", segment->name, segment->chunk, segment->unit);
}

#define LIST_JSON(array, count, make) \
  json_t *array = json_array();       \
  for (int i = 0; i < (count); i++) json_array_append_new(array, make)

static json_t *lists_json(const ls_program *program) {
  LIST_JSON(buffer_groups, program->buffer_groups.count,
            buffer_group_json(&program->buffer_groups.items[i]));
  LIST_JSON(live_intervals, program->live_intervals.count,
            live_interval_json(&program->live_intervals.items[i]));
  LIST_JSON(storages, program->storages.count, storage_json(&program->storages.items[i]));
  LIST_JSON(values, program->values.count, value_json(&program->mesh, &program->values.items[i]));
  LIST_JSON(instructions, program->instructions.count,
            instruction_json(&program->instructions.items[i]));
  LIST_JSON(bodies, program->bodies.count, body_json(&program->bodies.items[i]));
  LIST_JSON(actions, program->actions.count, action_json(program, &program->actions.items[i]));
  LIST_JSON(parameters, program->parameter_count, parameter_json(&program->parameters[i]));
  LIST_JSON(segments, program->segments.count, segment_json(&program->segments.items[i]));
  LIST_JSON(units, program->units.count, json_string(program->units.items[i]));
  return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "buffer_groups", buffer_groups,
                   "live_intervals", live_intervals, "storages", storages, "values", values,
                   "instructions", instructions, "bodies", bodies, "actions", actions, "parameters",
                   parameters, "segments", segments, "units", units);
}

const char *ls_program_text(ls_arena *arena, const ls_program *program) {
  json_t *root = lists_json(program);
  json_object_set_new(root, "lockstep_program", json_integer(LS_SAVED_VERSION));
  json_object_set_new(root, "kind", json_integer(program->kind));
  json_object_set_new(root, "mesh", mesh_json(&program->mesh));
  json_object_set_new(root, "stage", json_integer(program->stage));
  json_object_set_new(root, "layout", layout_json(&program->layout));
  json_object_set_new(root, "alignment", json_integer(program->alignment));
  json_object_set_new(root, "tokens", json_integer(program->tokens));
  json_object_set_new(root, "sequence", json_integer(program->sequence));
  json_object_set_new(root, "pool_bytes", integers(program->pool_bytes, LS_POOL_COUNT));
  json_object_set_new(
      root, "inputs",
      json_pack("[iiiiiiiiiiiii]", program->ids, program->labels, program->positions,
                program->places, program->draws, program->reference, program->remaining,
                program->types, program->weights, program->sets, program->top_ids,
                program->top_below, program->logits));
  json_object_set_new(root, "replay_boundary", json_integer(program->replay_boundary));
  json_object_set_new(root, "chunks", json_integer(program->chunks));
  json_object_set_new(root, "cells", ints(program->cell, LS_CELL_COUNT));
  json_object_set_new(root, "loads", ints(program->loads.items, program->loads.count));
  json_object_set_new(root, "flops", json_real(program->flops));
  json_object_set_new(root, "recomputed_flops", json_real(program->recomputed_flops));
  char *text = json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(17) | JSON_SORT_KEYS);
  json_decref(root);
  if (!text) ls_panic("out of memory for the saved form of a program");
  const char *kept = ls_arena_strdup(arena, text);
  free(text);
  return kept;
}
