#include "run/rank_parameters.h"
#include "run/rank_memory.h"

#include <math.h>
#include <string.h>

#include "base/blocks.h"
#include "base/scales.h"

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

int64_t ls_program_parameter_numbers(const ls_program_parameter *parameter) {
  return ls_program_parameter_elements(parameter) * ls_precision_numbers(parameter->precision);
}

static int64_t columns_of(const ls_program_parameter *parameter) {
  return parameter->ndim > 1 ? parameter->dims[1] : 1;
}

/* Of blocks whose scales have 8 bits: what these stand for, and which scale a run's first one is.
 */
typedef struct nesting {
  float *nested; /* NULL: scales are fp32 */
  int64_t first;
} nesting;

static void make_block(ls_dtype kept, const nesting *of, int64_t b, const float *weights,
                       void *block) {
  ls_four_bit_block single;
  ls_blocks_quantise(ls_blocks_single(kept), weights, 1, of->nested ? (void *)&single : block);
  if (of->nested) ls_blocks_nest(&single, of->nested, of->first + b, 1, block);
}

static void restore_block(ls_dtype kept, const nesting *of, int64_t b, const void *block,
                          float *weights) {
  ls_four_bit_block single;
  if (of->nested) ls_blocks_unnest(block, of->nested, of->first + b, 1, &single);
  ls_blocks_restore(ls_blocks_single(kept), of->nested ? &single : block, 1, weights);
}

static ls_status read_weights(const char *data, ls_dtype dtype, float *weights, ls_error *error) {
  ls_convert(weights, LS_F32, data, dtype, LS_BLOCK_WEIGHTS);
  for (int i = 0; i < LS_BLOCK_WEIGHTS; i++)
    if (!isfinite(weights[i]))
      return ls_fail(error, LS_INPUT, "found a weight of %g; blocks hold finite ones",
                     (double)weights[i]);
  return LS_OK;
}

/* The same of blocks: numbers of the caller's become blocks, and the other way. A device's memory
 * is reached for many at a time. */
static ls_status copy_blocks(const ls_rank *rank, char *place, ls_dtype kept, const nesting *of,
                             int64_t count, char *data, ls_dtype dtype, bool writes,
                             ls_error *error) {
  enum { AT_ONCE = 64 };
  const int64_t own = (int64_t)ls_dtype_bytes(kept);
  const int64_t given = (int64_t)ls_dtype_bytes(dtype) * LS_BLOCK_WEIGHTS;
  for (int64_t first = 0; first < count; first += AT_ONCE) {
    const int64_t end = first + AT_ONCE < count ? first + AT_ONCE : count;
    _Alignas(float) char blocks[AT_ONCE * sizeof(ls_int8_block)]; /* the largest ones */
    float weights[LS_BLOCK_WEIGHTS];
    if (!writes)
      LS_TRY(ls_rank_read_at(rank, blocks, place + first * own, (end - first) * own, error));
    for (int64_t b = first; b < end; b++) {
      char *block = blocks + (b - first) * own;
      if (writes) {
        LS_TRY(read_weights(data + b * given, dtype, weights, error));
        make_block(kept, of, b, weights, block);
      } else {
        restore_block(kept, of, b, block, weights);
        ls_convert(data + b * given, dtype, weights, LS_F32, LS_BLOCK_WEIGHTS);
      }
    }
    if (writes)
      LS_TRY(ls_rank_write_at(rank, place + first * own, blocks, (end - first) * own, error));
  }
  return LS_OK;
}

/* Elements that follow each other in the rank's memory, from or to `data`. */
static ls_status copy_run(const ls_rank *rank, char *place, ls_dtype kept, const nesting *of,
                          int64_t count, char *data, ls_dtype dtype, bool writes, ls_error *error) {
  enum { AT_ONCE = 1024 };
  const int64_t own = (int64_t)ls_dtype_bytes(kept), given = (int64_t)ls_dtype_bytes(dtype);
  if (kept == dtype)
    return writes ? ls_rank_write_at(rank, place, data, count * own, error)
                  : ls_rank_read_at(rank, data, place, count * own, error);
  if (ls_dtype_numbers(kept) > 1)
    return copy_blocks(rank, place, kept, of, count, data, dtype, writes, error);
  for (int64_t done = 0; done < count; done += AT_ONCE) {
    double buffer[AT_ONCE];
    const int64_t some = count - done < AT_ONCE ? count - done : AT_ONCE;
    if (writes) {
      ls_convert(buffer, kept, data + done * given, dtype, some);
      LS_TRY(ls_rank_write_at(rank, place + done * own, buffer, some * own, error));
    } else {
      LS_TRY(ls_rank_read_at(rank, buffer, place + done * own, some * own, error));
      ls_convert(data + done * given, dtype, buffer, kept, some);
    }
  }
  return LS_OK;
}

/* Which of the rank's programs it is: of gradients each has its own place. */
static int number_of(const ls_rank *rank, const ls_program *program) {
  for (int p = 1; p < LS_MAX_PROGRAMS; p++)
    if (ls_rank_program(rank, p) == program) return p;
  return 0;
}

/* What the scales of a box of a parameter stand for, of which this rank has all numbers: those from
 * the box's first block on, so that this is scale number of->first of them. */
static ls_status find_nested(const ls_rank *rank, const ls_program *program, int parameter,
                             const ls_box *box, ls_arena *scratch, nesting *of, ls_error *error) {
  const int64_t columns = columns_of(&program->parameters[parameter]);
  const int64_t begin = box->row * columns + box->column;
  const int64_t end = (box->row + box->rows - 1) * columns + box->column + box->columns;
  const int64_t group = begin / LS_SCALES_TOGETHER;
  const int64_t groups = (end + LS_SCALES_TOGETHER - 1) / LS_SCALES_TOGETHER - group;
  ls_state_range all[LS_MOST_RANGES];
  LS_ASSERT(program->parameters[parameter + 1].precision == LS_SCALES);
  const int ranges = ls_state_filled(&ls_state_ranges, program, ls_rank_number(rank), parameter + 1,
                                     LS_PART_MASTER, all);
  LS_ASSERT(ranges > 0 && all[0].box.row == 0 &&
            all[0].box.rows == program->parameters[parameter + 1].dims[0]);
  const char *from =
      ls_rank_group_address(rank, number_of(rank, program), all[0].value) + all[0].offset;
  of->nested = LS_NEW_ARRAY(scratch, float, groups + 1);
  of->first = begin % LS_SCALES_TOGETHER;
  const int64_t bytes = (int64_t)sizeof *of->nested;
  LS_TRY(ls_rank_read_at(rank, of->nested, from, bytes, error));
  return ls_rank_read_at(rank, of->nested + 1, from + (1 + group) * bytes, groups * bytes, error);
}

/* A box of a parameter of so many columns, all of which the range has. */
static ls_status copy_box(const ls_rank *rank, const ls_program *program,
                          const ls_state_range *range, ls_box box, int64_t columns,
                          const window *with, const nesting *nested, bool writes, ls_error *error) {
  const ls_dtype kept = program->values.items[range->value].dtype;
  const int64_t bytes = (int64_t)ls_dtype_bytes(kept);
  const bool numbered = !nested->nested || box.columns == columns; /* scales follow each other */
  const bool joined = numbered && box.columns == range->stride && box.columns == with->stride;
  const int64_t element =
      (int64_t)ls_dtype_bytes(with->dtype) * ls_dtype_numbers(kept) / ls_dtype_numbers(with->dtype);
  char *base = ls_rank_group_address(rank, number_of(rank, program), range->value) + range->offset;
  for (int64_t row = box.row; row < box.row + box.rows; row++) {
    char *place =
        base + ((row - range->box.row) * range->stride + box.column - range->box.column) * bytes;
    char *data = with->data + (row * with->stride + box.column - with->first) * element;
    const int64_t count = joined ? ls_box_elements(&box) : box.columns;
    const nesting of = {nested->nested, nested->first + (row - box.row) * columns};
    LS_TRY(copy_run(rank, place, kept, &of, count, data, with->dtype, writes, error));
    if (joined) break;
  }
  return LS_OK;
}

/* What of `asked` the range has. */
static ls_status copy(const ls_rank *rank, const ls_program *program, int parameter,
                      const ls_state_range *range, const ls_box *asked, const window *with,
                      bool writes, ls_error *error) {
  const ls_program_parameter *about = &program->parameters[parameter];
  nesting nested = {0};
  ls_box box;
  if (!ls_box_meet(&range->box, asked, &box)) return LS_OK;
  if (!ls_precision_is_double(about->precision) || ls_dtype_numbers(with->dtype) > 1)
    return copy_box(rank, program, range, box, columns_of(about), with, &nested, writes, error);
  ls_arena *scratch = ls_arena_create();
  ls_status status = find_nested(rank, program, parameter, &box, scratch, &nested, error);
  if (status == LS_OK)
    status = copy_box(rank, program, range, box, columns_of(about), with, &nested, writes, error);
  ls_arena_destroy(&scratch);
  return status;
}

static ls_status check_range(const ls_program_parameter *parameter, ls_state_part part,
                             int64_t first, int64_t count, ls_error *error) {
  const bool there =
      parameter->part[part] >= 0 || (part == LS_PART_MASTER && !parameter->trainable);
  if (parameter->present && !there)
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

ls_status ls_rank_write_parameter(ls_rank *rank, const ls_program *program, int parameter,
                                  ls_state_part part, int64_t first, int64_t count,
                                  const void *data, ls_dtype dtype, ls_error *error) {
  const ls_program_parameter *about = &program->parameters[parameter];
  LS_TRY(check_range(about, part, first, count, error));
  const window from = {(char *)(uintptr_t)data, dtype, columns_of(about), first};
  ls_box asked[LS_MOST_BOXES];
  const int cuts = ls_box_of_range(first, first + count, columns_of(about), asked);
  ls_state_range ranges[LS_MOST_RANGES];
  const int kept =
      ls_state_filled(&ls_state_ranges, program, ls_rank_number(rank), parameter, part, ranges);
  for (int i = 0; i < kept; i++)
    for (int c = 0; c < cuts; c++)
      LS_TRY(copy(rank, program, parameter, &ranges[i], &asked[c], &from, true, error));
  return LS_OK;
}

ls_status ls_rank_write_scales(ls_rank *rank, const ls_program *program, int parameter,
                               ls_first_numbers *of, void *context, ls_error *error) {
  const int64_t blocks = ls_program_parameter_elements(&program->parameters[parameter]);
  ls_arena *scratch = ls_arena_create();
  float *scales = LS_NEW_ARRAY(scratch, float, blocks);
  float *nested = LS_NEW_ARRAY(scratch, float, ls_scales_nested(blocks));
  for (int64_t b = 0; b < blocks; b++) {
    double numbers[LS_BLOCK_WEIGHTS];
    float weights[LS_BLOCK_WEIGHTS];
    of(context, b * LS_BLOCK_WEIGHTS, LS_BLOCK_WEIGHTS, numbers);
    ls_convert(weights, LS_F32, numbers, LS_F64, LS_BLOCK_WEIGHTS);
    ls_blocks_scales(weights, 1, &scales[b]);
  }
  ls_scales_measure(scales, blocks, nested);
  const ls_status status = ls_rank_write_parameter(rank, program, parameter + 1, LS_PART_MASTER, 0,
                                                   ls_scales_nested(blocks), nested, LS_F32, error);
  ls_arena_destroy(&scratch);
  return status;
}

ls_status ls_rank_write_box(ls_rank *rank, const ls_program *program, int parameter,
                            ls_state_part part, const ls_box *box, const void *data, ls_dtype dtype,
                            ls_error *error) {
  LS_TRY(check_range(&program->parameters[parameter], part, 0, 0, error));
  const window from = window_of(box, data, dtype);
  ls_state_range ranges[LS_MOST_RANGES];
  const int kept =
      ls_state_filled(&ls_state_ranges, program, ls_rank_number(rank), parameter, part, ranges);
  for (int i = 0; i < kept; i++)
    LS_TRY(copy(rank, program, parameter, &ranges[i], box, &from, true, error));
  return LS_OK;
}

int ls_rank_kept_boxes(const ls_rank *rank, const ls_program *program, int parameter,
                       ls_state_part part, ls_box boxes[LS_MOST_RANGES]) {
  ls_state_range ranges[LS_MOST_RANGES];
  const int kept =
      ls_state_filled(&ls_state_ranges, program, ls_rank_number(rank), parameter, part, ranges);
  int count = 0;
  for (int i = 0; i < kept; i++) {
    bool there = false;
    for (int b = 0; b < count && !there; b++) there = ls_box_holds(&boxes[b], &ranges[i].box);
    if (!there) boxes[count++] = ranges[i].box;
  }
  return count;
}

bool ls_rank_keeps_parameter(const ls_rank *rank, const ls_program *program, int parameter,
                             int64_t first, int64_t count) {
  ls_box boxes[LS_MOST_RANGES], asked[LS_MOST_BOXES], common;
  const int kept = ls_rank_kept_boxes(rank, program, parameter, LS_PART_MASTER, boxes);
  const int cuts =
      ls_box_of_range(first, first + count, columns_of(&program->parameters[parameter]), asked);
  for (int i = 0; i < kept; i++)
    for (int c = 0; c < cuts; c++)
      if (ls_box_meet(&boxes[i], &asked[c], &common)) return true;
  return false;
}

ls_status ls_rank_read_range(ls_rank *rank, const ls_program *program, int parameter,
                             const ls_state_range *range, const ls_box *box, void *data,
                             ls_dtype dtype, ls_error *error) {
  const window to = window_of(box, data, dtype);
  return copy(rank, program, parameter, range, box, &to, false, error);
}

ls_status ls_rank_read_share(ls_rank *rank, const ls_program *program, int parameter,
                             ls_state_part part, int64_t first, int64_t count, void *data,
                             ls_dtype dtype, ls_error *error) {
  const ls_program_parameter *about = &program->parameters[parameter];
  LS_TRY(check_range(about, part, first, count, error));
  const int64_t numbers = count * ls_precision_numbers(about->precision);
  memset(data, 0, (size_t)numbers * ls_dtype_bytes(dtype));
  const window to = {data, dtype, columns_of(about), first};
  ls_box asked[LS_MOST_BOXES];
  const int cuts = ls_box_of_range(first, first + count, columns_of(about), asked);
  ls_state_range ranges[LS_MOST_RANGES];
  const int saved =
      ls_state_saved(&ls_state_ranges, program, ls_rank_number(rank), parameter, part, ranges);
  for (int i = 0; i < saved; i++)
    for (int c = 0; c < cuts; c++)
      LS_TRY(copy(rank, program, parameter, &ranges[i], &asked[c], &to, false, error));
  return LS_OK;
}

ls_status ls_rank_read_parameter(ls_rank *rank, const ls_program *program, int parameter,
                                 ls_state_part part, int64_t first, int64_t count, void *data,
                                 ls_dtype dtype, ls_error *error) {
  LS_TRY(ls_rank_read_share(rank, program, parameter, part, first, count, data, dtype, error));
  const int64_t numbers = count * ls_precision_numbers(program->parameters[parameter].precision);
  return ls_all_reduce(ls_rank_world_group(rank), data, numbers, dtype, LS_SUM, error);
}
