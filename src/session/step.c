#include "session/step.h"

#include <math.h>

#include "session/agree.h"
#include "session/forward.h"
#include "session/session.h"

static bool scales_loss(const ls_steps *self) {
  return ls_rank_program(self->rank, LS_SESSION_STEP)->layout.compute == LS_F16;
}

ls_steps ls_steps_of(ls_rank *rank, const ls_inputs *inputs, ls_steps_rate rate,
                     const void *context) {
  ls_steps made = {
      .rank = rank, .inputs = *inputs, .rate = rate, .context = context, .clipped = true};
  made.scale = ls_loss_scale_start();
  if (!scales_loss(&made)) made.scale.scale = 1;
  return made;
}

void ls_steps_run_ahead(ls_steps *steps) {
  steps->ahead = !ls_steps_validates(steps) && !scales_loss(steps) &&
                 ls_rank_runs_ahead(steps->rank) && !steps->again &&
                 steps->policy != LS_STEPS_REPEAT;
  steps->known = steps->step;
}

bool ls_steps_validates(const ls_steps *steps) {
  return ls_rank_program(steps->rank, LS_SESSION_STEP)->replay_boundary >= 0;
}

static ls_status run_part(const ls_steps *self, ls_program_part part, ls_error *error) {
  return ls_rank_run_part(self->rank, self->running, part, error);
}

static ls_status fill_inputs(const ls_steps *self, int64_t step, ls_error *error) {
  const int microbatches = ls_rank_program(self->rank, self->running)->layout.microbatches;
  for (int m = 0; m < microbatches; m++)
    LS_TRY(ls_inputs_fill(&self->inputs, self->rank, self->running, m, step, error));
  return LS_OK;
}

/* Weights and inputs as the open step found them: with a factor of 0 the update changes no master
 * weights and makes the weights of them again. */
static ls_status undo_speculation(const ls_steps *self, ls_error *error) {
  LS_TRY(fill_inputs(self, self->step, error));
  ls_rank_set_cell(self->rank, LS_CELL_CLIP_FACTOR, 0);
  return run_part(self, LS_PROGRAM_UPDATE, error);
}

/* A NaN or an infinity stops the run and names where it came from: the part before the update is
 * run again and looked at. A rank that was sent it is asked only where none made it. */
static ls_status explain_nonfinite(const ls_steps *self, ls_error *error) {
  const int64_t at = self->ahead ? self->known : self->step;
  const double loss = ls_rank_cell(self->rank, LS_CELL_MEAN_LOSS);
  const double norm = ls_rank_cell(self->rank, LS_CELL_NORM);
  LS_TRY(ls_rank_run_ahead(self->rank, false, error));
  if (self->speculated) LS_TRY(undo_speculation(self, error));
  if (self->ahead) LS_TRY(fill_inputs(self, at, error));
  const ls_status own = ls_rank_find_nonfinite(self->rank, self->running, error);
  ls_status status = ls_agree(self->rank, own == LS_REFUTED ? LS_OK : own, error);
  if (status == LS_OK) status = ls_agree(self->rank, own ? LS_FAILED : LS_OK, error);
  if (status != LS_OK) {
    ls_error_prefix(error, "step %lld", (long long)at + 1);
    return LS_FAILED;
  }
  return ls_fail(error, LS_FAILED, "step %lld: loss %g, gradient norm %g", (long long)at + 1, loss,
                 norm);
}

/* Whether the gradients that were just made are to be left unused. Loss and norm are the same on
 * every rank, so all ranks decide alike. */
static ls_status judge_gradients(ls_steps *self, ls_error *error) {
  const bool loss = isfinite(ls_rank_cell(self->rank, LS_CELL_MEAN_LOSS));
  const bool norm = isfinite(ls_rank_cell(self->rank, LS_CELL_NORM));
  const bool scales = scales_loss(self);
  self->overflowed = false;
  if (self->policy == LS_STEPS_AS_IS || (self->policy == LS_STEPS_REPEAT && !scales)) return LS_OK;
  if (self->policy == LS_STEPS_SKIP && (!loss || (!norm && !scales)))
    return explain_nonfinite(self, error);
  self->overflowed = loss && !norm;
  if (!scales) return LS_OK;
  const ls_status status = ls_loss_scale_after_step(&self->scale, self->overflowed, error);
  if (status != LS_OK) ls_error_prefix(error, "step %lld", (long long)self->step + 1);
  return status;
}

/* What the open step's update multiplies by; skipped steps are not among those that it counts. */
static void set_rates(const ls_steps *self) {
  const int64_t skipped = self->policy == LS_STEPS_SKIP ? self->scale.skipped : 0;
  ls_rank_set_cell(self->rank, LS_CELL_LEARNING_RATE, self->rate(self->context, self->step));
  ls_rank_set_cell(self->rank, LS_CELL_STEP, (double)(self->step + 1 - skipped));
}

ls_status ls_steps_begin(ls_steps *steps, ls_error *error) {
  if (steps->ahead) LS_TRY(ls_rank_run_ahead(steps->rank, true, error));
  LS_TRY(fill_inputs(steps, steps->step + steps->open, error));
  steps->ready = !steps->open || steps->speculated;
  return steps->ready ? run_part(steps, LS_PROGRAM_PROLOGUE, error) : LS_OK;
}

ls_status ls_steps_passes(ls_steps *steps, bool stop, ls_error *error) {
  LS_ASSERT(!steps->open);
  if (!steps->ready) LS_TRY(run_part(steps, LS_PROGRAM_PROLOGUE, error));
  ls_rank_set_cell(steps->rank, LS_CELL_SCALE, steps->scale.scale);
  ls_rank_set_cell(steps->rank, LS_CELL_STOP, stop);
  LS_TRY(run_part(steps, LS_PROGRAM_PASSES, error));
  steps->open = true;
  return LS_OK;
}

ls_status ls_steps_speculate(ls_steps *steps, ls_error *error) {
  if (steps->clipped && !steps->speculates_always) return LS_OK;
  set_rates(steps);
  steps->speculated = true;
  return run_part(steps, LS_PROGRAM_SPECULATE, error);
}

/* Looks at the step that was settled before the open one, or before now. */
static ls_status look_back(ls_steps *self, ls_error *error) {
  if (self->known == self->step) return LS_OK;
  LS_TRY(ls_rank_cells_end(self->rank, (int)(self->known % LS_QUEUE_READS), error));
  LS_TRY(judge_gradients(self, error));
  self->known++;
  return LS_OK;
}

ls_status ls_steps_settle(ls_steps *steps, ls_error *error) {
  if (!steps->ahead) return LS_OK;
  LS_TRY(look_back(steps, error));
  return ls_rank_run_ahead(steps->rank, false, error);
}

/* Rows for experts that found no slot are an infinite loss, on all ranks: the step is void, and is
 * made again by a program with more. */
static ls_status make_again(ls_steps *self, ls_error *error) {
  if (!self->again || !isinf(ls_rank_cell(self->rank, LS_CELL_LOSS_SUM))) return LS_OK;
  self->running = self->again;
  self->repeated++;
  LS_TRY(fill_inputs(self, self->step, error));
  LS_TRY(ls_rank_run_gradients(self->rank, self->running, error));
  const bool bounded = ls_rank_program(self->rank, self->running)->layout.expert_bound > 0;
  if (!bounded || !isinf(ls_rank_cell(self->rank, LS_CELL_LOSS_SUM))) return LS_OK;
  return ls_fail(error, LS_FAILED, "step %lld: " LS_TOO_FEW_SLOTS, (long long)self->step + 1);
}

ls_status ls_steps_gradients(ls_steps *steps, ls_error *error) {
  LS_ASSERT(steps->open);
  set_rates(steps);
  LS_TRY(run_part(steps, LS_PROGRAM_VALIDATE, error));
  if (steps->ahead) {
    LS_TRY(ls_rank_cells_begin(steps->rank, (int)(steps->step % LS_QUEUE_READS), error));
    return look_back(steps, error);
  }
  LS_TRY(make_again(steps, error));
  LS_TRY(judge_gradients(steps, error));
  while (steps->policy == LS_STEPS_REPEAT && steps->overflowed) {
    ls_rank_set_cell(steps->rank, LS_CELL_SCALE, steps->scale.scale);
    LS_TRY(ls_rank_run_gradients(steps->rank, steps->running, error));
    LS_TRY(judge_gradients(steps, error));
  }
  return LS_OK;
}

ls_status ls_steps_update(ls_steps *steps, ls_error *error) {
  const double right = 1 / ls_rank_cell(steps->rank, LS_CELL_SCALE);
  steps->clipped = ls_rank_cell(steps->rank, LS_CELL_CLIP_FACTOR) != right;
  if (steps->clipped) steps->ready = false;
  LS_TRY(run_part(steps, LS_PROGRAM_UPDATE, error));
  if (!steps->overflowed) LS_TRY(ls_loads_move_biases(steps->loads, error));
  steps->open = steps->speculated = false;
  steps->running = LS_SESSION_STEP;
  steps->step++;
  return LS_OK;
}

ls_status ls_steps_finish(ls_steps *steps, ls_error *error) {
  LS_TRY(ls_steps_gradients(steps, error));
  return ls_steps_update(steps, error);
}
