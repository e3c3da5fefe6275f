/* The programs that decode a model: compiled and proved once, shared by all ranks of a process.
 *
 *   ls_decoding decoding;
 *   LS_TRY(ls_decoding_compile(arena, &config, &options, &decoding, error));
 *   LS_TRY(ls_decoding_open(&decoding, ranks_on_host, ranks_here, error));
 *
 * All keep weights and caches at the same places: a rank runs now one, now another. Read-only once
 * opened. */
#ifndef LS_GENERATE_DECODING_H
#define LS_GENERATE_DECODING_H

#include "session/session.h"

/* Sequences that are decoded at once, at most. */
enum { LS_MOST_SEQUENCES = 32 };

/* Tokens that a draft proposes at once, at most. */
enum { LS_MOST_DRAFTED = 16 };

typedef struct ls_decoding_options {
  ls_dtype compute;
  const ls_run_device *device; /* NULL: the CPU; its `threads` are not looked at */
  void (*tuning)(void *context, const ls_rank_tuning *said); /* as in ls_rank_options */
  void *tuning_context;
  int threads;       /* of each rank's kernels; 0: what suits the model */
  int64_t rows;      /* the most tokens of a sequence that are ever fed */
  int64_t sequences; /* at once; 0: one */
  int64_t ahead;     /* tokens behind one whose logits are wanted in the same go; 0: none */
  int pp, cp, tp; /* stages; of each ranks that tokens and rows of the caches are dealt to, of each
                   * of these those that have other heads; 0: one */
} ls_decoding_options;

typedef struct ls_decoding {
  ls_arena *arena;
  ls_session session; /* of the program for one token: what loads weights */
  ls_decoding_options options;
  const ls_program *const *stages[LS_MAX_PROGRAMS]; /* [pp] of each program */
  int heads; /* the first of them have logits: of one token of 1, 2, 4 ... sequences, or of all
              * that are wanted in one go */
  int count; /* of the others nobody wants them: for all of a prompt but its last token */
  int64_t rows, sequences;
  int64_t places; /* rows of the caches that each sequence has, `rows` or a few more */
  ls_device device;
} ls_decoding;

/* LS_INPUT: a layout that cannot be, with the nearest that can. */
LS_CHECKED ls_status ls_decoding_compile(ls_arena *arena, const ls_model_config *config,
                                         const ls_decoding_options *options, ls_decoding *decoding,
                                         ls_error *error);

/* Bytes of a rank of the stage that needs most. */
int64_t ls_decoding_bytes(const ls_decoding *decoding);

/* Bytes of the caches of a rank of the stage that has most of them. */
int64_t ls_decoding_cache_bytes(const ls_decoding *decoding);

/* Opens the device for ranks of which so many share this host and this process. LS_REFUTED: memory
 * does not hold them, with what it would hold. */
LS_CHECKED ls_status ls_decoding_open(ls_decoding *decoding, int ranks_on_host, int ranks_here,
                                      ls_error *error);

/* Tokens that a program takes. */
int64_t ls_decoding_tokens(const ls_decoding *decoding, int which);

/* The first program with logits for so many tokens. */
int ls_decoding_head(const ls_decoding *decoding, int64_t tokens);

/* The program for the next of `left` tokens without logits, of which `done` have been fed: the
 * widest that they fill, or the next wider one, which goes through some of those once more, where
 * that takes less. */
int ls_decoding_choose(const ls_decoding *decoding, int64_t done, int64_t left);

#endif
