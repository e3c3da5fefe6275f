/* Numbers of values by place in the saved form: one list for writing and reading. */
#ifndef LS_IR_SAVED_FIELDS_H
#define LS_IR_SAVED_FIELDS_H

#include "ir/program.h"

enum { LS_SAVED_VERSION = 14 };

#define LS_VALUE_NUMBERS(X) \
  X(offset)                 \
  X(flat_elements)          \
  X(flat_offset)            \
  X(flat_rows)              \
  X(flat_row_elements)      \
  X(first_row)              \
  X(rows)

#define LS_COUNT_ONE(...) +1
enum { LS_VALUE_FIELDS = 0 LS_VALUE_NUMBERS(LS_COUNT_ONE) };

int64_t ls_value_field(const ls_value *value, int field);
void ls_value_set_field(ls_value *value, int field, int64_t number);

#endif
