#include "data/dataset.h"

#include <math.h>

/* A file of both lists would be trained on and then asked about. */
static ls_status check_apart(const ls_dataset *dataset, ls_error *error) {
  for (int i = 0; i < dataset->validation.source_count; i++) {
    for (int k = 0; k < dataset->text.source_count; k++) {
      const ls_corpus_source *kept = &dataset->validation.sources[i];
      const ls_corpus_source *text = &dataset->text.sources[k];
      if (kept->inode != text->inode || kept->device != text->device) continue;
      return ls_fail(error, LS_INPUT,
                     "data.validation: found %s, which is in data.text too (as %s); expected files "
                     "of its own",
                     kept->path, text->path);
    }
  }
  return LS_OK;
}

/* Tokens of the tail kept for evaluation. */
static int64_t tail_of(const ls_run_data *data, int64_t tokens) {
  const int64_t least = data->seq_len + 1;
  if (data->validation.fraction <= 0) return 0;
  const int64_t tail = (int64_t)llround(data->validation.fraction * (double)tokens);
  return tail > least ? tail : least;
}

static ls_status check_training(const ls_run_file *run, const ls_dataset *dataset,
                                ls_error *error) {
  const ls_run_data *data = &run->data;
  const int64_t needed = run->train.batch * data->seq_len + 1;
  if (dataset->training_tokens >= needed) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s: found %lld tokens, %lld of them kept for validation; a batch of %lld "
                 "sequences of %lld tokens needs %lld: give more text, or a smaller train.batch or "
                 "data.seq_len",
                 ls_run_file_where(run, "data.text"), (long long)dataset->text.count,
                 (long long)(dataset->text.count - dataset->training_tokens),
                 (long long)run->train.batch, (long long)data->seq_len, (long long)needed);
}

static ls_status open_validation(ls_arena *arena, const ls_run_file *run, ls_corpus_options options,
                                 ls_dataset *dataset, ls_error *error) {
  const ls_run_globs *globs = &run->data.validation.globs;
  options.key = ls_run_file_where(run, "data.validation");
  options.patterns = globs->items;
  options.pattern_count = globs->count;
  LS_TRY(ls_corpus_open(arena, &options, &dataset->validation, error));
  LS_TRY(check_apart(dataset, error));
  dataset->evaluation_tokens = dataset->validation.count;
  if (dataset->evaluation_tokens > run->data.seq_len) return LS_OK;
  return ls_fail(
      error, LS_INPUT,
      "%s: found %lld tokens; a sequence of %lld tokens needs %lld: give more text, or a "
      "smaller data.seq_len",
      options.key, (long long)dataset->evaluation_tokens, (long long)run->data.seq_len,
      (long long)(run->data.seq_len + 1));
}

static ls_status open_parts(ls_arena *arena, const ls_run_file *run, ls_corpus_options options,
                            ls_dataset *dataset, ls_error *error) {
  const ls_run_data *data = &run->data;
  LS_TRY(ls_corpus_open(arena, &options, &dataset->text, error));
  const bool own_files = data->validation.globs.count > 0;
  if (own_files) LS_TRY(open_validation(arena, run, options, dataset, error));
  const int64_t tail = own_files ? 0 : tail_of(data, dataset->text.count);
  dataset->training_tokens = dataset->text.count > tail ? dataset->text.count - tail : 0;
  LS_TRY(check_training(run, dataset, error));
  const ls_order part = {.corpus = &dataset->text,
                         .seq_len = data->seq_len,
                         .batch = run->train.batch,
                         .seed = (uint64_t)data->seed};
  dataset->training = part;
  dataset->training.shuffled = true;
  dataset->training.sequences = ls_order_count(dataset->training_tokens, data->seq_len);
  dataset->evaluation = part;
  if (own_files) {
    dataset->evaluation.corpus = &dataset->validation;
  } else {
    dataset->evaluation.first = dataset->training_tokens;
    dataset->evaluation_tokens = tail;
  }
  dataset->evaluation.sequences = ls_order_count(dataset->evaluation_tokens, data->seq_len);
  return LS_OK;
}

ls_status ls_dataset_open(ls_arena *arena, const ls_run_file *run, const ls_tokenizer *tokenizer,
                          const char *cache_folder, ls_corpus_progress *progress, void *context,
                          ls_dataset **dataset, ls_error *error) {
  LS_TRY(ls_run_file_require(run, "data.text", error));
  const ls_corpus_options options = {.key = ls_run_file_where(run, "data.text"),
                                     .patterns = run->data.text.items,
                                     .pattern_count = run->data.text.count,
                                     .tokenizer = tokenizer,
                                     .cache_folder = cache_folder,
                                     .progress = progress,
                                     .context = context};
  ls_dataset *made = LS_NEW(arena, ls_dataset);
  const ls_status status = open_parts(arena, run, options, made, error);
  if (status != LS_OK) {
    ls_dataset_close(made);
    return status;
  }
  *dataset = made;
  return LS_OK;
}

void ls_dataset_close(ls_dataset *dataset) {
  ls_corpus_close(&dataset->text);
  ls_corpus_close(&dataset->validation);
}
