/* Checkpoints of small runs: onto other layouts, on from where they stopped, damaged, on a full
 * disk, and killed while they are written. */
#include <errno.h>
#include <glob.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/random.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_folder.h"
#include "run/rank_threads.h"
#include "session/inputs.h"
#include "support/test_seed.h"

static const char gpt2_config[] =
    "{\"model_type\": \"gpt2\", \"vocab_size\": 37, \"n_positions\": 8, \"n_embd\": 12,"
    " \"n_layer\": 2, \"n_head\": 4, \"n_inner\": 21, \"resid_pdrop\": 0, \"embd_pdrop\": 0,"
    " \"attn_pdrop\": 0}";
static const char llama_config[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 41, \"hidden_size\": 16,"
    " \"intermediate_size\": 23, \"num_hidden_layers\": 2, \"num_attention_heads\": 4,"
    " \"num_key_value_heads\": 2, \"max_position_embeddings\": 16, \"rms_norm_eps\": 1e-5,"
    " \"tie_word_embeddings\": false}";
/* Its queries, keys and values lie in turns in files, KV head by KV head. */
static const char falcon_config[] =
    "{\"model_type\": \"falcon\", \"vocab_size\": 41, \"hidden_size\": 16,"
    " \"ffn_hidden_size\": 23, \"num_hidden_layers\": 2, \"num_attention_heads\": 4,"
    " \"num_kv_heads\": 2, \"new_decoder_architecture\": true, \"bias\": true,"
    " \"max_position_embeddings\": 16}";
/* Every shape of llama_config, with other heads. */
static const char other_heads_config[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 41, \"hidden_size\": 16,"
    " \"intermediate_size\": 23, \"num_hidden_layers\": 2, \"num_attention_heads\": 8,"
    " \"num_key_value_heads\": 4, \"max_position_embeddings\": 16, \"rms_norm_eps\": 1e-5,"
    " \"tie_word_embeddings\": false}";
static const char wider_config[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 41, \"hidden_size\": 16,"
    " \"intermediate_size\": 24, \"num_hidden_layers\": 2, \"num_attention_heads\": 4,"
    " \"num_key_value_heads\": 2, \"max_position_embeddings\": 16, \"rms_norm_eps\": 1e-5,"
    " \"tie_word_embeddings\": false}";

enum { SEQUENCE = 8, BATCH = 8, MAX_WORDS = 16 };

/* The whole state as logical tensors: 3 parts of every parameter, one after the other. */
typedef struct whole_state {
  double *values;
  int64_t count;
} whole_state;

typedef struct job {
  ls_session *session;
  const char *load;                 /* folder; NULL: from scratch */
  int steps;                        /* taken after that */
  const char *save;                 /* OUT; NULL: not saved */
  whole_state *state;               /* read at the end, by rank 0; NULL: not */
  int64_t step;                     /* rank 0: where it ended */
  const char *scale;                /* written into what is saved; NULL: none */
  char loaded[LS_LOSS_SCALE_BYTES]; /* rank 0: what was read */
  ls_error failures[16];            /* of saving, by rank */
  bool save_may_fail;
} job;

static char folder[64];
static uint64_t seed;

static const char *path_of(const char *name) {
  static char paths[4][128];
  static int next;
  char *path = paths[next++ % 4];
  snprintf(path, sizeof paths[0], "%s/%s", folder, name);
  return path;
}

static int set_up(void **state) {
  (void)state;
  snprintf(folder, sizeof folder, "/tmp/lockstep-checkpoint-XXXXXX");
  return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state) {
  (void)state;
  return ls_directory_remove(folder, NULL) == LS_OK ? 0 : -1;
}

static ls_session *make_session(ls_arena *arena, const char *config, const char *layout,
                                const char *dtype) {
  ls_error error = {0};
  const char *model = ls_arena_strdup(arena, path_of("config.json"));
  assert_int_equal(ls_file_write(model, config, strlen(config), &error), LS_OK);
  const char *words[MAX_WORDS] = {ls_arena_printf(arena, "model=%s", model),
                                  "data.seq_len=8",
                                  "train.batch=8",
                                  "train.steps=10",
                                  "train.lr=0.01",
                                  ls_arena_printf(arena, "dtype=%s", dtype),
                                  "device.threads=1",
                                  "data.text=none.txt"};
  int count = 8;
  char *copy = ls_arena_strdup(arena, layout);
  for (char *word; (word = strsep(&copy, " "));) words[count++] = word;
  ls_run_file *run;
  if (ls_run_file_read(arena, NULL, words, count, &run, &error) != LS_OK)
    fail_msg("%s", error.text);
  const int devices = (int)ls_run_file_mesh_devices(run);
  ls_session *session;
  if (ls_session_create(arena, run, devices, devices, &session, &error) != LS_OK)
    fail_msg("%s", error.text);
  return session;
}

static ls_status take_tokens(void *context, int64_t step, int64_t first, int64_t count,
                             const ls_batch *batch, ls_error *error) {
  (void)error;
  const ls_session *session = context;
  const uint64_t vocabulary = (uint64_t)session->config.vocabulary;
  for (int64_t i = 0; i < count; i++) {
    const uint64_t bits = ls_random_bits(seed, 5, (uint64_t)(step * BATCH * SEQUENCE + first + i));
    batch->ids[i] = (int32_t)(bits % vocabulary);
    batch->labels[i] = (int32_t)((bits >> 20) % vocabulary);
    batch->positions[i] = (int32_t)((first + i) % SEQUENCE);
  }
  return LS_OK;
}

static ls_status take_step(const ls_session *session, ls_rank *rank, int64_t step,
                           ls_error *error) {
  const ls_inputs inputs = {.take = take_tokens, .context = (void *)session};
  for (int m = 0; m < session->layout.microbatches; m++)
    LS_TRY(ls_inputs_fill(&inputs, rank, LS_SESSION_STEP, m, step, error));
  ls_rank_set_cell(rank, LS_CELL_LEARNING_RATE, 0.01);
  ls_rank_set_cell(rank, LS_CELL_STEP, (double)(step + 1));
  return ls_rank_run(rank, LS_SESSION_STEP, error);
}

static ls_status read_state(const ls_session *session, ls_rank *rank, whole_state *state,
                            ls_error *error) {
  const ls_program *program = session->programs[LS_SESSION_STEP];
  const ls_dtype dtype = session->layout.compute == LS_F64 ? LS_F64 : LS_F32;
  const bool keeps = ls_rank_number(rank) == 0;
  int64_t at = 0;
  for (int p = 0; p < program->parameter_count; p++) {
    const int64_t elements = ls_program_parameter_elements(&program->parameters[p]);
    double *read = malloc((size_t)elements * sizeof *read);
    for (int part = LS_PART_MASTER; part <= LS_PART_MOMENT2; part++) {
      LS_TRY(ls_rank_read_parameter(rank, program, p, (ls_state_part)part, 0, elements, read, dtype,
                                    error));
      if (keeps) ls_convert(state->values + at, LS_F64, read, dtype, elements);
      at += elements;
    }
    free(read);
  }
  if (keeps) state->count = at;
  return LS_OK;
}

static ls_status save_here(const job *work, ls_rank *rank, int64_t step, ls_error *error) {
  const ls_checkpoint_extra extra = {.run_text = "model: x\n",
                                     .tokenizer = ls_tokenizer_bytes(),
                                     .tokens = step * BATCH * SEQUENCE,
                                     .sequences = step * BATCH,
                                     .loss_scale = work->scale};
  return ls_checkpoint_save(work->session, rank, work->save, step, &extra, error);
}

static ls_status on_rank(job *work, ls_rank *rank, ls_error *error) {
  int64_t step = 0;
  if (work->load) {
    ls_checkpoint_state state;
    LS_TRY(ls_checkpoint_load(work->session, rank, work->load, &state, error));
    step = state.step;
    if (ls_rank_number(rank) == 0) memcpy(work->loaded, state.loss_scale, sizeof work->loaded);
  } else {
    LS_TRY(ls_session_initialise(work->session, rank, error));
  }
  for (int s = 0; s < work->steps; s++) LS_TRY(take_step(work->session, rank, step++, error));
  if (work->save) {
    ls_error *failure = &work->failures[ls_rank_number(rank)];
    failure->status = save_here(work, rank, step, failure);
    if (failure->status != LS_OK && !work->save_may_fail)
      return ls_fail(error, failure->status, "%s", failure->text);
  }
  if (ls_rank_number(rank) == 0) work->step = step;
  return work->state ? read_state(work->session, rank, work->state, error) : LS_OK;
}

static ls_status body(ls_comm *comm, void *context, ls_error *error) {
  job *work = context;
  ls_rank *rank;
  LS_TRY(ls_session_rank(work->session, comm, &rank, error));
  const ls_status status = on_rank(work, rank, error);
  ls_rank_destroy(&rank);
  return status;
}

static ls_status run(job *work, ls_error *error) {
  ls_world *world;
  LS_TRY(ls_world_create_threads(work->session->devices, &world, error));
  const ls_status status = ls_rank_threads_run(world, body, work, error);
  ls_world_destroy(&world);
  return status;
}

static void must_run(job *work) {
  ls_error error = {0};
  if (run(work, &error) != LS_OK) fail_msg("%s", error.text);
}

static whole_state new_state(ls_arena *arena, const ls_session *session) {
  return (whole_state){.values =
                           LS_NEW_ARRAY(arena, double, 3 * ls_model_parameters(&session->config))};
}

static void assert_same(const whole_state *a, const whole_state *b) {
  assert_int_equal(a->count, b->count);
  assert_true(a->count > 0);
  for (int64_t i = 0; i < a->count; i++)
    if (memcmp(&a->values[i], &b->values[i], sizeof(double)) != 0 && a->values[i] != b->values[i])
      fail_msg("element %lld: %.17g and %.17g", (long long)i, a->values[i], b->values[i]);
}

static const char *const layouts[] = {
    "mesh.dp_shard=1",
    "mesh.dp_shard=2 zero=3 train.micro_batch=2",
    "mesh.dp_shard=1 mesh.tp=2 sequence_parallel=true",
    "mesh.dp_replicate=2 mesh.dp_shard=2 mesh.tp=2 zero=3",
    "mesh.dp_shard=4 zero=1",
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

static void load_everywhere(const char *config, const char *dtype) {
  for (int from = 0; from < LAYOUTS; from++) {
    ls_arena *arena = ls_arena_create();
    ls_session *session = make_session(arena, config, layouts[from], dtype);
    whole_state before = new_state(arena, session), after = new_state(arena, session);
    job save = {.session = session, .steps = 2, .save = path_of("run"), .state = &before};
    must_run(&save);
    ls_error error = {0};
    const char *newest;
    int64_t step;
    assert_int_equal(ls_checkpoint_newest_whole(arena, path_of("run"), &newest, &step, &error),
                     LS_OK);
    assert_non_null(newest);
    assert_int_equal(step, 2);
    for (int onto = 0; onto < LAYOUTS; onto++) {
      job load = {.session = make_session(arena, config, layouts[onto], dtype),
                  .load = newest,
                  .state = &after};
      must_run(&load);
      assert_int_equal(load.step, 2);
      assert_same(&before, &after);
    }
    ls_arena_destroy(&arena);
  }
}

static void test_any_layout_gpt2(void **state) {
  (void)state;
  load_everywhere(gpt2_config, "fp32");
}

static void test_any_layout_llama(void **state) {
  (void)state;
  load_everywhere(llama_config, "fp32");
}

static void test_any_layout_falcon(void **state) {
  (void)state;
  load_everywhere(falcon_config, "fp32");
}

static void test_any_layout_fp64(void **state) {
  (void)state;
  load_everywhere(llama_config, "fp64");
}

static void go_on(const char *config, const char *layout, const char *dtype) {
  ls_arena *arena = ls_arena_create();
  ls_session *session = make_session(arena, config, layout, dtype);
  whole_state through = new_state(arena, session), resumed = new_state(arena, session);
  job whole = {.session = session, .steps = 6, .state = &through};
  must_run(&whole);
  job first = {.session = session, .steps = 3, .save = path_of("on")};
  must_run(&first);
  job second = {.session = session,
                .load = ls_arena_strdup(arena, path_of("on/checkpoints/step-3")),
                .steps = 3,
                .state = &resumed};
  must_run(&second);
  assert_int_equal(second.step, 6);
  assert_same(&through, &resumed);
  ls_arena_destroy(&arena);
}

static void test_goes_on_with_the_same_bits(void **state) {
  (void)state;
  for (int l = 0; l < LAYOUTS; l++) go_on(gpt2_config, layouts[l], "fp32");
  go_on(llama_config, layouts[1], "bf16");
  go_on(llama_config, layouts[3], "bf16");
  go_on(llama_config, layouts[3], "fp16");
  go_on(llama_config, "mesh.dp_shard=2 zero=2 train.microbatches=2 grad_dtype=bf16", "bf16");
  go_on(llama_config, layouts[0], "fp64");
  go_on(llama_config, "mesh.dp_shard=2 optimizer.weight_decay=0", "fp32");
}

/* The scale's text comes back as it was; without one, none does. A text too long is damage. */
static void test_the_loss_scale_is_kept(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_session *session = make_session(arena, llama_config, layouts[1], "fp16");
  const char *const texts[] = {"32768 after 17 steps, 3 skipped", NULL};
  for (int t = 0; t < 2; t++) {
    job save = {.session = session, .steps = 1, .save = path_of("scaled"), .scale = texts[t]};
    must_run(&save);
    job load = {.session = session,
                .load = ls_arena_strdup(arena, path_of("scaled/checkpoints/step-1"))};
    must_run(&load);
    assert_string_equal(load.loaded, texts[t] ? texts[t] : "");
  }
  char text[2 * LS_LOSS_SCALE_BYTES];
  memset(text, '6', sizeof text);
  text[sizeof text - 1] = 0;
  job save = {.session = session, .save = path_of("scaled"), .scale = text};
  must_run(&save);
  ls_error error = {0};
  ls_checkpoint_state read;
  assert_int_equal(ls_checkpoint_state_read(path_of("scaled/checkpoints/step-0"), &read, &error),
                   LS_INPUT);
  assert_non_null(strstr(error.text, "\"loss_scale\" has 191 bytes; expected at most 95"));
  ls_arena_destroy(&arena);
}

/* Three checkpoints of one device in OUT, at steps 1, 2 and 3. */
static ls_session *make_three(ls_arena *arena, const char *out) {
  ls_session *session = make_session(arena, llama_config, layouts[0], "fp32");
  for (int steps = 1; steps <= 3; steps++) {
    job save = {.session = session, .steps = steps, .save = out};
    must_run(&save);
  }
  return session;
}

/* -1: there is none; -2: there are some, and none is good. */
static int64_t newest_step(const char *out) {
  ls_arena *arena = ls_arena_create();
  ls_error error = {0};
  const char *newest;
  int64_t step = -1;
  const ls_status status = ls_checkpoint_newest_whole(arena, out, &newest, &step, &error);
  int64_t found = newest ? step : -1;
  if (status == LS_INPUT && strstr(error.text, "no checkpoint in it can be used")) found = -2;
  if (found != -2 && status != LS_OK) fail_msg("%s", error.text);
  ls_arena_destroy(&arena);
  return found;
}

static char warned[4096]; /* every warning since it was emptied, a line each */

static void keep_warning(void *context, const char *text) {
  (void)context;
  const size_t used = strlen(warned);
  snprintf(warned + used, sizeof warned - used, "%s\n", text);
}

/* How many names in OUT/checkpoints match; with the last of them in *last where it is not NULL. */
static int count_names(const char *out, const char *pattern, char last[256]) {
  char whole[256];
  snprintf(whole, sizeof whole, "%s/checkpoints/%s", out, pattern);
  glob_t found = {0};
  const int count = glob(whole, 0, NULL, &found) ? 0 : (int)found.gl_pathc;
  if (last && count) snprintf(last, 256, "%s", found.gl_pathv[count - 1]);
  globfree(&found);
  return count;
}

static void change_byte(const char *path, long at) {
  FILE *file = fopen(path, "r+b");
  assert_non_null(file);
  assert_int_equal(fseek(file, at, at < 0 ? SEEK_END : SEEK_SET), 0);
  const int was = fgetc(file);
  assert_int_equal(fseek(file, -1, SEEK_CUR), 0);
  fputc(was ^ 0x10, file);
  assert_int_equal(fclose(file), 0);
}

static void test_damage_is_found(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const char *out = ls_arena_strdup(arena, path_of("damage"));
  make_three(arena, out);
  assert_int_equal(newest_step(out), 3);
  const char *three = ls_arena_printf(arena, "%s/checkpoints/step-3", out);
  static const char *const files[] = {"model.safetensors", "optimizer.safetensors",
                                      "state.json",        "config.json",
                                      "run.yaml",          "tokenizer.json"};
  static const bool needless[] = {false, false, false, false, true, true};
  for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
    const char *path = ls_arena_printf(arena, "%s/%s", three, files[f]);
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    for (int trial = 0; trial < 5; trial++) {
      const long at = (long)(ls_random_bits(seed, f, (uint64_t)trial) % (uint64_t)info.st_size);
      change_byte(path, at);
      ls_error error = {0};
      /* In state.json blanks may change to other blanks: those alone mean nothing. */
      *warned = 0;
      const ls_status status = ls_checkpoint_verify(three, LS_SEALED_ALL, &error);
      if (needless[f] && (status != LS_OK || !strstr(warned, files[f])))
        fail_msg("%s: byte %ld: status %d, warned \"%s\"", path, at, status, warned);
      if (!needless[f] && status == LS_OK && strcmp(files[f], "state.json") != 0)
        fail_msg("%s: byte %ld", path, at);
      change_byte(path, at);
    }
    assert_int_equal(ls_checkpoint_verify(three, LS_SEALED_ALL, NULL), LS_OK);
  }
  change_byte(ls_arena_printf(arena, "%s/model.safetensors", three), -1);
  assert_int_equal(newest_step(out), 2);
  const char *two = ls_arena_printf(arena, "%s/checkpoints/step-2/optimizer.safetensors", out);
  assert_int_equal(truncate(two, 100), 0);
  assert_int_equal(newest_step(out), 1);
  assert_int_equal(unlink(ls_arena_printf(arena, "%s/checkpoints/step-1/config.json", out)), 0);
  *warned = 0;
  assert_int_equal(newest_step(out), -2);
  assert_non_null(strstr(warned, "step-3/model.safetensors: damaged"));
  assert_non_null(strstr(warned, "step-2/optimizer.safetensors: damaged"));
  assert_non_null(strstr(warned, "step-1/config.json: damaged: it is missing"));
  assert_int_equal(newest_step(path_of("nothing-here")), -1);
  ls_arena_destroy(&arena);
}

/* What cannot be read may be good: neither is it passed over, nor called damaged. As root every
 * file can be read, so the folder is in the way of its own file. */
static void test_unreadable_is_not_damaged(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const char *out = ls_arena_strdup(arena, path_of("unreadable"));
  make_three(arena, out);
  const char *path = ls_arena_printf(arena, "%s/checkpoints/step-3/model.safetensors", out);
  char loop[256];
  snprintf(loop, sizeof loop, "%s.loop", path);
  assert_int_equal(rename(path, loop), 0);
  assert_int_equal(symlink("model.safetensors", path), 0); /* ELOOP */
  const char *newest;
  int64_t step;
  ls_error error = {0};
  assert_int_equal(ls_checkpoint_newest(arena, out, INT64_MAX, &newest, &step, &error), LS_FAILED);
  assert_non_null(strstr(error.text, "step-3/model.safetensors: cannot be read"));
  assert_int_equal(unlink(path) | rename(loop, path), 0);
  assert_int_equal(newest_step(out), 3);
  ls_arena_destroy(&arena);
}

static void test_damaged_ones_are_set_aside(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const char *out = ls_arena_strdup(arena, path_of("aside"));
  ls_session *session = make_three(arena, out);
  change_byte(ls_arena_printf(arena, "%s/checkpoints/step-3/model.safetensors", out), -1);
  ls_error error = {0};
  assert_int_equal(ls_checkpoint_set_aside(out, 2, &error), LS_OK);
  assert_int_equal(count_names(out, "step-3", NULL), 0);
  assert_int_equal(newest_step(out), 2);
  job again = {.session = session, .steps = 3, .save = out};
  must_run(&again);
  assert_int_equal(ls_checkpoint_set_aside(out, 2, &error), LS_OK);
  must_run(&again);
  ls_checkpoint_prune(out, 1);
  assert_int_equal(newest_step(out), 3);
  assert_int_equal(count_names(out, "step-3.damaged", NULL), 1);
  assert_int_equal(count_names(out, "step-3.damaged-2", NULL), 1);
  assert_int_equal(count_names(out, "*", NULL), 3);
  ls_arena_destroy(&arena);
}

static void test_state_numbers_are_sealed(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const char *out = ls_arena_strdup(arena, path_of("sealed"));
  make_three(arena, out);
  const char *three = ls_arena_printf(arena, "%s/checkpoints/step-3", out);
  ls_checkpoint_state read;
  ls_error error = {0};
  assert_int_equal(ls_checkpoint_state_read(three, &read, &error), LS_OK);
  assert_int_equal(read.step, 3);
  assert_int_equal(read.tokens, 3 * BATCH * SEQUENCE);
  assert_int_equal(read.sequences, 3 * BATCH);
  const char *path = ls_arena_printf(arena, "%s/state.json", three);
  char *text;
  size_t bytes;
  assert_int_equal(ls_file_read(arena, path, &text, &bytes, &error), LS_OK);
  char *number = strstr(text, "\"step\": 3");
  assert_non_null(number);
  number[8] = '4';
  assert_int_equal(ls_file_write(path, text, bytes, &error), LS_OK);
  assert_int_equal(ls_checkpoint_state_read(three, &read, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "checksum"));
  ls_arena_destroy(&arena);
}

static void refuse(const char *config, const char *layout, const char *from, const char *expected) {
  ls_arena *arena = ls_arena_create();
  job load = {.session = make_session(arena, config, layout, "fp32"), .load = from};
  ls_error error = {0};
  assert_int_equal(run(&load, &error), LS_INPUT);
  if (!strstr(error.text, expected)) fail_msg("%s", error.text);
  ls_arena_destroy(&arena);
}

static void test_another_model_is_refused(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  make_three(arena, ls_arena_strdup(arena, path_of("model")));
  const char *from = ls_arena_strdup(arena, path_of("model/checkpoints/step-2"));
  refuse(gpt2_config, layouts[0], from, "model_type: found llama; expected gpt2");
  refuse(wider_config, layouts[0], from, "intermediate_size: found 23; expected 24");
  refuse(other_heads_config, layouts[1], from, "heads: found 4; expected 8");
  refuse(llama_config, "mesh.dp_shard=1 optimizer.name=sgd", from, "the optimizer has");
  ls_arena_destroy(&arena);
}

static void write_note(const char *path) {
  assert_int_equal(ls_file_write(path, "precious", 8, NULL), LS_OK);
}

static void test_prune(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const char *out = ls_arena_strdup(arena, path_of("prune"));
  make_three(arena, out);
  const char *in = ls_arena_printf(arena, "%s/checkpoints", out);
  const char *dead = ls_arena_printf(arena, "%s/step-9.tmp-12345", in);
  const char *whole = ls_arena_printf(arena, "%s/step-9.tmp-12345" LS_WHOLE, in);
  const char *mine = ls_arena_printf(arena, "%s/step-9.tmp-notes", in);
  const char *other = ls_arena_printf(arena, "%s/my-notes", in);
  const char *zero = ls_arena_printf(arena, "%s/step-0", in);
  assert_int_equal(mkdir(dead, 0777) | mkdir(whole, 0777) | mkdir(mine, 0777), 0);
  assert_int_equal(mkdir(other, 0777) | mkdir(zero, 0777), 0);
  write_note(ls_arena_printf(arena, "%s/x", zero));
  write_note(ls_arena_printf(arena, "%s/step-1/thesis.doc", in));
  ls_checkpoint_clear(out);
  assert_int_equal(count_names(out, "step-9*", NULL), 1); /* my notes */
  ls_checkpoint_prune(out, 0);
  assert_int_equal(count_names(out, "step-?", NULL), 4);
  *warned = 0;
  ls_checkpoint_prune(out, 2);
  assert_true(ls_file_exists(ls_arena_printf(arena, "%s/step-1.rest/thesis.doc", in)));
  assert_int_equal(count_names(out, "step-1.rest/*", NULL), 1);
  assert_non_null(strstr(warned, "step-1: removed; the files in it"));
  assert_int_equal(count_names(out, "step-1", NULL), 0);
  assert_int_equal(count_names(out, "step-2", NULL), 1);
  change_byte(ls_arena_printf(arena, "%s/step-2/state.json", in), 0); /* cannot be read */
  ls_checkpoint_prune(out, 1);
  assert_int_equal(count_names(out, "step-2", NULL), 1);
  assert_int_equal(newest_step(out), 3);
  assert_true(ls_directory_exists(other) && ls_directory_exists(mine));
  assert_true(ls_file_exists(ls_arena_printf(arena, "%s/x", zero)));
  ls_checkpoint_prune(path_of("nothing-here"), 1);
  ls_arena_destroy(&arena);
}

/* A kill while one is removed leaves it under another name, with some files gone. */
static void test_a_half_pruned_one_is_cleared(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const char *out = ls_arena_strdup(arena, path_of("half"));
  make_three(arena, out);
  const char *in = ls_arena_printf(arena, "%s/checkpoints", out);
  const char *half = ls_arena_printf(arena, "%s/step-1.tmp-77" LS_PRUNED, in);
  assert_int_equal(rename(ls_arena_printf(arena, "%s/step-1", in), half), 0);
  assert_int_equal(unlink(ls_arena_printf(arena, "%s/config.json", half)), 0);
  const char *ended = ls_arena_printf(arena, "%s/step-2.tmp-77" LS_PRUNED, in);
  assert_int_equal(rename(ls_arena_printf(arena, "%s/step-2", in), ended), 0);
  assert_int_equal(unlink(ls_arena_printf(arena, "%s/state.json", ended)), 0);
  ls_error error = {0};
  assert_int_equal(ls_checkpoint_recover(out, &error), LS_OK);
  ls_checkpoint_clear(out);
  assert_int_equal(count_names(out, "step-1*", NULL), 0);
  assert_int_equal(count_names(out, "step-2.rest", NULL), 1); /* whose files they are nobody says */
  assert_int_equal(newest_step(out), 3);
  ls_arena_destroy(&arena);
}

static int cannot_exchange(const char *from, const char *to) {
  (void)from, (void)to;
  errno = EINVAL;
  return -1;
}

static int renames_left;

static int rename_until(const char *from, const char *to) {
  if (renames_left-- > 0) return rename(from, to);
  errno = EIO;
  return -1;
}

static int rename_until_killed(const char *from, const char *to) {
  if (renames_left-- > 0) return rename(from, to);
  _exit(0);
}

/* Saves step 3 again where names cannot be exchanged; the rename after `renames` others fails. */
static void save_without_exchange(ls_session *session, const char *out, int renames, bool killed) {
  const ls_rename_calls usual = ls_checkpoint_renames;
  renames_left = renames;
  ls_checkpoint_renames =
      (ls_rename_calls){cannot_exchange, killed ? rename_until_killed : rename_until};
  job again = {.session = session, .steps = 3, .save = out, .save_may_fail = true};
  must_run(&again);
  ls_checkpoint_renames = usual;
  assert_int_equal(again.failures[0].status, renames < 2 ? LS_FAILED : LS_OK);
}

static void test_replacing_without_exchange(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const char *out = ls_arena_strdup(arena, path_of("nfs"));
  ls_session *session = make_three(arena, out);
  for (int renames = 0; renames < 3; renames++) {
    /* With 1 the old one is away, and the new one cannot take its name, nor the old one again. */
    save_without_exchange(session, out, renames, false);
    ls_error error = {0};
    assert_int_equal(ls_checkpoint_recover(out, &error), LS_OK);
    assert_int_equal(newest_step(out), 3);
    ls_checkpoint_clear(out);
    assert_int_equal(count_names(out, "*", NULL), 3);
  }
  for (int renames = 0; renames < 2; renames++) {
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) save_without_exchange(session, out, renames, true);
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    assert_int_equal(count_names(out, "step-3", NULL), renames == 0);
    ls_error error = {0};
    assert_int_equal(ls_checkpoint_recover(out, &error), LS_OK);
    assert_int_equal(newest_step(out), 3);
    ls_checkpoint_clear(out);
    assert_int_equal(count_names(out, "*", NULL), 3);
  }
  ls_arena_destroy(&arena);
}

static void test_saving_a_step_again_replaces_it(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const char *out = ls_arena_strdup(arena, path_of("again"));
  ls_session *session = make_three(arena, out);
  change_byte(ls_arena_printf(arena, "%s/checkpoints/step-3/model.safetensors", out), -1);
  assert_int_equal(newest_step(out), 2);
  job again = {.session = session, .steps = 3, .save = out};
  must_run(&again);
  assert_int_equal(newest_step(out), 3);
  assert_int_equal(count_names(out, "*", NULL), 3);
  ls_arena_destroy(&arena);
}

static void test_full_disk(void **state) {
  (void)state;
  const char *disk = path_of("disk");
  assert_int_equal(mkdir(disk, 0777), 0);
  if (mount("none", disk, "tmpfs", 0, "size=256k")) {
    print_message("a small file system cannot be mounted here\n");
    skip();
  }
  ls_arena *arena = ls_arena_create();
  const char *out = ls_arena_printf(arena, "%s/run", disk);
  job save = {.session = make_session(arena, llama_config, layouts[1], "fp32"),
              .save = out,
              .save_may_fail = true};
  int saved = 0;
  for (save.steps = 1; save.steps < 20; save.steps++) {
    must_run(&save);
    if (save.failures[0].status != LS_OK) break;
    saved = save.steps;
  }
  print_message("full after %d: %s\n", saved, save.failures[0].text);
  assert_in_range(saved, 1, 18);
  for (int r = 0; r < 2; r++) {
    assert_int_equal(save.failures[r].status, LS_FAILED);
    assert_non_null(strstr(save.failures[r].text, "No space left"));
  }
  assert_int_equal(newest_step(out), saved);
  assert_int_equal(count_names(out, "*", NULL), saved);
  assert_int_equal(umount(disk), 0);
  ls_arena_destroy(&arena);
}

/* Saves over and over, again and again the same steps; *saves counts. */
_Noreturn static void save_until_killed(ls_session *session, const char *out, volatile int *saves) {
  job save = {.session = session, .save = out};
  for (int round = 0;; round++) {
    ls_error error = {0};
    save.steps = round % 4;
    if (run(&save, &error) != LS_OK) {
      fprintf(stderr, "%s\n", error.text);
      _exit(1);
    }
    ls_checkpoint_prune(out, 2);
    ++*saves;
  }
}

static void test_kill_at_any_moment(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const char *out = ls_arena_strdup(arena, path_of("kill"));
  ls_session *session = make_session(arena, llama_config, layouts[0], "fp32");
  job first = {.session = session, .steps = 1, .save = out};
  must_run(&first);
  int leftovers = 0;
  volatile int *saves =
      mmap(NULL, sizeof *saves, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_ptr_not_equal(saves, MAP_FAILED);
  for (int round = 0; round < 30; round++) {
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) save_until_killed(session, out, saves);
    const long after_us = 3000 + (long)(ls_random_bits(seed, 9, (uint64_t)round) % 150000);
    nanosleep(&(struct timespec){.tv_nsec = after_us * 1000}, NULL);
    assert_int_equal(kill(child, SIGKILL), 0);
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFSIGNALED(how));
    leftovers += count_names(out, "*.tmp-*", NULL) > 0;
    /* The newest folder itself is good, so that none is ever passed over. */
    char newest[256];
    assert_true(count_names(out, "step-?", newest) > 0);
    ls_error error = {0};
    if (ls_checkpoint_verify(newest, LS_SEALED_ALL, &error) != LS_OK) fail_msg("%s", error.text);
    job load = {.session = session, .load = newest};
    must_run(&load);
    assert_int_equal(ls_checkpoint_recover(out, &error), LS_OK);
    ls_checkpoint_clear(out);
    ls_checkpoint_prune(out, 2);
    assert_int_equal(count_names(out, "*.tmp-*", NULL), 0);
    assert_int_equal(count_names(out, "*.rest", NULL), 0);
  }
  print_message("%d saves; of 30 kills %d came amid writing\n", *saves, leftovers);
  assert_true(leftovers > 0);
  munmap((void *)saves, sizeof *saves);
  ls_arena_destroy(&arena);
}

int main(void) {
  seed = test_seed(20261128);
  const struct CMUnitTest tests[] = {
      /* First, while this process has no threads of OpenMP that a child would miss. */
      cmocka_unit_test_setup_teardown(test_kill_at_any_moment, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_any_layout_gpt2, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_any_layout_llama, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_any_layout_falcon, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_any_layout_fp64, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_goes_on_with_the_same_bits, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_the_loss_scale_is_kept, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_damage_is_found, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_state_numbers_are_sealed, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_another_model_is_refused, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_unreadable_is_not_damaged, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_damaged_ones_are_set_aside, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_prune, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_a_half_pruned_one_is_cleared, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_replacing_without_exchange, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_saving_a_step_again_replaces_it, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_full_disk, set_up, tear_down),
  };
  ls_warnings_to(keep_warning, NULL);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
