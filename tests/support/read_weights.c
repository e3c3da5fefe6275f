#include "support/read_weights.h"

ls_status ls_test_read_weights(const ls_weights *weights, int parameter, int64_t first,
                               int64_t rows, void *target, ls_dtype dtype, ls_error *error) {
  int places;
  const ls_weight_place *from = ls_weights_places(weights, parameter, &places);
  const ls_stored_layout *layout = from->layout;
  const int64_t columns = layout->ndim == 2 ? layout->dims[!layout->transposed] : 1;
  const ls_box box = {first, rows, 0, columns};
  if (ls_box_elements(&box) == 0) return LS_OK;
  ls_arena *arena = ls_arena_create();
  void *scratch = ls_arena_alloc(arena, (size_t)ls_box_elements(&box) * ls_dtype_bytes(dtype));
  ls_status status = LS_OK;
  char *to = target;
  for (int i = 0; i < places && status == LS_OK; i++) {
    const ls_box here = ls_weight_piece_box(from[i].piece, &box);
    if (ls_box_elements(&here) == 0) continue;
    status = ls_stored_read(&from[i], &here, dtype, to, scratch, error);
    to += (size_t)ls_box_elements(&here) * ls_dtype_bytes(dtype);
  }
  ls_arena_destroy(&arena);
  return status;
}
