/* The folder of a run: who may write to it, and what an earlier start left there.
 *
 *   ls_run_folder *folder;
 *   LS_TRY(ls_run_folder_open(arena, run, fresh, &folder, error));
 *   ... folder->checkpoint, NULL: from the start ...
 *   ls_run_folder_close(&folder);
 */
#ifndef LS_TRAIN_RUN_FOLDER_H
#define LS_TRAIN_RUN_FOLDER_H

#include "text/run_file.h"

typedef struct ls_run_folder {
  int lock;               /* an open file, locked */
  const char *checkpoint; /* folder of the newest checkpoint, its bytes not looked at; NULL: none */
  int64_t step;           /* that it was taken after; 0: none */
} ls_run_folder;

/* Makes and locks run->out and writes the resolved run file to it. LS_INPUT where another process
 * has it, or where keys that change the mathematics differ from the run that is there. `fresh`
 * removes what is there instead. Texts live in the arena. */
LS_CHECKED ls_status ls_run_folder_open(ls_arena *arena, const ls_run_file *run, bool fresh,
                                        ls_run_folder **folder, ls_error *error);
void ls_run_folder_close(ls_run_folder **folder);

#endif
