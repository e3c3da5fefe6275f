/* The saved form holds everything: what is read back prints and saves the same, and what is damaged
 * is refused by name, never run and never a crash. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/random.h"
#include "model/model.h"
#include "program/saved.h"
#include "support/shapes.h"

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

static void test_file(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_error error = {0};
  char path[] = "/tmp/lockstep-program-XXXXXX";
  const int file = mkstemp(path);
  assert_true(file >= 0);
  close(file);
  const ls_program *made = compile(arena, 1, LS_PROGRAM_STEP);
  assert_int_equal(ls_program_save(made, path, &error), LS_OK);
  ls_program *loaded;
  assert_int_equal(ls_program_load(arena, path, &loaded, &error), LS_OK);
  assert_string_equal(ls_program_text(arena, loaded), ls_program_text(arena, made));
  unlink(path);
  ls_arena_destroy(&arena);
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
  refuse("\"lockstep_program\":7", "\"lockstep_program\":9", "saved form 9");
  refuse("\"tokens\":48", "\"tokens\":-1", "head");
  refuse("\"rmsnorm\"", "\"rmsnorn\"", "instruction");
  refuse("\"fp32\"", "\"fp31\"", "head");
  refuse("\"mesh\":[1,2", "\"mesh\":[0,2", "mesh");
  refuse("\"values\"", "\"walues\"", "values");
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

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_round_trip), cmocka_unit_test(test_file),
                                     cmocka_unit_test(test_damage_is_named),
                                     cmocka_unit_test(test_changed_digits_never_crash)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
