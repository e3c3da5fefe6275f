#include "data/dataset.h"

#include <math.h>
#include <stdio.h>

#include "base/random.h"
#include "base/sets.h"
#include "data/chat_texts.h"
#include "data/fingerprint.h"
#include "data/text_cache.h"

/* What is the same while a dataset is opened. */
typedef struct opening {
  ls_arena *arena;
  const ls_run_file *run;
  ls_corpus_options options; /* without patterns */
  ls_dataset *dataset;
} opening;

static ls_status check_apart(ls_arena *arena, const ls_corpus *kept, const ls_corpus *text,
                             const char *key, ls_error *error) {
  int in_kept, in_text;
  if (!ls_text_files_shared(arena, &kept->files, &text->files, &in_kept, &in_text)) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s: found %s, which is in data.text too (as %s); expected files of its own", key,
                 kept->files.items[in_kept].path, text->files.items[in_text].path);
}

/* One corpus of the items [first, first + count) of data.text. */
static ls_status open_text(const opening *self, int first, int count, ls_corpus *corpus,
                           ls_error *error) {
  const ls_run_text *items = self->run->data.text.items + first;
  const char **patterns = LS_NEW_ARRAY(self->arena, const char *, count);
  const char **fields = LS_NEW_ARRAY(self->arena, const char *, count);
  for (int i = 0; i < count; i++) {
    patterns[i] = items[i].path;
    fields[i] = items[i].field;
  }
  ls_corpus_options options = self->options;
  options.key = ls_run_file_where(self->run, "data.text");
  options.patterns = patterns;
  options.pattern_count = count;
  options.fields = fields;
  LS_TRY(ls_corpus_open(self->arena, &options, corpus, error));
  self->dataset->documents += corpus->document_count;
  self->dataset->skipped += corpus->skipped;
  return LS_OK;
}

static bool has_weights(const ls_run_texts *texts) {
  for (int i = 0; i < texts->count; i++)
    if (texts->items[i].weight > 0) return true;
  return false;
}

static ls_status open_texts(const opening *self, ls_error *error) {
  const ls_run_texts *texts = &self->run->data.text;
  ls_dataset *made = self->dataset;
  const int count = has_weights(texts) ? texts->count : 1;
  made->texts = LS_NEW_ARRAY(self->arena, ls_corpus, count);
  for (; made->text_count < count; made->text_count++) {
    const int t = made->text_count, items = count > 1 ? 1 : texts->count;
    LS_TRY(open_text(self, t, items, &made->texts[t], error));
  }
  for (int t = 1; t < count; t++)
    for (int k = 0; k < t; k++) {
      int here, there;
      if (!ls_text_files_shared(self->arena, &made->texts[t].files, &made->texts[k].files, &here,
                                &there))
        continue;
      return ls_fail(error, LS_INPUT, "%s: found %s a second time (as %s); expected each file once",
                     ls_run_file_where(self->run, "data.text"),
                     made->texts[t].files.items[here].path, made->texts[k].files.items[there].path);
    }
  return LS_OK;
}

static ls_status open_validation(const opening *self, ls_error *error) {
  const ls_run_globs *globs = &self->run->data.validation.globs;
  ls_dataset *made = self->dataset;
  ls_corpus_options options = self->options;
  options.key = ls_run_file_where(self->run, "data.validation");
  options.patterns = globs->items;
  options.pattern_count = globs->count;
  LS_TRY(ls_corpus_open(self->arena, &options, &made->validation, error));
  made->skipped += made->validation.skipped;
  for (int t = 0; t < made->text_count; t++)
    LS_TRY(check_apart(self->arena, &made->validation, &made->texts[t], "data.validation", error));
  if (made->chats || made->validation.count > self->run->data.seq_len) return LS_OK;
  return ls_fail(
      error, LS_INPUT,
      "%s: found %lld tokens; a sequence of %lld tokens needs %lld: give more text, or a "
      "smaller data.seq_len",
      options.key, (long long)made->validation.count, (long long)self->run->data.seq_len,
      (long long)(self->run->data.seq_len + 1));
}

/* Tokens of the tail kept for evaluation. */
static int64_t tail_of(const ls_run_data *data, int64_t tokens) {
  const int64_t least = data->seq_len + 1;
  const int64_t tail = (int64_t)llround(data->validation.fraction * (double)tokens);
  return tail > least ? tail : least;
}

/* Whether drawing documents leaves each corpus a sequence to train on and one to be asked about;
 * *fair: and about as many tokens as were wanted, which one long document may foil. */
static bool draw_documents(const opening *self, bool *fair) {
  const ls_run_data *data = &self->run->data;
  const ls_dataset *made = self->dataset;
  bool enough = true;
  *fair = true;
  for (int t = 0; t < made->text_count; t++) {
    const ls_corpus *corpus = &made->texts[t];
    ls_text_part *others = &made->training.mix[t].part, *kept = &made->evaluation.mix[t].part;
    ls_text_part_split_documents(self->arena, corpus, data->validation.fraction, others, kept);
    enough = enough && ls_order_count(others->tokens, data->seq_len) > 0 &&
             ls_order_count(kept->tokens, data->seq_len) > 0;
    const double wanted = data->validation.fraction * (double)corpus->count;
    *fair = *fair && (double)kept->tokens > wanted / 4 && (double)kept->tokens < wanted * 4;
  }
  return enough;
}

static ls_status fail_too_few(const opening *self, ls_error *error) {
  const ls_dataset *made = self->dataset;
  int64_t tokens = 0, documents = 0;
  for (int t = 0; t < made->text_count; t++) {
    tokens += made->evaluation.mix[t].part.tokens;
    documents += made->evaluation.mix[t].part.documents;
  }
  return ls_fail(error, LS_INPUT,
                 "%s: document: %lld of %lld documents are kept, with %lld tokens; each text needs "
                 "%lld or more on both sides: give another data.validation, or data.split=tail",
                 ls_run_file_where(self->run, "data.split"), (long long)documents,
                 (long long)made->documents, (long long)tokens,
                 (long long)self->run->data.seq_len + 1);
}

static ls_status split(const opening *self, ls_error *error) {
  const ls_run_data *data = &self->run->data;
  ls_dataset *made = self->dataset;
  const bool some = data->validation.fraction > 0 && data->validation.globs.count == 0;
  for (int t = 0; t < made->text_count && !some; t++)
    ls_text_part_whole(self->arena, &made->texts[t], &made->training.mix[t].part);
  if (!some) return LS_OK;
  if (data->split != LS_RUN_SPLIT_TAIL) {
    bool fair;
    const bool enough = draw_documents(self, &fair), asked = data->split == LS_RUN_SPLIT_DOCUMENT;
    made->by_document = enough && (fair || asked);
    if (made->by_document) return LS_OK;
    if (asked) return fail_too_few(self, error);
  }
  for (int t = 0; t < made->text_count; t++) {
    const ls_corpus *corpus = &made->texts[t];
    ls_text_part_split_tail(self->arena, corpus, tail_of(data, corpus->count),
                            &made->training.mix[t].part, &made->evaluation.mix[t].part);
  }
  return LS_OK;
}

static ls_status check_training(const opening *self, ls_error *error) {
  const ls_run_data *data = &self->run->data;
  const ls_dataset *made = self->dataset;
  const int64_t batch = self->run->train.batch, needed = batch * data->seq_len + 1;
  int64_t tokens = 0;
  for (int t = 0; t < made->text_count; t++) tokens += made->texts[t].count;
  if (made->training_tokens >= needed) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s: found %lld tokens, %lld of them kept for validation; a batch of %lld "
                 "sequences of %lld tokens needs %lld: give more text, or a smaller train.batch or "
                 "data.seq_len",
                 ls_run_file_where(self->run, "data.text"), (long long)tokens,
                 (long long)(tokens - made->training_tokens), (long long)batch,
                 (long long)data->seq_len, (long long)needed);
}

static ls_status make_masking(const opening *self, ls_order *order, ls_error *error) {
  const ls_run_file *run = self->run;
  if (run->task != LS_RUN_MLM) return LS_OK;
  const ls_tokenizer *tokenizer = self->options.tokenizer;
  if (self->dataset->chats)
    return ls_fail(error, LS_INPUT, "%s: found chats with task=mlm; expected texts",
                   ls_run_file_where(run, "data.text"));
  if (ls_tokenizer_mask(tokenizer) < 0)
    return ls_fail(
        error, LS_INPUT,
        "%s: found %s, a tokenizer without a mask such as [MASK], which task=mlm puts in "
        "the place of tokens; expected the tokenizer of an encoder",
        ls_run_file_where(run, "data.tokenizer"), run->data.tokenizer);
  bool *special = LS_NEW_ARRAY(self->arena, bool, tokenizer->vocabulary);
  for (int32_t id = 0; id < tokenizer->vocabulary; id++)
    special[id] = ls_tokenizer_is_special(tokenizer, id);
  ls_masking *made = LS_NEW(self->arena, ls_masking);
  *made = (ls_masking){.probability = run->mlm.probability,
                       .mask_replace = run->mlm.mask_replace,
                       .random_replace = run->mlm.random_replace,
                       .mask = ls_tokenizer_mask(tokenizer),
                       .vocabulary = tokenizer->vocabulary,
                       .special = special,
                       .seed = (uint64_t)run->data.seed};
  order->masking = made;
  return LS_OK;
}

/* The token that a text ends with, where the second of two is told by it. */
static ls_status find_separator(const opening *self, ls_order *order, ls_error *error) {
  const ls_tokenizer *tokenizer = self->options.tokenizer;
  if (!self->dataset->labelled || !self->run->classes.pair_types) return LS_OK;
  ls_ids ids = {0};
  const ls_status status = ls_tokenizer_append(tokenizer, "", 0, LS_TOKENS_SPECIAL, &ids, error);
  order->typed = status == LS_OK && ids.count > 0;
  if (order->typed) order->separator = ids.items[ids.count - 1];
  ls_ids_free(&ids);
  return status;
}

static ls_status prepare_parts(const opening *self, ls_error *error) {
  const ls_run_data *data = &self->run->data;
  ls_dataset *made = self->dataset;
  const bool masked =
      ls_run_masks_documents(data) || (data->documents == LS_RUN_DOCUMENTS_AUTO && made->chats);
  ls_order order = {.seq_len = data->seq_len,
                    .batch = self->run->train.batch,
                    .mix_count = made->text_count,
                    .masked = masked,
                    .seed = (uint64_t)data->seed};
  LS_TRY(make_masking(self, &order, error));
  LS_TRY(find_separator(self, &order, error));
  if (made->labelled && self->run->classes.several)
    order.set_words = ls_set_words(self->run->classes.count);
  if (made->text_pairs) {
    ls_text_form *form = LS_NEW(self->arena, ls_text_form);
    *form = (ls_text_form){self->run->embed.pairs, 2 + self->run->embed.negatives,
                           (ls_text_pooling)(self->run->embed.pooling - LS_RUN_TEXT_LAST)};
    order.texts = form;
  }
  made->training = made->evaluation = order;
  made->training.shuffled = true;
  made->training.mix = LS_NEW_ARRAY(self->arena, ls_mix, made->text_count);
  made->evaluation.mix = LS_NEW_ARRAY(self->arena, ls_mix, made->text_count);
  for (int t = 0; t < made->text_count; t++) {
    const double weight = data->text.items[t].weight;
    made->training.mix[t].weight = weight > 0 ? weight : 1;
  }
  return LS_OK;
}

static int64_t tokens_of(const ls_order *order) {
  int64_t tokens = 0;
  for (int m = 0; m < order->mix_count; m++) tokens += order->mix[m].part.tokens;
  return tokens;
}

/* A part's share of the mixture, in bits. */
static uint64_t share_bits(const ls_order *order, int part) {
  double all = 0;
  for (int m = 0; m < order->mix_count; m++) all += order->mix[m].weight;
  const double share = order->mix[part].weight / all;
  uint64_t bits;
  memcpy(&bits, &share, sizeof bits);
  return bits;
}

/* Of all that decides which batches there are, beside the keys of the run file that must not change
 * between two starts. */
static void make_fingerprint(ls_dataset *made) {
  uint64_t hash = ls_random_stream("dataset");
  for (int m = 0; made->training.mix_count > 1 && m < made->training.mix_count; m++)
    hash = ls_fingerprint_word(hash, share_bits(&made->training, m));
  for (int t = 0; t < made->text_count; t++)
    hash = ls_fingerprint_word(hash, made->texts[t].content);
  hash = ls_fingerprint_word(hash, made->validation.content);
  hash = ls_fingerprint_word(hash, (uint64_t)made->training_tokens);
  hash = ls_fingerprint_word(hash, made->by_document);
  snprintf(made->fingerprint, sizeof made->fingerprint, "%016llx",
           (unsigned long long)ls_fingerprint_spread(hash));
}

typedef LS_LIST(const char *) path_list;

static void keep(const opening *self, const ls_corpus *corpus, path_list *kept) {
  for (int p = 0; p < corpus->part_count; p++)
    *LS_APPEND(self->arena, kept) = corpus->parts[p].cache_path;
  if (corpus->part_count == 0 && corpus->cache_path)
    *LS_APPEND(self->arena, kept) = corpus->cache_path;
}

/* Where a token file was made. Only once all are open: none may go that this run needs itself. */
static void trim_cache(const opening *self) {
  const ls_dataset *made = self->dataset;
  bool all_found = !made->validation.cache_path || made->validation.from_cache;
  path_list kept = {0};
  keep(self, &made->validation, &kept);
  for (int t = 0; t < made->text_count; t++) {
    all_found = all_found && made->texts[t].from_cache;
    keep(self, &made->texts[t], &kept);
  }
  if (!all_found)
    ls_cache_trim(self->options.cache_folder, self->run->data.cache_limit, kept.items, kept.count);
}

/* Texts with a class are examples packed whole, as chats are. */
static ls_status open_labelled(opening *self, ls_error *error) {
  const ls_run_file *run = self->run;
  const ls_tokenizer *tokenizer = self->options.tokenizer;
  ls_labelled *labelled = LS_NEW(self->arena, ls_labelled);
  *labelled = (ls_labelled){tokenizer,
                            run->data.label_key,
                            run->classes.names,
                            run->classes.count,
                            run->classes.pair_ends,
                            run->classes.each,
                            run->classes.several,
                            NULL};
  ls_labelled_sort(self->arena, labelled);
  self->options.labelled = labelled;
  self->dataset->labelled = self->dataset->chats = true;
  if (labelled->count <= tokenizer->vocabulary) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s: found %lld classes; expected at most the tokenizer's %d ids",
                 ls_run_file_where(run, "data.text"), (long long)labelled->count,
                 (int)tokenizer->vocabulary);
}

static ls_status open_text_pairs(opening *self) {
  const ls_run_file *run = self->run;
  ls_text_pair_options *options = LS_NEW(self->arena, ls_text_pair_options);
  const bool cut = run->data.too_long == LS_RUN_TOO_LONG_CUT;
  *options = (ls_text_pair_options){self->options.tokenizer, run->embed.query_prompt,
                                    run->embed.answer_prompt, run->embed.negatives,
                                    cut ? run->data.seq_len : 0};
  self->options.text_pairs = options;
  self->dataset->text_pairs = self->dataset->chats = true;
  return LS_OK;
}

/* What is said of examples has to be of examples. */
static ls_status check_form(const opening *self, ls_error *error) {
  const ls_run_data *data = &self->run->data;
  if (!self->dataset->chats && data->documents == LS_RUN_PAD)
    return ls_fail(error, LS_INPUT,
                   "%s: found pad with texts, which are cut into whole sequences: give stream or "
                   "masked; chats, pairs and texts with a class can be padded",
                   ls_run_file_where(self->run, "data.documents"));
  if (data->too_long == LS_RUN_TOO_LONG_SPLIT && data->seq_len < 2)
    return ls_fail(error, LS_INPUT, "%s: found 1 with data.too_long=split; expected 2 or more",
                   ls_run_file_where(self->run, "data.seq_len"));
  return LS_OK;
}

static ls_status open_chat(opening *self, ls_error *error) {
  const ls_run_data *data = &self->run->data;
  ls_dataset *made = self->dataset;
  if (self->run->task == LS_RUN_EMBED) return open_text_pairs(self);
  if (self->run->task == LS_RUN_CLASSIFY) return open_labelled(self, error);
  made->pairs = ls_run_task_prefers(self->run->task);
  made->chats = made->pairs || ls_chat_texts_are(self->run);
  LS_TRY(check_form(self, error));
  if (!made->chats) return LS_OK;
  const ls_chat_options options = {
      .tokenizer = self->options.tokenizer,
      .template = strcmp(data->template, "auto") == 0 ? NULL : data->template,
      .folder = self->run->model,
      .loss_on = (ls_loss_on)data->loss_on,
      .pairs = made->pairs};
  if (ls_chat_open(&options, &made->chat, error) != LS_OK)
    return ls_error_prefix(error, "%s", ls_run_file_where(self->run, "data.template"));
  self->options.chat = made->chat;
  return LS_OK;
}

static const char *examples_name(const ls_dataset *dataset) {
  return dataset->pairs || dataset->text_pairs ? "pairs" : dataset->labelled ? "texts" : "chats";
}

/* Keys that say something of chats, where there are none, and the other way round. */
static void warn_of_unused(const opening *self) {
  const ls_run_file *run = self->run;
  const ls_dataset *made = self->dataset;
  const struct {
    const char *key;
    bool given;
  } keys[] = {
      {"data.template", !made->chat && strcmp(run->data.template, "auto") != 0},
      {"data.loss_on", !made->chats && run->data.loss_on != LS_RUN_LOSS_ON_ANSWERS},
      {"data.too_long", !made->chats && run->data.too_long != LS_RUN_TOO_LONG_DROP},
  };
  for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
    if (keys[k].given)
      ls_warn("%s: has no effect, since data.text is no chats",
              ls_run_file_where(run, keys[k].key));
  if (made->chats && run->data.split == LS_RUN_SPLIT_TAIL)
    ls_warn("%s: tail has no effect, since %s are kept whole, by their hash",
            ls_run_file_where(run, "data.split"), examples_name(made));
}

/* Whole examples into sequences. */
static ls_status pack_part(const opening *self, const ls_text_part *part,
                           const ls_packing **packing, ls_error *error) {
  const ls_run_file *run = self->run;
  const ls_dataset *made = self->dataset;
  const bool alone = run->data.documents == LS_RUN_PAD;
  ls_packing_room room = {.seq_len = run->data.seq_len,
                          .most = alone ? 1 : 0,
                          .too_long = (ls_too_long)run->data.too_long};
  if (made->pairs)
    return ls_packing_make_pairs(self->arena, part, &room, run->dpo.longest, packing, error);
  if (made->text_pairs && !alone) room.most = run->embed.pairs;
  if (made->text_pairs) return ls_packing_make_texts(self->arena, part, &room, packing, error);
  if (run->classes.each) return ls_packing_make_each(self->arena, part, &room, packing, error);
  if (made->labelled)
    return ls_packing_make_labelled(self->arena, part, &room, run->classes.several,
                                    run->classes.first, packing, error);
  return ls_packing_make(self->arena, part, &room, packing, error);
}

/* Of both orders. */
static ls_status pack(const opening *self, ls_error *error) {
  ls_dataset *made = self->dataset;
  ls_order *orders[] = {&made->training, &made->evaluation};
  for (int o = 0; o < 2; o++)
    for (int m = 0; m < orders[o]->mix_count; m++) {
      ls_mix *each = &orders[o]->mix[m];
      if (!each->part.corpus) continue;
      LS_TRY(pack_part(self, &each->part, &each->packing, error));
    }
  return LS_OK;
}

/* Documents drawn by their hash; of a few examples that may be none. */
static void split_chats(const opening *self) {
  const ls_run_data *data = &self->run->data;
  ls_dataset *made = self->dataset;
  const bool some = data->validation.fraction > 0 && data->validation.globs.count == 0;
  for (int t = 0; t < made->text_count; t++) {
    ls_text_part *others = &made->training.mix[t].part, *kept = &made->evaluation.mix[t].part;
    if (some)
      ls_text_part_split_documents(self->arena, &made->texts[t], data->validation.fraction, others,
                                   kept);
    else
      ls_text_part_whole(self->arena, &made->texts[t], others);
  }
  made->by_document = some;
}

/* What packing made of an order's examples. */
static ls_packing packed_of(const ls_order *order) {
  ls_packing all = {0};
  for (int m = 0; m < order->mix_count; m++) {
    const ls_packing *packing = order->mix[m].packing;
    all.row_count += packing->row_count;
    all.examples += packing->examples;
    all.dropped += packing->dropped;
    all.unasked += packing->unasked;
  }
  return all;
}

static const char *unasked_text(ls_arena *arena, const ls_packing *all) {
  if (all->unasked == 0) return "";
  return ls_arena_printf(arena, ", of %lld nothing is trained", (long long)all->unasked);
}

static const char *roomier(const ls_dataset *dataset) {
  return dataset->pairs        ? "a data.seq_len that has room for both answers"
         : dataset->text_pairs ? "a data.seq_len that has room for all texts of a pair"
                               : "a larger data.seq_len, or data.too_long=cut";
}

static ls_status check_chats(const opening *self, ls_error *error) {
  const ls_dataset *made = self->dataset;
  const ls_packing all = packed_of(&made->training);
  const int64_t batch = self->run->train.batch;
  if (all.row_count >= batch) return LS_OK;
  const bool fits = !made->pairs && !made->text_pairs && all.dropped == 0;
  return ls_fail(error, LS_INPUT,
                 "%s: %lld %s make %lld sequences of %lld tokens (%lld more are too long%s); a "
                 "batch needs %lld: give more of them, or a smaller train.batch%s%s",
                 ls_run_file_where(self->run, "data.text"), (long long)all.examples,
                 examples_name(made), (long long)all.row_count, (long long)self->run->data.seq_len,
                 (long long)all.dropped, unasked_text(self->arena, &all), (long long)batch,
                 fits ? " or data.seq_len" : ", or ", fits ? "" : roomier(made));
}

/* Of what is asked alone, some fits. */
static ls_status check_asked(const opening *self, const char *key, ls_error *error) {
  const ls_dataset *made = self->dataset;
  const ls_packing all = packed_of(&made->evaluation);
  if (all.row_count > 0) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s: found no %s for a sequence of %lld tokens (too long: %lld%s): give "
                 "shorter ones, or %s",
                 ls_run_file_where(self->run, key), examples_name(made),
                 (long long)self->run->data.seq_len, (long long)all.dropped,
                 unasked_text(self->arena, &all), roomier(made));
}

static ls_status open_parts(opening *self, ls_error *error) {
  ls_dataset *made = self->dataset;
  LS_TRY(open_chat(self, error));
  LS_TRY(open_texts(self, error));
  const bool own_files = self->run->data.validation.globs.count > 0;
  if (own_files) LS_TRY(open_validation(self, error));
  trim_cache(self);
  LS_TRY(prepare_parts(self, error));
  if (made->chats)
    split_chats(self);
  else
    LS_TRY(split(self, error));
  if (own_files) {
    made->evaluation.mix_count = 1;
    ls_text_part_whole(self->arena, &made->validation, &made->evaluation.mix[0].part);
  }
  made->training_tokens = tokens_of(&made->training);
  made->evaluation_tokens = tokens_of(&made->evaluation);
  if (made->chats) LS_TRY(pack(self, error));
  LS_TRY(made->chats ? check_chats(self, error) : check_training(self, error));
  if (made->chats && own_files) LS_TRY(check_asked(self, "data.validation", error));
  if (ls_order_prepare(&made->training, error) != LS_OK)
    return ls_error_prefix(error, "%s", ls_run_file_where(self->run, "data.text"));
  LS_TRY(ls_order_prepare(&made->evaluation, error));
  make_fingerprint(made);
  warn_of_unused(self);
  return LS_OK;
}

ls_status ls_dataset_by_document(ls_arena *arena, const ls_run_file *run, ls_dataset *dataset,
                                 ls_error *error) {
  ls_order *order = &dataset->evaluation;
  if (run->data.seq_len < 2)
    return ls_fail(error, LS_INPUT, "%s: found 1 with documents one by one; expected 2 or more",
                   ls_run_file_where(run, "data.seq_len"));
  for (int m = 0; m < order->mix_count; m++)
    if (order->mix[m].part.corpus)
      LS_TRY(ls_packing_make_documents(arena, &order->mix[m].part, run->data.seq_len,
                                       &order->mix[m].packing, error));
  LS_TRY(ls_order_prepare(order, error));
  if (order->sequences > 0) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s: found no document of two tokens or more",
                 ls_run_file_where(run, "data.text"));
}

static ls_status open_evaluation(opening *self, ls_error *error) {
  ls_dataset *made = self->dataset;
  LS_TRY(open_chat(self, error));
  LS_TRY(open_texts(self, error));
  trim_cache(self);
  LS_TRY(prepare_parts(self, error));
  made->training = (ls_order){0};
  for (int t = 0; t < made->text_count; t++)
    ls_text_part_whole(self->arena, &made->texts[t], &made->evaluation.mix[t].part);
  made->evaluation_tokens = tokens_of(&made->evaluation);
  if (self->run->eval.by_document)
    return ls_dataset_by_document(self->arena, self->run, made, error);
  if (made->chats) {
    LS_TRY(pack(self, error));
    LS_TRY(check_asked(self, "data.text", error));
  }
  LS_TRY(ls_order_prepare(&made->evaluation, error));
  make_fingerprint(made);
  if (made->evaluation.sequences > 0) return LS_OK;
  return ls_fail(
      error, LS_INPUT,
      "%s: found %lld tokens; a sequence of %lld tokens needs %lld: give more text, or a "
      "smaller data.seq_len",
      ls_run_file_where(self->run, "data.text"), (long long)made->evaluation_tokens,
      (long long)self->run->data.seq_len, (long long)self->run->data.seq_len + 1);
}

static ls_status open_all(ls_arena *arena, const ls_run_file *run, const ls_tokenizer *tokenizer,
                          const char *cache_folder, ls_corpus_progress *progress, void *context,
                          ls_status (*open)(opening *self, ls_error *error), ls_dataset **dataset,
                          ls_error *error) {
  LS_TRY(ls_run_file_require(run, "data.text", error));
  opening self = {.arena = arena,
                  .run = run,
                  .options = {.text_key = run->data.text_key,
                              .skip_bad_lines = run->data.on_bad_line == LS_RUN_BAD_LINE_SKIP,
                              .tokenizer = tokenizer,
                              .cache_folder = cache_folder,
                              .progress = progress,
                              .context = context},
                  .dataset = LS_NEW(arena, ls_dataset)};
  const ls_status status = open(&self, error);
  if (status != LS_OK) {
    ls_dataset_close(self.dataset);
    return status;
  }
  *dataset = self.dataset;
  return LS_OK;
}

ls_status ls_dataset_open(ls_arena *arena, const ls_run_file *run, const ls_tokenizer *tokenizer,
                          const char *cache_folder, ls_corpus_progress *progress, void *context,
                          ls_dataset **dataset, ls_error *error) {
  return open_all(arena, run, tokenizer, cache_folder, progress, context, open_parts, dataset,
                  error);
}

ls_status ls_dataset_open_evaluation(ls_arena *arena, const ls_run_file *run,
                                     const ls_tokenizer *tokenizer, const char *cache_folder,
                                     ls_corpus_progress *progress, void *context,
                                     ls_dataset **dataset, ls_error *error) {
  return open_all(arena, run, tokenizer, cache_folder, progress, context, open_evaluation, dataset,
                  error);
}

void ls_dataset_close(ls_dataset *dataset) {
  for (int t = 0; t < dataset->text_count; t++) ls_corpus_close(&dataset->texts[t]);
  ls_corpus_close(&dataset->validation);
  ls_chat_close(&dataset->chat);
}
