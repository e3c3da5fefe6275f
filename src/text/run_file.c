#include "text/run_file.h"

#include <stdio.h>
#include <string.h>

#include "text/distance.h"
#include "text/quote.h"
#include "text/run_keys.h"

enum { NAME_BYTES = 64 };

static int row_of(const ls_run_key *key) {
  return (int)(key - ls_run_keys);
}

static void clear_whole(ls_run_file *run, const ls_run_key *key) {
  const int64_t none = 0;
  memcpy((char *)run + key->offset, &none, sizeof none);
}

static bool is_unset(const ls_run_file *run, const ls_run_key *key) {
  const int64_t none = 0;
  return memcmp((const char *)run + key->offset, &none, sizeof none) == 0;
}

/* Of two keys that exclude each other the one given later holds; both in one place are an error. */
static ls_status settle_partner(ls_run_file *run, const ls_run_key *key, const ls_yaml *node,
                                ls_run_source source, ls_error *error) {
  if (!key->excludes || is_unset(run, key)) return LS_OK;
  const ls_run_key *partner = ls_run_key_find(key->excludes);
  LS_ASSERT(partner);
  if (is_unset(run, partner)) return LS_OK;
  if (run->origins[row_of(partner)].source == source) {
    char line[16] = "";
    if (node->line > 0) snprintf(line, sizeof line, ":%d", node->line);
    return ls_fail(error, LS_INPUT, "%s%s: %s: found %s as well; give one of the two", node->file,
                   line, key->name, partner->name);
  }
  clear_whole(run, partner);
  return LS_OK;
}

static ls_status set(ls_run_file *run, const ls_run_key *key, const ls_yaml *node,
                     ls_run_origin origin, ls_error *error) {
  ls_run_origin *known = &run->origins[row_of(key)];
  if (origin.source == LS_RUN_FILE && known->source == LS_RUN_FILE) {
    return ls_fail(error, LS_INPUT, "%s:%d: %s: found a second time; line %d has it already",
                   node->file, node->line, key->name, known->line);
  }
  LS_TRY(ls_run_key_set(run, key, node, error));
  LS_TRY(settle_partner(run, key, node, origin.source, error));
  *known = origin;
  return LS_OK;
}

/* Names of all keys and sections, for the nearest one. */
static const char **all_names(ls_arena *arena, int *all) {
  const char **names = LS_NEW_ARRAY(arena, const char *, 2 * ls_run_key_count);
  int count = 0;
  for (int i = 0; i < ls_run_key_count; i++) {
    const char *name = ls_run_keys[i].name;
    const char *point = strchr(name, '.');
    if (point) {
      const char *section = ls_arena_printf(arena, "%.*s", (int)(point - name), name);
      if (count == 0 || strcmp(names[count - 1], section) != 0) {
        bool known = false;
        for (int k = 0; k < count; k++) known = known || strcmp(names[k], section) == 0;
        if (!known) names[count++] = section;
      }
    }
    names[count++] = name;
  }
  *all = count;
  return names;
}

/* "run.yaml:3" or "command line". */
static const char *place_of(ls_arena *arena, const ls_yaml *node) {
  if (node->line == 0) return node->file;
  return ls_arena_printf(arena, "%s:%d", node->file, node->key_line);
}

static ls_status unknown(ls_run_file *run, const char *place, const char *name, ls_error *error) {
  char shown[LS_QUOTE_BYTES];
  ls_quote(shown, name, strlen(name));
  const char *ours = ls_run_peer_find(name);
  if (ours) {
    return ls_fail(error, LS_INPUT, "%s: unknown key \"%s\"; here it is %s", place, shown, ours);
  }
  int count;
  const char *const *names = all_names(run->arena, &count);
  const char *near = ls_nearest(name, names, count);
  if (!near) { /* the section may be wrong and the word right: "training.clip" */
    const char *point = strrchr(name, '.');
    if (point) near = ls_nearest(point + 1, names, count);
  }
  if (near) {
    return ls_fail(error, LS_INPUT, "%s: unknown key \"%s\"; the nearest one is \"%s\"", place,
                   shown, near);
  }
  return ls_fail(error, LS_INPUT,
                 "%s: unknown key \"%s\"; \"lockstep train --help\" lists those there are", place,
                 shown);
}

static ls_status set_mapping(ls_run_file *run, const ls_yaml *mapping, ls_run_origin origin,
                             ls_error *error);

/* A value under `name`: of a key, or of a section with keys in it. Sections are one level deep, so
 * this calls itself through set_mapping at most once. */
static ls_status set_named(ls_run_file *run, const char *name, const ls_yaml *node,
                           ls_run_origin origin, ls_error *error) {
  const ls_run_key *key = ls_run_key_find(name);
  if (key) return set(run, key, node, origin, error);
  if (!ls_run_key_is_section(name)) return unknown(run, place_of(run->arena, node), name, error);
  if (node->kind == LS_YAML_MAPPING) return set_mapping(run, node, origin, error);
  if (ls_yaml_is_null(node) && origin.source == LS_RUN_FILE) return LS_OK;
  return ls_yaml_fail(node, "keys under it", error);
}

static ls_status set_mapping(ls_run_file *run, const ls_yaml *mapping, ls_run_origin origin,
                             ls_error *error) {
  for (int i = 0; i < mapping->items.count; i++) {
    const ls_yaml *node = mapping->items.items[i];
    if (origin.source == LS_RUN_FILE) origin.line = node->key_line;
    LS_TRY(set_named(run, node->path, node, origin, error));
  }
  return LS_OK;
}

static ls_status set_standards(ls_run_file *run, ls_error *error) {
  for (int i = 0; i < ls_run_key_count; i++) {
    LS_TRY(ls_run_key_set_text(run, &ls_run_keys[i], ls_run_keys[i].default_text, error));
  }
  return LS_OK;
}

/* Splits "--a.b=c" into name and value; the value is NULL where there is no "=". */
static const char *split_word(const char *word, char name[NAME_BYTES]) {
  if (strncmp(word, "--", 2) == 0) word += 2;
  const size_t length = strcspn(word, "=");
  snprintf(name, NAME_BYTES, "%.*s", (int)(length < NAME_BYTES ? length : NAME_BYTES - 1), word);
  return word[length] ? word + length + 1 : NULL;
}

bool ls_run_file_is_word(const char *word) {
  char name[NAME_BYTES];
  const bool flag = strncmp(word, "--", 2) == 0;
  const char *value = split_word(word, name);
  if (ls_run_key_find(name) || ls_run_key_is_section(name)) return flag || value;
  if (flag) return ls_run_peer_find(name) != NULL;
  /* A key that we do not know is still meant as one: it deserves the nearest one as an answer. */
  static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
  return value && name[0] && strspn(name, letters) == strlen(name);
}

static ls_status check_utf8(const char *word, ls_error *error) {
  const size_t bytes = strlen(word);
  for (size_t i = 0; i < bytes;) {
    const size_t length = ls_utf8_length(word + i, bytes - i);
    if (length == 0) {
      char shown[LS_QUOTE_BYTES];
      return ls_fail(error, LS_INPUT, "command line: found \"%s\"; expected text in UTF-8",
                     ls_quote(shown, word, bytes));
    }
    i += length;
  }
  return LS_OK;
}

static ls_status set_words(ls_run_file *run, const char *const *words, int count, ls_error *error) {
  for (int i = 0; i < count; i++) {
    char name[NAME_BYTES], shown[LS_QUOTE_BYTES];
    const ls_run_origin origin = {LS_RUN_COMMAND_LINE, i + 1};
    LS_TRY(check_utf8(words[i], error));
    const bool flag = strncmp(words[i], "--", 2) == 0;
    const char *value = split_word(words[i], name);
    if (!value && !flag) {
      return ls_fail(error, LS_INPUT, "command line: found \"%s\"; expected key=value",
                     ls_quote(shown, words[i], strlen(words[i])));
    }
    if (!ls_run_key_find(name) && !ls_run_key_is_section(name)) {
      return unknown(run, "command line", name, error);
    }
    if (!value) {
      const bool more = i + 1 < count && strncmp(words[i + 1], "--", 2) != 0;
      if (!more) {
        return ls_fail(error, LS_INPUT, "command line: %s: found no value; expected --%s=VALUE",
                       name, name);
      }
      value = words[++i];
      LS_TRY(check_utf8(value, error));
    }
    ls_yaml *node = NULL;
    LS_TRY(ls_yaml_value(run->arena, name, value, &node, error));
    LS_TRY(set_named(run, name, node, origin, error));
  }
  return LS_OK;
}

/* "runs/bible" for "some/folder/bible.yaml". */
static const char *standard_out(const ls_run_file *run) {
  const char *slash = strrchr(run->path, '/');
  const char *file = slash ? slash + 1 : run->path;
  const char *point = strrchr(file, '.');
  const size_t length = point && point > file ? (size_t)(point - file) : strlen(file);
  if (length == 0) return "runs/run";
  return ls_arena_printf(run->arena, "runs/%.*s", (int)length, file);
}

/* What one key alone cannot tell. */
static ls_status finish(ls_run_file *run, ls_error *error) {
  if (run->train.steps == 0 && run->train.epochs == 0) run->train.steps = 1000;
  if (!run->out[0]) run->out = standard_out(run);
  ls_run_file_expand_home(run);
  if (run->train.lr > 0 && run->train.lr_min > run->train.lr) {
    return ls_fail(error, LS_INPUT, "%s: found %g; expected at most train.lr, which is %g",
                   ls_run_file_where(run, "train.lr_min"), run->train.lr_min, run->train.lr);
  }
  return LS_OK;
}

static ls_status build(ls_arena *arena, const char *path, const ls_yaml *root,
                       const char *const *words, int word_count, ls_run_file **made,
                       ls_error *error) {
  ls_run_file *run = LS_NEW(arena, ls_run_file);
  run->arena = arena;
  run->path = ls_arena_strdup(arena, path);
  run->origins = LS_NEW_ARRAY(arena, ls_run_origin, ls_run_key_count);
  LS_TRY(set_standards(run, error));
  if (root && root->kind != LS_YAML_MAPPING) {
    return ls_yaml_fail(root, "keys, such as \"model: llama-8m\"", error);
  }
  if (root) LS_TRY(set_mapping(run, root, (ls_run_origin){LS_RUN_FILE, 0}, error));
  LS_TRY(set_words(run, words, word_count, error));
  LS_TRY(finish(run, error));
  *made = run;
  return LS_OK;
}

ls_status ls_run_file_read(ls_arena *arena, const char *path, const char *const *words,
                           int word_count, ls_run_file **run, ls_error *error) {
  ls_yaml *root = NULL;
  if (path) LS_TRY(ls_yaml_read(arena, path, &root, error));
  return build(arena, path ? path : "", root, words, word_count, run, error);
}

ls_status ls_run_file_parse(ls_arena *arena, const char *name, const char *text, size_t bytes,
                            const char *const *words, int word_count, ls_run_file **run,
                            ls_error *error) {
  ls_yaml *root = NULL;
  LS_TRY(ls_yaml_parse(arena, name, text, bytes, &root, error));
  return build(arena, name, root, words, word_count, run, error);
}

static const ls_run_key *key_of(const char *name) {
  const ls_run_key *key = ls_run_key_find(name);
  if (!key) ls_panic("\"%s\" is no key of the run file", name);
  return key;
}

ls_run_file *ls_run_file_copy(ls_arena *arena, const ls_run_file *run) {
  ls_run_file *made = LS_NEW(arena, ls_run_file);
  *made = *run;
  made->arena = arena;
  made->origins = LS_NEW_ARRAY(arena, ls_run_origin, ls_run_key_count);
  memcpy(made->origins, run->origins, (size_t)ls_run_key_count * sizeof *made->origins);
  return made;
}

const char *ls_run_file_where(const ls_run_file *run, const char *name) {
  const ls_run_origin origin = run->origins[row_of(key_of(name))];
  if (origin.source == LS_RUN_FILE) {
    return ls_arena_printf(run->arena, "%s:%d: %s", run->path, origin.line, name);
  }
  if (origin.source == LS_RUN_COMMAND_LINE || !run->path[0]) {
    return ls_arena_printf(run->arena, "command line: %s", name);
  }
  return ls_arena_printf(run->arena, "%s: %s", run->path, name);
}

void ls_run_file_mark_resolved(ls_run_file *run, const char *name) {
  run->origins[row_of(key_of(name))].source = LS_RUN_RESOLVED;
}

ls_status ls_run_file_require(const ls_run_file *run, const char *name, ls_error *error) {
  const ls_run_key *key = key_of(name);
  const void *value = (const char *)run + key->offset;
  LS_ASSERT(key->kind == LS_RUN_TEXT || key->kind == LS_RUN_TEXTS);
  const bool given = key->kind == LS_RUN_TEXT ? (*(const char *const *)value)[0] != 0
                                              : ((const ls_run_globs *)value)->count > 0;
  if (given) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s: found nothing; expected %s", ls_run_file_where(run, name),
                 key->help);
}
