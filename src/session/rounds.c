#include "session/rounds.h"

#include "session/agree.h"

#define ROUND(suffix, text, workers, fails, meets, wants, gives) \
  {.name = text,                                                 \
   .who = LS_##workers,                                          \
   .may_fail = fails,                                            \
   .meeting = LS_MEETING_##meets,                                \
   .needs = wants,                                               \
   .makes = gives},

static const ls_round save_rounds[] = {LS_SAVE_ROUNDS(ROUND)};
static const ls_round find_rounds[] = {LS_FIND_ROUNDS(ROUND)};
static const ls_round verify_rounds[] = {LS_VERIFY_ROUNDS(ROUND)};
static const ls_round fill_rounds[] = {LS_FILL_ROUNDS(ROUND)};
static const ls_round peak_rounds[] = {LS_PEAK_ROUNDS(ROUND)};
static const ls_round begin_rounds[] = {LS_BEGIN_ROUNDS(ROUND)};

const ls_rounds ls_save_rounds = {"saving", save_rounds, LS_SAVE_ROUND_COUNT, 128};
const ls_rounds ls_find_rounds = {"finding a checkpoint", find_rounds, LS_FIND_ROUND_COUNT, 2};
const ls_rounds ls_verify_rounds = {"verifying it", verify_rounds, LS_VERIFY_ROUND_COUNT, 4};
const ls_rounds ls_fill_rounds = {"loading", fill_rounds, LS_FILL_ROUND_COUNT, 1};
const ls_rounds ls_peak_rounds = {"measuring the peak", peak_rounds, LS_PEAK_ROUND_COUNT, 4};
const ls_rounds ls_begin_rounds = {"beginning", begin_rounds, LS_BEGIN_ROUND_COUNT, 2};

const ls_rounds *const ls_round_lists[LS_ROUND_LISTS] = {&ls_save_rounds,   &ls_find_rounds,
                                                         &ls_verify_rounds, &ls_fill_rounds,
                                                         &ls_peak_rounds,   &ls_begin_rounds};

static bool works(const ls_round *round, int rank) {
  return round->meeting != LS_MEETING_AGREE || round->who == LS_ALL_RANKS ||
         (round->who == LS_FIRST_RANK) == (rank == 0);
}

static ls_status meet(ls_rank *rank, const ls_round *round, const ls_round_message *message,
                      ls_status own, ls_error *error) {
  if (round->meeting == LS_MEETING_AGREE) return ls_agree(rank, own, error);
  LS_ASSERT(own == LS_OK);
  ls_group *all = ls_rank_world_group(rank);
  ls_comm_about(ls_rank_comm(rank), round->name);
  if (round->meeting == LS_MEETING_BROADCAST)
    return ls_broadcast(all, message->own, message->count, LS_I64, 0, error);
  return ls_all_gather(all, message->every, message->own, message->count * ls_group_size(all),
                       LS_I64, error);
}

ls_status ls_rounds_run(ls_rank *rank, const ls_rounds *rounds, ls_round_work *const *work,
                        void *context, ls_error *error) {
  for (int r = 0; r < rounds->count; r++) {
    const ls_round *round = &rounds->items[r];
    ls_round_message message = {0};
    const ls_status own =
        works(round, ls_rank_number(rank)) ? work[r](context, &message, error) : LS_OK;
    LS_TRY(meet(rank, round, &message, own, error));
  }
  return LS_OK;
}
