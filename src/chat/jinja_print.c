#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <utf8proc.h>

#include "chat/jinja_value.h"
#include "text/quote.h"
#include "tokenizer/unicode.h"

static ls_status put(ls_jinja_run *run, ls_jinja_buffer *buffer, const char *text) {
  return ls_jinja_append(run, buffer, text, strlen(text));
}

/* The shortest digits that are this number, as Python prints it: 0.1, 1e+22, 5.0. */
static void real_text(double real, char text[40]) {
  if (!isfinite(real)) {
    snprintf(text, 40, "%s", isnan(real) ? "nan" : real > 0 ? "inf" : "-inf");
    return;
  }
  char digits[40];
  int precision = 0;
  do snprintf(digits, sizeof digits, "%.*e", precision, real);
  while (strtod(digits, NULL) != real && precision++ < 17);
  const int power = (int)strtol(strchr(digits, 'e') + 1, NULL, 10);
  if (power < -4 || power >= 16) {
    char *mark = strchr(digits, 'e');
    snprintf(text, 40, "%.*se%c%02d", (int)(mark - digits), digits, power < 0 ? '-' : '+',
             abs(power));
    return;
  }
  const int behind = precision > power ? precision - power : 1;
  snprintf(text, 40, "%.*f", behind, real);
}

/* What Python's repr writes as it is. */
static bool is_printable(uint32_t point) {
  if (point == ' ') return true;
  switch (utf8proc_category((utf8proc_int32_t)point)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
  }
}

static ls_status repr_text(ls_jinja_run *run, const ls_jinja_value *value,
                           ls_jinja_buffer *buffer) {
  const char *text = value->text, *end = text + value->bytes;
  const bool single = value->bytes && memchr(text, '\'', value->bytes);
  const bool twice = value->bytes && memchr(text, '"', value->bytes);
  const char quote = single && !twice ? '"' : '\'';
  LS_TRY(ls_jinja_append(run, buffer, &quote, 1));
  while (text < end) {
    const char *next = text;
    char shown[16];
    const uint32_t point = ls_unicode_next(&next);
    if (point == '\\' || point == (uint32_t)quote)
      snprintf(shown, sizeof shown, "\\%c", (char)point);
    else if (point == '\n' || point == '\r' || point == '\t')
      snprintf(shown, sizeof shown, "\\%c", point == '\n' ? 'n' : point == '\r' ? 'r' : 't');
    else if (!is_printable(point))
      snprintf(shown, sizeof shown,
               point < 0x100     ? "\\x%02x"
               : point < 0x10000 ? "\\u%04x"
                                 : "\\U%08x",
               point);
    else
      snprintf(shown, sizeof shown, "%.*s", (int)(next - text), text);
    LS_TRY(put(run, buffer, shown));
    text = next;
  }
  return ls_jinja_append(run, buffer, &quote, 1);
}

static ls_status repr_list(ls_jinja_run *run, const ls_jinja_value *value,
                           ls_jinja_buffer *buffer) {
  const bool tuple = value->kind == LS_JINJA_TUPLE;
  LS_TRY(put(run, buffer, tuple ? "(" : "["));
  for (int i = 0; i < value->list->count; i++) {
    if (i > 0) LS_TRY(put(run, buffer, ", "));
    LS_TRY(ls_jinja_repr(run, &value->list->items[i], buffer));
  }
  if (tuple && value->list->count == 1) LS_TRY(put(run, buffer, ","));
  return put(run, buffer, tuple ? ")" : "]");
}

static ls_status repr_dict(ls_jinja_run *run, const ls_jinja_value *value,
                           ls_jinja_buffer *buffer) {
  LS_TRY(put(run, buffer, "{"));
  for (int e = 0; e < value->dict->count; e++) {
    if (e > 0) LS_TRY(put(run, buffer, ", "));
    LS_TRY(ls_jinja_repr(run, &value->dict->items[e].key, buffer));
    LS_TRY(put(run, buffer, ": "));
    LS_TRY(ls_jinja_repr(run, &value->dict->items[e].value, buffer));
  }
  return put(run, buffer, "}");
}

ls_status ls_jinja_repr(ls_jinja_run *run, const ls_jinja_value *value, ls_jinja_buffer *buffer) {
  char text[40];
  LS_TRY(ls_jinja_step(run));
  switch (value->kind) {
    case LS_JINJA_UNDEFINED: return put(run, buffer, "Undefined");
    case LS_JINJA_NONE: return put(run, buffer, "None");
    case LS_JINJA_BOOL: return put(run, buffer, value->whole ? "True" : "False");
    case LS_JINJA_INT:
      snprintf(text, sizeof text, "%lld", (long long)value->whole);
      return put(run, buffer, text);
    case LS_JINJA_REAL: real_text(value->real, text); return put(run, buffer, text);
    case LS_JINJA_TEXT: return repr_text(run, value, buffer);
    case LS_JINJA_LIST:
    case LS_JINJA_TUPLE: return repr_list(run, value, buffer);
    case LS_JINJA_DICT: return repr_dict(run, value, buffer);
    default:
      return ls_jinja_fail(run, "found %s; expected a value that can be printed",
                           ls_jinja_kind_name(value));
  }
}

ls_status ls_jinja_print(ls_jinja_run *run, const ls_jinja_value *value, ls_jinja_buffer *buffer) {
  if (value->kind == LS_JINJA_TEXT) return ls_jinja_append(run, buffer, value->text, value->bytes);
  if (value->kind == LS_JINJA_UNDEFINED) return LS_OK;
  return ls_jinja_repr(run, value, buffer);
}

ls_status ls_jinja_text_of(ls_jinja_run *run, const ls_jinja_value *value, ls_jinja_value *text) {
  ls_jinja_buffer buffer = {0};
  if (value->kind == LS_JINJA_TEXT) {
    *text = *value;
    return LS_OK;
  }
  LS_TRY(ls_jinja_print(run, value, &buffer));
  *text = ls_jinja_buffer_text(&buffer);
  return LS_OK;
}

static ls_status dump_unit(ls_jinja_run *run, uint32_t unit, ls_jinja_buffer *buffer) {
  char shown[16];
  snprintf(shown, sizeof shown, "\\u%04x", unit);
  return put(run, buffer, shown);
}

/* A text as json.dumps writes it; `ascii`: nothing else in it. */
static ls_status dump_text(ls_jinja_run *run, const ls_jinja_value *value, bool ascii,
                           ls_jinja_buffer *buffer) {
  static const char plain[] = "\"\\\n\r\t\f\b", letters[] = "\"\\nrtfb";
  const char *text = value->text, *end = text + value->bytes;
  LS_TRY(put(run, buffer, "\""));
  while (text < end) {
    const char *next = text;
    const uint32_t point = ls_unicode_next(&next);
    const char *found = point && point < 0x80 ? strchr(plain, (char)point) : NULL;
    if (found) {
      const char shown[2] = {'\\', letters[found - plain]};
      LS_TRY(ls_jinja_append(run, buffer, shown, 2));
    } else if (point >= 0x10000 && ascii) {
      LS_TRY(dump_unit(run, 0xD800 + ((point - 0x10000) >> 10), buffer));
      LS_TRY(dump_unit(run, 0xDC00 + ((point - 0x10000) & 0x3FF), buffer));
    } else if (point < 0x20 || (ascii && point >= 0x7f)) {
      LS_TRY(point == 0x7f ? put(run, buffer, "\x7f") : dump_unit(run, point, buffer));
    } else {
      LS_TRY(ls_jinja_append(run, buffer, text, (size_t)(next - text)));
    }
    text = next;
  }
  return put(run, buffer, "\"");
}

static ls_status dump_line(ls_jinja_run *run, const ls_jinja_json *form, int depth,
                           ls_jinja_buffer *buffer) {
  if (form->indent < 0) return LS_OK;
  LS_TRY(put(run, buffer, "\n"));
  for (int i = 0; i < depth * form->indent; i++) LS_TRY(put(run, buffer, " "));
  return LS_OK;
}

static int by_key(const void *left, const void *right) {
  const ls_jinja_value *a = &((const ls_jinja_entry *)left)->key;
  const ls_jinja_value *b = &((const ls_jinja_entry *)right)->key;
  const size_t both = a->bytes < b->bytes ? a->bytes : b->bytes;
  const int order = both ? memcmp(a->text, b->text, both) : 0;
  return order ? order : (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

static ls_status dump_dict(ls_jinja_run *run, const ls_jinja_value *value,
                           const ls_jinja_json *form, int depth, ls_jinja_buffer *buffer) {
  const int count = value->dict->count;
  LS_TRY(ls_jinja_charge(run, (size_t)count * sizeof(ls_jinja_entry)));
  ls_jinja_entry *entries = LS_NEW_ARRAY(run->arena, ls_jinja_entry, count + 1);
  if (count) memcpy(entries, value->dict->items, (size_t)count * sizeof *entries);
  for (int e = 0; e < count; e++)
    if (entries[e].key.kind != LS_JINJA_TEXT)
      return ls_jinja_fail(run, "tojson: found %s as a key; expected a text",
                           ls_jinja_kind_name(&entries[e].key));
  if (form->sorted) qsort(entries, (size_t)count, sizeof *entries, by_key);
  LS_TRY(put(run, buffer, "{"));
  for (int e = 0; e < count; e++) {
    if (e > 0) LS_TRY(put(run, buffer, form->between));
    LS_TRY(dump_line(run, form, depth + 1, buffer));
    LS_TRY(dump_text(run, &entries[e].key, form->ascii, buffer));
    LS_TRY(put(run, buffer, form->after_key));
    LS_TRY(ls_jinja_dump(run, &entries[e].value, form, depth + 1, buffer));
  }
  if (count > 0) LS_TRY(dump_line(run, form, depth, buffer));
  return put(run, buffer, "}");
}

static ls_status dump_list(ls_jinja_run *run, const ls_jinja_value *value,
                           const ls_jinja_json *form, int depth, ls_jinja_buffer *buffer) {
  LS_TRY(put(run, buffer, "["));
  for (int i = 0; i < value->list->count; i++) {
    if (i > 0) LS_TRY(put(run, buffer, form->between));
    LS_TRY(dump_line(run, form, depth + 1, buffer));
    LS_TRY(ls_jinja_dump(run, &value->list->items[i], form, depth + 1, buffer));
  }
  if (value->list->count > 0) LS_TRY(dump_line(run, form, depth, buffer));
  return put(run, buffer, "]");
}

ls_status ls_jinja_dump(ls_jinja_run *run, const ls_jinja_value *value, const ls_jinja_json *form,
                        int depth, ls_jinja_buffer *buffer) {
  LS_TRY(ls_jinja_step(run));
  switch (value->kind) {
    case LS_JINJA_NONE: return put(run, buffer, "null");
    case LS_JINJA_BOOL: return put(run, buffer, value->whole ? "true" : "false");
    case LS_JINJA_INT: return ls_jinja_repr(run, value, buffer);
    case LS_JINJA_REAL:
      if (isfinite(value->real)) return ls_jinja_repr(run, value, buffer);
      return put(run, buffer,
                 isnan(value->real) ? "NaN"
                 : value->real > 0  ? "Infinity"
                                    : "-Infinity");
    case LS_JINJA_TEXT: return dump_text(run, value, form->ascii, buffer);
    case LS_JINJA_LIST:
    case LS_JINJA_TUPLE: return dump_list(run, value, form, depth, buffer);
    case LS_JINJA_DICT: return dump_dict(run, value, form, depth, buffer);
    default:
      return ls_jinja_fail(run, "tojson: found %s; expected what JSON can say",
                           ls_jinja_kind_name(value));
  }
}
