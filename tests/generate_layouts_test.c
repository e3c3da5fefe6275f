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
#include "base/random.h"
#include "generate/generate.h"
#include "store/safetensors.h"
#include "support/test_seed.h"
#include "text/json.h"

#define TRACES "tests/data/traces/"
#define STORIES "../shared/data/checkpoints/stories260K"

/* Heads are cut up to `tp`, which is more than the KV heads of most. */
static const struct family {
  const char *name;
  int tp;
} families[] = {
    {"bloom", 3},
    {"deepseek-v2-lite", 4},
    {"deepseek-v3", 4},
    {"deepseek-v3-halves", 4},
    {"falcon-grouped", 4},
    {"falcon-sequential", 4},
    {"falcon-single", 4},
    {"gemma", 4},
    {"gemma2", 4},
    {"gemma3", 4},
    {"gpt-neox", 4},
    {"gpt-neox-sequential", 4},
    {"gpt2-tied", 4},
    {"llama-dynamic", 4},
    {"llama-gqa-free", 6},
    {"llama-gqa-tied", 4},
    {"llama-yarn", 4},
    {"mistral", 4},
    {"mixtral", 4},
    {"olmo2", 4},
    {"phi", 4},
    {"phi3", 4},
    {"qwen2", 4},
    {"qwen3", 4},
    {"qwen3-moe", 4},
    {"smollm3", 4},
    {"starcoder2", 4},
    {"gpt-oss", 4},
};
enum { FAMILIES = sizeof families / sizeof *families, REQUESTS = 5, MOST = 9, LONGEST = 22 };

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

/* A prompt and what came of it. */
typedef struct told {
  int32_t prompt[LONGEST];
  int64_t count;
  int32_t ids[512];
  int64_t made;
  int begun, done;
  ls_generate_end end;
} told;

static ls_status keep(void *context, int32_t id, ls_error *unused) {
  told *of = context;
  (void)unused;
  of->ids[of->made++] = id;
  return LS_OK;
}

static ls_status begins(void *context, ls_error *unused) {
  (void)unused;
  ((told *)context)->begun++;
  return LS_OK;
}

static ls_status done(void *context, ls_generate_end end, ls_error *unused) {
  told *of = context;
  (void)unused;
  of->done++;
  of->end = end;
  return LS_OK;
}

/* Every other one is sampled. */
static ls_generate_request request_of(told *of, int number) {
  return (ls_generate_request){
      .prompt = of->prompt,
      .prompt_count = of->count,
      .most = 3 + (number * 5) % (MOST - 2),
      .sampling = {.temperature = number % 2 ? 0.9 : 0, .top_p = 0.95, .seed = seed},
      .token = keep,
      .begins = begins,
      .done = done,
      .context = of};
}

/* What one device says of one family. */
typedef struct expected {
  const char *folder, *layout;
  told all[REQUESTS];
  float *logits; /* after the longest prompt */
  int64_t vocabulary, longest;
} expected;

static void draw_prompts(expected *self, int64_t rows) {
  for (int r = 0; r < REQUESTS; r++) {
    told *of = &self->all[r];
    of->count = 1 + (int64_t)(ls_random_bits(seed, 2, (uint64_t)r) % LONGEST);
    if (of->count > rows - 2) of->count = rows - 2;
    if (of->count > self->all[self->longest].count) self->longest = r;
    for (int64_t i = 0; i < of->count; i++)
      of->prompt[i] = (int32_t)(ls_random_bits(seed, 3 + (uint64_t)r, (uint64_t)i) %
                                (uint64_t)self->vocabulary);
  }
}

static void expect(expected *self, const char *folder) {
  const ls_generator_options options = {
      .folder = folder, .compute = LS_F64, .threads = 1, .rows = LONGEST + MOST};
  ls_generator *one;
  const float *logits;
  self->folder = folder;
  if (ls_generator_create(arena, &options, &one, &error) != LS_OK) fail_msg("%s", error.text);
  self->vocabulary = ls_generator_config(one)->vocabulary;
  draw_prompts(self, ls_generator_rows(one));
  for (int r = 0; r < REQUESTS; r++) {
    const ls_generate_request request = request_of(&self->all[r], r);
    if (ls_generate(one, &request, &self->all[r].end, &error) != LS_OK)
      fail_msg("%s: %s", folder, error.text);
  }
  const told *longest = &self->all[self->longest];
  ls_generator_reset(one);
  assert_int_equal(ls_generator_feed(one, longest->prompt, longest->count, &logits, &error), LS_OK);
  self->logits = LS_NEW_ARRAY(arena, float, self->vocabulary);
  memcpy(self->logits, logits, sizeof *logits * (size_t)self->vocabulary);
  ls_generator_destroy(&one);
}

/* Not for the thread of a rank: what fails there is said as an error. */
static ls_status compare(const expected *of, int number, const told *found, ls_error *failed) {
  const told *wanted = &of->all[number];
  if (found->begun != 1 || found->done != 1 || found->end != wanted->end ||
      found->made != wanted->made)
    return ls_fail(failed, LS_REFUTED, "request %d: %d begun, %d done, %d tokens; expected %d",
                   number, found->begun, found->done, (int)found->made, (int)wanted->made);
  for (int64_t i = 0; i < found->made; i++)
    if (found->ids[i] != wanted->ids[i])
      return ls_fail(failed, LS_REFUTED, "request %d: token %d is %d; expected %d", number, (int)i,
                     found->ids[i], wanted->ids[i]);
  return LS_OK;
}

static ls_status use(void *context, ls_generator *generator, ls_error *failed) {
  const expected *of = context;
  told found[REQUESTS];
  ls_generate_request requests[REQUESTS];
  for (int r = 0; r < REQUESTS; r++) {
    found[r] = of->all[r];
    found[r].made = found[r].begun = found[r].done = 0;
    requests[r] = request_of(&found[r], r);
  }
  LS_TRY(ls_generate_all(generator, requests, REQUESTS, failed));
  for (int r = 0; r < REQUESTS; r++) LS_TRY(compare(of, r, &found[r], failed));
  const told *longest = &of->all[of->longest];
  const float *logits;
  ls_generator_reset(generator);
  LS_TRY(ls_generator_feed(generator, longest->prompt, longest->count, &logits, failed));
  for (int64_t v = 0; v < of->vocabulary; v++)
    if (!(fabsf(logits[v] - of->logits[v]) <= 1e-6f * (1 + fabsf(of->logits[v]))))
      return ls_fail(failed, LS_REFUTED, "logit %d is %.9g; expected %.9g", (int)v,
                     (double)logits[v], (double)of->logits[v]);
  return LS_OK;
}

static void run_layout(const expected *of, int ranks, int pp, int64_t sequences) {
  const ls_generator_options options = {.folder = of->folder,
                                        .compute = LS_F64,
                                        .threads = 1,
                                        .rows = LONGEST + MOST,
                                        .sequences = sequences,
                                        .pp = pp};
  ls_world *world;
  ls_arena *own = ls_arena_create();
  assert_int_equal(ls_world_create_threads(ranks, &world, &error), LS_OK);
  if (ls_generator_run(own, &options, world, use, (void *)of, &error) != LS_OK)
    fail_msg("%s, %d ranks, pp %d, %d sequences: %s", of->folder, ranks, pp, (int)sequences,
             error.text);
  ls_world_destroy(&world);
  ls_arena_destroy(&own);
}

static void every_family_in_every_layout(void **state) {
  (void)state;
  for (int f = 0; f < FAMILIES; f++) {
    expected of = {0};
    expect(&of, ls_arena_printf(arena, TRACES "%s", families[f].name));
    run_layout(&of, 1, 1, 3);
    run_layout(&of, families[f].tp, 1, f % 2 ? 4 : 1);
    if (f % 3 == 0) run_layout(&of, 2, 1, f % 2 ? 1 : 2);
    if (f % 3 == 1) run_layout(&of, 2, 2, f % 2 ? 1 : 2);
    if (f % 3 == 2) run_layout(&of, families[f].tp % 3 == 0 ? 6 : 4, 2, f % 2 ? 1 : 5);
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
  for (int f = 0; f < FAMILIES; f++) {
    if (strcmp(families[f].name, "llama-dynamic") == 0) continue;
    const char *folder = ls_arena_printf(arena, TRACES "%s", families[f].name);
    recorded of = read_recorded(folder);
    const ls_generator_options options = {.folder = folder,
                                          .compute = LS_F64,
                                          .threads = 1,
                                          .rows = of.count,
                                          .sequences = 1 + f % 2};
    ls_world *world;
    assert_int_equal(ls_world_create_threads(families[f].tp, &world, &error), LS_OK);
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
  told *found = LS_NEW_ARRAY(arena, told, TELLERS);
  ls_generate_request requests[TELLERS];
  for (int t = 0; t < TELLERS; t++)
    requests[t] = (ls_generate_request){.prompt = of->ids,
                                        .prompt_count = 1 + 23 * t,
                                        .most = of->count - 1 - 23 * t,
                                        .token = keep,
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
  static const int layouts[][3] = {{1, 1, 4}, {2, 1, 7}, {4, 2, 3}}; /* ranks, pp, sequences */
  for (int l = 0; l < 3; l++) {
    const ls_generator_options options = {.folder = STORIES,
                                          .compute = LS_F32,
                                          .threads = 1,
                                          .rows = of.count,
                                          .sequences = layouts[l][2],
                                          .pp = layouts[l][1]};
    ls_world *world;
    assert_int_equal(ls_world_create_threads(layouts[l][0], &world, &error), LS_OK);
    if (ls_generator_run(arena, &options, world, tell_story, &of, &error) != LS_OK)
      fail_msg("layout %d: %s", l, error.text);
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
  seed = test_seed();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(every_family_in_every_layout, set_up, tear_down),
      cmocka_unit_test_setup_teardown(logits_are_those_recorded, set_up, tear_down),
      cmocka_unit_test_setup_teardown(a_story_is_told_alike, set_up, tear_down),
      cmocka_unit_test_setup_teardown(failures_end_the_run, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
