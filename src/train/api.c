/* The public interface: what include/lockstep/lockstep.h promises, over the rooms. */
#include "lockstep/lockstep.h"

#include <string.h>

#include "base/stop.h"
#include "cluster/machine.h"
#include "comm/engine.h"
#include "cost/cost.h"
#include "session/fit.h"
#include "session/offload_room.h"
#include "train/loop.h"

struct ls_run {
  ls_arena *arena;
  ls_run_file *file;
  ls_session *session;
  int stage; /* that needs most memory */
  int64_t parts[LS_SESSION_MEMORY_PARTS];
  double bytes_sent; /* counted when it is opened: counting takes memory */
  int collectives;
};

static const ls_program *step_of(const ls_run *run) {
  return run->session->stages[LS_SESSION_STEP][run->stage];
}

typedef struct opening {
  const char *path;
  const char *const *keys;
  int key_count, devices;
  ls_run *made;
} opening;

static ls_status open_session(ls_run *run, const char *path, const char *const *keys, int key_count,
                              int devices, ls_error *error) {
  LS_TRY(ls_run_file_read(run->arena, path, keys, key_count, &run->file, error));
  if (devices < 0)
    return ls_fail(error, LS_INPUT, "%d devices: expected 1 or more, or 0 for the mesh's", devices);
  LS_TRY(ls_run_file_count_devices(run->file, devices, &devices, error));
  LS_TRY(ls_session_create(run->arena, run->file, devices, devices, &run->session, error));
  LS_TRY(ls_session_check_start(run->session, error));
  ls_session_bytes_needed(run->session, &run->stage);
  ls_session_memory_parts(run->session, run->stage, run->parts);
  int sends_most;
  run->bytes_sent =
      ls_session_bytes_sent(run->session, LS_SESSION_STEP, &sends_most, &run->collectives);
  return LS_OK;
}

static ls_status open_run(void *context, ls_error *error) {
  opening *self = context;
  ls_arena *arena = ls_arena_create();
  ls_run *made = LS_NEW(arena, ls_run);
  made->arena = arena;
  const ls_status status =
      open_session(made, self->path, self->keys, self->key_count, self->devices, error);
  if (status == LS_OK)
    self->made = made;
  else
    ls_run_close(&made);
  return status;
}

ls_status ls_run_open(const char *path, const char *const *keys, int key_count, int devices,
                      ls_run **run, ls_error *error) {
  ls_error unread;
  opening self = {.path = path, .keys = keys, .key_count = key_count, .devices = devices};
  const ls_status status = ls_arena_guard(open_run, &self, true, error ? error : &unread);
  *run = self.made;
  return status;
}

void ls_run_close(ls_run **run) {
  if (!*run) return;
  ls_arena *arena = (*run)->arena; /* the run lies in it */
  *run = NULL;
  ls_arena_destroy(&arena);
}

int ls_run_devices(const ls_run *run) {
  return run->session->devices;
}

int64_t ls_run_parameters(const ls_run *run) {
  return ls_model_parameters(&run->session->config);
}

double ls_run_flops(const ls_run *run) {
  return step_of(run)->flops;
}

double ls_run_bytes_sent(const ls_run *run, int *collectives) {
  if (collectives) *collectives = run->collectives;
  return run->bytes_sent;
}

int ls_run_memory_parts(const ls_run *run) {
  (void)run;
  return LS_SESSION_MEMORY_PARTS;
}

ls_memory_part ls_run_memory_part(const ls_run *run, int index) {
  LS_ASSERT(index >= 0 && index < LS_SESSION_MEMORY_PARTS);
  return (ls_memory_part){ls_session_memory_part_name(index), run->parts[index]};
}

int64_t ls_run_memory_bytes(const ls_run *run) {
  int stage;
  return ls_session_bytes_needed(run->session, &stage);
}

typedef struct printing {
  const ls_run *run;
  ls_show what;
  FILE *stream;
} printing;

static ls_status print(void *context, ls_error *error) {
  const printing *self = context;
  const ls_run *run = self->run;
  FILE *stream = self->stream;
  const int stages = run->session->layout.pp;
  switch (self->what) {
    case LS_SHOW_PROGRAM:
      for (int s = 0; s < stages; s++)
        ls_program_print(run->session->stages[LS_SESSION_STEP][s], stream);
      break;
    case LS_SHOW_EVALUATION:
      for (int s = 0; s < stages; s++)
        ls_program_print(run->session->stages[LS_SESSION_EVALUATE][s], stream);
      break;
    case LS_SHOW_MEMORY:
      ls_program_print_memory(step_of(run), run->session->workspace[run->stage], stream);
      break;
    case LS_SHOW_COLLECTIVES: ls_program_print_collectives(step_of(run), stream); break;
    case LS_SHOW_RUN_FILE: {
      ls_arena *scratch = ls_arena_create();
      fputs(ls_run_file_text(scratch, run->file), stream);
      ls_arena_destroy(&scratch);
      break;
    }
  }
  if (fflush(stream) == 0 && !ferror(stream)) return LS_OK;
  return ls_fail(error, LS_FAILED, "the stream cannot be written");
}

ls_status ls_run_print(const ls_run *run, ls_show what, FILE *stream, ls_error *error) {
  return ls_arena_guard(print, &(printing){run, what, stream}, true, error);
}

static void forward_begin(void *context, int64_t done, int64_t steps, const char *where_from) {
  const ls_execute_options *options = context;
  if (options->on_begin) options->on_begin(options->context, done, steps, where_from);
}

static void forward_step(void *context, const ls_metrics_step *step) {
  const ls_execute_options *options = context;
  if (!options->on_step) return;
  const ls_step_report report = {.step = step->step,
                                 .tokens = step->tokens,
                                 .loss = step->loss,
                                 .grad_norm = step->grad_norm,
                                 .learning_rate = step->learning_rate,
                                 .seconds = step->step_seconds,
                                 .tokens_per_second = step->tokens_per_second,
                                 .mfu = step->mfu,
                                 .validation_loss = step->validation_loss};
  options->on_step(options->context, &report);
}

static ls_status execute_with_data(const ls_run *run, const ls_dataset *dataset,
                                   const ls_tokenizer *tokenizer, ls_execute_options *options,
                                   ls_error *error) {
  const ls_session *session = run->session;
  ls_run_file_resolve_steps(run->file,
                            (dataset->training.sequences + session->batch - 1) / session->batch);
  LS_TRY(ls_session_check_offload(session, session->devices, error));
  LS_TRY(ls_session_check_fit(session, session->devices, session->devices, error));
  ls_world *world;
  const ls_world_options all = {.ranks = session->devices, .deadline_s = run->file->comm.timeout};
  LS_TRY(ls_world_start(&session->device.facts, &all, &world, error));
  const ls_train_options inner = {.fresh = options->fresh ? LS_FRESH_ASIDE : LS_FRESH_NO,
                                  .begin = forward_begin,
                                  .report = forward_step,
                                  .context = options,
                                  .tokenizer = tokenizer};
  const ls_status status = ls_train(session, dataset, world, &inner, error);
  ls_world_destroy(&world);
  return status;
}

typedef struct executing {
  const ls_run *run;
  ls_execute_options options;
} executing;

static ls_status execute(void *context, ls_error *error) {
  executing *self = context;
  const ls_run *run = self->run;
  const ls_launcher launcher = ls_launcher_detect();
  LS_TRY(ls_launcher_check(&launcher, 1, error));
  const ls_tokenizer *tokenizer;
  LS_TRY(ls_session_open_tokenizer(run->session, &tokenizer, error));
  ls_arena *arena = ls_arena_create();
  ls_dataset *dataset;
  ls_status status =
      ls_dataset_open(arena, run->file, tokenizer, ls_corpus_cache_folder(arena, run->file->out),
                      NULL, NULL, &dataset, error);
  if (status == LS_OK) {
    status = execute_with_data(run, dataset, tokenizer, &self->options, error);
    ls_dataset_close(dataset);
  }
  ls_tokenizer_close(&tokenizer);
  ls_arena_destroy(&arena);
  return status;
}

ls_status ls_run_execute(ls_run *run, const ls_execute_options *options, ls_error *error) {
  ls_error unread;
  if (!error) error = &unread;
  executing self = {.run = run, .options = options ? *options : (ls_execute_options){0}};
  const volatile sig_atomic_t *before = ls_stop_listen(self.options.stop);
  const ls_status status = ls_arena_guard(execute, &self, false, error);
  ls_stop_listen(before);
  return status;
}
