/* Event files, which TensorBoard reads: one for each start of a run, as its own writers make them.
 *
 *   ls_event_file *file;
 *   LS_TRY(ls_event_file_open("runs/smol/tensorboard", steps_done, &file, error));
 *   LS_TRY(ls_event_file_write(file, &(ls_metrics_step){.step = 1, .loss = 5.5, ...}, error));
 *   ls_event_file_close(&file);
 *
 * A file begins with its version and a session's start after `steps_done` steps: TensorBoard then
 * leaves out what an earlier file has of later steps. Tags are those of transformers' Trainer:
 * train/loss, train/grad_norm, train/learning_rate, train/epoch, eval/loss; and ours,
 * train/tokens_per_second and train/mfu. Records are TensorFlow's (tensorflow/core/lib/io/
 * record_writer.h, core/util/event.proto, core/framework/summary.proto). One thread at a time. */
#ifndef LS_TRAIN_EVENT_FILE_H
#define LS_TRAIN_EVENT_FILE_H

#include "train/metrics.h"

typedef struct ls_event_file ls_event_file;

/* Makes the folder where it is missing, and a new file in it. *file is NULL on failure. */
LS_CHECKED ls_status ls_event_file_open(const char *folder, int64_t steps_done,
                                        ls_event_file **file, ls_error *error);

/* What of the step is finite, in one write. */
LS_CHECKED ls_status ls_event_file_write(ls_event_file *file, const ls_metrics_step *step,
                                         ls_error *error);

/* Nothing happens where *file is NULL. */
void ls_event_file_close(ls_event_file **file);

#endif
