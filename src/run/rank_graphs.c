/* Kernels that a rank runs again with the same operands, captured once and replayed. The program is
 * static, so what is run again is known when it is loaded: actions of one body whose buffer groups
 * lie in the same places. A body's kernels are one graph between what is no kernel of the device's.
 *
 * Their number is bounded. A program's own graphs do not push each other out, since a step that has
 * more than there is room for would then capture each of them anew; those of other programs, which
 * were replayed longest ago, do go. What finds no room is run kernel by kernel. */
#include <stdlib.h>
#include <string.h>

#include "run/rank_loaded.h"

/* A driver's graph takes memory of the host and of the device: not measured, for want of a GPU. */
enum { MOST_GRAPHS = 4096 };

static int most_graphs(const ls_rank *rank) {
  return rank->most_graphs ? rank->most_graphs : MOST_GRAPHS;
}

static bool is_kept(const ls_loaded *each) {
  return each->instruction->collective == LS_COLLECTIVE_NONE && each->tier == LS_TIER_DEVICE;
}

int ls_rank_together(const ls_loaded_program *from, const ls_body *body, int first) {
  int next = first;
  while (next < body->first + body->count && is_kept(&from->instructions[next])) next++;
  return next > first ? next : first + 1;
}

static int graphs_of(const ls_loaded_program *from, const ls_body *body) {
  int count = 0, next;
  for (int i = body->first; i < body->first + body->count; i = next) {
    next = ls_rank_together(from, body, i);
    count += next > i + 1;
  }
  return count;
}

static uint64_t hash_of(const ls_program *program, const ls_program_action *action) {
  uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
  const int count = program->bodies.items[action->body].buffer_groups.count;
  for (int i = -2; i < count; i++) {
    const int word = i == -2 ? action->body : i == -1 ? action->first : action->live_intervals[i];
    hash = (hash ^ (uint64_t)(unsigned)word) * UINT64_C(0x100000001b3);
  }
  return hash ^ hash >> 32;
}

/* Whether two actions give one body the same operands. */
static bool are_alike(const ls_program *program, const ls_program_action *a,
                      const ls_program_action *b) {
  const int count = program->bodies.items[a->body].buffer_groups.count;
  return a->body == b->body && a->first == b->first &&
         (!count || memcmp(a->live_intervals, b->live_intervals, (size_t)count * sizeof(int)) == 0);
}

/* Numbers the graphs of each action; `table`, of a power of two, is all -1. */
static void number_graphs(ls_loaded_program *of, int *table, int size) {
  const ls_program *program = of->program;
  for (int a = 0; a < program->actions.count; a++) {
    const ls_program_action *action = &program->actions.items[a];
    uint64_t slot = hash_of(program, action) & (uint64_t)(size - 1);
    while (table[slot] >= 0 && !are_alike(program, action, &program->actions.items[table[slot]]))
      slot = (slot + 1) & (uint64_t)(size - 1);
    if (table[slot] >= 0) {
      of->first_graph[a] = of->first_graph[table[slot]];
      continue;
    }
    table[slot] = a;
    of->first_graph[a] = of->graph_count;
    of->graph_count += graphs_of(of, &program->bodies.items[action->body]);
  }
}

/* The first rank of a stage speaks for all. */
static void warn_of_more(const ls_rank *rank, const ls_loaded_program *of) {
  static const char *const names[] = {
      [LS_PROGRAM_STEP] = "a step", [LS_PROGRAM_FORWARD] = "a forward pass"};
  if (of->graph_count <= most_graphs(rank) ||
      rank->number % ls_mesh_stage_ranks(&of->program->mesh))
    return;
  ls_warn(
      "rank %d: the kernels of %s are %d graphs, of which %d are kept: the others run one by "
      "one, which is slower",
      rank->number, names[of->program->kind], of->graph_count, most_graphs(rank));
}

ls_status ls_rank_load_graphs(ls_rank *rank, int p, ls_error *error) {
  ls_loaded_program *of = &rank->programs[p];
  const int actions = of->program->actions.count;
  if (!rank->device->calls || !rank->device->graphs) return LS_OK;
  int size = 2;
  while (size < 2 * actions) size *= 2;
  int *table = malloc((size_t)size * sizeof *table);
  of->first_graph = calloc((size_t)actions + 1, sizeof *of->first_graph);
  if (table && of->first_graph) {
    memset(table, 0xff, (size_t)size * sizeof *table);
    number_graphs(of, table, size);
    of->graphs = calloc((size_t)of->graph_count + 1, sizeof *of->graphs);
  }
  free(table);
  if (of->graphs) {
    warn_of_more(rank, of);
    return LS_OK;
  }
  return ls_fail(error, LS_FAILED, "out of memory for the graphs of %d actions", actions);
}

static void drop(ls_rank *rank, ls_kept_graph *kept) {
  rank->device->calls->drop(&rank->queues[LS_TIER_DEVICE], kept->graph);
  kept->graph = NULL;
  rank->graphs_held--;
}

void ls_rank_drop_graphs(ls_rank *rank) {
  for (int p = 0; p < rank->program_count; p++) {
    ls_loaded_program *of = &rank->programs[p];
    for (int g = 0; g < of->graph_count; g++)
      if (of->graphs[g].graph) drop(rank, &of->graphs[g]);
    free(of->first_graph);
    free(of->graphs);
    of->first_graph = NULL;
    of->graphs = NULL;
    of->graph_count = 0;
  }
}

/* Whether there is room for a graph of program `p`, where another program's may have to go. */
static bool make_room(ls_rank *rank, int p) {
  if (rank->graphs_held < most_graphs(rank)) return true;
  ls_kept_graph *oldest = NULL;
  for (int other = 0; other < rank->program_count; other++)
    for (int g = 0; g < rank->programs[other].graph_count && other != p; g++) {
      ls_kept_graph *each = &rank->programs[other].graphs[g];
      if (each->graph && (!oldest || each->replayed < oldest->replayed)) oldest = each;
    }
  if (!oldest) return false;
  drop(rank, oldest);
  return true;
}

/* Puts the instructions on the queue; *at: how far it came. */
static ls_status enqueue(ls_rank *rank, const ls_loaded_program *from, bool first_of_body,
                         int first, int last, int *at, ls_error *error) {
  for (*at = first; *at < last; ++*at) {
    ls_loaded *each = &from->instructions[*at];
    ls_loaded_bind(each, from->buffer_groups, first_of_body);
    LS_TRY(ls_rank_run_instruction(rank, each, error));
  }
  return LS_OK;
}

/* A graph of the instructions. What the device takes none of is run kernel by kernel from then on.
 */
static void capture(ls_rank *rank, const ls_loaded_program *from, bool first_of_body, int first,
                    int last, ls_kept_graph *kept) {
  const ls_queue_calls *calls = rank->device->calls;
  const ls_device_queue *queue = &rank->queues[LS_TIER_DEVICE];
  ls_error why = {0};
  int at = first;
  ls_status status = calls->begin_capture(queue, &why);
  if (status == LS_OK) {
    ls_error after = {0};
    status = enqueue(rank, from, first_of_body, first, last, &at, &why);
    const ls_status ended = calls->end_capture(queue, &kept->graph, &after);
    if (status == LS_OK && ended != LS_OK) why = after;
    if (status == LS_OK) status = ended;
  }
  rank->graphs_held += kept->graph != NULL;
  if (status == LS_OK) return;
  if (kept->graph) drop(rank, kept);
  kept->refused = true;
  const ls_instruction *of = from->instructions[at < last ? at : first].instruction;
  ls_warn("rank %d: %s of %s and what follows it are run without a graph: %s", rank->number,
          ls_op_name(of->kind), ls_loaded_name(from->program, of), why.text);
}

ls_status ls_rank_run_together(ls_rank *rank, int p, int action, int graph, int first, int last,
                               ls_error *error) {
  const ls_loaded_program *from = &rank->programs[p];
  const bool first_of_body = from->program->actions.items[action].first;
  ls_kept_graph *kept = &from->graphs[from->first_graph[action] + graph];
  if (kept->seen && !kept->graph && !kept->refused && make_room(rank, p))
    capture(rank, from, first_of_body, first, last, kept);
  kept->seen = true;
  ls_status status;
  int at = first;
  if (kept->graph) {
    kept->replayed = ++rank->replays;
    status = rank->device->calls->replay(&rank->queues[LS_TIER_DEVICE], kept->graph, error);
  } else {
    status = enqueue(rank, from, first_of_body, first, last, &at, error);
  }
  if (status == LS_OK) return LS_OK;
  return ls_rank_fail_instruction(rank, from->program, from->instructions[at].instruction, error);
}
