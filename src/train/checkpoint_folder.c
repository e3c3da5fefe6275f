#include "train/checkpoint_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/file.h"
#include "text/json.h"
#include "train/checkpoint.h"

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

/* Bytes [begin, end) of a file that is to have `bytes`: in pieces, the next one asked for while one
 * is summed. */
static ls_status sum_file(const char *path, uint64_t bytes, uint64_t begin, uint64_t end,
                          ls_checksum *sum, ls_error *error) {
  ls_map map;
  LS_TRY(ls_file_map(path, &map, error));
  ls_status status = LS_OK;
  if (map.bytes != bytes) status = fail_size(path, map.bytes, bytes, error);
  for (uint64_t at = begin; at < end && status == LS_OK; at += PIECE_BYTES) {
    const size_t some = end - at < PIECE_BYTES ? (size_t)(end - at) : PIECE_BYTES;
    const size_t left = (size_t)(end - at) - some;
    const char *data = (const char *)map.data + at;
    if (at == begin) ls_map_expect(data, some);
    ls_map_expect(data + some, left < PIECE_BYTES ? left : PIECE_BYTES);
    status = ls_map_fetch(path, data, some, error);
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
  return sum_file(path, made->bytes, 0, made->bytes, &made->checksum, error);
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

/* Puts the flushed folder `whole` in the place of `final`, which then has the name `aside`. */
static int replace(const char *whole, const char *aside, const char *final) {
  if (!renameat2(AT_FDCWD, whole, AT_FDCWD, final, RENAME_EXCHANGE))
    return rename(whole, aside) ? errno : 0;
  if (errno != EINVAL && errno != ENOSYS) return errno;
  /* This file system cannot exchange (NFS): there is an instant without the folder. */
  if (rename(final, aside)) return errno;
  return rename(whole, final) ? errno : 0;
}

ls_status ls_checkpoint_publish(const char *aside, const char *final, ls_error *error) {
  if (!ls_directory_exists(final)) return ls_directory_publish(aside, final, error);
  ls_arena *arena = ls_arena_create();
  const char *whole = ls_arena_printf(arena, "%s-whole", aside);
  ls_status status = ls_directory_remove(whole, error);
  if (status == LS_OK) status = ls_directory_publish(aside, whole, error);
  if (status == LS_OK) {
    int reason = replace(whole, aside, final);
    if (!reason) reason = sync_folder(parent_of(arena, final));
    if (reason)
      status = ls_fail(error, LS_FAILED, "%s: cannot be written: %s", final, strerror(reason));
  }
  if (status == LS_OK)
    status = ls_directory_remove(aside, error);
  else
    (void)!ls_directory_remove(whole, NULL);
  ls_arena_destroy(&arena);
  return status;
}

static ls_status read_loss_scale(const char *path, const ls_json_object *object,
                                 ls_checkpoint_state *state, ls_error *error) {
  const char *text;
  LS_TRY(ls_json_string_or(object, "loss_scale", "", &text, error));
  if (strlen(text) >= sizeof state->loss_scale)
    return ls_fail(error, LS_INPUT, "%s: \"loss_scale\" has %zu bytes; expected at most %zu", path,
                   strlen(text), sizeof state->loss_scale - 1);
  snprintf(state->loss_scale, sizeof state->loss_scale, "%s", text);
  return LS_OK;
}

static ls_status read_corpus(const char *path, const ls_json_object *object,
                             ls_checkpoint_state *state, ls_error *error) {
  const char *text;
  LS_TRY(ls_json_string_or(object, "corpus", "", &text, error));
  if (strlen(text) >= sizeof state->corpus)
    return ls_fail(error, LS_INPUT, "%s: \"corpus\" has %zu bytes; expected at most %zu", path,
                   strlen(text), sizeof state->corpus - 1);
  snprintf(state->corpus, sizeof state->corpus, "%s", text);
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
  LS_TRY(ls_json_int(&object, "step", &state->step, error));
  LS_TRY(ls_json_int(&object, "tokens", &state->tokens, error));
  LS_TRY(ls_json_int(&object, "sequences", &state->sequences, error));
  LS_TRY(read_loss_scale(path, &object, state, error));
  LS_TRY(read_corpus(path, &object, state, error));
  return ls_json_int(&object, "seed", &state->seed, error);
}

ls_status ls_checkpoint_state_read(const char *folder, ls_checkpoint_state *state,
                                   ls_error *error) {
  ls_arena *arena = ls_arena_create();
  const char *path = ls_arena_printf(arena, "%s/%s", folder, state_name);
  json_t *root = NULL;
  ls_status status = ls_json_read(path, LS_JSON_EXACT, &root, error);
  if (status == LS_OK) status = read_state(path, root, state, error);
  json_decref(root);
  ls_arena_destroy(&arena);
  return status;
}

/* What state.json says of one file. */
static ls_status read_sealed(ls_arena *arena, const char *folder, const char *name, json_t *about,
                             const char **path, int64_t *bytes, const char **expected,
                             ls_error *error) {
  *path = ls_arena_printf(arena, "%s/%s", folder, name);
  ls_json_object object;
  LS_TRY(ls_json_root(*path, about, &object, error));
  LS_TRY(ls_json_int(&object, "bytes", bytes, error));
  return ls_json_string(&object, checksum_key, expected, error);
}

ls_status ls_checkpoint_sum(ls_arena *arena, const char *folder, int part, int parts,
                            ls_checksum **sums, int *count, ls_error *error) {
  ls_checkpoint_state state;
  LS_TRY(ls_checkpoint_state_read(folder, &state, error));
  json_t *root = NULL, *about;
  LS_TRY(ls_json_read(ls_arena_printf(arena, "%s/%s", folder, state_name), LS_JSON_EXACT, &root,
                      error));
  json_t *files = json_object_get(root, "files");
  *sums = LS_NEW_ARRAY(arena, ls_checksum, json_object_size(files) + 1);
  *count = 0;
  ls_status status = LS_OK;
  const char *name, *path, *expected;
  int64_t bytes;
  json_object_foreach(files, name, about) {
    if (status == LS_OK)
      status = read_sealed(arena, folder, name, about, &path, &bytes, &expected, error);
    if (status != LS_OK) break;
    const uint64_t whole = (uint64_t)bytes, at_once = whole / (uint64_t)parts + 1;
    const uint64_t begin = at_once * (uint64_t)part, end = begin + at_once;
    status = sum_file(path, whole, begin, end < whole ? end : whole, &(*sums)[(*count)++], error);
  }
  json_decref(root);
  return status;
}

static ls_status compare(ls_arena *arena, const char *folder, json_t *files,
                         const ls_checksum *sums, int count, ls_error *error) {
  const char *name, *path, *expected;
  json_t *about;
  int64_t bytes;
  int i = 0;
  json_object_foreach(files, name, about) {
    LS_TRY(read_sealed(arena, folder, name, about, &path, &bytes, &expected, error));
    LS_ASSERT(i < count);
    char found[LS_CHECKSUM_DIGITS + 1];
    ls_checksum_text(&sums[i++], found);
    if (strcmp(found, expected) != 0)
      return ls_fail(error, LS_INPUT, "%s: damaged: its checksum is %s; %.40s was written", path,
                     found, expected);
  }
  return LS_OK;
}

ls_status ls_checkpoint_compare(const char *folder, const ls_checksum *sums, int count,
                                ls_error *error) {
  ls_arena *arena = ls_arena_create();
  json_t *root = NULL;
  const char *path = ls_arena_printf(arena, "%s/%s", folder, state_name);
  ls_status status = ls_json_read(path, LS_JSON_EXACT, &root, error);
  if (status == LS_OK)
    status = compare(arena, folder, json_object_get(root, "files"), sums, count, error);
  json_decref(root);
  ls_arena_destroy(&arena);
  return status;
}

ls_status ls_checkpoint_verify(const char *folder, ls_error *error) {
  ls_arena *arena = ls_arena_create();
  ls_checksum *sums = NULL;
  int count = 0;
  ls_status status = ls_checkpoint_sum(arena, folder, 0, 1, &sums, &count, error);
  if (status == LS_OK) status = ls_checkpoint_compare(folder, sums, count, error);
  ls_arena_destroy(&arena);
  return status;
}

typedef struct published {
  const char *folder;
  int64_t step;
  struct timespec written;
} published;

typedef struct published_list {
  LS_LIST(published) found;
  LS_LIST(const char *) leftover; /* half-written, by processes that are no more */
} published_list;

static bool is_leftover(const char *name) {
  const char *mark = strstr(name, ".tmp-");
  if (!mark) return false;
  const long process = strtol(mark + strlen(".tmp-"), NULL, 10);
  /* One of our own number is of an earlier process: we are not saving now. */
  if (process <= 0 || process == (long)getpid()) return true;
  return kill((pid_t)process, 0) != 0 && errno == ESRCH;
}

/* "step-N" and nothing else; -1 where it is not. */
static int64_t step_of(const char *name) {
  static const char prefix[] = "step-";
  if (strncmp(name, prefix, strlen(prefix)) != 0) return -1;
  const char *digits = name + strlen(prefix);
  const size_t count = strspn(digits, "0123456789");
  if (!count || count > 18 || digits[count]) return -1;
  return strtoll(digits, NULL, 10);
}

/* All that lies in OUT/checkpoints; nothing where there is no such folder. */
static ls_status list_published(ls_arena *arena, const char *out, published_list *list,
                                ls_error *error) {
  const char *path = ls_arena_printf(arena, "%s/checkpoints", out);
  DIR *directory = opendir(path);
  if (!directory && errno == ENOENT) return LS_OK;
  if (!directory) return ls_fail(error, LS_INPUT, "%s: cannot be read: %s", path, strerror(errno));
  const struct dirent *entry;
  while ((entry = readdir(directory))) {
    const char *folder = ls_arena_printf(arena, "%s/%s", path, entry->d_name);
    const int64_t step = step_of(entry->d_name);
    struct stat info;
    if (step >= 0 && !stat(folder, &info) && S_ISDIR(info.st_mode))
      *LS_APPEND(arena, &list->found) = (published){folder, step, info.st_mtim};
    else if (strncmp(entry->d_name, "step-", 5) == 0 && is_leftover(entry->d_name))
      *LS_APPEND(arena, &list->leftover) = folder;
  }
  closedir(directory);
  return LS_OK;
}

static int by_step_falling(const void *a, const void *b) {
  const published *left = a, *right = b;
  return (left->step < right->step) - (left->step > right->step);
}

/* A damaged step-900 that training went past by going on from step-800 is older than step-850. */
static int by_age(const void *a, const void *b) {
  const published *left = a, *right = b;
  if (left->written.tv_sec != right->written.tv_sec)
    return left->written.tv_sec < right->written.tv_sec ? 1 : -1;
  if (left->written.tv_nsec != right->written.tv_nsec)
    return left->written.tv_nsec < right->written.tv_nsec ? 1 : -1;
  return by_step_falling(a, b);
}

/* That each file is there in its size: what can be seen without reading them. */
static ls_status check_sizes(ls_arena *arena, const char *folder, ls_error *error) {
  ls_checkpoint_state state;
  LS_TRY(ls_checkpoint_state_read(folder, &state, error));
  json_t *root = NULL, *about;
  LS_TRY(ls_json_read(ls_arena_printf(arena, "%s/%s", folder, state_name), LS_JSON_EXACT, &root,
                      error));
  ls_status status = LS_OK;
  const char *name, *path, *expected;
  int64_t bytes;
  json_object_foreach(json_object_get(root, "files"), name, about) {
    status = read_sealed(arena, folder, name, about, &path, &bytes, &expected, error);
    struct stat info;
    if (status == LS_OK && stat(path, &info))
      status = ls_fail(error, LS_INPUT, "%s: damaged: %s", path, strerror(errno));
    else if (status == LS_OK && info.st_size != bytes)
      status = fail_size(path, (uint64_t)info.st_size, (uint64_t)bytes, error);
    if (status != LS_OK) break;
  }
  json_decref(root);
  return status;
}

void ls_checkpoint_warn(const ls_error *damage) {
  fprintf(stderr, "lockstep: %s; the checkpoint before it is taken, if there is one\n",
          damage->text);
}

ls_status ls_checkpoint_newest(ls_arena *arena, const char *out, int64_t below, const char **folder,
                               int64_t *step, ls_error *error) {
  *folder = NULL;
  published_list list = {0};
  LS_TRY(list_published(arena, out, &list, error));
  if (list.found.count)
    qsort(list.found.items, (size_t)list.found.count, sizeof *list.found.items, by_step_falling);
  for (int i = 0; i < list.found.count && !*folder; i++) {
    const published *each = &list.found.items[i];
    ls_error damage = {0};
    if (each->step >= below) continue;
    if (check_sizes(arena, each->folder, &damage) != LS_OK) {
      ls_checkpoint_warn(&damage);
      continue;
    }
    *folder = each->folder;
    *step = each->step;
  }
  return LS_OK;
}

ls_status ls_checkpoint_newest_whole(ls_arena *arena, const char *out, const char **folder,
                                     int64_t *step, ls_error *error) {
  *step = INT64_MAX;
  for (;;) {
    ls_error damage = {0};
    LS_TRY(ls_checkpoint_newest(arena, out, *step, folder, step, error));
    if (!*folder || ls_checkpoint_verify(*folder, &damage) == LS_OK) return LS_OK;
    ls_checkpoint_warn(&damage);
  }
}

/* Takes its name away first, so that a kill in between leaves no checkpoint with files missing. */
static ls_status remove_published(ls_arena *arena, const char *folder, ls_error *error) {
  const char *aside = ls_arena_printf(arena, "%s.tmp-%ld-old", folder, (long)getpid());
  LS_TRY(ls_directory_remove(aside, error));
  if (rename(folder, aside))
    return ls_fail(error, LS_FAILED, "%s: cannot be removed: %s", folder, strerror(errno));
  return ls_directory_remove(aside, error);
}

static ls_status prune(ls_arena *arena, const char *out, int64_t keep, ls_error *error) {
  published_list list = {0};
  LS_TRY(list_published(arena, out, &list, error));
  for (int i = 0; i < list.leftover.count; i++)
    LS_TRY(ls_directory_remove(list.leftover.items[i], error));
  if (keep <= 0 || !list.found.count) return LS_OK;
  qsort(list.found.items, (size_t)list.found.count, sizeof *list.found.items, by_age);
  for (int i = (int)keep; i < list.found.count; i++)
    LS_TRY(remove_published(arena, list.found.items[i].folder, error));
  return LS_OK;
}

ls_status ls_checkpoint_prune(const char *out, int64_t keep, ls_error *error) {
  ls_arena *arena = ls_arena_create();
  const ls_status status = prune(arena, out, keep, error);
  ls_arena_destroy(&arena);
  return status;
}
