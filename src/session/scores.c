#include "session/scores.h"

#include <string.h>

#include "session/forward.h"

/* Of the ranks that have the same sequences, the first. */
static bool gives_scores(const ls_program *program, int rank) {
  const ls_axes data = ls_mesh_data(&program->mesh);
  return program->logits >= 0 &&
         ls_mesh_index(&program->mesh, rank,
                       ls_mesh_order(ls_mesh_inside(&program->mesh) & ~data)) == 0;
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
    const ls_view part = ls_rank_shape(rank, run, program->logits);
    LS_TRY(ls_rank_get(rank, run, program->logits, 0, scores + m * program->tokens + part.start[0],
                       part.valid[0], error));
  }
  return ls_all_reduce(ls_rank_world_group(rank), scores, tokens, LS_F64, LS_SUM, error);
}
