/* Rectangles of a matrix: what a rank keeps of a parameter, what a file has in one stretch. A
 * vector is a matrix of one column.
 *
 *   ls_box boxes[LS_MOST_BOXES], part;
 *   const int count = ls_box_of_range(first, end, columns, boxes);
 *   for (int i = 0; i < count; i++)
 *     if (ls_box_meet(&boxes[i], &kept, &part)) ...
 *
 * Thread-safe: no state. */
#ifndef LS_BASE_BOX_H
#define LS_BASE_BOX_H

#include <stdbool.h>
#include <stdint.h>

typedef struct ls_box {
  int64_t row, rows, column, columns;
} ls_box;

enum { LS_MOST_BOXES = 3 }; /* of a range of elements: a row's end, whole rows, a row's beginning */

int64_t ls_box_elements(const ls_box *box);

/* Cuts elements [first, end) of a row-major matrix of `columns` columns into boxes, in their order;
 * returns how many: 0 where the range is empty. */
int ls_box_of_range(int64_t first, int64_t end, int64_t columns, ls_box boxes[LS_MOST_BOXES]);

/* What two boxes have in common; false where that is nothing. */
bool ls_box_meet(const ls_box *a, const ls_box *b, ls_box *common);

/* Whether `outer` has all of `inner`. */
bool ls_box_holds(const ls_box *outer, const ls_box *inner);

#endif
