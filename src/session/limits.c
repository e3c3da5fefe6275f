#include "session/limits.h"
#include "session/balance.h"

/* Passes of one microbatch over one layer: each takes 6 us and 3 KiB to compile, 18 us and 12 KiB
 * to prove. */
enum { MOST_PASSES = 1 << 18 };

/* Of logits: each is some instructions. */
enum { MOST_SLICES = 4096 };

/* Of a tensor, on one device and over the whole mesh: with eight bytes for each and as many tensors
 * as there can be, sums of bytes still fit 63 bits. */
static const double most_elements = 0x1p40, most_elements_of_all = 0x1p58;

/* `check` tells addresses in a buffer group from those in a unit by this bit. */
static const int64_t most_bytes = INT64_C(1) << 44;

/* And a rank's shard of a unit by those above this many elements. */
static const int64_t most_of_unit = INT64_C(1) << 44;

static ls_status check_passes(const ls_session *session, ls_error *error) {
  const ls_run_file *run = session->run;
  const int64_t layers = session->config.layers, microbatches = run->train.microbatches;
  if (microbatches <= MOST_PASSES / (layers > 0 ? layers : 1)) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s: found %lld microbatches of a model with %lld layers; expected at most %lld, "
                 "which are %d passes over a layer: give a larger train.micro_batch, or a smaller "
                 "train.batch",
                 ls_run_file_where(run, "train.microbatches"), (long long)microbatches,
                 (long long)layers, (long long)(MOST_PASSES / layers), MOST_PASSES);
}

/* The model's largest dimension beside that of tokens. */
static int64_t widest(const ls_model_config *config, const char **name) {
  const struct {
    const char *name;
    int64_t size;
  } all[] = {{"vocabulary", config->vocabulary},
             {"width of the MLP", config->mlp_width},
             {"width of a token's MLPs", ls_model_expert_width(config) * config->experts_per_token},
             {"width of the shared experts", config->shared_width},
             {"width of all heads", config->heads * config->head_dim},
             {"width", config->width}};
  int most = 0;
  for (int i = 1; i < (int)(sizeof all / sizeof *all); i++)
    if (all[i].size > all[most].size) most = i;
  *name = all[most].name;
  return all[most].size;
}

static ls_status check_tokens(const ls_session *session, ls_error *error) {
  const ls_run_file *run = session->run;
  const char *name;
  const int64_t size = widest(&session->config, &name);
  const double sequence = (double)run->data.seq_len;
  const double ranks = (double)ls_run_file_data_ranks(run);
  const double tokens = (double)run->train.micro_batch * sequence;
  const int64_t experts = session->config.experts_per_token;
  if (tokens <= INT32_MAX && tokens * (double)experts > INT32_MAX)
    return ls_fail(error, LS_INPUT,
                   "%s: found %lld sequences of %lld tokens at a time, each for %lld experts; "
                   "expected at most %d rows of a device: give a smaller train.micro_batch or "
                   "data.seq_len",
                   ls_run_file_where(run, "train.micro_batch"), (long long)run->train.micro_batch,
                   (long long)run->data.seq_len, (long long)experts, INT32_MAX);
  if (tokens > INT32_MAX) /* libraries of matrix products count rows in 32 bits */
    return ls_fail(error, LS_INPUT,
                   "%s: found %lld sequences of %lld tokens at a time; expected at most %d tokens "
                   "of a device: give a smaller train.micro_batch or data.seq_len",
                   ls_run_file_where(run, "train.micro_batch"), (long long)run->train.micro_batch,
                   (long long)run->data.seq_len, INT32_MAX);
  if (size > INT32_MAX) /* columns likewise */
    return ls_fail(error, LS_INPUT, "%s: a %s of %lld; expected at most %d", session->config.source,
                   name, (long long)size, INT32_MAX);
  const double of_rank = tokens * (double)size;
  if (of_rank <= most_elements && of_rank * ranks <= most_elements_of_all) return LS_OK;
  return ls_fail(
      error, LS_INPUT,
      "%s: found %lld sequences of %lld tokens at a time, with a %s of %lld a tensor of "
      "%.3g elements; expected at most %.3g: give a smaller train.micro_batch or "
      "data.seq_len",
      ls_run_file_where(run, "train.micro_batch"), (long long)run->train.micro_batch,
      (long long)run->data.seq_len, name, (long long)size, of_rank,
      most_elements < most_elements_of_all / ranks ? most_elements : most_elements_of_all / ranks);
}

static ls_status check_slices(const ls_session *session, ls_error *error) {
  const ls_run_file *run = session->run;
  const int64_t rows = run->train.micro_batch * run->data.seq_len; /* checked: it fits */
  const int64_t least = (rows + MOST_SLICES - 1) / MOST_SLICES;
  if (!run->logits_rows || run->logits_rows >= least) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s: found %lld of the %lld tokens that a device has at a time; expected at least "
                 "%lld: the head runs at most %d times for them",
                 ls_run_file_where(run, "logits_rows"), (long long)run->logits_rows,
                 (long long)rows, (long long)least, MOST_SLICES);
}

/* Attention of the mean takes a rank's own tokens, which those of a tensor axis share out. */
static ls_status check_pooling(const ls_session *session, ls_error *error) {
  const ls_layout *layout = &session->layout;
  if (!session->config.classes || session->config.pooling != LS_POOLING_MEAN) return LS_OK;
  if (layout->cp == 1 || layout->tp == 1 || !layout->sequence_parallel) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s: found %lld beside mesh.tp with classes told by the mean of their tokens: "
                 "give sequence_parallel=false",
                 ls_run_file_where(session->run, "mesh.cp"), (long long)layout->cp);
}

ls_status ls_session_check_sizes(const ls_session *session, ls_error *error) {
  LS_TRY(check_passes(session, error));
  LS_TRY(check_tokens(session, error));
  LS_TRY(ls_balance_check(session, error));
  LS_TRY(check_pooling(session, error));
  return check_slices(session, error);
}

static ls_status check_units(const ls_session *session, const ls_program *program,
                             ls_error *error) {
  for (int v = 0; v < program->values.count; v++) {
    const ls_value *value = &program->values.items[v];
    if (value->flat_elements < most_of_unit) continue;
    return ls_fail(error, LS_INPUT,
                   "%s: the unit with %s has %.3g x 10^12 numbers; expected fewer than %.3g x "
                   "10^12: give a smaller wrap, or a smaller model",
                   session->config.source, value->name, (double)value->flat_elements / 1e12,
                   (double)most_of_unit / 1e12);
  }
  return LS_OK;
}

static ls_status check_program(const ls_session *session, const ls_program *program,
                               ls_error *error) {
  LS_TRY(check_units(session, program, error));
  for (int f = 0; f < program->buffer_groups.count; f++) {
    const ls_buffer_group *buffer_group = &program->buffer_groups.items[f];
    if (buffer_group->bytes < most_bytes) continue;
    return ls_fail(error, LS_INPUT,
                   "%s: a device of stage %d would hold %s and what lives with it as one block of "
                   "%.1f TiB; expected less than %d: cut it over more devices (mesh), or give a "
                   "smaller wrap or train.micro_batch",
                   session->config.source, program->stage, buffer_group->name,
                   (double)buffer_group->bytes / 0x1p40, (int)(most_bytes >> 40));
  }
  return LS_OK;
}

ls_status ls_session_check_programs(const ls_session *session, ls_error *error) {
  for (int p = 0; p < session->compiled.count; p++)
    for (int s = 0; s < session->layout.pp; s++)
      LS_TRY(check_program(session, session->stages[p][s], error));
  return LS_OK;
}

/* Keys of preferences that are another task's. */
static ls_status check_no_pairs(const ls_run_file *run, ls_error *error) {
  const bool odds = run->orpo.lambda != 0.1 && run->task != LS_RUN_ORPO;
  const char *key = run->task == LS_RUN_DPO        ? NULL
                    : run->dpo.beta != 0.1         ? "dpo.beta"
                    : run->dpo.label_smoothing > 0 ? "dpo.label_smoothing"
                                                   : NULL;
  if (!key && !odds) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s: found a value without task=%s; expected that too",
                 ls_run_file_where(run, key ? key : "orpo.lambda"), key ? "dpo" : "orpo");
}

/* An encoder predicts masked tokens or classes, or makes vectors, and all others continue a text.
 */
static ls_status check_masking(const ls_session *session, ls_error *error) {
  const ls_run_file *run = session->run;
  const bool encoder = ls_model_is_encoder(&session->config), masks = run->task == LS_RUN_MLM;
  if (encoder && !masks && run->task != LS_RUN_CLASSIFY && run->task != LS_RUN_EMBED)
    return ls_fail(error, LS_INPUT,
                   "%s: %s is an encoder, whose tokens see those behind them: give task=mlm, "
                   "task=classify or task=embed",
                   ls_run_file_where(run, "task"), session->config.family);
  if (masks && !encoder)
    return ls_fail(error, LS_INPUT,
                   "%s: found mlm with %s, whose tokens see none behind them; expected an encoder, "
                   "such as bert",
                   ls_run_file_where(run, "task"), session->config.family);
  const ls_run_mlm *mlm = &run->mlm;
  if (mlm->mask_replace + mlm->random_replace > 1)
    return ls_fail(
        error, LS_INPUT, "%s: %g, and mlm.random_replace %g; expected at most 1 together",
        ls_run_file_where(run, "mlm.mask_replace"), mlm->mask_replace, mlm->random_replace);
  const char *key = masks                        ? NULL
                    : mlm->probability != 0.15   ? "mlm.probability"
                    : mlm->mask_replace != 0.8   ? "mlm.mask_replace"
                    : mlm->random_replace != 0.1 ? "mlm.random_replace"
                                                 : NULL;
  if (!key) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s: found a value without task=mlm; expected that too",
                 ls_run_file_where(run, key));
}

ls_status ls_session_check_task(ls_session *session, ls_error *error) {
  ls_run_file *run = session->run;
  LS_TRY(check_masking(session, error));
  LS_TRY(check_no_pairs(run, error));
  if (run->eval.by_document &&
      (session->config.classes || session->config.vectors || ls_model_is_encoder(&session->config)))
    return ls_fail(error, LS_INPUT,
                   "%s: is no model of the next token; expected one where documents are told one "
                   "by one (--per-document)",
                   run->model);
  if (!ls_run_task_prefers(run->task)) return LS_OK;
  const char *task = run->task == LS_RUN_DPO ? "dpo" : "orpo";
  run->dpo.longest = session->config.positions;
  if (session->evaluates)
    return ls_fail(error, LS_INPUT,
                   "%s: found %s; what is evaluated is the loss of tokens: give task=next_token, "
                   "and a text or chats",
                   ls_run_file_where(run, "task"), task);
  if (run->data.documents == LS_RUN_STREAM)
    return ls_fail(error, LS_INPUT,
                   "%s: found stream with task=%s, whose answers are documents of their own: give "
                   "masked, or leave it out",
                   ls_run_file_where(run, "data.documents"), task);
  if (run->data.loss_on == LS_RUN_LOSS_ON_ALL)
    return ls_fail(error, LS_INPUT,
                   "%s: found all with task=%s, which compares answers: give answers, or last",
                   ls_run_file_where(run, "data.loss_on"), task);
  if (run->logits_rows > 0)
    return ls_fail(error, LS_INPUT,
                   "%s: found %lld with task=%s, whose gradients need whole answers' logits first: "
                   "leave it out, and give a smaller train.micro_batch",
                   ls_run_file_where(run, "logits_rows"), (long long)run->logits_rows, task);
  if (run->data.too_long != LS_RUN_TOO_LONG_DROP)
    return ls_fail(error, LS_INPUT,
                   "%s: found %s with task=%s, which compares whole answers: give drop, or a "
                   "larger data.seq_len",
                   ls_run_file_where(run, "data.too_long"),
                   run->data.too_long == LS_RUN_TOO_LONG_CUT ? "cut" : "split", task);
  return LS_OK;
}
