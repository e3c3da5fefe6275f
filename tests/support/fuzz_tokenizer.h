/* What every fuzz target of a tokenizer's reader does with what was read.
 *
 *   ls_token_pipeline *pipeline = ls_token_pipeline_create();
 *   ls_status status = ls_token_pipeline_read_json(pipeline, "fuzz", text, bytes, &error);
 *   fuzz_pipeline_end(pipeline, status, &error, data, bytes);
 *
 * One thread. */
#ifndef LS_TEST_FUZZ_TOKENIZER_H
#define LS_TEST_FUZZ_TOKENIZER_H

#include "support/fuzz_folder.h"
#include "tokenizer/token_pipeline.h"

/* Ids must be of the vocabulary, and have a text. What a text may be refused for is its length. */
static inline void fuzz_tokenizer_text(const ls_tokenizer *tokenizer, const void *text,
                                       size_t bytes) {
  ls_error error = {0};
  ls_ids ids = {0};
  char *again;
  size_t length;
  const ls_status status =
      ls_tokenizer_append(tokenizer, text, (int64_t)bytes, LS_TOKENS_SPECIAL, &ids, &error);
  if (status != LS_OK) fuzz_check_refusal(status, &error);
  LS_ASSERT(status == LS_OK || strstr(error.text, "match limit") ||
            strstr(error.text, "replacements"));
  for (int64_t i = 0; i < ids.count; i++)
    LS_ASSERT(ids.items[i] >= 0 && ids.items[i] < tokenizer->vocabulary);
  if (ls_tokenizer_text(tokenizer, ids.items, ids.count, LS_TOKENS_SPECIAL, &again, &length,
                        &error) == LS_OK)
    free(again);
  ls_ids_free(&ids);
}

/* A text with what readers stumble over, and the input itself. */
static inline void fuzz_tokenizer_use(const ls_tokenizer *tokenizer, const uint8_t *data,
                                      size_t bytes) {
  static const char nasty[] = "A b\n  c\xcc\x81 \xe6\x97\xa5 12345 don't \xff<0x41>\xe2\x96\x81.";
  fuzz_tokenizer_text(tokenizer, nasty, sizeof nasty - 1);
  fuzz_tokenizer_text(tokenizer, data, bytes < 200 ? bytes : 200);
}

/* Finishes, uses and destroys a pipeline whose reader said `status`. */
static inline void fuzz_pipeline_end(ls_token_pipeline *pipeline, ls_status status, ls_error *error,
                                     const uint8_t *data, size_t bytes) {
  if (status == LS_OK) status = ls_token_pipeline_finish(pipeline, error);
  if (status == LS_OK)
    fuzz_tokenizer_use(&pipeline->tokenizer, data, bytes);
  else
    fuzz_check_refusal(status, error);
  ls_token_pipeline_destroy(&pipeline);
}

#endif
