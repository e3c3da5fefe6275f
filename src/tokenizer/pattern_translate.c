#include "tokenizer/pattern_translate.h"

#include <stdio.h>
#include <string.h>

#include "tokenizer/pattern_read.h"
#include "tokenizer/unicode.h"

enum {
  DEEPEST = 250, /* groups in groups, which is PCRE2's own limit */
  LONGEST = 8192,
  SIGN_MOST = 6,  /* bytes that a sign becomes */
  SET_MOST = 1100 /* and a set: half of all symbols, each with a range's sign */
};

/* A set stands in the translation at a place that is known before its symbols are. */
typedef struct placed_set {
  size_t at;
  ls_point_set set;
} placed_set;

typedef struct translator {
  ls_pattern_reader reader;
  bool outside[DEEPEST]; /* of each open group: whether case counted before it */
  int depth;
  char *out;
  size_t count;
  LS_LIST(placed_set) sets;
} translator;

static void put(translator *self, const char *text, size_t bytes) {
  memcpy(self->out + self->count, text, bytes);
  self->count += bytes;
}

static void put_text(translator *self, const char *text) {
  put(self, text, strlen(text));
}

static void put_set(translator *self, ls_point_set set) {
  *LS_APPEND(self->reader.arena, &self->sets) = (placed_set){self->count, set};
}

/* "(" and what says of which kind the group is. */
static ls_status take_group(translator *self, ls_error *error) {
  static const char *const known[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>"};
  ls_pattern_reader *reader = &self->reader;
  if (reader->at[1] == '*') return ls_pattern_refuse(reader, "a verb", error);
  if (strncmp(reader->at, "(?i)", 4) == 0) {
    /* Behind something Ruby makes the rest of the group, with its branches, one group. */
    if (reader->at > reader->source) return ls_pattern_refuse(reader, "a late (?i)", error);
    reader->any_case = true;
    reader->at += 4;
    if (*reader->at && strchr("*+?{", *reader->at)) {
      return ls_pattern_refuse(reader, "a repetition of nothing", error);
    }
    return LS_OK;
  }
  const char *made = reader->at[1] == '?' ? NULL : "(";
  size_t length = 1;
  for (size_t i = 0; !made && i < sizeof known / sizeof *known; i++) {
    length = strlen(known[i]);
    if (strncmp(reader->at, known[i], length) == 0) made = known[i];
  }
  const bool any_case = strncmp(reader->at, "(?i:", 4) == 0;
  if (any_case) {
    made = "(?:";
    length = 4;
  }
  if (!made) return ls_pattern_refuse(reader, "a group", error);
  if (self->depth == DEEPEST) return ls_pattern_refuse(reader, "too deep a group", error);
  self->outside[self->depth++] = reader->any_case;
  reader->any_case |= any_case;
  put_text(self, made);
  reader->at += length;
  return LS_OK;
}

/* A group's end; one that nothing began is left for PCRE2 to name. */
static void take_end(translator *self) {
  if (self->depth > 0) self->reader.any_case = self->outside[--self->depth];
  put_text(self, ")");
  self->reader.at++;
}

static ls_status take_escape(translator *self, ls_error *error) {
  ls_pattern_reader *reader = &self->reader;
  const char sign = reader->at[1];
  if (sign == 'A' || sign == 'z') {
    put(self, reader->at, 2);
    reader->at += 2;
    return LS_OK;
  }
  ls_point_set set;
  LS_TRY(ls_pattern_read_one(reader, &set, error));
  put_set(self, set);
  return LS_OK;
}

static ls_status take_sign(translator *self, ls_error *error) {
  ls_pattern_reader *reader = &self->reader;
  ls_point_set set;
  switch (*reader->at) {
    case '\\': return take_escape(self, error);
    case '(': return take_group(self, error);
    case ')': take_end(self); return LS_OK;
    case '[':
      LS_TRY(ls_pattern_read_class(reader, &set, error));
      put_set(self, set);
      return LS_OK;
    case '^': put_text(self, reader->ruby ? "(?m:^)" : "\\A"); break;
    case '$': put_text(self, reader->ruby ? "(?m:$)" : "\\z"); break;
    case '{':
      if (reader->at[1] == ',') return ls_pattern_refuse(reader, "a repetition of {,", error);
      put_text(self, "{");
      break;
    case '}':
      /* Ruby repeats the repetition, the others make it possessive. */
      if (reader->ruby && reader->at[1] == '+') {
        return ls_pattern_refuse(reader, "a repeated repetition", error);
      }
      put_text(self, "}");
      break;
    case '|':
    case '*':
    case '+':
    case '?': put(self, reader->at, 1); break;
    case '.': put_text(self, "[^\\n]"); break;
    default:
      if ((*reader->at >= '0' && *reader->at <= '9') || *reader->at == ',') {
        put(self, reader->at, 1); /* it may be of a repetition */
        break;
      }
      LS_TRY(ls_pattern_read_one(reader, &set, error));
      put_set(self, set);
      return LS_OK;
  }
  reader->at++;
  return LS_OK;
}

/* Symbols as PCRE2 reads them: one, or a class of ranges. */
static void put_symbols(translator *self, const ls_symbols *symbols, const ls_point_set *set) {
  char text[SET_MOST] = "[";
  int length = 1, count = 0;
  for (int first = 0; first < 256; first++) {
    if (!ls_symbols_has(symbols, set, first)) continue;
    int last = first;
    while (last < 255 && ls_symbols_has(symbols, set, last + 1)) last++;
    count += last - first + 1;
    length += snprintf(text + length, sizeof text - (size_t)length, "\\x%02x", (unsigned)first);
    if (last > first) {
      length += snprintf(text + length, sizeof text - (size_t)length, "-\\x%02x", (unsigned)last);
    }
    first = last;
  }
  if (count == 0) {
    put_text(self, "(?!)");
  } else if (count == 1) {
    put_text(self, text + 1);
  } else {
    put(self, text, (size_t)length);
    put_text(self, "]");
  }
}

/* The signs and, each in its place, the sets. */
static ls_status put_sets(translator *self, ls_arena *arena, const ls_symbols **symbols,
                          ls_error *error) {
  ls_arena *scratch = self->reader.arena;
  ls_point_set *sets = LS_NEW_ARRAY(scratch, ls_point_set, self->sets.count);
  for (int i = 0; i < self->sets.count; i++) sets[i] = self->sets.items[i].set;
  *symbols = ls_symbols_create(arena, sets, self->sets.count);
  if (!*symbols) {
    self->reader.at = self->reader.source;
    return ls_pattern_refuse(&self->reader, "over 128 kinds of characters beyond ASCII", error);
  }
  const char *signs = self->out;
  const size_t count = self->count;
  self->out = ls_arena_alloc(arena, count + (size_t)self->sets.count * SET_MOST + 1);
  self->count = 0;
  size_t done = 0;
  for (int i = 0; i < self->sets.count; i++) {
    put(self, signs + done, self->sets.items[i].at - done);
    put_symbols(self, *symbols, &sets[i]);
    done = self->sets.items[i].at;
  }
  put(self, signs + done, count - done);
  self->out[self->count] = 0;
  return LS_OK;
}

static ls_status translate(translator *self, ls_arena *arena, const char **translated,
                           const ls_symbols **symbols, ls_error *error) {
  const ls_span source = {self->reader.source, strlen(self->reader.source)};
  ls_bytes repaired = {0};
  const bool valid = ls_unicode_repair(source, false, &repaired).text == source.text;
  ls_bytes_free(&repaired);
  if (!valid) return ls_pattern_refuse(&self->reader, "bytes that are no UTF-8", error);
  if (source.bytes > LONGEST) {
    return ls_pattern_refuse(&self->reader, "more than 8192 bytes", error);
  }
  self->out = ls_arena_alloc(self->reader.arena, source.bytes * SIGN_MOST + 1);
  while (*self->reader.at) LS_TRY(take_sign(self, error));
  LS_TRY(put_sets(self, arena, symbols, error));
  *translated = self->out;
  return LS_OK;
}

ls_status ls_pattern_translate(ls_arena *arena, const char *where, const char *source,
                               ls_pattern_syntax syntax, const char **translated,
                               const ls_symbols **symbols, ls_error *error) {
  translator self = {.reader = {.arena = ls_arena_create(),
                                .where = where,
                                .source = source,
                                .at = source,
                                .ruby = syntax == LS_PATTERN_RUBY}};
  const ls_status status = translate(&self, arena, translated, symbols, error);
  ls_arena_destroy(&self.reader.arena);
  return status;
}
