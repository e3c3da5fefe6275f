#include "train/advice.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/file.h"
#include "session/learning_rate.h"

static void advise_warmup(const ls_run_file *run) {
  const ls_learning_rate rate = ls_learning_rate_of(run);
  if (rate.warmup < rate.steps || rate.warmup <= 1) return;
  ls_warn("train.warmup: %" PRId64 " steps, and train.steps is %" PRId64
          ": the learning rate rises to the end, to %.3g; train.warmup=10%% is a tenth of the run",
          rate.warmup, rate.steps, ls_learning_rate_at(&rate, rate.steps - 1));
}

/* Whether both give the same ids of what texts are made of. */
static bool same_ids(const ls_tokenizer *one, const ls_tokenizer *other) {
  static const char sample[] =
      "The quick brown fox can't jump over 13 lazy dogs; IT DOESN'T, in 1984.\n\n\tfor (int i = 0; "
      "i < count; i++) sum += x[i];\n caf\xC3\xA9, \xD0\xBC\xD0\xB8\xD1\x80, "
      "\xE4\xBD\xA0\xE5\xA5\xBD, \xF0\x9F\x99\x82   ...";
  ls_ids a = {0}, b = {0};
  ls_error error;
  bool same = one->end_of_text == other->end_of_text;
  if (ls_tokenizer_append(one, sample, sizeof sample - 1, 0, &a, &error) == LS_OK &&
      ls_tokenizer_append(other, sample, sizeof sample - 1, 0, &b, &error) == LS_OK)
    same = same && a.count == b.count &&
           memcmp(a.items, b.items, (size_t)a.count * sizeof *a.items) == 0;
  ls_ids_free(&a);
  ls_ids_free(&b);
  return same;
}

static void advise_tokenizer(const ls_session *session, const ls_tokenizer *tokenizer) {
  const char *asked = session->run->data.tokenizer, *folder = session->weights;
  if (!folder || strcmp(asked, "auto") == 0 || !ls_directory_exists(folder)) return;
  const ls_tokenizer *own;
  ls_error error;
  if (ls_tokenizer_of(folder, &own, &error) != LS_OK) return; /* then it is not used either */
  const bool told = own == ls_tokenizer_bytes() && own != tokenizer; /* it may have none */
  if (!told && !same_ids(tokenizer, own))
    ls_warn(
        "data.tokenizer: %s gives other ids than the tokenizer in %s, which its weights were "
        "trained with; data.tokenizer=auto takes that",
        asked, folder);
  ls_tokenizer_close(&own);
}

static void advise_vocabulary(const ls_session *session, const ls_tokenizer *tokenizer) {
  const int64_t model = session->config.vocabulary;
  if (tokenizer->vocabulary >= model - model / 2) return;
  ls_warn("%s: a vocabulary of %" PRId64
          ", and the tokenizer (%s) has %d ids: the others are "
          "never seen%s",
          session->config.source, model, tokenizer->name, (int)tokenizer->vocabulary,
          tokenizer == ls_tokenizer_bytes() ? "; data.tokenizer=FOLDER names a tokenizer" : "");
}

static void advise_next_layers(const ls_session *session) {
  const int64_t count = session->config.next_layers;
  if (count > 0 && session->weights)
    ls_warn("%s: %" PRId64
            " layers for further tokens (num_nextn_predict_layers), if its files have them, are "
            "neither trained nor saved",
            session->weights, count);
}

/* Of few examples a small share is none. */
static void advise_validation(const ls_run_file *run, const ls_dataset *dataset) {
  const double fraction = run->data.validation.fraction;
  const bool asked = run->eval.every > 0 && run->eval.every <= run->train.steps;
  if (!asked || !(fraction > 0) || dataset->evaluation.sequences > 0) return;
  int64_t kept = 0;
  for (int m = 0; m < dataset->evaluation.mix_count; m++)
    kept += dataset->evaluation.mix[m].part.documents;
  ls_warn("data.validation: %g keeps %s of %" PRId64
          " documents, so that nothing is evaluated; expected a larger share, or files",
          fraction, kept ? "too long ones alone" : "none", dataset->documents);
}

void ls_session_advise(const ls_session *session, const ls_dataset *dataset,
                       const ls_tokenizer *tokenizer) {
  advise_warmup(session->run);
  advise_validation(session->run, dataset);
  advise_tokenizer(session, tokenizer);
  advise_vocabulary(session, tokenizer);
  advise_next_layers(session);
}

void ls_advise_learning_rate(const ls_run_file *before, const ls_run_file *now, int64_t step) {
  if (before->train.steps <= 0 || now->train.steps <= 0 || before->train.lr <= 0) return;
  const ls_learning_rate old = ls_learning_rate_of(before), rate = ls_learning_rate_of(now);
  const double was = ls_learning_rate_at(&old, step > 0 ? step - 1 : 0);
  const double next = ls_learning_rate_at(&rate, step);
  const double expected = ls_learning_rate_at(&old, step);
  if (step >= rate.steps || fabs(next - expected) <= 0.05 * fmax(next, expected)) return;
  ls_warn("train.steps: %" PRId64 ", and was %" PRId64
          ": the learning rate goes from %.3g in step "
          "%" PRId64 " to %.3g in the next",
          rate.steps, old.steps, was, step, next);
}
