#include "tokenizer/normalizer.h"

#include <string.h>

#include "text/quote.h"

enum { DEEPEST = 8 }; /* Sequences in Sequences */

size_t ls_replaced_most(size_t bytes) {
  enum { GROWTH = 64, ROOM = 1 << 16 };
  return GROWTH * bytes + ROOM;
}

static ls_span span_of(const json_t *string) {
  return (ls_span){json_string_value(string), json_string_length(string)};
}

static ls_span copy_span(ls_arena *arena, ls_span from) {
  char *copy = ls_arena_alloc(arena, from.bytes + 1);
  if (from.bytes) memcpy(copy, from.text, from.bytes);
  return (ls_span){copy, from.bytes};
}

ls_status ls_component_pattern(ls_arena *arena, const ls_json_object *object, ls_span *text,
                               ls_pattern **pattern, ls_error *error) {
  *pattern = NULL;
  *text = (ls_span){0};
  const json_t *json = json_object_get(object->json, "pattern");
  const json_t *string = json_is_string(json) ? json : json_object_get(json, "String");
  const json_t *regex = json_object_get(json, "Regex");
  if (json_is_string(string) && json_string_length(string) > 0) {
    *text = copy_span(arena, span_of(string));
    return LS_OK;
  }
  if (json_is_string(regex) && strlen(json_string_value(regex)) == json_string_length(regex)) {
    return ls_pattern_compile(arena, object->where, json_string_value(regex), LS_PATTERN_RUBY,
                              pattern, error);
  }
  return ls_fail(error, LS_INPUT,
                 "%s: \"pattern\": expected {\"String\": text} or {\"Regex\": pattern}",
                 object->where);
}

static const struct {
  const char *name;
  ls_normalizer_kind kind;
  ls_unicode_form form;
} kinds[] = {
    {"NFC", LS_NORMALIZE_FORM, LS_NFC},        {"NFD", LS_NORMALIZE_FORM, LS_NFD},
    {"NFKC", LS_NORMALIZE_FORM, LS_NFKC},      {"NFKD", LS_NORMALIZE_FORM, LS_NFKD},
    {"Prepend", LS_NORMALIZE_PREPEND, LS_NFC}, {"Replace", LS_NORMALIZE_REPLACE, LS_NFC},
    {"Strip", LS_NORMALIZE_STRIP, LS_NFC},     {"Lowercase", LS_NORMALIZE_LOWERCASE, LS_NFC},
};

static ls_status read_text(ls_arena *arena, const ls_json_object *object, const char *key,
                           ls_span *text, ls_error *error) {
  const json_t *json = json_object_get(object->json, key);
  if (!json_is_string(json)) {
    return ls_fail(error, LS_INPUT, "%s: \"%s\": expected a string", object->where, key);
  }
  *text = copy_span(arena, span_of(json));
  return LS_OK;
}

static void append(ls_arena *arena, ls_normalizer *normalizer, ls_normalizer_kind kind,
                   ls_unicode_form form) {
  ls_normalizer_step *step = LS_APPEND(arena, &normalizer->steps);
  step->kind = kind;
  step->form = form;
}

/* Accents go where strip_accents says, and where it says nothing with capitals. */
static ls_status read_bert(ls_arena *arena, const ls_json_object *object, ls_normalizer *normalizer,
                           ls_error *error) {
  bool clean, han, accents, lowercase;
  LS_TRY(ls_json_bool_or(object, "clean_text", true, &clean, error));
  LS_TRY(ls_json_bool_or(object, "handle_chinese_chars", true, &han, error));
  LS_TRY(ls_json_bool_or(object, "lowercase", true, &lowercase, error));
  LS_TRY(ls_json_bool_or(object, "strip_accents", lowercase, &accents, error));
  if (clean) append(arena, normalizer, LS_NORMALIZE_CLEAN, LS_NFC);
  if (han) append(arena, normalizer, LS_NORMALIZE_SPACE_HAN, LS_NFC);
  if (accents) {
    append(arena, normalizer, LS_NORMALIZE_FORM, LS_NFD);
    append(arena, normalizer, LS_NORMALIZE_STRIP_ACCENTS, LS_NFC);
  }
  if (lowercase) append(arena, normalizer, LS_NORMALIZE_LOWERCASE, LS_NFC);
  return LS_OK;
}

static ls_status read_step(ls_arena *arena, const ls_json_object *object, const char *type,
                           ls_normalizer *normalizer, ls_error *error) {
  if (strcmp(type, "BertNormalizer") == 0) return read_bert(arena, object, normalizer, error);
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    if (strcmp(kinds[i].name, type) != 0) continue;
    ls_normalizer_step *step = LS_APPEND(arena, &normalizer->steps);
    step->kind = kinds[i].kind;
    step->form = kinds[i].form;
    switch (step->kind) {
      case LS_NORMALIZE_LOWERCASE:
      case LS_NORMALIZE_STRIP_ACCENTS:
      case LS_NORMALIZE_CLEAN:
      case LS_NORMALIZE_SPACE_HAN:
      case LS_NORMALIZE_FORM: return LS_OK;
      case LS_NORMALIZE_PREPEND: return read_text(arena, object, "prepend", &step->content, error);
      case LS_NORMALIZE_REPLACE:
        LS_TRY(read_text(arena, object, "content", &step->content, error));
        return ls_component_pattern(arena, object, &step->sought, &step->pattern, error);
      case LS_NORMALIZE_STRIP:
        LS_TRY(ls_json_bool_or(object, "strip_left", true, &step->left, error));
        return ls_json_bool_or(object, "strip_right", true, &step->right, error);
    }
  }
  char shown[LS_QUOTE_BYTES];
  return ls_fail(error, LS_INPUT,
                 "%s: the normalizer %s is not supported; NFC, NFD, NFKC, NFKD, Prepend, Replace, "
                 "Strip, Lowercase, BertNormalizer and Sequence are",
                 object->where, ls_quote(shown, type, strlen(type)));
}

static ls_status read_any(ls_arena *arena, const char *where, const json_t *json, int depth,
                          ls_normalizer *normalizer, ls_error *error) {
  ls_json_object object;
  const char *type;
  LS_TRY(ls_json_root(where, json, &object, error));
  LS_TRY(ls_json_string(&object, "type", &type, error));
  if (strcmp(type, "Sequence") != 0) return read_step(arena, &object, type, normalizer, error);
  const json_t *list = json_object_get(json, "normalizers");
  if (!json_is_array(list) || depth == DEEPEST) {
    return ls_fail(error, LS_INPUT, "%s: \"normalizers\": expected a list, at most %d deep", where,
                   DEEPEST);
  }
  for (size_t i = 0; i < json_array_size(list); i++) {
    LS_TRY(read_any(arena, where, json_array_get(list, i), depth + 1, normalizer, error));
  }
  return LS_OK;
}

ls_status ls_normalizer_read(ls_arena *arena, const char *where, const json_t *json,
                             ls_normalizer *normalizer, ls_error *error) {
  *normalizer = (ls_normalizer){0};
  if (!json || json_is_null(json)) return LS_OK;
  return read_any(arena, ls_arena_printf(arena, "%s: \"normalizer\"", where), json, 0, normalizer,
                  error);
}

void ls_normalizer_free(ls_normalizer *normalizer) {
  for (int i = 0; i < normalizer->steps.count; i++) {
    ls_pattern_free(normalizer->steps.items[i].pattern);
  }
}

ls_status ls_replace_all(ls_span text, ls_span sought, const ls_pattern *pattern,
                         ls_matcher *matcher, ls_span content, size_t most, ls_bytes *out,
                         ls_error *error) {
  size_t at = 0, from = 0;
  if (pattern) ls_pattern_begin(pattern, matcher, text);
  while (from <= text.bytes) {
    ls_match match = {0};
    if (pattern) {
      LS_TRY(ls_pattern_find(matcher, from, &match, error));
    } else if (text.bytes > from) {
      const char *found = memmem(text.text + from, text.bytes - from, sought.text, sought.bytes);
      match.found = found != NULL;
      if (found) match.begin = (size_t)(found - text.text);
      match.end = match.begin + sought.bytes;
    }
    if (!match.found) break;
    if (out->count + (match.begin - at) + content.bytes > most)
      return ls_fail(error, LS_INPUT,
                     "the tokenizer's replacements make more than %zu bytes of a text; expected "
                     "fewer or shorter ones",
                     most);
    ls_bytes_append(out, text.text + at, match.begin - at);
    ls_bytes_append(out, content.text, content.bytes);
    at = match.end;
    from = match.end;
    if (match.end == match.begin) { /* an empty match: go on behind the next character */
      const char *next = text.text + from;
      if (from == text.bytes) break;
      ls_unicode_next(&next);
      from = (size_t)(next - text.text);
    }
  }
  ls_bytes_append(out, text.text + at, text.bytes - at);
  return LS_OK;
}

static ls_span strip(const ls_normalizer_step *step, ls_span text) {
  const char *at = text.text, *end = text.text + text.bytes;
  while (step->left && at < end) {
    const char *next = at;
    if (!ls_unicode_is_space(ls_unicode_next(&next))) break;
    at = next;
  }
  while (step->right && end > at) {
    const char *last = end - 1;
    while (last > at && ((unsigned char)*last & 0xc0) == 0x80) last--;
    const char *next = last;
    if (!ls_unicode_is_space(ls_unicode_next(&next))) break;
    end = last;
  }
  return (ls_span){at, (size_t)(end - at)};
}

/* Character by character: each becomes none, itself, another, or some. */
static ls_span change_characters(ls_normalizer_kind kind, ls_span text, ls_bytes *made) {
  made->count = 0;
  ls_bytes_reserve(made, text.bytes + 1);
  for (const char *at = text.text, *end = at + text.bytes; at < end;) {
    const char *from = at;
    uint32_t point = ls_unicode_next(&at);
    char changed[8];
    switch (kind) {
      case LS_NORMALIZE_STRIP_ACCENTS:
        if (!ls_unicode_is_accent(point)) ls_bytes_append(made, from, (size_t)(at - from));
        continue;
      case LS_NORMALIZE_CLEAN:
        if (ls_unicode_is_cleaned(point)) continue;
        if (ls_unicode_is_space(point))
          ls_bytes_append(made, " ", 1);
        else
          ls_bytes_append(made, from, (size_t)(at - from));
        continue;
      case LS_NORMALIZE_SPACE_HAN:
        if (ls_unicode_is_han(point)) ls_bytes_append(made, " ", 1);
        ls_bytes_append(made, from, (size_t)(at - from));
        if (ls_unicode_is_han(point)) ls_bytes_append(made, " ", 1);
        continue;
      default: ls_bytes_append(made, changed, (size_t)ls_unicode_put_lower(point, changed));
    }
  }
  return (ls_span){made->data, made->count};
}

ls_status ls_normalizer_apply(const ls_normalizer *normalizer, ls_span text, bool goes_on,
                              ls_normalizer_work *work, ls_span *out, ls_error *error) {
  const size_t most = ls_replaced_most(text.bytes);
  int next = 0; /* which of the two buffers does not hold the text */
  for (int i = 0; i < normalizer->steps.count; i++) {
    const ls_normalizer_step *step = &normalizer->steps.items[i];
    ls_bytes *made = &work->made[next];
    switch (step->kind) {
      case LS_NORMALIZE_LOWERCASE:
      case LS_NORMALIZE_STRIP_ACCENTS:
      case LS_NORMALIZE_CLEAN:
      case LS_NORMALIZE_SPACE_HAN: text = change_characters(step->kind, text, made); break;
      case LS_NORMALIZE_FORM: text = ls_unicode_normalize(step->form, text, made); break;
      case LS_NORMALIZE_STRIP: text = strip(step, text); break;
      case LS_NORMALIZE_PREPEND:
        if (goes_on || !text.bytes) break;
        made->count = 0;
        ls_bytes_reserve(made, text.bytes + step->content.bytes);
        ls_bytes_append(made, step->content.text, step->content.bytes);
        ls_bytes_append(made, text.text, text.bytes);
        text = (ls_span){made->data, made->count};
        break;
      case LS_NORMALIZE_REPLACE:
        made->count = 0;
        ls_bytes_reserve(made, text.bytes + 1);
        LS_TRY(ls_replace_all(text, step->sought, step->pattern, work->matcher, step->content, most,
                              made, error));
        text = (ls_span){made->data, made->count};
        break;
    }
    if (made->data && text.text >= made->data && text.text < made->data + made->capacity) {
      next = 1 - next;
    }
  }
  *out = text;
  return LS_OK;
}
