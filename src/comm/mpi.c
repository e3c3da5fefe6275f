/* Messages between processes, and the news of an abort, by MPI point-to-point.
 *
 * MPI's own collectives promise neither an order of summation nor bf16, so none is used once the
 * world stands. Only calls of MPI-3 that do not wait are made, under one lock where the library
 * does not take calls from several threads at once. */
#include "comm/mpi.h"

#ifdef LS_HAVE_MPI

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"

_Static_assert(sizeof(MPI_Request) <= sizeof(((ls_request *)0)->opaque), "a request fits");

/* How long peers have, after an abort, to say that they have heard of it. */
static const double REACTION_S = 5;

static ls_mpi *of(ls_transport *transport) {
  return (ls_mpi *)(void *)transport;
}

static void enter(ls_mpi *mpi) {
  if (mpi->one_at_a_time) pthread_mutex_lock(&mpi->call_lock);
}

static void leave(ls_mpi *mpi) {
  if (mpi->one_at_a_time) pthread_mutex_unlock(&mpi->call_lock);
}

static MPI_Request *handle(ls_request *request) {
  return (MPI_Request *)(void *)request->opaque;
}

static ls_status fault(int code, const char *doing, int peer, ls_error *error) {
  char text[MPI_MAX_ERROR_STRING] = "unknown";
  int length;
  MPI_Error_string(code, text, &length);
  return ls_fail(error, LS_FAILED, "MPI failed %s rank %d: %.300s", doing, peer, text);
}

/* MPI's tag for one of a pair's: the threads of two processes share what tags these have. Most MPI
 * libraries have millions; 32,768 are what they must have. */
static int tag_of(const ls_mpi *mpi, int from, int to, uint64_t tag) {
  const ls_world *world = mpi->world;
  const int64_t most = mpi->most_ranks;
  const int64_t source = from - mpi->first_ranks[world->process[from]];
  const int64_t target = to - mpi->first_ranks[world->process[to]];
  return (int)((int64_t)tag * most * most + source * most + target);
}

static ls_status start(ls_transport *transport, bool receive, int from, int to, uint64_t pair_tag,
                       void *data, size_t bytes, ls_request *request, ls_error *error) {
  ls_mpi *mpi = of(transport);
  const int tag = tag_of(mpi, from, to, pair_tag);
  const int peer = receive ? from : to;
  const int process = mpi->world->process[peer];
  mpi->world->uses_messages = true;
  enter(mpi);
  const int code =
      receive ? MPI_Irecv(data, (int)bytes, MPI_BYTE, process, tag, mpi->data, handle(request))
              : MPI_Isend(data, (int)bytes, MPI_BYTE, process, tag, mpi->data, handle(request));
  leave(mpi);
  if (code != MPI_SUCCESS)
    return fault(code, receive ? "receiving from" : "sending to", peer, error);
  request->bytes = bytes;
  request->peer = peer;
  request->receiving = receive;
  request->active = true;
  return LS_OK;
}

static ls_status test(ls_transport *transport, ls_request *request, ls_error *error) {
  ls_mpi *mpi = of(transport);
  int done = 0, received = 0;
  MPI_Status status;
  enter(mpi);
  const int code = MPI_Test(handle(request), &done, &status);
  if (code == MPI_SUCCESS && done && request->receiving) {
    MPI_Get_count(&status, MPI_BYTE, &received);
  }
  leave(mpi);
  if (code != MPI_SUCCESS) {
    request->active = false;
    int class = MPI_SUCCESS;
    MPI_Error_class(code, &class);
    if (class == MPI_ERR_TRUNCATE) {
      return ls_fail(error, LS_FAILED, "ranks disagree: rank %d sends more than %zu bytes",
                     request->peer, request->bytes);
    }
    return fault(code, "in a message with", request->peer, error);
  }
  if (!done) return LS_OK;
  request->active = false;
  if (!request->receiving || (size_t)received == request->bytes) return LS_OK;
  return ls_fail(error, LS_FAILED, "ranks disagree: rank %d sends %d bytes, not %zu", request->peer,
                 received, request->bytes);
}

static void announce(ls_transport *transport) {
  ls_mpi *mpi = of(transport);
  pthread_mutex_lock(&mpi->abort_lock);
  int rank;
  char text[sizeof mpi->outgoing.text];
  if (!mpi->announced && ls_control_abort_text(mpi->world->control, &rank, text, sizeof text)) {
    mpi->announced = true;
    mpi->announced_ns = ls_now_ns();
    mpi->outgoing.rank = rank;
    memcpy(mpi->outgoing.text, text, sizeof text);
    enter(mpi);
    for (int p = 0; p < mpi->processes; p++) {
      if (p == mpi->self) continue;
      MPI_Isend(&mpi->outgoing, (int)sizeof mpi->outgoing, MPI_BYTE, p, 0, mpi->control,
                &mpi->outgoing_requests[p]);
    }
    leave(mpi);
  }
  pthread_mutex_unlock(&mpi->abort_lock);
}

static void wait_for_abort(ls_mpi *mpi) {
  mpi->incoming_request = MPI_REQUEST_NULL;
  if (MPI_Irecv(&mpi->incoming, (int)sizeof mpi->incoming, MPI_BYTE, MPI_ANY_SOURCE, 0,
                mpi->control, &mpi->incoming_request) != MPI_SUCCESS)
    mpi->incoming_request = MPI_REQUEST_NULL; /* the deadline ends the run as well */
}

/* Takes the note of one abort if there is one. */
static bool take_abort(ls_mpi *mpi) {
  int arrived = 0;
  MPI_Status status;
  if (mpi->incoming_request == MPI_REQUEST_NULL) return false;
  if (MPI_Test(&mpi->incoming_request, &arrived, &status) != MPI_SUCCESS || !arrived) return false;
  atomic_store(&mpi->abort_seen[status.MPI_SOURCE], true);
  (void)ls_control_abort(mpi->world->control, mpi->incoming.rank, mpi->incoming.text);
  wait_for_abort(mpi);
  return true;
}

static void poll_aborts(ls_transport *transport) {
  ls_mpi *mpi = of(transport);
  if (pthread_mutex_trylock(&mpi->abort_lock) != 0) return; /* another thread is at it */
  enter(mpi);
  const bool abort_seen = take_abort(mpi);
  leave(mpi);
  pthread_mutex_unlock(&mpi->abort_lock);
  if (abort_seen) announce(transport); /* the answer tells the others that this process knows */
}

static void doze(void) {
  const struct timespec time = {.tv_nsec = 200 * 1000};
  nanosleep(&time, NULL);
}

static double seconds_since(int64_t started_ns) {
  return (double)(ls_now_ns() - started_ns) * 1e-9;
}

/* Waits until every process has come here, so that none sees another one's end as a death. False
 * where the run was aborted or somebody never came. */
static bool barrier(ls_mpi *mpi) {
  MPI_Request request;
  int done = 0;
  const int64_t started = ls_now_ns();
  if (MPI_Ibarrier(mpi->data, &request) != MPI_SUCCESS) return false;
  while (!done) {
    if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
    poll_aborts(&mpi->transport);
    if (ls_control_aborted(mpi->world->control, NULL)) return false;
    if (!done && seconds_since(started) > mpi->world->deadline_s) return false;
    if (!done) doze();
  }
  return true;
}

static bool died(const ls_mpi *mpi, int process) {
  const ls_world *world = mpi->world;
  for (int i = 0; i < world->neighbour_count; i++) {
    const ls_neighbour *neighbour = &world->neighbours[i];
    if (world->process[neighbour->first_rank] == process) return ls_neighbour_died(neighbour);
  }
  return false;
}

/* True where the request is no more: done, or failed. */
static bool ended(ls_mpi *mpi, ls_request *request) {
  int done = 0;
  enter(mpi);
  if (MPI_Test(handle(request), &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) done = 1;
  leave(mpi);
  return done;
}

/* After an abort the caller frees or fills its memory, so what is under way ends here first: a send
 * whose receiver reads that memory just now cannot be called back. Once a receiver's process has
 * said that it knows of the abort, no rank there takes what comes for good. */
static void cancel(ls_transport *transport, ls_request *request) {
  ls_mpi *mpi = of(transport);
  const int process = mpi->world->process[request->peer];
  request->active = false;
  announce(transport);
  if (request->receiving) {
    enter(mpi);
    MPI_Cancel(handle(request));
    leave(mpi);
  }
  while (!ended(mpi, request)) {
    poll_aborts(transport);
    if (!request->receiving && atomic_load(&mpi->abort_seen[process])) return;
    if (died(mpi, process) || seconds_since(mpi->announced_ns) > REACTION_S) return;
    doze();
  }
}

/* Counts the processes that the abort has not reached: those alive that have not said so, or whom
 * our own word is still on its way to. *dead: those that will never say anything. */
static int count_unaware(ls_mpi *mpi, int *dead) {
  int unaware = 0;
  *dead = 0;
  for (int p = 0; p < mpi->processes; p++) {
    if (p == mpi->self) continue;
    int gone = 0;
    if (MPI_Test(&mpi->outgoing_requests[p], &gone, MPI_STATUS_IGNORE) != MPI_SUCCESS) gone = 1;
    if (gone && atomic_load(&mpi->abort_seen[p])) continue;
    if (died(mpi, p)) {
      *dead += 1;
    } else {
      unaware++;
    }
  }
  return unaware;
}

/* Gives the others time to hear of the abort; true where all did, so that MPI can end as usual. */
static bool finalize_after_abort(ls_mpi *mpi) {
  const int64_t started = ls_now_ns();
  int dead = 0;
  announce(&mpi->transport);
  while (count_unaware(mpi, &dead) > 0) {
    poll_aborts(&mpi->transport);
    if (seconds_since(started) > REACTION_S) return false;
    doze();
  }
  return dead == 0;
}

static void destroy(ls_transport *transport) {
  ls_mpi *mpi = of(transport);
  const bool well = !ls_control_aborted(mpi->world->control, NULL) && barrier(mpi);
  /* Peers that do not react would be waited for by MPI_Finalize without end. */
  if (!well && !finalize_after_abort(mpi)) MPI_Abort(MPI_COMM_WORLD, ls_exit_status(LS_FAILED));
  if (mpi->incoming_request != MPI_REQUEST_NULL) {
    MPI_Cancel(&mpi->incoming_request);
    MPI_Wait(&mpi->incoming_request, MPI_STATUS_IGNORE);
  }
  if (well) {
    MPI_Comm_free(&mpi->control);
    MPI_Comm_free(&mpi->data);
  }
  if (mpi->owns_mpi) MPI_Finalize();
  pthread_mutex_destroy(&mpi->abort_lock);
  pthread_mutex_destroy(&mpi->call_lock);
}

void ls_mpi_open(ls_mpi *mpi) {
  const int64_t pairs = (int64_t)mpi->most_ranks * mpi->most_ranks;
  mpi->transport = (ls_transport){.tags = (uint64_t)((mpi->largest_tag + INT64_C(1)) / pairs),
                                  .start = start,
                                  .test = test,
                                  .cancel = cancel,
                                  .poll = poll_aborts,
                                  .announce = announce,
                                  .destroy = destroy};
  pthread_mutex_init(&mpi->abort_lock, NULL);
  pthread_mutex_init(&mpi->call_lock, NULL);
  for (int p = 0; p < mpi->processes; p++) mpi->outgoing_requests[p] = MPI_REQUEST_NULL;
  wait_for_abort(mpi);
}

#endif
