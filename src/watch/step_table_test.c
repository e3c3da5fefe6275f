/* Where a step's time goes: rows add up to the step, calls and flops to the program; waiting is
 * told apart. How long anything takes is not looked at. */
#include "watch/step_table.h"
#include "cost/cost.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "session/repeat.h"
#include "support/small_session.h"

static void tell(void *context, int done, int count) {
  int *calls = context;
  assert_int_equal(done, (*calls)++);
  assert_int_equal(count, LS_RECORDING_WARM_STEPS + 3);
}

static const ls_repeated *repeat(const ls_session *session) {
  ls_world *world;
  ls_error error = {0};
  const ls_repeated *repeated = NULL;
  int calls = 0;
  const ls_repeat_options options = {.steps = 3, .progress = tell, .context = &calls};
  assert_int_equal(ls_world_create_threads(session->devices, &world, &error), LS_OK);
  if (ls_repeat_steps(arena, session, world, &options, &repeated, &error) != LS_OK)
    fail_msg("%s", error.text);
  ls_world_destroy(&world);
  assert_int_equal(calls, LS_RECORDING_WARM_STEPS + 3 + 1);
  assert_int_equal(repeated->count, 3);
  int below = 0;
  for (int i = 0; i < 3; i++) below += repeated->seconds[i] < repeated->seconds[repeated->median];
  assert_in_range(below, 0, 1);
  return repeated;
}

static const ls_step_row *row_of(const ls_step_table *table, ls_step_part part, const char *name) {
  for (int i = 0; i < table->rows.count; i++) {
    const ls_step_row *row = &table->rows.items[i];
    if (row->part == part && strcmp(row->name, name) == 0) return row;
  }
  return NULL;
}

/* Executions of an op on all ranks in one step, run again for the backward pass or not. */
static int64_t executions(const ls_session *session, ls_op_kind kind, bool again) {
  int64_t count = 0;
  const ls_program *const *stages = session->stages[LS_SESSION_STEP];
  for (int r = 0; r < session->devices; r++) {
    const ls_program *program = stages[ls_mesh_stage(&stages[0]->mesh, r)];
    for (int a = 0; a < program->actions.count; a++) {
      const ls_program_action *action = &program->actions.items[a];
      const ls_body *body = &program->bodies.items[action->body];
      for (int i = body->first; i < body->first + body->count; i++) {
        const ls_instruction *each = &program->instructions.items[i];
        count += each->collective == LS_COLLECTIVE_NONE && each->kind == kind &&
                 (action->action.kind == LS_ACTION_RECOMPUTE) == again;
      }
    }
  }
  return count;
}

static void check_calls(const ls_session *session, const ls_step_table *table) {
  for (int k = 0; k < LS_OP_COUNT; k++)
    for (int again = 0; again < 2; again++) {
      const ls_step_row *row =
          row_of(table, again ? LS_STEP_AGAIN : LS_STEP_OP, ls_op_name((ls_op_kind)k));
      const double calls = row ? row->calls * table->ranks : 0;
      assert_true(fabs(calls - (double)executions(session, (ls_op_kind)k, again)) < 1e-6);
    }
}

/* Everything but what goes on beside the step. */
static void check_sums(const ls_session *session, const ls_step_table *table) {
  const ls_program *program = session->programs[LS_SESSION_STEP];
  double seconds = 0, flops = 0, floor_s = 0;
  for (int i = 0; i < table->rows.count; i++) {
    const ls_step_row *row = &table->rows.items[i];
    assert_true(row->seconds >= 0 || row->part == LS_STEP_REST);
    if (row->part == LS_STEP_BESIDE) continue;
    seconds += row->seconds;
    flops += row->flops * table->ranks;
    floor_s += row->floor_s;
  }
  assert_true(fabs(seconds - table->seconds) < 1e-9 * table->seconds + 1e-12);
  assert_true(fabs(floor_s - table->floor_s) < 1e-9 * floor_s);
  const double expected = program->flops + program->recomputed_flops;
  assert_true(fabs(flops - expected) < 1e-9 * expected);
}

static const ls_step_limits limits = {.flops_per_s = 1e9, .bytes_per_s = 1e8};

static const struct {
  int devices, key_count;
  const char *keys[5];
} cases[] = {
    {1, 1, {"recompute=full"}},
    {2, 3, {"mesh.dp_shard=2", "zero=3", "train.microbatches=2"}},
    {4, 3, {"mesh.pp=2", "mesh.tp=2", "train.microbatches=2"}},
    {1, 1, {"offload.optimizer=host"}},
    {2, 4, {"mesh.pp=2", "schedule=zbv", "train.microbatches=4", "post_validation=true"}},
};

static void rows_add_up_to_the_step(void **state) {
  (void)state;
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    const ls_session *session = open_session(cases[c].devices, cases[c].keys, cases[c].key_count);
    const ls_repeated *repeated = repeat(session);
    const ls_recording *recording = repeated->recordings[repeated->median];
    for (int by_shape = 0; by_shape < 2; by_shape++) {
      const ls_step_table *table = ls_step_table_measured(arena, session->stages[LS_SESSION_STEP],
                                                          recording, &limits, by_shape);
      assert_true(fabs(table->seconds - repeated->seconds[repeated->median]) < 1e-12);
      check_sums(session, table);
      if (!by_shape && !session->layout.post_validation) check_calls(session, table);
      if (by_shape) assert_null(row_of(table, LS_STEP_OP, "linear"));
    }
  }
}

/* Of even layouts every rank of a stage has the same work as its first. */
static void what_is_planned_is_what_runs(void **state) {
  (void)state;
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    const ls_session *session = open_session(cases[c].devices, cases[c].keys, cases[c].key_count);
    const ls_repeated *repeated = repeat(session);
    const ls_program *const *stages = session->stages[LS_SESSION_STEP];
    const ls_step_table *ran = ls_step_table_measured(
        arena, stages, repeated->recordings[repeated->median], &limits, false);
    const ls_step_table *planned = ls_step_table_planned(arena, stages, &limits, false);
    assert_true(planned->rows.count > 10 && planned->seconds == 0);
    for (int i = 0; i < planned->rows.count; i++) {
      const ls_step_row *row = &planned->rows.items[i], *same = row_of(ran, row->part, row->name);
      assert_non_null(same);
      /* What only the first rank of a stage does is more of it than of the mean. */
      if (row->part == LS_STEP_COLLECTIVE || row->bytes == same->bytes) {
        assert_true(fabs(row->calls - same->calls) < 1e-9);
        assert_true(fabs(row->flops - same->flops) <= 1e-9 * row->flops);
      }
    }
    assert_true(planned->floor_s > 0);
  }
}

/* One rank comes to every all-reduce 400 ns after the other, and all end after 1000. */
static void waiting_is_told_apart(void **state) {
  (void)state;
  const char *const keys[] = {"mesh.dp_replicate=2"};
  const ls_session *session = open_session(2, keys, 1);
  const ls_repeated *repeated = repeat(session);
  ls_recording *recording = repeated->recordings[0];
  const ls_program *program = session->programs[LS_SESSION_STEP];
  int reductions = 0;
  for (int r = 0; r < 2; r++)
    for (int64_t i = 0; i < recording->by_rank[r].count; i++) {
      ls_record *record = &recording->by_rank[r].records[i];
      const ls_instruction *each = &program->instructions.items[record->instruction];
      if (each->collective != LS_ALL_REDUCE) continue;
      if (each->phase == LS_END) record->end_ns = record->begin_ns;
      if (each->phase == LS_END) continue;
      reductions++;
      record->begin_ns = 5000 * i + 400 * r;
      record->end_ns = 5000 * i + 1000;
    }
  assert_true(reductions > 2);
  const ls_step_table *table =
      ls_step_table_measured(arena, session->stages[LS_SESSION_STEP], recording, &limits, false);
  const ls_step_row *wait = row_of(table, LS_STEP_WAIT, "waiting for other ranks");
  const ls_step_row *moved = row_of(table, LS_STEP_COLLECTIVE, "all-reduce");
  assert_non_null(wait);
  assert_true(fabs(wait->seconds - 400e-9 * reductions / 4) < 1e-12);
  assert_true(fabs(moved->seconds - 600e-9 * reductions / 2) < 1e-12);
  int collectives;
  const double sent = ls_program_bytes_sent(program, &collectives);
  assert_true(fabs(moved->bytes - sent) < 1);
  assert_int_equal(collectives, reductions / 2);
}

static void floors_say_whose_they_are(void **state) {
  (void)state;
  const ls_session *session = open_session(1, NULL, 0);
  for (int now = 0; now < 2; now++) {
    const ls_step_limits found = {.flops_per_s = 1e9, .bytes_per_s = 1e8, .measured_now = now};
    const ls_step_table *table =
        ls_step_table_planned(arena, session->stages[LS_SESSION_STEP], &found, false);
    char line[128];
    FILE *stream = tmpfile();
    ls_step_table_print(table, stream);
    rewind(stream);
    assert_non_null(fgets(line, sizeof line, stream));
    fclose(stream);
    assert_string_equal(
        line, now ? "floors by 1.0 GFLOP/s, as measured now, and 0.1 GB/s of a rank, as lockstep "
                    "bench found\n"
                  : "floors by 1.0 GFLOP/s and 0.1 GB/s of a rank, as lockstep bench found\n");
    json_t *json = ls_step_table_json(table);
    assert_int_equal(json_is_true(json_object_get(json, "flops_measured_now")), now);
    json_decref(json);
  }
}

static void texts_say_what_the_table_says(void **state) {
  (void)state;
  const ls_session *session = open_session(1, NULL, 0);
  const ls_repeated *repeated = repeat(session);
  const ls_step_table *table = ls_step_table_measured(arena, session->stages[LS_SESSION_STEP],
                                                      repeated->recordings[0], &limits, false);
  char *text = NULL;
  size_t bytes;
  FILE *stream = open_memstream(&text, &bytes);
  ls_step_table_print(table, stream);
  fclose(stream);
  json_t *json = ls_step_table_json(table);
  const json_t *rows = json_object_get(json, "rows");
  assert_int_equal(json_array_size(rows), table->rows.count);
  double sum = 0;
  for (int i = 0; i < table->rows.count; i++) {
    const json_t *row = json_array_get(rows, (size_t)i);
    assert_string_equal(json_string_value(json_object_get(row, "name")), table->rows.items[i].name);
    sum += json_real_value(json_object_get(row, "ms"));
    assert_non_null(strstr(text, table->rows.items[i].name));
  }
  assert_true(fabs(sum - json_real_value(json_object_get(json, "step_ms"))) < 1e-6);
  json_decref(json);
  int lines = 0;
  for (const char *at = text; (at = strchr(at, '\n')); at++) lines++;
  assert_int_equal(lines, table->rows.count + 3); /* the floors, the heads, the sum */
  assert_null(strstr(text, " \n"));
  free(text);
}

int main(void) {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up_model, tear_down)
  const struct CMUnitTest tests[] = {
      CASE(rows_add_up_to_the_step),       CASE(what_is_planned_is_what_runs),
      CASE(waiting_is_told_apart),         CASE(floors_say_whose_they_are),
      CASE(texts_say_what_the_table_says),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
