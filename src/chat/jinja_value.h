/* Values of a template, as Python has them, and the memory of one rendering.
 *
 *   ls_jinja_value name = ls_jinja_string("role");
 *   LS_TRY(ls_jinja_item(run, object, name, &value));
 *
 * Texts and lists live in the rendering's arena, and their bytes are counted against its bounds.
 * Private to the room. One thread for one rendering. */
#ifndef LS_CHAT_JINJA_VALUE_H
#define LS_CHAT_JINJA_VALUE_H

#include <string.h>

#include "chat/jinja.h"
#include "chat/jinja_node.h"

/* Bytes that grow in the arena. */
typedef struct ls_jinja_buffer {
  char *data;
  size_t count, capacity;
} ls_jinja_buffer;

/* Names and what they stand for; `outer` is looked at next. */
typedef struct ls_jinja_scope {
  struct ls_jinja_scope *outer;
  LS_LIST(ls_jinja_entry) names;
} ls_jinja_scope;

typedef struct ls_jinja_loop {
  const ls_jinja_value *items;
  int64_t count, at;
  int depth;
  ls_jinja_value changed; /* what loop.changed was given last; absent: never called */
} ls_jinja_loop;

typedef enum ls_jinja_signal { LS_JINJA_ON = 0, LS_JINJA_BREAK, LS_JINJA_CONTINUE } ls_jinja_signal;

/* One rendering. */
typedef struct ls_jinja_run {
  ls_arena *arena;
  const ls_jinja *of;
  ls_error *error;
  int64_t steps, bytes; /* that are left */
  int depth;            /* of evaluation */
  int loops;            /* around what runs */
  int line;             /* of what runs, for errors */
  time_t now;
  ls_jinja_buffer *out;
  ls_jinja_buffer whole; /* of the template itself, where generation counts */
  ls_jinja_scope *scope, *globals;
  ls_jinja_signal signal;
  LS_LIST(ls_jinja_span) spans;
} ls_jinja_run;

enum { LS_JINJA_DEPTH = 200 };

/* What a call gives: by place, then by name. */
typedef struct ls_jinja_arguments {
  ls_jinja_value *items;
  int count;
  const char *const *names;
  ls_jinja_value *named;
  int named_count;
} ls_jinja_arguments;

ls_status ls_jinja_fail(ls_jinja_run *run, const char *format, ...) LS_PRINTF(2, 3);

/* One step more. */
LS_CHECKED ls_status ls_jinja_step(ls_jinja_run *run);

/* Counts bytes, before they are made. */
LS_CHECKED ls_status ls_jinja_charge(ls_jinja_run *run, size_t bytes);

LS_CHECKED ls_status ls_jinja_append(ls_jinja_run *run, ls_jinja_buffer *buffer, const char *text,
                                     size_t bytes);

/* Constructors. Texts are borrowed. */
static inline ls_jinja_value ls_jinja_none(void) {
  return (ls_jinja_value){.kind = LS_JINJA_NONE};
}
static inline ls_jinja_value ls_jinja_undefined(const char *name) {
  return (ls_jinja_value){.kind = LS_JINJA_UNDEFINED, .name = name};
}
static inline ls_jinja_value ls_jinja_truth(bool truth) {
  return (ls_jinja_value){.kind = LS_JINJA_BOOL, .whole = truth};
}
static inline ls_jinja_value ls_jinja_whole(int64_t whole) {
  return (ls_jinja_value){.kind = LS_JINJA_INT, .whole = whole};
}
static inline ls_jinja_value ls_jinja_span_of(const char *text, size_t bytes) {
  return (ls_jinja_value){.kind = LS_JINJA_TEXT, .text = text, .bytes = bytes};
}
static inline ls_jinja_value ls_jinja_string(const char *text) {
  return ls_jinja_span_of(text, strlen(text));
}
static inline ls_jinja_value ls_jinja_buffer_text(const ls_jinja_buffer *buffer) {
  return ls_jinja_span_of(buffer->data ? buffer->data : "", buffer->count);
}
static inline bool ls_jinja_is(const ls_jinja_value *value, const char *text) {
  return value->kind == LS_JINJA_TEXT && value->bytes == strlen(text) &&
         memcmp(value->text, text, value->bytes) == 0;
}

/* Room for `count` items of a list or tuple. */
LS_CHECKED ls_status ls_jinja_list_new(ls_jinja_run *run, ls_jinja_kind kind, int64_t count,
                                       ls_jinja_value *list);
LS_CHECKED ls_status ls_jinja_list_add(ls_jinja_run *run, ls_jinja_value *list,
                                       ls_jinja_value item);
ls_jinja_value ls_jinja_dict_new(ls_jinja_run *run, ls_jinja_kind kind);
LS_CHECKED ls_status ls_jinja_dict_put(ls_jinja_run *run, ls_jinja_value *dict, ls_jinja_value key,
                                       ls_jinja_value value);
const ls_jinja_value *ls_jinja_dict_find(ls_jinja_run *run, const ls_jinja_value *dict,
                                         const ls_jinja_value *key);

/* JSON as values. */
LS_CHECKED ls_status ls_jinja_from_json(ls_jinja_run *run, const json_t *json,
                                        ls_jinja_value *value);

/* What a value is called in errors. */
const char *ls_jinja_kind_name(const ls_jinja_value *value);

bool ls_jinja_is_true(const ls_jinja_value *value);
bool ls_jinja_is_number(const ls_jinja_value *value);
double ls_jinja_number(const ls_jinja_value *value);
/* False too where the steps are used up. */
bool ls_jinja_equal(ls_jinja_run *run, const ls_jinja_value *left, const ls_jinja_value *right);
/* Below 0, 0 or above; an error where Python has no order for the two. */
LS_CHECKED ls_status ls_jinja_compare(ls_jinja_run *run, const ls_jinja_value *left,
                                      const ls_jinja_value *right, int *order);
LS_CHECKED ls_status ls_jinja_contains(ls_jinja_run *run, const ls_jinja_value *whole,
                                       const ls_jinja_value *part, bool *found);
/* What `for` goes through: items, keys, characters. */
LS_CHECKED ls_status ls_jinja_iterate(ls_jinja_run *run, const ls_jinja_value *value,
                                      ls_jinja_value *list);
LS_CHECKED ls_status ls_jinja_length(ls_jinja_run *run, const ls_jinja_value *value,
                                     int64_t *length);

/* str(value), repr(value), json.dumps(value). `indent` below 0: on one line. */
LS_CHECKED ls_status ls_jinja_print(ls_jinja_run *run, const ls_jinja_value *value,
                                    ls_jinja_buffer *buffer);
LS_CHECKED ls_status ls_jinja_repr(ls_jinja_run *run, const ls_jinja_value *value,
                                   ls_jinja_buffer *buffer);
typedef struct ls_jinja_json {
  int indent; /* below 0: one line */
  bool sorted, ascii;
  const char *between, *after_key;
} ls_jinja_json;
LS_CHECKED ls_status ls_jinja_dump(ls_jinja_run *run, const ls_jinja_value *value,
                                   const ls_jinja_json *form, int depth, ls_jinja_buffer *buffer);
/* str(value) as a value. */
LS_CHECKED ls_status ls_jinja_text_of(ls_jinja_run *run, const ls_jinja_value *value,
                                      ls_jinja_value *text);

/* Characters: bytes of the one at `at`; of the white space there, and before it; 0: none. */
size_t ls_jinja_character(const char *at, const char *end);
size_t ls_jinja_space(const char *at, const char *end);
size_t ls_jinja_space_before(const char *begin, const char *at);

/* Arguments by the names of a list such as "indent sort_keys"; what is not given has the kind
 * LS_JINJA_ABSENT. The first `needed` must be given. */
LS_CHECKED ls_status ls_jinja_bind(ls_jinja_run *run, const char *what, const char *names,
                                   int needed, const ls_jinja_arguments *given,
                                   ls_jinja_value *bound);
LS_CHECKED ls_status ls_jinja_want_whole(ls_jinja_run *run, const char *what,
                                         const ls_jinja_value *value, int64_t *whole);
LS_CHECKED ls_status ls_jinja_want_text(ls_jinja_run *run, const char *what,
                                        const ls_jinja_value *value);

/* object[key], and object.key, where the names of attributes go first. */
LS_CHECKED ls_status ls_jinja_item(ls_jinja_run *run, const ls_jinja_value *object,
                                   const ls_jinja_value *key, ls_jinja_value *value);
LS_CHECKED ls_status ls_jinja_attribute(ls_jinja_run *run, const ls_jinja_value *object,
                                        const char *name, ls_jinja_value *value);
LS_CHECKED ls_status ls_jinja_slice(ls_jinja_run *run, const ls_jinja_value *object,
                                    const ls_jinja_value bounds[3], ls_jinja_value *value);

LS_CHECKED ls_status ls_jinja_evaluate(ls_jinja_run *run, const ls_jinja_node *node,
                                       ls_jinja_value *value);
LS_CHECKED ls_status ls_jinja_call(ls_jinja_run *run, const ls_jinja_value *callee,
                                   const ls_jinja_arguments *given, ls_jinja_value *value);
LS_CHECKED ls_status ls_jinja_filter(ls_jinja_run *run, const char *name,
                                     const ls_jinja_value *value, const ls_jinja_arguments *given,
                                     ls_jinja_value *result);
LS_CHECKED ls_status ls_jinja_test(ls_jinja_run *run, const char *name, const ls_jinja_value *value,
                                   const ls_jinja_arguments *given, bool *holds);
LS_CHECKED ls_status ls_jinja_method(ls_jinja_run *run, const ls_jinja_value *object,
                                     const char *name, const ls_jinja_arguments *given,
                                     ls_jinja_value *result);
LS_CHECKED ls_status ls_jinja_binary(ls_jinja_run *run, const char *sign,
                                     const ls_jinja_value *left, const ls_jinja_value *right,
                                     ls_jinja_value *value);
/* Python's str.lower, upper, title and capitalize. */
LS_CHECKED ls_status ls_jinja_case(ls_jinja_run *run, char form, const ls_jinja_value *text,
                                   ls_jinja_value *result);

/* Whether an object of this kind has a method, or there is a filter or a test of this name. */
bool ls_jinja_has_method(const ls_jinja_value *object, const char *name);
bool ls_jinja_has_filter(const char *name);
bool ls_jinja_has_test(const char *name);

/* A list's statements, into run->out; and into a text of their own. */
LS_CHECKED ls_status ls_jinja_statements(ls_jinja_run *run, const ls_jinja_nodes *body);
LS_CHECKED ls_status ls_jinja_captured(ls_jinja_run *run, const ls_jinja_nodes *body,
                                       ls_jinja_value *text);

/* What a name stands for; undefined where nothing. */
ls_jinja_value ls_jinja_lookup(const ls_jinja_run *run, const char *name);
void ls_jinja_assign(ls_jinja_run *run, ls_jinja_scope *scope, const char *name,
                     ls_jinja_value value);

#endif
