#include <math.h>
#include <string.h>

#include "model/family.h"

/* Built-in shapes. The published ones have the numbers of their publishers' config.json; the
 * smallest are ours, over bytes. */

typedef struct preset {
  const char *name, *family;
  int64_t vocabulary, width, layers, heads, kv_heads, mlp_width, positions;
  double rope_theta, initializer_range;
  bool tied;
  const char *description;
} preset;

static const preset presets[] = {
    {"llama-3m", "llama", 256, 256, 4, 4, 4, 704, 2048, 1e4, 0.02, true,
     "the quick start's: 3.3 M parameters over bytes"},
    {"llama-8m", "llama", 256, 256, 10, 4, 4, 704, 2048, 1e4, 0.02, true,
     "8.1 M parameters over bytes"},
    {"llama-60m", "llama", 32000, 512, 8, 8, 8, 1376, 2048, 1e4, 0.02, false,
     "58 M parameters, as GaLore's experiments have it"},
    {"gpt2-10m", "gpt2", 8192, 256, 8, 4, 4, 1024, 1024, 0, 0.02, true, "8.7 M parameters"},
    {"gpt2-124m", "gpt2", 50257, 768, 12, 12, 12, 3072, 1024, 0, 0.02, true, "GPT-2 small"},
    {"gpt2-355m", "gpt2", 50257, 1024, 24, 16, 16, 4096, 1024, 0, 0.02, true, "GPT-2 medium"},
    {"gpt2-774m", "gpt2", 50257, 1280, 36, 20, 20, 5120, 1024, 0, 0.02, true, "GPT-2 large"},
    {"gpt2-1.5b", "gpt2", 50257, 1600, 48, 25, 25, 6400, 1024, 0, 0.02, true, "GPT-2 XL"},
    {"smollm2-135m", "llama", 49152, 576, 30, 9, 3, 1536, 8192, 1e5, 0.041666666666666664, true,
     "SmolLM2 135M"},
    {"tinyllama-1.1b", "llama", 32000, 2048, 22, 32, 4, 5632, 2048, 1e4, 0.02, false,
     "TinyLlama 1.1B"},
    {"llama2-7b", "llama", 32000, 4096, 32, 32, 32, 11008, 4096, 1e4, 0.02, false, "Llama 2 7B"},
    {"llama3-8b", "llama", 128256, 4096, 32, 32, 8, 14336, 8192, 5e5, 0.02, false, "Llama 3 8B"},
    {"llama3-70b", "llama", 128256, 8192, 80, 64, 8, 28672, 8192, 5e5, 0.02, false, "Llama 3 70B"},
};
enum { PRESETS = sizeof presets / sizeof *presets };

bool ls_model_preset(const char *name, ls_model_config *config) {
  const preset *found = NULL;
  for (int i = 0; i < PRESETS; i++)
    if (strcmp(presets[i].name, name) == 0) found = &presets[i];
  if (!found) return false;
  const bool gpt2 = strcmp(found->family, "gpt2") == 0;
  *config = (ls_model_config){.family = found->family,
                              .source = found->name,
                              .vocabulary = found->vocabulary,
                              .width = found->width,
                              .layers = found->layers,
                              .heads = found->heads,
                              .kv_heads = found->kv_heads,
                              .head_dim = found->width / found->heads,
                              .mlp_width = found->mlp_width,
                              .positions = found->positions,
                              .epsilon = 1e-5,
                              .initializer_range = found->initializer_range,
                              .activation = gpt2 ? LS_GELU_TANH : LS_SILU,
                              .tied = found->tied,
                              .attention_bias = gpt2,
                              .mlp_bias = gpt2,
                              .rope_theta = found->rope_theta,
                              .dropout_keys = "",
                              .begin_id = -1};
  config->softmax_scale = 1 / sqrt((double)config->head_dim);
  return true;
}

const ls_preset_line *ls_model_presets(ls_arena *arena, int *count) {
  ls_preset_line *lines = LS_NEW_ARRAY(arena, ls_preset_line, PRESETS);
  for (int i = 0; i < PRESETS; i++)
    lines[i] = (ls_preset_line){presets[i].name, presets[i].description};
  *count = PRESETS;
  return lines;
}
