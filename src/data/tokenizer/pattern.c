#include "data/tokenizer/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

#include "data/tokenizer/pattern_translate.h"
#include "text/quote.h"

/* A match of a tokenizer's pattern is a word: it takes a few steps for each of its characters. The
 * limit stops what is exponential in a second or so, and a million letters stay far below it. */
enum { MATCH_LIMIT = 20000000, STACK_FIRST = 32 << 10, STACK_MOST = 16 << 20, HEAP_KIB = 64 << 10 };

struct ls_pattern {
  pcre2_code *code;
  const char *where, *source, *translated;
  bool jit;
};

ls_status ls_pattern_compile(ls_arena *arena, const char *where, const char *source,
                             ls_pattern_syntax syntax, ls_pattern **pattern, ls_error *error) {
  ls_pattern *made = LS_NEW(arena, ls_pattern);
  made->where = ls_arena_strdup(arena, where);
  made->source = ls_arena_strdup(arena, source);
  LS_TRY(ls_pattern_translate(arena, where, source, syntax, &made->translated, error));
  int code;
  PCRE2_SIZE offset;
  made->code = pcre2_compile((PCRE2_SPTR)made->translated, PCRE2_ZERO_TERMINATED,
                             PCRE2_UTF | PCRE2_UCP, &code, &offset, NULL);
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

const char *ls_pattern_translated(const ls_pattern *pattern) {
  return pattern->translated;
}

void ls_matcher_free(ls_matcher *matcher) {
  pcre2_match_data_free(matcher->data);
  pcre2_match_context_free(matcher->context);
  pcre2_jit_stack_free(matcher->stack);
  *matcher = (ls_matcher){0};
}

static void prepare(ls_matcher *matcher) {
  matcher->data = pcre2_match_data_create(1, NULL);
  matcher->context = pcre2_match_context_create(NULL);
  matcher->stack = pcre2_jit_stack_create(STACK_FIRST, STACK_MOST, NULL);
  if (!matcher->data || !matcher->context) ls_panic("out of memory for a pattern's matches");
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

ls_status ls_pattern_find(const ls_pattern *pattern, ls_matcher *matcher, ls_span text, size_t from,
                          ls_match *match, ls_error *error) {
  if (!matcher->data) prepare(matcher);
  const PCRE2_SPTR subject = (PCRE2_SPTR)(text.text ? text.text : "");
  const int code = pattern->jit ? pcre2_jit_match(pattern->code, subject, text.bytes, from, 0,
                                                  matcher->data, matcher->context)
                                : pcre2_match(pattern->code, subject, text.bytes, from,
                                              PCRE2_NO_UTF_CHECK, matcher->data, matcher->context);
  match->found = code >= 0;
  if (code < 0) return code == PCRE2_ERROR_NOMATCH ? LS_OK : fail_match(pattern, code, from, error);
  const PCRE2_SIZE *bounds = pcre2_get_ovector_pointer(matcher->data);
  match->begin = bounds[0];
  match->end = bounds[1] < bounds[0] ? bounds[0] : bounds[1];
  return LS_OK;
}
