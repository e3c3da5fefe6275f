/* The paths in a run file: those of the home folder, and all of them made absolute. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "text/run_keys.h"

typedef const char *change(ls_arena *arena, const char *text);

static const char *from_home(ls_arena *arena, const char *text) {
  const char *home = getenv("HOME");
  if (!home || text[0] != '~' || (text[1] && text[1] != '/')) return text;
  return ls_arena_printf(arena, "%s%s", home, text + 1);
}

static const char *absolute(ls_arena *arena, const char *text) {
  char here[4096];
  if (!text[0] || text[0] == '/' || !getcwd(here, sizeof here)) return text;
  while (strncmp(text, "./", 2) == 0) text += 2 + strspn(text + 2, "/");
  if (strcmp(text, ".") == 0) return ls_arena_strdup(arena, here);
  return ls_arena_printf(arena, "%s/%s", strcmp(here, "/") == 0 ? "" : here, text);
}

/* Of a value that may be a name as well: a path where there is such a file. */
static const char *absolute_file(ls_arena *arena, const char *text) {
  struct stat info;
  return stat(text, &info) == 0 ? absolute(arena, text) : text;
}

static void change_texts(ls_arena *arena, ls_run_texts *texts, change *made) {
  ls_run_text *items = LS_NEW_ARRAY(arena, ls_run_text, texts->count);
  for (int i = 0; i < texts->count; i++) {
    items[i] = texts->items[i];
    items[i].path = made(arena, items[i].path);
  }
  texts->items = items;
}

static void change_globs(ls_arena *arena, ls_run_globs *globs, change *made) {
  const char **items = LS_NEW_ARRAY(arena, const char *, globs->count);
  for (int i = 0; i < globs->count; i++) items[i] = made(arena, globs->items[i]);
  globs->items = items;
}

static void change_paths(ls_arena *arena, ls_run_file *run, change *paths, change *files) {
  for (int i = 0; i < ls_run_key_count; i++) {
    const ls_run_key *key = &ls_run_keys[i];
    void *field = (char *)run + key->offset;
    if (!key->path) continue;
    if (key->kind == LS_RUN_TEXT) {
      const char **text = field;
      *text = (key->path == LS_RUN_IS_PATH ? paths : files)(arena, *text);
    } else if (key->kind == LS_RUN_GLOBS) {
      change_globs(arena, field, key->path == LS_RUN_IS_PATH ? paths : files);
    } else if (key->kind == LS_RUN_TEXTS) {
      change_texts(arena, field, paths);
    } else if (key->kind == LS_RUN_VALIDATION) {
      change_globs(arena, &((ls_run_validation *)field)->globs, paths);
    }
  }
}

void ls_run_file_expand_home(ls_run_file *run) {
  change_paths(run->arena, run, from_home, from_home);
}

ls_run_file *ls_run_file_absolute(ls_arena *arena, const ls_run_file *run) {
  ls_run_file *made = LS_NEW(arena, ls_run_file);
  *made = *run;
  change_paths(arena, made, absolute, absolute_file);
  return made;
}
