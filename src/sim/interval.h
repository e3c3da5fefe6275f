/* How far measured steps were from simulated ones, by the kind of machine: the error bar of a
 * simulated time.
 *
 *   const ls_interval *interval = ls_interval_of(cluster, 64);
 *   if (interval) printf("%s\n", ls_interval_print(arena, interval, simulation->seconds));
 *
 * Read-only tables; thread-safe as long as no two threads share an arena. */
#ifndef LS_SIM_INTERVAL_H
#define LS_SIM_INTERVAL_H

#include "cluster/cluster.h"

/* CARDS: one host of devices that do not read each other's memory, or one such. DEVICE, HOST: one
 * device of another kind, one host of these. HOSTS: several of any. */
#define LS_INTERVALS(X) X(CARDS) X(DEVICE) X(HOST) X(HOSTS)
typedef enum ls_interval_kind {
#define LS_INTERVAL_ENUM(suffix) LS_INTERVAL_##suffix,
  LS_INTERVALS(LS_INTERVAL_ENUM)
#undef LS_INTERVAL_ENUM
      LS_INTERVAL_KINDS
} ls_interval_kind;

/* Measured seconds over simulated ones, of published runs whose software's constants were fitted on
 * other runs: eight in ten lie between `low` and `high`. */
typedef struct ls_interval {
  const char *machines; /* "one host", as behind "runs on" */
  int runs, sources;
  double low, high;
} ls_interval;

extern const ls_interval ls_intervals[LS_INTERVAL_KINDS];

ls_interval_kind ls_interval_kind_of(const ls_cluster *cluster, int devices);

/* Of so many devices of a cluster; NULL: none were compared, as of this machine (cluster NULL). */
const ls_interval *ls_interval_of(const ls_cluster *cluster, int devices);

/* Bounds of so many simulated seconds, which always lie between them. */
double ls_interval_low(const ls_interval *of, double seconds);
double ls_interval_high(const ls_interval *of, double seconds);

/* "0.980 s to 1.500 s: 80 % of 43 published runs on one host": of these simulated seconds, in the
 * arena. */
const char *ls_interval_print(ls_arena *arena, const ls_interval *of, double seconds);

#endif
