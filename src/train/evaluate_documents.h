/* The loss of a model on each document of a text, on any layout but mesh.cp.
 *
 *   ls_document_losses found;
 *   LS_TRY(ls_evaluate_documents(arena, session, dataset, world, &told, &found, error));
 *
 * The session is one of run->eval.by_document, the dataset that of ls_dataset_by_document: each
 * document is read alone. Collective: all processes; in each the first rank's thread fills what is
 * found. */
#ifndef LS_TRAIN_EVALUATE_DOCUMENTS_H
#define LS_TRAIN_EVALUATE_DOCUMENTS_H

#include "train/evaluate.h"

typedef struct ls_document_loss {
  double sum;     /* of its tokens, but the first */
  int64_t tokens; /* that were asked for; 0: there is none, or the document is not in the part */
} ls_document_loss;

typedef struct ls_document_losses {
  ls_document_loss *items; /* [count] in the order of data.text */
  int64_t count;
  double sum;
  int64_t tokens, batches;
} ls_document_losses;

/* Errors: as ls_evaluate_weights has. */
LS_CHECKED ls_status ls_evaluate_documents(ls_arena *arena, const ls_session *session,
                                           const ls_dataset *dataset, ls_world *world,
                                           const ls_evaluating *told, ls_document_losses *found,
                                           ls_error *error);

#endif
