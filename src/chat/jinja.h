/* The Jinja that chat templates are written in, rendered as transformers renders it: blocks are
 * trimmed and stripped on the left, values print as Python prints them, nothing can be changed but
 * namespaces, and {% generation %} marks what a model answers.
 *
 *   const ls_jinja *made;
 *   LS_TRY(ls_jinja_read(arena, "chat_template.jinja", text, bytes, &made, error));
 *   LS_TRY(ls_jinja_render(arena, made, variables, NULL, &rendered, error));
 *   ... rendered.text, rendered.bytes, rendered.spans ...
 *
 * A template is somebody's program: what it may do is bounded in steps and bytes, and what is not
 * supported (include, extends, import, loops that call themselves) is refused when it is read.
 * Thread-safe: a template is constant once read. */
#ifndef LS_CHAT_JINJA_H
#define LS_CHAT_JINJA_H

#include <jansson.h>
#include <stdbool.h>
#include <time.h>

#include "base/arena.h"

typedef struct ls_jinja ls_jinja;

/* Bytes of the rendered text that a {% generation %} block made. */
typedef struct ls_jinja_span {
  size_t begin, end;
} ls_jinja_span;

typedef struct ls_jinja_text {
  const char *text; /* UTF-8, may hold NULs; one more ends it */
  size_t bytes;
  const ls_jinja_span *spans;
  int span_count;
} ls_jinja_text;

typedef struct ls_jinja_options {
  int64_t steps; /* expressions and statements at most; 0: LS_JINJA_STEPS */
  int64_t bytes; /* of all texts that are made on the way; 0: LS_JINJA_BYTES */
  time_t now;    /* what strftime_now tells; 0: the time it is */
} ls_jinja_options;

enum { LS_JINJA_STEPS = 2000000, LS_JINJA_BYTES = 1 << 28, LS_JINJA_SOURCE_BYTES = 1 << 20 };

/* Reads a template of at most LS_JINJA_SOURCE_BYTES; it lives in the arena. LS_INPUT, "NAME:LINE:
 * found ...; expected ...". */
LS_CHECKED ls_status ls_jinja_read(ls_arena *arena, const char *name, const char *text,
                                   size_t bytes, const ls_jinja **made, ls_error *error);

/* Whether the template has a {% generation %} block. */
bool ls_jinja_marks(const ls_jinja *made);

/* Whether the template asks for a variable of this name. */
bool ls_jinja_asks(const ls_jinja *made, const char *name);

/* The text for these variables, an object. `options` may be NULL. LS_INPUT, with the template's
 * line: what it does to its variables cannot be done, it refuses them itself (raise_exception: its
 * own message is passed on), or it is over its bounds. */
LS_CHECKED ls_status ls_jinja_render(ls_arena *arena, const ls_jinja *made, const json_t *variables,
                                     const ls_jinja_options *options, ls_jinja_text *rendered,
                                     ls_error *error);

#endif
