/* Training steps on a GPU without one, by the driver's stand-in. A step that runs ahead waits for
 * no stream and allocates nothing; what was run before is replayed; graphs change no bit, nor does
 * a bound on their number, and a NaN is found one step late with its tensor and op. Each call of
 * the driver fails once, in a process of its own, which says so in one line and gives back what it
 * has. */
#include <dlfcn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>

#include <cmocka.h>

#include "comm/engine.h"
#include "run/rank_threads.h"
#include "session/step.h"
#include "support/small_session.h"
#include "support/thinned.h"

enum {
  STEPS = 7,
  WARM = 5, /* others are at most two steps from it, and have all that they replay */
  GPUS = 2,
  FEWEST = 2,
  SEALED_S = 60,
  EXIT_FAILED = 3,
  EXIT_SILENT = 4,
  EXIT_LEFT = 5
};

typedef struct job {
  const ls_session *session;
  bool ahead, evaluates;
  int steps, most_graphs;
  double rate, losses[STEPS], norms[STEPS], evaluated[STEPS];
  long held; /* graphs of all ranks, at most, where a step or an evaluation has ended */
  long waits, allocations, launches, replays; /* of the last step */
} job;

/* What the stand-in says of itself; NULL members: it is not open. */
static struct {
  const char *(*left)(void);
  long (*count)(const char *call);
} stand_in;

static void find_stand_in(void) {
  void *handle = dlopen("libcuda.so.1", RTLD_NOW);
  if (!handle) fail_msg("%s", dlerror());
  *(void **)&stand_in.left = dlsym(handle, "ls_stand_in_left");
  *(void **)&stand_in.count = dlsym(handle, "ls_stand_in_count");
  assert_non_null(stand_in.count);
}

static ls_status take_tokens(void *context, int64_t step, int64_t first, int64_t count,
                             const ls_batch *batch, ls_error *error) {
  (void)error;
  const job *work = context;
  for (int64_t i = 0; i < count; i++) {
    batch->ids[i] = (int32_t)((first + i + 7 * step) % 61);
    batch->labels[i] = (int32_t)((first + i + 7 * step + 1) % 61);
    batch->positions[i] = (int32_t)((first + i) % work->session->sequence);
  }
  return LS_OK;
}

static double rate_at(const void *context, int64_t step) {
  (void)step;
  return ((const job *)context)->rate;
}

static long sum_of(const char *const *names) {
  long sum = 0;
  for (; *names; names++) sum += stand_in.count(*names);
  return sum;
}

static void count_calls(job *work, long sign) {
  static const char *const waits[] = {"cuStreamSynchronize", "cuCtxSynchronize", NULL};
  static const char *const allocations[] = {"cuMemCreate",
                                            "cuMemMap",
                                            "cuMemAddressReserve",
                                            "cuMemHostAlloc",
                                            "cuMemHostRegister_v2",
                                            "cuStreamCreateWithPriority",
                                            "cuEventCreate",
                                            "cuStreamBeginCapture_v2",
                                            "cuGraphInstantiateWithParams",
                                            NULL};
  work->waits += sign * sum_of(waits);
  work->allocations += sign * sum_of(allocations);
  work->launches += sign * stand_in.count("cuLaunchKernelEx");
  work->replays += sign * stand_in.count("cuGraphLaunch");
}

static void keep(job *work, const ls_rank *rank, int64_t step) {
  if (ls_rank_number(rank) != 0) return;
  work->losses[step] = ls_rank_cell(rank, LS_CELL_MEAN_LOSS);
  work->norms[step] = ls_rank_cell(rank, LS_CELL_NORM);
}

static long graphs_held(void) {
  return stand_in.count("cuGraphInstantiateWithParams") - stand_in.count("cuGraphExecDestroy");
}

static void note_held(job *work) {
  const long held = graphs_held();
  if (held > work->held) work->held = held;
}

static ls_status evaluate(job *work, ls_steps *steps, ls_error *error) {
  LS_TRY(ls_steps_settle(steps, error));
  LS_TRY(ls_inputs_fill(&steps->inputs, steps->rank, LS_SESSION_EVALUATE, 0, 0, error));
  LS_TRY(ls_rank_run(steps->rank, LS_SESSION_EVALUATE, error));
  work->evaluated[steps->step - 1] = ls_rank_cell(steps->rank, LS_CELL_MEAN_LOSS);
  note_held(work);
  return LS_OK;
}

static ls_status make_steps(job *work, ls_rank *rank, ls_error *error) {
  LS_TRY(ls_session_initialise(work->session, rank, error));
  const ls_inputs inputs = {.take = take_tokens, .context = work};
  ls_steps steps = ls_steps_of(rank, &inputs, rate_at, work);
  steps.policy = LS_STEPS_SKIP;
  if (work->ahead) ls_steps_run_ahead(&steps);
  const bool counts = stand_in.count && ls_rank_number(rank) == 0;
  while (steps.step < work->steps) {
    const bool counted = counts && steps.step == WARM;
    if (counted) count_calls(work, -1);
    LS_TRY(ls_steps_begin(&steps, error));
    LS_TRY(ls_steps_passes(&steps, false, error));
    LS_TRY(ls_steps_finish(&steps, error));
    if (counted) count_calls(work, 1);
    if (!steps.ahead) keep(work, rank, steps.step - 1);
    if (steps.ahead && steps.known) keep(work, rank, steps.known - 1);
    if (counts) note_held(work);
    if (work->evaluates) LS_TRY(evaluate(work, &steps, error));
  }
  if (!steps.ahead) return LS_OK;
  LS_TRY(ls_steps_settle(&steps, error));
  keep(work, rank, work->steps - 1);
  return LS_OK;
}

static ls_status on_rank(ls_comm *comm, void *context, ls_error *error) {
  job *work = context;
  const ls_session *session = work->session;
  const ls_rank_options options = {.programs = session->programs,
                                   .program_count = session->compiled.count,
                                   .device = &session->device,
                                   .most_graphs = work->most_graphs};
  ls_rank *rank;
  LS_TRY(ls_rank_create(comm, &options, &rank, error));
  const ls_status status = make_steps(work, rank, error);
  ls_rank_destroy(&rank);
  return status;
}

static ls_status train(job *work, ls_error *error) {
  ls_world *world;
  const ls_world_options all = {.ranks = work->session->devices};
  LS_TRY(ls_world_start(&work->session->device.facts, &all, &world, error));
  const ls_status status = ls_rank_threads_run(world, on_rank, work, error);
  ls_world_destroy(&world);
  return status;
}

static job trained_by(int gpus, const char *key, const char *engine, bool ahead) {
  const char *const keys[] = {"device.kind=cuda", key, engine, "mesh.dp_shard=-1"};
  job work = {.session = open_session(gpus, keys, 4), .ahead = ahead, .steps = STEPS, .rate = 1e-2};
  ls_error error = {0};
  if (train(&work, &error) != LS_OK) fail_msg("%s: %s", key, error.text);
  return work;
}

static job trained(const char *key, bool ahead) {
  return trained_by(1, key, "comm.engine=auto", ahead);
}

/* Counts are of both ranks. */
static void a_step_of_several_waits_for_nothing(void **state) {
  (void)state;
  static const char *const engines[] = {"comm.engine=peer", "comm.engine=nccl"};
  for (size_t e = 0; e < sizeof engines / sizeof *engines; e++) {
    const job work = trained_by(GPUS, "device.graphs=true", engines[e], true);
    print_message("%s, step %d: %ld waits, %ld allocations, %ld launches, %ld replays\n",
                  engines[e], WARM + 1, work.waits, work.allocations, work.launches, work.replays);
    assert_int_equal(work.waits, 0);
    assert_int_equal(work.allocations, 0);
    assert_true(work.replays > 0);
    assert_string_equal(ls_session_untried(arena, work.session),
                        "several GPUs together, device.tune");
  }
  assert_null(ls_session_untried(arena, open_session(1, NULL, 0))); /* on the CPU */
}

static void a_step_waits_for_nothing_and_allocates_nothing(void **state) {
  (void)state;
  setenv("LS_STAND_IN", "gpus=2", 1);
  find_stand_in();
  const job ahead = trained("device.graphs=true", true);
  print_message("step %d: %ld waits, %ld allocations, %ld launches, %ld replays\n", WARM + 1,
                ahead.waits, ahead.allocations, ahead.launches, ahead.replays);
  assert_int_equal(ahead.waits, 0);
  assert_int_equal(ahead.allocations, 0);
  assert_true(ahead.replays > 0 && ahead.launches < 10);
  const job waiting = trained("device.graphs=true", false),
            eager = trained("device.graphs=false", true);
  assert_true(waiting.waits > 0);
  assert_int_equal(eager.replays, 0);
  assert_memory_equal(ahead.losses, waiting.losses, sizeof ahead.losses);
  assert_memory_equal(ahead.losses, eager.losses, sizeof ahead.losses);
  assert_memory_equal(ahead.norms, waiting.norms, sizeof ahead.norms);
  assert_memory_equal(ahead.norms, eager.norms, sizeof ahead.norms);
}

static void keep_warning(void *context, const char *text) {
  const char **kept = context;
  *kept = ls_arena_printf(arena, "%s%s\n", *kept, text);
}

static job trained_within(int most, bool evaluates, const char **said) {
  const char *const keys[] = {"device.kind=cuda"};
  const long before = graphs_held();
  job work = {.session = open_session(1, keys, 1),
              .most_graphs = most,
              .ahead = true,
              .evaluates = evaluates,
              .steps = STEPS,
              .rate = 1e-2,
              .held = before};
  ls_error error = {0};
  *said = "";
  ls_warnings_to(keep_warning, said);
  if (train(&work, &error) != LS_OK) fail_msg("at most %d graphs: %s", most, error.text);
  ls_warnings_to(NULL, NULL);
  assert_int_equal(graphs_held(), before);
  work.held -= before;
  return work;
}

/* What finds no room is launched, and what evaluations had captured goes for what steps do. */
static void graphs_are_bounded(void **state) {
  (void)state;
  const char *said;
  for (int evaluates = 0; evaluates < 2; evaluates++) {
    const job all = trained_within(0, evaluates, &said);
    assert_string_equal(said, "");
    for (int most = 1; most < all.held; most = 2 * most + 1) {
      const job bounded = trained_within(most, evaluates, &said);
      print_message("%ld graphs, at most %d: %ld held; a step has %ld launches, %ld replays\n%s",
                    all.held, most, bounded.held, bounded.launches, bounded.replays, said);
      assert_int_equal(bounded.held, most);
      assert_true(bounded.launches > all.launches && bounded.replays > 0);
      if (!evaluates)
        assert_non_null(strstr(
            said, ls_arena_printf(arena, "%ld graphs, of which %d are kept", all.held, most)));
      assert_memory_equal(bounded.losses, all.losses, sizeof all.losses);
      assert_memory_equal(bounded.norms, all.norms, sizeof all.norms);
      assert_memory_equal(bounded.evaluated, all.evaluated, sizeof all.evaluated);
    }
  }
}

/* The first update makes weights so large that the second step's loss is no number. */
static void a_nan_is_named_one_step_late(void **state) {
  (void)state;
  const char *const keys[] = {"device.kind=cuda"};
  ls_error late = {0}, at_once = {0};
  job work = {.session = open_session(1, keys, 1), .ahead = true, .steps = STEPS, .rate = 1e30};
  assert_int_equal(train(&work, &late), LS_FAILED);
  work.ahead = false;
  assert_int_equal(train(&work, &at_once), LS_FAILED);
  print_message("%s\n", late.text);
  assert_string_equal(late.text, at_once.text);
  assert_non_null(strstr(late.text, "step 2"));
  assert_non_null(strstr(late.text, "made a NaN or an infinity in"));
}

/* A model that begins with few calls. */
static int set_up_smallest(void **state) {
  static const char smallest[] =
      "{\"model_type\": \"llama\", \"vocab_size\": 64, \"hidden_size\": 16,"
      " \"intermediate_size\": 24, \"num_hidden_layers\": 1, \"num_attention_heads\": 2,"
      " \"num_key_value_heads\": 2, \"max_position_embeddings\": 16,"
      " \"tie_word_embeddings\": true}";
  ls_error error;
  return set_up(state) ||
         ls_file_write(in_folder("config.json"), smallest, strlen(smallest), &error) != LS_OK;
}

/* In a process of its own: 0, or what was wrong. */
static int train_with_failure(int gpus, int call) {
  alarm(SEALED_S);
  setenv("LS_STAND_IN", ls_arena_printf(arena, "gpus=%d,fail=%d", gpus, call), 1);
  const char *const keys[] = {ls_arena_printf(arena, "model=%s", in_folder("config.json")),
                              "data.seq_len=8",
                              "train.batch=8",
                              "dtype=fp32",
                              "device.threads=1",
                              "device.kind=cuda"};
  ls_run_file *run;
  ls_session *session;
  ls_error error = {0};
  ls_status status = ls_run_file_read(arena, NULL, keys, 6, &run, &error);
  if (status == LS_OK) status = ls_session_create(arena, run, gpus, gpus, &session, &error);
  job work = {.session = session, .ahead = true, .steps = FEWEST, .rate = 1e-2};
  if (status == LS_OK) status = train(&work, &error);
  void *handle = dlopen("libcuda.so.1", RTLD_NOW);
  *(void **)&stand_in.left = dlsym(handle, "ls_stand_in_left");
  const char *left = stand_in.left();
  if (left) fprintf(stderr, "call %d: left: %s\n", call, left);
  if (left) return EXIT_LEFT;
  if (status == LS_OK) return 0;
  const bool one_line = *error.text && !strchr(error.text, '\n');
  if (!one_line) fprintf(stderr, "call %d: said: %s\n", call, error.text);
  return one_line ? EXIT_FAILED : EXIT_SILENT;
}

static long calls_of_a_run(int gpus) {
  int ends[2];
  long calls = 0;
  assert_int_equal(pipe(ends), 0);
  const pid_t child = fork();
  if (!child) {
    const int status = train_with_failure(gpus, 0);
    int (*all)(void);
    *(void **)&all = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "ls_stand_in_calls");
    calls = all();
    _exit(write(ends[1], &calls, sizeof calls) == sizeof calls ? status : 1);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  assert_int_equal(read(ends[0], &calls, sizeof calls), sizeof calls);
  close(ends[0]);
  close(ends[1]);
  return calls;
}

/* One call in `each` of a run. One that frees, or that a graph was to be made by, may fail and the
 * run go on. */
static void fail_calls(int gpus, int each) {
  const long calls = calls_of_a_run(gpus);
  int failed = 0, tried = 0;
  for (int call = 1; call <= calls; call += each) {
    if (ls_test_left_out(call, 3)) continue;
    tried++;
    const pid_t child = fork();
    if (!child) _exit(train_with_failure(gpus, call));
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != EXIT_FAILED))
      fail_msg("%d GPUs, call %d of %ld: status %x", gpus, call, calls, (unsigned)status);
    failed += WEXITSTATUS(status) == EXIT_FAILED;
  }
  print_message("%d GPUs: %d of %d calls end the run in one line\n", gpus, failed, tried);
  assert_true(failed > tried / 2);
}

static void each_call_of_the_driver_fails_once(void **state) {
  (void)state;
  fail_calls(1, 1);
}

/* LS_EVERY_CALL: every one. */
static void calls_fail_once_on_several(void **state) {
  (void)state;
  fail_calls(GPUS, getenv("LS_EVERY_CALL") ? 1 : 61);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(each_call_of_the_driver_fails_once, set_up_smallest,
                                      tear_down),
      cmocka_unit_test_setup_teardown(calls_fail_once_on_several, set_up_smallest, tear_down),
      cmocka_unit_test_setup_teardown(a_step_waits_for_nothing_and_allocates_nothing, set_up_model,
                                      tear_down),
      cmocka_unit_test_setup_teardown(a_step_of_several_waits_for_nothing, set_up_smallest,
                                      tear_down),
      cmocka_unit_test_setup_teardown(graphs_are_bounded, set_up_model, tear_down),
      cmocka_unit_test_setup_teardown(a_nan_is_named_one_step_late, set_up_model, tear_down)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
