/* The lines of a run's metrics.jsonl, read back.
 *
 *   ls_metrics_rows rows;
 *   LS_TRY(ls_metrics_read(arena, "runs/smol/metrics.jsonl", &rows, error));
 *   rows.items[rows.count - 1].loss;
 *
 * A run may be writing it: a last line without its end is not there yet. Thread-safe as long as no
 * two threads share an arena. */
#ifndef LS_TRAIN_METRICS_READ_H
#define LS_TRAIN_METRICS_READ_H

#include "base/arena.h"
#include "train/metrics.h"

typedef LS_LIST(ls_metrics_step) ls_metrics_rows;

/* Rows in the arena, in the order of the file. What a line does not have, or has as null, is NaN or
 * 0. LS_INPUT where the file cannot be read, names no step, or has a line that is none of a run's.
 */
LS_CHECKED ls_status ls_metrics_read(ls_arena *arena, const char *path, ls_metrics_rows *rows,
                                     ls_error *error);

#endif
