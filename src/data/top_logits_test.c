/* What a teacher has said, in a file: written and read again, of the tokens that it is of alone;
 * and what is no such file. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "data/top_logits.h"
#include "store/safetensors.h"
#include "support/test_folder.h"

enum { LENGTH = 3, TOP = 2, SEQUENCES = 3 };

static ls_error error;

static const ls_top_about about = {.teacher = "runs/large",
                                   .dataset = "0123456789abcdef",
                                   .vocabulary = 7,
                                   .seq_len = LENGTH,
                                   .top = TOP,
                                   .training = 2,
                                   .evaluation = 1};
static const int32_t positions[LENGTH] = {0, 1, 2};
static int32_t ids[SEQUENCES][LENGTH] = {{1, 2, 3}, {4, 5, 6}, {1, 1, 1}};
static int32_t top_ids[SEQUENCES][LENGTH * TOP] = {
    {0, 3, 1, 6, 2, 4}, {5, 6, 0, 1, 3, 4}, {0, 6, 2, 3, 1, 5}};
static float log_probs[SEQUENCES][LENGTH * TOP] = {{-0.5f, -1.5f, -3, -0.25f, -1, -1},
                                                   {-0.1f, -4, -2, -1, -0.5f, -0.75f},
                                                   {-1, -2, -3, -2.5f, -0.0625f, -8}};

static const char *write_file(const char *name) {
  const char *path = in_folder(name);
  ls_top_writer *writer;
  (void)unlink(path);
  assert_int_equal(ls_top_writer_begin(arena, path, &about, &writer, &error), LS_OK);
  assert_false(ls_file_exists(path));
  for (int s = SEQUENCES; s-- > 0;)
    assert_int_equal(
        ls_top_writer_put(writer, s, ids[s], positions, top_ids[s], log_probs[s], &error), LS_OK);
  if (ls_top_writer_end(writer, &error) != LS_OK) fail_msg("%s", error.text);
  ls_top_writer_abandon(writer);
  return path;
}

static void what_is_written_is_read(void **state) {
  (void)state;
  const ls_top_logits *opened;
  int32_t found[LENGTH * TOP];
  float below[LENGTH * TOP];
  if (ls_top_logits_open(arena, write_file("told"), &opened, &error) != LS_OK)
    fail_msg("%s", error.text);
  assert_string_equal(opened->about.teacher, about.teacher);
  assert_string_equal(opened->about.dataset, about.dataset);
  assert_int_equal(opened->about.vocabulary, 7);
  assert_int_equal(opened->about.training, 2);
  for (int s = 0; s < SEQUENCES; s++) {
    assert_int_equal(ls_top_logits_read(opened, s, ids[s], positions, found, below, &error), LS_OK);
    for (int i = 0; i < LENGTH * TOP; i++) {
      const float most = fmaxf(log_probs[s][i / TOP * TOP], log_probs[s][i / TOP * TOP + 1]);
      assert_int_equal(found[i], top_ids[s][i]);
      assert_true(below[i] == log_probs[s][i] - most);
    }
  }
}

static void other_tokens_are_refused(void **state) {
  (void)state;
  static const int32_t begun_anew[LENGTH] = {0, 1, 0};
  const ls_top_logits *opened;
  int32_t found[LENGTH * TOP];
  float below[LENGTH * TOP];
  assert_int_equal(ls_top_logits_open(arena, write_file("told"), &opened, &error), LS_OK);
  assert_int_equal(ls_top_logits_read(opened, 1, ids[0], positions, found, below, &error),
                   LS_INPUT);
  assert_non_null(strstr(error.text, "sequence 1 is of other tokens than the run's"));
  assert_int_equal(ls_top_logits_read(opened, 0, ids[0], begun_anew, found, below, &error),
                   LS_INPUT);
}

static void a_glance_sees_other_logits(void **state) {
  (void)state;
  const ls_top_logits *first, *second;
  assert_int_equal(ls_top_logits_open(arena, write_file("told"), &first, &error), LS_OK);
  log_probs[2][1] -= 1;
  assert_int_equal(ls_top_logits_open(arena, write_file("other"), &second, &error), LS_OK);
  log_probs[2][1] += 1;
  assert_true(ls_top_logits_glance(first) != ls_top_logits_glance(second));
}

static void bad_rows_are_named(void **state) {
  (void)state;
  const struct {
    int at;
    int32_t id;
    float log_prob;
    const char *said;
  } bad[] = {{3, 7, -1, "sequence 0, token 1: ids are not ascending, each once, below"},
             {1, 0, -1, "sequence 0, token 0: ids are not ascending"},
             {4, -1, -1, "sequence 0, token 2: ids are not ascending"},
             {2, 1, NAN, "sequence 0, token 1: a log-probability is no number up to 0"},
             {5, 4, 1, "sequence 0, token 2: a log-probability"},
             {5, 4, -INFINITY, "sequence 0, token 2: a log-probability"}};
  for (size_t b = 0; b < sizeof bad / sizeof *bad; b++) {
    const ls_top_logits *opened;
    int32_t found[LENGTH * TOP];
    float below[LENGTH * TOP];
    const int32_t id = top_ids[0][bad[b].at];
    const float log_prob = log_probs[0][bad[b].at];
    top_ids[0][bad[b].at] = bad[b].id;
    log_probs[0][bad[b].at] = bad[b].log_prob;
    assert_int_equal(ls_top_logits_open(arena, write_file("bad"), &opened, &error), LS_OK);
    top_ids[0][bad[b].at] = id;
    log_probs[0][bad[b].at] = log_prob;
    assert_int_equal(ls_top_logits_read(opened, 0, ids[0], positions, found, below, &error),
                     LS_INPUT);
    if (!strstr(error.text, bad[b].said)) fail_msg("%zu: %s", b, error.text);
  }
}

/* Headers whose metadata or tensors are others. */
static void other_files_are_refused(void **state) {
  (void)state;
  static const struct {
    const char *from, *to, *said;
  } bad[] = {
      {"\"lockstep_top_logits\":\"1\"", "\"lockstep_top_logits\":\"2\"", "is of form \"2\""},
      {"\"lockstep_top_logits\"", "\"lockstep_top_logitz\"", "has no \"lockstep_top_logits\""},
      {"\"top_k\":\"2\"", "\"top_k\":\"x\"", "says no \"top_k\" that can be"},
      {"\"top_k\":\"2\"", "\"top_k\":\"8\"", "more ids than the vocabulary"},
      {"\"top_k\":\"2\"", "\"top_k\":\"1\"", "has no tensor ids of the sizes"},
      {"\"vocabulary\":\"7\"", "\"vocabulary\":\"0\"", "\"vocabulary\" that can be"},
      {"\"seq_len\":\"3\"", "\"seq_len\":\"-\"", "\"seq_len\" that can be"},
      {"\"teacher\"", "\"teaches\"", "lacks teacher or dataset"},
      {"\"log_probs\"", "\"log_probz\"", "has no tensor log_probs"},
      {"\"training_sequences\":\"2\"", "\"training_sequences\":\"3\"", "has no tensor ids"}};
  const char *path = write_file("told");
  for (size_t b = 0; b < sizeof bad / sizeof *bad; b++) {
    char *text, *place = NULL;
    size_t bytes;
    ls_top_logits parsed;
    assert_int_equal(ls_file_read(arena, path, &text, &bytes, &error), LS_OK);
    const size_t length = strlen(bad[b].from);
    for (size_t i = 0; i + length <= bytes && !place; i++)
      if (memcmp(text + i, bad[b].from, length) == 0) place = text + i;
    if (!place) fail_msg("%s is not in the file", bad[b].from);
    memcpy(place, bad[b].to, length);
    assert_int_equal(ls_top_logits_parse(arena, "told", text, bytes, &parsed, &error), LS_INPUT);
    if (!strstr(error.text, bad[b].said)) fail_msg("%s: %s", bad[b].to, error.text);
  }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
  const struct CMUnitTest tests[] = {CASE(what_is_written_is_read), CASE(other_tokens_are_refused),
                                     CASE(a_glance_sees_other_logits), CASE(bad_rows_are_named),
                                     CASE(other_files_are_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
