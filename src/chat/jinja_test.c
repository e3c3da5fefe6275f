/* Templates against what transformers and Jinja make of them (tools/reference/
 * make_chat_templates.py), their bounds, and what is said of those that are wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "chat/jinja.h"
#include "text/json.h"

static ls_arena *arena;
static ls_error error;

static int set_up(void **state) {
  (void)state;
  setenv("TZ", "UTC", 1);
  arena = ls_arena_create();
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  ls_arena_destroy(&arena);
  return 0;
}

/* 2024-07-26 12:34:56, which the vectors were made at. */
static const ls_jinja_options at_noon = {.now = 1721997296};

static ls_status render(const char *name, const char *text, size_t bytes, const json_t *variables,
                        const ls_jinja_options *options, ls_jinja_text *rendered) {
  const ls_jinja *made;
  LS_TRY(ls_jinja_read(arena, name, text, bytes, &made, &error));
  return ls_jinja_render(arena, made, variables, options, rendered, &error);
}

static bool same_spans(const ls_jinja_text *rendered, const json_t *spans) {
  if ((size_t)rendered->span_count != json_array_size(spans)) return false;
  for (int s = 0; s < rendered->span_count; s++) {
    const json_t *pair = json_array_get(spans, (size_t)s);
    if (json_integer_value(json_array_get(pair, 0)) != (json_int_t)rendered->spans[s].begin ||
        json_integer_value(json_array_get(pair, 1)) != (json_int_t)rendered->spans[s].end)
      return false;
  }
  return true;
}

/* Whether a vector holds; where not, says what is different. */
static bool holds(const char *name, const json_t *template, const json_t *vector) {
  const json_t *text = json_object_get(vector, "text");
  const json_t *message = json_object_get(vector, "error");
  json_t *variables = json_deep_copy(json_object_get(vector, "variables"));
  static const char *const usual[] = {"messages", "tools", "documents"};
  for (int u = 0; u < 3; u++)
    if (!json_object_get(variables, usual[u]))
      json_object_set_new(variables, usual[u], json_null());
  if (!json_object_get(variables, "add_generation_prompt"))
    json_object_set_new(variables, "add_generation_prompt", json_false());
  ls_jinja_text rendered = {0};
  const ls_status status = render(name, json_string_value(template), json_string_length(template),
                                  variables, &at_noon, &rendered);
  bool same;
  if (message) {
    same = status == LS_INPUT && strstr(error.text, json_string_value(message)) != NULL;
  } else {
    same = status == LS_OK && rendered.bytes == json_string_length(text) &&
           memcmp(rendered.text, json_string_value(text), rendered.bytes) == 0 &&
           same_spans(&rendered, json_object_get(vector, "spans"));
  }
  if (!same)
    print_message("%.300s\n  gives    %s\n  expected %s%s\n", name,
                  status == LS_OK ? rendered.text : error.text, message ? "the error " : "",
                  json_string_value(message ? message : text));
  json_decref(variables);
  return same;
}

static void templates_give_what_transformers_gives(void **state) {
  (void)state;
  json_t *root;
  size_t v;
  int passed = 0, total = 0;
  const json_t *vector;
  const char *path = getenv("LS_CHAT_VECTORS");
  if (ls_json_read(path ? path : "tests/data/chat_templates.json", 0, &root, &error) != LS_OK)
    fail_msg("%s", error.text);
  const json_t *families = json_object_get(root, "families");
  json_array_foreach(json_object_get(root, "vectors"), v, vector) {
    const char *family = json_string_value(json_object_get(vector, "family"));
    const json_t *own = json_object_get(vector, "template");
    total++;
    passed += holds(family ? family : json_string_value(own),
                    family ? json_object_get(families, family) : own, vector);
  }
  print_message("%zu families: %d of %d\n", json_object_size(families), passed, total);
  assert_int_equal(passed, total);
  assert_true(path || (json_object_size(families) >= 20 && total >= 300));
  json_decref(root);
}

static ls_status run(const char *text, const ls_jinja_options *options) {
  json_t *none = json_object();
  ls_jinja_text rendered;
  const ls_status status = render("t.jinja", text, strlen(text), none, options, &rendered);
  json_decref(none);
  return status;
}

/* What is picked by an attribute lies where its value goes; texts as jinja2 renders them. */
static void attributes_are_places_of_what_is_picked(void **state) {
  (void)state;
  static const char *const cases[][2] = {
      {"{{ ['ab', 'cd'] | map(attribute=0) | join }}", "ac"},
      {"{{ ['ab', ''] | rejectattr(0) | list | length }}", "1"},
      {"{{ [['ab'], ['cd']] | map(attribute='0.1') | join }}", "bd"},
  };
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    json_t *none = json_object();
    ls_jinja_text rendered = {0};
    const ls_status status =
        render("t.jinja", cases[c][0], strlen(cases[c][0]), none, &at_noon, &rendered);
    json_decref(none);
    if (status != LS_OK) fail_msg("%s: %s", cases[c][0], error.text);
    assert_int_equal(rendered.bytes, strlen(cases[c][1]));
    assert_memory_equal(rendered.text, cases[c][1], rendered.bytes);
  }
}

static void templates_that_do_not_end_are_refused(void **state) {
  (void)state;
  static const char *const endless[][2] = {
      {"\n{% for a in range(999) %}{% for b in range(9999) %}{{ b }}{% endfor %}{% endfor %}",
       "t.jinja:2: the template"},
      {"{% macro f() %}{{ f() }}{% endmacro %}\n\n{{ f() }}", "calls itself too deep"},
      {"{% set n = namespace(s='xxxxxxxxxxxxxxxx') %}{% for a in range(99) %}{% set n.s = n.s + "
       "n.s "
       "%}{% endfor %}",
       "t.jinja:1: the template makes too much text; expected less"},
      {"{{ 'x' * 99999999999 }}", "expected"},
      {"{{ range(9223372036854775807) }}", "expected"},
      {"{% set n = namespace(a=[1]) %}{% for a in range(999) %}{% set n.a = [n.a] %}{% endfor %}",
       "lists are too deep"},
      {"{% set n = namespace(a=[], b=[]) %}{% for i in range(99) %}{% set n.a = [n.a, n.a] %}{% "
       "set "
       "n.b = [n.b, n.b] %}{% endfor %}{{ n.a == n.b }}",
       "does not end"},
      {"{{ 10 ** 30 }}", "beyond 64 bits"},
      {"{{ 'ﬁ' | upper }}", "U+FB01 in another case is not supported"},
      {"{{ '%s' % 3 }}", "expected ~ or + instead"},
  };
  for (size_t e = 0; e < sizeof endless / sizeof *endless; e++) {
    assert_int_equal(run(endless[e][0], NULL), LS_INPUT);
    if (!strstr(error.text, endless[e][1])) fail_msg("%s: %s", endless[e][0], error.text);
  }
  assert_int_equal(run("{{ [1, 2, 3] }}", &(ls_jinja_options){.steps = 3}), LS_INPUT);
  assert_string_equal(error.text, "t.jinja:1: the template does not end; expected fewer steps");
  assert_int_equal(run("{{ [1, 2, 3] }}", &(ls_jinja_options){.steps = 30}), LS_OK);
  assert_int_equal(run("0123456789", &(ls_jinja_options){.bytes = 9}), LS_INPUT);
}

static void what_is_wrong_is_said_with_its_line(void **state) {
  (void)state;
  static const char *const wrong[][2] = {
      {"\n{% include 'x' %}", "t.jinja:2: found \"include\"; expected if, for, set, macro"},
      {"{{ a | shout }}", "t.jinja:1: found \"shout\"; expected a filter that is supported: trim"},
      {"{{ a is round }}", "t.jinja:1: found \"round\"; expected a test that is supported"},
      {"{% if a %}\n\n",
       "t.jinja:2: found the end of the template; expected a tag of elif else endif"},
      {"a\nb {{ (1 }}", "t.jinja:2: found \"}}\"; expected a bracket that was opened"},
      {"{{ 'abc }}", "expected a quote that ends the string"},
      {"{% for a in b recursive %}{% endfor %}", "recursive is not supported"},
      {"\n\n{{ messages[0].content }}",
       "t.jinja:3: 'messages' is undefined; expected a value whose"},
      {"{{ raise_exception('Only users') }}",
       "t.jinja:1: the template refuses the chat: Only users"},
      {"{{ 1 + 'a' }}", "t.jinja:1: found a number + a text; expected two numbers"},
      {"{{ [].append(1) }}", "t.jinja:1: 'append' is undefined; expected a macro"},
      {"\xff", "t.jinja: byte 0 is no UTF-8"},
  };
  for (size_t w = 0; w < sizeof wrong / sizeof *wrong; w++) {
    assert_int_equal(run(wrong[w][0], NULL), LS_INPUT);
    if (!strstr(error.text, wrong[w][1])) fail_msg("%s: %s", wrong[w][0], error.text);
  }
  char deep[4096] = "{{ ";
  memset(deep + 3, '(', 3000);
  assert_int_equal(run(deep, NULL), LS_INPUT);
  char *large = ls_arena_alloc(arena, LS_JINJA_SOURCE_BYTES + 2);
  memset(large, 'x', LS_JINJA_SOURCE_BYTES + 1);
  assert_int_equal(run(large, NULL), LS_INPUT);
}

static void a_template_says_what_it_asks_for(void **state) {
  (void)state;
  const char *text = "{% for m in messages %}{{ m.tools }}{% endfor %}";
  const ls_jinja *made;
  assert_int_equal(ls_jinja_read(arena, "t", text, strlen(text), &made, &error), LS_OK);
  assert_true(ls_jinja_asks(made, "messages"));
  assert_false(ls_jinja_asks(made, "tools"));
  assert_false(ls_jinja_marks(made));
  text = "{% generation %}{% endgeneration %}";
  assert_int_equal(ls_jinja_read(arena, "t", text, strlen(text), &made, &error), LS_OK);
  assert_true(ls_jinja_marks(made));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(templates_give_what_transformers_gives),
      cmocka_unit_test(attributes_are_places_of_what_is_picked),
      cmocka_unit_test(templates_that_do_not_end_are_refused),
      cmocka_unit_test(what_is_wrong_is_said_with_its_line),
      cmocka_unit_test(a_template_says_what_it_asks_for),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
