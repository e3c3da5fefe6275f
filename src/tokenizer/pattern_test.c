#include "tokenizer/pattern.h"

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
  ls_pattern_begin(pattern, &matcher, (ls_span){text, strlen(text)});
  for (size_t from = 0;; from = match.end) {
    if (ls_pattern_find(&matcher, from, &match, &error) != LS_OK) break;
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
      {"\\w+", "\xc2\xb2 a\xe2\x80\x8dz", "\xc2\xb2|a|z", "a\xe2\x80\x8dz"}, /* each its own */
      {"[a-c[^b-z]]+", "abcdz~", "abc|~", "abc|~"},
      {"[a-c-e]", "abd-e", "a|b|-|e", "a|b|-|e"},
      {"[\\p{L}&&[^\\p{Han}a]]+", "ab\xe4\xb8\x80\xc3\xa9", "b|\xc3\xa9", "b|\xc3\xa9"},
      {"(?i)ab|c", "AB C", "AB|C", "AB|C"},
      {"(?i:a)a", "AaAA", "Aa", "Aa"},
      {"a.|\xc3\xa9{2}", "a\na\xc3\xa9\xc3\xa9\xc3\xa9", "a\xc3\xa9|\xc3\xa9\xc3\xa9",
       "a\xc3\xa9|\xc3\xa9\xc3\xa9"},
      {"(?<=\xe4\xb8\x80)b",
       "b\xe4\xb8\x80"
       "b",
       "b", "b"},
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
      {"\\p{Greek}", "has the property \"Greek\", which the table of Unicode 16.0 lacks"},
      {"[\\p{Script=Han}]", "has the property \"Script=Han\""},
      {"\\P{L&}", "has the property \"L&\""},
      {"\\p{}", "has the property \"\""},
      {"\\pL", "a property without {"},
      {"\\p{L", "a property without }"},
      {"[[:alpha:]]", "a class of that kind"},
      {"[a&&]", "an intersection of nothing"},
      {"[a-\\d]", "a range without end"},
      {"[z-a]", "a range without end"},
      {"[\\d-z]", "a range from a class"},
      {"(?i:Ss)", "letters of a ligature"},
      {"(?i:\xc3\xa9)", "letters beyond ASCII in any case"},
      {"(?i:[a\\p{L}])", "letters beyond ASCII in any case"},
      {"(?i:[a[b]])", "a class in one in any case"},
      {"a(?i)b", "a late (?i)"},
      {"a{,3}", "a repetition of {,"},
      {"\\xe4", "a byte that is no character"},
      {"\\x{d800}", "a number of no character"},
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

static void what_is_too_much_is_refused(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_pattern *pattern;
  char *source = ls_arena_alloc(arena, 8194);
  memset(source, 'a', 8193);
  source[8193] = 0;
  assert_int_equal(ls_pattern_compile(arena, "f", source, LS_PATTERN_RUBY, &pattern, &error),
                   LS_INPUT);
  assert_non_null(strstr(error.text, "more than 8192 bytes"));
  for (int i = 0; i < 130; i++) { /* U+0400 and so on */
    source[2 * i] = (char)(0xd0 + i / 64);
    source[2 * i + 1] = (char)(0x80 + i % 64);
  }
  source[2 * 127] = 0; /* and what is none of these */
  assert_int_equal(ls_pattern_compile(arena, "f", source, LS_PATTERN_RUBY, &pattern, &error),
                   LS_OK);
  ls_pattern_free(pattern);
  source[2 * 127] = (char)0xd1;
  source[2 * 128] = 0;
  assert_int_equal(ls_pattern_compile(arena, "f", source, LS_PATTERN_RUBY, &pattern, &error),
                   LS_INPUT);
  assert_non_null(strstr(error.text, "over 128 kinds of characters"));
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
  ls_pattern_begin(pattern, &matcher, (ls_span){text, sizeof text});
  assert_int_equal(ls_pattern_find(&matcher, 0, &match, &error), LS_INPUT);
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
      cmocka_unit_test(what_is_too_much_is_refused),
      cmocka_unit_test(what_blows_up_is_stopped),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
