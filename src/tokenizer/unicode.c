#include "tokenizer/unicode.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "text/quote.h"
#include "text/utf8.h"
#include "tokenizer/point_set.h"

int ls_unicode_put(uint32_t point, char text[4]) {
  return (int)utf8proc_encode_char((utf8proc_int32_t)point, (utf8proc_uint8_t *)text);
}

/* Bytes of valid UTF-8 at the beginning. */
static size_t valid_prefix(const char *text, size_t bytes) {
  size_t at = 0;
  while (at < bytes) {
    uint64_t word;
    if (bytes - at >= sizeof word) {
      memcpy(&word, text + at, sizeof word);
      if (!(word & 0x8080808080808080u)) {
        at += sizeof word;
        continue;
      }
    }
    const size_t length =
        (unsigned char)text[at] < 0x80 ? 1 : ls_utf8_length(text + at, bytes - at);
    if (!length) break;
    at += length;
  }
  return at;
}

ls_span ls_unicode_repair(ls_span text, bool each_byte, ls_bytes *out) {
  size_t good = valid_prefix(text.text, text.bytes);
  if (good == text.bytes) return text;
  out->count = 0;
  if (!each_byte) {
    ls_utf8_stream stream = {0};
    ls_bytes_reserve(out, LS_UTF8_MOST(text.bytes) + LS_UTF8_MOST(0));
    out->count = ls_utf8_push(&stream, text.text, text.bytes, out->data);
    out->count += ls_utf8_end(&stream, out->data + out->count);
    return (ls_span){out->data, out->count};
  }
  for (size_t at = 0; at < text.bytes;) {
    ls_bytes_append(out, text.text + at, good);
    at += good;
    if (at == text.bytes) break;
    ls_bytes_append(out, "\xef\xbf\xbd", 3);
    at++;
    good = valid_prefix(text.text + at, text.bytes - at);
  }
  return (ls_span){out->data, out->count};
}

static bool is_in(const ls_named_points *points, uint32_t point) {
  const ls_point_set set = ls_point_set_of(points);
  return ls_point_set_has(&set, point);
}

bool ls_unicode_is_space(uint32_t point) {
  if (point < 0x80) return (point >= 9 && point <= 13) || point == ' ';
  return is_in(&ls_points_spaces, point);
}

bool ls_unicode_is_punctuation(uint32_t point) {
  return is_in(&ls_points_marks, point);
}

bool ls_unicode_is_number(uint32_t point) {
  if (point < 0x80) return point >= '0' && point <= '9';
  return is_in(&ls_points_numbers, point);
}

bool ls_unicode_is_accent(uint32_t point) {
  return point >= 0x80 && is_in(&ls_points_accents, point);
}

bool ls_unicode_is_cleaned(uint32_t point) {
  return is_in(&ls_points_cleaned, point);
}

bool ls_unicode_is_han(uint32_t point) {
  return point >= 0x80 && is_in(&ls_points_han_blocks, point);
}

/* Letters that came with Unicode 16 and 17: utf8proc may be older. */
static uint32_t new_lower(uint32_t point) {
  static const struct {
    uint32_t first, last, lower;
  } runs[] = {{0x1c89, 0x1c89, 0x1c8a},   {0xa7cb, 0xa7cb, 0x264},  {0xa7cc, 0xa7cc, 0xa7cd},
              {0xa7ce, 0xa7ce, 0xa7cf},   {0xa7d2, 0xa7d2, 0xa7d3}, {0xa7d4, 0xa7d4, 0xa7d5},
              {0xa7da, 0xa7da, 0xa7db},   {0xa7dc, 0xa7dc, 0x19b},  {0x10d50, 0x10d65, 0x10d70},
              {0x16ea0, 0x16eb8, 0x16ebb}};
  for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
    if (point >= runs[i].first && point <= runs[i].last)
      return runs[i].lower + (point - runs[i].first);
  return 0;
}

int ls_unicode_put_lower(uint32_t point, char text[8]) {
  enum { DOTTED_I = 0x130, DOT_ABOVE = 0x307 };
  if (point < 0x80) {
    text[0] = (char)(point >= 'A' && point <= 'Z' ? point + 32 : point);
    return 1;
  }
  if (point == DOTTED_I) { /* the only one that becomes two */
    text[0] = 'i';
    return 1 + ls_unicode_put(DOT_ABOVE, text + 1);
  }
  const uint32_t later = new_lower(point);
  return ls_unicode_put(later ? later : (uint32_t)utf8proc_tolower((utf8proc_int32_t)point), text);
}

/* A character's category: two letters. */
static const char *find_category(uint32_t point) {
  int low = 0, high = ls_category_run_count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (ls_category_runs[middle] >> 8 <= point) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return ls_category_names + 2 * (ls_category_runs[low] & 0xff);
}

bool ls_unicode_is_word(uint32_t point) {
  const char *category = find_category(point);
  const bool letter_or_mark = category[0] == 'L' || category[0] == 'M';
  const bool digit = category[0] == 'N' && category[1] != 'o';
  const bool connector = category[0] == 'P' && category[1] == 'c';
  const bool joiner = point == 0x200c || point == 0x200d;
  return letter_or_mark || digit || connector || joiner || is_in(&ls_points_word_symbols, point);
}

static const utf8proc_option_t form_options[] = {
    [LS_NFC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE,
    [LS_NFD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE,
    [LS_NFKC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
    [LS_NFKD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT,
};

/* Appends the normalized text. utf8proc fails only for want of memory, and beyond 2^31 bytes. */
static void append_form(ls_unicode_form form, const char *text, size_t bytes, ls_bytes *out) {
  utf8proc_uint8_t *made = NULL;
  const utf8proc_ssize_t length = utf8proc_map((const utf8proc_uint8_t *)text,
                                               (utf8proc_ssize_t)bytes, &made, form_options[form]);
  if (length < 0) ls_panic("a text cannot be normalized: %s", utf8proc_errmsg(length));
  ls_bytes_append(out, made, (size_t)length);
  free(made);
}

/* A character that a form neither changes nor lets join with one before it: text made of such is
 * normalized, and text may be cut before each. Marks join, and the later Jamo of a syllable. */
static bool find_stable(ls_unicode_form form, uint32_t point) {
  if (!is_in(&ls_points_forms, point)) return true;
  if (find_category(point)[0] == 'M') return false;
  if (point >= 0x1160 && point <= 0x11ff) return false;
  char text[4];
  const size_t bytes = (size_t)ls_unicode_put(point, text);
  utf8proc_int32_t parts[32];
  if (form == LS_NFD || form == LS_NFKD) {
    const utf8proc_ssize_t count = utf8proc_decompose(
        (const utf8proc_uint8_t *)text, (utf8proc_ssize_t)bytes, parts, 32, form_options[form]);
    return count == 1 && parts[0] == (utf8proc_int32_t)point;
  }
  utf8proc_ssize_t count = utf8proc_decompose(
      (const utf8proc_uint8_t *)text, (utf8proc_ssize_t)bytes, parts, 32, form_options[form]);
  if (count < 1 || count > 32) return false;
  count = utf8proc_normalize_utf32(parts, count, form_options[form]);
  return count == 1 && parts[0] == (utf8proc_int32_t)point;
}

/* The answers for the first plane, found once for each form that is used. */
static uint8_t stable_plane[4][0x10000 / 8];
static pthread_once_t stable_once[4] = {PTHREAD_ONCE_INIT, PTHREAD_ONCE_INIT, PTHREAD_ONCE_INIT,
                                        PTHREAD_ONCE_INIT};

static void fill_plane(ls_unicode_form form) {
  for (uint32_t point = 0; point < 0x10000; point++) {
    if (find_stable(form, point)) {
      stable_plane[form][point / 8] |= (uint8_t)(1u << point % 8);
    }
  }
}

static void fill_nfc(void) {
  fill_plane(LS_NFC);
}
static void fill_nfd(void) {
  fill_plane(LS_NFD);
}
static void fill_nfkc(void) {
  fill_plane(LS_NFKC);
}
static void fill_nfkd(void) {
  fill_plane(LS_NFKD);
}
static void (*const fill_form[])(void) = {fill_nfc, fill_nfd, fill_nfkc, fill_nfkd};

static bool is_stable(ls_unicode_form form, uint32_t point) {
  if (point >= 0x10000) return find_stable(form, point);
  return stable_plane[form][point / 8] >> point % 8 & 1;
}

/* The first unstable character from `at` on, or `end`; *before is where the stable character before
 * it begins, which it may join, or the unstable one where no form acts on that. */
static const char *find_unstable(ls_unicode_form form, const char *at, const char *end,
                                 const char **before) {
  uint32_t last = 0;
  *before = at;
  while (at < end) {
    if ((unsigned char)*at < 0x80) {
      last = 0;
      *before = at++;
      continue;
    }
    const char *next = at;
    const uint32_t point = ls_unicode_next(&next);
    if (!is_stable(form, point)) {
      if (last && !is_in(&ls_points_forms, last)) *before = at;
      return at;
    }
    last = point;
    *before = at;
    at = next;
  }
  return end;
}

ls_span ls_unicode_normalize(ls_unicode_form form, ls_span text, ls_bytes *out) {
  pthread_once(&stable_once[form], fill_form[form]);
  const char *end = text.text + text.bytes, *copied = text.text, *before;
  const char *at = find_unstable(form, text.text, end, &before);
  if (at == end) return text;
  out->count = 0;
  while (at < end) {
    ls_bytes_append(out, copied, (size_t)(before - copied));
    const char *stop = at; /* the next stable character */
    while (stop < end) {
      const char *next = stop;
      if (is_stable(form, ls_unicode_next(&next))) break;
      stop = next;
    }
    append_form(form, before, (size_t)(stop - before), out);
    copied = stop;
    at = find_unstable(form, stop, end, &before);
  }
  ls_bytes_append(out, copied, (size_t)(end - copied));
  return (ls_span){out->data, out->count};
}
