/* Deliberate faults in what sharding and scheduling put into a program: the program is data, so
 * each is a small change of it. Used by the test that the equality tests can fail.
 *
 * Not among them, since they change nothing: the vocabulary's max reduced as a sum (log-sum-exp is
 * the same whatever is subtracted), rows of padding counted in norms and decay (they are zero). */
#ifndef LS_TESTS_FAULTS_H
#define LS_TESTS_FAULTS_H

#include "program/program.h"

typedef struct ls_fault {
  const char *name;
  int (*inject)(ls_program *program); /* returns how many places it changed */
  /* The smallest case that shows it: a shape of shapes.h and its layout. */
  int shape, dp_replicate, dp_shard, tp, zero;
  bool sequence_parallel;
  int microbatches;
  ls_dtype compute; /* LS_F64 on reference kernels, or LS_BF16 on the CPU device's */
} ls_fault;

extern const ls_fault ls_faults[];
extern const int ls_fault_count;

#endif
