#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "chat/jinja_value.h"
#include "text/quote.h"
#include "tokenizer/unicode.h"

/* A source on its way to tokens. */
typedef struct lexer {
  ls_jinja_source *source;
  const char *at, *end;
  int line;
  bool line_starts; /* what was read last ended with a line */
  ls_error *error;
} lexer;

size_t ls_jinja_character(const char *at, const char *end) {
  const size_t bytes = ls_utf8_length(at, (size_t)(end - at));
  return bytes ? bytes : 1;
}

/* Python's str.isspace: White_Space, and four separators of ASCII. */
static bool is_space(uint32_t point) {
  if (point < 0x80)
    return point == ' ' || (point >= 9 && point <= 13) || (point >= 28 && point < 32);
  return ls_unicode_is_space(point);
}

size_t ls_jinja_space(const char *at, const char *end) {
  if (at >= end) return 0;
  const size_t bytes = ls_utf8_length(at, (size_t)(end - at));
  if (!bytes) return 0;
  const char *next = at;
  return is_space(ls_unicode_next(&next)) ? bytes : 0;
}

size_t ls_jinja_space_before(const char *begin, const char *at) {
  for (size_t bytes = 1; bytes <= 3 && begin + bytes <= at; bytes++) {
    if (((unsigned char)at[-(ptrdiff_t)bytes] & 0xC0) == 0x80) continue;
    return ls_jinja_space(at - bytes, at) == bytes ? bytes : 0;
  }
  return 0;
}

static bool sees(const lexer *self, const char *text) {
  const size_t bytes = strlen(text);
  return (size_t)(self->end - self->at) >= bytes && memcmp(self->at, text, bytes) == 0;
}

static void move(lexer *self, size_t bytes) {
  for (; bytes > 0; bytes--) self->line += *self->at++ == '\n';
}

static void skip_spaces(lexer *self) {
  for (size_t bytes; (bytes = ls_jinja_space(self->at, self->end)) > 0;) move(self, bytes);
}

static ls_jinja_token *add(lexer *self, ls_jinja_token_kind kind) {
  ls_jinja_token *token = LS_APPEND(self->source->arena, &self->source->tokens);
  *token = (ls_jinja_token){.kind = kind, .line = self->line, .text = self->at};
  return token;
}

static ls_status refuse(const lexer *self, const char *expected) {
  char shown[LS_QUOTE_BYTES];
  const size_t left = (size_t)(self->end - self->at);
  if (left == 0)
    return ls_fail(self->error, LS_INPUT, "%s:%d: found the end of the template; expected %s",
                   self->source->name, self->line, expected);
  return ls_fail(self->error, LS_INPUT, "%s:%d: found \"%s\"; expected %s", self->source->name,
                 self->line, ls_quote(shown, self->at, left < 20 ? left : 20), expected);
}

/* The text up to a tag: `sign` behind the tag's beginning strips all white space before it; that
 * of its own line alone goes, but for '+' and {{. */
static void add_data(lexer *self, const char *begin, const char *end, char sign, bool lstrip) {
  if (sign == '-') {
    for (size_t bytes; (bytes = ls_jinja_space_before(begin, end)) > 0;) end -= bytes;
  } else if (sign != '+' && lstrip) {
    const char *line = end;
    while (line > begin && line[-1] != '\n') line--;
    const char *at = line;
    for (size_t bytes; (bytes = ls_jinja_space(at, end)) > 0;) at += bytes;
    if (at == end && (line > begin || self->line_starts)) end = line;
  }
  if (end == begin) return;
  ls_jinja_token *token = add(self, LS_LEX_DATA);
  token->text = begin;
  token->bytes = (size_t)(end - begin);
}

/* The end of a tag, with what it takes of the text behind: a line's end, unless '+' is before it,
 * or with '-' all white space. */
static bool take_close(lexer *self, const char *close, bool trims) {
  const char *from = self->at;
  const bool minus = *from == '-', plus = *from == '+' && trims;
  self->at += minus || plus;
  if (!sees(self, close)) {
    self->at = from;
    return false;
  }
  move(self, 2);
  if (minus)
    skip_spaces(self);
  else if (trims && !plus && sees(self, "\n"))
    move(self, 1);
  self->line_starts = self->at[-1] == '\n';
  return true;
}

static ls_status lex_comment(lexer *self) {
  const int begun = self->line;
  move(self, 2);
  for (; self->at < self->end; move(self, 1))
    if (take_close(self, "#}", true)) return LS_OK;
  self->line = begun;
  return refuse(self, "#} behind the {# of this line");
}

/* {% raw %}: what follows is text up to {% endraw %}. */
static bool begins_raw(const lexer *self, const char *word, const char **behind) {
  lexer look = *self;
  look.at += 2;
  if (look.at < look.end && (*look.at == '-' || *look.at == '+')) look.at++;
  skip_spaces(&look);
  if (!sees(&look, word)) return false;
  look.at += strlen(word);
  skip_spaces(&look);
  *behind = look.at;
  return sees(&look, "%}") || sees(&look, "-%}") || sees(&look, "+%}");
}

static ls_status lex_raw(lexer *self, const char *behind) {
  move(self, (size_t)(behind - self->at));
  if (!take_close(self, "%}", false)) return refuse(self, "%} behind raw");
  const char *begin = self->at;
  for (; self->at < self->end; move(self, 1)) {
    if (!sees(self, "{%") || !begins_raw(self, "endraw", &behind)) continue;
    add_data(self, begin, self->at, self->at[2], true);
    move(self, (size_t)(behind - self->at));
    return take_close(self, "%}", true) ? LS_OK : refuse(self, "%} behind endraw");
  }
  return refuse(self, "{% endraw %}");
}

static int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : 16;
}

/* A character by its number: `most` digits, all of them unless octal. *at is behind the letter. */
static bool numbered(const char **at, const char *end, int base, int most, uint32_t *point) {
  int count = 0;
  *point = 0;
  for (; count < most && *at < end && digit_of(**at) < base; count++, (*at)++)
    *point = *point * (uint32_t)base + (uint32_t)digit_of(**at);
  return (base == 8 || count == most) && *point <= 0x10FFFF && (*point & 0xFFFFF800) != 0xD800;
}

/* What `\` and the character at *at stand for, as in Python; false: no such character. */
static bool escape(const char **at, const char *end, char **to) {
  static const char letters[] = "abfnrtv\\'\"", stand_for[] = "\a\b\f\n\r\t\v\\'\"";
  const char c = **at;
  const char *found = c ? strchr(letters, c) : NULL;
  uint32_t point;
  if (found) {
    *(*to)++ = stand_for[found - letters];
    (*at)++;
    return true;
  }
  if (c == '\n') {
    (*at)++;
    return true;
  }
  const int most = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
  if (most == 0 && !(c >= '0' && c <= '7')) {
    *(*to)++ = '\\'; /* which stays */
    return true;
  }
  if (most > 0) (*at)++;
  if (!numbered(at, end, most ? 16 : 8, most ? most : 3, &point)) return false;
  *to += ls_unicode_put(point, *to);
  return true;
}

static ls_status lex_string(lexer *self) {
  const char quote = *self->at;
  const char *at = self->at + 1;
  while (at < self->end && *at != quote) at += *at == '\\' && at + 1 < self->end ? 2 : 1;
  if (at >= self->end) return refuse(self, "a quote that ends the string");
  char *made = ls_arena_alloc(self->source->arena, (size_t)(at - self->at) + 4), *to = made;
  ls_jinja_token *token = add(self, LS_LEX_STRING);
  for (const char *from = self->at + 1; from < at;) {
    if (*from != '\\') {
      *to++ = *from++;
      continue;
    }
    from++;
    if (!escape(&from, at, &to)) return refuse(self, "an escape of Python's, as \\n or \\u00e9");
  }
  token->text = made;
  token->bytes = (size_t)(to - made);
  move(self, (size_t)(at + 1 - self->at));
  return LS_OK;
}

static bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

static bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static ls_status lex_number(lexer *self) {
  char digits[64];
  size_t count = 0;
  bool real = false;
  const char *at = self->at;
  for (; at < self->end && count + 1 < sizeof digits; at++) {
    const bool fraction = *at == '.' && !real && at + 1 < self->end && is_digit(at[1]);
    const size_t sign = at + 1 < self->end && (at[1] == '-' || at[1] == '+') ? 2 : 1;
    const bool power = (*at == 'e' || *at == 'E') && at + sign < self->end && is_digit(at[sign]);
    if (!is_digit(*at) && !fraction && !power && *at != '_') break;
    real = real || fraction || power;
    if (*at != '_') digits[count++] = *at;
    if (power && sign == 2) digits[count++] = *++at;
  }
  digits[count] = 0;
  ls_jinja_token *token = add(self, real ? LS_LEX_REAL : LS_LEX_INT);
  errno = 0;
  if (real)
    token->real = strtod(digits, NULL);
  else
    token->whole = strtoll(digits, NULL, 10);
  if (errno != 0 || (at < self->end && (is_letter(*at) || is_digit(*at))))
    return refuse(self, "a decimal number of at most 64 bits");
  self->at = at;
  return LS_OK;
}

static ls_status lex_sign(lexer *self, char *open, int *depth) {
  static const char *const signs[] = {"**", "//", "==", "!=", ">=", "<=", "+", "-", "*",
                                      "/",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                      "<",  ">",  "=",  ".",  ":",  "|",  ",", NULL};
  for (int s = 0; signs[s]; s++) {
    if (!sees(self, signs[s])) continue;
    ls_jinja_token *token = add(self, LS_LEX_SIGN);
    token->text = signs[s];
    token->bytes = strlen(signs[s]);
    const char c = *self->at;
    if (c == '(' || c == '[' || c == '{') {
      if (*depth == LS_JINJA_DEPTH) return refuse(self, "fewer brackets in each other");
      open[(*depth)++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
      if (*depth == 0 || open[--*depth] != c) return refuse(self, "a bracket that was opened");
    }
    self->at += token->bytes;
    return LS_OK;
  }
  return refuse(self, "an expression");
}

/* What lies between {{ and }}, or {% and %}. */
static ls_status lex_tag(lexer *self, bool block) {
  char open[LS_JINJA_DEPTH];
  int depth = 0;
  add(self, block ? LS_LEX_BLOCK : LS_LEX_PRINT);
  move(self, 2);
  if (self->at < self->end && (*self->at == '-' || *self->at == '+')) self->at++;
  for (;;) {
    skip_spaces(self);
    if (self->at == self->end) return refuse(self, block ? "%}" : "}}");
    const int line = self->line;
    if (depth == 0 && take_close(self, block ? "%}" : "}}", block)) {
      add(self, LS_LEX_CLOSE)->line = line;
      return LS_OK;
    }
    if (*self->at == '"' || *self->at == '\'') {
      LS_TRY(lex_string(self));
    } else if (is_digit(*self->at)) {
      LS_TRY(lex_number(self));
    } else if (is_letter(*self->at)) {
      const char *end = self->at;
      while (end < self->end && (is_letter(*end) || is_digit(*end))) end++;
      add(self, LS_LEX_NAME)->bytes = (size_t)(end - self->at);
      self->at = end;
    } else {
      LS_TRY(lex_sign(self, open, &depth));
    }
  }
}

ls_status ls_jinja_lex(ls_jinja_source *source, ls_error *error) {
  lexer self = {.source = source,
                .at = source->text,
                .end = source->text + source->bytes,
                .line = 1,
                .line_starts = true,
                .error = error};
  while (self.at < self.end) {
    const char *begin = self.at;
    while (self.at < self.end && !sees(&self, "{{") && !sees(&self, "{%") && !sees(&self, "{#"))
      move(&self, 1);
    const size_t left = (size_t)(self.end - self.at);
    add_data(&self, begin, self.at, left > 2 ? self.at[2] : 0, left > 0 && self.at[1] != '{');
    if (left == 0) break;
    const char *behind;
    self.line_starts = false;
    if (self.at[1] == '#')
      LS_TRY(lex_comment(&self));
    else if (self.at[1] == '%' && begins_raw(&self, "raw", &behind))
      LS_TRY(lex_raw(&self, behind));
    else
      LS_TRY(lex_tag(&self, self.at[1] == '%'));
  }
  add(&self, LS_LEX_END);
  return LS_OK;
}
