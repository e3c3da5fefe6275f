#include "plan/few.h"

#include <string.h>

#include "schedule/chunks.h"

/* For each stage so many microbatches fill and drain the pipeline and leave some periods between:
 * those that go on with few of them before their first is back, and the others. */
enum { ROUNDS = 6, SPLIT_ROUNDS = 7, ALONE = 8 };
/* Where no time has to settle fewer do, but in a loop, whose chunks hold more at once. */
enum { PROVED_ROUNDS = 4, LOOP_PROVED_ROUNDS = 8 };

static bool is_interleaved(const ls_layout *layout) {
  return layout->pp > 1 && layout->chunks != 1 && strcmp(layout->schedule, "interleaved") == 0;
}

/* Chunks of a loop take as many microbatches as there are stages one after the other. */
static int period_of(const ls_layout *layout) {
  return is_interleaved(layout) ? layout->pp : 1;
}

int ls_plan_few_at_least(const ls_layout *layout) {
  const ls_pipeline_kind *kind;
  if (layout->pp == 1) return ALONE;
  const bool whole = ls_pipeline_kind_find(layout->schedule, &kind, NULL) == LS_OK &&
                     kind->backward == LS_BACKWARD_WHOLE;
  return (whole ? ROUNDS : SPLIT_ROUNDS) * layout->pp;
}

int ls_plan_few_proved_at_least(const ls_layout *layout) {
  return (is_interleaved(layout) ? LOOP_PROVED_ROUNDS : PROVED_ROUNDS) * layout->pp;
}

static bool same_pass(const ls_pipeline_pass *a, const ls_pipeline_pass *b, int later) {
  return a->kind == b->kind && a->chunk == b->chunk && a->microbatch + later == b->microbatch;
}

/* Whether a list is another with `added` passes more, which are periods like that before them:
 * those of the other's beginning, then of each pass what is a period before it, then those of its
 * end. */
static bool continues(const ls_pipeline_list *few, const ls_pipeline_list *many,
                      const ls_sim_repeat *repeat) {
  const int added = many->count - few->count, count = added / repeat->times;
  int same = 0, end = few->count;
  while (same < few->count && same_pass(&few->items[same], &many->items[same], 0)) same++;
  while (end > 0 && same_pass(&few->items[end - 1], &many->items[end - 1 + added],
                              repeat->times * repeat->period))
    end--;
  if (added % repeat->times || end > same - 2 * count) return false;
  for (int i = end; i < same + added - count; i++)
    if (!same_pass(&many->items[i], &many->items[i + count], repeat->period)) return false;
  return true;
}

static bool all_continue(const ls_layout *few, const ls_layout *many, const ls_sim_repeat *repeat) {
  ls_arena *scratch = ls_arena_create();
  ls_pipeline *a, *b;
  bool all = ls_chunks_pipeline(scratch, few, &a, NULL) == LS_OK &&
             ls_chunks_pipeline(scratch, many, &b, NULL) == LS_OK;
  for (int s = 0; s < many->pp && all; s++) all = continues(&a->lists[s], &b->lists[s], repeat);
  ls_arena_destroy(&scratch);
  return all;
}

bool ls_plan_few_of(const ls_training *training, const ls_layout *layout, int at_least,
                    ls_plan_few *few) {
  const int all = layout->microbatches, period = period_of(layout);
  /* Where stages do not divide microbatches, longer rounds come first. */
  const int most = at_least + (is_interleaved(layout) ? all % layout->pp * layout->pp : 0);
  const int times = (all - most) / period, fewer = all - times * period;
  if (layout->csv || times < 1 || 2 * all < 3 * fewer) return false;
  *few = (ls_plan_few){*training, *layout, {period, times}};
  few->training.batch = training->batch / all * fewer;
  few->layout.microbatches = fewer;
  return all_continue(&few->layout, layout, &few->repeat);
}
