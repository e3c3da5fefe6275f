/* What the files of `lockstep sweep` share: its runs, and how one is trained and looked at.
 *
 *   LS_TRY(ls_sweep_begin(&sweep, &sweep.runs.items[0], 0, error));
 *   LS_TRY(ls_sweep_wait(&sweep, &ended, error));
 *   LS_TRY(ls_sweep_write(&sweep, error));
 *
 * Of one thread. */
#ifndef LS_CLI_SWEEP_H
#define LS_CLI_SWEEP_H

#include <sys/types.h>

#include "base/arena.h"
#include "cluster/machine.h"
#include "text/run_file.h"

typedef enum ls_sweep_state { LS_SWEEP_WAITS = 0, LS_SWEEP_DONE, LS_SWEEP_FAILED } ls_sweep_state;

/* A place of the grid. */
typedef struct ls_sweep_run {
  const char *name;         /* "train.lr=1e-4,train.batch=8" */
  const char *folder, *log; /* OUT/NAME, and what training printed */
  const char *file;         /* its run file; NULL: the sweep's */
  const char **keys;        /* of the command line, with the fixed ones, and out=FOLDER */
  int key_count;
  const char *text; /* of the run file with these keys: another is another run */
  ls_sweep_state state;
  const char *error; /* why it failed, in one line */
  int64_t step;
  double loss;       /* mean of the last tenth of the steps; NaN: none was made */
  double validation; /* the last; NaN: none */
  double speed;      /* tokens a second */
  pid_t child;       /* that trains it; 0: none does */
  int place;
} ls_sweep_run;

/* A part of the machine that one run has at a time. */
typedef struct ls_sweep_place {
  ls_thread_set threads;
  const char *gpus; /* CUDA_VISIBLE_DEVICES; NULL: as it is */
  bool taken;
} ls_sweep_place;

typedef struct ls_sweep {
  ls_arena *arena;
  const char *file, *out, *devices; /* devices NULL: as the mesh says */
  LS_LIST(ls_sweep_run) runs;
  ls_sweep_place *places; /* NULL: one run at a time has all */
  int at_once;
  bool told; /* all that are trained to save and end */
} ls_sweep;

/* Reads OUT/sweep.json, if there is one: runs with the same name and text are what they were.
 * LS_INPUT: it is none of ours. */
LS_CHECKED ls_status ls_sweep_read(ls_sweep *sweep, ls_error *error);
LS_CHECKED ls_status ls_sweep_write(const ls_sweep *sweep, ls_error *error);

/* Divides what this process may use between runs: cores, and where a run takes GPUs these, so many
 * as it has devices. LS_INPUT: there are too few, with how many runs there is room for. */
LS_CHECKED ls_status ls_sweep_divide(ls_sweep *sweep, bool gpus, ls_error *error);

/* Has a run trained in a process of its own, on a place. LS_FAILED: no process can be started. */
LS_CHECKED ls_status ls_sweep_begin(ls_sweep *sweep, ls_sweep_run *run, int place, ls_error *error);

/* Waits until one has ended, and looks at what came of it. LS_STOPPED where this process or that
 * one was asked to stop: it goes on from there. */
LS_CHECKED ls_status ls_sweep_wait(ls_sweep *sweep, ls_sweep_run **ended, ls_error *error);

/* Has all that are trained save and end, and waits for them. */
void ls_sweep_leave(ls_sweep *sweep);

#endif
