#include "session/repeat.h"

#include <math.h>
#include <stdlib.h>

#include "base/random.h"
#include "run/crew.h"
#include "session/loss_scale.h"

/* What the ranks of this process share. */
typedef struct repeating {
  ls_arena *arena; /* rank 0's thread alone uses it */
  const ls_session *session;
  const ls_repeat_options *options;
  ls_repeated *made;
} repeating;

/* Each token is drawn by its place in the batch, so that layouts see the same; each label is the
 * token after it. */
static void fill_inputs(const repeating *of, ls_rank *rank, int64_t step) {
  const ls_program *program = ls_rank_program(rank, LS_SESSION_STEP);
  const uint64_t vocabulary = (uint64_t)of->session->config.vocabulary;
  const int64_t sequence = of->session->sequence;
  for (int m = 0; m < of->session->layout.microbatches; m++) {
    const ls_view ids = ls_rank_view(rank, LS_SESSION_STEP, program->ids, m);
    const ls_view labels = ls_rank_view(rank, LS_SESSION_STEP, program->labels, m);
    const ls_view places = ls_rank_view(rank, LS_SESSION_STEP, program->positions, m);
    const int64_t first = m * program->tokens + ids.start[0];
    for (int64_t i = 0; i < ids.valid[0]; i++) {
      const uint64_t at = (uint64_t)(first + i);
      ((int32_t *)ids.data)[i] = (int32_t)(ls_random_bits(1, (uint64_t)step, at) % vocabulary);
      ((int32_t *)labels.data)[i] =
          (int32_t)(ls_random_bits(1, (uint64_t)step, at + 1) % vocabulary);
      ((int32_t *)places.data)[i] = (int32_t)((first + i) % sequence);
    }
  }
}

static ls_status run_step(const repeating *of, ls_rank *rank, int64_t step, ls_error *error) {
  static const ls_program_part parts[] = {LS_PROGRAM_PROLOGUE, LS_PROGRAM_PASSES, LS_PROGRAM_SETTLE,
                                          LS_PROGRAM_UPDATE};
  fill_inputs(of, rank, step);
  *ls_rank_cell(rank, LS_CELL_LEARNING_RATE) = of->session->run->train.lr;
  *ls_rank_cell(rank, LS_CELL_STEP) = (double)(step + 1);
  if (of->session->layout.compute == LS_F16)
    *ls_rank_cell(rank, LS_CELL_SCALE) = ls_loss_scale_start().scale;
  LS_TRY(ls_barrier(ls_rank_world_group(rank), error));
  for (size_t p = 0; p < sizeof parts / sizeof *parts; p++)
    LS_TRY(ls_rank_run_part(rank, LS_SESSION_STEP, parts[p], error));
  const double loss = *ls_rank_cell(rank, LS_CELL_MEAN_LOSS);
  if (isfinite(loss)) return LS_OK;
  return ls_fail(error, LS_FAILED, "step %lld: the loss is %g", (long long)step + 1, loss);
}

static double seconds_of(const ls_recording *recording) {
  int64_t end = 0;
  for (int r = 0; r < recording->ranks; r++)
    for (int64_t i = 0; i < recording->by_rank[r].count; i++)
      if (recording->by_rank[r].records[i].end_ns > end)
        end = recording->by_rank[r].records[i].end_ns;
  return 1e-9 * (double)end;
}

/* Records a step where it is one of those that count. */
static ls_status repeat_step(const repeating *of, ls_rank *rank, int step, ls_arena *scratch,
                             ls_error *error) {
  const bool first = ls_rank_number(rank) == 0, counts = step >= LS_RECORDING_WARM_STEPS;
  if (first && of->options->progress)
    of->options->progress(of->options->context, step, LS_RECORDING_WARM_STEPS + of->options->steps);
  if (counts) ls_rank_record(rank, true);
  LS_TRY(run_step(of, rank, step, error));
  if (!counts) return LS_OK;
  ls_rank_record(rank, false);
  ls_recording *recording;
  LS_TRY(ls_recording_gather(first ? of->arena : scratch, rank, step + 1, &recording, error));
  if (!first) return LS_OK;
  ls_repeated *made = of->made;
  made->seconds[made->count] = seconds_of(recording);
  made->recordings[made->count++] = recording;
  return LS_OK;
}

static ls_status repeat(const repeating *of, ls_rank *rank, ls_error *error) {
  LS_TRY(ls_session_initialise(of->session, rank, error));
  LS_TRY(ls_rank_record_room(rank, LS_SESSION_STEP, error));
  ls_peak peak;
  LS_TRY(ls_session_peak(of->session, rank, &peak, error));
  if (ls_rank_number(rank) == 0) of->made->peak = peak;
  const int steps = LS_RECORDING_WARM_STEPS + of->options->steps;
  for (int step = 0; step < steps; step++) {
    ls_arena *scratch = ls_arena_create();
    const ls_status status = repeat_step(of, rank, step, scratch, error);
    ls_arena_destroy(&scratch);
    LS_TRY(status);
  }
  if (ls_rank_number(rank) == 0 && of->options->progress)
    of->options->progress(of->options->context, steps, steps);
  return LS_OK;
}

static ls_status rank_body(ls_comm *comm, void *context, ls_error *error) {
  const repeating *of = context;
  ls_rank *rank;
  LS_TRY(ls_session_rank(of->session, comm, &rank, error));
  const ls_status status = repeat(of, rank, error);
  ls_rank_destroy(&rank);
  return status;
}

/* The step with as many shorter ones as longer ones; of an even count the shorter of two. */
static int median_of(const double *seconds, int count) {
  for (int i = 0; i < count; i++) {
    int below = 0;
    for (int j = 0; j < count; j++)
      below += seconds[j] < seconds[i] || (seconds[j] == seconds[i] && j < i);
    if (below == (count - 1) / 2) return i;
  }
  return 0;
}

ls_status ls_repeat_steps(ls_arena *arena, const ls_session *session, ls_world *world,
                          const ls_repeat_options *options, const ls_repeated **repeated,
                          ls_error *error) {
  repeating of = {.arena = arena, .session = session, .options = options};
  *repeated = NULL;
  of.made = LS_NEW(arena, ls_repeated);
  of.made->seconds = LS_NEW_ARRAY(arena, double, options->steps);
  of.made->recordings = LS_NEW_ARRAY(arena, ls_recording *, options->steps);
  LS_TRY(ls_crew_run(world, rank_body, &of, error));
  if (ls_world_first_here(world) != 0) return LS_OK;
  of.made->median = median_of(of.made->seconds, of.made->count);
  *repeated = of.made;
  return LS_OK;
}
