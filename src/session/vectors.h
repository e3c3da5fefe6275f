/* What a run asks of a model whose task is vectors of texts (task=embed).
 *
 *   LS_TRY(ls_vectors_settle(session, error));   // once the model is found, and its classes
 *
 * A model that makes vectors says what the task is. Thread-safe: a session is one thread's. */
#ifndef LS_SESSION_VECTORS_H
#define LS_SESSION_VECTORS_H

#include "session/session.h"

/* Takes the model's head away, and settles embed.pooling: as the model's own folder has it (ours,
 * or sentence-transformers'), else the last token, of encoders the mean. LS_INPUT: keys that the
 * task has no place for. */
LS_CHECKED ls_status ls_vectors_settle(ls_session *session, ls_error *error);

/* The pairs of texts that the run's programs are made for. */
ls_text_pairs ls_vectors_pairs(const ls_run_file *run);

/* Labels where there is no text: a sequence is dealt to its texts in equal parts of so many tokens,
 * some of which are left out: pairs whole, but a step's first never, and wrong answers by
 * themselves. What is told of a text is its last token, or in every other pair all of them. `at`: a
 * token of the step's batch. */
int64_t ls_vectors_tokens_of_chance(const ls_text_pairs *form, int64_t sequence);
int32_t ls_vectors_label_of_chance(const ls_text_pairs *form, int64_t sequence, uint64_t seed,
                                   int64_t step, int64_t at);

#endif
