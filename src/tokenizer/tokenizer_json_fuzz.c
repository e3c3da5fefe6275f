/* Fuzz target of the reader of tokenizer.json: what is accepted must encode and decode texts. */
#include <stdlib.h>
#include <string.h>

#include "tokenizer/token_pipeline.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Ids must be of the vocabulary, and have a text. */
static void use(const ls_token_pipeline *pipeline, const void *text, size_t bytes) {
  ls_error error = {0};
  ls_ids ids = {0};
  char *again;
  size_t length;
  const ls_tokenizer *tokenizer = &pipeline->tokenizer;
  const ls_status status =
      ls_tokenizer_append(tokenizer, text, (int64_t)bytes, LS_TOKENS_SPECIAL, &ids, &error);
  LS_ASSERT(status == LS_OK || (status == LS_INPUT && (strstr(error.text, "match limit") ||
                                                       strstr(error.text, "replacements"))));
  for (int64_t i = 0; i < ids.count; i++) {
    LS_ASSERT(ids.items[i] >= 0 && ids.items[i] < tokenizer->vocabulary);
  }
  if (ls_tokenizer_text(tokenizer, ids.items, ids.count, LS_TOKENS_SPECIAL, &again, &length,
                        &error) == LS_OK) {
    free(again);
  }
  ls_ids_free(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  static const char nasty[] = "A b\n  c\xcc\x81 \xe6\x97\xa5 12345 don't \xff<0x41>\xe2\x96\x81.";
  ls_error error = {0};
  const char *text = (const char *)data;
  ls_token_pipeline *pipeline = ls_token_pipeline_create();
  ls_status status = ls_token_pipeline_read_json(pipeline, "fuzz", text, bytes, &error);
  if (status == LS_OK) status = ls_token_pipeline_finish(pipeline, &error);
  if (status == LS_OK) {
    use(pipeline, nasty, sizeof nasty - 1);
    use(pipeline, data, bytes < 200 ? bytes : 200);
  } else {
    LS_ASSERT(status == LS_INPUT && error.text[0] && !strchr(error.text, '\n'));
  }
  ls_token_pipeline_destroy(&pipeline);
  return 0;
}
