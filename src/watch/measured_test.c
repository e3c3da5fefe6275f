/* A recorded step: every instruction of every rank once, in order; as a picture no box over
 * another; and the memory map of the programs that ran. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cost/cost.h"
#include "run/rank_threads.h"
#include "run/recording.h"
#include "schedule/chunks.h"
#include "support/small_session.h"
#include "support/xml.h"
#include "text/json.h"
#include "watch/memory_map.h"
#include "watch/timeline.h"

typedef struct recorded {
  const ls_session *session;
  ls_recording *recording;
} recorded;

/* Tokens are zero: what is computed is of no matter here. */
static ls_status record_step(ls_comm *comm, void *context, ls_error *error) {
  recorded *into = context;
  ls_rank *rank;
  ls_arena *scratch = ls_arena_create();
  ls_recording *recording = NULL;
  LS_TRY(ls_session_rank(into->session, comm, &rank, error));
  ls_status status = ls_session_initialise(into->session, rank, error);
  if (status == LS_OK) status = ls_rank_record_room(rank, LS_SESSION_STEP, error);
  ls_rank_set_cell(rank, LS_CELL_STEP, 1);
  for (int step = 0; step < 3 && status == LS_OK; step++) {
    ls_rank_record(rank, step != 2);
    status = ls_rank_run_gradients(rank, LS_SESSION_STEP, error);
    if (status == LS_OK) status = ls_rank_run_part(rank, LS_SESSION_STEP, LS_PROGRAM_UPDATE, error);
  }
  const bool first = ls_rank_number(rank) == 0;
  if (status == LS_OK)
    status = ls_recording_gather(first ? arena : scratch, rank, 2, &recording, error);
  if (first) into->recording = recording;
  ls_arena_destroy(&scratch);
  ls_rank_destroy(&rank);
  return status;
}

static const ls_recording *record(const ls_session *session) {
  ls_world *world;
  ls_error error = {0};
  recorded made = {.session = session};
  assert_int_equal(ls_world_create_threads(session->devices, &world, &error), LS_OK);
  if (ls_rank_threads_run(world, record_step, &made, &error) != LS_OK) fail_msg("%s", error.text);
  ls_world_destroy(&world);
  assert_non_null(made.recording);
  return made.recording;
}

static const ls_program *program_of(const ls_session *session, int rank) {
  const ls_program *const *stages = session->stages[LS_SESSION_STEP];
  return stages[ls_mesh_stage(&stages[0]->mesh, rank)];
}

/* Each instruction of each action once, one after the other. */
static int64_t check_records(const ls_session *session, const ls_recording *recording) {
  int64_t all = 0, earliest = INT64_MAX;
  assert_int_equal(recording->ranks, session->devices);
  for (int r = 0; r < recording->ranks; r++) {
    const ls_program *program = program_of(session, r);
    const ls_recording_rank *of = &recording->by_rank[r];
    int64_t at = 0, before = INT64_MIN;
    for (int a = 0; a < program->actions.count; a++) {
      const ls_body *body = &program->bodies.items[program->actions.items[a].body];
      for (int i = body->first; i < body->first + body->count; i++, at++) {
        assert_true(at < of->count);
        assert_int_equal(of->records[at].action, a);
        assert_int_equal(of->records[at].instruction, i);
        assert_true(of->records[at].begin_ns >= before);
        assert_true(of->records[at].end_ns >= of->records[at].begin_ns);
        before = of->records[at].end_ns;
        if (of->records[at].begin_ns < earliest) earliest = of->records[at].begin_ns;
      }
    }
    assert_int_equal(at, of->count);
    all += at;
  }
  assert_int_equal(earliest, 0);
  return all;
}

static void print_to(void (*write)(const ls_timeline *timeline, FILE *stream),
                     const ls_timeline *timeline, char **text, size_t *bytes) {
  FILE *stream = open_memstream(text, bytes);
  write(timeline, stream);
  fclose(stream);
}

static void check_trace(const ls_session *session, const ls_timeline *timeline, int64_t all) {
  size_t bytes, index;
  char *text = NULL;
  print_to(ls_timeline_json, timeline, &text, &bytes);
  json_t *root;
  ls_error error = {0};
  if (ls_json_parse("trace", text, bytes, 0, &root, &error) != LS_OK) fail_msg("%s", error.text);
  const json_t *event;
  int64_t spans = 0;
  double end[64] = {0}, sent[64] = {0};
  json_array_foreach(json_object_get(root, "traceEvents"), index, event) {
    if (strcmp(json_string_value(json_object_get(event, "ph")), "X") != 0) continue;
    const json_int_t process = json_integer_value(json_object_get(event, "pid"));
    const double begin = json_number_value(json_object_get(event, "ts"));
    assert_true(process >= 0 && process < session->devices);
    assert_true(begin >= end[process] - 2e-3); /* two nanoseconds of rounding */
    end[process] = begin + json_number_value(json_object_get(event, "dur"));
    const json_t *arguments = json_object_get(event, "args");
    sent[process] += json_number_value(json_object_get(arguments, "bytes"));
    assert_non_null(strstr(json_string_value(json_object_get(event, "name")), " of "));
    spans++;
  }
  assert_int_equal(spans, all);
  for (int r = 0; r < session->devices; r++) {
    int collectives;
    assert_true(fabs(sent[r] - ls_program_bytes_sent(program_of(session, r), &collectives)) < 0.5);
  }
  json_decref(root);
  free(text);
}

static void check_xml(const char *text) {
  char why[LS_XML_WHY];
  if (!xml_is_well_formed(text, why)) fail_msg("%s", why);
}

/* No box over another of its track; all within the picture. */
static void check_svg(const ls_timeline *timeline) {
  size_t bytes;
  char *text = NULL;
  print_to(ls_timeline_svg, timeline, &text, &bytes);
  check_xml(text);
  double *end = LS_NEW_ARRAY(arena, double, 4096);
  int boxes = 0;
  for (const char *at = strstr(text, "<g>"); at; at = strstr(at + 1, "<g>"), boxes++) {
    const char *box = strstr(at, "<rect");
    const int y = (int)xml_attribute(box, "y");
    assert_true(y >= 0 && y < 4096);
    assert_true(xml_attribute(box, "x") >= end[y] - 0.02);
    end[y] = xml_attribute(box, "x") + xml_attribute(box, "width");
    assert_true(end[y] <= xml_attribute(text, "width"));
  }
  assert_int_equal(boxes, timeline->spans.count);
  free(text);
}

/* Spans between tiers of memory lie in a track of their own and are no transfers of stages. */
static int count_kind(const ls_timeline *timeline, ls_span_kind kind) {
  int count = 0;
  for (int i = 0; i < timeline->spans.count; i++) {
    const ls_timeline_span *span = &timeline->spans.items[i];
    assert_int_equal(span->kind == LS_SPAN_MOVE, span->queue == LS_QUEUE_MOVE);
    count += span->kind == kind;
  }
  return count;
}

/* A box of the map, of a buffer group. */
typedef struct box {
  double x, y, right, bottom;
} box;

static void print_map(const ls_program *program, char **text, size_t *bytes) {
  FILE *stream = open_memstream(text, bytes);
  ls_memory_map_svg(program, "a <map> & \"more\"", stream);
  fclose(stream);
}

static void check_map(const ls_program *program) {
  char *text = NULL;
  size_t bytes;
  print_map(program, &text, &bytes);
  check_xml(text);
  int64_t by_category[LS_CATEGORY_COUNT];
  assert_non_null(strstr(text, ls_arena_printf(arena, "(%lld bytes), in action ",
                                               (long long)ls_program_peak(program, by_category))));
  int work = 0, boxes = 0;
  for (int i = 0; i < program->live_intervals.count; i++)
    work += program->buffer_groups.items[program->live_intervals.items[i].buffer_group].pool ==
            LS_POOL_WORK;
  box *of = LS_NEW_ARRAY(arena, box, work + 1);
  for (const char *at = strstr(text, "<g class='buffer-group'>"); at;
       at = strstr(at + 1, "<g class='buffer-group'>")) {
    const char *rect = strstr(at, "<rect");
    assert_true(boxes < work);
    box *each = &of[boxes++];
    each->x = xml_attribute(rect, "x");
    each->y = xml_attribute(rect, "y");
    each->right = each->x + xml_attribute(rect, "width");
    each->bottom = each->y + xml_attribute(rect, "height");
    assert_true(each->x >= 0 && each->right <= xml_attribute(text, "width"));
    for (int b = 0; b < boxes - 1; b++)
      if (of[b].x < each->right - 0.02 && each->x < of[b].right - 0.02 &&
          of[b].y < each->bottom - 0.02 && each->y < of[b].bottom - 0.02)
        fail_msg("boxes %d and %d overlap", b, boxes - 1);
  }
  assert_int_equal(boxes, work);
  free(text);
}

static void check_layout(int devices, const char *const *keys, int key_count) {
  const ls_session *session = open_session(devices, keys, key_count);
  const ls_recording *recording = record(session);
  const int64_t all = check_records(session, recording);
  const ls_timeline_run run = {.stages = session->stages[LS_SESSION_STEP], .title = "a & b"};
  check_trace(session, ls_timeline_measured(arena, &run, recording, LS_TIMELINE_INSTRUCTIONS), all);
  const ls_timeline *actions = ls_timeline_measured(arena, &run, recording, LS_TIMELINE_ACTIONS);
  assert_true(actions->spans.count > 0 && actions->spans.count < all);
  check_svg(actions);
  for (int s = 0; s < session->layout.pp; s++) check_map(session->stages[LS_SESSION_STEP][s]);
}

static void test_one_device(void **state) {
  (void)state;
  check_layout(1, NULL, 0);
}

static void test_shards(void **state) {
  (void)state;
  const char *const keys[] = {"mesh.dp_shard=2", "mesh.tp=2", "zero=3", "train.microbatches=2"};
  check_layout(4, keys, 4);
}

/* What an offloading run draws of its device: the moves are said to be moves, and the map's legend
 * has what lies on the device alone. */
static void test_offload(void **state) {
  (void)state;
  const char *const keys[] = {"mesh.dp_shard=1", "offload.optimizer=host"};
  const ls_session *session = open_session(1, keys, 2);
  const ls_recording *recording = record(session);
  const ls_program *program = session->stages[LS_SESSION_STEP][0];
  const ls_timeline_run run = {.stages = session->stages[LS_SESSION_STEP], .title = "offload"};
  const ls_timeline *timeline = ls_timeline_measured(arena, &run, recording, LS_TIMELINE_ACTIONS);
  assert_true(count_kind(timeline, LS_SPAN_MOVE) > 0);
  assert_int_equal(count_kind(timeline, LS_SPAN_TRANSFER), 0);
  size_t bytes;
  char *text = NULL;
  print_to(ls_timeline_svg, timeline, &text, &bytes);
  assert_non_null(strstr(text, "moves between tiers</text>"));
  assert_null(strstr(text, "S send, R receive"));
  free(text);
  check_map(program);
  print_map(program, &text, &bytes);
  assert_non_null(strstr(text, ">parameters</text>"));
  assert_null(strstr(text, ">optimizer moments</text>"));
  free(text);
}

static void test_pipelines(void **state) {
  (void)state;
  const char *const keys[] = {"mesh.pp=2", "schedule=zbv", "train.microbatches=4",
                              "mesh.dp_shard=1"};
  check_layout(2, keys, 4);
  const char *const four[] = {"mesh.pp=4", "train.microbatches=8", "mesh.dp_shard=1",
                              "recompute=full"};
  check_layout(4, four, 4);
}

static const ls_timeline *plan(const ls_session *session) {
  ls_pipeline *pipeline;
  ls_pipeline_times *times;
  ls_error error = {0};
  assert_int_equal(ls_chunks_pipeline(arena, &session->layout, &pipeline, &error), LS_OK);
  assert_int_equal(ls_pipeline_times_make(arena, pipeline, &ls_pipeline_unit_costs, &times, &error),
                   LS_OK);
  return ls_timeline_plan(arena, pipeline, times, session->stages[LS_SESSION_STEP], "planned");
}

/* With a prefetch each layer is gathered beside the pass of the layer before it, and reduced beside
 * that of the layer behind. */
static void test_plan_with_transfers(void **state) {
  (void)state;
  const char *const keys[] = {"prefetch=1"};
  const ls_timeline *timeline = plan(open_session(2, keys, 1));
  assert_int_equal(timeline->queues, 2);
  int gathers = 0, reductions = 0;
  for (int i = 0; i < timeline->spans.count; i++) {
    const ls_timeline_span *span = &timeline->spans.items[i];
    if (span->queue == LS_QUEUE_COMPUTE) continue;
    assert_true(span->end > span->start && span->end <= timeline->end);
    gathers += strncmp(span->name, "gather of parameters of layers.", 31) == 0;
    reductions += strncmp(span->name, "reduction of gradients of layers.", 33) == 0;
  }
  assert_int_equal(gathers, 2 * 4 - 1); /* the last one stays while the head turns back */
  assert_int_equal(reductions, 4);
  assert_int_equal(plan(open_session(2, NULL, 0))->queues, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_device),
                                     cmocka_unit_test(test_plan_with_transfers),
                                     cmocka_unit_test(test_shards), cmocka_unit_test(test_offload),
                                     cmocka_unit_test(test_pipelines)};
  return cmocka_run_group_tests(tests, set_up_model, tear_down);
}
