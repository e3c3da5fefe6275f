/* Buffer groups: storages grouped by the first and the last body that touch them.
 *
 * What only one body touches are its temporaries: they share the body's scratch buffer group and,
 * where a buffer group is born or dies in that body, the parts of it that are not yet or no longer
 * in use. */
#include <string.h>

#include "ir/queues.h"
#include "lower/lower.h"

enum { UNTOUCHED = -1 };

/* How bodies touch a storage. */
typedef struct usage {
  int born, dies; /* bodies, in the order they were lowered */
  bool once;      /* by an action that is not of one microbatch: it has a single live interval */
  int begin, end; /* instructions of the body at hand; UNTOUCHED */
} usage;

typedef struct grouper {
  ls_lowering *lowering;
  ls_program *program;
  usage *usages;        /* by storage */
  bool *body_once;      /* by body */
  LS_LIST(int) touched; /* storages of the body at hand */
  /* by buffer group */
  int *buffer_group_born, *buffer_group_dies;
  bool *buffer_group_once, *buffer_group_ends, *buffer_group_moves;
  int *next;      /* the one made before that is born in the same body */
  int *last_born; /* by body + 1: the newest buffer group born there */
  int *noted_in;  /* 1 + the body that is known to have it */
} grouper;

static void each_storage(const ls_program *program, const ls_instruction *instruction,
                         void (*visit)(void *context, int storage), void *context) {
  for (int i = 0; i < instruction->inputs; i++)
    visit(context, program->values.items[instruction->in[i]].storage);
  for (int o = 0; o < instruction->outputs; o++)
    visit(context, program->values.items[instruction->out[o]].storage);
}

typedef struct moment {
  grouper *grouper;
  int body, instruction;
} moment;

static void note_body(void *context, int storage) {
  const moment *now = context;
  usage *about = &now->grouper->usages[storage];
  if (about->born == UNTOUCHED) about->born = now->body;
  about->dies = now->body;
  about->once = about->once || now->grouper->body_once[now->body];
}

static void note_instruction(void *context, int storage) {
  const moment *now = context;
  usage *about = &now->grouper->usages[storage];
  if (about->begin == UNTOUCHED) {
    about->begin = now->instruction;
    *LS_APPEND(now->grouper->program->arena, &now->grouper->touched) = storage;
  }
  about->end = now->instruction;
}

static void find_usages(grouper *f) {
  ls_program *program = f->program;
  const int storages = program->storages.count, bodies = program->bodies.count;
  f->usages = LS_NEW_ARRAY(program->arena, usage, storages);
  f->body_once = LS_NEW_ARRAY(program->arena, bool, bodies + 1);
  for (int s = 0; s < storages; s++)
    f->usages[s] = (usage){UNTOUCHED, UNTOUCHED, false, UNTOUCHED, UNTOUCHED};
  for (int a = 0; a < program->actions.count; a++)
    if (program->actions.items[a].action.microbatch < 0)
      f->body_once[program->actions.items[a].body] = true;
  for (int b = 0; b < bodies; b++) {
    const ls_body *body = &program->bodies.items[b];
    for (int i = body->first; i < body->first + body->count; i++)
      each_storage(program, &program->instructions.items[i], note_body, &(moment){f, b, i});
  }
  if (program->kind == LS_PROGRAM_FORWARD && program->logits >= 0) /* read after the program */
    f->usages[program->values.items[program->logits].storage].dies = bodies;
}

static int new_buffer_group(grouper *f, const char *name, const ls_storage_plan *plan,
                            const usage *about) {
  ls_program *program = f->program;
  const int made = program->buffer_groups.count;
  *LS_APPEND(program->arena, &program->buffer_groups) = (ls_buffer_group){
      .name = name, .pool = plan->pool, .category = plan->category, .live_interval = -1};
  f->buffer_group_born[made] = about->born;
  f->buffer_group_dies[made] = about->dies;
  f->buffer_group_once[made] = about->once;
  f->buffer_group_moves[made] = plan->moves;
  if (!ls_pool_is_work(plan->pool)) return made; /* shared by no other storage */
  f->next[made] = f->last_born[about->born + 1];
  f->last_born[about->born + 1] = made;
  return made;
}

static void append_storage(grouper *f, int storage, int buffer_group) {
  ls_storage *placed = &f->program->storages.items[storage];
  ls_buffer_group *into = &f->program->buffer_groups.items[buffer_group];
  placed->buffer_group = buffer_group;
  placed->offset = into->bytes;
  into->bytes += ls_storage_aligned(placed->bytes, f->program->alignment);
}

static bool is_temporary(const grouper *f, int storage) {
  const usage *about = &f->usages[storage];
  return f->lowering->plans.items[storage].pool == LS_POOL_WORK && about->born == about->dies;
}

/* The buffer group of a storage that several bodies touch: that of the others like it. */
static int find_buffer_group(const grouper *f, const ls_storage_plan *plan, const usage *about) {
  if (!ls_pool_is_work(plan->pool)) return -1;
  int buffer_group = f->last_born[about->born + 1];
  for (; buffer_group >= 0; buffer_group = f->next[buffer_group]) {
    const ls_buffer_group *other = &f->program->buffer_groups.items[buffer_group];
    if (f->buffer_group_dies[buffer_group] == about->dies &&
        f->buffer_group_once[buffer_group] == about->once && other->pool == plan->pool &&
        other->category == plan->category && f->buffer_group_moves[buffer_group] == plan->moves)
      break;
  }
  return buffer_group;
}

static void place_kept(grouper *f) {
  ls_program *program = f->program;
  for (int s = 0; s < program->storages.count; s++) {
    if (is_temporary(f, s)) continue;
    const ls_storage_plan *plan = &f->lowering->plans.items[s];
    int buffer_group = find_buffer_group(f, plan, &f->usages[s]);
    if (buffer_group < 0)
      buffer_group = new_buffer_group(f, program->storages.items[s].name, plan, &f->usages[s]);
    append_storage(f, s, buffer_group);
  }
}

static void note_buffer_group(void *context, int storage) {
  const moment *now = context;
  ls_program *program = now->grouper->program;
  ls_body *body = &program->bodies.items[now->body];
  const int buffer_group = program->storages.items[storage].buffer_group;
  if (buffer_group < 0 || now->grouper->noted_in[buffer_group] == now->body + 1) return;
  now->grouper->noted_in[buffer_group] = now->body + 1;
  *LS_APPEND(program->arena, &body->buffer_groups) = buffer_group;
}

static void note_buffer_groups(grouper *f) {
  const ls_program *program = f->program;
  for (int b = 0; b < program->bodies.count; b++) {
    const ls_body *body = &program->bodies.items[b];
    for (int i = 0; i < body->buffer_groups.count; i++)
      f->noted_in[body->buffer_groups.items[i]] = b + 1;
    for (int i = body->first; i < body->first + body->count; i++)
      each_storage(program, &program->instructions.items[i], note_buffer_group, &(moment){f, b, i});
  }
}

/* Where halves of backward passes are apart, microbatches may go through them in different orders:
 * a buffer group has an end only if the same body is the last to touch it in every one. */
static void find_ends(grouper *f) {
  const ls_program *program = f->program;
  const int microbatches = program->layout.microbatches;
  const int64_t cells = (int64_t)program->buffer_groups.count * microbatches;
  int *last = LS_NEW_ARRAY(program->arena, int, cells + 1);
  for (int64_t i = 0; i < cells; i++) last[i] = -1;
  for (int a = 0; a < program->actions.count; a++) {
    const ls_program_action *action = &program->actions.items[a];
    const ls_body *body = &program->bodies.items[action->body];
    for (int i = 0; i < body->buffer_groups.count && action->action.microbatch >= 0; i++)
      last[(int64_t)body->buffer_groups.items[i] * microbatches + action->action.microbatch] =
          action->body;
  }
  f->buffer_group_ends = LS_NEW_ARRAY(program->arena, bool, program->buffer_groups.count + 1);
  for (int buffer_group = 0; buffer_group < program->buffer_groups.count; buffer_group++) {
    f->buffer_group_ends[buffer_group] = true;
    for (int m = 0; m < microbatches; m++) {
      const int body = last[(int64_t)buffer_group * microbatches + m];
      if (body >= 0 && body != f->buffer_group_dies[buffer_group])
        f->buffer_group_ends[buffer_group] = false;
    }
  }
}

/* The spaces a body's temporaries may lie in: buffer groups it begins or ends, then its scratch. */
typedef struct free_space {
  int buffer_group;
  ls_space space;
} free_space;

static int open_spaces(grouper *f, int b, free_space *spaces) {
  ls_program *program = f->program;
  const ls_body *body = &program->bodies.items[b];
  int count = 0;
  for (int t = 0; t < f->touched.count; t++) {
    const int s = f->touched.items[t], buffer_group = program->storages.items[s].buffer_group;
    const usage *about = &f->usages[s];
    if (buffer_group < 0 || about->once || f->body_once[b] ||
        program->buffer_groups.items[buffer_group].pool != LS_POOL_WORK ||
        (about->born == b) == (about->dies == b) ||
        f->buffer_group_born[buffer_group] != about->born ||
        (about->dies == b && !f->buffer_group_ends[buffer_group]))
      continue;
    int r = 0;
    while (r < count && spaces[r].buffer_group != buffer_group) r++;
    if (r == count)
      spaces[count++] =
          (free_space){.buffer_group = buffer_group,
                       .space = {.alignment = program->alignment,
                                 .limit = program->buffer_groups.items[buffer_group].bytes}};
    const ls_storage *placed = &program->storages.items[s];
    const ls_life_box box = {.bytes = placed->bytes,
                             .offset = placed->offset,
                             .first = about->born == b ? about->begin : body->first,
                             .last = about->dies == b ? about->end : body->first + body->count};
    ls_space_add(program->arena, &spaces[r].space, &box);
  }
  return count;
}

/* The first space with a place; the last is the scratch, whose buffer group is made when it is
 * needed. */
static void place_temporary(grouper *f, int b, free_space *spaces, int count, ls_life_box *box) {
  int r = 0;
  while (!ls_space_place(f->program->arena, &spaces[r].space, box)) r++;
  LS_ASSERT(r < count);
  if (spaces[r].buffer_group < 0)
    spaces[r].buffer_group = new_buffer_group(
        f, "scratch", &(ls_storage_plan){LS_POOL_WORK, LS_CATEGORY_TEMPORARIES, false},
        &(usage){.born = b, .dies = b});
  ls_storage *storage = &f->program->storages.items[box->about];
  storage->buffer_group = spaces[r].buffer_group;
  storage->offset = box->offset;
}

static void place_temporaries(grouper *f, int b, free_space *spaces) {
  ls_program *program = f->program;
  const ls_body *body = &program->bodies.items[b];
  f->touched.count = 0;
  for (int i = body->first; i < body->first + body->count; i++)
    each_storage(program, &program->instructions.items[i], note_instruction, &(moment){f, b, i});
  const int scratch = open_spaces(f, b, spaces);
  spaces[scratch] =
      (free_space){.buffer_group = -1, .space = {.alignment = program->alignment, .limit = -1}};
  ls_life_box *boxes = LS_NEW_ARRAY(program->arena, ls_life_box, f->touched.count + 1);
  int count = 0;
  for (int t = 0; t < f->touched.count; t++) {
    const int s = f->touched.items[t];
    const usage *about = &f->usages[s];
    if (is_temporary(f, s))
      boxes[count++] =
          (ls_life_box){program->storages.items[s].bytes, 0, about->begin, about->end, s};
  }
  ls_life_boxes_sort(boxes, count);
  for (int i = 0; i < count; i++) place_temporary(f, b, spaces, scratch + 1, &boxes[i]);
  if (spaces[scratch].buffer_group >= 0)
    program->buffer_groups.items[spaces[scratch].buffer_group].bytes = spaces[scratch].space.bytes;
  for (int t = 0; t < f->touched.count; t++) f->usages[f->touched.items[t]].begin = UNTOUCHED;
}

static bool share_memory(const ls_program *program, int a, int b) {
  const ls_storage *first = &program->storages.items[program->values.items[a].storage];
  const ls_storage *second = &program->storages.items[program->values.items[b].storage];
  return first->buffer_group == second->buffer_group &&
         first->offset < second->offset + second->bytes &&
         second->offset < first->offset + first->bytes;
}

static bool writes_what_other_touches(const ls_program *program, const ls_instruction *writer,
                                      const ls_instruction *other) {
  for (int o = 0; o < writer->outputs; o++) {
    for (int i = 0; i < other->inputs; i++)
      if (share_memory(program, writer->out[o], other->in[i])) return true;
    for (int p = 0; p < other->outputs; p++)
      if (share_memory(program, writer->out[o], other->out[p])) return true;
  }
  return false;
}

/* Of two transfers, an end needs no event: all that follows waits for it, and while it is under way
 * no other begins that shares memory with it. */
static bool is_end_of_two(const ls_instruction *a, const ls_instruction *b) {
  return a->queue == LS_QUEUE_COMMUNICATE && b->queue == LS_QUEUE_COMMUNICATE &&
         (a->phase == LS_END || b->phase == LS_END);
}

/* The event an instruction waits for: the latest one on another queue, earlier in its body, that
 * shares memory with it. Bodies begin after all that came before is done. */
static void find_waits(ls_program *program, const ls_body *body, int *run) {
  ls_instruction *items = &program->instructions.items[body->first];
  for (int i = 0; i < body->count; i++) { /* run: where others of its queue before it begin */
    ls_instruction *later = &items[i];
    const int queue = ls_queues_number(&ls_queues_nccl, later);
    const bool beside = i > 0 && ls_queues_number(&ls_queues_nccl, &items[i - 1]) == queue;
    run[i] = beside ? run[i - 1] : i;
    for (int j = i - 1; j >= 0 && later->wait < 0; j--) {
      const ls_instruction *earlier = &items[j];
      if (ls_queues_number(&ls_queues_nccl, earlier) == queue)
        j = run[j];
      else if (!is_end_of_two(earlier, later) &&
               (writes_what_other_touches(program, earlier, later) ||
                writes_what_other_touches(program, later, earlier)))
        later->wait = body->first + j;
    }
  }
}

void ls_lower_buffer_groups(ls_lowering *lowering) {
  ls_program *program = lowering->program;
  ls_arena *arena = program->arena;
  grouper f = {.lowering = lowering, .program = program};
  const int most = program->storages.count + program->bodies.count;
  f.buffer_group_born = LS_NEW_ARRAY(arena, int, most + 1);
  f.buffer_group_dies = LS_NEW_ARRAY(arena, int, most + 1);
  f.buffer_group_once = LS_NEW_ARRAY(arena, bool, most + 1);
  f.buffer_group_moves = LS_NEW_ARRAY(arena, bool, most + 1);
  f.next = LS_NEW_ARRAY(arena, int, most + 1);
  f.noted_in = LS_NEW_ARRAY(arena, int, most + 1);
  f.last_born = LS_NEW_ARRAY(arena, int, program->bodies.count + 2);
  for (int b = 0; b < program->bodies.count + 2; b++) f.last_born[b] = -1;
  find_usages(&f);
  place_kept(&f);
  note_buffer_groups(&f);
  find_ends(&f);
  free_space *spaces = LS_NEW_ARRAY(arena, free_space, program->storages.count + 1);
  for (int b = 0; b < program->bodies.count; b++) place_temporaries(&f, b, spaces);
  note_buffer_groups(&f);
  int *run = LS_NEW_ARRAY(arena, int, program->instructions.count + 1);
  for (int b = 0; b < program->bodies.count; b++)
    find_waits(program, &program->bodies.items[b], run);
}
