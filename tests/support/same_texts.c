#include "support/same_texts.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"

const ls_test_family ls_test_families[] = {
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
const int ls_test_family_count = sizeof ls_test_families / sizeof *ls_test_families;

ls_status ls_test_text_keep(void *context, int32_t id, ls_error *unused) {
  ls_test_text *of = context;
  (void)unused;
  of->ids[of->made++] = id;
  return LS_OK;
}

static ls_status begins(void *context, ls_error *unused) {
  (void)unused;
  ((ls_test_text *)context)->begun++;
  return LS_OK;
}

static ls_status done(void *context, ls_generate_end end, ls_error *unused) {
  ls_test_text *of = context;
  (void)unused;
  of->done++;
  of->end = end;
  return LS_OK;
}

/* Every other one is sampled. */
static ls_generate_request request_of(uint64_t seed, ls_test_text *of, int number) {
  return (ls_generate_request){
      .prompt = of->prompt,
      .prompt_count = of->count,
      .most = 3 + (number * 5) % (LS_TEST_LONGEST_TEXT - 2),
      .sampling = {.temperature = number % 2 ? 0.9 : 0, .top_p = 0.95, .seed = seed},
      .token = ls_test_text_keep,
      .begins = begins,
      .done = done,
      .context = of};
}

static void draw_prompts(ls_test_texts *self, int64_t rows) {
  for (int r = 0; r < LS_TEST_TEXTS; r++) {
    ls_test_text *of = &self->all[r];
    of->count = 1 + (int64_t)(ls_random_bits(self->seed, 2, (uint64_t)r) % LS_TEST_LONGEST_PROMPT);
    if (r == 0)
      of->count = 2; /* but one token, which no program takes alone where ranks share it */
    if (of->count > rows - 2) of->count = rows - 2;
    if (of->count > self->all[self->longest].count) self->longest = r;
    for (int64_t i = 0; i < of->count; i++)
      of->prompt[i] = (int32_t)(ls_random_bits(self->seed, 3 + (uint64_t)r, (uint64_t)i) %
                                (uint64_t)self->vocabulary);
  }
}

void ls_test_texts_expect(ls_arena *arena, uint64_t seed, const char *folder, ls_test_texts *self) {
  ls_error error = {0};
  const ls_generator_options options = {.folder = folder,
                                        .compute = LS_F64,
                                        .threads = 1,
                                        .rows = LS_TEST_LONGEST_PROMPT + LS_TEST_LONGEST_TEXT};
  ls_generator *one;
  const float *logits;
  *self = (ls_test_texts){.folder = folder, .seed = seed};
  if (ls_generator_create(arena, &options, &one, &error) != LS_OK) fail_msg("%s", error.text);
  self->vocabulary = ls_generator_config(one)->vocabulary;
  draw_prompts(self, ls_generator_rows(one));
  for (int r = 0; r < LS_TEST_TEXTS; r++) {
    const ls_generate_request request = request_of(self->seed, &self->all[r], r);
    if (ls_generate(one, &request, &self->all[r].end, &error) != LS_OK)
      fail_msg("%s: %s", folder, error.text);
  }
  const ls_test_text *longest = &self->all[self->longest];
  ls_generator_reset(one);
  assert_int_equal(ls_generator_feed(one, longest->prompt, longest->count, &logits, &error), LS_OK);
  self->logits = LS_NEW_ARRAY(arena, float, self->vocabulary);
  memcpy(self->logits, logits, sizeof *logits * (size_t)self->vocabulary);
  ls_generator_destroy(&one);
}

/* Not for the thread of a rank: what fails there is said as an error. */
static ls_status compare(const ls_test_texts *of, int number, const ls_test_text *found,
                         ls_error *failed) {
  const ls_test_text *wanted = &of->all[number];
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
  const ls_test_texts *of = context;
  ls_test_text found[LS_TEST_TEXTS];
  ls_generate_request requests[LS_TEST_TEXTS];
  for (int r = 0; r < LS_TEST_TEXTS; r++) {
    found[r] = of->all[r];
    found[r].made = found[r].begun = found[r].done = 0;
    requests[r] = request_of(of->seed, &found[r], r);
  }
  LS_TRY(ls_generate_all(generator, requests, LS_TEST_TEXTS, failed));
  for (int r = 0; r < LS_TEST_TEXTS; r++) LS_TRY(compare(of, r, &found[r], failed));
  const ls_test_text *longest = &of->all[of->longest];
  const float *logits;
  ls_generator_reset(generator);
  LS_TRY(ls_generator_feed(generator, longest->prompt, longest->count, &logits, failed));
  for (int64_t v = 0; v < of->vocabulary; v++)
    if (!(fabsf(logits[v] - of->logits[v]) <= 1e-6f * (1 + fabsf(of->logits[v]))))
      return ls_fail(failed, LS_REFUTED, "logit %d is %.9g; expected %.9g", (int)v,
                     (double)logits[v], (double)of->logits[v]);
  return LS_OK;
}

void ls_test_texts_compare(const ls_test_texts *texts, int ranks,
                           const ls_generator_options *layout) {
  ls_generator_options options = *layout;
  ls_world *world;
  ls_error error = {0};
  ls_arena *own = ls_arena_create();
  options.folder = texts->folder;
  options.compute = LS_F64;
  options.threads = 1;
  options.rows = LS_TEST_LONGEST_PROMPT + LS_TEST_LONGEST_TEXT;
  assert_int_equal(ls_world_create_threads(ranks, &world, &error), LS_OK);
  if (ls_generator_run(own, &options, world, use, (void *)texts, &error) != LS_OK)
    fail_msg("%s, %d ranks, pp %d, cp %d, %d sequences: %s", texts->folder, ranks, options.pp,
             options.cp, (int)options.sequences, error.text);
  ls_world_destroy(&world);
  ls_arena_destroy(&own);
}
