#include "data/text_check.h"

#include <inttypes.h>
#include <string.h>

#include "text/quote.h"

/* How files begin that are no text, or not the text that their names say. */
static const struct head {
  const char *bytes;
  size_t count;
  const char *what, *remedy;
} heads[] = {
    {"%PDF-", 5, "is a PDF", "convert it first, as with pdftotext"},
    {"PK\3\4", 4, "is a zip archive (so are .docx, .xlsx and .epub)", "unpack or convert it first"},
    {"PAR1", 4, "is a Parquet file", "convert it to JSON lines first"},
    {"\x7f"
     "ELF",
     4, "is a program", "name another file"},
    {"\x89PNG", 4, "is a picture", "name another file"},
    {"\xff\xd8\xff", 3, "is a picture", "name another file"},
    /* UTF-32's mark begins as UTF-16's does, so it comes first. */
    {"\xff\xfe\0\0", 4, "is UTF-32, not UTF-8", "convert it first: iconv -f UTF-32 -t UTF-8"},
    {"\0\0\xfe\xff", 4, "is UTF-32, not UTF-8", "convert it first: iconv -f UTF-32 -t UTF-8"},
    {"\xff\xfe", 2, "is UTF-16, not UTF-8", "convert it first: iconv -f UTF-16 -t UTF-8"},
    {"\xfe\xff", 2, "is UTF-16, not UTF-8", "convert it first: iconv -f UTF-16 -t UTF-8"},
};

static ls_status check_head(const ls_text_check *check, const char *bytes, size_t count,
                            ls_error *error) {
  for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
    const struct head *head = &heads[i];
    if (count < head->count || memcmp(bytes, head->bytes, head->count) != 0) continue;
    return ls_fail(error, LS_INPUT, "%s: %s %s: %s", check->key, check->path, head->what,
                   head->remedy);
  }
  return LS_OK;
}

/* Latin letters in UTF-16 without a mark: every second byte is NUL. */
static const char *nul_remedy(const char *bytes, size_t count, size_t at) {
  const bool first = at + 3 < count && bytes[at + 1] && !bytes[at + 2] && bytes[at + 3];
  const bool second = at >= 1 && at + 2 < count && bytes[at - 1] && bytes[at + 1] && !bytes[at + 2];
  if (first && !second) return "if it is UTF-16, convert it: iconv -f UTF-16BE -t UTF-8";
  if (second) return "if it is UTF-16, convert it: iconv -f UTF-16LE -t UTF-8";
  return "name another file, or take them out: tr -d '\\000'";
}

static ls_status judge_nuls(const ls_text_check *check, int64_t bytes, ls_error *error) {
  if (check->nuls * LS_TEXT_NUL_SHARE <= bytes) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s: %s: %" PRId64 " of its first %" PRId64 " bytes are NUL, so it is no text: %s",
                 check->key, check->path, check->nuls, bytes, check->remedy);
}

static void count_bad(ls_text_check *check, int64_t at) {
  if (check->bad++ == 0 || at < check->first_bad) check->first_bad = at;
}

/* Whether more bytes could make a character of these, which are none. */
static bool may_go_on(const char *bytes, size_t count) {
  char whole[4];
  if (count == 0 || count >= sizeof whole) return false;
  memcpy(whole, bytes, count);
  /* What may follow the first byte depends on it, what follows later does not. */
  static const char seconds[] = {(char)0x80, (char)0x90, (char)0xA0};
  for (size_t i = 0; i < sizeof seconds; i++) {
    memset(whole + count, (char)0x80, sizeof whole - count);
    if (count == 1) whole[1] = seconds[i];
    if (ls_utf8_length(whole, sizeof whole) > count) return true;
  }
  return false;
}

static bool eight_ascii(const char *bytes) {
  uint64_t word;
  memcpy(&word, bytes, sizeof word);
  return (word & UINT64_C(0x8080808080808080)) == 0;
}

/* Looks at the characters that begin before `until`; `place` is of bytes[0] in the file. A
 * character that is cut off is held. Returns where the first begins that was not looked at. */
static size_t walk(ls_text_check *check, const char *bytes, size_t count, size_t until,
                   int64_t place) {
  size_t at = 0;
  while (at < until) {
    if (at + 8 <= until && eight_ascii(bytes + at)) {
      at += 8;
      continue;
    }
    const size_t length = ls_utf8_length(bytes + at, count - at);
    if (length == 0 && may_go_on(bytes + at, count - at)) {
      check->held_bytes = count - at;
      memcpy(check->held, bytes + at, check->held_bytes);
      return count;
    }
    if (length == 0) count_bad(check, place + (int64_t)at);
    at += length ? length : 1;
  }
  return at;
}

static void check_utf8(ls_text_check *check, const char *bytes, size_t count) {
  const size_t held = check->held_bytes;
  char joint[2 * sizeof check->held];
  const size_t more = count < sizeof check->held ? count : sizeof check->held;
  memcpy(joint, check->held, held);
  memcpy(joint + held, bytes, more);
  check->held_bytes = 0;
  const size_t done = walk(check, joint, held + more, held, check->bytes - (int64_t)held) - held;
  walk(check, bytes + done, count - done, count - done, check->bytes + (int64_t)done);
}

/* NULs are bad bytes; of a sample with many of them, all of the text is. */
static ls_status check_nuls(ls_text_check *check, const char *bytes, size_t count,
                            ls_error *error) {
  const char *const end = bytes + count;
  const int64_t left = LS_TEXT_SAMPLE_BYTES - check->bytes; /* of the sample */
  for (const char *at = bytes; (at = memchr(at, 0, (size_t)(end - at))); at++) {
    count_bad(check, check->bytes + (at - bytes));
    if (at - bytes >= left) continue;
    if (check->nuls++ == 0) check->remedy = nul_remedy(bytes, count, (size_t)(at - bytes));
  }
  const bool sampled = left > 0 && (int64_t)count >= left;
  return sampled ? judge_nuls(check, LS_TEXT_SAMPLE_BYTES, error) : LS_OK;
}

ls_status ls_text_check_add(ls_text_check *check, const char *bytes, size_t count,
                            ls_error *error) {
  if (check->bytes == 0) LS_TRY(check_head(check, bytes, count, error));
  LS_TRY(check_nuls(check, bytes, count, error));
  check_utf8(check, bytes, count);
  check->bytes += (int64_t)count;
  return LS_OK;
}

ls_status ls_text_check_end(ls_text_check *check, ls_error *error) {
  for (size_t i = 0; i < check->held_bytes; i++)
    count_bad(check, check->bytes - (int64_t)check->held_bytes + (int64_t)i);
  check->held_bytes = 0;
  return check->bytes < LS_TEXT_SAMPLE_BYTES ? judge_nuls(check, check->bytes, error) : LS_OK;
}
