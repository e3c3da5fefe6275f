/* What tests of the simulator share: programs made by hand, an action an instruction. */
#ifndef LS_SIM_TEST_PROGRAMS_H
#define LS_SIM_TEST_PROGRAMS_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "sim/sim.h"

/* An empty program of a stage of so many, each of `shards` x `tensor` ranks. */
static inline ls_program *stage_of(ls_arena *arena, int stages, int shards, int tensor, int stage) {
  const int sizes[LS_MESH_ROWS] = {
      [LS_AXIS_PP] = stages, [LS_AXIS_DP_REPLICATE] = 1, [LS_AXIS_DP_SHARD] = shards,
      [LS_AXIS_CP] = 1,      [LS_AXIS_TP_KV] = tensor,   [LS_AXIS_TP_GROUP] = 1};
  ls_program *program = LS_NEW(arena, ls_program);
  program->arena = arena;
  program->mesh = ls_mesh_make(sizes);
  program->layout = ls_layout_default();
  program->stage = stage;
  (void)LS_APPEND(arena, &program->buffer_groups);
  return program;
}

/* An action of one instruction, from one value of so many numbers to another; an END is of the
 * beginning just before it. */
static inline void add_action(ls_program *program, const ls_instruction *what, int64_t numbers) {
  ls_arena *arena = program->arena;
  ls_instruction *made = LS_APPEND(arena, &program->instructions);
  *made = *what;
  made->inputs = made->outputs = 1;
  made->in[0] = program->values.count;
  made->out[0] = program->values.count + 1;
  if (made->phase == LS_END) made->in[0] -= 2, made->out[0] -= 2; /* of the beginning before it */
  for (int v = 0; v < 2; v++) {
    *LS_APPEND(arena, &program->storages) = (ls_storage){.name = "storage"};
    *LS_APPEND(arena, &program->values) = (ls_value){.name = "value",
                                                     .dtype = LS_F32,
                                                     .ndim = 1,
                                                     .global = {numbers},
                                                     .storage = program->storages.count - 1};
  }
  *LS_APPEND(arena, &program->bodies) =
      (ls_body){.first = program->instructions.count - 1, .count = 1};
  *LS_APPEND(arena, &program->actions) = (ls_program_action){.body = program->bodies.count - 1};
}

static inline void add_copy(ls_program *program, int64_t numbers) {
  add_action(program, &(ls_instruction){.kind = LS_OP_COPY, .peer = -1}, numbers);
}

static inline const ls_simulation *simulate_with(ls_arena *arena, ls_program *const *stages,
                                                 const ls_performance *performance,
                                                 const ls_sim_options *options) {
  const ls_program *programs[8] = {NULL};
  const int count = ls_mesh_stages(&stages[0]->mesh);
  assert_true(count <= 8);
  for (int s = 0; s < count; s++) programs[s] = stages[s];
  ls_simulation *simulation;
  ls_error error = {0};
  if (ls_simulate(arena, programs, performance, options, &simulation, &error) != LS_OK)
    fail_msg("%s", error.text);
  return simulation;
}

static inline const ls_simulation *simulated(ls_arena *arena, ls_program *const *stages,
                                             const ls_performance *performance) {
  return simulate_with(arena, stages, performance, NULL);
}

/* A second of 1000 numbers copied: 8000 bytes. */
static inline ls_performance by_second(void) {
  return (ls_performance){
      .bytes_per_s = 8000, .peer_per_s = 4000, .per_host = 4, .peer_devices = 4};
}

#endif
