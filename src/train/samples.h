/* Texts that a run generates at each evaluation, so that a person sees what the model says by then:
 * eval.prompts, greedily, into OUT/samples.jsonl.
 *
 *   LS_TRY(ls_samples_open(arena, session, dataset, tokenizer, ranks_here, &samples, error));
 *   LS_TRY(ls_samples_make(samples, rank, step, &interrupted, error));      // every rank
 *   if (rank 0) LS_TRY(ls_samples_write(samples, step, told, context, error));
 *
 * On any layout: the ranks lay their weights down together, and the first generates on one device
 * beside the run. One object for the ranks of a process, of which rank 0 alone changes it. */
#ifndef LS_TRAIN_SAMPLES_H
#define LS_TRAIN_SAMPLES_H

#include "data/dataset.h"
#include "session/session.h"

typedef struct ls_samples ls_samples;

/* NULL where the run asks for none. LS_INPUT: a prompt cannot be read or asked, or nothing is
 * evaluated; LS_REFUTED: this process' memory does not hold another model beside the run. Borrows
 * all; close it. */
LS_CHECKED ls_status ls_samples_open(ls_arena *arena, const ls_session *session,
                                     const ls_dataset *dataset, const ls_tokenizer *tokenizer,
                                     int ranks_here, ls_samples **samples, ls_error *error);

/* OUT/samples.jsonl goes on after `steps` steps: what it has of later ones is cut off. LS_INPUT
 * where it has a line that is none of a run's. Of rank 0. */
LS_CHECKED ls_status ls_samples_begin(ls_samples *samples, int64_t steps, ls_error *error);

/* The texts after `step`, kept until they are written; *interrupted by a stop: then there are none.
 * What cannot be generated costs a warning. Collective: all ranks. */
LS_CHECKED ls_status ls_samples_make(ls_samples *samples, ls_rank *rank, int64_t step,
                                     bool *interrupted, ls_error *error);

/* Writes what was made, in one write, and tells each, prompt and text as JSON. Of rank 0. */
LS_CHECKED ls_status ls_samples_write(ls_samples *samples, int64_t step,
                                      void (*told)(void *context, int64_t step, const char *prompt,
                                                   const char *text),
                                      void *context, ls_error *error);

void ls_samples_close(ls_samples **samples);

#endif
