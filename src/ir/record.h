/* When every rank executed each instruction of one step, measured or simulated. */
#ifndef LS_IR_RECORD_H
#define LS_IR_RECORD_H

#include <stdint.h>

/* When an instruction of an action was executed, in nanoseconds. */
typedef struct ls_record {
  int64_t begin_ns, end_ns;
  int32_t action, instruction; /* of the program that ran */
} ls_record;

/* The records of one rank, in the order of execution; times count from the first of all ranks. */
typedef struct ls_recording_rank {
  ls_record *records;
  int64_t count;
} ls_recording_rank;

typedef struct ls_recording {
  int64_t step; /* that was recorded, 1 for the first; 0: simulated */
  int ranks;
  ls_recording_rank *by_rank;
} ls_recording;

#endif
