#include "support/queue_device.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/random.h"
#include "comm/comm.h"
#include "comm/reduce.h"
#include "device/kernel.h"

/* Of a rank: ops; moves; a queue for what is sent to, and one for what comes from, each stage; then
 * for each set of axes one of collectives inside of bodies, and one of those that last longer. */
enum { COMPUTE, MOVES, MESSAGES };

enum { NOBODY = -1 };

/* An instruction in a queue, with what of each queue must be done before it. */
typedef struct item {
  const ls_program_action *action;
  int instruction;
  bool poisons; /* what the instruction, in another queue, is going to fill */
  int *after;   /* [queues] */
} item;

typedef struct queue {
  struct rank *of;
  int number;
  LS_LIST(item) items;
  int done, wanted; /* wanted: somebody waits for these, or has ended */
  int *calls;       /* that met others, by group */
  pthread_t thread;
} queue;

typedef struct rank {
  struct device *of;
  const ls_program *program;
  int number, queues;
  const bool *stays; /* by instruction: it begins or ends a collective of its own body */
  queue *queue;
  int *floor; /* by queue: what the next item comes after */
  pthread_mutex_t lock;
  pthread_cond_t changed;
} rank;

/* A collective, as its members come to it. */
typedef struct meeting {
  int leader, group, queue, call; /* which it is */
  int members, came, left;
  bool done;
  void **from, **to;
  bool accumulate;
} meeting;

/* A message from one rank to another: sent, then taken. */
typedef struct message {
  const void *data;
  void *copy; /* where nothing is held */
  bool taken;
} message;

typedef struct channel {
  LS_LIST(message *) sent;
  int taken;
} channel;

typedef struct device {
  ls_arena *arena; /* under `lock` once threads run */
  const ls_program *const *stages;
  const ls_mesh *mesh;
  ls_queue_memory *memory;
  ls_kernel_table kernels;
  ls_order order;
  uint64_t seed;
  int ranks;
  rank *rank;
  LS_LIST(meeting *) meetings;
  channel *channels; /* [from][to], by rank */
  pthread_mutex_t lock;
  pthread_cond_t changed;
} device;

/* ---- memory ---------------------------------------------------------------------------------- */

static int ranks_of(const ls_program *const *stages) {
  return ls_mesh_ranks(&stages[0]->mesh);
}

static const ls_program *program_of(const ls_program *const *stages, int number) {
  return stages[ls_mesh_stage(&stages[0]->mesh, number)];
}

static char *base_of(const ls_program *program, char *const *pools, int live_interval) {
  const ls_live_interval *about = &program->live_intervals.items[live_interval];
  return pools[program->buffer_groups.items[about->buffer_group].pool] + about->offset;
}

static ls_view view_of(const ls_program *program, int number, int index, char *base) {
  const ls_value *value = &program->values.items[index];
  const ls_local local = ls_program_local(program, number, index);
  ls_view view = {.data = base + local.offset, .dtype = value->dtype, .ndim = value->ndim};
  memcpy(view.dims, local.dims, sizeof view.dims);
  memcpy(view.valid, local.valid, sizeof view.valid);
  memcpy(view.start, local.start, sizeof view.start);
  return view;
}

static ls_view lasting(const ls_program *program, int number, char *const *pools, int value) {
  const ls_buffer_group *buffer_group = ls_program_buffer_group(program, value);
  return view_of(program, number, value, base_of(program, pools, buffer_group->live_interval));
}

/* Replicas draw alike: what is drawn follows from the place in memory, not from the rank. */
static void draw(const ls_program *program, int number, char *const *pools, int value,
                 uint64_t seed, bool positive) {
  if (value < 0) return;
  const ls_view view = lasting(program, number, pools, value);
  int64_t elements = 1;
  for (int d = 0; d < view.ndim; d++) elements *= view.dims[d];
  for (int64_t i = 0; i < elements; i++) {
    const uint64_t bits = ls_random_bits(seed, (uint64_t)value, (uint64_t)i);
    const double number_drawn = (double)(bits % 2001) / 1e4 - (positive ? 0 : 0.1);
    ls_convert((char *)view.data + (size_t)i * ls_dtype_bytes(view.dtype), view.dtype,
               &number_drawn, LS_F64, 1);
  }
}

static void fill_input(const ls_program *program, int number, char *const *pools, int value,
                       uint64_t seed, bool places) {
  if (value < 0) return;
  const int first = ls_program_buffer_group(program, value)->live_interval;
  for (int m = 0; m < program->layout.microbatches; m++) {
    const ls_view view = view_of(program, number, value, base_of(program, pools, first + m));
    for (int64_t i = 0; i < view.dims[0]; i++) {
      const int64_t row = view.start[0] + i;
      const uint64_t bits = ls_random_bits(seed, (uint64_t)(value + 100 * m), (uint64_t)row);
      ((int32_t *)view.data)[i] =
          places ? (int32_t)(row % program->sequence) : (int32_t)(bits % 31);
    }
  }
}

static void set_cell(const ls_program *program, char *const *pools, ls_cell cell, double number) {
  if (program->cell[cell] >= 0)
    *(double *)lasting(program, 0, pools, program->cell[cell]).data = number;
}

static void fill(const ls_program *program, int number, char *const *pools, uint64_t seed) {
  for (int p = 0; p < program->parameter_count; p++) {
    const ls_program_parameter *each = &program->parameters[p];
    if (!each->present) continue;
    for (int part = 0; part < LS_PART_COUNT; part++)
      if (ls_state_row_of((ls_state_part)part)->kept)
        draw(program, number, pools, each->part[part], seed, part == LS_PART_MOMENT2);
  }
  fill_input(program, number, pools, program->ids, seed, false);
  fill_input(program, number, pools, program->labels, seed, false);
  fill_input(program, number, pools, program->positions, seed, true);
  set_cell(program, pools, LS_CELL_LEARNING_RATE, 1e-2);
  set_cell(program, pools, LS_CELL_STEP, 1);
  set_cell(program, pools, LS_CELL_SCALE, 1);
}

ls_queue_memory *ls_queue_memory_make(ls_arena *arena, const ls_program *const *stages,
                                      uint64_t seed) {
  ls_queue_memory *made = LS_NEW(arena, ls_queue_memory);
  made->ranks = ranks_of(stages);
  made->pools = ls_arena_alloc(arena, sizeof *made->pools * (size_t)made->ranks);
  for (int r = 0; r < made->ranks; r++) {
    const ls_program *program = program_of(stages, r);
    for (int p = 0; p < LS_POOL_COUNT; p++)
      made->pools[r][p] = LS_NEW_ARRAY(arena, char, program->pool_bytes[p] + 64);
    fill(program, r, made->pools[r], seed);
  }
  return made;
}

bool ls_queue_memory_equal(const ls_program *const *stages, const ls_queue_memory *a,
                           const ls_queue_memory *b) {
  static const ls_pool lasts[] = {LS_POOL_STATE, LS_POOL_CELL, LS_POOL_HOST_STATE,
                                  LS_POOL_FILE_STATE};
  for (int r = 0; r < a->ranks; r++)
    for (size_t p = 0; p < sizeof lasts / sizeof *lasts; p++)
      if (memcmp(a->pools[r][lasts[p]], b->pools[r][lasts[p]],
                 (size_t)program_of(stages, r)->pool_bytes[lasts[p]]) != 0)
        return false;
  return true;
}

double ls_queue_memory_loss(const ls_program *const *stages, const ls_queue_memory *memory) {
  const ls_program *program = stages[0];
  return *(double *)lasting(program, 0, memory->pools[0], program->cell[LS_CELL_MEAN_LOSS]).data;
}

/* ---- what is in the queues ------------------------------------------------------------------- */

static int first_of_groups(const rank *r) {
  return MESSAGES + 2 * ls_mesh_stages(r->of->mesh);
}

static int queue_of(const rank *r, const ls_instruction *each) {
  if (each->collective == LS_COLLECTIVE_NONE) return COMPUTE;
  if (each->collective == LS_SEND) return MESSAGES + 2 * each->peer;
  if (each->collective == LS_RECEIVE) return MESSAGES + 2 * each->peer + 1;
  if (each->collective == LS_MOVE) return MOVES;
  const bool lasts = each->phase != LS_WHOLE && each->collective != LS_SUM_NUMBERS &&
                     !r->stays[each - r->program->instructions.items];
  return first_of_groups(r) + 2 * (int)each->axes + lasts;
}

static bool same_operands(const ls_instruction *a, const ls_instruction *b) {
  bool same = a->inputs == b->inputs && a->outputs == b->outputs;
  for (int v = 0; v < a->inputs && same; v++) same = a->in[v] == b->in[v];
  for (int v = 0; v < a->outputs && same; v++) same = a->out[v] == b->out[v];
  return same;
}

static const bool *find_staying(ls_arena *arena, const ls_program *program) {
  bool *stays = LS_NEW_ARRAY(arena, bool, program->instructions.count + 1);
  const ls_instruction *items = program->instructions.items;
  for (int b = 0; b < program->bodies.count; b++) {
    const int end = program->bodies.items[b].first + program->bodies.items[b].count;
    for (int i = program->bodies.items[b].first; i < end; i++)
      for (int j = i + 1; j < end && items[i].phase == LS_BEGIN; j++)
        if (items[j].phase == LS_END && items[j].collective == items[i].collective &&
            same_operands(&items[i], &items[j]))
          stays[i] = stays[j] = true;
  }
  return stays;
}

/* Whether what is in the queue runs beside bodies. */
static bool transfers(const rank *r, int number) {
  const int groups = first_of_groups(r);
  return number != COMPUTE && (number < groups || (number - groups) % 2 == 1);
}

static char *base_in(const rank *r, const ls_program_action *action, int value) {
  const ls_program *program = r->program;
  const ls_body *body = &program->bodies.items[action->body];
  const int buffer_group =
      program->storages.items[program->values.items[value].storage].buffer_group;
  int at = 0;
  while (body->buffer_groups.items[at] != buffer_group) at++;
  return base_of(program, r->of->memory->pools[r->number], action->live_intervals[at]);
}

static bool same_place(const rank *r, const ls_program_action *a, const ls_program_action *b,
                       int value) {
  return base_in(r, a, value) == base_in(r, b, value);
}

/* Where a transfer that ends stands in its queue: the one of the same operands. */
static int find_begun(const rank *r, const queue *in, const ls_program_action *ended,
                      const ls_instruction *about, const bool *ends) {
  for (int i = 0; i < in->items.count; i++) {
    const item *each = &in->items.items[i];
    const ls_instruction *begun = &r->program->instructions.items[each->instruction];
    bool same = !ends[i] && begun->phase == LS_BEGIN && same_operands(begun, about);
    for (int v = 0; v < about->inputs && same; v++)
      same = same_place(r, each->action, ended, about->in[v]);
    for (int v = 0; v < about->outputs && same; v++)
      same = same_place(r, each->action, ended, about->out[v]);
    if (same) return i;
  }
  return NOBODY;
}

static void push(rank *r, int number, const ls_program_action *action, int instruction,
                 bool poisons, const int *after) {
  queue *into = &r->queue[number];
  item *made = LS_APPEND(r->of->arena, &into->items);
  *made = (item){action, instruction, poisons, LS_NEW_ARRAY(r->of->arena, int, r->queues)};
  memcpy(made->after, after, sizeof(int) * (size_t)r->queues);
  if (r->of->order != LS_ORDER_ISSUED) return;
  for (int q = 0; q < r->queues; q++)
    if (q < MESSAGES || q >= first_of_groups(r)) r->floor[q] = r->queue[q].items.count;
}

/* Ends come to no queue: what follows waits for them. */
static void end_transfer(rank *r, const ls_program_action *action, const ls_instruction *about,
                         int number, bool **ends) {
  const int found = find_begun(r, &r->queue[number], action, about, ends[number]);
  if (found == NOBODY) ls_panic("an end without a beginning");
  ends[number][found] = true;
  if (r->floor[number] < found + 1) r->floor[number] = found + 1;
}

/* Whether a transfer begins here that fills all of a place. */
static bool fills(const ls_instruction *about) {
  const bool whole = about->collective == LS_ALL_GATHER || about->collective == LS_RECEIVE ||
                     about->collective == LS_MOVE;
  return whole && about->phase == LS_BEGIN;
}

/* An event of another queue, and what of its body is before it. */
static void await_event(const rank *r, const ls_body *body, int i, const int *place, int *after) {
  const ls_instruction *items = r->program->instructions.items;
  for (int j = body->first; j <= items[i].wait; j++) {
    const int other = queue_of(r, &items[j]);
    const bool queued = items[j].phase != LS_END || items[j].collective == LS_SUM_NUMBERS;
    if (queued && other != queue_of(r, &items[i]) && after[other] < place[j] + 1)
      after[other] = place[j] + 1;
  }
}

static void issue_body(rank *r, const ls_program_action *action, bool **ends, int *place) {
  const ls_program *program = r->program;
  const ls_body *body = &program->bodies.items[action->body];
  for (int q = 0; q < r->queues; q++)
    if (!transfers(r, q)) r->floor[q] = r->queue[q].items.count;
  for (int i = body->first; i < body->first + body->count; i++) {
    const ls_instruction *each = &program->instructions.items[i];
    const int number = queue_of(r, each);
    if (each->phase == LS_END && each->collective != LS_SUM_NUMBERS) {
      end_transfer(r, action, each, number, ends);
      continue;
    }
    int *after = LS_NEW_ARRAY(r->of->arena, int, r->queues);
    memcpy(after, r->floor, sizeof(int) * (size_t)r->queues);
    if (each->wait >= 0) await_event(r, body, i, place, after);
    if (fills(each)) {
      push(r, COMPUTE, action, i, true, after);
      after[COMPUTE] = r->queue[COMPUTE].items.count;
    }
    place[i] = r->queue[number].items.count;
    push(r, number, action, i, false, after);
  }
}

static void issue(rank *r) {
  ls_arena *arena = r->of->arena;
  const ls_program *program = r->program;
  bool **ends = LS_NEW_ARRAY(arena, bool *, r->queues);
  int most = 1;
  for (int a = 0; a < program->actions.count; a++)
    most += program->bodies.items[program->actions.items[a].body].count;
  for (int q = 0; q < r->queues; q++) ends[q] = LS_NEW_ARRAY(arena, bool, most);
  int *place = LS_NEW_ARRAY(arena, int, program->instructions.count + 1);
  for (int a = 0; a < program->actions.count; a++)
    issue_body(r, &program->actions.items[a], ends, place);
}

/* ---- running --------------------------------------------------------------------------------- */

static ls_kernel_args bind(const rank *r, const item *each) {
  const ls_instruction *about = &r->program->instructions.items[each->instruction];
  ls_kernel_args args = {
      .attributes = &about->attributes, .inputs = about->inputs, .outputs = about->outputs};
  for (int i = 0; i < about->inputs; i++)
    args.in[i] =
        view_of(r->program, r->number, about->in[i], base_in(r, each->action, about->in[i]));
  for (int o = 0; o < about->outputs; o++) {
    args.out[o] =
        view_of(r->program, r->number, about->out[o], base_in(r, each->action, about->out[o]));
    args.accumulate[o] = about->write[o] == LS_ADD ||
                         (about->write[o] == LS_ADD_AFTER_FIRST && !each->action->first);
  }
  return args;
}

static void run_op(const rank *r, const ls_instruction *about, const ls_kernel_args *args) {
  const bool skipped = about->first_only && ls_mesh_index(&r->program->mesh, r->number,
                                                          ls_mesh_order(about->first_only)) != 0;
  for (int o = 0; o < args->outputs && skipped; o++) {
    const ls_view *view = &args->out[o];
    int64_t elements = 1;
    for (int d = 0; d < view->ndim; d++) elements *= view->dims[d];
    if (!args->accumulate[o]) memset(view->data, 0, (size_t)elements * ls_dtype_bytes(view->dtype));
  }
  ls_error error = {0};
  if (!skipped && r->of->kernels.kernel[about->kind](args, &error) != LS_OK)
    ls_panic("%s: %s", ls_op_name(about->kind), error.text);
}

static int find_members(const rank *r, const ls_instruction *about, int *members) {
  const ls_mesh *mesh = &r->program->mesh;
  if (about->peer < 0)
    return ls_mesh_group(mesh, r->number, ls_instruction_group(r->program, about), members);
  const int apart = ls_mesh_stage_ranks(mesh);
  const int other = r->number + apart * (about->peer - r->program->stage);
  members[0] = other < r->number ? other : r->number;
  members[1] = other < r->number ? r->number : other;
  return 2;
}

typedef struct dealing {
  const meeting *of;
  size_t width;
} dealing;

static void deal_piece(void *context, const ls_deal_piece *piece) {
  const dealing *with = context;
  for (int64_t row = 0; row < piece->rows; row++)
    memcpy((char *)with->of->to[piece->to] +
               (size_t)(piece->target + row * piece->target_stride) * with->width,
           (const char *)with->of->from[piece->from] +
               (size_t)(piece->source + row * piece->source_stride) * with->width,
           (size_t)piece->width * with->width);
}

/* What the collective does for all its members; their buffers are left alone meanwhile. */
static void do_collective(const rank *r, const meeting *of, const ls_instruction *about,
                          const ls_kernel_args *args) {
  const int n = of->members;
  const ls_dtype dtype = args->in[0].dtype;
  const size_t bytes = ls_dtype_bytes(dtype);
  const int64_t piece = about->count / n;
  const void **from = malloc(sizeof *from * (size_t)n);
  if (!from) ls_panic("out of memory");
  for (int i = 0; i < n; i++) {
    const size_t offset = (size_t)i * (size_t)piece * bytes;
    for (int j = 0; j < n; j++) from[j] = (const char *)of->from[j] + offset;
    if (about->collective == LS_REDUCE_SCATTER)
      ls_reduce_range(&of->to[i], 1, from, n, piece, dtype, LS_SUM, of->accumulate);
    for (int j = 0; j < n && about->collective == LS_ALL_GATHER; j++)
      memmove((char *)of->to[j] + offset, of->from[i], (size_t)piece * bytes);
  }
  if (about->collective == LS_ALL_REDUCE || about->collective == LS_SUM_NUMBERS) {
    for (int j = 0; j < n; j++) from[j] = of->from[j];
    ls_reduce_range(of->to, n, from, n, about->count, dtype, about->reduce, false);
  }
  free(from);
  if (ls_collective_deals(about->collective))
    ls_deal_pieces(r->program, about, deal_piece, &(dealing){of, bytes});
  if (about->collective != LS_ALL_TO_ALL && about->collective != LS_PERMUTE) return;
  ls_place was, is;
  ls_instruction_places(r->program, about, &was, &is);
  ls_resharding change = {.ndim = args->in[0].ndim, .gathered = was.dim, .cut = is.dim};
  memcpy(change.source, args->in[0].dims, sizeof change.source);
  memcpy(change.target, args->out[0].dims, sizeof change.target);
  for (int i = 0; i < n; i++) {
    const int from_member = (i + is.shift - was.shift + n) % n;
    if (about->collective == LS_PERMUTE)
      memcpy(of->to[i], of->from[from_member], (size_t)about->count * bytes);
    for (int j = 0; j < n && about->collective == LS_ALL_TO_ALL; j++)
      ls_reshard_block(&change, j, i, dtype, of->to[i], of->from[j]);
  }
}

static meeting *find_meeting(device *of, const meeting *like) {
  for (int i = 0; i < of->meetings.count; i++) {
    meeting *each = of->meetings.items[i];
    if (each->leader == like->leader && each->group == like->group && each->queue == like->queue &&
        each->call == like->call)
      return each;
  }
  meeting *made = LS_NEW(of->arena, meeting);
  *made = *like;
  made->from = LS_NEW_ARRAY(of->arena, void *, like->members);
  made->to = LS_NEW_ARRAY(of->arena, void *, like->members);
  *LS_APPEND(of->arena, &of->meetings) = made;
  return made;
}

static void forget_meeting(device *of, const meeting *gone) {
  int at = 0;
  while (of->meetings.items[at] != gone) at++;
  of->meetings.items[at] = of->meetings.items[--of->meetings.count];
}

/* The group of a collective, as all its members know it: axes, or two stages. */
static int group_of(const rank *r, const ls_instruction *about) {
  const int stages = ls_mesh_stages(r->of->mesh), own = r->program->stage;
  const int all = (int)ls_mesh_all(r->of->mesh) + 1;
  if (about->peer < 0) return (int)about->axes;
  return about->peer < own ? all + about->peer * stages + own : all + own * stages + about->peer;
}

static void run_collective(queue *q, const ls_instruction *about, const ls_kernel_args *args) {
  device *of = q->of->of;
  int *members = malloc(sizeof *members * (size_t)of->ranks);
  if (!members) ls_panic("out of memory");
  const int count = find_members(q->of, about, members);
  int own = 0;
  while (members[own] != q->of->number) own++;
  const int group = group_of(q->of, about);
  pthread_mutex_lock(&of->lock);
  meeting *at = find_meeting(of, &(meeting){.leader = members[0],
                                            .group = group,
                                            .queue = q->number,
                                            .call = q->calls[group]++,
                                            .members = count,
                                            .accumulate = args->accumulate[0]});
  at->from[own] = args->in[0].data;
  at->to[own] = args->out[0].data;
  if (++at->came == count) {
    do_collective(q->of, at, about, args);
    at->done = true;
    pthread_cond_broadcast(&of->changed);
  }
  while (!at->done) pthread_cond_wait(&of->changed, &of->lock);
  if (++at->left == count) forget_meeting(of, at);
  pthread_mutex_unlock(&of->lock);
  free(members);
}

static void run_message(queue *q, const ls_instruction *about, const ls_kernel_args *args) {
  device *of = q->of->of;
  const bool sends = about->collective == LS_SEND;
  const int apart = ls_mesh_stage_ranks(of->mesh);
  const int other = q->of->number + apart * (about->peer - q->of->program->stage);
  const int from = sends ? q->of->number : other, to = sends ? other : q->of->number;
  channel *over = &of->channels[from * of->ranks + to];
  const ls_view *view = sends ? &args->in[0] : &args->out[0];
  const size_t bytes = (size_t)about->count * ls_dtype_bytes(view->dtype);
  pthread_mutex_lock(&of->lock);
  if (sends) {
    message *made = LS_NEW(of->arena, message);
    made->data = view->data;
    if (of->order == LS_ORDER_FREE) {
      made->copy = LS_NEW_ARRAY(of->arena, char, (int64_t)bytes + 1);
      memcpy(made->copy, view->data, bytes);
    }
    *LS_APPEND(of->arena, &over->sent) = made;
    pthread_cond_broadcast(&of->changed);
    while (!made->taken && !made->copy) pthread_cond_wait(&of->changed, &of->lock);
  } else {
    while (over->taken == over->sent.count) pthread_cond_wait(&of->changed, &of->lock);
    message *taken = over->sent.items[over->taken++];
    memcpy(view->data, taken->copy ? taken->copy : taken->data, bytes);
    taken->taken = true;
    pthread_cond_broadcast(&of->changed);
  }
  pthread_mutex_unlock(&of->lock);
}

/* What nobody may read until it is there: NaN in every type. */
static void poison(const ls_instruction *about, const ls_kernel_args *args) {
  const size_t bytes = (size_t)about->count * ls_dtype_bytes(args->out[0].dtype);
  const char *to = args->out[0].data, *from = about->inputs ? args->in[0].data : NULL;
  if (from && from < to + bytes && to < from + bytes) return; /* gathered where it is */
  memset(args->out[0].data, 0xff, bytes);
}

static void run_item(queue *q, const item *each, const ls_kernel_args *args) {
  const ls_instruction *about = &q->of->program->instructions.items[each->instruction];
  if (each->poisons)
    poison(about, args);
  else if (about->collective == LS_COLLECTIVE_NONE)
    run_op(q->of, about, args);
  else if (ls_collective_is_message(about->collective))
    run_message(q, about, args);
  else if (about->collective == LS_MOVE)
    memcpy(args->out[0].data, args->in[0].data,
           (size_t)about->count * ls_dtype_bytes(args->in[0].dtype));
  else if (about->collective != LS_SUM_NUMBERS || about->phase == LS_END)
    run_collective(q, about, args);
}

/* Until all that the item comes after is done; once the ops among it are, the rest is wanted. */
static void await_others(queue *q, const item *each) {
  rank *r = q->of;
  while (r->queue[COMPUTE].done < each->after[COMPUTE]) pthread_cond_wait(&r->changed, &r->lock);
  for (int other = 0; other < r->queues; other++)
    if (r->queue[other].wanted < each->after[other]) r->queue[other].wanted = each->after[other];
  pthread_cond_broadcast(&r->changed);
  for (int other = 0; other < r->queues; other++)
    while (r->queue[other].done < each->after[other]) pthread_cond_wait(&r->changed, &r->lock);
}

static void pause_a_while(const queue *q, int i) {
  const ls_order order = q->of->of->order;
  if (order != LS_ORDER_SEEDED && order != LS_ORDER_FREE) return;
  const uint64_t bits =
      ls_random_bits(q->of->of->seed, (uint64_t)(q->of->number * 64 + q->number), (uint64_t)i);
  if (bits % 4 == 0) usleep((useconds_t)(bits >> 8) % 300);
}

static void *work(void *argument) {
  queue *q = argument;
  rank *r = q->of;
  const bool late =
      r->of->order == LS_ORDER_LATE && transfers(r, q->number) &&
      !(q->number >= MESSAGES && q->number < first_of_groups(r) && (q->number - MESSAGES) % 2 == 0);
  for (int i = 0; i < q->items.count; i++) {
    const item *each = &q->items.items[i];
    const ls_kernel_args args = bind(r, each);
    pthread_mutex_lock(&r->lock);
    await_others(q, each);
    while (late && q->wanted <= i) pthread_cond_wait(&r->changed, &r->lock);
    pthread_mutex_unlock(&r->lock);
    pause_a_while(q, i);
    run_item(q, each, &args);
    pthread_mutex_lock(&r->lock);
    q->done = i + 1;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
  }
  pthread_mutex_lock(&r->lock);
  for (int other = 0; other < r->queues && q->number == COMPUTE; other++)
    r->queue[other].wanted = r->queue[other].items.count; /* the end of the program */
  pthread_cond_broadcast(&r->changed);
  pthread_mutex_unlock(&r->lock);
  return NULL;
}

static void make_rank(device *of, int number) {
  rank *r = &of->rank[number];
  r->of = of;
  r->number = number;
  r->program = program_of(of->stages, number);
  r->stays = find_staying(of->arena, r->program);
  r->queues = first_of_groups(r) + 2 * (int)(ls_mesh_all(of->mesh) + 1);
  r->queue = LS_NEW_ARRAY(of->arena, queue, r->queues);
  r->floor = LS_NEW_ARRAY(of->arena, int, r->queues);
  pthread_mutex_init(&r->lock, NULL);
  pthread_cond_init(&r->changed, NULL);
  for (int q = 0; q < r->queues; q++) {
    r->queue[q].of = r;
    r->queue[q].number = q;
    const int stages = ls_mesh_stages(of->mesh);
    r->queue[q].calls =
        LS_NEW_ARRAY(of->arena, int, (int)ls_mesh_all(of->mesh) + 1 + stages * stages);
  }
  issue(r);
}

/* That of ops says at its end that all is wanted. */
static bool has_thread(const queue *q) {
  return q->number == COMPUTE || q->items.count > 0;
}

void ls_queue_device_run(const ls_program *const *stages, ls_queue_memory *memory, ls_order order,
                         uint64_t seed) {
  device of = {.arena = ls_arena_create(),
               .stages = stages,
               .mesh = &stages[0]->mesh,
               .memory = memory,
               .order = order,
               .seed = seed,
               .ranks = memory->ranks,
               .lock = PTHREAD_MUTEX_INITIALIZER,
               .changed = PTHREAD_COND_INITIALIZER};
  ls_reference_kernels(&of.kernels, stages[0]->layout.compute == LS_F64 ? LS_F64 : LS_F32);
  of.rank = LS_NEW_ARRAY(of.arena, rank, of.ranks);
  of.channels = LS_NEW_ARRAY(of.arena, channel, (int64_t)of.ranks * of.ranks);
  for (int r = 0; r < of.ranks; r++) make_rank(&of, r);
  for (int r = 0; r < of.ranks; r++)
    for (int q = 0; q < of.rank[r].queues; q++)
      if (has_thread(&of.rank[r].queue[q]) &&
          pthread_create(&of.rank[r].queue[q].thread, NULL, work, &of.rank[r].queue[q]) != 0)
        ls_panic("cannot start a queue");
  for (int r = 0; r < of.ranks; r++)
    for (int q = 0; q < of.rank[r].queues; q++)
      if (has_thread(&of.rank[r].queue[q])) pthread_join(of.rank[r].queue[q].thread, NULL);
  for (int r = 0; r < of.ranks; r++) {
    pthread_cond_destroy(&of.rank[r].changed);
    pthread_mutex_destroy(&of.rank[r].lock);
  }
  ls_arena_destroy(&of.arena);
}
