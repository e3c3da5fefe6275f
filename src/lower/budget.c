#include "lower/budget.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schedule/recompute.h"

/* What a layer may run again: norms and activations are what is cheap but rope. */
static const struct {
  bool norms, rope, attention, all;
  const char *name;
} menu[] = {
    {.name = "nothing"},
    {.norms = true, .name = "norms and activations"},
    {.norms = true, .rope = true, .name = "norms, activations, rope"},
    {.attention = true, .name = "attention"},
    {.norms = true, .attention = true, .name = "norms, activations, attention"},
    {.norms = true, .rope = true, .attention = true, .name = "norms, activations, rope, attention"},
    {.all = true, .name = "all"}};

enum { MENU = sizeof menu / sizeof *menu };

static ls_op_set ops_of_row(int row) {
  if (menu[row].all) return (ls_op_set)LS_EVERY_OP;
  ls_op_set ops = menu[row].norms ? ls_op_set_cheap() : (ls_op_set){{false}};
  ops.has[LS_OP_ROPE] = menu[row].rope;
  ops.has[LS_OP_ATTENTION] = menu[row].attention;
  return ops;
}

static int row_of(const ls_op_set *ops) {
  for (int row = 0; row < MENU - 1; row++) {
    const ls_op_set of = ops_of_row(row);
    if (ls_op_set_equal(&of, ops)) return row;
  }
  return MENU - 1;
}

/* Of a choice for the layers so far: bytes kept at the worst moment, work, and how it came. */
typedef struct state {
  double bytes, work;
  int from, choice; /* state of the layers before; row of the menu for the last layer */
} state;

typedef struct front {
  state *items;
  int count;
} front;

typedef struct stage_plan {
  LS_LIST(int) layers; /* segments */
  int *held;           /* by chunk: microbatches that are under way at the worst moment */
  int most_held;
  double *rest;     /* by layer: bytes of its passes apart from what layers keep */
  double rest_all;  /* likewise of the worst moment at which all layers' are kept */
  double low, high; /* limits for the estimate: the first fits, the second may not */
  double limit;     /* the one that is tried */
  double work;      /* of the best choice so far, whose program fits; < 0: none */
  int *best;        /* by segment: row of the menu */
  int64_t least;    /* bytes of the smallest program seen */
} stage_plan;

typedef struct chooser {
  const ls_graph *graph;
  ls_arena *arena;  /* scratch */
  ls_graph scratch; /* the graph, for what is made in that arena */
  ls_sharded *sharded;
  ls_chunks *chunks;
  /* By segment and row of the menu: what a microbatch keeps, what is made again, the work. */
  double (*bytes)[MENU], (*again)[MENU], (*work)[MENU];
  stage_plan *stages;
  int *rows;     /* by segment: row of the menu that is tried */
  int *compiled; /* by segment: row that its stage was last compiled with; -1: none */
  const ls_budget *budget;
} chooser;

/* A sharded value as a device holds it. */
static ls_work_operand operand_of(const ls_sharded *sharded, int v) {
  const ls_shard_value *value = &sharded->values.items[v];
  const ls_tensor *tensor = ls_graph_tensor(sharded->graph, value->tensor);
  ls_work_operand made = {.dtype = ls_layout_dtype(&sharded->layout, tensor->precision),
                          .ndim = tensor->ndim};
  for (int d = 0; d < tensor->ndim; d++)
    made.dims[d] = ls_mesh_part(&sharded->mesh, 0, &value->placement, d, tensor->dims[d]).stored;
  return made;
}

static double local_bytes(const ls_sharded *sharded, int v) {
  const ls_work_operand operand = operand_of(sharded, v);
  return ls_work_operand_bytes(&operand);
}

static ls_work node_work(const ls_sharded *sharded, const ls_shard_node *node) {
  ls_work_operand in[LS_MAX_INPUTS], out[LS_MAX_OUTPUTS];
  for (int i = 0; i < node->inputs; i++) in[i] = operand_of(sharded, node->in[i]);
  for (int o = 0; o < node->outputs; o++) out[o] = operand_of(sharded, node->out[o]);
  if (node->collective == LS_COLLECTIVE_NONE)
    return ls_op_work(node->kind, node->attributes, in, node->inputs, out, node->outputs);
  const int ranks = ls_mesh_size(&sharded->mesh, node->axes);
  double whole = ls_work_operand_bytes(node->collective == LS_ALL_GATHER ? &out[0] : &in[0]);
  if (node->collective == LS_ALL_TO_ALL) whole *= ranks;
  return (ls_work){.sent = ls_collective_bytes(node->collective, whole, ranks)};
}

/* What each layer keeps and does again under one row of the menu. */
static void measure_choice(chooser *c, int choice) {
  ls_sharded *sharded = c->sharded;
  sharded->layout.recompute = ops_of_row(choice);
  const ls_recompute *recompute = ls_recompute_make(sharded, c->chunks);
  bool *kept = LS_NEW_ARRAY(c->arena, bool, sharded->values.count + 1);
  int *segment = LS_NEW_ARRAY(c->arena, int, sharded->values.count + 1);
  for (int v = 0; v < sharded->values.count; v++) segment[v] = -1;
  for (int n = 0; n < sharded->nodes.count; n++) {
    const ls_shard_node *node = &sharded->nodes.items[n];
    for (int o = 0; o < node->outputs && !node->backward; o++)
      segment[node->out[o]] = node->segment;
    for (int i = 0; i < node->inputs && node->backward; i++) kept[node->in[i]] = true;
    if (recompute->nodes[n]) {
      const ls_work work = node_work(sharded, node);
      c->work[node->segment][choice] += ls_work_seconds(&work, &c->budget->rates);
    }
  }
  for (int v = 0; v < sharded->values.count; v++) {
    if (segment[v] < 0) continue;
    if (recompute->dropped[v]) c->again[segment[v]][choice] += local_bytes(sharded, v);
    if ((kept[v] && !recompute->dropped[v]) || recompute->read[v])
      c->bytes[segment[v]][choice] += local_bytes(sharded, v);
  }
}

/* Microbatches whose activations of each chunk a stage holds when it holds most; returns the
 * largest of these. */
static int count_held(const ls_pipeline *pipeline, int stage, ls_arena *arena, int *held) {
  const ls_pipeline_list *list = &pipeline->lists[stage];
  const int chunks = pipeline->stages * pipeline->chunks;
  int *now = LS_NEW_ARRAY(arena, int, chunks), sum = 0, most = 0;
  for (int i = 0; i < list->count; i++) {
    const ls_pipeline_pass *pass = &list->items[i];
    const int change = pass->kind == LS_PASS_FORWARD ? 1 : pass->kind == LS_PASS_INPUT ? 0 : -1;
    now[pass->chunk] += change;
    sum += change;
    if (sum <= most) continue;
    most = sum;
    memcpy(held, now, (size_t)chunks * sizeof *held);
  }
  int largest = 1;
  for (int chunk = 0; chunk < chunks; chunk++)
    largest = held[chunk] > largest ? held[chunk] : largest;
  return largest;
}

/* In the order of bytes; of equal ones the one that is kept comes first. */
static bool is_before(const state *a, const state *b) {
  if (a->bytes != b->bytes) return a->bytes < b->bytes;
  if (a->work != b->work) return a->work < b->work;
  return a->from != b->from ? a->from < b->from : a->choice < b->choice;
}

/* Room for the states of one layer; its runs, one for each choice, are in order. */
typedef struct workshop {
  state *items, *other;
  int64_t capacity;
  int ends[MENU + 1];
} workshop;

static void make_room(ls_arena *arena, workshop *w, int64_t count) {
  if (count <= w->capacity) return;
  w->capacity = 2 * count;
  w->items = LS_NEW_ARRAY(arena, state, w->capacity);
  w->other = LS_NEW_ARRAY(arena, state, w->capacity);
}

/* Sums of one more number are in the order of what they are of, but where rounding makes them
 * equal. Returns the count with this one. */
static int add_state(const workshop *w, int begin, int count, const state *made) {
  int at = count;
  for (; at > begin && is_before(made, &w->items[at - 1]); at--) w->items[at] = w->items[at - 1];
  w->items[at] = *made;
  return count + 1;
}

static void merge(const workshop *w, int begin, int middle, int end) {
  int left = begin, right = middle;
  for (int i = begin; i < end; i++) {
    const bool from_right =
        left == middle || (right < end && is_before(&w->items[right], &w->items[left]));
    w->other[i] = w->items[from_right ? right++ : left++];
  }
}

static void merge_runs(workshop *w) {
  for (int runs = MENU; runs > 1; runs = (runs + 1) / 2) {
    for (int r = 0; r < runs; r += 2) {
      const int next = r + 2 <= runs ? r + 2 : runs;
      merge(w, w->ends[r], w->ends[r + 1], w->ends[next]);
      w->ends[r / 2 + 1] = w->ends[next];
    }
    state *const merged = w->other;
    w->other = w->items;
    w->items = merged;
  }
}

/* Without states that another betters in one and is no worse than in the other. */
static front keep_best(ls_arena *arena, const workshop *w) {
  const int count = w->ends[1];
  int kept = 0;
  for (int i = 0; i < count; i++)
    if (kept == 0 || w->items[i].work < w->items[kept - 1].work) w->items[kept++] = w->items[i];
  front made = {LS_NEW_ARRAY(arena, state, kept + 1), kept};
  memcpy(made.items, w->items, (size_t)kept * sizeof *made.items);
  return made;
}

/* What layers keep while a microbatch is in one of them: that of the layers up to it, `bytes` of
 * all microbatches, and that of all layers, `total`, of the microbatches that wait. */
static double kept_at(const stage_plan *plan, double bytes, double total) {
  return (bytes + total * (plan->most_held - 1)) / plan->most_held;
}

/* The least work under the limit and below `most` where all layers keep at most `total`, as rows of
 * the layers; -1: there is none. Exact: fewer bytes for less work is better whatever follows. */
static double solve(const chooser *c, const stage_plan *plan, double total, double most,
                    int *rows) {
  const int layers = plan->layers.count;
  ls_arena *arena = ls_arena_create();
  front *fronts = LS_NEW_ARRAY(arena, front, layers + 1);
  workshop w = {0};
  fronts[0] = (front){LS_NEW(arena, state), 1};
  for (int l = 0; l < layers; l++) {
    const int segment = plan->layers.items[l];
    const double weight = plan->held[c->chunks->chunk_of[segment]];
    int count = 0;
    make_room(arena, &w, (int64_t)fronts[l].count * MENU + 1);
    for (int o = 0; o < MENU; o++) {
      for (int i = 0; i < fronts[l].count; i++) {
        const double bytes = fronts[l].items[i].bytes + weight * c->bytes[segment][o];
        const double now = kept_at(plan, bytes, total) + c->again[segment][o] + plan->rest[l];
        const double work = fronts[l].items[i].work + c->work[segment][o];
        if (bytes <= total && now <= plan->limit && work < most) {
          const state made = {bytes, work, i, o};
          count = add_state(&w, w.ends[o], count, &made);
        }
      }
      w.ends[o + 1] = count;
    }
    merge_runs(&w);
    fronts[l + 1] = keep_best(arena, &w);
  }
  double work = -1;
  if (fronts[layers].count) {
    int at = fronts[layers].count - 1; /* the most bytes, the least work */
    work = fronts[layers].items[at].work;
    for (int l = layers; l > 0; l--) {
      rows[plan->layers.items[l - 1]] = fronts[l].items[at].choice;
      at = fronts[l].items[at].from;
    }
  }
  ls_arena_destroy(&arena);
  return work;
}

/* The best of several totals; one microbatch under way makes do with one. */
static double solve_limit(const chooser *c, const stage_plan *plan, int *rows) {
  enum { TOTALS = 32 };
  const double most = plan->limit - plan->rest_all;
  const int totals = plan->most_held > 1 ? TOTALS : 1;
  int *tried = LS_NEW_ARRAY(c->arena, int, c->graph->segments.count + 1);
  double best = -1;
  for (int t = 0; t < totals; t++) {
    const double work =
        solve(c, plan, most * (totals - t) / totals, best < 0 ? INFINITY : best, tried);
    if (work < 0) continue;
    best = work;
    for (int l = 0; l < plan->layers.count; l++)
      rows[plan->layers.items[l]] = tried[plan->layers.items[l]];
  }
  return best;
}

/* What a stage needs beside what its layers keep, from the program in which they keep all. */
static void measure_rest(chooser *c, stage_plan *plan, const ls_program *program) {
  const ls_alive *alive = ls_program_alive(c->arena, program, LS_TIER_DEVICE);
  const int layers = plan->layers.count;
  double *kept = LS_NEW_ARRAY(c->arena, double, layers + 1); /* by the first layers */
  plan->rest = LS_NEW_ARRAY(c->arena, double, layers + 1);
  for (int l = 0; l < layers; l++) {
    const int segment = plan->layers.items[l];
    kept[l + 1] = kept[l] + plan->held[c->chunks->chunk_of[segment]] * c->bytes[segment][0];
    plan->rest[l] = -INFINITY;
  }
  plan->rest_all = -INFINITY;
  int *layer_of = LS_NEW_ARRAY(c->arena, int, c->graph->segments.count + 1); /* or layers */
  for (int s = 0; s <= c->graph->segments.count; s++) layer_of[s] = layers;
  for (int l = 0; l < layers; l++) layer_of[plan->layers.items[l]] = l;
  for (int a = 0; a < program->actions.count; a++) {
    const int segment = program->actions.items[a].action.segment;
    const int l = segment >= 0 ? layer_of[segment] : layers;
    const double live = (double)alive[a].sum;
    if (l < layers)
      plan->rest[l] = fmax(plan->rest[l], live - kept_at(plan, kept[l + 1], kept[layers]));
    plan->rest_all = fmax(plan->rest_all, live - kept[layers]);
  }
}

static void begin_stage(chooser *c, int s) {
  stage_plan *plan = &c->stages[s];
  const int segments = c->graph->segments.count;
  for (int i = 0; i < segments; i++)
    if (ls_chunks_stage(c->chunks, i) == s && c->work[i][MENU - 1] > 0)
      *LS_APPEND(c->arena, &plan->layers) = i;
  plan->held = LS_NEW_ARRAY(c->arena, int, c->chunks->count + 1);
  plan->best = LS_NEW_ARRAY(c->arena, int, segments + 1);
  plan->most_held = count_held(c->chunks->pipeline, s, c->arena, plan->held);
  plan->work = -1;
  plan->least = INT64_MAX;
}

static ls_status prepare(chooser *c, const ls_layout *layout, ls_error *error) {
  ls_layout plain = *layout;
  plain.recompute_of = NULL;
  plain.recompute_of_count = 0;
  plain.recompute_layers = 1;
  c->scratch = *c->graph;
  c->scratch.arena = c->arena;
  LS_TRY(ls_shard(&c->scratch, &plain, &c->sharded, error));
  LS_TRY(ls_chunks_make(c->sharded, false, &c->chunks, error));
  const size_t segments = (size_t)c->graph->segments.count;
  c->bytes = ls_arena_alloc(c->arena, sizeof *c->bytes * segments);
  c->again = ls_arena_alloc(c->arena, sizeof *c->again * segments);
  c->work = ls_arena_alloc(c->arena, sizeof *c->work * segments);
  for (int o = 0; o < MENU; o++) measure_choice(c, o);
  c->stages = LS_NEW_ARRAY(c->arena, stage_plan, layout->pp);
  c->rows = LS_NEW_ARRAY(c->arena, int, segments + 1);
  c->compiled = LS_NEW_ARRAY(c->arena, int, segments + 1);
  for (size_t i = 0; i < segments; i++) c->compiled[i] = -1;
  for (int s = 0; s < layout->pp; s++) begin_stage(c, s);
  return LS_OK;
}

/* What the rows of the segments stand for, in the arena. */
static void set_ops(const chooser *c, ls_layout *layout, const int *rows, ls_arena *arena) {
  const int segments = c->graph->segments.count;
  ls_op_set *sets = LS_NEW_ARRAY(arena, ls_op_set, segments + 1);
  for (int s = 0; s < segments; s++) sets[s] = ops_of_row(rows[s]);
  layout->recompute_of = sets;
  layout->recompute_of_count = segments;
}

/* Stages whose program the rows that are tried change; how many. */
static int find_changed(chooser *c, int stages, bool *changed) {
  int count = 0;
  for (int s = 0; s < stages; s++) {
    const stage_plan *plan = &c->stages[s];
    changed[s] = plan->least == INT64_MAX; /* never compiled */
    for (int l = 0; l < plan->layers.count; l++) {
      const int segment = plan->layers.items[l];
      changed[s] |= c->rows[segment] != c->compiled[segment];
      c->compiled[segment] = c->rows[segment];
    }
    count += changed[s];
  }
  return count;
}

/* Compiles the rows that are tried and notes the bytes of each stage; with `measure`, what they
 * need beside. */
static ls_status compile(chooser *c, const ls_layout *layout, int64_t *needed, bool measure,
                         ls_error *error) {
  bool *changed = LS_NEW_ARRAY(c->arena, bool, layout->pp);
  if (!find_changed(c, layout->pp, changed)) return LS_OK;
  ls_layout tried = *layout;
  set_ops(c, &tried, c->rows, c->arena);
  ls_graph graph = *c->graph; /* whose programs go with the arena they are in */
  graph.arena = ls_arena_create();
  ls_program **stages = LS_NEW_ARRAY(graph.arena, ls_program *, layout->pp);
  const ls_status status =
      ls_program_compile_some(&graph, &tried, LS_PROGRAM_STEP, changed, stages, error);
  for (int s = 0; s < layout->pp && status == LS_OK; s++) {
    if (!changed[s]) continue;
    needed[s] = ls_program_bytes(stages[s]) + (c->budget->beside ? c->budget->beside[s] : 0);
    if (needed[s] < c->stages[s].least) c->stages[s].least = needed[s];
    if (measure) measure_rest(c, &c->stages[s], stages[s]);
  }
  ls_arena_destroy(&graph.arena);
  return status;
}

static double work_of(const chooser *c, const stage_plan *plan, const int *rows) {
  double work = 0;
  for (int l = 0; l < plan->layers.count; l++) {
    const int segment = plan->layers.items[l];
    work += c->work[segment][rows[segment]];
  }
  return work;
}

/* Takes what was compiled for the stage if it fits and is the best so far. */
static void note(chooser *c, stage_plan *plan, bool fits) {
  const double work = work_of(c, plan, c->rows);
  if (!fits || (plan->work >= 0 && work >= plan->work)) return;
  plan->work = work;
  memcpy(plan->best, c->rows, (size_t)c->graph->segments.count * sizeof *plan->best);
}

static void set_all(const chooser *c, const stage_plan *plan, int row) {
  for (int l = 0; l < plan->layers.count; l++) c->rows[plan->layers.items[l]] = row;
}

/* Everything kept, then everything made again: what no search need find. */
static ls_status try_extremes(chooser *c, const ls_layout *layout, int64_t bytes, int64_t *needed,
                              ls_error *error) {
  for (int all = 0; all < 2; all++) {
    for (int s = 0; s < layout->pp; s++) set_all(c, &c->stages[s], all ? MENU - 1 : 0);
    LS_TRY(compile(c, layout, needed, !all, error));
    for (int s = 0; s < layout->pp; s++) note(c, &c->stages[s], needed[s] <= bytes);
  }
  return LS_OK;
}

/* The estimate is not the arena: limits are tried about the budget, by halving. */
static ls_status search(chooser *c, const ls_layout *layout, int64_t bytes, int64_t *needed,
                        ls_error *error) {
  enum { ROUNDS = 10 };
  for (int s = 0; s < layout->pp; s++) {
    stage_plan *plan = &c->stages[s];
    plan->low = 0.7 * (double)bytes;
    plan->high = 1.15 * (double)bytes;
    plan->limit = (double)bytes;
  }
  for (int round = 0; round < ROUNDS; round++) {
    for (int s = 0; s < layout->pp; s++)
      if (solve_limit(c, &c->stages[s], c->rows) < 0) set_all(c, &c->stages[s], MENU - 1);
    LS_TRY(compile(c, layout, needed, false, error));
    for (int s = 0; s < layout->pp; s++) {
      stage_plan *plan = &c->stages[s];
      const bool fits = needed[s] <= bytes;
      note(c, plan, fits);
      *(fits ? &plan->low : &plan->high) = plan->limit;
      plan->limit = (plan->low + plan->high) / 2;
    }
  }
  return LS_OK;
}

static ls_status refuse(const chooser *c, int pp, int64_t bytes, ls_error *error) {
  int worst = 0;
  for (int s = 1; s < pp; s++)
    if (c->stages[s].least > c->stages[worst].least) worst = s;
  return ls_fail(error, LS_REFUTED,
                 "budget of %.1f MiB: stage %d needs %.1f MiB even where every layer "
                 "runs again; allow at least that, or cut train.micro_batch, raise zero, "
                 "mesh.dp_shard or mesh.pp",
                 (double)bytes / 1048576, worst, (double)c->stages[worst].least / 1048576);
}

static ls_status choose(chooser *c, ls_layout *layout, int64_t bytes, ls_error *error) {
  LS_TRY(prepare(c, layout, error));
  int64_t *needed = LS_NEW_ARRAY(c->arena, int64_t, layout->pp + 1);
  LS_TRY(try_extremes(c, layout, bytes, needed, error));
  bool all_kept = true;
  for (int s = 0; s < layout->pp; s++) all_kept = all_kept && c->stages[s].work == 0;
  if (!all_kept) LS_TRY(search(c, layout, bytes, needed, error));
  const int segments = c->graph->segments.count;
  int *chosen = LS_NEW_ARRAY(c->arena, int, segments + 1);
  for (int s = 0; s < layout->pp; s++) {
    const stage_plan *plan = &c->stages[s];
    if (plan->work < 0) return refuse(c, layout->pp, bytes, error);
    for (int l = 0; l < plan->layers.count; l++)
      chosen[plan->layers.items[l]] = plan->best[plan->layers.items[l]];
  }
  set_ops(c, layout, chosen, c->graph->arena);
  return LS_OK;
}

ls_status ls_budget_choose(const ls_graph *graph, ls_layout *layout, const ls_budget *budget,
                           ls_error *error) {
  chooser c = {.graph = graph, .budget = budget, .arena = ls_arena_create()};
  const ls_status status = choose(&c, layout, budget->bytes, error);
  ls_arena_destroy(&c.arena);
  return status;
}

ls_status ls_budget_seconds(const ls_graph *graph, const ls_layout *layout,
                            const ls_work_rates *rates, double *seconds, ls_error *error) {
  const ls_budget budget = {.rates = *rates};
  chooser c = {.graph = graph, .budget = &budget, .arena = ls_arena_create()};
  const ls_status status = prepare(&c, layout, error);
  *seconds = 0;
  for (int s = 0; s < layout->recompute_of_count && status == LS_OK; s++)
    *seconds += c.work[s][row_of(&layout->recompute_of[s])];
  ls_arena_destroy(&c.arena);
  return status;
}

const char *ls_budget_print(ls_arena *arena, const ls_graph *graph, const ls_layout *layout) {
  char *text = NULL;
  size_t size = 0;
  FILE *stream = open_memstream(&text, &size);
  if (!stream) ls_panic("out of memory for a line");
  int layer = 0, first = 0;
  for (int s = 0; s < layout->recompute_of_count; s++) {
    if (graph->segments.items[s].layer < 0) continue;
    const bool goes_on = s + 1 < layout->recompute_of_count &&
                         graph->segments.items[s + 1].layer >= 0 &&
                         ls_op_set_equal(&layout->recompute_of[s + 1], &layout->recompute_of[s]);
    if (!goes_on) {
      fprintf(stream, "%s%d", first == 0 ? "layers " : "; ", first);
      if (layer > first) fprintf(stream, "-%d", layer);
      fprintf(stream, ": %s", menu[row_of(&layout->recompute_of[s])].name);
      first = layer + 1;
    }
    layer++;
  }
  fclose(stream);
  const char *made = ls_arena_printf(arena, "%s", text ? text : "");
  free(text);
  return made;
}
