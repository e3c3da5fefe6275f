#include "support/layouts.h"

#include <stdlib.h>
#include <string.h>

#include "schedule/chunks.h"
#include "verify/equality.h"

ls_layout ls_test_layout_default(void) {
  ls_layout layout = ls_layout_default();
  layout.optimizer.epsilon = 1e-6;
  return layout;
}

static const int rank_counts[] = {1, 2, 3, 4, 5, 6, 8, 12, 16};

/* ZeRO is about dp_shard, sequence parallelism about tp: without them they change nothing. */
static bool repeats(const ls_layout *layout) {
  return (layout->dp_shard == 1 && layout->zero != 1) ||
         (layout->tp == 1 && layout->sequence_parallel);
}

static void add_mesh(ls_arena *arena, ls_test_layouts *all, int replicate, int shard, int tp) {
  for (int zero = 1; zero < LS_DATA_STRATEGY_COUNT; zero++)
    for (int sp = 0; sp < 2; sp++)
      for (int microbatches = 1; microbatches <= 3; microbatches += 2) {
        ls_layout layout = ls_test_layout_default();
        layout.dp_replicate = replicate;
        layout.dp_shard = shard;
        layout.tp = tp;
        layout.zero = zero;
        layout.sequence_parallel = sp;
        layout.microbatches = microbatches;
        layout.compute = LS_F64;
        layout.prefetch = all->count % 3;
        if (microbatches > 1) layout.logits_rows = 5; /* slices, of which the last is shorter */
        if (!repeats(&layout)) *LS_APPEND(arena, all) = layout;
      }
}

ls_test_layouts ls_test_layouts_all(ls_arena *arena) {
  ls_test_layouts all = {0};
  for (size_t n = 0; n < sizeof rank_counts / sizeof *rank_counts; n++) {
    const int ranks = rank_counts[n];
    for (int replicate = 1; replicate <= ranks; replicate++)
      for (int shard = 1; shard <= ranks; shard++)
        if (ranks % (replicate * shard) == 0)
          add_mesh(arena, &all, replicate, shard, ranks / (replicate * shard));
  }
  return all;
}

ls_layout ls_test_pipeline_layout(int which) {
  static const char *const schedules[] = {"1f1b", "gpipe", "zbh1", "interleaved"};
  ls_layout layout = ls_test_layout_default();
  layout.compute = LS_F64;
  layout.pp = 2;
  layout.schedule = schedules[which % 4];
  layout.microbatches = 4;
  layout.zero = 1 + which % 3;
  layout.dp_shard = 1 + which / 2 % 2;
  layout.tp = 1 + which / 4 % 2;
  layout.sequence_parallel = layout.tp > 1 && which % 2;
  layout.prefetch = which % 2;
  if (which % 3) {
    layout.recompute = which % 3 == 1 ? (ls_op_set)LS_EVERY_OP : ls_op_set_cheap();
    layout.recompute_layers = 1;
  }
  return layout;
}

bool ls_test_all_layouts(void) {
  const char *which = getenv("LS_LAYOUTS");
  return which && strcmp(which, "all") == 0;
}

ls_test_layouts ls_test_layouts_some(ls_arena *arena, int first, int each) {
  const ls_test_layouts all = ls_test_layouts_all(arena);
  ls_test_layouts some = {0};
  for (int l = first; l < all.count; l += each) *LS_APPEND(arena, &some) = all.items[l];
  return some;
}

const char *ls_test_layout_print(ls_arena *arena, const ls_layout *layout, const char *model) {
  return ls_arena_printf(arena, "%s, %s%s, microbatches=%d, prefetch=%d", model,
                         ls_layout_print(arena, layout), layout->sequence_parallel ? ", sp" : "",
                         layout->microbatches, layout->prefetch);
}

ls_model_config ls_test_shape_config(ls_arena *arena, const ls_test_shape *shape) {
  ls_model_config config;
  ls_error error = {0};
  if (ls_model_config_parse(arena, shape->name, shape->config, strlen(shape->config), &config,
                            &error) != LS_OK)
    ls_panic("%s", error.text);
  return config;
}

ls_graph *ls_test_model(ls_arena *arena, const ls_model_config *config, const ls_layout *layout,
                        int64_t sequences, int64_t sequence) {
  const ls_experiment experiment = {.config = config, .sequences = sequences, .sequence = sequence};
  ls_graph *graph;
  ls_error error = {0};
  if (ls_experiment_graph(arena, &experiment, layout, LS_PROGRAM_STEP, &graph, &error) != LS_OK)
    ls_panic("%s: %s", config->source, error.text);
  return graph;
}

bool ls_test_is_legal(const ls_model_config *config, const ls_layout *layout, int64_t sequences,
                      int64_t sequence) {
  ls_arena *arena = ls_arena_create();
  const ls_graph *graph = ls_test_model(arena, config, layout, sequences, sequence);
  ls_mesh mesh;
  ls_pipeline *pipeline;
  ls_error error = {0};
  const bool legal = ls_layout_mesh(layout, graph, &mesh, &error) == LS_OK &&
                     ls_chunks_pipeline(arena, layout, &pipeline, &error) == LS_OK &&
                     pipeline->stages * pipeline->chunks <= graph->segments.count;
  ls_arena_destroy(&arena);
  return legal;
}
