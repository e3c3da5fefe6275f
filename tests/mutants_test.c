/* `check` is judged by mutation: damaged programs are rejected, or run to the same numbers, in fp64
 * on the reference kernels, in memory that begins as NaN, with queues that are late at random. Why
 * one is harmless is not asked: that it trains to the same numbers is what is known of it. Programs
 * of another model, wrong and consistent, are all rejected.
 * LS_MUTANTS=N: how many (500). LS_SEED=N: which. LS_MUTANTS_PRINT=1: each rejection's text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "check/check.h"
#include "lower/compile.h"
#include "support/layouts.h"
#include "support/mutate.h"
#include "support/test_seed.h"
#include "support/wrong_models.h"
#include "verify/equality.h"

enum { GPT2 = 0, LLAMA_FREE, LLAMA_TIED, MOST_STAGES = 16, MUTANTS = 500 };

/* A model and the programs of its step. */
typedef struct compiled {
  ls_graph *graph; /* the right one */
  ls_layout layout;
  ls_program *stages[MOST_STAGES];
} compiled;

/* Kinds of damage: those of programs, then those of models. */
typedef struct mutation {
  int kind;
  uint64_t seed;
  char what[160];
} mutation;

static int count_kinds(void) {
  return ls_mutation_count + ls_wrong_model_count;
}

static bool is_of_model(int kind) {
  return kind >= ls_mutation_count;
}

static const char *name_of(int kind) {
  return is_of_model(kind) ? ls_wrong_models[kind - ls_mutation_count].name
                           : ls_mutation_names[kind];
}

static ls_graph *model_of(ls_arena *arena, int shape, const ls_layout *layout) {
  const ls_model_config config = ls_test_shape_config(arena, &ls_test_shapes[shape]);
  return ls_test_model(arena, &config, layout, LS_TEST_SEQUENCES, LS_TEST_SEQUENCE);
}

/* `about`: damage of the model, or NULL. False: there is nothing of that kind to damage, or the
 * layout cannot have it. */
static bool compile(ls_arena *arena, int shape, const ls_layout *layout, mutation *about,
                    compiled *made) {
  ls_error error = {0};
  ls_graph *graph = model_of(arena, shape, layout);
  made->graph = model_of(arena, shape, layout);
  made->layout = *layout;
  if (about && !ls_wrong_models[about->kind - ls_mutation_count].make(graph, about->seed))
    return false;
  ls_freeze_alike(made->graph, graph);
  ls_graph_backward(graph);
  const bool compiles =
      ls_program_compile(graph, layout, LS_PROGRAM_STEP, made->stages, &error) == LS_OK;
  if (!compiles && !about) fail_msg("%s", error.text);
  return compiles;
}

static ls_status check(const compiled *made, ls_error *error) {
  const ls_program *programs[MOST_STAGES];
  for (int s = 0; s < made->layout.pp; s++) programs[s] = made->stages[s];
  return ls_check(made->graph, &made->layout, programs, NULL, error);
}

/* Layouts that mutants are made of; every other one makes its logits in slices of seven tokens. */
static const struct subject {
  int shape, pp, dp_replicate, dp_shard, tp, zero, microbatches;
  bool sequence_parallel;
  const char *schedule;
  ls_when gather, reduce;
  ls_op_set recompute;
  ls_offload offload;
} subjects[] = {
    {GPT2, 1, 1, 1, 1, 0, 2, false, NULL, LS_WHEN_AUTO, LS_WHEN_AUTO, {{false}}, {0}},
    {LLAMA_TIED, 1, 1, 2, 1, 0, 2, false, NULL, LS_WHEN_AUTO, LS_WHEN_AUTO, {{false}}, {0}},
    {LLAMA_FREE, 1, 1, 2, 1, 1, 2, false, NULL, LS_WHEN_AUTO, LS_WHEN_AUTO, {{false}}, {0}},
    {GPT2, 1, 1, 3, 1, 2, 2, false, NULL, LS_WHEN_AUTO, LS_WHEN_MICROBATCH, {{false}}, {0}},
    {LLAMA_FREE,
     1,
     1,
     2,
     1,
     3,
     2,
     false,
     NULL,
     LS_WHEN_MICROBATCH,
     LS_WHEN_MICROBATCH,
     {{false}},
     {0}},
    {LLAMA_TIED, 1, 2, 2, 1, 3, 2, false, NULL, LS_WHEN_STEP, LS_WHEN_STEP, {{false}}, {0}},
    {GPT2, 1, 1, 1, 2, 0, 2, true, NULL, LS_WHEN_AUTO, LS_WHEN_AUTO, {{false}}, {0}},
    {LLAMA_FREE, 1, 1, 1, 8, 0, 1, true, NULL, LS_WHEN_AUTO, LS_WHEN_AUTO, {{false}}, {0}},
    {LLAMA_TIED, 1, 1, 2, 3, 3, 2, false, NULL, LS_WHEN_AUTO, LS_WHEN_AUTO, {{false}}, {0}},
    {LLAMA_TIED, 2, 1, 1, 1, 0, 4, false, "1f1b", LS_WHEN_AUTO, LS_WHEN_AUTO, {{false}}, {0}},
    {GPT2,
     2,
     1,
     2,
     1,
     3,
     2,
     false,
     "gpipe",
     LS_WHEN_MICROBATCH,
     LS_WHEN_MICROBATCH,
     {{false}},
     {0}},
    {LLAMA_TIED, 3, 1, 1, 1, 1, 4, false, "zbh1", LS_WHEN_AUTO, LS_WHEN_AUTO, {{false}}, {0}},
    {LLAMA_FREE, 2, 1, 1, 2, 1, 4, true, "zbv", LS_WHEN_AUTO, LS_WHEN_AUTO, {{false}}, {0}},
    {LLAMA_TIED, 2, 1, 2, 1, 2, 4, false, "dualpipev", LS_WHEN_STEP, LS_WHEN_STEP, {{false}}, {0}},
    {LLAMA_TIED,
     2,
     1,
     2,
     1,
     1,
     4,
     false,
     "interleaved",
     LS_WHEN_AUTO,
     LS_WHEN_AUTO,
     {{false}},
     {0}},
    {LLAMA_FREE, 2, 1, 1, 2, 1, 4, true, "1f1b", LS_WHEN_AUTO, LS_WHEN_AUTO, LS_EVERY_OP, {0}},
    {GPT2,
     1,
     1,
     2,
     1,
     3,
     2,
     false,
     NULL,
     LS_WHEN_AUTO,
     LS_WHEN_AUTO,
     {.has = {[LS_OP_LAYERNORM] = true, [LS_OP_GELU] = true}},
     {0}},
    {LLAMA_FREE,
     1,
     1,
     2,
     1,
     3,
     4,
     false,
     NULL,
     LS_WHEN_AUTO,
     LS_WHEN_AUTO,
     {{false}},
     {LS_TIER_HOST, 1, LS_TIER_DEVICE, LS_TIER_HOST}},
    {LLAMA_TIED,
     2,
     1,
     1,
     1,
     1,
     4,
     false,
     "1f1b",
     LS_WHEN_AUTO,
     LS_WHEN_AUTO,
     LS_EVERY_OP,
     {LS_TIER_NVME, 0.5, LS_TIER_HOST, LS_TIER_NVME}},
    {GPT2,
     1,
     1,
     2,
     1,
     1,
     2,
     false,
     NULL,
     LS_WHEN_AUTO,
     LS_WHEN_AUTO,
     {{false}},
     {LS_TIER_NVME, 1, LS_TIER_DEVICE, LS_TIER_HOST}},
    {LLAMA_TIED,
     1,
     1,
     2,
     1,
     3,
     1,
     false,
     NULL,
     LS_WHEN_AUTO,
     LS_WHEN_AUTO,
     {{false}},
     {LS_TIER_NVME, 1, LS_TIER_NVME, LS_TIER_DEVICE}},
    /* With post-validation, from here on. */
    {LLAMA_FREE, 2, 1, 1, 1, 3, 4, false, "zbh1", LS_WHEN_AUTO, LS_WHEN_AUTO, {{false}}, {0}},
    {GPT2, 3, 1, 1, 1, 3, 6, false, "zbh2", LS_WHEN_AUTO, LS_WHEN_AUTO, {{false}}, {0}},
    {LLAMA_TIED, 2, 1, 2, 1, 1, 4, false, "zbv", LS_WHEN_AUTO, LS_WHEN_AUTO, {{false}}, {0}},
};
enum { SUBJECTS = sizeof subjects / sizeof *subjects, VALIDATING = 3 };

static ls_layout layout_of(const struct subject *subject) {
  ls_layout layout = ls_layout_default();
  layout.pp = subject->pp;
  layout.dp_replicate = subject->dp_replicate;
  layout.dp_shard = subject->dp_shard;
  layout.tp = subject->tp;
  layout.zero = subject->zero;
  layout.microbatches = subject->microbatches;
  layout.sequence_parallel = subject->sequence_parallel;
  layout.schedule = subject->schedule;
  layout.gather = subject->gather;
  layout.reduce = subject->reduce;
  layout.recompute = subject->recompute;
  layout.offload = subject->offload;
  layout.compute = LS_F64;
  layout.logits_rows = (subject - subjects) % 2 ? 0 : 7;
  layout.prefetch = (int)(subject - subjects) % 3;
  layout.post_validation = subject >= &subjects[SUBJECTS - VALIDATING];
  return layout;
}

/* One stage of the program, which the seed says. */
static bool damage(ls_program *program, void *context) {
  mutation *about = context;
  if (program->stage != (int)(ls_random_bits(about->seed, 7, 0) % (uint64_t)program->layout.pp))
    return false;
  return ls_mutate(program, about->kind, about->seed, about->what);
}

static bool damage_and_delay(ls_program *program, void *context) {
  const mutation *about = context;
  const bool damaged = damage(program, context);
  ls_delay_queues(program, about->seed + (uint64_t)program->stage);
  return damaged;
}

typedef struct reference {
  bool made;
  ls_arena *arena;
  ls_model_config config;
  ls_trajectory intact;
} reference;

static ls_experiment experiment_on(const reference *on) {
  return (ls_experiment){.config = &on->config,
                         .sequences = LS_TEST_SEQUENCES,
                         .sequence = LS_TEST_SEQUENCE,
                         .learning_rate = 1e-2,
                         .loss_scale = 8,
                         .seed = 5,
                         .offload_path = "/tmp",
                         .deadline_s = 10};
}

static void run_intact(reference *on, int subject) {
  if (on->made) return;
  on->made = true;
  on->arena = ls_arena_create();
  on->config = ls_test_shape_config(on->arena, &ls_test_shapes[subjects[subject].shape]);
  const ls_experiment experiment = experiment_on(on);
  const ls_layout layout = layout_of(&subjects[subject]);
  ls_error error = {0};
  if (ls_trajectory_run(on->arena, &experiment, &layout, &on->intact, &error) != LS_OK)
    fail_msg("%s", error.text);
}

/* What an accepted mutant trains to, against the intact program. */
static double run_mutant(reference *on, int subject, mutation *about, const char **where) {
  run_intact(on, subject);
  ls_experiment experiment = experiment_on(on);
  experiment.alter = damage_and_delay;
  experiment.alter_context = about;
  const ls_layout layout = layout_of(&subjects[subject]);
  ls_arena *arena = ls_arena_create();
  ls_trajectory made;
  ls_error error = {0};
  double worst = 1;
  if (ls_trajectory_run(arena, &experiment, &layout, &made, &error) == LS_OK)
    worst = ls_trajectory_difference(&made, &on->intact, where);
  else
    *where = ls_arena_strdup(on->arena, error.text);
  ls_arena_destroy(&arena);
  return worst;
}

typedef struct counts {
  int made[64], rejected[64], wrong, unexpected;
} counts;

/* A mutant that was accepted: whether it is as good as the program. */
static void run_accepted(int subject, mutation *about, reference *on, counts *count) {
  const char *where = "it is another model";
  const double worst = is_of_model(about->kind) ? 1 : run_mutant(on, subject, about, &where);
  const bool harmless = worst < 1e-9;
  count->wrong += !harmless;
  count->unexpected += harmless && !ls_mutation_harmless[about->kind];
  print_message("%s: %s (layout %d, %s, seed %llu)%s%s\n",
                harmless ? "accepted, trains to the same" : "ACCEPTED, TRAINS TO ANOTHER",
                name_of(about->kind), subject, about->what, (unsigned long long)about->seed,
                harmless ? "" : ": ", harmless ? "" : where);
}

static void try_mutant(int subject, mutation *about, reference *on, counts *count) {
  ls_arena *arena = ls_arena_create();
  const ls_layout layout = layout_of(&subjects[subject]);
  compiled made;
  ls_error error = {0};
  const bool of_model = is_of_model(about->kind);
  bool altered =
      compile(arena, subjects[subject].shape, &layout, of_model ? about : NULL, &made) && of_model;
  for (int s = 0; s < layout.pp && !of_model; s++) altered |= damage(made.stages[s], about);
  count->made[about->kind] += altered;
  if (altered && check(&made, &error) != LS_OK) {
    count->rejected[about->kind]++;
    if (getenv("LS_MUTANTS_PRINT")) print_message("%s: %s\n", name_of(about->kind), error.text);
  } else if (altered) {
    run_accepted(subject, about, on, count);
  }
  ls_arena_destroy(&arena);
}

static void test_mutants_are_rejected_or_harmless(void **state) {
  (void)state;
  const char *many = getenv("LS_MUTANTS");
  const int wanted = many ? (int)strtol(many, NULL, 10) : MUTANTS;
  const uint64_t seed = test_seed_untold(20261121);
  print_message("%d mutants of seed %llu\n", wanted, (unsigned long long)seed);
  reference references[SUBJECTS] = {0};
  counts count = {0};
  int made = 0, rejected = 0, tried = 0, kinds = 0;
  assert_int_equal(ls_mutation_count, 31); /* as docs/testing.md has them */
  assert_int_equal(ls_wrong_model_count, 29);
  while (made < wanted) {
    mutation about = {.kind = tried % count_kinds(),
                      .seed = ls_random_bits(seed, 9, (uint64_t)tried)};
    const int subject = (int)(ls_random_bits(seed, 10, (uint64_t)tried++) % SUBJECTS);
    const int before = count.made[about.kind];
    try_mutant(subject, &about, &references[subject], &count);
    made += count.made[about.kind] - before;
  }
  for (int k = 0; k < count_kinds(); k++) {
    print_message("%-34s %4d of %4d rejected\n", name_of(k), count.rejected[k], count.made[k]);
    rejected += count.rejected[k];
    kinds += count.made[k] > 0;
  }
  print_message("%d of %d rejected, %d accepted and equal, %d accepted and different\n", rejected,
                made, made - rejected - count.wrong, count.wrong);
  for (int s = 0; s < SUBJECTS; s++)
    if (references[s].made) ls_arena_destroy(&references[s].arena);
  assert_int_equal(count.wrong, 0);
  assert_int_equal(count.unexpected, 0);
  assert_true(kinds >= 20 && rejected * 2 > made);
}

/* With master weights: what rounds them is an instruction too. Without any one instruction the
 * program is wrong, but for the reciprocal on stages that have no loss. */
static void test_every_instruction_is_needed(void **state) {
  (void)state;
  static const int chosen[] = {4, 5, 14, SUBJECTS - 1};
  int dropped = 0, idle = 0;
  for (int c = 0; c < 4; c++)
    for (int stage = 0, i = 0, count = 1; stage < subjects[chosen[c]].pp; i++) {
      ls_arena *arena = ls_arena_create();
      ls_layout layout = layout_of(&subjects[chosen[c]]);
      layout.compute = LS_BF16;
      compiled made;
      ls_error error = {0};
      char what[160];
      assert_true(compile(arena, subjects[chosen[c]].shape, &layout, NULL, &made));
      count = made.stages[stage]->instructions.count;
      ls_drop_instruction(made.stages[stage], i, what);
      if (check(&made, &error) != LS_OK) {
        dropped++;
      } else {
        if (!strstr(what, "reciprocal")) fail_msg("accepted without %s", what);
        idle++;
      }
      ls_arena_destroy(&arena);
      if (i + 1 == count) {
        stage++;
        i = -1;
      }
    }
  print_message("%d instructions dropped, one at a time: rejected; %d not needed\n", dropped, idle);
  assert_true(dropped > 500 && idle <= 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_mutants_are_rejected_or_harmless),
      cmocka_unit_test(test_every_instruction_is_needed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
