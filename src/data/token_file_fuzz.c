/* Fuzz target of token files. The first byte says which checksums are made right first, so that
 * what lies behind them is reached: 1 of the blocks, 2 of the list of them, 4 of the header. What
 * is accepted can be read to its last token, each of a document. */
#include <stddef.h>

#include "base/random.h"
#include "data/fingerprint.h"
#include "data/token_file.h"
#include "support/fuzz_folder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void make_right(char *file, size_t bytes, int which) {
  ls_token_header header;
  if (bytes < sizeof header) return;
  memcpy(&header, file, sizeof header);
  const bool small = header.count > 0 && header.count < 1 << 20 && header.documents > 0 &&
                     header.documents < 1 << 20 && header.width <= 4;
  const int64_t body = small ? ls_token_body_bytes(&header) : 0;
  const size_t blocks = small ? (size_t)ls_token_blocks(&header) : 0;
  char *sums = file + sizeof header + body;
  if (small && sizeof header + (size_t)body + blocks * sizeof(uint64_t) == bytes) {
    for (size_t b = 0; b < blocks && (which & 1); b++) {
      const size_t first = b * LS_TOKEN_BLOCK_BYTES, left = (size_t)body - first;
      const uint64_t sum = ls_token_block_checksum(
          file + sizeof header + first, left < LS_TOKEN_BLOCK_BYTES ? left : LS_TOKEN_BLOCK_BYTES);
      memcpy(sums + b * sizeof sum, &sum, sizeof sum);
    }
    if (which & 2)
      header.checksums =
          ls_fingerprint_bytes(ls_random_stream("sums"), sums, blocks * sizeof(uint64_t));
  }
  if (which & 4) header.checksum = ls_token_header_checksum(&header);
  memcpy(file, &header, sizeof header);
}

static void read_all(const ls_corpus *corpus) {
  ls_error error = {0};
  LS_ASSERT(corpus->count > 0 && corpus->document_count > 0);
  int32_t *ids = malloc((size_t)corpus->count * sizeof *ids);
  LS_ASSERT(ids);
  const ls_status status = ls_corpus_copy(corpus, 0, corpus->count, ids, &error);
  LS_ASSERT(status == LS_OK || (status == LS_FAILED && !strchr(error.text, '\n')));
  free(ids);
  const int64_t last = ls_corpus_document(corpus, corpus->count - 1);
  LS_ASSERT(ls_corpus_document(corpus, 0) == 0 && last == corpus->document_count - 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  if (bytes == 0) return 0;
  char *file = malloc(bytes);
  LS_ASSERT(file);
  memcpy(file, data + 1, bytes - 1);
  make_right(file, bytes - 1, data[0]);
  fuzz_folder_write("texts.tokens", file, bytes - 1);
  free(file);
  ls_error error = {0};
  ls_arena *arena = ls_arena_create();
  const char *path = ls_arena_printf(arena, "%s/texts.tokens", fuzz_folder());
  ls_token_header about;
  const ls_status whole = ls_token_file_about(path, &about, &error);
  LS_ASSERT(whole == LS_OK || (whole == LS_FAILED && !strchr(error.text, '\n')));
  ls_corpus corpus = {0};
  const ls_status status = ls_token_file_view(arena, path, &corpus, &error);
  LS_ASSERT(status == LS_OK || whole == LS_FAILED);
  if (status == LS_OK) {
    read_all(&corpus);
    ls_corpus_close(&corpus);
  } else {
    LS_ASSERT(status == LS_FAILED && error.text[0] && !strchr(error.text, '\n'));
  }
  ls_arena_destroy(&arena);
  return 0;
}
