/* Rounds: every rank meets the others in the same collectives in the same order, whoever fails
 * alone is heard of before the next one, and what a rank needs of another is there. */
#include <string.h>

#include "check/check.h"

static ls_status fail_round(const ls_rounds *rounds, int r, ls_error *error, const char *what) {
  return ls_fail(error, LS_REFUTED, "%s, round %d (%s): %s", rounds->name, r,
                 r < rounds->count ? rounds->items[r].name : "none", what);
}

/* What an earlier round makes is there on all ranks: each ends with a collective that nobody leaves
 * before all came whose work it is of, a broadcast with rank 0's. */
static ls_status check_round(const ls_rounds *rounds, int r, unsigned there, ls_error *error) {
  const ls_round *round = &rounds->items[r];
  if ((int)round->meeting < 0 || round->meeting >= LS_MEETING_COUNT)
    return fail_round(rounds, r, error, "ends with no known collective: expected one");
  if (!round->may_fail && round->meeting == LS_MEETING_AGREE)
    return fail_round(rounds, r, error,
                      "cannot fail, and nothing goes to the others: expected a broadcast or a "
                      "gather");
  if (round->may_fail && round->meeting != LS_MEETING_AGREE)
    return fail_round(
        rounds, r, error,
        "may fail on one rank, for which the others then wait: expected all to agree");
  if ((round->meeting == LS_MEETING_BROADCAST && round->who != LS_FIRST_RANK) ||
      (round->meeting == LS_MEETING_GATHER && round->who != LS_ALL_RANKS))
    return fail_round(rounds, r, error,
                      "is of other ranks than its collective takes from: expected rank 0's to be "
                      "broadcast, that of all to be gathered");
  if (round->needs & ~there)
    return fail_round(rounds, r, error,
                      "needs what no round before it has made: expected that to come first");
  if (!round->makes || (round->makes & there))
    return fail_round(rounds, r, error,
                      "makes nothing, or what is there: expected each thing made once");
  return LS_OK;
}

static ls_status check_alike(const ls_rounds *first, const ls_rounds *other, int rank,
                             ls_error *error) {
  const int most = first->count > other->count ? first->count : other->count;
  for (int r = 0; r < most; r++) {
    const bool both = r < first->count && r < other->count;
    if (both && first->items[r].meeting == other->items[r].meeting &&
        first->items[r].makes == other->items[r].makes)
      continue;
    return ls_fail(error, LS_REFUTED,
                   "%s, round %d: rank 0 comes to \"%s\", rank %d to \"%s\": expected the same",
                   first->name, r, r < first->count ? first->items[r].name : "its end", rank,
                   r < other->count ? other->items[r].name : "its end");
  }
  return LS_OK;
}

ls_status ls_check_rounds(const ls_rounds *const *of_rank, int ranks, ls_error *error) {
  const ls_rounds *rounds = of_rank[0];
  unsigned there = 0;
  for (int r = 0; r < rounds->count; r++) {
    LS_TRY(check_round(rounds, r, there, error));
    there |= rounds->items[r].makes;
  }
  if (rounds->goal & ~there)
    return fail_round(rounds, rounds->count, error, "ends before its goal: expected it made");
  for (int r = 1; r < ranks; r++) LS_TRY(check_alike(rounds, of_rank[r], r, error));
  return LS_OK;
}
