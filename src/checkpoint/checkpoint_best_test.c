/* The best checkpoint: its link, what pruning leaves, and what state.json says of it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/checkpoint_folder.h"
#include "support/test_folder.h"

static ls_error error;

/* A checkpoint of a step that holds nothing but its state. */
static void make_checkpoint(int step, const ls_best_evaluation *best) {
  const char *path = ls_arena_printf(arena, "%s/checkpoints/step-%d", folder, step);
  json_t *state =
      json_pack("{s:i, s:i, s:i, s:i}", "step", step, "tokens", 0, "sequences", 0, "seed", 1);
  if (best) json_object_set_new(state, "best", ls_checkpoint_best_json(best));
  assert_int_equal(ls_directory_make(path, &error), LS_OK);
  if (ls_checkpoint_seal(path, state, NULL, 0, &error) != LS_OK) fail_msg("%s", error.text);
  json_decref(state);
}

static bool is_there(int step) {
  return ls_directory_exists(ls_arena_printf(arena, "%s/checkpoints/step-%d", folder, step));
}

static void pruning_leaves_the_best(void **state) {
  (void)state;
  assert_int_equal(ls_checkpoint_best_step(folder), -1);
  for (int step = 1; step <= 5; step++) make_checkpoint(step, NULL);
  assert_int_equal(ls_checkpoint_point_best(folder, 2, &error), LS_OK);
  assert_int_equal(ls_checkpoint_best_step(folder), 2);
  assert_true(ls_file_exists(in_folder("best/state.json")));
  ls_checkpoint_prune(folder, 2);
  for (int step = 1; step <= 5; step++) assert_int_equal(is_there(step), step == 2 || step > 3);
  /* Another one, which is among the newest: the one before goes. */
  assert_int_equal(ls_checkpoint_point_best(folder, 5, &error), LS_OK);
  ls_checkpoint_prune(folder, 1);
  for (int step = 1; step <= 5; step++) assert_int_equal(is_there(step), step == 5);
  assert_int_equal(ls_checkpoint_point_best(folder, 5, &error), LS_OK);
  ls_checkpoint_forget_best(folder);
  assert_int_equal(ls_checkpoint_best_step(folder), -1);
  assert_true(is_there(5));
  assert_int_equal(ls_checkpoint_point_best(folder, 5, &error), LS_OK);
  ls_checkpoint_remove_all(folder);
  assert_false(is_there(5));
}

/* A link of somebody else's, a file, or what a kill left: none of them is taken for ours. */
static void what_is_no_link_of_ours_is_refused(void **state) {
  (void)state;
  static const char *const targets[] = {"checkpoints/step-", "checkpoints/step-7x", "elsewhere",
                                        "checkpoints/step-1234567890123456789"};
  assert_int_equal(ls_checkpoint_check_best(folder, &error), LS_OK);
  for (int t = 0; t < 4; t++) {
    assert_int_equal(symlink(targets[t], in_folder("best")), 0);
    assert_int_equal(ls_checkpoint_best_step(folder), -1);
    assert_int_equal(ls_checkpoint_check_best(folder, &error), LS_INPUT);
    assert_non_null(strstr(error.text, "/best: is no link to a checkpoint"));
    ls_checkpoint_forget_best(folder);
    assert_int_equal(unlink(in_folder("best")), 0);
  }
  assert_int_equal(ls_directory_make(in_folder("best"), &error), LS_OK);
  assert_int_equal(ls_checkpoint_check_best(folder, &error), LS_INPUT);
  assert_int_equal(ls_checkpoint_point_best(folder, 3, &error), LS_FAILED);
  assert_int_equal(rmdir(in_folder("best")), 0);
  assert_int_equal(symlink("checkpoints/step-1", in_folder("best")), 0);
  assert_int_equal(symlink("checkpoints/step-2", in_folder("best.tmp")), 0);
  assert_int_equal(ls_checkpoint_check_best(folder, &error), LS_OK);
  assert_int_equal(ls_checkpoint_point_best(folder, 3, &error), LS_OK);
  assert_int_equal(ls_checkpoint_best_step(folder), 3);
}

static ls_status read_back(const ls_best_evaluation *best, ls_checkpoint_state *state) {
  make_checkpoint(9, best);
  return ls_checkpoint_state_read(in_folder("checkpoints/step-9"), state, &error);
}

static void the_best_is_kept_in_the_state(void **state) {
  (void)state;
  static const ls_best_evaluation right[] = {{.loss = 1.0 / 3, .step = 4, .worse = 2, .judged = 8},
                                             {.loss = 2, .step = 9, .judged = 9},
                                             {.worse = 3, .judged = 6}};
  static const ls_best_evaluation wrong[] = {{.loss = 1, .step = -1, .judged = 2},
                                             {.loss = 1, .step = 4, .worse = -1, .judged = 4},
                                             {.loss = 1, .step = 5, .judged = 4},
                                             {.loss = 1, .step = 4, .judged = 10}};
  ls_checkpoint_state found;
  for (int i = 0; i < 3; i++) {
    if (read_back(&right[i], &found) != LS_OK) fail_msg("%s", error.text);
    assert_memory_equal(&found.best, &right[i], sizeof right[i]); /* the loss to its last bit */
  }
  for (int i = 0; i < 4; i++) {
    assert_int_equal(read_back(&wrong[i], &found), LS_INPUT);
    assert_non_null(strstr(error.text, "damaged: its \"best\" is of no evaluation up to step 9"));
  }
  assert_int_equal(read_back(NULL, &found), LS_OK);
  assert_int_equal(found.best.step, 0);
  assert_int_equal(found.best.judged, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(pruning_leaves_the_best, set_up, tear_down),
      cmocka_unit_test_setup_teardown(what_is_no_link_of_ours_is_refused, set_up, tear_down),
      cmocka_unit_test_setup_teardown(the_best_is_kept_in_the_state, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
