/* Where the time of a step goes: each kind of op with its calls, time, work, and the floor below
 * which the machine cannot go. As measured, or as planned, which has work and floors alone.
 *
 *   const ls_step_limits limits = {.flops_per_s = 2e11, .bytes_per_s = 4e10};
 *   ls_step_table *table = ls_step_table_measured(arena, stages, recording, &limits, false);
 *   ls_step_table_print(table, stream);
 *
 * All columns are of one rank: the mean over all. The floor of a call is the longer of its flops
 * over the rate of matrix products and its bytes over that of memory (the roofline of Williams,
 * Waterman, Patterson 2009); of a collective, what it sends, read once and written once. What still
 * lies in a cache may go below it. Thread-safe as long as no two threads share an arena. */
#ifndef LS_WATCH_STEP_TABLE_H
#define LS_WATCH_STEP_TABLE_H

#include <jansson.h>
#include <stdio.h>

#include "ir/program.h"
#include "run/recording.h"

/* What one rank can reach beside the others; 0: not known, so no floor comes from it. */
typedef struct ls_step_limits {
  double flops_per_s, bytes_per_s;
  bool measured_now; /* flops_per_s, which is more than is kept */
} ls_step_limits;

typedef enum ls_step_part {
  LS_STEP_OP = 0,
  LS_STEP_AGAIN,      /* the same done again for the backward pass */
  LS_STEP_COLLECTIVE, /* without the wait for the last of its ranks, where ranks show it */
  LS_STEP_WAIT,       /* until the last rank of a collective was there */
  LS_STEP_REST,       /* between instructions, and until the last rank's end */
  LS_STEP_BESIDE,     /* moves between tiers, which go on beside the others: not in the sum */
  LS_STEP_PARTS
} ls_step_part;

typedef struct ls_step_row {
  ls_step_part part;
  const char *name; /* "linear", or by shape "linear 2048x768x3072" */
  double calls, seconds, flops, bytes, floor_s;
} ls_step_row;

typedef struct ls_step_table {
  LS_LIST(ls_step_row) rows; /* by part; within it the longest first, planned the highest floor */
  bool measured;
  int ranks;
  double seconds; /* of the step, from its first instruction to its last on any rank: the sum of
                     the rows but for BESIDE */
  double floor_s; /* of all rows that have one */
  ls_step_limits limits;
} ls_step_table;

/* A recorded step of the programs of all stages, each run once without SPECULATE. `by_shape`: a row
 * for each shape of a matrix product. In the arena. */
ls_step_table *ls_step_table_measured(ls_arena *arena, const ls_program *const *stages,
                                      const ls_recording *recording, const ls_step_limits *limits,
                                      bool by_shape);

/* The same without times, from the programs alone: the mean over the first rank of each stage. */
ls_step_table *ls_step_table_planned(ls_arena *arena, const ls_program *const *stages,
                                     const ls_step_limits *limits, bool by_shape);

void ls_step_table_print(const ls_step_table *table, FILE *stream);

/* {"step_ms", "floor_ms", "rows": [{"name", "part", "calls", "ms", ...}]}. The caller owns it. */
json_t *ls_step_table_json(const ls_step_table *table);

#endif
