/* Training of byte-level BPE: of all pairs of neighbours in the words the most frequent becomes a
 * piece, and so on, until there are as many pieces as asked for (Sennrich et al. 2016, 3.2).
 *
 *   ls_bpe_trained trained;
 *   LS_TRY(ls_bpe_train(arena, counts, &options, &trained, error));
 *   LS_TRY(ls_bpe_trained_write(&trained, "tok", error));
 *
 * Gives the merges that Hugging Face's BpeTrainer gives for ByteLevel's alphabet: pieces are the
 * special tokens, the 256 characters by code point, then merges; of equal counts the pair with the
 * lower ids goes first. One thread at a time. */
#ifndef LS_TOKENIZER_BPE_TRAIN_H
#define LS_TOKENIZER_BPE_TRAIN_H

#include "tokenizer/vocabulary.h"
#include "tokenizer/word_counts.h"

typedef struct ls_bpe_train_options {
  int64_t pieces;             /* special tokens and bytes among them */
  int64_t least_count;        /* a pair that is there fewer times is not merged */
  const char *const *special; /* [special_count], texts of valid UTF-8 */
  int special_count;
  void (*progress)(void *context, int64_t done, int64_t all); /* pieces; may be NULL */
  void *context;
} ls_bpe_train_options;

typedef struct ls_bpe_rule {
  int32_t left, right, made;
} ls_bpe_rule;

typedef struct ls_bpe_trained {
  const ls_vocabulary *vocabulary; /* in the alphabet's characters */
  const ls_bpe_rule *rules;        /* in order */
  int rule_count;
  int special_count; /* ids below it are special tokens */
} ls_bpe_trained;

/* The LS_INPUT that training would give for its options, before any text is read. */
LS_CHECKED ls_status ls_bpe_train_check(const ls_bpe_train_options *options, ls_error *error);

/* The result lives in the arena. There are fewer pieces where the words give no more. LS_INPUT for
 * fewer pieces than bytes and special tokens, more than LS_VOCABULARY_MOST, special tokens that are
 * empty, no UTF-8, or given twice, and different words of 2^31 bytes or more. */
LS_CHECKED ls_status ls_bpe_train(ls_arena *arena, const ls_word_counts *counts,
                                  const ls_bpe_train_options *options, ls_bpe_trained *trained,
                                  ls_error *error);

/* Writes tokenizer.json and tokenizer_config.json into a folder that must be new or empty, all or
 * nothing. The first special token is the end of text. */
LS_CHECKED ls_status ls_bpe_trained_write(const ls_bpe_trained *trained, const char *folder,
                                          ls_error *error);

#endif
