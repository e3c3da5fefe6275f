/* Weights of a model out of Hugging Face files, by our parameters' names and in our layout.
 *
 *   ls_weights *weights;
 *   LS_TRY(ls_weights_open(arena, &config, graph, &(ls_weights_source){.path = "model/"},
 *                          &weights, error));
 *   const ls_weight_place *places = ls_weights_places(weights, index, &count);
 *   LS_TRY(ls_stored_read(&places[0], &tile, LS_F32, target, scratch, error));
 *   ls_weights_close(&weights);
 *
 * Opening checks all: every parameter has its tensor in its shape, and every tensor of the file is
 * a parameter or a known buffer (masks, rotary frequencies). A head that the file holds beside tied
 * embeddings must equal them: transformers ties or does not tie by its version where it differs.
 * An opened set may be read by many threads. */
#ifndef LS_STORE_WEIGHTS_H
#define LS_STORE_WEIGHTS_H

#include "store/stored_box.h"

typedef struct ls_weights ls_weights;

/* Adapters have a file of their own: what of a model with adapters is meant. */
typedef enum ls_weights_kind {
  LS_WEIGHTS_ALL = 0,
  LS_WEIGHTS_BASE,     /* all but the adapters, and but the modules that are kept with them */
  LS_WEIGHTS_START,    /* all but the adapters, which are drawn */
  LS_WEIGHTS_ADAPTERS, /* them and these modules */
} ls_weights_kind;

typedef struct ls_weights_source {
  const char *path;   /* a file, an index or a folder, as ls_safetensors_open takes it */
  const char *stem;   /* NULL: "model" */
  const char *prefix; /* only names that begin so are meant, "grad." say, others are left alone;
                         NULL: all names are */
  ls_weights_kind kind;
  int part, parts; /* of a tied head in the file only this part is compared: by rank `part` of
                      `parts`, who all open the set; parts 0: all of it */
} ls_weights_source;

/* LS_INPUT names the file and the tensor that is missing, unknown, or of another shape. The arena
 * and the graph's parameters must outlive the set. */
LS_CHECKED ls_status ls_weights_open(ls_arena *arena, const ls_model_config *config,
                                     const ls_graph *graph, const ls_weights_source *source,
                                     ls_weights **weights, ls_error *error);
void ls_weights_close(ls_weights **weights);

/* Where a parameter lies, by its index into graph->parameters, and in how many tensors; these are
 * NULL where another kind is meant. Every graph of one configuration has the same parameters in the
 * same order. */
const ls_weight_place *ls_weights_places(const ls_weights *weights, int parameter, int *count);

/* Bytes of tensors that were read through this set so far. */
int64_t ls_weights_bytes_read(const ls_weights *weights);

/* The plan, and what the file holds for its tensor `index`, NULL where another kind is meant: for
 * those who compare files. */
const ls_weight_plan *ls_weights_layout(const ls_weights *weights);
const ls_stored_tensor *ls_weights_tensor(const ls_weights *weights, int index);

#endif
