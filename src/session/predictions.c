#include "session/predictions.h"

#include <math.h>

#include "base/sets.h"
#include "session/session.h"

bool ls_gives_logits(const ls_program *program, int rank) {
  if (program->logits < 0) return false;
  const ls_value *value = &program->values.items[program->logits];
  const ls_axes cut = ls_placement_axes(&program->mesh, &value->placement, LS_SHARDED, -1);
  return ls_mesh_index(&program->mesh, rank,
                       ls_mesh_order(ls_mesh_inside(&program->mesh) & ~cut)) == 0;
}

ls_predictions ls_predictions_none(ls_arena *arena, int64_t classes, bool several) {
  return (ls_predictions){classes, several, LS_NEW_ARRAY(arena, ls_class_predictions, classes + 1)};
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

/* Of a set of classes each, which is predicted where its logit is above 0: more likely than not. */
static void add_set(const double *logits, int64_t classes, const int32_t *set,
                    ls_predictions *made) {
  bool exact = true;
  for (int64_t c = 0; c < classes; c++) {
    const bool is = ls_set_has(set, c), predicted = logits[c] > 0;
    made->of[c].labels += is;
    made->of[c].predicted += predicted;
    made->of[c].correct += is && predicted;
    exact = exact && is == predicted && !isnan(logits[c]);
  }
  made->of[made->classes].labels++;
  made->of[made->classes].correct += exact;
}

void ls_predictions_add_rows(const double *logits, int64_t rows, int64_t columns,
                             const int32_t *labels, const int32_t *sets, ls_predictions *made) {
  const int64_t classes = columns < made->classes ? columns : made->classes;
  for (int64_t r = 0; r < rows; r++) {
    if (labels[r] < 0) continue;
    if (made->several) {
      add_set(logits + r * columns, classes, sets + r * ls_set_words(made->classes), made);
      continue;
    }
    const int64_t best = largest_of(logits + r * columns, classes);
    if (labels[r] < classes) made->of[labels[r]].labels++;
    if (best >= 0) made->of[best].predicted++;
    if (best == labels[r]) made->of[best].correct++;
  }
}

ls_status ls_predictions_add(ls_rank *rank, int number, ls_predictions *made, ls_error *error) {
  const ls_program *program = ls_rank_program(rank, number);
  if (!ls_gives_logits(program, ls_rank_number(rank))) return LS_OK;
  const ls_view logits = ls_rank_shape(rank, number, program->logits);
  const ls_view ids = ls_rank_shape(rank, number, program->ids);
  const int64_t first = logits.start[0] - ids.start[0];
  const int32_t *labels = ls_rank_staging(rank) + ids.valid[0] + first;
  const int64_t words = made->several ? ls_set_words(made->classes) : 0;
  const int32_t *sets = ls_rank_staging_top(rank);
  const int64_t rows = logits.valid[0], columns = logits.valid[1], stored_columns = logits.dims[1];
  const size_t row_bytes = (size_t)stored_columns * ls_dtype_bytes(logits.dtype);
  LS_ASSERT(logits.start[1] == 0);
  ls_arena *scratch = ls_arena_create();
  char *stored = ls_arena_alloc(scratch, (size_t)rows * row_bytes + 1);
  double *wide = LS_NEW_ARRAY(scratch, double, rows *columns + 1);
  const ls_status status =
      ls_rank_get(rank, number, program->logits, 0, stored, rows * stored_columns, error);
  if (status == LS_OK) {
    for (int64_t r = 0; r < rows; r++)
      ls_convert(wide + r * columns, LS_F64, stored + (size_t)r * row_bytes, logits.dtype, columns);
    ls_predictions_add_rows(wide, rows, columns, labels, words ? sets + first * words : NULL, made);
  }
  ls_arena_destroy(&scratch);
  return status;
}

ls_status ls_predictions_sum(ls_rank *rank, ls_predictions *made, ls_error *error) {
  enum { NUMBERS = sizeof *made->of / sizeof(int64_t) };
  return ls_all_reduce(ls_rank_world_group(rank), made->of, (made->classes + 1) * NUMBERS, LS_I64,
                       LS_SUM, error);
}

int64_t ls_predictions_labels(const ls_predictions *made) {
  int64_t labels = made->of[made->classes].labels;
  for (int64_t c = 0; c < made->classes && !made->several; c++) labels += made->of[c].labels;
  return labels;
}

int64_t ls_predictions_correct(const ls_predictions *made) {
  int64_t correct = made->of[made->classes].correct;
  for (int64_t c = 0; c < made->classes && !made->several; c++) correct += made->of[c].correct;
  return correct;
}

double ls_predictions_macro_f1(const ls_predictions *made) {
  double sum = 0;
  int64_t there = 0;
  for (int64_t c = 0; c < made->classes; c++) {
    const ls_class_predictions *each = &made->of[c];
    const int64_t both = each->labels + each->predicted;
    there += both > 0 || made->several;
    if (both > 0) sum += 2 * (double)each->correct / (double)both;
  }
  return there > 0 ? sum / (double)there : NAN;
}

double ls_predictions_micro_f1(const ls_predictions *made) {
  int64_t correct = 0, both = 0;
  for (int64_t c = 0; c < made->classes; c++) {
    correct += made->of[c].correct;
    both += made->of[c].labels + made->of[c].predicted;
  }
  return both > 0 ? 2 * (double)correct / (double)both : NAN;
}
