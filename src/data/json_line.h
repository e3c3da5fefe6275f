/* A document in one line of JSON: {"text": "...", ...}.
 *
 *   ls_json_line line;
 *   LS_TRY(ls_json_line_read(name, number, text, bytes, "text", &line, error));
 *   ... line.text, line.bytes ...
 *   ls_json_line_close(&line);
 *
 * Thread-safe: no state. */
#ifndef LS_DATA_JSON_LINE_H
#define LS_DATA_JSON_LINE_H

#include <jansson.h>
#include <stdint.h>

#include "lockstep/status.h"

typedef struct ls_json_line {
  json_t *root;     /* NULL: the text lies in the line */
  const char *text; /* UTF-8, may hold NULs: an escaped one is a character like others */
  int64_t bytes;    /* at most those of the line */
} ls_json_line;

/* LS_INPUT, "NAME:NUMBER: ...", where the line is not one JSON object (RFC 8259) or has no string
 * under the key. Of duplicate keys the last holds. The line may be changed where it is good:
 * escapes become what they stand for, in their place. `error` may be NULL. */
LS_CHECKED ls_status ls_json_line_read(const char *name, int64_t number, char *text, int64_t bytes,
                                       const char *key, ls_json_line *line, ls_error *error);
void ls_json_line_close(ls_json_line *line);

#endif
