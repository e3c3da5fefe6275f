/* Layouts that train beside one device: whether each is the same training, whether its programs are
 * proved, and how it went with all of them.
 *
 *   static const ls_layout rows[] = {{.dp_shard = 2, .zero = 3}, {PIPE(2, "zbh1"), .tp = 2, SP}};
 *   ls_test_tally tally = {0};
 *   ls_test_equal_layouts(&tally, &experiment, rows, 2, "llama");
 *   LS_TEST_EXPECT(&tally, RUN, REFUSED);
 *
 * LS_CASE=WORDS runs the layouts alone whose names have the
 * words. One thread. */
#ifndef LS_TESTS_EQUAL_LAYOUTS_H
#define LS_TESTS_EQUAL_LAYOUTS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "support/counts.h"
#include "verify/equality.h"

/* The layout in fp64, with the usual optimizer, and 1 where a size or a count is 0. `zero` is as it
 * is: 0 is ddp. */
ls_layout ls_test_layout_of(const ls_layout *row);

/* Words of rows. */
#define PIPE(stages, kind) .pp = (stages), .schedule = (kind)
#define SP .sequence_parallel = true
#define EVERY .recompute = LS_EVERY_OP, .recompute_layers = 1

/* What a step compiles to. */
typedef struct ls_test_step {
  ls_layout layout;
  ls_graph *graph;
  ls_program **stages; /* [layout.pp] */
} ls_test_step;

/* In the arena. Ends the test where the layout is refused. */
ls_test_step ls_test_compile(ls_arena *arena, const ls_experiment *experiment,
                             const ls_layout *layout);

ls_status ls_test_check(const ls_test_step *step, ls_error *error);

typedef struct ls_test_tally {
  bool to_the_bit;  /* no difference from the reference is rounding */
  double tolerance; /* 0: 1e-10 */
  int run, refused, failed;
  int64_t repeated; /* steps, for more slots of experts */
  double worst;     /* difference from the reference */
} ls_test_tally;

/* What one device comes to, in fp64 on the reference kernels, with nothing altered, saved or read
 * back. Ends the test where it cannot train. */
void ls_test_one_device(ls_arena *arena, const ls_experiment *experiment, const char *name,
                        ls_trajectory *reference);

/* Trains under the layout, and proves its programs of the step and of the evaluation. It failed,
 * and is printed, where that ends otherwise than by LS_INPUT or is further from the reference than
 * allowed. */
void ls_test_tally_layout(ls_test_tally *tally, const ls_experiment *experiment,
                          const ls_trajectory *reference, const ls_layout *layout,
                          const char *name);

/* The same beside the experiment's one device. */
void ls_test_equal_layout(ls_test_tally *tally, const ls_experiment *experiment,
                          const ls_layout *layout, const char *name);

/* The same for each of the rows, filled up. */
void ls_test_equal_layouts(ls_test_tally *tally, const ls_experiment *experiment,
                           const ls_layout *rows, int count, const char *name);

/* Tells of the tally, and ends the test where a layout failed or others than so many were run and
 * refused, all but where LS_CASE is set. */
#define LS_TEST_EXPECT(tally, run_constant, refused_constant)                             \
  ls_test_expect_tally(tally,                                                             \
                       (const ls_test_count[]){LS_TEST_COUNT((tally)->run, run_constant), \
                                               LS_TEST_COUNT((tally)->refused, refused_constant)})

void ls_test_expect_tally(const ls_test_tally *tally, const ls_test_count *counts);

#endif
