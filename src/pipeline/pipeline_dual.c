/* DualPipeV: both arms of the V are busy at once, one forward while the other goes backward.
 * DeepSeek-AI, DualPipe (2025), after Sea AI Lab's observation that DualPipe cut in half needs no
 * second copy of the parameters. There a forward and a backward pass next to each other are one
 * overlapped block; here they are two passes, the forward first. */
#include "pipeline/pipeline_make.h"

/* One stage's list in the making: passes of each arm go through the microbatches in order. */
typedef struct stage_list {
  ls_arena *arena;
  ls_pipeline *pipeline;
  int stage;
  int forward[2], backward[2]; /* next microbatch of each arm */
  int first_weight;
} stage_list;

static int chunk_of(const stage_list *at, int arm) {
  return arm ? 2 * at->pipeline->stages - 1 - at->stage : at->stage;
}

static void forward(stage_list *at, int arm) {
  ls_pipeline_append(at->arena, at->pipeline, at->stage, LS_PASS_FORWARD, chunk_of(at, arm),
                     at->forward[arm]++);
}

static void backward(stage_list *at, int arm, bool split) {
  ls_pipeline_append(at->arena, at->pipeline, at->stage, split ? LS_PASS_INPUT : LS_PASS_BACKWARD,
                     chunk_of(at, arm), at->backward[arm]++);
}

static void weight(stage_list *at) {
  ls_pipeline_append_weight(at->arena, at->pipeline, at->stage, &at->first_weight);
}

/* The start: the first arm runs ahead, then both go forward, then the second begins to come back,
 * split so that the stages behind it get their gradients soon. */
static void make_start(stage_list *at) {
  const int behind = at->pipeline->stages - 1 - at->stage;
  for (int i = 0; i < 2 * behind; i++) forward(at, 0);
  for (int i = 0; i <= at->stage; i++) {
    forward(at, 0);
    forward(at, 1);
  }
  for (int i = 0; i < behind; i++) {
    backward(at, 1, true);
    weight(at);
    forward(at, 1);
  }
}

/* The end: backward passes alone, the later half of them split to fill the gaps with W. */
static void make_end(stage_list *at) {
  const int behind = at->pipeline->stages - 1 - at->stage, half = (at->stage + 1) / 2;
  for (int i = 0; i < behind; i++) {
    backward(at, 1, false);
    forward(at, 1);
    backward(at, 0, false);
  }
  for (int i = 0; i <= at->stage; i++) {
    const bool odd = at->stage % 2 == 1;
    backward(at, 1, odd ? i >= half : i > half);
    backward(at, 0, i >= half);
  }
  for (int i = 0; i < behind; i++) {
    weight(at);
    backward(at, 0, true);
  }
  for (int i = 0; i <= at->stage; i++) weight(at);
}

void ls_pipeline_make_dualpipev(ls_arena *arena, ls_pipeline *pipeline) {
  for (int stage = 0; stage < pipeline->stages; stage++) {
    stage_list at = {.arena = arena, .pipeline = pipeline, .stage = stage};
    const int blocks = pipeline->microbatches - 2 * pipeline->stages + stage + 1;
    make_start(&at);
    for (int i = 0; i < blocks; i++) {
      forward(&at, 0);
      backward(&at, 1, false);
      forward(&at, 1);
      backward(&at, 0, false);
    }
    make_end(&at);
    LS_ASSERT(at.forward[0] == pipeline->microbatches && at.forward[1] == at.forward[0]);
    LS_ASSERT(at.backward[0] == at.forward[0] && at.backward[1] == at.forward[0]);
  }
}
