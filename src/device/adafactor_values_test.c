#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "device/kernel.h"

/* Adafactor against numbers of transformers.Adafactor (5.23.0) in double: a matrix of 2 x 3 and a
 * vector of 2, three steps with weight decay 0.2, without relative steps. */

enum { ROWS = 2, COLUMNS = 3, ELEMENTS = ROWS * COLUMNS, LINES = ROWS + COLUMNS, STEPS = 3 };

static const double of_matrix[STEPS][ELEMENTS] = {{0.5, -1.5, 0.25, 0.4, 2.0, -0.75},
                                                  {-0.3, 0.1, 0.5, 1.0, -0.2, 0.125},
                                                  {0.6, -0.4, -0.25, 0.0, 0.3, -0.05}};
static const double of_vector[STEPS][2] = {{0.5, -1.5}, {0.4, 2.0}, {-0.3, 0.0}};

static const double lines_expected[] = {0.33241329109861717, 0.52279535594438253,
                                        0.30880938125673552, 0.83812063537679393,
                                        0.1358829539309703};
static const double squares_expected[] = {0.15333412679555133, 1.9034468739217347};

/* By optimizer.scale_parameter. */
static const double matrix_expected[2][ELEMENTS] = {
    {0.50799477725669107, -1.548831173424728, 0.37218211619207564, -0.10561760070148399,
     -0.26095258074053534, 2.7516270176582385},
    {0.30294679916842704, -1.3536842705973717, 0.30074587525546903, -0.27052496275668492,
     -0.32019583704650728, 2.6450853336163691}};
static const double vector_expected[2][2] = {{0.85656839716617716, -0.11641846013299617},
                                             {0.87682317204227789, -0.071407202288961691}};

static ls_view numbers(double *data, int64_t rows, int64_t columns) {
  return (ls_view){.data = data,
                   .dtype = LS_F64,
                   .ndim = 1,
                   .dims = {rows * columns, columns},
                   .valid = {rows * columns, columns}};
}

static void call(ls_op_kind kind, const ls_attributes *attributes, int inputs, const ls_view *in,
                 int outputs, const ls_view *out) {
  ls_kernel_table table;
  ls_kernel_args args = {.attributes = attributes, .inputs = inputs, .outputs = outputs};
  ls_error error = {0};
  for (int i = 0; i < inputs; i++) args.in[i] = in[i];
  for (int o = 0; o < outputs; o++) args.out[o] = out[o];
  ls_reference_kernels(&table, LS_F64);
  assert_int_equal(table.kernel[kind](&args, &error), LS_OK);
}

static void expect_equal(const double *found, const double *expected, int count) {
  for (int i = 0; i < count; i++)
    if (!(fabs(found[i] - expected[i]) <= 1e-14))
      fail_msg("number %d is %.17g, expected %.17g", i, found[i], expected[i]);
}

/* A step of what the optimizer has, in the order of its nodes. */
typedef struct state {
  ls_attributes attributes;
  double step, rate, factor, master[ELEMENTS], lines[LINES], squares[ELEMENTS];
} state;

static void take_step(state *of, const double *gradients, int64_t rows, int64_t columns,
                      bool factored) {
  double gradient[ELEMENTS], made[ELEMENTS], sums[LINES], square, weights;
  const ls_view g = numbers(gradient, rows, columns), e = numbers(made, rows, columns);
  const ls_view master = numbers(of->master, rows, columns), step = numbers(&of->step, 1, 1);
  const ls_view rate = numbers(&of->rate, 1, 1), factor = numbers(&of->factor, 1, 1);
  const ls_view sum = numbers(sums, LINES, 1), lines = numbers(of->lines, LINES, 1);
  const ls_view squares = numbers(of->squares, rows, columns);
  const ls_view cells[] = {numbers(&square, 1, 1), numbers(&weights, 1, 1)};
  const ls_attributes *by = &of->attributes;
  for (int64_t i = 0; i < rows * columns; i++) gradient[i] = 2 * gradients[i];
  of->attributes.columns = columns;
  of->attributes.weight = 1.0 / (double)(rows * columns);
  if (factored) {
    call(LS_OP_ADAFACTOR_SUMS, by, 2, (ls_view[]){g, factor}, 1, &sum);
    call(LS_OP_ADAFACTOR_KEEP, by, 3, (ls_view[]){sum, step, factor}, 1, &lines);
    call(LS_OP_ADAFACTOR_DIRECTION, by, 4, (ls_view[]){g, factor, lines, master}, 3,
         (ls_view[]){e, cells[0], cells[1]});
  } else {
    call(LS_OP_ADAFACTOR_SECOND, by, 3, (ls_view[]){g, step, factor}, 1, &squares);
    call(LS_OP_ADAFACTOR_DIVIDE, by, 4, (ls_view[]){g, factor, squares, master}, 3,
         (ls_view[]){e, cells[0], cells[1]});
  }
  call(LS_OP_ADAFACTOR, by, 5, (ls_view[]){e, cells[0], cells[1], rate, factor}, 1, &master);
}

static void adafactor_steps_as_transformers(void **unused) {
  (void)unused;
  for (int scaled = 0; scaled < 2; scaled++) {
    const ls_attributes settings = {.weight_decay = 0.2, .rate = 0.25, .scale = scaled};
    state matrix = {.attributes = settings, .master = {1, -2, 0.5, 0.25, -0.125, 3}};
    state vector = {.attributes = settings, .master = {1.0, -1e-4}};
    for (int s = 0; s <= STEPS; s++) {
      const int given = s < STEPS ? s : 0;
      matrix.step = vector.step = s + 1;
      matrix.rate = vector.rate = 0.4 * (s + 1);
      matrix.factor = vector.factor = s < STEPS ? 0.5 : 0; /* at last nothing is changed */
      take_step(&matrix, of_matrix[given], ROWS, COLUMNS, true);
      take_step(&vector, of_vector[given], 2, 1, false);
      if (s < STEPS - 1) continue;
      expect_equal(matrix.master, matrix_expected[scaled], ELEMENTS);
      expect_equal(matrix.lines, lines_expected, LINES);
      expect_equal(vector.master, vector_expected[scaled], 2);
      expect_equal(vector.squares, squares_expected, 2);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(adafactor_steps_as_transformers)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
