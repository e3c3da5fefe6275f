/* First weights: the values of their formula, however many threads make them and ranks hold them.
 * What a device needs: its programs and the workspace of its kernels. */
#include "session/session.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "cost/cost.h"
#include "run/rank_threads.h"
#include "session/agree.h"
#include "session/prove.h"

enum { MAX_WORDS = 16, SEED = 5 };

/* gcc's OpenMP runtime is not built for that sanitizer, which sees races in it. */
#if defined(__SANITIZE_THREAD__)
#define SEVERAL "device.threads=1"
#else
#define SEVERAL "device.threads=3"
#endif

static ls_status try_session(ls_arena *arena, const char *layout, ls_session **session,
                             ls_error *error) {
  const char *words[MAX_WORDS] = {"model=gpt2-10m", "data.seq_len=8", "train.batch=8", "dropout=0",
                                  "train.seed=5"};
  int count = 5;
  char *copy = ls_arena_strdup(arena, layout);
  for (char *word; (word = strsep(&copy, " "));) words[count++] = word;
  ls_run_file *run;
  LS_TRY(ls_run_file_read(arena, NULL, words, count, &run, error));
  const int devices = (int)ls_run_file_mesh_devices(run);
  return ls_session_create(arena, run, devices, devices, session, error);
}

static ls_session *open_session(ls_arena *arena, const char *layout) {
  ls_session *session = NULL;
  ls_error error = {0};
  if (try_session(arena, layout, &session, &error) != LS_OK) fail_msg("%s", error.text);
  return session;
}

static int64_t differing(const ls_parameter *about, const float *values, int64_t count) {
  const uint64_t stream = ls_random_stream(about->name);
  int64_t wrong = 0;
  for (int64_t i = 0; i < count; i++) {
    double expected = about->init == LS_INIT_ONES ? 1 : 0;
    if (about->init == LS_INIT_NORMAL)
      expected = about->deviation * ls_random_normal(SEED, stream, (uint64_t)i);
    wrong += values[i] != (float)expected;
  }
  return wrong;
}

/* All ranks read a parameter together; each compares what it gets. */
static ls_status compare(const ls_session *session, ls_rank *rank, ls_error *error) {
  const ls_program *program = ls_rank_program(rank, LS_SESSION_STEP);
  for (int p = 0; p < program->parameter_count; p++) {
    const ls_parameter *about = &session->graph->parameters.items[p].about;
    const int64_t count = ls_program_parameter_elements(&program->parameters[p]);
    float *values = calloc((size_t)count, sizeof *values);
    if (!values) return ls_fail(error, LS_FAILED, "out of memory");
    const ls_status status =
        ls_rank_read_parameter(rank, program, p, LS_PART_MASTER, 0, count, values, LS_F32, error);
    const int64_t wrong = status == LS_OK ? differing(about, values, count) : 0;
    free(values);
    LS_TRY(status);
    if (wrong)
      return ls_fail(error, LS_FAILED, "%s: %lld of %lld differ", about->name, (long long)wrong,
                     (long long)count);
  }
  return LS_OK;
}

static ls_status on_rank(ls_comm *comm, void *context, ls_error *error) {
  const ls_session *session = context;
  ls_rank *rank;
  LS_TRY(ls_session_rank(session, comm, &rank, error));
  ls_status status = ls_session_initialise(session, rank, error);
  if (status == LS_OK) status = compare(session, rank, error);
  ls_rank_destroy(&rank);
  return status;
}

static void first_weights_are_those_of_their_index(void **state) {
  (void)state;
  static const char *const layouts[] = {
      "device.threads=1 dtype=fp32",
      SEVERAL " dtype=fp32",
      SEVERAL " dtype=bf16",
      SEVERAL " dtype=fp32 mesh.dp_shard=2",
      SEVERAL " dtype=fp32 mesh.dp_replicate=2 zero=1",
      SEVERAL " dtype=bf16 mesh.tp=2 mesh.dp_shard=2",
      SEVERAL " dtype=fp32 offload.optimizer=nvme offload.path=/tmp",
  };
  for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
    ls_arena *arena = ls_arena_create();
    ls_session *session = open_session(arena, layouts[i]);
    ls_world *world;
    ls_error error = {0};
    assert_int_equal(ls_world_create_threads(session->devices, &world, &error), LS_OK);
    if (ls_rank_threads_run(world, on_rank, session, &error) != LS_OK)
      fail_msg("%s: %s", layouts[i], error.text);
    ls_world_destroy(&world);
    ls_arena_destroy(&arena);
  }
}

/* The second rank fails; the first hears of it in a collective of the step, then of all ranks. */
static ls_status fail_unread(ls_comm *comm, void *context, ls_error *error) {
  const ls_session *session = context;
  const bool fails = ls_comm_rank(comm) == 1;
  ls_rank *rank;
  LS_TRY(ls_session_rank(session, comm, &rank, error));
  const ls_status agreed = ls_agree(rank, fails ? LS_INPUT : LS_OK, NULL);
  if (fails) ls_comm_abort(comm, "the test says so");
  const ls_status ran = fails ? LS_FAILED : ls_rank_run(rank, LS_SESSION_STEP, NULL);
  ls_rank_destroy(&rank);
  return agreed == LS_INPUT && ran == LS_FAILED ? LS_STOPPED : LS_INTERNAL;
}

static void ranks_fail_without_a_record(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_session *session = open_session(arena, "device.threads=1 dtype=fp32 mesh.dp_shard=2");
  ls_world *world;
  ls_error error = {0};
  assert_int_equal(ls_world_create_threads(session->devices, &world, &error), LS_OK);
  assert_int_equal(ls_rank_threads_run(world, fail_unread, session, NULL), LS_STOPPED);
  ls_world_destroy(&world);
  ls_arena_destroy(&arena);
}

/* The prediction is of the first rank of a stage, and holds for all. */
static void check_ranks(const ls_session *session) {
  const int ranks = session->devices / session->layout.pp;
  for (int r = 0; r < session->devices; r++) {
    const int stage = r / ranks;
    for (int p = 0; p < session->compiled.count; p++) {
      const int64_t bytes =
          ls_program_workspace(&session->device.facts, session->stages[p][stage], r);
      assert_true(bytes > 0 && bytes <= session->workspace[stage]);
    }
  }
}

static bool runs_again(const ls_session *session) {
  for (int s = 0; s < session->layout.recompute_of_count; s++)
    if (!ls_op_set_is_empty(&session->layout.recompute_of[s])) return true;
  return false;
}

/* Of exactly what it needs a device has enough, and of a byte less too little; a budget counts
 * alike. */
static void workspace_is_part_of_what_is_needed(void **state) {
  (void)state;
  static const char *const layouts[] = {
      "device.threads=2 dtype=fp32",
      "device.threads=2 dtype=bf16 data.seq_len=128",
      "device.threads=1 dtype=bf16 mesh.dp_shard=3 train.batch=9",
      "device.threads=1 dtype=bf16 mesh.pp=2 train.microbatches=2",
  };
  int found = 0;
  for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
    ls_arena *arena = ls_arena_create();
    ls_session *session = open_session(arena, layouts[i]), *other;
    check_ranks(session);
    int stage;
    const int64_t needed = ls_session_bytes_needed(session, &stage);
    int64_t arenas = 0;
    for (int p = 0; p < session->compiled.count; p++)
      if (ls_program_bytes(session->stages[p][stage]) > arenas)
        arenas = ls_program_bytes(session->stages[p][stage]);
    assert_true(needed >= arenas + session->workspace[stage]);
    for (int less = 0; less < 2; less++) {
      const char *words =
          ls_arena_printf(arena, "%s device.memory=%lld", layouts[i], (long long)needed - less);
      ls_error error = {0};
      assert_int_equal(try_session(arena, words, &other, &error), less ? LS_REFUTED : LS_OK);
      if (less) assert_non_null(strstr(error.text, "device.memory"));
      words = ls_arena_printf(arena, "%s recompute=budget", words);
      const ls_status status = try_session(arena, words, &other, &error);
      assert_true(status == LS_OK ? runs_again(other) == less : less && status == LS_REFUTED);
      found += status == LS_OK && less;
    }
    ls_arena_destroy(&arena);
  }
  assert_true(found > 0); /* a budget that could be kept with a byte less */
}

/* Proved on the queues of the engine that moves the device's data; with one for all messages, which
 * each of them holds, 1F1B on two stages never ends. */
static void assert_queues_are_the_devices(ls_session *session) {
  static const ls_queues one = {"one", LS_QUEUE_FOR_ALL, .holds = true};
  ls_session_proof proof;
  ls_error error = {0};
  assert_ptr_equal(session->device.facts.queues, &ls_queues_nccl);
  assert_int_equal(ls_session_prove(session, &proof, &error), LS_OK);
  assert_true(proof.reports[LS_SESSION_STEP].transfers > 0);
  session->device.facts.queues = &one;
  assert_int_equal(ls_session_prove(session, &proof, &error), LS_REFUTED);
  assert_non_null(strstr(error.text, "waits in a circle"));
}

/* Of exactly what its programs, workspace and overheads need a device has enough, and of a byte
 * less too little; it multiplies bf16, so that is its dtype, and transfers beside compute, so that
 * it gathers ahead. */
static void devices_that_are_not_here(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_device_facts facts = {0};
  ls_catalog *catalog;
  const ls_accelerator *found;
  assert_int_equal(ls_catalog_read(arena, NULL, &catalog, NULL), LS_OK);
  assert_int_equal(ls_catalog_find(catalog, "a100-sxm-40", &found, NULL), LS_OK);
  assert_true(ls_device_facts_of(found, &facts));
  const char *words[] = {"model=gpt2-10m", "data.seq_len=128", "train.batch=8",       "dropout=0",
                         "mesh.pp=2",      "mesh.dp_shard=2",  "train.microbatches=2"};
  int64_t needed = 0;
  for (int turn = 0; turn < 3; turn++) {
    ls_run_file *run;
    ls_session *session;
    ls_error error = {0};
    assert_int_equal(ls_run_file_read(arena, NULL, words, 7, &run, &error), LS_OK);
    if (turn) facts.memory_bytes = needed - (turn == 2);
    const ls_status status = ls_session_create_on(arena, run, 4, 4, &facts, &session, &error);
    assert_int_equal(status, turn == 2 ? LS_REFUTED : LS_OK);
    if (turn == 2) assert_non_null(strstr(error.text, "a100-sxm-40: a device needs"));
    if (status != LS_OK) break;
    int stage;
    needed = ls_session_bytes_needed(session, &stage);
    assert_int_equal(session->layout.compute, LS_BF16);
    assert_int_equal(session->layout.prefetch, 1);
    assert_non_null(strstr(ls_run_file_text(arena, run), "\nprefetch: 1"));
    assert_int_equal(session->groups[stage], 3); /* dp_shard, the other stage, all */
    assert_int_equal(session->overhead[stage],
                     facts.overheads[0].bytes + 3 * facts.overheads[1].bytes);
    assert_queues_are_the_devices(session);
  }
  ls_arena_destroy(&arena);
}

static void how_products_in_fp8_are_done(void **state) {
  (void)state;
  static const struct {
    const char *on, *dtype, *expected;
  } cases[] = {{"h100-sxm-80", "dtype=fp8",
                "fp8: 96 of 96 products y and dx are of codes of 8 bits, scales of tokens in the "
                "product"},
               {"l40s", "dtype=fp8", "a pass over what it gives (cuBLASLt takes scales"},
               {"a100-sxm-40", "dtype=fp8", "no faster (GPUs before sm_89 multiply no"},
               {"h100-sxm-80", "dtype=bf16", NULL}};
  ls_arena *arena = ls_arena_create();
  ls_catalog *catalog;
  assert_int_equal(ls_catalog_read(arena, NULL, &catalog, NULL), LS_OK);
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    ls_device_facts facts;
    const ls_accelerator *found;
    ls_run_file *run;
    ls_session *session;
    ls_error error = {0};
    const char *words[] = {"model=gpt2-10m", "data.seq_len=128", "train.batch=8", "dropout=0",
                           cases[c].dtype};
    assert_int_equal(ls_catalog_find(catalog, cases[c].on, &found, NULL), LS_OK);
    assert_true(ls_device_facts_of(found, &facts));
    assert_int_equal(ls_run_file_read(arena, NULL, words, 5, &run, &error), LS_OK);
    if (ls_session_create_on(arena, run, 1, 1, &facts, &session, &error) != LS_OK)
      fail_msg("%s", error.text);
    const char *text = ls_session_fp8(arena, session);
    if (!cases[c].expected != !text || (text && !strstr(text, cases[c].expected)))
      fail_msg("%s, expected %s", text ? text : "nothing", cases[c].expected);
  }
  ls_arena_destroy(&arena);
}

/* cuBLASLt adds products of bf16 to bf16 alone; CPUs add all that is no fp64. */
static void gradients_in_bf16_are_of_what_a_device_adds(void **state) {
  (void)state;
  static const struct {
    const char *on, *dtype, *refused;
  } cases[] = {
      {"h100-sxm-80", "dtype=fp32", "found bf16 with dtype: fp32 on h100-sxm-80"},
      {"h100-sxm-80", "dtype=fp16", "expected fp32, which is the standard, or dtype: bf16"},
      {"h100-sxm-80", "dtype=bf16", NULL},
      {"h100-sxm-80", "dtype=fp8", NULL},
      {NULL, "dtype=fp32", NULL},
      {NULL, "dtype=fp16", NULL}};
  ls_arena *arena = ls_arena_create();
  ls_catalog *catalog;
  assert_int_equal(ls_catalog_read(arena, NULL, &catalog, NULL), LS_OK);
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    ls_device_facts facts = *ls_device_facts_cpu("avx512");
    const ls_accelerator *found;
    ls_run_file *run;
    ls_session *session;
    ls_error error = {0};
    const char *words[] = {"model=gpt2-10m", "data.seq_len=128", "train.batch=8",
                           "dropout=0",      "grad_dtype=bf16",  cases[c].dtype};
    if (cases[c].on) {
      assert_int_equal(ls_catalog_find(catalog, cases[c].on, &found, NULL), LS_OK);
      assert_true(ls_device_facts_of(found, &facts));
    }
    assert_int_equal(ls_run_file_read(arena, NULL, words, 6, &run, &error), LS_OK);
    const ls_status status = ls_session_create_on(arena, run, 1, 1, &facts, &session, &error);
    assert_int_equal(status, cases[c].refused ? LS_INPUT : LS_OK);
    if (cases[c].refused) assert_non_null(strstr(error.text, cases[c].refused));
  }
  ls_arena_destroy(&arena);
}

/* Refused where it is compiled, and where a program is loaded that was compiled for another. */
static void kernels_that_want_another_alignment(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_device_facts facts = *ls_device_facts_here();
  facts.alignment = 3 * LS_STORAGE_ALIGNMENT;
  const char *words[] = {"model=gpt2-10m", "data.seq_len=128", "train.batch=1", "dropout=0"};
  ls_run_file *run;
  ls_session *session;
  ls_error error = {0};
  assert_int_equal(ls_run_file_read(arena, NULL, words, 4, &run, &error), LS_OK);
  assert_int_equal(ls_session_create_on(arena, run, 1, 1, &facts, &session, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "want multiples of 768"));
  assert_int_equal(ls_run_file_read(arena, NULL, words, 4, &run, &error), LS_OK);
  assert_int_equal(ls_session_create(arena, run, 1, 1, &session, &error), LS_OK);
  session->device.facts.alignment = 3 * LS_STORAGE_ALIGNMENT;
  ls_world *world;
  ls_rank *rank;
  assert_int_equal(ls_world_create_threads(1, &world, &error), LS_OK);
  assert_int_equal(ls_session_rank(session, ls_world_comm(world, 0), &rank, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "want multiples of 768"));
  ls_world_destroy(&world);
  ls_arena_destroy(&arena);
}

static void a_tokenizer_of_more_ids_is_refused(void **state) {
  (void)state;
  const ls_session session = {.config = {.source = "tiny/config.json", .vocabulary = 200}};
  ls_error error = {0};
  assert_int_equal(ls_session_check_tokenizer(&session, ls_tokenizer_bytes(), &error), LS_INPUT);
  assert_non_null(strstr(error.text, "tiny/config.json: a vocabulary of 200"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(first_weights_are_those_of_their_index),
      cmocka_unit_test(ranks_fail_without_a_record),
      cmocka_unit_test(workspace_is_part_of_what_is_needed),
      cmocka_unit_test(devices_that_are_not_here),
      cmocka_unit_test(how_products_in_fp8_are_done),
      cmocka_unit_test(gradients_in_bf16_are_of_what_a_device_adds),
      cmocka_unit_test(a_tokenizer_of_more_ids_is_refused),
      cmocka_unit_test(kernels_that_want_another_alignment),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
