#include "data/json_scan.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "text/quote.h"

enum { MOST_DEPTH = 32, MOST_NUMBER = 15 };

typedef struct scan {
  const char *at, *end;
} scan;

static void skip_blanks(scan *s) {
  while (s->at < s->end && (*s->at == ' ' || *s->at == '\t' || *s->at == '\r' || *s->at == '\n'))
    s->at++;
}

static bool take(scan *s, char c) {
  if (s->at >= s->end || *s->at != c) return false;
  s->at++;
  return true;
}

/* The four digits of a \u escape; -1: something else. */
static int32_t hex_of(const char *at, const char *end) {
  int32_t value = 0;
  if (end - at < 4) return -1;
  for (int i = 0; i < 4; i++) {
    const char c = at[i];
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) return -1;
    value = value << 4 | digit;
  }
  return value;
}

/* Bytes of the escape at a backslash; 0: none that is valid. *point takes the character. */
static int escape_of(const char *at, const char *end, int32_t *point) {
  static const char names[] = "\"\\/bfnrt", characters[] = "\"\\/\b\f\n\r\t";
  if (end - at < 2) return 0;
  const char *name = at[1] ? strchr(names, at[1]) : NULL;
  if (name) {
    *point = characters[name - names];
    return 2;
  }
  if (at[1] != 'u') return 0;
  *point = hex_of(at + 2, end);
  if (*point < 0 || (*point >= 0xdc00 && *point < 0xe000)) return 0;
  if (*point < 0xd800 || *point >= 0xe000) return 6;
  if (end - at < 12 || at[6] != '\\' || at[7] != 'u') return 0; /* half of a character */
  const int32_t low = hex_of(at + 8, end);
  if (low < 0xdc00 || low >= 0xe000) return 0;
  *point = 0x10000 + ((*point - 0xd800) << 10) + (low - 0xdc00);
  return 12;
}

/* Bytes without quote, backslash, control character or high bit, eight at a time. */
static const char *skip_plain(const char *at, const char *end) {
  const uint64_t ones = 0x0101010101010101u, highs = 0x8080808080808080u;
  for (; end - at >= 8; at += 8) {
    uint64_t word;
    memcpy(&word, at, sizeof word);
    const uint64_t quotes = word ^ ones * '"', slashes = word ^ ones * '\\';
    const uint64_t zeros = (quotes - ones) & ~quotes, others = (slashes - ones) & ~slashes;
    const uint64_t controls = (word - ones * 0x20) & ~word;
    if ((zeros | others | controls | word) & highs) return at;
  }
  return at;
}

/* After its opening quote, past its closing one. */
static bool skip_string(scan *s, bool *escaped) {
  *escaped = false;
  for (;;) {
    s->at = skip_plain(s->at, s->end);
    if (s->at >= s->end) return false;
    const unsigned char c = (unsigned char)*s->at;
    size_t length = 1;
    if (c == '"') break;
    if (c < 0x20) return false;
    if (c == '\\') {
      int32_t point;
      *escaped = true;
      length = (size_t)escape_of(s->at, s->end, &point);
    } else if (c >= 0x80) {
      length = ls_utf8_length(s->at, (size_t)(s->end - s->at));
    }
    if (!length) return false;
    s->at += length;
  }
  s->at++;
  return true;
}

/* Short numbers without an exponent: none of them is out of a double's range. */
static bool skip_number(scan *s) {
  const char *begin = s->at;
  take(s, '-');
  const bool zero = take(s, '0');
  int digits = zero;
  for (; !zero && s->at < s->end && *s->at >= '0' && *s->at <= '9'; s->at++) digits++;
  if (!digits) return false;
  if (take(s, '.')) {
    int decimals = 0;
    for (; s->at < s->end && *s->at >= '0' && *s->at <= '9'; s->at++) decimals++;
    if (!decimals) return false;
  }
  const bool ends = s->at >= s->end || !strchr("0123456789.eE+-", *s->at) || !*s->at;
  return ends && s->at - begin <= MOST_NUMBER;
}

static bool skip_word(scan *s, const char *word) {
  const size_t length = strlen(word);
  if ((size_t)(s->end - s->at) < length || memcmp(s->at, word, length) != 0) return false;
  s->at += length;
  return true;
}

static bool skip_value(scan *s, int depth);

/* After the opening bracket, past the closing one. */
static bool skip_list(scan *s, int depth) {
  skip_blanks(s);
  if (take(s, ']')) return true;
  do {
    if (!skip_value(s, depth)) return false;
    skip_blanks(s);
  } while (take(s, ','));
  return take(s, ']');
}

/* A key and the colon after it; `found` is its text. */
static bool take_key(scan *s, const char **found, size_t *bytes) {
  bool escaped;
  skip_blanks(s);
  if (!take(s, '"')) return false;
  *found = s->at;
  if (!skip_string(s, &escaped) || escaped) return false;
  *bytes = (size_t)(s->at - *found) - 1;
  skip_blanks(s);
  if (!take(s, ':')) return false;
  skip_blanks(s);
  return true;
}

static bool skip_object(scan *s, int depth) {
  const char *key;
  size_t bytes;
  skip_blanks(s);
  if (take(s, '}')) return true;
  do {
    if (!take_key(s, &key, &bytes) || !skip_value(s, depth)) return false;
    skip_blanks(s);
  } while (take(s, ','));
  return take(s, '}');
}

static bool skip_value(scan *s, int depth) {
  bool escaped;
  skip_blanks(s);
  if (depth >= MOST_DEPTH || s->at >= s->end) return false;
  if (take(s, '"')) return skip_string(s, &escaped);
  if (take(s, '{')) return skip_object(s, depth + 1);
  if (take(s, '[')) return skip_list(s, depth + 1);
  if (*s->at == 't') return skip_word(s, "true");
  if (*s->at == 'f') return skip_word(s, "false");
  if (*s->at == 'n') return skip_word(s, "null");
  return skip_number(s);
}

static char *put_character(char *to, int32_t point) {
  if (point < 0x80) {
    *to++ = (char)point;
    return to;
  }
  const int tails = point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
  static const unsigned char heads[] = {0, 0xc0, 0xe0, 0xf0};
  *to++ = (char)(heads[tails] | point >> 6 * tails);
  for (int t = tails - 1; t >= 0; t--) *to++ = (char)(0x80 | (point >> 6 * t & 0x3f));
  return to;
}

/* In place: an escape is never shorter than its character. Returns the bytes that are left. */
static int64_t unescape(char *text, const char *end) {
  char *to = text;
  for (const char *at = text; at < end;) {
    const char *slash = memchr(at, '\\', (size_t)(end - at));
    const size_t plain = (size_t)((slash ? slash : end) - at);
    memmove(to, at, plain);
    to += plain;
    at += plain;
    if (at == end) break;
    int32_t point = 0;
    at += escape_of(at, end, &point);
    to = put_character(to, point);
  }
  return to - text;
}

char *ls_json_scan(char *line, int64_t bytes, const char *key, int64_t *found_bytes) {
  scan s = {line, line + bytes};
  const size_t key_bytes = strlen(key);
  const char *begin = NULL, *end = NULL, *name;
  bool escaped = false;
  skip_blanks(&s);
  if (!take(&s, '{')) return NULL;
  do {
    size_t name_bytes;
    if (!take_key(&s, &name, &name_bytes)) return NULL;
    if (name_bytes == key_bytes && memcmp(name, key, key_bytes) == 0) {
      if (!take(&s, '"')) return NULL;
      begin = s.at;
      if (!skip_string(&s, &escaped)) return NULL;
      end = s.at - 1;
    } else if (!skip_value(&s, 1)) {
      return NULL;
    }
    skip_blanks(&s);
  } while (take(&s, ','));
  if (!take(&s, '}') || !begin) return NULL;
  skip_blanks(&s);
  if (s.at != s.end) return NULL;
  char *text = line + (begin - line);
  *found_bytes = escaped ? unescape(text, end) : end - begin;
  return text;
}
