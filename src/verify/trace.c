#include "verify/trace.h"

#include <string.h>

#include "base/file.h"
#include "text/json.h"

/* References whose fp64 run is not double throughout, known by a word of the trace's "source".
 * BLOOM has a GELU of its own, with constants of eight digits. The shares are measured: llama2.c's
 * fp64 logits are off by 0.9 of its fp32 noise, its norms by 1.2; litgpt's are off by 0.01 to 0.1,
 * BLOOM's losses by 0.0003. */
static const struct {
  const char *word, *parts;
  double share;
} single_references[] = {
    {"litgpt", "rotary tables", 0.125},
    {"BloomForCausalLM", "the constants of GELU", 0.002},
    {"llama2.c", "norms, softmax and rotary tables", 2},
};

static void find_single_parts(ls_trace *trace, const char *source) {
  for (size_t i = 0; i < sizeof single_references / sizeof *single_references; i++) {
    if (!strstr(source, single_references[i].word)) continue;
    trace->single_parts = single_references[i].parts;
    trace->single_share = single_references[i].share;
  }
}

/* The betas are a list of two. */
static ls_status read_betas(ls_arena *arena, const ls_json_object *hyper, double betas[2],
                            ls_error *error) {
  double *values;
  int count;
  LS_TRY(ls_json_numbers(arena, hyper, "betas", &values, &count, error));
  if (count != 2)
    return ls_fail(error, LS_INPUT, "%s: \"betas\" has %d numbers; expected 2", hyper->where,
                   count);
  betas[0] = values[0];
  betas[1] = values[1];
  return LS_OK;
}

/* Every key that a trace of a pretraining has: another one may change what is computed. */
static const char *const root_keys[] = {"kind",
                                        "source",
                                        "hyper",
                                        "batch_layout",
                                        "loss",
                                        "weight_decay_on",
                                        "tied_embeddings",
                                        "tokenizer",
                                        "initial",
                                        "clip",
                                        "recheck",
                                        "routing",
                                        "aux",
                                        "router_nearest_tie",
                                        "tokens_per_expert_step0_micro0",
                                        "reference_noise_f32_vs_f64",
                                        "final_params_f64",
                                        "steps",
                                        NULL};
/* And those that one of adapters has beside them; "quantisation" and "runs" say how the weights are
 * stored, which config.json says too. */
static const char *const adapter_keys[] = {
    "trained", "lora", "prompt_ids", "merged_logits_noise", "quantisation", "runs", NULL};
/* And those that one of preferences has. */
static const char *const pair_keys[] = {"reference_model", "step_columns", "step0_logps_micro0_f64",
                                        "logps_noise_f32_vs_f64", NULL};
static const char *const pair_hyper_keys[] = {"beta", "loss_type", NULL};
/* And those that one with a teacher has. */
static const char *const teacher_keys[] = {"valid", "teacher_logits_noise", NULL};
static const char *const teacher_hyper_keys[] = {"alpha", "temperature", NULL};
/* And those of masked language modelling; "attention" says what config.json says too. */
static const char *const mask_keys[] = {"zero_gradients", "attention", NULL};
/* And those of packed chats, of which the first says what is done here. */
static const char *const packed_keys[] = {"attention", "documents_per_row",
                                          "step0_loss_if_done_wrong", NULL};
/* And those of other optimizers. */
static const char *const optimizer_keys[] = {"optimizer",
                                             "muon",
                                             "states",
                                             "state_noise_f32_vs_f64",
                                             "distance_of_other_rules_from_f64",
                                             "distance_of_bfloat16_newton_schulz_from_f64",
                                             NULL};
static const char *const optimizer_hyper_keys[] = {
    "block_size",    "min_8bit_size",     "muon_lr",  "muon_momentum",
    "muon_nesterov", "muon_weight_decay", "ns_steps", "ns_eps",
    "adjust_lr_fn",  "ns_coefficients",   NULL};
/* And those of classes. */
static const char *const class_hyper_keys[] = {"class_weights", NULL};
/* And those of vectors of texts. */
static const char *const text_hyper_keys[] = {"pairs", "texts", "group", "scale", NULL};
static const char *const lora_keys[] = {"r",
                                        "lora_alpha",
                                        "target_modules",
                                        "use_rslora",
                                        "scaling",
                                        "lora_dropout",
                                        "scaling_rule",
                                        "formula",
                                        "initial",
                                        NULL};
/* schedule, warmup and min_lr say where the learning rates of the steps come from. */
static const char *const hyper_keys[] = {
    "steps",        "B",         "T",        "micro_batches", "lr",     "betas",  "eps",
    "weight_decay", "grad_clip", "schedule", "warmup",        "min_lr", "frozen", NULL};

static bool is_listed(const char *const *known, const char *key) {
  int k = 0;
  while (known && known[k] && strcmp(known[k], key) != 0) k++;
  return known && known[k];
}

/* `more` may be NULL. */
static ls_status check_keys(const ls_json_object *object, const char *const *known,
                            const char *const *more, ls_error *error) {
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)object->json, key, value) {
    if (!is_listed(known, key) && !is_listed(more, key))
      return ls_fail(error, LS_INPUT,
                     "%s: \"%.60s\" is not known, and may change what is computed: a pretraining, "
                     "a training of adapters, by preferences or by a teacher can be repeated",
                     object->where, key);
  }
  return LS_OK;
}

static bool is_of_texts(const char *kind) {
  return strcmp(kind, "embed") == 0;
}

static bool is_packed(const char *kind) {
  return strcmp(kind, "sft_packed") == 0;
}

static bool is_masked(const char *kind) {
  return strcmp(kind, "bert_mlm") == 0 || strcmp(kind, "modernbert_mlm") == 0;
}

/* What a key's text is to begin with; `other` may be NULL. */
typedef struct wording {
  const char *key, *begins, *other;
} wording;

static ls_status check_wording(const ls_json_object *root, const wording *of, ls_error *error) {
  const char *text, *other = of->other ? of->other : of->begins;
  LS_TRY(ls_json_string_or(root, of->key, of->begins, &text, error));
  if (strncmp(text, of->begins, strlen(of->begins)) == 0) return LS_OK;
  if (strncmp(text, other, strlen(other)) == 0) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s: \"%s\" is \"%.80s\", which cannot be repeated; expected \"%s\"", root->where,
                 of->key, text, of->begins);
}

/* What the trace says in words must be what is done here. `plain`: the kind where there are neither
 * adapters nor pairs nor a teacher. */
static ls_status check_words(const ls_json_object *root, const char *plain, bool adapters,
                             bool pairs, bool classes, bool taught, ls_error *error) {
  const bool masked = is_masked(plain), texts = is_of_texts(plain), packed = is_packed(plain);
  const wording words[] = {
      /* of a mixture of experts: moe */
      {"kind",
       adapters ? "lora"
       : pairs  ? "dpo"
       : taught ? "distillation"
                : plain,
       adapters ? "qlora"
       : pairs  ? "orpo"
       : taught ? NULL
                : "moe"},
      {"trained", "lora_A and lora_B only; the base is frozen",
       "lora_A and lora_B only; the base stays quantised and frozen"},
      {"reference_model", "the policy's own start", NULL},
      {"batch_layout",
       pairs   ? "batches.safetensors, int32 [steps, micro_batches, B, T]: chosen_ids, rejected_ids"
       : texts ? "batches.safetensors, int32: input_ids, position_ids, texts"
       : packed ? "batches.safetensors, int32 [steps, micro_batches, B, T]: input_ids, labels, "
                  "position_ids (restart at 0 with every document)"
       : classes || masked ? "batches.safetensors, int32: input_ids, attention_mask"
       : taught ? "batches.safetensors, int32: input_ids, labels [steps, micro_batches, B, T]"
                : "row b of micro-batch m of step s starts at ((s*micro_batches+m)*B+b)*T; x = "
                  "tokens[start:start+T], y = tokens[start+1:start+T+1]",
       NULL},
      {"loss",
       pairs   ? "mean over the step's micro_batches*B pairs of -log sigmoid(beta*((pc - rc) - "
                 "(pr - rr)))"
       : texts ? "mean over the texts that ask of -log softmax(scale cosine) of their answer, over "
                 "the answers of the group"
       : classes ? "cross-entropy of the "
       : packed ? "cross-entropy of the logits at t against labels[t+1], summed over all positions "
                  "of the step with labels[t+1] != -100 and divided by their number in the whole "
                  "step"
       : masked
           ? "cross-entropy at the positions whose label is not -100 (the label is the token at "
             "that very position, no shift), summed over all micro-batches of the step and "
             "divided by the number of such positions in the step"
       : taught ? "(1-alpha)*CE + alpha*temperature^2*KL; CE = (1/n) sum over valid t of -log "
                  "softmax(s_t)[labels[t+1]]; KL = (1/n) sum over valid t of sum_v p(v)*(log p(v) "
                  "- log q(v)), p = softmax(teacher_t/temperature), q = softmax(s_t/temperature)"
                : "mean cross-entropy over B*T positions, averaged over micro-batches",
       /* config.json says how often */
       pairs
           ? "mean over the step's micro_batches*B pairs of -lc - beta*log sigmoid(log odds ratio)"
       : classes                             ? "binary cross-entropy of the "
       : masked || taught || texts || packed ? NULL
                                             : "mean cross-entropy over B*T positions + "},
      {"attention", packed ? "causal and only inside a document" : "", NULL},
      {"aux", "E * sum_e f_e * P_e over the rows of ALL mixture layers and tokens of a micro-batch",
       NULL},
      {"routing", "softmax over all experts' logits, the ", NULL},
      {"weight_decay_on",
       adapters ? "all adapter matrices"
                : "parameters with 2 or more dimensions (embeddings included)",
       "Muon: all its matrices (muon_weight_decay); AdamW: parameters with 2 dimensions "},
  };
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    LS_TRY(check_wording(root, &words[i], error));
  return LS_OK;
}

static ls_status read_hyper(ls_arena *arena, const ls_json_object *root, ls_trace *trace,
                            const char *const *more, ls_error *error) {
  ls_json_object hyper;
  int64_t sequences, microbatches;
  LS_TRY(ls_json_child(arena, root, "hyper", &hyper, error));
  LS_TRY(check_keys(&hyper, hyper_keys, more, error));
  LS_TRY(ls_json_count(&hyper, "steps", &trace->steps, error));
  LS_TRY(ls_json_count(&hyper, "B", &sequences, error));
  LS_TRY(ls_json_count(&hyper, "T", &trace->sequence, error));
  LS_TRY(ls_json_count_or(&hyper, "micro_batches", 1, &microbatches, error));
  LS_TRY(ls_json_number(&hyper, "lr", &trace->learning_rate, error));
  LS_TRY(read_betas(arena, &hyper, trace->betas, error));
  LS_TRY(ls_json_number(&hyper, "eps", &trace->epsilon, error));
  LS_TRY(ls_json_number(&hyper, "weight_decay", &trace->weight_decay, error));
  LS_TRY(ls_json_number_or(&hyper, "grad_clip", 0, &trace->clip, error));
  if (json_object_get(hyper.json, "frozen"))
    LS_TRY(ls_json_strings(arena, &hyper, "frozen", &trace->frozen, &trace->frozen_count, error));
  for (int f = 0; f < trace->frozen_count; f++)
    trace->frozen[f] = ls_arena_strdup(arena, trace->frozen[f]);
  trace->rows = sequences * microbatches;
  int64_t tokens;
  if (__builtin_mul_overflow(trace->rows, trace->sequence, &tokens) || tokens > INT32_MAX ||
      tokens * trace->steps > INT64_MAX / 4)
    return ls_fail(error, LS_INPUT,
                   "%s: found %lld rows of %lld tokens; expected below 2^31 tokens in a step",
                   hyper.where, (long long)trace->rows, (long long)trace->sequence);
  return LS_OK;
}

static ls_status read_step(const ls_json_object *json, ls_trace_step *step, ls_error *error) {
  LS_TRY(ls_json_number(json, "lr", &step->learning_rate, error));
  LS_TRY(ls_json_number(json, "loss_f64", &step->loss, error));
  LS_TRY(ls_json_number(json, "grad_norm_f64", &step->norm, error));
  LS_TRY(ls_json_number(json, "loss_f32", &step->loss_f32, error));
  return ls_json_number(json, "grad_norm_f32", &step->norm_f32, error);
}

static ls_status read_steps(ls_arena *arena, const ls_json_object *root, ls_trace *trace,
                            ls_error *error) {
  const json_t *list = json_object_get(root->json, "steps");
  if (!json_is_array(list) || json_array_size(list) != (size_t)trace->steps)
    return ls_fail(error, LS_INPUT, "%s: \"steps\" has %zu entries; expected hyper's %lld",
                   root->where, json_array_size(list), (long long)trace->steps);
  trace->step = LS_NEW_ARRAY(arena, ls_trace_step, trace->steps);
  for (int64_t s = 0; s < trace->steps; s++) {
    ls_json_object entry;
    const char *where = ls_arena_printf(arena, "%s: step %lld", root->where, (long long)s);
    LS_TRY(ls_json_root(where, json_array_get(list, (size_t)s), &entry, error));
    LS_TRY(read_step(&entry, &trace->step[s], error));
  }
  return LS_OK;
}

static ls_status read_edge(ls_arena *arena, const ls_json_object *json, const char *key,
                           double edge[LS_TRACE_EDGE], int *count, ls_error *error) {
  double *values;
  LS_TRY(ls_json_numbers(arena, json, key, &values, count, error));
  if (*count < 1 || *count > LS_TRACE_EDGE)
    return ls_fail(error, LS_INPUT, "%s: \"%s\" has %d numbers; expected 1 to %d", json->where, key,
                   *count, LS_TRACE_EDGE);
  memcpy(edge, values, sizeof *edge * (size_t)*count);
  return LS_OK;
}

static ls_status read_summary(ls_arena *arena, const ls_json_object *json,
                              ls_trace_summary *summary, ls_error *error) {
  int last;
  LS_TRY(ls_json_number(json, "l2", &summary->l2, error));
  LS_TRY(ls_json_number(json, "sum", &summary->sum, error));
  LS_TRY(read_edge(arena, json, "first4", summary->first, &summary->edge, error));
  LS_TRY(read_edge(arena, json, "last4", summary->last, &last, error));
  if (last == summary->edge) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s: \"first4\" has %d numbers and \"last4\" %d; expected as many", json->where,
                 summary->edge, last);
}

static ls_status read_summaries(ls_arena *arena, const ls_json_object *root, ls_trace *trace,
                                ls_error *error) {
  ls_json_object all;
  LS_TRY(ls_json_child(arena, root, "final_params_f64", &all, error));
  trace->summaries = LS_NEW_ARRAY(arena, ls_trace_summary, json_object_size(all.json));
  const char *name;
  const json_t *value;
  /* jansson's macro casts const away; nothing is changed. */
  json_object_foreach((json_t *)all.json, name, value) {
    ls_trace_summary *summary = &trace->summaries[trace->summary_count++];
    ls_json_object entry;
    summary->name = ls_arena_strdup(arena, name);
    const char *where = ls_arena_printf(arena, "%s: %s", all.where, summary->name);
    LS_TRY(ls_json_root(where, value, &entry, error));
    LS_TRY(read_summary(arena, &entry, summary, error));
  }
  return LS_OK;
}

static ls_status read_noise(ls_arena *arena, const ls_json_object *root, ls_trace *trace,
                            ls_error *error) {
  ls_json_object noise;
  LS_TRY(ls_json_child(arena, root, "reference_noise_f32_vs_f64", &noise, error));
  LS_TRY(ls_json_number(&noise, "logits_max_abs", &trace->noise.logits, error));
  LS_TRY(ls_json_number(&noise, "grads_max_abs", &trace->noise.gradients, error));
  return ls_json_number(&noise, "final_params_max_abs", &trace->noise.parameters, error);
}

/* The folder itself, or the checkpoint that "initial" names: of the data folder, two levels up. */
static ls_status find_model(ls_arena *arena, const ls_json_object *root, ls_trace *trace,
                            ls_error *error) {
  const char *initial;
  if (ls_file_exists(ls_arena_printf(arena, "%s/config.json", trace->folder))) {
    trace->model = trace->folder;
    return LS_OK;
  }
  LS_TRY(ls_json_string_or(root, "initial", "", &initial, error));
  if (initial[0]) {
    trace->model = ls_arena_printf(arena, "%s/../../%s", trace->folder, initial);
    if (ls_file_exists(ls_arena_printf(arena, "%s/config.json", trace->model))) return LS_OK;
  }
  return ls_fail(
      error, LS_INPUT,
      "%s: found no config.json; expected it and model.safetensors there, or \"initial\" "
      "in trace.json to name a checkpoint's folder beside the traces",
      trace->folder);
}

/* The adapters that are trained, and the folder with them as they begin. */
static ls_status read_lora(ls_arena *arena, const ls_json_object *root, ls_trace *trace,
                           ls_error *error) {
  ls_json_object lora;
  ls_adapters *adapters = &trace->adapters;
  const char **targets;
  double dropout;
  LS_TRY(ls_json_child(arena, root, "lora", &lora, error));
  LS_TRY(check_keys(&lora, lora_keys, NULL, error));
  LS_TRY(ls_json_count(&lora, "r", &adapters->rank, error));
  LS_TRY(ls_json_number(&lora, "lora_alpha", &adapters->alpha, error));
  LS_TRY(ls_json_bool_or(&lora, "use_rslora", false, &adapters->rslora, error));
  LS_TRY(ls_json_number_or(&lora, "lora_dropout", 0, &dropout, error));
  LS_TRY(ls_json_strings(arena, &lora, "target_modules", &targets, &adapters->target_count, error));
  for (int t = 0; t < adapters->target_count; t++) targets[t] = ls_arena_strdup(arena, targets[t]);
  adapters->targets = targets;
  trace->adapter_folder = ls_arena_printf(arena, "%s/adapter_initial", trace->folder);
  if (adapters->rank >= 1 && adapters->alpha > 0 && dropout == 0) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s: r %lld, lora_alpha %g, lora_dropout %g; expected the first two above 0, and "
                 "no dropout",
                 lora.where, (long long)adapters->rank, adapters->alpha, dropout);
}

static ls_status read_json(ls_arena *arena, const ls_json_object *root, ls_trace *trace,
                           ls_error *error) {
  const char *source, *kind;
  LS_TRY(ls_json_string_or(root, "source", "", &source, error));
  find_single_parts(trace, source);
  LS_TRY(ls_json_string_or(root, "kind", "", &kind, error));
  const bool adapters = strcmp(kind, "lora") == 0 || strcmp(kind, "qlora") == 0;
  const bool pairs = strcmp(kind, "dpo") == 0 || strcmp(kind, "orpo") == 0;
  const bool each = strcmp(kind, "bert_token_classification") == 0 ||
                    strcmp(kind, "llama_token_classification") == 0;
  const bool pooled = each || strcmp(kind, "bert_classification") == 0;
  const bool classes = pooled || strcmp(kind, "llama_classification") == 0;
  const bool other = strcmp(kind, "adamw8bit") == 0 || strcmp(kind, "muon") == 0;
  const bool taught = strcmp(kind, "distillation") == 0, masked = is_masked(kind);
  const bool texts = is_of_texts(kind), packed = is_packed(kind);
  LS_TRY(check_words(root, other || classes || masked || texts || packed ? kind : "pretraining",
                     adapters, pairs, classes, taught, error));
  LS_TRY(check_keys(root, root_keys,
                    adapters           ? adapter_keys
                    : pairs            ? pair_keys
                    : taught           ? teacher_keys
                    : other            ? optimizer_keys
                    : packed           ? packed_keys
                    : masked || pooled ? mask_keys
                                       : NULL,
                    error));
  trace->optimizer.name = other ? ls_arena_strdup(arena, kind) : "adamw";
  if (adapters) LS_TRY(read_lora(arena, root, trace, error));
  LS_TRY(read_hyper(arena, root, trace,
                    pairs     ? pair_hyper_keys
                    : taught  ? teacher_hyper_keys
                    : other   ? optimizer_hyper_keys
                    : classes ? class_hyper_keys
                    : texts   ? text_hyper_keys
                              : NULL,
                    error));
  if (other) LS_TRY(ls_trace_read_optimizer(arena, root, trace, error));
  LS_TRY(read_steps(arena, root, trace, error));
  LS_TRY(read_noise(arena, root, trace, error));
  LS_TRY(read_summaries(arena, root, trace, error));
  if (pairs) LS_TRY(ls_trace_read_pairs(arena, root, trace, error));
  if (classes) LS_TRY(ls_trace_read_classes(arena, root, pooled, each, trace, error));
  if (texts) LS_TRY(ls_trace_read_texts(arena, root, trace, error));
  if (taught) LS_TRY(ls_trace_read_teacher(arena, root, trace, error));
  if (masked) LS_TRY(ls_trace_read_masked(arena, trace, error));
  if (packed) LS_TRY(ls_trace_read_packed(arena, trace, error));
  return find_model(arena, root, trace, error);
}

static ls_status read_tokens(ls_arena *arena, ls_trace *trace, ls_error *error) {
  const char *path = ls_arena_printf(arena, "%s/tokens.u16le", trace->folder);
  char *data;
  size_t bytes;
  LS_TRY(ls_file_read(arena, path, &data, &bytes, error));
  trace->token_count = trace->steps * trace->rows * trace->sequence + 1;
  if (bytes != 2 * (size_t)trace->token_count)
    return ls_fail(error, LS_INPUT,
                   "%s: found %zu bytes; expected %lld: %lld steps of %lld x %lld tokens and one "
                   "more, of two bytes each",
                   path, bytes, (long long)(2 * trace->token_count), (long long)trace->steps,
                   (long long)trace->rows, (long long)trace->sequence);
  trace->tokens = (const unsigned char *)data;
  return LS_OK;
}

ls_status ls_trace_read_numbers(ls_arena *arena, const ls_trace *trace, const ls_safetensors *file,
                                const char *name, int64_t count, int32_t **numbers,
                                ls_error *error) {
  const ls_stored_tensor *stored = ls_safetensors_find(file, name);
  if (!stored || stored->dtype != LS_I32 || stored->count != count)
    return ls_fail(error, LS_INPUT,
                   "%s/batches.safetensors: expected a tensor %s of %lld int32 numbers",
                   trace->folder, name, (long long)count);
  *numbers = LS_NEW_ARRAY(arena, int32_t, count);
  return ls_stored_tensor_read(stored, 0, count, LS_I32, *numbers, error);
}

ls_status ls_trace_read(ls_arena *arena, const char *folder, ls_trace **trace, ls_error *error) {
  if (!ls_directory_exists(folder))
    return ls_fail(error, LS_INPUT, "%s: found no such folder; expected one with a trace.json",
                   folder);
  ls_trace *made = LS_NEW(arena, ls_trace);
  made->folder = ls_arena_strdup(arena, folder);
  const char *path = ls_arena_printf(arena, "%s/trace.json", folder);
  json_t *json;
  ls_json_object root;
  LS_TRY(ls_json_read(path, 0, &json, error));
  ls_status status = ls_json_root(path, json, &root, error);
  if (status == LS_OK) status = read_json(arena, &root, made, error);
  json_decref(json);
  LS_TRY(status);
  if (made->pairs.beta == 0 && !made->given.ids) LS_TRY(read_tokens(arena, made, error));
  *trace = made;
  return LS_OK;
}
