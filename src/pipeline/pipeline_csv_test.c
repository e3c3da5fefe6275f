/* The user's own schedule: read back as written, and each kind of damage with its message. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "pipeline/pipeline.h"

static ls_status parse(ls_arena *arena, const char *text, int stages, int chunks, int microbatches,
                       ls_pipeline **pipeline, ls_error *error) {
  return ls_pipeline_parse_csv(arena, "own.csv", text, strlen(text), stages, chunks, microbatches,
                               pipeline, error);
}

static void assert_same(const ls_pipeline *first, const ls_pipeline *second) {
  assert_int_equal(first->stages, second->stages);
  assert_int_equal(first->chunks, second->chunks);
  assert_int_equal(first->microbatches, second->microbatches);
  assert_int_equal(first->splits, second->splits);
  for (int c = 0; c < first->stages * first->chunks; c++)
    assert_int_equal(first->stage_of[c], second->stage_of[c]);
  for (int s = 0; s < first->stages; s++) {
    assert_int_equal(first->lists[s].count, second->lists[s].count);
    assert_memory_equal(first->lists[s].items, second->lists[s].items,
                        sizeof *first->lists[s].items * (size_t)first->lists[s].count);
  }
}

static void what_is_written_reads_back(void **state) {
  (void)state;
  for (int k = 0; k < ls_pipeline_kind_count; k++) {
    for (int d = 1; d <= 5; d++) {
      for (int m = ls_pipeline_kinds[k].fewest_microbatches(d); m <= 12; m++) {
        ls_arena *arena = ls_arena_create();
        ls_error error = {0};
        ls_pipeline *made, *read;
        char *text = NULL;
        size_t bytes = 0;
        assert_int_equal(ls_pipeline_make(arena, &ls_pipeline_kinds[k], d, 0, m, &made, &error),
                         LS_OK);
        FILE *stream = open_memstream(&text, &bytes);
        ls_pipeline_write_csv(made, stream);
        fclose(stream);
        if (parse(arena, text, d, m % 2 ? made->chunks : 0, m % 3 ? m : 0, &read, &error) != LS_OK)
          fail_msg("%s", error.text);
        assert_string_equal(read->name, "own.csv");
        assert_same(made, read);
        free(text);
        ls_arena_destroy(&arena);
      }
    }
  }
}

/* Blanks, idle cells, a byte order mark, lines as of Windows, blank lines, pairs that overlap. */
static void forms_of_the_same(void **state) {
  (void)state;
  static const char *const forms[] = {
      "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n",
      "0F0,0F1,,,,0B0,,,0B1\n,1F0,1B0,,1F1,1B1",
      "\xef\xbb\xbf 0F0 ,\t0F1, ,0B0,0B1,,\r\n,1F0,1B0,1F1,1B1,\r\n",
      "\n0F0,0F1,0B0,0B1\n\n \t\n1F0,(1B0;1F1)OVERLAP_F_B,1B1\n\n",
      "00F00,0F01,0B0,0B1\n1F0,( 1B0 ; 1F1 )OVERLAP_F_B ,1B1\n",
  };
  ls_arena *arena = ls_arena_create();
  ls_error error = {0};
  ls_pipeline *first = NULL, *read;
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
    if (parse(arena, forms[i], 2, 1, 2, &read, &error) != LS_OK) fail_msg("%s", error.text);
    if (!first) first = read;
    assert_same(first, read);
  }
  ls_arena_destroy(&arena);
}

/* Texts, the sizes asked for, and the message; NULL: none. */
static const struct {
  const char *text;
  int stages, chunks, microbatches;
  const char *error;
} damages[] = {
    {"", 1, 1, 1, "own.csv:0: found 0 lines; expected 1, one for each stage"},
    {",,\n", 1, 1, 1, "own.csv: found no passes; expected a line of them for each stage"},
    {"0F0,0B0\n", 2, 1, 1, "own.csv:1: found 1 lines; expected 2, one for each stage"},
    {"0F0,0B0\n\n1F0,1B0\n", 1, 1, 1,
     "own.csv:3:1: found a line for stage 1; expected 1 lines, one for each stage"},
    {"0F0,F0,0B0\n", 1, 1, 1,
     "own.csv:1:5: found \"F0\"; expected chunk, F, B, I or W, and microbatch, as in 0F0, or "
     "nothing between commas"},
    {"0F0, 0f0\n", 1, 1, 1,
     "own.csv:1:6: found \"0f0\"; expected chunk, F, B, I or W, and microbatch, as in 0F0, or "
     "nothing between commas"},
    {"0F\n", 1, 1, 1,
     "own.csv:1:1: found \"0F\"; expected chunk, F, B, I or W, and microbatch, as in 0F0, or "
     "nothing between commas"},
    {"0F0;0B0\n", 1, 1, 1,
     "own.csv:1:1: found \"0F0;0B0\"; expected chunk, F, B, I or W, and microbatch, as in 0F0, "
     "or nothing between commas"},
    {"0F0,0B99999999999\n", 1, 1, 1,
     "own.csv:1:5: found \"0B99999999999\"; expected chunk, F, B, I or W, and microbatch, as in "
     "0F0, or nothing between commas"},
    {"0F0,0SEND_F0,0B0\n", 1, 1, 1,
     "own.csv:1:5: found \"0SEND_F0\"; expected F, B, I and W alone: transfers and gathers "
     "follow from them"},
    {"0UNSHARD,0F0,0B0\n", 1, 1, 1,
     "own.csv:1:1: found \"0UNSHARD\"; expected F, B, I and W alone: transfers and gathers "
     "follow from them"},
    {"0F0,(0B0;0F1),0B1\n", 1, 1, 2,
     "own.csv:1:5: found \"(0B0;0F1)\"; expected an overlapped pair such as "
     "(0F1;3B0)OVERLAP_F_B"},
    {"0F0,()OVERLAP_F_B,0B0\n", 1, 1, 1,
     "own.csv:1:6: found \"\"; expected chunk, F, B, I or W, and microbatch, as in 0F0, or "
     "nothing between commas"},
    {"0F0,0B0,4F0\n", 1, 1, 1,
     "own.csv:1:9: found 4F0; expected a chunk of 0 to 0: 1 stages of 1 chunks"},
    {"0F0,0B0,0F1\n", 1, 1, 1, "own.csv:1:9: found 0F1; expected a microbatch of 0 to 0"},
    {"0F0,0B0\n1F0,0F1,1B0\n", 2, 1, 2,
     "own.csv:2:5: found 0F1 on stage 1; expected it on stage 0, which holds chunk 0"},
    {"0F0,0F0,0B0\n", 1, 1, 1,
     "own.csv:1:5: found 0F0, and 0F0:1:1 before it; expected each pass once: one F and either "
     "one B or one I and one W"},
    {"0F0,0B0,0I0\n", 1, 1, 1,
     "own.csv:1:9: found 0I0, and 0B0:1:5 before it; expected each pass once: one F and either "
     "one B or one I and one W"},
    {"0F0,0I0,0B0\n", 1, 1, 1,
     "own.csv:1:9: found 0B0, and 0I0:1:5 before it; expected each pass once: one F and either "
     "one B or one I and one W"},
    {"0F0,0W0,0B0\n", 1, 1, 1,
     "own.csv:1:9: found 0B0, and 0W0:1:5 before it; expected each pass once: one F and either "
     "one B or one I and one W"},
    {"0F0,0B0\n,1F0\n", 2, 1, 1,
     "own.csv:2: found no 1B0; expected it on stage 1: each chunk has one F and either one B or "
     "one I and one W of each of the 1 microbatches"},
    {"0F0,0B0,0B1\n", 1, 1, 2,
     "own.csv:1: found no 0F1; expected it on stage 0: each chunk has one F and either one B or "
     "one I and one W of each of the 2 microbatches"},
    {"0F0,0I0\n", 1, 1, 1,
     "own.csv:1: found no 0W0; expected it on stage 0: each chunk has one F and either one B or "
     "one I and one W of each of the 1 microbatches"},
    {"0F0,0W0\n", 1, 1, 1,
     "own.csv:1: found no 0I0; expected it on stage 0: each chunk has one F and either one B or "
     "one I and one W of each of the 1 microbatches"},
    {"0F0,0B0\n1F0,1B0\n", 2, 1, 2,
     "own.csv:1: found no 0F1; expected it on stage 0: each chunk has one F and either one B or "
     "one I and one W of each of the 2 microbatches"},
    {"0B0,0F0\n", 1, 1, 1, "own.csv:1:1: found 0B0 before 0F0:1:5; expected it after that"},
    {"0F0,0W0,0I0\n", 1, 1, 1, "own.csv:1:5: found 0W0 before 0I0:1:9; expected it after that"},
    {"0F0,0B0\n2F0,2B0\n", 2, 0, 1,
     "own.csv:2:1: found chunks up to 2; expected each stage of 2 to hold as many"},
    {"0F0,0B0,2F0,2B0\n3F0,3B0\n", 2, 0, 1,
     "own.csv: found no pass of chunk 1; expected chunks 0 to 3"},
    {"0F0,1F0,2F0,2B0,1B0,0B0\n3F0,3B0\n", 2, 2, 1,
     "own.csv:1: found 3 chunks on stage 0; expected 2 on each of 2 stages"},
    {"0F0,0B0,0F9\n", 1, 1, 0,
     "own.csv:1:9: found microbatches up to 9; expected fewer than the 3 passes"},
    {"0F0,0B0\n", 1, 1, 90000000,
     "own.csv: found 1 stages x 1 chunks x 90000000 microbatches; expected at most 16777216 "
     "passes"},
    {"0F0,0F1,0B1,0B0\n1F0,1B0,1F1,1B1\n", 2, 1, 2, NULL},
    {"0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n", 2, 1, 2,
     "own.csv:1:5: the order cannot be executed: stage 0 waits at 0B0 for 1B0, stage 1 waits at "
     "1F1 for 0F1; expected each pass before those that wait for it: move one of the awaited "
     "passes forward in its stage's list"},
    {"0F0,0I0,0W0,0F1,0I1,0W1\n1F0,1F1,1I0,1W0,1I1,1W1\n", 2, 1, 2,
     "own.csv:1:5: the order cannot be executed: stage 0 waits at 0I0 for 1I0, stage 1 waits at "
     "1F1 for 0F1; expected each pass before those that wait for it: move one of the awaited "
     "passes forward in its stage's list"},
};

static void damage_is_named(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
    ls_arena *arena = ls_arena_create();
    ls_error error = {0};
    ls_pipeline *pipeline;
    const ls_status status = parse(arena, damages[i].text, damages[i].stages, damages[i].chunks,
                                   damages[i].microbatches, &pipeline, &error);
    if (!damages[i].error) {
      assert_int_equal(status, LS_OK);
    } else {
      if (status != LS_INPUT) fail_msg("taken: %s", damages[i].text);
      assert_null(pipeline);
      assert_string_equal(error.text, damages[i].error);
    }
    ls_arena_destroy(&arena);
  }
}

static void circles_of_waits_are_told(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_error error = {0};
  const ls_pipeline_kind *kind;
  ls_pipeline *pipeline;
  ls_pipeline_times *times;
  assert_int_equal(ls_pipeline_kind_find("gpipe", &kind, &error), LS_OK);
  assert_int_equal(ls_pipeline_make(arena, kind, 12, 1, 2, &pipeline, &error), LS_OK);
  /* Stage 1 wants the gradient of microbatch 0 before it sends microbatch 1 on; stages 0 and 3 to
   * 11 only wait for these two. */
  ls_pipeline_pass *passes = pipeline->lists[1].items;
  const ls_pipeline_pass forward = passes[1];
  passes[1] = passes[2];
  passes[2] = forward;
  static const char expected[] =
      "gpipe: the order cannot be executed: stage 1 waits at 1B0 for 2B0, stage 2 waits at 2F1 for "
      "1F1; expected each pass before those that wait for it: move one of the awaited passes "
      "forward in its stage's list";
  assert_int_equal(ls_pipeline_check(pipeline, &error), LS_INPUT);
  assert_string_equal(error.text, expected);
  assert_int_equal(ls_pipeline_times_make(arena, pipeline, &ls_pipeline_unit_costs, &times, &error),
                   LS_INPUT);
  assert_string_equal(error.text, expected);
  assert_null(times);
  /* The loop of chunks is a circle of all stages: the first six of them are told. */
  assert_int_equal(ls_pipeline_kind_find("interleaved", &kind, &error), LS_OK);
  assert_int_equal(ls_pipeline_make(arena, kind, 12, 2, 1, &pipeline, &error), LS_OK);
  passes = pipeline->lists[0].items;
  passes[0].chunk = 12;
  passes[1].chunk = 0;
  assert_int_equal(ls_pipeline_check(pipeline, &error), LS_INPUT);
  assert_non_null(strstr(error.text,
                         "stage 0 waits at 12F0 for 11F0, stage 11 waits at 11F0 for 10F0, stage "
                         "10 waits at 10F0 for 9F0, stage 9 waits at 9F0 for 8F0, stage 8 waits at "
                         "8F0 for 7F0, stage 7 waits at 7F0 for 6F0 and 6 more; expected"));
  /* A pass that is not there is no circle; the times say who misses it, the check that it is not.
   */
  pipeline->lists[3].count = 1;
  passes[0].chunk = 0;
  passes[1].chunk = 12;
  assert_int_equal(ls_pipeline_times_make(arena, pipeline, &ls_pipeline_unit_costs, &times, &error),
                   LS_INPUT);
  assert_non_null(strstr(error.text, ": stage 2 waits at 14B0 for 15B0; expected"));
  assert_int_equal(ls_pipeline_check(pipeline, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "interleaved: found no 3B0; expected it on stage 3"));
  ls_arena_destroy(&arena);
}

/* Faults that no file can have. */
static void made_pipelines_are_checked(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_error error = {0};
  const ls_pipeline_kind *kind;
  ls_pipeline *pipeline;
  assert_int_equal(ls_pipeline_kind_find("zbv", &kind, &error), LS_OK);
  assert_int_equal(ls_pipeline_make(arena, kind, 2, 0, 3, &pipeline, &error), LS_OK);
  ls_pipeline_pass *pass = &pipeline->lists[1].items[2];
  pass->kind = (ls_pass_kind)7;
  assert_int_equal(ls_pipeline_check(pipeline, &error), LS_INPUT);
  assert_string_equal(error.text,
                      "zbv: stage 1, pass 2: found a pass of kind 7; expected F, B, I or W");
  pass->kind = LS_PASS_FORWARD;
  pass->chunk = -1;
  assert_int_equal(ls_pipeline_check(pipeline, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "zbv: stage 1, pass 2: found -1F"));
  pipeline->stage_of[0] = 5;
  assert_int_equal(ls_pipeline_check(pipeline, &error), LS_INPUT);
  assert_string_equal(error.text, "zbv: found chunk 0 on stage 5; expected 0 to 1");
  pipeline->microbatches = 0;
  assert_int_equal(ls_pipeline_check(pipeline, &error), LS_INPUT);
  ls_arena_destroy(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_written_reads_back),
      cmocka_unit_test(forms_of_the_same),
      cmocka_unit_test(damage_is_named),
      cmocka_unit_test(circles_of_waits_are_told),
      cmocka_unit_test(made_pipelines_are_checked),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
