#include "graph/attributes.h"

#include <math.h>
#include <stddef.h>

double ls_alibi_slope(int64_t head, int64_t heads) {
  int64_t power = 1;
  while (power * 2 <= heads) power *= 2;
  const double base = exp2(-8 / (double)power);
  if (head < power) return pow(base, (double)(head + 1));
  return pow(sqrt(base), (double)(2 * (head - power) + 1));
}

const char *ls_attribute_name(int field) {
  static const char *const names[] = {
#define LS_NAME(type, name) #name,
      LS_ATTRIBUTES(LS_NAME)
#undef LS_NAME
  };
  return names[field];
}

double ls_attribute_get(const ls_attributes *attributes, int field) {
  const double numbers[] = {
#define LS_GET(type, name) (double)attributes->name,
      LS_ATTRIBUTES(LS_GET)
#undef LS_GET
  };
  return numbers[field];
}

void ls_attribute_set(ls_attributes *attributes, int field, double number) {
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
#define LS_IS_ls_activation(value) is_whole(value, LS_ACTIVATION_COUNT - 1)
#define LS_IS_ls_fp8(value) is_whole(value, LS_FP8_COUNT - 1)
#define LS_CAN_BE(type, name) \
  if (field == at++) return LS_IS_##type(number);
  LS_ATTRIBUTES(LS_CAN_BE)
#undef LS_CAN_BE
#undef LS_IS_ls_fp8
#undef LS_IS_ls_activation
#undef LS_IS_int64_t
#undef LS_IS_double
  return false;
}

/* Numbers are compared as they are: both sides come from one place, so not a bit may differ. */
const char *ls_attributes_differ(const ls_attributes *a, const ls_attributes *b, double of[2]) {
#define LS_DIFFER(type, name) \
  of[0] = (double)a->name;    \
  of[1] = (double)b->name;    \
  if (a->name != b->name) return #name;
  LS_ATTRIBUTES(LS_DIFFER)
#undef LS_DIFFER
  for (int64_t p = 0; p < a->rope_pairs; p++) {
    of[0] = a->rope_frequencies[p];
    of[1] = b->rope_frequencies[p];
    if (of[0] != of[1]) return "rope_frequencies";
  }
  return NULL;
}

bool ls_attributes_equal(const ls_attributes *a, const ls_attributes *b) {
  double of[2];
  return !ls_attributes_differ(a, b, of);
}
