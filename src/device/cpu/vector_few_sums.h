/* What both makers of few sums share, by dot products and by tiles: where sums go.
 *
 *   few_sums_store(p, few, column, sums); */
#ifndef LS_DEVICE_CPU_VECTOR_FEW_SUMS_H
#define LS_DEVICE_CPU_VECTOR_FEW_SUMS_H

#include "device/cpu/vector.h"
#include "device/cpu/vector_table.h"

/* sums[few, many]: a square of LS_FEW_SUMS_UNIT of both, from (few, column) on. */
static inline void few_sums_store(const ls_few_sums *p, int64_t few, int64_t column,
                                  const float *sums) {
  enum { UNIT = LS_FEW_SUMS_UNIT };
  const int64_t rows = least(UNIT, p->few_columns - few);
  const int64_t columns = least(UNIT, p->many_columns - column);
  for (int64_t c = 0; p->turned && c < columns; c++) {
    float *to = p->y + (column + c) * p->stride + few;
    for (int64_t s = 0; s < rows; s++) to[s] = sums[s * UNIT + c] + (p->add ? to[s] : 0.0f);
  }
  for (int64_t s = 0; !p->turned && s < rows; s++) {
    float *to = p->y + (few + s) * p->stride + column;
    for (int64_t c = 0; c < columns; c++) to[c] = sums[s * UNIT + c] + (p->add ? to[c] : 0.0f);
  }
}

#endif
