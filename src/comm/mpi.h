/* The MPI transport and what it knows of the processes: for mpi.c and mpi_world.c only. Without
 * LS_HAVE_MPI it declares nothing. */
#ifndef LS_COMM_MPI_H
#define LS_COMM_MPI_H

#include "comm/world.h"

#ifdef LS_HAVE_MPI

#include <mpi.h>

/* An abort, as processes tell each other. */
typedef struct ls_abort_note {
  int32_t rank;
  char text[960];
} ls_abort_note;

typedef struct ls_mpi {
  ls_transport transport; /* first, so that the one pointer is the other */
  ls_world *world;
  MPI_Comm data, control;
  int processes, self;
  int *first_ranks; /* [processes] */
  int most_ranks;   /* of any process */
  int largest_tag;
  bool owns_mpi;      /* this world initialised MPI */
  bool one_at_a_time; /* the library lets only one thread at a time call it */
  pthread_mutex_t call_lock;
  pthread_mutex_t abort_lock; /* guards the writing of what follows; taken before call_lock */
  ls_abort_note incoming, outgoing;
  MPI_Request incoming_request;
  MPI_Request *outgoing_requests; /* [processes] */
  _Atomic bool *abort_seen;       /* [processes] that have announced the abort */
  bool announced;
  _Atomic int64_t announced_ns;
} ls_mpi;

/* Fills the transport's functions and begins to listen. */
void ls_mpi_open(ls_mpi *mpi);

#endif
#endif
