/* Layouts that the field knows, from the public configurations in tests/data/known, compiled and
 * proved here: how many instructions, what crosses between devices, bytes of a device by category
 * (tests/data/golden/known_layouts.txt; LS_GOLDEN=write makes it anew). How long it takes is said,
 * and measured in bench. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "session/prove.h"

enum { MIB = 1 << 20 };

/* What was published, in billions of parameters. */
static const struct known {
  const char *name;
  double parameters;
  int devices;
} known[] = {
    {"gpt3-175b", 175.0, 1024},
    {"bloom-176b-sized", 176.2, 384},
    {"neox-20b-sized", 20.55, 16},
    {"llama-65b", 65.29, 512},
    {"llama-3-70b", 70.55, 64},
    {"llama-3-70b-context", 70.55, 64},
    {"llama-3.1-405b", 405.9, 16384},
    {"llama-3.1-405b-context", 405.9, 16384},
    {"mixtral-8x22b-experts", 140.6, 128},
    {"qwen3-235b-experts", 235.1, 256},
    {"deepseek-v3-2048", 671.0, 2048},
    {"deepseek-v3-1024", 671.0, 1024},
    {"trillion-nvme", 1008.0, 16},
};
enum { KNOWN = sizeof known / sizeof *known };

static ls_session *open_session(ls_arena *arena, const char *path, const char *const *keys,
                                int key_count, int devices) {
  ls_run_file *run;
  ls_session *session = NULL;
  ls_error error = {0};
  if (ls_run_file_read(arena, path, keys, key_count, &run, &error) != LS_OK ||
      ls_session_create(arena, run, devices, devices, &session, &error) != LS_OK)
    fail_msg("%s", error.text);
  return session;
}

/* What its host and its part of the drive must hold. */
static void print_tiers(const ls_program *program, FILE *stream) {
  static const char *const names[] = {"", "host", "drive"};
  for (int t = LS_TIER_HOST; t < LS_TIER_COUNT; t++) {
    if (!ls_program_tier_bytes(program, (ls_tier)t)) continue;
    int64_t by_category[LS_CATEGORY_COUNT] = {0};
    const int64_t peak = ls_program_tier_peak(program, (ls_tier)t, by_category);
    fprintf(stream, "  of its %s %lld bytes; at the peak:\n", names[t], (long long)peak);
    for (int c = 0; c < LS_CATEGORY_COUNT; c++)
      if (by_category[c])
        fprintf(stream, "    %-20s %14lld  %9.1f MiB\n", ls_category_name((ls_category)c),
                (long long)by_category[c], (double)by_category[c] / MIB);
  }
}

/* Of the stage that needs most: the arena, which is the same on every machine. */
static void print_memory(const ls_session *session, FILE *stream) {
  int stage;
  const int64_t needed = ls_session_tier_bytes(session, LS_TIER_DEVICE, &stage);
  int64_t by_category[LS_CATEGORY_COUNT] = {0};
  const int64_t peak = ls_program_peak(session->stages[LS_SESSION_STEP][stage], by_category);
  fprintf(stream, "  a device of stage %d needs %lld bytes; at the peak %lld of them:\n", stage,
          (long long)needed, (long long)peak);
  for (int c = 0; c < LS_CATEGORY_COUNT; c++)
    if (by_category[c])
      fprintf(stream, "    %-20s %14lld  %9.1f MiB\n", ls_category_name((ls_category)c),
              (long long)by_category[c], (double)by_category[c] / MIB);
  print_tiers(session->stages[LS_SESSION_STEP][stage], stream);
}

static void print_report(const char *what, const ls_check_report *report, FILE *stream) {
  fprintf(stream,
          "  %s: %lld instructions in %lld actions; %lld collectives, %lld transfers, %lld between "
          "stages\n",
          what, (long long)report->instructions, (long long)report->actions,
          (long long)report->collectives, (long long)report->transfers, (long long)report->joins);
}

/* All but corrections of routers, which follow loads. */
static int count_trained(const ls_program *program) {
  int trained = 0;
  for (int p = 0; p < program->parameter_count; p++) trained += program->parameters[p].trainable;
  return trained;
}

static void print_layout(const struct known *about, FILE *stream) {
  ls_arena *arena = ls_arena_create();
  const ls_session *session =
      open_session(arena, ls_arena_printf(arena, "tests/data/known/%s.yaml", about->name), NULL, 0,
                   about->devices);
  const double parameters = (double)ls_model_parameters(&session->config) / 1e9;
  assert_true(fabs(parameters / about->parameters - 1) < 0.003);
  ls_session_proof proof;
  ls_error error = {0};
  if (ls_session_prove(session, &proof, &error) != LS_OK)
    fail_msg("%s: %s", about->name, error.text);
  const ls_check_report *step = &proof.reports[LS_SESSION_STEP];
  assert_true(step->gradients >= count_trained(session->programs[LS_SESSION_STEP]));
  print_message("%s: checked in %.2f s\n", about->name, proof.seconds);
  fprintf(stream, "%s: %.2f billion parameters on %d devices (%s, %d microbatches)\n", about->name,
          parameters, about->devices, ls_layout_print(arena, &session->layout),
          session->layout.microbatches);
  print_report("step", step, stream);
  print_report("evaluation", &proof.reports[LS_SESSION_EVALUATE], stream);
  print_memory(session, stream);
  ls_arena_destroy(&arena);
}

static void test_known_layouts(void **state) {
  (void)state;
  static const char path[] = "tests/data/golden/known_layouts.txt";
  char *printed = NULL, *golden;
  size_t bytes = 0, golden_bytes, line = 1;
  FILE *stream = open_memstream(&printed, &bytes);
  assert_non_null(stream);
  for (int k = 0; k < KNOWN; k++) print_layout(&known[k], stream);
  assert_int_equal(fclose(stream), 0);
  const char *mode = getenv("LS_GOLDEN");
  ls_error error = {0};
  if (mode && strcmp(mode, "write") == 0)
    assert_int_equal(ls_file_write(path, printed, bytes, &error), LS_OK);
  ls_arena *arena = ls_arena_create();
  if (ls_file_read(arena, path, &golden, &golden_bytes, &error) != LS_OK)
    fail_msg("%s", error.text);
  for (size_t i = 0; i < bytes && i < golden_bytes && printed[i] == golden[i]; i++)
    line += printed[i] == '\n';
  const bool same = bytes == golden_bytes && memcmp(printed, golden, bytes) == 0;
  free(printed);
  ls_arena_destroy(&arena);
  if (!same) fail_msg("%s: line %zu is otherwise now (LS_GOLDEN=write)", path, line);
}

/* How a model's training state lies, in bytes a parameter at the peak of a step. */
typedef struct state_bytes {
  double lasting;   /* weights, master weights, moments */
  double gradients; /* as accumulated over microbatches */
  double gb;        /* all of it, in 10^9 bytes */
} state_bytes;

static state_bytes measure(const char *model, const char *dtype, const char *grad_dtype, int zero,
                           int devices) {
  ls_arena *arena = ls_arena_create();
  const char *keys[] = {ls_arena_printf(arena, "model=%s", model),
                        ls_arena_printf(arena, "dtype=%s", dtype),
                        ls_arena_printf(arena, "grad_dtype=%s", grad_dtype),
                        ls_arena_printf(arena, "zero=%d", zero),
                        ls_arena_printf(arena, "train.batch=%d", 2 * devices),
                        "train.microbatches=2",
                        "recompute=full",
                        "data.seq_len=64"};
  const ls_session *session = open_session(arena, NULL, keys, 8, devices);
  int64_t of[LS_CATEGORY_COUNT] = {0};
  ls_program_peak(session->programs[LS_SESSION_STEP], of);
  const double parameters = (double)ls_model_parameters(&session->config);
  const double lasting =
      (double)(of[LS_CATEGORY_PARAMETERS] + of[LS_CATEGORY_MASTER] + of[LS_CATEGORY_MOMENTS]);
  const double gradients = (double)of[LS_CATEGORY_GRADIENTS];
  const state_bytes made = {lasting / parameters, gradients / parameters,
                            (lasting + gradients) / 1e9};
  print_message(
      "%s in %s, gradients in %s, zero %d on %d: %.2f GB, %.3f + %.3f bytes a parameter\n", model,
      dtype, grad_dtype, zero, devices, made.gb, made.lasting, made.gradients);
  ls_arena_destroy(&arena);
  return made;
}

static bool near(double value, double expected) {
  return fabs(value / expected - 1) < 0.002;
}

/* 16 bytes a parameter: in fp32 4 of weights, 4 of gradients, 8 of moments; in bf16 2 and 2 beside
 * 4 of master weights and 8 of moments. So 16 GB for a billion, 112 for seven. 18 with gradients in
 * fp32 beside bf16 weights. */
static void test_bytes_a_parameter(void **state) {
  (void)state;
  static const struct {
    const char *model, *dtype, *grad_dtype;
    double billions, lasting, gradients;
  } cases[] = {
      {"tinyllama-1.1b", "fp32", "fp32", 1.100, 12, 4}, {"llama2-7b", "fp32", "fp32", 6.738, 12, 4},
      {"tinyllama-1.1b", "bf16", "bf16", 1.100, 14, 2}, {"llama2-7b", "bf16", "bf16", 6.738, 14, 2},
      {"llama2-7b", "bf16", "fp32", 6.738, 14, 4},
  };
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    const state_bytes one = measure(cases[c].model, cases[c].dtype, cases[c].grad_dtype, 0, 1);
    assert_true(near(one.lasting, cases[c].lasting) && near(one.gradients, cases[c].gradients));
    assert_true(near(one.gb, cases[c].billions * (cases[c].lasting + cases[c].gradients)));
  }
}

/* Over N devices: ZeRO-1 keeps weights and gradients whole, ZeRO-3 cuts all, but for the gradients
 * of the layer at work. */
static void test_bytes_over_devices(void **state) {
  (void)state;
  for (int devices = 8; devices <= 64; devices *= 8) {
    const state_bytes first = measure("tinyllama-1.1b", "bf16", "fp32", 1, devices);
    assert_true(near(first.lasting, 2 + 12.0 / devices) && near(first.gradients, 4));
    const state_bytes third = measure("tinyllama-1.1b", "bf16", "fp32", 3, devices);
    assert_true(near(third.lasting, 14.0 / devices));
    assert_true(third.gradients > 4.0 / devices && third.gradients < 4.0 / devices + 2 * 4.0 / 22);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_known_layouts),
      cmocka_unit_test(test_bytes_a_parameter),
      cmocka_unit_test(test_bytes_over_devices),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
