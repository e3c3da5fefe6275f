#include "checkpoint/adapter_merge.h"

#include <string.h>

/* The matrix of the adapter `letter` of a weight that is called `name`; NULL: none. */
static const ls_stored_tensor *find(ls_arena *arena, const ls_safetensors *adapters,
                                    const char *name, char letter) {
  static const char weight[] = ".weight";
  const size_t length = strlen(name), end = sizeof weight - 1;
  if (length < end || strcmp(name + length - end, weight) != 0) return NULL;
  return ls_safetensors_find(
      adapters, ls_arena_printf(arena, "base_model.model.%.*s.lora_%c.weight", (int)(length - end),
                                name, letter));
}

static ls_status read_matrix(ls_arena *arena, const ls_stored_tensor *tensor, double **values,
                             ls_error *error) {
  *values = LS_NEW_ARRAY(arena, double, tensor->count);
  return ls_stored_tensor_read(tensor, 0, tensor->count, LS_F64, *values, error);
}

static double *transpose(ls_arena *arena, const double *matrix, int64_t rows, int64_t columns) {
  double *made = LS_NEW_ARRAY(arena, double, rows *columns);
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < columns; c++) made[c * rows + r] = matrix[r * columns + c];
  return made;
}

ls_status ls_adapter_product_read(ls_arena *arena, const ls_safetensors *adapters,
                                  const ls_stored_layout *layout, double scale,
                                  ls_adapter_product *product, ls_error *error) {
  const ls_stored_tensor *a_stored = find(arena, adapters, layout->name, 'A');
  const ls_stored_tensor *b_stored = find(arena, adapters, layout->name, 'B');
  *product = (ls_adapter_product){0};
  if (!a_stored || !b_stored) return LS_OK;
  double *a, *b;
  LS_TRY(read_matrix(arena, a_stored, &a, error));
  LS_TRY(read_matrix(arena, b_stored, &b, error));
  const int64_t rank = a_stored->dims[0], in = a_stored->dims[1], out = b_stored->dims[0];
  *product = (ls_adapter_product){.rank = rank,
                                  .columns = layout->transposed ? out : in,
                                  .left = layout->transposed ? transpose(arena, a, rank, in) : b,
                                  .right = layout->transposed ? transpose(arena, b, out, rank) : a};
  for (int64_t i = 0; i < rank * (layout->transposed ? in : out); i++) product->left[i] *= scale;
  return LS_OK;
}

void ls_adapter_product_add(const ls_adapter_product *product, int64_t first, int64_t count,
                            double *values) {
  const int64_t columns = product->columns;
  for (int64_t done = 0; done < count;) {
    const int64_t row = (first + done) / columns, column = (first + done) % columns;
    const int64_t left = count - done, rest = columns - column;
    const int64_t some = left < rest ? left : rest;
    for (int64_t k = 0; k < product->rank; k++) {
      const double factor = product->left[row * product->rank + k];
      const double *right = product->right + k * columns + column;
      for (int64_t c = 0; c < some; c++) values[done + c] += factor * right[c];
    }
    done += some;
  }
}
