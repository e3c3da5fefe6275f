#include "text/fields.h"

#include <stdio.h>
#include <string.h>

#include "text/distance.h"

enum { MOST_FIELDS = 64, KEY_BYTES = 128, MOST_LISTED = 20, LIST_BYTES = 300 };

/* "; expected one of name, count": where no key is near and there are few. */
static const char *list_keys(char list[LIST_BYTES], const ls_field *fields, int count) {
  *list = 0;
  for (int f = 0, used = 0; f < count && count <= MOST_LISTED && used < LIST_BYTES; f++)
    used += snprintf(list + used, (size_t)(LIST_BYTES - used), "%s%s",
                     f ? ", " : "; expected one of ", fields[f].key);
  return list;
}

ls_status ls_fields_refuse(const ls_yaml *node, const char *key, const ls_field *fields, int count,
                           ls_error *error) {
  const char *names[MOST_FIELDS];
  for (int f = 0; f < count; f++) names[f] = fields[f].key;
  const char *near = ls_nearest(key, names, count);
  char list[LIST_BYTES];
  return ls_fail(error, LS_INPUT, "%s:%d: %s: no such key%s%s", node->file, node->key_line,
                 node->path, near ? "; the nearest is " : "",
                 near ? near : list_keys(list, fields, count));
}

static ls_status read_field(const ls_yaml *node, const ls_field *as, void *row, ls_error *error) {
  void *target = (char *)row + as->offset;
  switch (as->kind) {
    case LS_FIELD_OTHER: return LS_OK;
    case LS_FIELD_TEXT: return ls_yaml_string(node, target, error);
    case LS_FIELD_BOOL: return ls_yaml_bool(node, target, error);
    case LS_FIELD_COUNT:
      if (ls_yaml_int(node, target, NULL) != LS_OK || *(int64_t *)target < 1)
        return ls_yaml_fail(node, "a whole number of 1 or more", error);
      return LS_OK;
    case LS_FIELD_NUMBER: break;
  }
  double value;
  if (ls_yaml_number(node, &value, NULL) != LS_OK || value < 0)
    return ls_yaml_fail(node, "a number of 0 or more", error);
  *(double *)target = value * as->unit;
  return LS_OK;
}

static const ls_field *find_field(const char *key, const ls_field *fields, int count) {
  for (int f = 0; f < count; f++)
    if (strcmp(fields[f].key, key) == 0) return &fields[f];
  return NULL;
}

static ls_status read_mapping(const ls_yaml *mapping, const char *prefix, const ls_field *fields,
                              int count, void *row, ls_error *error) {
  if (mapping->kind != LS_YAML_MAPPING) return ls_yaml_fail(mapping, "keys and values", error);
  for (int i = 0; i < mapping->items.count; i++) {
    const ls_yaml *node = mapping->items.items[i];
    char key[KEY_BYTES];
    snprintf(key, sizeof key, "%s%s", prefix, node->key);
    const ls_field *field = find_field(key, fields, count);
    if (!field && node->kind == LS_YAML_MAPPING && !*prefix) {
      snprintf(key, sizeof key, "%s.", node->key);
      LS_TRY(read_mapping(node, key, fields, count, row, error));
      continue;
    }
    if (!field) return ls_fields_refuse(node, key, fields, count, error);
    LS_TRY(read_field(node, field, row, error));
  }
  return LS_OK;
}

ls_status ls_fields_read(const ls_yaml *mapping, const ls_field *fields, int count, void *row,
                         ls_error *error) {
  LS_ASSERT(count <= MOST_FIELDS);
  return read_mapping(mapping, "", fields, count, row, error);
}
