/* Filling a rank's parameters and moments from stored tensors: only the elements that it keeps are
 * read, in tiles of bounded size, and the disk is asked for the next ones meanwhile.
 *
 *   ls_load_item items[] = {{places[0], 0, LS_PART_MASTER}};
 *   LS_TRY(ls_load_parameters(rank, program, items, 1, error));
 *
 * Used by one thread at a time for a rank. */
#ifndef LS_SESSION_LOAD_PARAMETERS_H
#define LS_SESSION_LOAD_PARAMETERS_H

#include "run/rank_parameters.h"
#include "store/stored_box.h"

/* Elements of a tile, when filling and when saving, and tiles that the disk is asked for ahead
 * (which lie in the system's cache). Beside the parameters a rank needs two tiles, of 8 bytes an
 * element at most, and the one that is mapped: LS_TILE_MEMORY. */
enum { LS_TILE_ELEMENTS = 1 << 19, LS_TILES_AHEAD = 8, LS_TILE_MEMORY = 3 * 8 << 19 };

typedef struct ls_load_item {
  ls_weight_place from;
  int parameter;
  ls_state_part part;
} ls_load_item;

/* Not collective. Errors: those of ls_stored_read and ls_rank_write_box. */
LS_CHECKED ls_status ls_load_parameters(ls_rank *rank, const ls_program *program,
                                        const ls_load_item *items, int count, ls_error *error);

#endif
