/* The parts of a SentencePiece model's file: its fields (protobuf.c), its table of replacements,
 * and what both make of a text. */
#include "tokenizer/charsmap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tokenizer/protobuf.h"
#include "tokenizer/sentence.h"

static ls_error error;

static void fields_are_read_in_order(void **state) {
  (void)state;
  static const char message[] =
      "\x08\x96\x01\x12\x03"
      "abc\x1d\x00\x00\x80\x3f\x21"
      "12345678";
  ls_protobuf fields = {message, sizeof message - 1, false};
  ls_protobuf_field field;
  assert_true(ls_protobuf_next(&fields, &field));
  assert_int_equal(field.number, 1);
  assert_int_equal(field.number_value, 150);
  assert_true(ls_protobuf_next(&fields, &field));
  assert_int_equal(field.number, 2);
  assert_int_equal(field.text.bytes, 3);
  assert_memory_equal(field.text.text, "abc", 3);
  assert_true(ls_protobuf_next(&fields, &field));
  assert_true(field.float_value == 1);
  assert_true(ls_protobuf_next(&fields, &field));
  assert_int_equal(field.kind, 1);
  assert_false(ls_protobuf_next(&fields, &field));
  assert_false(fields.broken);
}

static void broken_fields_are_known(void **state) {
  (void)state;
  static const struct {
    const char *text;
    size_t bytes;
  } cases[] = {{"\x08", 1},
               {"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 12},
               {"\x12\x05"
                "ab",
                4},
               {"\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f", 10},
               {"\x1d\x01", 2},
               {"\x00\x01", 2},
               {"\x0b\x01", 2}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ls_protobuf fields = {cases[i].text, cases[i].bytes, false};
    ls_protobuf_field field;
    assert_false(ls_protobuf_next(&fields, &field));
    assert_true(fields.broken);
  }
}

/* A double array that has "A" (becomes "a") and "AB" (becomes "x y"). */
enum { UNITS = 512, ROOT = 256, REPLACED = 6 };
static char table[4 + 4 * UNITS + REPLACED];

static void put_unit(size_t at, uint32_t unit) {
  for (int i = 0; i < 4; i++) table[4 + 4 * at + (size_t)i] = (char)(unit >> 8 * i);
}

static void make_table(void) {
  const uint32_t size = 4 * UNITS;
  memset(table, 0, sizeof table);
  for (int i = 0; i < 4; i++) table[i] = (char)(size >> 8 * i);
  put_unit(0, ROOT << 10);
  const size_t a = ROOT ^ 'A', after_a = a ^ 1, ab = after_a ^ 'B', after_ab = ab ^ 2;
  put_unit(a, 'A' | 0x100u | 1u << 10);
  put_unit(after_a, 0x80000000u);
  put_unit(ab, 'B' | 0x100u | 2u << 10);
  put_unit(after_ab, 0x80000000u | 2u);
  memcpy(table + 4 + size, "a\0x y", REPLACED);
}

static void the_longest_beginning_is_replaced(void **state) {
  (void)state;
  make_table();
  ls_charsmap map;
  ls_span made;
  assert_int_equal(ls_charsmap_read("m", table, sizeof table, &map, &error), LS_OK);
  assert_int_equal(ls_charsmap_find(&map, (ls_span){"ABC", 3}, &made), 2);
  assert_int_equal(made.bytes, 3);
  assert_memory_equal(made.text, "x y", 3);
  assert_int_equal(ls_charsmap_find(&map, (ls_span){"AC", 2}, &made), 1);
  assert_memory_equal(made.text, "a", 1);
  assert_int_equal(ls_charsmap_find(&map, (ls_span){"BA", 2}, &made), 0);
  assert_int_equal(ls_charsmap_find(&map, (ls_span){"", 0}, &made), 0);
}

static void a_damaged_table_is_refused_or_finds_nothing(void **state) {
  (void)state;
  make_table();
  ls_charsmap map;
  ls_span made;
  assert_int_equal(ls_charsmap_read("m", table, 3, &map, &error), LS_INPUT);
  assert_int_equal(ls_charsmap_read("m", table, 100, &map, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "m: found a table of replacements of 100 bytes"));
  for (size_t i = 4; i < sizeof table; i++) { /* whatever a unit says, nothing outside is read */
    const char kept = table[i];
    table[i] = (char)-1;
    const bool index = i < 4 + 4 * UNITS; /* behind it, what replaces: no UTF-8 any more */
    assert_int_equal(ls_charsmap_read("m", table, sizeof table, &map, &error),
                     index ? LS_OK : LS_INPUT);
    assert_true(ls_charsmap_find(&map, (ls_span){"ABC", 3}, &made) <= 3);
    table[i] = kept;
  }
}

/* Of characters' parts nothing is made: behind half a character, the next would be read beyond the
 * text's end. */
static void parts_of_characters_are_left_alone(void **state) {
  (void)state;
  static const char text[] = "\xc3\xa9";
  ls_charsmap map;
  ls_span made;
  make_table();
  put_unit(ROOT ^ 0xc3, 0xc3u | 0x100u | 1u << 10); /* replaces the first byte alone */
  put_unit(ROOT ^ 0xc3 ^ 1, 0x80000000u);
  assert_int_equal(ls_charsmap_read("m", table, sizeof table, &map, &error), LS_OK);
  assert_int_equal(ls_charsmap_find(&map, (ls_span){text, 2}, &made), 0);
  make_table();
  memcpy(table + 4 + 4 * UNITS, "\xc3\xa9xx", 4);
  put_unit(ROOT ^ 'A' ^ 1, 0x80000001u); /* the second half of a character */
  assert_int_equal(ls_charsmap_read("m", table, sizeof table, &map, &error), LS_OK);
  assert_int_equal(ls_charsmap_find(&map, (ls_span){"AC", 2}, &made), 0);
}

static void check_normalized(const ls_sentence *sentence, const char *text, bool goes_on, bool more,
                             const char *expected) {
  ls_bytes out = {0};
  const ls_span made =
      ls_sentence_normalize(sentence, (ls_span){text, strlen(text)}, goes_on, more, &out);
  assert_int_equal(made.bytes, strlen(expected));
  assert_memory_equal(made.text, expected, made.bytes);
  ls_bytes_free(&out);
}

static void spaces_are_taken_as_the_model_says(void **state) {
  (void)state;
  make_table();
  ls_sentence sentence = {
      .add_dummy_prefix = true, .remove_extra_spaces = true, .escape_spaces = true};
  assert_int_equal(ls_charsmap_read("m", table, sizeof table, &sentence.map, &error), LS_OK);
  check_normalized(&sentence, "  A  ABb ", false, false, "▁a▁x▁yb");
  check_normalized(&sentence, "   ", false, false, "");
  check_normalized(&sentence, " b", true, false, "▁b");
  check_normalized(&sentence, "b ", false, true, "▁b▁");
  sentence.remove_extra_spaces = false;
  check_normalized(&sentence, " A ", false, false, "▁▁a▁");
  check_normalized(&sentence, "", false, false, "");
  sentence.space_behind = true;
  check_normalized(&sentence, "b", false, false, "b▁");
  sentence.escape_spaces = sentence.add_dummy_prefix = false;
  check_normalized(&sentence, "b b", false, false, "b b");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(fields_are_read_in_order),
      cmocka_unit_test(broken_fields_are_known),
      cmocka_unit_test(the_longest_beginning_is_replaced),
      cmocka_unit_test(a_damaged_table_is_refused_or_finds_nothing),
      cmocka_unit_test(parts_of_characters_are_left_alone),
      cmocka_unit_test(spaces_are_taken_as_the_model_says),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
