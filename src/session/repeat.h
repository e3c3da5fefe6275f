/* A training step run some times, to see where its time goes: random tokens, no data, no folder.
 *
 *   const ls_repeated *repeated;
 *   LS_TRY(ls_repeat_steps(arena, session, world, &(ls_repeat_options){.steps = 5}, &repeated,
 *                          error));
 *   ls_recording *median = repeated->recordings[repeated->median];
 */
#ifndef LS_SESSION_REPEAT_H
#define LS_SESSION_REPEAT_H

#include "run/recording.h"
#include "session/session.h"

typedef struct ls_repeat_options {
  int steps;    /* that are timed, after those that are not */
  int warm;     /* of those; 0: LS_RECORDING_WARM_STEPS */
  bool no_peak; /* what products reach is not asked for, and no peak is made */
  /* Called by rank 0's thread before each step, and at the end with done = count; may be NULL. */
  void (*progress)(void *context, int done, int count);
  void *context;
} ls_repeat_options;

typedef struct ls_repeated {
  int count, median;         /* recordings, and the one whose time is the median of all */
  double *seconds;           /* of each step, from its first instruction to its last on any rank */
  ls_recording **recordings; /* [count] */
  ls_peak peak;              /* before the steps */
} ls_repeated;

/* Parameters are as a run from scratch has them. *repeated is in the arena on the process that has
 * rank 0, and NULL on others. In fp16 a step that overflows is left out, as in training, and
 * another made in its place. LS_FAILED: a loss that is no number, and as ls_rank_run. Collective:
 * all processes. */
LS_CHECKED ls_status ls_repeat_steps(ls_arena *arena, const ls_session *session, ls_world *world,
                                     const ls_repeat_options *options, const ls_repeated **repeated,
                                     ls_error *error);

#endif
