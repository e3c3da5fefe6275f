/* JSON as Hugging Face files have it, read through jansson, with errors a user can act on.
 *
 *   json_t *root;
 *   LS_TRY(ls_json_read("config.json", 0, &root, error));
 *   ls_json_object config;
 *   ls_status status = ls_json_root("config.json", root, &config, error);
 *   if (status == LS_OK) status = ls_json_count(&config, "hidden_size", &width, error);
 *   if (status == LS_OK) status = ls_json_number_or(&config, "rope_theta", 1e4, &theta, error);
 *   json_decref(root);
 *
 * Reading refuses all that RFC 8259 refuses (NaN, trailing commas, bad UTF-8), nesting deeper than
 * 2048 and duplicate keys. To write JSON, build it with jansson, json_dumps, ls_file_write.
 * Thread-safe as long as no two threads use one json_t. */
#ifndef LS_TEXT_JSON_H
#define LS_TEXT_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "lockstep/status.h"

enum {
  LS_JSON_LAST_KEY = 1, /* of duplicate keys the last holds, as in Python; else they are errors */
  LS_JSON_EXACT = 2     /* integers beyond 64 bits are errors; else all become doubles */
};

/* Reads `bytes` of text; `name` stands for the file in errors: "NAME:LINE:COLUMN: found ...;
 * expected ...". A byte order mark is skipped. The caller owns *root: json_decref. A key with
 * \u0000 in it is refused, which is jansson's limit. */
LS_CHECKED ls_status ls_json_parse(const char *name, const char *text, size_t bytes, unsigned flags,
                                   json_t **root, ls_error *error);

/* The same of a part of a file that begins with its line number `line`. */
LS_CHECKED ls_status ls_json_parse_part(const char *name, int64_t line, const char *text,
                                        size_t bytes, unsigned flags, json_t **root,
                                        ls_error *error);

/* The same for the file at `path`. */
LS_CHECKED ls_status ls_json_read(const char *path, unsigned flags, json_t **root, ls_error *error);

/* An object and what to call it in errors: "config.json", "config.json: \"rope_scaling\"".
 * Borrows both. */
typedef struct ls_json_object {
  const char *where;
  const json_t *json;
} ls_json_object;

/* `json` as an object; LS_INPUT where it is something else. */
LS_CHECKED ls_status ls_json_root(const char *where, const json_t *json, ls_json_object *object,
                                  ls_error *error);

/* Whether the key is there and not null. */
bool ls_json_has(const ls_json_object *object, const char *key);

/* Getters. Each fails with LS_INPUT and a line naming object and key where the value is missing or
 * of another type. Those ending in _or take `fallback` for a key that is missing or null.
 *
 * A whole number may be written 12.0, within 2^53; a count is one from 1 to 2^31 - 1. Strings are
 * without NUL inside, and live as long as the json_t. */
LS_CHECKED ls_status ls_json_int(const ls_json_object *object, const char *key, int64_t *value,
                                 ls_error *error);
LS_CHECKED ls_status ls_json_int_or(const ls_json_object *object, const char *key, int64_t fallback,
                                    int64_t *value, ls_error *error);
LS_CHECKED ls_status ls_json_count(const ls_json_object *object, const char *key, int64_t *value,
                                   ls_error *error);
LS_CHECKED ls_status ls_json_count_or(const ls_json_object *object, const char *key,
                                      int64_t fallback, int64_t *value, ls_error *error);
LS_CHECKED ls_status ls_json_number(const ls_json_object *object, const char *key, double *value,
                                    ls_error *error);
LS_CHECKED ls_status ls_json_number_or(const ls_json_object *object, const char *key,
                                       double fallback, double *value, ls_error *error);
LS_CHECKED ls_status ls_json_bool(const ls_json_object *object, const char *key, bool *value,
                                  ls_error *error);
LS_CHECKED ls_status ls_json_bool_or(const ls_json_object *object, const char *key, bool fallback,
                                     bool *value, ls_error *error);
LS_CHECKED ls_status ls_json_string(const ls_json_object *object, const char *key,
                                    const char **value, ls_error *error);
LS_CHECKED ls_status ls_json_string_or(const ls_json_object *object, const char *key,
                                       const char *fallback, const char **value, ls_error *error);

/* The object under `key`; its `where` is made in the arena. In the _or form a missing or null one
 * gives child->json NULL, which the getters above treat as an object without keys. */
LS_CHECKED ls_status ls_json_child(ls_arena *arena, const ls_json_object *object, const char *key,
                                   ls_json_object *child, ls_error *error);
LS_CHECKED ls_status ls_json_child_or(ls_arena *arena, const ls_json_object *object,
                                      const char *key, ls_json_object *child, ls_error *error);

/* Arrays of one type, copied into the arena; none of these has a fallback: ask ls_json_has. */
LS_CHECKED ls_status ls_json_ints(ls_arena *arena, const ls_json_object *object, const char *key,
                                  int64_t **values, int *count, ls_error *error);
LS_CHECKED ls_status ls_json_numbers(ls_arena *arena, const ls_json_object *object, const char *key,
                                     double **values, int *count, ls_error *error);
LS_CHECKED ls_status ls_json_strings(ls_arena *arena, const ls_json_object *object, const char *key,
                                     const char ***values, int *count, ls_error *error);

#endif
