/* What a model is: its shape, read from a Hugging Face config.json or taken from a preset, and the
 * graph it becomes. Knows nothing of devices, files of weights or how the work is laid out.
 *
 *   ls_model_config config;
 *   LS_TRY(ls_model_find(arena, "llama-3m", &config, error));
 *   ls_graph *graph;
 *   LS_TRY(ls_model_build(arena, &config,
 *                         &(ls_build_options){.tokens = 4 * 256, .sequence = 256}, &graph, error));
 *   ls_graph_backward(graph);
 *
 * A key of config.json that changes the mathematics is applied or refused by name, never ignored.
 * To add a family: one file like qwen3.c with its row, that row in the table of family.c, and the
 * names of its tensors in store/names.c. Thread-safe: no state. */
#ifndef LS_MODEL_MODEL_H
#define LS_MODEL_MODEL_H

#include "base/arena.h"
#include "graph/graph.h"

enum { LS_MAX_END_IDS = 8 };

/* HF's rope_type: "default" and the others by name. */
typedef enum ls_rope_scaling {
  LS_ROPE_PLAIN = 0,
  LS_ROPE_LINEAR,
  LS_ROPE_DYNAMIC,
  LS_ROPE_YARN,
  LS_ROPE_LONGROPE,
  LS_ROPE_LLAMA3,
} ls_rope_scaling;

/* What a layer does otherwise than the family's plain one: bits of ls_model_config.layer_kinds. */
enum { LS_LAYER_WINDOW = 1, LS_LAYER_NO_ROPE = 2 };

/* Lists are of the arena that the configuration was read into; they are NULL where a family has
 * none. Fields that a family has no use for are 0. */
typedef struct ls_model_config {
  const char *family; /* HF's model_type: "gpt2", "llama", "qwen3" ... */
  const char *source; /* the file it was read from, or the preset's name: for messages */
  const char *text;   /* of config.json as read; NULL for a preset */
  int64_t vocabulary, width, layers, heads, kv_heads, head_dim, mlp_width, positions;
  double epsilon; /* of the norms */
  double initializer_range;
  double softmax_scale; /* of the attention scores */
  ls_activation activation;
  bool tied; /* the head is the token embedding */
  bool attention_bias, mlp_bias;
  bool parallel;          /* attention and MLP read the same stream, and are added to it together */
  bool shared_norm;       /* parallel: both read one norm */
  int64_t window;         /* keys that a query sees, in layers that have LS_LAYER_WINDOW; 0: all */
  double softcap;         /* of the attention scores; 0: none */
  double logit_cap;       /* of the logits; 0: none */
  double embedding_scale; /* 0: none */
  const uint8_t *layer_kinds; /* by layer; NULL: every layer has the window, if there is one */
  int64_t rotary_dim;         /* columns of a head that are turned; 0: all */
  double rope_theta;
  double rope_local_theta; /* of layers with the window, which have no scaling then; 0: the same */
  ls_rope_scaling rope_scaling;
  double rope_factor, rope_low_freq_factor, rope_high_freq_factor, rope_original_positions;
  double rope_beta_fast, rope_beta_slow; /* yarn */
  bool rope_exact_range;                 /* yarn: its two limits are not rounded to pairs */
  double rope_attention_factor;          /* yarn, longrope: of cosines and sines */
  const double *rope_short, *rope_long;  /* longrope: by pair of columns */
  double dropout;           /* the largest rate the file asks for; nothing here applies it, so a */
  const char *dropout_keys; /* caller refuses what is not 0: "attn_pdrop 0.1, embd_pdrop 0.1" */
  int64_t begin_id;         /* bos; -1: none */
  int64_t end_ids[LS_MAX_END_IDS];
  int end_count;
} ls_model_config;

/* Reads config.json at `path` (the file, or a folder that holds it). */
LS_CHECKED ls_status ls_model_config_read(ls_arena *arena, const char *path,
                                          ls_model_config *config, ls_error *error);

/* The same from text in memory; `name` stands for the file in errors. For tests and fuzzing. */
LS_CHECKED ls_status ls_model_config_parse(ls_arena *arena, const char *name, const char *text,
                                           size_t bytes, ls_model_config *config, ls_error *error);

/* The preset called `name`; false where there is none. */
bool ls_model_preset(const char *name, ls_model_config *config);

/* Names of the presets with a line of description each; *count of them. */
typedef struct ls_preset_line {
  const char *name, *description;
} ls_preset_line;
const ls_preset_line *ls_model_presets(ls_arena *arena, int *count);

/* A preset's name, a config.json or a folder with one. An error lists the presets. */
LS_CHECKED ls_status ls_model_find(ls_arena *arena, const char *model, ls_model_config *config,
                                   ls_error *error);

/* The text of a config.json for a checkpoint whose tensors are of type `dtype`: as it was read, but
 * for torch_dtype; for a preset written from the configuration. */
LS_CHECKED ls_status ls_model_config_text(ls_arena *arena, const ls_model_config *config,
                                          ls_dtype dtype, const char **text, ls_error *error);

typedef enum ls_model_mode {
  LS_MODEL_TRAIN = 0, /* ends with the loss; the caller adds the backward part */
  LS_MODEL_FORWARD,   /* ends with the loss */
  LS_MODEL_DECODE,    /* one sequence, key and value caches, ends with the logits */
} ls_model_mode;

typedef struct ls_build_options {
  ls_model_mode mode;
  int64_t tokens;     /* n: B x T of one microbatch; decoding: new tokens of the one sequence */
  int64_t sequence;   /* T; decoding: not used */
  int64_t cache_rows; /* decoding: the longest the sequence may become */
  bool headless;      /* decoding: fills the caches and ends there, with no logits */
  bool documents;     /* attention stays inside documents, each from a position 0 on */
} ls_build_options;

/* How fast each pair of columns turns, in radians per position, in sequences of `sequence` tokens:
 * rotary_dim / 2 numbers (transformers' modeling_rope_utils.py). `local`: with rope_local_theta.
 * *scale is what cosines and sines are multiplied by. The list is the arena's. */
const double *ls_rope_frequencies(ls_arena *arena, const ls_model_config *config, bool local,
                                  int64_t sequence, double *scale);

/* Builds the forward graph: segments "embedding", "layers.0" ..., "head". */
LS_CHECKED ls_status ls_model_build(ls_arena *arena, const ls_model_config *config,
                                    const ls_build_options *options, ls_graph **graph,
                                    ls_error *error);

/* Numbers in all parameters, a shared one counted once. */
int64_t ls_model_parameters(const ls_model_config *config);

#endif
