#include "generate/decoding.h"

#include <stdio.h>

#include "check/check.h"
#include "cluster/machine.h"
#include "lower/compile.h"
#include "session/fit.h"
#include "session/prove.h"

static const int64_t prompt_tokens[] = {8, 16, 32, 64, 96, 128, 192, 256, 384, 512};
enum { PROMPT_PROGRAMS = sizeof prompt_tokens / sizeof *prompt_tokens };

/* It decodes this model, all programs keep weights and caches at the same places, and loading fills
 * these weights. */
static ls_status prove(const ls_decoding *self, int which, const ls_graph *graph,
                       const ls_layout *layout, ls_error *error) {
  ls_error found = {0};
  const ls_program *const *stages = self->stages[which];
  ls_status status = ls_check(graph, layout, stages, NULL, &found);
  if (status == LS_OK) status = ls_check_shared(self->stages[0], stages, layout->pp, &found);
  ls_saving_report report;
  if (status == LS_OK && which == 0)
    status = ls_prove_saving(&self->session.config, graph, stages, layout->pp, &report, &found);
  if (status == LS_OK) return LS_OK;
  return ls_fail(error, status, "the program that decodes %lld tokens at once is wrong: %s",
                 (long long)ls_decoding_tokens(self, which), found.text);
}

static ls_status compile(ls_decoding *self, int64_t tokens, bool headless, ls_error *error) {
  const ls_layout *layout = &self->session.layout;
  const int which = self->count++;
  const ls_build_options options = {.mode = LS_MODEL_DECODE,
                                    .tokens = tokens,
                                    .cache_rows = self->rows,
                                    .sequences = self->sequences,
                                    .headless = headless,
                                    .turns = layout->cp};
  self->places = ls_build_sequence_rows(&options);
  ls_graph *graph;
  LS_ASSERT(which < LS_MAX_PROGRAMS);
  LS_TRY(ls_model_build(self->arena, &self->session.config, &options, &graph, error));
  for (int p = 0; p < graph->parameters.count; p++) graph->parameters.items[p].trainable = false;
  ls_program **stages = LS_NEW_ARRAY(self->arena, ls_program *, layout->pp);
  LS_TRY(ls_program_compile(graph, layout, LS_PROGRAM_FORWARD, stages, error));
  self->stages[which] = (const ls_program *const *)stages;
  LS_ASSERT(headless || stages[layout->pp - 1]->logits >= 0);
  if (which == 0) {
    self->session.graph = graph;
    self->session.programs[LS_SESSION_STEP] = stages[0];
  }
  return prove(self, which, graph, layout, error);
}

/* A program for as many tokens, or a few more, so that ranks of cp have as many each; none where
 * the last of those from `first` on takes them. */
static ls_status compile_next(ls_decoding *self, int first, int64_t tokens, bool headless,
                              ls_error *error) {
  const int64_t ranks = self->session.layout.cp, whole = (tokens + ranks - 1) / ranks * ranks;
  if (self->count > first && ls_decoding_tokens(self, self->count - 1) >= whole) return LS_OK;
  return compile(self, whole, headless, error);
}

/* Programs with logits for a token of 1, 2, 4 ... sequences, up to all, and for as many times what
 * a draft proposes, in their order. */
static ls_status compile_heads(ls_decoding *self, ls_error *error) {
  const int64_t room = self->rows - 1, ahead = self->options.ahead;
  const int64_t several = 1 + (ahead < room ? ahead : room > 0 ? room : 0);
  int64_t most = 1, one = 1, all = several;
  while (most < self->sequences) most *= 2;
  while (one <= most || all <= several * most) {
    const bool next = one <= most && one <= all;
    const int64_t tokens = next ? one : all;
    if (all == tokens) all *= 2;
    if (one == tokens) one *= 2;
    LS_TRY(compile_next(self, 0, tokens, false, error));
  }
  return LS_OK;
}

/* Programs for tokens of prompts, the widest with as many for each rank of cp as one device has. */
static ls_status compile_prompts(ls_decoding *self, bool headless, ls_error *error) {
  const int64_t widest = prompt_tokens[PROMPT_PROGRAMS - 1] * self->session.layout.cp;
  int64_t tokens = prompt_tokens[0];
  for (int p = 1; tokens <= widest && tokens < self->sequences * self->rows; p++) {
    LS_TRY(compile_next(self, self->heads, tokens, headless, error));
    tokens = p < PROMPT_PROGRAMS ? prompt_tokens[p] : 2 * tokens;
  }
  return LS_OK;
}

ls_status ls_decoding_compile(ls_arena *arena, const ls_model_config *config,
                              const ls_decoding_options *options, ls_decoding *decoding,
                              ls_error *error) {
  const int64_t sequences = options->sequences > 1 ? options->sequences : 1;
  LS_ASSERT(sequences <= LS_MOST_SEQUENCES);
  *decoding = (ls_decoding){.arena = arena, .options = *options, .sequences = sequences};
  decoding->session.config = *config;
  decoding->session.layout = ls_layout_default();
  decoding->session.layout.compute = options->compute;
  decoding->session.layout.pp = options->pp > 1 ? options->pp : 1;
  decoding->session.layout.cp = options->cp > 1 ? options->cp : 1;
  decoding->session.layout.tp = options->tp > 1 ? options->tp : 1;
  decoding->session.layout.zero = 0; /* no weights are gathered for a token */
  decoding->session.layout.optimizer.kind = LS_OPTIMIZER_SGD;
  decoding->rows = options->rows < config->positions ? options->rows : config->positions;
  /* Stages are cut alike where all have a head, and a table is on the last where it is one's. */
  const bool staged = options->pp > 1;
  LS_TRY(compile_heads(decoding, error));
  decoding->heads = decoding->count;
  return compile_prompts(decoding, !staged, error);
}

/* The programs share their state, so the one that needs most has it all. */
int64_t ls_decoding_bytes(const ls_decoding *decoding) {
  int64_t needed = 0;
  for (int p = 0; p < decoding->count; p++)
    for (int s = 0; s < decoding->session.layout.pp; s++) {
      const ls_program *program = decoding->stages[p][s];
      const int64_t bytes = ls_program_tier_bytes(program, LS_TIER_DEVICE);
      if (bytes > needed) needed = bytes;
    }
  return needed;
}

int64_t ls_decoding_cache_bytes(const ls_decoding *decoding) {
  int64_t most = 0;
  for (int s = 0; s < decoding->session.layout.pp; s++) {
    int64_t parts[LS_CATEGORY_COUNT] = {0};
    ls_program_peak(decoding->stages[0][s], parts);
    if (parts[LS_CATEGORY_CACHES] > most) most = parts[LS_CATEGORY_CACHES];
  }
  return most;
}

/* Whether so many bytes of each of the ranks of this host are there. */
static ls_status check_bytes(const ls_decoding *self, int ranks, int64_t each, const char *advice,
                             ls_error *error) {
  const int64_t asked = self->options.device ? self->options.device->memory : 0;
  const int64_t limit = asked ? asked : self->device.facts.memory_bytes;
  const double mib = 1 << 20;
  if (limit && each > limit)
    return ls_fail(error, LS_REFUTED, "%s: a device needs %.1f MiB and may use %.1f: %s",
                   asked ? "device.memory" : self->device.facts.name, (double)each / mib,
                   (double)limit / mib, advice);
  if (self->device.memory->used) return LS_OK; /* it is not the host's */
  return ls_check_memory(ranks * each, advice, error);
}

/* Half as many sequences, and half of these, until memory holds them; 0: it holds not even one. */
static int64_t sequences_that_fit(const ls_decoding *self, int ranks) {
  ls_decoding_options options = self->options;
  int64_t fits = 0;
  ls_arena *arena = ls_arena_create();
  ls_decoding fewer;
  for (options.sequences = self->sequences / 2; options.sequences && !fits; options.sequences /= 2)
    if (ls_decoding_compile(arena, &self->session.config, &options, &fewer, NULL) == LS_OK &&
        check_bytes(self, ranks, ls_decoding_bytes(&fewer), "", NULL) == LS_OK)
      fits = options.sequences;
  ls_arena_destroy(&arena);
  return fits;
}

static ls_status check_memory(const ls_decoding *self, int ranks, ls_error *error) {
  static const char usual[] =
      "give dtype=bf16, fewer --max-new-tokens, a smaller --context, or a smaller model";
  const int64_t needed = ls_decoding_bytes(self);
  if (check_bytes(self, ranks, needed, usual, error) == LS_OK) return LS_OK;
  const int64_t fits = self->sequences > 1 ? sequences_that_fit(self, ranks) : 0;
  if (!fits) return LS_REFUTED;
  char advice[96];
  snprintf(advice, sizeof advice, "batches of %lld prompts fit: give --batch %lld", (long long)fits,
           (long long)fits);
  return check_bytes(self, ranks, needed, advice, error);
}

/* Below this many parameters a token takes less time than threads take to meet after every op. */
static const int64_t parameters_for_threads = 30000000;

static int choose_threads(const ls_decoding *self, int ranks_here) {
  const int asked = self->options.threads, cores = ls_machine_cores() / ranks_here;
  if (asked > 0) return asked;
  if (ls_model_parameters(&self->session.config) < parameters_for_threads) return 1;
  return cores > 1 ? cores : 1;
}

ls_status ls_decoding_open(ls_decoding *decoding, int ranks_on_host, int ranks_here,
                           ls_error *error) {
  const ls_run_device *of = decoding->options.device;
  const ls_device_options device = {.kind = of && ls_run_device_is_gpu(of) ? "cuda" : NULL,
                                    .compute = decoding->options.compute,
                                    .threads = choose_threads(decoding, ranks_here),
                                    .loopback = of && of->loopback};
  LS_TRY(ls_device_open(&device, &decoding->device, error));
  if (of) decoding->device.graphs = decoding->device.graphs && of->graphs;
  LS_TRY(check_memory(decoding, ranks_on_host, error));
  decoding->session.device = decoding->device;
  return LS_OK;
}

int64_t ls_decoding_tokens(const ls_decoding *decoding, int which) {
  return decoding->stages[which][0]->tokens;
}

int ls_decoding_head(const ls_decoding *decoding, int64_t tokens) {
  int which = 0;
  while (ls_decoding_tokens(decoding, which) < tokens) which++;
  LS_ASSERT(which < decoding->heads);
  return which;
}

/* The widest program that `left` tokens of prompts fill. */
static int widest_program(const ls_decoding *self, int64_t left) {
  int which = self->count - 1;
  while (which > 0 && ls_decoding_tokens(self, which) > left) which--;
  return which;
}

/* What a program takes, in tokens of a rank: of few of them it is the time for reading the weights.
 */
static int64_t program_work(const ls_decoding *self, int which) {
  enum { WEIGHTS = 16 };
  const int64_t tokens = ls_decoding_tokens(self, which) / self->session.layout.cp;
  return tokens > WEIGHTS ? tokens : WEIGHTS;
}

int ls_decoding_choose(const ls_decoding *decoding, int64_t done, int64_t left) {
  const int widest = widest_program(decoding, left);
  const int wider = widest < decoding->heads ? decoding->heads : widest + 1;
  if (wider >= decoding->count || ls_decoding_tokens(decoding, wider) > done + left) return widest;
  int64_t work = 0;
  for (int64_t rest = left; rest > 0;) {
    const int which = widest_program(decoding, rest);
    work += program_work(decoding, which);
    rest -= ls_decoding_tokens(decoding, which);
  }
  return program_work(decoding, wider) < work ? wider : widest;
}
