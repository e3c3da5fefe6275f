/* What the files of NCCL's stand-in share: the memory that the ranks of one id meet in, as threads
 * or as processes, and a rank's communicators. */
#ifndef LS_STAND_IN_NCCL_H
#define LS_STAND_IN_NCCL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "device/cuda/driver_calls.h"
#include "device/cuda/nccl_calls.h"
#include "support/stand_in/driver.h"

enum { MOST_RANKS = 16, MOST_COMMS = 256, RING = 64, MOST_SPLITS = 64, TEXT_BYTES = 192 };

typedef enum work_kind {
  ALL_REDUCE = 1,
  REDUCE,
  REDUCE_SCATTER,
  ALL_GATHER,
  BROADCAST,
  SEND,
  RECEIVE
} work_kind;

/* What a rank says of its part of a collective, or of a message. */
typedef struct posting {
  _Atomic uint64_t number; /* from 1 on; set last */
  int kind, root;
  unsigned type, op;
  size_t count;
  const char *at; /* in its process */
  int file;       /* of its process; where its data lies */
  size_t offset;
} posting;

typedef struct shared_comm {
  int ranks;
  _Atomic int joined, finished, destroyed;
  _Atomic unsigned wrong; /* the result that its ranks are told from now on */
  char text[TEXT_BYTES];
  int pids[MOST_RANKS], gpus[MOST_RANKS];
  _Atomic bool taken[MOST_RANKS];
  posting together[MOST_RANKS][RING];
  _Atomic uint64_t read[MOST_RANKS]; /* collectives whose data a rank has read */
  posting sends[MOST_RANKS][MOST_RANKS], receives[MOST_RANKS][MOST_RANKS];
  _Atomic uint64_t received[MOST_RANKS][MOST_RANKS]; /* messages, from and to */
  _Atomic uint64_t splits[MOST_RANKS];               /* that a rank has called for */
  int colors[MOST_SPLITS][MOST_RANKS], keys[MOST_SPLITS][MOST_RANKS];
  int children[MOST_SPLITS][MOST_RANKS]; /* by the lowest rank of a color; 0: not made yet */
} shared_comm;

typedef struct shared_memory {
  uint64_t nonce;
  atomic_flag lock;
  int comms;
  shared_comm of[MOST_COMMS];
} shared_memory;

typedef enum comm_state { JOINING = 1, SPLITTING, READY, FINISHING, FINISHED, GONE } comm_state;

typedef struct kept_memory {
  char *at;
  size_t bytes;
} kept_memory;

enum { MOST_KEPT = 16 };

struct ncclComm {
  shared_memory *memory;
  shared_comm *of;
  int rank, gpu, context;
  comm_state state;
  _Atomic bool aborted;
  int polls; /* that are still told that it is under way */
  CUstream stream;
  uint64_t collectives, sent[MOST_RANKS], taken[MOST_RANKS];
  kept_memory kept[MOST_KEPT];
  int split; /* the call under way */
  ncclComm_t *child;
  char text[TEXT_BYTES];
  ncclComm_t gone_before;
};

/* One of a group's parts. */
typedef struct part {
  ncclComm_t comm;
  work_kind kind;
  const char *from;
  char *to;
  size_t count, bytes; /* bytes: what comes out */
  unsigned type, op;
  int root; /* or the peer */
  uint64_t number;
  char *result;
} part;

/* Tells all ranks of a communicator what is wrong with it; the first to say so is heard. */
void stand_in_nccl_wrong(ncclComm_t comm, unsigned result, const char *format, ...);

/* Puts parts of one communicator on its stream, as one launch. False: the driver refuses. */
bool stand_in_nccl_launch(ncclComm_t comm, CUstream stream, const part *parts, int count);

size_t stand_in_nccl_width(unsigned type);

/* The driver's own, found in its stand-in. */
typedef struct driver_of {
  CUresult (*enqueue)(CUstream, stand_in_ready, stand_in_work, const void *, size_t);
  bool (*file_of)(const void *at, size_t bytes, int *file, size_t *offset);
  bool (*reached)(CUdeviceptr at, size_t bytes);
  CUresult (*spoils)(void);
  int (*context)(void);
  int (*gpu)(void);
} driver_of;
const driver_of *stand_in_nccl_driver(void);

#endif
