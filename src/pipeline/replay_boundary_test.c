/* The replay boundary of post-validation: what may come before it, and what it is for: how far
 * apart steps follow one another when every stage waits for the norm there, and not at the end of
 * its step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "pipeline/replay_boundary.h"

enum { STEPS = 6, MOST_STAGES = 16 };

static int place_of(const ls_pipeline *pipeline, int chunk, int microbatch) {
  const ls_pipeline_list *list = &pipeline->lists[pipeline->stage_of[chunk]];
  for (int i = 0; i < list->count; i++)
    if (list->items[i].kind == LS_PASS_FORWARD && list->items[i].chunk == chunk &&
        list->items[i].microbatch == microbatch)
      return i;
  fail_msg("no forward pass of chunk %d", chunk);
  return -1;
}

/* What a pass takes was made, and sent, before the boundary; only the last may send behind it. */
static void check_cut(const ls_pipeline *pipeline, const int *passes) {
  const int last = pipeline->stages * pipeline->chunks - 1;
  for (int s = 0; s < pipeline->stages; s++)
    for (int i = 0; i < passes[s]; i++) {
      const ls_pipeline_pass *pass = &pipeline->lists[s].items[i];
      assert_int_equal(pass->kind, LS_PASS_FORWARD);
      assert_true(pass->chunk != last);
      const int before = pipeline->stage_of[pass->chunk > 0 ? pass->chunk - 1 : 0];
      if (pass->chunk > 0 && before != s)
        assert_true(ls_replay_boundary_sends(
            pipeline, passes, before, place_of(pipeline, pass->chunk - 1, pass->microbatch)));
      const bool crosses = pipeline->stage_of[pass->chunk + 1] != s;
      if (crosses && !ls_replay_boundary_sends(pipeline, passes, s, i))
        assert_int_equal(i, passes[s] - 1);
    }
}

typedef struct walk {
  const ls_pipeline *pipeline;
  const int *passes; /* NULL: all wait for one another at the end of a step */
  int at[MOST_STAGES], step[MOST_STAGES];
  double free[MOST_STAGES]; /* when the stage is through with what it has done */
  double ended[STEPS + 1];  /* of a step: when its last stage was */
  int through[STEPS + 1];   /* stages that are */
  double *made;             /* [step][kind][chunk][microbatch]: when; -1: not yet */
} walk;

static double *made(const walk *w, int step, ls_pass_kind kind, int chunk, int microbatch) {
  const int chunks = w->pipeline->stages * w->pipeline->chunks;
  return &w->made[((step * 2 + (kind != LS_PASS_FORWARD)) * chunks + chunk) *
                      w->pipeline->microbatches +
                  microbatch];
}

/* When what the pass takes is there; -1: not yet. */
static double ready(const walk *w, int step, const ls_pipeline_pass *pass) {
  const int last = w->pipeline->stages * w->pipeline->chunks - 1;
  if (pass->kind == LS_PASS_WEIGHT) return 0;
  if (pass->kind == LS_PASS_FORWARD)
    return pass->chunk ? *made(w, step, LS_PASS_FORWARD, pass->chunk - 1, pass->microbatch) : 0;
  const ls_pass_kind from = pass->chunk == last ? LS_PASS_FORWARD : LS_PASS_INPUT;
  return *made(w, step, from, pass->chunk + (pass->chunk < last), pass->microbatch);
}

/* Whether the stage has to hear of the step before now; *until: when it has. */
static bool must_hear(const walk *w, int s, double *until) {
  const int step = w->step[s];
  *until = 0;
  if (step == 0 || w->at[s] != (w->passes ? w->passes[s] : 0)) return true;
  *until = w->ended[step];
  return w->through[step] == w->pipeline->stages;
}

static bool advance(walk *w, int s) {
  const ls_pipeline_list *list = &w->pipeline->lists[s];
  if (w->step[s] == STEPS) return false;
  const ls_pipeline_pass *pass = &list->items[w->at[s]];
  const double there = ready(w, w->step[s], pass);
  double until;
  if (there < 0 || !must_hear(w, s, &until)) return false;
  double start = w->free[s] > there ? w->free[s] : there;
  if (until > start) start = until;
  w->free[s] = start + (pass->kind == LS_PASS_BACKWARD ? 2 : 1);
  if (pass->kind != LS_PASS_WEIGHT)
    *made(w, w->step[s], pass->kind, pass->chunk, pass->microbatch) = w->free[s];
  if (++w->at[s] < list->count) return true;
  w->at[s] = 0;
  const int step = ++w->step[s];
  w->through[step]++;
  if (w->free[s] > w->ended[step]) w->ended[step] = w->free[s];
  return true;
}

/* How far apart the ends of steps are, once they follow one another evenly. */
static double period(const ls_pipeline *pipeline, const int *passes) {
  walk w = {.pipeline = pipeline, .passes = passes};
  const int cells = STEPS * 2 * pipeline->stages * pipeline->chunks * pipeline->microbatches;
  w.made = malloc((size_t)cells * sizeof *w.made);
  for (int i = 0; i < cells; i++) w.made[i] = -1;
  for (bool moved = true; moved;) {
    moved = false;
    for (int s = 0; s < pipeline->stages; s++)
      while (advance(&w, s)) moved = true;
  }
  free(w.made);
  assert_int_equal(w.through[STEPS], pipeline->stages);
  return w.ended[STEPS] - w.ended[STEPS - 1];
}

static void test_the_cut_is_one_that_nothing_crosses(void **state) {
  (void)state;
  int cuts = 0;
  for (int k = 0; k < ls_pipeline_kind_count; k++)
    for (int stages = 2; stages <= 6; stages++)
      for (int microbatches = 1; microbatches <= 16; microbatches++) {
        ls_arena *arena = ls_arena_create();
        ls_pipeline *pipeline;
        ls_error error = {0};
        if (ls_pipeline_make(arena, &ls_pipeline_kinds[k], stages, 0, microbatches, &pipeline,
                             &error) == LS_OK) {
          const int *passes = ls_replay_boundary_passes(arena, pipeline);
          check_cut(pipeline, passes);
          /* Waiting later is never worse, and never better than no waiting at all. */
          const double waits = period(pipeline, NULL), validates = period(pipeline, passes);
          assert_true(validates <= waits);
          assert_true(validates >= 3.0 * pipeline->chunks * microbatches);
          cuts++;
        }
        ls_arena_destroy(&arena);
      }
  print_message("%d schedules\n", cuts);
  assert_true(cuts > 300);
}

static double bubble(const char *name, int stages, int microbatches, bool validates) {
  ls_arena *arena = ls_arena_create();
  const ls_pipeline_kind *kind;
  ls_pipeline *pipeline;
  ls_error error = {0};
  assert_int_equal(ls_pipeline_kind_find(name, &kind, &error), LS_OK);
  assert_int_equal(ls_pipeline_make(arena, kind, stages, 0, microbatches, &pipeline, &error),
                   LS_OK);
  const double length =
      period(pipeline, validates ? ls_replay_boundary_passes(arena, pipeline) : NULL);
  const double work = 3.0 * pipeline->chunks * microbatches;
  ls_arena_destroy(&arena);
  return 1 - work / length;
}

/* F = I = W: what the papers' schedules lose to the barrier, (d - 1) / (3 m + d - 1) for zbh2, they
 * get back; 1F1B, whose first stage is busy from end to end, has nothing to get. */
static void test_steps_follow_without_the_barriers_bubble(void **state) {
  (void)state;
  static const char *const names[] = {"1f1b", "zbh1", "zbh2", "zbv"};
  for (int stages = 2; stages <= 16; stages *= 2)
    for (int n = 0; n < 4; n++) {
      const int m = 3 * stages;
      const double waits = bubble(names[n], stages, m, false);
      const double validates = bubble(names[n], stages, m, true);
      print_message("%-5s %2d stages, %2d microbatches: bubble %5.1f %%, validating %5.1f %%\n",
                    names[n], stages, m, 100 * waits, 100 * validates);
    }
  for (int stages = 2; stages <= 16; stages++) {
    const int m = 3 * stages;
    const double barrier = (stages - 1.0) / (3 * m + stages - 1);
    assert_true(bubble("zbh2", stages, m, false) > barrier - 1e-9);
    assert_true(bubble("zbh2", stages, m, true) < 1e-9);
    assert_true(bubble("1f1b", stages, m, true) > bubble("1f1b", stages, m, false) - 1e-9);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_the_cut_is_one_that_nothing_crosses),
      cmocka_unit_test(test_steps_follow_without_the_barriers_bubble)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
