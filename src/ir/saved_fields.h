/* Numbers of values and attributes by place in the saved form: one list for writing and reading. */
#ifndef LS_IR_SAVED_FIELDS_H
#define LS_IR_SAVED_FIELDS_H

#include "ir/program.h"

enum { LS_SAVED_VERSION = 8 };

#define LS_VALUE_NUMBERS(X) \
  X(offset)                 \
  X(flat)                   \
  X(flat_offset)            \
  X(flat_chunk)             \
  X(flat_whole)             \
  X(flat_rows)              \
  X(flat_row_elements)      \
  X(first_row)              \
  X(rows)

/* The frequencies of a rope table, rope_pairs of them, follow these. */
#define LS_ATTRIBUTE_NUMBERS(X) \
  X(sequence, int64_t)          \
  X(head_dim, int64_t)          \
  X(kv_heads, int64_t)          \
  X(heads, int64_t)             \
  X(window, int64_t)            \
  X(columns, int64_t)           \
  X(epsilon, double)            \
  X(weight_offset, double)      \
  X(softmax_scale, double)      \
  X(softcap, double)            \
  X(alibi, double)              \
  X(scale, double)              \
  X(rope_scale, double)         \
  X(rope_pairs, int64_t)        \
  X(activation, ls_activation)  \
  X(beta1, double)              \
  X(beta2, double)              \
  X(weight_decay, double)       \
  X(clip, double)               \
  X(weight, double)

#define LS_COUNT_ONE(...) +1
enum {
  LS_VALUE_FIELDS = 0 LS_VALUE_NUMBERS(LS_COUNT_ONE),
  LS_ATTRIBUTE_FIELDS = 0 LS_ATTRIBUTE_NUMBERS(LS_COUNT_ONE)
};

int64_t ls_value_field(const ls_value *value, int field);
void ls_value_set_field(ls_value *value, int field, int64_t number);
double ls_attribute_field(const ls_attributes *attributes, int field);
/* `number` is one that ls_attribute_can_be says the field can be. */
void ls_attribute_set_field(ls_attributes *attributes, int field, double number);
bool ls_attribute_can_be(int field, double number);

#endif
