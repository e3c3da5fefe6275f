/* Regular expressions of tokenizers, run by PCRE2 with limits.
 *
 *   ls_pattern *pattern;
 *   LS_TRY(ls_pattern_compile(arena, where, "\\p{L}+", LS_PATTERN_RUBY, &pattern, error));
 *   ls_matcher matcher = {0};
 *   ls_pattern_begin(pattern, &matcher, text);
 *   LS_TRY(ls_pattern_find(&matcher, 0, &match, error));
 *   ls_matcher_free(&matcher);
 *   ls_pattern_free(pattern);
 *
 * The files' patterns are written for Oniguruma (Hugging Face) or fancy-regex (tiktoken). Classes
 * of characters are those of unicode_tables.h, never PCRE2's own (pattern_symbols.h); where it
 * reads a sign differently that is translated (^, $, case) or refused. A compiled pattern is
 * constant: thread-safe; a matcher is one thread's. */
#ifndef LS_TOKENIZER_PATTERN_H
#define LS_TOKENIZER_PATTERN_H

#include "tokenizer/token_buffer.h"

typedef enum ls_pattern_syntax { LS_PATTERN_RUBY, LS_PATTERN_RUST } ls_pattern_syntax;

typedef struct ls_pattern ls_pattern;

/* What a thread needs to match, and where it is in a text; all zero at first, made when it is
 * used. */
typedef struct ls_matcher {
  void *data, *context, *stack;
  const ls_pattern *pattern;
  ls_span text;
  ls_bytes written;
  const char *symbols; /* the text itself where it is ASCII */
  size_t count;        /* of the symbols */
  size_t byte, symbol; /* the same place in the text and in its symbols */
} ls_matcher;
void ls_matcher_free(ls_matcher *matcher);

/* LS_INPUT says, after `where`, what the pattern has that is wrong or not supported. */
LS_CHECKED ls_status ls_pattern_compile(ls_arena *arena, const char *where, const char *source,
                                        ls_pattern_syntax syntax, ls_pattern **pattern,
                                        ls_error *error);
void ls_pattern_free(ls_pattern *pattern);

typedef struct ls_match {
  size_t begin, end;
  bool found;
} ls_match;

/* Begins to look for matches in a text of valid UTF-8, which stays where it is until the last. */
void ls_pattern_begin(const ls_pattern *pattern, ls_matcher *matcher, ls_span text);

/* The first match that begins at `from` or later, which is no less than the last match's end.
 * LS_INPUT where it costs more than the limits of steps and stack allow. */
LS_CHECKED ls_status ls_pattern_find(ls_matcher *matcher, size_t from, ls_match *match,
                                     ls_error *error);

#endif
