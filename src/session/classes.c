#include "session/classes.h"

#include <string.h>

#include "base/random.h"
#include "base/sets.h"
#include "data/labelled.h"
#include "store/adapters.h"
#include "text/number.h"
#include "text/quote.h"

static ls_status refuse(const ls_session *session, const char *key, const char *what,
                        ls_error *error) {
  return ls_fail(error, LS_INPUT, "%s: %s", ls_run_file_where(session->run, key), what);
}

static bool asks_prompts(const ls_run_file *run) {
  const ls_run_globs *given = &run->eval.prompts;
  return given->count > 1 || (given->count == 1 && strcmp(given->items[0], "none") != 0);
}

static bool asks_weights(const ls_run_file *run) {
  const ls_run_globs *asked = &run->classes.weights;
  return asked->count != 1 || strcmp(asked->items[0], "none") != 0;
}

static ls_status check_keys(const ls_session *session, ls_error *error) {
  const ls_run_file *run = session->run;
  if (run->data.documents == LS_RUN_STREAM)
    return refuse(session, "data.documents",
                  "found stream with task=classify, whose texts are documents of their own: give "
                  "masked, or leave it out",
                  error);
  if (run->data.loss_on != LS_RUN_LOSS_ON_ANSWERS)
    return refuse(session, "data.loss_on",
                  "found a value with task=classify, whose loss is of classes: leave it out",
                  error);
  if (run->data.too_long == LS_RUN_TOO_LONG_SPLIT)
    return refuse(session, "data.too_long",
                  "found split with task=classify, whose texts have a class as a whole: give drop "
                  "or cut",
                  error);
  if (asks_prompts(run))
    return refuse(session, "eval.prompts",
                  "found prompts with task=classify, whose model writes no text: leave it out",
                  error);
  return LS_OK;
}

/* Of a model that has no head over classes yet. */
static ls_status give_classes(ls_session *session, ls_error *error) {
  ls_model_config *config = &session->config;
  int64_t count;
  if (session->evaluates)
    return ls_fail(error, LS_INPUT,
                   "%s: has no head over classes; expected a model that task=classify made, or "
                   "another whose architecture is ...ForSequenceClassification",
                   config->source);
  const char *const *names = ls_model_class_names(session->arena, config, &count);
  if (!names) LS_TRY(ls_labelled_find_classes(session->arena, session->run, &names, &count, error));
  ls_model_set_classes(session->arena, config, names, count);
  if (!session->run->classes.several) return LS_OK;
  ls_model_set_several(session->arena, config);
  return LS_OK;
}

/* A head that is there already says how many classes a text has. */
static ls_status settle_several(ls_session *session, ls_error *error) {
  ls_run_classes *classes = &session->run->classes;
  const ls_model_config *config = &session->config;
  if (classes->several && !config->several)
    return refuse(session, "classes.several",
                  "found true with a model whose head predicts one class of a text: leave it out",
                  error);
  if (config->several && classes->pooling == LS_RUN_POOLING_TOKENS)
    return refuse(session, "classes.several",
                  "found true with classes.pooling=tokens, whose words have one class each; "
                  "expected one of the two",
                  error);
  if (classes->several == config->several) return LS_OK;
  classes->several = config->several;
  ls_run_file_mark_resolved(session->run, "classes.several");
  return LS_OK;
}

/* A head that is there already was trained on what it reads. */
static ls_status settle_pooling(ls_session *session, ls_error *error) {
  ls_model_config *config = &session->config;
  const ls_run_pooling asked = session->run->classes.pooling;
  if (asked == LS_RUN_POOLING_AUTO) return LS_OK;
  const ls_pooling pooling = (ls_pooling)(asked - LS_RUN_POOLING_LAST);
  if (pooling == config->pooling) return LS_OK;
  if (!config->draws_head)
    return refuse(session, "classes.pooling",
                  "found another than the model's head was trained with: leave it out", error);
  if (pooling == LS_POOLING_FIRST && !ls_model_is_encoder(config))
    return refuse(session, "classes.pooling",
                  "found cls with a decoder, whose first token sees none behind it: give last or "
                  "mean",
                  error);
  if (pooling == LS_POOLING_EACH && !ls_model_may_class_tokens(config))
    return ls_fail(error, LS_INPUT,
                   "%s: found tokens with the family %s, of which transformers has no head of "
                   "tokens: give last, mean, or another model",
                   ls_run_file_where(session->run, "classes.pooling"), config->family);
  if (pooling == LS_POOLING_MEAN && config->width % config->heads)
    return refuse(session, "classes.pooling",
                  "found mean, with a width that is no multiple of the heads: give last", error);
  ls_model_set_pooling(session->arena, config, pooling);
  return LS_OK;
}

static ls_status refuse_class(const ls_run_file *run, int64_t c, const char *found,
                              ls_error *error) {
  char shown[LS_QUOTE_BYTES];
  ls_quote(shown, run->classes.names[c], strlen(run->classes.names[c]));
  return ls_fail(error, LS_INPUT,
                 "%s: found balanced, and no %s the class %s in data.text; expected one of each, "
                 "or a list of numbers",
                 ls_run_file_where(run, "classes.weights"), found, shown);
}

/* As scikit-learn's "balanced" has it: labels over classes times a class's own. Of sets as torch's
 * documentation of pos_weight has it: texts without the class over those with it. They are written
 * with the run, so that an evaluation, of another file, counts by them too. */
static ls_status balance(ls_session *session, double *weight, ls_error *error) {
  ls_run_file *run = session->run;
  const int64_t classes = run->classes.count;
  const bool several = run->classes.several;
  int64_t *counts = LS_NEW_ARRAY(session->arena, int64_t, classes), all = 0, texts;
  const char **items = LS_NEW_ARRAY(session->arena, const char *, classes);
  LS_TRY(ls_labelled_count(session->arena, run, counts, &texts, error));
  for (int64_t c = 0; c < classes; c++) {
    all += counts[c];
    if (counts[c] == 0) return refuse_class(run, c, "example of", error);
    if (several && counts[c] >= texts) return refuse_class(run, c, "text without", error);
  }
  for (int64_t c = 0; c < classes; c++) {
    char number[LS_NUMBER_BYTES];
    weight[c] = several ? (double)(texts - counts[c]) / (double)counts[c]
                        : (double)all / ((double)classes * (double)counts[c]);
    ls_number_write(number, weight[c]);
    items[c] = ls_arena_strdup(session->arena, number);
  }
  run->classes.weights = (ls_run_globs){items, (int)classes};
  ls_run_file_mark_resolved(run, "classes.weights");
  return LS_OK;
}

static ls_status settle_weights(ls_session *session, ls_error *error) {
  ls_run_classes *classes = &session->run->classes;
  const ls_run_globs *asked = &classes->weights;
  const char *where = ls_run_file_where(session->run, "classes.weights");
  const bool word = asked->count == 1;
  if (!asks_weights(session->run)) return LS_OK;
  double *weight = LS_NEW_ARRAY(session->arena, double, classes->count);
  classes->weight = weight;
  if (word && strcmp(asked->items[0], "balanced") == 0) {
    if (!session->evaluates) return balance(session, weight, error);
    return refuse(session, "classes.weights",
                  "found balanced, which is of the texts that are trained on: give a run, whose "
                  "weights are kept, or a list of numbers",
                  error);
  }
  if (asked->count != classes->count)
    return ls_fail(error, LS_INPUT,
                   "%s: found %d item%s; expected balanced, or %lld numbers: one "
                   "for each class",
                   where, asked->count, word ? "" : "s", (long long)classes->count);
  for (int64_t c = 0; c < classes->count; c++) {
    char shown[LS_QUOTE_BYTES];
    if (ls_number_read(asked->items[c], &weight[c]) && weight[c] > 0 && weight[c] <= 1e9) continue;
    return ls_fail(error, LS_INPUT, "%s: found %s; expected a number above 0, at most 1e9", where,
                   ls_quote(shown, asked->items[c], strlen(asked->items[c])));
  }
  return LS_OK;
}

ls_status ls_classes_settle(ls_session *session, ls_error *error) {
  ls_run_file *run = session->run;
  const ls_model_config *config = &session->config;
  if (config->classes && run->task != LS_RUN_NEXT_TOKEN && run->task != LS_RUN_CLASSIFY)
    return ls_fail(error, LS_INPUT,
                   "%s: %s has a head over classes and writes no tokens: give task=classify, or "
                   "another model",
                   ls_run_file_where(run, "task"), run->model);
  if (config->classes && run->task == LS_RUN_NEXT_TOKEN) {
    run->task = LS_RUN_CLASSIFY;
    ls_run_file_mark_resolved(run, "task");
  }
  if (run->task != LS_RUN_CLASSIFY && strcmp(run->data.label_key, "label") != 0)
    return refuse(session, "data.label_key",
                  "found a value without task=classify; expected that too", error);
  if (run->task != LS_RUN_CLASSIFY && run->classes.pooling != LS_RUN_POOLING_AUTO)
    return refuse(session, "classes.pooling",
                  "found a value without task=classify; expected that too", error);
  if (run->task != LS_RUN_CLASSIFY && run->classes.several)
    return refuse(session, "classes.several",
                  "found a value without task=classify; expected that too", error);
  if (run->task != LS_RUN_CLASSIFY && asks_weights(run))
    return refuse(session, "classes.weights",
                  "found a value without task=classify; expected that too", error);
  if (run->task != LS_RUN_CLASSIFY) return LS_OK;
  LS_TRY(check_keys(session, error));
  const bool own = config->classes && ls_adapters_has(run->model);
  if (!config->classes) LS_TRY(give_classes(session, error));
  LS_TRY(settle_several(session, error));
  LS_TRY(settle_pooling(session, error));
  if (config->lora_rank && !own) LS_TRY(ls_adapters_keep_head(&session->config, error));
  run->classes.names = config->class_names;
  run->classes.count = config->classes;
  run->classes.first = ls_model_asks_first(config);
  run->classes.each = config->pooling == LS_POOLING_EACH;
  run->classes.pair_ends = ls_model_pair_ends(config);
  run->classes.pair_types = config->types > 1;
  return settle_weights(session, error);
}

void ls_set_of_chance(uint64_t seed, uint64_t place, int64_t classes, int32_t *set) {
  const int64_t words = ls_set_words(classes);
  for (int64_t w = 0; w < words; w++)
    set[w] = (int32_t)(uint32_t)ls_random_bits(seed, 79, place * (uint64_t)words + (uint64_t)w);
  if (classes % 32) set[words - 1] &= (int32_t)((UINT32_C(1) << classes % 32) - 1);
}
