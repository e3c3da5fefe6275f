#include "text/quote.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void assert_quoted(const char *text, size_t bytes, const char *expected) {
  char shown[LS_QUOTE_BYTES];
  assert_string_equal(ls_quote(shown, text, bytes), expected);
}

static void text_fits_one_line(void **state) {
  (void)state;
  assert_quoted("", 0, "");
  assert_quoted("plain", 5, "plain");
  assert_quoted("a\nb\tc\0d\x7F", 8, "a?b?c?d?");
  assert_quoted("\xC3\xA9t\xFF\xC3", 5, "\xC3\xA9t??");
}

static void long_text_is_cut_between_characters(void **state) {
  (void)state;
  char text[200], shown[LS_QUOTE_BYTES];
  for (int shift = 0; shift < 3; shift++) {
    memset(text, 'a', sizeof text);
    for (size_t i = (size_t)shift; i + 3 <= sizeof text; i += 3)
      memcpy(text + i, "\xE2\x82\xAC", 3);
    ls_quote(shown, text, sizeof text);
    const size_t length = strlen(shown);
    assert_true(length < LS_QUOTE_BYTES && length > LS_QUOTE_BYTES - 8);
    assert_string_equal(shown + length - 3, "...");
    assert_null(strchr(shown, '?'));
  }
  memset(text, 'a', sizeof text);
  assert_int_equal(strlen(ls_quote(shown, text, LS_QUOTE_BYTES - 4)), LS_QUOTE_BYTES - 4);
  assert_null(strchr(shown, '.'));
}

static void utf8_is_strict(void **state) {
  (void)state;
  static const struct {
    const char *text;
    size_t length;
  } cases[] = {
      {"a", 1},
      {"\x7F", 1},
      {"\x80", 0},
      {"\xC1\x81", 0},
      {"\xC2\x80", 2},
      {"\xC2", 0},
      {"\xE0\x9F\xBF", 0},
      {"\xE0\xA0\x80", 3},
      {"\xED\x9F\xBF", 3},
      {"\xED\xA0\x80", 0},
      {"\xEF\xBF\xBF", 3},
      {"\xF0\x8F\xBF\xBF", 0},
      {"\xF0\x90\x80\x80", 4},
      {"\xF4\x8F\xBF\xBF", 4},
      {"\xF4\x90\x80\x80", 0},
      {"\xF5\x80\x80\x80", 0},
      {"\xE2\x82"
       "a",
       0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    assert_int_equal(ls_utf8_length(cases[i].text, strlen(cases[i].text)), cases[i].length);
  }
  assert_int_equal(ls_utf8_length("", 0), 0);
}

static void lfs_pointers_are_known(void **state) {
  (void)state;
  static const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:00\n";
  assert_true(ls_is_lfs_pointer(pointer, sizeof pointer - 1));
  assert_false(ls_is_lfs_pointer(pointer, 20));
  assert_false(ls_is_lfs_pointer("{\"version\": 1, \"and\": \"more than forty bytes of it\"}", 50));
  assert_false(ls_is_lfs_pointer("", 0));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(text_fits_one_line),
      cmocka_unit_test(long_text_is_cut_between_characters),
      cmocka_unit_test(utf8_is_strict),
      cmocka_unit_test(lfs_pointers_are_known),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
