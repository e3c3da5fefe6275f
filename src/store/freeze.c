#include "store/freeze.h"

#include "store/parameter_names.h"

static ls_status freeze(ls_arena *scratch, const ls_model_config *config, ls_graph *graph,
                        const char *const *patterns, int count, ls_error *error) {
  ls_parameter_names *names;
  LS_TRY(ls_parameter_names_list(scratch, config, graph, &names, error));
  bool *covered = LS_NEW_ARRAY(scratch, bool, graph->parameters.count + 1);
  for (int i = 0; i < count; i++)
    LS_TRY(ls_parameter_names_cover(names, patterns[i], covered, error));
  int left = 0;
  for (int p = 0; p < graph->parameters.count; p++) {
    bool *trainable = &graph->parameters.items[p].trainable;
    *trainable &= !covered[p];
    left += *trainable;
  }
  if (left > 0) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "freezes all %d parameters, which leaves nothing to train: leave one out",
                 graph->parameters.count);
}

ls_status ls_freeze(const ls_model_config *config, ls_graph *graph, const char *const *names,
                    int count, ls_error *error) {
  if (count == 0) return LS_OK;
  ls_arena *scratch = ls_arena_create();
  const ls_status status = freeze(scratch, config, graph, names, count, error);
  ls_arena_destroy(&scratch);
  return status;
}
