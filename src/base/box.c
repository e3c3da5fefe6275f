#include "base/box.h"

int64_t ls_box_elements(const ls_box *box) {
  return box->rows * box->columns;
}

int ls_box_of_range(int64_t first, int64_t end, int64_t columns, ls_box boxes[LS_MOST_BOXES]) {
  int count = 0;
  while (first < end) {
    const int64_t row = first / columns, column = first % columns, left = end - first;
    const bool whole = column == 0 && left >= columns;
    const int64_t to_end = columns - column;
    const ls_box box = {.row = row,
                        .rows = whole ? left / columns : 1,
                        .column = column,
                        .columns = whole ? columns : (left < to_end ? left : to_end)};
    boxes[count++] = box;
    first += ls_box_elements(&box);
  }
  return count;
}

static int64_t larger(int64_t a, int64_t b) {
  return a > b ? a : b;
}

static int64_t smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}

bool ls_box_meet(const ls_box *a, const ls_box *b, ls_box *common) {
  const int64_t row = larger(a->row, b->row), column = larger(a->column, b->column);
  const int64_t rows = smaller(a->row + a->rows, b->row + b->rows) - row;
  const int64_t columns = smaller(a->column + a->columns, b->column + b->columns) - column;
  if (rows <= 0 || columns <= 0) return false;
  *common = (ls_box){row, rows, column, columns};
  return true;
}

bool ls_box_holds(const ls_box *outer, const ls_box *inner) {
  ls_box common;
  return ls_box_meet(outer, inner, &common) && ls_box_elements(&common) == ls_box_elements(inner);
}
