/* Plans for other counts of a machine's devices, and for what would be large enough.
 *
 *   LS_TRY(ls_plan_enough(arena, &question, "H100-SXM", &devices, error));
 *
 * Each is planned with few layouts compiled. Called by the main thread. */
#ifndef LS_CLI_PLAN_COUNTS_H
#define LS_CLI_PLAN_COUNTS_H

#include "cli/plan_problem.h"

/* The machine with more or fewer devices. */
typedef struct ls_plan_count {
  int devices;               /* 0: was not tried */
  const ls_planned *planned; /* NULL: no layout has so many */
} ls_plan_count;

/* More devices than this are not held against a host more and half as many: each is a search of its
 * own, and a host is little of them. */
enum { LS_PLAN_NEXT_MOST = 512 };

/* One device more, or one host of them where the machine is whole hosts; and half as many. Of more
 * than LS_PLAN_NEXT_MOST devices neither. */
void ls_plan_next_counts(ls_arena *arena, const ls_plan_question *question, const char *on,
                         const ls_planned *of, ls_plan_count *more, ls_plan_count *fewer);

/* The fewest devices that train the question's tokens within its time (and for its money); without
 * a time the most that do for its money, which are done first. Tells of each count that it tries on
 * stderr. LS_REFUTED: none do; names the least time and the least money that were reached, and with
 * how many. */
LS_CHECKED ls_status ls_plan_enough(ls_arena *arena, const ls_plan_question *question,
                                    const char *on, int *devices, ls_error *error);

/* Where nothing fits: prints which count of the devices, which length of sequence and which larger
 * device would, each the least that does. */
void ls_plan_print_enough(ls_arena *arena, const ls_plan_question *question, const char *on,
                          const ls_planned *of);

#endif
