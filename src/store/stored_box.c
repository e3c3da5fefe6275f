#include "store/stored_box.h"

#include <string.h>

enum { AHEAD_BYTES = 1 << 16 }; /* a shorter stretch is left to the system's own reading ahead */

/* Of rows that are contiguous in the file. */
static bool next_rows(const ls_box *box, int64_t most, ls_box *tile) {
  const bool begun = tile->rows > 0, wide = box->columns > most;
  int64_t row = begun ? tile->row + (wide ? 0 : tile->rows) : box->row;
  int64_t column = begun && wide ? tile->column + tile->columns : box->column;
  if (column == box->column + box->columns) {
    column = box->column;
    row++;
  }
  const int64_t rows = box->row + box->rows - row, columns = box->column + box->columns - column;
  if (rows <= 0) return false;
  const int64_t at_once = wide ? 1 : most / box->columns;
  *tile = (ls_box){row, rows < at_once ? rows : at_once, column, columns < most ? columns : most};
  return true;
}

/* Of columns that are contiguous there, so many of them at least. */
static bool next_columns(const ls_box *box, int64_t most, int64_t together, ls_box *tile) {
  const int64_t high = box->rows < most / together ? box->rows : most / together;
  const int64_t wide = high > 0 ? most / high / together * together : together;
  int64_t row = box->row, column = box->column;
  if (tile->rows > 0) {
    row = tile->row + tile->rows;
    column = tile->column;
  }
  if (tile->rows > 0 && row == box->row + box->rows) {
    row = box->row;
    column += tile->columns;
  }
  const int64_t rows = box->row + box->rows - row, columns = box->column + box->columns - column;
  if (rows <= 0 || columns <= 0) return false;
  *tile = (ls_box){row, rows < high ? rows : high, column, columns < wide ? columns : wide};
  return true;
}

bool ls_stored_tile(const ls_stored_layout *layout, const ls_box *box, int64_t most,
                    int64_t together, ls_box *tile) {
  LS_ASSERT(most % together == 0 && box->columns % together == 0);
  return layout->transposed ? next_columns(box, most, together, tile) : next_rows(box, most, tile);
}

bool ls_stored_stretch(const ls_stored_layout *layout, const ls_weight_piece *piece,
                       const ls_box *tile, ls_stretch *stretch) {
  const int64_t left = ls_box_elements(tile) - stretch->done;
  if (left == 0) return false;
  if (layout->transposed) {
    const int64_t column = tile->column + stretch->done / tile->rows;
    const int64_t before = layout->stack ? piece->first * layout->dims[0] : 0;
    stretch->first = before + column * layout->dims[1] + piece->offset + tile->row - piece->first;
    stretch->count = tile->rows == layout->dims[1] ? left : tile->rows;
  } else {
    const int64_t columns = layout->ndim == 2 ? layout->dims[1] : 1;
    const int64_t row = tile->row + stretch->done / tile->columns;
    const int64_t joined = columns * (piece->block - (row - piece->first) % piece->block);
    stretch->first = ls_weight_piece_place(piece, row) * columns + tile->column;
    stretch->count = tile->columns < columns ? tile->columns : (left < joined ? left : joined);
  }
  stretch->done += stretch->count;
  return true;
}

/* [rows][columns] to [columns][rows], in tiles that stay in the cache on both sides. */
#define TRANSPOSE(name, type)                                                                    \
  static void name(const void *from, int64_t rows, int64_t columns, void *to) {                  \
    enum { TILE = 16 };                                                                          \
    const type *source = from;                                                                   \
    type *target = to;                                                                           \
    for (int64_t r = 0; r < rows; r += TILE)                                                     \
      for (int64_t c = 0; c < columns; c += TILE) {                                              \
        const int64_t last_row = r + TILE < rows ? r + TILE : rows;                              \
        const int64_t last_column = c + TILE < columns ? c + TILE : columns;                     \
        for (int64_t k = c; k < last_column; k++)                                                \
          for (int64_t i = r; i < last_row; i++) target[k * rows + i] = source[i * columns + k]; \
      }                                                                                          \
  }
TRANSPOSE(transpose_2, uint16_t)
TRANSPOSE(transpose_4, uint32_t)
TRANSPOSE(transpose_8, uint64_t)

void ls_stored_turn(const void *from, int64_t rows, int64_t columns, ls_dtype dtype, void *to) {
  const size_t element = ls_dtype_bytes(dtype);
  LS_ASSERT(element == 2 || element == 4 || element == 8);
  (element == 2 ? transpose_2 : element == 4 ? transpose_4 : transpose_8)(from, rows, columns, to);
}

void ls_stored_expect(const ls_weight_place *from, const ls_box *tile) {
  const size_t element = ls_dtype_bytes(from->tensor->dtype);
  ls_stretch stretch = {0};
  while (ls_stored_stretch(from->layout, from->piece, tile, &stretch))
    if ((size_t)stretch.count * element >= AHEAD_BYTES)
      ls_stored_tensor_expect(from->tensor, stretch.first, stretch.count);
}

/* Of so many numbers; those of blocks are whole ones. */
static size_t bytes_of(ls_dtype dtype, int64_t numbers) {
  return (size_t)(numbers / ls_dtype_numbers(dtype)) * ls_dtype_bytes(dtype);
}

ls_status ls_stored_read(const ls_weight_place *from, const ls_box *tile, ls_dtype dtype,
                         void *target, void *scratch, ls_error *error) {
  const size_t stored = ls_dtype_bytes(from->tensor->dtype);
  char *to = from->layout->transposed ? scratch : target;
  ls_stretch stretch = {0};
  int64_t begin = INT64_MAX, end = 0;
  while (ls_stored_stretch(from->layout, from->piece, tile, &stretch)) {
    const int64_t first = stretch.first, count = stretch.count;
    if ((size_t)count * stored >= AHEAD_BYTES)
      LS_TRY(ls_stored_tensor_fetch(from->tensor, first, count, error));
    LS_TRY(ls_stored_tensor_read(from->tensor, first, count, dtype,
                                 to + bytes_of(dtype, stretch.done - count), error));
    if (first < begin) begin = first;
    if (first + count > end) end = first + count;
  }
  if (end > begin) ls_stored_tensor_release(from->tensor, begin, end - begin);
  if (from->layout->transposed) ls_stored_turn(scratch, tile->columns, tile->rows, dtype, target);
  return LS_OK;
}

ls_status ls_stored_write(ls_safetensors_writer *writer, int index, const ls_weight_place *to,
                          const ls_box *tile, ls_dtype dtype, const void *data, void *scratch,
                          ls_error *error) {
  const size_t element = ls_dtype_bytes(dtype);
  const char *from = data;
  if (to->layout->transposed) {
    ls_stored_turn(data, tile->rows, tile->columns, dtype, scratch);
    from = scratch;
  }
  ls_stretch stretch = {0};
  while (ls_stored_stretch(to->layout, to->piece, tile, &stretch))
    LS_TRY(ls_safetensors_write(writer, index, stretch.first,
                                from + (size_t)(stretch.done - stretch.count) * element,
                                stretch.count, error));
  return LS_OK;
}

void ls_stored_lay(const ls_weight_place *to, ls_dtype dtype, const void *data, void *stored) {
  const size_t element = ls_dtype_bytes(dtype);
  const ls_stored_layout *layout = to->layout;
  const int64_t columns = layout->ndim == 2 ? layout->dims[!layout->transposed] : 1;
  const ls_box whole = {to->piece->first, to->piece->rows, 0, columns};
  ls_stretch stretch = {0};
  while (ls_stored_stretch(layout, to->piece, &whole, &stretch)) {
    char *target = (char *)stored + (size_t)stretch.first * element;
    const int64_t begin = stretch.done - stretch.count;
    if (!layout->transposed) {
      memcpy(target, (const char *)data + (size_t)begin * element, (size_t)stretch.count * element);
      continue;
    }
    for (int64_t i = 0; i < stretch.count; i++) { /* of the file's order: columns of ours */
      const int64_t column = (begin + i) / whole.rows, row = (begin + i) % whole.rows;
      memcpy(target + (size_t)i * element,
             (const char *)data + (size_t)(row * columns + column) * element, element);
    }
  }
}
