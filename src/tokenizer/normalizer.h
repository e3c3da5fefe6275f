/* What is done to a text before it is cut: the "normalizer" of tokenizer.json.
 *
 *   LS_TRY(ls_normalizer_read(arena, where, json, &normalizer, error));
 *   LS_TRY(ls_normalizer_apply(&normalizer, text, flags, &work, &text, error));
 *
 * NFC, NFD, NFKC, NFKD, Prepend, Replace, Strip, Lowercase, BertNormalizer and Sequences of
 * them. Constant once read:
 * thread-safe; a ls_normalizer_work is one thread's. */
#ifndef LS_TOKENIZER_NORMALIZER_H
#define LS_TOKENIZER_NORMALIZER_H

#include "text/json.h"
#include "tokenizer/pattern.h"
#include "tokenizer/unicode.h"

typedef enum ls_normalizer_kind {
  LS_NORMALIZE_FORM,
  LS_NORMALIZE_PREPEND,
  LS_NORMALIZE_REPLACE,
  LS_NORMALIZE_STRIP,
  LS_NORMALIZE_LOWERCASE,
  LS_NORMALIZE_STRIP_ACCENTS, /* these three are BertNormalizer's; its accents are left out */
  LS_NORMALIZE_CLEAN,         /* clean_text: what is no text is left out, spaces become blanks */
  LS_NORMALIZE_SPACE_HAN,     /* handle_chinese_chars: blanks around each */
} ls_normalizer_kind;

typedef struct ls_normalizer_step {
  ls_normalizer_kind kind;
  ls_unicode_form form;
  ls_span sought, content; /* Replace; Prepend: content */
  ls_pattern *pattern;     /* Replace with a regular expression */
  bool left, right;        /* Strip */
} ls_normalizer_step;

typedef struct ls_normalizer {
  LS_LIST(ls_normalizer_step) steps;
} ls_normalizer;

typedef struct ls_normalizer_work {
  ls_bytes made[2]; /* the last step's text and the one before */
  ls_matcher *matcher;
} ls_normalizer_work;

/* `where` names the file; `json` is the component or null. LS_INPUT names what is not supported. */
LS_CHECKED ls_status ls_normalizer_read(ls_arena *arena, const char *where, const json_t *json,
                                        ls_normalizer *normalizer, ls_error *error);
void ls_normalizer_free(ls_normalizer *normalizer);

/* The normalized text: `text` itself, or in `work`. With `goes_on` it is no text's beginning, and
 * nothing is put before it. */
LS_CHECKED ls_status ls_normalizer_apply(const ls_normalizer *normalizer, ls_span text,
                                         bool goes_on, ls_normalizer_work *work, ls_span *out,
                                         ls_error *error);

/* "pattern": {"String": ...} or {"Regex": ...} of a component. */
LS_CHECKED ls_status ls_component_pattern(ls_arena *arena, const ls_json_object *object,
                                          ls_span *text, ls_pattern **pattern, ls_error *error);

/* The most that all steps together may make of a text: real files make three bytes of a blank, and
 * Unicode's forms eleven of one. */
size_t ls_replaced_most(size_t bytes);

/* Replaces all that is found of a text or pattern. LS_INPUT where that makes more than `most`
 * bytes: a few steps that each replace a letter by a hundred would fill any memory. */
LS_CHECKED ls_status ls_replace_all(ls_span text, ls_span sought, const ls_pattern *pattern,
                                    ls_matcher *matcher, ls_span content, size_t most,
                                    ls_bytes *out, ls_error *error);

#endif
