/* What the files of a generator share: its sequences, and the running of programs over them. Not
 * for others: they use generate/generate.h.
 *
 *   LS_TRY(ls_generator_follow(generator, 0, ids, count, error));
 *   LS_TRY(ls_generator_run_tokens(generator, tokens, count, &logits, error));
 *
 * Of the generator's thread. */
#ifndef LS_GENERATE_GENERATOR_H
#define LS_GENERATE_GENERATOR_H

#include "generate/decoder.h"
#include "generate/generate.h"

/* What is proposed for the tokens behind the next of a sequence. */
typedef struct ls_drafted {
  int32_t ids[LS_MOST_DRAFTED];
  int64_t count;
  ls_chances chances[LS_MOST_DRAFTED]; /* that they had */
  bool sure;                           /* they had no others: chances are not looked at */
} ls_drafted;

/* One of those that the caches hold, and the request that it is of. */
typedef struct ls_sequence {
  int32_t *ids; /* [rows] that the caches hold, those fed, and the next */
  int64_t fed;
  const ls_generate_request *request; /* NULL: none */
  ls_arena *scratch;                  /* of its sampler */
  ls_sampler *sampler;
  int64_t made;
  int32_t next; /* to be fed, with logits */
  ls_drafted drafted;
  bool ended;
  ls_generate_end end;
} ls_sequence;

typedef struct ls_draft ls_draft;

struct ls_generator {
  ls_decoding *decoding;
  ls_decoder *decoder;
  ls_world *world; /* its own; NULL: a caller's */
  ls_draft *draft; /* NULL: none */
  ls_sequence sequences[LS_MOST_SEQUENCES];
  int64_t reused;            /* tokens by the last request */
  ls_decoder_token *pending; /* of prompts, [sequences * rows] */
  int64_t pending_count;
  ls_generate_told *told; /* NULL: nobody is */
  void *told_context;
};

/* Has a sequence hold `count` ids: goes back to where they and what is cached part. All but the
 * last are left pending, which is `next`. LS_INPUT as ls_generator_feed. */
LS_CHECKED ls_status ls_generator_follow(ls_generator *generator, int64_t sequence,
                                         const int32_t *ids, int64_t count, ls_error *error);

/* Feeds what is pending, unless all that it is of have enough: these end. */
LS_CHECKED ls_status ls_generator_feed_pending(ls_generator *generator, ls_error *error);

/* Feeds tokens with logits of each, [count, vocabulary] until the next call. */
LS_CHECKED ls_status ls_generator_run_tokens(ls_generator *generator,
                                             const ls_decoder_token *tokens, int64_t count,
                                             const float **logits, ls_error *error);

/* A draft for a generator; its model, if it has one, is on the calling thread. Errors: as
 * ls_generator_create; LS_INPUT also where the draft's tokens cannot be. */
LS_CHECKED ls_status ls_draft_create(ls_arena *arena, const ls_draft_options *options,
                                     const ls_generator *generator, ls_draft **draft,
                                     ls_error *error);
void ls_draft_destroy(ls_draft **draft);

/* Begins a sequence anew. */
void ls_draft_forget(ls_draft *draft, int64_t sequence);

/* Proposes tokens behind the next of each sequence that has a request and has not ended. */
LS_CHECKED ls_status ls_draft_propose(ls_draft *draft, ls_generator *generator, ls_error *error);

#endif
