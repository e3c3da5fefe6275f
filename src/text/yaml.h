/* The run file: the core subset of YAML 1.2 as a tree, read strictly.
 *
 *   ls_yaml *root;
 *   LS_TRY(ls_yaml_read(arena, "run.yaml", &root, error));
 *   const ls_yaml *lr = ls_yaml_get(ls_yaml_get(root, "train"), "lr");
 *   if (lr) LS_TRY(ls_yaml_number(lr, &settings->lr, error));
 *
 * Duplicate keys, tags, anchors, aliases, directives and second documents are errors, each with
 * FILE:LINE. Scalars have no type here: the table of keys asks for the one it wants. Everything
 * lives in the arena. One thread at a time per arena. */
#ifndef LS_TEXT_YAML_H
#define LS_TEXT_YAML_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "lockstep/status.h"

typedef enum ls_yaml_kind { LS_YAML_SCALAR = 0, LS_YAML_SEQUENCE, LS_YAML_MAPPING } ls_yaml_kind;

typedef struct ls_yaml ls_yaml;
struct ls_yaml {
  ls_yaml_kind kind;
  bool plain;       /* a scalar without quotes, not a block: may be a number, a bool or null */
  const char *text; /* of a scalar; else NULL */
  const char *key;  /* under which its mapping has it; else NULL */
  const char *path; /* for errors: "train.lr", "data.text[0].path"; "" for the root */
  const char *file; /* for errors */
  int line, column; /* from 1; both 0 for a value of the command line */
  int key_line;     /* of the key, which may stand above its value; 0 without a key */
  LS_LIST(ls_yaml *) items; /* of a sequence or mapping, in the file's order */
};

/* Reads the file. Nothing in it (or comments only) is a mapping without keys. Limits: 1 MiB, 64
 * levels, 1,000 keys in a mapping, 100,000 values in all. */
LS_CHECKED ls_status ls_yaml_read(ls_arena *arena, const char *path, ls_yaml **root,
                                  ls_error *error);
LS_CHECKED ls_status ls_yaml_parse(ls_arena *arena, const char *name, const char *text,
                                   size_t bytes, ls_yaml **root, ls_error *error);

/* The value in "key.sub=value" of a command line: YAML where it begins with [ { " or ', else a
 * plain scalar as it stands, so that data.text=*.txt needs no quotes. `path` is the key. */
LS_CHECKED ls_status ls_yaml_value(ls_arena *arena, const char *path, const char *text,
                                   ls_yaml **value, ls_error *error);

/* The value under `key`; NULL where `mapping` is NULL, no mapping, or without it. */
const ls_yaml *ls_yaml_get(const ls_yaml *mapping, const char *key);

/* Whether it is a null of the core schema: nothing, ~, null, Null, NULL. */
bool ls_yaml_is_null(const ls_yaml *node);

/* Typed by the rules of the core schema; each fails with "FILE:LINE: PATH: found ...; expected
 * ...". Integers: 12, -3, 0x1F, 0o17. Numbers: these, 3e-4, .5, 2., not .inf and .nan. Bools: true,
 * false (also True, TRUE, False, FALSE); yes, no, on and off are text. Quoted scalars are text
 * only. */
LS_CHECKED ls_status ls_yaml_int(const ls_yaml *node, int64_t *value, ls_error *error);
LS_CHECKED ls_status ls_yaml_number(const ls_yaml *node, double *value, ls_error *error);
LS_CHECKED ls_status ls_yaml_bool(const ls_yaml *node, bool *value, ls_error *error);

/* Any scalar but null, as written: `off`, `1f1b` and `12` are strings where one is wanted. */
LS_CHECKED ls_status ls_yaml_string(const ls_yaml *node, const char **value, ls_error *error);

/* The common error of a value that is not what its key wants; also for callers' own types, e.g.
 * expected "1f1b, gpipe or a CSV file". */
ls_status ls_yaml_fail(const ls_yaml *node, const char *expected, ls_error *error);

#endif
