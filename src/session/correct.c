#include "session/correct.h"

#include "session/session.h"

bool ls_gives_logits(const ls_program *program, int rank) {
  if (program->logits < 0) return false;
  const ls_value *value = &program->values.items[program->logits];
  const ls_axes cut = ls_placement_axes(&program->mesh, &value->placement, LS_SHARDED, -1);
  return ls_mesh_index(&program->mesh, rank,
                       ls_mesh_order(ls_mesh_inside(&program->mesh) & ~cut)) == 0;
}

/* No comparison holds of what is no number, so that nothing is told right by it. */
static bool is_largest(const double *logits, int64_t classes, int64_t label) {
  if (label >= classes) return false;
  for (int64_t c = 0; c < classes; c++)
    if (!(c < label ? logits[label] > logits[c] : logits[label] >= logits[c])) return false;
  return true;
}

int64_t ls_rows_correct(const double *logits, int64_t rows, int64_t columns,
                        const int32_t *labels) {
  int64_t correct = 0;
  for (int64_t r = 0; r < rows; r++)
    correct += labels[r] >= 0 && is_largest(logits + r * columns, columns, labels[r]);
  return correct;
}

ls_status ls_count_correct(ls_rank *rank, int64_t *correct, ls_error *error) {
  const ls_program *program = ls_rank_program(rank, LS_SESSION_EVALUATE);
  if (!ls_gives_logits(program, ls_rank_number(rank))) return LS_OK;
  const ls_view logits = ls_rank_shape(rank, LS_SESSION_EVALUATE, program->logits);
  const ls_view ids = ls_rank_shape(rank, LS_SESSION_EVALUATE, program->ids);
  const int32_t *labels = ls_rank_staging(rank) + ids.valid[0] + (logits.start[0] - ids.start[0]);
  const int64_t rows = logits.valid[0], columns = logits.valid[1], stored_columns = logits.dims[1];
  const size_t row_bytes = (size_t)stored_columns * ls_dtype_bytes(logits.dtype);
  LS_ASSERT(logits.start[1] == 0);
  ls_arena *scratch = ls_arena_create();
  char *stored = ls_arena_alloc(scratch, (size_t)rows * row_bytes + 1);
  double *wide = LS_NEW_ARRAY(scratch, double, rows *columns + 1);
  const ls_status status = ls_rank_get(rank, LS_SESSION_EVALUATE, program->logits, 0, stored,
                                       rows * stored_columns, error);
  if (status == LS_OK) {
    for (int64_t r = 0; r < rows; r++)
      ls_convert(wide + r * columns, LS_F64, stored + (size_t)r * row_bytes, logits.dtype, columns);
    *correct += ls_rows_correct(wide, rows, columns, labels);
  }
  ls_arena_destroy(&scratch);
  return status;
}

ls_status ls_sum_correct(ls_rank *rank, int64_t *correct, ls_error *error) {
  return ls_all_reduce(ls_rank_world_group(rank), correct, 1, LS_I64, LS_SUM, error);
}
