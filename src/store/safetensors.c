#include "store/safetensors.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/file.h"
#include "store/quantised.h"
#include "store/safetensors_format.h"
#include "text/json.h"
#include "text/quote.h"

/* Headers and data are little-endian and read in place. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "safetensors needs a little-endian host");

static const char metadata_key[] = "__metadata__";

typedef LS_LIST(ls_stored_tensor) tensor_list;

struct ls_safetensors {
  ls_arena *arena;
  LS_LIST(ls_map) maps;
  tensor_list tensors;
  LS_LIST(ls_metadata_pair) metadata;
  _Atomic int64_t bytes_read;
  int *slots; /* hash table of indices into tensors, -1 for none; a power of two of them */
  size_t slot_count;
};

static uint64_t hash_of(const char *name) {
  uint64_t hash = 14695981039346656037u; /* FNV-1a */
  for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 1099511628211u;
  return hash ^ hash >> 32;
}

static void index_names(ls_safetensors *set) {
  const size_t count = (size_t)set->tensors.count;
  set->slot_count = 16;
  while (set->slot_count < 2 * count) set->slot_count *= 2;
  set->slots = LS_NEW_ARRAY(set->arena, int, set->slot_count);
  for (size_t i = 0; i < set->slot_count; i++) set->slots[i] = -1;
  for (int i = 0; i < set->tensors.count; i++) {
    size_t slot = hash_of(set->tensors.items[i].name) & (set->slot_count - 1);
    while (set->slots[slot] >= 0) slot = (slot + 1) & (set->slot_count - 1);
    set->slots[slot] = i;
  }
}

/* One entry of the header while it is checked. */
typedef struct entry {
  const char *name;
  const ls_format *format;
  const int64_t *dims;
  int ndim;
  int64_t count;
  uint64_t begin, end;
} entry;

static int by_offset(const void *first, const void *second) {
  const entry *a = first, *b = second;
  if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
  if (a->end != b->end) return a->end < b->end ? -1 : 1;
  return strcmp(a->name, b->name);
}

static ls_status fail_entry(const char *file, const char *name, const char *problem,
                            ls_error *error) {
  char shown[LS_QUOTE_BYTES];
  return ls_fail(error, LS_INPUT, "%s: tensor \"%s\": %s", file,
                 ls_quote(shown, name, strlen(name)), problem);
}

/* The shape's elements and bytes, exact; the format's bits may not fill a byte. */
static ls_status measure(const char *file, entry *each, uint64_t *bytes, ls_error *error) {
  uint64_t bits = 0;
  int64_t count = 1;
  for (int i = 0; i < each->ndim; i++) {
    if (__builtin_mul_overflow(count, each->dims[i], &count)) {
      return fail_entry(file, each->name,
                        "found a shape of more than 2^63 elements; expected a real one", error);
    }
  }
  if (__builtin_mul_overflow((uint64_t)count, (uint64_t)each->format->bits, &bits)) {
    return fail_entry(file, each->name,
                      "found a shape of more than 2^61 bytes; expected a real one", error);
  }
  if (bits % 8 != 0) {
    return fail_entry(file, each->name,
                      "found a shape that ends within a byte; expected whole bytes", error);
  }
  each->count = count;
  *bytes = bits / 8;
  return LS_OK;
}

static ls_status read_entry(ls_arena *arena, const char *file, const char *name, const json_t *json,
                            entry *each, ls_error *error) {
  char shown[LS_QUOTE_BYTES];
  ls_quote(shown, name, strlen(name));
  ls_json_object object;
  LS_TRY(
      ls_json_root(ls_arena_printf(arena, "%s: tensor \"%s\"", file, shown), json, &object, error));
  const char *format = NULL;
  LS_TRY(ls_json_string(&object, "dtype", &format, error));
  each->name = ls_arena_strdup(arena, name);
  each->format = ls_format_find(format);
  if (!each->format) {
    char dtype[LS_QUOTE_BYTES];
    return ls_fail(
        error, LS_INPUT,
        "%s: \"dtype\": found \"%s\"; expected one that safetensors has (F32, BF16, ...)",
        object.where, ls_quote(dtype, format, strlen(format)));
  }
  int64_t *dims = NULL, *offsets = NULL;
  int offset_count = 0;
  LS_TRY(ls_json_ints(arena, &object, "shape", &dims, &each->ndim, error));
  LS_TRY(ls_json_ints(arena, &object, "data_offsets", &offsets, &offset_count, error));
  for (int i = 0; i < each->ndim; i++) {
    if (dims[i] < 0) {
      return fail_entry(file, name, "found a negative size in its shape; expected 0 or more",
                        error);
    }
  }
  if (offset_count != 2 || offsets[0] < 0 || offsets[1] < offsets[0]) {
    return fail_entry(file, name,
                      "found data_offsets that are no [begin, end]; expected 0 <= begin <= end",
                      error);
  }
  each->dims = dims;
  each->begin = (uint64_t)offsets[0];
  each->end = (uint64_t)offsets[1];
  uint64_t bytes = 0;
  LS_TRY(measure(file, each, &bytes, error));
  if (each->end - each->begin == bytes) return LS_OK;
  return ls_fail(
      error, LS_INPUT, "%s: found %llu bytes of data; expected %llu for its dtype and shape",
      object.where, (unsigned long long)(each->end - each->begin), (unsigned long long)bytes);
}

/* Integers only: ls_json_ints would take 2.0, which the reference refuses. */
static bool has_real(const json_t *array) {
  size_t i;
  const json_t *item;
  json_array_foreach((json_t *)array, i, item) {
    if (json_is_real(item)) return true;
  }
  return false;
}

static ls_status read_metadata(ls_safetensors *set, const char *file, const json_t *json, bool keep,
                               ls_error *error) {
  if (!json || json_is_null(json)) return LS_OK;
  ls_json_object object;
  LS_TRY(ls_json_root(ls_arena_printf(set->arena, "%s: \"%s\"", file, metadata_key), json, &object,
                      error));
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)json, key, value) {
    if (!json_is_string(value)) {
      const char *unused;
      return ls_json_string(&object, key, &unused, error);
    }
    if (!keep) continue;
    ls_metadata_pair *pair = LS_APPEND(set->arena, &set->metadata);
    pair->key = ls_arena_strdup(set->arena, key);
    pair->value = ls_arena_strdup(set->arena, json_string_value(value));
  }
  return LS_OK;
}

/* Sorts the entries by place and sees that they fill `bytes` without a hole or an overlap. */
static ls_status check_layout(const char *file, entry *entries, int count, uint64_t bytes,
                              ls_error *error) {
  if (count > 0) qsort(entries, (size_t)count, sizeof *entries, by_offset);
  uint64_t end = 0;
  for (int i = 0; i < count; i++) {
    if (entries[i].begin != end) {
      char shown[LS_QUOTE_BYTES];
      ls_quote(shown, entries[i].name, strlen(entries[i].name));
      return ls_fail(
          error, LS_INPUT,
          "%s: tensor \"%s\": found its data at byte %llu; expected byte %llu, where the "
          "data before it ends",
          file, shown, (unsigned long long)entries[i].begin, (unsigned long long)end);
    }
    end = entries[i].end;
  }
  if (end == bytes) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s: found %llu bytes of data; expected %llu: %s", file,
                 (unsigned long long)bytes, (unsigned long long)end,
                 bytes < end ? "it is cut short, copy or download it again"
                             : "there is something after the last tensor");
}

static ls_status read_entries(ls_safetensors *set, const char *file, const json_t *root, bool keep,
                              entry **entries, int *count, ls_error *error) {
  *count = 0;
  *entries = LS_NEW_ARRAY(set->arena, entry, json_object_size(root) + 1);
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)root, key, value) {
    if (strcmp(key, metadata_key) == 0) {
      LS_TRY(read_metadata(set, file, value, keep, error));
      continue;
    }
    if (has_real(json_object_get(value, "shape")) ||
        has_real(json_object_get(value, "data_offsets"))) {
      return fail_entry(file, key,
                        "found a fraction in shape or data_offsets; expected whole numbers", error);
    }
    LS_TRY(read_entry(set->arena, file, key, value, &(*entries)[(*count)++], error));
  }
  return LS_OK;
}

/* The header's length, checked against the file's. */
static ls_status header_bytes(const char *file, const void *data, size_t bytes, size_t *header,
                              ls_error *error) {
  if (ls_is_lfs_pointer(data, bytes)) {
    return ls_fail(error, LS_INPUT,
                   "%s: found a git-lfs pointer; expected weights: fetch the file itself (git lfs "
                   "pull)",
                   file);
  }
  if (bytes < LS_SAFETENSORS_PREFIX) {
    return ls_fail(error, LS_INPUT,
                   "%s: found %zu bytes; expected a safetensors file, of at least 8", file, bytes);
  }
  uint64_t length;
  memcpy(&length, data, sizeof length);
  if (length > LS_SAFETENSORS_MAX_HEADER) {
    return ls_fail(
        error, LS_INPUT,
        "%s: found a header of %llu bytes; expected at most %d: it is no safetensors file", file,
        (unsigned long long)length, (int)LS_SAFETENSORS_MAX_HEADER);
  }
  if (length > bytes - LS_SAFETENSORS_PREFIX) {
    return ls_fail(
        error, LS_INPUT,
        "%s: found a header of %llu bytes in a file of %zu; expected the whole header: it "
        "is cut short or no safetensors file",
        file, (unsigned long long)length, bytes);
  }
  *header = (size_t)length;
  return LS_OK;
}

static ls_status parse_header(ls_arena *arena, const char *file, const char *text, size_t bytes,
                              json_t **root, ls_error *error) {
  size_t blank = 0;
  while (blank < bytes && memchr(" \t\r\n", text[blank], 4)) blank++;
  if (blank == bytes || text[blank] != '{') {
    return ls_fail(error, LS_INPUT, "%s: found no '{' at the start of the header; expected JSON",
                   file);
  }
  const char *name = ls_arena_printf(arena, "%s: header", file);
  return ls_json_parse(name, text, bytes, LS_JSON_EXACT, root, error);
}

/* Appends one file's tensors to `found`, in the order of their data. */
static ls_status parse_file(ls_safetensors *set, const char *file, const char *data, size_t bytes,
                            tensor_list *found, ls_error *error) {
  size_t header = 0;
  LS_TRY(header_bytes(file, data, bytes, &header, error));
  json_t *root = NULL;
  LS_TRY(parse_header(set->arena, file, data + LS_SAFETENSORS_PREFIX, header, &root, error));
  const size_t start = LS_SAFETENSORS_PREFIX + header;
  entry *entries = NULL;
  int count = 0;
  ls_status status = read_entries(set, file, root, set->maps.count <= 1, &entries, &count, error);
  json_decref(root);
  if (status == LS_OK) status = check_layout(file, entries, count, bytes - start, error);
  LS_TRY(status);
  for (int i = 0; i < count; i++) {
    const entry *each = &entries[i];
    const size_t size = (size_t)(each->end - each->begin);
    *LS_APPEND(set->arena, found) =
        (ls_stored_tensor){.name = each->name,
                           .format = each->format->name,
                           .dtype = each->format->dtype,
                           .ndim = each->ndim,
                           .dims = each->dims,
                           .count = each->count,
                           .data = size ? data + start + each->begin : NULL,
                           .bytes = size,
                           .file = file,
                           .set = set};
  }
  return LS_OK;
}

static ls_status open_file(ls_safetensors *set, const char *path, tensor_list *found,
                           ls_error *error) {
  ls_map map;
  LS_TRY(ls_file_map(path, &map, error));
  *LS_APPEND(set->arena, &set->maps) = map;
  return parse_file(set, ls_arena_strdup(set->arena, path), map.data ? map.data : "", map.bytes,
                    found, error);
}

/* Shards by number of files are few, tensors many: names are compared with the last one first. */
typedef LS_LIST(const char *) name_list;

static void name_add(ls_arena *arena, name_list *names, const char *name) {
  for (int i = names->count - 1; i >= 0; i--) {
    if (strcmp(names->items[i], name) == 0) return;
  }
  *LS_APPEND(arena, names) = name;
}

static int by_name(const void *first, const void *second) {
  return strcmp(*(const char *const *)first, *(const char *const *)second);
}

/* The shards' names, sorted; each must be a file beside the index. */
static ls_status shard_names(ls_safetensors *set, const ls_json_object *map, name_list *shards,
                             ls_error *error) {
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)map->json, key, value) {
    const char *shard = NULL;
    LS_TRY(ls_json_string(map, key, &shard, error));
    if (shard[0] == '\0' || shard[0] == '.' || strchr(shard, '/')) {
      char shown[LS_QUOTE_BYTES];
      return ls_fail(error, LS_INPUT,
                     "%s: found the shard \"%s\"; expected a file beside the index", map->where,
                     ls_quote(shown, shard, strlen(shard)));
    }
    name_add(set->arena, shards, shard);
  }
  if (shards->count > 0) {
    qsort(shards->items, (size_t)shards->count, sizeof *shards->items, by_name);
  }
  return LS_OK;
}

static ls_status open_shard(ls_safetensors *set, const char *index, const ls_json_object *map,
                            const char *shard, ls_error *error) {
  const char *slash = strrchr(index, '/');
  const int folder = slash ? (int)(slash - index) + 1 : 0;
  const char *path = ls_arena_printf(set->arena, "%.*s%s", folder, index, shard);
  if (!ls_file_exists(path)) {
    return ls_fail(error, LS_INPUT, "%s: found no such file; expected the shard that %s names",
                   path, index);
  }
  tensor_list found = {0};
  LS_TRY(open_file(set, path, &found, error));
  for (int i = 0; i < found.count; i++) {
    const json_t *named = json_object_get(map->json, found.items[i].name);
    if (!named || strcmp(json_string_value(named), shard) != 0) continue;
    *LS_APPEND(set->arena, &set->tensors) = found.items[i];
  }
  return LS_OK;
}

static ls_status open_shards(ls_safetensors *set, const char *index, const json_t *root,
                             ls_error *error) {
  ls_json_object object, map;
  LS_TRY(ls_json_root(index, root, &object, error));
  LS_TRY(ls_json_child(set->arena, &object, "weight_map", &map, error));
  name_list shards = {0};
  LS_TRY(shard_names(set, &map, &shards, error));
  for (int i = 0; i < shards.count; i++) {
    LS_TRY(open_shard(set, index, &map, shards.items[i], error));
  }
  index_names(set);
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)map.json, key, value) {
    if (ls_safetensors_find(set, key)) continue;
    char shown[LS_QUOTE_BYTES];
    return ls_fail(error, LS_INPUT, "%s: found no tensor \"%s\" in %s; expected it there", index,
                   ls_quote(shown, key, strlen(key)), json_string_value(value));
  }
  return LS_OK;
}

static ls_status open_index(ls_safetensors *set, const char *path, ls_error *error) {
  json_t *root = NULL;
  LS_TRY(ls_json_read(path, 0, &root, error));
  const ls_status status = open_shards(set, path, root, error);
  json_decref(root);
  return status;
}

static ls_status open_any(ls_safetensors *set, const char *path, const char *stem,
                          ls_error *error) {
  static const char index_end[] = ".json";
  const size_t length = strlen(path), end = sizeof index_end - 1;
  if (!ls_directory_exists(path)) {
    if (length > end && strcmp(path + length - end, index_end) == 0) {
      return open_index(set, path, error);
    }
    LS_TRY(open_file(set, path, &set->tensors, error));
    index_names(set);
    return LS_OK;
  }
  const char *file = ls_arena_printf(set->arena, "%s/%s.safetensors", path, stem);
  const char *index = ls_arena_printf(set->arena, "%s.index.json", file);
  if (ls_file_exists(file)) return open_any(set, file, stem, error);
  if (ls_file_exists(index)) return open_index(set, index, error);
  const char *pickle = ls_arena_printf(set->arena, "%s/pytorch_%s.bin", path, stem);
  if (ls_file_exists(pickle)) {
    return ls_fail(error, LS_INPUT,
                   "%s: found pytorch_%s.bin only; expected %s.safetensors: save it again with "
                   "safe_serialization",
                   path, stem, stem);
  }
  return ls_fail(
      error, LS_INPUT,
      "%s: found no %s.safetensors and no %s.safetensors.index.json; expected one of them", path,
      stem, stem);
}

/* What is beside quantised tensors goes with them. */
static ls_status join_quantised(ls_safetensors *set, ls_error *error) {
  int left = 0;
  for (int i = 0; i < set->tensors.count; i++)
    LS_TRY(ls_quantised_find(set->arena, &set->tensors.items[i], error));
  bool *parts = LS_NEW_ARRAY(set->arena, bool, set->tensors.count + 1);
  for (int i = 0; i < set->tensors.count; i++)
    parts[i] = ls_quantised_is_part(&set->tensors.items[i]);
  for (int i = 0; i < set->tensors.count; i++)
    if (!parts[i]) set->tensors.items[left++] = set->tensors.items[i];
  if (left < set->tensors.count) {
    set->tensors.count = left;
    index_names(set);
  }
  return LS_OK;
}

static ls_safetensors *set_create(void) {
  ls_arena *arena = ls_arena_create();
  ls_safetensors *set = LS_NEW(arena, ls_safetensors);
  set->arena = arena;
  return set;
}

ls_status ls_safetensors_open(const char *path, const char *stem, ls_safetensors **opened,
                              ls_error *error) {
  *opened = set_create();
  ls_status status = open_any(*opened, path, stem ? stem : "model", error);
  if (status == LS_OK) status = join_quantised(*opened, error);
  if (status != LS_OK) ls_safetensors_close(opened);
  return status;
}

ls_status ls_safetensors_parse(const char *name, const void *data, size_t bytes,
                               ls_safetensors **opened, ls_error *error) {
  *opened = set_create();
  const char *file = ls_arena_strdup((*opened)->arena, name);
  ls_status status = parse_file(*opened, file, data, bytes, &(*opened)->tensors, error);
  if (status == LS_OK) {
    index_names(*opened);
    status = join_quantised(*opened, error);
  }
  if (status != LS_OK) ls_safetensors_close(opened);
  return status;
}

void ls_safetensors_close(ls_safetensors **opened) {
  if (!*opened) return;
  for (int i = 0; i < (*opened)->maps.count; i++) ls_file_unmap(&(*opened)->maps.items[i]);
  ls_arena *arena = (*opened)->arena;
  *opened = NULL;
  ls_arena_destroy(&arena);
}

int ls_safetensors_count(const ls_safetensors *opened) {
  return opened->tensors.count;
}

const ls_stored_tensor *ls_safetensors_at(const ls_safetensors *opened, int index) {
  LS_ASSERT(index >= 0 && index < opened->tensors.count);
  return &opened->tensors.items[index];
}

const ls_stored_tensor *ls_safetensors_find(const ls_safetensors *opened, const char *name) {
  for (size_t slot = hash_of(name);; slot++) {
    const int index = opened->slots[slot & (opened->slot_count - 1)];
    if (index < 0) return NULL;
    if (strcmp(opened->tensors.items[index].name, name) == 0) return &opened->tensors.items[index];
  }
}

const char *ls_safetensors_metadata(const ls_safetensors *opened, const char *key) {
  for (int i = 0; i < opened->metadata.count; i++) {
    if (strcmp(opened->metadata.items[i].key, key) == 0) return opened->metadata.items[i].value;
  }
  return NULL;
}

static bool is_float(ls_dtype dtype) {
  return dtype == LS_F32 || dtype == LS_BF16 || dtype == LS_F16 || dtype == LS_F64;
}

/* By blocks, of which the first and the last may be wanted in part. */
static ls_status read_quantised(const ls_stored_tensor *tensor, int64_t first, int64_t count,
                                ls_dtype dtype, void *target, ls_error *error) {
  const ls_dtype kind = tensor->quantised->blocks;
  tensor->set->bytes_read += (int64_t)ls_quantised_bytes(tensor->quantised, count);
  if (kind == LS_DTYPE_COUNT)
    return ls_quantised_restore(tensor, first, count, dtype, target, error);
  if (ls_blocks_single(dtype) == kind) {
    LS_ASSERT(first % LS_BLOCK_WEIGHTS == 0 && count % LS_BLOCK_WEIGHTS == 0);
    if (dtype != kind)
      return ls_quantised_read_double(tensor, first / LS_BLOCK_WEIGHTS, count / LS_BLOCK_WEIGHTS,
                                      target, error);
    return ls_quantised_read(tensor, first / LS_BLOCK_WEIGHTS, count / LS_BLOCK_WEIGHTS, target,
                             error);
  }
  char *to = target;
  for (int64_t at = first; at < first + count;) {
    const int64_t begin = at % LS_BLOCK_WEIGHTS, left = first + count - at;
    const int64_t now = left < LS_BLOCK_WEIGHTS - begin ? left : LS_BLOCK_WEIGHTS - begin;
    ls_int8_block block; /* the larger one */
    float weights[LS_BLOCK_WEIGHTS];
    LS_TRY(ls_quantised_read(tensor, at / LS_BLOCK_WEIGHTS, 1, &block, error));
    ls_blocks_restore(kind, &block, 1, weights);
    ls_convert(to, dtype, weights + begin, LS_F32, now);
    to += (size_t)now * ls_dtype_bytes(dtype);
    at += now;
  }
  return LS_OK;
}

ls_status ls_stored_tensor_read(const ls_stored_tensor *tensor, int64_t first, int64_t count,
                                ls_dtype dtype, void *target, ls_error *error) {
  if (first < 0 || count < 0 || first > tensor->count || count > tensor->count - first) {
    return ls_fail(error, LS_INPUT,
                   "%s: tensor \"%s\": found %lld elements; expected %lld from element %lld on",
                   tensor->file, tensor->name, (long long)tensor->count, (long long)count,
                   (long long)first);
  }
  const bool blocks = tensor->quantised && ls_blocks_single(dtype) == tensor->quantised->blocks;
  if (tensor->dtype != dtype && !(is_float(tensor->dtype) && is_float(dtype)) && !blocks) {
    return ls_fail(error, LS_INPUT, "%s: tensor \"%s\": found %s; expected what converts to %s",
                   tensor->file, tensor->name, tensor->format, ls_dtype_name(dtype));
  }
  if (count == 0) return LS_OK;
  if (tensor->quantised) return read_quantised(tensor, first, count, dtype, target, error);
  tensor->set->bytes_read += count * (int64_t)ls_dtype_bytes(tensor->dtype);
  const size_t from_bytes = ls_dtype_bytes(tensor->dtype), to_bytes = ls_dtype_bytes(dtype);
  const char *source = (const char *)tensor->data + (size_t)first * from_bytes;
  if (tensor->dtype == dtype) {
    memcpy(target, source, (size_t)count * from_bytes);
    return LS_OK;
  }
  /* The file may have its data at any byte, conversions want it aligned: through a small buffer. */
  enum { PIECE = 1024 };
  _Alignas(64) char piece[PIECE * sizeof(double)];
  for (int64_t done = 0; done < count; done += PIECE) {
    const int64_t now = count - done < PIECE ? count - done : PIECE;
    memcpy(piece, source + (size_t)done * from_bytes, (size_t)now * from_bytes);
    ls_convert((char *)target + (size_t)done * to_bytes, dtype, piece, tensor->dtype, now);
  }
  return LS_OK;
}

/* Elements of a tensor in a map, and their bytes; NULL where it is in memory. Of a quantised one
 * those of its codes, but for the first and the last where they are in part of a byte. */
static const char *mapped(const ls_stored_tensor *tensor, int64_t first, int64_t count,
                          size_t *bytes) {
  LS_ASSERT(first >= 0 && count >= 0 && count <= tensor->count - first);
  if (tensor->set->maps.count == 0 || tensor->dtype == LS_DTYPE_COUNT || count == 0) return NULL;
  const size_t each = ls_dtype_bytes(tensor->dtype);
  const ls_quantised *of = tensor->quantised;
  *bytes = of ? ls_quantised_bytes(of, count) : (size_t)count * each;
  return (const char *)tensor->data + (of ? ls_quantised_bytes(of, first) : (size_t)first * each);
}

void ls_stored_tensor_expect(const ls_stored_tensor *tensor, int64_t first, int64_t count) {
  size_t bytes;
  const char *data = mapped(tensor, first, count, &bytes);
  if (data) ls_map_expect(data, bytes);
}

ls_status ls_stored_tensor_fetch(const ls_stored_tensor *tensor, int64_t first, int64_t count,
                                 ls_error *error) {
  size_t bytes;
  const char *data = mapped(tensor, first, count, &bytes);
  if (!data) return LS_OK;
  return ls_map_fetch(tensor->file, data, bytes, error);
}

void ls_stored_tensor_release(const ls_stored_tensor *tensor, int64_t first, int64_t count) {
  size_t bytes;
  const char *data = mapped(tensor, first, count, &bytes);
  if (data) ls_map_release(data, bytes);
}

int64_t ls_safetensors_bytes_read(const ls_safetensors *opened) {
  return opened->bytes_read;
}
