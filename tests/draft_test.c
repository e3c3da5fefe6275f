/* Speculative decoding: whatever drafts, on whatever layout, greedy texts are those of the model
 * alone, token by token, and sampled ones have its chances. Models are random, in fp64; and one
 * with its draft that others trained, and whose rounds others counted. */
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
#include "support/test_seed.h"
#include "text/json.h"

#define TRACES "tests/data/traces/"
#define RECORDED "../shared/data/traces/speculative-llama-tiny"

enum { MOST_TEXTS = 40, LONGEST = 12, MOST = 20 };

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

typedef struct text {
  int32_t prompt[64];
  int64_t count, most;
  int32_t ids[64];
  int64_t made;
  ls_generate_end end;
  ls_draft_counts counts;
} text;

static ls_status keep(void *context, int32_t id, ls_error *unused) {
  text *of = context;
  (void)unused;
  of->ids[of->made++] = id;
  return LS_OK;
}

static ls_status done(void *context, ls_generate_end end, ls_error *unused) {
  (void)unused;
  ((text *)context)->end = end;
  return LS_OK;
}

/* A model, what drafts for it, and where. */
typedef struct drafted_case {
  const char *model, *draft; /* draft NULL: n-grams, unless the model's own layers */
  int layers, tokens;
  int ranks, pp, sequences;
} drafted_case;

/* What is run of a case, and what it gives alone. */
typedef struct texts {
  const drafted_case *of;
  text wanted[MOST_TEXTS], found[MOST_TEXTS];
  int count;
  ls_sampling sampling;
  ls_draft_counts counts;
} texts;

static const char *folder_of(const char *name) {
  return strchr(name, '/') ? name : ls_arena_printf(arena, TRACES "%s", name);
}

static void requests_of(text *all, int count, ls_sampling sampling, ls_generate_request *made) {
  for (int t = 0; t < count; t++) {
    all[t].made = 0;
    made[t] = (ls_generate_request){.prompt = all[t].prompt,
                                    .prompt_count = all[t].count,
                                    .most = all[t].most,
                                    .sampling = sampling,
                                    .token = keep,
                                    .done = done,
                                    .drafts = &all[t].counts,
                                    .context = &all[t]};
  }
}

static ls_status run_plain(void *context, ls_generator *generator, ls_error *failed) {
  texts *self = context;
  ls_generate_request requests[MOST_TEXTS];
  requests_of(self->wanted, self->count, self->sampling, requests);
  return ls_generate_all(generator, requests, self->count, failed);
}

/* Not for the thread of a rank: what fails there is said as an error. */
static ls_status run_drafted(void *context, ls_generator *generator, ls_error *failed) {
  texts *self = context;
  const drafted_case *of = self->of;
  const char *draft = of->draft ? of->draft : of->layers ? of->model : NULL;
  const ls_draft_options options = {
      .folder = draft ? folder_of(draft) : NULL, .layers = of->layers, .tokens = of->tokens};
  ls_generate_request requests[MOST_TEXTS];
  LS_TRY(ls_generator_set_draft(arena, generator, &options, failed));
  memcpy(self->found, self->wanted, sizeof self->found);
  requests_of(self->found, self->count, self->sampling, requests);
  LS_TRY(ls_generate_all(generator, requests, self->count, failed));
  for (int t = 0; t < self->count; t++) {
    const text *wanted = &self->wanted[t], *found = &self->found[t];
    self->counts.rounds += found->counts.rounds;
    self->counts.drafted += found->counts.drafted;
    self->counts.kept += found->counts.kept;
    if (found->made != wanted->made || found->end != wanted->end)
      return ls_fail(failed, LS_REFUTED, "text %d: %d tokens, end %d; expected %d, %d", t,
                     (int)found->made, (int)found->end, (int)wanted->made, (int)wanted->end);
    for (int64_t i = 0; i < found->made; i++)
      if (found->ids[i] != wanted->ids[i])
        return ls_fail(failed, LS_REFUTED, "text %d: token %d is %d; expected %d", t, (int)i,
                       found->ids[i], wanted->ids[i]);
  }
  return LS_OK;
}

static void run_over(texts *self, ls_dtype compute, int64_t rows, bool drafts) {
  const drafted_case *of = self->of;
  const ls_generator_options options = {.folder = folder_of(of->model),
                                        .compute = compute,
                                        .threads = 1,
                                        .rows = rows,
                                        .sequences = drafts ? of->sequences : 1,
                                        .ahead = drafts ? of->tokens : 0,
                                        .pp = drafts ? of->pp : 1};
  ls_world *world;
  ls_arena *own = ls_arena_create();
  assert_int_equal(ls_world_create_threads(drafts ? of->ranks : 1, &world, &error), LS_OK);
  if (ls_generator_run(own, &options, world, drafts ? run_drafted : run_plain, self, &error) !=
      LS_OK)
    fail_msg("%s, %s, %d ranks, pp %d, %d sequences: %s", of->model,
             of->draft ? of->draft : "its own draft", of->ranks, of->pp, of->sequences, error.text);
  ls_world_destroy(&world);
  ls_arena_destroy(&own);
}

/* A text now and then has the same few tokens again, so that n-grams find some. */
static void draw_prompts(texts *self, uint64_t stream, int64_t vocabulary) {
  for (int t = 0; t < self->count; t++) {
    text *each = &self->wanted[t];
    each->count = 1 + (int64_t)(ls_random_bits(seed, stream, (uint64_t)t) % LONGEST);
    each->most = 1 + (t * 7) % MOST;
    for (int64_t i = 0; i < each->count; i++)
      each->prompt[i] = (int32_t)(ls_random_bits(seed, stream + 100 + (uint64_t)t,
                                                 (uint64_t)(t % 2 ? i % 3 : i)) %
                                  (uint64_t)vocabulary);
  }
}

/* A model that drafts for itself is always right. Some end at the rows that there are. */
static void greedy_texts_are_the_same(void **state) {
  (void)state;
  static const drafted_case cases[] = {
      {"mistral", "mistral", 0, 4, 1, 1, 1},
      {"llama-gqa-free", "llama-gqa-tied", 0, 3, 3, 1, 3}, /* vocabularies of 199 and 201 */
      {"llama-gqa-tied", "llama-gqa-free", 0, 5, 1, 1, 4}, /* and the other way */
      {"deepseek-v2-lite", NULL, 1, 2, 2, 2, 2},
      {"gemma3", NULL, 2, 7, 2, 2, 1},
      {"qwen3-moe", "gemma2", 0, 16, 1, 1, 5},
      {"llama-frozen", NULL, 0, 4, 2, 1, 2},
      {"bloom", "qwen3", 0, 1, 1, 1, 1},
  };
  enum { CASES = sizeof cases / sizeof *cases, TEXTS = 25 };
  ls_draft_counts all = {0};
  for (int c = 0; c < CASES; c++) {
    texts *self = LS_NEW(arena, texts);
    self->of = &cases[c];
    self->count = TEXTS;
    draw_prompts(self, (uint64_t)c, 67);
    run_over(self, LS_F64, LONGEST + MOST - 4, false);
    run_over(self, LS_F64, LONGEST + MOST - 4, true);
    const ls_draft_counts *counts = &self->counts;
    print_message("%s, %s: of %d drafted %d kept, in %d rounds\n", cases[c].model,
                  cases[c].draft    ? cases[c].draft
                  : cases[c].layers ? "its layers"
                                    : "n-grams",
                  (int)counts->drafted, (int)counts->kept, (int)counts->rounds);
    for (int t = 0; t < TEXTS && c == 0; t++) /* what is behind the end of a text is not kept */
      if (self->found[t].end != LS_GENERATE_END_ID)
        assert_int_equal(self->found[t].counts.kept, self->found[t].counts.drafted);
    assert_true(counts->drafted > 0);
    all.kept += counts->kept;
    all.rounds += counts->rounds;
  }
  assert_true(CASES * TEXTS == 200 && all.kept > 0 && all.rounds > 0);
}

static ls_status done_nothing(void *context, int32_t id, ls_error *unused) {
  (void)unused;
  *(int *)context = *(int *)context * 67 + id;
  return LS_OK;
}

enum { TOP = 3, PLACES = 3, OUTCOMES = 27, SEEDS = 2000 };

/* Chances of the three likeliest of a row at this temperature, likeliest first. */
static void three_likeliest(const float *logits, double temperature, int32_t ids[TOP],
                            double chances[TOP]) {
  double sum = 0;
  for (int n = 0; n < TOP; n++) {
    ids[n] = -1;
    for (int32_t i = 0; i < 67; i++) {
      const bool taken = (n > 0 && i == ids[0]) || (n > 1 && i == ids[1]);
      if (!taken && (ids[n] < 0 || logits[i] > logits[ids[n]])) ids[n] = i;
    }
    chances[n] = exp((double)(logits[ids[n]] - logits[ids[0]]) / temperature);
    sum += chances[n];
  }
  for (int n = 0; n < TOP; n++) chances[n] /= sum;
}

/* All texts of three tokens, with their chances by the model alone. */
static void list_outcomes(ls_generator *generator, const int32_t *prompt, int64_t count,
                          double temperature, int texts_of[OUTCOMES], double chances[OUTCOMES]) {
  for (int o = 0; o < OUTCOMES; o++) {
    texts_of[o] = 0;
    chances[o] = 1;
    ls_generator_reset(generator);
    const int32_t *next = prompt;
    int64_t fed = count;
    for (int place = 0, rest = o; place < PLACES; place++, rest /= TOP) {
      int32_t ids[TOP];
      double of[TOP];
      const float *logits;
      assert_int_equal(ls_generator_feed(generator, next, fed, &logits, &error), LS_OK);
      three_likeliest(logits, temperature, ids, of);
      static int32_t chosen;
      chosen = ids[rest % TOP];
      chances[o] *= of[rest % TOP];
      texts_of[o] = texts_of[o] * 67 + chosen;
      next = &chosen;
      fed = 1;
    }
  }
}

/* Chi-square of the counts; outcomes that are hardly expected are taken together. */
static double chi_square(const int counts[OUTCOMES], const double chances[OUTCOMES], int *freedom) {
  double sum = 0, few = 0;
  int found = 0;
  *freedom = -1;
  for (int o = 0; o < OUTCOMES; o++) {
    const double expected = chances[o] * SEEDS;
    if (expected < 8) {
      few += expected;
      found += counts[o];
      continue;
    }
    sum += (counts[o] - expected) * (counts[o] - expected) / expected;
    (*freedom)++;
  }
  if (few < 1) return sum;
  (*freedom)++;
  return sum + (found - few) * (found - few) / few;
}

/* A prompt 5 9 X 5 9 behind which X, that n-grams find, is among the likeliest. */
static void find_prompt(ls_generator *generator, int32_t prompt[5]) {
  for (int32_t x = 10; x < 67; x++) {
    const int32_t tried[] = {5, 9, x, 5, 9};
    const float *logits;
    int32_t ids[TOP];
    double chances[TOP];
    ls_generator_reset(generator);
    assert_int_equal(ls_generator_feed(generator, tried, 5, &logits, &error), LS_OK);
    three_likeliest(logits, 1, ids, chances);
    memcpy(prompt, tried, sizeof tried);
    if (ids[0] == x || ids[1] == x || ids[2] == x) return;
  }
  fail_msg("no such prompt");
}

/* Seeds 1 to 2000: nothing here is left to luck. A draft of other chances would show at once: the
 * statistic of its own texts is told beside. */
static void sampled_texts_have_the_models_chances(void **state) {
  (void)state;
  static const char *const drafts[] = {TRACES "mistral", TRACES "mistral", NULL};
  int32_t prompt[5];
  const double temperature = 1.3;
  int texts_of[OUTCOMES], freedom;
  double chances[OUTCOMES];
  ls_generator *generator;
  const ls_generator_options options = {
      .folder = TRACES "mistral", .threads = 1, .compute = LS_F32, .rows = 12, .ahead = 3};
  if (ls_generator_create(arena, &options, &generator, &error) != LS_OK) fail_msg("%s", error.text);
  find_prompt(generator, prompt);
  list_outcomes(generator, prompt, 5, temperature, texts_of, chances);
  for (int d = 0; d < 3; d++) {
    const ls_draft_options draft = {.folder = drafts[d], .layers = d == 0, .tokens = 1 + d};
    int counts[OUTCOMES] = {0};
    ls_draft_counts kept = {0};
    if (ls_generator_set_draft(arena, generator, &draft, &error) != LS_OK)
      fail_msg("%s", error.text);
    for (uint64_t n = 1; n <= SEEDS; n++) {
      int made = 0, o = 0;
      ls_generate_end end;
      const ls_generate_request request = {
          .prompt = prompt,
          .prompt_count = 5,
          .most = PLACES,
          .sampling = {.temperature = temperature, .top_k = TOP, .seed = n},
          .token = done_nothing,
          .continues = true,
          .drafts = &kept,
          .context = &made};
      if (ls_generate(generator, &request, &end, &error) != LS_OK) fail_msg("%s", error.text);
      while (o < OUTCOMES && texts_of[o] != made) o++;
      assert_true(o < OUTCOMES);
      counts[o]++;
    }
    const double found = chi_square(counts, chances, &freedom);
    print_message("draft %d: chi-square %.1f of %d, %d of %d kept\n", d, found, freedom,
                  (int)kept.kept, (int)kept.drafted);
    assert_true(freedom > 8);
    assert_true(found < freedom + 3 * sqrt(2.0 * freedom));
    assert_true(kept.kept > 0 && (kept.kept < kept.drafted || d == 1));
  }
  ls_generator_destroy(&generator);
}

static int read_ids(const json_t *list, int32_t *ids) {
  const int count = (int)json_array_size(list);
  for (int i = 0; i < count; i++)
    ids[i] = (int32_t)json_integer_value(json_array_get(list, (size_t)i));
  return count;
}

/* Where others counted rounds: those of the trace's own draft, of four tokens. */
static void run_recorded(const json_t *root, const drafted_case *of, ls_dtype compute) {
  const json_t *prompts = json_object_get(root, "prompts");
  const json_t *outputs = json_object_get(root, "outputs");
  const json_t *rounds = json_object_get(json_object_get(root, "draft_agreement"), "rounds");
  texts *self = LS_NEW(arena, texts);
  self->of = of;
  self->count = (int)json_array_size(prompts);
  assert_int_equal(self->count, 5);
  for (int t = 0; t < self->count; t++) {
    text *each = &self->wanted[t];
    each->count = read_ids(json_array_get(prompts, (size_t)t), each->prompt);
    each->most = each->made = read_ids(json_array_get(outputs, (size_t)t), each->ids);
    assert_int_equal(each->made, 64);
  }
  run_over(self, compute, 110, true);
  for (int t = 0; t < self->count && of->draft && of->tokens == 4; t++) {
    const int counted = (int)json_integer_value(json_array_get(rounds, (size_t)t));
    assert_int_equal(self->found[t].counts.rounds, counted);
    assert_int_equal(self->found[t].counts.kept, 64 - counted);
  }
}

static void texts_and_rounds_are_those_recorded(void **state) {
  (void)state;
  static const char model[] = RECORDED, draft[] = RECORDED "/draft";
  if (!ls_file_exists(RECORDED "/trace.json")) {
    print_message("no " RECORDED " here\n");
    skip();
  }
  static const drafted_case cases[] = {
      {model, draft, 0, 4, 1, 1, 1}, {model, draft, 0, 4, 1, 1, 5}, {model, draft, 0, 4, 2, 1, 1},
      {model, draft, 0, 4, 2, 2, 2}, {model, draft, 0, 4, 2, 1, 3}, {model, draft, 0, 4, 2, 2, 5},
      {model, draft, 0, 2, 4, 2, 4}, {model, NULL, 0, 6, 2, 1, 2},  {model, NULL, 1, 4, 1, 1, 1},
  };
  json_t *root;
  assert_int_equal(ls_json_read(RECORDED "/trace.json", 0, &root, &error), LS_OK);
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
    run_recorded(root, &cases[c], c % 2 ? LS_F64 : LS_F32);
  json_decref(root);
}

static void what_cannot_be_drafted_is_refused(void **state) {
  (void)state;
  ls_generator *generator;
  const ls_generator_options options = {
      .folder = TRACES "mistral", .threads = 1, .compute = LS_F32, .rows = 9, .ahead = 2};
  assert_int_equal(ls_generator_create(arena, &options, &generator, &error), LS_OK);
  const ls_draft_options wrong[] = {
      {.tokens = 3}, {.tokens = 0}, {.folder = TRACES "mistral", .layers = 3, .tokens = 2}};
  for (int w = 0; w < 3; w++)
    assert_int_equal(ls_generator_set_draft(arena, generator, &wrong[w], &error), LS_INPUT);
  assert_non_null(strstr(error.text, "the first 3 layers: the model has 2"));
  ls_generator_destroy(&generator);
}

int main(void) {
  seed = test_seed(20261128);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(greedy_texts_are_the_same, set_up, tear_down),
      cmocka_unit_test_setup_teardown(sampled_texts_have_the_models_chances, set_up, tear_down),
      cmocka_unit_test_setup_teardown(texts_and_rounds_are_those_recorded, set_up, tear_down),
      cmocka_unit_test_setup_teardown(what_cannot_be_drafted_is_refused, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
