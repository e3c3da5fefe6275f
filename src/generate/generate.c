#include "generate/generate.h"

#include "comm/engine.h"
#include "generate/ends.h"
#include "generate/generator.h"
#include "run/rank_threads.h"
#include "session/agree.h"
#include "store/adapters.h"

static ls_decoding_options decoding_options(const ls_generator_options *options, int ranks) {
  const int pp = options->pp > 1 && ranks > 1 ? options->pp : 1;
  const int cp = options->cp > 1 && ranks > 1 ? options->cp : 1;
  return (ls_decoding_options){.compute = options->compute,
                               .device = options->device,
                               .tuning = options->tuning,
                               .tuning_context = options->tuning_context,
                               .threads = options->threads,
                               .rows = options->rows,
                               .sequences = options->sequences,
                               .ahead = options->ahead,
                               .pp = pp,
                               .cp = cp,
                               .tp = ranks / pp / cp};
}

ls_status ls_generator_bytes(ls_arena *arena, const ls_model_config *config,
                             const ls_generator_options *options, int ranks, int64_t *bytes,
                             ls_error *error) {
  ls_decoding planned;
  const ls_decoding_options of = decoding_options(options, ranks);
  LS_TRY(ls_decoding_compile(arena, config, &of, &planned, error));
  *bytes = ls_decoding_bytes(&planned);
  return LS_OK;
}

/* The first layers of a model, whose files have them all. */
static ls_status cut_layers(ls_model_config *config, int64_t layers, ls_error *error) {
  if (layers == 0) return LS_OK;
  if (layers < 1 || layers > config->layers)
    return ls_fail(error, LS_INPUT, "the first %lld layers: the model has %lld", (long long)layers,
                   (long long)config->layers);
  config->stored_layers = config->layers;
  config->layers = layers;
  return LS_OK;
}

static ls_status prepare(ls_arena *arena, const ls_generator_options *options, int ranks,
                         ls_decoding *decoding, ls_error *error) {
  ls_model_config config;
  const ls_decoding_options of = decoding_options(options, ranks);
  LS_TRY(ls_adapters_read(arena, options->folder, &config, error));
  LS_TRY(ls_ends_read(arena, options->folder, &config, error));
  LS_TRY(cut_layers(&config, options->layers, error));
  return ls_decoding_compile(arena, &config, &of, decoding, error);
}

static void hold_sequences(ls_arena *arena, ls_generator *self) {
  const ls_decoding *decoding = self->decoding;
  for (int64_t s = 0; s < decoding->sequences; s++)
    self->sequences[s].ids = LS_NEW_ARRAY(arena, int32_t, decoding->rows);
  self->pending = LS_NEW_ARRAY(arena, ls_decoder_token, decoding->sequences * decoding->rows);
}

static ls_status start(ls_arena *arena, ls_generator *self, const ls_generator_options *options,
                       ls_error *error) {
  self->decoding = LS_NEW(arena, ls_decoding);
  LS_TRY(prepare(arena, options, 1, self->decoding, error));
  LS_TRY(ls_decoding_open(self->decoding, 1, 1, error));
  LS_TRY(ls_world_start(&self->decoding->device.facts, &(ls_world_options){.ranks = 1},
                        &self->world, error));
  hold_sequences(arena, self);
  return ls_decoder_create(arena, self->decoding, ls_world_comm(self->world, 0), options->folder,
                           &self->decoder, error);
}

ls_status ls_generator_create(ls_arena *arena, const ls_generator_options *options,
                              ls_generator **generator, ls_error *error) {
  ls_generator *made = LS_NEW(arena, ls_generator);
  const ls_status status = start(arena, made, options, error);
  if (status != LS_OK) ls_generator_destroy(&made);
  *generator = made;
  return status;
}

static void forget(ls_sequence *of) {
  if (of->scratch) ls_arena_destroy(&of->scratch);
  of->request = NULL;
  of->sampler = NULL;
}

void ls_generator_destroy(ls_generator **generator) {
  ls_generator *self = *generator;
  if (!self) return;
  for (int s = 0; s < LS_MOST_SEQUENCES; s++) forget(&self->sequences[s]);
  ls_draft_destroy(&self->draft);
  ls_decoder_destroy(&self->decoder);
  if (self->world) ls_world_destroy(&self->world);
  *generator = NULL;
}

/* What the threads of a process share. */
typedef struct crew {
  ls_world *world;
  ls_generator_options options;
  ls_decoding decoding;
  ls_generator_use *use;
  void *context;
} crew;

/* Rank 0's rows and sequences, on every process. */
static ls_status share_sizes(ls_comm *comm, void *context, ls_error *error) {
  crew *self = context;
  const int size = ls_comm_size(comm);
  ls_arena *arena = ls_arena_create();
  int *members = LS_NEW_ARRAY(arena, int, size);
  for (int r = 0; r < size; r++) members[r] = r;
  ls_group *all;
  ls_status status = ls_comm_group(comm, members, size, &all, error);
  ls_arena_destroy(&arena);
  LS_TRY(status);
  int64_t sizes[2] = {0};
  if (ls_comm_rank(comm) == 0) {
    sizes[0] = self->options.rows;
    sizes[1] = self->options.sequences;
  }
  ls_comm_about(comm, "how much is to be decoded");
  status = ls_broadcast(all, sizes, 2, LS_I64, 0, error);
  if (status != LS_OK || ls_comm_rank(comm) != ls_world_first_here(self->world)) return status;
  self->options.rows = sizes[0];
  self->options.sequences = sizes[1];
  return LS_OK;
}

static ls_status use_generator(ls_arena *arena, crew *self, ls_decoder *decoder, ls_error *error) {
  ls_generator generator = {.decoding = &self->decoding, .decoder = decoder};
  hold_sequences(arena, &generator);
  ls_status status = self->use(self->context, &generator, error);
  for (int s = 0; s < LS_MOST_SEQUENCES; s++) forget(&generator.sequences[s]);
  ls_draft_destroy(&generator.draft);
  if (status == LS_OK) status = ls_decoder_dismiss(decoder, error);
  return status;
}

static ls_status work(ls_comm *comm, void *context, ls_error *error) {
  crew *self = context;
  ls_decoder *decoder = NULL;
  ls_arena *arena = ls_arena_create();
  ls_status status =
      ls_decoder_create(arena, &self->decoding, comm, self->options.folder, &decoder, error);
  if (status == LS_OK)
    status = ls_comm_rank(comm) == 0 ? use_generator(arena, self, decoder, error)
                                     : ls_decoder_serve(decoder, error);
  ls_decoder_destroy(&decoder);
  ls_arena_destroy(&arena);
  return status;
}

static ls_status prepare_crew(ls_arena *arena, crew *self, ls_error *error) {
  LS_TRY(prepare(arena, &self->options, ls_world_size(self->world), &self->decoding, error));
  return ls_decoding_open(&self->decoding, ls_world_count_on_host(self->world),
                          ls_world_count_here(self->world), error);
}

ls_status ls_generator_run(ls_arena *arena, const ls_generator_options *options, ls_world *world,
                           ls_generator_use *use, void *context, ls_error *error) {
  crew *self = LS_NEW(arena, crew);
  *self = (crew){.world = world, .options = *options, .use = use, .context = context};
  if (ls_world_count_here(world) != ls_world_size(world))
    LS_TRY(ls_rank_threads_run(world, share_sizes, self, error));
  LS_TRY(ls_world_agree(world, prepare_crew(arena, self, error), error));
  return ls_rank_threads_run(world, work, self, error);
}

ls_status ls_generator_set_draft(ls_arena *arena, ls_generator *generator,
                                 const ls_draft_options *options, ls_error *error) {
  ls_draft_destroy(&generator->draft);
  return ls_draft_create(arena, options, generator, &generator->draft, error);
}

void ls_generator_tell(ls_generator *generator, ls_generate_told *told, void *context) {
  generator->told = told;
  generator->told_context = context;
}

const ls_model_config *ls_generator_config(const ls_generator *generator) {
  return &generator->decoding->session.config;
}

int64_t ls_generator_rows(const ls_generator *generator) {
  return generator->decoding->rows;
}

ls_generator_memory ls_generator_memory_of(const ls_generator *generator) {
  const ls_decoding *decoding = generator->decoding;
  const int64_t rows = decoding->places * decoding->sequences;
  return (ls_generator_memory){.bytes = ls_decoding_bytes(decoding),
                               .cache_bytes = ls_decoding_cache_bytes(decoding),
                               .rows = rows,
                               .own_rows = rows / decoding->session.layout.cp};
}

int64_t ls_generator_sequences(const ls_generator *generator) {
  return generator->decoding->sequences;
}

int64_t ls_generator_reused(const ls_generator *generator) {
  return generator->reused;
}

void ls_generator_reset(ls_generator *generator) {
  generator->sequences[0].fed = 0;
}

static ls_status check_feed(const ls_generator *self, const ls_sequence *of, const int32_t *ids,
                            int64_t count, ls_error *error) {
  const int64_t rows = self->decoding->rows, vocabulary = ls_generator_config(self)->vocabulary;
  if (count < 1) return ls_fail(error, LS_INPUT, "no tokens; expected at least one");
  if (count > rows - of->fed)
    return ls_fail(error, LS_INPUT, "%lld tokens after %lld; there is room for %lld in all",
                   (long long)count, (long long)of->fed, (long long)rows);
  for (int64_t i = 0; i < count; i++)
    if (ids[i] < 0 || ids[i] >= vocabulary)
      return ls_fail(error, LS_INPUT, "token %d; expected one below the vocabulary of %lld", ids[i],
                     (long long)vocabulary);
  return LS_OK;
}

/* Those before the last are to be fed without logits, the last with them. */
static ls_status add_tokens(ls_generator *self, int64_t which, const int32_t *ids, int64_t count,
                            ls_error *error) {
  ls_sequence *of = &self->sequences[which];
  LS_TRY(check_feed(self, of, ids, count, error));
  for (int64_t i = 0; i < count - 1; i++)
    self->pending[self->pending_count++] =
        (ls_decoder_token){ids[i], (int32_t)(of->fed + i), (int32_t)which};
  of->next = ids[count - 1];
  return LS_OK;
}

ls_status ls_generator_follow(ls_generator *generator, int64_t which, const int32_t *ids,
                              int64_t count, ls_error *error) {
  ls_sequence *of = &generator->sequences[which];
  int64_t same = 0;
  while (same < of->fed && same + 1 < count && of->ids[same] == ids[same]) same++;
  of->fed = same;
  return add_tokens(generator, which, ids + same, count - same, error);
}

static ls_status run_program(ls_generator *self, int which, const ls_decoder_token *tokens,
                             int64_t count, const float **logits, ls_error *error) {
  LS_TRY(ls_decoder_run(self->decoder, which, tokens, count, logits, error));
  for (int64_t i = 0; i < count; i++) {
    ls_sequence *of = &self->sequences[tokens[i].sequence];
    of->ids[tokens[i].position] = tokens[i].id;
    of->fed = tokens[i].position + 1;
  }
  return LS_OK;
}

ls_status ls_generator_run_tokens(ls_generator *generator, const ls_decoder_token *tokens,
                                  int64_t count, const float **logits, ls_error *error) {
  return run_program(generator, ls_decoding_head(generator->decoding, count), tokens, count, logits,
                     error);
}

static void end(ls_sequence *of, ls_generate_end why) {
  of->ended = true;
  of->end = why;
}

static bool has_enough(const ls_generate_request *request) {
  return request && request->enough && request->enough(request->context);
}

/* Whether all whose prompts are being fed had enough of it; asks each of them. */
static bool all_have_enough(const ls_generator *self) {
  const ls_sequence *last = NULL;
  bool all = true;
  for (int64_t i = 0; i < self->pending_count; i++) {
    const ls_sequence *of = &self->sequences[self->pending[i].sequence];
    if (of != last) all &= has_enough(of->request);
    last = of;
  }
  return all;
}

static ls_status tell_fed(const ls_generator *self, int64_t done, ls_error *error) {
  if (!self->told) return LS_OK;
  return self->told(self->told_context, done, self->pending_count, error);
}

static ls_status feed_programs(ls_generator *self, int64_t *done, ls_error *error) {
  const float *none;
  while (*done < self->pending_count && !all_have_enough(self)) {
    const int which = ls_decoding_choose(self->decoding, *done, self->pending_count - *done);
    const int64_t width = ls_decoding_tokens(self->decoding, which);
    const int64_t tokens = width < self->pending_count ? width : self->pending_count;
    if (*done + tokens > self->pending_count) *done = self->pending_count - tokens;
    LS_TRY(run_program(self, which, self->pending + *done, tokens, &none, error));
    *done += tokens;
    LS_TRY(tell_fed(self, *done, error));
  }
  return LS_OK;
}

ls_status ls_generator_feed_pending(ls_generator *self, ls_error *error) {
  int64_t done = 0;
  if (self->pending_count == 0) return LS_OK;
  LS_TRY(tell_fed(self, 0, error));
  const ls_status status = feed_programs(self, &done, error);
  if (done < self->pending_count) (void)!tell_fed(self, -1, NULL);
  LS_TRY(status);
  for (int64_t i = 0; i < self->pending_count; i++) {
    ls_sequence *of = &self->sequences[self->pending[i].sequence];
    if (self->pending[i].position >= of->fed) end(of, LS_GENERATE_ENOUGH);
  }
  self->pending_count = 0;
  return LS_OK;
}

ls_status ls_generator_feed(ls_generator *generator, const int32_t *ids, int64_t count,
                            const float **logits, ls_error *error) {
  ls_sequence *of = &generator->sequences[0];
  forget(of);
  generator->pending_count = 0;
  LS_TRY(add_tokens(generator, 0, ids, count, error));
  LS_TRY(ls_generator_feed_pending(generator, error));
  return run_program(generator, 0, &(ls_decoder_token){of->next, (int32_t)of->fed, 0}, 1, logits,
                     error);
}

static bool ends_text(const ls_model_config *config, const ls_generate_request *request,
                      int32_t id) {
  for (int e = 0; e < request->end_count; e++)
    if (request->ends[e] == id) return true;
  for (int e = 0; e < config->end_count; e++)
    if (config->end_ids[e] == id) return true;
  return false;
}

/* Takes up a request. */
static ls_status begin(ls_generator *self, int64_t which, const ls_generate_request *request,
                       ls_error *error) {
  ls_sequence *of = &self->sequences[which];
  forget(of);
  of->request = request;
  of->made = 0;
  of->ended = false;
  of->scratch = ls_arena_create();
  of->sampler = ls_sampler_create(of->scratch, (int32_t)ls_generator_config(self)->vocabulary,
                                  &request->sampling);
  if (request->begins) LS_TRY(request->begins(request->context, error));
  if (!request->continues) {
    of->fed = 0;
    if (self->draft) ls_draft_forget(self->draft, which);
  }
  of->drafted = (ls_drafted){0};
  LS_TRY(ls_generator_follow(self, which, request->prompt, request->prompt_count, error));
  self->reused = of->fed;
  return LS_OK;
}

/* The token after those fed, by their logits; *kept: it is the next of those drafted. */
static ls_status choose(ls_sequence *of, const float *logits, int64_t number, int32_t *id,
                        bool *kept, ls_error *error) {
  const ls_drafted *drafted = &of->drafted;
  const uint64_t index = (uint64_t)of->fed;
  *kept = false;
  if (number >= drafted->count) return ls_sampler_next(of->sampler, logits, index, id, error);
  return ls_sampler_verify(of->sampler, logits, index, drafted->ids[number],
                           drafted->sure ? NULL : &drafted->chances[number], id, kept, error);
}

static ls_status take_token(ls_generator *self, ls_sequence *of, int32_t id, ls_error *error) {
  const ls_generate_request *request = of->request;
  if (ends_text(ls_generator_config(self), request, id)) {
    end(of, LS_GENERATE_END_ID);
    return LS_OK;
  }
  LS_TRY(request->token(request->context, id, error));
  of->next = id;
  if (has_enough(request))
    end(of, LS_GENERATE_ENOUGH);
  else if (++of->made == request->most)
    end(of, LS_GENERATE_ALL);
  else if (of->fed == self->decoding->rows)
    end(of, LS_GENERATE_POSITIONS);
  return LS_OK;
}

/* The tokens that a round gives: what was drafted as far as it is kept, and one more. Behind it the
 * caches hold what is not of the text: they are gone back. */
static ls_status take_round(ls_generator *self, ls_sequence *of, const float *logits,
                            ls_error *error) {
  ls_draft_counts *counts = of->request->drafts;
  const int64_t drafted = of->drafted.count;
  of->fed -= drafted;
  if (of->made == of->request->most) {
    end(of, LS_GENERATE_ALL);
    return LS_OK;
  }
  bool kept = true;
  for (int64_t i = 0; kept && !of->ended; i++) {
    int32_t id;
    of->fed += i > 0;
    LS_TRY(choose(of, logits + i * ls_generator_config(self)->vocabulary, i, &id, &kept, error));
    if (counts) counts->kept += kept;
    LS_TRY(take_token(self, of, id, error));
  }
  if (!counts) return LS_OK;
  counts->rounds++;
  counts->drafted += drafted;
  return LS_OK;
}

/* A round of each sequence that has a request: its next token and what is drafted behind it. */
static ls_status decode(ls_generator *self, ls_error *error) {
  ls_decoder_token tokens[LS_MOST_SEQUENCES * (1 + LS_MOST_DRAFTED)];
  int64_t count = 0;
  if (self->draft) LS_TRY(ls_draft_propose(self->draft, self, error));
  for (int64_t s = 0; s < self->decoding->sequences; s++) {
    const ls_sequence *of = &self->sequences[s];
    if (!of->request || of->ended) continue;
    tokens[count++] = (ls_decoder_token){of->next, (int32_t)of->fed, (int32_t)s};
    for (int64_t i = 0; i < of->drafted.count; i++)
      tokens[count++] =
          (ls_decoder_token){of->drafted.ids[i], (int32_t)(of->fed + 1 + i), (int32_t)s};
  }
  if (count == 0) return LS_OK;
  const float *logits;
  LS_TRY(ls_generator_run_tokens(self, tokens, count, &logits, error));
  for (int64_t i = 0; i < count;) {
    ls_sequence *of = &self->sequences[tokens[i].sequence];
    const float *row = logits + i * ls_generator_config(self)->vocabulary;
    i += 1 + of->drafted.count;
    LS_TRY(take_round(self, of, row, error));
  }
  return LS_OK;
}

/* Hands out what has ended: its place is free. */
static ls_status finish(ls_sequence *of, ls_error *error) {
  const ls_generate_request *request = of->request;
  forget(of);
  return request->done ? request->done(request->context, of->end, error) : LS_OK;
}

ls_status ls_generate_all(ls_generator *generator, const ls_generate_request *requests, int count,
                          ls_error *error) {
  ls_sequence *sequences = generator->sequences;
  const int64_t places = generator->decoding->sequences;
  int begun = 0;
  for (int r = 0; r < count; r++) LS_TRY(ls_sampling_check(&requests[r].sampling, error));
  generator->pending_count = 0;
  for (int64_t s = 0; s < places; s++) forget(&sequences[s]);
  for (int done = 0; done < count;) {
    for (int64_t s = 0; s < places; s++)
      if (!sequences[s].request && begun < count)
        LS_TRY(begin(generator, s, &requests[begun++], error));
    LS_TRY(ls_generator_feed_pending(generator, error)); /* prompts of all that begin, together */
    LS_TRY(decode(generator, error));
    for (int64_t s = 0; s < places; s++) {
      if (!sequences[s].request || !sequences[s].ended) continue;
      LS_TRY(finish(&sequences[s], error));
      done++;
    }
  }
  return LS_OK;
}

ls_status ls_generate(ls_generator *generator, const ls_generate_request *request,
                      ls_generate_end *end, ls_error *error) {
  LS_TRY(ls_generate_all(generator, request, 1, error));
  *end = generator->sequences[0].end;
  return LS_OK;
}
