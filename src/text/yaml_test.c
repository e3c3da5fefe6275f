/* The run file's YAML: what is read, what is refused and in which words, scalars and their types.
 */
#include "text/yaml.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"

static ls_arena *arena;

static int set_up(void **state) {
  (void)state;
  arena = ls_arena_create();
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  ls_arena_destroy(&arena);
  return 0;
}

static ls_yaml *parsed(const char *text) {
  ls_yaml *root;
  ls_error error = {0};
  const ls_status status = ls_yaml_parse(arena, "run.yaml", text, strlen(text), &root, &error);
  if (status != LS_OK) print_message("%s\n", error.text);
  assert_int_equal(status, LS_OK);
  return root;
}

static void assert_refused(const char *text, const char *expected) {
  ls_yaml *root;
  ls_error error = {0};
  assert_int_equal(ls_yaml_parse(arena, "run.yaml", text, strlen(text), &root, &error), LS_INPUT);
  assert_string_equal(error.text, expected);
}

static void tree_has_places(void **state) {
  (void)state;
  const ls_yaml *root = parsed(
      "# a run\n"
      "model: llama-8m\n"
      "data: {text: [a.txt, {path: \"b*.txt\", weight: 2}], seq_len: 512}\n"
      "train:\n"
      "  lr:\n"
      "    3e-4\n"
      "  note: >-\n"
      "    two\n"
      "    words\n");
  assert_int_equal(root->kind, LS_YAML_MAPPING);
  assert_int_equal(root->items.count, 3);
  assert_string_equal(root->path, "");
  const ls_yaml *model = ls_yaml_get(root, "model");
  assert_string_equal(model->text, "llama-8m");
  assert_true(model->line == 2 && model->column == 8 && model->key_line == 2 && model->plain);
  const ls_yaml *text = ls_yaml_get(ls_yaml_get(root, "data"), "text");
  assert_int_equal(text->kind, LS_YAML_SEQUENCE);
  assert_int_equal(text->items.count, 2);
  assert_string_equal(text->items.items[0]->path, "data.text[0]");
  const ls_yaml *path = ls_yaml_get(text->items.items[1], "path");
  assert_string_equal(path->path, "data.text[1].path");
  assert_string_equal(path->text, "b*.txt");
  assert_string_equal(path->key, "path");
  assert_false(path->plain);
  const ls_yaml *lr = ls_yaml_get(ls_yaml_get(root, "train"), "lr");
  assert_true(lr->key_line == 5 && lr->line == 6);
  const ls_yaml *note = ls_yaml_get(ls_yaml_get(root, "train"), "note");
  assert_string_equal(note->text, "two words");
  assert_false(note->plain);
  assert_null(ls_yaml_get(root, "none"));
  assert_null(ls_yaml_get(model, "none"));
  assert_null(ls_yaml_get(NULL, "none"));
}

static void empty_files_are_empty_mappings(void **state) {
  (void)state;
  static const char *const texts[] = {"",
                                      "\n\n",
                                      "# only a comment\n",
                                      "---\n",
                                      "---\n...\n",
                                      "\xEF\xBB\xBF",
                                      "null\n",
                                      "%YAML 1.2\n---\n"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    const ls_yaml *root = parsed(texts[i]);
    assert_int_equal(root->kind, LS_YAML_MAPPING);
    assert_int_equal(root->items.count, 0);
  }
  assert_string_equal(ls_yaml_get(parsed("\xEF\xBB\xBF"
                                         "a: b"),
                                  "a")
                          ->text,
                      "b");
}

static void what_yaml_has_and_run_files_have_not(void **state) {
  (void)state;
  assert_refused("train: {lr: 1}\nmodel: x\ntrain: {lr: 2}\n",
                 "run.yaml:3: found the key \"train\" a second time (line 1 has it already); "
                 "expected each key once");
  assert_refused("a:\n  lr: 1\n  b: 2\n  \"lr\": 3\n",
                 "run.yaml:4: found the key \"lr\" a second time (line 2 has it already); expected "
                 "each key once");
  assert_refused(
      "data:\n  text: *.txt\n",
      "run.yaml:2: found *.txt, which is an alias to YAML; expected a plain value: quote "
      "it (\"*.txt\") if it is text");
  assert_refused("data: {text: [**/*.txt, b]}\n",
                 "run.yaml:1: found **/*.txt, which is an alias to YAML; expected a plain value: "
                 "quote it (\"**/*.txt\") if it is text");
  assert_refused(
      "a: &x 1\nb: *x\n",
      "run.yaml:1: found &x, which is an anchor to YAML; expected a plain value: quote it "
      "(\"&x\") if it is text");
  assert_refused(
      "a: &x [1]\n",
      "run.yaml:1: found &x, which is an anchor to YAML; expected a plain value: quote it "
      "(\"&x\") if it is text");
  assert_refused(
      "a: &x {b: 1}\n",
      "run.yaml:1: found &x, which is an anchor to YAML; expected a plain value: quote it "
      "(\"&x\") if it is text");
  assert_refused(
      "b: *x\n",
      "run.yaml:1: found *x, which is an alias to YAML; expected a plain value: quote it "
      "(\"*x\") if it is text");
  assert_refused(
      "\xC3\xA9: 1\na: !!int 3\n",
      "run.yaml:2: found !!int, which is a tag to YAML; expected a plain value: quote it "
      "(\"!!int\") if it is text");
  assert_refused(
      "a: !mine [1]\n",
      "run.yaml:1: found !mine, which is a tag to YAML; expected a plain value: quote it "
      "(\"!mine\") if it is text");
  assert_refused("a: ! 3\n",
                 "run.yaml:1: found !, which is a tag to YAML; expected a plain value: quote it "
                 "(\"!\") if it is text");
  assert_refused("a: @b\n",
                 "run.yaml:1: found @b, which is a reserved character to YAML; expected a plain "
                 "value: quote it (\"@b\") if it is text");
  assert_refused("a: 1\n---\na: 2\n",
                 "run.yaml:2: found a second document; expected one document in a file");
  assert_refused("%TAG ! x\n---\na: 1\n",
                 "run.yaml:1: found a %TAG directive; expected a file without tags");
  assert_refused("a:\n\tb: 1\n", "run.yaml:2: found a tab; expected spaces for indentation");
  assert_refused("[a, b]: 1\n", "run.yaml:1: found a list as a key; expected a word");
  assert_refused("? {a: 1}\n: 2\n", "run.yaml:1: found a mapping as a key; expected a word");
  assert_refused("a: \"b\\0c\"\n",
                 "run.yaml:1: found a NUL character in text; expected text without it");
}

static void broken_yaml_names_its_line(void **state) {
  (void)state;
  static const char *const texts[] = {
      "a: 1\nb: [1, 2\n", "a: 1\n b: 2\n", "a: 1\nb: \"x\n", "a: 1\nb: {c\n",
      "a: b: c\n",        "a: 1\nb\n",     "a: 'x\n",        "%YAML 3.0\n---\na: 1\n"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    ls_yaml *root;
    ls_error error = {0};
    assert_int_equal(ls_yaml_parse(arena, "run.yaml", texts[i], strlen(texts[i]), &root, &error),
                     LS_INPUT);
    int line = 0;
    assert_int_equal(sscanf(error.text, "run.yaml:%d: found ", &line), 1);
    assert_true(line >= 1 && line <= 4);
    assert_non_null(strstr(error.text, "; expected "));
    assert_null(strchr(error.text, '\n'));
  }
  ls_yaml *root;
  ls_error error = {0};
  assert_int_equal(ls_yaml_parse(arena, "run.yaml", "a: \xff\n", 5, &root, &error), LS_INPUT);
  assert_string_equal(error.text,
                      "run.yaml: found invalid leading UTF-8 octet at byte 3; expected "
                      "YAML in UTF-8");
}

static void limits_are_named(void **state) {
  (void)state;
  char deep[256];
  memset(deep, '[', 70);
  memset(deep + 70, ']', 70);
  deep[140] = '\0';
  assert_refused(deep, "run.yaml:1: found nesting deeper than 64; expected a run file");
  char *large = ls_arena_alloc(arena, (1 << 20) + 2);
  memset(large, '\n', (1 << 20) + 1);
  assert_refused(large, "run.yaml: found 1048577 bytes; expected a run file of at most 1 MiB");
  large[1 << 20] = '\0';
  assert_int_equal(parsed(large)->items.count, 0);
  char *keys = ls_arena_alloc(arena, 32 * 1024), *at = keys;
  for (int i = 0; i <= 1000; i++) at += snprintf(at, 32, "k%d: 1\n", i);
  assert_refused(keys, "run.yaml:1001: found more than 1,000 keys; expected a run file");
  char *values = ls_arena_alloc(arena, 256 * 1024);
  memset(values, '[', 1);
  for (int i = 0; i < 100000; i++) memcpy(values + 1 + 2 * i, "1,", 2);
  memcpy(values + 200001, "]", 2);
  assert_refused(values, "run.yaml:1: found more than 100,000 values; expected a run file");
}

static const ls_yaml *value_of(const char *text) {
  char line[128];
  snprintf(line, sizeof line, "train:\n  lr: %s\n", text);
  return ls_yaml_get(ls_yaml_get(parsed(line), "train"), "lr");
}

static void integers_follow_the_core_schema(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int64_t value;
  } good[] = {{"12", 12},
              {"-3", -3},
              {"+4", 4},
              {"012", 12},
              {"0x1F", 31},
              {"0o17", 15},
              {"0", 0},
              {"9223372036854775807", INT64_MAX},
              {"-9223372036854775808", INT64_MIN}};
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    int64_t value;
    ls_error error = {0};
    assert_int_equal(ls_yaml_int(value_of(good[i].text), &value, &error), LS_OK);
    assert_true(value == good[i].value);
  }
  static const char *const bad[] = {"1_000",
                                    "1,000",
                                    "\"12\"",
                                    "'12'",
                                    "1e3",
                                    "1.0",
                                    "0x",
                                    "0o8",
                                    "-0x1",
                                    "12x",
                                    "auto",
                                    "true",
                                    "",
                                    "~",
                                    "[1]",
                                    "{a: 1}",
                                    "0b1",
                                    "1 2",
                                    "9223372036854775808"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    int64_t value;
    ls_error error = {0};
    assert_int_equal(ls_yaml_int(value_of(bad[i]), &value, &error), LS_INPUT);
    assert_int_equal(strncmp(error.text, "run.yaml:2: train.lr: found ", 28), 0);
    assert_non_null(strstr(error.text, "; expected a whole number"));
  }
}

static void numbers_follow_the_core_schema(void **state) {
  (void)state;
  static const struct {
    const char *text;
    double value;
  } good[] = {{"3e-4", 3e-4},
              {".5", 0.5},
              {"2.", 2},
              {"-1.5E+2", -150},
              {"12", 12},
              {"0x10", 16},
              {"+.5e1", 5},
              {"6.02e23", 6.02e23},
              {"1e-400", 0},
              {"0.1", 0.1},
              {"18446744073709551616", 18446744073709551616.0}};
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    double value;
    ls_error error = {0};
    assert_int_equal(ls_yaml_number(value_of(good[i].text), &value, &error), LS_OK);
    assert_true(value == good[i].value);
  }
  static const char *const bad[] = {".inf",    "-.INF", ".nan", "nan",   "inf", "1_000", "1e", ".",
                                    "\"1.5\"", "1.5x",  "e5",   "1e999", "1,5", "0x1p3", ""};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    double value;
    ls_error error = {0};
    assert_int_equal(ls_yaml_number(value_of(bad[i]), &value, &error), LS_INPUT);
    assert_non_null(strstr(error.text, "; expected a number"));
  }
}

static void bools_strings_and_nulls(void **state) {
  (void)state;
  bool truth;
  const char *text;
  ls_error error = {0};
  assert_int_equal(ls_yaml_bool(value_of("true"), &truth, &error), LS_OK);
  assert_true(truth);
  assert_int_equal(ls_yaml_bool(value_of("False"), &truth, &error), LS_OK);
  assert_false(truth);
  static const char *const no_bool[] = {"yes", "no", "on", "off", "1", "0", "\"true\"", "tRUE", ""};
  for (size_t i = 0; i < sizeof no_bool / sizeof *no_bool; i++) {
    assert_int_equal(ls_yaml_bool(value_of(no_bool[i]), &truth, &error), LS_INPUT);
  }
  assert_int_equal(ls_yaml_bool(value_of("yes"), &truth, &error), LS_INPUT);
  assert_string_equal(error.text, "run.yaml:2: train.lr: found yes; expected true or false");
  static const char *const strings[] = {"off", "1f1b", "12", "auto", "a b", "true", "data/*.txt"};
  for (size_t i = 0; i < sizeof strings / sizeof *strings; i++) {
    assert_int_equal(ls_yaml_string(value_of(strings[i]), &text, &error), LS_OK);
    assert_string_equal(text, strings[i]);
  }
  assert_int_equal(ls_yaml_string(value_of("\"\""), &text, &error), LS_OK);
  assert_string_equal(text, "");
  assert_int_equal(ls_yaml_string(value_of("'null'"), &text, &error), LS_OK);
  static const char *const nulls[] = {"", "~", "null", "Null", "NULL"};
  for (size_t i = 0; i < sizeof nulls / sizeof *nulls; i++) {
    assert_true(ls_yaml_is_null(value_of(nulls[i])));
    assert_int_equal(ls_yaml_string(value_of(nulls[i]), &text, &error), LS_INPUT);
  }
  assert_false(ls_yaml_is_null(value_of("'~'")));
  assert_false(ls_yaml_is_null(value_of("[]")));
}

static void errors_say_what_was_found(void **state) {
  (void)state;
  double value;
  ls_error error = {0};
  assert_int_equal(ls_yaml_number(value_of("\"3e-4\""), &value, &error), LS_INPUT);
  assert_string_equal(error.text,
                      "run.yaml:2: train.lr: found the text \"3e-4\"; expected a number");
  assert_int_equal(ls_yaml_number(value_of("[1]"), &value, &error), LS_INPUT);
  assert_string_equal(error.text, "run.yaml:2: train.lr: found a list; expected a number");
  assert_int_equal(ls_yaml_number(value_of(""), &value, &error), LS_INPUT);
  assert_string_equal(error.text, "run.yaml:2: train.lr: found nothing; expected a number");
  assert_int_equal(ls_yaml_fail(parsed("12"), "a mapping", &error), LS_INPUT);
  assert_string_equal(error.text, "run.yaml:1: found 12; expected a mapping");
}

static void values_of_the_command_line(void **state) {
  (void)state;
  ls_yaml *value;
  ls_error error = {0};
  double number;
  assert_int_equal(ls_yaml_value(arena, "data.text", "*.txt", &value, &error), LS_OK);
  assert_true(value->plain);
  assert_string_equal(value->text, "*.txt");
  assert_int_equal(ls_yaml_value(arena, "data.text", "", &value, &error), LS_OK);
  assert_true(ls_yaml_is_null(value));
  assert_int_equal(ls_yaml_value(arena, "data.text", "[a.txt, \"*.txt\"]", &value, &error), LS_OK);
  assert_int_equal(value->items.count, 2);
  assert_string_equal(value->items.items[1]->path, "data.text[1]");
  assert_int_equal(ls_yaml_number(value->items.items[0], &number, &error), LS_INPUT);
  assert_string_equal(error.text, "command line: data.text[0]: found a.txt; expected a number");
  assert_int_equal(ls_yaml_value(arena, "out", "\"a b\"", &value, &error), LS_OK);
  assert_string_equal(value->text, "a b");
  assert_string_equal(value->path, "out");
  assert_int_equal(ls_yaml_value(arena, "data.text", "[*.txt]", &value, &error), LS_INPUT);
  assert_string_equal(error.text,
                      "command line: data.text: found *.txt, which is an alias to YAML; "
                      "expected a plain value: quote it (\"*.txt\") if it is text");
  assert_int_equal(ls_yaml_value(arena, "data.text", "[a", &value, &error), LS_INPUT);
  assert_int_equal(ls_yaml_value(arena, "train.lr", "3e-4", &value, &error), LS_OK);
  assert_int_equal(ls_yaml_number(value, &number, &error), LS_OK);
  assert_true(number == 3e-4);
  assert_int_equal(ls_yaml_value(arena, "train.lr", "fast", &value, &error), LS_OK);
  assert_int_equal(ls_yaml_number(value, &number, &error), LS_INPUT);
  assert_string_equal(error.text, "command line: train.lr: found fast; expected a number");
}

static void fault_files_are_refused(void **state) {
  (void)state;
  static const char *const files[][2] = {
      {"tests/data/bad/duplicate-key.yaml", ":3: found the key \"lr\" a second time"},
      {"tests/data/bad/alias.yaml", ":3: found *.txt, which is an alias"},
      {"tests/data/bad/tag.yaml", ":2: found !!float, which is a tag"},
      {"tests/data/bad/two-documents.yaml", ":2: found a second document"},
      {"tests/data/bad/tab.yaml", ":2: found a tab"},
      {"tests/data/bad/unclosed.yaml", ": found no YAML"},
      {"tests/data/bad/no-such-file.yaml", "no-such-file.yaml"},
  };
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    ls_yaml *root;
    ls_error error = {0};
    assert_int_equal(ls_yaml_read(arena, files[i][0], &root, &error), LS_INPUT);
    assert_non_null(strstr(error.text, files[i][0]));
    if (!strstr(error.text, files[i][1])) print_message("%s\n", error.text);
    assert_non_null(strstr(error.text, files[i][1]));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tree_has_places),
      cmocka_unit_test(empty_files_are_empty_mappings),
      cmocka_unit_test(what_yaml_has_and_run_files_have_not),
      cmocka_unit_test(broken_yaml_names_its_line),
      cmocka_unit_test(limits_are_named),
      cmocka_unit_test(integers_follow_the_core_schema),
      cmocka_unit_test(numbers_follow_the_core_schema),
      cmocka_unit_test(bools_strings_and_nulls),
      cmocka_unit_test(errors_say_what_was_found),
      cmocka_unit_test(values_of_the_command_line),
      cmocka_unit_test(fault_files_are_refused),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
