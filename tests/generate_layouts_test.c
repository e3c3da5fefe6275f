/* Decoding over devices, and of several sequences at once: for a model of every family each layout
 * gives the tokens that one device gives of one sequence after another, and its logits. In fp64;
 * in fp32 of a model that was trained elsewhere, with the ids that other code chose. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "store/safetensors.h"
#include "support/same_texts.h"
#include "support/test_seed.h"
#include "text/json.h"

#define TRACES LS_TEST_TRACES
#define STORIES "../shared/data/checkpoints/stories260K"

static uint64_t seed;
static ls_arena *arena;
static ls_error error;

static int set_up(void **state) {
  (void)state;
  arena = ls_arena_create();
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  ls_arena_destroy(&arena);
  return 0;
}

static void every_family_in_every_layout(void **state) {
  (void)state;
  for (int f = 0; f < ls_test_family_count; f++) {
    const ls_test_family *family = &ls_test_families[f];
    const int most = family->tp % 3 == 0 ? 6 : 4;
    ls_test_texts of;
    ls_test_texts_expect(arena, seed, ls_arena_printf(arena, TRACES "%s", family->name), &of);
    ls_test_texts_compare(&of, 1, &(ls_generator_options){.sequences = 3});
    ls_test_texts_compare(&of, family->tp, &(ls_generator_options){.sequences = f % 2 ? 4 : 1});
    const ls_generator_options several[] = {
        {.sequences = f % 2 ? 1 : 2},
        {.pp = 2, .sequences = f % 2 ? 1 : 2},
        {.pp = 2, .sequences = f % 2 ? 1 : 5},
    };
    ls_test_texts_compare(&of, f % 3 == 2 ? most : 2, &several[f % 3]);
  }
}

/* Logits that transformers computed of the first sequence of a trace. */
typedef struct recorded {
  int32_t *ids;
  int64_t count, vocabulary;
  double *logits;
} recorded;

static recorded read_recorded(const char *folder) {
  recorded made = {0};
  ls_safetensors *file;
  char *tokens;
  size_t bytes;
  const char *step = ls_arena_printf(arena, "%s/step0.safetensors", folder);
  const char *text = ls_arena_printf(arena, "%s/tokens.u16le", folder);
  if (ls_safetensors_open(step, NULL, &file, &error) != LS_OK) fail_msg("%s", error.text);
  const ls_stored_tensor *logits = ls_safetensors_find(file, "logits.row0");
  assert_non_null(logits);
  made.count = logits->dims[0];
  made.vocabulary = logits->dims[1];
  made.logits = LS_NEW_ARRAY(arena, double, logits->count);
  assert_int_equal(ls_stored_tensor_read(logits, 0, logits->count, LS_F64, made.logits, &error),
                   LS_OK);
  ls_safetensors_close(&file);
  assert_int_equal(ls_file_read(arena, text, &tokens, &bytes, &error), LS_OK);
  assert_true(bytes >= 2 * (size_t)made.count);
  made.ids = LS_NEW_ARRAY(arena, int32_t, made.count);
  for (int64_t i = 0; i < made.count; i++)
    made.ids[i] = (unsigned char)tokens[2 * i] | (unsigned char)tokens[2 * i + 1] << 8;
  return made;
}

static ls_status feed_recorded(void *context, ls_generator *generator, ls_error *failed) {
  const recorded *of = context;
  for (int64_t i = 0; i < of->count; i++) {
    const float *found;
    LS_TRY(ls_generator_feed(generator, of->ids + i, 1, &found, failed));
    for (int64_t v = 0; v < of->vocabulary; v++) {
      const double wanted = of->logits[i * of->vocabulary + v];
      if (!(fabs((double)found[v] - wanted) <= 1e-5))
        return ls_fail(failed, LS_REFUTED, "token %d, logit %d: %.9g; recorded is %.9g", (int)i,
                       (int)v, (double)found[v], wanted);
    }
  }
  return LS_OK;
}

/* Dynamic scaling follows the length, and decoding stays within the model's positions. */
static void logits_are_those_recorded(void **state) {
  (void)state;
  for (int f = 0; f < ls_test_family_count; f++) {
    if (strcmp(ls_test_families[f].name, "llama-dynamic") == 0) continue;
    const char *folder = ls_arena_printf(arena, TRACES "%s", ls_test_families[f].name);
    recorded of = read_recorded(folder);
    const ls_generator_options options = {.folder = folder,
                                          .compute = LS_F64,
                                          .threads = 1,
                                          .rows = of.count,
                                          .sequences = 1 + f % 2,
                                          .cp = f % 3 ? 1 : 2};
    ls_world *world;
    const int ranks = f % 3 ? ls_test_families[f].tp : 2; /* with cp they share the rows alone */
    assert_int_equal(ls_world_create_threads(ranks, &world, &error), LS_OK);
    if (ls_generator_run(arena, &options, world, feed_recorded, &of, &error) != LS_OK)
      fail_msg("%s: %s", folder, error.text);
    ls_world_destroy(&world);
  }
}

/* Ids that llama2.c chose: each request has a beginning of them. */
typedef struct story {
  int32_t *ids;
  int64_t count;
} story;

static ls_status tell_story(void *context, ls_generator *generator, ls_error *failed) {
  const story *of = context;
  enum { TELLERS = 7 };
  ls_test_text *found = LS_NEW_ARRAY(arena, ls_test_text, TELLERS);
  ls_generate_request requests[TELLERS];
  for (int t = 0; t < TELLERS; t++)
    requests[t] = (ls_generate_request){.prompt = of->ids,
                                        .prompt_count = 1 + 23 * t,
                                        .most = of->count - 1 - 23 * t,
                                        .token = ls_test_text_keep,
                                        .context = &found[t]};
  LS_TRY(ls_generate_all(generator, requests, TELLERS, failed));
  for (int t = 0; t < TELLERS; t++)
    if (found[t].made != requests[t].most ||
        memcmp(found[t].ids, of->ids + requests[t].prompt_count,
               sizeof *of->ids * (size_t)found[t].made) != 0)
      return ls_fail(failed, LS_REFUTED, "story %d is another", t);
  return LS_OK;
}

static void a_story_is_told_alike(void **state) {
  (void)state;
  if (!ls_file_exists(STORIES "/expected.json")) {
    print_message("no " STORIES " here\n");
    skip();
  }
  json_t *root;
  assert_int_equal(ls_json_read(STORIES "/expected.json", 0, &root, &error), LS_OK);
  const json_t *ids = json_object_get(json_object_get(root, "greedy"), "ids");
  story of = {.count = (int64_t)json_array_size(ids)};
  assert_in_range(of.count, 170, 512);
  of.ids = LS_NEW_ARRAY(arena, int32_t, of.count);
  for (int64_t i = 0; i < of.count; i++)
    of.ids[i] = (int32_t)json_integer_value(json_array_get(ids, (size_t)i));
  json_decref(root);
  static const struct {
    int ranks, pp, cp, sequences;
  } layouts[] = {{1, 1, 1, 4}, {2, 1, 1, 7}, {4, 2, 1, 3}, {3, 1, 3, 1}, {4, 1, 2, 7}};
  for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++) {
    const ls_generator_options options = {.folder = STORIES,
                                          .compute = LS_F32,
                                          .threads = 1,
                                          .rows = of.count,
                                          .sequences = layouts[l].sequences,
                                          .pp = layouts[l].pp,
                                          .cp = layouts[l].cp};
    ls_world *world;
    assert_int_equal(ls_world_create_threads(layouts[l].ranks, &world, &error), LS_OK);
    if (ls_generator_run(arena, &options, world, tell_story, &of, &error) != LS_OK)
      fail_msg("layout %d: %s", (int)l, error.text);
    ls_world_destroy(&world);
  }
}

/* Every rank's failure is the run's, and nobody waits. */
static ls_status give_up(void *context, ls_generator *generator, ls_error *failed) {
  const float *logits;
  const int32_t outside = 1 << 20;
  (void)context;
  return ls_generator_feed(generator, &outside, 1, &logits, failed);
}

static void failures_end_the_run(void **state) {
  (void)state;
  static const struct {
    const char *folder, *text;
    int ranks, pp;
  } cases[] = {{TRACES "qwen2", "token 1048576; expected one below", 2, 1},
               {TRACES "qwen2", "tp=3 and 4 heads, 2 KV heads: use tp=1, 2 or 4", 3, 1},
               {TRACES "qwen2", "expected 1 to 4", 5, 5},
               {"tests", "config.json", 2, 1}};
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    const ls_generator_options options = {
        .folder = cases[c].folder, .compute = LS_F32, .threads = 1, .rows = 8, .pp = cases[c].pp};
    ls_world *world;
    assert_int_equal(ls_world_create_threads(cases[c].ranks, &world, &error), LS_OK);
    assert_int_equal(ls_generator_run(arena, &options, world, give_up, NULL, &error), LS_INPUT);
    if (!strstr(error.text, cases[c].text)) fail_msg("%s", error.text);
    ls_world_destroy(&world);
  }
}

int main(void) {
  seed = test_seed(20261128);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(every_family_in_every_layout, set_up, tear_down),
      cmocka_unit_test_setup_teardown(logits_are_those_recorded, set_up, tear_down),
      cmocka_unit_test_setup_teardown(a_story_is_told_alike, set_up, tear_down),
      cmocka_unit_test_setup_teardown(failures_end_the_run, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
