#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/scales.h"
#include "model/family.h"

const char *const ls_model_linears[LS_MODEL_LINEARS] = {
    "attention.query", "attention.key", "attention.value", "attention.output",
    "mlp.gate",        "mlp.up",        "mlp.down"};

ls_tensor_id ls_builder_constant(ls_builder *builder, const char *name, int64_t count) {
  ls_graph *graph = builder->graph;
  const ls_parameter about = {.name = ls_arena_printf(graph->arena, "%s.%s", builder->part, name),
                              .ndim = 1,
                              .dims = {count},
                              .init = LS_INIT_ZEROS,
                              .teacher = builder->teacher,
                              .precision = LS_ACCUMULATE};
  const ls_tensor_id made = ls_graph_parameter(graph, &about);
  graph->parameters.items[graph->parameters.count - 1].trainable = false;
  return made;
}

/* Beside adapters all else is frozen but the modules kept with them, and a teacher is always. */
static bool is_trained(const ls_builder *builder, const ls_parameter *about) {
  if (builder->teacher) return false;
  if (about->adapter || (builder->module & builder->config->lora_modules)) return true;
  return builder->config->lora_rank == 0 && !ls_precision_is_blocks(about->precision);
}

static ls_tensor_id add_parameter(ls_builder *builder, const char *name,
                                  const ls_parameter *about) {
  ls_graph *graph = builder->graph;
  ls_parameter named = *about;
  named.name = ls_arena_printf(graph->arena, "%s.%s", builder->part, name);
  named.teacher = builder->teacher;
  named.module = builder->module;
  const ls_tensor_id made = ls_graph_parameter(graph, &named);
  graph->parameters.items[graph->parameters.count - 1].trainable = is_trained(builder, about);
  return made;
}

ls_tensor_id ls_builder_weight(ls_builder *builder, const char *name, int64_t out, int64_t in,
                               ls_tp_sharding sharding, double deviation) {
  return add_parameter(builder, name,
                       &(ls_parameter){.ndim = 2,
                                       .dims = {out, in},
                                       .sharding = sharding,
                                       .init = LS_INIT_NORMAL,
                                       .deviation = deviation});
}

ls_tensor_id ls_builder_vector(ls_builder *builder, const char *name, int64_t count,
                               ls_tp_sharding sharding, ls_init init) {
  return add_parameter(
      builder, name,
      &(ls_parameter){.ndim = 1, .dims = {count}, .sharding = sharding, .init = init});
}

ls_tensor_id ls_builder_expert_rows(ls_builder *builder, const char *name, int64_t columns,
                                    ls_tp_sharding sharding) {
  return add_parameter(builder, name,
                       &(ls_parameter){.ndim = 2,
                                       .dims = {builder->config->experts, columns},
                                       .sharding = sharding,
                                       .init = LS_INIT_ZEROS});
}

/* What scales of 8 bits of the weight stand for, and the weight with scales in fp32. */
static ls_tensor_id restore_scales(ls_builder *builder, const char *name, ls_tensor_id blocks) {
  ls_graph *graph = builder->graph;
  const int64_t count = ls_tensor_elements(ls_graph_tensor(graph, blocks));
  const ls_tensor_id scales =
      add_parameter(builder, ls_arena_printf(graph->arena, "%s.scales", name),
                    &(ls_parameter){.ndim = 1,
                                    .dims = {ls_scales_nested(count)},
                                    .sharding = LS_TP_REPLICATED,
                                    .init = LS_INIT_ZEROS,
                                    .precision = LS_SCALES});
  graph->parameters.items[graph->parameters.count - 1].trainable = false;
  return ls_graph_restore_scales(graph, blocks, scales);
}

ls_tensor_id ls_builder_product_weight(ls_builder *builder, const char *name, int64_t out,
                                       int64_t in, ls_tp_sharding sharding, double deviation) {
  const ls_precision precision = builder->config->blocks;
  if (!ls_precision_is_blocks(precision))
    return ls_builder_weight(builder, name, out, in, sharding, deviation);
  LS_ASSERT(in % ls_precision_numbers(precision) == 0);
  const ls_tensor_id blocks =
      add_parameter(builder, name,
                    &(ls_parameter){.ndim = 2,
                                    .dims = {out, in / ls_precision_numbers(precision)},
                                    .sharding = sharding,
                                    .init = LS_INIT_NORMAL,
                                    .deviation = deviation,
                                    .precision = precision});
  return ls_precision_is_double(precision) ? restore_scales(builder, name, blocks) : blocks;
}

int ls_model_linear_find(const char *parameter, int64_t *layer) {
  static const char layers[] = "layers.", weight[] = ".weight";
  char *end;
  if (strncmp(parameter, layers, sizeof layers - 1) != 0) return -1;
  const char *number = parameter + sizeof layers - 1;
  *layer = strtoll(number, &end, 10);
  if (end == number || *end != '.') return -1;
  for (int l = 0; l < LS_MODEL_LINEARS; l++) {
    const size_t length = strlen(ls_model_linears[l]);
    if (strncmp(end + 1, ls_model_linears[l], length) == 0 && strcmp(end + 1 + length, weight) == 0)
      return l;
  }
  return -1;
}

ls_lora_size ls_model_lora_size(const ls_model_config *config, int64_t layer, int linear) {
  if (config->lora_sizes) return config->lora_sizes[layer * LS_MODEL_LINEARS + linear];
  return (ls_lora_size){config->lora_rank, config->lora_alpha};
}

double ls_model_lora_scale(const ls_model_config *config, ls_lora_size size) {
  const double rank = (double)size.rank;
  return size.alpha / (config->lora_rslora ? sqrt(rank) : rank);
}

/* A matrix of an adapter. The first is drawn as PEFT draws it (Kaiming's uniform of a = sqrt(5)),
 * the second is zero, so that training begins where the weights are. */
static ls_tensor_id adapter(ls_builder *builder, const char *name, int64_t out, int64_t in,
                            ls_tp_sharding sharding, ls_init init) {
  return add_parameter(builder, name,
                       &(ls_parameter){.ndim = 2,
                                       .dims = {out, in},
                                       .sharding = sharding,
                                       .init = init,
                                       .deviation = 1 / sqrt((double)in),
                                       .adapter = true});
}

/* The product that is called so, of ls_model_linears, where it has adapters; else -1. */
static int find_adapted(const ls_builder *builder, const char *name) {
  for (int l = 0; l < LS_MODEL_LINEARS; l++)
    if (strcmp(ls_model_linears[l], name) == 0)
      return builder->config->lora_targets >> l & 1 ? l : -1;
  return -1;
}

/* The first adapter, of what the product is given: scale A x. */
static ls_tensor_id adapt_down(ls_builder *builder, ls_tensor_id x, const char *name,
                               ls_lora_size size, ls_tp_sharding sharding) {
  ls_graph *graph = builder->graph;
  const double scale = ls_model_lora_scale(builder->config, size);
  const ls_tensor_id a =
      adapter(builder, ls_arena_printf(graph->arena, "%s.lora_A.weight", name), size.rank,
              ls_graph_tensor(graph, x)->dims[1], sharding, LS_INIT_UNIFORM);
  const ls_tensor_id low =
      ls_graph_linear(graph, ls_graph_dropout(graph, x, builder->dropout.adapter), a);
  return scale != 1 ? ls_graph_scale(graph, low, scale) : low;
}

/* y, of the product of x and the weight `name`, plus scale B (A x). Of the two adapters one is cut
 * as the weight is and the other whole, so that y and what is added are partial together. */
static ls_tensor_id adapt(ls_builder *builder, ls_tensor_id x, ls_tensor_id y, const char *name,
                          int linear, ls_tp_sharding sharding, bool sums) {
  ls_graph *graph = builder->graph;
  const ls_model_config *config = builder->config;
  const ls_lora_size size = ls_model_lora_size(config, builder->layer, linear);
  if (!(config->lora_fused >> linear & 1))
    builder->low = adapt_down(builder, x, name, size, sums ? sharding : LS_TP_REPLICATED);
  const ls_tensor_id b = adapter(builder, ls_arena_printf(graph->arena, "%s.lora_B.weight", name),
                                 ls_graph_tensor(graph, y)->dims[1], size.rank,
                                 sums ? LS_TP_REPLICATED : sharding, LS_INIT_ZEROS);
  return ls_graph_add(graph, y, ls_graph_linear(graph, builder->low, b));
}

/* Products of layers are in fp8, and not what stands before the head. */
static bool rounds(const ls_builder *builder) {
  return builder->config->fp8 && builder->graph->segments.items[builder->graph->segment].layer >= 0;
}

ls_tensor_id ls_builder_project(ls_builder *builder, ls_tensor_id x, const char *name, int64_t out,
                                ls_tp_sharding sharding, bool bias, double deviation) {
  ls_graph *graph = builder->graph;
  const bool sums = sharding == LS_TP_ROW || sharding == LS_TP_HEADS_IN;
  const int64_t in = ls_graph_tensor(graph, x)->dims[1];
  const char *weight_name = ls_arena_printf(graph->arena, "%s.weight", name);
  const char *bias_name = ls_arena_printf(graph->arena, "%s.bias", name);
  ls_tensor_id weight =
      ls_builder_product_weight(builder, weight_name, out, in, sharding, deviation);
  ls_tensor_id y =
      rounds(builder) ? ls_graph_fp8_linear(graph, x, weight) : ls_graph_linear(graph, x, weight);
  const int linear = find_adapted(builder, name);
  if (linear >= 0) y = adapt(builder, x, y, name, linear, sharding, sums);
  if (!bias) return y;
  return ls_graph_bias(graph, y,
                       ls_builder_vector(builder, bias_name, out,
                                         sums ? LS_TP_REPLICATED : sharding, LS_INIT_ZEROS));
}

int64_t ls_build_sequence_rows(const ls_build_options *options) {
  const int64_t ranks = options->turns > 1 ? options->turns : 1;
  return (options->cache_rows + ranks - 1) / ranks * ranks;
}

/* Those of all sequences, one after another. */
static int64_t all_cache_rows(const ls_build_options *options) {
  return ls_build_sequence_rows(options) * (options->sequences > 1 ? options->sequences : 1);
}

ls_tensor_id ls_builder_attend(ls_builder *builder, ls_tensor_id q, ls_tensor_id k,
                               ls_tensor_id v) {
  ls_graph *graph = builder->graph;
  const ls_model_config *config = builder->config;
  const bool local = ls_builder_layer_has(builder, LS_LAYER_WINDOW);
  const bool alibi = builder->family->decoder.alibi;
  ls_attributes attributes = {.sequence = builder->options->sequence,
                              .head_dim = config->head_dim,
                              .kv_heads = config->kv_heads,
                              .heads = alibi ? config->heads : 0,
                              .window = local ? config->window : 0,
                              .two_way = builder->family->decoder.two_way,
                              .softmax_scale = config->softmax_scale,
                              .softcap = config->softcap,
                              .dropout = builder->dropout.attention,
                              .alibi = alibi};
  ls_tensor_id sinks = {-1};
  if (builder->family->decoder.sinks)
    sinks = add_parameter(builder, "attention.sinks",
                          &(ls_parameter){.ndim = 1,
                                          .dims = {config->heads},
                                          .init = LS_INIT_NORMAL,
                                          .deviation = config->initializer_range});
  if (builder->options->mode != LS_MODEL_DECODE) {
    const bool told = graph->places.index >= 0 || builder->options->documents;
    return ls_graph_sink_attention(graph, q, k, v, sinks,
                                   told ? graph->positions : (ls_tensor_id){-1}, graph->places,
                                   &attributes);
  }
  const int64_t rows = graph->cache_rows, columns = config->kv_heads * config->head_dim;
  ls_tensor_id caches[2];
  attributes.turns = builder->options->turns;
  static const char *const names[2] = {"key", "value"};
  for (int i = 0; i < 2; i++) {
    const char *name = ls_arena_printf(graph->arena, "%s.cache.%s", builder->part, names[i]);
    caches[i] = i && v.index == k.index ? caches[0] : ls_graph_state(graph, name, rows, columns);
  }
  return ls_graph_cached_attention(graph, q, k, v, sinks, caches[0], caches[1], graph->positions,
                                   graph->places, &attributes);
}

static ls_tensor_id on_stream(ls_graph *graph, ls_tensor_id x, double dropout) {
  return ls_graph_stream(graph, ls_graph_dropout(graph, ls_graph_stream(graph, x), dropout));
}

ls_tensor_id ls_builder_embedded(ls_builder *builder, ls_tensor_id x) {
  return on_stream(builder->graph, x, builder->dropout.embedding);
}

ls_tensor_id ls_builder_branch(ls_builder *builder, ls_tensor_id y) {
  return on_stream(builder->graph, y, builder->dropout.hidden);
}

static ls_status check_options(const ls_model_config *config, const ls_build_options *options,
                               ls_error *error) {
  const bool decode = options->mode == LS_MODEL_DECODE;
  const bool pairs = !decode && options->pairs.beta > 0;
  const int64_t longest = decode  ? options->cache_rows
                          : pairs ? (options->sequence + 1) / 2
                                  : options->sequence;
  if (decode && config->classes)
    return ls_fail(error, LS_INPUT,
                   "%s: has a head over %lld classes, and writes no text; expected a model whose "
                   "head is of tokens (lockstep evaluate tells how well it classifies)",
                   config->source, (long long)config->classes);
  if (decode && config->vectors)
    return ls_fail(error, LS_INPUT,
                   "%s: makes embeddings and writes no text; expected a model with a head",
                   config->source);
  if (longest < 1 || options->tokens < 1 || (decode && options->tokens > all_cache_rows(options)))
    return ls_fail(error, LS_INPUT,
                   "%s: %lld tokens in sequences of %lld; expected at least one of each",
                   config->source, (long long)options->tokens, (long long)longest);
  if (!decode && options->tokens % options->sequence != 0)
    return ls_fail(error, LS_INPUT,
                   "%s: %lld tokens are not whole sequences of %lld; use a multiple of it",
                   config->source, (long long)options->tokens, (long long)options->sequence);
  const int64_t group = decode ? 0 : options->texts.group;
  if (group > 0 && options->tokens / options->sequence % group != 0)
    return ls_fail(error, LS_INPUT,
                   "%s: %lld sequences at a time, over all ranks, are not whole groups of %lld "
                   "(embed.group), among whose texts each finds its answer; use a multiple",
                   config->source, (long long)(options->tokens / options->sequence),
                   (long long)group);
  if (decode && ls_model_is_encoder(config))
    return ls_fail(error, LS_INPUT,
                   "%s: %s is an encoder, whose tokens see those behind them: it predicts masked "
                   "tokens and continues no text; use a decoder",
                   config->source, config->family);
  if (options->turns > 0 && ls_model_is_encoder(config))
    return ls_fail(error, LS_INPUT,
                   "%s: context=ring with %s, whose tokens see those behind them: use "
                   "context=gather or ulysses",
                   config->source, config->family);
  if (options->mode == LS_MODEL_TRAIN && options->turns > 0 && config->dropout.attention > 0)
    return ls_fail(error, LS_INPUT,
                   "%s: dropout of attention with context: ring, whose blocks have no masks: use "
                   "context=gather or ulysses, or dropout=0",
                   config->source);
  /* Dynamic scaling is there to go beyond them. */
  const bool dynamic = config->rope_scaling == LS_ROPE_DYNAMIC;
  const int64_t positions =
      dynamic ? (int64_t)((double)config->positions * config->rope_factor) : config->positions;
  if (longest > positions && pairs)
    return ls_fail(
        error, LS_INPUT,
        "%s: two answers in %lld tokens, but the model is made for at most %lld in each; "
        "use seq_len %lld or less",
        config->source, (long long)options->sequence, (long long)positions,
        (long long)(2 * positions));
  if (longest > positions)
    return ls_fail(error, LS_INPUT,
                   "%s: sequences of %lld tokens, but the model is made for at most %lld; use "
                   "seq_len %lld or less",
                   config->source, (long long)longest, (long long)positions, (long long)positions);
  return LS_OK;
}

/* Parameters are called by the segment they are of; a teacher's by that of a model of its own. */
static void name_parts(ls_builder *builder, const char *part) {
  builder->part =
      ls_arena_printf(builder->graph->arena, "%s%s", builder->teacher ? "teacher." : "", part);
}

static ls_tensor_id embed(ls_builder *builder) {
  const ls_family *family = builder->family;
  name_parts(builder, "embedding");
  return (family->embed ? family->embed : ls_decoder_embed)(builder);
}

static ls_tensor_id block(ls_builder *builder, ls_tensor_id x) {
  const ls_family *family = builder->family;
  name_parts(builder, ls_arena_printf(builder->graph->arena, "layers.%d", builder->layer));
  return (family->block ? family->block : ls_decoder_block)(builder, x);
}

static ls_tensor_id final_norm(ls_builder *builder, ls_tensor_id x) {
  const ls_family *family = builder->family;
  name_parts(builder, "head");
  x = (family->final_norm ? family->final_norm : ls_decoder_final_norm)(builder, x);
  return builder->config->classes ? ls_builder_pooled(builder, x) : x;
}

/* Of the normed stream. */
static ls_tensor_id logits_of(ls_builder *builder, ls_tensor_id x) {
  const ls_model_config *config = builder->config;
  if (config->classes) return ls_builder_classes(builder, x);
  ls_tensor_id weight = builder->table;
  if (!config->tied)
    weight = ls_builder_weight(builder, "weight", config->vocabulary, config->width,
                               LS_TP_VOCABULARY, config->initializer_range);
  ls_tensor_id bias = {-1};
  if (builder->family->decoder.head_bias)
    bias = ls_builder_vector(builder, "bias", config->vocabulary, LS_TP_VOCABULARY, LS_INIT_ZEROS);
  if (builder->options->headless) return (ls_tensor_id){-1}; /* its parameters have their places */
  ls_tensor_id logits = ls_graph_linear(builder->graph, x, weight);
  if (bias.index >= 0) logits = ls_graph_bias(builder->graph, logits, bias);
  return config->logit_cap > 0 ? ls_graph_softcap(builder->graph, logits, config->logit_cap)
                               : logits;
}

static void make_inputs(ls_graph *graph, const ls_builder *builder) {
  const ls_build_options *options = builder->options;
  const ls_dropout *dropout = &builder->dropout;
  graph->ids = ls_graph_input(graph, "ids", options->tokens);
  if (options->mode != LS_MODEL_DECODE)
    graph->labels = ls_graph_input(graph, "labels", options->tokens);
  graph->positions = ls_graph_input(graph, "positions", options->tokens);
  /* A mask goes by tokens' places, as attention is told them. */
  const bool several =
      options->sequences > 1 || options->turns > 1 || builder->family->decoder.sinks;
  const bool placed =
      options->mode == LS_MODEL_DECODE ? several : options->places || dropout->attention > 0;
  if (placed) graph->places = ls_graph_input(graph, "places", options->tokens);
  if (placed && builder->family->decoder.two_way)
    graph->remaining = ls_graph_input(graph, "remaining", options->tokens);
  if (builder->config->types > 0) graph->types = ls_graph_input(graph, "types", options->tokens);
  if (dropout->embedding > 0 || dropout->hidden > 0 || dropout->attention > 0 ||
      dropout->adapter > 0 || dropout->head > 0)
    graph->draws = ls_graph_input(graph, "draws", options->tokens);
}

/* A teacher's layers that go with one of the model's: as many with each, as far as they go. Where
 * there are none its stream passes through, so that it goes from stage to stage as the model's. */
static ls_tensor_id teach(ls_builder *teacher, ls_tensor_id x, int layer, int64_t layers) {
  const int64_t own = teacher->config->layers;
  const int end = (int)((layer + 1) * own / layers);
  const int first = (int)(layer * own / layers);
  for (teacher->layer = first; teacher->layer < end; teacher->layer++) x = block(teacher, x);
  if (first < end) return x;
  return ls_graph_stream(teacher->graph, ls_graph_scale(teacher->graph, x, 1));
}

static void make_loss(ls_graph *graph, const ls_model_config *config,
                      const ls_build_options *options, ls_tensor_id logits, ls_tensor_id taught) {
  if (options->mode == LS_MODEL_DECODE)
    graph->logits = logits;
  else if (options->pairs.odds)
    ls_graph_odds(graph, logits, options->pairs.beta);
  else if (options->pairs.beta > 0)
    ls_graph_preferences(graph, logits, options->pairs.beta, options->pairs.smoothing);
  else if (taught.index >= 0)
    ls_graph_distillation(graph, logits, taught, options->teacher.temperature,
                          options->teacher.share);
  else if (options->teacher.top > 0)
    ls_graph_distillation_of_top(graph, logits, options->teacher.top, options->teacher.temperature,
                                 options->teacher.share);
  else if (config->several)
    ls_graph_binary_cross_entropy(graph, logits, options->weighted);
  else if (options->weighted)
    ls_graph_weighted_cross_entropy(graph, logits);
  else
    ls_graph_cross_entropy(graph, logits);
}

static ls_builder make_builder(ls_graph *graph, const ls_model_config *config,
                               const ls_build_options *options) {
  return (ls_builder){.graph = graph,
                      .config = config,
                      .options = options,
                      .family = ls_family_find(config->family),
                      .rope = {-1},
                      .loads = {-1},
                      .local_rope = {-1}};
}

/* `teacher_config` is NULL where there is none. Both models' norms come before both products, so
 * that logits can be made in slices. */
static ls_graph *build(ls_arena *arena, const ls_model_config *config,
                       const ls_model_config *teacher_config, const ls_build_options *options) {
  ls_graph *graph = ls_graph_create(arena);
  ls_builder builder = make_builder(graph, config, options), teacher = {0};
  const bool taught = teacher_config != NULL;
  if (options->mode == LS_MODEL_TRAIN) builder.dropout = config->dropout;
  if (config->lora_rank == 0) builder.dropout.adapter = 0;
  if (!config->classes) builder.dropout.head = 0;
  graph->tokens = options->tokens;
  graph->turns = options->turns;
  graph->cache_rows = options->mode == LS_MODEL_DECODE ? all_cache_rows(options) : 0;
  graph->sequence = options->mode == LS_MODEL_DECODE ? options->tokens : options->sequence;
  graph->heads = config->heads;
  /* Decoding keeps of latent attention the latents, which all heads share. */
  graph->kv_heads = config->latent && options->mode == LS_MODEL_DECODE ? 1 : config->kv_heads;
  graph->head_dim = config->head_dim;
  graph->vocabulary = config->classes ? config->classes : config->vocabulary;
  graph->experts = config->experts;
  ls_graph_segment(graph, "embedding");
  make_inputs(graph, &builder);
  ls_tensor_id x = embed(&builder), y = {-1};
  if (taught) {
    teacher = make_builder(graph, teacher_config, options);
    teacher.teacher = true;
    graph->teacher =
        (ls_head_counts){teacher_config->kv_heads, teacher_config->heads, teacher_config->experts};
    y = embed(&teacher);
  }
  for (int layer = builder.layer = 0; layer < config->layers; layer = ++builder.layer) {
    ls_graph_layer(graph, layer);
    x = block(&builder, x);
    if (taught) y = teach(&teacher, y, layer, config->layers);
  }
  ls_graph_segment(graph, "head");
  x = final_norm(&builder, x);
  if (config->vectors) {
    LS_ASSERT(!taught);
    ls_builder_balance(&builder);
    if (options->texts.pairs > 0) ls_graph_tell_texts(graph, x, &options->texts);
    return graph;
  }
  if (taught) y = logits_of(&teacher, final_norm(&teacher, y));
  ls_tensor_id logits = logits_of(&builder, x);
  ls_builder_balance(&builder);
  make_loss(graph, config, options, logits, y);
  return graph;
}

/* As it is looked at: nothing of it is dropped, balanced or adapted. */
static ls_model_config teacher_of(const ls_model_config *config) {
  ls_model_config made = *config;
  made.dropout = (ls_dropout){0};
  made.balance = (ls_balance){0};
  return made;
}

ls_status ls_model_build(ls_arena *arena, const ls_model_config *config,
                         const ls_build_options *options, ls_graph **graph, ls_error *error) {
  const ls_model_config *asked = options->teacher.config;
  LS_ASSERT(ls_family_find(config->family));
  LS_TRY(check_options(config, options, error));
  if (!asked) {
    *graph = build(arena, config, NULL, options);
    return LS_OK;
  }
  const ls_model_config teacher = teacher_of(asked);
  LS_ASSERT(ls_family_find(asked->family) && asked->lora_rank == 0);
  if (asked->vocabulary != config->vocabulary)
    return ls_fail(error, LS_INPUT,
                   "%s: a vocabulary of %lld; expected the %lld of %s, whose logits are compared "
                   "with its own one by one",
                   asked->source, (long long)asked->vocabulary, (long long)config->vocabulary,
                   config->source);
  LS_TRY(check_options(&teacher, options, error));
  *graph = build(arena, config, &teacher, options);
  return LS_OK;
}

int64_t ls_model_parameters(const ls_model_config *config) {
  ls_arena *arena = ls_arena_create();
  const ls_build_options one = {.tokens = 1, .sequence = 1};
  const ls_graph *graph = build(arena, config, NULL, &one);
  int64_t total = 0;
  for (int i = 0; i < graph->parameters.count; i++) {
    const ls_parameter_record *record = &graph->parameters.items[i];
    if (record->about.precision == LS_SCALES) continue; /* of what is counted */
    total += ls_tensor_elements(ls_graph_tensor(graph, record->tensor)) *
             ls_precision_numbers(record->about.precision);
  }
  ls_arena_destroy(&arena);
  return total;
}
