#include "schedule/schedule.h"

/* One pass of a microbatch over a segment: what the lists below are made of. */
typedef struct pass {
  int segment;
  bool backward;
} pass;

typedef struct builder {
  const ls_sharded *sharded;
  const ls_units *units;
  ls_schedule *schedule;
  pass *passes;
  int pass_count;
  bool *reads;  /* [pass][unit]: the pass reads the unit's weights */
  bool *writes; /* [pass][unit]: the pass contributes to the unit's gradient */
} builder;

const char *ls_action_name(ls_action_kind kind) {
  static const char *const names[] = {
#define LS_ACTION_NAME(suffix, name) [LS_ACTION_##suffix] = name,
      LS_ACTIONS(LS_ACTION_NAME)
#undef LS_ACTION_NAME
  };
  return names[kind];
}

static bool shards(const ls_sharded *sharded) {
  return sharded->mesh.size[LS_AXIS_DP_SHARD] > 1;
}

bool ls_schedule_gathers(const ls_sharded *sharded) {
  return shards(sharded) && ls_data_strategy_row(sharded->layout.zero)->parameters == LS_SHARDED;
}

bool ls_schedule_gathers_once(const ls_sharded *sharded) {
  return ls_schedule_gathers(sharded) && sharded->layout.gather == LS_WHEN_STEP;
}

bool ls_schedule_state_sharded(const ls_sharded *sharded) {
  return shards(sharded) && ls_data_strategy_row(sharded->layout.zero)->state == LS_SHARDED;
}

bool ls_schedule_reduces_each(const ls_sharded *sharded) {
  return shards(sharded) && ls_data_strategy_row(sharded->layout.zero)->gradients == LS_SHARDED &&
         sharded->layout.reduce != LS_WHEN_STEP;
}

static void add(builder *b, ls_action_kind kind, int segment, int unit, int microbatch) {
  ls_schedule *schedule = b->schedule;
  *LS_APPEND(b->sharded->arena, schedule) = (ls_action){kind, segment, unit, microbatch};
}

static void add_for_units(builder *b, ls_action_kind kind) {
  for (int u = 0; u < b->units->count; u++) add(b, kind, -1, u, -1);
}

/* Passes in the order of the sharded nodes, which is forward through the segments and back. */
static void find_passes(builder *b) {
  const ls_sharded *sharded = b->sharded;
  const int units = b->units->count;
  b->passes = LS_NEW_ARRAY(sharded->arena, pass, 2 * sharded->graph->segments.count);
  b->reads = LS_NEW_ARRAY(sharded->arena, bool, 2 * sharded->graph->segments.count * units);
  b->writes = LS_NEW_ARRAY(sharded->arena, bool, 2 * sharded->graph->segments.count * units);
  for (int n = 0; n < sharded->nodes.count; n++) {
    const ls_shard_node *node = &sharded->nodes.items[n];
    const pass *last = b->pass_count ? &b->passes[b->pass_count - 1] : NULL;
    if (!last || last->segment != node->segment || last->backward != node->backward) {
      LS_ASSERT(b->pass_count < 2 * sharded->graph->segments.count);
      b->passes[b->pass_count++] = (pass){node->segment, node->backward};
    }
    const int row = (b->pass_count - 1) * units;
    for (int i = 0; i < node->inputs + node->outputs; i++) {
      const bool is_input = i < node->inputs;
      const int value = is_input ? node->in[i] : node->out[i - node->inputs];
      const ls_tensor *tensor =
          ls_graph_tensor(sharded->graph, sharded->values.items[value].tensor);
      if (tensor->role == LS_ROLE_PARAMETER)
        b->reads[row + b->units->of_parameter[tensor->parameter]] = true;
      if (tensor->role == LS_ROLE_GRADIENT && !is_input)
        b->writes[row + b->units->of_parameter[tensor->parameter]] = true;
    }
  }
}

static bool writes_later(const builder *b, int p, int unit) {
  for (int later = p + 1; later < b->pass_count; later++)
    if (b->writes[later * b->units->count + unit]) return true;
  return false;
}

/* Whether the unit's weights are still there from an earlier pass: from the one just before, or,
 * where they are kept for the step, from any. */
static bool is_held(const builder *b, int p, int unit, bool once, int microbatch) {
  if (!once) return p > 0 && b->reads[(p - 1) * b->units->count + unit];
  if (microbatch > 0) return true;
  for (int earlier = 0; earlier < p; earlier++)
    if (b->reads[earlier * b->units->count + unit]) return true;
  return false;
}

static void add_pass(builder *b, int p, int microbatch) {
  const int units = b->units->count;
  const bool gathers = ls_schedule_gathers(b->sharded);
  const bool once = ls_schedule_gathers_once(b->sharded);
  for (int u = 0; u < units && gathers; u++)
    if (b->reads[p * units + u] && !is_held(b, p, u, once, microbatch))
      add(b, LS_ACTION_GATHER, -1, u, once ? -1 : microbatch);
  add(b, b->passes[p].backward ? LS_ACTION_BACKWARD : LS_ACTION_FORWARD, b->passes[p].segment, -1,
      microbatch);
  for (int u = 0; u < units; u++) {
    const bool next = p + 1 < b->pass_count && b->reads[(p + 1) * units + u];
    if (gathers && !once && b->reads[p * units + u] && !next)
      add(b, LS_ACTION_DROP, -1, u, microbatch);
    if (ls_schedule_reduces_each(b->sharded) && b->writes[p * units + u] && !writes_later(b, p, u))
      add(b, LS_ACTION_REDUCE, -1, u, microbatch);
  }
}

ls_schedule ls_schedule_step(const ls_sharded *sharded, const ls_units *units) {
  ls_schedule schedule = {0};
  builder b = {.sharded = sharded, .units = units, .schedule = &schedule};
  find_passes(&b);
  const int microbatches = sharded->layout.microbatches;
  for (int m = 0; m < microbatches; m++) add(&b, LS_ACTION_COUNT, -1, -1, m);
  add(&b, LS_ACTION_TOTAL, -1, -1, -1);
  for (int m = 0; m < microbatches; m++)
    for (int p = 0; p < b.pass_count; p++) add_pass(&b, p, m);
  add_for_units(&b, LS_ACTION_FINISH);
  add(&b, LS_ACTION_NORM, -1, -1, -1);
  add_for_units(&b, LS_ACTION_UPDATE);
  if (ls_schedule_state_sharded(sharded) && !ls_schedule_gathers(sharded))
    add_for_units(&b, LS_ACTION_PUBLISH);
  return schedule;
}

ls_schedule ls_schedule_forward(const ls_sharded *sharded, const ls_units *units) {
  ls_schedule schedule = {0};
  builder b = {.sharded = sharded, .units = units, .schedule = &schedule};
  find_passes(&b);
  const bool loss = sharded->graph->loss.index >= 0;
  if (loss) {
    add(&b, LS_ACTION_COUNT, -1, -1, 0);
    add(&b, LS_ACTION_TOTAL, -1, -1, -1);
  }
  for (int p = 0; p < b.pass_count; p++) add_pass(&b, p, 0);
  if (loss) add(&b, LS_ACTION_LOSS, -1, -1, -1);
  return schedule;
}
