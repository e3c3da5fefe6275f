/* V-Min, V-Half and ZB-V: stage s holds chunks s and 2d - 1 - s of a chain folded into a V.
 *
 * Qi et al., "Pipeline Parallelism with Controllable Memory" (arXiv 2405.15362): the four passes of
 * one microbatch on all stages are a building block, repeated every six units of time; how long its
 * activations live decides the memory. In a block neighbours start `down` units apart on the way to
 * the fold (F of the first arm, I of the second) and `up` units apart on the way back. The repeated
 * blocks give an order that cannot deadlock; from it a list schedule of unit time pulls passes
 * forward into gaps, as the paper does by "squeezing and reordering", as long as the order that
 * remains stays within the memory. W fills what is left and runs where memory asks for it. */
#include "pipeline/pipeline_make.h"

enum { PERIOD = 6 };

/* The passes of a stage that depend on others, in the order of a microbatch's way. */
enum { FIRST_FORWARD, SECOND_FORWARD, SECOND_INPUT, FIRST_INPUT, ARMS };
typedef int arm;

typedef struct block {
  int *start[ARMS]; /* [stage]: of microbatch 0; of microbatch m, m * PERIOD later */
} block;

/* One stage while the lists are made. */
typedef struct stage_state {
  int next[ARMS];   /* microbatch */
  int alive;        /* F done, I to come */
  int weights;      /* I done, W to come */
  int first_weight; /* place in the list from which to look for an I without its W */
} stage_state;

typedef struct folding {
  ls_arena *arena;
  ls_pipeline *pipeline;
  block block;
  int limit; /* of alive + weights on a stage */
  int now;
  int *end[ARMS]; /* [stage * microbatches + microbatch]; 0: to come */
  stage_state *states;
} folding;

static bool is_forward(arm which) {
  return which == FIRST_FORWARD || which == SECOND_FORWARD;
}

/* Waits at the three turns of a microbatch's way: before the second arm, before coming back, and at
 * the fold coming back. */
typedef struct waits {
  int fold, loss, back;
} waits;

static void place_block(block *made, int stages, int down, int up, waits wait) {
  for (int s = 0; s < stages; s++) {
    const int behind = stages - 1 - s, turn = down * (stages - 1) + 1 + wait.fold;
    const int home = turn + up * (stages - 1) + 1 + wait.loss;
    made->start[FIRST_FORWARD][s] = down * s;
    made->start[SECOND_FORWARD][s] = turn + up * behind;
    made->start[SECOND_INPUT][s] = home + down * s;
    made->start[FIRST_INPUT][s] = home + down * (stages - 1) + 1 + wait.back + up * behind;
  }
}

/* Whether the four passes of every stage fall on different units of the period. */
static bool block_repeats(const block *made, int stages) {
  for (int s = 0; s < stages; s++) {
    unsigned taken = 0;
    for (int a = 0; a < ARMS; a++) {
      const unsigned unit = 1u << (made->start[a][s] % PERIOD);
      if (taken & unit) return false;
      taken |= unit;
    }
  }
  return true;
}

/* The block with the least waits that repeats. */
static block make_block(ls_arena *arena, int stages, int down, int up) {
  block made;
  for (int a = 0; a < ARMS; a++) made.start[a] = LS_NEW_ARRAY(arena, int, stages);
  for (int total = 0; total <= 3 * (PERIOD - 1); total++) {
    for (int fold = 0; fold < PERIOD; fold++) {
      for (int loss = 0; loss < PERIOD; loss++) {
        const int back = total - fold - loss;
        if (back < 0 || back >= PERIOD) continue;
        place_block(&made, stages, down, up, (waits){fold, loss, back});
        if (block_repeats(&made, stages)) return made;
      }
    }
  }
  ls_panic("no block of %d stages repeats", stages);
}

static int planned(const folding *fold, int stage, arm which, int microbatch) {
  return fold->block.start[which][stage] + microbatch * PERIOD;
}

/* Of the passes to come on a stage, the most that would be alive at once before `until`, a planned
 * time, without what is hoisted over them. */
static int most_alive(const folding *fold, int stage, int until) {
  const stage_state *state = &fold->states[stage];
  int next[ARMS], alive = state->alive, most = alive;
  for (int a = 0; a < ARMS; a++) next[a] = state->next[a];
  for (;;) {
    int first = -1, when = until;
    for (int a = 0; a < ARMS; a++) {
      if (next[a] >= fold->pipeline->microbatches) continue;
      const int start = planned(fold, stage, a, next[a]);
      if (start < when) first = a, when = start;
    }
    if (first < 0) return most;
    next[first]++;
    alive += is_forward(first) ? 1 : -1;
    if (alive > most) most = alive;
  }
}

static bool has_ended(const folding *fold, int stage, arm which, int microbatch) {
  const int end = fold->end[which][stage * fold->pipeline->microbatches + microbatch];
  return end > 0 && end <= fold->now;
}

static bool is_ready(const folding *fold, int stage, arm which) {
  const int m = fold->states[stage].next[which], last = fold->pipeline->stages - 1;
  if (m >= fold->pipeline->microbatches) return false;
  switch (which) {
    case FIRST_FORWARD: return stage == 0 || has_ended(fold, stage - 1, which, m);
    case SECOND_FORWARD:
      return stage == last ? has_ended(fold, stage, FIRST_FORWARD, m)
                           : has_ended(fold, stage + 1, which, m);
    case SECOND_INPUT:
      return stage == 0 ? has_ended(fold, stage, SECOND_FORWARD, m)
                        : has_ended(fold, stage - 1, which, m) &&
                              has_ended(fold, stage, SECOND_FORWARD, m);
    default:
      return stage == last
                 ? has_ended(fold, stage, SECOND_INPUT, m)
                 : has_ended(fold, stage + 1, which, m) && has_ended(fold, stage, FIRST_FORWARD, m);
  }
}

static void run_pass(folding *fold, int stage, arm which) {
  stage_state *state = &fold->states[stage];
  const int m = state->next[which]++, second = 2 * fold->pipeline->stages - 1 - stage;
  const bool first_arm = which == FIRST_FORWARD || which == FIRST_INPUT;
  state->alive += is_forward(which) ? 1 : -1;
  state->weights += !is_forward(which);
  ls_pipeline_append(fold->arena, fold->pipeline, stage,
                     is_forward(which) ? LS_PASS_FORWARD : LS_PASS_INPUT,
                     first_arm ? stage : second, m);
  fold->end[which][stage * fold->pipeline->microbatches + m] = fold->now + 1;
}

/* The arms that still have passes, by planned time; returns how many. */
static int arms_in_order(const folding *fold, int stage, arm order[ARMS]) {
  int count = 0;
  for (int a = 0; a < ARMS; a++) {
    const int m = fold->states[stage].next[a];
    if (m >= fold->pipeline->microbatches) continue;
    int at = count++;
    for (; at > 0; at--) {
      const arm before = order[at - 1];
      if (planned(fold, stage, before, fold->states[stage].next[before]) <
          planned(fold, stage, a, m))
        break;
      order[at] = before;
    }
    order[at] = a;
  }
  return count;
}

/* How gaps are filled, beside W; none is best for every number of stages. */
typedef struct way {
  bool hoists_inputs, hoists_forwards;
  bool makes_room; /* W at once where the next planned pass is an F without room */
} way;

static const way ways[] = {{true, true, true}, {false, true, false}, {false, false, false}};

/* A pass that is not the planned one but can run: an I, or an F that leaves room for the passes
 * planned before it; -1 for none. */
static arm hoisted(const folding *fold, int stage, const way *by, const arm *order, int count) {
  const stage_state *state = &fold->states[stage];
  const bool room = state->alive + state->weights < fold->limit;
  for (int i = 1; i < count && by->hoists_inputs; i++)
    if (!is_forward(order[i]) && is_ready(fold, stage, order[i])) return order[i];
  for (int i = 1; i < count && by->hoists_forwards && room; i++) {
    if (!is_forward(order[i]) || !is_ready(fold, stage, order[i])) continue;
    const int until = planned(fold, stage, order[i], state->next[order[i]]);
    if (most_alive(fold, stage, until) < fold->limit) return order[i];
  }
  return -1;
}

/* One unit of one stage: the planned pass where it can run, else another, else a W. */
static void step(folding *fold, int stage, const way *by) {
  stage_state *state = &fold->states[stage];
  const bool room = state->alive + state->weights < fold->limit;
  arm order[ARMS];
  const int count = arms_in_order(fold, stage, order);
  arm chosen = -1;
  if (count && is_ready(fold, stage, order[0])) {
    if (room || !is_forward(order[0])) chosen = order[0];
  } else if (count && !(by->makes_room && !room && is_forward(order[0]) && state->weights)) {
    chosen = hoisted(fold, stage, by, order, count);
  }
  if (chosen >= 0) {
    run_pass(fold, stage, chosen);
  } else if (state->weights) {
    state->weights--;
    ls_pipeline_append_weight(fold->arena, fold->pipeline, stage, &state->first_weight);
  }
}

/* Fills the lists within `limit` chunks' activations, or as many as the repeated block itself
 * needs. The earliest planned pass of all can always run, after a W at most: what it needs is
 * planned before it, and what was hoisted left it room. So no unit of time passes without progress.
 */
static void fill(ls_arena *arena, ls_pipeline *pipeline, const block *of, int limit,
                 const way *by) {
  const int stages = pipeline->stages, microbatches = pipeline->microbatches;
  folding fold = {.arena = arena, .pipeline = pipeline, .block = *of, .limit = limit};
  fold.states = LS_NEW_ARRAY(arena, stage_state, stages);
  for (int a = 0; a < ARMS; a++) fold.end[a] = LS_NEW_ARRAY(arena, int, stages *microbatches);
  const int longest = of->start[FIRST_INPUT][0] + PERIOD * microbatches + 1;
  for (int s = 0; s < stages; s++) {
    const int needed = most_alive(&fold, s, longest);
    if (needed > fold.limit) fold.limit = needed;
  }
  const int passes = 3 * 2 * microbatches;
  for (int done = 0; done < stages; fold.now++) {
    LS_ASSERT(fold.now <= stages * passes);
    done = 0;
    for (int s = 0; s < stages; s++) {
      if (pipeline->lists[s].count < passes) step(&fold, s, by);
      done += pipeline->lists[s].count == passes;
    }
  }
}

/* The shortest of the ways. */
static void fold_lists(ls_arena *arena, ls_pipeline *pipeline, int down, int up, int limit) {
  const block made = make_block(arena, pipeline->stages, down, up);
  ls_arena *scratch = ls_arena_create();
  double shortest = -1;
  for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
    ls_pipeline *tried = ls_pipeline_new(arena, pipeline->name, pipeline->stages, pipeline->chunks,
                                         pipeline->microbatches, true);
    ls_pipeline_times *times;
    ls_error error;
    fill(arena, tried, &made, limit, &ways[i]);
    const ls_status status =
        ls_pipeline_times_make(scratch, tried, &ls_pipeline_unit_costs, &times, &error);
    LS_ASSERT(status == LS_OK);
    if (shortest >= 0 && times->steady >= shortest) continue;
    shortest = times->steady;
    pipeline->lists = tried->lists;
  }
  pipeline->splits = true;
  ls_arena_destroy(&scratch);
}

static int at_most(int value, int most) {
  return value < most ? value : most;
}

void ls_pipeline_make_vmin(ls_arena *arena, ls_pipeline *pipeline) {
  const int whole = at_most((pipeline->stages + 4) / 3, pipeline->microbatches);
  fold_lists(arena, pipeline, 1, 1, 2 * whole);
}

void ls_pipeline_make_vhalf(ls_arena *arena, ls_pipeline *pipeline) {
  const int whole = at_most((pipeline->stages + 2) / 2, pipeline->microbatches);
  fold_lists(arena, pipeline, 2, 1, 2 * whole);
}

/* ZB-V by hand, after the pictures of Qi et al. (arXiv 2401.10241): no stage waits once it has
 * begun. It needs 2d - 1 microbatches. */
typedef struct hand {
  ls_arena *arena;
  ls_pipeline *pipeline;
  int stage;
  int next[LS_PASS_KINDS][2]; /* microbatch, by kind and arm */
  int first_weight;
} hand;

static void put(hand *at, ls_pass_kind kind, int of_arm) {
  const int chunk = of_arm ? 2 * at->pipeline->stages - 1 - at->stage : at->stage;
  ls_pipeline_append(at->arena, at->pipeline, at->stage, kind, chunk, at->next[kind][of_arm]++);
}

static void put_weight(hand *at) {
  ls_pipeline_append_weight(at->arena, at->pipeline, at->stage, &at->first_weight);
}

static void make_zbv_list(hand *at) {
  const int stage = at->stage, ahead = at->pipeline->stages - stage;
  const int microbatches = at->pipeline->microbatches;
  for (int i = 0; i < 2 * ahead - 1; i++) put(at, LS_PASS_FORWARD, 0);
  for (int i = 0; i < stage; i++) {
    put(at, LS_PASS_FORWARD, 1);
    put(at, LS_PASS_FORWARD, 0);
  }
  for (int i = 0; i < microbatches; i++) {
    if (i >= ahead) {
      if (at->next[LS_PASS_FORWARD][0] < microbatches) put(at, LS_PASS_FORWARD, 0);
      put(at, LS_PASS_INPUT, 0);
      if (i < microbatches - stage) put_weight(at);
    }
    if (at->next[LS_PASS_FORWARD][1] < microbatches) put(at, LS_PASS_FORWARD, 1);
    put(at, LS_PASS_INPUT, 1);
    if (i < microbatches - stage) put_weight(at);
  }
  for (int i = 0; i < ahead; i++) {
    put(at, LS_PASS_INPUT, 0);
    put_weight(at);
  }
  for (int i = 0; i < 2 * stage; i++) put_weight(at);
}

void ls_pipeline_make_zbv(ls_arena *arena, ls_pipeline *pipeline) {
  const int stages = pipeline->stages;
  if (pipeline->microbatches < 2 * stages - 1) {
    fold_lists(arena, pipeline, 4, 2, 2 * at_most(stages, pipeline->microbatches));
    return;
  }
  for (int stage = 0; stage < stages; stage++)
    make_zbv_list(&(hand){.arena = arena, .pipeline = pipeline, .stage = stage});
}
