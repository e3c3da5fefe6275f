/* Programs as they are compiled are accepted, in every layout: structure, extents, lives, waits,
 * memory, rows, parameters, expressions, gradients, placements, ops, updates, collectives,
 * transfers. That damaged ones are not is tests/mutants_test.c. */
#include "check/check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "lower/compile.h"
#include "pipeline/pipeline.h"
#include "support/layouts.h"
#include "support/offloads.h"
#include "support/thinned.h"

enum { MOST_STAGES = 16, MOST_SEGMENTS = 16, THINNED = 5 };

static ls_status compile(ls_arena *arena, const ls_test_shape *shape, const ls_layout *layout,
                         ls_program_kind kind, ls_graph **graph, ls_program **stages,
                         ls_error *error) {
  const ls_model_config config = ls_test_shape_config(arena, shape);
  const int64_t sequences = LS_TEST_SEQUENCES / layout->microbatches;
  const ls_build_options options = {
      .mode = kind == LS_PROGRAM_STEP ? LS_MODEL_TRAIN : LS_MODEL_FORWARD,
      .tokens = sequences * LS_TEST_SEQUENCE,
      .sequence = LS_TEST_SEQUENCE};
  LS_TRY(ls_model_build(arena, &config, &options, graph, error));
  if (kind == LS_PROGRAM_STEP) ls_graph_backward(*graph);
  return ls_program_compile(*graph, layout, kind, stages, error);
}

static ls_status check_on(const ls_queues *queues, const ls_graph *graph, const ls_layout *layout,
                          ls_program *const *stages, ls_check_report *report, ls_error *error) {
  const ls_program *programs[MOST_STAGES];
  for (int s = 0; s < layout->pp; s++) programs[s] = stages[s];
  return ls_check_on(queues, graph, layout, programs, report, error);
}

static ls_status check(const ls_graph *graph, const ls_layout *layout, ls_program *const *stages,
                       ls_check_report *report, ls_error *error) {
  return check_on(&ls_queues_in_process, graph, layout, stages, report, error);
}

typedef struct tally {
  int tried, accepted, refused;
  int64_t instructions;
} tally;

static void accept(const ls_test_shape *shape, const ls_layout *layout, ls_program_kind kind,
                   tally *count) {
  if (ls_test_left_out(count->tried++, THINNED)) return;
  ls_arena *arena = ls_arena_create();
  ls_graph *graph;
  ls_program *stages[MOST_STAGES];
  ls_error error = {0};
  if (compile(arena, shape, layout, kind, &graph, stages, &error) != LS_OK) {
    count->refused++;
  } else {
    ls_check_report report, on_gpus;
    if (check(graph, layout, stages, &report, &error) != LS_OK ||
        check_on(&ls_queues_nccl, graph, layout, stages, &on_gpus, &error) != LS_OK)
      fail_msg("%s: %s, %s, %d microbatches%s: %s", shape->name, ls_layout_print(arena, layout),
               ls_dtype_name(layout->compute), layout->microbatches,
               layout->sequence_parallel ? ", sp" : "", error.text);
    assert_true(kind == LS_PROGRAM_FORWARD || report.gradients > 0);
    assert_true(layout->pp == 1 || report.transfers > 0);
    assert_true(on_gpus.waits == report.waits && on_gpus.beside >= report.beside);
    count->accepted++;
    count->instructions += report.instructions;
  }
  ls_arena_destroy(&arena);
}

static void test_layouts_are_accepted(void **state) {
  (void)state;
  tally count = {0};
  ls_arena *arena = ls_arena_create();
  const ls_test_layouts all = ls_test_layouts_all(arena);
  for (int s = 0; s < LS_TEST_SHAPES; s++)
    for (int i = 0; i < all.count; i++) {
      ls_layout layout = all.items[i];
      accept(&ls_test_shapes[s], &layout, LS_PROGRAM_STEP, &count);
      if (layout.microbatches == 1) accept(&ls_test_shapes[s], &layout, LS_PROGRAM_FORWARD, &count);
      layout.compute = LS_BF16;
      layout.logits_rows = 5;
      layout.prefetch = 1 + i % 3;
      accept(&ls_test_shapes[s], &layout, LS_PROGRAM_STEP, &count);
      if (layout.microbatches == 1) accept(&ls_test_shapes[s], &layout, LS_PROGRAM_FORWARD, &count);
      if (layout.zero != 1) continue;
      layout.zero = 0;
      layout.optimizer.kind = LS_OPTIMIZER_SGD;
      layout.compute = LS_F32;
      layout.layers_per_unit = 2;
      accept(&ls_test_shapes[s], &layout, LS_PROGRAM_STEP, &count);
    }
  ls_arena_destroy(&arena);
  print_message("%d programs accepted, %d layouts refused, %lld instructions\n", count.accepted,
                count.refused, (long long)count.instructions);
  assert_true(count.accepted > ls_test_fewer(1500, THINNED));
}

/* What stands beside the pipeline: each of ZeRO, tp, sp, and when units are gathered and reduced.
 */
static ls_layout beside(const ls_pipeline_kind *kind, int stages, int microbatches, int b) {
  ls_layout layout = ls_layout_default();
  layout.pp = stages;
  layout.schedule = kind->name;
  layout.microbatches = microbatches;
  layout.compute = b % 2 ? LS_F64 : (b % 4 ? LS_F16 : LS_BF16);
  layout.grad_dtype = b % 4 == 2 ? LS_BF16 : LS_F32;
  layout.tp = b % 3 == 0 ? 1 : (b % 3 == 1 ? 2 : 6);
  layout.dp_shard = b % 4 > 1 ? 2 : 1;
  layout.dp_replicate = b == 9 ? 2 : 1;
  layout.zero = b % 4;
  layout.sequence_parallel = b % 5 == 1;
  layout.gather = (ls_when)(b % 3);
  layout.reduce = (ls_when)(b / 2 % 3);
  layout.post_validation = b % 2;
  layout.logits_rows = b % 3 == 2 ? 4 : 0;
  layout.prefetch = b % 3;
  return layout;
}

static void test_pipelines_are_accepted(void **state) {
  (void)state;
  static const int microbatches[] = {1, 2, 4, 6, 8};
  tally count = {0};
  for (int s = 0; s < LS_TEST_SHAPES; s++)
    for (int k = 0; k < ls_pipeline_kind_count; k++)
      for (int stages = 2; stages <= 4; stages++)
        for (int m = 0; m < 5; m++)
          for (int b = 0; b < 12; b++) {
            const ls_layout layout = beside(&ls_pipeline_kinds[k], stages, microbatches[m], b);
            accept(&ls_test_shapes[s], &layout, LS_PROGRAM_STEP, &count);
            if (m == 0) accept(&ls_test_shapes[s], &layout, LS_PROGRAM_FORWARD, &count);
          }
  print_message("%d programs accepted, %d layouts refused, %lld instructions\n", count.accepted,
                count.refused, (long long)count.instructions);
  assert_true(count.accepted > ls_test_fewer(2000, THINNED));
}

/* Programs of all pipelines on an engine with these queues: proved, or rejected for a circle of
 * waits. */
static void check_queues(const ls_queues *queues, int proved[5], int rejected[5]) {
  for (int k = 0; k < ls_pipeline_kind_count; k++)
    for (int stages = 2; stages <= 4; stages++)
      for (int b = 0; b < 6; b++) {
        ls_layout layout = beside(&ls_pipeline_kinds[k], stages, 8, b);
        layout.tp = 1;
        ls_arena *arena = ls_arena_create();
        ls_graph *graph;
        ls_program *made[MOST_STAGES];
        ls_error error = {0};
        if (compile(arena, &ls_test_shapes[0], &layout, LS_PROGRAM_STEP, &graph, made, &error) ==
            LS_OK) {
          const ls_program *programs[MOST_STAGES];
          for (int s = 0; s < stages; s++) programs[s] = made[s];
          if (ls_check_on(queues, graph, &layout, programs, NULL, &error) == LS_OK) {
            proved[stages]++;
          } else {
            if (!strstr(error.text, "waits in a circle") ||
                !strstr(error.text, "a queue for each peer and direction"))
              fail_msg("%s: %s", ls_layout_print(arena, &layout), error.text);
            rejected[stages]++;
          }
        }
        ls_arena_destroy(&arena);
      }
}

/* Where a message holds its queue until it is matched, as NCCL's do, a pipeline needs a queue for
 * each peer and direction; with one for all even 1F1B on two stages never ends. */
static void test_queues_of_engines(void **state) {
  (void)state;
  const ls_queues each = {"each", LS_QUEUE_A_PEER_AND_DIRECTION, .holds = true};
  const ls_queues one = {"one", LS_QUEUE_FOR_ALL, .holds = true};
  ls_queues free_one = ls_queues_in_process;
  free_one.sharing = LS_QUEUE_FOR_ALL;
  int proved[3][5] = {{0}}, rejected[3][5] = {{0}};
  check_queues(&each, proved[0], rejected[0]);
  check_queues(&one, proved[1], rejected[1]);
  check_queues(&free_one, proved[2], rejected[2]);
  for (int q = 0; q < 3; q++)
    for (int stages = 2; stages <= 4; stages++)
      print_message("%s, %d stages: %d proved, %d rejected\n",
                    (const char *[]){"a held queue each", "one held queue", "one free queue"}[q],
                    stages, proved[q][stages], rejected[q][stages]);
  for (int stages = 2; stages <= 4; stages++) {
    assert_int_equal(rejected[0][stages] + rejected[2][stages], 0);
    assert_int_equal(proved[0][stages], proved[1][stages] + rejected[1][stages]);
    assert_true(proved[0][stages] >= 30 && rejected[1][stages] > 10);
  }
  ls_arena *arena = ls_arena_create();
  ls_layout layout = ls_layout_default();
  layout.pp = 2;
  layout.microbatches = 4;
  ls_graph *graph;
  ls_program *made[2];
  ls_error error = {0};
  assert_int_equal(
      compile(arena, &ls_test_shapes[0], &layout, LS_PROGRAM_STEP, &graph, made, &error), LS_OK);
  const ls_program *programs[] = {made[0], made[1]};
  assert_int_equal(ls_check_on(&one, graph, &layout, programs, NULL, &error), LS_REFUTED);
  assert_non_null(strstr(error.text, "stage 0 at action"));
  assert_non_null(strstr(error.text, "for stage 1 to receive"));
  assert_int_equal(ls_check_on(&each, graph, &layout, programs, NULL, &error), LS_OK);
  ls_arena_destroy(&arena);
}

/* The event of a collective after one over other axes is dropped. */
typedef struct dropped {
  int events, alone; /* those without which one queue for all is still right */
  int idle;          /* the loss after the norm: two numbers of one storage */
} dropped;

static bool is_between_axes(const ls_program *program, const ls_instruction *each) {
  if (each->wait < 0) return false;
  const ls_instruction *before = &program->instructions.items[each->wait];
  return ls_collective_is_of_group(each->collective) &&
         ls_collective_is_of_group(before->collective) && before->axes != each->axes;
}

static void drop_events(const ls_graph *graph, const ls_layout *layout, ls_program *const *stages,
                        dropped *count) {
  for (int s = 0; s < layout->pp; s++)
    for (int i = 0; i < stages[s]->instructions.count; i++) {
      ls_instruction *each = &stages[s]->instructions.items[i];
      if (!is_between_axes(stages[s], each)) continue;
      const int wait = each->wait;
      ls_error error = {0};
      each->wait = -1;
      if (check_on(&ls_queues_nccl, graph, layout, stages, NULL, &error) == LS_OK) {
        each->wait = wait;
        count->idle++;
        continue;
      }
      char expected[128];
      snprintf(expected, sizeof expected,
               "instruction %d: shares memory with one on another queue and does not wait for it: "
               "expected an event of instruction",
               i);
      if (!strstr(error.text, expected)) fail_msg("%s", error.text);
      count->events++;
      count->alone += check(graph, layout, stages, NULL, &error) == LS_OK;
      each->wait = wait;
    }
}

/* Where collectives over other axes have other queues, the events between two of them are needed;
 * where one queue has all, none is. */
static void test_queues_of_axes(void **state) {
  (void)state;
  dropped count = {0};
  int64_t most = 0;
  enum { LAYOUTS = 24 };
  for (int b = 0; b < LAYOUTS; b++) {
    ls_layout layout = ls_layout_default();
    layout.dp_shard = 2;
    layout.dp_replicate = 1 + b % 2;
    layout.tp = 1 + b / 2 % 2;
    layout.sequence_parallel = layout.tp > 1;
    layout.zero = 1 + b / 4 % 3;
    layout.prefetch = b / 12;
    layout.microbatches = 2;
    layout.pp = 1 + (b + b / 4) % 2;
    ls_arena *arena = ls_arena_create();
    ls_graph *graph;
    ls_program *stages[MOST_STAGES];
    ls_error error = {0};
    ls_check_report report;
    if (compile(arena, &ls_test_shapes[0], &layout, LS_PROGRAM_STEP, &graph, stages, &error) !=
            LS_OK ||
        check_on(&ls_queues_nccl, graph, &layout, stages, &report, &error) != LS_OK)
      fail_msg("%s: %s", ls_layout_print(arena, &layout), error.text);
    if (report.beside > most) most = report.beside;
    drop_events(graph, &layout, stages, &count);
    ls_arena_destroy(&arena);
  }
  print_message("%d events dropped: rejected; %d of them in one queue: accepted; %d queues busy\n",
                count.events, count.alone, (int)most);
  assert_true(count.events > 20 && count.alone > 10 && count.idle <= LAYOUTS && most > 1);
}

static const ls_op_set made_again[] = {
    LS_EVERY_OP,
    {.has = {[LS_OP_LAYERNORM] = true,
             [LS_OP_RMSNORM] = true,
             [LS_OP_GELU] = true,
             [LS_OP_SWIGLU] = true}},
    {.has = {[LS_OP_ATTENTION] = true}},
    {.has = {[LS_OP_LINEAR] = true, [LS_OP_BIAS] = true}},
};

static int segments_of(const ls_test_shape *shape) {
  ls_arena *arena = ls_arena_create();
  const int count = (int)ls_test_shape_config(arena, shape).layers + 2;
  ls_arena_destroy(&arena);
  return count;
}

static void test_recomputation_is_accepted(void **state) {
  (void)state;
  static const char *const schedules[] = {"1f1b", "zbh1", "interleaved", "zbv", "dualpipev"};
  tally count = {0};
  for (int i = 0; i < LS_TEST_SHAPES * 5 * 3 * 4 * 3 * 6; i++) {
    const int rest = i / LS_TEST_SHAPES;
    const ls_pipeline_kind *kind;
    ls_error error = {0};
    if (ls_pipeline_kind_find(schedules[rest % 5], &kind, &error) != LS_OK)
      fail_msg("%s", error.text);
    const int stages = 1 + rest / 5 % 3, b = rest / 5 / 3 / 4 / 3;
    ls_layout layout = beside(kind, stages, b % 2 ? 6 : 4, b);
    layout.recompute = made_again[rest / 5 / 3 % 4];
    ls_op_set by_segment[MOST_SEGMENTS] = {0}; /* as a budget chooses: each layer its own */
    for (int s = 0; s < MOST_SEGMENTS; s++)
      if (s % 3) by_segment[s] = made_again[(s + b) % 4];
    layout.recompute_of = by_segment;
    layout.recompute_of_count = b % 3 == 2 ? segments_of(&ls_test_shapes[i % LS_TEST_SHAPES]) : 0;
    layout.recompute_layers = 1 + rest / 5 / 3 / 4 % 3;
    if (stages > 1 || rest % 5 == 0)
      accept(&ls_test_shapes[i % LS_TEST_SHAPES], &layout, LS_PROGRAM_STEP, &count);
  }
  print_message("%d programs accepted, %d layouts refused, %lld instructions\n", count.accepted,
                count.refused, (long long)count.instructions);
  assert_true(count.accepted > ls_test_fewer(500, THINNED));
}

static ls_status check_shared(ls_program *const *a, ls_program *const *b, int count,
                              ls_error *error) {
  const ls_program *of_a[MOST_STAGES], *of_b[MOST_STAGES];
  for (int s = 0; s < count; s++) {
    of_a[s] = a[s];
    of_b[s] = b[s];
  }
  return ls_check_shared(of_a, of_b, count, error);
}

/* What `generate` runs: some tokens behind caches of keys and values. */
static ls_program *decoder(ls_arena *arena, const ls_test_shape *shape, int tokens, bool headless) {
  const ls_model_config config = ls_test_shape_config(arena, shape);
  const ls_layout layout = ls_layout_default();
  const ls_build_options options = {
      .mode = LS_MODEL_DECODE, .tokens = tokens, .cache_rows = 4, .headless = headless};
  ls_error error = {0};
  ls_graph *graph;
  ls_program *program;
  assert_int_equal(ls_model_build(arena, &config, &options, &graph, &error), LS_OK);
  assert_int_equal(ls_program_compile(graph, &layout, LS_PROGRAM_FORWARD, &program, &error), LS_OK);
  if (check(graph, &layout, &program, NULL, &error) != LS_OK)
    fail_msg("%s, %d tokens: %s", shape->name, tokens, error.text);
  return program;
}

static void test_decoding_is_accepted(void **state) {
  (void)state;
  for (int s = 0; s < LS_TEST_SHAPES; s++) {
    ls_arena *arena = ls_arena_create();
    ls_error error = {0};
    ls_program *one = decoder(arena, &ls_test_shapes[s], 1, false);
    ls_program *several = decoder(arena, &ls_test_shapes[s], 4, true);
    if (check_shared(&one, &several, 1, &error) != LS_OK) fail_msg("%s", error.text);
    int caches = 0;
    for (int f = 0; f < several->buffer_groups.count; f++) {
      if (several->buffer_groups.items[f].category != LS_CATEGORY_CACHES) continue;
      int64_t *offset =
          &several->live_intervals.items[several->buffer_groups.items[f].live_interval].offset;
      *offset += 64;
      assert_int_equal(check_shared(&one, &several, 1, &error), LS_REFUTED);
      *offset -= 64;
      caches++;
    }
    assert_true(caches > 0);
    ls_arena_destroy(&arena);
  }
}

/* Step and evaluation keep what lasts at the same places; moved in one of them, that is named. */
static void test_what_programs_share(void **state) {
  (void)state;
  const ls_pipeline_kind *kind;
  ls_error error = {0};
  assert_int_equal(ls_pipeline_kind_find("1f1b", &kind, &error), LS_OK);
  int shared = 0, moved = 0;
  for (int i = 0; i < LS_TEST_SHAPES * 2 * 12; i++) {
    ls_arena *arena = ls_arena_create();
    const ls_test_shape *shape = &ls_test_shapes[i % LS_TEST_SHAPES];
    const ls_layout layout = beside(kind, 1 + i / LS_TEST_SHAPES % 2, 4, i / LS_TEST_SHAPES / 2);
    ls_graph *graph;
    ls_program *step[MOST_STAGES], *evaluation[MOST_STAGES];
    if (compile(arena, shape, &layout, LS_PROGRAM_STEP, &graph, step, &error) == LS_OK &&
        compile(arena, shape, &layout, LS_PROGRAM_FORWARD, &graph, evaluation, &error) == LS_OK) {
      if (check_shared(step, evaluation, layout.pp, &error) != LS_OK) fail_msg("%s", error.text);
      shared++;
      ls_program *last = evaluation[layout.pp - 1];
      for (int f = 0; f < last->buffer_groups.count; f++) {
        const ls_buffer_group *buffer_group = &last->buffer_groups.items[f];
        if (buffer_group->pool != LS_POOL_STATE && buffer_group->pool != LS_POOL_CELL) continue;
        last->live_intervals.items[buffer_group->live_interval].offset += 64;
        assert_int_equal(check_shared(step, evaluation, layout.pp, &error), LS_REFUTED);
        last->live_intervals.items[buffer_group->live_interval].offset -= 64;
        moved++;
      }
    }
    ls_arena_destroy(&arena);
  }
  print_message("%d pairs fit, %d moved buffer groups named, as in: %s\n", shared, moved,
                error.text);
  assert_true(shared > 20 && moved > 200);
}

/* Llama 3.1 405B on 16,384 devices: some 100,000 instructions. */
static void test_a_large_model_is_accepted(void **state) {
  (void)state;
  static const ls_test_shape large = {
      "llama-405b",
      "{\"model_type\": \"llama\", \"vocab_size\": 128256, \"hidden_size\": 16384,"
      " \"intermediate_size\": 53248, \"num_hidden_layers\": 126, \"num_attention_heads\": 128,"
      " \"num_key_value_heads\": 8, \"max_position_embeddings\": 131072, \"rms_norm_eps\": 1e-5,"
      " \"tie_word_embeddings\": false}"};
  ls_arena *arena = ls_arena_create();
  ls_layout layout = ls_layout_default();
  layout.pp = 16;
  layout.tp = 8;
  layout.dp_shard = 128;
  layout.zero = 1;
  layout.sequence_parallel = true;
  layout.schedule = "interleaved";
  layout.chunks = 8;
  layout.microbatches = 16;
  layout.compute = LS_BF16;
  const ls_model_config config = ls_test_shape_config(arena, &large);
  ls_program *stages[MOST_STAGES];
  ls_error error = {0};
  ls_graph *graph;
  const ls_build_options options = {.tokens = 128 * 8192, .sequence = 8192};
  assert_int_equal(ls_model_build(arena, &config, &options, &graph, &error), LS_OK);
  ls_graph_backward(graph);
  if (ls_program_compile(graph, &layout, LS_PROGRAM_STEP, stages, &error) != LS_OK)
    fail_msg("%s", error.text);
  ls_check_report report;
  if (check(graph, &layout, stages, &report, &error) != LS_OK) fail_msg("%s", error.text);
  print_message("%lld instructions of 16 stages on 16,384 devices\n",
                (long long)report.instructions);
  assert_true(report.instructions > 100000);
  assert_int_equal(report.gradients, 126 * 9 + 3);
  ls_arena_destroy(&arena);
}

static void test_offloading_programs_are_accepted(void **state) {
  (void)state;
  enum { SAMPLES = 400 };
  tally count = {0};
  for (int sample = 0; sample < SAMPLES; sample++) {
    ls_layout layout = ls_test_offload_layout(sample);
    layout.offload = ls_test_offload(sample);
    const ls_test_shape *shape = &ls_test_shapes[ls_test_offload_shape(sample)];
    accept(shape, &layout, LS_PROGRAM_STEP, &count);
    if (layout.microbatches == 1) accept(shape, &layout, LS_PROGRAM_FORWARD, &count);
  }
  print_message("%d programs accepted, %lld instructions, %d layouts refused\n", count.accepted,
                (long long)count.instructions, count.refused);
  assert_true(count.accepted > ls_test_fewer(SAMPLES / 2, THINNED));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_layouts_are_accepted),
      cmocka_unit_test(test_offloading_programs_are_accepted),
      cmocka_unit_test(test_pipelines_are_accepted),
      cmocka_unit_test(test_queues_of_engines),
      cmocka_unit_test(test_queues_of_axes),
      cmocka_unit_test(test_recomputation_is_accepted),
      cmocka_unit_test(test_decoding_is_accepted),
      cmocka_unit_test(test_what_programs_share),
      cmocka_unit_test(test_a_large_model_is_accepted),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
