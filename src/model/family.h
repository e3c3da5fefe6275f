/* What differs between families of models: one row each. Internal to this room.
 *
 * The keys of config.json are a table, so that reading, writing and the defaults agree.
 * Thread-safe: rows are constant. */
#ifndef LS_MODEL_FAMILY_H
#define LS_MODEL_FAMILY_H

#include "model/model.h"
#include "text/json.h"

typedef enum ls_key_kind { LS_KEY_COUNT = 0, LS_KEY_NUMBER, LS_KEY_BOOL } ls_key_kind;

/* A key whose value is one field of ls_model_config. */
typedef struct ls_config_key {
  const char *key;
  const char *alias; /* another name that Hugging Face takes for it; NULL: none */
  ls_key_kind kind;
  size_t offset;   /* of the field: int64_t, double or bool */
  double fallback; /* Hugging Face's default */
} ls_config_key;

/* A key that changes the mathematics in a way that is not built: any value but those is refused. */
typedef struct ls_config_guard {
  const char *key;
  const char
      *allowed; /* JSON of the one value that changes nothing; a missing or null key is fine */
} ls_config_guard;

typedef struct ls_builder {
  ls_graph *graph;
  const ls_model_config *config;
  const ls_build_options *options;
  ls_tensor_id rope;  /* table of this step's positions; only where the family has one */
  ls_tensor_id table; /* token embedding: the head of a tied model */
  const char *part;   /* name of the segment being built */
  int layer;
} ls_builder;

typedef struct ls_family {
  const char *name, *architecture;
  const ls_config_key *keys;       /* up to one whose key is NULL */
  const ls_config_guard *guards;   /* likewise */
  const char *const *dropout_keys; /* likewise */
  double dropout_fallback;         /* Hugging Face's default for each of them */
  int64_t begin_fallback, end_fallback;
  /* What the tables cannot say: activation, rope, scales, and checks between fields. */
  ls_status (*read)(ls_arena *arena, const ls_json_object *json, ls_model_config *config,
                    ls_error *error);
  int (*write)(json_t *json, const ls_model_config *config);
  ls_tensor_id (*embed)(ls_builder *builder);
  ls_tensor_id (*block)(ls_builder *builder, ls_tensor_id x);
  ls_tensor_id (*final_norm)(ls_builder *builder, ls_tensor_id x);
} ls_family;

extern const ls_family ls_family_gpt2, ls_family_llama;

/* The row called `name`; NULL where there is none. */
const ls_family *ls_family_find(const char *name);

/* "gpt2, llama". */
const char *ls_family_names(ls_arena *arena);

/* A matrix and a vector among the parameters, called PART.NAME. */
ls_tensor_id ls_builder_weight(ls_builder *builder, const char *name, int64_t out, int64_t in,
                               ls_cut cut, double deviation);
ls_tensor_id ls_builder_vector(ls_builder *builder, const char *name, int64_t count, ls_cut cut,
                               ls_init init);

/* x times the parameter PART.NAME.weight, plus PART.NAME.bias where `bias`. The bias of a product
 * whose weight is cut on its input is whole. */
ls_tensor_id ls_builder_project(ls_builder *builder, ls_tensor_id x, const char *name, int64_t out,
                                ls_cut cut, bool bias, double deviation);

/* Causal attention of q, k and v, through caches where the mode is decoding. */
ls_tensor_id ls_builder_attend(ls_builder *builder, ls_tensor_id q, ls_tensor_id k, ls_tensor_id v);

#endif
