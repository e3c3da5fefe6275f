/* Fuzz target of tokenizer_config.json beside a tokenizer.model, to which it adds first and last
 * tokens: whatever it says, ids are of the vocabulary. */
#include "support/fuzz_folder.h"
#include "tokenizer/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void write_model(void) {
  static const char path[] = "tests/data/tokenizers/sentencepiece-bpe/tokenizer.model";
  ls_error error = {0};
  ls_map map;
  LS_ASSERT(ls_file_map(path, &map, &error) == LS_OK); /* runs in the root of the tree */
  fuzz_folder_write("tokenizer.model", map.data, map.bytes);
  ls_file_unmap(&map);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  static bool written;
  if (!written) write_model();
  written = true;
  ls_error error = {0};
  const ls_tokenizer *tokenizer;
  fuzz_folder_write("tokenizer_config.json", data, bytes);
  const ls_status status = ls_tokenizer_open(fuzz_folder(), NULL, &tokenizer, &error);
  if (status == LS_OK) {
    ls_ids ids = {0};
    LS_ASSERT(ls_tokenizer_append(tokenizer, "a b", 3, LS_TOKENS_SPECIAL, &ids, &error) == LS_OK);
    LS_ASSERT(ids.count > 0 && tokenizer->end_of_text < tokenizer->vocabulary);
    for (int64_t i = 0; i < ids.count; i++)
      LS_ASSERT(ids.items[i] >= 0 && ids.items[i] < tokenizer->vocabulary);
    ls_ids_free(&ids);
    ls_tokenizer_close(&tokenizer);
  } else {
    fuzz_check_refusal(status, &error);
  }
  return 0;
}
