#include "generate/generate.h"

#include <string.h>

#include "base/file.h"
#include "check/check.h"
#include "checkpoint/checkpoint.h"
#include "cluster/machine.h"
#include "comm/engine.h"
#include "generate/ends.h"
#include "lower/compile.h"
#include "session/fit.h"
#include "session/inputs.h"
#include "session/prove.h"
#include "store/adapters.h"

/* The rank's programs: one token, and for all of a prompt but its last token many at a time, with
 * no logits. */
enum { DECODE = 0, PROGRAMS_MAX = 11 };
static const int64_t program_tokens[PROGRAMS_MAX] = {1, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512};

struct ls_generator {
  ls_arena *arena;
  ls_session session; /* of the decoding program: what loads weights */
  const ls_program *programs[PROGRAMS_MAX];
  int program_count; /* those of fewer tokens than there is room for */
  ls_device device;
  ls_world *world;
  ls_rank *rank;
  int64_t rows, fed;
  int32_t *ids;   /* that the caches hold, those fed */
  int64_t reused; /* of them by the last request */
  float *logits;
  double *stored; /* as the device has them */
};

/* It decodes this model, all programs keep weights and caches at the same places, and loading fills
 * these weights. */
static ls_status prove(const ls_generator *self, int which, const ls_graph *graph,
                       const ls_layout *layout, ls_error *error) {
  ls_error found = {0};
  const ls_program *const *one = &self->programs[which], *const *decode = &self->programs[DECODE];
  ls_status status = ls_check(graph, layout, one, NULL, &found);
  if (status == LS_OK) status = ls_check_shared(decode, one, 1, &found);
  ls_saving_report report;
  if (status == LS_OK && which == DECODE)
    status = ls_prove_saving(&self->session.config, graph, one, 1, &report, &found);
  if (status == LS_OK) return LS_OK;
  return ls_fail(error, status, "the program that decodes %lld tokens at once is wrong: %s",
                 (long long)program_tokens[which], found.text);
}

static ls_status compile(ls_generator *self, int which, ls_error *error) {
  ls_layout layout = ls_layout_default();
  layout.compute = self->session.layout.compute;
  layout.optimizer.kind = LS_OPTIMIZER_SGD;
  const ls_build_options options = {.mode = LS_MODEL_DECODE,
                                    .tokens = program_tokens[which],
                                    .cache_rows = self->rows,
                                    .headless = which != DECODE};
  ls_graph *graph;
  LS_TRY(ls_model_build(self->arena, &self->session.config, &options, &graph, error));
  ls_program *program;
  LS_TRY(ls_program_compile(graph, &layout, LS_PROGRAM_FORWARD, &program, error));
  self->programs[which] = program;
  LS_TRY(prove(self, which, graph, &layout, error));
  if (which == DECODE) {
    LS_ASSERT(program->logits >= 0);
    self->session.graph = graph;
    self->session.programs[LS_SESSION_STEP] = program;
  }
  return LS_OK;
}

/* Below this many parameters a token takes less time than threads take to meet after every op. */
static const int64_t parameters_for_threads = 30000000;

static int choose_threads(const ls_model_config *config, int asked) {
  if (asked > 0) return asked;
  return ls_model_parameters(config) < parameters_for_threads ? 1 : ls_machine_cores();
}

/* The programs share their state, so the one that needs most has it all. What they keep for an
 * optimizer's moments is mapped and never touched. */
static int64_t bytes_of(const ls_generator *self) {
  int64_t needed = 0;
  for (int p = 0; p < self->program_count; p++) {
    int64_t parts[LS_CATEGORY_COUNT] = {0};
    ls_program_peak(self->programs[p], parts);
    const int64_t bytes = ls_program_tier_bytes(self->programs[p], LS_TIER_DEVICE);
    const int64_t touched = bytes - parts[LS_CATEGORY_MOMENTS];
    if (touched > needed) needed = touched;
  }
  return needed;
}

static ls_status check_memory(const ls_generator *self, ls_error *error) {
  return ls_check_memory(
      bytes_of(self),
      "give dtype=bf16, fewer --max-new-tokens, a smaller --context, or a smaller model", error);
}

static ls_status compile_all(ls_generator *self, ls_dtype compute, int64_t rows, ls_error *error) {
  const int64_t positions = self->session.config.positions;
  self->rows = rows < positions ? rows : positions;
  self->session.layout.compute = compute;
  while (self->program_count < PROGRAMS_MAX &&
         (self->program_count == DECODE || program_tokens[self->program_count] < self->rows)) {
    LS_TRY(compile(self, self->program_count++, error));
  }
  return LS_OK;
}

ls_status ls_generator_bytes(ls_arena *arena, const ls_model_config *config, ls_dtype compute,
                             int64_t rows, int64_t *bytes, ls_error *error) {
  ls_generator planned = {.arena = arena, .session.config = *config};
  LS_TRY(compile_all(&planned, compute, rows, error));
  *bytes = bytes_of(&planned);
  return LS_OK;
}

static ls_status start(ls_generator *self, const ls_generator_options *options, ls_error *error) {
  LS_TRY(ls_adapters_read(self->arena, options->folder, &self->session.config, error));
  LS_TRY(ls_ends_read(self->arena, options->folder, &self->session.config, error));
  LS_TRY(compile_all(self, options->compute, options->rows, error));
  LS_TRY(check_memory(self, error));
  const ls_device_options device = {
      .compute = options->compute,
      .threads = choose_threads(&self->session.config, options->threads)};
  LS_TRY(ls_device_open(&device, &self->device, error));
  LS_TRY(ls_world_start(&self->device.facts, &(ls_world_options){.ranks = 1}, &self->world, error));
  LS_TRY(ls_rank_create(ls_world_comm(self->world, 0),
                        &(ls_rank_options){.programs = self->programs,
                                           .program_count = self->program_count,
                                           .device = &self->device},
                        &self->rank, error));
  self->ids = LS_NEW_ARRAY(self->arena, int32_t, self->rows);
  self->logits = LS_NEW_ARRAY(self->arena, float, self->session.config.vocabulary);
  self->stored = LS_NEW_ARRAY(self->arena, double, self->session.config.vocabulary);
  return ls_session_load_weights(&self->session, self->rank, options->folder, NULL, error);
}

ls_status ls_generator_create(ls_arena *arena, const ls_generator_options *options,
                              ls_generator **generator, ls_error *error) {
  ls_generator *made = LS_NEW(arena, ls_generator);
  made->arena = arena;
  const ls_status status = start(made, options, error);
  if (status != LS_OK) ls_generator_destroy(&made);
  *generator = made;
  return status;
}

void ls_generator_destroy(ls_generator **generator) {
  if (!*generator) return;
  ls_rank_destroy(&(*generator)->rank);
  if ((*generator)->world) ls_world_destroy(&(*generator)->world);
  *generator = NULL;
}

const ls_model_config *ls_generator_config(const ls_generator *generator) {
  return &generator->session.config;
}

int64_t ls_generator_rows(const ls_generator *generator) {
  return generator->rows;
}

int64_t ls_generator_reused(const ls_generator *generator) {
  return generator->reused;
}

void ls_generator_reset(ls_generator *generator) {
  generator->fed = 0;
}

static ls_status check_feed(const ls_generator *self, const int32_t *ids, int64_t count,
                            ls_error *error) {
  if (count < 1) return ls_fail(error, LS_INPUT, "no tokens; expected at least one");
  if (count > self->rows - self->fed)
    return ls_fail(error, LS_INPUT, "%lld tokens after %lld; there is room for %lld in all",
                   (long long)count, (long long)self->fed, (long long)self->rows);
  for (int64_t i = 0; i < count; i++)
    if (ids[i] < 0 || ids[i] >= self->session.config.vocabulary)
      return ls_fail(error, LS_INPUT, "token %d; expected one below the vocabulary of %lld", ids[i],
                     (long long)self->session.config.vocabulary);
  return LS_OK;
}

/* What is fed, and how many tokens came before. */
typedef struct feed {
  const int32_t *ids;
  int64_t before;
} feed;

static ls_status take_tokens(void *context, int64_t step, int64_t first, int64_t count,
                             const ls_batch *batch, ls_error *error) {
  (void)step, (void)error;
  const feed *from = context;
  for (int64_t i = 0; i < count; i++) {
    batch->ids[i] = from->ids[first + i];
    batch->positions[i] = (int32_t)(from->before + first + i);
  }
  return LS_OK;
}

/* The next tokens go through one program. */
static ls_status run_program(ls_generator *self, int which, const int32_t *ids, ls_error *error) {
  feed from = {ids, self->fed};
  const ls_inputs inputs = {.take = take_tokens, .context = &from};
  LS_TRY(ls_inputs_fill(&inputs, self->rank, which, 0, 0, error));
  LS_TRY(ls_rank_run(self->rank, which, error));
  memcpy(self->ids + self->fed, ids, sizeof *ids * (size_t)self->programs[which]->tokens);
  self->fed += self->programs[which]->tokens;
  return LS_OK;
}

/* The widest program for `left` tokens of a prompt. */
static int widest_program(const ls_generator *self, int64_t left) {
  int which = self->program_count - 1;
  while (which != DECODE && self->programs[which]->tokens > left) which--;
  return which;
}

/* What a program takes, in tokens: of few of them it is the time for reading the weights. */
static int64_t program_work(const ls_generator *self, int which) {
  enum { WEIGHTS = 16 };
  const int64_t tokens = self->programs[which]->tokens;
  return tokens > WEIGHTS ? tokens : WEIGHTS;
}

/* The program for the next of `left` tokens of a prompt, of which `done` have been fed: the widest,
 * or the next wider one, which goes through some of those once more, where that takes less. */
static int choose_program(const ls_generator *self, int64_t done, int64_t left) {
  const int widest = widest_program(self, left), wider = widest + 1;
  if (wider == self->program_count || self->programs[wider]->tokens > done + left) return widest;
  int64_t work = 0;
  for (int64_t rest = left; rest > 0;) {
    const int which = widest_program(self, rest);
    work += program_work(self, which);
    rest -= self->programs[which]->tokens;
  }
  return program_work(self, wider) < work ? wider : widest;
}

static bool has_enough(const ls_generate_request *request) {
  return request->enough && request->enough(request->context);
}

/* As ls_generator_feed; *logits NULL where the request had enough before the last token. */
static ls_status feed_tokens(ls_generator *self, const int32_t *ids, int64_t count,
                             const ls_generate_request *request, const float **logits,
                             ls_error *error) {
  *logits = NULL;
  LS_TRY(check_feed(self, ids, count, error));
  const int64_t headless = count - 1; /* the last token's program has logits */
  for (int64_t done = 0; done < headless;) {
    if (request && has_enough(request)) return LS_OK;
    const int which = choose_program(self, done, headless - done);
    const int64_t excess = done + self->programs[which]->tokens - headless;
    const int64_t again = excess > 0 ? excess : 0;
    self->fed -= again;
    done -= again;
    LS_TRY(run_program(self, which, ids + done, error));
    done += self->programs[which]->tokens;
  }
  LS_TRY(run_program(self, DECODE, ids + headless, error));
  const ls_program *last = self->programs[DECODE];
  const int64_t vocabulary = self->session.config.vocabulary;
  const ls_dtype dtype = last->values.items[last->logits].dtype;
  LS_TRY(ls_rank_get(self->rank, DECODE, last->logits, 0, self->stored, vocabulary, error));
  ls_convert(self->logits, LS_F32, self->stored, dtype, vocabulary);
  *logits = self->logits;
  return LS_OK;
}

ls_status ls_generator_feed(ls_generator *generator, const int32_t *ids, int64_t count,
                            const float **logits, ls_error *error) {
  return feed_tokens(generator, ids, count, NULL, logits, error);
}

static bool ends_text(const ls_model_config *config, const ls_generate_request *request,
                      int32_t id) {
  for (int e = 0; e < request->end_count; e++)
    if (request->ends[e] == id) return true;
  for (int e = 0; e < config->end_count; e++)
    if (config->end_ids[e] == id) return true;
  return false;
}

/* Goes back to where the prompt and what is cached part; the last token is always computed, since
 * its logits are asked for. */
static void keep_common(ls_generator *self, const ls_generate_request *request) {
  int64_t same = 0;
  while (same < self->fed && same + 1 < request->prompt_count &&
         self->ids[same] == request->prompt[same])
    same++;
  self->fed = request->continues ? same : 0;
  self->reused = self->fed;
}

static ls_status generate(ls_generator *self, ls_arena *scratch, const ls_generate_request *request,
                          ls_generate_end *end, ls_error *error) {
  const ls_model_config *config = &self->session.config;
  ls_sampler *sampler = ls_sampler_create(scratch, (int32_t)config->vocabulary, &request->sampling);
  const float *logits;
  keep_common(self, request);
  LS_TRY(feed_tokens(self, request->prompt + self->reused, request->prompt_count - self->reused,
                     request, &logits, error));
  *end = LS_GENERATE_ENOUGH;
  for (int64_t made = 0; made < request->most && logits; made++) {
    int32_t id;
    LS_TRY(ls_sampler_next(sampler, logits, (uint64_t)self->fed, &id, error));
    *end = LS_GENERATE_END_ID;
    if (ends_text(config, request, id)) return LS_OK;
    LS_TRY(request->token(request->context, id, error));
    *end = LS_GENERATE_ENOUGH;
    if (has_enough(request)) return LS_OK;
    *end = LS_GENERATE_POSITIONS;
    if (made + 1 == request->most) break;
    if (self->fed == self->rows) return LS_OK;
    LS_TRY(feed_tokens(self, &id, 1, NULL, &logits, error));
  }
  if (logits) *end = LS_GENERATE_ALL;
  return LS_OK;
}

ls_status ls_generate(ls_generator *generator, const ls_generate_request *request,
                      ls_generate_end *end, ls_error *error) {
  LS_TRY(ls_sampling_check(&request->sampling, error));
  ls_arena *scratch = ls_arena_create();
  const ls_status status = generate(generator, scratch, request, end, error);
  ls_arena_destroy(&scratch);
  return status;
}
