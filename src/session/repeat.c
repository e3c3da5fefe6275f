#include "session/repeat.h"

#include "base/random.h"
#include "base/sets.h"
#include "run/rank_threads.h"
#include "session/classes.h"
#include "session/step.h"
#include "session/vectors.h"

/* What the ranks of this process share. */
typedef struct repeating {
  ls_arena *arena; /* rank 0's thread alone uses it */
  const ls_session *session;
  const ls_repeat_options *options;
  ls_repeated *made;
} repeating;

/* Each token is drawn by its place in the batch, so that layouts see the same; each label is the
 * token after it. */
static ls_status take_tokens(void *context, int64_t step, int64_t first, int64_t count,
                             const ls_batch *batch, ls_error *error) {
  (void)error;
  const repeating *of = context;
  const ls_model_config *config = &of->session->config;
  const uint64_t vocabulary = (uint64_t)config->vocabulary;
  const uint64_t labels = config->classes ? (uint64_t)config->classes : vocabulary;
  const ls_text_pairs texts = ls_vectors_pairs(of->session->run);
  for (int64_t i = 0; i < count; i++) {
    const uint64_t at = (uint64_t)(first + i);
    batch->ids[i] = (int32_t)(ls_random_bits(1, (uint64_t)step, at) % vocabulary);
    batch->labels[i] = (int32_t)(ls_random_bits(1, (uint64_t)step, at + 1) % labels);
    if (config->vectors)
      batch->labels[i] =
          ls_vectors_label_of_chance(&texts, of->session->sequence, 1, step, first + i);
    batch->positions[i] = (int32_t)((first + i) % of->session->sequence);
    if (batch->sets)
      ls_set_of_chance(1, (uint64_t)step << 32 | at, config->classes,
                       batch->sets + i * ls_set_words(config->classes));
    const int64_t top = batch->top_ids ? of->session->told->about.top : 0;
    for (int64_t j = 0; j < top; j++) {
      batch->top_ids[i * top + j] = (int32_t)(j * (config->vocabulary / top));
      batch->top_below[i * top + j] = -(float)j / 8;
    }
  }
  return LS_OK;
}

static double rate_at(const void *context, int64_t step) {
  (void)step;
  const repeating *of = context;
  return of->session->run->train.lr;
}

static ls_status run_step(ls_steps *steps, ls_error *error) {
  LS_TRY(ls_barrier(ls_rank_world_group(steps->rank), error));
  LS_TRY(ls_steps_begin(steps, error));
  LS_TRY(ls_steps_passes(steps, false, error));
  return ls_steps_finish(steps, error);
}

static double seconds_of(const ls_recording *recording) {
  int64_t end = 0;
  for (int r = 0; r < recording->ranks; r++)
    for (int64_t i = 0; i < recording->by_rank[r].count; i++)
      if (recording->by_rank[r].records[i].end_ns > end)
        end = recording->by_rank[r].records[i].end_ns;
  return 1e-9 * (double)end;
}

static int warm_steps(const repeating *of) {
  return of->options->warm > 0 ? of->options->warm : LS_RECORDING_WARM_STEPS;
}

/* Records a step where it is one of those that count. One left out for an overflow has no update:
 * the next stands for it. */
static ls_status repeat_step(const repeating *of, ls_steps *steps, ls_arena *scratch,
                             ls_error *error) {
  ls_rank *rank = steps->rank;
  const int step = (int)(steps->step - steps->scale.skipped);
  const bool first = ls_rank_number(rank) == 0, counts = step >= warm_steps(of);
  if (first && of->options->progress)
    of->options->progress(of->options->context, step, warm_steps(of) + of->options->steps);
  if (counts) ls_rank_record(rank, true);
  LS_TRY(run_step(steps, error));
  if (!counts) return LS_OK;
  ls_rank_record(rank, false);
  if (steps->overflowed) return LS_OK;
  ls_recording *recording;
  LS_TRY(ls_recording_gather(first ? of->arena : scratch, rank, steps->step, &recording, error));
  if (!first) return LS_OK;
  ls_repeated *made = of->made;
  made->seconds[made->count] = seconds_of(recording);
  made->recordings[made->count++] = recording;
  return LS_OK;
}

static ls_status repeat(repeating *of, ls_rank *rank, ls_error *error) {
  LS_TRY(ls_session_initialise(of->session, rank, error));
  LS_TRY(ls_rank_record_room(rank, LS_SESSION_STEP, error));
  ls_peak peak = {0};
  if (!of->options->no_peak) LS_TRY(ls_session_peak(of->session, rank, &peak, error));
  if (ls_rank_number(rank) == 0) of->made->peak = peak;
  const int steps = warm_steps(of) + of->options->steps;
  const ls_inputs inputs = {
      .take = take_tokens, .context = of, .weights = of->session->run->classes.weight};
  ls_steps driver = ls_steps_of(rank, &inputs, rate_at, of);
  driver.policy = LS_STEPS_SKIP;
  driver.again = ls_session_step_again(of->session);
  while (driver.step - driver.scale.skipped < steps) {
    ls_arena *scratch = ls_arena_create();
    const ls_status status = repeat_step(of, &driver, scratch, error);
    ls_arena_destroy(&scratch);
    LS_TRY(status);
  }
  if (ls_rank_number(rank) == 0 && of->options->progress)
    of->options->progress(of->options->context, steps, steps);
  return LS_OK;
}

static ls_status rank_body(ls_comm *comm, void *context, ls_error *error) {
  repeating *of = context;
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
  LS_TRY(ls_rank_threads_run(world, rank_body, &of, error));
  if (ls_world_first_here(world) != 0) return LS_OK;
  of.made->median = median_of(of.made->seconds, of.made->count);
  *repeated = of.made;
  return LS_OK;
}
