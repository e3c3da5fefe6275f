/* Random models and layouts, of sizes that people use: what shrinking and verifying are tried on.
 */
#ifndef LS_TESTS_RANDOM_RUN_H
#define LS_TESTS_RANDOM_RUN_H

#include "model/model.h"
#include "shard/strategy.h"

typedef struct ls_test_run {
  ls_model_config config;
  ls_layout layout;
  int64_t batch, sequence;
} ls_test_run;

/* Run `number` of a seed; some are illegal. In the arena. */
ls_test_run ls_test_random_run(ls_arena *arena, uint64_t seed, uint64_t number);

/* Its numbers in one line, in the arena. */
const char *ls_test_run_print(ls_arena *arena, const ls_test_run *run);

#endif
