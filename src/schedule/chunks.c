#include "schedule/chunks.h"

#include <string.h>

#include "cost/cost.h"
#include "pipeline/stages.h"

double *ls_chunks_costs(ls_arena *arena, const ls_graph *graph) {
  const int count = graph->segments.count;
  double *costs = LS_NEW_ARRAY(arena, double, count);
  const double sum = ls_segment_flops(graph, costs);
  for (int s = 0; s < count; s++) costs[s] += (sum + 1) / (1000.0 * count);
  return costs;
}

/* Layers by hand; what comes before the first goes with the first chunk, the rest with the last. */
static ls_status cut_by_hand(const ls_sharded *sharded, ls_chunks *chunks, ls_error *error) {
  const ls_graph *graph = sharded->graph;
  int before = 0, layers = 0;
  while (before < graph->segments.count && graph->segments.items[before].layer < 0) before++;
  for (int s = 0; s < graph->segments.count; s++) layers += graph->segments.items[s].layer >= 0;
  LS_TRY(
      ls_stages_parse(sharded->layout.stages, layers, chunks->count, chunks->first_segment, error));
  for (int c = 1; c < chunks->count; c++) chunks->first_segment[c] += before;
  chunks->first_segment[0] = 0;
  chunks->first_segment[chunks->count] = graph->segments.count;
  return LS_OK;
}

static ls_status cut(const ls_sharded *sharded, ls_chunks *chunks, ls_error *error) {
  const int segments = sharded->graph->segments.count;
  chunks->first_segment = LS_NEW_ARRAY(sharded->arena, int, chunks->count + 1);
  chunks->chunk_of = LS_NEW_ARRAY(sharded->arena, int, segments);
  if (sharded->layout.stages)
    LS_TRY(cut_by_hand(sharded, chunks, error));
  else
    LS_TRY(ls_stages_cut(ls_chunks_costs(sharded->arena, sharded->graph), segments, chunks->count,
                         chunks->first_segment, error));
  for (int c = 0; c < chunks->count; c++)
    for (int s = chunks->first_segment[c]; s < chunks->first_segment[c + 1]; s++)
      chunks->chunk_of[s] = c;
  return LS_OK;
}

/* What evaluation runs: each stage its chunks, once. */
static void keep_forward(const ls_sharded *sharded, ls_pipeline *pipeline) {
  pipeline->microbatches = 1;
  pipeline->splits = false;
  for (int s = 0; s < pipeline->stages; s++) {
    pipeline->lists[s] = (ls_pipeline_list){0};
    for (int c = 0; c < pipeline->stages * pipeline->chunks; c++)
      if (pipeline->stage_of[c] == s)
        *LS_APPEND(sharded->arena, &pipeline->lists[s]) = (ls_pipeline_pass){LS_PASS_FORWARD, 0, c};
  }
}

ls_status ls_chunks_pipeline(ls_arena *arena, const ls_layout *layout, ls_pipeline **pipeline,
                             ls_error *error) {
  const char *schedule = layout->schedule ? layout->schedule : "1f1b";
  if (layout->csv)
    return ls_pipeline_parse_csv(arena, schedule, layout->csv, layout->csv_bytes, layout->pp,
                                 layout->chunks, layout->microbatches, pipeline, error);
  const ls_pipeline_kind *kind;
  LS_TRY(ls_pipeline_kind_find(schedule, &kind, error));
  return ls_pipeline_make(arena, kind, layout->pp, layout->chunks, layout->microbatches, pipeline,
                          error);
}

static void find_places(ls_arena *arena, ls_chunks *chunks) {
  const ls_pipeline *pipeline = chunks->pipeline;
  const int64_t pairs = (int64_t)chunks->count * pipeline->microbatches;
  chunks->forward_place = LS_NEW_ARRAY(arena, int, pairs + 1);
  chunks->back_place = LS_NEW_ARRAY(arena, int, pairs + 1);
  for (int s = 0; s < pipeline->stages; s++)
    for (int i = 0; i < pipeline->lists[s].count; i++) {
      const ls_pipeline_pass *pass = &pipeline->lists[s].items[i];
      const int64_t pair = (int64_t)pass->chunk * pipeline->microbatches + pass->microbatch;
      if (pass->kind == LS_PASS_FORWARD) chunks->forward_place[pair] = i;
      if (pass->kind == LS_PASS_BACKWARD || pass->kind == LS_PASS_INPUT)
        chunks->back_place[pair] = i;
    }
}

ls_status ls_chunks_make(const ls_sharded *sharded, bool forward, ls_chunks **chunks,
                         ls_error *error) {
  ls_pipeline *pipeline;
  LS_TRY(ls_chunks_pipeline(sharded->arena, &sharded->layout, &pipeline, error));
  if (forward) keep_forward(sharded, pipeline);
  ls_chunks *made = LS_NEW(sharded->arena, ls_chunks);
  *made = (ls_chunks){.pipeline = pipeline, .count = pipeline->stages * pipeline->chunks};
  LS_TRY(cut(sharded, made, error));
  ls_pipeline_times *times;
  LS_TRY(ls_pipeline_times_make(sharded->arena, pipeline, &ls_pipeline_unit_costs, &times, error));
  made->times = times;
  find_places(sharded->arena, made);
  *chunks = made;
  return LS_OK;
}

int ls_chunks_stage(const ls_chunks *chunks, int segment) {
  return chunks->pipeline->stage_of[chunks->chunk_of[segment]];
}
