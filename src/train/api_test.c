#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "lockstep/lockstep.h"

/* The public interface as a program of someone else's uses it. */

enum { STEPS = 6, KEYS = 8 };

typedef struct place {
  ls_arena *arena;
  const char *folder;
  const char *keys[KEYS]; /* a tiny model on a text of this test */
} place;

static int set_up(void **state) {
  ls_arena *arena = ls_arena_create();
  place *here = LS_NEW(arena, place);
  char *folder = ls_arena_strdup(arena, "/tmp/lockstep-api-XXXXXX");
  assert_non_null(mkdtemp(folder));
  here->arena = arena;
  here->folder = folder;
  const char *config = ls_arena_printf(arena, "%s/config.json", folder);
  const char *text = ls_arena_printf(arena, "%s/text.txt", folder);
  FILE *file = fopen(config, "w");
  assert_non_null(file);
  fputs(
      "{\"model_type\": \"llama\", \"hidden_act\": \"silu\", \"hidden_size\": 32,"
      " \"intermediate_size\": 64, \"num_hidden_layers\": 2, \"num_attention_heads\": 4,"
      " \"num_key_value_heads\": 2, \"vocab_size\": 256, \"max_position_embeddings\": 64,"
      " \"rms_norm_eps\": 1e-5, \"tie_word_embeddings\": true}\n",
      file);
  assert_int_equal(fclose(file), 0);
  file = fopen(text, "w");
  assert_non_null(file);
  for (int i = 0; i < 300; i++) fprintf(file, "line %d of a text\n", i * i % 97);
  assert_int_equal(fclose(file), 0);
  const char *keys[KEYS] = {ls_arena_printf(arena, "model=%s", config),
                            ls_arena_printf(arena, "data.text=%s", text),
                            ls_arena_printf(arena, "out=%s/out", folder),
                            "data.seq_len=16",
                            "train.batch=4",
                            ls_arena_printf(arena, "train.steps=%d", STEPS),
                            "device.threads=1",
                            "dtype=fp32"};
  memcpy(here->keys, keys, sizeof keys);
  *state = here;
  return 0;
}

static int tear_down(void **state) {
  place *here = *state;
  ls_error error;
  const ls_status status = ls_directory_remove(here->folder, &error);
  ls_arena_destroy(&here->arena);
  return status == LS_OK ? 0 : -1;
}

static ls_run *open_run(const place *here, int devices) {
  ls_run *run = NULL;
  ls_error error = {LS_OK, ""};
  if (ls_run_open(NULL, here->keys, KEYS, devices, &run, &error) != LS_OK)
    fail_msg("%s", error.text);
  return run;
}

static void sizes_add_up(void **state) {
  for (int devices = 1; devices <= 4; devices *= 2) {
    ls_run *run = open_run(*state, devices);
    assert_int_equal(ls_run_devices(run), devices);
    /* The embedding, tied; two layers of four products of attention, three of the MLP and two
     * norms; the last norm. */
    const int64_t layer = 32 * 32 + 2 * 16 * 32 + 32 * 32 + 3 * 32 * 64 + 2 * 32;
    assert_int_equal(ls_run_parameters(run), 256 * 32 + 2 * layer + 32);
    int64_t sum = 0;
    for (int p = 0; p < ls_run_memory_parts(run); p++) {
      assert_non_null(ls_run_memory_part(run, p).name);
      sum += ls_run_memory_part(run, p).bytes;
    }
    assert_true(sum > 0 && sum <= ls_run_memory_bytes(run));
    const ls_memory_part last = ls_run_memory_part(run, ls_run_memory_parts(run) - 1);
    assert_string_equal(last.name, "workspace of kernels");
    assert_true(last.bytes > 0 && last.bytes < sum);
    int collectives;
    const double sent = ls_run_bytes_sent(run, &collectives);
    assert_true(devices == 1 ? sent == 0 && collectives == 0 : sent > 0 && collectives > 0);
    assert_true(ls_run_flops(run) > 0);
    ls_run_close(&run);
    assert_null(run);
    ls_run_close(&run);
  }
}

static void refusals_say_why(void **state) {
  const place *here = *state;
  const char *keys[KEYS + 1];
  memcpy(keys, here->keys, sizeof here->keys);
  ls_error error = {LS_OK, ""};
  ls_run *run = NULL;
  keys[KEYS] = "mesh.tp=3";
  assert_int_equal(ls_run_open(NULL, keys, KEYS + 1, 3, &run, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "use tp=1, 2 or 4"));
  assert_null(run);
  keys[KEYS] = "device.memory=64KiB";
  assert_int_equal(ls_run_open(NULL, keys, KEYS + 1, 1, &run, &error), LS_REFUTED);
  assert_int_equal(ls_run_open(NULL, keys, KEYS, -1, &run, &error), LS_INPUT);
  assert_int_equal(ls_run_open("/nonexistent/run.yaml", NULL, 0, 1, &run, &error), LS_INPUT);
  assert_null(run);
}

static void prints_are_stable(void **state) {
  ls_run *run = open_run(*state, 2);
  for (int what = LS_SHOW_PROGRAM; what <= LS_SHOW_RUN_FILE; what++) {
    char *text[2];
    size_t bytes[2];
    for (int i = 0; i < 2; i++) {
      FILE *stream = open_memstream(&text[i], &bytes[i]);
      ls_error error = {LS_OK, ""};
      assert_int_equal(ls_run_print(run, (ls_show)what, stream, &error), LS_OK);
      assert_int_equal(fclose(stream), 0);
    }
    assert_true(bytes[0] > 40);
    assert_string_equal(text[0], text[1]);
    free(text[0]);
    free(text[1]);
  }
  FILE *full = fopen("/dev/full", "w");
  ls_error error = {LS_OK, ""};
  if (full) {
    assert_int_equal(ls_run_print(run, LS_SHOW_PROGRAM, full, &error), LS_FAILED);
    fclose(full);
  }
  ls_run_close(&run);
}

/* A status of its own for each kind of failure, though nobody wants the text. */
static void failures_need_no_record(void **state) {
  const place *here = *state;
  static const struct {
    const char *key;
    ls_status opened, executed;
  } cases[] = {
      {"zero=9", LS_INPUT, LS_OK},
      {"mesh.tp=3", LS_INPUT, LS_OK},
      {"recompute=nothing", LS_INPUT, LS_OK},
      {"data.tokenizer=/nonexistent", LS_OK, LS_INPUT},
      {"model=/nonexistent", LS_INPUT, LS_OK},
      {"device.memory=64KiB", LS_REFUTED, LS_OK},
      {"data.text=/nonexistent/*", LS_OK, LS_INPUT},
      {"data.seq_len=60000", LS_INPUT, LS_OK},
      {"train.batch=4096", LS_OK, LS_INPUT},
      {"trace=true", LS_OK, LS_INPUT},
      {"out=/proc/nowhere", LS_OK, LS_INPUT},
      {"train.lr=1e30", LS_OK, LS_FAILED},
  };
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    const char *keys[KEYS + 1];
    memcpy(keys, here->keys, sizeof here->keys);
    keys[KEYS] = cases[c].key;
    print_message("%s\n", cases[c].key);
    ls_run *run = NULL;
    assert_int_equal(ls_run_open(NULL, keys, KEYS + 1, 0, &run, NULL), cases[c].opened);
    assert_true((run == NULL) == (cases[c].opened != LS_OK));
    if (!run) continue;
    const ls_execute_options options = {.fresh = true};
    assert_int_equal(ls_run_execute(run, &options, NULL), cases[c].executed);
    ls_run_close(&run);
  }
  assert_int_equal(ls_run_open("/nonexistent/run.yaml", NULL, 0, 1, &(ls_run *){0}, NULL),
                   LS_INPUT);
  ls_run *run = open_run(here, 1);
  FILE *full = fopen("/dev/full", "w");
  if (full) {
    assert_int_equal(ls_run_print(run, LS_SHOW_PROGRAM, full, NULL), LS_FAILED);
    fclose(full);
  }
  ls_run_close(&run);
}

typedef struct seen {
  int64_t begun_at, steps;
  int reports;
  double first_loss, last_loss;
  volatile sig_atomic_t stop;
  int stop_after;
} seen;

static void on_begin(void *context, int64_t done, int64_t steps, const char *where_from) {
  seen *all = context;
  assert_non_null(where_from);
  all->begun_at = done;
  all->steps = steps;
}

static void on_step(void *context, const ls_step_report *report) {
  seen *all = context;
  if (all->reports++ == 0) all->first_loss = report->loss;
  all->last_loss = report->loss;
  if (report->step == all->stop_after) __atomic_store_n(&all->stop, 1, __ATOMIC_RELAXED);
}

static void trains_stops_and_goes_on(void **state) {
  ls_run *run = open_run(*state, 2);
  ls_error error = {LS_OK, ""};
  seen all = {.stop_after = 2};
  const ls_execute_options options = {
      .on_begin = on_begin, .on_step = on_step, .context = &all, .stop = &all.stop};
  assert_int_equal(ls_run_execute(run, &options, &error), LS_STOPPED);
  assert_int_equal(all.reports, 2);
  assert_int_equal(all.steps, STEPS);
  assert_true(all.first_loss > 5 && all.first_loss < 6); /* ln 256 = 5.55 */
  all = (seen){0};
  if (ls_run_execute(run, &options, &error) != LS_OK) fail_msg("%s", error.text);
  assert_int_equal(all.begun_at, 2);
  assert_int_equal(all.reports, STEPS - 2);
  const double last = all.last_loss;
  all = (seen){0};
  const ls_execute_options anew = {
      .fresh = true, .on_begin = on_begin, .on_step = on_step, .context = &all};
  if (ls_run_execute(run, &anew, &error) != LS_OK) fail_msg("%s", error.text);
  assert_int_equal(all.begun_at, 0);
  assert_true(all.last_loss == last); /* stopped or not: the same bits */
  assert_int_equal(ls_run_execute(run, NULL, &error), LS_OK);
  ls_run_close(&run);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sizes_add_up),
      cmocka_unit_test(refusals_say_why),
      cmocka_unit_test(prints_are_stable),
      cmocka_unit_test(failures_need_no_record),
      cmocka_unit_test(trains_stops_and_goes_on),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
