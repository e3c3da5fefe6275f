/* Writing safetensors: headers first, then data at each tensor's place as it is appended. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/file.h"
#include "store/safetensors.h"
#include "store/safetensors_format.h"
#include "store/write_behind.h"
#include "text/quote.h"

enum { EAGER_BYTES = 1 << 18, DIRECT_BYTES = 1 << 18 };

typedef struct shard {
  const char *path;
  int first, count; /* of the tensors, in appending order */
  uint64_t data_bytes;
  uint64_t header_bytes; /* with its length before it */
  int descriptor;        /* -1: not open */
  int direct;            /* past the system's cache; -1: not open, -2: it cannot be */
  bool created;          /* a regular file to remove when the writing is abandoned */
  ls_written_file done;
} shard;

typedef struct slot {
  ls_tensor_spec spec;
  uint64_t bytes;
  uint64_t begin; /* in the shard's data */
  int shard;
} slot;

struct ls_safetensors_writer {
  ls_arena *arena;
  slot *slots;
  int count;
  LS_LIST(shard) shards;
  const char *index; /* NULL: none is written */
  uint64_t total_bytes;
  int open; /* the shard that has a descriptor; -1: none */
  ls_write_behind *behind;
  int current;      /* slot being appended to */
  uint64_t written; /* of that slot */
  bool failed;
};

static ls_status fail_write(const shard *file, const char *what, ls_error *error) {
  return ls_fail(error, LS_FAILED, "%s: %s: %s", file->path, what, strerror(errno));
}

/* Adds keys and values to an object; false where text is no UTF-8 or memory is short. */
static bool set_string(json_t *object, const char *key, const char *value) {
  return json_object_set_new(object, key, json_string(value)) == 0;
}

static ls_status slot_fill(ls_arena *arena, const ls_tensor_spec *spec, slot *made,
                           ls_error *error) {
  char shown[LS_QUOTE_BYTES];
  ls_quote(shown, spec->name, strlen(spec->name));
  if (strcmp(spec->name, "__metadata__") == 0) {
    return ls_fail(error, LS_INPUT, "tensor \"%s\": found a reserved name; expected another",
                   shown);
  }
  int64_t *dims = LS_NEW_ARRAY(arena, int64_t, spec->ndim + 1);
  uint64_t bytes = ls_dtype_bytes(spec->dtype);
  for (int i = 0; i < spec->ndim; i++) {
    dims[i] = spec->dims[i];
    if (dims[i] < 0 || __builtin_mul_overflow(bytes, (uint64_t)dims[i], &bytes) ||
        bytes > INT64_MAX) {
      return ls_fail(error, LS_INPUT,
                     "tensor \"%s\": found a shape of more than 2^63 bytes or below "
                     "0; expected a real one",
                     shown);
    }
  }
  made->spec = *spec;
  made->spec.name = ls_arena_strdup(arena, spec->name);
  made->spec.dims = dims;
  made->bytes = bytes;
  return LS_OK;
}

/* Tensors of a shard by falling element size: with no holes allowed, all are then aligned. */
static void shard_layout(ls_safetensors_writer *writer, const shard *file, int *order) {
  int placed = 0;
  uint64_t begin = 0;
  for (size_t size = 8; size >= 1; size /= 2) {
    for (int i = file->first; i < file->first + file->count; i++) {
      slot *each = &writer->slots[i];
      if (ls_dtype_bytes(each->spec.dtype) != size) continue;
      each->begin = begin;
      begin += each->bytes;
      order[placed++] = i;
    }
  }
  LS_ASSERT(placed == file->count && begin == file->data_bytes);
}

static json_t *header_entry(const slot *each) {
  json_t *shape = json_array();
  for (int i = 0; i < each->spec.ndim; i++) {
    json_array_append_new(shape, json_integer((json_int_t)each->spec.dims[i]));
  }
  const char *format = each->spec.format;
  if (!format) format = ls_format_of(each->spec.dtype)->name;
  return json_pack("{s:s, s:o, s:[I, I]}", "dtype", format, "shape", shape, "data_offsets",
                   (json_int_t)each->begin, (json_int_t)(each->begin + each->bytes));
}

static json_t *header_metadata(const ls_metadata_pair *metadata, int count, ls_error *error) {
  json_t *object = json_object();
  bool good = set_string(object, "format", "pt");
  for (int i = 0; i < count && good; i++)
    good = set_string(object, metadata[i].key, metadata[i].value);
  if (good) return object;
  json_decref(object);
  ls_fail(error, LS_INPUT, "metadata: found text that is no UTF-8; expected UTF-8");
  return NULL;
}

/* The header as text, padded with spaces so that the data begins at a multiple of 8. Freed with
 * free(). */
static ls_status header_text(ls_safetensors_writer *writer, shard *file,
                             const ls_metadata_pair *metadata, int metadata_count, char **text,
                             ls_error *error) {
  int *order = LS_NEW_ARRAY(writer->arena, int, file->count + 1);
  shard_layout(writer, file, order);
  json_t *pairs = header_metadata(metadata, metadata_count, error);
  if (!pairs) return LS_INPUT;
  json_t *root = json_object();
  json_object_set_new(root, "__metadata__", pairs);
  for (int i = 0; i < file->count; i++) {
    const slot *each = &writer->slots[order[i]];
    /* The name is UTF-8, as refuse_duplicates saw. */
    LS_ASSERT(json_object_set_new(root, each->spec.name, header_entry(each)) == 0);
  }
  char *dumped = json_dumps(root, JSON_COMPACT);
  json_decref(root);
  if (!dumped) return ls_fail(error, LS_FAILED, "%s: out of memory for its header", file->path);
  const size_t length = strlen(dumped), padded = (length + 7) / 8 * 8;
  *text = ls_arena_alloc(writer->arena, LS_SAFETENSORS_PREFIX + padded);
  memset(*text, ' ', LS_SAFETENSORS_PREFIX + padded);
  memcpy(*text, &(uint64_t){padded}, LS_SAFETENSORS_PREFIX);
  memcpy(*text + LS_SAFETENSORS_PREFIX, dumped, length);
  free(dumped);
  file->header_bytes = LS_SAFETENSORS_PREFIX + padded;
  if (padded <= LS_SAFETENSORS_MAX_HEADER) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s: found a header of %zu bytes; expected at most %d: use shards", file->path,
                 padded, (int)LS_SAFETENSORS_MAX_HEADER);
}

/* What was written is on its way to the disk at once, so that little is left when all must be. */
static ls_status write_cached(const shard *file, const void *data, size_t bytes, uint64_t offset,
                              ls_error *error) {
  const char *at = data;
  const uint64_t begin = offset, all = bytes;
  while (bytes > 0) {
    const ssize_t done = pwrite(file->descriptor, at, bytes, (off_t)offset);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return fail_write(file, "cannot write", error);
    at += done;
    bytes -= (size_t)done;
    offset += (uint64_t)done;
  }
  if (all >= EAGER_BYTES)
    (void)sync_file_range(file->descriptor, (off_t)begin, (off_t)all, SYNC_FILE_RANGE_WRITE);
  return LS_OK;
}

/* Some file systems take the flag and refuse the first transfer. */
static bool is_direct(ls_arena *arena, int descriptor, size_t block) {
  struct stat about;
  if (descriptor < 0 || fstat(descriptor, &about) || !S_ISREG(about.st_mode)) return false;
  return pread(descriptor, ls_direct_memory(arena, block, block), block, 0) >= 0;
}

/* Whether the file can be written past the system's cache, in whole pages: a page that is in it as
 * well would hold old bytes. */
static bool open_direct(ls_safetensors_writer *writer, shard *file, size_t block) {
  if (file->direct == -1) {
    file->direct = open(file->path, O_RDWR | O_CLOEXEC | O_DIRECT);
    if (!writer->behind) writer->behind = ls_write_behind_create(writer->arena);
    if (!writer->behind || !is_direct(writer->arena, file->direct, block)) {
      if (file->direct >= 0) close(file->direct);
      file->direct = -2;
    }
  }
  return file->direct >= 0;
}

static ls_status write_at(ls_safetensors_writer *writer, shard *file, const void *data,
                          size_t bytes, uint64_t offset, ls_error *error) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  const size_t block = page > LS_DIRECT_BLOCK ? page : LS_DIRECT_BLOCK;
  const char *at = data;
  file->done.written += bytes;
  ls_checksum_add(&file->done.checksum, offset, data, bytes);
  if (bytes < DIRECT_BYTES || !open_direct(writer, file, block))
    return write_cached(file, data, bytes, offset, error);
  const size_t head = (block - offset % block) % block;
  const size_t whole = (bytes - head) / block * block, done = head + whole;
  LS_TRY(write_cached(file, at, head, offset, error));
  ls_write_behind_put(writer->behind, file->direct, offset + head, at + head, whole);
  return write_cached(file, at + done, bytes - done, offset + done, error);
}

static ls_status wait_behind(ls_safetensors_writer *writer, const shard *file, ls_error *error) {
  errno = writer->behind ? ls_write_behind_wait(writer->behind) : 0;
  return errno ? fail_write(file, "cannot write", error) : LS_OK;
}

/* Only one shard is open at a time: there may be more shards than descriptors. */
static ls_status shard_close(ls_safetensors_writer *writer, ls_error *error) {
  if (writer->open < 0) return LS_OK;
  shard *file = &writer->shards.items[writer->open];
  LS_TRY(wait_behind(writer, file, error));
  if (file->direct >= 0) close(file->direct);
  file->direct = file->direct == -2 ? -2 : -1;
  const int result = close(file->descriptor);
  file->descriptor = writer->open = -1;
  return result == 0 ? LS_OK : fail_write(file, "cannot finish", error);
}

static ls_status shard_open(ls_safetensors_writer *writer, int number, int flags, ls_error *error) {
  if (writer->open == number) return LS_OK;
  LS_TRY(shard_close(writer, error));
  shard *file = &writer->shards.items[number];
  file->descriptor = open(file->path, O_WRONLY | O_CLOEXEC | flags, 0666);
  if (file->descriptor < 0) return fail_write(file, "cannot open for writing", error);
  writer->open = number;
  struct stat about; /* a device is never removed */
  if (flags) file->created = fstat(file->descriptor, &about) == 0 && S_ISREG(about.st_mode);
  return LS_OK;
}

/* Takes the file's place on the disk beforehand: a full one is found at once, and many may write
 * side by side without holes being cut and filled. Not all file systems can. */
static ls_status reserve(const shard *file, ls_error *error) {
  if (!file->created) return LS_OK;
  const off_t bytes = (off_t)(file->header_bytes + file->data_bytes);
  if (fallocate(file->descriptor, 0, 0, bytes) == 0) return LS_OK;
  if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)
    return fail_write(file, "cannot write", error);
  return LS_OK;
}

static ls_status shard_begin(ls_safetensors_writer *writer, int number, const char *text,
                             ls_error *error) {
  shard *file = &writer->shards.items[number];
  LS_TRY(shard_open(writer, number, O_CREAT | O_TRUNC, error));
  LS_TRY(reserve(file, error));
  return write_at(writer, file, text, file->header_bytes, 0, error);
}

/* Equal names in one file would vanish in its header, and in two shards in the index. */
static ls_status refuse_duplicates(const ls_safetensors_writer *writer, ls_error *error) {
  json_t *seen = json_object();
  ls_status status = LS_OK;
  for (int i = 0; i < writer->count && status == LS_OK; i++) {
    const char *name = writer->slots[i].spec.name;
    char shown[LS_QUOTE_BYTES];
    if (json_object_get(seen, name)) {
      status = ls_fail(error, LS_INPUT, "tensor \"%s\": found the name twice; expected it once",
                       ls_quote(shown, name, strlen(name)));
    } else if (json_object_set_new(seen, name, json_true()) != 0) {
      status =
          ls_fail(error, LS_INPUT, "tensor \"%s\": found a name that is no UTF-8; expected UTF-8",
                  ls_quote(shown, name, strlen(name)));
    }
  }
  json_decref(seen);
  return status;
}

static void shards_assign(ls_safetensors_writer *writer, size_t max_shard_bytes) {
  shard *open = NULL;
  for (int i = 0; i < writer->count; i++) {
    const uint64_t bytes = writer->slots[i].bytes;
    if (!open || (open->count > 0 &&
                  (bytes > max_shard_bytes || open->data_bytes > max_shard_bytes - bytes))) {
      open = LS_APPEND(writer->arena, &writer->shards);
      *open = (shard){.first = i, .descriptor = -1, .direct = -1};
    }
    open->count++;
    open->data_bytes += bytes;
    writer->slots[i].shard = writer->shards.count - 1;
    writer->total_bytes += bytes;
  }
  if (!open) *LS_APPEND(writer->arena, &writer->shards) = (shard){.descriptor = -1, .direct = -1};
}

static ls_status writer_create(const ls_tensor_spec *specs, int count, size_t max_shard_bytes,
                               ls_safetensors_writer **made, ls_error *error) {
  ls_arena *arena = ls_arena_create();
  ls_safetensors_writer *writer = LS_NEW(arena, ls_safetensors_writer);
  *made = writer;
  writer->arena = arena;
  writer->open = -1;
  writer->slots = LS_NEW_ARRAY(arena, slot, count + 1);
  writer->count = count;
  for (int i = 0; i < count; i++) LS_TRY(slot_fill(arena, &specs[i], &writer->slots[i], error));
  LS_TRY(refuse_duplicates(writer, error));
  shards_assign(writer, max_shard_bytes);
  return LS_OK;
}

static ls_status shards_begin(ls_safetensors_writer *writer, const ls_metadata_pair *metadata,
                              int metadata_count, bool joins, ls_error *error) {
  for (int i = 0; i < writer->shards.count; i++) {
    char *text = NULL;
    shard *file = &writer->shards.items[i];
    LS_TRY(header_text(writer, file, metadata, metadata_count, &text, error));
    file->done.path = file->path;
    file->done.bytes = file->header_bytes + file->data_bytes;
    if (!joins) LS_TRY(shard_begin(writer, i, text, error));
  }
  return LS_OK;
}

ls_status ls_safetensors_create(const char *path, const ls_tensor_spec *specs, int count,
                                const ls_metadata_pair *metadata, int metadata_count,
                                ls_safetensors_writer **writer, ls_error *error) {
  ls_status status = writer_create(specs, count, SIZE_MAX, writer, error);
  if (status == LS_OK) {
    (*writer)->shards.items[0].path = ls_arena_strdup((*writer)->arena, path);
    status = shards_begin(*writer, metadata, metadata_count, false, error);
  }
  if (status != LS_OK) ls_safetensors_abandon(writer);
  return status;
}

static void name_shards(ls_safetensors_writer *writer, const char *folder, const char *stem) {
  const int shards = writer->shards.count;
  for (int i = 0; i < shards; i++)
    writer->shards.items[i].path =
        shards == 1 ? ls_arena_printf(writer->arena, "%s/%s.safetensors", folder, stem)
                    : ls_arena_printf(writer->arena, "%s/%s-%05d-of-%05d.safetensors", folder, stem,
                                      i + 1, shards);
}

ls_status ls_safetensors_create_shards(const char *folder, const char *stem, size_t max_shard_bytes,
                                       const ls_tensor_spec *specs, int count,
                                       const ls_metadata_pair *metadata, int metadata_count,
                                       ls_safetensors_writer **made, ls_error *error) {
  ls_status status = writer_create(specs, count, max_shard_bytes, made, error);
  if (status == LS_OK) {
    ls_safetensors_writer *writer = *made;
    name_shards(writer, folder, stem);
    if (writer->shards.count > 1)
      writer->index = ls_arena_printf(writer->arena, "%s/%s.safetensors.index.json", folder, stem);
    status = shards_begin(writer, metadata, metadata_count, false, error);
  }
  if (status != LS_OK) ls_safetensors_abandon(made);
  return status;
}

ls_status ls_safetensors_join_shards(const char *folder, const char *stem, size_t max_shard_bytes,
                                     const ls_tensor_spec *specs, int count,
                                     const ls_metadata_pair *metadata, int metadata_count,
                                     ls_safetensors_writer **made, ls_error *error) {
  ls_status status = writer_create(specs, count, max_shard_bytes, made, error);
  if (status == LS_OK) {
    name_shards(*made, folder, stem);
    status = shards_begin(*made, metadata, metadata_count, true, error);
  }
  if (status != LS_OK) ls_safetensors_abandon(made);
  return status;
}

static ls_status write_bytes(ls_safetensors_writer *writer, const slot *each, uint64_t first,
                             const void *data, size_t bytes, ls_error *error) {
  LS_TRY(shard_open(writer, each->shard, 0, error));
  shard *file = &writer->shards.items[each->shard];
  return write_at(writer, file, data, bytes, file->header_bytes + each->begin + first, error);
}

ls_status ls_safetensors_write(ls_safetensors_writer *writer, int tensor, int64_t first,
                               const void *data, int64_t count, ls_error *error) {
  LS_ASSERT(!writer->failed && tensor >= 0 && tensor < writer->count);
  const slot *each = &writer->slots[tensor];
  const uint64_t element = ls_dtype_bytes(each->spec.dtype), elements = each->bytes / element;
  LS_ASSERT(first >= 0 && count >= 0 && (uint64_t)first + (uint64_t)count <= elements);
  const ls_status status = write_bytes(writer, each, (uint64_t)first * element, data,
                                       (size_t)((uint64_t)count * element), error);
  writer->failed = status != LS_OK;
  return status;
}

ls_status ls_safetensors_sync(ls_safetensors_writer *writer, ls_error *error) {
  LS_ASSERT(!writer->failed);
  ls_status status = LS_OK;
  for (int i = 0; i < writer->shards.count && status == LS_OK; i++) {
    shard *file = &writer->shards.items[i];
    if (file->done.written == 0) continue;
    status = shard_open(writer, i, 0, error);
    if (status == LS_OK) status = wait_behind(writer, file, error);
    if (status == LS_OK && fsync(file->descriptor) && errno != EINVAL)
      status = fail_write(file, "cannot write", error);
  }
  if (status == LS_OK) status = shard_close(writer, error);
  writer->failed = status != LS_OK;
  return status;
}

int ls_safetensors_files(const ls_safetensors_writer *writer) {
  return writer->shards.count;
}

ls_written_file ls_safetensors_file(const ls_safetensors_writer *writer, int file) {
  LS_ASSERT(file >= 0 && file < writer->shards.count);
  return writer->shards.items[file].done;
}

static ls_status append(ls_safetensors_writer *writer, const char *data, size_t bytes,
                        ls_error *error) {
  while (bytes > 0) {
    while (writer->current < writer->count &&
           writer->written == writer->slots[writer->current].bytes) {
      writer->current++;
      writer->written = 0;
    }
    if (writer->current == writer->count) {
      return ls_fail(error, LS_INTERNAL, "%s: %zu bytes more than its tensors have were appended",
                     writer->shards.items[0].path, bytes);
    }
    const slot *each = &writer->slots[writer->current];
    const uint64_t left = each->bytes - writer->written;
    const size_t now = bytes < left ? bytes : (size_t)left;
    LS_TRY(write_bytes(writer, each, writer->written, data, now, error));
    writer->written += now;
    data += now;
    bytes -= now;
  }
  return LS_OK;
}

ls_status ls_safetensors_append(ls_safetensors_writer *writer, const void *data, size_t bytes,
                                ls_error *error) {
  LS_ASSERT(!writer->failed);
  const ls_status status = append(writer, data, bytes, error);
  writer->failed = status != LS_OK;
  return status;
}

static const char *base_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

/* {"metadata": {"total_size": N}, "weight_map": {name: shard}}, keys sorted, as transformers does.
 */
static ls_status write_index(const ls_safetensors_writer *writer, ls_error *error) {
  json_t *map = json_object();
  for (int i = 0; i < writer->count; i++) {
    const slot *each = &writer->slots[i];
    set_string(map, each->spec.name, base_name(writer->shards.items[each->shard].path));
  }
  json_t *root = json_pack("{s:{s:I}, s:o}", "metadata", "total_size",
                           (json_int_t)writer->total_bytes, "weight_map", map);
  char *text = json_dumps(root, JSON_INDENT(2) | JSON_SORT_KEYS);
  json_decref(root);
  if (!text) return ls_fail(error, LS_FAILED, "%s: out of memory for the index", writer->index);
  const char *whole = ls_arena_printf(writer->arena, "%s\n", text);
  free(text);
  return ls_file_write(writer->index, whole, strlen(whole), error);
}

static ls_status check_complete(const ls_safetensors_writer *writer, ls_error *error) {
  uint64_t missing = 0;
  for (int i = writer->current; i < writer->count; i++) missing += writer->slots[i].bytes;
  if (writer->current < writer->count) missing -= writer->written;
  if (missing == 0) return LS_OK;
  const char *name = writer->slots[writer->current].spec.name;
  return ls_fail(error, LS_INTERNAL, "%s: %llu bytes were not appended, from tensor \"%s\" on",
                 writer->shards.items[0].path, (unsigned long long)missing, name);
}

static ls_status leave(ls_safetensors_writer *writer, ls_error *error) {
  LS_ASSERT(!writer->failed);
  LS_TRY(shard_close(writer, error));
  return writer->index ? write_index(writer, error) : LS_OK;
}

static ls_status finish(ls_safetensors_writer *writer, ls_error *error) {
  LS_TRY(check_complete(writer, error));
  return leave(writer, error);
}

static void writer_free(ls_safetensors_writer **writer) {
  ls_write_behind_destroy(&(*writer)->behind);
  ls_arena *arena = (*writer)->arena;
  *writer = NULL;
  ls_arena_destroy(&arena);
}

static ls_status end(ls_safetensors_writer **writer, ls_status status) {
  if (status == LS_OK)
    writer_free(writer);
  else
    ls_safetensors_abandon(writer);
  return status;
}

ls_status ls_safetensors_finish(ls_safetensors_writer **writer, ls_error *error) {
  return end(writer, finish(*writer, error));
}

ls_status ls_safetensors_leave(ls_safetensors_writer **writer, ls_error *error) {
  return end(writer, leave(*writer, error));
}

void ls_safetensors_abandon(ls_safetensors_writer **writer) {
  if (!*writer) return;
  ls_write_behind_destroy(&(*writer)->behind);
  for (int i = 0; i < (*writer)->shards.count; i++) {
    shard *file = &(*writer)->shards.items[i];
    if (file->direct >= 0) close(file->direct);
    if (file->descriptor >= 0) close(file->descriptor);
    if (file->created) unlink(file->path);
  }
  writer_free(writer);
}
