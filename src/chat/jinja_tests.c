#include "chat/jinja_value.h"

/* What is asked of a value alone. */
static bool is_kind(const ls_jinja_value *value, const char *name, bool *holds) {
  const ls_jinja_kind kind = value->kind;
  const bool row = kind == LS_JINJA_LIST || kind == LS_JINJA_TUPLE || kind == LS_JINJA_TEXT;
  const struct {
    const char *name;
    bool holds;
  } kinds[] = {
      {"defined", kind != LS_JINJA_UNDEFINED},
      {"undefined", kind == LS_JINJA_UNDEFINED},
      {"none", kind == LS_JINJA_NONE},
      {"boolean", kind == LS_JINJA_BOOL},
      {"true", kind == LS_JINJA_BOOL && value->whole},
      {"false", kind == LS_JINJA_BOOL && !value->whole},
      {"integer", kind == LS_JINJA_INT},
      {"float", kind == LS_JINJA_REAL},
      {"number", ls_jinja_is_number(value)},
      {"string", kind == LS_JINJA_TEXT},
      {"mapping", kind == LS_JINJA_DICT},
      {"sequence", row || kind == LS_JINJA_DICT || kind == LS_JINJA_UNDEFINED},
      {"iterable",
       row || kind == LS_JINJA_DICT || kind == LS_JINJA_UNDEFINED || kind == LS_JINJA_LOOP},
      {"callable", kind == LS_JINJA_MACRO || kind == LS_JINJA_FUNCTION || kind == LS_JINJA_METHOD},
  };
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
    if (strcmp(kinds[k].name, name) != 0) continue;
    *holds = kinds[k].holds;
    return true;
  }
  return false;
}

/* Names of comparisons, and which. */
static const char *const comparisons[][2] = {
    {"eq", "=="}, {"equalto", "=="}, {"ne", "!="},      {"lt", "<"},          {"le", "<="},
    {"gt", ">"},  {"ge", ">="},      {"lessthan", "<"}, {"greaterthan", ">"},
};

static const char *comparison_of(const char *name) {
  for (size_t c = 0; c < sizeof comparisons / sizeof *comparisons; c++)
    if (strcmp(comparisons[c][0], name) == 0) return comparisons[c][1];
  return NULL;
}

bool ls_jinja_has_test(const char *name) {
  static const char *const others[] = {"in",          "sameas", "odd",  "even",
                                       "divisibleby", "lower",  "upper"};
  const ls_jinja_value none = ls_jinja_none();
  bool holds;
  if (is_kind(&none, name, &holds) || comparison_of(name)) return true;
  for (size_t o = 0; o < sizeof others / sizeof *others; o++)
    if (strcmp(others[o], name) == 0) return true;
  return false;
}

static ls_status compares(ls_jinja_run *run, const char *sign, const ls_jinja_value *value,
                          const ls_jinja_value *other, bool *holds) {
  int order;
  if (sign[0] == '=' || sign[0] == '!') {
    *holds = ls_jinja_equal(run, value, other) == (sign[0] == '=');
    return LS_OK;
  }
  LS_TRY(ls_jinja_compare(run, value, other, &order));
  *holds = (sign[0] == '<' ? order < 0 : order > 0) || (sign[1] == '=' && order == 0);
  return LS_OK;
}

/* odd, even and divisibleby. */
static ls_status divides(ls_jinja_run *run, const char *name, const ls_jinja_value *value,
                         const ls_jinja_value *by, bool *holds) {
  int64_t whole, divisor = 2;
  LS_TRY(ls_jinja_want_whole(run, name, value, &whole));
  if (*name == 'd') LS_TRY(ls_jinja_want_whole(run, name, by, &divisor));
  if (divisor == 0) return ls_jinja_fail(run, "%s: found a division by zero", name);
  *holds = (divisor == -1 || whole % divisor == 0) == (*name != 'o');
  return LS_OK;
}

static ls_status is_case(ls_jinja_run *run, const char *name, const ls_jinja_value *value,
                         bool *holds) {
  static const ls_jinja_arguments nothing;
  ls_jinja_value text, result;
  LS_TRY(ls_jinja_text_of(run, value, &text));
  LS_TRY(ls_jinja_method(run, &text, *name == 'l' ? "islower" : "isupper", &nothing, &result));
  *holds = ls_jinja_is_true(&result);
  return LS_OK;
}

ls_status ls_jinja_test(ls_jinja_run *run, const char *name, const ls_jinja_value *value,
                        const ls_jinja_arguments *given, bool *holds) {
  ls_jinja_value other;
  if (is_kind(value, name, holds)) return ls_jinja_bind(run, name, "", 0, given, NULL);
  const bool alone = strcmp(name, "odd") == 0 || strcmp(name, "even") == 0 ||
                     strcmp(name, "lower") == 0 || strcmp(name, "upper") == 0;
  LS_TRY(ls_jinja_bind(run, name, alone ? "" : "other", alone ? 0 : 1, given, &other));
  const char *sign = comparison_of(name);
  if (sign) return compares(run, sign, value, &other, holds);
  if (strcmp(name, "in") == 0) return ls_jinja_contains(run, &other, value, holds);
  if (strcmp(name, "lower") == 0 || strcmp(name, "upper") == 0)
    return is_case(run, name, value, holds);
  if (strcmp(name, "sameas") != 0) return divides(run, name, value, &other, holds);
  const bool lists =
      value->kind == LS_JINJA_LIST || value->kind == LS_JINJA_TUPLE || value->kind == LS_JINJA_DICT;
  *holds = value->kind == other.kind &&
           (lists ? value->list == other.list : ls_jinja_equal(run, value, &other));
  return LS_OK;
}
