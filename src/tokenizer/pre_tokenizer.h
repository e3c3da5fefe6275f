/* How a text is cut into words before the model sees them: the "pre_tokenizer" of tokenizer.json.
 *
 *   LS_TRY(ls_pre_tokenizer_read(arena, where, json, &pre, error));
 *   LS_TRY(ls_pre_tokenizer_apply(&pre, text, first, goes_on, &work, error));
 *   ... work.words.items[0 .. work.words.count) ...
 *
 * ByteLevel, Split, Digits, Punctuation, Whitespace, WhitespaceSplit, Metaspace, BertPreTokenizer
 * (which is two of these) and Sequences of them. ByteLevel's alphabet is left out: words are bytes,
 * and the model's pieces are read as such. Constant once read: thread-safe; a ls_pre_tokenizer_work
 * is one thread's. */
#ifndef LS_TOKENIZER_PRE_TOKENIZER_H
#define LS_TOKENIZER_PRE_TOKENIZER_H

#include "tokenizer/normalizer.h"

typedef enum ls_pre_tokenizer_kind {
  LS_PRE_SPLIT,
  LS_PRE_DIGITS,
  LS_PRE_PUNCTUATION,
  LS_PRE_SPACES,      /* WhitespaceSplit */
  LS_PRE_WORDS,       /* Whitespace */
  LS_PRE_SPACE_FIRST, /* ByteLevel's add_prefix_space */
  LS_PRE_ALPHABET,    /* ByteLevel's characters, where a step after it asks about them */
  LS_PRE_METASPACE,
} ls_pre_tokenizer_kind;

/* What becomes of a match: a word of its own, nothing, joined with a neighbour, or with matches
 * beside it. */
typedef enum ls_split_behavior {
  LS_SPLIT_ISOLATED,
  LS_SPLIT_REMOVED,
  LS_SPLIT_WITH_PREVIOUS,
  LS_SPLIT_WITH_NEXT,
  LS_SPLIT_CONTIGUOUS,
} ls_split_behavior;

typedef enum ls_prepend_scheme {
  LS_PREPEND_ALWAYS,
  LS_PREPEND_FIRST,
  LS_PREPEND_NEVER
} ls_prepend_scheme;

typedef struct ls_pre_tokenizer_step {
  ls_pre_tokenizer_kind kind;
  ls_split_behavior behavior;
  bool invert;
  ls_pattern *pattern;
  ls_span text;             /* Split on a text; Metaspace: its character */
  ls_prepend_scheme scheme; /* Metaspace */
  bool split;               /* Metaspace */
} ls_pre_tokenizer_step;

typedef struct ls_pre_tokenizer {
  LS_LIST(ls_pre_tokenizer_step) steps;
  bool bytes;    /* has a ByteLevel: words are bytes for the model */
  bool alphabet; /* words come in ByteLevel's characters and are turned back */
} ls_pre_tokenizer;

typedef struct ls_pre_tokenizer_work {
  ls_spans words;  /* the result */
  ls_spans before; /* of the step before */
  ls_bytes made[2];
  ls_matcher *matcher;
} ls_pre_tokenizer_work;

LS_CHECKED ls_status ls_pre_tokenizer_read(ls_arena *arena, const char *where, const json_t *json,
                                           ls_pre_tokenizer *pre, ls_error *error);
void ls_pre_tokenizer_free(ls_pre_tokenizer *pre);

/* Words in work->words, borrowed from the text or in `work`. `first`: the text is the whole's
 * beginning, which Metaspace's scheme "first" asks; `goes_on`: nothing is put before it. */
LS_CHECKED ls_status ls_pre_tokenizer_apply(const ls_pre_tokenizer *pre, ls_span text, bool first,
                                            bool goes_on, ls_pre_tokenizer_work *work,
                                            ls_error *error);

/* Metaspace's keys, which its decoder has too. */
LS_CHECKED ls_status ls_metaspace_read(ls_arena *arena, const ls_json_object *object,
                                       ls_span *character, ls_prepend_scheme *scheme, bool *split,
                                       ls_error *error);

#endif
