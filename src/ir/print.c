#include <string.h>

#include "ir/program.h"

static void print_mesh(const ls_program *program, FILE *stream) {
  if (ls_mesh_stages(&program->mesh) > 1) fprintf(stream, "stage %d of ", program->stage);
  fprintf(stream, "mesh");
  for (int a = 0; a < program->mesh.count; a++)
    fprintf(stream, " %s=%d", program->mesh.axes[a].name, program->mesh.axes[a].size);
  const ls_layout *layout = &program->layout;
  fprintf(stream, ", %s%s, %d microbatch%s of %lld tokens, %s%s\n", ls_zero_name(layout->zero),
          layout->sequence_parallel && layout->tp > 1 ? ", sequence parallel" : "",
          layout->microbatches, layout->microbatches == 1 ? "" : "es", (long long)program->tokens,
          ls_dtype_name(layout->compute),
          layout->grad_dtype == LS_BF16 ? ", gradients in bf16" : "");
  if (layout->offload.optimizer || layout->offload.parameters || layout->offload.activations)
    fprintf(stream, "waiting elsewhere: optimizer %s, parameters %s, activations %s\n",
            ls_tier_name(layout->offload.optimizer), ls_tier_name(layout->offload.parameters),
            ls_tier_name(layout->offload.activations));
}

/* Where a buffer group lies during an action. */
static int64_t buffer_group_offset(const ls_program *program, const ls_program_action *action,
                                   int buffer_group) {
  const ls_body *body = &program->bodies.items[action->body];
  int at = 0;
  while (body->buffer_groups.items[at] != buffer_group) at++;
  return program->live_intervals.items[action->live_intervals[at]].offset;
}

static void print_value(const ls_program *program, const ls_program_action *action, int index,
                        FILE *stream) {
  const ls_value *value = &program->values.items[index];
  const int buffer_group = program->storages.items[value->storage].buffer_group;
  fprintf(stream, "%%%d:%s[", index, ls_dtype_name(value->dtype));
  const ls_local local = ls_program_local(program, 0, index);
  for (int d = 0; d < value->ndim; d++)
    fprintf(stream, "%s%lld", d ? "," : "", (long long)local.dims[d]);
  fprintf(stream, "]@%s+%lld", ls_pool_name(program->buffer_groups.items[buffer_group].pool),
          (long long)(buffer_group_offset(program, action, buffer_group) + local.offset));
}

static void print_instruction(const ls_program *program, const ls_program_action *action, int index,
                              FILE *stream) {
  static const char *const modes[] = {"", "+=", "+=*"};
  const ls_instruction *instruction = &program->instructions.items[index];
  fprintf(stream, "  %5d ", index);
  for (int o = 0; o < instruction->outputs; o++) {
    if (o) fputs(", ", stream);
    print_value(program, action, instruction->out[o], stream);
    fputs(modes[instruction->write[o]], stream);
  }
  if (instruction->collective == LS_COLLECTIVE_NONE) {
    fprintf(stream, " = %s(", ls_op_name(instruction->kind));
  } else if (ls_collective_moves(instruction->collective)) {
    fprintf(stream, " = %s%s(%lld elements, ", ls_phase_name(instruction->phase),
            ls_collective_name(instruction->collective), (long long)instruction->count);
  } else {
    ls_arena *arena = ls_arena_create();
    if (instruction->peer >= 0)
      fprintf(stream, "%s%s%s with stage %d (%lld elements, ", instruction->outputs ? " = " : "",
              ls_phase_name(instruction->phase), ls_collective_name(instruction->collective),
              instruction->peer, (long long)instruction->count);
    else
      fprintf(
          stream, " = %s%s%s over %s (%lld elements, ", ls_phase_name(instruction->phase),
          ls_collective_name(instruction->collective), instruction->reduce == LS_MAX ? " max" : "",
          ls_axes_print(arena, &program->mesh, instruction->axes), (long long)instruction->count);
    ls_arena_destroy(&arena);
  }
  for (int i = 0; i < instruction->inputs; i++) {
    if (i) fputs(", ", stream);
    print_value(program, action, instruction->in[i], stream);
  }
  fputc(')', stream);
  if (instruction->wait >= 0) fprintf(stream, " waits %d", instruction->wait);
  if (instruction->first_only) fputs(" once among replicas", stream);
  if (instruction->reason) fprintf(stream, "  ; %s", instruction->reason);
  fputc('\n', stream);
}

static void print_action(const ls_program *program, const ls_program_action *action, int number,
                         FILE *stream) {
  const ls_body *body = &program->bodies.items[action->body];
  fprintf(stream, "action %d %s", number, ls_action_name(&action->action));
  if (action->action.segment >= 0) fprintf(stream, " segment %d", action->action.segment);
  if (action->action.unit >= 0) fprintf(stream, " unit %d", action->action.unit);
  if (action->action.microbatch >= 0) fprintf(stream, " microbatch %d", action->action.microbatch);
  fprintf(stream, ": body %d\n", action->body);
  if (action->action.microbatch > 0) return; /* printed with the first microbatch */
  for (int i = 0; i < body->count; i++) print_instruction(program, action, body->first + i, stream);
}

void ls_program_print(const ls_program *program, FILE *stream) {
  print_mesh(program, stream);
  fprintf(stream, "pools");
  for (int p = 0; p < LS_POOL_COUNT; p++)
    if (ls_pool_tier((ls_pool)p) == LS_TIER_DEVICE || program->pool_bytes[p])
      fprintf(stream, " %s=%lld", ls_pool_name((ls_pool)p), (long long)program->pool_bytes[p]);
  fprintf(stream, " bytes, %d values, %d instructions, %d actions\n", program->values.count,
          program->instructions.count, program->actions.count);
  for (int a = 0; a < program->actions.count; a++)
    print_action(program, &program->actions.items[a], a, stream);
}
