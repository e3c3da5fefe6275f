/* The loss scale against PyTorch's rule, over many steps, and through its text. */
#include "session/loss_scale.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"

static void after(ls_loss_scale *scale, bool overflowed) {
  ls_error error = {0};
  if (ls_loss_scale_after_step(scale, overflowed, &error) != LS_OK) fail_msg("%s", error.text);
}

static void starts_as_pytorch(void **state) {
  (void)state;
  const ls_loss_scale scale = ls_loss_scale_start();
  assert_true(scale.scale == 65536 && scale.growth == 2 && scale.backoff == 0.5);
  assert_int_equal(scale.interval, 2000);
  assert_int_equal(scale.steps, 0);
  assert_int_equal(scale.skipped, 0);
}

static void grows_and_backs_off(void **state) {
  (void)state;
  ls_loss_scale scale = ls_loss_scale_start();
  for (int i = 0; i < 1999; i++) after(&scale, false);
  assert_true(scale.scale == 65536);
  after(&scale, false);
  assert_true(scale.scale == 131072);
  assert_int_equal(scale.steps, 0);
  for (int i = 0; i < 1999; i++) after(&scale, false);
  after(&scale, true); /* the count begins anew */
  assert_true(scale.scale == 65536);
  for (int i = 0; i < 1999; i++) after(&scale, false);
  assert_true(scale.scale == 65536);
  after(&scale, false);
  assert_true(scale.scale == 131072);
  assert_int_equal(scale.skipped, 1);
}

/* torch._amp_update_scale_, written from its documentation, with the tracker apart. */
static void is_pytorchs_rule(void **state) {
  (void)state;
  const uint64_t seed = 31;
  print_message("seed %llu\n", (unsigned long long)seed);
  ls_loss_scale scale = ls_loss_scale_start();
  scale.interval = 7;
  double wanted = 65536;
  int tracker = 0, skipped = 0;
  for (uint64_t step = 0; step < 20000; step++) {
    const bool overflowed = ls_random_uniform(seed, 0, step) < 0.09 && wanted > 1;
    if (overflowed) {
      wanted *= 0.5;
      tracker = 0;
      skipped++;
    } else if (++tracker == 7) {
      wanted *= wanted < 0x1p126 ? 2 : 1;
      tracker = 0;
    }
    after(&scale, overflowed);
    assert_true(scale.scale == wanted);
    assert_int_equal(scale.steps, tracker);
    assert_int_equal(scale.skipped, skipped);
  }
}

static void stops_at_both_ends(void **state) {
  (void)state;
  ls_error error = {0};
  ls_loss_scale scale = ls_loss_scale_start();
  for (int i = 0; i < 16; i++) after(&scale, true);
  assert_true(scale.scale == 1);
  assert_int_equal(ls_loss_scale_after_step(&scale, true, &error), LS_FAILED);
  assert_non_null(strstr(error.text, "scaled by 1"));
  assert_true(scale.scale == 1);
  assert_int_equal(scale.skipped, 16);
  scale.interval = 1;
  for (int i = 0; i < 200; i++) after(&scale, false);
  assert_true(scale.scale == 0x1p126);
}

static void survives_its_text(void **state) {
  (void)state;
  ls_error error = {0};
  char text[LS_LOSS_SCALE_BYTES];
  const ls_loss_scale some[] = {
      {.scale = 65536, .steps = 17, .skipped = 3},
      {.scale = 1, .steps = 0, .skipped = INT64_MAX},
      {.scale = 0x1p126, .steps = INT64_MAX},
      {.scale = 1.1, .steps = 1999},
  };
  for (int i = 0; i < 4; i++) {
    ls_loss_scale back = ls_loss_scale_start();
    back.interval = 5; /* a setting: kept */
    ls_loss_scale_write(text, &some[i]);
    assert_int_equal(ls_loss_scale_read(text, &back, &error), LS_OK);
    assert_true(back.scale == some[i].scale);
    assert_int_equal(back.steps, some[i].steps);
    assert_int_equal(back.skipped, some[i].skipped);
    assert_int_equal(back.interval, 5);
  }
  ls_loss_scale_write(text, &some[0]);
  assert_string_equal(text, "65536 after 17 steps, 3 skipped");
}

static void refuses_other_texts(void **state) {
  (void)state;
  static const char *const texts[] = {"",
                                      "65536",
                                      "65536 after 17 steps",
                                      "65536 after 17 steps, 3 skipped ",
                                      " 65536 after 17 steps, 3 skipped",
                                      "65536 after -1 steps, 3 skipped",
                                      "65536 after 17 steps, -3 skipped",
                                      "65536 after 17 steps, 3 skipped, 4",
                                      "0 after 0 steps, 0 skipped",
                                      "0.5 after 0 steps, 0 skipped",
                                      "-2 after 0 steps, 0 skipped",
                                      "inf after 0 steps, 0 skipped",
                                      "nan after 0 steps, 0 skipped",
                                      "1e300 after 0 steps, 0 skipped",
                                      "2 after 99999999999999999999 steps, 0 skipped",
                                      "2  after 0 steps, 0 skipped"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    ls_error error = {0};
    ls_loss_scale scale = ls_loss_scale_start();
    if (ls_loss_scale_read(texts[i], &scale, &error) != LS_INPUT) fail_msg("%s", texts[i]);
    assert_non_null(strstr(error.text, "expected such as"));
    assert_true(scale.scale == 65536);
    assert_int_equal(scale.steps, 0);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(starts_as_pytorch), cmocka_unit_test(grows_and_backs_off),
      cmocka_unit_test(is_pytorchs_rule),  cmocka_unit_test(stops_at_both_ends),
      cmocka_unit_test(survives_its_text), cmocka_unit_test(refuses_other_texts),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
