#include "tokenizer/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

#include "text/quote.h"
#include "tokenizer/pattern_translate.h"
#include "tokenizer/unicode.h"

/* A match of a tokenizer's pattern is a word: it takes a few steps for each of its characters. The
 * limit stops what is exponential in a second or so, and a million letters stay far below it. */
enum { MATCH_LIMIT = 20000000, STACK_FIRST = 32 << 10, STACK_MOST = 16 << 20, HEAP_KIB = 64 << 10 };

struct ls_pattern {
  pcre2_code *code;
  const char *where, *source, *translated;
  const ls_symbols *symbols;
  bool jit;
};

ls_status ls_pattern_compile(ls_arena *arena, const char *where, const char *source,
                             ls_pattern_syntax syntax, ls_pattern **pattern, ls_error *error) {
  ls_pattern *made = LS_NEW(arena, ls_pattern);
  made->where = ls_arena_strdup(arena, where);
  made->source = ls_arena_strdup(arena, source);
  LS_TRY(
      ls_pattern_translate(arena, where, source, syntax, &made->translated, &made->symbols, error));
  int code;
  PCRE2_SIZE offset;
  pcre2_compile_context *context = pcre2_compile_context_create(NULL);
  if (!context) ls_panic("out of memory for a pattern");
  pcre2_set_newline(context, PCRE2_NEWLINE_LF); /* of ^ and $, which builds of PCRE2 set at will */
  made->code = pcre2_compile((PCRE2_SPTR)made->translated, PCRE2_ZERO_TERMINATED, 0, &code, &offset,
                             context);
  pcre2_compile_context_free(context);
  if (!made->code) {
    char shown[LS_QUOTE_BYTES];
    PCRE2_UCHAR reason[128];
    pcre2_get_error_message(code, reason, sizeof reason);
    return ls_fail(error, LS_INPUT, "%s: the pattern \"%s\" cannot be compiled: %s", where,
                   ls_quote(shown, source, strlen(source)), (const char *)reason);
  }
  made->jit = pcre2_jit_compile(made->code, PCRE2_JIT_COMPLETE) == 0;
  *pattern = made;
  return LS_OK;
}

void ls_pattern_free(ls_pattern *pattern) {
  if (!pattern) return;
  pcre2_code_free(pattern->code);
  pattern->code = NULL;
}

void ls_matcher_free(ls_matcher *matcher) {
  pcre2_match_data_free(matcher->data);
  pcre2_match_context_free(matcher->context);
  pcre2_jit_stack_free(matcher->stack);
  ls_bytes_free(&matcher->written);
  *matcher = (ls_matcher){0};
}

static void prepare(ls_matcher *matcher) {
  matcher->data = pcre2_match_data_create(1, NULL);
  matcher->context = pcre2_match_context_create(NULL);
  matcher->stack = pcre2_jit_stack_create(STACK_FIRST, STACK_MOST, NULL);
  if (!matcher->data || !matcher->context) ls_out_of_memory(STACK_FIRST);
  pcre2_set_match_limit(matcher->context, MATCH_LIMIT);
  pcre2_set_heap_limit(matcher->context, HEAP_KIB);
  if (matcher->stack) pcre2_jit_stack_assign(matcher->context, NULL, matcher->stack);
}

static ls_status fail_match(const ls_pattern *pattern, int code, size_t from, ls_error *error) {
  char shown[LS_QUOTE_BYTES];
  ls_quote(shown, pattern->source, strlen(pattern->source));
  switch (code) {
    case PCRE2_ERROR_MATCHLIMIT:
    case PCRE2_ERROR_HEAPLIMIT:
    case PCRE2_ERROR_JIT_STACKLIMIT:
      return ls_fail(error, LS_INPUT,
                     "%s: the pattern \"%s\" reaches its match limit at byte %zu of a text; a "
                     "pattern without nested repetition is expected",
                     pattern->where, shown, from);
  }
  PCRE2_UCHAR reason[128];
  pcre2_get_error_message(code, reason, sizeof reason);
  return ls_fail(error, LS_FAILED, "%s: the pattern \"%s\" failed at byte %zu of a text: %s",
                 pattern->where, shown, from, (const char *)reason);
}

static bool is_ascii(ls_span text) {
  size_t at = 0;
  uint64_t word, all = 0;
  for (; at + sizeof word <= text.bytes && !(all & 0x8080808080808080u); at += sizeof word) {
    memcpy(&word, text.text + at, sizeof word);
    all |= word;
  }
  for (; at < text.bytes; at++) all |= (unsigned char)text.text[at];
  return !(all & 0x8080808080808080u);
}

void ls_pattern_begin(const ls_pattern *pattern, ls_matcher *matcher, ls_span text) {
  if (!matcher->data) prepare(matcher);
  matcher->pattern = pattern;
  matcher->text = (ls_span){text.text ? text.text : "", text.bytes};
  matcher->byte = matcher->symbol = 0;
  matcher->symbols = matcher->text.text;
  matcher->count = text.bytes;
  if (is_ascii(text)) return;
  matcher->written.count = 0;
  ls_bytes_reserve(&matcher->written, text.bytes);
  matcher->count = ls_symbols_write(pattern->symbols, text, matcher->written.data);
  matcher->symbols = matcher->written.data;
}

/* Goes on to a place in the text: of a byte. */
static void go_to_byte(ls_matcher *matcher, size_t byte) {
  if (matcher->symbols == matcher->text.text) matcher->byte = matcher->symbol = byte;
  for (const char *at = matcher->text.text + matcher->byte; matcher->byte < byte;) {
    ls_unicode_next(&at);
    matcher->byte = (size_t)(at - matcher->text.text);
    matcher->symbol++;
  }
}

/* The same of a symbol. */
static void go_to_symbol(ls_matcher *matcher, size_t symbol) {
  size_t left = symbol - matcher->symbol;
  const char *at = matcher->text.text + matcher->byte,
             *end = matcher->text.text + matcher->text.bytes;
  matcher->symbol = symbol;
  if (matcher->symbols == matcher->text.text) {
    matcher->byte = symbol;
    return;
  }
  while (left > 0) {
    const unsigned char first = (unsigned char)*at;
    if (first >= 0x80) {
      at += first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
      left--;
    } else if (end - at >= 8) {
      size_t ascii = ls_ascii_of_eight(at);
      if (ascii > left) ascii = left;
      at += ascii;
      left -= ascii;
    } else {
      at++;
      left--;
    }
  }
  matcher->byte = (size_t)(at - matcher->text.text);
}

ls_status ls_pattern_find(ls_matcher *matcher, size_t from, ls_match *match, ls_error *error) {
  const ls_pattern *pattern = matcher->pattern;
  LS_ASSERT(from >= matcher->byte && from <= matcher->text.bytes);
  go_to_byte(matcher, from);
  const PCRE2_SPTR subject = (PCRE2_SPTR)matcher->symbols;
  const int code = pattern->jit
                       ? pcre2_jit_match(pattern->code, subject, matcher->count, matcher->symbol, 0,
                                         matcher->data, matcher->context)
                       : pcre2_match(pattern->code, subject, matcher->count, matcher->symbol, 0,
                                     matcher->data, matcher->context);
  match->found = code >= 0;
  if (code < 0) return code == PCRE2_ERROR_NOMATCH ? LS_OK : fail_match(pattern, code, from, error);
  const PCRE2_SIZE *bounds = pcre2_get_ovector_pointer(matcher->data);
  go_to_symbol(matcher, bounds[0]);
  match->begin = matcher->byte;
  go_to_symbol(matcher, bounds[1]);
  match->end = matcher->byte;
  return LS_OK;
}
