/* Tokenizers: bytes of text to ids and back, as the files of a model have them.
 *
 *   const ls_tokenizer *tokenizer;
 *   LS_TRY(ls_tokenizer_open("path/to/model", NULL, &tokenizer, error));
 *   ls_ids ids = {0};
 *   LS_TRY(ls_tokenizer_append(tokenizer, text, bytes, 0, &ids, error));
 *   LS_TRY(ls_tokenizer_text(tokenizer, ids.items, ids.count, 0, &text, &bytes, error));
 *   ls_ids_free(&ids);
 *   ls_tokenizer_close(&tokenizer);
 *
 * A tokenizer is constant once made; encoding keeps what it works with in a pool inside:
 * thread-safe, but for closing. */
#ifndef LS_TOKENIZER_TOKENIZER_H
#define LS_TOKENIZER_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "lockstep/status.h"

typedef struct ls_tokenizer ls_tokenizer;
struct ls_tokenizer {
  const char *name;    /* tells tokenizers apart in the names of cached files: "bytes" */
  int32_t vocabulary;  /* ids are below it */
  int32_t end_of_text; /* -1: there is none */
  /* Of tokenizers without a pipeline: at most one id a byte; the bytes of an id, at most 256. */
  int64_t (*encode)(const ls_tokenizer *tokenizer, const void *text, int64_t bytes, int32_t *ids);
  int (*decode)(const ls_tokenizer *tokenizer, int32_t id, char *piece);
  struct ls_token_pipeline *pipeline; /* NULL: encode and decode are all there is */
};

/* A growing list of ids; all zero is empty. */
typedef struct ls_ids {
  int32_t *items;
  int64_t count, capacity;
} ls_ids;
void ls_ids_free(ls_ids *ids);

/* One id a byte, and no end of text. */
const ls_tokenizer *ls_tokenizer_bytes(void);

typedef struct ls_tokenizer_options {
  const char *pattern; /* of a *.tiktoken file whose name is not known; NULL: by its name */
} ls_tokenizer_options;

/* Opens a folder (tokenizer.json, tokenizer.model, vocab.json with merges.txt, or a *.tiktoken) or
 * one such file. `options` may be NULL. LS_INPUT names the file and what is wrong or not supported
 * in it. Close with ls_tokenizer_close. */
LS_CHECKED ls_status ls_tokenizer_open(const char *path, const ls_tokenizer_options *options,
                                       const ls_tokenizer **tokenizer, ls_error *error);

/* Frees what was opened; the byte tokenizer stays. */
void ls_tokenizer_close(const ls_tokenizer **tokenizer);

enum {
  LS_TOKENS_SPECIAL = 1,  /* as a model is given a text: with the file's beginning and end tokens */
  LS_TOKENS_CONTINUE = 2, /* the text goes on where an earlier one ended: nothing before it */
  LS_TOKENS_MORE = 4,     /* another text goes on where this one ends: nothing behind it */
};

/* Appends the ids of a text. Bytes that are no UTF-8 are read as U+FFFD. LS_INPUT where a pattern
 * of the tokenizer reaches its match limit. */
LS_CHECKED ls_status ls_tokenizer_append(const ls_tokenizer *tokenizer, const void *text,
                                         int64_t bytes, unsigned flags, ls_ids *ids,
                                         ls_error *error);

/* The most of the text's beginning, short of all, after which it may be cut in two so that the ids
 * of both (the second with
 * LS_TOKENS_CONTINUE) are those of the whole; 0 where no such place is
 * known. Places are line ends and single spaces; each is tried on the text around it. */
int64_t ls_tokenizer_cut(const ls_tokenizer *tokenizer, const void *text, int64_t bytes);

/* The text of ids as the tokenizer's own library decodes them, in malloc'ed memory that the caller
 * frees; special tokens are left out, but for LS_TOKENS_SPECIAL. LS_INPUT for an id that there is
 * not. */
LS_CHECKED ls_status ls_tokenizer_text(const ls_tokenizer *tokenizer, const int32_t *ids,
                                       int64_t count, unsigned flags, char **text, size_t *bytes,
                                       ls_error *error);

/* The bytes of one id inside a text, which need not be whole characters; they live as long as the
 * tokenizer, or in `small`. NULL for an id that there is not. */
const char *ls_tokenizer_piece(const ls_tokenizer *tokenizer, int32_t id, char small[256],
                               size_t *bytes);

/* The id that stands before each text of a corpus, as end_of_text behind it; and the one that
 * stands in the place of what a model is asked for. -1: there is none. */
int32_t ls_tokenizer_begin(const ls_tokenizer *tokenizer);
int32_t ls_tokenizer_mask(const ls_tokenizer *tokenizer);

/* Whether the id is one of the special tokens, which are no text. */
bool ls_tokenizer_is_special(const ls_tokenizer *tokenizer, int32_t id);

/* Writes the tokenizer's files into a folder as transformers' AutoTokenizer reads them: those it
 * was opened from, or, for bytes, byte-level BPE without merges, an id being its byte. */
LS_CHECKED ls_status ls_tokenizer_write(const ls_tokenizer *tokenizer, const char *folder,
                                        ls_error *error);

/* The tokenizer of a model's folder: bytes where it has none of its own. Close it. */
LS_CHECKED ls_status ls_tokenizer_of(const char *folder, const ls_tokenizer **tokenizer,
                                     ls_error *error);

#endif
