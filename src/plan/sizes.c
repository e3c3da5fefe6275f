/* What a model's parameters come to: some may be frozen, in blocks, or of experts. */
#include "plan/plan.h"

ls_model_config ls_plan_shortened(const ls_model_config *model, int64_t layers) {
  ls_model_config made = *model;
  made.layers = layers;
  if (made.layer_kinds) made.layer_kinds += model->layers - layers;
  return made;
}

static void add_parameter(const ls_graph *graph, const ls_parameter_record *parameter,
                          const ls_layout *layout, bool rounded, ls_plan_sizes *sizes) {
  const ls_parameter *about = &parameter->about;
  const double elements = (double)ls_tensor_elements(ls_graph_tensor(graph, parameter->tensor));
  const double bytes = elements * (double)ls_dtype_bytes(ls_layout_dtype(layout, about->precision));
  const bool of_experts = about->sharding == LS_TP_EXPERTS;
  sizes->bytes += bytes;
  sizes->rounded += rounded ? elements : 0;
  sizes->rounded_trained += rounded && parameter->trainable ? elements : 0;
  sizes->trained += parameter->trainable ? elements : 0;
  sizes->expert_bytes += of_experts ? bytes : 0;
  sizes->experts_trained += of_experts && parameter->trainable ? elements : 0;
}

ls_status ls_plan_sizes_of(const ls_plan_problem *problem, int64_t layers, ls_plan_sizes *sizes,
                           ls_error *error) {
  const ls_training *training = problem->training;
  const ls_model_config model = ls_plan_shortened(training->model, layers);
  const ls_build_options options = {.tokens = 1, .sequence = 1, .teacher = training->teacher};
  ls_arena *arena = ls_arena_create();
  ls_graph *graph;
  *sizes = (ls_plan_sizes){0};
  const ls_status status = ls_model_build(arena, &model, &options, &graph, error);
  if (status == LS_OK) {
    /* What is frozen by name may not be in so few layers: then they count as trained. */
    if (training->prepare) (void)training->prepare(training->context, graph, NULL);
    const bool *rounded = ls_graph_rounded(graph);
    for (int p = 0; p < graph->parameters.count; p++)
      add_parameter(graph, &graph->parameters.items[p], &problem->base, rounded[p], sizes);
  }
  ls_arena_destroy(&arena);
  return status;
}
