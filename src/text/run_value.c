/* Values of the run file's keys: from YAML nodes, to text, and what each may be. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "text/number.h"
#include "text/quote.h"
#include "text/run_keys.h"

enum { WORD_BYTES = 32, MOST_RANK = 1 << 16 };

static void *field(const ls_run_file *run, const ls_run_key *key) {
  return (char *)run + key->offset;
}

/* Copies the next blank-separated word of *list, moving it on; false at the end. */
static bool next_word(const char **list, char word[WORD_BYTES]) {
  if (!*list) return false;
  *list += strspn(*list, " ");
  const size_t length = strcspn(*list, " ");
  if (length == 0 || length >= WORD_BYTES) return false;
  memcpy(word, *list, length);
  word[length] = 0;
  *list += length;
  return true;
}

static int word_index(const char *list, const char *wanted) {
  char word[WORD_BYTES];
  for (int i = 0; next_word(&list, word); i++) {
    if (strcmp(word, wanted) == 0) return i;
  }
  return -1;
}

/* "auto", "auto or cpu", "auto, fp32 or bf16". */
static char *join_words(ls_arena *arena, const char *list) {
  char word[WORD_BYTES], after[WORD_BYTES];
  char *joined = ls_arena_strdup(arena, "");
  bool more = next_word(&list, word);
  while (more) {
    more = next_word(&list, after);
    const char *peek = list;
    char rest[WORD_BYTES];
    const bool last_follows = more && !next_word(&peek, rest);
    joined =
        ls_arena_printf(arena, "%s%s%s", joined, word, last_follows ? " or " : (more ? ", " : ""));
    memcpy(word, after, sizeof word);
  }
  return joined;
}

/* Limits that nobody comes near are not named where they are kept. */
static bool names_high(const ls_run_key *key) {
  return key->high <= 1e6;
}

static char *expected_range(ls_arena *arena, const ls_run_key *key) {
  const char *what = key->kind == LS_RUN_INTEGER ? "a whole number" : "a number";
  char low[LS_NUMBER_BYTES], high[LS_NUMBER_BYTES];
  ls_number_write(low, key->low);
  ls_number_write(high, key->high);
  const bool bounded = names_high(key);
  if (key->low == key->high) return ls_arena_strdup(arena, low);
  if (key->above_low) {
    return bounded ? ls_arena_printf(arena, "%s above %s, at most %s", what, low, high)
                   : ls_arena_printf(arena, "%s above %s", what, low);
  }
  if (!bounded) return ls_arena_printf(arena, "%s of at least %s", what, low);
  return ls_arena_printf(arena, "%s from %s to %s%s", what, low, key->below_high ? "below " : "",
                         high);
}

char *ls_run_key_expected(ls_arena *arena, const ls_run_key *key) {
  char *expected = NULL;
  switch (key->kind) {
    case LS_RUN_TEXT: expected = ls_arena_strdup(arena, "text"); break;
    case LS_RUN_CHOICE: expected = join_words(arena, key->words); break;
    case LS_RUN_INTEGER:
    case LS_RUN_NUMBER: expected = expected_range(arena, key); break;
    case LS_RUN_BOOL: expected = ls_arena_strdup(arena, "true or false"); break;
    case LS_RUN_SIZE: expected = ls_arena_strdup(arena, "a size such as 2GiB"); break;
    case LS_RUN_SPAN:
      expected = ls_arena_strdup(arena, "a whole number of steps, or up to 100% of them");
      break;
    case LS_RUN_PAIR:
      expected = ls_arena_strdup(arena, "two numbers in [ ], each from 0 to below 1");
      break;
    case LS_RUN_GLOBS:
    case LS_RUN_GROUPS:
    case LS_RUN_TEXTS: expected = ls_arena_strdup(arena, key->items); break;
    case LS_RUN_VALIDATION:
      expected = ls_arena_strdup(arena, "a fraction from 0 to below 1, or a list of files");
      break;
  }
  return key->word ? ls_arena_printf(arena, "%s, or %s", expected, key->word) : expected;
}

static ls_status wrong(const ls_run_file *run, const ls_run_key *key, const ls_yaml *node,
                       ls_error *error) {
  double value;
  if (key->kind == LS_RUN_INTEGER && !names_high(key) &&
      ls_yaml_number(node, &value, NULL) == LS_OK && value > key->high) {
    char high[LS_NUMBER_BYTES];
    ls_number_write(high, key->high);
    return ls_yaml_fail(node, ls_arena_printf(run->arena, "at most %s", high), error);
  }
  return ls_yaml_fail(node, ls_run_key_expected(run->arena, key), error);
}

static ls_status set_choice(ls_run_file *run, const ls_run_key *key, const ls_yaml *node,
                            ls_error *error) {
  const int index = node->kind == LS_YAML_SCALAR ? word_index(key->words, node->text) : -1;
  if (index < 0) return wrong(run, key, node, error);
  memcpy(field(run, key), &index, sizeof index);
  return LS_OK;
}

static bool in_range(const ls_run_key *key, double value) {
  if (key->above_low ? value <= key->low : value < key->low) return false;
  return key->below_high ? value < key->high : value <= key->high;
}

/* Whole numbers may be written 1e6 too. */
static bool read_whole(const ls_yaml *node, int64_t *value) {
  if (ls_yaml_int(node, value, NULL) == LS_OK) return true;
  double number;
  if (ls_yaml_number(node, &number, NULL) != LS_OK) return false;
  if (number != floor(number) || fabs(number) > 0x1p53) return false;
  *value = (int64_t)number;
  return true;
}

static bool is_word(const ls_run_key *key, const ls_yaml *node) {
  return key->word && node->kind == LS_YAML_SCALAR && strcmp(node->text, key->word) == 0;
}

static ls_status set_whole(ls_run_file *run, const ls_run_key *key, const ls_yaml *node,
                           ls_error *error) {
  int64_t value = key->word_value;
  if (!is_word(key, node)) {
    const bool size = key->kind == LS_RUN_SIZE;
    const bool read = size ? node->kind == LS_YAML_SCALAR && ls_size_read(node->text, &value)
                           : read_whole(node, &value);
    if (!read || !in_range(key, (double)value)) return wrong(run, key, node, error);
  }
  memcpy(field(run, key), &value, sizeof value);
  return LS_OK;
}

static ls_status set_number(ls_run_file *run, const ls_run_key *key, const ls_yaml *node,
                            ls_error *error) {
  double value = (double)key->word_value;
  if (!is_word(key, node)) {
    const bool read = ls_yaml_number(node, &value, NULL) == LS_OK;
    if (!read || !in_range(key, value)) return wrong(run, key, node, error);
  }
  memcpy(field(run, key), &value, sizeof value);
  return LS_OK;
}

/* The number before the % of "3%", or another unit of one letter; false where there is none. */
static bool read_unit(const ls_yaml *node, char unit, double *value) {
  char number[LS_NUMBER_BYTES];
  if (node->kind != LS_YAML_SCALAR || !node->plain) return false;
  const size_t length = strlen(node->text);
  if (length < 2 || length > sizeof number || node->text[length - 1] != unit) return false;
  memcpy(number, node->text, length - 1);
  number[length - 1] = 0;
  return ls_number_read(number, value);
}

static bool read_percent(const ls_yaml *node, double *value) {
  return read_unit(node, '%', value);
}
static ls_status set_span(ls_run_file *run, const ls_run_key *key, const ls_yaml *node,
                          ls_error *error) {
  ls_run_span span = {0};
  int64_t whole;
  if (read_percent(node, &span.value)) {
    span.percent = true;
    if (span.value < 0 || span.value > 100) return wrong(run, key, node, error);
  } else if (read_whole(node, &whole) && in_range(key, (double)whole)) {
    span.value = (double)whole;
  } else {
    return wrong(run, key, node, error);
  }
  memcpy(field(run, key), &span, sizeof span);
  return LS_OK;
}

static ls_status set_pair(ls_run_file *run, const ls_run_key *key, const ls_yaml *node,
                          ls_error *error) {
  double pair[2];
  if (node->kind != LS_YAML_SEQUENCE || node->items.count != 2) {
    return wrong(run, key, node, error);
  }
  for (int i = 0; i < 2; i++) {
    const bool read = ls_yaml_number(node->items.items[i], &pair[i], NULL) == LS_OK;
    if (!read || !in_range(key, pair[i])) return wrong(run, key, node->items.items[i], error);
  }
  memcpy(field(run, key), pair, sizeof pair);
  return LS_OK;
}

/* {path: GLOB, weight: 2, field: text} */
static ls_status read_source(const ls_yaml *node, ls_run_text *text, ls_error *error) {
  for (int i = 0; i < node->items.count; i++) {
    const ls_yaml *part = node->items.items[i];
    if (strcmp(part->key, "path") == 0) {
      LS_TRY(ls_yaml_string(part, &text->path, error));
    } else if (strcmp(part->key, "weight") == 0) {
      LS_TRY(ls_yaml_number(part, &text->weight, error));
      if (!(text->weight > 0 && text->weight <= 1e9))
        return ls_yaml_fail(part, "a number above 0", error);
    } else if (strcmp(part->key, "field") == 0) {
      LS_TRY(ls_yaml_string(part, &text->field, error));
      if (!text->field[0]) return ls_yaml_fail(part, "a key of JSON lines", error);
    } else {
      return ls_yaml_fail(part, "path, weight or field as the key", error);
    }
  }
  return text->path ? LS_OK : ls_yaml_fail(node, "a path in it", error);
}

static ls_status set_texts(ls_run_file *run, const ls_run_key *key, const ls_yaml *node,
                           ls_error *error) {
  const bool list = node->kind == LS_YAML_SEQUENCE;
  const int count = list ? node->items.count : 1;
  ls_run_text *items = LS_NEW_ARRAY(run->arena, ls_run_text, count);
  for (int i = 0; i < count; i++) {
    const ls_yaml *each = list ? node->items.items[i] : node;
    if (each->kind == LS_YAML_MAPPING) {
      LS_TRY(read_source(each, &items[i], error));
    } else if (ls_yaml_string(each, &items[i].path, NULL) != LS_OK) {
      return wrong(run, key, each, error);
    }
    if (!items[i].path[0]) return wrong(run, key, each, error);
  }
  const ls_run_texts texts = {items, count};
  memcpy(field(run, key), &texts, sizeof texts);
  return LS_OK;
}

/* {match: NAME, weight_decay: 0, lr: 0.1x}, or {match: NAME, rank: 8, alpha: 16} */
static ls_status read_group(ls_arena *arena, const ls_run_key *key, const ls_yaml *node,
                            ls_run_group *group, ls_error *error) {
  *group = (ls_run_group){.weight_decay = -1};
  for (int i = 0; node->kind == LS_YAML_MAPPING && i < node->items.count; i++) {
    const ls_yaml *part = node->items.items[i];
    if (word_index(key->words, part->key) < 0)
      return ls_yaml_fail(
          part, ls_arena_printf(arena, "%s as the key", join_words(arena, key->words)), error);
    if (strcmp(part->key, "match") == 0) {
      LS_TRY(ls_yaml_string(part, &group->match, error));
      if (!group->match[0]) return ls_yaml_fail(part, "a name of parameters", error);
    } else if (strcmp(part->key, "weight_decay") == 0) {
      LS_TRY(ls_yaml_number(part, &group->weight_decay, error));
      if (!(group->weight_decay >= 0 && group->weight_decay <= 1e30))
        return ls_yaml_fail(part, "a number of at least 0", error);
    } else if (strcmp(part->key, "rank") == 0) {
      if (!read_whole(part, &group->rank) || group->rank < 1 || group->rank > MOST_RANK)
        return ls_yaml_fail(part, "a whole number from 1 to 65536", error);
    } else if (strcmp(part->key, "alpha") == 0) {
      LS_TRY(ls_yaml_number(part, &group->alpha, error));
      if (!(group->alpha > 0 && group->alpha <= 1e9))
        return ls_yaml_fail(part, "a number above 0", error);
    } else {
      group->lr_times = read_unit(part, 'x', &group->lr);
      if ((!group->lr_times && ls_yaml_number(part, &group->lr, NULL) != LS_OK) ||
          !(group->lr > 0 && group->lr <= 1e30))
        return ls_yaml_fail(part, "a number above 0, or one with x such as 0.1x", error);
    }
  }
  if (!group->match) return ls_yaml_fail(node, "a group with match, a name of parameters", error);
  if (group->lr > 0 || group->weight_decay >= 0 || group->rank || group->alpha > 0) return LS_OK;
  const char *others = key->words + strcspn(key->words, " ") + 1;
  return ls_yaml_fail(node, ls_arena_printf(arena, "%s in it", join_words(arena, others)), error);
}

static ls_status set_groups(ls_run_file *run, const ls_run_key *key, const ls_yaml *node,
                            ls_error *error) {
  if (node->kind != LS_YAML_SEQUENCE) return wrong(run, key, node, error);
  ls_run_group *items = LS_NEW_ARRAY(run->arena, ls_run_group, node->items.count + 1);
  for (int i = 0; i < node->items.count; i++)
    LS_TRY(read_group(run->arena, key, node->items.items[i], &items[i], error));
  const ls_run_groups groups = {items, node->items.count};
  memcpy(field(run, key), &groups, sizeof groups);
  return LS_OK;
}

static ls_status read_globs(ls_run_file *run, const ls_run_key *key, const ls_yaml *node,
                            ls_run_globs *globs, ls_error *error) {
  const bool list = node->kind == LS_YAML_SEQUENCE;
  const int count = list ? node->items.count : 1;
  const char **items = LS_NEW_ARRAY(run->arena, const char *, count);
  for (int i = 0; i < count; i++) {
    const ls_yaml *each = list ? node->items.items[i] : node;
    if (ls_yaml_string(each, &items[i], NULL) != LS_OK || !items[i][0])
      return wrong(run, key, each, error);
  }
  *globs = (ls_run_globs){items, count};
  return LS_OK;
}

static ls_status set_globs(ls_run_file *run, const ls_run_key *key, const ls_yaml *node,
                           ls_error *error) {
  ls_run_globs globs;
  LS_TRY(read_globs(run, key, node, &globs, error));
  memcpy(field(run, key), &globs, sizeof globs);
  return LS_OK;
}

/* A list names files, and so does the name of one: a fraction that was mistyped is none. */
static ls_status set_validation(ls_run_file *run, const ls_run_key *key, const ls_yaml *node,
                                ls_error *error) {
  ls_run_validation part = {0};
  const char *name;
  const bool file = ls_yaml_string(node, &name, NULL) == LS_OK && ls_file_exists(name);
  if (file || (node->kind == LS_YAML_SEQUENCE && node->items.count > 0)) {
    LS_TRY(read_globs(run, key, node, &part.globs, error));
  } else {
    const bool percent = read_percent(node, &part.fraction);
    if (percent) part.fraction /= 100;
    if (!percent && ls_yaml_number(node, &part.fraction, NULL) != LS_OK) {
      return wrong(run, key, node, error);
    }
    if (!in_range(key, part.fraction)) return wrong(run, key, node, error);
  }
  memcpy(field(run, key), &part, sizeof part);
  return LS_OK;
}

static ls_status set_text(ls_run_file *run, const ls_run_key *key, const ls_yaml *node,
                          ls_error *error) {
  const char *text;
  if (ls_yaml_string(node, &text, NULL) != LS_OK) return wrong(run, key, node, error);
  memcpy(field(run, key), &text, sizeof text);
  return LS_OK;
}

static ls_status set_bool(ls_run_file *run, const ls_run_key *key, const ls_yaml *node,
                          ls_error *error) {
  bool value;
  LS_TRY(ls_yaml_bool(node, &value, error));
  memcpy(field(run, key), &value, sizeof value);
  return LS_OK;
}

static ls_status set_any(ls_run_file *run, const ls_run_key *key, const ls_yaml *node,
                         ls_error *error) {
  switch (key->kind) {
    case LS_RUN_TEXT: return set_text(run, key, node, error);
    case LS_RUN_CHOICE: return set_choice(run, key, node, error);
    case LS_RUN_INTEGER:
    case LS_RUN_SIZE: return set_whole(run, key, node, error);
    case LS_RUN_NUMBER: return set_number(run, key, node, error);
    case LS_RUN_BOOL: return set_bool(run, key, node, error);
    case LS_RUN_SPAN: return set_span(run, key, node, error);
    case LS_RUN_PAIR: return set_pair(run, key, node, error);
    case LS_RUN_GLOBS: return set_globs(run, key, node, error);
    case LS_RUN_TEXTS: return set_texts(run, key, node, error);
    case LS_RUN_VALIDATION: return set_validation(run, key, node, error);
    case LS_RUN_GROUPS: return set_groups(run, key, node, error);
  }
  return ls_fail(error, LS_INTERNAL, "%s: kind %d is not known", key->name, (int)key->kind);
}

ls_status ls_run_key_set(ls_run_file *run, const ls_run_key *key, const ls_yaml *node,
                         ls_error *error) {
  if (ls_yaml_is_null(node)) return wrong(run, key, node, error);
  return set_any(run, key, node, error);
}

ls_status ls_run_key_set_text(ls_run_file *run, const ls_run_key *key, const char *text,
                              ls_error *error) {
  ls_yaml *node = NULL;
  LS_TRY(ls_yaml_value(run->arena, key->name, text[0] ? text : "''", &node, error));
  return set_any(run, key, node, error);
}
