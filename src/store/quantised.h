/* Weights quantised as bitsandbytes saves them: NAME with codes of 4 bits, and beside it
 *   NAME.absmax            the scale of each block, fp32; or a byte of each, quantised again with
 *   NAME.nested_absmax, NAME.nested_quant_map, and an offset
 *   NAME.quant_map         the numbers that codes stand for
 *   NAME.quant_state.bitsandbytes__nf4   JSON: shape, type and sizes of blocks
 * ls_safetensors_open finds them, and has NAME as one tensor of the shape that it stands for.
 *
 * Only NF4 in blocks of LS_BLOCK_WEIGHTS is read; other kinds are refused. Thread-safe once found.
 */
#ifndef LS_STORE_QUANTISED_H
#define LS_STORE_QUANTISED_H

#include "base/arena.h"
#include "base/blocks.h"
#include "store/safetensors.h"

typedef struct ls_quantised {
  const uint8_t *codes;
  const char *scales;       /* fp32 without nested scales, else bytes; as aligned as the file is */
  const char *nested, *map; /* fp32; NULL: no nested scales */
  int64_t nested_block;
  float offset;
} ls_quantised;

/* Makes `tensor` what it stands for, where it has such tensors beside it in its set: it gets
 * `quantised`, shape and type. LS_INPUT: what is beside it is of another kind, or does not fit. */
LS_CHECKED ls_status ls_quantised_find(ls_arena *arena, ls_stored_tensor *tensor, ls_error *error);

/* Whether the tensor is one that another one has beside it, and so none by itself. */
bool ls_quantised_is_part(const ls_stored_tensor *tensor);

/* Elements of NF4, `count` of them from block `first` on. LS_INPUT: a scale is not finite. */
LS_CHECKED ls_status ls_quantised_read(const ls_stored_tensor *tensor, int64_t first, int64_t count,
                                       ls_nf4_block *blocks, ls_error *error);

#endif
