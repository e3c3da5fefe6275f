/* Timelines from a recorded step. */
#include <stdlib.h>

#include "cost/cost.h"
#include "text/number.h"
#include "watch/markup.h"
#include "watch/timeline.h"

/* A recording being turned into spans. */
typedef struct measuring {
  ls_arena *arena;
  const ls_timeline_run *run;
  ls_timeline *made;
  ls_timeline_detail detail;
} measuring;

static ls_span_kind compute_kind(ls_action_kind kind) {
  switch (kind) {
    case LS_ACTION_FORWARD: return LS_SPAN_FORWARD;
    case LS_ACTION_BACKWARD: return LS_SPAN_BACKWARD;
    case LS_ACTION_INPUT: return LS_SPAN_INPUT;
    case LS_ACTION_WEIGHT: return LS_SPAN_WEIGHT;
    case LS_ACTION_RECOMPUTE: return LS_SPAN_RECOMPUTE;
    default: return LS_SPAN_UPDATE;
  }
}

static ls_span_kind kind_of(const ls_program_action *action, const ls_instruction *instruction) {
  if (ls_collective_moves(instruction->collective)) return LS_SPAN_MOVE;
  if (ls_collective_is_of_group(instruction->collective)) return LS_SPAN_COLLECTIVE;
  if (instruction->collective != LS_COLLECTIVE_NONE) return LS_SPAN_TRANSFER;
  return compute_kind(action->action.kind);
}

static const char *label_of(ls_arena *arena, const ls_program_action *action,
                            const ls_instruction *instruction) {
  static const char *const collectives[LS_COLLECTIVE_COUNT][LS_PHASE_COUNT] = {
      [LS_ALL_REDUCE] = {"AR", "AR", ""},   [LS_REDUCE_SCATTER] = {"RS", "RS", ""},
      [LS_ALL_GATHER] = {"AG", "AG", ""},   [LS_SEND] = {"S", "S", "S end"},
      [LS_RECEIVE] = {"R", "", "R"},        [LS_MOVE] = {"M", "", "M"},
      [LS_ALL_TO_ALL] = {"A2A", "A2A", ""}, [LS_PERMUTE] = {"P", "P", ""},
      [LS_DEAL] = {"D", "D", ""},           [LS_HAND_BACK] = {"D", "D", ""},
      [LS_SUM_NUMBERS] = {"+", "+", "="}};
  static const char *const letters[LS_SPAN_KINDS] = {"F", "B", "I", "W", "re", "U", "", "", ""};
  if (instruction->collective != LS_COLLECTIVE_NONE) {
    const char *known = collectives[instruction->collective][instruction->phase];
    return known ? known : ls_collective_name(instruction->collective);
  }
  const char *letter = letters[compute_kind(action->action.kind)];
  if (action->action.microbatch < 0) return letter;
  return ls_arena_printf(arena, "%s%d", letter, action->action.microbatch);
}

/* "backward of layers.3" where actions are drawn, "matmul of layers.3.mlp.up" where instructions.
 */
static const char *name_of(const measuring *of, const ls_program *program,
                           const ls_program_action *action, const ls_instruction *instruction) {
  const bool collective = instruction->collective != LS_COLLECTIVE_NONE;
  const char *what =
      collective ? ls_collective_name(instruction->collective) : ls_op_name(instruction->kind);
  const int about = instruction->outputs ? instruction->out[0] : instruction->in[0];
  if (of->detail == LS_TIMELINE_INSTRUCTIONS || collective)
    return ls_arena_printf(of->arena, "%s%s of %s", ls_phase_name(instruction->phase), what,
                           program->values.items[about].name);
  const int segment = action->action.segment;
  if (segment < 0) return ls_action_name(&action->action);
  return ls_arena_printf(of->arena, "%s of %s", ls_action_name(&action->action),
                         program->segments.items[segment].name);
}

static int chunk_of(const ls_program *program, const ls_action *action) {
  if (action->segment < 0 || ls_action_is_message(action)) return -1;
  return program->segments.items[action->segment].chunk;
}

/* The span goes on where the next instruction is of the same action, kind and queue. */
static bool extends(const measuring *of, const ls_timeline_span *span, int rank, bool same_action,
                    const ls_instruction *instruction) {
  return of->detail == LS_TIMELINE_ACTIONS && same_action && span->process == rank &&
         instruction->collective == LS_COLLECTIVE_NONE && span->queue == instruction->queue;
}

static void put_in_order(ls_timeline *made) {
  ls_timeline_span *spans = made->spans.items;
  const int end = made->spans.count - 1;
  const ls_timeline_span moved = spans[end];
  int at = end;
  for (; at > 0 && spans[at - 1].process == moved.process && spans[at - 1].start > moved.start;
       at--)
    spans[at] = spans[at - 1];
  spans[at] = moved;
}

static void add_rank(const measuring *of, int process, const ls_program *program,
                     const ls_recording_rank *from) {
  ls_timeline *made = of->made;
  int action_before = -1;
  ls_timeline_span *last = NULL;
  for (int64_t i = 0; i < from->count; i++) {
    const ls_record *record = &from->records[i];
    const ls_program_action *action = &program->actions.items[record->action];
    const ls_instruction *instruction = &program->instructions.items[record->instruction];
    const double end = 1e-6 * (double)record->end_ns;
    if (end > made->end) made->end = end;
    if ((int)instruction->queue >= made->queues) made->queues = (int)instruction->queue + 1;
    if (last && extends(of, last, process, record->action == action_before, instruction)) {
      last->end = end;
      continue;
    }
    action_before = record->action;
    last = LS_APPEND(of->arena, &made->spans);
    *last = (ls_timeline_span){.process = process,
                               .queue = instruction->queue,
                               .kind = kind_of(action, instruction),
                               .microbatch = action->action.microbatch,
                               .chunk = chunk_of(program, &action->action),
                               .start = 1e-6 * (double)record->begin_ns,
                               .end = end,
                               .name = name_of(of, program, action, instruction),
                               .label = label_of(of->arena, action, instruction),
                               .bytes = ls_instruction_work(program, 0, instruction, false).sent};
    if (instruction->collective == LS_MOVE &&
        instruction->phase == LS_END) { /* recorded at its end, it began before others */
      put_in_order(made);
      last = NULL;
    }
  }
}

/* All ranks, or those that stand for them where they are too many for a picture. */
static void add_ranks(measuring *of, const ls_recording *recording) {
  const ls_mesh *mesh = &of->run->stages[0]->mesh;
  const int stages = ls_mesh_stages(mesh), each = recording->ranks / stages;
  const bool few = of->detail == LS_TIMELINE_ACTIONS && recording->ranks > LS_TIMELINE_TRACKS;
  ls_timeline *made = of->made;
  const int *ranks = of->run->ranks;
  made->processes = !few ? recording->ranks : ranks ? of->run->rank_count : stages;
  made->process_names = LS_NEW_ARRAY(of->arena, const char *, made->processes);
  for (int p = 0; p < made->processes; p++) {
    const int rank = !few ? p : ranks ? ranks[p] : p * each;
    const int stage = ls_mesh_stage(mesh, rank);
    made->process_names[p] = stages > 1
                                 ? ls_arena_printf(of->arena, "rank %d, stage %d", rank, stage)
                                 : ls_arena_printf(of->arena, "rank %d", rank);
    add_rank(of, p, of->run->stages[stage], &recording->by_rank[rank]);
  }
  double busy = 0;
  for (int i = 0; i < made->spans.count; i++)
    if (made->spans.items[i].queue == LS_QUEUE_COMPUTE)
      busy += made->spans.items[i].end - made->spans.items[i].start;
  char took[LS_NUMBER_BYTES];
  ls_seconds_show(took, 1e-3 * made->end);
  made->subtitle = ls_arena_printf(
      of->arena, "%s, %d rank%s%s, %d microbatch%s: %s, computing %.1f %% of it",
      recording->step
          ? ls_arena_printf(of->arena, "measured: step %lld", (long long)recording->step)
          : "simulated",
      recording->ranks, recording->ranks == 1 ? "" : "s",
      few ? made->processes > stages ? " (drawn: one of those that do the same)"
                                     : " (drawn: the first of each stage)"
          : "",
      of->run->stages[0]->layout.microbatches,
      of->run->stages[0]->layout.microbatches == 1 ? "" : "es", took,
      100 * busy / (made->end * made->processes));
}

ls_timeline *ls_timeline_measured(ls_arena *arena, const ls_timeline_run *run,
                                  const ls_recording *recording, ls_timeline_detail detail) {
  ls_timeline *made = LS_NEW(arena, ls_timeline);
  *made = (ls_timeline){.title = ls_markup_clean(arena, run->title),
                        .unit = "ms",
                        .microseconds = 1000,
                        .queues = 1,
                        .chunks = run->stages[0]->chunks};
  measuring of = {.arena = arena, .run = run, .made = made, .detail = detail};
  add_ranks(&of, recording);
  return made;
}
