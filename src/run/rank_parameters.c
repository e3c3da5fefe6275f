#include "run/rank_parameters.h"
#include "run/rank_memory.h"

#include <string.h>

/* Elements of a parameter smaller than a page of fp32 are given by one rank alone. */
enum { LEAST_GIVEN = 1024 };

/* This rank's share of one part of a parameter: elements [first, first + count) of its tp-cut
 * tensor, which is `stride` wide in memory and has `cut` of the whole. */
typedef struct share {
  const ls_rank *rank;
  char *data; /* of element first */
  ls_dtype dtype;
  int64_t first, count, stride;
  ls_box cut;
} share;

/* Memory of a caller: element (row, column) of the whole is its element row * stride + column -
 * first. */
typedef struct window {
  char *data;
  ls_dtype dtype;
  int64_t stride, first;
} window;

int64_t ls_program_parameter_elements(const ls_program_parameter *parameter) {
  int64_t elements = 1;
  for (int d = 0; d < parameter->ndim; d++) elements *= parameter->dims[d];
  return elements;
}

static int part_value(const ls_program_parameter *parameter, ls_state_part part) {
  if (part == LS_PART_MASTER && !parameter->trainable) part = LS_PART_STORED;
  return parameter->part[part];
}

static int64_t columns_of(const ls_program_parameter *parameter) {
  return parameter->ndim > 1 ? parameter->dims[1] : 1;
}

static share find_share(const ls_rank *rank, const ls_program_parameter *parameter, int value) {
  const ls_view piece = ls_rank_view(rank, 0, value, 0);
  const ls_view used = ls_rank_view(rank, 0, parameter->part[LS_PART_USED], 0);
  const bool matrix = parameter->ndim > 1;
  return (share){.rank = rank,
                 .data = piece.data,
                 .dtype = piece.dtype,
                 .first = piece.start[0],
                 .count = piece.valid[0],
                 .stride = matrix ? used.dims[1] : 1,
                 .cut = {.row = used.start[0],
                         .rows = used.valid[0],
                         .column = matrix ? used.start[1] : 0,
                         .columns = matrix ? used.valid[1] : 1}};
}

/* What of the whole elements [first, end) of the tp-cut tensor are. */
static int boxes_of(const share *of, int64_t first, int64_t end, ls_box boxes[LS_MOST_BOXES]) {
  ls_box local[LS_MOST_BOXES];
  const int cuts = ls_box_of_range(first, end, of->stride, local);
  int count = 0;
  for (int i = 0; i < cuts; i++) {
    local[i].row += of->cut.row;
    local[i].column += of->cut.column;
    if (ls_box_meet(&local[i], &of->cut, &boxes[count])) count++; /* the rest is padding */
  }
  return count;
}

static int kept(const share *of, ls_box boxes[LS_MOST_BOXES]) {
  return boxes_of(of, of->first, of->first + of->count, boxes);
}

/* Elements of a share, from or to `data`. */
static ls_status copy_run(const share *of, int64_t piece, int64_t count, char *data, ls_dtype dtype,
                          bool writes, ls_error *error) {
  enum { AT_ONCE = 1024 };
  const int64_t own = (int64_t)ls_dtype_bytes(of->dtype), given = (int64_t)ls_dtype_bytes(dtype);
  char *place = of->data + piece * own;
  if (of->dtype == dtype)
    return writes ? ls_rank_write_at(of->rank, place, data, count * own, error)
                  : ls_rank_read_at(of->rank, data, place, count * own, error);
  for (int64_t done = 0; done < count; done += AT_ONCE) {
    double buffer[AT_ONCE];
    const int64_t some = count - done < AT_ONCE ? count - done : AT_ONCE;
    if (writes) {
      ls_convert(buffer, of->dtype, data + done * given, dtype, some);
      LS_TRY(ls_rank_write_at(of->rank, place + done * own, buffer, some * own, error));
    } else {
      LS_TRY(ls_rank_read_at(of->rank, buffer, place + done * own, some * own, error));
      ls_convert(data + done * given, dtype, buffer, of->dtype, some);
    }
  }
  return LS_OK;
}

/* A box that lies in the share whole. */
static ls_status copy_box(const share *of, const ls_box *box, const window *with, bool writes,
                          ls_error *error) {
  const bool joined = box->columns == of->stride && box->columns == with->stride;
  const int64_t element = (int64_t)ls_dtype_bytes(with->dtype);
  for (int64_t row = box->row; row < box->row + box->rows; row++) {
    const int64_t piece = (row - of->cut.row) * of->stride + box->column - of->cut.column;
    char *data = with->data + (row * with->stride + box->column - with->first) * element;
    const int64_t count = joined ? ls_box_elements(box) : box->columns;
    LS_TRY(copy_run(of, piece - of->first, count, data, with->dtype, writes, error));
    if (joined) break;
  }
  return LS_OK;
}

/* What of `box` the share has. */
static ls_status copy(const share *of, const ls_box *box, const window *with, bool writes,
                      ls_error *error) {
  ls_box boxes[LS_MOST_BOXES], common;
  const int count = kept(of, boxes);
  for (int i = 0; i < count; i++)
    if (ls_box_meet(&boxes[i], box, &common)) LS_TRY(copy_box(of, &common, with, writes, error));
  return LS_OK;
}

static ls_status check_range(const ls_program_parameter *parameter, int value, int64_t first,
                             int64_t count, ls_error *error) {
  if (value < 0 && parameter->here)
    return ls_fail(error, LS_INTERNAL, "%s has no such part", parameter->name);
  if (first < 0 || count < 0 || first + count > ls_program_parameter_elements(parameter))
    return ls_fail(error, LS_INTERNAL, "%s: elements %lld to %lld are outside it", parameter->name,
                   (long long)first, (long long)(first + count));
  return LS_OK;
}

/* The window of a box alone. */
static window window_of(const ls_box *box, const void *data, ls_dtype dtype) {
  return (window){.data = (char *)(uintptr_t)data,
                  .dtype = dtype,
                  .stride = box->columns,
                  .first = box->row * box->columns + box->column};
}

/* Parameters stored whole lie on every rank, their masters in pieces. */
static ls_status write(ls_rank *rank, const ls_program_parameter *about, ls_state_part part,
                       const ls_box *box, const window *from, ls_error *error) {
  const share to = find_share(rank, about, part_value(about, part));
  LS_TRY(copy(&to, box, from, true, error));
  if (part != LS_PART_MASTER) return LS_OK;
  const share compute = find_share(rank, about, about->part[LS_PART_STORED]);
  const bool same = compute.data == to.data && compute.count == to.count;
  if (same && compute.dtype == to.dtype) return LS_OK;
  return copy(&compute, box, from, true, error);
}

ls_status ls_rank_write_parameter(ls_rank *rank, const ls_program *program, int parameter,
                                  ls_state_part part, int64_t first, int64_t count,
                                  const void *data, ls_dtype dtype, ls_error *error) {
  const ls_program_parameter *about = &program->parameters[parameter];
  LS_TRY(check_range(about, part_value(about, part), first, count, error));
  if (!about->here) return LS_OK;
  const window from = {(char *)(uintptr_t)data, dtype, columns_of(about), first};
  ls_box boxes[LS_MOST_BOXES];
  const int cuts = ls_box_of_range(first, first + count, columns_of(about), boxes);
  for (int i = 0; i < cuts; i++) LS_TRY(write(rank, about, part, &boxes[i], &from, error));
  return LS_OK;
}

ls_status ls_rank_write_box(ls_rank *rank, const ls_program *program, int parameter,
                            ls_state_part part, const ls_box *box, const void *data, ls_dtype dtype,
                            ls_error *error) {
  const ls_program_parameter *about = &program->parameters[parameter];
  LS_TRY(check_range(about, part_value(about, part), 0, 0, error));
  if (!about->here) return LS_OK;
  const window from = window_of(box, data, dtype);
  return write(rank, about, part, box, &from, error);
}

int ls_rank_kept_boxes(const ls_rank *rank, const ls_program *program, int parameter,
                       ls_state_part part, ls_box boxes[LS_MOST_KEPT]) {
  const ls_program_parameter *about = &program->parameters[parameter];
  if (!about->here) return 0;
  const share own = find_share(rank, about, part_value(about, part));
  if (part != LS_PART_MASTER) return kept(&own, boxes);
  const share compute = find_share(rank, about, about->part[LS_PART_STORED]);
  int count = kept(&compute, boxes);
  ls_box masters[LS_MOST_BOXES];
  const int copies = count, more = kept(&own, masters);
  for (int i = 0; i < more; i++) {
    bool there = false;
    for (int c = 0; c < copies && !there; c++) there = ls_box_holds(&boxes[c], &masters[i]);
    if (!there) boxes[count++] = masters[i];
  }
  return count;
}

bool ls_rank_keeps_parameter(const ls_rank *rank, const ls_program *program, int parameter,
                             int64_t first, int64_t count) {
  ls_box boxes[LS_MOST_KEPT], asked[LS_MOST_BOXES], common;
  const int stored_ranges = ls_rank_kept_boxes(rank, program, parameter, LS_PART_MASTER, boxes);
  const int cuts =
      ls_box_of_range(first, first + count, columns_of(&program->parameters[parameter]), asked);
  for (int i = 0; i < stored_ranges; i++)
    for (int c = 0; c < cuts; c++)
      if (ls_box_meet(&boxes[i], &asked[c], &common)) return true;
  return false;
}

int ls_rank_owned_ranges(const ls_rank *rank, const ls_program *program, int parameter,
                         ls_state_part part, ls_box boxes[LS_MOST_BOXES]) {
  const ls_program_parameter *about = &program->parameters[parameter];
  const int value = part_value(about, part);
  if (!about->here || !about->gives || value < 0) return 0;
  const share own = find_share(rank, about, value);
  const ls_axes alike = ls_value_replicas(&program->mesh, &program->values.items[value]);
  const int64_t holders = ls_mesh_size(&program->mesh, alike);
  int64_t chunk = (own.count + holders - 1) / holders;
  if (holders > 1) chunk = (chunk + LEAST_GIVEN - 1) / LEAST_GIVEN * LEAST_GIVEN;
  const int64_t begin = ls_mesh_index(&program->mesh, ls_rank_number(rank), alike) * chunk;
  const int64_t end = begin + chunk < own.count ? begin + chunk : own.count;
  return boxes_of(&own, own.first + begin, own.first + end, boxes);
}

ls_status ls_rank_read_box(ls_rank *rank, const ls_program *program, int parameter,
                           ls_state_part part, const ls_box *box, void *data, ls_dtype dtype,
                           ls_error *error) {
  const ls_program_parameter *about = &program->parameters[parameter];
  const share from = find_share(rank, about, part_value(about, part));
  const window to = window_of(box, data, dtype);
  return copy(&from, box, &to, false, error);
}

/* What this rank gives of elements [first, first + count). */
static ls_status read_given(ls_rank *rank, const ls_program *program, int parameter,
                            ls_state_part part, int64_t first, int64_t count, const window *to,
                            ls_error *error) {
  const ls_program_parameter *about = &program->parameters[parameter];
  ls_box given[LS_MOST_BOXES], asked[LS_MOST_BOXES], common;
  const int boxes = ls_rank_owned_ranges(rank, program, parameter, part, given);
  if (boxes == 0) return LS_OK;
  const share from = find_share(rank, about, part_value(about, part));
  const int cuts = ls_box_of_range(first, first + count, columns_of(about), asked);
  for (int i = 0; i < boxes; i++)
    for (int c = 0; c < cuts; c++)
      if (ls_box_meet(&given[i], &asked[c], &common))
        LS_TRY(copy(&from, &common, to, false, error));
  return LS_OK;
}

ls_status ls_rank_read_parameter(ls_rank *rank, const ls_program *program, int parameter,
                                 ls_state_part part, int64_t first, int64_t count, void *data,
                                 ls_dtype dtype, ls_error *error) {
  const ls_program_parameter *about = &program->parameters[parameter];
  LS_TRY(check_range(about, part_value(about, part), first, count, error));
  memset(data, 0, (size_t)count * ls_dtype_bytes(dtype));
  const window to = {data, dtype, columns_of(about), first};
  LS_TRY(read_given(rank, program, parameter, part, first, count, &to, error));
  return ls_all_reduce(ls_rank_world_group(rank), data, count, dtype, LS_SUM, error);
}
