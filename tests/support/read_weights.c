#include "support/read_weights.h"

ls_status ls_test_read_weights(const ls_weights *weights, int parameter, int64_t first,
                               int64_t rows, void *target, ls_dtype dtype, ls_error *error) {
  const ls_weight_place *from = ls_weights_place(weights, parameter);
  const ls_stored_layout *layout = from->layout;
  LS_ASSERT(first >= 0 && rows >= 0 && first + rows <= from->piece->rows);
  const int64_t columns = layout->ndim == 2 ? layout->dims[!layout->transposed] : 1;
  const ls_box box = {first, rows, 0, columns};
  if (ls_box_elements(&box) == 0) return LS_OK;
  ls_arena *arena = ls_arena_create();
  void *scratch = ls_arena_alloc(arena, (size_t)ls_box_elements(&box) * ls_dtype_bytes(dtype));
  const ls_status status = ls_stored_read(from, &box, dtype, target, scratch, error);
  ls_arena_destroy(&arena);
  return status;
}
