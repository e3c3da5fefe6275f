#include <stdio.h>
#include <string.h>

#include "chat/jinja_value.h"
#include "text/quote.h"

const ls_jinja_token *ls_jinja_peek(const ls_jinja_parser *parser) {
  return &parser->source->tokens.items[parser->at];
}

static bool token_is(const ls_jinja_token *token, const char *text) {
  return (token->kind == LS_LEX_NAME || token->kind == LS_LEX_SIGN) &&
         token->bytes == strlen(text) && memcmp(token->text, text, token->bytes) == 0;
}

bool ls_jinja_sees(const ls_jinja_parser *parser, const char *text) {
  return token_is(ls_jinja_peek(parser), text);
}

bool ls_jinja_takes(ls_jinja_parser *parser, const char *text) {
  if (!ls_jinja_sees(parser, text)) return false;
  parser->at++;
  return true;
}

ls_status ls_jinja_refuse(ls_jinja_parser *parser, const char *expected) {
  const ls_jinja_token *token = ls_jinja_peek(parser);
  char shown[LS_QUOTE_BYTES], found[LS_QUOTE_BYTES + 16];
  const char *what = found;
  ls_quote(shown, token->text, token->bytes < 40 ? token->bytes : 40);
  switch (token->kind) {
    case LS_LEX_END: what = "the end of the template"; break;
    case LS_LEX_CLOSE: what = "the end of the tag"; break;
    case LS_LEX_DATA: what = "text"; break;
    case LS_LEX_PRINT: what = "{{"; break;
    case LS_LEX_BLOCK: what = "{%"; break;
    case LS_LEX_INT:
    case LS_LEX_REAL: what = "a number"; break;
    default: snprintf(found, sizeof found, "\"%s\"", shown);
  }
  return ls_fail(parser->error, LS_INPUT, "%s:%d: found %s; expected %s", parser->source->name,
                 token->line, what, expected);
}

ls_status ls_jinja_expect(ls_jinja_parser *parser, const char *text) {
  if (ls_jinja_takes(parser, text)) return LS_OK;
  char expected[32];
  snprintf(expected, sizeof expected, "\"%s\"", text);
  return ls_jinja_refuse(parser, expected);
}

ls_status ls_jinja_expect_name(ls_jinja_parser *parser, const char *what, const char **name) {
  const ls_jinja_token *token = ls_jinja_peek(parser);
  if (token->kind != LS_LEX_NAME) return ls_jinja_refuse(parser, what);
  *name = ls_arena_printf(parser->source->arena, "%.*s", (int)token->bytes, token->text);
  parser->at++;
  return LS_OK;
}

ls_jinja_node *ls_jinja_node_new(ls_jinja_parser *parser, ls_jinja_node_kind kind) {
  ls_jinja_node *node = LS_NEW(parser->source->arena, ls_jinja_node);
  node->kind = kind;
  node->line = ls_jinja_peek(parser)->line;
  return node;
}

void ls_jinja_node_add(ls_jinja_parser *parser, ls_jinja_nodes *list, ls_jinja_node *node) {
  *LS_APPEND(parser->source->arena, list) = node;
}

/* Adjacent strings are one. */
static void join_strings(ls_jinja_parser *parser, ls_jinja_node *node) {
  ls_arena *arena = parser->source->arena;
  const ls_jinja_token *token = ls_jinja_peek(parser);
  node->literal = ls_jinja_span_of(token->text, token->bytes);
  for (parser->at++; (token = ls_jinja_peek(parser))->kind == LS_LEX_STRING; parser->at++) {
    char *joined = ls_arena_alloc(arena, node->literal.bytes + token->bytes + 1);
    memcpy(joined, node->literal.text, node->literal.bytes);
    memcpy(joined + node->literal.bytes, token->text, token->bytes);
    node->literal = ls_jinja_span_of(joined, node->literal.bytes + token->bytes);
  }
}

static ls_status parse_list(ls_jinja_parser *parser, ls_jinja_node **made) {
  ls_jinja_node *node = *made = ls_jinja_node_new(parser, LS_NODE_LIST);
  parser->at++;
  while (!ls_jinja_takes(parser, "]")) {
    ls_jinja_node *item;
    if (node->parts.count > 0) LS_TRY(ls_jinja_expect(parser, ","));
    if (ls_jinja_takes(parser, "]")) break;
    LS_TRY(ls_jinja_parse_expression(parser, &item));
    ls_jinja_node_add(parser, &node->parts, item);
  }
  return LS_OK;
}

static ls_status parse_dict(ls_jinja_parser *parser, ls_jinja_node **made) {
  ls_jinja_node *node = *made = ls_jinja_node_new(parser, LS_NODE_DICT);
  parser->at++;
  while (!ls_jinja_takes(parser, "}")) {
    ls_jinja_node *item;
    if (node->parts.count > 0) LS_TRY(ls_jinja_expect(parser, ","));
    if (ls_jinja_takes(parser, "}")) break;
    LS_TRY(ls_jinja_parse_expression(parser, &item));
    ls_jinja_node_add(parser, &node->parts, item);
    LS_TRY(ls_jinja_expect(parser, ":"));
    LS_TRY(ls_jinja_parse_expression(parser, &item));
    ls_jinja_node_add(parser, &node->values, item);
  }
  return LS_OK;
}

static bool literal_of(const ls_jinja_token *token, ls_jinja_value *value) {
  if (token_is(token, "true") || token_is(token, "True")) {
    *value = ls_jinja_truth(true);
  } else if (token_is(token, "false") || token_is(token, "False")) {
    *value = ls_jinja_truth(false);
  } else if (token_is(token, "none") || token_is(token, "None")) {
    *value = ls_jinja_none();
  } else if (token->kind == LS_LEX_INT) {
    *value = ls_jinja_whole(token->whole);
  } else if (token->kind == LS_LEX_REAL) {
    *value = (ls_jinja_value){.kind = LS_JINJA_REAL, .real = token->real};
  } else {
    return false;
  }
  return true;
}

static void note_asked(ls_jinja_parser *parser, const char *name) {
  enum { MOST = 1000 };
  for (int i = 0; i < parser->made->asked.count; i++)
    if (strcmp(parser->made->asked.items[i], name) == 0 || i == MOST) return;
  *LS_APPEND(parser->source->arena, &parser->made->asked) = name;
}

ls_status ls_jinja_parse_primary(ls_jinja_parser *parser, ls_jinja_node **made) {
  const ls_jinja_token *token = ls_jinja_peek(parser);
  ls_jinja_value value;
  if (token->kind == LS_LEX_STRING) {
    *made = ls_jinja_node_new(parser, LS_NODE_LITERAL);
    join_strings(parser, *made);
    return LS_OK;
  }
  if (literal_of(token, &value)) {
    *made = ls_jinja_node_new(parser, LS_NODE_LITERAL);
    (*made)->literal = value;
    parser->at++;
    return LS_OK;
  }
  if (token->kind == LS_LEX_NAME) {
    *made = ls_jinja_node_new(parser, LS_NODE_NAME);
    LS_TRY(ls_jinja_expect_name(parser, "a name", &(*made)->name));
    note_asked(parser, (*made)->name);
    return LS_OK;
  }
  if (ls_jinja_sees(parser, "[")) return parse_list(parser, made);
  if (ls_jinja_sees(parser, "{")) return parse_dict(parser, made);
  if (!ls_jinja_takes(parser, "(")) return ls_jinja_refuse(parser, "an expression");
  if (ls_jinja_takes(parser, ")")) {
    *made = ls_jinja_node_new(parser, LS_NODE_TUPLE);
    return LS_OK;
  }
  LS_TRY(ls_jinja_parse_tuple(parser, true, made));
  return ls_jinja_expect(parser, ")");
}

ls_status ls_jinja_parse_arguments(ls_jinja_parser *parser, ls_jinja_node *call) {
  LS_TRY(ls_jinja_expect(parser, "("));
  for (bool first = true; !ls_jinja_takes(parser, ")"); first = false) {
    ls_jinja_node *item;
    if (!first) LS_TRY(ls_jinja_expect(parser, ","));
    if (ls_jinja_takes(parser, ")")) break;
    const ls_jinja_token *token = ls_jinja_peek(parser);
    if (token->kind == LS_LEX_NAME && token_is(token + 1, "=")) {
      LS_TRY(
          ls_jinja_expect_name(parser, "a name", LS_APPEND(parser->source->arena, &call->names)));
      parser->at++;
      LS_TRY(ls_jinja_parse_expression(parser, &item));
      ls_jinja_node_add(parser, &call->values, item);
      continue;
    }
    if (call->names.count > 0) return ls_jinja_refuse(parser, "an argument with its name");
    LS_TRY(ls_jinja_parse_expression(parser, &item));
    ls_jinja_node_add(parser, &call->parts, item);
  }
  return LS_OK;
}

/* What stands in [...]: an index, or bounds with ':'. */
static ls_status parse_subscript(ls_jinja_parser *parser, ls_jinja_node *of, ls_jinja_node **made) {
  ls_jinja_node *node = ls_jinja_node_new(parser, LS_NODE_SLICE), *bounds[3] = {0};
  int count = 0;
  bool slice = false;
  parser->at++;
  while (!ls_jinja_sees(parser, "]")) {
    if (count < 2 && ls_jinja_takes(parser, ":")) {
      slice = true;
      count++;
      continue;
    }
    if (bounds[count]) return ls_jinja_refuse(parser, "\"]\"");
    LS_TRY(ls_jinja_parse_tuple(parser, true, &bounds[count]));
  }
  if (!slice && !bounds[0]) return ls_jinja_refuse(parser, "an index");
  LS_TRY(ls_jinja_expect(parser, "]"));
  node->first = of;
  *made = node;
  if (!slice) {
    node->kind = LS_NODE_ITEM;
    node->second = bounds[0];
    return LS_OK;
  }
  for (int b = 0; b < 3; b++) ls_jinja_node_add(parser, &node->parts, bounds[b]);
  return LS_OK;
}

static ls_status parse_member(ls_jinja_parser *parser, ls_jinja_node *of, ls_jinja_node **made) {
  ls_jinja_node *node = *made = ls_jinja_node_new(parser, LS_NODE_ATTRIBUTE);
  node->first = of;
  parser->at++;
  const ls_jinja_token *token = ls_jinja_peek(parser);
  if (token->kind != LS_LEX_INT)
    return ls_jinja_expect_name(parser, "an attribute's name", &node->name);
  ls_jinja_node *index = ls_jinja_node_new(parser, LS_NODE_LITERAL);
  index->literal = ls_jinja_whole(token->whole);
  node->kind = LS_NODE_ITEM;
  node->second = index;
  parser->at++;
  return LS_OK;
}

static ls_status parse_call(ls_jinja_parser *parser, ls_jinja_node *of, ls_jinja_node **made) {
  *made = ls_jinja_node_new(parser, LS_NODE_CALL);
  (*made)->first = of;
  return ls_jinja_parse_arguments(parser, *made);
}

static ls_status parse_postfix(ls_jinja_parser *parser, ls_jinja_node **node) {
  for (;;) {
    if (ls_jinja_sees(parser, "."))
      LS_TRY(parse_member(parser, *node, node));
    else if (ls_jinja_sees(parser, "["))
      LS_TRY(parse_subscript(parser, *node, node));
    else if (ls_jinja_sees(parser, "("))
      LS_TRY(parse_call(parser, *node, node));
    else
      return LS_OK;
  }
}

static ls_status parse_filter(ls_jinja_parser *parser, ls_jinja_node **node) {
  ls_jinja_node *made = ls_jinja_node_new(parser, LS_NODE_FILTER);
  made->first = *node;
  *node = made;
  const int at = parser->at;
  LS_TRY(ls_jinja_expect_name(parser, "a filter's name", &made->name));
  if (!ls_jinja_has_filter(made->name)) {
    parser->at = at;
    return ls_jinja_refuse(parser,
                           "a filter that is supported: trim, tojson, join, default, map, "
                           "selectattr, length, list, string, replace, upper, lower and others");
  }
  return ls_jinja_sees(parser, "(") ? ls_jinja_parse_arguments(parser, made) : LS_OK;
}

/* Whether an argument without brackets follows the name of a test: x is divisibleby 3. */
static bool begins_argument(const ls_jinja_parser *parser) {
  const ls_jinja_token *token = ls_jinja_peek(parser);
  if (token->kind == LS_LEX_NAME)
    return !token_is(token, "else") && !token_is(token, "or") && !token_is(token, "and") &&
           !token_is(token, "is") && !token_is(token, "if") && !token_is(token, "in") &&
           !token_is(token, "not");
  return token->kind == LS_LEX_STRING || token->kind == LS_LEX_INT || token->kind == LS_LEX_REAL ||
         token_is(token, "[") || token_is(token, "{");
}

static ls_status parse_test(ls_jinja_parser *parser, ls_jinja_node **node) {
  ls_jinja_node *made = ls_jinja_node_new(parser, LS_NODE_TEST);
  const bool negated = ls_jinja_takes(parser, "not");
  made->first = *node;
  const int at = parser->at;
  LS_TRY(ls_jinja_expect_name(parser, "a test's name", &made->name));
  if (!ls_jinja_has_test(made->name)) {
    parser->at = at;
    return ls_jinja_refuse(
        parser,
        "a test that is supported: defined, none, string, number, mapping, iterable, "
        "sequence, true, false, in, equalto, odd, even, divisibleby and others");
  }
  if (ls_jinja_sees(parser, "(")) {
    LS_TRY(ls_jinja_parse_arguments(parser, made));
  } else if (begins_argument(parser)) {
    ls_jinja_node *argument;
    LS_TRY(ls_jinja_parse_primary(parser, &argument));
    LS_TRY(parse_postfix(parser, &argument));
    ls_jinja_node_add(parser, &made->parts, argument);
  }
  *node = made;
  if (!negated) return LS_OK;
  *node = ls_jinja_node_new(parser, LS_NODE_NOT);
  (*node)->first = made;
  return LS_OK;
}

ls_status ls_jinja_parse_filters(ls_jinja_parser *parser, bool named, ls_jinja_node **node) {
  for (;; named = false) {
    if (named || ls_jinja_takes(parser, "|"))
      LS_TRY(parse_filter(parser, node));
    else if (ls_jinja_takes(parser, "is"))
      LS_TRY(parse_test(parser, node));
    else if (ls_jinja_sees(parser, "("))
      LS_TRY(parse_call(parser, *node, node));
    else
      return LS_OK;
  }
}

static ls_status deeper(ls_jinja_parser *parser) {
  if (parser->depth++ < LS_JINJA_DEPTH) return LS_OK;
  return ls_jinja_refuse(parser, "expressions less deep in each other");
}

static ls_status parse_unary(ls_jinja_parser *parser, bool filters, ls_jinja_node **made) {
  LS_TRY(deeper(parser));
  if (ls_jinja_sees(parser, "-") || ls_jinja_sees(parser, "+")) {
    ls_jinja_node *node = ls_jinja_node_new(parser, LS_NODE_SIGN);
    node->name = ls_jinja_takes(parser, "-") ? "-" : (parser->at++, "+");
    LS_TRY(parse_unary(parser, false, &node->first));
    *made = node;
  } else {
    LS_TRY(ls_jinja_parse_primary(parser, made));
    LS_TRY(parse_postfix(parser, made));
  }
  if (filters) LS_TRY(ls_jinja_parse_filters(parser, false, made));
  parser->depth--;
  return LS_OK;
}

/* Operators of two sides, those that bind least first. */
static const char *const levels[][5] = {{"+", "-"}, {"~"}, {"*", "/", "//", "%"}, {"**"}};
enum { LEVELS = sizeof levels / sizeof *levels };

static ls_status parse_level(ls_jinja_parser *parser, int level, ls_jinja_node **made) {
  if (level == LEVELS) return parse_unary(parser, true, made);
  LS_TRY(parse_level(parser, level + 1, made));
  for (int links = 0;;) {
    const char *sign = NULL;
    for (int s = 0; s < 5 && levels[level][s] && !sign; s++)
      if (ls_jinja_sees(parser, levels[level][s])) sign = levels[level][s];
    if (!sign) return LS_OK;
    if (links++ == LS_JINJA_DEPTH) return ls_jinja_refuse(parser, "a shorter chain of operators");
    ls_jinja_node *node = ls_jinja_node_new(parser, LS_NODE_BINARY);
    node->name = sign;
    node->first = *made;
    parser->at++;
    LS_TRY(parse_level(parser, level + 1, &node->second));
    *made = node;
  }
}

/* The operator of a comparison at hand; NULL: none. */
static const char *comparison(ls_jinja_parser *parser) {
  static const char *const signs[] = {"==", "!=", "<", "<=", ">", ">=", "in", NULL};
  for (int s = 0; signs[s]; s++)
    if (ls_jinja_takes(parser, signs[s])) return signs[s];
  if (!ls_jinja_sees(parser, "not") || !token_is(ls_jinja_peek(parser) + 1, "in")) return NULL;
  parser->at += 2;
  return "not in";
}

static ls_status parse_compare(ls_jinja_parser *parser, ls_jinja_node **made) {
  LS_TRY(parse_level(parser, 0, made));
  ls_jinja_node *node = NULL;
  for (const char *sign; (sign = comparison(parser));) {
    if (!node) {
      node = ls_jinja_node_new(parser, LS_NODE_COMPARE);
      node->first = *made;
      *made = node;
    }
    ls_jinja_node *right;
    LS_TRY(parse_level(parser, 0, &right));
    *LS_APPEND(parser->source->arena, &node->names) = sign;
    ls_jinja_node_add(parser, &node->parts, right);
  }
  return LS_OK;
}

static ls_status parse_not(ls_jinja_parser *parser, ls_jinja_node **made) {
  if (!ls_jinja_sees(parser, "not")) return parse_compare(parser, made);
  LS_TRY(deeper(parser));
  ls_jinja_node *node = ls_jinja_node_new(parser, LS_NODE_NOT);
  parser->at++;
  LS_TRY(parse_not(parser, &node->first));
  *made = node;
  parser->depth--;
  return LS_OK;
}

static ls_status parse_and(ls_jinja_parser *parser, ls_jinja_node **made) {
  LS_TRY(parse_not(parser, made));
  if (!ls_jinja_sees(parser, "and")) return LS_OK;
  ls_jinja_node *node = ls_jinja_node_new(parser, LS_NODE_AND), *part = *made;
  ls_jinja_node_add(parser, &node->parts, part);
  while (ls_jinja_takes(parser, "and")) {
    LS_TRY(parse_not(parser, &part));
    ls_jinja_node_add(parser, &node->parts, part);
  }
  *made = node;
  return LS_OK;
}

ls_status ls_jinja_parse_or(ls_jinja_parser *parser, ls_jinja_node **made) {
  LS_TRY(parse_and(parser, made));
  if (!ls_jinja_sees(parser, "or")) return LS_OK;
  ls_jinja_node *node = ls_jinja_node_new(parser, LS_NODE_OR), *part = *made;
  ls_jinja_node_add(parser, &node->parts, part);
  while (ls_jinja_takes(parser, "or")) {
    LS_TRY(parse_and(parser, &part));
    ls_jinja_node_add(parser, &node->parts, part);
  }
  *made = node;
  return LS_OK;
}

ls_status ls_jinja_parse_expression(ls_jinja_parser *parser, ls_jinja_node **made) {
  LS_TRY(deeper(parser));
  LS_TRY(ls_jinja_parse_or(parser, made));
  for (int links = 0; ls_jinja_sees(parser, "if"); links++) {
    if (links == LS_JINJA_DEPTH) return ls_jinja_refuse(parser, "a shorter chain of conditions");
    ls_jinja_node *node = ls_jinja_node_new(parser, LS_NODE_CHOICE);
    parser->at++;
    node->first = *made;
    LS_TRY(ls_jinja_parse_or(parser, &node->third));
    if (ls_jinja_takes(parser, "else")) LS_TRY(ls_jinja_parse_expression(parser, &node->second));
    *made = node;
  }
  parser->depth--;
  return LS_OK;
}

static bool ends_tuple(const ls_jinja_parser *parser) {
  const ls_jinja_token *token = ls_jinja_peek(parser);
  return token->kind == LS_LEX_CLOSE || token->kind == LS_LEX_END || token_is(token, ")") ||
         token_is(token, "]") || token_is(token, "=") || token_is(token, ":");
}

ls_status ls_jinja_parse_tuple(ls_jinja_parser *parser, bool choices, ls_jinja_node **made) {
  LS_TRY(choices ? ls_jinja_parse_expression(parser, made) : ls_jinja_parse_or(parser, made));
  if (!ls_jinja_sees(parser, ",")) return LS_OK;
  ls_jinja_node *node = ls_jinja_node_new(parser, LS_NODE_TUPLE), *part = *made;
  ls_jinja_node_add(parser, &node->parts, part);
  while (ls_jinja_takes(parser, ",") && !ends_tuple(parser)) {
    LS_TRY(choices ? ls_jinja_parse_expression(parser, &part) : ls_jinja_parse_or(parser, &part));
    ls_jinja_node_add(parser, &node->parts, part);
  }
  *made = node;
  return LS_OK;
}
