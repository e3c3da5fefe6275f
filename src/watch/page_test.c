/* The page of `show --html`: the data in it are JSON again, hold every instruction of every stage
 * once, and no text can break out of them. What a browser makes of it: tests/browser_test.sh. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cost/cost.h"
#include "schedule/units.h"
#include "support/small_session.h"
#include "text/json.h"
#include "watch/page.h"

static ls_page_layout open_layout(int devices, const char *const *keys, int key_count) {
  const ls_session *session = open_session(devices, keys, key_count);
  return (ls_page_layout){.name = "a layout",
                          .about = "</script><script>alert(1)</script>",
                          .stages = session->stages[LS_SESSION_STEP]};
}

/* Of 40 layers. */
static ls_page_layout open_deep(int devices, const char *const *keys, int key_count) {
  const char *path = ls_arena_printf(arena, "%s/deep.json", folder);
  const char *layers = strstr(model, "_layers\": 4") + strlen("_layers\": 4");
  const char *deep = ls_arena_printf(arena, "%.*s0%s", (int)(layers - model), model, layers);
  ls_error error = {0};
  assert_int_equal(ls_file_write(path, deep, strlen(deep), &error), LS_OK);
  const char *words[16];
  int count = 0;
  words[count++] = ls_arena_printf(arena, "model=%s", path);
  for (int k = 0; k < key_count; k++) words[count++] = keys[k];
  return open_layout(devices, words, count);
}

static json_t *data_of(const ls_page_layout *layouts, int count) {
  char *text = NULL;
  size_t bytes = 0;
  FILE *stream = open_memstream(&text, &bytes);
  ls_page_write(layouts, count, "<!-- \"title\" \\ \xff & 'x' </title>", stream);
  fclose(stream);
  assert_null(strstr(text, "http://"));
  assert_null(strstr(text, "https://"));
  assert_null(strstr(text, "@DATA@"));
  const char *mark = "<script id=\"data\" type=\"application/json\">";
  const char *start = strstr(text, mark);
  assert_non_null(start);
  start += strlen(mark);
  const size_t length = strcspn(start, "<");
  assert_memory_equal(start + length, "</script>\n<script>\n'use strict'", 30);
  json_t *root;
  ls_error error = {0};
  if (ls_json_parse("page", start, length, 0, &root, &error) != LS_OK) fail_msg("%s", error.text);
  free(text);
  return root;
}

static json_int_t integer_of(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  if (!json_is_integer(value)) fail_msg("no whole number %s", key);
  return json_integer_value(value);
}

/* Instructions of a body that take time: not the end of what is done where it begins. */
static int count_busy(const ls_program *program, const ls_body *body) {
  int busy = body->count;
  for (int i = body->first; i < body->first + body->count; i++) {
    const ls_instruction *each = &program->instructions.items[i];
    busy -= ls_collective_is_of_group(each->collective) && each->phase == LS_END;
    busy -= each->collective == LS_RECEIVE && each->phase == LS_BEGIN;
  }
  return busy;
}

/* What the event of a moment is. */
static const json_t *told(const json_t *made, const json_t *event) {
  assert_int_equal(json_array_size(event), 3);
  const json_t *what = json_array_get(json_object_get(made, "events"),
                                      (size_t)json_integer_value(json_array_get(event, 0)));
  assert_non_null(what);
  return what;
}

/* Every stage does each of its instructions once, and sends what its program says. */
static void check_moments(const ls_page_layout *layout, const json_t *made) {
  const int stages = ls_mesh_stages(&layout->stages[0]->mesh);
  json_int_t *done = LS_NEW_ARRAY(arena, json_int_t, stages);
  double *sent = LS_NEW_ARRAY(arena, double, stages);
  json_int_t *action = LS_NEW_ARRAY(arena, json_int_t, stages);
  const json_t *moment, *event;
  size_t m, e;
  json_array_foreach(json_object_get(made, "moments"), m, moment) {
    json_int_t before = -1;
    json_array_foreach(moment, e, event) {
      const json_t *what = told(made, event);
      const json_int_t at = json_integer_value(json_array_get(event, 2));
      const json_int_t stage = integer_of(what, "stage");
      assert_true(stage > before && stage < stages); /* one event of a stage */
      before = stage;
      assert_true(integer_of(what, "row") <
                  (json_int_t)json_array_size(json_object_get(made, "rows")));
      assert_true(at >= action[stage]);
      action[stage] = at;
      done[stage] += json_object_get(what, "collective") ? 1 : integer_of(what, "ops");
      sent[stage] += json_number_value(json_object_get(what, "bytes"));
    }
  }
  for (int s = 0; s < stages; s++) {
    const ls_program *program = layout->stages[s];
    int all = 0, collectives;
    for (int a = 0; a < program->actions.count; a++)
      all += count_busy(program, &program->bodies.items[program->actions.items[a].body]);
    assert_int_equal(done[s], all);
    assert_true(fabs(sent[s] - ls_program_bytes_sent(program, &collectives)) < 0.5);
    assert_int_equal(json_array_size(json_array_get(json_object_get(made, "memory"), (size_t)s)),
                     program->actions.count);
  }
}

/* What is drawn is a device's memory: at its most, the program's peak, by category. */
static void check_memory(const ls_page_layout *layout, const json_t *made) {
  for (int s = 0; s < ls_mesh_stages(&layout->stages[0]->mesh); s++) {
    const json_t *action, *bytes;
    size_t a, c;
    json_int_t most = 0;
    json_array_foreach(json_array_get(json_object_get(made, "memory"), (size_t)s), a, action) {
      json_int_t sum = 0;
      json_array_foreach(action, c, bytes) sum += json_integer_value(bytes);
      if (sum > most) most = sum;
    }
    int64_t by_category[LS_CATEGORY_COUNT];
    assert_int_equal(most, ls_program_peak(layout->stages[s], by_category));
  }
}

/* A collective of several stages is in one moment on all of them; a send before its receive. */
static void check_order(const json_t *made, int stages) {
  const json_t *moment, *event;
  size_t m, e;
  int sends = 0, receives = 0;
  json_array_foreach(json_object_get(made, "moments"), m, moment) {
    int across = 0;
    json_array_foreach(moment, e, event) {
      const json_t *is = told(made, event);
      const char *what = json_string_value(json_object_get(is, "collective"));
      const char *phase = json_string_value(json_object_get(is, "phase"));
      if (!what || (strcmp(what, "send") == 0 && strcmp(phase, "begin ") != 0)) continue;
      sends += !strcmp(what, "send");
      receives += !strcmp(what, "receive");
      if (strcmp(what, "send") == 0 || strcmp(what, "receive") == 0) continue;
      across += json_object_get(is, "peer") || integer_of(is, "axes") & 1 << LS_AXIS_PP;
    }
    if (stages > 1) assert_true(across != 1);
    assert_true(receives <= sends);
  }
  assert_int_equal(sends, receives);
}

static void test_layouts(void **state) {
  (void)state;
  const char *const shards[] = {"mesh.dp_shard=2", "mesh.tp=2", "zero=3", "train.microbatches=2"};
  const char *const first[] = {"mesh.dp_replicate=2", "mesh.dp_shard=2", "zero=1"};
  const char *const pipeline[] = {"mesh.pp=2", "schedule=zbv", "train.microbatches=4",
                                  "mesh.dp_shard=2", "zero=2"};
  const char *const four[] = {"mesh.pp=4", "train.microbatches=8", "recompute=full"};
  const char *const offload[] = {"mesh.dp_shard=2", "offload.optimizer=host",
                                 "offload.parameters=host", "offload.activations=host"};
  const ls_page_layout layouts[] = {open_layout(1, NULL, 0),  open_layout(4, shards, 4),
                                    open_layout(4, first, 3), open_layout(4, pipeline, 5),
                                    open_layout(4, four, 3),  open_layout(2, offload, 4)};
  enum { COUNT = sizeof layouts / sizeof *layouts };
  json_t *root = data_of(layouts, COUNT);
  const json_t *all = json_object_get(root, "layouts");
  assert_int_equal(json_array_size(all), COUNT);
  for (int i = 0; i < COUNT; i++) {
    const json_t *made = json_array_get(all, (size_t)i);
    check_moments(&layouts[i], made);
    check_memory(&layouts[i], made);
    check_order(made, ls_mesh_stages(&layouts[i].stages[0]->mesh));
    assert_string_equal(json_string_value(json_object_get(made, "about")), layouts[i].about);
  }
  /* embedding, layers, head: cut as the layout says */
  const json_t *row = json_array_get(json_object_get(json_array_get(all, 1), "rows"), 1);
  assert_string_equal(json_string_value(json_object_get(row, "name")), "layers.0");
  assert_true(json_is_true(json_object_get(row, "tensor")));
  assert_true(json_is_true(json_object_get(row, "stored")));
  row = json_array_get(json_object_get(json_array_get(all, 2), "rows"), 1);
  assert_true(json_is_false(json_object_get(row, "tensor")));
  assert_true(json_is_false(json_object_get(row, "stored")));
  assert_true(json_is_true(json_object_get(row, "state")));
  json_decref(root);
}

/* Of a deep pipeline each stage has a device and rows, and memory is drawn in its own scale. */
static void test_every_stage_is_drawn(void **state) {
  (void)state;
  const char *const deep[] = {"mesh.pp=32", "mesh.dp_shard=2", "mesh.tp=2", "train.microbatches=32",
                              "train.batch=64"};
  const char *const wide[] = {"mesh.pp=4", "mesh.dp_shard=4", "mesh.tp=4", "train.batch=16"};
  const ls_page_layout layouts[] = {open_deep(128, deep, 5), open_deep(64, wide, 4)};
  json_t *root = data_of(layouts, 2);
  for (int i = 0; i < 2; i++) {
    const json_t *made = json_array_get(json_object_get(root, "layouts"), (size_t)i);
    const json_t *rows = json_object_get(made, "rows"), *each;
    const int stages = ls_mesh_stages(&layouts[i].stages[0]->mesh);
    size_t at;
    int *devices = LS_NEW_ARRAY(arena, int, stages), *here = LS_NEW_ARRAY(arena, int, stages);
    json_array_foreach(json_object_get(made, "ranks"), at, each)
        devices[json_integer_value(json_array_get(json_object_get(each, "at"), LS_AXIS_PP))]++;
    json_array_foreach(json_object_get(made, "drawn"), at, each) for (int s = 0; s < stages; s++)
        here[s] += json_is_true(json_array_get(
            json_object_get(json_array_get(rows, (size_t)json_integer_value(each)), "here"),
            (size_t)s));
    for (int s = 0; s < stages; s++) {
      assert_true(devices[s] >= 1 && devices[s] == devices[0]);
      assert_true(here[s] >= (stages > 4 ? 1 : 4));
    }
    assert_true(json_array_size(json_object_get(made, "drawn")) <=
                (size_t)(2 * (LS_PAGE_ROWS + stages)));
  }
  json_decref(root);
}

/* Twice as many microbatches add moments of a few numbers, not what happens in them again. */
static void test_microbatches_are_told_once(void **state) {
  (void)state;
  const char *const few[] = {"mesh.pp=4", "mesh.dp_shard=2", "train.microbatches=16",
                             "train.batch=128"};
  const char *const many[] = {"mesh.pp=4", "mesh.dp_shard=2", "train.microbatches=64",
                              "train.batch=128"};
  const ls_page_layout layouts[] = {open_layout(8, few, 4), open_layout(8, many, 4)};
  json_t *root = data_of(layouts, 2);
  size_t events[2];
  for (size_t i = 0; i < 2; i++) {
    const json_t *made = json_array_get(json_object_get(root, "layouts"), i);
    events[i] = json_array_size(json_object_get(made, "events"));
    assert_true(json_array_size(json_object_get(made, "moments")) > (i ? 4 : 1) * events[i]);
  }
  assert_int_equal(events[0], events[1]);
  json_decref(root);
}

static void test_a_refusal_says_why(void **state) {
  (void)state;
  const ls_page_layout refused = {.name = "TP", .refused = "tp=3 & 4 heads: <no>\x01"};
  json_t *root = data_of(&refused, 1);
  const json_t *made = json_array_get(json_object_get(root, "layouts"), 0);
  assert_string_equal(json_string_value(json_object_get(made, "refused")), "tp=3 & 4 heads: <no>?");
  json_decref(root);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_layouts), cmocka_unit_test(test_every_stage_is_drawn),
      cmocka_unit_test(test_microbatches_are_told_once), cmocka_unit_test(test_a_refusal_says_why)};
  return cmocka_run_group_tests(tests, set_up_model, tear_down);
}
