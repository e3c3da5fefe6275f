/* Error bars of simulated times, from comparisons with published runs. */
#include "sim/interval.h"

#include <math.h>

#include "text/number.h"

/* Runs, sources, low, high: as `build/bench/published ROWS.csv --half shown --intervals` prints
 * them; docs/validation.md has the same table and says what was compared. */
const ls_interval ls_intervals[LS_INTERVAL_KINDS] = {
    [LS_INTERVAL_CARDS] = {"cards without peer access", 10, 2, 0.78, 1.03},
    [LS_INTERVAL_DEVICE] = {"one device", 11, 3, 0.90, 1.25},
    [LS_INTERVAL_HOST] = {"one host", 150, 11, 0.88, 1.17},
    [LS_INTERVAL_HOSTS] = {"several hosts", 121, 12, 0.88, 1.20},
};

ls_interval_kind ls_interval_kind_of(const ls_cluster *cluster, int devices) {
  if (devices > cluster->per_host) return LS_INTERVAL_HOSTS;
  if (!cluster->peer_access) return LS_INTERVAL_CARDS;
  return devices > 1 ? LS_INTERVAL_HOST : LS_INTERVAL_DEVICE;
}

const ls_interval *ls_interval_of(const ls_cluster *cluster, int devices) {
  if (!cluster) return NULL;
  const ls_interval *found = &ls_intervals[ls_interval_kind_of(cluster, devices)];
  return found->runs ? found : NULL;
}

double ls_interval_low(const ls_interval *of, double seconds) {
  return seconds * fmin(of->low, 1);
}

double ls_interval_high(const ls_interval *of, double seconds) {
  return seconds * fmax(of->high, 1);
}

const char *ls_interval_print(ls_arena *arena, const ls_interval *of, double seconds) {
  char low[LS_NUMBER_BYTES], high[LS_NUMBER_BYTES];
  ls_seconds_show(low, ls_interval_low(of, seconds));
  ls_seconds_show(high, ls_interval_high(of, seconds));
  return ls_arena_printf(arena, "%s to %s: 80 %% of %d published runs on %s", low, high, of->runs,
                         of->machines);
}
