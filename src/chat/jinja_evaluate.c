#include <stdio.h>

#include "chat/jinja_value.h"

ls_jinja_value ls_jinja_lookup(const ls_jinja_run *run, const char *name) {
  static const char *const functions[] = {"range",           "namespace",    "dict",
                                          "raise_exception", "strftime_now", NULL};
  for (const ls_jinja_scope *scope = run->scope; scope; scope = scope->outer)
    for (int n = scope->names.count - 1; n >= 0; n--)
      if (strcmp(scope->names.items[n].key.text, name) == 0) return scope->names.items[n].value;
  for (int f = 0; functions[f]; f++)
    if (strcmp(functions[f], name) == 0)
      return (ls_jinja_value){.kind = LS_JINJA_FUNCTION, .name = functions[f]};
  return ls_jinja_undefined(name);
}

void ls_jinja_assign(ls_jinja_run *run, ls_jinja_scope *scope, const char *name,
                     ls_jinja_value value) {
  for (int n = 0; n < scope->names.count; n++) {
    if (strcmp(scope->names.items[n].key.text, name) != 0) continue;
    scope->names.items[n].value = value;
    return;
  }
  *LS_APPEND(run->arena, &scope->names) = (ls_jinja_entry){ls_jinja_string(name), value};
}

static ls_status fail_undefined(ls_jinja_run *run, const ls_jinja_value *object, const char *what) {
  return ls_jinja_fail(run, "'%.60s' is undefined; expected a value whose %.60s can be asked for",
                       object->name ? object->name : "the value", what);
}

/* The character or item at a place that may count from the end. */
static ls_status at_place(ls_jinja_run *run, const ls_jinja_value *object, int64_t place,
                          ls_jinja_value *value) {
  int64_t length;
  LS_TRY(ls_jinja_length(run, object, &length));
  if (place < 0) place += length;
  *value = ls_jinja_undefined("an item beyond the end");
  if (place < 0 || place >= length) return LS_OK;
  if (object->kind != LS_JINJA_TEXT) {
    *value = object->list->items[place];
    return LS_OK;
  }
  run->steps -= (int64_t)(object->bytes / 64);
  const char *at = object->text, *end = at + object->bytes;
  for (; place > 0; place--) at += ls_jinja_character(at, end);
  *value = ls_jinja_span_of(at, ls_jinja_character(at, end));
  return LS_OK;
}

static bool is_row(const ls_jinja_value *value) {
  return value->kind == LS_JINJA_LIST || value->kind == LS_JINJA_TUPLE ||
         value->kind == LS_JINJA_TEXT;
}

static ls_status bound_method(ls_jinja_run *run, const ls_jinja_value *object, const char *name,
                              ls_jinja_value *value) {
  ls_jinja_value *kept = LS_NEW(run->arena, ls_jinja_value);
  LS_TRY(ls_jinja_charge(run, sizeof *kept));
  *kept = *object;
  *value = (ls_jinja_value){.kind = LS_JINJA_METHOD, .object = kept, .name = name};
  return LS_OK;
}

ls_status ls_jinja_item(ls_jinja_run *run, const ls_jinja_value *from, const ls_jinja_value *key,
                        ls_jinja_value *value) {
  const ls_jinja_value copy = *from, *object = &copy; /* it may be where the item goes */
  char name[32] = "items";
  const bool named = key->kind == LS_JINJA_TEXT && key->bytes < sizeof name;
  if (named) snprintf(name, sizeof name, "%.*s", (int)key->bytes, key->text);
  if (object->kind == LS_JINJA_UNDEFINED) return fail_undefined(run, object, name);
  const bool mapping = object->kind == LS_JINJA_DICT || object->kind == LS_JINJA_SPACE;
  if (mapping) {
    const ls_jinja_value *found = ls_jinja_dict_find(run, object, key);
    if (found) {
      *value = *found;
      return LS_OK;
    }
  }
  if (is_row(object) && (key->kind == LS_JINJA_INT || key->kind == LS_JINJA_BOOL))
    return at_place(run, object, key->whole, value);
  *value = ls_jinja_undefined("an item that is not there");
  if (!named) return LS_OK;
  LS_TRY(ls_jinja_charge(run, sizeof name));
  value->name = ls_arena_strdup(run->arena, name);
  const bool method = object->kind != LS_JINJA_SPACE && ls_jinja_has_method(object, name);
  return method ? bound_method(run, object, value->name, value) : LS_OK;
}

static void loop_attribute(const ls_jinja_loop *loop, const char *name, ls_jinja_value *value) {
  const int64_t left = loop->count - loop->at;
  const struct {
    const char *name;
    ls_jinja_value value;
  } all[] = {
      {"index", ls_jinja_whole(loop->at + 1)},  {"index0", ls_jinja_whole(loop->at)},
      {"revindex", ls_jinja_whole(left)},       {"revindex0", ls_jinja_whole(left - 1)},
      {"first", ls_jinja_truth(loop->at == 0)}, {"last", ls_jinja_truth(left == 1)},
      {"length", ls_jinja_whole(loop->count)},  {"depth", ls_jinja_whole(loop->depth + 1)},
      {"depth0", ls_jinja_whole(loop->depth)},
  };
  *value = ls_jinja_undefined(name);
  for (size_t a = 0; a < sizeof all / sizeof *all; a++)
    if (strcmp(all[a].name, name) == 0) *value = all[a].value;
  if (strcmp(name, "previtem") == 0 && loop->at > 0) *value = loop->items[loop->at - 1];
  if (strcmp(name, "nextitem") == 0 && left > 1) *value = loop->items[loop->at + 1];
}

ls_status ls_jinja_attribute(ls_jinja_run *run, const ls_jinja_value *object, const char *name,
                             ls_jinja_value *value) {
  if (object->kind == LS_JINJA_UNDEFINED) return fail_undefined(run, object, name);
  if (object->kind != LS_JINJA_SPACE && ls_jinja_has_method(object, name))
    return bound_method(run, object, name, value);
  if (object->kind == LS_JINJA_LOOP) {
    loop_attribute(object->loop, name, value);
    return LS_OK;
  }
  if (object->kind == LS_JINJA_MACRO && strcmp(name, "name") == 0) {
    *value = ls_jinja_string(object->macro->name);
    return LS_OK;
  }
  *value = ls_jinja_undefined(name);
  const ls_jinja_value key = ls_jinja_string(name);
  if (object->kind != LS_JINJA_DICT && object->kind != LS_JINJA_SPACE) return LS_OK;
  const ls_jinja_value *found = ls_jinja_dict_find(run, object, &key);
  if (found) *value = *found;
  return LS_OK;
}

/* A bound of a slice inside [low, high]. */
static ls_status slice_bound(ls_jinja_run *run, const ls_jinja_value *given, int64_t length,
                             int64_t low, int64_t high, int64_t fallback, int64_t *bound) {
  *bound = fallback;
  if (given->kind == LS_JINJA_ABSENT || given->kind == LS_JINJA_NONE) return LS_OK;
  LS_TRY(ls_jinja_want_whole(run, "a slice", given, bound));
  if (*bound < 0) *bound += length;
  if (*bound < low) *bound = low;
  if (*bound > high) *bound = high;
  return LS_OK;
}

ls_status ls_jinja_slice(ls_jinja_run *run, const ls_jinja_value *object,
                         const ls_jinja_value bounds[3], ls_jinja_value *value) {
  int64_t length, step = 1, begin, end;
  if (object->kind == LS_JINJA_UNDEFINED) return fail_undefined(run, object, "slice");
  if (!is_row(object))
    return ls_jinja_fail(run, "found a slice of %s; expected one of a list or a text",
                         ls_jinja_kind_name(object));
  LS_TRY(ls_jinja_length(run, object, &length));
  if (bounds[2].kind != LS_JINJA_ABSENT && bounds[2].kind != LS_JINJA_NONE)
    LS_TRY(ls_jinja_want_whole(run, "a slice", &bounds[2], &step));
  if (step == 0) return ls_jinja_fail(run, "found a slice in steps of 0; expected another step");
  const bool up = step > 0;
  const int64_t low = up ? 0 : -1, high = up ? length : length - 1;
  LS_TRY(slice_bound(run, &bounds[0], length, low, high, up ? 0 : length - 1, &begin));
  LS_TRY(slice_bound(run, &bounds[1], length, low, high, up ? length : -1, &end));
  ls_jinja_value list;
  ls_jinja_buffer text = {0};
  LS_TRY(ls_jinja_iterate(run, object, &list));
  LS_TRY(ls_jinja_list_new(run, object->kind, 0, value));
  if (step > length + 1) step = length + 1;
  if (step < -length - 1) step = -length - 1;
  for (int64_t i = begin; up ? i < end : i > end; i += step) {
    const ls_jinja_value *item = &list.list->items[i];
    LS_TRY(ls_jinja_step(run));
    if (object->kind == LS_JINJA_TEXT)
      LS_TRY(ls_jinja_append(run, &text, item->text, item->bytes));
    else
      LS_TRY(ls_jinja_list_add(run, value, *item));
  }
  if (object->kind == LS_JINJA_TEXT) *value = ls_jinja_buffer_text(&text);
  return LS_OK;
}

static ls_status evaluate_all(ls_jinja_run *run, const ls_jinja_nodes *nodes,
                              ls_jinja_value **values) {
  LS_TRY(ls_jinja_charge(run, (size_t)nodes->count * sizeof **values));
  *values = LS_NEW_ARRAY(run->arena, ls_jinja_value, nodes->count + 1);
  for (int i = 0; i < nodes->count; i++)
    LS_TRY(ls_jinja_evaluate(run, nodes->items[i], &(*values)[i]));
  return LS_OK;
}

static ls_status arguments_of(ls_jinja_run *run, const ls_jinja_node *node,
                              ls_jinja_arguments *given) {
  *given = (ls_jinja_arguments){
      .count = node->parts.count, .names = node->names.items, .named_count = node->names.count};
  LS_TRY(evaluate_all(run, &node->parts, &given->items));
  return evaluate_all(run, &node->values, &given->named);
}

static ls_status evaluate_row(ls_jinja_run *run, const ls_jinja_node *node, ls_jinja_value *value) {
  const ls_jinja_kind kind = node->kind == LS_NODE_LIST ? LS_JINJA_LIST : LS_JINJA_TUPLE;
  LS_TRY(ls_jinja_list_new(run, kind, node->parts.count, value));
  for (int i = 0; i < node->parts.count; i++) {
    ls_jinja_value item;
    LS_TRY(ls_jinja_evaluate(run, node->parts.items[i], &item));
    LS_TRY(ls_jinja_list_add(run, value, item));
  }
  return LS_OK;
}

static ls_status evaluate_dict(ls_jinja_run *run, const ls_jinja_node *node,
                               ls_jinja_value *value) {
  *value = ls_jinja_dict_new(run, LS_JINJA_DICT);
  for (int i = 0; i < node->parts.count; i++) {
    ls_jinja_value key, item;
    LS_TRY(ls_jinja_evaluate(run, node->parts.items[i], &key));
    LS_TRY(ls_jinja_evaluate(run, node->values.items[i], &item));
    LS_TRY(ls_jinja_dict_put(run, value, key, item));
  }
  return LS_OK;
}

static ls_status evaluate_slice(ls_jinja_run *run, const ls_jinja_node *node,
                                ls_jinja_value *value) {
  ls_jinja_value object, bounds[3] = {0};
  LS_TRY(ls_jinja_evaluate(run, node->first, &object));
  for (int b = 0; b < 3; b++)
    if (node->parts.items[b]) LS_TRY(ls_jinja_evaluate(run, node->parts.items[b], &bounds[b]));
  return ls_jinja_slice(run, &object, bounds, value);
}

static ls_status compares(ls_jinja_run *run, const char *sign, const ls_jinja_value *left,
                          const ls_jinja_value *right, bool *holds) {
  int order;
  if (strcmp(sign, "==") == 0 || strcmp(sign, "!=") == 0) {
    *holds = ls_jinja_equal(run, left, right) == (*sign == '=');
    return LS_OK;
  }
  if (strcmp(sign, "in") == 0 || strcmp(sign, "not in") == 0) {
    LS_TRY(ls_jinja_contains(run, right, left, holds));
    *holds = *holds == (*sign == 'i');
    return LS_OK;
  }
  LS_TRY(ls_jinja_compare(run, left, right, &order));
  *holds = *sign == '<' ? order < 0 : order > 0;
  if (sign[1] == '=') *holds = *holds || order == 0;
  return LS_OK;
}

static ls_status evaluate_compare(ls_jinja_run *run, const ls_jinja_node *node,
                                  ls_jinja_value *value) {
  ls_jinja_value left, right;
  bool holds = true;
  LS_TRY(ls_jinja_evaluate(run, node->first, &left));
  for (int i = 0; i < node->parts.count && holds; i++, left = right) {
    LS_TRY(ls_jinja_evaluate(run, node->parts.items[i], &right));
    LS_TRY(compares(run, node->names.items[i], &left, &right, &holds));
  }
  *value = ls_jinja_truth(holds);
  return LS_OK;
}

static ls_status evaluate_logic(ls_jinja_run *run, const ls_jinja_node *node,
                                ls_jinja_value *value) {
  for (int i = 0; i < node->parts.count; i++) {
    LS_TRY(ls_jinja_evaluate(run, node->parts.items[i], value));
    if (ls_jinja_is_true(value) == (node->kind == LS_NODE_OR)) break;
  }
  return LS_OK;
}

static ls_status evaluate_choice(ls_jinja_run *run, const ls_jinja_node *node,
                                 ls_jinja_value *value) {
  ls_jinja_value asked;
  LS_TRY(ls_jinja_evaluate(run, node->third, &asked));
  if (ls_jinja_is_true(&asked)) return ls_jinja_evaluate(run, node->first, value);
  *value = ls_jinja_undefined("the value of an if without else");
  return node->second ? ls_jinja_evaluate(run, node->second, value) : LS_OK;
}

static ls_status evaluate_sign(ls_jinja_run *run, const ls_jinja_node *node,
                               ls_jinja_value *value) {
  LS_TRY(ls_jinja_evaluate(run, node->first, value));
  const bool minus = *node->name == '-';
  if (!ls_jinja_is_number(value))
    return ls_jinja_fail(run, "found %s behind %s; expected a number", ls_jinja_kind_name(value),
                         node->name);
  if (value->kind == LS_JINJA_REAL)
    value->real = minus ? -value->real : value->real;
  else if (minus && value->whole == INT64_MIN)
    return ls_jinja_fail(run, "found a number beyond 64 bits; expected a smaller one");
  else
    *value = ls_jinja_whole(minus ? -value->whole : value->whole);
  return LS_OK;
}

static ls_status evaluate_call(ls_jinja_run *run, const ls_jinja_node *node,
                               ls_jinja_value *value) {
  ls_jinja_value callee;
  ls_jinja_arguments given;
  LS_TRY(ls_jinja_evaluate(run, node->first, &callee));
  LS_TRY(arguments_of(run, node, &given));
  run->line = node->line;
  return ls_jinja_call(run, &callee, &given, value);
}

/* Filters and tests. */
static ls_status evaluate_named(ls_jinja_run *run, const ls_jinja_node *node,
                                ls_jinja_value *value) {
  ls_jinja_value of;
  ls_jinja_arguments given;
  LS_TRY(ls_jinja_evaluate(run, node->first, &of));
  LS_TRY(arguments_of(run, node, &given));
  run->line = node->line;
  if (node->kind == LS_NODE_FILTER) return ls_jinja_filter(run, node->name, &of, &given, value);
  bool holds;
  LS_TRY(ls_jinja_test(run, node->name, &of, &given, &holds));
  *value = ls_jinja_truth(holds);
  return LS_OK;
}

static ls_status evaluate_two(ls_jinja_run *run, const ls_jinja_node *node, ls_jinja_value *value) {
  ls_jinja_value left, right;
  LS_TRY(ls_jinja_evaluate(run, node->first, &left));
  LS_TRY(ls_jinja_evaluate(run, node->second, &right));
  run->line = node->line;
  if (node->kind == LS_NODE_ITEM) return ls_jinja_item(run, &left, &right, value);
  return ls_jinja_binary(run, node->name, &left, &right, value);
}

static ls_status evaluate(ls_jinja_run *run, const ls_jinja_node *node, ls_jinja_value *value) {
  switch (node->kind) {
    case LS_NODE_LITERAL: *value = node->literal; return LS_OK;
    case LS_NODE_NAME: *value = ls_jinja_lookup(run, node->name); return LS_OK;
    case LS_NODE_LIST:
    case LS_NODE_TUPLE: return evaluate_row(run, node, value);
    case LS_NODE_DICT: return evaluate_dict(run, node, value);
    case LS_NODE_ATTRIBUTE: {
      ls_jinja_value object;
      LS_TRY(ls_jinja_evaluate(run, node->first, &object));
      return ls_jinja_attribute(run, &object, node->name, value);
    }
    case LS_NODE_ITEM:
    case LS_NODE_BINARY: return evaluate_two(run, node, value);
    case LS_NODE_SLICE: return evaluate_slice(run, node, value);
    case LS_NODE_CALL: return evaluate_call(run, node, value);
    case LS_NODE_FILTER:
    case LS_NODE_TEST: return evaluate_named(run, node, value);
    case LS_NODE_NOT:
      LS_TRY(ls_jinja_evaluate(run, node->first, value));
      *value = ls_jinja_truth(!ls_jinja_is_true(value));
      return LS_OK;
    case LS_NODE_SIGN: return evaluate_sign(run, node, value);
    case LS_NODE_COMPARE: return evaluate_compare(run, node, value);
    case LS_NODE_AND:
    case LS_NODE_OR: return evaluate_logic(run, node, value);
    case LS_NODE_CHOICE: return evaluate_choice(run, node, value);
    default: return ls_fail(run->error, LS_INTERNAL, "a statement is no expression");
  }
}

ls_status ls_jinja_evaluate(ls_jinja_run *run, const ls_jinja_node *node, ls_jinja_value *value) {
  enum { DEEPEST = 3 * LS_JINJA_DEPTH };
  run->line = node->line;
  LS_TRY(ls_jinja_step(run));
  if (run->depth++ == DEEPEST)
    return ls_jinja_fail(run, "the template calls itself too deep; expected less");
  LS_TRY(evaluate(run, node, value));
  run->depth--;
  return LS_OK;
}
