/* The run file as text: the resolved file, and what differs between two. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "text/number.h"
#include "text/quote.h"
#include "text/run_keys.h"

static const void *field(const ls_run_file *run, const ls_run_key *key) {
  return (const char *)run + key->offset;
}

/* The code point of the `length` bytes at `text`, which are UTF-8. */
static uint32_t code_point(const char *text, size_t length) {
  static const uint8_t first_bits[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
  uint32_t point = (uint8_t)text[0] & first_bits[length];
  for (size_t i = 1; i < length; i++) point = point << 6 | ((uint8_t)text[i] & 0x3f);
  return point;
}

/* Whether YAML takes the character as it stands between double quotes, on the same line. */
static bool is_printable(uint32_t point) {
  if (point < 0x20 || (point >= 0x7f && point < 0xa0)) return false;
  if (point == 0x2028 || point == 0x2029 || point == 0xfeff) return false;
  return point < 0xfffe || point > 0xffff;
}

static char *quoted(ls_arena *arena, const char *text) {
  const size_t bytes = strlen(text);
  char *out = ls_arena_alloc(arena, 10 * bytes + 3); /* the longest escape is \UXXXXXXXX */
  size_t used = 0;
  out[used++] = '"';
  for (size_t i = 0; i < bytes;) {
    size_t length = ls_utf8_length(text + i, bytes - i);
    const uint32_t point = length ? code_point(text + i, length) : 0xfffd;
    if (point == '"' || point == '\\') {
      out[used++] = '\\';
      out[used++] = (char)point;
    } else if (length && is_printable(point)) {
      memcpy(out + used, text + i, length);
      used += length;
    } else {
      used += (size_t)snprintf(out + used, 11, "\\U%08X", point);
    }
    i += length ? length : 1;
  }
  out[used++] = '"';
  out[used] = 0;
  return out;
}

/* A word that no YAML reader takes for anything but itself needs no quotes. */
static bool is_plain_word(const char *text) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  static const char *const taken[] = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"};
  if (strspn(text, letters) == 0) return false;
  for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
    if (strcasecmp(text, taken[i]) == 0) return false;
  }
  return strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-") ==
         strlen(text);
}

static char *text_of(ls_arena *arena, const char *text) {
  return is_plain_word(text) ? ls_arena_strdup(arena, text) : quoted(arena, text);
}

static char *number_of(ls_arena *arena, double value) {
  char text[LS_NUMBER_BYTES];
  ls_number_write(text, value);
  return ls_arena_strdup(arena, text);
}

static char *globs_of(ls_arena *arena, const ls_run_globs *globs) {
  char *text = ls_arena_strdup(arena, "[");
  for (int i = 0; i < globs->count; i++) {
    text = ls_arena_printf(arena, "%s%s%s", text, i ? ", " : "", text_of(arena, globs->items[i]));
  }
  return ls_arena_printf(arena, "%s]", text);
}

static char *texts_of(ls_arena *arena, const ls_run_texts *texts) {
  char *text = ls_arena_strdup(arena, "[");
  for (int i = 0; i < texts->count; i++) {
    const ls_run_text *each = &texts->items[i];
    char *item = text_of(arena, each->path);
    if (each->weight > 0 || each->field) item = ls_arena_printf(arena, "{path: %s", item);
    if (each->weight > 0)
      item = ls_arena_printf(arena, "%s, weight: %s", item, number_of(arena, each->weight));
    if (each->field)
      item = ls_arena_printf(arena, "%s, field: %s", item, text_of(arena, each->field));
    if (each->weight > 0 || each->field) item = ls_arena_printf(arena, "%s}", item);
    text = ls_arena_printf(arena, "%s%s%s", text, i ? ", " : "", item);
  }
  return ls_arena_printf(arena, "%s]", text);
}

static char *groups_of(ls_arena *arena, const ls_run_groups *groups) {
  char *text = ls_arena_strdup(arena, "[");
  for (int i = 0; i < groups->count; i++) {
    const ls_run_group *each = &groups->items[i];
    text =
        ls_arena_printf(arena, "%s%s{match: %s", text, i ? ", " : "", text_of(arena, each->match));
    if (each->weight_decay >= 0)
      text = ls_arena_printf(arena, "%s, weight_decay: %s", text,
                             number_of(arena, each->weight_decay));
    if (each->lr > 0)
      text = ls_arena_printf(arena, "%s, lr: %s%s", text, number_of(arena, each->lr),
                             each->lr_times ? "x" : "");
    if (each->rank) text = ls_arena_printf(arena, "%s, rank: %lld", text, (long long)each->rank);
    if (each->alpha > 0)
      text = ls_arena_printf(arena, "%s, alpha: %s", text, number_of(arena, each->alpha));
    text = ls_arena_printf(arena, "%s}", text);
  }
  return ls_arena_printf(arena, "%s]", text);
}

static char *choice_of(ls_arena *arena, const char *words, int index) {
  for (; index > 0; index--) words += strcspn(words, " ") + 1;
  return ls_arena_printf(arena, "%.*s", (int)strcspn(words, " "), words);
}

static char *whole_of(ls_arena *arena, const ls_run_key *key, int64_t value) {
  char size[LS_NUMBER_BYTES];
  if (key->word && value == key->word_value) return ls_arena_strdup(arena, key->word);
  if (key->kind == LS_RUN_INTEGER) return ls_arena_printf(arena, "%lld", (long long)value);
  ls_size_write(size, value);
  return ls_arena_strdup(arena, size);
}

char *ls_run_key_text(ls_arena *arena, const ls_run_file *run, const ls_run_key *key) {
  const void *value = field(run, key);
  switch (key->kind) {
    case LS_RUN_TEXT: return text_of(arena, *(const char *const *)value);
    case LS_RUN_CHOICE: return choice_of(arena, key->words, *(const int *)value);
    case LS_RUN_INTEGER:
    case LS_RUN_SIZE: return whole_of(arena, key, *(const int64_t *)value);
    case LS_RUN_NUMBER: {
      const double number = *(const double *)value;
      if (key->word && number == (double)key->word_value) return ls_arena_strdup(arena, key->word);
      return number_of(arena, number);
    }
    case LS_RUN_BOOL: return ls_arena_strdup(arena, *(const bool *)value ? "true" : "false");
    case LS_RUN_SPAN: {
      const ls_run_span *span = value;
      return ls_arena_printf(arena, "%s%s", number_of(arena, span->value),
                             span->percent ? "%" : "");
    }
    case LS_RUN_PAIR: {
      const double *pair = value;
      return ls_arena_printf(arena, "[%s, %s]", number_of(arena, pair[0]),
                             number_of(arena, pair[1]));
    }
    case LS_RUN_GLOBS: return globs_of(arena, value);
    case LS_RUN_TEXTS: return texts_of(arena, value);
    case LS_RUN_GROUPS: return groups_of(arena, value);
    case LS_RUN_VALIDATION: {
      const ls_run_validation *part = value;
      return part->globs.count ? globs_of(arena, &part->globs) : number_of(arena, part->fraction);
    }
  }
  ls_panic("%s: kind %d is not known", key->name, (int)key->kind);
}

/* Zero, as an int64_t or a double: the key of a pair that is not used. */
static bool is_unset(const ls_run_file *run, const ls_run_key *key) {
  const int64_t none = 0;
  return memcmp(field(run, key), &none, sizeof none) == 0;
}

bool ls_run_key_is_written(const ls_run_file *run, const ls_run_key *key) {
  if (!key->excludes) return true;
  if (is_unset(run, key)) return false;
  const ls_run_key *partner = ls_run_key_find(key->excludes);
  return partner > key || is_unset(run, partner);
}

char *ls_run_file_text(ls_arena *arena, const ls_run_file *run) {
  char *text = ls_arena_strdup(arena, "");
  const char *section = "";
  size_t section_bytes = 0;
  for (int i = 0; i < ls_run_key_count; i++) {
    const ls_run_key *key = &ls_run_keys[i];
    if (!ls_run_key_is_written(run, key)) continue;
    const char *point = strchr(key->name, '.');
    const size_t bytes = point ? (size_t)(point - key->name) : 0;
    const bool same = bytes == section_bytes && strncmp(section, key->name, bytes) == 0;
    if (bytes && !same) text = ls_arena_printf(arena, "%s%.*s:\n", text, (int)bytes, key->name);
    section = key->name;
    section_bytes = bytes;
    text = ls_arena_printf(arena, "%s%s%s: %s\n", text, bytes ? "  " : "",
                           point ? point + 1 : key->name, ls_run_key_text(arena, run, key));
  }
  return text;
}

ls_status ls_run_file_write(const ls_run_file *run, const char *path, ls_error *error) {
  ls_arena *arena = ls_arena_create();
  const char *text = ls_run_file_text(arena, run);
  const ls_status status = ls_file_write(path, text, strlen(text), error);
  ls_arena_destroy(&arena);
  return status;
}

ls_run_differences ls_run_file_diff(ls_arena *arena, const ls_run_file *before,
                                    const ls_run_file *after) {
  ls_run_differences found = {.items = LS_NEW_ARRAY(arena, ls_run_difference, ls_run_key_count)};
  for (int i = 0; i < ls_run_key_count; i++) {
    const ls_run_key *key = &ls_run_keys[i];
    const bool had = ls_run_key_is_written(before, key), has = ls_run_key_is_written(after, key);
    const char *old = had ? ls_run_key_text(arena, before, key) : "none";
    const char *new = has ? ls_run_key_text(arena, after, key) : "none";
    if (strcmp(old, new) == 0) continue;
    found.items[found.count++] = (ls_run_difference){key->name, old, new, key->effect};
    if (key->effect == LS_RUN_MATHEMATICS) found.mathematics = true;
  }
  return found;
}

ls_status ls_run_file_may_resume(ls_arena *arena, const ls_run_file *before,
                                 const ls_run_file *after, const char *checkpoint,
                                 ls_error *error) {
  const ls_run_differences found = ls_run_file_diff(arena, before, after);
  if (!found.mathematics) return LS_OK;
  const char *list = "";
  for (int i = 0; i < found.count; i++) {
    const ls_run_difference *each = &found.items[i];
    if (each->effect != LS_RUN_MATHEMATICS) continue;
    list = ls_arena_printf(arena, "%s%s%s (was %s, now %s)", list, list[0] ? ", " : "", each->key,
                           each->before, each->after);
  }
  return ls_fail(
      error, LS_INPUT,
      "%s holds a run that differs in %s: give --fresh to start anew, another out, or to "
      "go on from its weights model=%s with another out (see lockstep help resume)",
      after->out, list, checkpoint);
}
