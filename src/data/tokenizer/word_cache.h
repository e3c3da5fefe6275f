/* The words an encoder met lately, with their ids. Used by bpe.c alone; one thread at a time. */
#ifndef LS_DATA_TOKENIZER_WORD_CACHE_H
#define LS_DATA_TOKENIZER_WORD_CACHE_H

#include "data/tokenizer/token_buffer.h"

enum { LS_WORD_CACHE_BYTES = 24 }; /* longer words are not kept */

typedef struct ls_word_cache ls_word_cache;

ls_word_cache *ls_word_cache_create(void);
void ls_word_cache_free(ls_word_cache *cache);

/* Appends the ids of a word that is kept; false where it is not. `hash` is the word's. */
bool ls_word_cache_find(const ls_word_cache *cache, ls_span word, uint64_t hash, ls_ids *ids);

/* Keeps a word, in place of what was kept where its hash leads. */
void ls_word_cache_keep(ls_word_cache *cache, ls_span word, uint64_t hash, const int32_t *ids,
                        int64_t count);

#endif
