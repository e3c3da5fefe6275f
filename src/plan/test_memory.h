/* What the quick and the slow test of memory estimates share: random layouts, estimated and
 * compiled. */
#ifndef LS_PLAN_TEST_MEMORY_H
#define LS_PLAN_TEST_MEMORY_H

#include "base/random.h"
#include "plan/memory.h"
#include "plan/test_plan.h"

/* How estimates compare with what was compiled. */
typedef struct tally {
  int layouts, below, above; /* above: by more than 5 % */
  double least, most;        /* ratios */
} tally;

static const struct {
  const char *model, *on; /* model NULL: a mixture */
  int64_t batch, sequence;
} memory_tasks[] = {{"llama-3m", "16xRTX4090:8", 32, 512},
                    {"gpt2-124m", "16xH100-SXM:4", 16, 512},
                    {"llama-60m", "12xA100-SXM-80:4", 48, 1024},
                    {"smollm2-135m", "6xRTX3090:6", 96, 2048},
                    {"tinyllama-1.1b", "24xA100-SXM-80:8", 48, 2048},
                    {"llama2-7b", "40xA100-SXM-80:8", 80, 2048},
                    {"llama3-8b", "64xH100-SXM:8", 128, 4096},
                    {"llama3-8b", "1024xH100-SXM:8", 1024, 8192},
                    {NULL, "16xH100-SXM:8", 16, 4096}};
enum { MEMORY_TASKS = sizeof memory_tasks / sizeof *memory_tasks };

/* A candidate with what the search does not vary drawn too. */
static inline ls_layout draw_layout(const ls_plan_candidates *all, uint64_t seed, uint64_t index) {
  const uint64_t bits = ls_random_bits(seed, 1, index);
  ls_layout layout =
      all->list.items[ls_random_bits(seed, 0, index) % (uint64_t)all->list.count].layout;
  layout.prefetch = (int)(bits % 3);
  layout.gather = (ls_when)(bits / 3 % 3);
  layout.reduce = (ls_when)(bits / 9 % 3);
  if (bits / 27 % 4 == 0) layout.offload.optimizer = LS_TIER_HOST;
  layout.offload.optimizer_fraction = 1;
  if (bits / 108 % 4 == 0) layout.sequence_parallel = false;
  return layout;
}

static inline void compare_memory(const ls_plan_task *posed, ls_plan_memory *memory,
                                  const ls_layout *layout, tally *sum) {
  ls_plan_row row;
  if (ls_plan_measure(&posed->problem, layout, NULL, &row, NULL) != LS_OK) return;
  const int64_t bytes = ls_plan_memory_of(memory, layout);
  const double ratio = (double)bytes / (double)row.bytes;
  ls_arena *arena = ls_arena_create();
  if (ratio < 1 || ratio > 1.1)
    print_message("%s: %.4f of %lld bytes\n", ls_plan_print(arena, &row), ratio,
                  (long long)row.bytes);
  ls_arena_destroy(&arena);
  sum->below += ratio < 1;
  sum->above += ratio > 1.05;
  if (!sum->layouts++ || ratio < sum->least) sum->least = ratio;
  if (ratio > sum->most) sum->most = ratio;
}

static inline void pose_task(ls_arena *arena, int task, ls_plan_task *posed) {
  const int64_t batch = memory_tasks[task].batch, sequence = memory_tasks[task].sequence;
  if (memory_tasks[task].model)
    pose(arena, memory_tasks[task].model, batch, memory_tasks[task].on, posed);
  else
    pose_mixture(arena, batch, sequence, memory_tasks[task].on, posed);
  if (!memory_tasks[task].model) posed->model.layers = 16;
  posed->training.sequence = sequence;
}

/* So many layouts that compile of each task; the seed says which. */
static inline tally compare_memories(uint64_t seed, int of_each) {
  tally sum = {0};
  print_message("seed %llu\n", (unsigned long long)seed);
  for (int t = 0; t < MEMORY_TASKS; t++) {
    ls_arena *arena = ls_arena_create();
    ls_plan_task posed;
    ls_plan_memory *memory;
    ls_error error = {0};
    pose_task(arena, t, &posed);
    if (ls_plan_memory_make(arena, &posed.problem, &memory, &error) != LS_OK)
      fail_msg("%s", error.text);
    ls_plan_candidates all = {.arena = arena};
    ls_plan_enumerate(&posed.problem, &all);
    tally each = {0};
    for (uint64_t index = 0; each.layouts < of_each && index < 10u * (uint64_t)of_each; index++) {
      const ls_layout layout = draw_layout(&all, seed + (uint64_t)t, index);
      compare_memory(&posed, memory, &layout, &each);
    }
    print_message("%s on %s: %d layouts, %d below, %d more than 5 %% above, %.4f to %.4f\n",
                  memory_tasks[t].model ? memory_tasks[t].model : "a mixture", memory_tasks[t].on,
                  each.layouts, each.below, each.above, each.least, each.most);
    sum.layouts += each.layouts;
    sum.below += each.below;
    sum.above += each.above;
    ls_arena_destroy(&arena);
  }
  return sum;
}

#endif
