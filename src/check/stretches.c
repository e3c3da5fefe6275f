/* Where a stored tensor has a parameter's elements, by its pieces alone: what reads and writes
 * files must say the same. */
#include "check/proof.h"

static int64_t columns_of(const ls_stored_layout *layout) {
  return layout->ndim > 1 ? layout->dims[!layout->transposed] : 1;
}

static int64_t place_of(const ls_stored_layout *layout, const ls_weight_piece *piece, int64_t row,
                        int64_t column) {
  row -= piece->first;
  const int64_t out = piece->offset + row / piece->block * piece->period + row % piece->block;
  if (!layout->transposed) return out * columns_of(layout) + column;
  const int64_t matrices = layout->stack ? piece->first / layout->dims[1] : 0;
  return (matrices * layout->dims[0] + column) * layout->dims[1] + out;
}

/* Each element of the stretch lies where the piece says. The tile goes along the file. */
static bool is_in_place(const ls_stored_layout *layout, const ls_weight_piece *piece,
                        const ls_box *tile, const ls_stretch *stretch) {
  const bool whole = !layout->transposed && tile->columns == columns_of(layout);
  const int64_t begin = stretch->done - stretch->count;
  for (int64_t at = begin; at < stretch->done;) {
    const int64_t across = layout->transposed ? tile->rows : tile->columns;
    const int64_t row = tile->row + (layout->transposed ? at % across : at / across);
    const int64_t column = tile->column + (layout->transposed ? at / across : at % across);
    if (place_of(layout, piece, row, column) != stretch->first + at - begin) return false;
    const int64_t of_block = piece->block - (row - piece->first) % piece->block;
    if (whole)
      at += of_block * across - column;
    else if (layout->transposed)
      at += across - at % across < of_block ? across - at % across : of_block;
    else
      at += across - at % across;
  }
  return true;
}

static bool is_walked(const ls_stored_layout *layout, const ls_weight_piece *piece,
                      const ls_box *tile, ls_stored_walk *walk) {
  int64_t done = 0;
  for (ls_stretch stretch = {0}; walk(layout, piece, tile, &stretch); done = stretch.done)
    if (stretch.count <= 0 || stretch.done != done + stretch.count ||
        stretch.done > ls_box_elements(tile) || !is_in_place(layout, piece, tile, &stretch))
      return false;
  return done == ls_box_elements(tile);
}

bool ls_proof_walks(const ls_stored_layout *layout, const ls_weight_piece *piece,
                    ls_stored_walk *walk) {
  const int64_t columns = columns_of(layout), left = piece->rows - (piece->block - 1);
  const ls_box tiles[] = {
      {piece->first, piece->rows, 0, columns},
      {piece->first + piece->block - 1, left < 2 ? left : 2, 0, columns},
      {piece->first + piece->block - 1, left < 2 ? left : 2, columns / 2, columns - columns / 2},
      {piece->first, piece->block < 8 ? piece->block : 8, columns / 2, 1},
  };
  for (size_t t = 0; t < sizeof tiles / sizeof *tiles; t++)
    if (!is_walked(layout, piece, &tiles[t], walk)) return false;
  return true;
}
