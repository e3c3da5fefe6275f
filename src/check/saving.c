/* Saving and loading: over all ranks each element of what is saved is written once, by a rank that
 * has it, from where it lies; each rank's every element is filled, at its place; and the tensors of
 * a checkpoint are made of all these once. What a rank has follows from the placements alone. */
#include <stdlib.h>
#include <string.h>

#include "check/proof.h"

/* What ls_proof_walks is told of a piece and its tensor, as numbers: of those alike once is enough.
 */
enum { WALK_NUMBERS = 10 };
typedef struct walked {
  int64_t numbers[WALK_NUMBERS];
} walked;

typedef struct saving {
  ls_arena *arena;
  const ls_program *program; /* of the stage at hand */
  int first_rank, ranks;     /* of the stage */
  const ls_state_lists *lists;
  ls_stored_walk *walk;
  LS_LIST(walked) walked; /* pieces that lie where they should */
  int *walked_by_hash;    /* 1 + the place in `walked`; 0: none */
  uint64_t walked_most;   /* a power of two above the pieces there are */
  ls_saving_report report;
} saving;

/* What a rank has of a part: elements [first, end) of its tensor as tensor axes cut it, which is
 * `stride` wide and of which `cut` of the whole exists. */
typedef struct holding {
  int storage;
  ls_box cut;
  int64_t first, end, stride;
  int64_t offset, bytes; /* of element `first`, in its buffer group; of an element */
} holding;

/* A rank, a parameter and a part of it. */
typedef struct subject {
  int rank, parameter;
  ls_state_part part;
} subject;

static ls_status fail_saving(const saving *self, const subject *of, ls_error *error,
                             const char *what) {
  return ls_fail(error, LS_REFUTED, "rank %d, %s of %s: %s", of->rank,
                 ls_state_row_of(of->part)->name, self->program->parameters[of->parameter].name,
                 what);
}

static int64_t larger(int64_t a, int64_t b) {
  return a > b ? a : b;
}

static int64_t smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* Rows and columns of a part in a checkpoint. */
static ls_state_size size_of(const ls_program *program, int parameter, ls_state_part part) {
  const ls_program_parameter *about = &program->parameters[parameter];
  return ls_state_size_of(part, about->ndim, about->dims);
}

static ls_box cut_of(const saving *self, const subject *of, int64_t *stride) {
  *stride = 1;
  if (ls_state_row_of(of->part)->whole)
    return (ls_box){.rows = size_of(self->program, of->parameter, of->part).rows, .columns = 1};
  const ls_mesh *mesh = &self->program->mesh;
  const ls_program_parameter *parameter = &self->program->parameters[of->parameter];
  const ls_placement *used = &self->program->values.items[parameter->part[LS_PART_USED]].placement;
  const ls_part rows = ls_mesh_part(mesh, of->rank, used, 0, parameter->dims[0]);
  ls_part columns = {1, 1, 0};
  if (parameter->ndim > 1) columns = ls_mesh_part(mesh, of->rank, used, 1, parameter->dims[1]);
  *stride = columns.stored;
  return (ls_box){rows.start, rows.valid, columns.start, columns.valid};
}

/* The unit's flat buffer is cut into equal shards over the axes where it is S(flat). */
static holding find_holding(const saving *self, const subject *of) {
  const ls_program *program = self->program;
  const ls_value *value = &program->values.items[program->parameters[of->parameter].part[of->part]];
  const ls_storage *storage = &program->storages.items[value->storage];
  const int64_t bytes = (int64_t)ls_dtype_bytes(value->dtype);
  const ls_axes flat = ls_placement_axes(&program->mesh, &value->placement, LS_SHARDED_FLAT, -1);
  const int64_t shard = value->flat_elements / ls_mesh_size(&program->mesh, flat);
  const int64_t begin =
      shard * ls_mesh_index(&program->mesh, of->rank, ls_placement_order(&value->placement, flat));
  const bool whole = storage->bytes >= value->flat_elements * bytes;
  holding made = {.storage = value->storage, .bytes = bytes, .stride = 1};
  made.first = larger(0, begin - value->flat_offset);
  if (smaller(value->global[0], begin + shard - value->flat_offset) <= made.first) {
    made.end = made.first; /* nothing: most ranks have no part of most parameters */
    return made;
  }
  made.cut = cut_of(self, of, &made.stride);
  made.end =
      larger(made.first, smaller(made.cut.rows * made.stride, begin + shard - value->flat_offset));
  made.offset = storage->offset + (value->flat_offset + made.first - (whole ? 0 : begin)) * bytes;
  return made;
}

/* One storage has of a part what another has of another one, at the same place. */
static bool lies_as(const ls_program *program, int a, int b) {
  const ls_value *left = &program->values.items[a], *right = &program->values.items[b];
  const ls_storage *of_left = &program->storages.items[left->storage];
  const ls_storage *of_right = &program->storages.items[right->storage];
  return left->dtype == right->dtype && left->flat_elements == right->flat_elements &&
         left->flat_offset == right->flat_offset && left->global[0] == right->global[0] &&
         left->offset == right->offset && of_left->bytes == of_right->bytes &&
         ls_placement_equal(&program->mesh, &left->placement, &right->placement,
                            ls_mesh_inside(&program->mesh));
}

/* What a rank has of a part follows from its coordinates on the axes that cut the tensor or the
 * unit's buffer. So ranks equal on these may all fill by the list of one, but not save by it; a
 * rank whose shard does not meet the parameter needs no list; and nor does a part that lies as
 * another. */
static ls_status check_class(const saving *self, const subject *of, const ls_state_class *class,
                             bool saves, ls_error *error) {
  const ls_program *program = self->program;
  const ls_mesh *mesh = &program->mesh;
  const int *parts = program->parameters[of->parameter].part;
  const ls_value *value = &program->values.items[parts[of->part]];
  const ls_placement *used = &program->values.items[parts[LS_PART_USED]].placement;
  const ls_axes flat = ls_placement_axes(mesh, &value->placement, LS_SHARDED_FLAT, -1);
  const ls_axes cut = flat | ls_placement_axes(mesh, used, LS_SHARDED, -1);
  const ls_axes needed = saves ? ls_mesh_active(mesh, ls_mesh_inside(mesh)) : cut;
  const int64_t shard = value->flat_elements / ls_mesh_size(mesh, flat);
  if (needed & ~class->axes || class->axes & ~ls_mesh_inside(mesh))
    return fail_saving(self, of, error, "has a list for too many ranks: expected one's own");
  if (class->flat != flat ||
      class->shards.axes != ls_placement_order(&value->placement, flat).axes || class->first < 0 ||
      class->end > ls_mesh_size(mesh, flat) || class->first * shard > value->flat_offset ||
      class->end * shard < value->flat_offset + value->global[0])
    return fail_saving(self, of, error, "is left out for ranks that have it: expected all of them");
  if (class->part == of->part) return LS_OK;
  const ls_state_class asked =
      (saves ? self->lists->saves : self->lists->fills)(program, of->parameter, class->part);
  if (class->part > of->part || !ls_state_is_own(program, of->parameter, class->part) ||
      !lies_as(program, parts[class->part], parts[of->part]) || asked.part != class->part ||
      asked.axes != class->axes || asked.shards.axes != class->shards.axes ||
      asked.first != class->first || asked.end != class->end)
    return fail_saving(self, of, error, "has the list of a part that lies otherwise");
  return LS_OK;
}

static int class_size(const saving *self, const ls_state_class *class) {
  return (class->end - class->first) *
         ls_mesh_size(&self->program->mesh, class->axes & ~class->flat);
}

/* The rank of the class that is asked as number `index`. */
static int class_rank(const saving *self, const ls_state_class *class, int index) {
  const ls_mesh *mesh = &self->program->mesh;
  const int shards = class->end - class->first;
  return self->first_rank + ls_mesh_member(mesh, 0, class->shards, class->first + index % shards) +
         ls_mesh_member(mesh, 0, ls_mesh_order(class->axes & ~class->flat), index / shards);
}

/* Of its first elements, those that are no padding of a row. */
static int64_t count_before(const holding *of, int64_t elements) {
  return elements / of->stride * of->cut.columns + smaller(elements % of->stride, of->cut.columns);
}

static bool inside(const ls_box *box, const ls_box *cut) {
  return box->rows > 0 && box->columns > 0 && box->row >= cut->row && box->column >= cut->column &&
         box->row + box->rows <= cut->row + cut->rows &&
         box->column + box->columns <= cut->column + cut->columns;
}

/* The rank has the range, and there. */
static ls_status check_place(const saving *self, const subject *of, const holding *has,
                             const ls_state_range *range, ls_error *error) {
  const ls_box *box = &range->box;
  if (self->program->values.items[range->value].storage != has->storage)
    return fail_saving(self, of, error, "is of another part: expected this one");
  if (!inside(box, &has->cut))
    return fail_saving(self, of, error, "reaches beyond what the rank has: expected a part of it");
  const int64_t first = (box->row - has->cut.row) * has->stride + box->column - has->cut.column;
  const int64_t end = first + (box->rows - 1) * has->stride + box->columns;
  if (first < has->first || end > has->end)
    return fail_saving(self, of, error, "is of another rank's shard: expected its own elements");
  if (range->offset != has->offset + (first - has->first) * has->bytes ||
      (box->rows > 1 && range->stride != has->stride))
    return fail_saving(self, of, error, "lies elsewhere in the rank's memory: expected its place");
  return LS_OK;
}

static bool apart(const ls_box *a, const ls_box *b) {
  return a->row + a->rows <= b->row || b->row + b->rows <= a->row ||
         a->column + a->columns <= b->column || b->column + b->columns <= a->column;
}

/* The ranges are all of what the rank has, each element once. */
static ls_status check_filled(const saving *self, const subject *of, const ls_state_range *ranges,
                              int count, ls_error *error) {
  const holding has = find_holding(self, of);
  int64_t elements = 0;
  for (int i = 0; i < count; i++) {
    LS_TRY(check_place(self, of, &has, &ranges[i], error));
    elements += ls_box_elements(&ranges[i].box);
    for (int j = 0; j < i; j++)
      if (!apart(&ranges[j].box, &ranges[i].box))
        return fail_saving(self, of, error, "is filled twice: expected each element once");
  }
  if (elements == count_before(&has, has.end) - count_before(&has, has.first)) return LS_OK;
  return fail_saving(self, of, error, "is not all filled: expected every element that it has");
}

/* A view of the weights is filled with them. */
static ls_status check_loading(saving *self, int parameter, ls_error *error) {
  const ls_mesh *mesh = &self->program->mesh;
  int64_t filled[LS_PART_COUNT] = {0};
  for (int part = 0; part < LS_PART_COUNT; part++) {
    if (!ls_state_is_own(self->program, parameter, (ls_state_part)part)) continue;
    subject of = {self->first_rank, parameter, (ls_state_part)part};
    const ls_state_class class = self->lists->fills(self->program, parameter, of.part);
    LS_TRY(check_class(self, &of, &class, false, error));
    filled[part] = filled[class.part];
    const int asked = class.part == of.part ? class_size(self, &class) : 0;
    const int alike = self->ranks / ls_mesh_size(mesh, class.axes);
    for (int i = 0; i < asked; i++) {
      ls_state_range ranges[LS_MOST_RANGES];
      of.rank = class_rank(self, &class, i);
      const int count = self->lists->filled(self->program, of.rank, parameter, of.part, ranges);
      LS_TRY(check_filled(self, &of, ranges, count, error));
      filled[part] += (int64_t)count * alike;
    }
    self->report.filled += filled[part];
  }
  return LS_OK;
}

/* From this column on, the rows above `row` are covered. */
typedef struct edge {
  int64_t column, row;
} edge;

typedef LS_LIST(edge) edges;

/* The edge that begins at the column, made where there is none. */
static int split(ls_arena *arena, edges *of, int64_t column) {
  int i = of->count;
  while (i > 0 && of->items[i - 1].column >= column) i--;
  if (i < of->count && of->items[i].column == column) return i;
  LS_APPEND(arena, of);
  memmove(of->items + i + 1, of->items + i, sizeof *of->items * (size_t)(of->count - 1 - i));
  of->items[i] = (edge){column, of->items[i - 1].row};
  return i;
}

/* Puts a box on those before it, which must end where it begins. */
static bool lay_box(ls_arena *arena, edges *of, const ls_box *box, int64_t columns) {
  const int64_t end = box->column + box->columns;
  const int from = split(arena, of, box->column);
  const int to = end < columns ? split(arena, of, end) : of->count;
  for (int i = from; i < to; i++)
    if (of->items[i].row != box->row) return false;
  of->items[from].row = box->row + box->rows;
  int kept = from > 0 && of->items[from - 1].row == of->items[from].row ? from : from + 1;
  for (int i = to; i < of->count; i++)
    if (of->items[i].row != of->items[kept - 1].row) of->items[kept++] = of->items[i];
  of->count = kept;
  return true;
}

static int by_place(const void *a, const void *b) {
  const ls_box *left = a, *right = b;
  const int rows = (left->row > right->row) - (left->row < right->row);
  return rows ? rows : (left->column > right->column) - (left->column < right->column);
}

/* Whether together they are each element of the matrix once. */
static bool is_each_once(ls_arena *arena, ls_box *boxes, int count, int64_t rows, int64_t columns) {
  edges covered = {0};
  *LS_APPEND(arena, &covered) = (edge){0, 0};
  bool sorted = true; /* as the ranks of one cut are */
  for (int i = 1; i < count && sorted; i++) sorted = by_place(&boxes[i - 1], &boxes[i]) <= 0;
  if (!sorted) qsort(boxes, (size_t)count, sizeof *boxes, by_place);
  for (int i = 0; i < count; i++)
    if (!lay_box(arena, &covered, &boxes[i], columns)) return false;
  return covered.count == 1 && covered.items[0].row == rows;
}

typedef LS_LIST(ls_box) box_list;

/* What all ranks of a stage save of a part. */
static ls_status check_part(saving *self, subject of, const ls_state_class *class, box_list *boxes,
                            ls_error *error) {
  const ls_program_parameter *about = &self->program->parameters[of.parameter];
  const int asked = class_size(self, class);
  boxes->count = 0;
  for (int i = 0; i < asked; i++) {
    ls_state_range ranges[LS_MOST_RANGES];
    of.rank = class_rank(self, class, i);
    const int count = self->lists->saved(self->program, of.rank, of.parameter, of.part, ranges);
    if (count && !about->owner)
      return fail_saving(self, &of, error, "is saved by another stage: expected it once");
    if (count == 0) continue;
    const holding has = find_holding(self, &of);
    for (int r = 0; r < count; r++) {
      LS_TRY(check_place(self, &of, &has, &ranges[r], error));
      *LS_APPEND(self->arena, boxes) = ranges[r].box;
    }
  }
  of.rank = self->first_rank;
  const ls_state_size size = size_of(self->program, of.parameter, of.part);
  if (!about->owner ||
      is_each_once(self->arena, boxes->items, boxes->count, size.rows, size.columns))
    return LS_OK;
  return fail_saving(self, &of, error,
                     "is not saved once by all ranks of the stage together: expected each element "
                     "once");
}

static bool is_saved(const ls_program_parameter *parameter, ls_state_part part) {
  const ls_state_row *row = ls_state_row_of(part);
  return row->saved && (part == LS_PART_MASTER || parameter->part[part] >= 0);
}

static ls_status check_saved(saving *self, int parameter, box_list *boxes, ls_error *error) {
  const ls_program_parameter *about = &self->program->parameters[parameter];
  int saved[LS_PART_COUNT];
  for (int part = 0; part < LS_PART_COUNT; part++) saved[part] = -1;
  for (int part = 0; part < LS_PART_COUNT; part++) {
    if (!is_saved(about, (ls_state_part)part)) continue;
    subject of = {self->first_rank, parameter, (ls_state_part)part};
    if (part == LS_PART_MASTER && !about->trainable) of.part = LS_PART_STORED;
    if (about->part[of.part] < 0)
      return fail_saving(self, &of, error, "is nowhere: expected it on its stage");
    const ls_state_class class = self->lists->saves(self->program, parameter, of.part);
    LS_TRY(check_class(self, &of, &class, true, error));
    of.part = class.part;
    if (saved[class.part] < 0) {
      LS_TRY(check_part(self, of, &class, boxes, error));
      saved[class.part] = boxes->count;
    }
    self->report.saved += saved[class.part];
  }
  return LS_OK;
}

/* Ranks of a parameter's class are asked, by which all others have theirs (ls_state_class). */
static ls_status check_stage(saving *self, ls_error *error) {
  box_list boxes = {0};
  for (int p = 0; p < self->program->parameter_count; p++) {
    if (!self->program->parameters[p].present) continue;
    LS_TRY(check_saved(self, p, &boxes, error));
    LS_TRY(check_loading(self, p, error));
  }
  return LS_OK;
}

static void open_walked(saving *self, const ls_stored_layout *tensors, int count) {
  uint64_t pieces = 0;
  for (int t = 0; t < count; t++) pieces += (uint64_t)tensors[t].pieces.count;
  for (self->walked_most = 1; self->walked_most <= 2 * pieces;) self->walked_most *= 2;
  self->walked_by_hash = LS_NEW_ARRAY(self->arena, int, (int64_t)self->walked_most);
}

static int *find_walked(const saving *self, const walked *asked) {
  uint64_t hash = 0;
  for (int n = 0; n < WALK_NUMBERS; n++) {
    hash = (hash ^ (uint64_t)asked->numbers[n]) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
  }
  uint64_t at = hash & (self->walked_most - 1);
  while (self->walked_by_hash[at] &&
         memcmp(&self->walked.items[self->walked_by_hash[at] - 1], asked, sizeof *asked) != 0)
    at = (at + 1) & (self->walked_most - 1);
  return &self->walked_by_hash[at];
}

static bool walks(saving *self, const ls_stored_layout *tensor, const ls_weight_piece *piece) {
  const walked asked = {{tensor->ndim, tensor->dims[0], tensor->dims[1], tensor->stack,
                         tensor->transposed, piece->first, piece->offset, piece->rows, piece->block,
                         piece->period}};
  int *known = find_walked(self, &asked);
  if (*known) return true;
  if (!ls_proof_walks(tensor, piece, self->walk)) return false;
  *LS_APPEND(self->arena, &self->walked) = asked;
  *known = self->walked.count;
  return true;
}

/* A stored tensor is its pieces' rows, block by block, each of its own rows once. */
static ls_status check_tensor(saving *self, const ls_stored_layout *tensor, box_list *blocks,
                              ls_error *error) {
  const ls_program *program = self->program;
  const int64_t out = tensor->dims[tensor->ndim > 1 && tensor->transposed];
  bool fits = tensor->pieces.count > 0 && tensor->stack >= 0 && out > 0;
  blocks->count = 0;
  for (int i = 0; i < tensor->pieces.count && fits; i++) {
    const ls_weight_piece *piece = &tensor->pieces.items[i];
    fits = piece->parameter >= 0 && piece->parameter < program->parameter_count &&
           piece->block > 0 && piece->rows % piece->block == 0;
    if (!fits) break;
    const ls_program_parameter *about = &program->parameters[piece->parameter];
    const ls_state_size size = size_of(program, piece->parameter, tensor->part);
    const int ndim = ls_state_row_of(tensor->part)->whole ? 1 : about->ndim;
    fits = ndim == tensor->ndim && piece->first >= 0 && piece->rows > 0 &&
           piece->first + piece->rows <= size.rows &&
           (ndim == 1 || size.columns * ls_precision_numbers(about->precision) ==
                             tensor->dims[!tensor->transposed]);
    /* Of matrices that are turned each is a piece, in its turn. */
    const bool turned = tensor->stack > 0 && tensor->transposed;
    if (turned) fits = fits && piece->first % out == 0 && piece->rows == out;
    for (int64_t b = 0; b < piece->rows / piece->block; b++)
      *LS_APPEND(self->arena, blocks) = (ls_box){
          (turned ? piece->first : 0) + piece->offset + b * piece->period, piece->block, 0, 1};
  }
  const int64_t all = tensor->stack > 0 ? tensor->stack * out : out;
  if (!fits || !is_each_once(self->arena, blocks->items, blocks->count, all, 1))
    return ls_fail(error, LS_REFUTED,
                   "%s: is not made of its parameters' rows, each once: expected all of them",
                   tensor->name);
  for (int i = 0; i < tensor->pieces.count; i++)
    if (!walks(self, tensor, &tensor->pieces.items[i]))
      return ls_fail(error, LS_REFUTED, "%s: %s is read or written elsewhere than where it lies",
                     tensor->name, program->parameters[tensor->pieces.items[i].parameter].name);
  return LS_OK;
}

static ls_status fail_rows(const saving *self, int parameter, ls_state_part part, ls_error *error) {
  return ls_fail(error, LS_REFUTED,
                 "%s of %s: its rows are not each in one tensor of a checkpoint: expected all, in "
                 "their order",
                 ls_state_row_of(part)->name, self->program->parameters[parameter].name);
}

/* Pieces of one parameter come in the order of its rows: how many it has behind this one; -1: it
 * follows on none. */
static int64_t rows_after(const ls_weight_piece *piece, int64_t rows) {
  return piece->first == rows ? rows + piece->rows : -1;
}

/* Each saved part of each parameter is in one tensor, or in tensors of its rows, each once, and
 * nothing else is. */
static ls_status check_tensors(saving *self, const ls_program *const *stages, int count,
                               const ls_stored_layout *tensors, int tensor_count, ls_error *error) {
  const int parameters = self->program->parameter_count;
  int *times = LS_NEW_ARRAY(self->arena, int, (int64_t)parameters *LS_PART_COUNT);
  int64_t *rows = LS_NEW_ARRAY(self->arena, int64_t, (int64_t)parameters * LS_PART_COUNT);
  box_list blocks = {0};
  open_walked(self, tensors, tensor_count);
  for (int t = 0; t < tensor_count; t++) {
    LS_TRY(check_tensor(self, &tensors[t], &blocks, error));
    for (int i = 0; i < tensors[t].pieces.count; i++) {
      const ls_weight_piece *piece = &tensors[t].pieces.items[i];
      const int64_t at = (int64_t)piece->parameter * LS_PART_COUNT + (int)tensors[t].part;
      if (piece->first == 0) {
        times[at]++;
        rows[at] = 0;
      }
      rows[at] = rows_after(piece, rows[at]);
      if (rows[at] < 0) return fail_rows(self, piece->parameter, tensors[t].part, error);
    }
  }
  self->report.tensors = tensor_count;
  for (int p = 0; p < parameters; p++)
    for (int part = 0; part < LS_PART_COUNT; part++) {
      int wanted = 0;
      for (int s = 0; s < count; s++) {
        const ls_program_parameter *about = &stages[s]->parameters[p];
        wanted |= about->present && is_saved(about, (ls_state_part)part);
      }
      if (times[p * LS_PART_COUNT + part] != wanted)
        return ls_fail(error, LS_REFUTED, "%s of %s: is in %d tensors of a checkpoint: expected %d",
                       ls_state_row_of((ls_state_part)part)->name,
                       self->program->parameters[p].name, times[p * LS_PART_COUNT + part], wanted);
      if (wanted &&
          rows[p * LS_PART_COUNT + part] != size_of(self->program, p, (ls_state_part)part).rows)
        return fail_rows(self, p, (ls_state_part)part, error);
    }
  return LS_OK;
}

ls_status ls_check_saving(const ls_program *const *stages, int count, const ls_state_lists *lists,
                          const ls_stored_layout *tensors, int tensor_count, ls_stored_walk *walk,
                          ls_saving_report *report, ls_error *error) {
  saving self = {.arena = ls_arena_create(), .program = stages[0], .lists = lists, .walk = walk};
  ls_status status = check_tensors(&self, stages, count, tensors, tensor_count, error);
  for (int s = 0; s < count && status == LS_OK; s++) {
    self.program = stages[s];
    self.ranks = ls_mesh_stage_ranks(&self.program->mesh);
    self.first_rank = s * self.ranks;
    status = check_stage(&self, error);
  }
  if (report) *report = self.report;
  ls_arena_destroy(&self.arena);
  return status;
}
