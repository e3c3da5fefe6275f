/* Rows: a layout compiled whole, simulated, held against a device's memory, and proved. */
#include <math.h>
#include <string.h>

#include "check/check.h"
#include "cost/cost.h"
#include "plan/ahead.h"
#include "plan/few.h"
#include "run/rank.h"
#include "session/prove.h"

const char *ls_plan_term_name(ls_plan_term term) {
  static const char *const names[] = {
#define LS_PLAN_NAME(suffix, name) name,
      LS_PLAN_TERMS(LS_PLAN_NAME)
#undef LS_PLAN_NAME
  };
  return names[term];
}

const char *ls_plan_print(ls_arena *arena, const ls_plan_row *row) {
  const ls_layout *of = &row->layout;
  const char *text = "";
  if (of->pp > 1 && of->chunks > 1)
    text = ls_arena_printf(arena, "pp %d (%s, %d chunks), ", of->pp, of->schedule, of->chunks);
  else if (of->pp > 1)
    text = ls_arena_printf(arena, "pp %d (%s), ", of->pp, of->schedule);
  if (of->tp > 1)
    text = ls_arena_printf(arena, "%stp %d%s, ", text, of->tp,
                           of->sequence_parallel ? "" : " (whole sequences)");
  text = ls_arena_printf(arena, "%s%s%s", text, ls_layout_print_context(arena, of),
                         ls_layout_print_experts(arena, of));
  const int shards = ls_layout_shards(of), replicas = ls_layout_data_ranks(of) / shards;
  if (replicas > 1 && shards > 1)
    text = ls_arena_printf(arena, "%sdp %d x %d", text, replicas, shards);
  else
    text = ls_arena_printf(arena, "%sdp %d", text, ls_layout_data_ranks(of));
  if (of->zero) text = ls_arena_printf(arena, "%s %s", text, ls_zero_name(of->zero));
  text = ls_arena_printf(arena, "%s, micro-batch %lld", text, (long long)row->micro_batch);
  const char *again = ls_plan_recompute_name(of);
  if (strcmp(again, "none") != 0) text = ls_arena_printf(arena, "%s, recompute %s", text, again);
  if (of->zero == 3 && of->gather)
    text = ls_arena_printf(arena, "%s, gathered once a %s", text,
                           of->gather == LS_WHEN_STEP ? "step" : "microbatch");
  if (of->zero >= 2 && of->reduce)
    text = ls_arena_printf(arena, "%s, reduced once a %s", text,
                           of->reduce == LS_WHEN_STEP ? "step" : "microbatch");
  if (of->prefetch > 1) text = ls_arena_printf(arena, "%s, prefetch %d", text, of->prefetch);
  if (of->offload.optimizer)
    text = ls_arena_printf(arena, "%s, optimizer%s on the %s", text,
                           of->offload.parameters ? " and parameters" : "",
                           ls_tier_name(of->offload.optimizer));
  return text;
}

static ls_plan_term term_of(const ls_mesh *mesh, const ls_sim_cause *cause) {
  if (ls_collective_moves(cause->collective)) return LS_PLAN_TIERS;
  if (ls_collective_is_message(cause->collective)) return LS_PLAN_STAGES;
  const ls_axes axes = ls_mesh_active(mesh, cause->axes);
  const ls_axes tensor = ls_mesh_axes(mesh, LS_MESH_TENSOR), experts = ls_mesh_experts(mesh);
  if (axes & tensor && (!(axes & ~tensor) || !(axes & tensor & experts))) return LS_PLAN_TENSOR;
  const ls_axes context = ls_mesh_context(mesh), tokens = context | experts;
  if (axes && !(axes & ~tokens) && !cause->of_unit && cause->collective != LS_SUM_NUMBERS)
    return axes & ~context ? LS_PLAN_EXPERTS : LS_PLAN_CONTEXT;
  return axes & ls_mesh_data(mesh) ? LS_PLAN_DATA : LS_PLAN_STAGES;
}

static ls_plan_term term_of_kind(int kind) {
  switch (kind) {
    case LS_ACTION_FORWARD: return LS_PLAN_FORWARD;
    case LS_ACTION_BACKWARD:
    case LS_ACTION_INPUT:
    case LS_ACTION_WEIGHT: return LS_PLAN_BACKWARD;
    case LS_ACTION_RECOMPUTE: return LS_PLAN_RECOMPUTE;
    default: return LS_PLAN_UPDATE;
  }
}

static void add_terms(const ls_simulation *made, const ls_mesh *mesh, double *terms) {
  double known = 0;
  for (int s = 0; s < made->stages; s++) {
    const ls_sim_stage *stage = &made->stage[s];
    for (int kind = 0; kind < LS_ACTION_COUNT_OF_KINDS; kind++)
      terms[term_of_kind(kind)] += stage->by_kind[kind] / made->stages;
    for (int c = 0; c < stage->causes.count; c++)
      terms[term_of(mesh, &stage->causes.items[c])] +=
          stage->causes.items[c].exposed / made->stages;
  }
  for (int t = 0; t < LS_PLAN_IDLE; t++) known += terms[t];
  const double idle = made->seconds - known;
  terms[LS_PLAN_IDLE] = idle > 1e-12 * made->seconds ? idle : 0; /* but for rounding */
}

/* The programs of a stage, with the inputs of all microbatches where they are of few. */
static void take_programs(const ls_compiled *compiled, int stage, int microbatches,
                          ls_program *programs) {
  const int few = compiled->layout.microbatches;
  for (int p = 0; p < compiled->count; p++) {
    programs[p] = *compiled->stages[p][stage];
    int64_t *inputs = &programs[p].pool_bytes[LS_POOL_INPUT];
    if (programs[p].kind == LS_PROGRAM_STEP) *inputs = *inputs / few * microbatches;
  }
}

static void measure_memory(const ls_plan_problem *problem, const ls_compiled *compiled,
                           ls_plan_row *row) {
  row->bytes = row->host_bytes = 0;
  for (int s = 0; s < compiled->layout.pp; s++) {
    ls_program all[LS_COMPILED_PROGRAMS];
    const ls_program *programs[LS_COMPILED_PROGRAMS];
    take_programs(compiled, s, row->layout.microbatches, all);
    for (int p = 0; p < compiled->count; p++) programs[p] = &all[p];
    const int64_t bytes = ls_rank_bytes_needed(programs, compiled->count, LS_TIER_DEVICE) +
                          compiled->workspace[s] + compiled->overhead[s];
    const int64_t away = ls_rank_bytes_needed(programs, compiled->count, LS_TIER_HOST);
    if (away > row->host_bytes) row->host_bytes = away;
    if (bytes <= row->bytes) continue;
    row->bytes = bytes;
    row->stage = s;
  }
  row->fits = (!problem->limit || row->bytes <= problem->limit) &&
              (!problem->host_limit || row->host_bytes <= problem->host_limit);
}

/* The training as rows have it: recomputation is the layout's. */
static ls_training training_of(const ls_plan_problem *problem) {
  ls_training training = *problem->training;
  training.budget = 0;
  return training;
}

/* Of the layout itself, or of one with few microbatches, which may not tell (`told`). */
static ls_status measure_as(ls_arena *arena, const ls_plan_problem *problem, const ls_plan_few *few,
                            double most, const ls_sim_options *faster, ls_plan_row *row, bool *told,
                            ls_error *error) {
  ls_compiled compiled;
  ls_simulation *made;
  ls_sim_options options = {0};
  if (faster) options = *faster;
  options.repeat = few->repeat;
  *told = true;
  LS_TRY(ls_compile_step(arena, &few->training, &few->layout, problem->facts, &compiled, error));
  measure_memory(problem, &compiled, row);
  const ls_program *const *stages = compiled.stages[LS_COMPILED_STEP];
  for (int s = 0; s < few->layout.pp; s++) {
    const int64_t code = stages[s]->instructions.count, actions = stages[s]->actions.count;
    row->done += code + actions;
    row->work += code + actions * row->layout.microbatches / few->layout.microbatches;
  }
  if ((double)row->bytes > most) return LS_OK;
  LS_TRY(ls_simulate(arena, stages, problem->performance, &options, &made, error));
  *told = !few->repeat.times || made->repeated;
  if (!*told) return LS_OK;
  row->seconds = made->seconds;
  row->flops = stages[0]->flops / few->layout.microbatches * row->layout.microbatches;
  row->few = few->layout.microbatches;
  add_terms(made, &stages[0]->mesh, row->terms);
  return LS_OK;
}

static ls_status measure(const ls_plan_problem *problem, const ls_layout *layout, double most,
                         const ls_sim_options *faster, ls_plan_row *row, ls_error *error) {
  ls_plan_few few;
  const ls_training training = training_of(problem);
  ls_status status = LS_OK;
  int64_t done = 0;
  for (int at_least = ls_plan_few_at_least(layout), left = 1; left; at_least *= 2) {
    left = !problem->whole && ls_plan_few_of(&training, layout, at_least, &few);
    if (!left) few = (ls_plan_few){training, *layout, {0, 0}};
    ls_arena *arena = ls_arena_create();
    bool told;
    *row = (ls_plan_row){.layout = *layout, .done = done};
    row->micro_batch = training.batch / ls_layout_data_ranks(layout) / layout->microbatches;
    status = measure_as(arena, problem, &few, most, faster, row, &told, error);
    ls_arena_destroy(&arena);
    if (status != LS_OK || told) break;
    done = row->done;
  }
  return status;
}

ls_status ls_plan_measure(const ls_plan_problem *problem, const ls_layout *layout,
                          const ls_sim_options *faster, ls_plan_row *row, ls_error *error) {
  return measure(problem, layout, INFINITY, faster, row, error);
}

ls_status ls_plan_measure_within(const ls_plan_problem *problem, const ls_layout *layout,
                                 double most, ls_plan_row *row, ls_error *error) {
  return measure(problem, layout, most, NULL, row, error);
}

/* What all programs need, of which a search knew the step alone. */
static void measure_all(const ls_plan_problem *problem, const ls_compiled *compiled,
                        ls_plan_row *row) {
  const ls_plan_row of_step = *row;
  measure_memory(problem, compiled, row);
  row->moved = row->bytes != of_step.bytes || row->host_bytes != of_step.host_bytes;
}

static ls_status check_stages(const ls_plan_problem *problem, const ls_compiled *compiled,
                              int program, const ls_program *const *stages, ls_error *error) {
  ls_layout layout = compiled->layout;
  layout.microbatches = stages[0]->layout.microbatches;
  return ls_check_on(problem->facts->queues, ls_compiled_graph(compiled, program), &layout, stages,
                     NULL, error);
}

/* Whether a program is one of few microbatches, the fewest that tell, which are proved, and periods
 * of them; then it is proved as it stands. */
static ls_status prove_by_few(const ls_plan_problem *problem, const ls_plan_row *row,
                              const ls_compiled *all, int program, bool *done, ls_error *error) {
  ls_plan_few few;
  const ls_program *const *stages = all->stages[program], **made = NULL;
  const ls_training training = training_of(problem);
  const int most = stages[0]->kind == LS_PROGRAM_STEP ? row->layout.microbatches / 2 : 0;
  *done = false;
  for (int at_least = ls_plan_few_proved_at_least(&row->layout); at_least <= most && !*done;
       at_least *= 2) {
    if (!ls_plan_few_of(&training, &row->layout, at_least, &few)) continue;
    LS_TRY(ls_compile_microbatches(all, program, few.layout.microbatches, &made, error));
    *done = ls_check_repeats(made, stages, all->layout.pp, few.repeat.period);
  }
  if (!*done) return LS_OK;
  LS_TRY(check_stages(problem, all, program, made, error));
  return ls_check_still(ls_compiled_graph(all, program), &all->layout, stages, error);
}

static ls_status prove(ls_arena *arena, const ls_plan_problem *problem, ls_plan_row *row,
                       ls_error *error) {
  ls_compiled compiled;
  const ls_training training = training_of(problem);
  LS_TRY(ls_compile(arena, &training, &row->layout, problem->facts, &compiled, error));
  measure_all(problem, &compiled, row);
  for (int p = 0; p < compiled.count; p++) {
    bool done;
    LS_TRY(prove_by_few(problem, row, &compiled, p, &done, error));
    if (!done) LS_TRY(check_stages(problem, &compiled, p, compiled.stages[p], error));
  }
  for (int p = 1; p < compiled.count; p++)
    LS_TRY(ls_check_shared(compiled.stages[LS_COMPILED_STEP], compiled.stages[p],
                           compiled.layout.pp, error));
  ls_saving_report report = {0};
  return ls_prove_saving(training.model, compiled.graph, compiled.stages[LS_COMPILED_STEP],
                         compiled.layout.pp, &report, error);
}

ls_status ls_plan_prove(const ls_plan_problem *problem, ls_plan_row *row, ls_error *error) {
  if (row->proved) return LS_OK;
  ls_arena *arena = ls_arena_create();
  const ls_status status = prove(arena, problem, row, error);
  row->proved = status == LS_OK;
  ls_arena_destroy(&arena);
  return status;
}

typedef struct proofs {
  const ls_plan_problem *problem;
  ls_plan_row **rows;
} proofs;

static void prove_turn(void *work, int at) {
  const proofs *of = work;
  if (ls_plan_prove(of->problem, of->rows[at], NULL) != LS_OK) return;
}

void ls_plan_prove_ahead(const ls_plan_problem *problem, ls_plan_row **rows, int count) {
  proofs work = {problem, rows};
  ls_plan_share(count, prove_turn, &work);
}

/* Takes a row out of a list of so many; returns how many are left. */
static int take_out(ls_plan_row *rows, int count, ls_plan_row *row) {
  memmove(row, row + 1, sizeof *row * (size_t)(rows + count - row - 1));
  return count - 1;
}

static void leave_out(ls_plan *plan, ls_plan_row *row) {
  const ls_plan_row *rows = plan->rows.items;
  if (row >= rows && row < rows + plan->rows.count)
    plan->rows.count = take_out(plan->rows.items, plan->rows.count, row);
  else
    plan->too_large.count = take_out(plan->too_large.items, plan->too_large.count, row);
}

bool ls_plan_keep_proved(const ls_plan_problem *problem, ls_plan *plan, ls_plan_row *row) {
  ls_error found = {0};
  const ls_status status = ls_plan_prove(problem, row, &found);
  if (status == LS_OK && !row->moved) return true;
  if (status != LS_OK && !plan->refuted++) plan->refutation = found;
  ls_plan_row moved = *row;
  moved.moved = false;
  leave_out(plan, row);
  if (status == LS_OK) ls_plan_add(problem, plan, &moved);
  return false;
}

void ls_plan_prove_rows(const ls_plan_problem *problem, ls_plan *plan, int count) {
  const int first = count < plan->rows.count ? count : plan->rows.count;
  ls_arena *scratch = ls_arena_create();
  ls_plan_row **rows = LS_NEW_ARRAY(scratch, ls_plan_row *, first + 1);
  for (int r = 0; r < first; r++) rows[r] = &plan->rows.items[r];
  ls_plan_prove_ahead(problem, rows, first);
  ls_arena_destroy(&scratch);
  for (int r = 0; r < plan->rows.count && r < count;)
    r += ls_plan_keep_proved(problem, plan, &plan->rows.items[r]);
}

ls_status ls_plan_fit_recompute(ls_arena *arena, const ls_plan_problem *problem, ls_layout *layout,
                                ls_error *error) {
  ls_arena *scratch = ls_arena_create();
  ls_training training = *problem->training;
  training.budget = problem->limit;
  ls_compiled compiled;
  const ls_status status =
      ls_compile_graph(scratch, &training, layout, problem->facts, &compiled, error);
  if (status == LS_OK) {
    const int count = compiled.layout.recompute_of_count;
    ls_op_set *chosen = LS_NEW_ARRAY(arena, ls_op_set, count);
    memcpy(chosen, compiled.layout.recompute_of, sizeof *chosen * (size_t)count);
    layout->recompute_of = chosen;
    layout->recompute_of_count = count;
  }
  ls_arena_destroy(&scratch);
  return status;
}

const ls_plan_row *ls_plan_least(const ls_plan *plan) {
  const ls_plan_row *least = plan->too_large.count ? &plan->too_large.items[0] : NULL;
  for (int r = 0; r < plan->rows.count; r++)
    if (!least || plan->rows.items[r].bytes < least->bytes) least = &plan->rows.items[r];
  return least;
}
