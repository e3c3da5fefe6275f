/* The data of a run: what is trained on and what is kept for evaluation, which share no token.
 *
 *   ls_dataset *dataset;
 *   LS_TRY(ls_dataset_open(arena, run, tokenizer, cache_folder, NULL, NULL, &dataset, error));
 *   LS_TRY(ls_batch_fill(&dataset->training, step, first_row, rows, &batch, error));
 *   ls_dataset_close(dataset);
 *
 * The evaluation part is documents drawn by their hash, where about as many tokens are drawn as are
 * wanted, or else the text's tail (at least one sequence, where data.validation is above 0), of
 * each corpus of a mix; or files of its own. It is read in the texts' order. Reading an open
 * dataset is thread-safe. */
#ifndef LS_DATA_DATASET_H
#define LS_DATA_DATASET_H

#include "data/order.h"
#include "text/run_file.h"

enum { LS_CORPUS_NAME_BYTES = 17 };

typedef struct ls_dataset {
  ls_corpus *texts; /* one, or as many as are mixed */
  int text_count;
  ls_corpus validation; /* only where it has files of its own */
  ls_order training;
  ls_order evaluation; /* .sequences 0: there is none */
  int64_t training_tokens, evaluation_tokens;
  int64_t documents; /* of all texts */
  int64_t skipped;   /* bad lines, validation's included */
  bool chats;        /* examples, packed whole */
  bool pairs;        /* of answers, which are chats too */
  bool text_pairs;   /* pairs of texts, which are examples packed whole too */
  bool labelled;     /* texts with a class, which are examples packed whole too */
  ls_chat *chat;     /* what they are rendered with */
  bool by_document;  /* evaluation is whole documents; else the tail, or files */
  /* Changes with any document, its order, the tokenizer, and what is kept for evaluation. */
  char fingerprint[LS_CORPUS_NAME_BYTES];
} ls_dataset;

/* Opens what run->data names. LS_INPUT where the text is shorter than one batch, a validation file
 * is a training file too, or as ls_corpus_open says. The dataset lives in the arena. */
LS_CHECKED ls_status ls_dataset_open(ls_arena *arena, const ls_run_file *run,
                                     const ls_tokenizer *tokenizer, const char *cache_folder,
                                     ls_corpus_progress *progress, void *context,
                                     ls_dataset **dataset, ls_error *error);

/* The same to be asked about alone: all of data.text is the evaluation part, and nothing is trained
 * on. LS_INPUT where it is shorter than one sequence. */
LS_CHECKED ls_status ls_dataset_open_evaluation(ls_arena *arena, const ls_run_file *run,
                                                const ls_tokenizer *tokenizer,
                                                const char *cache_folder,
                                                ls_corpus_progress *progress, void *context,
                                                ls_dataset **dataset, ls_error *error);

/* The evaluation part as whole documents (ls_packing_make_documents), for run->eval.by_document.
 * LS_INPUT: data.seq_len is 1, or no document has two tokens. */
LS_CHECKED ls_status ls_dataset_by_document(ls_arena *arena, const ls_run_file *run,
                                            ls_dataset *dataset, ls_error *error);

void ls_dataset_close(ls_dataset *dataset);

#endif
