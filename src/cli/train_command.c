#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "checkpoint/checkpoint.h"
#include "cli/command.h"
#include "cli/hardware.h"
#include "cli/train_trace.h"
#include "cli/tuning.h"
#include "cluster/machine.h"
#include "lower/budget.h"
#include "session/agree.h"
#include "session/fit.h"
#include "session/offload_room.h"
#include "session/teacher.h"
#include "text/quote.h"
#include "train/loop.h"
#include "watch/progress.h"

static const char help[] =
    "usage: lockstep train RUN.yaml|RUN [key=value ...] [-n DEVICES] [--fresh[=delete]]\n\n"
    "Trains the model the run file names, on as many devices as its mesh has; resumes by itself\n"
    "from the newest checkpoint in `out`. Any key can be set on the command line. RUN, the folder\n"
    "of a run, goes on with it from anywhere: its resolved.yaml has every path in full; with "
    "another\n"
    "-n its data-parallel axis follows. Paths in a run file are seen from the working folder.\n"
    "`lockstep help resume` lists the keys that may change.\n\n"
    "  -n DEVICES   devices of the whole mesh (default: the launcher's tasks, else the mesh)\n"
    "  --fresh      start anew; after the first step the checkpoints and metrics of the run in "
    "`out`\n"
    "               get other names (checkpoints.old-1), or with --fresh=delete are removed\n"
    "  --trust      do not look at the checksums of the weights that the run starts from\n"
    "  --help       this text and all keys\n\n"
    "examples:\n"
    "  lockstep train examples/quickstart.yaml data.text=book.txt -n 2\n"
    "  lockstep train run.yaml mesh.dp_shard=2 mesh.tp=2 train.steps=500\n"
    "  mpirun -n 4 lockstep train run.yaml -n 4\n"
    "  lockstep train run.yaml trace=true   # RUN/timeline.svg and RUN/trace.json: a step, "
    "timed\n\n"
    "SIGINT, SIGTERM, SIGUSR1 and SIGHUP finish the step, leave an evaluation, save a checkpoint "
    "and\n"
    "exit with status 4; a second SIGINT or SIGTERM quits at once.\n\n";

/* What the flags say. */
typedef struct choices {
  const char *devices;
  ls_fresh fresh;
  bool trust;
} choices;

typedef struct printer {
  const ls_session *session;
  const ls_dataset *dataset;
  const ls_tokenizer *tokenizer;
  ls_session_proof proof;
  ls_progress *progress;
  double begin_s, evaluation_s;
  int64_t done; /* steps before this run */
  int64_t last; /* and at its end */
  bool early;
  ls_best_evaluation best;
  const char *gpus; /* said of them; NULL: nothing */
} printer;

/* "texts of 3 classes (neg, neu, pos): 231 examples in 80 sequences of 40960 tokens" */
static const char *describe_texts(ls_arena *arena, const ls_run_classes *classes,
                                  const ls_packing *all) {
  const char *names = "";
  int64_t c = 0;
  for (; c < classes->count && strlen(names) < 60; c++) {
    char shown[LS_QUOTE_BYTES];
    ls_quote(shown, classes->names[c], strlen(classes->names[c]));
    names = ls_arena_printf(arena, "%s%s%s", names, c ? ", " : "", shown);
    if (classes->weight) names = ls_arena_printf(arena, "%s x %.4g", names, classes->weight[c]);
  }
  return ls_arena_printf(
      arena, "%s of %s%lld classes (%s%s): %lld examples in %lld sequences%s",
      classes->each ? "words" : "texts", classes->several ? "any of " : "",
      (long long)classes->count, names, c < classes->count ? ", ..." : "", (long long)all->examples,
      (long long)all->row_count,
      classes->each ? ls_arena_printf(arena, "; %lld words have a class", (long long)all->trained)
                    : "");
}

/* Also of pairs.
 * "chats: 231 examples in 80 sequences; 20480 of 40960 tokens are trained; 2 too long, dropped" */
static const char *describe_chats(ls_arena *arena, const ls_dataset *dataset,
                                  const ls_run_classes *classes) {
  ls_packing all = {0};
  for (int m = 0; m < dataset->training.mix_count; m++) {
    const ls_packing *each = dataset->training.mix[m].packing;
    all.examples += each->examples;
    all.row_count += each->row_count;
    all.tokens += each->tokens;
    all.trained += each->trained;
    all.dropped += each->dropped;
    all.cut += each->cut;
    all.split += each->split;
    all.unasked += each->unasked;
  }
  const char *text =
      ls_arena_printf(arena, "%s: %lld examples in %lld sequences; %lld of %lld tokens are trained",
                      dataset->pairs ? "pairs of answers" : "chats", (long long)all.examples,
                      (long long)all.row_count, (long long)all.trained, (long long)all.tokens);
  if (dataset->text_pairs)
    text = ls_arena_printf(arena, "pairs of texts: %lld examples in %lld sequences",
                           (long long)all.examples, (long long)all.row_count);
  if (dataset->labelled) text = describe_texts(arena, classes, &all);
  if (all.dropped)
    text = ls_arena_printf(arena, "%s; %lld too long, dropped", text, (long long)all.dropped);
  if (all.cut) text = ls_arena_printf(arena, "%s; %lld too long, cut", text, (long long)all.cut);
  if (all.split)
    text = ls_arena_printf(arena, "%s; %lld too long, split", text, (long long)all.split);
  if (all.unasked)
    text = ls_arena_printf(
        arena, "%s; %lld left out, %s", text, (long long)all.unasked,
        classes->each ? "none of whose words has a class" : "whose answers were cut off");
  return text;
}

/* "of 233 documents, 1204 for validation, by document; 3 bad lines skipped" */
static const char *describe_data(ls_arena *arena, const ls_dataset *dataset) {
  const char *text = ls_arena_printf(arena, "of %lld document%s", (long long)dataset->documents,
                                     dataset->documents == 1 ? "" : "s");
  if (dataset->evaluation.sequences > 0)
    text = ls_arena_printf(arena, "%s, %lld for validation%s", text,
                           (long long)dataset->evaluation_tokens,
                           dataset->by_document ? ", by document" : "");
  if (!dataset->skipped) return text;
  return ls_arena_printf(arena, "%s; %lld bad line%s skipped", text, (long long)dataset->skipped,
                         dataset->skipped == 1 ? "" : "s");
}

/* "rank 16, which count 2 times", "ranks 4 to 32, which count 2 to 4 times" */
static const char *describe_ranks(ls_arena *arena, const ls_model_config *config) {
  ls_lora_size least = {0}, most = {0};
  double low = 0, high = 0;
  for (int64_t layer = 0; layer < config->layers; layer++)
    for (int l = 0; l < LS_MODEL_LINEARS; l++) {
      if (!(config->lora_targets >> l & 1)) continue;
      const ls_lora_size size = ls_model_lora_size(config, layer, l);
      const double scale = ls_model_lora_scale(config, size);
      if (!least.rank || size.rank < least.rank) least = size;
      if (size.rank > most.rank) most = size;
      if (!(low > 0) || scale < low) low = scale;
      if (scale > high) high = scale;
    }
  const char *ranks = ls_arena_printf(arena, "rank %lld", (long long)most.rank);
  if (least.rank < most.rank)
    ranks =
        ls_arena_printf(arena, "ranks %lld to %lld", (long long)least.rank, (long long)most.rank);
  if (low < high) return ls_arena_printf(arena, "%s, which count %g to %g times", ranks, low, high);
  return ls_arena_printf(arena, "%s, which count %g times", ranks, low);
}

/* "dropout: embedding 0.1, branches 0.1, attention 0.1"; nothing where nothing is dropped. */
static void describe_dropout(const ls_session *session) {
  const ls_dropout *of = &session->config.dropout;
  const struct {
    const char *of;
    double rate;
  } rates[] = {{"embedding", of->embedding},
               {"branches", of->hidden},
               {"attention", of->attention},
               {"adapters", session->config.lora_rank ? of->adapter : 0},
               {"head", session->config.classes ? of->head : 0}};
  const char *text = NULL;
  for (size_t i = 0; i < sizeof rates / sizeof *rates; i++)
    if (rates[i].rate > 0)
      text = ls_arena_printf(session->arena, "%s %s %g",
                             text ? ls_arena_printf(session->arena, "%s,", text) : "dropout:",
                             rates[i].of, rates[i].rate);
  if (text) fprintf(stderr, "%s\n", text);
}

/* Said once the run begins: what is refused before that is one line. */
static void describe(const ls_session *session, const ls_dataset *dataset,
                     const ls_tokenizer *tokenizer, const char *gpus) {
  const ls_layout *layout = &session->layout;
  if (gpus) fprintf(stderr, "%s\n", gpus);
  const char *untried = ls_session_untried(session->arena, session);
  if (untried)
    ls_warn("on stand-ins alone so far, never on hardware: %s; compare with device.kind=cpu",
            untried);
  const bool on_gpus = strcmp(session->device.kind, "cuda") == 0;
  const int threads = session->device.facts.threads;
  fprintf(stderr, "%s: %.2f M parameters in %s on %d %s%s (%s)%s\n", session->run->model,
          (double)ls_model_parameters(&session->config) / 1e6, ls_session_dtype(session),
          session->devices, on_gpus ? "GPU" : "device", session->devices == 1 ? "" : "s",
          ls_layout_print(session->arena, layout),
          on_gpus ? ""
                  : ls_arena_printf(session->arena, ", %d thread%s each", threads,
                                    threads == 1 ? "" : "s"));
  const char *fp8 = ls_session_fp8(session->arena, session);
  if (fp8) fprintf(stderr, "%s\n", fp8);
  fprintf(stderr, "tokenizer %s, %d ids; %lld training tokens %s\n", tokenizer->name,
          (int)tokenizer->vocabulary, (long long)dataset->training_tokens,
          describe_data(session->arena, dataset));
  if (dataset->chats)
    fprintf(stderr, "%s\n", describe_chats(session->arena, dataset, &session->run->classes));
  const int64_t frozen = ls_graph_frozen(session->graph);
  if (frozen > 0)
    fprintf(stderr, "frozen: %.2f M parameters, which stay as they are\n", (double)frozen / 1e6);
  const char *teacher = ls_teacher_text(session->arena, session);
  if (teacher) fprintf(stderr, "%s\n", teacher);
  const ls_model_config *config = &session->config;
  if (config->lora_rank)
    fprintf(stderr, "adapters%s: %.2f M parameters of %s\n",
            config->lora_modules ? " and head" : "",
            (double)(ls_model_parameters(config) - frozen) / 1e6,
            describe_ranks(session->arena, config));
  describe_dropout(session);
  if (layout->recompute_of_count)
    fprintf(stderr, "runs again to fit %.1f MiB: %s\n",
            (double)session->run->device.memory / 1048576,
            ls_budget_print(session->arena, session->graph, layout));
}

/* Once there is a progress line, a warning may not run into it. */
static void note_warning(void *context, const char *text) {
  ls_progress_note(context, "warning: %s", text);
}

static void keep_proof(void *context, const ls_session_proof *proof) {
  printer *self = context;
  self->proof = *proof;
}

static void print_begin(void *context, int64_t done, int64_t steps, const char *where_from) {
  printer *self = context;
  self->done = done;
  describe(self->session, self->dataset, self->tokenizer, self->gpus);
  if (self->session->run->check)
    fprintf(stderr, "checked in %.2f s: %lld instructions, no deadlock, every reduction once\n",
            self->proof.seconds,
            (long long)(self->proof.reports[LS_SESSION_STEP].instructions +
                        self->proof.reports[LS_SESSION_EVALUATE].instructions));
  self->progress =
      ls_progress_create(self->session->arena, stderr, isatty(STDERR_FILENO) != 0, done, steps);
  self->begin_s = ls_now_s();
  ls_warnings_to(note_warning, self->progress);
  ls_progress_note(self->progress, "%s", where_from);
}

static void print_peak(void *context, const ls_peak *peak) {
  const printer *self = context;
  ls_progress_note(self->progress, "MFU: share of %.1f GFLOP/s, %s; the median product now: %.1f",
                   1e-9 * peak->flops_per_s,
                   peak->of_sheet       ? "the devices' data sheet"
                   : peak->measured_now ? "the best of products as the run began"
                                        : "the best that lockstep bench has kept",
                   1e-9 * peak->usual);
}

/* That of pairs is of no token, nor is that of texts, whose accuracy (0 to 1) is said; a
 * teacher's share is no text's. */
static void note_validation(const printer *self, int64_t step, double loss, double accuracy,
                            const char *end) {
  if (self->dataset->labelled || self->dataset->text_pairs) {
    ls_progress_note(self->progress, "step %lld: validation loss %.4f, accuracy %.2f%%%s",
                     (long long)step, loss, 100 * accuracy, end);
    return;
  }
  if (self->dataset->pairs || ls_session_is_taught(self->session)) {
    ls_progress_note(self->progress, "step %lld: validation loss %.4f%s", (long long)step, loss,
                     end);
    return;
  }
  ls_progress_note(self->progress, "step %lld: validation loss %.4f, perplexity %.2f%s",
                   (long long)step, loss, exp(loss), end);
}

static void print_evaluated(void *context, int64_t step, const ls_evaluation *found) {
  note_validation(context, step, found->loss, found->accuracy, "");
}

static void print_step(void *context, const ls_metrics_step *step) {
  printer *self = context;
  const ls_progress_step shown = {.step = step->step,
                                  .loss = step->loss,
                                  .learning_rate = step->learning_rate,
                                  .grad_norm = step->grad_norm,
                                  .tokens_per_second = step->tokens_per_second,
                                  .mfu = step->mfu,
                                  .memory_bytes = (double)step->memory_bytes,
                                  .pairs = step->pairs,
                                  .taught = step->taught,
                                  .cross_entropy = step->cross_entropy,
                                  .divergence = step->divergence,
                                  .expert_load = step->expert_load,
                                  .dropped = step->dropped,
                                  .margin = step->reward_chosen - step->reward_rejected,
                                  .preferred = step->preferred,
                                  .skipped = step->skipped,
                                  .repeated = step->repeated};
  ls_progress_show(self->progress, &shown, ls_now_s() - self->begin_s);
  if (!isnan(step->validation_loss))
    note_validation(self, step->step, step->validation_loss, step->validation_accuracy,
                    step->validation_lowest ? ", the lowest so far" : "");
}

/* Of a long one, which would look like a run that hangs. */
static void print_evaluation(void *context, int64_t done, int64_t all) {
  printer *self = context;
  const double now = ls_now_s();
  if (done == 0) self->evaluation_s = now;
  if (now - self->evaluation_s < 5) return;
  if (!self->progress) { /* the run has not begun */
    fprintf(stderr, "what the starting weights make of the answers: %lld of %lld batches\n",
            (long long)done, (long long)all);
    self->evaluation_s = now;
    return;
  }
  ls_progress_line(self->progress, 0, now - self->begin_s, "evaluating: %lld of %lld batches",
                   (long long)done, (long long)all);
}

static ls_status write_trace(void *context, const ls_recording *recording, ls_error *error) {
  const printer *self = context;
  const char *out = self->session->run->out;
  LS_TRY(ls_train_trace_write(self->session, recording, error));
  ls_progress_note(self->progress,
                   "step %lld traced: %s/timeline.svg, and %s/trace.json for ui.perfetto.dev",
                   (long long)recording->step, out, out);
  return LS_OK;
}

static void print_sample(void *context, int64_t step, const char *prompt, const char *text) {
  const printer *self = context;
  ls_progress_note(self->progress, "step %lld: %s: %s", (long long)step, prompt, text);
}

static void keep_end(void *context, int64_t step, bool early, const ls_best_evaluation *best) {
  printer *self = context;
  self->last = step;
  self->early = early;
  self->best = *best;
}

static void print_end(const printer *self, const ls_run_file *run) {
  const long long last = (long long)self->last;
  const bool already = self->done == self->last;
  const ls_best_evaluation *best = &self->best;
  if (self->early)
    printf(
        "%s early after %lld steps: %lld evaluations found no lower loss (eval.patience: %lld); ",
        already ? "had ended" : "ended", last, (long long)best->worse,
        (long long)run->eval.patience);
  else if (already)
    printf("already trained %lld steps (train.steps: %lld); ", last, (long long)run->train.steps);
  else
    printf("trained %lld steps; ", last);
  printf("the model is in %s/checkpoints/step-%lld", run->out, last);
  if (ls_checkpoint_best_step(run->out) == best->step && best->step > 0)
    printf(", that of the lowest validation loss (%.4f after step %lld) in %s/" LS_BEST_NAME,
           best->loss, (long long)best->step, run->out);
  printf("\n");
}

static ls_status train_with_data(ls_session *session, ls_dataset *dataset, ls_world *world,
                                 const ls_tokenizer *tokenizer, const char *gpus,
                                 const choices *asked, ls_error *error) {
  const bool speaks = ls_world_first_here(world) == 0;
  ls_run_file_resolve_steps(session->run,
                            (dataset->training.sequences + session->batch - 1) / session->batch);
  printer out = {.session = session, .dataset = dataset, .tokenizer = tokenizer, .gpus = gpus};
  const ls_train_options options = {.fresh = asked->fresh,
                                    .trust = asked->trust,
                                    .proved = keep_proof,
                                    .begin = print_begin,
                                    .measured = print_peak,
                                    .report = print_step,
                                    .evaluating = print_evaluation,
                                    .evaluated = print_evaluated,
                                    .sampled = print_sample,
                                    .ended = keep_end,
                                    .traced = write_trace,
                                    .context = &out,
                                    .tokenizer = tokenizer};
  const ls_status status = ls_train(session, dataset, world, &options, error);
  ls_warnings_to(ls_print_warning, NULL);
  if (out.progress) ls_progress_end(out.progress);
  if (status == LS_OK && speaks) print_end(&out, session->run);
  return status;
}

/* Of a large text, how far its reading is; a small one is there before anyone asks. */
typedef struct reading {
  double begin_s;
  int64_t told; /* tenths */
} reading;

static void tell_reading(void *context, int64_t done, int64_t total, int64_t tokens) {
  (void)tokens;
  reading *self = context;
  const int64_t tenths = total > 0 ? 10 * done / total : 10;
  if (ls_now_s() - self->begin_s < 2 || tenths <= self->told || tenths >= 10) return;
  self->told = tenths;
  fprintf(stderr, "reading texts: %lld%% of %.1f MB\n", (long long)(10 * tenths),
          (double)total / 1e6);
}

/* What a run is made of, and of what. */
typedef struct parts {
  ls_arena *arena;
  ls_run_file *run;
  int devices;
  ls_world *world;
  ls_session *session;
  const ls_tokenizer *tokenizer;
  ls_dataset *dataset;
  const char *gpus; /* said of them first; NULL: nothing */
} parts;

static ls_status prepare(void *context, ls_error *error) {
  parts *self = context;
  const int on_host = ls_world_count_on_host(self->world), here = ls_world_count_here(self->world);
  const int ranks_sharing_cores = ls_machine_is_bound() ? here : on_host;
  self->gpus = ls_hardware_take_run_gpus(self->arena, self->run);
  LS_TRY(ls_session_create(self->arena, self->run, self->devices, ranks_sharing_cores,
                           &self->session, error));
  ls_tell_tuning(self->session);
  LS_TRY(ls_session_check_start(self->session, error));
  LS_TRY(ls_session_check_offload(self->session, on_host, error));
  LS_TRY(ls_session_check_fit(self->session, on_host, here, error));
  LS_TRY(ls_session_open_tokenizer(self->session, &self->tokenizer, error));
  reading progress = {.begin_s = ls_now_s()};
  const bool speaks = ls_world_first_here(self->world) == 0;
  return ls_dataset_open(self->arena, self->run, self->tokenizer,
                         ls_corpus_cache_folder(self->arena, self->run->out),
                         speaks ? tell_reading : NULL, &progress, &self->dataset, error);
}

static ls_status train_in_world(ls_arena *arena, ls_run_file *run, int devices, ls_world *world,
                                const choices *asked, ls_error *error) {
  parts made = {.arena = arena, .run = run, .devices = devices, .world = world};
  ls_status status = ls_world_agree(world, ls_arena_guard(prepare, &made, false, error), error);
  if (status == LS_OK)
    status =
        train_with_data(made.session, made.dataset, world, made.tokenizer, made.gpus, asked, error);
  if (made.dataset) ls_dataset_close(made.dataset);
  ls_tokenizer_close(&made.tokenizer);
  return status;
}

/* After a failure a person wants to know what is safe. */
static void name_last_checkpoint(ls_arena *arena, const ls_run_file *run) {
  const char *folder = NULL;
  int64_t step;
  ls_warnings_to(NULL, NULL); /* what is damaged was said, or is not what failed */
  if (run && ls_checkpoint_newest(arena, run->out, INT64_MAX, &folder, &step, NULL) == LS_OK &&
      folder)
    fprintf(stderr, "lockstep train: the last checkpoint is %s\n", folder);
}

/* Once: what was told leaves no text. What all processes have agreed on, the first says. */
static void tell_failure(ls_arena *arena, const ls_run_file *run, bool in_world, ls_status status,
                         ls_error *error) {
  if (status == LS_OK || !*error->text) return;
  ls_command_answer_no_signals(); /* a launcher sends one to those that are still leaving */
  if (status == LS_FAILED) name_last_checkpoint(arena, run);
  const bool agreed = status == LS_STOPPED || status == LS_INPUT || status == LS_REFUTED;
  if (!agreed || !in_world || ls_command_is_first()) (void)ls_command_fail("train", status, error);
  *error->text = 0;
}

/* The folder of a run is its out, also where it was moved. */
static ls_status keep_out(const ls_words *words, ls_run_file *run, ls_error *error) {
  const char *word = words->positional_count ? words->positional[0] : run->path;
  if (strcmp(run->path, word) == 0) return LS_OK;
  for (int k = 0; k < words->key_count; k++)
    if (strcmp(words->keys[k] + strspn(words->keys[k], "-"), "out") == 0 ||
        strncmp(words->keys[k] + strspn(words->keys[k], "-"), "out=", 4) == 0)
      return ls_fail(error, LS_INPUT,
                     "out: %s goes on where it is; for another run give its run file, or "
                     "model=%s/checkpoints/step-N and the keys",
                     word, word);
  run->out = word;
  return LS_OK;
}

static ls_status train(ls_arena *arena, const ls_words *words, const choices *asked,
                       ls_run_file **run, ls_error *error) {
  if (words->positional_count + words->key_count == 0)
    return ls_fail(error, LS_INPUT,
                   "expected a run file, as in `lockstep train run.yaml`, or keys, as in `lockstep "
                   "train model=llama-3m data.text=book.txt` (see lockstep train --help)");
  LS_TRY(ls_command_run_file(arena, words, run, error));
  LS_TRY(keep_out(words, *run, error));
  int devices;
  LS_TRY(ls_command_devices(asked->devices, *run, &devices, error));
  ls_world *world;
  LS_TRY(ls_command_world(devices, &world, error));
  ls_world_set_deadline(world, (*run)->comm.timeout);
  const ls_status status = train_in_world(arena, *run, devices, world, asked, error);
  /* Now: where a rank hangs, leaving the world may end this process. */
  tell_failure(arena, *run, true, status, error);
  ls_world_destroy(&world);
  return status;
}

static void print_help(ls_arena *arena, const ls_words *words) {
  if (words->positional_count == 1 && strcmp(words->positional[0], "resume") == 0)
    printf("%s", ls_run_file_resume_help(arena));
  else
    printf("%s%s", help, ls_run_file_help(arena, NULL));
}

int ls_command_train(int count, char **given) {
  ls_arena *arena = ls_arena_create();
  ls_error error = {0};
  choices asked = {0};
  bool fresh = false, deletes = false;
  const ls_command_flag flags[] = {{"-n", &asked.devices, NULL},
                                   {"--fresh", NULL, &fresh},
                                   {"--fresh=delete", NULL, &deletes},
                                   {"--trust", NULL, &asked.trust}};
  ls_words words;
  ls_run_file *run = NULL;
  ls_status status =
      ls_words_parse(arena, count, given, flags, sizeof flags / sizeof *flags, &words, &error);
  asked.fresh = deletes ? LS_FRESH_DELETE : fresh ? LS_FRESH_ASIDE : LS_FRESH_NO;
  if (status == LS_OK && words.help) print_help(arena, &words);
  if (status == LS_OK && !words.help)
    ls_command_catch_signals(ls_command_is_first()
                                 ? "\nlockstep train: stopping as soon as the state can be saved; "
                                   "a second ctrl-C quits at once\n"
                                 : NULL);
  if (status == LS_OK && !words.help) status = train(arena, &words, &asked, &run, &error);
  tell_failure(arena, run, false, status, &error);
  ls_arena_destroy(&arena);
  return ls_exit_status(status);
}
