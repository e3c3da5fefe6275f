/* The folder of a run: who may write to it, what an earlier start left there, and how a new run
 * takes its place.
 *
 *   ls_run_folder *folder;
 *   LS_TRY(ls_run_folder_open(arena, run, fresh, &folder, error));
 *   ... folder->checkpoint, NULL: from the start ...
 *   ... with fresh, after the first step: LS_TRY(ls_run_folder_take(folder, run, &kept, error)) ...
 *   ls_run_folder_close(&folder);
 *
 * Of one thread. */
#ifndef LS_TRAIN_RUN_FOLDER_H
#define LS_TRAIN_RUN_FOLDER_H

#include "text/run_file.h"

/* What a new start does with the run that is there. */
typedef enum ls_fresh {
  LS_FRESH_NO = 0, /* it goes on */
  LS_FRESH_ASIDE,  /* it is kept, under other names */
  LS_FRESH_DELETE  /* what it wrote is removed */
} ls_fresh;

typedef struct ls_run_folder {
  ls_arena *arena;
  int lock;               /* an open file, locked */
  const char *checkpoint; /* folder of the newest checkpoint, its bytes not looked at; NULL: none */
  int64_t step;           /* that it was taken after; 0: none */
  int checkpoints;        /* there are in OUT, if the run goes on */
  ls_fresh fresh;
} ls_run_folder;

/* The resolved run file in OUT. */
#define LS_RESOLVED_NAME "resolved.yaml"

/* The run file that a word of the command line means: a run's folder is its resolved one, which
 * goes on with that run. In the arena. LS_INPUT: nothing of that name, or a folder without one. */
LS_CHECKED ls_status ls_run_folder_file(ls_arena *arena, const char *word, const char **path,
                                        ls_error *error);

/* Makes and locks run->out and writes OUT/resolved.yaml. LS_INPUT where another process has it,
 * where keys that change the mathematics differ from the run that is there, or where a file of that
 * name is not ours. With `fresh` nothing in it is looked at or changed before ls_run_folder_take.
 * Texts live in the arena. */
LS_CHECKED ls_status ls_run_folder_open(ls_arena *arena, const ls_run_file *run, ls_fresh fresh,
                                        ls_run_folder **folder, ls_error *error);

/* The run begins from the start, without `fresh`: lines of metrics and samples of steps that no
 * checkpoint is there of, which it would write over, get another name (metrics.old-1.jsonl). */
LS_CHECKED ls_status ls_run_folder_keep_lines(const ls_run_folder *folder, const char *out,
                                              ls_error *error);

/* The new run has begun: checkpoints and metrics of the one before get the names checkpoints.old-1,
 * metrics.old-1.jsonl (or the next number), or are removed; *kept says where checkpoints are now,
 * NULL: nowhere. What the run did not write is never removed. A kill at any moment leaves the
 * checkpoints under one of the two names. */
LS_CHECKED ls_status ls_run_folder_take(ls_run_folder *folder, ls_run_file *run, const char **kept,
                                        ls_error *error);
void ls_run_folder_close(ls_run_folder **folder);

#endif
