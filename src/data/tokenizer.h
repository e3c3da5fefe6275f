/* Tokenizers: bytes of text to ids and back.
 *
 *   const ls_tokenizer *tokenizer = ls_tokenizer_bytes();
 *   int64_t count = ls_tokenizer_encode(tokenizer, text, bytes, ids);
 *   int length = ls_tokenizer_decode(tokenizer, ids[0], piece);
 *
 * There is the byte tokenizer now: 256 ids, an id is its byte, and there is no end-of-text. A
 * tokenizer is constant once made: thread-safe. */
#ifndef LS_DATA_TOKENIZER_H
#define LS_DATA_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

#include "lockstep/status.h"

enum { LS_TOKEN_BYTES = 256 }; /* the most bytes one id stands for */

typedef struct ls_tokenizer ls_tokenizer;
struct ls_tokenizer {
  const char *name;    /* tells tokenizers apart in the names of cached files: "bytes" */
  int32_t vocabulary;  /* ids are below it */
  int32_t end_of_text; /* -1: there is none */
  int64_t (*encode)(const ls_tokenizer *tokenizer, const void *text, int64_t bytes, int32_t *ids);
  int (*decode)(const ls_tokenizer *tokenizer, int32_t id, char piece[LS_TOKEN_BYTES]);
};

const ls_tokenizer *ls_tokenizer_bytes(void);

/* Ids of the text; `ids` has room for `bytes` of them. Returns their count. */
int64_t ls_tokenizer_encode(const ls_tokenizer *tokenizer, const void *text, int64_t bytes,
                            int32_t *ids);

/* The bytes of one id, which need not be whole characters; returns their count, 0 for an id that
 * is outside the vocabulary. */
int ls_tokenizer_decode(const ls_tokenizer *tokenizer, int32_t id, char piece[LS_TOKEN_BYTES]);

/* Writes tokenizer.json and tokenizer_config.json into a folder, as transformers' AutoTokenizer
 * reads them: byte-level BPE without merges, an id being its byte. */
LS_CHECKED ls_status ls_tokenizer_write(const ls_tokenizer *tokenizer, const char *folder,
                                        ls_error *error);

/* The tokenizer of a model's folder: bytes where it has no tokenizer of its own or the one written
 * above; LS_INPUT for others, which come with a later version. */
LS_CHECKED ls_status ls_tokenizer_of(const char *folder, const ls_tokenizer **tokenizer,
                                     ls_error *error);

#endif
