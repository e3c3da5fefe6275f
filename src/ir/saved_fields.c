#include "ir/saved_fields.h"

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
