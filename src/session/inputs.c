#include "session/inputs.h"

#include "session/session.h"

static ls_status take_rows(void *context, int64_t step, int64_t first, int64_t count,
                           const ls_batch *batch, ls_error *error) {
  const ls_order *order = context;
  return ls_batch_fill(order, step, first / order->seq_len, count / order->seq_len, batch, error);
}

ls_inputs ls_inputs_of_order(const ls_order *order) {
  return (ls_inputs){take_rows, (void *)order};
}

ls_status ls_inputs_fill(const ls_inputs *inputs, ls_rank *rank, int program, int microbatch,
                         int64_t step, ls_error *error) {
  const ls_program *from = ls_rank_program(rank, program);
  const int slot = program == LS_SESSION_STEP ? microbatch : 0;
  const ls_view ids = ls_rank_shape(rank, program, from->ids);
  const int64_t count = ids.valid[0];
  int32_t *staging = ls_rank_staging(rank);
  const ls_batch batch = {staging, staging + count, staging + 2 * count};
  LS_TRY(inputs->take(inputs->context, step, microbatch * from->tokens + ids.start[0], count,
                      &batch, error));
  LS_TRY(ls_rank_put(rank, program, from->ids, slot, batch.ids, count, error));
  LS_TRY(ls_rank_put(rank, program, from->positions, slot, batch.positions, count, error));
  if (from->labels < 0) return LS_OK;
  return ls_rank_put(rank, program, from->labels, slot, batch.labels, count, error);
}
