#include "session/correct.h"

#include <math.h>

#include "session/session.h"

bool ls_gives_logits(const ls_program *program, int rank) {
  if (program->logits < 0) return false;
  const ls_value *value = &program->values.items[program->logits];
  const ls_axes cut = ls_placement_axes(&program->mesh, &value->placement, LS_SHARDED, -1);
  return ls_mesh_index(&program->mesh, rank,
                       ls_mesh_order(ls_mesh_inside(&program->mesh) & ~cut)) == 0;
}

ls_told ls_told_none(ls_arena *arena, int64_t classes, bool several) {
  return (ls_told){classes, several, LS_NEW_ARRAY(arena, ls_told_class, classes + 1)};
}

/* The first of the largest; -1 where one is no number, of which no comparison holds. */
static int64_t largest_of(const double *logits, int64_t classes) {
  int64_t best = 0;
  for (int64_t c = 0; c < classes; c++) {
    if (isnan(logits[c])) return -1;
    if (logits[c] > logits[best]) best = c;
  }
  return best;
}

/* Of a set of classes each, which is told where its logit is above 0: more likely than not. */
static void tell_several(const double *logits, int64_t classes, int32_t label, ls_told *told) {
  bool exact = true;
  for (int64_t c = 0; c < classes; c++) {
    const bool asked = (uint32_t)label >> c & 1, tells = logits[c] > 0;
    told->of[c].asked += asked;
    told->of[c].told += tells;
    told->of[c].right += asked && tells;
    exact = exact && asked == tells && !isnan(logits[c]);
  }
  told->of[told->classes].asked++;
  told->of[told->classes].right += exact;
}

void ls_rows_tell(const double *logits, int64_t rows, int64_t columns, const int32_t *labels,
                  ls_told *told) {
  const int64_t classes = columns < told->classes ? columns : told->classes;
  for (int64_t r = 0; r < rows; r++) {
    if (labels[r] < 0) continue;
    if (told->several) {
      tell_several(logits + r * columns, classes, labels[r], told);
      continue;
    }
    const int64_t best = largest_of(logits + r * columns, classes);
    if (labels[r] < classes) told->of[labels[r]].asked++;
    if (best >= 0) told->of[best].told++;
    if (best == labels[r]) told->of[best].right++;
  }
}

ls_status ls_count_told(ls_rank *rank, ls_told *told, ls_error *error) {
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
    ls_rows_tell(wide, rows, columns, labels, told);
  }
  ls_arena_destroy(&scratch);
  return status;
}

ls_status ls_sum_told(ls_rank *rank, ls_told *told, ls_error *error) {
  enum { NUMBERS = sizeof *told->of / sizeof(int64_t) };
  return ls_all_reduce(ls_rank_world_group(rank), told->of, (told->classes + 1) * NUMBERS, LS_I64,
                       LS_SUM, error);
}

int64_t ls_told_asked(const ls_told *told) {
  int64_t asked = told->of[told->classes].asked;
  for (int64_t c = 0; c < told->classes && !told->several; c++) asked += told->of[c].asked;
  return asked;
}

int64_t ls_told_right(const ls_told *told) {
  int64_t right = told->of[told->classes].right;
  for (int64_t c = 0; c < told->classes && !told->several; c++) right += told->of[c].right;
  return right;
}

double ls_told_macro_f1(const ls_told *told) {
  double sum = 0;
  int64_t there = 0;
  for (int64_t c = 0; c < told->classes; c++) {
    const ls_told_class *each = &told->of[c];
    const int64_t both = each->asked + each->told;
    there += both > 0 || told->several;
    if (both > 0) sum += 2 * (double)each->right / (double)both;
  }
  return there > 0 ? sum / (double)there : NAN;
}

double ls_told_micro_f1(const ls_told *told) {
  int64_t right = 0, both = 0;
  for (int64_t c = 0; c < told->classes; c++) {
    right += told->of[c].right;
    both += told->of[c].asked + told->of[c].told;
  }
  return both > 0 ? 2 * (double)right / (double)both : NAN;
}
