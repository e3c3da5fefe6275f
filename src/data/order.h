/* Which tokens are in which row of which batch: a function of (seed, epoch, index) alone.
 *
 *   ls_order order = {.mix = &mix, .mix_count = 1, .seq_len = T, .batch = B, .shuffled = true};
 *   LS_TRY(ls_order_prepare(&order, error));
 *   LS_TRY(ls_batch_fill(&order, step, first_row, rows, &batch, error));
 *
 * Sequence i of a part of the text covers its tokens [i T, i T + T + 1): T inputs and, shifted by
 * one, T labels. What is left at the end is dropped. A shuffled order goes through all sequences
 * of a part once an epoch, each epoch in another permutation; row r of step s is sample
 * s x batch + r of the endless row of epochs. So every layout of ranks sees the same batches, and
 * resuming needs the step's number only.
 *
 * Of chats a sequence is a row of a packing: whole examples, and behind them nothing that is asked.
 * So it is of texts with a class, which is the label of each text's last token.
 *
 * Of several parts each sample belongs to one. Samples come in periods, in each of which a part has
 * as many as its share says, in an order drawn for that period; a part's samples go through its own
 * epochs. Thread-safe: values. */
#ifndef LS_DATA_ORDER_H
#define LS_DATA_ORDER_H

#include <stdbool.h>

#include "data/packing.h"
#include "data/top_logits.h"

enum { LS_NO_LABEL = -1, LS_MIX_PERIOD = 10000 };

/* A part among others. */
typedef struct ls_mix {
  ls_text_part part;
  const ls_packing *packing; /* of chats, whose sequences are its rows; NULL: texts */
  const double *reference;   /* [2 x pieces] of pairs: log-probabilities of both answers; or NULL */
  double weight;             /* above 0, in any unit; of one part alone it means nothing */
  int64_t sequences;         /* ls_order_prepare fills in the rest */
  int64_t share;             /* samples of a period ... */
  int64_t before;            /* ... and those of the parts before it */
} ls_mix;

/* What is masked of each row, and asked for: a function of the step and the token's place in it. */
typedef struct ls_masking {
  double probability;                  /* of each token that is not special */
  double mask_replace, random_replace; /* what then stands there; else the token itself */
  int32_t mask, vocabulary;            /* the mask's id; random ids are below */
  const bool *special;                 /* [vocabulary] ids that are never asked for */
  uint64_t seed;
} ls_masking;

/* What of a text its vector is made of. */
typedef enum ls_text_pooling {
  LS_TEXT_LAST = 0, /* its last token */
  LS_TEXT_FIRST,
  LS_TEXT_MEAN /* all of them */
} ls_text_pooling;

/* Pairs of texts: how many each sequence has at most, and of how many texts. Labels are those of
 * graph/op_table_texts.c. */
typedef struct ls_text_form {
  int64_t pairs, texts;
  ls_text_pooling pooling;
} ls_text_form;

/* Of a text that is number `number` of the step the label of a token, which is its first, or its
 * last, or in between. */
int32_t ls_text_label(const ls_text_form *form, int64_t number, bool first, bool last);

typedef struct ls_order {
  ls_mix *mix;
  int mix_count;
  int64_t sequences;         /* of all parts; 0: there is nothing */
  int64_t seq_len;           /* T */
  int64_t batch;             /* rows of a step over the whole mesh */
  int64_t period;            /* samples; all shares together */
  bool shuffled;             /* else in the texts' order, once */
  const ls_masking *masking; /* labels are of what it masks; NULL: of the next token */
  const ls_text_form *texts; /* of pairs of texts; NULL: there are none */
  bool typed; /* of texts with a class: tokens behind a text's first `separator` are of type 1 */
  int32_t separator;
  int64_t set_words;         /* of texts with several classes: of a set of them; 0: none is made */
  const ls_top_logits *told; /* what a teacher has said of the sequences; NULL: nothing */
  int64_t told_first;        /* the file's number of this order's first one */
  bool masked;               /* positions begin anew and labels end with each document */
  uint64_t seed;
} ls_order;

/* Where a sample is. */
typedef struct ls_sample {
  int part; /* -1: past the end of an order that is not shuffled */
  int64_t sequence;
} ls_sample;

/* Rows of a batch, [rows, T] each. */
typedef struct ls_batch {
  int32_t *ids, *labels;
  int32_t *positions; /* may be NULL */
  double *reference;  /* of pairs: a reference's log-probability of each label; may be NULL */
  int32_t *types;     /* of encoders: which of two sentences each is of; may be NULL */
  /* [rows, T, k] of a teacher: the ids that it finds likeliest, those below 0 none, and how far
   * below the likeliest one's logit each one's is; may be NULL */
  int32_t *top_ids;
  float *top_below;
  int32_t *sets; /* [rows, T, words] of several labels (ls_set_words); may be NULL */
} ls_batch;

/* Whole sequences in so many tokens. */
int64_t ls_order_count(int64_t tokens, int64_t seq_len);

/* Counts sequences and turns weights into shares. LS_INPUT, naming the part by its number from 1,
 * where a share is less than one of LS_MIX_PERIOD, or a part with a weight has no sequence. */
LS_CHECKED ls_status ls_order_prepare(ls_order *order, ls_error *error);

ls_sample ls_order_sample(const ls_order *order, int64_t sample);

/* Batches that hold all sequences once; the last may have empty rows. */
int64_t ls_order_batches(const ls_order *order);

/* Passes over as many sequences as there are after so many steps. */
double ls_order_epoch(const ls_order *order, int64_t steps);

/* Of an order that a teacher tells of: whether its first and its last sequence are those of the
 * file. LS_INPUT: they are not. */
LS_CHECKED ls_status ls_order_check_told(ls_arena *arena, const ls_order *order, ls_error *error);

/* Rows [first_row, first_row + rows) of a step's batch. An empty row has ids 0 and no labels
 * (LS_NO_LABEL), so that it counts for nothing. Errors: as ls_corpus_copy has. */
LS_CHECKED ls_status ls_batch_fill(const ls_order *order, int64_t step, int64_t first_row,
                                   int64_t rows, const ls_batch *batch, ls_error *error);

#endif
