#include "watch/step_table.h"
#include "cost/cost.h"

#include <stdlib.h>
#include <string.h>

/* A table being filled. */
typedef struct filling {
  ls_arena *arena;
  ls_step_table *made;
  const ls_program *const *stages;
  const ls_recording *recording; /* NULL: planned */
  ls_work_rates rates;
  bool by_shape;
  int *members; /* of a group */
} filling;

static bool same(const char *a, const char *b) {
  return strcmp(a, b) == 0;
}

static ls_step_row *find_row(filling *of, ls_step_part part, const char *name) {
  for (int i = 0; i < of->made->rows.count; i++) {
    ls_step_row *row = &of->made->rows.items[i];
    if (row->part == part && same(row->name, name)) return row;
  }
  ls_step_row *row = LS_APPEND(of->arena, &of->made->rows);
  row->part = part;
  row->name = ls_arena_strdup(of->arena, name);
  return row;
}

/* "linear 2048x768x3072": rows of the first operand, then what of the second is not contracted. */
static const char *op_name(const filling *of, const ls_program *program, int rank,
                           const ls_instruction *instruction, char text[96]) {
  const char *name = ls_op_name(instruction->kind);
  const int product = ls_op_row(instruction->kind)->product;
  if (!of->by_shape || !product) return name;
  const ls_local a = ls_program_local(program, rank, instruction->in[0]);
  const ls_local b = ls_program_local(program, rank, instruction->in[1]);
  snprintf(text, 96, "%s %lldx%lldx%lld", name, (long long)a.valid[0], (long long)a.valid[1],
           (long long)b.valid[product - 1]);
  return text;
}

/* `seconds`: of all of them. */
static void add_op(filling *of, const ls_program *program, int rank, const ls_executed *each,
                   double seconds) {
  char text[96];
  const bool again = each->action->action.kind == LS_ACTION_RECOMPUTE;
  ls_step_row *row = find_row(of, again ? LS_STEP_AGAIN : LS_STEP_OP,
                              op_name(of, program, rank, each->instruction, text));
  const ls_work work = ls_instruction_work(program, rank, each->instruction, each->first);
  const double times = (double)each->times;
  row->calls += times;
  row->seconds += seconds;
  row->flops += times * work.flops;
  row->bytes += times * work.bytes;
  row->floor_s += times * ls_work_seconds(&work, &of->rates);
}

/* How long of `record`, the index'th of its rank, was waiting for the last rank of the group. All
 * ranks of a stage run one program, so the same record is the same collective there; of groups over
 * several stages nothing is known. */
static double waited(const filling *of, const ls_program *program, int rank, int64_t index,
                     const ls_record *record, const ls_instruction *instruction) {
  const ls_mesh *mesh = &program->mesh;
  const bool stages =
      ls_mesh_stages(mesh) > 1 && instruction->axes & ls_mesh_axes(mesh, LS_MESH_STAGE);
  if (instruction->peer >= 0 || stages || instruction->phase == LS_END ||
      !ls_collective_is_of_group(instruction->collective))
    return 0;
  const int count = ls_mesh_group(mesh, rank, ls_mesh_order(instruction->axes), of->members);
  int64_t last = record->begin_ns;
  for (int m = 0; m < count; m++) {
    const ls_recording_rank *other = &of->recording->by_rank[of->members[m]];
    if (index < other->count && other->records[index].begin_ns > last)
      last = other->records[index].begin_ns;
  }
  if (last > record->end_ns) last = record->end_ns;
  return 1e-9 * (double)(last - record->begin_ns);
}

static bool is_moved(const ls_instruction *instruction) {
  return instruction->collective == LS_MOVE && instruction->phase == LS_END;
}

/* What a collective did where it began took no time to end. */
static bool is_idle(const ls_instruction *instruction) {
  return instruction->phase == LS_END && ls_collective_is_of_group(instruction->collective);
}

static ls_step_row *add_collective(filling *of, const ls_program *program,
                                   const ls_executed *each) {
  const ls_instruction *instruction = each->instruction;
  const bool beside = is_moved(instruction), moves = instruction->collective == LS_MOVE;
  const char *name =
      moves && !beside ? "begin of moves" : ls_collective_name(instruction->collective);
  ls_step_row *row = find_row(of, beside ? LS_STEP_BESIDE : LS_STEP_COLLECTIVE, name);
  ls_instruction about = *instruction;
  if (beside) about.phase = LS_BEGIN; /* its bytes are shown where it has ended */
  const ls_work work = ls_instruction_work(program, 0, &about, each->first);
  const double times = (double)each->times;
  row->calls += is_idle(instruction) ? 0 : times;
  row->bytes += times * (beside ? work.moved : work.sent);
  row->floor_s += times * ls_work_seconds(&work, &of->rates);
  return row;
}

static void add_time(filling *of, const ls_program *program, int rank, int64_t index,
                     const ls_record *record, ls_step_row *row) {
  const ls_instruction *instruction = &program->instructions.items[record->instruction];
  const double seconds = 1e-9 * (double)(record->end_ns - record->begin_ns);
  const double wait = waited(of, program, rank, index, record, instruction);
  row->seconds += seconds - wait;
  if (wait <= 0) return;
  row = find_row(of, LS_STEP_WAIT, "waiting for other ranks"); /* may have moved the one before */
  row->calls++;
  row->seconds += wait;
}

static void add_recorded(filling *of, const ls_program *program, int rank) {
  const ls_recording_rank *from = &of->recording->by_rank[rank];
  double busy = 0;
  for (int64_t i = 0; i < from->count; i++) {
    const ls_record *record = &from->records[i];
    const ls_program_action *action = &program->actions.items[record->action];
    const ls_instruction *instruction = &program->instructions.items[record->instruction];
    const ls_executed each = {action, instruction, action->first, 1};
    const double seconds = 1e-9 * (double)(record->end_ns - record->begin_ns);
    if (instruction->collective == LS_COLLECTIVE_NONE)
      add_op(of, program, rank, &each, seconds);
    else
      add_time(of, program, rank, i, record, add_collective(of, program, &each));
    if (!is_moved(instruction)) busy += seconds;
  }
  find_row(of, LS_STEP_REST, "rest")->seconds += of->made->seconds - busy;
}

/* A rank whose program is walked. */
typedef struct planning {
  filling *of;
  const ls_program *program;
  int rank;
} planning;

static void plan_one(void *context, const ls_executed *each) {
  const planning *now = context;
  if (each->instruction->collective == LS_COLLECTIVE_NONE)
    add_op(now->of, now->program, now->rank, each, 0);
  else
    add_collective(now->of, now->program, each);
}

static void add_planned(filling *of, const ls_program *program, int rank) {
  planning now = {of, program, rank};
  ls_program_walk(program, 0, ls_program_first_of(program, LS_PROGRAM_SPECULATE), plan_one, &now);
  ls_program_walk(program, ls_program_first_of(program, LS_PROGRAM_VALIDATE),
                  program->actions.count, plan_one, &now);
}

static int compare(const void *left, const void *right) {
  const ls_step_row *a = left, *b = right;
  if (a->part != b->part) return (int)a->part - (int)b->part;
  const double x = a->seconds > 0 || b->seconds > 0 ? a->seconds : a->floor_s;
  const double y = a->seconds > 0 || b->seconds > 0 ? b->seconds : b->floor_s;
  if (x != y) return x < y ? 1 : -1;
  return strcmp(a->name, b->name);
}

/* Sums over ranks become means. */
static void finish(ls_step_table *made) {
  qsort(made->rows.items, (size_t)made->rows.count, sizeof *made->rows.items, compare);
  for (int i = 0; i < made->rows.count; i++) {
    ls_step_row *row = &made->rows.items[i];
    row->calls /= made->ranks;
    row->seconds /= made->ranks;
    row->flops /= made->ranks;
    row->bytes /= made->ranks;
    row->floor_s /= made->ranks;
    if (row->part != LS_STEP_BESIDE) made->floor_s += row->floor_s;
  }
}

static filling begin(ls_arena *arena, const ls_program *const *stages, const ls_step_limits *limits,
                     bool by_shape) {
  filling of = {
      .arena = arena, .made = LS_NEW(arena, ls_step_table), .stages = stages, .by_shape = by_shape};
  of.made->limits = *limits;
  of.rates = (ls_work_rates){.flops_per_s = limits->flops_per_s,
                             .bytes_per_s = limits->bytes_per_s,
                             .sent_per_s = limits->bytes_per_s / 2}; /* read once, written once */
  of.members = LS_NEW_ARRAY(arena, int, ls_mesh_ranks(&stages[0]->mesh));
  return of;
}

ls_step_table *ls_step_table_measured(ls_arena *arena, const ls_program *const *stages,
                                      const ls_recording *recording, const ls_step_limits *limits,
                                      bool by_shape) {
  filling of = begin(arena, stages, limits, by_shape);
  of.recording = recording;
  of.made->measured = true;
  of.made->ranks = recording->ranks;
  int64_t end = 0;
  for (int r = 0; r < recording->ranks; r++)
    for (int64_t i = 0; i < recording->by_rank[r].count; i++)
      if (recording->by_rank[r].records[i].end_ns > end)
        end = recording->by_rank[r].records[i].end_ns;
  of.made->seconds = 1e-9 * (double)end;
  for (int r = 0; r < recording->ranks; r++)
    add_recorded(&of, stages[ls_mesh_stage(&stages[0]->mesh, r)], r);
  finish(of.made);
  return of.made;
}

ls_step_table *ls_step_table_planned(ls_arena *arena, const ls_program *const *stages,
                                     const ls_step_limits *limits, bool by_shape) {
  filling of = begin(arena, stages, limits, by_shape);
  const ls_mesh *mesh = &stages[0]->mesh;
  of.made->ranks = ls_mesh_stages(mesh);
  const int each = ls_mesh_ranks(mesh) / of.made->ranks;
  for (int s = 0; s < of.made->ranks; s++) add_planned(&of, stages[s], s * each);
  finish(of.made);
  return of.made;
}
