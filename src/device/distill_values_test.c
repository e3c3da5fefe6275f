#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/arena.h"
#include "device/kernel.h"
#include "graph/op.h"
#include "text/json.h"

/* Distillation of a teacher's likeliest ids against numbers of PyTorch (tools/reference/
 * make_top_logits.py), whole and with the vocabulary cut; and with all ids against distillation of
 * the teacher's logits. */

typedef struct given {
  ls_arena *arena;
  int64_t tokens, vocabulary, top;
  double inverse, share, loss, cross_entropy, divergence;
  double *student, *teacher, *below, *gradient;
  int32_t *ids, *labels;
} given;

/* What the kernels make of it. */
typedef struct made {
  double *sums, cells[3], *gradient;
} made;

static double *reals_of(ls_arena *arena, const json_t *rows, int64_t *columns) {
  const size_t count = json_array_size(rows);
  *columns = (int64_t)json_array_size(json_array_get(rows, 0));
  double *values = LS_NEW_ARRAY(arena, double, (int64_t)count **columns);
  for (size_t r = 0; r < count; r++)
    for (int64_t c = 0; c < *columns; c++)
      values[(int64_t)r * *columns + c] =
          json_number_value(json_array_get(json_array_get(rows, r), (size_t)c));
  return values;
}

static double number(const json_t *from, const char *key) {
  return json_number_value(json_object_get(from, key));
}

static given read_case(ls_arena *arena, const json_t *from) {
  given g = {.arena = arena,
             .inverse = 1 / number(from, "temperature"),
             .share = number(from, "mix"),
             .loss = number(from, "loss"),
             .cross_entropy = number(from, "cross_entropy"),
             .divergence = number(from, "divergence")};
  const json_t *labels = json_object_get(from, "labels");
  g.tokens = (int64_t)json_array_size(labels);
  g.student = reals_of(arena, json_object_get(from, "student"), &g.vocabulary);
  g.teacher = reals_of(arena, json_object_get(from, "teacher"), &g.vocabulary);
  g.gradient = reals_of(arena, json_object_get(from, "gradient"), &g.vocabulary);
  const double *ids = reals_of(arena, json_object_get(from, "ids"), &g.top);
  g.below = reals_of(arena, json_object_get(from, "log_probs"), &g.top);
  g.ids = LS_NEW_ARRAY(arena, int32_t, g.tokens * g.top);
  g.labels = LS_NEW_ARRAY(arena, int32_t, g.tokens);
  for (int64_t i = 0; i < g.tokens * g.top; i++) g.ids[i] = (int32_t)ids[i];
  for (int64_t n = 0; n < g.tokens; n++) {
    double most = -INFINITY;
    for (int64_t j = 0; j < g.top; j++) most = fmax(most, g.below[n * g.top + j]);
    for (int64_t j = 0; j < g.top; j++) g.below[n * g.top + j] -= most;
    g.labels[n] = (int32_t)json_integer_value(json_array_get(labels, (size_t)n));
    if (g.labels[n] < 0) g.labels[n] = -1;
  }
  return g;
}

static ls_view matrix(void *data, ls_dtype dtype, int64_t rows, int64_t columns) {
  return (ls_view){data, dtype, 2, {rows, columns}, {rows, columns}, {0}};
}

static ls_view vector(void *data, ls_dtype dtype, int64_t rows) {
  return (ls_view){data, dtype, 1, {rows}, {rows}, {0}};
}

static void call(const given *g, ls_op_kind kind, int inputs, const ls_view *in, int outputs,
                 const ls_view *out, bool adds) {
  const ls_attributes attributes = {.softmax_scale = g->inverse, .scale = g->share};
  ls_kernel_args args = {.attributes = &attributes, .inputs = inputs, .outputs = outputs};
  for (int i = 0; i < inputs; i++) args.in[i] = in[i];
  for (int o = 0; o < outputs; o++) args.out[o] = out[o], args.accumulate[o] = adds;
  ls_kernel_table table;
  ls_reference_kernels(&table, LS_F64);
  ls_error error = {0};
  if (table.kernel[kind](&args, &error) != LS_OK) fail_msg("%s", error.text);
}

/* Of columns [begin, end), which is one rank's part of a student's or a teacher's logits. */
static ls_view slice(const given *g, const double *logits, int64_t begin, int64_t end) {
  double *own = LS_NEW_ARRAY(g->arena, double, g->tokens *(end - begin) + 1);
  for (int64_t n = 0; n < g->tokens; n++)
    for (int64_t v = begin; v < end; v++)
      own[n * (end - begin) + v - begin] = logits[n * g->vocabulary + v];
  ls_view view = matrix(own, LS_F64, g->tokens, end - begin);
  view.start[1] = begin;
  return view;
}

static ls_view max_of(const given *g, double *logits) {
  const ls_view max = vector(LS_NEW_ARRAY(g->arena, double, g->tokens), LS_F64, g->tokens);
  call(g, LS_OP_XENT_MAX, 1, (ls_view[]){matrix(logits, LS_F64, g->tokens, g->vocabulary)}, 1, &max,
       false);
  return max;
}

/* With the vocabulary cut at `cut`; `whole`: of the teacher's logits. */
static made run(given *g, int64_t cut, bool whole) {
  const int64_t ends[] = {0, cut, g->vocabulary};
  const ls_view max = max_of(g, g->student), labels = vector(g->labels, LS_I32, g->tokens);
  const ls_view its_max = max_of(g, g->teacher);
  const ls_view ids = matrix(g->ids, LS_I32, g->tokens, g->top);
  const ls_view below = matrix(g->below, LS_F64, g->tokens, g->top);
  int counted = 0;
  for (int64_t n = 0; n < g->tokens; n++) counted += g->labels[n] >= 0;
  double scale = 1.0 / counted;
  made m = {LS_NEW_ARRAY(g->arena, double, g->tokens *LS_DISTILL_SUMS),
            {0},
            LS_NEW_ARRAY(g->arena, double, g->tokens * g->vocabulary)};
  const ls_view sums = matrix(m.sums, LS_F64, g->tokens, LS_DISTILL_SUMS);
  for (int part = cut == 0; part < 2; part++) {
    const ls_view own = slice(g, g->student, ends[part], ends[part + 1]);
    const ls_view its = whole ? slice(g, g->teacher, ends[part], ends[part + 1]) : ids;
    call(g, whole ? LS_OP_DISTILL_SUM : LS_OP_DISTILL_TOP_SUM, 5,
         (ls_view[]){own, max, its, whole ? its_max : below, labels}, 1, &sums, true);
  }
  call(g, LS_OP_DISTILL_LOSS, 3, (ls_view[]){max, sums, labels}, 3,
       (ls_view[]){vector(&m.cells[0], LS_F64, 1), vector(&m.cells[1], LS_F64, 1),
                   vector(&m.cells[2], LS_F64, 1)},
       false);
  for (int c = 0; c < 3; c++) m.cells[c] /= counted;
  for (int part = cut == 0; part < 2; part++) {
    const int64_t begin = ends[part], columns = ends[part + 1] - begin;
    const ls_view own = slice(g, g->student, begin, begin + columns);
    const ls_view its = whole ? slice(g, g->teacher, begin, begin + columns) : ids;
    ls_view out = slice(g, g->student, begin, begin + columns);
    call(g, whole ? LS_OP_DISTILL_GRAD : LS_OP_DISTILL_TOP_GRAD, 7,
         (ls_view[]){own, max, its, whole ? its_max : below, sums, labels,
                     vector(&scale, LS_F64, 1)},
         1, &out, false);
    for (int64_t i = 0; i < g->tokens * columns; i++)
      m.gradient[i / columns * g->vocabulary + begin + i % columns] = ((double *)out.data)[i];
  }
  return m;
}

static void expect_near(double found, double expected) {
  if (!(fabs(found - expected) <= 1e-13 * (1 + fabs(expected))))
    fail_msg("%.17g, expected %.17g", found, expected);
}

static void it_is_pytorchs(void **state) {
  (void)state;
  ls_error error = {0};
  json_t *root;
  if (ls_json_read("tests/data/top_logits.json", 0, &root, &error) != LS_OK)
    fail_msg("%s", error.text);
  const json_t *cases = json_object_get(root, "cases");
  assert_int_equal(json_array_size(cases), 3);
  for (size_t c = 0; c < json_array_size(cases); c++) {
    ls_arena *arena = ls_arena_create();
    given g = read_case(arena, json_array_get(cases, c));
    for (int64_t cut = 0; cut < g.vocabulary; cut += 3) {
      const made m = run(&g, cut, false);
      expect_near(m.cells[0], g.loss);
      expect_near(m.cells[1], g.cross_entropy);
      expect_near(m.cells[2], g.divergence);
      for (int64_t i = 0; i < g.tokens * g.vocabulary; i++)
        expect_near(m.gradient[i], g.gradient[i]);
    }
    ls_arena_destroy(&arena);
  }
  json_decref(root);
}

/* The last case tells of the whole vocabulary. */
static void of_all_ids_it_is_that_of_the_logits(void **state) {
  (void)state;
  ls_error error = {0};
  json_t *root;
  if (ls_json_read("tests/data/top_logits.json", 0, &root, &error) != LS_OK)
    fail_msg("%s", error.text);
  ls_arena *arena = ls_arena_create();
  given g = read_case(arena, json_array_get(json_object_get(root, "cases"), 2));
  assert_int_equal(g.top, g.vocabulary);
  const made told = run(&g, 0, false), whole = run(&g, 0, true);
  for (int c = 0; c < 3; c++) expect_near(told.cells[c], whole.cells[c]);
  for (int64_t i = 0; i < g.tokens * g.vocabulary; i++)
    expect_near(told.gradient[i], whole.gradient[i]);
  ls_arena_destroy(&arena);
  json_decref(root);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(it_is_pytorchs),
      cmocka_unit_test(of_all_ids_it_is_that_of_the_logits),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
