/* Communicators on NCCL's stand-in: what it holds a program to. Each rule that is broken is refused
 * with what was wrong, or told to all ranks; a message holds its queue until it is matched. One
 * thread is both ranks, since no call waits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/clock.h"
#include "device/device.h"

enum { RANKS = 2, BYTES = 1 << 16, COUNT = 64 };

static const int64_t LONG_NS = (int64_t)20 * 1000000000, MOMENT_NS = 50 * 1000000;

static ls_device device;
static const ls_communicator_calls *calls;
static ls_device_queue queues[RANKS][LS_DEVICE_QUEUES];
static void *memory[RANKS];
static ls_communicator *comms[RANKS];

static void rest(void) {
  nanosleep(&(struct timespec){.tv_nsec = 100 * 1000}, NULL);
}

static ls_device_queue *queue_of(int rank) {
  ls_error error;
  if (device.transfers->visit(&queues[rank][LS_TIER_DEVICE], &error) != LS_OK)
    fail_msg("%s", error.text);
  return &queues[rank][LS_TIER_DEVICE];
}

static int set_up(void **state) {
  (void)state;
  ls_error error = {0};
  int none;
  const ls_device_options options = {.kind = "cuda", .compute = LS_F32};
  if (ls_device_open(&options, &device, &error) != LS_OK) fail_msg("%s", error.text);
  calls = device.communicators;
  assert_non_null(calls);
  assert_non_null(strstr(calls->version(), "NCCL 2.28.9"));
  for (int r = 0; r < RANKS; r++) {
    assert_int_equal(device.enter(&device, &(ls_device_place){r, r}, queues[r], &error), LS_OK);
    memory[r] = device.memory->reserve(BYTES, false, &none);
    assert_non_null(memory[r]);
  }
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  for (int r = RANKS; r-- > 0;) {
    device.memory->release(memory[r], BYTES);
    device.leave(queues[r]);
  }
  return 0;
}

/* Until none is busy; the first failure. */
static ls_status settle(ls_error *error) {
  const int64_t begun = ls_now_ns();
  for (bool busy = true; busy; rest()) {
    busy = false;
    for (int r = 0; r < RANKS; r++) {
      bool one = false;
      if (comms[r]) LS_TRY(calls->poll(comms[r], &one, error));
      busy = busy || one;
    }
    if (ls_now_ns() - begun > LONG_NS) return ls_fail(error, LS_FAILED, "they do not settle");
  }
  return LS_OK;
}

static ls_status meet(const int gpus[RANKS], ls_error *error) {
  ls_communicator_id id;
  LS_TRY(calls->make_id(&id, error));
  for (int r = 0; r < RANKS; r++)
    LS_TRY(calls->create(queue_of(gpus[r]), &id, RANKS, r, 4, &comms[r], error));
  return settle(error);
}

static void part(void) {
  for (int r = 0; r < RANKS; r++) {
    calls->abort(comms[r]);
    comms[r] = NULL;
  }
}

static void meet_and_keep(void) {
  ls_error error = {0};
  void *kept;
  if (meet((const int[]){0, 1}, &error) != LS_OK) fail_msg("%s", error.text);
  for (int r = 0; r < RANKS; r++) {
    (void)queue_of(r);
    assert_int_equal(calls->keep(comms[r], memory[r], BYTES, &kept, &error), LS_OK);
  }
}

static ls_communicator_work work_at(int rank, ls_communicator_kind kind, int64_t count,
                                    ls_dtype dtype) {
  return (ls_communicator_work){.kind = kind,
                                .source = memory[rank],
                                .target = (char *)memory[rank] + BYTES / 2,
                                .count = count,
                                .dtype = dtype,
                                .peer = 1 - rank};
}

static ls_status put(int rank, ls_communicator_kind kind, int64_t count, ls_dtype dtype,
                     ls_error *error) {
  const ls_communicator_work work = work_at(rank, kind, count, dtype);
  return calls->put(comms[rank], queue_of(rank), &work, error);
}

/* Both ranks put something, which they do not agree on: each is told. */
static void differ(ls_communicator_kind kind, int64_t count, ls_dtype dtype) {
  ls_error error = {0};
  meet_and_keep();
  assert_int_equal(put(0, LS_TOGETHER_ALL_REDUCE, COUNT, LS_F32, &error), LS_OK);
  assert_int_equal(put(1, kind, count, dtype, &error), LS_OK);
  for (int r = 0; r < RANKS; r++) {
    bool busy;
    const int64_t begun = ls_now_ns();
    while (calls->poll(comms[r], &busy, &error) == LS_OK && ls_now_ns() - begun < LONG_NS) rest();
    assert_non_null(strstr(error.text, "invalid usage: rank"));
    error = (ls_error){0};
  }
  part();
}

static void ranks_that_differ_are_told(void **state) {
  (void)state;
  differ(LS_TOGETHER_ALL_GATHER, COUNT, LS_F32);
  differ(LS_TOGETHER_ALL_REDUCE, COUNT + 1, LS_F32);
  differ(LS_TOGETHER_ALL_REDUCE, COUNT, LS_BF16);
}

static void sums_are_of_both(void **state) {
  (void)state;
  ls_error error = {0};
  meet_and_keep();
  for (int r = 0; r < RANKS; r++) {
    float values[COUNT];
    for (int i = 0; i < COUNT; i++) values[i] = (float)(i + 100 * r);
    (void)queue_of(r);
    assert_int_equal(device.memory->write(memory[r], values, sizeof values, &error), LS_OK);
  }
  for (int r = 0; r < RANKS; r++)
    assert_int_equal(put(r, LS_TOGETHER_ALL_REDUCE, COUNT, LS_F32, &error), LS_OK);
  for (int r = 0; r < RANKS; r++) {
    float sums[COUNT];
    assert_int_equal(device.wait(queue_of(r), &error), LS_OK);
    assert_int_equal(device.memory->read(sums, (char *)memory[r] + BYTES / 2, sizeof sums, &error),
                     LS_OK);
    for (int i = 0; i < COUNT; i++) assert_true(sums[i] == (float)(2 * i + 100));
  }
  part();
}

static void a_message_holds_its_queue(void **state) {
  (void)state;
  ls_error error = {0};
  ls_device_event *sent;
  bool passed = true;
  meet_and_keep();
  assert_int_equal(device.transfers->make_event(queue_of(0), &sent, &error), LS_OK);
  assert_int_equal(put(0, LS_TOGETHER_SEND, COUNT, LS_F32, &error), LS_OK);
  assert_int_equal(device.transfers->record(queue_of(0), sent, &error), LS_OK);
  for (const int64_t begun = ls_now_ns(); ls_now_ns() - begun < MOMENT_NS;) rest();
  assert_int_equal(device.transfers->passed(sent, &passed, &error), LS_OK);
  assert_false(passed);
  assert_int_equal(put(1, LS_TOGETHER_RECEIVE, COUNT, LS_F32, &error), LS_OK);
  assert_int_equal(device.wait(queue_of(1), &error), LS_OK);
  assert_int_equal(device.wait(queue_of(0), &error), LS_OK);
  assert_int_equal(device.transfers->passed(sent, &passed, &error), LS_OK);
  assert_true(passed);
  device.transfers->free_event(sent);
  part();
}

static void refused(ls_status status, ls_error *error, const char *text) {
  assert_int_equal(status, LS_FAILED);
  if (!strstr(error->text, text)) fail_msg("said: %s; expected: %s", error->text, text);
  *error = (ls_error){0};
}

static void rules_are_held(void **state) {
  (void)state;
  ls_error error = {0};
  void *kept;
  refused(meet((const int[]){0, 0}, &error), &error, "Duplicate GPU");
  part();
  assert_int_equal(meet((const int[]){0, 1}, &error), LS_OK);
  refused(put(0, LS_TOGETHER_ALL_REDUCE, COUNT, LS_F32, &error), &error, "not registered");
  refused(calls->keep(comms[0], &device, sizeof device, &kept, &error), &error, "not mapped");
  part();
  meet_and_keep();
  const ls_communicator_work work = work_at(0, LS_TOGETHER_ALL_REDUCE, COUNT, LS_F32);
  refused(calls->put(comms[0], queue_of(1), &work, &error), &error, "another device is current");
  refused(calls->close_group(comms[0], &error), &error, "no group is open");
  assert_int_equal(calls->finish(comms[0], &error), LS_OK);
  refused(put(0, LS_TOGETHER_ALL_REDUCE, COUNT, LS_F32, &error), &error, "busy");
  part();
  meet_and_keep();
  (void)queue_of(1);
  device.memory->release(memory[1], BYTES);
  refused(put(1, LS_TOGETHER_ALL_REDUCE, COUNT, LS_F32, &error), &error, "not registered");
  int none;
  memory[1] = device.memory->reserve(BYTES, false, &none);
  part();
}

/* Of two ranks each has a color of its own, or none. */
static void a_split_gives_each_its_own(void **state) {
  (void)state;
  ls_error error = {0};
  ls_communicator *made[RANKS];
  meet_and_keep();
  for (int r = 0; r < RANKS; r++)
    assert_int_equal(calls->split(comms[r], r ? -1 : 7, 0, 4, &made[r], &error), LS_OK);
  assert_int_equal(settle(&error), LS_OK);
  bool busy = true;
  while (busy) assert_int_equal(calls->poll(made[0], &busy, &error), LS_OK);
  assert_int_equal(calls->finish(made[0], &error), LS_OK);
  for (busy = true; busy;) assert_int_equal(calls->poll(made[0], &busy, &error), LS_OK);
  calls->destroy(made[0]);
  calls->destroy(made[1]);
  part();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ranks_that_differ_are_told), cmocka_unit_test(sums_are_of_both),
      cmocka_unit_test(a_message_holds_its_queue), cmocka_unit_test(rules_are_held),
      cmocka_unit_test(a_split_gives_each_its_own)};
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
