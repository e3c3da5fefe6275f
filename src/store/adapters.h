/* Low-rank adapters (LoRA: Hu et al., arXiv 2106.09685) as PEFT keeps them: which products of a
 * model have them, by Hugging Face's names, and the folder with adapter_config.json.
 *
 *   const ls_adapters asked = {.rank = 16, .targets = names, .target_count = 2};
 *   LS_TRY(ls_adapters_apply(arena, &asked, &config, error));
 *
 * Thread-safe: no state. */
#ifndef LS_STORE_ADAPTERS_H
#define LS_STORE_ADAPTERS_H

#include "model/model.h"

#define LS_ADAPTERS_STEM "adapter_model"
enum { LS_MOST_LORA_RANK = 1 << 16 };

/* Products whose adapters are of another rank or alpha. */
typedef struct ls_adapter_group {
  const char *match; /* as a target, or as ls_parameter_names has it */
  int64_t rank;      /* 0: as of others */
  double alpha;      /* likewise */
  bool pattern;      /* match is a regular expression, as PEFT has it */
} ls_adapter_group;

typedef struct ls_adapters {
  int64_t rank;
  double alpha; /* 0: twice the rank, of each group's own */
  bool rslora;
  const char *const *targets; /* modules such as "q_proj", or one item "all-linear" */
  int target_count;
  double dropout;                 /* of what they are given */
  const ls_adapter_group *groups; /* the first that matches holds */
  int group_count;
} ls_adapters;

/* Gives the model these adapters; what it keeps of them is in the arena. LS_INPUT: a target is no
 * product of it, with the nearest that is, or one that its files fuse with others, or a group
 * covers none that has adapters. */
LS_CHECKED ls_status ls_adapters_apply(ls_arena *arena, const ls_adapters *asked,
                                       ls_model_config *config, ls_error *error);

/* Has all of the head over classes trained and kept beside the adapters. LS_INPUT: as of
 * ls_model_build. */
LS_CHECKED ls_status ls_adapters_keep_head(ls_model_config *config, ls_error *error);

/* Whether the folder is one of adapters: it has an adapter_config.json. */
bool ls_adapters_has(const char *folder);

/* The model of a folder: of its config.json, and where it is one of adapters with these. The shape
 * is then that of the folder's own config.json, or of its base's. LS_INPUT: adapters of a kind that
 * is not built, or whose base is not found. */
LS_CHECKED ls_status ls_adapters_read(ls_arena *arena, const char *folder, ls_model_config *config,
                                      ls_error *error);

/* The text of the adapter_config.json of a model with adapters, beside `config->base`. */
LS_CHECKED ls_status ls_adapters_text(ls_arena *arena, const ls_model_config *config,
                                      const char **text, ls_error *error);

#endif
