/* A rank that decodes, and the others that do as it says: rank 0 names a program and its tokens,
 * all run it, and rank 0 has the logits.
 *
 *   ls_decoder *decoder;
 *   LS_TRY(ls_decoder_create(arena, &decoding, comm, folder, &decoder, error));
 *   if (ls_comm_rank(comm) != 0) return ls_decoder_serve(decoder, error);
 *   LS_TRY(ls_decoder_run(decoder, which, tokens, count, &logits, error));
 *   ...
 *   LS_TRY(ls_decoder_dismiss(decoder, error));
 *
 * Used by its rank's own thread. */
#ifndef LS_GENERATE_DECODER_H
#define LS_GENERATE_DECODER_H

#include "generate/decoding.h"

typedef struct ls_decoder ls_decoder;

/* A token, which of its sequence, and of which sequence of the caches. */
typedef struct ls_decoder_token {
  int32_t id, position, sequence;
} ls_decoder_token;

/* A rank with the weights of a folder. In the arena, which is the thread's own. Collective: all
 * ranks, which hear of it where one fails. */
LS_CHECKED ls_status ls_decoder_create(ls_arena *arena, const ls_decoding *decoding, ls_comm *comm,
                                       const char *folder, ls_decoder **decoder, ls_error *error);
void ls_decoder_destroy(ls_decoder **decoder);

/* Of rank 0: has all ranks run a program for `count` tokens, as many as it takes or fewer. *logits
 * of each of them, [count, vocabulary], until the next call; NULL: the program has none. */
LS_CHECKED ls_status ls_decoder_run(ls_decoder *decoder, int which, const ls_decoder_token *tokens,
                                    int64_t count, const float **logits, ls_error *error);

/* Of the other ranks: runs what rank 0 says until it dismisses them. */
LS_CHECKED ls_status ls_decoder_serve(ls_decoder *decoder, ls_error *error);

/* Of rank 0, once: the others' ls_decoder_serve returns. */
LS_CHECKED ls_status ls_decoder_dismiss(ls_decoder *decoder, ls_error *error);

#endif
