/* The table of the run file's keys: the one truth about them. For the run_*.c files of this room
 * and their tests; everyone else uses run_file.h. Thread-safe: constant data. */
#ifndef LS_TEXT_RUN_KEYS_H
#define LS_TEXT_RUN_KEYS_H

#include <stddef.h>

#include "text/run_file.h"
#include "text/yaml.h"

typedef enum ls_run_kind {
  LS_RUN_TEXT = 0,   /* const char * */
  LS_RUN_CHOICE,     /* int or enum: place in `words` */
  LS_RUN_INTEGER,    /* int64_t */
  LS_RUN_NUMBER,     /* double */
  LS_RUN_BOOL,       /* bool */
  LS_RUN_SIZE,       /* int64_t bytes */
  LS_RUN_SPAN,       /* ls_run_span */
  LS_RUN_PAIR,       /* double[2] */
  LS_RUN_GLOBS,      /* ls_run_globs */
  LS_RUN_TEXTS,      /* ls_run_texts */
  LS_RUN_VALIDATION, /* ls_run_validation */
  LS_RUN_GROUPS,     /* ls_run_groups */
} ls_run_kind;

typedef struct ls_run_key {
  const char *name; /* "train.lr" */
  ls_run_kind kind;
  size_t offset;            /* in ls_run_file */
  const char *default_text; /* the default, as a user would write it; "" for none */
  const char *words;        /* of a choice, or keys of a group, separated by blanks */
  const char *items;        /* of a list: what it may be, as an error says it */
  const char *word;         /* one word a number may be ("auto", "-1") ... */
  int64_t word_value;       /* ... and what stands for it */
  double low, high;         /* bounds of a number, both allowed unless above_low */
  bool above_low;
  bool below_high;
  const char *excludes; /* key that cannot be given together with this one */
  enum { LS_RUN_NO_PATH, LS_RUN_IS_PATH, LS_RUN_MAY_BE_PATH } path; /* whether the text is one */
  ls_run_effect effect;
  const char *help;
} ls_run_key;

/* Devices of a mesh, at most. */
enum { LS_RUN_MOST_DEVICES = 1 << 20 };

extern const ls_run_key ls_run_keys[];
extern const int ls_run_key_count;

/* The row of a key, or NULL. */
const ls_run_key *ls_run_key_find(const char *name);

/* Whether some key begins with "name.". */
bool ls_run_key_is_section(const char *name);

/* "~/a" as a path of the home folder, in every value that is a path or may be one. */
void ls_run_file_expand_home(ls_run_file *run);

/* What other trainers' words are called here. */
typedef struct ls_run_peer {
  const char *word, *ours; /* "gradient_checkpointing", "recompute: full" */
} ls_run_peer;

extern const ls_run_peer ls_run_peers[];
extern const int ls_run_peer_count;

/* Our word for a peer's, NULL where there is none. Compares the part of `name` after its last
 * point, '-' and '_' being the same. */
const char *ls_run_peer_find(const char *name);

/* "a number above 0", "one of none, full": what the key may be, for errors and help. */
char *ls_run_key_expected(ls_arena *arena, const ls_run_key *key);

/* Sets the key's value from a node, or from a text as a user would write it. */
LS_CHECKED ls_status ls_run_key_set(ls_run_file *run, const ls_run_key *key, const ls_yaml *node,
                                    ls_error *error);
LS_CHECKED ls_status ls_run_key_set_text(ls_run_file *run, const ls_run_key *key, const char *text,
                                         ls_error *error);

/* Whether the written form has the key: of two that exclude each other it has one. */
bool ls_run_key_is_written(const ls_run_file *run, const ls_run_key *key);

/* The value as one would write it in a run file; it reads back to the same value. In the arena. */
char *ls_run_key_text(ls_arena *arena, const ls_run_file *run, const ls_run_key *key);

#endif
