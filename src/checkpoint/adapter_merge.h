/* Adapters added to the weights that they are beside: W + scale B A, as a file keeps W. Internal to
 * this room.
 *
 *   ls_adapter_product product;
 *   LS_TRY(ls_adapter_product_read(arena, adapters, layout, scale, &product, error));
 *   if (product.rank) ls_adapter_product_add(&product, first, count, values);
 *
 * Thread-safe: no state. */
#ifndef LS_CHECKPOINT_ADAPTER_MERGE_H
#define LS_CHECKPOINT_ADAPTER_MERGE_H

#include "store/names.h"
#include "store/safetensors.h"

typedef struct ls_adapter_product {
  int64_t rank, columns; /* columns: of the weight as it is stored */
  double *left, *right;  /* [rows, rank] with the scale, [rank, columns] */
} ls_adapter_product;

/* The adapters of a stored weight, of an opened set of them, which count `scale` times; rank 0: it
 * has none. */
LS_CHECKED ls_status ls_adapter_product_read(ls_arena *arena, const ls_safetensors *adapters,
                                             const ls_stored_layout *layout, double scale,
                                             ls_adapter_product *product, ls_error *error);

/* Adds elements [first, first + count) of the product to `values`. */
void ls_adapter_product_add(const ls_adapter_product *product, int64_t first, int64_t count,
                            double *values);

#endif
