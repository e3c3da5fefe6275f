/* What the simulator makes of links that transfers share, of queues, and of ranks that are slow,
 * held against times worked out by hand. */
#include "sim/test_programs.h"

enum { WHOLE = 1000 }; /* numbers, of 4 bytes, that take a second alone on a link */

static void add_message(ls_program *program, bool sends, int peer, ls_phase phase) {
  add_action(
      program,
      &(ls_instruction){
          .collective = sends ? LS_SEND : LS_RECEIVE, .phase = phase, .peer = peer, .count = WHOLE},
      WHOLE);
}

static void check_ends(const ls_simulation *made, const double *ends, const char *what) {
  for (int s = 0; s < made->stages; s++)
    if (fabs(made->stage[s].end - ends[s]) > 1e-9)
      fail_msg("%s: stage %d ends after %.12g s, expected %.12g", what, s, made->stage[s].end,
               ends[s]);
}

/* Stages 0, 1 and 2 send to stage 3, whose link in gives each a third; stage 0 sends to stage 4
 * besides, which gets the two thirds that are left of its link out: 1.5 s, and 3 s for the others.
 * What stage 3 sends to stage 1 goes the other way, and takes a second. */
static void rates_are_max_min_fair(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_program *stages[5];
  for (int s = 0; s < 5; s++) stages[s] = stage_of(arena, 5, 1, 1, s);
  for (int s = 0; s < 3; s++) {
    add_message(stages[s], true, 3, LS_BEGIN);
    add_message(stages[3], false, s, LS_BEGIN);
  }
  add_message(stages[0], true, 4, LS_BEGIN);
  add_message(stages[4], false, 0, LS_WHOLE);
  add_message(stages[3], true, 1, LS_BEGIN);
  add_message(stages[1], false, 3, LS_WHOLE);
  add_message(stages[4], false, 0, LS_END);
  ls_performance performance = by_second();
  performance.per_host = performance.peer_devices = 8;
  const ls_simulation *made = simulated(arena, stages, &performance);
  assert_true(fabs(made->seconds - 3) < 1e-9);
  assert_true(fabs(made->stage[4].end - 1.5) < 1e-9);
  assert_true(fabs(made->stage[1].end - 1) < 1e-9);
  ls_arena_destroy(&arena);
}

/* Two devices of a host have a NIC between them: alone one has all of it, both half. */
static void devices_share_a_nic(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  for (int senders = 1; senders <= 2; senders++) {
    ls_program *stages[4];
    for (int s = 0; s < 4; s++) stages[s] = stage_of(arena, 4, 1, 1, s);
    for (int s = 0; s < senders; s++) {
      add_message(stages[s], true, s + 2, LS_WHOLE);
      add_message(stages[s + 2], false, s, LS_WHOLE);
    }
    ls_performance performance = by_second();
    performance.per_host = performance.nic_devices = 2;
    performance.network_per_s = 4000;
    const double end = senders == 1 ? 0.5 : 1;
    check_ends(simulated(arena, stages, &performance),
               (double[]){end, senders == 2 ? end : 0, end, senders == 2 ? end : 0}, "a NIC");
  }
  ls_arena_destroy(&arena);
}

/* A message to the host and one to a peer, over two links or over one. */
static void moves_share_the_port_of_peers(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  for (int one = 0; one < 2; one++) {
    ls_program *stages[2] = {stage_of(arena, 2, 1, 1, 0), stage_of(arena, 2, 1, 1, 1)};
    add_action(
        stages[0],
        &(ls_instruction){.collective = LS_MOVE, .phase = LS_BEGIN, .peer = -1, .count = WHOLE},
        WHOLE);
    stages[0]->storages.items[1].buffer_group = 1;
    LS_APPEND(arena, &stages[0]->buffer_groups)->pool = LS_POOL_HOST_STATE;
    add_message(stages[0], true, 1, LS_WHOLE);
    add_message(stages[1], false, 0, LS_WHOLE);
    ls_performance performance = by_second();
    performance.host_per_s = 4000;
    performance.one_port = one;
    check_ends(simulated(arena, stages, &performance), (double[]){1 + one, 1 + one}, "a port");
  }
  ls_arena_destroy(&arena);
}

/* Two ranks of a CPU copy to the host beside a second of computing each: on four cores with memory
 * for both all end after a second, with memory for one after two; on two cores, four threads have
 * half of one each. */
static void copies_share_cores_and_memory(void **state) {
  (void)state;
  static const struct {
    int cores;
    double copies, end;
  } cases[] = {{4, 2, 1}, {4, 0, 1}, {4, 1, 2}, {2, 2, 2}, {2, 1, 2}};
  ls_arena *arena = ls_arena_create();
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    ls_program *stages[1] = {stage_of(arena, 1, 2, 1, 0)};
    ls_instruction move = {.collective = LS_MOVE, .phase = LS_BEGIN, .peer = -1, .count = WHOLE};
    add_action(stages[0], &move, WHOLE);
    stages[0]->storages.items[1].buffer_group = 1;
    LS_APPEND(arena, &stages[0]->buffer_groups)->pool = LS_POOL_HOST_STATE;
    add_copy(stages[0], 1000);
    ls_performance performance = by_second();
    performance.host_per_s = 4000;
    performance.cores = cases[c].cores;
    performance.threads = 1;
    performance.copies = cases[c].copies;
    const ls_simulation *made = simulated(arena, stages, &performance);
    if (fabs(made->seconds - cases[c].end) > 1e-9)
      fail_msg("%d cores, %g copies: %g s", cases[c].cores, cases[c].copies, made->seconds);
  }
  ls_arena_destroy(&arena);
}

static void add_gather(ls_program *program, ls_axes axes, ls_phase phase, int64_t numbers) {
  add_action(program,
             &(ls_instruction){.collective = LS_ALL_GATHER,
                               .phase = phase,
                               .axes = axes,
                               .peer = -1,
                               .wait = -1,
                               .count = numbers},
             numbers);
}

/* A gather of two seconds over one axis begins, one of a second over another, which is waited for
 * before ten seconds of copies. Beside each other each has half of the link, so the second takes
 * two; behind the first, by one queue for both or by an event, it is there after three. */
static void groups_queue_apart_but_for_events(void **state) {
  (void)state;
  ls_queues one = ls_queues_nccl;
  one.groups_apart = false;
  const struct {
    const ls_queues *queues;
    int wait;
    double seconds;
  } known[] = {{&ls_queues_nccl, -1, 12}, {&one, -1, 13}, {&ls_queues_nccl, 0, 13}, {&one, 0, 13}};
  ls_arena *arena = ls_arena_create();
  for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
    ls_program *stages[1] = {stage_of(arena, 1, 2, 2, 0)};
    add_gather(stages[0], 1u << LS_AXIS_DP_SHARD, LS_BEGIN, 4 * WHOLE);
    add_gather(stages[0], 1u << LS_AXIS_TP_KV, LS_BEGIN, 2 * WHOLE);
    stages[0]->bodies.items[0].count = 2; /* both in one */
    stages[0]->bodies.count = stages[0]->actions.count = 1;
    stages[0]->instructions.items[1].wait = known[k].wait;
    add_gather(stages[0], 1u << LS_AXIS_TP_KV, LS_END, 2 * WHOLE);
    add_copy(stages[0], 10 * WHOLE);
    ls_performance performance = by_second();
    performance.queues = known[k].queues;
    const ls_simulation *made = simulated(arena, stages, &performance);
    if (fabs(made->seconds - known[k].seconds) > 1e-9)
      fail_msg("row %zu: %.12g s, expected %.12g", k, made->seconds, known[k].seconds);
  }
  ls_arena_destroy(&arena);
}

/* Two hosts of two ranks. A gather over all four sends 12000 bytes: over the two NICs of a host, of
 * 1000 a second, in six seconds; half of them over peers' links, 4000 a second, in one and a half.
 * A gather within hosts of two seconds beside it: of peers' links one wants a quarter, the other
 * all, so both go at 0.8 of their rates until that is done, after 2.5 s. Where peers' links are a
 * fifth as fast, they are what the first one waits for. */
static void collectives_over_hosts_take_of_both_links(void **state) {
  (void)state;
  static const struct {
    bool beside;
    double peers, seconds[2];
  } known[] = {{false, 0, {6, 0}}, {true, 0, {6.5, 2.5}}, {false, 0.2, {7.5, 0}}};
  ls_arena *arena = ls_arena_create();
  for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
    ls_program *stages[1] = {stage_of(arena, 1, 2, 2, 0)};
    const ls_axes within = 1u << LS_AXIS_TP_KV, all = within | 1u << LS_AXIS_DP_SHARD;
    add_gather(stages[0], all, LS_BEGIN, 4 * WHOLE);
    if (known[k].beside) add_gather(stages[0], within, LS_BEGIN, 4 * WHOLE);
    ls_performance performance = by_second();
    performance.per_host = performance.peer_devices = 2;
    performance.network_per_s = 1000;
    const ls_sim_options options = {.link_of = {[LS_LINK_PEER] = known[k].peers}};
    const ls_simulation *made = simulate_with(arena, stages, &performance, &options);
    assert_int_equal(made->stages, 1);
    for (int c = 0; c < made->stage[0].causes.count; c++) {
      const ls_sim_cause *each = &made->stage[0].causes.items[c];
      const double expected = known[k].seconds[each->axes == within];
      if (fabs(each->seconds - expected) > 1e-9)
        fail_msg("row %zu: %.12g s, expected %.12g", k, each->seconds, expected);
    }
    assert_int_equal(made->stage[0].causes.count, 1 + known[k].beside);
  }
  ls_arena_destroy(&arena);
}

/* Stage 0 sends to stage 1, which takes it after three seconds, and then to stage 2: behind the
 * first where one queue is for all, at once where each peer has its own. */
static void messages_queue_as_the_engine_says(void **state) {
  (void)state;
  static const ls_queues one = {"one", LS_QUEUE_FOR_ALL, .holds = true};
  static const struct {
    const ls_queues *queues;
    double ends[3];
  } known[] = {{NULL, {0, 4, 1}}, {&ls_queues_nccl, {0, 4, 1}}, {&one, {0, 4, 5}}};
  ls_arena *arena = ls_arena_create();
  for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
    ls_program *stages[3];
    for (int s = 0; s < 3; s++) stages[s] = stage_of(arena, 3, 1, 1, s);
    add_message(stages[0], true, 1, LS_BEGIN);
    add_message(stages[0], true, 2, LS_BEGIN);
    add_copy(stages[1], 3 * WHOLE);
    add_message(stages[1], false, 0, LS_WHOLE);
    add_message(stages[2], false, 0, LS_WHOLE);
    ls_performance performance = by_second();
    performance.queues = known[k].queues;
    check_ends(simulated(arena, stages, &performance), known[k].ends, "queues");
  }
  ls_arena_destroy(&arena);
}

/* A receive that is begun, then three seconds of computing, then its end: a message that holds its
 * queue came meanwhile, one that does not is carried by who waits for it. */
static void messages_in_process_are_carried_by_who_takes_them(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  for (int holds = 0; holds < 2; holds++) {
    ls_program *stages[2] = {stage_of(arena, 2, 1, 1, 0), stage_of(arena, 2, 1, 1, 1)};
    add_message(stages[0], true, 1, LS_WHOLE);
    add_message(stages[1], false, 0, LS_BEGIN);
    add_message(stages[1], false, 0, LS_END);
    add_copy(stages[1], 3 * WHOLE);
    ls_program_action *actions = stages[1]->actions.items;
    const ls_program_action copy = actions[2];
    actions[2] = actions[1], actions[1] = copy;
    ls_performance performance = by_second();
    performance.queues = holds ? &ls_queues_nccl : &ls_queues_in_process;
    check_ends(simulated(arena, stages, &performance), (double[]){holds ? 1 : 4, holds ? 3 : 4},
               "carrying");
  }
  ls_arena_destroy(&arena);
}

/* Two hosts of two ranks, the second at half its speed: a copy of a second, and a gather of one. */
static void slow_hosts_are_waited_for(void **state) {
  (void)state;
  static const double speeds[4] = {1, 1, 0.5, 0.5};
  const ls_sim_options options = {.rank_speed = speeds};
  ls_arena *arena = ls_arena_create();
  for (int within = 0; within < 2; within++) { /* the gather's groups: in a host, over both */
    ls_program *stages[1] = {stage_of(arena, 1, 2, 2, 0)};
    const ls_axes axes = 1u << (within ? LS_AXIS_TP_KV : LS_AXIS_DP_SHARD);
    add_copy(stages[0], WHOLE);
    add_action(stages[0],
               &(ls_instruction){
                   .collective = LS_ALL_GATHER, .axes = axes, .peer = -1, .count = 2 * WHOLE},
               2 * WHOLE);
    ls_performance performance = by_second();
    performance.per_host = performance.peer_devices = 2;
    performance.network_per_s = 4000;
    const ls_simulation *made = simulate_with(arena, stages, &performance, &options);
    assert_int_equal(made->stages, 2);
    assert_true(made->stage[0].ranks == 2 && made->stage[1].ranks == 2);
    assert_true(made->stage[1].rank == 2 && made->of_rank[1] == 0 && made->of_rank[3] == 1);
    check_ends(made, (double[]){within ? 2 : 3, 3}, "a slow host");
    double late = 0;
    for (int c = 0; c < made->stage[0].causes.count; c++)
      if (made->stage[0].causes.items[c].late == 1) late += made->stage[0].causes.items[c].exposed;
    assert_true(fabs(late - (within ? 0 : 1)) < 1e-9);
    assert_true(fabs(made->bubble - (within ? 1.0 / 6 : 0)) < 1e-9);
  }
  ls_arena_destroy(&arena);
}

/* 2 x 3 x 2 ranks, of which one is slow: it; who meets it over tp; over dp_shard; over both. */
static void ranks_differ_by_whom_they_meet(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  double speeds[12];
  for (int r = 0; r < 12; r++) speeds[r] = r == 3 ? 0.5 : 1;
  const ls_sim_options options = {.rank_speed = speeds};
  ls_program *stages[2] = {stage_of(arena, 2, 3, 2, 0), stage_of(arena, 2, 3, 2, 1)};
  ls_performance performance = by_second();
  const ls_simulation *made = simulate_with(arena, stages, &performance, &options);
  assert_int_equal(made->stages, 8);
  static const int of_rank[12] = {0, 1, 2, 3, 0, 1, 4, 5, 6, 7, 4, 5};
  for (int r = 0; r < 12; r++) assert_int_equal(made->of_rank[r], of_rank[r]);
  performance.per_host = 8; /* and without slow ones: the last four are on a host of their own */
  assert_int_equal(simulated(arena, stages, &performance)->stages, 4);
  performance.per_host = 6;
  assert_int_equal(simulated(arena, stages, &performance)->stages, 2);
  ls_arena_destroy(&arena);
}

/* Kernels lose by what runs beside them, each kind for itself, and both together. */
static void transfers_take_their_part_of_compute(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  static const double expected[4] = {1, 1.25, 2, 4}; /* 1, 1 / 0.8, 1 / 0.5, 1 / 0.25 */
  for (int kinds = 0; kinds < 4; kinds++) {
    ls_program *stages[1] = {stage_of(arena, 1, 2, 1, 0)};
    for (int kind = 0; kind < 2; kind++) {
      if (!(kinds & 1 << kind)) continue;
      add_action(stages[0],
                 &(ls_instruction){.collective = kind ? LS_ALL_GATHER : LS_MOVE,
                                   .phase = LS_BEGIN,
                                   .axes = 1u << LS_AXIS_DP_SHARD,
                                   .peer = -1,
                                   .count = 10 * WHOLE},
                 10 * WHOLE);
    }
    add_copy(stages[0], WHOLE);
    ls_performance performance = by_second();
    performance.host_per_s = 4000;
    performance.interference[LS_LINK_PEER] = 0.5;
    performance.interference[LS_LINK_TO_HOST] = 0.25;
    performance.interference[LS_LINK_FROM_HOST] = 0.2;
    if (kinds == 3) performance.interference[LS_LINK_FROM_HOST] = 0.25;
    const ls_simulation *made = simulated(arena, stages, &performance);
    if (fabs(made->stage[0].compute - expected[kinds]) > 1e-9)
      fail_msg("kinds %d: %.12g s, expected %.12g", kinds, made->stage[0].compute, expected[kinds]);
  }
  ls_arena_destroy(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rates_are_max_min_fair),
      cmocka_unit_test(devices_share_a_nic),
      cmocka_unit_test(moves_share_the_port_of_peers),
      cmocka_unit_test(copies_share_cores_and_memory),
      cmocka_unit_test(groups_queue_apart_but_for_events),
      cmocka_unit_test(collectives_over_hosts_take_of_both_links),
      cmocka_unit_test(messages_queue_as_the_engine_says),
      cmocka_unit_test(messages_in_process_are_carried_by_who_takes_them),
      cmocka_unit_test(slow_hosts_are_waited_for),
      cmocka_unit_test(ranks_differ_by_whom_they_meet),
      cmocka_unit_test(transfers_take_their_part_of_compute)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
