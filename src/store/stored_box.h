/* Boxes of our parameters against stretches of stored tensors: how a rank reads or writes its part
 * of a file, in tiles of bounded size, along the file.
 *
 *   ls_box tile = {0};
 *   while (ls_stored_tile(layout, &box, most, 1, &tile)) {
 *     ls_stretch stretch = {0};
 *     while (ls_stored_stretch(layout, piece, &tile, &stretch)) ...
 *   }
 *
 * The elements of a tile, stretch after stretch, are its rows one after the other or, where the
 * tensor is stored transposed, its columns. Thread-safe: no state. */
#ifndef LS_STORE_STORED_BOX_H
#define LS_STORE_STORED_BOX_H

#include "base/box.h"
#include "store/names.h"
#include "store/safetensors.h"

/* A parameter's place in a file, or that of rows of it. */
typedef struct ls_weight_place {
  const ls_stored_layout *layout;
  const ls_weight_piece *piece;
  const ls_stored_tensor *tensor; /* NULL where it is to be written */
} ls_weight_place;

/* The next part of a box, of at most `most` elements: rows that follow each other, or columns of a
 * transposed tensor. So many columns stay `together`, of which the box's are a multiple, and `most`
 * too. *tile is {0} at first and the last one after; false where there is no more. */
bool ls_stored_tile(const ls_stored_layout *layout, const ls_box *box, int64_t most,
                    int64_t together, ls_box *tile);

/* The next stretch of a tile; *stretch is {0} at first. An ls_stored_walk. */
bool ls_stored_stretch(const ls_stored_layout *layout, const ls_weight_piece *piece,
                       const ls_box *tile, ls_stretch *stretch);

/* Asks the disk for a tile that will be read soon. */
void ls_stored_expect(const ls_weight_place *from, const ls_box *tile);

/* Reads a tile into `target`, row-major, as `dtype`. `scratch` is as large as it; unused where the
 * tensor is not transposed. Errors: those of ls_stored_tensor_read. */
LS_CHECKED ls_status ls_stored_read(const ls_weight_place *from, const ls_box *tile, ls_dtype dtype,
                                    void *target, void *scratch, ls_error *error);

/* Writes a tile, row-major and of the tensor's type, as tensor `index` of a writer. */
LS_CHECKED ls_status ls_stored_write(ls_safetensors_writer *writer, int index,
                                     const ls_weight_place *to, const ls_box *tile, ls_dtype dtype,
                                     const void *data, void *scratch, ls_error *error);

/* [rows][columns], of elements of 2, 4 or 8 bytes, to [columns][rows]. */
void ls_stored_turn(const void *from, int64_t rows, int64_t columns, ls_dtype dtype, void *to);

/* Lays the rows of a parameter that the piece has, row-major, into a stored tensor's memory. */
void ls_stored_lay(const ls_weight_place *to, ls_dtype dtype, const void *data, void *stored);

#endif
