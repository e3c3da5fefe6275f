/* Texts with a class each, as marked ids: those of the text, and behind them its class, which alone
 * is trained. The class is no token: whoever reads a document takes it off (ls_packing_labelled).
 * Or lists of words with a class each: as many marks as ids lie behind these then, the class of a
 * word at the place of its first id, and nothing that is trained at others (ls_packing_make_each).
 *
 *   ls_labelled labelled = {.tokenizer = tokenizer, .label_key = "label", .names = names, ...};
 *   ls_labelled_sort(arena, &labelled);
 *   LS_TRY(ls_labelled_encode(&labelled, json, "text", &ids, error));
 *
 * {"text": "...", "label": "good"}, or the class's number; a "text_pair" behind the text follows as
 * a text of its own, or behind so many of the text's end tokens. Of words {"text": ["...", "..."],
 * "label": ["good", null]}, where null or a number below 0 is no class. Of texts with several
 * classes
 * {"text": "...", "label": ["good", "long"]}: as many marks as it has classes, or none.
 * Thread-safe: no state. */
#ifndef LS_DATA_LABELLED_H
#define LS_DATA_LABELLED_H

#include <jansson.h>

#include "base/arena.h"
#include "text/run_file.h"
#include "tokenizer/tokenizer.h"

/* A class by its name. */
typedef struct ls_class_name {
  const char *name;
  int32_t number;
} ls_class_name;

typedef struct ls_labelled {
  const ls_tokenizer *tokenizer;
  const char *label_key;
  const char *const *names; /* [count] of the classes */
  int64_t count;
  int pair_ends; /* end tokens between two texts; 0: the second begins as it does alone */
  bool each;     /* words have classes */
  bool several;  /* a text has any of the classes */
  const ls_class_name *sorted; /* [count] by their bytes */
} ls_labelled;

/* Sets `sorted`, which the rest of this needs. In the arena. */
void ls_labelled_sort(ls_arena *arena, ls_labelled *labelled);

/* Of all that decides which ids there are, beside the tokenizer. */
uint64_t ls_labelled_fingerprint(const ls_labelled *labelled);

/* Appends the marked ids of an object; LS_INPUT says which key is wrong and what was expected, and
 * *ids is as before. `error` may be NULL. */
LS_CHECKED ls_status ls_labelled_encode(const ls_labelled *labelled, const json_t *json,
                                        const char *text_key, ls_ids *marked, ls_error *error);

/* The classes that the labels of data.text name (with classes.pooling=tokens those of words, with
 * classes.several each of a list): names sorted by their bytes, or, of labels that are whole
 * numbers from 0 on, "LABEL_0" and so on up to the largest. LS_INPUT, with file and line: both
 * kinds, none, or fewer than two classes. In the arena. */
LS_CHECKED ls_status ls_labelled_find_classes(ls_arena *arena, const ls_run_file *run,
                                              const char *const **names, int64_t *count,
                                              ls_error *error);

/* How often each of run->classes is a label in data.text, of texts too that are left out later or
 * validated on, and how many texts there are. LS_INPUT, with file and line: a label that is none of
 * them. */
LS_CHECKED ls_status ls_labelled_count(ls_arena *arena, const ls_run_file *run, int64_t *counts,
                                       int64_t *texts, ls_error *error);

#endif
