/* Fuzz target of the JSON reader: the first byte chooses the flags, the rest is the text. What is
 * accepted must survive a round trip, and every getter must give an answer about it. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "text/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check_error(const ls_error *error) {
  LS_ASSERT(error->status == LS_INPUT && error->text[0] && !strchr(error->text, '\n'));
}

static void ask_everything(ls_arena *arena, const json_t *root) {
  ls_error error = {0};
  ls_json_object object;
  if (ls_json_root("fuzz", root, &object, &error) != LS_OK) {
    check_error(&error);
    return;
  }
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)root, key, value) {
    int64_t whole = 0, *whole_list;
    double number, *number_list;
    bool truth;
    const char *text, **text_list;
    int count;
    ls_json_object child;
    int good = 0;
    good += ls_json_int(&object, key, &whole, &error) == LS_OK;
    good += ls_json_number(&object, key, &number, &error) == LS_OK;
    good += ls_json_bool(&object, key, &truth, &error) == LS_OK;
    good += ls_json_string(&object, key, &text, &error) == LS_OK;
    good += ls_json_child(arena, &object, key, &child, &error) == LS_OK;
    good += ls_json_ints(arena, &object, key, &whole_list, &count, &error) == LS_OK;
    good += ls_json_numbers(arena, &object, key, &number_list, &count, &error) == LS_OK;
    good += ls_json_strings(arena, &object, key, &text_list, &count, &error) == LS_OK;
    /* Only numbers, and arrays that are empty or of numbers, are of more than one type. */
    LS_ASSERT(good <= 3 && (good <= 1 || json_is_number(value) || json_is_array(value)));
    LS_ASSERT(good > 0 || ls_json_has(&object, key) == !json_is_null(value));
    check_error(&error);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  if (bytes == 0) return 0;
  ls_error error = {0};
  json_t *root;
  const ls_status status =
      ls_json_parse("fuzz", (const char *)data + 1, bytes - 1, data[0] & 3u, &root, &error);
  if (status != LS_OK) {
    LS_ASSERT(!root);
    check_error(&error);
    return 0;
  }
  ls_arena *arena = ls_arena_create();
  ask_everything(arena, root);
  ls_arena_destroy(&arena);
  char *text = json_dumps(root, JSON_ENCODE_ANY | JSON_COMPACT);
  json_t *again = NULL;
  LS_ASSERT(text && ls_json_parse("fuzz", text, strlen(text), 0, &again, &error) == LS_OK);
  LS_ASSERT(json_equal(root, again));
  free(text);
  json_decref(again);
  json_decref(root);
  return 0;
}
