#include "session/scores.h"

#include <string.h>

#include "session/forward.h"
#include "session/token_order.h"

/* Of the ranks that have the same sequences, the first: each has the scores of all their tokens. */
static bool gives_scores(const ls_program *program, int rank) {
  const ls_axes data = ls_mesh_data(&program->mesh) & ~ls_mesh_context(&program->mesh);
  return program->logits >= 0 &&
         ls_mesh_index(&program->mesh, rank,
                       ls_mesh_order(ls_mesh_inside(&program->mesh) & ~data)) == 0;
}

/* Those of this rank's sequences, by token of the batch; rows lie as ranks have them that share
 * these, one rank's behind another's. */
static ls_status take_scores(ls_rank *rank, int run, double *scores, ls_error *error) {
  const ls_program *program = ls_rank_program(rank, run);
  const ls_view part = ls_rank_shape(rank, run, program->logits);
  const int ranks = ls_mesh_size(&program->mesh, ls_mesh_context(&program->mesh));
  const int64_t own = part.valid[0] / ranks;
  double *rows = ls_rank_staging_reference(rank);
  LS_TRY(ls_rank_get(rank, run, program->logits, 0, rows, part.valid[0], error));
  for (int64_t n = 0; n < part.valid[0]; n++)
    scores[part.start[0] + ls_token_order(n % own, program->sequence, ranks, (int)(n / own))] =
        rows[n];
  return LS_OK;
}

ls_status ls_score_batch(const ls_session *session, ls_rank *rank, const ls_inputs *inputs,
                         int64_t step, double *scores, ls_error *error) {
  const int64_t tokens = session->batch * session->sequence;
  memset(scores, 0, sizeof *scores * (size_t)tokens);
  for (int m = 0; m < session->layout.microbatches; m++) {
    int run;
    LS_TRY(ls_forward(session, rank, inputs, m, step, &run, error));
    const ls_program *program = ls_rank_program(rank, run);
    if (!gives_scores(program, ls_rank_number(rank))) continue;
    LS_TRY(take_scores(rank, run, scores + m * program->tokens, error));
  }
  return ls_all_reduce(ls_rank_world_group(rank), scores, tokens, LS_F64, LS_SUM, error);
}
