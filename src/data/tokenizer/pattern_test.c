#include "data/tokenizer/pattern.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"

static ls_error error;

/* The matches of a pattern in a text, with a bar between them. */
static const char *matches(ls_arena *arena, const char *source, ls_pattern_syntax syntax,
                           const char *text) {
  ls_pattern *pattern;
  ls_matcher matcher = {0};
  const char *made = "";
  if (ls_pattern_compile(arena, "p", source, syntax, &pattern, &error) != LS_OK) return error.text;
  ls_match match = {0};
  for (size_t from = 0;; from = match.end) {
    const ls_span span = {text, strlen(text)};
    if (ls_pattern_find(pattern, &matcher, span, from, &match, &error) != LS_OK) break;
    if (!match.found || match.end == match.begin) break;
    made = ls_arena_printf(arena, "%s%s%.*s", made, *made ? "|" : "",
                           (int)(match.end - match.begin), text + match.begin);
  }
  ls_matcher_free(&matcher);
  ls_pattern_free(pattern);
  return made;
}

static void signs_mean_what_they_mean_there(void **state) {
  (void)state;
  static const struct {
    const char *pattern, *text, *ruby, *rust;
  } cases[] = {
      {"\\s+", "a \xe1\xa0\x8e\xe2\x80\x83z", " |\xe2\x80\x83", " |\xe2\x80\x83"}, /* not U+180E */
      {"[^\\s]+", "a \xe1\xa0\x8ez", "a|\xe1\xa0\x8ez", "a|\xe1\xa0\x8ez"},
      {"[\\S]+", "a \xc2\xa0z", "a|z", "a|z"},
      {"\\w+", "a\xcc\x81_\xe2\x92\xb6-\xe2\x80\xbf", "a\xcc\x81_\xe2\x92\xb6|\xe2\x80\xbf",
       "a\xcc\x81_\xe2\x92\xb6|\xe2\x80\xbf"},
      {"^a|b$", "ab\nab\n", "a|b|a|b", "a"}, /* of lines, of the text */
      {"(?i:'s|'ll)", "it'S 'Ll '\xc5\xbf", "'S|'Ll|'\xc5\xbf", "'S|'Ll|'\xc5\xbf"},
      {" ?[^(\\s|[.,!?])]+", "ab (c) d,e", "ab|c| d|e", NULL},
      {"\\p{N}{1,3}", "12345", "123|45", "123|45"},
      {"\\x41|\\u0042|\\x{1F999}", "AB\xf0\x9f\xa6\x99", "A|B|\xf0\x9f\xa6\x99",
       "A|B|\xf0\x9f\xa6\x99"},
      {"\\s+(?!\\S)|\\s+", "a   b  ", "  | |  ", "  | |  "},
  };
  ls_arena *arena = ls_arena_create();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *ruby = matches(arena, cases[i].pattern, LS_PATTERN_RUBY, cases[i].text);
    assert_string_equal(ruby, cases[i].ruby);
    if (!cases[i].rust) continue;
    assert_string_equal(matches(arena, cases[i].pattern, LS_PATTERN_RUST, cases[i].text),
                        cases[i].rust);
  }
  ls_arena_destroy(&arena);
}

static void what_differs_is_refused_by_name(void **state) {
  (void)state;
  static const char *const patterns[][2] = {
      {"a\\b", "an escape at \"\\b\""},
      {"\\v", "an escape"},
      {"(a)\\1", "an escape at \"\\1\""},
      {"\\p{Han}", "a property other than a general category"},
      {"[a-z&&[^b]]", "an intersection of classes"},
      {"[a[^b]]", "a class of that kind in a class"},
      {"[[:alpha:]]", "a class of that kind in a class"},
      {"[a", "a class without end"},
      {"[]a]", "a class that begins with a bracket"},
      {"(?<name>a)", "a group"},
      {"(?m:a)", "a group"},
      {"(*ACCEPT)", "a verb"},
      {"a{1,3}+", "a repeated repetition"},
      {"a\\", "a backslash at its end"},
      {"\\xZZ", "a character's number"},
      {"(a", "cannot be compiled: "},
      {"*", "cannot be compiled: "},
  };
  ls_arena *arena = ls_arena_create();
  for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
    ls_pattern *pattern;
    assert_int_equal(
        ls_pattern_compile(arena, "f.json", patterns[i][0], LS_PATTERN_RUBY, &pattern, &error),
        LS_INPUT);
    if (!strstr(error.text, patterns[i][1])) fail_msg("%s", error.text);
    assert_int_equal(strncmp(error.text, "f.json: the pattern \"", 21), 0);
  }
  ls_arena_destroy(&arena);
}

static void what_blows_up_is_stopped(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_pattern *pattern;
  ls_matcher matcher = {0};
  ls_match match;
  char text[64];
  memset(text, 'a', sizeof text);
  assert_int_equal(
      ls_pattern_compile(arena, "f.json", "(a+)+\\p{N}", LS_PATTERN_RUBY, &pattern, &error), LS_OK);
  const double begin = ls_now_s();
  assert_int_equal(
      ls_pattern_find(pattern, &matcher, (ls_span){text, sizeof text}, 0, &match, &error),
      LS_INPUT);
  print_message("stopped after %.2f s\n", ls_now_s() - begin);
  assert_string_equal(
      error.text,
      "f.json: the pattern \"(a+)+\\p{N}\" reaches its match limit at byte 0 of a text; "
      "a pattern without nested repetition is expected");
  ls_matcher_free(&matcher);
  ls_pattern_free(pattern);
  ls_arena_destroy(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(signs_mean_what_they_mean_there),
      cmocka_unit_test(what_differs_is_refused_by_name),
      cmocka_unit_test(what_blows_up_is_stopped),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
