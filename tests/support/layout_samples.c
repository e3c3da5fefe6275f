#include "support/layout_samples.h"

#include <stdlib.h>

void ls_test_sample_add(ls_test_sample *sample, const ls_model_config *config,
                        const ls_layout *layout, const ls_pairs_case *options) {
  const bool legal = ls_test_is_legal(config, layout, LS_TEST_SEQUENCES, LS_TEST_SEQUENCE);
  sample->legal += legal;
  sample->refused += !legal;
  *LS_APPEND(sample->arena, &sample->items) =
      (ls_test_sampled){*layout, *options, legal, .runs = !legal || ls_test_all_layouts()};
}

void ls_test_sample_meshes(ls_test_sample *sample, const ls_test_shape *shapes, int count) {
  enum { FACTORS = 9, MESH = FACTORS - 1 };
  const ls_test_layouts all = ls_test_layouts_all(sample->arena);
  for (int shape = 0; shape < count; shape++) {
    const ls_model_config config = ls_test_shape_config(sample->arena, &shapes[shape]);
    for (int l = 0, mesh = 0; l < all.count; l++) {
      const ls_layout *of = &all.items[l], *before = l > 0 ? of - 1 : of;
      mesh += of->dp_replicate != before->dp_replicate || of->dp_shard != before->dp_shard ||
              of->tp != before->tp;
      const ls_pairs_case options = {{shape, of->dp_replicate, of->dp_shard, of->tp, of->zero,
                                      of->sequence_parallel, of->microbatches, of->prefetch, mesh}};
      ls_test_sample_add(sample, &config, of, &options);
    }
  }
  ls_test_sample_choose(sample, FACTORS, MESH);
}

void ls_test_sample_choose(ls_test_sample *sample, int factors, int once) {
  ls_pairs_case *cases = LS_NEW_ARRAY(sample->arena, ls_pairs_case, sample->legal);
  ls_test_sampled **of = LS_NEW_ARRAY(sample->arena, ls_test_sampled *, sample->legal);
  bool *chosen = LS_NEW_ARRAY(sample->arena, bool, sample->legal);
  int count = 0;
  for (int i = 0; i < sample->items.count; i++) {
    if (!sample->items.items[i].legal) continue;
    of[count] = &sample->items.items[i];
    cases[count] = of[count]->options;
    count++;
  }
  sample->pairs = ls_pairs_choose(cases, count, factors, once, chosen);
  for (int c = 0; c < count; c++) {
    sample->chosen += chosen[c];
    of[c]->chosen = chosen[c];
    of[c]->runs |= chosen[c];
  }
}

void ls_test_sample_run(const ls_test_sample *sample, int shape, const ls_experiment *experiment,
                        const char *name, ls_test_tally *tally) {
  ls_arena *arena = ls_arena_create();
  ls_trajectory reference;
  ls_test_one_device(arena, experiment, name, &reference);
  for (int i = 0; i < sample->items.count; i++) {
    const ls_test_sampled *each = &sample->items.items[i];
    if (each->options.option[0] == shape && each->runs)
      ls_test_tally_layout(tally, experiment, &reference, &each->layout,
                           ls_test_layout_print(arena, &each->layout, name));
  }
  ls_arena_destroy(&arena);
}

void ls_test_sample_expect(const ls_test_sample *sample, const ls_test_tally *tally,
                           const ls_test_count *counts) {
  const int runs = ls_test_all_layouts() ? sample->legal : sample->chosen;
  print_message("%d of %d legal layouts run for %d pairs, %d refused, %d failed, worst %.3g\n",
                tally->run, sample->legal, sample->pairs, tally->refused, tally->failed,
                tally->worst);
  assert_int_equal(tally->failed, 0);
  if (getenv("LS_CASE")) return;
  ls_test_expect_counts(counts, 4);
  assert_int_equal(tally->run, runs);
  assert_int_equal(tally->refused, sample->refused);
}
