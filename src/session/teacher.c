#include "session/teacher.h"

#include <string.h>

#include "base/file.h"
#include "model/hub.h"
#include "store/adapters.h"
#include "store/names.h"
#include "store/weights_folder.h"

static ls_status refuse(const ls_session *session, const char *what, ls_error *error) {
  return ls_fail(error, LS_INPUT, "%s: %s", ls_run_file_where(session->run, "teacher"), what);
}

/* A key that says more of a teacher that is not asked for. */
static ls_status check_alone(const ls_run_file *run, ls_error *error) {
  const char *key = run->distill.temperature != 2 ? "distill.temperature"
                    : run->distill.mix != 0.5     ? "distill.mix"
                    : *run->distill.logits        ? "distill.logits"
                    : *run->teacher               ? "teacher"
                                                  : NULL;
  if (!key) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s: found a value without task=distill; expected that too",
                 ls_run_file_where(run, key));
}

static ls_status find_folder(ls_session *session, ls_error *error) {
  ls_run_file *run = session->run;
  bool weights = false;
  if (!*run->teacher)
    return ls_fail(
        error, LS_INPUT,
        "%s: found distill without a teacher; expected the folder of a larger model with "
        "the same vocabulary, as in teacher=runs/large, or distill.logits",
        ls_run_file_where(run, "task"));
  if (ls_hub_is_name(run->teacher))
    LS_TRY(ls_hub_find(session->arena, run->teacher, &run->teacher, error));
  if (!ls_directory_exists(run->teacher))
    return refuse(
        session,
        ls_arena_printf(session->arena,
                        "%s is no folder; expected one with config.json and weights", run->teacher),
        error);
  if (ls_adapters_has(run->teacher))
    return refuse(session,
                  ls_arena_printf(session->arena,
                                  "%s holds adapters; expected whole weights, as lockstep export "
                                  "--merge writes them",
                                  run->teacher),
                  error);
  LS_TRY(ls_weights_folder_check(session->arena, run->teacher, &weights, error));
  if (weights) return LS_OK;
  return refuse(session,
                ls_arena_printf(session->arena,
                                "%s has no model.safetensors; expected a trained model's folder",
                                run->teacher),
                error);
}

static ls_status refuse_told(const ls_session *session, const char *what, int64_t found,
                             const char *key, int64_t expected, ls_error *error) {
  return ls_fail(error, LS_INPUT, "%s: %s tells of %s %lld; expected %lld, %s",
                 ls_run_file_where(session->run, "distill.logits"), session->told->name, what,
                 (long long)found, (long long)expected, key);
}

/* What a teacher has said, in place of it. */
static ls_status find_told(ls_session *session, ls_error *error) {
  const ls_run_file *run = session->run;
  const ls_model_config *config = &session->config;
  if (*run->teacher)
    return ls_fail(error, LS_INPUT, "%s: found beside teacher; expected one of both",
                   ls_run_file_where(run, "distill.logits"));
  if (ls_top_logits_open(session->arena, run->distill.logits, &session->told, error) != LS_OK)
    return ls_error_prefix(error, "%s", ls_run_file_where(run, "distill.logits"));
  const ls_top_about *about = &session->told->about;
  if (about->vocabulary != config->vocabulary)
    return refuse_told(session, "a vocabulary of", about->vocabulary, "that of the model",
                       config->vocabulary, error);
  if (about->seq_len == session->sequence) return LS_OK;
  return refuse_told(session, "sequences of", about->seq_len, "as data.seq_len says",
                     session->sequence, error);
}

const char *ls_teacher_dataset(ls_arena *arena, const ls_dataset *dataset) {
  return ls_arena_printf(arena, "%s %s", dataset->fingerprint,
                         dataset->training.masked ? "masked" : "stream");
}

ls_status ls_teacher_tell(ls_arena *arena, const ls_session *session, const ls_dataset **dataset,
                          ls_error *error) {
  if (!session->told) return LS_OK;
  const ls_top_about *about = &session->told->about;
  const ls_dataset *given = *dataset;
  const char *expected = ls_teacher_dataset(arena, given);
  const size_t alike = strlen(given->fingerprint);
  if (strncmp(about->dataset, expected, alike) == 0 && strcmp(about->dataset, expected) != 0)
    return ls_fail(error, LS_INPUT,
                   "%s: %s was made with data.documents=%.16s; expected%s, as here",
                   ls_run_file_where(session->run, "distill.logits"), session->told->name,
                   about->dataset + alike + (about->dataset[alike] == ' '), expected + alike);
  if (strcmp(about->dataset, expected) != 0 || about->training != given->training.sequences ||
      about->evaluation != given->evaluation.sequences)
    return ls_fail(error, LS_INPUT,
                   "%s: %s was made of another text (%lld and %lld sequences, these are %lld and "
                   "%lld): make it anew with this run's data keys and tokenizer",
                   ls_run_file_where(session->run, "distill.logits"), session->told->name,
                   (long long)about->training, (long long)about->evaluation,
                   (long long)given->training.sequences, (long long)given->evaluation.sequences);
  ls_dataset *told = LS_NEW(arena, ls_dataset);
  *told = *given;
  told->training.told = told->evaluation.told = session->told;
  told->evaluation.told_first = about->training;
  *dataset = told;
  LS_TRY(ls_order_check_told(arena, &told->training, error));
  return ls_order_check_told(arena, &told->evaluation, error);
}

ls_status ls_teacher_find(ls_session *session, ls_error *error) {
  if (session->run->task != LS_RUN_DISTILL) return check_alone(session->run, error);
  if (session->evaluates) return LS_OK;
  if (*session->run->distill.logits) return find_told(session, error);
  LS_TRY(find_folder(session, error));
  ls_model_config *found = LS_NEW(session->arena, ls_model_config);
  LS_TRY(ls_model_find(session->arena, session->run->teacher, found, error));
  LS_TRY(ls_weights_settle_scales(found, error));
  if (found->classes || found->vectors || ls_model_is_encoder(found))
    return refuse(session,
                  ls_arena_printf(session->arena, "%s %s; expected a model that continues a text",
                                  found->source,
                                  found->classes   ? "has a head over classes"
                                  : found->vectors ? "makes vectors, without a head"
                                                   : "is an encoder"),
                  error);
  found->teacher = true;
  session->teacher = found;
  if (found->vocabulary == session->config.vocabulary) return LS_OK;
  return refuse(session,
                ls_arena_printf(session->arena,
                                "%s has a vocabulary of %lld; expected the %lld of %s, whose "
                                "logits are compared with its own one by one",
                                found->source, (long long)found->vocabulary,
                                (long long)session->config.vocabulary, session->config.source),
                error);
}

ls_model_teacher ls_teacher_of(const ls_session *session) {
  return (ls_model_teacher){session->teacher, session->told ? session->told->about.top : 0,
                            session->run->distill.temperature, session->run->distill.mix};
}

const char *ls_teacher_text(ls_arena *arena, const ls_session *session) {
  const ls_run_distill *distill = &session->run->distill;
  if (session->told)
    return ls_arena_printf(
        arena,
        "teacher %s, as %s has it: %lld likeliest ids of each token; %g%% of the "
        "loss, at temperature %g",
        session->told->about.teacher, session->told->name, (long long)session->told->about.top,
        100 * distill->mix, distill->temperature);
  if (!session->teacher) return NULL;
  return ls_arena_printf(
      arena, "teacher %s: %.2f M parameters, frozen; %g%% of the loss, at temperature %g",
      session->run->teacher, (double)ls_model_parameters(session->teacher) / 1e6,
      100 * distill->mix, distill->temperature);
}
