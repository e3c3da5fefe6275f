/* Classes of characters and normal forms of every code point, and words of four models, as
 * tokenizers and tiktoken have them (tests/data/unicode.json, which
 * tools/reference/make_unicode_tables.py made).
 */
#include "tokenizer/unicode.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include <cmocka.h>

#include "text/json.h"
#include "tokenizer/pattern.h"
#include "tokenizer/point_set.h"
#include "tokenizer/pre_tokenizer.h"

static ls_error error;
static ls_arena *arena;
static json_t *reference;
static ls_bytes all; /* every character, in order */

static void put_point(ls_bytes *text, uint32_t point) {
  char bytes[4];
  ls_bytes_append(text, bytes, (size_t)ls_unicode_put(point, bytes));
}

static bool is_surrogate(uint32_t point) {
  return point >= 0xd800 && point < 0xe000;
}

static int set_up(void **state) {
  (void)state;
  arena = ls_arena_create();
  if (ls_json_read("tests/data/unicode.json", 0, &reference, &error) != LS_OK) return -1;
  for (uint32_t point = 0; point < LS_POINTS; point++) {
    if (!is_surrogate(point)) put_point(&all, point);
  }
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  json_decref(reference);
  ls_bytes_free(&all);
  ls_arena_destroy(&arena);
  return 0;
}

/* A set of characters as the reference has it: how many, and the CRC of one bit for each. */
typedef struct tally {
  int64_t count;
  uint8_t bits[LS_POINTS / 8];
} tally;

static void tally_add(tally *self, uint32_t point) {
  self->count++;
  self->bits[point / 8] |= (uint8_t)(1u << point % 8);
}

static bool tally_is(const tally *self, const json_t *expected) {
  return self->count == json_integer_value(json_array_get(expected, 0)) &&
         crc32_z(0, self->bits, sizeof self->bits) ==
             (unsigned long)json_integer_value(json_array_get(expected, 1));
}

static ls_pattern *compile(const char *source, ls_pattern_syntax syntax) {
  ls_pattern *pattern;
  const char *many = ls_arena_printf(arena, "(?:%s)+", source);
  if (ls_pattern_compile(arena, "p", many, syntax, &pattern, &error) != LS_OK) {
    fail_msg("%s", error.text);
  }
  return pattern;
}

static void check_pattern(const char *source, ls_pattern_syntax syntax, const json_t *expected) {
  ls_pattern *pattern = compile(source, syntax);
  ls_matcher matcher = {0};
  static tally found;
  found = (tally){0};
  ls_match match = {0};
  ls_pattern_begin(pattern, &matcher, (ls_span){all.data, all.count});
  while (match.end < all.count) {
    assert_int_equal(ls_pattern_find(&matcher, match.end, &match, &error), LS_OK);
    if (!match.found) break;
    for (const char *at = all.data + match.begin; at < all.data + match.end;) {
      tally_add(&found, ls_unicode_next(&at));
    }
  }
  if (!tally_is(&found, expected)) fail_msg("%s has %lld", source, (long long)found.count);
  ls_matcher_free(&matcher);
  ls_pattern_free(pattern);
}

static void patterns_have_their_librarys_characters(void **state) {
  (void)state;
  const char *source;
  json_t *expected;
  json_object_foreach(json_object_get(reference, "ruby"), source, expected) {
    check_pattern(source, LS_PATTERN_RUBY, expected);
  }
  json_object_foreach(json_object_get(reference, "rust"), source, expected) {
    check_pattern(source, LS_PATTERN_RUST, expected);
  }
}

static void steps_have_their_librarys_characters(void **state) {
  (void)state;
  static const struct {
    const char *name;
    bool (*has)(uint32_t point);
  } steps[] = {
      {"Digits", ls_unicode_is_number},
      {"Punctuation", ls_unicode_is_punctuation},
      {"WhitespaceSplit", ls_unicode_is_space},
      {"single_word", ls_unicode_is_word},
  };
  for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
    static tally found;
    found = (tally){0};
    for (uint32_t point = 0; point < LS_POINTS; point++) {
      if (!is_surrogate(point) && steps[i].has(point)) tally_add(&found, point);
    }
    if (!tally_is(&found, json_object_get(reference, steps[i].name))) fail_msg("%s", steps[i].name);
  }
}

/* Each character before a mark and between a letter and one. */
static void normal_forms_are_their_librarys(void **state) {
  (void)state;
  static const uint32_t marks[] = {0x301, 0x323, 0x338, 0x345, 0x3099, 0x334, 0x5bc};
  ls_bytes text = {0}, made = {0};
  for (uint32_t point = 0; point < 0xe0200; point++) {
    if (is_surrogate(point) || (point >= 0x32000 && point < 0xe0000)) continue;
    put_point(&text, point);
    put_point(&text, marks[point % 7]);
    put_point(&text, 'a');
    put_point(&text, point);
    put_point(&text, 0x334);
  }
  for (int form = LS_NFC; form <= LS_NFKD; form++) {
    const ls_span span =
        ls_unicode_normalize((ls_unicode_form)form, (ls_span){text.data, text.count}, &made);
    const json_t *expected = json_array_get(json_object_get(reference, "forms"), (size_t)form);
    assert_int_equal(crc32_z(0, (const Bytef *)span.text, span.bytes),
                     json_integer_value(expected));
  }
  ls_bytes_free(&text);
  ls_bytes_free(&made);
}

/* Of all characters in a row. */
static void bert_normalizes_as_there(void **state) {
  (void)state;
  static const char *const steps[] = {"clean_text", "handle_chinese_chars", "strip_accents",
                                      "lowercase"};
  ls_bytes text = {0};
  ls_matcher matcher = {0};
  for (uint32_t point = 0; point < LS_POINTS; point++)
    if (!is_surrogate(point)) put_point(&text, point);
  for (int s = 0; s < 4; s++) {
    json_t *json = json_pack("{s:s, s:b, s:b, s:b, s:b}", "type", "BertNormalizer", steps[0],
                             s == 0, steps[1], s == 1, steps[2], s == 2, steps[3], s == 3);
    ls_normalizer normalizer;
    ls_normalizer_work work = {.matcher = &matcher};
    ls_span span;
    assert_int_equal(ls_normalizer_read(arena, "p", json, &normalizer, &error), LS_OK);
    assert_int_equal(ls_normalizer_apply(&normalizer, (ls_span){text.data, text.count}, false,
                                         &work, &span, &error),
                     LS_OK);
    const json_t *expected = json_array_get(json_object_get(reference, "bert"), (size_t)s);
    if (crc32_z(0, (const Bytef *)span.text, span.bytes) != (uLong)json_integer_value(expected))
      fail_msg("%s", steps[s]);
    for (int i = 0; i < 2; i++) ls_bytes_free(&work.made[i]);
    ls_normalizer_free(&normalizer);
    json_decref(json);
  }
  ls_matcher_free(&matcher);
  ls_bytes_free(&text);
}

static void check_pieces(const json_t *steps, const char *text, const json_t *pieces) {
  ls_pre_tokenizer pre;
  ls_matcher matcher = {0};
  ls_pre_tokenizer_work work = {.matcher = &matcher};
  assert_int_equal(ls_pre_tokenizer_read(arena, "p", steps, &pre, &error), LS_OK);
  const ls_span span = {text, strlen(text)};
  assert_int_equal(ls_pre_tokenizer_apply(&pre, span, true, false, &work, &error), LS_OK);
  assert_int_equal(work.words.count, json_array_size(pieces));
  for (size_t i = 0; i < work.words.count; i++) {
    const ls_span word = work.words.items[i];
    assert_string_equal(ls_arena_printf(arena, "%.*s", (int)word.bytes, word.text),
                        json_string_value(json_array_get(pieces, i)));
  }
  ls_spans_free(&work.words);
  ls_spans_free(&work.before);
  for (int i = 0; i < 2; i++) ls_bytes_free(&work.made[i]);
  ls_matcher_free(&matcher);
  ls_pre_tokenizer_free(&pre);
}

/* With U+1FA77 of Unicode 15 and letters of 16, which older PCRE2 knows as unassigned. */
static void new_characters_are_cut_as_there(void **state) {
  (void)state;
  const char *model;
  json_t *each, *text;
  json_object_foreach(json_object_get(reference, "models"), model, each) {
    const json_t *steps = json_object_get(each, "pre_tokenizer");
    const json_t *pieces = json_object_get(each, "pieces");
    size_t i;
    json_array_foreach(json_object_get(each, "texts"), i, text) {
      check_pieces(steps, json_string_value(text), json_array_get(pieces, i));
    }
    assert_int_equal(i, 8);
  }
  json_t *words = json_pack("{s:s}", "type", "Whitespace");
  check_pieces(words,
               "a\xe2\x80\x8d"
               "b c\xc2\xb2\xcc\x81 \xe2\x92\xb6.\xe1\xb2\x89",
               json_array_get(json_object_get(reference, "Whitespace"), 0));
  json_decref(words);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(patterns_have_their_librarys_characters),
      cmocka_unit_test(steps_have_their_librarys_characters),
      cmocka_unit_test(normal_forms_are_their_librarys),
      cmocka_unit_test(bert_normalizes_as_there),
      cmocka_unit_test(new_characters_are_cut_as_there),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
