/* The schedules whose chunks lie in a loop: stage s holds chunks s, s + d, s + 2d, ... */
#include "pipeline/pipeline_make.h"

static int at_most(int value, int most) {
  return value < most ? value : most;
}

void ls_pipeline_make_sequential(ls_arena *arena, ls_pipeline *pipeline) {
  for (int stage = 0; stage < pipeline->stages; stage++) {
    for (int m = 0; m < pipeline->microbatches; m++) {
      ls_pipeline_append(arena, pipeline, stage, LS_PASS_FORWARD, stage, m);
      ls_pipeline_append(arena, pipeline, stage, LS_PASS_BACKWARD, stage, m);
    }
  }
}

void ls_pipeline_make_gpipe(ls_arena *arena, ls_pipeline *pipeline) {
  for (int stage = 0; stage < pipeline->stages; stage++) {
    for (int m = 0; m < pipeline->microbatches; m++)
      ls_pipeline_append(arena, pipeline, stage, LS_PASS_FORWARD, stage, m);
    for (int m = 0; m < pipeline->microbatches; m++)
      ls_pipeline_append(arena, pipeline, stage, LS_PASS_BACKWARD, stage, m);
  }
}

void ls_pipeline_make_1f1b(ls_arena *arena, ls_pipeline *pipeline) {
  const int microbatches = pipeline->microbatches;
  for (int stage = 0; stage < pipeline->stages; stage++) {
    int forward = 0;
    const int ahead = at_most(pipeline->stages - 1 - stage, microbatches);
    while (forward < ahead)
      ls_pipeline_append(arena, pipeline, stage, LS_PASS_FORWARD, stage, forward++);
    for (int m = 0; m < microbatches; m++) {
      if (forward < microbatches)
        ls_pipeline_append(arena, pipeline, stage, LS_PASS_FORWARD, stage, forward++);
      ls_pipeline_append(arena, pipeline, stage, LS_PASS_BACKWARD, stage, m);
    }
  }
}

/* The rounds of interleaving: each takes some microbatches through all chunks of a stage before
 * the next round begins. Rounds of d microbatches leave no gap between a stage's chunks; where d
 * does not divide their number, the rounds are a little longer, the longest first: shorter ones
 * would leave gaps, longer ones hold more activations. */
typedef struct rounds {
  int count, shorter /* of all rounds */, longer /* how many have one more */;
} rounds;

static rounds rounds_of(const ls_pipeline *pipeline) {
  const int fits = pipeline->microbatches / pipeline->stages;
  const int count = fits ? fits : 1;
  return (rounds){count, pipeline->microbatches / count, pipeline->microbatches % count};
}

/* The order in which a stage takes its (chunk, microbatch) pairs forward, as places in its own
 * chunks; backward is the same with the chunks reversed. */
static ls_pipeline_pass *interleaved_order(ls_arena *arena, const ls_pipeline *pipeline,
                                           bool backward) {
  ls_pipeline_pass *order =
      LS_NEW_ARRAY(arena, ls_pipeline_pass, pipeline->chunks * pipeline->microbatches);
  const rounds all = rounds_of(pipeline);
  int filled = 0, first = 0;
  for (int round = 0; round < all.count; round++) {
    const int size = all.shorter + (round < all.longer);
    for (int c = 0; c < pipeline->chunks; c++)
      for (int m = first; m < first + size; m++)
        order[filled++] = (ls_pipeline_pass){backward ? LS_PASS_BACKWARD : LS_PASS_FORWARD, m,
                                             backward ? pipeline->chunks - 1 - c : c};
    first += size;
  }
  return order;
}

/* Narayanan et al.: before its first backward pass a stage runs ahead through all chunks but the
 * last for one round, and by two passes for each stage behind it. One chunk is plain 1F1B. */
void ls_pipeline_make_interleaved(ls_arena *arena, ls_pipeline *pipeline) {
  if (pipeline->chunks == 1) {
    ls_pipeline_make_1f1b(arena, pipeline);
    return;
  }
  const int stages = pipeline->stages, pairs = pipeline->chunks * pipeline->microbatches;
  const ls_pipeline_pass *forwards = interleaved_order(arena, pipeline, false);
  const ls_pipeline_pass *backwards = interleaved_order(arena, pipeline, true);
  const rounds all = rounds_of(pipeline);
  const int round = all.shorter + (all.longer > 0);
  for (int stage = 0; stage < stages; stage++) {
    int forward = 0;
    const int ahead = at_most((pipeline->chunks - 1) * round + 2 * (stages - 1 - stage), pairs);
    for (int backward = -1; backward < pairs; backward++) {
      const int until = backward < 0 ? ahead : at_most(forward + 1, pairs);
      for (; forward < until; forward++)
        ls_pipeline_append(arena, pipeline, stage, LS_PASS_FORWARD,
                           forwards[forward].chunk * stages + stage, forwards[forward].microbatch);
      if (backward < 0) continue;
      ls_pipeline_append(arena, pipeline, stage, LS_PASS_BACKWARD,
                         backwards[backward].chunk * stages + stage,
                         backwards[backward].microbatch);
    }
  }
}

/* Both hand-made schedules of the zero-bubble paper: a stage runs `ahead` forward passes before its
 * first I, then alternates, and lets the first `late` microbatches pass before it begins with W. */
static void make_zero_bubble(ls_arena *arena, ls_pipeline *pipeline, int stage, int ahead,
                             int late) {
  const int microbatches = pipeline->microbatches;
  int forward = 0, weight = 0;
  for (; forward < at_most(ahead, microbatches); forward++)
    ls_pipeline_append(arena, pipeline, stage, LS_PASS_FORWARD, stage, forward);
  for (int m = 0; m < microbatches; m++) {
    if (forward < microbatches)
      ls_pipeline_append(arena, pipeline, stage, LS_PASS_FORWARD, stage, forward++);
    ls_pipeline_append(arena, pipeline, stage, LS_PASS_INPUT, stage, m);
    if (m >= late) ls_pipeline_append(arena, pipeline, stage, LS_PASS_WEIGHT, stage, weight++);
  }
  while (weight < microbatches)
    ls_pipeline_append(arena, pipeline, stage, LS_PASS_WEIGHT, stage, weight++);
}

/* As far ahead as 1F1B; a stage's late W take the memory that 1F1B's later stages leave unused. */
void ls_pipeline_make_zbh1(ls_arena *arena, ls_pipeline *pipeline) {
  for (int stage = 0; stage < pipeline->stages; stage++)
    make_zero_bubble(arena, pipeline, stage, pipeline->stages - 1 - stage, stage);
}

/* Twice as far ahead: the first I comes back when the last forward pass of the start ends. */
void ls_pipeline_make_zbh2(ls_arena *arena, ls_pipeline *pipeline) {
  for (int stage = 0; stage < pipeline->stages; stage++)
    make_zero_bubble(arena, pipeline, stage, 2 * (pipeline->stages - 1 - stage), 2 * stage);
}
