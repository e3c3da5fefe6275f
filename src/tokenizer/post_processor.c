/* What is put before and behind a text's ids: the "post_processor" of tokenizer.json. */
#include <string.h>

#include "text/quote.h"
#include "tokenizer/token_pipeline.h"

enum { DEEPEST = 8 }; /* Sequences in Sequences */

typedef LS_LIST(int32_t) id_list;

/* The ids that "special_tokens" gives for a name. */
static ls_status append_special(ls_token_pipeline *self, const ls_json_object *object,
                                const char *name, id_list *list, ls_error *error) {
  const json_t *token = json_object_get(json_object_get(object->json, "special_tokens"), name);
  const json_t *ids = json_object_get(token, "ids");
  char shown[LS_QUOTE_BYTES];
  ls_quote(shown, name, strlen(name));
  if (!json_is_array(ids)) {
    return ls_fail(error, LS_INPUT, "%s: \"special_tokens\": expected \"ids\" of \"%s\"",
                   object->where, shown);
  }
  for (size_t i = 0; i < json_array_size(ids); i++) {
    const json_t *id = json_array_get(ids, i);
    const json_int_t value = json_is_integer(id) ? json_integer_value(id) : -1;
    if (value < 0 || value >= self->vocabulary->count) {
      return ls_fail(error, LS_INPUT,
                     "%s: \"special_tokens\": \"%s\": expected ids of the vocabulary, below %d",
                     object->where, shown, self->vocabulary->count);
    }
    *LS_APPEND(self->arena, list) = (int32_t)value;
  }
  return LS_OK;
}

/* "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}, ...] */
static ls_status read_template(ls_token_pipeline *self, const ls_json_object *object,
                               ls_error *error) {
  const json_t *list = json_object_get(object->json, "single");
  id_list before = {0}, behind = {0};
  int texts = 0;
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *part = json_array_get(list, i);
    const json_t *name = json_object_get(json_object_get(part, "SpecialToken"), "id");
    if (json_is_string(name)) {
      LS_TRY(
          append_special(self, object, json_string_value(name), texts ? &behind : &before, error));
    } else if (json_is_object(json_object_get(part, "Sequence"))) {
      texts++;
    } else {
      return ls_fail(error, LS_INPUT,
                     "%s: \"single\": entry %zu: expected a SpecialToken or a Sequence",
                     object->where, i);
    }
  }
  if (texts != 1) {
    return ls_fail(error, LS_INPUT, "%s: \"single\": expected one Sequence, found %d",
                   object->where, texts);
  }
  /* A processor that comes later goes around what is there. */
  for (int i = 0; i < self->prefix.count; i++) {
    *LS_APPEND(self->arena, &before) = self->prefix.items[i];
  }
  self->prefix.count = 0;
  for (int i = 0; i < before.count; i++) {
    *LS_APPEND(self->arena, &self->prefix) = before.items[i];
  }
  for (int i = 0; i < behind.count; i++) {
    *LS_APPEND(self->arena, &self->suffix) = behind.items[i];
  }
  return LS_OK;
}

/* "cls": ["[CLS]", 101]; BertProcessing and RobertaProcessing put one before and one behind. */
static ls_status read_pair(ls_token_pipeline *self, const ls_json_object *object, const char *key,
                           id_list *list, ls_error *error) {
  const json_t *id = json_array_get(json_object_get(object->json, key), 1);
  const json_int_t value = json_is_integer(id) ? json_integer_value(id) : -1;
  if (value >= 0 && value < self->vocabulary->count) {
    *LS_APPEND(self->arena, list) = (int32_t)value;
    return LS_OK;
  }
  return ls_fail(error, LS_INPUT, "%s: \"%s\": expected a token and its id, below %d",
                 object->where, key, self->vocabulary->count);
}

static ls_status read_around(ls_token_pipeline *self, const ls_json_object *object,
                             ls_error *error) {
  id_list before = {0}, behind = {0};
  LS_TRY(read_pair(self, object, "cls", &before, error));
  LS_TRY(read_pair(self, object, "sep", &behind, error));
  for (int i = 0; i < self->prefix.count; i++)
    *LS_APPEND(self->arena, &before) = self->prefix.items[i];
  self->prefix.count = 0;
  for (int i = 0; i < before.count; i++) *LS_APPEND(self->arena, &self->prefix) = before.items[i];
  *LS_APPEND(self->arena, &self->suffix) = behind.items[0];
  return LS_OK;
}

static ls_status read_any(ls_token_pipeline *self, const char *where, const json_t *json, int depth,
                          ls_error *error) {
  ls_json_object object;
  const char *type;
  LS_TRY(ls_json_root(where, json, &object, error));
  LS_TRY(ls_json_string(&object, "type", &type, error));
  if (strcmp(type, "ByteLevel") == 0) return LS_OK; /* it trims offsets, which are not kept */
  if (strcmp(type, "TemplateProcessing") == 0) return read_template(self, &object, error);
  if (strcmp(type, "BertProcessing") == 0 || strcmp(type, "RobertaProcessing") == 0)
    return read_around(self, &object, error);
  if (strcmp(type, "Sequence") != 0) {
    char shown[LS_QUOTE_BYTES];
    return ls_fail(error, LS_INPUT,
                   "%s: the post-processor %s is not supported; ByteLevel, TemplateProcessing, "
                   "BertProcessing, RobertaProcessing and Sequence are",
                   where, ls_quote(shown, type, strlen(type)));
  }
  const json_t *list = json_object_get(json, "processors");
  if (!json_is_array(list) || depth == DEEPEST) {
    return ls_fail(error, LS_INPUT, "%s: \"processors\": expected a list, at most %d deep", where,
                   DEEPEST);
  }
  for (size_t i = 0; i < json_array_size(list); i++) {
    LS_TRY(read_any(self, where, json_array_get(list, i), depth + 1, error));
  }
  return LS_OK;
}

ls_status ls_post_processor_read(ls_token_pipeline *self, const char *path, const json_t *json,
                                 ls_error *error) {
  if (!json || json_is_null(json)) return LS_OK;
  return read_any(self, ls_arena_printf(self->arena, "%s: \"post_processor\"", path), json, 0,
                  error);
}
