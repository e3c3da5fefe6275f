/* The training loop: stopping and going on changes nothing, a NaN is named, a folder has one owner,
 * no layout changes what is trained, and a wrong program does not run. */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/random.h"
#include "base/stop.h"
#include "checkpoint/checkpoint_folder.h"
#include "store/safetensors.h"
#include "train/loop.h"

enum { STEPS = 6 };

static const char model[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 256, \"hidden_size\": 16,"
    " \"intermediate_size\": 24, \"num_hidden_layers\": 2, \"num_attention_heads\": 4,"
    " \"num_key_value_heads\": 2, \"max_position_embeddings\": 16, \"rms_norm_eps\": 1e-5,"
    " \"tie_word_embeddings\": true}";

/* A folder with a text and a model, and the losses a run in it reports. */
typedef struct fixture {
  char folder[64];
  const char *dtype;
  double loss[STEPS + 1], norm[STEPS + 1], rate[STEPS + 1], scale[STEPS + 1];
  int64_t skipped[STEPS + 1];
  int64_t begun_after, stop_after;
  int stop_in;     /* evaluation of this start in which a stop comes; 0: none */
  int evaluations; /* of this start, begun */
  int proofs;      /* calls of on_proved */
  int damaged;     /* program whose last instruction is taken away, + 1 */
  volatile sig_atomic_t stop;
  bool takes_traces;
  int64_t traced; /* the step of the last recording */
  int recordings, ranks;
} fixture;

static void write_text(const char *folder, const char *name, const char *text, size_t bytes) {
  ls_arena *arena = ls_arena_create();
  ls_error error = {0};
  if (ls_file_write(ls_arena_printf(arena, "%s/%s", folder, name), text, bytes, &error) != LS_OK)
    fail_msg("%s", error.text);
  ls_arena_destroy(&arena);
}

static int set_up(void **state) {
  fixture *f = calloc(1, sizeof *f);
  assert_non_null(f);
  f->dtype = "fp32";
  snprintf(f->folder, sizeof f->folder, "/tmp/lockstep-loop-XXXXXX");
  assert_non_null(mkdtemp(f->folder));
  char text[8000];
  for (size_t i = 0; i < sizeof text; i++)
    text[i] = (char)('a' + ls_random_bits(3, 1, i) % 3 + i % 5);
  write_text(f->folder, "text", text, sizeof text);
  write_text(f->folder, "config.json", model, strlen(model));
  *state = f;
  return 0;
}

static int tear_down(void **state) {
  fixture *f = *state;
  ls_error error = {0};
  assert_int_equal(ls_directory_remove(f->folder, &error), LS_OK);
  free(f);
  return 0;
}

static void on_begin(void *context, int64_t done, int64_t steps, const char *where_from) {
  (void)steps;
  (void)where_from;
  ((fixture *)context)->begun_after = done;
}

static void on_step(void *context, const ls_metrics_step *step) {
  fixture *f = context;
  f->loss[step->step] = step->loss;
  f->norm[step->step] = step->grad_norm;
  f->rate[step->step] = step->learning_rate;
  f->scale[step->step] = step->loss_scale;
  f->skipped[step->step] = step->skipped;
  if (step->step == f->stop_after) __atomic_store_n(&f->stop, 1, __ATOMIC_RELAXED);
}

static void on_evaluating(void *context, int64_t done, int64_t batches) {
  fixture *f = context;
  assert_true(batches > 1);
  if (done == 0 && ++f->evaluations == f->stop_in) __atomic_store_n(&f->stop, 1, __ATOMIC_RELAXED);
}

static ls_status on_traced(void *context, const ls_recording *recording, ls_error *error) {
  fixture *f = context;
  (void)error;
  f->traced = recording->step;
  f->ranks = recording->ranks;
  f->recordings++;
  for (int r = 0; r < recording->ranks; r++) assert_true(recording->by_rank[r].count > 0);
  return LS_OK;
}

static void on_proved(void *context, const ls_session_proof *proof) {
  fixture *f = context;
  assert_true(proof->reports[LS_SESSION_STEP].gradients > 0 && proof->seconds >= 0);
  assert_true(proof->reports[LS_SESSION_EVALUATE].instructions > 0);
  f->proofs++;
}

/* Takes away the last instruction of a program: its instructions are its own, though const here. */
static void damage(const ls_session *session, int program) {
  ls_program *damaged = (ls_program *)session->programs[program];
  ls_body *last = &damaged->bodies.items[damaged->actions.items[damaged->actions.count - 1].body];
  assert_true(last->count > 0);
  last->count--;
}

/* Trains with these further keys on a mesh of so many devices; returns the status. */
static ls_status train(fixture *f, int devices, const char *const *keys, int key_count, bool fresh,
                       ls_error *error) {
  ls_arena *arena = ls_arena_create();
  const char *words[24];
  int count = 0;
  words[count++] = ls_arena_printf(arena, "model=%s/config.json", f->folder);
  words[count++] = ls_arena_printf(arena, "data.text=%s/text", f->folder);
  words[count++] = ls_arena_printf(arena, "out=%s/run", f->folder);
  words[count++] = "data.seq_len=8";
  words[count++] = "train.batch=8";
  words[count++] = ls_arena_printf(arena, "train.steps=%d", STEPS);
  words[count++] = "train.lr=0.01";
  words[count++] = "train.warmup=2";
  words[count++] = ls_arena_printf(arena, "dtype=%s", f->dtype);
  words[count++] = "device.threads=1";
  for (int k = 0; k < key_count; k++) words[count++] = keys[k];
  ls_run_file *run;
  ls_session *session;
  ls_dataset *dataset;
  ls_world *world;
  ls_status status = ls_run_file_read(arena, NULL, words, count, &run, error);
  if (status == LS_OK) status = ls_session_create(arena, run, devices, devices, &session, error);
  if (status == LS_OK)
    status =
        ls_dataset_open(arena, run, ls_tokenizer_bytes(), f->folder, NULL, NULL, &dataset, error);
  if (status == LS_OK && f->damaged) damage(session, f->damaged - 1);
  if (status == LS_OK) {
    assert_int_equal(ls_world_create_threads(devices, &world, error), LS_OK);
    f->stop = f->evaluations = 0;
    ls_stop_listen(&f->stop);
    const ls_train_options options = {
        .fresh = fresh ? LS_FRESH_ASIDE : LS_FRESH_NO,
        .proved = on_proved,
        .begin = on_begin,
        .report = on_step,
        .evaluating = f->stop_in ? on_evaluating : NULL,
        .traced = f->takes_traces ? on_traced : NULL,
        .context = f,
    };
    status = ls_train(session, dataset, world, &options, error);
    ls_stop_listen(NULL);
    ls_world_destroy(&world);
    ls_dataset_close(dataset);
  }
  ls_arena_destroy(&arena);
  return status;
}

/* Rank 0 tells the others which checkpoint they go on from. */
static void test_a_long_path_is_gone_on_from(void **state) {
  fixture *f = *state;
  ls_error error = {0};
  char out[1400];
  int length = snprintf(out, sizeof out, "out=%s", f->folder);
  for (int i = 0; i < 5; i++)
    length += snprintf(out + length, sizeof out - (size_t)length, "/%0240d", i);
  const char *const keys[] = {"mesh.dp_shard=2", out};
  f->stop_after = 3;
  assert_int_equal(train(f, 2, keys, 2, false, &error), LS_STOPPED);
  f->stop_after = 0;
  if (train(f, 2, keys, 2, false, &error) != LS_OK) fail_msg("%s", error.text);
  assert_int_equal(f->begun_after, 3);
}

static void test_stopping_changes_nothing(void **state) {
  fixture *f = *state;
  ls_error error = {0};
  const char *const keys[] = {"mesh.dp_shard=2", "zero=3"};
  if (train(f, 2, keys, 2, false, &error) != LS_OK) fail_msg("%s", error.text);
  double uninterrupted[STEPS + 1];
  memcpy(uninterrupted, f->loss, sizeof uninterrupted);
  assert_true(uninterrupted[STEPS] < uninterrupted[1]);
  f->stop_after = 3;
  assert_int_equal(train(f, 2, keys, 2, true, &error), LS_STOPPED);
  f->stop_after = 0;
  memset(f->loss, 0, sizeof f->loss);
  assert_int_equal(train(f, 2, keys, 2, false, &error), LS_OK);
  assert_int_equal(f->begun_after, 3);
  for (int s = 4; s <= STEPS; s++) assert_true(f->loss[s] == uninterrupted[s]); /* bit for bit */
}

static ls_best_evaluation best_of(const fixture *f) {
  ls_arena *arena = ls_arena_create();
  ls_error error = {0};
  ls_checkpoint_state found;
  const char *out = ls_arena_printf(arena, "%s/run", f->folder);
  const char *last = ls_arena_printf(arena, "%s/checkpoints/step-%d", out, STEPS);
  if (ls_checkpoint_state_read(last, &found, &error) != LS_OK) fail_msg("%s", error.text);
  assert_int_equal(ls_checkpoint_best_step(out), found.best.step);
  ls_arena_destroy(&arena);
  return found.best;
}

/* An evaluation that a stop interrupts, even twice, counts once, and the best is the same. */
static void test_an_interrupted_evaluation_counts_once(void **state) {
  fixture *f = *state;
  ls_error error = {0};
  const char *const keys[] = {"mesh.dp_shard=2",      "eval.every=2",    "data.validation=0.05",
                              "checkpoint.best=true", "eval.patience=9", "train.lr=0.1",
                              "checkpoint.keep=1"};
  f->dtype = "fp64";
  if (train(f, 2, keys, 7, false, &error) != LS_OK) fail_msg("%s", error.text);
  const ls_best_evaluation whole = best_of(f);
  assert_int_equal(whole.judged, STEPS);
  assert_true(whole.step > 0 && whole.worse == (STEPS - whole.step) / 2);
  for (int k = 1; k <= STEPS / 2; k++) {
    f->stop_in = k;
    assert_int_equal(train(f, 2, keys, 7, true, &error), LS_STOPPED);
    f->stop_in = 1; /* once more, as it is repeated */
    assert_int_equal(train(f, 2, keys, 7, false, &error), LS_STOPPED);
    assert_int_equal(f->begun_after, 2 * k);
    f->stop_in = 0;
    if (train(f, 2, keys, 7, false, &error) != LS_OK) fail_msg("%s", error.text);
    const ls_best_evaluation parts = best_of(f);
    assert_memory_equal(&parts, &whole, sizeof whole);
    /* And it stays so where nothing is left to train. */
    if (train(f, 2, keys, 7, false, &error) != LS_OK) fail_msg("%s", error.text);
    const ls_best_evaluation again = best_of(f);
    assert_memory_equal(&again, &whole, sizeof whole);
  }
}

/* The third step of a start is recorded, or its last; what is trained stays the same bits. */
static void test_a_trace_is_of_one_step(void **state) {
  fixture *f = *state;
  ls_error error = {0};
  const char *keys[] = {"mesh.dp_shard=2", "zero=3", "trace=true", "train.steps=6"};
  assert_int_equal(train(f, 2, keys, 2, false, &error), LS_OK);
  double untraced[STEPS + 1];
  memcpy(untraced, f->loss, sizeof untraced);
  assert_int_equal(train(f, 2, keys, 3, true, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "trace"));
  f->takes_traces = true;
  if (train(f, 2, keys, 3, true, &error) != LS_OK) fail_msg("%s", error.text);
  assert_int_equal(f->recordings, 1);
  assert_int_equal(f->traced, 3);
  assert_int_equal(f->ranks, 2);
  assert_memory_equal(f->loss, untraced, sizeof untraced);
  f->stop_after = 2;
  assert_int_equal(train(f, 2, keys, 3, true, &error), LS_STOPPED);
  f->stop_after = 0;
  assert_int_equal(f->recordings, 1);
  keys[3] = "train.steps=4";
  assert_int_equal(train(f, 2, keys, 4, false, &error), LS_OK);
  assert_int_equal(f->recordings, 2);
  assert_int_equal(f->traced, 4); /* the third would be 5 */
  f->takes_traces = false;
}

static void test_layouts_train_alike(void **state) {
  fixture *f = *state;
  ls_error error = {0};
  assert_int_equal(train(f, 1, NULL, 0, false, &error), LS_OK);
  double one[STEPS + 1];
  memcpy(one, f->loss, sizeof one);
  const char *const keys[] = {"mesh.dp_replicate=2", "mesh.tp=2", "sequence_parallel=true",
                              "train.microbatches=2"};
  if (train(f, 4, keys, 4, true, &error) != LS_OK) fail_msg("%s", error.text);
  for (int s = 1; s <= STEPS; s++) assert_true(fabs(f->loss[s] - one[s]) < 1e-4);
  for (int s = 1; s <= STEPS; s++) assert_true(isnan(f->scale[s]) && f->skipped[s] == 0);
}

static void test_other_mathematics_is_refused(void **state) {
  fixture *f = *state;
  ls_error error = {0};
  assert_int_equal(train(f, 1, NULL, 0, false, &error), LS_OK);
  const char *const keys[] = {"optimizer.weight_decay=0.3"};
  assert_int_equal(train(f, 1, keys, 1, false, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "optimizer.weight_decay"));
  assert_int_equal(train(f, 1, keys, 1, true, &error), LS_OK);
}

/* The same text by another name is the same text. */
static void test_a_moved_text_is_the_same(void **state) {
  fixture *f = *state;
  ls_error error = {0};
  f->stop_after = 3;
  assert_int_equal(train(f, 1, NULL, 0, true, &error), LS_STOPPED);
  f->stop_after = 0;
  ls_arena *arena = ls_arena_create();
  const char *moved = ls_arena_printf(arena, "%s/moved", f->folder);
  assert_int_equal(rename(ls_arena_printf(arena, "%s/text", f->folder), moved), 0);
  const char *const keys[] = {ls_arena_printf(arena, "data.text=%s", moved)};
  if (train(f, 1, keys, 1, false, &error) != LS_OK) fail_msg("%s", error.text);
  assert_int_equal(f->begun_after, 3);
  ls_arena_destroy(&arena);
}

/* Other words, or others for evaluation: what a checkpoint was trained on is not what is there. */
static void test_a_changed_text_is_refused_or_allowed(void **state) {
  fixture *f = *state;
  ls_error error = {0};
  f->stop_after = 3;
  assert_int_equal(train(f, 1, NULL, 0, true, &error), LS_STOPPED);
  f->stop_after = 0;
  ls_arena *arena = ls_arena_create();
  const char *path = ls_arena_printf(arena, "%s/text", f->folder);
  char *text;
  size_t bytes;
  assert_int_equal(ls_file_read(arena, path, &text, &bytes, &error), LS_OK);
  text[bytes / 3] ^= 1;
  assert_int_equal(ls_file_write(path, text, bytes, &error), LS_OK);
  assert_int_equal(train(f, 1, NULL, 0, false, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "data.text: is not the text that"));
  assert_non_null(strstr(error.text, "data.on_change=allow"));
  const char *const keys[] = {"data.on_change=allow"};
  assert_int_equal(train(f, 1, keys, 1, false, &error), LS_OK);
  assert_int_equal(f->begun_after, 3);
  text[bytes / 3] ^= 1;
  assert_int_equal(ls_file_write(path, text, bytes, &error), LS_OK);
  assert_int_equal(train(f, 1, NULL, 0, false, &error), LS_INPUT); /* its text is the other one */
  assert_int_equal(train(f, 1, NULL, 0, true, &error), LS_OK);
  ls_arena_destroy(&arena);
}

static void test_nan_is_named(void **state) {
  fixture *f = *state;
  ls_error error = {0};
  const char *const keys[] = {"train.lr=1e18", "train.warmup=0", "train.clip=0", "mesh.dp_shard=2"};
  assert_int_equal(train(f, 2, keys, 4, false, &error), LS_FAILED);
  print_message("%s\n", error.text);
  assert_non_null(strstr(error.text, "NaN"));
  assert_non_null(strstr(error.text, "step "));
  assert_non_null(strstr(error.text, "rank "));
}

/* Layouts with which fp16 is trained. */
typedef struct mesh {
  int devices, key_count;
  const char *keys[6];
} mesh;

static const mesh meshes[] = {
    {1, 0, {NULL}},
    {2, 1, {"mesh.dp_replicate=2"}},
    {2, 2, {"mesh.dp_shard=2", "zero=3"}},
    {2, 3, {"mesh.pp=2", "mesh.dp_shard=1", "train.microbatches=2"}},
};
enum { MESHES = sizeof meshes / sizeof *meshes };

static ls_status train_on(fixture *f, const mesh *on, bool fresh, ls_error *error) {
  return train(f, on->devices, on->keys, on->key_count, fresh, error);
}

/* fp16 keeps 11 bits: losses are nearer to fp32's than 1 in 1000, norms than 1 in 100. */
static void test_fp16_follows_fp32(void **state) {
  fixture *f = *state;
  ls_error error = {0};
  if (train_on(f, &meshes[0], false, &error) != LS_OK) fail_msg("%s", error.text);
  const fixture wide = *f;
  f->dtype = "fp16";
  double worst_loss = 0, worst_norm = 0;
  for (int m = 0; m < MESHES; m++) {
    if (train_on(f, &meshes[m], true, &error) != LS_OK) fail_msg("%s", error.text);
    for (int s = 1; s <= STEPS; s++) {
      worst_loss = fmax(worst_loss, fabs(f->loss[s] / wide.loss[s] - 1));
      worst_norm = fmax(worst_norm, fabs(f->norm[s] / wide.norm[s] - 1));
      assert_true(f->scale[s] == 65536 && f->skipped[s] == 0);
    }
  }
  print_message("fp16 from fp32: loss %.2g, norm %.2g\n", worst_loss, worst_norm);
  assert_true(worst_loss > 0 && worst_loss < 1e-3);
  assert_true(worst_norm > 0 && worst_norm < 1e-2);
}

/* bf16 keeps 8 bits of a gradient: losses stay within 1 in 200 of fp32's, norms within 1 in 50. */
static void test_narrow_gradients_follow_wide_ones(void **state) {
  fixture *f = *state;
  ls_error error = {0};
  if (train_on(f, &meshes[0], false, &error) != LS_OK) fail_msg("%s", error.text);
  const fixture wide = *f;
  static const char *const dtypes[] = {"fp32", "bf16", "fp16"};
  double worst_loss = 0, worst_norm = 0;
  for (int m = 0; m < 3 * MESHES; m++) {
    mesh on = meshes[m / 3];
    on.keys[on.key_count++] = "grad_dtype=bf16";
    if (m / 3 < 3) on.keys[on.key_count++] = "train.microbatches=4";
    f->dtype = dtypes[m % 3];
    if (train_on(f, &on, true, &error) != LS_OK) fail_msg("%s", error.text);
    for (int s = 1; s <= STEPS; s++) {
      worst_loss = fmax(worst_loss, fabs(f->loss[s] / wide.loss[s] - 1));
      worst_norm = fmax(worst_norm, fabs(f->norm[s] / wide.norm[s] - 1));
    }
  }
  print_message("bf16 gradients from fp32's: loss %.2g, norm %.2g\n", worst_loss, worst_norm);
  assert_true(worst_loss > 0 && worst_loss < 5e-3);
  assert_true(worst_norm > 0 && worst_norm < 2e-2);
  f->dtype = "fp64";
  const char *const keys[] = {"grad_dtype=bf16"};
  assert_int_equal(train(f, 1, keys, 1, true, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "grad_dtype: found bf16 with dtype: fp64"));
}

static const char *checkpoint_file(ls_arena *arena, const fixture *f, int step, const char *name) {
  return ls_arena_printf(arena, "%s/run/checkpoints/step-%d%s%s", f->folder, step, *name ? "/" : "",
                         name);
}

/* Trains two steps and gives the checkpoint after them this loss scale; also another last weight,
 * where there is one. */
static void train_two_steps(fixture *f, const mesh *on, const char *scale, const float *weight) {
  ls_error error = {0};
  f->stop_after = 2;
  assert_int_equal(train_on(f, on, true, &error), LS_STOPPED);
  f->stop_after = 0;
  ls_arena *arena = ls_arena_create();
  json_t *sealed = json_load_file(checkpoint_file(arena, f, 2, "state.json"), 0, NULL);
  assert_string_equal(json_string_value(json_object_get(sealed, "loss_scale")),
                      "65536 after 2 steps, 0 skipped");
  assert_int_equal(json_object_set_new(sealed, "loss_scale", json_string(scale)), 0);
  if (weight) {
    FILE *file = fopen(checkpoint_file(arena, f, 2, "model.safetensors"), "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, -(long)sizeof *weight, SEEK_END), 0);
    assert_int_equal(fwrite(weight, sizeof *weight, 1, file), 1);
    assert_int_equal(fclose(file), 0);
  }
  if (ls_checkpoint_seal(checkpoint_file(arena, f, 2, ""), sealed, NULL, 0, &error) != LS_OK)
    fail_msg("%s", error.text);
  json_decref(sealed);
  ls_arena_destroy(&arena);
}

static void assert_same_file(const fixture *f, int step, int other, const char *name, bool same) {
  ls_arena *arena = ls_arena_create();
  ls_error error = {0};
  char *a, *b;
  size_t a_bytes, b_bytes;
  assert_int_equal(ls_file_read(arena, checkpoint_file(arena, f, step, name), &a, &a_bytes, &error),
                   LS_OK);
  assert_int_equal(
      ls_file_read(arena, checkpoint_file(arena, f, other, name), &b, &b_bytes, &error), LS_OK);
  assert_int_equal(a_bytes, b_bytes);
  assert_int_equal(memcmp(a, b, a_bytes) == 0, same);
  ls_arena_destroy(&arena);
}

/* In fp16 the gradient of a logit begins with the scale over 64 labels: 2^23 is too much for it,
 * 2^22 for what the norms make of it. */
static const char too_large[] = "8388608 after 1999 steps, 0 skipped";

/* The first element of a tensor of the checkpoint after a step. */
static double first_of(const fixture *f, int step, const char *stem, const char *name) {
  ls_arena *arena = ls_arena_create();
  ls_error error = {0};
  ls_safetensors *stored;
  double value = 0;
  if (ls_safetensors_open(checkpoint_file(arena, f, step, ""), stem, &stored, &error) != LS_OK)
    fail_msg("%s", error.text);
  const ls_stored_tensor *tensor = ls_safetensors_find(stored, name);
  if (!tensor) fail_msg("no %s", name);
  assert_int_equal(ls_stored_tensor_read(tensor, 0, 1, LS_F64, &value, &error), LS_OK);
  ls_safetensors_close(&stored);
  ls_arena_destroy(&arena);
  return value;
}

/* Step 5 is AdamW's third: nothing decays in a vector, so its moments and that count say how far
 * it goes. */
static void check_third_update(const fixture *f) {
  const double first = first_of(f, 5, "optimizer", "moment1.head.norm.weight");
  const double second = first_of(f, 5, "optimizer", "moment2.head.norm.weight");
  const double way =
      first_of(f, 5, "model", "model.norm.weight") - first_of(f, 4, "model", "model.norm.weight");
  const double root = sqrt(second / (1 - pow(0.95, 3))) + 1e-8;
  const double expected = -f->rate[5] * first / (1 - pow(0.9, 3)) / root;
  print_message("the third update: %g, as its moments say %g\n", way, expected);
  assert_true(fabs(way - expected) < 1e-3 * fabs(expected));
}

static void check_overflow(fixture *f, const mesh *on, const fixture *one) {
  ls_error error = {0};
  train_two_steps(f, on, too_large, NULL);
  mesh saving = *on;
  saving.keys[saving.key_count++] = "checkpoint.every=1";
  saving.keys[saving.key_count++] = "checkpoint.keep=9";
  if (train_on(f, &saving, false, &error) != LS_OK) fail_msg("%s", error.text);
  assert_int_equal(f->begun_after, 2);
  for (int s = 3; s <= STEPS; s++) {
    const bool skips = s <= 4;
    assert_true(isfinite(f->loss[s]) && isfinite(f->norm[s]) == !skips);
    assert_int_equal(f->skipped[s], s == 3 ? 1 : 2);
    assert_true(f->scale[s] == (s == 3 ? 0x1p23 : (s == 4 ? 0x1p22 : 0x1p21)));
    assert_same_file(f, s, s - 1, "model.safetensors", skips);
    assert_same_file(f, s, s - 1, "optimizer.safetensors", skips);
    assert_true(fabs(f->loss[s] / one->loss[s] - 1) < 1e-3);
  }
  check_third_update(f);
}

static void test_overflow_skips_steps_on_all_ranks(void **state) {
  fixture *f = *state;
  ls_error error = {0};
  f->dtype = "fp16";
  train_two_steps(f, &meshes[0], too_large, NULL);
  if (train_on(f, &meshes[0], false, &error) != LS_OK) fail_msg("%s", error.text);
  const fixture one = *f;
  for (int m = 0; m < MESHES; m++) check_overflow(f, &meshes[m], &one);
}

/* After two steps without an update, so that the count of AdamW's steps is another than the run's;
 * and one step before the scale grows. */
static void test_stopping_keeps_the_scale(void **state) {
  fixture *f = *state;
  ls_error error = {0};
  f->dtype = "fp16";
  for (int grows = 0; grows < 2; grows++) {
    const char *scale = grows ? "1024 after 1997 steps, 1 skipped" : too_large;
    train_two_steps(f, &meshes[2], scale, NULL);
    if (train_on(f, &meshes[2], false, &error) != LS_OK) fail_msg("%s", error.text);
    const fixture through = *f;
    train_two_steps(f, &meshes[2], scale, NULL);
    f->stop_after = grows ? 4 : 5;
    assert_int_equal(train_on(f, &meshes[2], false, &error), LS_STOPPED);
    f->stop_after = 0;
    assert_int_equal(train_on(f, &meshes[2], false, &error), LS_OK);
    for (int s = 3; s <= STEPS; s++) {
      assert_true(f->loss[s] == through.loss[s]); /* bit for bit */
      assert_true(f->scale[s] == through.scale[s] && f->skipped[s] == through.skipped[s]);
    }
    assert_true(f->scale[STEPS] == (grows ? 2048 : 0x1p21));
    assert_int_equal(f->skipped[STEPS], grows ? 1 : 2);
  }
}

static void assert_same_steps(const fixture *f, const fixture *other, int from) {
  for (int s = from; s <= STEPS; s++) {
    assert_true(f->loss[s] == other->loss[s]); /* bit for bit */
    assert_true(f->norm[s] == other->norm[s] || !isfinite(f->norm[s]));
    assert_true(f->skipped[s] == other->skipped[s]);
  }
}

/* Going on before the norm is known, where it clips and where not, over a stop and a new beginning,
 * and where it overflows. */
static void test_post_validation_changes_nothing(void **state) {
  fixture *f = *state;
  static const char *const clips[] = {"train.clip=0", "train.clip=1.9", "train.clip=0.01"};
  ls_error error = {0};
  for (int c = 0; c < 3; c++) {
    const mesh waits = {
        2, 5, {"mesh.pp=2", "mesh.dp_shard=1", "train.microbatches=4", "schedule=zbh1", clips[c]}};
    mesh speculates = waits;
    speculates.keys[speculates.key_count++] = "post_validation=true";
    if (train_on(f, &waits, true, &error) != LS_OK) fail_msg("%s", error.text);
    const fixture through = *f;
    if (train_on(f, &speculates, true, &error) != LS_OK) fail_msg("%s", error.text);
    assert_same_steps(f, &through, 1);
    f->stop_after = 2;
    assert_int_equal(train_on(f, &speculates, true, &error), LS_STOPPED);
    f->stop_after = 0;
    if (train_on(f, &speculates, false, &error) != LS_OK) fail_msg("%s", error.text);
    assert_true(f->begun_after >= 2 && f->begun_after < STEPS);
    assert_same_steps(f, &through, 1);
    f->dtype = "fp16";
    train_two_steps(f, &waits, too_large, NULL);
    if (train_on(f, &waits, false, &error) != LS_OK) fail_msg("%s", error.text);
    const fixture skips = *f;
    assert_int_equal(f->skipped[STEPS], 2);
    train_two_steps(f, &waits, too_large, NULL);
    if (train_on(f, &speculates, false, &error) != LS_OK) fail_msg("%s", error.text);
    assert_same_steps(f, &skips, 3);
    f->dtype = "fp32";
  }
}

static void test_nan_after_a_speculation_is_named(void **state) {
  fixture *f = *state;
  ls_error waiting = {0}, speculating = {0};
  const char *const keys[] = {"train.lr=1e18",   "train.warmup=0",       "train.clip=0",
                              "mesh.pp=2",       "train.microbatches=4", "schedule=zbh1",
                              "mesh.dp_shard=1", "post_validation=true"};
  assert_int_equal(train(f, 2, keys, 7, true, &waiting), LS_FAILED);
  assert_int_equal(train(f, 2, keys, 8, true, &speculating), LS_FAILED);
  print_message("%s\n", speculating.text);
  assert_string_equal(speculating.text, waiting.text);
}

static void test_nan_weight_is_no_overflow(void **state) {
  fixture *f = *state;
  ls_error error = {0};
  f->dtype = "fp16";
  const float weight = NAN;
  train_two_steps(f, &meshes[1], "65536 after 2 steps, 0 skipped", &weight);
  assert_int_equal(train_on(f, &meshes[1], false, &error), LS_FAILED);
  print_message("%s\n", error.text);
  assert_non_null(strstr(error.text, "step 3: rank "));
  assert_non_null(strstr(error.text, "rmsnorm made a NaN or an infinity in "));
}

static void test_wrong_scale_is_refused(void **state) {
  fixture *f = *state;
  ls_error error = {0};
  f->dtype = "fp16";
  train_two_steps(f, &meshes[0], "large", NULL);
  assert_int_equal(train_on(f, &meshes[0], false, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "step-2/state.json: loss scale: found \"large\""));
  train_two_steps(f, &meshes[0], "1024 after 0 steps, 3 skipped", NULL);
  assert_int_equal(train_on(f, &meshes[0], false, &error), LS_INPUT);
  assert_non_null(strstr(error.text,
                         "step-2/state.json: loss scale: found 3 skipped steps; "
                         "expected at most 2"));
}

static void test_a_wrong_program_does_not_run(void **state) {
  fixture *f = *state;
  ls_error error = {0};
  for (int program = 0; program < LS_SESSION_STEP_AGAIN; program++) {
    f->damaged = program + 1;
    assert_int_equal(train(f, 1, NULL, 0, false, &error), LS_REFUTED);
    print_message("%s\n", error.text);
    assert_non_null(strstr(error.text, program == LS_SESSION_STEP
                                           ? "step is wrong: stage 0"
                                           : "evaluation is wrong: stage 0"));
    ls_arena *arena = ls_arena_create();
    assert_false(ls_directory_exists(ls_arena_printf(arena, "%s/run", f->folder)));
    ls_arena_destroy(&arena);
  }
  assert_int_equal(f->proofs, 0);
  assert_int_equal(train(f, 1, NULL, 0, false, NULL), LS_REFUTED); /* nobody reads why */
  const char *const unchecked[] = {"check=false"};
  f->damaged = LS_SESSION_EVALUATE + 1;
  assert_int_equal(train(f, 1, unchecked, 1, false, &error), LS_OK);
  assert_int_equal(f->proofs, 0);
  f->damaged = 0;
  assert_int_equal(train(f, 1, NULL, 0, true, &error), LS_OK);
  assert_int_equal(f->proofs, 1);
}

/* Every tensor of the weights: bit for bit the same after the first and the last step where it is
 * frozen, and of those alone the optimizer has nothing. */
static int check_frozen(const fixture *f, const char *const *frozen, int count) {
  ls_arena *arena = ls_arena_create();
  ls_error error = {0};
  ls_safetensors *first, *last, *optimizer;
  if (ls_safetensors_open(checkpoint_file(arena, f, 1, ""), "model", &first, &error) != LS_OK ||
      ls_safetensors_open(checkpoint_file(arena, f, STEPS, ""), "model", &last, &error) != LS_OK ||
      ls_safetensors_open(checkpoint_file(arena, f, STEPS, ""), "optimizer", &optimizer, &error) !=
          LS_OK)
    fail_msg("%s", error.text);
  int stay = 0;
  for (int t = 0; t < ls_safetensors_count(first); t++) {
    const ls_stored_tensor *before = ls_safetensors_at(first, t);
    const ls_stored_tensor *after = ls_safetensors_find(last, before->name);
    bool expected = false;
    for (int i = 0; i < count; i++) expected |= strstr(before->name, frozen[i]) != NULL;
    if ((memcmp(before->data, after->data, before->bytes) == 0) != expected)
      fail_msg("%s %s", before->name, expected ? "is changed" : "stays as it is");
    stay += expected;
  }
  assert_int_equal(ls_safetensors_count(optimizer), 2 * (ls_safetensors_count(first) - stay));
  ls_safetensors_close(&first);
  ls_safetensors_close(&last);
  ls_safetensors_close(&optimizer);
  ls_arena_destroy(&arena);
  return stay;
}

static void test_frozen_parameters_stay(void **state) {
  fixture *f = *state;
  static const char *const frozen[] = {"embed_tokens", "layers.0.", "layernorm", "norm.weight"};
  static const struct {
    const char *dtype;
    int devices;
    const char *keys[3];
  } layouts[] = {
      {"fp32", 1, {"zero=0", "recompute=full", "mesh.pp=1"}},
      {"fp32", 2, {"mesh.dp_shard=2", "zero=3", "train.microbatches=2"}},
      {"bf16", 4, {"mesh.dp_shard=2", "zero=1", "mesh.tp=2"}},
      {"fp16", 4, {"mesh.pp=2", "schedule=zbv", "train.microbatches=4"}},
      {"bf16", 2, {"mesh.dp_shard=2", "offload.parameters=host", "offload.optimizer=host"}},
      {"bf16", 2, {"mesh.pp=2", "post_validation=true", "train.microbatches=2"}},
  };
  for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
    const char *keys[6] = {"train.freeze=[embedding, layers.0, '*.norm']", "checkpoint.every=1",
                           "checkpoint.keep=9"};
    ls_error error = {0};
    double through[STEPS + 1];
    memcpy(keys + 3, layouts[i].keys, sizeof layouts[i].keys);
    f->dtype = layouts[i].dtype;
    if (train(f, layouts[i].devices, keys, 6, true, &error) != LS_OK) fail_msg("%s", error.text);
    assert_int_equal(check_frozen(f, frozen, 4), 13);
    memcpy(through, f->loss, sizeof through);
    f->stop_after = 3;
    assert_int_equal(train(f, layouts[i].devices, keys, 6, true, &error), LS_STOPPED);
    f->stop_after = 0;
    keys[0] = "train.freeze=[embedding, layers.0]";
    assert_int_equal(train(f, layouts[i].devices, keys, 6, false, &error), LS_INPUT);
    assert_non_null(strstr(error.text, "train.freeze"));
    keys[0] = "train.freeze=[embedding, layers.0, '*.norm']";
    assert_int_equal(train(f, layouts[i].devices, keys, 6, false, &error), LS_OK);
    for (int s = 4; s <= STEPS; s++) assert_true(f->loss[s] == through[s]); /* bit for bit */
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_stopping_changes_nothing, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_an_interrupted_evaluation_counts_once, set_up,
                                      tear_down),
      cmocka_unit_test_setup_teardown(test_a_trace_is_of_one_step, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_layouts_train_alike, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_other_mathematics_is_refused, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_frozen_parameters_stay, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_a_changed_text_is_refused_or_allowed, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_a_moved_text_is_the_same, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_a_wrong_program_does_not_run, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_nan_is_named, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_fp16_follows_fp32, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_narrow_gradients_follow_wide_ones, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_overflow_skips_steps_on_all_ranks, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_stopping_keeps_the_scale, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_a_long_path_is_gone_on_from, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_post_validation_changes_nothing, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_nan_after_a_speculation_is_named, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_nan_weight_is_no_overflow, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_wrong_scale_is_refused, set_up, tear_down)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
