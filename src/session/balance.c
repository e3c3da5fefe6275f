#include "session/balance.h"

static ls_status refuse(const ls_session *session, const char *key, const char *what,
                        ls_error *error) {
  return ls_fail(error, LS_INPUT, "%s: %s", ls_run_file_where(session->run, key), what);
}

/* What says how rows go to experts. */
static ls_status check_exchange(const ls_session *session, ls_error *error) {
  const ls_run_experts *run = &session->run->experts;
  const char *key = run->exchange != LS_RUN_EXCHANGE_AUTO ? "experts.exchange"
                    : run->bound > 0                      ? "experts.bound"
                    : run->again > 0                      ? "experts.again"
                                                          : NULL;
  if (key && session->config.experts == 0)
    return refuse(session, key, "given for a model without experts; expected auto", error);
  if (run->exchange == LS_RUN_EXCHANGE_GATHER && run->bound > 0)
    return refuse(session, "experts.bound",
                  "given with experts.exchange=gather, which has no slots; expected auto, or "
                  "experts.exchange=all_to_all",
                  error);
  if (run->again > 0 && run->bound <= 0)
    return refuse(session, "experts.again",
                  "given without experts.bound, so that no step is made again; expected auto, or "
                  "that too",
                  error);
  return LS_OK;
}

/* Answers are measured against a reference that drops nothing. */
static ls_status check_drop(const ls_session *session, ls_error *error) {
  if (session->run->experts.drop <= 0) return LS_OK;
  if (session->config.experts == 0)
    return refuse(session, "experts.drop", "given for a model without experts; expected off",
                  error);
  if (session->run->task == LS_RUN_DPO)
    return refuse(session, "experts.drop",
                  "found with task=dpo, whose reference drops nothing; expected off", error);
  return LS_OK;
}

ls_status ls_balance_apply(ls_session *session, ls_error *error) {
  const ls_run_experts *run = &session->run->experts;
  ls_balance *balance = &session->config.balance;
  const bool asks = run->aux_loss > 0 || run->z_loss > 0 || run->bias_rate > 0;
  const ls_run_task task = session->run->task;
  const bool prefers = ls_run_task_prefers(task);
  LS_TRY(check_exchange(session, error));
  LS_TRY(check_drop(session, error));
  if (asks && session->config.experts == 0)
    return refuse(session,
                  run->aux_loss > 0 ? "experts.aux_loss"
                  : run->z_loss > 0 ? "experts.z_loss"
                                    : "experts.bias_rate",
                  "given for a model without experts; expected 0", error);
  if (run->aux_loss >= 0) balance->aux = run->aux_loss;
  balance->z = run->z_loss;
  balance->form = (ls_balance_form)run->aux_form;
  balance->bias_rate = run->bias_rate;
  balance->drop = run->drop;
  if (balance->bias_rate > 0 && !session->config.router_bias)
    return refuse(session, "experts.bias_rate",
                  "given for a model whose routers have no correction bias; expected 0", error);
  if (!prefers && task != LS_RUN_CLASSIFY && task != LS_RUN_EMBED) return LS_OK;
  if (!prefers && (run->aux_loss > 0 || run->z_loss > 0))
    return refuse(session, run->aux_loss > 0 ? "experts.aux_loss" : "experts.z_loss",
                  "found with texts that have a class or a vector, whose loss is a mean over these "
                  "and not over "
                  "tokens; expected 0",
                  error);
  if (run->aux_loss <= 0) balance->aux = 0; /* the configuration's, unless it is asked for */
  if (balance->aux > 0 && balance->form != LS_BALANCE_SEQUENCE)
    return refuse(session, "experts.aux_form",
                  "found with pairs of answers, whose loss is a mean over these: each sequence has "
                  "its own; expected sequence",
                  error);
  return LS_OK;
}

static ls_status check_parts(const ls_session *session, ls_error *error) {
  const ls_run_file *run = session->run;
  const char *form = session->config.balance.form == LS_BALANCE_MODEL ? "model" : "layer";
  if (run->train.microbatches == run->experts.aux_microbatches) return LS_OK;
  return ls_fail(
      error, LS_INPUT,
      "%s: found %lld microbatches, but experts.aux_form %s has loads of %lld equal parts "
      "of a step (experts.aux_microbatches): use train.microbatches=%lld, "
      "experts.aux_microbatches=%lld or experts.aux_form=sequence",
      ls_run_file_where(run, "train.microbatches"), (long long)run->train.microbatches, form,
      (long long)run->experts.aux_microbatches, (long long)run->experts.aux_microbatches,
      (long long)run->train.microbatches);
}

ls_status ls_balance_check(const ls_session *session, ls_error *error) {
  const ls_balance *balance = &session->config.balance;
  if (balance->aux <= 0 || balance->form == LS_BALANCE_SEQUENCE) return LS_OK;
  if (balance->form == LS_BALANCE_MODEL && session->layout.pp > 1)
    return ls_fail(error, LS_INPUT,
                   "%s: found %d stages, but experts.aux_form model has loads of all layers "
                   "together: use mesh.pp=1, experts.aux_form=layer or experts.aux_form=sequence",
                   ls_run_file_where(session->run, "mesh.pp"), session->layout.pp);
  return check_parts(session, error);
}

/* What is counted is added up before the boundary behind which a step is run again. */
static ls_status check_validation(const ls_session *session, ls_error *error) {
  const ls_balance *balance = &session->config.balance;
  const char *counts = balance->aux > 0    ? "experts.aux_loss"
                       : balance->z > 0    ? "experts.z_loss"
                       : balance->drop > 0 ? "experts.drop"
                                           : NULL;
  if (!session->layout.post_validation) return LS_OK;
  if (balance->bias_rate > 0)
    return refuse(session, "post_validation",
                  "found with experts.bias_rate, which needs the loads of a step before the next "
                  "begins; expected false",
                  error);
  if (!counts) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s: found with %s, which counts rows that would count twice where a step is "
                 "begun again; expected false",
                 ls_run_file_where(session->run, "post_validation"), counts);
}

ls_status ls_balance_settle(ls_session *session, ls_error *error) {
  const ls_run_experts *run = &session->run->experts;
  ls_balance *balance = &session->config.balance;
  balance->loads = session->config.experts > 0 && (run->loads || balance->bias_rate > 0);
  LS_TRY(check_validation(session, error));
  if (session->layout.post_validation) balance->loads = false;
  return LS_OK;
}
