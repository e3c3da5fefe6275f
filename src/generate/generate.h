/* Text out of a trained model, one token after the other, with a cache of keys and values: of one
 * sequence or of several at once, on one device or cut over several (mesh.tp, mesh.cp, mesh.pp).
 *
 *   ls_generator *generator;
 *   LS_TRY(ls_generator_create(arena, &(ls_generator_options){.folder = folder, .compute = LS_F32,
 *                                                             .threads = 2, .rows = 512},
 *                              &generator, error));
 *   LS_TRY(ls_generate(generator, &request, &end, error));
 *   ls_generator_destroy(&generator);
 *
 * A generator belongs to one thread. */
#ifndef LS_GENERATE_GENERATE_H
#define LS_GENERATE_GENERATE_H

#include "comm/comm.h"
#include "generate/decoding.h"
#include "generate/sampling.h"
#include "model/model.h"

typedef struct ls_generator ls_generator;

typedef struct ls_generator_options {
  const char *folder; /* with config.json and weights, as Hugging Face lays them out; where it has a
                       * generation_config.json, that says which ids end a text */
  ls_dtype compute;   /* LS_F32, LS_BF16, LS_F16 or LS_F64 */
  int threads;        /* of the kernels; 0: what suits the model */
  const ls_run_device *device; /* as a run has it: GPUs where it takes them, how much of their
                                * memory, whether they replay graphs and time their ways of products
                                * (auto: they do not); NULL: the CPU. It outlives the generator */
  void (*tuning)(void *context, const ls_rank_tuning *said); /* as in ls_rank_options */
  void *tuning_context;
  int64_t rows;      /* the most tokens that are ever fed: cut at the model's positions */
  int64_t sequences; /* that are decoded at once, at most LS_MOST_SEQUENCES; 0: one */
  int64_t layers;    /* of the model, its first; 0: all */
  int64_t ahead;     /* tokens of a draft that are verified at once, at most LS_MOST_DRAFTED */
  int pp, cp; /* stages that ls_generator_run cuts the layers over, and ranks of each that share
               * tokens and rows of the caches; 0: one */
} ls_generator_options;

/* Bytes that each of so many ranks of a generator with these options takes: compiles it, and maps
 * nothing. `config` is as ls_adapters_read gives it. LS_INPUT: so many ranks cannot be. */
LS_CHECKED ls_status ls_generator_bytes(ls_arena *arena, const ls_model_config *config,
                                        const ls_generator_options *options, int ranks,
                                        int64_t *bytes, ls_error *error);

/* What uses a generator. */
typedef ls_status ls_generator_use(void *context, ls_generator *generator, ls_error *error);

/* A generator on all ranks of a world, which cut the model over mesh.pp and, within a
 * stage, tokens and caches over mesh.cp, heads over mesh.tp, which has the rest of them: `use` is
 * called once, on the thread of rank 0, and the others decode what it asks for. What rank 0's
 * process gives as rows and sequences holds for all. Errors: those of ls_generator_create, on all
 * processes; those of `use`. Collective: all processes. */
LS_CHECKED ls_status ls_generator_run(ls_arena *arena, const ls_generator_options *options,
                                      ls_world *world, ls_generator_use *use, void *context,
                                      ls_error *error);

/* Compiles the programs and loads the weights, on one device, of the calling thread. The arena must
 * outlive the generator. */
LS_CHECKED ls_status ls_generator_create(ls_arena *arena, const ls_generator_options *options,
                                         ls_generator **generator, ls_error *error);
void ls_generator_destroy(ls_generator **generator);

const ls_model_config *ls_generator_config(const ls_generator *generator);

/* What drafts tokens that the generator's model then verifies, several in one go: a smaller model,
 * or the text so far. */
typedef struct ls_draft_options {
  const char *folder; /* of the model; NULL: what stood in the text behind the same tokens before */
  int64_t layers;     /* of that model, its first; 0: all */
  int64_t tokens;     /* at once: at most the generator's `ahead` */
} ls_draft_options;

/* What became of a draft. */
typedef struct ls_draft_counts {
  int64_t rounds, drafted, kept; /* kept: that the model would have chosen, too */
} ls_draft_counts;

/* From now on texts are drafted: the same where the likeliest token is taken, as far as rounding
 * does not depend on how many tokens are computed at once, and of the same chances where tokens are
 * sampled. The draft runs on the calling thread's device alone, of the generator's rows, sequences,
 * type and threads, and ends with the generator. Its ids are the generator's: ids that one of them
 * has no row for are never drafted. Errors: as ls_generator_create. */
LS_CHECKED ls_status ls_generator_set_draft(ls_arena *arena, ls_generator *generator,
                                            const ls_draft_options *options, ls_error *error);

/* Told as prompts are fed, on the generator's thread: `done` of the `all` tokens that are fed
 * together: first 0, then what each program adds up to, -1 where the rest is given up. An error of
 * it ends the work. */
typedef ls_status ls_generate_told(void *context, int64_t done, int64_t all, ls_error *error);
void ls_generator_tell(ls_generator *generator, ls_generate_told *told, void *context);

/* Tokens of a sequence that can be fed in all, and sequences at once. */
int64_t ls_generator_rows(const ls_generator *generator);

/* What a rank of the stage that needs most has: bytes, of them of caches; rows of the caches of all
 * sequences, and how many of them are its own. */
typedef struct ls_generator_memory {
  int64_t bytes, cache_bytes, rows, own_rows;
} ls_generator_memory;
ls_generator_memory ls_generator_memory_of(const ls_generator *generator);
int64_t ls_generator_sequences(const ls_generator *generator);

/* Appends tokens to the sequence; *logits are those after the last one, one for each entry of the
 * vocabulary, and hold until the next call. LS_INPUT where they do not fit or an id is outside the
 * vocabulary. */
LS_CHECKED ls_status ls_generator_feed(ls_generator *generator, const int32_t *ids, int64_t count,
                                       const float **logits, ls_error *error);

/* Begins a new sequence. */
void ls_generator_reset(ls_generator *generator);

typedef enum ls_generate_end {
  LS_GENERATE_ALL = 0,   /* as many tokens as were asked for */
  LS_GENERATE_END_ID,    /* the model ended the text */
  LS_GENERATE_POSITIONS, /* the model is made for no more */
  LS_GENERATE_ENOUGH     /* `enough` said so */
} ls_generate_end;

/* What to generate. `token` takes each new token as it is chosen; an error of it ends the work. */
typedef struct ls_generate_request {
  const int32_t *prompt;
  int64_t prompt_count;
  int64_t most; /* new tokens */
  ls_sampling sampling;
  const int32_t *ends; /* further ids that end the text; end_count of them */
  int end_count;
  bool continues; /* what is cached of the prompt's beginning is not computed again */
  bool (*enough)(void *context); /* asked between tokens and amid long prompts; NULL: never */
  ls_status (*token)(void *context, int32_t id, ls_error *error);
  /* Of several: the request is taken up, and is done. NULL: nobody is told. */
  ls_status (*begins)(void *context, ls_error *error);
  ls_status (*done)(void *context, ls_generate_end end, ls_error *error);
  ls_draft_counts *drafts; /* counted up; NULL: nobody asks */
  void *context;
} ls_generate_request;

/* Continues the prompt; the id that ends a text is not handed out. The same request gives the same
 * tokens; with `continues` as far as rounding does not depend on how many tokens are computed at
 * once. */
LS_CHECKED ls_status ls_generate(ls_generator *generator, const ls_generate_request *request,
                                 ls_generate_end *end, ls_error *error);

/* All of them, as many at once as there are sequences: where one ends the next begins. Each gives
 * what it gives alone, as far as rounding does not depend on how many tokens are computed at once.
 */
LS_CHECKED ls_status ls_generate_all(ls_generator *generator, const ls_generate_request *requests,
                                     int count, ls_error *error);

/* Tokens of the prompt that the last ls_generate found in the cache. */
int64_t ls_generator_reused(const ls_generator *generator);

#endif
