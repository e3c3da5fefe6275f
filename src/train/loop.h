/* The training loop: the one every strategy runs.
 *
 *   ls_train_options options = {.report = print_step, .context = &progress};
 *   LS_TRY(ls_train(session, dataset, world, &options, error));
 *
 * What is computed does not depend on the layout; what is printed is the caller's. */
#ifndef LS_TRAIN_LOOP_H
#define LS_TRAIN_LOOP_H

#include "checkpoint/checkpoint.h"
#include "data/dataset.h"
#include "run/recording.h"
#include "session/prove.h"
#include "session/session.h"
#include "train/evaluate.h"
#include "train/metrics.h"
#include "train/run_folder.h"

typedef struct ls_train_options {
  bool trust;     /* the checksums of the weights that a run starts from are not looked at */
  ls_fresh fresh; /* what becomes of the run that is in `out`, once the first step is made */
  /* Called when the programs are proved, on each process; NULL: nobody asks. */
  void (*proved)(void *context, const ls_session_proof *proof);
  /* Called by rank 0's thread; each may be NULL. The first when the run begins or resumes. */
  void (*begin)(void *context, int64_t steps_done, int64_t steps, const char *where_from);
  void (*measured)(void *context, const ls_peak *peak); /* what MFU is a share of, after `begin` */
  void (*report)(void *context, const ls_metrics_step *step);
  void (*evaluating)(void *context, int64_t batches_done, int64_t batches);
  /* The evaluation that a stop interrupted in the run before was repeated, before the first step.
   */
  void (*evaluated)(void *context, int64_t step, const ls_evaluation *found);
  /* A text of eval.prompts was generated; prompt and text as JSON, in one line each. */
  void (*sampled)(void *context, int64_t step, const char *prompt, const char *text);
  /* The run is trained to its end, or ended early after `step`. */
  void (*ended)(void *context, int64_t step, bool early, const ls_best_evaluation *best);
  /* With `trace: true`, once: what is done with the recorded step. */
  ls_status (*traced)(void *context, const ls_recording *recording, ls_error *error);
  void *context;
  const ls_tokenizer *tokenizer; /* written into checkpoints; NULL: none */
} ls_train_options;

/* A process that is asked to stop (base/stop.h) finishes the step, leaves an evaluation, saves; all
 * ranks then return LS_STOPPED.
 *
 * Trains from the newest good checkpoint in run->out, or from the start. Errors: LS_INPUT where
 * `out` belongs to another run or another process, LS_REFUTED where a program is wrong (nothing is
 * written then; run->check false: not looked at), LS_STOPPED after a stop, LS_FAILED else.
 * Collective: all processes. */
LS_CHECKED ls_status ls_train(const ls_session *session, const ls_dataset *dataset, ls_world *world,
                              const ls_train_options *options, ls_error *error);

#endif
