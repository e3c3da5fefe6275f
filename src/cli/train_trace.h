/* What `lockstep train` does with a step recorded under `trace: true`. */
#ifndef LS_CLI_TRAIN_TRACE_H
#define LS_CLI_TRAIN_TRACE_H

#include "run/recording.h"
#include "session/session.h"

/* Writes trace.json, every instruction of every rank, and timeline.svg into the run's folder. */
LS_CHECKED ls_status ls_train_trace_write(const ls_session *session, const ls_recording *recording,
                                          ls_error *error);

#endif
