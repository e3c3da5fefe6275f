/* Patterns of paths: part by part, since "**" stands for any number of parts. */
#include <dirent.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"

/* A folder reached with the parts before `part`. */
typedef struct place {
  char *path;
  int part;
} place;

typedef struct walk {
  ls_arena *arena;
  LS_LIST(char *) parts;
  LS_LIST(place) places; /* still to be looked into */
  LS_LIST(char *) found;
} walk;

static bool is_literal(const char *part) {
  return !strpbrk(part, "*?[\\");
}

static bool is_any_depth(const char *part) {
  return !strcmp(part, "**");
}

static char *join(ls_arena *arena, const char *folder, const char *name) {
  const char *between = !*folder || folder[strlen(folder) - 1] == '/' ? "" : "/";
  return ls_arena_printf(arena, "%s%s%s", folder, between, name);
}

static void add_place(walk *state, char *path, int part) {
  *LS_APPEND(state->arena, &state->places) = (place){path, part};
}

/* `name` in a folder matches the part of `from`: a result if that part is the last. */
static void reach(walk *state, const place *from, const char *name) {
  char *path = join(state->arena, from->path, name);
  if (from->part + 1 == state->parts.count) {
    if (ls_file_exists(path)) *LS_APPEND(state->arena, &state->found) = path;
  } else if (ls_directory_exists(path)) {
    add_place(state, path, from->part + 1);
  }
}

static void look_into(walk *state, place at) {
  const char *part = state->parts.items[at.part];
  if (is_literal(part)) {
    reach(state, &at, part);
    return;
  }
  const bool deep = is_any_depth(part);
  const bool last = at.part + 1 == state->parts.count;
  if (deep && !last) add_place(state, at.path, at.part + 1);
  DIR *folder = opendir(*at.path ? at.path : ".");
  if (!folder) return;
  for (const struct dirent *entry; (entry = readdir(folder));) {
    const char *name = entry->d_name;
    if (fnmatch(deep ? "*" : part, name, FNM_PERIOD)) continue;
    if (!deep || last) reach(state, &at, name);
    struct stat info;
    char *path = deep ? join(state->arena, at.path, name) : NULL;
    /* Links to folders are not followed to any depth: they may close a circle. */
    if (deep && !lstat(path, &info) && S_ISDIR(info.st_mode)) add_place(state, path, at.part);
  }
  closedir(folder);
}

static int by_name(const void *left, const void *right) {
  return strcmp(*(char *const *)left, *(char *const *)right);
}

/* Sorted, each once: "**" twice in a pattern reaches a file by several ways. */
static void sort_found(walk *state) {
  qsort(state->found.items, (size_t)state->found.count, sizeof(char *), by_name);
  int kept = 0;
  for (int i = 0; i < state->found.count; i++) {
    if (kept && !strcmp(state->found.items[kept - 1], state->found.items[i])) continue;
    state->found.items[kept++] = state->found.items[i];
  }
  state->found.count = kept;
}

ls_status ls_file_glob(ls_arena *arena, const char *pattern, char ***paths, int *count,
                       ls_error *error) {
  walk state = {.arena = arena};
  if (ls_file_exists(pattern)) { /* a name with brackets in it is a name first */
    *LS_APPEND(arena, &state.found) = ls_arena_strdup(arena, pattern);
  } else if (ls_directory_exists(pattern)) {
    return ls_fail(error, LS_INPUT, "%s: is a folder; expected a file or a pattern such as %s",
                   pattern, join(arena, pattern, "*.txt"));
  } else {
    char *rest = ls_arena_strdup(arena, pattern);
    for (char *part; (part = strsep(&rest, "/"));) {
      if (*part) *LS_APPEND(arena, &state.parts) = part;
    }
    if (state.parts.count) add_place(&state, *pattern == '/' ? "/" : "", 0);
    for (int i = 0; i < state.places.count; i++) look_into(&state, state.places.items[i]);
  }
  if (!state.found.count) {
    return ls_fail(error, LS_INPUT, "%s: no file matches", pattern);
  }
  sort_found(&state);
  *paths = state.found.items;
  *count = state.found.count;
  return LS_OK;
}
