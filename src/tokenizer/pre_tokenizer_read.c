/* Pre-tokenizers as tokenizer.json has them. */
#include <string.h>

#include "text/quote.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/pre_tokenizer.h"

enum { DEEPEST = 8 }; /* Sequences in Sequences */

static ls_pre_tokenizer_step *append(ls_arena *arena, ls_pre_tokenizer *pre,
                                     ls_pre_tokenizer_kind kind, ls_split_behavior behavior) {
  ls_pre_tokenizer_step *step = LS_APPEND(arena, &pre->steps);
  step->kind = kind;
  step->behavior = behavior;
  return step;
}

static ls_status read_behavior(const ls_json_object *object, const char *fallback,
                               ls_split_behavior *behavior, ls_error *error) {
  static const char *const names[] = {
      [LS_SPLIT_ISOLATED] = "Isolated",
      [LS_SPLIT_REMOVED] = "Removed",
      [LS_SPLIT_WITH_PREVIOUS] = "MergedWithPrevious",
      [LS_SPLIT_WITH_NEXT] = "MergedWithNext",
      [LS_SPLIT_CONTIGUOUS] = "Contiguous",
  };
  const char *name;
  LS_TRY(ls_json_string_or(object, "behavior", fallback, &name, error));
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (strcmp(names[i], name) != 0) continue;
    *behavior = (ls_split_behavior)i;
    return LS_OK;
  }
  char shown[LS_QUOTE_BYTES];
  return ls_fail(error, LS_INPUT,
                 "%s: \"behavior\": found \"%s\"; expected Isolated, Removed, MergedWithPrevious, "
                 "MergedWithNext or Contiguous",
                 object->where, ls_quote(shown, name, strlen(name)));
}

ls_status ls_metaspace_read(ls_arena *arena, const ls_json_object *object, ls_span *character,
                            ls_prepend_scheme *scheme, bool *split, ls_error *error) {
  const char *sign, *name;
  bool prefix;
  LS_TRY(ls_json_string_or(object, "replacement", "\xe2\x96\x81", &sign, error));
  LS_TRY(ls_json_string_or(object, "prepend_scheme", "always", &name, error));
  LS_TRY(ls_json_bool_or(object, "add_prefix_space", true, &prefix, error));
  LS_TRY(ls_json_bool_or(object, "split", true, split, error));
  if (!*sign || ls_utf8_length(sign, strlen(sign)) != strlen(sign)) {
    return ls_fail(error, LS_INPUT, "%s: \"replacement\": expected one character", object->where);
  }
  const char *copy = ls_arena_strdup(arena, sign);
  *character = (ls_span){copy, strlen(copy)};
  *scheme = strcmp(name, "first") == 0 ? LS_PREPEND_FIRST : LS_PREPEND_ALWAYS;
  if (!prefix || strcmp(name, "never") == 0) *scheme = LS_PREPEND_NEVER;
  const bool known = !strcmp(name, "first") || !strcmp(name, "always") || !strcmp(name, "never");
  const bool agree = prefix || !ls_json_has(object, "prepend_scheme") || !strcmp(name, "never");
  if (known && agree) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s: \"prepend_scheme\": expected always, first or never, in accordance with "
                 "\"add_prefix_space\"",
                 object->where);
}

static ls_status read_byte_level(ls_arena *arena, const ls_json_object *object,
                                 ls_pre_tokenizer *pre, ls_error *error) {
  bool prefix, regex;
  LS_TRY(ls_json_bool_or(object, "add_prefix_space", true, &prefix, error));
  LS_TRY(ls_json_bool_or(object, "use_regex", true, &regex, error));
  if (pre->bytes) {
    return ls_fail(error, LS_INPUT, "%s: a second ByteLevel is not supported", object->where);
  }
  pre->bytes = true;
  if (prefix) append(arena, pre, LS_PRE_SPACE_FIRST, LS_SPLIT_ISOLATED);
  if (regex) {
    ls_pre_tokenizer_step *step = append(arena, pre, LS_PRE_SPLIT, LS_SPLIT_ISOLATED);
    LS_TRY(ls_pattern_compile(arena, object->where, ls_byte_level_pattern, LS_PATTERN_RUBY,
                              &step->pattern, error));
  }
  append(arena, pre, LS_PRE_ALPHABET, LS_SPLIT_ISOLATED);
  return LS_OK;
}

static ls_status read_step(ls_arena *arena, const ls_json_object *object, const char *type,
                           ls_pre_tokenizer *pre, ls_error *error) {
  ls_pre_tokenizer_step *step;
  bool single;
  if (strcmp(type, "ByteLevel") == 0) return read_byte_level(arena, object, pre, error);
  if (strcmp(type, "Split") == 0) {
    step = append(arena, pre, LS_PRE_SPLIT, LS_SPLIT_ISOLATED);
    LS_TRY(ls_json_bool_or(object, "invert", false, &step->invert, error));
    LS_TRY(read_behavior(object, "", &step->behavior, error));
    return ls_component_pattern(arena, object, &step->text, &step->pattern, error);
  }
  if (strcmp(type, "Digits") == 0) {
    LS_TRY(ls_json_bool_or(object, "individual_digits", false, &single, error));
    append(arena, pre, LS_PRE_DIGITS, single ? LS_SPLIT_ISOLATED : LS_SPLIT_CONTIGUOUS);
    return LS_OK;
  }
  if (strcmp(type, "Punctuation") == 0) {
    step = append(arena, pre, LS_PRE_PUNCTUATION, LS_SPLIT_ISOLATED);
    return read_behavior(object, "Isolated", &step->behavior, error);
  }
  if (strcmp(type, "BertPreTokenizer") == 0) {
    append(arena, pre, LS_PRE_SPACES, LS_SPLIT_REMOVED);
    append(arena, pre, LS_PRE_PUNCTUATION, LS_SPLIT_ISOLATED);
    return LS_OK;
  }
  if (strcmp(type, "WhitespaceSplit") == 0) {
    append(arena, pre, LS_PRE_SPACES, LS_SPLIT_REMOVED);
    return LS_OK;
  }
  if (strcmp(type, "Whitespace") == 0) {
    step = append(arena, pre, LS_PRE_WORDS, LS_SPLIT_REMOVED);
    step->invert = true;
    return ls_pattern_compile(arena, object->where, "\\w+|[^\\w\\s]+", LS_PATTERN_RUST,
                              &step->pattern, error);
  }
  if (strcmp(type, "Metaspace") == 0) {
    step = append(arena, pre, LS_PRE_METASPACE, LS_SPLIT_WITH_NEXT);
    return ls_metaspace_read(arena, object, &step->text, &step->scheme, &step->split, error);
  }
  char shown[LS_QUOTE_BYTES];
  return ls_fail(
      error, LS_INPUT,
      "%s: the pre-tokenizer %s is not supported; ByteLevel, Split, Digits, "
      "Punctuation, Whitespace, WhitespaceSplit, Metaspace, BertPreTokenizer and Sequence are",
      object->where, ls_quote(shown, type, strlen(type)));
}

static ls_status read_any(ls_arena *arena, const char *where, const json_t *json, int depth,
                          ls_pre_tokenizer *pre, ls_error *error) {
  ls_json_object object;
  const char *type;
  LS_TRY(ls_json_root(where, json, &object, error));
  LS_TRY(ls_json_string(&object, "type", &type, error));
  if (strcmp(type, "Sequence") != 0) return read_step(arena, &object, type, pre, error);
  const json_t *list = json_object_get(json, "pretokenizers");
  if (!json_is_array(list) || depth == DEEPEST) {
    return ls_fail(error, LS_INPUT, "%s: \"pretokenizers\": expected a list, at most %d deep",
                   where, DEEPEST);
  }
  for (size_t i = 0; i < json_array_size(list); i++) {
    LS_TRY(read_any(arena, where, json_array_get(list, i), depth + 1, pre, error));
  }
  return LS_OK;
}

ls_status ls_pre_tokenizer_read(ls_arena *arena, const char *where, const json_t *json,
                                ls_pre_tokenizer *pre, ls_error *error) {
  *pre = (ls_pre_tokenizer){0};
  if (!json || json_is_null(json)) return LS_OK;
  LS_TRY(
      read_any(arena, ls_arena_printf(arena, "%s: \"pre_tokenizer\"", where), json, 0, pre, error));
  /* Nobody looks at the alphabet's characters but steps behind it. */
  const int last = pre->steps.count - 1;
  if (last >= 0 && pre->steps.items[last].kind == LS_PRE_ALPHABET) pre->steps.count = last;
  for (int i = 0; i < pre->steps.count; i++) {
    if (pre->steps.items[i].kind == LS_PRE_ALPHABET) pre->alphabet = true;
    if (pre->alphabet && pre->steps.items[i].kind == LS_PRE_METASPACE) {
      return ls_fail(error, LS_INPUT, "%s: a Metaspace behind a ByteLevel is not supported", where);
    }
  }
  return LS_OK;
}

void ls_pre_tokenizer_free(ls_pre_tokenizer *pre) {
  for (int i = 0; i < pre->steps.count; i++) ls_pattern_free(pre->steps.items[i].pattern);
}
