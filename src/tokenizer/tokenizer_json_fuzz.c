/* Fuzz target of the reader of tokenizer.json: what is accepted must encode and decode texts. */
#include "support/fuzz_tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  ls_error error = {0};
  ls_token_pipeline *pipeline = ls_token_pipeline_create();
  const ls_status status =
      ls_token_pipeline_read_json(pipeline, "fuzz", (const char *)data, bytes, &error);
  fuzz_pipeline_end(pipeline, status, &error, data, bytes);
  return 0;
}
