/* The training loop: stopping and going on changes nothing, a NaN is named, a folder has one owner,
 * and no layout changes what is trained. */

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
  double loss[STEPS + 1];
  int64_t begun_after, stop_after;
  volatile sig_atomic_t stop;
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
  if (step->step == f->stop_after) f->stop = 1;
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
  words[count++] = "dtype=fp32";
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
  if (status == LS_OK) {
    assert_int_equal(ls_world_create_threads(devices, &world, error), LS_OK);
    f->stop = 0;
    const ls_train_options options = {
        .fresh = fresh, .begin = on_begin, .report = on_step, .context = f, .stop = &f->stop};
    status = ls_train(session, dataset, world, &options, error);
    ls_world_destroy(&world);
    ls_dataset_close(dataset);
  }
  ls_arena_destroy(&arena);
  return status;
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

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_stopping_changes_nothing, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_layouts_train_alike, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_other_mathematics_is_refused, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_nan_is_named, set_up, tear_down)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
