/* metrics.jsonl: one line of JSON for each step of a run.
 *
 *   ls_metrics *metrics;
 *   LS_TRY(ls_metrics_open(path, steps_done, &metrics, error));
 *   LS_TRY(ls_metrics_write(metrics, &(ls_metrics_step){.step = 1, .loss = 5.5, ...}, error));
 *   ls_metrics_close(&metrics);
 *
 * A line is in the file when ls_metrics_write returns. `step` counts finished steps: the first line
 * is step 1, and checkpoint step-N follows line N. One thread at a time. */
#ifndef LS_TRAIN_METRICS_H
#define LS_TRAIN_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lockstep/status.h"

/* NaN stands for "not known" and is written as null; validation_loss then is left out, and so are
 * loss_scale and skipped where loss_scale is NaN. */
typedef struct ls_metrics_step {
  int64_t step;
  double epoch;
  int64_t tokens; /* since the run's start */
  double loss, learning_rate;
  double grad_norm; /* not finite where the step was skipped */
  double tokens_per_second, tokens_per_second_per_device;
  double mfu;
  int64_t memory_bytes;
  double step_seconds;
  double validation_loss; /* where this step was followed by an evaluation; else NaN */
  bool classifies;        /* validation_accuracy, 0 to 1, is written beside it */
  double validation_accuracy;
  bool validation_interrupted; /* by a stop: validation_loss is written as null */
  bool validation_lowest;      /* of all so far, where the run asks; is not written */
  double loss_scale;           /* of this step, where the loss is scaled (fp16); else NaN */
  bool pairs;                  /* of answers: the four below are written, under TRL's names */
  double reward_chosen, reward_rejected; /* means over the pairs: beta times log-probability
                                            beyond the reference's */
  double preferred;                 /* the share of pairs whose chosen answer has the larger one */
  bool taught;                      /* by a teacher: the two below are written */
  double cross_entropy, divergence; /* means over tokens: of the text; KL(teacher || model) */
  int64_t skipped;                  /* steps whose gradients overflowed, since the run's start */
  /* Steps that were made again, as rows for experts found no slot, since this start of it; 0 is not
   * written. */
  int64_t repeated;
  /* Of experts: the tokens of the fullest of any layer over the mean of its layer's, which layer
   * that is, and the share of all that had none. 0: nothing is told, and none is written. */
  double expert_load;
  int64_t fullest_layer;
  double experts_idle;
  bool drops;      /* the one below is written */
  int64_t dropped; /* choices above the capacity of their expert, of all layers */
} ls_metrics_step;

typedef struct ls_metrics ls_metrics;

/* Opens the file for a run that has done `steps` steps: lines of later steps, and one cut off in
 * its middle, are removed. Steps 0 empties it. */
LS_CHECKED ls_status ls_metrics_open(const char *path, int64_t steps, ls_metrics **metrics,
                                     ls_error *error);

LS_CHECKED ls_status ls_metrics_write(ls_metrics *metrics, const ls_metrics_step *step,
                                      ls_error *error);

/* Whether the last step's evaluation was interrupted, and its loss is still to come. */
bool ls_metrics_validation_interrupted(const ls_metrics *metrics);

/* Writes the loss of that evaluation, repeated, and the accuracy, where it is not NaN, into the
 * last step's line. */
LS_CHECKED ls_status ls_metrics_add_validation(ls_metrics *metrics, double loss, double accuracy,
                                               ls_error *error);

/* Bytes of the whole lines up to step `steps`, of this or another file whose lines begin with their
 * step, then the key `second` ("epoch" of metrics); *foreign the number of the first line that is
 * not ours, 0: all are. A last line without its end is of a run that was killed. */
size_t ls_metrics_kept(const char *text, size_t bytes, const char *second, int64_t steps,
                       int64_t *foreign);

/* Nothing happens where *metrics is NULL. */
void ls_metrics_close(ls_metrics **metrics);

#endif
