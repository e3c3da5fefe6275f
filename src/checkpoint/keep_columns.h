/* Which columns of the stream, which heads and which columns of MLPs a narrower model keeps: those
 * whose weights are largest. Internal to this room.
 *
 *   LS_TRY(ls_kept_columns_choose(arena, &config, graph, weights, &small, &columns, error));
 *   const int64_t *rows = ls_kept_columns_of(columns, &about, layer, 0, &count);
 *
 * What is chosen does not change: thread-safe. */
#ifndef LS_CHECKPOINT_KEEP_COLUMNS_H
#define LS_CHECKPOINT_KEEP_COLUMNS_H

#include "store/weights.h"

typedef struct ls_kept_columns ls_kept_columns;

/* Of the weights of `config`, whose graph is given, those for the widths of `small`, which has
 * fewer columns: the stream's are the same in all layers, heads and MLPs are chosen in each; a
 * key/value head goes with its queries. LS_INPUT: a tensor that is no plain matrix or vector of
 * numbers. */
LS_CHECKED ls_status ls_kept_columns_choose(ls_arena *arena, const ls_model_config *config,
                                            const ls_graph *graph, const ls_weights *weights,
                                            const ls_model_config *small,
                                            const ls_kept_columns **columns, ls_error *error);

/* What is kept of a dimension of a parameter of a layer (-1: of none), ascending; NULL: all of it.
 */
const int64_t *ls_kept_columns_of(const ls_kept_columns *columns, const ls_parameter *about,
                                  int64_t layer, int dim, int64_t *count);

#endif
