#include <math.h>

#include "chat/jinja_value.h"

static ls_status fail_sides(ls_jinja_run *run, const char *sign, const ls_jinja_value *left,
                            const ls_jinja_value *right) {
  const ls_jinja_value *bad = left->kind == LS_JINJA_UNDEFINED ? left : right;
  if (bad->kind == LS_JINJA_UNDEFINED && bad->name)
    return ls_jinja_fail(run, "'%.60s' is undefined; expected a value beside %s", bad->name, sign);
  return ls_jinja_fail(run, "found %s %s %s; expected two numbers, two texts or two lists",
                       ls_jinja_kind_name(left), sign, ls_jinja_kind_name(right));
}

static ls_status join_texts(ls_jinja_run *run, const ls_jinja_value *left,
                            const ls_jinja_value *right, ls_jinja_value *value) {
  ls_jinja_buffer buffer = {0};
  LS_TRY(ls_jinja_append(run, &buffer, left->text, left->bytes));
  LS_TRY(ls_jinja_append(run, &buffer, right->text, right->bytes));
  *value = ls_jinja_buffer_text(&buffer);
  return LS_OK;
}

static ls_status join_lists(ls_jinja_run *run, const ls_jinja_value *left,
                            const ls_jinja_value *right, ls_jinja_value *value) {
  LS_TRY(ls_jinja_list_new(run, left->kind, left->list->count + right->list->count, value));
  for (int i = 0; i < left->list->count; i++)
    LS_TRY(ls_jinja_list_add(run, value, left->list->items[i]));
  for (int i = 0; i < right->list->count; i++)
    LS_TRY(ls_jinja_list_add(run, value, right->list->items[i]));
  return LS_OK;
}

/* A text or a list so many times. */
static ls_status repeat(ls_jinja_run *run, const ls_jinja_value *of, int64_t times,
                        ls_jinja_value *value) {
  ls_jinja_buffer buffer = {0};
  LS_TRY(ls_jinja_list_new(run, of->kind, 0, value));
  for (int64_t t = 0; t < times; t++) {
    LS_TRY(ls_jinja_step(run));
    if (of->kind == LS_JINJA_TEXT)
      LS_TRY(ls_jinja_append(run, &buffer, of->text, of->bytes));
    else
      for (int i = 0; i < of->list->count; i++)
        LS_TRY(ls_jinja_list_add(run, value, of->list->items[i]));
  }
  if (of->kind == LS_JINJA_TEXT) *value = ls_jinja_buffer_text(&buffer);
  return LS_OK;
}

/* Python's // and %: rounded down, the sign of the divisor. */
static ls_status divide(ls_jinja_run *run, char sign, int64_t left, int64_t right,
                        ls_jinja_value *value) {
  if (right == -1) {
    if (left == INT64_MIN) return ls_jinja_fail(run, "a number is beyond 64 bits");
    *value = ls_jinja_whole(sign == '/' ? -left : 0);
    return LS_OK;
  }
  int64_t quotient = left / right, rest = left % right;
  if (rest != 0 && (rest < 0) != (right < 0)) {
    quotient--;
    rest += right;
  }
  *value = ls_jinja_whole(sign == '/' ? quotient : rest);
  return LS_OK;
}

static ls_status whole_power(ls_jinja_run *run, int64_t base, int64_t power,
                             ls_jinja_value *value) {
  int64_t product = 1;
  if (power < 0) {
    *value = (ls_jinja_value){.kind = LS_JINJA_REAL, .real = pow((double)base, (double)power)};
    return LS_OK;
  }
  if (base >= -1 && base <= 1) power = power > 1 ? 2 - power % 2 : power;
  for (; power > 0; power--)
    if (__builtin_mul_overflow(product, base, &product))
      return ls_jinja_fail(run, "a number is beyond 64 bits; expected a smaller one");
  *value = ls_jinja_whole(product);
  return LS_OK;
}

static ls_status whole_result(ls_jinja_run *run, const char *sign, int64_t left, int64_t right,
                              ls_jinja_value *value) {
  int64_t whole = 0;
  bool beyond = false;
  if (strcmp(sign, "**") == 0) return whole_power(run, left, right, value);
  switch (*sign) {
    case '+': beyond = __builtin_add_overflow(left, right, &whole); break;
    case '-': beyond = __builtin_sub_overflow(left, right, &whole); break;
    case '*': beyond = __builtin_mul_overflow(left, right, &whole); break;
    default: return divide(run, *sign, left, right, value);
  }
  if (beyond) return ls_jinja_fail(run, "a number is beyond 64 bits; expected a smaller one");
  *value = ls_jinja_whole(whole);
  return LS_OK;
}

static ls_status numbers(ls_jinja_run *run, const char *sign, const ls_jinja_value *left,
                         const ls_jinja_value *right, ls_jinja_value *value) {
  const double a = ls_jinja_number(left), b = ls_jinja_number(right);
  const bool whole = left->kind != LS_JINJA_REAL && right->kind != LS_JINJA_REAL;
  if ((*sign == '/' || *sign == '%') && b == 0)
    return ls_jinja_fail(run, "found a division by zero; expected another divisor");
  if (whole && strcmp(sign, "/") != 0)
    return whole_result(run, sign, left->whole, right->whole, value);
  double real = 0;
  if (strcmp(sign, "**") == 0)
    real = pow(a, b);
  else if (strcmp(sign, "//") == 0)
    real = floor(a / b);
  else if (*sign == '/')
    real = a / b;
  else if (*sign == '%')
    real = a - b * floor(a / b);
  else if (*sign == '*')
    real = a * b;
  else
    real = *sign == '+' ? a + b : a - b;
  *value = (ls_jinja_value){.kind = LS_JINJA_REAL, .real = real};
  return LS_OK;
}

static bool is_row(const ls_jinja_value *value) {
  return value->kind == LS_JINJA_TEXT || value->kind == LS_JINJA_LIST ||
         value->kind == LS_JINJA_TUPLE;
}

ls_status ls_jinja_binary(ls_jinja_run *run, const char *sign, const ls_jinja_value *left,
                          const ls_jinja_value *right, ls_jinja_value *value) {
  if (*sign == '~') {
    ls_jinja_value a, b;
    LS_TRY(ls_jinja_text_of(run, left, &a));
    LS_TRY(ls_jinja_text_of(run, right, &b));
    return join_texts(run, &a, &b, value);
  }
  if (ls_jinja_is_number(left) && ls_jinja_is_number(right))
    return numbers(run, sign, left, right, value);
  if (*sign == '+' && left->kind == right->kind && is_row(left))
    return left->kind == LS_JINJA_TEXT ? join_texts(run, left, right, value)
                                       : join_lists(run, left, right, value);
  if (strcmp(sign, "*") == 0) {
    const bool first = is_row(left);
    const ls_jinja_value *of = first ? left : right, *times = first ? right : left;
    if (is_row(of) && (times->kind == LS_JINJA_INT || times->kind == LS_JINJA_BOOL))
      return repeat(run, of, times->whole, value);
  }
  if (*sign == '%' && left->kind == LS_JINJA_TEXT)
    return ls_jinja_fail(run, "found a text formatted with %%; expected ~ or + instead");
  return fail_sides(run, sign, left, right);
}
