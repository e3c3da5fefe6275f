/* Fuzz target of what a teacher has said: the input is the file. It is asked for sequences of token
 * 0 at position 0, whose checksum is 0 or is made right, so that rows are reached. What is read
 * ascends, is of the vocabulary, and is at most as likely as the likeliest. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "data/top_logits.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void read_rows(const ls_top_logits *opened) {
  const ls_top_about *about = &opened->about;
  const int64_t sequences = about->training + about->evaluation;
  const int64_t count = about->seq_len * about->top;
  ls_arena *arena = ls_arena_create();
  int32_t *tokens = LS_NEW_ARRAY(arena, int32_t, about->seq_len);
  int32_t *ids = LS_NEW_ARRAY(arena, int32_t, count);
  float *below = LS_NEW_ARRAY(arena, float, count);
  for (int64_t s = 0; s < sequences; s++) {
    ls_error error = {0};
    const ls_status status = ls_top_logits_read(opened, s, tokens, tokens, ids, below, &error);
    LS_ASSERT(status == LS_OK || (status == LS_INPUT && !strchr(error.text, '\n')));
    for (int64_t i = 0; i < count && status == LS_OK; i++) {
      LS_ASSERT(ids[i] >= 0 && ids[i] < about->vocabulary && below[i] <= 0);
      LS_ASSERT(i % about->top == 0 || ids[i] > ids[i - 1]);
    }
  }
  ls_arena_destroy(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  ls_arena *arena = ls_arena_create();
  ls_top_logits opened;
  ls_error error = {0};
  if (ls_top_logits_parse(arena, "told.safetensors", data, bytes, &opened, &error) == LS_OK) {
    (void)ls_top_logits_glance(&opened);
    read_rows(&opened);
  } else {
    LS_ASSERT(*error.text && !strchr(error.text, '\n'));
  }
  ls_arena_destroy(&arena);
  return 0;
}
