#include "session/parameter_groups.h"

#include <math.h>

#include "ir/state.h"
#include "store/parameter_names.h"

/* What a group takes that no earlier one has. */
static ls_status take(const ls_run_file *run, int number, const bool *covered, bool *taken,
                      ls_graph *graph, ls_error *error) {
  const ls_run_group *group = &run->optimizer.groups.items[number];
  int trained = 0, free = 0;
  for (int p = 0; p < graph->parameters.count; p++) {
    ls_parameter_record *record = &graph->parameters.items[p];
    if (!covered[p] || !record->trainable) continue;
    trained++;
    if (taken[p]) continue;
    taken[p] = true;
    free++;
    if (group->lr > 0)
      record->settings.rate = group->lr_times ? group->lr : group->lr / run->train.lr;
    if (group->weight_decay >= 0) record->settings.weight_decay = group->weight_decay;
  }
  if (free) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s: all that %s covers is %s; expected a parameter that %s",
                 ls_run_file_where(run, "optimizer.groups"), group->match,
                 trained ? "of earlier groups, and the first holds" : "frozen",
                 trained ? "none of them covers" : "is trained");
}

static ls_status apply_groups(ls_arena *scratch, const ls_run_file *run,
                              const ls_model_config *config, ls_graph *graph, ls_error *error) {
  const int count = graph->parameters.count;
  ls_parameter_names *names;
  LS_TRY(ls_parameter_names_list(scratch, config, graph, &names, error));
  bool *taken = LS_NEW_ARRAY(scratch, bool, count + 1);
  for (int g = 0; g < run->optimizer.groups.count; g++) {
    bool *covered = LS_NEW_ARRAY(scratch, bool, count + 1);
    const char *match = run->optimizer.groups.items[g].match;
    if (ls_parameter_names_cover(names, match, covered, error) != LS_OK)
      return ls_error_prefix(error, "%s", ls_run_file_where(run, "optimizer.groups"));
    LS_TRY(take(run, g, covered, taken, graph, error));
  }
  return LS_OK;
}

/* How many layers stand above a parameter, itself counted; 0: it is behind them all. */
static int layers_above(const ls_graph *graph, const ls_parameter_record *record, int layers) {
  const int segment = ls_graph_tensor(graph, record->tensor)->segment;
  const int layer = graph->segments.items[segment].layer;
  if (layer >= 0) return layers - layer;
  for (int s = 0; s < segment; s++)
    if (graph->segments.items[s].layer >= 0) return 0;
  return layers + 1;
}

static void decay_by_layer(double decay, ls_graph *graph) {
  int layers = 0;
  for (int s = 0; s < graph->segments.count; s++)
    if (graph->segments.items[s].layer >= layers) layers = graph->segments.items[s].layer + 1;
  for (int p = 0; p < graph->parameters.count; p++) {
    ls_parameter_record *record = &graph->parameters.items[p];
    record->settings.rate *= pow(decay, layers_above(graph, record, layers));
  }
}

/* Of Muon's matrices. */
static void set_matrix_rate(const ls_run_file *run, ls_graph *graph) {
  const ls_optimizer muon = {.kind = LS_OPTIMIZER_MUON};
  for (int p = 0; p < graph->parameters.count; p++)
    if (ls_optimizer_update_of(&muon, graph, p) == 0)
      graph->parameters.items[p].settings.rate = run->optimizer.muon_lr / run->train.lr;
}

ls_status ls_parameter_groups_apply(const ls_run_file *run, const ls_model_config *config,
                                    ls_graph *graph, ls_error *error) {
  if (run->optimizer.name == LS_RUN_MUON && run->optimizer.muon_lr > 0) set_matrix_rate(run, graph);
  if (run->optimizer.groups.count) {
    ls_arena *scratch = ls_arena_create();
    const ls_status status = apply_groups(scratch, run, config, graph, error);
    ls_arena_destroy(&scratch);
    LS_TRY(status);
  }
  decay_by_layer(run->optimizer.layer_decay, graph);
  return LS_OK;
}
