/* Attention and positions kept inside documents: a batch of packed documents trains as each of them
 * alone would, in fp32 on the CPU device; every layout, pipeline and recomputation equals one
 * device in fp64; and the proof follows where positions go. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "check/check.h"
#include "lower/compile.h"
#include "run/rank_parameters.h"
#include "run/rank_threads.h"
#include "session/inputs.h"
#include "support/layouts.h"
#include "support/test_seed.h"
#include "verify/equality.h"

enum { SEQUENCE = 8, ROWS = 6, MOST_STAGES = 4 };

static uint64_t seed;

static uint64_t below(uint64_t stream, uint64_t index, uint64_t limit) {
  return ls_random_bits(seed, stream, index) % limit;
}

/* Tokens as they go in: [rows, SEQUENCE]. */
typedef struct tokens {
  int64_t rows;
  int32_t *ids, *labels, *positions;
} tokens;

static tokens tokens_of(ls_arena *arena, int64_t rows) {
  tokens made = {rows, LS_NEW_ARRAY(arena, int32_t, rows * SEQUENCE),
                 LS_NEW_ARRAY(arena, int32_t, rows * SEQUENCE),
                 LS_NEW_ARRAY(arena, int32_t, rows * SEQUENCE)};
  for (int64_t i = 0; i < rows * SEQUENCE; i++) {
    made.labels[i] = -1;
    made.positions[i] = (int32_t)(i % SEQUENCE);
  }
  return made;
}

/* Rows packed with documents of chance; the same documents, a row each, filled up with what has no
 * labels. */
static void make_tokens(ls_arena *arena, int64_t vocabulary, tokens *packed, tokens *alone) {
  *packed = tokens_of(arena, ROWS);
  *alone = tokens_of(arena, ROWS * SEQUENCE);
  int64_t row = -1;
  for (int64_t i = 0; i < ROWS * SEQUENCE; i++) {
    const bool begins = i % SEQUENCE == 0 || below(1, (uint64_t)i, 3) == 0;
    if (begins) row++;
    packed->ids[i] = (int32_t)below(2, (uint64_t)i, (uint64_t)vocabulary);
    packed->positions[i] = begins ? 0 : packed->positions[i - 1] + 1;
    if (!begins) packed->labels[i - 1] = packed->ids[i];
    const int64_t place = row * SEQUENCE + packed->positions[i];
    alone->ids[place] = packed->ids[i];
    if (!begins) alone->labels[place - 1] = packed->ids[i];
  }
  alone->rows = row + 1;
}

typedef struct outcome {
  double loss;
  float **gradients;
} outcome;

typedef struct job {
  ls_arena *arena;
  const ls_program *program;
  const ls_graph *graph;
  const tokens *given;
  ls_device device;
  outcome *result;
} job;

static ls_status write_parameters(ls_rank *rank, const job *work, ls_error *error) {
  for (int p = 0; p < work->program->parameter_count; p++) {
    const ls_parameter *about = &work->graph->parameters.items[p].about;
    const int64_t count = ls_program_parameter_elements(&work->program->parameters[p]);
    double *values = LS_NEW_ARRAY(work->arena, double, count);
    for (int64_t i = 0; i < count; i++)
      values[i] = (about->init == LS_INIT_ONES) +
                  0.15 * ls_random_normal(seed, ls_random_stream(about->name), (uint64_t)i);
    LS_TRY(ls_rank_write_parameter(rank, work->program, p, LS_PART_MASTER, 0, count, values, LS_F64,
                                   error));
  }
  return LS_OK;
}

static ls_status take_tokens(void *context, int64_t step, int64_t first, int64_t count,
                             const ls_batch *batch, ls_error *error) {
  (void)step, (void)error;
  const tokens *given = context;
  const size_t bytes = (size_t)count * sizeof(int32_t);
  memcpy(batch->ids, given->ids + first, bytes);
  memcpy(batch->labels, given->labels + first, bytes);
  memcpy(batch->positions, given->positions + first, bytes);
  return LS_OK;
}

static ls_status run_gradients(ls_rank *rank, const job *work, ls_error *error) {
  LS_TRY(write_parameters(rank, work, error));
  const ls_inputs inputs = {.take = take_tokens, .context = (void *)work->given};
  LS_TRY(ls_inputs_fill(&inputs, rank, 0, 0, 0, error));
  ls_rank_set_cell(rank, LS_CELL_STEP, 1);
  LS_TRY(ls_rank_run_gradients(rank, 0, error));
  work->result->loss = ls_rank_cell(rank, LS_CELL_MEAN_LOSS);
  for (int p = 0; p < work->program->parameter_count; p++) {
    const int64_t count = ls_program_parameter_elements(&work->program->parameters[p]);
    work->result->gradients[p] = LS_NEW_ARRAY(work->arena, float, count);
    LS_TRY(ls_rank_read_parameter(rank, work->program, p, LS_PART_GRADIENT, 0, count,
                                  work->result->gradients[p], LS_F32, error));
  }
  return LS_OK;
}

static ls_status rank_body(ls_comm *comm, void *context, ls_error *error) {
  job *work = context;
  ls_rank *rank;
  const ls_rank_options options = {
      .programs = &work->program, .program_count = 1, .device = &work->device};
  LS_TRY(ls_rank_create(comm, &options, &rank, error));
  const ls_status status = run_gradients(rank, work, error);
  ls_rank_destroy(&rank);
  return status;
}

/* Loss and gradients of the step on these tokens. */
static const ls_graph *run_step(ls_arena *arena, const ls_model_config *config, const tokens *given,
                                bool documents, const ls_program **program, outcome *result) {
  ls_error error = {0};
  const ls_build_options options = {
      .tokens = given->rows * SEQUENCE, .sequence = SEQUENCE, .documents = documents};
  ls_graph *graph;
  ls_program *made;
  assert_int_equal(ls_model_build(arena, config, &options, &graph, &error), LS_OK);
  ls_graph_backward(graph);
  const ls_layout layout = ls_test_layout_default();
  if (ls_program_compile(graph, &layout, LS_PROGRAM_STEP, &made, &error) != LS_OK)
    fail_msg("%s", error.text);
  *program = made;
  result->gradients = LS_NEW_ARRAY(arena, float *, made->parameter_count);
  job work = {.arena = arena, .program = made, .graph = graph, .given = given, .result = result};
  const ls_device_options device = {.compute = LS_F32, .threads = 2};
  assert_int_equal(ls_device_open(&device, &work.device, &error), LS_OK);
  ls_world *world;
  assert_int_equal(ls_world_create_threads(1, &world, &error), LS_OK);
  if (ls_rank_threads_run(world, rank_body, &work, &error) != LS_OK) fail_msg("%s", error.text);
  ls_world_destroy(&world);
  return graph;
}

static double norm_of(const float *values, int64_t count) {
  double squares = 0;
  for (int64_t i = 0; i < count; i++) squares += (double)values[i] * (double)values[i];
  return sqrt(squares);
}

/* The largest difference of a gradient, on the scale of it or of a thousandth of them all. */
static double worst_gap(const ls_program *program, const outcome *a, const outcome *b) {
  double all = 0, worst = fabs(a->loss - b->loss) / fabs(b->loss);
  for (int p = 0; p < program->parameter_count; p++) {
    const int64_t count = ls_program_parameter_elements(&program->parameters[p]);
    all = hypot(all, norm_of(b->gradients[p], count));
  }
  for (int p = 0; p < program->parameter_count; p++) {
    const int64_t count = ls_program_parameter_elements(&program->parameters[p]);
    double squares = 0;
    for (int64_t i = 0; i < count; i++) {
      const double gap = (double)a->gradients[p][i] - (double)b->gradients[p][i];
      squares += gap * gap;
    }
    const double scale = fmax(norm_of(b->gradients[p], count), 1e-3 * all);
    worst = fmax(worst, sqrt(squares) / scale);
  }
  return worst;
}

static void packed_documents_train_as_each_alone(void **state) {
  (void)state;
  for (int m = 0; m < LS_TEST_SHAPES; m++) {
    ls_arena *arena = ls_arena_create();
    ls_model_config config = ls_test_shape_config(arena, &ls_test_shapes[m]);
    config.dropout = (ls_dropout){0}; /* which goes by places in a row */
    tokens packed, alone;
    make_tokens(arena, config.vocabulary, &packed, &alone);
    assert_true(alone.rows > ROWS);
    outcome together, apart, mixed;
    const ls_program *program;
    run_step(arena, &config, &alone, false, &program, &apart);
    run_step(arena, &config, &packed, true, &program, &together);
    const double gap = worst_gap(program, &together, &apart);
    print_message("%s: %lld documents in %d rows, worst difference %.2g\n", ls_test_shapes[m].name,
                  (long long)alone.rows, ROWS, gap);
    assert_true(gap < 1e-5);
    /* Without the mask, the same tokens are another training. */
    run_step(arena, &config, &packed, false, &program, &mixed);
    assert_true(worst_gap(program, &mixed, &apart) > 1e-2);
    ls_arena_destroy(&arena);
  }
}

/* Layouts of all kinds, by what the mesh has. */
static const struct subject {
  int shape, pp, dp_replicate, dp_shard, tp, zero, microbatches;
  bool sequence_parallel;
  const char *schedule;
  ls_op_set recompute;
} subjects[] = {
    {0, 1, 1, 1, 1, 0, 3, false, NULL, {{false}}},
    {0, 1, 1, 2, 1, 3, 2, false, NULL, {.has = {[LS_OP_ATTENTION] = true}}},
    {0, 1, 1, 1, 3, 0, 2, true, NULL, LS_EVERY_OP},
    {1, 1, 2, 2, 1, 3, 1, false, NULL, {{false}}},
    {1, 1, 1, 1, 8, 0, 1, true, NULL, {{false}}},
    {1, 1, 2, 1, 4, 1, 3, true, NULL, {{false}}},
    {2, 1, 1, 3, 3, 2, 1, false, NULL, {{false}}},
    {2, 1, 2, 2, 3, 3, 1, true, NULL, LS_EVERY_OP},
    {1, 2, 1, 1, 2, 1, 4, true, "1f1b", {{false}}},
    {2, 3, 1, 1, 1, 0, 4, false, "zbh1", {{false}}},
    {0, 2, 1, 2, 1, 3, 2, false, "gpipe", {.has = {[LS_OP_ATTENTION] = true}}},
    {2, 2, 1, 1, 3, 1, 4, false, "interleaved", {{false}}},
};
enum { SUBJECTS = sizeof subjects / sizeof *subjects };

static ls_layout layout_of(const struct subject *about) {
  ls_layout layout = ls_test_layout_default();
  layout.pp = about->pp;
  layout.dp_replicate = about->dp_replicate;
  layout.dp_shard = about->dp_shard;
  layout.tp = about->tp;
  layout.zero = about->zero;
  layout.microbatches = about->microbatches;
  layout.sequence_parallel = about->sequence_parallel;
  layout.schedule = about->schedule;
  layout.recompute = about->recompute;
  layout.recompute_layers = 1;
  layout.prefetch = (int)(about - subjects) % 3;
  layout.compute = LS_F64;
  return layout;
}

static void every_layout_equals_one_device(void **state) {
  (void)state;
  double worst = 0;
  for (int s = 0; s < SUBJECTS; s++) {
    ls_arena *arena = ls_arena_create();
    const ls_model_config config = ls_test_shape_config(arena, &ls_test_shapes[subjects[s].shape]);
    ls_experiment experiment = {.config = &config,
                                .sequences = 24,
                                .sequence = SEQUENCE,
                                .seed = seed,
                                .documents = true,
                                .saved = true,
                                .learning_rate = 0.01,
                                .steps = 3};
    ls_layout one = ls_test_layout_default();
    one.compute = LS_F64;
    const ls_layout layout = layout_of(&subjects[s]);
    ls_trajectory reference, stream, found;
    ls_error error = {0};
    if (ls_trajectory_run(arena, &experiment, &one, &reference, &error) != LS_OK ||
        ls_trajectory_run(arena, &experiment, &layout, &found, &error) != LS_OK)
      fail_msg("%s: %s", ls_layout_print(arena, &layout), error.text);
    const char *where;
    const double gap = ls_trajectory_difference(&found, &reference, &where);
    if (!(gap < 1e-10)) fail_msg("%s: %.3g in %s", ls_layout_print(arena, &layout), gap, where);
    worst = fmax(worst, gap);
    experiment.documents = false;
    assert_int_equal(ls_trajectory_run(arena, &experiment, &one, &stream, &error), LS_OK);
    assert_true(ls_trajectory_difference(&stream, &reference, &where) > 1e-3);
    ls_arena_destroy(&arena);
  }
  print_message("%d layouts, worst difference %.2g\n", SUBJECTS, worst);
}

static ls_status prove(const ls_graph *graph, const ls_layout *layout, ls_program *const *stages,
                       ls_error *error) {
  const ls_program *programs[MOST_STAGES];
  for (int s = 0; s < layout->pp; s++) programs[s] = stages[s];
  return ls_check(graph, layout, programs, NULL, error);
}

/* Instructions that read positions to tell documents apart: their number; or, from `damage` on
 * counted from 0, the one that is made to read something else, or nothing. */
static int attentions(ls_program *const *stages, int count, int damage, bool drop) {
  int found = 0;
  for (int s = 0; s < count; s++)
    for (int i = 0; i < stages[s]->instructions.count; i++) {
      ls_instruction *each = &stages[s]->instructions.items[i];
      const bool forward = each->kind == LS_OP_ATTENTION && each->inputs == 4;
      const bool backward = each->kind == LS_OP_ATTENTION_BWD && each->inputs == 7;
      if (!forward && !backward) continue;
      if (found++ != damage) continue;
      if (drop)
        each->inputs--;
      else
        each->in[each->inputs - 1] = stages[s]->ids;
    }
  return found;
}

static void the_proof_follows_positions(void **state) {
  (void)state;
  int refused = 0;
  for (int s = 0; s < SUBJECTS; s++) {
    ls_arena *arena = ls_arena_create();
    ls_model_config config = ls_test_shape_config(arena, &ls_test_shapes[subjects[s].shape]);
    config.dropout = (ls_dropout){0};
    const ls_layout layout = layout_of(&subjects[s]);
    const ls_build_options options = {
        .tokens = 24 / layout.microbatches * SEQUENCE, .sequence = SEQUENCE, .documents = true};
    for (int damage = -1, all = 0; damage < 2 * all || damage < 0; damage++) {
      ls_graph *graph;
      ls_program *stages[MOST_STAGES];
      ls_error error = {0};
      assert_int_equal(ls_model_build(arena, &config, &options, &graph, &error), LS_OK);
      ls_graph_backward(graph);
      assert_int_equal(ls_program_compile(graph, &layout, LS_PROGRAM_STEP, stages, &error), LS_OK);
      all = attentions(stages, layout.pp, damage / 2 - (damage < 0), damage % 2);
      assert_true(all >= 2);
      const ls_status status = prove(graph, &layout, stages, &error);
      if (damage < 0 && status != LS_OK) fail_msg("%s", error.text);
      if (damage < 0) continue;
      refused++;
      if (status != LS_REFUTED)
        fail_msg("damage %d of %s is not seen", damage, ls_layout_print(arena, &layout));
      if (getenv("LS_DAMAGE_PRINT")) print_message("%s\n", error.text);
    }
    ls_arena_destroy(&arena);
  }
  print_message("%d damaged programs refused\n", refused);
  assert_true(refused > 2 * SUBJECTS);
}

int main(void) {
  seed = test_seed(20261121);
  const struct CMUnitTest tests[] = {cmocka_unit_test(packed_documents_train_as_each_alone),
                                     cmocka_unit_test(every_layout_equals_one_device),
                                     cmocka_unit_test(the_proof_follows_positions)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
