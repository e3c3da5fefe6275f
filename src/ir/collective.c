#include "ir/collective.h"

const char *ls_collective_name(ls_collective collective) {
  static const char *const names[] = {"op",    "all-reduce", "reduce-scatter", "all-gather",
                                      "send",  "receive",    "sent",           "move",
                                      "moved", "sum begin",  "sum end"};
  return names[collective];
}

bool ls_collective_moves(ls_collective collective) {
  return collective == LS_MOVE || collective == LS_MOVED;
}
