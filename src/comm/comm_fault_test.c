/* What happens when a rank errs, is late, or does something else than the others: the control block
 * they share, and every wait on it. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "comm/world.h"

enum { RANKS = 4, COUNT = 300000 };

typedef struct rank rank;
struct rank {
  ls_world *world;
  int number;
  ls_group *group;
  ls_status (*body)(rank *, ls_error *);
  ls_status status;
  ls_error error;
};

static ls_comm *comm_of(const rank *self) {
  return ls_world_comm(self->world, self->number);
}

static void *run(void *argument) {
  rank *self = argument;
  const int members[RANKS] = {0, 1, 2, 3};
  self->status = ls_comm_group(comm_of(self), members, RANKS, &self->group, &self->error);
  if (self->status == LS_OK) self->status = self->body(self, &self->error);
  return NULL;
}

static void run_ranks(rank *ranks, double deadline, ls_status (*body)(rank *, ls_error *)) {
  ls_error error = {0};
  ls_world *world;
  pthread_t threads[RANKS];
  assert_int_equal(ls_world_create_threads(RANKS, &world, &error), LS_OK);
  ls_world_set_deadline(world, deadline);
  for (int i = 0; i < RANKS; i++) {
    ranks[i] = (rank){.world = world, .number = i, .body = body};
    assert_int_equal(pthread_create(&threads[i], NULL, run, &ranks[i]), 0);
  }
  for (int i = 0; i < RANKS; i++) pthread_join(threads[i], NULL);
  ls_world_destroy(&world);
}

static void nap(int milliseconds) {
  const struct timespec time = {.tv_nsec = milliseconds * 1000000L};
  nanosleep(&time, NULL);
}

/* As late as can be: the others' deadline has passed. */
static void nap_until_abort(const rank *self) {
  while (!ls_control_aborted(self->world->control, NULL)) nap(5);
}

static int which; /* collective of the running test */

/* One collective with data that is freed as soon as it returns. */
static ls_status collective(rank *self, ls_error *error) {
  const int number = self->number;
  float *data = calloc(COUNT, sizeof *data), *other = calloc(COUNT, sizeof *other);
  const int64_t counts[RANKS] = {COUNT / RANKS, COUNT / RANKS, COUNT / RANKS, COUNT / RANKS};
  ls_group *group = self->group;
  ls_status status = LS_OK;
  switch (which) {
    case 0: status = ls_all_reduce(group, data, COUNT, LS_F32, LS_SUM, error); break;
    case 1: status = ls_reduce_scatter(group, other, data, COUNT, LS_F32, false, error); break;
    case 2: status = ls_all_gather(group, other, data, COUNT, LS_F32, error); break;
    case 3: status = ls_broadcast(group, data, COUNT, LS_F32, 1, error); break;
    case 4: status = ls_all_to_all(group, other, counts, data, counts, LS_F32, error); break;
    case 5: status = ls_barrier(group, error); break;
    case 7: {
      const ls_resharding of = {.ndim = 2,
                                .source = {COUNT / 1000 / RANKS, 1000},
                                .target = {COUNT / 1000, 1000 / RANKS},
                                .gathered = 0,
                                .cut = 1};
      status = ls_reshard(group, other, data, &of, LS_F32, error);
      break;
    }
    case 8: status = ls_permute(group, other, data, COUNT, 1, LS_F32, error); break;
    case 6: /* pairs; 0 and 1 never meet */
      if (number == 0) status = ls_receive(group, data, COUNT, LS_F32, 1, error);
      if (number == 2) status = ls_send(group, data, COUNT, LS_F32, 1, error);
      if (number == 3) status = ls_receive(group, data, COUNT, LS_F32, 1, error);
      break;
    default: break;
  }
  free(data);
  free(other);
  return status;
}

static ls_status abort_body(rank *self, ls_error *error) {
  if (self->number != 1) return collective(self, error);
  nap(150); /* so that the others are asleep by then */
  ls_comm_abort(comm_of(self), "layers.3.attention: NaN");
  ls_comm_abort(comm_of(self), "a second text, which changes nothing");
  return ls_barrier(self->group, error);
}

static void abort_reaches_every_wait(void **state) {
  (void)state;
  for (which = 0; which <= 8; which++) {
    rank ranks[RANKS];
    run_ranks(ranks, 100, abort_body);
    for (int i = 0; i < RANKS; i++) {
      if (ranks[i].status != LS_FAILED) fail_msg("collective %d, rank %d went on", which, i);
      assert_string_equal(ranks[i].error.text, "rank 1: layers.3.attention: NaN");
    }
  }
}

/* Collectives one after the other until the abort comes at any moment of one: data is freed at
 * once, so that a peer still reading it is found by AddressSanitizer. */
static ls_status storm_body(rank *self, ls_error *error) {
  for (int i = 0;; i++) {
    if (self->number == 2 && i == 7) {
      nap(1);
      ls_comm_abort(comm_of(self), "enough");
    }
    const ls_status status = collective(self, error);
    if (status != LS_OK) return status;
  }
}

static void abort_in_the_middle(void **state) {
  (void)state;
  for (int repeat = 0; repeat < 20; repeat++) {
    rank ranks[RANKS];
    which = 0;
    run_ranks(ranks, 100, storm_body);
    for (int i = 0; i < RANKS; i++) {
      assert_int_equal(ranks[i].status, LS_FAILED);
      assert_string_equal(ranks[i].error.text, "rank 2: enough");
    }
  }
}

static ls_status late_body(rank *self, ls_error *error) {
  if (self->number != 3) return collective(self, error);
  nap_until_abort(self);
  return collective(self, error);
}

static void deadline_ends_all(void **state) {
  (void)state;
  for (which = 0; which <= 5; which += 5) {
    rank ranks[RANKS];
    run_ranks(ranks, 0.3, late_body);
    for (int i = 0; i < RANKS; i++) {
      assert_int_equal(ranks[i].status, LS_FAILED);
      assert_string_equal(ranks[i].error.text, ranks[0].error.text);
      assert_non_null(strstr(ranks[i].error.text, " s for rank 3 in "));
      assert_non_null(strstr(ranks[i].error.text,
                             which == 0 ? "all-reduce of 300000 fp32" : "barrier of 4 ranks"));
    }
  }
}

static ls_status patient_body(rank *self, ls_error *error) {
  if (self->number == 3) nap(900);
  ls_comm_set_patient(comm_of(self), true);
  LS_TRY(collective(self, error));
  ls_comm_set_patient(comm_of(self), false);
  if (self->number == 1) nap_until_abort(self);
  return collective(self, error);
}

/* Of two late ranks only the one that is waited for without patience ends the run. */
static void patience_has_no_deadline(void **state) {
  (void)state;
  which = 0;
  rank ranks[RANKS];
  run_ranks(ranks, 0.3, patient_body);
  for (int i = 0; i < RANKS; i++) {
    assert_int_equal(ranks[i].status, LS_FAILED);
    assert_non_null(strstr(ranks[i].error.text, " s for rank 1 in "));
  }
}

static ls_status never_made_body(rank *self, ls_error *error) {
  const int pair[2] = {0, 1};
  ls_group *group;
  if (self->number == 1) return ls_comm_group(comm_of(self), pair, 2, &group, error);
  if (self->number == 0) nap_until_abort(self); /* it should have made the pair */
  return ls_barrier(self->group, error);
}

static void group_that_is_never_made(void **state) {
  (void)state;
  rank ranks[RANKS];
  run_ranks(ranks, 0.3, never_made_body);
  for (int i = 0; i < RANKS; i++) {
    assert_int_equal(ranks[i].status, LS_FAILED);
    assert_non_null(strstr(ranks[i].error.text, "waited "));
  }
}

static ls_status disagree_body(rank *self, ls_error *error) {
  float data[8] = {0};
  const int64_t count = which == 0 && self->number == 2 ? 7 : 8;
  const ls_reduce op = which == 1 && self->number == 2 ? LS_MAX : LS_SUM;
  if (which == 2 && self->number == 2) {
    return ls_reduce_scatter(self->group, data, data + 4, 4, LS_F32, false, error);
  }
  return ls_all_reduce(self->group, data, count, LS_F32, op, error);
}

static void disagreement_is_named(void **state) {
  (void)state;
  for (which = 0; which < 3; which++) {
    rank ranks[RANKS];
    run_ranks(ranks, 100, disagree_body);
    for (int i = 0; i < RANKS; i++) {
      assert_int_equal(ranks[i].status, LS_FAILED);
      assert_non_null(strstr(ranks[i].error.text, "ranks disagree: "));
      assert_non_null(strstr(ranks[i].error.text, "all-reduce of 8 fp32"));
    }
  }
}

static ls_status wrong_portions_body(rank *self, ls_error *error) {
  float data[16] = {0}, other[16] = {0};
  int64_t sent[RANKS] = {2, 2, 2, 2};
  const int64_t received[RANKS] = {2, 2, 2, 2};
  if (self->number == 0) sent[3] = 3;
  return ls_all_to_all(self->group, other, received, data, sent, LS_F32, error);
}

static void wrong_portion_is_named(void **state) {
  (void)state;
  rank ranks[RANKS];
  run_ranks(ranks, 100, wrong_portions_body);
  for (int i = 0; i < RANKS; i++) {
    if (ranks[i].status == LS_OK) continue; /* those it does not concern may be through */
    assert_string_equal(ranks[i].error.text,
                        "rank 3: all-to-all: 8 bytes expected of rank 0, which sends 12");
  }
  assert_int_equal(ranks[3].status, LS_FAILED);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(abort_reaches_every_wait), cmocka_unit_test(abort_in_the_middle),
      cmocka_unit_test(deadline_ends_all),        cmocka_unit_test(group_that_is_never_made),
      cmocka_unit_test(disagreement_is_named),    cmocka_unit_test(wrong_portion_is_named),
      cmocka_unit_test(patience_has_no_deadline),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
