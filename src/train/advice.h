/* What a run file may ask and hardly means: legal, so told in a warning before the first step.
 *
 *   ls_session_advise(session, dataset, tokenizer);
 *
 * Of one thread, of one rank. */
#ifndef LS_TRAIN_ADVICE_H
#define LS_TRAIN_ADVICE_H

#include "data/dataset.h"
#include "session/session.h"

/* Warns of a warm-up that does not end before the run does, of a share for validation that is no
 * example, of a tokenizer that is not that of the
 * weights the run starts from, and of ids of the model that the tokenizer has not (more than half
 * of the vocabulary: embeddings are padded by less). */
void ls_session_advise(const ls_session *session, const ls_dataset *dataset,
                       const ls_tokenizer *tokenizer);

/* Going on from `step` with what `now` says of the learning rate, where it was as `before` says:
 * warns where its next step is more than a twentieth away from what it would have been. */
void ls_advise_learning_rate(const ls_run_file *before, const ls_run_file *now, int64_t step);

#endif
