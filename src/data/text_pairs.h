/* Pairs of texts whose vectors are to be near, as marked ids: those of the text that asks, of its
 * answer and of wrong answers, one behind the other as one document; the first id of each text but
 * the first is trained, which is how they are told apart (ls_packing_make_texts).
 *
 *   const ls_text_pair_options options = {.tokenizer = tokenizer, .wrong = 1};
 *   LS_TRY(ls_text_pairs_encode(&options, json, &ids, error));
 *
 * {"anchor": "...", "positive": "..."}, or "query" in place of "anchor"; with wrong answers also
 * {"negative": "..."} or a list of as many. Thread-safe: no state. */
#ifndef LS_DATA_TEXT_PAIRS_H
#define LS_DATA_TEXT_PAIRS_H

#include <jansson.h>

#include "tokenizer/tokenizer.h"

typedef struct ls_text_pair_options {
  const ls_tokenizer *tokenizer;
  const char *asking, *answering; /* what stands before each text that asks, or answers; "" */
  int64_t wrong;                  /* wrong answers of each pair */
  int64_t room; /* ids of all texts of a pair: where there are more, each text keeps the beginning
                 * that its share has room for; 0: all are kept */
} ls_text_pair_options;

/* Of all that decides which ids there are, beside the tokenizer. */
uint64_t ls_text_pairs_fingerprint(const ls_text_pair_options *options);

/* Appends the marked ids of an object; LS_INPUT says which key is wrong and what was expected, and
 * *marked is as before. `error` may be NULL. */
LS_CHECKED ls_status ls_text_pairs_encode(const ls_text_pair_options *options, const json_t *json,
                                          ls_ids *marked, ls_error *error);

#endif
