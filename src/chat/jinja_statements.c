#include <stdio.h>

#include "chat/jinja_value.h"

static ls_status range(ls_jinja_run *run, const ls_jinja_arguments *given, ls_jinja_value *value) {
  ls_jinja_value bound[3];
  int64_t numbers[3] = {0, 0, 1};
  LS_TRY(ls_jinja_bind(run, "range", "start stop step", 1, given, bound));
  for (int i = 0; i < 3; i++)
    if (bound[i].kind != LS_JINJA_ABSENT)
      LS_TRY(ls_jinja_want_whole(run, "range", &bound[i], &numbers[i]));
  if (bound[1].kind == LS_JINJA_ABSENT) {
    numbers[1] = numbers[0];
    numbers[0] = 0;
  }
  if (numbers[2] == 0) return ls_jinja_fail(run, "range: found steps of 0; expected others");
  LS_TRY(ls_jinja_list_new(run, LS_JINJA_LIST, 0, value));
  for (int64_t at = numbers[0]; numbers[2] > 0 ? at < numbers[1] : at > numbers[1];) {
    LS_TRY(ls_jinja_step(run));
    LS_TRY(ls_jinja_list_add(run, value, ls_jinja_whole(at)));
    if (__builtin_add_overflow(at, numbers[2], &at)) break;
  }
  return LS_OK;
}

/* dict(a=1) and namespace(a=1), and either of a mapping. */
static ls_status mapping(ls_jinja_run *run, ls_jinja_kind kind, const ls_jinja_arguments *given,
                         ls_jinja_value *value) {
  *value = ls_jinja_dict_new(run, kind);
  if (given->count > 1 || (given->count == 1 && given->items[0].kind != LS_JINJA_DICT))
    return ls_jinja_fail(run, "found arguments without names; expected names, or one mapping");
  for (int e = 0; given->count == 1 && e < given->items[0].dict->count; e++) {
    const ls_jinja_entry *entry = &given->items[0].dict->items[e];
    LS_TRY(ls_jinja_dict_put(run, value, entry->key, entry->value));
  }
  for (int n = 0; n < given->named_count; n++)
    LS_TRY(ls_jinja_dict_put(run, value, ls_jinja_string(given->names[n]), given->named[n]));
  return LS_OK;
}

/* The template's own message, in one line. */
static ls_status raise(ls_jinja_run *run, const ls_jinja_arguments *given) {
  ls_jinja_value message;
  char shown[400];
  LS_TRY(ls_jinja_bind(run, "raise_exception", "message", 1, given, &message));
  LS_TRY(ls_jinja_text_of(run, &message, &message));
  size_t bytes = 0;
  for (const char *at = message.text, *end = at + message.bytes; at < end;) {
    const size_t length = ls_jinja_character(at, end);
    if (bytes + length >= sizeof shown) break;
    memcpy(shown + bytes, (unsigned char)*at < ' ' ? " " : at, length);
    bytes += length;
    at += length;
  }
  return ls_jinja_fail(run, "the template refuses the chat: %.*s", (int)bytes, shown);
}

static ls_status tell_time(ls_jinja_run *run, const ls_jinja_arguments *given,
                           ls_jinja_value *value) {
  char format[64], text[256];
  struct tm parts;
  LS_TRY(ls_jinja_bind(run, "strftime_now", "format", 1, given, value));
  LS_TRY(ls_jinja_want_text(run, "strftime_now", value));
  if (value->bytes >= sizeof format)
    return ls_jinja_fail(run, "strftime_now: expected a format of less than 64 bytes");
  snprintf(format, sizeof format, "%.*s", (int)value->bytes, value->text);
  localtime_r(&run->now, &parts);
  const size_t bytes = strftime(text, sizeof text, format, &parts);
  LS_TRY(ls_jinja_charge(run, bytes + 1));
  *value = ls_jinja_span_of(ls_arena_strdup(run->arena, bytes ? text : ""), bytes);
  return LS_OK;
}

static ls_status call_function(ls_jinja_run *run, const char *name, const ls_jinja_arguments *given,
                               ls_jinja_value *value) {
  if (strcmp(name, "range") == 0) return range(run, given, value);
  if (strcmp(name, "raise_exception") == 0) return raise(run, given);
  if (strcmp(name, "strftime_now") == 0) return tell_time(run, given, value);
  return mapping(run, *name == 'd' ? LS_JINJA_DICT : LS_JINJA_SPACE, given, value);
}

/* What a parameter is given: by place, by name, or its default. */
static ls_status bind_parameter(ls_jinja_run *run, const ls_jinja_node *macro, int place,
                                const ls_jinja_arguments *given, ls_jinja_value *value) {
  const char *name = macro->parts.items[place]->name;
  const int without = macro->parts.count - macro->values.count;
  if (place < given->count) {
    *value = given->items[place];
    return LS_OK;
  }
  for (int n = 0; n < given->named_count; n++) {
    if (strcmp(given->names[n], name) != 0) continue;
    *value = given->named[n];
    return LS_OK;
  }
  *value = ls_jinja_undefined(name);
  return place < without ? LS_OK
                         : ls_jinja_evaluate(run, macro->values.items[place - without], value);
}

/* Whether the macro has this parameter; `caller` every macro has. */
static bool takes(const ls_jinja_node *macro, const char *name) {
  for (int p = 0; p < macro->parts.count; p++)
    if (strcmp(macro->parts.items[p]->name, name) == 0) return true;
  return strcmp(name, "caller") == 0;
}

static ls_status check_arguments(ls_jinja_run *run, const ls_jinja_node *macro,
                                 const ls_jinja_arguments *given) {
  if (given->count > macro->parts.count)
    return ls_jinja_fail(run, "%.60s: found %d arguments; expected at most %d", macro->name,
                         given->count, macro->parts.count);
  for (int n = 0; n < given->named_count; n++)
    if (!takes(macro, given->names[n]))
      return ls_jinja_fail(run, "%.60s: found the argument %.60s, which it does not take",
                           macro->name, given->names[n]);
  return LS_OK;
}

/* In a scope inside that of the macro's definition. */
static ls_status call_macro(ls_jinja_run *run, const ls_jinja_value *callee,
                            const ls_jinja_arguments *given, ls_jinja_value *value) {
  const ls_jinja_node *macro = callee->macro;
  ls_jinja_scope *kept = run->scope, *scope = LS_NEW(run->arena, ls_jinja_scope);
  LS_TRY(check_arguments(run, macro, given));
  LS_TRY(ls_jinja_charge(run, sizeof *scope + (size_t)macro->parts.count * 64));
  scope->outer = callee->scope;
  run->scope = scope;
  for (int p = 0; p < macro->parts.count; p++) {
    ls_jinja_value argument;
    LS_TRY(bind_parameter(run, macro, p, given, &argument));
    ls_jinja_assign(run, scope, macro->parts.items[p]->name, argument);
  }
  for (int n = 0; n < given->named_count; n++)
    if (strcmp(given->names[n], "caller") == 0)
      ls_jinja_assign(run, scope, "caller", given->named[n]);
  LS_TRY(ls_jinja_captured(run, &macro->body, value));
  run->scope = kept;
  return LS_OK;
}

ls_status ls_jinja_call(ls_jinja_run *run, const ls_jinja_value *callee,
                        const ls_jinja_arguments *given, ls_jinja_value *value) {
  switch (callee->kind) {
    case LS_JINJA_FUNCTION: return call_function(run, callee->name, given, value);
    case LS_JINJA_METHOD: return ls_jinja_method(run, callee->object, callee->name, given, value);
    case LS_JINJA_MACRO: return call_macro(run, callee, given, value);
    case LS_JINJA_UNDEFINED:
      return ls_jinja_fail(run,
                           "'%.60s' is undefined; expected a macro, or range, namespace, dict, "
                           "raise_exception or strftime_now",
                           callee->name ? callee->name : "the value");
    default:
      return ls_jinja_fail(run, "found %s, which cannot be called; expected a macro or a function",
                           ls_jinja_kind_name(callee));
  }
}

/* Gives a value to a name, the names of a tuple, or an attribute of a namespace. */
static ls_status assign(ls_jinja_run *run, const ls_jinja_node *target, ls_jinja_value value) {
  if (target->kind == LS_NODE_NAME) {
    LS_TRY(ls_jinja_charge(run, 2 * sizeof(ls_jinja_entry)));
    ls_jinja_assign(run, run->scope, target->name, value);
    return LS_OK;
  }
  run->line = target->line;
  if (target->kind == LS_NODE_ATTRIBUTE) {
    ls_jinja_value space;
    LS_TRY(ls_jinja_evaluate(run, target->first, &space));
    if (space.kind == LS_JINJA_SPACE)
      return ls_jinja_dict_put(run, &space, ls_jinja_string(target->name), value);
    return ls_jinja_fail(run, "found %s, whose attributes cannot be set; expected a namespace",
                         ls_jinja_kind_name(&space));
  }
  ls_jinja_value list;
  LS_TRY(ls_jinja_iterate(run, &value, &list));
  if (list.list->count != target->parts.count)
    return ls_jinja_fail(run, "found %d values for %d names; expected as many", list.list->count,
                         target->parts.count);
  for (int p = 0; p < target->parts.count; p++)
    LS_TRY(assign(run, target->parts.items[p], list.list->items[p]));
  return LS_OK;
}

static ls_jinja_scope *scope_inside(ls_jinja_run *run) {
  ls_jinja_scope *scope = LS_NEW(run->arena, ls_jinja_scope);
  scope->outer = run->scope;
  run->bytes -= 512; /* with its names; the next charge says so */
  return scope;
}

/* The items that the condition of a loop lets through; its names are those of the loop. */
static ls_status loop_items(ls_jinja_run *run, const ls_jinja_node *node, ls_jinja_value *items) {
  ls_jinja_value whole, holds;
  LS_TRY(ls_jinja_evaluate(run, node->first, &whole));
  run->line = node->line;
  LS_TRY(ls_jinja_iterate(run, &whole, items));
  if (!node->third) return LS_OK;
  whole = *items;
  LS_TRY(ls_jinja_list_new(run, LS_JINJA_LIST, 0, items));
  ls_jinja_scope *kept = run->scope;
  for (int i = 0; i < whole.list->count; i++) {
    run->scope = kept;
    run->scope = scope_inside(run);
    LS_TRY(assign(run, node->second, whole.list->items[i]));
    LS_TRY(ls_jinja_evaluate(run, node->third, &holds));
    if (ls_jinja_is_true(&holds)) LS_TRY(ls_jinja_list_add(run, items, whole.list->items[i]));
  }
  run->scope = kept;
  return LS_OK;
}

static ls_status run_for(ls_jinja_run *run, const ls_jinja_node *node) {
  ls_jinja_value items;
  ls_jinja_scope *kept = run->scope;
  LS_TRY(loop_items(run, node, &items));
  if (items.list->count == 0) {
    run->scope = scope_inside(run);
    LS_TRY(ls_jinja_statements(run, &node->otherwise));
    run->scope = kept;
    return LS_OK;
  }
  ls_jinja_loop *loop = LS_NEW(run->arena, ls_jinja_loop);
  LS_TRY(ls_jinja_charge(run, sizeof *loop));
  *loop = (ls_jinja_loop){.items = items.list->items, .count = items.list->count};
  const ls_jinja_value value = {.kind = LS_JINJA_LOOP, .loop = loop};
  for (; loop->at < loop->count; loop->at++) {
    run->scope = kept;
    run->scope = scope_inside(run);
    LS_TRY(ls_jinja_step(run));
    ls_jinja_assign(run, run->scope, "loop", value);
    LS_TRY(assign(run, node->second, loop->items[loop->at]));
    LS_TRY(ls_jinja_statements(run, &node->body));
    const bool leaves = run->signal == LS_JINJA_BREAK;
    run->signal = LS_JINJA_ON;
    if (leaves) break;
  }
  run->scope = kept;
  return LS_OK;
}

static ls_status run_if(ls_jinja_run *run, const ls_jinja_node *node) {
  ls_jinja_value asked;
  LS_TRY(ls_jinja_evaluate(run, node->first, &asked));
  return ls_jinja_statements(run, ls_jinja_is_true(&asked) ? &node->body : &node->otherwise);
}

ls_status ls_jinja_captured(ls_jinja_run *run, const ls_jinja_nodes *body, ls_jinja_value *text) {
  ls_jinja_buffer buffer = {0}, *kept = run->out;
  const ls_jinja_signal signal = run->signal;
  run->out = &buffer;
  run->signal = LS_JINJA_ON;
  LS_TRY(ls_jinja_statements(run, body));
  run->out = kept;
  if (run->signal == LS_JINJA_ON) run->signal = signal;
  *text = ls_jinja_buffer_text(&buffer);
  return LS_OK;
}

/* The filters of a block, given its text in place of the literal that stands for it. */
static ls_status filtered(ls_jinja_run *run, const ls_jinja_node *node, const ls_jinja_node *stand,
                          ls_jinja_value *text) {
  if (node == stand) return LS_OK;
  if (node->kind != LS_NODE_FILTER)
    return ls_jinja_fail(run, "found something else than filters of a block");
  ls_jinja_node literal = *stand, call = *node;
  LS_TRY(filtered(run, node->first, stand, text));
  literal.literal = *text;
  call.first = &literal;
  return ls_jinja_evaluate(run, &call, text);
}

/* A block's text in a scope of its own, through the filters that it has. */
static ls_status block_text(ls_jinja_run *run, const ls_jinja_node *node, ls_jinja_value *text) {
  ls_jinja_scope *kept = run->scope;
  run->scope = scope_inside(run);
  LS_TRY(ls_jinja_captured(run, &node->body, text));
  run->scope = kept;
  return filtered(run, node->first, node->third, text);
}

static ls_status run_set(ls_jinja_run *run, const ls_jinja_node *node) {
  ls_jinja_value value;
  if (node->kind == LS_NODE_SET)
    LS_TRY(ls_jinja_evaluate(run, node->first, &value));
  else
    LS_TRY(block_text(run, node, &value));
  return assign(run, node->second, value);
}

static ls_status run_with(ls_jinja_run *run, const ls_jinja_node *node) {
  ls_jinja_scope *kept = run->scope, *scope = scope_inside(run);
  for (int p = 0; p < node->parts.count; p++) {
    ls_jinja_value value;
    LS_TRY(ls_jinja_evaluate(run, node->values.items[p], &value));
    ls_jinja_assign(run, scope, node->parts.items[p]->name, value);
  }
  run->scope = scope;
  LS_TRY(ls_jinja_statements(run, &node->body));
  run->scope = kept;
  return LS_OK;
}

/* The call of a macro that is given its block as `caller`. */
static ls_status run_call_block(ls_jinja_run *run, const ls_jinja_node *node) {
  ls_jinja_node call = *node->first, caller = {.kind = LS_NODE_LITERAL, .line = node->line};
  caller.literal = (ls_jinja_value){.kind = LS_JINJA_MACRO, .scope = run->scope, .macro = node};
  /* Copies: the template's own lists stay as they are. */
  memset(&call.names, 0, sizeof call.names);
  memset(&call.values, 0, sizeof call.values);
  for (int n = 0; n < node->first->names.count; n++) {
    *LS_APPEND(run->arena, &call.names) = node->first->names.items[n];
    *LS_APPEND(run->arena, &call.values) = node->first->values.items[n];
  }
  *LS_APPEND(run->arena, &call.names) = "caller";
  *LS_APPEND(run->arena, &call.values) = &caller;
  ls_jinja_value text;
  LS_TRY(ls_jinja_evaluate(run, &call, &text));
  return ls_jinja_print(run, &text, run->out);
}

static ls_status run_generation(ls_jinja_run *run, const ls_jinja_node *node) {
  ls_jinja_scope *kept = run->scope;
  if (run->out != &run->whole)
    return ls_jinja_fail(run,
                         "found generation inside a block whose text is kept; expected it "
                         "where its place in the text is known");
  const size_t begin = run->whole.count;
  run->scope = scope_inside(run);
  LS_TRY(ls_jinja_statements(run, &node->body));
  run->scope = kept;
  LS_TRY(ls_jinja_charge(run, sizeof(ls_jinja_span)));
  *LS_APPEND(run->arena, &run->spans) = (ls_jinja_span){begin, run->whole.count};
  return LS_OK;
}

static ls_status run_print(ls_jinja_run *run, const ls_jinja_node *node) {
  ls_jinja_value value;
  LS_TRY(ls_jinja_evaluate(run, node->first, &value));
  run->line = node->line;
  return ls_jinja_print(run, &value, run->out);
}

static ls_status run_statement(ls_jinja_run *run, const ls_jinja_node *node) {
  ls_jinja_value text;
  LS_TRY(ls_jinja_step(run));
  run->line = node->line;
  switch (node->kind) {
    case LS_NODE_TEXT:
      return ls_jinja_append(run, run->out, node->literal.text, node->literal.bytes);
    case LS_NODE_PRINT: return run_print(run, node);
    case LS_NODE_IF: return run_if(run, node);
    case LS_NODE_FOR: return run_for(run, node);
    case LS_NODE_SET:
    case LS_NODE_SET_BLOCK: return run_set(run, node);
    case LS_NODE_MACRO:
      ls_jinja_assign(run, run->scope, node->name,
                      (ls_jinja_value){.kind = LS_JINJA_MACRO, .scope = run->scope, .macro = node});
      return LS_OK;
    case LS_NODE_CALL_BLOCK: return run_call_block(run, node);
    case LS_NODE_FILTER_BLOCK:
      LS_TRY(block_text(run, node, &text));
      return ls_jinja_print(run, &text, run->out);
    case LS_NODE_WITH: return run_with(run, node);
    case LS_NODE_GENERATION: return run_generation(run, node);
    case LS_NODE_BREAK: run->signal = LS_JINJA_BREAK; return LS_OK;
    case LS_NODE_CONTINUE: run->signal = LS_JINJA_CONTINUE; return LS_OK;
    default: return ls_fail(run->error, LS_INTERNAL, "an expression is no statement");
  }
}

ls_status ls_jinja_statements(ls_jinja_run *run, const ls_jinja_nodes *body) {
  if (run->depth++ >= 3 * LS_JINJA_DEPTH)
    return ls_jinja_fail(run, "the template calls itself too deep; expected less");
  for (int i = 0; i < body->count && run->signal == LS_JINJA_ON; i++)
    LS_TRY(run_statement(run, body->items[i]));
  run->depth--;
  return LS_OK;
}

ls_status ls_jinja_render(ls_arena *arena, const ls_jinja *made, const json_t *variables,
                          const ls_jinja_options *options, ls_jinja_text *rendered,
                          ls_error *error) {
  static const ls_jinja_options usual;
  if (!options) options = &usual;
  ls_jinja_run run = {.arena = arena,
                      .of = made,
                      .error = error,
                      .steps = options->steps > 0 ? options->steps : LS_JINJA_STEPS,
                      .bytes = options->bytes > 0 ? options->bytes : LS_JINJA_BYTES,
                      .now = options->now ? options->now : time(NULL),
                      .line = 1};
  ls_jinja_value all;
  run.globals = scope_inside(&run);
  run.scope = run.globals;
  run.out = &run.whole;
  LS_TRY(ls_jinja_from_json(&run, variables, &all));
  LS_ASSERT(all.kind == LS_JINJA_DICT);
  for (int e = 0; e < all.dict->count; e++)
    ls_jinja_assign(&run, run.globals, all.dict->items[e].key.text, all.dict->items[e].value);
  run.scope = scope_inside(&run);
  LS_TRY(ls_jinja_statements(&run, &made->body));
  LS_TRY(ls_jinja_append(&run, &run.whole, "", 1));
  *rendered = (ls_jinja_text){.text = run.whole.data,
                              .bytes = run.whole.count - 1,
                              .spans = run.spans.items,
                              .span_count = run.spans.count};
  return LS_OK;
}
