/* Decoding with caches against the evaluation program, and against ids that other code chose. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/random.h"
#include "checkpoint/checkpoint.h"
#include "generate/generate.h"
#include "lower/compile.h"
#include "session/inputs.h"
#include "support/test_seed.h"
#include "text/json.h"

#define STORIES "../shared/data/checkpoints/stories260K"

static const char *const models[] = {
    "tests/data/traces/gpt2-tied",          "tests/data/traces/llama-gqa-free",
    "tests/data/traces/llama-gqa-tied",     "tests/data/traces/deepseek-v3",
    "tests/data/traces/deepseek-v3-halves", "tests/data/traces/deepseek-v2-lite"};
enum { MODELS = sizeof models / sizeof *models, MOST_TOKENS = 512 };

static uint64_t seed;
static ls_arena *arena;

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

static ls_generator *open_model(const char *folder, ls_dtype compute, int64_t rows) {
  ls_error error = {0};
  ls_generator *generator;
  const ls_generator_options options = {
      .folder = folder, .compute = compute, .threads = 1, .rows = rows};
  if (ls_generator_create(arena, &options, &generator, &error) != LS_OK) fail_msg("%s", error.text);
  return generator;
}

static const float *feed(ls_generator *generator, const int32_t *ids, int64_t count) {
  ls_error error = {0};
  const float *logits;
  if (ls_generator_feed(generator, ids, count, &logits, &error) != LS_OK)
    fail_msg("%s", error.text);
  return logits;
}

static int32_t largest(const float *logits, int64_t count) {
  int32_t best = 0;
  for (int32_t i = 1; i < count; i++)
    if (logits[i] > logits[best]) best = i;
  return best;
}

/* What `ls_generate` hands out. */
typedef struct tokens {
  int32_t ids[MOST_TOKENS];
  int64_t count;
} tokens;

static ls_status keep(void *context, int32_t id, ls_error *error) {
  tokens *kept = context;
  if (kept->count == MOST_TOKENS) return ls_fail(error, LS_INTERNAL, "too many tokens");
  kept->ids[kept->count++] = id;
  return LS_OK;
}

static tokens generate(ls_generator *generator, const int32_t *prompt, int64_t count,
                       ls_sampling sampling, int64_t most, ls_generate_end *end) {
  tokens kept = {0};
  ls_error error = {0};
  const ls_generate_request request = {.prompt = prompt,
                                       .prompt_count = count,
                                       .most = most,
                                       .sampling = sampling,
                                       .token = keep,
                                       .context = &kept};
  if (ls_generate(generator, &request, end, &error) != LS_OK) fail_msg("%s", error.text);
  return kept;
}

/* The evaluation program of one sequence in fp64. It never has logits: the loss of one label at a
 * time tells the same. */
typedef struct evaluation {
  ls_session session;
  const ls_program *program;
  ls_device device;
  ls_world *world;
  ls_rank *rank;
} evaluation;

static void evaluation_open(evaluation *self, const char *folder, int64_t sequence) {
  ls_error error = {0};
  const ls_layout layout = {.pp = 1,
                            .dp_replicate = 1,
                            .dp_shard = 1,
                            .cp = 1,
                            .ep = 1,
                            .tp = 1,
                            .microbatches = 1,
                            .layers_per_unit = 1,
                            .compute = LS_F64};
  *self = (evaluation){0};
  assert_int_equal(ls_model_config_read(arena, folder, &self->session.config, &error), LS_OK);
  const ls_build_options options = {
      .mode = LS_MODEL_FORWARD, .tokens = sequence, .sequence = sequence};
  assert_int_equal(
      ls_model_build(arena, &self->session.config, &options, &self->session.graph, &error), LS_OK);
  ls_program *program;
  assert_int_equal(
      ls_program_compile(self->session.graph, &layout, LS_PROGRAM_FORWARD, &program, &error),
      LS_OK);
  self->program = self->session.programs[LS_SESSION_STEP] = program;
  const ls_device_options device = {.compute = LS_F64};
  assert_int_equal(ls_device_open(&device, &self->device, &error), LS_OK);
  assert_int_equal(ls_world_create_threads(1, &self->world, &error), LS_OK);
  const ls_rank_options rank_options = {
      .programs = &self->program, .program_count = 1, .device = &self->device};
  assert_int_equal(
      ls_rank_create(ls_world_comm(self->world, 0), &rank_options, &self->rank, &error), LS_OK);
  assert_int_equal(ls_session_load_weights(&self->session, self->rank, folder, NULL, &error),
                   LS_OK);
}

static void evaluation_close(evaluation *self) {
  ls_rank_destroy(&self->rank);
  ls_world_destroy(&self->world);
}

/* What one token's loss is of. */
typedef struct asked_loss {
  const int32_t *ids;
  int64_t at;
  int32_t label;
} asked_loss;

static ls_status take_tokens(void *context, int64_t step, int64_t first, int64_t count,
                             const ls_batch *batch, ls_error *error) {
  (void)step, (void)error;
  const asked_loss *asked = context;
  for (int64_t i = first; i < first + count; i++) {
    batch->ids[i - first] = asked->ids[i];
    batch->labels[i - first] = i == asked->at ? asked->label : -1;
    batch->positions[i - first] = (int32_t)i;
  }
  return LS_OK;
}

/* -log of the chance of `label` after ids[0..at]. */
static double loss_of(const evaluation *self, const int32_t *ids, int64_t at, int32_t label) {
  asked_loss asked = {ids, at, label};
  const ls_inputs inputs = {.take = take_tokens, .context = &asked};
  ls_error error = {0};
  if (ls_inputs_fill(&inputs, self->rank, 0, 0, 0, &error) != LS_OK ||
      ls_rank_run(self->rank, 0, &error) != LS_OK)
    fail_msg("%s", error.text);
  return ls_rank_cell(self->rank, LS_CELL_MEAN_LOSS);
}

static double log_sum(const float *logits, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; i++) sum += exp((double)logits[i]);
  return log(sum);
}

/* Logits are handed out in fp32, so differences are of its size. */
static void test_decoding_is_evaluation(void **state) {
  (void)state;
  enum { SEQUENCE = 12 };
  for (int m = 0; m < MODELS; m++) {
    evaluation forward;
    evaluation_open(&forward, models[m], SEQUENCE);
    ls_generator *generator = open_model(models[m], LS_F64, SEQUENCE);
    const int64_t vocabulary = ls_generator_config(generator)->vocabulary;
    int32_t ids[SEQUENCE];
    for (int i = 0; i < SEQUENCE; i++)
      ids[i] = (int32_t)(ls_random_bits(seed, 3, (uint64_t)i) % (uint64_t)vocabulary);
    for (int64_t at = 0; at < SEQUENCE; at++) {
      const float *logits = feed(generator, ids + at, 1);
      const double norm = log_sum(logits, vocabulary);
      double smallest = INFINITY;
      int32_t best = -1;
      for (int32_t label = 0; label < vocabulary; label++) {
        const double loss = loss_of(&forward, ids, at, label);
        if (fabs(loss - (norm - (double)logits[label])) > 1e-5)
          fail_msg("%s: token %lld, label %d: %.9g and %.9g", models[m], (long long)at, label, loss,
                   norm - (double)logits[label]);
        if (loss < smallest) best = label, smallest = loss;
      }
      assert_int_equal(best, largest(logits, vocabulary));
    }
    ls_generator_destroy(&generator);
    evaluation_close(&forward);
  }
}

/* The prompt in one go (the wide program, then the narrow one) against one token at a time. */
static void test_prompts_of_any_length(void **state) {
  (void)state;
  for (int m = 0; m < MODELS; m++) {
    ls_error error = {0};
    ls_model_config config;
    assert_int_equal(ls_model_config_read(arena, models[m], &config, &error), LS_OK);
    const int64_t rows = config.positions < 70 ? config.positions : 70;
    ls_generator *one = open_model(models[m], LS_F64, rows);
    ls_generator *many = open_model(models[m], LS_F64, rows);
    int32_t ids[70];
    for (int i = 0; i < rows; i++)
      ids[i] = (int32_t)(ls_random_bits(seed, 4, (uint64_t)i) % (uint64_t)config.vocabulary);
    for (int64_t at = 0; at < rows; at++) {
      const float *expected = feed(one, ids + at, 1);
      ls_generator_reset(many);
      /* In two parts, cut where chance will have it. */
      const int64_t cut = (int64_t)(ls_random_bits(seed, 6, (uint64_t)at) % (uint64_t)(at + 1));
      if (cut) feed(many, ids, cut);
      const float *found = feed(many, ids + cut, at + 1 - cut);
      for (int64_t v = 0; v < config.vocabulary; v++)
        if (fabsf(found[v] - expected[v]) > 1e-6f)
          fail_msg("%s: %lld tokens, cut at %lld: %.9g and %.9g", models[m], (long long)at + 1,
                   (long long)cut, (double)found[v], (double)expected[v]);
    }
    const float *logits;
    assert_int_equal(ls_generator_feed(one, ids, 1, &logits, &error), LS_INPUT);
    ls_generator_destroy(&one);
    ls_generator_destroy(&many);
  }
}

/* Logits of one type against those in fp64, relative to the largest. */
static double logits_distance(const char *model, ls_dtype dtype) {
  enum { TOKENS = 45 };
  ls_generator *exact = open_model(model, LS_F64, TOKENS);
  ls_generator *near = open_model(model, dtype, TOKENS);
  const int64_t rows = ls_generator_rows(exact);
  const int64_t vocabulary = ls_generator_config(exact)->vocabulary;
  int32_t ids[TOKENS];
  for (int i = 0; i < TOKENS; i++)
    ids[i] = (int32_t)(ls_random_bits(seed, 5, (uint64_t)i) % (uint64_t)vocabulary);
  double largest_logit = 0, distance = 0;
  for (int64_t at = 0; at < rows;) {
    const int64_t count = at ? 1 : rows - 5; /* a prompt, then token by token */
    const float *wanted = feed(exact, ids + at, count), *found = feed(near, ids + at, count);
    for (int64_t v = 0; v < vocabulary; v++) {
      largest_logit = fmax(largest_logit, fabs((double)wanted[v]));
      distance = fmax(distance, fabs((double)wanted[v] - (double)found[v]));
      assert_true(isfinite(found[v]));
    }
    at += count;
  }
  ls_generator_destroy(&exact);
  ls_generator_destroy(&near);
  return distance / largest_logit;
}

/* fp32, and types of 8 and of 11 bits: each is as far off as its bits allow, and no nearer. */
static void test_every_dtype(void **state) {
  (void)state;
  static const struct {
    ls_dtype dtype;
    double least, most;
  } types[] = {{LS_F32, 0, 1e-5}, {LS_F16, 1e-5, 0.01}, {LS_BF16, 1e-4, 0.08}};
  for (int m = 0; m < MODELS; m++) {
    for (int t = 0; t < 3; t++) {
      const double distance = logits_distance(models[m], types[t].dtype);
      if (distance <= types[t].most && distance >= types[t].least) continue;
      fail_msg("%s in %s: logits differ by %g of the largest", models[m],
               ls_dtype_name(types[t].dtype), distance);
    }
  }
}

static int32_t *expected_ids(int *count) {
  ls_error error = {0};
  json_t *root;
  assert_int_equal(ls_json_read(STORIES "/expected.json", 0, &root, &error), LS_OK);
  const json_t *ids = json_object_get(json_object_get(root, "greedy"), "ids");
  *count = (int)json_array_size(ids);
  assert_in_range(*count, 100, MOST_TOKENS);
  int32_t *copy = LS_NEW_ARRAY(arena, int32_t, *count);
  for (int i = 0; i < *count; i++)
    copy[i] = (int32_t)json_integer_value(json_array_get(ids, (size_t)i));
  json_decref(root);
  return copy;
}

static void test_greedy_as_llama2c(void **state) {
  (void)state;
  if (!ls_file_exists(STORIES "/expected.json")) {
    print_message("no " STORIES " here\n");
    skip();
  }
  int count;
  const int32_t *expected = expected_ids(&count);
  static const ls_dtype dtypes[] = {LS_F32, LS_F64};
  for (int d = 0; d < 2; d++) {
    ls_generator *generator = open_model(STORIES, dtypes[d], count);
    for (int prompt = 1; prompt < count; prompt += 45) {
      ls_generate_end end;
      const tokens found =
          generate(generator, expected, prompt, (ls_sampling){0}, count - prompt, &end);
      assert_int_equal(end, LS_GENERATE_ALL);
      assert_int_equal(found.count, count - prompt);
      assert_memory_equal(found.ids, expected + prompt, (size_t)found.count * sizeof *found.ids);
    }
    ls_generator_destroy(&generator);
  }
}

static void test_same_seed_same_tokens(void **state) {
  (void)state;
  ls_generator *generator = open_model(models[1], LS_F32, 40);
  const int32_t prompt[] = {3, 1, 4, 1, 5};
  const ls_sampling sampling = {.temperature = 1, .top_p = 0.95, .seed = seed};
  ls_sampling another = sampling;
  another.seed++;
  ls_generate_end end;
  const tokens first = generate(generator, prompt, 5, sampling, 10, &end);
  const tokens again = generate(generator, prompt, 5, sampling, 10, &end);
  const tokens other = generate(generator, prompt, 5, another, 10, &end);
  assert_int_equal(first.count, again.count);
  assert_memory_equal(first.ids, again.ids, (size_t)first.count * sizeof *first.ids);
  /* Ten tokens of a nearly even model: the same by chance once in 1e15. */
  assert_true(first.count != other.count ||
              memcmp(first.ids, other.ids, (size_t)first.count * sizeof *first.ids) != 0);
  ls_generator_destroy(&generator);
}

/* A folder with the files of `model`, and another value of a key in its config.json. */
static const char *with_key(const char *model, const char *folder, const char *key, int value) {
  ls_error error = {0};
  json_t *root;
  assert_int_equal(ls_json_read(ls_arena_printf(arena, "%s/config.json", model), 0, &root, &error),
                   LS_OK);
  json_object_set_new(root, key, json_integer(value));
  char *text = json_dumps(root, 0);
  json_decref(root);
  const char *config = ls_arena_printf(arena, "%s/config.json", folder);
  assert_int_equal(ls_file_write(config, text, strlen(text), &error), LS_OK);
  free(text);
  char *weights;
  size_t bytes;
  assert_int_equal(ls_file_read(arena, ls_arena_printf(arena, "%s/model.safetensors", model),
                                &weights, &bytes, &error),
                   LS_OK);
  const char *copy = ls_arena_printf(arena, "%s/model.safetensors", folder);
  assert_int_equal(ls_file_write(copy, weights, bytes, &error), LS_OK);
  return folder;
}

static void test_ends(void **state) {
  (void)state;
  char folder[] = "/tmp/lockstep-generate-XXXXXX";
  assert_non_null(mkdtemp(folder));
  const int32_t prompt[] = {2, 7};
  ls_generate_end end;
  ls_generator *generator = open_model(models[0], LS_F64, MOST_TOKENS);
  const int64_t rows = ls_generator_rows(generator);
  assert_int_equal(rows, ls_generator_config(generator)->positions);
  const tokens all = generate(generator, prompt, 2, (ls_sampling){0}, MOST_TOKENS, &end);
  assert_int_equal(end, LS_GENERATE_POSITIONS);
  assert_int_equal(all.count, rows - 1); /* the last is never fed */
  ls_generator_destroy(&generator);
  const int32_t last = all.ids[3];
  int64_t before = 0;
  while (all.ids[before] != last) before++;
  generator = open_model(with_key(models[0], folder, "eos_token_id", last), LS_F64, MOST_TOKENS);
  const tokens ended = generate(generator, prompt, 2, (ls_sampling){0}, MOST_TOKENS, &end);
  assert_int_equal(end, LS_GENERATE_END_ID);
  assert_int_equal(ended.count, before);
  ls_generator_destroy(&generator);
  assert_int_equal(ls_directory_remove(folder, NULL), LS_OK);
}

/* generation_config.json says it, whatever config.json does; a request may add to it. */
static void test_ends_of_others(void **state) {
  (void)state;
  char folder[] = "/tmp/lockstep-generate-XXXXXX";
  assert_non_null(mkdtemp(folder));
  const int32_t prompt[] = {2, 7};
  ls_generate_end end;
  ls_generator *generator = open_model(models[0], LS_F64, MOST_TOKENS);
  const tokens all = generate(generator, prompt, 2, (ls_sampling){0}, MOST_TOKENS, &end);
  const int32_t last = all.ids[3];
  int64_t before = 0;
  while (all.ids[before] != last) before++;
  tokens kept = {0};
  ls_error error = {0};
  const ls_generate_request request = {.prompt = prompt,
                                       .prompt_count = 2,
                                       .most = MOST_TOKENS,
                                       .ends = &last,
                                       .end_count = 1,
                                       .token = keep,
                                       .context = &kept};
  assert_int_equal(ls_generate(generator, &request, &end, &error), LS_OK);
  assert_int_equal(end, LS_GENERATE_END_ID);
  assert_int_equal(kept.count, before);
  ls_generator_destroy(&generator);
  static const char *const forms[] = {"{\"eos_token_id\": %d}", "{\"eos_token_id\": [%d, 99999]}"};
  const char *path = ls_arena_printf(arena, "%s/generation_config.json", folder);
  const char *model = with_key(models[0], folder, "eos_token_id", all.ids[0]);
  for (int f = 0; f < 2; f++) {
    char text[64];
    snprintf(text, sizeof text, forms[f], last);
    assert_int_equal(ls_file_write(path, text, strlen(text), &error), LS_OK);
    generator = open_model(model, LS_F64, MOST_TOKENS);
    assert_int_equal(generate(generator, prompt, 2, (ls_sampling){0}, MOST_TOKENS, &end).count,
                     before);
    assert_int_equal(end, LS_GENERATE_END_ID);
    ls_generator_destroy(&generator);
  }
  assert_int_equal(ls_file_write(path, "{\"eos_token_id\": \"x\"}", 21, &error), LS_OK);
  assert_int_equal(
      ls_generator_create(
          arena,
          &(ls_generator_options){.folder = model, .compute = LS_F32, .threads = 1, .rows = 4},
          &generator, &error),
      LS_INPUT);
  assert_non_null(strstr(error.text, "generation_config.json"));
  assert_int_equal(ls_directory_remove(folder, NULL), LS_OK);
}

/* A conversation grows, is changed in its midst, and begins anew: each answer is that of a fresh
 * sequence, and what both have in common is not computed again. */
static void test_what_is_cached_goes_on(void **state) {
  (void)state;
  enum { TURNS = 12, ROWS = 60 };
  ls_generator *fresh = open_model(models[1], LS_F64, ROWS);
  ls_generator *kept = open_model(models[1], LS_F64, ROWS);
  const uint64_t vocabulary = (uint64_t)ls_generator_config(fresh)->vocabulary;
  const int64_t rows = ls_generator_rows(fresh), most = 4;
  int32_t ids[ROWS], cached[ROWS] = {0};
  int64_t count = 0, held = 0, found = 0;
  for (uint64_t t = 0; t < TURNS; t++) {
    const int64_t at = (int64_t)(ls_random_bits(seed, 9, t) % (uint64_t)(count + 1));
    const int64_t length = at + 1 + (int64_t)(ls_random_bits(seed, 10, t) % 9);
    count = length < rows - most ? length : rows - most;
    for (int64_t i = at; i < count; i++)
      ids[i] = (int32_t)(ls_random_bits(seed, 11 + t, (uint64_t)i) % vocabulary);
    int64_t same = 0;
    while (same < held && same < count - 1 && ids[same] == cached[same]) same++;
    ls_generate_end end;
    const tokens expected = generate(fresh, ids, count, (ls_sampling){0}, most, &end);
    assert_int_equal(ls_generator_reused(fresh), 0);
    tokens again = {0};
    ls_error error = {0};
    const ls_generate_request request = {.prompt = ids,
                                         .prompt_count = count,
                                         .most = most,
                                         .continues = true,
                                         .token = keep,
                                         .context = &again};
    assert_int_equal(ls_generate(kept, &request, &end, &error), LS_OK);
    assert_int_equal(ls_generator_reused(kept), same);
    assert_int_equal(again.count, expected.count);
    assert_memory_equal(again.ids, expected.ids, (size_t)again.count * sizeof *again.ids);
    memcpy(cached, ids, (size_t)count * sizeof *ids);
    held = count;
    for (int64_t i = 0; i < again.count && i < most - 1; i++) cached[held++] = again.ids[i];
    /* As a conversation does: the answer is part of what is asked next. */
    memcpy(ids, cached, (size_t)held * sizeof *ids);
    count = held;
    found += same;
  }
  assert_true(found > TURNS);
  ls_generator_destroy(&fresh);
  ls_generator_destroy(&kept);
}

/* How often it is asked before it has enough. */
typedef struct patience {
  tokens kept;
  int left;
} patience;

static ls_status keep_patiently(void *context, int32_t id, ls_error *error) {
  return keep(&((patience *)context)->kept, id, error);
}

static bool has_enough(void *context) {
  return ((patience *)context)->left-- == 0;
}

/* What is told of prompts that are fed. */
typedef struct told_of {
  int64_t done, all;
  int times, fails_at; /* 0: at none */
} told_of;

static ls_status note_fed(void *context, int64_t done, int64_t all, ls_error *error) {
  told_of *self = context;
  assert_true(done == 0 || done > self->done || done == -1);
  *self = (told_of){done, all, self->times + 1, self->fails_at};
  return self->times == self->fails_at ? ls_fail(error, LS_FAILED, "told") : LS_OK;
}

static void test_enough(void **state) {
  (void)state;
  int32_t ids[100] = {0};
  ls_error error = {0};
  told_of told = {.done = 5};
  ls_generator *generator = open_model(models[1], LS_F32, 20);
  ls_generator_tell(generator, note_fed, &told);
  for (int left = 0; left < 4; left++) { /* before the prompt of one program, then tokens */
    patience with = {.left = left};
    ls_generate_end end;
    const ls_generate_request request = {.prompt = ids,
                                         .prompt_count = 9,
                                         .most = 10,
                                         .enough = has_enough,
                                         .token = keep_patiently,
                                         .context = &with};
    assert_int_equal(ls_generate(generator, &request, &end, &error), LS_OK);
    assert_int_equal(end, LS_GENERATE_ENOUGH);
    assert_int_equal(with.kept.count, left);
    assert_int_equal(told.done, left ? 8 : -1); /* the last token is fed with logits */
    assert_int_equal(told.all, 8);
  }
  const float *logits;
  told = (told_of){.fails_at = 2};
  assert_int_equal(ls_generator_feed(generator, ids, 9, &logits, &error), LS_FAILED);
  assert_string_equal(error.text, "told");
  ls_generator_destroy(&generator);
}

/* Prompts for which every program is taken, some of them so that it goes through tokens again. */
static void test_long_prompts(void **state) {
  (void)state;
  enum { ROWS = 1000, PROMPTS = 24 };
  char folder[] = "/tmp/lockstep-generate-XXXXXX";
  assert_non_null(mkdtemp(folder));
  const char *model = with_key(models[1], folder, "max_position_embeddings", ROWS);
  ls_generator *one = open_model(model, LS_F32, ROWS), *many = open_model(model, LS_F32, ROWS);
  const int32_t vocabulary = (int32_t)ls_generator_config(one)->vocabulary;
  int32_t ids[ROWS];
  for (int i = 0; i < ROWS; i++)
    ids[i] = (int32_t)(ls_random_bits(seed, 7, (uint64_t)i) % (uint64_t)vocabulary);
  int fed = 0;
  for (int p = 0; p < PROMPTS; p++) {
    /* Up to some 80 tokens by few, so that they end between the narrow programs; then up to 900. */
    const uint64_t chance = ls_random_bits(seed, 8, (uint64_t)p);
    const int count = fed + (int)(p < PROMPTS / 2 ? 1 + chance % 12 : 55 + chance % 16);
    const float *expected = NULL;
    while (fed < count) expected = feed(one, ids + fed++, 1);
    ls_generator_reset(many);
    told_of told = {0};
    ls_generator_tell(many, note_fed, &told);
    const float *found = feed(many, ids, count);
    assert_int_equal(told.done, count - 1);
    assert_int_equal(told.all, count - 1);
    assert_true(count == 1 ? told.times == 0 : told.times >= 2);
    for (int v = 0; v < vocabulary; v++)
      if (fabsf(found[v] - expected[v]) > 1e-4f * (1 + fabsf(expected[v])))
        fail_msg("%d tokens: logit %d is %.7g and %.7g", count, v, (double)found[v],
                 (double)expected[v]);
  }
  ls_generator_destroy(&one);
  ls_generator_destroy(&many);
  assert_int_equal(ls_directory_remove(folder, NULL), LS_OK);
}

static void test_bad_input(void **state) {
  (void)state;
  ls_error error = {0};
  const char *folder;
  assert_int_equal(ls_checkpoint_find(arena, "no/such/folder", false, &folder, &error), LS_INPUT);
  assert_int_equal(ls_checkpoint_find(arena, "tests", false, &folder, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "config.json"));
  assert_int_equal(ls_checkpoint_find(arena, models[0], false, &folder, &error), LS_OK);
  assert_string_equal(folder, models[0]);
  ls_generator *generator = open_model(models[0], LS_F32, 4);
  const int32_t outside = (int32_t)ls_generator_config(generator)->vocabulary;
  const float *logits;
  assert_int_equal(ls_generator_feed(generator, &outside, 1, &logits, &error), LS_INPUT);
  assert_int_equal(ls_generator_feed(generator, &outside, 0, &logits, &error), LS_INPUT);
  ls_generator_destroy(&generator);
  assert_int_equal(
      ls_generator_create(
          arena,
          &(ls_generator_options){.folder = "tests", .compute = LS_F32, .threads = 1, .rows = 4},
          &generator, &error),
      LS_INPUT);
  assert_null(generator);
}

int main(void) {
  seed = test_seed(20261128);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_decoding_is_evaluation, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_prompts_of_any_length, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_every_dtype, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_greedy_as_llama2c, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_same_seed_same_tokens, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_ends, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_ends_of_others, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_what_is_cached_goes_on, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_enough, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_long_prompts, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_bad_input, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
