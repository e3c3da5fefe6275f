/* Fuzz target of vocab.json, merges.txt and the tokenizer_config.json beside them: what is accepted
 * must encode and decode texts. */
#include "support/fuzz_folder.h"
#include "tokenizer/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void use(const ls_tokenizer *tokenizer, const void *text, size_t bytes) {
  ls_error error = {0};
  ls_ids ids = {0};
  char *again;
  size_t length;
  const ls_status status =
      ls_tokenizer_append(tokenizer, text, (int64_t)bytes, LS_TOKENS_SPECIAL, &ids, &error);
  if (status != LS_OK) fuzz_check_refusal(status, &error);
  for (int64_t i = 0; i < ids.count; i++)
    LS_ASSERT(ids.items[i] >= 0 && ids.items[i] < tokenizer->vocabulary);
  if (ls_tokenizer_text(tokenizer, ids.items, ids.count, LS_TOKENS_SPECIAL, &again, &length,
                        &error) == LS_OK)
    free(again);
  ls_ids_free(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  static const char *const names[] = {"vocab.json", "merges.txt", "tokenizer_config.json"};
  static const char nasty[] = "A b\n  c\xcc\x81 \xe6\x97\xa5 12345 don't \xff<0x41>\xe2\x96\x81.";
  ls_error error = {0};
  const ls_tokenizer *tokenizer;
  fuzz_folder_fill(names, 3, data, bytes);
  const ls_status status = ls_tokenizer_open(fuzz_folder(), NULL, &tokenizer, &error);
  if (status == LS_OK) {
    LS_ASSERT(tokenizer->end_of_text >= -1 && tokenizer->end_of_text < tokenizer->vocabulary);
    use(tokenizer, nasty, sizeof nasty - 1);
    use(tokenizer, data, bytes < 200 ? bytes : 200);
    ls_tokenizer_close(&tokenizer);
  } else {
    fuzz_check_refusal(status, &error);
  }
  return 0;
}
