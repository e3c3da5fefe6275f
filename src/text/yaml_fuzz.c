/* Fuzz target of the run file's YAML reader: as a file and as a value of the command line. Every
 * node must have its place, and every converter an answer about it. */
#include <stdint.h>
#include <string.h>

#include "text/yaml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check_error(const ls_error *error) {
  LS_ASSERT(error->status == LS_INPUT && error->text[0] && !strchr(error->text, '\n'));
}

static void check_scalar(const ls_yaml *node) {
  ls_error error = {0};
  int64_t whole = 0;
  double number = 0;
  bool truth;
  const char *text;
  const bool is_whole = ls_yaml_int(node, &whole, &error) == LS_OK;
  const bool is_number = ls_yaml_number(node, &number, &error) == LS_OK;
  const bool is_bool = ls_yaml_bool(node, &truth, &error) == LS_OK;
  const bool is_string = ls_yaml_string(node, &text, &error) == LS_OK;
  LS_ASSERT(!is_whole || (is_number && number == (double)whole));
  LS_ASSERT(!(is_bool && is_number));
  LS_ASSERT(is_string != ls_yaml_is_null(node));
  if (!is_whole || !is_bool) check_error(&error);
}

/* The depth is limited by the reader, so recursion is too. */
static void check_node(const ls_yaml *node, bool in_file) {
  LS_ASSERT(node->file && node->path && (node->line > 0) == in_file);
  ls_error error = {0};
  LS_ASSERT(ls_yaml_fail(node, "another", &error) == LS_INPUT);
  check_error(&error);
  if (node->kind == LS_YAML_SCALAR) {
    check_scalar(node);
    return;
  }
  for (int i = 0; i < node->items.count; i++) {
    const ls_yaml *item = node->items.items[i];
    LS_ASSERT((item->key != NULL) == (node->kind == LS_YAML_MAPPING));
    if (item->key) LS_ASSERT(ls_yaml_get(node, item->key) == item);
    check_node(item, in_file);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  if (bytes == 0) return 0;
  ls_error error = {0};
  ls_yaml *root;
  ls_arena *arena = ls_arena_create();
  const char *text = (const char *)data + 1;
  if (data[0] % 4 == 0) {
    char *line = ls_arena_alloc(arena, bytes);
    memcpy(line, text, bytes - 1);
    if (ls_yaml_value(arena, "train.lr", line, &root, &error) == LS_OK) {
      check_node(root, false);
    } else {
      check_error(&error);
    }
  } else if (ls_yaml_parse(arena, "fuzz", text, bytes - 1, &root, &error) == LS_OK) {
    check_node(root, true);
  } else {
    check_error(&error);
  }
  ls_arena_destroy(&arena);
  return 0;
}
