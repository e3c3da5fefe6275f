/* Characters out of bytes, cut at every place, against a table by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "text/utf8.h"

#define BAD "\xEF\xBF\xBD"

static const struct {
  const char *bytes, *text;
} cases[] = {
    {"plain", "plain"},
    {"\xC3\xA9t\xC3\xA9", "\xC3\xA9t\xC3\xA9"},
    {"\xE2\x82\xAC", "\xE2\x82\xAC"},
    {"\xF0\x9F\x98\x80!", "\xF0\x9F\x98\x80!"},
    {"\xF0\x9F\x98", BAD},                 /* cut short */
    {"\xF0\x9F\x98 a", BAD " a"},          /* one sign for the longest beginning */
    {"\x80\x80", BAD BAD},                 /* continuations of nothing */
    {"\xC0\xAF", BAD BAD},                 /* a longer form than needed */
    {"\xE0\x80\xAF", BAD BAD BAD},         /* likewise */
    {"\xED\xA0\x80", BAD BAD BAD},         /* a surrogate */
    {"\xF4\x90\x80\x80", BAD BAD BAD BAD}, /* above U+10FFFF */
    {"\xF4\x8F\xBF\xBF", "\xF4\x8F\xBF\xBF"},
    {"\xFF"
     "a\xC3",
     BAD "a" BAD},
    {"\xE2\x82\xE2\x82\xAC", BAD "\xE2\x82\xAC"},
};

static void test_any_cut(void **state) {
  (void)state;
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    const size_t count = strlen(cases[c].bytes);
    for (size_t cut = 0; cut <= count; cut++) {
      ls_utf8_stream stream = {0};
      char text[3 * LS_UTF8_MOST(8)];
      size_t length = ls_utf8_push(&stream, cases[c].bytes, cut, text);
      assert_true(length <= LS_UTF8_MOST(cut));
      length += ls_utf8_push(&stream, cases[c].bytes + cut, count - cut, text + length);
      length += ls_utf8_end(&stream, text + length);
      text[length] = 0;
      assert_string_equal(text, cases[c].text);
      assert_int_equal(ls_utf8_end(&stream, text), 0);
    }
  }
}

static void test_holds_back(void **state) {
  (void)state;
  ls_utf8_stream stream = {0};
  char text[LS_UTF8_MOST(4)];
  assert_int_equal(ls_utf8_push(&stream, "\xE2", 1, text), 0);
  assert_int_equal(ls_utf8_push(&stream, "\x82", 1, text), 0);
  assert_int_equal(ls_utf8_push(&stream, "\xAC", 1, text), 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_any_cut),
      cmocka_unit_test(test_holds_back),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
