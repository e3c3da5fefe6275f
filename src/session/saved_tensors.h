/* The tensors of a checkpoint: the weights as Hugging Face's files of the family have them, then
 * what the optimizer keeps of each parameter, by the table of state.
 *
 *   ls_saved_tensors all;
 *   LS_TRY(ls_saved_tensors_list(arena, &config, graph, program, &all, error));
 *   for (int t = all.weights; t < all.count; t++) puts(all.items[t].name); */
#ifndef LS_SESSION_SAVED_TENSORS_H
#define LS_SESSION_SAVED_TENSORS_H

#include "ir/saved_state.h"
#include "model/model.h"

typedef struct ls_saved_tensors {
  ls_stored_layout *items;
  int weights, count; /* the weights first */
  /* Behind these, up to `all`, what adapters are beside, and a teacher: both are as in their
   * folders, so a checkpoint is read without them. */
  int all;
} ls_saved_tensors;

/* The arena and the graph's parameters must outlive the list. Errors: those of ls_weights_plan. */
LS_CHECKED ls_status ls_saved_tensors_list(ls_arena *arena, const ls_model_config *config,
                                           const ls_graph *graph, const ls_program *program,
                                           ls_saved_tensors *all, ls_error *error);

/* The optimizer's alone, which a program of any stage knows. */
ls_saved_tensors ls_saved_moments(ls_arena *arena, const ls_program *program);

/* How many of these a parameter has. */
int ls_saved_moments_of(const ls_program *program, int parameter);

#endif
