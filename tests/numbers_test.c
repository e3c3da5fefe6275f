/* Any number that keys and a config.json may hold is answered: a run's programs are compiled and
 * proved, or it is refused in one line. LS_NUMBERS_SECONDS=3600 goes on for so long with other
 * numbers; LS_NUMBERS_FIRST=N begins with the N-th case (make fuzz-numbers). */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/random.h"
#include "session/prove.h"

enum { CASES = 1500, MOST_WORDS = 24, WORD_BYTES = 64, MOST_WORK = 3000 };
enum { LONGEST = 120 }; /* seconds of a case, where time is given */

static const char *const sizes[] = {
    "vocab_size",          "hidden_size",         "intermediate_size", "num_hidden_layers",
    "num_attention_heads", "num_key_value_heads", "head_dim",          "max_position_embeddings"};
static const int64_t small_sizes[] = {96, 32, 48, 3, 4, 2, 8, 64};
enum { SIZES = sizeof sizes / sizeof *sizes };

static const char *const keys[] = {"mesh.pp",
                                   "mesh.dp_replicate",
                                   "mesh.dp_shard",
                                   "mesh.tp",
                                   "train.batch",
                                   "train.micro_batch",
                                   "train.microbatches",
                                   "data.seq_len",
                                   "zero",
                                   "wrap",
                                   "chunks",
                                   "recompute_layers",
                                   "logits_rows",
                                   "device.threads",
                                   "device.memory",
                                   "host.memory",
                                   "train.steps",
                                   "train.warmup",
                                   "train.seed",
                                   "train.lr",
                                   "train.clip",
                                   "eval.batches",
                                   "checkpoint.keep",
                                   "offload.optimizer_fraction"};
enum { KEYS = sizeof keys / sizeof *keys };

static const char *const choices[] = {"zero=0",
                                      "zero=1",
                                      "zero=2",
                                      "dtype=fp32",
                                      "dtype=bf16",
                                      "dtype=fp64",
                                      "grad_dtype=bf16",
                                      "recompute=full",
                                      "recompute=[attention, swiglu]",
                                      "schedule=gpipe",
                                      "schedule=interleaved",
                                      "schedule=zbh1",
                                      "schedule=zbv",
                                      "schedule=dualpipev",
                                      "post_validation=true",
                                      "sequence_parallel=false",
                                      "offload.optimizer=host",
                                      "offload.parameters=host",
                                      "offload.activations=host",
                                      "gather=step",
                                      "reduce=microbatch",
                                      "data.documents=masked",
                                      "optimizer.name=sgd"};
enum { CHOICES = sizeof choices / sizeof *choices };

/* About what counts overflow at, and what limits are. */
static const int64_t edges[] = {0,
                                -1,
                                1 << 15,
                                65535,
                                65536,
                                65537,
                                1 << 20,
                                (1 << 20) + 1,
                                1 << 22,
                                1 << 24,
                                536870911,
                                1 << 30,
                                INT32_MAX - 1,
                                INT32_MAX,
                                INT64_C(1) << 31,
                                UINT32_MAX,
                                INT64_C(1) << 32,
                                INT64_C(1) << 44,
                                INT64_C(1) << 53,
                                INT64_MAX};
enum { EDGES = sizeof edges / sizeof *edges };

typedef struct trial {
  uint64_t number, drawn;
  char config[1024], path[64];
  char words[MOST_WORDS][WORD_BYTES];
  const char *list[MOST_WORDS];
  int count, devices;
} trial;

static trial now;

/* Which case it was, before the process ends. */
static void name_case(int number) {
  char text[256];
  const int length =
      snprintf(text, sizeof text, "\nLS_NUMBERS_FIRST=%llu:", (unsigned long long)now.number);
  if (write(STDERR_FILENO, text, (size_t)length) < 0) _exit(1);
  for (int w = 0; w < now.count; w++)
    if (write(STDERR_FILENO, " ", 1) < 0 ||
        write(STDERR_FILENO, now.words[w], strlen(now.words[w])) < 0)
      _exit(1);
  if (write(STDERR_FILENO, "\n", 1) < 0 || write(STDERR_FILENO, now.config, strlen(now.config)) < 0)
    _exit(1);
  signal(number, SIG_DFL);
  raise(number);
}

static uint64_t draw(uint64_t below) {
  return ls_random_bits(23, now.number, now.drawn++) % below;
}

static int64_t draw_number(void) {
  switch (draw(8)) {
    case 0:
    case 1: return edges[draw(EDGES)];
    case 2: return (int64_t)1 << draw(40);
    case 3: return (int64_t)draw(UINT64_C(1) << draw(50));
    default: return 1 + (int64_t)draw(12);
  }
}

static void add_word(const char *key, const char *value) {
  if (now.count == MOST_WORDS) return;
  char *word = now.words[now.count];
  snprintf(word, WORD_BYTES, "%s%s%s", key, *value ? "=" : "", value);
  now.list[now.count++] = word;
}

static void write_config(void) {
  char *at = now.config, *end = at + sizeof now.config;
  at += snprintf(at, (size_t)(end - at), "{\"model_type\": \"llama\"");
  const int odd = draw(2) ? 0 : 1 + (int)draw(3);
  int64_t numbers[SIZES];
  memcpy(numbers, small_sizes, sizeof numbers);
  for (int i = 0; i < odd; i++) numbers[draw(SIZES)] = draw_number();
  for (int i = 0; i < SIZES; i++)
    at += snprintf(at, (size_t)(end - at), ", \"%s\": %lld", sizes[i], (long long)numbers[i]);
  snprintf(at, (size_t)(end - at), ", \"rms_norm_eps\": 1e-5}");
  FILE *file = fopen(now.path, "w");
  assert_non_null(file);
  fputs(now.config, file);
  assert_int_equal(fclose(file), 0);
}

static void make_case(uint64_t number) {
  now.number = number;
  now.drawn = 0;
  now.count = 0;
  write_config();
  add_word("model", now.path);
  add_word("init=scratch", "");
  add_word("dtype=fp32", "");
  add_word("data.seq_len=8", "");
  const int odd = 1 + (int)draw(4);
  for (int i = 0; i < odd; i++) {
    char value[32];
    snprintf(value, sizeof value, "%lld", (long long)draw_number());
    add_word(keys[draw(KEYS)], value);
  }
  const int chosen = (int)draw(4);
  for (int i = 0; i < chosen; i++) add_word(choices[draw(CHOICES)], "");
  now.devices = draw(3) ? 0 : (int)draw(UINT64_C(1) << draw(31));
}

/* What is within the limits and yet takes long is left out: layers times microbatches, stages. */
static bool is_short(const ls_run_file *run) {
  ls_arena *arena = ls_arena_create();
  ls_error error = {0};
  ls_model_config config = {0};
  const bool model = ls_model_find(arena, run->model, &config, &error) == LS_OK;
  const double microbatches = (double)run->train.microbatches, layers = (double)config.layers;
  const double passes = microbatches * layers, stages = (double)run->mesh.pp;
  const bool shorter = !model || passes > 1 << 18 ||
                       (passes + layers <= MOST_WORK && stages * layers <= MOST_WORK &&
                        3 * stages * microbatches <= MOST_WORK);
  ls_arena_destroy(&arena);
  return shorter;
}

static ls_status run_case(ls_arena *arena, bool *proved, ls_error *error) {
  ls_run_file *run;
  int devices;
  LS_TRY(ls_run_file_read(arena, NULL, now.list, now.count, &run, error));
  LS_TRY(ls_run_file_count_devices(run, now.devices, &devices, error));
  LS_TRY(ls_run_file_resolve_mesh(run, devices, error));
  LS_TRY(ls_run_file_resolve_batch(run, error));
  if (!is_short(run)) return LS_OK;
  ls_session *session;
  LS_TRY(ls_session_create(arena, run, devices, devices, &session, error));
  ls_session_proof proof;
  *proved = true;
  const ls_status status = ls_session_prove(session, &proof, error);
  if (status != LS_OK) fail_msg("case %llu: %s", (unsigned long long)now.number, error->text);
  return status;
}

static void try_case(uint64_t number, int *proved, int *refused) {
  ls_arena *arena = ls_arena_create();
  ls_error error = {0};
  bool done = false;
  make_case(number);
  const ls_status status = run_case(arena, &done, &error);
  *proved += done;
  *refused += status != LS_OK;
  if (status != LS_OK && ((status != LS_INPUT && status != LS_REFUTED) || !error.text[0] ||
                          strchr(error.text, '\n') || strstr(error.text, "damaged")))
    fail_msg("case %llu: status %d: %s", (unsigned long long)number, (int)status, error.text);
  ls_arena_destroy(&arena);
}

static void test_numbers(void **state) {
  (void)state;
  const int signals[] = {SIGABRT, SIGSEGV, SIGFPE, SIGBUS, SIGALRM};
  for (int s = 0; s < 5; s++) signal(signals[s], name_case);
  const char *seconds = getenv("LS_NUMBERS_SECONDS"), *first = getenv("LS_NUMBERS_FIRST");
  const double until = seconds ? ls_now_s() + atof(seconds) : 0;
  const uint64_t begin = first ? strtoull(first, NULL, 10) : 0;
  int proved = 0, refused = 0;
  uint64_t number = begin;
  for (; number < begin + CASES || (seconds && ls_now_s() < until); number++) {
    if (seconds) alarm(LONGEST);
    try_case(number, &proved, &refused);
    if (first && !seconds) {
      print_message("case %llu was tried\n", (unsigned long long)number++);
      break;
    }
  }
  alarm(0);
  print_message("%llu cases: %d proved, %d refused\n", (unsigned long long)(number - begin), proved,
                refused);
  assert_true(first || proved > 100);
  assert_true(first || refused > 100);
}

int main(void) {
  snprintf(now.path, sizeof now.path, "/tmp/lockstep-numbers-%d.json", (int)getpid());
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_numbers)};
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  unlink(now.path);
  return failed;
}
