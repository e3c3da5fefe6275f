#include "session/vectors.h"

#include <string.h>

#include "base/random.h"
#include "text/json.h"

static const char *const poolings[] = {"last", "cls", "mean"};
/* sentence-transformers' words for these, one key each or a key's value. */
static const char *const words[] = {"lasttoken", "cls", "mean"};
static const char *const modes[] = {"pooling_mode_lasttoken", "pooling_mode_cls_token",
                                    "pooling_mode_mean_tokens"};
enum { POOLINGS = sizeof poolings / sizeof *poolings };

static ls_status refuse(const ls_session *session, const char *key, const char *what,
                        ls_error *error) {
  return ls_fail(error, LS_INPUT, "%s: %s", ls_run_file_where(session->run, key), what);
}

static bool asks_prompts(const ls_run_file *run) {
  const ls_run_globs *given = &run->eval.prompts;
  return given->count > 1 || (given->count == 1 && strcmp(given->items[0], "none") != 0);
}

/* Of another task. */
static ls_status check_no_vectors(const ls_session *session, ls_error *error) {
  const ls_run_embed *embed = &session->run->embed;
  const char *key = embed->pooling          ? "embed.pooling"
                    : embed->scale != 20    ? "embed.scale"
                    : embed->pairs != 16    ? "embed.pairs"
                    : embed->negatives      ? "embed.negatives"
                    : embed->group          ? "embed.group"
                    : *embed->query_prompt  ? "embed.query_prompt"
                    : *embed->answer_prompt ? "embed.answer_prompt"
                                            : NULL;
  if (!key) return LS_OK;
  return refuse(session, key, "found a value without task=embed; expected that too", error);
}

static ls_status check_keys(const ls_session *session, ls_error *error) {
  const ls_run_file *run = session->run;
  if (session->config.classes)
    return ls_fail(error, LS_INPUT,
                   "%s: found embed with %s, which has a head over classes; expected a model "
                   "without one",
                   ls_run_file_where(run, "task"), run->model);
  if (run->data.documents == LS_RUN_STREAM)
    return refuse(session, "data.documents",
                  "found stream with task=embed, whose texts are documents of their own: give "
                  "masked, or leave it out",
                  error);
  if (run->data.loss_on != LS_RUN_LOSS_ON_ANSWERS)
    return refuse(session, "data.loss_on",
                  "found a value with task=embed, whose loss is of vectors: leave it out", error);
  if (run->data.too_long == LS_RUN_TOO_LONG_SPLIT)
    return refuse(session, "data.too_long",
                  "found split with task=embed, whose texts have one vector each: give drop or cut",
                  error);
  if (asks_prompts(run))
    return refuse(session, "eval.prompts",
                  "found prompts with task=embed, whose model writes no text: leave it out", error);
  if (run->logits_rows > 0)
    return refuse(session, "logits_rows",
                  "found a value with task=embed, whose model makes no logits: leave it out",
                  error);
  const double numbers =
      (double)run->train.batch * (double)run->embed.pairs * (double)(2 + run->embed.negatives);
  if (numbers < INT32_MAX) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s: found %lld of each of %lld sequences (train.batch), with %lld texts each; "
                 "expected fewer than %d texts in all",
                 ls_run_file_where(run, "embed.pairs"), (long long)run->embed.pairs,
                 (long long)run->train.batch, (long long)(2 + run->embed.negatives), INT32_MAX);
}

/* Poolings that are not one of ours, or several joined, are none. */
static int pooling_of(const json_t *root) {
  const char *mode = json_string_value(json_object_get(root, "pooling_mode")), *key;
  int found = -1, count = mode ? 1 : 0;
  json_t *value;
  json_object_foreach((json_t *)root, key, value) count +=
      strncmp(key, "pooling_mode_", strlen("pooling_mode_")) == 0 && json_is_true(value);
  for (int p = 0; p < POOLINGS; p++)
    if (json_is_true(json_object_get(root, modes[p])) || (mode && strcmp(mode, words[p]) == 0))
      found = p;
  return count == 1 ? found : -1;
}

/* As sentence-transformers keeps it beside a model; -1: there is nothing. */
static ls_status read_folder(const ls_session *session, int *pooling, ls_error *error) {
  const char *path =
      ls_arena_printf(session->arena, "%s/1_Pooling/config.json",
                      session->config.base ? session->config.base : session->run->model);
  char *text;
  size_t bytes;
  json_t *root;
  *pooling = -1;
  if (!ls_file_exists(path)) return LS_OK;
  LS_TRY(ls_file_read(session->arena, path, &text, &bytes, error));
  LS_TRY(ls_json_parse(path, text, bytes, 0, &root, error));
  *pooling = pooling_of(root);
  json_decref(root);
  if (*pooling >= 0) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s: found another pooling than one of last token, [CLS] and mean; give "
                 "embed.pooling",
                 path);
}

static ls_status settle_pooling(ls_session *session, ls_error *error) {
  ls_run_embed *embed = &session->run->embed;
  const bool encoder = ls_model_is_encoder(&session->config);
  ls_text_vectors told;
  int pooling = -1;
  if (embed->pooling == LS_RUN_TEXT_CLS && !encoder)
    return refuse(session, "embed.pooling",
                  "found cls with a decoder, whose first token sees none behind it: give last or "
                  "mean",
                  error);
  if (embed->pooling != LS_RUN_TEXT_AUTO) return LS_OK;
  if (ls_model_text_vectors(session->arena, &session->config, &told))
    for (int p = 0; p < POOLINGS; p++)
      if (strcmp(told.pooling, poolings[p]) == 0) pooling = p;
  if (pooling < 0) LS_TRY(read_folder(session, &pooling, error));
  embed->pooling = pooling >= 0 ? (ls_run_text_pooling)(LS_RUN_TEXT_LAST + pooling)
                   : encoder    ? LS_RUN_TEXT_MEAN
                                : LS_RUN_TEXT_LAST;
  ls_run_file_mark_resolved(session->run, "embed.pooling");
  return LS_OK;
}

/* What the model was made with, where the run says nothing. */
static void settle_prompts(ls_session *session) {
  ls_run_embed *embed = &session->run->embed;
  ls_text_vectors told;
  if (!ls_model_text_vectors(session->arena, &session->config, &told)) return;
  if (!*embed->query_prompt && *told.query_prompt) {
    embed->query_prompt = told.query_prompt;
    ls_run_file_mark_resolved(session->run, "embed.query_prompt");
  }
  if (!*embed->answer_prompt && *told.answer_prompt) {
    embed->answer_prompt = told.answer_prompt;
    ls_run_file_mark_resolved(session->run, "embed.answer_prompt");
  }
}

ls_status ls_vectors_settle(ls_session *session, ls_error *error) {
  ls_run_file *run = session->run;
  if (session->config.vectors && run->task == LS_RUN_NEXT_TOKEN) {
    run->task = LS_RUN_EMBED;
    ls_run_file_mark_resolved(run, "task");
  }
  if (session->config.vectors && run->task != LS_RUN_EMBED)
    return ls_fail(error, LS_INPUT,
                   "%s: %s makes embeddings and has no head: give task=embed, or another "
                   "model",
                   ls_run_file_where(run, "task"), run->model);
  if (run->task != LS_RUN_EMBED) return check_no_vectors(session, error);
  LS_TRY(ls_run_file_resolve_groups(run, error)); /* the task may not have been known before */
  LS_TRY(check_keys(session, error));
  LS_TRY(settle_pooling(session, error));
  settle_prompts(session);
  const ls_text_vectors told = {poolings[run->embed.pooling - LS_RUN_TEXT_LAST],
                                run->embed.query_prompt, run->embed.answer_prompt,
                                run->data.seq_len};
  ls_model_set_vectors(session->arena, &session->config, &told);
  return LS_OK;
}

ls_text_pairs ls_vectors_pairs(const ls_run_file *run) {
  if (run->task != LS_RUN_EMBED) return (ls_text_pairs){0};
  return (ls_text_pairs){.pairs = run->embed.pairs,
                         .texts = 2 + run->embed.negatives,
                         .group = run->embed.group,
                         .scale = run->embed.scale};
}

int64_t ls_vectors_tokens_of_chance(const ls_text_pairs *form, int64_t sequence) {
  const int64_t texts = form->pairs * form->texts;
  return sequence > texts ? sequence / texts : 1;
}

int32_t ls_vectors_label_of_chance(const ls_text_pairs *form, int64_t sequence, uint64_t seed,
                                   int64_t step, int64_t at) {
  const int64_t texts = form->pairs * form->texts;
  const int64_t length = ls_vectors_tokens_of_chance(form, sequence);
  const int64_t place = at % sequence, text = place / length;
  const int64_t number = at / sequence * texts + text, pair = number / form->texts;
  if (text >= texts) return -1;
  const uint64_t stream = ls_random_stream("vectors.chance") + (uint64_t)step;
  const uint64_t bits = ls_random_bits(seed, stream, (uint64_t)pair);
  const bool last = place % length == length - 1, wrong = text % form->texts >= 2;
  if (pair > 0 && (bits % 4 == 0 || (wrong && bits / 4 % 3 == 0))) return -1;
  if (!last && pair % 2 == 0) return -1;
  return last && text % form->texts == 0 ? (int32_t)number : (int32_t)(-2 - number);
}
