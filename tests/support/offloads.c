#include "support/offloads.h"

#include "base/random.h"
#include "support/layouts.h"
#include "support/shapes.h"

static const char *const schedules[] = {"1f1b", "zbv", "gpipe", "zbh1"};
static const ls_dtype types[] = {LS_F64, LS_F32, LS_BF16, LS_F16};

static int choose(int sample, int option, int choices) {
  return (int)(ls_random_bits(20261121, (uint64_t)sample, (uint64_t)option) % (uint64_t)choices);
}

int ls_test_offload_shape(int sample) {
  return choose(sample, 30, LS_TEST_SHAPES);
}

ls_layout ls_test_offload_layout(int sample) {
  ls_layout layout = ls_test_layout_default();
  const int type = choose(sample, 0, 4);
  layout.compute = types[type];
  layout.zero = choose(sample, 1, LS_DATA_STRATEGY_COUNT);
  layout.dp_shard = 1 + choose(sample, 2, 3);
  layout.dp_replicate = choose(sample, 3, 4) == 0 ? 2 : 1;
  layout.tp = choose(sample, 4, 2) ? (ls_test_offload_shape(sample) == 0 ? 2 : 3) : 1;
  layout.sequence_parallel = layout.tp > 1 && choose(sample, 5, 2);
  layout.pp = 1 + choose(sample, 6, 2);
  layout.schedule = schedules[choose(sample, 7, 4)];
  layout.microbatches = (int[]){1, 2, 4}[choose(sample, 8, 3)];
  if (choose(sample, 9, 3) == 0) layout.recompute = (ls_op_set)LS_EVERY_OP;
  layout.gather = (ls_when)choose(sample, 10, 3);
  layout.reduce = (ls_when)choose(sample, 11, 3);
  layout.prefetch = choose(sample, 14, 3);
  layout.optimizer.kind = choose(sample, 12, 4) ? LS_OPTIMIZER_ADAMW : LS_OPTIMIZER_SGD;
  layout.grad_dtype = type && choose(sample, 13, 3) == 0 ? LS_BF16 : LS_F32;
  return layout;
}

ls_offload ls_test_offload(int sample) {
  return (ls_offload){.optimizer = (ls_tier)choose(sample, 20, 3),
                      .optimizer_fraction = choose(sample, 21, 3) ? 1 : 0.5,
                      .parameters = (ls_tier)choose(sample, 22, 3),
                      .activations = (ls_tier)choose(sample, 23, 3)};
}
