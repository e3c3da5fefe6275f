#include "session/token_order.h"

int64_t ls_token_order(int64_t row, int64_t sequence, int ranks, int rank) {
  const int64_t own = sequence / ranks, begin = row / own * sequence, at = row % own;
  if (ranks == 1) return row;
  const int64_t chunk = own / 2;
  return at < chunk ? begin + rank * chunk + at
                    : begin + (2 * (int64_t)ranks - 1 - rank) * chunk + at - chunk;
}
