#include "data/labelled.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "data/fingerprint.h"
#include "data/text_blocks.h"
#include "model/model.h"
#include "text/json.h"
#include "text/quote.h"
#include "tokenizer/token_buffer.h"

static const char pair_key[] = "text_pair";

static const char *kind_of(const json_t *value) {
  switch (json_typeof(value)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "a list";
    case JSON_NULL: return "null";
    case JSON_STRING: return "a text";
    case JSON_INTEGER: return "a number";
    case JSON_REAL:
      return fabs(json_real_value(value)) < 0x1p53 ? "a number with a fraction"
                                                   : "too large a number";
    default: return "true or false";
  }
}

/* The name of a class that a label gives; NULL: it is no name. */
static const char *name_of(const json_t *label) {
  if (json_is_boolean(label)) return json_is_true(label) ? "true" : "false";
  return json_string_value(label);
}

/* The number of a class that a label gives, 1.0 as well as 1; false: it is none. */
static bool number_of(const json_t *label, int64_t *number) {
  const double real = json_real_value(label);
  *number = json_integer_value(label);
  if (!json_is_real(label)) return json_is_integer(label);
  if (!(fabs(real) < 0x1p53) || real != nearbyint(real)) return false;
  *number = (int64_t)real;
  return true;
}

/* `several`: one of a list of them, which other programs write as a 0.0 or 1.0 for each class. */
static ls_status check_label(const char *key, const json_t *label, bool several, ls_error *error) {
  const char *name = name_of(label);
  int64_t number;
  if (several && json_is_real(label))
    return ls_fail(error, LS_INPUT,
                   "\"%s\": found %g in a list; expected the names or the numbers of those "
                   "classes that the text has, as in [0, 2], and not a 0 or 1 for each class",
                   key, json_real_value(label));
  if (json_is_string(label) && (!*name || strlen(name) != json_string_length(label)))
    return ls_fail(error, LS_INPUT, "\"%s\": found %s; expected the name of a class", key,
                   *name ? "a NUL in a text" : "an empty text");
  if (name || number_of(label, &number)) return LS_OK;
  return ls_fail(error, LS_INPUT, "\"%s\": found %s; expected the name or the number of a class",
                 key, kind_of(label));
}

/* What lies under a label's key. */
typedef enum label_form {
  ONE_LABEL,
  LABEL_OF_EACH, /* word: a list */
  SEVERAL_LABELS /* of a text: a list */
} label_form;

static label_form form_of(bool each, bool several) {
  return each ? LABEL_OF_EACH : several ? SEVERAL_LABELS : ONE_LABEL;
}

/* The label under the key, or the list of them. */
static ls_status find_label(const json_t *json, const char *key, label_form form,
                            const json_t **label, ls_error *error) {
  if (!json_is_object(json))
    return ls_fail(error, LS_INPUT, "found %s; expected an object with a text and its \"%s\"",
                   json_is_array(json) ? "a list" : "no object", key);
  *label = json_object_get(json, key);
  if (!*label)
    return ls_fail(error, LS_INPUT,
                   "found no key \"%s\"; expected a class there; data.label_key names another key",
                   key);
  if (form != ONE_LABEL && json_is_array(*label)) return LS_OK;
  if (form == SEVERAL_LABELS)
    return ls_fail(error, LS_INPUT,
                   "\"%s\": found %s; expected a list of the classes that the text has, which may "
                   "be empty",
                   key, kind_of(*label));
  if (form == LABEL_OF_EACH)
    return ls_fail(error, LS_INPUT,
                   "\"%s\": found one class; expected a list, of a class for each word", key);
  if (json_is_array(*label))
    return ls_fail(error, LS_INPUT,
                   "\"%s\": found a list; expected one class: several labels of a text are of "
                   "classes.several=true, and those of its words of classes.pooling=tokens",
                   key);
  return check_label(key, *label, false, error);
}

/* Whether a word has no class: null, or below 0, as -100 is. */
static bool is_no_class(const json_t *label) {
  int64_t number;
  return json_is_null(label) || (number_of(label, &number) && number < 0);
}

/* "neg, neu, pos": as many as there is room for. */
static void list_names(const ls_labelled *labelled, char *text, size_t bytes) {
  size_t used = 0;
  *text = 0;
  for (int64_t c = 0; c < labelled->count; c++) {
    char shown[LS_QUOTE_BYTES];
    ls_quote(shown, labelled->names[c], strlen(labelled->names[c]));
    const int length = snprintf(text + used, bytes - used, "%s%s", used ? ", " : "",
                                used > bytes / 2 ? "..." : shown);
    if (length < 0 || used + (size_t)length >= bytes) {
      text[used] = 0;
      return;
    }
    if (used > bytes / 2) return;
    used += (size_t)length;
  }
}

static int by_class_name(const void *a, const void *b) {
  return strcmp(((const ls_class_name *)a)->name, ((const ls_class_name *)b)->name);
}

void ls_labelled_sort(ls_arena *arena, ls_labelled *labelled) {
  ls_class_name *sorted = LS_NEW_ARRAY(arena, ls_class_name, labelled->count + 1);
  for (int64_t c = 0; c < labelled->count; c++)
    sorted[c] = (ls_class_name){labelled->names[c], (int32_t)c};
  qsort(sorted, (size_t)labelled->count, sizeof *sorted, by_class_name);
  labelled->sorted = sorted;
}

static ls_status find_class(const ls_labelled *labelled, const json_t *label, int32_t *number,
                            ls_error *error) {
  char names[200], shown[LS_QUOTE_BYTES];
  const char *name = name_of(label);
  int64_t given;
  (void)number_of(label, &given);
  if (!name && given >= 0 && given < labelled->count) {
    *number = (int32_t)given;
    return LS_OK;
  }
  const ls_class_name key = {name, 0};
  const ls_class_name *found =
      name ? bsearch(&key, labelled->sorted, (size_t)labelled->count, sizeof key, by_class_name)
           : NULL;
  if (found) {
    *number = found->number;
    return LS_OK;
  }
  list_names(labelled, names, sizeof names);
  if (name)
    return ls_fail(error, LS_INPUT, "\"%s\": found %s; expected one of the classes %s",
                   labelled->label_key, ls_quote(shown, name, strlen(name)), names);
  return ls_fail(error, LS_INPUT,
                 "\"%s\": found %lld; expected a class from 0 to %lld, or one of %s",
                 labelled->label_key, (long long)given, (long long)labelled->count - 1, names);
}

uint64_t ls_labelled_fingerprint(const ls_labelled *labelled) {
  uint64_t hash = ls_random_stream(labelled->each      ? "words with classes"
                                   : labelled->several ? "texts with several classes"
                                                       : "texts with classes");
  hash = ls_fingerprint_bytes(hash, labelled->label_key, strlen(labelled->label_key));
  if (labelled->pair_ends)
    hash = ls_fingerprint_bytes(hash, &labelled->pair_ends, sizeof labelled->pair_ends);
  for (int64_t c = 0; c < labelled->count; c++)
    hash = ls_fingerprint_bytes(hash, labelled->names[c], strlen(labelled->names[c]));
  return hash;
}

/* Text under a key; `may_lack`: a missing or null one is none. */
static ls_status append_text(const ls_labelled *labelled, const json_t *json, const char *key,
                             bool may_lack, unsigned flags, ls_ids *ids, ls_error *error) {
  const json_t *text = json_object_get(json, key);
  if (may_lack && (!text || json_is_null(text))) return LS_OK;
  if (!text)
    return ls_fail(error, LS_INPUT,
                   "found no key \"%s\"; expected a text there; data.text_key names another key",
                   key);
  if (!json_is_string(text)) return ls_fail(error, LS_INPUT, "\"%s\": expected a text", key);
  if (json_string_length(text) == 0)
    return ls_fail(error, LS_INPUT, "\"%s\": found an empty text; expected one to be told", key);
  return ls_tokenizer_append(labelled->tokenizer, json_string_value(text),
                             (int64_t)json_string_length(text), flags, ids, error);
}

static bool has_pair(const json_t *json) {
  const json_t *pair = json_object_get(json, pair_key);
  return pair && !json_is_null(pair);
}

/* Where the ids of words go, and what is needed for it. */
typedef struct word_list {
  const ls_labelled *labelled;
  ls_arena *arena;
  ls_ids ids, marks;
} word_list;

/* A word's ids, and a mark for each: the word's class, and for the others none. A word behind
 * others is what it is behind a blank. */
static ls_status append_word(word_list *list, const json_t *word, const json_t *label, bool behind,
                             ls_error *error) {
  const int64_t before = list->ids.count, bytes = (int64_t)json_string_length(word);
  int32_t number = -1;
  if (!json_is_string(word) || bytes == 0)
    return ls_fail(error, LS_INPUT, "found %s among the words; expected texts that are not empty",
                   json_is_string(word) ? "an empty text" : kind_of(word));
  if (!is_no_class(label)) {
    LS_TRY(check_label(list->labelled->label_key, label, false, error));
    LS_TRY(find_class(list->labelled, label, &number, error));
  }
  char *text = LS_NEW_ARRAY(list->arena, char, bytes + 1);
  text[0] = ' ';
  memcpy(text + 1, json_string_value(word), (size_t)bytes);
  const unsigned flags = LS_TOKENS_MORE | (behind ? LS_TOKENS_CONTINUE : 0);
  LS_TRY(ls_tokenizer_append(list->labelled->tokenizer, text + !behind, bytes + behind, flags,
                             &list->ids, error));
  for (int64_t i = before; i < list->ids.count; i++)
    ls_ids_push(&list->marks, i == before && number >= 0 ? 2 * number + 1 : 0);
  return LS_OK;
}

static ls_status find_words(const ls_labelled *labelled, const json_t *json, const char *text_key,
                            const json_t **words, const json_t **labels, ls_error *error) {
  LS_TRY(find_label(json, labelled->label_key, LABEL_OF_EACH, labels, error));
  *words = json_object_get(json, text_key);
  if (!json_is_array(*words) || json_array_size(*words) == 0)
    return ls_fail(error, LS_INPUT,
                   "found %s \"%s\"; expected a list of words there, each with a class: "
                   "data.text_key names another key",
                   *words ? "no words under" : "no key", text_key);
  if (json_array_size(*words) == json_array_size(*labels)) return LS_OK;
  return ls_fail(error, LS_INPUT, "\"%s\": found %zu classes of %zu words; expected one for each",
                 labelled->label_key, json_array_size(*labels), json_array_size(*words));
}

/* What the tokenizer puts before a text, or behind it. */
static ls_status append_edge(word_list *list, unsigned flags, ls_error *error) {
  LS_TRY(ls_tokenizer_append(list->labelled->tokenizer, "", 0, LS_TOKENS_SPECIAL | flags,
                             &list->ids, error));
  while (list->marks.count < list->ids.count) ls_ids_push(&list->marks, 0);
  return LS_OK;
}

static ls_status append_words(word_list *list, const json_t *words, const json_t *labels,
                              ls_error *error) {
  LS_TRY(append_edge(list, LS_TOKENS_MORE, error));
  for (size_t w = 0; w < json_array_size(words); w++)
    LS_TRY(append_word(list, json_array_get(words, w), json_array_get(labels, w), w > 0, error));
  return append_edge(list, LS_TOKENS_CONTINUE, error);
}

static ls_status encode_words(const ls_labelled *labelled, const json_t *json, const char *text_key,
                              ls_ids *marked, ls_error *error) {
  const json_t *words, *labels;
  LS_TRY(find_words(labelled, json, text_key, &words, &labels, error));
  word_list list = {.labelled = labelled, .arena = ls_arena_create()};
  const ls_status status = append_words(&list, words, labels, error);
  const int64_t count = status == LS_OK ? list.ids.count : 0;
  for (int64_t i = 0; i < count; i++) ls_ids_push(marked, 2 * list.ids.items[i]);
  for (int64_t i = 0; i < count; i++) ls_ids_push(marked, list.marks.items[i]);
  ls_ids_free(&list.ids);
  ls_ids_free(&list.marks);
  ls_arena_destroy(&list.arena);
  return status;
}

/* The text's class as a mark, or one for each class that it has. */
static ls_status append_classes(const ls_labelled *labelled, const json_t *json, ls_ids *marks,
                                ls_error *error) {
  const json_t *label;
  const char *key = labelled->label_key;
  int32_t number;
  LS_TRY(find_label(json, key, form_of(false, labelled->several), &label, error));
  const size_t count = labelled->several ? json_array_size(label) : 1;
  for (size_t l = 0; l < count; l++) {
    const json_t *one = labelled->several ? json_array_get(label, l) : label;
    LS_TRY(check_label(key, one, labelled->several, error));
    LS_TRY(find_class(labelled, one, &number, error));
    for (int64_t m = 0; m < marks->count; m++)
      if (marks->items[m] == 2 * number + 1)
        return ls_fail(error, LS_INPUT, "\"%s\": found the class %s twice; expected each once%s",
                       key, labelled->names[number],
                       name_of(one) ? "" : ", as in [0, 2], and not a 0 or 1 for each class");
    ls_ids_push(marks, 2 * number + 1);
  }
  return LS_OK;
}

static ls_status encode_text(const ls_labelled *labelled, const json_t *json, const char *text_key,
                             ls_ids *marked, ls_error *error) {
  const int64_t before = marked->count;
  const int ends = labelled->pair_ends;
  const bool pair = has_pair(json);
  const unsigned first = LS_TOKENS_SPECIAL | (pair && !ends ? LS_TOKENS_MORE : 0);
  const unsigned second = LS_TOKENS_SPECIAL | (ends ? LS_TOKENS_CONTINUE : 0);
  ls_status status = append_text(labelled, json, text_key, false, first, marked, error);
  for (int e = 1; status == LS_OK && pair && e < ends && marked->count > before; e++)
    ls_ids_push(marked, marked->items[marked->count - 1]);
  if (status == LS_OK) status = append_text(labelled, json, pair_key, true, second, marked, error);
  if (status == LS_OK && marked->count == before)
    status = ls_fail(error, LS_INPUT, "\"%s\": the tokenizer makes no tokens of it", text_key);
  for (int64_t i = before; i < marked->count; i++) marked->items[i] *= 2;
  if (status != LS_OK) marked->count = before;
  return status;
}

ls_status ls_labelled_encode(const ls_labelled *labelled, const json_t *json, const char *text_key,
                             ls_ids *marked, ls_error *error) {
  if (labelled->each) return encode_words(labelled, json, text_key, marked, error);
  ls_ids marks = {0};
  ls_status status = append_classes(labelled, json, &marks, error);
  if (status == LS_OK) status = encode_text(labelled, json, text_key, marked, error);
  for (int64_t m = 0; m < marks.count && status == LS_OK; m++) ls_ids_push(marked, marks.items[m]);
  ls_ids_free(&marks);
  return status;
}

/* Labels that are met, or where classes are known how often each is. */
typedef struct survey {
  ls_arena *arena;
  const ls_run_file *run;
  label_form form;
  ls_text_files files;
  json_t *names;            /* by name: true */
  int64_t largest;          /* of the numbers; -1: there are none */
  const ls_labelled *known; /* NULL: none are */
  int64_t *counts;          /* [known->count] */
  int64_t texts, fewest;    /* fewest labels of one of them */
} survey;

static ls_status count_label(survey *self, const json_t *label, ls_error *error) {
  int32_t number;
  LS_TRY(find_class(self->known, label, &number, error));
  self->counts[number]++;
  return LS_OK;
}

static ls_status add_label(survey *self, const json_t *label, ls_error *error) {
  if (self->known) return count_label(self, label, error);
  const char *key = self->run->data.label_key;
  const char *name = name_of(label);
  int64_t number;
  (void)number_of(label, &number);
  if (name ? self->largest >= 0 : json_object_size(self->names) > 0)
    return ls_fail(error, LS_INPUT,
                   "\"%s\": found a %s where others are %s; expected one kind of label", key,
                   name ? "name" : "number", name ? "numbers" : "names");
  if (!name && (number < 0 || number >= LS_MOST_CLASSES))
    return ls_fail(error, LS_INPUT, "\"%s\": found %lld; expected a class from 0 to %d", key,
                   (long long)number, LS_MOST_CLASSES - 1);
  if (!name && number > self->largest) self->largest = number;
  if (name && !json_object_get(self->names, name))
    json_object_set_new(self->names, name, json_true());
  if (json_object_size(self->names) <= LS_MOST_CLASSES) return LS_OK;
  return ls_fail(error, LS_INPUT, "\"%s\": found more than %d classes; expected fewer", key,
                 LS_MOST_CLASSES);
}

static ls_status add_labels(survey *self, const json_t *json, ls_error *error) {
  const char *key = self->run->data.label_key;
  const json_t *label;
  LS_TRY(find_label(json, key, self->form, &label, error));
  self->texts++;
  if (self->form == ONE_LABEL) return add_label(self, label, error);
  const int64_t labels = (int64_t)json_array_size(label);
  if (self->texts == 1 || labels < self->fewest) self->fewest = labels;
  for (size_t l = 0; l < json_array_size(label); l++) {
    const json_t *one = json_array_get(label, l);
    if (self->form == LABEL_OF_EACH && is_no_class(one)) continue;
    LS_TRY(check_label(key, one, self->form == SEVERAL_LABELS, error));
    LS_TRY(add_label(self, one, error));
  }
  return LS_OK;
}

static ls_status survey_block(survey *self, const ls_text_block *block, ls_error *error) {
  char where[512];
  json_t *root;
  const char *path = self->files.items[block->file].path;
  snprintf(where, sizeof where, "%s:%lld", path, (long long)block->line);
  if (!block->line)
    return ls_fail(error, LS_INPUT,
                   "%s: found a plain text; expected texts with classes as JSON (.jsonl, .json)",
                   path);
  if (block->too_long)
    return ls_fail(error, LS_INPUT, "%s: a line of more than %d bytes; expected shorter ones",
                   where, LS_LINE_BYTES);
  LS_TRY(ls_json_parse_part(path, block->line, block->text, (size_t)block->bytes, LS_JSON_LAST_KEY,
                            &root, error));
  const ls_status status = add_labels(self, root, error);
  json_decref(root);
  return status == LS_OK ? LS_OK : ls_error_prefix(error, "%s", where);
}

static ls_status survey_blocks(survey *self, ls_text_blocks *blocks, ls_error *error) {
  const bool skips = self->run->data.on_bad_line == LS_RUN_BAD_LINE_SKIP;
  for (;;) {
    ls_text_batch batch;
    LS_TRY(ls_text_blocks_next(blocks, &batch, error));
    if (batch.count == 0) return LS_OK;
    for (int b = 0; b < batch.count; b++) {
      const ls_text_block *block = &batch.items[b];
      const bool passes = skips && block->line > 0;
      const ls_status status = survey_block(self, block, passes ? NULL : error);
      if (status != LS_OK && !passes) return status;
    }
  }
}

/* Those of data.text. */
static ls_status survey_files(survey *self, ls_error *error) {
  const ls_run_texts *text = &self->run->data.text;
  const char *key = ls_run_file_where(self->run, "data.text");
  const char **patterns = LS_NEW_ARRAY(self->arena, const char *, text->count + 1);
  for (int i = 0; i < text->count; i++) patterns[i] = text->items[i].path;
  LS_TRY(ls_run_file_require(self->run, "data.text", error));
  LS_TRY(ls_text_files_find(self->arena, key, patterns, text->count, &self->files, error));
  ls_text_blocks *blocks;
  ls_text_blocks_open(key, &self->files, ls_tokenizer_bytes(), 1, &blocks);
  const ls_status status = survey_blocks(self, blocks, error);
  ls_text_blocks_close(&blocks);
  return status;
}

static int by_bytes(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void list_classes(const survey *self, const char *const **names, int64_t *count) {
  const int64_t named = (int64_t)json_object_size(self->names);
  *count = named ? named : self->largest + 1;
  const char **made = LS_NEW_ARRAY(self->arena, const char *, *count + 1);
  const char *name;
  json_t *value;
  int64_t at = 0;
  json_object_foreach(self->names, name, value) made[at++] = ls_arena_strdup(self->arena, name);
  if (named) qsort(made, (size_t)named, sizeof *made, by_bytes);
  for (; at < *count; at++) made[at] = ls_arena_printf(self->arena, "LABEL_%lld", (long long)at);
  *names = made;
}

ls_status ls_labelled_find_classes(ls_arena *arena, const ls_run_file *run,
                                   const char *const **names, int64_t *count, ls_error *error) {
  const char *key = ls_run_file_where(run, "data.text");
  survey self = {
      .arena = arena,
      .run = run,
      .form = form_of(run->classes.pooling == LS_RUN_POOLING_TOKENS, run->classes.several),
      .names = json_object(),
      .largest = -1};
  const ls_status status = survey_files(&self, error);
  if (status == LS_OK) list_classes(&self, names, count);
  json_decref(self.names);
  LS_TRY(status);
  if (*count >= 2 && self.form == SEVERAL_LABELS && self.fewest >= *count)
    return ls_fail(error, LS_INPUT,
                   "%s: found all %lld classes in each text; expected the names or the numbers of "
                   "those that a text has, as in [0, 2], and not a 0 or 1 for each class",
                   key, (long long)*count);
  if (*count >= 2) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s: found %lld class%s under \"%s\"; expected two or more", key,
                 (long long)*count, *count == 1 ? "" : "es", run->data.label_key);
}

ls_status ls_labelled_count(ls_arena *arena, const ls_run_file *run, int64_t *counts,
                            int64_t *texts, ls_error *error) {
  ls_labelled known = {
      .label_key = run->data.label_key, .names = run->classes.names, .count = run->classes.count};
  survey self = {.arena = arena,
                 .run = run,
                 .form = form_of(run->classes.each, run->classes.several),
                 .known = &known,
                 .counts = counts};
  for (int64_t c = 0; c < known.count; c++) counts[c] = 0;
  ls_labelled_sort(arena, &known);
  LS_TRY(survey_files(&self, error));
  *texts = self.texts;
  return LS_OK;
}
