/* Addresses in a rank's memory, private to this room; others go through ls_rank_get and
 * ls_rank_put. */
#ifndef LS_RUN_RANK_MEMORY_H
#define LS_RUN_RANK_MEMORY_H

#include "run/rank.h"

/* A value's memory on this rank, between runs: of an input, that of a microbatch. Of a value in the
 * file it is an address for ls_rank_tiers alone. */
ls_view ls_rank_view(const ls_rank *rank, int program, int value, int microbatch);

/* The address of the buffer group that a value lies in, between runs; of inputs, of the first. */
char *ls_rank_group_address(const ls_rank *rank, int program, int value);

/* Bytes at an address of this rank's, on the device, at its host or in the file, from and to the
 * host's memory; not while a program runs. Any thread may. */
LS_CHECKED ls_status ls_rank_write_at(const ls_rank *rank, void *to, const void *from,
                                      int64_t bytes, ls_error *error);
LS_CHECKED ls_status ls_rank_read_at(const ls_rank *rank, void *to, const void *from, int64_t bytes,
                                     ls_error *error);

#endif
