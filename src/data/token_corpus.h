/* Token files as a corpus, without their texts: what data.text=tokens/ opens. Private to corpus.c.
 *
 *   bool tokens;
 *   LS_TRY(ls_token_corpus_asked(options, &files, &tokens, error));
 *   if (tokens) return ls_token_corpus_open(arena, options, &files, corpus, error);
 *
 * Ids, documents and fingerprint are those of the corpus of all their texts in that order.
 * Thread-safe: no state. */
#ifndef LS_DATA_TOKEN_CORPUS_H
#define LS_DATA_TOKEN_CORPUS_H

#include "data/corpus.h"

/* Whether these are token files. LS_INPUT where they are some of them, or where a field of JSON
 * lines is asked of one. */
LS_CHECKED ls_status ls_token_corpus_asked(const ls_corpus_options *options,
                                           const ls_text_files *files, bool *tokens,
                                           ls_error *error);

/* LS_INPUT where one was made with another tokenizer; LS_FAILED where one is damaged. */
LS_CHECKED ls_status ls_token_corpus_open(ls_arena *arena, const ls_corpus_options *options,
                                          const ls_text_files *files, ls_corpus *corpus,
                                          ls_error *error);

#endif
