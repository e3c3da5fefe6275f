#include "support/layouts.h"

#include <string.h>

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
        ls_layout layout = ls_layout_default();
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

int ls_test_layout_ranks(const ls_layout *layout) {
  return layout->pp * layout->dp_replicate * layout->dp_shard * layout->cp * layout->tp;
}

const char *ls_test_layout_print(ls_arena *arena, const ls_layout *layout, const char *model) {
  return ls_arena_printf(
      arena, "%s dp_replicate=%d dp_shard=%d tp=%d zero=%d%s microbatches=%d prefetch=%d", model,
      layout->dp_replicate, layout->dp_shard, layout->tp, layout->zero,
      layout->sequence_parallel ? " sp" : "", layout->microbatches, layout->prefetch);
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
  const ls_build_options options = {.tokens = sequences / layout->microbatches * sequence,
                                    .sequence = sequence,
                                    .places = layout->cp > 1,
                                    .expert_ranks = ls_layout_senders(layout),
                                    .token_ranks = ls_layout_token_ranks(layout),
                                    .expert_bound = layout->expert_bound};
  ls_graph *graph;
  ls_error error = {0};
  if (ls_model_build(arena, config, &options, &graph, &error) != LS_OK)
    ls_panic("%s: %s", config->source, error.text);
  return graph;
}
