#include "ir/collective.h"

const char *ls_collective_name(ls_collective collective) {
  static const char *const names[LS_COLLECTIVE_COUNT] = {
      "op",   "all-reduce", "reduce-scatter", "all-gather", "send",      "receive",
      "move", "all-to-all", "permute",        "deal",       "hand back", "sum"};
  return names[collective];
}

const char *ls_phase_name(ls_phase phase) {
  static const char *const names[] = {"", "begin ", "end of "};
  return names[phase];
}

bool ls_collective_moves(ls_collective collective) {
  return collective == LS_MOVE;
}

bool ls_collective_is_message(ls_collective collective) {
  return collective == LS_SEND || collective == LS_RECEIVE;
}

bool ls_collective_is_of_group(ls_collective collective) {
  return collective == LS_ALL_REDUCE || collective == LS_REDUCE_SCATTER ||
         collective == LS_ALL_GATHER || collective == LS_ALL_TO_ALL || collective == LS_PERMUTE ||
         ls_collective_deals(collective);
}

bool ls_collective_deals(ls_collective collective) {
  return collective == LS_DEAL || collective == LS_HAND_BACK;
}

bool ls_collective_communicates(ls_collective collective) {
  return collective != LS_COLLECTIVE_NONE && !ls_collective_moves(collective);
}
