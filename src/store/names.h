/* Names and layouts of parameters in Hugging Face files, against ours: one table per family.
 *
 * Ours are unfused and [out, in]; theirs may be fused (one c_attn for query, key and value) and
 * transposed (GPT-2's Conv1D is [in, out]). A stored tensor is a list of pieces, each one of our
 * parameters, joined along `out`.
 *
 *   ls_weight_plan plan;
 *   LS_TRY(ls_weights_plan(arena, &config, graph, &plan, error));
 *   for (int i = 0; i < plan.count; i++) ... plan.tensors[i].name, .dims ...
 *
 * To add a family: its rules, its ignored names and its row in names_table.c. Thread-safe: no
 * state. */
#ifndef LS_STORE_NAMES_H
#define LS_STORE_NAMES_H

#include "graph/graph.h"
#include "model/model.h"

/* One of our parameters inside a stored tensor. */
typedef struct ls_weight_piece {
  int parameter;  /* index into graph->parameters */
  int64_t offset; /* where its rows begin along `out` of the stored tensor */
  int64_t rows;   /* its own `out` */
  /* Its rows lie in blocks of so many, each so far behind the last: queries, keys and values side
   * by side, head by head. A piece in one block has block = rows. */
  int64_t block, period;
} ls_weight_piece;

/* Where row `row` of a piece lies along `out` of the stored tensor. */
int64_t ls_weight_piece_place(const ls_weight_piece *piece, int64_t row);

typedef struct ls_stored_layout {
  const char *name;  /* as transformers saves it */
  const char *plain; /* without the family's prefix, as base models are saved; may equal name */
  int ndim;
  int64_t dims[2]; /* in the file */
  bool transposed; /* [in, out] */
  LS_LIST(ls_weight_piece) pieces;
} ls_stored_layout;

typedef struct ls_weight_plan {
  ls_stored_layout *tensors;
  int count;
  const char *family, *prefix;
  const char *const *ignored; /* patterns of buffers that files may hold, ended by NULL */
  const char *tied_head;      /* the head's name where it is the token embedding, else NULL */
} ls_weight_plan;

/* The tensors of an HF file for the parameters of `graph`, in the graph's order. */
LS_CHECKED ls_status ls_weights_plan(ls_arena *arena, const ls_model_config *config,
                                     const ls_graph *graph, ls_weight_plan *plan, ls_error *error);

/* Some families' files are met in another form than transformers saves: products fused that it has
 * apart, or the reverse. Whether the family has one, and the plan of it. */
bool ls_weights_other_form(const ls_model_config *config);
LS_CHECKED ls_status ls_weights_plan_form(ls_arena *arena, const ls_model_config *config,
                                          const ls_graph *graph, bool other, ls_weight_plan *plan,
                                          ls_error *error);

/* Whether a stored tensor is a buffer that means nothing here (masks, rotary frequencies). */
bool ls_weight_ignored(const ls_weight_plan *plan, const char *name);

#endif
