/* The safetensors format: read through a map, written as a stream, in one file or in shards.
 *
 *   ls_safetensors *weights;
 *   LS_TRY(ls_safetensors_open("checkpoint", NULL, &weights, error));
 *   const ls_stored_tensor *wte = ls_safetensors_find(weights, "wte.weight");
 *   if (wte) LS_TRY(ls_stored_tensor_read(wte, 0, count, LS_F32, target, error));
 *   ls_safetensors_close(&weights);
 *
 * A file that the reference implementation refuses is refused here, and so are duplicate names
 * (the one exception known: a 0 written -0).
 * An opened set may be read by many threads; a writer belongs to one. */
#ifndef LS_STORE_SAFETENSORS_H
#define LS_STORE_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lockstep/dtype.h"
#include "lockstep/status.h"

typedef struct ls_stored_tensor {
  const char *name;
  const char *format; /* as the file says: "F32", "BF16", "F8_E4M3" */
  ls_dtype dtype;     /* LS_DTYPE_COUNT where the format is none of ours */
  int ndim;
  const int64_t *dims;
  int64_t count;    /* elements */
  const void *data; /* in the map, NULL where bytes is 0; only as aligned as its file is */
  size_t bytes;
  const char *file; /* the shard, for errors */
} ls_stored_tensor;

typedef struct ls_safetensors ls_safetensors;

/* Opens a .safetensors file, an index (*.safetensors.index.json) with its shards, or a folder with
 * STEM.safetensors or STEM.safetensors.index.json; `stem` NULL is "model". Every header is checked
 * whole: LS_INPUT names the file and what is wrong. Of shards, those tensors are listed that the
 * index names. */
LS_CHECKED ls_status ls_safetensors_open(const char *path, const char *stem,
                                         ls_safetensors **opened, ls_error *error);
void ls_safetensors_close(ls_safetensors **opened);

/* The same for the bytes of one file in memory, borrowed until it is closed. */
LS_CHECKED ls_status ls_safetensors_parse(const char *name, const void *data, size_t bytes,
                                          ls_safetensors **opened, ls_error *error);

/* Tensors in the order of their data, shard after shard. */
int ls_safetensors_count(const ls_safetensors *opened);
const ls_stored_tensor *ls_safetensors_at(const ls_safetensors *opened, int index);

/* NULL where there is none of that name. */
const ls_stored_tensor *ls_safetensors_find(const ls_safetensors *opened, const char *name);

/* A value of the (first) file's metadata; NULL where it has none. */
const char *ls_safetensors_metadata(const ls_safetensors *opened, const char *key);

/* Copies elements first .. first + count - 1 to `target` as `dtype`, which must be the tensor's own
 * or, for floating types, any other. LS_INPUT where it cannot be converted or has fewer. */
LS_CHECKED ls_status ls_stored_tensor_read(const ls_stored_tensor *tensor, int64_t first,
                                           int64_t count, ls_dtype dtype, void *target,
                                           ls_error *error);

/* What will be written. */
typedef struct ls_tensor_spec {
  const char *name;
  ls_dtype dtype;
  int ndim;
  const int64_t *dims;
} ls_tensor_spec;

/* Further metadata beside "format": "pt"; keys and values in UTF-8. */
typedef struct ls_metadata_pair {
  const char *key, *value;
} ls_metadata_pair;

typedef struct ls_safetensors_writer ls_safetensors_writer;

/* Begins a file at `path`, which is overwritten. Data lies in the file by falling element size, so
 * that every tensor is aligned, but is appended in the order of `specs`. The arrays and names are
 * copied. LS_INPUT for names that are equal or no UTF-8, LS_FAILED where it cannot be written. */
LS_CHECKED ls_status ls_safetensors_create(const char *path, const ls_tensor_spec *specs, int count,
                                           const ls_metadata_pair *metadata, int metadata_count,
                                           ls_safetensors_writer **writer, ls_error *error);

/* Begins a set in the folder as Hugging Face lays it out: STEM.safetensors where all fits
 * `max_shard_bytes` of data, else STEM-00001-of-0000N.safetensors and
 * STEM.safetensors.index.json. A larger tensor has a shard of its own. */
LS_CHECKED ls_status ls_safetensors_create_shards(const char *folder, const char *stem,
                                                  size_t max_shard_bytes,
                                                  const ls_tensor_spec *specs, int count,
                                                  const ls_metadata_pair *metadata,
                                                  int metadata_count,
                                                  ls_safetensors_writer **writer, ls_error *error);

/* Appends the next bytes; a piece may end or begin anywhere. After a failure only
 * ls_safetensors_abandon is left to call. */
LS_CHECKED ls_status ls_safetensors_append(ls_safetensors_writer *writer, const void *data,
                                           size_t bytes, ls_error *error);

/* Ends the writing and frees the writer, on failure too: LS_INTERNAL where data is missing,
 * LS_FAILED where the disk is full. The files are not synced: publish the folder. */
LS_CHECKED ls_status ls_safetensors_finish(ls_safetensors_writer **writer, ls_error *error);

/* Frees the writer and removes what it wrote. Nothing to do where *writer is NULL. */
void ls_safetensors_abandon(ls_safetensors_writer **writer);

#endif
