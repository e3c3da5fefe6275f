/* The best of a run's evaluations, and when the run ends for want of a better one.
 *
 *   LS_TRY(ls_best_check(run, dataset->evaluation.sequences > 0, error));
 *   if (ls_best_judge(&best, &run->eval, step, loss)) save_it();
 *   if (ls_best_ends(&best, &run->eval)) return LS_OK;
 *
 * Thread-safe: no state of its own. */
#ifndef LS_TRAIN_BEST_H
#define LS_TRAIN_BEST_H

#include "checkpoint/checkpoint.h"
#include "text/run_file.h"

/* Whether the run asks which evaluation is the best. */
bool ls_best_is_asked(const ls_run_file *run);

/* LS_INPUT where it asks and nothing is evaluated, or a key of it has no effect. */
LS_CHECKED ls_status ls_best_check(const ls_run_file *run, bool has_validation, ls_error *error);

/* LS_INPUT, naming the key that asks for evaluations, where there are none. */
LS_CHECKED ls_status ls_best_check_evaluates(const ls_run_file *run, const char *key,
                                             bool has_validation, ls_error *error);

/* Counts in the evaluation after `step`; true: its loss is below all before. One that is not a
 * number is no better than any. */
bool ls_best_judge(ls_best_evaluation *best, const ls_run_eval *eval, int64_t step, double loss);

/* Whether there were as many without a better one as the run has patience for. */
bool ls_best_ends(const ls_best_evaluation *best, const ls_run_eval *eval);

/* OUT/best names the best of the state that a run begins with, or nothing where its checkpoint is
 * not there. Of the process that has OUT's lock. */
LS_CHECKED ls_status ls_best_settle(const char *out, const ls_best_evaluation *best,
                                    ls_error *error);

#endif
