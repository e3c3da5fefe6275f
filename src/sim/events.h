/* What the simulator does with a body, and the transfers that are under way. Internal to sim. */
#ifndef LS_SIM_EVENTS_H
#define LS_SIM_EVENTS_H

#include "sim/sim.h"

typedef enum ls_sim_item_kind { LS_SIM_COMPUTE, LS_SIM_BEGIN, LS_SIM_WAIT } ls_sim_item_kind;

/* Instructions of a body that compute one after the other, or one end of a transfer. */
typedef struct ls_sim_item {
  ls_sim_item_kind kind;
  const ls_instruction *instruction; /* the first */
  int index, count;                  /* of the program: the first, and how many that compute */
  double seconds;                    /* of computing, all of them */
  double *each, sum;                 /* of their kernels */
  ls_transfer_time time;             /* of a beginning */
  double sent;                       /* bytes likewise */
} ls_sim_item;

typedef struct ls_sim_body {
  bool made;
  LS_LIST(ls_sim_item) items;
} ls_sim_body;

/* The items of a body; `first`: where LS_ADD_AFTER_FIRST writes. In the arena. `known`: by
 * instruction, the seconds of those of bodies that were made so; negative: of none. */
void ls_sim_body_make(ls_arena *arena, const ls_performance *performance, const ls_program *program,
                      int rank, int body, bool first, double *known, ls_sim_body *made);

#endif
