#include "ir/saved_fields.h"

#include <string.h>

int64_t ls_value_field(const ls_value *value, int field) {
  const int64_t numbers[] = {
#define LS_GET(name) (int64_t) value->name,
      LS_VALUE_NUMBERS(LS_GET)
#undef LS_GET
  };
  return numbers[field];
}

void ls_value_set_field(ls_value *value, int field, int64_t number) {
  int at = 0;
#define LS_SET(name) \
  if (field == at++) value->name = number;
  LS_VALUE_NUMBERS(LS_SET)
#undef LS_SET
}

#define NUMBER(name, low, high) \
  { #name, offsetof(ls_layout, name), sizeof(((ls_layout *)NULL)->name), low, high }

const ls_layout_number ls_layout_numbers[] = {
    NUMBER(chunks, 0, INT32_MAX),
    NUMBER(post_validation, 0, 1),
    NUMBER(context, 0, LS_CONTEXT_COUNT - 1),
    NUMBER(ulysses, 0, INT32_MAX),
    NUMBER(exchange, 0, LS_EXCHANGE_COUNT - 1),
    NUMBER(expert_bound, 0, INT32_MAX),
    NUMBER(expert_again, 0, INT32_MAX),
    NUMBER(ep, 1, INT32_MAX),
    NUMBER(whole_experts, 0, 1),
    NUMBER(zero, 0, LS_DATA_STRATEGY_COUNT - 1),
    NUMBER(sequence_parallel, 0, 1),
    NUMBER(microbatches, 1, INT32_MAX - 1),
    NUMBER(layers_per_unit, 0, INT32_MAX),
    NUMBER(logits_rows, 0, INT64_MAX),
    NUMBER(logits_bytes, 0, INT64_MAX),
    NUMBER(logits_multiple, 0, 1 << 20),
    NUMBER(gather, LS_WHEN_AUTO, LS_WHEN_STEP),
    NUMBER(reduce, LS_WHEN_AUTO, LS_WHEN_STEP),
    NUMBER(prefetch, 0, INT32_MAX),
    NUMBER(recompute_layers, 0, INT32_MAX),
    {0},
};

int64_t ls_layout_number_get(const ls_layout *layout, const ls_layout_number *number) {
  const char *at = (const char *)layout + number->offset;
  if (number->bytes == sizeof(bool)) return *(const bool *)at;
  return number->bytes == sizeof(int64_t) ? *(const int64_t *)at : *(const int *)at;
}

void ls_layout_number_set(ls_layout *layout, const ls_layout_number *number, int64_t value) {
  char *at = (char *)layout + number->offset;
  const int narrow = (int)value;
  if (number->bytes == sizeof(bool))
    *(bool *)at = value != 0;
  else
    memcpy(at, number->bytes == sizeof(int64_t) ? (const void *)&value : &narrow, number->bytes);
}
