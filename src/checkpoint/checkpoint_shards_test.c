/* What each rank reads and writes of a checkpoint: its own part and no more, in bounded memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/random.h"
#include "checkpoint/checkpoint.h"
#include "run/rank_threads.h"
#include "session/load_parameters.h"
#include "support/test_folder.h"
#include "support/test_seed.h"

enum { HIDDEN = 64, VOCABULARY = 512, INNER = 128, LAYERS = 2, MOST_RANKS = 16 };
static const char config_text[] =
    "{\"model_type\": \"llama\", \"vocab_size\": %d, \"hidden_size\": %d,"
    " \"intermediate_size\": %d, \"num_hidden_layers\": %d, \"num_attention_heads\": 4,"
    " \"num_key_value_heads\": 4, \"max_position_embeddings\": 16, \"rms_norm_eps\": 1e-5,"
    " \"tie_word_embeddings\": false}";

static uint64_t seed;

static ls_session *make_session(const char *config, const char *layout) {
  ls_error error = {0};
  const char *model = ls_arena_printf(arena, "%s/config.json", folder);
  assert_int_equal(ls_file_write(model, config, strlen(config), &error), LS_OK);
  LS_LIST(const char *) words = {0};
  *LS_APPEND(arena, &words) = ls_arena_printf(arena, "model=%s", model);
  *LS_APPEND(arena, &words) = "data.seq_len=8";
  *LS_APPEND(arena, &words) = "train.batch=16";
  *LS_APPEND(arena, &words) = "dtype=fp32";
  *LS_APPEND(arena, &words) = "device.threads=1";
  *LS_APPEND(arena, &words) = "data.text=none.txt";
  char *copy = ls_arena_strdup(arena, layout);
  for (char *word; (word = strsep(&copy, " "));) *LS_APPEND(arena, &words) = word;
  ls_run_file *run;
  if (ls_run_file_read(arena, NULL, words.items, words.count, &run, &error) != LS_OK)
    fail_msg("%s", error.text);
  const int devices = (int)ls_run_file_mesh_devices(run);
  ls_session *session;
  if (ls_session_create(arena, run, devices, devices, &session, &error) != LS_OK)
    fail_msg("%s", error.text);
  return session;
}

static const char *small(void) {
  return ls_arena_printf(arena, config_text, VOCABULARY, HIDDEN, INNER, LAYERS);
}

static const char *checkpoint(void) {
  return ls_arena_printf(arena, "%s/checkpoints/step-1", folder);
}

typedef ls_status (*on_rank)(void *job, ls_rank *rank, ls_error *error);

typedef struct job {
  ls_session *session;
  on_rank does;
  void *with;
} job;

static ls_status body(ls_comm *comm, void *context, ls_error *error) {
  const job *work = context;
  ls_rank *rank;
  LS_TRY(ls_session_rank(work->session, comm, &rank, error));
  ls_status status = ls_session_initialise(work->session, rank, error);
  if (status == LS_OK) status = work->does((void *)(uintptr_t)work, rank, error);
  ls_rank_destroy(&rank);
  return status;
}

static void run(ls_session *session, on_rank does, void *with) {
  ls_error error = {0};
  ls_world *world;
  job work = {session, does, with};
  assert_int_equal(ls_world_create_threads(session->devices, &world, &error), LS_OK);
  if (ls_rank_threads_run(world, body, &work, &error) != LS_OK) fail_msg("%s", error.text);
  ls_world_destroy(&world);
}

static ls_status save(void *job_, ls_rank *rank, ls_error *error) {
  const job *work = job_;
  const ls_checkpoint_extra extra = {.run_text = "model: x\n"};
  return ls_checkpoint_save(work->session, rank, folder, 1, &extra, error);
}

static ls_status save_in_shards(void *job_, ls_rank *rank, ls_error *error) {
  const job *work = job_;
  const ls_checkpoint_extra extra = {.run_text = "model: x\n", .max_shard_bytes = 100000};
  return ls_checkpoint_save(work->session, rank, folder, 1, &extra, error);
}

static ls_status load(void *job_, ls_rank *rank, ls_error *error) {
  const job *work = job_;
  ls_checkpoint_state state;
  int64_t *bytes = work->with;
  LS_TRY(ls_checkpoint_load(work->session, rank, checkpoint(), &state, error));
  bytes[ls_rank_number(rank)] = state.bytes_read;
  return LS_OK;
}

/* How often each element is given, over all ranks, by parameter and part. */
typedef struct coverage {
  unsigned char *given;
  int64_t elements;            /* of all parameters */
  int64_t by_rank[MOST_RANKS]; /* elements given */
} coverage;

static void mark(unsigned char *given, int64_t columns, const ls_box *box) {
  for (int64_t r = 0; r < box->rows; r++)
    for (int64_t c = 0; c < box->columns; c++)
      __atomic_add_fetch(&given[(box->row + r) * columns + box->column + c], 1, __ATOMIC_RELAXED);
}

static ls_status give(void *job_, ls_rank *rank, ls_error *error) {
  (void)error;
  const job *work = job_;
  coverage *of = work->with;
  const ls_program *program = ls_rank_program(rank, LS_SESSION_STEP);
  int64_t at = 0;
  for (int p = 0; p < program->parameter_count; p++) {
    const ls_program_parameter *about = &program->parameters[p];
    for (ls_state_part part = LS_PART_MASTER; part <= LS_PART_MOMENT2; part++) {
      ls_state_range ranges[LS_MOST_RANGES];
      const int count =
          ls_state_saved(&ls_state_ranges, program, ls_rank_number(rank), p, part, ranges);
      for (int b = 0; b < count; b++) {
        mark(of->given + at, about->ndim > 1 ? about->dims[1] : 1, &ranges[b].box);
        of->by_rank[ls_rank_number(rank)] += ls_box_elements(&ranges[b].box);
      }
      at += ls_program_parameter_elements(about);
    }
  }
  return LS_OK;
}

static const char *const layouts[] = {
    "mesh.dp_shard=1",
    "mesh.dp_shard=3 zero=0 train.batch=12",
    "mesh.dp_shard=4 zero=1",
    "mesh.dp_shard=5 zero=3 train.batch=10",
    "mesh.dp_replicate=2 mesh.dp_shard=2 zero=3",
    "mesh.dp_shard=2 mesh.tp=2 zero=2",
    "mesh.dp_shard=2 mesh.tp=4 zero=3 sequence_parallel=true",
    "mesh.pp=2 mesh.dp_shard=2 zero=1 train.microbatches=2",
    "mesh.dp_replicate=2 mesh.dp_shard=4 mesh.tp=2 zero=3",
};

/* Every element once, and no rank with twice its share (small tensors are given by one). */
static void every_element_is_given_once(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
    ls_session *session = make_session(small(), layouts[i]);
    const int64_t elements = 3 * ls_model_parameters(&session->config);
    coverage of = {.given = ls_arena_alloc(arena, (size_t)elements), .elements = elements};
    memset(of.given, 0, (size_t)elements);
    run(session, give, &of);
    for (int64_t e = 0; e < elements; e++)
      if (of.given[e] != 1)
        fail_msg("%s: element %lld is given %d times", layouts[i], (long long)e, of.given[e]);
    for (int r = 0; r < session->devices; r++)
      if (of.by_rank[r] > 2 * elements / session->devices || of.by_rank[r] == 0)
        fail_msg("%s: rank %d gives %lld of %lld", layouts[i], r, (long long)of.by_rank[r],
                 (long long)elements);
  }
}

/* Bytes that the ranks of a layout read, in multiples of one copy of the weights (moments are two
 * more), of which `replicated` elements are whole on every rank of a tensor group. */
typedef struct expected {
  const char *layout;
  int64_t weights, moments; /* copies read over all ranks */
  bool even;                /* every rank the same */
} expected;

static void check_bytes_read(const ls_session *one) {
  const int64_t parameters = ls_model_parameters(&one->config);
  const int64_t norms = (int64_t)HIDDEN * (2 * LAYERS + 1);
  static const expected cases[] = {{"mesh.dp_shard=1", 1, 1, true},
                                   {"mesh.dp_shard=4 zero=3", 1, 1, false},
                                   {"mesh.dp_shard=4 zero=1", 4, 1, false},
                                   {"mesh.dp_shard=4 zero=0", 4, 4, true},
                                   {"mesh.dp_replicate=2 mesh.dp_shard=2 zero=3", 2, 2, false},
                                   {"mesh.pp=2 train.microbatches=2", 1, 1, false},
                                   {"mesh.dp_shard=1 mesh.tp=2", 1, 1, true},
                                   {"mesh.dp_shard=2 mesh.tp=4 zero=3", 1, 1, false}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ls_session *session = make_session(small(), cases[i].layout);
    int64_t bytes[MOST_RANKS] = {0}, all = 0;
    run(session, load, bytes);
    for (int r = 0; r < session->devices; r++) all += bytes[r];
    const int tp = session->layout.tp;
    const int64_t copies = cases[i].weights + 2 * cases[i].moments;
    const int64_t elements = copies * (parameters + (tp - 1) * norms);
    if (all != elements * (int64_t)sizeof(float))
      fail_msg("%s: %lld bytes; expected %lld", cases[i].layout, (long long)all,
               (long long)elements * (long long)sizeof(float));
    for (int r = 0; r < session->devices && cases[i].even; r++)
      assert_int_equal(bytes[r], bytes[0]);
  }
}

static ls_status verify(void *job_, ls_rank *rank, ls_error *error) {
  (void)error;
  const job *work = job_;
  ls_error *said = work->with;
  ls_error *own = &said[ls_rank_number(rank)];
  own->status = ls_checkpoint_verify_together(rank, checkpoint(), LS_SEALED_ALL, own);
  return LS_OK;
}

static void ranks_read_their_own_bytes(void **state) {
  (void)state;
  ls_session *one = make_session(small(), "mesh.dp_shard=1");
  run(one, save, NULL);
  check_bytes_read(one);
}

/* Many files with an index, written by eight ranks. */
static void shards_are_one_checkpoint(void **state) {
  (void)state;
  ls_error error = {0};
  ls_session *one = make_session(small(), "mesh.dp_shard=1");
  ls_session *eight = make_session(small(), "mesh.dp_replicate=2 mesh.dp_shard=2 mesh.tp=2 zero=3");
  run(eight, save_in_shards, NULL);
  const char *index = ls_arena_printf(arena, "%s/model.safetensors.index.json", checkpoint());
  assert_true(ls_file_exists(index));
  if (ls_checkpoint_verify(checkpoint(), LS_SEALED_ALL, &error) != LS_OK)
    fail_msg("%s", error.text);
  check_bytes_read(one);
  assert_int_equal(unlink(index), 0);
  assert_int_equal(ls_checkpoint_verify(checkpoint(), LS_SEALED_ALL, &error), LS_INPUT);
}

/* A byte changed anywhere is found by all ranks, who say the same; in a file that no run needs it
 * stops none. */
static void all_ranks_find_damage(void **state) {
  (void)state;
  static const char *const files[] = {"model.safetensors", "optimizer.safetensors", "config.json",
                                      "run.yaml"};
  ls_session *session = make_session(small(), "mesh.dp_shard=3 zero=3 train.batch=12");
  run(session, save, NULL);
  for (uint64_t trial = 0; trial < 12; trial++) {
    const char *path = ls_arena_printf(arena, "%s/%s", checkpoint(), files[trial % 4]);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    const long at = (long)(ls_random_bits(seed, 2, trial) % (uint64_t)ftell(file));
    const bool changes = trial >= 4; /* the first ones change nothing */
    const bool damages = changes && trial % 4 != 3;
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    const int kept = fgetc(file);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    fputc(changes ? kept ^ 1 << (trial % 8) : kept, file);
    assert_int_equal(fclose(file), 0);
    ls_error said[MOST_RANKS] = {0};
    run(session, verify, said);
    for (int r = 0; r < 3; r++) {
      assert_int_equal(said[r].status, damages ? LS_INPUT : LS_OK);
      assert_string_equal(said[r].text, said[0].text);
    }
    if (damages) assert_non_null(strstr(said[0].text, ": damaged: its checksum is "));
    file = fopen(path, "r+b");
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    fputc(kept, file);
    assert_int_equal(fclose(file), 0);
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/* Resident memory of this process in bytes: now, or the most since the last reset. */
static int64_t memory(const char *key) {
  char line[256];
  long long kilobytes = 0;
  FILE *file = fopen("/proc/self/status", "r");
  assert_non_null(file);
  while (fgets(line, sizeof line, file))
    if (strncmp(line, key, strlen(key)) == 0) sscanf(line + strlen(key), ": %lld", &kilobytes);
  fclose(file);
  return kilobytes * 1024;
}

static int64_t begin_peak(void) {
  FILE *file = fopen("/proc/self/clear_refs", "w");
  assert_non_null(file);
  fputs("5", file);
  fclose(file);
  return memory("VmRSS");
}

/* The first load touches what the rank has; what the second and a save add is beside it. */
static ls_status measure(void *job_, ls_rank *rank, ls_error *error) {
  const job *work = job_;
  int64_t *grown = work->with;
  ls_checkpoint_state state;
  const ls_checkpoint_extra extra = {.run_text = "model: x\n"};
  LS_TRY(ls_checkpoint_save(work->session, rank, folder, 1, &extra, error));
  LS_TRY(ls_checkpoint_load(work->session, rank, checkpoint(), &state, error));
  int64_t before = begin_peak();
  LS_TRY(ls_checkpoint_load(work->session, rank, checkpoint(), &state, error));
  grown[0] = memory("VmHWM") - before;
  before = begin_peak();
  LS_TRY(ls_checkpoint_save(work->session, rank, folder, 2, &extra, error));
  grown[1] = memory("VmHWM") - before;
  return LS_OK;
}

static void memory_is_bounded(void **state) {
  (void)state;
  enum { SLACK = 3 << 20 };
  const char *config = ls_arena_printf(arena, config_text, 8192, 512, 1024, 3);
  ls_session *session = make_session(config, "mesh.dp_shard=1");
  int64_t grown[2];
  run(session, measure, grown);
  const int64_t bytes = 12 * ls_model_parameters(&session->config);
  print_message("%.0f MiB: loading takes %.1f MiB more, saving %.1f\n", (double)bytes / 1048576,
                (double)grown[0] / 1048576, (double)grown[1] / 1048576);
  assert_true(bytes > 8 * (LS_TILE_MEMORY + SLACK)); /* else it shows nothing */
  for (int i = 0; i < 2; i++) assert_true(grown[i] < LS_TILE_MEMORY + SLACK);
}
#else
static void memory_is_bounded(void **state) {
  (void)state;
  skip(); /* a sanitizer's memory is not the program's */
}
#endif

int main(void) {
  seed = test_seed(20261128);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(every_element_is_given_once, set_up, tear_down),
      cmocka_unit_test_setup_teardown(ranks_read_their_own_bytes, set_up, tear_down),
      cmocka_unit_test_setup_teardown(shards_are_one_checkpoint, set_up, tear_down),
      cmocka_unit_test_setup_teardown(all_ranks_find_damage, set_up, tear_down),
      cmocka_unit_test_setup_teardown(memory_is_bounded, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
