/* Pictures of pipelines: a box for each pass where its time is, none over another, all within. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "watch/timeline.h"

static int count(const char *text, const char *what) {
  int found = 0;
  for (const char *at = strstr(text, what); at; at = strstr(at + 1, what)) found++;
  return found;
}

/* Boxes of one lane follow one another, and none leaves the picture. */
static void check_boxes(const char *svg, int stages, int passes) {
  double width, end[64] = {0};
  assert_int_equal(sscanf(strstr(svg, "width='"), "width='%lf'", &width), 1);
  int boxes = 0;
  for (const char *at = strstr(svg, "<title>"); at; at = strstr(at + 1, "<title>"), boxes++) {
    int stage;
    double x, wide;
    assert_int_equal(sscanf(at, "<title>stage %d,", &stage), 1);
    assert_int_equal(sscanf(strstr(at, "<rect"), "<rect x='%lf' y='%*d' width='%lf'", &x, &wide),
                     2);
    assert_true(stage >= 0 && stage < stages);
    assert_true(x >= end[stage] - 0.11);
    assert_true(x + wide <= width);
    end[stage] = x + wide;
  }
  assert_int_equal(boxes, passes);
}

static void test_boxes_of_all_schedules(void **state) {
  (void)state;
  static const int shapes[][2] = {{1, 1}, {4, 8}, {16, 64}};
  for (int k = 0; k < ls_pipeline_kind_count; k++)
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
      ls_arena *arena = ls_arena_create();
      ls_pipeline *pipeline;
      ls_pipeline_times *times;
      ls_error error = {0};
      if (ls_pipeline_make(arena, &ls_pipeline_kinds[k], shapes[s][0], 0, shapes[s][1], &pipeline,
                           &error) != LS_OK)
        fail_msg("%s", error.text);
      assert_int_equal(
          ls_pipeline_times_make(arena, pipeline, &ls_pipeline_unit_costs, &times, &error), LS_OK);
      char *svg = NULL;
      size_t bytes = 0;
      FILE *stream = open_memstream(&svg, &bytes);
      ls_timeline_svg(pipeline, times, pipeline->name, stream);
      fclose(stream);
      int passes = 0;
      for (int i = 0; i < pipeline->stages; i++) passes += pipeline->lists[i].count;
      check_boxes(svg, pipeline->stages, passes);
      assert_int_equal(count(svg, "<g>"), count(svg, "</g>"));
      assert_int_equal(count(svg, "</svg>"), 1);
      free(svg);
      ls_arena_destroy(&arena);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_boxes_of_all_schedules)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
