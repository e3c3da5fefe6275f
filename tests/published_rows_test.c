/* Rows of published measurements are read as they stand, and judged by hand-made predictions. */
#include "published/rows.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "published/families.h"
#include "sim/sim.h"
#include "support/test_catalog.h"

typedef struct fixture {
  ls_arena *arena;
  published_table table;
} fixture;

static int open_rows(void **state) {
  static fixture made;
  ls_error error = {0};
  char *text;
  size_t bytes;
  made.arena = ls_arena_create();
  if (ls_file_read(made.arena, "tests/data/published/rows.csv", &text, &bytes, &error) != LS_OK)
    return 1;
  published_read(made.arena, text, &made.table);
  *state = &made;
  return 0;
}

static int close_rows(void **state) {
  fixture *of = *state;
  ls_arena_destroy(&of->arena);
  return 0;
}

static void test_cells_are_read(void **state) {
  const fixture *of = *state;
  assert_int_equal(of->table.column_count, 30);
  assert_int_equal(of->table.rows.count, 6);
  const published_row *row = of->table.rows.items;
  assert_string_equal(published_cell(&of->table, row, "notes"), "a comma, and a \"quote\"");
  assert_string_equal(published_cell(&of->table, row, "completeness"), "full");
  assert_string_equal(published_cell(&of->table, row, "no such column"), "");
  assert_true(published_number(&of->table, row, "vpp", 7) == 7);
  assert_true(published_number(&of->table, row, "tp", 7) == 2);
}

static void test_values_become_seconds(void **state) {
  fixture *of = *state;
  published_row *rows = of->table.rows.items;
  rows[4].flops = rows[5].flops = 8e14;
  rows[5].peak = 4e14;
  for (int i = 0; i < 6; i++) published_take_value(&of->table, &rows[i]);
  assert_true(rows[0].measured == 2);
  assert_true(rows[1].measured == 8.0 * 512 / (512 * 4));
  assert_true(isnan(rows[3].measured) && rows[3].out_of_memory);
  assert_true(rows[4].measured == 8e14 / (100e12 * 4));
  assert_true(rows[5].measured == 8e14 / (0.5 * 4e14 * 4));
}

/* Two layers of 4 x 1024^2 and 2 x 1024 x 4096 weights, attention over 512 tokens, a head. */
static void test_flops_are_counted(void **state) {
  const fixture *of = *state;
  const published_row *row = of->table.rows.items;
  const double tokens = 512 * 8, layer = 2 * 12.0 * 1024 * 1024 + 4.0 * 1024 * 512;
  const double head = 6.0 * 1024 * 1000;
  assert_true(published_flops(&of->table, row, false, false) == tokens * (6 * layer + head));
  assert_true(published_flops(&of->table, row, false, true) == tokens * (8 * layer + head));
  assert_true(published_flops(&of->table, row, true, false) >
              published_flops(&of->table, row, false, false));
}

static void test_errors_are_judged(void **state) {
  fixture *of = *state;
  published_row *rows = of->table.rows.items;
  for (int i = 0; i < 6; i++) published_take_value(&of->table, &rows[i]);
  rows[0].predicted = 2.2; /* of 2: +10 % */
  rows[1].predicted = 2.4; /* of 2: +20 % */
  rows[2].predicted = 2.1; /* of 4: -47.5 %, and in the wrong order with both */
  published_score score = published_judge(of->arena, &of->table, "first", PUBLISHED_TIME);
  assert_int_equal(score.rows, 3);
  assert_int_equal(score.done, 3);
  assert_true(fabs(score.median - 0.2) < 1e-12);
  assert_true(fabs(score.bias - 0.1) < 1e-12);
  assert_true(fabs(score.worst - 0.475) < 1e-12);
  assert_true(score.tau == -1); /* the first two measured the same, so are no pair */
  rows[1].why = "for a test";
  score = published_judge(of->arena, &of->table, "first", PUBLISHED_TIME);
  assert_int_equal(score.done, 2);
  assert_true(fabs(score.median - (0.1 + 0.475) / 2) < 1e-12);
  score = published_judge(of->arena, &of->table, "first", PUBLISHED_MEMORY);
  assert_int_equal(score.rows, 1);
  assert_int_equal(score.done, 0);
}

static void test_sources_and_halves(void **state) {
  const fixture *of = *state;
  int count;
  const char **names = published_sources(of->arena, &of->table, &count);
  assert_int_equal(count, 2);
  assert_string_equal(names[0], "first");
  assert_string_equal(names[1], "second");
  int fitted = 0;
  for (int i = 0; i < 6; i++) fitted += published_is_fitted(&of->table, &of->table.rows.items[i]);
  assert_in_range(fitted, 1, 5);
}

#define COLUMNS                                                                           \
  "source,model,layers,hidden,heads,kv_heads,ffn_hidden,vocab,seq_len,global_batch_seqs," \
  "micro_batch,gpu,n_gpus,tp,pp,dp,zero_stage,recompute,precision,flash_attn,metric,vpp\n"

static double memory_of(const char *line, published_row *row) {
  published_table table;
  published_case made;
  ls_error error = {0};
  published_read(catalog->arena, ls_arena_printf(catalog->arena, COLUMNS "%s", line), &table);
  *row = table.rows.items[0];
  if (published_case_make(catalog, &table, row, &made, &error) != LS_OK) fail_msg("%s", error.text);
  row->capacity = (double)made.accelerator.memory_mib / 1024;
  row->predicted = published_memory(&made, published_family_of(&table, row));
  return row->predicted;
}

/* GiB as their makers published them: torchtune's README (a step with everything kept in compiled
 * ops 51.0, checkpointed 24.9), Megatron-LM's golden values of its 7B test, of one with chunks and
 * kept scores, and of one whose tables count as layers, torchtitan's performance.md, nanotron's
 * benchmark of two stages, BigScience's log in bf16 and in fp16. */
static void test_memory_is_accounted_for(void **state) {
  (void)state;
  static const struct {
    const char *line;
    double gib;
  } known[] = {
      {"torchtune,llama3.2-3b,28,3072,24,8,8192,128256,4096,2,2,A100,1,1,1,1,,none,pure BF16,yes,"
       "mem_gib",
       51.0},
      {"torchtune,llama3.2-3b,28,3072,24,8,8192,128256,4096,2,2,A100,1,1,1,1,,full,pure BF16,yes,"
       "mem_gib",
       24.9},
      {"Megatron-golden,gpt/gpt3_7b_tp4_pp1_memory_speed,32,4096,32,8,16384,,8192,8,2,A100-80GB,8,"
       "4,1,2,1,none,BF16,yes,mem_gib",
       54.2},
      {"Megatron-golden,gpt/gpt3_mcore_te_tp1_pp4_vp1_dist_optimizer,12,512,8,8,2048,,1024,32,4,"
       "H100-80GB,8,1,4,2,1,none,BF16,yes,mem_gib,3",
       3.67},
      {"Megatron-golden,gpt/gpt3_mcore_te_tp1_pp4_vp2_account_for_embedding_loss,6,512,8,8,2048,,"
       "1024,32,4,A100-80GB,8,1,4,2,0,none,BF16,yes,mem_gib,2",
       2.62},
      {"torchtitan,llama3-8b,32,4096,32,8,14336,128256,8192,256,2,H100-96GB,128,1,1,128,3,"
       "selective,"
       "FP8,yes,mem_gib",
       61.8},
      {"nanotron-benchmark,llama-like-1.34B,24,2048,16,16,8192,,4096,256,2,H100-80GB,512,2,2,128,1,"
       ","
       "BF16,yes,mem_gib",
       8.4},
      {"BLOOM-prequel,gpt-176B,70,14336,112,112,57344,250000,2048,2048,2,A100-80GB,384,8,12,4,1,"
       "full,"
       "BF16 (fp32 grad accumulation),no,mem_gib",
       40},
      {"BLOOM-prequel,gpt-200B,80,14400,96,96,57600,250000,2048,2048,1,A100-80GB,160,8,10,2,1,full,"
       "FP16,no,mem_gib",
       51},
  };
  for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
    published_row row;
    const double found = memory_of(known[k].line, &row);
    print_message("%.1f GiB of %.1f\n", found, known[k].gib);
    assert_true(fabs(found / known[k].gib - 1) < 0.12);
    assert_true(published_fits(&row));
  }
}

/* Layers that a name's parameters make: 16 of 67.1 M and one table of words of 268 M. */
static void test_parameters_tell_layers(void **state) {
  (void)state;
  published_table table;
  published_case made;
  ls_error error = {0};
  published_read(
      catalog->arena,
      COLUMNS
      "nanotron-benchmark,llama-like-1.34B,24,2048,16,16,8192,,4096,8,2,H100-80GB,2,2,1,"
      "1,0,,BF16,yes,mem_gib\n"
      "nanotron-benchmark,llama-like-8.86B,32,4096,32,32,14336,,4096,8,2,H100-80GB,2,2,1,"
      "1,0,,BF16,yes,mem_gib\n",
      &table);
  for (int r = 0; r < 2; r++) {
    assert_int_equal(published_case_make(catalog, &table, &table.rows.items[r], &made, &error),
                     LS_OK);
    assert_int_equal(made.model.layers, r ? 32 : 16);
    assert_int_equal(made.model.tied, r == 0);
  }
}

/* Cards on which these cannot run: weights alone, or with what training adds, are more. */
static void test_what_does_not_fit_is_not_called_fitting(void **state) {
  (void)state;
  static const char *const lines[] = {
      "surogate,qwen3-32b,64,5120,64,8,25600,151936,2048,8,2,RTX 5090,1,1,1,1,,full,BF16,yes,"
      "mem_gib",
      "surogate,qwen3-14b,40,5120,40,8,17408,151936,2048,8,2,RTX 5090,1,1,1,1,,full,BF16,yes,"
      "mem_gib",
      "torchtune,llama3-8b,32,4096,32,8,14336,128256,2048,2,2,RTX 4090,1,1,1,1,,none,pure BF16,yes,"
      "mem_gib",
      "llm-foundry,mpt-7b,32,4096,32,32,16384,50368,2048,8,1,A100-40GB,1,1,1,1,,full,BF16,yes,"
      "mem_gib",
      "Megatron-Bridge,llama3-70b,80,8192,64,8,28672,128256,4096,32,1,H100-80GB,8,2,4,1,1,,FP8,yes,"
      "mem_gib",
  };
  for (size_t l = 0; l < sizeof lines / sizeof *lines; l++) {
    published_row row;
    memory_of(lines[l], &row);
    print_message("%.1f GiB on %.1f\n", row.predicted, row.capacity);
    assert_false(published_fits(&row));
  }
}

/* Nine rows that ran and seven that did not, of layouts whose state alone tells (the notes say by
 * what): none that ran out of memory is called fitting, and what is called wrongly is counted. */
static void test_calls_of_memory_are_counted(void **state) {
  (void)state;
  published_table table;
  ls_error error = {0};
  char *text;
  size_t bytes;
  assert_int_equal(
      ls_file_read(catalog->arena, "tests/data/published/memory.csv", &text, &bytes, &error),
      LS_OK);
  published_read(catalog->arena, text, &table);
  assert_int_equal(table.rows.count, 16);
  for (int r = 0; r < table.rows.count; r++) {
    published_row *row = &table.rows.items[r];
    published_case made;
    assert_int_equal(published_case_make(catalog, &table, row, &made, &error), LS_OK);
    row->capacity = (double)made.accelerator.memory_mib / 1024;
    row->predicted = published_memory(&made, published_family_of(&table, row));
    published_take_value(&table, row);
  }
  published_calls calls = published_count_calls(&table);
  assert_int_equal(calls.out_of_memory, 7);
  assert_int_equal(calls.refused, 7);
  assert_int_equal(calls.called_fitting, 0);
  assert_int_equal(calls.fitted, 9);
  assert_int_equal(calls.held, 9);
  assert_int_equal(calls.called_large, 0);
  table.rows.items[9].predicted = 1;   /* ran out, and is called fitting */
  table.rows.items[10].why = "a test"; /* ran out, and was not done */
  table.rows.items[0].predicted = 999; /* ran, and is called too large */
  table.rows.items[1].why = "a test";
  calls = published_count_calls(&table);
  assert_int_equal(calls.out_of_memory, 7);
  assert_int_equal(calls.refused, 5);
  assert_int_equal(calls.called_fitting, 1);
  assert_int_equal(calls.fitted, 9);
  assert_int_equal(calls.held, 7);
  assert_int_equal(calls.called_large, 1);
}

/* A row that ran, and whose state no device holds, trained adapters; one that tells no chunks of
 * its stages interleaves where its family does. */
static void test_what_rows_leave_open_is_settled(void **state) {
  (void)state;
  published_table table;
  published_case made;
  ls_error error = {0};
  published_read(
      catalog->arena,
      COLUMNS
      "NeMo-docs,llama2-13b,40,5120,40,40,13824,32000,4096,32,1,H100-80GB,8,1,1,8,1,,FP8,yes,"
      "tokens_per_s_per_gpu\n"
      "NeMo-docs,llama2-13b,40,5120,40,40,13824,32000,4096,32,1,H100-80GB,8,1,4,2,1,,FP8,yes,"
      "tokens_per_s_per_gpu\n",
      &table);
  for (int r = 0; r < 2; r++) {
    assert_int_equal(published_case_make(catalog, &table, &table.rows.items[r], &made, &error),
                     LS_OK);
    assert_int_equal(made.adapters, r == 0);
    assert_int_equal(made.layout.zero, r);
    assert_int_equal(made.layout.chunks, r ? 10 : 1);
  }
}

/* The first row of a text: its case and its programs, in the catalog's arena. */
static void compile_row(const char *text, published_case *made, ls_compiled *compiled) {
  published_table table;
  ls_error error = {0};
  published_read(catalog->arena, text, &table);
  assert_int_equal(published_case_make(catalog, &table, table.rows.items, made, &error), LS_OK);
  const ls_training training = {
      .model = &made->model, .batch = made->batch, .sequence = made->model.positions};
  assert_int_equal(
      ls_compile(catalog->arena, &training, &made->layout, &made->facts, compiled, &error), LS_OK);
}

/* Nemotron has fewer heads of keys than of queries, which GPT-2 has not, and no biases. */
static void test_shared_keys_are_compiled(void **state) {
  (void)state;
  published_case made;
  ls_compiled compiled;
  compile_row(COLUMNS
              "DGXC-benchmarking,nemotron4-15b,2,1024,16,4,4096,1000,512,8,1,H100-80GB,2,2,1,1,"
              "1,,BF16,yes,step_time_s\n",
              &made, &compiled);
  const ls_program *program = compiled.stages[LS_COMPILED_STEP][0];
  bool keys = false;
  for (int i = 0; i < program->instructions.count; i++)
    assert_int_not_equal(program->instructions.items[i].kind, LS_OP_BIAS);
  for (int p = 0; p < program->parameter_count; p++) {
    const ls_program_parameter *each = &program->parameters[p];
    if (!strstr(each->name, "attention.key")) continue;
    keys = true;
    assert_int_equal(each->dims[0] * each->dims[1], 1024 * 256);
  }
  assert_true(keys);
}

static double seconds_of(const ls_compiled *compiled, const ls_performance *on, bool late) {
  const ls_sim_options options = {.publishes_late = late};
  ls_simulation *simulation;
  ls_error error = {0};
  if (ls_simulate(catalog->arena, compiled->stages[LS_COMPILED_STEP], on, &options, &simulation,
                  &error) != LS_OK)
    fail_msg("%s", error.text);
  return simulation->seconds;
}

/* Two layers on 16 devices of two hosts: more kernels are begun, collectives are in pieces, or
 * updated weights are gathered beside the next step. */
static void test_traits_change_the_step(void **state) {
  (void)state;
  published_case made;
  ls_compiled compiled;
  compile_row(COLUMNS
              "vTrain-single,gpt,2,1024,16,16,4096,51200,1024,16,1,A100,16,1,1,16,1,"
              "full,FP16,no,step_time_s\n",
              &made, &compiled);
  ls_performance on = made.performance;
  on.launch_s = 1e-3; /* nothing but the host counts: a forward pass, again, and a backward one */
  const double base = seconds_of(&compiled, &on, false);
  on.traits.score_kernels[0] = on.traits.score_kernels[1] = 1;
  const double fewer = seconds_of(&compiled, &on, false);
  assert_true(fabs(base - fewer - 2 * (5 + 5 + 9) * 1e-3) < 1e-3);
  on = made.performance;
  const double whole = seconds_of(&compiled, &on, false);
  assert_true(seconds_of(&compiled, &on, true) < whole);
  on.traits.pieces = 12;
  assert_true(seconds_of(&compiled, &on, false) > whole);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_cells_are_read, open_rows, close_rows),
      cmocka_unit_test_setup_teardown(test_values_become_seconds, open_rows, close_rows),
      cmocka_unit_test_setup_teardown(test_flops_are_counted, open_rows, close_rows),
      cmocka_unit_test_setup_teardown(test_errors_are_judged, open_rows, close_rows),
      cmocka_unit_test_setup_teardown(test_sources_and_halves, open_rows, close_rows),
      cmocka_unit_test(test_memory_is_accounted_for),
      cmocka_unit_test(test_parameters_tell_layers),
      cmocka_unit_test(test_what_does_not_fit_is_not_called_fitting),
      cmocka_unit_test(test_calls_of_memory_are_counted),
      cmocka_unit_test(test_what_rows_leave_open_is_settled),
      cmocka_unit_test(test_shared_keys_are_compiled),
      cmocka_unit_test(test_traits_change_the_step),
  };
  return cmocka_run_group_tests(tests, open_catalog, close_catalog);
}
