#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "chat/jinja_value.h"

typedef ls_status filter(ls_jinja_run *run, const ls_jinja_value *value,
                         const ls_jinja_arguments *given, ls_jinja_value *result);

static bool is_given(const ls_jinja_value *value) {
  return value->kind != LS_JINJA_ABSENT && value->kind != LS_JINJA_NONE;
}

static const ls_jinja_arguments nothing;

static ls_status filter_trim(ls_jinja_run *run, const ls_jinja_value *value,
                             const ls_jinja_arguments *given, ls_jinja_value *result) {
  ls_jinja_value text;
  LS_TRY(ls_jinja_text_of(run, value, &text));
  return ls_jinja_method(run, &text, "strip", given, result);
}

static ls_status change_case(ls_jinja_run *run, char form, const ls_jinja_value *value,
                             const ls_jinja_arguments *given, ls_jinja_value *result) {
  ls_jinja_value text;
  LS_TRY(ls_jinja_bind(run, "a filter", "", 0, given, NULL));
  LS_TRY(ls_jinja_text_of(run, value, &text));
  return ls_jinja_case(run, form, &text, result);
}

static ls_status filter_lower(ls_jinja_run *run, const ls_jinja_value *value,
                              const ls_jinja_arguments *given, ls_jinja_value *result) {
  return change_case(run, 'l', value, given, result);
}

static ls_status filter_upper(ls_jinja_run *run, const ls_jinja_value *value,
                              const ls_jinja_arguments *given, ls_jinja_value *result) {
  return change_case(run, 'u', value, given, result);
}

static ls_status filter_capitalize(ls_jinja_run *run, const ls_jinja_value *value,
                                   const ls_jinja_arguments *given, ls_jinja_value *result) {
  return change_case(run, 'c', value, given, result);
}

/* Words begin behind white space, '-' and opening brackets, unlike in Python's own title. */
static ls_status filter_title(ls_jinja_run *run, const ls_jinja_value *value,
                              const ls_jinja_arguments *given, ls_jinja_value *result) {
  ls_jinja_value text, word;
  ls_jinja_buffer buffer = {0};
  LS_TRY(ls_jinja_bind(run, "title", "", 0, given, NULL));
  LS_TRY(ls_jinja_text_of(run, value, &text));
  const char *at = text.text, *end = at + text.bytes;
  while (at < end) {
    const char *begin = at;
    while (at < end && !strchr("-({[<", *at) && !ls_jinja_space(at, end))
      at += ls_jinja_character(at, end);
    word = ls_jinja_span_of(begin, (size_t)(at - begin));
    LS_TRY(ls_jinja_case(run, 'c', &word, &word));
    LS_TRY(ls_jinja_append(run, &buffer, word.text, word.bytes));
    if (at == end) break;
    const size_t bytes = ls_jinja_character(at, end);
    LS_TRY(ls_jinja_append(run, &buffer, at, bytes));
    at += bytes;
  }
  *result = ls_jinja_buffer_text(&buffer);
  return LS_OK;
}

static ls_status filter_length(ls_jinja_run *run, const ls_jinja_value *value,
                               const ls_jinja_arguments *given, ls_jinja_value *result) {
  int64_t length;
  LS_TRY(ls_jinja_bind(run, "length", "", 0, given, NULL));
  LS_TRY(ls_jinja_length(run, value, &length));
  *result = ls_jinja_whole(length);
  return LS_OK;
}

/* "a.b" of a value: a is looked up in it, then b in that; digits are places. */
static ls_status member(ls_jinja_run *run, const ls_jinja_value *value,
                        const ls_jinja_value *attribute, ls_jinja_value *result) {
  *result = *value;
  if (attribute->kind == LS_JINJA_INT) return ls_jinja_item(run, value, attribute, result);
  LS_TRY(ls_jinja_want_text(run, "attribute", attribute));
  const char *at = attribute->text, *end = at + attribute->bytes;
  for (;;) {
    const char *dot = at < end ? memchr(at, '.', (size_t)(end - at)) : NULL;
    const char *stop = dot ? dot : end;
    ls_jinja_value key = ls_jinja_span_of(at, (size_t)(stop - at));
    char *rest = NULL;
    char digits[20] = "";
    if (key.bytes < sizeof digits) snprintf(digits, sizeof digits, "%.*s", (int)key.bytes, at);
    const long long place = strtoll(digits, &rest, 10);
    if (isdigit((unsigned char)*digits) && !*rest) key = ls_jinja_whole(place);
    LS_TRY(ls_jinja_item(run, result, &key, result));
    if (!dot) return LS_OK;
    at = dot + 1;
  }
}

static ls_status filter_join(ls_jinja_run *run, const ls_jinja_value *value,
                             const ls_jinja_arguments *given, ls_jinja_value *result) {
  ls_jinja_value bound[2], list, by = ls_jinja_string("");
  ls_jinja_buffer buffer = {0};
  LS_TRY(ls_jinja_bind(run, "join", "d attribute", 0, given, bound));
  if (bound[0].kind != LS_JINJA_ABSENT) LS_TRY(ls_jinja_text_of(run, &bound[0], &by));
  LS_TRY(ls_jinja_iterate(run, value, &list));
  for (int i = 0; i < list.list->count; i++) {
    ls_jinja_value item = list.list->items[i];
    if (is_given(&bound[1])) LS_TRY(member(run, &item, &bound[1], &item));
    if (i > 0) LS_TRY(ls_jinja_append(run, &buffer, by.text, by.bytes));
    LS_TRY(ls_jinja_print(run, &item, &buffer));
  }
  *result = ls_jinja_buffer_text(&buffer);
  return LS_OK;
}

static ls_status filter_default(ls_jinja_run *run, const ls_jinja_value *value,
                                const ls_jinja_arguments *given, ls_jinja_value *result) {
  ls_jinja_value bound[2];
  LS_TRY(ls_jinja_bind(run, "default", "default_value boolean", 0, given, bound));
  const bool missing = value->kind == LS_JINJA_UNDEFINED ||
                       (ls_jinja_is_true(&bound[1]) && !ls_jinja_is_true(value));
  *result = *value;
  if (missing) *result = bound[0].kind == LS_JINJA_ABSENT ? ls_jinja_string("") : bound[0];
  return LS_OK;
}

/* A text that outlives the call, for a separator of JSON. */
static ls_status separator(ls_jinja_run *run, const ls_jinja_value *of, int place,
                           const char **text) {
  if (of->list->count != 2) return ls_jinja_fail(run, "tojson: expected two separators");
  const ls_jinja_value *value = &of->list->items[place];
  LS_TRY(ls_jinja_want_text(run, "tojson", value));
  LS_TRY(ls_jinja_charge(run, value->bytes + 1));
  *text = ls_arena_printf(run->arena, "%.*s", (int)value->bytes, value->text);
  return LS_OK;
}

/* As transformers has it: nothing is escaped for HTML, keys stay in order. */
static ls_status filter_tojson(ls_jinja_run *run, const ls_jinja_value *value,
                               const ls_jinja_arguments *given, ls_jinja_value *result) {
  ls_jinja_value bound[4];
  ls_jinja_buffer buffer = {0};
  LS_TRY(ls_jinja_bind(run, "tojson", "ensure_ascii indent separators sort_keys", 0, given, bound));
  int64_t indent = -1;
  if (is_given(&bound[1])) LS_TRY(ls_jinja_want_whole(run, "tojson", &bound[1], &indent));
  if (indent > 64) return ls_jinja_fail(run, "tojson: expected an indent of at most 64");
  ls_jinja_json form = {.indent = (int)indent,
                        .ascii = ls_jinja_is_true(&bound[0]),
                        .sorted = ls_jinja_is_true(&bound[3]),
                        .between = indent < 0 ? ", " : ",",
                        .after_key = ": "};
  if (is_given(&bound[2])) {
    if (bound[2].kind != LS_JINJA_TUPLE && bound[2].kind != LS_JINJA_LIST)
      return ls_jinja_fail(run, "tojson: expected separators as (',', ':')");
    LS_TRY(separator(run, &bound[2], 0, &form.between));
    LS_TRY(separator(run, &bound[2], 1, &form.after_key));
  }
  LS_TRY(ls_jinja_dump(run, value, &form, 0, &buffer));
  *result = ls_jinja_buffer_text(&buffer);
  return LS_OK;
}

static ls_status end_item(ls_jinja_run *run, const ls_jinja_value *value, bool last,
                          ls_jinja_value *result) {
  ls_jinja_value list;
  LS_TRY(ls_jinja_iterate(run, value, &list));
  *result = ls_jinja_undefined("an item of an empty list");
  if (list.list->count > 0) *result = list.list->items[last ? list.list->count - 1 : 0];
  return LS_OK;
}

static ls_status filter_first(ls_jinja_run *run, const ls_jinja_value *value,
                              const ls_jinja_arguments *given, ls_jinja_value *result) {
  LS_TRY(ls_jinja_bind(run, "first", "", 0, given, NULL));
  return end_item(run, value, false, result);
}

static ls_status filter_last(ls_jinja_run *run, const ls_jinja_value *value,
                             const ls_jinja_arguments *given, ls_jinja_value *result) {
  LS_TRY(ls_jinja_bind(run, "last", "", 0, given, NULL));
  return end_item(run, value, true, result);
}

static ls_status filter_list(ls_jinja_run *run, const ls_jinja_value *value,
                             const ls_jinja_arguments *given, ls_jinja_value *result) {
  LS_TRY(ls_jinja_bind(run, "list", "", 0, given, NULL));
  LS_TRY(ls_jinja_iterate(run, value, result));
  result->kind = LS_JINJA_LIST;
  return LS_OK;
}

static ls_status filter_string(ls_jinja_run *run, const ls_jinja_value *value,
                               const ls_jinja_arguments *given, ls_jinja_value *result) {
  LS_TRY(ls_jinja_bind(run, "string", "", 0, given, NULL));
  return ls_jinja_text_of(run, value, result);
}

/* The number that a text is, as a C string in `digits`; "" where it is too long. */
static void number_text(const ls_jinja_value *value, char digits[64]) {
  const ls_jinja_value *text = value;
  *digits = 0;
  if (text->kind == LS_JINJA_TEXT && text->bytes < 60)
    snprintf(digits, 64, "%.*s", (int)text->bytes, text->text);
}

static ls_status filter_int(ls_jinja_run *run, const ls_jinja_value *value,
                            const ls_jinja_arguments *given, ls_jinja_value *result) {
  ls_jinja_value bound[2];
  char digits[64], *rest;
  LS_TRY(ls_jinja_bind(run, "int", "default base", 0, given, bound));
  *result = bound[0].kind == LS_JINJA_ABSENT ? ls_jinja_whole(0) : bound[0];
  number_text(value, digits);
  double real = ls_jinja_is_number(value) ? ls_jinja_number(value) : strtod(digits, &rest);
  if (value->kind == LS_JINJA_TEXT) {
    errno = 0;
    const long long whole = strtoll(digits, &rest, 10);
    while (isspace((unsigned char)*rest)) rest++;
    if (*digits && !*rest && errno == 0) {
      *result = ls_jinja_whole(whole);
      return LS_OK;
    }
    real = strtod(digits, &rest);
    while (isspace((unsigned char)*rest)) rest++;
    if (!*digits || *rest) return LS_OK;
  } else if (!ls_jinja_is_number(value)) {
    return LS_OK;
  }
  if (value->kind == LS_JINJA_INT || value->kind == LS_JINJA_BOOL)
    *result = ls_jinja_whole(value->whole);
  else if (fabs(real) < 9e18)
    *result = ls_jinja_whole((int64_t)real);
  return LS_OK;
}

static ls_status filter_float(ls_jinja_run *run, const ls_jinja_value *value,
                              const ls_jinja_arguments *given, ls_jinja_value *result) {
  ls_jinja_value bound;
  char digits[64], *rest;
  LS_TRY(ls_jinja_bind(run, "float", "default", 0, given, &bound));
  number_text(value, digits);
  const double read = strtod(digits, &rest);
  while (isspace((unsigned char)*rest)) rest++;
  const bool number = ls_jinja_is_number(value);
  if (number || (*digits && !*rest))
    *result =
        (ls_jinja_value){.kind = LS_JINJA_REAL, .real = number ? ls_jinja_number(value) : read};
  else
    *result = bound.kind == LS_JINJA_ABSENT ? (ls_jinja_value){.kind = LS_JINJA_REAL} : bound;
  return LS_OK;
}

static ls_status filter_abs(ls_jinja_run *run, const ls_jinja_value *value,
                            const ls_jinja_arguments *given, ls_jinja_value *result) {
  LS_TRY(ls_jinja_bind(run, "abs", "", 0, given, NULL));
  if (!ls_jinja_is_number(value))
    return ls_jinja_fail(run, "abs: found %s; expected a number", ls_jinja_kind_name(value));
  *result = *value;
  if (value->kind == LS_JINJA_REAL) result->real = fabs(value->real);
  if (value->kind != LS_JINJA_REAL && value->whole < 0 && value->whole > INT64_MIN)
    *result = ls_jinja_whole(-value->whole);
  return LS_OK;
}

static ls_status filter_replace(ls_jinja_run *run, const ls_jinja_value *value,
                                const ls_jinja_arguments *given, ls_jinja_value *result) {
  ls_jinja_value text;
  LS_TRY(ls_jinja_text_of(run, value, &text));
  return ls_jinja_method(run, &text, "replace", given, result);
}

static ls_status filter_reverse(ls_jinja_run *run, const ls_jinja_value *value,
                                const ls_jinja_arguments *given, ls_jinja_value *result) {
  const ls_jinja_value bounds[3] = {
      {.kind = LS_JINJA_NONE}, {.kind = LS_JINJA_NONE}, ls_jinja_whole(-1)};
  ls_jinja_value list;
  LS_TRY(ls_jinja_bind(run, "reverse", "", 0, given, NULL));
  if (value->kind == LS_JINJA_TEXT) return ls_jinja_slice(run, value, bounds, result);
  LS_TRY(ls_jinja_iterate(run, value, &list));
  return ls_jinja_slice(run, &list, bounds, result);
}

/* What is compared by sort, unique, min and max: texts without their case. */
static ls_status sort_key(ls_jinja_run *run, const ls_jinja_value *item,
                          const ls_jinja_value *attribute, bool cased, ls_jinja_value *key) {
  *key = *item;
  if (is_given(attribute)) LS_TRY(member(run, item, attribute, key));
  return cased || key->kind != LS_JINJA_TEXT ? LS_OK : ls_jinja_case(run, 'l', key, key);
}

/* By insertion: equal ones stay in order, and lists of templates are short. */
static ls_status filter_sort(ls_jinja_run *run, const ls_jinja_value *value,
                             const ls_jinja_arguments *given, ls_jinja_value *result) {
  ls_jinja_value bound[3], list, keys, key;
  LS_TRY(ls_jinja_bind(run, "sort", "reverse case_sensitive attribute", 0, given, bound));
  const bool down = ls_jinja_is_true(&bound[0]), cased = ls_jinja_is_true(&bound[1]);
  LS_TRY(ls_jinja_iterate(run, value, &list));
  const int count = list.list->count;
  LS_TRY(ls_jinja_list_new(run, LS_JINJA_LIST, count, result));
  LS_TRY(ls_jinja_list_new(run, LS_JINJA_LIST, count, &keys));
  for (int i = 0; i < count; i++) {
    LS_TRY(sort_key(run, &list.list->items[i], &bound[2], cased, &key));
    int at = i, order;
    for (; at > 0; at--) {
      LS_TRY(ls_jinja_compare(run, &keys.list->items[at - 1], &key, &order));
      if (down ? order >= 0 : order <= 0) break;
    }
    LS_TRY(ls_jinja_list_add(run, result, key));
    LS_TRY(ls_jinja_list_add(run, &keys, key));
    for (int k = i; k > at; k--) {
      result->list->items[k] = result->list->items[k - 1];
      keys.list->items[k] = keys.list->items[k - 1];
    }
    result->list->items[at] = list.list->items[i];
    keys.list->items[at] = key;
  }
  return LS_OK;
}

static ls_status filter_unique(ls_jinja_run *run, const ls_jinja_value *value,
                               const ls_jinja_arguments *given, ls_jinja_value *result) {
  ls_jinja_value bound[2], list, keys, key;
  LS_TRY(ls_jinja_bind(run, "unique", "case_sensitive attribute", 0, given, bound));
  LS_TRY(ls_jinja_iterate(run, value, &list));
  LS_TRY(ls_jinja_list_new(run, LS_JINJA_LIST, 0, result));
  LS_TRY(ls_jinja_list_new(run, LS_JINJA_LIST, 0, &keys));
  for (int i = 0; i < list.list->count; i++) {
    bool known;
    LS_TRY(sort_key(run, &list.list->items[i], &bound[1], ls_jinja_is_true(&bound[0]), &key));
    LS_TRY(ls_jinja_contains(run, &keys, &key, &known));
    if (known) continue;
    LS_TRY(ls_jinja_list_add(run, &keys, key));
    LS_TRY(ls_jinja_list_add(run, result, list.list->items[i]));
  }
  return LS_OK;
}

/* min and max. */
static ls_status extreme(ls_jinja_run *run, bool most, const ls_jinja_value *value,
                         const ls_jinja_arguments *given, ls_jinja_value *result) {
  ls_jinja_value bound[2], list, best = {0}, key;
  LS_TRY(ls_jinja_bind(run, "min and max", "case_sensitive attribute", 0, given, bound));
  LS_TRY(ls_jinja_iterate(run, value, &list));
  *result = ls_jinja_undefined("an item of an empty list");
  for (int i = 0; i < list.list->count; i++) {
    int order = 0;
    LS_TRY(sort_key(run, &list.list->items[i], &bound[1], ls_jinja_is_true(&bound[0]), &key));
    if (i > 0) LS_TRY(ls_jinja_compare(run, &key, &best, &order));
    if (i > 0 && (most ? order <= 0 : order >= 0)) continue;
    best = key;
    *result = list.list->items[i];
  }
  return LS_OK;
}

static ls_status filter_min(ls_jinja_run *run, const ls_jinja_value *value,
                            const ls_jinja_arguments *given, ls_jinja_value *result) {
  return extreme(run, false, value, given, result);
}

static ls_status filter_max(ls_jinja_run *run, const ls_jinja_value *value,
                            const ls_jinja_arguments *given, ls_jinja_value *result) {
  return extreme(run, true, value, given, result);
}

static ls_status filter_sum(ls_jinja_run *run, const ls_jinja_value *value,
                            const ls_jinja_arguments *given, ls_jinja_value *result) {
  ls_jinja_value bound[2], list;
  LS_TRY(ls_jinja_bind(run, "sum", "attribute start", 0, given, bound));
  LS_TRY(ls_jinja_iterate(run, value, &list));
  *result = is_given(&bound[1]) ? bound[1] : ls_jinja_whole(0);
  for (int i = 0; i < list.list->count; i++) {
    ls_jinja_value item = list.list->items[i];
    if (is_given(&bound[0])) LS_TRY(member(run, &item, &bound[0], &item));
    LS_TRY(ls_jinja_binary(run, "+", result, &item, result));
  }
  return LS_OK;
}

/* What is left of the arguments behind the first `used`. */
static ls_jinja_arguments rest_of(const ls_jinja_arguments *given, int used) {
  ls_jinja_arguments rest = *given;
  rest.items += used;
  rest.count -= used;
  return rest;
}

/* The text that names a filter or a test. */
static ls_status named_by(ls_jinja_run *run, const ls_jinja_value *value, char name[32],
                          bool test) {
  LS_TRY(ls_jinja_want_text(run, "a filter's or test's name", value));
  snprintf(name, 32, "%.*s", value->bytes < 31 ? (int)value->bytes : 31, value->text);
  if (test ? ls_jinja_has_test(name) : ls_jinja_has_filter(name)) return LS_OK;
  return ls_jinja_fail(run, "found no %s of the name \"%s\"", test ? "test" : "filter", name);
}

static ls_status filter_map(ls_jinja_run *run, const ls_jinja_value *value,
                            const ls_jinja_arguments *given, ls_jinja_value *result) {
  ls_jinja_value list, item, bound[2];
  char name[32] = "";
  const bool by_attribute = given->count == 0;
  if (by_attribute)
    LS_TRY(ls_jinja_bind(run, "map", "attribute default", 1, given, bound));
  else
    LS_TRY(named_by(run, &given->items[0], name, false));
  const ls_jinja_arguments rest = by_attribute ? nothing : rest_of(given, 1);
  LS_TRY(ls_jinja_iterate(run, value, &list));
  LS_TRY(ls_jinja_list_new(run, LS_JINJA_LIST, list.list->count, result));
  for (int i = 0; i < list.list->count; i++) {
    const ls_jinja_value *each = &list.list->items[i];
    LS_TRY(ls_jinja_step(run));
    if (by_attribute) {
      LS_TRY(member(run, each, &bound[0], &item));
      if (item.kind == LS_JINJA_UNDEFINED && is_given(&bound[1])) item = bound[1];
    } else {
      LS_TRY(ls_jinja_filter(run, name, each, &rest, &item));
    }
    LS_TRY(ls_jinja_list_add(run, result, item));
  }
  return LS_OK;
}

/* select, reject, selectattr, rejectattr. */
static ls_status pick(ls_jinja_run *run, bool wanted, bool by_attribute,
                      const ls_jinja_value *value, const ls_jinja_arguments *given,
                      ls_jinja_value *result) {
  ls_jinja_value list;
  char name[32] = "";
  const int before = by_attribute ? 1 : 0;
  if (given->count < before) return ls_jinja_fail(run, "selectattr: expected an attribute");
  if (given->count > before) LS_TRY(named_by(run, &given->items[before], name, true));
  const ls_jinja_arguments rest = given->count > before ? rest_of(given, before + 1) : nothing;
  LS_TRY(ls_jinja_iterate(run, value, &list));
  LS_TRY(ls_jinja_list_new(run, LS_JINJA_LIST, 0, result));
  for (int i = 0; i < list.list->count; i++) {
    ls_jinja_value asked = list.list->items[i];
    LS_TRY(ls_jinja_step(run));
    if (by_attribute) LS_TRY(member(run, &asked, &given->items[0], &asked));
    bool holds = ls_jinja_is_true(&asked);
    if (*name) LS_TRY(ls_jinja_test(run, name, &asked, &rest, &holds));
    if (holds == wanted) LS_TRY(ls_jinja_list_add(run, result, list.list->items[i]));
  }
  return LS_OK;
}

static ls_status filter_select(ls_jinja_run *run, const ls_jinja_value *value,
                               const ls_jinja_arguments *given, ls_jinja_value *result) {
  return pick(run, true, false, value, given, result);
}

static ls_status filter_reject(ls_jinja_run *run, const ls_jinja_value *value,
                               const ls_jinja_arguments *given, ls_jinja_value *result) {
  return pick(run, false, false, value, given, result);
}

static ls_status filter_selectattr(ls_jinja_run *run, const ls_jinja_value *value,
                                   const ls_jinja_arguments *given, ls_jinja_value *result) {
  return pick(run, true, true, value, given, result);
}

static ls_status filter_rejectattr(ls_jinja_run *run, const ls_jinja_value *value,
                                   const ls_jinja_arguments *given, ls_jinja_value *result) {
  return pick(run, false, true, value, given, result);
}

static ls_status filter_items(ls_jinja_run *run, const ls_jinja_value *value,
                              const ls_jinja_arguments *given, ls_jinja_value *result) {
  if (value->kind == LS_JINJA_UNDEFINED) return ls_jinja_list_new(run, LS_JINJA_LIST, 0, result);
  if (value->kind != LS_JINJA_DICT)
    return ls_jinja_fail(run, "items: found %s; expected a mapping", ls_jinja_kind_name(value));
  return ls_jinja_method(run, value, "items", given, result);
}

static ls_status filter_dictsort(ls_jinja_run *run, const ls_jinja_value *value,
                                 const ls_jinja_arguments *given, ls_jinja_value *result) {
  ls_jinja_value bound[3], items, place;
  LS_TRY(ls_jinja_bind(run, "dictsort", "case_sensitive by reverse", 0, given, bound));
  LS_TRY(filter_items(run, value, &nothing, &items));
  place = ls_jinja_whole(ls_jinja_is(&bound[1], "value"));
  static const char *const names[] = {"attribute", "case_sensitive", "reverse"};
  ls_jinja_value named[] = {place, ls_jinja_truth(ls_jinja_is_true(&bound[0])),
                            ls_jinja_truth(ls_jinja_is_true(&bound[2]))};
  const ls_jinja_arguments how = {.names = names, .named = named, .named_count = 3};
  return filter_sort(run, &items, &how, result);
}

/* Lines but the first, and none that are blank, are moved in. */
static ls_status filter_indent(ls_jinja_run *run, const ls_jinja_value *value,
                               const ls_jinja_arguments *given, ls_jinja_value *result) {
  ls_jinja_value bound[3], text, lines;
  ls_jinja_buffer buffer = {0}, in = {0};
  int64_t width = 4;
  LS_TRY(ls_jinja_bind(run, "indent", "width first blank", 0, given, bound));
  LS_TRY(ls_jinja_text_of(run, value, &text));
  if (bound[0].kind == LS_JINJA_TEXT)
    LS_TRY(ls_jinja_append(run, &in, bound[0].text, bound[0].bytes));
  else if (is_given(&bound[0]))
    LS_TRY(ls_jinja_want_whole(run, "indent", &bound[0], &width));
  for (int64_t i = 0; bound[0].kind != LS_JINJA_TEXT && i < width; i++)
    LS_TRY(ls_jinja_append(run, &in, " ", 1));
  LS_TRY(ls_jinja_method(run, &text, "splitlines", &nothing, &lines));
  const bool open = text.bytes == 0 || text.text[text.bytes - 1] == '\n';
  for (int i = 0; i < lines.list->count; i++) {
    const ls_jinja_value *line = &lines.list->items[i];
    const bool blank = line->bytes == 0 && !ls_jinja_is_true(&bound[2]);
    const bool moved = i > 0 ? !blank : ls_jinja_is_true(&bound[1]);
    if (i > 0) LS_TRY(ls_jinja_append(run, &buffer, "\n", 1));
    if (moved) LS_TRY(ls_jinja_append(run, &buffer, in.data ? in.data : "", in.count));
    LS_TRY(ls_jinja_append(run, &buffer, line->text, line->bytes));
  }
  if (open && lines.list->count > 0) LS_TRY(ls_jinja_append(run, &buffer, "\n", 1));
  *result = ls_jinja_buffer_text(&buffer);
  return LS_OK;
}

static const struct {
  const char *name;
  filter *does;
} filters[] = {
    {"trim", filter_trim},
    {"lower", filter_lower},
    {"upper", filter_upper},
    {"capitalize", filter_capitalize},
    {"title", filter_title},
    {"length", filter_length},
    {"count", filter_length},
    {"join", filter_join},
    {"default", filter_default},
    {"d", filter_default},
    {"tojson", filter_tojson},
    {"first", filter_first},
    {"last", filter_last},
    {"list", filter_list},
    {"string", filter_string},
    {"int", filter_int},
    {"float", filter_float},
    {"abs", filter_abs},
    {"replace", filter_replace},
    {"reverse", filter_reverse},
    {"sort", filter_sort},
    {"unique", filter_unique},
    {"min", filter_min},
    {"max", filter_max},
    {"sum", filter_sum},
    {"map", filter_map},
    {"select", filter_select},
    {"reject", filter_reject},
    {"selectattr", filter_selectattr},
    {"rejectattr", filter_rejectattr},
    {"items", filter_items},
    {"dictsort", filter_dictsort},
    {"indent", filter_indent},
    {"safe", filter_string},
};

bool ls_jinja_has_filter(const char *name) {
  for (size_t f = 0; f < sizeof filters / sizeof *filters; f++)
    if (strcmp(filters[f].name, name) == 0) return true;
  return false;
}

ls_status ls_jinja_filter(ls_jinja_run *run, const char *name, const ls_jinja_value *value,
                          const ls_jinja_arguments *given, ls_jinja_value *result) {
  for (size_t f = 0; f < sizeof filters / sizeof *filters; f++)
    if (strcmp(filters[f].name, name) == 0) return filters[f].does(run, value, given, result);
  return ls_jinja_fail(run, "found the filter %.40s, which is not supported", name);
}
