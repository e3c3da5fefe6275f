/* Whole programs: the communication each strategy is known for, the memory layout, refusals, the
 * cost of compiling, the printed form (tests/data/golden; LS_GOLDEN=write makes it anew). */
#include "ir/program.h"
#include "cost/cost.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "lower/compile.h"
#include "model/model.h"
#include "schedule/chunks.h"

enum { LAYERS = 3, SEQUENCE = 4 };

static const char llama[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 41, \"hidden_size\": 32, \"intermediate_size\": "
    "45,"
    " \"num_hidden_layers\": 3, \"num_attention_heads\": 16, \"num_key_value_heads\": 4,"
    " \"max_position_embeddings\": 16, \"rms_norm_eps\": 1e-5, \"tie_word_embeddings\": false}";
static const char gpt2[] =
    "{\"model_type\": \"gpt2\", \"vocab_size\": 37, \"n_positions\": 8, \"n_embd\": 24,"
    " \"n_layer\": 3, \"n_head\": 12, \"n_inner\": 43, \"resid_pdrop\": 0, \"embd_pdrop\": 0,"
    " \"attn_pdrop\": 0}";

static ls_graph *build(ls_arena *arena, const char *text, int64_t sequences, bool backward) {
  ls_model_config config;
  ls_graph *graph;
  ls_error error = {0};
  const ls_build_options options = {.mode = backward ? LS_MODEL_TRAIN : LS_MODEL_FORWARD,
                                    .tokens = sequences * SEQUENCE,
                                    .sequence = SEQUENCE};
  assert_int_equal(ls_model_config_parse(arena, "model", text, strlen(text), &config, &error),
                   LS_OK);
  assert_int_equal(ls_model_build(arena, &config, &options, &graph, &error), LS_OK);
  if (backward) ls_graph_backward(graph);
  return graph;
}

static ls_program *compile(ls_arena *arena, const char *text, int64_t sequences,
                           const ls_layout *layout) {
  ls_program *program;
  ls_error error = {0};
  if (ls_program_compile(build(arena, text, sequences, true), layout, LS_PROGRAM_STEP, &program,
                         &error) != LS_OK)
    fail_msg("%s", error.text);
  return program;
}

static ls_layout layout_of(int replicate, int shard, int tp, int zero, bool sequence_parallel) {
  ls_layout layout = ls_layout_default();
  layout.dp_replicate = replicate;
  layout.dp_shard = shard;
  layout.tp = tp;
  layout.zero = zero;
  layout.sequence_parallel = sequence_parallel;
  return layout;
}

/* Collectives of a kind in the actions of the first microbatch; segment or unit -1: of any. */
static int count(const ls_program *program, int kind, int segment, int unit,
                 ls_collective collective) {
  int found = 0;
  for (int a = 0; a < program->actions.count; a++) {
    const ls_action *action = &program->actions.items[a].action;
    if (ls_action_sort(action) != kind || action->microbatch > 0) continue;
    if ((segment >= 0 && action->segment != segment) || (unit >= 0 && action->unit != unit))
      continue;
    const ls_body *body = &program->bodies.items[program->actions.items[a].body];
    for (int i = body->first; i < body->first + body->count; i++)
      found += program->instructions.items[i].collective == collective;
  }
  return found;
}

/* Segment of a layer: "embedding" is 0. */
static void assert_pass(const ls_program *program, int kind, int layer, int reduces, int gathers,
                        int scatters) {
  assert_int_equal(count(program, kind, layer + 1, -1, LS_ALL_REDUCE), reduces);
  assert_int_equal(count(program, kind, layer + 1, -1, LS_ALL_GATHER), gathers);
  assert_int_equal(count(program, kind, layer + 1, -1, LS_REDUCE_SCATTER), scatters);
}

/* Megatron's communication of a layer, for both families and where KV heads are replicated. */
static void test_tensor_parallel_layer(void **state) {
  (void)state;
  static const struct {
    const char *model;
    int tp;
  } cases[] = {{llama, 2}, {llama, 4}, {llama, 8}, {gpt2, 2}, {gpt2, 3}, {gpt2, 12}};
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    ls_arena *arena = ls_arena_create();
    ls_layout layout = layout_of(1, 1, cases[c].tp, 1, false);
    const ls_program *plain = compile(arena, cases[c].model, 12, &layout);
    layout.sequence_parallel = true;
    const ls_program *sequence = compile(arena, cases[c].model, 12, &layout);
    for (int layer = 0; layer < LAYERS; layer++) {
      assert_pass(plain, LS_ACTION_FORWARD, layer, 2, 0, 0);
      assert_pass(plain, LS_ACTION_BACKWARD, layer, 2, 0, 0);
      assert_pass(sequence, LS_ACTION_FORWARD, layer, 0, 2, 2);
      assert_pass(sequence, LS_ACTION_BACKWARD, layer, 0, 4, 2);
    }
    ls_arena_destroy(&arena);
  }
}

/* One all-reduce a unit of what is partial on all of tp, one more for replicated KV heads. */
static void test_gradients_partial_on_tp(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const ls_layout sp = layout_of(1, 1, 4, 1, true), wide = layout_of(1, 1, 8, 1, true),
                  plain = layout_of(1, 1, 4, 1, false), grouped = layout_of(1, 1, 8, 1, false);
  const ls_program *programs[] = {compile(arena, llama, 12, &sp), compile(arena, llama, 12, &wide),
                                  compile(arena, llama, 12, &plain),
                                  compile(arena, llama, 12, &grouped)};
  static const int expected[] = {1, 2, 0, 1};
  for (int i = 0; i < 4; i++)
    for (int unit = 1; unit <= LAYERS; unit++)
      assert_int_equal(count(programs[i], LS_BEGIN_OF(FINISH, GRADIENTS), -1, unit, LS_ALL_REDUCE),
                       expected[i]);
  /* The embedding has nothing partial, the head its norm. */
  assert_int_equal(count(programs[0], LS_BEGIN_OF(FINISH, GRADIENTS), -1, 0, LS_ALL_REDUCE), 0);
  assert_int_equal(
      count(programs[0], LS_BEGIN_OF(FINISH, GRADIENTS), -1, LAYERS + 1, LS_ALL_REDUCE), 1);
  ls_arena_destroy(&arena);
}

/* FSDP2's: gather for forward, gather for backward, reduce-scatter. The last unit before the turn
 * is kept, and so is a unit that the next pass reads. */
static void test_fully_sharded_layer(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const ls_layout layout = layout_of(1, 4, 1, 3, false);
  const ls_program *program = compile(arena, llama, 12, &layout);
  for (int unit = 1; unit <= LAYERS; unit++) {
    assert_int_equal(count(program, LS_BEGIN_OF(GATHER, PARAMETERS), -1, unit, LS_ALL_GATHER), 2);
    assert_int_equal(count(program, LS_BEGIN_OF(REDUCE, GRADIENTS), -1, unit, LS_REDUCE_SCATTER),
                     1);
    assert_int_equal(count(program, LS_BEGIN_OF(FINISH, GRADIENTS), -1, unit, LS_ALL_REDUCE), 0);
  }
  assert_int_equal(count(program, LS_BEGIN_OF(GATHER, PARAMETERS), -1, LAYERS + 1, LS_ALL_GATHER),
                   1);
  assert_int_equal(count(program, LS_BEGIN_OF(PUBLISH, PARAMETERS), -1, -1, LS_ALL_GATHER), 0);
  const ls_layout hybrid = layout_of(2, 2, 1, 3, false);
  program = compile(arena, llama, 12, &hybrid);
  for (int unit = 0; unit <= LAYERS + 1; unit++)
    assert_int_equal(count(program, LS_BEGIN_OF(FINISH, GRADIENTS), -1, unit, LS_ALL_REDUCE), 1);
  ls_arena_destroy(&arena);
}

/* Elements of all units' buffers, padding included: storages of gradients of one rank. */
static int64_t gradient_elements(const ls_program *program) {
  int64_t elements = 0;
  for (int s = 0; s < program->storages.count; s++)
    if (program->buffer_groups.items[program->storages.items[s].buffer_group].category ==
        LS_CATEGORY_GRADIENTS)
      elements += program->storages.items[s].bytes / 4;
  return elements;
}

/* DDP sends 2K(n-1)/n for K bytes of gradients, ZeRO-1 and 2 as much; and three cells of 8. */
static void test_bytes_of_data_parallel_strategies(void **state) {
  (void)state;
  for (int ranks = 2; ranks <= 4; ranks++) {
    ls_arena *arena = ls_arena_create();
    ls_layout layout = layout_of(ranks, 1, 1, 0, false);
    const ls_program *ddp = compile(arena, llama, 12, &layout);
    const double share = (ranks - 1.0) / ranks, gradients = 4.0 * (double)gradient_elements(ddp);
    const double cell = 2 * 8 * share;
    int collectives;
    assert_true(
        fabs(ls_program_bytes_sent(ddp, &collectives) - (2 * gradients * share + 2 * cell)) < 1e-6);
    assert_int_equal(collectives, LAYERS + 2 + 2);
    layout = layout_of(1, ranks, 1, 1, false);
    const ls_program *zero1 = compile(arena, llama, 12, &layout);
    const double cut = 4.0 * (double)gradient_elements(zero1);
    assert_true(fabs(ls_program_bytes_sent(zero1, &collectives) - (2 * cut * share + 3 * cell)) <
                1e-6);
    assert_int_equal(collectives, 2 * (LAYERS + 2) + 3);
    ls_arena_destroy(&arena);
  }
}

/* Who last wrote each byte of the work pool, and what of each storage was ever written. */
typedef struct shadow {
  const ls_program *program;
  const ls_program_action *action;
  int64_t *writer; /* by byte: live interval x storages + storage + 1 */
  int **written;   /* by live interval, by byte of it: storage + 1 */
} shadow;

static int64_t extent(const ls_program *program, int value) {
  const ls_local local = ls_program_local(program, 0, value);
  int64_t elements = 1;
  for (int d = 0; d < program->values.items[value].ndim; d++) elements *= local.dims[d];
  return elements * (int64_t)ls_dtype_bytes(program->values.items[value].dtype);
}

typedef enum use { READ, WRITE, WRITE_IN_PLACE } use;

static int live_interval_of(const shadow *of, int buffer_group) {
  const ls_body *body = &of->program->bodies.items[of->action->body];
  int at = 0;
  while (body->buffer_groups.items[at] != buffer_group) at++;
  return of->action->live_intervals[at];
}

/* A collective in place writes padding too, but nothing new: what was not there stays so. */
static void touch(shadow *of, int value, int64_t bytes, use how, int instruction) {
  const ls_program *program = of->program;
  const int s = program->values.items[value].storage;
  const ls_storage *storage = &program->storages.items[s];
  const ls_buffer_group *buffer_group = &program->buffer_groups.items[storage->buffer_group];
  const int64_t first = ls_program_local(program, 0, value).offset;
  if (bytes == 0) return;
  assert_true(first >= storage->offset);
  if (first + bytes > storage->offset + storage->bytes)
    fail_msg("instruction %d: %s lies beyond its storage", instruction, storage->name);
  assert_true(storage->offset + storage->bytes <= buffer_group->bytes);
  const int live_interval = live_interval_of(of, storage->buffer_group);
  const int64_t base = program->live_intervals.items[live_interval].offset;
  assert_true(base + buffer_group->bytes <= program->pool_bytes[buffer_group->pool]);
  if (buffer_group->pool != LS_POOL_WORK) return;
  const int64_t tag = (int64_t)live_interval * program->storages.count + s + 1;
  for (int64_t b = first; b < first + bytes; b++) {
    int *written = &of->written[live_interval][b];
    if (how == READ && *written == s + 1 && of->writer[base + b] != tag)
      fail_msg("instruction %d reads %s, whose byte %lld %s has written over", instruction,
               storage->name, (long long)b,
               program->storages.items[(of->writer[base + b] - 1) % program->storages.count].name);
    if (how == READ || (how == WRITE_IN_PLACE && *written != s + 1)) continue;
    *written = s + 1;
    of->writer[base + b] = tag;
  }
}

/* Bytes an operand covers: a collective moves `count` elements of the whole. */
static int64_t covered(const ls_program *program, const ls_instruction *instruction, int value,
                       bool is_input) {
  if (instruction->collective == LS_COLLECTIVE_NONE) return extent(program, value);
  const int64_t ranks = ls_mesh_size(&program->mesh, instruction->axes);
  const bool piece = (instruction->collective == LS_ALL_GATHER && is_input) ||
                     (instruction->collective == LS_REDUCE_SCATTER && !is_input);
  const int64_t elements = piece ? (instruction->count + ranks - 1) / ranks : instruction->count;
  return elements * (int64_t)ls_dtype_bytes(program->values.items[value].dtype);
}

/* Goes through the whole step, all microbatches, as the executor does: what an instruction reads
 * must still be there, though other storages lie on the same bytes at other times. */
static void check_memory(ls_arena *arena, const ls_program *program) {
  shadow of = {.program = program,
               .writer = LS_NEW_ARRAY(arena, int64_t, program->pool_bytes[LS_POOL_WORK] + 1),
               .written = LS_NEW_ARRAY(arena, int *, program->live_intervals.count)};
  for (int i = 0; i < program->live_intervals.count; i++)
    of.written[i] = LS_NEW_ARRAY(
        arena, int,
        program->buffer_groups.items[program->live_intervals.items[i].buffer_group].bytes + 1);
  for (int a = 0; a < program->actions.count; a++) {
    of.action = &program->actions.items[a];
    const ls_body *body = &program->bodies.items[of.action->body];
    for (int i = body->first; i < body->first + body->count; i++) {
      const ls_instruction *each = &program->instructions.items[i];
      for (int n = 0; n < each->inputs; n++)
        touch(&of, each->in[n], covered(program, each, each->in[n], true), READ, i);
      for (int n = 0; n < each->outputs; n++) {
        const int64_t bytes = covered(program, each, each->out[n], false);
        const bool adds =
            each->write[n] == LS_ADD || (each->write[n] == LS_ADD_AFTER_FIRST && !of.action->first);
        const bool in_place = each->collective != LS_COLLECTIVE_NONE && each->inputs > 0 &&
                              program->values.items[each->in[0]].storage ==
                                  program->values.items[each->out[0]].storage;
        if (adds) touch(&of, each->out[n], bytes, READ, i);
        touch(&of, each->out[n], bytes, in_place ? WRITE_IN_PLACE : WRITE, i);
      }
    }
  }
}

/* In bf16, gradients take half the memory and half the bytes; what is updated stays fp32. */
static void test_narrow_gradients(void **state) {
  (void)state;
  for (int which = 0; which < 8; which++) {
    ls_arena *arena = ls_arena_create();
    ls_layout layout = layout_of(2, 2, 2, which & 3, true);
    layout.compute = which & 4 ? LS_BF16 : LS_F32;
    layout.microbatches = 2;
    const ls_program *wide = compile(arena, llama, 8, &layout);
    layout.grad_dtype = LS_BF16;
    const ls_program *narrow = compile(arena, llama, 8, &layout);
    int64_t wide_bytes = 0, narrow_bytes = 0;
    for (int f = 0; f < wide->buffer_groups.count; f++)
      if (wide->buffer_groups.items[f].category == LS_CATEGORY_GRADIENTS)
        wide_bytes += wide->buffer_groups.items[f].bytes;
    for (int f = 0; f < narrow->buffer_groups.count; f++)
      if (narrow->buffer_groups.items[f].category == LS_CATEGORY_GRADIENTS)
        narrow_bytes += narrow->buffer_groups.items[f].bytes;
    /* What aligns pieces is a number of bytes, so a little more than half. */
    assert_true(2 * narrow_bytes >= wide_bytes && 2 * narrow_bytes < 1.05 * (double)wide_bytes);
    int collectives, as_many;
    assert_true(ls_program_bytes_sent(narrow, &collectives) <
                0.9 * ls_program_bytes_sent(wide, &as_many));
    assert_int_equal(collectives, as_many);
    for (int p = 0; p < narrow->parameter_count; p++) {
      const ls_program_parameter *about = &narrow->parameters[p];
      assert_int_equal(narrow->values.items[about->part[LS_PART_GRADIENT]].dtype, LS_BF16);
      assert_int_equal(narrow->values.items[about->part[LS_PART_RAW_GRADIENT]].dtype, LS_BF16);
      assert_int_equal(narrow->values.items[about->part[LS_PART_MASTER]].dtype, LS_F32);
      assert_int_equal(narrow->values.items[about->part[LS_PART_MOMENT1]].dtype, LS_F32);
      assert_int_equal(narrow->values.items[about->part[LS_PART_MOMENT2]].dtype, LS_F32);
    }
    check_memory(arena, narrow);
    ls_arena_destroy(&arena);
  }
}

static bool alive_at(const ls_live_interval *live_interval, int action) {
  return live_interval->first <= action && action <= live_interval->last;
}

/* By brute force over all actions and pairs: nothing alive overlaps, and the peak is the sum. */
static void check_lifetimes(const ls_program *program) {
  int64_t most = 0;
  ls_arena *arena = ls_arena_create();
  const ls_alive *alive = ls_program_alive(arena, program, LS_TIER_DEVICE);
  for (int action = 0; action < program->actions.count; action++) {
    int64_t sum = 0;
    for (int i = 0; i < program->live_intervals.count; i++) {
      const ls_live_interval *a = &program->live_intervals.items[i];
      const ls_buffer_group *of_a = &program->buffer_groups.items[a->buffer_group];
      if (!alive_at(a, action)) continue;
      sum += (of_a->bytes + 255) / 256 * 256;
      for (int j = 0; j < i; j++) {
        const ls_live_interval *b = &program->live_intervals.items[j];
        const ls_buffer_group *of_b = &program->buffer_groups.items[b->buffer_group];
        if (of_a->pool != of_b->pool || !alive_at(b, action)) continue;
        if (a->offset < b->offset + of_b->bytes && b->offset < a->offset + of_a->bytes)
          fail_msg("%s and %s overlap in action %d", of_a->name, of_b->name, action);
      }
    }
    assert_int_equal(alive[action].sum, sum);
    if (sum > most) most = sum;
  }
  ls_arena_destroy(&arena);
  int64_t by_category[LS_CATEGORY_COUNT] = {0}, sum = 0;
  assert_int_equal(ls_program_peak(program, by_category), most);
  for (int c = 0; c < LS_CATEGORY_COUNT; c++) sum += by_category[c];
  assert_int_equal(sum, most);
  assert_true(ls_program_bytes(program) >= most);
}

/* The head's segment is gone through forward and back in its forward pass: what it makes of the
 * vocabulary, its weights where they are gathered and their gradient where it is reduced are not
 * kept until the backward pass, in which it does nothing. */
static void test_the_head_turns_back_at_once(void **state) {
  (void)state;
  const char *const models[] = {llama, gpt2};
  for (int m = 0; m < 2; m++) {
    ls_arena *arena = ls_arena_create();
    ls_layout layout = layout_of(1, 2, 1, 3, false);
    layout.microbatches = 2;
    const ls_program *program = compile(arena, models[m], 4, &layout);
    const ls_alive *alive = ls_program_alive(arena, program, LS_TIER_DEVICE);
    int found = 0;
    for (int a = 0; a < program->actions.count; a++) {
      const ls_action *action = &program->actions.items[a].action;
      if (action->segment != LAYERS + 1 || action->kind != LS_ACTION_BACKWARD) continue;
      assert_int_equal(program->bodies.items[program->actions.items[a].body].count, 0);
      assert_int_equal(alive[a].by_category[LS_CATEGORY_GATHERED], 0);
      found++;
    }
    assert_int_equal(found, layout.microbatches);
    assert_int_equal(count(program, LS_BEGIN_OF(GATHER, PARAMETERS), -1, LAYERS + 1, LS_ALL_GATHER),
                     1);
    ls_arena_destroy(&arena);
  }
}

static int find_action(const ls_program *program, int sort, int segment, int unit) {
  for (int a = 0; a < program->actions.count; a++) {
    const ls_action *action = &program->actions.items[a].action;
    if (ls_action_sort(action) == sort && action->segment == segment && action->unit == unit)
      return a;
  }
  fail_msg("no action of sort %d", sort);
  return -1;
}

/* Gathers begin before the pass ahead of theirs, so that two units are in memory; reductions end
 * after the pass behind theirs. A layer that would be gathered again at once stays: the last one,
 * and its gather's beginning, its end and its drop are what is less to do. */
static void test_prefetch(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_layout layout = layout_of(1, 2, 1, 3, false);
  const ls_program *plain = compile(arena, llama, 12, &layout);
  layout.prefetch = 1;
  const ls_program *early = compile(arena, llama, 12, &layout);
  for (int unit = 1; unit < LAYERS; unit++) { /* of the embedding and of layers: their segments */
    const int begun = find_action(early, LS_BEGIN_OF(GATHER, PARAMETERS), -1, unit);
    assert_true(begun < find_action(early, LS_ACTION_FORWARD, unit - 1, -1));
    assert_true(find_action(early, LS_ACTION_FORWARD, unit - 1, -1) <
                find_action(early, LS_WAIT_OF(GATHER, PARAMETERS), -1, unit));
    const int reduced = find_action(early, LS_BEGIN_OF(REDUCE, GRADIENTS), -1, unit + 1);
    assert_true(reduced < find_action(early, LS_ACTION_BACKWARD, unit, -1));
    assert_true(find_action(early, LS_ACTION_BACKWARD, unit, -1) <
                find_action(early, LS_WAIT_OF(REDUCE, GRADIENTS), -1, unit + 1));
    assert_true(find_action(plain, LS_WAIT_OF(GATHER, PARAMETERS), -1, unit) ==
                find_action(plain, LS_BEGIN_OF(GATHER, PARAMETERS), -1, unit) + 1);
  }
  assert_int_equal(early->actions.count, plain->actions.count - 3);
  assert_int_equal(early->instructions.count, plain->instructions.count);
  int64_t one[LS_CATEGORY_COUNT] = {0}, two[LS_CATEGORY_COUNT] = {0};
  const ls_alive *alone = ls_program_alive(arena, plain, LS_TIER_DEVICE);
  const ls_alive *beside = ls_program_alive(arena, early, LS_TIER_DEVICE);
  for (int a = 0; a < plain->actions.count; a++)
    for (int c = 0; c < LS_CATEGORY_COUNT; c++) {
      if (alone[a].by_category[c] > one[c]) one[c] = alone[a].by_category[c];
      if (a < early->actions.count && beside[a].by_category[c] > two[c])
        two[c] = beside[a].by_category[c];
    }
  assert_int_equal(two[LS_CATEGORY_GATHERED], 2 * one[LS_CATEGORY_GATHERED]);
  assert_int_equal(two[LS_CATEGORY_ACTIVATIONS], one[LS_CATEGORY_ACTIVATIONS]);
  assert_true(two[LS_CATEGORY_GRADIENTS] > one[LS_CATEGORY_GRADIENTS]);
  check_memory(arena, early);
  check_lifetimes(early);
  ls_arena_destroy(&arena);
}

static void test_memory_layout(void **state) {
  (void)state;
  static const int meshes[][3] = {{1, 1, 1}, {2, 1, 1}, {1, 2, 1},
                                  {2, 2, 2}, {1, 1, 4}, {1, 2, 12}};
  for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++)
    for (int which = 0; which < 32; which++) {
      ls_arena *arena = ls_arena_create();
      ls_layout layout =
          layout_of(meshes[m][0], meshes[m][1], meshes[m][2], which & 3, which >> 2 & 1);
      layout.microbatches = which >> 3 & 1 ? 2 : 1;
      layout.gather = which >> 4 & 1 ? LS_WHEN_STEP : LS_WHEN_AUTO;
      layout.prefetch = which % 3;
      layout.compute = which & 1 ? LS_BF16 : LS_F64;
      const char *model = meshes[m][2] % 4 && meshes[m][2] != 2 ? llama : gpt2;
      const ls_program *program = compile(arena, model, 4, &layout);
      check_memory(arena, program);
      check_lifetimes(program);
      ls_arena_destroy(&arena);
    }
}

/* Every stage of every schedule: several microbatches under way, halves of backward apart. */
/* A message is of the segment that its reason names: "what layers.0 gives to layers.1". */
static void check_messages(const ls_program *program) {
  for (int a = 0; a < program->actions.count; a++) {
    const ls_action *action = &program->actions.items[a].action;
    const ls_body *body = &program->bodies.items[program->actions.items[a].body];
    if (!ls_action_is_message(action) || !body->count) continue;
    char expected[64];
    snprintf(expected, sizeof expected, "what %s gives to",
             program->segments.items[ls_program_segment_of(program, action)].name);
    assert_non_null(strstr(program->instructions.items[body->first].reason, expected));
  }
}

static void test_memory_layout_of_pipelines(void **state) {
  (void)state;
  static const int microbatches[] = {1, 2, 3, 4, 6, 12};
  for (int k = 0; k < ls_pipeline_kind_count; k++)
    for (int which = 0; which < 24; which++) {
      ls_arena *arena = ls_arena_create();
      ls_layout layout = layout_of(1, which & 1 ? 2 : 1, which & 2 ? 2 : 1, 3, which & 2);
      layout.pp = 2;
      layout.schedule = ls_pipeline_kinds[k].name;
      layout.microbatches = microbatches[which / 4];
      layout.gather = which & 1 ? LS_WHEN_MICROBATCH : LS_WHEN_AUTO;
      ls_program *stages[2];
      ls_error error = {0};
      const ls_status status = ls_program_compile(build(arena, which & 2 ? gpt2 : llama, 4, true),
                                                  &layout, LS_PROGRAM_STEP, stages, &error);
      for (int s = 0; s < 2 && status == LS_OK; s++) {
        check_memory(arena, stages[s]);
        check_lifetimes(stages[s]);
        check_messages(stages[s]);
      }
      if (status != LS_OK && !strstr(error.text, "found")) fail_msg("%s", error.text);
      ls_arena_destroy(&arena);
    }
}

/* In the pool, of a value in a region that lives as long as the program. */
static int64_t lasting_offset(const ls_program *program, int rank, int value) {
  return program->live_intervals.items[ls_program_buffer_group(program, value)->live_interval]
             .offset +
         ls_program_local(program, rank, value).offset;
}

static void check_shared_region(const char *model, const ls_layout *layout) {
  ls_arena *arena = ls_arena_create();
  const ls_program *step = compile(arena, model, 4, layout);
  ls_program *evaluation;
  ls_error error = {0};
  assert_int_equal(ls_program_compile(build(arena, model, 4, false), layout, LS_PROGRAM_FORWARD,
                                      &evaluation, &error),
                   LS_OK);
  assert_int_equal(step->pool_bytes[LS_POOL_STATE], evaluation->pool_bytes[LS_POOL_STATE]);
  const int last = ls_mesh_ranks(&step->mesh) - 1;
  for (int p = 0; p < step->parameter_count; p++) {
    const int a = step->parameters[p].part[LS_PART_STORED],
              b = evaluation->parameters[p].part[LS_PART_STORED];
    assert_int_equal(lasting_offset(step, last, a), lasting_offset(evaluation, last, b));
    assert_int_equal(ls_program_local(step, last, a).valid[0],
                     ls_program_local(evaluation, last, b).valid[0]);
  }
  for (int c = 0; c < LS_CELL_COUNT && step->cell[c] >= 0; c++)
    assert_int_equal(lasting_offset(step, 0, step->cell[c]),
                     lasting_offset(evaluation, 0, evaluation->cell[c]));
  check_memory(arena, evaluation);
  ls_arena_destroy(&arena);
}

/* Step and evaluation agree on where parameters and cells lie. */
static void test_programs_share_the_persistent_region(void **state) {
  (void)state;
  for (int shard = 1; shard <= 4; shard *= 2)
    for (int zero = 0; zero <= 3; zero++)
      for (int which = 0; which < 4; which++) {
        ls_layout layout = layout_of(1, shard, 4, zero, which & 1);
        layout.compute = which & 2 ? LS_BF16 : LS_F32;
        check_shared_region(gpt2, &layout);
        check_shared_region(llama, &layout);
        layout.tp = 8; /* KV heads replicated */
        check_shared_region(llama, &layout);
      }
}

static void test_refusals_come_through(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const ls_layout layout = layout_of(1, 5, 1, 3, false);
  ls_program *program;
  ls_error error = {0};
  assert_int_equal(
      ls_program_compile(build(arena, llama, 12, true), &layout, LS_PROGRAM_STEP, &program, &error),
      LS_INPUT);
  assert_string_equal(error.text,
                      "12 sequences per microbatch over 5 data-parallel ranks: use a batch that "
                      "is a multiple of 5");
  ls_arena_destroy(&arena);
}

/* The same instructions for 2 and for 2000 ranks. */
static void test_cost_of_compiling_does_not_grow_with_data_ranks(void **state) {
  (void)state;
  for (int zero = 0; zero <= 3; zero++) {
    ls_arena *arena = ls_arena_create();
    const ls_layout few = layout_of(1, 2, 2, zero, true), many = layout_of(1, 2000, 2, zero, true);
    const ls_program *small = compile(arena, llama, 2, &few);
    const ls_program *large = compile(arena, llama, 2000, &many);
    assert_int_equal(small->instructions.count, large->instructions.count);
    assert_int_equal(small->values.count, large->values.count);
    assert_int_equal(small->actions.count, large->actions.count);
    assert_int_equal(small->storages.count, large->storages.count);
    ls_arena_destroy(&arena);
  }
}

/* 50,257 entries over 8: the last rank has 6276 of 6283 rows, in weights and in updates. */
static void test_uneven_vocabulary_in_a_program(void **state) {
  (void)state;
  static const char text[] =
      "{\"model_type\": \"gpt2\", \"vocab_size\": 50257, \"n_positions\": 8, \"n_embd\": 8,"
      " \"n_layer\": 1, \"n_head\": 8, \"resid_pdrop\": 0, \"embd_pdrop\": 0, \"attn_pdrop\": 0}";
  ls_arena *arena = ls_arena_create();
  const ls_layout layout = layout_of(1, 1, 8, 1, false);
  const ls_program *program = compile(arena, text, 2, &layout);
  const ls_program_parameter *token = &program->parameters[0];
  assert_string_equal(token->name, "embedding.token");
  for (int rank = 0; rank < 8; rank++) {
    const ls_local used = ls_program_local(program, rank, token->part[LS_PART_USED]);
    const ls_local master = ls_program_local(program, rank, token->part[LS_PART_MASTER]);
    const ls_local first = ls_program_local(program, 0, token->part[LS_PART_USED]);
    assert_int_equal(used.dims[0], 6283);
    assert_int_equal(used.valid[0], rank < 7 ? 6283 : 6276);
    assert_int_equal(used.start[0], 6283 * rank);
    assert_int_equal(used.offset, first.offset); /* all ranks have the same addresses */
    assert_int_equal(master.valid[0], 8 * used.valid[0]);
  }
  const ls_local logits = ls_program_local(program, 7, program->logits);
  assert_int_equal(logits.dims[1], 6283);
  assert_int_equal(logits.valid[1], 6276);
  ls_arena_destroy(&arena);
}

static void print_all(const ls_program *program, FILE *stream) {
  ls_program_print(program, stream);
  ls_program_print_memory(program, 0, stream);
  ls_program_print_collectives(program, stream);
}

static void test_printed_form(void **state) {
  (void)state;
  static const char path[] = "tests/data/golden/llama_zero3_tp2_sp.txt";
  ls_arena *arena = ls_arena_create();
  ls_layout layout = layout_of(1, 2, 2, 3, true);
  layout.microbatches = 2;
  layout.compute = LS_BF16;
  const ls_program *program = compile(arena, llama, 4, &layout);
  const char *mode = getenv("LS_GOLDEN");
  if (mode && strcmp(mode, "write") == 0) {
    FILE *stream = fopen(path, "w");
    assert_non_null(stream);
    print_all(program, stream);
    assert_int_equal(fclose(stream), 0);
  }
  char *printed = NULL, *golden;
  size_t bytes = 0, golden_bytes;
  FILE *stream = open_memstream(&printed, &bytes);
  assert_non_null(stream);
  print_all(program, stream);
  assert_int_equal(fclose(stream), 0);
  ls_error error = {0};
  if (ls_file_read(arena, path, &golden, &golden_bytes, &error) != LS_OK)
    fail_msg("%s", error.text);
  size_t line = 1;
  for (size_t i = 0; i < bytes && i < golden_bytes && printed[i] == golden[i]; i++)
    line += printed[i] == '\n';
  const bool same = bytes == golden_bytes && memcmp(printed, golden, bytes) == 0;
  free(printed);
  if (!same) fail_msg("%s: line %zu is printed otherwise now (LS_GOLDEN=write)", path, line);
  ls_arena_destroy(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_tensor_parallel_layer),
      cmocka_unit_test(test_gradients_partial_on_tp),
      cmocka_unit_test(test_fully_sharded_layer),
      cmocka_unit_test(test_bytes_of_data_parallel_strategies),
      cmocka_unit_test(test_narrow_gradients),
      cmocka_unit_test(test_the_head_turns_back_at_once),
      cmocka_unit_test(test_prefetch),
      cmocka_unit_test(test_memory_layout),
      cmocka_unit_test(test_memory_layout_of_pipelines),
      cmocka_unit_test(test_programs_share_the_persistent_region),
      cmocka_unit_test(test_refusals_come_through),
      cmocka_unit_test(test_cost_of_compiling_does_not_grow_with_data_ranks),
      cmocka_unit_test(test_uneven_vocabulary_in_a_program),
      cmocka_unit_test(test_printed_form)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
