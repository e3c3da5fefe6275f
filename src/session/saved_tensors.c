#include "session/saved_tensors.h"

#include <string.h>

#include "store/names.h"

/* Whether the part is a moment that the optimizer keeps of the parameter. */
static bool is_saved(const ls_program *program, int parameter, ls_state_part part) {
  const char *saved = ls_state_row_of(part)->saved;
  return saved && *saved && program->parameters[parameter].trainable &&
         ls_optimizer_keeps(&program->layout.optimizer, program->parameters[parameter].update,
                            part);
}

int ls_saved_moments_of(const ls_program *program, int parameter) {
  int count = 0;
  for (int part = 0; part < LS_PART_COUNT; part++)
    count += is_saved(program, parameter, (ls_state_part)part);
  return count;
}

static ls_stored_layout moment_of(ls_arena *arena, const ls_program *program, int parameter,
                                  ls_state_part part) {
  const ls_program_parameter *about = &program->parameters[parameter];
  const char *name = ls_arena_printf(arena, "%s%s", ls_state_row_of(part)->saved, about->name);
  const ls_state_size size = ls_state_size_of(part, about->ndim, about->dims);
  const int ndim = ls_state_row_of(part)->whole ? 1 : about->ndim;
  ls_stored_layout made = {.name = name, .plain = name, .part = part, .ndim = ndim};
  made.dims[0] = size.rows;
  made.dims[1] = ndim > 1 ? size.columns : 0;
  *LS_APPEND(arena, &made.pieces) = (ls_weight_piece){
      .parameter = parameter, .rows = size.rows, .block = size.rows, .period = size.rows};
  return made;
}

ls_saved_tensors ls_saved_moments(ls_arena *arena, const ls_program *program) {
  ls_saved_tensors all = {
      .items = LS_NEW_ARRAY(arena, ls_stored_layout, program->parameter_count * LS_PART_COUNT)};
  for (int p = 0; p < program->parameter_count; p++)
    for (int part = 0; part < LS_PART_COUNT; part++)
      if (is_saved(program, p, (ls_state_part)part))
        all.items[all.count++] = moment_of(arena, program, p, (ls_state_part)part);
  return all;
}

/* What a rank fills of a teacher, under our names: which files have it is the teacher's; and what
 * scales stand for, which no file has by itself. */
static ls_stored_layout own_tensor(ls_arena *arena, const ls_graph *graph, int parameter) {
  const ls_parameter *about = &graph->parameters.items[parameter].about;
  const int64_t rows = about->dims[0];
  ls_stored_layout made = {
      .name = about->name, .plain = about->name, .part = LS_PART_MASTER, .ndim = about->ndim};
  made.dims[0] = rows;
  if (about->ndim > 1) made.dims[1] = about->dims[1] * ls_precision_numbers(about->precision);
  *LS_APPEND(arena, &made.pieces) =
      (ls_weight_piece){.parameter = parameter, .rows = rows, .block = rows, .period = rows};
  return made;
}

static bool is_written(const ls_model_config *config, const ls_stored_layout *tensor) {
  return config->lora_rank == 0 || tensor->adapter;
}

ls_status ls_saved_tensors_list(ls_arena *arena, const ls_model_config *config,
                                const ls_graph *graph, const ls_program *program,
                                ls_saved_tensors *all, ls_error *error) {
  ls_weight_plan plan;
  LS_TRY(ls_weights_plan(arena, config, graph, &plan, error));
  const ls_saved_tensors moments = ls_saved_moments(arena, program);
  const int count = plan.count + moments.count + graph->parameters.count;
  *all = (ls_saved_tensors){.items = LS_NEW_ARRAY(arena, ls_stored_layout, count)};
  for (int t = 0; t < plan.count; t++)
    if (is_written(config, &plan.tensors[t])) all->items[all->weights++] = plan.tensors[t];
  memcpy(all->items + all->weights, moments.items, sizeof *all->items * (size_t)moments.count);
  all->count = all->weights + moments.count;
  all->all = all->count;
  for (int t = 0; t < plan.count; t++)
    if (!is_written(config, &plan.tensors[t])) all->items[all->all++] = plan.tensors[t];
  for (int p = 0; p < graph->parameters.count; p++)
    if (graph->parameters.items[p].about.teacher ||
        graph->parameters.items[p].about.precision == LS_SCALES)
      all->items[all->all++] = own_tensor(arena, graph, p);
  return LS_OK;
}
