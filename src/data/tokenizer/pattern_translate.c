#include "data/tokenizer/pattern_translate.h"

#include <string.h>

#include "text/quote.h"

/* White_Space, which is what \s is in both sources; PCRE2's \s has U+180E too. */
#define SPACES                                                                                     \
  "\\x09-\\x0d\\x20\\x85\\xa0\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{" \
  "3000}"
#define NO_SPACES                                                                            \
  "\\x00-\\x08\\x0e-\\x1f\\x21-\\x84\\x86-\\x9f\\xa1-\\x{167f}\\x{1681}-\\x{1fff}\\x{200b}-" \
  "\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}"
/* \w: Alphabetic, marks, decimal digits, connectors; PCRE2's differs from version to version. */
#define WORDS                                                                            \
  "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-" \
  "\\x{1f169}\\x{1f170}-\\x{1f189}"

enum { DEEPEST = 250 }; /* classes in classes, groups in groups: PCRE2's own limit of groups */

typedef struct translator {
  const char *where, *source, *at;
  bool ruby;
  char *out;
  size_t count, capacity;
} translator;

static ls_status refuse(const translator *self, const char *what, ls_error *error) {
  char shown[LS_QUOTE_BYTES], sign[LS_QUOTE_BYTES];
  const size_t left = strlen(self->at);
  return ls_fail(error, LS_INPUT, "%s: the pattern \"%s\" has %s at \"%s\", which is not supported",
                 self->where, ls_quote(shown, self->source, strlen(self->source)), what,
                 ls_quote(sign, self->at, left < 12 ? left : 12));
}

static void put(translator *self, const char *text, size_t bytes) {
  LS_ASSERT(self->capacity - self->count > bytes);
  memcpy(self->out + self->count, text, bytes);
  self->count += bytes;
}

static void put_text(translator *self, const char *text) {
  put(self, text, strlen(text));
}

/* \p{L}, \p{^Lu}, \P{N}: general categories are the same everywhere, other names are not. */
static ls_status take_property(translator *self, ls_error *error) {
  const char *name = self->at + 2;
  if (*name == '{') name++;
  if (*name == '^') name++;
  const size_t length = strspn(name, "LMNPSZCltmondcfskpui&eaw");
  const bool braces = self->at[2] == '{';
  const bool closed = braces ? name[length] == '}' : length >= 1;
  if (!*name || !strchr("LMNPSZC", *name) || !closed || (braces && length > 2)) {
    return refuse(self, "a property other than a general category", error);
  }
  const size_t bytes = braces ? (size_t)(name + length + 1 - self->at) : 3;
  put(self, self->at, bytes);
  self->at += bytes;
  return LS_OK;
}

static bool is_hex(char c) {
  return strchr("0123456789abcdefABCDEF", c) && c;
}

/* \xHH, \x{H...}, \uHHHH */
static ls_status take_hex(translator *self, ls_error *error) {
  const char *digits = self->at + 2;
  const bool braces = *digits == '{';
  if (braces) digits++;
  size_t length = 0;
  while (is_hex(digits[length]) && length < 8) length++;
  const size_t wanted = self->at[1] == 'u' ? 4 : 2;
  if (braces ? digits[length] != '}' || length == 0 || length > 6 : length < wanted) {
    return refuse(self, "a character's number that is not whole", error);
  }
  if (!braces) length = wanted;
  put_text(self, "\\x{");
  put(self, digits, length);
  put_text(self, "}");
  self->at = digits + length + (braces ? 1 : 0);
  return LS_OK;
}

/* A backslash and what belongs to it. */
static ls_status take_escape(translator *self, bool in_class, ls_error *error) {
  const char sign = self->at[1];
  const char *made = NULL;
  switch (sign) {
    case 0: return refuse(self, "a backslash at its end", error);
    case 's': made = in_class ? SPACES : "[" SPACES "]"; break;
    case 'S': made = in_class ? NO_SPACES : "[^" SPACES "]"; break;
    case 'w': made = in_class ? WORDS : "[" WORDS "]"; break;
    case 'W': made = in_class ? NULL : "[^" WORDS "]"; break;
    case 'd': made = "\\p{Nd}"; break;
    case 'D': made = "\\P{Nd}"; break;
    case 'r': made = "\\r"; break;
    case 'n': made = "\\n"; break;
    case 't': made = "\\t"; break;
    case 'f': made = "\\f"; break;
    case 'p':
    case 'P': return take_property(self, error);
    case 'x':
    case 'u': return take_hex(self, error);
    case 'A': made = in_class ? NULL : "\\A"; break;
    case 'z': made = in_class ? NULL : "\\z"; break;
  }
  if (made) {
    put_text(self, made);
    self->at += 2;
    return LS_OK;
  }
  const bool letter = (sign >= 'a' && sign <= 'z') || (sign >= 'A' && sign <= 'Z');
  const bool digit = sign >= '0' && sign <= '9';
  if (letter || digit || (unsigned char)sign >= 0x80) return refuse(self, "an escape", error);
  put(self, self->at, 2);
  self->at += 2;
  return LS_OK;
}

/* A class; classes inside it join it, as unions do. PCRE2 would read their brackets as signs. */
static ls_status take_class(translator *self, ls_error *error) {
  int depth = 1;
  put_text(self, "[");
  self->at++;
  if (*self->at == '^') {
    put_text(self, "^");
    self->at++;
  }
  if (*self->at == ']') return refuse(self, "a class that begins with a bracket", error);
  while (depth > 0) {
    const char sign = *self->at;
    if (!sign) return refuse(self, "a class without end", error);
    if (sign == '[') {
      const char next = self->at[1];
      if (next == ':' || next == '^' || next == ']' || depth == DEEPEST)
        return refuse(self, "a class of that kind in a class", error);
      depth++;
      self->at++;
    } else if (sign == ']') {
      depth--;
      self->at++;
    } else if (sign == '&' && self->at[1] == '&') {
      return refuse(self, "an intersection of classes", error);
    } else if (!self->ruby && (sign == '-' || sign == '~') && self->at[1] == sign) {
      return refuse(self, "a difference of classes", error);
    } else if (sign == '\\') {
      LS_TRY(take_escape(self, true, error));
    } else {
      put(self, self->at++, 1);
    }
  }
  put_text(self, "]");
  return LS_OK;
}

/* "(" and what says of which kind the group is. */
static ls_status take_group(translator *self, ls_error *error) {
  static const char *const known[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?i)"};
  if (self->at[1] == '*') return refuse(self, "a verb", error);
  if (self->at[1] != '?') {
    put(self, self->at++, 1);
    return LS_OK;
  }
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    const size_t length = strlen(known[i]);
    if (strncmp(self->at, known[i], length) != 0) continue;
    put(self, self->at, length);
    self->at += length;
    return LS_OK;
  }
  return refuse(self, "a group", error);
}

static ls_status take_sign(translator *self, ls_error *error) {
  switch (*self->at) {
    case '\\': return take_escape(self, false, error);
    case '[': return take_class(self, error);
    case '(': return take_group(self, error);
    case '^': put_text(self, self->ruby ? "(?m:^)" : "\\A"); break;
    case '$': put_text(self, self->ruby ? "(?m:$)" : "\\z"); break;
    case '}':
      /* Ruby repeats the repetition, the others make it possessive. */
      if (self->ruby && self->at[1] == '+') return refuse(self, "a repeated repetition", error);
      put_text(self, "}");
      break;
    default: put(self, self->at, 1);
  }
  self->at++;
  return LS_OK;
}

ls_status ls_pattern_translate(ls_arena *arena, const char *where, const char *source,
                               ls_pattern_syntax syntax, const char **translated, ls_error *error) {
  /* The longest translation of two signs is that of \S in a class. */
  const size_t most = (strlen(source) / 2 + 1) * (sizeof NO_SPACES + 8) + 16;
  translator self = {.where = where,
                     .source = source,
                     .at = source,
                     .ruby = syntax == LS_PATTERN_RUBY,
                     .out = ls_arena_alloc(arena, most),
                     .capacity = most};
  while (*self.at) LS_TRY(take_sign(&self, error));
  self.out[self.count] = 0;
  *translated = self.out;
  return LS_OK;
}
