/* What --help says about the keys. */
#include <string.h>

#include "text/run_keys.h"

/* Whether the key is `only`, or in the section of that name. */
static bool is_asked(const ls_run_key *key, const char *only) {
  if (!only) return true;
  const size_t length = strlen(only);
  if (strncmp(key->name, only, length) != 0) return false;
  return key->name[length] == 0 || key->name[length] == '.' ||
         (length > 0 && only[length - 1] == '.');
}

char *ls_run_file_help(ls_arena *arena, const char *only) {
  char *text = ls_arena_strdup(arena, "");
  for (int i = 0; i < ls_run_key_count; i++) {
    const ls_run_key *key = &ls_run_keys[i];
    if (!is_asked(key, only)) continue;
    const char *values = ls_run_key_expected(arena, key);
    text =
        ls_arena_printf(arena, "%s  %-27s %s\n  %-27s   %s; default %s\n", text, key->name,
                        key->help, "", values, key->default_text[0] ? key->default_text : "none");
  }
  return text;
}

/* Names of the keys with one of two effects, in lines of at most 96 columns. */
static char *list_keys(ls_arena *arena, char *text, ls_run_effect one, ls_run_effect other) {
  enum { COLUMNS = 96 };
  size_t column = 0;
  for (int i = 0; i < ls_run_key_count; i++) {
    const ls_run_key *key = &ls_run_keys[i];
    if (key->effect != one && key->effect != other) continue;
    if (strcmp(key->name, "out") == 0) continue; /* that is another run */
    const size_t length = strlen(key->name);
    if (column == 0 || column + 1 + length > COLUMNS) {
      text = ls_arena_printf(arena, "%s%s  ", text, column ? "\n" : "");
      column = 1;
    }
    text = ls_arena_printf(arena, "%s%s%s", text, column > 1 ? " " : "", key->name);
    column += 1 + length;
  }
  return ls_arena_printf(arena, "%s\n\n", text);
}

char *ls_run_file_resume_help(ls_arena *arena) {
  char *text = ls_arena_strdup(
      arena,
      "`lockstep train RUN` goes on with the run in the folder RUN, from its newest checkpoint, "
      "and\n"
      "so does the same run file with the same out. Some keys may change between two starts.\n\n"
      "These may change: the run computes the same numbers on another layout or in other memory, "
      "or\n"
      "reports otherwise:\n");
  text = list_keys(arena, text, LS_RUN_LAYOUT, LS_RUN_MEMORY);
  text = list_keys(arena, text, LS_RUN_LOGGING, LS_RUN_LOGGING);
  text = ls_arena_printf(arena,
                         "%sThese may change, too, and with them the length of the run. The "
                         "learning-rate schedule spans\nall steps, so the rate may jump; a warning "
                         "says so:\n",
                         text);
  text = list_keys(arena, text, LS_RUN_DURATION, LS_RUN_DURATION);
  text = ls_arena_printf(arena, "%sThese may not change, as the numbers would:\n", text);
  text = list_keys(arena, text, LS_RUN_MATHEMATICS, LS_RUN_MATHEMATICS);
  return ls_arena_printf(
      arena,
      "%sOther texts (data.text) are told by their fingerprint: data.on_change=allow goes on with "
      "them.\nTo change another key, start a new run from the weights of this one; its optimizer "
      "starts anew:\n\n"
      "  lockstep train run.yaml model=RUN/checkpoints/step-N out=NEW train.lr=1e-4\n",
      text);
}
