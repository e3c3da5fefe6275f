/* From the regular expressions of Oniguruma (Ruby's syntax) and fancy-regex to PCRE2's, over
 * symbols in place of characters. Used by pattern.c alone. Thread-safe. */
#ifndef LS_TOKENIZER_PATTERN_TRANSLATE_H
#define LS_TOKENIZER_PATTERN_TRANSLATE_H

#include "tokenizer/pattern.h"
#include "tokenizer/pattern_symbols.h"

/* The translated pattern, which is ASCII, and the symbols it is about, in the arena; LS_INPUT for
 * what the two read differently and what has no translation. */
LS_CHECKED ls_status ls_pattern_translate(ls_arena *arena, const char *where, const char *source,
                                          ls_pattern_syntax syntax, const char **translated,
                                          const ls_symbols **symbols, ls_error *error);

#endif
