#include "session/forward.h"

#include <math.h>

static ls_status run(ls_rank *rank, const ls_inputs *inputs, int program, int m, int64_t step,
                     bool *fits, ls_error *error) {
  LS_TRY(ls_inputs_fill(inputs, rank, program, m, step, error));
  LS_TRY(ls_rank_run(rank, program, error));
  const bool bounded = ls_rank_program(rank, program)->layout.expert_bound > 0;
  *fits = !bounded || !isinf(ls_rank_cell(rank, LS_CELL_LOSS_SUM));
  return LS_OK;
}

ls_status ls_forward(const ls_session *session, ls_rank *rank, const ls_inputs *inputs, int m,
                     int64_t step, int *program, ls_error *error) {
  bool fits;
  *program = LS_SESSION_EVALUATE;
  LS_TRY(run(rank, inputs, *program, m, step, &fits, error));
  if (fits || session->compiled.count <= LS_SESSION_EVALUATE_AGAIN) return LS_OK;
  *program = LS_SESSION_EVALUATE_AGAIN;
  LS_TRY(run(rank, inputs, *program, m, step, &fits, error));
  return fits ? LS_OK
              : ls_fail(error, LS_FAILED, "batch %lld: " LS_TOO_FEW_SLOTS, (long long)step + 1);
}
