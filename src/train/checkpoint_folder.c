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

enum { STATE_FORMAT = 1, CHECKSUM_DIGITS = 16 };

static const char state_name[] = "state.json";
static const char checksum_key[] = "checksum";

/* FNV-1a of the bytes taken as little-endian 64-bit words, the last one filled up with zeros, and
 * of their count. Each step is a bijection, so a change within one word is always seen. */
static uint64_t checksum(const void *data, size_t bytes) {
  const uint64_t prime = 0x100000001b3u;
  uint64_t hash = 0xcbf29ce484222325u;
  const char *at = data;
  size_t left = bytes;
  for (; left >= sizeof(uint64_t); left -= sizeof(uint64_t), at += sizeof(uint64_t)) {
    uint64_t word;
    memcpy(&word, at, sizeof word);
    hash = (hash ^ word) * prime;
  }
  uint64_t word = 0;
  if (left) memcpy(&word, at, left);
  hash = (hash ^ word) * prime;
  return (hash ^ bytes) * prime;
}

static void print_checksum(uint64_t value, char text[CHECKSUM_DIGITS + 1]) {
  snprintf(text, CHECKSUM_DIGITS + 1, "%016" PRIx64, value);
}

/* Of the state without its own checksum, in a form that does not depend on layout or order. */
static ls_status state_checksum(const json_t *state, char text[CHECKSUM_DIGITS + 1],
                                ls_error *error) {
  json_t *bare = json_copy((json_t *)state);
  if (bare) json_object_del(bare, checksum_key);
  char *dump = bare ? json_dumps(bare, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
  json_decref(bare);
  if (!dump) return ls_fail(error, LS_FAILED, "%s: out of memory", state_name);
  print_checksum(checksum(dump, strlen(dump)), text);
  free(dump);
  return LS_OK;
}

static ls_status add_file(ls_arena *arena, const char *folder, const char *name, json_t *files,
                          ls_error *error) {
  ls_map map;
  LS_TRY(ls_file_map(ls_arena_printf(arena, "%s/%s", folder, name), &map, error));
  char text[CHECKSUM_DIGITS + 1];
  print_checksum(checksum(map.data, map.bytes), text);
  json_t *about = json_pack("{s:I, s:s}", "bytes", (json_int_t)map.bytes, checksum_key, text);
  ls_file_unmap(&map);
  if (json_object_set_new(files, name, about) == 0) return LS_OK;
  return ls_fail(error, LS_FAILED, "%s: out of memory", state_name);
}

static ls_status add_files(ls_arena *arena, const char *folder, json_t *files, ls_error *error) {
  DIR *directory = opendir(folder);
  if (!directory)
    return ls_fail(error, LS_FAILED, "%s: cannot be read: %s", folder, strerror(errno));
  ls_status status = LS_OK;
  const struct dirent *entry;
  while (status == LS_OK && (entry = readdir(directory)))
    if (entry->d_name[0] != '.' && strcmp(entry->d_name, state_name) != 0)
      status = add_file(arena, folder, entry->d_name, files, error);
  closedir(directory);
  return status;
}

static ls_status seal(ls_arena *arena, const char *folder, json_t *state, ls_error *error) {
  json_t *files = json_object();
  int failed = json_object_set_new(state, "format", json_integer(STATE_FORMAT));
  failed |= json_object_set_new(state, "files", files);
  if (failed) return ls_fail(error, LS_FAILED, "%s: out of memory", state_name);
  LS_TRY(add_files(arena, folder, files, error));
  char text[CHECKSUM_DIGITS + 1];
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

ls_status ls_checkpoint_seal(const char *folder, json_t *state, ls_error *error) {
  ls_arena *arena = ls_arena_create();
  const ls_status status = seal(arena, folder, state, error);
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
  LS_TRY(ls_json_root(path, root, &object, error));
  int64_t format;
  LS_TRY(ls_json_int(&object, "format", &format, error));
  if (format != STATE_FORMAT)
    return ls_fail(error, LS_INPUT, "%s: format %lld; this version reads format %d", path,
                   (long long)format, STATE_FORMAT);
  const char *found;
  char expected[CHECKSUM_DIGITS + 1];
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

static ls_status verify_file(ls_arena *arena, const char *folder, const char *name, json_t *about,
                             ls_error *error) {
  const char *path = ls_arena_printf(arena, "%s/%s", folder, name);
  ls_json_object object;
  int64_t bytes;
  const char *expected;
  LS_TRY(ls_json_root(path, about, &object, error));
  LS_TRY(ls_json_int(&object, "bytes", &bytes, error));
  LS_TRY(ls_json_string(&object, checksum_key, &expected, error));
  ls_map map;
  LS_TRY(ls_file_map(path, &map, error));
  const int64_t found_bytes = (int64_t)map.bytes;
  char found[CHECKSUM_DIGITS + 1] = "";
  if (found_bytes == bytes) print_checksum(checksum(map.data, map.bytes), found);
  ls_file_unmap(&map);
  if (found_bytes != bytes)
    return ls_fail(error, LS_INPUT, "%s: damaged: it has %lld bytes; %lld were written", path,
                   (long long)found_bytes, (long long)bytes);
  if (strcmp(found, expected) == 0) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s: damaged: its checksum is %s; %.20s was written", path, found,
                 expected);
}

ls_status ls_checkpoint_verify(const char *folder, ls_error *error) {
  ls_checkpoint_state state;
  LS_TRY(ls_checkpoint_state_read(folder, &state, error));
  ls_arena *arena = ls_arena_create();
  json_t *root = NULL, *about;
  const char *name;
  ls_status status = ls_json_read(ls_arena_printf(arena, "%s/%s", folder, state_name),
                                  LS_JSON_EXACT, &root, error);
  json_object_foreach(json_object_get(root, "files"), name, about) {
    if (status == LS_OK) status = verify_file(arena, folder, name, about, error);
  }
  json_decref(root);
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

ls_status ls_checkpoint_newest(ls_arena *arena, const char *out, const char **folder, int64_t *step,
                               ls_error *error) {
  *folder = NULL;
  published_list list = {0};
  LS_TRY(list_published(arena, out, &list, error));
  if (list.found.count)
    qsort(list.found.items, (size_t)list.found.count, sizeof *list.found.items, by_step_falling);
  for (int i = 0; i < list.found.count && !*folder; i++) {
    ls_error damage = {0};
    if (ls_checkpoint_verify(list.found.items[i].folder, &damage) != LS_OK) {
      fprintf(stderr, "lockstep: %s; the checkpoint before it is taken, if there is one\n",
              damage.text);
      continue;
    }
    *folder = list.found.items[i].folder;
    *step = list.found.items[i].step;
  }
  return LS_OK;
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
