/* What a device of a layout needs, told by its stages compiled with few layers.
 *
 * A chunk of many layers is compiled with three of them and with four. What is alive during an
 * action grows with layers along a line: every layer between the first and the last of a chunk has
 * the same state and keeps the same. So the line through three layers and four, drawn for each
 * action, says what is alive with all of them, and the largest of these is the peak. */
#include "plan/memory.h"

#include <math.h>
#include <string.h>

#include "cost/cost.h"
#include "pipeline/stages.h"
#include "schedule/chunks.h"

/* A chunk's pass forward keeps something until the pass back, and where that is split other things
 * from there until its second half: a stage's peak is of some mix of both. */
enum { MIXES = 8, EVEN = 3 };
static const int mixes[MIXES][2] = {{1, 0}, {4, 1}, {2, 1},  {1, 1},
                                    {1, 2}, {1, 4}, {1, 16}, {0, 1}};

/* Layers of the larger of two small chunks, and microbatches for each stage. Where passes back are
 * split, or units come and go, gaps between lives are those of many from more of both on. */
enum { MORE = 4, MORE_SPLIT = 10, ROUNDS = 3, SPLIT_ROUNDS = 6, LOOSE_ROUNDS = 8 };
/* What gaps may be above that line (memory_slow_test). */
#define SLACK 1.052
/* Where passes back are split and units wait on the host: more of it, and of a small arena more
 * than a share tells, as gaps are of whole buffers. */
#define SLACK_AWAY 1.0548
#define SLACK_AWAY_BYTES (2 << 20)

struct ls_plan_memory {
  const ls_plan_problem *problem;
  double *costs;                /* by segment of the whole model, as chunks are cut by */
  int segments, before, behind; /* of these, those before the first layer and behind the last */
  bool alike;                   /* of all layers the same is trained */
};

/* By segment, how many parameters are trained. */
static int *count_trained(ls_arena *arena, const ls_graph *graph) {
  int *trained = LS_NEW_ARRAY(arena, int, graph->segments.count);
  for (int p = 0; p < graph->parameters.count; p++) {
    const ls_parameter_record *each = &graph->parameters.items[p];
    trained[ls_graph_tensor(graph, each->tensor)->segment] += each->trainable;
  }
  return trained;
}

/* Whether train.freeze leaves as many parameters of every layer trained. */
static bool freezes_alike(const ls_training *training, ls_graph *graph) {
  ls_arena *scratch = ls_arena_create();
  const int *before = count_trained(scratch, graph);
  bool alike = !training->prepare || training->prepare(training->context, graph, NULL) == LS_OK;
  const int *trained = count_trained(scratch, graph);
  int first = -1;
  for (int s = 0; s < graph->segments.count; s++) {
    if (graph->segments.items[s].layer < 0) continue;
    if (first < 0) first = before[s] - trained[s];
    alike &= before[s] - trained[s] == first;
  }
  ls_arena_destroy(&scratch);
  return alike;
}

ls_status ls_plan_memory_make(ls_arena *arena, const ls_plan_problem *problem,
                              ls_plan_memory **memory, ls_error *error) {
  const ls_training *training = problem->training;
  const ls_build_options options = {.mode = LS_MODEL_FORWARD,
                                    .tokens = training->sequence,
                                    .sequence = training->sequence,
                                    .documents = training->documents};
  ls_arena *scratch = ls_arena_create();
  ls_graph *graph;
  const ls_status status = ls_model_build(scratch, training->model, &options, &graph, error);
  if (status == LS_OK) {
    ls_plan_memory *made = *memory = LS_NEW(arena, ls_plan_memory);
    const int segments = graph->segments.count;
    *made = (ls_plan_memory){problem, ls_chunks_costs(arena, graph), segments, 0, 0, false};
    while (graph->segments.items[made->before].layer < 0) made->before++;
    while (graph->segments.items[segments - 1 - made->behind].layer < 0) made->behind++;
    made->alike = !training->teacher.config && freezes_alike(training, graph);
  }
  ls_arena_destroy(&scratch);
  return status;
}

/* What a stage has and holds. */
typedef struct stage_load {
  int layers, peers;
  int begins, ends; /* whether the model does so in it */
  int held[MIXES];
} stage_load;

/* What is estimated: a layout and how it is cut. */
typedef struct outline {
  const ls_plan_memory *memory;
  ls_layout layout; /* with few microbatches */
  const ls_pipeline *pipeline;
  int64_t tokens;   /* of a microbatch over the whole mesh */
  int microbatches; /* all */
  int chunks;
  int *layers;  /* by chunk */
  int together; /* layers of a unit */
  stage_load *loads;
  bool *wanted; /* stages that may need the most */
} outline;

/* The most of each mix that a stage holds at once, in layers. */
static void find_held(const outline *of, const ls_pipeline_list *list, stage_load *load) {
  int until_back = 0, until_weight = 0;
  for (int i = 0; i < list->count; i++) {
    const ls_pass_kind kind = list->items[i].kind;
    const int layers = of->layers[list->items[i].chunk];
    until_back += kind == LS_PASS_FORWARD ? layers : 0;
    until_weight += kind == LS_PASS_INPUT ? layers : 0;
    for (int m = 0; m < MIXES; m++) {
      const int now = mixes[m][0] * until_back + mixes[m][1] * until_weight;
      if (now > load->held[m]) load->held[m] = now;
    }
    until_back -= kind == LS_PASS_BACKWARD || kind == LS_PASS_INPUT ? layers : 0;
    until_weight -= kind == LS_PASS_WEIGHT ? layers : 0;
  }
}

/* Where units come and go between the halves of passes back, gaps between lives depend on the order
 * of passes: stages that have and hold the same differ by 5 %. */
static bool is_loose(const outline *of) {
  return of->pipeline->splits && of->layout.offload.optimizer;
}

/* Whether a stage has and holds all that another has and holds, and more of both together; or all
 * the same. Stages that only differ a little are told apart by their programs alone. */
static bool covers(const outline *of, const stage_load *a, const stage_load *b, bool *alike) {
  *alike = memcmp(a, b, sizeof *a) == 0;
  if (a->layers < b->layers || a->peers < b->peers || a->begins < b->begins || a->ends < b->ends)
    return false;
  for (int m = 0; m < MIXES; m++)
    if (a->held[m] < b->held[m]) return false;
  return (*alike && !is_loose(of)) || a->held[EVEN] > b->held[EVEN];
}

static void find_wanted(outline *of) {
  for (int s = 0; s < of->layout.pp; s++) {
    of->wanted[s] = true;
    for (int t = 0; t < of->layout.pp && of->wanted[s]; t++) {
      bool alike;
      of->wanted[s] = !covers(of, &of->loads[t], &of->loads[s], &alike) || (alike && s <= t);
    }
  }
}

static void find_loads(ls_arena *arena, outline *of) {
  const int stages = of->layout.pp, *stage_of = of->pipeline->stage_of;
  of->loads = LS_NEW_ARRAY(arena, stage_load, stages);
  of->wanted = LS_NEW_ARRAY(arena, bool, stages);
  bool *joined = LS_NEW_ARRAY(arena, bool, stages *stages);
  for (int c = 0; c < of->chunks; c++) {
    of->loads[stage_of[c]].layers += of->layers[c];
    if (!c || stage_of[c] == stage_of[c - 1]) continue;
    joined[stage_of[c] * stages + stage_of[c - 1]] = true;
    joined[stage_of[c - 1] * stages + stage_of[c]] = true;
  }
  of->loads[stage_of[0]].begins = of->loads[stage_of[of->chunks - 1]].ends = 1;
  for (int s = 0; s < stages; s++) {
    for (int t = 0; t < stages; t++) of->loads[s].peers += joined[s * stages + t];
    find_held(of, &of->pipeline->lists[s], &of->loads[s]);
  }
  find_wanted(of);
}

static bool hold_alike(const outline *a, const outline *b) {
  for (int s = 0; s < a->layout.pp; s++)
    for (int m = 0; m < MIXES; m++)
      if (a->loads[s].held[m] != b->loads[s].held[m]) return false;
  return true;
}

/* With all its microbatches. */
static ls_status outline_whole(ls_arena *arena, const ls_plan_memory *memory,
                               const ls_layout *layout, outline *made, ls_error *error) {
  ls_pipeline *pipeline;
  LS_TRY(ls_chunks_pipeline(arena, layout, &pipeline, error));
  const int chunks = pipeline->stages * pipeline->chunks;
  int *first = LS_NEW_ARRAY(arena, int, chunks + 1);
  LS_TRY(ls_stages_cut(memory->costs, memory->segments, chunks, first, error));
  *made = (outline){.memory = memory,
                    .layout = *layout,
                    .pipeline = pipeline,
                    .microbatches = layout->microbatches,
                    .chunks = chunks,
                    .layers = LS_NEW_ARRAY(arena, int, chunks),
                    .together = layout->layers_per_unit};
  made->layout.logits_bytes = memory->problem->facts->logits_bytes;
  made->layout.logits_multiple = memory->problem->facts->logits_multiple;
  for (int c = 0; c < chunks; c++)
    for (int s = first[c]; s < first[c + 1]; s++)
      made->layers[c] += s >= memory->before && s < memory->segments - memory->behind;
  find_loads(arena, made);
  return LS_OK;
}

/* With as few microbatches as hold as much at once: rounds at the beginning, at the end and between
 * them. */
static ls_status outline_of(ls_arena *arena, const ls_plan_memory *memory, const ls_layout *layout,
                            outline *made, ls_error *error) {
  const ls_training *training = memory->problem->training;
  LS_TRY(outline_whole(arena, memory, layout, made, error));
  made->tokens = training->batch / layout->microbatches * training->sequence;
  const int rounds = is_loose(made) ? LOOSE_ROUNDS : made->pipeline->splits ? SPLIT_ROUNDS : ROUNDS;
  if (layout->microbatches <= rounds * layout->pp) return LS_OK;
  ls_layout shorter = *layout;
  shorter.microbatches = rounds * layout->pp;
  outline few;
  if (outline_whole(arena, memory, &shorter, &few, NULL) != LS_OK || !hold_alike(&few, made))
    return LS_OK;
  few.tokens = made->tokens;
  few.microbatches = made->microbatches;
  *made = few;
  return LS_OK;
}

/* The wanted stages compiled with few layers. */
typedef struct small_model {
  ls_program **stages; /* NULL: not wanted */
  int layers;          /* of the model */
  int *first, *count;  /* of each chunk, in the model's order */
} small_model;

/* "0-1, 2-2, none": at most so many layers in chunks of wanted stages and one in all others. */
static const char *cut_small(ls_arena *arena, const outline *of, int most, small_model *made) {
  const char *text = "";
  made->first = LS_NEW_ARRAY(arena, int, of->chunks);
  made->count = LS_NEW_ARRAY(arena, int, of->chunks);
  for (int c = 0; c < of->chunks; c++) {
    const int limit = of->wanted[of->pipeline->stage_of[c]] ? most : 1;
    const int count = of->layers[c] < limit ? of->layers[c] : limit;
    const char *comma = c ? ", " : "";
    made->first[c] = made->layers;
    made->count[c] = count;
    made->layers += count;
    text = count
               ? ls_arena_printf(arena, "%s%s%d-%d", text, comma, made->first[c], made->layers - 1)
               : ls_arena_printf(arena, "%s%snone", text, comma);
  }
  return text;
}

static ls_status compile_small(ls_arena *arena, const outline *of, int most, small_model *made,
                               ls_error *error) {
  const ls_training *training = of->memory->problem->training;
  *made = (small_model){.stages = LS_NEW_ARRAY(arena, ls_program *, of->layout.pp)};
  ls_layout layout = of->layout;
  if (!of->memory->alike)
    return ls_fail(error, LS_INPUT, "some layers are frozen, or have a teacher's beside them");
  layout.stages = cut_small(arena, of, most, made);
  const ls_model_config model = ls_plan_shortened(training->model, made->layers);
  ls_build_options options = {.mode = LS_MODEL_TRAIN,
                              .tokens = of->tokens,
                              .sequence = training->sequence,
                              .documents = training->documents};
  ls_build_options_lay(&options, &of->layout);
  ls_graph *graph;
  LS_TRY(ls_model_build(arena, &model, &options, &graph, error));
  if (training->prepare) LS_TRY(training->prepare(training->context, graph, error));
  ls_graph_backward(graph);
  return ls_program_compile_some(graph, &layout, LS_PROGRAM_STEP, of->wanted, made->stages, error);
}

static int layers_of(const outline *of, const small_model *small, int stage) {
  int layers = 0;
  for (int c = 0; c < of->chunks; c++)
    if (of->pipeline->stage_of[c] == stage) layers += small->count[c];
  return layers;
}

/* Places that actions are of: none, units of no segment, segments before all layers and behind
 * them; boundaries; and of each chunk the layers of its first unit, of its last and all others. */
static int count_others(const outline *of) {
  return 2 + of->memory->before + of->memory->behind;
}

static int count_places(const outline *of) {
  return count_others(of) + of->chunks * (2 + 2 * of->together);
}

static int place_of_layer(const outline *of, const small_model *small, int chunk, int layer) {
  const int at = layer - small->first[chunk], left = small->count[chunk] - at;
  const int role = at < of->together      ? at
                   : left <= of->together ? 2 * of->together - left
                                          : 2 * of->together;
  return count_others(of) + of->chunks + chunk * (1 + 2 * of->together) + role;
}

static int place_of(const outline *of, const small_model *small, const ls_program *program,
                    const int *segment_of, const ls_action *action) {
  if (ls_action_is_message(action)) return count_others(of) + action->segment;
  const int segment = action->unit >= 0 ? segment_of[action->unit] : action->segment;
  if (segment < 0) return action->unit >= 0;
  const int layer = segment - of->memory->before;
  if (layer < 0) return 2 + segment;
  if (layer >= small->layers) return 2 + of->memory->before + layer - small->layers;
  return place_of_layer(of, small, program->segments.items[segment].chunk, layer);
}

/* By sort and place of actions: the most that is alive during one of them; bytes. */
static int64_t *find_alive(ls_arena *arena, const outline *of, const small_model *small,
                           int stage) {
  const ls_program *program = small->stages[stage];
  int *segment_of = LS_NEW_ARRAY(arena, int, program->units.count + 1);
  for (int u = 0; u < program->units.count; u++) segment_of[u] = -1;
  for (int s = program->segments.count - 1; s >= 0; s--)
    if (program->segments.items[s].unit >= 0) segment_of[program->segments.items[s].unit] = s;
  const int places = count_places(of);
  int64_t *most = LS_NEW_ARRAY(arena, int64_t, LS_ACTION_SORTS * places);
  const ls_alive *alive = ls_program_alive(arena, program, LS_TIER_DEVICE);
  for (int a = 0; a < program->actions.count; a++) {
    const ls_action *action = &program->actions.items[a].action;
    const int place = place_of(of, small, program, segment_of, action);
    int64_t *cell = &most[ls_action_sort(action) * places + place];
    if (alive[a].sum > *cell) *cell = alive[a].sum;
  }
  return most;
}

/* What of an arena is not in use where most is: lives are placed by size, with gaps. */
static double gaps_of(const ls_program *program) {
  int64_t parts[LS_CATEGORY_COUNT];
  return (double)(ls_program_bytes(program) - ls_program_peak(program, parts));
}

/* The arena of a stage with all its layers. */
static double extend(ls_arena *arena, const outline *of, const small_model *few,
                     const small_model *more, int stage) {
  const int all = of->loads[stage].layers, high = layers_of(of, more, stage);
  if (high == all) return (double)ls_program_bytes(more->stages[stage]);
  const int64_t *a = find_alive(arena, of, few, stage), *b = find_alive(arena, of, more, stage);
  const double steps = (double)(all - high) / (high - layers_of(of, few, stage));
  double most = 0;
  for (int c = 0; c < LS_ACTION_SORTS * count_places(of); c++) {
    const double with_all = (double)b[c] + steps * (double)(b[c] - a[c]);
    if (b[c] && with_all > most) most = with_all;
  }
  const ls_program *program = more->stages[stage];
  const double gaps = gaps_of(program), grown = gaps - gaps_of(few->stages[stage]);
  const double alive = (double)ls_program_bytes(program) - gaps;
  return most + fmax(gaps + steps * grown, gaps * most / alive);
}

/* Bytes of inputs of the microbatches that were left out. */
static int64_t inputs_of(const outline *of, const ls_program *program) {
  return program->pool_bytes[LS_POOL_INPUT] / of->layout.microbatches *
         (of->microbatches - of->layout.microbatches);
}

/* What kernels and the engine need beside the arena. */
static int64_t beside(const ls_device_facts *facts, const ls_program *program) {
  const int first_rank = program->stage * ls_mesh_stage_ranks(&program->mesh);
  return ls_program_workspace(facts, program, first_rank) +
         ls_device_overhead(facts, ls_programs_groups(&program, 1));
}

/* Whether a wanted stage has fewer layers than it should. */
static bool is_short(const outline *of, const small_model *small) {
  for (int c = 0; c < of->chunks; c++)
    if (of->wanted[of->pipeline->stage_of[c]] && small->count[c] < of->layers[c]) return true;
  return false;
}

static ls_status estimate(ls_arena *arena, const outline *of, int64_t *bytes, ls_error *error) {
  small_model few = {0}, more;
  const bool waits = of->layout.offload.optimizer || of->layout.zero >= 2;
  const int layers = of->together * (of->pipeline->splits || waits ? MORE_SPLIT : MORE);
  LS_TRY(compile_small(arena, of, layers, &more, error));
  if (is_short(of, &more)) LS_TRY(compile_small(arena, of, layers - of->together, &few, error));
  const double slack = is_loose(of) ? SLACK_AWAY : SLACK;
  const int64_t loose = is_loose(of) ? SLACK_AWAY_BYTES : 0;
  *bytes = 0;
  for (int s = 0; s < of->layout.pp; s++) {
    if (!of->wanted[s]) continue;
    const int64_t each = (int64_t)(slack * extend(arena, of, &few, &more, s)) + loose +
                         inputs_of(of, more.stages[s]) +
                         beside(of->memory->problem->facts, more.stages[s]);
    if (each > *bytes) *bytes = each;
  }
  return LS_OK;
}

int64_t ls_plan_memory_of(const ls_plan_memory *memory, const ls_layout *layout) {
  ls_arena *arena = ls_arena_create();
  outline of;
  int64_t bytes = -1;
  ls_status status = outline_of(arena, memory, layout, &of, NULL);
  if (status == LS_OK) status = estimate(arena, &of, &bytes, NULL);
  ls_arena_destroy(&arena);
  return status == LS_OK ? bytes : -1;
}
