#include "train/best.h"

#include <math.h>

#include "base/file.h"

bool ls_best_is_asked(const ls_run_file *run) {
  return run->checkpoint.best || run->eval.patience > 0;
}

ls_status ls_best_check_evaluates(const ls_run_file *run, const char *key, bool has_validation,
                                  ls_error *error) {
  if (run->eval.every == 0)
    return ls_fail(error, LS_INPUT, "%s: nothing is evaluated with eval.every=0: give eval.every=N",
                   ls_run_file_where(run, key));
  if (has_validation) return LS_OK;
  return ls_fail(
      error, LS_INPUT,
      "%s: the run keeps nothing for validation: give a larger data.validation, or files",
      ls_run_file_where(run, key));
}

ls_status ls_best_check(const ls_run_file *run, bool has_validation, ls_error *error) {
  const char *key = run->checkpoint.best ? "checkpoint.best" : "eval.patience";
  if (run->eval.min_delta > 0 && run->eval.patience == 0)
    return ls_fail(error, LS_INPUT,
                   "%s: has no effect without eval.patience: give that too, or leave it out",
                   ls_run_file_where(run, "eval.min_delta"));
  return ls_best_is_asked(run) ? ls_best_check_evaluates(run, key, has_validation, error) : LS_OK;
}

bool ls_best_judge(ls_best_evaluation *best, const ls_run_eval *eval, int64_t step, double loss) {
  const bool first = best->step == 0 && isfinite(loss);
  const bool lower = first || (best->step > 0 && loss < best->loss);
  const bool enough = first || (best->step > 0 && loss < best->loss - eval->min_delta);
  best->judged = step;
  best->worse = enough ? 0 : best->worse + 1;
  if (lower) best->loss = loss;
  if (lower) best->step = step;
  return lower;
}

bool ls_best_ends(const ls_best_evaluation *best, const ls_run_eval *eval) {
  return eval->patience > 0 && best->worse >= eval->patience;
}

ls_status ls_best_settle(const char *out, const ls_best_evaluation *best, ls_error *error) {
  ls_arena *arena = ls_arena_create();
  const char *folder =
      ls_arena_printf(arena, "%s/checkpoints/step-%lld", out, (long long)best->step);
  const bool there = best->step > 0 && ls_directory_exists(folder);
  if (best->step > 0 && !there)
    ls_warn("%s: is the best so far (validation loss %.4f) and is not there any more", folder,
            best->loss);
  ls_status status = LS_OK;
  if (there) status = ls_checkpoint_point_best(out, best->step, error);
  if (!there) ls_checkpoint_forget_best(out);
  ls_arena_destroy(&arena);
  return status;
}
