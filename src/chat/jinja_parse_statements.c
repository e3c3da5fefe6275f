#include <stdio.h>
#include <string.h>

#include "chat/jinja_value.h"
#include "text/quote.h"

/* Ends a tag. */
static ls_status close_tag(ls_jinja_parser *parser) {
  if (ls_jinja_peek(parser)->kind != LS_LEX_CLOSE)
    return ls_jinja_refuse(parser, "the end of the tag");
  parser->at++;
  return LS_OK;
}

/* Whether a {% tag of one of these words is next; `ends` is parted by spaces. */
static bool sees_end(const ls_jinja_parser *parser, const char *ends) {
  const ls_jinja_token *token = ls_jinja_peek(parser);
  if (token->kind != LS_LEX_BLOCK || token[1].kind != LS_LEX_NAME) return false;
  for (const char *at = ends; *at;) {
    const size_t length = strcspn(at, " ");
    if (length == token[1].bytes && memcmp(at, token[1].text, length) == 0) return true;
    at += length + (at[length] == ' ');
  }
  return false;
}

static ls_status parse_statement(ls_jinja_parser *parser, ls_jinja_node **made);

/* Statements up to a tag of one of the words, which is taken up to its word; "": all. */
static ls_status parse_body(ls_jinja_parser *parser, const char *ends, ls_jinja_nodes *body) {
  if (parser->depth++ == LS_JINJA_DEPTH) return ls_jinja_refuse(parser, "blocks less deep");
  while (!sees_end(parser, ends)) {
    ls_jinja_node *node = NULL;
    if (ls_jinja_peek(parser)->kind == LS_LEX_END) {
      if (!*ends) break;
      char expected[64];
      snprintf(expected, sizeof expected, "a tag of %s", ends);
      return ls_jinja_refuse(parser, expected);
    }
    LS_TRY(parse_statement(parser, &node));
    if (node) ls_jinja_node_add(parser, body, node);
  }
  if (*ends) parser->at++;
  parser->depth--;
  return LS_OK;
}

/* A body and its end tag. */
static ls_status parse_block(ls_jinja_parser *parser, const char *end, ls_jinja_nodes *body) {
  LS_TRY(close_tag(parser));
  LS_TRY(parse_body(parser, end, body));
  parser->at++;
  return close_tag(parser);
}

static ls_status parse_if(ls_jinja_parser *parser, ls_jinja_node *node) {
  LS_TRY(ls_jinja_parse_tuple(parser, false, &node->first));
  LS_TRY(close_tag(parser));
  LS_TRY(parse_body(parser, "elif else endif", &node->body));
  if (ls_jinja_takes(parser, "elif")) {
    ls_jinja_node *other = ls_jinja_node_new(parser, LS_NODE_IF);
    if (parser->depth++ == LS_JINJA_DEPTH) return ls_jinja_refuse(parser, "fewer branches");
    ls_jinja_node_add(parser, &node->otherwise, other);
    LS_TRY(parse_if(parser, other));
    parser->depth--;
    return LS_OK;
  }
  if (ls_jinja_takes(parser, "else")) {
    LS_TRY(close_tag(parser));
    LS_TRY(parse_body(parser, "endif", &node->otherwise));
  }
  LS_TRY(ls_jinja_expect(parser, "endif"));
  return close_tag(parser);
}

/* What a value is given to: names, and with `members` namespaces' attributes. */
static ls_status parse_target(ls_jinja_parser *parser, bool members, ls_jinja_node **made) {
  ls_jinja_node *tuple = ls_jinja_node_new(parser, LS_NODE_TUPLE), *part = NULL;
  do {
    const bool inner = ls_jinja_takes(parser, "(");
    if (!inner && tuple->parts.count > 0 && ls_jinja_peek(parser)->kind != LS_LEX_NAME) break;
    if (parser->depth++ == LS_JINJA_DEPTH) return ls_jinja_refuse(parser, "fewer brackets");
    if (inner) {
      LS_TRY(parse_target(parser, false, &part));
      LS_TRY(ls_jinja_expect(parser, ")"));
    } else {
      part = ls_jinja_node_new(parser, LS_NODE_NAME);
      LS_TRY(ls_jinja_expect_name(parser, "a variable's name", &part->name));
    }
    parser->depth--;
    if (!inner && members && ls_jinja_sees(parser, ".")) {
      ls_jinja_node *member = ls_jinja_node_new(parser, LS_NODE_ATTRIBUTE);
      parser->at++;
      LS_TRY(ls_jinja_expect_name(parser, "an attribute's name", &member->name));
      member->first = part;
      part = member;
    }
    ls_jinja_node_add(parser, &tuple->parts, part);
    *made = tuple;
  } while (ls_jinja_takes(parser, ","));
  if (tuple->parts.count == 1) *made = part;
  return LS_OK;
}

static ls_status parse_for(ls_jinja_parser *parser, ls_jinja_node *node) {
  LS_TRY(parse_target(parser, false, &node->second));
  LS_TRY(ls_jinja_expect(parser, "in"));
  LS_TRY(ls_jinja_parse_tuple(parser, false, &node->first));
  if (ls_jinja_takes(parser, "if")) LS_TRY(ls_jinja_parse_expression(parser, &node->third));
  if (ls_jinja_sees(parser, "recursive"))
    return ls_jinja_refuse(parser, "a loop that does not call itself: recursive is not supported");
  LS_TRY(close_tag(parser));
  parser->loops++;
  LS_TRY(parse_body(parser, "else endfor", &node->body));
  parser->loops--;
  if (ls_jinja_takes(parser, "else")) {
    LS_TRY(close_tag(parser));
    LS_TRY(parse_body(parser, "endfor", &node->otherwise));
  }
  LS_TRY(ls_jinja_expect(parser, "endfor"));
  return close_tag(parser);
}

static ls_status parse_set(ls_jinja_parser *parser, ls_jinja_node *node) {
  LS_TRY(parse_target(parser, true, &node->second));
  if (ls_jinja_takes(parser, "=")) {
    LS_TRY(ls_jinja_parse_tuple(parser, true, &node->first));
    return close_tag(parser);
  }
  node->kind = LS_NODE_SET_BLOCK;
  if (node->second->kind == LS_NODE_TUPLE) return ls_jinja_refuse(parser, "\"=\" and a value");
  /* Filters of the block are those of a literal that stands for what it makes. */
  node->first = node->third = ls_jinja_node_new(parser, LS_NODE_LITERAL);
  LS_TRY(ls_jinja_parse_filters(parser, false, &node->first));
  return parse_block(parser, "endset", &node->body);
}

/* (a, b=1): names into parts, defaults of the last into values. */
static ls_status parse_parameters(ls_jinja_parser *parser, ls_jinja_node *node) {
  LS_TRY(ls_jinja_expect(parser, "("));
  for (bool first = true; !ls_jinja_takes(parser, ")"); first = false) {
    if (!first) LS_TRY(ls_jinja_expect(parser, ","));
    ls_jinja_node *name = ls_jinja_node_new(parser, LS_NODE_NAME), *value;
    LS_TRY(ls_jinja_expect_name(parser, "a parameter's name", &name->name));
    ls_jinja_node_add(parser, &node->parts, name);
    if (ls_jinja_takes(parser, "=")) {
      LS_TRY(ls_jinja_parse_expression(parser, &value));
      ls_jinja_node_add(parser, &node->values, value);
    } else if (node->values.count > 0) {
      return ls_jinja_refuse(parser, "a default, since the parameter before it has one");
    }
  }
  return LS_OK;
}

/* The body of what is called later is in no loop of what surrounds it. */
static ls_status parse_macro_body(ls_jinja_parser *parser, const char *end, ls_jinja_nodes *body) {
  const int loops = parser->loops;
  parser->loops = 0;
  parser->macros++;
  LS_TRY(parse_block(parser, end, body));
  parser->macros--;
  parser->loops = loops;
  return LS_OK;
}

static ls_status parse_macro(ls_jinja_parser *parser, ls_jinja_node *node) {
  LS_TRY(ls_jinja_expect_name(parser, "a macro's name", &node->name));
  LS_TRY(parse_parameters(parser, node));
  return parse_macro_body(parser, "endmacro", &node->body);
}

static ls_status parse_call_block(ls_jinja_parser *parser, ls_jinja_node *node) {
  node->name = "caller";
  if (ls_jinja_sees(parser, "(")) LS_TRY(parse_parameters(parser, node));
  LS_TRY(ls_jinja_parse_expression(parser, &node->first));
  if (node->first->kind != LS_NODE_CALL) return ls_jinja_refuse(parser, "the call of a macro");
  return parse_macro_body(parser, "endcall", &node->body);
}

static ls_status parse_filter_block(ls_jinja_parser *parser, ls_jinja_node *node) {
  node->first = node->third = ls_jinja_node_new(parser, LS_NODE_LITERAL);
  LS_TRY(ls_jinja_parse_filters(parser, true, &node->first));
  return parse_block(parser, "endfilter", &node->body);
}

static ls_status parse_with(ls_jinja_parser *parser, ls_jinja_node *node) {
  while (ls_jinja_peek(parser)->kind != LS_LEX_CLOSE) {
    ls_jinja_node *target, *value;
    if (node->parts.count > 0) LS_TRY(ls_jinja_expect(parser, ","));
    target = ls_jinja_node_new(parser, LS_NODE_NAME);
    LS_TRY(ls_jinja_expect_name(parser, "a variable's name", &target->name));
    LS_TRY(ls_jinja_expect(parser, "="));
    LS_TRY(ls_jinja_parse_expression(parser, &value));
    ls_jinja_node_add(parser, &node->parts, target);
    ls_jinja_node_add(parser, &node->values, value);
  }
  return parse_block(parser, "endwith", &node->body);
}

static ls_status parse_generation(ls_jinja_parser *parser, ls_jinja_node *node) {
  if (parser->macros > 0)
    return ls_jinja_refuse(parser, "generation outside of macros, where its place is known");
  parser->made->marks = true;
  return parse_block(parser, "endgeneration", &node->body);
}

static ls_status parse_jump(ls_jinja_parser *parser, ls_jinja_node *node) {
  if (parser->loops > 0) return close_tag(parser);
  parser->at--;
  return ls_jinja_refuse(
      parser, node->kind == LS_NODE_BREAK ? "break inside a loop" : "continue inside a loop");
}

static const struct {
  const char *word;
  ls_jinja_node_kind kind;
  ls_status (*parse)(ls_jinja_parser *parser, ls_jinja_node *node);
} tags[] = {
    {"if", LS_NODE_IF, parse_if},
    {"for", LS_NODE_FOR, parse_for},
    {"set", LS_NODE_SET, parse_set},
    {"macro", LS_NODE_MACRO, parse_macro},
    {"call", LS_NODE_CALL_BLOCK, parse_call_block},
    {"filter", LS_NODE_FILTER_BLOCK, parse_filter_block},
    {"with", LS_NODE_WITH, parse_with},
    {"generation", LS_NODE_GENERATION, parse_generation},
    {"break", LS_NODE_BREAK, parse_jump},
    {"continue", LS_NODE_CONTINUE, parse_jump},
};

static ls_status parse_statement(ls_jinja_parser *parser, ls_jinja_node **made) {
  const ls_jinja_token *token = ls_jinja_peek(parser);
  if (token->kind == LS_LEX_DATA) {
    *made = ls_jinja_node_new(parser, LS_NODE_TEXT);
    (*made)->literal = ls_jinja_span_of(token->text, token->bytes);
    parser->at++;
    return LS_OK;
  }
  parser->at++;
  if (token->kind == LS_LEX_PRINT) {
    *made = ls_jinja_node_new(parser, LS_NODE_PRINT);
    LS_TRY(ls_jinja_parse_tuple(parser, true, &(*made)->first));
    return close_tag(parser);
  }
  for (size_t t = 0; t < sizeof tags / sizeof *tags; t++) {
    if (!ls_jinja_takes(parser, tags[t].word)) continue;
    *made = ls_jinja_node_new(parser, tags[t].kind);
    return tags[t].parse(parser, *made);
  }
  return ls_jinja_refuse(
      parser, "if, for, set, macro, call, filter, with, generation, break, continue or raw");
}

/* Line ends as '\n', and without the last one, as Jinja takes a template. */
static void copy_source(ls_jinja_source *source, const char *text, size_t bytes) {
  char *made = ls_arena_alloc(source->arena, bytes + 1);
  for (size_t i = 0; i < bytes; i++) {
    if (text[i] == '\r' && i + 1 < bytes && text[i + 1] == '\n') continue;
    made[source->bytes++] = text[i] == '\r' ? '\n' : text[i];
  }
  if (source->bytes > 0 && made[source->bytes - 1] == '\n') source->bytes--;
  made[source->bytes] = 0;
  source->text = made;
}

ls_status ls_jinja_parse(const ls_jinja_source *source, ls_jinja *made, ls_error *error) {
  ls_jinja_parser parser = {.source = source, .made = made, .error = error};
  return parse_body(&parser, "", &made->body);
}

/* The first byte that is no UTF-8; -1: none. */
static int64_t first_bad(const char *text, size_t bytes) {
  for (size_t at = 0; at < bytes;) {
    const size_t length = ls_utf8_length(text + at, bytes - at);
    if (length == 0 || text[at] == 0) return (int64_t)at;
    at += length;
  }
  return -1;
}

ls_status ls_jinja_read(ls_arena *arena, const char *name, const char *text, size_t bytes,
                        const ls_jinja **made, ls_error *error) {
  const int64_t bad = first_bad(text, bytes);
  if (bytes > LS_JINJA_SOURCE_BYTES)
    return ls_fail(error, LS_INPUT, "%s: found a template of %zu bytes; expected at most %d", name,
                   bytes, LS_JINJA_SOURCE_BYTES);
  if (bad >= 0)
    return ls_fail(error, LS_INPUT, "%s: byte %lld is no UTF-8; expected a template in UTF-8", name,
                   (long long)bad);
  ls_jinja_source source = {.arena = arena, .name = ls_arena_strdup(arena, name)};
  copy_source(&source, text, bytes);
  ls_jinja *result = LS_NEW(arena, ls_jinja);
  result->name = source.name;
  LS_TRY(ls_jinja_lex(&source, error));
  LS_TRY(ls_jinja_parse(&source, result, error));
  *made = result;
  return LS_OK;
}

bool ls_jinja_marks(const ls_jinja *made) {
  return made->marks;
}

bool ls_jinja_asks(const ls_jinja *made, const char *name) {
  for (int i = 0; i < made->asked.count; i++)
    if (strcmp(made->asked.items[i], name) == 0) return true;
  return false;
}
