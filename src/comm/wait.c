/* Waiting for a peer: spin, yield, sleep; and never for ever. */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/world.h"

enum {
  SPIN_TURNS = 150,          /* some microseconds */
  YIELD_TURNS = 100,         /* then asleep: the cores belong to those who compute */
  SLEEP_NS = 20 * 1000000,   /* a sleeper looks for aborts this often */
  POLL_SLEEP_NS = 50 * 1000, /* a sleeper that moves messages looks this often */
  POLL_YIELD_TURNS = 2000,   /* messages move only while someone looks: sleep later */
  DOING_BYTES = 320,
  LOOK_NS = 100 * 1000000, /* neighbours' deaths are looked for this often */
};

static const double TOLD_SHARE = 0.1; /* of the deadline */

bool ls_flag_reached(ls_flag *flag, uint32_t target) {
  const uint32_t value = atomic_load_explicit(&flag->value, memory_order_acquire);
  return (int32_t)(value - target) >= 0;
}

void ls_flag_raise(ls_flag *flag, uint32_t value) {
  /* Both accesses are sequentially consistent, as are the sleeper's, so that either this rank sees
   * the sleeper or the sleeper sees the new value. */
  atomic_store(&flag->value, value);
  if (atomic_load(&flag->sleepers) != 0) {
    syscall(SYS_futex, &flag->value, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
  }
}

static void flag_sleep(ls_flag *flag, uint32_t target, long nanoseconds) {
  const struct timespec time = {.tv_nsec = nanoseconds};
  atomic_fetch_add(&flag->sleepers, 1);
  const uint32_t value = atomic_load(&flag->value);
  if ((int32_t)(value - target) < 0) {
    syscall(SYS_futex, &flag->value, FUTEX_WAIT, value, &time, NULL, 0);
  }
  atomic_fetch_sub(&flag->sleepers, 1);
}

static void pause_core(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#else
  atomic_signal_fence(memory_order_seq_cst);
#endif
}

bool ls_neighbour_died(const ls_neighbour *neighbour) {
  if (neighbour->pidfd >= 0) {
    /* A pidfd becomes readable when its process ends, even while nobody has collected it. */
    struct pollfd ended = {.fd = neighbour->pidfd, .events = POLLIN};
    return poll(&ended, 1, 0) == 1;
  }
  return kill((pid_t)neighbour->pid, 0) != 0 && errno == ESRCH;
}

static ls_status aborted(ls_comm *comm, ls_error *error) {
  ls_transport *transport = comm->world->transport;
  if (transport) transport->announce(transport);
  return ls_control_aborted(comm->world->control, error) ? LS_FAILED : LS_OK;
}

static ls_status abort_as(ls_comm *comm, int rank, const char *text, ls_error *error) {
  (void)ls_control_abort(comm->world->control, rank, text);
  if (aborted(comm, error) != LS_OK) return LS_FAILED;
  return ls_fail(error, LS_FAILED, "rank %d: %s", rank, text);
}

ls_status ls_comm_give_up(ls_comm *comm, ls_error *error, const char *format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return abort_as(comm, comm->rank, text, error);
}

/* "all-gather of 4096 fp32 (parameters of layers.3)" */
static const char *say_doing(const ls_comm *comm, char text[DOING_BYTES]) {
  const char *about = comm->current_call.about;
  snprintf(text, DOING_BYTES, "%s of %lld %s%s%.200s%s", comm->current_call.name,
           (long long)comm->current_call.count, comm->current_call.of, about ? " (" : "",
           about ? about : "", about ? ")" : "");
  return text;
}

/* "rank 3", or "the other ranks" */
static const char *say_whom(const ls_wait *wait, char text[32]) {
  snprintf(text, 32, wait->peer < 0 ? "the other ranks" : "rank %d", wait->peer);
  return text;
}

ls_status ls_wait_look(ls_wait *wait, int64_t now, const char *doing, ls_error *error) {
  ls_comm *comm = wait->comm;
  const ls_world *world = comm->world;
  char whom[32];
  wait->looked_ns = now;
  for (int i = 0; i < world->neighbour_count; i++) {
    const ls_neighbour *neighbour = &world->neighbours[i];
    if (!ls_neighbour_died(neighbour)) continue;
    char text[64 + DOING_BYTES];
    snprintf(text, sizeof text, "its process (pid %d) died; rank %d noticed in %.300s",
             neighbour->pid, comm->rank, doing);
    return abort_as(comm, neighbour->first_rank, text, error);
  }
  if (comm->patient) return LS_OK;
  const double waited = (double)(now - wait->started_ns) * 1e-9;
  if (!wait->told && waited >= world->deadline_s * TOLD_SHARE) {
    wait->told = true;
    ls_warn("rank %d has waited %.3g s for %s in %s; the run ends after %.3g s", comm->rank, waited,
            say_whom(wait, whom), doing, world->deadline_s);
  }
  if (waited < world->deadline_s) return LS_OK;
  return ls_comm_give_up(comm, error, "waited %.3g s for %s in %s", waited, say_whom(wait, whom),
                         doing);
}

/* Passes a moment; true where it was a long one. */
static bool rest(ls_wait *wait, bool polling, int turn) {
  const int spins = wait->comm->world->crowded ? 0 : SPIN_TURNS;
  const int yields = polling ? POLL_YIELD_TURNS : YIELD_TURNS;
  if (turn < spins) {
    pause_core();
    return false;
  }
  if (turn < spins + yields) {
    sched_yield();
    return false;
  }
  if (polling) {
    const struct timespec time = {.tv_nsec = POLL_SLEEP_NS};
    nanosleep(&time, NULL);
  } else {
    flag_sleep(wait->flag, wait->target, SLEEP_NS);
  }
  return true;
}

ls_status ls_wait_turn(ls_wait *wait, ls_error *error) {
  ls_comm *comm = wait->comm;
  ls_world *world = comm->world;
  if (ls_control_aborted(world->control, error)) return aborted(comm, error);
  const bool polling = world->uses_messages || !wait->flag;
  if (polling && world->transport) world->transport->poll(world->transport);
  const bool slept = rest(wait, polling, wait->turns);
  wait->turns++;
  /* While turns are short the clock is read once in a while only. */
  if (!slept && wait->turns % 64 != 0) return LS_OK;
  const int64_t now = ls_now_ns();
  if (wait->started_ns == 0) wait->started_ns = wait->looked_ns = now;
  const bool late = !comm->patient && (double)(now - wait->started_ns) * 1e-9 >= world->deadline_s;
  if (!late && now - wait->looked_ns < LOOK_NS) return LS_OK;
  char doing[DOING_BYTES];
  return ls_wait_look(wait, now, say_doing(comm, doing), error);
}

ls_status ls_wait_flag(ls_comm *comm, ls_flag *flag, uint32_t target, int peer, ls_error *error) {
  if (ls_flag_reached(flag, target)) return LS_OK;
  ls_wait wait = {.comm = comm, .peer = peer, .flag = flag, .target = target};
  do {
    LS_TRY(ls_wait_turn(&wait, error));
  } while (!ls_flag_reached(flag, target));
  return LS_OK;
}
