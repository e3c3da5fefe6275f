#include "run/parameters.h"

#include <string.h>

/* This rank's share of one part of a parameter: elements [piece_first, piece_first + piece_count)
 * of its tp-cut tensor, which is `stored` x `stored_columns` and begins at (row, column) of the
 * whole. */
typedef struct share {
  char *data;      /* of element piece_first */
  ls_tiers *tiers; /* that it lies in, if it is in a file; else NULL */
  ls_dtype dtype;
  int64_t piece_first, piece_count;
  int64_t columns; /* of the whole */
  int64_t row, rows, column, cut_columns, stored_columns;
} share;

/* A run of elements contiguous both in the whole and in the share. */
typedef struct run {
  int64_t whole, piece, count;
} run;

int64_t ls_program_parameter_elements(const ls_program_parameter *parameter) {
  int64_t elements = 1;
  for (int d = 0; d < parameter->ndim; d++) elements *= parameter->dims[d];
  return elements;
}

static int part_value(const ls_program_parameter *parameter, ls_part_of_parameter part) {
  switch (part) {
    case LS_PART_MASTER: return parameter->master;
    case LS_PART_MOMENT1: return parameter->moment1;
    case LS_PART_MOMENT2: return parameter->moment2;
    case LS_PART_GRADIENT: return parameter->gradient;
    case LS_PART_COUNT: break;
  }
  return -1;
}

static share find_share(const ls_rank *rank, const ls_program_parameter *parameter, int value) {
  const ls_view piece = ls_rank_view(rank, 0, value, 0);
  const ls_view used = ls_rank_view(rank, 0, parameter->used, 0);
  const bool matrix = parameter->ndim > 1;
  ls_tiers *tiers = ls_rank_tiers(rank);
  return (share){.data = piece.data,
                 .tiers = tiers && ls_tiers_in_file(tiers, piece.data) ? tiers : NULL,
                 .dtype = piece.dtype,
                 .piece_first = piece.start[0],
                 .piece_count = piece.valid[0],
                 .columns = matrix ? parameter->dims[1] : 1,
                 .row = used.start[0],
                 .rows = used.valid[0],
                 .column = matrix ? used.start[1] : 0,
                 .cut_columns = matrix ? used.valid[1] : 1,
                 .stored_columns = matrix ? used.dims[1] : 1};
}

/* What of whole row `row`, elements [first, last), this rank has; count 0: nothing. */
static run row_run(const share *of, int64_t row, int64_t first, int64_t last) {
  run none = {0};
  if (row < of->row || row >= of->row + of->rows) return none;
  int64_t begin = row * of->columns + of->column, end = begin + of->cut_columns;
  const int64_t local = (row - of->row) * of->stored_columns;
  const int64_t shift = begin - local; /* whole index - index in the tp-cut tensor */
  if (begin < first) begin = first;
  if (end > last) end = last;
  if (begin - shift < of->piece_first) begin = of->piece_first + shift;
  if (end - shift > of->piece_first + of->piece_count)
    end = of->piece_first + of->piece_count + shift;
  if (end <= begin) return none;
  return (run){begin, begin - shift - of->piece_first, end - begin};
}

/* Elements of a share's memory or file, from or to `data`. */
static ls_status copy_run(const share *of, int64_t piece, int64_t count, char *data, ls_dtype dtype,
                          bool writes, ls_error *error) {
  enum { AT_ONCE = 1024 };
  const int64_t own = (int64_t)ls_dtype_bytes(of->dtype), given = (int64_t)ls_dtype_bytes(dtype);
  char *place = of->data + piece * own;
  if (!of->tiers && writes)
    ls_convert(place, of->dtype, data, dtype, count);
  else if (!of->tiers)
    ls_convert(data, dtype, place, of->dtype, count);
  for (int64_t done = 0; done < count && of->tiers; done += AT_ONCE) {
    double buffer[AT_ONCE];
    const int64_t some = count - done < AT_ONCE ? count - done : AT_ONCE;
    if (writes) {
      ls_convert(buffer, of->dtype, data + done * given, dtype, some);
      LS_TRY(ls_tiers_write(of->tiers, place + done * own, buffer, some * own, error));
    } else {
      LS_TRY(ls_tiers_read(of->tiers, buffer, place + done * own, some * own, error));
      ls_convert(data + done * given, dtype, buffer, of->dtype, some);
    }
  }
  return LS_OK;
}

/* What the share has of elements [first, first + count) of the whole, which `data` holds. */
static ls_status copy(const share *of, int64_t first, int64_t count, char *data, ls_dtype dtype,
                      bool writes, ls_error *error) {
  const int64_t rows_end = (first + count + of->columns - 1) / of->columns;
  for (int64_t row = first / of->columns; row < rows_end; row++) {
    const run found = row_run(of, row, first, first + count);
    if (!found.count) continue;
    char *at = data + (found.whole - first) * (int64_t)ls_dtype_bytes(dtype);
    LS_TRY(copy_run(of, found.piece, found.count, at, dtype, writes, error));
  }
  return LS_OK;
}

static ls_status put(const share *to, int64_t first, int64_t count, const void *data,
                     ls_dtype dtype, ls_error *error) {
  return copy(to, first, count, (char *)(uintptr_t)data, dtype, true, error);
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

ls_status ls_rank_write_parameter(ls_rank *rank, const ls_program *program, int parameter,
                                  ls_part_of_parameter part, int64_t first, int64_t count,
                                  const void *data, ls_dtype dtype, ls_error *error) {
  const ls_program_parameter *about = &program->parameters[parameter];
  const int value = part_value(about, part);
  LS_TRY(check_range(about, value, first, count, error));
  if (!about->here) return LS_OK;
  const share to = find_share(rank, about, value);
  LS_TRY(put(&to, first, count, data, dtype, error));
  if (part != LS_PART_MASTER) return LS_OK;
  /* Parameters stored whole lie on every rank, their masters in pieces. */
  const share compute = find_share(rank, about, about->stored);
  return put(&compute, first, count, data, dtype, error);
}

static bool has_any(const share *of, int64_t first, int64_t count) {
  const int64_t rows_end = (first + count + of->columns - 1) / of->columns;
  for (int64_t row = first / of->columns; row < rows_end; row++)
    if (row_run(of, row, first, first + count).count) return true;
  return false;
}

bool ls_rank_keeps_parameter(const ls_rank *rank, const ls_program *program, int parameter,
                             int64_t first, int64_t count) {
  const ls_program_parameter *about = &program->parameters[parameter];
  if (!about->here) return false;
  const share master = find_share(rank, about, about->master);
  const share compute = find_share(rank, about, about->stored);
  return has_any(&master, first, count) || has_any(&compute, first, count);
}

/* Of the ranks that hold the same elements, the one with the lowest coordinates gives them. */
static bool gives(const ls_rank *rank, const ls_program *program, const ls_program_parameter *about,
                  int value) {
  const ls_mesh *mesh = &program->mesh;
  if (!about->gives) return false;
  ls_axes held_alike = 1u << LS_AXIS_DP_REPLICATE;
  if (!program->values.items[value].flat_chunk) held_alike |= 1u << LS_AXIS_DP_SHARD;
  held_alike |=
      LS_AXES_TENSOR &
      ~ls_placement_axes(mesh, &program->values.items[about->used].placement, LS_SHARDED, -1);
  return ls_mesh_index(mesh, ls_rank_number(rank), held_alike) == 0;
}

ls_status ls_rank_read_parameter(ls_rank *rank, const ls_program *program, int parameter,
                                 ls_part_of_parameter part, int64_t first, int64_t count,
                                 void *data, ls_dtype dtype, ls_error *error) {
  const ls_program_parameter *about = &program->parameters[parameter];
  const int value = part_value(about, part);
  LS_TRY(check_range(about, value, first, count, error));
  memset(data, 0, (size_t)count * ls_dtype_bytes(dtype));
  if (gives(rank, program, about, value)) {
    const share from = find_share(rank, about, value);
    LS_TRY(copy(&from, first, count, data, dtype, false, error));
  }
  return ls_all_reduce(ls_rank_world_group(rank), data, count, dtype, LS_SUM, error);
}
