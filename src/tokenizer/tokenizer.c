#include "tokenizer/tokenizer.h"

static int64_t encode_bytes(const ls_tokenizer *tokenizer, const void *text, int64_t bytes,
                            int32_t *ids) {
  (void)tokenizer;
  const uint8_t *from = text;
  for (int64_t i = 0; i < bytes; i++) ids[i] = from[i];
  return bytes;
}

static int decode_byte(const ls_tokenizer *tokenizer, int32_t id, char *piece) {
  (void)tokenizer;
  piece[0] = (char)(uint8_t)id;
  return 1;
}

const ls_tokenizer *ls_tokenizer_bytes(void) {
  static const ls_tokenizer bytes = {.name = "bytes",
                                     .vocabulary = 256,
                                     .end_of_text = -1,
                                     .encode = encode_bytes,
                                     .decode = decode_byte};
  return &bytes;
}
