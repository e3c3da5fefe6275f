#include "train/loop.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/stop.h"
#include "checkpoint/checkpoint.h"
#include "run/rank_threads.h"
#include "session/agree.h"
#include "session/learning_rate.h"
#include "session/rounds.h"
#include "session/step.h"
#include "session/teacher.h"
#include "store/weights_folder.h"
#include "train/advice.h"
#include "train/best.h"
#include "train/checkpoint_room.h"
#include "train/evaluate.h"
#include "train/event_file.h"
#include "train/metrics.h"
#include "train/references.h"
#include "train/samples.h"

/* What all ranks of this process share; written before they start. */
typedef struct training {
  const ls_session *session;
  const ls_dataset *dataset;
  const ls_train_options *options;
  ls_arena *arena;
  int first;             /* rank of this process */
  int ranks_here;        /* of this process */
  ls_run_folder *folder; /* of the process that has rank 0; else NULL */
  const char *run_text;  /* the resolved run file */
  const char *base;      /* a glance at the weights that a resumed run needs again; NULL: none */
  ls_metrics *metrics;   /* rank 0's, once it has begun */
  ls_event_file *events; /* likewise, where asked for and they can be written */
  ls_pruner *pruner;     /* likewise */
  ls_samples *samples;   /* NULL: none are asked for */
} training;

enum { REWARDS = LS_CELL_COUNT - LS_CELL_REWARD_CHOSEN };

/* One rank in the loop. */
typedef struct trainer {
  training *of;
  ls_rank *rank;
  ls_arena *arena;
  ls_dataset dataset;      /* that of all, of pairs with what the reference makes of them */
  double rewards[REWARDS]; /* of the step that is told next, of pairs, or of a teacher */
  ls_loads_told loads;     /* likewise, of experts */
  ls_steps steps;
  ls_learning_rate rate;
  ls_peak peak;
  ls_best_evaluation best;
  bool ended;       /* early: evaluations have become no better */
  int64_t traced;   /* the step that is recorded; 0: none */
  int64_t told;     /* steps whose line is out */
  double begun_s;   /* when the time of the step began */
  double accuracy;  /* of the evaluation after the step, of a classifier; else NaN */
  bool interrupted; /* a stop came amid the evaluation after the step */
  bool taken;       /* the run folder is this run's: nothing of another is in the way */
  ls_error lost;    /* why a step could not be told: training stops for it, its state saved */
} trainer;

static bool is_first(const trainer *self) {
  return ls_rank_number(self->rank) == 0;
}

static bool scales_loss(const trainer *self) {
  return self->of->session->layout.compute == LS_F16;
}

/* Of the first rank's device or, where that is the host, of this process. */
static int64_t bytes_in_use(const ls_session *session) {
  struct rusage usage;
  if (session->device.memory->used) return session->device.memory->used();
  return getrusage(RUSAGE_SELF, &usage) == 0 ? (int64_t)usage.ru_maxrss * 1024 : 0;
}

static bool is_due(const trainer *self, int64_t step, int64_t every) {
  if (step == self->of->session->run->train.steps) return true;
  return every > 0 && step % every == 0;
}

/* Whether the evaluation part is looked at after the step that was just made. */
static bool evaluates(const trainer *self) {
  const training *of = self->of;
  const int64_t every = of->session->run->eval.every;
  return of->dataset->evaluation.sequences > 0 && every > 0 &&
         is_due(self, self->steps.step, every);
}

/* A picture that cannot be drawn ends no run. */
static void tell_events(training *of, const ls_metrics_step *step) {
  ls_error error = {0};
  if (!of->events || ls_event_file_write(of->events, step, &error) == LS_OK) return;
  ls_warn("%s; no more events are written for TensorBoard", error.text);
  ls_event_file_close(&of->events);
}

static void open_events(training *of, int64_t steps_done) {
  ls_error error = {0};
  if (!of->session->run->tensorboard || of->events) return;
  const char *folder = ls_arena_printf(of->arena, "%s/tensorboard", of->session->run->out);
  if (ls_event_file_open(folder, steps_done, &of->events, &error) == LS_OK) return;
  ls_warn("%s; no events are written for TensorBoard", error.text);
}

static bool tells_accuracy(const ls_session *session) {
  return session->config.classes > 0 || session->config.vectors;
}

static ls_status report(trainer *self, double loss, double norm, double seconds, double evaluation,
                        ls_error *error) {
  const int64_t step = self->told;
  training *of = self->of;
  const ls_session *session = of->session;
  const int64_t tokens = session->batch * session->sequence;
  const ls_metrics_step made = {
      .step = step,
      .epoch = ls_order_epoch(&of->dataset->training, step),
      .tokens = step * tokens,
      .loss = loss,
      .grad_norm = norm,
      .learning_rate = ls_learning_rate_at(&self->rate, step - 1),
      .step_seconds = seconds,
      .tokens_per_second = (double)tokens / seconds,
      .tokens_per_second_per_device = (double)tokens / seconds / session->devices,
      .mfu = ls_peak_share(&self->peak, session->programs[LS_SESSION_STEP]->flops / seconds),
      .memory_bytes = bytes_in_use(session),
      .validation_loss = evaluation,
      .classifies = tells_accuracy(session),
      .validation_accuracy = self->accuracy,
      .validation_interrupted = self->interrupted,
      .validation_lowest = self->best.step == step,
      .loss_scale = scales_loss(self) ? ls_rank_cell(self->rank, LS_CELL_SCALE) : NAN,
      .pairs = of->dataset->pairs,
      .reward_chosen = self->rewards[0],
      .reward_rejected = self->rewards[1],
      .preferred = self->rewards[2],
      .taught = ls_session_is_taught(session),
      .cross_entropy = self->rewards[0],
      .divergence = self->rewards[1],
      .expert_load = self->loads.fullest,
      .fullest_layer = self->loads.layer,
      .experts_idle = self->loads.idle,
      .drops = self->loads.drops,
      .dropped = self->loads.dropped,
      .skipped = self->steps.scale.skipped,
      .repeated = self->steps.repeated};
  if (of->options->report) of->options->report(of->options->context, &made);
  tell_events(of, &made);
  return ls_metrics_write(of->metrics, &made, error);
}

static ls_status save(const trainer *self, ls_error *error) {
  const training *of = self->of;
  const ls_run_file *run = of->session->run;
  const int64_t sequences = self->steps.step * of->session->batch;
  char loss_scale[LS_LOSS_SCALE_BYTES];
  ls_loss_scale_write(loss_scale, &self->steps.scale);
  const ls_checkpoint_extra extra = {.run_text = of->run_text,
                                     .tokenizer = of->options->tokenizer,
                                     .chat = of->options->tokenizer ? of->dataset->chat : NULL,
                                     .tokens = sequences * of->session->sequence,
                                     .sequences = sequences,
                                     .corpus = of->dataset->fingerprint,
                                     .base = of->base,
                                     .best = ls_best_is_asked(run) ? &self->best : NULL,
                                     .loss_scale = scales_loss(self) ? loss_scale : NULL};
  const ls_status status =
      ls_checkpoint_save(of->session, self->rank, run->out, self->steps.step, &extra, error);
  if (status != LS_OK) {
    ls_error_prefix(error, "step %lld: its checkpoint cannot be saved",
                    (long long)self->steps.step);
    return status == LS_INPUT ? LS_FAILED : status; /* what was right when the run began */
  }
  if (run->checkpoint.best && self->best.step == self->steps.step)
    LS_TRY(ls_agree(
        self->rank,
        is_first(self) ? ls_checkpoint_point_best(run->out, self->best.step, error) : LS_OK,
        error));
  ls_pruner_ask(of->pruner);
  return LS_OK;
}

/* Counts in the evaluation after the step; *lowest: it is below all before. Collective. */
static ls_status judge(trainer *self, double loss, bool *lowest, ls_error *error) {
  const ls_run_file *run = self->of->session->run;
  *lowest = false;
  if (!ls_best_is_asked(run)) return LS_OK;
  const bool own = ls_best_judge(&self->best, &run->eval, self->steps.step, loss);
  const bool ends = ls_best_ends(&self->best, &run->eval);
  LS_TRY(ls_agree_any(self->rank, is_first(self) && own, "whether it is the best", lowest, error));
  return ls_agree_any(self->rank, is_first(self) && ends, "whether to end early", &self->ended,
                      error);
}

static bool is_asked_to_stop(const trainer *self) {
  return self->lost.status != LS_OK || ls_stop_asked();
}

static ls_status agree_to_stop(const trainer *self, bool *stop, ls_error *error) {
  if (!ls_steps_validates(&self->steps))
    return ls_agree_any(self->rank, is_asked_to_stop(self), "whether to stop", stop, error);
  *stop = ls_rank_cell(self->rank, LS_CELL_STOP) > 0; /* it went with the norm */
  return LS_OK;
}

/* The third step from here, or the last where there are fewer. */
static ls_status prepare_trace(trainer *self, ls_error *error) {
  const ls_run_file *run = self->of->session->run;
  if (!run->trace || self->steps.step >= run->train.steps) return LS_OK;
  self->traced = self->steps.step + LS_RECORDING_WARM_STEPS + 1;
  if (self->traced > run->train.steps) self->traced = run->train.steps;
  return ls_rank_record_room(self->rank, LS_SESSION_STEP, error);
}

/* After the traced step, outside its time. */
static ls_status finish_trace(const trainer *self, ls_error *error) {
  const ls_train_options *options = self->of->options;
  if (self->steps.step != self->traced) return LS_OK;
  ls_rank_record(self->rank, false);
  ls_arena *arena = ls_arena_create();
  ls_recording *recording;
  ls_status status = ls_recording_gather(arena, self->rank, self->steps.step, &recording, error);
  if (status == LS_OK && recording && options->traced)
    status = options->traced(options->context, recording, error);
  ls_arena_destroy(&arena);
  return status;
}

/* The next step's line, on the screen and in the file. Without it the state is still good: it is
 * saved. */
static void tell_step(trainer *self, double loss, double norm, double seconds, double evaluation) {
  self->told++;
  if (!is_first(self) || self->lost.status != LS_OK) return;
  ls_error error = {0};
  const ls_status status = report(self, loss, norm, seconds, evaluation, &error);
  if (status == LS_OK) return;
  self->lost = error;
  self->lost.status = status;
}

/* The folder is this run's: its metrics go on, what is in the way of its checkpoints goes away. */
static ls_status settle_folder(const trainer *self, ls_error *error) {
  training *of = self->of;
  const ls_run_file *run = of->session->run;
  if (!self->steps.step) LS_TRY(ls_run_folder_keep_lines(of->folder, run->out, error));
  ls_arena *arena = ls_arena_create();
  const ls_status status = ls_metrics_open(ls_arena_printf(arena, "%s/metrics.jsonl", run->out),
                                           self->steps.step, &of->metrics, error);
  ls_arena_destroy(&arena);
  LS_TRY(status);
  open_events(of, self->steps.step);
  ls_checkpoint_clear(run->out);
  if (self->steps.step) LS_TRY(ls_checkpoint_set_aside(run->out, self->steps.step, error));
  if (run->checkpoint.best) LS_TRY(ls_best_settle(run->out, &self->best, error));
  if (of->samples) LS_TRY(ls_samples_begin(of->samples, self->steps.step, error));
  of->pruner = ls_pruner_start(run->out, run->checkpoint.keep);
  ls_pruner_ask(of->pruner); /* what there is too much of may not be in the way of the next */
  return LS_OK;
}

static const char *text_of(ls_arena *arena, const ls_run_file *run) {
  return ls_run_file_text(arena, ls_run_file_absolute(arena, run));
}

/* With --fresh, after the first step: until then nothing of the run that was there is touched. */
static ls_status take_folder(const trainer *self, ls_error *error) {
  training *of = self->of;
  const char *kept;
  LS_TRY(ls_run_folder_take(of->folder, of->session->run, &kept, error));
  if (kept) ls_warn("the checkpoints that were in %s are kept in %s", of->session->run->out, kept);
  of->run_text = text_of(of->folder->arena, of->session->run);
  return settle_folder(self, error);
}

/* Of the step whose loss is known, before an evaluation has other pairs. */
static void note_rewards(trainer *self) {
  const double pairs = ls_rank_cell(self->rank, LS_CELL_VALID_TOKENS);
  const int told = self->of->dataset->pairs                  ? REWARDS
                   : ls_session_is_taught(self->of->session) ? 2
                                                             : 0;
  for (int r = 0; r < told; r++)
    self->rewards[r] = ls_rank_cell(self->rank, (ls_cell)((int)LS_CELL_REWARD_CHOSEN + r)) / pairs;
}

/* A step whose loss is known once the next one is under way, and which nothing else waits for. */
static void tell_known(trainer *self) {
  if (!self->steps.ahead || self->told == self->steps.known) return;
  const double now_s = ls_now_s();
  note_rewards(self);
  tell_step(self, ls_rank_cell(self->rank, LS_CELL_MEAN_LOSS),
            ls_rank_cell(self->rank, LS_CELL_NORM), now_s - self->begun_s, NAN);
  self->begun_s = now_s;
}

/* Whether more than a line follows the step that was just made, so that its end is waited for. */
static bool has_end(const trainer *self) {
  const ls_run_file *run = self->of->session->run;
  const int64_t step = self->steps.step;
  return !self->steps.ahead || step == self->traced || step + 1 == self->traced ||
         is_due(self, step, run->checkpoint.every) || evaluates(self) ||
         (self->of->options->fresh != LS_FRESH_NO && !self->taken);
}

static ls_status evaluate(const trainer *self, ls_evaluation *found, ls_error *error) {
  const training *of = self->of;
  const ls_evaluating told = {of->options->evaluating, of->options->context};
  LS_TRY(ls_evaluate(of->session, &self->dataset, self->rank, &told, found, error));
  if (!of->samples || found->interrupted) return LS_OK;
  LS_TRY(ls_samples_make(of->samples, self->rank, self->steps.step, &found->interrupted, error));
  if (found->interrupted) found->loss = found->accuracy = NAN; /* all of it comes again */
  return LS_OK;
}

/* What the evaluation had made. Collective. */
static ls_status write_samples(const trainer *self, ls_error *error) {
  const training *of = self->of;
  const ls_train_options *told = of->options;
  if (!of->samples) return LS_OK;
  ls_status own = LS_OK;
  if (is_first(self))
    own = ls_samples_write(of->samples, self->steps.step, told->sampled, told->context, error);
  return ls_agree(self->rank, own, error);
}

static ls_status end_step(trainer *self, bool *stop, ls_error *error) {
  const training *of = self->of;
  const ls_run_file *run = of->session->run;
  LS_TRY(ls_steps_settle(&self->steps, error));
  const double loss = ls_rank_cell(self->rank, LS_CELL_MEAN_LOSS);
  const double norm = ls_rank_cell(self->rank, LS_CELL_NORM);
  note_rewards(self);
  LS_TRY(ls_loads_read(self->steps.loads, &self->loads, error));
  const double seconds = ls_now_s() - self->begun_s;
  if (self->of->options->fresh != LS_FRESH_NO && !self->taken)
    LS_TRY(ls_agree(self->rank, is_first(self) ? take_folder(self, error) : LS_OK, error));
  self->taken = true;
  LS_TRY(finish_trace(self, error));
  ls_evaluation evaluation = {.loss = NAN, .accuracy = NAN};
  bool lowest = false;
  if (evaluates(self)) LS_TRY(evaluate(self, &evaluation, error));
  self->interrupted = evaluation.interrupted;
  self->accuracy = evaluation.accuracy;
  if (evaluates(self) && !evaluation.interrupted)
    LS_TRY(judge(self, evaluation.loss, &lowest, error));
  if (self->told < self->steps.step) tell_step(self, loss, norm, seconds, evaluation.loss);
  if (evaluates(self) && !self->interrupted) LS_TRY(write_samples(self, error));
  if (!*stop) LS_TRY(agree_to_stop(self, stop, error));
  const bool due = is_due(self, self->steps.step, run->checkpoint.every);
  const bool saves = *stop || self->ended || (lowest && run->checkpoint.best) || due;
  return saves ? save(self, error) : LS_OK;
}

static ls_status finish_step(trainer *self, bool *stop, ls_error *error) {
  tell_known(self);
  if (has_end(self)) return end_step(self, stop, error);
  LS_TRY(agree_to_stop(self, stop, error));
  return *stop ? end_step(self, stop, error) : LS_OK;
}

enum { PATH_BYTES = PATH_MAX, SHOWN_BYTES = 100000000 }; /* less is read in no time */

static ls_status take_path(const char *folder, char path[PATH_BYTES], ls_error *error) {
  *path = 0;
  if (folder && strlen(folder) >= PATH_BYTES)
    return ls_fail(error, LS_INPUT, "%s: the path is too long", folder);
  if (folder) snprintf(path, PATH_BYTES, "%s", folder);
  return LS_OK;
}

/* What all ranks begin with: a checkpoint and its step, or none; whether the weights that are there
 * instead were written by a run, so that they have checksums. */
typedef struct origin {
  int64_t step, sealed;
  char path[PATH_BYTES];
} origin;
_Static_assert(sizeof(origin) % sizeof(int64_t) == 0, "it goes to all ranks as numbers");

typedef struct search {
  const trainer *self;
  bool again; /* the newest is damaged */
  origin found;
} search;

static ls_status find_newest(void *context, ls_round_message *message, ls_error *error) {
  (void)message;
  search *on = context;
  const training *of = on->self->of;
  ls_arena *arena = ls_arena_create();
  const char *folder = of->folder->checkpoint;
  ls_status status = LS_OK;
  if (!on->again)
    on->found.step = of->folder->step;
  else
    status = ls_checkpoint_newest(arena, of->session->run->out, on->found.step, &folder,
                                  &on->found.step, error);
  if (status == LS_OK && on->again && !folder)
    status = ls_checkpoint_none_good(of->session->run->out, error);
  if (status == LS_OK) status = take_path(folder, on->found.path, error);
  on->found.sealed = of->session->weights && ls_checkpoint_is_sealed(arena, of->session->weights);
  ls_arena_destroy(&arena);
  return status;
}

static ls_status share_origin(void *context, ls_round_message *message, ls_error *error) {
  (void)error;
  search *on = context;
  *message =
      (ls_round_message){.own = &on->found, .count = (int64_t)(sizeof on->found / sizeof(int64_t))};
  return LS_OK;
}

/* The newest checkpoint that has every byte as it was written, which all ranks look at together; an
 * empty path where there is none. Collective. */
static ls_status find_checkpoint(const trainer *self, origin *found, ls_error *error) {
  static ls_round_work *const work[LS_FIND_ROUND_COUNT] = {
      [LS_FIND_NEWEST] = find_newest, [LS_FIND_SHARE] = share_origin};
  search on = {.self = self};
  for (;; on.again = true) {
    ls_error damage = {0};
    LS_TRY(ls_rounds_run(self->rank, &ls_find_rounds, work, &on, error));
    *found = on.found;
    if (!*found->path) return LS_OK;
    const ls_status status =
        ls_checkpoint_verify_together(self->rank, found->path, LS_SEALED_ALL, &damage);
    if (status == LS_OK) return LS_OK;
    if (status != LS_INPUT) return ls_fail(error, status, "%s", damage.text);
    if (is_first(self)) ls_warn("%s", damage.text);
  }
}

static ls_status begin(const trainer *self, const char *where_from, ls_error *error) {
  const ls_train_options *options = self->of->options;
  const int64_t steps = self->of->session->run->train.steps;
  if (options->fresh == LS_FRESH_NO) LS_TRY(settle_folder(self, error));
  if (options->begin) options->begin(options->context, self->steps.step, steps, where_from);
  if (options->tokenizer && self->steps.step < steps)
    ls_session_advise(self->of->session, self->of->dataset, options->tokenizer);
  return LS_OK;
}

/* Going on with other texts would see some sequences twice, and be asked about what it has seen. */
static ls_status check_corpus(const trainer *self, const char *folder,
                              const ls_checkpoint_state *state, ls_error *error) {
  const ls_run_file *run = self->of->session->run;
  const char *now = self->of->dataset->fingerprint;
  const bool same = !*state->corpus || strcmp(state->corpus, now) == 0;
  if (same || run->data.on_change == LS_RUN_CHANGE_ALLOW) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s: is not the text that %s was trained on (fingerprint %s, then %s): bring that "
                 "back, give data.on_change=allow to go on with this one, or --fresh to start anew",
                 ls_run_file_where(run, "data.text"), folder, now, state->corpus);
}

/* A checkpoint has not what adapters are beside, what answers were preferred beyond, nor what
 * taught. */
static ls_status check_base(const trainer *self, const char *folder,
                            const ls_checkpoint_state *state, ls_error *error) {
  const char *now = self->of->base;
  const ls_session *session = self->of->session;
  if (!now || !*state->base || strcmp(state->base, now) == 0) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s: has other %s now than those that %s was trained beside: bring these "
                 "back, or give --fresh to start anew",
                 ls_run_file_where(session->run, session->told      ? "distill.logits"
                                                 : session->teacher ? "teacher"
                                                                    : "model"),
                 session->told ? "logits" : "weights", folder);
}

static ls_status load_checkpoint(trainer *self, const char *folder, int64_t *bytes,
                                 ls_error *error) {
  ls_checkpoint_state state;
  LS_TRY(ls_checkpoint_load(self->of->session, self->rank, folder, &state, error));
  self->steps.step = state.step;
  *bytes = state.bytes_read;
  LS_TRY(check_corpus(self, folder, &state, error));
  LS_TRY(check_base(self, folder, &state, error));
  self->best = state.best;
  self->ended = ls_best_ends(&self->best, &self->of->session->run->eval);
  if (!scales_loss(self) || !*state.loss_scale) return LS_OK;
  ls_status status = ls_loss_scale_read(state.loss_scale, &self->steps.scale, error);
  if (status == LS_OK && self->steps.scale.skipped > state.step)
    status = ls_fail(error, LS_INPUT, "loss scale: found %lld skipped steps; expected at most %lld",
                     (long long)self->steps.scale.skipped, (long long)state.step);
  if (status != LS_OK) ls_error_prefix(error, "%s/state.json", folder);
  return status;
}

/* Weights that a run wrote have checksums; others are as they are. Collective. */
static ls_status verify_start(const trainer *self, const origin *from, ls_error *error) {
  const char *folder = self->of->session->weights;
  if (*from->path || !from->sealed) return LS_OK;
  if (!self->of->options->trust)
    return ls_checkpoint_verify_together(self->rank, folder, LS_SEALED_WEIGHTS, error);
  if (is_first(self)) ls_warn("%s: its checksums are not looked at (--trust)", folder);
  return LS_OK;
}

typedef struct filling {
  trainer *self;
  const origin *from;
  double began_s;
  char text[PATH_BYTES + 512]; /* says from what */
} filling;

/* Fills the parameters. */
static ls_status fill(void *context, ls_round_message *message, ls_error *error) {
  (void)message;
  filling *on = context;
  trainer *self = on->self;
  const ls_session *session = self->of->session;
  char *text = on->text;
  int64_t bytes = 0;
  if (*on->from->path) {
    LS_TRY(load_checkpoint(self, on->from->path, &bytes, error));
    snprintf(text, sizeof on->text, "resuming after step %lld from %s", (long long)self->steps.step,
             on->from->path);
  } else if (session->weights) {
    LS_TRY(ls_session_load_weights(session, self->rank, session->weights, &bytes, error));
    snprintf(text, sizeof on->text, "starting from the weights in %s", session->weights);
  } else {
    LS_TRY(ls_session_initialise(session, self->rank, error));
    snprintf(text, sizeof on->text, "starting from scratch, seed %lld",
             (long long)session->run->train.seed);
  }
  if (bytes >= SHOWN_BYTES)
    snprintf(text + strlen(text), sizeof on->text - strlen(text), " (%s%.1f GB in %.1f s)",
             session->devices > 1 ? "each rank " : "", 1e-9 * (double)bytes,
             ls_now_s() - on->began_s);
  return LS_OK;
}

typedef struct beginning {
  trainer *self;
  const char *where_from;
  int64_t repeats; /* an evaluation */
} beginning;

static ls_status begin_run(void *context, ls_round_message *message, ls_error *error) {
  (void)message;
  const beginning *on = context;
  const ls_train_options *options = on->self->of->options;
  LS_TRY(prepare_trace(on->self, error));
  if (!is_first(on->self)) return LS_OK;
  LS_TRY(begin(on->self, on->where_from, error));
  if (options->measured) options->measured(options->context, &on->self->peak);
  return LS_OK;
}

static ls_status share_repeats(void *context, ls_round_message *message, ls_error *error) {
  (void)error;
  beginning *on = context;
  const training *of = on->self->of;
  on->repeats = is_first(on->self) && of->metrics &&
                ls_metrics_validation_interrupted(of->metrics) &&
                of->dataset->evaluation.sequences > 0 && of->session->run->eval.every > 0;
  *message = (ls_round_message){.own = &on->repeats, .count = 1};
  return LS_OK;
}

static ls_status add_validation(const trainer *self, const ls_evaluation *found, ls_error *error) {
  training *of = self->of;
  const double loss = found->loss;
  if (!is_first(self)) return LS_OK;
  if (of->options->evaluated) of->options->evaluated(of->options->context, self->steps.step, found);
  tell_events(of, &(ls_metrics_step){.step = self->steps.step,
                                     .epoch = NAN,
                                     .loss = NAN,
                                     .grad_norm = NAN,
                                     .learning_rate = NAN,
                                     .tokens_per_second = NAN,
                                     .mfu = NAN,
                                     .validation_loss = loss,
                                     .classifies = tells_accuracy(of->session),
                                     .validation_accuracy = found->accuracy});
  return ls_metrics_add_validation(of->metrics, loss, found->accuracy, error);
}

/* The checkpoint that the run resumes from was saved before its evaluation was known: it is saved
 * with it, before metrics.jsonl has it, so that a kill between the two repeats it once more. */
static ls_status judge_again(trainer *self, double loss, ls_error *error) {
  bool lowest;
  if (!ls_best_is_asked(self->of->session->run) || self->best.judged == self->steps.step)
    return LS_OK;
  LS_TRY(judge(self, loss, &lowest, error));
  return save(self, error);
}

/* Repeats the evaluation of the step that the run resumes after, if a stop interrupted it.
 * Interrupted again, the run ends before its first step; its checkpoint is as it was. */
static ls_status begin_all(trainer *self, const char *where_from, bool *stop, ls_error *error) {
  static ls_round_work *const work[LS_BEGIN_ROUND_COUNT] = {
      [LS_BEGIN_RUN] = begin_run, [LS_BEGIN_AGAIN] = share_repeats};
  beginning on = {.self = self, .where_from = where_from};
  LS_TRY(ls_rounds_run(self->rank, &ls_begin_rounds, work, &on, error));
  if (!on.repeats) return LS_OK;
  const bool cuts = self->of->samples && is_first(self); /* written before a kill, perhaps */
  LS_TRY(ls_agree(self->rank,
                  cuts ? ls_samples_begin(self->of->samples, self->steps.step - 1, error) : LS_OK,
                  error));
  ls_evaluation evaluation;
  LS_TRY(evaluate(self, &evaluation, error));
  *stop = evaluation.interrupted;
  if (*stop) return LS_OK;
  LS_TRY(judge_again(self, evaluation.loss, error));
  LS_TRY(write_samples(self, error));
  return ls_agree(self->rank, add_validation(self, &evaluation, error), error);
}

static double rate_at(const void *context, int64_t step) {
  const ls_learning_rate *rate = context;
  return ls_learning_rate_at(rate, step);
}

/* What the run begins with, also where it resumes. */
static ls_status make_references(trainer *self, ls_error *error) {
  const training *of = self->of;
  const ls_session *session = of->session;
  const ls_evaluating told = {of->options->evaluating, of->options->context};
  if (session->run->task != LS_RUN_DPO) return LS_OK;
  const ls_status status =
      ls_session_load_weights(session, self->rank, session->weights, NULL, error);
  LS_TRY(ls_agree(self->rank, status, error));
  return ls_references_make(self->arena, session, of->dataset, self->rank, &told, &self->dataset,
                            error);
}

static ls_status start(trainer *self, bool *stop, ls_error *error) {
  const training *of = self->of;
  const ls_session *session = of->session;
  ls_inputs inputs = ls_inputs_of_order(&self->dataset.training);
  inputs.seed = (uint64_t)session->run->train.seed;
  inputs.weights = session->run->classes.weight;
  self->steps = ls_steps_of(self->rank, &inputs, rate_at, &self->rate);
  self->steps.again = ls_session_step_again(self->of->session);
  self->steps.policy = LS_STEPS_SKIP;
  static ls_round_work *const work[LS_FILL_ROUND_COUNT] = {[LS_FILL] = fill};
  origin from;
  filling on = {.self = self, .from = &from, .began_s = ls_now_s()};
  LS_TRY(find_checkpoint(self, &from, error));
  LS_TRY(verify_start(self, &from, error));
  LS_TRY(make_references(self, error));
  LS_TRY(ls_rounds_run(self->rank, &ls_fill_rounds, work, &on, error));
  char *text = on.text;
  const ls_tiers *tiers = ls_rank_tiers(self->rank);
  const char *note = tiers ? ls_tiers_note(tiers) : NULL;
  if (note) snprintf(text + strlen(text), sizeof on.text - strlen(text), "; %s", note);
  LS_TRY(ls_session_peak(session, self->rank, &self->peak, error));
  self->rate = ls_learning_rate_of(session->run);
  LS_TRY(ls_loads_open(self->arena, self->rank, session->graph, session->config.balance.bias_rate,
                       &self->steps.loads, error));
  return begin_all(self, text, stop, error);
}

/* Whether the step after `step` others is settled before the next begins. */
static bool closes(const trainer *self, int64_t step) {
  const ls_run_file *run = self->of->session->run;
  return !ls_steps_validates(&self->steps) || step == self->traced || step + 1 == self->traced ||
         is_due(self, step, run->eval.every) || is_due(self, step, run->checkpoint.every);
}

static ls_status close_step(trainer *self, bool *stop, ls_error *error) {
  LS_TRY(ls_steps_finish(&self->steps, error));
  LS_TRY(finish_step(self, stop, error));
  if (!self->steps.ahead || self->told == self->steps.step) self->begun_s = ls_now_s();
  return LS_OK;
}

/* The next step's passes, and the end of the step that was open. */
static ls_status run_step(trainer *self, bool *stop, ls_error *error) {
  ls_steps *steps = &self->steps;
  const int64_t now = steps->step + steps->open + 1;
  if (now == self->traced) ls_rank_record(self->rank, true);
  LS_TRY(ls_steps_begin(steps, error));
  if (steps->open) LS_TRY(close_step(self, stop, error));
  if (*stop) return LS_OK;
  LS_TRY(ls_steps_passes(steps, is_asked_to_stop(self), error));
  return closes(self, now) ? close_step(self, stop, error) : ls_steps_speculate(steps, error);
}

static void tell_end(const trainer *self) {
  const ls_train_options *options = self->of->options;
  const int64_t step = self->steps.step;
  if (is_first(self) && options->ended)
    options->ended(options->context, step, step < self->of->session->run->train.steps, &self->best);
}

static ls_status run_loop(void *context, ls_error *error) {
  trainer *self = context;
  bool stop = false;
  LS_TRY(start(self, &stop, error));
  ls_steps_run_ahead(&self->steps);
  self->told = self->steps.step;
  self->begun_s = ls_now_s();
  while (self->steps.step < self->of->session->run->train.steps && !stop && !self->ended)
    LS_TRY(run_step(self, &stop, error));
  if (!stop) tell_end(self);
  if (!stop) return LS_OK;
  if (error) *error = self->lost;
  LS_TRY(ls_agree(self->rank, self->lost.status, error));
  return ls_fail(error, LS_STOPPED, "stopped after step %lld; its checkpoint is saved",
                 (long long)self->steps.step);
}

static ls_status rank_body(ls_comm *comm, void *context, ls_error *error) {
  trainer self = {.of = context};
  self.dataset = *self.of->dataset;
  LS_TRY(ls_session_rank(self.of->session, comm, &self.rank, error));
  self.arena = ls_arena_create();
  const ls_status status = ls_arena_guard(run_loop, &self, false, error);
  ls_rank_destroy(&self.rank);
  ls_arena_destroy(&self.arena);
  return status;
}

static ls_status prove(const training *all, ls_error *error) {
  if (!all->session->run->check) return LS_OK;
  ls_session_proof proof;
  LS_TRY(ls_session_prove(all->session, &proof, error));
  if (all->options->proved) all->options->proved(all->options->context, &proof);
  return LS_OK;
}

static ls_status glance_at_base(training *all, ls_error *error) {
  const ls_session *session = all->session;
  const bool prefers = session->run->task == LS_RUN_DPO;
  const char *folders[3] = {session->config.lora_rank ? session->config.base : NULL,
                            prefers ? session->weights : NULL,
                            session->teacher ? session->run->teacher : NULL};
  ls_checksum sum = {0};
  if (!session->config.lora_rank && !prefers && !ls_session_is_taught(session)) return LS_OK;
  for (int f = 0; f < 3; f++)
    if (folders[f]) LS_TRY(ls_weights_folder_glance(all->arena, folders[f], &sum, error));
  const uint64_t told = session->told ? ls_top_logits_glance(session->told) : 0;
  ls_checksum_add(&sum, 0, &told, session->told ? sizeof told : 0);
  char text[LS_CHECKSUM_DIGITS + 1];
  ls_checksum_text(&sum, text);
  all->base = ls_arena_strdup(all->arena, text);
  return LS_OK;
}

/* The run's folder is this run's now, and what it will save has its place there. */
static ls_status open_folder(training *all, ls_error *error) {
  const ls_session *session = all->session;
  LS_TRY(ls_run_folder_open(all->arena, session->run, all->options->fresh, &all->folder, error));
  if (session->run->checkpoint.best) LS_TRY(ls_checkpoint_check_best(session->run->out, error));
  return ls_checkpoint_check_room(session, all->folder, error);
}

static ls_status prepare(void *context, ls_error *error) {
  training *all = context;
  all->run_text = text_of(all->arena, all->session->run);
  LS_TRY(ls_teacher_tell(all->arena, all->session, &all->dataset, error));
  LS_TRY(ls_best_check(all->session->run, all->dataset->evaluation.sequences > 0, error));
  LS_TRY(prove(all, error));
  LS_TRY(glance_at_base(all, error));
  LS_TRY(ls_samples_open(all->arena, all->session, all->dataset, all->options->tokenizer,
                         all->ranks_here, &all->samples, error));
  return all->first == 0 ? open_folder(all, error) : LS_OK;
}

ls_status ls_train(const ls_session *session, const ls_dataset *dataset, ls_world *world,
                   const ls_train_options *options, ls_error *error) {
  training all = {.session = session, .dataset = dataset, .options = options};
  ls_error unread;
  if (!error) error = &unread;
  if (session->run->trace && !options->traced)
    return ls_fail(error, LS_INPUT,
                   "%s: timelines are written by lockstep train, not by this program: give "
                   "trace=false",
                   ls_run_file_where(session->run, "trace"));
  all.first = ls_world_first_here(world);
  all.ranks_here = ls_world_count_here(world);
  all.arena = ls_arena_create();
  ls_status status = ls_world_agree(world, ls_arena_guard(prepare, &all, false, error), error);
  if (status == LS_OK) status = ls_rank_threads_run(world, rank_body, &all, error);
  ls_metrics_close(&all.metrics);
  ls_event_file_close(&all.events);
  ls_pruner_stop(&all.pruner);
  ls_samples_close(&all.samples);
  ls_run_folder_close(&all.folder);
  ls_arena_destroy(&all.arena);
  return status;
}
