/* Whether a run's own layout is the same training as one device: the run's model and mesh, shrunk
 * (shrink.h), trained for a few steps on random tokens, beside one device that does the same.
 *
 *   ls_layout_verification *about;
 *   LS_TRY(ls_verify_layout_prepare(arena, session, &options, &about, error));
 *   ls_status status = ls_verify_layout_run(about, error);
 *   ... about->rows[LS_EQUALITY_GRADIENTS].worst ...
 *
 * In fp64 on reference kernels, where a right layout differs by rounding alone; or on the run's own
 * kernels and dtype. Then the measure is what these do to one device: the difference from fp64
 * that the layout makes may be a few times that. A verification belongs to one thread;
 * running starts others. */
#ifndef LS_VERIFY_VERIFY_LAYOUT_H
#define LS_VERIFY_VERIFY_LAYOUT_H

#include "session/session.h"
#include "verify/equality.h"
#include "verify/shrink.h"

typedef struct ls_verify_layout_options {
  bool kernels; /* the run's own, in its dtype */
  /* Applied to the layout's programs, not to one device's: for faults put in on purpose. As in
   * ls_experiment. */
  bool (*alter)(ls_program *program, void *context);
  void *alter_context;
} ls_verify_layout_options;

/* The worst of a kind for its tolerance. */
typedef struct ls_layout_row {
  int64_t compared; /* numbers */
  double worst, tolerance;
  char where[256]; /* "step 3", "layers.0.mlp.up.weight" */
  bool ok;
} ls_layout_row;

typedef struct ls_layout_verification {
  ls_arena *arena;           /* borrowed */
  const ls_session *session; /* what was asked for; no programs */
  ls_verify_layout_options options;
  ls_model_config teacher; /* of a distillation: of the small model's shape */
  ls_shrunk *shrunk;       /* with the dtype of the comparison in its layout */
  int ranks;               /* of the shrunk mesh */
  double learning_rate;
  const char *offload_path;
  bool compared; /* the rows are filled */
  ls_layout_row rows[LS_EQUALITY_KINDS];
  char first[768]; /* what differs first, in a sentence; "": nothing */
} ls_layout_verification;

/* "loss", "gradients, step 1", ... */
const char *ls_layout_row_name(ls_equality_kind kind);

/* Shrinks what the session asks for (ls_session_resolve; borrowed); trains nothing. LS_INPUT as
 * train would say it. In the arena. */
LS_CHECKED ls_status ls_verify_layout_prepare(ls_arena *arena, const ls_session *session,
                                              const ls_verify_layout_options *options,
                                              ls_layout_verification **verification,
                                              ls_error *error);

/* Trains both and fills the rows. May add rows to what was shrunk (a clipping norm that comes into
 * effect). LS_REFUTED: they differ; the error says what first and by how much. Once for each. */
LS_CHECKED ls_status ls_verify_layout_run(ls_layout_verification *verification, ls_error *error);

#endif
