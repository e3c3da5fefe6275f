/* Fuzz target of templates: the text up to the first NUL is the template, what follows the JSON of
 * its variables. What is read must render or be refused, within bounds; rendering twice gives the
 * same text. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "chat/jinja.h"
#include "text/json.h"
#include "text/quote.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check_error(const ls_error *error) {
  LS_ASSERT(error->status == LS_INPUT && error->text[0] && !strchr(error->text, '\n'));
}

static void check_text(const ls_jinja_text *rendered) {
  for (int s = 0; s < rendered->span_count; s++)
    LS_ASSERT(rendered->spans[s].begin <= rendered->spans[s].end &&
              rendered->spans[s].end <= rendered->bytes);
  for (size_t at = 0; at < rendered->bytes;) {
    const size_t length = ls_utf8_length(rendered->text + at, rendered->bytes - at);
    LS_ASSERT(length > 0);
    at += length;
  }
}

static json_t *variables_of(const char *text, size_t bytes) {
  json_t *root = NULL;
  if (ls_json_parse("fuzz", text, bytes, LS_JSON_LAST_KEY, &root, NULL) == LS_OK &&
      json_is_object(root))
    return root;
  json_decref(root);
  return json_pack("{s:[{s:s,s:s},{s:s,s:s}],s:s,s:b}", "messages", "role", "user", "content", "Hi",
                   "role", "assistant", "content", " a'\"\n", "bos_token", "<s>",
                   "add_generation_prompt", 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  const char *text = (const char *)data;
  const char *nul = bytes ? memchr(text, 0, bytes) : NULL;
  const size_t length = nul ? (size_t)(nul - text) : bytes;
  const ls_jinja_options options = {.steps = 20000, .bytes = 1 << 22, .now = 1};
  ls_arena *arena = ls_arena_create();
  ls_error error = {0};
  const ls_jinja *made;
  if (ls_jinja_read(arena, "fuzz", text, length, &made, &error) != LS_OK) {
    check_error(&error);
  } else {
    json_t *variables = variables_of(text + length + (nul != NULL), nul ? bytes - length - 1 : 0);
    ls_jinja_text first, again;
    const ls_status status = ls_jinja_render(arena, made, variables, &options, &first, &error);
    if (status != LS_OK) {
      check_error(&error);
    } else {
      check_text(&first);
      LS_ASSERT(ls_jinja_render(arena, made, variables, &options, &again, &error) == LS_OK);
      LS_ASSERT(first.bytes == again.bytes && memcmp(first.text, again.text, first.bytes) == 0);
    }
    json_decref(variables);
  }
  ls_arena_destroy(&arena);
  return 0;
}
