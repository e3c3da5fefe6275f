/* The proof of a session's programs, which comes before every training run (key `check`).
 *
 *   ls_session_proof proof;
 *   LS_TRY(ls_session_prove(session, &proof, error));
 *   printf("proved in %.2f s\n", proof.seconds);
 *
 * Messages queue as they do in the engine that moves the device's data. Read-only on the session:
 * any thread may. */
#ifndef LS_SESSION_PROVE_H
#define LS_SESSION_PROVE_H

#include "check/check.h"
#include "session/session.h"

typedef struct ls_session_proof {
  ls_check_report reports[LS_SESSION_PROGRAMS]; /* by program */
  ls_saving_report saving;                      /* of its state */
  double seconds;                               /* that it took */
} ls_session_proof;

/* That the state of proved programs is saved and loaded right: what ls_check_saving and
 * ls_check_rounds say of the lists that all runs go by. */
LS_CHECKED ls_status ls_prove_saving(const ls_model_config *config, const ls_graph *graph,
                                     const ls_program *const *stages, int count,
                                     ls_saving_report *report, ls_error *error);

/* LS_REFUTED: a program is wrong; says which, and the instruction that breaks it. */
LS_CHECKED ls_status ls_session_prove(const ls_session *session, ls_session_proof *proof,
                                      ls_error *error);

#endif
