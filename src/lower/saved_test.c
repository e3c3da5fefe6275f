/* The saved form holds everything: what is read back prints and saves the same, and what is damaged
 * is refused by name, never run and never a crash. */

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/random.h"
#include "cost/cost.h"
#include "ir/saved.h"
#include "ir/saved_fields.h"
#include "lower/compile.h"
#include "model/model.h"
#include "support/shapes.h"

/* The saved form of a step over 128 pieces of each unit. */
static json_t *compile_wide(ls_arena *arena) {
  ls_error error = {0};
  ls_model_config config;
  const char *text = ls_test_shapes[1].config;
  assert_int_equal(ls_model_config_parse(arena, "shape", text, strlen(text), &config, &error),
                   LS_OK);
  ls_graph *graph;
  const ls_build_options options = {.tokens = 512, .sequence = 4};
  assert_int_equal(ls_model_build(arena, &config, &options, &graph, &error), LS_OK);
  ls_graph_backward(graph);
  ls_layout layout = ls_layout_default();
  layout.dp_shard = 128;
  ls_program *program;
  if (ls_program_compile(graph, &layout, LS_PROGRAM_STEP, &program, &error) != LS_OK)
    fail_msg("%s", error.text);
  return json_loads(ls_program_text(arena, program), 0, NULL);
}

static ls_program *compile(ls_arena *arena, int shape, ls_program_kind kind) {
  ls_error error = {0};
  ls_model_config config;
  const char *text = ls_test_shapes[shape].config;
  assert_int_equal(ls_model_config_parse(arena, "shape", text, strlen(text), &config, &error),
                   LS_OK);
  ls_graph *graph;
  assert_int_equal(ls_model_build(arena, &config, &(ls_build_options){.tokens = 48, .sequence = 4},
                                  &graph, &error),
                   LS_OK);
  if (kind == LS_PROGRAM_STEP) ls_graph_backward(graph);
  ls_layout layout = ls_layout_default();
  layout.dp_replicate = 2;
  layout.dp_shard = 3;
  layout.tp = ls_test_shapes[shape].name[0] == 'g' ? 5 : 1;
  layout.sequence_parallel = true;
  layout.zero = 2 + (shape == 0);
  layout.microbatches = 3;
  layout.grad_dtype = shape == 2 ? LS_BF16 : LS_F32;
  layout.logits_rows = shape == 1 ? 5 : 0; /* of 8 */
  ls_program *program;
  if (ls_program_compile(graph, &layout, kind, &program, &error) != LS_OK)
    fail_msg("%s", error.text);
  return program;
}

static char *printed(const ls_program *program) {
  char *text = NULL;
  size_t bytes = 0;
  FILE *stream = open_memstream(&text, &bytes);
  assert_non_null(stream);
  ls_program_print(program, stream);
  ls_program_print_memory(program, 0, stream);
  ls_program_print_collectives(program, stream);
  fclose(stream);
  return text;
}

static void test_round_trip(void **state) {
  (void)state;
  for (int shape = 0; shape < LS_TEST_SHAPES; shape++)
    for (int kind = LS_PROGRAM_STEP; kind <= LS_PROGRAM_FORWARD; kind++) {
      ls_arena *arena = ls_arena_create();
      ls_error error = {0};
      const ls_program *made = compile(arena, shape, (ls_program_kind)kind);
      const char *text = ls_program_text(arena, made);
      ls_program *loaded;
      if (ls_program_parse(arena, "saved", text, strlen(text), &loaded, &error) != LS_OK)
        fail_msg("%s", error.text);
      assert_string_equal(ls_program_text(arena, loaded), text);
      char *before = printed(made), *after = printed(loaded);
      assert_string_equal(before, after);
      free(before);
      free(after);
      ls_arena_destroy(&arena);
    }
}

/* Seeds of another version would be refused at their first line: the fuzzer would learn nothing of
 * what is behind it. LS_GOLDEN=write makes them anew. */
static void the_fuzzers_seeds_are_of_this_form(void **state) {
  (void)state;
  const char *write = getenv("LS_GOLDEN");
  for (int shape = 0; shape < LS_TEST_SHAPES; shape++) {
    ls_arena *arena = ls_arena_create();
    ls_error error = {0};
    const char *path = ls_arena_printf(arena, "tests/corpus/program/s%d", shape + 1);
    if (write && strcmp(write, "write") == 0) {
      const char *made = ls_program_text(
          arena, compile(arena, shape, shape == 1 ? LS_PROGRAM_FORWARD : LS_PROGRAM_STEP));
      FILE *file = fopen(path, "w");
      assert_non_null(file);
      fputs(made, file);
      assert_int_equal(fclose(file), 0);
    }
    char *text;
    size_t bytes;
    ls_program *loaded;
    assert_int_equal(ls_file_read(arena, path, &text, &bytes, &error), LS_OK);
    if (ls_program_parse(arena, path, text, bytes, &loaded, &error) != LS_OK)
      fail_msg("%s; LS_GOLDEN=write makes seeds anew", error.text);
    ls_arena_destroy(&arena);
  }
}

static void refuse(const char *from, const char *to, const char *expected) {
  ls_arena *arena = ls_arena_create();
  ls_error error = {0};
  const char *text = ls_program_text(arena, compile(arena, 1, LS_PROGRAM_STEP));
  const char *at = strstr(text, from);
  if (!at) fail_msg("no %s in the saved form", from);
  const char *damaged =
      ls_arena_printf(arena, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
  ls_program *loaded;
  assert_int_equal(ls_program_parse(arena, "saved", damaged, strlen(damaged), &loaded, &error),
                   LS_INPUT);
  if (!strstr(error.text, expected)) fail_msg("%s: expected %s", error.text, expected);
  ls_arena_destroy(&arena);
}

static void test_damage_is_named(void **state) {
  (void)state;
  char version[32];
  snprintf(version, sizeof version, "\"lockstep_program\":%d", LS_SAVED_VERSION);
  refuse(version, "\"lockstep_program\":999", "saved form 999");
  refuse("[\"embedding\",0,0]", "[\"embedding\",7,0]", "segment");
  refuse("\"tokens\":48", "\"tokens\":-1", "head");
  refuse("\"rmsnorm\"", "\"rmsnorn\"", "instruction");
  refuse("\"fp32\"", "\"fp31\"", "head");
  refuse("\"pp\",0,0,1]", "\"pp\",0,0,0]", "mesh");
  refuse("\"pp\",0,0,1]", "\"pp\",3,0,1]", "mesh");
  refuse("\"dp_shard\":3", "\"dp_shard\":2", "mesh");
  refuse("\"dp_shard\":3", "\"dp_shard\":1048576", "mesh");
  refuse("\"zero\":2", "\"zero\":4", "head");
  refuse("\"values\"", "\"walues\"", "values");
}

static void parse_edited(json_t *root, const char *what, ls_status expected, const char *says) {
  ls_arena *arena = ls_arena_create();
  ls_program *loaded;
  ls_error error = {0};
  char *text = json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(17));
  const ls_status status = ls_program_parse(arena, "saved", text, strlen(text), &loaded, &error);
  if (status != expected) fail_msg("%s: status %d: %s", what, status, error.text);
  if (!strstr(error.text, says)) fail_msg("%s: %s: expected %s", what, error.text, says);
  free(text);
  ls_arena_destroy(&arena);
}

/* The first instruction that is this op. */
static json_t *find_instruction(json_t *root, const char *op) {
  size_t i;
  json_t *each;
  json_array_foreach(json_object_get(root, "instructions"), i, each) {
    if (strcmp(json_string_value(json_array_get(each, 2)), op) == 0) return each;
  }
  fail_msg("no %s", op);
  return NULL;
}

/* What no op can have: kinds that there are not, halves, what would be divided by. */
static void test_settings_of_ops_are_checked(void **state) {
  (void)state;
  enum { ATTRIBUTES = 14, WAIT = 8 };
  static const struct {
    const char *op;
    int field;
    double number;
  } wrong[] = {{"swiglu", LS_ATTRIBUTE_activation, LS_ACTIVATION_COUNT},
               {"swiglu", LS_ATTRIBUTE_activation, 1e300},
               {"swiglu", LS_ATTRIBUTE_activation, -1},
               {"swiglu", LS_ATTRIBUTE_activation, 0.5},
               {"attention", LS_ATTRIBUTE_head_dim, 0},
               {"attention", LS_ATTRIBUTE_kv_heads, 0},
               {"attention", LS_ATTRIBUTE_sequence, 0},
               {"attention", LS_ATTRIBUTE_head_dim, 2.5},
               {"attention", LS_ATTRIBUTE_head_dim, 1e300},
               {"attention_bwd", LS_ATTRIBUTE_head_dim, 0},
               {"attention_bwd", LS_ATTRIBUTE_kv_heads, 0},
               {"rope", LS_ATTRIBUTE_head_dim, 0}};
  ls_arena *arena = ls_arena_create();
  const char *text = ls_program_text(arena, compile(arena, 1, LS_PROGRAM_STEP));
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    json_t *root = json_loads(text, 0, NULL);
    json_t *attributes = json_array_get(find_instruction(root, wrong[i].op), ATTRIBUTES);
    parse_edited(root, "unchanged", LS_OK, "");
    json_array_set_new(attributes, (size_t)wrong[i].field, json_real(wrong[i].number));
    parse_edited(root, wrong[i].op, LS_INPUT, "saved: damaged program: instruction");
    json_decref(root);
  }
  json_t *root = json_loads(text, 0, NULL);
  json_array_set_new(find_instruction(root, "swiglu"), WAIT, json_integer(1 << 30));
  parse_edited(root, "wait", LS_INPUT, "saved: damaged program: instruction");
  json_decref(root);
  ls_arena_destroy(&arena);
}

/* Beyond its shard on one rank of 128, neither the first nor the last. */
static void test_every_ranks_part_is_checked(void **state) {
  (void)state;
  enum { PLACEMENT = 3, FIELDS = 5, FLAT_ELEMENTS = 1, FLAT_OFFSET, SHARDS = 128 };
  ls_arena *arena = ls_arena_create();
  json_t *root = compile_wide(arena), *each;
  parse_edited(root, "unchanged", LS_OK, "");
  size_t i;
  int tried = 0;
  json_array_foreach(json_object_get(root, "values"), i, each) {
    json_t *fields = json_array_get(each, FIELDS);
    json_t *place = json_array_get(json_array_get(each, PLACEMENT), LS_AXIS_DP_SHARD);
    const json_int_t offset = json_integer_value(json_array_get(fields, FLAT_OFFSET));
    json_t *elements = json_array_get(fields, FLAT_ELEMENTS);
    const json_int_t all = json_integer_value(elements), shard = all / SHARDS;
    if (json_integer_value(json_array_get(place, 0)) != LS_SHARDED_FLAT || offset < 4 * shard)
      continue;
    json_integer_set(elements, (offset - 2 * shard) * SHARDS);
    parse_edited(root, "a shard", LS_INPUT, "saved: damaged program: value");
    json_integer_set(elements, all);
    tried++;
  }
  assert_true(tried > 0);
  json_decref(root);
  ls_arena_destroy(&arena);
}

/* A digit or two changed anywhere: refused, or read as a program whose parts fit; never a crash. */
static void test_changed_digits_never_crash(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const char *text = ls_program_text(arena, compile(arena, 1, LS_PROGRAM_STEP));
  const size_t bytes = strlen(text);
  int refused = 0;
  for (uint64_t trial = 0; trial < 300; trial++) {
    ls_arena *scratch = ls_arena_create();
    char *damaged = ls_arena_strdup(scratch, text);
    for (uint64_t edit = 0; edit < 2; edit++) {
      const uint64_t bits = ls_random_bits(7, trial, edit);
      size_t at = (size_t)(bits % bytes);
      while (damaged[at] < '0' || damaged[at] > '9') at = (at + 1) % bytes;
      damaged[at] = (char)('0' + (bits >> 40) % 10);
    }
    ls_program *loaded;
    ls_error error = {0};
    if (ls_program_parse(scratch, "saved", damaged, bytes, &loaded, &error) != LS_OK) refused++;
    ls_arena_destroy(&scratch);
  }
  print_message("%d of 300 damaged programs refused\n", refused);
  assert_true(refused > 20);
  ls_arena_destroy(&arena);
}

/* An action or a parameter of a unit that there is not, an action of such a segment. */
static void test_names_of_parts_are_checked(void **state) {
  (void)state;
  static const struct {
    const char *list;
    int field;
  } places[] = {{"actions", 1}, {"actions", 2}, {"parameters", 6}};
  ls_arena *arena = ls_arena_create();
  const char *text = ls_program_text(arena, compile(arena, 1, LS_PROGRAM_STEP));
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    json_t *root = json_loads(text, 0, NULL);
    json_t *first = json_array_get(json_object_get(root, places[i].list), 0);
    parse_edited(root, "unchanged", LS_OK, "");
    json_array_set_new(first, (size_t)places[i].field, json_integer(100));
    parse_edited(root, places[i].list, LS_INPUT, "saved: damaged program: ");
    json_decref(root);
  }
  ls_arena_destroy(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_round_trip),
                                     cmocka_unit_test(the_fuzzers_seeds_are_of_this_form),
                                     cmocka_unit_test(test_damage_is_named),
                                     cmocka_unit_test(test_settings_of_ops_are_checked),
                                     cmocka_unit_test(test_names_of_parts_are_checked),
                                     cmocka_unit_test(test_every_ranks_part_is_checked),
                                     cmocka_unit_test(test_changed_digits_never_crash)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
