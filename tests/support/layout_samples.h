/* Layouts listed whole, of which the equality tests run a sample: every pair of options that any
 * legal layout has together occurs in one that runs, and all that are refused. LS_LAYOUTS=all runs
 * them all.
 *
 *   ls_test_sample sample = {.arena = arena};
 *   for (each shape and layout) ls_test_sample_add(&sample, &configs[shape], &layout, &options);
 *   ls_test_sample_choose(&sample, FACTORS, -1);
 *   for (each shape) ls_test_sample_run(&sample, shape, &experiment, name, &tally);
 *   LS_TEST_EXPECT_SAMPLE(&sample, &tally, LEGAL, REFUSED, SAMPLE, PAIRS);
 *
 * One thread. */
#ifndef LS_TESTS_LAYOUT_SAMPLES_H
#define LS_TESTS_LAYOUT_SAMPLES_H

#include "support/equal_layouts.h"
#include "support/layouts.h"
#include "support/pairs.h"

typedef struct ls_test_sampled {
  ls_layout layout;
  ls_pairs_case options;    /* factor 0: the shape */
  bool legal, chosen, runs; /* runs: or is refused, or all are run */
} ls_test_sampled;

typedef struct ls_test_sample {
  ls_arena *arena;
  LS_LIST(ls_test_sampled) items;
  int legal, refused, chosen; /* chosen: of the legal ones, also where all are run */
  int pairs;                  /* of options that are covered, with options that occur once */
} ls_test_sample;

/* A layout of the LS_TEST_SEQUENCES; whether it is legal is asked of the compiler's rules. */
void ls_test_sample_add(ls_test_sample *sample, const ls_model_config *config,
                        const ls_layout *layout, const ls_pairs_case *options);

/* All of ls_test_layouts_all for each of the shapes; factors are the model, the sizes of the mesh,
 * ZeRO, sequence parallelism, microbatches and prefetch, and every mesh occurs. Chosen, too. */
void ls_test_sample_meshes(ls_test_sample *sample, const ls_test_shape *shapes, int count);

/* What is run of all that were added; `once` is the factor of which every option occurs, in no
 * matter what pairs (-1: none). */
void ls_test_sample_choose(ls_test_sample *sample, int factors, int once);

/* Those of a shape that are run, beside one device. */
void ls_test_sample_run(const ls_test_sample *sample, int shape, const ls_experiment *experiment,
                        const char *name, ls_test_tally *tally);

/* Tells of the tally, and ends the test where a layout failed, where others were refused than the
 * rules say, or where legal, refused and chosen layouts and pairs are others than so many. */
#define LS_TEST_EXPECT_SAMPLE(sample, tally, of_legal, of_refused, of_chosen, of_pairs)       \
  ls_test_sample_expect(sample, tally,                                                        \
                        (const ls_test_count[]){LS_TEST_COUNT((sample)->legal, of_legal),     \
                                                LS_TEST_COUNT((sample)->refused, of_refused), \
                                                LS_TEST_COUNT((sample)->chosen, of_chosen),   \
                                                LS_TEST_COUNT((sample)->pairs, of_pairs)})

void ls_test_sample_expect(const ls_test_sample *sample, const ls_test_tally *tally,
                           const ls_test_count *counts);

#endif
