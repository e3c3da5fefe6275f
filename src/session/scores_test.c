/* The scores of documents: on every rank of every layout those of one device, less the reference,
 * and of each document alone. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "run/rank_threads.h"
#include "session/scores.h"
#include "support/small_session.h"

enum { BATCH = 8, T = 8, TOKENS = BATCH * T, CHOSEN = 3 };

static double found[TOKENS];

typedef struct job {
  const ls_session *session;
  double reference; /* at each token */
  int other;        /* tokens of every second document are others */
} job;

/* Each row a document of CHOSEN tokens and one of the rest. */
static ls_status take(void *context, int64_t step, int64_t first, int64_t count,
                      const ls_batch *batch, ls_error *error) {
  (void)step, (void)error;
  const job *of = context;
  for (int64_t i = 0; i < count; i++) {
    const int64_t at = first + i, place = at % T;
    const int other = place >= CHOSEN ? of->other : 0;
    batch->ids[i] = (int32_t)(ls_random_bits(3, (uint64_t)other, (uint64_t)at) % 64);
    batch->labels[i] = place % 3 ? (int32_t)(ls_random_bits(4, 0, (uint64_t)at) % 64) : -1;
    batch->positions[i] = (int32_t)(place < CHOSEN ? place : place - CHOSEN);
    batch->reference[i] = of->reference;
  }
  return LS_OK;
}

static ls_status score(ls_rank *rank, job *of, ls_error *error) {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  const ls_inputs inputs = {.take = take, .context = of};
  double own[TOKENS];
  LS_TRY(ls_session_initialise(of->session, rank, error));
  LS_TRY(ls_score_batch(of->session, rank, &inputs, 0, own, error));
  pthread_mutex_lock(&mutex);
  bool same = true;
  for (int t = 0; t < TOKENS; t++) {
    same = same && (isnan(found[t]) || found[t] == own[t]);
    found[t] = own[t];
  }
  pthread_mutex_unlock(&mutex);
  return same ? LS_OK : ls_fail(error, LS_FAILED, "ranks have different scores");
}

static ls_status rank_body(ls_comm *comm, void *context, ls_error *error) {
  job *of = context;
  ls_rank *rank;
  LS_TRY(ls_session_rank(of->session, comm, &rank, error));
  const ls_status status = score(rank, of, error);
  ls_rank_destroy(&rank);
  return status;
}

static void score_with(int devices, const char *const *keys, int key_count, double reference,
                       int other) {
  ls_error error = {0};
  ls_world *world;
  job of = {open_session(devices, keys, key_count), reference, other};
  for (int t = 0; t < TOKENS; t++) found[t] = NAN;
  assert_int_equal(ls_world_create_threads(devices, &world, &error), LS_OK);
  if (ls_rank_threads_run(world, rank_body, &of, &error) != LS_OK)
    fail_msg("%s: %s", keys[0], error.text);
  ls_world_destroy(&world);
}

static void score_under(int devices, const char *layout, double reference, int other) {
  const char *keys[] = {layout, "task=dpo", "dtype=fp64", "train.microbatches=2"};
  score_with(devices, keys, devices > 4 ? 3 : 4, reference, other);
}

static void scores_are_of_documents(void **state) {
  (void)state;
  double one[TOKENS];
  score_under(1, "zero=3", 0, 0);
  memcpy(one, found, sizeof one);
  for (int t = 0; t < TOKENS; t++) {
    assert_true(one[t] < 0);
    if (t % T != 0 && t % T != CHOSEN) assert_true(one[t] == one[t - 1]);
  }
  score_under(1, "zero=3", -0.25, 1);
  for (int t = 0; t < TOKENS; t++) {
    /* Of places 0 to 7 all but 0, 3 and 6 have labels: two of the first three. */
    if (t % T < CHOSEN) assert_true(fabs(found[t] - one[t] - 2 * 0.25) < 1e-12);
    if (t % T >= CHOSEN) assert_true(fabs(found[t] - one[t] - 3 * 0.25) > 1e-3);
  }
}

static void every_layout_gives_the_same(void **state) {
  (void)state;
  static const struct {
    int devices;
    const char *layout;
  } layouts[] = {{2, "zero=3"}, {4, "mesh.tp=2"}, {4, "mesh.pp=2"}, {8, "mesh.pp=2"},
                 {4, "zero=1"}, {2, "mesh.cp=2"}, {4, "mesh.cp=2"}, {8, "mesh.cp=4"}};
  double one[TOKENS];
  score_under(1, "zero=3", -0.5, 0);
  memcpy(one, found, sizeof one);
  for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++) {
    score_under(layouts[l].devices, layouts[l].layout, -0.5, 0);
    for (int t = 0; t < TOKENS; t++) assert_true(fabs(found[t] - one[t]) < 1e-10);
  }
}

/* With slots for a hundredth of an even routing's rows every batch is gone through again. */
static void rows_without_a_slot_are_scored_again(void **state) {
  (void)state;
  static const char mixture[] =
      "{\"model_type\": \"mixtral\", \"vocab_size\": 64, \"hidden_size\": 16,"
      " \"intermediate_size\": 12, \"num_hidden_layers\": 2, \"num_attention_heads\": 2,"
      " \"num_key_value_heads\": 2, \"max_position_embeddings\": 16, \"num_local_experts\": 6,"
      " \"num_experts_per_tok\": 2, \"sliding_window\": null}";
  static const char *const keys[] = {"mesh.ep=2", "task=dpo", "dtype=fp64", "experts.bound=0.01"};
  ls_error error;
  double one[TOKENS];
  assert_int_equal(ls_file_write(in_folder("config.json"), mixture, strlen(mixture), &error),
                   LS_OK);
  score_under(1, "zero=3", 0, 0);
  memcpy(one, found, sizeof one);
  score_with(2, keys, 4, 0, 0);
  for (int t = 0; t < TOKENS; t++) assert_true(fabs(found[t] - one[t]) < 1e-10);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(scores_are_of_documents, set_up_model, tear_down),
      cmocka_unit_test_setup_teardown(every_layout_gives_the_same, set_up_model, tear_down),
      cmocka_unit_test_setup_teardown(rows_without_a_slot_are_scored_again, set_up_model,
                                      tear_down)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
