/* Programs of many microbatches beside those of few: what is the same again, and what is not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "check/check.h"
#include "lower/training.h"

enum { STAGES = 2, FEW = 14, MANY = 30 };

static ls_model_config small_model(ls_arena *arena) {
  ls_model_config config;
  ls_error error = {0};
  if (ls_model_find(arena, "llama-3m", &config, &error) != LS_OK) fail_msg("%s", error.text);
  config.layers = 4;
  return config;
}

static ls_compiled compile(ls_arena *arena, const ls_model_config *config, const char *schedule,
                           int microbatches) {
  const ls_training training = {.model = config, .batch = 2 * microbatches, .sequence = 64};
  ls_layout layout = ls_layout_default();
  layout.pp = STAGES;
  ls_layout_set_data_ranks(&layout, 1, 2);
  layout.zero = 3;
  layout.prefetch = 1;
  layout.schedule = schedule;
  layout.microbatches = microbatches;
  ls_compiled made;
  ls_error error = {0};
  if (ls_compile_step(arena, &training, &layout, ls_device_facts_cpu("plain"), &made, &error) !=
      LS_OK)
    fail_msg("%s", error.text);
  return made;
}

/* An action behind the middle of a stage's whose body touches memory of one microbatch. */
static ls_program_action *find_action(ls_program *program, ls_action_kind kind, int *group) {
  for (int a = program->actions.count / 2; a < program->actions.count; a++) {
    ls_program_action *each = &program->actions.items[a];
    const ls_body *body = &program->bodies.items[each->body];
    for (*group = 0; *group < body->buffer_groups.count && each->action.kind == kind; ++*group)
      if (program->live_intervals.items[each->live_intervals[*group]].microbatch >= 0 &&
          program->buffer_groups.items[body->buffer_groups.items[*group]].pool == LS_POOL_WORK)
        return each;
  }
  fail_msg("no such action");
  return NULL;
}

static void swap_actions(ls_program_action *a, ls_program_action *b) {
  const ls_program_action kept = *a;
  *a = *b;
  *b = kept;
}

static bool repeats(const ls_compiled *few, const ls_compiled *many) {
  return ls_check_repeats(few->stages[LS_COMPILED_STEP], many->stages[LS_COMPILED_STEP], STAGES, 1);
}

/* Each fault is made in the middle of stage 1 of the many, and taken back. */
static void what_differs_is_not_the_same_again(void **state) {
  (void)state;
  static const char *const schedules[] = {"1f1b", "zbh1", "zbv", "dualpipev"};
  for (int k = 0; k < 4; k++) {
    ls_arena *arena = ls_arena_create();
    const ls_model_config config = small_model(arena);
    const ls_compiled few = compile(arena, &config, schedules[k], FEW);
    const ls_compiled many = compile(arena, &config, schedules[k], MANY);
    ls_program *of = (ls_program *)(uintptr_t)many.stages[LS_COMPILED_STEP][1];
    int group;
    assert_true(repeats(&few, &many));
    assert_true(repeats(&few, &few) == false);
    ls_program_action *each = find_action(of, LS_ACTION_FORWARD, &group);
    each->action.microbatch++;
    assert_false(repeats(&few, &many));
    each->action.microbatch--;
    each->live_intervals[group]--;
    assert_false(repeats(&few, &many));
    each->live_intervals[group]++;
    each->body++;
    assert_false(repeats(&few, &many));
    each->body--;
    swap_actions(each, each + 1);
    assert_false(repeats(&few, &many));
    swap_actions(each, each + 1);
    ls_instruction *first = &of->instructions.items[of->bodies.items[each->body].first];
    first->attributes.weight += 1;
    assert_false(repeats(&few, &many));
    first->attributes.weight -= 1;
    first->wait ^= 1;
    assert_false(repeats(&few, &many));
    first->wait ^= 1;
    assert_true(repeats(&few, &many));
    ls_arena_destroy(&arena);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_differs_is_not_the_same_again),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
