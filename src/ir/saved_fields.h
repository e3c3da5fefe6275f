/* Numbers in the saved form, of values by place and of layouts by name: one list of each for
 * writing and reading. */
#ifndef LS_IR_SAVED_FIELDS_H
#define LS_IR_SAVED_FIELDS_H

#include "ir/program.h"

enum { LS_SAVED_VERSION = 27 };

#define LS_VALUE_NUMBERS(X) \
  X(offset)                 \
  X(flat_elements)          \
  X(flat_offset)            \
  X(flat_rows)              \
  X(flat_row_elements)      \
  X(first_row)              \
  X(rows)                   \
  X(row_elements)

#define LS_COUNT_ONE(...) +1
enum { LS_VALUE_FIELDS = 0 LS_VALUE_NUMBERS(LS_COUNT_ONE) };

int64_t ls_value_field(const ls_value *value, int field);
void ls_value_set_field(ls_value *value, int field, int64_t number);

/* A number of a layout, from `low` to `high`. */
typedef struct ls_layout_number {
  const char *name;
  size_t offset, bytes; /* in ls_layout; a bool's, an int's or an int64_t's */
  int64_t low, high;
} ls_layout_number;

extern const ls_layout_number ls_layout_numbers[]; /* the last has no name */

int64_t ls_layout_number_get(const ls_layout *layout, const ls_layout_number *number);
void ls_layout_number_set(ls_layout *layout, const ls_layout_number *number, int64_t value);

#endif
