/* The rounds of saving, loading and beginning, and what runs such a list: nobody waits for a rank
 * that failed alone, since all hear of it before the next collective.
 *
 *   static ls_round_work *const work[] = {[LS_SAVE_NAME] = give_name, ...};
 *   LS_TRY(ls_rounds_run(rank, &ls_save_rounds, work, self, error));
 *
 * Each rank runs a list from its own thread, all ranks the same one. */
#ifndef LS_SESSION_ROUNDS_H
#define LS_SESSION_ROUNDS_H

#include "ir/rounds.h"
#include "run/rank.h"

/* The rounds of a list in their order: enum suffix, name, who works, whether that may fail, the
 * meeting, what the work needs and what it makes. */
#define LS_SAVE_ROUNDS(X)                                                        \
  X(SAVE_NAME, "name the folder", FIRST_RANK, false, BROADCAST, 0, 1)            \
  X(SAVE_LIST, "list the tensors", ALL_RANKS, true, AGREE, 1, 2)                 \
  X(SAVE_BEGIN, "begin the files", FIRST_RANK, true, AGREE, 1 | 2, 4)            \
  X(SAVE_JOIN, "open the files", OTHER_RANKS, true, AGREE, 4, 8)                 \
  X(SAVE_WRITE, "write its ranges", ALL_RANKS, true, AGREE, 4 | 8, 16)           \
  X(SAVE_SUMS, "sum what was written", ALL_RANKS, false, GATHER, 16, 32)         \
  X(SAVE_CLOSE, "compare sums, close the files", ALL_RANKS, true, AGREE, 32, 64) \
  X(SAVE_PUBLISH, "give the folder its name", FIRST_RANK, true, AGREE, 64, 128)

#define LS_FIND_ROUNDS(X)                                                     \
  X(FIND_NEWEST, "find the newest checkpoint", FIRST_RANK, true, AGREE, 0, 1) \
  X(FIND_SHARE, "name it", FIRST_RANK, false, BROADCAST, 1, 2)

#define LS_VERIFY_ROUNDS(X)                                              \
  X(VERIFY_SUM, "sum a part of each file", ALL_RANKS, true, AGREE, 0, 1) \
  X(VERIFY_SUMS, "sum the files", ALL_RANKS, false, GATHER, 1, 2)        \
  X(VERIFY_COMPARE, "compare with the sums kept", ALL_RANKS, true, AGREE, 2, 4)

#define LS_FILL_ROUNDS(X) X(FILL, "fill its ranges", ALL_RANKS, true, AGREE, 0, 1)

/* The first ends when all are there, so that they time at once. */
#define LS_PEAK_ROUNDS(X)                                         \
  X(PEAK_KEPT, "read what is kept", ALL_RANKS, true, AGREE, 0, 1) \
  X(PEAK_PRODUCTS, "time products", ALL_RANKS, true, AGREE, 1, 2) \
  X(PEAK_SHARE, "give its rates", ALL_RANKS, false, GATHER, 1 | 2, 4)

#define LS_BEGIN_ROUNDS(X)                                    \
  X(BEGIN_RUN, "begin the run", ALL_RANKS, true, AGREE, 0, 1) \
  X(BEGIN_AGAIN, "whether an evaluation is repeated", FIRST_RANK, false, BROADCAST, 1, 2)

#define LS_ROUND_ENUM(suffix, ...) LS_##suffix,
enum { LS_SAVE_ROUNDS(LS_ROUND_ENUM) LS_SAVE_ROUND_COUNT };
enum { LS_FIND_ROUNDS(LS_ROUND_ENUM) LS_FIND_ROUND_COUNT };
enum { LS_VERIFY_ROUNDS(LS_ROUND_ENUM) LS_VERIFY_ROUND_COUNT };
enum { LS_FILL_ROUNDS(LS_ROUND_ENUM) LS_FILL_ROUND_COUNT };
enum { LS_PEAK_ROUNDS(LS_ROUND_ENUM) LS_PEAK_ROUND_COUNT };
enum { LS_BEGIN_ROUNDS(LS_ROUND_ENUM) LS_BEGIN_ROUND_COUNT };
#undef LS_ROUND_ENUM

extern const ls_rounds ls_save_rounds, ls_find_rounds, ls_verify_rounds, ls_fill_rounds;
extern const ls_rounds ls_peak_rounds, ls_begin_rounds;

/* Saving, and all that a run goes through before its first step: finding a checkpoint, verifying
 * and loading it, measuring the peak, beginning. */
enum { LS_ROUND_LISTS = 6 };
extern const ls_rounds *const ls_round_lists[LS_ROUND_LISTS];

/* What goes through the collective of a round, of int64: set by the work. */
typedef struct ls_round_message {
  void *own;     /* of this rank; to be filled, in a broadcast */
  void *every;   /* in a gather: of all ranks */
  int64_t count; /* numbers of one rank */
} ls_round_message;

/* The work of this rank in a round. In a broadcast all ranks are asked for the place of what rank 0
 * gives. */
typedef ls_status ls_round_work(void *context, ls_round_message *message, ls_error *error);

/* Runs the rounds, by `work[round]`. Errors: what the first rank failed with, on all of them; those
 * of the collectives. Collective: all ranks. */
LS_CHECKED ls_status ls_rounds_run(ls_rank *rank, const ls_rounds *rounds,
                                   ls_round_work *const *work, void *context, ls_error *error);

#endif
