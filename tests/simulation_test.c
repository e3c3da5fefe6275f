/* The simulator held against what is known: pipeline schedules by their formulas, transfers whose
 * overlap can be counted by hand, and that faster is never slower. */
#include <string.h>

#include "base/random.h"
#include "lower/training.h"
#include "schedule/chunks.h"
#include "sim/test_programs.h"

static ls_compiled compile(ls_arena *arena, const ls_model_config *config, int64_t batch,
                           const ls_layout *layout) {
  const ls_training training = {.model = config, .batch = batch, .sequence = 64};
  ls_compiled compiled;
  ls_error error = {0};
  if (ls_compile(arena, &training, layout, ls_device_facts_cpu("plain"), &compiled, &error) !=
      LS_OK)
    fail_msg("%s: %s", ls_layout_print(arena, layout), error.text);
  return compiled;
}

/* A pass over a layer takes a unit, over its whole backward two; all else nothing. */
static double unit_seconds(const void *context, const ls_program *program,
                           const ls_program_action *action) {
  (void)context;
  const int segment = action->action.segment;
  if (segment < 0 || strncmp(program->segments.items[segment].name, "layers", 6) != 0) return 0;
  switch (action->action.kind) {
    case LS_ACTION_FORWARD:
    case LS_ACTION_INPUT:
    case LS_ACTION_WEIGHT: return 1;
    case LS_ACTION_BACKWARD: return 2;
    default: return 0;
  }
}

static ls_performance free_links(void) {
  return (ls_performance){.name = "units", .per_host = 1024, .peer_devices = 1024};
}

/* One layer a chunk: the step is as long as the schedule's own list of passes says. */
static void schedules_take_what_their_lists_say(void **state) {
  (void)state;
  const ls_performance performance = free_links();
  const ls_sim_options options = {.seconds_of = unit_seconds};
  int held = 0;
  for (int k = 0; k < ls_pipeline_kind_count; k++)
    for (int stages = 2; stages <= 5; stages++)
      for (int microbatches = stages; microbatches <= 3 * stages; microbatches += stages) {
        ls_arena *arena = ls_arena_create();
        ls_layout layout = ls_layout_default();
        layout.pp = stages;
        layout.schedule = ls_pipeline_kinds[k].name;
        layout.microbatches = microbatches;
        ls_pipeline *pipeline;
        ls_pipeline_times *times;
        ls_error error = {0};
        if (ls_chunks_pipeline(arena, &layout, &pipeline, &error) == LS_OK) {
          assert_int_equal(
              ls_pipeline_times_make(arena, pipeline, &ls_pipeline_unit_costs, &times, &error),
              LS_OK);
          ls_model_config config;
          assert_int_equal(ls_model_find(arena, "llama-3m", &config, &error), LS_OK);
          config.layers = stages * pipeline->chunks;
          const ls_compiled compiled = compile(arena, &config, microbatches, &layout);
          ls_simulation *simulation;
          if (ls_simulate(arena, compiled.stages[LS_COMPILED_STEP], &performance, &options,
                          &simulation, &error) != LS_OK)
            fail_msg("%s: %s", layout.schedule, error.text);
          if (simulation->seconds != times->makespan)
            fail_msg("%s, %d stages, %d microbatches: %.17g simulated, %.17g by its list",
                     layout.schedule, stages, microbatches, simulation->seconds, times->makespan);
          if (fabs(simulation->bubble - times->bubble) > 1e-12)
            fail_msg("%s, %d stages, %d microbatches: bubble %.17g simulated, %.17g by its list",
                     layout.schedule, stages, microbatches, simulation->bubble, times->bubble);
          held++;
        }
        ls_arena_destroy(&arena);
      }
  print_message("%d schedules\n", held);
  assert_true(held >= 80);
}

enum { SOURCE, WHOLE, HERE, THERE, VALUES };

/* Two ranks: a gather begins, something is copied, the gather is waited for, then a copy again. */
static ls_program *overlapping(ls_arena *arena, int64_t gathered, int64_t copied) {
  static const char *const names[VALUES] = {"source", "whole", "here", "there"};
  ls_program *program = LS_NEW(arena, ls_program);
  const int sizes[LS_MESH_ROWS] = {1, 1, 2, 1, 1, 1};
  program->arena = arena;
  program->mesh = ls_mesh_make(sizes);
  program->layout = ls_layout_default();
  ls_buffer_group *group = LS_APPEND(arena, &program->buffer_groups);
  group->pool = LS_POOL_WORK;
  for (int v = 0; v < VALUES; v++) {
    *LS_APPEND(arena, &program->storages) = (ls_storage){.name = names[v]};
    *LS_APPEND(arena, &program->values) = (ls_value){.name = names[v],
                                                     .dtype = LS_F32,
                                                     .ndim = 1,
                                                     .global = {v < HERE ? gathered : copied},
                                                     .storage = v};
  }
  const ls_instruction gather = {.collective = LS_ALL_GATHER,
                                 .axes = 1u << LS_AXIS_DP_SHARD,
                                 .peer = -1,
                                 .count = gathered,
                                 .inputs = 1,
                                 .outputs = 1,
                                 .in = {SOURCE},
                                 .out = {WHOLE}};
  const ls_instruction copy = {
      .kind = LS_OP_COPY, .peer = -1, .inputs = 1, .outputs = 1, .in = {HERE}, .out = {THERE}};
  const ls_instruction list[] = {gather, copy, gather, copy};
  for (int i = 0; i < 4; i++) {
    ls_instruction *made = LS_APPEND(arena, &program->instructions);
    *made = list[i];
    if (i == 0) made->phase = LS_BEGIN;
    if (i == 2) made->phase = LS_END;
    *LS_APPEND(arena, &program->bodies) = (ls_body){.first = i, .count = 1};
    *LS_APPEND(arena, &program->actions) = (ls_program_action){.body = i};
  }
  return program;
}

static double seconds_of(ls_arena *arena, const ls_program *const *programs,
                         const ls_performance *performance) {
  ls_simulation *simulation;
  ls_error error = {0};
  if (ls_simulate(arena, programs, performance, NULL, &simulation, &error) != LS_OK)
    fail_msg("%s", error.text);
  return simulation->seconds;
}

/* Two gathers begin at once, over other axes; the second is shorter. In one queue it comes after
 * the first; in a queue of its own it is waited for no longer than it takes. */
static void groups_may_have_queues_of_their_own(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_program *program = overlapping(arena, 2000, 1000);
  const int sizes[LS_MESH_ROWS] = {1, 1, 2, 1, 2, 1};
  program->mesh = ls_mesh_make(sizes);
  ls_instruction *list = program->instructions.items;
  list[1] = list[2] = list[0];
  list[3] = list[0];
  for (int i = 1; i < 3; i++) list[i].axes = 1u << LS_AXIS_TP_KV;
  list[1].phase = LS_BEGIN;
  list[2].phase = list[3].phase = LS_END;
  list[1].count = 1000;
  list[1].in[0] = list[2].in[0] = HERE;
  list[1].out[0] = list[2].out[0] = THERE;
  /* 4000 bytes between hosts in 4 s, 2000 within one in half a second. */
  ls_performance performance = {
      .network_per_s = 1000, .peer_per_s = 4000, .per_host = 2, .peer_devices = 2};
  const ls_program *const programs[] = {program};
  ls_queues one = ls_queues_nccl;
  one.groups_apart = false;
  for (int own = 0; own < 2; own++) {
    performance.queues = own ? &ls_queues_nccl : &one;
    ls_simulation *simulation;
    ls_error error = {0};
    assert_int_equal(ls_simulate(arena, programs, &performance, NULL, &simulation, &error), LS_OK);
    assert_true(fabs(simulation->seconds - (own ? 4 : 4.5)) < 1e-9);
  }
  ls_arena_destroy(&arena);
}

/* A gather of 8000 bytes over two ranks sends 4000; a copy of 1000 numbers moves 8000 bytes. */
static void overlap_is_what_can_be_counted(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const ls_program *program = overlapping(arena, 2000, 1000);
  static const struct {
    double bytes_per_s, peer_per_s, interference, expected;
    bool waits;
  } known[] = {
      {8000, 4000, 0, 2, false},     /* as long as each other: two copies */
      {8000, 1000, 0, 5, false},     /* the gather is longer: it and a copy */
      {1000, 4000, 0, 16, false},    /* the copy is longer */
      {8000, 4000, 0, 3, true},      /* nothing runs beside */
      {8000, 4000, 0.5, 2.5, false}, /* the first copy at half its speed while the gather runs */
  };
  for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
    const ls_performance performance = {.bytes_per_s = known[k].bytes_per_s,
                                        .peer_per_s = known[k].peer_per_s,
                                        .interference = {[LS_LINK_PEER] = known[k].interference},
                                        .waits = known[k].waits,
                                        .per_host = 2,
                                        .peer_devices = 2};
    const double found = seconds_of(arena, &program, &performance);
    if (fabs(found - known[k].expected) > 1e-9)
      fail_msg("row %zu: %.12g, expected %.12g", k, found, known[k].expected);
  }
  ls_arena_destroy(&arena);
}

/* A copy of one second here and of three there: the sum over both ends after three. */
static void sums_over_all_ranks_wait_for_all(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_program *const stages[2] = {stage_of(arena, 2, 2, 1, 0), stage_of(arena, 2, 2, 1, 1)};
  for (int s = 0; s < 2; s++) {
    add_copy(stages[s], s ? 3000 : 1000);
    add_action(stages[s], &(ls_instruction){.collective = LS_SUM_NUMBERS, .peer = -1}, 1);
    add_copy(stages[s], 1000);
  }
  const ls_performance performance = by_second();
  const ls_simulation *made = simulated(arena, stages, &performance);
  assert_true(fabs(made->stage[0].end - 4) < 1e-6 && fabs(made->stage[1].end - 4) < 1e-6);
  assert_true(fabs(made->stage[0].compute - 2) < 1e-6);
  ls_arena_destroy(&arena);
}

/* A gather and a message of a second each, alone on their link: two seconds together. */
static void transfers_share_a_link(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  for (int alone = 0; alone < 2; alone++) {
    ls_program *const stages[2] = {stage_of(arena, 2, 2, 1, 0), stage_of(arena, 2, 2, 1, 1)};
    for (int s = 0; s < 2; s++) {
      ls_instruction gather = {.collective = LS_ALL_GATHER,
                               .phase = LS_BEGIN,
                               .axes = 1u << LS_AXIS_DP_SHARD,
                               .peer = -1,
                               .count = 2000};
      const ls_instruction message = {
          .collective = s ? LS_RECEIVE : LS_SEND, .peer = !s, .count = 1000};
      if (!alone) add_action(stages[s], &gather, 2000);
      add_action(stages[s], &message, 1000);
    }
    const ls_performance performance = by_second();
    const double found = simulated(arena, stages, &performance)->seconds;
    assert_true(fabs(found - (alone ? 1 : 2)) < 1e-6);
  }
  ls_arena_destroy(&arena);
}

/* Four ranks compute at once on two cores, at half their speed; a kernel takes no less than the
 * host needs to begin it. */
static void cores_and_launches_hold_computing_up(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_program *const stages[2] = {stage_of(arena, 2, 2, 1, 0), stage_of(arena, 2, 2, 1, 1)};
  for (int s = 0; s < 2; s++) add_copy(stages[s], 1000);
  ls_performance performance = by_second();
  performance.cores = 2;
  performance.threads = 1;
  assert_true(fabs(simulated(arena, stages, &performance)->seconds - 2) < 1e-9);
  performance.cores = 4;
  assert_true(fabs(simulated(arena, stages, &performance)->seconds - 1) < 1e-9);
  performance.launch_s = 5;
  assert_true(fabs(simulated(arena, stages, &performance)->seconds - 5) < 1e-9);
  ls_arena_destroy(&arena);
}

/* A message between hosts goes over the network; what the host updates goes at its rates. */
static void links_and_hosts_are_where_ranks_lie(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_program *program = stage_of(arena, 2, 2, 1, 0);
  add_action(program, &(ls_instruction){.collective = LS_SEND, .peer = 1, .count = 1000}, 1000);
  add_copy(program, 1000);
  ls_performance performance = by_second();
  performance.network_per_s = 1000;
  performance.host_bytes_per_s = 2000;
  performance.host_flops_per_s = 1;
  const ls_instruction *each = program->instructions.items;
  ls_transfer_time time = ls_instruction_transfer(&performance, program, 0, &each[0]);
  assert_true(time.link == LS_LINK_PEER && time.seconds == 1);
  performance.per_host = 2;
  time = ls_instruction_transfer(&performance, program, 0, &each[0]);
  assert_true(time.link == LS_LINK_NETWORK && time.seconds == 4);
  assert_true(ls_instruction_seconds(&performance, program, 0, &each[1], true) == 1);
  program->buffer_groups.items[0].pool = LS_POOL_HOST_STATE;
  assert_true(ls_instruction_seconds(&performance, program, 0, &each[1], true) == 4);
  ls_arena_destroy(&arena);
}

static uint64_t seed;

static int draw(int below) {
  static uint64_t drawn;
  return (int)(ls_random_bits(seed, 0, drawn++) % (uint64_t)below);
}

/* Twice the rate of anything is never slower where no order can change: on one stage. Between
 * stages what is faster may come onto a shared link at a worse moment (Graham 1969: anomalies of
 * list schedules), here by 1 % at most in 660 layouts; a quarter would be a fault. */
static void faster_is_never_slower(void **state) {
  (void)state;
  static const char *const schedules[] = {"1f1b", "gpipe", "interleaved", "zbh1", "zbv"};
  int tried = 0;
  for (int trial = 0; trial < 60; trial++) {
    ls_arena *arena = ls_arena_create();
    ls_layout layout = ls_layout_default();
    layout.pp = 1 << draw(3);
    layout.dp_shard = 1 << draw(2);
    layout.dp_replicate = 1 << draw(2);
    layout.tp = 1 << draw(2);
    layout.zero = draw(4);
    layout.prefetch = draw(3);
    layout.microbatches = layout.pp * (1 + draw(3));
    if (layout.pp > 1) layout.schedule = schedules[draw(5)];
    ls_model_config config;
    ls_error error = {0};
    assert_int_equal(ls_model_find(arena, "llama-3m", &config, &error), LS_OK);
    config.layers = 8;
    const ls_training training = {
        .model = &config,
        .batch = (int64_t)layout.microbatches * ls_layout_data_ranks(&layout),
        .sequence = 64};
    ls_compiled compiled;
    if (ls_compile(arena, &training, &layout, ls_device_facts_cpu("plain"), &compiled, &error) ==
        LS_OK) {
      const ls_performance base = {.flops_per_s = {[LS_F32] = 1e12},
                                   .bytes_per_s = 1e11,
                                   .attention_share = 1,
                                   .kernel_s = 1e-7,
                                   .peer_per_s = 1e9 * (1 + draw(100)),
                                   .network_per_s = 1e8 * (1 + draw(100)),
                                   .peer_latency_s = 1e-6,
                                   .network_latency_s = 5e-6,
                                   .per_host = 1 << draw(4),
                                   .peer_devices = 64};
      const ls_program *const *programs = compiled.stages[LS_COMPILED_STEP];
      const double slow = seconds_of(arena, programs, &base);
      ls_performance each[4] = {base, base, base, base};
      each[0].flops_per_s[LS_F32] *= 2;
      each[1].bytes_per_s *= 2;
      each[2].peer_per_s *= 2;
      each[3].network_per_s *= 2;
      for (int e = 0; e < 4; e++) {
        const double fast = seconds_of(arena, programs, &each[e]);
        if (fast > slow * (layout.pp == 1 ? 1 + 1e-9 : 1.25))
          fail_msg("%s, %s: %.9g s, and %.9g where rate %d is doubled",
                   ls_layout_print(arena, &layout), layout.schedule, slow, fast, e);
      }
      tried++;
    }
    ls_arena_destroy(&arena);
  }
  print_message("%d layouts\n", tried);
  assert_true(tried >= 20);
}

int main(int count, char **words) {
  enum { KEPT_SEED = 109 }; /* one with such an anomaly */
  seed = count > 1 ? strtoull(words[1], NULL, 10) : KEPT_SEED;
  printf("seed %llu: simulation_test %llu repeats this\n", (unsigned long long)seed,
         (unsigned long long)seed);
  const struct CMUnitTest tests[] = {cmocka_unit_test(schedules_take_what_their_lists_say),
                                     cmocka_unit_test(overlap_is_what_can_be_counted),
                                     cmocka_unit_test(groups_may_have_queues_of_their_own),
                                     cmocka_unit_test(sums_over_all_ranks_wait_for_all),
                                     cmocka_unit_test(transfers_share_a_link),
                                     cmocka_unit_test(cores_and_launches_hold_computing_up),
                                     cmocka_unit_test(links_and_hosts_are_where_ranks_lie),
                                     cmocka_unit_test(faster_is_never_slower)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
