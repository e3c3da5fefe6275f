/* `simulate --against`: a simulated step beside one that was recorded, by kind of instruction. */
#ifndef LS_CLI_SIMULATE_AGAINST_H
#define LS_CLI_SIMULATE_AGAINST_H

#include <jansson.h>

#include "watch/timeline.h"

/* Seconds of one rank, the mean of all, in instructions of one name. */
typedef struct ls_kind_seconds {
  char name[64];
  double simulated, measured;
} ls_kind_seconds;

typedef struct ls_kind_comparison {
  LS_LIST(ls_kind_seconds) kinds; /* the longest first */
  double simulated, measured;     /* of the step */
} ls_kind_comparison;

/* Both by kind. `path`: a run's folder, whose trace.json is read, or such a file. LS_INPUT: it is
 * none. In the arena. */
LS_CHECKED ls_status ls_compare_kinds(ls_arena *arena, const ls_timeline *simulated,
                                      const char *path, ls_kind_comparison *made, ls_error *error);

/* As text, and for programs: the caller's to release. */
void ls_compared_print(const ls_kind_comparison *made);
json_t *ls_compared_json(const ls_kind_comparison *made);

#endif
