#include "pipeline/replay_boundary.h"

/* Where a stage's list has the forward pass of a chunk and microbatch. */
static int place_of(const ls_pipeline *pipeline, int chunk, int microbatch) {
  const ls_pipeline_list *list = &pipeline->lists[pipeline->stage_of[chunk]];
  int i = 0;
  while (list->items[i].kind != LS_PASS_FORWARD || list->items[i].chunk != chunk ||
         list->items[i].microbatch != microbatch)
    i++;
  return i;
}

static bool crosses(const ls_pipeline *pipeline, int from, int to) {
  return pipeline->stage_of[from] != pipeline->stage_of[to];
}

bool ls_replay_boundary_sends(const ls_pipeline *pipeline, const int *passes, int stage,
                              int place) {
  const ls_pipeline_pass *pass = &pipeline->lists[stage].items[place];
  const int next = pass->chunk + 1;
  if (place >= passes[stage]) return false;
  return place_of(pipeline, next, pass->microbatch) < passes[pipeline->stage_of[next]];
}

/* Whether what the pass takes is there before the boundary. */
static bool is_fed(const ls_pipeline *pipeline, const int *passes, const ls_pipeline_pass *pass) {
  const int before = pass->chunk - 1;
  if (before < 0 || !crosses(pipeline, before, pass->chunk)) return true;
  const int stage = pipeline->stage_of[before];
  return ls_replay_boundary_sends(pipeline, passes, stage,
                                  place_of(pipeline, before, pass->microbatch));
}

/* How many passes of the stage's list may stay before the boundary, the other stages' being what
 * they are. */
static int allowed(const ls_pipeline *pipeline, const int *passes, int stage) {
  for (int i = 0; i < passes[stage]; i++) {
    const ls_pipeline_pass *pass = &pipeline->lists[stage].items[i];
    if (!is_fed(pipeline, passes, pass)) return i;
    if (crosses(pipeline, pass->chunk, pass->chunk + 1) &&
        !ls_replay_boundary_sends(pipeline, passes, stage, i))
      return i + 1;
  }
  return passes[stage];
}

int *ls_replay_boundary_passes(ls_arena *arena, const ls_pipeline *pipeline) {
  const int last = pipeline->stages * pipeline->chunks - 1;
  int *passes = LS_NEW_ARRAY(arena, int, pipeline->stages);
  for (int s = 0; s < pipeline->stages; s++) {
    const ls_pipeline_list *list = &pipeline->lists[s];
    while (passes[s] < list->count && list->items[passes[s]].kind == LS_PASS_FORWARD &&
           list->items[passes[s]].chunk != last)
      passes[s]++;
  }
  for (bool changed = true; changed;) { /* to the furthest one that no message crosses */
    changed = false;
    for (int s = 0; s < pipeline->stages; s++) {
      const int left = allowed(pipeline, passes, s);
      changed = changed || left < passes[s];
      passes[s] = left;
    }
  }
  return passes;
}
