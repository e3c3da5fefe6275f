/* Deliberate faults in what sharding and scheduling put into a program: the program is data, so
 * each is a small change of it. Used by the test that the equality tests can fail.
 *
 * Not among them, since they change nothing: the vocabulary's max reduced as a sum (log-sum-exp is
 * the same whatever is subtracted), rows of padding counted in norms and decay (they are zero). */
#ifndef LS_TESTS_FAULTS_H
#define LS_TESTS_FAULTS_H

#include "ir/program.h"

/* What of a smallest case is beside the flat mesh. */
typedef struct ls_fault_room {
  int pp; /* 0: one stage */
  const char *schedule;
  ls_when gather, reduce;
  ls_op_set recompute;
  ls_offload offload;
  bool post_validation;
  int64_t logits_rows;
} ls_fault_room;

typedef struct ls_fault {
  const char *name;
  int (*inject)(ls_program *program); /* returns how many places it changed */
  /* The smallest case that shows it: a shape of shapes.h and its layout. */
  int shape, dp_replicate, dp_shard, tp, zero;
  bool sequence_parallel;
  int microbatches;
  ls_dtype compute;          /* LS_F64 on reference kernels, or LS_BF16 on the CPU device's */
  const ls_fault_room *room; /* NULL: one stage, nothing else */
} ls_fault;

/* The layout of its smallest case. */
ls_layout ls_fault_layout(const ls_fault *fault);

/* In what sharding and units make; in pipelines and recomputation; in moves between tiers; in what
 * goes on before the norm is known; in slices of logits. */
extern const ls_fault ls_faults[], ls_pipeline_faults[], ls_offload_faults[],
    ls_replay_boundary_faults[], ls_slice_faults[];
extern const int ls_fault_count, ls_pipeline_fault_count, ls_offload_fault_count,
    ls_replay_boundary_fault_count, ls_slice_fault_count;

#endif
