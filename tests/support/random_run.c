#include "support/random_run.h"

#include <math.h>
#include <string.h>

#include "base/random.h"
#include "pipeline/pipeline.h"

typedef struct dice {
  uint64_t seed, stream, thrown;
} dice;

/* 0 .. sides - 1. */
static int64_t throw(dice * of, int64_t sides) {
  return (int64_t)(ls_random_bits(of->seed, of->stream, of->thrown++) % (uint64_t)sides);
}

/* From low to high; one time in three low itself, as most people leave most things alone. */
static int64_t between(dice *of, int64_t low, int64_t high) {
  return throw(of, 3) ? low + throw(of, high - low + 1) : low;
}

static bool fits(int64_t heads, int64_t kv_heads, int64_t tp) {
  return heads % tp == 0 && (kv_heads % tp == 0 || tp % kv_heads == 0);
}

/* Layers with a window and without, or turned and not, in any order. */
static const uint8_t *random_kinds(ls_arena *arena, dice *of, const ls_model_config *config,
                                   int kind) {
  uint8_t *kinds = LS_NEW_ARRAY(arena, uint8_t, config->layers);
  for (int64_t l = 0; l < config->layers; l++) kinds[l] = (uint8_t)(throw(of, 2) * kind);
  return kinds;
}

/* Another family of Llama's kind, with what is its own drawn at random. */
static void choose_family(ls_arena *arena, dice *of, ls_model_config *config) {
  static const char *const names[] = {"mistral", "qwen2",   "qwen3", "gemma2", "gemma3_text", "phi",
                                      "olmo2",   "smollm3", "bloom", "falcon", "starcoder2"};
  const char *family = config->family = names[throw(of, 11)];
  const bool gemma = strncmp(family, "gemma", 5) == 0;
  const bool plain = strcmp(family, "phi") == 0 || strcmp(family, "bloom") == 0 ||
                     strcmp(family, "falcon") == 0 || strcmp(family, "starcoder2") == 0;
  if (gemma || plain) config->activation = LS_GELU_TANH;
  if (plain && throw(of, 2)) config->activation = LS_GELU_ERF;
  if (gemma || strcmp(family, "mistral") == 0 || strcmp(family, "qwen2") == 0)
    config->window = 1 + throw(of, 24);
  if (gemma || strcmp(family, "qwen2") == 0)
    config->layer_kinds = random_kinds(arena, of, config, LS_LAYER_WINDOW);
  if (strcmp(family, "smollm3") == 0)
    config->layer_kinds = random_kinds(arena, of, config, LS_LAYER_NO_ROPE);
  if (gemma) {
    config->softcap = throw(of, 2) ? 2 : 0;
    config->logit_cap = throw(of, 2) ? 3 : 0;
    config->embedding_scale = sqrt((double)config->width);
  }
  if (strcmp(family, "gemma3_text") == 0) config->rope_local_theta = 10;
  if (strcmp(family, "phi") == 0 || strcmp(family, "falcon") == 0) {
    config->parallel = true;
    config->shared_norm = throw(of, 2);
    config->rotary_dim = config->head_dim > 2 && throw(of, 2) ? 2 : 0;
  }
}

static ls_model_config random_config(ls_arena *arena, dice *of) {
  const bool gpt2 = throw(of, 3) == 0;
  ls_model_config config = {.family = gpt2 ? "gpt2" : "llama",
                            .source = "a random model",
                            .vocabulary = 5 + throw(of, 600),
                            .layers = 1 + throw(of, 24),
                            .kv_heads = 1 + throw(of, 12),
                            .head_dim = 2 * (1 + throw(of, 8)),
                            .mlp_width = 3 + throw(of, 120),
                            .epsilon = 1e-5,
                            .initializer_range = 0.02,
                            .activation = gpt2 ? LS_GELU_TANH : LS_SILU,
                            .tied = throw(of, 2) == 0,
                            .rope_theta = 1e4,
                            .begin_id = -1};
  config.heads = gpt2 ? config.kv_heads : config.kv_heads * (1 + throw(of, 4));
  if (config.heads * config.head_dim < 8) config.head_dim = 8;
  config.width = config.heads * config.head_dim;
  if (!gpt2 && throw(of, 4) == 0) config.width += throw(of, 2) ? 8 : 1 - config.width / 2;
  config.attention_bias = gpt2 || throw(of, 3) == 0;
  config.mlp_bias = gpt2 || throw(of, 3) == 0;
  config.softmax_scale = 1 / sqrt((double)config.head_dim);
  if (!gpt2 && throw(of, 2)) choose_family(arena, of, &config);
  return config;
}

/* Every chunk of the chain some layers, the first and the last perhaps none. */
static const char *random_stages(ls_arena *arena, dice *of, int64_t layers, int64_t chunks) {
  const char *text = NULL;
  int64_t next = 0;
  for (int64_t c = 0; c < chunks; c++) {
    const int64_t behind = chunks - 1 - c, left = layers - next - behind;
    int64_t count = behind ? 1 + (left > 1 ? throw(of, left < 4 ? left : 4) : 0) : layers - next;
    if (c == 0 && behind && throw(of, 4) == 0) count = 0;
    const char *item = "none";
    if (count == 1) item = ls_arena_printf(arena, "%lld", (long long)next);
    if (count > 1)
      item = ls_arena_printf(arena, "%lld-%lld", (long long)next, (long long)(next + count - 1));
    text = text ? ls_arena_printf(arena, "%s, %s", text, item) : item;
    next += count;
  }
  return text;
}

static void choose_pipeline(ls_arena *arena, dice *of, const ls_model_config *config,
                            ls_layout *layout) {
  const ls_pipeline_kind *kind = &ls_pipeline_kinds[throw(of, ls_pipeline_kind_count)];
  layout->pp = (int)between(of, 1, 8);
  layout->schedule = kind->name;
  int chunks = kind->usual_chunks;
  if (!kind->most_chunks && throw(of, 2)) layout->chunks = chunks = 1 + (int) throw(of, 4);
  while (layout->pp > 1 && layout->pp * chunks > config->layers + 2) layout->pp--;
  layout->microbatches = (int)between(of, 1, 3 * layout->pp + 2);
  const int fewest = kind->fewest_microbatches(layout->pp);
  if (layout->microbatches < fewest) layout->microbatches = fewest;
  const int chain = layout->pp * chunks;
  if (throw(of, 5) == 0 && chain <= config->layers)
    layout->stages = random_stages(arena, of, config->layers, chain);
}

static void choose_mesh(dice *of, const ls_model_config *config, ls_layout *layout) {
  layout->dp_replicate = (int)between(of, 1, 4);
  layout->dp_shard = (int)between(of, 1, 6);
  layout->tp = (int)between(of, 1, config->heads);
  while (!fits(config->heads, config->kv_heads, layout->tp)) layout->tp--;
  layout->sequence_parallel = layout->tp > 1 && throw(of, 2);
  layout->zero = (int) throw(of, LS_DATA_STRATEGY_COUNT);
  layout->gather = (ls_when) throw(of, 3);
  layout->reduce = (ls_when) throw(of, 3);
}

static void choose_rest(dice *of, const ls_model_config *config, ls_layout *layout) {
  static const ls_op_set recomputed[] = {{{false}},
                                         LS_EVERY_OP,
                                         {.has = {[LS_OP_ATTENTION] = true}},
                                         {.has = {[LS_OP_RMSNORM] = true, [LS_OP_SWIGLU] = true}}};
  layout->layers_per_unit = (int)between(of, 1, config->layers + 1);
  layout->recompute = recomputed[throw(of, 4)];
  layout->recompute_layers = (int)between(of, 1, config->layers + 1);
  layout->optimizer.kind = throw(of, 3) ? LS_OPTIMIZER_ADAMW : LS_OPTIMIZER_SGD;
  layout->optimizer.momentum = throw(of, 2) ? 0.9 : 0;
  layout->optimizer.clip = throw(of, 3) ? 1 : 0;
}

ls_test_run ls_test_random_run(ls_arena *arena, uint64_t seed, uint64_t number) {
  dice of = {.seed = seed, .stream = number};
  ls_test_run run = {.config = random_config(arena, &of), .layout = ls_layout_default()};
  choose_pipeline(arena, &of, &run.config, &run.layout);
  choose_mesh(&of, &run.config, &run.layout);
  choose_rest(&of, &run.config, &run.layout);
  const int64_t sequences = between(&of, 1, 4);
  run.batch = sequences * run.layout.microbatches * run.layout.dp_replicate * run.layout.dp_shard;
  run.sequence = 1 + throw(&of, 40);
  run.config.positions = run.sequence + between(&of, 0, 8);
  if (throw(&of, 2)) run.layout.logits_rows = 1 + throw(&of, sequences * run.sequence);
  run.layout.prefetch = (int)between(&of, 0, 3);
  return run;
}

const char *ls_test_run_print(ls_arena *arena, const ls_test_run *run) {
  const ls_model_config *config = &run->config;
  const ls_layout *layout = &run->layout;
  int again = 0;
  for (int k = 0; k < LS_OP_COUNT; k++) again += layout->recompute.has[k];
  return ls_arena_printf(
      arena,
      "%s L=%lld H=%lld KV=%lld D=%lld C=%lld F=%lld V=%lld%s, %s%s, chunks %d, stages %s, %d "
      "microbatches, wrap %d, recompute %d ops by %d, B=%lld T=%lld of %lld, logits by %lld, "
      "prefetch %d",
      config->family, (long long)config->layers, (long long)config->heads,
      (long long)config->kv_heads, (long long)config->head_dim, (long long)config->width,
      (long long)config->mlp_width, (long long)config->vocabulary, config->tied ? " tied" : "",
      ls_layout_print(arena, layout), layout->sequence_parallel ? " sp" : "", layout->chunks,
      layout->stages ? layout->stages : "auto", layout->microbatches, layout->layers_per_unit,
      again, layout->recompute_layers, (long long)run->batch, (long long)run->sequence,
      (long long)config->positions, (long long)layout->logits_rows, layout->prefetch);
}
