#include "text/distance.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void distance_counts_edits(void **state) {
  (void)state;
  static const struct {
    const char *first, *second;
    int edits;
  } cases[] = {
      {"", "", 0},          {"", "abc", 3},          {"abc", "", 3},           {"same", "same", 0},
      {"lr", "rl", 1},      {"ca", "abc", 3},        {"kitten", "sitting", 3}, {"a_b", "A-B", 0},
      {"steps", "step", 1}, {"warmpu", "warmup", 1}, {"abcdef", "badcfe", 3},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    assert_int_equal(ls_distance(cases[i].first, cases[i].second), cases[i].edits);
    assert_int_equal(ls_distance(cases[i].second, cases[i].first), cases[i].edits);
  }
}

static void long_words_are_cut(void **state) {
  (void)state;
  char first[1000], second[1000];
  memset(first, 'a', sizeof first - 1);
  memset(second, 'a', sizeof second - 1);
  first[sizeof first - 1] = second[sizeof second - 1] = '\0';
  second[0] = 'b';
  second[900] = 'b';
  assert_int_equal(ls_distance(first, second), 1);
}

static void nearest_is_what_was_meant(void **state) {
  (void)state;
  static const char *const names[] = {
      "train.lr",         "train.lr_min", "train.steps", "mesh.dp_shard", "optimizer.name",
      "checkpoint.every", "zero",         "data.seed",   "--temperature", "--help"};
  static const struct {
    const char *word, *name;
  } cases[] = {
      {"train.step", "train.steps"},
      {"trian.lr", "train.lr"},
      {"train.LR", "train.lr"},
      {"dp_shard", "mesh.dp_shard"},
      {"dp-shard", "mesh.dp_shard"},
      {"mesh.dpshard", "mesh.dp_shard"},
      {"checkpiont.evry", "checkpoint.every"},
      {"lr", "train.lr"},
      {"zreo", "zero"},
      {"--temp", "--temperature"},
      {"--hlep", "--help"},
      {"--tmep", NULL},
      {"datasets", NULL},
      {"checkpoint", "checkpoint.every"},
      {"gradient_checkpointing", NULL},
      {"x", NULL},
      {"", NULL},
      {"abcd", NULL},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *found = ls_nearest(cases[i].word, names, sizeof names / sizeof *names);
    if (!cases[i].name) {
      assert_null(found);
    } else {
      assert_non_null(found);
      assert_string_equal(found, cases[i].name);
    }
  }
  assert_null(ls_nearest("lr", names, 0));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(distance_counts_edits),
      cmocka_unit_test(long_words_are_cut),
      cmocka_unit_test(nearest_is_what_was_meant),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
