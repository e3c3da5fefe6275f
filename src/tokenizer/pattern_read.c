#include "tokenizer/pattern_read.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "text/quote.h"
#include "tokenizer/unicode.h"

enum { DEEPEST = 250 }; /* classes in classes */

typedef struct item {
  bool is_point;
  uint32_t point;
  ls_point_set set;
  bool both_cases; /* the set has both cases of all its letters, whatever they are */
} item;

ls_status ls_pattern_refuse(const ls_pattern_reader *reader, const char *what, ls_error *error) {
  char shown[LS_QUOTE_BYTES], sign[LS_QUOTE_BYTES];
  const size_t left = strlen(reader->at);
  return ls_fail(error, LS_INPUT, "%s: the pattern \"%s\" has %s at \"%s\", which is not supported",
                 reader->where, ls_quote(shown, reader->source, strlen(reader->source)), what,
                 ls_quote(sign, reader->at, left < 12 ? left : 12));
}

static ls_point_set join(ls_arena *arena, ls_point_set a, ls_point_set b) {
  return ls_point_set_union(arena, &a, &b);
}

/* \p{L}, \p{^Lu}, \P{N}, and fancy-regex's \pL */
static ls_status read_property(ls_pattern_reader *reader, ls_point_set *set, ls_error *error) {
  const char *name = reader->at + 2;
  const bool braces = *name == '{';
  if (!braces && reader->ruby) return ls_pattern_refuse(reader, "a property without {", error);
  if (braces) name++;
  const bool turned = braces && reader->ruby && *name == '^';
  if (turned) name++;
  const size_t length = braces ? strcspn(name, "}") : (size_t)(*name != 0);
  if (braces && !name[length]) return ls_pattern_refuse(reader, "a property without }", error);
  if (!ls_point_set_property(reader->arena, name, length, set)) {
    char shown[LS_QUOTE_BYTES], sought[LS_QUOTE_BYTES];
    return ls_fail(error, LS_INPUT,
                   "%s: the pattern \"%s\" has the property \"%s\", which the table of Unicode %s "
                   "lacks; general categories (L, Lu, ...), Han, Hiragana, Katakana and Hangul "
                   "are supported",
                   reader->where, ls_quote(shown, reader->source, strlen(reader->source)),
                   ls_quote(sought, name, length), ls_unicode_version);
  }
  if (turned != (reader->at[1] == 'P')) *set = ls_point_set_complement(reader->arena, set);
  reader->at = name + length + (braces ? 1 : 0);
  return LS_OK;
}

static bool is_hex(char c) {
  return c && strchr("0123456789abcdefABCDEF", c);
}

/* \xHH, \x{H...}, \uHHHH */
static ls_status read_hex(ls_pattern_reader *reader, uint32_t *point, ls_error *error) {
  const char *digits = reader->at + 2;
  const bool braces = *digits == '{';
  if (braces) digits++;
  size_t length = 0;
  while (is_hex(digits[length]) && length < 8) length++;
  const size_t wanted = reader->at[1] == 'u' ? 4 : 2;
  if (braces ? digits[length] != '}' || length == 0 || length > 6 : length < wanted) {
    return ls_pattern_refuse(reader, "a character's number that is not whole", error);
  }
  if (!braces) length = wanted;
  char number[8] = {0};
  memcpy(number, digits, length);
  *point = (uint32_t)strtoul(number, NULL, 16);
  if (*point >= LS_POINTS || (*point >= 0xd800 && *point < 0xe000)) {
    return ls_pattern_refuse(reader, "a number of no character", error);
  }
  if (reader->ruby && length == 2 && !braces && *point >= 0x80) { /* Oniguruma's bytes */
    return ls_pattern_refuse(reader, "a byte that is no character", error);
  }
  reader->at = digits + length + (braces ? 1 : 0);
  return LS_OK;
}

/* \w in Oniguruma: letters, marks, decimal and letter numbers, connectors and what is Alphabetic
 * though a symbol; outside classes, where it asks Latin-1's own table, also the digits and
 * fractions of that. fancy-regex has the joiners too. */
static ls_point_set words(const ls_pattern_reader *reader, bool in_class) {
  static const char *const names[] = {"L", "M", "Nd", "Nl", "Pc"};
  static const ls_point_range latin[] = {{0xb2, 0xb3}, {0xb9, 0xb9}, {0xbc, 0xbe}};
  static const ls_point_range joiners[] = {{0x200c, 0x200d}};
  ls_point_set all = ls_point_set_of(&ls_points_word_symbols);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    ls_point_set set;
    const bool known = ls_point_set_property(reader->arena, names[i], strlen(names[i]), &set);
    LS_ASSERT(known);
    all = join(reader->arena, all, set);
  }
  if (!reader->ruby) return join(reader->arena, all, (ls_point_set){joiners, 1});
  return in_class ? all : join(reader->arena, all, (ls_point_set){latin, 3});
}

/* \s, \w, \d, and in capitals what they are not; false for other letters. */
static bool read_kind(ls_pattern_reader *reader, bool in_class, item *found) {
  const char sign = reader->at[1];
  switch (sign) {
    case 's':
    case 'S': found->set = ls_point_set_of(&ls_points_spaces); break;
    case 'w':
    case 'W': found->set = words(reader, in_class); break;
    case 'd':
    case 'D': ls_point_set_property(reader->arena, "Nd", 2, &found->set); break;
    default: return false;
  }
  if (sign < 'a') found->set = ls_point_set_complement(reader->arena, &found->set);
  found->both_cases = true;
  reader->at += 2;
  return true;
}

/* A backslash and what belongs to it. */
static ls_status read_escape(ls_pattern_reader *reader, bool in_class, item *found,
                             ls_error *error) {
  static const char letters[] = "rntf", meant[] = "\r\n\t\f";
  const char sign = reader->at[1];
  if (!sign) return ls_pattern_refuse(reader, "a backslash at its end", error);
  if (read_kind(reader, in_class, found)) return LS_OK;
  if (sign == 'p' || sign == 'P') {
    found->both_cases = reader->ruby && !in_class; /* Oniguruma takes these as they are */
    return read_property(reader, &found->set, error);
  }
  found->is_point = true;
  if (sign == 'x' || sign == 'u') return read_hex(reader, &found->point, error);
  const char *known = strchr(letters, sign);
  const bool letter = (sign >= 'a' && sign <= 'z') || (sign >= 'A' && sign <= 'Z');
  const bool digit = sign >= '0' && sign <= '9';
  if (!known && (letter || digit || (unsigned char)sign >= 0x80)) {
    return ls_pattern_refuse(reader, "an escape", error);
  }
  found->point = (unsigned char)(known ? meant[known - letters] : sign);
  reader->at += 2;
  return LS_OK;
}

static ls_status read_item(ls_pattern_reader *reader, bool in_class, item *found, ls_error *error) {
  *found = (item){0};
  if (*reader->at == '\\') {
    LS_TRY(read_escape(reader, in_class, found, error));
  } else {
    found->is_point = true;
    found->point = ls_unicode_next(&reader->at);
  }
  if (found->is_point) found->set = ls_point_set_range(reader->arena, found->point, found->point);
  return LS_OK;
}

/* Which letters are one but for case is known of ASCII alone: others are refused. */
static ls_status check_case(const ls_pattern_reader *reader, const item *found, ls_error *error) {
  static const char *const cased[] = {"Lu", "Ll", "Lt", "M", "Nl", "So"};
  if (!reader->any_case || found->both_cases) return LS_OK;
  const ls_point_set beyond = ls_point_set_range(reader->arena, 0x80, LS_POINTS - 1);
  for (size_t i = 0; i < sizeof cased / sizeof *cased; i++) {
    ls_point_set set;
    ls_point_set_property(reader->arena, cased[i], strlen(cased[i]), &set);
    set = ls_point_set_intersection(reader->arena, &set, &beyond);
    set = ls_point_set_intersection(reader->arena, &set, &found->set);
    if (set.count)
      return ls_pattern_refuse(reader, "letters beyond ASCII in any case before", error);
  }
  return LS_OK;
}

/* Both cases of ASCII's letters, and the two that are one of them but for case: U+017F, a long s,
 * and U+212A, the kelvin. */
static ls_point_set in_both_cases(const ls_pattern_reader *reader, ls_point_set set) {
  if (!reader->any_case) return set;
  const ls_point_set asked = set;
  for (uint32_t c = 'a'; c <= 'z'; c++) {
    const uint32_t capital = c - 'a' + 'A';
    if (!ls_point_set_has(&asked, c) && !ls_point_set_has(&asked, capital)) continue;
    const uint32_t third = c == 's' ? 0x17f : c == 'k' ? 0x212a : c;
    set = join(reader->arena, set, ls_point_set_range(reader->arena, c, c));
    set = join(reader->arena, set, ls_point_set_range(reader->arena, capital, capital));
    set = join(reader->arena, set, ls_point_set_range(reader->arena, third, third));
  }
  return set;
}

/* In any case Oniguruma has two letters match one ligature or sharp s. */
static bool begins_ligature(const ls_pattern_reader *reader) {
  static const char *const pairs[] = {"ss", "ff", "fi", "fl", "st"};
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
    if (strncasecmp(reader->at, pairs[i], 2) == 0) return true;
  }
  return false;
}

ls_status ls_pattern_read_one(ls_pattern_reader *reader, ls_point_set *set, ls_error *error) {
  if (reader->any_case && reader->ruby && begins_ligature(reader)) {
    return ls_pattern_refuse(reader, "letters of a ligature in any case", error);
  }
  item found;
  LS_TRY(read_item(reader, false, &found, error));
  LS_TRY(check_case(reader, &found, error));
  *set = found.is_point ? in_both_cases(reader, found.set) : found.set;
  return LS_OK;
}

/* A character, a range, an escape, and what it adds to a class. */
static ls_status add_item(ls_pattern_reader *reader, ls_point_set *set, ls_error *error) {
  item found;
  LS_TRY(read_item(reader, true, &found, error));
  if (*reader->at == '-' && reader->at[1] != ']') {
    if (!found.is_point) return ls_pattern_refuse(reader, "a range from a class", error);
    item last;
    reader->at++;
    if (*reader->at == '[') return ls_pattern_refuse(reader, "a range to a class", error);
    LS_TRY(read_item(reader, true, &last, error));
    if (!last.is_point || last.point < found.point) {
      return ls_pattern_refuse(reader, "a range without end before", error);
    }
    found.set = ls_point_set_range(reader->arena, found.point, last.point);
  }
  LS_TRY(check_case(reader, &found, error));
  *set = join(reader->arena, *set, found.set);
  return LS_OK;
}

/* What an open class has so far: of `a&&b` the sides before this one, and this one. */
typedef struct open_class {
  ls_point_set before, set;
  bool negated, has_before, empty;
} open_class;

static void end_side(const ls_pattern_reader *reader, open_class *open) {
  open->set = in_both_cases(reader, open->set);
  if (open->has_before) {
    open->set = ls_point_set_intersection(reader->arena, &open->before, &open->set);
  }
}

static ls_status begin_class(ls_pattern_reader *reader, open_class *open, ls_error *error) {
  *open = (open_class){.empty = true};
  if (reader->at[1] == ':') return ls_pattern_refuse(reader, "a class of that kind", error);
  reader->at++;
  open->negated = *reader->at == '^';
  if (open->negated) reader->at++;
  if (*reader->at == ']') {
    return ls_pattern_refuse(reader, "a class that begins with a bracket", error);
  }
  return LS_OK;
}

/* "&&": what follows must have the character too. */
static ls_status begin_side(ls_pattern_reader *reader, open_class *open, ls_error *error) {
  if (open->empty || reader->at[2] == ']' || reader->at[2] == '&') {
    return ls_pattern_refuse(reader, "an intersection of nothing", error);
  }
  if (reader->any_case) return ls_pattern_refuse(reader, "an intersection in any case", error);
  reader->at += 2;
  end_side(reader, open);
  open->before = open->set;
  open->set = (ls_point_set){0};
  open->has_before = open->empty = true;
  return LS_OK;
}

static ls_status read_nested(ls_pattern_reader *reader, int depth, ls_point_set *set,
                             ls_error *error) {
  open_class open;
  LS_TRY(begin_class(reader, &open, error));
  while (*reader->at != ']') {
    const char sign = *reader->at;
    if (!sign) return ls_pattern_refuse(reader, "a class without end", error);
    if (sign == '&' && reader->at[1] == '&') {
      LS_TRY(begin_side(reader, &open, error));
      continue;
    }
    if (!reader->ruby && (sign == '-' || sign == '~') && reader->at[1] == sign) {
      return ls_pattern_refuse(reader, "a difference of classes", error);
    }
    open.empty = false;
    if (sign != '[') {
      LS_TRY(add_item(reader, &open.set, error));
      continue;
    }
    if (depth == DEEPEST) return ls_pattern_refuse(reader, "too deep a class", error);
    if (reader->any_case) return ls_pattern_refuse(reader, "a class in one in any case", error);
    ls_point_set inner;
    LS_TRY(read_nested(reader, depth + 1, &inner, error));
    open.set = join(reader->arena, open.set, inner);
  }
  reader->at++;
  end_side(reader, &open);
  *set = open.negated ? ls_point_set_complement(reader->arena, &open.set) : open.set;
  return LS_OK;
}

ls_status ls_pattern_read_class(ls_pattern_reader *reader, ls_point_set *set, ls_error *error) {
  return read_nested(reader, 1, set, error);
}
