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
#include "ir/saved_state.h"
#include "model/model.h"

/* Where row `row` of its parameter, which the piece has, lies along `out` of the stored tensor. */
int64_t ls_weight_piece_place(const ls_weight_piece *piece, int64_t row);

typedef struct ls_weight_plan {
  ls_stored_layout *tensors;
  int count, room;
  const char *family, *prefix;
  const char *const *ignored; /* patterns of buffers that files may hold, ended by NULL */
  const char *tied_head;      /* the head's name where it is the token embedding, else NULL */
  /* Beside a head of classes: what names of a head of tokens begin with, up to NULL. Else NULL. */
  const char *const *other_heads;
} ls_weight_plan;

/* The tensors of an HF file for the parameters of `graph`, in the graph's order: those of the model
 * that is trained, or where the configuration is a teacher's those of that one. */
LS_CHECKED ls_status ls_weights_plan(ls_arena *arena, const ls_model_config *config,
                                     const ls_graph *graph, ls_weight_plan *plan, ls_error *error);

/* Some families' files are met in another form than transformers saves: products fused that it has
 * apart, or the reverse. Whether the family has one, and the plan of it. */
bool ls_weights_other_form(const ls_model_config *config);
LS_CHECKED ls_status ls_weights_plan_form(ls_arena *arena, const ls_model_config *config,
                                          const ls_graph *graph, bool other, ls_weight_plan *plan,
                                          ls_error *error);

/* Of a config that says that scales are of 8 bits: they stay so, unless files of its family have
 * several products as one tensor, whose scales are quantised together. Then they are kept in fp32,
 * as what they stand for. */
LS_CHECKED ls_status ls_weights_settle_scales(ls_model_config *config, ls_error *error);

/* The rows of a box that a piece has. */
ls_box ls_weight_piece_box(const ls_weight_piece *piece, const ls_box *box);

#define LS_ADAPTERS_PREFIX "base_model.model." /* of all names in a file of adapters */

/* Whether a stored tensor is a buffer that means nothing here (masks, rotary frequencies). */
bool ls_weight_ignored(const ls_weight_plan *plan, const char *name);

#endif
