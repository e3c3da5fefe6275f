#include "data/text_check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "text/quote.h"

/* All of the bytes in calls of `step`. */
static ls_status check(const char *bytes, size_t count, size_t step, ls_text_check *made,
                       ls_error *error) {
  *made = (ls_text_check){.key = "data.text", .path = "a.txt"};
  for (size_t at = 0; at < count; at += step)
    LS_TRY(ls_text_check_add(made, bytes + at, count - at < step ? count - at : step, error));
  return ls_text_check_end(made, error);
}

static void other_formats_are_named(void **state) {
  (void)state;
#define CASE(bytes, expected) \
  { bytes, sizeof(bytes) - 1, expected }
  static const struct {
    const char *bytes;
    size_t count;
    const char *expected;
  } cases[] = {
      CASE("%PDF-1.7\n%\xe2\xe3", "a.txt is a PDF: convert it first, as with pdftotext"),
      CASE("PK\3\4\24", "zip archive"),
      CASE("\xff\xfe"
           "a\0b\0",
           "iconv -f UTF-16 -t UTF-8"),
      CASE("\xfe\xff\0a\0b", "UTF-16"),
      CASE("\xff\xfe\0\0a\0\0\0", "UTF-32"),
      CASE("a\0b\0c\0",
           "3 of its first 6 bytes are NUL, so it is no text: if it is UTF-16, convert it: iconv "
           "-f UTF-16LE"),
      CASE("\0a\0b\0c", "iconv -f UTF-16BE"),
      CASE("some text\0\0\0\0", "name another file, or take them out"),
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    ls_text_check made;
    ls_error error;
    assert_int_equal(check(cases[i].bytes, cases[i].count, 64, &made, &error), LS_INPUT);
    if (!strstr(error.text, cases[i].expected))
      fail_msg("\"%s\" is not in: %s", cases[i].expected, error.text);
  }
}

/* What a character is, however the bytes come, is what ls_utf8_length says of all at once. */
static void bytes_that_are_no_text_are_counted(void **state) {
  (void)state;
  static const char *const parts[] = {"a",
                                      "plain ascii, twelve",
                                      "\xc3\xa4",
                                      "\xe2\x82\xac",
                                      "\xf0\x9f\x99\x82",
                                      "\xc3",
                                      "\xe2\x82",
                                      "\xf0\x9f\x99",
                                      "\xff",
                                      "\xed\xa0\x80",
                                      "\xc0\xaf",
                                      "\xf4\x90\x80\x80",
                                      "\x80",
                                      "\xe0\x80"};
  enum { PARTS = sizeof parts / sizeof parts[0] };
  for (uint64_t seed = 1; seed <= 2000; seed++) {
    char text[256];
    size_t count = 0;
    const int pieces = 1 + (int)(ls_random_bits(seed, 0, 0) % 12);
    for (int i = 0; i < pieces; i++) {
      const char *part = parts[ls_random_bits(seed, 1, (uint64_t)i) % PARTS];
      memcpy(text + count, part, strlen(part));
      count += strlen(part);
    }
    int64_t bad = 0, first = 0;
    for (size_t at = 0; at < count;) {
      const size_t length = ls_utf8_length(text + at, count - at);
      if (length == 0 && bad++ == 0) first = (int64_t)at;
      at += length ? length : 1;
    }
    for (size_t step = 1; step <= 20; step++) {
      ls_text_check made;
      ls_error error;
      assert_int_equal(check(text, count, step, &made, &error), LS_OK);
      if (made.bad != bad || made.first_bad != first || made.bytes != (int64_t)count)
        fail_msg("seed %d, step %zu: %d bad, expected %d; first %d, expected %d", (int)seed, step,
                 (int)made.bad, (int)bad, (int)made.first_bad, (int)first);
    }
  }
}

/* A crawl may have a NUL here and there; whether it is text does not depend on how it is read. */
static void few_nuls_are_counted(void **state) {
  (void)state;
  enum { BYTES = LS_TEXT_SAMPLE_BYTES + 100 };
  static char text[BYTES];
  memset(text, 'a', BYTES);
  for (int i = 0; i < LS_TEXT_SAMPLE_BYTES / LS_TEXT_NUL_SHARE; i++)
    text[LS_TEXT_NUL_SHARE * i] = 0;
  memset(text + LS_TEXT_SAMPLE_BYTES, 0, 100);
  static const size_t steps[] = {1000, 65535, 65536, 65537, BYTES};
  for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
    ls_text_check made;
    ls_error error;
    text[1] = 'a';
    assert_int_equal(check(text, BYTES, steps[i], &made, &error), LS_OK);
    assert_int_equal(made.bad, LS_TEXT_SAMPLE_BYTES / LS_TEXT_NUL_SHARE + 100);
    assert_int_equal(made.first_bad, 0);
    text[1] = 0;
    assert_int_equal(check(text, BYTES, steps[i], &made, &error), LS_INPUT);
    assert_non_null(strstr(error.text, "1025 of its first 65536 bytes are NUL"));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(other_formats_are_named),
      cmocka_unit_test(few_nuls_are_counted),
      cmocka_unit_test(bytes_that_are_no_text_are_counted),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
