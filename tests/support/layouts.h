/* The layouts of the equality tests: every distinct program of small meshes, and their names. */
#ifndef LS_TESTS_LAYOUTS_H
#define LS_TESTS_LAYOUTS_H

#include "model/model.h"
#include "shard/strategy.h"
#include "support/shapes.h"

/* Sequences of a step that every data axis and count of microbatches below divides, but for
 * products like 3 x 3 x 16 that the matrix counts as refused; T. */
enum { LS_TEST_SEQUENCES = 48, LS_TEST_SEQUENCE = 4 };

typedef struct ls_test_layouts {
  ls_layout *items;
  int count, capacity;
} ls_test_layouts;

/* The default layout, but that AdamW's epsilon is 1e-6. Biases of keys have no gradient but what is
 * rounded; the first update amplifies that by rate / epsilon, with 1e-8 to 1e-10 of a bias. */
ls_layout ls_test_layout_default(void);

/* {factorisations of 1, 2, 3, 4, 5, 6, 8, 12, 16 ranks} x {data strategies but 0} x {sequence
 * parallel on, off} x {1, 3 microbatches}, without those that compile to the program of another; in
 * fp64 with that optimizer. Not every one is legal for every model. */
ls_test_layouts ls_test_layouts_all(ls_arena *arena);

/* Of them one in `each`, from `first` on. */
ls_test_layouts ls_test_layouts_some(ls_arena *arena, int first, int each);

/* Two stages by one of four schedules with what goes by `which`: ZeRO, tensor and sequence
 * parallelism, recomputation of all of a layer or of what is cheap. In fp64. */
ls_layout ls_test_pipeline_layout(int which);

/* Whether LS_LAYOUTS=all asks for every layout, in place of a sample. */
bool ls_test_all_layouts(void);

/* "MODEL, pp 2 (zbv), dp_replicate 1, dp_shard 4, tp 2, zero-3, sp, microbatches=4, prefetch=1",
 * in the arena. */
const char *ls_test_layout_print(ls_arena *arena, const ls_layout *layout, const char *model);

/* The configuration of a shape. Ends the test program where it is wrong. */
ls_model_config ls_test_shape_config(ls_arena *arena, const ls_test_shape *shape);

/* The model of a step of so many sequences under the layout, without its backward part. Ends the
 * test program where it cannot be. */
ls_graph *ls_test_model(ls_arena *arena, const ls_model_config *config, const ls_layout *layout,
                        int64_t sequences, int64_t sequence);

/* Whether the compiler allows mesh, schedule and microbatches; other choices may be refused. */
bool ls_test_is_legal(const ls_model_config *config, const ls_layout *layout, int64_t sequences,
                      int64_t sequence);

#endif
