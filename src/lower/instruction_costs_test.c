/* What instructions cost: all ranks of any layout together do the flops of the model, and bytes are
 * those of the operands. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "cost/cost.h"
#include "lower/compile.h"
#include "model/model.h"

enum { SEQUENCE = 6, SEQUENCES = 8 };

static const char llama[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 41, \"hidden_size\": 32, \"intermediate_size\": "
    "45,"
    " \"num_hidden_layers\": 3, \"num_attention_heads\": 16, \"num_key_value_heads\": 4,"
    " \"max_position_embeddings\": 16, \"rms_norm_eps\": 1e-5, \"tie_word_embeddings\": false}";

static ls_arena *arena;

static int set_up(void **state) {
  (void)state;
  arena = ls_arena_create();
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  ls_arena_destroy(&arena);
  return 0;
}

static ls_program **compile(const ls_layout *layout) {
  ls_model_config config;
  ls_graph *graph;
  ls_error error = {0};
  const ls_build_options options = {.mode = LS_MODEL_TRAIN,
                                    .tokens = SEQUENCES * SEQUENCE / layout->microbatches,
                                    .sequence = SEQUENCE};
  ls_program **stages = LS_NEW_ARRAY(arena, ls_program *, layout->pp);
  assert_int_equal(ls_model_config_parse(arena, "model", llama, strlen(llama), &config, &error),
                   LS_OK);
  assert_int_equal(ls_model_build(arena, &config, &options, &graph, &error), LS_OK);
  ls_graph_backward(graph);
  if (ls_program_compile(graph, layout, LS_PROGRAM_STEP, stages, &error) != LS_OK)
    fail_msg("%s", error.text);
  return stages;
}

/* Of one step, all ranks together: flops, and bytes of the ops of one kind. */
typedef struct costs {
  const ls_program *program;
  int rank;
  ls_op_kind kind;
  double flops, bytes;
} costs;

static void add(void *context, const ls_executed *each) {
  costs *sum = context;
  const ls_work work = ls_instruction_work(sum->program, sum->rank, each->instruction, each->first);
  sum->flops += (double)each->times * work.flops;
  if (each->instruction->kind == sum->kind) sum->bytes += (double)each->times * work.bytes;
}

static costs costs_of(ls_program *const *stages, const ls_layout *layout, ls_op_kind kind) {
  costs sum = {.kind = kind};
  const ls_mesh *mesh = &stages[0]->mesh;
  for (sum.rank = 0; sum.rank < ls_mesh_ranks(mesh); sum.rank++) {
    assert_in_range(ls_mesh_stage(mesh, sum.rank), 0, layout->pp - 1);
    sum.program = stages[ls_mesh_stage(mesh, sum.rank)];
    ls_program_walk(sum.program, 0, sum.program->actions.count, add, &sum);
  }
  return sum;
}

static ls_layout layout_of(int pp, int shard, int tp, int zero, int microbatches) {
  ls_layout layout = ls_layout_default();
  layout.pp = pp;
  layout.dp_shard = shard;
  layout.tp = tp;
  layout.zero = zero;
  layout.microbatches = microbatches;
  return layout;
}

/* What a walk visits, by instruction and by whether the first action writes. */
typedef struct visited {
  const ls_program *program;
  int64_t *times[2];
} visited;

static void note(void *context, const ls_executed *each) {
  visited *seen = context;
  seen->times[each->first][each->instruction - seen->program->instructions.items] += each->times;
}

static void a_walk_visits_what_is_executed(void **state) {
  (void)state;
  ls_layout layout = layout_of(2, 2, 1, 3, 4);
  ls_program **stages = compile(&layout);
  for (int s = 0; s < layout.pp; s++) {
    const ls_program *program = stages[s];
    const int count = program->instructions.count;
    visited seen = {program,
                    {LS_NEW_ARRAY(arena, int64_t, count), LS_NEW_ARRAY(arena, int64_t, count)}};
    ls_program_walk(program, 0, program->actions.count, note, &seen);
    int64_t executed = 0;
    for (int a = 0; a < program->actions.count; a++) {
      const ls_program_action *action = &program->actions.items[a];
      const ls_body *body = &program->bodies.items[action->body];
      executed += body->count;
      for (int i = body->first; i < body->first + body->count; i++) seen.times[action->first][i]--;
    }
    for (int i = 0; i < count; i++) {
      assert_int_equal(seen.times[0][i], 0);
      assert_int_equal(seen.times[1][i], 0);
    }
    assert_int_equal(ls_program_executed(program), executed);
  }
}

static void all_ranks_do_the_flops_of_the_model(void **state) {
  (void)state;
  ls_layout layouts[] = {layout_of(1, 1, 1, 0, 1), layout_of(1, 2, 1, 3, 2),
                         layout_of(1, 1, 2, 0, 1), layout_of(3, 1, 4, 1, 4),
                         layout_of(2, 2, 2, 2, 2), layout_of(1, 2, 1, 0, 1)};
  layouts[5].recompute = (ls_op_set)LS_EVERY_OP;
  for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++) {
    ls_program **stages = compile(&layouts[l]);
    const double flops = costs_of(stages, &layouts[l], LS_OP_LINEAR).flops;
    const double expected = stages[0]->flops + stages[0]->recomputed_flops;
    if (fabs(flops - expected) > 1e-9 * expected)
      fail_msg("layout %zu: %.17g flops in place of %.17g", l, flops, expected);
  }
  assert_true(compile(&layouts[5])[0]->recomputed_flops > 0);
}

static double parameters_of(const ls_program *program) {
  double sum = 0;
  for (int p = 0; p < program->parameter_count; p++) {
    const ls_program_parameter *each = &program->parameters[p];
    sum += (double)(each->ndim > 1 ? each->dims[0] * each->dims[1] : each->dims[0]);
  }
  return sum;
}

/* Gradient read, weights and two moments read and written: 28 bytes in fp32; each call reads three
 * cells of 8 bytes besides. */
static void an_update_moves_28_bytes_a_parameter(void **state) {
  (void)state;
  const ls_layout layout = layout_of(1, 1, 1, 0, 1);
  ls_program **stages = compile(&layout);
  int calls = 0;
  for (int i = 0; i < stages[0]->instructions.count; i++)
    calls += stages[0]->instructions.items[i].kind == LS_OP_ADAMW &&
             stages[0]->instructions.items[i].collective == LS_COLLECTIVE_NONE;
  assert_true(calls > 0);
  assert_true(costs_of(stages, &layout, LS_OP_ADAMW).bytes ==
              28 * parameters_of(stages[0]) + 24.0 * calls);
}

/* With two microbatches the second adds to the table's gradient, and touches only its tokens. */
static void of_a_table_the_rows_of_the_tokens_count(void **state) {
  (void)state;
  enum { WIDTH = 32, VOCABULARY = 41 };
  const ls_layout layout = layout_of(1, 1, 1, 0, 2);
  ls_program **stages = compile(&layout);
  const double tokens = SEQUENCES * SEQUENCE / 2, row = WIDTH * sizeof(float);
  assert_true(costs_of(stages, &layout, LS_OP_EMBEDDING).bytes ==
              2 * tokens * (4 + 2 * row)); /* ids, rows read, rows written */
  assert_true(costs_of(stages, &layout, LS_OP_EMBEDDING_DW).bytes ==
              2 * tokens * (4 + row) + VOCABULARY * row + 2 * tokens * row);
}

static void assert_same_cost(const ls_program *program, int a, int b) {
  const ls_instruction *all = program->instructions.items;
  for (int rank = 0; rank < ls_mesh_ranks(&program->mesh); rank++)
    for (int first = 0; first < 2; first++) {
      if (ls_mesh_stage(&program->mesh, rank) != program->stage) continue;
      const ls_work one = ls_instruction_work(program, rank, &all[a], first);
      const ls_work other = ls_instruction_work(program, rank, &all[b], first);
      if (one.flops != other.flops || one.bytes != other.bytes)
        fail_msg("instructions %d and %d (%s) are alike, and cost %g and %g flops, %g and %g bytes",
                 a, b, ls_op_name(all[a].kind), one.flops, other.flops, one.bytes, other.bytes);
    }
}

static bool is_op(const ls_program *program, int index) {
  return program->instructions.items[index].collective == LS_COLLECTIVE_NONE;
}

/* Of any two instructions; and most products of a layer are those of a body before. */
static void what_is_alike_costs_the_same(void **state) {
  (void)state;
  const ls_layout layouts[] = {layout_of(1, 2, 1, 3, 2), layout_of(1, 1, 8, 0, 2)};
  for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++) {
    const ls_program *program = compile(&layouts[l])[0];
    const ls_instruction *all = program->instructions.items;
    for (int a = 0; a < program->instructions.count; a++)
      for (int b = 0; b < a; b++)
        if (is_op(program, a) && ls_instructions_alike(program, &all[a], &all[b]))
          assert_same_cost(program, a, b);
    int products = 0, alike = 0;
    for (int body = 0; body < program->bodies.count; body++) {
      const ls_body *of = &program->bodies.items[body];
      const int like = ls_body_like(program, body);
      for (int i = 0; i < of->count; i++) {
        if (!is_op(program, of->first + i) || all[of->first + i].kind != LS_OP_LINEAR) continue;
        products++;
        alike += like >= 0 && ls_instructions_alike(program, &all[of->first + i],
                                                    &all[program->bodies.items[like].first + i]);
      }
    }
    if (2 * alike < products) fail_msg("%d of %d products are as before", alike, products);
  }
}

int main(void) {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      CASE(a_walk_visits_what_is_executed),       CASE(all_ranks_do_the_flops_of_the_model),
      CASE(an_update_moves_28_bytes_a_parameter), CASE(of_a_table_the_rows_of_the_tokens_count),
      CASE(what_is_alike_costs_the_same),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
