#include "checkpoint/sentence_folder.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

/* Takes `json`. */
static ls_status put(ls_arena *arena, const char *folder, const char *name, json_t *json,
                     int *files, ls_error *error) {
  char *text = json ? json_dumps(json, JSON_INDENT(2)) : NULL;
  if (!text) ls_panic("no memory for %s", name);
  const char *lines = ls_arena_printf(arena, "%s\n", text);
  free(text);
  json_decref(json);
  ++*files;
  return ls_file_write(ls_arena_printf(arena, "%s/%s", folder, name), lines, strlen(lines), error);
}

static json_t *module_of(int number, const char *path, const char *type) {
  char name[12];
  snprintf(name, sizeof name, "%d", number);
  return json_pack("{s:i, s:s, s:s, s:s+}", "idx", number, "name", name, "path", path, "type",
                   "sentence_transformers.models.", type);
}

static json_t *pooling_of(const ls_model_config *config, const char *pooling) {
  return json_pack("{s:I, s:b, s:b, s:b, s:b, s:b, s:b, s:b}", "word_embedding_dimension",
                   (json_int_t)config->width, "pooling_mode_cls_token", strcmp(pooling, "cls") == 0,
                   "pooling_mode_mean_tokens", strcmp(pooling, "mean") == 0,
                   "pooling_mode_max_tokens", 0, "pooling_mode_mean_sqrt_len_tokens", 0,
                   "pooling_mode_weightedmean_tokens", 0, "pooling_mode_lasttoken",
                   strcmp(pooling, "last") == 0, "include_prompt", 1);
}

ls_status ls_sentence_folder_write(ls_arena *arena, const ls_model_config *config,
                                   const char *folder, int *files, ls_error *error) {
  ls_text_vectors told;
  if (!config->vectors || !ls_model_text_vectors(arena, config, &told)) return LS_OK;
  LS_TRY(ls_directory_make(ls_arena_printf(arena, "%s/1_Pooling", folder), error));
  LS_TRY(
      put(arena, folder, "1_Pooling/config.json", pooling_of(config, told.pooling), files, error));
  LS_TRY(
      put(arena, folder, "modules.json",
          json_pack("[o, o, o]", module_of(0, "", "Transformer"),
                    module_of(1, "1_Pooling", "Pooling"), module_of(2, "2_Normalize", "Normalize")),
          files, error));
  LS_TRY(
      put(arena, folder, "sentence_bert_config.json",
          json_pack("{s:I, s:b}", "max_seq_length", (json_int_t)told.longest, "do_lower_case", 0),
          files, error));
  return put(
      arena, folder, "config_sentence_transformers.json",
      json_pack("{s:{s:s, s:s}, s:n, s:s}", "prompts", "query", told.query_prompt, "document",
                told.answer_prompt, "default_prompt_name", "similarity_fn_name", "cosine"),
      files, error);
}
