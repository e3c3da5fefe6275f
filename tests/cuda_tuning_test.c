/* Ways of products, timed on stand-ins of the driver and of cuBLASLt: the fastest on real numbers
 * and a cold cache is taken, kept and taken again without timing; ranks that ask for the same take
 * the same, whatever each would find, but where their GPUs are unlike; products of codes are no
 * others; what is kept and is damaged,
 * another's or no way is timed again and said; each call of the driver meanwhile fails once. */
#include <dlfcn.h>
#include <glob.h>
#include <math.h>
#include <pthread.h>
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
#include "device/cuda/cuda_kept.h"
#include "run/rank_threads.h"
#include "session/step.h"
#include "support/small_session.h"

enum { STEPS = 2, GPUS = 2, WAYS = 9, SEALED_S = 60, FAILURES = 30 };
enum { EXIT_FAILED = 3, EXIT_SILENT = 4, EXIT_LEFT = 5 };

/* The stand-in's fastest, what it would be of zeros in a warm cache, and for other GPUs where they
 * disagree. */
enum { FASTEST = 5, WARM_FASTEST = 8, OTHERS_FASTEST = 2 };

/* Calls of each way by GPU; those of all GPUs that were of codes; products described. */
typedef struct calls {
  long of[GPUS][WAYS + 1];
  long codes, described;
} calls;

typedef struct job {
  const ls_session *session;
  calls loaded, stepped; /* until the ranks are made, and from then on */
  long timings;          /* of the former */
  double losses[STEPS];
  int told;
  ls_rank_tuning last;
} job;

static void *symbol_of(const char *file, const char *name) {
  void *handle = dlopen(file, RTLD_NOW);
  if (!handle) fail_msg("%s", dlerror());
  void *found = dlsym(handle, name);
  assert_non_null(found);
  return found;
}

static calls calls_so_far(void) {
  long (*count)(const char *);
  calls made = {0};
  *(void **)&count = symbol_of("libcublasLt.so.13", "ls_stand_in_count");
  for (int g = 0; g < GPUS; g++)
    for (int w = 1; w <= WAYS; w++)
      made.of[g][w] = count(ls_arena_printf(arena, "way %d on GPU %d", w, g));
  made.codes = count("products of codes");
  made.described = count("products described");
  return made;
}

static calls since(const calls *before) {
  calls now = calls_so_far();
  for (int g = 0; g < GPUS; g++)
    for (int w = 1; w <= WAYS; w++) now.of[g][w] -= before->of[g][w];
  now.codes -= before->codes;
  now.described -= before->described;
  return now;
}

static long timings(void) {
  long (*count)(const char *);
  *(void **)&count = symbol_of("libcuda.so.1", "ls_stand_in_count");
  return count("cuEventElapsedTime");
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
  (void)context, (void)step;
  return 1e-2;
}

static ls_status make_steps(job *work, ls_rank *rank, ls_error *error) {
  ls_group *all = ls_rank_world_group(rank);
  LS_TRY(ls_barrier(all, error));
  const calls loaded = ls_rank_number(rank) == 0 ? calls_so_far() : (calls){0};
  LS_TRY(ls_barrier(all, error));
  LS_TRY(ls_session_initialise(work->session, rank, error));
  const ls_inputs inputs = {.take = take_tokens, .context = work};
  ls_steps steps = ls_steps_of(rank, &inputs, rate_at, work);
  while (steps.step < STEPS) {
    LS_TRY(ls_steps_begin(&steps, error));
    LS_TRY(ls_steps_passes(&steps, false, error));
    LS_TRY(ls_steps_finish(&steps, error));
    if (ls_rank_number(rank) == 0)
      work->losses[steps.step - 1] = ls_rank_cell(rank, LS_CELL_MEAN_LOSS);
  }
  LS_TRY(ls_barrier(all, error));
  if (ls_rank_number(rank) == 0) work->stepped = since(&loaded);
  return LS_OK;
}

static ls_status on_rank(ls_comm *comm, void *context, ls_error *error) {
  job *work = context;
  ls_rank *rank;
  LS_TRY(ls_session_rank(work->session, comm, &rank, error));
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

static void tell(void *context, const ls_rank_tuning *said) {
  job *work = context;
  assert_int_equal(said->done, work->told++);
  assert_true(said->done == 0 || work->last.count == said->count);
  work->last = *said;
}

static bool by_pass; /* scales of tokens, as on GPUs of which cuBLASLt takes none */

static job trained(int ranks, const char *first, const char *second) {
  const char *const keys[] = {"device.kind=cuda", "train.batch=2", first, second};
  ls_session *session = open_session(ranks, keys, second ? 4 : 3);
  job work = {.session = session};
  ls_error error = {0};
  if (by_pass) session->device.facts.fp8 = LS_FP8_BY_PASS;
  session->tuning = tell;
  session->tuning_context = &work;
  const calls before = calls_so_far();
  const long timed = timings();
  if (train(&work, &error) != LS_OK) fail_msg("%s: %s", first, error.text);
  work.timings = timings() - timed;
  work.loaded = since(&before);
  for (int g = 0; g < GPUS; g++)
    for (int w = 1; w <= WAYS; w++) work.loaded.of[g][w] -= work.stepped.of[g][w];
  return work;
}

static long sum_of(const long ways[WAYS + 1]) {
  long sum = 0;
  for (int w = 1; w <= WAYS; w++) sum += ways[w];
  return sum;
}

/* All products of a GPU's steps go that way, and none is described in a step. */
static void assert_takes(const job *work, int gpu, int way) {
  for (int w = 1; w <= WAYS; w++)
    if (w != way && work->stepped.of[gpu][w])
      fail_msg("GPU %d: %ld products by way %d, expected all by way %d", gpu,
               work->stepped.of[gpu][w], w, way);
  assert_true(work->stepped.of[gpu][way] > 0);
  assert_int_equal(work->stepped.described, 0);
}

static int kept_files(glob_t *found) {
  memset(found, 0, sizeof *found);
  return glob(in_folder("lockstep/gpu-*.kept"), 0, NULL, found) ? 0 : (int)found->gl_pathc;
}

static void read_text(const char *path, char **text, size_t *bytes) {
  ls_error error;
  assert_int_equal(ls_file_read(arena, path, text, bytes, &error), LS_OK);
}

static int set_up_tuning(void **state) {
  static const char two_layers[] =
      "{\"model_type\": \"llama\", \"vocab_size\": 64, \"hidden_size\": 16,"
      " \"intermediate_size\": 24, \"num_hidden_layers\": 2, \"num_attention_heads\": 2,"
      " \"num_key_value_heads\": 2, \"max_position_embeddings\": 16}";
  ls_error error;
  return set_up(state) ||
         ls_file_write(in_folder("config.json"), two_layers, strlen(two_layers), &error) != LS_OK ||
         setenv("XDG_CACHE_HOME", folder, 1) || setenv("LS_STAND_IN", "gpus=2,ways=8", 1);
}

static void the_fastest_way_is_taken_and_kept(void **state) {
  (void)state;
  glob_t files;
  const job cold = trained(1, "device.tune=auto", NULL);
  assert_takes(&cold, 0, FASTEST);
  assert_true(cold.timings > 0);
  assert_true(cold.loaded.of[0][WARM_FASTEST] > 0); /* it was tried, as it would be in a real one */
  const int kept = kept_files(&files);
  assert_true(cold.told == cold.last.count + 1 && cold.last.done == cold.last.count);
  assert_true(kept >= cold.last.count && cold.last.others == cold.last.count);
  assert_true(cold.last.took < 0.81 * cold.last.first_took);
  globfree(&files);
  const job again = trained(1, "device.tune=true", NULL);
  assert_takes(&again, 0, FASTEST);
  assert_int_equal(again.timings, 0);
  assert_int_equal(again.told, 0);
  assert_int_equal(sum_of(again.loaded.of[0]), 0);
  assert_memory_equal(again.losses, cold.losses, sizeof cold.losses);
  const job first = trained(1, "device.tune=false", NULL);
  assert_takes(&first, 0, 1);
  assert_memory_not_equal(first.losses, cold.losses, sizeof cold.losses); /* ways round unlike */
  const job exact = trained(1, "numerics=exact", NULL);
  assert_takes(&exact, 0, 1);
  const job asked = trained(1, "numerics=exact", "device.tune=true");
  assert_takes(&asked, 0, FASTEST);
}

static int kept_of(const char *words) {
  glob_t files;
  int found = 0;
  const int count = kept_files(&files);
  for (int f = 0; f < count; f++) {
    char *text;
    size_t bytes;
    read_text(files.gl_pathv[f], &text, &bytes);
    found += strstr(text, words) != NULL;
  }
  globfree(&files);
  return found;
}

/* Products of codes have ways as others have, with vectors of scales or by a pass; where there are
 * none, the products that are done instead have. */
static void products_of_codes_are_timed_too(void **state) {
  (void)state;
  const job tuned = trained(1, "dtype=fp8", NULL);
  assert_takes(&tuned, 0, FASTEST);
  assert_true(tuned.stepped.codes > 0 && tuned.stepped.codes < tuned.stepped.of[0][FASTEST]);
  assert_true(tuned.loaded.of[0][WARM_FASTEST] > 0 && tuned.last.others == tuned.last.count);
  assert_true(kept_of(", e4m3 by e4m3 to bf16,") > 0 && kept_of(", e4m3 by e5m2 to bf16,") > 0);
  assert_true(kept_of(", with scales,") > kept_of(", e4m3 by e5m2 to bf16,"));
  const job again = trained(1, "dtype=fp8", NULL);
  assert_int_equal(again.timings, 0);
  assert_takes(&again, 0, FASTEST);
  assert_memory_equal(again.losses, tuned.losses, sizeof tuned.losses);
  const job guessed = trained(1, "dtype=fp8", "device.tune=false");
  assert_takes(&guessed, 0, 1);
  assert_int_equal(guessed.stepped.codes, tuned.stepped.codes);
  for (int s = 0; s < STEPS; s++)
    if (!(fabs(tuned.losses[s] - guessed.losses[s]) <= 1e-3 * guessed.losses[s]))
      fail_msg("step %d: %.9g, with the first guess %.9g", s, tuned.losses[s], guessed.losses[s]);
  by_pass = true;
  const job passed = trained(1, "dtype=fp8", NULL);
  by_pass = false;
  assert_takes(&passed, 0, FASTEST);
  assert_true(passed.timings > 0 && passed.stepped.codes > 0); /* kept without scales */
  setenv("LS_STAND_IN", "gpus=2,ways=8,codes=none", 1);
  const job none = trained(1, "dtype=fp8", NULL);
  assert_takes(&none, 0, FASTEST);
  assert_int_equal(none.stepped.codes, 0);
  ls_error error = {0}; /* found, and refused in each way */
  assert_int_equal(ls_directory_remove(in_folder("lockstep"), &error), LS_OK);
  setenv("LS_STAND_IN", "gpus=2,ways=8,codes=found", 1);
  const job refused = trained(1, "dtype=fp8", NULL);
  assert_true(refused.timings > 0 && refused.stepped.codes == 0);
  assert_int_equal(kept_of(", e4m3 by "), 0);
}

static void ranks_take_what_the_first_of_them_found(void **state) {
  (void)state;
  ls_error error = {0};
  setenv("LS_STAND_IN", "gpus=2,ways=8,disagree=1", 1);
  const job shared = trained(2, "mesh.dp_replicate=2", NULL);
  assert_takes(&shared, 0, FASTEST);
  assert_takes(&shared, 1, FASTEST);
  assert_int_equal(sum_of(shared.loaded.of[1]), 0); /* which the other GPU has timed nothing of */
  const job again = trained(2, "mesh.dp_replicate=2", NULL);
  assert_int_equal(again.timings, 0);
  assert_memory_equal(again.losses, shared.losses, sizeof shared.losses);
  /* Each stage decides on what only it has, and finds another way on its GPU. */
  assert_int_equal(ls_directory_remove(in_folder("lockstep"), &error), LS_OK);
  const job stages = trained(2, "mesh.pp=2", NULL);
  assert_takes(&stages, 0, FASTEST);
  assert_true(stages.stepped.of[1][FASTEST] > 0 && stages.stepped.of[1][OTHERS_FASTEST] > 0);
  assert_true(sum_of(stages.loaded.of[1]) > 0);
}

/* ---- what is kept, and should not be believed ------------------------------------------------ */

static struct {
  int count;
  char last[1024];
} warned;

static void count_warning(void *context, const char *text) {
  (void)context;
  if (!strstr(text, ".kept") && !strstr(text, "timed again")) return;
  warned.count++;
  snprintf(warned.last, sizeof warned.last, "%s", text);
}

/* What becomes of a file; `other`: what another one of them held. */
typedef void (*damage)(const char *path, const char *other, size_t other_bytes);

static void cut_short(const char *path, const char *other, size_t other_bytes) {
  (void)other, (void)other_bytes;
  size_t bytes;
  ls_error error;
  char *text;
  read_text(path, &text, &bytes);
  assert_int_equal(ls_file_write(path, text, bytes / 2, &error), LS_OK);
}

static void replace(const char *path, const char *other, size_t other_bytes) {
  ls_error error;
  assert_int_equal(ls_file_write(path, other, other_bytes, &error), LS_OK);
}

/* A file that is whole and has the right key; the way in it is none. */
static void write_no_way(const char *path, const char *other, size_t other_bytes) {
  (void)other, (void)other_bytes;
  size_t bytes;
  char *text;
  read_text(path, &text, &bytes);
  char *key = strchr(text, '\n') + 1;
  *strchr(key, '\n') = 0;
  const char *line = "77 1 2 3 4 5 6 7 0 8 1 1\n";
  ls_cuda_kept_write(arena, key, line, strlen(line));
}

/* Of all that is kept, which is of products alone in fp32. */
static int damage_all(damage how) {
  glob_t files;
  const int count = kept_files(&files);
  size_t bytes, own_bytes;
  char *before, *own;
  read_text(files.gl_pathv[count - 1], &before, &bytes);
  for (int f = 0; f < count; f++) {
    read_text(files.gl_pathv[f], &own, &own_bytes);
    assert_non_null(strstr(own, ": product of "));
    how(files.gl_pathv[f], before, bytes);
    before = own;
    bytes = own_bytes;
  }
  globfree(&files);
  return count;
}

static void what_is_kept_is_looked_at(void **state) {
  (void)state;
  static const damage damages[] = {cut_short, replace, write_no_way};
  const job sound = trained(1, "device.tune=true", NULL);
  for (size_t d = 0; d < sizeof damages / sizeof *damages; d++) {
    const int damaged = damage_all(damages[d]);
    warned.count = 0;
    ls_warnings_to(count_warning, NULL);
    const job again = trained(1, "device.tune=true", NULL);
    ls_warnings_to(NULL, NULL);
    assert_true(damaged > 0);
    if (warned.count != damaged)
      fail_msg("%zu: %d of %d said, last: %s", d, warned.count, damaged, warned.last);
    assert_takes(&again, 0, FASTEST);
    assert_true(again.timings > 0);
    assert_memory_equal(again.losses, sound.losses, sizeof sound.losses);
  }
  assert_int_equal(trained(1, "device.tune=true", NULL).timings, 0);
}

/* ---- GPUs of two kinds ----------------------------------------------------------------------- */

static void count_kinds(void *context, const char *text) {
  int *count = context;
  *count += strstr(text, "rank 1 has another GPU or another cuBLASLt than rank 0") != NULL;
}

/* In a process of its own, since GPUs are read once: each kind decides for itself. */
static int train_on_two_kinds(void) {
  int said = 0;
  alarm(SEALED_S);
  setenv("LS_STAND_IN", "gpus=2,ways=8,disagree=1,mixed=1", 1);
  ls_warnings_to(count_kinds, &said);
  const job work = trained(2, "mesh.dp_replicate=2", NULL);
  const bool each = !work.stepped.of[0][OTHERS_FASTEST] && !work.stepped.of[1][FASTEST];
  const bool some = work.stepped.of[0][FASTEST] > 0 && work.stepped.of[1][OTHERS_FASTEST] > 0;
  return said == 1 && each && some ? 0 : 1;
}

static void each_kind_of_gpu_decides_for_itself(void **state) {
  (void)state;
  int status;
  const pid_t child = fork();
  if (!child) _exit(train_on_two_kinds());
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* ---- failures -------------------------------------------------------------------------------- */

/* In a process of its own, with nothing kept: 0, or what was wrong. seen: calls of the driver, and
 * how many times it told. */
static int train_with_failure(int call, int seen[2]) {
  alarm(SEALED_S);
  setenv("XDG_CACHE_HOME", in_folder(ls_arena_printf(arena, "cache-%d", call)), 1);
  setenv("LS_STAND_IN", ls_arena_printf(arena, "gpus=1,ways=2,fail=%d", call), 1);
  const char *const keys[] = {ls_arena_printf(arena, "model=%s", in_folder("config.json")),
                              "data.seq_len=8",
                              "train.batch=1",
                              "dtype=fp32",
                              "device.threads=1",
                              "device.kind=cuda"};
  ls_run_file *run;
  ls_session *session;
  ls_error error = {0};
  ls_status status = ls_run_file_read(arena, NULL, keys, 6, &run, &error);
  if (status == LS_OK) status = ls_session_create(arena, run, 1, 1, &session, &error);
  job work = {.session = session};
  if (status == LS_OK) status = train(&work, &error);
  const char *(*left)(void);
  int (*all)(void);
  *(void **)&left = symbol_of("libcuda.so.1", "ls_stand_in_left");
  *(void **)&all = symbol_of("libcuda.so.1", "ls_stand_in_calls");
  seen[0] = all();
  seen[1] = (int)timings();
  if (left()) fprintf(stderr, "call %d: left: %s\n", call, left());
  if (left()) return EXIT_LEFT;
  if (status == LS_OK) return 0;
  const bool one_line = *error.text && !strchr(error.text, '\n');
  if (!one_line) fprintf(stderr, "call %d: said: %s\n", call, error.text);
  return one_line ? EXIT_FAILED : EXIT_SILENT;
}

static int in_child(int call, int seen[2]) {
  int ends[2], status;
  assert_int_equal(pipe(ends), 0);
  const pid_t child = fork();
  if (!child) {
    const int found = train_with_failure(call, seen);
    _exit(write(ends[1], seen, 2 * sizeof *seen) == 2 * sizeof *seen ? found : 1);
  }
  close(ends[1]);
  const bool said = read(ends[0], seen, 2 * sizeof *seen) == 2 * sizeof *seen;
  close(ends[0]);
  assert_int_equal(waitpid(child, &status, 0), child);
  if (!said || !WIFEXITED(status)) fail_msg("call %d: status %x", call, (unsigned)status);
  return WEXITSTATUS(status);
}

static void each_call_of_the_driver_fails_once(void **state) {
  (void)state;
  int seen[2], failed = 0, tried = 0;
  assert_int_equal(in_child(0, seen), 0);
  assert_true(seen[1] > 100);
  const int all = seen[0], step = all / FAILURES + 1;
  for (int call = 1; call <= all; call += step, tried++) {
    const int found = in_child(call, seen);
    if (found != 0 && found != EXIT_FAILED) fail_msg("call %d of %d: exit %d", call, all, found);
    failed += found == EXIT_FAILED;
  }
  print_message("%d of %d calls end the run in one line\n", failed, tried);
  assert_true(failed > tried / 2);
}

/* A product that fails while it is timed is out; the other ways are there. */
static void a_way_that_fails_is_not_taken(void **state) {
  (void)state;
  setenv("LS_STAND_IN", "gpus=2,ways=2,product_fail=2", 1);
  void (*begin)(void);
  *(void **)&begin = symbol_of("libcublasLt.so.13", "ls_stand_in_begin");
  begin();
  const job work = trained(1, "device.tune=true", NULL);
  assert_true(work.stepped.of[0][1] > 0 && work.stepped.of[0][2] > work.stepped.of[0][1]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(each_call_of_the_driver_fails_once, set_up_tuning, tear_down),
      cmocka_unit_test_setup_teardown(each_kind_of_gpu_decides_for_itself, set_up_tuning,
                                      tear_down),
      cmocka_unit_test_setup_teardown(the_fastest_way_is_taken_and_kept, set_up_tuning, tear_down),
      cmocka_unit_test_setup_teardown(products_of_codes_are_timed_too, set_up_tuning, tear_down),
      cmocka_unit_test_setup_teardown(ranks_take_what_the_first_of_them_found, set_up_tuning,
                                      tear_down),
      cmocka_unit_test_setup_teardown(what_is_kept_is_looked_at, set_up_tuning, tear_down),
      cmocka_unit_test_setup_teardown(a_way_that_fails_is_not_taken, set_up_tuning, tear_down)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
