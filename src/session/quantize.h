/* What a run's `quantize` does to its model. Thread-safe: no state. */
#ifndef LS_SESSION_QUANTIZE_H
#define LS_SESSION_QUANTIZE_H

#include "model/model.h"
#include "text/run_file.h"

/* How weights are kept, where that is not left to the model's folder. Errors: those of
 * ls_model_quantize, with where the key is. */
LS_CHECKED ls_status ls_quantize_apply(const ls_run_file *run, ls_model_config *config,
                                       ls_error *error);

/* LS_INPUT where a training would leave quantised weights as they are, and has no adapters. */
LS_CHECKED ls_status ls_quantize_check_trained(const ls_run_file *run,
                                               const ls_model_config *config, ls_error *error);

#endif
