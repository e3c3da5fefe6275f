#include "chat/jinja_value.h"

#include <stdarg.h>
#include <stdio.h>

#include "text/quote.h"

ls_status ls_jinja_fail(ls_jinja_run *run, const char *format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return ls_fail(run->error, LS_INPUT, "%s:%d: %s", run->of->name, run->line, text);
}

ls_status ls_jinja_step(ls_jinja_run *run) {
  if (run->steps-- > 0) return LS_OK;
  return ls_jinja_fail(run, "the template does not end; expected fewer steps");
}

ls_status ls_jinja_charge(ls_jinja_run *run, size_t bytes) {
  if (bytes < (size_t)INT64_MAX && (run->bytes -= (int64_t)bytes) >= 0) return LS_OK;
  run->bytes = 0;
  return ls_jinja_fail(run, "the template makes too much text; expected less");
}

ls_status ls_jinja_append(ls_jinja_run *run, ls_jinja_buffer *buffer, const char *text,
                          size_t bytes) {
  if (bytes + 1 > buffer->capacity - buffer->count) {
    const size_t least = buffer->count + bytes + 1, twice = 2 * buffer->capacity;
    const size_t wanted = least > twice ? least + 64 : twice;
    LS_TRY(ls_jinja_charge(run, wanted));
    char *data = ls_arena_alloc(run->arena, wanted);
    if (buffer->count) memcpy(data, buffer->data, buffer->count);
    buffer->data = data;
    buffer->capacity = wanted;
  }
  if (bytes) memcpy(buffer->data + buffer->count, text, bytes);
  buffer->count += bytes;
  return LS_OK;
}

ls_status ls_jinja_list_new(ls_jinja_run *run, ls_jinja_kind kind, int64_t count,
                            ls_jinja_value *list) {
  if (count < 0 || count > INT32_MAX / 2) count = INT32_MAX / 2; /* more than is allowed */
  LS_TRY(ls_jinja_charge(run, sizeof(ls_jinja_values) + (size_t)count * sizeof(ls_jinja_value)));
  *list = (ls_jinja_value){.kind = kind, .list = LS_NEW(run->arena, ls_jinja_values)};
  list->list->items = LS_NEW_ARRAY(run->arena, ls_jinja_value, count + 1);
  list->list->capacity = (int)count + 1;
  return LS_OK;
}

/* Values in values, so that whoever goes through them comes back. */
static ls_status go_deeper(ls_jinja_run *run, ls_jinja_value *whole, const ls_jinja_value *item) {
  if (item->deep >= LS_JINJA_DEPTH) return ls_jinja_fail(run, "lists are too deep in each other");
  if (whole->deep <= item->deep) whole->deep = item->deep + 1;
  return LS_OK;
}

ls_status ls_jinja_list_add(ls_jinja_run *run, ls_jinja_value *list, ls_jinja_value item) {
  LS_TRY(go_deeper(run, list, &item));
  if (list->list->count == list->list->capacity)
    LS_TRY(ls_jinja_charge(run, 2 * (size_t)list->list->count * sizeof item));
  *LS_APPEND(run->arena, list->list) = item;
  return LS_OK;
}

ls_jinja_value ls_jinja_dict_new(ls_jinja_run *run, ls_jinja_kind kind) {
  return (ls_jinja_value){.kind = kind, .dict = LS_NEW(run->arena, ls_jinja_entries)};
}

const ls_jinja_value *ls_jinja_dict_find(ls_jinja_run *run, const ls_jinja_value *dict,
                                         const ls_jinja_value *key) {
  for (int e = 0; e < dict->dict->count; e++)
    if (ls_jinja_equal(run, &dict->dict->items[e].key, key)) return &dict->dict->items[e].value;
  return NULL;
}

ls_status ls_jinja_dict_put(ls_jinja_run *run, ls_jinja_value *dict, ls_jinja_value key,
                            ls_jinja_value value) {
  LS_TRY(go_deeper(run, dict, &value));
  for (int e = 0; e < dict->dict->count; e++) {
    if (!ls_jinja_equal(run, &dict->dict->items[e].key, &key)) continue;
    dict->dict->items[e].value = value;
    return LS_OK;
  }
  if (key.kind >= LS_JINJA_LIST && key.kind != LS_JINJA_TUPLE)
    return ls_jinja_fail(run, "found %s as a key; expected a text or a number",
                         ls_jinja_kind_name(&key));
  if (dict->kind == LS_JINJA_SPACE && key.kind == LS_JINJA_TEXT && key.bytes && *key.text == '_')
    return ls_jinja_fail(run, "found an attribute of a namespace that begins with _");
  run->steps -= dict->dict->count / 16; /* looking for it takes as long */
  LS_TRY(ls_jinja_charge(run, 2 * sizeof(ls_jinja_entry)));
  *LS_APPEND(run->arena, dict->dict) = (ls_jinja_entry){key, value};
  return LS_OK;
}

static ls_status from_object(ls_jinja_run *run, const json_t *json, ls_jinja_value *value) {
  const char *key;
  json_t *each;
  *value = ls_jinja_dict_new(run, LS_JINJA_DICT);
  const size_t count = json_object_size(json);
  LS_TRY(ls_jinja_charge(run, count * sizeof(ls_jinja_entry)));
  value->dict->items = LS_NEW_ARRAY(run->arena, ls_jinja_entry, count + 1);
  value->dict->capacity = (int)count + 1;
  json_object_foreach((json_t *)json, key, each) {
    ls_jinja_entry *entry = LS_APPEND(run->arena, value->dict); /* keys are there once */
    entry->key = ls_jinja_string(key);
    LS_TRY(ls_jinja_from_json(run, each, &entry->value));
    LS_TRY(go_deeper(run, value, &entry->value));
  }
  return LS_OK;
}

static ls_status from_array(ls_jinja_run *run, const json_t *json, ls_jinja_value *value) {
  LS_TRY(ls_jinja_list_new(run, LS_JINJA_LIST, (int64_t)json_array_size(json), value));
  for (size_t i = 0; i < json_array_size(json); i++) {
    ls_jinja_value item;
    LS_TRY(ls_jinja_from_json(run, json_array_get(json, i), &item));
    LS_TRY(ls_jinja_list_add(run, value, item));
  }
  return LS_OK;
}

static ls_status from_json(ls_jinja_run *run, const json_t *json, ls_jinja_value *value) {
  switch (json_typeof(json)) {
    case JSON_OBJECT: return from_object(run, json, value);
    case JSON_ARRAY: return from_array(run, json, value);
    case JSON_STRING:
      *value = ls_jinja_span_of(json_string_value(json), json_string_length(json));
      break;
    case JSON_INTEGER: *value = ls_jinja_whole(json_integer_value(json)); break;
    case JSON_REAL:
      *value = (ls_jinja_value){.kind = LS_JINJA_REAL, .real = json_real_value(json)};
      break;
    case JSON_TRUE:
    case JSON_FALSE: *value = ls_jinja_truth(json_is_true(json)); break;
    case JSON_NULL: *value = ls_jinja_none(); break;
  }
  return LS_OK;
}

ls_status ls_jinja_from_json(ls_jinja_run *run, const json_t *json, ls_jinja_value *value) {
  if (run->depth++ == LS_JINJA_DEPTH)
    return ls_jinja_fail(run, "what is given to the template is too deep; expected less");
  LS_TRY(from_json(run, json, value));
  run->depth--;
  return LS_OK;
}

const char *ls_jinja_kind_name(const ls_jinja_value *value) {
  switch (value->kind) {
    case LS_JINJA_ABSENT: return "nothing";
    case LS_JINJA_UNDEFINED: return "an undefined value";
    case LS_JINJA_NONE: return "none";
    case LS_JINJA_BOOL: return "true or false";
    case LS_JINJA_INT:
    case LS_JINJA_REAL: return "a number";
    case LS_JINJA_TEXT: return "a text";
    case LS_JINJA_LIST: return "a list";
    case LS_JINJA_TUPLE: return "a tuple";
    case LS_JINJA_DICT: return "a mapping";
    case LS_JINJA_SPACE: return "a namespace";
    case LS_JINJA_MACRO: return "a macro";
    case LS_JINJA_FUNCTION: return "a function";
    case LS_JINJA_METHOD: return "a method";
    case LS_JINJA_LOOP: return "a loop";
  }
  return "something else";
}

bool ls_jinja_is_true(const ls_jinja_value *value) {
  switch (value->kind) {
    case LS_JINJA_ABSENT:
    case LS_JINJA_UNDEFINED:
    case LS_JINJA_NONE: return false;
    case LS_JINJA_BOOL:
    case LS_JINJA_INT: return value->whole != 0;
    case LS_JINJA_REAL: return value->real != 0;
    case LS_JINJA_TEXT: return value->bytes > 0;
    case LS_JINJA_LIST:
    case LS_JINJA_TUPLE: return value->list->count > 0;
    case LS_JINJA_DICT: return value->dict->count > 0;
    default: return true;
  }
}

bool ls_jinja_is_number(const ls_jinja_value *value) {
  return value->kind == LS_JINJA_INT || value->kind == LS_JINJA_REAL ||
         value->kind == LS_JINJA_BOOL;
}

double ls_jinja_number(const ls_jinja_value *value) {
  return value->kind == LS_JINJA_REAL ? value->real : (double)value->whole;
}

static bool equal_lists(ls_jinja_run *run, const ls_jinja_values *left,
                        const ls_jinja_values *right) {
  if (left->count != right->count) return false;
  for (int i = 0; i < left->count; i++)
    if (!ls_jinja_equal(run, &left->items[i], &right->items[i])) return false;
  return true;
}

static bool equal_dicts(ls_jinja_run *run, const ls_jinja_value *left,
                        const ls_jinja_value *right) {
  if (left->dict->count != right->dict->count) return false;
  for (int e = 0; e < left->dict->count; e++) {
    const ls_jinja_value *other = ls_jinja_dict_find(run, right, &left->dict->items[e].key);
    if (!other || !ls_jinja_equal(run, &left->dict->items[e].value, other)) return false;
  }
  return true;
}

/* Numbers by their value; of 64 bits exactly. */
static int order_numbers(const ls_jinja_value *left, const ls_jinja_value *right) {
  if (left->kind != LS_JINJA_REAL && right->kind != LS_JINJA_REAL)
    return (left->whole > right->whole) - (left->whole < right->whole);
  const double a = ls_jinja_number(left), b = ls_jinja_number(right);
  return (a > b) - (a < b);
}

bool ls_jinja_equal(ls_jinja_run *run, const ls_jinja_value *left, const ls_jinja_value *right) {
  if (run->steps-- <= 0) return false; /* the next step says so */
  if (ls_jinja_is_number(left) && ls_jinja_is_number(right)) return order_numbers(left, right) == 0;
  if (left->kind != right->kind) return false;
  switch (left->kind) {
    case LS_JINJA_TEXT:
      return left->bytes == right->bytes &&
             (left->bytes == 0 || memcmp(left->text, right->text, left->bytes) == 0);
    case LS_JINJA_LIST:
    case LS_JINJA_TUPLE: return equal_lists(run, left->list, right->list);
    case LS_JINJA_DICT: return equal_dicts(run, left, right);
    case LS_JINJA_SPACE: return left->dict == right->dict;
    case LS_JINJA_MACRO: return left->macro == right->macro;
    case LS_JINJA_LOOP: return left->loop == right->loop;
    case LS_JINJA_FUNCTION:
    case LS_JINJA_METHOD: return left->name == right->name;
    default: return true;
  }
}

static int order_texts(const ls_jinja_value *left, const ls_jinja_value *right) {
  const size_t both = left->bytes < right->bytes ? left->bytes : right->bytes;
  const int order = both ? memcmp(left->text, right->text, both) : 0;
  return order ? order : (left->bytes > right->bytes) - (left->bytes < right->bytes);
}

ls_status ls_jinja_compare(ls_jinja_run *run, const ls_jinja_value *left,
                           const ls_jinja_value *right, int *order) {
  LS_TRY(ls_jinja_step(run));
  *order = 0;
  if (ls_jinja_is_number(left) && ls_jinja_is_number(right)) {
    *order = order_numbers(left, right);
    return LS_OK;
  }
  if (left->kind == LS_JINJA_TEXT && right->kind == LS_JINJA_TEXT) {
    *order = order_texts(left, right);
    return LS_OK;
  }
  if (left->kind != right->kind || (left->kind != LS_JINJA_LIST && left->kind != LS_JINJA_TUPLE))
    return ls_jinja_fail(run, "%s and %s have no order; expected two numbers or two texts",
                         ls_jinja_kind_name(left), ls_jinja_kind_name(right));
  const int both = left->list->count < right->list->count ? left->list->count : right->list->count;
  for (int i = 0; i < both; i++)
    if (!ls_jinja_equal(run, &left->list->items[i], &right->list->items[i]))
      return ls_jinja_compare(run, &left->list->items[i], &right->list->items[i], order);
  *order = left->list->count - right->list->count;
  return LS_OK;
}

ls_status ls_jinja_contains(ls_jinja_run *run, const ls_jinja_value *whole,
                            const ls_jinja_value *part, bool *found) {
  *found = false;
  if (whole->kind == LS_JINJA_UNDEFINED) return LS_OK;
  if (whole->kind == LS_JINJA_TEXT) {
    if (part->kind != LS_JINJA_TEXT)
      return ls_jinja_fail(run, "found %s in front of `in` a text; expected a text",
                           ls_jinja_kind_name(part));
    *found = part->bytes == 0 || memmem(whole->text, whole->bytes, part->text, part->bytes);
    return LS_OK;
  }
  if (whole->kind == LS_JINJA_DICT) {
    *found = ls_jinja_dict_find(run, whole, part) != NULL;
    return LS_OK;
  }
  if (whole->kind != LS_JINJA_LIST && whole->kind != LS_JINJA_TUPLE)
    return ls_jinja_fail(run, "found %s behind `in`; expected a text, a list or a mapping",
                         ls_jinja_kind_name(whole));
  run->steps -= whole->list->count / 16;
  for (int i = 0; i < whole->list->count && !*found; i++)
    *found = ls_jinja_equal(run, &whole->list->items[i], part);
  return LS_OK;
}

static ls_status characters(ls_jinja_run *run, const ls_jinja_value *text, ls_jinja_value *list) {
  LS_TRY(ls_jinja_list_new(run, LS_JINJA_LIST, (int64_t)text->bytes, list));
  const char *end = text->text + text->bytes;
  for (const char *at = text->text; at < end;) {
    const size_t bytes = ls_jinja_character(at, end);
    LS_TRY(ls_jinja_list_add(run, list, ls_jinja_span_of(at, bytes)));
    at += bytes;
  }
  return LS_OK;
}

ls_status ls_jinja_iterate(ls_jinja_run *run, const ls_jinja_value *value, ls_jinja_value *list) {
  switch (value->kind) {
    case LS_JINJA_LIST:
    case LS_JINJA_TUPLE: *list = *value; return LS_OK;
    case LS_JINJA_UNDEFINED: return ls_jinja_list_new(run, LS_JINJA_LIST, 0, list);
    case LS_JINJA_TEXT: return characters(run, value, list);
    case LS_JINJA_DICT:
      LS_TRY(ls_jinja_list_new(run, LS_JINJA_LIST, value->dict->count, list));
      for (int e = 0; e < value->dict->count; e++)
        LS_TRY(ls_jinja_list_add(run, list, value->dict->items[e].key));
      return LS_OK;
    default:
      return ls_jinja_fail(run, "found %s; expected a list, a mapping or a text to go through",
                           ls_jinja_kind_name(value));
  }
}

ls_status ls_jinja_length(ls_jinja_run *run, const ls_jinja_value *value, int64_t *length) {
  *length = 0;
  switch (value->kind) {
    case LS_JINJA_UNDEFINED: return LS_OK;
    case LS_JINJA_LIST:
    case LS_JINJA_TUPLE: *length = value->list->count; return LS_OK;
    case LS_JINJA_DICT: *length = value->dict->count; return LS_OK;
    case LS_JINJA_TEXT:
      for (size_t i = 0; i < value->bytes; i++) *length += (value->text[i] & 0xC0) != 0x80;
      return LS_OK;
    default:
      return ls_jinja_fail(run, "found %s, which has no length; expected a list or a text",
                           ls_jinja_kind_name(value));
  }
}

ls_status ls_jinja_want_whole(ls_jinja_run *run, const char *what, const ls_jinja_value *value,
                              int64_t *whole) {
  *whole = value->whole;
  if (value->kind == LS_JINJA_INT || value->kind == LS_JINJA_BOOL) return LS_OK;
  return ls_jinja_fail(run, "%s: found %s; expected a whole number", what,
                       ls_jinja_kind_name(value));
}

ls_status ls_jinja_want_text(ls_jinja_run *run, const char *what, const ls_jinja_value *value) {
  if (value->kind == LS_JINJA_TEXT) return LS_OK;
  if (value->kind == LS_JINJA_UNDEFINED && value->name)
    return ls_jinja_fail(run, "%s: '%.60s' is undefined; expected a text", what, value->name);
  return ls_jinja_fail(run, "%s: found %s; expected a text", what, ls_jinja_kind_name(value));
}

/* The place of a name in "indent sort_keys"; -1: none. *length is the number of all. */
static int place_of(const char *names, const char *name, int *length) {
  int place = -1;
  *length = 0;
  for (const char *at = names; *at; (*length)++) {
    const size_t bytes = strcspn(at, " ");
    if (name && strlen(name) == bytes && memcmp(at, name, bytes) == 0) place = *length;
    at += bytes + (at[bytes] == ' ');
  }
  return place;
}

ls_status ls_jinja_bind(ls_jinja_run *run, const char *what, const char *names, int needed,
                        const ls_jinja_arguments *given, ls_jinja_value *bound) {
  int most;
  place_of(names, NULL, &most);
  for (int i = 0; i < most; i++) bound[i] = (ls_jinja_value){.kind = LS_JINJA_ABSENT};
  if (given->count > most)
    return ls_jinja_fail(run, "%s: found %d arguments; expected at most %d", what, given->count,
                         most);
  for (int i = 0; i < given->count; i++) bound[i] = given->items[i];
  for (int n = 0; n < given->named_count; n++) {
    const int place = place_of(names, given->names[n], &most);
    if (place < 0 || bound[place].kind != LS_JINJA_ABSENT)
      return ls_jinja_fail(run, "%s: found the argument %.40s; expected %s", what, given->names[n],
                           *names ? names : "none");
    bound[place] = given->named[n];
  }
  for (int i = 0; i < needed; i++)
    if (bound[i].kind == LS_JINJA_ABSENT)
      return ls_jinja_fail(run, "%s: found too few arguments; expected %s", what, names);
  return LS_OK;
}
