/* JSON: the public JSONTestSuite where it is, fault files of our own, getters and their errors. */
#include "text/json.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"

static ls_status parse(const char *text, unsigned flags, json_t **root, ls_error *error) {
  return ls_json_parse("file.json", text, strlen(text), flags, root, error);
}

static void assert_refused(const char *text, unsigned flags, const char *expected) {
  json_t *root;
  ls_error error = {0};
  assert_int_equal(parse(text, flags, &root, &error), LS_INPUT);
  assert_null(root);
  assert_string_equal(error.text, expected);
}

static void errors_name_place_and_expectation(void **state) {
  (void)state;
  assert_refused("", 0, "file.json:1:1: found the end of the file; expected a value");
  assert_refused("{\"a\": 1,\n \"b\" 2}", 0, "file.json:2:6: found '2'; expected ':'");
  assert_refused("{\"a\": 1\n", 0, "file.json:2:1: found the end of the file; expected ',' or '}'");
  assert_refused("[1, 2,]", 0, "file.json:1:7: found ']'; expected a value");
  assert_refused("[1 2]", 0, "file.json:1:4: found '2'; expected ',' or ']'");
  assert_refused("{\"a\": 1,}", 0, "file.json:1:9: found '}'; expected a key in double quotes");
  assert_refused(
      "[\"abc", 0,
      "file.json:1:2: found the end of the file; expected the double quote that ends the "
      "string");
  assert_refused("[\xc3\xa9t\xc3\xa9]", 0, "file.json:1:2: found '\xc3\xa9'; expected a value");
  assert_refused("{} {}", 0, "file.json:1:4: found '{'; expected the end of the file");
  assert_refused("[NaN]", 0,
                 "file.json:1:2: found 'NaN'; expected a value (JSON has no NaN and no infinity)");
  assert_refused("{\"a\": 1, \"a\": 2}", 0,
                 "file.json:1:10: found the key \"a\" twice in one object; expected it once");
  assert_refused("[1e999]", 0,
                 "file.json:1:2: found a number out of range (1e999); expected one that fits 64 "
                 "bits");
  assert_refused("[99999999999999999999]", LS_JSON_EXACT,
                 "file.json:1:2: found a number out of range (99999999999999999999); expected one "
                 "that fits 64 bits");
  assert_refused("{\"a\\u0000\": 1}", 0,
                 "file.json:1:2: found \\u0000 in a key; expected a key without it");
  assert_refused(
      "version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 1\n", 0,
      "file.json: found a git-lfs pointer; expected JSON: fetch the file itself (git lfs "
      "pull)");
}

/* Of a file that is read line by line. */
static void errors_of_a_line_name_it(void **state) {
  (void)state;
  static const char *const cases[][2] = {
      {"{\"a\": 1", "lines.jsonl:7:7: found the end of the line; expected ',' or '}'"},
      {"{} {}", "lines.jsonl:7:4: found '{'; expected the end of the line"},
      {"{\"a\":\n 1 2}", "lines.jsonl:8:4: found '2'; expected ',' or '}'"},
  };
  json_t *root;
  ls_error error = {0};
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    assert_int_equal(
        ls_json_parse_part("lines.jsonl", 7, cases[c][0], strlen(cases[c][0]), 0, &root, &error),
        LS_INPUT);
    assert_string_equal(error.text, cases[c][1]);
  }
  assert_int_equal(ls_json_parse_part("lines.jsonl", 7, "{\0}", 3, 0, &root, &error), LS_INPUT);
  assert_string_equal(error.text, "lines.jsonl:7:2: found a NUL byte; expected JSON text");
}

static void bad_bytes_stay_on_one_line(void **state) {
  (void)state;
  static const char *const texts[] = {"[\"\xff\"]", "[\"a\nb\"]", "[\x01]",
                                      "\xff",       "[\"\\q\"]",  "[\"\\ud800\"]"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    json_t *root;
    ls_error error = {0};
    assert_int_equal(parse(texts[i], 0, &root, &error), LS_INPUT);
    assert_non_null(strstr(error.text, "file.json:1:"));
    assert_non_null(strstr(error.text, "found "));
    assert_non_null(strstr(error.text, "; expected "));
    for (const char *at = error.text; *at; at++) assert_true((unsigned char)*at >= 0x20);
  }
}

static void depth_is_limited(void **state) {
  (void)state;
  enum { DEPTH = 3000 };
  char text[2 * DEPTH + 1];
  memset(text, '[', DEPTH);
  memset(text + DEPTH, ']', DEPTH);
  text[2 * DEPTH] = '\0';
  json_t *root;
  ls_error error = {0};
  assert_int_equal(parse(text, 0, &root, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "nesting deeper than 2048"));
  text[DEPTH + 2000] = '\0';
  assert_int_equal(parse(text + DEPTH - 2000, 0, &root, &error), LS_OK);
  json_decref(root);
}

static void nul_is_no_end(void **state) {
  (void)state;
  json_t *root;
  ls_error error = {0};
  assert_int_equal(ls_json_parse("f", "{}\n\0{", 5, 0, &root, &error), LS_INPUT);
  assert_string_equal(error.text, "f:2:1: found a NUL byte; expected JSON text");
}

static void lenient_where_asked(void **state) {
  (void)state;
  json_t *root;
  ls_error error = {0};
  ls_json_object object;
  int64_t value;
  assert_int_equal(parse("{\"a\": 1, \"a\": 2}", LS_JSON_LAST_KEY, &root, &error), LS_OK);
  assert_int_equal(ls_json_root("file.json", root, &object, &error), LS_OK);
  assert_int_equal(ls_json_int(&object, "a", &value, &error), LS_OK);
  assert_int_equal(value, 2);
  json_decref(root);

  double number;
  const char *text = "\xEF\xBB\xBF{\"max\": 1000000000000000019884624838656, \"n\": 7}";
  assert_int_equal(parse(text, 0, &root, &error), LS_OK);
  assert_int_equal(ls_json_root("file.json", root, &object, &error), LS_OK);
  assert_int_equal(ls_json_number(&object, "max", &number, &error), LS_OK);
  assert_true(number == 1e30);
  assert_int_equal(ls_json_int(&object, "n", &value, &error), LS_OK);
  assert_int_equal(value, 7);
  assert_int_equal(ls_json_int(&object, "max", &value, &error), LS_INPUT);
  json_decref(root);
}

static const char sample[] =
    "{\"n\": 12, \"f\": 12.0, \"x\": 1e-05, \"s\": \"12\", \"t\": true, \"no\": false, \"z\": "
    "null, \"neg\": -4,"
    " \"big\": 9223372036854775807, \"o\": {\"in\": 3}, \"a\": [1, 2, 3], \"m\": [1, \"x\"],"
    " \"r\": [0.5, 2], \"names\": [\"p\", \"q\"], \"nul\": \"a\\u0000b\"}";

typedef struct fixture {
  json_t *root;
  ls_json_object object;
  ls_arena *arena;
} fixture;

static int set_up(void **state) {
  fixture *made = calloc(1, sizeof *made);
  *state = made;
  made->arena = ls_arena_create();
  return parse(sample, 0, &made->root, NULL) != LS_OK ||
         ls_json_root("config.json", made->root, &made->object, NULL) != LS_OK;
}

static int tear_down(void **state) {
  fixture *made = *state;
  json_decref(made->root);
  ls_arena_destroy(&made->arena);
  free(made);
  return 0;
}

static void getters_give_values(void **state) {
  fixture *f = *state;
  const ls_json_object *object = &f->object;
  ls_error error = {0};
  int64_t whole;
  double number;
  bool truth;
  const char *text;
  assert_int_equal(ls_json_int(object, "n", &whole, &error), LS_OK);
  assert_int_equal(whole, 12);
  assert_int_equal(ls_json_count(object, "f", &whole, &error), LS_OK);
  assert_int_equal(whole, 12);
  assert_int_equal(ls_json_int(object, "big", &whole, &error), LS_OK);
  assert_true(whole == INT64_MAX);
  assert_int_equal(ls_json_number(object, "x", &number, &error), LS_OK);
  assert_true(number == 1e-05);
  assert_int_equal(ls_json_number(object, "n", &number, &error), LS_OK);
  assert_true(number == 12);
  assert_int_equal(ls_json_bool(object, "t", &truth, &error), LS_OK);
  assert_true(truth);
  assert_int_equal(ls_json_string(object, "s", &text, &error), LS_OK);
  assert_string_equal(text, "12");
  assert_true(ls_json_has(object, "n"));
  assert_false(ls_json_has(object, "z"));
  assert_false(ls_json_has(object, "none"));
}

static void missing_and_null_take_the_fallback(void **state) {
  fixture *f = *state;
  const ls_json_object *object = &f->object;
  static const char *const keys[] = {"none", "z"};
  for (int i = 0; i < 2; i++) {
    int64_t whole = 0, count = 0;
    double number = 0;
    bool truth = false;
    const char *text = NULL;
    ls_json_object child;
    assert_int_equal(ls_json_int_or(object, keys[i], -5, &whole, NULL), LS_OK);
    assert_int_equal(ls_json_count_or(object, keys[i], 5, &count, NULL), LS_OK);
    assert_int_equal(ls_json_number_or(object, keys[i], 1.5, &number, NULL), LS_OK);
    assert_int_equal(ls_json_bool_or(object, keys[i], true, &truth, NULL), LS_OK);
    assert_int_equal(ls_json_string_or(object, keys[i], "gelu", &text, NULL), LS_OK);
    assert_int_equal(ls_json_child_or(f->arena, object, keys[i], &child, NULL), LS_OK);
    assert_true(whole == -5 && count == 5 && number == 1.5 && truth);
    assert_string_equal(text, "gelu");
    assert_null(child.json);
    assert_int_equal(ls_json_int_or(&child, "in", 8, &whole, NULL), LS_OK);
    assert_int_equal(whole, 8);
  }
  int64_t whole;
  ls_error error = {0};
  assert_int_equal(ls_json_int_or(object, "s", 1, &whole, &error), LS_INPUT);
}

static void getters_name_what_they_found(void **state) {
  fixture *f = *state;
  const ls_json_object *object = &f->object;
  ls_error error = {0};
  int64_t whole;
  double number;
  bool truth;
  const char *text;
  ls_json_object child;
  assert_int_equal(ls_json_int(object, "s", &whole, &error), LS_INPUT);
  assert_string_equal(error.text,
                      "config.json: \"s\": found a string (\"12\"); expected a whole "
                      "number of at most 64 bits");
  assert_int_equal(ls_json_int(object, "x", &whole, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "found the number 1.0000000000000001e-05"));
  assert_int_equal(ls_json_count(object, "neg", &whole, &error), LS_INPUT);
  assert_string_equal(error.text,
                      "config.json: \"neg\": found the number -4; expected a whole "
                      "number from 1 to 2147483647");
  assert_int_equal(ls_json_count(object, "big", &whole, &error), LS_INPUT);
  assert_int_equal(ls_json_int(object, "none", &whole, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "\"none\": found nothing"));
  assert_int_equal(ls_json_number(object, "t", &number, &error), LS_INPUT);
  assert_string_equal(error.text, "config.json: \"t\": found true; expected a number");
  assert_int_equal(ls_json_bool(object, "n", &truth, &error), LS_INPUT);
  assert_string_equal(error.text,
                      "config.json: \"n\": found the number 12; expected true or false");
  assert_int_equal(ls_json_string(object, "z", &text, &error), LS_INPUT);
  assert_string_equal(error.text, "config.json: \"z\": found null; expected a string");
  assert_int_equal(ls_json_string(object, "o", &text, &error), LS_INPUT);
  assert_string_equal(error.text, "config.json: \"o\": found an object; expected a string");
  assert_int_equal(ls_json_string(object, "no", &text, &error), LS_INPUT);
  assert_string_equal(error.text, "config.json: \"no\": found false; expected a string");
  assert_int_equal(ls_json_string(object, "nul", &text, &error), LS_INPUT);
  assert_int_equal(ls_json_child(f->arena, object, "a", &child, &error), LS_INPUT);
  assert_string_equal(error.text, "config.json: \"a\": found an array of 3; expected an object");
  assert_int_equal(ls_json_child(f->arena, object, "o", &child, &error), LS_OK);
  assert_int_equal(ls_json_int(&child, "out", &whole, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "config.json: \"o\": \"out\": found nothing"));
  assert_int_equal(ls_json_root("config.json", json_object_get(f->root, "a"), &child, &error),
                   LS_INPUT);
  assert_string_equal(error.text, "config.json: found an array of 3; expected an object");
}

static void arrays_are_of_one_type(void **state) {
  fixture *f = *state;
  const ls_json_object *object = &f->object;
  ls_error error = {0};
  int64_t *whole;
  double *numbers;
  const char **names;
  int count;
  assert_int_equal(ls_json_ints(f->arena, object, "a", &whole, &count, &error), LS_OK);
  assert_int_equal(count, 3);
  assert_true(whole[0] == 1 && whole[2] == 3);
  assert_int_equal(ls_json_numbers(f->arena, object, "r", &numbers, &count, &error), LS_OK);
  assert_true(count == 2 && numbers[0] == 0.5 && numbers[1] == 2);
  assert_int_equal(ls_json_strings(f->arena, object, "names", &names, &count, &error), LS_OK);
  assert_int_equal(count, 2);
  assert_string_equal(names[1], "q");
  assert_int_equal(ls_json_ints(f->arena, object, "m", &whole, &count, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "config.json: \"m\"[1]: found a string (\"x\"); expected"));
  assert_int_equal(ls_json_numbers(f->arena, object, "n", &numbers, &count, &error), LS_INPUT);
  assert_string_equal(error.text,
                      "config.json: \"n\": found the number 12; expected an array of numbers");
  assert_int_equal(ls_json_strings(f->arena, object, "a", &names, &count, &error), LS_INPUT);
}

/* Reads every file of a folder whose name begins with `prefix`; returns how many there are, in
 * *accepted how many were read, and in `refused` the last one that was not. */
static int read_folder(const char *folder, const char *prefix, unsigned flags, int *accepted,
                       char refused[256]) {
  DIR *opened = opendir(folder);
  assert_non_null(opened);
  int count = 0;
  *accepted = 0;
  refused[0] = '\0';
  for (const struct dirent *entry; (entry = readdir(opened));) {
    if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0) continue;
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    json_t *root;
    ls_error error = {0};
    const ls_status status = ls_json_read(path, flags, &root, &error);
    count++;
    if (status == LS_OK) {
      ++*accepted;
      json_decref(root);
      continue;
    }
    assert_int_equal(status, LS_INPUT);
    assert_non_null(strstr(error.text, entry->d_name));
    assert_non_null(strstr(error.text, "; expected "));
    assert_null(strchr(error.text, '\n'));
    snprintf(refused, 256, "%s", entry->d_name);
  }
  closedir(opened);
  return count;
}

static void public_suite_holds(void **state) {
  (void)state;
  const char *archive = "../shared/data/json/JSONTestSuite.tar.zst";
  if (!ls_file_exists(archive)) skip();
  char folder[] = "/tmp/lockstep-json-XXXXXX", command[512], parsing[64], refused[256];
  assert_non_null(mkdtemp(folder));
  snprintf(command, sizeof command, "tar --zstd -C %s -xf %s", folder, archive);
  assert_int_equal(system(command), 0);
  snprintf(parsing, sizeof parsing, "%s/test_parsing", folder);
  int accepted = 0;
  assert_int_equal(read_folder(parsing, "n_", 0, &accepted, refused), 188);
  assert_int_equal(accepted, 0);
  assert_int_equal(read_folder(parsing, "n_", LS_JSON_LAST_KEY | LS_JSON_EXACT, &accepted, refused),
                   188);
  assert_int_equal(accepted, 0);
  /* jansson has no keys with a NUL in them: that one file is refused, by its own message. */
  assert_int_equal(read_folder(parsing, "y_", LS_JSON_LAST_KEY, &accepted, refused), 95);
  assert_int_equal(accepted, 94);
  assert_string_equal(refused, "y_object_escaped_null_in_key.json");
  /* By default, duplicate keys are refused too. */
  assert_int_equal(read_folder(parsing, "y_object_duplicated_key", 0, &accepted, refused), 2);
  assert_int_equal(accepted, 0);
  assert_int_equal(read_folder(parsing, "y_", 0, &accepted, refused), 95);
  assert_int_equal(accepted, 92);
  /* Neither way is required of these: they must only not crash. */
  assert_int_equal(read_folder(parsing, "i_", 0, &accepted, refused), 35);
  ls_error error = {0};
  assert_int_equal(ls_directory_remove(folder, &error), LS_OK);
}

static void fault_files_are_refused(void **state) {
  (void)state;
  int accepted = 0;
  char refused[256];
  assert_int_equal(read_folder("tests/data/bad", "json_", 0, &accepted, refused), 9);
  assert_int_equal(accepted, 0);
  json_t *root;
  ls_error error = {0};
  assert_int_equal(ls_json_read("tests/data/bad/none.json", 0, &root, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "none.json"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(errors_name_place_and_expectation),
      cmocka_unit_test(errors_of_a_line_name_it),
      cmocka_unit_test(bad_bytes_stay_on_one_line),
      cmocka_unit_test(depth_is_limited),
      cmocka_unit_test(nul_is_no_end),
      cmocka_unit_test(lenient_where_asked),
      cmocka_unit_test_setup_teardown(getters_give_values, set_up, tear_down),
      cmocka_unit_test_setup_teardown(missing_and_null_take_the_fallback, set_up, tear_down),
      cmocka_unit_test_setup_teardown(getters_name_what_they_found, set_up, tear_down),
      cmocka_unit_test_setup_teardown(arrays_are_of_one_type, set_up, tear_down),
      cmocka_unit_test(public_suite_holds),
      cmocka_unit_test(fault_files_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
