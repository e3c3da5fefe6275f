/* A corpus' texts as blocks for the tokenizer: whole lines of JSON lines, and plain text whole or,
 * where it is long, cut where the tokenizer says that it may be.
 *
 *   ls_text_blocks *blocks;
 *   ls_text_blocks_open(key, &files, tokenizer, threads, &blocks);
 *   LS_TRY(ls_text_blocks_next(blocks, &batch, error));   // batch.count 0: at the end
 *   ls_text_blocks_close(&blocks);
 *
 * The cuts depend on the text alone. Memory is bounded, but for the longest line. One thread. */
#ifndef LS_DATA_TEXT_BLOCKS_H
#define LS_DATA_TEXT_BLOCKS_H

#include "data/text_files.h"
#include "tokenizer/tokenizer.h"

enum {
  LS_BLOCK_BYTES = 1 << 20, /* plain text is cut above it, where it can be */
  LS_LINE_BYTES = 1 << 26,  /* the longest line */
};

typedef struct ls_text_block {
  char *text; /* in the batch's buffer; whoever reads the batch may change it */
  int64_t bytes;
  int file;
  int64_t line;     /* from 1; 0: plain text */
  bool first, last; /* of its document; both, of a line */
  bool too_long;    /* a line of more than LS_LINE_BYTES: its text is not here */
} ls_text_block;

/* Texts lie in `buffer`, and are valid until the next call. */
typedef struct ls_text_batch {
  const char *buffer;
  int64_t bytes; /* of the buffer, more than all blocks together */
  const ls_text_block *items;
  int count;
} ls_text_batch;

typedef struct ls_text_blocks ls_text_blocks;

/* Batches are large enough for so many threads. */
void ls_text_blocks_open(const char *key, const ls_text_files *files, const ls_tokenizer *tokenizer,
                         int threads, ls_text_blocks **blocks);

/* Some blocks more, none of them empty, blank lines left out; none: the end of all texts. Errors:
 * as ls_text_stream_read has, and LS_INPUT for a text of LS_LINE_BYTES without a place to cut. */
LS_CHECKED ls_status ls_text_blocks_next(ls_text_blocks *blocks, ls_text_batch *batch,
                                         ls_error *error);

/* Bytes read so far, as they lie on disk, and the fingerprint of all files read to their ends. */
int64_t ls_text_blocks_packed_bytes(const ls_text_blocks *blocks);
uint64_t ls_text_blocks_fingerprint(const ls_text_blocks *blocks);

void ls_text_blocks_close(ls_text_blocks **blocks);

#endif
