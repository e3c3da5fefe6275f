/* Repeats a training trace (trace.h) under any layout and compares everything it tells: losses,
 * gradient norms, logits and gradients of the first step, parameters after the last.
 *
 *   ls_verification *verification;
 *   LS_TRY(ls_verify_prepare(arena, "traces/gpt2", words, count, &verification, error));
 *   LS_TRY(ls_world_start(ls_device_facts_here(), &(ls_world_options){.ranks = 2}, &world, error));
 *   ls_status status = ls_verify_run(verification, world, error);
 *   ... verification->rows[LS_VERIFY_LOSS].worst ...
 *
 * A verification belongs to one thread; ls_verify_run starts the world's own. */
#ifndef LS_VERIFY_VERIFY_H
#define LS_VERIFY_VERIFY_H

#include "comm/comm.h"
#include "session/session.h"
#include "text/run_file.h"
#include "verify/trace.h"

typedef enum ls_verify_kind {
  LS_VERIFY_LOSS = 0,
  LS_VERIFY_NORM,
  LS_VERIFY_LOGITS,
  LS_VERIFY_GRADIENTS,
  LS_VERIFY_PARAMETERS, /* first4, last4; l2 and sum over the root of the count of elements */
  LS_VERIFY_KINDS
} ls_verify_kind;

/* "loss", "gradient norm", "logits of step 0", ... */
const char *ls_verify_kind_name(ls_verify_kind kind);

/* Of all numbers of a kind the one that is worst against its tolerance. */
typedef struct ls_verify_row {
  int64_t compared; /* numbers */
  double worst, tolerance;
  char where[256]; /* "step 3", "model.norm.weight, element 7", "lm_head.weight, l2" */
  bool ok;
} ls_verify_row;

typedef struct ls_verification {
  ls_arena *arena; /* borrowed */
  const ls_trace *trace;
  ls_run_file *run;    /* of the trace's hyper-parameters and the user's layout */
  ls_session *session; /* once run */
  bool compared;       /* the rows are filled */
  ls_verify_row rows[LS_VERIFY_KINDS];
} ls_verification;

/* Reads the trace and the user's words ("mesh.dp_shard=2", "--dtype=fp64"), which may set the
 * layout and the dtype (fp32 where not given) but nothing that the trace says. In the arena. */
LS_CHECKED ls_status ls_verify_prepare(ls_arena *arena, const char *folder,
                                       const char *const *words, int word_count,
                                       ls_verification **verification, ls_error *error);

/* Does the training on all ranks of the world and fills the rows, alike in every process.
 * LS_REFUTED: a kind is beyond its tolerance; the error says which and where. Once for each
 * verification. Collective: all processes. */
LS_CHECKED ls_status ls_verify_run(ls_verification *verification, ls_world *world, ls_error *error);

#endif
