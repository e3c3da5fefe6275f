/* The data of a run: the text's training part and its evaluation part, which share no token.
 *
 *   ls_dataset *dataset;
 *   LS_TRY(ls_dataset_open(arena, run, tokenizer, cache_folder, NULL, NULL, &dataset, error));
 *   ls_batch_fill(&dataset->training, step, first_row, rows, ids, labels);
 *   ls_dataset_close(dataset);
 *
 * The evaluation part is the text's tail (at least one sequence, where data.validation is above 0)
 * or files of its own, read in their order. Reading an open dataset is thread-safe. */
#ifndef LS_DATA_DATASET_H
#define LS_DATA_DATASET_H

#include "data/order.h"
#include "text/run_file.h"

typedef struct ls_dataset {
  ls_corpus text, validation; /* the latter only where it has files of its own */
  ls_order training;
  ls_order evaluation; /* .sequences 0: there is none */
  int64_t training_tokens, evaluation_tokens;
} ls_dataset;

/* Opens what run->data names. LS_INPUT where the text is shorter than one batch, a validation file
 * is a training file too, or as ls_corpus_open says. The dataset lives in the arena. */
LS_CHECKED ls_status ls_dataset_open(ls_arena *arena, const ls_run_file *run,
                                     const ls_tokenizer *tokenizer, const char *cache_folder,
                                     ls_corpus_progress *progress, void *context,
                                     ls_dataset **dataset, ls_error *error);

void ls_dataset_close(ls_dataset *dataset);

#endif
