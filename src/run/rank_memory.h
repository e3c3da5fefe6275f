/* Addresses in a rank's memory, for the files of this room and for tests of the CPU device; others
 * go through ls_rank_get and ls_rank_put. */
#ifndef LS_RUN_RANK_MEMORY_H
#define LS_RUN_RANK_MEMORY_H

#include "run/rank.h"

/* A value's memory on this rank, between runs: of an input, that of a microbatch. Of a value in the
 * file it is an address for ls_rank_tiers alone. */
ls_view ls_rank_view(const ls_rank *rank, int program, int value, int microbatch);

#endif
