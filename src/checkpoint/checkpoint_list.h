/* The checkpoints that lie in a run's folder, found by their names; private to this room.
 *
 *   ls_published_list list = {0};
 *   LS_TRY(ls_checkpoint_list(arena, out, &list, error));
 *
 * Of one process that holds the run's lock. */
#ifndef LS_CHECKPOINT_CHECKPOINT_LIST_H
#define LS_CHECKPOINT_CHECKPOINT_LIST_H

#include <time.h>

#include "checkpoint/checkpoint.h"

/* A folder named step-N: it may be anybody's. */
typedef struct ls_published {
  const char *folder;
  int64_t step;
} ls_published;

typedef struct ls_published_list {
  LS_LIST(ls_published) found; /* the largest step first */
  LS_LIST(const char *)
  temporary; /* step-N.tmp-PID with an end of ours: of processes that are gone */
} ls_published_list;

/* What lies in OUT/checkpoints; nothing where there is no such folder. LS_FAILED: it cannot be
 * read. */
LS_CHECKED ls_status ls_checkpoint_list(ls_arena *arena, const char *out, ls_published_list *list,
                                        ls_error *error);

/* step-N for a temporary name of it; in the arena. */
const char *ls_checkpoint_final_name(ls_arena *arena, const char *temporary);

/* A name that is free: "FOLDER.WORD", else "FOLDER.WORD-2" and so on; in the arena. */
const char *ls_checkpoint_free_name(ls_arena *arena, const char *folder, const char *word);

#endif
