/* Fuzz target of pairs of texts: the input is JSON. What is accepted is ids of which as many are
 * marked as the pair has texts but the first, none of them the first id; what is not is refused in
 * one line, and leaves nothing. */
#include <stdint.h>
#include <string.h>

#include "data/text_pairs.h"

#include "tokenizer/token_buffer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  const ls_text_pair_options options = {.tokenizer = ls_tokenizer_bytes(),
                                        .asking = "q",
                                        .answering = "",
                                        .wrong = (int64_t)(bytes % 3),
                                        .room = (int64_t)(bytes % 9)};
  json_t *json = json_loadb((const char *)data, bytes, JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL);
  ls_error error = {0};
  ls_ids ids = {0};
  const ls_status status = ls_text_pairs_encode(&options, json, &ids, &error);
  if (status == LS_OK) {
    int64_t marked = 0;
    for (int64_t i = 0; i < ids.count; i++) marked += ids.items[i] % 2;
    LS_ASSERT(marked == 1 + options.wrong && ids.items[0] % 2 == 0);
    LS_ASSERT(options.room < 2 + options.wrong || ids.count <= options.room);
  } else {
    LS_ASSERT(status == LS_INPUT && *error.text && !strchr(error.text, '\n') && ids.count == 0);
  }
  ls_ids_free(&ids);
  json_decref(json);
  return 0;
}
