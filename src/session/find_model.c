#include "session/find_model.h"

#include <string.h>

#include "base/file.h"
#include "session/balance.h"
#include "session/classes.h"
#include "session/quantize.h"
#include "session/vectors.h"
#include "store/adapters.h"

static bool asks_all_linear(const ls_run_lora *lora) {
  return lora->targets.count == 1 && strcmp(lora->targets.items[0], "all-linear") == 0;
}

static ls_status refuse_alone(const ls_run_file *run, const char *key, ls_error *error) {
  return ls_fail(error, LS_INPUT, "%s: found a value without lora.rank; expected %s",
                 ls_run_file_where(run, key),
                 ls_adapters_has(run->model)
                     ? "none, since the model's folder has adapters of its own"
                     : "it, as in lora.rank=16");
}

/* A key that says more of adapters that are not asked for. */
static ls_status check_lora_alone(const ls_run_file *run, ls_error *error) {
  const ls_run_lora *lora = &run->lora;
  const char *key = lora->alpha > 0          ? "lora.alpha"
                    : lora->rslora           ? "lora.rslora"
                    : lora->groups.count > 0 ? "lora.groups"
                                             : NULL;
  if (!asks_all_linear(lora)) key = "lora.targets";
  return key ? refuse_alone(run, key, error) : LS_OK;
}

static ls_status apply_lora(const ls_run_file *run, ls_model_config *config, ls_error *error) {
  const ls_run_lora *lora = &run->lora;
  const int groups = lora->groups.count;
  ls_adapter_group *others = LS_NEW_ARRAY(run->arena, ls_adapter_group, groups + 1);
  for (int g = 0; g < groups; g++)
    others[g] = (ls_adapter_group){.match = lora->groups.items[g].match,
                                   .rank = lora->groups.items[g].rank,
                                   .alpha = lora->groups.items[g].alpha};
  ls_adapters asked = {.rank = lora->rank,
                       .alpha = lora->alpha,
                       .rslora = lora->rslora,
                       .dropout = lora->dropout < 0 ? 0 : lora->dropout,
                       .targets = lora->targets.items,
                       .target_count = lora->targets.count};
  ls_status status = ls_adapters_apply(run->arena, &asked, config, error);
  if (status != LS_OK) return ls_error_prefix(error, "%s", ls_run_file_where(run, "lora.targets"));
  asked.groups = others;
  asked.group_count = groups;
  status = ls_adapters_apply(run->arena, &asked, config, error);
  if (status != LS_OK) ls_error_prefix(error, "%s", ls_run_file_where(run, "lora.groups"));
  return status;
}

/* A folder of adapters has its own; keys may say the same, as those of the run that made it do. */
static ls_status read_adapters(ls_session *session, ls_error *error) {
  const ls_run_file *run = session->run;
  LS_TRY(ls_adapters_read(session->arena, run->model, &session->config, error));
  if (run->lora.dropout >= 0) session->config.dropout.adapter = run->lora.dropout;
  if (run->lora.rank == 0) return check_lora_alone(run, error);
  ls_model_config asked = session->config;
  LS_TRY(apply_lora(run, &asked, error));
  const ls_status status = ls_model_config_compare(&asked, &session->config, error);
  if (status != LS_OK)
    ls_error_prefix(error, "%s: %s has adapters of its own, which stay as they are",
                    ls_run_file_where(run, "lora.rank"), run->model);
  return status;
}

/* The model, with the adapters that the run asks for or its folder has. */
static ls_status find_model(ls_session *session, ls_error *error) {
  const ls_run_file *run = session->run;
  if (ls_adapters_has(run->model)) return read_adapters(session, error);
  LS_TRY(ls_model_find(session->arena, run->model, &session->config, error));
  if (run->lora.rank == 0 && run->lora.dropout >= 0)
    return refuse_alone(run, "lora.dropout", error);
  if (run->lora.rank == 0) return check_lora_alone(run, error);
  if (ls_directory_exists(run->model)) session->config.base = run->model;
  return apply_lora(run, &session->config, error);
}

/* The run's word is of the model; adapters have a rate of their own. Answers are measured against a
 * reference that drops nothing, so unless it is asked for neither does training (as in TRL). */
static void apply_dropout(ls_session *session) {
  const bool prefers = ls_run_task_prefers(session->run->task);
  const double rate = session->run->dropout < 0 && prefers ? 0 : session->run->dropout;
  if (rate < 0) return;
  ls_dropout *dropout = &session->config.dropout;
  dropout->embedding = dropout->hidden = dropout->attention = dropout->head = rate;
}

static ls_status apply_fp8(ls_session *session, ls_error *error) {
  if (session->run->dtype != LS_RUN_DTYPE_FP8) return LS_OK;
  const ls_status status = ls_model_set_fp8(&session->config, error);
  if (status == LS_OK) return LS_OK;
  return ls_error_prefix(error, "%s", ls_run_file_where(session->run, "dtype"));
}

ls_status ls_session_find_model(ls_session *session, ls_error *error) {
  LS_TRY(find_model(session, error));
  LS_TRY(ls_classes_settle(session, error));
  LS_TRY(ls_vectors_settle(session, error));
  LS_TRY(ls_quantize_apply(session->run, &session->config, error));
  LS_TRY(apply_fp8(session, error));
  apply_dropout(session);
  return ls_balance_apply(session, error);
}
