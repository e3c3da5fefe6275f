/* How it went on every rank, on every rank: what each does alone between collectives may fail on
 * one, and the others must hear of it before they wait for it.
 *
 *   const ls_status own = write_mine(self, error);
 *   LS_TRY(ls_agree(rank, own, error));
 *
 * Called by each rank's own thread, but for ls_world_agree. */
#ifndef LS_SESSION_AGREE_H
#define LS_SESSION_AGREE_H

#include "run/rank.h"

/* LS_OK where every rank gives that; else the status and the text of the first rank that does not,
 * on all of them. `error` has the text of a status that is not LS_OK. Collective: all ranks. */
LS_CHECKED ls_status ls_agree(ls_rank *rank, ls_status own, ls_error *error);

/* Whether any rank's `own` is true: all must leave a loop at the same place. `about` says what is
 * asked, where somebody waits for it. Collective: all ranks. */
LS_CHECKED ls_status ls_agree_any(ls_rank *rank, bool own, const char *about, bool *any,
                                  ls_error *error);

/* The same as ls_agree between processes, before their ranks have begun: what each finds alike, or
 * one alone. Collective: all processes, each from one thread. */
LS_CHECKED ls_status ls_world_agree(ls_world *world, ls_status own, ls_error *error);

#endif
