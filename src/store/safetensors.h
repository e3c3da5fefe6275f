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

#include "base/checksum.h"
#include "lockstep/dtype.h"
#include "lockstep/status.h"

typedef struct ls_safetensors ls_safetensors;

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
  /* Quantised as others save it (quantised.h), which is one tensor here: its numbers in its shape,
   * of the type that they are made in; NULL: it is as it says. */
  const struct ls_quantised *quantised;
  ls_safetensors *set; /* that it is of */
} ls_stored_tensor;

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
 * or, for floating types, any other; of a quantised one also its blocks, of their own type, of
 * which first and count are whole ones. LS_INPUT where it cannot be converted or has fewer. */
LS_CHECKED ls_status ls_stored_tensor_read(const ls_stored_tensor *tensor, int64_t first,
                                           int64_t count, ls_dtype dtype, void *target,
                                           ls_error *error);

/* Around reading: elements that will be read soon are asked of the disk; those read next are
 * brought in (LS_INPUT where the file was cut since); what was read is no more in this process's
 * memory. */
void ls_stored_tensor_expect(const ls_stored_tensor *tensor, int64_t first, int64_t count);
LS_CHECKED ls_status ls_stored_tensor_fetch(const ls_stored_tensor *tensor, int64_t first,
                                            int64_t count, ls_error *error);
void ls_stored_tensor_release(const ls_stored_tensor *tensor, int64_t first, int64_t count);

/* Bytes that ls_stored_tensor_read took from the set's tensors so far. */
int64_t ls_safetensors_bytes_read(const ls_safetensors *opened);

/* What will be written. */
typedef struct ls_tensor_spec {
  const char *name;
  ls_dtype dtype;
  int ndim;
  const int64_t *dims;
  const char *format; /* "I8" in place of the dtype's, of as many bytes; NULL: that. Not copied */
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

/* The same set for a process or rank that writes its part of what another has begun: the same
 * arguments give the same places. LS_FAILED where the files are not there. */
LS_CHECKED ls_status ls_safetensors_join_shards(const char *folder, const char *stem,
                                                size_t max_shard_bytes, const ls_tensor_spec *specs,
                                                int count, const ls_metadata_pair *metadata,
                                                int metadata_count, ls_safetensors_writer **writer,
                                                ls_error *error);

/* Writes elements of a tensor, given as its index into the specs, from element `first` on, in any
 * order. After a failure only ls_safetensors_abandon is left to call. */
LS_CHECKED ls_status ls_safetensors_write(ls_safetensors_writer *writer, int tensor, int64_t first,
                                          const void *data, int64_t count, ls_error *error);

/* Puts on the disk what this writer wrote, and closes its file. */
LS_CHECKED ls_status ls_safetensors_sync(ls_safetensors_writer *writer, ls_error *error);

/* The files of the set, what this writer wrote of each (its header is the beginner's), and how many
 * bytes each has when it is whole. */
int ls_safetensors_files(const ls_safetensors_writer *writer);
typedef struct ls_written_file {
  const char *path;
  uint64_t written, bytes;
  ls_checksum checksum; /* of what this writer wrote */
} ls_written_file;
ls_written_file ls_safetensors_file(const ls_safetensors_writer *writer, int file);

/* Appends the next bytes; a piece may end or begin anywhere. After a failure only
 * ls_safetensors_abandon is left to call. */
LS_CHECKED ls_status ls_safetensors_append(ls_safetensors_writer *writer, const void *data,
                                           size_t bytes, ls_error *error);

/* Ends the writing and frees the writer, on failure too: LS_INTERNAL where data is missing,
 * LS_FAILED where the disk is full. The files are not synced: publish the folder. */
LS_CHECKED ls_status ls_safetensors_finish(ls_safetensors_writer **writer, ls_error *error);

/* The same for one of several writers of a set, who see to it by themselves that all was written.
 * Only the beginner's writes the index. */
LS_CHECKED ls_status ls_safetensors_leave(ls_safetensors_writer **writer, ls_error *error);

/* Frees the writer and removes the files that it began. Nothing to do where *writer is NULL. */
void ls_safetensors_abandon(ls_safetensors_writer **writer);

#endif
