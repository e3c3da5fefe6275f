#include "ir/owners.h"

#include <stdlib.h>

ls_axes ls_owner_axes(const ls_mesh *mesh) {
  return ls_mesh_active(mesh, ls_mesh_inside(mesh));
}

ls_placement ls_owner_placement(const ls_mesh *mesh) {
  const ls_axes axes = ls_owner_axes(mesh);
  ls_placement made = {0};
  for (int a = 0; a < mesh->count; a++)
    if (axes >> a & 1) made.on[a] = ls_place_flat(&mesh->axes[a]);
  return made;
}

typedef struct dealing {
  const ls_program *program;
  const ls_value *shards, *owned; /* the unit's buffer, and that of owners */
  bool back;
  ls_axis_order group;
  int first; /* a rank of the stage */
  ls_deal_visit *visit;
  void *context;
} dealing;

static dealing dealing_of(const ls_program *program, const ls_instruction *instruction) {
  const bool back = instruction->collective == LS_HAND_BACK;
  const ls_value *in = &program->values.items[instruction->in[0]];
  const ls_value *out = &program->values.items[instruction->out[0]];
  return (dealing){.program = program,
                   .shards = back ? out : in,
                   .owned = back ? in : out,
                   .back = back,
                   .group = ls_instruction_group(program, instruction),
                   .first = program->stage * ls_mesh_stage_ranks(&program->mesh)};
}

/* Elements from the beginning of what a rank has of a unit's buffer. */
static int64_t place_in(const dealing *of, int rank, const ls_value *buffer,
                        const ls_local *local) {
  const ls_local whole = ls_value_local(of->program, rank, buffer);
  return (local->offset - whole.offset) / (int64_t)ls_dtype_bytes(buffer->dtype);
}

int ls_deal_owner(const ls_program *program, const ls_instruction *instruction, int parameter) {
  const dealing of = dealing_of(program, instruction);
  return (int)(program->parameters[parameter].owned / ls_value_shard(&program->mesh, of.owned));
}

/* `rows` rows of a matrix, or a part of one, from element (row, column) of the whole on. */
typedef struct stretch {
  int member, owner;
  int64_t place, stride; /* of the rank that holds them */
  int64_t matrix;        /* where the matrix begins in its owner's buffer */
  int64_t columns;
} stretch;

static void take(const dealing *of, const stretch *s, int64_t i, int64_t row, int64_t column,
                 int64_t rows, int64_t width) {
  if (rows <= 0 || width <= 0) return;
  const int64_t here = s->place + i, there = s->matrix + row * s->columns + column;
  const ls_deal_piece made = {.from = of->back ? s->owner : s->member,
                              .to = of->back ? s->member : s->owner,
                              .source = of->back ? there : here,
                              .target = of->back ? here : there,
                              .source_stride = of->back ? s->columns : s->stride,
                              .target_stride = of->back ? s->stride : s->columns,
                              .rows = rows,
                              .width = width};
  of->visit(of->context, &made);
}

static int64_t smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* What a rank holds of a matrix: it may begin and end inside a row, whose last columns may be
 * padding. */
static void take_range(const dealing *of, const stretch *s, const ls_local *local) {
  const int64_t count = local->valid[0], stride = s->stride;
  const int64_t first = local->start[0] / stride, skipped = local->start[0] % stride;
  const int64_t row = local->start[1] + first, column = local->start[2];
  const int64_t width = smaller(stride, s->columns - column);
  if (stride == s->columns) {
    take(of, s, 0, row, skipped, 1, count);
    return;
  }
  const int64_t head = skipped ? smaller(stride - skipped, count) : 0;
  const int64_t rows = (count - head) / stride, rest = (count - head) % stride;
  take(of, s, 0, row, column + skipped, 1, smaller(head, width - skipped));
  take(of, s, head, row + (skipped > 0), column, rows, width);
  take(of, s, head + rows * stride, row + (skipped > 0) + rows, column, 1, smaller(rest, width));
}

/* Whether of ranks that hold the same elements this one is as the owner is. */
static bool gives(const ls_mesh *mesh, const ls_value *value, int rank, int owner) {
  const ls_axes alike = ls_owner_axes(mesh) & ls_value_replicas(mesh, value);
  for (int a = 0; a < mesh->count; a++)
    if (alike >> a & 1 && ls_mesh_coordinate(mesh, rank, a) != ls_mesh_coordinate(mesh, owner, a))
      return false;
  return true;
}

static void take_matrix(const dealing *of, int parameter) {
  const ls_mesh *mesh = &of->program->mesh;
  const ls_program_parameter *about = &of->program->parameters[parameter];
  const int64_t shard = ls_value_shard(mesh, of->owned);
  const int ranks = ls_mesh_stage_ranks(mesh), owner = (int)(about->owned / shard);
  const int owner_rank = ls_mesh_member(mesh, of->first, of->group, owner);
  ls_value value = of->program->values.items[about->part[LS_PART_MASTER]];
  value.storage = of->shards->storage;
  for (int member = 0; member < ranks; member++) {
    const int rank = ls_mesh_member(mesh, of->first, of->group, member);
    const ls_local local = ls_value_local(of->program, rank, &value);
    const stretch s = {.member = member,
                       .owner = owner,
                       .place = place_in(of, rank, of->shards, &local),
                       .stride = local.dims[1],
                       .matrix = about->owned % shard,
                       .columns = about->dims[1]};
    if (local.valid[0] > 0 && (of->back || gives(mesh, &value, rank, owner_rank)))
      take_range(of, &s, &local);
  }
}

void ls_deal_pieces(const ls_program *program, const ls_instruction *instruction,
                    ls_deal_visit *visit, void *context) {
  dealing of = dealing_of(program, instruction);
  of.visit = visit;
  of.context = context;
  for (int p = 0; p < program->parameter_count; p++)
    if (program->parameters[p].unit == instruction->unit && program->parameters[p].owned >= 0)
      take_matrix(&of, p);
}

/* Elements that each member sends, and behind these, that each receives. */
typedef struct traffic {
  int64_t *elements;
  int ranks;
} traffic;

static void count_piece(void *context, const ls_deal_piece *piece) {
  const traffic *of = context;
  if (piece->from == piece->to) return;
  of->elements[piece->from] += piece->rows * piece->width;
  of->elements[of->ranks + piece->to] += piece->rows * piece->width;
}

int64_t ls_deal_most(const ls_program *program, const ls_instruction *instruction) {
  ls_arena *arena = ls_arena_create();
  traffic of = {.ranks = ls_mesh_stage_ranks(&program->mesh)};
  of.elements = LS_NEW_ARRAY(arena, int64_t, 2 * (size_t)of.ranks);
  int64_t most = 0;
  ls_deal_pieces(program, instruction, count_piece, &of);
  for (int i = 0; i < 2 * of.ranks; i++)
    if (of.elements[i] > most) most = of.elements[i];
  ls_arena_destroy(&arena);
  return most;
}
