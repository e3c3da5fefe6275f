#include "train/evaluate_ranks.h"

#include "run/rank_threads.h"
#include "session/agree.h"

typedef struct job {
  const ls_session *session;
  ls_evaluate_body *body;
  void *context;
  int first;
} job;

typedef struct worker {
  const job *of;
  ls_rank *rank;
  ls_arena *arena;
} worker;

static ls_status work(void *context, ls_error *error) {
  const worker *self = context;
  const job *of = self->of;
  const ls_status status =
      ls_session_load_weights(of->session, self->rank, of->session->weights, NULL, error);
  LS_TRY(ls_agree(self->rank, status, error));
  return of->body(of->context, self->rank, self->arena, ls_rank_number(self->rank) == of->first,
                  error);
}

static ls_status rank_body(ls_comm *comm, void *context, ls_error *error) {
  worker self = {.of = context};
  LS_TRY(ls_session_rank(self.of->session, comm, &self.rank, error));
  self.arena = ls_arena_create();
  const ls_status status = ls_arena_guard(work, &self, false, error);
  ls_arena_destroy(&self.arena);
  ls_rank_destroy(&self.rank);
  return status;
}

static ls_status prove(void *context, ls_error *error) {
  const job *all = context;
  ls_session_proof proof;
  return all->session->run->check ? ls_session_prove(all->session, &proof, error) : LS_OK;
}

ls_status ls_evaluate_ranks(const ls_session *session, ls_world *world, ls_evaluate_body *body,
                            void *context, ls_error *error) {
  job all = {session, body, context, ls_world_first_here(world)};
  LS_ASSERT(session->weights);
  LS_TRY(ls_world_agree(world, ls_arena_guard(prove, &all, false, error), error));
  return ls_rank_threads_run(world, rank_body, &all, error);
}
