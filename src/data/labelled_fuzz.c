/* Fuzz target of texts with a class: the input is JSON. What is accepted is a text's ids and behind
 * them one class of those there are; what is not is refused in one line, and leaves nothing. */
#include <stdint.h>
#include <string.h>

#include "data/labelled.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  static const char *const names[] = {"bad", "fair", "good"};
  static const ls_class_name sorted[] = {{"bad", 0}, {"fair", 1}, {"good", 2}};
  const ls_labelled labelled = {.tokenizer = ls_tokenizer_bytes(),
                                .label_key = "label",
                                .names = names,
                                .count = 3,
                                .pair_ends = (int)(bytes % 3),
                                .sorted = sorted};
  json_t *json = json_loadb((const char *)data, bytes, JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL);
  ls_error error = {0};
  ls_ids ids = {0};
  const ls_status status = ls_labelled_encode(&labelled, json, "text", &ids, &error);
  if (status == LS_OK) {
    LS_ASSERT(ids.count >= 2 && ids.items[ids.count - 1] % 2 == 1);
    LS_ASSERT(ids.items[ids.count - 1] / 2 < labelled.count);
    for (int64_t i = 0; i + 1 < ids.count; i++) LS_ASSERT(ids.items[i] % 2 == 0);
  } else {
    LS_ASSERT(status == LS_INPUT && *error.text && !strchr(error.text, '\n') && ids.count == 0);
  }
  ls_ids_free(&ids);
  json_decref(json);
  return 0;
}
