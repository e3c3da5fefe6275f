#include "checkpoint/checkpoint_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/stop.h"
#include "checkpoint/checkpoint.h"
#include "text/json.h"

enum { STATE_FORMAT = 2, PIECE_BYTES = 4 << 20 };

static const char state_name[] = "state.json";
static const char checksum_key[] = "checksum";

/* Of the state without its own checksum, in a form that does not depend on layout or order. */
static ls_status state_checksum(const json_t *state, char text[LS_CHECKSUM_DIGITS + 1],
                                ls_error *error) {
  json_t *bare = json_copy((json_t *)state);
  if (bare) json_object_del(bare, checksum_key);
  char *dump = bare ? json_dumps(bare, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
  json_decref(bare);
  if (!dump) return ls_fail(error, LS_FAILED, "%s: out of memory", state_name);
  ls_checksum sum = {0};
  ls_checksum_add(&sum, 0, dump, strlen(dump));
  ls_checksum_text(&sum, text);
  free(dump);
  return LS_OK;
}

static ls_status fail_size(const char *path, uint64_t found, uint64_t bytes, ls_error *error) {
  return ls_fail(error, LS_INPUT, "%s: damaged: it has %llu bytes; %llu were written", path,
                 (unsigned long long)found, (unsigned long long)bytes);
}

/* That a file can be read at all: what is not there is damage (LS_INPUT), what the system refuses
 * or fails to read is none (LS_FAILED). */
static ls_status check_readable(const char *path, int64_t *bytes, ls_error *error) {
  *bytes = -1;
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  struct stat info;
  int reason = file < 0 || fstat(file, &info) ? errno : 0;
  if (file >= 0) close(file);
  if (!reason) *bytes = info.st_size;
  if (!reason) return LS_OK;
  if (reason == ENOENT || reason == ENOTDIR)
    return ls_fail(error, LS_INPUT, "%s: damaged: it is missing", path);
  return ls_fail(error, LS_FAILED, "%s: cannot be read: %s", path, strerror(reason));
}

/* Bytes [begin, end) of a file that is to have `bytes`: in pieces, the next one asked for while one
 * is summed. */
static ls_status sum_file(const char *path, uint64_t bytes, uint64_t begin, uint64_t end,
                          bool may_stop, ls_checksum *sum, ls_error *error) {
  ls_map map;
  int64_t found;
  LS_TRY(check_readable(path, &found, error));
  LS_TRY(ls_file_map(path, &map, error));
  ls_status status = LS_OK;
  if (map.bytes != bytes) status = fail_size(path, map.bytes, bytes, error);
  for (uint64_t at = begin; at < end && status == LS_OK; at += PIECE_BYTES) {
    const size_t some = end - at < PIECE_BYTES ? (size_t)(end - at) : PIECE_BYTES;
    const size_t left = (size_t)(end - at) - some;
    const char *data = (const char *)map.data + at;
    if (may_stop) status = ls_stop_check("verifying a checkpoint", error);
    if (status != LS_OK) break;
    if (at == begin) ls_map_expect(data, some);
    ls_map_expect(data + some, left < PIECE_BYTES ? left : PIECE_BYTES);
    status = ls_map_fetch(path, data, some, error);
    /* The file still has these bytes, so it is the drive that fails. */
    if (status != LS_OK && check_readable(path, &found, NULL) == LS_OK && found == (int64_t)bytes)
      status = ls_fail(error, LS_FAILED, "%s: cannot be read: the drive fails", path);
    if (status == LS_OK) ls_checksum_add(sum, at, data, some);
    ls_map_release(data, some);
  }
  ls_file_unmap(&map);
  return status;
}

static ls_status sum_whole(ls_arena *arena, const char *folder, const char *name,
                           ls_sealed_file *made, ls_error *error) {
  const char *path = ls_arena_printf(arena, "%s/%s", folder, name);
  struct stat info;
  if (stat(path, &info))
    return ls_fail(error, LS_FAILED, "%s: cannot be read: %s", path, strerror(errno));
  *made = (ls_sealed_file){.name = name, .bytes = (uint64_t)info.st_size};
  return sum_file(path, made->bytes, 0, made->bytes, false, &made->checksum, error);
}

static ls_status add_file(ls_arena *arena, const char *folder, const char *name,
                          const ls_sealed_file *known, int count, json_t *files, ls_error *error) {
  ls_sealed_file made = {0};
  for (int i = 0; i < count; i++)
    if (strcmp(known[i].name, name) == 0) made = known[i];
  if (!made.name) LS_TRY(sum_whole(arena, folder, name, &made, error));
  char text[LS_CHECKSUM_DIGITS + 1];
  ls_checksum_text(&made.checksum, text);
  json_t *about = json_pack("{s:I, s:s}", "bytes", (json_int_t)made.bytes, checksum_key, text);
  if (json_object_set_new(files, name, about) == 0) return LS_OK;
  return ls_fail(error, LS_FAILED, "%s: out of memory", state_name);
}

static ls_status add_files(ls_arena *arena, const char *folder, const ls_sealed_file *known,
                           int count, json_t *files, ls_error *error) {
  DIR *directory = opendir(folder);
  if (!directory)
    return ls_fail(error, LS_FAILED, "%s: cannot be read: %s", folder, strerror(errno));
  ls_status status = LS_OK;
  const struct dirent *entry;
  while (status == LS_OK && (entry = readdir(directory)))
    if (entry->d_name[0] != '.' && strcmp(entry->d_name, state_name) != 0)
      status = add_file(arena, folder, entry->d_name, known, count, files, error);
  closedir(directory);
  return status;
}

static ls_status seal(ls_arena *arena, const char *folder, json_t *state,
                      const ls_sealed_file *known, int count, ls_error *error) {
  json_t *files = json_object();
  int failed = json_object_set_new(state, "format", json_integer(STATE_FORMAT));
  failed |= json_object_set_new(state, "files", files);
  if (failed) return ls_fail(error, LS_FAILED, "%s: out of memory", state_name);
  LS_TRY(add_files(arena, folder, known, count, files, error));
  char text[LS_CHECKSUM_DIGITS + 1];
  LS_TRY(state_checksum(state, text, error));
  char *dump = NULL;
  if (json_object_set_new(state, checksum_key, json_string(text)) == 0)
    dump = json_dumps(state, JSON_INDENT(2));
  if (!dump) return ls_fail(error, LS_FAILED, "%s: out of memory", state_name);
  const char *path = ls_arena_printf(arena, "%s/%s", folder, state_name);
  const char *lines = ls_arena_printf(arena, "%s\n", dump);
  free(dump);
  return ls_file_write(path, lines, strlen(lines), error);
}

ls_status ls_checkpoint_seal(const char *folder, json_t *state, const ls_sealed_file *known,
                             int count, ls_error *error) {
  ls_arena *arena = ls_arena_create();
  const ls_status status = seal(arena, folder, state, known, count, error);
  ls_arena_destroy(&arena);
  return status;
}

/* The folder that holds `path`, in the arena. */
static const char *parent_of(ls_arena *arena, const char *path) {
  const char *slash = strrchr(path, '/');
  if (!slash) return ".";
  return ls_arena_printf(arena, "%.*s", (int)(slash - path), path);
}

static int sync_folder(const char *path) {
  const int descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return errno;
  int reason = fsync(descriptor) ? errno : 0;
  if (reason == EINVAL) reason = 0; /* nothing to flush on this file system */
  close(descriptor);
  return reason;
}

static int exchange(const char *from, const char *to) {
  return renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE);
}

ls_rename_calls ls_checkpoint_renames = {exchange, rename};

/* Puts the flushed folder `whole` in the place of `final`; what was there has then the name `old`.
 */
static int replace(const char *whole, const char *old, const char *final) {
  const ls_rename_calls *calls = &ls_checkpoint_renames;
  if (!calls->exchange(whole, final)) return calls->rename(whole, old) ? errno : 0;
  if (errno != EINVAL && errno != ENOSYS) return errno;
  /* This file system cannot exchange (NFS): there is an instant without `final`. A kill in it
   * leaves both under names that ls_checkpoint_recover knows. */
  if (calls->rename(final, old)) return errno;
  if (!calls->rename(whole, final)) return 0;
  const int reason = errno;
  (void)!calls->rename(old, final);
  return reason;
}

ls_status ls_checkpoint_publish(const char *aside, const char *final, ls_error *error) {
  if (!ls_directory_exists(final)) return ls_directory_publish(aside, final, error);
  ls_arena *arena = ls_arena_create();
  const char *whole = ls_arena_printf(arena, "%s" LS_WHOLE, aside);
  const char *old = ls_arena_printf(arena, "%s" LS_OLD, aside);
  ls_status status = ls_directory_remove(whole, error);
  if (status == LS_OK) status = ls_directory_remove(old, error);
  if (status == LS_OK) status = ls_directory_publish(aside, whole, error);
  if (status == LS_OK) {
    int reason = replace(whole, old, final);
    if (!reason) reason = sync_folder(parent_of(arena, final));
    if (reason)
      status = ls_fail(error, LS_FAILED, "%s: cannot be written: %s", final, strerror(reason));
  }
  /* Only while the other copy is in its place. */
  if (ls_directory_exists(final) &&
      ls_directory_remove(status == LS_OK ? old : whole, NULL) != LS_OK)
    ls_warn("%s: cannot be removed: %s", status == LS_OK ? old : whole, strerror(errno));
  ls_arena_destroy(&arena);
  return status;
}

/* A whole number that counts something. */
static ls_status read_count(const ls_json_object *object, const char *key, int64_t *value,
                            ls_error *error) {
  LS_TRY(ls_json_int(object, key, value, error));
  if (*value >= 0) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s: damaged: \"%s\" is %lld; expected 0 or more", object->where,
                 key, (long long)*value);
}

static ls_status read_text(const char *path, const ls_json_object *object, const char *key,
                           char *to, size_t room, ls_error *error) {
  const char *text;
  LS_TRY(ls_json_string_or(object, key, "", &text, error));
  if (strlen(text) >= room)
    return ls_fail(error, LS_INPUT, "%s: \"%s\" has %zu bytes; expected at most %zu", path, key,
                   strlen(text), room - 1);
  snprintf(to, room, "%s", text);
  return LS_OK;
}

static ls_status read_state(const char *path, json_t *root, ls_checkpoint_state *state,
                            ls_error *error) {
  ls_json_object object;
  state->bytes_read = 0;
  LS_TRY(ls_json_root(path, root, &object, error));
  int64_t format;
  LS_TRY(ls_json_int(&object, "format", &format, error));
  if (format != STATE_FORMAT)
    return ls_fail(error, LS_INPUT,
                   "%s: format %lld; this version reads format %d: take the version that wrote "
                   "it",
                   path, (long long)format, STATE_FORMAT);
  const char *found;
  char expected[LS_CHECKSUM_DIGITS + 1];
  LS_TRY(ls_json_string(&object, checksum_key, &found, error));
  LS_TRY(state_checksum(root, expected, error));
  if (strcmp(found, expected) != 0)
    return ls_fail(error, LS_INPUT, "%s: damaged: its checksum is %s; it says %.20s", path,
                   expected, found);
  LS_TRY(read_count(&object, "step", &state->step, error));
  LS_TRY(read_count(&object, "tokens", &state->tokens, error));
  LS_TRY(read_count(&object, "sequences", &state->sequences, error));
  LS_TRY(
      read_text(path, &object, "loss_scale", state->loss_scale, sizeof state->loss_scale, error));
  LS_TRY(read_text(path, &object, "corpus", state->corpus, sizeof state->corpus, error));
  LS_TRY(read_text(path, &object, "base", state->base, sizeof state->base, error));
  LS_TRY(ls_checkpoint_best_read(path, root, state, error));
  return ls_json_int(&object, "seed", &state->seed, error);
}

static ls_status read_files(ls_arena *arena, const char *folder, json_t *files,
                            ls_sealed_folder *sealed, ls_error *error) {
  sealed->files = LS_NEW_ARRAY(arena, ls_sealed_entry, json_object_size(files) + 1);
  sealed->count = 0;
  const char *name;
  json_t *about;
  json_object_foreach(files, name, about) {
    ls_sealed_entry *entry = &sealed->files[sealed->count++];
    ls_json_object object;
    entry->path = ls_arena_printf(arena, "%s/%s", folder, name);
    if (strchr(name, '/'))
      return ls_fail(error, LS_INPUT, "%s/%s: damaged: it names \"%s\", which is no file's name",
                     folder, state_name, name);
    LS_TRY(ls_json_root(entry->path, about, &object, error));
    LS_TRY(read_count(&object, "bytes", &entry->bytes, error));
    const char *checksum;
    LS_TRY(ls_json_string(&object, checksum_key, &checksum, error));
    entry->checksum = ls_arena_strdup(arena, checksum);
  }
  return LS_OK;
}

ls_status ls_checkpoint_sealed(ls_arena *arena, const char *folder, ls_sealed_folder *sealed,
                               ls_error *error) {
  const char *path = ls_arena_printf(arena, "%s/%s", folder, state_name);
  int64_t bytes;
  LS_TRY(check_readable(path, &bytes, error));
  json_t *root = NULL;
  ls_status status = ls_json_read(path, LS_JSON_EXACT, &root, error);
  if (status == LS_OK) status = read_state(path, root, &sealed->state, error);
  if (status == LS_OK)
    status = read_files(arena, folder, json_object_get(root, "files"), sealed, error);
  json_decref(root);
  return status;
}

ls_status ls_checkpoint_state_read(const char *folder, ls_checkpoint_state *state,
                                   ls_error *error) {
  ls_arena *arena = ls_arena_create();
  ls_sealed_folder sealed;
  const ls_status status = ls_checkpoint_sealed(arena, folder, &sealed, error);
  if (status == LS_OK) *state = sealed.state;
  ls_arena_destroy(&arena);
  return status;
}

/* Whether a run needs the file to go on; the others can be edited or written anew. */
static bool is_needed(const ls_sealed_entry *entry) {
  static const char *const ends[] = {".safetensors", ".safetensors.index.json", "/config.json"};
  const size_t length = strlen(entry->path);
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
    const size_t end = strlen(ends[i]);
    if (length >= end && strcmp(entry->path + length - end, ends[i]) == 0) return true;
  }
  return false;
}

ls_status ls_checkpoint_check_sizes(const char *folder, ls_error *error) {
  ls_arena *arena = ls_arena_create();
  ls_sealed_folder sealed = {0};
  ls_status status = ls_checkpoint_sealed(arena, folder, &sealed, error);
  for (int i = 0; i < sealed.count && status == LS_OK; i++) {
    const ls_sealed_entry *entry = &sealed.files[i];
    int64_t bytes;
    if (!is_needed(entry)) continue;
    status = check_readable(entry->path, &bytes, error);
    if (status == LS_OK && bytes != entry->bytes)
      status = fail_size(entry->path, (uint64_t)bytes, (uint64_t)entry->bytes, error);
  }
  ls_arena_destroy(&arena);
  return status;
}

static bool is_among(ls_sealed_part which, const ls_sealed_entry *entry) {
  static const char moments[] = "/optimizer";
  return which == LS_SEALED_ALL ||
         strncmp(strrchr(entry->path, '/'), moments, strlen(moments)) != 0;
}

ls_status ls_checkpoint_sum(ls_arena *arena, const char *folder, ls_sealed_part which, int part,
                            int parts, ls_checksum **sums, int *count, ls_error *error) {
  ls_sealed_folder sealed;
  LS_TRY(ls_checkpoint_sealed(arena, folder, &sealed, error));
  *sums = LS_NEW_ARRAY(arena, ls_checksum, sealed.count + 1);
  *count = sealed.count;
  for (int i = 0; i < sealed.count; i++) {
    const ls_sealed_entry *entry = &sealed.files[i];
    if (!is_among(which, entry)) continue;
    const uint64_t whole = (uint64_t)entry->bytes, at_once = whole / (uint64_t)parts + 1;
    const uint64_t begin = at_once * (uint64_t)part, end = begin + at_once;
    const ls_status status =
        sum_file(entry->path, whole, begin, end < whole ? end : whole, true, &(*sums)[i], error);
    if (status == LS_OK) continue;
    if (is_needed(entry) || status == LS_STOPPED) return status;
    (*sums)[i] = (ls_checksum){1, 0}; /* of no file: ls_checkpoint_compare says so */
  }
  return LS_OK;
}

static ls_status compare_file(const ls_sealed_entry *entry, const ls_checksum *sum, bool warns,
                              ls_error *error) {
  char found[LS_CHECKSUM_DIGITS + 1];
  ls_checksum_text(sum, found);
  if (strcmp(found, entry->checksum) == 0) return LS_OK;
  if (is_needed(entry))
    return ls_fail(error, LS_INPUT, "%s: damaged: its checksum is %s; %.40s was written",
                   entry->path, found, entry->checksum);
  if (warns)
    ls_warn("%s: is not as it was written; weights and optimizer are, so the checkpoint is taken",
            entry->path);
  return LS_OK;
}

ls_status ls_checkpoint_compare(const char *folder, ls_sealed_part which, const ls_checksum *sums,
                                int count, bool warns, ls_error *error) {
  ls_arena *arena = ls_arena_create();
  ls_sealed_folder sealed;
  ls_status status = ls_checkpoint_sealed(arena, folder, &sealed, error);
  if (status == LS_OK) LS_ASSERT(sealed.count == count);
  for (int i = 0; i < count && status == LS_OK; i++)
    if (is_among(which, &sealed.files[i]))
      status = compare_file(&sealed.files[i], &sums[i], warns, error);
  ls_arena_destroy(&arena);
  return status;
}

ls_status ls_checkpoint_verify(const char *folder, ls_sealed_part which, ls_error *error) {
  ls_arena *arena = ls_arena_create();
  ls_checksum *sums = NULL;
  int count = 0;
  ls_status status = ls_checkpoint_sum(arena, folder, which, 0, 1, &sums, &count, error);
  if (status == LS_OK) status = ls_checkpoint_compare(folder, which, sums, count, true, error);
  ls_arena_destroy(&arena);
  return status;
}
