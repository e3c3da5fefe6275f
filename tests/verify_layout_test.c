/* `verify` of a run's own layout: random right ones pass (LS_SEED for others, LS_RUNS for more),
 * in fp64 and on the CPU device's kernels; each deliberate fault is seen in its smallest case, and
 * the tensor it spoils is named. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/faults.h"
#include "support/layouts.h"
#include "support/random_run.h"
#include "support/test_seed.h"
#include "support/thinned.h"
#include "verify/verify_layout.h"

enum { RUNS = 40, KERNEL_RUNS = 12 };

static uint64_t number_from(const char *variable, uint64_t fallback) {
  const char *given = getenv(variable);
  return given ? strtoull(given, NULL, 10) : fallback;
}

/* A resolved session of a model and layout that are in no file. */
static const ls_session *session_of(ls_arena *arena, const ls_test_run *run) {
  ls_session *session = LS_NEW(arena, ls_session);
  ls_error error = {0};
  session->arena = arena;
  assert_int_equal(ls_run_file_read(arena, NULL, NULL, 0, &session->run, &error), LS_OK);
  session->config = run->config;
  session->layout = run->layout;
  session->batch = run->batch;
  session->sequence = run->sequence;
  session->devices = ls_layout_ranks(&run->layout);
  return session;
}

static ls_status verify(ls_arena *arena, const ls_test_run *run,
                        const ls_verify_layout_options *options, ls_layout_verification **about,
                        ls_error *error) {
  LS_TRY(ls_verify_layout_prepare(arena, session_of(arena, run), options, about, error));
  return ls_verify_layout_run(*about, error);
}

typedef struct tally {
  int right, refused, wrong;
  double worst; /* share of its tolerance */
} tally;

static void check_right(uint64_t seed, uint64_t number, ls_dtype compute, tally *count) {
  ls_arena *arena = ls_arena_create();
  ls_test_run run = ls_test_random_run(arena, seed, number);
  const ls_verify_layout_options options = {.kernels = compute != LS_F64};
  ls_layout_verification *about;
  ls_error error = {0};
  run.layout.compute = compute;
  const ls_status status = verify(arena, &run, &options, &about, &error);
  count->right += status == LS_OK;
  count->refused += status == LS_INPUT;
  count->wrong += status != LS_OK && status != LS_INPUT;
  if (status != LS_OK && status != LS_INPUT)
    print_message("run %llu, %s: %s\n", (unsigned long long)number, ls_test_run_print(arena, &run),
                  error.text);
  for (int k = 0; k < LS_EQUALITY_KINDS && status == LS_OK; k++)
    count->worst = fmax(count->worst, about->rows[k].worst / about->rows[k].tolerance);
  ls_arena_destroy(&arena);
}

static void check_runs(ls_dtype compute, int runs) {
  const uint64_t seed = test_seed_untold(20261121);
  const int asked = (int)number_from("LS_RUNS", (uint64_t)ls_test_fewer(runs, 4));
  tally count = {0};
  for (int number = 0; number < asked; number++)
    check_right(seed, (uint64_t)number, compute, &count);
  print_message("seed %llu, %s: %d of %d right, %d refused; the worst is %.2g of its tolerance\n",
                (unsigned long long)seed, ls_dtype_name(compute), count.right, asked, count.refused,
                count.worst);
  assert_int_equal(count.wrong, 0);
  assert_true(count.right >= asked * 3 / 4);
}

static void test_right_layouts_pass(void **state) {
  (void)state;
  check_runs(LS_F64, RUNS);
}

static void test_right_layouts_pass_on_kernels(void **state) {
  (void)state;
  check_runs(LS_F32, KERNEL_RUNS);
  check_runs(LS_BF16, KERNEL_RUNS);
  check_runs(LS_F16, KERNEL_RUNS);
}

static bool alter(ls_program *program, void *context) {
  const ls_fault *fault = context;
  return fault->inject(program) > 0;
}

static ls_test_run run_of(ls_arena *arena, const ls_fault *fault) {
  ls_test_run run = {.config = ls_test_shape_config(arena, &ls_test_shapes[fault->shape]),
                     .layout = ls_layout_default(),
                     .batch = 12,
                     .sequence = LS_TEST_SEQUENCE};
  run.config.dropout = (ls_dropout){0}; /* under which bf16 hides the smallest faults */
  run.layout.dp_replicate = fault->dp_replicate;
  run.layout.dp_shard = fault->dp_shard;
  run.layout.tp = fault->tp;
  run.layout.zero = fault->zero;
  run.layout.sequence_parallel = fault->sequence_parallel;
  run.layout.microbatches = fault->microbatches;
  run.layout.compute = fault->compute;
  return run;
}

static ls_status verify_fault(ls_arena *arena, const ls_fault *fault,
                              ls_layout_verification **about, ls_error *error) {
  ls_fault copy = *fault;
  const ls_test_run run = run_of(arena, fault);
  const ls_verify_layout_options options = {
      .kernels = fault->compute != LS_F64, .alter = alter, .alter_context = &copy};
  return verify(arena, &run, &options, about, error);
}

static void test_faults_are_seen(void **state) {
  (void)state;
  for (int f = 0; f < ls_fault_count; f++) {
    ls_arena *arena = ls_arena_create();
    ls_layout_verification *about;
    ls_error error = {0};
    const ls_status status = verify_fault(arena, &ls_faults[f], &about, &error);
    print_message("%s: %s\n", ls_faults[f].name, error.text);
    if (status != LS_REFUTED) fail_msg("%s: not seen (%d)", ls_faults[f].name, status);
    ls_arena_destroy(&arena);
  }
  print_message("%d faults\n", ls_fault_count);
}

/* Below bf16's rounding in their smallest case: a hundredth of a norm, a thousandth of a weight. */
static bool is_below_bf16(const ls_fault *fault) {
  static const char *const names[] = {"second use of a tied embedding dropped",
                                      "max of the vocabulary not reduced",
                                      "embeddings do not decay"};
  for (size_t n = 0; n < sizeof names / sizeof *names; n++)
    if (strcmp(fault->name, names[n]) == 0) return true;
  return false;
}

static void check_faults_in(ls_dtype compute) {
  int seen = 0;
  for (int f = 0; f < ls_fault_count; f++) {
    ls_arena *arena = ls_arena_create();
    ls_layout_verification *about;
    ls_error error = {0};
    ls_fault fault = ls_faults[f];
    fault.compute = compute;
    const ls_status status = verify_fault(arena, &fault, &about, &error);
    const bool nothing = status == LS_INTERNAL && strstr(error.text, "nothing to alter");
    const bool hidden = compute == LS_BF16 && is_below_bf16(&fault);
    seen += status == LS_REFUTED;
    if (status != LS_REFUTED && !nothing && !hidden)
      fail_msg("%s: not seen in %s (%d)", fault.name, ls_dtype_name(compute), status);
    ls_arena_destroy(&arena);
  }
  print_message("%s: %d of %d faults\n", ls_dtype_name(compute), seen, ls_fault_count);
  assert_true(seen >= ls_fault_count - 6);
}

static void test_faults_are_seen_on_kernels(void **state) {
  (void)state;
  check_faults_in(LS_F32);
  check_faults_in(LS_BF16);
}

/* What only a third member can show: of a group of more than two, what the last third of the
 * members own stays as each of them had it. */
static bool leave_out_third(ls_program *program, void *context) {
  const ls_collective *kind = context;
  int hits = 0;
  for (int i = 0; i < program->instructions.count; i++) {
    ls_instruction *each = &program->instructions.items[i];
    if (each->collective != *kind || each->count < 3 ||
        ls_mesh_size(&program->mesh, each->axes) < 3)
      continue;
    each->count -= each->count / 3;
    hits++;
  }
  return hits > 0;
}

/* Meshes of more ranks than are run: two of each axis would have nothing to leave out. */
static void test_faults_of_a_third_member_are_seen(void **state) {
  (void)state;
  static const struct {
    int dp_replicate, dp_shard, tp, zero;
    ls_collective kind;
  } cases[] = {{48, 1, 1, 0, LS_ALL_REDUCE},
               {2, 24, 1, 1, LS_REDUCE_SCATTER},
               {4, 12, 1, 3, LS_ALL_GATHER},
               {2, 12, 2, 2, LS_REDUCE_SCATTER},
               {1, 6, 6, 3, LS_ALL_REDUCE}};
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    ls_arena *arena = ls_arena_create();
    ls_test_run run = {.config = ls_test_shape_config(arena, &ls_test_shapes[0]),
                       .layout = ls_layout_default(),
                       .batch = 48,
                       .sequence = LS_TEST_SEQUENCE};
    run.layout.dp_replicate = cases[c].dp_replicate;
    run.layout.dp_shard = cases[c].dp_shard;
    run.layout.tp = cases[c].tp;
    run.layout.zero = cases[c].zero;
    run.layout.compute = LS_F64;
    ls_collective kind = cases[c].kind;
    ls_verify_layout_options options = {0};
    ls_layout_verification *about;
    ls_error error = {0};
    assert_int_equal(verify(arena, &run, &options, &about, &error), LS_OK);
    assert_true(about->ranks < cases[c].dp_replicate * cases[c].dp_shard * cases[c].tp);
    options = (ls_verify_layout_options){.alter = leave_out_third, .alter_context = &kind};
    const ls_status status = verify(arena, &run, &options, &about, &error);
    print_message("case %zu: %s\n", c, error.text);
    assert_int_equal(status, LS_REFUTED);
    ls_arena_destroy(&arena);
  }
}

static const ls_fault *find_fault(const char *name) {
  for (int f = 0; f < ls_fault_count; f++)
    if (strcmp(ls_faults[f].name, name) == 0) return &ls_faults[f];
  fail_msg("no fault %s", name);
  return NULL;
}

/* What spoils one tensor is said of that tensor, at the time when it goes wrong. */
static void test_the_first_tensor_is_named(void **state) {
  (void)state;
  static const char *const said[][2] = {
      {"second use of a tied embedding dropped", "the gradient of embedding.token in step 1"},
      {"last unit not updated", "head.norm.weight after step 1"},
      {"partial product taken as whole", "the loss of step 1 is off"},
      {"piece of a gradient one element late", "the gradient of embedding.position in step 1"},
  };
  for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
    ls_arena *arena = ls_arena_create();
    ls_layout_verification *about;
    ls_error error = {0};
    assert_int_equal(verify_fault(arena, find_fault(said[i][0]), &about, &error), LS_REFUTED);
    if (!strstr(error.text, said[i][1]))
      fail_msg("%s: \"%s\" is not in \"%s\"", said[i][0], said[i][1], error.text);
    ls_arena_destroy(&arena);
  }
}

int main(void) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_right_layouts_pass),
      cmocka_unit_test(test_right_layouts_pass_on_kernels),
      cmocka_unit_test(test_faults_are_seen),
      cmocka_unit_test(test_faults_are_seen_on_kernels),
      cmocka_unit_test(test_faults_of_a_third_member_are_seen),
      cmocka_unit_test(test_the_first_tensor_is_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
