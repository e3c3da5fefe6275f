/* Cutting a model into the chunks of a pipeline: by cost, or by hand.
 *
 *   int *first = LS_NEW_ARRAY(arena, int, chunks + 1);
 *   LS_TRY(ls_stages_cut(costs, segments, chunks, first, error));
 *   for (int s = first[chunk]; s < first[chunk + 1]; s++) ...
 *
 * Chunks are contiguous and in the order of the model. Thread-safe as long as no two threads share
 * an arena. */
#ifndef LS_PIPELINE_STAGES_H
#define LS_PIPELINE_STAGES_H

#include "base/arena.h"
#include "lockstep/status.h"

/* Cuts `segments` of the given costs (in any unit, none negative) into `chunks`, each of at least
 * one segment. The largest chunk's cost is the least there can be (a dynamic program, exact); of
 * such cuts, the one with the least sum of squares, and of those the one whose later chunks are
 * longer, as the first stages hold the most activations. first[chunk] is its first segment,
 * first[chunks] is `segments`. LS_INPUT where there are fewer segments than chunks. */
LS_CHECKED ls_status ls_stages_cut(const double *costs, int segments, int chunks, int *first,
                                   ls_error *error);

/* The same by hand, as the run file has it: "0-6, 7-13, 14-20, 21-27", in brackets or not, one item
 * for each chunk in the order of the chain: the first and last layer (from 0), one layer, or "none"
 * for a chunk with no layer. The embedding goes with the first chunk and the head with the last.
 * first[chunk] is its first layer, first[chunks] is `layers`. LS_INPUT names the item. */
LS_CHECKED ls_status ls_stages_parse(const char *text, int layers, int chunks, int *first,
                                     ls_error *error);

#endif
