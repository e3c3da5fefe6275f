/* The accelerators that a mesh may be made of, with their memory: a catalog, of which none need be
 * here.
 *
 *   int count;
 *   const ls_accelerator *each;
 *   LS_TRY(ls_accelerators_find(arena, "64xH100-SXM", &count, &each, error));
 *
 * Constant data. */
#ifndef LS_CLUSTER_ACCELERATORS_H
#define LS_CLUSTER_ACCELERATORS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "lockstep/status.h"

typedef struct ls_accelerator {
  const char *id, *name;
  int architecture; /* of CUDA: 90 for sm_90; 0: not CUDA's */
  int memory_mib;
  bool reported;  /* as its driver reports it; else by the data sheet, which may say more */
  int processors; /* streaming multiprocessors or compute units; 0: not known */
  const char *source;
} ls_accelerator;

/* "64xH100-SXM" or "h100-sxm-80": how many, 0 where that is not said, of the one accelerator whose
 * id is this or begins with it. LS_INPUT: there is none or several; says which come nearest. */
LS_CHECKED ls_status ls_accelerators_find(ls_arena *arena, const char *text, int *count,
                                          const ls_accelerator **found, ls_error *error);

/* What follows "64x" in a text; all of it, and *count 0, where it begins otherwise. NULL: no count
 * can be this. */
const char *ls_accelerators_read_count(const char *text, int *count);

/* Row `index` of the catalog; NULL after the last. */
const ls_accelerator *ls_accelerators_at(int index);

#endif
