/* What a pattern's signs say about one character: literals, escapes, properties and classes, read
 * as sets. Used by pattern_translate.c alone. One thread at a time. */
#ifndef LS_TOKENIZER_PATTERN_READ_H
#define LS_TOKENIZER_PATTERN_READ_H

#include "tokenizer/pattern.h"
#include "tokenizer/point_set.h"

typedef struct ls_pattern_reader {
  ls_arena *arena;
  const char *where, *source, *at;
  bool ruby;
  bool any_case; /* within (?i: */
} ls_pattern_reader;

/* LS_INPUT: the pattern has this at reader->at. */
LS_CHECKED ls_status ls_pattern_refuse(const ls_pattern_reader *reader, const char *what,
                                       ls_error *error);

/* A literal character, or an escape. */
LS_CHECKED ls_status ls_pattern_read_one(ls_pattern_reader *reader, ls_point_set *set,
                                         ls_error *error);

/* A class in brackets, with the classes in it. */
LS_CHECKED ls_status ls_pattern_read_class(ls_pattern_reader *reader, ls_point_set *set,
                                           ls_error *error);

#endif
