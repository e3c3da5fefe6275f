/* A YAML mapping read into a struct by a table of its keys.
 *
 *   static const ls_field fields[] = {
 *       LS_FIELD(ls_link, "gb_per_s", NUMBER, bytes_per_s, 1e9),
 *       LS_FIELD(ls_link, "host.cores", COUNT, cores, 1)};
 *   LS_TRY(ls_fields_read(node, fields, LS_FIELDS(fields), &link, error));
 *
 * A key of the form "host.cores" lies in the mapping under "host". Thread-safe. */
#ifndef LS_TEXT_FIELDS_H
#define LS_TEXT_FIELDS_H

#include <stddef.h>

#include "text/yaml.h"

typedef enum ls_field_kind {
  LS_FIELD_TEXT,   /* const char * */
  LS_FIELD_NUMBER, /* double, 0 or more; times `unit` */
  LS_FIELD_COUNT,  /* int64_t, 1 or more */
  LS_FIELD_BOOL,   /* bool */
  LS_FIELD_OTHER   /* the caller reads it */
} ls_field_kind;

typedef struct ls_field {
  const char *key;
  ls_field_kind kind;
  size_t offset; /* in the struct */
  double unit;
} ls_field;

#define LS_FIELD(type, key, kind, member, unit) \
  { key, LS_FIELD_##kind, offsetof(type, member), unit }
#define LS_FIELDS(table) ((int)(sizeof(table) / sizeof *(table)))

/* Fills what the mapping has and leaves the rest. LS_INPUT: a key that the table lacks, with the
 * nearest; a value that its key cannot have. Borrows the tree's texts. */
LS_CHECKED ls_status ls_fields_read(const ls_yaml *mapping, const ls_field *fields, int count,
                                    void *row, ls_error *error);

/* LS_INPUT: the key of `node`, which is none of these. */
ls_status ls_fields_refuse(const ls_yaml *node, const char *key, const ls_field *fields, int count,
                           ls_error *error);

#endif
