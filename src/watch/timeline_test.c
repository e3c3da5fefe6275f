/* Planned schedules as pictures and as traces: a box for each pass where its time is, none over
 * another, all within; every pass once, in order of time. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/xml.h"
#include "text/json.h"
#include "watch/markup.h"
#include "watch/timeline.h"

/* Boxes of one track follow one another, and none leaves the picture. */
static void check_boxes(const char *svg, int stages, int passes) {
  char why[LS_XML_WHY];
  if (!xml_is_well_formed(svg, why)) fail_msg("%s", why);
  const double width = xml_attribute(svg, "width");
  double end[64] = {0};
  int boxes = 0;
  for (const char *at = strstr(svg, "<title>"); at; at = strstr(at + 1, "<title>"), boxes++) {
    int stage;
    assert_int_equal(sscanf(at, "<title>stage %d:", &stage), 1);
    assert_true(stage >= 0 && stage < stages);
    const char *box = strstr(at, "<rect");
    const double x = xml_attribute(box, "x");
    assert_true(x >= end[stage] - 0.02);
    end[stage] = x + xml_attribute(box, "width");
    assert_true(end[stage] <= width);
  }
  assert_int_equal(boxes, passes);
}

/* The legend's texts end within the picture, and say what the colours are. */
static void check_legend(const char *svg) {
  const double width = xml_attribute(svg, "width"), height = xml_attribute(svg, "height");
  assert_non_null(strstr(svg, "a colour, or the number: a microbatch"));
  int entries = 0;
  for (const char *at = strstr(svg, "class='g'>"); at; at = strstr(at + 1, "class='g'>")) {
    const char *begin = at;
    while (strncmp(begin, "<text", 5) != 0) begin--;
    const double y = xml_attribute(begin, "y"), letters = (double)strcspn(at + 10, "<");
    assert_true(y < height);
    if (y < 64) continue; /* the head */
    entries++;
    assert_true(xml_attribute(begin, "x") + 6 * letters < width);
  }
  assert_true(entries >= 3);
}

static double number_of(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  if (!json_is_number(value)) fail_msg("no number %s", key);
  return json_number_value(value);
}

/* Every pass once: counted by kind, microbatch and chunk; ordered on each stage. */
static void check_trace(ls_arena *arena, const char *text, size_t bytes,
                        const ls_pipeline *pipeline) {
  json_t *root;
  ls_error error = {0};
  if (ls_json_parse("trace", text, bytes, 0, &root, &error) != LS_OK) fail_msg("%s", error.text);
  const int chunks = pipeline->stages * pipeline->chunks, cells = chunks * pipeline->microbatches;
  int *seen = LS_NEW_ARRAY(arena, int, cells *LS_PASS_KINDS);
  double *end = LS_NEW_ARRAY(arena, double, pipeline->stages);
  size_t index;
  const json_t *event;
  json_array_foreach(json_object_get(root, "traceEvents"), index, event) {
    const int stage = (int)number_of(event, "pid");
    assert_true(stage >= 0 && stage < pipeline->stages);
    if (strcmp(json_string_value(json_object_get(event, "ph")), "X") != 0) continue;
    const json_t *arguments = json_object_get(event, "args");
    const int chunk = (int)number_of(arguments, "chunk");
    const int at = chunk * pipeline->microbatches + (int)number_of(arguments, "microbatch");
    const char *kind = json_string_value(json_object_get(event, "name"));
    seen[at * LS_PASS_KINDS + (strcmp(kind, "forward") == 0            ? LS_PASS_FORWARD
                               : strcmp(kind, "backward") == 0         ? LS_PASS_BACKWARD
                               : strcmp(kind, "backward: inputs") == 0 ? LS_PASS_INPUT
                                                                       : LS_PASS_WEIGHT)]++;
    assert_int_equal(pipeline->stage_of[chunk], stage);
    assert_true(number_of(event, "ts") >= end[stage] - 1e-6);
    end[stage] = number_of(event, "ts") + number_of(event, "dur");
  }
  for (int i = 0; i < cells; i++) {
    const int *of = &seen[i * LS_PASS_KINDS];
    assert_int_equal(of[LS_PASS_FORWARD], 1);
    assert_int_equal(of[LS_PASS_BACKWARD] + of[LS_PASS_INPUT], 1);
    assert_int_equal(of[LS_PASS_INPUT], of[LS_PASS_WEIGHT]);
  }
  json_decref(root);
}

static void check_plan(ls_arena *arena, const ls_pipeline *pipeline, const char *title) {
  ls_pipeline_times *times;
  ls_error error = {0};
  assert_int_equal(ls_pipeline_times_make(arena, pipeline, &ls_pipeline_unit_costs, &times, &error),
                   LS_OK);
  const ls_timeline *timeline = ls_timeline_plan(arena, pipeline, times, NULL, title);
  char *text = NULL;
  size_t bytes = 0;
  FILE *stream = open_memstream(&text, &bytes);
  ls_timeline_svg(timeline, stream);
  fclose(stream);
  int passes = 0;
  for (int i = 0; i < pipeline->stages; i++) passes += pipeline->lists[i].count;
  check_boxes(text, pipeline->stages, passes);
  check_legend(text);
  free(text);
  stream = open_memstream(&text, &bytes);
  ls_timeline_json(timeline, stream);
  fclose(stream);
  check_trace(arena, text, bytes, pipeline);
  free(text);
}

static void test_all_schedules(void **state) {
  (void)state;
  static const int shapes[][2] = {{1, 1}, {4, 8}, {16, 64}};
  for (int k = 0; k < ls_pipeline_kind_count; k++)
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
      ls_arena *arena = ls_arena_create();
      ls_pipeline *pipeline;
      ls_error error = {0};
      if (ls_pipeline_make(arena, &ls_pipeline_kinds[k], shapes[s][0], 0, shapes[s][1], &pipeline,
                           &error) != LS_OK)
        fail_msg("%s", error.text);
      check_plan(arena, pipeline, pipeline->name);
      ls_arena_destroy(&arena);
    }
}

/* A title is a user's file name: any bytes. */
static void test_titles_are_escaped(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_pipeline *pipeline;
  ls_error error = {0};
  assert_int_equal(ls_pipeline_make(arena, &ls_pipeline_kinds[0], 2, 0, 2, &pipeline, &error),
                   LS_OK);
  check_plan(arena, pipeline, "a<b> & \"c\" 'd' \\ \x01 \xff\xc3\xa4</svg>]}");
  assert_string_equal(ls_markup_clean(arena, "\x01\xff\xc3\xa4"), "?\xef\xbf\xbd\xc3\xa4");
  ls_arena_destroy(&arena);
}

static void test_the_checker_sees_what_is_wrong(void **state) {
  (void)state;
  static const char *const wrong[] = {"<a>",
                                      "<a></b>",
                                      "<a/><b/>",
                                      "<a x=1/>",
                                      "<a x='1' x='2'/>",
                                      "<a x='<'/>",
                                      "<a>&nbsp;</a>",
                                      "<a x='1'y='2'/>",
                                      "<a>\x01</a>",
                                      "text",
                                      ""};
  char why[LS_XML_WHY];
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    if (xml_is_well_formed(wrong[i], why)) fail_msg("accepted: %s", wrong[i]);
  assert_true(xml_is_well_formed("<a b='1' c=\"&lt;\"><d/>text &amp; more</a>\n", why));
  assert_true(xml_attribute("<a x='1' width='2.5'/>", "width") == 2.5);
}

static void test_numbers_for_people(void **state) {
  (void)state;
  char text[LS_BYTES_TEXT];
  ls_bytes_show(text, 512);
  assert_string_equal(text, "512 bytes");
  ls_bytes_show(text, 12.5 * 1048576);
  assert_string_equal(text, "12.5 MiB");
  ls_bytes_show(text, 0x1p60);
  assert_string_equal(text, "1048576 TiB");
  static const double cases[][2] = {{0.7, 1}, {1, 1}, {1.2, 2}, {3, 5}, {0.06, 0.1}, {700, 1000}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_true(fabs(ls_round_step(cases[i][0]) - cases[i][1]) < 1e-9 * cases[i][1]);
}

/* The relative luminance of WCAG 2, by its own words. */
static double luminance(double red, double green, double blue) {
  const double of[] = {red, green, blue}, weight[] = {0.2126, 0.7152, 0.0722};
  double sum = 0;
  for (int i = 0; i < 3; i++)
    sum += weight[i] * (of[i] <= 0.03928 ? of[i] / 12.92 : pow((of[i] + 0.055) / 1.055, 2.4));
  return sum;
}

static void test_labels_can_be_read(void **state) {
  (void)state;
  static const struct {
    double hue, saturation, lightness, red, green, blue; /* the same colour */
  } same[] = {{0, 0, 0, 0, 0, 0},
              {0, 0, 1, 1, 1, 1},
              {240, 1, 0.5, 0, 0, 1},
              {120, 1, 0.5, 0, 1, 0},
              {0, 1, 0.5, 1, 0, 0},
              {60, 1, 0.5, 1, 1, 0},
              {240, 0.5, 0.5, .25, .25, .75},
              {210, 0.5, 0.5, .25, .5, .75}};
  for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
    const double light = luminance(same[i].red, same[i].green, same[i].blue);
    assert_int_equal(ls_hsl_is_dark(same[i].hue, same[i].saturation, same[i].lightness),
                     1.05 / (light + 0.05) > (light + 0.05) / 0.05);
  }
  ls_arena *arena = ls_arena_create();
  ls_pipeline *pipeline;
  ls_pipeline_times *times;
  ls_error error = {0};
  assert_int_equal(ls_pipeline_make(arena, &ls_pipeline_kinds[0], 1, 0, 3, &pipeline, &error),
                   LS_OK);
  assert_int_equal(ls_pipeline_times_make(arena, pipeline, &ls_pipeline_unit_costs, &times, &error),
                   LS_OK);
  char *text = NULL;
  size_t bytes = 0;
  FILE *stream = open_memstream(&text, &bytes);
  ls_timeline_svg(ls_timeline_plan(arena, pipeline, times, NULL, "t"), stream);
  fclose(stream);
  assert_non_null(strstr(text, "class='i v'>B1<")); /* white on blue */
  assert_non_null(strstr(text, "class='i'>B2<"));   /* black on green */
  free(text);
  ls_arena_destroy(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_all_schedules), cmocka_unit_test(test_titles_are_escaped),
      cmocka_unit_test(test_the_checker_sees_what_is_wrong),
      cmocka_unit_test(test_labels_can_be_read), cmocka_unit_test(test_numbers_for_people)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
