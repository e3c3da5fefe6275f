/* Fuzz target of vocab.json, merges.txt and the tokenizer_config.json beside them: what is accepted
 * must encode and decode texts. */
#include "support/fuzz_tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  static const char *const names[] = {"vocab.json", "merges.txt", "tokenizer_config.json"};
  ls_error error = {0};
  const ls_tokenizer *tokenizer;
  fuzz_folder_fill(names, 3, data, bytes);
  const ls_status status = ls_tokenizer_open(fuzz_folder(), NULL, &tokenizer, &error);
  if (status == LS_OK) {
    LS_ASSERT(tokenizer->end_of_text >= -1 && tokenizer->end_of_text < tokenizer->vocabulary);
    fuzz_tokenizer_use(tokenizer, data, bytes);
    ls_tokenizer_close(&tokenizer);
  } else {
    fuzz_check_refusal(status, &error);
  }
  return 0;
}
