/* A template as a tree of nodes, and what its literals are. Private to the room; jinja_parse.c
 * makes it, jinja_evaluate.c and jinja_statements.c go through it.
 *
 *   LS_TRY(ls_jinja_lex(&source, error));
 *   LS_TRY(ls_jinja_parse(&source, made, error)); */
#ifndef LS_CHAT_JINJA_NODE_H
#define LS_CHAT_JINJA_NODE_H

#include "chat/jinja.h"

typedef enum ls_jinja_kind {
  LS_JINJA_ABSENT = 0, /* an argument that was not given */
  LS_JINJA_UNDEFINED,
  LS_JINJA_NONE,
  LS_JINJA_BOOL,
  LS_JINJA_INT,
  LS_JINJA_REAL,
  LS_JINJA_TEXT,
  LS_JINJA_LIST,
  LS_JINJA_TUPLE,
  LS_JINJA_DICT,
  LS_JINJA_SPACE, /* a namespace, whose entries can be set */
  LS_JINJA_MACRO,
  LS_JINJA_FUNCTION,
  LS_JINJA_METHOD,
  LS_JINJA_LOOP,
} ls_jinja_kind;

typedef struct ls_jinja_value ls_jinja_value;
typedef struct ls_jinja_entry ls_jinja_entry;
typedef LS_LIST(ls_jinja_value) ls_jinja_values;
typedef LS_LIST(ls_jinja_entry) ls_jinja_entries;

struct ls_jinja_value {
  ls_jinja_kind kind;
  int deep; /* lists and mappings in it, one in the other */
  union {
    int64_t whole;
    double real;
    size_t bytes;                 /* of the text */
    struct ls_jinja_scope *scope; /* that a macro was made in */
    const ls_jinja_value *object; /* whose method it is */
  };
  union {
    const char *text;
    const char *name; /* of what is undefined, of a function or method */
    ls_jinja_values *list;
    ls_jinja_entries *dict;
    struct ls_jinja_loop *loop;
    const struct ls_jinja_node *macro;
  };
};

struct ls_jinja_entry {
  ls_jinja_value key, value;
};

typedef enum ls_jinja_node_kind {
  /* statements */
  LS_NODE_TEXT,
  LS_NODE_PRINT,
  LS_NODE_IF,
  LS_NODE_FOR,
  LS_NODE_SET,
  LS_NODE_SET_BLOCK,
  LS_NODE_MACRO,
  LS_NODE_CALL_BLOCK,
  LS_NODE_FILTER_BLOCK,
  LS_NODE_GENERATION,
  LS_NODE_WITH,
  LS_NODE_BREAK,
  LS_NODE_CONTINUE,
  /* expressions */
  LS_NODE_LITERAL,
  LS_NODE_NAME,
  LS_NODE_LIST,
  LS_NODE_TUPLE,
  LS_NODE_DICT,
  LS_NODE_ATTRIBUTE,
  LS_NODE_ITEM,
  LS_NODE_SLICE,
  LS_NODE_CALL,
  LS_NODE_FILTER,
  LS_NODE_TEST,
  LS_NODE_NOT,
  LS_NODE_SIGN,
  LS_NODE_BINARY,
  LS_NODE_COMPARE,
  LS_NODE_AND,
  LS_NODE_OR,
  LS_NODE_CHOICE,
} ls_jinja_node_kind;

typedef struct ls_jinja_node ls_jinja_node;
typedef LS_LIST(ls_jinja_node *) ls_jinja_nodes;

struct ls_jinja_node {
  ls_jinja_node_kind kind;
  int line;
  ls_jinja_value literal;        /* and the text of TEXT */
  const char *name;              /* of a variable, attribute, filter, test, macro; an operator */
  ls_jinja_node *first, *second; /* operands; of IF and FOR what is asked or gone through */
  ls_jinja_node *third;          /* the condition of CHOICE, the filter of FOR; may be NULL */
  ls_jinja_nodes parts;          /* items, arguments by place, parameters; keys of a dict */
  ls_jinja_nodes values;         /* of keywords and keys, defaults of the last parameters */
  LS_LIST(const char *) names;   /* of keywords, and operators of a comparison */
  ls_jinja_nodes body, otherwise;
};

/* A piece of the source. */
typedef enum ls_jinja_token_kind {
  LS_LEX_DATA,
  LS_LEX_PRINT, /* {{ */
  LS_LEX_BLOCK, /* {% */
  LS_LEX_CLOSE, /* }} or %} */
  LS_LEX_NAME,
  LS_LEX_STRING,
  LS_LEX_INT,
  LS_LEX_REAL,
  LS_LEX_SIGN,
  LS_LEX_END,
} ls_jinja_token_kind;

typedef struct ls_jinja_token {
  ls_jinja_token_kind kind;
  int line;
  const char *text; /* of a name or sign; of strings and data what they stand for */
  size_t bytes;
  int64_t whole;
  double real;
} ls_jinja_token;

typedef struct ls_jinja_source {
  ls_arena *arena;
  const char *name;
  const char *text;
  size_t bytes;
  LS_LIST(ls_jinja_token) tokens;
} ls_jinja_source;

struct ls_jinja {
  const char *name;
  ls_jinja_nodes body;
  bool marks;
  LS_LIST(const char *) asked; /* names of variables */
};

/* Cuts the source into tokens; its line ends are made '\n' before. */
LS_CHECKED ls_status ls_jinja_lex(ls_jinja_source *source, ls_error *error);

/* The tree of the tokens. */
LS_CHECKED ls_status ls_jinja_parse(const ls_jinja_source *source, ls_jinja *made, ls_error *error);

/* What a parser works with, shared by the two files that it is. */
typedef struct ls_jinja_parser {
  const ls_jinja_source *source;
  ls_jinja *made;
  int at, depth;
  int loops, macros; /* around what is read */
  ls_error *error;
} ls_jinja_parser;

const ls_jinja_token *ls_jinja_peek(const ls_jinja_parser *parser);
bool ls_jinja_sees(const ls_jinja_parser *parser, const char *text);
bool ls_jinja_takes(ls_jinja_parser *parser, const char *text);
LS_CHECKED ls_status ls_jinja_expect(ls_jinja_parser *parser, const char *text);
LS_CHECKED ls_status ls_jinja_expect_name(ls_jinja_parser *parser, const char *what,
                                          const char **name);
ls_status ls_jinja_refuse(ls_jinja_parser *parser, const char *expected);
ls_jinja_node *ls_jinja_node_new(ls_jinja_parser *parser, ls_jinja_node_kind kind);
void ls_jinja_node_add(ls_jinja_parser *parser, ls_jinja_nodes *list, ls_jinja_node *node);

/* Expressions: any; one without `if`; and a list of them, a tuple where there is a comma. */
LS_CHECKED ls_status ls_jinja_parse_expression(ls_jinja_parser *parser, ls_jinja_node **node);
LS_CHECKED ls_status ls_jinja_parse_or(ls_jinja_parser *parser, ls_jinja_node **node);
LS_CHECKED ls_status ls_jinja_parse_tuple(ls_jinja_parser *parser, bool choices,
                                          ls_jinja_node **node);
/* One name or literal, without what may follow it; for targets. */
LS_CHECKED ls_status ls_jinja_parse_primary(ls_jinja_parser *parser, ls_jinja_node **node);
/* | NAME(...) behind a value; where `named` the first bar was left out. */
LS_CHECKED ls_status ls_jinja_parse_filters(ls_jinja_parser *parser, bool named,
                                            ls_jinja_node **node);
/* (...) into parts, names and values. */
LS_CHECKED ls_status ls_jinja_parse_arguments(ls_jinja_parser *parser, ls_jinja_node *call);

#endif
