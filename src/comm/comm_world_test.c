/* What a world is made of: the memory that groups take, the notes of those who abort, whether
 * waiting ranks spin, and what is asked of the transport, by one that only takes notes. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cluster/machine.h"
#include "comm/world.h"

enum { MANY = 4096 };

static ls_error error;

/* --- groups of many ranks */

static int members[MANY];

static ls_group *group_of_many(ls_world *world, int rank) {
  ls_group *group = NULL;
  const ls_status status = ls_comm_group(ls_world_comm(world, rank), members, MANY, &group, &error);
  if (status != LS_OK) fail_msg("%s", error.text);
  return group;
}

typedef struct receipt {
  ls_group *group;
  int64_t number;
  ls_status status; /* for the test's own thread, where a check may fail */
  ls_error error;
} receipt;

static void *receive_last(void *argument) {
  receipt *self = argument;
  self->status = ls_receive(self->group, &self->number, 1, LS_I64, 0, &self->error);
  return NULL;
}

static void a_group_takes_memory_by_its_members(void **state) {
  (void)state;
  ls_world *world;
  assert_int_equal(ls_world_create_threads(MANY, &world, &error), LS_OK);
  for (int i = 0; i < MANY; i++) members[i] = i;
  ls_group *first = group_of_many(world, 0), *last = group_of_many(world, MANY - 1);
  for (int64_t sent = 7; sent < 9; sent++) {
    pthread_t thread;
    receipt received = {.group = last};
    assert_int_equal(pthread_create(&thread, NULL, receive_last, &received), 0);
    const ls_status status = ls_send(first, &sent, 1, LS_I64, MANY - 1, &error);
    if (status != LS_OK) ls_comm_abort(ls_world_comm(world, 0), error.text); /* the other waits */
    pthread_join(thread, NULL);
    if (status != LS_OK) fail_msg("%s", error.text);
    if (received.status != LS_OK) fail_msg("%s", received.error.text);
    assert_int_equal(received.number, sent);
  }
  ls_world_destroy(&world);
}

static void what_flags_may_take_is_bounded(void **state) {
  (void)state;
  int fd, made = 0;
  uint64_t offset;
  ls_control *control = ls_host_memory.reserve(ls_control_bytes(), false, &fd);
  assert_non_null(control);
  ls_control_init(control, 1);
  while (ls_control_carve(control, 1 << 20, &offset, &error) == LS_OK) made++;
  assert_in_range(made, 500, 511);
  assert_string_equal(error.text,
                      "the groups of this host's ranks need more than the 512 MiB kept for their "
                      "flags: start fewer ranks on a host");
  /* Which the others hear all the same. */
  assert_true(ls_control_abort(control, 3, error.text));
  assert_true(ls_control_aborted(control, &error));
  ls_host_memory.release(control, ls_control_bytes());
}

/* --- an abort */

static void who_dies_in_its_note_keeps_nobody_waiting(void **state) {
  (void)state;
  int fd;
  ls_control *control = ls_host_memory.reserve(ls_control_bytes(), true, &fd);
  assert_non_null(control);
  close(fd);
  ls_control_init(control, 1);
  char *gone = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(gone != MAP_FAILED);
  const pid_t child = fork();
  if (child == 0) {
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    signal(SIGSEGV, SIG_DFL); /* neither the test's handler nor a sanitizer's */
    signal(SIGBUS, SIG_DFL);
    (void)ls_control_abort(control, 1, gone);
    _exit(0); /* not reached: the text cannot be read */
  }
  int ended;
  assert_int_equal(waitpid(child, &ended, 0), child);
  assert_true(WIFSIGNALED(ended));
  assert_false(ls_control_aborted(control, &error));
  assert_true(ls_control_abort(control, 0, "the first that is heard"));
  assert_false(ls_control_abort(control, 2, "the second"));
  assert_true(ls_control_aborted(control, &error));
  assert_string_equal(error.text, "rank 0: the first that is heard");
  munmap(gone, 4096);
  ls_host_memory.release(control, ls_control_bytes());
}

/* --- spinning */

static void ranks_spin_where_each_has_a_thread(void **state) {
  (void)state;
  const int threads = ls_machine_probe().threads;
  for (int ranks = 1; ranks <= threads + 1; ranks++) {
    ls_world *world;
    assert_int_equal(ls_world_create_threads(ranks, &world, &error), LS_OK);
    assert_int_equal(world->crowded, ranks > threads);
    ls_world_destroy(&world);
  }
}

/* --- the transport */

static struct {
  int count;
  struct {
    bool receive;
    int peer;
    uint64_t tag;
    void *data;
  } items[4 * MANY];
} started;

static ls_status note_start(ls_transport *transport, bool receive, int from, int to, uint64_t tag,
                            void *data, size_t bytes, ls_request *request, ls_error *failure) {
  (void)transport;
  (void)failure;
  started.items[started.count].receive = receive;
  started.items[started.count].peer = receive ? from : to;
  started.items[started.count].tag = tag;
  started.items[started.count++].data = data;
  *request = (ls_request){.bytes = bytes, .peer = receive ? from : to, .receiving = receive};
  return LS_OK;
}

static int tests_asked;

static ls_status test_nothing(ls_transport *transport, ls_request *request, ls_error *failure) {
  tests_asked++;
  (void)transport;
  (void)request;
  (void)failure;
  return LS_OK;
}

static void do_nothing(ls_transport *transport) {
  (void)transport;
}

static void cancel_nothing(ls_transport *transport, ls_request *request) {
  (void)transport;
  (void)request;
}

/* Rank 0 of a world of processes, each on a host of its own. */
static ls_world *alone(int ranks, ls_transport *transport) {
  int fd;
  ls_world *world = ls_world_new(ranks, 0, 1);
  world->control = ls_host_memory.reserve(ls_control_bytes(), false, &fd);
  assert_non_null(world->control);
  ls_control_init(world->control, 0);
  for (int rank = 0; rank < ranks; rank++) {
    world->process[rank] = rank;
    world->place[rank] = rank ? -1 : 0;
  }
  transport->start = note_start;
  transport->test = test_nothing;
  transport->cancel = cancel_nothing;
  transport->poll = transport->announce = transport->destroy = do_nothing;
  ls_world_open(world, 1, 1);
  world->transport = transport;
  started.count = 0;
  return world;
}

static void a_barrier_receives_each_byte_in_a_place_of_its_own(void **state) {
  (void)state;
  enum { RANKS = 200 };
  ls_transport transport = {.tags = 2};
  ls_world *world = alone(RANKS, &transport);
  ls_group *group;
  for (int i = 0; i < RANKS; i++) members[i] = i;
  assert_int_equal(ls_comm_group(ls_world_comm(world, 0), members, RANKS, &group, &error), LS_OK);
  assert_int_equal(ls_barrier(group, &error), LS_OK);
  int received = 0;
  for (int i = 0; i < started.count; i++) {
    if (!started.items[i].receive) continue;
    received++;
    for (int j = 0; j < i; j++)
      if (started.items[j].receive && started.items[i].data == started.items[j].data)
        fail_msg("ranks %d and %d send into one byte", started.items[j].peer,
                 started.items[i].peer);
  }
  assert_int_equal(received, RANKS - 1);
  ls_world_destroy(&world);
}

/* As many groups as a pair has tags for, and not one more. */
static void no_two_groups_of_a_pair_share_a_tag(void **state) {
  (void)state;
  enum { TAGS = 100, GROUPS = TAGS / LS_STREAMS };
  ls_transport transport = {.tags = TAGS};
  ls_world *world = alone(4, &transport);
  ls_comm *comm = ls_world_comm(world, 0);
  ls_group *groups[GROUPS], *more;
  for (int g = 0; g < GROUPS; g++) {
    const int shared[] = {0, 1, 2 + g % 2};
    assert_int_equal(ls_comm_group(comm, shared, 3, &groups[g], &error), LS_OK);
  }
  for (int g = 0; g < GROUPS; g++) {
    float number = 1;
    assert_int_equal(ls_barrier(groups[g], &error), LS_OK);
    assert_int_equal(ls_send(groups[g], &number, 1, LS_F32, 1, &error), LS_OK);
  }
  bool used[TAGS] = {0};
  for (int i = 0; i < started.count; i++) {
    assert_in_range(started.items[i].tag, 0, TAGS - 1);
    if (started.items[i].receive || started.items[i].peer != 1) continue;
    if (used[started.items[i].tag]) fail_msg("tag %d twice", (int)started.items[i].tag);
    used[started.items[i].tag] = true;
  }
  for (int t = 0; t < TAGS; t++) assert_true(used[t]);
  assert_int_equal(ls_comm_group(comm, (int[]){0, 1}, 2, &more, &error), LS_INPUT);
  assert_string_equal(error.text,
                      "ranks 0 and 1 are in more than 50 groups together, and this MPI library has "
                      "no tags for more: start fewer ranks in a process");
  ls_world_destroy(&world);
}

static ls_status start_for_ever(ls_transport *transport, bool receive, int from, int to,
                                uint64_t tag, void *data, size_t bytes, ls_request *request,
                                ls_error *failure) {
  assert_int_equal(note_start(transport, receive, from, to, tag, data, bytes, request, failure),
                   LS_OK);
  request->active = true;
  return LS_OK;
}

/* A test gives the core away: one for each piece under way kept a loaded host busy for minutes. */
static void a_piece_is_sent_with_one_test_at_most(void **state) {
  (void)state;
  enum { MESSAGES = 8, PIECES = 25 };
  ls_transport transport = {.tags = 100};
  ls_world *world = alone(2, &transport);
  transport.start = start_for_ever;
  world->message_bytes = 4;
  ls_group *group;
  static float numbers[PIECES];
  assert_int_equal(ls_comm_group(ls_world_comm(world, 0), (const int[]){0, 1}, 2, &group, &error),
                   LS_OK);
  tests_asked = 0;
  for (int i = 0; i < MESSAGES; i++)
    assert_int_equal(ls_send_begin(group, numbers, PIECES, LS_F32, 1, &error), LS_OK);
  assert_int_equal(started.count, MESSAGES * PIECES);
  assert_in_range(tests_asked, 1, MESSAGES * PIECES);
  ls_world_destroy(&world);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_group_takes_memory_by_its_members),
      cmocka_unit_test(what_flags_may_take_is_bounded),
      cmocka_unit_test(who_dies_in_its_note_keeps_nobody_waiting),
      cmocka_unit_test(ranks_spin_where_each_has_a_thread),
      cmocka_unit_test(a_barrier_receives_each_byte_in_a_place_of_its_own),
      cmocka_unit_test(no_two_groups_of_a_pair_share_a_tag),
      cmocka_unit_test(a_piece_is_sent_with_one_test_at_most),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
