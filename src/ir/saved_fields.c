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

double ls_attribute_field(const ls_attributes *attributes, int field) {
  const double numbers[] = {
#define LS_GET(type, name) (double)attributes->name,
      LS_ATTRIBUTES(LS_GET)
#undef LS_GET
  };
  return numbers[field];
}

void ls_attribute_set_field(ls_attributes *attributes, int field, double number) {
  int at = 0;
#define LS_SET(type, name) \
  if (field == at++) attributes->name = (type)number;
  LS_ATTRIBUTES(LS_SET)
#undef LS_SET
}

static bool is_whole(double number, double most) {
  return number >= 0 && number <= most && number == (double)(int64_t)number;
}

bool ls_attribute_can_be(int field, double number) {
  int at = 0;
#define LS_IS_double(value) true
#define LS_IS_int64_t(value) is_whole(value, 0x1p52)
#define LS_IS_ls_activation(value) is_whole(value, LS_GELU_ERF)
#define LS_CAN_BE(type, name) \
  if (field == at++) return LS_IS_##type(number);
  LS_ATTRIBUTES(LS_CAN_BE)
#undef LS_CAN_BE
#undef LS_IS_ls_activation
#undef LS_IS_int64_t
#undef LS_IS_double
  return false;
}
