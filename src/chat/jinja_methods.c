#include <utf8proc.h>

#include "chat/jinja_value.h"
#include "tokenizer/unicode.h"

/* Methods of texts, parted by spaces; of mappings, of lists and of loops. */
static const char *const methods_of_texts =
    "strip lstrip rstrip split rsplit splitlines startswith endswith upper lower title capitalize "
    "replace find rfind index count join removeprefix removesuffix isdigit isalpha isalnum isspace "
    "isupper islower partition rpartition zfill";

static bool has_word(const char *words, const char *word) {
  const size_t length = strlen(word);
  for (const char *at = words; *at;) {
    const size_t bytes = strcspn(at, " ");
    if (bytes == length && memcmp(at, word, bytes) == 0) return true;
    at += bytes + (at[bytes] == ' ');
  }
  return false;
}

bool ls_jinja_has_method(const ls_jinja_value *object, const char *name) {
  switch (object->kind) {
    case LS_JINJA_TEXT: return has_word(methods_of_texts, name);
    case LS_JINJA_DICT: return has_word("items keys values get copy", name);
    case LS_JINJA_LIST: return has_word("index count copy", name);
    case LS_JINJA_TUPLE: return has_word("index count", name);
    case LS_JINJA_LOOP: return has_word("cycle changed", name);
    default: return false;
  }
}

/* Whether the character at `at` is among those to strip; white space where they are not given. */
static size_t strips(const ls_jinja_value *set, const char *at, const char *end) {
  if (at >= end) return 0;
  if (set->kind != LS_JINJA_TEXT) return ls_jinja_space(at, end);
  const size_t bytes = ls_jinja_character(at, end);
  return set->bytes && memmem(set->text, set->bytes, at, bytes) ? bytes : 0;
}

static ls_jinja_value stripped(const ls_jinja_value *text, const ls_jinja_value *set, bool left,
                               bool right) {
  const char *begin = text->text, *end = begin + text->bytes;
  for (size_t bytes; left && (bytes = strips(set, begin, end)) > 0;) begin += bytes;
  while (right && end > begin) {
    const char *last = end - 1;
    while (last > begin && (*last & 0xC0) == 0x80) last--;
    if (!strips(set, last, end)) break;
    end = last;
  }
  return ls_jinja_span_of(begin, (size_t)(end - begin));
}

static ls_status split_spaces(ls_jinja_run *run, const ls_jinja_value *text, int64_t most,
                              ls_jinja_value *list) {
  const char *at = text->text, *end = at + text->bytes;
  const ls_jinja_value none = {.kind = LS_JINJA_NONE};
  for (size_t bytes;;) {
    while ((bytes = ls_jinja_space(at, end)) > 0) at += bytes;
    if (at == end) return LS_OK;
    const char *begin = at;
    if (most >= 0 && list->list->count == most) {
      const ls_jinja_value rest = ls_jinja_span_of(at, (size_t)(end - at));
      return ls_jinja_list_add(run, list, stripped(&rest, &none, false, true));
    }
    while (at < end && !ls_jinja_space(at, end)) at += ls_jinja_character(at, end);
    LS_TRY(ls_jinja_list_add(run, list, ls_jinja_span_of(begin, (size_t)(at - begin))));
  }
}

/* The last place of `part` before `end`; NULL: none. */
static const char *find_last(const char *begin, const char *end, const ls_jinja_value *part) {
  for (const char *at = end - part->bytes; (size_t)(end - begin) >= part->bytes && at >= begin;
       at--)
    if (memcmp(at, part->text, part->bytes) == 0) return at;
  return NULL;
}

/* From the right: pieces are found last to first, and turned round. */
static ls_status split_right(ls_jinja_run *run, const ls_jinja_value *text,
                             const ls_jinja_value *by, int64_t most, ls_jinja_value *list) {
  const char *end = text->text + text->bytes;
  for (const char *at;
       (most < 0 || list->list->count < most) && (at = find_last(text->text, end, by)) != NULL;) {
    LS_TRY(ls_jinja_step(run));
    const char *begin = at + by->bytes;
    LS_TRY(ls_jinja_list_add(run, list, ls_jinja_span_of(begin, (size_t)(end - begin))));
    end = at;
  }
  LS_TRY(ls_jinja_list_add(run, list, ls_jinja_span_of(text->text, (size_t)(end - text->text))));
  ls_jinja_value *items = list->list->items;
  for (int i = 0, k = list->list->count - 1; i < k; i++, k--) {
    const ls_jinja_value kept = items[i];
    items[i] = items[k];
    items[k] = kept;
  }
  return LS_OK;
}

static ls_status split(ls_jinja_run *run, const ls_jinja_value *text, bool right,
                       const ls_jinja_arguments *given, ls_jinja_value *list) {
  ls_jinja_value bound[2];
  int64_t most = -1;
  LS_TRY(ls_jinja_bind(run, "split", "sep maxsplit", 0, given, bound));
  if (bound[1].kind != LS_JINJA_ABSENT) LS_TRY(ls_jinja_want_whole(run, "split", &bound[1], &most));
  LS_TRY(ls_jinja_list_new(run, LS_JINJA_LIST, 0, list));
  if (bound[0].kind == LS_JINJA_ABSENT || bound[0].kind == LS_JINJA_NONE) {
    if (right && most >= 0)
      return ls_jinja_fail(run, "rsplit at white space with maxsplit is not supported");
    return split_spaces(run, text, most, list);
  }
  LS_TRY(ls_jinja_want_text(run, "split", &bound[0]));
  const ls_jinja_value *by = &bound[0];
  if (by->bytes == 0) return ls_jinja_fail(run, "split: found an empty separator");
  if (right) return split_right(run, text, by, most, list);
  const char *at = text->text, *end = at + text->bytes;
  for (const char *found; (most < 0 || list->list->count < most) &&
                          (found = memmem(at, (size_t)(end - at), by->text, by->bytes)) != NULL;) {
    LS_TRY(ls_jinja_list_add(run, list, ls_jinja_span_of(at, (size_t)(found - at))));
    at = found + by->bytes;
  }
  return ls_jinja_list_add(run, list, ls_jinja_span_of(at, (size_t)(end - at)));
}

static ls_status split_lines(ls_jinja_run *run, const ls_jinja_value *text, ls_jinja_value *list) {
  const char *at = text->text, *end = at + text->bytes;
  LS_TRY(ls_jinja_list_new(run, LS_JINJA_LIST, 0, list));
  while (at < end) {
    const char *line = at;
    while (at < end && *at != '\n' && *at != '\r') at++;
    LS_TRY(ls_jinja_list_add(run, list, ls_jinja_span_of(line, (size_t)(at - line))));
    if (at < end) at += *at == '\r' && at + 1 < end && at[1] == '\n' ? 2 : 1;
  }
  return LS_OK;
}

static ls_status replace(ls_jinja_run *run, const ls_jinja_value *text,
                         const ls_jinja_arguments *given, ls_jinja_value *result) {
  ls_jinja_value bound[3];
  ls_jinja_buffer buffer = {0};
  int64_t most = -1;
  LS_TRY(ls_jinja_bind(run, "replace", "old new count", 2, given, bound));
  if (bound[2].kind != LS_JINJA_ABSENT && bound[2].kind != LS_JINJA_NONE)
    LS_TRY(ls_jinja_want_whole(run, "replace", &bound[2], &most));
  for (int i = 0; i < 2; i++) LS_TRY(ls_jinja_text_of(run, &bound[i], &bound[i]));
  const ls_jinja_value *old = &bound[0];
  const char *at = text->text, *end = at + text->bytes;
  while (most != 0 && at <= end) {
    const char *found =
        old->bytes == 0 ? at : memmem(at, (size_t)(end - at), old->text, old->bytes);
    if (!found) break;
    LS_TRY(ls_jinja_step(run));
    LS_TRY(ls_jinja_append(run, &buffer, at, (size_t)(found - at)));
    LS_TRY(ls_jinja_append(run, &buffer, bound[1].text, bound[1].bytes));
    at = found + old->bytes;
    most--;
    if (old->bytes > 0) continue;
    if (at == end) break;
    const size_t bytes = ls_jinja_character(at, end);
    LS_TRY(ls_jinja_append(run, &buffer, at, bytes));
    at += bytes;
  }
  if (at < end) LS_TRY(ls_jinja_append(run, &buffer, at, (size_t)(end - at)));
  *result = ls_jinja_buffer_text(&buffer);
  return LS_OK;
}

static int64_t count_characters(const char *begin, const char *end) {
  int64_t count = 0;
  for (; begin < end; begin++) count += (*begin & 0xC0) != 0x80;
  return count;
}

static ls_status find(ls_jinja_run *run, const char *name, const ls_jinja_value *text,
                      const ls_jinja_value *part, ls_jinja_value *result) {
  LS_TRY(ls_jinja_want_text(run, name, part));
  const char *begin = text->text, *end = begin + text->bytes;
  if (strcmp(name, "count") == 0) {
    int64_t count = part->bytes ? 0 : count_characters(begin, end) + 1;
    for (const char *at = begin;
         part->bytes && (at = memmem(at, (size_t)(end - at), part->text, part->bytes)) != NULL;
         at += part->bytes)
      count++;
    *result = ls_jinja_whole(count);
    return LS_OK;
  }
  const char *found = *name == 'r'  ? find_last(begin, end, part)
                      : part->bytes ? memmem(begin, text->bytes, part->text, part->bytes)
                                    : begin;
  if (!found && *name == 'i') return ls_jinja_fail(run, "index: the text does not hold that part");
  *result = ls_jinja_whole(found ? count_characters(begin, found) : -1);
  return LS_OK;
}

static bool has_end(const ls_jinja_value *text, const ls_jinja_value *part, bool begins) {
  if (part->kind != LS_JINJA_TEXT || part->bytes > text->bytes) return false;
  const char *at = begins ? text->text : text->text + text->bytes - part->bytes;
  return part->bytes == 0 || memcmp(at, part->text, part->bytes) == 0;
}

/* startswith and endswith: one text, or any of a tuple. */
static ls_status has_ends(ls_jinja_run *run, const ls_jinja_value *text, bool begins,
                          const ls_jinja_value *part, ls_jinja_value *result) {
  bool holds = has_end(text, part, begins);
  if (part->kind == LS_JINJA_TUPLE)
    for (int i = 0; i < part->list->count; i++)
      holds = holds || has_end(text, &part->list->items[i], begins);
  else
    LS_TRY(ls_jinja_want_text(run, begins ? "startswith" : "endswith", part));
  *result = ls_jinja_truth(holds);
  return LS_OK;
}

/* What becomes several characters in another case, or depends on its neighbours: ranges. */
static bool is_special(char form, uint32_t point) {
  static const uint32_t ranges[][2] = {{0x149, 0x149},   {0x1F0, 0x1F0},  {0x390, 0x390},
                                       {0x3B0, 0x3B0},   {0x587, 0x587},  {0x1E96, 0x1E9A},
                                       {0x1F50, 0x1FFC}, {0xFB00, 0xFB17}};
  if (form == 'l') return point == 0x130 || point == 0x3A3;
  for (size_t r = 0; r < sizeof ranges / sizeof *ranges; r++)
    if (point >= ranges[r][0] && point <= ranges[r][1]) return true;
  return false;
}

/* One character in another case: lower, upper, title. */
static ls_status put_case(ls_jinja_run *run, char form, uint32_t point, ls_jinja_buffer *buffer) {
  char text[4];
  if (point == 0xDF && form != 'l')
    return ls_jinja_append(run, buffer, form == 'u' ? "SS" : "Ss", 2);
  if (is_special(form, point))
    return ls_jinja_fail(run, "the character U+%04X in another case is not supported", point);
  const utf8proc_int32_t given = (utf8proc_int32_t)point;
  const utf8proc_int32_t made = form == 'l'   ? utf8proc_tolower(given)
                                : form == 'u' ? utf8proc_toupper(given)
                                              : utf8proc_totitle(given);
  const int bytes = ls_unicode_put((uint32_t)made, text);
  return ls_jinja_append(run, buffer, text, (size_t)bytes);
}

static bool is_cased(uint32_t point) {
  const utf8proc_int32_t given = (utf8proc_int32_t)point;
  return utf8proc_tolower(given) != given || utf8proc_toupper(given) != given;
}

static bool is_letter(uint32_t point) {
  const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)point);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

ls_status ls_jinja_case(ls_jinja_run *run, char form, const ls_jinja_value *text,
                        ls_jinja_value *result) {
  ls_jinja_buffer buffer = {0};
  const char *at = text->text, *end = at + text->bytes;
  for (bool begins = true; at < end;) {
    const uint32_t point = ls_unicode_next(&at);
    char wanted = form;
    if (form == 'c' || form == 't') wanted = begins ? 't' : 'l';
    begins = form == 't' && !is_cased(point);
    LS_TRY(put_case(run, wanted, point, &buffer));
  }
  *result = ls_jinja_buffer_text(&buffer);
  return LS_OK;
}

/* isdigit, isalpha, isalnum, isspace, isupper, islower. */
static bool is_all(const ls_jinja_value *text, const char *name) {
  const char *at = text->text, *end = at + text->bytes;
  bool cased = false;
  const char kind = name[2];
  while (at < end) {
    const bool space = ls_jinja_space(at, end) > 0;
    const uint32_t point = ls_unicode_next(&at);
    const bool digit = utf8proc_category((utf8proc_int32_t)point) == UTF8PROC_CATEGORY_ND;
    const utf8proc_int32_t given = (utf8proc_int32_t)point;
    if (kind == 'd' && !digit) return false;
    if (kind == 's' && !space) return false;
    if (kind == 'a' && !is_letter(point) && !(name[4] == 'n' && digit)) return false;
    if (kind == 'u' && utf8proc_toupper(given) != given) return false;
    if (kind == 'l' && utf8proc_tolower(given) != given) return false;
    cased = cased || is_cased(point);
  }
  return text->bytes > 0 && (cased || (kind != 'u' && kind != 'l'));
}

static ls_status partition(ls_jinja_run *run, const ls_jinja_value *text, bool right,
                           const ls_jinja_value *by, ls_jinja_value *result) {
  LS_TRY(ls_jinja_want_text(run, "partition", by));
  if (by->bytes == 0) return ls_jinja_fail(run, "partition: found an empty separator");
  const char *begin = text->text, *end = begin + text->bytes;
  const char *found =
      right ? find_last(begin, end, by) : memmem(begin, text->bytes, by->text, by->bytes);
  const ls_jinja_value none = ls_jinja_span_of("", 0);
  ls_jinja_value parts[3] = {*text, none, none};
  if (found) {
    parts[0] = ls_jinja_span_of(begin, (size_t)(found - begin));
    parts[1] = *by;
    parts[2] = ls_jinja_span_of(found + by->bytes, (size_t)(end - found) - by->bytes);
  } else if (right) {
    parts[0] = none;
    parts[2] = *text;
  }
  LS_TRY(ls_jinja_list_new(run, LS_JINJA_TUPLE, 3, result));
  for (int p = 0; p < 3; p++) LS_TRY(ls_jinja_list_add(run, result, parts[p]));
  return LS_OK;
}

static ls_status fill_zeros(ls_jinja_run *run, const ls_jinja_value *text,
                            const ls_jinja_value *width, ls_jinja_value *result) {
  ls_jinja_buffer buffer = {0};
  int64_t wanted;
  LS_TRY(ls_jinja_want_whole(run, "zfill", width, &wanted));
  const size_t sign = text->bytes && (*text->text == '-' || *text->text == '+');
  LS_TRY(ls_jinja_append(run, &buffer, text->text, sign));
  for (int64_t have = count_characters(text->text, text->text + text->bytes); have < wanted; have++)
    LS_TRY(ls_jinja_append(run, &buffer, "0", 1));
  LS_TRY(ls_jinja_append(run, &buffer, text->text + sign, text->bytes - sign));
  *result = ls_jinja_buffer_text(&buffer);
  return LS_OK;
}

static ls_status join_items(ls_jinja_run *run, const ls_jinja_value *by,
                            const ls_jinja_value *items, ls_jinja_value *result) {
  ls_jinja_value list;
  ls_jinja_buffer buffer = {0};
  LS_TRY(ls_jinja_iterate(run, items, &list));
  for (int i = 0; i < list.list->count; i++) {
    LS_TRY(ls_jinja_want_text(run, "join", &list.list->items[i]));
    if (i > 0) LS_TRY(ls_jinja_append(run, &buffer, by->text, by->bytes));
    LS_TRY(ls_jinja_append(run, &buffer, list.list->items[i].text, list.list->items[i].bytes));
  }
  *result = ls_jinja_buffer_text(&buffer);
  return LS_OK;
}

/* Those that want one value. */
static ls_status with_one(ls_jinja_run *run, const char *name, const ls_jinja_value *text,
                          const ls_jinja_arguments *given, ls_jinja_value *result) {
  ls_jinja_value one;
  LS_TRY(ls_jinja_bind(run, name, "value", 1, given, &one));
  if (strcmp(name, "startswith") == 0 || strcmp(name, "endswith") == 0)
    return has_ends(run, text, *name == 's', &one, result);
  if (strcmp(name, "join") == 0) return join_items(run, text, &one, result);
  if (strcmp(name, "partition") == 0 || strcmp(name, "rpartition") == 0)
    return partition(run, text, *name == 'r', &one, result);
  if (strcmp(name, "zfill") == 0) return fill_zeros(run, text, &one, result);
  if (strncmp(name, "remove", 6) != 0) return find(run, name, text, &one, result);
  const bool begins = name[6] == 'p';
  LS_TRY(ls_jinja_want_text(run, name, &one));
  const size_t cut = has_end(text, &one, begins) ? one.bytes : 0;
  *result = ls_jinja_span_of(text->text + (begins ? cut : 0), text->bytes - cut);
  return LS_OK;
}

static ls_status of_text(ls_jinja_run *run, const char *name, const ls_jinja_value *text,
                         const ls_jinja_arguments *given, ls_jinja_value *result) {
  run->steps -= (int64_t)(text->bytes / 256);
  if (has_word("strip lstrip rstrip", name)) {
    ls_jinja_value set;
    LS_TRY(ls_jinja_bind(run, name, "chars", 0, given, &set));
    *result = stripped(text, &set, *name != 'r', *name != 'l');
    return LS_OK;
  }
  if (has_word("split rsplit", name)) return split(run, text, *name == 'r', given, result);
  if (strcmp(name, "replace") == 0) return replace(run, text, given, result);
  if (!has_word("upper lower title capitalize splitlines isdigit isalpha isalnum isspace isupper "
                "islower",
                name))
    return with_one(run, name, text, given, result);
  LS_TRY(ls_jinja_bind(run, name, "", 0, given, NULL));
  if (strcmp(name, "splitlines") == 0) return split_lines(run, text, result);
  if (strncmp(name, "is", 2) != 0) return ls_jinja_case(run, *name, text, result);
  *result = ls_jinja_truth(is_all(text, name));
  return LS_OK;
}

static ls_status of_dict(ls_jinja_run *run, const char *name, const ls_jinja_value *dict,
                         const ls_jinja_arguments *given, ls_jinja_value *result) {
  ls_jinja_value bound[2];
  if (strcmp(name, "get") == 0) {
    LS_TRY(ls_jinja_bind(run, name, "key default", 1, given, bound));
    const ls_jinja_value *found = ls_jinja_dict_find(run, dict, &bound[0]);
    *result = found ? *found : bound[1].kind == LS_JINJA_ABSENT ? ls_jinja_none() : bound[1];
    return LS_OK;
  }
  LS_TRY(ls_jinja_bind(run, name, "", 0, given, NULL));
  if (strcmp(name, "copy") == 0) {
    *result = *dict;
    return LS_OK;
  }
  LS_TRY(ls_jinja_list_new(run, LS_JINJA_LIST, dict->dict->count, result));
  for (int e = 0; e < dict->dict->count; e++) {
    const ls_jinja_entry *entry = &dict->dict->items[e];
    ls_jinja_value item = *name == 'v' ? entry->value : entry->key;
    if (*name == 'i') {
      LS_TRY(ls_jinja_list_new(run, LS_JINJA_TUPLE, 2, &item));
      LS_TRY(ls_jinja_list_add(run, &item, entry->key));
      LS_TRY(ls_jinja_list_add(run, &item, entry->value));
    }
    LS_TRY(ls_jinja_list_add(run, result, item));
  }
  return LS_OK;
}

static ls_status of_list(ls_jinja_run *run, const char *name, const ls_jinja_value *list,
                         const ls_jinja_arguments *given, ls_jinja_value *result) {
  ls_jinja_value one;
  if (strcmp(name, "copy") == 0) {
    LS_TRY(ls_jinja_bind(run, name, "", 0, given, NULL));
    *result = *list;
    return LS_OK;
  }
  LS_TRY(ls_jinja_bind(run, name, "value", 1, given, &one));
  int64_t count = 0, first = -1;
  for (int i = 0; i < list->list->count; i++) {
    if (!ls_jinja_equal(run, &list->list->items[i], &one)) continue;
    if (first < 0) first = i;
    count++;
  }
  *result = ls_jinja_whole(*name == 'c' ? count : first);
  if (*name == 'c' || first >= 0) return LS_OK;
  return ls_jinja_fail(run, "index: the list does not hold that value");
}

static ls_status of_loop(ls_jinja_run *run, const char *name, const ls_jinja_value *object,
                         const ls_jinja_arguments *given, ls_jinja_value *result) {
  ls_jinja_loop *loop = object->loop;
  if (*name == 'c' && name[1] == 'y') {
    if (given->count == 0) return ls_jinja_fail(run, "cycle: found no values; expected some");
    *result = given->items[loop->at % given->count];
    return LS_OK;
  }
  ls_jinja_value now;
  LS_TRY(ls_jinja_list_new(run, LS_JINJA_TUPLE, given->count, &now));
  for (int i = 0; i < given->count; i++) LS_TRY(ls_jinja_list_add(run, &now, given->items[i]));
  *result = ls_jinja_truth(loop->changed.kind == LS_JINJA_ABSENT ||
                           !ls_jinja_equal(run, &loop->changed, &now));
  loop->changed = now;
  return LS_OK;
}

ls_status ls_jinja_method(ls_jinja_run *run, const ls_jinja_value *object, const char *name,
                          const ls_jinja_arguments *given, ls_jinja_value *result) {
  switch (object->kind) {
    case LS_JINJA_TEXT: return of_text(run, name, object, given, result);
    case LS_JINJA_DICT: return of_dict(run, name, object, given, result);
    case LS_JINJA_LOOP: return of_loop(run, name, object, given, result);
    default: return of_list(run, name, object, given, result);
  }
}
