#include "lower/training.h"

#include "lower/budget.h"

void ls_build_options_lay(ls_build_options *options, const ls_layout *layout) {
  options->places = layout->cp > 1;
  options->turns = ls_layout_turns(layout);
  options->expert_ranks = ls_layout_senders(layout);
  options->token_ranks = ls_layout_routing_ranks(layout);
  options->stream_ranks = layout->whole_experts ? layout->tp : 0;
  options->parts = layout->cp;
  options->expert_bound = layout->expert_bound;
}

/* The forward part of a microbatch. */
static ls_status build_graph(ls_arena *arena, const ls_training *training, const ls_layout *layout,
                             ls_model_mode mode, ls_graph **graph, ls_error *error) {
  ls_build_options options = {.mode = mode,
                              .tokens = training->batch / layout->microbatches * training->sequence,
                              .sequence = training->sequence,
                              .documents = training->documents,
                              .pairs = training->pairs,
                              .texts = training->texts,
                              .weighted = training->weighted,
                              .teacher = training->teacher};
  ls_build_options_lay(&options, layout);
  LS_TRY(ls_model_build(arena, training->model, &options, graph, error));
  for (int p = 0; training->evaluates && p < (*graph)->parameters.count; p++)
    (*graph)->parameters.items[p].trainable = false;
  return training->prepare ? training->prepare(training->context, *graph, error) : LS_OK;
}

static ls_status compile_stages(const ls_graph *graph, const ls_layout *layout,
                                ls_program_kind kind, const ls_program ***stages, ls_error *error) {
  ls_program **made = LS_NEW_ARRAY(graph->arena, ls_program *, layout->pp);
  *stages = LS_NEW_ARRAY(graph->arena, const ls_program *, layout->pp);
  LS_TRY(ls_program_compile(graph, layout, kind, made, error));
  for (int s = 0; s < layout->pp; s++) (*stages)[s] = made[s];
  return LS_OK;
}

/* Of a stage's first rank; the others have no larger part of anything. */
static int64_t workspace_of(const ls_device_facts *facts, const ls_program *program) {
  const int ranks = ls_mesh_stage_ranks(&program->mesh);
  return ls_program_workspace(facts, program, program->stage * ranks);
}

static int64_t overhead_of(const ls_device_facts *facts, const ls_program *const *programs,
                           int count) {
  return ls_device_overhead(facts, ls_programs_groups(programs, count)) +
         (facts->also ? ls_programs_beside(programs, count) : 0);
}

/* What is run again needs what it needs the first time: one choice tells the workspace of all. */
static ls_status measure_beside(const ls_compiled *compiled, const ls_device_facts *facts,
                                int64_t *beside, ls_error *error) {
  ls_graph graph = *compiled->graph; /* whose programs go with the arena they are in */
  graph.arena = ls_arena_create();
  const ls_program **stages;
  const ls_status status =
      compile_stages(&graph, &compiled->layout, LS_PROGRAM_STEP, &stages, error);
  for (int s = 0; s < compiled->layout.pp && status == LS_OK; s++)
    beside[s] = workspace_of(facts, stages[s]) + overhead_of(facts, &stages[s], 1);
  ls_arena_destroy(&graph.arena);
  return status;
}

static ls_status fit_budget(ls_compiled *compiled, const ls_device_facts *facts, int64_t bytes,
                            ls_error *error) {
  int64_t *beside = LS_NEW_ARRAY(compiled->graph->arena, int64_t, compiled->layout.pp);
  LS_TRY(measure_beside(compiled, facts, beside, error));
  const ls_budget budget = {
      bytes, beside, {facts->flops_per_s, facts->bytes_per_s, facts->sent_per_s}};
  return ls_budget_choose(compiled->graph, &compiled->layout, &budget, error);
}

/* With context parallelism, and where probabilities are dropped, attention is told where tokens
 * lie, which not every device takes. */
static ls_status check_places(const ls_training *training, const ls_layout *layout,
                              const ls_device_facts *facts, ls_error *error) {
  const bool drops = !training->evaluates && training->model->dropout.attention > 0;
  if (drops && !facts->places)
    return ls_fail(error, LS_INPUT,
                   "dropout of attention on %s, whose attention has no masks: use dropout=0, or "
                   "device.kind=cpu",
                   facts->name);
  if (layout->cp <= 1 || facts->places) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "mesh.cp=%d on %s, whose attention takes whole sequences in their order: use "
                 "mesh.cp=1, or device.kind=cpu",
                 layout->cp, facts->name);
}

/* A pair's loss is made of whole sequences, once for all ranks that share them; what experts add is
 * summed by each of these over its own tokens. */
static ls_status check_pairs(const ls_training *training, const ls_layout *layout,
                             const ls_graph *graph, ls_error *error) {
  if (training->pairs.beta <= 0 || layout->cp <= 1 || graph->losses.count == 0) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "mesh.cp=%d with task=%s and what experts add to the loss (experts.aux_loss, "
                 "experts.z_loss, experts.exchange=all_to_all): use mesh.cp=1, or leave these out",
                 layout->cp, training->pairs.odds ? "orpo" : "dpo");
}

ls_status ls_compile_graph(ls_arena *arena, const ls_training *training, const ls_layout *layout,
                           const ls_device_facts *facts, ls_compiled *compiled, ls_error *error) {
  *compiled = (ls_compiled){.layout = *layout};
  compiled->layout.logits_bytes = facts->logits_bytes;
  compiled->layout.logits_multiple = facts->logits_multiple;
  LS_TRY(check_places(training, layout, facts, error));
  const ls_model_mode mode = training->evaluates ? LS_MODEL_FORWARD : LS_MODEL_TRAIN;
  LS_TRY(build_graph(arena, training, &compiled->layout, mode, &compiled->graph, error));
  LS_TRY(check_pairs(training, layout, compiled->graph, error));
  if (training->evaluates) return LS_OK;
  ls_graph_backward(compiled->graph);
  return training->budget ? fit_budget(compiled, facts, training->budget, error) : LS_OK;
}

/* What a device of each stage has beside its arena. */
static void size_beside(ls_arena *arena, const ls_device_facts *facts, ls_compiled *compiled) {
  const int stages = compiled->layout.pp;
  compiled->workspace = LS_NEW_ARRAY(arena, int64_t, stages);
  compiled->overhead = LS_NEW_ARRAY(arena, int64_t, stages);
  compiled->groups = LS_NEW_ARRAY(arena, int, stages);
  for (int s = 0; s < stages; s++) {
    const ls_program *programs[LS_COMPILED_PROGRAMS];
    for (int p = 0; p < compiled->count; p++) {
      programs[p] = compiled->stages[p][s];
      const int64_t bytes = workspace_of(facts, programs[p]);
      if (bytes > compiled->workspace[s]) compiled->workspace[s] = bytes;
    }
    compiled->groups[s] = ls_programs_groups(programs, compiled->count);
    compiled->overhead[s] = overhead_of(facts, programs, compiled->count);
  }
}

const ls_graph *ls_compiled_graph(const ls_compiled *compiled, int program) {
  const ls_graph *graphs[LS_COMPILED_PROGRAMS] = {compiled->graph, compiled->forward,
                                                  compiled->graph_again, compiled->forward_again};
  return graphs[program];
}

/* Whether rows for experts may find no slot. */
static bool may_leave_out(const ls_graph *graph) {
  for (int n = 0; n < graph->nodes.count; n++)
    if (graph->nodes.items[n].kind == LS_OP_LEFT_OUT) return true;
  return false;
}

/* The layout of what is made again: more slots, for which all that can be is made again too. */
static ls_layout layout_again(const ls_layout *layout) {
  ls_layout made = *layout;
  made.expert_bound = layout->expert_again;
  made.recompute = (ls_op_set)LS_EVERY_OP;
  made.recompute_layers = 1;
  made.recompute_of = NULL;
  made.recompute_of_count = 0;
  return made;
}

static ls_status compile_step_again(ls_arena *arena, const ls_training *training,
                                    ls_compiled *compiled, ls_error *error) {
  const ls_layout layout = layout_again(&compiled->layout);
  compiled->count = LS_COMPILED_PROGRAMS;
  LS_TRY(build_graph(arena, training, &layout, LS_MODEL_TRAIN, &compiled->graph_again, error));
  ls_graph_backward(compiled->graph_again);
  return compile_stages(compiled->graph_again, &layout, LS_PROGRAM_STEP,
                        &compiled->stages[LS_COMPILED_STEP_AGAIN], error);
}

static ls_status compile_evaluation_again(ls_arena *arena, const ls_training *training,
                                          const ls_layout *layout, ls_compiled *compiled,
                                          ls_error *error) {
  const ls_layout made = layout_again(layout);
  LS_TRY(build_graph(arena, training, &made, LS_MODEL_FORWARD, &compiled->forward_again, error));
  LS_TRY(compile_stages(compiled->forward_again, &made, LS_PROGRAM_FORWARD,
                        &compiled->stages[LS_COMPILED_EVALUATE_AGAIN], error));
  if (!training->evaluates) return LS_OK;
  compiled->count = LS_COMPILED_PROGRAMS;
  compiled->graph_again = compiled->forward_again;
  compiled->stages[LS_COMPILED_STEP_AGAIN] = compiled->stages[LS_COMPILED_EVALUATE_AGAIN];
  return LS_OK;
}

/* Evaluation and the step have the same parameters. */
static ls_status compile_evaluation(ls_arena *arena, const ls_training *training,
                                    const ls_layout *layout, const ls_device_facts *facts,
                                    ls_compiled *compiled, ls_error *error) {
  LS_TRY(build_graph(arena, training, layout, LS_MODEL_FORWARD, &compiled->forward, error));
  LS_TRY(compile_stages(compiled->forward, layout, LS_PROGRAM_FORWARD,
                        &compiled->stages[LS_COMPILED_EVALUATE], error));
  if (may_leave_out(compiled->forward))
    LS_TRY(compile_evaluation_again(arena, training, layout, compiled, error));
  if (training->evaluates)
    compiled->stages[LS_COMPILED_STEP] = compiled->stages[LS_COMPILED_EVALUATE];
  size_beside(arena, facts, compiled);
  return LS_OK;
}

ls_status ls_compile_programs(ls_arena *arena, const ls_training *training,
                              const ls_device_facts *facts, ls_compiled *compiled,
                              ls_error *error) {
  compiled->count = LS_COMPILED_STEP_AGAIN;
  if (!training->evaluates)
    LS_TRY(compile_stages(compiled->graph, &compiled->layout, LS_PROGRAM_STEP,
                          &compiled->stages[LS_COMPILED_STEP], error));
  if (!training->evaluates && may_leave_out(compiled->graph))
    LS_TRY(compile_step_again(arena, training, compiled, error));
  LS_TRY(compile_evaluation(arena, training, &compiled->layout, facts, compiled, error));
  return ls_program_check_alignment(facts, compiled->stages[LS_COMPILED_STEP][0], error);
}

ls_status ls_compile(ls_arena *arena, const ls_training *training, const ls_layout *layout,
                     const ls_device_facts *facts, ls_compiled *compiled, ls_error *error) {
  LS_TRY(ls_compile_graph(arena, training, layout, facts, compiled, error));
  return ls_compile_programs(arena, training, facts, compiled, error);
}

ls_status ls_compile_step(ls_arena *arena, const ls_training *training, const ls_layout *layout,
                          const ls_device_facts *facts, ls_compiled *compiled, ls_error *error) {
  LS_TRY(ls_compile_graph(arena, training, layout, facts, compiled, error));
  if (training->evaluates || may_leave_out(compiled->graph))
    return ls_compile_programs(arena, training, facts, compiled, error);
  compiled->count = LS_COMPILED_STEP + 1;
  LS_TRY(compile_stages(compiled->graph, &compiled->layout, LS_PROGRAM_STEP,
                        &compiled->stages[LS_COMPILED_STEP], error));
  size_beside(arena, facts, compiled);
  return ls_program_check_alignment(facts, compiled->stages[LS_COMPILED_STEP][0], error);
}

ls_status ls_compile_microbatches(const ls_compiled *compiled, int program, int microbatches,
                                  const ls_program ***stages, ls_error *error) {
  const ls_program *of = compiled->stages[program][0];
  LS_ASSERT(of->kind == LS_PROGRAM_STEP);
  ls_layout layout = of->layout;
  layout.microbatches = microbatches;
  return compile_stages(ls_compiled_graph(compiled, program), &layout, of->kind, stages, error);
}

ls_status ls_compile_logits(ls_arena *arena, const ls_training *training,
                            const ls_device_facts *facts, ls_compiled *compiled, ls_error *error) {
  ls_layout layout = compiled->layout;
  layout.logits_rows = INT64_MAX;
  return compile_evaluation(arena, training, &layout, facts, compiled, error);
}
