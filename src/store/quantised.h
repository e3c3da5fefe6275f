/* Weights that are stored quantised, which are several tensors: NAME with codes, and beside it
 *   of NF4 and FP4, as bitsandbytes saves them, with two codes of 4 bits a byte,
 *     NAME.absmax            the scale of each block, fp32; or a byte of each, quantised again with
 *     NAME.nested_absmax, NAME.nested_quant_map, and an offset
 *     NAME.quant_map         the numbers that codes stand for
 *     NAME.quant_state.bitsandbytes__nf4 (or __fp4)   JSON: shape, type and sizes of blocks
 *   of INT8, as compressed-tensors saves groups of 64 (int-quantized),
 *     NAME_scale             the scale of each block, as a matrix
 *   of MXFP4 (OCP Microscaling Formats, 1.0), as GPT-OSS is published, NAME_blocks with 32 codes
 *   in 16 bytes, which is the tensor, and
 *     NAME_scales            of each 32 a power of 2: the exponent plus 127, a byte
 * ls_safetensors_open finds them, and has NAME as one tensor of the shape that it stands for.
 *
 * NF4, FP4 and INT8 are read and written, in blocks of LS_BLOCK_WEIGHTS; MXFP4 is read, as numbers
 * alone. Other kinds are refused.
 * Thread-safe once found; one saving belongs to one thread.
 */
#ifndef LS_STORE_QUANTISED_H
#define LS_STORE_QUANTISED_H

#include "base/arena.h"
#include "base/blocks.h"
#include "store/safetensors.h"

typedef struct ls_quantised {
  ls_dtype blocks; /* LS_NF4, LS_FP4 or LS_INT8; LS_DTYPE_COUNT: MXFP4's, which are none of ours */
  const char *codes;
  const char *scales;       /* as aligned as the file is */
  ls_dtype scale_type;      /* without nested scales a floating type, else LS_U8 */
  const char *nested, *map; /* fp32; NULL: no nested scales */
  int64_t nested_block;
  float offset;
} ls_quantised;

/* Makes `tensor` what it stands for, where it has such tensors beside it in its set: it gets
 * `quantised`, shape and type. LS_INPUT: what is beside it is of another kind, or does not fit. */
LS_CHECKED ls_status ls_quantised_find(ls_arena *arena, ls_stored_tensor *tensor, ls_error *error);

/* Whether the tensor is one that another one has beside it, and so none by itself. */
bool ls_quantised_is_part(const ls_stored_tensor *tensor);

/* Bytes of the codes of so many weights. */
size_t ls_quantised_bytes(const ls_quantised *of, int64_t weights);

/* Whether its scales are quantised again as ours are (base/scales.h); and what they stand for,
 * ls_scales_nested numbers. */
bool ls_quantised_is_double(const ls_quantised *of);
void ls_quantised_nested(const ls_quantised *of, int64_t blocks, float *nested);

/* Elements of its kind, `count` of them from block `first` on. LS_INPUT: a scale is not finite. */
LS_CHECKED ls_status ls_quantised_read(const ls_stored_tensor *tensor, int64_t first, int64_t count,
                                       void *blocks, ls_error *error);

/* The same of what is double, with the scales as they are stored. */
LS_CHECKED ls_status ls_quantised_read_double(const ls_stored_tensor *tensor, int64_t first,
                                              int64_t count, ls_double_block *blocks,
                                              ls_error *error);

/* Of MXFP4: `count` weights from `first` on. LS_INPUT: a scale is none. */
LS_CHECKED ls_status ls_quantised_restore(const ls_stored_tensor *tensor, int64_t first,
                                          int64_t count, ls_dtype dtype, void *weights,
                                          ls_error *error);

/* A weight on its way to a file: its tensors in the order in which they are appended. */
enum { LS_QUANTISED_MOST = 6 };
typedef struct ls_quantised_saving {
  ls_dtype blocks;
  bool again; /* scales are quantised again (base/scales.h) */
  /* With `again`, what a file has of the same matrix so: its scales are taken as they are. NULL:
   * they are made of the blocks'. */
  const ls_quantised *from;
  int64_t count, done; /* blocks; those whose codes are written */
  char *state;         /* JSON */
  float *scales;
  int specs;
  ls_tensor_spec spec[LS_QUANTISED_MOST];
} ls_quantised_saving;

/* Of a matrix, whose rows are whole blocks, and whose type is that which it is to be made in. Of
 * codes of 4 bits scales can be quantised `again`. */
ls_quantised_saving ls_quantised_save(ls_arena *arena, ls_dtype blocks, bool again,
                                      const ls_tensor_spec *weight);

/* Where scales are quantised again and `of` has the same blocks so: its scales will be those. */
void ls_quantised_take_scales(ls_quantised_saving *saving, const ls_quantised *of);

/* Appends the codes of blocks, which follow those before; behind the last all the rest. Scales
 * wait for that in the arena. */
LS_CHECKED ls_status ls_quantised_append(ls_arena *arena, ls_quantised_saving *saving,
                                         ls_safetensors_writer *writer, const void *blocks,
                                         int64_t count, ls_error *error);

#endif
