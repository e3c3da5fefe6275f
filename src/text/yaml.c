#include "text/yaml.h"

#include <stdio.h>
#include <string.h>
#include <yaml.h>

#include "base/file.h"
#include "text/quote.h"

enum { MAX_BYTES = 1 << 20, MAX_DEPTH = 64, MAX_KEYS = 1000, MAX_VALUES = 100000 };

typedef struct yaml_reader {
  ls_arena *arena;
  const char *name;
  const char *path; /* of the root: "" in a file */
  bool command_line;
  const char *text; /* after the byte order mark */
  size_t bytes;
  yaml_parser_t parser;
  int values;
  ls_yaml *open[MAX_DEPTH]; /* mappings and sequences being read, outermost first */
  int depth;
  ls_yaml *key; /* read, its value not yet */
} yaml_reader;

static int line_of(yaml_mark_t mark) {
  return (int)mark.line + 1;
}

/* Where a mark points: it counts characters. */
static size_t byte_of(const yaml_reader *reader, yaml_mark_t mark) {
  size_t at = 0;
  for (size_t index = 0; index < mark.index && at < reader->bytes; index++) {
    const size_t length = ls_utf8_length(reader->text + at, reader->bytes - at);
    at += length ? length : 1;
  }
  return at;
}

/* The word at a mark, for errors. */
static const char *word_at(const yaml_reader *reader, yaml_mark_t mark,
                           char shown[LS_QUOTE_BYTES]) {
  const size_t start = byte_of(reader, mark);
  size_t end = start;
  while (end < reader->bytes && !strchr(" \t\r\n,]}", reader->text[end])) end++;
  return ls_quote(shown, reader->text + start, end - start);
}

static ls_status fail_at(const yaml_reader *reader, yaml_mark_t mark, const char *found,
                         const char *expected, ls_error *error) {
  if (reader->command_line) {
    return ls_fail(error, LS_INPUT, "%s: %s: found %s; expected %s", reader->name, reader->path,
                   found, expected);
  }
  return ls_fail(error, LS_INPUT, "%s:%d: found %s; expected %s", reader->name, line_of(mark),
                 found, expected);
}

static ls_status fail_quote(const yaml_reader *reader, yaml_mark_t mark, const char *what,
                            ls_error *error) {
  char shown[LS_QUOTE_BYTES], found[2 * LS_QUOTE_BYTES];
  snprintf(found, sizeof found, "%s, which is %s to YAML", word_at(reader, mark, shown), what);
  char expected[2 * LS_QUOTE_BYTES];
  snprintf(expected, sizeof expected, "a plain value: quote it (\"%s\") if it is text", shown);
  return fail_at(reader, mark, found, expected, error);
}

/* libyaml stopped; its words, or better ones where the cause is known. */
static ls_status fail_parse(const yaml_reader *reader, ls_error *error) {
  const yaml_parser_t *parser = &reader->parser;
  const yaml_mark_t mark = parser->problem_mark;
  const char *context = parser->context ? parser->context : "";
  const char *problem = parser->problem ? parser->problem : "no YAML";
  if (parser->error == YAML_READER_ERROR) {
    return ls_fail(error, LS_INPUT, "%s: found %s at byte %zu; expected YAML in UTF-8",
                   reader->name, problem, parser->problem_offset);
  }
  if (parser->error == YAML_MEMORY_ERROR) {
    return ls_fail(error, LS_FAILED, "%s: out of memory while reading it", reader->name);
  }
  if (strstr(context, "an alias"))
    return fail_quote(reader, parser->context_mark, "an alias", error);
  if (strstr(context, "an anchor")) {
    return fail_quote(reader, parser->context_mark, "an anchor", error);
  }
  if (strstr(context, "a tag")) return fail_quote(reader, parser->context_mark, "a tag", error);
  if (strstr(problem, "cannot start any token")) {
    const size_t at = byte_of(reader, mark);
    if (at < reader->bytes && reader->text[at] == '\t') {
      return fail_at(reader, mark, "a tab", "spaces for indentation", error);
    }
    return fail_quote(reader, mark, "a reserved character", error);
  }
  char found[3 * LS_QUOTE_BYTES];
  snprintf(found, sizeof found, "no YAML (%s%s%s)", context, context[0] ? ": " : "", problem);
  return fail_at(reader, mark, found, "\"key: value\" lines, indented by spaces", error);
}

static ls_status node_make(yaml_reader *reader, const yaml_event_t *event, ls_yaml_kind kind,
                           ls_yaml **made, ls_error *error) {
  if (++reader->values > MAX_VALUES) {
    return fail_at(reader, event->start_mark, "more than 100,000 values", "a run file", error);
  }
  ls_yaml *node = LS_NEW(reader->arena, ls_yaml);
  node->kind = kind;
  node->file = reader->name;
  node->path = reader->path;
  if (!reader->command_line) {
    node->line = line_of(event->start_mark);
    node->column = (int)event->start_mark.column + 1;
  }
  *made = node;
  return LS_OK;
}

static ls_status key_check(const yaml_reader *reader, const ls_yaml *mapping,
                           const yaml_event_t *event, const ls_yaml *key, ls_error *error) {
  char shown[LS_QUOTE_BYTES], found[2 * LS_QUOTE_BYTES];
  ls_quote(shown, key->text, strlen(key->text));
  const ls_yaml *first = ls_yaml_get(mapping, key->text);
  if (first) {
    snprintf(found, sizeof found, "the key \"%s\" a second time (line %d has it already)", shown,
             first->key_line);
    return fail_at(reader, event->start_mark, found, "each key once", error);
  }
  if (mapping->items.count >= MAX_KEYS) {
    return fail_at(reader, event->start_mark, "more than 1,000 keys", "a run file", error);
  }
  return LS_OK;
}

/* Puts a finished scalar, or a mapping or sequence just opened, where it belongs. */
static ls_status node_place(yaml_reader *reader, const yaml_event_t *event, ls_yaml *node,
                            ls_yaml **root, ls_error *error) {
  if (reader->depth == 0) {
    *root = node;
    return LS_OK;
  }
  ls_yaml *parent = reader->open[reader->depth - 1];
  if (parent->kind == LS_YAML_SEQUENCE) {
    node->path = ls_arena_printf(reader->arena, "%s[%d]", parent->path, parent->items.count);
    *LS_APPEND(reader->arena, &parent->items) = node;
    return LS_OK;
  }
  if (!reader->key) {
    if (node->kind != LS_YAML_SCALAR) {
      return fail_at(reader, event->start_mark,
                     node->kind == LS_YAML_MAPPING ? "a mapping as a key" : "a list as a key",
                     "a word", error);
    }
    reader->key = node;
    return key_check(reader, parent, event, node, error);
  }
  node->key = reader->key->text;
  node->key_line = reader->key->line;
  node->path = parent->path[0] ? ls_arena_printf(reader->arena, "%s.%s", parent->path, node->key)
                               : node->key;
  reader->key = NULL;
  *LS_APPEND(reader->arena, &parent->items) = node;
  return LS_OK;
}

static ls_status read_scalar(yaml_reader *reader, const yaml_event_t *event, ls_yaml **root,
                             ls_error *error) {
  const char *text = (const char *)event->data.scalar.value;
  if (event->data.scalar.anchor) return fail_quote(reader, event->start_mark, "an anchor", error);
  if (event->data.scalar.tag) return fail_quote(reader, event->start_mark, "a tag", error);
  if (memchr(text, '\0', event->data.scalar.length)) {
    return fail_at(reader, event->start_mark, "a NUL character in text", "text without it", error);
  }
  ls_yaml *node = NULL;
  LS_TRY(node_make(reader, event, LS_YAML_SCALAR, &node, error));
  node->plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
  node->text = ls_arena_strdup(reader->arena, text);
  return node_place(reader, event, node, root, error);
}

static ls_status read_open(yaml_reader *reader, const yaml_event_t *event, ls_yaml_kind kind,
                           ls_yaml **root, ls_error *error) {
  const bool mapping = kind == LS_YAML_MAPPING;
  if (mapping ? event->data.mapping_start.anchor : event->data.sequence_start.anchor) {
    return fail_quote(reader, event->start_mark, "an anchor", error);
  }
  if (mapping ? event->data.mapping_start.tag : event->data.sequence_start.tag) {
    return fail_quote(reader, event->start_mark, "a tag", error);
  }
  if (reader->depth == MAX_DEPTH) {
    return fail_at(reader, event->start_mark, "nesting deeper than 64", "a run file", error);
  }
  ls_yaml *node = NULL;
  LS_TRY(node_make(reader, event, kind, &node, error));
  LS_TRY(node_place(reader, event, node, root, error));
  reader->open[reader->depth++] = node;
  return LS_OK;
}

static ls_status read_event(yaml_reader *reader, const yaml_event_t *event, ls_yaml **root,
                            ls_error *error) {
  switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
      if (*root) {
        return fail_at(reader, event->start_mark, "a second document", "one document in a file",
                       error);
      }
      if (event->data.document_start.tag_directives.start !=
          event->data.document_start.tag_directives.end) {
        return fail_at(reader, event->start_mark, "a %TAG directive", "a file without tags", error);
      }
      return LS_OK;
    case YAML_ALIAS_EVENT: return fail_quote(reader, event->start_mark, "an alias", error);
    case YAML_SCALAR_EVENT: return read_scalar(reader, event, root, error);
    case YAML_SEQUENCE_START_EVENT: return read_open(reader, event, LS_YAML_SEQUENCE, root, error);
    case YAML_MAPPING_START_EVENT: return read_open(reader, event, LS_YAML_MAPPING, root, error);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT: reader->depth--; return LS_OK;
    default: return LS_OK;
  }
}

static ls_status read_all(yaml_reader *reader, ls_yaml **root, ls_error *error) {
  for (bool done = false; !done;) {
    yaml_event_t event;
    if (!yaml_parser_parse(&reader->parser, &event)) return fail_parse(reader, error);
    done = event.type == YAML_STREAM_END_EVENT;
    const ls_status status = read_event(reader, &event, root, error);
    yaml_event_delete(&event);
    LS_TRY(status);
  }
  return LS_OK;
}

static ls_status parse(yaml_reader *reader, ls_yaml **root, ls_error *error) {
  *root = NULL;
  if (reader->bytes > MAX_BYTES) {
    return ls_fail(error, LS_INPUT, "%s: found %zu bytes; expected a run file of at most 1 MiB",
                   reader->name, reader->bytes);
  }
  if (!yaml_parser_initialize(&reader->parser)) {
    return ls_fail(error, LS_FAILED, "%s: out of memory while reading it", reader->name);
  }
  /* Without this a file may also be UTF-16, of which none of our messages could show a word. */
  yaml_parser_set_encoding(&reader->parser, YAML_UTF8_ENCODING);
  yaml_parser_set_input_string(&reader->parser, (const unsigned char *)reader->text, reader->bytes);
  const ls_status status = read_all(reader, root, error);
  yaml_parser_delete(&reader->parser);
  return status;
}

static void skip_mark(const char **text, size_t *bytes) {
  if (*bytes >= 3 && memcmp(*text, "\xEF\xBB\xBF", 3) == 0) {
    *text += 3;
    *bytes -= 3;
  }
}

ls_status ls_yaml_parse(ls_arena *arena, const char *name, const char *text, size_t bytes,
                        ls_yaml **root, ls_error *error) {
  skip_mark(&text, &bytes);
  yaml_reader reader = {.arena = arena,
                        .name = ls_arena_strdup(arena, name),
                        .path = "",
                        .text = text,
                        .bytes = bytes};
  LS_TRY(parse(&reader, root, error));
  if (*root && !ls_yaml_is_null(*root)) return LS_OK;
  *root = LS_NEW(arena, ls_yaml);
  **root =
      (ls_yaml){.kind = LS_YAML_MAPPING, .path = "", .file = reader.name, .line = 1, .column = 1};
  return LS_OK;
}

ls_status ls_yaml_read(ls_arena *arena, const char *path, ls_yaml **root, ls_error *error) {
  ls_map map;
  LS_TRY(ls_file_map(path, &map, error));
  const ls_status status =
      ls_yaml_parse(arena, path, map.data ? map.data : "", map.bytes, root, error);
  ls_file_unmap(&map);
  return status;
}

ls_status ls_yaml_value(ls_arena *arena, const char *path, const char *text, ls_yaml **value,
                        ls_error *error) {
  static const char file[] = "command line";
  if (text[0] && strchr("[{\"'", text[0])) {
    yaml_reader reader = {.arena = arena,
                          .name = file,
                          .path = ls_arena_strdup(arena, path),
                          .command_line = true,
                          .text = text,
                          .bytes = strlen(text)};
    return parse(&reader, value, error);
  }
  *value = LS_NEW(arena, ls_yaml);
  **value = (ls_yaml){.kind = LS_YAML_SCALAR,
                      .plain = true,
                      .text = ls_arena_strdup(arena, text),
                      .path = ls_arena_strdup(arena, path),
                      .file = file};
  return LS_OK;
}

const ls_yaml *ls_yaml_get(const ls_yaml *mapping, const char *key) {
  if (!mapping || mapping->kind != LS_YAML_MAPPING) return NULL;
  for (int i = 0; i < mapping->items.count; i++) {
    if (strcmp(mapping->items.items[i]->key, key) == 0) return mapping->items.items[i];
  }
  return NULL;
}
