/* What the files of shrink.h share: the parts of the search, and the words of its rows.
 *
 * Thread-safe: no state. */
#ifndef LS_VERIFY_SHRINK_PARTS_H
#define LS_VERIFY_SHRINK_PARTS_H

#include "ir/program.h"
#include "verify/shrink.h"

/* Numbers that are searched together, given those of the parts before. */
enum {
  LS_SHRINK_MESH,
  LS_SHRINK_CHUNKS,
  LS_SHRINK_MICROBATCHES,
  LS_SHRINK_LAYERS,
  LS_SHRINK_HEADS,
  LS_SHRINK_MLP,
  LS_SHRINK_VOCABULARY,
  LS_SHRINK_TOKENS,
  LS_SHRINK_PARTS
};

/* What a cut of so many layers for each chunk is like: a set of ls_form_cut. */
unsigned ls_shrink_cut_like(const int *layers, int64_t chunks);

/* What is said where not all of these can be. */
#define LS_SHRINK_PIECES "units that divide over shards, are padded, leave ranks empty"

/* What units are like that are cut into shards: a set. Pieces have one length, so the last may be
 * padded, and small units leave ranks without any. */
enum ls_pieces { LS_PIECES_FULL = 1, LS_PIECES_PADDED = 2, LS_PIECES_EMPTY = 4 };

/* Of the units of all stages; 0: none is cut. */
unsigned ls_shrink_pieces(ls_program *const *stages, int count);

/* Of a model of vectors one pair for each of so many sequences at a time, which are a group; of
 * another none. */
static inline ls_text_pairs ls_shrink_texts(const ls_model_config *config, int64_t sequences) {
  if (!config->vectors) return (ls_text_pairs){0};
  return (ls_text_pairs){.pairs = 1, .texts = 2, .group = sequences, .scale = 1};
}

/* Fills the rows from the two forms, the two layouts and the batch before. */
void ls_shrink_describe(ls_arena *arena, ls_shrunk *shrunk, const ls_layout *before, int64_t batch);

/* Freezes in the small graph what the large one has frozen, each layer as the one that it stands
 * for; NULL: nothing. */
void ls_shrink_freeze(const ls_graph *large, ls_graph *small);

/* Fills `freeze`, and the row that says so. */
LS_CHECKED ls_status ls_shrink_list_frozen(ls_arena *arena, const ls_graph *large,
                                           ls_shrunk *shrunk, ls_error *error);

#endif
